//! Queries on profiles of whole sessions: of the fake, whose work is known, and of recordings from a GPU, where every
//! number is worked out again from the single operations.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cupti::CopyKind;
use cupti::sys::generated::memory2;
use cupti::{ActivityKind, Config, MemoryKind, Version};
use fake_cupti::{Fake, Work, Written};
use nvtx::range;
use profiler_core::profile::{Attribution, GpuOperation, OperationKind};
use profiler_core::query::{Groups, IdleReason, Step, WaitTarget};
use profiler_core::{Profile, Profiler};

static LIBRARY: nvtx::Domain = nvtx::Domain::new("library");

fn record(fake: &Fake, program: impl FnOnce()) -> Profile {
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let ((), profile) = profiler.record(program).unwrap();
    profile
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}

/// One step of a training run.
fn batch(fake: &Fake) {
    let _batch = range("batch");
    fake.launch(Work::host_to_device(6_000).taking_ns(500));
    {
        let _forward = range("forward");
        fake.launch(Work::kernel(c"gemm").taking_ns(3_000));
        let _gemm = LIBRARY.range("gemm");
        fake.launch(Work::kernel(c"_Z4geluIfEvPT_").taking_ns(1_000).on_stream(8));
    }
    fake.launch(Work::memset(64).taking_ns(100));
    fake.launch(Work::device_to_host(4).taking_ns(50));
    fake.launch(Work::synchronize());
}

#[test]
fn session_queries_match_its_work() {
    let fake = Fake::new();
    let profile = record(&fake, || {
        (0..20).for_each(|_| batch(&fake));
        // A wait that failed is none.
        fake.call_only("cuStreamSynchronize", 700);
        fake.launch(Work::kernel(c"outside").taking_ns(7));
    });
    profile.health().assert_complete();
    let query = profile.query();
    assert_eq!(query.count(), 20 * 5 + 1);
    assert_eq!(query.gpu_time(), Duration::from_nanos(20 * 4_650 + 7));
    let forward = query.clone().in_range("batch/forward");
    assert_eq!((forward.count(), forward.clone().directly().count()), (40, 20));
    assert_eq!(query.clone().domain("library").gpu_time(), Duration::from_micros(20));
    assert_eq!(query.clone().in_range("gemm").domain(None).count(), 0);
    assert_eq!(query.clone().in_range("gemm").domain("library").named("gelu*").count(), 20);
    assert_eq!(query.clone().outside_ranges().count(), 1);
    assert_eq!(query.clone().stream(8).gpu_time(), Duration::from_micros(20));

    let kernels = query.by_kernel();
    let names: Vec<_> = kernels.iter().map(|group| group.key().to_string()).collect();
    assert_eq!(names, ["gemm", "gelu<float>", "outside"]);
    let gemm = kernels.get("gemm").unwrap();
    assert_eq!((gemm.count(), gemm.time()), (20, Duration::from_micros(60)));
    assert!((gemm.share() - 60_000.0 / 80_007.0).abs() < 1e-12);
    assert_eq!(gemm.statistics().percentile(99.0), Duration::from_micros(3));
    assert_eq!((kernels.top_share(0.7).len(), kernels.top_share(0.9).len()), (1, 2));

    let copies = query.by_transfer();
    let copied = copies.get("host to device, pageable to device").unwrap();
    assert_eq!((copied.bytes(), copied.bandwidth()), (20 * 6_000, Some(12.0)));
    assert_eq!(query.clone().copies_of(CopyKind::DeviceToHost).bytes(), 80);
    let copy = profile.copies().next().unwrap();
    assert_eq!(
        (copy.bandwidth(), copy.source(), copy.destination()),
        (Some(12.0), MemoryKind::PAGEABLE, MemoryKind::DEVICE)
    );
    // Kernels in the group do not make its copies slower.
    let by_stream = query.by_stream();
    let stream = by_stream.get("device 0, context 1, stream 7").unwrap();
    let moved = 20.0 * 6_068.0 / (20.0 * 650.0);
    assert!((stream.bandwidth().unwrap() - moved).abs() < 1e-9);

    let steps = profile.steps("batch");
    assert_eq!(steps.len(), 20);
    assert!(steps.iter().all(|step| step.gpu_time() == Duration::from_nanos(4_650)));
    assert_eq!(steps.statistics(Step::gpu_time).standard_deviation(), Duration::ZERO);

    let waits = profile.waits();
    assert_eq!((waits.count(), waits.in_range("forward").count()), (20, 0));
    assert_eq!(waits.time(), profile.totals().synchronization_time());
    let target = WaitTarget::Stream { process: 0, context: 1, stream: 7 };
    assert!(waits.iter().all(|wait| wait.target() == target));
    assert_eq!(waits.by_range().get("batch").unwrap().count(), 20);
    assert!(profile.memory().is_empty());
}

