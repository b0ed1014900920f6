//! Tests of sessions, recordings and queries. They need no feature.
#![allow(clippy::unwrap_used, clippy::panic)] // the helpers are tests too

mod always_on;
mod collectives;
mod context;
mod counters;
mod described;
mod expect;
mod faults;
mod flight_recorder;
#[cfg(feature = "opentelemetry")]
mod gpu_spans;
mod graphs;
#[cfg(feature = "stacks")]
mod host_samples;
#[cfg(feature = "stacks")]
mod host_stacks;
mod inferred;
mod instructions;
mod lane;
mod live;
#[cfg(feature = "criterion")]
mod measurement;
mod merged;
#[cfg(feature = "metrics")]
mod metrics;
mod part;
#[cfg(feature = "tracing")]
mod profiler_layer;
mod query;
mod recording;
mod recording_file;
mod recording_format;
mod recording_tail;
mod requests;
mod schedule;
mod server;
mod session;
mod sessions;
mod summary_rows;
