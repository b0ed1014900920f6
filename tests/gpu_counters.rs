//! Hardware counters on a GPU, beside arithmetic: what a kernel must have done is what is counted.
//!
//! With `OUT` set, what was counted is saved there as text.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // a test that says what it saw

use std::process::ExitCode;
use std::time::{Duration, Instant};

use cupti::counters::{
    CounterData, Flops, Measured, MetricKind, PmSampler, RangeProfiler, SamplerBuilder, Set, nvprof,
};
use cupti::{Collector, Config, Library, Record, clock};
use gpu_profiler_tests::counted::{BLOCK, Counted, Gemm};
use gpu_profiler_tests::cuda::{DEFAULT, Gpu};
use gpu_profiler_tests::harness;

/// Says that a process of its own is to count beside a collector.
const PART: &str = "GPU_COUNTERS_PART";

const FADD: &str = "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum";
const FFMA: &str = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum";
const READ: &str = "dram__bytes_read.sum";
const WRITTEN: &str = "dram__bytes_write.sum";
const TIME: &str = "gpu__time_duration.sum";
/// Instructions of warps, counted by the hardware.
const INSTRUCTIONS: &str = "smsp__inst_executed.sum";

fn main() -> ExitCode {
    if std::env::var_os(PART).is_some() {
        beside_a_collector();
        return ExitCode::SUCCESS;
    }
    harness::run(&[
        ("chip_lists_its_metrics_and_passes", metrics_of_the_chip),
        ("scalar_flops_are_counted_exactly", scalar_flops),
        ("dram_bytes_match_arithmetic", dram_bytes),
        ("a_bf16_gemm_counts_its_operations_in_one_pass", gemm),
        ("a_range_counts_its_parts_and_its_own", nested),
        ("ranges_of_the_program_are_counted", ranges_of_the_program),
        ("a_graph_launch_counts_whole", graph),
        ("more_passes_run_the_work_again", two_passes),
        ("ranges_that_differ_from_run_to_run_are_an_error", differing),
        ("misuse_is_named", misuse),
        ("kernels_are_counted_one_by_one", kernels),
        ("saved_counts_evaluate_to_the_same_values", save_counts),
        ("ranges_beyond_the_capacity_are_counted", too_many),
        ("every_set_can_be_counted", sets),
        ("every_metric_that_nvprof_had_has_a_value_or_a_reason", nvprof_rows),
        ("counting_and_a_collector_exclude_each_other", collector_beside),
        ("samples_add_up_to_the_bytes_that_were_copied", samples_of_copies),
        ("samples_are_bounded_and_none_is_lost_between_takings", samples_are_bounded),
        ("sampling_goes_on_without_gaps_or_growth", sampling_for_long),
        ("samples_and_kernels_are_on_one_clock", samples_beside_a_collector),
        ("sampling_costs_are_stated", sampling_costs),
        ("misuse_of_a_sampler_is_named", sampling_misuse),
    ])
    .exit_code()
}

/// What the tests count on: two buffers of this many blocks of floats.
struct Bench {
    gpu: Gpu,
    kernels: Counted,
    library: Library,
    blocks: u32,
    x: u64,
    y: u64,
}

impl Bench {
    /// Buffers of so many MiB each.
    fn new(mebibytes: u32) -> Self {
        let gpu = Gpu::get();
        let bytes = (mebibytes as usize) << 20;
        let (x, y) = (gpu.alloc(bytes), gpu.alloc(bytes));
        gpu.fill(x, 0, bytes);
        gpu.fill(y, 0, bytes);
        gpu.synchronize_context();
        let blocks = (bytes / 4) as u32 / BLOCK;
        let kernels = Counted::load();
        Self { gpu, kernels, library: Library::open().unwrap(), blocks, x, y }
    }

    fn axpy(&self) {
        self.kernels.axpy(DEFAULT, self.blocks, self.x, self.y);
    }

    fn threads(&self) -> f64 {
        f64::from(self.blocks) * f64::from(BLOCK)
    }

    fn profiler(&self, metrics: &[&str]) -> RangeProfiler {
        RangeProfiler::builder(&self.library).metrics(metrics.iter().copied()).build().unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.gpu.free(self.x);
        self.gpu.free(self.y);
    }
}

fn value(measured: &Measured, range: &str, metric: &str) -> f64 {
    measured.range(range).unwrap().value(metric).unwrap()
}

fn assert_near(what: &str, counted: f64, expected: f64, percent: f64) {
    let off = (counted / expected - 1.0) * 100.0;
    eprintln!("{what}: counted {counted}, expected {expected} ({off:+.2} %)");
    assert!(off.abs() <= percent, "{what}: counted {counted}, expected {expected}");
}

fn save(name: &str, text: &str) {
    eprintln!("{text}");
    if let Some(out) = std::env::var_os("OUT") {
        std::fs::write(std::path::Path::new(&out).join(name), text).unwrap();
    }
}

