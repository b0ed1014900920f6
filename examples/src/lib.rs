//! Shared code of the example programs: a small network that trains on the GPU.
//!
//! It is a library so that benches and tests can train the same network.

pub mod args;
pub mod gpu;
pub mod mlp;

mod data;
mod kernels;
mod reference;
