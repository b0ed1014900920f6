//! Start, pause, flush, stop: the only module that drives CUPTI.

mod collected;
mod enable;
mod lease;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::accessors::getters;
use crate::attribute::AttributeSetting;
use crate::buffer::{LOG, Log, LogCounts, POOL, Sizes};
use crate::call_log::{self, Part};
use crate::clock::{self, Clock, Reading};
use crate::collection_state;
use crate::config::Config;
use crate::error::{Error, Kind};
use crate::flusher::Flusher;
use crate::kind::ActivityKind;
use crate::launch_hold::Hold;
use crate::library::Library;
use crate::pc_sampling::PcSamples;
use crate::pc_sampling::session::Session;
use crate::profiler_switch;
use crate::sys::abi::CuptiResult;
use crate::sys::api::Api;
use crate::sys::safe::{self, CallbackId, Subscription};
use crate::waits;
pub use collected::{Collected, Losses, UnfinishedCalls};
use enable::Undo;
pub(crate) use lease::CollectorLease;

/// A running collection of GPU records and calls.
///
/// [`stop`](Self::stop) returns what was collected; dropping the collector discards it. A program
/// may end while a collection runs: nothing waits for it, and its data is lost.
#[derive(Debug)]
pub struct Collector {
    library: Library,
    /// `None` until CUPTI is attached, and after the end.
    subscription: Option<Subscription>,
    /// True once all callbacks of this collection are enabled.
    callbacks_on: bool,
    /// True once CUPTI was attached.
    has_attached: bool,
    config: Config,
    lease: CollectorLease,
    start_ns: u64,
    /// The callbacks that the first start or resume enables.
    callbacks: Vec<CallbackId>,
    missing_kinds: Vec<ActivityKind>,
    /// CUPTI's refusal of the counters of managed memory.
    counters_refused: Option<CuptiResult>,
    attributes: Vec<AttributeSetting>,
    /// Settings to restore at the end, the last one first.
    undo: Vec<Undo>,
    /// The windows in which the collection was on before the last pause.
    windows: Vec<(u64, u64)>,
    on_since_ns: Option<u64>,
    /// The begin of the last start's or resume's enabling of kinds.
    turned_on_ns: u64,
    /// The times when kinds were enabled before the last pause.
    enabled: Vec<(u64, u64)>,
    unfinished: u64,
    /// Records that CUPTI dropped, as a sum: CUPTI resets its count with each reading.
    dropped: AtomicU64,
    /// Locked by a drain while it empties the logs and by a snapshot while it reads them: neither
    /// may see a record without its call. No callback takes this lock. No CUPTI function that calls
    /// back is called under it.
    cursor: RwLock<DrainCursor>,
    flusher: Flusher,
    /// The instruction samples, from the attachment on.
    sampling: Option<Arc<Session>>,
    ended: bool,
}

/// The state after the last drain: the losses reported until then, and its end.
#[derive(Debug)]
struct DrainCursor {
    losses: Losses,
    /// The end of the last drain.
    until_ns: u64,
    /// The last drain's reading, or the start's.
    clock: Reading,
}

/// The cut of a collection's logs: at its stop, at a snapshot or at a drain.
#[derive(Debug)]
struct Cut {
    at_ns: u64,
    clock: Clock,
    windows_ns: Vec<(u64, u64)>,
    pending_from_ns: Option<u64>,
}

/// Gives back CUPTI's subscriber slot, which this crate keeps after the first collection that logged
/// calls. Another profiler of this process can use CUPTI then.
///
/// Call it while no other thread is in a CUDA call: CUPTI 13.0.1 frees its subscriber although such
/// a call may still use it, and the program crashes.
///
/// # Errors
///
/// [`is_busy`](Error::is_busy) while a collection runs; or a process forked off after the start.
pub fn unsubscribe() -> Result<(), Error> {
    let _lease = CollectorLease::take()?;
    safe::unsubscribe();
    Ok(())
}

