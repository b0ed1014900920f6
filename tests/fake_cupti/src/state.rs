//! The state behind the fake's functions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cupti::sys::abi::*;
use cupti::{ActivityKind, Version, clock};
use parking_lot::Mutex;

use crate::work::Work;

pub(super) static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);
/// Not in the state, since `get_next_record` is called from within callbacks.
pub(super) static VERSION: AtomicU32 = AtomicU32::new(0);

pub(super) fn version() -> Version {
    Version(VERSION.load(Ordering::Relaxed))
}

/// The times in an operation's record.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Timestamps {
    #[default]
    Right,
    Lost,
    Reversed,
}

impl Timestamps {
    /// The start and the end in the record of an operation with these real times.
    pub(super) fn apply(self, (start, end): (u64, u64)) -> (u64, u64) {
        match self {
            Self::Right => (start, end),
            Self::Lost => (0, 0),
            Self::Reversed => (end, start),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) holder: Option<String>,
    pub(super) clock_offset: i64,
    /// The functions that the library lacks: the beginning of their names.
    pub(super) lacks: Option<&'static str>,
    pub(super) subscribed: bool,
    pub(super) callback: Option<CallbackFunc>,
    /// The callbacks that the subscriber enabled: (domain, id).
    pub(super) enabled: BTreeSet<(u32, u32)>,
    /// The functions that pass through CUPTI: enabled by any subscriber and disabled by none. The
    /// end of a subscription disables nothing.
    pub(super) hooks: BTreeSet<(u32, u32)>,
    /// The calls whose functions were disabled before they returned, by thread: by CUPTI's count
    /// they never return.
    pub(super) left_open: HashMap<u32, Vec<u32>>,
    pub(super) requested: Option<BufferRequested>,
    pub(super) completed: Option<BufferCompleted>,
    pub(super) kinds: BTreeSet<u32>,
    /// The counters of managed memory that are on.
    pub(super) unified_memory: BTreeSet<u32>,
    pub(super) attributes: BTreeMap<u32, u64>,
    pub(super) thread_id_type: u32,
    pub(super) flush_period: u32,
    pub(super) latency_timestamps: bool,
    pub(super) buffer: Option<Buffer>,
    /// Full buffers that are not returned yet.
    pub(super) held: Vec<Buffer>,
    pub(super) holds: bool,
    /// Bytes by which the next returned buffer reports its content too short.
    pub(super) cut: usize,
    pub(super) busy_until_ns: u64,
    pub(super) flush_takes: Duration,
    pub(super) flushes: u64,
    pub(super) dropped: usize,
    pub(super) timestamps: Timestamps,
    /// True if a library that needs a buffer got none.
    pub(super) crashed: bool,
    pub(super) correlation: u32,
    /// The number of times that the kernels' kind was disabled.
    pub(super) kernels_disabled: u64,
    /// Recorded launches that have passed their callback and have not returned.
    pub(super) launching: usize,
    /// Flushes at whose begin or end `launching` was not 0.
    pub(super) flushes_beside_launches: u64,
    /// Launches that have passed their callback and have not returned.
    pub(super) under_way: usize,
    /// Begins and ends of sampling at which `under_way` was not 0.
    pub(super) sampling_beside_launches: u64,
    /// True if the next kernels lose their records when the kind is disabled within a launch.
    pub(super) forgets: bool,
    /// Kernels that get no record.
    pub(super) forgotten: u32,
    /// The end of each stream's work.
    pub(super) streams: HashMap<u32, u64>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Buffer {
    pub(super) address: usize,
    pub(super) size: usize,
    pub(super) used: usize,
}

impl State {
    /// CUPTI's time.
    pub(super) fn now(&self) -> u64 {
        clock::now_ns().wrapping_add_signed(self.clock_offset)
    }

    /// Runs work after its stream's earlier work; returns its begin and end. A wait of the host is
    /// on no stream and begins now.
    pub(super) fn run(&mut self, work: &Work) -> (u64, u64) {
        let now = self.now();
        if !work.is_on_gpu() {
            return (now, now.saturating_add(work.duration_ns()));
        }
        let free = self.streams.entry(work.stream()).or_default();
        let start = (*free).max(now.saturating_add(2_000));
        *free = start.saturating_add(work.duration_ns());
        (start, *free)
    }

    /// The number of the period in which kernels are recorded; `None` if they are not recorded now.
    pub(super) fn recording_of_kernels(&self) -> Option<u64> {
        self.kinds.contains(&ActivityKind::CONCURRENT_KERNEL.0).then_some(self.kernels_disabled)
    }
}
