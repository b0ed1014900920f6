//! A network with one hidden layer, trained on the GPU by gradient descent.
//!
//! ```text
//! hidden = relu(x * W1^T + b1)        x [512, 256]      W1 [512, 256]   hidden [512, 512]
//! output = hidden * W2^T + b2         W2 [64, 512]      output [512, 64]
//! loss   = mean((output - target)^2)  target [512, 64]: outputs of a fixed random network
//! ```
//!
//! Every batch opens the NVTX range `batch`, and in it `copy to device`, `forward`, `backward` and
//! `optimizer`. The loss is read back after those. All work uses one stream. Buffers are allocated
//! once, so that a batch consists of copies, one memset, kernels and one wait. The host memory of
//! the copies is pageable, because with pinned memory cudarc would add events.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream};

use crate::data::{BATCH, Data, HIDDEN, INPUT, InitialWeights, LEARNING_RATE, MOMENTUM, OUTPUT};
use crate::gpu::Result;
use crate::kernels::{Kernels, Product};

pub use crate::reference::reference_losses;

/// Returns why the CUDA driver cannot be used here, or `None` if it can.
#[must_use]
pub fn driver_unavailable() -> Option<String> {
    // SAFETY: opens and closes the library, whose initialisers are meant to run in any program.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        return Some("the CUDA driver (libcuda) was not found".into());
    }
    match CudaContext::device_count() {
        Ok(0) => Some("the CUDA driver sees no GPU".into()),
        Ok(_) => None,
        Err(error) => Some(format!("the CUDA driver does not start: {:?}", error.0)),
    }
}

/// Returns why CUDA cannot be used here, or `None` if it can.
///
/// Call this before anything else, because cudarc panics if a library is missing.
pub fn unavailable() -> Option<String> {
    if let Some(why) = driver_unavailable() {
        return Some(why);
    }
    // SAFETY: as in `driver_unavailable`.
    if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        return Some("the CUDA compiler library (libnvrtc) was not found".into());
    }
    // SAFETY: as above.
    let has_cublas = unsafe { cudarc::cublas::sys::is_culib_present() };
    (!has_cublas).then(|| "cuBLAS (libcublas) was not found".into())
}

/// The network, its training data, and its buffers on one GPU.
pub struct Mlp {
    stream: Arc<CudaStream>,
    kernels: Kernels,
    data: Data,
    initial: InitialWeights,

    w1: Parameter,
    b1: Parameter,
    w2: Parameter,
    b2: Parameter,

    x: CudaSlice<f32>,
    target: CudaSlice<f32>,
    hidden: CudaSlice<f32>,
    output: CudaSlice<f32>,
    d_hidden: CudaSlice<f32>,
    d_output: CudaSlice<f32>,
    loss: CudaSlice<f32>,
}

impl Mlp {
    /// Creates the data and the initial weights from `seed`, and prepares GPU number `device`.
    ///
    /// Call [`unavailable`] first.
    ///
    /// # Errors
    /// There is no such GPU, or a CUDA library refuses a call.
    ///
    /// # Panics
    /// Inside cudarc, if a CUDA library is missing.
    pub fn new(seed: u64, device: usize) -> Result<Mlp> {
        let context = CudaContext::new(device)?;
        // SAFETY: all buffers are used and freed on the one stream made below, in its order.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream()?;
        let mut mlp = Mlp {
            kernels: Kernels::new(&stream)?,
            data: Data::new(seed),
            initial: InitialWeights::new(seed),
            w1: Parameter::new(&stream, HIDDEN * INPUT)?,
            b1: Parameter::new(&stream, HIDDEN)?,
            w2: Parameter::new(&stream, OUTPUT * HIDDEN)?,
            b2: Parameter::new(&stream, OUTPUT)?,
            x: stream.alloc_zeros(BATCH * INPUT)?,
            target: stream.alloc_zeros(BATCH * OUTPUT)?,
            hidden: stream.alloc_zeros(BATCH * HIDDEN)?,
            output: stream.alloc_zeros(BATCH * OUTPUT)?,
            d_hidden: stream.alloc_zeros(BATCH * HIDDEN)?,
            d_output: stream.alloc_zeros(BATCH * OUTPUT)?,
            loss: stream.alloc_zeros(1)?,
            stream,
        };
        mlp.reset()?;
        Ok(mlp)
    }

    /// Trains on one batch and waits for it. Returns the loss before the step.
    ///
    /// Any number is valid for `batch`, because the data set repeats. A run counts from 0.
    ///
    /// # Errors
    /// The GPU or a CUDA library reports an error.
    pub fn train_batch(&mut self, batch: usize) -> Result<f32> {
        let _batch = nvtx::range("batch");
        {
            let _range = nvtx::range("copy to device");
            self.copy_to_device(batch)?;
        }
        {
            let _range = nvtx::range("forward");
            self.forward()?;
        }
        {
            let _range = nvtx::range("backward");
            self.backward()?;
        }
        {
            let _range = nvtx::range("optimizer");
            self.optimizer()?;
        }
        self.read_loss()
    }