impl Collector {
    /// Subscribes to CUPTI and starts collecting as `config` selects, from all threads and contexts
    /// of this process. The defaults are kernels, copies, memsets, synchronisations, CUPTI's own
    /// overhead, and the driver calls that cause them.
    ///
    /// Costs milliseconds; the first start in a process, and contexts made before it, cost more.
    /// Earlier work is not recorded.
    ///
    /// With [`Config::start_paused`] the first [`resume`](Self::resume) makes the first call into
    /// CUPTI. It then has this cost and these errors. CUPTI's first call makes launches of CUDA
    /// graphs slower for the rest of the process, by 0.3 to 0.4 us a node with 13.0
    /// (docs/measurements/cost.md). A collection that logs or watches something in the pause calls
    /// CUPTI at its start.
    ///
    /// # Errors
    ///
    /// [`is_busy`](Error::is_busy) if another tool or another collector holds CUPTI;
    /// [`is_unsupported`](Error::is_unsupported) if the library does not have what was requested;
    /// otherwise CUPTI's own refusal. All settings are restored then.
    pub fn start(library: &Library, config: &Config) -> Result<Self, Error> {
        let lease = CollectorLease::take_from_injected()?;
        let api: &'static Api = leaked(&library.api);
        let mut collector = Self {
            flusher: Flusher::new(library.clone(), config.drain_timeout),
            library: library.clone(),
            subscription: None,
            callbacks_on: false,
            has_attached: false,
            config: config.clone(),
            lease,
            start_ns: 0,
            callbacks: Vec::new(),
            missing_kinds: Vec::new(),
            counters_refused: None,
            attributes: Vec::new(),
            undo: Vec::new(),
            windows: Vec::new(),
            on_since_ns: None,
            turned_on_ns: 0,
            enabled: Vec::new(),
            unfinished: 0,
            dropped: AtomicU64::new(0),
            cursor: RwLock::new(DrainCursor {
                losses: Losses::default(),
                until_ns: 0,
                clock: clock::read_realtime(),
            }),
            sampling: None,
            ended: false,
        };
        let sizes = Sizes {
            buffer_bytes: config.buffer_bytes,
            buffers: config.buffers,
            most: config.max_buffers,
        };
        POOL.prepare(api, sizes, library.version().takes_no_buffer());
        *LOG.lock() = Some(Log::new(config.memory_limit));
        call_log::clear();
        // On an error the collector is dropped, which restores everything.
        if !config.attaches_later() {
            collector.attach()?;
            collector.log_calls()?;
        } else if let Some(why) = library.unusable {
            return Err(library.refuse(why));
        }
        if !config.start_paused {
            collector.turn_on()?;
        }
        collector.start_ns = collector.on_since_ns.unwrap_or_else(clock::now_ns);
        collector.flusher.begin_at(collector.start_ns);
        Ok(collector)
    }

    getters! {
        /// When the collection started, in [`clock::now_ns`] time.
        start_ns: u64 = start_ns;
        /// The library this collection uses.
        library: &Library = library;
        /// The attributes that were set, with the values that CUPTI accepted.
        attributes: &[AttributeSetting] = attributes;
        /// Kinds that were requested only if available, and that the library lacks. Empty before
        /// the first start or resume.
        missing_kinds: &[ActivityKind] = missing_kinds;
    }

    /// Makes CUPTI deliver the records that are complete. Does not wait for the GPU.
    ///
    /// Any thread may flush. Launches, copies and fills that other threads begin meanwhile wait in
    /// their calls (docs/decisions/013). With CUPTI 13.0 a flush takes longer during a collection:
    /// 0.3 to 3 ms at first, 35 ms after 150 million launches by 4 threads on an H200. To wait with
    /// a limit, [request](Flusher::request) a flush and use
    /// [`drain_delivered`](Self::drain_delivered).
    ///
    /// The flush waits at most 20 ms for calls that are in progress. If a graph's launch does not
    /// return by then, it delivers nothing with CUPTI before 13.0, which could hang.
    ///
    /// # Errors
    ///
    /// CUPTI's refusal, or a process forked off after the start.
    pub fn flush(&self) -> Result<(), Error> {
        self.flusher.flush()
    }

    /// Disables records until [`resume`](Self::resume) and logs no calls; retains the collected
    /// data. Does nothing in a pause. Callbacks stay enabled, and return at once.
    ///
    /// Waits for the GPU as [`stop`](Self::stop) does: work that is unfinished when its kind is
    /// disabled may get its end only when the kind is enabled again. A call that another thread is
    /// in may be logged without its end. Calls that other threads begin during the wait are left
    /// out, like those in the pause. Launches of other threads wait as in a stop.
    ///
    /// # Errors
    ///
    /// CUPTI's refusal to flush, or a process forked off after the start. The collection is paused
    /// anyway.
    pub fn pause(&mut self) -> Result<(), Error> {
        self.check_process()?;
        let Some(since) = self.on_since_ns.take() else { return Ok(()) };
        let held = self.wait_idle();
        self.windows.push((since, self.waited_until(&held).max(since)));
        self.disable();
        self.enabled.push((self.turned_on_ns, clock::now_ns()));
        self.unfinished = self.unfinished.saturating_add(held?);
        Ok(())
    }

