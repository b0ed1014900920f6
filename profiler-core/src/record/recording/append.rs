//! Appends a running session to a file, segment by segment (docs/decisions/025).
//!
//! A segment becomes frames of its entries, of the ranges and calls that are open at its end, and a
//! state that covers them. A file truncated at any point therefore reads as the session at its last
//! state. An entry is written at most twice: while open, and when it has ended.

use std::borrow::Cow;
use std::io;
use std::sync::{Arc, Weak};

use cupti::{
    ActivityKind, AttributeSetting, Call, Clock, Function, Reading, RecordBytes, RuntimeFunction,
    ThreadCalls, UnfinishedCalls,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::file::{
    CALLS, DEVICES, Devices, EVENTS, NAMES, Names, OPEN_CALLS, OPEN_RANGES, OPEN_RUNTIME_CALLS,
    Opening, RANGES, RUNTIME_CALLS, STATE, State, ThreadHead,
};
use super::frames::Chain;
use super::ranges::{self, Event, LoggedEvent, RangeEntry, RangeTag, Shared, Texts, ThreadSegment};
use super::segment::{self, CarriedOver, Segment, ThreadRanges};
use super::tag::logs_from;
use super::write::{LogId, LogWriter};
use super::{Losses, Recording, RecordingInfo};

/// The time after its last window for which a session's ranges are still written. Later ones are
/// withheld until the next window, so that a file does not grow while its session is paused.
const DORMANT_AFTER_NS: u64 = 10_000_000_000;
/// A state is written when this many bytes are not covered by one.
const UNCOVERED_BYTES: u64 = 1 << 20;
/// A state is also written after this time.
const UNCOVERED_NS: u64 = 500_000_000;
/// The interval of states while nothing ends: the end of the last window advances.
const QUIET_NS: u64 = 1_000_000_000;
/// Bytes of a file's limit reserved for its last frames.
const LAST_FRAMES: u64 = 16 << 10;
/// The number of thread logs from which logs of ended threads are removed.
const THREADS: usize = 256;

/// The known properties of a session when it begins.
pub(crate) struct SessionStart<'a> {
    pub(crate) info: &'a RecordingInfo,
    /// The number of the first range log.
    pub(crate) first_log: u64,
    /// The latest id of earlier calls; 0 if the collection began with this session.
    pub(crate) before_id: u32,
    pub(crate) start_ns: u64,
    /// True if earlier segments of the collection are missing.
    pub(crate) begins_late: bool,
    /// Entries carried over from these segments.
    pub(crate) carried_over: &'a CarriedOver,
}

/// A segment of a session, and the state of the session when it was taken.
pub(crate) struct Taken<'a> {
    /// Includes devices that were found since the session began.
    pub(crate) info: &'a RecordingInfo,
    pub(crate) segment: &'a Segment,
    /// The ranges that were open, and the calls that had not returned.
    pub(crate) open: &'a [ThreadSegment],
    pub(crate) open_calls: &'a UnfinishedCalls,
    /// The times in which the session was on, from the segment's first call. Other calls are
    /// ignored.
    pub(crate) call_windows_ns: &'a [(u64, u64)],
    /// The times in which session and collection were on, since the last segment.
    pub(crate) windows_ns: &'a [(u64, u64)],
    /// The times in which calls could get records, if they are logged at other times too.
    pub(crate) enabled_ns: Option<&'a [(u64, u64)]>,
    pub(crate) attributes: &'a [AttributeSetting],
    pub(crate) missing_kinds: &'a [ActivityKind],
    /// Panics of the range observer since the session began.
    pub(crate) observer_panics: u64,
}

/// The contents of an appended file so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Appended {
    pub(crate) operations: u64,
    pub(crate) calls: u64,
    pub(crate) ranges: u64,
    /// Records, calls, ranges and events.
    pub(crate) entries: u64,
    /// Entries that were not written: the disk was too slow, or the file has its full size.
    pub(crate) unwritten: u64,
    /// Bytes of frames.
    pub(crate) bytes: u64,
    pub(crate) is_full: bool,
}

/// The part of a thread's range log in a file.
#[derive(Debug, Default)]
struct Known {
    texts: usize,
    labels: usize,
    /// Dropped once the thread has ended and all entries were taken.
    shared: Weak<Shared>,
}

