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

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::OnceLock;
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
use cubecl::cuda::CudaRuntime;
use gpu_profiler_burn::{InRange, Ranged};
use profiler_core::Profile;

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

#[derive(Default)]
struct Options {
    fusion: bool,
    boundaries: bool,
    plain: bool,
    alone: bool,
    steps: usize,
    save: Option<String>,
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options = Options { steps: 10, ..Options::default() };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--fusion" => options.fusion = true,
            "--boundaries" => options.boundaries = true,
            "--plain" => options.plain = true,
            "--alone" => options.alone = true,
            "--steps" => options.steps = value()?.parse()?,
            "--save" => options.save = Some(value()?),
            _ => return Err(format!("unknown option: {argument}").into()),
        }
    }
    Ok(options)
}

fn run<B: AutodiffBackend<Device = CudaDevice>>(options: &Options) -> Result<(), Box<dyn Error>> {
    let device = CudaDevice::default();
    if options.alone {
        synchronise_at_boundaries(|| drop(B::sync(&CudaDevice::default())));
    }
    if !options.plain {
        // All kernels of autotune and all compilations are in these steps.
        train::<B>(&device, 2);
        let profiler =
            gpu_profiler_burn::builder().boundaries(options.boundaries).start([device.clone()])?;
        print_times(train::<B>(&device, options.steps));
        println!("{:?}\n", profiler.launches());
        let profile = profiler.finish()?;
        println!("{profile}");
        print_attributed(&profile, options.alone);
        if let Some(file) = &options.save {
            profile.save(file)?;
        }
        return Ok(());
    }
    train::<B>(&device, 2);
    print_times(train::<B>(&device, options.steps));
    Ok(())
}

fn print_times(mut times: Vec<Duration>) {
    times.sort();
    if let [first, .., last] = times[..] {
        println!(
            "{} steps: median {:?}, from {first:?} to {last:?}",
            times.len(),
            times[times.len() / 2]
        );
    }
}

/// Kernels by the range that they are attributed to, and by the range within whose time they ran.
fn print_attributed(profile: &Profile, alone: bool) {
    let mut kernels: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for range in profile.ranges() {
        let of_range = kernels.entry(range.node().path()).or_default();
        of_range.0 += range.inclusive().kernels;
        if alone {
            let within = |at: Duration| range.start() <= at && at < range.end();
            let starts = profile.query().kernels().iter().filter_map(|kernel| kernel.start());
            of_range.1 += starts.filter(|start| within(*start)).count() as u64;
        }
    }
    let (all, outside) = (profile.totals().kernels, profile.outside_ranges().kernels);
    println!("\n{} of {all} kernels in ranges", all - outside);
    for (path, (attributed, within)) in kernels {
        let within = if alone { format!(", {within} by time") } else { String::new() };
        println!("{path}: {attributed} kernels{within}");
    }
}

/// Makes every range run alone: what was issued before has ended when it begins, and its own work when it ends.
fn synchronise_at_boundaries(synchronise: fn()) {
    static SYNCHRONISE: OnceLock<fn()> = OnceLock::new();
    fn changed() {
        let is_of_program = std::thread::current().name() == Some("main");
        if let Some(synchronise) = SYNCHRONISE.get().filter(|_| is_of_program) {
            synchronise();
        }
    }
    SYNCHRONISE.get_or_init(|| synchronise);
    profiler_core::session::on_context_change(changed);
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    if options.fusion {
        run::<Autodiff<burn::backend::Cuda>>(&options)
    } else {
        run::<Autodiff<Unfused>>(&options)
    }
}
