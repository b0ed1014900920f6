//! Measured times on a GPU beside CUDA events, Nsight Compute and the hardware's own timer of a kernel, from 1 us to 100 ms.
//! With `--features nvml` the clocks are watched, too.
#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::print_stdout)] // tests that say what they found

use std::process::{Command, ExitCode};

use cudarc::driver::sys::CUfunction;
use cupti::Library;
use cupti::counters::RangeProfiler;
use gpu_profiler_tests::cuda::{Gpu, Handle, Stream};
use gpu_profiler_tests::{harness, ncu};
use profiler_analysis::Speed;
use profiler_analysis::measure::{L2, Measure, Measurement, Stop, Timing};
use profiler_analysis::prelude::*;
use profiler_core::Profiler;

/// Says that a process is to print the times of its kernels, or to launch those of [`ITERATIONS`] for `ncu`.
const PART: &str = "GPU_MEASURE_PART";
/// The kernels to launch under `ncu`, by their numbers of iterations.
const ITERATIONS: &str = "GPU_MEASURE_ITERATIONS";
/// Launches of each.
const LAUNCHES: usize = 7;
const TIME: &str = "gpu__time_duration.sum";

/// A chain of dependent operations, whose time follows the SM clock alone, and a sum over a buffer,
/// whose time follows the caches.
const PTX: &str = r"
.version 7.0
.target sm_70
.address_size 64
.visible .entry chain(.param .u64 iterations, .param .u64 out) {
    .reg .u64 %done, %wanted, %out;
    .reg .f32 %x;
    .reg .pred %go_on, %skip;
    ld.param.u64 %wanted, [iterations];
    ld.param.u64 %out, [out];
    mov.f32 %x, 0f3F800000;
    mov.u64 %done, 0;
again:
    fma.rn.f32 %x, %x, %x, %x;
    add.u64 %done, %done, 1;
    setp.lt.u64 %go_on, %done, %wanted;
    @%go_on bra again;
    setp.eq.u64 %skip, %out, 0;
    @%skip bra end;
    st.global.f32 [%out], %x;
end:
    ret;
}
.visible .entry total(.param .u64 from, .param .u64 words, .param .u64 out) {
    .reg .u64 %from, %words, %out, %at, %step, %address;
    .reg .u32 %sum, %word, %t, %b, %d, %g;
    .reg .pred %ends, %skip;
    ld.param.u64 %from, [from];
    ld.param.u64 %words, [words];
    ld.param.u64 %out, [out];
    mov.u32 %t, %tid.x;
    mov.u32 %b, %ctaid.x;
    mov.u32 %d, %ntid.x;
    mov.u32 %g, %nctaid.x;
    mad.lo.u32 %t, %b, %d, %t;
    mul.lo.u32 %g, %g, %d;
    cvt.u64.u32 %at, %t;
    cvt.u64.u32 %step, %g;
    mov.u32 %sum, 0;
more:
    setp.ge.u64 %ends, %at, %words;
    @%ends bra done;
    shl.b64 %address, %at, 2;
    add.u64 %address, %from, %address;
    ld.global.cg.u32 %word, [%address];
    add.u32 %sum, %sum, %word;
    add.u64 %at, %at, %step;
    bra more;
done:
    setp.ne.u32 %skip, %sum, 12345;
    @%skip bra end;
    st.global.u32 [%out], %sum;
end:
    ret;
}
";

fn main() -> ExitCode {
    match std::env::var(PART).as_deref() {
        Ok("times") => print_times(),
        Ok(_) => launch_for_ncu(),
        Err(_) => return test(),
    }
    ExitCode::SUCCESS
}

fn test() -> ExitCode {
    harness::run_optimized(&[
        ("times_match_events_and_hardware", beside_referees),
        ("a_cold_cache_makes_a_difference", cold_cache),
        ("a_pair_finds_five_percent", pairs),
        ("processes_measure_the_same", processes),
    ])
    .exit_code()
}

