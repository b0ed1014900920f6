//! What only a GPU can show. Run with `cargo test --release -p gpu-profiler-tests --test gpu`; without a GPU each test is ignored
//! and the reason printed.
#![allow(clippy::unwrap_used, clippy::panic)] // tests

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cupti::{Collector, Config, CopyKind, Library};
use gpu_profiler_examples::mlp::{Mlp, reference_losses};
use gpu_profiler_tests::cuda::{DEFAULT, Gpu, Host, Stream};
use gpu_profiler_tests::harness;
use nvtx::range;
use profiler_core::profile::Attribution;
use profiler_core::{Context, Profile, Profiler};

fn main() -> ExitCode {
    harness::run(&[
        ("every_kind_of_work_matches_its_call", every_kind_of_work_matches_its_call),
        ("calls_that_owe_no_record_are_known", calls_that_owe_no_record_are_known),
        (
            "a_training_run_counts_right_and_learns_right",
            a_training_run_counts_right_and_learns_right,
        ),
        ("fifty_sessions_lose_and_leak_nothing", fifty_sessions_lose_and_leak_nothing),
        ("threads_and_streams_keep_their_ranges", threads_and_streams_keep_their_ranges),
        ("work_that_is_handed_on_keeps_its_range", work_that_is_handed_on_keeps_its_range),
        ("fused_work_counts_once_and_is_shared", fused_work_counts_once_and_is_shared),
        ("graph_launches_give_all_their_nodes", graph_launches_give_all_their_nodes),
        ("kernel_time_agrees_with_events", kernel_time_agrees_with_events),
        ("times_lie_on_the_hosts_clock", times_lie_on_the_hosts_clock),
        ("a_stop_waits_for_the_gpu", a_stop_waits_for_the_gpu),
        ("stop_gives_up_with_a_report", stop_gives_up_with_a_report),
        ("a_hundred_thousand_launches_lose_nothing", a_hundred_thousand_launches_lose_nothing),
        ("small_buffers_lose_nothing", small_buffers_lose_nothing),
        ("a_foreign_subscriber_is_busy", a_foreign_subscriber_is_busy),
        ("sessions_see_their_own_part", sessions_see_their_own_part),
        ("a_hundred_tasks_keep_their_kernels", a_hundred_tasks_keep_their_kernels),
        ("unusable_libraries_have_a_reason", unusable_libraries_have_a_reason),
        ("a_recording_replays_the_same", a_recording_replays_the_same),
    ])
    .exit_code()
}

fn record(program: impl FnOnce()) -> Profile {
    let profiler = Profiler::builder().build().unwrap();
    let ((), profile) = profiler.record(program).unwrap();
    profile
}

