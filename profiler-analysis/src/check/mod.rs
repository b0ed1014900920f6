//! Performance in tests: baselines and measurements.

pub mod gate;
pub(crate) mod gpu_test;
pub mod measure;
mod verdict_report;

use profiler_core::Profile;

/// The lowest CUDA ordinal with operations; 0 without any.
pub(crate) fn device_of(profile: &Profile) -> u32 {
    profile.operations().map(|operation| operation.device()).min().unwrap_or(0)
}
