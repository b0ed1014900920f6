//! Kernels.

use std::ops::Deref;

use super::fields::{Fields, Raw, oldest, record, words};
use super::{Channel, GraphNode, NameKey, Place, Span};
use crate::sys::generated::kernel;

record! {
    /// A kernel (`CONCURRENT_KERNEL`, `KERNEL`): what a profile wants of it. A record has more:
    /// [`KernelRecord::details`].
    #[derive(Eq, Hash, Default)]
    Kernel, raw, f of kernel {
        /// Its name, mangled (`name`); [`RecordBytes::name`](super::RecordBytes::name) gives the text.
        name: NameKey = NameKey(f.get(NAME).0),
        /// When it ran (`start`, `end`).
        span: Span = f.span(START, END),
        /// Where it ran.
        place: Place = f.place(DEVICE_ID, CONTEXT_ID, STREAM_ID),
        /// The id of the call that launched it (`correlationId`); all nodes of a graph launch share one.
        correlation_id: u32 = f.get(CORRELATION_ID),
        /// Blocks in x, y, z (`gridX`...).
        grid: [u32; 3] = f.xyz(GRID_X, GRID_Y, GRID_Z),
        /// Threads in a block in x, y, z (`blockX`...).
        block: [u32; 3] = f.xyz(BLOCK_X, BLOCK_Y, BLOCK_Z),
        /// Blocks in a cluster in x, y, z (`clusterX`...); zeros without clusters.
        cluster: [u32; 3] = f.xyz(CLUSTER_X, CLUSTER_Y, CLUSTER_Z),
        /// Registers a thread (`registersPerThread`).
        registers_per_thread: u16 = f.get(REGISTERS_PER_THREAD),
        /// Bytes of shared memory a block, fixed at compile time (`staticSharedMemory`).
        static_shared_bytes: u32 = f.get(STATIC_SHARED_MEMORY),
        /// Bytes of shared memory a block, asked for at launch (`dynamicSharedMemory`).
        dynamic_shared_bytes: u32 = f.get(DYNAMIC_SHARED_MEMORY),
        /// Bytes of local memory a thread, spills among them (`localMemoryPerThread`).
        local_bytes_per_thread: u32 = f.get(LOCAL_MEMORY_PER_THREAD),
        /// The node it was, if a graph launched it.
        graph_node: Option<GraphNode> = f.node(GRAPH_ID, GRAPH_NODE_ID),
    }
}

/// A kernel's record: a [`Kernel`], read at once, and [`details`](Self::details), read when asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KernelRecord<'a> {
    kernel: Kernel,
    raw: Raw<'a>,
}

impl<'a> KernelRecord<'a> {
    #[inline(always)]
    pub(super) fn decode(raw: Raw<'a>) -> Option<Self> {
        Kernel::decode(raw).map(|kernel| Self { kernel, raw })
    }

    /// How its multiprocessors were to be set, and were: three reads of the record's bytes.
    #[inline]
    #[must_use]
    pub fn shared_memory(&self) -> SharedMemorySetting {
        SharedMemorySetting::decode(self.raw).unwrap_or_default()
    }

    /// The rest of the record: some 20 reads of its bytes.
    #[must_use]
    pub fn details(&self) -> KernelDetails {
        // A record that has been read as a kernel is long enough.
        KernelDetails::decode(self.raw).unwrap_or_default()
    }
}

impl Deref for KernelRecord<'_> {
    type Target = Kernel;

    #[inline]
    fn deref(&self) -> &Kernel {
        &self.kernel
    }
}

/// How much of a multiprocessor's L1 was shared memory for a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct SharedMemorySetting {
    /// Percent of the most shared memory possible that it asked for (`sharedMemoryCarveoutRequested`), if it did.
    pub carveout_percent: Option<u8>,
    /// Bytes of shared memory that the driver set (`sharedMemoryExecuted`); 0 if that is not known.
    pub executed_bytes: u32,
}

