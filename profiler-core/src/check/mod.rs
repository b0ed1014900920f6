//! Performance in tests: budgets, baselines, measurements.

pub mod budget;
#[cfg(feature = "analysis")]
pub mod ci;
#[cfg(feature = "analysis")]
pub(crate) mod clocks;
#[cfg(feature = "analysis")]
pub mod gate;
pub(crate) mod gpu_lock;
pub(crate) mod gpu_test;
#[cfg(feature = "analysis")]
pub mod measure;
#[cfg(feature = "criterion")]
pub(crate) mod measurement;
#[cfg(feature = "analysis")]
mod verdict_report;
