//! The C boundary: the functions of the driver, of CUPTI and of the runtime, as symbols.
//!
//! What a caller passes is what CUDA's documentation asks for: live places for results, text that ends in a NUL, host memory
//! of the stated size. Device memory and handles are checked.

#![allow(non_snake_case, reason = "CUDA's names")]

mod contexts;
mod cupti;
mod graphs;
mod init;
mod launches;
mod math;
mod memory;
mod modules;
mod runtime;
mod streams;
mod workload;

pub(crate) use workload::launch_with_cudarc;

use std::ffi::{CStr, c_char};

use cudarc::driver::sys::CUresult;
use fake_cupti::Work;

use crate::call::Outcome;
use crate::effect::Effect;
use crate::streams::{Target, target};

/// Declares functions of the driver API, each with the type that cudarc declares for it (`checked`) or one that it leaves out
/// (`unchecked`), and a function with their addresses by name. One with `-> T` writes its value to the place that is its
/// first parameter. `[bytes: B, stream: S]` is what CUPTI's callbacks contain of the call.
macro_rules! driver {
    ($kind:ident $symbols:ident; $(
        $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $out:ty)? $([$($key:ident: $value:expr),*])? |$call:pat_param| $body:block
    )*) => {
        /// The functions by name.
        pub(super) fn $symbols() -> Vec<(&'static str, usize)> {
            vec![$((stringify!($name), $name as *const () as usize)),*]
        }

        $(
            #[doc = concat!("`", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As CUDA documents the function.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(
                $(place: *mut $out,)? $($argument: $type),*
            ) -> cudarc::driver::sys::CUresult {
                #[allow(clippy::needless_update)]
                let shape = crate::call::Shape { $($($key: $value,)*)? ..crate::call::Shape::NONE };
                crate::call::driver(stringify!($name), shape, |$call| {
                    let body = || -> crate::call::Outcome<_> { $body };
                    let result = body();
                    $(
                        let result = result.and_then(|value: $out| {
                            // SAFETY: the caller passes a live place for the result, or null.
                            unsafe { crate::sys::put(place, value) }
                        });
                    )?
                    result
                })
            }

            driver! { @$kind unsafe fn($(*mut $out,)? $($type),*) -> cudarc::driver::sys::CUresult, $name }
        )*
    };
    (@checked $type:ty, $name:ident) => {
        const _: $type = cudarc::driver::sys::$name;
    };
    (@unchecked $type:ty, $name:ident) => {};
}
use driver;

/// Writes a result to the caller's place.
///
/// # Safety
/// `place` is null or live.
unsafe fn put<T>(place: *mut T, value: T) -> Outcome {
    if place.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}

/// Writes a result to the caller's place, if it wants it.
///
/// # Safety
/// `place` is null or live.
unsafe fn put_if_wanted<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(value) };
    }
}

/// The caller's text.
///
/// # Safety
/// `text` is null, or ends in a NUL and lives through the call.
unsafe fn text<'a>(text: *const c_char) -> Outcome<&'a CStr> {
    if text.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// A pointer that a program passes, as a number.
trait Pointer {
    /// The number of a handle, or an address that is only compared.
    fn number(self) -> u64;

    /// The address of memory that is read or written by it.
    fn address(self) -> u64;
}

impl<T> Pointer for *const T {
    fn number(self) -> u64 {
        self.addr() as u64
    }

    fn address(self) -> u64 {
        self.expose_provenance() as u64
    }
}

impl<T> Pointer for *mut T {
    fn number(self) -> u64 {
        self.cast_const().number()
    }

    fn address(self) -> u64 {
        self.cast_const().address()
    }
}

/// The handle of a number. Nothing lies behind it.
fn handle<T>(number: impl Into<u64>) -> *mut T {
    std::ptr::without_provenance_mut(number.into() as usize)
}

/// Submits work with its effect to a stream, within the call of this correlation id: to be run now, or captured.
///
/// # Safety
/// As [`perform`].
unsafe fn submit(stream: u64, correlation: u32, work: &Work, effect: Effect) -> Outcome {
    if let Target::Run(stream) = target(stream, work, effect)? {
        // SAFETY: the caller's promise.
        unsafe { perform(&effect) };
        crate::call::fake().execute(&stream.place(work.clone()), correlation);
    }
    Ok(())
}

/// Does what a copy or fill does.
///
/// # Safety
/// All its rows or values are memory that may be read, or written.
unsafe fn perform(effect: &Effect) {
    match *effect {
        Effect::None => {}
        Effect::Copy { from, to, width, rows, pitch: [from_pitch, to_pitch] } => {
            for row in 0..rows {
                let from =
                    std::ptr::with_exposed_provenance::<u8>(from as usize + row * from_pitch);
                let to = std::ptr::with_exposed_provenance_mut::<u8>(to as usize + row * to_pitch);
                // SAFETY: the caller's promise; the two may overlap.
                unsafe { std::ptr::copy(from, to, width) };
            }
        }
        Effect::Fill { to, value, size, count } => {
            let value = value.to_ne_bytes();
            for index in 0..count {
                let to = std::ptr::with_exposed_provenance_mut::<u8>(to as usize + index * size);
                // SAFETY: the caller's promise; values have at most 4 bytes.
                unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), to, size) };
            }
        }
    }
}
