//! Ranges that end before a range that began within them on the same thread. Examples are ranges of
//! several domains and guards dropped out of order. Work submitted after such an end is not
//! attributed to the ended range (docs/decisions/054).

use rustc_hash::FxHashMap;

use crate::join::tables::{Call, CallId, OperationId, RangeId, RangesBy, Tables};

/// The ranges of a profile in which some end before a descendant.
#[derive(Debug)]
pub struct Crossings {
    /// True if ranges contain calls by time.
    by_time: bool,
    parents: Vec<Option<RangeId>>,
    /// Ends; `u64::MAX` of open ranges.
    ends_ns: Vec<u64>,
    /// The outermost range of each range's nest: ranges that began within each other on one thread.
    /// A range below a handed-over context begins a nest.
    nests: Vec<RangeId>,
    /// The first end of the ancestors in the nest.
    first_ends_ns: Vec<u64>,
    /// The nearest ancestor that ends later, or is outside the nest.
    later: Vec<Option<RangeId>>,
    /// True for ranges that end before a descendant of their nest.
    is_outlived: Vec<bool>,
    late_calls: FxHashMap<CallId, LateWork>,
    late_operations: FxHashMap<OperationId, LateWork>,
}

/// A call after the end of an ancestor of its range, or work of such a call.
#[derive(Debug, Clone, Copy)]
pub struct LateWork {
    range: RangeId,
    /// Ranges of its nest with an earlier end exclude it.
    needs_ns: u64,
}

impl Crossings {
    /// `None` if no range ends before a descendant. `order` has parents before their children.
    pub(super) fn new(store: &Tables, order: impl Iterator<Item = RangeId>) -> Option<Self> {
        let end_ns = |range: RangeId| {
            let range = &store.ranges[range.at()];
            if range.is_open { u64::MAX } else { range.time.end_ns }
        };
        // The parent within which a range began on its thread, not by a context.
        let nested_in = |id: RangeId| {
            let range = &store.ranges[id.at()];
            let parent = range.parent.get()?;
            let outer = &store.ranges[parent.at()];
            let is_within = range.time.start_ns < end_ns(parent) || end_ns(id) <= end_ns(parent);
            (outer.thread == range.thread && is_within).then_some(parent)
        };
        let rows = || (0..store.ranges.len() as u32).map(RangeId);
        if !rows().any(|id| nested_in(id).is_some_and(|parent| end_ns(parent) < end_ns(id))) {
            return None;
        }
        let count = store.ranges.len();
        let mut crossings = Self {
            by_time: store.session.ranges_by == RangesBy::Containment,
            parents: store.ranges.iter().map(|range| range.parent.get()).collect(),
            ends_ns: rows().map(end_ns).collect(),
            nests: rows().collect(),
            first_ends_ns: vec![u64::MAX; count],
            later: vec![None; count],
            is_outlived: vec![false; count],
            late_calls: FxHashMap::default(),
            late_operations: FxHashMap::default(),
        };
        let order: Vec<RangeId> = order.collect();
        for &id in &order {
            let Some(parent) = nested_in(id) else {
                crossings.later[id.at()] = crossings.parents[id.at()];
                continue;
            };
            let nest = crossings.nests[parent.at()];
            crossings.nests[id.at()] = nest;
            crossings.first_ends_ns[id.at()] =
                crossings.first_ends_ns[parent.at()].min(crossings.ends_ns[parent.at()]);
            crossings.later[id.at()] =
                crossings.ending_from(Some(parent), nest, end_ns(id).saturating_add(1));
        }
        let mut last_ends_ns = crossings.ends_ns.clone();
        for &id in order.iter().rev() {
            crossings.is_outlived[id.at()] = last_ends_ns[id.at()] > crossings.ends_ns[id.at()];
            if let Some(parent) = nested_in(id) {
                last_ends_ns[parent.at()] = last_ends_ns[parent.at()].max(last_ends_ns[id.at()]);
            }
        }
        Some(crossings)
    }

    /// The nearest of a range and its ancestors that ends at `needs_ns` or later, or is outside the
    /// nest.
    fn ending_from(
        &self,
        mut range: Option<RangeId>,
        nest: RangeId,
        needs_ns: u64,
    ) -> Option<RangeId> {
        while let Some(ended) = range
            && self.nests[ended.at()] == nest
            && self.ends_ns[ended.at()] < needs_ns
        {
            range = self.later[ended.at()];
        }
        range
    }

