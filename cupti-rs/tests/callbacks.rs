//! The program's own handler, and the graph log. Against the fake.
#![allow(clippy::unwrap_used, clippy::panic)] // the helpers are tests too

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cupti::callbacks::{ResourceKind, Site};
use cupti::sys::abi::CuptiResult;
use cupti::{
    CallClass, Callback, Callbacks, Collected, Collector, Config, GraphEvent, GraphEventKind,
    Record, calls,
};
use fake_cupti::{Fake, FakeExec, FakeGraph, When, Work};
use parking_lot::Mutex;

/// Collects what a handler says of each callback.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn callbacks(&self) -> Callbacks {
        let seen = self.0.clone();
        Callbacks::new(move |callback| seen.lock().push(line_of(callback)))
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

fn line_of(callback: &Callback<'_>) -> String {
    match callback {
        Callback::Driver(call) | Callback::Runtime(call) => {
            if call.site() == Site::Enter {
                call.store_value(u64::from(call.correlation_id()) * 10);
            }
            let (name, id, kept) = (call.name(), call.correlation_id(), call.stored_value());
            let symbol = call.symbol().map(|symbol| format!(" {symbol}")).unwrap_or_default();
            let result = call.result().map(|result| format!(" = {result}")).unwrap_or_default();
            format!("{name} {id} {kept}{symbol}{result}")
        }
        Callback::Resource(event) => {
            let (context, stream) = (event.context_id, event.stream_id);
            let module = event.module.map(|module| (module.id, module.cubin.len()));
            format!("{} {context:?} {stream:?} {module:?}", event.kind.name().unwrap())
        }
        Callback::Synchronize(wait) => format!("wait {:?} {:?}", wait.context_id, wait.stream_id),
        Callback::Nvtx(call) => format!("{} {}", call.id, call.name),
        Callback::State(notice) => format!("{} {} {:?}", notice.id, notice.code, notice.message),
        other => format!("{other:?}"),
    }
}

fn start(fake: &Fake, config: Config) -> Collector {
    Collector::start(&fake.library().unwrap(), &config).unwrap()
}

#[test]
fn handler_receives_the_requested_calls() {
    let fake = Fake::new();
    let seen = Seen::default();
    let callbacks = seen.callbacks().driver("cuLaunchKernel").runtime_class(CallClass::Memcpy);
    let collector = start(&fake, Config::new().callbacks(callbacks));
    let launch = fake.launch(Work::kernel(c"axpy"));
    fake.launch(Work::host_to_device(5));
    let copy = fake.launch_through_runtime("cudaMemcpyAsync", &Work::host_to_device(8));
    fake.call_only("cuLaunchKernel_ptsz", 700);
    assert_eq!(
        seen.take(),
        [
            format!("cuLaunchKernel {launch} {0} axpy", launch * 10),
            format!("cuLaunchKernel {launch} {0} axpy = 0", launch * 10),
            format!("cudaMemcpyAsync {copy} {0}", copy * 10),
            format!("cudaMemcpyAsync {copy} {0} = 0", copy * 10),
            format!("cuLaunchKernel_ptsz {0} {1}", copy + 1, (copy + 1) * 10),
            format!("cuLaunchKernel_ptsz {0} {1} = 700", copy + 1, (copy + 1) * 10),
        ]
    );
    let collected = collector.stop().unwrap();
    assert_eq!(collected.calls[0].calls.len(), 4, "the call log goes on beside it");
    fake.launch(Work::kernel(c"after the stop"));
    assert!(seen.take().is_empty());
    assert_eq!(Arc::strong_count(&seen.0), 1, "the collection's end lets go of the handler");
}

