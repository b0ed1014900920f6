//! Analyses of GPU profiles: the bottleneck of a run, the effect of a change, kernels and their use
//! of the device, and comparisons of runs.
//!
//! ```
//! use profiler_analysis::prelude::*;
//! use profiler_core::Profile;
//!
//! # fn main() -> Result<(), profiler_analysis::Error> {
//! # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
//! let profile = Profile::load(file)?;
//! println!("{}", profile.diagnose());
//! std::fs::write(std::env::temp_dir().join("run.html"), profile.to_html()).unwrap();
//! # Ok(())
//! # }
//! ```
//!
//! The traits of [`prelude`] add its methods, for types of `profiler_core`. A profile is recorded,
//! loaded, merged, or read by `nsys::read` from a capture of Nsight Systems.
//!
//! | question | answer |
//! | --- | --- |
//! | what limits a run, and what helps? | [`diagnose`](prelude::ProfileExt::diagnose): [`diagnosis`]; [`scorecard`] |
//! | how much faster would a change make it? | [`dependencies`](prelude::ProfileExt::dependencies): [`critical_path`] |
//! | what are the kernels, and do they use tensor cores? | [`kernels`]; counted by hardware: [`counters`] |
//! | is it limited by memory or arithmetic? | [`roofline`](prelude::ProfileExt::roofline): [`mod@roofline`] |
//! | which rank is slow? | [`ranks`](prelude::ProfileExt::ranks): [`mod@ranks`] |
//! | what changed between two runs? | [`compare()`]: [`mod@compare`] |
//! | did a test become slower? | [`baseline`](prelude::GpuTestExt::baseline): [`gate`] |
//! | how long does one piece of work take? | [`measure`](prelude::ProfilerExt::measure): [`mod@measure`] |
//! | what do `nsys stats` and `nsys analyze` report? | [`reports`](prelude::ProfileExt::reports): [`mod@reports`] |
//! | how do other tools read it? | [`to_html`](prelude::ProfileExt::to_html), [`export`](prelude::ProfileExt::export), [`formats`] |
//!
//! # Rooflines
//! A range may declare its work: operations, bytes, number type. The roofline compares this work
//! with the GPU time and the device's peaks, which follow from its attributes.
//! [`Declared`](roofline::Declared) declares work of unmodified programs.
//!
//! ```
//! use nvtx::{Dtype, Work};
//! use profiler_analysis::prelude::*;
//! use profiler_analysis::roofline::Declared;
//! use profiler_core::Profile;
//!
//! #[nvtx::annotate(work = Work::gemm(m, n, k, Dtype::F32))]
//! fn product(m: u64, n: u64, k: u64) { /* launches it */ }
//!
//! # fn main() -> Result<(), profiler_analysis::Error> {
//! # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
//! let profile = Profile::load(file)?;
//! if let Some(peaks) = profile.peaks(None) {
//!     let update = Work::elementwise(512 * 256, 3, 2, 4, Dtype::F32);
//!     let roofline = profile.roofline_with(&peaks, &Declared::new().kernel("sgd_update", update));
//!     println!("{roofline}"); // to_svg() and to_html() draw it
//!     assert_eq!(roofline.points[0].bound(), Some(profiler_analysis::roofline::Bound::Memory));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//! No feature is on by default.
//!
//! - `nsys`: reads and writes captures of Nsight Systems; builds SQLite's C code.
//! - `parquet`: writes tables for DuckDB and similar readers, one part by host and rank for each
//!   process of a job.
//! - `pprof`, `otlp`, `firefox`: export for pprof's readers, OpenTelemetry's collectors and the
//!   Firefox Profiler.
//! - `push`: pushes profiles over HTTP.
//! - `nvml`: lets gates discard runs in which the GPU was throttled.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod analyze;
mod check;
mod counter_track;
mod error;
pub mod formats;
mod page;
pub mod prelude;
pub mod reports;
mod running_numbers;
mod show;
mod speed;

use profiler_core::session::{FromEnv, Guard};

#[doc(no_inline)]
pub use analyze::compare::compare;
pub use analyze::{compare, critical_path, diagnosis, kernels, ranks, roofline, scorecard};
pub use check::{gate, measure};
pub use error::Error;
pub use formats::export::Format;
#[cfg(feature = "nsys")]
pub use formats::nsys;
pub use speed::Speed;

/// Hardware counters of kernels. [`count_kernels`](counters::count_kernels) has an example.
pub mod counters {
    pub use crate::analyze::kernel_counters::{
        CountedKernel, CountedKernels, PipeDisagreement, TensorPipe, TensorPipes, count_kernels,
    };
}

/// [`profiler_core::from_env`] with `json=PATH`: [`json_lines`](prelude::ProfileExt::json_lines).
/// [`FromEnv`] has options.
pub fn from_env() -> Guard {
    FromEnv::default().json(prelude::ProfileExt::json_lines).start()
}
