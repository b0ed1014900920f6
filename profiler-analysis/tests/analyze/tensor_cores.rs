//! Tensor cores by operation, kernel and scope: of the fake, whose work is known, and of what was recorded on a GPU.

use std::time::Duration;

use crate::{quickstart, record};
use fake_cupti::{Fake, Work};
use nvtx::Dtype;
use profiler_analysis::kernels::{
    Classifier, Confidence, KernelClass, TcOp, TcRemedy, TcStatus, TcUse, TensorCoreUse,
    TensorCores,
};
use profiler_analysis::prelude::*;
use profiler_analysis::scorecard::ScoreKind;
use test_support::everything;

/// Names, whether they use tensor cores, and how sure that is.
const NAMES: &[(&str, TcUse, Confidence)] = &[
    ("volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn", TcUse::Using, Confidence::High),
    ("volta_h884gemm_256x64_ldg8_tn", TcUse::Using, Confidence::High),
    ("volta_sgemm_128x64_nn", TcUse::NotUsing, Confidence::High),
    (
        "turing_fp16_s1688cudnn_fp16_256x64_ldg8_relu_f2f_exp_small_nhwc_tn_v1",
        TcUse::Using,
        Confidence::High,
    ),
    ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn", TcUse::Using, Confidence::High),
    ("ampere_sgemm_32x128_tn", TcUse::NotUsing, Confidence::High),
    (
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>(T1::Params)",
        TcUse::Using,
        Confidence::High,
    ),
    (
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nt_align1>(T1::Params)",
        TcUse::NotUsing,
        Confidence::High,
    ),
    (
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
        TcUse::NotUsing,
        Confidence::High,
    ),
    (
        "sm80_xmma_fprop_implicit_gemm_f16f16_f16f16_f16_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16_t1r3s3_kernel_cudnn",
        TcUse::Using,
        Confidence::High,
    ),
    ("nvjet_hsh_192x192_64x4_2x1_v_bz_coopA_NNT", TcUse::Using, Confidence::High),
    (
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
        TcUse::Using,
        Confidence::High,
    ),
    (
        "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::half_t>>(Flash_fwd_params)",
        TcUse::Using,
        Confidence::High,
    ),
    ("triton_tem_fused_addmm_relu_0", TcUse::Using, Confidence::Low),
    (
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>(float)",
        TcUse::NotUsing,
        Confidence::High,
    ),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", TcUse::NotUsing, Confidence::High),
    ("my_gemm", TcUse::Unknown, Confidence::Low),
    ("step_17", TcUse::Unknown, Confidence::Low),
];

#[test]
fn names_reveal_tensor_core_use() {
    let classifier = Classifier::new();
    for (name, tensor_cores, confidence) in NAMES {
        let of = TensorCoreUse::from_kernel(name, &classifier);
        assert_eq!(
            (of.tensor_cores, of.confidence),
            (*tensor_cores, *confidence),
            "{name}: {of:?}"
        );
    }
    let of = TensorCoreUse::from_kernel("elementwise_s884", &classifier);
    assert_eq!((of.tensor_cores, of.because), (TcUse::NotUsing, "elementwise"));

    let declared = classifier.tensor_cores("STEP_*", true).tensor_cores("step_17", false);
    let of = TensorCoreUse::from_kernel("step_17", &declared);
    assert_eq!((of.tensor_cores, of.because), (TcUse::Using, "declared by the program"));
    let plain = Classifier::new().rule("k", KernelClass::Gemm).tensor_cores("k", false);
    assert!(TensorCoreUse::from_kernel("k", &plain).is_plain_product);
}

/// What cuBLAS ran on an H200: `tests/gpu_tensor_cores.rs` wrote it, and saw that what is said there agrees with the rates.
#[test]
fn names_of_cublas_on_hopper_are_known() {
    let classifier = Classifier::new();
    let rows: Vec<_> = include_str!("../products-h200.csv").lines().skip(1).collect();
    assert!(rows.len() > 50);
    for row in rows {
        let (cells, name) = row.split_once('"').unwrap();
        let (dtype, is_using) =
            (cells.split(',').next().unwrap(), cells.split(',').nth(4).unwrap());
        let of = TensorCoreUse::from_kernel(name.trim_end_matches('"'), &classifier);
        assert_eq!(of.tensor_cores.to_string(), is_using, "{row}");
        if name.starts_with("nvjet") || name.starts_with("sm90_xmma") {
            assert_eq!(of.data_type.map(Dtype::name), Some(dtype), "{row}");
        }
    }
}

