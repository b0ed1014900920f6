//! Inferred ranges of calls outside all ranges: the range of the thread that waited meanwhile.
//!
//! PyTorch's autograd thread, for example, launches while the caller of `backward` waits in its
//! range. No record states this; four facts together suggest it:
//!
//! - the call was made outside all ranges, by a helper, a thread without an open range;
//! - another thread of the process was in one segment of one range during the whole call, and made
//!   no call itself meanwhile;
//! - both threads [take turns](Encounters::take_turns) in the whole recording: calls of threads
//!   that work at the same time overlap occasionally;
//! - the helper opens no ranges of that name and domain itself, unlike the workers of a pool.
//!
//! With two such threads nothing is inferred. Exact attribution is never changed: the ranges have a
//! separate table. Costs a sort of segments and of calls outside ranges, and a pass over each.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use profiler_base::order;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::join::attribute::{Encounters, Inference};
use crate::join::segments::{Piece, innermost};
use crate::join::tables::{CallId, Interval, LabelId, Maybe, RangeId, Tables, ThreadId};

/// The inferred ranges of a store.
#[derive(Debug, Default)]
pub(crate) struct Inferred {
    /// The range of each call; empty if none was inferred.
    pub(crate) ranges: Vec<Maybe<RangeId>>,
    /// Calls outside all ranges during which several threads waited.
    pub(crate) undecided: u64,
}

/// The maximum number of threads in ranges at a time for an inference: each call visits all of
/// them.
const MOST_OPEN: usize = 32;

/// A thread's time in ranges and its calls.
#[derive(Default)]
struct Lane {
    /// The innermost ranges: sorted, disjoint.
    ranges: Vec<Piece<RangeId>>,
    /// The calls, in call order.
    calls: Vec<Interval>,
    /// The share of the time in ranges that is spent in calls.
    share: f64,
}

/// Infers the ranges of calls of all processes.
pub(crate) fn infer(store: &Tables) -> Inferred {
    let mut lanes: Vec<Lane> = Vec::new();
    lanes.resize_with(store.threads.len(), Lane::default);
    let mut ranges: Vec<Vec<Piece<RangeId>>> = Vec::new();
    ranges.resize_with(store.threads.len(), Vec::new);
    for (row, range) in (0..).map(RangeId).zip(&store.ranges) {
        ranges[range.thread.at()].push(Piece { time: range.time, of: row });
    }
    let mut in_calls = vec![0_u64; store.threads.len()];
    let mut helpers: FxHashMap<u32, Vec<CallId>> = FxHashMap::default();
    for (row, call) in (0..).map(CallId).zip(&store.calls) {
        let kind = store.call_kind(call);
        lanes[call.thread.at()].calls.push(time_of(store, row));
        if call.range.get().is_some() {
            let ns = &mut in_calls[call.thread.at()];
            *ns = ns.saturating_add(call.time.ns());
        } else if !kind.range_is_unknown {
            let process = store.threads[call.thread.at()].process;
            helpers.entry(process).or_default().push(row);
        }
    }
    for (lane, (ranges, in_calls)) in lanes.iter_mut().zip(ranges.into_iter().zip(in_calls)) {
        lane.ranges = innermost(ranges);
        let in_ranges: u64 = lane.ranges.iter().map(|piece| piece.time.ns()).sum();
        lane.share = in_calls as f64 / in_ranges.max(1) as f64;
    }
    let mut segments: FxHashMap<u32, Vec<(ThreadId, Piece<RangeId>)>> = FxHashMap::default();
    for (thread, lane) in (0..).map(ThreadId).zip(&lanes) {
        let process = store.threads[thread.at()].process;
        if helpers.contains_key(&process) {
            let of_process = segments.entry(process).or_default();
            of_process.extend(lane.ranges.iter().map(|piece| (thread, *piece)));
        }
    }
    let mut inferred = Inferred::default();
    if segments.is_empty() {
        return inferred;
    }
    // The names and domains of the ranges that each thread opens.
    let opened: FxHashSet<_> =
        store.ranges.iter().map(|range| (range.thread, range.label)).collect();
    for (process, mut segments) in segments {
        let Some(mut calls) = helpers.remove(&process) else { continue };
        order::sort_by_number(&mut segments, |(_, piece)| piece.time.start_ns);
        order::sort_by_number(&mut calls, |call| store.calls[call.at()].time.start_ns);
        infer_process(store, &lanes, &opened, &segments, &calls, &mut inferred);
    }
    inferred
}

/// The time of a call; for a call that had not returned, all later time.
fn time_of(store: &Tables, call: CallId) -> Interval {
    let row = &store.calls[call.at()];
    match store.call_kind(row).has_returned {
        true => row.time,
        false => Interval { end_ns: u64::MAX, ..row.time },
    }
}

