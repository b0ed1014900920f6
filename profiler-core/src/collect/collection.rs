//! The process's only collection, and the sessions that view it.
//!
//! CUPTI supports one collector per process. The first session starts it and the last one ends it;
//! each sees the work submitted between its own start and stop. A single session that retains
//! everything leaves the logs in place until its stop. Otherwise the logs are taken segment by
//! segment, and a segment is released when no session needs it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cupti::clock::{intersection, now_ns};
use cupti::{Collector, Config, Flusher, Library, PendingFlush};
use parking_lot::Mutex;
use profiler_base::background::Background;

use crate::collect::flush_pace::FlushDemand;
use crate::error::{Error, Kind};
use crate::record::id_window::is_up_to;
use crate::record::recording::append::{SessionStart, Taken};
use crate::record::recording::ranges::{self, RECORDER, ThreadSegment};
use crate::record::recording::segment::{CarriedOver, PartialRecording, Segment, Settings, Tail};
use crate::record::recording::{Recording, RecordingInfo, segment};

use crate::collect::request::{Retention, SessionRequest};
use crate::collect::view::{Signals, View};

/// The maximum time that a snapshot waits for CUPTI, which may not respond under load.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Upper bound of calls, ranges and marks per operation for a session that retains the last
/// operations, if this exceeds [`ENTRIES`].
const ENTRIES_AN_OPERATION: u64 = 16;
/// About 50 MB.
const ENTRIES: u64 = 1 << 20;
/// The interval over which the rate of arriving records is measured.
const RATE_NS: u64 = 100_000_000;
/// Extra time that a session with `LastTime` retains: a stop may be preempted between reading the
/// clock and setting its [`Signals`].
const STOP_SEEN_NS: u64 = 100_000_000;
/// The time after the first call in which a call with an earlier id may still be logged.
const FIRST_CALLS_NS: u64 = 1_000_000_000;
/// The number of windows from which unneeded ones are removed.
pub(super) const WINDOWS: usize = 64;

pub(super) static COLLECTION: Mutex<Option<Collection>> = Mutex::new(None);

/// True while CUPTI collects: a window that begins then needs no lock. Set after CUPTI was turned
/// on. Cleared before it is turned off, and before the bounds of windows are read for turning it
/// off. A thread that begins a window therefore finds it cleared, or its window prevents CUPTI from
/// being turned off.
pub(super) static COLLECTS: AtomicBool = AtomicBool::new(false);

/// The running collection. Fields are dropped in this order.
#[derive(Debug)]
pub(super) struct Collection {
    pub(super) background: Background,
    pub(super) collector: Collector,
    observing: Observing,
    library: Library,
    config: Config,
    pub(super) info: RecordingInfo,
    pub(super) views: Vec<View>,
    /// Segments that a session needs.
    pub(super) segments: VecDeque<Segment>,
    /// The number of the first segment.
    first: u64,
    /// The windows of the collection up to the last segment, which ended at `taken_until_ns`.
    pub(super) windows_ns: Vec<(u64, u64)>,
    /// The number of windows at which unneeded ones are next removed.
    most_windows: usize,
    taken_until_ns: u64,
    /// Open ranges carried over from segments before this number.
    carried_over: (u64, CarriedOver),
    /// All records of calls that returned before this time have arrived.
    pub(super) settled_ns: u64,
    /// Bytes of records in the last [`RATE_NS`], the bytes since then, and the start of that
    /// interval.
    came: u64,
    coming: (u64, u64),
    /// The latest correlation id so far.
    last_id: u32,
    /// The earliest id of a call, and the time at which the first call was seen.
    first_call: Option<(u32, u64)>,
    first_is_final: bool,
    next_id: u64,
}

/// Records the ranges of this collection until dropped.
#[derive(Debug)]
struct Observing {
    switch: nvtx::observer::Switch,
    first_log: u64,
}

fn install_observer() -> Result<nvtx::observer::Switch, Error> {
    let installed = nvtx::observer::install(&RECORDER);
    installed.map_err(|error| Error::new(Kind::Observer(error.to_string())))
}

