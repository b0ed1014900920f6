//! `cudarc`'s bindings, which bindgen made from CUPTI's headers, as a second witness: the fields that we read are where it
//! has them, in every record that CUPTI 13.0 writes.

use std::collections::BTreeSet;
use std::mem::offset_of;

use cudarc::cupti::sys as cudarc;
use cupti::Version;
use cupti::sys::{field, generated};

/// The version whose bindings the workspace has `cudarc` use.
const VERSION: Version = Version(130_001);

/// A family, the struct that this version writes for it, and its fields: our constant, CUPTI's name. Of a kind without a
/// type the length alone is known.
macro_rules! layouts {
    ($($family:ident $struct:ident { $($field:ident $($path:ident).+),* })+) => {
        #[test]
        fn fields_are_where_cudarc_has_them() {
            $($(
                assert_eq!(
                    generated::$family::$field.offset(),
                    offset_of!(cudarc::$struct, $($path).+),
                    concat!(stringify!($struct), " ", stringify!($field)),
                );
            )*)+
        }

        #[test]
        fn records_are_as_long_as_cudarc_has_them() {
            $(
                let stride = field::stride(generated::$family::STRIDES, VERSION);
                assert_eq!(stride, Some(size_of::<cudarc::$struct>()), stringify!($struct));
            )+
        }

        #[test]
        fn no_kind_is_left_out() {
            let of_cudarc: BTreeSet<u32> = [$(generated::$family::KINDS),+].into_iter().flatten().copied().collect();
            let of_version = generated::FAMILIES.iter().filter(|(_, strides)| field::stride(strides, VERSION).is_some());
            let of_version: BTreeSet<u32> = of_version.flat_map(|(kinds, _)| *kinds).copied().collect();
            assert_eq!(of_cudarc, of_version);
        }
    };
}

