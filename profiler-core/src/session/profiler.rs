//! The profiler: starts, pauses and stops sessions, and takes snapshots.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cupti::clock::now_ns;
use cupti::{ActivityKind, Config, Library};
use parking_lot::Mutex;
use profiler_base::setters;

use crate::collect::request::{Retention, SessionRequest, Sink};
use crate::collect::sampling::Sampling;
use crate::collect::session::Session;
use crate::error::{Error, Kind};
use crate::join::streaming::StreamingJoin;
use crate::join::sums;
use crate::profile::Profile;
use crate::profile::summary::Summary;
use crate::record::recording::Recording;
use crate::session::recording_file::RecordingFile;

/// Records the GPU work of this process with its ranges.
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
/// Several profilers may run at the same time. They share CUPTI's one collection of the process;
/// each sees the work submitted between its own start and stop, on all threads. A session may start
/// and stop on different threads. Dropping a running profiler discards its session.
///
/// # Long runs
/// A session retains everything, about 300 bytes per kernel, unless it retains [only the last
/// part](ProfilerBuilder::keep_last). [`summarize`](Self::summarize) retains only sums,
/// [`record_to`](Self::record_to) writes everything to a file.
#[derive(Debug)]
pub struct Profiler {
    library: Library,
    settings: Settings,
    /// The session; in an `Arc`, so that its users do not delay a stop.
    session: Mutex<Option<Arc<Session>>>,
}

/// Settings of a [`Profiler`], from [`Profiler::builder`].
///
/// ```no_run
/// use std::time::Duration;
///
/// use profiler_core::{Profiler, Sampling};
///
/// # fn main() -> Result<(), profiler_core::Error> {
/// let profiler = Profiler::builder()
///     .keep_last(Duration::from_secs(60))
///     .sample(Sampling::utilization())
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct ProfilerBuilder {
    library: Option<Library>,
    settings: Settings,
}

#[derive(Debug, Clone, Default)]
struct Settings {
    config: Config,
    keep: Retention,
    period: Option<Duration>,
    samplings: Vec<Sampling>,
    /// `None` for the default.
    summary_rows: Option<usize>,
    max_file_bytes: Option<u64>,
}

impl ProfilerBuilder {
    /// Changes what is collected.
    pub(crate) fn add_kinds(mut self, add: impl FnOnce(Config) -> Config) -> Self {
        self.settings.config = add(self.settings.config);
        self
    }

    setters! {
        /// Uses this CUPTI instead of searching one: opened from a path, or a fake of tests.
        library(library: Library) library = Some(library);
        /// Sets what to collect, and memory limits.
        config(config: Config) settings.config = config;
        /// Retains the work submitted in the last `time`, and all open ranges. A range whose parent
        /// on another thread ended earlier has no parent:
        /// [`Facts::orphaned_ranges`](crate::profile::Facts::orphaned_ranges).
        ///
        /// A background thread takes and releases the logs several times within `time`. Memory
        /// grows with the work submitted in that time and the number of names, not with the number
        /// of field values.
        keep_last(time: Duration) settings.keep = Retention::LastTime(time);
        /// Retains at least the last `count` GPU operations; otherwise like
        /// [`keep_last`](Self::keep_last).
        ///
        /// If operations are rare, the bound is the last 1,048,576 calls, ranges and marks, or 16
        /// for each of these operations if that is more.
        keep_last_operations(count: u64) settings.keep = Retention::LastOperations(count);
        /// Adds a sampler of hardware counters or NVML for the time of a session, pauses included:
        /// [`Profile::series`] and [`Profile::tracks`] have the samples. May be called several
        /// times.
        ///
        /// On an H200, a counter sampler takes 0.2 to 0.5 s to start and 0.1 s to stop, NVML 30 ms
        /// to start. The start and stop of the session take that much longer.
        ///
        /// If a sampler fails (no permission, counters in use, an old CUPTI, no NVML), the session
        /// continues. Its series has no samples and a [failure](crate::series::Series::failure),
        /// and [`Facts::failed_samplers`](crate::profile::Facts::failed_samplers) counts it. Sessions of
        /// this process share a device's sampler if their settings are equal; otherwise only the
        /// first session samples it. [Summaries](Profiler::summarize) do not sample, and count this
        /// in their health.
        sample(sampling: Sampling) settings.samplings += sampling;
        /// The interval at which a session takes the logs if it retains a part or sums, or writes a
        /// file. The default is 100 ms, or a tenth of the retained time if that is longer, up to a
        /// second.
        ///
        /// Flushing CUPTI's partly filled buffers may use a tenth of the time. It is retried at
        /// least every 20 s, and every 10 s while CUPTI delivers full buffers. This may delay the
        /// last few thousand operations and the results of their ranges.
        period(period: Duration) settings.period = Some(period);
        /// The number of rows that a [summary](Profiler::summarize) has for each kind: range paths,
        /// kernels of a path, names of process ranges, names of marks. The default is 10,000; a row
        /// takes up to 15 KiB.
        ///
        /// Further names and paths, such as one per request, are summed as `(other)` of their
        /// parent path, so totals stay exact; `(other)` has as many paths again.
        /// [`Facts::summed_as_other`] counts them. With 0, everything in ranges is `(other)`.
        ///
        /// [`Facts::summed_as_other`]: crate::profile::Facts::summed_as_other
        summary_rows(rows: usize) settings.summary_rows = Some(rows);
        /// The maximum size of a file of [`record_to`](Profiler::record_to). The default is
        /// [`Recording::MAX_BYTES`], 4 GiB, the default maximum of [`Recording::load`].
        ///
        /// Once the next period does not fit, the file is left unchanged and the rest of the
        /// session is lost: [`Losses::unwritten_entries`](crate::profile::Losses::unwritten_entries) counts
        /// it.
        max_file_bytes(bytes: u64) settings.max_file_bytes = Some(bytes);
    }

