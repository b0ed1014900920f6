//! The C boundary: what CUDA, NVTX and programs that record themselves call, and the only unsafe code of the crate.
//!
//! [`entry`] has the exported functions, [`tables`] and [`extensions`] the functions that a copy of NVTX gets, and [`read`] makes safe
//! values of their arguments. [`nccl`] is the plugin that NCCL loads. [`process`] has what is asked of the process.

mod entry;
mod extensions;
mod nccl;
mod process;
mod read;
mod tables;

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nvtx::abi::Place;

pub(crate) use self::nccl::OFFSETS as NCCL_OFFSETS;
use crate::counts::{COUNTS, count};

/// A function of a table, with its slot.
type Entry = (Place, *mut c_void);

/// Runs the code behind a function of C. A panic in it is counted and gives `failed`.
#[inline]
fn guarded<R>(failed: R, work: impl FnOnce() -> R) -> R {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(payload) => {
            // Dropping the payload may panic in turn.
            std::mem::forget(payload);
            count(&COUNTS.panics);
            failed
        }
    }
}

/// Declares functions of C, each with its slot and what it returns after a panic. A function without a result has `()` there.
macro_rules! functions {
    ($table:ident: $($place:expr => $name:ident($($argument:ident: $type:ty),*) -> $result:ty, $failed:expr; $body:block)*) => {
        $(
            unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                $crate::sys::guarded($failed, move || $body)
            }
        )*

        /// Functions with their slots.
        fn $table() -> Vec<$crate::sys::Entry> {
            vec![$(($place, $name as *const () as *mut std::ffi::c_void)),*]
        }
    };
}
use functions;
