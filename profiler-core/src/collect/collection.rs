//! The process's one collection, and the sessions that look at it.
//!
//! CUPTI serves one collector in a process. The first session starts it, the last one ends it; each sees what was asked for
//! between its own start and stop. As long as there is one session that keeps everything, nothing is moved: its stop reads
//! the logs. Where a session keeps a part of it only, or another one begins, the logs are taken out part by part, and a part
//! is let go when no session needs it any more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cupti::clock::{intersection, now_ns};
use cupti::{Collector, Config, Flusher, Library, PendingFlush};
use parking_lot::{Condvar, Mutex};

use crate::base::background::Background;
use crate::base::error::{Error, Kind};
use crate::collect::flush_pace::FlushDemand;
use crate::collect::sampling::{Samplers, Sampling};
use crate::record::id_window::is_up_to;
use crate::record::recording::ranges::{self, RECORDER};
use crate::record::recording::segment::{
    CarriedOver, OpenRanges, PartialRecording, Segment, Settings, StoppedRanges, Tail,
};
use crate::record::recording::{Recording, RecordingInfo, segment};

/// A session that keeps the last operations keeps no more calls, ranges and marks than so many for each of them, where
/// these are more than [`ENTRIES`].
const ENTRIES_AN_OPERATION: u64 = 16;
/// Some 50 MB.
const ENTRIES: u64 = 1 << 20;
/// How long a snapshot waits for CUPTI, which may not answer before a load is over.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// How long a stop waits for calls to return that are under way on other threads, so that what they ask for is known.
const CALLS_RETURN: Duration = Duration::from_millis(20);
/// Over such a time it is looked how much comes.
const RATE_NS: u64 = 100_000_000;
/// How much longer than asked for a session keeps the last time: a stop may be preempted between reading the clock and setting
/// its [`StopCall`].
const STOP_SEEN_NS: u64 = 100_000_000;
/// How long after the first call one with an earlier id may be logged.
const FIRST_CALLS_NS: u64 = 1_000_000_000;
/// Windows of a collection or a session from which on those that are no longer needed are looked for.
const WINDOWS: usize = 64;

/// What a session keeps of the raw logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Retention {
    /// All until its stop.
    #[default]
    All,
    /// What was asked for in the last such time.
    LastTime(Duration),
    /// At least the last so many operations.
    LastOperations(u64),
    /// None: it is followed while it goes on.
    Nothing,
}

/// What a session is to do.
pub(crate) struct SessionRequest<'a> {
    pub(crate) library: &'a Library,
    pub(crate) config: &'a Config,
    pub(crate) keep: Retention,
    pub(crate) sink: Option<Arc<Mutex<dyn Sink>>>,
    pub(crate) samplings: &'a [Sampling],
    /// How often the logs are taken out, if they are.
    pub(crate) period: Duration,
    /// What the thread that does it calls each time, with no lock held.
    pub(crate) then: Option<Then>,
}

/// Takes what a session sees while it goes on, part by part: sums, or the events of a layer.
pub(crate) trait Sink: std::fmt::Debug + Send {
    /// The session begins: the number of its first log of ranges, the highest correlation id of calls before it, and when
    /// that is.
    fn begin(&mut self, first_log: u64, before_id: u32, start_ns: u64);

    /// Sets the id of the first call of the collection so far: records that come with earlier ones are of calls before it,
    /// once `is_final` says that no earlier call is to come.
    fn begins_with(&mut self, first_id: u32, is_final: bool);

    /// Adds a part. `open` is what was open at its end, and calls outside the windows do not count.
    fn add(&mut self, part: &Segment, open: &OpenRanges, windows_ns: &[(u64, u64)]);

    /// Since when what lacks its records longest does.
    fn waits_since_ns(&self) -> Option<u64>;
}

pub(crate) type Then = Arc<dyn Fn() + Send + Sync>;

/// A session that is on. Dropping it throws what it saw away.
#[derive(Debug)]
pub(crate) struct Session {
    id: u64,
    /// Tells the thread that takes the logs out to end.
    ticker: Option<Arc<Ticker>>,
    /// They begin before it and end after it.
    samplers: Mutex<Samplers>,
    process_id: u32,
    stop_call: Arc<StopCall>,
    ended: AtomicBool,
}

/// When a session's stop was called. Set before any lock is waited for, so that nothing is let go in the meantime that the
/// session keeps.
#[derive(Debug, Default)]
struct StopCall(AtomicU64);

impl StopCall {
    fn set(&self, at_ns: u64) {
        self.0.store(at_ns.max(1), Ordering::Release);
    }

    fn at_ns(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|at_ns| *at_ns != 0)
    }
}

/// Where a session is that goes on.
#[derive(Debug)]
pub(crate) struct SoFar {
    pub(crate) info: RecordingInfo,
    pub(crate) duration: Duration,
}

#[derive(Debug, Default)]
struct Ticker {
    ended: Mutex<bool>,
    changed: Condvar,
}

static COLLECTION: Mutex<Option<Collection>> = Mutex::new(None);

/// Fields are dropped in this order.
#[derive(Debug)]
struct Collection {
    background: Background,
    collector: Collector,
    observing: Observing,
    library: Library,
    config: Config,
    info: RecordingInfo,
    views: Vec<View>,
    /// Parts that some session needs.
    parts: VecDeque<Segment>,
    /// The number of the first of them.
    first: u64,
    /// When the collection was on, as the last part told, and when that was.
    windows_ns: Vec<(u64, u64)>,
    /// How many windows there may be before the next look at which are no longer needed.
    most_windows: usize,
    parts_until_ns: u64,
    /// What parts up to a number said of ranges that had not ended.
    remains: (u64, CarriedOver),
    /// The records of calls that had returned before then have all come.
    settled_ns: u64,
    /// Bytes of records that came last, in [`RATE_NS`]; and those since, from when on.
    came: u64,
    coming: (u64, u64),
    /// The highest correlation id so far.
    last_id: u32,
    /// The lowest id of a call, and when the first call was seen.
    first_call: Option<(u32, u64)>,
    first_is_final: bool,
    next_id: u64,
}

