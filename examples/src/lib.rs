//! What the example programs share: a small network that trains on the GPU, kernels whose work can be counted, and programs
//! that are slow for a known reason or before a change that is known to help.
//!
//! It is a library so that benches and tests can train the same network as the examples.

pub mod args;
pub mod bound;
pub mod case_studies;
pub mod diseases;
pub mod mlp;

mod data;
mod kernels;
mod reference;
