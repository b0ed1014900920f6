//! Names of CUDA objects, by handles of the driver and of the runtime.
//!
//! A handle is passed to the tool as a number, which it compares with the handles of calls. Nothing
//! dereferences it, so these functions are safe: with an invalid handle the name has no effect.

use std::ffi::{c_int, c_void};

use crate::observer::{self, Named};
use crate::state;
use crate::sys::functions;
use crate::sys::types::Text;
use crate::text::with_c_str;

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident($id:ident: $type:ty) => $function:ident, $named:expr;)*) => {
        $(
            $(#[$doc])*
            pub fn $name($id: $type, name: &str) {
                if state::has_tool() {
                    with_c_str(name, |name| functions::$function($id, Text::new(name)));
                }
                observer::named(&$named, name);
            }
        )*
    };
}

/// Names of objects of the driver API.
pub mod driver {
    #[allow(clippy::wildcard_imports, reason = "one module in two names")]
    use super::*;

    names! {
        /// Names a `CUdevice`.
        name_device(device: c_int) => name_cu_device, Named::CuDevice(device);
        /// Names a `CUcontext`.
        name_context(context: *mut c_void) => name_cu_context, Named::CuContext(context.addr());
        /// Names a `CUstream`.
        name_stream(stream: *mut c_void) => name_cu_stream, Named::CuStream(stream.addr());
        /// Names a `CUevent`.
        name_event(event: *mut c_void) => name_cu_event, Named::CuEvent(event.addr());
    }
}

/// Names of objects of the runtime API.
pub mod runtime {
    #[allow(clippy::wildcard_imports, reason = "one module in two names")]
    use super::*;

    names! {
        /// Names a device by its ordinal.
        name_device(device: c_int) => name_cuda_device, Named::CudaDevice(device);
        /// Names a `cudaStream_t`.
        name_stream(stream: *mut c_void) => name_cuda_stream, Named::CudaStream(stream.addr());
        /// Names a `cudaEvent_t`.
        name_event(event: *mut c_void) => name_cuda_event, Named::CudaEvent(event.addr());
    }
}
