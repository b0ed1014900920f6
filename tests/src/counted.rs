//! Work whose operations and bytes are known: what counters say of it can be checked.

#![allow(clippy::panic)] // a test's call that fails fails the test

use std::ffi::{CStr, CString, c_void};

use cudarc::cublas::{result as cublas, sys as blas};
use cudarc::driver::sys::{self, CUdeviceptr, CUfunction, CUresult};

use crate::cuda::{Gpu, Handle, Stream};

/// Threads of a block, in all of these kernels.
pub const BLOCK: u32 = 256;

/// One element a thread, but for `reduce`, where a thread adds up `each` of them, a grid apart, and each warp's sum is stored
/// by all of its threads, so that none has less to do.
const PTX: &str = r"
.version 7.0
.target sm_70
.address_size 64
.visible .entry axpy(.param .u64 x, .param .u64 y) {
    .reg .u32 %i<4>;
    .reg .u64 %d<4>;
    .reg .f32 %f<4>;
    mov.u32 %i0, %ctaid.x;
    mov.u32 %i1, %ntid.x;
    mov.u32 %i2, %tid.x;
    mad.lo.u32 %i3, %i0, %i1, %i2;
    mul.wide.u32 %d0, %i3, 4;
    ld.param.u64 %d1, [x];
    ld.param.u64 %d2, [y];
    add.u64 %d1, %d1, %d0;
    add.u64 %d2, %d2, %d0;
    ld.global.f32 %f0, [%d1];
    ld.global.f32 %f1, [%d2];
    mov.f32 %f2, 0f40400000;
    fma.rn.f32 %f3, %f2, %f0, %f1;
    st.global.f32 [%d2], %f3;
    ret;
}
.visible .entry daxpy(.param .u64 x, .param .u64 y) {
    .reg .u32 %i<4>;
    .reg .u64 %d<4>;
    .reg .f64 %f<4>;
    mov.u32 %i0, %ctaid.x;
    mov.u32 %i1, %ntid.x;
    mov.u32 %i2, %tid.x;
    mad.lo.u32 %i3, %i0, %i1, %i2;
    mul.wide.u32 %d0, %i3, 8;
    ld.param.u64 %d1, [x];
    ld.param.u64 %d2, [y];
    add.u64 %d1, %d1, %d0;
    add.u64 %d2, %d2, %d0;
    ld.global.f64 %f0, [%d1];
    ld.global.f64 %f1, [%d2];
    mov.f64 %f2, 0d4008000000000000;
    fma.rn.f64 %f3, %f2, %f0, %f1;
    st.global.f64 [%d2], %f3;
    ret;
}
.visible .entry haxpy2(.param .u64 x, .param .u64 y) {
    .reg .u32 %i<4>;
    .reg .u64 %d<4>;
    .reg .b32 %f<4>;
    mov.u32 %i0, %ctaid.x;
    mov.u32 %i1, %ntid.x;
    mov.u32 %i2, %tid.x;
    mad.lo.u32 %i3, %i0, %i1, %i2;
    mul.wide.u32 %d0, %i3, 4;
    ld.param.u64 %d1, [x];
    ld.param.u64 %d2, [y];
    add.u64 %d1, %d1, %d0;
    add.u64 %d2, %d2, %d0;
    ld.global.b32 %f0, [%d1];
    ld.global.b32 %f1, [%d2];
    mov.b32 %f2, 0x42004200;
    fma.rn.f16x2 %f3, %f2, %f0, %f1;
    st.global.b32 [%d2], %f3;
    ret;
}
.visible .entry copy(.param .u64 x, .param .u64 y) {
    .reg .u32 %i<4>;
    .reg .u64 %d<4>;
    .reg .f32 %f<1>;
    mov.u32 %i0, %ctaid.x;
    mov.u32 %i1, %ntid.x;
    mov.u32 %i2, %tid.x;
    mad.lo.u32 %i3, %i0, %i1, %i2;
    mul.wide.u32 %d0, %i3, 4;
    ld.param.u64 %d1, [x];
    ld.param.u64 %d2, [y];
    add.u64 %d1, %d1, %d0;
    add.u64 %d2, %d2, %d0;
    ld.global.f32 %f0, [%d1];
    st.global.f32 [%d2], %f0;
    ret;
}
.visible .entry gather(.param .u64 x, .param .u64 y, .param .u32 last) {
    .reg .u32 %i<5>;
    .reg .u64 %d<5>;
    .reg .f32 %f<1>;
    mov.u32 %i0, %ctaid.x;
    mov.u32 %i1, %ntid.x;
    mov.u32 %i2, %tid.x;
    mad.lo.u32 %i3, %i0, %i1, %i2;
    mul.wide.u32 %d0, %i3, 4;
    ld.param.u32 %i4, [last];
    mul.lo.u32 %i3, %i3, 0x9e3779b1;
    and.b32 %i3, %i3, %i4;
    mul.wide.u32 %d3, %i3, 4;
    ld.param.u64 %d1, [x];
    ld.param.u64 %d2, [y];
    add.u64 %d1, %d1, %d3;
    add.u64 %d2, %d2, %d0;
    ld.global.f32 %f0, [%d1];
    st.global.f32 [%d2], %f0;
    ret;
}
.visible .entry reduce(.param .u64 x, .param .u64 sums, .param .u32 each) {
    .reg .u32 %i<6>;
    .reg .u64 %d<4>;
    .reg .f32 %f<3>;
    .reg .pred %c;
    mov.u32 %i0, %ctaid.x;
    mov.u32 %i1, %ntid.x;
    mov.u32 %i2, %tid.x;
    mad.lo.u32 %i3, %i0, %i1, %i2;
    mov.u32 %i4, %nctaid.x;
    mul.lo.u32 %i4, %i4, %i1;
    mul.wide.u32 %d0, %i3, 4;
    mul.wide.u32 %d3, %i4, 4;
    ld.param.u64 %d1, [x];
    ld.param.u64 %d2, [sums];
    add.u64 %d1, %d1, %d0;
    ld.param.u32 %i5, [each];
    mov.f32 %f0, 0f00000000;
more:
    ld.global.f32 %f1, [%d1];
    add.rn.f32 %f0, %f0, %f1;
    add.u64 %d1, %d1, %d3;
    sub.u32 %i5, %i5, 1;
    setp.ne.u32 %c, %i5, 0;
    @%c bra more;
    shfl.sync.bfly.b32 %f1, %f0, 16, 31, 0xffffffff;
    add.rn.f32 %f0, %f0, %f1;
    shfl.sync.bfly.b32 %f1, %f0, 8, 31, 0xffffffff;
    add.rn.f32 %f0, %f0, %f1;
    shfl.sync.bfly.b32 %f1, %f0, 4, 31, 0xffffffff;
    add.rn.f32 %f0, %f0, %f1;
    shfl.sync.bfly.b32 %f1, %f0, 2, 31, 0xffffffff;
    add.rn.f32 %f0, %f0, %f1;
    shfl.sync.bfly.b32 %f1, %f0, 1, 31, 0xffffffff;
    add.rn.f32 %f0, %f0, %f1;
    add.u64 %d2, %d2, %d0;
    st.global.f32 [%d2], %f0;
    ret;
}
";

