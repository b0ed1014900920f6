//! Start, pause, snapshot and stop: what a program says to a session.

use std::sync::Arc;
use std::time::Duration;

use cupti::clock::now_ns;
use cupti::{Config, Library};
use parking_lot::Mutex;

use crate::base::error::{Error, Kind};
use crate::collect::request::{Retention, SessionRequest, Sink};
use crate::collect::sampling::Sampling;
use crate::collect::session::Session;
use crate::join::streaming::StreamingJoin;
use crate::join::sums;
use crate::profile::Profile;
use crate::profile::summary::Summary;
use crate::record::recording::Recording;

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
/// Several profilers may run at the same time, as whole-program and short ones do: CUPTI has one collection in a process,
/// which the first one starts and the last one ends, and each sees what was asked for between its own start and stop. A
/// session may begin and end on different threads; work of all threads is seen. Dropping a running profiler throws its
/// session away.
///
/// # Long runs
/// A session keeps all that it sees, some 300 bytes a kernel, unless it is to [keep the last part
/// only](ProfilerBuilder::keep_last). [`summarize`](Self::summarize) keeps sums alone.
#[derive(Debug)]
pub struct Profiler {
    library: Library,
    config: Config,
    keep: Retention,
    period: Option<Duration>,
    samplings: Vec<Sampling>,
    summary_rows: usize,
    /// Shared with those who use it, so that none of them keeps a stop waiting.
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
    config: Config,
    keep: Retention,
    period: Option<Duration>,
    samplings: Vec<Sampling>,
    summary_rows: Option<usize>,
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

    /// Keeps what was asked for in the last such time, and lets go of what was before. Ranges that are
    /// open stay, however long ago they began. A range that was started on another thread, in one that ended before the
    /// time kept, has no outer range: [`Health::orphaned_ranges`](crate::Health::orphaned_ranges).
    ///
    /// A thread of its own takes the logs out several times within that time, and lets go of them piece by piece. What is
    /// kept grows with what is asked for in that time, and with the number of different names; not with that of different values
    /// of fields.
    pub fn keep_last(mut self, time: Duration) -> Self {
        self.keep = Retention::LastTime(time);
        self
    }

    /// Keeps at least the last so many GPU operations, and what was asked for since; lets go of what was before, as
    /// [`keep_last`](Self::keep_last) does.
    ///
    /// Where few operations come, or none, what is kept is bounded by calls, ranges and marks: once the last 1,048,576 of
    /// them, or 16 for each of these operations if that is more, are without as many operations, what was before them goes
    /// all the same.
    pub fn keep_last_operations(mut self, count: u64) -> Self {
        self.keep = Retention::LastOperations(count);
        self
    }

    /// Samples hardware counters, or what NVML says, as long as a session is on: [`Profile::series`] and
    /// [`Profile::tracks`]. Any number of times, for several samplers. They go on while the session is paused.
    ///
    /// On an H200 a sampler of counters takes 0.2 to 0.5 s to start and 0.1 s to stop, and NVML 30 ms to start: the start and the
    /// stop of the session take as much longer.
    ///
    /// A sampler that cannot be had (no permission, another has the counters, an old CUPTI, no NVML) does not keep the session
    /// from its work: its series has no samples and [says why](crate::series::Series::failure), and
    /// [`Health::failed_samplers`](crate::Health::failed_samplers) counts it. Sessions of this process share the
    /// sampler of a device if they sample the same; else the first has it. A session that [sums up](Profiler::summarize) samples nothing, and its health counts that too.
    pub fn sample(mut self, sampling: Sampling) -> Self {
        self.samplings.push(sampling);
        self
    }

    /// How often the logs are taken out by a session that keeps a part of them, or sums. The default is every 100 ms, or a
    /// tenth of the time to keep if that is longer, but not more than a second.
    ///
    /// CUPTI is asked for records of buffers that are not full for a tenth of the time, but after 20 s at the latest, and every
    /// 10 s where it hands over full ones: the last few thousand operations may come that much later, and the results of ranges
    /// with them.
    pub fn period(mut self, period: Duration) -> Self {
        self.period = Some(period);
        self
    }