    /// Takes the stack of a thread at a launch, copy or memset, if the thread submitted none for
    /// this long: the code that ended a gap. 20 us is a good value. [`Profile::host_stacks`] and
    /// [`Gap::stack`] have the stacks.
    ///
    /// The thread unwinds itself within the callback, by the call frame information of the loaded
    /// files, without signals, privileges or `perf`. It costs 4 ns for each launch in time, half a
    /// microsecond or more for each stack, and 5 MB of memory once per process. A process stores
    /// 16,384 different stacks of up to 192 frames; missing stacks are
    /// [counted](crate::profile::StackLosses). Functions are looked up in the files of the modules
    /// at a stop and a snapshot, for up to two seconds; without symbols frames are addresses.
    ///
    /// [`Gap::stack`]: crate::query::Gap::stack
    #[cfg(feature = "stacks")]
    pub fn stacks_after(mut self, time: Duration) -> Self {
        self.settings.config = self.settings.config.stacks_after(time);
        self
    }

    /// Finds CUPTI. Nothing is recorded yet.
    ///
    /// # Errors
    /// [`is_unavailable`](Error::is_unavailable), with the missing component.
    pub fn build(self) -> Result<Profiler, Error> {
        let library = match self.library {
            Some(library) => library,
            None => Library::open()?,
        };
        let mut settings = self.settings;
        // Attributes graph nodes to ranges; costs nothing unless graphs are created.
        settings.config = settings.config.graph_events(true);
        for instructions in settings.samplings.iter().filter_map(Sampling::of_instructions) {
            settings.config = settings.config.pc_sampling(instructions);
        }
        if let Retention::LastTime(time) = settings.keep {
            settings.samplings = settings.samplings.into_iter().map(|s| s.bounded(time)).collect();
        }
        Ok(Profiler { library, settings, session: Mutex::new(None) })
    }
}

impl Profiler {
    /// A profiler with settings.
    pub fn builder() -> ProfilerBuilder {
        ProfilerBuilder::default()
    }

