//! Counter samplers shared by the sessions of this process: a device's counters have one owner.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use cupti::Library;
use cupti::counters::utilization::Row;
use cupti::counters::{PmSampler, Samples};
use parking_lot::{Mutex, MutexGuard};

use crate::record::series::{Failure, FailureCause, Kept, Lost, Series};

/// The maximum time that a session other than the last one waits for its last samples (one or two
/// decodings).
const LAST_SAMPLES: Duration = Duration::from_secs(1);

/// The running samplers. Locked to start or end one.
static RUNNING: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// The settings of a sampler. Sessions with equal settings share it.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) library: Library,
    pub(super) device: u32,
    pub(super) interval: Duration,
    pub(super) rows: Vec<&'static Row>,
    pub(super) metrics: Vec<String>,
}

impl Wanted {
    fn is_same(&self, other: &Self) -> bool {
        let of = |wanted: &Self| (wanted.device, wanted.interval);
        of(self) == of(other)
            && (&self.rows, &self.metrics) == (&other.rows, &other.metrics)
            && self.library.is_same(&other.library)
    }

    fn start(&self, most: usize) -> Result<PmSampler, cupti::Error> {
        let builder = PmSampler::builder(&self.library).device(self.device);
        let builder = builder.interval(self.interval).max_samples(most);
        let builder = builder.metrics(self.metrics.iter().cloned());
        builder.rows(self.rows.iter().copied()).start()
    }
}

#[derive(Debug)]
struct Shared {
    wanted: Wanted,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` once it has ended.
    sampler: Option<PmSampler>,
    kept: Kept,
}

impl State {
    /// Takes the samples so far, and ends a sampler that failed.
    fn take(&mut self) {
        let Some(sampler) = &mut self.sampler else { return };
        if sampler.has_ended() {
            return self.end();
        }
        match sampler.drain() {
            Ok(samples) => self.add(&samples),
            Err(error) => self.kept.fail(ended(&error)),
        }
    }

    fn end(&mut self) {
        match self.sampler.take().map(PmSampler::stop) {
            Some(Ok(samples)) => self.add(&samples),
            Some(Err(error)) => self.kept.fail(ended(&error)),
            None => {}
        }
    }

    fn add(&mut self, samples: &Samples) {
        let first_ns = samples.iter().next().map(|sample| sample.start_ns());
        self.kept.count_gone(samples.dropped(), first_ns);
        self.kept.count_overflows(samples.overflows());
        let mut row = Vec::with_capacity(samples.metrics().len());
        for sample in samples.iter() {
            row.clear();
            row.extend(sample.values().map(|(_, value)| value));
            // Out of order if the system clock was set.
            self.kept.push(sample.start_ns(), sample.end_ns(), &row);
        }
        if let Some(message) = samples.failure() {
            self.kept.fail(Failure::new(FailureCause::Ended, message));
        }
        self.kept.keep_last();
    }
}

fn ended(error: &cupti::Error) -> Failure {
    Failure::new(FailureCause::Ended, error.to_string())
}

/// One session's share of a sampler. Dropping the last one ends it.
#[derive(Debug)]
pub(super) struct Counters {
    of: Arc<Shared>,
    /// The losses before the session.
    before: Lost,
}

impl Counters {
    /// Joins a running sampler with equal settings, or starts one with an empty series.
    pub(super) fn start(
        wanted: Wanted,
        most: usize,
        series: impl FnOnce(&PmSampler) -> Series,
    ) -> Result<Self, cupti::Error> {
        let mut running = RUNNING.lock();
        running.retain(|shared| shared.strong_count() > 0);
        let mut known = running.iter().filter_map(Weak::upgrade);
        if let Some(of) = known.find(|shared| shared.wanted.is_same(&wanted)) {
            let mut state = of.state.lock();
            state.take();
            let (before, runs) = (state.kept.lost(), state.sampler.is_some());
            drop(state);
            if runs {
                return Ok(Self { of, before });
            }
            // The sampler failed; its sessions retain their samples.
            running.retain(|shared| shared.as_ptr() != Arc::as_ptr(&of));
        }
        let sampler = wanted.start(most)?;
        let kept = Kept::new(series(&sampler), most);
        let state = State { sampler: Some(sampler), kept };
        let of = Arc::new(Shared { wanted, state: Mutex::new(state) });
        running.push(Arc::downgrade(&of));
        Ok(Self { of, before: Lost::default() })
    }

    /// Discards the samples so far.
    pub(super) fn restart(&mut self) {
        let _running = RUNNING.lock();
        let mut state = self.of.state.lock();
        state.take();
        if Arc::strong_count(&self.of) == 1 {
            state.kept.clear();
        }
        self.before = state.kept.lost();
    }

    /// Returns the samples so far within a window.
    pub(super) fn so_far(&self, window_ns: (u64, u64)) -> Series {
        let mut state = self.of.state.lock();
        state.take();
        state.kept.window(window_ns, self.before)
    }

    /// Returns the samples within a window, and ends the sampler if no other session uses it.
    pub(super) fn stop(self, window_ns: (u64, u64)) -> Series {
        let Self { of, before } = self;
        let running = RUNNING.lock();
        if Arc::strong_count(&of) == 1 {
            let mut state = of.state.lock();
            state.end();
            let series = state.kept.take_within(window_ns, before);
            drop(state);
            leave(of, running);
            return series;
        }
        drop(running);
        let begun = Instant::now();
        let series = loop {
            let mut state = of.state.lock();
            state.take();
            let reached_ns = state.kept.reached_ns().saturating_add(state.kept.interval_ns());
            let is_all = reached_ns >= window_ns.1 || state.sampler.is_none();
            if is_all || begun.elapsed() >= LAST_SAMPLES {
                break state.kept.window(window_ns, before);
            }
            drop(state);
            thread::sleep(Duration::from_millis(1));
        };
        // Ends the sampler if the others have left since.
        leave(of, RUNNING.lock());
        series
    }
}

/// Drops it with the lock held: the next session then finds the sampler running, or the counters
/// free.
fn leave(of: Arc<Shared>, _running: MutexGuard<'_, Vec<Weak<Shared>>>) {
    drop(of);
}
