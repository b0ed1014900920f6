//! Start, pause, snapshot and stop: the one place that ties the collectors to the recording.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use cupti::{Collected, Collector, Config, Library};

use crate::error::{Error, Kind};
use crate::profile::Profile;
use crate::recording::ranges::{self, RECORDER, RecordedRanges};
use crate::recording::{Losses, Recording, RecordingInfo};

/// Records what this process does on its GPUs, and in which ranges.
///
/// ```no_run
/// use profiler_core::Profiler;
///
/// # fn step() {}
/// # fn main() -> Result<(), profiler_core::Error> {
/// let profiler = Profiler::builder().build()?; // is_unavailable() where there is no GPU
/// profiler.start()?; // is_busy() under nsys or ncu
/// {
///     let _range = nvtx::range("step");
///     step();
/// }
/// let profile = profiler.stop()?; // waits for the GPU
/// println!("{profile}");
/// # Ok(())
/// # }
/// ```
///
/// CUPTI serves one session at a time in a process: a second start is refused plainly. A session may begin and end on
/// different threads; work of all threads is seen. Dropping a running profiler throws its session away.
#[derive(Debug)]
pub struct Profiler {
    library: Library,
    config: Config,
    session: Mutex<Option<Session>>,
}

/// Fields are dropped in this order: the place becomes free last.
#[derive(Debug)]
struct Session {
    collector: Collector,
    observing: Observing,
    info: RecordingInfo,
    place: Place,
}

/// The process's one place for a session.
#[derive(Debug)]
struct Place;

static TAKEN: AtomicBool = AtomicBool::new(false);

impl Place {
    fn take() -> Result<Self, Error> {
        match TAKEN.swap(true, Ordering::Acquire) {
            true => Err(Error::new(Kind::Running)),
            false => Ok(Self),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Release);
    }
}

/// The ranges of this session are being recorded; ends it when dropped.
#[derive(Debug)]
struct Observing {
    switch: nvtx::observer::Switch,
    panics_before: u64,
    epoch: u32,
}

impl Observing {
    fn begin() -> Result<Self, Error> {
        let switch = nvtx::observer::install(&RECORDER)
            .map_err(|error| Error::new(Kind::Observer(error.to_string())))?;
        let epoch = ranges::begin();
        switch.on();
        Ok(Self { panics_before: switch.panics(), switch, epoch })
    }

    /// Panics of the observer since the beginning.
    fn panics(&self) -> u64 {
        self.switch.panics().saturating_sub(self.panics_before)
    }
}

impl Drop for Observing {
    fn drop(&mut self) {
        self.switch.off();
        let _ = ranges::end();
    }
}

/// Settings of a [`Profiler`].
#[derive(Debug, Default)]
#[must_use]
pub struct ProfilerBuilder {
    library: Option<Library>,
    config: Config,
}

impl ProfilerBuilder {
    /// Uses this CUPTI instead of the one that is found: one opened from a path, or the stand-in of `cupti::fake`.
    pub fn library(mut self, library: Library) -> Self {
        self.library = Some(library);
        self
    }

    /// What to collect and with how much memory.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Finds CUPTI; nothing is recorded yet.
    ///
    /// # Errors
    /// [`is_unavailable`](Error::is_unavailable), with what is missing.
    pub fn build(self) -> Result<Profiler, Error> {
        let library = match self.library {
            Some(library) => library,
            None => Library::open()?,
        };
        // Costs nothing but where graphs are made, and there it is what tells whose they are.
        let config = self.config.graph_events(true);
        Ok(Profiler { library, config, session: Mutex::new(None) })
    }
}

impl Profiler {
    /// A profiler with settings.
    pub fn builder() -> ProfilerBuilder {
        ProfilerBuilder::default()
    }

    /// Starts recording: ranges, driver calls, GPU records. Costs milliseconds, the first time more.
    ///
    /// Ranges that are open already, and work launched already, are not seen.
    ///
    /// # Errors
    /// [`is_busy`](Error::is_busy) if this or another profiler of the process runs, or another tool holds CUPTI (ranges
    /// go on as NVTX all the same); otherwise CUPTI's refusal.
    pub fn start(&self) -> Result<(), Error> {
        let mut session = self.session.lock();
        let place = Place::take()?;
        let info = RecordingInfo::now(&self.library);
        // The collector first: it fails more often, and a range needs no call to be seen.
        let collector = Collector::start(&self.library, &self.config)?;
        let observing = Observing::begin()?;
        *session = Some(Session { collector, observing, info, place });
        Ok(())
    }

    /// Stops and gives what was recorded, joined.
    ///
    /// Waits until the GPU has finished what was launched, at most the configured time (10 s); no context or stream of
    /// the program is touched. Joining takes about a microsecond an operation.
    ///
    /// # Errors
    /// [`is_not_running`](Error::is_not_running), or CUPTI's refusal.
    pub fn stop(&self) -> Result<Profile, Error> {
        self.stop_recording().map(Profile::from_recording)
    }

    /// Stops and gives the raw logs, not joined: the cheapest way to end a session.
    ///
    /// # Errors
    /// As [`stop`](Self::stop).
    pub fn stop_recording(&self) -> Result<Recording, Error> {
        let session = self.session.lock().take();
        let session = session.ok_or_else(|| Error::new(Kind::NotRunning))?;
        let Session { collector, observing, info, place } = session;
        let collected = collector.stop()?;
        observing.switch.off();
        let recording = recording(info, collected, ranges::end(), &observing);
        drop(observing);
        drop(place);
        Ok(recording)
    }

