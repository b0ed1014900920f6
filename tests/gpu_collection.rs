//! What only a GPU can show of a collection: kinds, filters, few buffers, pauses, graphs, contexts that go, and
//! processes that end. Run with `cargo test --release -p gpu-profiler-tests --test gpu_collection`; without a GPU each test is
//! ignored and the reason printed.
#![allow(clippy::unwrap_used, clippy::panic)] // tests

use std::collections::{BTreeMap, HashMap, HashSet};
use std::env;
use std::process::{Child, Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cupti::{
    ActivityKind, Attribute, Call, CallClass, Collected, Collector, Config, GraphEvent,
    GraphEventKind, Kernel, Library, Record, RecordBytes, calls, clock,
};
use gpu_profiler_examples::mlp::Mlp;
use gpu_profiler_tests::cuda::{DEFAULT, Gpu, Stream};
use gpu_profiler_tests::harness;

/// Tells this program, started by itself, which scene to play.
const SCENE: &str = "GPU_COLLECTION_SCENE";

type Scene = fn() -> ExitCode;

/// Processes that do not come to an ordinary end; each with the exit code it should have.
const SCENES: [(&str, Scene, i32); 5] = [
    ("main_returns", main_returns, 0),
    ("the_program_exits", the_program_exits, 3),
    ("main_panics", main_panics, 101),
    ("the_primary_context_is_reset", the_primary_context_is_reset, 0),
    ("a_child_is_left_out", a_child_is_left_out, 0),
];

fn main() -> ExitCode {
    if let Ok(scene) = env::var(SCENE) {
        let (_, play, _) = SCENES.iter().find(|(name, ..)| *name == scene).unwrap();
        return play();
    }
    harness::run(&[
        ("enabled_kinds_match_the_request", enabled_kinds_match_the_request),
        ("settings_are_made_and_put_back", settings_are_made_and_put_back),
        ("few_buffers_lose_nothing_uncounted", few_buffers_lose_nothing_uncounted),
        ("a_pause_collects_nothing_and_loses_nothing", a_pause_collects_nothing_and_loses_nothing),
        (
            "threads_that_were_in_calls_at_a_pause_are_seen_after_it",
            threads_that_were_in_calls_at_a_pause_are_seen_after_it,
        ),
        (
            "threads_that_begin_calls_at_a_pause_are_seen_after_it",
            threads_that_begin_calls_at_a_pause_are_seen_after_it,
        ),
        (
            "threads_are_seen_after_pauses_on_busy_processors",
            threads_are_seen_after_pauses_on_busy_processors,
        ),
        (
            "starts_flushes_and_stops_beside_launches_on_busy_processors",
            starts_flushes_and_stops_beside_launches_on_busy_processors,
        ),
        ("settings_last_through_pauses", settings_last_through_pauses),
        ("profiler_switch_limits_the_counted_work", profiler_switch_limits_the_counted_work),
        (
            "kernels_of_graphs_lead_back_to_their_capture",
            kernels_of_graphs_lead_back_to_their_capture,
        ),
        ("runtime_calls_stand_beside_the_drivers", runtime_calls_stand_beside_the_drivers),
        ("a_context_that_goes_leaves_its_records", a_context_that_goes_leaves_its_records),
        ("processes_end_with_a_collection_running", processes_end_with_a_collection_running),
        ("support_describes_this_machine", support_describes_this_machine),
    ])
    .exit_code()
}

fn start(config: &Config) -> Collector {
    Collector::start(&Library::open().unwrap(), config).unwrap()
}

fn collect(config: &Config, program: impl FnOnce()) -> Collected {
    let collector = start(config);
    program();
    collector.stop().unwrap()
}

fn kernels(collected: &Collected) -> Vec<Kernel> {
    let kernel = |record| {
        if let Record::Kernel(kernel) = record { Some(*kernel) } else { None }
    };
    collected.records.iter().filter_map(kernel).collect()
}

fn driver_calls(collected: &Collected) -> Vec<Call> {
    collected.calls.iter().flat_map(|thread| thread.calls.clone()).collect()
}

fn launches(collected: &Collected) -> Vec<Call> {
    let calls = driver_calls(collected);
    calls.into_iter().filter(|call| call.function.class() == CallClass::KernelLaunch).collect()
}

/// The bytes of every record of this kind.
fn raw(records: &RecordBytes, kind: ActivityKind) -> Vec<Vec<u8>> {
    let strides: BTreeMap<u32, u32> =
        records.strides().map(|(kind, stride)| (kind.0, stride)).collect();
    let mut found = Vec::new();
    for buffer in records.buffers() {
        let mut rest = buffer;
        while let Some(head) = rest.first_chunk() {
            let of = u32::from_ne_bytes(*head);
            let (record, after) = rest.split_at(strides[&of] as usize);
            if of == kind.0 {
                found.push(record.to_vec());
            }
            rest = after;
        }
    }
    found
}

/// The GPU with its kernels loaded and CUPTI's first costs paid.
fn warm() -> Gpu {
    let gpu = Gpu::get();
    gpu.launch_empty(DEFAULT);
    gpu.launch_spin(DEFAULT, 1_000);
    gpu.synchronize_context();
    gpu
}

fn enabled_kinds_match_the_request() {
    let gpu = warm();
    let stream = gpu.stream();
    let memory = gpu.alloc(4096);
    let nonsense = ActivityKind(9_999);
    // Event records come with those of synchronisation and only with them; before 12.9 nobody can ask for them.
    let config = Config::new()
        .add_kind_if_known(ActivityKind::CUDA_EVENT)
        .remove_kind(ActivityKind::MEMSET)
        .add_kind_if_known(nonsense);
    let collected = collect(&config, || {
        gpu.launch_empty(stream);
        let event = gpu.event();
        gpu.record(event, stream);
        gpu.fill_async(memory, 1, 4096, stream);
        gpu.synchronize(stream);
    });
    gpu.free(memory);
    let asked_for = Library::open().unwrap().version().cuda_release() >= (12, 9);
    let missing = [ActivityKind::CUDA_EVENT, nonsense];
    assert_eq!(collected.missing_kinds, missing[usize::from(asked_for)..]);
    assert_eq!(kernels(&collected).len(), 1);
    assert_eq!(raw(&collected.records, ActivityKind::CUDA_EVENT).len(), 1);
    assert!(raw(&collected.records, ActivityKind::MEMSET).is_empty());

    let error = Collector::start(&Library::open().unwrap(), &Config::new().add_kind(nonsense));
    assert!(error.unwrap_err().is_unsupported());
    assert_eq!(kernels(&collect(&Config::new(), || gpu.launch_empty(stream))).len(), 1);
}

fn settings_are_made_and_put_back() {
    let gpu = warm();
    let asked = [
        (Attribute::DeviceBufferBytes, 8_000_000),
        (Attribute::DeviceBufferLimit, 100),
        (Attribute::DeviceBuffersReady, 2),
        (Attribute::PerThreadBuffers, 0),
    ];
    let config =
        asked.iter().fold(Config::new(), |config, (a, value)| config.attribute(*a, *value));
    let config = config.flush_period(Duration::from_millis(20));
    let mut before = Vec::new();
    for _ in 0..2 {
        let collected = collect(&config, || gpu.launch_empty(DEFAULT));
        assert_eq!(kernels(&collected).len(), 1);
        let settings = &collected.attributes;
        assert_eq!(settings.len(), asked.len());
        assert!(settings.iter().all(|setting| setting.set == setting.asked), "{settings:?}");
        before.push(settings.iter().map(|setting| setting.before).collect::<Vec<_>>());
    }
    assert_eq!(before[0], before[1], "the second collection found what the first had found");
}

/// While a kernel blocks the GPU no buffer comes back, so that few soon are none.
fn few_buffers_lose_nothing_uncounted() {
    const LAUNCHES: u64 = 900;
    let gpu = warm();
    let stream = gpu.stream();
    for most in [1, 2] {
        let config = Config::new()
            .kinds([ActivityKind::CONCURRENT_KERNEL])
            .buffer_bytes(64 << 10)
            .buffers(most)
            .max_buffers(most);
        let collected = collect(&config, || {
            gpu.launch_spin(stream, 400_000_000);
            // The driver's queue has room for about a thousand launches; beyond it would wait for the GPU.
            for _ in 1..LAUNCHES {
                gpu.launch_empty(stream);
            }
            gpu.synchronize(stream);
        });
        let losses = collected.losses;
        let kept = kernels(&collected);
        let without_times = kept.iter().filter(|kernel| !kernel.span.is_known()).count();
        let case = format!(
            "at most {most}: {} kept, {without_times} without times, {losses:?}",
            kept.len()
        );
        assert_eq!(launches(&collected).len() as u64, LAUNCHES, "{case}");
        let lost = losses.dropped_by_cupti + losses.refused_records;
        assert_eq!(kept.len() as u64 + lost, LAUNCHES, "{case}");
        assert!(losses.refused_buffers > 0, "{case}");
    }
    let collected = collect(&Config::new(), || gpu.launch_empty(stream));
    assert_eq!((kernels(&collected).len(), collected.losses.refused_buffers), (1, 0));
}

fn a_pause_collects_nothing_and_loses_nothing() {
    let gpu = warm();
    let stream = gpu.stream();
    let mut collector = start(&Config::new());
    let mut counted = 0;
    for round in 0..20u64 {
        // Not waited for: the pause does.
        gpu.launch_spin(stream, 200_000);
        for _ in 0..100 {
            gpu.launch_empty(stream);
        }
        counted += 101;
        collector.pause().unwrap();
        assert!(collector.is_paused());
        for _ in 0..50 {
            gpu.launch_empty(stream);
        }
        if round % 2 == 0 {
            // Else what was launched in the pause may still run when it ends.
            gpu.synchronize(stream);
        }
        collector.resume().unwrap();
    }
    let collected = collector.stop().unwrap();
    assert_eq!(collected.losses.dropped_by_cupti, 0, "{:?}", collected.losses);
    assert_eq!(collected.losses.unfinished_buffers, 0, "{:?}", collected.losses);
    let logged: HashMap<u32, Call> =
        launches(&collected).into_iter().map(|call| (call.correlation_id, call)).collect();
    let kernels = kernels(&collected);
    assert_eq!((logged.len(), kernels.len()), (counted, counted));
    assert!(kernels.iter().all(|kernel| logged.contains_key(&kernel.correlation_id)));
    assert!(kernels.iter().all(|kernel| kernel.span.is_known()));
    assert!(logged.values().all(|call| collected.was_on(call.start_ns)));
    assert_eq!(collected.windows_ns.len(), 21);
}

type Turn = fn(&mut Collector);

const PAUSES: [Turn; 2] = [|c| c.pause().unwrap(), |c| c.resume().unwrap()];

/// Four threads make requests of twelve launches while a collection is turned off and on, and each a hundred of them after it. Returns what was collected
/// and the ids of each thread's launches in the latter.
fn launches_after_turns(
    config: &Config,
    [turn_off, turn_on]: [Turn; 2],
    (turns, period): (usize, Duration),
    request: impl Fn(&Gpu, Stream) + Sync,
) -> (Collected, HashSet<u32>) {
    const THREADS: usize = 4;
    const REQUESTS: usize = 100;
    const LAUNCHES: usize = 12;
    let gpu = warm();
    let mut collector = start(config);
    let is_last = AtomicBool::new(false);
    // The thread, and from when on it launched what is counted.
    let serve = || {
        gpu.make_current();
        let stream = gpu.stream();
        let (mut requests, mut since_ns) = (0, 0);
        while requests < REQUESTS {
            if is_last.load(Ordering::Acquire) {
                requests += 1;
                since_ns = if since_ns == 0 { clock::now_ns() } else { since_ns };
            }
            (0..LAUNCHES).for_each(|_| request(&gpu, stream));
            gpu.synchronize(stream);
        }
        gpu.destroy(stream);
        (calls::thread_id(), since_ns)
    };
    let threads: HashMap<u32, u64> = std::thread::scope(|scope| {
        turn_on(&mut collector);
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(serve)).collect();
        for _ in 0..turns {
            std::thread::sleep(period);
            turn_off(&mut collector);
            std::thread::sleep(period);
            turn_on(&mut collector);
        }
        is_last.store(true, Ordering::Release);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let collected = collector.stop().unwrap();
    let logged = |(thread, since_ns): (&u32, &u64)| -> Vec<u32> {
        let of_thread = collected.calls.iter().filter(|calls| calls.thread_id == *thread);
        let calls = of_thread.flat_map(|thread| &thread.calls);
        let is_counted = |call: &&Call| {
            call.start_ns >= *since_ns && call.function.class() == CallClass::KernelLaunch
        };
        calls.filter(is_counted).map(|call| call.correlation_id).collect()
    };
    let logged: Vec<Vec<u32>> = threads.iter().map(logged).collect();
    let counts: Vec<usize> = logged.iter().map(Vec::len).collect();
    assert_eq!(counts, [REQUESTS * LAUNCHES; THREADS], "launches of each thread after {config:?}");
    let ids: HashSet<u32> = logged.into_iter().flatten().collect();
    assert_eq!(ids.len(), THREADS * REQUESTS * LAUNCHES, "ids of launches after {config:?}");
    (collected, ids)
}

/// At each pause threads are in calls, nearly always waiting for the GPU.
fn threads_that_were_in_calls_at_a_pause_are_seen_after_it() {
    const TURNS: (usize, Duration) = (10, Duration::from_millis(10));
    let request = |gpu: &Gpu, stream| gpu.launch_spin(stream, 100_000);
    for config in [Config::new(), Config::new().on_profiler_switch(|_| {})] {
        let (collected, ids) = launches_after_turns(&config, PAUSES, TURNS, request);
        let recorded = kernels(&collected);
        let recorded = recorded.iter().filter(|kernel| ids.contains(&kernel.correlation_id));
        assert_eq!(recorded.count(), ids.len(), "kernels of these launches after {config:?}");
    }
}

/// Between its launches each thread does something else for up to 64 us, so that calls begin while a pause begins.
fn threads_that_begin_calls_at_a_pause_are_seen_after_it() {
    const TURNS: (usize, Duration) = (200, Duration::from_millis(1));
    launches_after_turns(&Config::new(), PAUSES, TURNS, |gpu, stream| {
        gpu.launch_empty(stream);
        let begin = Instant::now();
        let longest = Duration::from_micros(clock::now_ns() % 64);
        while begin.elapsed() < longest {}
    });
}

/// Twice as many busy loops as processors, until it is dropped: threads lose processors between CUPTI and the callback.
struct BusyProcessors(Vec<Child>);

impl BusyProcessors {
    fn new() -> Self {
        let count = 2 * std::thread::available_parallelism().unwrap().get();
        let mut own = Self(Vec::new());
        for _ in 0..count {
            let mut shell = Command::new("sh");
            shell.args(["-c", "while kill -0 $PPID 2>&-; do :; done"]);
            own.0.push(shell.spawn().unwrap());
        }
        own
    }
}

impl Drop for BusyProcessors {
    fn drop(&mut self) {
        for each in &mut self.0 {
            let _ = each.kill();
            let _ = each.wait();
        }
    }
}

fn threads_are_seen_after_pauses_on_busy_processors() {
    let _busy = BusyProcessors::new();
    threads_that_begin_calls_at_a_pause_are_seen_after_it();
}

/// CUPTI crashed where its subscriber ended, or a flush returned a buffer, while another thread was about to use it.
fn starts_flushes_and_stops_beside_launches_on_busy_processors() {
    const THREADS: usize = 4;
    let _busy = BusyProcessors::new();
    let gpu = warm();
    let is_over = AtomicBool::new(false);
    let serve = || {
        gpu.make_current();
        let stream = gpu.stream();
        while !is_over.load(Ordering::Acquire) {
            (0..12).for_each(|_| gpu.launch_empty(stream));
            gpu.synchronize(stream);
        }
        gpu.destroy(stream);
    };
    std::thread::scope(|scope| {
        (0..THREADS).for_each(|_| _ = scope.spawn(serve));
        for _ in 0..50 {
            let collector = start(&Config::new());
            for _ in 0..10 {
                std::thread::sleep(Duration::from_micros(300));
                collector.drain().unwrap();
            }
            collector.stop().unwrap();
        }
        is_over.store(true, Ordering::Release);
    });
    let collector = start(&Config::new());
    let stream = gpu.stream();
    (0..100).for_each(|_| gpu.launch_empty(stream));
    assert_eq!(kernels(&collector.stop().unwrap()).len(), 100);
}

fn settings_last_through_pauses() {
    let gpu = warm();
    let mut collector = start(&Config::new().latency_timestamps(true));
    for _ in 0..3 {
        gpu.launch_empty(DEFAULT);
        gpu.synchronize_context();
        collector.pause().unwrap();
        gpu.launch_empty(DEFAULT);
        gpu.synchronize_context();
        collector.resume().unwrap();
    }
    let collected = collector.stop().unwrap();
    let details = collected.records.iter().filter_map(|record| match record {
        Record::Kernel(kernel) => Some(kernel.details()),
        _ => None,
    });
    let details: Vec<_> = details.collect();
    assert_eq!(details.len(), 3);
    assert!(details.iter().all(|kernel| kernel.queued_ns > 0), "{details:?}");
}

fn profiler_switch_limits_the_counted_work() {
    let gpu = warm();
    let stream = gpu.stream();
    let config = Config::new().profiler_switch(true);
    let launch_some = |count| (0..count).for_each(|_| gpu.launch_empty(stream));
    let collected = collect(&config, || {
        launch_some(30);
        gpu.profiler_start();
        launch_some(7);
        gpu.profiler_stop();
        launch_some(11);
        gpu.profiler_start();
        launch_some(5);
    });
    assert_eq!(collected.windows_ns.len(), 2);
    let counted: HashSet<u32> = launches(&collected)
        .iter()
        .filter(|call| collected.was_on(call.start_ns))
        .map(|call| call.correlation_id)
        .collect();
    let kernels = kernels(&collected);
    let of_counted = |kernel: &&Kernel| counted.contains(&kernel.correlation_id);
    assert_eq!((counted.len(), kernels.iter().filter(of_counted).count()), (12, 12));
}

fn kernels_of_graphs_lead_back_to_their_capture() {
    const NODES: u64 = 10;
    let gpu = warm();
    let stream = gpu.stream();
    let memory = gpu.alloc(4096);
    let collector = start(&Config::new().graph_events(true));
    let graph = gpu.capture(stream, || {
        for node in 0..NODES {
            calls::set_word(1_000 + node);
            gpu.launch_empty(stream);
        }
        calls::set_word(2_000);
        gpu.fill_async(memory, 1, 4096, stream);
        calls::set_word(0);
    });
    for launch in 0..5 {
        calls::set_word(launch + 1);
        gpu.launch_graph(graph, stream);
    }
    calls::set_word(0);
    gpu.synchronize(stream);
    gpu.destroy_graph(graph);
    let collected = collector.stop().unwrap();
    gpu.free(memory);

    let events: Vec<GraphEvent> =
        collected.graphs.iter().flat_map(|thread| thread.events.clone()).collect();
    let copies: HashMap<u64, u64> = events
        .iter()
        .filter(|event| event.kind == GraphEventKind::NodeCloned)
        .map(|event| (event.node, event.original_node))
        .collect();
    // The nodes of the copy that is launched are made, too, and one that only the driver knows the purpose of.
    let made: HashMap<u64, GraphEvent> = events
        .iter()
        .filter(|event| event.kind == GraphEventKind::NodeCreated && event.call != 0)
        .map(|event| (event.node, *event))
        .collect();
    let execs: Vec<u32> = events
        .iter()
        .filter(|event| event.kind == GraphEventKind::ExecCreated)
        .map(|event| event.exec)
        .collect();
    assert_eq!(made.len() as u64, NODES + 1, "{events:?}");
    let captured = driver_calls(&collected).into_iter().filter(|call| call.captured);
    let captured: HashSet<u32> = captured.map(|call| call.correlation_id).collect();
    assert!(made.values().all(|node| captured.contains(&node.call)), "{events:?}");

    let mut words: BTreeMap<u64, u64> = BTreeMap::new();
    for record in &collected.records {
        let node = match record {
            Record::Kernel(kernel) => kernel.graph_node,
            Record::Memset(memset) => memset.graph_node,
            _ => continue,
        };
        let node = node.unwrap();
        if collected.version.cuda_release() >= (12, 3) {
            assert!(execs.contains(&node.graph), "{node:?} {events:?}");
        }
        let mut id = node.node;
        while let (None, Some(original)) = (made.get(&id), copies.get(&id)) {
            id = *original;
        }
        *words.entry(made[&id].word).or_default() += 1;
    }
    let expected: BTreeMap<u64, u64> =
        (0..NODES).map(|node| (1_000 + node, 5)).chain([(2_000, 5)]).collect();
    assert_eq!(words, expected);
}

/// cuBLAS calls the runtime API.
fn runtime_calls_stand_beside_the_drivers() {
    let mut mlp = Mlp::new(1, 0).unwrap();
    mlp.warm_up().unwrap();
    let collected = collect(&Config::new().runtime_calls(true), || {
        calls::set_word(77);
        for batch in 0..3 {
            mlp.train_batch(batch).unwrap();
        }
        calls::set_word(0);
    });
    let driver: HashMap<u32, Call> =
        driver_calls(&collected).into_iter().map(|call| (call.correlation_id, call)).collect();
    let runtime: Vec<_> = collected.runtime_calls.iter().flat_map(|t| t.calls.clone()).collect();
    let launched: Vec<_> =
        runtime.iter().filter(|call| call.function.class() == CallClass::KernelLaunch).collect();
    assert!(!launched.is_empty(), "cuBLAS launches through the runtime API: {runtime:?}");
    for call in launched {
        assert!(call.end_ns.is_some() && call.result == 0 && call.word == 77, "{call:?}");
        let inner = driver[&call.correlation_id];
        assert_eq!(inner.function.class(), CallClass::KernelLaunch);
        assert!(call.start_ns <= inner.start_ns && inner.end_ns <= call.end_ns);
    }
}

fn a_context_that_goes_leaves_its_records() {
    let gpu = warm();
    let collected = collect(&Config::new(), || {
        gpu.launch_in_own_context(500);
        gpu.launch_empty(DEFAULT);
    });
    let losses = collected.losses;
    let kernels = kernels(&collected);
    assert_eq!((launches(&collected).len(), kernels.len()), (501, 501), "{losses:?}");
    assert!(kernels.iter().all(|kernel| kernel.span.is_known()), "{losses:?}");
    let contexts: HashSet<u32> = kernels.iter().map(|kernel| kernel.place.context).collect();
    assert_eq!(contexts.len(), 2);
}

fn processes_end_with_a_collection_running() {
    for (scene, _, code) in SCENES {
        let mut child =
            Command::new(env::current_exe().unwrap()).env(SCENE, scene).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(90);
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("{scene} hangs");
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(status.code(), Some(code), "{scene}: {status}");
    }
}

/// A collection in full swing, with threads that launch.
fn running() -> Collector {
    let gpu = warm();
    let collector = start(&Config::new().graph_events(true));
    for _ in 0..2 {
        std::thread::spawn(|| {
            let gpu = Gpu::get();
            let stream = gpu.stream();
            for _ in 0..20_000 {
                gpu.launch_empty(stream);
            }
        });
    }
    (0..1_000).for_each(|_| gpu.launch_empty(DEFAULT));
    collector
}

fn main_returns() -> ExitCode {
    std::mem::forget(running());
    ExitCode::SUCCESS
}

fn the_program_exits() -> ExitCode {
    let _collector = running();
    std::process::exit(3)
}

fn main_panics() -> ExitCode {
    let _collector = running();
    std::panic::set_hook(Box::new(|_| {}));
    panic!("on purpose");
}

fn the_primary_context_is_reset() -> ExitCode {
    let gpu = warm();
    let collector = start(&Config::new());
    (0..300).for_each(|_| gpu.launch_empty(DEFAULT));
    gpu.synchronize_context();
    gpu.reset();
    let collected = collector.stop().unwrap();
    let counts = (launches(&collected).len(), kernels(&collected).len());
    assert_eq!(counts, (300, 300), "{:?}", collected.losses);
    // Nothing of the context can be given back any more.
    std::process::exit(0)
}

fn a_child_is_left_out() -> ExitCode {
    let gpu = warm();
    let mut place = Some(start(&Config::new()));
    gpu.launch_empty(DEFAULT);
    gpu.synchronize_context();
    // SAFETY: the child calls nothing but what is tested, and leaves with _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let collector = place.take().unwrap();
        let content = collector.flush().is_err() && collector.stop().is_err();
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!content)) };
    }
    let mut status = 0;
    // SAFETY: `child` is our child and `status` a live int.
    unsafe { libc::waitpid(child, &mut status, 0) };
    gpu.launch_empty(DEFAULT);
    let collected = place.unwrap().stop().unwrap();
    assert_eq!((status, kernels(&collected).len()), (0, 2), "{:?}", collected.losses);
    ExitCode::SUCCESS
}

fn support_describes_this_machine() {
    let support = cupti::support();
    assert!(support.is_ready(), "{support}");
    let page = support.to_string();
    let device = &support.driver.as_ref().unwrap().devices[0];
    assert!(page.contains(&device.name) && page.contains("held by    nobody"), "{page}");
    assert!(support.driver.as_ref().unwrap().release.is_some(), "{page}");
    let library = Library::open().unwrap();
    let features = library.features();
    let release = library.version().cuda_release();
    let since = [
        (features.graph_exec_ids, (12, 3)),
        (features.hardware_trace, (12, 8)),
        (features.names_holder, (13, 0)),
        (features.records_v2, (13, 2)),
        (features.several_subscribers, (13, 3)),
    ];
    for (has, first) in since {
        assert_eq!(has, release >= first, "{first:?}: {page}");
    }
    assert_eq!(support.mapped.len(), 1, "{page}");
}