layouts! {
    kernel CUpti_ActivityKernel10 {
        CACHE_CONFIG_BOTH cacheConfig.both, SHARED_MEMORY_CONFIG sharedMemoryConfig,
        REGISTERS_PER_THREAD registersPerThread,
        PARTITIONED_GLOBAL_CACHE_REQUESTED partitionedGlobalCacheRequested,
        PARTITIONED_GLOBAL_CACHE_EXECUTED partitionedGlobalCacheExecuted, START start, END end,
        COMPLETED completed, DEVICE_ID deviceId, CONTEXT_ID contextId, STREAM_ID streamId, GRID_X gridX,
        GRID_Y gridY, GRID_Z gridZ, BLOCK_X blockX, BLOCK_Y blockY, BLOCK_Z blockZ,
        STATIC_SHARED_MEMORY staticSharedMemory, DYNAMIC_SHARED_MEMORY dynamicSharedMemory,
        LOCAL_MEMORY_PER_THREAD localMemoryPerThread, CORRELATION_ID correlationId, GRID_ID gridId, NAME name,
        QUEUED queued, SUBMITTED submitted, LAUNCH_TYPE launchType,
        IS_SHARED_MEMORY_CARVEOUT_REQUESTED isSharedMemoryCarveoutRequested,
        SHARED_MEMORY_CARVEOUT_REQUESTED sharedMemoryCarveoutRequested,
        SHARED_MEMORY_EXECUTED sharedMemoryExecuted, GRAPH_NODE_ID graphNodeId,
        SHMEM_LIMIT_CONFIG shmemLimitConfig, GRAPH_ID graphId, P_ACCESS_POLICY_WINDOW pAccessPolicyWindow,
        CHANNEL_ID channelID, CHANNEL_TYPE channelType, CLUSTER_X clusterX, CLUSTER_Y clusterY,
        CLUSTER_Z clusterZ, CLUSTER_SCHEDULING_POLICY clusterSchedulingPolicy,
        LOCAL_MEMORY_TOTAL_V2 localMemoryTotal_v2, MAX_POTENTIAL_CLUSTER_SIZE maxPotentialClusterSize,
        MAX_ACTIVE_CLUSTERS maxActiveClusters, IS_DEVICE_LAUNCHED isDeviceLaunched
    }
    memcpy CUpti_ActivityMemcpy6 {
        COPY_KIND copyKind, SRC_KIND srcKind, DST_KIND dstKind, FLAGS flags, BYTES bytes, START start,
        END end, DEVICE_ID deviceId, CONTEXT_ID contextId, STREAM_ID streamId, CORRELATION_ID correlationId,
        RUNTIME_CORRELATION_ID runtimeCorrelationId, GRAPH_NODE_ID graphNodeId, GRAPH_ID graphId,
        CHANNEL_ID channelID, CHANNEL_TYPE channelType, IS_DEVICE_LAUNCHED isDeviceLaunched,
        COPY_COUNT copyCount
    }
    memcpy2 CUpti_ActivityMemcpyPtoP4 {
        COPY_KIND copyKind, SRC_KIND srcKind, DST_KIND dstKind, FLAGS flags, BYTES bytes, START start,
        END end, DEVICE_ID deviceId, CONTEXT_ID contextId, STREAM_ID streamId, SRC_DEVICE_ID srcDeviceId,
        SRC_CONTEXT_ID srcContextId, DST_DEVICE_ID dstDeviceId, DST_CONTEXT_ID dstContextId,
        CORRELATION_ID correlationId, GRAPH_NODE_ID graphNodeId, GRAPH_ID graphId, CHANNEL_ID channelID,
        CHANNEL_TYPE channelType
    }
    memset CUpti_ActivityMemset4 {
        VALUE value, BYTES bytes, START start, END end, DEVICE_ID deviceId, CONTEXT_ID contextId,
        STREAM_ID streamId, CORRELATION_ID correlationId, FLAGS flags, MEMORY_KIND memoryKind,
        GRAPH_NODE_ID graphNodeId, GRAPH_ID graphId, CHANNEL_ID channelID, CHANNEL_TYPE channelType,
        IS_DEVICE_LAUNCHED isDeviceLaunched
    }
    api CUpti_ActivityAPI {
        CBID cbid, START start, END end, PROCESS_ID processId, THREAD_ID threadId,
        CORRELATION_ID correlationId, RETURN_VALUE returnValue
    }
    marker CUpti_ActivityMarker2 {}
    marker_data CUpti_ActivityMarkerData2 {}
    external_correlation CUpti_ActivityExternalCorrelation {}
    synchronization CUpti_ActivitySynchronization2 {
        TYPE type_, START start, END end, CORRELATION_ID correlationId, CONTEXT_ID contextId,
        STREAM_ID streamId, CUDA_EVENT_ID cudaEventId, CUDA_EVENT_SYNC_ID cudaEventSyncId,
        RETURN_VALUE returnValue
    }
    overhead CUpti_ActivityOverhead3 {
        OVERHEAD_KIND overheadKind, OBJECT_KIND objectKind, OBJECT_ID_PT_PROCESS_ID objectId.pt.processId,
        OBJECT_ID_PT_THREAD_ID objectId.pt.threadId, OBJECT_ID_DCS_DEVICE_ID objectId.dcs.deviceId,
        OBJECT_ID_DCS_CONTEXT_ID objectId.dcs.contextId, OBJECT_ID_DCS_STREAM_ID objectId.dcs.streamId,
        START start, END end, CORRELATION_ID correlationId, OVERHEAD_DATA overheadData
    }
    graph_trace CUpti_ActivityGraphTrace2 {
        CORRELATION_ID correlationId, START start, END end, DEVICE_ID deviceId, GRAPH_ID graphId,
        CONTEXT_ID contextId, STREAM_ID streamId, END_DEVICE_ID endDeviceId, END_CONTEXT_ID endContextId
    }
    device_graph_trace CUpti_ActivityDeviceGraphTrace {}
    memory CUpti_ActivityMemory {}
    memory2 CUpti_ActivityMemory4 {
        MEMORY_OPERATION_TYPE memoryOperationType, MEMORY_KIND memoryKind, CORRELATION_ID correlationId,
        ADDRESS address, BYTES bytes, TIMESTAMP timestamp, PC PC, PROCESS_ID processId, DEVICE_ID deviceId,
        CONTEXT_ID contextId, STREAM_ID streamId, NAME name, IS_ASYNC isAsync,
        MEMORY_POOL_CONFIG_MEMORY_POOL_TYPE memoryPoolConfig.memoryPoolType,
        MEMORY_POOL_CONFIG_ADDRESS memoryPoolConfig.address,
        MEMORY_POOL_CONFIG_RELEASE_THRESHOLD memoryPoolConfig.releaseThreshold,
        MEMORY_POOL_CONFIG_POOL_SIZE memoryPoolConfig.pool.size,
        MEMORY_POOL_CONFIG_POOL_PROCESS_ID memoryPoolConfig.pool.processId,
        MEMORY_POOL_CONFIG_UTILIZED_SIZE memoryPoolConfig.utilizedSize, SOURCE source
    }
    memory_pool CUpti_ActivityMemoryPool3 {}
    unified_memory_counter CUpti_ActivityUnifiedMemoryCounter3 {
        COUNTER_KIND counterKind, VALUE value, START start, END end, ADDRESS address, SRC_ID srcId,
        DST_ID dstId, STREAM_ID streamId, PROCESS_ID processId, FLAGS flags, PROCESSORS processors
    }
    cuda_event CUpti_ActivityCudaEvent2 {
        CORRELATION_ID correlationId, CONTEXT_ID contextId, STREAM_ID streamId, EVENT_ID eventId,
        DEVICE_ID deviceId, DEVICE_TIMESTAMP deviceTimestamp, CUDA_EVENT_SYNC_ID cudaEventSyncId
    }
    stream CUpti_ActivityStream {}
    context CUpti_ActivityContext3 {}
    device CUpti_ActivityDevice5 {
        FLAGS flags, GLOBAL_MEMORY_BANDWIDTH globalMemoryBandwidth, GLOBAL_MEMORY_SIZE globalMemorySize,
        CONSTANT_MEMORY_SIZE constantMemorySize, L2_CACHE_SIZE l2CacheSize,
        NUM_THREADS_PER_WARP numThreadsPerWarp, CORE_CLOCK_RATE coreClockRate,
        NUM_MEMCPY_ENGINES numMemcpyEngines, NUM_MULTIPROCESSORS numMultiprocessors, MAX_IPC maxIPC,
        MAX_WARPS_PER_MULTIPROCESSOR maxWarpsPerMultiprocessor,
        MAX_BLOCKS_PER_MULTIPROCESSOR maxBlocksPerMultiprocessor,
        MAX_SHARED_MEMORY_PER_MULTIPROCESSOR maxSharedMemoryPerMultiprocessor,
        MAX_REGISTERS_PER_MULTIPROCESSOR maxRegistersPerMultiprocessor,
        MAX_REGISTERS_PER_BLOCK maxRegistersPerBlock, MAX_SHARED_MEMORY_PER_BLOCK maxSharedMemoryPerBlock,
        MAX_THREADS_PER_BLOCK maxThreadsPerBlock, MAX_BLOCK_DIM_X maxBlockDimX, MAX_BLOCK_DIM_Y maxBlockDimY,
        MAX_BLOCK_DIM_Z maxBlockDimZ, MAX_GRID_DIM_X maxGridDimX, MAX_GRID_DIM_Y maxGridDimY,
        MAX_GRID_DIM_Z maxGridDimZ, COMPUTE_CAPABILITY_MAJOR computeCapabilityMajor,
        COMPUTE_CAPABILITY_MINOR computeCapabilityMinor, ID id, ECC_ENABLED eccEnabled, UUID uuid.bytes,
        NAME name, IS_CUDA_VISIBLE isCudaVisible, IS_MIG_ENABLED isMigEnabled, GPU_INSTANCE_ID gpuInstanceId,
        COMPUTE_INSTANCE_ID computeInstanceId, MIG_UUID migUuid.bytes, IS_NUMA_NODE isNumaNode, NUMA_ID numaId
    }
    environment CUpti_ActivityEnvironment {}
    name CUpti_ActivityName {}
    function CUpti_ActivityFunction {}
    nvlink CUpti_ActivityNvLink4 {}
    pcie CUpti_ActivityPcie {}
    jit CUpti_ActivityJit2 {}
    mem_decompress CUpti_ActivityMemDecompress {}
    confidential_compute_rotation CUpti_ActivityConfidentialComputeRotation {}
}

#[test]
fn the_configuration_of_counters_is_as_cudarc_has_it() {
    use cudarc::CUpti_ActivityUnifiedMemoryCounterConfig as Theirs;
    use cupti::sys::abi::UnifiedMemoryCounterConfig as Ours;
    let ours = [offset_of!(Ours, scope), offset_of!(Ours, kind), offset_of!(Ours, device_id)];
    let theirs =
        [offset_of!(Theirs, scope), offset_of!(Theirs, kind), offset_of!(Theirs, deviceId)];
    assert_eq!((ours, offset_of!(Ours, enable)), (theirs, offset_of!(Theirs, enable)));
    assert_eq!(size_of::<Ours>(), size_of::<Theirs>());
}