#[test]
fn cause_of_a_gap_is_the_activity_of_the_host() {
    let fake = Fake::new();
    let millisecond = Duration::from_millis(1);
    fake.stop_clock();
    let profile = record(&fake, || {
        let _step = range("step");
        fake.launch(Work::kernel(c"first"));
        {
            let _loading = range("data_loading");
            fake.advance_clock(200 * millisecond);
        }
        fake.launch(Work::kernel(c"second"));
        fake.launch_around(&Work::kernel(c"third"), || fake.advance_clock(40 * millisecond));
        fake.launch(Work::kernel(c"fourth"));
    });
    let gaps = profile.query().gaps(20 * millisecond);
    assert_eq!(gaps.count(), 2);
    let names = |operation: GpuOperation<'_>| operation.as_kernel().unwrap().name().to_owned();
    let ends: Vec<_> = gaps.iter().map(|gap| (names(gap.before()), names(gap.after()))).collect();
    assert_eq!(ends[0], ("first".into(), "second".into()));
    assert_eq!(ends[1], ("third".into(), "fourth".into()));

    let causes = gaps.by_cause();
    let top = causes.iter().next().unwrap();
    assert_eq!(top.key().reason, IdleReason::Host);
    assert_eq!(top.key().to_string(), "host in no CUDA call, in step/data_loading");
    assert!(top.time() >= 199 * millisecond, "{causes}");
    let launch = causes.get("host in cuLaunchKernel, in step").unwrap();
    assert!(launch.time() >= 39 * millisecond, "{causes}");
    assert_eq!(causes.iter().map(|group| group.time()).sum::<Duration>(), gaps.time());
}

#[test]
fn work_during_a_range_is_found_by_time() {
    let fake = Fake::new();
    fake.stop_clock();
    let profile = record(&fake, || {
        {
            let _asking = range("asking");
            fake.launch(Work::kernel(c"late"));
        }
        // What the fake is asked for starts 2 us later.
        let _waiting = range("waiting");
        fake.advance_clock(Duration::from_millis(1));
    });
    let query = profile.query();
    assert_eq!(query.clone().in_range("asking").count(), 1);
    assert_eq!(query.clone().in_range("waiting").count(), 0);
    let waiting = query.in_range("waiting").in_range("asking").by_window();
    let operation = waiting.iter().next().unwrap();
    assert_eq!(operation.attribution(), Attribution::Window);
    let range = operation.range().unwrap();
    let start = operation.start().unwrap();
    assert!(range.start() <= start && start < range.end());
    assert_eq!(waiting.by_range().iter().next().unwrap().key().to_string(), range.name());
}

#[test]
fn a_graph_is_one_launch_and_counts_where_it_was_captured() {
    let fake = Fake::new();
    let profile = record(&fake, || {
        let mut graph = fake.graph();
        {
            let _capture = range("capture");
            fake.capture_into(&mut graph, &Work::kernel(c"a"));
            fake.capture_into(&mut graph, &Work::kernel(c"b"));
        }
        let exec = fake.instantiate(&graph);
        let _replay = range("replay");
        fake.launch_exec(&exec);
        fake.launch_exec(&exec);
        fake.destroy_exec(exec);
    });
    let query = profile.query().kernels();
    let launches = query.launches();
    assert_eq!((query.count(), launches.count(), launches.unknown()), (4, 2, 0));
    assert!(launches.iter().all(|launch| launch.operation().as_kernel().unwrap().name() == "a"));
    assert_eq!(query.clone().in_range("replay").count(), 4);
    assert_eq!(query.clone().in_range("capture").count(), 0);
    assert_eq!(query.in_range("capture").replays().named("b").count(), 2);
}

