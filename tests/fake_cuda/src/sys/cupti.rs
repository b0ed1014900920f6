//! CUPTI's functions, as symbols.

use std::ffi::c_void;

use ::cupti::sys::abi::*;

fake_cupti::export_fake_cupti!();

/// `cuptiActivityEnableHWTrace`, which 13.0.1 has; this device has no such traces.
#[unsafe(export_name = "cuptiActivityEnableHWTrace")]
pub(crate) extern "C" fn enable_hw_trace(_on: u8) -> CuptiResult {
    CuptiResult::NOT_SUPPORTED
}
