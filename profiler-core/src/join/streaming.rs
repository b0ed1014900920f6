//! The join of a running session: calls wait for records, ranges for calls; finished ones are
//! summed.

use std::collections::VecDeque;
use std::time::Duration;

use cupti::{CallClass, Record};
use rustc_hash::FxHashSet;

use crate::collect::request::Sink;
use crate::join::account::{
    CountedOperation, ExpectedRecords, is_failure, may_have_several_records,
};
use crate::join::attribute::Unmatched;
use crate::join::graph_nodes::GraphNodes;
use crate::join::health::Health;
use crate::join::live_ranges::{Done, LiveRanges, REMEMBERED};
use crate::join::sums::{Amount, PathId, Rows, Sums};
use crate::join::totals::Totals;
use crate::join::window_sums::{WindowSums, submits_work};
use crate::record::id_window::{IdWindow, is_up_to};
use crate::record::recording::append::{SessionStart, Taken};
use crate::record::recording::segment::Segment;
use crate::record::recording::{Recording, ranges};

/// The maximum time that a call is stored without its records, and a record without its call, in
/// nanoseconds. If CUPTI has not responded since the call, as under load, the maximum is
/// [`UNANSWERED`] times as long.
const LONGEST_WAIT_NS: u64 = 60_000_000_000;
const UNANSWERED: u64 = 3;
/// The time after its return in which a call may get a record that CUPTI had not begun by then, in
/// nanoseconds.
const GRACE_NS: u64 = 1_000_000_000;
/// The interval between searches for calls without further records, in nanoseconds.
const SETTLE_EVERY_NS: u64 = 100_000_000;
/// Upper bound of records without a known call. Beyond it, the oldest are counted as records
/// without a call.
const MOST_EARLY: usize = 1 << 18;

/// A call with expected records.
#[derive(Debug)]
struct Pending {
    expected: ExpectedRecords,
    /// The range with this call among its pending items.
    waiting: Option<u64>,
    rows: Rows,
    /// False in a pause and before the start, where records are ignored.
    counts: bool,
    /// Its drawn window.
    window: Option<u64>,
    found: bool,
    /// True if the call may give several records.
    has_many: bool,
    /// The time of its return or of its last record.
    last_ns: u64,
}

/// The times that determine which calls count.
#[derive(Debug, Clone, Copy)]
struct Times<'a> {
    /// The windows of the session.
    windows_ns: &'a [(u64, u64)],
    /// The times in which calls could get records, if they are logged at other times too.
    enabled_ns: Option<&'a [(u64, u64)]>,
}

impl Times<'_> {
    fn count(&self, call: &cupti::Call) -> bool {
        cupti::clock::is_within(self.windows_ns, call.start_ns)
    }

    /// True if the call may have records.
    fn enable(&self, call: &cupti::Call) -> bool {
        self.enabled_ns
            .is_none_or(|enabled| cupti::clock::overlaps(enabled, call.start_ns, call.end_ns))
    }
}

/// The calls of a segment that are not added yet, by thread id in order of their ids, except
/// long-running ones.
struct Calls<'a> {
    threads: Vec<(u32, &'a [cupti::Call])>,
    /// The highest id so far.
    until: Option<u32>,
}

impl<'a> Calls<'a> {
    fn new(segment: &'a Segment) -> Self {
        let calls = segment.calls.iter();
        let threads = calls.map(|thread| (thread.thread_id, thread.calls.as_slice())).collect();
        Self { threads, until: None }
    }

    /// Visits the calls up to an id. Ids may wrap.
    #[inline]
    fn visit_until(&mut self, id: u32, mut visit: impl FnMut(u32, &cupti::Call)) {
        if self.until.is_some_and(|until| is_up_to(id, until)) {
            return;
        }
        self.until = Some(id);
        for (thread, calls) in &mut self.threads {
            while let Some((call, rest)) = calls.split_first()
                && is_up_to(call.correlation_id, id)
            {
                visit(*thread, call);
                *calls = rest;
            }
        }
    }