fn metrics_of_the_chip() {
    let bench = Bench::new(1);
    let begun = Instant::now();
    let profiler = bench.profiler(&[READ, WRITTEN, TIME]);
    eprintln!("built in {:?}: {}", begun.elapsed(), profiler.plan());
    let host = profiler.host();
    let counts = MetricKind::ALL.map(|kind| host.metrics(kind).unwrap().len());
    eprintln!(
        "{} on CUPTI {}: {counts:?} counters, ratios, throughputs",
        host.chip(),
        host.version()
    );
    assert!(
        bench.library.metrics().unwrap().chips().unwrap().iter().any(|chip| chip == host.chip())
    );
    assert!(counts.iter().all(|count| *count > 0));
    assert_eq!(host.describe(READ).unwrap().dimension, "byte");
    assert_eq!(profiler.plan().passes(), 1);
    if host.chip() == "GH100" {
        // As it is planned where there is no GPU.
        let text = include_str!("../cupti-rs/tests/facts/gh100-passes.txt");
        let mut asked = 0;
        for line in text.lines().filter(|line| line.starts_with("ranges")) {
            let parts: Vec<_> = line.split(" | ").collect();
            // The column of 13.0.
            let passes = parts[1].split(' ').nth(2).unwrap();
            if let Ok(plan) = host.plan(parts[2].split(' ')) {
                asked += 1;
                if plan.passes().to_string() != passes {
                    eprintln!("{} here, {passes} without a GPU: {}", plan.passes(), parts[2]);
                }
            } else {
                eprintln!("refused here, {passes} without a GPU: {}", parts[2]);
            }
        }
        assert!(asked > 50, "{asked}");
    }
}

fn scalar_flops() {
    let bench = Bench::new(64);
    let profiler = RangeProfiler::builder(&bench.library).set(Set::ScalarFlops).build().unwrap();
    assert!(profiler.missing().is_empty());
    let each = 64;
    let (kernels, stream) = (bench.kernels, DEFAULT);
    let ((), measured) = profiler
        .measure_once(|ranges| {
            ranges.run_in("axpy", || bench.axpy());
            ranges.run_in("reduce", || {
                kernels.reduce(stream, bench.blocks / each, each, bench.x, bench.y);
            });
            ranges.run_in("daxpy", || kernels.daxpy(stream, bench.blocks / 2, bench.x, bench.y));
            ranges.run_in("haxpy2", || kernels.haxpy2(stream, bench.blocks, bench.x, bench.y));
            ranges.run_in("copy", || kernels.copy(stream, bench.blocks, bench.x, bench.y));
            ranges.run_in("nothing", || {});
        })
        .unwrap();
    save("scalar_flops.txt", &measured.to_string());
    let n = bench.threads();
    let flops = |name: &str| Flops::from_range(&measured.range(name).unwrap());
    assert_eq!(flops("axpy").single, Some(2.0 * n));
    // Every thread adds `each` elements, and 5 times within its warp.
    let threads = n / f64::from(each);
    assert_eq!(flops("reduce").single, Some(threads * f64::from(each + 5)));
    assert_eq!(flops("daxpy").double, Some(n));
    assert_eq!(flops("daxpy").single, Some(0.0));
    assert_eq!((flops("copy").total(), flops("nothing").total()), (0.0, 0.0));
    eprintln!("half precision in the reduction, which has none: {:?}", flops("reduce").half);
    let packed = value(&measured, "haxpy2", "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum");
    eprintln!("a packed half-precision fma counts {}", packed / n);
    assert_eq!(packed, n, "one, though it is two operations");
}

fn dram_bytes() {
    // Far above the L2 of any GPU.
    const MEBIBYTES: u32 = 1024;
    let bench = Bench::new(MEBIBYTES);
    let bytes = f64::from(MEBIBYTES) * f64::from(1 << 20);
    let profiler = bench.profiler(&[READ, WRITTEN, TIME]);
    let begun = Instant::now();
    let ((), measured) = profiler
        .measure_once(|ranges| {
            ranges.run_in("copy", || {
                bench.kernels.copy(DEFAULT, bench.blocks, bench.x, bench.y);
            });
            ranges.run_in("axpy", || bench.axpy());
            ranges.run_in("memcpy", || {
                bench.gpu.copy_within_async(bench.y, bench.x, bytes as usize, DEFAULT);
            });
        })
        .unwrap();
    eprintln!("measured in {:?}", begun.elapsed());
    save("dram_bytes.txt", &measured.to_string());
    assert_near("copy, read", value(&measured, "copy", READ), bytes, 5.0);
    assert_near("copy, written", value(&measured, "copy", WRITTEN), bytes, 5.0);
    assert_near("axpy, read", value(&measured, "axpy", READ), 2.0 * bytes, 5.0);
    assert_near("axpy, written", value(&measured, "axpy", WRITTEN), bytes, 5.0);
    eprintln!(
        "cuMemcpyDtoD: {} read, {} written of {bytes}",
        value(&measured, "memcpy", READ),
        value(&measured, "memcpy", WRITTEN)
    );
    // The GPU's own clock beside the counters' time.
    let (from, to) = (bench.gpu.event(), bench.gpu.event());
    bench.gpu.record(from, DEFAULT);
    bench.axpy();
    bench.gpu.record(to, DEFAULT);
    bench.gpu.synchronize_context();
    let events = bench.gpu.elapsed_ns(from, to);
    assert_near("axpy, time beside events", value(&measured, "axpy", TIME), events, 25.0);
}

