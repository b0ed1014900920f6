//! What a program says to a session.

pub(crate) mod profiler;
pub(crate) mod schedule;
#[cfg(feature = "tracing")]
pub(crate) mod tracing_layer;
