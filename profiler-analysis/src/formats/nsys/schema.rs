//! The written tables of a capture, with names and types of schema 3.7, which `nsys stats` and
//! `nsys analyze` since 2023.4 can read. Unknown values may be NULL in columns that nsys always
//! fills.

/// The schema version of these tables.
pub(super) const VERSION: (u32, u32, u32) = (3, 7, 2);

/// A table and its written and read columns, in the order of cells.
pub(super) type Columns = (&'static str, &'static str);

pub(super) const STRINGS: Columns = ("StringIds", "id, value");
pub(super) const PROCESSES: Columns = ("PROCESSES", "globalPid, pid, name");
pub(super) const THREADS: Columns = ("ThreadNames", "nameId, priority, globalTid");
pub(super) const CAPTURE: Columns = ("META_DATA_CAPTURE", "name, value");
pub(super) const DEVICE_IDS: Columns = ("TARGET_INFO_CUDA_DEVICE", "gpuId, cudaId, pid");
pub(super) const CALLS: Columns = (
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "start, end, eventClass, globalTid, correlationId, nameId, returnValue",
);
pub(super) const SYNCHRONIZATIONS: Columns = (
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "start, end, contextId, streamId, correlationId, globalPid, syncType, eventId, eventSyncId",
);
pub(super) const MEMORY: Columns = (
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "start, globalPid, deviceId, address, bytes, memKind, memoryOperationType, correlationId",
);
pub(super) const HOST_FAULTS: Columns = (
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS",
    "start, globalPid, address, CpuInstruction, sourceFile, sourceLine",
);
pub(super) const DEVICE_FAULTS: Columns = (
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
    "start, end, globalPid, deviceId, address, numberOfPageFaults",
);
pub(super) const OVERHEADS: Columns =
    ("PROFILER_OVERHEAD", "start, end, globalTid, nameId, returnValue");
pub(super) const SESSION_START: Columns =
    ("TARGET_INFO_SESSION_START_TIME", "utcEpochNs, utcTime, localTime");
pub(super) const DETAILS: Columns =
    ("ANALYSIS_DETAILS", "globalVid, duration, startTime, stopTime");
pub(super) const DEVICES: Columns = (
    "TARGET_INFO_GPU",
    "vmId, id, name, l2CacheSize, totalMemory, memoryBandwidth, clockRate, smCount, cuDevice, computeMajor, \
     computeMinor, smMajor, smMinor",
);
/// The devices of captures before schemas had versions, in the order of [`DEVICES`] and its limits.
#[cfg(feature = "nsys")]
pub(super) const OLD_DEVICES: Columns = (
    "TARGET_INFO_CUDA_GPU",
    "vmId, deviceId, name, l2CacheSize, globalMemorySize, globalMemoryBandwidth, coreClockRate, numMultiprocessors, \
     deviceId, computeCapabilityMajor, computeCapabilityMinor, smMajor, smMinor, maxWarpsPerMultiprocessor, \
     maxBlocksPerMultiprocessor, maxRegistersPerMultiprocessor, maxRegistersPerBlock, maxSharedMemoryPerMultiprocessor, \
     maxSharedMemoryPerBlock",
);
pub(super) const GRAPH_NODES: Columns =
    ("CUDA_GRAPH_NODE_EVENTS", "start, end, eventClass, globalTid, nameId, graphNodeId");
pub(super) const CONTEXTS: Columns =
    ("TARGET_INFO_CUDA_CONTEXT_INFO", "nullStreamId, hwId, vmId, processId, deviceId, contextId");
pub(super) const STREAMS: Columns =
    ("TARGET_INFO_CUDA_STREAM", "streamId, hwId, vmId, processId, contextId, flag");
pub(super) const RANGES: Columns =
    ("RANGES", "id, parentId, path, domain, instance, globalTid, start, end");
pub(super) const METRICS: Columns =
    ("TARGET_INFO_GPU_METRICS", "typeId, sourceId, typeName, metricId, metricName");