fn gemm() {
    const SIZE: u32 = 4096;
    let bench = Bench::new(1);
    let Some(gemm) = Gemm::bf16(&bench.gpu, SIZE) else {
        eprintln!("cuBLAS was not found: no GEMM is counted");
        return;
    };
    let bf16 = "sm__ops_path_tensor_src_bf16_dst_fp32.sum";
    let profiler = bench.profiler(&[bf16, READ, WRITTEN, TIME]);
    assert_eq!(profiler.runs(), 1);
    let ((), measured) =
        profiler.measure_once(|ranges| ranges.run_in("gemm", || gemm.run())).unwrap();
    save("gemm.txt", &measured.to_string());
    assert_eq!(value(&measured, "gemm", bf16), 2.0 * f64::from(SIZE).powi(3));
    assert!(value(&measured, "gemm", READ) >= f64::from(2 * SIZE * SIZE));
}

fn nested() {
    let bench = Bench::new(16);
    let profiler =
        RangeProfiler::builder(&bench.library).metrics([FFMA, FADD]).levels(2).build().unwrap();
    let mut ran = 0;
    let measured = profiler
        .measure(|ranges| {
            ran += 1;
            let _outer = ranges.enter("outer");
            bench.axpy();
            ranges.run_in("first", || bench.axpy());
            bench.axpy();
            ranges.run_in("second", || {
                bench.axpy();
                bench.axpy();
                ranges.run_in("deeper", || bench.axpy());
            });
        })
        .unwrap();
    save("nested.txt", &measured.to_string());
    let n = bench.threads();
    let [outer, first, second] =
        ["outer", "first", "second"].map(|name| value(&measured, name, FFMA) / n);
    // Two of its own, one of the first part, three of the second with what lies deeper.
    assert_eq!([outer, first, second], [6.0, 1.0, 3.0]);
    assert_eq!(measured.range("second").unwrap().parent().unwrap().name(), "outer");
    assert_eq!((measured.too_deep(), measured.dropped()), (1, 0));
    assert_eq!((measured.runs(), ran), (profiler.runs(), profiler.runs()));
}

fn ranges_of_the_program() {
    let bench = Bench::new(1024);
    let profiler = RangeProfiler::builder(&bench.library).set(Set::Dram).levels(2).build().unwrap();
    let measured = profiler_core::counters::count_ranges(&profiler, || {
        let _step = nvtx::range("step");
        {
            let _copy = nvtx::range("copy");
            bench.kernels.copy(DEFAULT, bench.blocks, bench.x, bench.y);
        }
        let _axpy = nvtx::range("axpy");
        bench.axpy();
    })
    .unwrap();
    save("ranges.txt", &measured.to_string());
    let gib = f64::from(1 << 30);
    for (range, expected) in [("step", 3.0), ("copy", 1.0), ("axpy", 2.0)] {
        assert_near(&format!("{range}, read"), value(&measured, range, READ), expected * gib, 5.0);
    }
    assert_eq!(measured.runs(), 2);
}

fn graph() {
    let bench = Bench::new(16);
    let stream = bench.gpu.stream();
    let ten = || {
        (0..10).for_each(|_| bench.kernels.axpy(stream, bench.blocks, bench.x, bench.y));
    };
    let graph = bench.gpu.capture(stream, ten);
    let hardware = [INSTRUCTIONS, "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"];
    let ((), measured) = bench
        .profiler(&hardware)
        .measure_once(|ranges| {
            ranges.run_in("graph", || bench.gpu.launch_graph(graph, stream));
            ranges.run_in("alone", || bench.axpy());
        })
        .unwrap();
    save("graph.txt", &measured.to_string());
    for metric in hardware {
        let [graph, alone] = ["graph", "alone"].map(|range| value(&measured, range, metric));
        assert_eq!(graph, 10.0 * alone, "{metric}");
    }

    // What CUPTI adds to kernels is not in graphs.
    let mut made_within = None;
    let ((), measured) = bench
        .profiler(&[FFMA])
        .measure_once(|ranges| {
            ranges.run_in("made before", || bench.gpu.launch_graph(graph, stream));
            ranges.run_in("alone", || bench.axpy());
            let graph = bench.gpu.capture(stream, ten);
            ranges.run_in("made within", || bench.gpu.launch_graph(graph, stream));
            made_within = Some(graph);
        })
        .unwrap();
    save("graph-sass.txt", &measured.to_string());
    let [before, alone, within] = ["made before", "alone", "made within"]
        .map(|range| value(&measured, range, FFMA) / bench.threads());
    // As of 13.0.1; where it is otherwise, the documentation of `Set::ScalarFlops` is to say so.
    assert_eq!([before, alone, within], [0.0, 1.0, 0.0]);
    bench.gpu.destroy_graph(graph);
    bench.gpu.destroy_graph(made_within.unwrap());
    bench.gpu.destroy(stream);
}

