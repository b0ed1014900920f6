//! CUPTI's types as they lie in memory. C enums are integers here: a newer library may give values unknown today.

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

            /// The code's name without its prefix, if it is one this crate knows.
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
    NOT_INITIALIZED = 15, INVALID_METRIC_NAME = 17, QUEUE_EMPTY = 18, INVALID_KIND = 21, DISABLED = 23, HARDWARE_BUSY = 26, NOT_SUPPORTED = 27,
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
/// `CUpti_CallbackDomain`: finished waits.
pub const DOMAIN_SYNCHRONIZE: u32 = 4;
/// `CUpti_CallbackDomain`: NVTX.
pub const DOMAIN_NVTX: u32 = 5;
/// `CUpti_CallbackDomain`: errors and warnings of CUPTI itself (12.2+).
pub const DOMAIN_STATE: u32 = 6;

macro_rules! resource_events {
    ($($name:ident = $id:literal $(since $since:literal)?;)*) => {$(
        #[doc = concat!("`CUPTI_CBID_", stringify!($name), "`", $(" (", $since, "+)",)? ".")]
        pub const $name: u32 = $id;
    )*};
}
resource_events! {
    RESOURCE_CONTEXT_CREATED = 1;
    RESOURCE_CONTEXT_DESTROY_STARTING = 2;
    RESOURCE_STREAM_CREATED = 3;
    RESOURCE_STREAM_DESTROY_STARTING = 4;
    RESOURCE_MODULE_LOADED = 6;
    RESOURCE_MODULE_UNLOAD_STARTING = 7;
    RESOURCE_MODULE_PROFILED = 8;
    RESOURCE_GRAPH_CREATED = 9;
    RESOURCE_GRAPH_DESTROY_STARTING = 10;
    RESOURCE_GRAPH_CLONED = 11;
    RESOURCE_GRAPHNODE_CREATE_STARTING = 12;
    RESOURCE_GRAPHNODE_CREATED = 13;
    RESOURCE_GRAPHNODE_DESTROY_STARTING = 14;
    RESOURCE_GRAPHEXEC_CREATE_STARTING = 17;
    RESOURCE_GRAPHEXEC_CREATED = 18;
    RESOURCE_GRAPHEXEC_DESTROY_STARTING = 19;
    RESOURCE_GRAPHNODE_CLONED = 20;
    RESOURCE_STREAM_ATTRIBUTE_CHANGED = 21 since "12.2";
    RESOURCE_GRAPH_NODE_UPDATED = 22 since "13.0";
    RESOURCE_GRAPH_NODE_SET_PARAMS = 23 since "13.0";
}

/// `CUPTI_CBID_SYNCHRONIZE_STREAM_SYNCHRONIZED`.
pub const SYNCHRONIZE_STREAM: u32 = 1;
/// `CUPTI_CBID_SYNCHRONIZE_CONTEXT_SYNCHRONIZED`.
pub const SYNCHRONIZE_CONTEXT: u32 = 2;

