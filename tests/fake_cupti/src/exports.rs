//! CUPTI's functions of the process's one fake, for a shared object that has them as symbols.

use std::ffi::c_void;
use std::process;
use std::sync::OnceLock;

use cupti::sys::abi::*;

use crate::functions::Api;
use crate::{Fake, faults};

impl Fake {
    /// The fake of a process that uses it for its whole life: CUPTI 13.0.1, created at the first
    /// call.
    ///
    /// ```
    /// use fake_cupti::Fake;
    ///
    /// assert!(std::ptr::eq(Fake::of_process(), Fake::of_process()));
    /// ```
    pub fn of_process() -> &'static Self {
        static FAKE: OnceLock<(u32, &'static Fake)> = OnceLock::new();
        let (owner, fake) = FAKE.get_or_init(|| (process::id(), Box::leak(Box::default())));
        if *owner != process::id() {
            // The real library's behaviour is undefined then; the locks of threads that do not
            // exist in the child would block this one.
            abort("a forked child called CUPTI, which is its parent's");
        }
        fake
    }
}

/// Ends the process: a profiler did something that the real CUPTI does not survive, and its test
/// must detect that.
#[cold]
#[allow(clippy::print_stderr)] // the last words of the process
fn abort(why: &str) -> ! {
    eprintln!("fake CUPTI: {why}");
    process::abort();
}

macro_rules! exports {
    (
        required { $($name:ident = $symbol:literal: fn($($arg:ident: $type:ty),*);)* }
        optional {
            $($(#[$odoc:meta])* $oname:ident = $osymbol:literal: fn($($oarg:ident: $otype:ty),*);)*
        }
        $($rest:tt)*
    ) => {
        exports! { @all $($name = $symbol: fn($($arg: $type),*);)* $($oname = $osymbol: fn($($oarg: $otype),*);)* }
    };
    (@all $($name:ident = $symbol:literal: fn($($arg:ident: $type:ty),*);)*) => {
        $(
            #[doc = concat!("`", $symbol, "` of the process's fake.")]
            ///
            /// # Safety
            /// As CUPTI's function.
            pub unsafe fn $name($($arg: $type),*) -> CuptiResult {
                Fake::of_process();
                // SAFETY: the caller's own arguments.
                faults::run($symbol, || unsafe { <Fake as Api>::$name($($arg),*) })
            }
        )*

        /// Defines CUPTI's functions as symbols of the shared object that this is expanded in. The
        /// module imports `cupti::sys::abi::*` and `std::ffi::{c_char, c_void}`.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! export_fake_cupti {
            () => {
                $(
                    #[doc = concat!("`", $symbol, "`.")]
                    ///
                    /// # Safety
                    /// As CUPTI's function.
                    #[unsafe(export_name = $symbol)]
                    pub unsafe extern "C" fn $name($($arg: $type),*) -> CuptiResult {
                        // SAFETY: the caller's own arguments.
                        unsafe { ::fake_cupti::exports::$name($($arg),*) }
                    }
                )*
            };
        }
    };
}

cupti::cupti_functions!(exports);