fn two_passes() {
    let bench = Bench::new(1024);
    let profiler = bench.profiler(&[READ, WRITTEN, TIME, FFMA]);
    assert_eq!(profiler.runs(), 2);
    let error = profiler.measure_once(|_| panic!("it may not run")).unwrap_err();
    assert!(error.to_string().contains("2 passes"), "{error}");
    let mut ran = 0;
    let measured = profiler
        .measure(|ranges| {
            ran += 1;
            for _ in 0..3 {
                ranges.run_in("axpy", || bench.axpy());
            }
        })
        .unwrap();
    save("two_passes.txt", &measured.to_string());
    assert_eq!((ran, measured.runs(), measured.ranges().count()), (2, 2, 3));
    assert_eq!(measured.total("axpy", FFMA), Some(3.0 * bench.threads()));
    let bytes = 3.0 * 2.0 * f64::from(1 << 30);
    assert_near("three axpys, read", measured.total("axpy", READ).unwrap(), bytes, 5.0);
}

fn differing() {
    let bench = Bench::new(1);
    let profiler = bench.profiler(&[READ, FFMA]);
    let mut run = 0;
    let error = profiler
        .measure(|ranges| {
            run += 1;
            ranges.run_in("same", || bench.axpy());
            ranges.run_in(format!("run {run}"), || bench.axpy());
        })
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains("\"run 1\"") && text.contains("\"run 2\""), "{text}");
    // And the next one is fine.
    let measured = profiler.measure(|ranges| ranges.run_in("same", || bench.axpy())).unwrap();
    assert_eq!(value(&measured, "same", FFMA), bench.threads());
}

fn misuse() {
    let bench = Bench::new(1);
    let profiler = bench.profiler(&[FFMA]);
    let error = profiler.measure(|_| bench.axpy()).unwrap_err().to_string();
    assert!(error.contains("opened no range"), "{error}");
    let error = profiler
        .measure(|ranges| std::mem::forget(ranges.enter("forgotten")))
        .unwrap_err()
        .to_string();
    assert!(error.contains("left open"), "{error}");
    let error = profiler
        .measure(|ranges| {
            ranges.run_in("outer", || {
                let error = profiler.measure(|_| {}).unwrap_err();
                assert!(error.is_busy(), "{error}");
            });
        })
        .map(|measured| measured.ranges().count());
    assert_eq!(error.unwrap(), 1);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        profiler.measure(|ranges| ranges.run_in("panics", || panic!("on purpose")))
    }));
    assert!(panicked.is_err());
    let measured = profiler.measure(|ranges| ranges.run_in("after", || bench.axpy())).unwrap();
    assert_eq!(value(&measured, "after", FFMA), bench.threads());
    let unknown = RangeProfiler::builder(&bench.library).metric("sm__no_such.sum").build();
    let error = unknown.unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("sm__no_such.sum"), "{error}");
    let elsewhere = std::thread::spawn({
        let library = bench.library.clone();
        move || RangeProfiler::builder(&library).metric(FFMA).build().map(|_| ()).unwrap_err()
    });
    let error = elsewhere.join().unwrap().to_string();
    assert!(error.contains("no CUDA context is current"), "{error}");
}

fn kernels() {
    let bench = Bench::new(64);
    let profiler = bench.profiler(&[READ, WRITTEN, TIME, FFMA, FADD]);
    assert!(profiler.plan().passes() > 1);
    let ((), measured) = profiler
        .measure_kernels(|| {
            bench.axpy();
            bench.kernels.reduce(DEFAULT, bench.blocks / 64, 64, bench.x, bench.y);
            bench.axpy();
        })
        .unwrap();
    save("kernels.txt", &measured.to_string());
    let n = bench.threads();
    let names: Vec<_> = measured.ranges().map(|range| range.name().to_owned()).collect();
    assert_eq!(names, ["0", "1", "2"]);
    let counts: Vec<_> =
        measured.ranges().map(|range| (range.value(FFMA), range.value(FADD))).collect();
    let added = n / 64.0 * 69.0;
    assert_eq!(counts, [(Some(n), Some(0.0)), (Some(0.0), Some(added)), (Some(n), Some(0.0))]);
}

