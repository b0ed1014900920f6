//! Segments of the logs, taken while a collection runs, and the recording assembled from them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cupti::{
    ActivityKind, Call, CallClass, Clock, Collected, Collector, Reading, Record, RecordBytes,
    ThreadCalls, ThreadGraphs,
};
use profiler_base::order;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::record::id_window::is_up_to;
use crate::record::instructions::{self, InstructionLog};

use super::logs::Logs;
use super::ranges::{
    self, Detail, EVENT_WORDS, Event, LoggedEvent, RangeEntry, Shared, Slots, Subject, Texts,
    ThreadSegment,
};
use super::tag::logs_from;
use super::{Clocks, Losses, Recording, RecordingInfo};

/// The activity kinds of GPU operations.
pub(crate) const WORK: [ActivityKind; 5] = [
    ActivityKind::CONCURRENT_KERNEL,
    ActivityKind::KERNEL,
    ActivityKind::MEMCPY,
    ActivityKind::MEMCPY2,
    ActivityKind::MEMSET,
];

/// The entries that were taken from the logs at one time.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    /// The time at which it was taken. No entry is later.
    pub(crate) until_ns: u64,
    /// All records of calls that returned before this time are in this segment or in earlier ones.
    pub(crate) settled_ns: u64,
    /// The time of the request for the last flush that CUPTI has completed.
    pub(crate) answered_ns: u64,
    pub(crate) records: RecordBytes,
    pub(crate) clock: Clock,
    pub(crate) calls: Vec<ThreadCalls>,
    pub(super) runtime_calls: Vec<ThreadCalls<cupti::RuntimeFunction>>,
    pub(crate) graphs: Vec<ThreadGraphs>,
    pub(crate) ranges: Vec<ThreadSegment>,
    /// The instruction samples, if there are any.
    pub(crate) instructions: Option<Arc<InstructionLog>>,
    pub(crate) losses: Losses,
    /// The latest correlation id of its calls (0 if none); in a collection, of all calls so far.
    pub(crate) last_id: u32,
    /// GPU operations submitted by its calls that have arrived, if they are counted.
    pub(crate) operations: u64,
    /// The number of calls, ranges and entries of second logs.
    pub(crate) entries: u64,
}

impl Segment {
    /// Takes the entries finished since the last segment and the records CUPTI has delivered.
    pub(crate) fn take(collector: &Collector) -> Result<(Self, Vec<(u64, u64)>), cupti::Error> {
        let answered_ns = collector.flusher().answered_ns();
        let collected = collector.drain_delivered()?;
        // Ranges are taken after calls, because the calls refer to their ranges.
        let ranges = ranges::take(collected.window_ns.1);
        let windows_ns = collected.windows_ns.clone();
        Ok((Self::new(collected, ranges, answered_ns), windows_ns))
    }

    fn new(collected: Collected, ranges: Vec<ThreadSegment>, answered_ns: u64) -> Self {
        let later = |a, b| if is_up_to(a, b) { b } else { a };
        let all = collected.calls.iter().flat_map(|thread| &thread.calls);
        let last_id = all.map(|call| call.correlation_id).reduce(later);
        let calls = collected.calls.iter().map(|thread| thread.calls.len());
        let runtime_calls = collected.runtime_calls.iter().map(|thread| thread.calls.len());
        let of_threads = ranges.iter().map(|thread| thread.entries.len() + thread.events.len());
        let instructions = collected.pc_sampling.as_ref().map(InstructionLog::new);
        Self {
            entries: calls.chain(runtime_calls).chain(of_threads).sum::<usize>() as u64,
            until_ns: collected.window_ns.1,
            answered_ns,
            settled_ns: collected.pending_from_ns.unwrap_or(collected.window_ns.1),
            last_id: last_id.unwrap_or(0),
            operations: 0,
            losses: Losses::from_cupti(&collected.losses),
            records: collected.records,
            clock: collected.clock,
            calls: collected.calls,
            runtime_calls: collected.runtime_calls,
            graphs: collected.graphs,
            instructions: instructions.filter(|log| !log.is_empty()).map(Arc::new),
            ranges,
        }
    }

    /// The start of its earliest call; its end if it has no calls.
    pub(crate) fn first_call_ns(&self) -> u64 {
        let calls = self.calls.iter().flat_map(|thread| &thread.calls);
        calls.map(|call| call.start_ns).min().unwrap_or(self.until_ns)
    }

