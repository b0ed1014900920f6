//! Every kind of record that this GPU and this CUPTI give, each checked against what CUDA says. With `OUT` set, the records and
//! the facts are saved there, to become the recordings that `recorded_kinds.rs` checks without a GPU.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // a test that says what it saw

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use cupti::record::UnifiedMemoryKind;
use cupti::{ActivityKind, Collector, Config, Library, Record};
use gpu_profiler_tests::cuda::{Gpu, Host};
use gpu_profiler_tests::harness;
use gpu_profiler_tests::kinds::{Facts, REQUESTED, check, counts};
use gpu_profiler_tests::runtime::Runtime;
use profiler_core::Profiler;

/// Says that a process is to collect before it has a context, since CUPTI tells of devices only then.
const PART: &str = "GPU_KINDS_PART";

fn main() -> ExitCode {
    if std::env::var_os(PART).is_some() {
        from_the_first_context_on();
        return ExitCode::SUCCESS;
    }
    harness::run(&[
        ("every_kind_that_can_be_had_agrees_with_cuda", every_kind_that_can_be_had),
        ("a_graph_as_a_whole_is_one_record_a_launch", a_graph_as_a_whole),
        ("graphs_as_a_whole_are_busy_time_of_their_range", graphs_of_a_range),
        ("managed_memory_reports_its_pages", managed_memory),
        ("copies_between_devices_name_both", copies_between_devices),
        ("waits_made_from_calls_match_cupti", waits_from_calls),
    ])
    .exit_code()
}

fn with_kinds(kinds: &[ActivityKind]) -> Config {
    kinds.iter().fold(Config::new(), |config, kind| config.add_kind_if_known(*kind))
}

fn every_kind_that_can_be_had() {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.env(PART, "kinds").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}", output.status);
    eprint!("{text}");
}

/// All ways to wait, once with records that CUPTI writes and once with those made from calls.
fn waits_from_calls() {
    const SPIN_NS: u64 = 3_000_000;
    let gpu = Gpu::get();
    let streams = [gpu.stream(), gpu.stream()];
    let event = gpu.event();
    let library = Library::open().unwrap();
    let collected = |from_calls: bool| {
        let config = Config::new().synchronizations_from_calls(from_calls);
        let collector = Collector::start(&library, &config).unwrap();
        for (at, stream) in streams.into_iter().enumerate() {
            gpu.launch_spin(stream, SPIN_NS);
            gpu.synchronize(stream);
            gpu.record(event, stream);
            gpu.wait(streams[1 - at], event);
            gpu.launch_spin(stream, SPIN_NS);
            gpu.record(event, stream);
            gpu.synchronize_event(event);
            gpu.launch_spin(streams[1 - at], SPIN_NS);
            gpu.synchronize_context();
        }
        let collected = collector.stop().unwrap();
        let wait = |record| match record {
            Record::Synchronization(wait) => Some(wait),
            _ => None,
        };
        let mut waits: Vec<_> = collected.records.iter().filter_map(wait).collect();
        waits.sort_unstable_by_key(|wait| wait.correlation_id);
        for wait in &waits {
            let call = collected.calls.iter().flat_map(|thread| &thread.calls);
            let call = call.into_iter().find(|call| call.correlation_id == wait.correlation_id);
            let call = call.unwrap();
            let start_ns = collected.clock.monotonic_ns(wait.span.start_ns);
            let end_ns = collected.clock.monotonic_ns(wait.span.end_ns);
            let within =
                call.start_ns <= start_ns + 1_000 && end_ns <= call.end_ns.unwrap() + 1_000;
            assert!(within, "{wait:?} is not within {call:?}");
        }
        waits
    };
    let (theirs, made) = (collected(false), collected(true));
    // CUPTI gives streams to some waits that wait for none.
    let place = |wait: &cupti::Synchronization| {
        use cupti::SynchronizationKind::{Stream, StreamWaitEvent};
        let stream = wait.stream.filter(|_| matches!(wait.kind, Stream | StreamWaitEvent));
        let takes = wait.span.end_ns - wait.span.start_ns;
        (wait.kind, wait.context, stream, takes > SPIN_NS / 2)
    };
    let of = |waits: &[cupti::Synchronization]| waits.iter().map(place).collect::<Vec<_>>();
    assert_eq!(of(&made), of(&theirs));
    assert_eq!(made.len(), 8);
    for (made, theirs) in made.iter().zip(&theirs) {
        eprintln!("{theirs:?}, from its call {} ns", made.span.end_ns - made.span.start_ns);
    }
}