/// Infers the ranges of the calls of one process. Segments and calls are in the order of their
/// starts.
fn infer_process(
    store: &Tables,
    lanes: &[Lane],
    opened: &FxHashSet<(ThreadId, LabelId)>,
    segments: &[(ThreadId, Piece<RangeId>)],
    calls: &[CallId],
    inferred: &mut Inferred,
) {
    let mut encounters: FxHashMap<(ThreadId, ThreadId), Encounters> = FxHashMap::default();
    let mut sweep = Sweep::new(lanes, segments);
    for &call in calls {
        let (time, helper) = (time_of(store, call), store.calls[call.at()].thread);
        for open in sweep.open_at(time, helper).into_iter().flatten() {
            let pair = encounters.entry((helper, open.thread)).or_default();
            pair.calls += 1;
            pair.overlapping += u64::from(open.is_in_call);
        }
    }
    let take_turns = |helper: ThreadId, thread: ThreadId| {
        let pair = encounters.get(&(helper, thread));
        pair.is_some_and(|pair| pair.take_turns(lanes[thread.at()].share))
    };
    let mut sweep = Sweep::new(lanes, segments);
    for &call in calls {
        let (time, helper) = (time_of(store, call), store.calls[call.at()].thread);
        let Some(open) = sweep.open_at(time, helper) else {
            inferred.undecided += 1;
            continue;
        };
        let waiting = open.iter().filter(|open| {
            let is_throughout = open.segment.time.end_ns >= time.end_ns;
            let is_peer = || opened.contains(&(helper, store.ranges[open.segment.of.at()].label));
            let waits = is_throughout && !open.is_in_call;
            waits && !is_peer() && take_turns(helper, open.thread)
        });
        match Inference::decide(waiting.map(|open| open.segment.of)) {
            Inference::None => {}
            Inference::Undecided => inferred.undecided += 1,
            Inference::Waiting(range) => {
                if inferred.ranges.is_empty() {
                    inferred.ranges = vec![Maybe::NONE; store.calls.len()];
                }
                inferred.ranges[call.at()] = Some(range).into();
            }
        }
    }
}

/// A thread with an open range at the start of a call.
struct Open {
    thread: ThreadId,
    segment: Piece<RangeId>,
    /// True if a call of the thread overlaps the call.
    is_in_call: bool,
}

/// The threads with an open range, over calls in the order of their starts.
struct Sweep<'a> {
    lanes: &'a [Lane],
    /// Segments that begin later.
    later: &'a [(ThreadId, Piece<RangeId>)],
    open: FxHashMap<ThreadId, Piece<RangeId>>,
    /// The ends of the open segments.
    ends: BinaryHeap<Reverse<(u64, ThreadId)>>,
    /// The number of ended calls of each thread.
    ended: FxHashMap<ThreadId, usize>,
}

impl<'a> Sweep<'a> {
    fn new(lanes: &'a [Lane], segments: &'a [(ThreadId, Piece<RangeId>)]) -> Self {
        let (open, ends, ended) = Default::default();
        Self { lanes, later: segments, open, ends, ended }
    }

