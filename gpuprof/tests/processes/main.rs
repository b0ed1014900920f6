//! `gpuprof run` and the commands for live processes, with real processes.
#![allow(clippy::unwrap_used)] // the helpers are tests too

mod live;
mod run;
mod support;
