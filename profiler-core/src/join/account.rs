//! The account of calls and records: the expected records of a call, and the balance of both sides.

use std::fmt;

use cupti::CallClass;

/// The account of one kind of work: calls with expected records, and records with expected calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Account {
    /// Records of this kind.
    pub records: u64,
    /// Records whose call is in the call log.
    pub matched_records: u64,
    /// Successful calls that are expected to have at least one record.
    pub calls: u64,
    /// Calls with at least one record.
    pub matched_calls: u64,
    /// Records without a call that started before the first GPU operation with one: their calls
    /// were made before the recording began. Summaries do not count them, since they do not store
    /// times.
    pub records_at_start: u64,
}

/// The maximum share of an account's records for [`Account::records_at_start`] to be a fact. A
/// larger share indicates a lost call log.
const MOST_AT_START: f64 = 0.01;

impl Account {
    /// True if every call has its record and every record its call. Up to a hundredth of the
    /// records may be [`records_at_start`](Self::records_at_start).
    pub fn is_balanced(&self) -> bool {
        let without_call = self.records.saturating_sub(self.matched_records);
        let at_start = self.records_at_start.min(without_call);
        let is_small = at_start as f64 <= MOST_AT_START * self.records as f64;
        self.calls == self.matched_calls
            && self.records >= self.matched_records
            && (without_call == 0 || (without_call == at_start && is_small))
    }

    /// Adds the counts of another process. The sum is balanced if all are.
    pub(crate) fn add(&mut self, other: &Self) {
        let Self { records, matched_records, calls, matched_calls, records_at_start } = other;
        // The records of an unbalanced account must not pass as a small share of all records.
        let records_at_start = if other.is_balanced() { records_at_start } else { &0 };
        for (sum, count) in [
            (&mut self.records, records),
            (&mut self.matched_records, matched_records),
            (&mut self.calls, calls),
            (&mut self.matched_calls, matched_calls),
            (&mut self.records_at_start, records_at_start),
        ] {
            *sum = sum.saturating_add(*count);
        }
    }

    /// Records without a call and calls without a record.
    pub fn unmatched(&self) -> u64 {
        let records = self.records.saturating_sub(self.matched_records);
        records.saturating_add(self.calls.saturating_sub(self.matched_calls))
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.records == self.matched_records && self.calls == self.matched_calls {
            return write!(f, "{} of {}", self.matched_records, self.records);
        }
        write!(
            f,
            "{} of {} records and {} of {} calls",
            self.matched_records, self.records, self.matched_calls, self.calls
        )?;
        match self.records_at_start {
            0 => Ok(()),
            count => write!(f, " ({count} submitted before the recording)"),
        }
    }
}

/// The properties of a call that determine its expected records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpectedRecords {
    pub(crate) class: CallClass,
    /// `None` if the call had not returned.
    pub(crate) end_ns: Option<u64>,
    pub(crate) is_failure: bool,
    /// The call was captured into a graph: it created a node instead of running.
    pub(crate) captured: bool,
    /// The call copies or fills nothing.
    pub(crate) empty: bool,
}

/// `CUDA_ERROR_NOT_READY`: a query's negative answer, not an error.
const NOT_READY: u32 = 600;

/// Returns true if a call with this result failed.
#[inline]
pub(crate) fn is_failure(class: CallClass, result: u32) -> bool {
    result != 0 && !(class == CallClass::Query && result == NOT_READY)
}

impl ExpectedRecords {
    /// True if the call must have at least one record.
    pub(crate) fn expects_one(&self) -> bool {
        let has_records = matches!(
            self.class,
            CallClass::KernelLaunch
                | CallClass::Memcpy
                | CallClass::Memset
                | CallClass::Synchronize
                | CallClass::WaitEvent
        );
        has_records && self.end_ns.is_some() && !self.is_failure && !self.captured
    }

    /// True if the call can have records; a failed call occasionally has one, too.
    pub(crate) fn may_have_records(&self) -> bool {
        use CallClass::{GraphLaunch, KernelLaunch, Memcpy, Memset, Query, Synchronize, WaitEvent};
        matches!(
            self.class,
            KernelLaunch | GraphLaunch | Memcpy | Memset | Synchronize | WaitEvent | Query
        )
    }

    /// True if records of the call are expected.
    pub(crate) fn expects_records(&self) -> bool {
        let may = self.may_have_records() && self.class != CallClass::Query;
        may && !self.is_failure && !self.captured && !self.empty
    }
}

/// True if one call of a function can give several records: graph launches, batches, launches on
/// several devices and copies between devices.
pub(crate) fn may_have_several_records(class: CallClass, name: &str) -> bool {
    let is_several = |part: &&str| name.contains(*part);
    class == CallClass::GraphLaunch || ["Batch", "MultiDevice", "Peer"].iter().any(is_several)
}

/// The account that an operation belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperationClass {
    Kernel,
    Copy,
    Memset,
    /// A graph launch that was traced as one interval, which has its own counts.
    WholeGraph,
}

/// The properties of an operation that the account needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountedOperation {
    pub(crate) class: OperationClass,
    pub(crate) has_call: bool,
    pub(crate) has_times: bool,
    /// True if it ran as a node of a CUDA graph.
    pub(crate) is_node: bool,
    /// True if the range in which that node was created is known.
    pub(crate) is_captured: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_between_devices_and_batches_may_have_several_records() {
        for (class, name) in [
            (CallClass::Memcpy, "cuMemcpyPeerAsync"),
            (CallClass::Memcpy, "cuMemcpyBatchAsync"),
            (CallClass::KernelLaunch, "cuLaunchCooperativeKernelMultiDevice"),
            (CallClass::GraphLaunch, "cuGraphLaunch"),
        ] {
            assert!(may_have_several_records(class, name), "{name}");
        }
        for name in ["cuMemcpyDtoDAsync_v2", "cuMemcpyHtoD_v2"] {
            assert!(!may_have_several_records(CallClass::Memcpy, name), "{name}");
        }
    }
}