#[test]
fn whole_domains_and_the_profiler_functions() {
    let fake = Fake::new();
    let seen = Seen::default();
    let collector = start(&fake, Config::new().callbacks(seen.callbacks().driver_all()));
    fake.profiler_start();
    fake.call_only("cuMemAlloc_v2", 0);
    let names: Vec<_> =
        seen.take().iter().map(|s| s.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(names, ["cuProfilerStart", "cuProfilerStart", "cuMemAlloc_v2", "cuMemAlloc_v2"]);
    let collected = collector.stop().unwrap();
    let logged: Vec<_> = collected.calls[0].calls.iter().map(|call| call.function.name()).collect();
    assert_eq!(logged, ["cuMemAlloc_v2"], "the log holds its own list alone");

    let collector = start(&fake, Config::new().callbacks(seen.callbacks().profiler()));
    fake.profiler_start();
    fake.profiler_stop();
    fake.call_only("cuMemAlloc_v2", 0);
    assert_eq!(seen.take().len(), 8);
    drop(collector);
}

#[test]
fn a_function_that_does_not_exist_is_an_error() {
    let fake = Fake::new();
    let callbacks = Callbacks::new(|_| {}).driver("cuMemAloc");
    let config = Config::new().callbacks(callbacks);
    let error = Collector::start(&fake.library().unwrap(), &config).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("cuMemAloc"), "{error}");
    assert!(!fake.is_subscribed());
}

#[test]
fn resources_waits_nvtx_and_state() {
    let fake = Fake::new();
    let seen = Seen::default();
    let callbacks = seen.callbacks().contexts().streams().modules().synchronize().nvtx().state();
    let collector = start(&fake, Config::new().callbacks(callbacks));
    fake.resource(ResourceKind::CONTEXT_CREATED, 3, 0);
    fake.resource(ResourceKind::STREAM_CREATED, 3, 14);
    fake.module(ResourceKind::MODULE_LOADED, 21, b"cubin");
    fake.capture(&Work::kernel(c"no event of a graph was asked for"));
    fake.synchronized(3, Some(14));
    fake.synchronized(3, None);
    fake.nvtx(10, c"nvtxRangePushEx");
    fake.notice(2, CuptiResult::OUT_OF_MEMORY, c"no more");
    fake.resource(ResourceKind::CONTEXT_DESTROY_STARTING, 3, 0);
    assert_eq!(
        seen.take(),
        [
            "CONTEXT_CREATED Some(3) None None",
            "STREAM_CREATED Some(3) Some(14) None",
            "MODULE_LOADED Some(1) None Some((21, 5))",
            "wait Some(3) Some(14)",
            "wait Some(3) None",
            "10 nvtxRangePushEx",
            "2 8 Some(\"no more\")",
            "CONTEXT_DESTROY_STARTING Some(3) None None",
        ]
    );
    fake.fail("cuptiGetContextId", CuptiResult::INVALID_CONTEXT, When::Once);
    fake.resource(ResourceKind::CONTEXT_CREATED, 3, 0);
    assert_eq!(seen.take(), ["CONTEXT_CREATED None None None"]);
    drop(collector);
    drop(fake);

    // CUPTI 12.0 has no state domain, and fewer resources.
    let fake = Fake::builder().version(18).build();
    let collector = start(&fake, Config::new().callbacks(seen.callbacks().state().graph_nodes()));
    fake.notice(2, CuptiResult::OUT_OF_MEMORY, c"not reported");
    assert!(seen.take().is_empty());
    drop(collector);
}

#[test]
fn a_pause_is_quiet() {
    let fake = Fake::new();
    let seen = Seen::default();
    let config = Config::new().callbacks(seen.callbacks().driver_all()).profiler_switch(true);
    let mut collector = start(&fake, config);
    collector.pause().unwrap();
    fake.launch(Work::kernel(c"k"));
    fake.profiler_start();
    assert!(seen.take().is_empty());
    collector.resume().unwrap();
    fake.launch(Work::kernel(c"k"));
    assert_eq!(seen.take().len(), 2);
    let collected = collector.stop().unwrap();
    assert_eq!(collected.windows_ns.len(), 1, "the switch was turned in the pause");
}

#[test]
fn a_panicking_handler_is_counted_and_the_program_goes_on() {
    struct Worse;
    impl Drop for Worse {
        fn drop(&mut self) {
            panic!("the panic's own value panics");
        }
    }
    let fake = Fake::new();
    let callbacks = Callbacks::new(|callback| {
        if let Callback::Driver(call) = callback
            && call.site() == Site::Enter
        {
            std::panic::panic_any(Worse);
        }
    });
    let config = Config::new().callbacks(callbacks.driver_class(CallClass::KernelLaunch));
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let collector = start(&fake, config);
    for _ in 0..3 {
        fake.launch(Work::kernel(c"k"));
    }
    let collected = collector.stop().unwrap();
    std::panic::set_hook(hook);
    assert_eq!((collected.losses.handler_panics, collected.losses.panics), (3, 0));
    assert_eq!((collected.calls[0].calls.len(), collected.records.iter().count()), (3, 3));
}

