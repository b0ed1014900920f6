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
            #[must_use]
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
    OUT_OF_MEMORY = 8, HARDWARE = 9, MAX_LIMIT_REACHED = 12, NOT_READY = 13, NOT_COMPATIBLE = 14,
    NOT_INITIALIZED = 15, INVALID_KIND = 21, DISABLED = 23, HARDWARE_BUSY = 26, NOT_SUPPORTED = 27,
    INSUFFICIENT_PRIVILEGES = 35, MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39, VIRTUALIZED_DEVICE = 40, UNKNOWN = 999,
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
/// `CUpti_CallbackDomain`: resources.
pub const DOMAIN_RESOURCE: u32 = 3;
/// `CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED`.
pub const RESOURCE_GRAPHNODE_CREATED: u32 = 13;
/// `CUPTI_API_ENTER`; the other site is `CUPTI_API_EXIT` (1).
pub const API_ENTER: u32 = 0;
/// `CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER`.
pub const ATTR_ZEROED_OUT_ACTIVITY_BUFFER: u32 = 5;
/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`.
pub const FLAG_FLUSH_FORCED: u32 = 1;

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