    fn rest(self) -> impl Iterator<Item = (u32, &'a cupti::Call)> {
        let of_thread = |(thread, calls): (u32, &'a [cupti::Call])| {
            calls.iter().map(move |call| (thread, call))
        };
        self.threads.into_iter().flat_map(of_thread)
    }
}

/// A record without a known call.
#[derive(Debug)]
struct Early {
    id: u32,
    since_ns: u64,
    /// The start of its operation on the host's clock.
    start_ns: Option<u64>,
    work: Work,
}

#[derive(Debug, Clone, Copy)]
enum Work {
    /// `captured` is the path in which its graph node was created.
    Operation {
        amount: Amount,
        ns: Option<u64>,
        is_node: bool,
        captured: Option<PathId>,
    },
    Synchronization,
}

/// The state of the join.
#[derive(Debug, Default)]
pub(crate) struct StreamingJoin {
    pub(crate) sums: Sums,
    pub(crate) ranges: LiveRanges,
    pub(crate) health: Health,
    calls: IdWindow<Pending>,
    /// The time of the last search for calls without further records.
    settled_at_ns: u64,
    /// The time since which the longest-waiting call of that search waits, if any does.
    waits_since_ns: Option<u64>,
    /// The class of each function, and whether it may have several records, by the function's id.
    functions: Vec<Option<(CallClass, bool)>>,
    early: VecDeque<Early>,
    nodes: GraphNodes<PathId>,
    /// The sums of drawn windows. Calls outside of windows then count in all sums of calls.
    pub(crate) windows: Option<Box<WindowSums>>,
    /// Records without a call and with an id up to this belong to calls before the session.
    before_id: u32,
    /// True if the collection has no calls before the session.
    has_all_calls: bool,
    /// True once `before_id` is final.
    before_is_final: bool,
    /// The start and the stop of the session.
    pub(crate) start_ns: u64,
    stop_ns: u64,
}

impl Sink for StreamingJoin {
    fn begin(&mut self, start: &SessionStart<'_>) {
        self.ranges.first_log = start.first_log;
        (self.before_id, self.start_ns) = (start.before_id, start.start_ns);
        self.has_all_calls = start.before_id == 0;
        self.before_is_final = start.before_id != 0;
    }

    fn begins_with(&mut self, first_id: u32, is_final: bool) {
        if self.has_all_calls {
            self.before_id = first_id.wrapping_sub(1);
            self.before_is_final = is_final;
        }
    }

    fn add(&mut self, taken: &Taken<'_>) {
        let (segment, open) = (taken.segment, taken.open);
        let times = Times { windows_ns: taken.call_windows_ns, enabled_ns: taken.enabled_ns };
        if let Some(windows) = &mut self.windows {
            windows.see_bounds();
        }
        self.health.add_losses(&segment.losses);
        self.health.set_range_losses(&ranges::losses());
        self.ranges.begin(segment, open, &mut self.sums);
        let events = segment.graphs.iter().flat_map(|thread| &thread.events);
        let ranges = &mut self.ranges;
        self.nodes.add(events, |tag| ranges.owner(tag).range().map(|position| position.path));
        let mut calls = Calls::new(segment);
        self.add_records(segment, &mut calls, times);
        for (thread, call) in calls.rest() {
            self.add_call(thread, call, times.count(call), times.enable(call));
        }
        self.retry_early(segment.until_ns);
        self.settle(segment);
        let open = taken.open_calls.calls.iter();
        let open = open.flat_map(|of| of.calls.iter().map(|call| (of.thread_id, call)));
        self.ranges.hold(open, segment.until_ns, &self.sums);
        self.ranges.end(segment, &mut self.sums);
        if let Some(windows) = &mut self.windows {
            let open = taken.open_calls.surely_under_way();
            let submits = open.filter(|call| submits_work(call.function.class()));
            let until_ns = submits.map(|call| call.start_ns).min().unwrap_or(segment.until_ns);
            windows.settle(until_ns, &self.sums.tables);
        }
        self.health.facts.pending_calls = self.calls.len() as u64;
        self.health.facts.summed_as_other = self.sums.summed_as_other;
        self.health.facts.orphaned_ranges = self.ranges.orphaned;
    }

