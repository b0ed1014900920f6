//! Shared code of the example programs: a small network that trains on the GPU, and kernels with
//! countable work. Also programs before and after a change with a known gain.
//!
//! It is a library so that benches and tests can train the same network.

pub mod args;
pub mod bound;
pub mod case_studies;
pub mod diseases;
pub mod mlp;
pub mod overlaps;
pub mod samples;

mod data;
mod gpu;
mod kernels;
mod reference;
