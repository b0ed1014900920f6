//! Nine anti-patterns: programs that are slow for one known reason, and the same programs without
//! it.
//!
//! Every step opens the NVTX range `step` and ends with a wait, so its time is the time of its
//! work. The programs before and after the change differ only in that change.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use cudarc::cublas::{CudaBlas, Gemm, StridedBatchedConfig};
use cudarc::driver::sys::{CUdevice_attribute, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaGraph, CudaModule, CudaSlice, CudaStream, DevicePtrMut,
    PushKernelArg, result,
};
use gpu_profiler_examples::gpu::{Result, check, compile, grid, thread_each};
use profiler_base::named_variants;

use super::products::square;

/// Threads in a block of `spin`.
const SPIN_BLOCK: u32 = 128;

named_variants! {
    /// The reason why a program is slow.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum AntiPattern with name in ALL {
        /// Kernels shorter than their launches. After: one CUDA graph.
        LaunchBound = "launch-bound",
        /// A wait after every kernel. After: one wait at the end.
        SyncEveryKernel = "sync-every-kernel",
        /// Large copies from pageable memory. After: pinned memory, and the next copy overlaps the
        /// kernel.
        PageableCopies = "pageable-copies",
        /// The host computes between kernels. After: the GPU does it.
        HostPreprocessing = "host-preprocessing",
        /// Each step waits for its data. After: four threads load ahead.
        SlowLoader = "slow-loader",
        /// Results fetched piece by piece. After: one copy in and one copy out.
        TinyCopies = "tiny-copies",
        /// Matrix products that fill a tenth of the GPU. After: one batched product.
        SmallGemms = "small-gemms",
        /// Grids slightly larger than one wave. After: the same work in one full wave.
        TailEffect = "tail-effect",
        /// Four streams that wait for each other. After: they do not wait.
        SerialStreams = "serial-streams",
    }
}

impl AntiPattern {
    /// The number of steps in a run, chosen so that a recording is small.
    pub fn steps(self) -> usize {
        match self {
            Self::PageableCopies | Self::HostPreprocessing | Self::SlowLoader => 30,
            Self::TailEffect | Self::SerialStreams => 10,
            _ => 5,
        }
    }
}

/// A program that is ready to run, step by step.
pub struct Program {
    step: Step,
    context: Arc<CudaContext>,
}

impl Program {
    /// Prepares the slow program, or the improved one if `cured`, on GPU number `device`.
    ///
    /// Call [`unavailable`](gpu_profiler_examples::mlp::unavailable) first.
    ///
    /// # Errors
    /// There is no such GPU, or a CUDA library refuses a call.
    ///
    /// # Panics
    /// Inside cudarc, if a CUDA library is missing.
    pub fn new(disease: AntiPattern, cured: bool, device: usize) -> Result<Program> {
        let gpu = Gpu::new(device)?;
        let context = gpu.context.clone();
        let step = match disease {
            AntiPattern::LaunchBound => launch_bound(gpu, cured)?,
            AntiPattern::SyncEveryKernel => sync_every_kernel(gpu, cured),
            AntiPattern::PageableCopies => pageable_copies(gpu, cured)?,
            AntiPattern::HostPreprocessing => host_preprocessing(gpu, cured)?,
            AntiPattern::SlowLoader => loader(gpu, if cured { 4 } else { 0 })?,
            AntiPattern::TinyCopies => tiny_copies(gpu, cured)?,
            AntiPattern::SmallGemms => small_gemms(gpu, 50, 256, cured)?,
            AntiPattern::TailEffect => tail_effect(gpu, cured)?,
            AntiPattern::SerialStreams => serial_streams(gpu, cured)?,
        };
        Ok(Program::from_step(step, context))
    }

    pub(super) fn from_step(step: Step, context: Arc<CudaContext>) -> Program {
        Program { step, context }
    }

    /// Runs one step in the range `step`. Most programs wait for its work; some wait during the
    /// next step.
    ///
    /// # Errors
    /// The GPU or a CUDA library reports an error.
    pub fn step(&mut self) -> Result<()> {
        let _range = nvtx::range("step");
        (self.step)()
    }

    /// Runs `steps` steps and waits for them.
    ///
    /// # Errors
    /// See [`step`](Program::step).
    pub fn run(&mut self, steps: usize) -> Result<()> {
        (0..steps).try_for_each(|_| self.step())?;
        Ok(self.context.synchronize()?)
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").finish_non_exhaustive()
    }
}

pub(super) type Step = Box<dyn FnMut() -> Result<()>>;

