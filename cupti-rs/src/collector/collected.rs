//! The result of a collection: its logs, the times they cover, and what was lost.

use crate::attribute::AttributeSetting;
use crate::call_log::{Call, RuntimeFunction, ThreadCalls};
use crate::clock::{self, Clock};
use crate::graphs::ThreadGraphs;
use crate::kind::ActivityKind;
use crate::pc_sampling::PcSamples;
use crate::record::RecordBytes;
use crate::version::Version;

/// The logs of a collection, from its stop, a snapshot or a drain: CUPTI's bytes and the calls,
/// raw, with everything that another process needs to read them.
///
/// After a drain it contains what was not drained; the times are still those of the whole
/// collection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collected {
    /// The library's version.
    pub version: Version,
    /// The time from the collection's start to the stop, snapshot or drain, in [`clock::now_ns`]
    /// time, with all pauses between.
    pub window_ns: (u64, u64),
    /// The parts of the window in which the collection was on: not paused and, if the profiler
    /// switch bounds it, switched on. Sorted and disjoint. Calls outside them are not accounted
    /// for: leave out these calls and their records.
    pub windows_ns: Vec<(u64, u64)>,
    /// In a snapshot or a drain: all records of calls that returned before this time have arrived,
    /// here or in earlier drains. Records of later calls may still be missing. `None` after a stop,
    /// when none is missing.
    pub pending_from_ns: Option<u64>,
    /// The relation of the records' timestamps to [`clock::now_ns`], from two readings: one at the
    /// start or the previous drain, and one at the end.
    pub clock: Clock,
    /// The records, as CUPTI wrote them.
    pub records: RecordBytes,
    /// The driver calls, by thread.
    pub calls: Vec<ThreadCalls>,
    /// The calls of the runtime API, by thread, if requested.
    pub runtime_calls: Vec<ThreadCalls<RuntimeFunction>>,
    /// The graph events, by thread, if requested.
    pub graphs: Vec<ThreadGraphs>,
    /// The attributes that were set.
    pub attributes: Vec<AttributeSetting>,
    /// Kinds that were requested only if available, and that the library lacks.
    pub missing_kinds: Vec<ActivityKind>,
    /// The instruction samples, if requested.
    pub pc_sampling: Option<PcSamples>,
    /// Losses and irregularities since the previous drain, as far as the collector can detect them.
    pub losses: Losses,
}

/// Counts of lost data and of irregularities; all zero in a good run, except `buffers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Losses {
    /// Records that CUPTI dropped, by its own count.
    pub dropped_by_cupti: u64,
    /// Records discarded at [`Config::memory_limit`](crate::Config::memory_limit).
    pub over_memory_limit: u64,
    /// Records whose length does not match their kind, or from a newer CUPTI whose layout may
    /// differ ([`Library`](crate::Library)).
    pub irregular: u64,
    /// Bytes that CUPTI's iterator could not step over.
    pub unreadable_bytes: u64,
    /// Panics caught in callbacks.
    pub panics: u64,
    /// Buffers with work that the GPU had not finished when a stop or a pause gave up waiting.
    pub unfinished_buffers: u64,
    /// Buffers that CUPTI requested.
    pub buffers: u64,
    /// Buffers, of `buffers`, that had to be allocated inside a CUDA call.
    pub pool_misses: u64,
    /// Buffers, of `buffers`, that were refused at
    /// [`Config::max_buffers`](crate::Config::max_buffers).
    pub refused_buffers: u64,
    /// Records discarded with buffers that were refused to a CUPTI before 12.9.
    pub refused_records: u64,
    /// Records discarded because they arrived before the profiler switch was first on. They are not
    /// a loss.
    pub before_switch: u64,
    /// Calls and graph events that could not be logged. Either their thread was ending and its
    /// locals were gone, or another call was being logged, for example if a tag source calls CUDA.
    /// Their records have no call.
    pub unlogged_calls: u64,
    /// Buffers that CUPTI returned with another size than theirs. They are read up to the smaller
    /// size; valid bytes beyond it, by CUPTI's count, are in `unreadable_bytes`.
    pub mismatched_buffers: u64,
}

impl Losses {
    /// The losses since an earlier count.
    pub(super) fn losses_since(&self, earlier: &Self) -> Self {
        macro_rules! since {
            ($($field:ident)*) => { Self { $($field: self.$field.saturating_sub(earlier.$field),)* } };
        }
        since!(
            dropped_by_cupti over_memory_limit irregular unreadable_bytes panics unfinished_buffers
            buffers pool_misses refused_buffers refused_records before_switch unlogged_calls
            mismatched_buffers
        )
    }
}

impl Collected {
    /// True if calls at this time, in [`clock::now_ns`] time, are accounted for.
    pub fn was_on(&self, at_ns: u64) -> bool {
        clock::is_within(&self.windows_ns, at_ns)
    }
}

/// Calls that have begun and not returned: the result of
/// [`Collector::unfinished_calls`](crate::Collector::unfinished_calls).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct UnfinishedCalls {
    /// The driver calls, by thread.
    pub calls: Vec<ThreadCalls>,
    /// The calls of the runtime API, by thread, if requested.
    pub runtime_calls: Vec<ThreadCalls<RuntimeFunction>>,
    /// When logging began after the last pause, in [`clock::now_ns`] time; `u64::MAX` while no call
    /// is logged. A call that began earlier may have returned in a pause, unseen.
    pub seen_from_ns: u64,
}

impl UnfinishedCalls {
    /// The driver calls that began after the last pause. None of them can have returned unseen.
    pub fn surely_under_way(&self) -> impl Iterator<Item = &Call> {
        let calls = self.calls.iter().flat_map(|thread| &thread.calls);
        calls.filter(|call| call.start_ns >= self.seen_from_ns)
    }
}