    /// Enables records again, by a call into CUPTI for each kind, and logs calls. The first resume
    /// of a collection that started paused also enables each callback. Does nothing outside a pause.
    ///
    /// # Errors
    /// CUPTI's refusal, after which the collection stays paused; or a process forked off after the
    /// start.
    pub fn resume(&mut self) -> Result<(), Error> {
        self.check_process()?;
        if self.on_since_ns.is_some() {
            return Ok(());
        }
        self.attach()?;
        let on = self.turn_on();
        if on.is_err() {
            self.disable();
            self.enabled.push((self.turned_on_ns, clock::now_ns()));
        }
        on
    }

    /// True once CUPTI was called. The cost of that for launches lasts until the process ends.
    pub fn is_attached(&self) -> bool {
        self.subscription.is_some()
    }

    /// Logs calls from now on, if this collection [does so in pauses](Config::calls_in_pauses) and
    /// is paused. Attaches CUPTI if it is not attached.
    ///
    /// # Errors
    ///
    /// As [`attach`](Self::attach).
    pub fn log_calls(&mut self) -> Result<(), Error> {
        self.attach()?;
        let logs = self.on_since_ns.is_none() && self.config.calls_in_pauses;
        if logs
            && self.config.start_paused
            && !collection_state::State::load().has(collection_state::ON)
        {
            return self.log_calls_and_events().inspect_err(|_| collection_state::pause());
        }
        Ok(())
    }

    /// True if calls are logged now.
    pub fn logs_calls(&self) -> bool {
        self.is_attached() && collection_state::State::load().has(collection_state::ON)
    }

    /// True if the collection is paused.
    pub fn is_paused(&self) -> bool {
        self.on_since_ns.is_none()
    }

    /// Ends the collection and returns the collected data that was not [drained](Self::drain).
    ///
    /// Waits until the GPU has finished the launched work, as [`wait_idle`](Self::wait_idle) does,
    /// and at most 1 s for a last flush. If other threads launch meanwhile,
    /// [`Collected::window_ns`] ends at the time up to which all records have arrived. Their
    /// launches wait during each flush, and while the kinds are disabled: until the GPU is idle, at
    /// most 100 ms. CUPTI's subscriber slot stays taken until [`unsubscribe`].
    ///
    /// # Errors
    ///
    /// CUPTI's refusal, or a process forked off after the start. The collection is over anyway.
    pub fn stop(self) -> Result<Collected, Error> {
        self.check_process()?;
        let held = if self.is_paused() { Ok(0) } else { self.wait_idle() };
        self.stop_with(held)
    }

    /// Ends the collection as [`stop`](Self::stop) does, without its wait: `unfinished` is the
    /// result of an earlier [`Flusher::wait_idle`].
    ///
    /// # Errors
    /// As [`stop`](Self::stop).
    pub fn stop_after_wait(self, unfinished: u64) -> Result<Collected, Error> {
        self.check_process()?;
        self.stop_with(Ok(unfinished))
    }

    fn stop_with(mut self, held: Result<u64, Error>) -> Result<Collected, Error> {
        let stop_ns = if self.is_paused() { clock::now_ns() } else { self.waited_until(&held) };
        let clock_at_stop = self.read_clock();
        let windows = self.windows_until(stop_ns);
        let marks = self.end();
        let read = call_log::take();
        let dropped = self.count_dropped();
        let log = LOG.lock().take().unwrap_or_default();

        self.unfinished = self.unfinished.saturating_add(held?);
        dropped?;
        let cursor = self.cursor.read();
        let cut = Cut {
            at_ns: stop_ns,
            clock: Clock { start: cursor.clock, stop: clock_at_stop? },
            windows_ns: self.bounded(windows, &marks),
            pending_from_ns: None,
        };
        let losses = self.losses(log.counts, &read).losses_since(&cursor.losses);
        let samples = self.sampling.as_ref().map(|session| session.take());
        Ok(self.collected(cut, read, log, losses, samples))
    }

