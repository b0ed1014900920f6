//! Allocations, pools and managed memory.

use super::fields::{record, words};
use super::{MemoryKind, NameKey, Span};

/// `CUPTI_INVALID_CONTEXT_ID` and `CUPTI_INVALID_STREAM_ID`.
const NO_ID: u32 = 0;

record! {
    /// An allocation or a free (`MEMORY2`).
    MemoryOperation, raw, f of memory2 {
        /// Allocation or free (`memoryOperationType`).
        operation: MemoryOperationKind = MemoryOperationKind(f.get(MEMORY_OPERATION_TYPE)),
        /// The kind of memory (`memoryKind`).
        kind: MemoryKind = MemoryKind::from_wide(f.get(MEMORY_KIND)),
        /// The id of the call (`correlationId`).
        correlation_id: u32 = f.get(CORRELATION_ID),
        /// Its virtual address (`address`).
        address: u64 = f.get(ADDRESS),
        /// Its bytes (`bytes`).
        bytes: u64 = f.get(BYTES),
        /// The time in nanoseconds of CUPTI's clock (`timestamp`).
        at_ns: u64 = f.get(TIMESTAMP),
        /// The program counter of the call (`PC`).
        pc: u64 = f.get(PC),
        /// The process (`processId`).
        process: u32 = f.get(PROCESS_ID),
        /// CUDA ordinal (`deviceId`).
        device: u32 = f.get(DEVICE_ID),
        /// CUPTI's id of the context, if there was one (`contextId`).
        context: Option<u32> = f.id(CONTEXT_ID, NO_ID),
        /// CUPTI's id of the stream, if it was in stream order (`streamId`).
        stream: Option<u32> = f.id(STREAM_ID, NO_ID),
        /// The variable, if it is one (`name`).
        name: Option<NameKey> = f.name(NAME),
        /// True if it was in stream order (`isAsync`).
        asynchronous: bool = f.get(IS_ASYNC) != 0,
        /// The pool of the memory, if any (`memoryPoolConfig`).
        pool: Option<Pool> = Pool::new(
            f.get(MEMORY_POOL_CONFIG_MEMORY_POOL_TYPE),
            f.get(MEMORY_POOL_CONFIG_ADDRESS),
            f.get(MEMORY_POOL_CONFIG_RELEASE_THRESHOLD),
            f.get(MEMORY_POOL_CONFIG_POOL_SIZE),
            f.get(MEMORY_POOL_CONFIG_UTILIZED_SIZE),
        ),
        /// The library or program that made the call (`source`), if CUPTI was configured to find
        /// it. From CUPTI 12.6.
        source: Option<NameKey> = f.newer(SOURCE).and_then(|source| NameKey::new(source.0)),
    }
}

words! {
    /// Allocation or free (`CUpti_ActivityMemoryOperationType`).
    MemoryOperationKind(u32) {
        INVALID = 0 "invalid",
        ALLOCATION = 1 "allocation",
        RELEASE = 2 "release",
    }
}

/// The pool of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pool {
    /// A pool of this process (`CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL`).
    Local {
        /// Its base address (`address`).
        address: u64,
        /// Bytes that it retains before it releases memory (`releaseThreshold`).
        release_threshold_bytes: u64,
        /// Its bytes (`pool.size`).
        bytes: u64,
        /// Bytes of it in use (`utilizedSize`).
        used_bytes: u64,
    },
    /// A pool of another process (`..._IMPORTED`).
    Imported {
        /// Its base address (`address`).
        address: u64,
        /// The process (`pool.processId`).
        process: u64,
    },
    /// A type unknown to this version of the crate.
    Unknown(u32),
}

impl Pool {
    fn new(kind: u32, address: u64, threshold: u64, size: u64, used: u64) -> Option<Self> {
        Some(match MemoryPoolKind(kind) {
            MemoryPoolKind::INVALID => return None,
            MemoryPoolKind::LOCAL => Self::Local {
                address,
                release_threshold_bytes: threshold,
                bytes: size,
                used_bytes: used,
            },
            MemoryPoolKind::IMPORTED => Self::Imported { address, process: size },
            MemoryPoolKind(other) => Self::Unknown(other),
        })
    }
}

words! {
    /// The type of a pool (`CUpti_ActivityMemoryPoolType`).
    MemoryPoolKind(u32) {
        INVALID = 0 "invalid",
        LOCAL = 1 "local",
        IMPORTED = 2 "imported",
    }
}

