//! The C boundary: the functions called by CUDA, NVTX and programs that record themselves, and the
//! only unsafe code of the crate.
//!
//! [`entry`] has the exported functions. [`tables`] and [`extensions`] have the functions given to
//! a copy of NVTX, and [`read`] converts their arguments to safe values. [`nccl`] is the plugin
//! that NCCL loads. [`process`] queries the process and registers its hooks.

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

/// Runs the code behind a C function. A panic is counted, and `failed` is returned.
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

/// Declares C functions, each with its slot and its result after a panic. A function without a
/// result uses `()`.
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
