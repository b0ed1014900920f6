//! Burn's CUDA backend on the fake driver: real queues, fusion and autotune, kernels that NVRTC compiles, without a GPU.
//!
//! Before the test starts, the fake's `libcuda.so` and `libcupti.so.13` and a real `libnvrtc.so` have to be in the linker's path,
//! and `CUDA_PATH` has to name CUDA's headers: docs/internals/framework-tests.md has the commands.
//! Each test is a process of its own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the helpers are tests too"
)]

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::Duration;
use std::{env, fs, thread};

use burn::backend::Cuda;
use burn::backend::cuda::CudaDevice;
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};
use burn_cubecl::CubeBackend;
use cubecl::cuda::CudaRuntime;
use gpu_profiler_burn::{Compilation, InRange};
use profiler_core::profile::GpuOperation;
use profiler_core::{Profile, Profiler, exactly, expect};

type Unfused = CubeBackend<CudaRuntime, f32, i32, u8>;
type Fused = Cuda;

#[path = "../../alone.rs"]
mod alone;
use alone::{
    DRIVER, Hidden, alone, alone_with, alone_with_two_devices, is_on_gpu, print_by_device,
};

/// The names of the ranges that a kernel belongs to.
fn ranges_of(kernel: &GpuOperation<'_>) -> BTreeSet<String> {
    kernel.ranges().map(|range| range.name().to_owned()).collect()
}

fn kernels_of(profile: &Profile) -> Vec<(String, BTreeSet<String>)> {
    profile.kernels().map(|kernel| (kernel.demangled_name(), ranges_of(&kernel))).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn kernels(profile: &Profile, path: &str) -> u64 {
    profile.range(path).map_or(0, |range| range.kernels())
}

fn in_range<R>(name: &str, f: impl FnOnce() -> R) -> R {
    let _range = nvtx::range(name);
    f()
}

/// Two kernels in `outer` and two in `inner` within it, 50 times; with fusion within a range one of each kind.
fn nest<B: Backend>(device: &B::Device) {
    let a = Tensor::<B, 2>::ones([64, 64], device);
    let mut kept = Vec::new();
    for _ in 0..50 {
        let _outer = nvtx::range("outer");
        let x = a.clone() + 1.0;
        let y = in_range("inner", || x.clone().sin() * 2.0);
        kept.push((y + x.clone(), x));
    }
}

#[test]
fn kernels_of_several_threads_are_in_their_innermost_ranges() {
    if !alone("kernels_of_several_threads_are_in_their_innermost_ranges") {
        return;
    }
    let device = CudaDevice::default();
    let profiler = gpu_profiler_burn::start([device.clone()]).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                nest::<Unfused>(&device);
                profiler.wait_launched();
            });
        }
    });
    let launches = profiler.launches();
    let profile = profiler.finish().unwrap();
    profile.health().assert_complete();
    for (name, count) in [("outer", 4), ("inner", 2)] {
        let of_name: Vec<_> = profile.ranges().filter(|range| range.name() == name).collect();
        assert_eq!(of_name.len(), 200);
        assert!(
            of_name.iter().all(|range| range.inclusive().kernels == count),
            "{name}: {profile}"
        );
    }
    assert_eq!(profile.totals().kernels, 4 * 201);
    assert_eq!((launches.operations, launches.fused), (4 * 201, 0));
    assert_eq!(profile.outside_ranges().kernels, 4, "the tensors that each thread begins with");
}

#[test]
fn boundaries_keep_kernels_within_ranges_and_cost_kernels() {
    if !alone("boundaries_keep_kernels_within_ranges_and_cost_kernels") {
        return;
    }
    let device = CudaDevice::default();
    let run = |boundaries: bool| {
        let profiler =
            gpu_profiler_burn::builder().boundaries(boundaries).start([device.clone()]).unwrap();
        nest::<Fused>(&device);
        profiler.finish().unwrap()
    };
    let (free, bounded) = (run(false), run(true));
    bounded.health().assert_complete();
    let outer: Vec<_> = bounded.ranges().filter(|range| range.name() == "outer").collect();
    // One before the inner range, one in it and one after it.
    assert!(
        outer.len() == 50 && outer.iter().all(|range| range.inclusive().kernels == 3),
        "{bounded}"
    );
    assert_eq!(kernels(&bounded, "outer/inner"), 50);
    assert!(kernels_of(&bounded).iter().all(|(_, ranges)| ranges.len() <= 1));
    let counts = [free.totals().kernels, bounded.totals().kernels];
    assert!(counts[0] < counts[1], "{counts:?}");
}

