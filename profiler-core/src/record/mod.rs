//! The results of a run: the logs of ranges and calls, the records, and their file.

pub(crate) mod context;
pub(crate) mod context_hooks;
pub(crate) mod host_stacks;
pub(crate) mod id_window;
pub(crate) mod instructions;
pub(crate) mod json;
pub(crate) mod lane;
pub(crate) mod process_range_context;
pub(crate) mod range_tap;
pub(crate) mod recording;
pub mod series;
pub(crate) mod stall;