#[test]
fn calls_made_by_a_handler_are_not_reported() {
    thread_local! {
        static FAKE: RefCell<Option<Rc<Fake>>> = const { RefCell::new(None) };
    }
    let mark = || FAKE.with_borrow(|fake| fake.as_ref().unwrap().nvtx(3, c"nvtxMarkEx"));
    let fake = Rc::new(Fake::new());
    FAKE.set(Some(fake.clone()));
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    let callbacks = Callbacks::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        mark();
    });
    let config = Config::new().callbacks(callbacks.driver_class(CallClass::Alloc).nvtx());
    let collector = start(&fake, config);
    fake.call_only("cuMemAlloc_v2", 0);
    assert_eq!(count.load(Ordering::Relaxed), 2);
    mark();
    assert_eq!(count.load(Ordering::Relaxed), 3);
    let losses = collector.stop().unwrap().losses;
    assert_eq!(
        (losses.handler_panics, losses.missed_callbacks),
        (0, 3),
        "each was answered by one"
    );
    FAKE.set(None);
}

/// Calls CUDA when it is dropped, with the thread's locals.
struct AtThreadEnd(&'static Fake);

impl Drop for AtThreadEnd {
    fn drop(&mut self) {
        self.0.launch(Work::kernel(c"at the end"));
    }
}

thread_local! {
    static AT_END: RefCell<Option<AtThreadEnd>> = const { RefCell::new(None) };
}

#[test]
fn calls_at_a_threads_end_reach_the_handler_and_the_log_or_are_counted() {
    let owned = Box::into_raw(Box::new(Fake::new()));
    // SAFETY: it is freed below, when all threads that have it were joined.
    let fake: &'static Fake = unsafe { &*owned };
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    let callbacks = Callbacks::new(move |_| _ = counted.fetch_add(1, Ordering::Relaxed));
    let config = Config::new().callbacks(callbacks.driver_class(CallClass::KernelLaunch));
    let collector = start(fake, config);
    for logs_first in [true, false] {
        let thread = std::thread::spawn(move || {
            // What is made first is destroyed last.
            if logs_first {
                fake.launch(Work::kernel(c"first"));
            }
            AT_END.set(Some(AtThreadEnd(fake)));
            fake.launch(Work::kernel(c"then"));
        });
        thread.join().unwrap();
    }
    assert_eq!(count.load(Ordering::Relaxed), 2 * 5, "each call begins and ends");
    let collected = collector.stop().unwrap();
    let logged: usize = collected.calls.iter().map(|thread| thread.calls.len()).sum();
    let (records, unlogged) = (collected.records.iter().count(), collected.losses.unlogged_calls);
    assert_eq!((records, logged as u64 + unlogged), (5, 5));
    assert!(unlogged > 0, "in one of the two orders the thread's log was gone");
    // SAFETY: made above, and nobody has it any more.
    drop(unsafe { Box::from_raw(owned) });
}

#[test]
fn calls_within_the_logging_of_another_are_counted() {
    thread_local! {
        static FAKE: RefCell<Option<Rc<Fake>>> = const { RefCell::new(None) };
    }
    // A word source is for the life of the process: on other threads this one does nothing.
    let source: fn() -> u64 = || {
        let call = |fake: &RefCell<Option<Rc<Fake>>>| {
            fake.borrow().as_ref().map(|fake| fake.call_only("cuMemAlloc_v2", 0))
        };
        let _ = FAKE.try_with(call);
        0
    };
    let fake = Rc::new(Fake::new());
    let collector = start(&fake, Config::new());
    calls::set_word_source(source).unwrap();
    FAKE.set(Some(fake.clone()));
    fake.launch(Work::kernel(c"k"));
    FAKE.set(None);
    let collected = collector.stop().unwrap();
    assert_eq!(collected.calls[0].calls.len(), 1);
    assert_eq!(collected.losses.unlogged_calls, 1);
}

/// The fake gives no event the data of another, whatever a test asks for.
#[test]
fn an_event_of_a_module_with_a_graphs_id_has_no_graph() {
    let fake = Fake::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let graphs = seen.clone();
    let callbacks = Callbacks::new(move |callback| {
        if let Callback::Resource(event) = callback {
            graphs.lock().push(event.graph);
        }
    });
    let config = Config::new().graph_events(true).callbacks(callbacks.graphs().modules());
    let collector = start(&fake, config);
    fake.module(ResourceKind::GRAPH_CREATED, 5, &[1, 2, 3]);
    fake.module(ResourceKind::MODULE_LOADED, 5, &[1, 2, 3]);
    assert_eq!(*seen.lock(), [None, None]);
    assert!(events(&collector.stop().unwrap()).is_empty());
}

#[test]
fn every_thread_has_the_handler_of_its_collection() {
    let fake = Fake::new();
    for round in 1..=3u64 {
        let count = Arc::new(AtomicU64::new(0));
        let counted = count.clone();
        let callbacks = Callbacks::new(move |_| _ = counted.fetch_add(round, Ordering::Relaxed));
        let config = Config::new().callbacks(callbacks.driver_class(CallClass::KernelLaunch));
        let collector = start(&fake, config);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|_| _ = fake.launch(Work::kernel(c"k"))));
            }
        });
        fake.launch(Work::kernel(c"k"));
        collector.stop().unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 2 * 2_001 * round);
    }
}

