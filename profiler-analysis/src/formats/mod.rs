//! Exports for other programs, captures of Nsight Systems and traces of `torch.profiler`.
//! [`Profile::export`](crate::prelude::ProfileExt::export) has an example.

#[cfg(any(feature = "kineto", feature = "nsys"))]
pub(crate) mod capture;
pub(crate) mod export;
#[cfg(feature = "parquet")]
pub(crate) mod fleet;
#[cfg(feature = "kineto")]
pub mod kineto;
#[cfg(any(feature = "nsys", feature = "parquet"))]
pub mod nsys;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;
mod places;
#[cfg(feature = "push")]
pub mod push;
pub mod stacks;

use std::time::{Duration, UNIX_EPOCH};

use profiler_base::units::nanoseconds;
use profiler_core::Profile;

pub use export::Export;
#[cfg(feature = "parquet")]
pub use fleet::{FLEET_VIEWS, FleetPart, compact_fleet};
#[cfg(feature = "parquet")]
pub use parquet::ParquetOptions;

/// The start of a profile since the Unix epoch, in nanoseconds; `None` if the recording lacks it.
fn started_at_ns(profile: &Profile) -> Option<u64> {
    profile.started_at()?.duration_since(UNIX_EPOCH).ok().map(nanoseconds)
}

/// [`started_at_ns`], or the second of the recording.
fn epoch_ns(profile: &Profile) -> u64 {
    let second = || profile.recording_info().recorded_at_s.unwrap_or(0);
    started_at_ns(profile).unwrap_or_else(|| nanoseconds(Duration::from_secs(second())))
}
