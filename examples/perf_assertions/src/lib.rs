//! Budgets on the training run of `quickstart`, kept by `cargo test`.
//!
//! ```text
//! cargo test -p gpu-profiler-perf-assertions                      # on a recording of an H200, and on the GPU if there is one
//! GPU_TESTS=require cargo test -p gpu-profiler-perf-assertions    # the second must not be skipped
//! ```
//!
//! Counts come first: they are exact, and the same on every machine and every run. Times are given room.

use profiler_core::budget::Expect;
use profiler_core::profile::CopyKind;
use profiler_core::{at_most, exactly};

/// What one batch may do. A kernel, a copy or a wait more is a regression that no clock has to find. cuBLAS chooses its
/// kernels by the GPU: their number is an H200's.
pub fn lean_batch(expect: Expect<'_>) -> Expect<'_> {
    expect
        .complete()
        .range("batch")
        .each()
        .kernels(exactly(18))
        .launches(exactly(18))
        .copies_of(CopyKind::HostToDevice, exactly(2))
        .copies_of(CopyKind::DeviceToHost, exactly(1)) // the loss
        .copied_bytes(at_most(1 << 20))
        .synchronizations(exactly(1))
        .allocations(exactly(0))
        .streams(exactly(1))
        .range("forward")
        .each()
        .kernels(at_most(5))
        .copies(exactly(0))
        .synchronizations(exactly(0))
        .range("optimizer")
        .only_kernels(["sgd_update"])
}
