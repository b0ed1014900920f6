//! The function table: every CUPTI function this crate calls, found by name in one library, or
//! among the functions of a fake.

use std::ffi::c_void;
use std::path::Path;

use super::abi::*;
use super::counters::{HostApi, PcSamplingApi, RangeApi, SamplingApi};
use super::driver::Contexts;
use super::os::{self, Lookup};
use crate::error::{Error, Kind};

macro_rules! api {
    (
        required { $($name:ident = $symbol:literal: fn($($arg:ident: $type:ty),*);)* }
        optional {
            $($(#[$odoc:meta])* $oname:ident = $osymbol:literal: fn($($oarg:ident: $otype:ty),*);)*
        }
        groups { $($(#[$gdoc:meta])* $gname:ident: $group:ident { $($functions:tt)* })* }
        present { $($(#[$pdoc:meta])* $pname:ident = $psymbol:literal;)* }
    ) => {
        /// CUPTI's functions, as pointers.
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct Api {
            $(pub(crate) $name: unsafe extern "C" fn($($type),*) -> CuptiResult,)*
            $($(#[$odoc])* pub(crate) $oname: Option<unsafe extern "C" fn($($otype),*) -> CuptiResult>,)*
            $($(#[$gdoc])* pub(crate) $gname: Option<$group>,)*
            $($(#[$pdoc])* pub(crate) $pname: bool,)*
            /// The driver's functions for contexts, if they are not those of libcuda.
            pub(crate) contexts: Option<Contexts>,
        }

        impl Api {
            /// Finds every function by its name; `path` is the library's file, for errors.
            ///
            /// # Safety
            ///
            /// A function that is found by a name of CUPTI's is CUPTI's function.
            pub(crate) unsafe fn load(lookup: &Lookup<'_>, path: &Path) -> Result<Self, Error> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the type is CUPTI's declaration of this function, the same from
                        // 12.0 to 13.5; for a library of another major version only the version
                        // function is called (`Version::why_unusable`).
                        let found = unsafe {
                            os::function::<unsafe extern "C" fn($($type),*) -> CuptiResult>(lookup, $symbol)
                        };
                        let missing = || Kind::MissingSymbol { path: path.to_owned(), symbol: $symbol };
                        found.ok_or_else(|| Error::new(missing()))?
                    },)*
                    $($oname: {
                        // SAFETY: the type is CUPTI's declaration of this function in every version
                        // that has it.
                        unsafe {
                            os::function::<unsafe extern "C" fn($($otype),*) -> CuptiResult>(lookup, $osymbol)
                        }
                    },)*
                    $($gname: {
                        // SAFETY: the caller's promise.
                        unsafe { $group::load(lookup) }
                    },)*
                    $($pname: {
                        lookup($psymbol).is_some()
                    },)*
                    contexts: None,
                })
            }

            /// The driver's functions for contexts.
            pub(crate) fn contexts(&self) -> Result<Contexts, Error> {
                self.contexts.map_or_else(Contexts::open, Ok)
            }
        }
    };
}

/// The list of CUPTI's functions, for the macro of this name. The types are those of
/// [`abi`](crate::sys::abi) and [`params`](crate::sys::params).
#[doc(hidden)]
#[macro_export]
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
                get_attribute = "cuptiActivityGetAttribute": fn(attribute: u32, size: *mut usize, value: *mut c_void);
                flush_period = "cuptiActivityFlushPeriod": fn(milliseconds: u32);
                enable_latency_timestamps = "cuptiActivityEnableLatencyTimestamps": fn(on: u8);
                get_thread_id_type = "cuptiGetThreadIdType": fn(kind: *mut u32);
                set_thread_id_type = "cuptiSetThreadIdType": fn(kind: u32);
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
                /// A context's id in records.
                get_context_id = "cuptiGetContextId": fn(context: *mut c_void, id: *mut u32);
                /// A context's device.
                get_device_id = "cuptiGetDeviceId": fn(context: *mut c_void, device: *mut u32);
                configure_unified_memory = "cuptiActivityConfigureUnifiedMemoryCounter":
                    fn(configs: *mut UnifiedMemoryCounterConfig, count: u32);
            }
            groups {
                /// Metrics: their list, their collection and the evaluation of raw counts (12.6+). Needs no
                /// GPU.
                host: HostApi {
                    initialize = "cuptiProfilerHostInitialize": HostInitialize;
                    deinitialize = "cuptiProfilerHostDeinitialize": HostDeinitialize;
                    chips = "cuptiProfilerHostGetSupportedChips": HostGetSupportedChips;
                    base_metrics = "cuptiProfilerHostGetBaseMetrics": HostGetBaseMetrics;
                    properties = "cuptiProfilerHostGetMetricProperties": HostGetMetricProperties;
                    add_metrics = "cuptiProfilerHostConfigAddMetrics": HostConfigAddMetrics;
                    image_size = "cuptiProfilerHostGetConfigImageSize": HostGetConfigImageSize;
                    image = "cuptiProfilerHostGetConfigImage": HostGetConfigImage;
                    passes = "cuptiProfilerHostGetNumOfPasses": HostGetNumOfPasses;
                    evaluate = "cuptiProfilerHostEvaluateToGpuValues": HostEvaluateToGpuValues;
                }
                /// Counters of ranges and of single kernels (12.6 update 2 and later).
                range: RangeApi {
                    initialize = "cuptiProfilerInitialize": ProfilerInitialize;
                    chip_name = "cuptiDeviceGetChipName": DeviceGetChipName;
                    availability = "cuptiProfilerGetCounterAvailability": ProfilerGetCounterAvailability;
                    enable = "cuptiRangeProfilerEnable": RangeEnable;
                    disable = "cuptiRangeProfilerDisable": RangeDisable;
                    data_size = "cuptiRangeProfilerGetCounterDataSize": RangeGetCounterDataSize;
                    data_initialize = "cuptiRangeProfilerCounterDataImageInitialize": RangeCounterDataImageInitialize;
                    set_config = "cuptiRangeProfilerSetConfig": RangeSetConfig;
                    start = "cuptiRangeProfilerStart": RangeStart;
                    stop = "cuptiRangeProfilerStop": RangeStop;
                    push = "cuptiRangeProfilerPushRange": RangePushRange;
                    pop = "cuptiRangeProfilerPopRange": RangePopRange;
                    decode = "cuptiRangeProfilerDecodeData": RangeDecodeData;
                    data_info = "cuptiRangeProfilerGetCounterDataInfo": RangeGetCounterDataInfo;
                    range_info = "cuptiRangeProfilerCounterDataGetRangeInfo": RangeCounterDataGetRangeInfo;
                }
                /// Counters at intervals (12.8+; 12.6 has part of it).
                sampling: SamplingApi {
                    initialize = "cuptiProfilerInitialize": ProfilerInitialize;
                    chip_name = "cuptiDeviceGetChipName": DeviceGetChipName;
                    availability = "cuptiPmSamplingGetCounterAvailability": SamplingGetCounterAvailability;
                    enable = "cuptiPmSamplingEnable": SamplingEnable;
                    disable = "cuptiPmSamplingDisable": SamplingDisable;
                    set_config = "cuptiPmSamplingSetConfig": SamplingSetConfig;
                    data_size = "cuptiPmSamplingGetCounterDataSize": SamplingGetCounterDataSize;
                    data_initialize = "cuptiPmSamplingCounterDataImageInitialize": SamplingCounterDataImageInitialize;
                    start = "cuptiPmSamplingStart": SamplingStart;
                    stop = "cuptiPmSamplingStop": SamplingStop;
                    decode = "cuptiPmSamplingDecodeData": SamplingDecodeData;
                    data_info = "cuptiPmSamplingGetCounterDataInfo": SamplingGetCounterDataInfo;
                    sample_info = "cuptiPmSamplingCounterDataGetSampleInfo": SamplingCounterDataGetSampleInfo;
                }
                /// Samples of instructions, and the source lines of cubins.
                pc_sampling: PcSamplingApi {
                    enable = "cuptiPCSamplingEnable": PcSamplingEnable;
                    disable = "cuptiPCSamplingDisable": PcSamplingDisable;
                    configure = "cuptiPCSamplingSetConfigurationAttribute": PcSamplingConfigurationInfo;
                    count_reasons = "cuptiPCSamplingGetNumStallReasons": PcSamplingGetNumStallReasons;
                    reasons = "cuptiPCSamplingGetStallReasons": PcSamplingGetStallReasons;
                    data = "cuptiPCSamplingGetData": PcSamplingGetData;
                    crc = "cuptiGetCubinCrc": GetCubinCrc;
                    source = "cuptiGetSassToSourceCorrelation": GetSassToSourceCorrelation;
                }
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

cupti_functions!(api);
