//! What GPU profiles say: what a run is bound by, what a change would bring, how kernels use a device, how two runs differ.

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

use profiler_core::Profiler;
use profiler_core::session::{FromEnv, Guard};

#[doc(inline)]
pub use analyze::compare::compare;
pub use analyze::{compare, critical_path, diagnosis, kernels, ranks, roofline, scorecard};
pub use check::{gate, measure};
pub use error::Error;
pub use formats::export::Format;
#[cfg(feature = "nsys")]
pub use formats::nsys;

/// Hardware counters of kernels. [`count_kernels`](counters::count_kernels) has an example.
pub mod counters {
    pub use crate::analyze::kernel_counters::{
        CountedKernel, CountedKernels, PipeDisagreement, TensorPipe, TensorPipes, count_kernels,
    };
}

/// [`profiler_core::from_env`] with `json=PATH`: [`json_lines`](prelude::ProfileExt::json_lines).
pub fn from_env() -> Guard {
    environment().start()
}

/// [`profiler_core::session::from_env_with`] with `json=PATH`.
pub fn from_env_with(profiler: impl FnOnce() -> Result<Profiler, profiler_core::Error>) -> Guard {
    environment().start_with(profiler)
}

fn environment() -> FromEnv {
    FromEnv::default().json(prelude::ProfileExt::json_lines)
}