    fn waits_since_ns(&self) -> Option<u64> {
        self.waits_since_ns
    }
}

impl StreamingJoin {
    /// Stores up to `most_done` finished ranges until they are taken, and up to `most_rows` rows of
    /// each kind.
    pub(crate) fn new(most_done: usize, most_rows: usize) -> Self {
        Self {
            sums: Sums::new(most_rows),
            ranges: LiveRanges::new(most_done),
            nodes: GraphNodes::new(REMEMBERED),
            stop_ns: u64::MAX,
            ..Self::default()
        }
    }

    /// Takes the ranges finished since the last call.
    #[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "a layer asks for it"))]
    pub(crate) fn take_done(&mut self) -> VecDeque<Done> {
        std::mem::take(&mut self.ranges.done)
    }

    fn add_call(&mut self, thread: u32, call: &cupti::Call, counts: bool, is_enabled: bool) {
        let (class, has_many) = self.function(call.function);
        let expected = ExpectedRecords {
            class,
            end_ns: call.end_ns,
            is_failure: is_failure(class, call.result),
            captured: call.captured,
            empty: call.empty,
        };
        let (mut rows, mut tag) = (Rows::default(), call.word);
        self.health.facts.calls_outside += u64::from(!counts);
        if counts || self.windows.is_some() {
            let owner = self.ranges.owner(tag);
            self.health.count_owner(&owner);
            if let Some(position) = owner.range() {
                tag = position.tag;
                rows = position.into_rows();
                let at = (thread, call.start_ns);
                self.ranges.leave_ended_out(tag, at, &mut rows, &self.sums);
            }
            let ns = call.end_ns.map_or(0, |end| end.saturating_sub(call.start_ns));
            let add =
                |to: &mut Totals| to.add_call(class, expected.is_failure, expected.captured, ns);
            self.sums.add(&rows, add);
            self.ranges.add(tag, &rows, add);
        }
        let is_submission = is_submission(&expected);
        if is_submission && self.windows.is_some() && !(counts && is_enabled) {
            self.ranges.submitted_outside(tag, &rows);
        }
        if !is_enabled {
            if let Some(windows) = self.windows.as_mut().filter(|_| is_submission) {
                windows.count_call(&rows);
            }
            return;
        }
        if !expected.may_have_records() {
            if counts {
                self.health.count_calls(1, &expected, false, false, None);
            }
            return;
        }
        let waits = counts && expected.expects_records();
        let waiting = if waits { self.ranges.start_waiting(tag, &rows) } else { None };
        let last_ns = expected.end_ns.unwrap_or(call.start_ns);
        let found = false;
        let windows = self.windows.as_mut().filter(|_| is_submission);
        let window = windows.and_then(|windows| windows.add_call(&rows, call.start_ns));
        let pending = Pending { expected, waiting, rows, counts, window, found, has_many, last_ns };
        if let Some(earlier) = self.calls.insert(call.correlation_id, pending) {
            self.finish_call(&earlier);
        }
    }

    /// Returns the class of a function, and whether one call can give several records.
    #[inline]
    fn function(&mut self, function: cupti::DriverFunction) -> (CallClass, bool) {
        match self.functions.get(function.0 as usize) {
            Some(Some(known)) => *known,
            _ => self.new_function(function),
        }
    }

    #[cold]
    fn new_function(&mut self, function: cupti::DriverFunction) -> (CallClass, bool) {
        let (class, name) = (function.class(), function.name());
        let has_many = may_have_several_records(class, name);
        // A damaged file may contain any number.
        if class != CallClass::Unknown {
            let row = function.0 as usize;
            if row >= self.functions.len() {
                self.functions.resize(row + 1, None);
            }
            self.functions[row] = Some((class, has_many));
        }
        (class, has_many)
    }