pub(super) const METRIC_VALUES: Columns =
    ("GPU_METRICS", "rawTimestamp, timestamp, typeId, metricId, value");
pub(super) const SAMPLES: Columns =
    ("SAMPLES", "device, source, metric, label, unit, kind, start, end, value");
pub(super) const SAMPLERS: Columns = (
    "SAMPLERS",
    "device, source, intervalNs, samples, dropped, overflows, gaps, gapNs, missing, failure",
);
pub(super) const ANNOTATIONS: Columns = (
    "NVTX_EVENTS",
    "start, end, eventType, rangeId, category, color, text, globalTid, endGlobalTid, domainId, uint64Value, \
     int64Value, doubleValue, uint32Value, int32Value, floatValue, jsonText",
);

/// The columns of all GPU operations and of one kind.
macro_rules! operation {
    ($columns:literal) => {
        concat!(
            "start, end, deviceId, contextId, greenContextId, streamId, correlationId, globalPid, ",
            $columns
        )
    };
}

pub(super) const KERNELS: Columns = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    operation!(
        "demangledName, shortName, mangledName, registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ, \
         staticSharedMemory, dynamicSharedMemory, localMemoryPerThread, graphNodeId, graphId, clusterX, clusterY, \
         clusterZ, localMemoryTotal, gridId, launchType, cacheConfig, sharedMemoryExecuted, sharedMemoryLimitConfig"
    ),
);
pub(super) const COPIES: Columns = (
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    operation!(
        "bytes, copyKind, srcKind, dstKind, graphNodeId, graphId, copyCount, srcDeviceId, srcContextId, dstDeviceId, \
         dstContextId, virtualAddress"
    ),
);
pub(super) const MEMSETS: Columns =
    ("CUPTI_ACTIVITY_KIND_MEMSET", operation!("value, bytes, memKind, graphNodeId, graphId"));
pub(super) const GRAPHS: Columns =
    ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", operation!("graphId, graphExecId"));

/// All tables, related ones together.
pub(crate) const TABLES: &str = "
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE META_DATA_CAPTURE (name TEXT NOT NULL, value TEXT);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
CREATE TABLE ProcessStreams (globalPid INTEGER NOT NULL, filenameId INTEGER NOT NULL, contentId INTEGER NOT NULL);
CREATE TABLE ANALYSIS_DETAILS (
    globalVid INTEGER NOT NULL, duration INTEGER NOT NULL, startTime INTEGER NOT NULL, stopTime INTEGER NOT NULL
);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (
    globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL, nameEnum INTEGER NOT NULL, value TEXT NOT NULL
);
CREATE TABLE TARGET_INFO_GPU (
    vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, isDiscrete INTEGER, l2CacheSize INTEGER,
    totalMemory INTEGER, memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER, pwGpuId INTEGER, uuid TEXT,
    luid INTEGER, chipName TEXT, cuDevice INTEGER, ctxswDevPath TEXT, ctrlDevPath TEXT, revision INTEGER,
    nodeMask INTEGER, constantMemory INTEGER, maxIPC INTEGER, maxRegistersPerBlock INTEGER, maxShmemPerBlock INTEGER,
    maxShmemPerBlockOptin INTEGER, maxShmemPerSm INTEGER, maxRegistersPerSm INTEGER, threadsPerWarp INTEGER,
    asyncEngines INTEGER, maxWarpsPerSm INTEGER, maxBlocksPerSm INTEGER, maxThreadsPerBlock INTEGER,
    maxBlockDimX INTEGER, maxBlockDimY INTEGER, maxBlockDimZ INTEGER, maxGridDimX INTEGER, maxGridDimY INTEGER,
    maxGridDimZ INTEGER, computeMajor INTEGER, computeMinor INTEGER, smMajor INTEGER, smMinor INTEGER
);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL);
CREATE TABLE TARGET_INFO_CUDA_CONTEXT_INFO (
    nullStreamId INTEGER, hwId INTEGER NOT NULL, vmId INTEGER NOT NULL, processId INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, parentContextId INTEGER, isGreenContext INTEGER
);
CREATE TABLE TARGET_INFO_CUDA_STREAM (
    streamId INTEGER NOT NULL, hwId INTEGER NOT NULL, vmId INTEGER NOT NULL, processId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, priority INTEGER, flag INTEGER NOT NULL
);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
    greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER,
    cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL,
    gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL,
    staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL,
    localMemoryTotal INTEGER, gridId INTEGER, sharedMemoryExecuted INTEGER, graphNodeId INTEGER,
    sharedMemoryLimitConfig INTEGER, graphId INTEGER, clusterX INTEGER, clusterY INTEGER, clusterZ INTEGER
);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
    greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER, dstKind INTEGER,
    srcDeviceId INTEGER, srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER, migrationCause INTEGER,
    graphNodeId INTEGER, virtualAddress INTEGER, copyCount INTEGER, graphId INTEGER
);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
    greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    value INTEGER NOT NULL, bytes INTEGER NOT NULL, graphNodeId INTEGER, memKind INTEGER, graphId INTEGER
);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (
    start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,
    correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER
);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER, contextId INTEGER NOT NULL,
    greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    syncType INTEGER NOT NULL, eventId INTEGER NOT NULL, eventSyncId INTEGER
);
CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (
    start INTEGER NOT NULL, globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER,
    address INTEGER NOT NULL, pc INTEGER, bytes INTEGER NOT NULL, memKind INTEGER NOT NULL,
    memoryOperationType INTEGER NOT NULL, name TEXT, correlationId INTEGER
);
CREATE TABLE CUDA_GRAPH_NODE_EVENTS (
    start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,
    nameId INTEGER NOT NULL, graphNodeId INTEGER NOT NULL, originalGraphNodeId INTEGER
);
CREATE TABLE NVTX_EVENTS (
    start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, color INTEGER,
    text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value INTEGER,
    int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, floatValue REAL,
    jsonTextId INTEGER, jsonText TEXT
);
";

