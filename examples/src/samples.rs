//! Shared code of the programs that record samples for tests: kernels whose work is an argument, and
//! processes of the program itself.

use std::hint::black_box;
use std::process::{Command, Stdio};
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, PushKernelArg};

use crate::gpu::{BLOCK, Result, check, compile, grid};

/// Values of the largest buffer, 256 MiB.
const LARGE: u32 = 1 << 26;
/// Values of the results.
const RESULTS: u32 = 1 << 20;

/// Kernels of different lengths and limits on one stream. How much each does is an argument, so
/// that one can be made slower by more work.
#[derive(Debug)]
pub struct Kernels {
    stream: Arc<CudaStream>,
    latency: CudaFunction,
    arithmetic: CudaFunction,
    stream_add: CudaFunction,
    gather: CudaFunction,
    reduce: CudaFunction,
    large: CudaSlice<f32>,
    second: CudaSlice<f32>,
    out: CudaSlice<f32>,
}

impl Kernels {
    /// Compiles the kernels and allocates their buffers, 512 MiB, on GPU number `device`.
    ///
    /// Call [`unavailable`](crate::mlp::unavailable) first.
    ///
    /// # Errors
    /// If there is no such GPU, or a CUDA library refuses a call.
    pub fn new(device: usize) -> Result<Self> {
        let context = CudaContext::new(device)?;
        let stream = context.new_stream()?;
        // SAFETY: all buffers are used and freed on the one stream, in its order.
        unsafe { context.disable_event_tracking() };
        let module = compile(&context, include_str!("../gate_samples.cu"), &[])?;
        Ok(Self {
            latency: module.load_function("latency")?,
            arithmetic: module.load_function("arithmetic")?,
            stream_add: module.load_function("stream_add")?,
            gather: module.load_function("gather")?,
            reduce: module.load_function("reduce")?,
            large: stream.alloc_zeros(LARGE as usize)?,
            second: stream.alloc_zeros(LARGE as usize)?,
            out: stream.alloc_zeros(RESULTS as usize)?,
            stream,
        })
    }

    /// Waits for the stream.
    ///
    /// # Errors
    /// If the GPU reports one.
    pub fn wait(&self) -> Result<()> {
        Ok(self.stream.synchronize()?)
    }

    /// One warp of dependent arithmetic.
    ///
    /// # Errors
    /// If the launch fails, as for the kernels below.
    pub fn latency(&self, rounds: u32) -> Result<()> {
        let mut launch = self.stream.launch_builder(&self.latency);
        launch.arg(&self.out).arg(&rounds);
        // SAFETY: the arguments match the kernel's parameters; it writes 32 values of `out`, which has 2^20.
        unsafe { launch.launch(grid(1, 32)) }?;
        Ok(())
    }

    /// Arithmetic in so many blocks of 256 threads.
    ///
    /// # Errors
    /// As [`latency`](Self::latency), and for more threads than results.
    pub fn arithmetic(&self, blocks: u32, rounds: u32) -> Result<()> {
        let mut launch = self.stream.launch_builder(&self.arithmetic);
        launch.arg(&self.out).arg(&rounds);
        check(blocks * BLOCK <= RESULTS, "arithmetic")?;
        // SAFETY: the arguments match the kernel's parameters; it writes a value a thread, and `out` has as many.
        unsafe { launch.launch(grid(blocks, BLOCK)) }?;
        Ok(())
    }

    /// Adds `count` values to others: bound by the bandwidth of memory.
    ///
    /// # Errors
    /// As [`latency`](Self::latency), and for more values than a buffer has.
    pub fn stream_add(&self, count: u32) -> Result<()> {
        let mut launch = self.stream.launch_builder(&self.stream_add);
        launch.arg(&self.large).arg(&self.second).arg(&count);
        check(count <= LARGE, "stream_add")?;
        // SAFETY: the arguments match the kernel's parameters; it stays below `count`, and both buffers have as many.
        unsafe { launch.launch(grid(132 * 16, BLOCK)) }?;
        Ok(())
    }

    /// Reads at random places: bound by the latency of memory.
    ///
    /// # Errors
    /// As [`latency`](Self::latency).
    pub fn gather(&self, rounds: u32) -> Result<()> {
        let mut launch = self.stream.launch_builder(&self.gather);
        let mask = LARGE - 1;
        launch.arg(&self.out).arg(&self.second).arg(&mask).arg(&rounds);
        // SAFETY: the arguments match the kernel's parameters; it reads below 2^26, the length of `second`, and writes
        // 132 * 4 * 256 values of `out`, which has 2^20.
        unsafe { launch.launch(grid(132 * 4, BLOCK)) }?;
        Ok(())
    }

    /// Sums `count` values.
    ///
    /// # Errors
    /// As [`stream_add`](Self::stream_add).
    pub fn reduce(&self, count: u32) -> Result<()> {
        let mut launch = self.stream.launch_builder(&self.reduce);
        launch.arg(&self.out).arg(&self.second).arg(&count);
        check(count <= LARGE, "reduce")?;
        // SAFETY: the arguments match the kernel's parameters; it stays below `count`, and `second` has as many; its
        // block has the 256 threads that it expects.
        unsafe { launch.launch(grid(132 * 4, BLOCK)) }?;
        Ok(())
    }
}

/// A program that is bound by one thing, of which a run takes 2 to 8 ms. More rounds of its work make
/// it slower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Workload {
    /// Bound by the GPU: kernels of 0.1 to 1 ms.
    Gpu,
    /// Bound by launches of small kernels, and by computing on the host.
    Launch,
}

impl Workload {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Gpu, Self::Launch];

    /// Steps of a run.
    const STEPS: usize = 5;

    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Launch => "launch",
        }
    }

    /// Rounds of a step: of a kernel's arithmetic, or of computing on the host.
    pub fn rounds(self) -> u32 {
        match self {
            Self::Gpu => 15_000,
            Self::Launch => 400_000,
        }
    }

    /// Runs some steps in ranges `step`, `step/forward` and `step/update`, or `step/prepare` and
    /// `step/launch`.
    ///
    /// # Errors
    /// If a launch fails, or the GPU reports an error.
    pub fn run(self, kernels: &Kernels, rounds: u32) -> Result<()> {
        (0..Self::STEPS).try_for_each(|_| self.step(kernels, rounds))
    }

    fn step(self, kernels: &Kernels, rounds: u32) -> Result<()> {
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

/// Dependent integer arithmetic: a round takes a fifth of a nanosecond.
fn compute(rounds: u32) -> u64 {
    let round = |x: u64, _| x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
    (0..rounds).fold(black_box(1), round)
}

/// Runs this program with these arguments and returns its output. Its errors go where ours go.
///
/// # Errors
/// If it does not start, fails, or writes no text.
pub fn output_of_child(args: &[&str]) -> Result<String> {
    let mut child = Command::new(std::env::current_exe()?);
    let output = child.args(args).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{args:?}: {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
