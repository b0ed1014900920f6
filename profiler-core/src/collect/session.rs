//! Sessions: independent views of the one collection of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cupti::clock::now_ns;
use parking_lot::{Condvar, Mutex};
use profiler_base::background::Background;

use crate::collect::collection::{COLLECTION, COLLECTS, COUNTING, Collection, LONGEST_WAIT};
use crate::collect::request::{Retention, SessionRequest, Then};
use crate::collect::sampling::Samplers;
#[cfg(feature = "stacks")]
use crate::collect::sampling::Sampling;
use crate::collect::view::Signals;
use crate::error::{Error, Kind};
use crate::record::host_stacks::HostStacks;
#[cfg(feature = "stacks")]
use crate::record::host_stacks::capture::TakingStacks;
use crate::record::recording::{Recording, RecordingInfo};

/// The maximum time that a stop waits for calls in progress on other threads to return.
const CALLS_RETURN: Duration = Duration::from_millis(20);

/// A running session. Dropping it discards its data.
#[derive(Debug)]
pub(crate) struct Session {
    id: u64,
    /// Ends the draining thread.
    ticker: Option<Arc<Ticker>>,
    /// Started before the session and stopped after it.
    samplers: Mutex<Samplers>,
    process_id: u32,
    signals: Arc<Signals>,
    ended: AtomicBool,
    stacks: SessionStacks,
}

/// The stacks of a session, if it takes any.
#[derive(Debug, Default)]
struct SessionStacks {
    /// The minimum time since a thread's last launch for a stack.
    #[cfg(feature = "stacks")]
    taking: Option<(Duration, TakingStacks)>,
}

impl SessionStacks {
    #[cfg(feature = "stacks")]
    fn begin(request: &SessionRequest<'_>) -> Result<Self, Error> {
        let mut samplers = request.samplings.iter().filter_map(Sampling::of_host);
        let sampler = samplers.next();
        let Some(after) = request.config.takes_stacks_after() else {
            return match sampler {
                Some(_) => Err(Error::other(
                    "host threads cannot be sampled (Sampling::host): host samples need stacks; also set \
                     ProfilerBuilder::stacks_after",
                )),
                None => Ok(Self::default()),
            };
        };
        let taking = TakingStacks::begin()?;
        let taking = match sampler {
            Some(settings) => taking.sampling(&settings),
            None => taking,
        };
        Ok(Self { taking: Some((after, taking)) })
    }

    #[cfg(not(feature = "stacks"))]
    fn begin(_: &SessionRequest<'_>) -> Result<Self, Error> {
        Ok(Self::default())
    }

    /// The stacks so far.
    #[cfg(feature = "stacks")]
    fn so_far(&self) -> HostStacks {
        self.taking.as_ref().map(|(after, taking)| taking.stacks(*after)).unwrap_or_default()
    }

    #[cfg(not(feature = "stacks"))]
    fn so_far(&self) -> HostStacks {
        HostStacks::default()
    }
}

/// The state of a running session.
#[derive(Debug)]
pub(crate) struct SoFar {
    pub(crate) info: RecordingInfo,
    pub(crate) duration: Duration,
}

#[derive(Debug, Default)]
struct Ticker {
    ended: Mutex<bool>,
    changed: Condvar,
    /// Held during the callback after a segment, which may end the session itself.
    following: Mutex<()>,
}

impl Session {
    /// Starts a session, and with the first one the collection.
    pub(crate) fn start(request: &SessionRequest<'_>) -> Result<Self, Error> {
        // In a forked child a lost thread may hold the lock.
        cupti::forked::check_process()?;
        let samplers = Mutex::new(Samplers::start(request.library, request.samplings));
        let stacks = SessionStacks::begin(request)?;
        let mut collection = COLLECTION.lock();
        if COUNTING.load(Ordering::Relaxed) {
            return Err(Error::new(Kind::Excluded));
        }
        let running = match &mut *collection {
            Some(running) => {
                running.join(request)?;
                running
            }
            none => none.insert(Collection::start(request)?),
        };
        let signals = Arc::new(Signals::default());
        let added = running.add_view(request, &signals);
        let background = running.background.clone();
        if running.views.is_empty() {
            *collection = None;
        }
        drop(collection);
        let id = added?;
        let is_bounded = request.keep != Retention::All || request.sink.is_some();
        let ticker = is_bounded.then(|| tick(&background, request.period, request.then.clone()));
        let (process_id, ended) = (std::process::id(), AtomicBool::new(false));
        Ok(Self { id, ticker, samplers, process_id, signals, ended, stacks })
    }

