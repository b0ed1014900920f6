//! Counted work under roofs, beside what was declared; tensor pipes beside names. Counts are as the H200 gave them, or made
//! so that what follows is known.
use cupti::counters::{Measured, RangeProfiler};
use fake_cupti::{Fake, Work as Gpu};
use nvtx::{Dtype, Pipe, Work};
use profiler_analysis::counters::{CountedKernels, PipeDisagreement, count_kernels};
use profiler_analysis::kernels::TcUse;
use profiler_analysis::prelude::*;
use profiler_analysis::roofline::{CountedRoofline, Disagreement, Limit, Origin, Peaks};
use profiler_core::cupti::counters::MemoryLevel;
use profiler_core::{Profile, Profiler};
use serde_json::{Value, json};
use test_support::session::record;

const TIME: &str = "gpu__time_duration.sum";
const FFMA: &str = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum";
const FADD: &str = "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum";
const FMUL: &str = "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum";
const BF16: &str = "sm__ops_path_tensor_src_bf16_dst_fp32.sum";
const TF32: &str = "sm__ops_path_tensor_src_tf32_dst_fp32.sum";
const I8: &str = "sm__ops_path_tensor_src_int8.sum";
const BUSY: &str = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active";
const TENSOR: &str = "sm__inst_executed_pipe_tensor.sum";

/// A range with the place of the one around it, and values by metric.
type Counts<'a> = (&'a str, Option<usize>, &'a [(&'a str, f64)]);

