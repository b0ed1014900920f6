//! CUPTI's types with their memory layout. C enums are integers here: a newer library may have
//! values unknown today.

use std::ffi::{c_char, c_void};
use std::fmt;

/// `CUptiResult`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuptiResult(pub u32);

macro_rules! results {
    ($($name:ident = $value:literal),* $(,)?) => {
        #[allow(missing_docs)]
        impl CuptiResult {
            $(pub const $name: Self = Self($value);)*

            /// The code's name without its prefix, if this crate has a name for it.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}
results! {
    SUCCESS = 0, INVALID_PARAMETER = 1, INVALID_DEVICE = 2, INVALID_CONTEXT = 3, INVALID_OPERATION = 7,
    OUT_OF_MEMORY = 8, HARDWARE = 9, PARAMETER_SIZE_NOT_SUFFICIENT = 10, MAX_LIMIT_REACHED = 12, NOT_READY = 13,
    NOT_COMPATIBLE = 14,
    NOT_INITIALIZED = 15, INVALID_METRIC_NAME = 17, QUEUE_EMPTY = 18, INVALID_STREAM = 20, INVALID_KIND = 21, DISABLED = 23, HARDWARE_BUSY = 26, NOT_SUPPORTED = 27,
    UM_PROFILING_NOT_SUPPORTED = 28, UM_PROFILING_NOT_SUPPORTED_ON_DEVICE = 29,
    UM_PROFILING_NOT_SUPPORTED_ON_NON_P2P_DEVICES = 30, UM_PROFILING_NOT_SUPPORTED_WITH_MPS = 31,
    INSUFFICIENT_PRIVILEGES = 35, LEGACY_PROFILER_NOT_SUPPORTED = 38,
    MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39, VIRTUALIZED_DEVICE = 40, CONFIDENTIAL_COMPUTING = 41,
    CMP_DEVICE = 42, MIG_DEVICE = 43, SLI_DEVICE = 44, WSL_DEVICE = 45, INVALID_CHIP_NAME = 46, UNKNOWN = 999,
}

impl fmt::Display for CuptiResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "CUPTI error {name} ({})", self.0),
            None => write!(f, "CUPTI error {}", self.0),
        }
    }
}

/// `CUpti_CallbackDomain`: driver API.
pub const DOMAIN_DRIVER_API: u32 = 1;
/// `CUpti_CallbackDomain`: runtime API.
pub const DOMAIN_RUNTIME_API: u32 = 2;
/// `CUpti_CallbackDomain`: resources.
pub const DOMAIN_RESOURCE: u32 = 3;

macro_rules! resource_ids {
    ($($name:ident = $value:literal;)*) => {$(
        #[doc = concat!("`CUPTI_CBID_", stringify!($name), "`.")]
        pub const $name: u32 = $value;
    )*};
}

resource_ids! {
    RESOURCE_CONTEXT_CREATED = 1;
    RESOURCE_CONTEXT_DESTROY_STARTING = 2;
    RESOURCE_MODULE_LOADED = 6;
    RESOURCE_MODULE_UNLOAD_STARTING = 7;
    RESOURCE_GRAPH_CREATED = 9;
    RESOURCE_GRAPH_DESTROY_STARTING = 10;
    RESOURCE_GRAPH_CLONED = 11;
    RESOURCE_GRAPHNODE_CREATED = 13;
    RESOURCE_GRAPHNODE_DESTROY_STARTING = 14;
    RESOURCE_GRAPHNODE_DEPENDENCY_CREATED = 15;
    RESOURCE_GRAPHNODE_DEPENDENCY_DESTROY_STARTING = 16;
    RESOURCE_GRAPHEXEC_CREATED = 18;
    RESOURCE_GRAPHEXEC_DESTROY_STARTING = 19;
    RESOURCE_GRAPHNODE_CLONED = 20;
}

