//! Hardware counters on a GPU, beside arithmetic: what a kernel must have done is what is counted.
//!
//! With `OUT` set, what was counted is saved there as text.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // a test that says what it saw

use std::process::ExitCode;
use std::time::Instant;

use cupti::counters::{Flops, Measured, MetricKind, RangeProfiler, Set, nvprof};
use cupti::{Collector, Config, Library};
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

fn main() -> ExitCode {
    if std::env::var_os(PART).is_some() {
        beside_a_collector();
        return ExitCode::SUCCESS;
    }
    harness::run(&[
        ("the_chip_tells_its_metrics_and_passes", metrics_of_the_chip),
        ("scalar_flops_are_counted_exactly", scalar_flops),
        ("dram_bytes_are_those_of_arithmetic", dram_bytes),
        ("a_bf16_gemm_counts_its_operations_in_one_pass", gemm),
        ("a_range_counts_its_parts_and_its_own", nested),
        ("a_graph_launch_counts_whole", graph),
        ("more_passes_run_the_work_again", two_passes),
        ("ranges_that_differ_from_run_to_run_are_an_error", differing),
        ("misuse_is_named", misuse),
        ("kernels_are_counted_one_by_one", kernels),
        ("ranges_beyond_the_room_are_told", too_many),
        ("every_set_can_be_counted", sets),
        ("every_metric_that_nvprof_had_has_a_value_or_a_reason", nvprof_rows),
        ("counting_beside_a_collector_works_or_says_why_not", collector_beside),
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

fn near(what: &str, counted: f64, expected: f64, percent: f64) {
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
            ranges.within("axpy", || bench.axpy());
            ranges.within("reduce", || {
                kernels.reduce(stream, bench.blocks / each, each, bench.x, bench.y);
            });
            ranges.within("daxpy", || kernels.daxpy(stream, bench.blocks / 2, bench.x, bench.y));
            ranges.within("haxpy2", || kernels.haxpy2(stream, bench.blocks, bench.x, bench.y));
            ranges.within("copy", || kernels.copy(stream, bench.blocks, bench.x, bench.y));
            ranges.within("nothing", || {});
        })
        .unwrap();
    save("scalar_flops.txt", &measured.to_string());
    let n = bench.threads();
    let flops = |name: &str| Flops::of(&measured.range(name).unwrap());
    assert_eq!(flops("axpy").single, Some(2.0 * n));
    // Every thread adds `each` elements, and 5 times within its warp.
    let threads = n / f64::from(each);
    assert_eq!(flops("reduce").single, Some(threads * f64::from(each + 5)));
    assert_eq!(flops("daxpy").double, Some(n));
    assert_eq!(flops("daxpy").single, Some(0.0));
    assert_eq!((flops("copy").total(), flops("nothing").total()), (0.0, 0.0));
    let packed = value(&measured, "haxpy2", "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum");
    eprintln!("a packed half-precision fma counts {}", packed / n);
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
            ranges.within("copy", || {
                bench.kernels.copy(DEFAULT, bench.blocks, bench.x, bench.y);
            });
            ranges.within("axpy", || bench.axpy());
            ranges.within("memcpy", || {
                bench.gpu.copy_within_async(bench.y, bench.x, bytes as usize, DEFAULT);
            });
        })
        .unwrap();
    eprintln!("measured in {:?}", begun.elapsed());
    save("dram_bytes.txt", &measured.to_string());
    near("copy, read", value(&measured, "copy", READ), bytes, 5.0);
    near("copy, written", value(&measured, "copy", WRITTEN), bytes, 5.0);
    near("axpy, read", value(&measured, "axpy", READ), 2.0 * bytes, 5.0);
    near("axpy, written", value(&measured, "axpy", WRITTEN), bytes, 5.0);
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
    near("axpy, time beside events", value(&measured, "axpy", TIME), events, 25.0);
}

fn gemm() {
    const SIZE: usize = 4096;
    let bench = Bench::new(1);
    let Some(gemm) = Gemm::bf16(&bench.gpu, SIZE) else {
        eprintln!("cuBLAS was not found: no GEMM is counted");
        return;
    };
    let bf16 = "sm__ops_path_tensor_src_bf16_dst_fp32.sum";
    let profiler = bench.profiler(&[bf16, READ, WRITTEN, TIME]);
    assert_eq!(profiler.runs(), 1);
    let ((), measured) =
        profiler.measure_once(|ranges| ranges.within("gemm", || gemm.run())).unwrap();
    save("gemm.txt", &measured.to_string());
    assert_eq!(value(&measured, "gemm", bf16), 2.0 * (SIZE as f64).powi(3));
    assert!(value(&measured, "gemm", READ) >= (2 * SIZE * SIZE) as f64);
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
            ranges.within("first", || bench.axpy());
            bench.axpy();
            ranges.within("second", || {
                bench.axpy();
                bench.axpy();
                ranges.within("deeper", || bench.axpy());
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

fn graph() {
    let bench = Bench::new(16);
    let stream = bench.gpu.stream();
    let graph = bench.gpu.capture(stream, || {
        (0..10).for_each(|_| bench.kernels.axpy(stream, bench.blocks, bench.x, bench.y));
    });
    let profiler = bench.profiler(&[FFMA]);
    let ((), measured) = profiler
        .measure_once(|ranges| {
            ranges.within("graph", || bench.gpu.launch_graph(graph, stream));
            ranges.within("alone", || bench.axpy());
        })
        .unwrap();
    save("graph.txt", &measured.to_string());
    assert_eq!(value(&measured, "graph", FFMA), 10.0 * bench.threads());
    assert_eq!(value(&measured, "alone", FFMA), bench.threads());
    bench.gpu.destroy_graph(graph);
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
                ranges.within("axpy", || bench.axpy());
            }
        })
        .unwrap();
    save("two_passes.txt", &measured.to_string());
    assert_eq!((ran, measured.runs(), measured.ranges().count()), (2, 2, 3));
    assert_eq!(measured.total("axpy", FFMA), Some(3.0 * bench.threads()));
    let bytes = 3.0 * 2.0 * f64::from(1 << 30);
    near("three axpys, read", measured.total("axpy", READ).unwrap(), bytes, 5.0);
}