fn every_kind_of_work_matches_its_call() {
    const MIB: usize = 1 << 20;
    let gpu = Gpu::get();
    let (stream, other) = (gpu.stream(), gpu.stream());
    let (a, b) = (gpu.alloc(MIB), gpu.alloc(MIB));
    let pinned = gpu.pinned(MIB);
    let mut host = vec![1u8; MIB];
    let event = gpu.event();
    gpu.launch_empty(stream);
    gpu.synchronize_context();

    let profile = record(|| {
        {
            let _range = range("kernels");
            gpu.launch_empty(stream);
            gpu.launch_empty(DEFAULT);
            gpu.launch_spin(other, 10_000);
        }
        {
            let _range = range("copies");
            gpu.copy_in(a, &host);
            gpu.copy_in(a, &host[..16]);
            gpu.copy_out(&mut host, a);
            gpu.copy_in_async(a, pinned, MIB, stream);
            gpu.copy_in_async(a, Host::pageable(&mut host), 70_000, stream);
            gpu.copy_out_async(pinned, a, MIB, stream);
            gpu.copy_within_async(b, a, MIB, stream);
        }
        {
            let _range = range("memsets");
            gpu.fill(a, 7, 1000);
            gpu.fill_async(a, 7, 2000, stream);
            gpu.fill_2d_async(a, 512, 16, 8, stream);
        }
        {
            let _range = range("syncs");
            gpu.launch_spin(stream, 20_000_000);
            gpu.record(event, stream);
            gpu.wait(other, event);
            gpu.synchronize_event(event);
            gpu.synchronize_event(event);
            gpu.synchronize(stream);
            gpu.synchronize(other);
            gpu.synchronize_context();
            gpu.synchronize(DEFAULT);
        }
    });
    let health = profile.health();
    health.assert_complete();
    assert_eq!((health.accounts.kernels.records, health.accounts.kernels.calls), (4, 4));
    assert_eq!((health.accounts.copies.records, health.accounts.copies.calls), (7, 7));
    assert_eq!((health.accounts.memsets.records, health.accounts.memsets.calls), (3, 3));
    // Six waits of the host and one of a stream.
    assert_eq!(
        (health.accounts.synchronizations.records, health.accounts.synchronizations.calls),
        (7, 7)
    );

    assert_eq!(profile.range("kernels").unwrap().kernels(), 3);
    let copies = profile.range("copies").unwrap();
    assert_eq!((copies.copies(), copies.launches()), (7, 0));
    assert_eq!(copies.inclusive().copy_bytes as usize, 5 * MIB + 16 + 70_000);
    let memsets = profile.range("memsets").unwrap().inclusive();
    assert_eq!((memsets.memsets, memsets.memset_bytes), (3, 1000 + 2000 + 16 * 4 * 8));
    let syncs = profile.range("syncs").unwrap();
    assert_eq!((syncs.synchronizations(), syncs.kernels()), (6, 1));
    // The waits last until the kernel has ended, however late the first of them began.
    let spin = profile.kernels().filter_map(|kernel| kernel.end()).max().unwrap();
    let first = profile.waits().iter().map(|wait| wait.start()).min().unwrap();
    let rest = spin.saturating_sub(first);
    let waited = syncs.inclusive().synchronization_time();
    assert!(waited + Duration::from_nanos(CLOCK_ERROR) >= rest, "{waited:?} of {rest:?}");

    let of = |kind| profile.copies().filter(|copy| copy.kind() == kind).count();
    assert_eq!(
        (of(CopyKind::HostToDevice), of(CopyKind::DeviceToHost), of(CopyKind::DeviceToDevice)),
        (4, 2, 1)
    );
    let pinned_copies =
        profile.copies().filter(|copy| copy.details().source.to_string() == "pinned").count();
    assert_eq!(pinned_copies, 1);
    gpu.free(a);
    gpu.free(b);
}

fn calls_that_owe_no_record_are_known() {
    let gpu = Gpu::get();
    let stream = gpu.stream();
    let memory = gpu.alloc(4096);
    let event = gpu.event();
    gpu.launch_empty(stream);
    gpu.synchronize_context();
    let profile = record(|| {
        let _range = range("odd");
        gpu.copy_in(memory, &[]);
        gpu.copy_in_async(memory, Host::none(), 0, stream);
        gpu.fill_async(memory, 1, 0, stream);
        gpu.fill_2d_async(memory, 512, 0, 8, stream);
        let _ = gpu.launch_wrongly(stream);
        gpu.launch_spin(stream, 2_000_000);
        gpu.record(event, stream);
        assert!(!gpu.is_done(stream) && !gpu.event_is_done(event));
        gpu.synchronize(stream);
        assert!(gpu.is_done(stream) && gpu.event_is_done(event));
        gpu.free(gpu.alloc(1 << 20));
    });
    let health = profile.health();
    health.assert_complete();
    assert_eq!(
        (health.facts.failed_calls, health.accounts.copies.calls, health.accounts.memsets.calls),
        (1, 0, 0)
    );
    let odd = profile.range("odd").unwrap().inclusive();
    assert_eq!((odd.launches, odd.kernels, odd.synchronizations), (1, 1, 1));
    assert_eq!((odd.allocations, odd.frees, odd.failed_calls), (1, 1, 1));
    gpu.free(memory);
}

