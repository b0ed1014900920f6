//! Compiling and launching kernels, for the network and for the GPU tests.

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaModule, LaunchConfig};
use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};

/// A result with the error of any library.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The number of threads per block in most kernels.
pub const BLOCK: u32 = 256;

/// Compiles CUDA C++ for the device of a context, with these macros, and loads it.
///
/// # Errors
/// The compiler or the driver refuses it.
pub fn compile(
    context: &Arc<CudaContext>,
    source: &str,
    macros: &[(&str, u32)],
) -> Result<Arc<CudaModule>> {
    let (major, minor) = context.compute_capability()?;
    let macros = macros.iter().map(|(name, value)| format!("--define-macro={name}={value}"));
    let options = macros.chain([format!("--gpu-architecture=compute_{major}{minor}")]).collect();
    let options = CompileOptions { options, ..CompileOptions::default() };
    Ok(context.load_module(compile_ptx_with_opts(source, options)?)?)
}

/// A launch of this many blocks of this many threads.
pub fn grid(blocks: u32, threads: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 }
}

/// A launch of blocks of [`BLOCK`] threads, with at least one thread for each of `len` numbers.
pub fn thread_each(len: u32) -> LaunchConfig {
    grid(len.div_ceil(BLOCK), BLOCK)
}

/// Checks that the buffers of a call have matching sizes.
///
/// # Errors
/// They do not.
pub fn check(fits: bool, call: &str) -> Result<()> {
    if fits { Ok(()) } else { Err(format!("{call}: the buffers do not fit each other").into()) }
}