#[test]
fn memory_that_is_not_freed_is_named_with_its_range() {
    let fake = Fake::new();
    let config = Config::new().add_kind(ActivityKind::MEMORY2);
    let profiler =
        Profiler::builder().library(fake.library().unwrap()).config(config).build().unwrap();
    // CUPTI's time by now, in the fake's clock.
    let now_ns = fake.now_ns();
    let event = |call: u32, operation: u32, address: u64, bytes: u64| {
        use memory2::*;
        let record = Written::new(ActivityKind::MEMORY2, Version(130_001)).unwrap();
        fake.write(
            &record
                .set(MEMORY_OPERATION_TYPE, operation)
                .set(MEMORY_KIND, 3)
                .set(CORRELATION_ID, call)
                .set(ADDRESS, address)
                .set(BYTES, bytes)
                .set(TIMESTAMP, now_ns + u64::from(call)),
        );
    };
    let ((), profile) = profiler
        .record(|| {
            let _step = range("step");
            event(fake.call_only("cuMemAlloc_v2", 0), 1, 0x1000, 4096);
            let _buffers = range("buffers");
            event(fake.call_only("cuMemAlloc_v2", 0), 1, 0x2000, 1024);
            event(fake.call_only("cuMemFree_v2", 0), 2, 0x1000, 4096);
            event(fake.call_only("cuMemFree_v2", 0), 2, 0x9000, 1);
        })
        .unwrap();
    let memory = profile.memory();
    let device = memory
        .iter()
        .find(|memory| memory.device == 0 && memory.kind == MemoryKind::DEVICE)
        .unwrap();
    assert_eq!((device.allocations, device.frees, device.unknown_frees), (2, 2, 1));
    assert_eq!((device.peak.unwrap().bytes, device.bytes_at_end()), (5120, 1024));
    assert_eq!(device.peak_at.unwrap().range().unwrap().node().path(), "step/buffers");
    let left: Vec<_> =
        device.not_freed.iter().map(|event| (event.address(), event.bytes())).collect();
    assert_eq!(left, [(0x2000, 1024)]);
    assert_eq!(device.not_freed[0].call().unwrap().name(), "cuMemAlloc_v2");
    assert_eq!(profile.memory_events().count(), 4);
    let lines: Vec<_> = memory.iter().map(ToString::to_string).collect();
    let text = lines.join("\n");
    assert!(text.starts_with(
        "device 0, device memory: 2 allocations (5.000 KiB), 2 frees; most 5.000 KiB"
    ));
    assert!(text.ends_with(
        " in step/buffers; 1.000 KiB in 1 allocations not freed; 1 frees of unrecorded allocations"
    ));
    let json = serde_json::to_value(&memory).unwrap();
    assert_eq!((&json[0]["kind"], &json[0]["peak"]["bytes"]), (&"device".into(), &5120.into()));
    assert_eq!(json[0]["not_freed"][0]["range"], "step/buffers");
}

/// Of the H200: every call that allocates or frees there tells of it twice, but for those in stream order.
#[test]
fn recorded_allocations_count_once() {
    for version in ["130500", "130001", "28", "26"] {
        let path = format!("../tests/recordings/kinds-{version}.gpuprof");
        let profile = Profile::load(path).unwrap();
        let memory = profile.memory();
        let device = memory
            .iter()
            .find(|memory| memory.device == 0 && memory.kind == MemoryKind::DEVICE)
            .unwrap();
        let calls = |class| profile.calls().filter(|call| call.class() == class).count() as u64;
        assert_eq!(device.allocations, calls(cupti::CallClass::Alloc));
        assert_eq!(device.frees, calls(cupti::CallClass::Free));
        assert_eq!((device.repeated_records, profile.memory_events().count()), (6, 8));
        // 4 MiB twice, 3 MiB for a while, then 5 MiB for a while.
        assert_eq!(device.peak.unwrap().bytes, 13 << 20);
        assert_eq!((device.unknown_frees, device.missing_frees, device.bytes_at_end()), (0, 0, 0));

        let waits = profile.waits();
        let kinds: std::collections::HashSet<_> =
            waits.iter().map(|wait| std::mem::discriminant(&wait.target())).collect();
        assert_eq!(kinds.len() as u64, waits.count());
    }
}

/// Sums of times by text, the slow way.
fn sums<K: std::fmt::Display>(groups: &Groups<K>) -> BTreeMap<String, (u64, u64)> {
    let mut sums = BTreeMap::new();
    for group in groups {
        let sum: &mut (u64, u64) = sums.entry(group.key().to_string()).or_default();
        *sum = (sum.0 + group.count(), sum.1 + ns(group.time()));
    }
    sums
}