fn a_training_run_counts_right_and_learns_right() {
    const BATCHES: u64 = 20;
    let mut mlp = Mlp::new(1, 0).unwrap();
    mlp.warm_up().unwrap();
    let mut losses = Vec::new();
    let profile = record(|| {
        for batch in 0..BATCHES as usize {
            losses.push(mlp.train_batch(batch).unwrap());
        }
    });
    for (batch, (loss, expected)) in
        losses.iter().zip(reference_losses(1, BATCHES as usize)).enumerate()
    {
        assert!(
            (loss - expected).abs() / expected < 1e-2,
            "batch {batch}: {loss} instead of {expected}"
        );
    }
    profile.health().assert_complete();
    let of = |name| profile.range(name).unwrap();
    let batch = of("batch");
    assert_eq!(batch.instances(), BATCHES);
    assert_eq!(batch.copies(), 3 * BATCHES);
    assert_eq!(batch.synchronizations(), BATCHES);
    assert_eq!(of("copy to device").copies(), 2 * BATCHES);
    assert_eq!(of("copy to device").inclusive().memsets, BATCHES);
    assert_eq!(of("optimizer").kernels(), 4 * BATCHES);
    let parts = ["forward", "backward", "optimizer"].map(|name| of(name).kernels());
    assert_eq!(parts.iter().sum::<u64>(), batch.kernels(), "all kernels are in one of the parts");
    assert_eq!(batch.exclusive().kernels, 0);
    assert_eq!(profile.outside_ranges(), profiler_core::profile::Totals::default());
    // Every batch does the same.
    let per_batch: Vec<_> = profile
        .ranges()
        .filter(|range| range.name() == "batch")
        .map(|range| {
            (range.inclusive().kernels, range.inclusive().copies, range.inclusive().memsets)
        })
        .collect();
    assert!(per_batch.iter().all(|counts| *counts == per_batch[0]), "{per_batch:?}");
}

/// Bytes of this process's memory that are resident.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn fifty_sessions_lose_and_leak_nothing() {
    let gpu = Gpu::get();
    let stream = gpu.stream();
    let memory = gpu.alloc(4096);
    let profiler = Profiler::builder().build().unwrap();
    let mut after_ten = (0, 0);
    for session in 0..50 {
        let ((), profile) = profiler
            .record(|| {
                for _ in 0..200 {
                    let _step = range("step");
                    gpu.launch_empty(stream);
                    gpu.fill_async(memory, 1, 64, stream);
                }
                gpu.synchronize(stream);
            })
            .unwrap();
        profile.health().assert_complete();
        let step = profile.range("step").unwrap();
        assert_eq!(
            (step.instances(), step.kernels(), step.inclusive().memsets),
            (200, 200, 200),
            "{session}"
        );
        if session == 9 {
            after_ten = (resident(), gpu.memory().0);
        }
    }
    let grown = resident().saturating_sub(after_ten.0);
    assert!(grown < 8 << 20, "40 sessions left {grown} bytes on the host");
    let taken = after_ten.1.saturating_sub(gpu.memory().0);
    assert!(taken < 8 << 20, "40 sessions left {taken} bytes on the GPU");
    gpu.free(memory);
}

fn threads_and_streams_keep_their_ranges() {
    let gpu = Gpu::get();
    gpu.launch_empty(DEFAULT);
    gpu.synchronize_context();
    let profile = record(|| {
        std::thread::scope(|scope| {
            for worker in 0..4u64 {
                scope.spawn(move || {
                    let gpu = Gpu::get();
                    let stream = gpu.stream();
                    for i in 0..500 {
                        let _range = range(&format!("worker {worker}"));
                        gpu.launch_empty(stream);
                        if i % 10 == worker {
                            let _inner = range("second");
                            gpu.launch_empty(stream);
                        }
                    }
                    gpu.synchronize(stream);
                });
            }
        });
    });
    profile.health().assert_complete();
    for worker in 0..4 {
        let summary = profile.range(&format!("worker {worker}")).unwrap();
        assert_eq!((summary.exclusive().kernels, summary.kernels()), (500, 550));
    }
    let streams: std::collections::HashSet<u32> =
        profile.kernels().map(|kernel| kernel.stream()).collect();
    assert_eq!(streams.len(), 4);
    assert_eq!(profile.outside_ranges().synchronizations, 4);
}