    fn retry_early(&mut self, now_ns: u64) {
        for early in std::mem::take(&mut self.early) {
            if !self.add_work(early.id, early.work, now_ns) {
                self.keep_early(early, now_ns);
            }
        }
    }

    /// Adds calls as records require them, so that pending calls stay few in a segment of any
    /// length.
    fn add_records(&mut self, segment: &Segment, calls: &mut Calls<'_>, times: Times<'_>) {
        let clock_step = &mut self.health.losses.clock_step;
        *clock_step = Duration::from_nanos(segment.clock.step_ns()).max(*clock_step);
        let now_ns = segment.until_ns;
        for record in &segment.records {
            self.health.records += 1;
            let (operation, id) = match record {
                Record::Kernel(kernel) => {
                    let name = self.sums.kernel_name(segment, kernel.name);
                    let operation = (Amount::Kernel(name), kernel.span, kernel.graph_node);
                    (Some(operation), kernel.correlation_id)
                }
                Record::Memcpy(copy) => {
                    let amount = Amount::Copy(copy.kind, copy.bytes);
                    (Some((amount, copy.span, copy.graph_node)), copy.correlation_id)
                }
                Record::Memset(set) => {
                    let amount = Amount::Memset(set.bytes);
                    (Some((amount, set.span, set.graph_node)), set.correlation_id)
                }
                Record::GraphTrace(graph) => {
                    (Some((Amount::Graph, graph.span, None)), graph.correlation_id)
                }
                Record::Synchronization(record) => (None, record.correlation_id),
                other => {
                    self.health.count_other(&other);
                    continue;
                }
            };
            calls.visit_until(id, |thread, call| {
                self.add_call(thread, call, times.count(call), times.enable(call));
            });
            let work = match operation {
                None => Work::Synchronization,
                Some((amount, span, node)) => {
                    let captured = node.and_then(|node| self.nodes.range(node.node));
                    let ns = span.is_known().then(|| span.end_ns.saturating_sub(span.start_ns));
                    Work::Operation { amount, ns, is_node: node.is_some(), captured }
                }
            };
            if !self.add_work(id, work, now_ns) {
                let span = operation.map(|(_, span, _)| span).filter(|span| span.is_known());
                let start_ns = span.map(|span| segment.clock.monotonic_ns(span.start_ns));
                self.keep_early(Early { id, since_ns: now_ns, start_ns, work }, now_ns);
            }
        }
    }

    /// Stores a record without a known call if the call may still arrive.
    #[cold]
    fn keep_early(&mut self, early: Early, now_ns: u64) {
        let is_before = || early.without_call(self) == Unmatched::BeforeSession;
        if self.before_is_final && is_before()
            || now_ns.saturating_sub(early.since_ns) >= LONGEST_WAIT_NS
        {
            self.give_up(&early);
            return;
        }
        self.early.push_back(early);
        if self.early.len() > MOST_EARLY
            && let Some(oldest) = self.early.pop_front()
        {
            self.give_up(&oldest);
        }
    }

    /// Adds a record to its call; false if the call is not known.
    fn add_work(&mut self, id: u32, work: Work, now_ns: u64) -> bool {
        let Some(pending) = self.calls.get_mut(id) else { return false };
        pending.found = true;
        pending.last_ns = pending.last_ns.max(now_ns);
        let (waiting, counts, is_done) = (pending.waiting, pending.counts, !pending.has_many);
        let window = pending.window;
        if counts {
            let rows = pending.rows.clone();
            self.count_work(work, &rows, true);
            if let (Some(windows), Work::Operation { ns, .. }) = (&mut self.windows, work) {
                windows.add_time(window, &rows, ns.unwrap_or_default());
            }
            if let (Work::Operation { amount, ns, .. }, Some(tag)) = (work, waiting) {
                let ns = ns.unwrap_or_default();
                self.ranges.add(tag, &rows, |totals| amount.add_to(totals, ns));
            }
        }
        if is_done && let Some(pending) = self.calls.remove(id) {
            self.finish_call(&pending);
        }
        true
    }

