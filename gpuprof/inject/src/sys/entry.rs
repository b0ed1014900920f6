//! The exported C functions.
#![allow(non_snake_case, reason = "CUDA and NVTX look for these names")]

use std::ffi::c_int;

use nvtx::abi::{GetExportTable, ModuleInfo};

use super::{extensions, guarded, process, tables};
use crate::{life, mode};

/// The result that lets CUDA continue.
const DONE: c_int = 1;
/// The result for NVTX if the library is not used as a tool.
const NO_TOOL: c_int = 0;

/// Returns true if the process may be observed, and prepares it in that case.
fn may_observe() -> bool {
    if life::is_for_tests() {
        return true;
    }
    let may = life::may_observe(process::is_privileged);
    if may {
        process::prepare();
    }
    may
}

/// Called by the driver after its initialisation, on the thread that called `cuInit`. The result
/// always lets the program continue.
#[unsafe(no_mangle)]
pub(super) extern "C" fn InitializeInjection() -> c_int {
    guarded((), || {
        if may_observe() && life::begin() {
            process::end_at_exit();
        }
    });
    DONE
}

/// Called by each copy of NVTX in the process, before or after CUDA's initialisation.
///
/// # Safety
/// `export` is the copy's function for export tables.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn InitializeInjectionNvtx2(export: Option<GetExportTable>) -> c_int {
    guarded(NO_TOOL, || {
        let Some(export) = export.filter(|_| may_observe()) else { return NO_TOOL };
        mode::await_recording();
        // SAFETY: the caller's promise.
        c_int::from(unsafe { tables::fill(export) })
    })
}

/// Called by each copy of an NVTX extension.
///
/// # Safety
/// `info` is null or describes the extension, and lives through the call.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn InitializeInjectionNvtxExtension(info: *mut ModuleInfo) -> c_int {
    guarded(NO_TOOL, || {
        if !may_observe() {
            return NO_TOOL;
        }
        // SAFETY: the caller's promise.
        c_int::from(unsafe { extensions::fill(info) })
    })
}

/// Ends this library's recording, so that the program can record itself. Returns 1 once CUPTI is
/// free.
///
/// Version 1 of this function. A later version gets another name, and this one remains.
#[unsafe(no_mangle)]
pub(super) extern "C" fn gpuprof_inject_v1() -> c_int {
    guarded(0, || c_int::from(life::yield_to_program()))
}