/// A launcher thread that knows no ranges.
fn work_that_is_handed_on_keeps_its_range() {
    let gpu = Gpu::get();
    gpu.launch_empty(DEFAULT);
    gpu.synchronize_context();
    let (send, receive) = std::sync::mpsc::channel::<(Context, u64)>();
    let launcher = std::thread::spawn(move || {
        let gpu = Gpu::get();
        let stream = gpu.stream();
        for (context, count) in receive {
            let _attached = context.attach();
            for _ in 0..count {
                gpu.launch_empty(stream);
            }
        }
        gpu.synchronize(stream);
    });
    let profiler = Profiler::builder().build().unwrap();
    let ((), profile) = profiler
        .record(|| {
            std::thread::scope(|scope| {
                for user in 1..=4u64 {
                    let send = send.clone();
                    scope.spawn(move || {
                        for _ in 0..100 {
                            let _range = range(&format!("user {user}"));
                            send.send((Context::capture(), user)).unwrap();
                        }
                    });
                }
            });
            drop(send);
            launcher.join().unwrap();
        })
        .unwrap();
    profile.health().assert_complete();
    for user in 1..=4 {
        assert_eq!(profile.range(&format!("user {user}")).unwrap().kernels(), 100 * user);
    }
    let handed = profile.kernels().filter(|kernel| kernel.attribution() == Attribution::Handed);
    assert_eq!(handed.count(), 1000);
}

/// A device thread that fuses what two users ask for by turns: one kernel for both, and one of each alone.
fn fused_work_counts_once_and_is_shared() {
    const STEPS: u64 = 200;
    let gpu = Gpu::get();
    let stream = gpu.stream();
    gpu.launch_empty(stream);
    gpu.synchronize_context();
    let profiler = Profiler::builder().build().unwrap();
    let sums = profiler.summarize().unwrap();
    let ((), profile) = profiler
        .record(|| {
            let (send, receive) = std::sync::mpsc::sync_channel::<[Context; 2]>(8);
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let gpu = Gpu::get();
                    for [add, relu] in receive {
                        {
                            let _both = Context::join([add, relu]).attach();
                            gpu.launch_spin(stream, 2_000);
                            let _tuning = range("tuning");
                            gpu.launch_empty(stream);
                        }
                        relu.run(|| gpu.launch_empty(stream));
                    }
                });
                let _run = range("run");
                for _ in 0..STEPS {
                    let _step = range("step");
                    let context = |name: &str| {
                        let _range = range(name);
                        Context::capture()
                    };
                    send.send([context("add"), context("relu")]).unwrap();
                }
                drop(send);
            });
            gpu.synchronize_context();
        })
        .unwrap();
    let summary = sums.stop().unwrap();
    for health in [profile.health(), summary.health()] {
        health.assert_complete();
        assert_eq!(
            (health.losses.unknown_range_entries, health.losses.calls_in_unknown_ranges),
            (0, 0)
        );
    }
    let sums = |path: &str| {
        let range = profile.range(path).unwrap();
        let kept = summary.find(path).next().unwrap();
        assert_eq!((kept.inclusive(), kept.shared()), (range.inclusive(), range.shared()));
        [range.inclusive(), range.shared()].map(|totals| [totals.kernels, totals.launches])
    };
    assert_eq!(sums("add"), [[2 * STEPS; 2], [0; 2]]);
    assert_eq!(sums("relu"), [[STEPS; 2], [2 * STEPS; 2]]);
    assert_eq!(sums("add/tuning"), [[STEPS; 2], [0; 2]]);
    assert_eq!(sums("run"), [[3 * STEPS; 2], [0; 2]]);
    assert_eq!(profile.totals().kernels, 3 * STEPS);
    let add = profile.range("add").unwrap().inclusive();
    assert_eq!(profile.range("relu").unwrap().shared().kernel_time(), add.kernel_time());
    for kernel in profile.kernels() {
        let names: Vec<&str> = kernel.ranges().map(|range| range.name()).collect();
        assert_eq!(kernel.is_shared(), names != ["relu"]);
        assert!(matches!(names[..], ["add", "relu"] | ["tuning", "relu"] | ["relu"]), "{names:?}");
        // Both are of the same step.
        let steps: BTreeSet<_> = kernel
            .ranges()
            .filter(|range| range.name() != "tuning")
            .map(|range| range.parent().unwrap().start())
            .collect();
        assert_eq!(steps.len(), 1);
    }
}