/// With `OUT` set, what the hardware counted and what it came to are saved for tests without a GPU.
fn save_counts() {
    let bench = Bench::new(64);
    let gemm = Gemm::bf16(&bench.gpu, 1024);
    let keep = |name: &str, profiler: &RangeProfiler, data: &CounterData| {
        // Not the host that planned it: one that knows the chip's name alone, as there is where there is no GPU.
        let host = bench.library.metrics().unwrap().host(data.chip()).unwrap();
        let bytes = data.to_bytes();
        let again = CounterData::from_bytes(&bytes).unwrap();
        assert_eq!(&again, data);
        let (measured, here) =
            (host.evaluate(&again).unwrap(), profiler.host().evaluate(data).unwrap());
        eprintln!("{name}: {data}, a file of {} bytes\n{measured}", bytes.len());
        let texts = [&measured, &here].map(|of| serde_json::to_string_pretty(of).unwrap());
        assert_eq!(texts[0], texts[1]);
        if let Some(out) = std::env::var_os("OUT") {
            let out = std::path::Path::new(&out);
            data.save(out.join(format!("{name}.counts"))).unwrap();
            std::fs::write(out.join(format!("{name}.json")), &texts[1]).unwrap();
        }
        measured
    };

    let metrics = [
        TIME,
        READ,
        WRITTEN,
        INSTRUCTIONS,
        FADD,
        FFMA,
        "sm__warps_active.avg.pct_of_peak_sustained_active",
        "l1tex__t_sector_hit_rate.pct",
        "smsp__inst_executed.avg.per_cycle_active",
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    ];
    let build = |builder: cupti::counters::Builder| builder.build().unwrap();
    let builder = || RangeProfiler::builder(&bench.library);
    let profiler = build(builder().metrics(metrics).max_ranges(4));
    let kernels = || {
        bench.axpy();
        bench.kernels.reduce(DEFAULT, bench.blocks / 64, 64, bench.x, bench.y);
        bench.kernels.gather(DEFAULT, bench.blocks, bench.x, bench.y);
        gemm.iter().for_each(Gemm::run);
    };
    match profiler.collect_kernels(kernels) {
        Ok(((), data)) => {
            let measured = keep("kernels", &profiler, &data);
            assert_eq!(value(&measured, "0", FFMA), bench.threads());
            // What the hardware counts takes less room than what is added to kernels.
            let metrics = [
                TIME,
                READ,
                WRITTEN,
                "sm__warps_active.avg.pct_of_peak_sustained_active",
                "sm__inst_executed.avg.per_cycle_active",
                "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
                "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
            ];
            let profiler = build(builder().metrics(metrics).max_ranges(2));
            let two = || {
                bench.axpy();
                gemm.iter().for_each(Gemm::run);
            };
            keep("small", &profiler, &profiler.collect_kernels(two).unwrap().1);
        }
        Err(error) => {
            eprintln!("{error}");
            assert!(bench.library.version().cuda_release() < (13, 0), "{error}");
        }
    }
    let profiler = build(builder().metric(FFMA).max_ranges(1));
    let data = profiler.collect(|ranges| ranges.run_in("axpy", || bench.axpy())).unwrap();
    keep("flops", &profiler, &data);

    let work = |ranges: &cupti::counters::Ranges| {
        let _step = ranges.enter("step");
        ranges.run_in("axpy", || bench.axpy());
        ranges.run_in("gemm", || gemm.iter().for_each(Gemm::run));
    };
    for (name, set) in [("roofline", Set::Roofline), ("speed", Set::SpeedOfLight)] {
        let profiler = build(builder().set(set).levels(2).max_ranges(3));
        let measured = keep(name, &profiler, &profiler.collect(work).unwrap());
        assert_eq!(measured.ranges().count(), 3);
    }
    let profiler = build(builder().set(Set::Dram).max_ranges(1));
    let data = profiler.collect(|ranges| ranges.run_in("axpy", || bench.axpy())).unwrap();
    let measured = keep("dram", &profiler, &data);
    let bytes = f64::from(bench.blocks) * f64::from(BLOCK) * 4.0;
    assert_near("axpy, read", value(&measured, "axpy", READ), 2.0 * bytes, 10.0);
}

fn too_many() {
    let bench = Bench::new(1);
    let profiler =
        RangeProfiler::builder(&bench.library).metric(FFMA).max_ranges(5).build().unwrap();
    let measured = profiler
        .measure(|ranges| {
            (0..8).for_each(|i| ranges.run_in(format!("range {i}"), || bench.axpy()));
        })
        .unwrap();
    assert_eq!((measured.ranges().count(), measured.dropped()), (5, 3));
    assert!(measured.ranges().all(|range| range.value(FFMA) == Some(bench.threads())));
    assert_eq!(measured.total("range 1", FFMA), None);
    // Many ranges, each its own.
    let profiler =
        RangeProfiler::builder(&bench.library).metric(FFMA).max_ranges(2000).build().unwrap();
    let begun = Instant::now();
    let measured = profiler
        .measure(|ranges| {
            (0..2000).for_each(|_| ranges.run_in("one of many", || bench.axpy()));
        })
        .unwrap();
    eprintln!("2,000 ranges of one kernel: {:?}", begun.elapsed());
    assert_eq!((measured.ranges().count(), measured.dropped()), (2000, 0));
    assert_eq!(measured.total("one of many", FFMA), Some(2000.0 * bench.threads()));
}