/// Three small models, with the ranges of each kernel by hand.
fn three_models<B: Backend>(device: &B::Device) {
    let a = Tensor::<B, 2>::random([64, 64], Distribution::Default, device);
    let b = Tensor::<B, 2>::random([32, 16], Distribution::Default, device);
    B::sync(device).unwrap();
    // One kernel of two modules.
    let x = in_range("add", || (a.clone() + 1.0).exp());
    let y = in_range("scale", || x.sin() * 2.0);
    B::sync(device).unwrap();
    // Kernels of different shapes, which can't be fused.
    let small = in_range("small", || b.clone().cos() + 3.0);
    let large = in_range("large", || a.clone().cos() + 3.0);
    B::sync(device).unwrap();
    // Three modules of a model, of which the middle one sums.
    let model = nvtx::range("model");
    let before = in_range("before", || a.clone() * 2.0);
    let sum = in_range("sum", || before.clone().sum_dim(1));
    let after = in_range("after", || (sum + 1.0).exp());
    drop(model);
    B::sync(device).unwrap();
    drop((y, small, large, before, after));
}

#[test]
fn fused_kernels_carry_the_ranges_of_their_plan() {
    if !alone("fused_kernels_carry_the_ranges_of_their_plan") {
        return;
    }
    let device = CudaDevice::default();
    three_models::<Fused>(&device); // autotune
    let profiler = gpu_profiler_burn::start([device.clone()]).unwrap();
    three_models::<Fused>(&device);
    let launches = profiler.launches();
    assert_eq!([launches.unexplained, launches.autotune], [0; 2], "{launches:?}");
    let profile = profiler.finish().unwrap();
    profile.health().assert_complete();
    let kernels = kernels_of(&profile);
    let count = |names: &[&str]| kernels.iter().filter(|(_, ranges)| *ranges == set(names)).count();
    assert_eq!(count(&["add", "scale"]), 1, "{kernels:#?}");
    // Burn plans these kernels together or not. None carries a range of another model.
    let of = |names: &[&str]| {
        let names = set(names);
        let ranges = kernels.iter().map(|(_, ranges)| ranges);
        let found: Vec<_> = ranges.filter(|ranges| !ranges.is_disjoint(&names)).collect();
        assert!(found.iter().all(|ranges| ranges.is_subset(&names)), "{kernels:#?}");
        found
    };
    let shapes = of(&["small", "large"]);
    assert_eq!(shapes.len(), 2, "{kernels:#?}");
    assert!(shapes.iter().any(|ranges| ranges.contains("large")), "{kernels:#?}");
    let of_model = of(&["model", "before", "sum", "after"]);
    assert!(of_model.iter().any(|ranges| ranges.contains("sum")), "{kernels:#?}");
    assert_eq!(self::kernels(&profile, "model"), of_model.len() as u64, "{profile}");
    // Several ranges are uncertain, and count for the one around them.
    let several = |ranges: &&&BTreeSet<String>| ranges.len() > 1;
    let uncertain = of_model.iter().filter(several).count() as u64;
    assert_eq!(profile.range("model").unwrap().exclusive().kernels, uncertain, "{profile}");
    let all = 1 + uncertain + shapes.iter().filter(several).count() as u64;
    assert_eq!(launches.uncertain, all, "{launches:?}");
    // The two that make random numbers were issued outside ranges.
    assert_eq!(count(&[]), 2, "{kernels:#?}");
    assert_eq!(kernels.len(), 5 + of_model.len(), "{kernels:#?}");
}

