//! Attributes work to ranges: records, calls and ranges are decoded, joined, accounted for and
//! summed.

pub(crate) mod account;
pub(crate) mod attribute;
pub(crate) mod builder;
pub mod busy;
pub(crate) mod collectives;
pub mod communication;
pub(crate) mod correlate;
pub(crate) mod decode;
pub(crate) mod graph_nodes;
pub(crate) mod health;
pub(crate) mod host_clock;
pub(crate) mod hosts;
pub(crate) mod ids;
pub(crate) mod infer;
pub(crate) mod intern;
pub(crate) mod joined;
pub(crate) mod live_ranges;
pub(crate) mod merge;
pub(crate) mod part;
pub mod range_tree;
pub(crate) mod recent_busy;
pub(crate) mod rows;
pub(crate) mod sampled_slices;
pub(crate) mod segments;
pub(crate) mod shared_contexts;
pub(crate) mod side_rows;
pub(crate) mod streaming;
pub(crate) mod sums;
pub(crate) mod tables;
pub(crate) mod totals;
pub(crate) mod window_sums;