fn from_the_first_context_on() {
    const MIB: usize = 1 << 20;
    let library = Library::open().unwrap();
    let device = library.driver().devices[0].clone();
    let mut facts = Facts {
        version: library.version().0,
        process: std::process::id(),
        thread: cupti::calls::thread_id(),
        device_name: device.name,
        multiprocessors: device.multiprocessors,
        compute_capability: device.compute_capability,
        memory_bytes: device.memory_bytes,
        speeds: device
            .core_clock_khz
            .zip(device.memory_bandwidth)
            .zip(device.l2_bytes)
            .map(|((clock, bandwidth), l2)| (clock, bandwidth, l2)),
        launch: ([3, 2, 1], [64, 2, 1], 1024),
        copied: (70_001, 2 * MIB as u64),
        filled: (0x5a, 12_345),
        graph: (7, 3),
        ..Facts::default()
    };
    let config = with_kinds(&REQUESTED).system_thread_ids(true);
    let profiler = Profiler::builder().library(library).config(config).build().unwrap();
    profiler.start().unwrap();

    // A context of its own, so that all it is made of is new.
    let first = Gpu::get();
    let gpu = first.in_another_context();
    let stream = gpu.stream();
    let mut host = vec![1u8; MIB];
    let (a, b) = (gpu.alloc(4 * MIB), gpu.alloc(4 * MIB));
    let temporary = gpu.alloc(3 * MIB);
    facts.allocated = (temporary, 3 * MIB as u64);
    gpu.free(temporary);
    facts.allocated_async = (gpu.alloc_and_free_async(5 * MIB, stream), 5 * MIB as u64);
    gpu.launch_shaped(stream, facts.launch);
    let event = gpu.event();
    gpu.record(event, stream);
    gpu.copy_in_async(a, Host::pageable(&mut host), 70_001, stream);
    gpu.copy_within_async(b, a, 2 * MIB, stream);
    gpu.fill_async(a, 0x5a, 12_345, stream);
    gpu.synchronize_event(event);
    let graph = gpu.capture(stream, || (0..facts.graph.0).for_each(|_| gpu.launch_empty(stream)));
    for _ in 0..facts.graph.1 {
        gpu.launch_graph(graph, stream);
    }
    gpu.synchronize(stream);
    facts.runtime = Runtime::open().inspect(Runtime::device_synchronize).is_some();
    gpu.free(a);
    gpu.free(b);

    let recording = profiler.stop_recording().unwrap();
    first.make_current();
    let seen = counts(recording.records());
    if let Some(out) = std::env::var_os("OUT") {
        let path = |name: &str| Path::new(&out).join(format!("kinds-{}{name}", facts.version));
        recording.save(path(".gpuprof")).unwrap();
        std::fs::write(path(".json"), serde_json::to_string_pretty(&facts).unwrap()).unwrap();
    }
    let list: Vec<_> = seen.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    let absent = ActivityKind::ALL.iter().filter(|kind| !seen.contains_key(kind));
    let absent: Vec<_> = absent.map(ToString::to_string).collect();
    eprintln!("CUPTI {}: seen {}; not seen {}", facts.version, list.join(", "), absent.join(", "));
    check(recording.records(), &facts);
}

