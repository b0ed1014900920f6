//! Four programs before and after a change with a known gain, for comparison with the profiler's
//! estimates.
//!
//! Every step opens the NVTX range `step` and ends with a wait, as in
//! [`diseases`](super::diseases).

use std::sync::Arc;

use cudarc::cublas::CudaBlas;
use cudarc::cublas::sys::cudaDataType_t;
use cudarc::driver::{
    CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, DeviceRepr,
    PushKernelArg, ValidAsZeroBits,
};
use gpu_profiler_examples::gpu::{Result, thread_each};
use nvtx::{Dtype, Pipe, Work};
use profiler_base::named_variants;

use super::diseases::{Gpu, Program, Step, loader, small_gemms};
use super::products::multiply;

named_variants! {
    /// A program and a change to it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum CaseStudy with name in ALL {
        /// Loads for 3 ms and works for 1 ms per batch. Before: one worker loads ahead. After: eight
        /// workers.
        Loader = "loader",
        /// Matrix products. Before: in f32. After: in bf16, on tensor cores.
        Bf16 = "bf16",
        /// Ninety-six products of small matrices, as in attention heads. After: one batched product.
        Batched = "batched",
        /// Momentum on 32 tensors. Before: three kernels per tensor. After: one kernel for all.
        Optimizer = "optimizer",
    }
}

impl CaseStudy {
    /// The number of steps in a run, chosen so that a recording stays small.
    pub fn steps(self) -> usize {
        match self {
            CaseStudy::Loader => 30,
            CaseStudy::Bf16 => 10,
            CaseStudy::Batched | CaseStudy::Optimizer => 5,
        }
    }

    /// Prepares the program before or after the change on GPU number `device`.
    ///
    /// Call [`unavailable`](gpu_profiler_examples::mlp::unavailable) first.
    ///
    /// # Errors
    /// There is no such GPU, a CUDA library refuses a call, or the optimizer's kernels and the host
    /// compute different values.
    ///
    /// # Panics
    /// Inside cudarc, if a CUDA library is missing.
    pub fn program(self, after: bool, device: usize) -> Result<Program> {
        let gpu = Gpu::new(device)?;
        let context = gpu.context.clone();
        let step = match self {
            CaseStudy::Loader => loader(gpu, if after { 8 } else { 1 })?,
            CaseStudy::Bf16 if after => products(&gpu, bf16, Dtype::Bf16, Pipe::Tensor)?,
            CaseStudy::Bf16 => products(&gpu, |x| x, Dtype::F32, Pipe::Vector)?,
            CaseStudy::Batched => small_gemms(gpu, 96, 128, after)?,
            CaseStudy::Optimizer => optimizer(&gpu, after)?,
        };
        Ok(Program::from_step(step, context))
    }
}

/// Converts a number to the bits of bf16: the upper half of its f32 bits.
fn bf16(x: f32) -> u16 {
    (x.to_bits() >> 16) as u16
}

/// Creates four products of 4096 x 4096 matrices, each in a range that declares its work. Sums are
/// in f32.
fn products<T>(gpu: &Gpu, number: fn(f32) -> T, dtype: Dtype, pipe: Pipe) -> Result<Step>
where
    T: DeviceRepr + ValidAsZeroBits + Clone + 'static,
{
    const PRODUCTS: usize = 4;
    const SIDE: usize = 4096;
    let stream = gpu.stream.clone();
    let blas = CudaBlas::new(stream.clone())?;
    // Products of zeros would run at a higher clock.
    let values: Vec<T> =
        (0..SIDE * SIDE).map(|i| number((i * 7919 % 1021) as f32 / 1021.0 - 0.5)).collect();
    let a = stream.clone_htod(&values)?;
    let b = stream.clone_htod(&values)?;
    let mut c: CudaSlice<T> = stream.alloc_zeros(SIDE * SIDE)?;
    stream.synchronize()?;
    let (n, side) = (i32::try_from(SIDE)?, SIDE as u64);
    let kind = match dtype {
        Dtype::Bf16 => cudaDataType_t::CUDA_R_16BF,
        _ => cudaDataType_t::CUDA_R_32F,
    };
    Ok(Box::new(move || {
        for _ in 0..PRODUCTS {
            let work = Work::gemm(side, side, side, dtype).with_pipe(pipe);
            let _range = nvtx::event("matmul").work(work).range();
            let (a, _a) = a.device_ptr(&stream);
            let (b, _b) = b.device_ptr(&stream);
            let (c, _c) = c.device_ptr_mut(&stream);
            // SAFETY: the three buffers hold full matrices of this size and type.
            unsafe { multiply(&blas, n, kind, [a, b, c]) }?;
        }
        Ok(stream.synchronize()?)
    }))
}