    #[inline]
    fn count_work(&mut self, work: Work, rows: &Rows, has_call: bool) {
        let Work::Operation { amount, ns, is_node, captured } = work else {
            self.health.count_synchronization(has_call);
            return;
        };
        self.health.count_operation(&CountedOperation {
            class: amount.class(),
            has_call,
            has_times: ns.is_some(),
            is_node,
            is_captured: captured.is_some(),
        });
        // An operation without timestamps adds no time.
        self.sums.add_operation(amount, ns.unwrap_or_default(), rows, captured);
    }

    /// Counts a record whose call is missing.
    fn give_up(&mut self, early: &Early) {
        match early.without_call(self) {
            Unmatched::BeforeSession => self.health.facts.records_before += 1,
            Unmatched::AfterStop => {}
            Unmatched::Missing => self.count_work(early.work, &Rows::default(), false),
        }
    }

    /// Finishes the calls without further records, and ends the wait for calls that most likely
    /// have none.
    fn settle(&mut self, segment: &Segment) {
        let (settled_ns, answered_ns, now_ns) =
            (segment.settled_ns, segment.answered_ns, segment.until_ns);
        if now_ns.saturating_sub(self.settled_at_ns) < SETTLE_EVERY_NS {
            return;
        }
        self.settled_at_ns = now_ns;
        let (mut settled, mut quiet) = (Vec::new(), Vec::new());
        let mut waits_since_ns = None;
        for (id, pending) in self.calls.iter() {
            // Without an end the call may have returned at any time since, unseen.
            let end_ns = pending.expected.end_ns.unwrap_or(pending.last_ns);
            let after_ns = end_ns.saturating_add(GRACE_NS);
            let longest_ns = match pending.expected.expects_records() {
                true if answered_ns > end_ns => LONGEST_WAIT_NS,
                true => UNANSWERED * LONGEST_WAIT_NS,
                false => GRACE_NS,
            };
            // A partly filled buffer may hold further records until CUPTI is flushed.
            let since_ns = |ns: u64| ns.saturating_sub(pending.last_ns);
            let is_quiet = since_ns(answered_ns) >= GRACE_NS || since_ns(now_ns) >= LONGEST_WAIT_NS;
            if after_ns < settled_ns || now_ns.saturating_sub(end_ns) >= longest_ns {
                settled.push(id);
            } else if pending.found && pending.waiting.is_some() && is_quiet {
                quiet.push(id);
            } else {
                // For calls that may have further records, only the range waits.
                let waits_ns = match pending.found {
                    true => pending.waiting.map(|_| pending.last_ns),
                    false => pending.expected.expects_records().then_some(end_ns),
                };
                waits_since_ns = waits_since_ns.into_iter().chain(waits_ns).min();
            }
        }
        self.waits_since_ns = waits_since_ns;
        for id in quiet {
            if let Some(pending) = self.calls.get_mut(id)
                && let Some(tag) = pending.waiting.take()
            {
                self.ranges.stop_waiting(tag, &pending.rows, &mut self.sums);
            }
        }
        for id in settled {
            if let Some(pending) = self.calls.remove(id) {
                self.finish_call(&pending);
            }
        }
    }

    fn finish_call(&mut self, pending: &Pending) {
        if pending.counts {
            self.health.count_calls(1, &pending.expected, pending.found, pending.found, None);
        }
        if let Some(tag) = pending.waiting {
            self.ranges.stop_waiting(tag, &pending.rows, &mut self.sums);
        }
        if let Some(windows) = &mut self.windows {
            windows.finish_call(pending.window);
        }
    }