impl Observing {
    fn begin() -> Result<Self, Error> {
        let switch = install_observer()?;
        let first_log = ranges::begin();
        switch.on();
        Ok(Self { switch, first_log })
    }

    /// Ends the recording of ranges and returns the remaining segments.
    fn end(self) -> Vec<ThreadSegment> {
        COLLECTS.store(false, Ordering::SeqCst);
        self.switch.off();
        ranges::end()
    }
}

impl Drop for Observing {
    fn drop(&mut self) {
        COLLECTS.store(false, Ordering::SeqCst);
        self.switch.off();
        let _ = ranges::end();
    }
}

/// Counts ranges instead of recording them; no session can start until it is dropped.
#[derive(Debug)]
pub(crate) struct Counting {
    switch: nvtx::observer::Switch,
}

/// True while ranges are counted. Accessed with the collection locked.
pub(super) static COUNTING: AtomicBool = AtomicBool::new(false);

impl Counting {
    pub(crate) fn begin() -> Result<Self, Error> {
        let collection = COLLECTION.lock();
        if collection.is_some() || COUNTING.load(Ordering::Relaxed) {
            return Err(Error::new(Kind::Excluded));
        }
        let switch = install_observer()?;
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

impl Collection {
    pub(super) fn start(request: &SessionRequest<'_>) -> Result<Self, Error> {
        let info = RecordingInfo::now(request.library);
        // Ranges first: calls in ranges that begin in between would be outside all ranges.
        let observing = Observing::begin()?;
        let collector = Collector::start(request.library, request.config)?;
        Ok(Self {
            background: Background::default(),
            collector,
            observing,
            library: request.library.clone(),
            config: request.config.clone(),
            info,
            views: Vec::new(),
            segments: VecDeque::new(),
            first: 0,
            windows_ns: Vec::new(),
            most_windows: WINDOWS,
            taken_until_ns: 0,
            carried_over: (0, CarriedOver::default()),
            settled_ns: 0,
            came: 0,
            coming: (0, now_ns()),
            last_id: 0,
            first_call: None,
            first_is_final: false,
            next_id: 0,
        })
    }

    /// Checks that the collection covers the request, and starts a new segment.
    pub(super) fn join(&mut self, request: &SessionRequest<'_>) -> Result<(), Error> {
        if !self.library.is_same(request.library) {
            return Err(Error::new(Kind::Differs("it uses another CUPTI".to_owned())));
        }
        let missing = self.collector.missing_kinds();
        self.config
            .covers(request.config, missing)
            .map_err(|what| Error::new(Kind::Differs(what)))?;
        if request.config.logs_calls_in_pauses() && !request.config.attaches_later() {
            self.collector.log_calls()?;
        }
        self.take()
    }

    pub(super) fn add_view(
        &mut self,
        request: &SessionRequest<'_>,
        signals: &Arc<Signals>,
    ) -> Result<u64, Error> {
        let id = self.next_id;
        self.next_id += 1;
        let from = self.first + self.segments.len() as u64;
        let carried_over =
            if from == 0 { CarriedOver::default() } else { self.carried_over_until(from) };
        let began_ns = now_ns();
        let is_first = self.views.is_empty();
        let start_ns = if is_first { self.collector.start_ns() } else { began_ns };
        self.views.push(View {
            id,
            keep: request.keep,
            from,
            start_ns,
            windows_ns: Vec::new(),
            on_since_ns: None,
            signals: signals.clone(),
            left_ns: None,
            earliest_end_ns: start_ns,
            before_id: self.last_id,
            carried_over,
            panics_before: self.observing.switch.panics(),
            sink: request.sink.clone(),
        });
        if let (Some(sink), Some(view)) = (&request.sink, self.views.last_mut()) {
            sink.lock().begin(&SessionStart {
                info: &self.info,
                first_log: self.observing.first_log,
                before_id: view.before_id,
                start_ns,
                begins_late: view.begins_late(start_ns),
                carried_over: &view.carried_over,
            });
            if view.keep == Retention::Nothing {
                view.carried_over = CarriedOver::default();
            }
        }
        if !request.config.starts_paused() {
            let resumed = self.resume(id);
            if resumed.is_err() {
                self.views.retain(|view| view.id != id);
                resumed?;
            }
            let view = self.view(id)?;
            if is_first {
                // Work submitted during the start is included.
                view.on_since_ns = Some(view.start_ns);
            }
        }
        Ok(id)
    }

    pub(super) fn carried_over_until(&mut self, until: u64) -> CarriedOver {
        let (from, carried_over) = &mut self.carried_over;
        for (number, segment) in (self.first..).zip(&self.segments) {
            if number >= *from && number < until {
                carried_over.add(segment);
            }
        }
        *from = until;
        carried_over.clone()
    }

    pub(super) fn view(&mut self, id: u64) -> Result<&mut View, Error> {
        let view = self.views.iter_mut().find(|view| view.id == id);
        view.ok_or_else(|| Error::new(Kind::NotRunning))
    }

    /// Pauses a session. If it was the last running one, returns a waiter for the work submitted so
    /// far; the collection is paused after the wait.
    pub(super) fn turn_off(&mut self, id: u64) -> Result<Option<Waiter>, Error> {
        let view = self.view(id)?;
        view.see_signals();
        let was_on = view.is_on();
        view.turn_off(now_ns());
        // After windows that ended by signals, the collection is still on.
        let is_done = !was_on && self.collector.is_paused();
        Ok((!is_done && !self.is_on()).then(|| self.waiter()))
    }

    /// True if a session is in a window.
    pub(super) fn is_on(&mut self) -> bool {
        self.views.iter_mut().for_each(View::see_signals);
        self.views.iter().any(View::is_on)
    }

    /// Pauses the collection unless a session is running.
    pub(super) fn pause(&mut self) -> Result<(), Error> {
        COLLECTS.store(false, Ordering::SeqCst);
        if self.is_on() {
            COLLECTS.store(!self.collector.is_paused(), Ordering::SeqCst);
            return Ok(());
        }
        Ok(self.collector.pause()?)
    }

    /// Marks the session's end. The returned waiter is used without the collection's lock.
    pub(super) fn leave(&mut self, id: u64) -> Result<Waiter, Error> {
        self.view(id)?.see_signals();
        Ok(self.waiter())
    }

    /// True if calls that the session saw before its stop have not returned.
    pub(super) fn has_calls_under_way(&mut self, id: u64) -> Result<bool, Error> {
        let left_ns = self.view(id)?.left_ns.unwrap_or(u64::MAX);
        let open = self.collector.unfinished_calls(now_ns());
        Ok(open.surely_under_way().any(|call| call.start_ns < left_ns))
    }

    pub(super) fn waiter(&self) -> Waiter {
        Waiter { flusher: self.collector.flusher(), is_on: !self.collector.is_paused() }
    }

    pub(super) fn resume(&mut self, id: u64) -> Result<(), Error> {
        let since = now_ns();
        self.view(id)?.see_signals();
        if self.collector.is_paused() {
            let resumed = self.collector.resume();
            if resumed.is_err() {
                self.view(id)?.on_since_ns = None;
                resumed?;
            }
        }
        COLLECTS.store(true, Ordering::SeqCst);
        self.view(id)?.on_since_ns.get_or_insert(since);
        Ok(())
    }

    pub(super) fn restart(&mut self, id: u64) -> Result<(), Error> {
        let from = self.first + self.segments.len() as u64;
        let carried_over = self.carried_over_until(from);
        let (last_id, panics) = (self.last_id, self.observing.switch.panics());
        let view = self.view(id)?;
        let began_ns = now_ns();
        view.on_since_ns = view.on_since_ns.map(|_| began_ns);
        view.windows_ns.clear();
        (view.from, view.start_ns, view.carried_over) = (from, began_ns, carried_over);
        (view.before_id, view.panics_before) = (last_id, panics);
        self.release();
        Ok(())
    }

    /// False if another session's thread has just taken a segment.
    pub(super) fn is_due(&self, period: Duration) -> bool {
        let last_ns = self.taken_until_ns;
        let since_ns = now_ns().saturating_sub(last_ns);
        since_ns >= u64::try_from(period.as_nanos()).unwrap_or(u64::MAX) / 2
    }

    /// Requests a flush if one is due.
    pub(super) fn flush_if_due(&mut self) -> Option<PendingFlush> {
        let sinks = self.views.iter().filter_map(|view| view.sink.as_ref());
        let waits_since_ns = sinks.filter_map(|sink| sink.lock().waits_since_ns()).min();
        let need = FlushDemand { came: self.came, waits_since_ns };
        self.collector.flusher().request_if(|last| need.is_due(now_ns(), last))
    }

    /// Takes a segment: the records that CUPTI has delivered, and the finished calls and ranges.
    pub(super) fn take(&mut self) -> Result<(), Error> {
        let (mut segment, windows_ns) = Segment::take(&self.collector)?;
        segment.losses.failed_threads = self.background.take_failures();
        self.count_bytes(&segment);
        self.windows_ns = windows_ns;
        let from_ns = self.taken_until_ns;
        (self.taken_until_ns, self.settled_ns) = (segment.until_ns, segment.settled_ns);
        self.last_id = later_id(self.last_id, segment.last_id);
        segment.last_id = self.last_id;
        self.find_first(&segment);
        self.views.iter_mut().for_each(View::see_signals);
        self.give_to_sinks(&segment, from_ns);
        match self.segments.back_mut().filter(|last| last.is_empty() && segment.is_empty()) {
            Some(last) => last.extend(&segment),
            None => self.segments.push_back(segment),
        }
        if self.views.iter().any(|view| matches!(view.keep, Retention::LastOperations(_))) {
            self.count_operations();
        }
        self.release();
        self.forget_windows();
        Ok(())
    }

    /// Passes a segment to the sinks of the sessions. The segment before it ended at `from_ns`.
    fn give_to_sinks(&mut self, segment: &Segment, from_ns: u64) {
        self.info.add_devices(&self.library);
        if self.views.iter().all(|view| view.sink.is_none()) {
            return;
        }
        let until_ns = segment.until_ns;
        let open = ranges::unfinished(until_ns);
        let open_calls = self.collector.unfinished_calls(until_ns);
        let enabled_ns = self.config.logs_calls_in_pauses();
        let enabled_ns = enabled_ns.then(|| self.collector.enabled_ns(until_ns));
        for view in &mut self.views {
            let Some(sink) = &view.sink else { continue };
            view.earliest_end_ns = view.until_ns(until_ns).max(view.earliest_end_ns);
            let panics = self.observing.switch.panics();
            // All calls of the segment are included, whatever the session retains.
            let mut call_windows_ns = view.windows(segment.first_call_ns(), until_ns);
            if enabled_ns.is_some() {
                // Calls may be logged before CUPTI is on.
                call_windows_ns = intersection(&self.windows_ns, &call_windows_ns);
            }
            sink.lock().add(&Taken {
                info: &self.info,
                segment,
                open: &open,
                open_calls: &open_calls,
                call_windows_ns: &call_windows_ns,
                windows_ns: &intersection(&self.windows_ns, &view.windows(from_ns, until_ns)),
                enabled_ns: enabled_ns.as_deref(),
                attributes: self.collector.attributes(),
                missing_kinds: self.collector.missing_kinds(),
                observer_panics: panics.saturating_sub(view.panics_before),
            });
        }
    }

    /// Removes windows that no session needs. Windows of sessions that retain everything remain.
    pub(super) fn forget_windows(&mut self) {
        let count = |views: &[View]| views.iter().map(|view| view.windows_ns.len()).max();
        let windows = self.windows_ns.len().max(count(&self.views).unwrap_or(0));
        if windows < self.most_windows {
            return;
        }
        // A call in progress belongs to the window in which it began.
        let at_ns = self.taken_until_ns;
        let open = self.collector.unfinished_calls(at_ns);
        let starts = open.surely_under_way().map(|call| call.start_ns);
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

    /// Finds the id of the first call: records with earlier ids belong to calls before the
    /// collection. Threads may log calls out of id order, so the search lasts [`FIRST_CALLS_NS`].
    pub(super) fn find_first(&mut self, segment: &Segment) {
        let is_final =
            self.first_call.is_some_and(|(_, seen_ns)| segment.until_ns > seen_ns + FIRST_CALLS_NS);
        if is_final && self.first_is_final {
            return;
        }
        self.first_is_final = is_final;
        let open = self.collector.unfinished_calls(segment.until_ns).calls;
        let calls = segment.calls.iter().chain(&open).flat_map(|thread| &thread.calls);
        let known = self.first_call;
        let first = calls.map(|call| call.correlation_id).chain(known.map(|(id, _)| id));
        let Some(first) = first.reduce(segment::earlier_id) else { return };
        self.first_call = Some((first, known.map_or(segment.until_ns, |(_, seen_ns)| seen_ns)));
        let sinks = self.views.iter().filter_map(|view| view.sink.as_ref());
        sinks.for_each(|sink| sink.lock().begins_with(first, is_final));
    }

    pub(super) fn count_bytes(&mut self, segment: &Segment) {
        let (bytes, since_ns) = &mut self.coming;
        *bytes += segment.records.buffers().map(|bytes| bytes.len() as u64).sum::<u64>();
        let ns = segment.until_ns.saturating_sub(*since_ns);
        if ns >= RATE_NS {
            self.came = (u128::from(*bytes) * u128::from(RATE_NS) / u128::from(ns)) as u64;
            self.coming = (0, segment.until_ns);
        }
    }

    /// Counts arrived operations for the segments of their calls, which may be much older.
    pub(super) fn count_operations(&mut self) {
        let Some(last) = self.segments.pop_back() else { return };
        let mut own = 0;
        for id in last.operations() {
            // Ids of released segments map to the first segment.
            let place = self.segments.partition_point(|segment| !is_up_to(id, segment.last_id));
            match self.segments.get_mut(place) {
                Some(segment) => segment.operations += 1,
                None => own += 1,
            }
        }
        self.segments.push_back(last);
        if let Some(last) = self.segments.back_mut() {
            last.operations += own;
        }
    }

    /// Releases the segments that no session needs.
    pub(super) fn release(&mut self) {
        let end = self.first + self.segments.len() as u64;
        for view in &mut self.views {
            // A stop called from now on may be seen late.
            let end_ns = now_ns().saturating_sub(STOP_SEEN_NS);
            // Nothing that a stopped session retains may be released.
            view.see_signals();
            if view.left_ns.is_some() && view.keep != Retention::Nothing {
                continue;
            }
            while view.from < end {
                let segment = &self.segments[(view.from - self.first) as usize];
                let later = || self.segments.iter().skip((view.from - self.first) as usize + 1);
                let goes = match view.keep {
                    Retention::All => false,
                    Retention::Nothing => true,
                    Retention::LastTime(time) => {
                        view.earliest_end_ns = view.earliest_end_ns.max(end_ns);
                        segment.until_ns < end_ns.saturating_sub(time.as_nanos() as u64)
                    }
                    // Calls of the next segment may have begun in this one; they are excluded then.
                    Retention::LastOperations(count) => {
                        let most = count.saturating_mul(ENTRIES_AN_OPERATION).max(ENTRIES);
                        let kept =
                            later().skip(1).fold((0, 0), |(operations, entries), segment| {
                                (operations + segment.operations, entries + segment.entries)
                            });
                        kept.0 >= count || kept.1 >= most
                    }
                };
                if !goes {
                    break;
                }
                view.before_id = segment.last_id;
                if view.keep != Retention::Nothing {
                    view.carried_over.add(segment);
                }
                if let Retention::LastOperations(_) = view.keep {
                    view.start_ns = view.start_ns.max(segment.until_ns);
                }
                view.from += 1;
            }
        }
        let needed = self.views.iter().map(|view| view.from).min().unwrap_or(end);
        while self.first < needed {
            // A session that begins later may refer to it.
            if self.carried_over.0 == self.first {
                if let Some(segment) = self.segments.front() {
                    self.carried_over.1.add(segment);
                }
                self.carried_over.0 += 1;
            }
            self.segments.pop_front();
            self.first += 1;
        }
    }

    /// Assembles the session's recording from its segments and the unfinished entries.
    pub(super) fn recording(
        &mut self,
        id: u64,
        pending_from_ns: Option<u64>,
    ) -> Result<Recording, Error> {
        let at_ns = self.taken_until_ns;
        let tail = Tail::Open {
            calls: self.collector.unfinished_calls(at_ns),
            ranges: ranges::unfinished(at_ns),
            settings: Settings {
                attributes: self.collector.attributes().to_vec(),
                missing_kinds: self.collector.missing_kinds().to_vec(),
            },
        };
        let panics = self.observing.switch.panics();
        let place = self.views.iter().position(|view| view.id == id);
        let view = &self.views[place.ok_or_else(|| Error::new(Kind::NotRunning))?];
        let until_ns = view.until_ns(at_ns);
        let start_ns = view.first_ns(until_ns);
        let partial = PartialRecording {
            info: self.info.clone(),
            first_log: self.observing.first_log,
            window_ns: (start_ns, until_ns),
            windows_ns: intersection(&self.windows_ns, &view.windows(start_ns, until_ns)),
            pending_from_ns,
            before_id: view.before_id,
            begins_late: view.begins_late(until_ns),
            segments: self.segments.iter().skip((view.from - self.first) as usize).collect(),
            carried_over: Some(&view.carried_over),
            tail,
        };
        Ok(segment::recording(partial, panics.saturating_sub(view.panics_before)))
    }

    /// Ends a session while others continue, after a wait for the GPU. `unfinished` buffers arrive
    /// later, for the other sessions.
    pub(super) fn stop_view(&mut self, id: u64, unfinished: u64) -> Result<Recording, Error> {
        self.take()?;
        let mut recording = self.recording(id, None)?;
        segment::leave_open(&mut recording);
        recording.losses.unfinished_buffers += unfinished;
        Ok(recording)
    }

    /// Ends the last session and the collection. `waited` is the result of a wait, if any.
    pub(super) fn stop(mut self, id: u64, waited: Option<u64>) -> Result<Recording, Error> {
        COLLECTS.store(false, Ordering::SeqCst);
        self.views.iter_mut().for_each(View::see_signals);
        let place = self.views.iter().position(|view| view.id == id);
        let place = place.ok_or_else(|| Error::new(Kind::NotRunning))?;
        let mut last = None;
        if self.views[place].sink.is_some() {
            // The sink receives everything that is done by now.
            let (mut segment, windows_ns) = Segment::take(&self.collector)?;
            segment.losses.failed_threads = self.background.take_failures();
            self.windows_ns = windows_ns;
            self.give_to_sinks(&segment, self.taken_until_ns);
            last = Some(segment);
        }
        let mut view = self.views.swap_remove(place);
        if let Some(segment) = last {
            if view.keep != Retention::Nothing {
                self.segments.push_back(segment);
            } else {
                view.before_id = later_id(view.before_id, segment.last_id);
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
        let start_ns = view.first_ns(stop_ns);
        let partial = PartialRecording {
            info: self.info,
            first_log,
            window_ns: (start_ns, stop_ns),
            windows_ns: intersection(&collected.windows_ns, &view.windows(start_ns, stop_ns)),
            pending_from_ns: None,
            before_id: view.before_id,
            begins_late: view.begins_late(stop_ns),
            segments: self.segments.iter().skip((view.from - self.first) as usize).collect(),
            carried_over: Some(&view.carried_over),
            tail: Tail::Stopped { collected: Box::new(collected), ranges },
        };
        let mut recording = segment::recording(partial, panics.saturating_sub(view.panics_before));
        recording.losses.failed_threads += self.background.take_failures();
        segment::leave_open(&mut recording);
        Ok(recording)
    }
}

/// The later of two ids; 0 is no id. Ids may wrap.
fn later_id(a: u32, b: u32) -> u32 {
    if a == 0 || b != 0 && is_up_to(a, b) { b } else { a }
}

/// Waits for the GPU while the collection continues.
pub(super) struct Waiter {
    flusher: Flusher,
    /// False in a pause, in which nothing needs to finish.
    is_on: bool,
}

impl Waiter {
    /// Returns the number of buffers that the GPU has not finished.
    pub(super) fn wait(&self) -> Result<u64, Error> {
        if self.is_on {
            return Ok(self.flusher.wait_idle()?);
        }
        self.flusher.request()?.wait(LONGEST_WAIT)?;
        Ok(0)
    }
}