const TENSORS: usize = 32;
/// The length of a tensor in numbers.
const TENSOR: usize = 16 << 10;
const MOMENTUM: f32 = 0.9;
const RATE: f32 = 0.01;
const GRADIENT: f32 = 0.25;

/// Stochastic gradient descent with momentum: per tensor, as with `add_(..)` and `mul_(..)`, or
/// fused.
fn optimizer(gpu: &Gpu, fused: bool) -> Result<Step> {
    let stream = gpu.stream.clone();
    let mut weights: CudaSlice<f32> = stream.alloc_zeros(TENSORS * TENSOR)?;
    let mut velocity: CudaSlice<f32> = stream.alloc_zeros(TENSORS * TENSOR)?;
    let gradient = stream.clone_htod(&vec![GRADIENT; TENSORS * TENSOR])?;
    let (decay, add_scaled, momentum_step) =
        (gpu.kernel("decay")?, gpu.kernel("add_scaled")?, gpu.kernel("momentum_step")?);
    let queue = stream.clone();
    let add = move |y: &mut CudaViewMut<'_, f32>, x: &CudaView<'_, f32>, a: f32| -> Result<()> {
        let len = u32::try_from(x.len())?;
        let mut launch = queue.launch_builder(&add_scaled);
        launch.arg(y).arg(x).arg(&a).arg(&len);
        // SAFETY: the arguments match the kernel's parameters; both parts have `len` numbers.
        unsafe { launch.launch(thread_each(len)) }?;
        Ok(())
    };
    let queue = stream.clone();
    let mut step = move |weights: &mut CudaSlice<f32>, velocity: &mut CudaSlice<f32>| {
        if fused {
            let len = u32::try_from(TENSORS * TENSOR)?;
            let mut launch = queue.launch_builder(&momentum_step);
            launch.arg(weights).arg(velocity).arg(&gradient).arg(&MOMENTUM).arg(&RATE).arg(&len);
            // SAFETY: the arguments match the kernel's parameters; the three buffers have `len`
            // numbers.
            unsafe { launch.launch(thread_each(len)) }?;
            return Ok(());
        }
        for tensor in 0..TENSORS {
            let part = tensor * TENSOR..(tensor + 1) * TENSOR;
            let mut v = velocity.slice_mut(part.clone());
            let len = u32::try_from(TENSOR)?;
            let mut launch = queue.launch_builder(&decay);
            launch.arg(&mut v).arg(&MOMENTUM).arg(&len);
            // SAFETY: the arguments match the kernel's parameters; the part has `len` numbers.
            unsafe { launch.launch(thread_each(len)) }?;
            add(&mut v, &gradient.slice(part.clone()), 1.0)?;
            add(&mut weights.slice_mut(part.clone()), &velocity.slice(part), -RATE)?;
        }
        Ok(())
    };
    check_optimizer(&stream, &mut weights, &mut velocity, &mut step)?;
    Ok(Box::new(move || {
        let _range = nvtx::range("optimizer");
        step(&mut weights, &mut velocity)?;
        Ok(stream.synchronize()?)
    }))
}

/// Checks that three steps on the GPU and three steps on the host give the same values.
fn check_optimizer(
    stream: &Arc<CudaStream>,
    weights: &mut CudaSlice<f32>,
    velocity: &mut CudaSlice<f32>,
    step: &mut impl FnMut(&mut CudaSlice<f32>, &mut CudaSlice<f32>) -> Result<()>,
) -> Result<()> {
    let (mut w, mut v) = (0.0f32, 0.0f32);
    for _ in 0..3 {
        step(weights, velocity)?;
        v = v * MOMENTUM + GRADIENT;
        w -= RATE * v;
    }
    let on_gpu = stream.clone_dtoh(weights)?;
    stream.synchronize()?;
    match on_gpu.iter().find(|on_gpu| (**on_gpu - w).abs() > 1e-6) {
        None => Ok(()),
        Some(on_gpu) => Err(format!("the optimizer: {on_gpu} on the GPU, {w} on the host").into()),
    }
}
