//! Shared code of the GPU programs: compiling and launching kernels, and matrix products.

use std::error::Error;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cublas::result::gemm_ex;
use cudarc::cublas::sys::cublasOperation_t::CUBLAS_OP_N;
use cudarc::cublas::sys::{cublasComputeType_t, cublasGemmAlgo_t, cudaDataType};
use cudarc::cublas::{CudaBlas, GemmConfig};
use cudarc::driver::{CudaContext, CudaModule, LaunchConfig};
use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The number of threads per block in most kernels.
pub(crate) const BLOCK: u32 = 256;

/// Compiles CUDA C++ for the device of a context, with these macros, and loads it.
pub(crate) fn compile(
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
pub(crate) fn grid(blocks: u32, threads: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 }
}

/// A launch of blocks of [`BLOCK`] threads, with at least one thread for each of `len` numbers.
pub(crate) fn thread_each(len: u32) -> LaunchConfig {
    grid(len.div_ceil(BLOCK), BLOCK)
}

/// Returns an error if the buffers of a call do not have matching sizes.
pub(crate) fn check(fits: bool, call: &str) -> Result<()> {
    if fits { Ok(()) } else { Err(format!("{call}: the buffers do not fit each other").into()) }
}

/// The product of two full square matrices of f32.
pub(crate) fn square(side: i32) -> GemmConfig<f32> {
    let (transa, transb, alpha, beta) = (CUBLAS_OP_N, CUBLAS_OP_N, 1.0, 0.0);
    let [m, n, k, lda, ldb, ldc] = [side; 6];
    GemmConfig { transa, transb, m, n, k, alpha, lda, ldb, beta, ldc }
}

/// Multiplies two square matrices of this number type, with sums in f32. `matrices` contains the
/// addresses of both factors and of the product.
///
/// # Safety
/// Each address points to `side * side` numbers of the type on the device of `blas`. The product is
/// borrowed mutably.
pub(crate) unsafe fn multiply(
    blas: &CudaBlas,
    side: i32,
    dtype: cudaDataType,
    matrices: [u64; 3],
) -> Result<()> {
    let (one, zero) = (&raw const ONE, &raw const ZERO);
    let [a, b, c] = matrices.map(|address| address as usize as *mut c_void);
    let none = CUBLAS_OP_N;
    let compute = cublasComputeType_t::CUBLAS_COMPUTE_32F;
    let algorithm = cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT;
    let (n, kind) = (side, dtype);
    let (one, zero) = (one.cast(), zero.cast());
    // SAFETY: the matrices are as the caller promises, and the two scalars are statics of the type
    // of the sums.
    let result = unsafe {
        gemm_ex(
            *blas.handle(),
            none,
            none,
            n,
            n,
            n,
            one,
            a,
            kind,
            n,
            b,
            kind,
            n,
            zero,
            c,
            kind,
            n,
            compute,
            algorithm,
        )
    };
    Ok(result?)
}

static ONE: f32 = 1.0;
static ZERO: f32 = 0.0;
