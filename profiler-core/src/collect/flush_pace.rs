//! Decides when CUPTI is flushed for records in buffers that are not full (docs/decisions/012).
//!
//! Launches wait during a flush, and flushes of CUPTI 13.0 take longer and longer.

use cupti::LastFlush;

/// Flushing may use one part in this many of the time. A hundredth would let one launch in a hundred
/// wait, the 99th percentile.
const PARTS: u64 = 1_000;
/// Flushing is retried at least this often: a call is given up a minute after its record is due.
const LATEST_NS: u64 = 20_000_000_000;
/// Bytes of records per tenth of a second (a default buffer) from which CUPTI delivers enough
/// without flushes. Flushes are then limited to calls that have waited for `LONGEST_NS`.
const ENOUGH: u64 = 1 << 20;
/// The wait of a call's record after which a flush is due even if CUPTI delivers full buffers.
const LONGEST_NS: u64 = 10_000_000_000;

/// The reasons for a flush.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FlushDemand {
    /// Bytes of records in the last tenth of a second.
    pub(crate) came: u64,
    /// The return time of the call that has waited longest for its record.
    pub(crate) waits_since_ns: Option<u64>,
}

impl FlushDemand {
    pub(crate) fn is_due(self, now_ns: u64, last: LastFlush) -> bool {
        let is_loaded = self.came >= ENOUGH;
        let is_long = |ns: u64| now_ns.saturating_sub(ns) >= LONGEST_NS;
        if is_loaded && !self.waits_since_ns.is_some_and(is_long) {
            return false;
        }
        let least_ns = if is_loaded { LONGEST_NS } else { 0 };
        let since_ns = now_ns.saturating_sub(last.returned_ns);
        since_ns >= last.took_ns.saturating_mul(PARTS).min(LATEST_NS).max(least_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_take_a_part_of_the_time_and_are_seldom_under_load() {
        let calm = FlushDemand::default();
        let loaded = FlushDemand { came: ENOUGH, waits_since_ns: Some(3_000) };
        assert!(calm.is_due(1, LastFlush::new(0, 0)));
        let quick = LastFlush::new(4_000, 3_000);
        assert!(!calm.is_due(3_003_999, quick) && calm.is_due(3_004_000, quick));
        let due_ns = 4_000 + LONGEST_NS;
        assert!(!loaded.is_due(due_ns - 1, quick) && loaded.is_due(due_ns, quick));
        let all_came = FlushDemand { waits_since_ns: None, ..loaded };
        let young = FlushDemand { waits_since_ns: Some(4_001), ..loaded };
        assert!(!all_came.is_due(100 * LONGEST_NS, quick) && !young.is_due(due_ns, quick));
        let slow = LastFlush::new(2 * LONGEST_NS, 2 * LONGEST_NS);
        let latest_ns = 2 * LONGEST_NS + LATEST_NS;
        assert!(!calm.is_due(latest_ns - 1, slow) && calm.is_due(latest_ns, slow));
        assert!(!loaded.is_due(latest_ns - 1, slow) && loaded.is_due(latest_ns, slow));
    }
}
