//! Candle on the fake driver: its own kernels, launched on their own threads, without a GPU.
//!
//! Candle links CUDA's libraries, so these have to be in the linker's path before the test starts: those of the fake, which is
//! built apart, or those of a machine with a GPU: docs/internals/framework-tests.md has the commands.
//! Each test is a process of its own, as the subscriber of `tracing` is one for a process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the helpers are tests too"
)]

use std::process::Command;
use std::{env, fs};

use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{DType, Device, Module, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use gpu_profiler_candle::{InRange, QueryDevice};
use profiler_core::{Profile, Profiler, exactly, expect};

#[path = "../../alone.rs"]
mod alone;
use alone::{Hidden, alone, alone_with_two_devices, print_by_device};

fn kernels(profile: &Profile, path: &str) -> u64 {
    profile.range(path).map_or(0, |range| range.kernels())
}

#[test]
fn modules_of_a_bert_are_ranges_with_numbered_layers() {
    if !alone("modules_of_a_bert_are_ranges_with_numbered_layers") {
        return;
    }
    let profiler = gpu_profiler_candle::start().unwrap();
    let device = Device::new_cuda(0).unwrap();
    let config = Config {
        vocab_size: 64,
        hidden_size: 32,
        num_hidden_layers: 6,
        num_attention_heads: 4,
        intermediate_size: 64,
        max_position_embeddings: 16,
        ..Config::default()
    };
    let model = BertModel::load(VarBuilder::zeros(DType::F32, &device), &config).unwrap();
    let ids = Tensor::zeros((2, 8), DType::U32, &device).unwrap();
    for batch in 0..3u64 {
        let _forward = tracing::info_span!("forward", batch).entered();
        model.forward(&ids, &ids, None).unwrap();
    }
    device.synchronize().unwrap();
    let profile = profiler.finish().unwrap();
    profile.health().assert_complete();
    assert_eq!(profile.health().facts.open_ranges, 0, "the model is still there");
    assert_eq!(profile.health().facts.unused_span_sites, 0);
    let encoder = "forward/model/encoder";
    let layers: Vec<_> =
        (0..6).map(|n| kernels(&profile, &format!("{encoder}/layer {n}"))).collect();
    assert!(layers[0] > 30 && layers.iter().all(|count| *count == layers[0]), "{layers:?}");
    assert_eq!(kernels(&profile, encoder), 6 * layers[0], "{profile}");
    let last = profile.ranges().filter(|range| range.name() == "forward").last().unwrap();
    assert_eq!(last.field("batch"), Some(nvtx::FieldValue::U64(2)));
    // The default stream of the thread, which candle uses, is the only one.
    let of_device = profile.query().on_device(&device).unwrap().kernels().count();
    assert_eq!(profile.totals().kernels, of_device);
    assert!(profile.query().on_device(&Device::Cpu).unwrap().iter().next().is_none());
}

#[test]
fn model_built_before_the_profiler_is_named_in_the_report() {
    if !alone("model_built_before_the_profiler_is_named_in_the_report") {
        return;
    }
    let device = Device::new_cuda(0).unwrap();
    let config = Config {
        vocab_size: 64,
        hidden_size: 32,
        num_hidden_layers: 1,
        num_attention_heads: 4,
        intermediate_size: 64,
        max_position_embeddings: 16,
        ..Config::default()
    };
    let model = BertModel::load(VarBuilder::zeros(DType::F32, &device), &config).unwrap();
    let profiler = gpu_profiler_candle::start().unwrap();
    let ids = Tensor::zeros((2, 8), DType::U32, &device).unwrap();
    model.forward(&ids, &ids, None).unwrap();
    device.synchronize().unwrap();
    let profile = profiler.finish().unwrap();
    profile.health().assert_complete();
    assert_eq!(profile.roots().count(), 0);
    // There was no subscriber, so tracing itself does not know of the model's spans.
    assert_eq!(profile.health().facts.layers_without_spans, 1, "{}", profile.health());
    assert!(profile.to_string().contains("install it before the model is built"));
    // A second one finds the subscriber of the first.
    let error = gpu_profiler_candle::start().map(drop).unwrap_err();
    assert!(error.to_string().contains("add gpu_profiler_candle::layer()"), "{error}");
}

#[test]
fn quantised_products_launched_through_the_runtime_belong_to_their_module() {
    if !alone("quantised_products_launched_through_the_runtime_belong_to_their_module") {
        return;
    }
    let profiler = gpu_profiler_candle::start().unwrap();
    let device = Device::new_cuda(0).unwrap();
    let weights = Tensor::zeros((64, 256), DType::F32, &Device::Cpu).unwrap();
    let weights = QTensor::quantize_onto(&weights, GgmlDType::Q4_0, &device).unwrap();
    let product = QMatMul::from_qtensor(weights).unwrap().in_range("quantised");
    let token = Tensor::zeros((1, 256), DType::F32, &device).unwrap();
    for _ in 0..4 {
        let _token = tracing::info_span!("token").entered();
        product.forward(&token).unwrap();
    }
    device.synchronize().unwrap();
    let profile = profiler.finish().unwrap();
    profile.health().assert_complete();
    let found = kernels(&profile, "token/quantised");
    assert!(found >= 4 && found.is_multiple_of(4), "{profile}");
    assert_eq!(kernels(&profile, "token"), found);
}

#[test]
fn errors_and_panics_of_candle_go_through_and_end_their_range() {
    if !alone("errors_and_panics_of_candle_go_through_and_end_their_range") {
        return;
    }
    let profiler = gpu_profiler_candle::start().unwrap();
    let device = Device::new_cuda(0).unwrap();
    let fails = (|x: &Tensor| x.reshape((3, 3))).in_range("fails");
    let panics = (|x: &Tensor| -> candle_core::Result<Tensor> {
        x.sqr()?;
        panic!("in a module")
    })
    .in_range("panics");
    let input = Tensor::zeros((2, 2), DType::F32, &device).unwrap();
    let error = fails.forward(&input).unwrap_err();
    assert!(error.to_string().contains("Shape mismatch"), "{error}");
    let forward = std::panic::AssertUnwindSafe(|| panics.forward(&input));
    assert!(std::panic::catch_unwind(forward).is_err());
    // More than the device has, in the middle of a step.
    let refused = tracing::info_span!("step").in_scope(|| {
        input.sqr().unwrap();
        Tensor::zeros(1 << 43, DType::F32, &device).map(drop).unwrap_err()
    });
    assert!(refused.to_string().contains("MEMORY"), "{refused}");
    input.sqr().unwrap();
    device.synchronize().unwrap();
    let profile = profiler.finish().unwrap();
    profile.health().assert_complete();
    assert_eq!(profile.health().facts.open_ranges, 0);
    assert_eq!([kernels(&profile, "panics"), kernels(&profile, "step")], [1, 1]);
    assert_eq!(profile.outside_ranges().kernels, 1, "{profile}");
}

#[test]
fn model_on_two_devices_keeps_its_ranges() {
    if !alone_with_two_devices("model_on_two_devices_keeps_its_ranges") {
        return;
    }
    let profiler = gpu_profiler_candle::start().unwrap();
    let devices = [0, 1].map(|ordinal| Device::new_cuda(ordinal).unwrap());
    let half = |name: &str| (|x: &Tensor| x.sqr()?.sqrt()).in_range(name);
    let (first, second) = (half("first half"), half("second half"));
    for _ in 0..3 {
        let _step = tracing::info_span!("step").entered();
        let x = first.forward(&Tensor::zeros((2, 2), DType::F32, &devices[0]).unwrap()).unwrap();
        second.forward(&x.to_device(&devices[1]).unwrap()).unwrap();
    }
    devices.iter().for_each(|device| device.synchronize().unwrap());
    let profile = profiler.finish().unwrap();
    profile.health().assert_complete();
    let on = |device: u32, name: &str| {
        profile.query().device(device).in_range(name).kernels().iter().count()
    };
    let counts = [0, 1].map(|device| [on(device, "first half"), on(device, "second half")]);
    let of = |half: usize| counts.map(|of_device| of_device[half]);
    print_by_device(&[("first half", of(0)), ("second half", of(1))]);
    assert_eq!(counts, [[6, 0], [0, 6]], "{profile}");
}

#[test]
fn session_beside_that_of_candle_has_the_same_ranges() {
    if !alone("session_beside_that_of_candle_has_the_same_ranges") {
        return;
    }
    let candle = gpu_profiler_candle::start().unwrap();
    let device = Device::new_cuda(0).unwrap();
    let pass = |name: &'static str| {
        let _range = nvtx::range(name);
        Tensor::ones((2, 2), DType::F32, &device).unwrap().sqr().unwrap();
        device.synchronize().unwrap();
    };
    pass("first");
    let beside = Profiler::builder().build().unwrap();
    beside.start().unwrap();
    pass("both");
    let candle = candle.finish().unwrap();
    pass("second");
    let beside = beside.stop().unwrap();
    for (profile, names) in [(&candle, ["first", "both"]), (&beside, ["both", "second"])] {
        profile.health().assert_complete();
        assert_eq!(profile.roots().map(|root| root.name().to_owned()).collect::<Vec<_>>(), names);
        let counts = names.map(|name| kernels(profile, name));
        assert!(counts[0] > 0 && counts[0] == counts[1], "{profile}");
        assert_eq!(profile.outside_ranges().kernels, 0, "{profile}");
    }
}

