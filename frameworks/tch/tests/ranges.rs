//! tch on the CPU, with the fake of CUDA beneath the profiler: the ranges of modules, without kernels.
//!
//! Before the test starts, PyTorch's libraries and the fake's `libcuda.so`, `libcupti.so.13` and `libcudart.so.13` have to be in
//! the linker's path: docs/internals/framework-tests.md has the commands. Each test is a process of its own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the helpers are tests too"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::{env, fs};

use gpu_profiler_tch::{InRange, backward, no_grad};
use profiler_core::Profile;
use tch::nn::{self, Module, ModuleT, OptimizerConfig};
use tch::{Device, Kind, Tensor};

#[path = "../../alone.rs"]
mod alone;
use alone::{DRIVER, Hidden, alone, alone_with, is_on_gpu};

/// Every range by its path, with the number of its instances.
fn ranges(profile: &Profile) -> Vec<(String, u64)> {
    let mut found: Vec<(String, u64)> = Vec::new();
    for range in profile.ranges() {
        let path = range.node().path();
        match found.iter_mut().find(|(known, _)| *known == path) {
            Some((_, count)) => *count += 1,
            None => found.push((path, 1)),
        }
    }
    found
}

fn expected(rows: &[(&str, u64)]) -> Vec<(String, u64)> {
    rows.iter().map(|(path, count)| ((*path).to_owned(), *count)).collect()
}

/// The GPU, if there is one that is not a fake.
fn device() -> Device {
    if is_on_gpu() { Device::Cuda(0) } else { Device::Cpu }
}

#[test]
fn parts_of_a_training_step_are_nested_ranges() {
    if !alone("parts_of_a_training_step_are_nested_ranges") {
        return;
    }
    let profiler = gpu_profiler_tch::start().unwrap();
    let variables = nn::VarStore::new(Device::Cpu);
    let root = variables.root();
    let model = nn::seq_t()
        .add(nn::linear(&root / "fc1", 8, 16, Default::default()).in_range("fc1"))
        .add(nn::batch_norm1d(&root / "norm", 16, Default::default()).in_range_t("norm"))
        .add(nn::linear(&root / "fc2", 16, 2, Default::default()).in_range("fc2"))
        .in_range_t("forward");
    let mut optimizer = nn::Sgd::default().build(&variables, 0.1).unwrap().in_range("optimizer");
    let input = Tensor::randn([4, 8], (Kind::Float, Device::Cpu));
    let mut losses = Vec::new();
    for _ in 0..3 {
        let _step = nvtx::range("step");
        let loss = model.forward_t(&input, true).square().mean(Kind::Float);
        optimizer.backward_step(&loss);
        losses.push(loss.double_value(&[]));
    }
    assert!(losses[2] < losses[0], "the ranges leave the training as it is: {losses:?}");
    let output = no_grad(|| model.forward_t(&input, false));
    assert!(!output.requires_grad());
    let loss = model.forward_t(&input, true).square().mean(Kind::Float);
    backward(&loss);
    optimizer.step();
    let profile = profiler.finish().unwrap();
    profile.health().assert_complete();
    assert_eq!(profile.totals().kernels, 0, "the CPU launches nothing");
    let rows = expected(&[
        ("step", 3),
        ("step/forward", 3),
        ("step/forward/fc1", 3),
        ("step/forward/norm", 3),
        ("step/forward/fc2", 3),
        // Zeroes the gradients before the backward pass, and steps after it.
        ("step/optimizer", 6),
        ("step/backward", 3),
        ("no_grad", 1),
        ("no_grad/forward", 1),
        ("no_grad/forward/fc1", 1),
        ("no_grad/forward/norm", 1),
        ("no_grad/forward/fc2", 1),
        ("forward", 1),
        ("forward/fc1", 1),
        ("forward/norm", 1),
        ("forward/fc2", 1),
        ("backward", 1),
        ("optimizer", 1),
    ]);
    assert_eq!(ranges(&profile), rows, "{profile}");
}

