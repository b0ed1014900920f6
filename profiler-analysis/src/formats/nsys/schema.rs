//! The written tables of a capture, with names and types of schema 3.7, which `nsys stats` and
//! `nsys analyze` since 2023.4 can read. Unknown values may be NULL in columns that nsys always
//! fills.

/// The schema version of these tables.
pub(super) const VERSION: (u32, u32, u32) = (3, 7, 2);

/// A table and its written and read columns, in the order of cells.
pub(super) type Columns = (&'static str, &'static str);

pub(super) const STRINGS: Columns = ("StringIds", "id, value");
pub(super) const PROCESSES: Columns = ("PROCESSES", "globalPid, pid, name");
/// Facts about the machine, of which one is nsys's environment.
#[cfg(feature = "nsys")]
pub(super) const MACHINE: Columns = ("TARGET_INFO_SYSTEM_ENV", "name, value");
/// Ranks of MPI (`--trace=mpi`).
#[cfg(feature = "nsys")]
pub(super) const MPI_RANKS: Columns = ("MPI_RANKS", "globalTid, rank");
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
     computeMinor, smMajor, smMinor, busLocation",
);
/// The devices of captures before schemas had versions, in the order of [`DEVICES`] and its limits.
#[cfg(feature = "nsys")]
pub(super) const OLD_DEVICES: Columns = (
    "TARGET_INFO_CUDA_GPU",
    "vmId, deviceId, name, l2CacheSize, globalMemorySize, globalMemoryBandwidth, coreClockRate, numMultiprocessors, \
     deviceId, computeCapabilityMajor, computeCapabilityMinor, smMajor, smMinor, busLocation, maxWarpsPerMultiprocessor, \
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
pub(crate) const TABLES: &str = include_str!("schema/tables.sql");

/// Tables written only if they have rows: a report treats an empty one as a finding.
pub(crate) const MANAGED_TABLES: &str = include_str!("schema/managed_tables.sql");

/// Written only if counters were sampled. nsys rounds values; these are not rounded.
pub(crate) const METRICS_TABLES: &str = include_str!("schema/metrics_tables.sql");

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
pub(super) const ENUMERATIONS: &str = include_str!("schema/enumerations.txt");
