//! Parts of a recording, as they were taken while it went on, and how a recording is put together of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cupti::{
    ActivityKind, Call, CallClass, Clock, Collected, Collector, Reading, Record, RecordBytes,
    ThreadCalls, ThreadGraphs,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::record::id_window::is_up_to;

use super::ranges::{
    self, Detail, EVENT_WORDS, Event, LoggedEvent, RangeEntry, Shared, Slots, Subject, Texts,
    ThreadPart,
};
use super::tag::logs_from;
use super::{Clocks, Losses, Recording, RecordingInfo};

/// The kinds of records that operations have.
pub(crate) const WORK: [ActivityKind; 5] = [
    ActivityKind::CONCURRENT_KERNEL,
    ActivityKind::KERNEL,
    ActivityKind::MEMCPY,
    ActivityKind::MEMCPY2,
    ActivityKind::MEMSET,
];

/// What was taken from the logs at one time.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    /// When: nothing in it is later.
    pub(crate) until_ns: u64,
    /// The records of calls that had returned before then have all come, in this part or in earlier ones.
    pub(crate) settled_ns: u64,
    /// CUPTI was asked then, last of all that it has answered.
    pub(crate) answered_ns: u64,
    pub(crate) records: RecordBytes,
    pub(crate) clock: Clock,
    pub(crate) calls: Vec<ThreadCalls>,
    runtime_calls: Vec<ThreadCalls<cupti::RuntimeFunction>>,
    pub(crate) graphs: Vec<ThreadGraphs>,
    ranges: Vec<ThreadPart>,
    pub(crate) losses: Losses,
    /// The correlation id of its calls that was handed out last; 0 without a call. In a collection, of all up to it.
    pub(crate) last_id: u32,
    /// GPU operations that its calls asked for and that have come, if they were counted.
    pub(crate) operations: u64,
    /// Calls, ranges, and what was said of them and in between.
    pub(crate) entries: u64,
}

impl Segment {
    /// Takes what has finished since the part before, as far as CUPTI handed it over.
    pub(crate) fn take(collector: &Collector) -> Result<(Self, Vec<(u64, u64)>), cupti::Error> {
        let answered_ns = collector.flusher().answered_ns();
        let collected = collector.drain_delivered()?;
        // After the calls, which name the ranges they were made in.
        let ranges = ranges::take(collected.window_ns.1);
        let windows_ns = collected.windows_ns.clone();
        Ok((Self::new(collected, ranges, answered_ns), windows_ns))
    }

    fn new(collected: Collected, ranges: Vec<ThreadPart>, answered_ns: u64) -> Self {
        let later = |a, b| if is_up_to(a, b) { b } else { a };
        let all = collected.calls.iter().flat_map(|thread| &thread.calls);
        let last_id = all.map(|call| call.correlation_id).reduce(later);
        let calls = collected.calls.iter().map(|thread| thread.calls.len());
        let runtime_calls = collected.runtime_calls.iter().map(|thread| thread.calls.len());
        let said = ranges.iter().map(|thread| thread.entries.len() + thread.events.len());
        Self {
            entries: calls.chain(runtime_calls).chain(said).sum::<usize>() as u64,
            until_ns: collected.window_ns.1,
            answered_ns,
            settled_ns: collected.pending_from_ns.unwrap_or(collected.window_ns.1),
            last_id: last_id.unwrap_or(0),
            operations: 0,
            losses: Losses::of(&collected.losses),
            records: collected.records,
            clock: collected.clock,
            calls: collected.calls,
            runtime_calls: collected.runtime_calls,
            graphs: collected.graphs,
            ranges,
        }
    }

    /// When the first of its calls began; its end without one.
    pub(crate) fn first_call_ns(&self) -> u64 {
        let calls = self.calls.iter().flat_map(|thread| &thread.calls);
        calls.map(|call| call.start_ns).min().unwrap_or(self.until_ns)
    }

    /// True if it has only its times and losses.
    pub(crate) fn is_empty(&self) -> bool {
        let has_bytes = self.records.buffers().any(|bytes| !bytes.is_empty());
        self.entries == 0 && self.graphs.is_empty() && !has_bytes
    }

    /// Of two that are empty and follow each other makes one.
    pub(crate) fn extend(&mut self, next: &Self) {
        (self.until_ns, self.settled_ns) = (next.until_ns, next.settled_ns);
        self.answered_ns = next.answered_ns;
        self.clock.stop = next.clock.stop;
        self.losses.add(&next.losses);
    }