    /// How many rows a [summary](Profiler::summarize) keeps: paths of ranges, kernels of a path, names of ranges of the
    /// process, and names of marks, as many of each. The default is 10,000. A row takes up to some 15 KiB.
    ///
    /// Names and paths beyond these, such as one for every request, are summed up as `(other)` of the path around them, so
    /// that totals stay exact; within `(other)` there are as many paths again. [`Health::summed_as_other`] counts what
    /// went there. With 0 everything in ranges is `(other)`.
    ///
    /// [`Health::summed_as_other`]: crate::Health::summed_as_other
    pub fn summary_rows(mut self, rows: usize) -> Self {
        self.summary_rows = Some(rows);
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
        let (keep, period, session) = (self.keep, self.period, Mutex::new(None));
        let samplings = match keep {
            Retention::LastTime(time) => {
                self.samplings.into_iter().map(|sampling| sampling.bounded(time)).collect()
            }
            _ => self.samplings,
        };
        let summary_rows = self.summary_rows.unwrap_or(sums::ROWS);
        Ok(Profiler { library, config, keep, period, samplings, summary_rows, session })
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
        if session.is_some() {
            return Err(Error::new(Kind::Running));
        }
        *session = Some(Arc::new(Session::start(&self.wish(self.keep, None))?));
        Ok(())
    }

    /// One with the same settings, for sessions beside those of this one.
    pub(crate) fn another(&self) -> Self {
        let (library, config) = (self.library.clone(), self.config.clone());
        let (keep, period, session) = (self.keep, self.period, Mutex::new(None));
        let samplings = self.samplings.clone();
        Self { library, config, keep, period, samplings, summary_rows: self.summary_rows, session }
    }

