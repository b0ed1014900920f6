//! Hardware counters: which metrics a chip has, how many passes they take, and what they come to over ranges and time.
//!
//! A [`Host`] lists the metrics of a chip and plans sets of them, without a GPU. A [`RangeProfiler`] counts them on one,
//! over ranges of the program's own or kernel by kernel; a [`PmSampler`] does at intervals. [`Set`] has sets with a fixed meaning, and [`nvprof`] says what
//! became of nvprof's metrics.
//!
//! Counting needs CUPTI 12.6 or later, a GPU of Turing or later, and often an administrator's permission
//! ([`Support::counters`](crate::Support::counters)): the errors say which, and what to do.
//! [`Support::counter_ways`](crate::Support::counter_ways) says what is to be had before anything is tried.
//!
//! Of the refusals an H200 with CUPTI 13.0 gave these: HARDWARE_BUSY (26) beside another user of the counters, NOT_SUPPORTED
//! (27) for links together with the rest, OUT_OF_MEMORY (8) for samples that came too fast. What is said of missing
//! permission (35), virtual GPUs (40), partitioned ones (MIG, 43), MPS, confidential mode (41) and the rest is CUPTI's
//! documentation, and was met on the stand-in alone.

mod data;
mod host;
#[cfg(feature = "serde")]
mod machine;
mod measured;
pub mod nvprof;
mod plan;
mod ranges;
mod sampling;
mod sets;
pub mod utilization;

pub use data::CounterData;
pub use host::{Host, HostLibrary, Method, Metric, MetricKind};
pub use measured::{Measured, RangeValues};
pub use plan::Plan;
pub use ranges::{Builder, OpenRange, RangeProfiler, Ranges};
pub use sampling::{PmSampler, Sample, SamplerBuilder, Samples};
pub use sets::{Flops, MemoryLevel, Set, tensor_instructions, tensor_pipe_percent, time_ns};