    /// The threads with an open range at the start of the next call; none if the helper has one
    /// itself. `None` if there are too many.
    fn open_at(&mut self, time: Interval, helper: ThreadId) -> Option<Vec<Open>> {
        while let Some((&(thread, segment), rest)) = self.later.split_first()
            && segment.time.start_ns <= time.start_ns
        {
            self.later = rest;
            self.open.insert(thread, segment);
            self.ends.push(Reverse((segment.time.end_ns, thread)));
        }
        while let Some(Reverse((end_ns, thread))) = self.ends.peek().copied()
            && end_ns <= time.start_ns
        {
            self.ends.pop();
            // The next segment of the thread may have begun where this one ended.
            let is_over = |segment: &Piece<RangeId>| segment.time.end_ns <= time.start_ns;
            if self.open.get(&thread).is_some_and(is_over) {
                self.open.remove(&thread);
            }
        }
        if self.open.contains_key(&helper) {
            return Some(Vec::new());
        }
        if self.open.len() > MOST_OPEN {
            return None;
        }
        let mut open = Vec::with_capacity(self.open.len());
        for (&thread, &segment) in &self.open {
            let calls = &self.lanes[thread.at()].calls;
            let ended = self.ended.entry(thread).or_default();
            while calls.get(*ended).is_some_and(|call| call.end_ns <= time.start_ns) {
                *ended += 1;
            }
            let is_in_call = calls.get(*ended).is_some_and(|call| call.start_ns < time.end_ns);
            open.push(Open { thread, segment, is_in_call });
        }
        Some(open)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use cupti::CallClass;

    use super::*;
    use crate::join::tables::{Api, Call, CallKind, Label, Range, Thread};

    fn store(threads: u32) -> Tables {
        let mut store = Tables::default();
        let name = store.names.intern("cuLaunchKernel");
        store.labels.push(Label { name, domain: None, category: None, color: None });
        store.intern_call_kind(CallKind::new(name, Api::Driver, CallClass::KernelLaunch));
        let thread = |id| Thread { id, process: 0, name: None, priority: None };
        store.threads = (0..threads).map(thread).collect();
        store
    }

    fn add_range(store: &mut Tables, thread: u32, (start_ns, end_ns): (u64, u64)) -> RangeId {
        store.ranges.push(Range {
            time: Interval { start_ns, end_ns },
            label: LabelId(0),
            thread: ThreadId(thread),
            parent: Maybe::NONE,
            is_open: false,
        });
        RangeId(store.ranges.len() as u32 - 1)
    }

    /// Calls of 30 ns at these times.
    fn add_calls(
        store: &mut Tables,
        thread: u32,
        range: Option<RangeId>,
        starts: impl Iterator<Item = u64>,
    ) {
        for start_ns in starts {
            store.calls.push(Call {
                time: Interval { start_ns, end_ns: start_ns + 30 },
                correlation_id: store.calls.len() as u32,
                kind: crate::join::tables::CallKindId(0),
                thread: ThreadId(thread),
                range: range.into(),
            });
        }
    }

    fn count(store: &Tables, range: RangeId) -> usize {
        infer(store).ranges.iter().filter(|inferred| inferred.get() == Some(range)).count()
    }

    /// Each of two threads launches at its own pace, one of them in a range.
    #[test]
    fn independent_threads_do_not_wait_for_each_other() {
        for pace in [70, 97, 211, 1_009] {
            let mut store = store(2);
            let range = add_range(&mut store, 0, (0, 10_000_000));
            add_calls(&mut store, 0, Some(range), (0..10_000).map(|at| 1_000 * at));
            add_calls(&mut store, 1, None, (0..10_000).map(|at| 5 + pace * at));
            assert_eq!(count(&store, range), 0, "{pace}");
        }
    }

    /// Two calls in a thousand overlap: the helper tidies up while the other thread goes on.
    #[test]
    fn threads_that_take_turns_may_overlap_now_and_then() {
        let mut store = store(2);
        let outer = add_range(&mut store, 0, (0, 1_000_000));
        for step in 0..10 {
            let start = 100_000 * step;
            add_calls(&mut store, 0, Some(outer), (0..500).map(|at| start + 100 * at));
            add_calls(&mut store, 1, None, (0..500).map(|at| start + 50_000 + 100 * at + 10));
            add_calls(&mut store, 1, None, std::iter::once(start + 99_985));
        }
        assert_eq!(count(&store, outer), 5_000);
    }

    #[test]
    fn call_that_outlasts_the_segment_of_a_range_has_no_inferred_range() {
        let mut store = store(2);
        let outer = add_range(&mut store, 0, (0, 1_000));
        let inner = add_range(&mut store, 0, (100, 200));
        add_calls(&mut store, 1, None, [110, 150, 180, 300, 980].into_iter());
        assert_eq!((count(&store, inner), count(&store, outer)), (2, 1));
    }

    #[test]
    fn call_in_an_unknown_range_is_not_outside_of_all() {
        let mut store = store(2);
        let range = add_range(&mut store, 0, (0, 1_000));
        let unknown = CallKind { range_is_unknown: true, ..*store.call_kinds.row(0) };
        let unknown = store.intern_call_kind(unknown);
        add_calls(&mut store, 1, None, [100, 200].into_iter());
        store.calls[1].kind = unknown;
        assert_eq!(count(&store, range), 1);
    }

    /// Workers of a pool with a request each: what one does between its own requests is none of another's.
    #[test]
    fn thread_with_such_ranges_of_its_own_is_no_helper() {
        let mut store = store(3);
        let range = add_range(&mut store, 0, (0, 1_000));
        add_range(&mut store, 1, (2_000, 3_000));
        add_calls(&mut store, 1, None, [100, 200].into_iter());
        assert_eq!((count(&store, range), infer(&store).undecided), (0, 0));
        add_calls(&mut store, 2, None, std::iter::once(300));
        assert_eq!(count(&store, range), 1, "a thread without ranges is one");
    }

    #[test]
    fn call_that_has_not_returned_outlasts_every_ended_range() {
        let mut store = store(2);
        let range = add_range(&mut store, 0, (0, 1_000));
        let open = CallKind { has_returned: false, ..*store.call_kinds.row(0) };
        let open = store.intern_call_kind(open);
        add_calls(&mut store, 1, None, [100, 200].into_iter());
        store.calls[1].kind = open;
        assert_eq!(count(&store, range), 1);
    }

    /// A server whose threads all wait in a range: nothing can be inferred, and that is detected at once.
    #[test]
    #[ignore = "needs the clock: bash .ci/run thorough"]
    fn thousands_of_waiting_threads_cost_no_more_than_a_few() {
        let time = |threads: u32| {
            let mut store = store(threads + 1);
            for thread in 1..=threads {
                add_range(&mut store, thread, (u64::from(thread), 1_000_000_000));
            }
            add_calls(&mut store, 0, None, (0..20_000).map(|at| 1_000_000 + 100 * at));
            let begun = Instant::now();
            let inferred = infer(&store);
            assert_eq!((inferred.ranges.len(), inferred.undecided), (0, 20_000));
            begun.elapsed().as_secs_f64()
        };
        let (few, many) = (time(20), time(5_000));
        assert!(many < 5.0 * few.max(0.01), "{few} s with 20 threads, {many} s with 5,000");
    }
}
