//! Three kernels whose operations and bytes are known exactly, with buffers many times larger than
//! an L2 cache. Two probes of a device: a copy and a matrix product by cuBLAS.

use std::fmt;
use std::sync::Arc;

use cudarc::cublas::sys::cudaDataType;
use cudarc::cublas::{CudaBlas, Gemm};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, PushKernelArg,
};
use gpu_profiler_examples::gpu::{BLOCK, Result, compile, grid, thread_each};
use nvtx::{Dtype, Pipe, Work};

use super::products::{multiply, square};

type Buffer = CudaSlice<f32>;

/// Columns of the product, and rows of a block.
const SIDE: u32 = 64;
/// The summation length of the product.
const DEPTH: u32 = 64;
/// Rows of the product: 1 GiB of factors and 1 GiB of results.
const ROWS: u32 = 1 << 22;
/// The length of a buffer in numbers: 1 GiB.
const LENGTH: u32 = 1 << 28;
/// Blocks of the first stage of the sum.
const SUM_BLOCKS: u32 = 1024;
/// Rows and columns of the probe's matrices.
const PROBE: u32 = 8192;

/// The kernels and their buffers on one GPU, slightly more than 2 GiB.
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
    /// Call [`unavailable`](gpu_profiler_examples::mlp::unavailable) first.
    ///
    /// # Errors
    /// There is no such GPU, or a CUDA library refuses a call.
    ///
    /// # Panics
    /// Inside cudarc, if a CUDA library is missing.
    pub fn new(device: usize) -> Result<Bound> {
        let context = CudaContext::new(device)?;
        // SAFETY: all buffers are used and freed on the one stream made below, in its order.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream()?;
        let macros = [("BLOCK", BLOCK), ("SIDE", SIDE), ("DEPTH", DEPTH)];
        let module = compile(&context, include_str!("bound.cu"), &macros)?;
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

    /// Sets `x` to 1, the second factor to 0.5 and `y` to 2, outside any range.
    ///
    /// # Errors
    /// The GPU reports an error.
    pub fn reset(&mut self) -> Result<()> {
        for (buffer, value) in [(&mut self.x, 1.0f32), (&mut self.y, 2.0), (&mut self.small, 0.5)] {
            let quarter = u32::try_from(buffer.len() / 4)?;
            let mut launch = self.stream.launch_builder(&self.fill);
            launch.arg(buffer).arg(&value).arg(&quarter);
            // SAFETY: the arguments match the kernel's parameters; it writes four times `quarter`
            // numbers, the length.
            unsafe { launch.launch(thread_each(quarter)) }?;
        }
        Ok(self.stream.synchronize()?)
    }

    /// `y = 3 x + y`.
    ///
    /// # Errors
    /// The GPU reports an error.
    #[nvtx::annotate(work = axpy_work())]
    pub fn axpy(&mut self) -> Result<()> {
        let (a, quarter) = (3.0f32, LENGTH / 4);
        let mut launch = self.stream.launch_builder(&self.axpy);
        launch.arg(&mut self.y).arg(&self.x).arg(&a).arg(&quarter);
        // SAFETY: the arguments match the kernel's parameters; it reads and writes LENGTH numbers,
        // as both buffers have.
        unsafe { launch.launch(thread_each(quarter)) }?;
        Ok(())
    }

    /// The sum of `x`, in two steps.
    ///
    /// # Errors
    /// The GPU reports an error.
    #[nvtx::annotate(work = sum_work())]
    pub fn reduction(&mut self) -> Result<()> {
        let (first, second) = (LENGTH, SUM_BLOCKS);
        let (mut sums, mut whole) = self.sums.split_at_mut(SUM_BLOCKS as usize);
        let mut launch = self.stream.launch_builder(&self.sum);
        launch.arg(&mut sums).arg(&self.x).arg(&first);
        // SAFETY: the arguments match the kernel's parameters; it reads LENGTH numbers and writes
        // one a block.
        unsafe { launch.launch(grid(SUM_BLOCKS, BLOCK)) }?;
        let mut launch = self.stream.launch_builder(&self.sum);
        let sums = sums.as_view();
        launch.arg(&mut whole).arg(&sums).arg(&second);
        // SAFETY: as above; it reads SUM_BLOCKS numbers and writes the last one of `sums`.
        unsafe { launch.launch(grid(1, BLOCK)) }?;
        Ok(())
    }

    /// `y [ROWS, SIDE] = x [ROWS, DEPTH] small [DEPTH, SIDE]`.
    ///
    /// # Errors
    /// The GPU reports an error.
    #[nvtx::annotate(work = gemm_work())]
    pub fn gemm(&mut self) -> Result<()> {
        let mut launch = self.stream.launch_builder(&self.gemm);
        launch.arg(&mut self.y).arg(&self.x).arg(&self.small);
        // SAFETY: the arguments match the kernel's parameters; ROWS / SIDE blocks of SIDE rows read
        // `x` and write `y` below ROWS * 64, which is LENGTH, and read the whole of `small`. The
        // block has the threads that it expects.
        unsafe { launch.launch(grid(ROWS / SIDE, BLOCK)) }?;
        Ok(())
    }

    /// A probe: copies `x` to `y`.
    ///
    /// # Errors
    /// The GPU reports an error.
    pub fn copy(&mut self) -> Result<()> {
        self.stream.memcpy_dtod(&self.x, &mut self.y)?;
        self.wait()
    }

    /// The work of [`cublas`](Self::cublas).
    pub const PROBE_WORK: Work =
        Work::gemm(PROBE as u64, PROBE as u64, PROBE as u64, Dtype::F32).with_pipe(Pipe::Vector);

    /// A probe: the product of two large f32 matrices by cuBLAS.
    ///
    /// # Errors
    /// cuBLAS or the GPU reports an error.
    pub fn cublas(&mut self) -> Result<()> {
        let config = square(i32::try_from(PROBE)?);
        let (a, b) = self.x.split_at((PROBE * PROBE) as usize);
        // SAFETY: the three matrices are square and full, and each buffer has at least as many
        // numbers.
        unsafe { self.blas.gemm(config, &a, &b, &mut self.y) }?;
        self.wait()
    }

    /// The product of two bf16 matrices by cuBLAS, which uses tensor cores.
    ///
    /// # Errors
    /// cuBLAS or the GPU reports an error.
    pub fn cublas_bf16(&mut self) -> Result<()> {
        let side = i32::try_from(PROBE)?;
        let (x, _x) = self.x.device_ptr(&self.stream);
        let (y, _y) = self.y.device_ptr_mut(&self.stream);
        let matrices = [x, x + u64::from(PROBE) * u64::from(PROBE) * 2, y];
        // SAFETY: the three matrices are square and full, of 2 bytes a number, and each buffer has
        // at least as many bytes.
        unsafe { multiply(&self.blas, side, cudaDataType::CUDA_R_16BF, matrices) }?;
        drop((_x, _y));
        self.wait()
    }

    /// Waits for all submitted work.
    ///
    /// # Errors
    /// The GPU reports an error.
    pub fn wait(&self) -> Result<()> {
        Ok(self.stream.synchronize()?)
    }

    /// Returns the first number of `y`, and the sum computed by [`reduction`](Self::reduction).
    ///
    /// # Errors
    /// The GPU reports an error.
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

/// The work of [`Bound::axpy`].
pub const fn axpy_work() -> Work {
    Work::elementwise(LENGTH as u64, 2, 1, 2, Dtype::F32)
}

/// The work of [`Bound::reduction`]: one addition for each number (threads begin with 0). For each
/// block of both stages, it adds one less than the number of the block's threads. The sums of the
/// first stage stay in the cache.
pub const fn sum_work() -> Work {
    let (length, blocks) = (LENGTH as u64, SUM_BLOCKS as u64);
    let flops = length + blocks * (BLOCK as u64 - 1) + blocks + (BLOCK as u64 - 1);
    Work::reduction(length, Dtype::F32).with_flops(flops)
}

/// The work of [`Bound::gemm`].
pub const fn gemm_work() -> Work {
    let work = Work::gemm(ROWS as u64, SIDE as u64, DEPTH as u64, Dtype::F32);
    work.with_pipe(Pipe::Vector)
}

const _: () = assert!(ROWS as u64 * DEPTH as u64 == LENGTH as u64 && SIDE == DEPTH);
const _: () = assert!(2 * PROBE as u64 * PROBE as u64 <= LENGTH as u64);
const _: () = assert!(ROWS.is_multiple_of(SIDE) && BLOCK == (SIDE / 4) * (SIDE / 4));