/// The GPU, a stream and the kernels.
pub(super) struct Gpu {
    pub(super) context: Arc<CudaContext>,
    module: Arc<CudaModule>,
    pub(super) stream: Arc<CudaStream>,
    spin: CudaFunction,
    settle: CudaFunction,
    log_square: CudaFunction,
}

impl Gpu {
    pub(super) fn new(device: usize) -> Result<Gpu> {
        let context = CudaContext::new(device)?;
        // SAFETY: every program orders the uses of its buffers itself, with one stream or with
        // events.
        unsafe { context.disable_event_tracking() };
        let source = concat!(include_str!("diseases.cu"), include_str!("case_studies.cu"));
        let module = compile(&context, source, &[])?;
        Ok(Gpu {
            stream: context.new_stream()?,
            spin: module.load_function("spin")?,
            settle: module.load_function("settle")?,
            log_square: module.load_function("log_square")?,
            module,
            context,
        })
    }

    pub(super) fn kernel(&self, name: &str) -> Result<CudaFunction> {
        Ok(self.module.load_function(name)?)
    }

    /// Runs `blocks` blocks that are busy for `time` each.
    pub(super) fn spin(&self, stream: &Arc<CudaStream>, blocks: u32, time: Duration) -> Result<()> {
        let nanoseconds = u64::try_from(time.as_nanos())?;
        let mut launch = stream.launch_builder(&self.spin);
        launch.arg(&nanoseconds);
        // SAFETY: the argument matches the kernel's parameter; it touches no memory.
        unsafe { launch.launch(grid(blocks, SPIN_BLOCK)) }?;
        Ok(())
    }

    /// Runs `settle` or `log_square` over a buffer.
    fn elementwise(
        &self,
        kernel: &CudaFunction,
        stream: &Arc<CudaStream>,
        m: &mut CudaSlice<f32>,
    ) -> Result<()> {
        let len = u32::try_from(m.len())?;
        let mut launch = stream.launch_builder(kernel);
        launch.arg(m).arg(&len);
        // SAFETY: the arguments match the parameters of both kernels; they stay below `len`, the
        // buffer's length.
        unsafe { launch.launch(thread_each(len)) }?;
        Ok(())
    }

    /// The number of `spin` blocks that the GPU runs concurrently.
    fn spinning_blocks(&self) -> Result<u32> {
        let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let multiprocessors = u32::try_from(self.context.attribute(attribute)?)?;
        let each = self.spin.occupancy_max_active_blocks_per_multiprocessor(SPIN_BLOCK, 0, None)?;
        Ok(multiprocessors * each)
    }
}

/// Page-locked host memory. cudarc's own type would add events to every copy.
pub(super) struct Pinned {
    memory: *mut f32,
    len: usize,
    /// Holds the context that owns the memory.
    _context: Arc<CudaContext>,
}

impl Pinned {
    pub(super) fn new(gpu: &Gpu, len: usize) -> Result<Pinned> {
        gpu.context.bind_to_thread()?;
        // SAFETY: any size is allowed, and no flags.
        let memory = unsafe { result::malloc_host(len * size_of::<f32>(), 0) }?.cast::<f32>();
        // SAFETY: the memory was just allocated with room for `len` values.
        unsafe { memory.write_bytes(0, len) };
        Ok(Pinned { memory, len, _context: gpu.context.clone() })
    }

    pub(super) fn values(&self) -> &[f32] {
        // SAFETY: `len` values, zeroed when it was made, and freed with `self`.
        unsafe { std::slice::from_raw_parts(self.memory, self.len) }
    }

    pub(super) fn values_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.memory, self.len) }
    }

    /// Copies all values to the GPU. The caller must wait before the memory is written or freed.
    fn copy_in(&self, stream: &Arc<CudaStream>, m: &mut CudaSlice<f32>) -> Result<()> {
        check(m.len() == self.len, "copy_in")?;
        let (to, _guard) = m.device_ptr_mut(stream);
        // SAFETY: both sides hold `len` values; the callers wait for the stream, as documented
        // above.
        unsafe { result::memcpy_htod_async(to, self.values(), stream.cu_stream()) }?;
        Ok(())
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the memory came from `malloc_host` and is not used any more. `drop` cannot report
        // an error.
        let _ = unsafe { result::free_host(self.memory.cast::<c_void>()) };
    }
}

