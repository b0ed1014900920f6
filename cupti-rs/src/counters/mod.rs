//! Hardware counters: which metrics a chip has, how many passes they take, and what they come to over ranges and time.
//!
//! A [`Host`] lists the metrics of a chip and plans sets of them, without a GPU. A [`RangeProfiler`] counts them on one,
//! over ranges of the program's own or kernel by kernel; a [`PmSampler`] does at intervals. [`Set`] has sets with a fixed meaning, and [`nvprof`] says what
//! became of nvprof's metrics.
//!
//! Counting needs CUPTI 12.6 or later, a GPU of Turing or later, and often an administrator's permission
//! ([`Support::counters`](crate::Support::counters)): the errors say which, and what to do.

mod host;
mod measured;
pub mod nvprof;
mod plan;
mod ranges;
mod sampling;
mod sets;

pub use host::{Host, HostLibrary, Method, Metric, MetricKind};
pub use measured::{Measured, RangeValues};
pub use plan::Plan;
pub use ranges::{Builder, OpenRange, RangeProfiler, Ranges};
pub use sampling::{PmSampler, Sample, SamplerBuilder, Samples};
pub use sets::{Flops, Set};
