//! The GPU profiler for [burn]: the GPU time of modules, the backward pass, the optimizer and the data.
//!
//! Burn's CUDA backend launches on a thread of its own, to which operations travel through queues. [`start`] hands the ranges
//! of the program over to that thread:
//!
//! ```no_run
//! use burn::backend::cuda::CudaDevice;
//!
//! # fn train(device: &CudaDevice) {}
//! # fn main() -> Result<(), gpu_profiler_burn::Error> {
//! let device = CudaDevice::default();
//! let profiler = gpu_profiler_burn::start([device.clone()])?;
//! train(&device);
//! println!("{}", profiler.finish()?); // step / forward / conv1: kernels, GPU time, copies
//! # Ok(())
//! # }
//! ```
//!
//! Ranges are those of `nvtx`, of `tracing` spans, and of [`InRange::in_range`] for modules, optimizers and data loaders. A
//! module in a range is a module with the same record. [`backward`] is a range for the backward pass.
//!
//! # Fusion
//! With burn's feature `fusion`, turn on that of this crate. Operations are then collected on a second thread, and run in plans of
//! several kernels, one of which may have operations of several modules. Nothing of that is changed. Burn does not report which
//! kernel of a plan has which operations: each counts for the innermost range around all operations of its plan, and is
//! [`shared`](profiler_core::Range::shared) with the ranges of the operations. So a module has at least its own kernels, and at most
//! its own and the shared ones. Put a range around each step: where none is around the operations, the first of their ranges counts
//! the kernel. [`Session::launches`] counts the kernels of plans with several ranges.
//!
//! With [`Builder::boundaries`] no kernel crosses a range, and each has its own. That changes the program: it launches more
//! kernels.
//!
//! # Autotune
//! Kernels of burn's autotune are in the range `autotune` within that of the operation that is tuned. A session with
//! [`Builder::compilations`] knows which launches compiled their kernel, and how long that took: [`compilations`].

mod compile;
mod devices;
mod error;
mod forward;
mod lane;
mod launches;
#[cfg(feature = "dataset")]
mod loader;
mod modules;
#[cfg(feature = "fusion")]
mod plans;
mod session;
mod session_count;

pub use compile::{Compilation, compilations};
pub use error::Error;
pub use forward::Forward;
pub use launches::{Launches, layer};
pub use modules::{InRange, Ranged, backward};
pub use session::{Builder, Session, builder, start};