    /// Returns the collected data that was not [drained](Self::drain). The collection continues and
    /// its stop is not affected.
    ///
    /// [Flushes](Self::flush), shares the records' bytes and copies the other logs. Time and memory
    /// grow with the number of calls: take few snapshots of a long collection that is not drained.
    /// Waits neither for the GPU nor for threads of the program, except one that makes its first
    /// call meanwhile. All logs are cut at one time, the end of [`Collected::window_ns`]. Later
    /// calls and events are left out; a call that had not returned by then has no end.
    ///
    /// Every record has its call, if such calls are logged and it was not drained. Calls after
    /// [`Collected::pending_from_ns`] may still lack their records.
    ///
    /// Any thread may take snapshots, several at once too.
    ///
    /// # Errors
    ///
    /// CUPTI's refusal, or a process forked off after the start.
    pub fn snapshot(&self) -> Result<Collected, Error> {
        self.flush()?;
        self.read_samples();
        self.count_dropped()?;
        // Before the records are read.
        let settled_ns = self.flusher.settled_ns();
        let cursor = self.cursor.read();
        let log = LOG.lock().as_ref().map(Log::snapshot).unwrap_or_default();
        // After the records: a call is logged before its records can exist.
        let at_ns = clock::now_ns();
        let clock = Clock { start: cursor.clock, stop: self.read_clock()? };
        let cut = self.cut(at_ns, clock, settled_ns);
        let read = call_log::read_until(at_ns, Part::Rest);
        let losses = self.losses(log.counts, &read).losses_since(&cursor.losses);
        let samples = self.sampling.as_ref().map(|session| session.snapshot());
        Ok(self.collected(cut, read, log, losses, samples))
    }

    /// Removes and returns the data collected so far; the collection continues. All drains and the
    /// stop together contain what a stop alone would have, with their [`losses`](Collected::losses)
    /// added up. A drained collection needs memory for the data since the last drain, and for the
    /// names of the program's kernels, each once. A drain contains the names of its own records.
    ///
    /// [Flushes](Self::flush). Waits neither for the GPU nor for threads of the program, except one
    /// that makes its first call meanwhile. A drain contains
    ///
    /// - every record that arrived since the previous drain;
    /// - every call that had returned by the end of [`Collected::window_ns`] and was in no earlier
    ///   drain, with its end. An unfinished call is in [`unfinished_calls`](Self::unfinished_calls)
    ///   until the drain after its return, or the stop. A call whose end fell into a
    ///   [`pause`](Self::pause) stays there until its thread calls again after a later pause, or
    ///   ends. It is returned without an end then;
    /// - every graph event since the previous drain.
    ///
    /// A record and its call may be in different drains. A call is logged before its records exist.
    /// So the call of a record (if such calls are logged) is in the same drain, in an earlier one,
    /// or unfinished at the end of `window_ns`; then it is in the first drain after its return. The
    /// records of a call are in or before the first drain whose [`Collected::pending_from_ns`] is
    /// later than the call's end.
    ///
    /// Any thread may drain; several drains at once share the data. Costs a [`flush`](Self::flush),
    /// and time in proportion to the data since the last drain. On an error nothing is removed.
    ///
    /// # Errors
    ///
    /// CUPTI's refusal, or a process forked off after the start.
    pub fn drain(&self) -> Result<Collected, Error> {
        self.flush()?;
        self.read_samples();
        self.drain_delivered()
    }

    /// Reads the instruction samples that CUPTI has decoded.
    fn read_samples(&self) {
        if let Some(session) = &self.sampling {
            session.read();
        }
    }

    /// Drains as [`drain`](Self::drain) does, without a [`flush`](Self::flush): only the records
    /// that CUPTI has delivered, after a flush or because a buffer was full. The others are in a
    /// later drain or in the stop.
    ///
    /// # Errors
    ///
    /// CUPTI's refusal, or a process forked off after the start.
    pub fn drain_delivered(&self) -> Result<Collected, Error> {
        self.check_process()?;
        self.count_dropped()?;
        // Before the records are removed.
        let settled_ns = self.flusher.settled_ns();
        let mut cursor = self.cursor.write();
        let reading = self.read_clock()?;
        // From here on nothing fails: removed data is returned.
        let log = LOG.lock().as_mut().map(Log::drain).unwrap_or_default();
        // After the records, as in a snapshot.
        let at_ns = clock::now_ns();
        let clock = Clock { start: cursor.clock, stop: reading };
        let cut = self.cut(at_ns, clock, settled_ns);
        let read = call_log::read_until(at_ns, Part::Finished);
        let losses = self.losses(log.counts, &read);
        let since = losses.losses_since(&cursor.losses);
        (cursor.losses, cursor.clock, cursor.until_ns) = (losses, reading, at_ns);
        let samples = self.sampling.as_ref().map(|session| session.take());
        drop(cursor);
        Ok(self.collected(cut, read, log, since, samples))
    }

