//! Intervals by start, one after the other: their union, and what lies between.

use crate::store::Interval;

/// What the intervals so far came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sweep {
    pub(crate) first_ns: u64,
    /// The last end so far.
    pub(crate) end_ns: u64,
    /// Their union.
    pub(crate) busy_ns: u64,
    /// Their sum.
    pub(crate) gpu_ns: u64,
}

impl Sweep {
    pub(crate) fn new(first: Interval) -> Self {
        // An end before the start is a damaged record.
        let end_ns = first.end_ns.max(first.start_ns);
        Self { first_ns: first.start_ns, end_ns, busy_ns: first.ns(), gpu_ns: first.ns() }
    }

    /// Adds the next one by start, and gives the gap before it.
    pub(crate) fn add(&mut self, time: Interval) -> Option<Interval> {
        let gap = Interval { start_ns: self.end_ns, end_ns: time.start_ns };
        self.busy_ns += time.end_ns.saturating_sub(time.start_ns.max(self.end_ns));
        self.gpu_ns = self.gpu_ns.saturating_add(time.ns());
        self.end_ns = self.end_ns.max(time.end_ns).max(time.start_ns);
        (gap.ns() != 0).then_some(gap)
    }
}
