//! Process ranges: they may overlap, end on another thread, and have activations on many threads.

use std::ops::Range as Span;
use std::time::Duration;

use profiler_base::getters;
use rustc_hash::FxHashMap;

use crate::join::range_tree::{add_call, add_operation};
use crate::join::tables::{self, NameId, ProcessRangeId, Subject, Tables, ThreadId};
use crate::join::totals::Totals;
use crate::profile::labels::{Labelled, label_methods};
use crate::profile::{Profile, Range};

/// A process range, such as the life of a future or a request; a start/end range of NVTX.
///
/// Its exact work is the work of its [`activations`](Self::activations): the thread ranges that the
/// program assigned to it, such as the polls of an annotated `async fn`. Without activations,
/// [`Profile::process_range_groups`] has its work by time.
#[derive(Debug, Clone, Copy)]
pub struct ProcessRange<'a> {
    profile: &'a Profile,
    id: ProcessRangeId,
}

label_methods!(ProcessRange);

impl<'a> ProcessRange<'a> {
    fn row(&self) -> &'a tables::ProcessRange {
        &self.profile.store.process_ranges[self.id.at()]
    }

    /// The start since the session's start.
    pub fn start(&self) -> Duration {
        self.profile.since_start(self.row().time.start_ns)
    }

    getters! {
        /// The time from its start to its end, or to the stop if open. Its activations may cover
        /// less.
        host_time: Duration = Duration::from_nanos(row().time.ns());
        /// True if it had not ended at the stop.
        is_open: bool = row().end_thread.is_none();
    }

    /// The kernel's id of the thread that ended it; `None` if it had not ended.
    pub fn end_thread_id(&self) -> Option<u32> {
        Some(self.profile.store.threads[self.row().end_thread?.at()].id)
    }

    /// The enclosing range on the thread that started it.
    pub fn parent(&self) -> Option<Range<'a>> {
        self.row().parent.map(|id| Range { profile: self.profile, id })
    }

    /// The thread ranges that activated it, on any thread, by start.
    pub fn activations(&self) -> impl Iterator<Item = Range<'a>> {
        let profile = self.profile;
        profile.tree.activations[self.id.at()].iter().map(|&id| Range { profile, id })
    }

    /// The totals of its activations with their descendants. Summed on each call.
    pub fn inclusive(&self) -> Totals {
        self.profile.tree.of_process_range(&self.profile.store, self.id)
    }
}

impl Profile {
    /// All process ranges, by starting thread in start order.
    pub fn process_ranges(&self) -> impl Iterator<Item = ProcessRange<'_>> {
        let rows = 0..self.store.process_ranges.len() as u32;
        rows.map(|row| ProcessRange { profile: self, id: ProcessRangeId(row) })
    }

    /// The process ranges by name and domain, in the order they first began, with their work. Costs
    /// a pass over calls and operations, and a sort of the process ranges.
    pub fn process_range_groups(&self) -> Vec<ProcessRangeGroup<'_>> {
        let store = &self.store;
        let threads = calls_of_threads(store);
        let mut of_name: FxHashMap<(Option<NameId>, NameId), usize> = FxHashMap::default();
        let mut groups: Vec<ProcessRangeGroup<'_>> = Vec::new();
        for range in self.process_ranges() {
            let (row, label) = (range.row(), store.label(range.row().label));
            let at = *of_name.entry((label.domain, label.name)).or_insert_with(|| {
                groups.push(ProcessRangeGroup {
                    profile: self,
                    ranges: Vec::new(),
                    totals: Totals::default(),
                    calls: Vec::new(),
                });
                groups.len() - 1
            });
            groups[at].ranges.push(range.id);
            let all = threads.get(&row.thread).cloned().unwrap_or_default();
            groups[at].calls.push(calls_within(store, all, row));
        }
        for group in &mut groups {
            match group.is_by_time() {
                true => unite(&mut group.calls),
                false => group.calls.clear(),
            }
        }
        let sums = CallSums::new(store, groups.iter().flat_map(|group| &group.calls));
        for group in &mut groups {
            let mut totals = Totals::default();
            group.calls.iter().for_each(|calls| totals += sums.totals(calls));
            if !group.is_by_time() {
                group.ranges().for_each(|range| totals += range.inclusive());
            }
            group.totals = totals;
        }
        groups.sort_by_key(|group| group.ranges().map(|range| range.start()).min());
        groups
    }
}

/// The process ranges of one name and domain.
#[derive(Debug, Clone)]
pub struct ProcessRangeGroup<'a> {
    profile: &'a Profile,
    /// The process ranges; at least one.
    ranges: Vec<ProcessRangeId>,
    totals: Totals,
    /// The calls of its work by time, as disjoint positions in the call table, in order.
    calls: Vec<Span<usize>>,
}

