//! Three kernels whose operations and bytes are known to the last one, each with buffers many times larger than an L2 cache,
//! and two probes for what a device reaches: a copy and a matrix product of cuBLAS.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use cudarc::cublas::CudaBlas;
use cudarc::cublas::result::gemm_ex;
use cudarc::cublas::sys::cublasOperation_t::CUBLAS_OP_N;
use cudarc::cublas::sys::{cublasComputeType_t, cublasGemmAlgo_t, cudaDataType};
use cudarc::cublas::{Gemm, GemmConfig};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, LaunchConfig,
    PushKernelArg,
};
use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};
use nvtx::{Dtype, Pipe, Work};

type Buffer = CudaSlice<f32>;
type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Threads in a block; `bound.cu` is compiled for it.
const BLOCK: u32 = 256;
/// Columns of the product, and rows of a block.
const SIDE: u32 = 64;
/// The length that the product sums over.
const DEPTH: u32 = 64;
/// Rows of the product: a GiB of factors, a GiB of results.
const ROWS: u32 = 1 << 22;
/// Numbers of a buffer: a GiB.
const LENGTH: u32 = 1 << 28;
/// Blocks of the first step of the sum.
const SUM_BLOCKS: u32 = 1024;
/// The matrices of the probe.
const PROBE: u32 = 8192;

/// The kernels, and their buffers on one GPU: 2 GiB and a little.
pub struct Bound {
    stream: Arc<CudaStream>,
    blas: CudaBlas,
    fill: CudaFunction,
    axpy: CudaFunction,
    sum: CudaFunction,
    gemm: CudaFunction,
    x: Buffer,
    y: Buffer,
    small: Buffer,
    sums: Buffer,
}

impl Bound {
    /// Compiles the kernels for GPU number `device` and fills the buffers.
    ///
    /// Call [`unavailable`](crate::mlp::unavailable) first.
    ///
    /// # Errors
    ///
    /// If there is no such GPU, or a CUDA library refuses a call.
    ///
    /// # Panics
    ///
    /// Inside cudarc, if a CUDA library is missing.
    pub fn new(device: usize) -> Result<Bound> {
        let context = CudaContext::new(device)?;
        // SAFETY: all buffers are used and freed on the one stream made below, in its order.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream()?;
        let (major, minor) = context.compute_capability()?;
        let options = vec![
            format!("--gpu-architecture=compute_{major}{minor}"),
            format!("--define-macro=BLOCK={BLOCK}"),
            format!("--define-macro=SIDE={SIDE}"),
            format!("--define-macro=DEPTH={DEPTH}"),
        ];
        let options = CompileOptions { options, ..CompileOptions::default() };
        let module =
            context.load_module(compile_ptx_with_opts(include_str!("bound.cu"), options)?)?;
        let bound = Bound {
            blas: CudaBlas::new(stream.clone())?,
            fill: module.load_function("fill")?,
            axpy: module.load_function("axpy")?,
            sum: module.load_function("sum")?,
            gemm: module.load_function("gemm")?,
            x: stream.alloc_zeros(LENGTH as usize)?,
            y: stream.alloc_zeros(LENGTH as usize)?,
            small: stream.alloc_zeros((SIDE * DEPTH) as usize)?,
            sums: stream.alloc_zeros(SUM_BLOCKS as usize + 1)?,
            stream,
        };
        bound.stream.synchronize()?;
        Ok(bound)
    }

    /// Sets `x` and the second factor to 1 and 0.5, and `y` to 2. In no range.
    ///
    /// # Errors
    ///
    /// If the GPU reports one.
    pub fn reset(&mut self) -> Result<()> {
        for (buffer, value) in [(&mut self.x, 1.0f32), (&mut self.y, 2.0), (&mut self.small, 0.5)] {
            let quarter = u32::try_from(buffer.len() / 4)?;
            let mut launch = self.stream.launch_builder(&self.fill);
            launch.arg(buffer).arg(&value).arg(&quarter);
            // SAFETY: the arguments match the kernel's parameters; it writes four times `quarter` numbers, the length.
            unsafe { launch.launch(blocks(quarter.div_ceil(BLOCK))) }?;
        }
        Ok(self.stream.synchronize()?)
    }

