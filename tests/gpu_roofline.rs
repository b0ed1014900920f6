//! Declared work on a GPU: the roofs that its attributes give, what probes reach under them, and three kernels whose operations
//! and bytes are known.
#![allow(clippy::unwrap_used, clippy::print_stderr)] // a test that says what it measured

use std::process::ExitCode;

use cupti::Library;
use cupti::counters::{MemoryLevel, RangeProfiler, Set};
use gpu_profiler_tests::harness;
use gpu_profiler_tests::programs::bound::{self, Bound as Kernels};
use nvtx::{Dtype, Pipe, Work};
use profiler_analysis::counters::count_kernels;
use profiler_analysis::kernels::TcUse;
use profiler_analysis::prelude::*;
use profiler_analysis::roofline::{Bound, Limit, Origin};
use profiler_core::Profiler;
use profiler_core::counters::count_ranges;

const TIMES: usize = 5;

fn main() -> ExitCode {
    harness::run(&[
        ("the_attributes_give_the_roofs", the_attributes_give_the_roofs),
        ("probes_come_near_the_roofs_and_not_above", probes_come_near_the_roofs_and_not_above),
        (
            "kernels_lie_where_their_declared_work_predicts",
            kernels_lie_where_their_declared_work_predicts,
        ),
        ("counters_match_the_declared_work", counters_match_the_declared_work),
        ("names_match_the_tensor_pipes", names_match_the_tensor_pipes),
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
    let mut run = || {
        kernels.copy().unwrap();
        let _range = nvtx::event("product").work(Kernels::PROBE_WORK).range();
        kernels.cublas().unwrap();
    };
    run(); // loads code
    let (mut copied, mut computed) = (0.0, 0.0);
    for _ in 0..TIMES {
        let ((), profile) = profiler.record(&mut run).unwrap();
        let peaks = profile.peaks(Some(0)).unwrap();
        let copies: Vec<_> = profile.operations().filter_map(|one| one.as_copy()).collect();
        assert_eq!(copies.len(), 1);
        // Each byte is read and written.
        let bytes_per_s = 2.0 * copies[0].bandwidth().unwrap() * 1e9;
        copied = f64::max(copied, bytes_per_s / peaks.bandwidth().peak.unwrap());
        let roofline = profile.roofline(&peaks);
        eprintln!("{roofline}");
        assert_eq!(roofline.points.len(), 1);
        let product = &roofline.points[0];
        assert_eq!((product.pipe, product.bound()), (Some(Pipe::Vector), Some(Bound::Compute)));
        computed = f64::max(computed, product.of_roof().unwrap());
    }
    assert!((0.6..1.0).contains(&copied), "a copy reaches {copied} of the bandwidth");
    assert!((0.4..1.0).contains(&computed), "a product reaches {computed} of the peak");
}

fn kernels_lie_where_their_declared_work_predicts() {
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

fn once(kernels: &mut Kernels) {
    kernels.gemm().unwrap();
    kernels.axpy().unwrap();
    kernels.reduction().unwrap();
    kernels.wait().unwrap();
}

fn save(name: &str, text: &str) {
    eprintln!("{text}");
    if let Some(out) = std::env::var_os("OUT") {
        std::fs::write(std::path::Path::new(&out).join(name), text).unwrap();
    }
}

fn counters_match_the_declared_work() {
    let mut kernels = Kernels::new(0).unwrap();
    kernels.reset().unwrap();
    once(&mut kernels); // loads code
    let profiler = Profiler::builder().build().unwrap();
    let ((), profile) = profiler.record(|| once(&mut kernels)).unwrap();
    let declared = profile.roofline(&profile.peaks(Some(0)).unwrap());
    let library = Library::open().unwrap();
    let counters = RangeProfiler::builder(&library).set(Set::Roofline).build().unwrap();
    let measured = count_ranges(&counters, || once(&mut kernels)).unwrap();
    let counted = declared.counted(&measured);
    save("counted-roofline.txt", &counted.to_string());
    save("counted-roofline.html", &counted.to_html());
    save("counted-roofline.json", &serde_json::to_string_pretty(&counted).unwrap());
    save("counted-measured.json", &serde_json::to_string_pretty(&measured).unwrap());
    if let Some(out) = std::env::var_os("OUT") {
        profile.save(std::path::Path::new(&out).join("counted-roofline.gpuprof")).unwrap();
    }
    assert_eq!(counted.points.len(), 3);
    for point in &counted.points {
        let said = point.declared.unwrap();
        // Constants that are loaded as halves count as halves.
        let single = point.flops.iter().find(|of| of.dtype == Dtype::F32).unwrap();
        assert_eq!(single.flops, said.flops.unwrap(), "{}", point.name);
        assert_eq!(point.main_type(), Some((Dtype::F32, Pipe::Vector)), "{}", point.name);
        let dram = point.bytes_at(MemoryLevel::Dram).unwrap() / said.bytes.unwrap();
        assert!((0.9..1.1).contains(&dram), "{}: {dram} of the declared bytes", point.name);
        let l2 = point.bytes_at(MemoryLevel::L2).unwrap();
        assert!(l2 >= 0.9 * said.bytes.unwrap(), "{}: {l2}", point.name);
        let (limit, share) = point.of_roof().unwrap();
        assert!((0.2..1.0).contains(&share), "{} is at {share} of {limit}", point.name);
        if point.name == "axpy" {
            assert_eq!(limit, Limit::Memory(MemoryLevel::Dram));
        }
    }
    for level in [MemoryLevel::L2, MemoryLevel::L1] {
        let roof = counted.peaks.level(level);
        assert_eq!(roof.origin, Origin::Counters);
        assert!(roof.peak.unwrap() > counted.peaks.bandwidth().peak.unwrap(), "{level}: {roof:?}");
    }
}

fn names_match_the_tensor_pipes() {
    let mut kernels = Kernels::new(0).unwrap();
    kernels.reset().unwrap();
    let profiler = Profiler::builder().build().unwrap();
    let library = Library::open().unwrap();
    let mut run = || {
        once(&mut kernels);
        kernels.cublas().unwrap();
        kernels.cublas_bf16().unwrap();
    };
    run();
    let counters = RangeProfiler::builder(&library).set(Set::Tensor).build().unwrap();
    let counted = count_kernels(&counters, &profiler, &mut run).unwrap();
    let pipes = counted.tensor_pipes();
    save("tensor-pipes.txt", &pipes.to_string());
    save("tensor-pipes.json", &serde_json::to_string_pretty(&pipes).unwrap());
    let busy: Vec<_> =
        pipes.kernels.iter().filter(|kernel| kernel.counted == TcUse::Using).collect();
    assert_eq!(busy.len(), 1, "{pipes}");
    // Pipes count what they do, with the padding of the last tiles: 1.6 % more where a tile has 320 rows.
    let [rows, columns] = tile_of(&busy[0].name).map(|tile| (8192f64 / tile).ceil() * tile);
    assert_eq!(busy[0].operations, [(Dtype::Bf16, 2.0 * rows * columns * 8192.0)]);
    assert!(busy[0].active_percent > Some(20.0), "{pipes}");
    assert_eq!(pipes.disagreements().count(), 0, "{pipes}");
}

/// The rows and columns of a product that a block makes at once, as cuBLAS says in the kernel's name: `..._320x128_64x3_...`.
fn tile_of(kernel: &str) -> [f64; 2] {
    let sizes = kernel.split('_').filter_map(|part| part.split_once('x'));
    let mut numbers =
        sizes.filter_map(|(rows, columns)| Some([rows.parse().ok()?, columns.parse().ok()?]));
    numbers.next().unwrap()
}