/// Tables written only if they have rows: a report treats an empty one as a finding.
pub(crate) const MANAGED_TABLES: &str = "
CREATE TABLE CUDA_UM_CPU_PAGE_FAULT_EVENTS (
    start INTEGER NOT NULL, globalPid INTEGER NOT NULL, address INTEGER NOT NULL, originalFaultPc INTEGER,
    CpuInstruction INTEGER NOT NULL, module INTEGER, unresolvedFaultPc INTEGER, sourceFile INTEGER, sourceLine INTEGER
);
CREATE TABLE CUDA_UM_GPU_PAGE_FAULT_EVENTS (
    start INTEGER NOT NULL, end INTEGER NOT NULL, globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    address INTEGER NOT NULL, numberOfPageFaults INTEGER NOT NULL, faultAccessType INTEGER
);
";

/// Written only if counters were sampled. nsys rounds values; these are not rounded.
pub(crate) const METRICS_TABLES: &str = "
CREATE TABLE TARGET_INFO_GPU_METRICS (
    typeId INTEGER NOT NULL, sourceId INTEGER NOT NULL, typeName TEXT NOT NULL, metricId INTEGER NOT NULL,
    metricName TEXT NOT NULL
);
CREATE TABLE GPU_METRICS (
    rawTimestamp INTEGER NOT NULL, timestamp INTEGER NOT NULL, typeId INTEGER NOT NULL, metricId INTEGER NOT NULL,
    value INTEGER NOT NULL
);
";

/// Written only if graphs were traced as one interval each.
pub(crate) const GRAPHS_TABLE: &str = "
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
    greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL
);
";

pub(crate) const OVERHEAD_TABLE: &str = "
CREATE TABLE PROFILER_OVERHEAD (
    start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER, nameId INTEGER NOT NULL,
    returnValue INTEGER NOT NULL
);
";

/// The statement that creates a table of [`ENUMERATIONS`].
pub(super) fn enumeration(table: &str) -> String {
    format!("CREATE TABLE {table} (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);")
}