    /// What the session saw up to now, joined. It goes on, and the profile that its stop gives is what it would have been.
    ///
    /// All is cut off at one time. Ranges that are open count until then. The GPU is not waited for: calls under way and
    /// calls whose records may still come are [`Health::pending_calls`](crate::Health::pending_calls), open ranges
    /// [`Health::pending_ranges`](crate::Health::pending_ranges), and neither makes it incomplete. While the GPU works
    /// all the time, nothing tells a record that is late from one that is lost: the final profile does.
    ///
    /// Copies and joins all that was collected: time and memory grow with the session, by about a microsecond an
    /// operation. Threads of the program go on; only one that makes its first call, or opens a range under a new name,
    /// may wait for a copy of its own log's names or of the list of threads. Any thread may take one; several at once, and
    /// [`stop`](Self::stop), take turns while the logs are copied, not while they are joined.
    ///
    /// # Errors
    /// [`is_not_running`](Error::is_not_running), or CUPTI's refusal; also with
    /// [`Config::profiler_switch`](cupti::Config::profiler_switch), whose bounds are known at the stop alone.
    pub fn snapshot(&self) -> Result<Profile, Error> {
        self.snapshot_recording().map(Profile::from_recording)
    }

    /// The same as raw logs, not joined: the cheapest way to keep what was seen so far.
    ///
    /// # Errors
    /// As [`snapshot`](Self::snapshot).
    pub fn snapshot_recording(&self) -> Result<Recording, Error> {
        let session = self.session.lock();
        let session = session.as_ref().ok_or_else(|| Error::new(Kind::NotRunning))?;
        let collected = session.collector.snapshot()?;
        // After the calls, which name the ranges they were made in.
        let ranges = ranges::snapshot(collected.window_ns.1);
        Ok(recording(session.info.clone(), collected, ranges, &session.observing))
    }

    /// Turns the collection of GPU work off for a while: what is launched in the pause is not in the profile, and not
    /// missed. Ranges go on being recorded. Nothing happens if it is paused.
    ///
    /// Waits for the GPU as [`stop`](Self::stop) does, at most the configured time (10 s), and the profiler's other
    /// methods wait with it.
    ///
    /// # Errors
    /// [`is_not_running`](Error::is_not_running), or CUPTI's refusal to flush, after which it is paused all the same.
    pub fn pause(&self) -> Result<(), Error> {
        self.with_collector(Collector::pause)
    }

    /// Turns the collection on again, after a pause or a start [in one](cupti::Config::start_paused). Costs a call into
    /// CUPTI for each kind of record and of call. Nothing happens if it is not paused.
    ///
    /// # Errors
    /// [`is_not_running`](Error::is_not_running), or CUPTI's refusal, after which it is paused as before.
    pub fn resume(&self) -> Result<(), Error> {
        self.with_collector(Collector::resume)
    }

    /// True between a pause and the next resume of a session.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.session.lock().as_ref().is_some_and(|session| session.collector.is_paused())
    }

    fn with_collector(
        &self,
        with: impl FnOnce(&mut Collector) -> Result<(), cupti::Error>,
    ) -> Result<(), Error> {
        let mut session = self.session.lock();
        let session = session.as_mut().ok_or_else(|| Error::new(Kind::NotRunning))?;
        Ok(with(&mut session.collector)?)
    }

    /// Records while `f` runs. If it panics, the session ends and is thrown away.
    ///
    /// # Errors
    /// As [`start`](Self::start) and [`stop`](Self::stop).
    pub fn record<R>(&self, f: impl FnOnce() -> R) -> Result<(R, Profile), Error> {
        self.start()?;
        let discard = Discard(self);
        let result = f();
        std::mem::forget(discard);
        Ok((result, self.stop()?))
    }

    /// True between start and stop.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.session.lock().is_some()
    }

    /// The CUPTI it uses.
    #[must_use]
    pub fn library(&self) -> &Library {
        &self.library
    }
}

/// What the collectors gave, as one.
fn recording(
    info: RecordingInfo,
    collected: Collected,
    ranges: RecordedRanges,
    observing: &Observing,
) -> Recording {
    let losses = collected.losses;
    Recording {
        info,
        window_ns: collected.window_ns,
        windows_ns: collected.windows_ns,
        pending_from_ns: collected.pending_from_ns,
        clock: collected.clock,
        epoch: observing.epoch,
        records: collected.records,
        calls: collected.calls,
        runtime_calls: collected.runtime_calls,
        graphs: collected.graphs,
        ranges: ranges.threads,
        attributes: collected.attributes,
        missing_kinds: collected.missing_kinds,
        losses: Losses {
            dropped_by_cupti: losses.dropped_by_cupti,
            over_memory_limit: losses.over_memory_limit,
            irregular: losses.irregular,
            unreadable_bytes: losses.unreadable_bytes,
            panics: losses.panics + observing.panics(),
            unfinished_buffers: losses.unfinished_buffers,
            buffers: losses.buffers,
            pool_misses: losses.pool_misses,
            refused_buffers: losses.refused_buffers,
            refused_records: losses.refused_records,
            before_switch: losses.before_switch,
            handler_panics: losses.handler_panics,
            ranges: ranges.lost,
        },
    }
}

/// Throws the session away, if the closure that is recorded panics.
struct Discard<'a>(&'a Profiler);

impl Drop for Discard<'_> {
    fn drop(&mut self) {
        let session = self.0.session.lock().take();
        drop(session);
    }
}
