//! Declared work on a GPU: the roofs that its attributes give, what probes reach under them, and three kernels whose operations
//! and bytes are known. The counters of `ncu` on the same kernels are the referee of what is declared: `examples/roofline.rs`
//! says how.
#![allow(clippy::unwrap_used, clippy::print_stderr)] // a test that says what it measured

use std::process::ExitCode;

use gpu_profiler_examples::bound::{self, Bound as Kernels};
use gpu_profiler_tests::harness;
use nvtx::{Dtype, Pipe, Work};
use profiler_core::{Bound, Origin, Profiler};

const TIMES: usize = 5;

fn main() -> ExitCode {
    harness::run(&[
        ("the_attributes_give_the_roofs", the_attributes_give_the_roofs),
        ("probes_come_near_the_roofs_and_not_above", probes_come_near_the_roofs_and_not_above),
        ("kernels_lie_where_their_work_says", kernels_lie_where_their_work_says),
    ])
    .exit_code()
}

fn the_attributes_give_the_roofs() {
    let profiler = Profiler::builder().build().unwrap();
    let ((), profile) = profiler.record(|| ()).unwrap();
    let device = &profile.recording_info().devices[0];
    let peaks = profile.peaks(Some(0)).unwrap();
    eprintln!("{device:?}\n{peaks}");
    assert!(device.core_clock_khz.is_some() && device.memory_bandwidth.is_some());
    assert!(device.l2_bytes.is_some());
    assert_eq!(peaks.bandwidth().origin, Origin::Attributes);
    let f32 = peaks.flops(Dtype::F32, None).unwrap();
    assert_eq!((f32.pipe, f32.roof.origin), (Pipe::Vector, Origin::Attributes));
    if device.name == "NVIDIA H200" {
        let bf16 = peaks.flops(Dtype::Bf16, None).unwrap().roof.peak.unwrap();
        assert!((bf16 / 989.4e12 - 1.0).abs() < 0.001, "{bf16}");
        let bytes = peaks.bandwidth().peak.unwrap();
        assert!((bytes / 4.8e12 - 1.0).abs() < 0.03, "{bytes}");
    }
}

fn probes_come_near_the_roofs_and_not_above() {
    let mut kernels = Kernels::new(0).unwrap();
    kernels.reset().unwrap();
    let profiler = Profiler::builder().build().unwrap();
    let ((), profile) = profiler.record(|| ()).unwrap();
    let mut peaks = profile.peaks(Some(0)).unwrap();
    let bytes = peaks.measure_bandwidth(&profiler, || kernels.copy().unwrap()).unwrap();
    let flops =
        peaks.measure_work(&profiler, Kernels::PROBE_WORK, || kernels.cublas().unwrap()).unwrap();
    eprintln!("{peaks}");
    let share = bytes / peaks.bandwidth().peak.unwrap();
    assert!((0.6..1.0).contains(&share), "a copy reaches {share} of the bandwidth");
    let share = flops / peaks.flops(Dtype::F32, None).unwrap().roof.peak.unwrap();
    assert!((0.4..1.0).contains(&share), "a product reaches {share} of the peak");
}

fn kernels_lie_where_their_work_says() {
    let mut kernels = Kernels::new(0).unwrap();
    kernels.reset().unwrap();
    let run = |kernels: &mut Kernels| {
        for _ in 0..TIMES {
            kernels.gemm().unwrap();
            kernels.axpy().unwrap();
            kernels.reduction().unwrap();
        }
        kernels.wait().unwrap();
    };
    run(&mut kernels); // loads code
    let profiler = Profiler::builder().build().unwrap();
    let ((), profile) = profiler.record(|| run(&mut kernels)).unwrap();
    profile.health().assert_complete();
    // x is 1, y what the product and then 3 x made of it; a sum in 32 bits is near.
    let (first, sum) = kernels.results().unwrap();
    assert_eq!(first, 0.5 * 64.0 + 3.0);
    assert!((sum / (1u64 << 28) as f32 - 1.0).abs() < 1e-3, "{sum}");

    let roofline = profile.roofline(&profile.peaks(Some(0)).unwrap());
    eprintln!("{roofline}");
    assert!(roofline.trust.is_complete() && roofline.points.len() == 3);
    let all: [(&str, Work, u64); 3] = [
        ("gemm", bound::gemm_work(), 1),
        ("axpy", bound::axpy_work(), 1),
        ("reduction", bound::sum_work(), 2),
    ];
    for (name, work, launches) in all {
        let point = roofline.points.iter().find(|point| point.name == name).unwrap();
        assert_eq!(point.kernels, launches * TIMES as u64);
        assert_eq!(point.flops, Some((work.flops().unwrap() * TIMES as u64) as f64));
        let busy = profile.query().in_range(name).kernels().busy_time();
        assert_eq!(point.gpu_time, busy);
        // The buffers are larger than any cache: nothing is above the roof.
        let share = point.of_roof().unwrap();
        assert!((0.05..1.0).contains(&share), "{name} is at {share} of the roof");
        if name != "gemm" {
            assert_eq!(point.bound(), Some(Bound::Memory));
            assert!(share > 0.5, "{name} is at {share} of the roof");
        }
    }
}
