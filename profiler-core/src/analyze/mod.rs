//! What a profile means: kernels, causes, bounds, comparisons.

pub(crate) mod compare;
pub mod diagnosis;
pub(crate) mod kernel_counters;
pub mod kernels;
pub(crate) mod roofline;
pub mod scorecard;
