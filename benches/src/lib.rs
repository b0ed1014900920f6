//! What the benchmarks share: the statistics of paired rounds, and the setting that makes memory cost what it costs.

pub mod stats;

use std::time::Duration;

use criterion::Criterion;

/// True under `cargo bench`; false under `cargo test`, where each benchmark is only to show that it runs.
#[must_use]
pub fn is_measuring() -> bool {
    std::env::args().any(|arg| arg == "--bench")
}

/// Criterion with some seconds of measurement, or with its quickest settings where a benchmark is only to show that it
/// runs.
#[must_use]
pub fn criterion(seconds: u64) -> Criterion {
    let criterion = Criterion::default();
    if is_measuring() {
        criterion
            .measurement_time(Duration::from_secs(seconds))
            .warm_up_time(Duration::from_secs(1))
    } else {
        criterion
    }
}

/// Has every larger allocation come fresh from the kernel from now on.
///
/// A log that only grows pays a page fault for each new page. A benchmark that runs session after session would get the
/// pages of the last one back from the allocator, and would show a log that is cheaper than it is.
pub fn fresh_memory() {
    // SAFETY: takes two integers; a value that it does not like is refused.
    let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 64 << 10) };
}