/// Kernels of a planned time.
struct Bench {
    gpu: Gpu,
    stream: Stream,
    chain: Handle<CUfunction>,
    ns_per_iteration: f64,
}

impl Bench {
    fn new() -> Self {
        let gpu = Gpu::get();
        let (stream, chain) = (gpu.stream(), gpu.kernel(PTX, "chain"));
        let mut bench = Self { gpu, stream, chain, ns_per_iteration: 1.0 };
        let iterations = 1 << 22;
        let run = || bench.launch(iterations);
        bench.elapsed_ns(5, run); // raises the clocks
        bench.ns_per_iteration = bench.elapsed_ns(5, run) / iterations as f64;
        bench
    }

    fn iterations(&self, ns: f64) -> u64 {
        (ns / self.ns_per_iteration).round().max(1.0) as u64
    }

    fn launch(&self, iterations: u64) {
        let shape = ([1; 3], [32, 1, 1], 0);
        self.gpu.launch(self.chain, self.stream, shape, [iterations, 0]);
    }

    /// Nanoseconds between two events around calls back to back, by call.
    fn elapsed_ns(&self, calls: u32, work: impl Fn()) -> f64 {
        let (from, to) = (self.gpu.event(), self.gpu.event());
        work();
        self.gpu.record(from, self.stream);
        (0..calls).for_each(|_| work());
        self.gpu.record(to, self.stream);
        self.gpu.synchronize_event(to);
        self.gpu.elapsed_ns(from, to) / f64::from(calls)
    }
}

fn profiler() -> Profiler {
    Profiler::builder().build().unwrap()
}

/// The hardware's time of a kernel, the median of several; `None` where counters are not allowed.
fn counted_ns(work: impl Fn()) -> Option<f64> {
    let counted = Library::open().and_then(|library| {
        let counters = RangeProfiler::builder(&library).metric(TIME).max_ranges(32).build()?;
        let ((), measured) = counters.measure_kernels(|| (0..21).for_each(|_| work()))?;
        Ok(measured)
    });
    match counted {
        Ok(measured) => {
            let mut times: Vec<f64> =
                measured.ranges().filter_map(|range| range.value(TIME)).collect();
            times.sort_unstable_by(f64::total_cmp);
            times.get(times.len() / 2).copied()
        }
        Err(error) => {
            eprintln!("the hardware's timer cannot be read: {error}");
            None
        }
    }
}

fn launch_for_ncu() {
    let bench = Bench::new();
    let iterations = std::env::var(ITERATIONS).unwrap();
    bench.gpu.profiler_start();
    for iterations in iterations.split(' ') {
        (0..LAUNCHES).for_each(|_| bench.launch(iterations.parse().unwrap()));
    }
    bench.gpu.synchronize_context();
    bench.gpu.profiler_stop();
}

/// The times of these kernels by `ncu`, each the median of its launches; `None` without `ncu`. Clocks and caches are left alone.
fn ncu_ns(iterations: &[u64]) -> Option<Vec<f64>> {
    let found = ncu::find().map_err(|why| eprintln!("nothing is compared with ncu: {why}"));
    let mut program = Command::new(std::env::current_exe().unwrap());
    let texts: Vec<String> = iterations.iter().map(u64::to_string).collect();
    program.env(PART, "ncu").env(ITERATIONS, texts.join(" "));
    let rows = ncu::count(&found.ok()?, "none", &[TIME], &mut program).unwrap();
    assert_eq!(rows.len(), LAUNCHES * iterations.len());
    let median = |rows: &[ncu::Row]| {
        let mut times: Vec<f64> = rows.iter().map(|row| row.values[TIME]).collect();
        times.sort_unstable_by(f64::total_cmp);
        times[times.len() / 2]
    };
    Some(rows.chunks(LAUNCHES).map(median).collect())
}

const US: f64 = 1e3;