/// The open calls in a file, by thread, id and start.
type OpenCalls = FxHashSet<(u32, u32, u64)>;

/// A thread's part of a segment, or of the last recording.
struct ThreadPart<'a> {
    log: LogId,
    number: u64,
    thread_name: Option<&'a String>,
    shared: Weak<Shared>,
    entries: Vec<(u64, RangeEntry)>,
    events: Vec<LoggedEvent>,
    open: Vec<(u64, RangeEntry)>,
}

/// The part of a segment that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    All,
    /// The session has been paused for long: ranges and events wait for the next window, unless
    /// their beginning is in the file.
    WithoutRanges,
    /// The queue of the file is full: only graph events, and the ends of entries open in the file.
    OpenOnes,
}

/// The state before a segment, to which a file returns if the segment does not fit.
struct Covered {
    chain: Chain,
    length: usize,
    appended: Appended,
    window_ns: Option<(u64, u64)>,
    new_windows_ns: Vec<(u64, u64)>,
    until_ns: u64,
    pending_from_ns: Option<u64>,
}

/// Makes frames of a running session. The bytes are taken with [`take_bytes`](Self::take_bytes).
#[derive(Debug, Default)]
pub(crate) struct Appender {
    opening: Vec<u8>,
    bytes: Vec<u8>,
    chain: Chain,
    max_bytes: u64,
    pub(crate) dormant_after_ns: u64,
    first_log: u64,
    start_ns: u64,
    before_id: u32,
    begins_late: bool,
    /// True if the file has the machine's devices.
    has_devices: bool,
    /// True if ranges were withheld to which later ones may refer.
    has_withheld: bool,
    threads: FxHashMap<u64, Known>,
    most_threads: usize,
    /// The keys of names, the kinds with strides, attributes and missing kinds in the file.
    names: FxHashSet<u64>,
    strides: FxHashSet<u32>,
    attributes: usize,
    missing_kinds: usize,
    /// The open entries in the file: ranges by log and slot, process ranges by tag.
    open_ranges: FxHashSet<(u64, u64)>,
    open_processes: FxHashSet<RangeTag>,
    open_calls: OpenCalls,
    open_runtime_calls: OpenCalls,
    /// Entries carried over from segments that were not written.
    withheld: Option<CarriedOver>,
    /// The last window, and the data after the last state.
    window_ns: Option<(u64, u64)>,
    new_windows_ns: Vec<(u64, u64)>,
    new_readings: Vec<Reading>,
    last_reading_ns: Option<u64>,
    /// The clock readings of the last segment, until a state contains them. Without readings, GPU
    /// timestamps cannot be converted.
    clock: Option<Clock>,
    losses: Losses,
    /// The end of the last state, and the number of bytes after it.
    state_ns: u64,
    uncovered: u64,
    /// The end of the last segment, and the time from which calls may lack records.
    until_ns: u64,
    pending_from_ns: Option<u64>,
    /// Flushes that wait for a state.
    required: u32,
    appended: Appended,
}

/// The calls that could get records: calls that are logged in pauses do not make a file grow.
fn with_records<'a, F: Function>(
    threads: &'a [ThreadCalls<F>],
    enabled_ns: Option<&[(u64, u64)]>,
) -> Cow<'a, [ThreadCalls<F>]> {
    let Some(enabled_ns) = enabled_ns else { return threads.into() };
    let is_enabled =
        |call: &&Call<F>| cupti::clock::overlaps(enabled_ns, call.start_ns, call.end_ns);
    let of_thread = |thread: &ThreadCalls<F>| {
        let calls = thread.calls.iter().filter(is_enabled).copied().collect();
        ThreadCalls::new(thread.thread_id, thread.thread_name.clone(), calls)
    };
    threads.iter().map(of_thread).collect()
}

/// Writing to memory does not fail.
fn to_memory(written: io::Result<()>) {
    debug_assert!(written.is_ok());
}