impl SharedMemorySetting {
    #[inline]
    fn decode(raw: Raw<'_>) -> Option<Self> {
        use kernel::*;
        let f = Fields::<Layout, { oldest(STRIDES) }>::of(raw)?;
        Some(Self {
            carveout_percent: f
                .flag(IS_SHARED_MEMORY_CARVEOUT_REQUESTED)
                .then(|| f.get(SHARED_MEMORY_CARVEOUT_REQUESTED)),
            executed_bytes: f.get(SHARED_MEMORY_EXECUTED),
        })
    }
}

/// What a kernel's record says beside [`Kernel`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct KernelDetails {
    /// When it and all kernels that it launched had ended, in nanoseconds (`completed`); 0 if CUPTI has none.
    pub completed_ns: u64,
    /// When the launch went into the command buffer, in nanoseconds (`queued`); 0 without latency timestamps.
    pub queued_ns: u64,
    /// When the command buffer went to the GPU, in nanoseconds (`submitted`); 0 without latency timestamps.
    pub submitted_ns: u64,
    /// The id of this run of the kernel (`gridId`).
    pub grid_id: i64,
    /// How it was launched (`launchType`).
    pub launch: LaunchType,
    /// The split of L1 cache and shared memory that it asked for (`cacheConfig`, requested).
    pub cache_requested: CacheConfig,
    /// The split that it got (`cacheConfig`, executed). Neither is kept up where a carveout was asked for.
    pub cache_executed: CacheConfig,
    /// The width of shared memory's banks (`sharedMemoryConfig`).
    pub shared_banks: SharedMemoryConfig,
    /// The caching of global memory it asked for (`partitionedGlobalCacheRequested`).
    pub partitioned_cache_requested: PartitionedCache,
    /// The caching it got (`partitionedGlobalCacheExecuted`).
    pub partitioned_cache_executed: PartitionedCache,
    /// Percent of the most shared memory possible that it asked for (`sharedMemoryCarveoutRequested`), if it did.
    pub shared_carveout_percent: Option<u8>,
    /// Bytes of shared memory that the driver set (`sharedMemoryExecuted`).
    pub shared_executed_bytes: u32,
    /// Whether it may use more dynamic shared memory a block than is usual (`shmemLimitConfig`).
    pub shared_limit: SharedMemoryLimit,
    /// Bytes of local memory for all of its threads (`localMemoryTotal_v2`).
    pub local_bytes: u64,
    /// The channel it went through (`channelID`, `channelType`); none if the device launched it.
    pub channel: Option<Channel>,
    /// How its clusters are placed (`clusterSchedulingPolicy`).
    pub cluster_scheduling: ClusterScheduling,
    /// The largest cluster it could have, in blocks (`maxPotentialClusterSize`).
    pub max_cluster_size: u32,
    /// How many clusters can be on the device at once (`maxActiveClusters`).
    pub max_active_clusters: u32,
    /// Whether a graph launched from the device ran it (`isDeviceLaunched`). From CUPTI 13.0.
    pub device_launched: Option<bool>,
    /// The launch's priority (`priority`): the lower, the sooner. From CUPTI 13.1.
    pub priority: Option<i32>,
    /// What its code is written for (`executionModel`). From CUPTI 13.3.
    pub execution_model: Option<ExecutionModel>,
    /// The node from which its graph's node was made or last updated (`sourceGraphId`, `sourceGraphNodeId`). From CUPTI
    /// 13.4.
    pub source_graph_node: Option<GraphNode>,
}

