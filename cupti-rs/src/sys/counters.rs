//! The functions of CUPTI's counter interfaces, in groups: a library has all of a group or is too
//! old for it.

use std::ffi::{CStr, c_char};

use super::abi::CuptiResult;
use super::driver::Context;
use super::os::{self, Lookup};
use super::params::*;
use crate::error::Error;

macro_rules! groups {
    (
        required { $($required:tt)* }
        optional { $($optional:tt)* }
        groups {
            $($(#[$doc:meta])* $field:ident: $group:ident {
                $($name:ident = $symbol:literal: $params:ty;)*
            })*
        }
        present { $($present:tt)* }
    ) => {$(
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
            /// A function that is found by a name of CUPTI's is CUPTI's function.
            pub(crate) unsafe fn load(lookup: &Lookup<'_>) -> Option<Self> {
                Some(Self {
                    $($name: {
                        type Function = unsafe extern "C" fn(*mut $params) -> CuptiResult;
                        // SAFETY: the type is CUPTI's declaration of this function in every version
                        // that has it.
                        unsafe { os::function::<Function>(lookup, $symbol) }?
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
    )*};
}

crate::cupti_functions!(groups);

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
    if code == CuptiResult::SUCCESS { Ok(()) } else { Err(Error::counters(function, code)) }
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