fn graph_launches_give_all_their_nodes() {
    let gpu = Gpu::get();
    let stream = gpu.stream();
    let (a, b) = (gpu.alloc(4096), gpu.alloc(4096));
    gpu.launch_empty(stream);
    gpu.synchronize(stream);
    let profile = record(|| {
        let graph = {
            let _range = range("capture");
            gpu.capture(stream, || {
                for _ in 0..10 {
                    gpu.launch_empty(stream);
                }
                gpu.fill_async(a, 1, 4096, stream);
                gpu.copy_within_async(b, a, 4096, stream);
            })
        };
        for _ in 0..100 {
            let _range = range("replay");
            gpu.launch_graph(graph, stream);
        }
        gpu.synchronize(stream);
    });
    let health = profile.health();
    health.assert_complete();
    assert_eq!((health.facts.captured_calls, health.facts.silent_graph_launches), (12, 0));
    let replay = profile.range("replay").unwrap().inclusive();
    assert_eq!(
        (replay.launches, replay.kernels, replay.memsets, replay.copies),
        (100, 1000, 100, 100)
    );
    let capture = profile.range("capture").unwrap();
    assert_eq!((capture.launches(), capture.kernels()), (0, 0));
    // What nsys cannot tell: each node of each launch is credited to the range it was captured in.
    let replayed = capture.replayed();
    assert_eq!((replayed.kernels, replayed.memsets, replayed.copies), (1000, 100, 100));
    assert_eq!(
        (health.facts.graph_operations, health.facts.graph_operations_captured),
        (1200, 1200)
    );
    gpu.free(a);
    gpu.free(b);
}

fn kernel_time_agrees_with_events() {
    let gpu = Gpu::get();
    let stream = gpu.stream();
    let (before, after) = (gpu.event(), gpu.event());
    for nanoseconds in [200_000, 2_000_000, 20_000_000] {
        let profile = record(|| {
            // The first launch of a session waits for buffers; with work ahead of it the next one does not show.
            gpu.launch_spin(stream, 3_000_000);
            gpu.record(before, stream);
            gpu.launch_spin(stream, nanoseconds);
            gpu.record(after, stream);
            gpu.synchronize(stream);
        });
        profile.health().assert_complete();
        let kernel = profile.kernels().nth(1).unwrap().gpu_time().unwrap().as_nanos() as f64;
        let events = gpu.elapsed_ns(before, after);
        // Between the events lies what it takes to begin and end a kernel, too.
        assert!(
            kernel <= events * 1.01,
            "{kernel} ns in the record, {events} ns between the events"
        );
        assert!(
            kernel >= events * 0.99 - 20_000.0,
            "{kernel} ns recorded, {events} ns between the events"
        );
    }
}

/// How far CUPTI's idea of the GPU's clock may be off, in nanoseconds: it drifts in the first seconds of a process.
const CLOCK_ERROR: u64 = 60_000;

fn times_lie_on_the_hosts_clock() {
    let gpu = Gpu::get();
    let stream = gpu.stream();
    gpu.launch_empty(stream);
    gpu.synchronize(stream);
    let library = Library::open().unwrap();
    let collector = Collector::start(&library, &Config::new()).unwrap();
    let begin = cupti::clock::now_ns();
    for _ in 0..2000 {
        gpu.launch_empty(stream);
    }
    gpu.synchronize(stream);
    let end = cupti::clock::now_ns();
    let collected = collector.stop().unwrap();
    let clock = collected.clock;
    assert_eq!(clock.step_ns(), 0);
    let mut kernels = 0;
    for record in &collected.records {
        if let cupti::Record::Kernel(kernel) = record {
            let start = clock.monotonic_ns(kernel.span.start_ns);
            let stop = clock.monotonic_ns(kernel.span.end_ns);
            assert!(
                begin < start + CLOCK_ERROR && stop < end + CLOCK_ERROR,
                "{start}..{stop} in {begin}..{end}"
            );
            kernels += 1;
        }
    }
    assert_eq!(kernels, 2000);
}

fn a_stop_waits_for_the_gpu() {
    let gpu = Gpu::get();
    let stream = gpu.stream();
    gpu.launch_spin(stream, 1000);
    gpu.synchronize(stream);
    let profiler = Profiler::builder().build().unwrap();
    profiler.start().unwrap();
    gpu.launch_spin(stream, 300_000_000);
    let begin = Instant::now();
    let profile = profiler.stop().unwrap(); // nobody synchronised
    assert!(begin.elapsed() >= Duration::from_millis(250), "{:?}", begin.elapsed());
    profile.health().assert_complete();
    let took = profile.kernels().next().unwrap().gpu_time().unwrap();
    assert!((295..330).contains(&took.as_millis()), "{took:?}");
}