fn events(collected: &Collected) -> Vec<GraphEvent> {
    collected.graphs.iter().flat_map(|thread| thread.events.clone()).collect()
}

fn captured(fake: &Fake) -> (FakeGraph, FakeExec, [u32; 2]) {
    let mut graph = fake.graph();
    calls::set_word(71);
    let first = fake.capture_into(&mut graph, &Work::kernel(c"a"));
    calls::set_word(72);
    let second = fake.capture_into(&mut graph, &Work::memset(16));
    calls::set_word(0);
    let exec = fake.instantiate(&graph);
    (graph, exec, [first, second])
}

#[test]
fn a_kernel_of_a_graph_leads_back_to_the_word_of_its_capture() {
    let fake = Fake::new();
    let collector = start(&fake, Config::new().graph_events(true));
    let (graph, exec, [first, second]) = captured(&fake);
    calls::set_word(5);
    let launch = fake.launch_exec(&exec);
    calls::set_word(0);
    let (exec_id, nodes) = (exec.id(), exec.nodes());
    fake.destroy_exec(exec);
    let collected = collector.stop().unwrap();
    assert_eq!(collected.graphs.len(), 1);
    assert_eq!(collected.graphs[0].thread_id, collected.calls[0].thread_id);

    use GraphEventKind as Kind;
    let events = events(&collected);
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    assert_eq!(
        kinds,
        [
            Kind::GraphCreated,
            Kind::NodeCreated,
            Kind::NodeCreated,
            // The copy that is launched, as an H200 reported it.
            Kind::GraphCreated,
            Kind::NodeCreated,
            Kind::NodeCloned,
            Kind::NodeCreated,
            Kind::NodeCloned,
            Kind::NodeCreated,
            Kind::ExecCreated,
            Kind::ExecDestroyed,
        ]
    );
    assert!(events.is_sorted_by_key(|event| event.at_ns) && events[0].at_ns > 0);
    let made: Vec<_> = events[1..3].iter().map(|e| (e.graph, e.node, e.word, e.call)).collect();
    let original = graph.nodes();
    let expected = [(graph.id(), original[0], 71, first), (graph.id(), original[1], 72, second)];
    assert_eq!(made, expected);
    assert_eq!((events[5].original_graph, events[9].exec), (graph.id(), exec_id));

    // From a record back to the word: by its node, and by the node of which that is a copy.
    let mut words = Vec::new();
    for record in &collected.records {
        let (id, node) = match record {
            Record::Kernel(kernel) => (kernel.correlation_id, kernel.graph_node.unwrap()),
            Record::Memset(memset) => (memset.correlation_id, memset.graph_node.unwrap()),
            other => panic!("{other:?}"),
        };
        assert_eq!((id, node.graph), (launch, exec_id));
        assert!(nodes.contains(&node.node));
        let copy =
            events.iter().find(|e| e.kind == Kind::NodeCloned && e.node == node.node).unwrap();
        let made = |e: &&GraphEvent| e.kind == Kind::NodeCreated && e.node == copy.original_node;
        words.push(events.iter().find(made).unwrap().word);
    }
    assert_eq!(words, [71, 72]);
    let captured: Vec<_> = collected.calls[0].calls.iter().map(|call| call.captured).collect();
    assert_eq!(captured, [true, true, false]);
}

