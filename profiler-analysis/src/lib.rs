//! Analyses of GPU profiles: the bottleneck of a run, the effect of a change, kernels and their use
//! of the device, and comparisons of runs.
//!
//! ```
//! use std::fs::File;
//!
//! use profiler_analysis::prelude::*;
//! use profiler_analysis::{Format, compare};
//! use profiler_core::Profile;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::temp_dir();
//! # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
//!     let profile = Profile::load(file)?; // recorded, or read by `nsys::read` from a capture
//!     println!("{}", profile.diagnose()); // what limits the run, and what helps
//!     println!("{}", profile.scorecard()); // the run on one page, against targets
//!     println!("{}", profile.launch_shapes()); // kernels that do not fill the device
//!     println!("{}", profile.dependencies().outlook()); // the critical path, what-if
//!     if let Some(peaks) = profile.peaks(None) {
//!         println!("{}", profile.roofline(&peaks)); // of ranges that declare their work
//!     }
//!
//!     let before = Profile::load(file)?;
//!     let comparison = compare(&before, &profile); // of several runs a side, with bounds
//!     println!("{} by a factor of {}", comparison.wall().speed, comparison.wall().ratio);
//!
//!     profile.write_html(File::create(folder.join("run.html"))?)?;
//!     profile.export(Format::Perfetto, File::create(folder.join("run.pftrace"))?)?;
//!     Ok(())
//! }
//! ```
//!
//! The traits of [`prelude`] add the methods to types of `profiler_core`.
//!
//! | question | open |
//! | --- | --- |
//! | what limits a run, and what helps? | [`diagnosis`], [`scorecard`] |
//! | how much faster would a change make it? | [`critical_path`] |
//! | how well do kernels use the device? | [`kernels`], [`explanation`], [`mod@roofline`], [`counters`] |
//! | what changed between two runs; did a test become slower? | [`mod@compare`], [`gate`] |
//! | how long does one piece of work take? | [`mod@measure`] |
//! | which rank is slow? | [`mod@ranks`] |
//! | what do `nsys stats` and `nsys analyze` report? | [`mod@reports`] |
//! | how do other tools read it? | [`Format`], [`formats`] |
//!
//! - Threads: an analysis runs on the calling thread and borrows the profile.
//! - Cost: microseconds for each operation, and no GPU; each method states its own.
//!
//! No feature is on by default. `nsys` reads and writes captures and answers SQL (it builds SQLite's C code),
//! `kineto` reads traces of `torch.profiler`, `parquet` writes tables, and `pprof`, `otlp` and `firefox` are further formats. `push` pushes
//! profiles over HTTP, and `nvml` lets gates discard runs in which the GPU was throttled.

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
pub use analyze::{
    compare, critical_path, diagnosis, explanation, interference, kernels, ranks, roofline,
    scorecard,
};
pub use check::{gate, measure};
pub use error::Error;
pub use formats::export::Format;
#[cfg(feature = "kineto")]
pub use formats::kineto;
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
