//! An exact GPU profiler inside the process: the kernels that a range launched, their GPU time, and
//! the host's waits.
//!
//! ```no_run
//! use profiler_core::Profiler;
//!
//! # fn forward() {}
//! # fn main() -> Result<(), profiler_core::Error> {
//! let profiler = Profiler::builder().build()?;
//! let ((), profile) = profiler.record(|| {
//!     let _range = nvtx::range("forward"); // or #[nvtx::annotate] on the function
//!     forward(); // CUDA work through any library, on this thread
//! })?;
//!
//! println!("{profile}"); // ranges, kernels, health
//! if let Some(forward) = profile.range("forward") {
//!     println!("{} kernels, {:?} on the GPU", forward.kernels(), forward.gpu_time());
//! }
//! profile.health().assert_complete(); // every record has its call, nothing was dropped
//! # Ok(())
//! # }
//! ```
//!
//! # Names
//! The root has the types that programs name. Results are in modules: operations, ranges and tracks
//! in [`profile`], groups and steps in [`query`], guards and schedules in [`session`], and one
//! module per analysis.
//!
//! # Attribution of work to ranges
//! A range writes its tag to a thread-local variable. Driver callbacks log the tag of launches,
//! copies, memsets and synchronisations with CUPTI's correlation id. The activity records of the
//! work contain the same id. No clock is involved. Work of another thread is attributed to the
//! ranges of that thread, unless a [`Context`] was handed to it. A [`HandOver`](session::HandOver)
//! is for threads that launch for several others in turn.
//!
//! # During a run
//! [`Profiler::pause`] and [`Profiler::resume`] exclude parts. [`Profiler::snapshot`] returns the
//! profile so far. [`Profiler::schedule`] profiles some steps of a long run in cycles of waiting,
//! warm-up and recording.
//!
//! # Queries
//! [`Profile::query`] selects GPU operations by range, domain, category, thread, device, stream,
//! time, name or closure, and returns groups, trees or single operations.
//!
//! ```
//! use std::time::Duration;
//!
//! use profiler_core::Profile;
//! use profiler_core::query::Step;
//!
//! # fn main() -> Result<(), profiler_core::Error> {
//! # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
//! let profile = Profile::load(file)?;
//! let backward = profile.query().in_range("batch/backward").kernels();
//! println!("busy {:?} of {:?}", backward.busy_time(), backward.span().map(|span| span.duration()));
//! for kernel in backward.by_kernel().top_share(0.9) {
//!     println!("{:.1} % {}: {}", 100.0 * kernel.share(), kernel.key(), kernel.statistics());
//! }
//!
//! // What the host did while the GPU was idle for 10 us or more.
//! println!("{}", profile.query().gaps(Duration::from_micros(10)));
//! // From call to kernel; copies with their GB/s; copies hidden behind kernels; waits by range.
//! println!("{}", profile.query().kernels().launches().sum().latency);
//! println!("{}", profile.query().copies().by_transfer());
//! println!("{:?}", profile.query().overlap());
//! println!("{}", profile.waits().by_range());
//! // The instances of a range as steps, without warm-up; outliers.
//! let steps = profile.steps("batch").warm();
//! println!("{steps}");
//! for step in steps.outliers(5.0, Step::host_time) {
//!     println!("step {} took {:?}", step.number(), step.host_time());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Device utilization
//! [`ProfilerBuilder::sample`] samples hardware counters during a session (SMs, tensor cores, DRAM,
//! PCIe, NVLink), and NVML's clocks and power. [`Profile::tracks`] returns the samples.
//! [`Range::mean`], [`Step::mean`](query::Step::mean) and [`Track::mean`](profile::Track::mean) are
//! the values of a range, a step or any interval, with the number of samples: see [`Sampling`].
//!
//! # Spans
//! With the feature `tracing`, `ProfilerLayer` makes spans ranges and emits an event with the GPU
//! work of each:
//!
#![cfg_attr(feature = "tracing", doc = "```no_run")]
#![cfg_attr(not(feature = "tracing"), doc = "```ignore")]
//! use profiler_core::ProfilerLayer;
//! use tracing_subscriber::prelude::*;
//!
//! # fn step() {}
//! # fn main() -> Result<(), profiler_core::Error> {
//! let (layer, guard) = ProfilerLayer::builder().build()?;
//! tracing_subscriber::registry().with(layer).init();
//! tracing::info_span!("step").in_scope(step); // soon: INFO gpu_profiler::range: GPU work done path="step" kernels=12 ...
//! println!("{}", guard.finish()?);
//! # Ok(())
//! # }
//! ```
//!
//! # In tests and benches
//! [`expect`] sets budgets on a profile (kernels, copies, waits, allocations, GPU time, by range).
//! It fails with the operations that exceed them, and with budgets that a recording cannot decide.
//! [`gpu_test()`] and [`#[gpu_test]`](macro@gpu_test) measure with warm-up and repetitions, one
//! test at a time, and are skipped with a message without a GPU. [`Profile::counts`] returns names
//! and counts as text, to compare with a file. With the feature `criterion`, `testing::GpuTime` and
//! similar types are measurements for benches. [`from_env`] in `main` enables profiling by the
//! environment variable `GPU_PROFILER`.
//!
//! # Analyses of profiles
//! The crate `profiler_analysis` reads profiles: diagnosis, critical path, rooflines, comparisons,
//! baselines, measurements of one piece of work, the reports of `nsys stats`, an HTML page, and
//! exports for Perfetto, pprof and others. The program `gpuprof` offers all of it for files.
//! [`tables`] has the underlying rows, for analyses of your own.
//!
//! # Features
//! No feature is on by default: sessions, recordings, profiles, queries, the text report, budgets
//! and GPU tests need none.
//! - `serde`: `Serialize` for all results. Recordings and series need no feature. `test-reports`:
//!   reports of tests for CI, [`testing`]`::ci`.
//! - `tracing`: `ProfilerLayer`. `opentelemetry`: GPU time on the spans of OpenTelemetry.
//!   `metrics`: sums of running sessions for the `metrics` facade and its exporters, such as
//!   Prometheus ([`session`]`::metrics`). `nvml`: clocks and power. `criterion`: measurements for
//!   benches.
//! - `stacks`: stacks of threads at launches that end gaps, and samples within gaps. Reading
//!   recordings with stacks does not require it.
//!
//! # Overhead
//! A range costs two clock reads and a few stores; a launch costs CUPTI's own work and a log entry.
//! `docs/measurements` of the repository has the figures.
//!
//! # Without a GPU
//! Building a [`Profiler`] returns an error with [`is_unavailable`](Error::is_unavailable). A
//! [`Recording`] from another machine can be read anywhere.

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
    pub use crate::check::budget::{Amount, Budget, Expect, Violation, Violations, gpu_time_of};
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
