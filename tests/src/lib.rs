//! What GPU tests share: a harness that counts them as ignored where there is no GPU, and the CUDA calls they make.

pub mod blas;
pub mod counted;
pub mod cuda;
pub mod harness;
pub mod kinds;
pub mod ncu;
pub mod runtime;