    /// The observer that records ranges in the sessions of this process. It is for a tool that
    /// receives ranges of other libraries and forwards them. Without a session it records nothing.
    /// Its methods may be called on any thread, and take no lock.
    pub fn range_recorder() -> &'static dyn nvtx::observer::Observer {
        &crate::record::recording::ranges::RECORDER
    }

    /// Starts recording ranges, driver calls and GPU records. Costs milliseconds, more the first
    /// time. Ranges that are already open and work already launched are not recorded.
    ///
    /// # Errors
    /// [`is_busy`](Error::is_busy) if this profiler runs, another one has other settings, or
    /// another tool holds CUPTI (ranges still go to NVTX); otherwise CUPTI's refusal.
    pub fn start(&self) -> Result<(), Error> {
        let mut session = self.session.lock();
        if session.is_some() {
            return Err(Error::new(Kind::Running));
        }
        *session = Some(Arc::new(Session::start(&self.request(self.settings.keep, None))?));
        Ok(())
    }

    /// A profiler with the same settings, for a second session.
    pub(crate) fn another(&self) -> Self {
        let (library, settings) = (self.library.clone(), self.settings.clone());
        Self { library, settings, session: Mutex::new(None) }
    }

    /// A profiler with the same settings of CUPTI that retains everything and samples nothing.
    pub fn unbounded(&self) -> Self {
        let Settings { config, period, summary_rows, .. } = self.settings.clone();
        let settings = Settings { config, period, summary_rows, ..Settings::default() };
        Self { library: self.library.clone(), settings, session: Mutex::new(None) }
    }

    pub(crate) fn request(
        &self,
        keep: Retention,
        sink: Option<Arc<Mutex<dyn Sink>>>,
    ) -> SessionRequest<'_> {
        let usual = match keep {
            Retention::LastTime(time) => (time / 10).clamp(PERIOD, Duration::from_secs(1)),
            _ => PERIOD,
        };
        let Settings { config, period, samplings, .. } = &self.settings;
        let (library, period) = (&self.library, period.unwrap_or(usual));
        // Without a profile, samples have no use.
        let samplings = if keep == Retention::Nothing { &[] } else { &samplings[..] };
        SessionRequest { library, config, keep, sink, samplings, period, then: None }
    }

    /// Starts a session that retains sums instead of operations and ranges. Its tables grow with
    /// the number of different ranges and kernels up to a [bound](ProfilerBuilder::summary_rows),
    /// not with field values. It runs beside this profiler's own session, if any. It processes some
    /// hundred thousand kernels per second (see the repository's measurements).
    ///
    /// # Errors
    /// Same as [`start`](Self::start).
    pub fn summarize(&self) -> Result<Summarizing, Error> {
        let streaming = Arc::new(Mutex::new(self.streaming(0)));
        let samplers = self.settings.samplings.iter().map(Sampling::series).sum::<usize>();
        streaming.lock().health.facts.failed_samplers = samplers as u64;
        let session = Session::start(&self.request(Retention::Nothing, Some(streaming.clone())))?;
        Ok(Summarizing { session, streaming })
    }

    /// Starts a session that is appended to a file while it runs, in bounded memory. The file is
    /// readable at any time, and after any death of the process.
    ///
    /// ```no_run
    /// use profiler_core::{Profile, Profiler};
    ///
    /// # fn train() {}
    /// # fn main() -> Result<(), profiler_core::Error> {
    /// let file = Profiler::builder().build()?.record_to("run.gpuprof")?;
    /// train();
    /// let totals = file.finish()?; // waits for the GPU
    /// println!("{} operations, {} bytes", totals.operations, totals.bytes);
    /// println!("{}", Profile::load("run.gpuprof")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It runs beside this profiler's own session, if any. With [`Config::start_paused`] it begins
    /// in a pause. An existing file is replaced when the session has started.
    ///
    /// # A killed process
    /// After a death of the process, the file is a [truncated recording](Recording::is_truncated).
    /// Its session ends at most half a second before the death (or a
    /// [period](ProfilerBuilder::period) if that is longer), or at the last
    /// [`flush`](RecordingFile::flush). In it, calls that had not returned and calls whose records
    /// CUPTI had not delivered are [pending](crate::profile::Facts::pending_calls). CUPTI is flushed once
    /// per period, and under load every 10 s, when it delivers full buffers without a flush.
    /// Samples are written at the end. The content survives `SIGKILL`, `abort` and `_exit` without
    /// any handler. It is not synchronised with the disk: a loss of power may lose it.
    ///
    /// # Cost
    /// A background thread takes the logs once per period and makes frames, some 0.2 us for each
    /// kernel with its call; a second one writes. No call or range of the program waits for the
    /// disk. If the disk is slower than the program, up to 256 MiB are queued. Beyond that, whole
    /// periods are lost and counted, and the session has no [window](Recording::windows_ns) there.
    ///
    /// # Errors
    /// Same as [`start`](Self::start); also if the file cannot be created or is not a regular file.
    ///
    /// [`Config::start_paused`]: cupti::Config::start_paused
    pub fn record_to(&self, path: impl AsRef<Path>) -> Result<RecordingFile, Error> {
        let Settings { samplings, max_file_bytes, .. } = &self.settings;
        let max_bytes = max_file_bytes.unwrap_or(Recording::MAX_BYTES);
        RecordingFile::start(path.as_ref(), max_bytes, |sink| {
            let request = self.request(Retention::Nothing, Some(sink));
            Session::start(&SessionRequest { samplings, ..request })
        })
    }

    /// The retention of its sessions.
    pub(crate) fn retention(&self) -> Retention {
        self.settings.keep
    }

    /// The configuration with each launch of a graph as one interval.
    pub(crate) fn whole_graphs(&self) -> Config {
        self.settings.config.clone().add_kind(ActivityKind::GRAPH_TRACE)
    }

    /// The configuration for windows: records only in windows. Calls are logged all the time.
    pub(crate) fn in_windows(&self) -> Result<Config, Error> {
        if self.settings.config.asks_for(ActivityKind::GRAPH_TRACE) {
            let why = "an always-on session cannot start: the profiler collects graphs as intervals (GRAPH_TRACE), and CUPTI 13 loses records or \
                       crashes where that takes turns with kernels: use `whole_graphs` for the whole run, or remove the kind";
            return Err(Error::other(why));
        }
        Ok(self.settings.config.clone().calls_in_pauses(true).start_paused(true))
    }

    /// A streaming join with this profiler's bounds.
    pub(crate) fn streaming(&self, most_done: usize) -> StreamingJoin {
        StreamingJoin::new(most_done, self.settings.summary_rows.unwrap_or(sums::ROWS))
    }

    /// Starts a session with this profiler's settings and a streaming join.
    #[cfg(feature = "tracing")]
    pub(crate) fn start_streaming(
        &self,
        streaming: Arc<Mutex<StreamingJoin>>,
        then: crate::collect::request::Then,
    ) -> Result<Session, Error> {
        Session::start(&SessionRequest {
            then: Some(then),
            ..self.request(self.settings.keep, Some(streaming))
        })
    }

    /// Stops and returns the joined profile.
    ///
    /// Waits for launched work up to the configured time (10 s), and for CUPTI's delivery of
    /// records. Under load, after hundreds of millions of launches, that may last until the load
    /// ends. No context or stream of the program is touched. Other sessions continue. Joining takes
    /// about 0.2 us per operation.
    ///
    /// Other threads may continue; their work is included up to this call. A call in progress that
    /// does not return in time is [open](crate::profile::Losses::open_calls). Work that the GPU does not
    /// finish in time is unfinished. The session ends even if CUPTI returns an error.
    ///
    /// # Errors
    /// [`is_not_running`](Error::is_not_running), or CUPTI's refusal.
    pub fn stop(&self) -> Result<Profile, Error> {
        self.stop_recording().map(Profile::from_recording)
    }

    /// Stops and returns the raw logs without joining them, the cheapest way to end a session.
    ///
    /// # Errors
    /// Same as [`stop`](Self::stop).
    pub fn stop_recording(&self) -> Result<Recording, Error> {
        let called_ns = now_ns();
        let session = self.session.lock().take();
        session.ok_or_else(|| Error::new(Kind::NotRunning))?.stop(called_ns)
    }

    /// Returns the joined profile so far. The session continues, and its final profile is
    /// unaffected.
    ///
    /// All logs are cut at one time; open ranges count until then. Waits up to 10 s for CUPTI, not
    /// for the GPU. Calls in progress or without a record yet are
    /// [`Facts::pending_calls`](crate::profile::Facts::pending_calls), open ranges
    /// [`Facts::pending_ranges`](crate::profile::Facts::pending_ranges), and the profile still counts as
    /// complete. While the GPU is busy, only the final profile distinguishes late records from lost
    /// ones.
    ///
    /// Copies and joins all logs: time and memory grow with the session, by about 0.2 us per
    /// operation. Program threads continue. A thread that makes its first call, or opens a range
    /// with a new name, may wait for a copy of its names or of the thread list. Any thread may take
    /// snapshots; copies of the logs exclude each other and [`stop`](Self::stop), waits and joins
    /// do not.
    ///
    /// # Errors
    /// [`is_not_running`](Error::is_not_running), or CUPTI's refusal; also with
    /// [`Config::profiler_switch`](cupti::Config::profiler_switch), whose bounds are known only at
    /// the stop.
    pub fn snapshot(&self) -> Result<Profile, Error> {
        self.snapshot_recording().map(Profile::from_recording)
    }

    /// Returns the raw logs so far without joining them, the cheapest snapshot.
    ///
    /// # Errors
    /// Same as [`snapshot`](Self::snapshot).
    pub fn snapshot_recording(&self) -> Result<Recording, Error> {
        self.with_session(Session::snapshot)
    }

    /// Discards what the session recorded so far, as if it began here. Does not wait for the GPU:
    /// later records of earlier calls are excluded.
    ///
    /// # Errors
    /// [`is_not_running`](Error::is_not_running), or CUPTI's refusal.
    pub fn restart(&self) -> Result<(), Error> {
        self.with_session(Session::restart)
    }

    /// Pauses the collection of GPU work: the profile excludes work launched in the pause, and does
    /// not count it as missing. Ranges are still recorded. Does nothing if paused.
    ///
    /// Waits for the GPU as [`stop`](Self::stop) does, unless another session runs.
    ///
    /// # Errors
    /// [`is_not_running`](Error::is_not_running), or CUPTI's refusal to flush; the session is
    /// paused nevertheless.
    pub fn pause(&self) -> Result<(), Error> {
        self.with_session(Session::pause)
    }

    /// Resumes after a pause or a [paused start](cupti::Config::start_paused). Costs a CUPTI call
    /// for each kind of record and of call. Does nothing if not paused.
    ///
    /// # Errors
    /// [`is_not_running`](Error::is_not_running), or CUPTI's refusal; the session remains paused.
    pub fn resume(&self) -> Result<(), Error> {
        self.with_session(Session::resume)
    }

    /// True between a pause and the next resume of a session.
    pub fn is_paused(&self) -> bool {
        self.with_session(|session| Ok(session.is_paused())).unwrap_or(false)
    }

    fn with_session<R>(&self, with: impl FnOnce(&Session) -> Result<R, Error>) -> Result<R, Error> {
        let session = self.session.lock().clone();
        with(&*session.ok_or_else(|| Error::new(Kind::NotRunning))?)
    }

    /// Records while `f` runs. If it panics, the session is discarded.
    ///
    /// # Errors
    /// Same as [`start`](Self::start) and [`stop`](Self::stop).
    pub fn record<R>(&self, f: impl FnOnce() -> R) -> Result<(R, Profile), Error> {
        self.start()?;
        let discard = Discard(self);
        let result = f();
        std::mem::forget(discard);
        Ok((result, self.stop()?))
    }

    /// True between start and stop.
    pub fn is_running(&self) -> bool {
        self.session.lock().is_some()
    }

    /// The CUPTI it uses.
    pub fn library(&self) -> &Library {
        &self.library
    }
}