fn measured(ranges: &[Counts<'_>]) -> Measured {
    let mut metrics: Vec<&str> =
        ranges.iter().flat_map(|(_, _, values)| values.iter().map(|(metric, _)| *metric)).collect();
    metrics.sort_unstable();
    metrics.dedup();
    let level = |mut at: Option<usize>| {
        let mut level = 0;
        while let Some(parent) = at {
            (at, level) = (ranges[parent].1, level + 1);
        }
        level
    };
    let ranges: Vec<Value> = ranges
        .iter()
        .map(|(name, parent, values)| {
            let value = |metric: &&str| values.iter().find(|(of, _)| of == metric).map(|of| of.1);
            let values: Vec<_> = metrics.iter().map(value).collect();
            json!({"name": name, "parent": parent, "level": level(*parent), "values": values})
        })
        .collect();
    serde_json::from_value(json!({
        "chip": "GH100", "passes": 7, "runs": 7, "dropped": 0, "too_deep": 0,
        "metrics": metrics, "ranges": ranges,
    }))
    .unwrap()
}

/// `y += 3 x` of 67,108,864 floats, as an H200 counted it; the roofs of the caches are made.
fn axpy() -> Vec<(&'static str, f64)> {
    vec![
        (TIME, 332_768.0),
        ("dram__bytes_read.sum", 536_914_688.0),
        ("dram__bytes_write.sum", 275_898_112.0),
        ("lts__t_bytes.sum", 1_211_384_960.0),
        ("l1tex__t_bytes.sum", 805_306_368.0),
        (FADD, 0.0),
        (FMUL, 0.0),
        (FFMA, 67_108_864.0),
        (BF16, 0.0),
        ("lts__t_bytes.sum.peak_sustained", 6144.0),
        ("lts__cycles_elapsed.avg.per_second", 1.6e9),
        ("dram__bytes.sum.peak_sustained", 1536.0),
        ("dram__cycles_elapsed.avg.per_second", 3.1e9),
    ]
}

fn h200() -> Peaks {
    Peaks::new("NVIDIA H200")
        .with_flops(Dtype::F32, Pipe::Vector, 66.9e12)
        .with_flops(Dtype::Bf16, Pipe::Tensor, 989.4e12)
        .with_bandwidth(4.8e12)
}

fn gemm() -> Vec<(&'static str, f64)> {
    vec![
        (TIME, 327_168.0),
        ("dram__bytes_read.sum", 148_972_288.0),
        ("dram__bytes_write.sum", 54_724_864.0),
        (FADD, 0.0),
        (FMUL, 1_000_000.0),
        (FFMA, 0.0),
        (BF16, 137_438_953_472.0),
        (I8, 5e12),
    ]
}

#[track_caller]
fn assert_near(value: Option<f64>, expected: f64) {
    let value = value.unwrap();
    assert!((value / expected - 1.0).abs() < 1e-6, "{value} is not {expected}");
}

#[test]
fn ranges_may_nest_as_deep_as_a_file_states() {
    let place = |at: usize| at.checked_sub(1);
    let counted: [(&str, f64); 1] = [(TIME, 1e3)];
    let names: Vec<String> = (0..20_000).map(|at| format!("level_{at}")).collect();
    let mut ranges: Vec<Value> = Vec::new();
    for (level, name) in names.iter().enumerate() {
        // Every second one had no room.
        let values = (level % 2 == 1).then_some([counted[0].1]);
        ranges
            .push(json!({"name": name, "parent": place(level), "level": level, "values": values}));
    }
    // The deepest once more, in the same one.
    let last = names.len() - 1;
    ranges.push(json!({"name": names[last], "parent": last - 1, "level": last, "values": [500.0]}));
    let measured: Measured = serde_json::from_value(json!({
        "chip": "GH100", "passes": 1, "runs": 1, "dropped": 0, "too_deep": 0,
        "metrics": [TIME], "ranges": ranges,
    }))
    .unwrap();
    let roofline = CountedRoofline::from_measured(&measured, &h200());
    assert_eq!(roofline.points.len(), 10_000);
    let deepest = &roofline.points[0];
    assert_eq!((deepest.instances, deepest.gpu_time.as_nanos()), (2, 1_500));
    let path = |levels: std::ops::Range<usize>| names[levels].join("/");
    let expected = format!("{}/…(19872 more)…/{}", path(0..64), path(19_936..20_000));
    assert_eq!(deepest.name, expected);
    let named = |name: &str| roofline.points.iter().any(|point| point.name == name);
    assert!(named(&path(0..128)) && named(&path(0..2)));
}

#[test]
fn counts_lie_at_every_level_under_the_roofs() {
    let (axpy, gemm) = (axpy(), gemm());
    let measured = measured(&[
        ("step", None, &[(TIME, 700_000.0)]),
        ("axpy", Some(0), &axpy),
        ("gemm", Some(0), &gemm),
        ("axpy", Some(0), &axpy),
    ]);
    let roofline = CountedRoofline::from_measured(&measured, &h200());
    let names: Vec<_> = roofline.points.iter().map(|point| &*point.name).collect();
    assert_eq!(names, ["step", "step/axpy", "step/gemm"]);
    let [step, axpy, gemm] = &roofline.points[..] else { panic!("{roofline}") };

    assert_eq!((axpy.instances, axpy.gpu_time.as_nanos()), (2, 665_536));
    assert_eq!(axpy.total_flops(), 4.0 * 67_108_864.0);
    let dram = 2.0 * (536_914_688.0 + 275_898_112.0);
    assert_eq!(axpy.bytes_at(MemoryLevel::Dram), Some(dram));
    assert_near(axpy.intensity_at(MemoryLevel::Dram), 4.0 * 67_108_864.0 / dram);
    assert_near(axpy.intensity_at(MemoryLevel::L2), 2.0 * 67_108_864.0 / 1_211_384_960.0);
    assert_near(axpy.intensity_at(MemoryLevel::L1), 1.0 / 6.0);
    assert_near(axpy.achieved(), 2.0 * 67_108_864.0 / 332_768e-9);
    assert_eq!(axpy.main_type(), Some((Dtype::F32, Pipe::Vector)));
    // DRAM's roof is the device's, L2's that of the counters; there is none for L1.
    let l2 = roofline.peaks.level(MemoryLevel::L2);
    assert_eq!((l2.peak, l2.origin), (Some(6144.0 * 1.6e9), Origin::Counters));
    assert_eq!(roofline.peaks.bandwidth().peak, Some(4.8e12));
    assert_eq!(roofline.peaks.level(MemoryLevel::L1).peak, None);
    let shares = axpy.shares();
    let limits: Vec<_> = shares.iter().map(|(limit, _)| *limit).collect();
    let expected = [
        Limit::Memory(MemoryLevel::Dram),
        Limit::Memory(MemoryLevel::L2),
        Limit::Compute(Dtype::F32, Pipe::Vector),
    ];
    assert_eq!(limits, expected);
    assert_near(Some(shares[0].1), dram / 665_536e-9 / 4.8e12);
    assert_near(Some(shares[1].1), 1_211_384_960.0 / 332_768e-9 / (6144.0 * 1.6e9));

    // Whole numbers are no floating-point operations; their own roof is not known.
    assert_eq!(gemm.total_flops(), 137_438_953_472.0 + 1e6);
    assert_eq!(gemm.main_type(), Some((Dtype::I8, Pipe::Tensor)));
    let (limit, share) = gemm.of_roof().unwrap();
    assert_eq!(limit, Limit::Compute(Dtype::Bf16, Pipe::Tensor));
    assert_near(Some(share), 137_438_953_472.0 / 327_168e-9 / 989.4e12);
    assert_eq!(gemm.bytes_at(MemoryLevel::L2), None);

    // What was not counted is not there, and not nothing.
    assert_eq!((step.total_flops(), step.of_roof(), step.main_type()), (0.0, None, None));
    assert_eq!(MemoryLevel::ALL.map(|level| step.bytes_at(level)), [None; 3]);
    assert!(step.declared.is_none());

    // What is given stays; a file gives the roof of a cache.
    let mut file = serde_json::to_value(h200()).unwrap();
    file["caches"] = json!([{"level": "L2", "peak": 5e12, "origin": "given"}]);
    let given = Peaks::from_json(&file.to_string()).unwrap();
    let given = CountedRoofline::from_measured(&measured, &given).peaks;
    for (level, peak) in [(MemoryLevel::Dram, 4.8e12), (MemoryLevel::L2, 5e12)] {
        let roof = given.level(level);
        assert_eq!((roof.peak, roof.origin), (Some(peak), Origin::Given));
    }
    assert_eq!(Peaks::from_json(&given.to_json()).unwrap(), given);
    let unknown = CountedRoofline::from_measured(&measured, &Peaks::new("unknown")).peaks;
    assert_eq!(unknown.bandwidth().peak, Some(1536.0 * 3.1e9));
}

#[test]
fn uncounted_work_is_in_no_sum_of_bytes() {
    let (whole, mut part) = (axpy(), axpy());
    part.retain(|(metric, _)| *metric != "lts__t_bytes.sum");
    let untimed = [(FFMA, 1.0)];
    let whole = ("a", None, &whole[..]);
    let counts = measured(&[whole, ("a", None, &part), whole, ("b", None, &untimed)]);
    let roofline = CountedRoofline::from_measured(&counts, &h200());
    assert_eq!((roofline.points.len(), roofline.without_time), (1, 1));
    let point = &roofline.points[0];
    assert_eq!((point.instances, point.bytes_at(MemoryLevel::L2)), (3, None));
    assert!(point.bytes_at(MemoryLevel::L1).is_some());
    assert!(roofline.to_string().contains("1 ranges or kernels have no time"), "{roofline}");
}

#[test]
fn declared_and_counted_stand_side_by_side() {
    let fake = Fake::new();
    let work = || {
        // Recorded three times, counted twice.
        for _ in 0..3 {
            let _step = nvtx::range("step");
            {
                let work = Work::elementwise(67_108_864, 2, 1, 2, Dtype::F32);
                let _axpy = nvtx::range!(work: work, "axpy");
                fake.launch(Gpu::kernel(c"axpy").taking_ns(332_000));
            }
            // Half of what it does, of another type.
            let work = Work::new(137_438_953_472 / 2, 203_697_152).with_dtype(Dtype::F32);
            let _gemm = nvtx::range!(work: work, "gemm");
            fake.launch(Gpu::kernel(c"gemm").taking_ns(327_000));
        }
    };
    let mut bf16 = gemm();
    bf16.retain(|(metric, _)| *metric != I8);
    let axpy = axpy();
    let measured = measured(&[
        ("step", None, &[(TIME, 700_000.0)]),
        ("axpy", Some(0), &axpy),
        ("gemm", Some(0), &bf16),
        ("axpy", Some(0), &axpy),
    ]);
    for profile in record(&fake, work) {
        let roofline = profile.roofline(&h200()).counted(&measured);
        let point = |name: &str| roofline.points.iter().find(|point| point.name == name).unwrap();
        let declared = point("step/axpy").declared.unwrap();
        assert_eq!((declared.flops, declared.dtype), (Some(134_217_728.0), Some(Dtype::F32)));
        assert_eq!(declared.bytes, Some(805_306_368.0));
        // 0.9 % more bytes than declared.
        assert!(point("step/axpy").disagreements(0.01).is_empty());
        assert_eq!(point("step/axpy").disagreements(0.005).len(), 1);
        let found = roofline.disagreements(0.1);
        let [
            Disagreement::Flops { counted, .. },
            Disagreement::Type { name, declared, counted: of },
        ] = &found[..]
        else {
            panic!("{found:?}")
        };
        assert_eq!(*counted, 137_438_953_472.0 + 1e6);
        assert_eq!((&**name, *declared, *of), ("step/gemm", "f32", "bf16"));

        let text = roofline.to_string();
        for part in [
            "step/gemm: 68.72 GFLOP declared, 137.4 GFLOP counted (2.000 x)",
            "step/gemm: f32 declared, most operations were bf16",
            "counted in 7 runs",
            "1.009 x",
            "9.830 TB/s",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        let json = serde_json::to_value(&roofline).unwrap();
        let axpy = &json["points"][1];
        assert_eq!(axpy["levels"][1]["level"], "L2");
        assert_eq!(axpy["flops"][0]["pipe"], "vector");
        assert_eq!(axpy["shares_of_roofs"][0]["limit"], "DRAM");
        assert_eq!(json["points"][2]["disagreements"][1]["of"], "type");
    }
}

#[test]
fn a_plot_has_a_spot_for_each_level() {
    let (axpy, bf16) = (axpy(), gemm());
    let name = "<img src=x onerror=alert(1)>";
    let counts = measured(&[("axpy", None, &axpy), (name, None, &bf16)]);
    let fake = Fake::new();
    for profile in record(&fake, || {
        let _axpy = nvtx::event("axpy").flops(100_000_000_u64).bytes(800_000_000_u64).range();
        fake.launch(Gpu::kernel(c"axpy").taking_ns(1000));
    }) {
        let roofline = profile.roofline(&h200()).counted(&counts);
        let svg = roofline.to_svg();
        // The key has one of each, too.
        let count = |text: &str| svg.matches(text).count();
        assert_eq!(count("<circle class=\"rl-point"), 5, "and one of each type");
        assert_eq!(count("<rect class=\"rl-point"), 2);
        assert_eq!(count("<path class=\"rl-point"), 2);
        assert_eq!(count("<circle class=\"rl-ring\""), 2);
        assert_eq!(count("class=\"rl-join\""), 2);
        assert!(svg.contains("L2 9.830 TB/s") && svg.contains("DRAM 4.8"), "{svg}");
        let html = roofline.to_html();
        assert!(html.contains("<h2>Declared and counted</h2>") && html.contains("&lt;img"));
        assert!(!html.contains("<img") && !html.contains("<script") && !html.contains("NaN"));
    }
}

fn recorded(names: &[&'static std::ffi::CStr]) -> Profile {
    crate::record(|fake| {
        for name in names {
            fake.launch(Gpu::kernel(name).taking_ns(1000));
        }
    })
}

#[test]
fn tensor_pipes_correct_wrong_names() {
    let profile = recorded(&[
        c"sm90_xmma_gemm_bf16bf16_bf16f32_f32_nn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        c"ampere_sgemm_128x64_nn",
        c"my_kernel",
        c"ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_nn",
        c"my_kernel",
        c"vectorized_elementwise_kernel",
    ]);
    let tensor = |ns: f64, busy: f64, instructions: f64, bf16: f64, tf32: f64| {
        [(TIME, ns), (BUSY, busy), (TENSOR, instructions), (BF16, bf16), (TF32, tf32)]
    };
    let counts = [
        tensor(6000.0, 80.0, 1e6, 1e12, 0.0),
        tensor(5000.0, 60.0, 1e6, 0.0, 1e11),
        tensor(1000.0, 10.0, 1e5, 1e9, 0.0),
        tensor(4000.0, 0.0, 0.0, 0.0, 0.0),
        tensor(3000.0, 50.0, 1e5, 1e9, 2e9),
        tensor(100.0, 0.0, 0.0, 0.0, 0.0),
    ];
    let ranges: Vec<_> = counts.iter().map(|values| ("", None, &values[..])).collect();
    let kernels = CountedKernels::new(&profile, measured(&ranges)).unwrap();
    let pipes = kernels.tensor_pipes();
    assert_eq!(pipes.kernels.len(), 5);
    let of = |part: &str| pipes.kernels.iter().find(|kernel| kernel.name.contains(part)).unwrap();
    assert_eq!((of("sm90").counted, of("sm90").disagreement()), (TcUse::Using, None));
    assert_eq!(of("vectorized").disagreement(), None);
    let mine = of("my_kernel");
    assert_eq!((mine.calls, mine.counted), (2, TcUse::Using));
    assert_eq!(mine.active_percent, Some(40.0), "the mean by time");
    assert_eq!(mine.operations, [(Dtype::Bf16, 2e9), (Dtype::Tf32, 2e9)]);
    let found: Vec<_> = pipes.disagreements().map(|(kernel, what)| (&*kernel.name, what)).collect();
    assert_eq!(
        found,
        [
            ("ampere_sgemm_128x64_nn", PipeDisagreement::BusyThough),
            ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_nn", PipeDisagreement::IdleThough),
        ]
    );
    assert_eq!(pipes.settled().count(), 1);
    let text = pipes.to_string();
    assert!(
        text.contains("differ on 2 of 5 kernels; counters classify 1 that names do not"),
        "{text}"
    );
    let json = serde_json::to_value(&pipes).unwrap();
    assert_eq!(json["kernels"][0]["operations"][0], json!(["bf16", 1e12]));

    // The same kernels under roofs.
    let roofline = kernels.roofline(&h200());
    assert_eq!(roofline.points.len(), 5);
    assert!(roofline.points.iter().all(|point| point.is_kernel));
}

#[test]
fn type_that_differs_from_the_name_is_reported() {
    let profile = recorded(&[c"ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_nn"]);
    let fp16 = "sm__ops_path_tensor_src_fp16.sum";
    let counts = [(TIME, 10.0), (fp16, 5.0), (BF16, 0.0)];
    let kernels = CountedKernels::new(&profile, measured(&[("0", None, &counts)])).unwrap();
    let pipes = kernels.tensor_pipes();
    assert_eq!(pipes.kernels[0].disagreement(), Some(PipeDisagreement::OtherType));
    // Without any count of them nothing is said.
    let kernels = CountedKernels::new(&profile, measured(&[("0", None, &[(TIME, 1.0)])])).unwrap();
    let pipes = kernels.tensor_pipes();
    assert_eq!((pipes.kernels[0].counted, pipes.disagreements().count()), (TcUse::Unknown, 0));
}

#[test]
fn runs_with_other_kernels_are_refused() {
    let profile = recorded(&[c"a", c"b"]);
    let counts = measured(&[("0", None, &[(TIME, 1.0)])]);
    let error = CountedKernels::new(&profile, counts).unwrap_err().to_string();
    assert!(error.contains("1 kernels were counted") && error.contains("has 2"), "{error}");

    // Recorded and counted in turn, never beside each other; the fake has no counters of kernels.
    let fake = Fake::new();
    let library = fake.library().unwrap();
    let counters = RangeProfiler::builder(&library).metric("fake__0.sum").build().unwrap();
    let profiler = Profiler::builder().library(library).build().unwrap();
    let mut runs = 0;
    let error = count_kernels(&counters, &profiler, || {
        runs += 1;
        fake.launch(Gpu::kernel(c"a").taking_ns(1000));
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("0 kernels were counted") && runs == 2, "{error}");
    assert!(!fake.counts());
    assert_eq!(count_kernels(&counters, &profiler, || ()).unwrap().kernels().count(), 0);
}

/// On an H200 a product in single precision gave the tensor pipes instructions, and they did no operation.
#[test]
fn a_busy_pipe_without_operations_is_no_tensor_core() {
    let name = c"sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas";
    let profile = recorded(&[name]);
    let busy = [(TIME, 21_432_000.0), (BUSY, 0.000_150_975), (TENSOR, 16_384.0)];
    let whole = [&busy[..], &[(BF16, 0.0), (TF32, 0.0)]].concat();
    let counts = measured(&[("0", None, &whole)]);
    let pipes = CountedKernels::new(&profile, counts).unwrap().tensor_pipes();
    assert_eq!((pipes.kernels[0].counted, pipes.disagreements().count()), (TcUse::NotUsing, 0));
    assert_eq!(pipes.kernels[0].instructions, Some(16_384.0));
    // Where no operations were counted, the pipe is all there is.
    let counts = measured(&[("0", None, &busy)]);
    let pipes = CountedKernels::new(&profile, counts).unwrap().tensor_pipes();
    assert_eq!(pipes.kernels[0].counted, TcUse::Using);
    let said: Vec<_> = pipes.disagreements().map(|(_, what)| what).collect();
    assert_eq!(said, [PipeDisagreement::BusyThough]);
}

/// Kernels whose work is known to the last operation, recorded and counted on an H200.
#[test]
fn counts_of_a_gpu_match_the_declared_work() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/recordings/counted");
    let profile = Profile::load(format!("{folder}/bound.gpuprof")).unwrap();
    let text = std::fs::read_to_string(format!("{folder}/bound.json")).unwrap();
    let measured: Measured = serde_json::from_str(&text).unwrap();
    let roofline = profile.roofline(&profile.peaks(None).unwrap()).counted(&measured);
    assert_eq!((roofline.points.len(), roofline.runs), (3, 7));
    assert!(roofline.disagreements(0.05).is_empty(), "{roofline}");
    for point in &roofline.points {
        let said = point.declared.unwrap();
        let single = point.flops.iter().find(|of| of.dtype == Dtype::F32).unwrap();
        assert_eq!(Some(single.flops), said.flops, "{}", point.name);
        let dram = point.bytes_at(MemoryLevel::Dram).unwrap() / said.bytes.unwrap();
        assert!((0.99..1.03).contains(&dram), "{}: {dram}", point.name);
        let (limit, share) = point.of_roof().unwrap();
        let expected = match &*point.name {
            "gemm" => Limit::Compute(Dtype::F32, Pipe::Vector),
            _ => Limit::Memory(MemoryLevel::Dram),
        };
        assert_eq!(limit, expected, "{}", point.name);
        assert!((0.3..1.0).contains(&share), "{} at {share}", point.name);
    }
    // 9,024 bytes a cycle at 1.7 GHz.
    let l2 = roofline.peaks.level(MemoryLevel::L2);
    assert!((15.3e12..15.5e12).contains(&l2.peak.unwrap()), "{l2:?}");
    assert_eq!(l2.origin, Origin::Counters);
}