impl Appender {
    /// Begins a file of at most `max_bytes`.
    pub(crate) fn begin(start: &SessionStart<'_>, max_bytes: u64) -> Self {
        let logs = logs_from(start.first_log);
        let opening = Opening {
            info: start.info.clone(),
            logs: Some((logs.start, logs.end)),
            appended: true,
        };
        let mut bytes = Vec::new();
        let begun = LogWriter::begin(&mut bytes, &opening);
        let chain = begun.map(|writer| writer.chain()).unwrap_or_default();
        let mut appender = Self {
            bytes,
            chain,
            max_bytes,
            dormant_after_ns: DORMANT_AFTER_NS,
            first_log: start.first_log,
            start_ns: start.start_ns,
            before_id: start.before_id,
            begins_late: start.begins_late,
            has_devices: !start.info.devices.is_empty(),
            most_threads: THREADS,
            // Written with the first window.
            withheld: Some(start.carried_over.clone()),
            state_ns: start.start_ns,
            until_ns: start.start_ns,
            pending_from_ns: Some(start.start_ns),
            ..Self::default()
        };
        appender.write(|writer| writer.json(NAMES, &Names::default()));
        appender.write_state(&[], &[], Losses::default());
        appender.opening = appender.take_bytes(Vec::new());
        appender
    }

