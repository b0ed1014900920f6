//! Sessions of the process's one collection, and their samplers.

pub(crate) mod collection;
pub(crate) mod count_ranges;
#[cfg(feature = "nvml")]
pub(crate) mod device_state;
pub(crate) mod file_sink;
pub(crate) mod flush_pace;
pub(crate) mod nvml;
pub(crate) mod request;
pub(crate) mod sampling;
pub(crate) mod session;
mod view;