fn a_graph_as_a_whole() {
    let gpu = Gpu::get();
    let stream = gpu.stream();
    let library = Library::open().unwrap();
    let collector =
        Collector::start(&library, &Config::new().add_kind(ActivityKind::GRAPH_TRACE)).unwrap();
    // Not before: CUPTI (12.8 and 13.0.1) crashes at the launch of a graph that is older than the kind.
    let graph = gpu.capture(stream, || (0..20).for_each(|_| gpu.launch_empty(stream)));
    for _ in 0..10 {
        gpu.launch_graph(graph, stream);
    }
    gpu.launch_empty(stream);
    gpu.synchronize(stream);
    let collected = collector.stop().unwrap();
    let mut launches = Vec::new();
    let mut kernels = 0;
    for record in &collected.records {
        match record {
            Record::GraphTrace(trace) => launches.push(trace),
            Record::Kernel(kernel) => {
                assert!(kernel.graph_node.is_none());
                kernels += 1;
            }
            _ => {}
        }
    }
    assert_eq!((launches.len(), kernels), (10, 1), "{launches:?}");
    let calls: Vec<_> = collected.calls.iter().flat_map(|thread| &thread.calls).collect();
    for launch in &launches {
        assert!(launch.span.is_known() && launch.span.start_ns < launch.span.end_ns);
        assert_eq!((launch.place.device, launch.graph), (0, launches[0].graph));
        let call = calls.iter().find(|call| call.correlation_id == launch.correlation_id);
        assert!(call.unwrap().function.name().starts_with("cuGraphLaunch"));
    }
    gpu.destroy_graph(graph);
    gpu.destroy(stream);
}

fn graphs_of_a_range() {
    let gpu = Gpu::get();
    let stream = gpu.stream();
    let config = Config::new().add_kind(ActivityKind::GRAPH_TRACE);
    let profiler = Profiler::builder().config(config).build().unwrap();
    profiler.start().unwrap();
    let graph = gpu.capture(stream, || (0..20).for_each(|_| gpu.launch_empty(stream)));
    {
        let _replay = nvtx::range("replay");
        for _ in 0..10 {
            gpu.launch_graph(graph, stream);
        }
        gpu.synchronize(stream);
    }
    gpu.launch_empty(stream);
    gpu.synchronize(stream);
    let profile = profiler.stop().unwrap();
    profile.health().assert_complete();
    let replay = profile.range("replay").unwrap().inclusive();
    assert_eq!((replay.graphs, replay.kernels, replay.launches), (10, 0, 10), "{profile}");
    assert_eq!((profile.totals().kernels, profile.health().facts.whole_graphs), (1, 10));
    let busy = profile.query().in_range("replay").busy_time();
    assert!(!busy.is_zero() && busy <= replay.gpu_time(), "{busy:?}");
    assert_eq!(profile.health().facts.silent_graph_launches, 0);
    gpu.destroy_graph(graph);
    gpu.destroy(stream);
}

fn managed_memory() {
    const BYTES: usize = 8 << 20;
    let gpu = Gpu::get();
    let library = Library::open().unwrap();
    let config = with_kinds(&[ActivityKind::UNIFIED_MEMORY_COUNTER, ActivityKind::MEMORY2]);
    let collector = Collector::start(&library, &config).unwrap();
    let refused = collector.missing_kinds().contains(&ActivityKind::UNIFIED_MEMORY_COUNTER);
    let memory = gpu.alloc_managed(BYTES);
    gpu.fill_on_cpu(memory, 3, BYTES);
    gpu.fill(memory, 7, BYTES);
    gpu.synchronize_context();
    let read = gpu.read_on_cpu(memory, BYTES);
    gpu.free(memory);
    let collected = collector.stop().unwrap();
    assert!(read.iter().all(|byte| *byte == 7));
    let found = collected.records.iter().any(|record| {
        matches!(record, Record::MemoryOperation(operation)
            if operation.address == memory && operation.kind.to_string() == "managed")
    });
    assert!(found, "no managed allocation at {memory:#x}");
    if refused {
        eprintln!("managed memory: this machine has no counters of it: {}", refusals(&library));
        return;
    }

    let events: Vec<_> = collected
        .records
        .iter()
        .filter_map(|record| match record {
            Record::UnifiedMemory(event) => Some(event),
            _ => None,
        })
        .collect();
    // How often each happened, and the sum of their values.
    let mut sums: BTreeMap<UnifiedMemoryKind, (usize, u64)> = BTreeMap::new();
    for event in &events {
        assert_eq!(event.process, std::process::id(), "{event:?}");
        assert!((memory..memory + BYTES as u64).contains(&event.address), "{event:?}");
        assert!(event.value > 0 && event.span.start_ns > 0, "{event:?}");
        let sum = sums.entry(event.kind).or_default();
        // The value of a fault on the CPU is no quantity.
        let value = if event.kind == UnifiedMemoryKind::CPU_PAGE_FAULT { 0 } else { event.value };
        *sum = (sum.0 + 1, sum.1 + value);
    }
    let list: Vec<_> =
        sums.iter().map(|(kind, (times, sum))| format!("{kind} {times} ({sum})")).collect();
    eprintln!("managed memory: {}", list.join(", "));
    let of = |kind: UnifiedMemoryKind| sums.get(&kind).copied().unwrap_or_default();
    // The GPU wrote all of it after the CPU had, and the CPU read all of it after that.
    let reached_the_gpu =
        of(UnifiedMemoryKind::HOST_TO_DEVICE).0 + of(UnifiedMemoryKind::GPU_PAGE_FAULT).0;
    assert!(reached_the_gpu > 0, "the GPU wrote what it never had");
    let to_host = events.iter().filter(|event| event.kind == UnifiedMemoryKind::DEVICE_TO_HOST);
    for transfer in to_host {
        assert!(transfer.span.start_ns <= transfer.span.end_ns, "{transfer:?}");
        assert!(transfer.value <= BYTES as u64, "{transfer:?}");
    }
    assert!(
        of(UnifiedMemoryKind::DEVICE_TO_HOST).1 >= BYTES as u64,
        "the CPU read what never came"
    );
}

