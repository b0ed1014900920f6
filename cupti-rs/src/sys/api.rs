//! The function table: every CUPTI function this crate calls, found by name in one library. The fake fills the same
//! table, so that all code above runs unchanged without a GPU.

use std::ffi::c_void;
use std::path::Path;

use super::abi::*;
use crate::error::{Error, Kind};

macro_rules! api {
    (
        required { $($(#[$doc:meta])* $name:ident = $symbol:literal : fn($($arg:ty),*);)* }
        optional { $($(#[$odoc:meta])* $oname:ident = $osymbol:literal : fn($($oarg:ty),*);)* }
    ) => {
        /// CUPTI's functions, as pointers. Only this crate makes one: from a library, or for the stand-in.
        #[derive(Debug, Clone, Copy)]
        pub struct Api {
            $($(#[$doc])* pub(crate) $name: unsafe extern "C" fn($($arg),*) -> CuptiResult,)*
            $($(#[$odoc])* pub(crate) $oname: Option<unsafe extern "C" fn($($oarg),*) -> CuptiResult>,)*
        }

        impl Api {
            /// Looks every function up in `library`, which was opened from `path`.
            pub(crate) fn load(library: &libloading::Library, path: &Path) -> Result<Self, Error> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the type is CUPTI's declaration of this function, the same from 12.0 to 13.5.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($arg),*) -> CuptiResult>($symbol)
                        };
                        *found.map_err(|_| Error::new(Kind::MissingSymbol {
                            path: path.to_owned(),
                            symbol: str::from_utf8($symbol).unwrap_or_default(),
                        }))?
                    },)*
                    $($oname: {
                        // SAFETY: the type is CUPTI's declaration of this function in every version that has it.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($oarg),*) -> CuptiResult>($osymbol)
                        };
                        found.ok().map(|symbol| *symbol)
                    },)*
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
    }
    optional {
        /// `cuptiSubscribe_v2` (13.0+): on refusal it tells the holder's name.
        subscribe_v2 = b"cuptiSubscribe_v2": fn(*mut SubscriberHandle, CallbackFunc, *mut c_void, *mut SubscriberParams);

    }
}