    /// True if it has no records and no entries.
    pub(crate) fn is_empty(&self) -> bool {
        let has_bytes = self.records.buffers().any(|bytes| !bytes.is_empty());
        let has_entries = self.entries != 0 || !self.graphs.is_empty();
        !has_entries && !has_bytes && self.instructions.is_none()
    }

    /// The number of its records, calls, ranges, entries of second logs and rows of samples.
    pub(super) fn all_entries(&self) -> u64 {
        let rows = self.instructions.as_ref().map_or(0, |log| log.rows.len());
        self.entries + rows as u64 + self.records.iter().count() as u64
    }

    /// Merges the segment after this one into it. Both have no entries.
    pub(crate) fn extend(&mut self, next: &Self) {
        (self.until_ns, self.settled_ns) = (next.until_ns, next.settled_ns);
        self.answered_ns = next.answered_ns;
        self.clock.stop = next.clock.stop;
        self.losses.add(&next.losses);
    }

    /// The correlation ids of its GPU operations.
    pub(crate) fn operations(&self) -> impl Iterator<Item = u32> {
        self.records.iter().filter_map(|record| operation_id(&record))
    }
}

/// The correlation id of a kernel, copy or memset.
pub(super) fn operation_id(record: &Record<'_>) -> Option<u32> {
    match record {
        Record::Kernel(kernel) => Some(kernel.correlation_id),
        Record::Memcpy(copy) => Some(copy.correlation_id),
        Record::Memset(set) => Some(set.correlation_id),
        _ => None,
    }
}

/// The entries that ended within a segment, by the log number of the starting thread: ranges, and
/// process ranges with their end events.
#[derive(Debug, Default)]
struct Ended {
    ranges: FxHashMap<u64, FxHashSet<u64>>,
    process_ranges: FxHashMap<u64, FxHashMap<u64, (Arc<Shared>, LoggedEvent)>>,
}

impl Ended {
    /// `early` has ends of process ranges whose start was in no segment so far.
    fn new(threads: &[ThreadSegment], early: Vec<(Arc<Shared>, LoggedEvent)>) -> Self {
        let mut ended = Self::default();
        early.iter().for_each(|(shared, event)| ended.add_end(shared, *event));
        for thread in threads {
            let of_thread = ended.ranges.entry(thread.shared.number).or_default();
            of_thread.extend(thread.slots.iter());
            for event in &thread.events {
                ended.add_end(&thread.shared, *event);
            }
        }
        ended
    }

    fn add_end(&mut self, shared: &Arc<Shared>, event: LoggedEvent) {
        if let Event::ProcessEnd { of, .. } = Event::from_words(event.1) {
            let of_log = self.process_ranges.entry(of.log()).or_default();
            of_log.insert(of.slot(), (shared.clone(), event));
        }
    }

    /// Takes the ends of process ranges whose start was in no segment so far. The log of the ending
    /// thread was read after the starting thread's log; the next segment has the start.
    fn take_early(
        &mut self,
        ranges: &BTreeMap<u64, ThreadSegment>,
    ) -> Vec<(Arc<Shared>, LoggedEvent)> {
        let mut early = Vec::new();
        for (number, ends) in &mut self.process_ranges {
            let events = ranges.get(number).map_or(&[][..], |thread| &thread.events);
            let is_start = |words| matches!(Event::from_words(words), Event::ProcessStart { .. });
            let starts = events.iter().filter(|(_, words)| is_start(*words));
            let known: FxHashSet<u64> = starts.map(|(slot, _)| *slot).collect();
            early.extend(ends.extract_if(|slot, _| !known.contains(slot)).map(|(_, end)| end));
        }
        early
    }