    fn write(&mut self, with: impl FnOnce(&mut LogWriter<'_>) -> io::Result<()>) {
        let mut writer = LogWriter::resume(&mut self.bytes, self.chain);
        to_memory(with(&mut writer));
        self.chain = writer.chain();
    }

    /// Returns the frames since the last call, which follow the earlier ones in the file. The next
    /// ones are made in `buffer`, which is empty.
    pub(crate) fn take_bytes(&mut self, buffer: Vec<u8>) -> Vec<u8> {
        let bytes = std::mem::replace(&mut self.bytes, buffer);
        self.appended.bytes += bytes.len() as u64;
        bytes
    }

    /// True if there are frames to take.
    pub(crate) fn has_bytes(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Returns the first frames, without frames of segments.
    pub(crate) fn take_opening(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.opening)
    }

    pub(crate) fn appended(&self) -> Appended {
        self.appended
    }

    /// Makes each segment write a state, even if nothing has ended, until a matching call with
    /// `false`. Calls nest.
    pub(crate) fn require_states(&mut self, is_required: bool) {
        self.required = if is_required { self.required + 1 } else { self.required - 1 };
    }

    /// Counts the entries of a segment that is not written.
    pub(crate) fn lose(&mut self, segment: &Segment) {
        self.losses.add(&segment.losses);
        self.count_unwritten(segment.all_entries());
    }

    /// Appends a segment. Without room, most of it is lost and counted.
    pub(crate) fn add(&mut self, taken: &Taken<'_>, has_room: bool) {
        let segment = taken.segment;
        if self.appended.is_full {
            self.lose(segment);
            return;
        }
        self.losses.add(&segment.losses);
        let extent = self.extent(taken, has_room);
        let before = Covered {
            chain: self.chain,
            length: self.bytes.len(),
            appended: self.appended,
            window_ns: self.window_ns,
            new_windows_ns: self.new_windows_ns.clone(),
            until_ns: self.until_ns,
            pending_from_ns: self.pending_from_ns,
        };
        if !self.has_devices && !taken.info.devices.is_empty() {
            let devices = Devices { devices: taken.info.devices.clone() };
            self.write(|writer| writer.json(DEVICES, &devices));
            self.has_devices = true;
        }
        if extent == Extent::All {
            self.write_withheld();
        }
        self.add_records(segment, extent);
        self.add_calls(taken, extent);
        self.add_ranges(taken, extent);
        self.forget_threads();
        let mut losses = self.losses;
        losses.add(&ranges::losses());
        losses.panics = losses.panics.saturating_add(taken.observer_panics);
        let bytes = self.appended.bytes + self.bytes.len() as u64;
        if bytes.saturating_add(LAST_FRAMES) > self.max_bytes {
            self.end_before(segment, before, losses);
            return;
        }
        self.uncovered += (self.bytes.len() - before.length) as u64;
        if segment.clock.step_ns() != 0 {
            // The clock was set in this segment only.
            self.add_readings([segment.clock.start, segment.clock.stop]);
        }
        self.clock = Some(segment.clock);
        if extent != Extent::OpenOnes && self.covers(taken) {
            self.write_state(taken.attributes, taken.missing_kinds, losses);
        }
    }

    /// Continues the windows to the end of a segment. Returns true if a state is due.
    fn covers(&mut self, taken: &Taken<'_>) -> bool {
        let until_ns = taken.segment.until_ns;
        (self.until_ns, self.pending_from_ns) = (until_ns, Some(taken.segment.settled_ns));
        let has_paused = self.add_windows(taken.windows_ns, until_ns);
        let since_ns = until_ns.saturating_sub(self.state_ns);
        self.required != 0
            || has_paused
            || self.uncovered >= UNCOVERED_BYTES
            || self.uncovered != 0 && since_ns >= UNCOVERED_NS
            || !taken.windows_ns.is_empty() && since_ns >= QUIET_NS
    }

    /// Adds the clock readings of the last segment, once.
    fn add_clock(&mut self) {
        if let Some(Clock { start, stop }) = self.clock.take() {
            self.add_readings([start, stop]);
        }
    }

    /// Adds the readings that are later than the ones in the file.
    fn add_readings(&mut self, readings: impl IntoIterator<Item = Reading>) {
        for reading in readings {
            if self.last_reading_ns.is_none_or(|last_ns| last_ns < reading.at_ns) {
                self.last_reading_ns = Some(reading.at_ns);
                self.new_readings.push(reading);
            }
        }
    }

    fn extent(&mut self, taken: &Taken<'_>, has_room: bool) -> Extent {
        if !has_room {
            return Extent::OpenOnes;
        }
        let is_awake = !taken.windows_ns.is_empty();
        let is_dormant = match self.window_ns {
            None => true,
            Some((_, stop)) => taken.segment.until_ns.saturating_sub(stop) >= self.dormant_after_ns,
        };
        if !is_awake && is_dormant { Extent::WithoutRanges } else { Extent::All }
    }

    /// Handles the size limit: removes a segment again, and covers the frames before it. `losses`
    /// has the losses so far.
    fn end_before(&mut self, segment: &Segment, before: Covered, mut losses: Losses) {
        self.bytes.truncate(before.length);
        self.chain = before.chain;
        (self.window_ns, self.new_windows_ns) = (before.window_ns, before.new_windows_ns);
        (self.until_ns, self.pending_from_ns) = (before.until_ns, before.pending_from_ns);
        self.appended = Appended { is_full: true, ..before.appended };
        let entries = segment.all_entries();
        self.count_unwritten(entries);
        losses.unwritten_entries += entries;
        self.write_state(&[], &[], losses);
    }

    fn count_unwritten(&mut self, entries: u64) {
        self.losses.unwritten_entries += entries;
        self.appended.unwritten += entries;
    }

    /// Writes the state that covers everything so far.
    fn write_state(
        &mut self,
        attributes: &[AttributeSetting],
        missing_kinds: &[ActivityKind],
        losses: Losses,
    ) {
        self.add_clock();
        let readings = std::mem::take(&mut self.new_readings);
        let state = State {
            window_ns: (self.start_ns, self.until_ns),
            windows_ns: Some(std::mem::take(&mut self.new_windows_ns)),
            pending_from_ns: self.pending_from_ns,
            attributes: attributes.iter().skip(self.attributes).map(State::attribute).collect(),
            missing_kinds: missing_kinds
                .iter()
                .skip(self.missing_kinds)
                .map(|kind| kind.0)
                .collect(),
            clock_ns: readings.into_iter().map(State::reading).collect(),
            before_id: self.before_id,
            begins_late: self.begins_late || self.has_withheld,
            losses,
            ..State::default()
        };
        self.attributes = self.attributes.max(attributes.len());
        self.missing_kinds = self.missing_kinds.max(missing_kinds.len());
        (self.state_ns, self.uncovered) = (self.until_ns, 0);
        self.write(|writer| writer.json(STATE, &state));
    }

    /// Continues the list of windows. True if one ended before `until_ns`.
    fn add_windows(&mut self, windows_ns: &[(u64, u64)], until_ns: u64) -> bool {
        for &(start, stop) in windows_ns {
            let next = match self.window_ns {
                Some(last) if stop <= last.0 => continue,
                // The last window continues.
                Some(last) if start <= last.1 => (last.0, stop),
                _ => (start, stop),
            };
            match self.new_windows_ns.last_mut().filter(|last| last.0 == next.0) {
                Some(last) => *last = next,
                None => self.new_windows_ns.push(next),
            }
            self.window_ns = Some(next);
        }
        windows_ns.last().is_some_and(|(_, stop)| *stop < until_ns)
    }

    fn add_names(&mut self, records: &RecordBytes) {
        let names = Names::new(records, |key| !self.names.insert(key));
        let known = self.strides.len();
        self.strides.extend(names.strides.keys());
        let has_strides = self.strides.len() > known;
        if has_strides || !names.names.is_empty() || !names.data.is_empty() {
            self.write(|writer| writer.json(NAMES, &names));
        }
    }

    fn add_records(&mut self, segment: &Segment, extent: Extent) {
        if extent == Extent::OpenOnes {
            self.count_unwritten(segment.records.iter().count() as u64);
        } else {
            self.write_records(&segment.records);
        }
        // They are few, and a graph may be launched much later.
        self.write(|writer| writer.graphs(&segment.graphs));
        let Some(log) = &segment.instructions else { return };
        let without_rows = (extent == Extent::OpenOnes).then(|| log.without_rows());
        self.write(|writer| writer.instructions(without_rows.as_ref().or(Some(log))));
    }

    fn write_records(&mut self, records: &RecordBytes) {
        for record in records {
            self.appended.entries += 1;
            self.appended.operations += u64::from(segment::operation_id(&record).is_some());
        }
        self.add_names(records);
        self.write(|writer| writer.records(records));
    }

    fn add_calls(&mut self, taken: &Taken<'_>, extent: Extent) {
        let (segment, open) = (taken.segment, taken.open_calls);
        let enabled_ns = taken.enabled_ns;
        let mut known = std::mem::take(&mut self.open_calls);
        self.add_ended_calls(CALLS, &with_records(&segment.calls, enabled_ns), &known, extent);
        self.add_open_calls(OPEN_CALLS, &with_records(&open.calls, enabled_ns), &mut known, extent);
        self.open_calls = known;
        let mut known = std::mem::take(&mut self.open_runtime_calls);
        let calls = with_records(&segment.runtime_calls, enabled_ns);
        self.add_ended_calls(RUNTIME_CALLS, &calls, &known, extent);
        let open: &[ThreadCalls<RuntimeFunction>] = &with_records(&open.runtime_calls, enabled_ns);
        self.add_open_calls(OPEN_RUNTIME_CALLS, open, &mut known, extent);
        self.open_runtime_calls = known;
    }

    fn add_ended_calls<F: Function>(
        &mut self,
        kind: [u8; 4],
        threads: &[ThreadCalls<F>],
        known: &OpenCalls,
        extent: Extent,
    ) {
        for thread in threads {
            let is_known = |call: &&Call<F>| {
                known.contains(&(thread.thread_id, call.correlation_id, call.start_ns))
            };
            let mut calls = &thread.calls[..];
            let some: Vec<Call<F>>;
            if extent == Extent::OpenOnes {
                some = calls.iter().filter(is_known).copied().collect();
                self.count_unwritten((calls.len() - some.len()) as u64);
                calls = &some;
            }
            if !calls.is_empty() {
                self.appended.calls += calls.len() as u64;
                self.appended.entries += calls.len() as u64;
                self.write(|writer| writer.calls(kind, thread, calls));
            }
        }
    }

    fn add_open_calls<F: Function>(
        &mut self,
        kind: [u8; 4],
        threads: &[ThreadCalls<F>],
        known: &mut OpenCalls,
        extent: Extent,
    ) {
        let mut open = OpenCalls::default();
        for thread in threads {
            let key = |call: &Call<F>| (thread.thread_id, call.correlation_id, call.start_ns);
            let is_new = |call: &&Call<F>| !known.contains(&key(call));
            let new: Vec<Call<F>> = match extent {
                Extent::OpenOnes => Vec::new(),
                _ => thread.calls.iter().filter(is_new).copied().collect(),
            };
            if !new.is_empty() {
                self.write(|writer| writer.calls(kind, thread, &new));
            }
            let calls = thread.calls.iter().map(key);
            open.extend(calls.filter(|key| extent != Extent::OpenOnes || known.contains(key)));
        }
        *known = open;
    }

    fn add_ranges(&mut self, taken: &Taken<'_>, extent: Extent) {
        let mut parts: FxHashMap<u64, ThreadPart<'_>> = FxHashMap::default();
        let from_ns = if self.begins_late { self.start_ns } else { 0 };
        let is_within = |entry: &RangeEntry| entry.end_ns().is_none_or(|end| end >= from_ns);
        let mut left = Vec::new();
        for thread in &taken.segment.ranges {
            let number = thread.number();
            let mut part = self.part(&thread.shared);
            let entries = thread.entries().filter(|(_, entry)| is_within(entry));
            part.entries.extend(entries.map(|(slot, entry)| (slot, *entry)));
            part.events.extend(&thread.events);
            if extent != Extent::All {
                let has = |slot: u64| self.open_ranges.contains(&(number, slot));
                part.entries.retain(|(slot, _)| has(*slot));
                let slots = thread.slots.clone();
                let mut rest = ThreadSegment { slots, ..ThreadSegment::empty(&thread.shared) };
                let has = |event: &LoggedEvent| match Event::from_words(event.1) {
                    Event::ProcessEnd { of, .. } => self.open_processes.contains(&of),
                    _ => false,
                };
                (part.events, rest.events) = part.events.into_iter().partition(has);
                let all = thread.entries.len() + thread.events.len();
                let written = part.entries.len() + part.events.len();
                self.has_withheld |= written < all;
                if extent == Extent::OpenOnes {
                    self.count_unwritten((all - written) as u64);
                }
                left.push(rest);
            }
            parts.insert(number, part);
        }
        if extent != Extent::All {
            self.withheld.get_or_insert_default().add_ranges(&left);
        }
        let mut open = FxHashSet::default();
        for thread in taken.open {
            let number = thread.number();
            for (slot, entry) in thread.entries() {
                let is_known = self.open_ranges.contains(&(number, slot));
                if is_known || extent == Extent::All {
                    open.insert((number, slot));
                }
                if !is_known && extent == Extent::All {
                    let new = || self.part(&thread.shared);
                    parts.entry(number).or_insert_with(new).open.push((slot, *entry));
                }
            }
        }
        self.open_ranges = open;
        let mut parts: Vec<_> = parts.into_values().collect();
        parts.sort_unstable_by_key(|part| part.number);
        parts.iter().for_each(|part| self.add_thread(part));
    }

    fn part<'a>(&self, shared: &'a Arc<Shared>) -> ThreadPart<'a> {
        let number = shared.number;
        ThreadPart {
            log: LogId::new(shared.thread_id, number, self.first_log),
            number,
            thread_name: shared.thread_name.as_ref(),
            shared: Arc::downgrade(shared),
            entries: Vec::new(),
            events: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Writes a thread's entries, and before them the texts and labels that they refer to.
    fn add_thread(&mut self, part: &ThreadPart<'_>) {
        if part.entries.is_empty() && part.events.is_empty() && part.open.is_empty() {
            return;
        }
        let head = match part.shared.upgrade() {
            Some(shared) => self.thread_head(part, &shared.texts.lock()),
            None => None,
        };
        self.add_entries(part, head);
    }

    /// Returns the head with the new data of a thread; `None` if there is none.
    fn thread_head(&mut self, part: &ThreadPart<'_>, texts: &Texts) -> Option<ThreadHead> {
        let is_new = !self.threads.contains_key(&part.number);
        let known = self.threads.entry(part.number).or_default();
        let head = ThreadHead {
            thread_name: part.thread_name.filter(|_| is_new).cloned(),
            names: texts.texts.get(known.texts..).unwrap_or_default().to_vec(),
            labels: Some(texts.labels.get(known.labels..).unwrap_or_default().to_vec()),
            ..ThreadHead::new(part.log.thread_id)
        };
        let has_new = !head.names.is_empty() || known.labels < texts.labels.len();
        (known.texts, known.labels) = (texts.texts.len(), texts.labels.len());
        known.shared = part.shared.clone();
        (is_new || has_new).then_some(head)
    }

    fn add_entries(&mut self, part: &ThreadPart<'_>, head: Option<ThreadHead>) {
        for event in &part.events {
            match Event::from_words(event.1) {
                Event::ProcessStart { .. } => {
                    self.open_processes.extend(RangeTag::new(part.number, event.0));
                }
                Event::ProcessEnd { of, .. } => _ = self.open_processes.remove(&of),
                _ => {}
            }
        }
        self.appended.ranges += part.entries.len() as u64;
        self.appended.entries += (part.entries.len() + part.events.len()) as u64;
        self.write(|writer| {
            let words = |row: &(u64, RangeEntry)| row.1.to_words();
            let slot = |row: usize| part.entries[row].0;
            writer.numbered(RANGES, part.log, head, slot, &part.entries, words)?;
            let slot = |row: usize| part.events[row].0;
            writer.numbered(EVENTS, part.log, None, slot, &part.events, |event| event.1)?;
            let slot = |row: usize| part.open[row].0;
            writer.numbered(OPEN_RANGES, part.log, None, slot, &part.open, words)
        });
    }

    /// Writes the entries carried over from segments that were not written.
    fn write_withheld(&mut self) {
        let Some(withheld) = self.withheld.take() else { return };
        for thread in withheld.threads() {
            let events = thread.events.clone();
            let part = ThreadPart { events, ..self.part(&thread.shared) };
            self.add_thread(&part);
        }
    }

    fn forget_threads(&mut self) {
        if self.threads.len() >= self.most_threads {
            self.threads.retain(|_, known| known.shared.strong_count() != 0);
            self.most_threads = THREADS.max(2 * self.threads.len());
        }
    }

    /// Appends the last recording of the session, with the entries that were in no segment, and
    /// ends the file.
    pub(crate) fn finish(&mut self, recording: &Recording) {
        let mut losses = self.losses;
        losses.add(&recording.losses);
        if self.appended.is_full {
            let entries = recording.calls.iter().map(|thread| thread.calls.len()).sum::<usize>();
            let unwritten = entries as u64 + recording.records.iter().count() as u64;
            losses.unwritten_entries += unwritten;
            self.appended.unwritten += unwritten;
        } else {
            self.write_withheld();
            self.add_last(recording);
            self.add_windows(&recording.windows_ns, u64::MAX);
            // Older readings are added first: readings before the last one are dropped.
            self.add_clock();
            self.add_readings(recording.clocks.readings().iter().copied());
            self.until_ns = recording.window_ns.1;
            self.pending_from_ns = recording.pending_from_ns;
        }
        self.write_state(&recording.attributes, &recording.missing_kinds, losses);
        let writer = LogWriter::resume(&mut self.bytes, self.chain);
        to_memory(writer.end().map(|chain| self.chain = chain));
    }

    fn add_last(&mut self, recording: &Recording) {
        self.write_records(&recording.records);
        self.write(|writer| writer.graphs(&recording.graphs));
        let none = OpenCalls::default();
        self.add_ended_calls(CALLS, &recording.calls, &none, Extent::All);
        self.add_ended_calls(RUNTIME_CALLS, &recording.runtime_calls, &none, Extent::All);
        for thread in &recording.ranges {
            self.add_last_of_thread(thread);
        }
        self.write(|writer| recording.series.iter().try_for_each(|series| writer.series(series)));
        self.write(|writer| writer.instructions(recording.instructions.as_deref()));
        self.write(|writer| writer.host_stacks(&recording.host_stacks));
    }

    fn add_last_of_thread(&mut self, thread: &ThreadRanges) {
        let events = thread.event_slots.iter().zip(thread.events.iter().copied());
        let part = ThreadPart {
            log: LogId::new(thread.thread_id, thread.number, self.first_log),
            number: thread.number,
            thread_name: thread.thread_name.as_ref(),
            shared: Weak::new(),
            entries: thread.slots.iter().zip(thread.entries.iter().copied()).collect(),
            events: events.collect(),
            open: Vec::new(),
        };
        let head = self.thread_head(&part, &thread.texts);
        self.add_entries(&part, head);
    }
}
