//! The function table: every CUPTI function this crate calls, found by name in one library. The fake fills the same
//! table, so that all code above runs unchanged without a GPU.

use std::ffi::{c_char, c_void};
use std::path::Path;

use super::abi::*;
use super::counters::{HostApi, RangeApi, SamplingApi};
use super::driver::Contexts;
use super::os;
use crate::error::{Error, Kind};

macro_rules! api {
    (
        required { $($(#[$doc:meta])* $name:ident = $symbol:literal : fn($($arg:ty),*);)* }
        optional { $($(#[$odoc:meta])* $oname:ident = $osymbol:literal : fn($($oarg:ty),*);)* }
        groups { $($(#[$gdoc:meta])* $gname:ident: $group:ty;)* }
        present { $($(#[$pdoc:meta])* $pname:ident = $psymbol:literal;)* }
    ) => {
        /// CUPTI's functions, as pointers. Only this crate makes one: from a library, or for the fake.
        #[derive(Debug, Clone, Copy)]
        pub struct Api {
            $($(#[$doc])* pub(crate) $name: unsafe extern "C" fn($($arg),*) -> CuptiResult,)*
            $($(#[$odoc])* pub(crate) $oname: Option<unsafe extern "C" fn($($oarg),*) -> CuptiResult>,)*
            $($(#[$gdoc])* pub(crate) $gname: Option<$group>,)*
            $($(#[$pdoc])* pub(crate) $pname: bool,)*
            /// Opens what is asked of contexts. It is the driver's; the fake has its own.
            pub(crate) contexts: fn() -> Result<Contexts, Error>,
        }

        impl Api {
            /// Looks every function up in `library`, which was opened from `path`.
            ///
            /// # Safety
            /// What the library has of CUPTI's functions are CUPTI's.
            pub(crate) unsafe fn load(
                library: &libloading::Library,
                path: &Path,
            ) -> Result<Self, Error> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the type is CUPTI's declaration of this function, the same from 12.0 to 13.5; a library
                        // of another major version is asked for its version alone (`Version::why_unusable`).
                        let found = unsafe {
                            os::function::<unsafe extern "C" fn($($arg),*) -> CuptiResult>(library, $symbol)
                        };
                        found.map_err(|_| Error::new(Kind::MissingSymbol {
                            path: path.to_owned(),
                            symbol: str::from_utf8($symbol).unwrap_or_default(),
                        }))?
                    },)*
                    $($oname: {
                        // SAFETY: the type is CUPTI's declaration of this function in every version that has it.
                        let found = unsafe {
                            os::function::<unsafe extern "C" fn($($oarg),*) -> CuptiResult>(library, $osymbol)
                        };
                        found.ok()
                    },)*
                    $($gname: {
                        // SAFETY: the caller's promise.
                        unsafe { <$group>::load(library) }
                    },)*
                    $($pname: {
                        os::address(library, $psymbol).is_ok()
                    },)*
                    contexts: Contexts::open,
                })
            }
        }
    };
}

api! {
    required {
        /// `cuptiGetVersion`
        get_version = b"cuptiGetVersion": fn(*mut u32);
        /// `cuptiSubscribe`
        subscribe = b"cuptiSubscribe": fn(*mut SubscriberHandle, CallbackFunc, *mut c_void);
        /// `cuptiUnsubscribe`
        unsubscribe = b"cuptiUnsubscribe": fn(SubscriberHandle);
        /// `cuptiEnableCallback`
        enable_callback = b"cuptiEnableCallback": fn(u32, SubscriberHandle, u32, u32);
        /// `cuptiGetTimestamp`
        get_timestamp = b"cuptiGetTimestamp": fn(*mut u64);
        /// `cuptiActivityRegisterCallbacks`
        register_callbacks = b"cuptiActivityRegisterCallbacks": fn(BufferRequested, BufferCompleted);
        /// `cuptiActivitySetAttribute`
        set_attribute = b"cuptiActivitySetAttribute": fn(u32, *mut usize, *mut c_void);
        /// `cuptiActivityEnable`
        enable = b"cuptiActivityEnable": fn(u32);
        /// `cuptiActivityDisable`
        disable = b"cuptiActivityDisable": fn(u32);
        /// `cuptiActivityFlushAll`
        flush_all = b"cuptiActivityFlushAll": fn(u32);
        /// `cuptiActivityGetNextRecord`
        get_next_record = b"cuptiActivityGetNextRecord": fn(*mut u8, usize, *mut *mut u8);
        /// `cuptiActivityGetNumDroppedRecords`
        get_num_dropped_records = b"cuptiActivityGetNumDroppedRecords": fn(*mut c_void, u32, *mut usize);
        /// `cuptiEnableDomain`
        enable_domain = b"cuptiEnableDomain": fn(u32, SubscriberHandle, u32);
        /// `cuptiGetCallbackName`
        get_callback_name = b"cuptiGetCallbackName": fn(u32, u32, *mut *const c_char);
        /// `cuptiActivityGetAttribute`
        get_attribute = b"cuptiActivityGetAttribute": fn(u32, *mut usize, *mut c_void);
        /// `cuptiActivityFlushPeriod`
        flush_period = b"cuptiActivityFlushPeriod": fn(u32);
        /// `cuptiActivityEnableLatencyTimestamps`
        enable_latency_timestamps = b"cuptiActivityEnableLatencyTimestamps": fn(u8);
        /// `cuptiActivityEnableLaunchAttributes`
        enable_launch_attributes = b"cuptiActivityEnableLaunchAttributes": fn(u8);
        /// `cuptiGetThreadIdType`
        get_thread_id_type = b"cuptiGetThreadIdType": fn(*mut u32);
        /// `cuptiSetThreadIdType`
        set_thread_id_type = b"cuptiSetThreadIdType": fn(u32);
        /// `cuptiGetContextId`
        get_context_id = b"cuptiGetContextId": fn(*mut c_void, *mut u32);
        /// `cuptiGetStreamIdEx`
        get_stream_id = b"cuptiGetStreamIdEx": fn(*mut c_void, *mut c_void, u8, *mut u32);
        /// `cuptiGetGraphId`
        get_graph_id = b"cuptiGetGraphId": fn(*mut c_void, *mut u32);
        /// `cuptiGetGraphNodeId`
        get_graph_node_id = b"cuptiGetGraphNodeId": fn(*mut c_void, *mut u64);
    }
    optional {
        /// `cuptiSubscribe_v2` (13.0+): on refusal it tells the holder's name.
        subscribe_v2 = b"cuptiSubscribe_v2": fn(*mut SubscriberHandle, CallbackFunc, *mut c_void, *mut SubscriberParams);
        /// `cuptiGetGraphExecId` (12.3+)
        get_graph_exec_id = b"cuptiGetGraphExecId": fn(*mut c_void, *mut u32);
        /// `cuptiActivityEnableDriverApi` (12.5+)
        enable_driver_api = b"cuptiActivityEnableDriverApi": fn(u32, u8);
        /// `cuptiActivityEnableRuntimeApi` (12.5+)
        enable_runtime_api = b"cuptiActivityEnableRuntimeApi": fn(u32, u8);
        /// `cuptiActivityPushExternalCorrelationId`, which 13.3 has a second form of.
        push_external_id = b"cuptiActivityPushExternalCorrelationId": fn(u32, u64);
        /// `cuptiActivityPopExternalCorrelationId`
        pop_external_id = b"cuptiActivityPopExternalCorrelationId": fn(u32, *mut u64);
        /// `cuptiActivityConfigureUnifiedMemoryCounter`
        configure_unified_memory = b"cuptiActivityConfigureUnifiedMemoryCounter": fn(*mut UnifiedMemoryCounterConfig, u32);
    }
    groups {
        /// The Profiler Host interface (12.6+).
        host: HostApi;
        /// The Range Profiler (12.6 update 2 and later).
        range: RangeApi;
        /// PM sampling (12.8+).
        sampling: SamplingApi;
    }
    present {
        /// `cuptiActivityEnableHWTrace` (12.8+): kernel times from the hardware.
        hw_trace = b"cuptiActivityEnableHWTrace";
        /// `cuptiActivityEnable_v2` (13.2+): records of a subscriber's own.
        records_v2 = b"cuptiActivityEnable_v2";
        /// `cuptiActivityGetNumDroppedRecords_v2` (13.3+): by then subscribers may share CUPTI.
        multiple_subscribers = b"cuptiActivityGetNumDroppedRecords_v2";
    }
}
