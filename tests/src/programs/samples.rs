//! Two programs with a single bottleneck each.

use std::hint::black_box;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, PushKernelArg};
use gpu_profiler_examples::gpu::{BLOCK, Result, check, compile, grid};
use profiler_base::named_variants;

/// The number of values in the largest buffer, 256 MiB.
const LARGE: u32 = 1 << 26;
/// The number of result values.
const RESULTS: u32 = 1 << 20;

/// Kernels of different lengths and limits on one stream.
#[derive(Debug)]
pub struct Kernels {
    stream: Arc<CudaStream>,
    latency: CudaFunction,
    arithmetic: CudaFunction,
    stream_add: CudaFunction,
    gather: CudaFunction,
    large: CudaSlice<f32>,
    second: CudaSlice<f32>,
    out: CudaSlice<f32>,
}

impl Kernels {
    /// Compiles the kernels and allocates their buffers, 512 MiB, on GPU number `device`.
    ///
    /// Call [`unavailable`](gpu_profiler_examples::mlp::unavailable) first.
    ///
    /// # Errors
    /// There is no such GPU, or a CUDA library refuses a call.
    pub fn new(device: usize) -> Result<Self> {
        let context = CudaContext::new(device)?;
        let stream = context.new_stream()?;
        // SAFETY: all buffers are used and freed on the one stream, in its order.
        unsafe { context.disable_event_tracking() };
        let module = compile(&context, include_str!("samples.cu"), &[])?;
        Ok(Self {
            latency: module.load_function("latency")?,
            arithmetic: module.load_function("arithmetic")?,
            stream_add: module.load_function("stream_add")?,
            gather: module.load_function("gather")?,
            large: stream.alloc_zeros(LARGE as usize)?,
            second: stream.alloc_zeros(LARGE as usize)?,
            out: stream.alloc_zeros(RESULTS as usize)?,
            stream,
        })
    }

    /// Waits for the stream.
    ///
    /// # Errors
    /// The GPU reports an error.
    pub fn wait(&self) -> Result<()> {
        Ok(self.stream.synchronize()?)
    }

    /// Runs one warp of dependent arithmetic.
    fn latency(&self, rounds: u32) -> Result<()> {
        let mut launch = self.stream.launch_builder(&self.latency);
        launch.arg(&self.out).arg(&rounds);
        // SAFETY: the arguments match the kernel's parameters; it writes 32 values of `out`, which
        // has 2^20.
        unsafe { launch.launch(grid(1, 32)) }?;
        Ok(())
    }

    /// Runs arithmetic in this many blocks of 256 threads.
    fn arithmetic(&self, blocks: u32, rounds: u32) -> Result<()> {
        let mut launch = self.stream.launch_builder(&self.arithmetic);
        launch.arg(&self.out).arg(&rounds);
        check(blocks * BLOCK <= RESULTS, "arithmetic")?;
        // SAFETY: the arguments match the kernel's parameters; it writes a value a thread, and
        // `out` has as many.
        unsafe { launch.launch(grid(blocks, BLOCK)) }?;
        Ok(())
    }

    /// Adds `count` values to others, bound by memory bandwidth.
    fn stream_add(&self, count: u32) -> Result<()> {
        let mut launch = self.stream.launch_builder(&self.stream_add);
        launch.arg(&self.large).arg(&self.second).arg(&count);
        check(count <= LARGE, "stream_add")?;
        // SAFETY: the arguments match the kernel's parameters; it stays below `count`, and both
        // buffers have as many.
        unsafe { launch.launch(grid(132 * 16, BLOCK)) }?;
        Ok(())
    }

    /// Reads at random addresses, bound by memory latency.
    fn gather(&self, rounds: u32) -> Result<()> {
        let mut launch = self.stream.launch_builder(&self.gather);
        let mask = LARGE - 1;
        launch.arg(&self.out).arg(&self.second).arg(&mask).arg(&rounds);
        // SAFETY: the arguments match the kernel's parameters; it reads below 2^26, the length of
        // `second`, and writes 132 * 4 * 256 values of `out`, which has 2^20.
        unsafe { launch.launch(grid(132 * 4, BLOCK)) }?;
        Ok(())
    }
}

named_variants! {
    /// A program with a single bottleneck, whose runs take 2 to 8 ms.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Workload with name in ALL {
        /// Bound by the GPU: kernels of 0.1 to 1 ms.
        Gpu = "gpu",
        /// Bound by launches of small kernels, and by host computation.
        Launch = "launch",
    }
}

impl Workload {
    /// The number of steps in a run.
    const STEPS: usize = 5;

    /// The number of rounds per step, of a kernel's arithmetic or of host computation.
    fn rounds(self) -> u32 {
        match self {
            Self::Gpu => 15_000,
            Self::Launch => 400_000,
        }
    }

    /// Runs some steps in the ranges `step`, `step/forward` and `step/update`, or `step/prepare`
    /// and `step/launch`.
    ///
    /// # Errors
    /// A launch fails, or the GPU reports an error.
    pub fn run(self, kernels: &Kernels) -> Result<()> {
        (0..Self::STEPS).try_for_each(|_| self.step(kernels))
    }

    fn step(self, kernels: &Kernels) -> Result<()> {
        let rounds = self.rounds();
        let _step = nvtx::range("step");
        match self {
            Self::Gpu => {
                {
                    let _range = nvtx::range("forward");
                    for _ in 0..2 {
                        kernels.arithmetic(132 * 8, rounds)?;
                    }
                    kernels.gather(60)?;
                }
                let _range = nvtx::range("update");
                kernels.stream_add(3 << 23)?;
                kernels.wait()
            }
            Self::Launch => {
                {
                    let _range = nvtx::range("prepare");
                    black_box(compute(rounds));
                }
                let _range = nvtx::range("launch");
                for _ in 0..40 {
                    kernels.latency(200)?;
                }
                kernels.wait()
            }
        }
    }
}

/// Runs dependent integer arithmetic. A round takes a fifth of a nanosecond.
fn compute(rounds: u32) -> u64 {
    let round = |x: u64, _| x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
    (0..rounds).fold(black_box(1), round)
}