    /// Retains the open process ranges with their later fields, and details of open ranges and of
    /// entries in later segments.
    fn remove_from(&self, thread: &mut ThreadSegment) {
        let number = thread.shared.number;
        let has = |ended: &FxHashMap<u64, FxHashSet<u64>>, slot: u64| {
            ended.get(&number).is_some_and(|slots| slots.contains(&slot))
        };
        let has_ended = |number: u64, slot: u64| {
            self.process_ranges.get(&number).is_some_and(|ends| ends.contains_key(&slot))
        };
        let open: FxHashSet<u64> = thread
            .events
            .iter()
            .filter(|(slot, words)| match Event::from_words(*words) {
                Event::ProcessStart { .. } => !has_ended(number, *slot),
                Event::ProcessFields { of, .. } => !has_ended(of.log(), of.slot()),
                _ => false,
            })
            .map(|(slot, _)| *slot)
            .collect();
        // Details precede their entry, and the logs may have been taken in between.
        let last = thread.events.iter().map(|(slot, _)| *slot).max();
        thread.events.retain(|(slot, words)| match Event::from_words(*words) {
            Event::ProcessStart { .. } | Event::ProcessFields { .. } => open.contains(slot),
            Event::Detail { of: Subject::Range(of), .. } => !has(&self.ranges, of),
            Event::Detail { of: Subject::Event(of), .. } => Some(of) > last || open.contains(&of),
            _ => false,
        });
        thread.events.shrink_to_fit();
    }
}

/// Upper bound of the joined contexts carried over from released segments. Any of them may be
/// attached again, but memory must not grow with the run.
const MOST_JOINED: usize = 1 << 16;

/// Entries to which later segments may refer: details of open ranges, and the latest joined
/// contexts.
#[derive(Debug, Clone, Default)]
pub(crate) struct CarriedOver {
    ranges: BTreeMap<u64, ThreadSegment>,
    /// Ends of process ranges whose start is in the next segment, with their threads.
    early_ends: Vec<(Arc<Shared>, LoggedEvent)>,
    /// Joined contexts in order, with their threads; further members precede their context.
    joins: VecDeque<(Arc<Shared>, LoggedEvent)>,
    /// The number of contexts in `joins`.
    joined: usize,
}

impl CarriedOver {
    /// Carries over entries from a released segment. Details of ranges in later segments are
    /// retained.
    pub(crate) fn add(&mut self, segment: &Segment) {
        self.add_ranges(&segment.ranges);
    }

    pub(super) fn add_ranges(&mut self, threads: &[ThreadSegment]) {
        let mut ended = Ended::new(threads, std::mem::take(&mut self.early_ends));
        for thread in threads {
            for event in &thread.events {
                match Event::from_words(event.1) {
                    Event::Joined { .. } => self.joined += 1,
                    Event::Detail { detail: Detail::Member(_), .. } => {}
                    _ => {
                        let none = || ThreadSegment::empty(&thread.shared);
                        let known = self.ranges.entry(thread.shared.number).or_insert_with(none);
                        known.events.push(*event);
                        continue;
                    }
                }
                self.joins.push_back((thread.shared.clone(), *event));
            }
        }
        self.early_ends = ended.take_early(&self.ranges);
        self.ranges.retain(|_, thread| {
            ended.remove_from(thread);
            !thread.events.is_empty()
        });
        self.forget_joined(MOST_JOINED);
    }

    /// Drops the oldest joined contexts down to this number.
    fn forget_joined(&mut self, most: usize) {
        while self.joined > most
            && let Some((_, (_, words))) = self.joins.pop_front()
        {
            self.joined -= usize::from(matches!(Event::from_words(words), Event::Joined { .. }));
        }
    }

    /// The carried-over events by thread, in log order.
    pub(super) fn threads(&self) -> impl Iterator<Item = ThreadSegment> {
        let mut threads = self.ranges.clone();
        for (shared, event) in self.joins.iter().chain(&self.early_ends) {
            let none = || ThreadSegment::empty(shared);
            threads.entry(shared.number).or_insert_with(none).events.push(*event);
        }
        threads.into_values().map(|mut thread| {
            order::sort_by_number(&mut thread.events, |(slot, _)| *slot);
            thread
        })
    }
}

/// The parts of a recording.
pub(crate) struct PartialRecording<'a> {
    pub(crate) info: RecordingInfo,
    /// Its first log number.
    pub(crate) first_log: u64,
    /// The interval in which the session was on; calls at other times are excluded.
    pub(crate) window_ns: (u64, u64),
    pub(crate) windows_ns: Vec<(u64, u64)>,
    /// In a snapshot: calls that returned after this time may still get records.
    pub(crate) pending_from_ns: Option<u64>,
    /// Records without a call and with an id up to this belong to calls that were released or made
    /// before; 0 if all calls are present.
    pub(crate) before_id: u32,
    /// True if earlier segments of the collection are missing.
    pub(crate) begins_late: bool,
    pub(crate) segments: Vec<&'a Segment>,
    pub(crate) carried_over: Option<&'a CarriedOver>,
    /// The entries that were in no segment, at the end.
    pub(crate) tail: Tail,
}

