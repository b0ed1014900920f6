//! What the example programs share: a small network that trains on the GPU, and kernels whose work can be counted.
//!
//! It is a library so that benches and tests can train the same network as the examples.

pub mod args;
pub mod bound;
pub mod mlp;

mod data;
mod kernels;
mod reference;
