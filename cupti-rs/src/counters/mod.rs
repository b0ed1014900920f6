//! Hardware counters: which metrics a chip has, how they are planned, and what they come to over ranges.
mod host;
mod plan;

pub use host::{Host, HostLibrary, Method, Metric, MetricKind};
pub use plan::Plan;