/// `CUPTI_API_ENTER`; the other site is `CUPTI_API_EXIT` (1).
pub const API_ENTER: u32 = 0;
/// `CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM`: the kernel's thread ids in records.
pub const THREAD_ID_TYPE_SYSTEM: u32 = 1;
/// `CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER`.
pub const ATTR_ZEROED_OUT_ACTIVITY_BUFFER: u32 = 5;
/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`.
pub const FLAG_FLUSH_FORCED: u32 = 1;

/// `CUPTI_STALL_REASON_STRING_SIZE`: the bytes of a stall reason's name.
pub const STALL_REASON_NAME_BYTES: usize = 128;
/// `CUpti_PCSamplingConfigurationAttributeType`: the sampling period, as a power of two.
pub const PC_SAMPLING_PERIOD: u32 = 1;
/// The stall reasons: their count, and a pointer to their indices.
pub const PC_SAMPLING_STALL_REASONS: u32 = 2;
/// Bytes of CUPTI's buffer on the host.
pub const PC_SAMPLING_SCRATCH_BUFFER: u32 = 3;
/// Bytes of the hardware's buffer.
pub const PC_SAMPLING_HARDWARE_BUFFER: u32 = 4;
/// The mode: 1 continuous, 2 serialised.
pub const PC_SAMPLING_MODE: u32 = 5;
/// The output format: 1 parsed.
pub const PC_SAMPLING_FORMAT: u32 = 7;
/// The memory for the samples that remain at the end.
pub const PC_SAMPLING_DATA_BUFFER: u32 = 8;

/// `CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_SCOPE_PROCESS_ALL_DEVICES`.
pub const UNIFIED_MEMORY_ALL_DEVICES: u32 = 2;

/// `CUpti_SubscriberHandle`.
pub type SubscriberHandle = *mut c_void;

/// Structures of CUPTI, each with its size and the offsets of its fields, which the compiler
/// checks.
macro_rules! structs {
    ($($(#[$doc:meta])* $name:ident: $size:literal {
        $($(#[$field_doc:meta])* $offset:literal $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        const _: () = {
            $(assert!(std::mem::offset_of!($name, $field) == $offset);)*
            assert!(size_of::<$name>() == $size);
        };
    )*};
}

structs! {
    /// `CUpti_CallbackData`, 72 bytes from 12.0 to 13.5.
    CallbackData: 72 {
        /// [`API_ENTER`] or exit.
        0 callback_site: u32,
        /// The function's name.
        8 function_name: *const c_char,
        /// The call's parameter block.
        16 function_params: *const c_void,
        /// The call's result: at exit, a pointer to a `CUresult`.
        24 function_return_value: *const c_void,
        /// The kernel's name, for launches.
        32 symbol_name: *const c_char,
        /// The current context.
        40 context: *mut c_void,
        /// Its id.
        48 context_uid: u32,
        /// A word that CUPTI retains from enter to exit.
        56 correlation_data: *mut u64,
        /// The id in the call's activity records.
        64 correlation_id: u32,
    }
    /// `CUpti_ResourceData`, 24 bytes from 12.0 to 13.5.
    ResourceData: 24 {
        /// The context of the event.
        0 context: *mut c_void,
        /// The stream, for events of streams.
        8 stream: *mut c_void,
        /// A [`GraphData`] for events of graphs, a [`ModuleData`] for events of modules.
        16 descriptor: *const c_void,
    }
    /// `CUpti_GraphData`, 56 bytes from 12.0 to 13.5. Handles that an event does not have are null.
    GraphData: 56 {
        /// The graph.
        0 graph: *mut c_void,
        /// The graph it was cloned from.
        8 original_graph: *mut c_void,
        /// The node.
        16 node: *mut c_void,
        /// The node it was cloned from.
        24 original_node: *mut c_void,
        /// `CUgraphNodeType`.
        32 node_type: u32,
        /// The node that depends on it.
        40 dependency: *mut c_void,
        /// The executable graph.
        48 graph_exec: *mut c_void,
    }
    /// `CUpti_ModuleResourceData`, 24 bytes from 12.0 to 13.5.
    ModuleData: 24 {
        /// The module's id.
        0 module_id: u32,
        /// The bytes of its cubin.
        8 cubin_size: usize,
        /// Its cubin, an ELF file.
        16 cubin: *const u8,
    }
    /// `CUpti_PCSamplingConfigurationInfo`, 32 bytes from 12.0 to 13.5.
    PcSamplingAttribute: 32 {
        /// `CUpti_PCSamplingConfigurationAttributeType`.
        0 kind: u32,
        /// CUPTI's result for this attribute alone.
        4 status: CuptiResult,
        /// The value: a union, at its beginning.
        8 value: [u64; 3],
    }
    /// `CUpti_PCSamplingStallReason`, 8 bytes from 12.0 to 13.5.
    PcSamplingStallReason: 8 {
        /// The index of the stall reason.
        0 index: u32,
        /// Samples with this reason.
        4 samples: u32,
    }
    /// `CUpti_ActivityUnifiedMemoryCounterConfig`, 16 bytes from 12.0 to 13.5.
    UnifiedMemoryCounterConfig: 16 {
        /// The devices that it applies to; [`UNIFIED_MEMORY_ALL_DEVICES`] here.
        0 scope: u32,
        /// `CUpti_ActivityUnifiedMemoryCounterKind`.
        4 kind: u32,
        /// The device, if the scope is a single device.
        8 device_id: u32,
        /// 1 for on, 0 for off.
        12 enable: u32,
    }
    /// `CUpti_SubscriberParams` as of 13.0, 32 bytes: the oldest layout, which every newer library
    /// accepts.
    SubscriberParams: 32 {
        /// This struct's size.
        0 struct_size: usize,
        /// Our name, at most 53 characters.
        8 subscriber_name: *const c_char,
        /// The memory to which CUPTI writes the current holder's name.
        16 old_subscriber_name: *mut c_char,
        /// The size of that memory in bytes.
        24 old_subscriber_size: usize,
    }
}

/// `CUpti_CallbackFunc`.
pub type CallbackFunc =
    unsafe extern "C" fn(userdata: *mut c_void, domain: u32, cbid: u32, data: *const c_void);
/// `CUpti_BuffersCallbackRequestFunc`.
pub type BufferRequested =
    unsafe extern "C" fn(buffer: *mut *mut u8, size: *mut usize, max_records: *mut usize);
/// `CUpti_BuffersCallbackCompleteFunc`.
pub type BufferCompleted = unsafe extern "C" fn(
    context: *mut c_void,
    stream: u32,
    buffer: *mut u8,
    size: usize,
    valid: usize,
);
