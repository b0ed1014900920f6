//! A long run under load: 8 threads in two contexts that launch all the time, and graphs of 1,000 nodes.
//!
//! `GPU_ENDURANCE_SECONDS` says how long (3 if it is not set). Each round is a session of a known number of launches, so that
//! the records of every round can be counted to the unit; what was collected is thrown away after it.
#![allow(clippy::unwrap_used, clippy::print_stderr)] // a test that says what it measured

use std::process::ExitCode;
use std::time::{Duration, Instant};

use cupti::{Collector, Config, Library, Record};
use gpu_profiler_tests::cuda::Gpu;
use gpu_profiler_tests::harness;

const THREADS: usize = 8;
/// Launches of a thread in a round.
const LAUNCHES: u64 = 100_000;
const NODES: u64 = 1_000;
const GRAPH_LAUNCHES: u64 = 50;
const SYNCHRONIZE_EVERY: u64 = 500;

fn main() -> ExitCode {
    harness::run(&[("eight_threads_lose_nothing", eight_threads_lose_nothing)]).exit_code()
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
