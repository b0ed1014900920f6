//! Tests of sessions, recordings and queries. They need no feature.
#![allow(clippy::unwrap_used, clippy::panic)] // the helpers are tests too

#[path = "../support/effort.rs"]
mod effort;
#[cfg(feature = "tracing")]
#[path = "../support/events.rs"]
mod events;
#[path = "../support/folder.rs"]
mod folder;
#[path = "../support/frames.rs"]
mod frames;
#[path = "../support/processes.rs"]
mod processes;
#[path = "../support/mod.rs"]
mod support;

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
mod lane;
mod live;
#[cfg(feature = "criterion")]
mod measurement;
mod merged;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod profiler_layer;
mod query;
mod recording;
mod recording_file;
mod recording_format;
mod requests;
mod schedule;
mod server;
mod session;
mod sessions;
mod summary_rows;
