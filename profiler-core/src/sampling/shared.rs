//! Samplers of counters, which sessions of this process share: the counters of a device have one owner.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use cupti::Library;
use cupti::counters::{PmSampler, Samples};
use parking_lot::Mutex;

use crate::series::{Cause, Failure, Series};

/// How long the end of a session that is not the last waits for its last samples at most; they come with a decoding or two.
const LAST_SAMPLES: Duration = Duration::from_secs(1);

/// Those that run. Who begins or ends one holds the lock.
static RUNNING: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// What is sampled. Sessions that sample the same share a sampler.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) library: Library,
    pub(super) device: u32,
    pub(super) interval: Duration,
    pub(super) utilization: bool,
    pub(super) metrics: Vec<String>,
}

impl Wanted {
    fn is_same(&self, other: &Self) -> bool {
        let of = |wanted: &Self| (wanted.device, wanted.interval, wanted.utilization);
        of(self) == of(other)
            && self.metrics == other.metrics
            && self.library.is_same(&other.library)
    }

    fn start(&self, most: usize) -> Result<PmSampler, cupti::Error> {
        let builder = PmSampler::builder(&self.library).device(self.device);
        let builder = builder.interval(self.interval).max_samples(most);
        let builder = builder.metrics(self.metrics.iter().cloned());
        if self.utilization { builder.utilization().start() } else { builder.start() }
    }
}

#[derive(Debug)]
struct Shared {
    wanted: Wanted,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` when it has been ended.
    sampler: Option<PmSampler>,
    so_far: Series,
    most: usize,
}

impl State {
    /// Takes out what was sampled.
    fn take(&mut self) {
        let Some(sampler) = &mut self.sampler else { return };
        match sampler.drain() {
            Ok(samples) => add(&mut self.so_far, &samples, self.most),
            Err(error) => self.so_far.fail(ended(&error)),
        }
    }
}

/// What was lost before a session, and is none of its losses.
#[derive(Debug, Clone, Copy, Default)]
struct Before {
    dropped: u64,
    overflows: u64,
}

impl Before {
    fn of(series: &Series) -> Self {
        Self { dropped: series.dropped(), overflows: series.overflows() }
    }

    fn left_out(self, series: &Series) -> Series {
        let mut series = series.clone();
        let head = &mut series.head;
        head.dropped = head.dropped.saturating_sub(self.dropped);
        head.overflows = head.overflows.saturating_sub(self.overflows);
        series
    }
}

/// What one session has of a sampler. The last to drop it ends it.
#[derive(Debug)]
pub(super) struct Counters {
    of: Arc<Shared>,
    before: Before,
}

impl Counters {
    /// Joins a sampler of the same, or starts one; `series` makes an empty series of it.
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
            let before = Before::of(&state.so_far);
            drop(state);
            return Ok(Self { of, before });
        }
        let sampler = wanted.start(most)?;
        let state = State { so_far: series(&sampler), sampler: Some(sampler), most };
        let of = Arc::new(Shared { wanted, state: Mutex::new(state) });
        running.push(Arc::downgrade(&of));
        Ok(Self { of, before: Before::default() })
    }

    /// Forgets what was sampled so far.
    pub(super) fn restart(&mut self) {
        let _running = RUNNING.lock();
        let mut state = self.of.state.lock();
        state.take();
        if Arc::strong_count(&self.of) == 1 {
            state.so_far.clear();
        }
        self.before = Before::of(&state.so_far);
    }

    /// What was sampled so far.
    pub(super) fn so_far(&self) -> Series {
        let mut state = self.of.state.lock();
        state.take();
        self.before.left_out(&state.so_far)
    }

    /// Ends it, or leaves it to the others with what was sampled until a time.
    pub(super) fn stop(self, until_ns: u64) -> Series {
        let running = RUNNING.lock();
        // Nobody joins meanwhile. If the others leave now, the last of all drops it.
        if Arc::strong_count(&self.of) == 1 {
            let mut state = self.of.state.lock();
            match state.sampler.take().map(PmSampler::stop) {
                Some(Ok(samples)) => {
                    let most = state.most;
                    add(&mut state.so_far, &samples, most);
                }
                Some(Err(error)) => state.so_far.fail(ended(&error)),
                None => {}
            }
            return self.before.left_out(&state.so_far);
        }
        drop(running);
        let begun = Instant::now();
        loop {
            let mut state = self.of.state.lock();
            state.take();
            let reached = state.so_far.end_ns().last().copied().unwrap_or(0);
            let is_all = reached.saturating_add(state.so_far.interval_ns()) >= until_ns;
            if is_all || begun.elapsed() >= LAST_SAMPLES {
                return self.before.left_out(&state.so_far);
            }
            drop(state);
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn ended(error: &cupti::Error) -> Failure {
    Failure::new(Cause::Ended, error.to_string())
}

fn add(so_far: &mut Series, samples: &Samples, most: usize) {
    so_far.head.dropped += samples.dropped();
    so_far.head.overflows += samples.overflows();
    let mut row = Vec::with_capacity(samples.metrics().len());
    for sample in samples.iter() {
        row.clear();
        row.extend(sample.values().map(|(_, value)| value));
        // Out of order where the system's clock was set meanwhile.
        let pushed = so_far.push(sample.start_ns(), sample.end_ns(), &row);
        so_far.head.dropped += u64::from(pushed.is_err());
    }
    if let Some(message) = samples.failure() {
        so_far.fail(Failure::new(Cause::Ended, message));
    }
    so_far.keep_last(most);
}
