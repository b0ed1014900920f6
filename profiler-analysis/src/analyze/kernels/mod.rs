//! Properties of kernels without counters: class and tensor-core use by name, and the fit of their
//! launch to the device.
//!
//! ```no_run
//! use profiler_analysis::prelude::*;
//! use profiler_core::Profile;
//! use profiler_analysis::kernels::{Classifier, KernelClass};
//!
//! # fn main() -> Result<(), profiler_analysis::Error> {
//! let profile = Profile::load("run.gpuprof")?;
//! println!("{}", profile.kernel_classes()); // gemm 61.3 %, attention 20.1 %, ...
//! println!("{}", profile.query().in_range("backward").by_kernel_class());
//! // Rules of the program.
//! let classifier = Classifier::new().rule("my_fused_mlp*", KernelClass::Gemm);
//! println!("{}", profile.query().by_kernel_class_with(&classifier));
//!
//! // Occupancy, waves and tails: largest estimated saving first, with an Nsight Compute command.
//! println!("{}", profile.launch_shapes());
//! for kernel in profile.query().in_range("forward").launch_shapes().rows() {
//!     println!("{}: {}", kernel.name, kernel.shape.occupancy);
//! }
//!
//! // Which operations use tensor cores, which could, and advice.
//! println!("{}", profile.tensor_cores());
//! # Ok(())
//! # }
//! ```
//!
//! Tensor-core use is judged best if a range declares the sizes of its product:
//!
//! ```
//! # let (m, n, k) = (512_u64, 512_u64, 64_u64);
//! let range = nvtx::event("qkv").field("dtype", "bf16", "").field("m", m, "").field("n", n, "").field("k", k, "");
//! let _range = range.range();
//! ```
//!
//! Classes and tensor-core use are derived from names, by tables that [`Classifier::rules`] and
//! [`TensorCoreUse::because`] show. On an H200, occupancy equals
//! `cuOccupancyMaxActiveBlocksPerMultiprocessor` for 1,000 of 1,000 random shapes. Head-room is the
//! idle part of a shape, not the gain of a kernel: a memory-bound kernel gains less.

mod class;
mod class_patterns;
mod classifier;
mod confidence;
mod data_type;
mod eligibility;
mod gemm_name;
pub(crate) mod launches;
mod limits;
mod ncu;
mod occupancy;
pub(crate) mod shape;
pub(crate) mod shares;
pub(crate) mod stalls;
pub(crate) mod tensor_core;
pub(crate) mod tensor_cores;
mod tensor_table;

pub use class::KernelClass;
pub use classifier::{Classifier, Rule};
pub use confidence::Confidence;
pub(crate) use data_type::{as_text, name_if_known};
pub(crate) use eligibility::DeclaredSizes;
pub use eligibility::{TcRemedy, TcStatus};
pub(crate) use gemm_name::{Architecture, GemmName};
pub use launches::{KernelShape, LaunchShapes};
pub use limits::SmLimits;
pub use occupancy::{BlockNeeds, Limiter, Occupancy};
pub use shape::{LaunchShape, ShapeFinding, ShapeFindingKind};
pub use tensor_core::{TcUse, TensorCoreUse};
pub use tensor_cores::{TcOp, TcSummary, TensorCores};
