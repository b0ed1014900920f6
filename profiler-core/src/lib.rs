//! An exact GPU profiler inside the process: the kernels that each range launched, their GPU time,
//! and the host's waits.
//!
//! ```no_run
//! use profiler_core::{Profiler, exactly, expect};
//!
//! #[nvtx::annotate] // a call of the function is a range
//! fn forward() { /* CUDA work through any library */ }
//!
//! fn main() -> Result<(), profiler_core::Error> {
//!     let profiler = match Profiler::builder().build() {
//!         Err(error) if error.is_unavailable() => return Ok(forward()), // no GPU here
//!         profiler => profiler?,
//!     };
//!     let ((), profile) = profiler.record(|| {
//!         for _ in 0..10 {
//!             let _step = nvtx::range("step"); // ends when it is dropped
//!             forward();
//!         }
//!     })?;
//!
//!     println!("{profile}"); // ranges, kernels, health
//!     profile.health().assert_complete(); // every record has its call, nothing was dropped
//!     if let Some(forward) = profile.range("step/forward") {
//!         println!("{} kernels, {:?} on the GPU", forward.kernels(), forward.gpu_time());
//!     }
//!     for kernel in profile.query().in_range("step").by_kernel().top_share(0.9) {
//!         println!("{:.1} % {}: {}", 100.0 * kernel.share(), kernel.key(), kernel.statistics());
//!     }
//!     expect(&profile).range("step").synchronizations(exactly(0)).assert(); // as in a test
//!     profile.save("run.gpuprof") // `gpuprof open run.gpuprof` shows it in a browser
//! }
//! ```
//!
//! | to | open |
//! | --- | --- |
//! | record: settings, pauses, snapshots, schedules, long runs | [`Profiler`], [`session`] |
//! | read results: ranges, kernels, copies, calls, losses | [`Profile`], [`profile`], [`Health`] |
//! | select and group operations; gaps, launches, waits, steps | [`query`] |
//! | test: budgets, GPU tests, benches, reports for CI | [`expect`], [`gpu_test()`], [`testing`] |
//! | attribute work that another thread submits | [`Context`], [`session::HandOver`] |
//! | sample utilization, clocks and power; count with hardware | [`Sampling`], [`counters`] |
//! | profile by an environment variable; make spans ranges | [`from_env`], `ProfilerLayer` |
//! | analyse: diagnosis, rooflines, comparisons, exports; rows | the crate `profiler_analysis`; [`tables`] |
//!
//! - Attribution: work belongs to the innermost range of the thread that submitted it, by CUPTI's
//!   correlation ids and not by time.
//! - Threads: a [`Profiler`] and its sessions can be used from any thread. All threads of the process
//!   are recorded.
//! - Cost: a range costs two clock reads and a few stores. A launch costs CUPTI's own work and a log
//!   entry. `docs/guide/overhead.md` has the figures.
//!
//! No feature is on by default. `serde` writes results, `test-reports` writes reports for CI, and
//! `criterion` has measurements for benches. `tracing`, `opentelemetry` and `metrics` connect these
//! facades, `nvml` samples clocks and power, and `stacks` records stacks of the host.

#![cfg_attr(docsrs, feature(doc_cfg))]

// Sources shared with the tests refer to this crate by its public name.
#[cfg(test)]
extern crate self as profiler_core;

mod check;
mod collect;
mod error;
mod join;
pub mod profile;
pub mod query;
mod record;
pub mod session;
mod show;
pub mod tables;

pub use check::budget::{at_least, at_most, between, exactly, expect};
pub use check::gpu_test::{GpuTest, gpu_test};
pub use collect::sampling::Sampling;
// Arguments of `ProfilerBuilder` and of counters, for programs without a dependency on `cupti`.
pub use cupti;
pub use error::Error;
pub use join::health::Health;
pub use profile::summary::Summary;
#[doc(no_inline)]
pub use profile::{Profile, Range};
pub use profiler_base::display::{DisplayOptions, Styled};
pub use profiler_macros::gpu_test;
pub use record::context::Context;
pub use record::recording::Recording;
pub use record::series;
pub use session::environment::from_env;
pub use session::profiler::{Profiler, ProfilerBuilder};
pub use session::schedule::Schedule;
#[cfg(feature = "tracing")]
pub use session::tracing_layer::ProfilerLayer;
pub use show::report::TextReport;

/// Budgets of a test, and their violations. [`expect`] has an example.
pub mod budget {
    pub use crate::check::budget::{Budget, Expect, Violation, Violations, gpu_time_of};
}

/// Hardware counters of ranges and of kernels; [`Sampling`] collects them over time.
/// [`count_ranges`](counters::count_ranges) has an example.
pub mod counters {
    pub use crate::collect::count_ranges::{count_kernels, count_ranges};
}

/// Statistics of durations: of individual values, and of values counted in classes.
/// [`Query`](query::Query) and [`expect`] have examples.
pub mod statistics {
    pub use profiler_base::distribution::Distribution;
    pub use profiler_base::ratio_estimator::Estimate;
    pub use profiler_base::statistics::{Statistic, Statistics};
}

/// Tests and benches on a GPU: results of [`GpuTest`], the lock between tests, reports for CI, and
/// criterion's measurements.
/// [`gpu_test()`](crate::gpu_test()) has an example.
pub mod testing {
    #[cfg(feature = "test-reports")]
    pub use crate::check::ci;
    pub use crate::check::clocks::Clocks;
    pub use crate::check::gpu_lock::GpuLock;
    pub use crate::check::gpu_test::{Measured, Skipped};
    #[cfg(feature = "criterion")]
    pub use crate::check::measurement::GpuTime;
}
