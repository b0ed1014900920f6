//! What only a GPU can show of a collection while other threads launch all the time, so that CUPTI is never without
//! work and always holds a buffer: what it says to have come has come, and its stop waits for what was requested before it alone.
//! Run with `cargo test --release -p gpu-profiler-tests --test gpu_load`; without a GPU each test is ignored and the reason printed.
#![allow(clippy::unwrap_used, clippy::print_stderr)] // a test that says what it measured

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cupti::{CallClass, Collected, Collector, Config, Library, Record, clock};
use gpu_profiler_tests::cuda::Gpu;
use gpu_profiler_tests::harness;
use profiler_core::Profiler;

fn main() -> ExitCode {
    harness::run(&[
        ("settled_records_have_arrived", settled_records_have_arrived),
        ("a_stop_does_not_wait_for_others", a_stop_does_not_wait_for_others),
    ])
    .exit_code()
}

/// Threads that launch, each to a stream of its own.
#[derive(Debug, Clone, Copy)]
struct Load {
    threads: usize,
    kernel: Duration,
    /// Where none, each launch waits for room in the stream's queue.
    launches_between_syncs: Option<u64>,
    /// Every fourth launch is of a graph.
    graphs: bool,
    /// Every tenth launch is followed by a copy.
    copies: bool,
    /// Every second thread launches in a context of its own.
    contexts: bool,
}

const SMALL: Load = Load {
    threads: 4,
    kernel: Duration::ZERO,
    launches_between_syncs: Some(200),
    graphs: false,
    copies: true,
    contexts: false,
};
const LOADS: [Load; 6] = [
    Load { threads: 1, copies: false, ..SMALL },
    SMALL,
    Load { launches_between_syncs: None, copies: false, ..SMALL },
    Load {
        kernel: Duration::from_micros(20),
        launches_between_syncs: None,
        contexts: true,
        ..SMALL
    },
    Load {
        threads: 2,
        kernel: Duration::from_micros(2),
        launches_between_syncs: Some(100),
        graphs: true,
        ..SMALL
    },
    Load { threads: 1, kernel: Duration::from_micros(2), graphs: true, ..SMALL },
];
const NODES: usize = 50;

fn launch_all_the_time(gpu: &Gpu, load: Load, end: &AtomicBool) {
    gpu.make_current();
    let stream = gpu.stream();
    let kernel_ns = load.kernel.as_nanos() as u64;
    let launch = || match kernel_ns {
        0 => gpu.launch_empty(stream),
        _ => gpu.launch_spin(stream, kernel_ns),
    };
    let captured = || gpu.capture(stream, || (0..NODES).for_each(|_| launch()));
    let graph = load.graphs.then(captured);
    let memory = gpu.alloc(1 << 16);
    for i in (1_u64..).take_while(|_| !end.load(Ordering::Relaxed)) {
        match graph {
            Some(graph) if i % 4 == 0 => gpu.launch_graph(graph, stream),
            _ => launch(),
        }
        if load.copies && i % 10 == 0 {
            gpu.copy_within_async(memory, memory, 1 << 15, stream);
        }
        if load.launches_between_syncs.is_some_and(|launches| i % launches == 0) {
            gpu.synchronize(stream);
        }
    }
    gpu.synchronize(stream);
    graph.into_iter().for_each(|graph| gpu.destroy_graph(graph));
    gpu.free(memory);
    gpu.destroy(stream);
}

fn run_under<R>(load: Load, work: impl FnOnce() -> R) -> R {
    let gpu = Gpu::get();
    let other = load.contexts.then(|| gpu.in_another_context());
    gpu.make_current();
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..load.threads {
            let gpu = other.as_ref().filter(|_| thread % 2 == 1).unwrap_or(&gpu);
            scope.spawn(|| launch_all_the_time(gpu, load, &end));
        }
        std::thread::sleep(Duration::from_millis(200));
        let result = work();
        end.store(true, Ordering::Relaxed);
        result
    })
}

fn ids(collected: &Collected) -> impl Iterator<Item = u32> {
    collected.records.iter().filter_map(|record| match record {
        Record::Kernel(kernel) => Some(kernel.correlation_id),
        Record::Memcpy(copy) => Some(copy.correlation_id),
        Record::Synchronization(wait) => Some(wait.correlation_id),
        _ => None,
    })
}

/// What a drain gave, and when it was requested and returned.
struct Drain {
    given: Collected,
    asked_ns: u64,
    returned_ns: u64,
}

impl Drain {
    /// Up to where it says that everything has come.
    fn settled_ns(&self) -> u64 {
        self.given.pending_from_ns.unwrap_or(self.given.window_ns.1)
    }
}