fn sets() {
    let bench = Bench::new(256);
    for set in Set::ALL {
        let profiler = RangeProfiler::builder(&bench.library).set(set).build().unwrap();
        let missing = profiler.missing().join(" ");
        let begun = Instant::now();
        let measured = profiler.measure(|ranges| ranges.run_in("axpy", || bench.axpy())).unwrap();
        let (plan, took) = (profiler.plan(), begun.elapsed());
        let text = format!("{set}: {plan} in {took:?}; missing: {missing}\n{measured}");
        save(&format!("set-{set}.txt"), &text);
        let range = measured.range("axpy").unwrap();
        let unknown: Vec<_> = range.values().filter(|(_, value)| value.is_nan()).collect();
        eprintln!("{set}: not a number: {unknown:?}");
        assert_eq!(measured.runs(), plan.passes());
        assert!(range.values().any(|(_, value)| value > 0.0));
        if set == Set::Occupancy {
            let occupancy =
                range.value("sm__warps_active.avg.pct_of_peak_sustained_active").unwrap();
            assert!((10.0..=100.0).contains(&occupancy), "{occupancy}");
        }
        if set == Set::Roofline {
            assert_eq!(Flops::from_range(&range).single, Some(2.0 * bench.threads()));
        }
    }
}

fn nvprof_rows() {
    let bench = Bench::new(256);
    let profiler = bench.profiler(&[FFMA]);
    let mut text = String::new();
    for row in nvprof::ROWS {
        let outcome = match RangeProfiler::builder(&bench.library)
            .metrics(row.today.iter().copied())
        {
            _ if row.today.is_empty() => row.note.to_owned(),
            builder => match builder.build() {
                Ok(profiler) => {
                    let measured =
                        profiler.measure(|ranges| ranges.run_in("axpy", || bench.axpy())).unwrap();
                    let range = measured.range("axpy").unwrap();
                    let values: Vec<_> = range
                        .values()
                        .map(|(metric, value)| format!("{metric} = {value}"))
                        .collect();
                    format!("{} ({} passes; {})", values.join(", "), measured.passes(), row.note)
                }
                Err(error) => format!("refused: {error}"),
            },
        };
        text.push_str(&format!("{}: {outcome}\n", row.name));
    }
    save("nvprof.txt", &text);
    // A machine may have no NVLink.
    let refused = text.lines().filter(|line| line.contains("refused") && !line.contains("nvlink"));
    assert!(refused.count() == 0 || profiler.host().chip() != "GH100", "{text}");
    let one = |metric: &str| {
        let measured = bench
            .profiler(&[metric])
            .measure(|ranges| ranges.run_in("axpy", || bench.axpy()))
            .unwrap();
        value(&measured, "axpy", metric)
    };
    // Whole sectors are read and written.
    for name in ["gld_efficiency", "gst_efficiency"] {
        assert_near(name, one(nvprof::row(name).unwrap().today[0]), 100.0, 0.1);
    }
    let sectors = bench.threads() * 4.0 / 32.0;
    assert_near(
        "gst_transactions",
        one(nvprof::row("gst_transactions").unwrap().today[0]),
        sectors,
        0.0,
    );
}

fn collector_beside() {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.env(PART, "collector").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    eprint!("{text}");
    assert!(output.status.success(), "{}", output.status);
}

/// Beside a collection of kernels CUPTI counts wrongly and does not say so; so they exclude each other.
fn beside_a_collector() {
    let bench = Bench::new(16);
    let profiler = bench.profiler(&[FFMA]);
    let counted = || profiler.measure(|ranges| ranges.run_in("axpy", || bench.axpy()));
    let right = || assert_eq!(value(&counted().unwrap(), "axpy", FFMA), bench.threads());
    right();
    let collector = Collector::start(&bench.library, &Config::new()).unwrap();
    assert!(counted().unwrap_err().is_busy());
    bench.axpy();
    let collected = collector.stop().unwrap();
    let kernels = collected.records.iter().filter(|r| matches!(r, Record::Kernel(_))).count();
    assert_eq!(kernels, 1);
    right();
}

fn sampler(bench: &Bench, interval: Duration) -> SamplerBuilder {
    PmSampler::builder(&bench.library).metrics(SAMPLED).interval(interval)
}

/// All in one pass.
const SAMPLED: [&str; 5] = [
    READ,
    WRITTEN,
    "gr__cycles_active.sum.pct_of_peak_sustained_elapsed",
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed",
];

/// Copies for about this long; gives how many and when.
fn copies(bench: &Bench, time: Duration) -> (u64, u64, u64) {
    bench.gpu.synchronize_context();
    let (from, begun, mut copies) = (clock::now_ns(), Instant::now(), 0);
    while begun.elapsed() < time {
        for _ in 0..8 {
            bench.kernels.copy(DEFAULT, bench.blocks, bench.x, bench.y);
        }
        bench.gpu.synchronize_context();
        copies += 8;
    }
    (copies, from, clock::now_ns())
}