/// The entries that were in no segment.
pub(crate) enum Tail {
    /// All remaining entries: the collection has ended.
    Stopped { collected: Box<Collected>, ranges: Vec<ThreadSegment> },
    /// Unfinished entries: the collection continues.
    Open { calls: cupti::UnfinishedCalls, ranges: Vec<ThreadSegment>, settings: Settings },
}

/// The settings of a collection.
pub(crate) struct Settings {
    pub(crate) attributes: Vec<cupti::AttributeSetting>,
    pub(crate) missing_kinds: Vec<cupti::ActivityKind>,
}

/// The id up to which records belong to earlier calls. With all calls present (`known` is 0), a
/// record with an id before theirs belongs to a call before the collection. The calls are sorted.
fn before_id(known: u32, calls: &[ThreadCalls]) -> u32 {
    let first = calls.iter().filter_map(|thread| thread.calls.first());
    match first.map(|call| call.correlation_id).reduce(earlier_id) {
        Some(first) if known == 0 => first.wrapping_sub(1),
        _ => known,
    }
}

/// The earlier of two ids. Ids may wrap.
pub(crate) fn earlier_id(a: u32, b: u32) -> u32 {
    if is_up_to(a, b) { a } else { b }
}

/// The combined logs of several segments.
#[derive(Default)]
struct Assembly {
    losses: Losses,
    readings: Vec<Reading>,
    records: Option<RecordBytes>,
    calls: Logs<ThreadCalls<cupti::DriverFunction>>,
    runtime_calls: Logs<ThreadCalls<cupti::RuntimeFunction>>,
    graphs: BTreeMap<u32, ThreadGraphs>,
    threads: Threads,
    window_ns: (u64, u64),
    instructions: instructions::Merger,
}

impl Assembly {
    fn add(&mut self, segment: Segment) {
        self.losses.add(&segment.losses);
        if self.readings.is_empty() {
            self.readings.push(segment.clock.start);
        }
        self.readings.push(segment.clock.stop);
        match &mut self.records {
            Some(records) => records.append(&segment.records),
            None => self.records = Some(segment.records),
        }
        segment.calls.into_iter().for_each(|thread| self.calls.append(thread));
        segment.runtime_calls.into_iter().for_each(|thread| self.runtime_calls.append(thread));
        for thread in segment.graphs {
            match self.graphs.get_mut(&thread.thread_id) {
                Some(known) => known.events.extend(thread.events),
                None => _ = self.graphs.insert(thread.thread_id, thread),
            }
        }
        if let Some(log) = &segment.instructions {
            self.instructions.add(log, self.window_ns);
        }
        self.add_ranges(segment.ranges);
    }

    fn add_ranges(&mut self, threads: impl IntoIterator<Item = ThreadSegment>) {
        threads.into_iter().for_each(|thread| self.threads.add(thread));
    }
}