fn differing() {
    let bench = Bench::new(1);
    let profiler = bench.profiler(&[READ, FFMA]);
    let mut run = 0;
    let error = profiler
        .measure(|ranges| {
            run += 1;
            ranges.within("same", || bench.axpy());
            ranges.within(format!("run {run}"), || bench.axpy());
        })
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains("\"run 1\"") && text.contains("\"run 2\""), "{text}");
    // And the next one is fine.
    let measured = profiler.measure(|ranges| ranges.within("same", || bench.axpy())).unwrap();
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
            ranges.within("outer", || {
                let error = profiler.measure(|_| {}).unwrap_err();
                assert!(error.is_busy(), "{error}");
            });
        })
        .map(|measured| measured.ranges().count());
    assert_eq!(error.unwrap(), 1);
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

fn too_many() {
    let bench = Bench::new(1);
    let profiler =
        RangeProfiler::builder(&bench.library).metric(FFMA).max_ranges(5).build().unwrap();
    let measured = profiler
        .measure(|ranges| {
            (0..8).for_each(|i| ranges.within(format!("range {i}"), || bench.axpy()));
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
            (0..2000).for_each(|_| ranges.within("one of many", || bench.axpy()));
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
        let measured = profiler.measure(|ranges| ranges.within("axpy", || bench.axpy())).unwrap();
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
            assert_eq!(Flops::of(&range).single, Some(2.0 * bench.threads()));
        }
    }
}

fn nvprof_rows() {
    let bench = Bench::new(256);
    let profiler = bench.profiler(&[FFMA]);
    let mut text = String::new();
    for row in nvprof::ROWS {
        let told = match RangeProfiler::builder(&bench.library).metrics(row.today.iter().copied()) {
            _ if row.today.is_empty() => row.note.to_owned(),
            builder => match builder.build() {
                Ok(profiler) => {
                    let measured =
                        profiler.measure(|ranges| ranges.within("axpy", || bench.axpy())).unwrap();
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
        text.push_str(&format!("{}: {told}\n", row.name));
    }
    save("nvprof.txt", &text);
    assert!(!text.contains("refused") || profiler.host().chip() != "GH100", "{text}");
    let one = |metric: &str| {
        let measured = bench
            .profiler(&[metric])
            .measure(|ranges| ranges.within("axpy", || bench.axpy()))
            .unwrap();
        value(&measured, "axpy", metric)
    };
    // Whole sectors are read and written.
    for name in ["gld_efficiency", "gst_efficiency"] {
        near(name, one(nvprof::row(name).unwrap().today[0]), 100.0, 0.1);
    }
    let sectors = bench.threads() * 4.0 / 32.0;
    near("gst_transactions", one(nvprof::row("gst_transactions").unwrap().today[0]), sectors, 0.0);
}

fn collector_beside() {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.env(PART, "collector").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    eprint!("{text}");
    assert!(output.status.success(), "{}", output.status);
}

/// A collection that runs already, and one that begins while ranges are counted.
fn beside_a_collector() {
    let bench = Bench::new(16);
    let profiler = bench.profiler(&[FFMA]);
    let counted =
        |when: &str| match profiler.measure(|ranges| ranges.within("axpy", || bench.axpy())) {
            Ok(measured) => {
                eprintln!("{when}: counted {}", value(&measured, "axpy", FFMA) / bench.threads());
            }
            Err(error) => eprintln!("{when}: {error}"),
        };
    counted("before a collection");
    let collector = Collector::start(&bench.library, &Config::new()).unwrap();
    counted("in a collection");
    let built = RangeProfiler::builder(&bench.library).metric(FFMA).build();
    eprintln!(
        "built in a collection: {:?}",
        built.as_ref().map(|_| ()).map_err(ToString::to_string)
    );
    let collected = collector.stop().unwrap();
    eprintln!("the collection has {} records", collected.records.iter().count());
    counted("after a collection");
    let ranges_and_records = profiler.measure(|ranges| {
        ranges.within("axpy", || match Collector::start(&bench.library, &Config::new()) {
            Ok(collector) => {
                bench.axpy();
                match collector.stop() {
                    Ok(collected) => eprintln!(
                        "a collection in a range has {} records",
                        collected.records.iter().count()
                    ),
                    Err(error) => eprintln!("a collection in a range does not stop: {error}"),
                }
            }
            Err(error) => eprintln!("a collection in a range: {error}"),
        });
    });
    match ranges_and_records {
        Ok(measured) => eprintln!(
            "with a collection inside: counted {}",
            value(&measured, "axpy", FFMA) / bench.threads()
        ),
        Err(error) => eprintln!("with a collection inside: {error}"),
    }
}