#[test]
fn profiler_leaves_fusion_unchanged() {
    const TEST: &str = "profiler_leaves_fusion_unchanged";
    let names = |variant: &str| {
        let out = alone_with(TEST, &[("VARIANT", variant)])?;
        Some(
            out.lines()
                .filter(|line| line.starts_with("kernel "))
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        )
    };
    if let Some(warm) = names("bare") {
        let [bare, ours] = [names("bare").unwrap(), names("ours").unwrap()];
        assert!(bare.len() > 5 && warm.len() > 5, "{bare:?}");
        assert_eq!(bare, ours);
        return;
    }
    let device = CudaDevice::default();
    three_models::<Fused>(&device);
    let profile = if env::var("VARIANT").unwrap() == "ours" {
        let profiler = gpu_profiler_burn::start([device.clone()]).unwrap();
        three_models::<Fused>(&device);
        nest::<Fused>(&device);
        profiler.finish().unwrap()
    } else {
        let profiler = Profiler::builder().build().unwrap();
        profiler.start().unwrap();
        three_models::<Fused>(&device);
        nest::<Fused>(&device);
        Fused::sync(&device).unwrap();
        profiler.stop().unwrap()
    };
    for (name, _) in kernels_of(&profile) {
        println!("\nkernel {name}");
    }
}

#[test]
fn kernels_of_autotune_are_apart_from_those_of_the_operation() {
    if !alone("kernels_of_autotune_are_apart_from_those_of_the_operation") {
        return;
    }
    let device = CudaDevice::default();
    let profiler = gpu_profiler_burn::builder().compilations(true).start([device.clone()]).unwrap();
    // A shape that no other test has, as results are kept in a file.
    let side = 8 * (20 + usize::try_from(std::process::id() % 100).unwrap());
    let a = Tensor::<Unfused, 2>::ones([side, 24], &device);
    let b = in_range("first", || a.clone().matmul(a.clone().transpose()));
    let c = in_range("second", || a.clone().matmul(a.transpose()));
    Unfused::sync(&device).unwrap();
    drop((b, c));
    let launches = profiler.launches();
    let profile = profiler.finish().unwrap();
    profile.health().assert_complete();
    assert_eq!(kernels(&profile, "second/autotune"), 0, "{profile}");
    let own = |path: &str| kernels(&profile, path) - kernels(&profile, &format!("{path}/autotune"));
    assert!(own("first") >= own("second") && own("second") > 0, "{profile}");
    assert_eq!(kernels(&profile, "first/autotune"), launches.autotune, "{profile}");
    // The candidates were compiled for autotune, what it chose not again, and the tensor outside ranges.
    let compiled: Vec<_> = gpu_profiler_burn::compilations(&profile).collect();
    let path = |one: &Compilation<'_>| one.range.map(|range| range.node().path());
    let of =
        |wanted: Option<&str>| compiled.iter().filter(|one| path(one).as_deref() == wanted).count();
    let counts = [Some("first/autotune"), Some("second"), Some("second/autotune"), None].map(of);
    assert!(counts[0] > 1 && counts[1..3] == [0, 0] && counts[3] >= 1, "{counts:?}: {compiled:?}");
    // NVRTC takes milliseconds at least; a candidate that burn refuses before takes less.
    let of_nvrtc = compiled.iter().filter(|one| one.time > Duration::from_millis(1)).count();
    assert!(2 * of_nvrtc > compiled.len(), "{compiled:?}");
}

/// In a process of its own for the test of this name; `None` in others.
fn two_devices(test: &str) -> Option<[CudaDevice; 2]> {
    alone_with_two_devices(test).then(|| [CudaDevice::new(0), CudaDevice::new(1)])
}

#[test]
fn threads_with_a_device_each_keep_their_ranges() {
    let Some(devices) = two_devices("threads_with_a_device_each_keep_their_ranges") else { return };
    let profiler = gpu_profiler_burn::start(devices.clone()).unwrap();
    thread::scope(|scope| {
        for device in &devices {
            let profiler = &profiler;
            scope.spawn(move || {
                nest::<Unfused>(device);
                in_range("fused", || {
                    let x = (Tensor::<Fused, 1>::ones([64], device) + 1.0).exp();
                    Fused::sync(device).unwrap();
                    drop(x);
                });
                profiler.wait_launched();
            });
        }
    });
    let profile = profiler.finish().unwrap();
    profile.health().assert_complete();
    let of = |name: &str| {
        let on =
            |device: u32| profile.query().device(device).in_range(name).kernels().iter().count();
        [0, 1].map(on)
    };
    print_by_device(&[("outer", of("outer")), ("fused", of("fused"))]);
    assert_eq!(of("outer"), [200; 2], "{profile}");
    assert!(of("fused").iter().all(|count| *count > 0), "{profile}");
    assert_eq!(profile.outside_ranges().kernels, 2, "{profile}");
}