/// Assembles a recording.
pub(crate) fn recording(partial: PartialRecording<'_>, observer_panics: u64) -> Recording {
    let mut all = Assembly { window_ns: partial.window_ns, ..Assembly::default() };
    all.add_ranges(partial.carried_over.into_iter().flat_map(CarriedOver::threads));
    partial.segments.into_iter().for_each(|segment| all.add(segment.clone()));
    let settings = match partial.tail {
        Tail::Open { calls: open, ranges, settings } => {
            open.calls.into_iter().for_each(|thread| all.calls.append(thread));
            open.runtime_calls.into_iter().for_each(|thread| all.runtime_calls.append(thread));
            all.add_ranges(ranges);
            settings
        }
        Tail::Stopped { mut collected, ranges } => {
            let attributes = std::mem::take(&mut collected.attributes);
            let missing_kinds = std::mem::take(&mut collected.missing_kinds);
            all.add(Segment::new(*collected, ranges, 0));
            Settings { attributes, missing_kinds }
        }
    };
    let mut losses = all.losses;
    losses.panics = losses.panics.saturating_add(observer_panics);
    losses.add(&ranges::losses());
    let calls = all.calls.sorted();
    let version = cupti::Version(partial.info.cupti_version);
    let none = || RecordBytes::from_parts(version, vec![], [], []);
    Recording {
        info: partial.info,
        window_ns: partial.window_ns,
        windows_ns: partial.windows_ns,
        pending_from_ns: partial.pending_from_ns,
        clocks: Clocks::new(all.readings),
        logs: logs_from(partial.first_log),
        before_id: before_id(partial.before_id, &calls),
        begins_late: partial.begins_late,
        records: all.records.unwrap_or_else(none),
        calls,
        runtime_calls: all.runtime_calls.sorted(),
        graphs: all.graphs.into_values().collect(),
        ranges: all.threads.finish(partial.window_ns, partial.begins_late),
        attributes: settings.attributes,
        missing_kinds: settings.missing_kinds,
        losses,
        instructions: all.instructions.finish().map(Arc::new),
        series: Vec::new(),
        host_stacks: Arc::default(),
        is_truncated: false,
        has_checksums: true,
    }
}

/// The maximum number of calls of a thread that are checked for being in progress: one, and calls
/// nested in its callbacks.
const MOST_NESTED: usize = 64;

/// Marks calls without a record that returned after the cut of a stop as open: their work is
/// unknown, as for calls that have not returned.
pub(crate) fn leave_open(recording: &mut Recording) {
    use CallClass::{GraphLaunch, KernelLaunch, Memcpy, Memset, Synchronize, WaitEvent};
    let cut_ns = recording.window_ns.1;
    let is_late = |call: &Call| {
        let returned = call.end_ns.is_some_and(|end_ns| end_ns >= cut_ns);
        let expects_record = matches!(
            call.function.class(),
            KernelLaunch | GraphLaunch | Memcpy | Memset | Synchronize | WaitEvent
        );
        let did = call.result == 0 && !call.captured && !call.empty;
        returned && call.start_ns < cut_ns && did && expects_record
    };
    let mut late = FxHashSet::default();
    // Calls are in start order and rarely nest deeply.
    for thread in &recording.calls {
        let before = thread.calls.iter().rev().skip_while(|call| call.start_ns >= cut_ns);
        let last = before.take(MOST_NESTED).filter(|call| is_late(call));
        late.extend(last.map(|call| call.correlation_id));
    }
    if late.is_empty() {
        return;
    }
    for record in &recording.records {
        match record {
            Record::Kernel(kernel) => late.remove(&kernel.correlation_id),
            Record::Memcpy(copy) => late.remove(&copy.correlation_id),
            Record::Memset(set) => late.remove(&set.correlation_id),
            Record::Synchronization(record) => late.remove(&record.correlation_id),
            _ => false,
        };
    }
    for call in recording.calls.iter_mut().flat_map(|thread| &mut thread.calls) {
        if is_late(call) && late.contains(&call.correlation_id) {
            call.end_ns = None;
        }
    }
}

/// The ranges of one thread in start order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ThreadRanges {
    /// The log number in the tags of its ranges.
    pub(crate) number: u64,
    /// The kernel's thread id.
    pub(crate) thread_id: u32,
    pub(crate) thread_name: Option<String>,
    pub(crate) texts: Texts,
    pub(crate) entries: Vec<RangeEntry>,
    /// The log slots of `entries`.
    pub(crate) slots: Slots,
    /// The second log as written; [`Event::from_words`] decodes it.
    pub(crate) events: Vec<[u64; EVENT_WORDS]>,
    pub(crate) event_slots: Slots,
}

impl ThreadRanges {
    /// Sets the events within the window, in the order of their slots.
    fn set_events(&mut self, mut events: Vec<LoggedEvent>, window_ns: (u64, u64)) {
        cut_events(&mut events, &self.slots, window_ns);
        ranges::assemble_texts(&mut events, &mut self.texts);
        self.event_slots = events.iter().map(|(slot, _)| *slot).collect();
        self.events = events.into_iter().map(|(_, words)| words).collect();
    }
}