#[test]
fn panics_of_tch_go_through_and_end_their_range() {
    if !alone("panics_of_tch_go_through_and_end_their_range") {
        return;
    }
    let profiler = gpu_profiler_tch::start().unwrap();
    let fails = nn::func(|x| x.view([3, 3])).in_range("fails");
    let input = Tensor::zeros([2, 2], (Kind::Float, device()));
    let panic = catch_unwind(AssertUnwindSafe(|| fails.forward(&input))).map(drop).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("shape '[3, 3]' is invalid"), "{text}");
    // More memory than there is, in the middle of a step.
    let refused = {
        let _step = nvtx::range("step");
        let _before = &input + 1.0;
        Tensor::f_zeros([1 << 30, 1 << 30], (Kind::Float, device())).map(drop).unwrap_err()
    };
    assert!(refused.to_string().contains("alloc"), "{refused}");
    let _after = nvtx::range("after");
    drop(_after);
    let profile = profiler.finish().unwrap();
    profile.health().assert_complete();
    assert_eq!(profile.health().facts.open_ranges, 0);
    assert_eq!(ranges(&profile), expected(&[("fails", 1), ("step", 1), ("after", 1)]));
}

#[test]
fn sessions_overlap_and_threads_with_models_of_their_own_keep_their_ranges() {
    if !alone("sessions_overlap_and_threads_with_models_of_their_own_keep_their_ranges") {
        return;
    }
    let pass = |name: &str| {
        let variables = nn::VarStore::new(device());
        let model = nn::linear(variables.root(), 4, 4, Default::default()).in_range(name);
        backward(&model.forward(&Tensor::ones([2, 4], (Kind::Float, device()))).sum(Kind::Float));
    };
    let first = gpu_profiler_tch::start().unwrap();
    pass("first");
    let second = gpu_profiler_tch::start().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| pass("both"));
        }
    });
    let first = first.finish().unwrap();
    pass("second");
    let second = second.finish().unwrap();
    // PyTorch's threads are still there.
    pass("none");
    for (profile, name, count) in [(&first, "first", 1), (&second, "second", 1)] {
        profile.health().assert_complete();
        let of =
            |path: &str| ranges(profile).iter().find(|(found, _)| found == path).map(|row| row.1);
        assert_eq!([of(name), of("both"), of("backward")], [Some(count), Some(4), Some(5)]);
        assert_eq!(of("none"), None);
        let kernels =
            [name, "both"].map(|name| profile.range(name).map_or(0, |range| range.kernels()));
        assert_eq!(kernels.map(|count| count > 0), [is_on_gpu(); 2], "{profile}");
    }
}

#[test]
fn program_without_a_driver_trains_without_a_session() {
    const TEST: &str = "program_without_a_driver_trains_without_a_session";
    let hidden = Hidden::new(DRIVER);
    // A folder without libcuda. PyTorch itself needs the libraries beside it.
    let path = if is_on_gpu() { hidden.path() } else { env::var("WITHOUT_DRIVER").unwrap() };
    if alone_with(TEST, &[("LD_LIBRARY_PATH", &path)]).is_some() {
        return;
    }
    let error = gpu_profiler_tch::start().map(drop).unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    let module = nn::func(|x| x + 1.0).in_range("module");
    let output = module.forward(&Tensor::zeros([1], (Kind::Float, Device::Cpu)));
    assert!((output.double_value(&[0]) - 1.0).abs() < 1e-6);
}

#[test]
fn example_has_a_range_for_every_part_of_its_steps() {
    let own = env::current_exe().unwrap();
    let program = own.parent().unwrap().parent().unwrap().join("examples/digits");
    let file = env::temp_dir().join(format!("tch-digits-{}.gpuprof", std::process::id()));
    let mut command = Command::new(program);
    let output = command.args(["--cpu", "--steps", "3", "--save"]).arg(&file).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let profile = Profile::load(&file).unwrap();
    fs::remove_file(&file).unwrap();
    profile.health().assert_complete();
    let found = ranges(&profile);
    for part in
        ["data", "forward", "forward/conv1", "forward/conv2", "forward/norm", "forward/pool"]
            .into_iter()
            .chain(["forward/fc1", "forward/fc2", "loss", "backward"])
    {
        let path = format!("step/{part}");
        assert!(found.contains(&(path.clone(), 3)), "{path}: {text}");
    }
    assert!(found.contains(&("step/optimizer".to_owned(), 6)), "{text}");
    assert!(found.contains(&("no_grad/forward/fc2".to_owned(), 1)), "{text}");
    assert!(text.contains("before the session"), "{text}");
}
