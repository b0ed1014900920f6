//! The kinds of activity records.

use std::fmt;

/// `CUpti_ActivityKind`. A newer library may have kinds without a name here.
///
/// Kinds that CUPTI 13.0 removed (events, metrics, source-level sampling of the old interfaces)
/// have no name either. No library of 12.0 or later writes them unless a program uses those
/// interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActivityKind(pub u32);

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        impl ActivityKind {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// Every kind with a name, by number.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// CUPTI's name without its prefix, if the kind has one here.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// Copies within a device, or between it and the host.
    MEMCPY = 1;
    /// Memsets.
    MEMSET = 2;
    /// Kernels, serialised by CUPTI.
    KERNEL = 3;
    /// Driver API calls.
    DRIVER = 4;
    /// Runtime API calls.
    RUNTIME = 5;
    /// Devices.
    DEVICE = 8;
    /// Contexts.
    CONTEXT = 9;
    /// Kernels, including concurrent ones.
    CONCURRENT_KERNEL = 10;
    /// Names given to threads, devices, contexts and streams (NVTX).
    NAME = 11;
    /// NVTX ranges and marks.
    MARKER = 12;
    /// Payload, colour and category of an NVTX range or mark.
    MARKER_DATA = 13;
    /// Overhead of CUPTI and the driver.
    OVERHEAD = 17;
    /// Kernels launched by kernels, on devices before sm_70.
    CDP_KERNEL = 18;
    /// Preemptions of such kernels.
    PREEMPTION = 19;
    /// Clocks, temperature, power and fan of a device.
    ENVIRONMENT = 20;
    /// Copies between devices.
    MEMCPY2 = 22;
    /// Transfers and page faults of managed memory
    /// ([`Config::unified_memory_counters`](crate::Config::unified_memory_counters)).
    UNIFIED_MEMORY_COUNTER = 25;
    /// Functions of modules.
    FUNCTION = 26;
    /// Loaded modules.
    MODULE = 27;
    /// Attributes of devices.
    DEVICE_ATTRIBUTE = 28;
    /// OpenACC data events.
    OPENACC_DATA = 33;
    /// OpenACC launches.
    OPENACC_LAUNCH = 34;
    /// Other OpenACC events.
    OPENACC_OTHER = 35;
    /// Recorded CUDA events. Libraries before 12.9 write them along with synchronisations.
    CUDA_EVENT = 36;
    /// Streams.
    STREAM = 37;
    /// Waits for streams, events and contexts.
    SYNCHRONIZATION = 38;
    /// The caller's own ids, tied to correlation ids
    /// ([`Library::external_correlation`](crate::Library::external_correlation)).
    EXTERNAL_CORRELATION = 39;
    /// NVLinks between devices.
    NVLINK = 40;
    /// Allocations with their whole lifetime.
    MEMORY = 45;
    /// The PCI Express topology.
    PCIE = 46;
    /// OpenMP events.
    OPENMP = 47;
    /// Launches that the driver makes on its own.
    INTERNAL_LAUNCH_API = 48;
    /// Allocations and frees, one record each.
    MEMORY2 = 49;
    /// Memory pools.
    MEMORY_POOL = 50;
    /// Launches of CUDA graphs, each as a whole.
    GRAPH_TRACE = 51;
    /// Just-in-time compilation.
    JIT = 52;
    /// Launches of CUDA graphs from a device.
    DEVICE_GRAPH_TRACE = 53;
    /// Batches of decompression.
    MEM_DECOMPRESS = 54;
    /// Key rotations of confidential computing.
    CONFIDENTIAL_COMPUTE_ROTATION = 55;
    /// Host functions of CUDA graphs.
    GRAPH_HOST_NODE = 56;
    /// Switches of the compute engine between contexts.
    COMPUTE_ENGINE_CTX_SWITCH = 57;
    /// Host functions of streams.
    HOST_LAUNCH = 58;
    /// Green contexts.
    GREEN_CONTEXT = 59;
}

impl fmt::Display for ActivityKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "activity kind {}", self.0),
        }
    }
}