impl KernelDetails {
    fn decode(raw: Raw<'_>) -> Option<Self> {
        use kernel::*;
        let f = Fields::<Layout, { oldest(STRIDES) }>::of(raw)?;
        let cache = f.get(CACHE_CONFIG_BOTH);
        Some(Self {
            completed_ns: f.get(COMPLETED),
            queued_ns: f.get(QUEUED),
            submitted_ns: f.get(SUBMITTED),
            grid_id: f.get(GRID_ID),
            launch: LaunchType(f.get(LAUNCH_TYPE)),
            cache_requested: CacheConfig(cache & 0xf),
            cache_executed: CacheConfig(cache >> 4),
            shared_banks: SharedMemoryConfig(f.get(SHARED_MEMORY_CONFIG)),
            partitioned_cache_requested: PartitionedCache(
                f.get(PARTITIONED_GLOBAL_CACHE_REQUESTED),
            ),
            partitioned_cache_executed: PartitionedCache(f.get(PARTITIONED_GLOBAL_CACHE_EXECUTED)),
            shared_carveout_percent: f
                .flag(IS_SHARED_MEMORY_CARVEOUT_REQUESTED)
                .then(|| f.get(SHARED_MEMORY_CARVEOUT_REQUESTED)),
            shared_executed_bytes: f.get(SHARED_MEMORY_EXECUTED),
            shared_limit: SharedMemoryLimit(f.get(SHMEM_LIMIT_CONFIG)),
            local_bytes: f.get(LOCAL_MEMORY_TOTAL_V2),
            channel: Channel::new(f.get(CHANNEL_ID), f.get(CHANNEL_TYPE)),
            cluster_scheduling: ClusterScheduling(f.get(CLUSTER_SCHEDULING_POLICY)),
            max_cluster_size: f.get(MAX_POTENTIAL_CLUSTER_SIZE),
            max_active_clusters: f.get(MAX_ACTIVE_CLUSTERS),
            device_launched: f.newer_flag(IS_DEVICE_LAUNCHED),
            priority: f.newer(PRIORITY),
            execution_model: f.newer(EXECUTION_MODEL).map(ExecutionModel),
            source_graph_node: f.newer_node(SOURCE_GRAPH_ID, SOURCE_GRAPH_NODE_ID),
        })
    }
}

words! {
    /// How a kernel was launched (`CUpti_ActivityLaunchType`).
    #[derive(Default)]
    LaunchType(u8) {
        REGULAR = 0 "regular",
        COOPERATIVE_SINGLE_DEVICE = 1 "cooperative on one device",
        COOPERATIVE_MULTI_DEVICE = 2 "cooperative on several devices",
        COMMAND_LIST = 3 "command list",
    }
}

words! {
    /// What a kernel prefers: L1 cache or shared memory (`CUfunc_cache`).
    #[derive(Default)]
    CacheConfig(u8) {
        NONE = 0 "no preference",
        SHARED = 1 "shared memory",
        L1 = 2 "L1 cache",
        EQUAL = 3 "equal",
    }
}

words! {
    /// The width of shared memory's banks (`CUsharedconfig`).
    #[derive(Default)]
    SharedMemoryConfig(u8) {
        DEFAULT = 0 "default",
        FOUR_BYTES = 1 "four bytes",
        EIGHT_BYTES = 2 "eight bytes",
    }
}

words! {
    /// Partitioned caching of global memory (`CUpti_ActivityPartitionedGlobalCacheConfig`).
    #[derive(Default)]
    PartitionedCache(u32) {
        UNKNOWN = 0 "not known",
        NOT_SUPPORTED = 1 "not supported",
        OFF = 2 "off",
        ON = 3 "on",
    }
}

words! {
    /// The limit of dynamic shared memory a block (`CUpti_FuncShmemLimitConfig`).
    #[derive(Default)]
    SharedMemoryLimit(u32) {
        DEFAULT = 0 "default",
        OPT_IN = 1 "opted in to more",
    }
}

words! {
    /// How clusters are placed (`CUclusterSchedulingPolicy`).
    #[derive(Default)]
    ClusterScheduling(u32) {
        DEFAULT = 0 "default",
        SPREAD = 1 "spread",
        LOAD_BALANCING = 2 "load balancing",
    }
}

words! {
    /// What a kernel's code is written for (`CUpti_FuncExecutionModel`).
    ExecutionModel(u32) {
        UNKNOWN = 0 "not known",
        SIMT = 1 "SIMT",
        TILE = 2 "tile",
        HYBRID = 3 "hybrid",
    }
}
