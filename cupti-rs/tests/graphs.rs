//! The graph log. Against the fake.
#![allow(clippy::unwrap_used, clippy::panic)] // the helpers are tests too

use cupti::sys::abi::CuptiResult;
use cupti::{Collected, Collector, Config, GraphEvent, GraphEventKind, Record, calls};
use fake_cupti::{Fake, FakeExec, FakeGraph, When, Work};

fn start(fake: &Fake, config: Config) -> Collector {
    Collector::start(&fake.library().unwrap(), &config).unwrap()
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
