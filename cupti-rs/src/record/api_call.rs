//! Calls of the runtime and driver APIs.

use std::fmt;

use super::Span;
use super::fields::{Raw, record};
use crate::kind::ActivityKind;
use crate::sys::field::Value;
use crate::sys::functions::{DRIVER_FUNCTIONS, RUNTIME_FUNCTIONS};

record! {
    /// A call (`RUNTIME`, `DRIVER`), or a launch by the driver on its own (`INTERNAL_LAUNCH_API`).
    ApiCall, raw, f of api {
        /// The function, from the record's kind and `cbid`.
        function: ApiFunction = ApiFunction::new(raw, f.get(CBID)),
        /// From its start to its end, in CUPTI's time (`start`, `end`).
        span: Span = f.span(START, END),
        /// The process (`processId`).
        process: u32 = f.get(PROCESS_ID),
        /// The thread (`threadId`): the kernel's id or, unless CUPTI was configured for it, 32 bits
        /// of `pthread_self`.
        thread: u32 = f.get(THREAD_ID),
        /// The id in the records of its work (`correlationId`).
        correlation_id: u32 = f.get(CORRELATION_ID),
        /// Its `CUresult` or `cudaError_t` (`returnValue`): 0 is success.
        result: u32 = f.get(RETURN_VALUE),
    }
}

/// A function of CUDA, by its API and CUPTI's callback id in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ApiFunction {
    /// A driver function (`CUpti_driver_api_trace_cbid`).
    Driver(u32),
    /// A function of the runtime API (`CUpti_runtime_api_trace_cbid`).
    Runtime(u32),
    /// No function: an internal launch of the driver.
    Internal,
}

impl ApiFunction {
    fn new(raw: Raw<'_>, id: u32) -> Self {
        match u32::read(raw.bytes).map(ActivityKind) {
            Some(ActivityKind::RUNTIME) => Self::Runtime(id),
            Some(ActivityKind::INTERNAL_LAUNCH_API) => Self::Internal,
            _ => Self::Driver(id),
        }
    }

    /// CUPTI's name of the function, such as `cuLaunchKernel` or `cudaMalloc_v3020`; `None` if the
    /// function is newer than CUPTI 13.5, or there is none. Costs a table look-up.
    pub fn name(self) -> Option<&'static str> {
        let name = match self {
            Self::Driver(id) => DRIVER_FUNCTIONS.get(id as usize)?,
            Self::Runtime(id) => RUNTIME_FUNCTIONS.get(id as usize)?,
            Self::Internal => return None,
        };
        (!name.is_empty()).then_some(*name)
    }
}

impl fmt::Display for ApiFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self) {
            (Some(name), _) => f.write_str(name),
            (None, Self::Driver(id)) => write!(f, "driver function {id}"),
            (None, Self::Runtime(id)) => write!(f, "runtime function {id}"),
            (None, Self::Internal) => f.write_str("(the driver itself)"),
        }
    }
}
