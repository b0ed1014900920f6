//! Code shared by the crates of gpuprof: statistics, tables, text, files and threads.
//!
//! It has no stable interface: each release of profiler-core and gpuprof uses the version it was
//! built with.

#[doc(hidden)]
pub use serde_core;

mod accessors;
pub mod aggregate;
pub mod background;
pub mod collectives;
pub mod display;
pub mod distinct;
pub mod distribution;
pub mod hodges_lehmann;
pub mod kept;
pub mod kernel_names;
pub mod name_pattern;
mod named_variants;
pub mod order;
pub mod ratio_estimator;
pub mod replace;
pub mod split_mix;
pub mod statistics;
pub mod table;
pub mod text;
pub mod units;
