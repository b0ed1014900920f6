//! gpuprof's injection library in a program that records itself.
//!
//! CUPTI has one subscriber in a process. `gpuprof run` loads its library into every program that
//! uses CUDA; in one that collects with this crate, the library must first end its own recording.

use std::env;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// The variables with the library that CUDA's driver and NVTX load.
const VARIABLES: [&str; 2] = ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"];
/// Ends the library's recording; returns 1 once CUPTI is free.
const YIELD: &[u8] = b"gpuprof_inject_v1\0";

static IS_INJECTED: AtomicBool = AtomicBool::new(false);

/// Marks this code as the injection library, which yields to nobody.
pub fn this_is_injected() {
    IS_INJECTED.store(true, Ordering::Relaxed);
}

/// Makes the injection library end its recording, if this process has loaded it. Waits for the GPU,
/// as a stop does.
pub(crate) fn end_recording() {
    if IS_INJECTED.load(Ordering::Relaxed) {
        return;
    }
    for path in VARIABLES.into_iter().filter_map(env::var_os).filter(|path| !path.is_empty()) {
        let flags = RTLD_NOW | RTLD_LOCAL | libc::RTLD_NOLOAD;
        // SAFETY: nothing new is loaded, so no initialiser runs.
        let Ok(library) = (unsafe { Library::open(Some(path), flags) }) else { continue };
        // SAFETY: a library that exports this name is gpuprof's, whose function has this type.
        let end = unsafe { library.get::<unsafe extern "C" fn() -> c_int>(YIELD) };
        if let Ok(end) = end {
            // SAFETY: the function takes no arguments and may be called at any time and any number
            // of times.
            let _ = unsafe { end() };
            return;
        }
    }
}