#[track_caller]
fn check(result: CUresult) {
    assert!(result == CUresult::CUDA_SUCCESS, "CUDA call failed: {result:?}");
}

/// The kernels, in the context that is current.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    axpy: Handle<CUfunction>,
    daxpy: Handle<CUfunction>,
    haxpy2: Handle<CUfunction>,
    copy: Handle<CUfunction>,
    gather: Handle<CUfunction>,
    reduce: Handle<CUfunction>,
}

impl Counted {
    /// Loads them.
    ///
    /// # Panics
    /// Where CUDA refuses.
    #[must_use]
    pub fn load() -> Self {
        let Ok(image) = CString::new(PTX) else { panic!("the text has a NUL") };
        let mut module = std::ptr::null_mut();
        // SAFETY: `module` is a live place, and the image ends in a NUL.
        check(unsafe { sys::cuModuleLoadData(&mut module, image.as_ptr().cast()) });
        let function = |name: &CStr| {
            let mut function = std::ptr::null_mut();
            // SAFETY: `function` is a live place, the module was just loaded, and the name ends in a NUL.
            check(unsafe { sys::cuModuleGetFunction(&mut function, module, name.as_ptr()) });
            Handle(function)
        };
        Self {
            axpy: function(c"axpy"),
            daxpy: function(c"daxpy"),
            haxpy2: function(c"haxpy2"),
            copy: function(c"copy"),
            gather: function(c"gather"),
            reduce: function(c"reduce"),
        }
    }