/// What one session sees.
#[derive(Debug)]
struct View {
    id: u64,
    keep: Retention,
    /// The number of the first part that it needs.
    from: u64,
    start_ns: u64,
    windows_ns: Vec<(u64, u64)>,
    on_since_ns: Option<u64>,
    stop_call: Arc<StopCall>,
    /// Where it ends: when its stop was called, but not before `earliest_end_ns`.
    left_ns: Option<u64>,
    /// What was asked for before then was followed, or what an earlier end would keep was let go.
    earliest_end_ns: u64,
    before_id: u32,
    remains: CarriedOver,
    panics_before: u64,
    sink: Option<Arc<Mutex<dyn Sink>>>,
}

/// The ranges of this collection are being recorded; ends it when dropped.
#[derive(Debug)]
struct Observing {
    switch: nvtx::observer::Switch,
    first_log: u64,
}

impl Observing {
    fn begin() -> Result<Self, Error> {
        let switch = nvtx::observer::install(&RECORDER)
            .map_err(|error| Error::new(Kind::Observer(error.to_string())))?;
        let first_log = ranges::begin();
        switch.on();
        Ok(Self { switch, first_log })
    }

    /// Ends it and gives what was left.
    fn end(self) -> StoppedRanges {
        self.switch.off();
        StoppedRanges::end()
    }
}

impl Drop for Observing {
    fn drop(&mut self) {
        self.switch.off();
        let _ = StoppedRanges::end();
    }
}

/// Ranges are counted and none are recorded; no session can begin until it is dropped.
#[derive(Debug)]
pub(crate) struct Counting {
    switch: nvtx::observer::Switch,
}

/// Whether there is one; changed and looked at with the collection locked.
static COUNTING: AtomicBool = AtomicBool::new(false);

impl Counting {
    pub(crate) fn begin() -> Result<Self, Error> {
        let collection = COLLECTION.lock();
        if collection.is_some() || COUNTING.load(Ordering::Relaxed) {
            return Err(Error::new(Kind::Excluded));
        }
        let switch = nvtx::observer::install(&RECORDER)
            .map_err(|error| Error::new(Kind::Observer(error.to_string())))?;
        COUNTING.store(true, Ordering::Relaxed);
        switch.on();
        Ok(Self { switch })
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let _collection = COLLECTION.lock();
        self.switch.off();
        COUNTING.store(false, Ordering::Relaxed);
    }
}

impl Session {
    /// Begins a session, and with the first one the collection.
    pub(crate) fn start(wish: &SessionRequest<'_>) -> Result<Self, Error> {
        let samplers = Mutex::new(Samplers::start(wish.library, wish.samplings));
        let mut collection = COLLECTION.lock();
        if COUNTING.load(Ordering::Relaxed) {
            return Err(Error::new(Kind::Excluded));
        }
        let running = match &mut *collection {
            Some(running) => {
                running.join(wish)?;
                running
            }
            none => none.insert(Collection::start(wish)?),
        };
        let stop_call = Arc::new(StopCall::default());
        let added = running.add_view(wish, &stop_call);
        let background = running.background.clone();
        if running.views.is_empty() {
            *collection = None;
        }
        drop(collection);
        let id = added?;
        let is_bounded = wish.keep != Retention::All || wish.sink.is_some();
        let ticker = is_bounded.then(|| tick(&background, wish.period, wish.then.clone()));
        let (process_id, ended) = (std::process::id(), AtomicBool::new(false));
        Ok(Self { id, ticker, samplers, process_id, stop_call, ended })
    }

    /// In a forked child the lock may be held by a thread that it does not have.
    fn check_process(&self) -> Result<(), Error> {
        let is_child = std::process::id() != self.process_id;
        if is_child { Err(Error::new(Kind::Forked)) } else { Ok(()) }
    }

    fn with<R>(&self, with: impl FnOnce(&mut Collection) -> Result<R, Error>) -> Result<R, Error> {
        self.check_process()?;
        let mut collection = COLLECTION.lock();
        let running = collection.as_mut().ok_or_else(|| Error::new(Kind::NotRunning))?;
        with(running)
    }

    /// Has CUPTI hand over what is complete, as far as it does so in time. Nobody who takes records out meanwhile waits.
    fn flush(&self) -> Result<(), Error> {
        let flush = self.with(|running| Ok(running.collector.flusher().request()?))?;
        flush.wait(LONGEST_WAIT)?;
        Ok(())
    }

    pub(crate) fn pause(&self) -> Result<(), Error> {
        let Some(waiter) = self.with(|running| running.turn_off(self.id))? else { return Ok(()) };
        let waited = waiter.wait();
        self.with(Collection::pause)?;
        waited.map(drop)
    }

    pub(crate) fn resume(&self) -> Result<(), Error> {
        self.with(|running| running.resume(self.id))
    }

    pub(crate) fn is_paused(&self) -> bool {
        let paused = |running: &mut Collection| Ok(running.view(self.id)?.on_since_ns.is_none());
        self.with(paused).unwrap_or(false)
    }