/// Enumerations for reports and other readers: tables with number, name and label in each row.
pub(super) const ENUMERATIONS: &str = "\
ENUM_NSYS_EVENT_CLASS
0 TRACE_PROCESS_EVENT_CUDA_RUNTIME CUDA runtime
1 TRACE_PROCESS_EVENT_CUDA_DRIVER CUDA driver
77 TRACE_PROCESS_EVENT_CUDA_GRAPH_NODE_CREATION CUDA graph node creation
ENUM_NSYS_EVENT_TYPE
33 NvtxCategory NvtxCategory
34 NvtxMark NvtxMark
39 NvtxThread NvtxThread
59 NvtxPushPopRange NvtxPushPopRange
60 NvtxStartEndRange NvtxStartEndRange
75 NvtxDomainCreate NvtxDomainCreate
ENUM_CUDA_MEMCPY_OPER
0 CUDA_MEMCPY_KIND_UNKNOWN Unknown
1 CUDA_MEMCPY_KIND_HTOD Host-to-Device
2 CUDA_MEMCPY_KIND_DTOH Device-to-Host
3 CUDA_MEMCPY_KIND_HTOA Host-to-Array
4 CUDA_MEMCPY_KIND_ATOH Array-to-Host
5 CUDA_MEMCPY_KIND_ATOA Array-to-Array
6 CUDA_MEMCPY_KIND_ATOD Array-to-Device
7 CUDA_MEMCPY_KIND_DTOA Device-to-Array
8 CUDA_MEMCPY_KIND_DTOD Device-to-Device
9 CUDA_MEMCPY_KIND_HTOH Host-to-Host
10 CUDA_MEMCPY_KIND_PTOP Peer-to-Peer
11 CUDA_MEMCPY_KIND_UVM_HTOD Unified Host-to-Device
12 CUDA_MEMCPY_KIND_UVM_DTOH Unified Device-to-Host
13 CUDA_MEMCPY_KIND_UVM_DTOD Unified Device-to-Device
ENUM_CUDA_MEM_KIND
0 CUDA_MEMOPR_MEMORY_KIND_PAGEABLE Pageable
1 CUDA_MEMOPR_MEMORY_KIND_PINNED Pinned
2 CUDA_MEMOPR_MEMORY_KIND_DEVICE Device
3 CUDA_MEMOPR_MEMORY_KIND_ARRAY Array
4 CUDA_MEMOPR_MEMORY_KIND_MANAGED Managed
5 CUDA_MEMOPR_MEMORY_KIND_DEVICE_STATIC Device Static
6 CUDA_MEMOPR_MEMORY_KIND_MANAGED_STATIC Managed Static
7 CUDA_MEMOPR_MEMORY_KIND_UNKNOWN Unknown
ENUM_CUPTI_SYNC_TYPE
0 CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_UNKNOWN Unknown
1 CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE Event sync
2 CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT Stream wait sync
3 CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE Stream sync
4 CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE Context sync
ENUM_CUPTI_STREAM_TYPE
0 CUPTI_ACTIVITY_STREAM_CREATE_FLAG_UNKNOWN Unknown stream type
1 CUPTI_ACTIVITY_STREAM_CREATE_FLAG_DEFAULT Default stream
2 CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NON_BLOCKING Non-blocking stream
3 CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NULL Null stream
ENUM_CUDA_KERNEL_LAUNCH_TYPE
0 CUDA_KERNEL_LAUNCH_TYPE_UNKNOWN Unknown
1 CUDA_KERNEL_LAUNCH_TYPE_REGULAR Regular
2 CUDA_KERNEL_LAUNCH_TYPE_COOPERATIVE_SINGLE_DEVICE Coop Single Device
3 CUDA_KERNEL_LAUNCH_TYPE_COOPERATIVE_MULTI_DEVICE Coop Multi Device
ENUM_CUDA_DEV_MEM_EVENT_OPER
0 CUDA_DEV_MEM_EVENT_OPR_ALLOCATION Allocation
1 CUDA_DEV_MEM_EVENT_OPR_DEALLOCATION Deallocation
";