fn stop_gives_up_with_a_report() {
    let gpu = Gpu::get();
    let stream = gpu.stream();
    let config = Config::new().drain_timeout(Duration::from_millis(100));
    let profiler = Profiler::builder().config(config).build().unwrap();
    profiler.start().unwrap();
    gpu.launch_empty(stream);
    gpu.launch_spin(stream, 1_500_000_000);
    let after = gpu.event();
    gpu.record(after, stream);
    let profile = profiler.stop().unwrap();
    // Older versions wait for running kernels themselves, whatever they are asked.
    if profiler.library().version().cuda_release() >= (13, 0) {
        assert!(!gpu.event_is_done(after), "the stop waited for the kernel");
    }
    let health = profile.health();
    assert!(!health.is_complete() && health.losses.unfinished_buffers >= 1, "{health}");
    gpu.synchronize(stream);
    // The next session is whole again.
    let profile = record(|| {
        gpu.launch_empty(stream);
        gpu.synchronize(stream);
    });
    profile.health().assert_complete();
    assert_eq!(profile.totals().kernels, 1);
}

fn a_hundred_thousand_launches_lose_nothing() {
    let gpu = Gpu::get();
    let stream = gpu.stream();
    let profile = record(|| {
        for i in 0..100_000 {
            let _range = range("launch");
            gpu.launch_empty(stream);
            if i % 500 == 0 {
                gpu.synchronize(stream);
            }
        }
    });
    profile.health().assert_complete();
    let launch = profile.range("launch").unwrap();
    assert_eq!(
        (launch.instances(), launch.kernels(), launch.synchronizations()),
        (100_000, 100_000, 200)
    );
}

fn small_buffers_lose_nothing() {
    let gpu = Gpu::get();
    let stream = gpu.stream();
    let config = Config::new().buffer_bytes(64 << 10).buffers(1);
    let profiler = Profiler::builder().config(config).build().unwrap();
    let ((), profile) = profiler
        .record(|| {
            for _ in 0..20_000 {
                gpu.launch_empty(stream);
            }
            gpu.synchronize(stream);
        })
        .unwrap();
    profile.health().assert_complete();
    assert_eq!(profile.totals().kernels, 20_000);
    assert!(profile.health().facts.buffers > 50, "{:?}", profile.health());
}

/// Subscribes to the same libcupti behind the profiler's back, as a tool would.
fn a_foreign_subscriber_is_busy() {
    type Subscribe = unsafe extern "C" fn(*mut *mut u8, extern "C" fn(), *mut u8) -> u32;
    type Unsubscribe = unsafe extern "C" fn(*mut u8) -> u32;
    extern "C" fn never_called() {}
    let gpu = Gpu::get();
    let profiler = Profiler::builder().build().unwrap();
    // Of a session before.
    cupti::unsubscribe().unwrap();
    // SAFETY: the library is mapped already; its initialisers have run.
    let library = unsafe { libloading::Library::new(profiler.library().path()) }.unwrap();
    // SAFETY: the function's declaration, with its pointers as pointers to bytes.
    let subscribe = unsafe { library.get::<Subscribe>("cuptiSubscribe") }.unwrap();
    // SAFETY: as above.
    let unsubscribe = unsafe { library.get::<Unsubscribe>("cuptiUnsubscribe") }.unwrap();
    let mut handle = std::ptr::null_mut();
    // SAFETY: no callback is enabled, so none is called.
    assert_eq!(unsafe { subscribe(&mut handle, never_called, std::ptr::null_mut()) }, 0);
    let error = profiler.start().unwrap_err();
    assert!(error.is_busy() && !error.is_unavailable(), "{error}");
    {
        let _range = range("the program goes on");
        gpu.launch_empty(DEFAULT);
        gpu.synchronize_context();
    }
    // SAFETY: the handle is the subscription made above.
    assert_eq!(unsafe { unsubscribe(handle) }, 0);
    let ((), profile) = profiler.record(|| gpu.launch_empty(DEFAULT)).unwrap();
    assert_eq!(profile.totals().kernels, 1);
}

