//! Shared by all stages: errors, text and units, statistics, files, threads.

pub(crate) mod accessors;
pub(crate) mod background;
pub(crate) mod distribution;
pub(crate) mod error;
#[cfg_attr(
    not(feature = "analysis"),
    expect(dead_code, reason = "paired times are compared with the analysis alone")
)]
pub(crate) mod hodges_lehmann;
pub(crate) mod json;
pub mod kept;
pub(crate) mod kernel_names;
pub(crate) mod name_pattern;
pub(crate) mod named_variants;
pub(crate) mod order;
#[cfg(feature = "analysis")]
pub(crate) mod page;
pub(crate) mod ratio_estimator;
pub mod replace;
pub(crate) mod statistics;
pub mod table;
pub mod text;
pub(crate) mod totals;
pub(crate) mod units;