    /// Forgets what it saw up to now.
    pub(crate) fn restart(&self) -> Result<(), Error> {
        self.with(|running| {
            running.take()?;
            running.restart(self.id)
        })?;
        self.samplers.lock().restart();
        Ok(())
    }

    /// What it has seen so far.
    pub(crate) fn snapshot(&self) -> Result<Recording, Error> {
        self.flush()?;
        let mut recording = self.with(|running| {
            running.take()?;
            running.recording(self.id, Some(running.settled_ns))
        })?;
        recording.series = self.samplers.lock().so_far(recording.window_ns);
        Ok(recording)
    }

    /// Brings its sink up to date. The GPU is not waited for.
    pub(crate) fn catch_up(&self) -> Result<SoFar, Error> {
        self.flush()?;
        self.with(|running| {
            running.take()?;
            let info = running.info.clone();
            let start_ns = running.view(self.id)?.start_ns;
            let ns = now_ns().saturating_sub(start_ns);
            Ok(SoFar { info, duration: Duration::from_nanos(ns) })
        })
    }

    /// Brings its sink up to date, once the GPU has finished what was launched.
    #[cfg(feature = "tracing")]
    pub(crate) fn settle(&self) -> Result<(), Error> {
        self.with(|running| Ok(running.waiter()))?.wait()?;
        self.with(Collection::take)
    }

    /// Ends it and gives what it saw up to a time, when its stop was called.
    pub(crate) fn stop(&self, called_ns: u64) -> Result<Recording, Error> {
        self.check_process()?;
        self.stop_call.set(called_ns);
        self.ended.store(true, Ordering::Release);
        let samplers = std::mem::take(&mut *self.samplers.lock());
        let mut recording = self.stop_collecting()?;
        recording.series = samplers.stop(recording.window_ns);
        Ok(recording)
    }