    /// Ends the join: no further records arrive. Calls that had not returned are in the recording,
    /// but in no segment.
    pub(crate) fn end(&mut self, recording: Option<&Recording>) {
        if let Some(recording) = recording {
            self.stop_ns = recording.window_ns.1;
            let within =
                |call: &cupti::Call| cupti::clock::is_within(&recording.windows_ns, call.start_ns);
            let calls = || {
                let threads = recording.calls.iter();
                threads.flat_map(|of| of.calls.iter().map(|call| (of.thread_id, call)))
            };
            for (thread, call) in calls().filter(|(_, call)| call.end_ns.is_none()) {
                self.add_call(thread, call, within(call), true);
            }
            // Calls that returned since the last segment, whose records arrived earlier.
            let mut early: FxHashSet<u32> = self.early.iter().map(|early| early.id).collect();
            early.retain(|id| self.calls.get_mut(*id).is_none());
            for (thread, call) in calls().filter(|(_, call)| call.end_ns.is_some()) {
                if early.remove(&call.correlation_id) {
                    self.add_call(thread, call, within(call), true);
                }
            }
            self.retry_early(self.stop_ns);
        }
        self.ranges.end_process_ranges(u64::MAX, &mut self.sums);
        let ids: Vec<u32> = self.calls.iter().map(|(id, _)| id).collect();
        for id in ids {
            if let Some(mut pending) = self.calls.remove(id) {
                // As in a recording, the work of calls that returned after the cut is not known.
                let is_late = pending.expected.end_ns.is_some_and(|end_ns| end_ns >= self.stop_ns);
                if is_late && !pending.found && pending.expected.expects_records() {
                    pending.expected.end_ns = None;
                }
                self.finish_call(&pending);
            }
        }
        for early in std::mem::take(&mut self.early) {
            self.give_up(&early);
        }
        self.health.facts.pending_calls = 0;
        if let Some(windows) = &mut self.windows {
            windows.see_bounds();
            windows.settle(u64::MAX, &self.sums.tables);
        }
        // Segments do not contain these counts, which cover the whole recording.
        if let Some(losses) = recording.map(|recording| &recording.losses) {
            self.health.set_range_losses(losses);
            self.health.facts.forgotten_lanes = losses.forgotten_lanes;
        }
        self.health.facts.summed_as_other = self.sums.summed_as_other;
        self.health.facts.open_ranges = self.ranges.open();
    }
}

/// True if a successful call submits work and is not captured into a graph.
fn is_submission(expected: &ExpectedRecords) -> bool {
    submits_work(expected.class) && !expected.is_failure && !expected.captured && !expected.empty
}

impl Early {
    fn without_call(&self, join: &StreamingJoin) -> Unmatched {
        Unmatched::classify(self.id, join.before_id, self.start_ns, join.stop_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_with_several_records_are_held_until_complete() {
        let mut join = StreamingJoin::new(0, 10);
        for (name, has_many) in [("cuMemcpyPeerAsync", true), ("cuMemcpyDtoDAsync_v2", false)] {
            let function = cupti::DriverFunction::by_name(name).unwrap_or(cupti::DriverFunction(0));
            assert_eq!(join.function(function), (CallClass::Memcpy, has_many), "{name}");
        }
    }

    #[test]
    fn calls_are_visited_up_to_the_id_of_a_record() {
        let call = |id| {
            let mut call = cupti::Call::from_words([0; 5]);
            call.correlation_id = id;
            call
        };
        let last = u32::MAX;
        // The ids wrap; the second thread's first call ran long.
        let threads: [Vec<cupti::Call>; 2] =
            [[last - 3, last, 2].map(call).to_vec(), [last - 9, last - 1, 1, 5].map(call).to_vec()];
        let threads = threads.iter().map(|calls| (0, calls.as_slice())).collect();
        let mut calls = Calls { threads, until: None };
        let mut until = |id| {
            let mut ids = Vec::new();
            calls.visit_until(id, |_, call| ids.push(call.correlation_id));
            ids
        };
        assert_eq!(until(last - 1), [last - 3, last - 9, last - 1]);
        assert!(until(last - 2).is_empty());
        assert_eq!(until(1), [last, 1]);
        let rest: Vec<u32> = calls.rest().map(|(_, call)| call.correlation_id).collect();
        assert_eq!(rest, [2, 5]);
    }
}
