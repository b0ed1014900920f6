//! Kernels.

use std::ops::Deref;

use super::fields::{Raw, record, words};
use super::{Channel, GraphNode, NameKey, Place, Span};

record! {
    /// A kernel (`CONCURRENT_KERNEL`, `KERNEL`): the fields that a profile needs.
    /// [`KernelRecord::details`] has the others.
    #[derive(Eq, Hash, Default)]
    Kernel, raw, f of kernel {
        /// Its name, mangled (`name`); [`RecordBytes::name`](super::RecordBytes::name) returns the
        /// text.
        name: NameKey = NameKey(f.get(NAME).0),
        /// The time on the GPU (`start`, `end`).
        span: Span = f.span(START, END),
        /// The device, context and stream.
        place: Place = f.place(DEVICE_ID, CONTEXT_ID, STREAM_ID),
        /// The id of the call that launched it (`correlationId`); all nodes of a graph launch share
        /// one.
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
        /// Bytes of shared memory a block, requested at launch (`dynamicSharedMemory`).
        dynamic_shared_bytes: u32 = f.get(DYNAMIC_SHARED_MEMORY),
        /// Bytes of local memory a thread, spills included (`localMemoryPerThread`).
        local_bytes_per_thread: u32 = f.get(LOCAL_MEMORY_PER_THREAD),
        /// The graph node, if a graph launched it.
        graph_node: Option<GraphNode> = f.node(GRAPH_ID, GRAPH_NODE_ID),
    }
}

