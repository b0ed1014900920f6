//! Hardware counters: the metrics of a chip, their passes, and their values over ranges and time.
//!
//! A [`Host`] lists the metrics of a chip and plans sets of them, without a GPU. A
//! [`RangeProfiler`] counts them on one, over the program's own ranges or kernel by kernel; a
//! [`PmSampler`] samples them at intervals. [`Set`] has sets with a fixed meaning, and [`nvprof`]
//! maps nvprof's metrics to today's.
//!
//! Counting needs CUPTI 12.6 or later, a GPU of Turing or later, and often an administrator's
//! permission ([`Support::counters`](crate::Support::counters)). Errors name the missing
//! requirement and its remedy. [`Support::counter_ways`](crate::Support::counter_ways) reports the
//! available methods without an attempt.
//!
//! An H200 with CUPTI 13.0 returned these refusals: HARDWARE_BUSY (26) beside another user of the
//! counters, NOT_SUPPORTED (27) for links together with other metrics, OUT_OF_MEMORY (8) for
//! samples that arrived too fast. Texts about missing permission (35), virtual GPUs (40),
//! partitioned ones (MIG, 43), MPS, confidential mode (41) and others follow CUPTI's documentation.
//! They were tested only with the fake.

mod data;
#[cfg(feature = "serde")]
mod finite;
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
