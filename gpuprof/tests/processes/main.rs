//! `gpuprof run` and the commands for live processes, with real processes.
#![allow(clippy::unwrap_used)] // the helpers are tests too

mod agents;
mod calibrated;
mod cargo;
mod client;
mod embedded;
mod injected;
mod inside;
mod live;
mod mcp;
mod recorded;
mod run;
mod stacks;
mod support;
mod viewed;
