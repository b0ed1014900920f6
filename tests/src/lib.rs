//! Shared code of the GPU tests: a harness that ignores them on machines without a GPU, and the
//! CUDA calls they make.

pub mod blas;
pub mod counted;
pub mod cuda;
pub mod harness;
pub mod kinds;
pub mod ncu;
pub mod runtime;