    /// Returns the handle with which any thread flushes this collection.
    pub fn flusher(&self) -> Flusher {
        self.flusher.clone()
    }

    /// Returns the calls that were unfinished at a past time; none has an end. For the end of a
    /// drain's [`Collected::window_ns`] these are the calls that the drain left, if no other drain
    /// followed.
    ///
    /// Any thread may call this. The cost grows with the number of calls that were not drained.
    pub fn unfinished_calls(&self, at_ns: u64) -> UnfinishedCalls {
        // A forked child may have locked logs.
        if self.check_process().is_err() {
            return UnfinishedCalls::default();
        }
        let cursor = self.cursor.read();
        // A call that a drain left was unfinished at the drain's end, even if its end was logged a
        // moment later.
        let part = if at_ns <= cursor.until_ns { Part::Left } else { Part::UnderWay };
        let read = call_log::read_until(at_ns, part);
        let seen_from_ns = if self.logs_calls() { call_log::segment_from_ns() } else { u64::MAX };
        UnfinishedCalls { calls: read.calls, runtime_calls: read.runtime_calls, seen_from_ns }
    }

    /// Returns the bytes of memory that hold undrained data: records, and the logs of calls and
    /// graph events, in chunks of 160 and 224 KiB per thread. Names and CUPTI's own buffers are not
    /// included.
    ///
    /// Any thread may call this. Costs some nanoseconds for each thread with logged calls.
    pub fn held_bytes(&self) -> u64 {
        // A forked child may have locked logs.
        if self.check_process().is_err() {
            return 0;
        }
        let samples = self.sampling.as_ref().map_or(0, |session| session.held_bytes());
        LOG.lock().as_ref().map_or(0, |log| log.held) + call_log::held_bytes() + samples
    }

    fn cut(&self, at_ns: u64, clock: Clock, pending_from_ns: u64) -> Cut {
        Cut {
            at_ns,
            clock,
            windows_ns: self.bounded(self.windows_until(at_ns), &profiler_switch::marks()),
            pending_from_ns: Some(pending_from_ns),
        }
    }

    /// Returns the windows in which the collection was on up to a time.
    fn windows_until(&self, at_ns: u64) -> Vec<(u64, u64)> {
        let open = self.on_since_ns.map(|since| (since, at_ns));
        self.windows.iter().copied().chain(open).collect()
    }

    /// Drops the windows that ended before a time: [`Collected::windows_ns`] of later drains and of
    /// the stop lacks them. Bounds the list of a collection that is drained and pauses often.
    /// Retain the windows in which an [unfinished call](Self::unfinished_calls) began.
    pub fn forget_windows(&mut self, before_ns: u64) {
        self.windows.retain(|(_, stop)| *stop >= before_ns);
        self.enabled.retain(|(_, stop)| *stop >= before_ns);
        if self.config.profiler_switch {
            profiler_switch::forget_marks(before_ns);
        }
    }

    /// Returns the times up to `at_ns` when kinds of records were enabled, even in part: a call
    /// outside these times has no records. Each lasts longer than its window of
    /// [`Collected::windows_ns`]. [`forget_windows`](Self::forget_windows) drops old ones.
    pub fn enabled_ns(&self, at_ns: u64) -> Vec<(u64, u64)> {
        let open = self.on_since_ns.map(|_| (self.turned_on_ns, at_ns.max(self.turned_on_ns)));
        self.enabled.iter().copied().chain(open).collect()
    }

    /// Returns the parts of the windows in which the program's switch was on.
    fn bounded(&self, windows: Vec<(u64, u64)>, marks: &[(u64, bool)]) -> Vec<(u64, u64)> {
        if self.config.profiler_switch {
            profiler_switch::while_switched_on(&windows, marks)
        } else {
            windows
        }
    }

    /// Compares the clocks; before CUPTI is attached, with the clock that CUPTI reads.
    fn read_clock(&self) -> Result<Reading, Error> {
        match self.subscription {
            Some(_) => clock::read(&self.library),
            None => Ok(clock::read_realtime()),
        }
    }

