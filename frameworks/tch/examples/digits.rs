//! A small convolutional network in tch, trained for some steps and evaluated, with the GPU time of every module.
//!
//! Of the profiler are the lines with `profiler`, `in_range` and `no_grad`, and the range of a step.
//!
//! ```sh
//! cargo run --release --example digits -- --save digits.gpuprof
//! ```
//!
//! `--plain` profiles nothing, `--steps N` sets the steps, `--cpu` trains on the CPU. `--alone` waits for the GPU wherever a range
//! begins or ends, and counts kernels by time alone: what every module launches, by another way.

#[path = "../../checks.rs"]
mod checks;

use std::error::Error;
use std::time::{Duration, Instant};

use checks::Options;
use gpu_profiler_tch::{InRange, RangedT, no_grad};
use tch::nn::{self, ModuleT, OptimizerConfig};
use tch::{Device, Kind, Tensor};

const BATCH: i64 = 64;
const SIDE: i64 = 28;
const CLASSES: i64 = 10;

fn network(root: &nn::Path<'_>) -> RangedT<nn::SequentialT> {
    let conv = |name: &str, from, to| {
        nn::conv2d(root / name, from, to, 3, Default::default()).in_range(name)
    };
    let linear =
        |name: &str, from, to| nn::linear(root / name, from, to, Default::default()).in_range(name);
    nn::seq_t()
        .add(conv("conv1", 1, 8))
        .add_fn(|x| x.relu())
        .add(conv("conv2", 8, 16))
        .add(nn::batch_norm2d(root / "norm", 16, Default::default()).in_range_t("norm"))
        .add(nn::func(|x| x.relu().max_pool2d_default(2)).in_range("pool"))
        .add_fn(|x| x.flatten(1, -1))
        .add(linear("fc1", 16 * 12 * 12, 64))
        .add_fn(|x| x.relu())
        .add(linear("fc2", 64, CLASSES))
        .in_range_t("forward")
}

/// Images with their classes: a bar whose place is the class.
fn batch(number: i64, device: Device) -> (Tensor, Tensor) {
    let classes: Vec<_> = (0..BATCH).map(|image| (number * 7 + image) % CLASSES).collect();
    let pixel = |at: i64| (at % (SIDE * SIDE) / SIDE / 2, classes[(at / (SIDE * SIDE)) as usize]);
    let pixels: Vec<_> = (0..BATCH * SIDE * SIDE)
        .map(|at| if pixel(at).0 == pixel(at).1 { 1.0_f32 } else { 0.0 })
        .collect();
    let images = Tensor::from_slice(&pixels).view([BATCH, 1, SIDE, SIDE]).to_device(device);
    (images, Tensor::from_slice(&classes).to_device(device))
}

/// Trains for some steps and returns the time of each.
fn train(device: Device, steps: usize) -> Result<Vec<Duration>, tch::TchError> {
    let variables = nn::VarStore::new(device);
    let model = network(&variables.root());
    let mut optimizer = nn::Adam::default().build(&variables, 1e-3)?.in_range("optimizer");
    let mut times = Vec::new();
    for step in 0..steps {
        let start = Instant::now();
        let _step = nvtx::range("step");
        let (images, classes) = {
            let _data = nvtx::range("data");
            batch(step as i64, device)
        };
        let logits = model.forward_t(&images, true);
        let loss = {
            let _loss = nvtx::range("loss");
            logits.cross_entropy_for_logits(&classes)
        };
        optimizer.backward_step(&loss);
        let _: f64 = loss.double_value(&[]);
        times.push(start.elapsed());
    }
    let (images, classes) = batch(0, device);
    let right = no_grad(|| model.forward_t(&images, false).accuracy_for_logits(&classes));
    println!("{:.0} % right", 100.0 * right.to_kind(Kind::Double).double_value(&[]));
    Ok(times)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut on_cpu = false;
    let options = Options::parse(20, |option, _| {
        on_cpu |= option == "--cpu";
        Ok(option == "--cpu")
    })?;
    let device = if on_cpu { Device::Cpu } else { Device::cuda_if_available() };
    options.doing(&format!("training on {device:?}, before the session"));
    train(device, 2)?;
    if options.alone {
        checks::synchronise_at_boundaries(|| {
            if tch::Cuda::is_available() {
                tch::Cuda::synchronize(0);
            }
        });
    }
    options.doing("training");
    if options.plain {
        options.print_times(&train(device, options.steps)?);
        return Ok(());
    }
    let profiler = gpu_profiler_tch::start()?;
    options.print_times(&train(device, options.steps)?);
    options.finish(&profiler.finish()?)
}
