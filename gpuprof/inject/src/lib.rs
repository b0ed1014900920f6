//! The injection library that `gpuprof run` loads into an unmodified program through CUDA and NVTX.
//!
//! CUDA's driver loads the file in `CUDA_INJECTION64_PATH` and calls `InitializeInjection`. Each
//! copy of NVTX loads the file in `NVTX_INJECTION64_PATH` and calls `InitializeInjectionNvtx2`. The
//! library records both to a file of the run folder. It prints nothing, handles no signal, and
//! starts no thread before CUDA's initialisation. It does nothing unless `GPUPROF_RUN` names a
//! folder. docs/internals/injection.md lists the rules.
//!
//! The crate has no API for Rust callers: its functions have a C interface. Tests and benches call
//! them.

// Only `sys` contains unsafe code.
#![deny(unsafe_code)]

mod always_on;
mod annotations;
mod control;
mod counts;
mod life;
mod mode;
mod recorded;
mod switch;
#[allow(unsafe_code)]
mod sys;

/// Internals for the tests of this crate. They may change at any time.
#[doc(hidden)]
pub mod __private {
    /// Sends all events to this observer from now on, regardless of the environment. Returns false
    /// if another observer is set.
    pub fn observe_with(observer: &'static dyn nvtx::observer::Observer) -> bool {
        let is_set = crate::annotations::observe_with(observer);
        if is_set {
            crate::life::observe_for_tests();
        }
        is_set
    }

    /// The offsets at which the library expects the fields of NCCL's events.
    pub const NCCL_OFFSETS: &[(&str, usize)] = crate::sys::NCCL_OFFSETS;

    /// The counters of unread and dropped events that are not 0, with their names.
    pub fn counts() -> Vec<(&'static str, u64)> {
        crate::counts::nonzero()
    }
}