    /// Runs one batch without ranges, then restores the initial weights.
    ///
    /// The first use of a kernel or of cuBLAS loads code, which a measured run should not contain.
    ///
    /// # Errors
    /// The GPU or a CUDA library reports an error.
    pub fn warm_up(&mut self) -> Result<()> {
        self.copy_to_device(0)?;
        self.forward()?;
        self.backward()?;
        self.optimizer()?;
        self.read_loss()?;
        self.reset()
    }

    fn copy_to_device(&mut self, batch: usize) -> Result<()> {
        let (x, target) = self.data.batch(batch);
        self.stream.memcpy_htod(x, &mut self.x)?;
        self.stream.memcpy_htod(target, &mut self.target)?;
        self.stream.memset_zeros(&mut self.loss)?;
        Ok(())
    }

    fn forward(&mut self) -> Result<()> {
        let k = &self.kernels;
        // hidden [BATCH, HIDDEN] = x [BATCH, INPUT] * W1^T, where W1 is [HIDDEN, INPUT]
        let product = Product::b_transposed(BATCH, HIDDEN, INPUT);
        k.matmul(product, &self.x, &self.w1.value, &mut self.hidden)?;
        k.bias_relu(&mut self.hidden, &self.b1.value)?;
        // output [BATCH, OUTPUT] = hidden [BATCH, HIDDEN] * W2^T, where W2 is [OUTPUT, HIDDEN]
        let product = Product::b_transposed(BATCH, OUTPUT, HIDDEN);
        k.matmul(product, &self.hidden, &self.w2.value, &mut self.output)?;
        k.bias_add(&mut self.output, &self.b2.value)
    }

    fn backward(&mut self) -> Result<()> {
        let k = &self.kernels;
        k.mse_grad(&mut self.d_output, &mut self.loss, &self.output, &self.target)?;
        // dW2 [OUTPUT, HIDDEN] = d_output^T * hidden, where d_output is [BATCH, OUTPUT]
        let product = Product::a_transposed(OUTPUT, HIDDEN, BATCH);
        k.matmul(product, &self.d_output, &self.hidden, &mut self.w2.gradient)?;
        k.col_sum(&mut self.b2.gradient, &self.d_output)?;
        // d_hidden [BATCH, HIDDEN] = d_output [BATCH, OUTPUT] * W2 [OUTPUT, HIDDEN]
        let product = Product::plain(BATCH, HIDDEN, OUTPUT);
        k.matmul(product, &self.d_output, &self.w2.value, &mut self.d_hidden)?;
        k.relu_backward(&mut self.d_hidden, &self.hidden)?;
        // dW1 [HIDDEN, INPUT] = d_hidden^T * x, where d_hidden is [BATCH, HIDDEN]
        let product = Product::a_transposed(HIDDEN, INPUT, BATCH);
        k.matmul(product, &self.d_hidden, &self.x, &mut self.w1.gradient)?;
        k.col_sum(&mut self.b1.gradient, &self.d_hidden)
    }

    fn optimizer(&mut self) -> Result<()> {
        for p in [&mut self.w1, &mut self.b1, &mut self.w2, &mut self.b2] {
            let (rate, momentum) = (LEARNING_RATE, MOMENTUM);
            self.kernels.sgd_update(&mut p.value, &mut p.velocity, &p.gradient, rate, momentum)?;
        }
        Ok(())
    }

    fn read_loss(&mut self) -> Result<f32> {
        let mut loss = [f32::NAN];
        self.stream.memcpy_dtoh(&self.loss, &mut loss)?;
        self.stream.synchronize()?;
        Ok(loss[0])
    }

    /// Restores the initial weights and discards all earlier steps.
    fn reset(&mut self) -> Result<()> {
        self.stream.memcpy_htod(&self.initial.hidden, &mut self.w1.value)?;
        self.stream.memset_zeros(&mut self.b1.value)?;
        self.stream.memcpy_htod(&self.initial.output, &mut self.w2.value)?;
        self.stream.memset_zeros(&mut self.b2.value)?;
        for p in [&mut self.w1, &mut self.b1, &mut self.w2, &mut self.b2] {
            self.stream.memset_zeros(&mut p.velocity)?;
        }
        self.stream.synchronize()?;
        Ok(())
    }
}

impl fmt::Debug for Mlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mlp").field("stream", &self.stream).finish_non_exhaustive()
    }
}

/// A matrix or vector of weights with its gradient and momentum.
struct Parameter {
    value: CudaSlice<f32>,
    gradient: CudaSlice<f32>,
    velocity: CudaSlice<f32>,
}

impl Parameter {
    fn new(stream: &Arc<CudaStream>, len: usize) -> Result<Parameter> {
        Ok(Parameter {
            value: stream.alloc_zeros(len)?,
            gradient: stream.alloc_zeros(len)?,
            velocity: stream.alloc_zeros(len)?,
        })
    }
}