/// 100 kernels of about 2 us on 1,024 values. A launch takes longer than a kernel.
fn launch_bound(gpu: Gpu, cured: bool) -> Result<Step> {
    const KERNELS: usize = 100;
    let stream = gpu.stream.clone();
    let mut values = stream.alloc_zeros(1024)?;
    let mut kernels = move || -> Result<()> {
        (0..KERNELS).try_for_each(|_| gpu.elementwise(&gpu.settle, &gpu.stream, &mut values))
    };
    if !cured {
        return Ok(Box::new(move || {
            kernels()?;
            Ok(stream.synchronize()?)
        }));
    }
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    let captured = kernels();
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph: CudaGraph = stream.end_capture(flags)?.ok_or("nothing was captured")?;
    captured?;
    Ok(Box::new(move || {
        // The closure must own the buffer that the graph uses.
        let _alive = &kernels;
        graph.launch()?;
        Ok(stream.synchronize()?)
    }))
}

/// 50 kernels of 15 us.
fn sync_every_kernel(gpu: Gpu, cured: bool) -> Step {
    const KERNELS: usize = 50;
    Box::new(move || {
        for _ in 0..KERNELS {
            gpu.spin(&gpu.stream, 64, Duration::from_micros(15))?;
            if !cured {
                gpu.stream.synchronize()?;
            }
        }
        Ok(gpu.stream.synchronize()?)
    })
}

/// Copies 16 MiB to the GPU, then runs a kernel of 1 ms.
fn pageable_copies(gpu: Gpu, cured: bool) -> Result<Step> {
    const LEN: usize = 4 << 20;
    const WORK: Duration = Duration::from_millis(1);
    let stream = gpu.stream.clone();
    let mut now: CudaSlice<f32> = stream.alloc_zeros(LEN)?;
    if !cured {
        let host = vec![1.0f32; LEN];
        return Ok(Box::new(move || {
            stream.memcpy_htod(&host, &mut now)?;
            gpu.spin(&stream, 64, WORK)?;
            Ok(stream.synchronize()?)
        }));
    }
    let host = Pinned::new(&gpu, LEN)?;
    let mut next: CudaSlice<f32> = stream.alloc_zeros(LEN)?;
    let copies = gpu.context.new_stream()?;
    Ok(Box::new(move || {
        // The kernel works on the data of the previous step.
        gpu.spin(&stream, 64, WORK)?;
        host.copy_in(&copies, &mut next)?;
        std::mem::swap(&mut now, &mut next);
        copies.synchronize()?;
        Ok(stream.synchronize()?)
    }))
}

/// The host's transformation of one value.
fn log_square(x: f32) -> f32 {
    (1.0 + x * x).ln()
}

/// Transforms and copies 256 Ki values, then runs a kernel of 1 ms.
fn host_preprocessing(gpu: Gpu, cured: bool) -> Result<Step> {
    const LEN: usize = 256 << 10;
    let stream = gpu.stream.clone();
    let raw: Vec<f32> = (0..LEN).map(|i| (i % 1000) as f32).collect();
    let mut host = Pinned::new(&gpu, LEN)?;
    host.values_mut().copy_from_slice(&raw);
    let mut values: CudaSlice<f32> = stream.alloc_zeros(LEN)?;
    Ok(Box::new(move || {
        if !cured {
            let _range = nvtx::range("preprocess");
            for (value, x) in host.values_mut().iter_mut().zip(&raw) {
                *value = log_square(*x);
            }
        }
        host.copy_in(&stream, &mut values)?;
        if cured {
            gpu.elementwise(&gpu.log_square, &stream, &mut values)?;
        }
        gpu.spin(&stream, 64, Duration::from_millis(1))?;
        Ok(stream.synchronize()?)
    }))
}

/// Loads for 3 ms, then runs a kernel of 1 ms. Without workers each step loads its own data. Each
/// worker prepares up to two batches ahead.
pub(super) fn loader(gpu: Gpu, workers: usize) -> Result<Step> {
    const LEN: usize = 16 << 10;
    const LOADING: Duration = Duration::from_millis(3);
    let stream = gpu.stream.clone();
    let mut values: CudaSlice<f32> = stream.alloc_zeros(LEN)?;
    let load = || {
        thread::sleep(LOADING); // simulates a disk
        vec![1.0f32; LEN]
    };
    let ahead: Option<Receiver<Vec<f32>>> = (workers != 0).then(|| {
        let (sender, receiver) = sync_channel(2 * workers);
        for _ in 0..workers {
            let sender = sender.clone();
            // The thread ends when the receiver is dropped.
            thread::spawn(move || while sender.send(load()).is_ok() {});
        }
        receiver
    });
    Ok(Box::new(move || {
        let data = {
            let _range = nvtx::range("data loading");
            match &ahead {
                None => load(),
                Some(ahead) => ahead.recv()?,
            }
        };
        stream.memcpy_htod(&data, &mut values)?;
        gpu.spin(&stream, 64, Duration::from_millis(1))?;
        Ok(stream.synchronize()?)
    }))
}