impl<'a> ProcessRangeGroup<'a> {
    /// The process ranges, by starting thread in start order.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = ProcessRange<'a>> {
        let profile = self.profile;
        self.ranges.iter().map(move |&id| ProcessRange { profile, id })
    }

    fn first(&self) -> ProcessRange<'a> {
        ProcessRange { profile: self.profile, id: self.ranges[0] }
    }
    getters! {
        /// Their name.
        name: &'a str = first().name();
        /// The domain's name; `None` is the default domain.
        domain: Option<&'a str> = first().domain();
        /// Their work; see [`is_by_time`](Self::is_by_time). Work within several of them counts once.
        inclusive: Totals = totals;
    }

    /// Their number.
    pub fn instances(&self) -> u64 {
        self.ranges.len() as u64
    }

    /// The number of ranges that had not ended at the stop. They count until the stop.
    pub fn open(&self) -> u64 {
        self.ranges().filter(ProcessRange::is_open).count() as u64
    }

    /// The sum of host times; overlapping ranges count separately.
    pub fn host_time(&self) -> Duration {
        self.ranges().map(|range| range.host_time()).fold(Duration::ZERO, Duration::saturating_add)
    }

    /// True if none has activations. The work is then attributed by time: the work that the
    /// starting thread submitted until the range ended, on whichever thread. This is exact if that
    /// thread did nothing else. The work is also attributed to the thread ranges around its calls.
    /// False for the exact work of activations.
    pub fn is_by_time(&self) -> bool {
        let tree = &self.profile.tree;
        self.ranges.iter().all(|id| tree.activations[id.at()].is_empty())
    }

    /// The operations of its work, by start.
    pub fn operations(&self) -> Vec<tables::OperationId> {
        let store = &self.profile.store;
        let is_within = |call: usize| {
            let next = self.calls.partition_point(|calls| calls.end <= call);
            self.calls.get(next).is_some_and(|calls| calls.contains(&call))
        };
        if self.is_by_time() {
            let rows = (0..).map(tables::OperationId).zip(&store.operations);
            let own = rows.filter(|(_, row)| row.call.get().is_some_and(|id| is_within(id.at())));
            return own.map(|(id, _)| id).collect();
        }
        let activations = self.ranges().flat_map(|range| range.activations().collect::<Vec<_>>());
        let mut rows: Vec<_> =
            activations.flat_map(|range| self.profile.tree.operations(range.id)).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// The times of the ranges.
    pub fn times(&self) -> impl Iterator<Item = tables::Interval> {
        self.ranges().map(|range| range.row().time)
    }
}

/// The positions of each thread's calls in the call table.
fn calls_of_threads(store: &Tables) -> FxHashMap<ThreadId, Span<usize>> {
    let mut threads: FxHashMap<ThreadId, Span<usize>> = FxHashMap::default();
    for (row, call) in store.calls.iter().enumerate() {
        threads.entry(call.thread).or_insert(row..row).end = row + 1;
    }
    threads
}

/// The number of calls at the end of a range that are compared with it. More calls nest only in a
/// damaged file.
const MOST_NESTED: usize = 16;

/// Returns the calls of a thread within a process range; `all` has the thread's calls.
fn calls_within(store: &Tables, all: Span<usize>, range: &tables::ProcessRange) -> Span<usize> {
    let (first, calls) = (all.start, &store.calls[all]);
    let tables::Interval { start_ns, end_ns } = range.time;
    let from = calls.partition_point(|call| call.time.start_ns < start_ns);
    let begun = calls.partition_point(|call| call.time.start_ns <= end_ns).max(from);
    let last = calls[from..begun].iter().rev().take(MOST_NESTED);
    let outlive = last.take_while(|call| call.time.end_ns > end_ns).count();
    first + from..first + begun - outlive
}

/// Sorts and unites spans that overlap or touch; removes empty ones.
fn unite(spans: &mut Vec<Span<usize>>) {
    spans.retain(|span| !span.is_empty());
    spans.sort_unstable_by_key(|span| span.start);
    spans.dedup_by(|next, last| {
        let touches = next.start <= last.end;
        if touches {
            last.end = last.end.max(next.end);
        }
        touches
    });
}

/// Sums of calls and their operations between positions in the call table.
struct CallSums {
    positions: Vec<usize>,
    /// Sums of all calls before each position; the last entry covers all calls.
    before: Vec<Totals>,
}

impl CallSums {
    fn new<'s>(store: &Tables, spans: impl Iterator<Item = &'s Span<usize>>) -> Self {
        let mut positions: Vec<usize> = spans.flat_map(|span| [span.start, span.end]).collect();
        positions.sort_unstable();
        positions.dedup();
        let mut before = vec![Totals::default(); positions.len() + 1];
        if positions.is_empty() {
            return Self { positions, before };
        }
        let part = |call: usize| positions.partition_point(|position| *position <= call);
        for (row, call) in store.calls.iter().enumerate() {
            add_call(&mut before[part(row)], store, call);
        }
        for operation in &store.operations {
            if let Some(call) = operation.call.get() {
                add_operation(&mut before[part(call.at())], store, operation);
            }
        }
        let mut all = Totals::default();
        for part in &mut before {
            all += *part;
            *part = all;
        }
        Self { positions, before }
    }

    /// Returns the sums of one of the given spans.
    fn totals(&self, span: &Span<usize>) -> Totals {
        let before = |at: usize| {
            let place = self.positions.partition_point(|position| *position < at);
            self.before[place]
        };
        before(span.end).since(&before(span.start))
    }
}

impl<'a> Range<'a> {
    /// The process range that this range is an activation of.
    pub fn process_range(&self) -> Option<ProcessRange<'a>> {
        let id = self.labelled().details()?.within?;
        Some(ProcessRange { profile: self.profile, id })
    }
}
