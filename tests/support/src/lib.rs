//! Test helpers used by several packages: programs with their expected results, recordings, folders.
//!
//! Unit tests of a library cannot use it: the library that this depends on is another instance.
#![allow(missing_docs, missing_debug_implementations, reason = "helpers of tests")]
#![allow(clippy::missing_errors_doc, clippy::new_without_default, reason = "helpers of tests")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

pub mod backwards;
pub mod ci_reports;
pub mod diseases;
pub mod effort;
#[cfg(feature = "tracing")]
pub mod events;
pub mod everything;
pub mod folder;
pub mod frames;
pub mod graphs;
pub mod own_process;
pub mod processes;
pub mod program;
pub mod relapses;
pub mod sampled;
#[cfg(feature = "terminal")]
pub mod screen;
pub mod session;
pub mod worker;
