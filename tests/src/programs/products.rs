//! Matrix products by cuBLAS, for the programs.

use std::ffi::c_void;

use cudarc::cublas::result::gemm_ex;
use cudarc::cublas::sys::cublasOperation_t::CUBLAS_OP_N;
use cudarc::cublas::sys::{cublasComputeType_t, cublasGemmAlgo_t, cudaDataType};
use cudarc::cublas::{CudaBlas, GemmConfig};
use gpu_profiler_examples::gpu::Result;

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