    /// Rejects use in a forked child, where a lost thread may hold the lock.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        let is_child = std::process::id() != self.process_id;
        if is_child { Err(Error::new(Kind::Forked)) } else { Ok(()) }
    }

    fn with_collection<R>(
        &self,
        with: impl FnOnce(&mut Collection) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.check_process()?;
        with(COLLECTION.lock().as_mut().ok_or_else(|| Error::new(Kind::NotRunning))?)
    }

    /// Flushes CUPTI, up to [`LONGEST_WAIT`]. Does not block threads that take segments.
    fn flush(&self) -> Result<(), Error> {
        let flush = self.with_collection(|running| Ok(running.collector.flusher().request()?))?;
        flush.wait(LONGEST_WAIT)?;
        Ok(())
    }

    pub(crate) fn pause(&self) -> Result<(), Error> {
        let Some(waiter) = self.with_collection(|running| running.turn_off(self.id))? else {
            return Ok(());
        };
        let waited = waiter.wait();
        self.with_collection(Collection::pause)?;
        waited.map(drop)
    }

    pub(crate) fn resume(&self) -> Result<(), Error> {
        self.with_collection(|running| running.resume(self.id))
    }

    pub(crate) fn is_paused(&self) -> bool {
        let paused = |running: &mut Collection| {
            let view = running.view(self.id)?;
            view.see_signals();
            Ok(!view.is_on())
        };
        self.with_collection(paused).unwrap_or(false)
    }

    /// Begins a window now. While CUPTI collects, it takes no lock that is held for long. Otherwise
    /// it waits for the collection's lock up to `patience`, and turns CUPTI on.
    pub(crate) fn begin_window(&self, patience: Duration) -> Result<(), Error> {
        self.check_process()?;
        self.signals.bound(true);
        if COLLECTS.load(Ordering::SeqCst) {
            return Ok(());
        }
        let busy = || Error::new(Kind::LockedFor(patience));
        let mut collection = COLLECTION.try_lock_for(patience).ok_or_else(busy)?;
        let running = collection.as_mut().ok_or_else(|| Error::new(Kind::NotRunning))?;
        running.resume(self.id)
    }

    /// Ends the window now. Takes no lock that is held for long, and leaves CUPTI on.
    pub(crate) fn end_window(&self) {
        self.signals.bound(false);
    }

    /// Turns CUPTI off after a wait for the GPU, unless a session is in a window. Launches wait
    /// while it is turned off.
    pub(crate) fn rest(&self) -> Result<(), Error> {
        let waiter = |running: &mut Collection| {
            let is_done = running.is_on() || running.collector.is_paused();
            Ok((!is_done).then(|| running.waiter()))
        };
        let Some(waiter) = self.with_collection(waiter)? else { return Ok(()) };
        let waited = waiter.wait();
        self.with_collection(Collection::pause)?;
        waited.map(drop)
    }

    /// Discards its data so far.
    pub(crate) fn restart(&self) -> Result<(), Error> {
        self.with_collection(|running| {
            running.take()?;
            running.restart(self.id)
        })?;
        self.samplers.lock().restart();
        Ok(())
    }

    /// Returns its recording so far.
    pub(crate) fn snapshot(&self) -> Result<Recording, Error> {
        self.flush()?;
        let mut recording = self.with_collection(|running| {
            running.take()?;
            running.recording(self.id, Some(running.settled_ns))
        })?;
        recording.series = self.samplers.lock().so_far(recording.window_ns);
        recording.host_stacks = Arc::new(self.stacks.so_far());
        Ok(recording)
    }

    /// Brings its sink up to date without waiting for the GPU.
    pub(crate) fn catch_up(&self) -> Result<SoFar, Error> {
        self.flush()?;
        self.with_collection(|running| {
            running.take()?;
            let info = running.info.clone();
            let start_ns = running.view(self.id)?.start_ns;
            let ns = now_ns().saturating_sub(start_ns);
            Ok(SoFar { info, duration: Duration::from_nanos(ns) })
        })
    }

    /// Waits for the GPU and brings its sink up to date.
    #[cfg(feature = "tracing")]
    pub(crate) fn settle(&self) -> Result<(), Error> {
        self.with_collection(|running| Ok(running.waiter()))?.wait()?;
        self.with_collection(Collection::take)
    }

    /// Ends the session with the work submitted before `called_ns`, the time of the stop call.
    pub(crate) fn stop(&self, called_ns: u64) -> Result<Recording, Error> {
        self.check_process()?;
        self.signal_stop(called_ns);
        let samplers = std::mem::take(&mut *self.samplers.lock());
        let mut recording = self.stop_collecting()?;
        recording.series = samplers.stop(recording.window_ns);
        recording.host_stacks = Arc::new(self.stacks.so_far());
        Ok(recording)
    }

    /// Prevents the release of data that the session retains at its stop.
    pub(super) fn signal_stop(&self, called_ns: u64) {
        self.signals.stop(called_ns);
        self.ended.store(true, Ordering::Release);
    }

    /// Waits for submitted work while segments are taken as usual and other sessions continue.
    fn stop_collecting(&self) -> Result<Recording, Error> {
        let (mut waited, mut held) = (None, None);
        loop {
            let mut collection = COLLECTION.lock();
            let running = collection.as_mut().ok_or_else(|| Error::new(Kind::NotRunning))?;
            let is_alone = running.views.len() == 1;
            match waited.take() {
                // The collector's own stop waits, and there is nothing to take in the meantime.
                None if is_alone && self.ticker.is_none() => _ = running.leave(self.id)?,
                None => {
                    let waiter = running.leave(self.id)?;
                    // Data that cannot be taken now is in the next segment.
                    let _ = running.take();
                    drop(collection);
                    self.wait_for_calls();
                    waited = Some(waiter.wait());
                    self.end_ticker();
                    // The callback after a segment accesses the collection.
                    if let Some(ticker) = &self.ticker {
                        drop(ticker.following.lock());
                    }
                    continue;
                }
                Some(Ok(unfinished)) if is_alone => held = Some(unfinished),
                // The collector's own stop flushes again and returns CUPTI's refusal, if any.
                Some(_) if is_alone => {}
                Some(result) => {
                    let recording =
                        result.and_then(|unfinished| running.stop_view(self.id, unfinished));
                    running.views.retain(|view| view.id != self.id);
                    running.release();
                    return recording;
                }
            }
            return match collection.take() {
                Some(running) => running.stop(self.id, held),
                None => Err(Error::new(Kind::NotRunning)),
            };
        }
    }

    fn wait_for_calls(&self) {
        let begun = Instant::now();
        while begun.elapsed() < CALLS_RETURN
            && self.with_collection(|running| running.has_calls_under_way(self.id)).unwrap_or(false)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn end_ticker(&self) {
        if let Some(ticker) = &self.ticker {
            *ticker.ended.lock() = true;
            ticker.changed.notify_all();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A lost thread may hold the locks in a forked child.
        if std::process::id() != self.process_id {
            return;
        }
        self.end_ticker();
        if self.ended.load(Ordering::Acquire) {
            return;
        }
        let mut collection = COLLECTION.lock();
        let Some(running) = collection.as_mut() else { return };
        running.views.retain(|view| view.id != self.id);
        if running.views.is_empty() {
            *collection = None;
        } else {
            running.release();
        }
    }
}

/// Drains the logs once per period on a background thread until the ticker ends. Panics in a drain
/// are counted; draining continues.
fn tick(background: &Background, period: Duration, then: Option<Then>) -> Arc<Ticker> {
    let ticker = Arc::new(Ticker::default());
    let (of_thread, in_drain, caught) = (ticker.clone(), ticker.clone(), background.clone());
    let drain = move || {
        let due = |running: &&mut Collection| running.is_due(period);
        let flush = COLLECTION.lock().as_mut().filter(due).and_then(Collection::flush_if_due);
        if let Some(flush) = flush {
            let _ = flush.wait(period);
        }
        // An error of CUPTI recurs with the next segment, or as the error of the stop.
        let _ = COLLECTION.lock().as_mut().filter(due).map(Collection::take);
        if let Some(then) = &then {
            let _following = in_drain.following.lock();
            if !*in_drain.ended.lock() {
                then();
            }
        }
    };
    let work = move || {
        let mut ended = of_thread.ended.lock();
        while !*ended {
            if of_thread.changed.wait_for(&mut ended, period).timed_out() {
                drop(ended);
                let _ = caught.catch(&drain);
                ended = of_thread.ended.lock();
            }
        }
    };
    // Without the thread, logs are drained only at snapshots and the stop, which the health shows.
    let _ = background.spawn("gpu-profiler", work);
    ticker
}

/// Locks the collection, like the profiler's own threads while they are busy.
#[cfg(test)]
pub(crate) fn hold_collection() -> impl Drop {
    COLLECTION.lock()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use cupti::Config;
    use fake_cupti::{Fake, Work};

    use super::*;
    use crate::collect::collection::WINDOWS;
    use crate::collect::request::Sink;
    use crate::join::streaming::StreamingJoin;
    use crate::record::recording::{ranges, segment};

    const HOUR: Duration = Duration::from_secs(3600);

    fn start(
        fake: &Fake,
        keep: Retention,
        sink: Option<Arc<Mutex<dyn Sink>>>,
        period: Duration,
        then: Option<Then>,
    ) -> Session {
        let (library, config) = (&fake.library().unwrap(), &Config::new());
        let request = SessionRequest { library, config, keep, sink, samplings: &[], period, then };
        Session::start(&request).unwrap()
    }

    fn session(fake: &Fake, keep: Retention) -> Session {
        start(fake, keep, None, HOUR, None)
    }

    fn summing(fake: &Fake, keep: Retention) -> (Session, Arc<Mutex<StreamingJoin>>) {
        let streaming = Arc::new(Mutex::new(StreamingJoin::new(0, 100)));
        (start(fake, keep, Some(streaming.clone()), HOUR, None), streaming)
    }

    /// Stops the session and completes its streaming join.
    fn end(session: &Session, streaming: &Mutex<StreamingJoin>) -> Recording {
        let recording = session.stop(now_ns()).unwrap();
        streaming.lock().end(Some(&recording));
        recording
    }

    #[test]
    fn a_forked_child_waits_for_no_lock() {
        let fake = Fake::new();
        let mut session = session(&fake, Retention::All);
        session.process_id = 0;
        let mut locked = COLLECTION.lock();
        let is_forked = |result: Result<(), Error>| {
            result.is_err_and(|error| error.to_string().contains("forked off"))
        };
        assert!(is_forked(session.snapshot().map(drop)) && is_forked(session.pause()));
        assert!(is_forked(session.restart()) && is_forked(session.catch_up().map(drop)));
        assert!(!session.is_paused() && is_forked(session.stop(now_ns()).map(drop)));
        *locked = None;
    }

    /// Empty and complete, although the lock was held when stop was called.
    #[test]
    fn window_ends_where_stop_was_called_though_the_lock_is_held() {
        const KEPT: Duration = Duration::from_millis(50);
        let fake = Fake::new();
        let other = session(&fake, Retention::All);
        let session = session(&fake, Retention::LastTime(KEPT));
        // Again where this thread stood still for longer than the kept time.
        let (mut launched, mut called_ns) = (0, u64::MAX);
        while called_ns == u64::MAX {
            let before_ns = now_ns();
            fake.launch(Work::kernel(c"kept"));
            launched += 1;
            session.flush().unwrap();
            let at_ns = now_ns();
            if at_ns - before_ns < KEPT.as_nanos() as u64 {
                called_ns = at_ns;
            }
        }
        let recording = std::thread::scope(|scope| {
            let mut locked = COLLECTION.lock();
            let stop = scope.spawn(|| session.stop(called_ns));
            while session.signals.stop_ns().is_none() {
                std::thread::yield_now();
            }
            // As another session's thread does, for longer than the kept time.
            let running = locked.as_mut().unwrap();
            while now_ns() < called_ns + 3 * KEPT.as_nanos() as u64 {
                running.take().unwrap();
            }
            drop(locked);
            stop.join().unwrap().unwrap()
        });
        let (from_ns, until_ns) = recording.window_ns;
        assert_eq!(until_ns, called_ns);
        assert!(until_ns - from_ns <= KEPT.as_nanos() as u64);
        let records = recording.records.iter().count();
        assert!((1..=launched).contains(&records), "{records} of {launched}");
        // The session stopped later has its own window.
        fake.launch(Work::kernel(c"later"));
        let called_ns = now_ns();
        let later = other.stop(called_ns).unwrap();
        assert_eq!((later.records.iter().count(), later.window_ns.1), (launched + 1, called_ns));
    }

    #[test]
    fn refused_flush_ends_the_collection_all_the_same() {
        use cupti::sys::abi::CuptiResult;
        use fake_cupti::When;
        for when in [When::Once, When::Always] {
            let fake = Fake::new();
            // With a draining thread, the session's stop flushes before the collector's.
            let keep = Retention::LastTime(Duration::from_secs(60));
            let first = session(&fake, keep);
            fake.launch(Work::kernel(c"kernel"));
            fake.fail("cuptiActivityFlushAll", CuptiResult::UNKNOWN, when);
            let stopped = first.stop(now_ns());
            assert!(COLLECTION.lock().is_none() && !fake.is_recording());
            if let Ok(recording) = &stopped {
                assert_eq!(recording.records.iter().count(), 1);
            }
            drop(first);
            drop(fake);
            // A new collection begins.
            let fake = Fake::new();
            let second = session(&fake, keep);
            fake.launch(Work::kernel(c"kernel"));
            assert_eq!(second.stop(now_ns()).unwrap().records.iter().count(), 1);
        }
    }

    #[test]
    fn call_drained_after_the_kept_time_counts_in_the_sums() {
        const KEPT: Duration = Duration::from_millis(1);
        let fake = Fake::new();
        let (session, streaming) = summing(&fake, Retention::LastTime(KEPT));
        fake.launch(Work::kernel(c"kernel"));
        let launched_ns = now_ns();
        while now_ns() < launched_ns + 2 * KEPT.as_nanos() as u64 {
            std::thread::yield_now();
        }
        let recording = end(&session, &streaming);
        let streaming = streaming.lock();
        assert_eq!(
            (streaming.health.accounts.kernels.matched_calls, streaming.health.facts.calls_outside),
            (1, 0)
        );
        assert!(recording.windows_ns.iter().all(|(start, _)| *start > launched_ns));
    }

    #[test]
    fn windows_do_not_grow_with_pauses() {
        let fake = Fake::new();
        let (session, streaming) = summing(&fake, Retention::Nothing);
        for _ in 0..40 * WINDOWS {
            fake.launch(Work::kernel(c"counts"));
            session.pause().unwrap();
            fake.launch(Work::kernel(c"does not"));
            session.resume().unwrap();
            session.with_collection(Collection::take).unwrap();
        }
        let windows = |running: &mut Collection| {
            let of_views: usize = running.views.iter().map(|view| view.windows_ns.len()).sum();
            Ok((running.windows_ns.len(), of_views))
        };
        let (of_collection, of_view) = session.with_collection(windows).unwrap();
        assert!(
            of_collection <= 2 * WINDOWS && of_view <= 2 * WINDOWS,
            "{of_collection}, {of_view}"
        );
        let recording = end(&session, &streaming);
        assert!(recording.windows_ns.len() <= 2 * WINDOWS, "{}", recording.windows_ns.len());
        let streaming = streaming.lock();
        assert_eq!(streaming.health.accounts.kernels.records, 40 * WINDOWS as u64);
        assert!(streaming.health.is_complete(), "{}", streaming.health);
    }

    #[test]
    fn panic_in_the_draining_thread_is_counted_and_draining_goes_on() {
        let fake = Fake::new();
        let calls = Arc::new(AtomicU64::new(0));
        let of_thread = calls.clone();
        let then: Then = Arc::new(move || {
            if of_thread.fetch_add(1, Ordering::Relaxed) == 0 {
                panic!("planted");
            }
        });
        let keep = Retention::LastTime(Duration::from_secs(60));
        let session = start(&fake, keep, None, Duration::from_millis(1), Some(then));
        while calls.load(Ordering::Relaxed) < 3 {
            std::thread::yield_now();
        }
        let mut health = crate::join::health::Health::default();
        health.add_losses(&session.stop(now_ns()).unwrap().losses);
        assert_eq!(health.losses.failed_threads, 1);
        assert!(health.to_string().contains("INCOMPLETE"), "{health}");
    }

    #[test]
    fn work_after_a_segment_keeps_the_collection() {
        let fake = Fake::new();
        let (has_begun, begun) = std::sync::mpsc::channel();
        let (has_run, run) = std::sync::mpsc::channel();
        let then: Then = Arc::new(move || {
            let _ = has_begun.send(());
            // The session is stopped meanwhile.
            std::thread::sleep(Duration::from_millis(100));
            let _ = has_run.send(COLLECTION.lock().is_some());
        });
        let keep = Retention::LastTime(Duration::from_secs(60));
        let session = start(&fake, keep, None, Duration::from_millis(1), Some(then));
        begun.recv().unwrap();
        session.stop(now_ns()).unwrap();
        assert!(run.recv().unwrap());
        drop(session);
        assert!(run.iter().all(|had_collection| had_collection));
    }

    #[test]
    fn longest_waiting_call_is_found() {
        let fake = Fake::new();
        let (session, streaming) = summing(&fake, Retention::Nothing);
        let waits_since_ns = || {
            // The rate is updated ten times a second.
            std::thread::sleep(Duration::from_millis(110));
            session.with_collection(Collection::take).unwrap();
            streaming.lock().waits_since_ns()
        };
        assert_eq!(waits_since_ns(), None);
        let before_ns = now_ns();
        fake.launch(Work::kernel(c"first"));
        let after_ns = now_ns();
        fake.launch(Work::kernel(c"second"));
        fake.call_only("cuMemAlloc_v2", 0);
        let since_ns = waits_since_ns().unwrap();
        assert!((before_ns..=after_ns).contains(&since_ns));
        session.flush().unwrap();
        assert_eq!(waits_since_ns(), None);
        {
            // Graph launches wait for records as long as a range is open.
            let _range = nvtx::range("range");
            fake.launch_graph(&[Work::kernel(c"node")]);
        }
        assert!(waits_since_ns().is_some());
        session.stop(now_ns()).unwrap();
    }

    #[test]
    fn record_that_arrives_long_before_its_call_counts() {
        let fake = Fake::new();
        let (session, streaming) = summing(&fake, Retention::Nothing);
        let take = || session.with_collection(Collection::take).unwrap();
        fake.next_correlation_id(7);
        fake.unseen(&Work::kernel(c"early"));
        fake.launch(Work::kernel(c"later"));
        session.flush().unwrap();
        take();
        assert_eq!(streaming.lock().health.accounts.kernels.records, 1);
        fake.next_correlation_id(7);
        fake.call_only("cuLaunchKernel", 0);
        take();
        end(&session, &streaming);
        let streaming = streaming.lock();
        let kernels = streaming.health.accounts.kernels;
        assert_eq!(
            (kernels.records, kernels.matched_calls, streaming.health.facts.records_before),
            (2, 2, 0)
        );
    }

    /// The earlier call has one of the largest ids, to which 0, for none, is near.
    #[test]
    fn record_of_a_call_before_the_session_counts_as_such_beside_the_wrap_of_ids() {
        let fake = Fake::new();
        let first = session(&fake, Retention::All);
        fake.next_correlation_id(u32::MAX - 1);
        fake.launch(Work::kernel(c"earlier"));
        first.with_collection(Collection::take).unwrap();
        let second = session(&fake, Retention::All);
        fake.next_correlation_id(u32::MAX - 1);
        fake.unseen(&Work::kernel(c"arrives late"));
        let profile = crate::profile::Profile::from_recording(second.stop(now_ns()).unwrap());
        let health = profile.health();
        // That of the earlier call may come late, too.
        assert_eq!(
            (health.facts.records_before, health.accounts.kernels.records),
            (2, 0),
            "{health}"
        );
        drop(first);
    }

    #[test]
    fn idle_session_keeps_few_segments() {
        let fake = Fake::new();
        let session = session(&fake, Retention::LastOperations(5));
        let parts = || {
            let take = |running: &mut Collection| running.take().map(|()| running.segments.len());
            session.with_collection(take).unwrap()
        };
        assert_eq!([parts(), parts(), parts()], [1, 1, 1]);
        fake.launch(Work::kernel(c"kernel"));
        assert_eq!([parts(), parts(), parts()], [2, 3, 3]);
        let until_ns = session.with_collection(|running| Ok(running.segments[2].until_ns)).unwrap();
        assert!(
            until_ns > session.with_collection(|running| Ok(running.segments[1].until_ns)).unwrap()
        );
        let recording = session.stop(now_ns()).unwrap();
        assert_eq!(recording.records.iter().count(), 1);
    }

    #[test]
    fn a_thread_has_a_new_log_when_one_is_full() {
        let fake = Fake::new();
        let session = session(&fake, Retention::All);
        let process_range = || drop(nvtx::process_range("process"));
        let work = || {
            let _range = nvtx::range("range");
            fake.launch(Work::kernel(c"kernel"));
        };
        let many = 2 * ranges::SLOTS + 10;
        (0..many).for_each(|_| work());
        (0..many).for_each(|_| process_range());
        work();
        // An open range ends in the full log; ranges in the meantime are counted as lost.
        let outer = nvtx::range("outer");
        (0..ranges::SLOTS + 5).for_each(|_| work());
        drop(outer);
        (0..10).for_each(|_| work());
        let recording = session.stop(now_ns()).unwrap();
        let entries = |thread: &segment::ThreadRanges| thread.entries.len() as u64;
        let recorded = recording.ranges.iter().map(entries).sum::<u64>();
        let lost = recording.losses.ranges;
        assert_eq!(recorded + lost, many + 1 + 1 + ranges::SLOTS + 5 + 10);
        assert!((6..ranges::SLOTS).contains(&lost), "{lost}");
        assert!(recording.ranges.iter().all(|thread| entries(thread) <= ranges::SLOTS));
        let has_end = |entry: &ranges::RangeEntry| entry.end_ns().is_some();
        assert!(recording.ranges.iter().flat_map(|thread| &thread.entries).all(has_end));
        // Every launch refers to a recorded range.
        let finds_range = |tag: u64| {
            let Some((number, slot)) = ranges::RangeTag(tag).place() else { return false };
            let mut logs = recording.ranges.iter().filter(|log| log.number == number);
            logs.any(|log| log.slots.row(slot).is_some())
        };
        let mut calls = recording.calls.iter().flat_map(|thread| &thread.calls);
        assert!(calls.all(|call| finds_range(call.word)));
    }

    #[test]
    fn a_summary_counts_the_ranges_that_could_not_be_recorded() {
        let fake = Fake::new();
        let (session, streaming) = summing(&fake, Retention::Nothing);
        let outer = nvtx::range("outer");
        (0..ranges::SLOTS + 5).for_each(|_| drop(nvtx::range("range")));
        drop(outer);
        let recording = end(&session, &streaming);
        let streaming = streaming.lock();
        assert!(recording.losses.ranges > 5);
        assert_eq!(streaming.health.losses.lost_ranges, recording.losses.ranges);
        assert!(!streaming.health.is_complete());
    }
}