    /// `y = 3 x + y`.
    ///
    /// # Errors
    ///
    /// If the GPU reports one.
    #[nvtx::annotate(work = axpy_work())]
    pub fn axpy(&mut self) -> Result<()> {
        let (a, quarter) = (3.0f32, LENGTH / 4);
        let mut launch = self.stream.launch_builder(&self.axpy);
        launch.arg(&mut self.y).arg(&self.x).arg(&a).arg(&quarter);
        // SAFETY: the arguments match the kernel's parameters; it reads and writes LENGTH numbers, as both buffers have.
        unsafe { launch.launch(blocks(quarter.div_ceil(BLOCK))) }?;
        Ok(())
    }

    /// The sum of `x`, in two steps.
    ///
    /// # Errors
    ///
    /// If the GPU reports one.
    #[nvtx::annotate(work = sum_work())]
    pub fn reduction(&mut self) -> Result<()> {
        let (first, second) = (LENGTH, SUM_BLOCKS);
        let (mut sums, mut whole) = self.sums.split_at_mut(SUM_BLOCKS as usize);
        let mut launch = self.stream.launch_builder(&self.sum);
        launch.arg(&mut sums).arg(&self.x).arg(&first);
        // SAFETY: the arguments match the kernel's parameters; it reads LENGTH numbers and writes one a block.
        unsafe { launch.launch(blocks(SUM_BLOCKS)) }?;
        let mut launch = self.stream.launch_builder(&self.sum);
        let sums = sums.as_view();
        launch.arg(&mut whole).arg(&sums).arg(&second);
        // SAFETY: as above; it reads SUM_BLOCKS numbers and writes the last one of `sums`.
        unsafe { launch.launch(blocks(1)) }?;
        Ok(())
    }

    /// `y [ROWS, SIDE] = x [ROWS, DEPTH] small [DEPTH, SIDE]`.
    ///
    /// # Errors
    ///
    /// If the GPU reports one.
    #[nvtx::annotate(work = gemm_work())]
    pub fn gemm(&mut self) -> Result<()> {
        let mut launch = self.stream.launch_builder(&self.gemm);
        launch.arg(&mut self.y).arg(&self.x).arg(&self.small);
        // SAFETY: the arguments match the kernel's parameters; ROWS / SIDE blocks of SIDE rows read `x` and write `y` below
        // ROWS * 64, which is LENGTH, and read the whole of `small`. The block has the threads that it expects.
        unsafe { launch.launch(blocks(ROWS / SIDE)) }?;
        Ok(())
    }

    /// A probe: copies `x` to `y`.
    ///
    /// # Errors
    ///
    /// If the GPU reports one.
    pub fn copy(&mut self) -> Result<()> {
        self.stream.memcpy_dtod(&self.x, &mut self.y)?;
        self.wait()
    }

    /// The work of [`cublas`](Self::cublas).
    pub const PROBE_WORK: Work =
        Work::gemm(PROBE as u64, PROBE as u64, PROBE as u64, Dtype::F32).with_pipe(Pipe::Vector);

    /// A probe: the product of two large matrices by cuBLAS.
    ///
    /// # Errors
    ///
    /// If cuBLAS or the GPU reports one.
    pub fn cublas(&mut self) -> Result<()> {
        let side = i32::try_from(PROBE)?;
        let config = GemmConfig {
            transa: CUBLAS_OP_N,
            transb: CUBLAS_OP_N,
            m: side,
            n: side,
            k: side,
            alpha: 1.0,
            lda: side,
            ldb: side,
            beta: 0.0,
            ldc: side,
        };
        let (a, b) = self.x.split_at((PROBE * PROBE) as usize);
        // SAFETY: the three matrices are square and full, and each buffer has that many numbers or more.
        unsafe { self.blas.gemm(config, &a, &b, &mut self.y) }?;
        self.wait()
    }