record! {
    /// A transfer, fault or other event of managed memory (`UNIFIED_MEMORY_COUNTER`), without the
    /// meaningless `streamId`.
    UnifiedMemory, raw, f of unified_memory_counter {
        /// The kind (`counterKind`).
        kind: UnifiedMemoryKind = UnifiedMemoryKind(f.get(COUNTER_KIND)),
        /// Bytes of the region (`value`). For GPU faults, the number of groups of faults on the
        /// page; for CPU faults, the program counter.
        value: u64 = f.get(VALUE),
        /// The time (`start`, `end`). CPU faults, thrashing and remote maps have no end.
        span: Span = f.span(START, END),
        /// The address of the page or region (`address`).
        address: u64 = f.get(ADDRESS),
        /// The source device or CPU (`srcId`). For thrashing, a bit for each of the first 32
        /// devices; nothing for CPU faults.
        source: u32 = f.get(SRC_ID),
        /// The destination device or CPU (`dstId`), for transfers and remote maps.
        destination: u32 = f.get(DST_ID),
        /// The process (`processId`).
        process: u32 = f.get(PROCESS_ID),
        /// The cause or type (`flags`).
        cause: UnifiedMemoryCause = UnifiedMemoryCause::new(f.get(COUNTER_KIND), f.get(FLAGS)),
        /// For thrashing, a bit for each device (`processors`). From CUPTI 12.8.
        processors: Option<[u64; 5]> = f.newer(PROCESSORS),
    }
}

words! {
    /// An event of managed memory (`CUpti_ActivityUnifiedMemoryCounterKind`).
    UnifiedMemoryKind(u32) {
        UNKNOWN = 0 "not known",
        HOST_TO_DEVICE = 1 "transfer from host to device",
        DEVICE_TO_HOST = 2 "transfer from device to host",
        CPU_PAGE_FAULT = 3 "CPU page fault",
        GPU_PAGE_FAULT = 4 "GPU page fault",
        THRASHING = 5 "thrashing",
        THROTTLING = 6 "throttling",
        REMOTE_MAP = 7 "remote map",
        DEVICE_TO_DEVICE = 8 "transfer from device to device",
    }
}

/// The cause or type of an event of managed memory, by the kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnifiedMemoryCause {
    /// The cause of a migration.
    Migration(MigrationCause),
    /// The GPU's access type.
    Access(MemoryAccess),
    /// The cause of a remote map.
    RemoteMap(RemoteMapCause),
    /// True if it thrashed or was throttled on the CPU (`CUPTI_ACTIVITY_FLAG_THRASHING_IN_CPU`,
    /// `..._THROTTLING_IN_CPU`).
    OnCpu(bool),
    /// The raw `flags` of other events.
    Other(u32),
}

impl UnifiedMemoryCause {
    fn new(kind: u32, flags: u32) -> Self {
        match UnifiedMemoryKind(kind) {
            UnifiedMemoryKind::HOST_TO_DEVICE
            | UnifiedMemoryKind::DEVICE_TO_HOST
            | UnifiedMemoryKind::DEVICE_TO_DEVICE => Self::Migration(MigrationCause(flags)),
            UnifiedMemoryKind::GPU_PAGE_FAULT => Self::Access(MemoryAccess(flags)),
            UnifiedMemoryKind::REMOTE_MAP => Self::RemoteMap(RemoteMapCause(flags)),
            UnifiedMemoryKind::THRASHING | UnifiedMemoryKind::THROTTLING => {
                Self::OnCpu(flags & 1 != 0)
            }
            _ => Self::Other(flags),
        }
    }
}

words! {
    /// The cause of a migration (`CUpti_ActivityUnifiedMemoryMigrationCause`).
    MigrationCause(u32) {
        UNKNOWN = 0 "not known",
        USER = 1 "requested",
        COHERENCE = 2 "coherence",
        PREFETCH = 3 "prefetch",
        EVICTION = 4 "eviction",
        ACCESS_COUNTERS = 5 "access counters",
    }

    /// A GPU's access type (`CUpti_ActivityUnifiedMemoryAccessType`).
    MemoryAccess(u32) {
        UNKNOWN = 0 "not known",
        READ = 1 "read",
        WRITE = 2 "write",
        ATOMIC = 3 "atomic",
        PREFETCH = 4 "prefetch",
    }

    /// The cause of a remote map instead of a migration
    /// (`CUpti_ActivityUnifiedMemoryRemoteMapCause`).
    RemoteMapCause(u32) {
        UNKNOWN = 0 "not known",
        COHERENCE = 1 "coherence",
        THRASHING = 2 "thrashing",
        POLICY = 3 "policy",
        OUT_OF_MEMORY = 4 "out of memory",
        EVICTION = 5 "eviction",
    }
}
