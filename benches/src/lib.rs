//! Shared code of the benchmarks: measurements in separate processes, statistics of paired rounds,
//! settings of criterion, and memory.

pub mod process_bench;
pub mod stats;

use std::time::Duration;

use criterion::Criterion;

/// True under `cargo bench`; false under `cargo test`, where a benchmark only checks that it runs.
#[must_use]
pub fn is_measuring() -> bool {
    std::env::args().any(|arg| arg == "--bench")
}

/// Creates a Criterion with this many seconds of measurement, or with default settings under
/// `cargo test`.
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

/// Makes the allocator request every larger allocation from the kernel from now on.
///
/// A growing log causes a page fault for each new page. Otherwise a benchmark with several sessions
/// would reuse the pages of earlier sessions, and underestimate the cost of the log.
pub fn fresh_memory() {
    // SAFETY: `mallopt` takes two integers and refuses invalid ones.
    let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 64 << 10) };
}
