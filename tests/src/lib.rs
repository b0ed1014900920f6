//! Shared code of the GPU tests: a harness that ignores them without a GPU, and CUDA calls.

pub mod blas;
pub mod counted;
pub mod cuda;
pub mod harness;
pub mod kinds;
pub mod ncu;
pub mod runtime;