/// Copies 50 pieces of 256 bytes in, runs a kernel of 500 us, and copies 50 pieces out.
fn tiny_copies(gpu: Gpu, cured: bool) -> Result<Step> {
    const PIECES: usize = 50;
    const PIECE: usize = 64;
    let stream = gpu.stream.clone();
    let mut values: CudaSlice<f32> = stream.alloc_zeros(PIECES * PIECE)?;
    let mut host = vec![1.0f32; PIECES * PIECE];
    let piece = if cured { PIECES * PIECE } else { PIECE };
    Ok(Box::new(move || {
        for (n, values_in) in host.chunks(piece).enumerate() {
            let mut part = values.slice_mut(n * piece..(n + 1) * piece);
            stream.memcpy_htod(values_in, &mut part)?;
        }
        gpu.spin(&stream, 64, Duration::from_micros(500))?;
        for (n, values_out) in host.chunks_mut(piece).enumerate() {
            stream.memcpy_dtoh(&values.slice(n * piece..(n + 1) * piece), values_out)?;
        }
        Ok(stream.synchronize()?)
    }))
}

/// Products of square matrices, one by one or as one batch.
pub(super) fn small_gemms(gpu: Gpu, count: usize, side: usize, batched: bool) -> Result<Step> {
    let stream = gpu.stream.clone();
    let blas = CudaBlas::new(stream.clone())?;
    let a: CudaSlice<f32> = stream.alloc_zeros(count * side * side)?;
    let b: CudaSlice<f32> = stream.alloc_zeros(count * side * side)?;
    let mut c: CudaSlice<f32> = stream.alloc_zeros(count * side * side)?;
    let n = i32::try_from(side)?;
    let gemm = square(n);
    let stride = i64::from(n * n);
    let batch_size = i32::try_from(count)?;
    Ok(Box::new(move || {
        if batched {
            let (stride_a, stride_b, stride_c) = (stride, stride, stride);
            let config = StridedBatchedConfig { gemm, batch_size, stride_a, stride_b, stride_c };
            // SAFETY: the three buffers hold `batch_size` full matrices, one after the other.
            unsafe { blas.gemm_strided_batched(config, &a, &b, &mut c) }?;
        } else {
            for matrix in 0..count {
                let part = matrix * side * side..(matrix + 1) * side * side;
                let mut c = c.slice_mut(part.clone());
                // SAFETY: the three parts are full matrices of this size.
                unsafe { blas.gemm(gemm, &a.slice(part.clone()), &b.slice(part), &mut c) }?;
            }
        }
        Ok(stream.synchronize()?)
    }))
}

/// 10 kernels with blocks of 80 us. Before: an eighth more blocks than the GPU runs concurrently.
/// After: one full wave, with an eighth more work per block.
fn tail_effect(gpu: Gpu, cured: bool) -> Result<Step> {
    const KERNELS: usize = 10;
    let at_once = gpu.spinning_blocks()?;
    let (blocks, time) = match cured {
        false => (at_once + at_once / 8, Duration::from_micros(80)),
        true => (at_once, Duration::from_micros(90)),
    };
    Ok(Box::new(move || {
        (0..KERNELS).try_for_each(|_| gpu.spin(&gpu.stream, blocks, time))?;
        Ok(gpu.stream.synchronize()?)
    }))
}

/// Four streams with 8 kernels of 100 us each, submitted round-robin. Each kernel has few blocks.
fn serial_streams(gpu: Gpu, cured: bool) -> Result<Step> {
    const KERNELS: usize = 8;
    let streams =
        (0..4).map(|_| gpu.context.new_stream()).collect::<std::result::Result<Vec<_>, _>>()?;
    Ok(Box::new(move || {
        let mut last: Option<&Arc<CudaStream>> = None;
        for _ in 0..KERNELS {
            for stream in &streams {
                if let Some(before) = last.replace(stream)
                    && !cured
                {
                    stream.join(before)?;
                }
                gpu.spin(stream, 16, Duration::from_micros(100))?;
            }
        }
        streams.iter().try_for_each(|stream| Ok(stream.synchronize()?))
    }))
}