    fn wish(&self, keep: Retention, sink: Option<Arc<Mutex<dyn Sink>>>) -> SessionRequest<'_> {
        let usual = match keep {
            Retention::LastTime(time) => (time / 10).clamp(PERIOD, Duration::from_secs(1)),
            _ => PERIOD,
        };
        let period = self.period.unwrap_or(usual);
        let (library, config) = (&self.library, &self.config);
        // What keeps no operation has no profile that samples could be in.
        let samplings = if keep == Retention::Nothing { &[] } else { &self.samplings[..] };
        SessionRequest { library, config, keep, sink, samplings, period, then: None }
    }

    /// Starts a session that keeps no operation and no instance of a range, only what they came to, in
    /// tables that grow with the number of different ranges and kernels alone, up to
    /// [as many as it keeps](ProfilerBuilder::summary_rows), not with values of fields. It goes on beside
    /// this profiler's own session, if there is one. It keeps up with some hundred thousand kernels a second; the repository's
    /// measurements say how far.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn summarize(&self) -> Result<Summarizing, Error> {
        let streaming = Arc::new(Mutex::new(self.streaming(0)));
        let samplers = self.samplings.iter().map(Sampling::series).sum::<usize>();
        streaming.lock().health.failed_samplers = samplers as u64;
        let session = Session::start(&self.wish(Retention::Nothing, Some(streaming.clone())))?;
        Ok(Summarizing { session, streaming })
    }

    /// Sums that keep what this profiler is to keep.
    pub(crate) fn streaming(&self, most_done: usize) -> StreamingJoin {
        StreamingJoin::new(most_done, self.summary_rows)
    }

    /// Starts a session that keeps what this profiler is to keep and is followed besides.
    #[cfg(feature = "tracing")]
    pub(crate) fn start_streaming(
        &self,
        streaming: Arc<Mutex<StreamingJoin>>,
        then: crate::collect::request::Then,
    ) -> Result<Session, Error> {
        Session::start(&SessionRequest {
            then: Some(then),
            ..self.wish(self.keep, Some(streaming))
        })
    }

    /// Stops and gives what was recorded, joined.
    ///
    /// Waits until the GPU has finished what was launched, at most the configured time (10 s) and for as long as CUPTI takes
    /// to hand records over, which under load, after hundreds of millions of launches, may be until the load is over; no
    /// context or stream of the program is touched. Other sessions go on. Joining takes some 0.2 us an operation.
    ///
    /// Other threads may go on, too: what they ask for counts up to this call, and a call that is under way then and does not
    /// return in time is [open](crate::Health::open_calls). Where the GPU is not done with it all within the configured
    /// time, what has not come is unfinished. The session ends even if CUPTI refuses something.
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
        let called_ns = now_ns();
        let session = self.session.lock().take();
        session.ok_or_else(|| Error::new(Kind::NotRunning))?.stop(called_ns)
    }

    /// What the session saw up to now, joined. It goes on, and the profile that its stop gives is what it would have been.
    ///
    /// All is cut off at one time. Ranges that are open count until then. CUPTI is waited for, 10 s at most, and the GPU is
    /// not: calls under way and
    /// calls whose records may still come are [`Health::pending_calls`](crate::Health::pending_calls), open ranges
    /// [`Health::pending_ranges`](crate::Health::pending_ranges), and neither makes it incomplete. While the GPU works
    /// all the time, nothing tells a record that is late from one that is lost: the final profile does.
    ///
    /// Copies and joins all that was collected: time and memory grow with the session, the time by some 0.2 us an
    /// operation. Threads of the program go on; only one that makes its first call, or opens a range under a new name,
    /// may wait for a copy of its own log's names or of the list of threads. Any thread may take one; several at once, and
    /// [`stop`](Self::stop), take turns while the logs are copied, not while CUPTI is waited for or they are joined.
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
        self.with_session(Session::snapshot)
    }

    /// Forgets what the session saw up to now, as if it began here. The GPU is not waited for: records that are still to
    /// come of calls before are left out.
    ///
    /// # Errors
    /// [`is_not_running`](Error::is_not_running), or CUPTI's refusal.
    pub fn restart(&self) -> Result<(), Error> {
        self.with_session(Session::restart)
    }

    /// Turns the collection of GPU work off for a while: what is launched in the pause is not in the profile, and not
    /// missed. Ranges go on being recorded. Nothing happens if it is paused.
    ///
    /// Waits for the GPU as [`stop`](Self::stop) does, unless another session is on, and the profiler's other methods wait
    /// with it.
    ///
    /// # Errors
    /// [`is_not_running`](Error::is_not_running), or CUPTI's refusal to flush, after which it is paused all the same.
    pub fn pause(&self) -> Result<(), Error> {
        self.with_session(Session::pause)
    }

    /// Turns the collection on again, after a pause or a start [in one](cupti::Config::start_paused). Costs a call into
    /// CUPTI for each kind of record and of call. Nothing happens if it is not paused.
    ///
    /// # Errors
    /// [`is_not_running`](Error::is_not_running), or CUPTI's refusal, after which it is paused as before.
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
    pub fn is_running(&self) -> bool {
        self.session.lock().is_some()
    }

    /// The CUPTI it uses.
    pub fn library(&self) -> &Library {
        &self.library
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

/// How often logs are taken out, where nothing else is said.
const PERIOD: Duration = Duration::from_millis(100);

/// A session that keeps sums. Made by [`Profiler::summarize`]; dropping it throws them away.
#[derive(Debug)]
#[must_use = "the session ends when this is dropped, and what it summed up is gone"]
pub struct Summarizing {
    session: Session,
    streaming: Arc<Mutex<StreamingJoin>>,
}

impl Summarizing {
    /// What it came to so far. Ranges that are open, and ranges whose work is not done, are left out of the distributions;
    /// their work that is done is in the totals. Costs what was collected since the logs were taken out last, and a copy of
    /// the sums.
    ///
    /// # Errors
    /// CUPTI's refusal.
    pub fn snapshot(&self) -> Result<Summary, Error> {
        let so_far = self.session.catch_up()?;
        Ok(Summary::of(&self.streaming.lock(), so_far.info, so_far.duration))
    }

    /// As [`Profiler::pause`].
    ///
    /// # Errors
    /// CUPTI's refusal to flush, after which it is paused all the same.
    pub fn pause(&self) -> Result<(), Error> {
        self.session.pause()
    }

    /// As [`Profiler::resume`].
    ///
    /// # Errors
    /// CUPTI's refusal, after which it is paused as before.
    pub fn resume(&self) -> Result<(), Error> {
        self.session.resume()
    }

    /// Ends it, and gives what it came to. Waits for the GPU as [`Profiler::stop`] does.
    ///
    /// # Errors
    /// CUPTI's refusal.
    pub fn stop(self) -> Result<Summary, Error> {
        let recording = self.session.stop(now_ns())?;
        let mut streaming = self.streaming.lock();
        streaming.end(Some(&recording));
        Ok(Summary::of(&streaming, recording.info().clone(), recording.duration()))
    }
}