    /// `y += 3 x` for so many blocks of floats: a fused multiply-add each.
    pub fn axpy(&self, stream: Stream, blocks: u32, x: CUdeviceptr, y: CUdeviceptr) {
        launch(self.axpy, stream, blocks, &mut [x, y]);
    }

    /// The same in double precision.
    pub fn daxpy(&self, stream: Stream, blocks: u32, x: CUdeviceptr, y: CUdeviceptr) {
        launch(self.daxpy, stream, blocks, &mut [x, y]);
    }

    /// The same for pairs of half-precision numbers, a packed instruction each.
    pub fn haxpy2(&self, stream: Stream, blocks: u32, x: CUdeviceptr, y: CUdeviceptr) {
        launch(self.haxpy2, stream, blocks, &mut [x, y]);
    }

    /// Copies so many blocks of floats.
    pub fn copy(&self, stream: Stream, blocks: u32, x: CUdeviceptr, y: CUdeviceptr) {
        launch(self.copy, stream, blocks, &mut [x, y]);
    }

    /// Gathers so many blocks of floats, a power of two, each from a place far from that of its neighbour.
    pub fn gather(&self, stream: Stream, blocks: u32, x: CUdeviceptr, y: CUdeviceptr) {
        let last = u64::from(blocks) * u64::from(BLOCK) - 1;
        launch(self.gather, stream, blocks, &mut [x, y, last]);
    }

    /// Adds up `blocks * BLOCK * each` floats; every thread adds `each` times, and 5 times more within its warp.
    pub fn reduce(&self, stream: Stream, blocks: u32, each: u32, x: CUdeviceptr, sum: CUdeviceptr) {
        launch(self.reduce, stream, blocks, &mut [x, sum, u64::from(each)]);
    }
}

fn launch(kernel: Handle<CUfunction>, stream: Stream, blocks: u32, arguments: &mut [u64]) {
    let mut places: Vec<*mut c_void> =
        arguments.iter_mut().map(|argument| std::ptr::from_mut(argument).cast()).collect();
    let (places, none) = (places.as_mut_ptr(), std::ptr::null_mut());
    // SAFETY: the kernel is live and has as many parameters of at most 8 bytes, each with a live place that is read in
    // the call; its memory is the caller's.
    let result = unsafe {
        sys::cuLaunchKernel(kernel.0, blocks, 1, 1, BLOCK, 1, 1, 0, stream.0, places, none)
    };
    check(result);
}

/// cuBLAS in the context that is current; `None` where the library is not found.
#[derive(Debug)]
pub struct Gemm {
    handle: blas::cublasHandle_t,
    size: usize,
    operands: [CUdeviceptr; 3],
}

impl Gemm {
    /// Square bf16 matrices of this size, which cost `2 size^3` operations to multiply. Multiplies them once.
    ///
    /// # Panics
    /// Where cuBLAS refuses.
    #[must_use]
    pub fn bf16(gpu: &Gpu, size: usize) -> Option<Self> {
        // SAFETY: opens and closes the library, whose initialisers are meant to run in any program.
        if !unsafe { blas::is_culib_present() } {
            return None;
        }
        let Ok(handle) = cublas::create_handle() else { panic!("cuBLAS does not start") };
        let operands = [0; 3].map(|_| {
            let memory = gpu.alloc(2 * size * size);
            gpu.fill(memory, 0, 2 * size * size);
            memory
        });
        let gemm = Self { handle, size, operands };
        gemm.run();
        gpu.synchronize_context();
        Some(gemm)
    }

    /// Multiplies them, on the default stream.
    pub fn run(&self) {
        let (alpha, beta) = (1f32, 0f32);
        let size = self.size as i32;
        let [a, b, c] = self.operands.map(|memory| memory as usize as *mut c_void);
        let kind = blas::cudaDataType::CUDA_R_16BF;
        let plain = blas::cublasOperation_t::CUBLAS_OP_N;
        // SAFETY: the handle is live, the factors are live floats as the compute type says, and each operand has as many
        // elements as the sizes say.
        let result = unsafe {
            cublas::gemm_ex(
                self.handle,
                plain,
                plain,
                size,
                size,
                size,
                (&raw const alpha).cast(),
                a,
                kind,
                size,
                b,
                kind,
                size,
                (&raw const beta).cast(),
                c,
                kind,
                size,
                blas::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                blas::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        assert!(result.is_ok(), "cuBLAS refused: {result:?}");
    }
}