    /// Adds the records that CUPTI dropped since the last reading.
    fn count_dropped(&self) -> Result<(), Error> {
        if !self.has_attached {
            return Ok(());
        }
        self.dropped.fetch_add(self.library.api.dropped()?, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the losses and irregularities since the start.
    fn losses(&self, log: LogCounts, read: &call_log::Read) -> Losses {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Losses {
            dropped_by_cupti: count(&self.dropped),
            over_memory_limit: log.over_limit,
            irregular: log.irregular,
            unreadable_bytes: log.unreadable_bytes,
            panics: read.panics,
            unfinished_buffers: self.unfinished,
            buffers: count(&POOL.requested),
            pool_misses: count(&POOL.misses),
            refused_buffers: count(&POOL.refused),
            refused_records: log.refused,
            before_switch: log.before_switch,
            unlogged_calls: read.unlogged,
            mismatched_buffers: log.mismatched_buffers,
        }
    }

    fn collected(
        &self,
        cut: Cut,
        read: call_log::Read,
        mut log: Log,
        losses: Losses,
        pc_sampling: Option<PcSamples>,
    ) -> Collected {
        let enabled_ns = self.enabled_ns(cut.at_ns);
        waits::write(&read.waits, &enabled_ns, &cut.clock, self.library.version(), &mut log);
        Collected {
            version: self.library.version(),
            window_ns: (self.start_ns, cut.at_ns),
            windows_ns: cut.windows_ns,
            pending_from_ns: cut.pending_from_ns,
            clock: cut.clock,
            losses,
            pc_sampling,
            records: log.into_records(self.library.version()),
            calls: read.calls,
            runtime_calls: read.runtime_calls,
            graphs: read.graphs,
            attributes: self.attributes.clone(),
            missing_kinds: self.missing_kinds.clone(),
        }
    }

    /// Waits for the GPU as [`Flusher::wait_idle`] does.
    ///
    /// # Errors
    /// As [`Flusher::wait_idle`].
    pub fn wait_idle(&self) -> Result<u64, Error> {
        self.flusher.wait_idle()
    }

    /// Returns the time up to which all records have arrived; earlier than now if other threads
    /// continued.
    fn waited_until(&self, held: &Result<u64, Error>) -> u64 {
        match held {
            Ok(0) => self.flusher.settled_ns(),
            _ => clock::now_ns(),
        }
    }

    /// Disables the kinds while no work is under way and pauses the collection, unless calls are
    /// logged in pauses.
    fn disable(&self) {
        if let Some(session) = &self.sampling {
            session.pause();
        }
        let hold = Hold::begin();
        let has_settled = |ns| ns < self.flusher.settled_ns();
        let flush = |left| self.flusher.request().and_then(|flush| flush.wait(left)).is_ok();
        hold.wait_for_records(self.config.launch_hold, has_settled, flush);
        self.turn_off();
        if !self.config.calls_in_pauses {
            collection_state::pause();
        }
    }

    /// Disables everything, restores the settings and returns the switch's marks. Ignores errors:
    /// no caller could act on them.
    fn end(&mut self) -> Vec<(u64, bool)> {
        self.ended = true;
        if self.subscription.is_some() {
            self.disable();
        }
        self.flusher.end();
        POOL.keep(self.config.buffers);
        self.detach()
    }

    fn check_process(&self) -> Result<(), Error> {
        if self.lease.is_of_this_process() { Ok(()) } else { Err(Error::new(Kind::Forked)) }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // In a forked child CUPTI would hang.
        if !self.ended && self.check_process().is_ok() {
            self.end();
            let _ = call_log::take();
            *LOG.lock() = None;
        }
    }
}

/// Returns the leaked copy of a function table, for callbacks that get no context.
fn leaked(api: &Api) -> &'static Api {
    use parking_lot::Mutex;
    static TABLES: Mutex<Vec<&'static Api>> = Mutex::new(Vec::new());
    // The functions that callbacks use. The fake's versions differ only in the last one.
    let key = |api: &Api| {
        (api.get_next_record as usize, api.get_graph_exec_id.map(|function| function as usize))
    };
    let mut tables = TABLES.lock();
    let known = tables.iter().find(|table| key(table) == key(api));
    match known {
        Some(table) => table,
        None => {
            let table: &'static Api = Box::leak(Box::new(*api));
            tables.push(table);
            table
        }
    }
}
