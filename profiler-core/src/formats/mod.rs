//! A profile for other programs, and theirs for ours.

pub(crate) mod export;
#[cfg(any(feature = "nsys", feature = "parquet"))]
pub(crate) mod nsys;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;