/// A kernel's record: a [`Kernel`], decoded at once, and [`details`](Self::details), decoded on
/// request.
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

    /// The requested and actual shared memory setting, decoded on request by three reads.
    #[inline]
    pub fn shared_memory(&self) -> SharedMemorySetting {
        SharedMemorySetting::decode(self.raw).unwrap_or_default()
    }

    /// The other fields, decoded on request by about 20 reads.
    pub fn details(&self) -> KernelDetails {
        // A record decoded as a kernel is long enough.
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

record! {
    /// The part of a multiprocessor's L1 cache that was shared memory for a kernel.
    #[derive(Eq, Hash, Default)]
    SharedMemorySetting, raw, f of kernel {
        /// The requested percentage of the largest possible shared memory
        /// (`sharedMemoryCarveoutRequested`), if any.
        carveout_percent: Option<u8> = f
            .flag(IS_SHARED_MEMORY_CARVEOUT_REQUESTED)
            .then(|| f.get(SHARED_MEMORY_CARVEOUT_REQUESTED)),
        /// Bytes of shared memory that the driver set (`sharedMemoryExecuted`); 0 if unknown.
        executed_bytes: u32 = f.get(SHARED_MEMORY_EXECUTED),
    }

    /// The fields of a kernel's record that are not in [`Kernel`].
    #[derive(Default)]
    KernelDetails, raw, f of kernel {
        /// When the kernel and all kernels that it launched had ended, in nanoseconds
        /// (`completed`); 0 if CUPTI has no time.
        completed_ns: u64 = f.get(COMPLETED),
        /// When the launch went into the command buffer, in nanoseconds (`queued`); 0 without
        /// latency timestamps.
        queued_ns: u64 = f.get(QUEUED),
        /// When the command buffer went to the GPU, in nanoseconds (`submitted`); 0 without latency
        /// timestamps.
        submitted_ns: u64 = f.get(SUBMITTED),
        /// The id of this run of the kernel (`gridId`).
        grid_id: i64 = f.get(GRID_ID),
        /// The type of its launch (`launchType`).
        launch: LaunchType = LaunchType(f.get(LAUNCH_TYPE)),
        /// The requested split of L1 cache and shared memory (`cacheConfig`, requested).
        cache_requested: CacheConfig = CacheConfig(f.get(CACHE_CONFIG_BOTH) & 0xf),
        /// The split in effect (`cacheConfig`, executed). CUPTI updates neither if a carveout was
        /// requested.
        cache_executed: CacheConfig = CacheConfig(f.get(CACHE_CONFIG_BOTH) >> 4),
        /// The width of shared memory's banks (`sharedMemoryConfig`).
        shared_banks: SharedMemoryConfig = SharedMemoryConfig(f.get(SHARED_MEMORY_CONFIG)),
        /// The requested caching of global memory (`partitionedGlobalCacheRequested`).
        partitioned_cache_requested: PartitionedCache =
            PartitionedCache(f.get(PARTITIONED_GLOBAL_CACHE_REQUESTED)),
        /// The caching of global memory in effect (`partitionedGlobalCacheExecuted`).
        partitioned_cache_executed: PartitionedCache =
            PartitionedCache(f.get(PARTITIONED_GLOBAL_CACHE_EXECUTED)),
        /// The requested percentage of the largest possible shared memory
        /// (`sharedMemoryCarveoutRequested`), if any.
        shared_carveout_percent: Option<u8> = f
            .flag(IS_SHARED_MEMORY_CARVEOUT_REQUESTED)
            .then(|| f.get(SHARED_MEMORY_CARVEOUT_REQUESTED)),
        /// Bytes of shared memory that the driver set (`sharedMemoryExecuted`).
        shared_executed_bytes: u32 = f.get(SHARED_MEMORY_EXECUTED),
        /// The limit of dynamic shared memory a block: the default, or a larger one that was opted
        /// in to (`shmemLimitConfig`).
        shared_limit: SharedMemoryLimit = SharedMemoryLimit(f.get(SHMEM_LIMIT_CONFIG)),
        /// Bytes of local memory for all of its threads (`localMemoryTotal_v2`).
        local_bytes: u64 = f.get(LOCAL_MEMORY_TOTAL_V2),
        /// The channel of the launch (`channelID`, `channelType`); none if the device launched the
        /// kernel.
        channel: Option<Channel> = Channel::new(f.get(CHANNEL_ID), f.get(CHANNEL_TYPE)),
        /// The scheduling policy of its clusters (`clusterSchedulingPolicy`).
        cluster_scheduling: ClusterScheduling = ClusterScheduling(f.get(CLUSTER_SCHEDULING_POLICY)),
        /// The largest cluster that the kernel could have, in blocks (`maxPotentialClusterSize`).
        max_cluster_size: u32 = f.get(MAX_POTENTIAL_CLUSTER_SIZE),
        /// The maximum number of clusters on the device at once (`maxActiveClusters`).
        max_active_clusters: u32 = f.get(MAX_ACTIVE_CLUSTERS),
        /// True if a graph launched from the device ran it (`isDeviceLaunched`). From CUPTI 13.0.
        device_launched: Option<bool> = f.newer_flag(IS_DEVICE_LAUNCHED),
        /// The launch's priority (`priority`): lower values run first. From CUPTI 13.1.
        priority: Option<i32> = f.newer(PRIORITY),
        /// The programming model of its code (`executionModel`). From CUPTI 13.3.
        execution_model: Option<ExecutionModel> = f.newer(EXECUTION_MODEL).map(ExecutionModel),
        /// The node from which its graph's node was made or last updated (`sourceGraphId`,
        /// `sourceGraphNodeId`). From CUPTI 13.4.
        source_graph_node: Option<GraphNode> = f.newer_node(SOURCE_GRAPH_ID, SOURCE_GRAPH_NODE_ID),
    }
}

words! {
    /// The type of a kernel launch (`CUpti_ActivityLaunchType`).
    #[derive(Default)]
    LaunchType(u8) {
        REGULAR = 0 "regular",
        COOPERATIVE_SINGLE_DEVICE = 1 "cooperative on one device",
        COOPERATIVE_MULTI_DEVICE = 2 "cooperative on several devices",
        COMMAND_LIST = 3 "command list",
    }

    /// A kernel's preference: L1 cache or shared memory (`CUfunc_cache`).
    #[derive(Default)]
    CacheConfig(u8) {
        NONE = 0 "no preference",
        SHARED = 1 "shared memory",
        L1 = 2 "L1 cache",
        EQUAL = 3 "equal",
    }

    /// The width of shared memory's banks (`CUsharedconfig`).
    #[derive(Default)]
    SharedMemoryConfig(u8) {
        DEFAULT = 0 "default",
        FOUR_BYTES = 1 "four bytes",
        EIGHT_BYTES = 2 "eight bytes",
    }

    /// Partitioned caching of global memory (`CUpti_ActivityPartitionedGlobalCacheConfig`).
    #[derive(Default)]
    PartitionedCache(u32) {
        UNKNOWN = 0 "not known",
        NOT_SUPPORTED = 1 "not supported",
        OFF = 2 "off",
        ON = 3 "on",
    }

    /// The limit of dynamic shared memory a block (`CUpti_FuncShmemLimitConfig`).
    #[derive(Default)]
    SharedMemoryLimit(u32) {
        DEFAULT = 0 "default",
        OPT_IN = 1 "opted in to more",
    }

    /// The scheduling policy of clusters (`CUclusterSchedulingPolicy`).
    #[derive(Default)]
    ClusterScheduling(u32) {
        DEFAULT = 0 "default",
        SPREAD = 1 "spread",
        LOAD_BALANCING = 2 "load balancing",
    }

    /// The execution model of a kernel (`CUpti_FuncExecutionModel`).
    ExecutionModel(u32) {
        UNKNOWN = 0 "not known",
        SIMT = 1 "SIMT",
        TILE = 2 "tile",
        HYBRID = 3 "hybrid",
    }
}
