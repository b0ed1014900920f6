//! Exports for other programs, and captures of Nsight Systems.
//! [`Profile::export`](crate::prelude::ProfileExt::export) has an example.

pub(crate) mod export;
#[cfg(feature = "parquet")]
pub(crate) mod fleet;
#[cfg(any(feature = "nsys", feature = "parquet"))]
pub mod nsys;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;
mod places;
#[cfg(feature = "push")]
pub mod push;
pub mod stacks;

pub use export::Export;
#[cfg(feature = "parquet")]
pub use fleet::{FLEET_VIEWS, FleetPart, compact_fleet};
#[cfg(feature = "parquet")]
pub use parquet::ParquetOptions;
