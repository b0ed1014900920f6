//! CUPTI's functions by their names, of the types in the list of cupti-rs.

use std::ffi::c_void;
use std::ptr::NonNull;

use cupti::sys::abi::*;
use cupti::sys::params::*;

use crate::state::{STATE, version};
use crate::{Fake, counters, faults};

pub(super) type Outcome = Result<(), CuptiResult>;

macro_rules! functions {
    (
        required { $($name:ident = $symbol:literal: fn($($arg:ident: $type:ty),*);)* }
        optional {
            $($(#[$odoc:meta])* $oname:ident = $osymbol:literal: fn($($oarg:ident: $otype:ty),*);)*
        }
        groups {
            $($(#[$gdoc:meta])* $group:ident: $trait:ident {
                $($gname:ident = $gsymbol:literal: $params:ty;)*
            })*
        }
        present { $($(#[$pdoc:meta])* $pname:ident = $psymbol:literal;)* }
    ) => {
        functions! {
            @single $($name = $symbol: fn($($arg: $type),*);)* $($oname = $osymbol: fn($($oarg: $otype),*);)*
        }

        $(
            /// A group of functions that take a block of parameters; an error is the result.
            #[allow(unused_variables, reason = "the default ignores its block")]
            pub(crate) trait $trait {
                $(fn $gname(params: &mut $params) -> Outcome { Ok(()) })*
            }

            fn $group(symbol: &str) -> Option<NonNull<c_void>> {
                match symbol {
                    $($gsymbol => {
                        unsafe extern "C" fn function(params: *mut $params) -> CuptiResult {
                            // SAFETY: the caller passes a live block, only to this call.
                            let params = unsafe { &mut *params };
                            faults::run($gsymbol, || <Fake as $trait>::$gname(params))
                        }
                        NonNull::new(function as *mut c_void)
                    })*
                    _ => None,
                }
            }
        )*

        /// The function of CUPTI or of the driver with this name, if the present version has it.
        pub(super) fn lookup(symbol: &str) -> Option<NonNull<c_void>> {
            let is_lacking = STATE.lock().lacks.is_some_and(|start| symbol.starts_with(start));
            if is_lacking || since(symbol) > version().cuda_release() {
                return None;
            }
            let groups = [single, $($group,)* counters::driver];
            // Functions that the profiler looks for and never calls.
            let is_present = [$($psymbol),*].contains(&symbol);
            groups.iter().find_map(|find| find(symbol)).or(is_present.then(NonNull::dangling))
        }
    };
    (@single $($name:ident = $symbol:literal: fn($($arg:ident: $type:ty),*);)*) => {
        /// The functions outside the groups; an error is the result.
        pub(crate) trait Api {
            $(
                /// # Safety
                /// As CUPTI's function.
                unsafe fn $name($($arg: $type),*) -> Outcome;
            )*
        }

        /// Their names.
        pub(super) const SYMBOLS: [&str; 25] = [$($symbol),*];

        fn single(symbol: &str) -> Option<NonNull<c_void>> {
            match symbol {
                $($symbol => {
                    unsafe extern "C" fn function($($arg: $type),*) -> CuptiResult {
                        // SAFETY: the caller's own arguments.
                        faults::run($symbol, || unsafe { <Fake as Api>::$name($($arg),*) })
                    }
                    NonNull::new(function as *mut c_void)
                })*
                _ => None,
            }
        }
    };
}

cupti::cupti_functions!(functions);

/// The first release that has the function.
fn since(symbol: &str) -> (u32, u32) {
    let is_counting = ["cuptiDeviceGetChipName", "cuptiProfiler", "cuptiRange", "cuptiPmSampling"];
    match symbol {
        "cuptiGetGraphExecId" => (12, 3),
        _ if is_counting.iter().any(|start| symbol.starts_with(start)) => (12, 6),
        "cuptiActivityEnableHWTrace" => (12, 8),
        "cuptiSubscribe_v2" => (13, 0),
        "cuptiActivityEnable_v2" => (13, 2),
        "cuptiActivityGetNumDroppedRecords_v2" => (13, 3),
        _ => (12, 0),
    }
}