fn samples_of_copies() {
    let bench = Bench::new(1024);
    let mut text = String::new();
    for micros in [1000, 200, 100, 60, 40, 20] {
        let began = clock::now_ns();
        let started = Instant::now();
        let sampler = sampler(&bench, Duration::from_micros(micros)).start().unwrap();
        let started = started.elapsed();
        std::thread::sleep(Duration::from_millis(50));
        let (copies, from, to) = copies(&bench, Duration::from_secs(2));
        std::thread::sleep(Duration::from_millis(50));
        let stopping = Instant::now();
        let samples = match sampler.stop() {
            Ok(samples) => samples,
            Err(error) => {
                eprintln!("at {micros} us: {error}");
                assert!(micros < 60, "{error}");
                continue;
            }
        };
        let (stopping, ended) = (stopping.elapsed(), clock::now_ns());
        let bytes = copies as f64 * f64::from(1 << 30);
        let [read, written] =
            [READ, WRITTEN].map(|metric| samples.sum(metric, 0, u64::MAX).unwrap() / bytes);
        let (first, last) = (samples.iter().next().unwrap(), samples.iter().last().unwrap());
        // Where the counters say that the copies began and ended, beside the host.
        let busy: Vec<_> = samples
            .iter()
            .filter(|sample| {
                sample.value("gr__cycles_active.sum.pct_of_peak_sustained_elapsed") > Some(50.0)
            })
            .collect();
        let us = |a: u64, b: u64| (a as i64 - b as i64) as f64 / 1e3;
        text.push_str(&format!(
            "at {micros} us: {} samples, started in {started:?}, stopped in {stopping:?}; read {read:.4}, written \
             {written:.4} of the bytes; gaps {:?}, overflows {}, dropped {}; the first begins {:.0} us after the start, the \
             last ends {:.0} us before the end; the first busy one begins {:.0} us after the first copy, the last ends {:.0} us \
             after the last\n{samples}\n",
            samples.len(),
            samples.gaps(),
            samples.overflows(),
            samples.dropped(),
            us(first.start_ns(), began),
            us(ended, last.end_ns()),
            busy.first().map_or(f64::NAN, |sample| us(sample.start_ns(), from)),
            busy.last().map_or(f64::NAN, |sample| us(sample.end_ns(), to)),
        ));
        if micros >= 60 {
            assert_eq!((samples.overflows(), samples.dropped()), (0, 0), "{text}");
            assert_near(&format!("read at {micros} us"), read, 1.0, 2.0);
            assert_near(&format!("written at {micros} us"), written, 1.0, 2.0);
        }
    }
    save("sampling.txt", &text);
}

fn samples_are_bounded() {
    let bench = Bench::new(256);
    let mut sampler =
        sampler(&bench, Duration::from_micros(100)).max_samples(5000).start().unwrap();
    copies(&bench, Duration::from_secs(1));
    let first = sampler.drain().unwrap();
    assert!((5000..=6250).contains(&first.len()) && first.dropped() > 1000, "{first}");
    // What is taken out in time is all there.
    let (mut last_end, mut count) = (first.iter().last().unwrap().end_ns(), 0);
    for _ in 0..20 {
        copies(&bench, Duration::from_millis(50));
        let samples = sampler.drain().unwrap();
        assert_eq!((samples.dropped(), samples.gaps().0), (0, 0), "{samples}");
        // A decoding may take longer than that.
        if samples.is_empty() {
            continue;
        }
        let begin = samples.iter().next().unwrap().start_ns();
        assert!(begin.abs_diff(last_end) < 20_000, "{begin} after {last_end}");
        last_end = samples.iter().last().unwrap().end_ns();
        count += samples.len();
    }
    eprintln!("{count} samples in 20 takings");
    assert!(count > 9000, "{count}");
    sampler.stop().unwrap();
}