#[test]
fn graph_events_not_requested_cost_nothing() {
    let fake = Fake::new();
    let collector = start(&fake, Config::new());
    captured(&fake);
    assert!(collector.stop().unwrap().graphs.is_empty());
    drop(fake);

    let fake = Fake::builder().version(20).build(); // 12.2 has no ids of executable graphs
    let collector = start(&fake, Config::new().graph_events(true));
    fake.fail("cuptiGetGraphNodeId", CuptiResult::UNKNOWN, When::Once);
    let (graph, exec, _) = captured(&fake);
    assert_ne!(exec.id(), 0);
    let collected = collector.stop().unwrap();
    let events = events(&collected);
    assert_eq!((events[1].node, events[2].node), (0, graph.nodes()[1]));
    assert!(events.iter().all(|event| event.exec == 0));
}

#[test]
fn requested_graph_dependencies_are_logged() {
    let fake = Fake::new();
    for is_asked_for in [false, true] {
        let config = Config::new().graph_events(true).graph_dependencies(is_asked_for);
        let collector = start(&fake, config);
        let mut graph = fake.graph();
        for _ in 0..2 {
            fake.capture_into(&mut graph, &Work::kernel(c"kernel"));
        }
        fake.add_dependency(&graph, 0, 1);
        let collected = collector.stop().unwrap();
        let events = events(&collected);
        let pairs: Vec<(u64, u64)> = events
            .iter()
            .filter(|event| event.kind == GraphEventKind::DependencyCreated)
            .map(|event| (event.node, event.original_node))
            .collect();
        let nodes = graph.nodes();
        let expected = [(nodes[1], nodes[0])];
        assert_eq!(pairs, expected[..usize::from(is_asked_for)]);
    }
}

#[test]
fn graphs_made_on_several_threads_have_their_own_logs() {
    let fake = Fake::new();
    let collector = start(&fake, Config::new().graph_events(true));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let mut graph = fake.graph();
                    fake.capture_into(&mut graph, &Work::kernel(c"k"));
                }
            });
        }
    });
    let collected = collector.stop().unwrap();
    assert_eq!(collected.graphs.len(), 3);
    for thread in &collected.graphs {
        assert_eq!(thread.events.len(), 4_000);
        let own = collected.calls.iter().find(|calls| calls.thread_id == thread.thread_id).unwrap();
        let nodes = thread.events.iter().filter(|e| e.kind == GraphEventKind::NodeCreated);
        let calls: Vec<u32> = nodes.map(|event| event.call).collect();
        let logged: Vec<u32> = own.calls.iter().map(|call| call.correlation_id).collect();
        assert_eq!(calls, logged);
    }
}

#[test]
fn runtime_call_is_captured_with_its_driver_call() {
    let fake = Fake::new();
    let collector = start(&fake, Config::new().runtime_calls(true));
    fake.capture_through_runtime("cudaLaunchKernel", &Work::kernel(c"k"));
    fake.launch_through_runtime("cudaLaunchKernel", &Work::kernel(c"k"));
    let collected = collector.stop().unwrap();
    let driver: Vec<_> = collected.calls[0].calls.iter().map(|call| call.captured).collect();
    let runtime: Vec<_> = collected.runtime_calls[0].calls.iter().map(|c| c.captured).collect();
    assert_eq!((driver, runtime), (vec![true, false], vec![true, false]));
}
