//! The library that `gpuprof run` has CUDA and NVTX load into a program that was not changed.
//!
//! CUDA's driver loads the file in `CUDA_INJECTION64_PATH` and calls `InitializeInjection`; each copy of NVTX loads the one in
//! `NVTX_INJECTION64_PATH` and calls `InitializeInjectionNvtx2`. The library records both to a file of the run folder. It prints
//! nothing, starts no thread before CUDA's initialisation, handles no signal, and does nothing unless `GPUPROF_RUN` names a folder.
//! docs/internals/injection.md has the rules.
//!
//! As a crate it has nothing to use: its functions are for C. Tests and benches call them.

// Unsafe code is in `sys` alone.
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

/// For the tests of this crate. Not for use by hand; may change at any time.
#[doc(hidden)]
pub mod __private {
    /// Has this observer get all events from now on, whatever the environment says. False if another one gets them.
    pub fn observe_with(observer: &'static dyn nvtx::observer::Observer) -> bool {
        let is_set = crate::annotations::observe_with(observer);
        if is_set {
            crate::life::observe_for_tests();
        }
        is_set
    }

    /// Where the library expects the fields of NCCL's events.
    pub const NCCL_OFFSETS: &[(&str, usize)] = crate::sys::NCCL_OFFSETS;

    /// What could not be read or kept so far, with names.
    pub fn counts() -> Vec<(&'static str, u64)> {
        crate::counts::nonzero()
    }
}