    /// The correlation id of each GPU operation.
    pub(crate) fn operations(&self) -> impl Iterator<Item = u32> {
        self.records.iter().filter_map(|record| match record {
            Record::Kernel(kernel) => Some(kernel.correlation_id),
            Record::Memcpy(copy) => Some(copy.correlation_id),
            Record::Memset(set) => Some(set.correlation_id),
            _ => None,
        })
    }

    /// The ranges of each thread in it, with the thread's number in their tags.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = ThreadRangesPart<'_>> {
        self.ranges.iter().map(ThreadRangesPart::of)
    }
}

/// What ended within a part, by the number of the thread that it began on: ranges, and ranges of the process, each with its
/// end.
#[derive(Debug, Default)]
struct Ended {
    ranges: FxHashMap<u64, FxHashSet<u64>>,
    process_ranges: FxHashMap<u64, FxHashMap<u64, (Arc<Shared>, LoggedEvent)>>,
}

impl Ended {
    /// `early` are ends of ranges of the process whose start was in no part so far.
    fn of(part: &Segment, early: Vec<(Arc<Shared>, LoggedEvent)>) -> Self {
        let mut ended = Self::default();
        early.iter().for_each(|(shared, event)| ended.add_end(shared, *event));
        for thread in &part.ranges {
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

    /// Takes the ends of ranges of the process whose start was in no part so far: the log of the thread that ended them was
    /// read after that of the thread that started them. The starts are in the next part.
    fn take_early(
        &mut self,
        ranges: &BTreeMap<u64, ThreadPart>,
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

    /// Keeps what was said of ranges that have not ended and of what is yet to come, and ranges of the process that have not
    /// ended.
    fn remove_from(&self, thread: &mut ThreadPart) {
        let number = thread.shared.number;
        let has = |ended: &FxHashMap<u64, FxHashSet<u64>>, slot: u64| {
            ended.get(&number).is_some_and(|slots| slots.contains(&slot))
        };
        let has_ended = |slot: u64| {
            self.process_ranges.get(&number).is_some_and(|ends| ends.contains_key(&slot))
        };
        let open: FxHashSet<u64> = thread
            .events
            .iter()
            .filter(|(slot, words)| match Event::from_words(*words) {
                Event::ProcessStart { .. } => !has_ended(*slot),
                _ => false,
            })
            .map(|(slot, _)| *slot)
            .collect();
        // What is said of an entry comes before it, and the logs were taken in between.
        let last = thread.events.iter().map(|(slot, _)| *slot).max();
        thread.events.retain(|(slot, words)| match Event::from_words(*words) {
            Event::ProcessStart { .. } => open.contains(slot),
            Event::Detail { of: Subject::Range(of), .. } => !has(&self.ranges, of),
            Event::Detail { of: Subject::Event(of), .. } => Some(of) > last || open.contains(&of),
            _ => false,
        });
        thread.events.shrink_to_fit();
    }
}

/// What a part has of one thread.
pub(crate) struct ThreadRangesPart<'a> {
    pub(crate) number: u64,
    shared: &'a Arc<Shared>,
    entries: &'a [RangeEntry],
    slots: &'a Slots,
    pub(crate) events: &'a [LoggedEvent],
}

impl<'a> ThreadRangesPart<'a> {
    fn of(part: &'a ThreadPart) -> Self {
        Self {
            number: part.shared.number,
            shared: &part.shared,
            entries: &part.entries,
            slots: &part.slots,
            events: &part.events,
        }
    }

    /// Its ranges, each with its slot.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, &'a RangeEntry)> + use<'a> {
        self.slots.iter().zip(self.entries)
    }

    /// The kernel's id of the thread.
    pub(crate) fn thread_id(&self) -> u32 {
        self.shared.thread_id
    }

    /// The texts and labels that its entries refer to, and perhaps more.
    pub(crate) fn with_texts<R>(&self, with: impl FnOnce(&Texts) -> R) -> R {
        with(&self.shared.texts.lock())
    }
}

/// What is open: begun, and in no part.
#[derive(Debug)]
pub(crate) struct OpenRanges(Vec<ThreadPart>);

impl OpenRanges {
    /// At a time that has passed.
    pub(crate) fn at(until_ns: u64) -> Self {
        Self(ranges::rest(until_ns))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = ThreadRangesPart<'_>> {
        self.0.iter().map(ThreadRangesPart::of)
    }
}

/// Contexts of several ranges that are left of parts that were let go. Which of them will be attached once more nobody can
/// know, and what keeps the last seconds of a run is not to grow with it.
const MOST_JOINED: usize = 1 << 16;

/// What is left of parts that were let go: what they said of ranges that had not ended, and the contexts of several ranges
/// that came last.
#[derive(Debug, Clone, Default)]
pub(crate) struct CarriedOver {
    ranges: BTreeMap<u64, ThreadPart>,
    /// Ends of ranges of the process whose start comes with the next part, each with its thread.
    early_ends: Vec<(Arc<Shared>, LoggedEvent)>,
    /// As they came, each with its thread: what is more than two before the context itself. They may be attached at any time.
    joins: VecDeque<(Arc<Shared>, LoggedEvent)>,
    /// The contexts among these.
    joined: usize,
}

impl CarriedOver {
    /// Lets go of a part. What it says of ranges that it has not is left, for they are in later parts.
    pub(crate) fn add(&mut self, part: &Segment) {
        let mut ended = Ended::of(part, std::mem::take(&mut self.early_ends));
        for thread in &part.ranges {
            for event in &thread.events {
                match Event::from_words(event.1) {
                    Event::Joined { .. } => self.joined += 1,
                    Event::Detail { detail: Detail::Member(_), .. } => {}
                    _ => {
                        let none = || ThreadPart::none(&thread.shared);
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

    /// Leaves so many contexts of several ranges; those that came first go first.
    fn forget_joined(&mut self, most: usize) {
        while self.joined > most
            && let Some((_, (_, words))) = self.joins.pop_front()
        {
            self.joined -= usize::from(matches!(Event::from_words(words), Event::Joined { .. }));
        }
    }

    /// By thread, each as its log had it.
    fn threads(&self) -> impl Iterator<Item = ThreadPart> {
        let mut threads = self.ranges.clone();
        for (shared, event) in self.joins.iter().chain(&self.early_ends) {
            let none = || ThreadPart::none(shared);
            threads.entry(shared.number).or_insert_with(none).events.push(*event);
        }
        threads.into_values().map(|mut thread| {
            thread.events.sort_unstable_by_key(|(slot, _)| *slot);
            thread
        })
    }
}

/// What a recording is made of.
pub(crate) struct PartialRecording<'a> {
    pub(crate) info: RecordingInfo,
    /// The number of its first log of ranges.
    pub(crate) first_log: u64,
    /// When the session was on; calls at other times are left out.
    pub(crate) window_ns: (u64, u64),
    pub(crate) windows_ns: Vec<(u64, u64)>,
    /// In a snapshot, from when on calls may still get records.
    pub(crate) pending_from_ns: Option<u64>,
    /// Records that have no call and an id up to this are of calls that were let go, or made before; 0 if all calls are there.
    pub(crate) before_id: u32,
    /// Parts of the collection before these are not in it.
    pub(crate) begins_late: bool,
    pub(crate) parts: Vec<&'a Segment>,
    pub(crate) remains: Option<&'a CarriedOver>,
    /// What was not taken, at the end.
    pub(crate) rest: Tail,
}

/// What stood in the logs at the end.
pub(crate) enum Tail {
    /// All of it: the collection is over.
    Stopped { collected: Box<Collected>, ranges: StoppedRanges },
    /// What had not finished; the collection goes on.
    Open { calls: cupti::UnfinishedCalls, ranges: OpenRanges, settings: Settings },
}

/// The ranges that were left at a stop.
#[derive(Debug)]
pub(crate) struct StoppedRanges(Vec<ThreadPart>);

impl StoppedRanges {
    /// Ends the recording of ranges.
    pub(crate) fn end() -> Self {
        Self(ranges::end())
    }
}

/// What a collection was set to.
pub(crate) struct Settings {
    pub(crate) attributes: Vec<cupti::AttributeSetting>,
    pub(crate) missing_kinds: Vec<cupti::ActivityKind>,
}

/// The correlation id that was handed out first, of calls.
fn first_id<'a>(calls: impl IntoIterator<Item = &'a Call>) -> Option<u32> {
    calls.into_iter().map(|call| call.correlation_id).reduce(earlier_id)
}

/// The id that was handed out first. Ids may wrap.
pub(crate) fn earlier_id(a: u32, b: u32) -> u32 {
    if is_up_to(a, b) { a } else { b }
}

/// The logs of several segments, put together.
#[derive(Default)]
struct Assembly {
    losses: Losses,
    readings: Vec<Reading>,
    records: Option<RecordBytes>,
    calls: Calls<cupti::DriverFunction>,
    runtime_calls: Calls<cupti::RuntimeFunction>,
    graphs: BTreeMap<u32, ThreadGraphs>,
    threads: Threads,
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
        segment.calls.into_iter().for_each(|thread| self.calls.add(thread));
        segment.runtime_calls.into_iter().for_each(|thread| self.runtime_calls.add(thread));
        for thread in segment.graphs {
            match self.graphs.get_mut(&thread.thread_id) {
                Some(known) => known.events.extend(thread.events),
                None => _ = self.graphs.insert(thread.thread_id, thread),
            }
        }
        self.add_ranges(segment.ranges);
    }

    fn add_ranges(&mut self, threads: impl IntoIterator<Item = ThreadPart>) {
        threads.into_iter().for_each(|thread| self.threads.add(thread));
    }
}

/// Puts a recording together.
pub(crate) fn recording(partial: PartialRecording<'_>, observer_panics: u64) -> Recording {
    let mut all = Assembly::default();
    all.add_ranges(partial.remains.into_iter().flat_map(CarriedOver::threads));
    partial.parts.into_iter().for_each(|segment| all.add(segment.clone()));
    let settings = match partial.rest {
        Tail::Open { calls: open, ranges, settings } => {
            open.calls.into_iter().for_each(|thread| all.calls.add(thread));
            open.runtime_calls.into_iter().for_each(|thread| all.runtime_calls.add(thread));
            all.add_ranges(ranges.0);
            settings
        }
        Tail::Stopped { mut collected, ranges } => {
            let attributes = std::mem::take(&mut collected.attributes);
            let missing_kinds = std::mem::take(&mut collected.missing_kinds);
            all.add(Segment::new(*collected, ranges.0, 0));
            Settings { attributes, missing_kinds }
        }
    };
    let mut losses = all.losses;
    losses.panics = losses.panics.saturating_add(observer_panics);
    losses.add(&ranges::losses());
    let calls = all.calls.finish();
    // Of a collection from its start: a record with an earlier id is of a call that began before it. Calls are in the order
    // they were made.
    let before_id = match first_id(calls.iter().filter_map(|thread| thread.calls.first())) {
        Some(first) if partial.before_id == 0 => first.wrapping_sub(1),
        _ => partial.before_id,
    };
    let version = cupti::Version(partial.info.cupti_version);
    let none = || RecordBytes::from_parts(version, vec![], [], []);
    Recording {
        info: partial.info,
        window_ns: partial.window_ns,
        windows_ns: partial.windows_ns,
        pending_from_ns: partial.pending_from_ns,
        clocks: Clocks::new(all.readings),
        logs: logs_from(partial.first_log),
        before_id,
        begins_late: partial.begins_late,
        records: all.records.unwrap_or_else(none),
        calls,
        runtime_calls: all.runtime_calls.finish(),
        graphs: all.graphs.into_values().collect(),
        ranges: all.threads.finish(partial.window_ns, partial.begins_late),
        attributes: settings.attributes,
        missing_kinds: settings.missing_kinds,
        losses,
        series: Vec::new(),
        is_truncated: false,
    }
}

/// Driver calls that are looked at for being under way on one thread: one, and those in its callbacks.
const MOST_NESTED: usize = 64;

/// Leaves calls open that returned after a stop's cut and have no record: as of calls that have not returned it is not known
/// what they asked for.
pub(crate) fn leave_open(recording: &mut Recording) {
    use CallClass::{GraphLaunch, KernelLaunch, Memcpy, Memset, Synchronize, WaitEvent};
    let cut_ns = recording.window_ns.1;
    let is_late = |call: &Call| {
        let returned = call.end_ns.is_some_and(|end_ns| end_ns >= cut_ns);
        let owes = matches!(
            call.function.class(),
            KernelLaunch | GraphLaunch | Memcpy | Memset | Synchronize | WaitEvent
        );
        let did = call.result == 0 && !call.captured && !call.empty;
        returned && call.start_ns < cut_ns && did && owes
    };
    let mut late = FxHashSet::default();
    // They are in the order they were made, and few lie in one another.
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

/// Calls of all threads, of which one part after the other comes.
#[derive(Debug)]
struct Calls<F> {
    threads: Vec<ThreadCalls<F>>,
    /// By the thread's id: its place, and whether it came more than once.
    places: FxHashMap<u32, (usize, bool)>,
}

impl<F> Default for Calls<F> {
    fn default() -> Self {
        Self { threads: Vec::new(), places: FxHashMap::default() }
    }
}

impl<F> Calls<F> {
    fn add(&mut self, mut thread: ThreadCalls<F>) {
        match self.places.get_mut(&thread.thread_id) {
            Some((place, again)) => {
                *again = true;
                self.threads[*place].calls.append(&mut thread.calls);
            }
            None => {
                self.places.insert(thread.thread_id, (self.threads.len(), false));
                self.threads.push(thread);
            }
        }
    }

    /// In the order they were made: a part has a call when it has returned.
    fn finish(mut self) -> Vec<ThreadCalls<F>> {
        for (place, _) in self.places.into_values().filter(|(_, again)| *again) {
            self.threads[place].calls.sort_by_key(|call: &Call<F>| call.start_ns);
        }
        self.threads
    }
}

/// The ranges of one thread, in the order they began.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ThreadRanges {
    /// The log's number in the tags of its ranges.
    pub(crate) number: u64,
    /// The kernel's id of the thread.
    pub(crate) thread_id: u32,
    pub(crate) thread_name: Option<String>,
    pub(crate) texts: Texts,
    pub(crate) entries: Vec<RangeEntry>,
    /// Where the entries stood in the log.
    pub(crate) slots: Slots,
    /// The second log, as it was written: [`Event::from_words`] reads it.
    pub(crate) events: Vec<[u64; EVENT_WORDS]>,
    pub(crate) event_slots: Slots,
}

/// Ranges of all threads, of which one part after the other comes.
#[derive(Debug, Default)]
struct Threads(BTreeMap<u64, (ThreadPart, bool)>);

impl Threads {
    fn add(&mut self, mut part: ThreadPart) {
        match self.0.get_mut(&part.shared.number) {
            Some((known, again)) => {
                *again = true;
                known.entries.append(&mut part.entries);
                part.slots.iter().for_each(|slot| known.slots.push(slot));
                known.events.append(&mut part.events);
            }
            None => _ = self.0.insert(part.shared.number, (part, false)),
        }
    }

    /// In the order they began, without events outside the window. If `begins_late`, ranges that ended before the window are
    /// left out too; else these are the few that ended while the session began, and calls and ranges that were handed on may
    /// lie in them.
    fn finish(self, window_ns: (u64, u64), begins_late: bool) -> Vec<ThreadRanges> {
        let from_ns = if begins_late { window_ns.0 } else { 0 };
        let finish = |(mut thread, again): (ThreadPart, bool)| {
            let (mut entries, mut slots) = (thread.entries, thread.slots);
            let is_within = |entry: &RangeEntry| entry.end_ns().is_none_or(|end| end >= from_ns);
            if again || !entries.iter().all(is_within) {
                let mut rows: Vec<(u64, RangeEntry)> = slots.iter().zip(entries).collect();
                rows.retain(|(_, entry)| is_within(entry));
                rows.sort_by_key(|(slot, _)| *slot);
                slots = rows.iter().map(|(slot, _)| *slot).collect();
                entries = rows.into_iter().map(|(_, entry)| entry).collect();
                thread.events.sort_by_key(|(slot, _)| *slot);
            }
            cut_events(&mut thread.events, &slots, window_ns);
            // What its entries refer to was there before them.
            let mut texts = thread.shared.texts.lock().clone();
            ranges::put_texts_together(&mut thread.events, &mut texts);
            let event_slots = thread.events.iter().map(|(slot, _)| *slot).collect();
            let events = thread.events.into_iter().map(|(_, words)| words).collect();
            ThreadRanges {
                number: thread.shared.number,
                thread_id: thread.shared.thread_id,
                thread_name: thread.shared.thread_name.clone(),
                texts,
                entries,
                slots,
                events,
                event_slots,
            }
        };
        self.0.into_values().map(finish).collect()
    }
}

/// Leaves out what happened from a time on, and details of what is not there: let go, or not yet begun.
fn cut_events(events: &mut Vec<LoggedEvent>, slots: &Slots, (from_ns, until_ns): (u64, u64)) {
    events.retain(|(_, words)| match Event::from_words(*words) {
        Event::Mark { at_ns, .. } => from_ns <= at_ns && at_ns < until_ns,
        Event::ProcessStart { at_ns, .. } | Event::ProcessEnd { at_ns, .. } => at_ns < until_ns,
        Event::Detail { of: Subject::Range(slot), .. } => slots.row(slot).is_some(),
        Event::Detail { of: Subject::Event(_), .. } | Event::Joined { .. } | Event::Unknown => true,
    });
    let is_subject = |words: &[u64; EVENT_WORDS]| {
        matches!(
            Event::from_words(*words),
            Event::Mark { .. } | Event::ProcessStart { .. } | Event::Joined { .. }
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

    fn part(ranges: Vec<ThreadPart>) -> Segment {
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
            losses: Losses::default(),
            last_id: 0,
            operations: 0,
            entries: 0,
        }
    }

    #[test]
    fn what_was_said_of_what_is_yet_to_come_is_left() {
        let payload = |slot, of: u64| (slot, [5 << 56 | 1 << 55 | of, 7, 1]);
        let (mark, start) = (|slot| (slot, [1 << 56, 0, 0]), |slot| (slot, [2 << 56, 0, 0]));
        let thread = |events: &[LoggedEvent]| ThreadPart {
            events: events.to_vec(),
            ..ThreadPart::none(&Shared::of_thread(3))
        };
        let mut remains = CarriedOver::default();
        let mut left = |events: &[LoggedEvent]| -> Vec<u64> {
            remains.add(&part(vec![thread(events)]));
            let events = remains.threads().flat_map(|thread| thread.events);
            events.map(|(slot, _)| slot).collect()
        };
        assert_eq!(left(&[payload(0, 1), mark(1), payload(2, 4)]), [2]);
        assert_eq!(left(&[payload(3, 4)]), [2, 3]);
        assert_eq!(left(&[start(4), payload(5, 6)]), [2, 3, 4, 5]);
        assert_eq!(left(&[mark(6)]), [2, 3, 4]);
    }

    #[test]
    fn end_that_is_drained_before_its_start_closes_the_process_range() {
        let of_thread = |number, events: &[LoggedEvent]| ThreadPart {
            events: events.to_vec(),
            ..ThreadPart::none(&Shared::of_thread(number))
        };
        let (client, server) = (3, 5);
        let start = |slot| (slot, [2 << 56, 100 + slot, 0]);
        let end = |slot, of: u64| {
            let tag = ranges::RangeTag::new(client, of).unwrap();
            (slot, [3 << 56, 200 + of, tag.0])
        };
        let mut remains = CarriedOver::default();
        let mut left = |threads: Vec<ThreadPart>| -> Vec<(u64, u64)> {
            remains.add(&part(threads));
            let of = |thread: ThreadPart| {
                let number = thread.shared.number;
                thread.events.into_iter().map(move |(slot, _)| (number, slot))
            };
            remains.threads().flat_map(of).collect()
        };
        let first =
            vec![of_thread(client, &[start(0)]), of_thread(server, &[end(0, 0), end(1, 1)])];
        // The start of the second one is not there yet: its end is left for a recording that has it.
        assert_eq!(left(first), [(server, 1)]);
        let second = vec![of_thread(client, &[start(1), start(2)])];
        assert_eq!(left(second), [(client, 2)]);
        assert_eq!(left(vec![of_thread(server, &[end(2, 2)])]), []);
    }

    #[test]
    fn of_what_was_joined_the_last_is_left() {
        let joins = 8 << 56;
        let member = |of: u64| 9 << 56 | 1 << 55 | of;
        let thread = |number, events: &[LoggedEvent]| ThreadPart {
            events: events.to_vec(),
            ..ThreadPart::none(&Shared::of_thread(number))
        };
        let mut remains = CarriedOver::default();
        remains.add(&part(vec![thread(9, &[(4, [joins, 5, 6])])]));
        // What is more than two may come with the part before.
        remains.add(&part(vec![thread(3, &[(0, [member(1), 7, 0])])]));
        let two = [(1, [joins, 5, 6]), (2, [joins, 6, 7])];
        remains.add(&part(vec![thread(3, &two), thread(5, &[(8, [1 << 56, 0, 0])])]));
        let left = |remains: &mut CarriedOver, most| -> Vec<(u64, u64)> {
            remains.forget_joined(most);
            let of = |thread: ThreadPart| {
                let number = thread.shared.number;
                thread.events.into_iter().map(move |(slot, _)| (number, slot))
            };
            remains.threads().flat_map(of).collect()
        };
        assert_eq!(left(&mut remains, 3), [(3, 0), (3, 1), (3, 2), (9, 4)]);
        assert_eq!(left(&mut remains, 2), [(3, 0), (3, 1), (3, 2)]);
        assert_eq!(left(&mut remains, 1), [(3, 2)]);
        assert_eq!(left(&mut remains, 0), []);
    }
}