/// Ranges that say what they multiply, and some that do not.
fn model(fake: &Fake) {
    let step = nvtx::range("step");
    let gemm = |name: &'static str, dtype: &'static str, [m, n, k]: [u64; 3]| {
        let event = nvtx::event(name).field("dtype", dtype, "").field("op", "matmul", "");
        event.field("m", m, "").field("n", n, "").field("k", k, "").range()
    };
    {
        let _range = gemm("qkv", "f16", [512, 1536, 512]);
        let _inner = nvtx::range("inner");
        fake.launch(
            Work::kernel(c"ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_nn")
                .taking_ns(5_000),
        );
        fake.launch(Work::kernel(c"splitKreduce_kernel").taking_ns(1_000));
    }
    {
        let _range = gemm("lm_head", "f16", [512, 50_257, 512]);
        fake.launch(Work::kernel(c"ampere_sgemm_32x128_tn").taking_ns(8_000));
    }
    {
        let _range = gemm("router", "f32", [512, 8, 512]);
        fake.launch(Work::kernel(c"ampere_sgemm_32x128_tn").taking_ns(2_000));
    }
    {
        let _range = gemm("matvec", "bf16", [512, 1, 512]);
        fake.launch(Work::kernel(c"gemv2T_kernel_val").taking_ns(300));
    }
    {
        let _range = gemm("custom", "f16", [512, 512, 512]);
        fake.launch(Work::kernel(c"my_gemm").taking_ns(400));
    }
    {
        let _range = nvtx::range("gelu");
        fake.launch(Work::kernel(c"ugelu_f32").taking_ns(700));
    }
    {
        let _range = nvtx::range("undescribed");
        fake.launch(Work::kernel(c"volta_sgemm_128x64_nn").taking_ns(900));
    }
    drop(step);
    fake.launch(Work::kernel(c"step_17").taking_ns(100));
}

fn modelled() -> TensorCores {
    let profile = record(model);
    profile.health().assert_complete();
    let capability = profile.recording_info().devices[0].compute_capability;
    assert!(capability >= (8, 0), "the fake has tensor cores: {capability:?}");
    profile.tensor_cores()
}

#[test]
fn operations_are_classified_by_ranges_and_kernels() {
    use TcRemedy::{AllowTf32, PadShape};
    let tensor_cores = modelled();
    let op = |path: &str| -> &TcOp {
        let found = tensor_cores.ops().iter().find(|op| op.path == path);
        found.unwrap_or_else(|| panic!("no {path} in {tensor_cores}"))
    };
    let of = |path: &str| (op(path).status, op(path).eligible, &op(path).remedies[..]);
    assert_eq!(of("step/qkv"), (TcStatus::Using, Some(true), &[][..]));
    assert_eq!((op("step/qkv").kernels, op("step/qkv").tc_kernels), (2, 1), "with what is within");
    assert_eq!((op("step/qkv").total_ns, op("step/qkv").tc_ns), (6_000, 5_000));
    assert_eq!(of("step/lm_head"), (TcStatus::EligibleNotUsing, Some(true), &[PadShape][..]));
    assert_eq!(of("step/router"), (TcStatus::EligibleNotUsing, Some(true), &[AllowTf32][..]));
    assert_eq!(of("step/matvec"), (TcStatus::NotEligible, Some(false), &[][..]));
    assert_eq!(of("step/custom"), (TcStatus::Unknown, Some(true), &[][..]));
    assert_eq!(of("step/gelu"), (TcStatus::NotEligible, Some(false), &[][..]));
    assert_eq!(of("step/undescribed"), (TcStatus::EligibleNotUsing, Some(true), &[AllowTf32][..]));
    assert_eq!(of("(outside any range)"), (TcStatus::Unknown, None, &[][..]));
    assert_eq!(
        (op("step/qkv").op_type.as_str(), op("step/gelu").op_type.as_str()),
        ("matmul", "elementwise")
    );
    assert_eq!((op("step/qkv").described, op("step/undescribed").described), (true, false));
    assert_eq!(op("step/undescribed").data_type, Some(Dtype::F32));
    assert_eq!(tensor_cores.ops().len(), 8, "what is within an operation is no other");
}

#[test]
fn sums_of_operations_scopes_and_kernels_agree() {
    let tensor_cores = modelled();
    let summary = tensor_cores.summary();
    assert_eq!((summary.ops, summary.eligible_ops), (8, 5));
    assert_eq!((summary.using_ops, summary.unknown_ops), (1, 2));
    let ns = Duration::from_nanos;
    assert_eq!((summary.gpu_time, summary.tc_time), (ns(18_400), ns(5_000)));
    assert_eq!(summary.eligible_time, ns(6_000 + 8_000 + 2_000 + 400 + 900));
    assert_eq!(summary.unknown_time, ns(500));
    let groups = serde_json::to_value(&tensor_cores.reports()[2]).unwrap();
    assert_eq!(groups[0]["path"], "step");
    let group = |name: &str| groups[0][name].as_u64().unwrap();
    assert_eq!(["ops", "using_ops", "total_ns", "tc_ns"].map(group), [7, 1, 18_300, 5_000]);
    let percent = groups[0]["tc_percent"].as_f64().unwrap();
    assert!((percent - 100.0 * 5_000.0 / 17_300.0).abs() < 1e-9);
    let kernels = serde_json::to_value(&tensor_cores.reports()[1]).unwrap();
    let calls = kernels.as_array().unwrap().iter().map(|kernel| kernel["calls"].as_u64().unwrap());
    assert_eq!(calls.sum::<u64>(), 9);
    assert_eq!(kernels[0]["name"], "ampere_sgemm_32x128_tn");
    assert_eq!(kernels[0]["calls"], 2);
    assert_eq!(
        tensor_cores
            .remedies()
            .iter()
            .map(|(remedy, time)| (*remedy, time.as_nanos()))
            .collect::<Vec<_>>(),
        [(TcRemedy::PadShape, 8_000), (TcRemedy::AllowTf32, 2_900)]
    );
    let text = tensor_cores.to_string();
    assert!(
        text.starts_with(
            "operations 8: 5 eligible for tensor cores, 1 using them, 2 unknown\n\
             GPU time 18.40 us: 17.30 us (94.0 %) eligible, 5.000 us in kernels with tensor cores \
             (29.6 % of the decided eligible time), 500 ns unknown\n"
        ),
        "{text}"
    );
    let short = tensor_cores.max_rows(2).to_string();
    assert!(short.contains("\n(6 more rows)\n\ntensor_core_kernels:"), "{short}");
    assert!(!short.contains("step/gelu") && short.contains("step/lm_head"), "{short}");
    let value = serde_json::to_value(&tensor_cores).unwrap();
    assert_eq!(value["ops"][0]["status"], "eligible_not_using");
    assert_eq!(value["summary"]["tc_ns"], 5_000);
}