#[test]
fn program_without_a_library_of_cuda_is_refused_by_the_loader_which_names_it() {
    let own = env::current_exe().unwrap();
    let example = own.parent().unwrap().parent().unwrap().join("examples/gpt");
    for missing in ["libcuda.so.1", "libcublas.so.13"] {
        let hidden = Hidden::new(&[missing]);
        let output = Command::new(&example).env("LD_LIBRARY_PATH", hidden.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(127), "{text}");
        assert!(text.contains(missing), "{text}");
    }
}

#[test]
fn example_of_a_gpt_attributes_training_and_generation() {
    let own = env::current_exe().unwrap();
    let example = own.parent().unwrap().parent().unwrap().join("examples/gpt");
    let file = env::temp_dir().join(format!("candle-gpt-{}.gpuprof", std::process::id()));
    let output = Command::new(example).arg("--save").arg(&file).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let profile = Profile::load(&file).unwrap();
    fs::remove_file(&file).unwrap();
    profile.health().assert_complete();
    let totals = profile.totals();
    let in_ranges = totals.kernels - profile.outside_ranges().kernels;
    // Outside are the kernels that initialise the parameters.
    assert!(in_ranges as f64 > 0.99 * totals.kernels as f64, "{text}");
    for n in 0..4 {
        let layer = format!("step/forward/gpt/layer {n}");
        assert_eq!(kernels(&profile, &layer), kernels(&profile, "step/forward/gpt/layer 0"));
    }
    expect(&profile).complete().range("token/sample").each().kernels(exactly(1)).assert();
    let steps: Vec<_> = profile.ranges().filter(|range| range.name() == "step").collect();
    assert_eq!(steps.len(), 5);
    assert_eq!(steps[4].field("step"), Some(nvtx::FieldValue::U64(4)));
}
