//! A long run under load: 8 threads in two contexts that launch all the time, and graphs of 1,000 nodes.
//!
//! `GPU_ENDURANCE_SECONDS` says how long (3 if it is not set). Each round is a session of a known number of launches, so that
//! the records of every round can be counted to the unit; what was collected is thrown away after it. Then a run of as long
//! in one collection, of which one session keeps the last part and another sums up all of it, in memory that is not to
//! grow but by what CUPTI itself keeps of launches once a graph was captured. `GPU_ENDURANCE_GRAPHS=0` leaves graphs out, and
//! `GPU_ENDURANCE_RATE` is how many launches a second there are at most: at full speed CUPTI 13.0 hands its buffers over in
//! bursts after some 190 million launches, which takes memory (docs/measurements/long-runs.md). Last, two million nodes of
//! graphs with few buffers for times.
#![allow(clippy::unwrap_used, clippy::print_stderr)] // a test that says what it measured

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cupti::{Attribute, Collector, Config, Library, Record};
use gpu_profiler_tests::cuda::Gpu;
use gpu_profiler_tests::harness;
use profiler_core::Profiler;

const THREADS: usize = 8;
/// Launches of a thread in a round.
const LAUNCHES: u64 = 100_000;
const NODES: u64 = 1_000;
const GRAPH_LAUNCHES: u64 = 50;
const SYNCHRONIZE_EVERY: u64 = 500;

fn main() -> ExitCode {
    harness::run(&[
        ("eight_threads_lose_nothing", eight_threads_lose_nothing),
        ("a_long_run_is_summed_up_in_flat_memory", a_long_run_is_summed_up_in_flat_memory),
        ("kernels_whose_times_ran_out_are_counted", kernels_whose_times_ran_out_are_counted),
    ])
    .exit_code()
}

/// Bytes of this process in memory.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn work(gpu: &Gpu, with_graph: bool) {
    gpu.make_current();
    let stream = gpu.stream();
    if with_graph {
        let graph = gpu.capture(stream, || (0..NODES).for_each(|_| gpu.launch_empty(stream)));
        for _ in 0..GRAPH_LAUNCHES {
            gpu.launch_graph(graph, stream);
        }
        gpu.synchronize(stream);
        gpu.destroy_graph(graph);
    }
    for i in 1..=LAUNCHES {
        gpu.launch_empty(stream);
        if i % SYNCHRONIZE_EVERY == 0 {
            gpu.synchronize(stream);
        }
    }
    gpu.synchronize(stream);
    gpu.destroy(stream);
}

fn eight_threads_lose_nothing() {
    let seconds = std::env::var("GPU_ENDURANCE_SECONDS").ok().and_then(|s| s.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(3));
    let first = Gpu::get();
    let second = first.in_another_context();
    let library = Library::open().unwrap();
    let config = Config::new();
    let expected = THREADS as u64 * LAUNCHES + GRAPH_LAUNCHES * NODES;

    let (free_before, _) = first.memory();
    let (mut rounds, mut launches, mut misses) = (0u64, 0u64, 0u64);
    let mut most_collected = 0;
    let (mut resident_early, mut resident_late, mut least_free) = (0, 0, u64::MAX);
    let mut launching = Duration::ZERO;
    while rounds < 3 || Instant::now() < end {
        let collector = Collector::start(&library, &config).unwrap();
        let start = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let gpu = if thread % 2 == 0 { &first } else { &second };
                scope.spawn(move || work(gpu, thread == 0));
            }
        });
        launching += start.elapsed();
        let collected = collector.stop().unwrap();
        let losses = collected.losses;
        assert_eq!(
            (losses.dropped_by_cupti, losses.over_memory_limit, losses.irregular),
            (0, 0, 0),
            "round {rounds}: {losses:?}"
        );
        let (mut kernels, mut of_graphs, mut without_time) = (0u64, 0u64, 0u64);
        for record in &collected.records {
            if let Record::Kernel(kernel) = record {
                kernels += 1;
                of_graphs += u64::from(kernel.graph_node.is_some());
                without_time += u64::from(!kernel.span.is_known());
            }
        }
        assert_eq!(
            (kernels, of_graphs, without_time),
            (expected, GRAPH_LAUNCHES * NODES, 0),
            "round {rounds}"
        );
        misses += losses.pool_misses;
        let bytes: usize = collected.records.buffers().map(<[u8]>::len).sum();
        most_collected = most_collected.max(bytes);
        drop(collected);
        rounds += 1;
        launches += expected;
        first.make_current();
        least_free = least_free.min(first.memory().0 as u64);
        if rounds == 3 {
            resident_early = resident();
        }
        resident_late = resident();
    }
    let mib = |bytes: u64| bytes >> 20;
    eprintln!(
        "{rounds} rounds, {launches} kernels, {:.0} ns each as the process sees it; records of a round {} MiB; \
         {misses} buffers beyond the pool; resident {} MiB after 3 rounds, {} MiB at the end; \
         device memory in use grew by at most {} MiB",
        launching.as_nanos() as f64 / launches as f64,
        mib(most_collected as u64),
        mib(resident_early),
        mib(resident_late),
        mib((free_before as u64).saturating_sub(least_free)),
    );
    // The allocator keeps some of what a round needed; a leak of the records would be 170 MiB a round.
    let grown = resident_late.saturating_sub(resident_early);
    assert!(grown < 512 << 20, "{} MiB more in {rounds} rounds", mib(grown));
    // 250 buffers of 3.2 MB for each context is what CUPTI itself may take.
    let device = (free_before as u64).saturating_sub(least_free);
    assert!(device < 2 << 30, "{} MiB of device memory", mib(device));
}

