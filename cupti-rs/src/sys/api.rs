//! The function table: every CUPTI function this crate calls, found by name in one library. The
//! fake fills the same table, so that all code above runs unchanged without a GPU.

use std::ffi::{c_char, c_void};
use std::path::Path;

use super::abi::*;
#[cfg(feature = "fake")]
use super::counters::Faults;
use super::counters::{HostApi, RangeApi, SamplingApi};
use super::driver::Contexts;
use super::os;
use crate::error::{Error, Kind};

macro_rules! api {
    (
        required { $($name:ident = $symbol:literal: fn($($arg:ident: $type:ty),*);)* }
        optional {
            $($(#[$odoc:meta])* $oname:ident = $osymbol:literal: fn($($oarg:ident: $otype:ty),*);)*
        }
        groups { $($(#[$gdoc:meta])* $gname:ident: $group:ty;)* }
        present { $($(#[$pdoc:meta])* $pname:ident = $psymbol:literal;)* }
    ) => {
        /// CUPTI's functions, as pointers. Only this crate creates such a table: from a library, or
        /// for the fake.
        #[derive(Debug, Clone, Copy)]
        pub struct Api {
            $(pub(crate) $name: unsafe extern "C" fn($($type),*) -> CuptiResult,)*
            $($(#[$odoc])* pub(crate) $oname: Option<unsafe extern "C" fn($($otype),*) -> CuptiResult>,)*
            $($(#[$gdoc])* pub(crate) $gname: Option<$group>,)*
            $($(#[$pdoc])* pub(crate) $pname: bool,)*
            /// Opens the functions for contexts. They belong to the driver; the fake has its own.
            pub(crate) contexts: fn() -> Result<Contexts, Error>,
        }

        impl Api {
            /// Looks every function up in `library`, which was opened from `path`.
            ///
            /// # Safety
            ///
            /// Every function in the library with a name of CUPTI's is CUPTI's function.
            pub(crate) unsafe fn load(
                library: &libloading::Library,
                path: &Path,
            ) -> Result<Self, Error> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the type is CUPTI's declaration of this function, the same from
                        // 12.0 to 13.5; for a library of another major version only the version
                        // function is called (`Version::why_unusable`).
                        let found = unsafe {
                            os::function::<unsafe extern "C" fn($($type),*) -> CuptiResult>(library, $symbol)
                        };
                        let missing = |_| Kind::MissingSymbol { path: path.to_owned(), symbol: $symbol };
                        found.map_err(|error| Error::new(missing(error)))?
                    },)*
                    $($oname: {
                        // SAFETY: the type is CUPTI's declaration of this function in every version
                        // that has it.
                        let found = unsafe {
                            os::function::<unsafe extern "C" fn($($otype),*) -> CuptiResult>(library, $osymbol)
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

        /// The functions of a fake, outside the groups. An error is the function's result.
        #[cfg(feature = "fake")]
        pub(crate) trait FakeApi: Faults {
            $(
                /// # Safety
                /// As CUPTI's function.
                unsafe fn $name($($arg: $type),*) -> Result<(), CuptiResult>;
            )*
            $(
                /// # Safety
                /// As CUPTI's function.
                unsafe fn $oname($($oarg: $otype),*) -> Result<(), CuptiResult>;
            )*
        }

        #[cfg(feature = "fake")]
        impl Api {
            /// The functions outside the groups, by CUPTI's names.
            pub(crate) const SYMBOLS: [&str; 31] = [$($symbol,)* $($osymbol),*];

            /// The table of a fake, without groups.
            pub(crate) fn with_fake<F: FakeApi>(contexts: fn() -> Result<Contexts, Error>) -> Self {
                Self {
                    $($name: {
                        unsafe extern "C" fn function<F: FakeApi>($($arg: $type),*) -> CuptiResult {
                            // SAFETY: the caller's own arguments.
                            F::run($symbol, || unsafe { F::$name($($arg),*) })
                        }
                        function::<F>
                    },)*
                    $($oname: {
                        unsafe extern "C" fn function<F: FakeApi>($($oarg: $otype),*) -> CuptiResult {
                            // SAFETY: the caller's own arguments.
                            F::run($osymbol, || unsafe { F::$oname($($oarg),*) })
                        }
                        Some(function::<F>)
                    },)*
                    $($gname: None,)*
                    $($pname: false,)*
                    contexts,
                }
            }
        }
    };
}

/// The list of CUPTI's functions, for the macro of this name: the table here, and the symbols of a
/// fake library.
macro_rules! cupti_functions {
    ($then:ident) => {
        $then! {
            required {
                get_version = "cuptiGetVersion": fn(version: *mut u32);
                subscribe = "cuptiSubscribe": fn(handle: *mut SubscriberHandle, callback: CallbackFunc, data: *mut c_void);
                unsubscribe = "cuptiUnsubscribe": fn(handle: SubscriberHandle);
                enable_callback = "cuptiEnableCallback": fn(on: u32, handle: SubscriberHandle, domain: u32, id: u32);
                get_timestamp = "cuptiGetTimestamp": fn(timestamp: *mut u64);
                register_callbacks = "cuptiActivityRegisterCallbacks": fn(requested: BufferRequested, completed: BufferCompleted);
                set_attribute = "cuptiActivitySetAttribute": fn(attribute: u32, size: *mut usize, value: *mut c_void);
                enable = "cuptiActivityEnable": fn(kind: u32);
                disable = "cuptiActivityDisable": fn(kind: u32);
                flush_all = "cuptiActivityFlushAll": fn(flags: u32);
                get_next_record = "cuptiActivityGetNextRecord": fn(buffer: *mut u8, valid: usize, record: *mut *mut u8);
                get_num_dropped_records = "cuptiActivityGetNumDroppedRecords": fn(context: *mut c_void, stream: u32, dropped: *mut usize);
                enable_domain = "cuptiEnableDomain": fn(on: u32, handle: SubscriberHandle, domain: u32);
                get_callback_name = "cuptiGetCallbackName": fn(domain: u32, id: u32, name: *mut *const c_char);
                get_attribute = "cuptiActivityGetAttribute": fn(attribute: u32, size: *mut usize, value: *mut c_void);
                flush_period = "cuptiActivityFlushPeriod": fn(milliseconds: u32);
                enable_latency_timestamps = "cuptiActivityEnableLatencyTimestamps": fn(on: u8);
                enable_launch_attributes = "cuptiActivityEnableLaunchAttributes": fn(on: u8);
                get_thread_id_type = "cuptiGetThreadIdType": fn(kind: *mut u32);
                set_thread_id_type = "cuptiSetThreadIdType": fn(kind: u32);
                get_context_id = "cuptiGetContextId": fn(context: *mut c_void, id: *mut u32);
                get_stream_id = "cuptiGetStreamIdEx": fn(context: *mut c_void, stream: *mut c_void, per_thread: u8, id: *mut u32);
                get_graph_id = "cuptiGetGraphId": fn(graph: *mut c_void, id: *mut u32);
                get_graph_node_id = "cuptiGetGraphNodeId": fn(node: *mut c_void, id: *mut u64);
            }
            optional {
                /// 13.0+; on refusal it writes the holder's name.
                subscribe_v2 = "cuptiSubscribe_v2":
                    fn(handle: *mut SubscriberHandle, callback: CallbackFunc, data: *mut c_void, params: *mut SubscriberParams);
                /// 12.3+
                get_graph_exec_id = "cuptiGetGraphExecId": fn(exec: *mut c_void, id: *mut u32);
                /// 12.5+
                enable_driver_api = "cuptiActivityEnableDriverApi": fn(id: u32, on: u8);
                /// 12.5+
                enable_runtime_api = "cuptiActivityEnableRuntimeApi": fn(id: u32, on: u8);
                /// 13.3 has a second version of it.
                push_external_id = "cuptiActivityPushExternalCorrelationId": fn(kind: u32, id: u64);
                pop_external_id = "cuptiActivityPopExternalCorrelationId": fn(kind: u32, last: *mut u64);
                configure_unified_memory = "cuptiActivityConfigureUnifiedMemoryCounter":
                    fn(configs: *mut UnifiedMemoryCounterConfig, count: u32);
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
                /// 12.8+: kernel times from the hardware.
                hw_trace = "cuptiActivityEnableHWTrace";
                /// 13.2+: separate records for each subscriber.
                records_v2 = "cuptiActivityEnable_v2";
                /// 13.3+: from then on subscribers may share CUPTI.
                multiple_subscribers = "cuptiActivityGetNumDroppedRecords_v2";
            }
        }
    };
}
#[cfg(feature = "fake")]
pub(crate) use cupti_functions;

cupti_functions!(api);
