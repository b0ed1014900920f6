//! Sessions of the one collection that a process has, and the samplers beside it.

pub(crate) mod collection;
pub(crate) mod count_ranges;
pub(crate) mod file_sink;
pub(crate) mod flush_pace;
pub(crate) mod nvml;
pub(crate) mod request;
pub(crate) mod sampling;
pub(crate) mod session;
mod view;