fn sessions_see_their_own_part() {
    let gpu = Gpu::get();
    let stream = gpu.stream();
    let work = |name: &str, launches: u64| {
        let _range = nvtx::range(name);
        (0..launches).for_each(|_| gpu.launch_empty(stream));
    };
    let (whole, part) =
        (Profiler::builder().build().unwrap(), Profiler::builder().build().unwrap());
    whole.start().unwrap();
    let sums = part.summarize().unwrap();
    work("before", 1000);
    part.start().unwrap();
    work("within", 2000);
    let within = part.stop().unwrap();
    work("after", 3000);
    let snapshot = sums.snapshot().unwrap();
    gpu.synchronize(stream);
    let (summary, all) = (sums.stop().unwrap(), whole.stop().unwrap());
    gpu.destroy(stream);
    for profile in [&within, &all] {
        profile.health().assert_complete();
    }
    summary.health().assert_complete();
    assert_eq!((within.totals().kernels, all.totals().kernels), (2000, 6000));
    assert!(within.range("before").is_none() && within.range("after").is_none());
    assert!(snapshot.totals().kernels <= 6000);
    for (name, launches) in [("before", 1000), ("within", 2000), ("after", 3000)] {
        let path = summary.find(name).next().unwrap();
        assert_eq!(path.inclusive(), all.range(name).unwrap().inclusive(), "{name}");
        assert_eq!((path.inclusive().kernels, path.gpu_time().count()), (launches, 1));
    }
}

/// A task that launches so many kernels, and lets other tasks in after each.
#[nvtx::annotate(name = "task", payload = task)]
async fn task(gpu: Arc<Gpu>, stream: Stream, task: u64) {
    for _ in 0..=task % 7 {
        // It goes on on any of the threads.
        gpu.make_current();
        gpu.launch_empty(stream);
        tokio::task::yield_now().await;
    }
}

fn a_hundred_tasks_keep_their_kernels() {
    const TASKS: u64 = 100;
    let gpu = Arc::new(Gpu::get());
    let streams: Vec<Stream> = (0..4).map(|_| gpu.stream()).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    let profile = record(|| {
        runtime.block_on(async {
            let spawn = |number: u64| {
                let stream = streams[number as usize % streams.len()];
                tokio::spawn(task(gpu.clone(), stream, number))
            };
            for handle in (0..TASKS).map(spawn).collect::<Vec<_>>() {
                handle.await.unwrap();
            }
        });
        streams.iter().for_each(|stream| gpu.synchronize(*stream));
    });
    streams.into_iter().for_each(|stream| gpu.destroy(stream));
    profile.health().assert_complete();
    let mut seen = BTreeMap::new();
    let mut threads = BTreeSet::new();
    for task in profile.process_ranges() {
        let Some(nvtx::Payload::U64(number)) = task.payload() else {
            panic!("{:?}", task.payload())
        };
        assert!(seen.insert(number, task.inclusive().kernels).is_none(), "task {number} twice");
        threads.extend(task.activations().map(|stay| stay.thread_id()));
    }
    let expected: BTreeMap<u64, u64> = (0..TASKS).map(|number| (number, number % 7 + 1)).collect();
    assert_eq!(seen, expected);
    assert_eq!(profile.totals().kernels, expected.values().sum::<u64>());
    assert!(threads.len() > 1, "all on one thread");
}

fn unusable_libraries_have_a_reason() {
    for (path, part) in [
        ("/nonexistent/libcupti.so.13", "/nonexistent/libcupti.so.13"),
        ("Cargo.toml", "Cargo.toml"),
        ("libm.so.6", "has no function cuptiGetVersion"),
    ] {
        // SAFETY: no CUPTI, and no initialiser that does harm.
        let error = unsafe { Library::open_path(path) }.unwrap_err();
        assert!(error.is_unavailable() && error.to_string().contains(part), "{path}: {error}");
    }
}

fn a_recording_replays_the_same() {
    let gpu = Gpu::get();
    let profile = record(|| {
        let _range = range("step");
        gpu.launch_empty(DEFAULT);
        gpu.synchronize_context();
    });
    let replayed = Profile::from_bytes(&profile.recording().unwrap().to_bytes()).unwrap();
    assert_eq!(replayed.to_string(), profile.to_string());
}
