//! An exact GPU profiler inside the process: the kernels that a range launched, their GPU time, and
//! what the host waited for.
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
//! # How work is attributed to ranges
//! A range writes its tag to a thread-local variable. Driver callbacks log the tag of launches,
//! copies, memsets and synchronisations with CUPTI's correlation id, which the activity records of
//! the work contain, too. No clock is involved. Work of another thread is attributed to the ranges
//! of that thread, unless it was handed a [`Context`]. A [`HandOver`](session::HandOver) is for threads that launch for
//! several others in turn.
//!
//! # While it runs
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
//! # How busy the device was
//! [`ProfilerBuilder::sample`] samples hardware counters during a session (SMs, tensor cores, DRAM,
//! PCIe, NVLink), and NVML's clocks and power. [`Profile::tracks`] returns the samples.
//! [`Range::mean`], [`Step::mean`](query::Step::mean) and [`Track::mean`](profile::Track::mean) are
//! the values of a range, a step or any interval, with the number of samples: see [`Sampling`].
//!
//! # What it is bound by
//! [`Profile::diagnose`] finds what a run, its ranges and its steps are bound by (launches, waits,
//! copies, the host, data, communication, or the GPU), further findings, remedies, and the upper
//! bound of their gain. Each statement has its numbers, thresholds, operations and calls: see
//! [`diagnosis`].
//!
//! # What a change would bring
//! [`Profile::dependencies`] is the graph of what waits for what: the [critical path](critical_path) of
//! a run or its steps, the slack of all else, and by a replay what changes would save, with the
//! error of that model.
//!
//! # What kernels are
//! [`kernels`] classifies kernels by purpose, and finds which use tensor cores and which operations
//! could, and how well each launch fits its device: occupancy, waves, tails. It needs no counters.
//!
//! # Rooflines
//! A range may declare its work: operations, bytes, number type. [`Profile::roofline`] compares it
//! with the GPU time and the device's peaks, known from its attributes: the distance of each path
//! from the roof, and whether memory or arithmetic limits it. [`Declared`](roofline::Declared)
//! declares work of unmodified programs.
//!
//! use nvtx::{Dtype, Work};
//! use profiler_core::Profile;
//! use profiler_core::roofline::Declared;
//!
//! #[nvtx::annotate(work = Work::gemm(m, n, k, Dtype::F32))]
//! fn product(m: u64, n: u64, k: u64) { /* launches it */ }
//!
//! # fn main() -> Result<(), profiler_core::Error> {
//! # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
//! let profile = Profile::load(file)?;
//! if let Some(peaks) = profile.peaks(None) {
//!     let update = Work::elementwise(512 * 256, 3, 2, 4, Dtype::F32);
//!     let roofline = profile.roofline_with(&peaks, &Declared::new().kernel("sgd_update", update));
//!     println!("{roofline}"); // to_svg() and to_html() draw it
//!     assert_eq!(roofline.points[0].bound(), Some(profiler_core::roofline::Bound::Memory));
//! }
//! # Ok(())
//! # }
//! ```
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
//! # In tests, benches and unmodified programs
//! [`expect`] sets budgets on a profile (kernels, copies, waits, allocations, GPU time, by range)
//! and fails with what exceeds them, and with what a recording cannot decide. [`gpu_test()`] and
//! [`#[gpu_test]`](macro@gpu_test) measure with warm-up and repetitions, one test at a time, and
//! are skipped with a message without a GPU. [`GpuTest::baseline`] compares with a reviewed file,
//! counts exactly and times by their noise: see [`gate`]. [`Profile::counts`] is names and counts
//! as text. [`Profiler::measure`] measures one piece of work: GPU time, latency and host cost with
//! bounds; [`measure`] has the settings and the comparison of two variants. With the feature
//! `criterion`, `testing::GpuTime` and its neighbours are measurements for benches. [`from_env`] in
//! `main` enables profiling by the environment variable `GPU_PROFILER`. [`Profile::reports`] and [`Profile::rules`] are the tables of `nsys stats` and
//! `nsys analyze`.
//!
//! # Comparisons and outputs
//! [`compare()`] compares two profiles, kernels by name and shape: new and missing work, the
//! factors by which times changed with their confidence, and the largest cost of each side; as
//! text, JSON, CSV, Markdown or a page. [`Profile::write_html`] writes one page for a browser:
//! timeline, ranges, kernels and calls. [`Profile::export`] writes a profile for Perfetto, Chrome,
//! HolisticTraceAnalysis, pprof, OpenTelemetry, the Firefox Profiler and flame graphs; [`Format`] lists
//! what each contains. [`Profile::stacks`] sums the work by thread, range path and kernel. With the feature
//! `parquet`, `Profile::write_parquet` writes tables for DuckDB and the like, one part by host and
//! rank for each process of a job.
//!
//! # Features
//! No feature is on by default: sessions, recordings, profiles, queries, the text report, budgets and GPU tests need none.
//! - `analysis`: results beyond queries. The modules [`diagnosis`], [`mod@critical_path`], [`kernels`], [`roofline`], [`scorecard`], [`mod@compare`],
//!   [`reports`], [`gate`], [`measure`] and [`testing::ci`]; the methods [`Profile::diagnose`], [`Profile::dependencies`], [`Profile::roofline`], [`Profile::scorecard`],
//!   [`Profile::reports`], [`Profile::rules`], [`Profile::write_html`], [`Profile::export`] and [`GpuTest::baseline`];
//!   [`counters::count_kernels`]. It doubles the time that the crate takes to compile.
//! - `serde`: `Serialize` for all results; part of `analysis`. Recordings and series need no feature.
//! - `tracing`: `ProfilerLayer`. `criterion`: measurements for benches. `nvml`: clocks and power. `metrics`: sums of
//!   running sessions for the `metrics` facade, and so for Prometheus ([`session`]`::metrics`). `opentelemetry`: GPU time on the
//!   spans of OpenTelemetry. `push`: profiles pushed over HTTP. `nsys`: captures of
//!   Nsight Systems, read and written. `parquet`: tables for DuckDB and its like. `pprof`, `otlp`, `firefox`: exports for pprof's
//!   readers, OpenTelemetry's collectors and the Firefox Profiler; each includes `analysis`. `stacks`: stacks of threads
//!   at launches that end gaps, and samples within gaps; recordings that have some are read without it.
//!
//! # From the command line
//! The program `gpuprof`, a separate package, offers all of this for files, with exit statuses for
//! gates.
//!
//! # What it costs
//! A range costs two clock reads and a few stores; a launch costs CUPTI's own work and a log entry.
//! `docs/measurements.md` of the repository has the figures.
//!
//! # Without a GPU
//! Building a [`Profiler`] returns an error with [`is_unavailable`](Error::is_unavailable). A
//! [`Recording`] from another machine can be read anywhere.