/// Planned times in microseconds.
const PLANNED: [u32; 20] = [
    1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000,
    100_000,
];

fn beside_referees() {
    let bench = Bench::new();
    let profiler = profiler();
    let planned_iterations = PLANNED.map(|us| bench.iterations(f64::from(us) * US));
    let ncu = ncu_ns(&planned_iterations);
    eprintln!("all in us; events: a graph of launches back to back, by launch; counted: {TIME}");
    eprintln!(
        "   planned    events   counted       ncu  GPU time    bounds  GPU span   latency host cost  graph: GPU time, span"
    );
    let mut wrong = Vec::new();
    for (at, planned_us) in PLANNED.into_iter().enumerate() {
        let planned = f64::from(planned_us) * US;
        let iterations = planned_iterations[at];
        let ncu = ncu.as_ref().map(|ncu| ncu[at]);
        let nodes = (2_000 / planned_us).clamp(4, 100);
        let launch = || bench.launch(iterations);
        let graph = bench.gpu.capture(bench.stream, || (0..nodes).for_each(|_| launch()));
        let launch_graph = || bench.gpu.launch_graph(graph, bench.stream);
        let events = bench.elapsed_ns(10, launch_graph) / f64::from(nodes);
        let single = profiler.measure(launch).unwrap();
        let settings = Measure::new().units(nodes);
        let replayed = settings.run(&profiler, launch_graph).unwrap();
        let counted = counted_ns(launch);
        bench.gpu.destroy_graph(graph);
        let gpu = single.gpu_time();
        let bounds = 100.0 * gpu.uncertainty().unwrap();
        let us = |ns: f64| format!("{:9.3}", ns / US);
        eprintln!(
            "{planned_us:10} {} {} {} {} {bounds:7.2} % {} {} {} {} {}",
            us(events),
            counted.map_or_else(|| "        -".to_owned(), us),
            ncu.map_or_else(|| "        -".to_owned(), us),
            us(median_ns(gpu)),
            us(median_ns(single.gpu_span())),
            us(median_ns(single.latency())),
            us(median_ns(single.host_cost())),
            us(median_ns(replayed.gpu_time())),
            us(median_ns(replayed.gpu_span())),
        );
        checked(&single, planned, events);
        for (referee, counted) in [("counted", counted), ("ncu", ncu)] {
            let ns = median_ns(gpu);
            if counted.is_some_and(|counted| !is_near(ns, counted)) {
                wrong.push(format!("{referee}: {counted:?} ns, measured {ns}"));
            }
        }
        assert_eq!(replayed.kernels(), (nodes.into(), nodes.into()), "{replayed}");
        let (span, time) = (median_ns(replayed.gpu_span()), median_ns(replayed.gpu_time()));
        assert!(
            span <= 2.0 * events + 2.0 * US && time <= 1.1 * median_ns(gpu) + 0.5 * US,
            "{replayed}"
        );
    }
    eprintln!("{}", profiler.measure(|| bench.launch(bench.iterations(100.0 * US))).unwrap());
    bench.gpu.destroy(bench.stream);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn median_ns(timing: &Timing) -> f64 {
    timing.median().as_nanos() as f64
}

/// The hardware's timer includes about a microsecond around a kernel.
fn is_near(ns: f64, counted: f64) -> bool {
    (counted - ns).abs() <= (0.02 * counted).max(1.5 * US)
}

fn checked(single: &Measurement, planned: f64, events: f64) {
    let ns = median_ns(single.gpu_time());
    assert_eq!((single.kernels(), single.operations()), ((1, 1), (1, 1)), "{single}");
    assert_ne!(single.stop(), Stop::MaxSamples, "{single}");
    // A launch of a graph's node takes about a microsecond of its own.
    assert!(ns <= 1.03 * events + 0.5 * US && ns >= 0.97 * events - 3.0 * US, "{events}: {single}");
    assert!(median_ns(single.latency()) > ns, "{single}");
    assert!(median_ns(single.latency()) < ns + 100.0 * US, "on an idle GPU: {single}");
    assert!(median_ns(single.host_cost()) < 100.0 * US, "{single}");
    if planned >= 20.0 * US {
        assert!(single.gpu_time().uncertainty().unwrap() <= 0.01, "{single}");
    }
    assert_eq!(single.clocks().sm_mhz.is_some(), cfg!(feature = "nvml"), "{single}");
}

fn cold_cache() {
    let gpu = Gpu::get();
    let (stream, total) = (gpu.stream(), gpu.kernel(PTX, "total"));
    let bytes = 16 << 20;
    let memory = gpu.alloc(bytes);
    gpu.fill(memory, 0, bytes);
    gpu.synchronize_context();
    let read = || {
        let shape = ([1056, 1, 1], [256, 1, 1], 0);
        gpu.launch(total, stream, shape, [memory, bytes as u64 / 4, memory]);
    };
    let profiler = profiler();
    let (free, _) = gpu.memory();
    let warm = profiler.measure(read).unwrap();
    let cold = Measure::new().l2(L2::Cold).run(&profiler, read).unwrap();
    eprintln!("16 MiB are read\nwarm: {warm}\ncold: {cold}");
    assert!(median_ns(cold.gpu_time()) > 1.1 * median_ns(warm.gpu_time()));
    assert_eq!((cold.kernels(), cold.operations()), ((1, 1), (1, 1)), "the flush is in no time");
    assert!(gpu.memory().0 + (8 << 20) >= free, "the buffer of the flush is freed");
    gpu.free(memory);
    gpu.destroy(stream);
}

fn pairs() {
    let bench = Bench::new();
    let profiler = profiler();
    let planned = bench.iterations(100.0 * US);
    let launch = |iterations: u64| {
        let bench = &bench;
        move || bench.launch(iterations)
    };
    let same = profiler.measure_pair(launch(planned), launch(planned)).unwrap();
    eprintln!("the same: {same}\n");
    assert!((same.gpu_time().ratio - 1.0).abs() < 0.005, "{same}");
    let slower = profiler.measure_pair(launch(planned), launch(planned * 105 / 100)).unwrap();
    eprintln!("5 % more: {slower}");
    let ratio = slower.gpu_time();
    assert_eq!(ratio.speed, Speed::Slower, "{slower}");
    assert!((ratio.ratio - 1.05).abs() < 0.01 && ratio.high - ratio.low < 0.02, "{slower}");
    bench.gpu.destroy(bench.stream);
}

/// Iterations by planned microseconds: the same in all processes, of a GH100's 2 ns an iteration.
const SPREAD: [(u32, u64); 3] = [(20, 2_500), (200, 25_000), (2_000, 250_000)];

fn print_times() {
    let bench = Bench::new();
    let profiler = profiler();
    for (_, iterations) in SPREAD {
        let measurement = profiler.measure(|| bench.launch(iterations)).unwrap();
        println!("{}", median_ns(measurement.gpu_time()));
    }
}

fn processes() {
    let mut times = vec![Vec::new(); SPREAD.len()];
    for _ in 0..5 {
        let mut part = Command::new(std::env::current_exe().unwrap());
        let output = part.env(PART, "times").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let lines: Vec<f64> = text.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(lines.len(), SPREAD.len(), "{text}");
        times.iter_mut().zip(lines).for_each(|(times, ns)| times.push(ns));
    }
    for ((planned, _), times) in SPREAD.iter().zip(times) {
        let low = times.iter().copied().fold(f64::INFINITY, f64::min);
        let high = times.iter().copied().fold(0.0, f64::max);
        eprintln!(
            "about {planned} us in 5 processes: {:.2} % apart: {times:?}",
            100.0 * (high / low - 1.0)
        );
        // A tick of the GPU's clock beside the part that is claimed.
        assert!(high <= 1.02 * low + 64.0, "{times:?}");
    }
}