    /// What it asked for is waited for while the logs are taken out as ever, and while other sessions go on.
    fn stop_collecting(&self) -> Result<Recording, Error> {
        let (mut waited, mut held) = (None, None);
        loop {
            let mut collection = COLLECTION.lock();
            let running = collection.as_mut().ok_or_else(|| Error::new(Kind::NotRunning))?;
            let is_alone = running.views.len() == 1;
            match waited.take() {
                // The collector's own stop waits, and there is nothing to take out meanwhile.
                None if is_alone && self.ticker.is_none() => _ = running.leave(self.id)?,
                None => {
                    let waiter = running.leave(self.id)?;
                    // What cannot be taken out now comes with the next part.
                    let _ = running.take();
                    drop(collection);
                    self.wait_for_calls();
                    waited = Some(waiter.wait());
                    self.end_ticker();
                    continue;
                }
                Some(Ok(unfinished)) if is_alone => held = Some(unfinished),
                // The collector's own stop flushes once more, and returns CUPTI's refusal if there still is one.
                Some(_) if is_alone => {}
                Some(result) => {
                    let recording =
                        result.and_then(|unfinished| running.stop_view(self.id, unfinished));
                    running.views.retain(|view| view.id != self.id);
                    running.let_go();
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
            && self.with(|running| running.has_calls_under_way(self.id)).unwrap_or(false)
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
        // A forked child may have locks of threads that it does not have.
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
            running.let_go();
        }
    }
}

/// Drains the logs once per period, on a thread of its own, until the ticker ends. A panic in a drain is counted, and the
/// next one comes all the same.
fn tick(background: &Background, period: Duration, then: Option<Then>) -> Arc<Ticker> {
    let ticker = Arc::new(Ticker::default());
    let (of_thread, caught) = (ticker.clone(), background.clone());
    let drain = move || {
        let due = |running: &&mut Collection| running.is_due(period);
        let flush = COLLECTION.lock().as_mut().filter(due).and_then(Collection::flush_if_due);
        if let Some(flush) = flush {
            let _ = flush.wait(period);
        }
        // What CUPTI refuses now comes with the next part, or with the error of the stop.
        let _ = COLLECTION.lock().as_mut().filter(due).map(Collection::take);
        if let Some(then) = &then {
            then();
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
    // Without the thread the logs are drained at snapshots and at the stop alone, which the health shows.
    let _ = background.spawn("gpu-profiler", work);
    ticker
}

impl Collection {
    fn start(wish: &SessionRequest<'_>) -> Result<Self, Error> {
        let info = RecordingInfo::now(wish.library);
        // The collector first: it fails more often, and a range needs no call to be seen.
        let collector = Collector::start(wish.library, wish.config)?;
        Ok(Self {
            background: Background::default(),
            collector,
            observing: Observing::begin()?,
            library: wish.library.clone(),
            config: wish.config.clone(),
            info,
            views: Vec::new(),
            parts: VecDeque::new(),
            first: 0,
            windows_ns: Vec::new(),
            most_windows: WINDOWS,
            parts_until_ns: 0,
            remains: (0, CarriedOver::default()),
            settled_ns: 0,
            came: 0,
            coming: (0, now_ns()),
            last_id: 0,
            first_call: None,
            first_is_final: false,
            next_id: 0,
        })
    }

    /// Whether a session that wishes this can see what is collected. It begins with a new part.
    fn join(&mut self, wish: &SessionRequest<'_>) -> Result<(), Error> {
        if !self.library.is_same(wish.library) {
            return Err(Error::new(Kind::Differs("it uses another CUPTI".to_owned())));
        }
        let missing = self.collector.missing_kinds();
        self.config.covers(wish.config, missing).map_err(|what| Error::new(Kind::Differs(what)))?;
        self.take()
    }

    fn add_view(
        &mut self,
        wish: &SessionRequest<'_>,
        stop_call: &Arc<StopCall>,
    ) -> Result<u64, Error> {
        let id = self.next_id;
        self.next_id += 1;
        let from = self.first + self.parts.len() as u64;
        let remains = if from == 0 { CarriedOver::default() } else { self.remains_until(from) };
        let began_ns = now_ns();
        let is_first = self.views.is_empty();
        let start_ns = if is_first { self.collector.start_ns() } else { began_ns };
        self.views.push(View {
            id,
            keep: wish.keep,
            from,
            start_ns,
            windows_ns: Vec::new(),
            on_since_ns: None,
            stop_call: stop_call.clone(),
            left_ns: None,
            earliest_end_ns: start_ns,
            before_id: self.last_id,
            remains,
            panics_before: self.observing.switch.panics(),
            sink: wish.sink.clone(),
        });
        if let Some(sink) = &wish.sink {
            sink.lock().begin(self.observing.first_log, self.last_id, start_ns);
        }
        if !wish.config.starts_paused() {
            let resumed = self.resume(id);
            if resumed.is_err() {
                self.views.retain(|view| view.id != id);
                resumed?;
            }
            let view = self.view(id)?;
            if is_first {
                // What was asked for while this went on counts.
                view.on_since_ns = Some(view.start_ns);
            }
        }
        Ok(id)
    }

    fn remains_until(&mut self, until: u64) -> CarriedOver {
        let (from, remains) = &mut self.remains;
        for (number, part) in (self.first..).zip(&self.parts) {
            if number >= *from && number < until {
                remains.add(part);
            }
        }
        *from = until;
        remains.clone()
    }

    fn view(&mut self, id: u64) -> Result<&mut View, Error> {
        let view = self.views.iter_mut().find(|view| view.id == id);
        view.ok_or_else(|| Error::new(Kind::NotRunning))
    }

    /// What is asked for from now on does not count for this session. What was counts, and is to be waited for before the
    /// collection is paused, if no other session is on.
    fn turn_off(&mut self, id: u64) -> Result<Option<Waiter>, Error> {
        let view = self.view(id)?;
        if view.on_since_ns.is_none() {
            return Ok(None);
        }
        view.turn_off();
        let others_are_on = self.views.iter().any(|view| view.on_since_ns.is_some());
        Ok((!others_are_on).then(|| self.waiter()))
    }

    /// Pauses unless a session is on.
    fn pause(&mut self) -> Result<(), Error> {
        if self.views.iter().any(|view| view.on_since_ns.is_some()) {
            return Ok(());
        }
        Ok(self.collector.pause()?)
    }

    /// This session ends: what it asked for by now is to be waited for, without the collection's lock.
    fn leave(&mut self, id: u64) -> Result<Waiter, Error> {
        self.view(id)?.see_stop_call();
        Ok(self.waiter())
    }

    /// Whether calls that a session asked for before it was stopped have not returned.
    fn has_calls_under_way(&mut self, id: u64) -> Result<bool, Error> {
        let left_ns = self.view(id)?.left_ns.unwrap_or(u64::MAX);
        let open = self.collector.unfinished_calls(now_ns()).calls;
        Ok(open.iter().flat_map(|thread| &thread.calls).any(|call| call.start_ns < left_ns))
    }

    fn waiter(&self) -> Waiter {
        Waiter { flusher: self.collector.flusher(), is_on: !self.collector.is_paused() }
    }

    fn resume(&mut self, id: u64) -> Result<(), Error> {
        if self.view(id)?.on_since_ns.is_some() {
            return Ok(());
        }
        let since = now_ns();
        if self.collector.is_paused() {
            self.collector.resume()?;
        }
        self.view(id)?.on_since_ns = Some(since);
        Ok(())
    }

    fn restart(&mut self, id: u64) -> Result<(), Error> {
        let from = self.first + self.parts.len() as u64;
        let remains = self.remains_until(from);
        let (last_id, panics) = (self.last_id, self.observing.switch.panics());
        let view = self.view(id)?;
        let began_ns = now_ns();
        view.on_since_ns = view.on_since_ns.map(|_| began_ns);
        view.windows_ns.clear();
        (view.from, view.start_ns, view.remains) = (from, began_ns, remains);
        (view.before_id, view.panics_before) = (last_id, panics);
        self.let_go();
        Ok(())
    }

    /// False if another session's thread has just taken the logs out.
    fn is_due(&self, period: Duration) -> bool {
        let last_ns = self.parts_until_ns;
        let since_ns = now_ns().saturating_sub(last_ns);
        since_ns >= u64::try_from(period.as_nanos()).unwrap_or(u64::MAX) / 2
    }

    /// Requests a flush if one is due.
    fn flush_if_due(&mut self) -> Option<PendingFlush> {
        let sinks = self.views.iter().filter_map(|view| view.sink.as_ref());
        let waits_since_ns = sinks.filter_map(|sink| sink.lock().waits_since_ns()).min();
        let need = FlushDemand { came: self.came, waits_since_ns };
        self.collector.flusher().request_if(|last| need.is_due(now_ns(), last))
    }

    /// Takes what CUPTI has handed over, and the calls, out of the logs.
    fn take(&mut self) -> Result<(), Error> {
        let (mut part, windows_ns) = Segment::take(&self.collector)?;
        part.losses.failed_threads = self.background.take_failures();
        self.count_bytes(&part);
        self.windows_ns = windows_ns;
        (self.parts_until_ns, self.settled_ns) = (part.until_ns, part.settled_ns);
        if part.last_id != 0 && !is_up_to(part.last_id, self.last_id) {
            self.last_id = part.last_id;
        }
        part.last_id = self.last_id;
        self.find_first(&part);
        let mut open = None;
        for view in &mut self.views {
            view.see_stop_call();
            if let Some(sink) = &view.sink {
                let open = open.get_or_insert_with(|| OpenRanges::at(part.until_ns));
                view.earliest_end_ns = view.until_ns(part.until_ns).max(view.earliest_end_ns);
                // All of its calls count, however little the session keeps.
                let windows_ns = view.windows(part.first_call_ns(), part.until_ns);
                sink.lock().add(&part, open, &windows_ns);
            }
        }
        match self.parts.back_mut().filter(|last| last.is_empty() && part.is_empty()) {
            Some(last) => last.extend(&part),
            None => self.parts.push_back(part),
        }
        if self.views.iter().any(|view| matches!(view.keep, Retention::LastOperations(_))) {
            self.count_operations();
        }
        self.let_go();
        self.forget_windows();
        Ok(())
    }

    /// Forgets windows that nothing lies in that a session may still get. Those of a session that keeps everything stay.
    fn forget_windows(&mut self) {
        let count = |views: &[View]| views.iter().map(|view| view.windows_ns.len()).max();
        let windows = self.windows_ns.len().max(count(&self.views).unwrap_or(0));
        if windows < self.most_windows {
            return;
        }
        // A call that is under way counts for the window in which it began.
        let at_ns = self.parts_until_ns;
        let open = self.collector.unfinished_calls(at_ns).calls;
        let starts = open.iter().flat_map(|thread| &thread.calls).map(|call| call.start_ns);
        let oldest_ns = starts.min().unwrap_or(at_ns);
        let mut needed_ns = at_ns;
        for view in &mut self.views {
            let kept_ns = match view.keep {
                Retention::Nothing => at_ns,
                _ => view.first_ns(at_ns),
            };
            let from_ns = if view.sink.is_some() { kept_ns.min(oldest_ns) } else { kept_ns };
            view.windows_ns.retain(|(_, stop)| *stop >= from_ns);
            needed_ns = needed_ns.min(from_ns);
        }
        self.collector.forget_windows(needed_ns);
        self.windows_ns.retain(|(_, stop)| *stop >= needed_ns);
        let windows = self.windows_ns.len().max(count(&self.views).unwrap_or(0));
        self.most_windows = WINDOWS.max(2 * windows);
    }

    /// Finds the id of the first call: a record with an earlier one is of a call that was under way when the collection began.
    /// A thread may get its id before another one and be logged after it, so it is looked for a while.
    fn find_first(&mut self, part: &Segment) {
        let is_final =
            self.first_call.is_some_and(|(_, seen_ns)| part.until_ns > seen_ns + FIRST_CALLS_NS);
        if is_final && self.first_is_final {
            return;
        }
        self.first_is_final = is_final;
        let open = self.collector.unfinished_calls(part.until_ns).calls;
        let calls = part.calls.iter().chain(&open).flat_map(|thread| &thread.calls);
        let known = self.first_call;
        let first = calls.map(|call| call.correlation_id).chain(known.map(|(id, _)| id));
        let Some(first) = first.reduce(segment::earlier_id) else { return };
        self.first_call = Some((first, known.map_or(part.until_ns, |(_, seen_ns)| seen_ns)));
        let sinks = self.views.iter().filter_map(|view| view.sink.as_ref());
        sinks.for_each(|sink| sink.lock().begins_with(first, is_final));
    }

    fn count_bytes(&mut self, part: &Segment) {
        let (bytes, since_ns) = &mut self.coming;
        *bytes += part.records.buffers().map(|bytes| bytes.len() as u64).sum::<u64>();
        let ns = part.until_ns.saturating_sub(*since_ns);
        if ns >= RATE_NS {
            self.came = (u128::from(*bytes) * u128::from(RATE_NS) / u128::from(ns)) as u64;
            self.coming = (0, part.until_ns);
        }
    }

    /// Counts the operations that came last for the parts that have their calls: these may have come long before.
    fn count_operations(&mut self) {
        let Some(last) = self.parts.pop_back() else { return };
        let mut own = 0;
        for id in last.operations() {
            // Ids of parts that are gone come out at the first, of which nothing is known without its calls.
            let place = self.parts.partition_point(|part| !is_up_to(id, part.last_id));
            match self.parts.get_mut(place) {
                Some(part) => part.operations += 1,
                None => own += 1,
            }
        }
        self.parts.push_back(last);
        if let Some(last) = self.parts.back_mut() {
            last.operations += own;
        }
    }

    /// Lets go of what no session needs any more.
    fn let_go(&mut self) {
        let end = self.first + self.parts.len() as u64;
        for view in &mut self.views {
            // A stop that is called from now on may be seen late.
            let end_ns = now_ns().saturating_sub(STOP_SEEN_NS);
            // What it is to keep was there when it was stopped.
            view.see_stop_call();
            if view.left_ns.is_some() && view.keep != Retention::Nothing {
                continue;
            }
            while view.from < end {
                let part = &self.parts[(view.from - self.first) as usize];
                let later = || self.parts.iter().skip((view.from - self.first) as usize + 1);
                let goes = match view.keep {
                    Retention::All => false,
                    Retention::Nothing => true,
                    Retention::LastTime(time) => {
                        view.earliest_end_ns = view.earliest_end_ns.max(end_ns);
                        part.until_ns < end_ns.saturating_sub(time.as_nanos() as u64)
                    }
                    // Some of what the next one has was asked for before its beginning, and is left out then.
                    Retention::LastOperations(count) => {
                        let most = count.saturating_mul(ENTRIES_AN_OPERATION).max(ENTRIES);
                        let kept = later().skip(1).fold((0, 0), |(operations, entries), part| {
                            (operations + part.operations, entries + part.entries)
                        });
                        kept.0 >= count || kept.1 >= most
                    }
                };
                if !goes {
                    break;
                }
                view.before_id = part.last_id;
                if view.keep != Retention::Nothing {
                    view.remains.add(part);
                }
                if let Retention::LastOperations(_) = view.keep {
                    view.start_ns = view.start_ns.max(part.until_ns);
                }
                view.from += 1;
            }
        }
        let needed = self.views.iter().map(|view| view.from).min().unwrap_or(end);
        while self.first < needed {
            // A session that begins later may have to know of it.
            if self.remains.0 == self.first {
                if let Some(part) = self.parts.front() {
                    self.remains.1.add(part);
                }
                self.remains.0 += 1;
            }
            self.parts.pop_front();
            self.first += 1;
        }
    }

    /// What a session saw, as far as it was taken out, and what is open.
    fn recording(&mut self, id: u64, pending_from_ns: Option<u64>) -> Result<Recording, Error> {
        let at_ns = self.parts_until_ns;
        let rest = Tail::Open {
            calls: self.collector.unfinished_calls(at_ns),
            ranges: OpenRanges::at(at_ns),
            settings: Settings {
                attributes: self.collector.attributes().to_vec(),
                missing_kinds: self.collector.missing_kinds().to_vec(),
            },
        };
        let panics = self.observing.switch.panics();
        let place = self.views.iter().position(|view| view.id == id);
        let view = &self.views[place.ok_or_else(|| Error::new(Kind::NotRunning))?];
        let until_ns = view.until_ns(at_ns);
        let pieces = PartialRecording {
            info: self.info.clone(),
            first_log: self.observing.first_log,
            window_ns: (view.first_ns(until_ns), until_ns),
            windows_ns: intersection(
                &self.windows_ns,
                &view.windows(view.first_ns(until_ns), until_ns),
            ),
            pending_from_ns,
            before_id: view.before_id,
            begins_late: view.begins_late(until_ns),
            parts: self.parts.iter().skip((view.from - self.first) as usize).collect(),
            remains: Some(&view.remains),
            rest,
        };
        Ok(segment::recording(pieces, panics.saturating_sub(view.panics_before)))
    }

    /// Ends a session while others go on, once the GPU was waited for. The buffers that it kept are unfinished for this
    /// session, and come to the others later.
    fn stop_view(&mut self, id: u64, unfinished: u64) -> Result<Recording, Error> {
        self.take()?;
        let mut recording = self.recording(id, None)?;
        segment::leave_open(&mut recording);
        recording.losses.unfinished_buffers += unfinished;
        Ok(recording)
    }

    /// Ends the last session, and with it the collection. `waited` is what a wait for the GPU gave, if there was one.
    fn stop(mut self, id: u64, waited: Option<u64>) -> Result<Recording, Error> {
        let place = self.views.iter().position(|view| view.id == id);
        let mut view = self.views.swap_remove(place.ok_or_else(|| Error::new(Kind::NotRunning))?);
        if let Some(sink) = view.sink.clone() {
            // The sink is to have all that is done by now.
            let (mut part, windows_ns) = Segment::take(&self.collector)?;
            part.losses.failed_threads = self.background.take_failures();
            self.windows_ns = windows_ns;
            let windows_ns = view.windows(part.first_call_ns(), part.until_ns);
            sink.lock().add(&part, &OpenRanges::at(part.until_ns), &windows_ns);
            if view.keep != Retention::Nothing {
                self.parts.push_back(part);
            } else {
                if !is_up_to(part.last_id, view.before_id) {
                    view.before_id = part.last_id;
                }
            }
        }
        let collected = match waited {
            Some(unfinished) => self.collector.stop_after_wait(unfinished)?,
            None => self.collector.stop()?,
        };
        let panics = self.observing.switch.panics();
        let first_log = self.observing.first_log;
        let ranges = self.observing.end();
        let stop_ns = view.until_ns(collected.window_ns.1);
        let windows_ns =
            intersection(&collected.windows_ns, &view.windows(view.first_ns(stop_ns), stop_ns));
        let pieces = PartialRecording {
            info: self.info,
            first_log,
            window_ns: (view.first_ns(stop_ns), stop_ns),
            windows_ns,
            pending_from_ns: None,
            before_id: view.before_id,
            begins_late: view.begins_late(stop_ns),
            parts: self.parts.iter().skip((view.from - self.first) as usize).collect(),
            remains: Some(&view.remains),
            rest: Tail::Stopped { collected: Box::new(collected), ranges },
        };
        let mut recording = segment::recording(pieces, panics.saturating_sub(view.panics_before));
        recording.losses.failed_threads += self.background.take_failures();
        segment::leave_open(&mut recording);
        Ok(recording)
    }
}

/// Waits for the GPU. The collection goes on.
struct Waiter {
    flusher: Flusher,
    /// Nothing runs in a pause that was not waited for.
    is_on: bool,
}

impl Waiter {
    /// Gives the buffers that the GPU has not finished.
    fn wait(&self) -> Result<u64, Error> {
        if self.is_on {
            return Ok(self.flusher.wait_idle()?);
        }
        self.flusher.request()?.wait(LONGEST_WAIT)?;
        Ok(0)
    }
}

impl View {
    fn turn_off(&mut self) {
        if let Some(since) = self.on_since_ns.take() {
            self.windows_ns.push((since, now_ns()));
        }
    }

    /// Ends it where its stop was called, if that was.
    fn see_stop_call(&mut self) {
        if self.left_ns.is_none() {
            let earliest_ns = self.earliest_end_ns.max(self.start_ns);
            self.left_ns = self.stop_call.at_ns().map(|at_ns| at_ns.max(earliest_ns));
        }
    }

    /// A time at which it is looked at, or its stop before.
    fn until_ns(&self, at_ns: u64) -> u64 {
        self.left_ns.map_or(at_ns, |left_ns| left_ns.min(at_ns))
    }

    /// From when on what was asked for counts, at a time, or at its stop before.
    fn first_ns(&self, at_ns: u64) -> u64 {
        let at_ns = self.until_ns(at_ns);
        match self.keep {
            Retention::LastTime(time) => {
                self.start_ns.max(at_ns.saturating_sub(time.as_nanos() as u64))
            }
            _ => self.start_ns,
        }
    }

    /// Whether ranges that ended before it are missing in what it saw.
    fn begins_late(&self, at_ns: u64) -> bool {
        self.from > 0 || self.first_ns(at_ns) > self.start_ns
    }

    /// When it was on between two times, of which the second one is at most its stop.
    fn windows(&self, from_ns: u64, at_ns: u64) -> Vec<(u64, u64)> {
        let at_ns = self.until_ns(at_ns);
        let open = self.on_since_ns.map(|since| (since, at_ns));
        let ended = self.windows_ns.partition_point(|(_, stop)| *stop < from_ns);
        let windows = self.windows_ns[ended..].iter().copied().chain(open);
        let counts = windows.map(|(start, stop)| (start.max(from_ns), stop.min(at_ns)));
        counts.filter(|(start, stop)| start < stop).collect()
    }
}

#[cfg(test)]
mod tests {
    use cupti::fake::{Fake, Work};

    use super::*;
    use crate::join::streaming::StreamingJoin;

    fn session(fake: &Fake, keep: Retention) -> Session {
        following(fake, keep, None)
    }

    fn following(fake: &Fake, keep: Retention, sink: Option<Arc<Mutex<dyn Sink>>>) -> Session {
        let (library, config) = (fake.library().unwrap(), Config::new());
        let wish = SessionRequest {
            library: &library,
            config: &config,
            keep,
            sink,
            samplings: &[],
            period: Duration::from_secs(3600),
            then: None,
        };
        Session::start(&wish).unwrap()
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

    /// Empty and complete, where the window ended when the lock was free.
    #[test]
    fn window_ends_where_stop_was_called_though_the_lock_is_held() {
        const KEPT: Duration = Duration::from_millis(50);
        let fake = Fake::new();
        let other = session(&fake, Retention::All);
        let session = session(&fake, Retention::LastTime(KEPT));
        fake.launch(Work::kernel(c"kept"));
        session.flush().unwrap();
        let called_ns = now_ns();
        let recording = std::thread::scope(|scope| {
            let mut locked = COLLECTION.lock();
            let stop = scope.spawn(|| session.stop(called_ns));
            while session.stop_call.at_ns().is_none() {
                std::thread::yield_now();
            }
            // As the thread of another session does, for longer than what is kept.
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
        assert_eq!((recording.records.iter().count(), recording.calls.len()), (1, 1));
        // The one that is stopped after it has its own window.
        fake.launch(Work::kernel(c"later"));
        let called_ns = now_ns();
        let later = other.stop(called_ns).unwrap();
        assert_eq!((later.records.iter().count(), later.window_ns.1), (2, called_ns));
    }

    #[test]
    fn refused_flush_ends_the_collection_all_the_same() {
        use cupti::fake::When;
        use cupti::sys::abi::CuptiResult;
        for when in [When::Once, When::Always] {
            let fake = Fake::new();
            // One with a thread that drains: its stop flushes before the collector's does.
            let keep = Retention::LastTime(Duration::from_secs(60));
            let first = session(&fake, keep);
            fake.launch(Work::kernel(c"kernel"));
            fake.fail("cuptiActivityFlushAll", CuptiResult::UNKNOWN, when);
            let stopped = first.stop(now_ns());
            assert!(COLLECTION.lock().is_none() && !fake.is_subscribed());
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
    fn followed_call_counts_though_it_is_drained_after_the_time_kept() {
        const KEPT: Duration = Duration::from_millis(1);
        let fake = Fake::new();
        let streaming = Arc::new(Mutex::new(StreamingJoin::new(0, 100)));
        let session = following(&fake, Retention::LastTime(KEPT), Some(streaming.clone()));
        fake.launch(Work::kernel(c"kernel"));
        let launched_ns = now_ns();
        while now_ns() < launched_ns + 2 * KEPT.as_nanos() as u64 {
            std::thread::yield_now();
        }
        let recording = session.stop(now_ns()).unwrap();
        let mut streaming = streaming.lock();
        streaming.end(Some(&recording));
        assert_eq!(
            (streaming.health.kernels.matched_calls, streaming.health.calls_outside),
            (1, 0)
        );
        assert!(recording.windows_ns.iter().all(|(start, _)| *start > launched_ns));
    }

    #[test]
    fn windows_do_not_grow_with_pauses() {
        let fake = Fake::new();
        let streaming = Arc::new(Mutex::new(StreamingJoin::new(0, 100)));
        let session = following(&fake, Retention::Nothing, Some(streaming.clone()));
        for _ in 0..40 * WINDOWS {
            fake.launch(Work::kernel(c"counts"));
            session.pause().unwrap();
            fake.launch(Work::kernel(c"does not"));
            session.resume().unwrap();
            session.with(Collection::take).unwrap();
        }
        let windows = |running: &mut Collection| {
            let of_views: usize = running.views.iter().map(|view| view.windows_ns.len()).sum();
            Ok((running.windows_ns.len(), of_views))
        };
        let (of_collection, of_view) = session.with(windows).unwrap();
        assert!(
            of_collection <= 2 * WINDOWS && of_view <= 2 * WINDOWS,
            "{of_collection}, {of_view}"
        );
        let recording = session.stop(now_ns()).unwrap();
        assert!(recording.windows_ns.len() <= 2 * WINDOWS, "{}", recording.windows_ns.len());
        let mut streaming = streaming.lock();
        streaming.end(Some(&recording));
        assert_eq!(streaming.health.kernels.records, 40 * WINDOWS as u64);
        assert!(streaming.health.is_complete(), "{}", streaming.health);
    }

    #[test]
    fn panic_in_the_draining_thread_is_counted_and_draining_goes_on() {
        let fake = Fake::new();
        let (library, config) = (fake.library().unwrap(), Config::new());
        let calls = Arc::new(AtomicU64::new(0));
        let of_thread = calls.clone();
        let then: Then = Arc::new(move || {
            if of_thread.fetch_add(1, Ordering::Relaxed) == 0 {
                panic!("planted");
            }
        });
        let wish = SessionRequest {
            library: &library,
            config: &config,
            keep: Retention::LastTime(Duration::from_secs(60)),
            sink: None,
            samplings: &[],
            period: Duration::from_millis(1),
            then: Some(then),
        };
        let session = Session::start(&wish).unwrap();
        while calls.load(Ordering::Relaxed) < 3 {
            std::thread::yield_now();
        }
        let mut health = crate::join::health::Health::default();
        health.add_losses(&session.stop(now_ns()).unwrap().losses);
        assert_eq!(health.failed_threads, 1);
        assert!(health.to_string().contains("INCOMPLETE"), "{health}");
    }

    #[test]
    fn what_waits_for_its_record_is_known_and_what_has_it_is_not() {
        let fake = Fake::new();
        let streaming = Arc::new(Mutex::new(StreamingJoin::new(0, 100)));
        let session = following(&fake, Retention::Nothing, Some(streaming.clone()));
        let waits_since_ns = || {
            // It is looked ten times a second.
            std::thread::sleep(Duration::from_millis(110));
            session.with(Collection::take).unwrap();
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
            // More may come for as long as a range waits for it.
            let _range = nvtx::range("range");
            fake.launch_graph(&[Work::kernel(c"node")]);
        }
        assert!(waits_since_ns().is_some());
        session.stop(now_ns()).unwrap();
    }

    #[test]
    fn record_that_comes_long_before_its_call_counts_though_later_calls_came() {
        let fake = Fake::new();
        let streaming = Arc::new(Mutex::new(StreamingJoin::new(0, 100)));
        let session = following(&fake, Retention::Nothing, Some(streaming.clone()));
        let take = || session.with(Collection::take).unwrap();
        fake.next_correlation_id(7);
        fake.unseen(&Work::kernel(c"early"));
        fake.launch(Work::kernel(c"later"));
        session.flush().unwrap();
        take();
        assert_eq!(streaming.lock().health.kernels.records, 1);
        fake.next_correlation_id(7);
        fake.call_only("cuLaunchKernel", 0);
        take();
        let recording = session.stop(now_ns()).unwrap();
        let mut streaming = streaming.lock();
        streaming.end(Some(&recording));
        let kernels = streaming.health.kernels;
        assert_eq!(
            (kernels.records, kernels.matched_calls, streaming.health.records_before),
            (2, 2, 0)
        );
    }

    #[test]
    fn where_nothing_comes_nothing_piles_up() {
        let fake = Fake::new();
        let session = session(&fake, Retention::LastOperations(5));
        let parts = || {
            let take = |running: &mut Collection| running.take().map(|()| running.parts.len());
            session.with(take).unwrap()
        };
        assert_eq!([parts(), parts(), parts()], [1, 1, 1]);
        fake.launch(Work::kernel(c"kernel"));
        assert_eq!([parts(), parts(), parts()], [2, 3, 3]);
        let until_ns = session.with(|running| Ok(running.parts[2].until_ns)).unwrap();
        assert!(until_ns > session.with(|running| Ok(running.parts[1].until_ns)).unwrap());
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
        // Of what is open the end stands in the log that is full: what comes meanwhile is counted.
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
        // Every launch was in a range, and finds it.
        let finds_range = |word: u64| {
            let Some((number, slot)) = ranges::RangeWord(word).place() else { return false };
            let mut logs = recording.ranges.iter().filter(|log| log.number == number);
            logs.any(|log| log.slots.row(slot).is_some())
        };
        let mut calls = recording.calls.iter().flat_map(|thread| &thread.calls);
        assert!(calls.all(|call| finds_range(call.word)));
    }

    #[test]
    fn a_summary_counts_the_ranges_that_could_not_be_recorded() {
        let fake = Fake::new();
        let streaming = Arc::new(Mutex::new(StreamingJoin::new(0, 100)));
        let session = following(&fake, Retention::Nothing, Some(streaming.clone()));
        let outer = nvtx::range("outer");
        (0..ranges::SLOTS + 5).for_each(|_| drop(nvtx::range("range")));
        drop(outer);
        let recording = session.stop(now_ns()).unwrap();
        let mut streaming = streaming.lock();
        streaming.end(Some(&recording));
        assert!(recording.losses.ranges > 5);
        assert_eq!(streaming.health.lost_ranges, recording.losses.ranges);
        assert!(!streaming.health.is_complete());
    }
}