/// Discards the session if the recorded closure panics.
struct Discard<'a>(&'a Profiler);

impl Drop for Discard<'_> {
    fn drop(&mut self) {
        drop(self.0.session.lock().take());
    }
}

/// The default period.
const PERIOD: Duration = Duration::from_millis(100);

/// A session that retains sums, from [`Profiler::summarize`]. Dropping it discards them.
#[derive(Debug)]
#[must_use = "the session ends when this is dropped, and its sums are lost"]
pub struct Summarizing {
    session: Session,
    streaming: Arc<Mutex<StreamingJoin>>,
}

impl Summarizing {
    /// Returns the sums so far. The distributions exclude open ranges and ranges whose work is not
    /// done; their finished work is in the totals. Costs a segment of the logs and a copy of the
    /// sums.
    ///
    /// # Errors
    /// CUPTI's refusal.
    pub fn snapshot(&self) -> Result<Summary, Error> {
        let so_far = self.session.catch_up()?;
        Ok(Summary::new(&self.streaming.lock(), so_far.info, so_far.duration))
    }

    /// Same as [`Profiler::pause`].
    ///
    /// # Errors
    /// CUPTI's refusal to flush; the session is paused nevertheless.
    pub fn pause(&self) -> Result<(), Error> {
        self.session.pause()
    }

    /// Same as [`Profiler::resume`].
    ///
    /// # Errors
    /// CUPTI's refusal; the session remains paused.
    pub fn resume(&self) -> Result<(), Error> {
        self.session.resume()
    }

    /// Stops and returns the sums. Waits for the GPU as [`Profiler::stop`] does.
    ///
    /// # Errors
    /// CUPTI's refusal.
    pub fn stop(self) -> Result<Summary, Error> {
        let recording = self.session.stop(now_ns())?;
        let mut streaming = self.streaming.lock();
        streaming.end(Some(&recording));
        Ok(Summary::new(&streaming, recording.info().clone(), recording.duration()))
    }
}