#[test]
fn model_on_two_devices_keeps_its_ranges() {
    let Some(devices) = two_devices("model_on_two_devices_keeps_its_ranges") else { return };
    let profiler = gpu_profiler_burn::start(devices.clone()).unwrap();
    for _ in 0..20 {
        let _step = nvtx::range("step");
        let x = in_range("first half", || Tensor::<Unfused, 1>::ones([64], &devices[0]) + 1.0);
        let x = in_range("second half", || x.to_device(&devices[1]) * 2.0);
        drop(x);
    }
    let profile = profiler.finish().unwrap();
    profile.health().assert_complete();
    // Between two GPUs burn copies by kernels of NCCL, on both.
    let on = |device: u32, name: &str| {
        let kernels = profile.query().device(device).in_range(name).kernels();
        let kernels = kernels.iter().filter_map(|operation| operation.as_kernel());
        kernels.filter(|kernel| !kernel.name().contains("nccl")).count()
    };
    let counts = ["first half", "second half"].map(|half| [0, 1].map(|device| on(device, half)));
    print_by_device(&[("first half", counts[0]), ("second half", counts[1])]);
    assert_eq!([counts[0][0], counts[1][1]], [40, 20], "{profile}");
    assert_eq!(counts[0][1], 0, "{profile}");
    assert_eq!(profile.outside_ranges().kernels, 0, "{profile}");
}

#[test]
fn sessions_overlap_and_the_device_thread_outlives_them() {
    if !alone("sessions_overlap_and_the_device_thread_outlives_them") {
        return;
    }
    let device = CudaDevice::default();
    let first = gpu_profiler_burn::start([device.clone()]).unwrap();
    nest::<Unfused>(&device);
    let second = gpu_profiler_burn::start([device.clone()]).unwrap();
    nest::<Unfused>(&device);
    let first = first.finish().unwrap();
    nest::<Unfused>(&device);
    let second = second.finish().unwrap();
    // Without a session, on the same threads.
    nest::<Unfused>(&device);
    nest::<Fused>(&device);
    let third = gpu_profiler_burn::start([device.clone()]).unwrap();
    nest::<Fused>(&device);
    let third = third.finish().unwrap();
    for profile in [&first, &second, &third] {
        profile.health().assert_complete();
        assert_eq!(profile.health().facts.open_ranges, 0);
    }
    assert_eq!([kernels(&first, "outer"), kernels(&second, "outer")], [400, 400]);
    assert!(kernels(&third, "outer") > 0, "{third}");
    let outers =
        |profile: &Profile| profile.ranges().filter(|range| range.name() == "outer").count();
    assert_eq!([outers(&first), outers(&second), outers(&third)], [100, 100, 50]);
}

#[test]
fn errors_and_panics_of_burn_go_through_and_end_their_range() {
    if !alone("errors_and_panics_of_burn_go_through_and_end_their_range") {
        return;
    }
    let device = CudaDevice::default();
    let profiler = gpu_profiler_burn::start([device.clone()]).unwrap();
    let a = Tensor::<Unfused, 2>::ones([8, 8], &device);
    let module = ().in_range("panics");
    let panics = AssertUnwindSafe(|| {
        module.run(|()| {
            let _b = a.clone() + 1.0;
            panic!("in a module")
        })
    });
    let panic = catch_unwind(panics).map(drop).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"in a module"));
    let after = a.clone() + 1.0;
    // More than the device has, in the middle of a step.
    let refused = in_range("step", || {
        let before = a.clone() + 1.0;
        let large = catch_unwind(|| {
            let large = Tensor::<Unfused, 2>::ones([1 << 22, 1 << 21], &CudaDevice::default());
            large.sum().into_scalar()
        });
        drop(before);
        large.is_err()
    });
    let later = in_range("later", || a.clone() + 1.0);
    let read = catch_unwind(AssertUnwindSafe(|| Unfused::sync(&device)));
    assert!(refused || !matches!(read, Ok(Ok(()))), "burn did not notice that memory was refused");
    drop((after, later));
    let profile = profiler.finish().unwrap();
    assert_eq!(profile.health().facts.open_ranges, 0);
    assert_eq!([kernels(&profile, "panics"), kernels(&profile, "later")], [1, 1], "{profile}");
    assert!(kernels(&profile, "step") >= 1, "{profile}");
    assert_eq!(profile.outside_ranges().kernels, 2, "{profile}");
}