    /// The product of two matrices of bf16 by cuBLAS, which takes the tensor cores.
    ///
    /// # Errors
    ///
    /// If cuBLAS or the GPU reports one.
    pub fn cublas_bf16(&mut self) -> Result<()> {
        let side = i32::try_from(PROBE)?;
        let (alpha, beta) = (1.0f32, 0.0f32);
        let kind = cudaDataType::CUDA_R_16BF;
        let (x, _x) = self.x.device_ptr(&self.stream);
        let (y, _y) = self.y.device_ptr_mut(&self.stream);
        let factor = u64::from(PROBE) * u64::from(PROBE) * 2;
        let [a, b, c] = [x, x + factor, y].map(|at| at as usize as *mut std::ffi::c_void);
        // SAFETY: the three matrices are square and full, of 2 bytes a number, and each buffer has as many bytes or more; the
        // factors are live floats, as the compute type says.
        unsafe {
            gemm_ex(
                *self.blas.handle(),
                CUBLAS_OP_N,
                CUBLAS_OP_N,
                side,
                side,
                side,
                (&raw const alpha).cast(),
                a,
                kind,
                side,
                b,
                kind,
                side,
                (&raw const beta).cast(),
                c,
                kind,
                side,
                cublasComputeType_t::CUBLAS_COMPUTE_32F,
                cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }?;
        drop((_x, _y));
        self.wait()
    }

    /// Waits for all of it.
    ///
    /// # Errors
    ///
    /// If the GPU reports one.
    pub fn wait(&self) -> Result<()> {
        Ok(self.stream.synchronize()?)
    }

    /// The first number of `y`, and the sum that [`reduction`](Self::reduction) found.
    ///
    /// # Errors
    ///
    /// If the GPU reports one.
    pub fn results(&self) -> Result<(f32, f32)> {
        let (mut first, mut sum) = ([f32::NAN], [f32::NAN]);
        self.stream.memcpy_dtoh(&self.y.slice(..1), &mut first)?;
        self.stream.memcpy_dtoh(&self.sums.slice(SUM_BLOCKS as usize..), &mut sum)?;
        self.wait()?;
        Ok((first[0], sum[0]))
    }
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("stream", &self.stream).finish_non_exhaustive()
    }
}

/// What [`Bound::axpy`] does.
pub const fn axpy_work() -> Work {
    Work::elementwise(LENGTH as u64, 2, 1, 2, Dtype::F32)
}

/// What [`Bound::reduction`] does: its threads begin with 0, so that there are as many additions as numbers, and one less than
/// threads in each block of both steps. The sums of the first step stay in the cache.
pub const fn sum_work() -> Work {
    let (length, blocks) = (LENGTH as u64, SUM_BLOCKS as u64);
    let flops = length + blocks * (BLOCK as u64 - 1) + blocks + (BLOCK as u64 - 1);
    Work::reduction(length, Dtype::F32).with_flops(flops)
}

/// What [`Bound::gemm`] does.
pub const fn gemm_work() -> Work {
    let work = Work::gemm(ROWS as u64, SIDE as u64, DEPTH as u64, Dtype::F32);
    work.with_pipe(Pipe::Vector)
}

fn blocks(count: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (count, 1, 1), block_dim: (BLOCK, 1, 1), shared_mem_bytes: 0 }
}

const _: () = assert!(ROWS as u64 * DEPTH as u64 == LENGTH as u64 && SIDE == DEPTH);
const _: () = assert!(2 * PROBE as u64 * PROBE as u64 <= LENGTH as u64);
const _: () = assert!(ROWS.is_multiple_of(SIDE) && BLOCK == (SIDE / 4) * (SIDE / 4));