    /// Returns the late work of a call that an ancestor of its range excludes; `None` for all other
    /// calls.
    #[inline]
    pub fn late(&self, store: &Tables, call: &Call) -> Option<LateWork> {
        let range = call.range.get()?;
        // A call is within a range of its thread that is open when the call begins, in a capture
        // also when it ends.
        let needs_ns =
            if self.by_time { call.time.end_ns } else { call.time.start_ns.saturating_add(1) };
        let is_late = self.first_ends_ns[range.at()] < needs_ns
            && self.ends_ns[range.at()] >= needs_ns
            && store.ranges[range.at()].thread == call.thread;
        is_late.then_some(LateWork { range, needs_ns })
    }

    pub(super) fn add_call(&mut self, call: CallId, late: LateWork) {
        self.late_calls.insert(call, late);
    }

    pub(super) fn add_operation(&mut self, operation: OperationId, late: LateWork) {
        self.late_operations.insert(operation, late);
    }

    pub(crate) fn late_call(&self, call: CallId) -> Option<LateWork> {
        self.late_calls.get(&call).copied()
    }

    pub(crate) fn late_operation(&self, operation: OperationId) -> Option<LateWork> {
        self.late_operations.get(&operation).copied()
    }

    /// All late calls and operations.
    pub(super) fn late_work(
        &self,
    ) -> (impl Iterator<Item = (CallId, LateWork)>, impl Iterator<Item = (OperationId, LateWork)>)
    {
        let calls = self.late_calls.iter().map(|(call, late)| (*call, *late));
        (calls, self.late_operations.iter().map(|(operation, late)| (*operation, *late)))
    }

    /// The ranges to which late work is attributed, innermost first.
    pub fn chain(&self, late: LateWork) -> impl Iterator<Item = RangeId> {
        let nest = self.nests[late.range.at()];
        std::iter::successors(Some(late.range), move |range| {
            self.ending_from(self.parents[range.at()], nest, late.needs_ns)
        })
    }

    /// The range of late work and all its ancestors, innermost first.
    pub(super) fn ancestors(&self, late: LateWork) -> impl Iterator<Item = RangeId> {
        std::iter::successors(Some(late.range), |range| self.parents[range.at()])
    }

    /// The shortest of the ancestors that end at `needs_ns` or later, and the innermost of equal
    /// ones; nsys nests ranges this way. The length of an ancestor on another thread is not
    /// compared.
    pub fn shortest_around(
        &self,
        range: RangeId,
        needs_ns: u64,
        length: impl Fn(RangeId) -> u64,
    ) -> Option<RangeId> {
        let nest = self.nests[range.at()];
        let around = |range: RangeId| self.ending_from(self.parents[range.at()], nest, needs_ns);
        let mut best = None;
        for outer in std::iter::successors(around(range), |outer| around(*outer)) {
            let is_of_nest = self.nests[outer.at()] == nest;
            if best.is_none_or(|best| is_of_nest && length(outer) < length(best)) {
                best = Some(outer);
            }
            // All further ancestors end no sooner, and are longer.
            if !is_of_nest || self.first_ends_ns[outer.at()] >= self.ends_ns[outer.at()] {
                break;
            }
        }
        best
    }

    /// True if a range ends before a descendant on its thread.
    pub(crate) fn is_outlived(&self, range: RangeId) -> bool {
        self.is_outlived[range.at()]
    }

    /// True if an ancestor of the range of late work excludes it.
    pub(super) fn leaves_out(&self, ancestor: RangeId, late: Option<LateWork>) -> bool {
        late.is_some_and(|late| {
            self.ends_ns[ancestor.at()] < late.needs_ns
                && self.nests[ancestor.at()] == self.nests[late.range.at()]
        })
    }

    /// The number of ranges that end before a descendant; 0 if no sum is affected.
    pub fn count(&self) -> usize {
        if self.late_calls.is_empty() {
            return 0;
        }
        self.is_outlived.iter().filter(|is_outlived| **is_outlived).count()
    }
}