/// Finishes a recording read from an appended file, whose frames contain segments as they were
/// taken. Its logs are sorted.
pub(super) fn finish_appended(recording: &mut Recording) {
    for thread in &mut recording.ranges {
        let slots = std::mem::take(&mut thread.event_slots);
        let events = slots.iter().zip(std::mem::take(&mut thread.events)).collect();
        thread.set_events(events, recording.window_ns);
    }
    recording.before_id = before_id(recording.before_id, &recording.calls);
    if recording.pending_from_ns.is_none() {
        leave_open(recording);
    }
}

/// The ranges of all threads, added segment by segment.
#[derive(Debug, Default)]
struct Threads(BTreeMap<u64, (ThreadSegment, bool)>);

impl Threads {
    fn add(&mut self, mut segment: ThreadSegment) {
        match self.0.get_mut(&segment.shared.number) {
            Some((known, again)) => {
                *again = true;
                known.entries.append(&mut segment.entries);
                segment.slots.iter().for_each(|slot| known.slots.push(slot));
                known.events.append(&mut segment.events);
            }
            None => _ = self.0.insert(segment.shared.number, (segment, false)),
        }
    }

    /// Returns the ranges in start order, and the events within the window. If `begins_late`,
    /// ranges that ended before the window are removed. Otherwise only a few ended while the
    /// session began; calls and handed-over ranges may lie in them.
    fn finish(self, window_ns: (u64, u64), begins_late: bool) -> Vec<ThreadRanges> {
        let from_ns = if begins_late { window_ns.0 } else { 0 };
        let finish = |(mut thread, again): (ThreadSegment, bool)| {
            let (mut entries, mut slots) = (thread.entries, thread.slots);
            let is_within = |entry: &RangeEntry| entry.end_ns().is_none_or(|end| end >= from_ns);
            if again || !entries.iter().all(is_within) {
                let mut rows: Vec<(u64, RangeEntry)> = slots.iter().zip(entries).collect();
                rows.retain(|(_, entry)| is_within(entry));
                order::sort_by_number(&mut rows, |(slot, _)| *slot);
                slots = rows.iter().map(|(slot, _)| *slot).collect();
                entries = rows.into_iter().map(|(_, entry)| entry).collect();
                order::sort_by_number(&mut thread.events, |(slot, _)| *slot);
            }
            // The texts were added before the entries that refer to them.
            let texts = thread.shared.texts.lock().clone();
            let mut ranges = ThreadRanges {
                number: thread.shared.number,
                thread_id: thread.shared.thread_id,
                thread_name: thread.shared.thread_name.clone(),
                texts,
                entries,
                slots,
                ..ThreadRanges::default()
            };
            ranges.set_events(thread.events, window_ns);
            ranges
        };
        self.0.into_values().map(finish).collect()
    }
}

