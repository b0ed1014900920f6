//! A small convolutional network in burn, trained for some steps, with the GPU time of every module.
//!
//! Of the profiler are the lines with `profiler` and `in_range`, `backward` and the range of a step.
//!
//! ```sh
//! cargo run --release --features fusion --example train -- --fusion --save train.gpuprof
//! ```
//!
//! `--boundaries` lets no kernel cross a range, `--plain` profiles nothing, `--steps N` sets the steps. `--alone` waits for the
//! GPU wherever a range begins or ends, and counts kernels by time alone: what every module launches, by another way.
//!
//! Before the steps come two more, in which burn compiles and tunes its kernels: the program prints what it does at once and every
//! 5 s. `CUBECL_AUTOTUNE_LEVEL=minimal` tunes less.

#[path = "../../checks.rs"]
mod checks;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use burn::backend::Autodiff;
use burn::backend::cuda::CudaDevice;
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig, Relu};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{ElementConversion, Int, Tensor, TensorData};
use burn_cubecl::CubeBackend;
use checks::Options;
use cubecl::cuda::CudaRuntime;
use gpu_profiler_burn::{InRange, Ranged, compilations};

/// The CUDA backend without fusion, which `burn::backend::Cuda` is if burn's feature `fusion` is off.
type Unfused = CubeBackend<CudaRuntime, f32, i32, u8>;

const BATCH: usize = 64;
const SIDE: usize = 28;
const CLASSES: usize = 10;

#[derive(Module, Debug)]
struct Network<B: Backend> {
    conv1: Ranged<Conv2d<B>>,
    conv2: Ranged<Conv2d<B>>,
    pool: Ranged<MaxPool2d>,
    norm: Ranged<LayerNorm<B>>,
    fc1: Ranged<Linear<B>>,
    fc2: Ranged<Linear<B>>,
}

impl<B: Backend> Network<B> {
    fn new(device: &B::Device) -> Self {
        let flat = 16 * 12 * 12;
        Self {
            conv1: Conv2dConfig::new([1, 8], [3, 3]).init(device).in_range("conv1"),
            conv2: Conv2dConfig::new([8, 16], [3, 3]).init(device).in_range("conv2"),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init().in_range("pool"),
            norm: LayerNormConfig::new(flat).init(device).in_range("norm"),
            fc1: LinearConfig::new(flat, 64).init(device).in_range("fc1"),
            fc2: LinearConfig::new(64, CLASSES).init(device).in_range("fc2"),
        }
    }

    fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let _forward = nvtx::range("forward");
        let x = Relu::new().forward(self.conv1.forward(images));
        let x = Relu::new().forward(self.conv2.forward(x));
        let x = self.pool.forward(x).flatten::<2>(1, 3);
        let x = Relu::new().forward(self.fc1.forward(self.norm.forward(x)));
        self.fc2.forward(x)
    }
}

/// Images with their classes: a bar whose place is the class.
fn batches<B: Backend>(
    device: B::Device,
) -> impl Iterator<Item = (Tensor<B, 4>, Tensor<B, 1, Int>)> {
    (0..).map(move |batch: usize| {
        let class = |image: usize| (batch * 7 + image) % CLASSES;
        let pixel = |at: usize| {
            let (image, row) = (at / (SIDE * SIDE), at % (SIDE * SIDE) / SIDE);
            if row / 2 == class(image) { 1.0_f32 } else { 0.0 }
        };
        let pixels: Vec<_> = (0..BATCH * SIDE * SIDE).map(pixel).collect();
        let classes: Vec<_> = (0..BATCH).map(|image| class(image) as i32).collect();
        (
            Tensor::from_data(TensorData::new(pixels, [BATCH, 1, SIDE, SIDE]), &device),
            Tensor::from_data(TensorData::new(classes, [BATCH]), &device),
        )
    })
}

/// Trains for some steps and returns the time of each.
fn train<B: AutodiffBackend>(device: &B::Device, steps: usize) -> Vec<Duration> {
    let mut network = Network::<B>::new(device);
    let mut optimizer = AdamConfig::new().init().in_range("optimizer");
    let mut data = batches::<B>(device.clone()).in_range("data");
    let mut times = Vec::new();
    for _ in 0..steps {
        let start = Instant::now();
        let _step = nvtx::range("step");
        let Some((images, classes)) = data.next() else { break };
        let logits = network.forward(images);
        let loss = {
            let _loss = nvtx::range("loss");
            CrossEntropyLossConfig::new().init(device).forward(logits, classes)
        };
        let gradients = gpu_profiler_burn::backward(&loss);
        let gradients = GradientsParams::from_grads(gradients, &network);
        network = optimizer.step(1e-3, network, gradients);
        let _: f32 = loss.into_scalar().elem();
        times.push(start.elapsed());
    }
    times
}

/// Trains for some steps in a session that knows what is compiled and tuned, and prints how long it takes.
fn warm_up<B: AutodiffBackend<Device = CudaDevice>>(
    options: &Options,
    device: &CudaDevice,
) -> Result<(), Box<dyn Error>> {
    options.doing("compiling and tuning the kernels of 2 steps; minutes where that was never done");
    let profiler = gpu_profiler_burn::builder().compilations(true).start([device.clone()])?;
    let (ended, is_ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let profiler = &profiler;
        scope.spawn(move || {
            while is_ended.recv_timeout(Duration::from_secs(5)) == Err(RecvTimeoutError::Timeout) {
                let launches = profiler.launches();
                let counts = (launches.operations, launches.autotune);
                options.doing(&format!("{} launches, {} of autotune", counts.0, counts.1));
            }
        });
        train::<B>(device, 2);
        drop(ended);
    });
    let profile = profiler.finish()?;
    let mut sums: BTreeMap<&str, (u64, Duration)> = BTreeMap::new();
    for one in compilations(&profile) {
        let of = one.range.map_or("outside ranges", |range| range.name());
        let sum = sums.entry(of).or_default();
        *sum = (sum.0 + 1, sum.1 + one.time);
    }
    let tuned: u64 = profile.ranges().filter(|range| range.name() == "autotune").count() as u64;
    for (of, (count, time)) in sums {
        options.doing(&format!("compiled for {of}: {count} kernels in {time:.2?}"));
    }
    options.doing(&format!("{tuned} launches of autotune"));
    Ok(())
}

fn run<B: AutodiffBackend<Device = CudaDevice>>(
    options: &Options,
    boundaries: bool,
) -> Result<(), Box<dyn Error>> {
    let device = CudaDevice::default();
    if options.plain {
        options.doing("compiling and tuning the kernels of 2 steps");
        train::<B>(&device, 2);
        options.doing("training");
        options.print_times(&train::<B>(&device, options.steps));
        return Ok(());
    }
    warm_up::<B>(options, &device)?;
    if options.alone {
        checks::synchronise_at_boundaries(|| drop(B::sync(&CudaDevice::default())));
    }
    options.doing("training");
    let profiler = gpu_profiler_burn::builder().boundaries(boundaries).start([device.clone()])?;
    options.print_times(&train::<B>(&device, options.steps));
    println!("{:?}\n", profiler.launches());
    options.finish(&profiler.finish()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut fusion, mut boundaries) = (false, false);
    let options = Options::parse(10, |option, _| {
        fusion |= option == "--fusion";
        boundaries |= option == "--boundaries";
        Ok(matches!(option, "--fusion" | "--boundaries"))
    })?;
    if fusion {
        run::<Autodiff<burn::backend::Cuda>>(&options, boundaries)
    } else {
        run::<Autodiff<Unfused>>(&options, boundaries)
    }
}