/// The most that CUPTI keeps of a launch in a process that has captured a graph.
const CUPTI_BYTES_A_LAUNCH: u64 = 40;
/// Operations that the session of the last part keeps.
const KEPT: u64 = 100_000;

fn a_long_run_is_summed_up_in_flat_memory() {
    let seconds = std::env::var("GPU_ENDURANCE_SECONDS").ok().and_then(|s| s.parse().ok());
    let seconds = seconds.unwrap_or(3).max(3);
    let gpu = Gpu::get();
    let builder = || Profiler::builder().period(Duration::from_millis(50));
    let last = builder().keep_last_operations(KEPT).build().unwrap();
    last.start().unwrap();
    let sums = builder().build().unwrap().summarize().unwrap();

    let end = Instant::now() + Duration::from_secs(seconds);
    let rate = std::env::var("GPU_ENDURANCE_RATE").ok().and_then(|rate| rate.parse::<u32>().ok());
    // Of one thread.
    let step = rate.map(|rate| Duration::from_secs(4 * 200) / rate);
    let graphs = std::env::var("GPU_ENDURANCE_GRAPHS").as_deref() != Ok("0");
    let in_graph = if graphs { 100 } else { 0 };
    let (launched, steps) = (AtomicU64::new(0), AtomicU64::new(0));
    let run = || {
        gpu.make_current();
        let stream = gpu.stream();
        let capture = || gpu.capture(stream, || (0..100).for_each(|_| gpu.launch_empty(stream)));
        let graph = graphs.then(capture);
        let _thread = nvtx::range("thread");
        let mut next = Instant::now();
        while Instant::now() < end {
            if let Some(step) = step {
                next += step;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            let _step = nvtx::range("step");
            for part in ["forward", "backward"] {
                let _part = nvtx::event(part).payload(1_u64).range();
                (0..100).for_each(|_| gpu.launch_empty(stream));
            }
            if let Some(graph) = graph {
                let _graph = nvtx::range("graph");
                gpu.launch_graph(graph, stream);
            }
            let _wait = nvtx::range("wait");
            gpu.synchronize(stream);
            launched.fetch_add(200 + in_graph, Ordering::Relaxed);
            steps.fetch_add(1, Ordering::Relaxed);
        }
        graph.into_iter().for_each(|graph| gpu.destroy_graph(graph));
        gpu.destroy(stream);
    };
    let (mut early, mut late, mut most) = (0, 0, 0);
    let mut tenths = Vec::new();
    let (free_before, _) = gpu.memory();
    std::thread::scope(|scope| {
        (0..4).for_each(|_| _ = scope.spawn(run));
        let begun = Instant::now();
        let whole = Duration::from_secs(seconds);
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(100));
            late = resident();
            // The first third is for pools and the allocator to find their size.
            if begun.elapsed() < whole / 3 {
                early = late;
            }
            most = most.max(late);
            if begun.elapsed() >= whole * (tenths.len() as u32 + 1) / 10 {
                tenths.push(late >> 20);
            }
        }
    });
    let free_after = gpu.memory().0;
    let summary = sums.stop().unwrap();
    let profile = last.stop().unwrap();
    let (launched, steps) = (launched.into_inner(), steps.into_inner());
    let mib = |bytes: u64| bytes >> 20;
    eprintln!(
        "{seconds} s, {launched} kernels in {steps} steps of 4 threads; resident {} MiB after a third, {} MiB at the end, at \
         most {} MiB, after each tenth {tenths:?}; device memory in use grew by {} MiB; {} buffers beyond the pool; kept {} kernels; {}",
        mib(early),
        mib(late),
        mib(most),
        mib((free_before as u64).saturating_sub(free_after as u64)),
        profile.health().facts.pool_misses,
        profile.totals().kernels,
        summary.health(),
    );
    eprintln!("{summary}");
    // To the unit.
    assert_eq!(summary.totals().kernels, launched);
    summary.health().assert_complete();
    let path = |path: &str| summary.find(path).next().unwrap();
    let kernels = |of: &str| (path(of).instances(), path(of).inclusive().kernels);
    assert_eq!(kernels("thread"), (4, launched));
    assert_eq!(kernels("step/forward"), (steps, 100 * steps));
    assert_eq!(kernels("step/backward"), (steps, 100 * steps));
    if graphs {
        assert_eq!(kernels("step/graph"), (steps, 100 * steps));
    }
    assert_eq!(path("step/wait").inclusive().synchronizations, steps);
    // What is kept is whole: a range that is there has all its kernels.
    profile.health().assert_complete();
    assert!(profile.totals().kernels >= KEPT.min(launched));
    let from = profile.ranges().filter(|range| range.name() == "forward");
    let whole =
        from.filter(|range| !range.start().is_zero()).map(|range| range.inclusive().kernels);
    assert!(whole.clone().all(|kernels| kernels == 100) && whole.count() as u64 >= KEPT / 400);
    // CUPTI 13.0 itself keeps some 31 bytes a launch once a graph was captured, launched or not (docs/measurements).
    let of_cupti = if graphs { steps * 200 * CUPTI_BYTES_A_LAUNCH } else { 0 };
    let grown = most.saturating_sub(early);
    assert!(grown < (64 << 20) + of_cupti, "{} MiB more", mib(grown));
}