/// Removes events outside the window, and details of missing entries: released, or not yet begun.
fn cut_events(events: &mut Vec<LoggedEvent>, slots: &Slots, (from_ns, until_ns): (u64, u64)) {
    events.retain(|(_, words)| match Event::from_words(*words) {
        Event::Mark { at_ns, .. } => from_ns <= at_ns && at_ns < until_ns,
        Event::ProcessStart { at_ns, .. }
        | Event::ProcessFields { at_ns, .. }
        | Event::ProcessEnd { at_ns, .. } => at_ns < until_ns,
        Event::Detail { of: Subject::Range(slot), .. } => slots.row(slot).is_some(),
        Event::Detail { of: Subject::Event(_), .. } | Event::Joined { .. } | Event::Unknown => true,
    });
    let is_subject = |words: &[u64; EVENT_WORDS]| {
        matches!(
            Event::from_words(*words),
            Event::Mark { .. }
                | Event::ProcessStart { .. }
                | Event::ProcessFields { .. }
                | Event::Joined { .. }
        )
    };
    if events.iter().any(|(_, words)| {
        matches!(Event::from_words(*words), Event::Detail { of: Subject::Event(_), .. })
    }) {
        let subjects: FxHashSet<u64> =
            events.iter().filter(|(_, words)| is_subject(words)).map(|(slot, _)| *slot).collect();
        events.retain(|(_, words)| match Event::from_words(*words) {
            Event::Detail { of: Subject::Event(slot), .. } => subjects.contains(&slot),
            _ => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(ranges: Vec<ThreadSegment>) -> Segment {
        let none = Reading { at_ns: 0, offset_ns: 0 };
        Segment {
            until_ns: 0,
            settled_ns: 0,
            answered_ns: 0,
            records: RecordBytes::from_parts(cupti::Version(130_001), vec![], [], []),
            clock: Clock { start: none, stop: none },
            calls: Vec::new(),
            runtime_calls: Vec::new(),
            graphs: Vec::new(),
            ranges,
            instructions: None,
            losses: Losses::default(),
            last_id: 0,
            operations: 0,
            entries: 0,
        }
    }

    fn thread(number: u64, events: &[LoggedEvent]) -> ThreadSegment {
        let events = events.to_vec();
        ThreadSegment { events, ..ThreadSegment::empty(&Shared::of_file(number, 0)) }
    }

    /// The log numbers and slots of the events that are carried over.
    fn slots(carried_over: &CarriedOver) -> Vec<(u64, u64)> {
        let of = |thread: ThreadSegment| {
            let number = thread.number();
            thread.events.into_iter().map(move |(slot, _)| (number, slot))
        };
        carried_over.threads().flat_map(of).collect()
    }

    #[test]
    fn details_of_later_entries_are_carried_over() {
        let payload = |slot, of: u64| (slot, [5 << 56 | 1 << 55 | of, 7, 1]);
        let (mark, start) = (|slot| (slot, [1 << 56, 0, 0]), |slot| (slot, [2 << 56, 0, 0]));
        let mut carried_over = CarriedOver::default();
        let mut left = |events: &[LoggedEvent]| -> Vec<u64> {
            carried_over.add(&segment(vec![thread(3, events)]));
            slots(&carried_over).into_iter().map(|(_, slot)| slot).collect()
        };
        assert_eq!(left(&[payload(0, 1), mark(1), payload(2, 4)]), [2]);
        assert_eq!(left(&[payload(3, 4)]), [2, 3]);
        assert_eq!(left(&[start(4), payload(5, 6)]), [2, 3, 4, 5]);
        assert_eq!(left(&[mark(6)]), [2, 3, 4]);
    }

    #[test]
    fn end_that_is_drained_before_its_start_closes_the_process_range() {
        let (client, server) = (3, 5);
        let start = |slot| (slot, [2 << 56, 100 + slot, 0]);
        let end = |slot, of: u64| {
            let tag = ranges::RangeTag::new(client, of).unwrap();
            (slot, [3 << 56, 200 + of, tag.0])
        };
        let mut carried_over = CarriedOver::default();
        let mut left = |threads: Vec<ThreadSegment>| -> Vec<(u64, u64)> {
            carried_over.add(&segment(threads));
            slots(&carried_over)
        };
        let first = vec![thread(client, &[start(0)]), thread(server, &[end(0, 0), end(1, 1)])];
        // The start of the second range is in the next segment; its end is carried over.
        assert_eq!(left(first), [(server, 1)]);
        let second = vec![thread(client, &[start(1), start(2)])];
        assert_eq!(left(second), [(client, 2)]);
        assert_eq!(left(vec![thread(server, &[end(2, 2)])]), []);
    }

    #[test]
    fn latest_joined_contexts_are_carried_over() {
        let joins = 8 << 56;
        let member = |of: u64| 9 << 56 | 1 << 55 | of;
        let mut carried_over = CarriedOver::default();
        carried_over.add(&segment(vec![thread(9, &[(4, [joins, 5, 6])])]));
        // Further members may be in the segment before.
        carried_over.add(&segment(vec![thread(3, &[(0, [member(1), 7, 0])])]));
        let two = [(1, [joins, 5, 6]), (2, [joins, 6, 7])];
        carried_over.add(&segment(vec![thread(3, &two), thread(5, &[(8, [1 << 56, 0, 0])])]));
        let left = |carried_over: &mut CarriedOver, most| -> Vec<(u64, u64)> {
            carried_over.forget_joined(most);
            slots(carried_over)
        };
        assert_eq!(left(&mut carried_over, 3), [(3, 0), (3, 1), (3, 2), (9, 4)]);
        assert_eq!(left(&mut carried_over, 2), [(3, 0), (3, 1), (3, 2)]);
        assert_eq!(left(&mut carried_over, 1), [(3, 2)]);
        assert_eq!(left(&mut carried_over, 0), []);
    }
}