/// `SAMPLING_SECONDS` says how long (3 if it is not set).
fn sampling_for_long() {
    let seconds = std::env::var("SAMPLING_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3);
    let resident = || {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let bench = Bench::new(256);
    let mut sampler = sampler(&bench, Duration::from_micros(60)).start().unwrap();
    let begun = Instant::now();
    let (mut copied, mut count, mut last_end) = (0, 0, None::<u64>);
    let (mut widest, mut lost) = (0, (0, 0, 0));
    let (mut read, mut early, mut most) = (0.0, 0, 0);
    let mut take = |sampler: &mut PmSampler| {
        let samples = sampler.drain().unwrap();
        for sample in samples.iter() {
            let from = last_end.replace(sample.end_ns()).unwrap_or(sample.start_ns());
            widest = widest.max(sample.start_ns().abs_diff(from));
        }
        count += samples.len();
        lost.0 += samples.gaps().0;
        lost.1 += samples.overflows();
        lost.2 += samples.dropped();
        read += samples.sum(READ, 0, u64::MAX).unwrap_or(0.0);
    };
    while begun.elapsed() < Duration::from_secs(seconds) {
        copied += copies(&bench, Duration::from_millis(200)).0;
        take(&mut sampler);
        // The first third is for the allocator to find its size.
        if begun.elapsed() < Duration::from_secs(seconds) / 3 {
            early = resident();
        }
        most = resident();
    }
    std::thread::sleep(Duration::from_millis(500));
    take(&mut sampler);
    let bytes = copied as f64 * f64::from(1 << 28);
    eprintln!(
        "{seconds} s: {count} samples; gaps, overflows, dropped {lost:?}; the widest step between two {widest} ns; read {:.4} of \
         {bytes:e} bytes; resident {} MiB after a third, {} MiB at the end",
        read / bytes,
        early >> 20,
        most >> 20,
    );
    sampler.stop().unwrap();
    assert_eq!(lost, (0, 0, 0));
    assert!(widest < 20_000, "{widest}");
    assert_near("read", read, bytes, 2.0);
    assert!(most.saturating_sub(early) < 16 << 20, "{early} {most}");
}

fn samples_beside_a_collector() {
    let bench = Bench::new(256);
    let collector = Collector::start(&bench.library, &Config::new()).unwrap();
    let sampler = sampler(&bench, Duration::from_micros(100)).start().unwrap();
    let (copies, ..) = copies(&bench, Duration::from_millis(500));
    let samples = sampler.stop().unwrap();
    let collected = collector.stop().unwrap();
    let kernels = collected.records.iter().filter(|r| matches!(r, Record::Kernel(_))).count();
    assert_eq!(kernels as u64, copies);
    let read = samples.sum(READ, 0, u64::MAX).unwrap();
    assert_near("read beside a collector", read, copies as f64 * f64::from(1 << 28), 2.0);
    // Kernels and samples are on one clock: bytes within a kernel's time are its own.
    let mut ratios = Vec::new();
    for record in &collected.records {
        if let Record::Kernel(kernel) = record {
            let clock = collected.clock;
            let at = |ns| clock.monotonic_ns(ns);
            let (start, end) = (at(kernel.span.start_ns), at(kernel.span.end_ns));
            if let Some((busy, 1..)) = samples.mean(SAMPLED[2], start, end) {
                ratios.push(busy);
            }
        }
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len().max(1) as f64;
    eprintln!(
        "{} of {kernels} kernels have a sample within; graphics busy {mean:.2} % in these",
        ratios.len()
    );
    assert!(ratios.is_empty() || mean > 95.0, "{mean}");
}

fn sampling_costs() {
    let bench = Bench::new(256);
    let empty = || {
        let begun = Instant::now();
        for _ in 0..20_000 {
            bench.gpu.launch_empty(DEFAULT);
        }
        bench.gpu.synchronize_context();
        begun.elapsed().as_secs_f64() / 20_000.0 * 1e9
    };
    let bound = || {
        let begun = Instant::now();
        for _ in 0..500 {
            bench.axpy();
        }
        bench.gpu.synchronize_context();
        begun.elapsed().as_secs_f64() / 500.0 * 1e6
    };
    let best = |run: &dyn Fn() -> f64| (0..7).map(|_| run()).fold(f64::INFINITY, f64::min);
    let mut text = String::new();
    for round in 0..2 {
        let plain = (best(&empty), best(&bound));
        text.push_str(&format!(
            "{round}: none: {:.0} ns a launch, {:.2} us an axpy\n",
            plain.0, plain.1
        ));
        for micros in [1000, 100, 60] {
            let sampler = sampler(&bench, Duration::from_micros(micros)).start().unwrap();
            let with = (best(&empty), best(&bound));
            let samples = sampler.stop().unwrap();
            text.push_str(&format!(
                "{round}: sampling at {micros} us: {:.0} ns a launch, {:.2} us an axpy; {} samples, overflows {}\n",
                with.0,
                with.1,
                samples.len(),
                samples.overflows()
            ));
        }
    }
    save("sampling-costs.txt", &text);
}

fn sampling_misuse() {
    let bench = Bench::new(1);
    let start = |metrics: &[&str]| {
        PmSampler::builder(&bench.library).metrics(metrics.iter().copied()).start()
    };
    let error = start(&["sm__throughput.avg.pct_of_peak_sustained_elapsed"]).unwrap_err();
    assert!(error.to_string().contains("passes"), "{error}");
    let error = start(&["sm__no_such.sum"]).unwrap_err();
    assert!(error.is_unsupported(), "{error}");
    let first = start(&[READ]).unwrap();
    let error = start(&[READ]).unwrap_err();
    assert!(error.is_busy(), "{error}");
    let ranges = RangeProfiler::builder(&bench.library).metric(INSTRUCTIONS).build();
    let error = ranges.unwrap_err();
    assert!(error.is_busy() && error.code() == Some(26), "{error}");
    drop(first);
    let again = start(&[READ]).unwrap();
    drop(again);
}