/// CUPTI 13.0 was reported to write records without times once the nodes of graphs have filled its device buffers: after 25 million
/// with its own limit of 250 buffers, after 900,000 with 8 (parca-dev/parcagpu#23).
fn kernels_whose_times_ran_out_are_counted() {
    const NODES: u64 = 500;
    const LAUNCHES: u64 = 4_000;
    let first = Gpu::get();
    let config = Config::new()
        .attribute(Attribute::DeviceBuffersReady, 2)
        .attribute(Attribute::DeviceBufferLimit, 8);
    let builder = Profiler::builder().config(config).period(Duration::from_millis(50));
    let sums = builder.build().unwrap().summarize().unwrap();
    // CUPTI reads the limit when a context is created.
    let gpu = first.in_another_context();
    gpu.make_current();
    let stream = gpu.stream();
    let graph = gpu.capture(stream, || (0..NODES).for_each(|_| gpu.launch_empty(stream)));
    for launch in 0..LAUNCHES {
        gpu.launch_graph(graph, stream);
        if launch % 10 == 9 {
            gpu.synchronize(stream);
        }
    }
    gpu.destroy_graph(graph);
    gpu.destroy(stream);
    let summary = sums.stop().unwrap();
    first.make_current();
    let mut health = summary.health().clone();
    eprintln!("{} of {} kernels have no times", health.losses.zero_timestamps, NODES * LAUNCHES);
    assert_eq!(summary.totals().kernels, NODES * LAUNCHES);
    assert_eq!(health.is_complete(), health.losses.zero_timestamps == 0, "{health}");
    health.losses.zero_timestamps = 0;
    health.assert_complete();
}