/// What CUPTI says to each counter of managed memory by itself.
fn refusals(library: &Library) -> String {
    let refusal = |counter| {
        let config = Config::new()
            .add_kind(ActivityKind::UNIFIED_MEMORY_COUNTER)
            .unified_memory_counters([counter]);
        match Collector::start(library, &config) {
            Ok(_) => format!("{counter}: taken"),
            Err(error) => format!("{counter}: {error}"),
        }
    };
    (1..=8).map(|counter| refusal(UnifiedMemoryKind(counter))).collect::<Vec<_>>().join("; ")
}

/// Where there are two GPUs; elsewhere it says that there are not.
fn copies_between_devices() {
    const BYTES: usize = 3 << 20;
    let gpu = Gpu::get();
    let Some(peer) = gpu.other_device(1) else {
        eprintln!("copies between devices: not tried, there is one GPU");
        return;
    };
    let there = peer.alloc(BYTES);
    gpu.make_current();
    let (here, stream) = (gpu.alloc(BYTES), gpu.stream());
    let library = Library::open().unwrap();
    let config = with_kinds(&[ActivityKind::NVLINK, ActivityKind::DEVICE]);
    let profiler = Profiler::builder().library(library).config(config).build().unwrap();
    let ((), profile) = profiler
        .record(|| {
            {
                let _range = nvtx::range("through the host");
                gpu.copy_to_peer((there, &peer), here, BYTES, stream);
            }
            gpu.synchronize(stream);
            gpu.enable_peer_access(&peer);
            let _range = nvtx::range("to the other");
            for _ in 0..5 {
                gpu.copy_to_peer((there, &peer), here, BYTES, stream);
            }
            gpu.synchronize(stream);
        })
        .unwrap();
    profile.health().assert_complete();
    // Without access to the other's memory one call is two copies.
    let staged = profile.range("through the host").unwrap();
    assert_eq!((staged.copies(), staged.inclusive().copy_bytes), (2, 2 * BYTES as u64));
    let range = profile.range("to the other").unwrap();
    assert_eq!((range.copies(), range.inclusive().copy_bytes), (5, 5 * BYTES as u64));
    let between: Vec<_> =
        profile.copies().filter_map(|copy| Some((copy.details().peers?, copy.kind()))).collect();
    assert_eq!(between.len(), 5);
    for (peers, kind) in between {
        assert_eq!((peers.source_device, peers.destination_device), (0, 1), "{peers:?}");
        assert_eq!(kind, cupti::CopyKind::PeerToPeer);
    }
    eprintln!("copies between devices: {:?}", counts(profile.recording().unwrap().records()));
}
