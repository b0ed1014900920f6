//! Performance budgets for the training run of `quickstart`, checked by `cargo test`.
//!
//! ```text
//! cargo test -p gpu-profiler-perf-assertions                      # on a recording of an H200, and on the GPU if there is one
//! GPU_TESTS=require cargo test -p gpu-profiler-perf-assertions    # the second must not be skipped
//! ```
//!
//! Budgets on counts come first: counts are exact, and the same on every machine and in every run.
//! Budgets on times have a margin.

use profiler_core::budget::Expect;
use profiler_core::cupti::CopyKind;
use profiler_core::{at_most, exactly};

/// The budget of one batch. An additional kernel, copy or wait is a regression that needs no timing
/// to detect. cuBLAS chooses its kernels by GPU: the numbers are for an H200.
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
