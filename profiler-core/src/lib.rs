//! Which kernels did this range launch, how long did the GPU work for it, what did the host wait for: asked and answered
//! in the process, exact, with no external profiler.
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
//! The root has what programs type. Results have modules: operations, ranges and tracks in [`profile`], groups and steps
//! in [`query`], guards and schedules in [`session`], and one module for each analysis.
//!
//! # How work is attributed to ranges
//! A range writes its number to a tag of its thread. Driver callbacks log the tag of launches, copies, memsets and
//! synchronisations with CUPTI's correlation id, and the activity records of the work carry the same id. No clock is
//! involved. Work of another thread is attributed to the ranges of that thread, unless it was handed a [`Context`].
//! [`set_lane`] is for threads that launch for several others by turns.
//!
//! # While it runs
//! [`Profiler::pause`] and [`Profiler::resume`] exclude parts. [`Profiler::snapshot`] returns the profile so far; the
//! session continues. [`Profiler::schedule`] profiles some steps of a long run: it waits, warms up and records, again
//! and again.
//!
//! # Queries
//! [`Profile::query`] chooses GPU operations and asks about them: by range, domain, category, thread, device, stream, time,
//! name or a closure of the program's own; in groups, as a tree, one by one. What is not asked costs nothing.
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
//! // What the host was in while the GPU had nothing to do for 10 us or more.
//! println!("{}", profile.query().gaps(Duration::from_micros(10)));
//! // From call to kernel; copies with their GB/s; how far they are hidden behind kernels; who waited for what.
//! println!("{}", profile.query().kernels().launches().sum().latency);
//! println!("{}", profile.query().copies().by_transfer());
//! println!("{:?}", profile.query().overlap());
//! println!("{}", profile.waits().by_range());
//! // The instances of a range as steps: warm-up told apart, those that are far off.
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
//! [`ProfilerBuilder::sample`] has hardware counters sampled while a session is on (SMs, tensor cores, DRAM, PCIe, NVLink), and what
//! NVML says of clocks and power. [`Profile::tracks`] are what came of it; [`Range::mean`], [`Step::mean`](query::Step::mean) and [`Track::mean`](profile::Track::mean) say what
//! of it falls to a range, a step or any time, and how many samples that rests on: see [`Sampling`].
//!
//! # What it is bound by
//! [`Profile::diagnose`] says what a run, its ranges and its steps are bound by (launches, waits, copies, the host, data,
//! communication, or the GPU itself), what was found besides, what helps, and how much that can bring at most. Each
//! statement has its numbers, their thresholds, and the operations and calls it rests on: see [`diagnosis`].
//!
//! # What kernels are
//! [`kernels`] sorts kernels by what they are for, says which use tensor cores and which operations could, and how well each
//! launch fits its device: occupancy, waves, tails. None of it needs counters.
//!
//! # Rooflines
//! A range may say how much work it is: operations, bytes, number type. [`Profile::roofline`] holds that against the GPU time and
//! against what the device can do at most, which it knows from its attributes: how near the roof each path is, and whether
//! memory or arithmetic keeps it there. [`Declared`](roofline::Declared) says it afterwards, of programs that do not.
//!
#![cfg_attr(feature = "analysis", doc = "```")]
#![cfg_attr(not(feature = "analysis"), doc = "```ignore")]
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
//! With the feature `tracing`, `ProfilerLayer` makes ranges of spans, and an event of what each came to on the GPU:
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
//! # In tests, benches and programs that are not changed
//! [`expect`] sets budgets on a profile (kernels, copies, waits, allocations, GPU time, by range) and fails with what
//! exceeds them and where; what a recording cannot decide is a failure too. [`gpu_test()`] and
//! [`#[gpu_test]`](macro@gpu_test) measure: warmed up, repeated, one test at a time, skipped with a message where there
//! is no GPU. [`GpuTest::baseline`] compares with a reviewed file, counts exactly and times by their noise: see [`gate`].
//! [`Profile::counts`] is names and counts as text. With the feature `criterion`, `testing::GpuTime` and
//! `testing::BusyTime` are measurements for benches. [`from_env`] in `main` lets the environment variable
//! `GPU_PROFILER` turn profiling on. [`Profile::reports`] and [`Profile::rules`] are the tables of `nsys stats`
//! and `nsys analyze`.
//!
//! # Before and after
//! [`compare()`] compares two profiles, kernels by name and shape: new and missing work, the factors by which times
//! changed with their confidence, and the largest cost of each side; as text, JSON, CSV, Markdown for a pull request, or a page.
//!
//! # As a page
//! [`Profile::write_html`] is one page for a browser: timeline, ranges, kernels and calls, with nothing to fetch.
//!
//! # In other tools
//! [`Profile::export`] writes a profile for Perfetto, Chrome, HolisticTraceAnalysis and flame graphs;
//! [`Format`] says which has what. With the feature `parquet`, `Profile::write_parquet` writes tables for DuckDB and its
//! like: one part by host and rank for each process of a job.
//!
//! # Features
//! No feature is on by default: sessions, recordings, profiles, queries, the text report, budgets and GPU tests need none.
//! - `analysis`: results beyond queries. The modules [`diagnosis`], [`kernels`], [`roofline`], [`scorecard`], [`mod@compare`],
//!   [`reports`] and [`gate`]; the methods [`Profile::diagnose`], [`Profile::roofline`], [`Profile::scorecard`],
//!   [`Profile::reports`], [`Profile::rules`], [`Profile::write_html`], [`Profile::export`] and [`GpuTest::baseline`];
//!   [`counters::count_kernels`]. It doubles the time that the crate takes to compile.
//! - `tracing`: `ProfilerLayer`. `criterion`: measurements for benches. `nvml`: clocks and power. `nsys`: captures of
//!   Nsight Systems, read and written. `parquet`: tables for DuckDB and its like.
//!
//! # From the command line
//! The program `gpuprof`, a package of its own, has all of this for files: reports, nsys's tables and rules, exports,
//! differences of two files, runs judged by a baseline, and exit statuses for gates.
//!
//! # What it costs
//! A range costs two clock reads and a few stores; a launch costs CUPTI's own work and a log entry. The figures, with
//! machine and spread, are in `docs/measurements.md` of the repository.
//!
//! # Where there is no GPU
//! Building a [`Profiler`] gives an error for which [`is_unavailable`](Error::is_unavailable) is true. A [`Recording`]
//! from another machine can be read anywhere.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Earlier stages have helpers that the stages of this feature alone use.
#![cfg_attr(not(feature = "analysis"), allow(dead_code, unused_imports))]

