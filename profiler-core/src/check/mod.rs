//! Performance in tests: budgets, baselines, measurements.

pub mod budget;
pub(crate) mod clocks;
#[cfg(feature = "analysis")]
pub mod gate;
pub(crate) mod gpu_lock;
pub(crate) mod gpu_test;
pub mod measure;
#[cfg(feature = "criterion")]
pub(crate) mod measurement;