#[test]
fn program_without_a_driver_gets_burns_own_panic() {
    const TEST: &str = "program_without_a_driver_gets_burns_own_panic";
    let hidden = Hidden::new(DRIVER);
    // The fake's driver and its CUPTI are one file.
    let path = if is_on_gpu() { hidden.path() } else { String::new() };
    if alone_with(TEST, &[("LD_LIBRARY_PATH", &path)]).is_some() {
        return;
    }
    let error = gpu_profiler_burn::start([CudaDevice::default()]).map(drop).unwrap_err();
    let gpu_profiler_burn::Error::Profiler(error) = error else { panic!("{error}") };
    assert!(error.is_unavailable(), "{error}");
    let burns = catch_unwind(|| {
        let _range = nvtx::range("step");
        Tensor::<Unfused, 1>::ones([4], &CudaDevice::default()).into_data()
    });
    assert!(burns.is_err());
}

/// The example, its profile and what it printed.
fn example(arguments: &[&str]) -> (Profile, String) {
    let own = env::current_exe().unwrap();
    let program = own.parent().unwrap().parent().unwrap().join("examples/train");
    let name = arguments.concat();
    let file = env::temp_dir().join(format!("burn-train{name}-{}.gpuprof", std::process::id()));
    let output = Command::new(program)
        .args(["--steps", "3", "--save"])
        .arg(&file)
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    // A candidate of autotune that the fake does not know panics on the device's thread, and is left out unseen.
    assert!(!errors.contains("Missing symbol"), "{errors}");
    let profile = Profile::load(&file).unwrap();
    fs::remove_file(&file).unwrap();
    (profile, text)
}

#[test]
fn example_of_a_training_attributes_every_module() {
    let (profile, text) = example(&[]);
    profile.health().assert_complete();
    // It says what it does before burn compiles for minutes.
    assert!(text.starts_with("[   0.0"), "{text}");
    // Burn keeps what it tuned in a file, so that a later run of this test tunes nothing.
    let tunes = !text.contains("] 0 launches of autotune");
    assert_eq!(text.contains("compiled for autotune: "), tunes, "{text}");
    let modules =
        ["conv1", "conv2", "pool", "norm", "fc1", "fc2"].map(|name| format!("step/forward/{name}"));
    let parts = ["step/data", "step/loss", "step/backward", "step/optimizer"].map(str::to_owned);
    for path in modules.iter().chain(&parts) {
        let range = profile.range(path).unwrap_or_else(|| panic!("{path}: {text}"));
        assert!(range.kernels() > 0 || range.copies() > 0, "{path}: {text}");
        // Every step launches the same, but the first, in which the parameters are made, and the optimizer's second.
        if path != "step/optimizer" {
            let name = path.rsplit('/').next().unwrap();
            let of_name = profile.ranges().filter(|range| range.name() == name).skip(1);
            let counts: BTreeSet<_> = of_name.map(|range| range.inclusive().kernels).collect();
            assert_eq!(counts.len(), 1, "{path}: {counts:?} {text}");
        }
    }
    let steps = kernels(&profile, "step") as f64;
    assert!(steps > 0.95 * profile.totals().kernels as f64, "{text}");
    expect(&profile).complete().range("step/forward/pool").each().kernels(exactly(2)).assert();
}

#[test]
fn example_with_fusion_explains_every_kernel() {
    let (profile, text) = example(&["--fusion"]);
    profile.health().assert_complete();
    assert!(text.contains("unexplained: 0"), "{text}");
    let steps = kernels(&profile, "step") as f64;
    assert!(steps > 0.95 * profile.totals().kernels as f64, "{text}");
    for name in ["conv1", "conv2", "fc1", "fc2", "optimizer", "backward"] {
        let (mut own, mut shared) = (0, 0);
        for range in profile.ranges().filter(|range| range.name() == name) {
            own += range.inclusive().kernels;
            shared += range.shared().kernels;
        }
        assert!(own + shared > 0, "{name}: {text}");
    }
    let (bounded, _) = example(&["--fusion", "--boundaries"]);
    assert!(bounded.totals().kernels >= profile.totals().kernels);
}