#![cfg_attr(docsrs, feature(doc_cfg))]

// What tests share names this crate as others do.
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

pub use check::budget;
#[doc(inline)]
pub use check::budget::{at_least, at_most, between, exactly, expect};
pub use check::gpu_test::{GpuTest, gpu_test};
pub use collect::sampling::Sampling;
pub use error::Error;
pub use join::health::Health;
pub use profile::summary::Summary;
#[doc(inline)]
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

/// Hardware counters of ranges and of kernels; [`Sampling`] collects them over time. [`count_ranges`](counters::count_ranges)
/// has an example.
pub mod counters {
    pub use crate::collect::count_ranges::{count_kernels, count_ranges};
    pub use cupti::counters::{CounterData, MemoryLevel, RangeProfiler, Set};
}

/// Statistics of durations: of values that are kept, and of values counted in classes. [`Query`](query::Query) and
/// [`expect`] have examples.
pub mod statistics {
    pub use profiler_base::distribution::Distribution;
    pub use profiler_base::ratio_estimator::{Estimate, RatioEstimator};
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
    pub use crate::check::gpu_test::{
        GpuTest, Measured, Skipped, gpu_test_with, gpu_tests_required,
    };
    #[cfg(feature = "criterion")]
    pub use crate::check::measurement::{BusyTime, GpuTime, LatencyTime, SpanTime};
}
