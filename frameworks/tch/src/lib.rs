//! The GPU profiler for [tch]: the GPU time of modules, the backward pass and the optimizer.
//!
//! PyTorch launches the forward pass and the optimizer on the calling thread, so their kernels are in the ranges of that thread.
//! [`InRange::in_range`] gives a module, a sequence of modules or an optimizer a range:
//!
//! ```no_run
//! use gpu_profiler_tch::InRange;
//! use tch::nn::{self, Module, OptimizerConfig};
//! use tch::{Device, Kind, Reduction, Tensor};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let profiler = gpu_profiler_tch::start()?;
//! let variables = nn::VarStore::new(Device::Cuda(0));
//! let root = variables.root();
//! let model = nn::seq()
//!     .add(nn::linear(&root / "fc1", 784, 128, Default::default()).in_range("fc1"))
//!     .add_fn(|x| x.relu())
//!     .add(nn::linear(&root / "fc2", 128, 10, Default::default()).in_range("fc2"))
//!     .in_range("forward");
//! let mut optimizer = nn::Adam::default().build(&variables, 1e-3)?.in_range("optimizer");
//! for _ in 0..10 {
//!     let images = Tensor::randn([64, 784], (Kind::Float, Device::Cuda(0)));
//!     let loss = model.forward(&images).square().mean(Kind::Float);
//!     optimizer.backward_step(&loss); // the ranges `backward` and `optimizer`
//! }
//! println!("{}", profiler.finish()?); // forward / fc1: kernels, GPU time, copies
//! # Ok(())
//! # }
//! ```
//!
//! # The backward pass
//! PyTorch launches the backward pass of a device on a thread of its own, which knows no range. [`Session::finish`] infers that the
//! work of that thread is the range's in which another one waits: see
//! [`with_inferred_ranges`](profiler_core::Profile::with_inferred_ranges). Inferred work is in columns of its own and in no other
//! sum. If several threads wait in a backward pass at a time, nothing is inferred, and
//! [`undecided_calls`](profiler_core::profile::Facts::undecided_calls) counts the calls. Modules have no ranges in the backward pass: nothing
//! tells which of them a kernel is of.
//!
//! # Streams and devices
//! tch has no type for streams: all work of a thread goes to the device's default stream. Devices are distinguished by
//! [`Query::device`](profiler_core::query::Query::device).
//!
//! # CUDA
//! A program that is linked with PyTorch's CUDA build loads `libtorch_cuda.so` only if the linker is made to keep it, since no
//! symbol of it is used; without it `tch::Cuda::is_available()` is false. The linker keeps it with
//! `RUSTFLAGS="-C link-arg=-Wl,--no-as-needed -C link-arg=-ltorch_cuda"`, or it is loaded by `LD_PRELOAD`.

mod modules;
mod optimizer;
mod session;

pub use modules::{InRange, Ranged, RangedT, backward, no_grad};
pub use session::{Session, start};
