//! Analyses of a profile: kernels, causes, bounds, comparisons.

pub mod compare;
pub mod critical_path;
pub mod diagnosis;
pub mod explanation;
pub mod interference;
pub(crate) mod kernel_counters;
pub mod kernels;
pub(crate) mod matches;
pub(crate) mod phases;
pub mod ranks;
pub mod roofline;
pub mod scorecard;