/// A training step whose ranges declare nothing: products among other kernels, as PyTorch has them.
#[test]
fn ranges_without_fields_are_divided_by_class() {
    let fake = Fake::new();
    let launch = |name, ns| fake.launch(Work::kernel(name).taking_ns(ns));
    let step = || {
        {
            let _forward = nvtx::range("forward");
            launch(c"nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_TNT", 9_000);
            launch(c"gemv2T_kernel_val", 1_000);
            launch(c"ampere_sgemm_32x128_tn", 2_000);
            launch(c"fmha_cutlassF_bf16_aligned_64x64_rf_sm80", 3_000);
            launch(c"vectorized_elementwise_kernel", 20_000);
            launch(c"mystery", 500);
        }
        let _optimizer = nvtx::range("optimizer");
        launch(c"multi_tensor_apply_kernel", 40_000);
        drop(_optimizer);
        launch(c"cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1", 5_000);
        launch(c"vectorized_elementwise_kernel", 7_000);
    };
    let profile = everything::record(&fake, step);
    let tensor_cores = profile.tensor_cores();
    let ops: Vec<_> = tensor_cores.ops().iter().collect();
    let shown: Vec<_> = ops
        .iter()
        .map(|op| (&*op.path, &*op.op_type, op.status, op.total_ns, op.eligible_ns, op.tc_ns))
        .collect();
    use TcStatus::{NotEligible, Unknown, Using};
    assert_eq!(
        shown,
        [
            ("optimizer", "optimizer", NotEligible, 40_000, 0, 0),
            ("forward", "elementwise", NotEligible, 20_000, 0, 0),
            ("forward", "gemm", Using, 12_000, 12_000, 9_000),
            ("(outside any range)", "elementwise", NotEligible, 7_000, 0, 0),
            ("(outside any range)", "gemm", Using, 5_000, 5_000, 5_000),
            ("forward", "attention", Using, 3_000, 3_000, 3_000),
            ("forward", "other", Unknown, 500, 0, 0),
        ]
    );
    // Loads of single numbers.
    let padded: Vec<_> = ops.iter().filter(|op| op.remedies == [TcRemedy::PadShape]).collect();
    assert_eq!((padded.len(), &*padded[0].path), (1, "(outside any range)"));
    // The products, not the ranges around them: the value of the scorecard.
    let summary = tensor_cores.summary();
    assert_eq!(
        (summary.eligible_time, summary.tc_time),
        (Duration::from_micros(20), Duration::from_micros(17))
    );
    assert_eq!(summary.utilization(), Some(0.85));
    let score = profile.scorecard().score(ScoreKind::TensorCores).unwrap().value;
    assert_eq!(score, summary.utilization());
    let groups = serde_json::to_value(&tensor_cores.reports()[2]).unwrap();
    assert_eq!(groups[0]["path"], "forward");
    assert_eq!((&groups[0]["total_ns"], &groups[0]["ops"]), (&35_500.into(), &4.into()));
    assert_eq!((&groups[0]["tc_percent"], &groups[1]["tc_percent"]), (&80.0.into(), &0.0.into()));
}

#[test]
fn a_run_in_f32_uses_none() {
    let profile = quickstart();
    let tensor_cores = profile.tensor_cores();
    let summary = tensor_cores.summary();
    assert_eq!((summary.using_ops, summary.tc_time), (0, Duration::ZERO));
    assert!(summary.eligible_ops != 0, "{tensor_cores}");
    let kernels = profile.query().kernels();
    assert_eq!(summary.gpu_time, kernels.gpu_time());
    let in_ops: u64 = tensor_cores.ops().iter().map(|op| op.kernels).sum();
    assert_eq!(in_ops, kernels.count());
    println!("{tensor_cores}");
}