#[test]
fn a_recorded_run_adds_up() {
    let profile = Profile::load("../examples/recordings/quickstart-h200.gpuprof").unwrap();
    let all: Vec<_> = profile.operations().collect();
    let time = |operation: &GpuOperation<'_>| ns(operation.gpu_time().unwrap());
    let query = profile.query();
    assert_eq!(query.gpu_time(), profile.totals().gpu_time());

    // Each operation of it, one by one.
    let mut by_path = BTreeMap::new();
    let mut by_name = BTreeMap::new();
    for operation in &all {
        let path = operation.range().unwrap().node().path();
        let sum: &mut (u64, u64) = by_path.entry(path).or_default();
        *sum = (sum.0 + 1, sum.1 + time(operation));
        if let Some(kernel) = operation.as_kernel() {
            let sum: &mut (u64, u64) = by_name.entry(kernel.demangled_name()).or_default();
            *sum = (sum.0 + 1, sum.1 + time(operation));
        }
    }
    assert_eq!(sums(&query.by_range()), by_path);
    assert_eq!(sums(&query.by_kernel()), by_name);
    let launches = query.clone().kernels().launches();
    assert_eq!(launches.count(), 360);
    for group in launches.by_kernel() {
        let kernels = profile.kernels().filter(|kernel| kernel.name() == group.key.as_str());
        let latency = |kernel: profiler_core::profile::Kernel<'_>| {
            kernel.start().unwrap() - kernel.call().unwrap().start()
        };
        let latencies: Vec<Duration> = kernels.map(latency).collect();
        assert_eq!(group.latency.sum(), latencies.iter().sum());
        assert_eq!(group.latency.min(), *latencies.iter().min().unwrap());
    }

    // All on one stream, one after the other: what is not busy lies between two that follow each other.
    let between = |pair: &[GpuOperation<'_>]| ns(pair[1].start().unwrap() - pair[0].end().unwrap());
    let idle: Vec<u64> = all.windows(2).map(between).collect();
    assert_eq!(ns(query.idle()), idle.iter().sum::<u64>());
    assert_eq!(query.busy_time(), query.gpu_time());
    let threshold = 2_000;
    let gaps = query.gaps(Duration::from_nanos(threshold));
    let long: Vec<u64> = idle.into_iter().filter(|gap| *gap >= threshold).collect();
    assert_eq!((gaps.count(), ns(gaps.time())), (long.len() as u64, long.iter().sum()));
    let overlap = query.overlap()[0];
    assert_eq!(overlap.kernels_only, profile.totals().kernel_time());
    assert_eq!((overlap.both, overlap.neither), (Duration::ZERO, query.idle()));
    let both = [overlap.to_string(), query.devices()[0].to_string()];
    assert_eq!(
        both,
        [
            "device 0: of 3.211 ms kernels alone 1.112 ms, copies alone 386.2 us, both 0 ns, neither 1.713 ms",
            "device 0: busy 1.499 ms of 3.211 ms (46.7 %)"
        ]
    );
    let json = serde_json::to_value(profile.steps("batch")).unwrap();
    assert_eq!((&json[19]["number"], &json[19]["totals"]["kernels"]), (&19.into(), &18.into()));
    assert!(json[19]["period_ns"].is_null() && json[0]["period_ns"].is_number());
    let json = serde_json::to_value(gaps.longest(1)).unwrap();
    assert_eq!(json[0]["after"], gaps.longest(1)[0].after().number());
    let text = launches.by_range()[0].to_string();
    assert!(text.starts_with("batch/backward: 180 launches, "), "{text}");

    for step in &profile.steps("batch") {
        let operations: Vec<_> = step.range().operations().collect();
        assert_eq!(operations.len(), 22);
        let kernels = operations.iter().filter(|work| work.kind() == OperationKind::Kernel);
        assert_eq!(step.totals().kernel_time(), Duration::from_nanos(kernels.map(time).sum()));
        let first = operations.iter().filter_map(|work| work.start()).min().unwrap();
        let last = operations.iter().filter_map(|work| work.end()).max().unwrap();
        let span = step.gpu_span().unwrap();
        assert_eq!((span.start, span.end), (first, last));
        assert_eq!(step.range().query().span(), Some(span));
        assert_eq!(step.busy_time() + step.idle(), span.duration());
    }
    // The first of a process compiles and allocates.
    let steps = profile.steps("batch");
    assert!((1..10).contains(&steps.warm_up()));
    assert!(steps.outliers(5.0, Step::host_time).iter().any(|step| step.number() == 0));

    let text = query.clone().kernels().by_kernel().to_string();
    assert_eq!(text.lines().count(), by_name_rows(&profile) + 1, "{text}");
    let json: serde_json::Value = serde_json::to_value(query.by_range()).unwrap();
    assert_eq!(json[0]["key"], "batch/backward");
    assert_eq!(json[0]["count"], json[0]["times"]["count"]);
    let json = serde_json::to_value(query.devices()).unwrap();
    assert_eq!(json[0]["busy_ns"], ns(query.busy_time()));
    assert_eq!(json[0]["span"]["start_ns"], ns(query.span().unwrap().start));
    let node = profile.roots().next().unwrap().children().next().unwrap();
    assert_eq!(node.query().gpu_time(), node.inclusive().gpu_time());
}

/// Kernels whose names differ, if only in their parameters.
fn by_name_rows(profile: &Profile) -> usize {
    profile.kernels().map(|kernel| kernel.name()).collect::<BTreeSet<_>>().len()
}
