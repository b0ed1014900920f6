//! What the example programs share: a small network that trains on the GPU.
//!
//! It is a library so that benches and tests can train the same network as the examples.

pub mod args;
pub mod mlp;

mod data;
mod kernels;
mod reference;
