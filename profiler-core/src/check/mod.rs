//! Performance in tests: budgets, baselines, measurements.

pub(crate) mod budget;
pub(crate) mod environment;
pub(crate) mod gate;
pub(crate) mod gpu_lock;
pub(crate) mod gpu_test;
#[cfg(feature = "criterion")]
pub(crate) mod measurement;