/// `CUPTI_API_ENTER`; the other site is `CUPTI_API_EXIT` (1).
pub const API_ENTER: u32 = 0;
/// `CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM`: the kernel's thread ids in records.
pub const THREAD_ID_TYPE_SYSTEM: u32 = 1;
/// `CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER`.
pub const ATTR_ZEROED_OUT_ACTIVITY_BUFFER: u32 = 5;
/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`.
pub const FLAG_FLUSH_FORCED: u32 = 1;

/// `CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_SCOPE_PROCESS_ALL_DEVICES`.
pub const UNIFIED_MEMORY_ALL_DEVICES: u32 = 2;

/// `CUpti_SubscriberHandle`.
pub type SubscriberHandle = *mut c_void;

/// `CUpti_CallbackData`, 72 bytes from 12.0 to 13.5.
#[repr(C)]
#[derive(Debug)]
pub struct CallbackData {
    /// [`API_ENTER`] or exit.
    pub callback_site: u32,
    /// The function's name.
    pub function_name: *const c_char,
    /// The call's parameter block.
    pub function_params: *const c_void,
    /// The call's result: at exit, a pointer to a `CUresult`.
    pub function_return_value: *const c_void,
    /// The kernel's name, for launches.
    pub symbol_name: *const c_char,
    /// The current context.
    pub context: *mut c_void,
    /// Its id.
    pub context_uid: u32,
    /// A word that CUPTI keeps from enter to exit.
    pub correlation_data: *mut u64,
    /// The id that the call's activity records carry.
    pub correlation_id: u32,
}
const _: () = {
    assert!(size_of::<CallbackData>() == 72);
    assert!(std::mem::offset_of!(CallbackData, function_params) == 16);
    assert!(std::mem::offset_of!(CallbackData, function_return_value) == 24);
    assert!(std::mem::offset_of!(CallbackData, context_uid) == 48);
    assert!(std::mem::offset_of!(CallbackData, correlation_id) == 64);
};

/// `CUpti_ResourceData`, 24 bytes from 12.0 to 13.5.
#[repr(C)]
#[derive(Debug)]
pub struct ResourceData {
    /// The context it happens in.
    pub context: *mut c_void,
    /// The stream, for those of streams.
    pub stream: *mut c_void,
    /// A [`ModuleData`] for those of modules, a [`GraphData`] for those of graphs.
    pub descriptor: *const c_void,
}
const _: () = {
    assert!(size_of::<ResourceData>() == 24);
    assert!(std::mem::offset_of!(ResourceData, descriptor) == 16);
};

/// `CUpti_ModuleResourceData`, 24 bytes from 12.0 to 13.5.
#[repr(C)]
#[derive(Debug)]
pub struct ModuleData {
    /// The module's id, as in activity records.
    pub module_id: u32,
    /// Bytes of its image.
    pub cubin_size: usize,
    /// Its image.
    pub cubin: *const u8,
}
const _: () = {
    assert!(size_of::<ModuleData>() == 24);
    assert!(std::mem::offset_of!(ModuleData, cubin_size) == 8);
};

/// `CUpti_GraphData`, 56 bytes from 12.0 to 13.5. Handles that an event does not have are null.
#[repr(C)]
#[derive(Debug)]
pub struct GraphData {
    /// The graph.
    pub graph: *mut c_void,
    /// The graph it was cloned from.
    pub original_graph: *mut c_void,
    /// The node.
    pub node: *mut c_void,
    /// The node it was cloned from.
    pub original_node: *mut c_void,
    /// `CUgraphNodeType`.
    pub node_type: u32,
    /// The node that depends on it.
    pub dependency: *mut c_void,
    /// The executable graph.
    pub graph_exec: *mut c_void,
}
const _: () = {
    assert!(size_of::<GraphData>() == 56);
    assert!(std::mem::offset_of!(GraphData, node_type) == 32);
    assert!(std::mem::offset_of!(GraphData, graph_exec) == 48);
};

/// `CUpti_SynchronizeData`, 16 bytes from 12.0 to 13.5.
#[repr(C)]
#[derive(Debug)]
pub struct SynchronizeData {
    /// The context waited for.
    pub context: *mut c_void,
    /// The stream waited for.
    pub stream: *mut c_void,
}

/// `CUpti_NvtxData`, 24 bytes from 12.0 to 13.5.
#[repr(C)]
#[derive(Debug)]
pub struct NvtxData {
    /// The function's name, a constant.
    pub function_name: *const c_char,
    /// Its arguments.
    pub function_params: *const c_void,
    /// Its result.
    pub function_return_value: *const c_void,
}

/// `CUpti_StateData`, 16 bytes from 12.2 to 13.5.
#[repr(C)]
#[derive(Debug)]
pub struct StateData {
    /// The error.
    pub result: CuptiResult,
    /// What CUPTI says of it; may be null.
    pub message: *const c_char,
}
const _: () = assert!(size_of::<StateData>() == 16 && size_of::<SynchronizeData>() == 16);

/// `CUpti_ActivityUnifiedMemoryCounterConfig`, 16 bytes from 12.0 to 13.5.
#[repr(C)]
#[derive(Debug)]
pub struct UnifiedMemoryCounterConfig {
    /// Of which devices; [`UNIFIED_MEMORY_ALL_DEVICES`] here.
    pub scope: u32,
    /// `CUpti_ActivityUnifiedMemoryCounterKind`.
    pub kind: u32,
    /// The device, where the scope is one.
    pub device_id: u32,
    /// 1 for on, 0 for off.
    pub enable: u32,
}
const _: () = {
    assert!(size_of::<UnifiedMemoryCounterConfig>() == 16);
    assert!(std::mem::offset_of!(UnifiedMemoryCounterConfig, kind) == 4);
    assert!(std::mem::offset_of!(UnifiedMemoryCounterConfig, device_id) == 8);
    assert!(std::mem::offset_of!(UnifiedMemoryCounterConfig, enable) == 12);
};

/// `CUpti_SubscriberParams` as of 13.0, 32 bytes: the oldest layout, which every newer library knows.
#[repr(C)]
#[derive(Debug)]
pub struct SubscriberParams {
    /// This struct's size.
    pub struct_size: usize,
    /// Our name, at most 53 characters.
    pub subscriber_name: *const c_char,
    /// Where CUPTI writes the present holder's name.
    pub old_subscriber_name: *mut c_char,
    /// How much room there is.
    pub old_subscriber_size: usize,
}
const _: () = assert!(size_of::<SubscriberParams>() == 32);

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