#[cfg(feature = "analysis")]
mod analyze;
mod base;
mod check;
mod collect;
pub mod formats;
mod join;
pub mod profile;
pub mod query;
mod record;
#[cfg(feature = "analysis")]
pub mod reports;
pub mod session;
mod show;

#[cfg(feature = "analysis")]
#[doc(inline)]
pub use analyze::compare::compare;
#[cfg(feature = "analysis")]
pub use analyze::{compare, diagnosis, kernels, roofline, scorecard};
pub use base::error::Error;
pub use check::budget;
#[doc(inline)]
pub use check::budget::{at_least, at_most, between, exactly, expect};
#[cfg(feature = "analysis")]
pub use check::gate;
pub use check::gpu_test::{GpuTest, gpu_test};
pub use collect::sampling::Sampling;
#[cfg(feature = "analysis")]
pub use formats::export::Format;
pub use join::health::Health;
pub use profile::summary::Summary;
#[doc(inline)]
pub use profile::{Profile, Range};
pub use profiler_macros::gpu_test;
pub use record::context::Context;
pub use record::lane::set_lane;
pub use record::recording::Recording;
pub use record::series;
pub use session::environment::from_env;
pub use session::profiler::{Profiler, ProfilerBuilder};
pub use session::schedule::Schedule;
#[cfg(feature = "tracing")]
pub use session::tracing_layer::ProfilerLayer;

/// Hardware counters of ranges and of kernels; [`Sampling`] collects them over time. [`count_ranges`](counters::count_ranges)
/// has an example.
pub mod counters {
    #[cfg(feature = "analysis")]
    pub use crate::analyze::kernel_counters::{
        CountedKernel, CountedKernels, PipeDisagreement, TensorPipe, TensorPipes, count_kernels,
    };
    pub use crate::collect::count_ranges::count_ranges;
    pub use cupti::counters::MemoryLevel;
}

/// Statistics of durations: of values that are kept, and of values counted in classes. [`Query`](query::Query) and
/// [`expect`] have examples.
pub mod statistics {
    pub use crate::base::distribution::Distribution;
    pub use crate::base::statistics::{Statistic, Statistics};
}

/// Tests and benches on a GPU: results of [`GpuTest`], the lock between tests, and criterion's measurements.
/// [`gpu_test()`](crate::gpu_test()) has an example.
pub mod testing {
    pub use crate::check::gpu_lock::GpuLock;
    #[cfg(feature = "analysis")]
    pub use crate::check::gpu_test::GatedTest;
    pub use crate::check::gpu_test::{GpuTest, Measured, gpu_test_with, gpu_tests_required};
    #[cfg(feature = "criterion")]
    pub use crate::check::measurement::{BusyTime, GpuTime};
}

/// For `#[gpu_test]` and the program `gpuprof`. Not for use by hand; may change at any time.
#[doc(hidden)]
pub mod __private {
    /// Files that get their content at once: `gpuprof` writes its files by the rules for links,
    /// permissions and abandoned files that captures and baselines follow.
    pub use crate::base::replace;
    pub use crate::check::gpu_test::Skipped;
}

/// The Rust examples of the README and the guide, compiled and run as documentation tests.
#[cfg(all(doctest, feature = "analysis"))]
mod guide {
    #[doc = include_str!("../../README.md")]
    struct Readme;

    #[doc = include_str!("../../docs/guide/getting-started.md")]
    struct GettingStarted;

    #[doc = include_str!("../../docs/guide/annotate.md")]
    struct Annotate;

    #[doc = include_str!("../../docs/guide/sessions.md")]
    struct Sessions;

    #[doc = include_str!("../../docs/guide/long-runs.md")]
    struct LongRuns;

    #[doc = include_str!("../../docs/guide/threads-and-async.md")]
    struct ThreadsAndAsync;

    #[doc = include_str!("../../docs/guide/graphs.md")]
    struct Graphs;

    #[doc = include_str!("../../docs/guide/queries.md")]
    struct Queries;

    #[doc = include_str!("../../docs/guide/diagnosis.md")]
    struct Diagnosis;

    #[doc = include_str!("../../docs/guide/counters.md")]
    struct Counters;

    #[doc = include_str!("../../docs/guide/testing.md")]
    struct Testing;

    #[doc = include_str!("../../docs/guide/exports.md")]
    struct Exports;
}