/// A drain says from when on records may be missing: of all calls that ended before it has them, or a drain before.
fn settled_records_have_arrived() {
    let mut wrong = 0;
    for load in LOADS {
        let library = Library::open().unwrap();
        let config = Config::new().drain_timeout(Duration::from_secs(5));
        let drains = run_under(load, || {
            let collector = Collector::start(&library, &config).unwrap();
            let mut drains = Vec::new();
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(400) {
                let asked_ns = clock::now_ns();
                let given = collector.drain().unwrap();
                drains.push(Drain { given, asked_ns, returned_ns: clock::now_ns() });
                std::thread::sleep(Duration::from_millis(5));
            }
            let asked_ns = clock::now_ns();
            let given = collector.stop().unwrap();
            drains.push(Drain { given, asked_ns, returned_ns: clock::now_ns() });
            drains
        });
        wrong += compare(load, &drains);
        let unfinished = drains.last().unwrap().given.losses.unfinished_buffers;
        assert_eq!(unfinished, 0, "{load:?}");
    }
    assert_eq!(wrong, 0, "calls of which something came after it was said to have come, or never");
}

/// Gives the calls of which that is not true, and says of them what can be known.
fn compare(load: Load, drains: &[Drain]) -> usize {
    // By call: how many records came, and the last drain that had one.
    let mut came: HashMap<u32, (usize, usize)> = HashMap::new();
    for (number, drain) in drains.iter().enumerate() {
        ids(&drain.given).for_each(|id| {
            let of = came.entry(id).or_default();
            *of = (of.0 + 1, number);
        });
    }
    let (mut calls, mut late, mut never) = (0, 0, 0);
    let mut of_thread: HashMap<u32, usize> = HashMap::new();
    for thread in drains.iter().flat_map(|drain| &drain.given.calls) {
        for call in &thread.calls {
            let place = of_thread.entry(thread.thread_id).or_default();
            *place += 1;
            let expected = match call.function.class() {
                CallClass::KernelLaunch | CallClass::Memcpy | CallClass::Synchronize => 1,
                CallClass::GraphLaunch => NODES,
                _ => continue,
            };
            // What was requested before the collection began may be logged, too, and does not count.
            let counts = call.start_ns >= drains[0].given.window_ns.0 && !call.captured;
            let Some(end_ns) = call.end_ns.filter(|_| counts) else { continue };
            let Some(settled) = drains.iter().position(|drain| end_ns < drain.settled_ns()) else {
                continue;
            };
            calls += 1;
            let (records, last) = came.get(&call.correlation_id).copied().unwrap_or_default();
            let (is_late, is_never) = (last > settled, records != expected);
            late += usize::from(is_late);
            never += usize::from(is_never);
            let is_shown = (is_late && (late < 4 || late % 50 == 0)) || is_never;
            if is_shown {
                let us = |ns: u64, before_ns: u64| ns.cast_signed() - before_ns.cast_signed();
                let us = |ns, before_ns| us(ns, before_ns) as f64 / 1e3;
                let around = settled.saturating_sub(1)..drains.len().min(last.max(settled) + 2);
                let around: Vec<String> = around
                    .map(|number| {
                        let drain = &drains[number];
                        let [asked, returned, settled] =
                            [drain.asked_ns, drain.returned_ns, drain.settled_ns()]
                                .map(|ns| us(ns, end_ns));
                        format!("{number}: {asked} to {returned} settled {settled}")
                    })
                    .collect();
                eprintln!(
                    "{}: {:?}, call {place} of its thread, {records} records of {expected}, settled {settled}, last came {last}; \
                     after the collection's start it began {} us and took {} us; after its end (us) drains {around:?}",
                    if is_never { "never" } else { "late" },
                    call.function,
                    us(call.start_ns, drains[0].given.window_ns.0),
                    us(end_ns, call.start_ns),
                );
            }
        }
    }
    let settled = drains.windows(2).filter(|two| two[1].settled_ns() > two[0].settled_ns());
    let (steps, longest) =
        (settled.count(), drains.iter().map(|drain| drain.returned_ns - drain.asked_ns).max());
    eprintln!(
        "{load:?}: {calls} calls; {} drains, of {steps} more had come, the longest took {} us; {late} calls late and {never} \
         without their records",
        drains.len(),
        longest.unwrap_or_default() / 1000,
    );
    assert!(calls > 1_000 && steps >= 2, "{load:?}");
    late + never
}

fn a_stop_does_not_wait_for_others() {
    for load in LOADS {
        for keeps_last in [false, true] {
            let config = Config::new().drain_timeout(Duration::from_secs(8));
            let builder = Profiler::builder().config(config);
            let builder = match keeps_last {
                true => builder.keep_last(Duration::from_secs(100)),
                false => builder,
            };
            let profiler = builder.build().unwrap();
            let (profile, took) = run_under(load, || {
                profiler.start().unwrap();
                std::thread::sleep(Duration::from_millis(200));
                let begin = Instant::now();
                let profile = profiler.stop().unwrap();
                (profile, begin.elapsed())
            });
            let kernels = profile.totals().kernels;
            eprintln!("{load:?}, keeps last {keeps_last}: {took:?}, {}", profile.health());
            profile.health().assert_complete();
            assert!(kernels > 1_000, "{load:?}: {kernels} kernels");
            assert!(took < Duration::from_secs(3), "{load:?}: {took:?}");
        }
    }
}
