//! Performance in tests: budgets, GPU tests, reports for CI.

pub(crate) mod budget;
#[cfg(feature = "test-reports")]
pub mod ci;
pub(crate) mod clocks;
pub(crate) mod gpu_lock;
pub(crate) mod gpu_test;
#[cfg(feature = "criterion")]
pub(crate) mod measurement;
