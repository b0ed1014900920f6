//! Four programs in which host and GPU, or two streams, wait for each other unnecessarily, and the
//! same programs without that wait.
//!
//! Every step opens the NVTX range `step`. The programs before and after the change differ only in
//! that change.

use std::fmt;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaSlice, DevicePtr, result};

use crate::diseases::{Gpu, Pinned, Program, Step};
use crate::gpu::Result;

/// An unnecessary wait and its replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Overlap {
    /// Each step reads its loss with a blocking copy. After: a copy to pinned memory, used a step
    /// later.
    LossRead,
    /// Each step waits for the GPU to log the duration of its first half. After: every tenth step
    /// does.
    LogWait,
    /// Each step allocates and frees its workspace, for which the driver waits. After: one
    /// workspace for all steps.
    Workspace,
    /// A stream waits for an event that is recorded after an additional kernel of the other stream,
    /// which it does not need. After: the event is recorded before that kernel.
    LateEvent,
}

impl Overlap {
    /// All unnecessary waits.
    pub const ALL: [Overlap; 4] =
        [Overlap::LossRead, Overlap::LogWait, Overlap::Workspace, Overlap::LateEvent];

    /// The name in file names, such as `loss-read`.
    pub fn name(self) -> &'static str {
        match self {
            Overlap::LossRead => "loss-read",
            Overlap::LogWait => "log-wait",
            Overlap::Workspace => "workspace",
            Overlap::LateEvent => "late-event",
        }
    }

    /// The number of steps in a run, chosen so that a recording is small.
    pub fn steps(self) -> usize {
        30
    }

    /// Prepares the program before or after the change on GPU number `device`.
    ///
    /// Call [`unavailable`](crate::mlp::unavailable) first.
    ///
    /// # Errors
    /// There is no such GPU, or a CUDA library refuses a call.
    ///
    /// # Panics
    /// Inside cudarc, if a CUDA library is missing.
    pub fn program(self, after: bool, device: usize) -> Result<Program> {
        let gpu = Gpu::new(device)?;
        let context = gpu.context.clone();
        let step = match self {
            Overlap::LossRead => loss_read(gpu, after)?,
            Overlap::LogWait => log_wait(gpu, after),
            Overlap::Workspace => workspace(gpu, after)?,
            Overlap::LateEvent => late_event(gpu, after)?,
        };
        Ok(Program::from_step(step, context))
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The number of blocks per kernel: few, so that two kernels run concurrently.
const BLOCKS: u32 = 16;

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// Computes on the host for this long, as when preparing a batch or tokenizing a text.
fn compute(time: Duration) {
    let _range = nvtx::range("prepare");
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// A kernel of 500 us, the loss, and 300 us of host work.
fn loss_read(gpu: Gpu, after: bool) -> Result<Step> {
    let stream = gpu.stream.clone();
    let loss: CudaSlice<f32> = stream.alloc_zeros(1)?;
    if !after {
        let mut value = vec![0.0f32];
        return Ok(Box::new(move || {
            gpu.spin(&stream, BLOCKS, micros(500))?;
            {
                let _range = nvtx::range("loss");
                // Copies to pageable memory return when they are complete.
                stream.memcpy_dtoh(&loss, &mut value)?;
            }
            compute(micros(300));
            Ok(())
        }));
    }
    // The values of two steps, each with the event recorded after its copy.
    let mut slots = Vec::new();
    for _ in 0..2 {
        let is_read = gpu.context.new_event(None)?;
        is_read.record(&stream)?;
        slots.push((Pinned::new(&gpu, 1)?, is_read));
    }
    Ok(Box::new(move || {
        gpu.spin(&stream, BLOCKS, micros(500))?;
        {
            let _range = nvtx::range("loss");
            let (value, is_read) = &mut slots[0];
            let (from, _guard) = loss.device_ptr(&stream);
            // SAFETY: both sides hold one value; the memory is read only after the event, and
            // outlives the copy: the program waits for the context after its last step.
            unsafe { result::memcpy_dtoh_async(value.values_mut(), from, stream.cu_stream()) }?;
            is_read.record(&stream)?;
            slots.swap(0, 1);
            // Read the value of the previous step.
            slots[0].1.synchronize()?;
            std::hint::black_box(slots[0].0.values());
        }
        compute(micros(300));
        Ok(())
    }))
}

/// Two kernels of 300 us, with 400 us of host work between them.
fn log_wait(gpu: Gpu, after: bool) -> Step {
    let mut number = 0u64;
    Box::new(move || {
        gpu.spin(&gpu.stream, BLOCKS, micros(300))?;
        {
            let _range = nvtx::range("log");
            if !after || number.is_multiple_of(10) {
                gpu.stream.synchronize()?;
            }
            number += 1;
        }
        compute(micros(400));
        gpu.spin(&gpu.stream, BLOCKS, micros(300))?;
        Ok(gpu.stream.synchronize()?)
    })
}

/// A kernel of 600 us with a workspace of 8 MiB, 300 us of host work, and a kernel of 300 us.
fn workspace(gpu: Gpu, after: bool) -> Result<Step> {
    const BYTES: usize = 8 << 20;
    // All steps after the change share this workspace. It is allocated before the change as well.
    let kept: CudaSlice<u8> = gpu.stream.alloc_zeros(BYTES)?;
    gpu.stream.synchronize()?;
    Ok(Box::new(move || {
        std::hint::black_box(&kept);
        // SAFETY: any size is allowed.
        let own = (!after).then(|| unsafe { result::malloc_sync(BYTES) }).transpose()?;
        gpu.spin(&gpu.stream, BLOCKS, micros(600))?;
        if let Some(own) = own {
            // SAFETY: allocated above and used by nothing any more once the driver has waited for
            // the kernel.
            unsafe { result::free_sync(own) }?;
        }
        compute(micros(300));
        gpu.spin(&gpu.stream, BLOCKS, micros(300))?;
        Ok(gpu.stream.synchronize()?)
    }))
}

/// One stream runs kernels of 50 us and 800 us. The other needs only the first of them for a kernel
/// of 700 us.
fn late_event(gpu: Gpu, after: bool) -> Result<Step> {
    let other = gpu.context.new_stream()?;
    Ok(Box::new(move || {
        let stream = &gpu.stream;
        gpu.spin(stream, BLOCKS, micros(50))?;
        let early = after.then(|| stream.record_event(None)).transpose()?;
        gpu.spin(stream, BLOCKS, micros(800))?;
        let event = early.map_or_else(|| stream.record_event(None), Ok)?;
        other.wait(&event)?;
        gpu.spin(&other, BLOCKS, micros(700))?;
        stream.synchronize()?;
        Ok(other.synchronize()?)
    }))
}
