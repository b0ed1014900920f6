//! The functions of CUPTI's counter interfaces, in groups: a library has all of a group or is too
//! old for it.

use std::ffi::{CStr, c_char};

use super::abi::CuptiResult;
use super::driver::Context;
use super::os;
use super::params::*;
use crate::error::{Error, Kind};

/// Runs the functions of a fake.
#[cfg(feature = "fake")]
pub(crate) trait Faults {
    /// Returns the planted fault of the function, if one is due, or else the result of `body`.
    fn run(function: &str, body: impl FnOnce() -> Result<(), CuptiResult>) -> CuptiResult;
}

macro_rules! group {
    ($(#[$doc:meta])* $group:ident, $fake:ident {
        $($name:ident = $symbol:literal: $params:ty;)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $group {
            $(pub(crate) $name: unsafe extern "C" fn(*mut $params) -> CuptiResult,)*
        }

        impl $group {
            /// All of the group's functions, or `None` if the library lacks one.
            ///
            /// # Safety
            ///
            /// Every function in the library with a name of CUPTI's is CUPTI's function.
            pub(crate) unsafe fn load(library: &libloading::Library) -> Option<Self> {
                Some(Self {
                    $($name: {
                        type Function = unsafe extern "C" fn(*mut $params) -> CuptiResult;
                        // SAFETY: the type is CUPTI's declaration of this function in every version
                        // that has it.
                        unsafe { os::function::<Function>(library, $symbol) }.ok()?
                    },)*
                })
            }

            $(
                /// Calls the function.
                ///
                /// # Safety
                ///
                /// The block has the size it states and its objects are live. Memory that it points
                /// to lives through the call and is as long as it states.
                pub(super) unsafe fn $name(&self, params: &mut $params) -> Result<(), Error> {
                    // SAFETY: the caller's promise.
                    check($symbol, unsafe { (self.$name)(params) })
                }
            )*
        }

        /// The group's functions in a fake; an error is the function's result.
        #[cfg(feature = "fake")]
        #[allow(unused_variables, reason = "the default ignores its block")]
        pub(crate) trait $fake: Faults {
            $(fn $name(params: &mut $params) -> Result<(), CuptiResult> { Ok(()) })*
        }

        #[cfg(feature = "fake")]
        impl $group {
            /// The functions of a fake.
            pub(crate) const fn with_fake<F: $fake>() -> Self {
                Self {
                    $($name: {
                        unsafe extern "C" fn function<F: $fake>(params: *mut $params) -> CuptiResult {
                            // SAFETY: the caller passes a live block, only to this call.
                            let params = unsafe { &mut *params };
                            F::run($symbol, || F::$name(params))
                        }
                        function::<F>
                    },)*
                }
            }
        }
    };
}

group! {
    /// Metrics: their list, their collection and the evaluation of raw counts (12.6+). Needs no
    /// GPU.
    HostApi, FakeHost {
        initialize = "cuptiProfilerHostInitialize": HostInitialize;
        deinitialize = "cuptiProfilerHostDeinitialize": HostDeinitialize;
        chips = "cuptiProfilerHostGetSupportedChips": HostGetSupportedChips;
        base_metrics = "cuptiProfilerHostGetBaseMetrics": HostGetBaseMetrics;
        sub_metrics = "cuptiProfilerHostGetSubMetrics": HostGetSubMetrics;
        properties = "cuptiProfilerHostGetMetricProperties": HostGetMetricProperties;
        add_metrics = "cuptiProfilerHostConfigAddMetrics": HostConfigAddMetrics;
        image_size = "cuptiProfilerHostGetConfigImageSize": HostGetConfigImageSize;
        image = "cuptiProfilerHostGetConfigImage": HostGetConfigImage;
        passes = "cuptiProfilerHostGetNumOfPasses": HostGetNumOfPasses;
        evaluate = "cuptiProfilerHostEvaluateToGpuValues": HostEvaluateToGpuValues;
    }
}

group! {
    /// Counters of ranges and of single kernels (12.6 update 2 and later).
    RangeApi, FakeRange {
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
}

group! {
    /// Counters at intervals (12.8+; 12.6 has part of it).
    SamplingApi, FakeSampling {
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
}

macro_rules! device_functions {
    ($($group:ident: $params:ident { $field:ident = $argument:ident: $type:ty => $value:expr })*) => {$(
        impl $group {
            /// Prepares CUPTI to count; may be called any number of times. A process that sampled
            /// first without it crashed (13.0.1).
            pub(crate) fn prepare(&self) -> Result<(), Error> {
                // SAFETY: the block has the size it states.
                unsafe { self.initialize(&mut ProfilerInitialize::new()) }
            }

            /// The chip's name, such as GH100, on which its metrics depend.
            pub(crate) fn chip_of(&self, device: u32) -> Result<String, Error> {
                let mut params = DeviceGetChipName::new();
                params.device_index = device as usize;
                // SAFETY: the block has the size it states.
                unsafe { self.chip_name(&mut params) }?;
                // SAFETY: CUPTI returns a constant string.
                Ok(unsafe { copied(params.chip_name) })
            }

            /// Returns the availability image: the counters that this device has now.
            pub(crate) fn availability_of(&self, $argument: $type) -> Result<Box<[u8]>, Error> {
                let mut params = $params::new();
                params.$field = $value;
                // SAFETY: the block has the size it states; without an image only the size is
                // written.
                unsafe { self.availability(&mut params) }?;
                let mut image = vec![0; params.counter_availability_image_size];
                params.counter_availability_image = image.as_mut_ptr();
                // SAFETY: as above; the image has the size it states.
                unsafe { self.availability(&mut params) }?;
                Ok(image.into())
            }
        }
    )*};
}
device_functions! {
    RangeApi: ProfilerGetCounterAvailability { ctx = context: Context => context.handle() }
    SamplingApi: SamplingGetCounterAvailability { device_index = device: u32 => device as usize }
}

/// A refusal of the counter interfaces as an error.
fn check(function: &'static str, code: CuptiResult) -> Result<(), Error> {
    if code == CuptiResult::SUCCESS {
        Ok(())
    } else {
        Err(Error::new(Kind::Counters { function, code }))
    }
}

/// Copies a string of CUPTI's.
///
/// # Safety
///
/// Null, or a string that ends in a NUL and lives through the call.
pub(super) unsafe fn copied(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Copies `count` strings of CUPTI's.
///
/// # Safety
///
/// Null, or this many pointers to strings that end in a NUL; all live through the call.
pub(super) unsafe fn all_copied(texts: *const *const c_char, count: usize) -> Vec<String> {
    if texts.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    let texts = unsafe { std::slice::from_raw_parts(texts, count) };
    // SAFETY: the caller's promise.
    texts.iter().map(|text| unsafe { copied(*text) }).collect()
}

/// The pointers to these strings.
pub(super) fn pointers(texts: &[std::ffi::CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).collect()
}
