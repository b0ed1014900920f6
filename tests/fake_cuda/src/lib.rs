//! A fake of CUDA for machines without a GPU: one shared object that is `libcuda.so.1`, `libcupti.so.13` and
//! `libcudart.so.13`, with [`fake_cupti`] behind it.
//!
//! Programs run against it as they are: device memory is host memory, copies copy, kernels do nothing and take their time on
//! the fake's clock. A profiler in the same process finds a CUPTI that behaves like 13.0.1. `cuInit` calls the injection
//! library that `CUDA_INJECTION64_PATH` names, as the driver does.
//!
//! | variable | effect |
//! | --- | --- |
//! | `FAKE_CUDA_DEVICES` | the number of devices; 1 by default |
//! | `FAKE_CUDA_KERNEL_NS` | how long a kernel runs; 2000 ns by default |
//! | `FAKE_CUDA_NAMING_NS` | how long the driver takes to name a device; 0 by default |
//!
//! A test installs it into a folder and starts a program with that folder in `LD_LIBRARY_PATH`:
//!
//! ```
//! let folder = std::env::temp_dir().join(format!("fake-cuda-{}", std::process::id()));
//! std::fs::create_dir_all(&folder)?;
//! fake_cuda::install(&folder)?;
//! assert!(folder.join("libcuda.so.1").exists());
//! std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod call;
mod effect;
mod graphs;
mod install;
mod machine;
mod streams;
mod sys;
pub mod workload;

pub use install::{MATH_NAMES, NAMES, install, install_math, shared_object};
