//! Matrix products by cuBLAS in every number type, each call checked.

use std::ffi::c_void;

use cudarc::cublas::sys::{
    self, cublasComputeType_t as Compute, cublasGemmAlgo_t, cublasHandle_t, cublasOperation_t,
    cublasStatus_t, cudaDataType_t as Type,
};
use profiler_base::named_variants;

use crate::cuda::{Gpu, Handle};

/// Why cuBLAS cannot be used here, or `None` if it can.
#[must_use]
pub fn unavailable() -> Option<String> {
    // SAFETY: opens and closes the library, whose initialisers are meant to run in any program.
    let is_there = unsafe { sys::is_culib_present() };
    (!is_there).then(|| "cuBLAS (libcublas) was not found".to_owned())
}

named_variants! {
    /// The number type of the matrices and of the sums.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Numbers with name in ALL {
        /// f16, summed in f32.
        F16 = "f16",
        /// bf16, summed in f32.
        Bf16 = "bf16",
        /// f32 as tf32.
        Tf32 = "tf32",
        /// f32, in cuBLAS's pedantic mode.
        F32 = "f32",
        /// f64.
        F64 = "f64",
        /// 8 bits, summed in 32.
        I8 = "i8",
    }
}

impl Numbers {
    /// Upper bound on multiply-adds a cycle and multiprocessor without tensor cores, since Volta.
    pub const fn plain_per_cycle(self) -> u32 {
        match self {
            Self::F64 => 64,
            Self::Tf32 | Self::F32 => 128,
            Self::F16 | Self::Bf16 | Self::I8 => 256,
        }
    }

    fn types(self) -> (Type, Type, Compute) {
        match self {
            Self::F16 => (Type::CUDA_R_16F, Type::CUDA_R_16F, Compute::CUBLAS_COMPUTE_32F),
            Self::Bf16 => (Type::CUDA_R_16BF, Type::CUDA_R_16BF, Compute::CUBLAS_COMPUTE_32F),
            Self::Tf32 => {
                (Type::CUDA_R_32F, Type::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F_FAST_TF32)
            }
            Self::F32 => (Type::CUDA_R_32F, Type::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F_PEDANTIC),
            Self::F64 => (Type::CUDA_R_64F, Type::CUDA_R_64F, Compute::CUBLAS_COMPUTE_64F),
            Self::I8 => (Type::CUDA_R_8I, Type::CUDA_R_32I, Compute::CUBLAS_COMPUTE_32I),
        }
    }
}

/// cuBLAS on the default stream.
#[derive(Debug)]
pub struct Blas {
    handle: Handle<cublasHandle_t>,
    memory: [u64; 3],
    most: usize,
}

impl Blas {
    /// Allocates matrices of up to `most` numbers in the current context.
    ///
    /// # Panics
    /// If cuBLAS fails.
    #[must_use]
    pub fn new(gpu: &Gpu, most: usize) -> Self {
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is a live variable.
        let status = unsafe { sys::cublasCreate_v2(&mut handle) };
        assert_eq!(status, cublasStatus_t::CUBLAS_STATUS_SUCCESS);
        let memory = [0, 1, 2].map(|_| {
            let memory = gpu.alloc(8 * most);
            gpu.fill(memory, 0, 8 * most);
            memory
        });
        Self { handle: Handle(handle), memory, most }
    }

    /// Computes C = A^T B for m x k and k x n numbers; `false` if cuBLAS does not support the type.
    ///
    /// # Panics
    /// If the matrices are larger than `most`, or cuBLAS fails.
    pub fn multiply(&self, numbers: Numbers, [m, n, k]: [u32; 3]) -> bool {
        let [m, n, k] = [m, n, k].map(|size| size as usize);
        assert!(m * k <= self.most && n * k <= self.most && m * n <= self.most);
        let [m, n, k] = [m, n, k].map(|size| i32::try_from(size).unwrap_or(i32::MAX));
        let (from, to, compute) = numbers.types();
        // One and zero in the type of the sums: 32-bit or 64-bit floats, or 32-bit integers.
        let (mut one, zero) = ([0_u8; 8], [0_u8; 8]);
        match numbers {
            Numbers::F64 => one = 1.0_f64.to_ne_bytes(),
            Numbers::I8 => one[..4].copy_from_slice(&1_i32.to_ne_bytes()),
            _ => one[..4].copy_from_slice(&1.0_f32.to_ne_bytes()),
        }
        let [a, b, c] = self.memory;
        let pointer = |memory: u64| memory as usize as *mut c_void;
        // SAFETY: a live handle, scalars that live until it returns, and device memory of at least
        // the matrices' sizes.
        let status = unsafe {
            sys::cublasGemmEx(
                self.handle.0,
                cublasOperation_t::CUBLAS_OP_T,
                cublasOperation_t::CUBLAS_OP_N,
                m,
                n,
                k,
                one.as_ptr().cast(),
                pointer(a),
                from,
                k,
                pointer(b),
                from,
                k,
                zero.as_ptr().cast(),
                pointer(c),
                to,
                m,
                compute,
                cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        if status == cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED {
            return false;
        }
        assert_eq!(status, cublasStatus_t::CUBLAS_STATUS_SUCCESS, "{numbers:?} {m} {n} {k}");
        true
    }
}
