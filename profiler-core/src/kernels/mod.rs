//! What kernels are, without counters: what they are for, by their names; whether they use tensor cores; and how well
//! their launch fits the device.
//!
//! ```no_run
//! use profiler_core::Profile;
//! use profiler_core::kernels::{Classifier, KernelClass};
//!
//! # fn main() -> Result<(), profiler_core::Error> {
//! let profile = Profile::load("run.gpuprof")?;
//! println!("{}", profile.kernel_classes()); // gemm 61.3 %, attention 20.1 %, ...
//! println!("{}", profile.query().in_range("backward").by_kernel_class());
//! // Names of one's own.
//! let classifier = Classifier::new().rule("my_fused_mlp*", KernelClass::Gemm);
//! println!("{}", profile.query().by_kernel_class_with(&classifier));
//! # Ok(())
//! # }
//! ```

mod class;
mod classifier;
mod limits;
mod occupancy;
mod shares;
mod table;

pub use class::KernelClass;
pub use classifier::{Classifier, Rule};
pub use limits::SmLimits;
pub use occupancy::{BlockNeeds, Limiter, Occupancy};
pub use shares::RangeClass;
