//! Critical paths of programs whose path is known to the nanosecond, and properties of random ones.

use crate::prelude::*;
use std::time::Duration;

use cupti::{CallClass, SynchronizationKind};
use profiler_base::units::nanoseconds;

use super::*;
use crate::analyze::diagnosis::tests::{Job, Program, US, end_session, profile_of, steps};
use crate::analyze::ranks::tests::{Writer, recording_info};
use profiler_core::tables::GraphDependencies;
use profiler_core::tables::{self, Interval, KernelNames, Maybe, What, Work};

#[path = "../../../../profiler-core/tests/support/random_profile.rs"]
mod random_profile;

use random_profile::programs;

impl Program {
    /// A kernel through this function.
    fn kernel_through(&mut self, function: &str, stream: u32, name: &'static str, ns: u64) {
        self.launch(stream, Job::Kernel(name, 4_000), ns);
        let name = self.store.names.intern(function);
        let mut kind = *self.store.call_kind(&self.store.calls[self.store.calls.len() - 1]);
        kind.name = name;
        let kind = self.store.intern_call_kind(kind);
        self.store.calls.last_mut().unwrap().kind = kind;
    }

    /// A stream records event 1. With CUPTI from 12.8 the recording has an id of its own.
    fn record_event(&mut self, stream: u32, has_sync_ids: bool) -> Recorded {
        let correlation_id = self.next_id;
        // The call has no class, so that no log has it.
        (self.next_id, self.now) = (self.next_id + 1, self.now + US);
        let sync_id = has_sync_ids.then_some(u64::from(correlation_id) + 1_000);
        self.store.event_records.push(tables::EventRecord {
            process: 0,
            context: 1,
            stream,
            event: 1,
            correlation_id,
            sync_id,
        });
        Recorded { end_ns: self.streams.get(&stream).copied().unwrap_or(0), sync_id }
    }

    /// A stream waits for what was recorded; the call takes 1 us.
    fn wait_recorded(&mut self, stream: u32, of: Recorded) {
        self.wait_event(stream, u32::MAX);
        self.store.synchronizations.last_mut().unwrap().record.event_sync_id = of.sync_id;
        let own = self.streams.entry(stream).or_default();
        *own = of.end_ns.max(*own);
    }

    /// The host waits for what was recorded, and goes on 2 us later.
    fn synchronize_recorded(&mut self, of: Recorded) {
        let record = self.synchronization(SynchronizationKind::Event, None);
        (record.event, record.event_sync_id) = (Some(1), of.sync_id);
        let until = of.end_ns.max(self.now) + 2 * US;
        self.call("cuEventSynchronize", CallClass::Synchronize, until);
    }

    /// Nodes 101, 102, ... are copies of 1, 2, ...; these pairs of originals were reported as node and dependency.
    fn dependencies_of_graph(&mut self, pairs: &[(u64, u64)]) {
        let event = |kind, node, original_node, at_ns| {
            let mut event = cupti::GraphEvent::from_words([0; 7]);
            (event.kind, event.at_ns) = (kind, at_ns);
            (event.node, event.original_node) = (node, original_node);
            event
        };
        let created = |(node, other): &(u64, u64)| {
            event(cupti::GraphEventKind::DependencyCreated, *node, *other, 1)
        };
        let copies =
            (1..=20).map(|node| event(cupti::GraphEventKind::NodeCloned, 100 + node, node, 2));
        let events: Vec<cupti::GraphEvent> = pairs.iter().map(created).chain(copies).collect();
        self.store.graph_dependencies.insert(0, GraphDependencies::new(events.iter()));
    }

    /// A launch of a graph: kernels by their start after the first and their length.
    fn graph(&mut self, stream: u32, nodes: &[(&'static str, u64, u64)]) {
        let free = self.streams.get(&stream).copied().unwrap_or(0);
        let begin = (self.now + 5 * US).max(free);
        let correlation_id = self.next_id;
        self.call("cuGraphLaunch", CallClass::GraphLaunch, self.now + 6 * US);
        for (node, (name, start, ns)) in (101..).zip(nodes) {
            let mut details = cupti::Kernel::default();
            (details.place.context, details.place.stream) = (1, stream);
            details.graph_node = cupti::GraphNode::new(1, node);
            let name = self.store.names.intern(name);
            let names = KernelNames { name, demangled: None, short: None };
            let work = Work::new(What::Kernel { names, details }, details.place);
            let work = self.store.intern_work(work);
            let time = Interval { start_ns: begin + start, end_ns: begin + start + ns };
            self.store.operations.push(tables::Operation::new(work, Some(time), correlation_id));
            let end = self.streams.entry(stream).or_default();
            *end = time.end_ns.max(*end);
        }
    }
}

/// A recording of event 1.
#[derive(Clone, Copy)]
struct Recorded {
    end_ns: u64,
    sync_id: Option<u64>,
}

fn us(count: u64) -> Duration {
    Duration::from_nanos(count * US)
}

/// A step of 227 us: the host prepares for 20 us, a launch takes 5 us, then 100 us in stream 7, after which stream 8 goes on
/// for 50 us and with a graph of 50 us, which the host learns 2 us later.
fn streams_and_a_graph(p: &mut Program) {
    p.range("prepare", |p| p.host(20 * US));
    p.kernel_through("cuLaunchKernelEx", 7, "first", 100 * US);
    p.wait_event(8, 7);
    p.kernel_through("cuLaunchKernel", 8, "second", 50 * US);
    p.kernel_through("cuLaunchKernel", 9, "beside", 30 * US);
    p.graph(8, &[("g1", 0, 20 * US), ("short", 0, 10 * US), ("g3", 20 * US, 30 * US)]);
    p.wait_for(Some(8));
}

/// Moves an operation by so many nanoseconds.
fn shift(row: &mut tables::Operation, by: i64) {
    let Interval { start_ns, end_ns } = row.time().unwrap();
    let [start_ns, end_ns] = [start_ns, end_ns].map(|ns| ns.saturating_add_signed(by));
    let time = Interval { start_ns, end_ns };
    *row = tables::Operation::new(row.work, Some(time), row.correlation_id);
}

#[test]
fn path_leads_through_streams_events_and_graphs() {
    let profile = steps(streams_and_a_graph).profile();
    let path = profile.dependencies().critical_path_of("step").unwrap();
    assert_eq!((path.instances, path.length, path.unexplained), (20, us(20 * 227), us(0)));
    assert_eq!(path.gpu_time(), us(20 * 200));
    for (kind, each) in [
        (PathKind::Host, 20),
        (PathKind::Launch, 5),
        (PathKind::Kernel, 200),
        (PathKind::Return, 2),
        (PathKind::Call, 0),
        (PathKind::Schedule, 0),
    ] {
        assert_eq!(path.time_of(kind), us(20 * each), "{kind}\n{path}");
    }
    let row = |name| path.row(PathKind::Kernel, name).unwrap();
    for (name, each, slack) in [
        ("first", 100, None),
        ("second", 50, None),
        ("g1", 20, None),
        ("g3", 30, None),
        // From 34 to 64 us, and from 175 to 185.
        ("beside", 0, Some(us(227 - 64))),
        ("short", 0, Some(us(227 - 185))),
    ] {
        assert_eq!((row(name).on_path, row(name).slack), (us(20 * each), slack), "{name}\n{path}");
    }
    // The calls that launch are hidden, by as much as the GPU is behind.
    assert!(path.row(PathKind::Call, "cuGraphLaunch").unwrap().slack > Some(us(100)));
    let prepare = path.ranges().iter().find(|row| row.name == "step/prepare").unwrap();
    assert_eq!((prepare.on_path, prepare.kind), (us(20 * 20), PathKind::Host));
    let names: Vec<&str> = path.segments()[..7]
        .iter()
        .map(|segment| match segment.operation(&profile).and_then(|of| of.as_kernel()) {
            Some(kernel) if segment.kind() == PathKind::Kernel => kernel.name(),
            _ => segment.kind().text(),
        })
        .collect();
    let expected = ["no call", "launch latency", "first", "second", "g1", "g3", "return"];
    assert_eq!(names[1..6], expected[1..6]);
    let text = path.to_string();
    assert!(text.starts_with("critical path of 20 instances of step: 4.540 ms, 227.0 us each\n"));
    assert!(text.contains("kernel 88.1 %, host 8.8 %, launch latency 2.2 %"), "{text}");
}

/// Starts are moved to the host's clock, and ends follow after the measured time: clocks that run apart leave some
/// nanoseconds between the end of a kernel and the start of the one that follows it, in either direction.
#[test]
fn path_is_the_same_where_clocks_run_apart() {
    for drift in [2, -2] {
        let mut program = steps(streams_and_a_graph);
        for (at, row) in program.store.operations.iter_mut().enumerate() {
            shift(row, drift * (at % 6) as i64);
        }
        let profile = program.profile();
        let dependencies = profile.dependencies();
        let assumptions = dependencies.assumptions();
        let inferred = (assumptions.inferred_events, assumptions.inferred_in_graphs);
        assert_eq!((inferred, assumptions.late_starts), ((20, 20), 0), "{drift}: {assumptions}");
        let path = dependencies.critical_path_of("step").unwrap();
        for (name, each) in
            [("first", 100), ("second", 50), ("beside", 0), ("g1", 20), ("short", 0), ("g3", 30)]
        {
            let row = path.row(PathKind::Kernel, name).unwrap();
            let off = row.on_path.abs_diff(us(20 * each));
            assert!(off < us(1), "{drift}: {name}\n{path}");
        }
    }
}

/// No launch of `second` is ever waited for, so that its latency is not known. The least one is in a step in which clocks put
/// 3 ns between the kernels: the launch does not decide when `second` starts there either.
#[test]
fn launch_that_never_decides_is_on_no_path() {
    let mut step = 0;
    let mut program = steps(|p| {
        p.kernel_through("cuLaunchKernel", 7, "first", 100 * US);
        p.host(if step == 5 { 20 * US } else { 0 });
        p.kernel_through("cuLaunchKernelEx", 7, "second", 50 * US);
        p.wait();
        step += 1;
    });
    shift(&mut program.store.operations[2 * 5 + 1], 3);
    let profile = program.profile();
    let path = profile.dependencies().critical_path_of("step").unwrap();
    for (name, each) in [("first", 100), ("second", 50)] {
        assert_eq!(path.row(PathKind::Kernel, name).unwrap().on_path, us(20 * each), "{path}");
    }
}

/// The event was recorded before `later`, and `second` is on a stream whose only work is a wait for one that waited. What the
/// other streams had when the waits were called would be `later`, which ends after `second` began.
#[test]
fn recorded_events_depend_on_prior_work() {
    for has_sync_ids in [true, false] {
        let step = |p: &mut Program| {
            p.kernel_through("cuLaunchKernel", 7, "first", 100 * US);
            let first = p.record_event(7, has_sync_ids);
            p.kernel_through("cuLaunchKernel", 7, "later", 200 * US);
            p.wait_recorded(9, first);
            // Again, of a stream without work.
            let again = p.record_event(9, has_sync_ids);
            p.wait_recorded(8, Recorded { end_ns: first.end_ns, ..again });
            p.kernel_through("cuLaunchKernel", 8, "second", 400 * US);
            let second = p.record_event(8, has_sync_ids);
            p.kernel_through("cuLaunchKernel", 8, "unneeded", US);
            p.synchronize_recorded(second);
            p.host(10 * US);
            p.wait_for(None);
        };
        let profile = steps(step).profile();
        let dependencies = profile.dependencies();
        let expected = Assumptions { recorded_events: 60, ..Assumptions::default() };
        assert_eq!(*dependencies.assumptions(), expected);
        assert_eq!(
            expected.to_string(),
            "all dependencies are recorded; 60 waits for events with a known recording"
        );
        let path = dependencies.critical_path_of("step").unwrap();
        let on_path = |name| path.row(PathKind::Kernel, name).unwrap().on_path;
        let names = ["first", "later", "second", "unneeded"];
        assert_eq!(names.map(on_path), [100, 0, 400, 0].map(|each| us(20 * each)), "{path}");
        let slack = |name| path.row(PathKind::Kernel, name).unwrap().slack;
        // From 305 and 506 to 519 us. The last wait never waited, so that its return takes no time.
        assert_eq!((slack("later"), slack("unneeded")), (Some(us(214)), Some(us(13))), "{path}");
        // What `first` becomes `second` gains.
        let change = WhatIf::Kernel { name: "first".to_owned(), times: 2.0 };
        assert_eq!(dependencies.predict(change).unwrap().saved(), us(50));
    }
}

/// An event that lies before all work of its stream delays nothing.
#[test]
fn recorded_events_without_work_before_them_delay_nothing() {
    let profile = steps(|p| {
        let nothing = p.record_event(20, true);
        p.kernel_through("cuLaunchKernel", 7, "other", 100 * US);
        p.wait_recorded(8, nothing);
        p.kernel_through("cuLaunchKernel", 8, "free", 150 * US);
        p.wait_for(None);
    })
    .profile();
    let dependencies = profile.dependencies();
    let expected = Assumptions { recorded_events: 20, ..Assumptions::default() };
    assert_eq!(*dependencies.assumptions(), expected);
    let path = dependencies.critical_path_of("step").unwrap();
    assert_eq!(path.row(PathKind::Kernel, "other").unwrap().on_path, us(0), "{path}");
}

/// 20 steps of two ranks, which compute for 300 and 700 us, reduce together for 50 us and wait for that.
fn two_ranks() -> Profile {
    let mut store = tables::Tables::default();
    let (step_ns, end_ns) = (1_000 * US, 21_000 * US);
    for rank in 0..2 {
        let mut writer = Writer::new(&mut store, rank, 0, (step_ns, end_ns));
        for number in 1..=20 {
            let start = number * step_ns;
            let at = |us: u64| start + us * US;
            let computed = if rank == 0 { 305 } else { 705 };
            writer.open.clear();
            writer.range("step", start, at(760));
            writer.open = vec![RangeId(writer.store.ranges.len() as u32 - 1)];
            writer.call_between("cuLaunchKernelEx", CallClass::KernelLaunch, at(1), at(3));
            writer.kernel_of_call("gemm", at(5), at(computed));
            writer.call_between("cuLaunchKernelEx", CallClass::KernelLaunch, at(3), at(5));
            let name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)";
            writer.kernel_of_call(name, at(computed), at(755));
            writer.collective(at(5) + 100, number, rank.into(), 2);
            writer.call_between("cuStreamSynchronize", CallClass::Synchronize, at(6), at(757));
            let mut record = cupti::Synchronization::default();
            record.kind = SynchronizationKind::Stream;
            (record.context, record.stream) = (1, Some(7));
            record.correlation_id = writer.store.calls.last().unwrap().correlation_id;
            let (call, process) = (Maybe::NONE, writer.process);
            let row = tables::Synchronization { record, call, process };
            writer.store.synchronizations.push(row);
        }
    }
    end_session(&mut store, (step_ns, end_ns));
    profile_of(store, recording_info())
}

/// The path of a step of the fast rank leads to the slow one, which determines its length.
#[test]
fn path_leads_through_collectives_to_the_last_rank() {
    let profile = two_ranks();
    let dependencies = profile.dependencies().with_steps("step").unwrap();
    let assumptions = dependencies.assumptions();
    assert_eq!((assumptions.collectives, assumptions.contradicted), (20, 0), "{assumptions}");
    assert_eq!(
        assumptions.to_string(),
        "all dependencies are recorded; 20 collectives of several ranks"
    );
    let path = dependencies.critical_path_of("step").unwrap();
    // Of both ranks.
    assert_eq!((path.instances, path.length), (40, us(40 * 760)));
    let row = |name: &str| path.rows().iter().find(|row| row.name.starts_with(name)).unwrap();
    assert_eq!(row("gemm").on_path, us(40 * 700), "{path}");
    assert_eq!(row("ncclDevKernel").on_path, us(40 * 50), "{path}");
    // The fast one may start 400 us later. It transfers for 50 us, and waits for 400. Each step counts what both ranks do.
    assert_eq!(row("gemm").slack, Some(us(400)), "{path}");
    assert_eq!(row("ncclDevKernel").total, us(80 * 50), "{path}");
    let segments = path.segments();
    let processes: Vec<u32> = segments
        .iter()
        .filter_map(|segment| {
            segment.operation(&profile).filter(|_| segment.kind() == PathKind::Kernel)
        })
        .map(|operation| operation.process_id())
        .collect();
    assert_eq!(processes.iter().filter(|id| **id == 101).count(), 60, "{processes:?}");
    let faster = |times| WhatIf::Kernel { name: "gemm".to_owned(), times };
    let prediction = dependencies.predict(faster(2.0)).unwrap();
    // A step of 760 us begins every millisecond.
    assert_eq!((prediction.before, prediction.saved()), (us(1_000), us(350)), "{prediction}");
    assert_eq!(dependencies.predict(faster(0.5)).unwrap().after, us(1_000 + 700));
    let nothing = dependencies.predict(WhatIf::RangeGpu { path: "none".to_owned(), times: 2.0 });
    assert_eq!(nothing, Err(NoPrediction::NothingMatches));
    // Ten of each rank, with the delays of its other ten.
    let error = dependencies.replay_error().unwrap();
    assert_eq!((error.steps, error.measured), (20, us(1_000)));
    assert!(error.largest < 1e-9, "{error}");
}

/// Two chains of a graph, with 1 us between nodes: `a` 24.5 us and `b`, beside `c` 10 us, an empty node, `d` 13 us and `e`. When `e` starts, `a`
/// ended last, and so it would be taken for what `e` waits for.
#[test]
fn graph_dependencies_give_the_predecessors_of_a_node() {
    let step = |p: &mut Program| {
        let half = US / 2;
        p.graph(
            7,
            &[
                ("a", 0, 24 * US + half),
                ("c", 0, 10 * US),
                ("d", 11 * US, 13 * US),
                ("e", 25 * US, 40 * US),
                ("b", 26 * US, 10 * US),
            ],
        );
        p.wait();
    };
    let faster = || WhatIf::Kernel { name: "c".to_owned(), times: 10.0 };
    let inferred = steps(step).profile();
    let inferred = inferred.dependencies();
    assert_eq!(
        (inferred.assumptions().inferred_in_graphs, inferred.predict(faster()).unwrap().saved()),
        (60, us(0))
    );
    // Of `b`, `d` through the empty node 9, and `e`; in either order of the pairs.
    let pairs = [(5, 1), (9, 2), (3, 9), (4, 3)];
    for is_reversed in [false, true] {
        let mut program = steps(step);
        let pairs = pairs.map(|(node, other)| match is_reversed {
            true => (other, node),
            false => (node, other),
        });
        program.dependencies_of_graph(&pairs);
        let profile = program.profile();
        let dependencies = profile.dependencies();
        let expected = Assumptions { recorded_in_graphs: 100, ..Assumptions::default() };
        assert_eq!(*dependencies.assumptions(), expected);
        let path = dependencies.critical_path_of("step").unwrap();
        let on_path = |name| path.row(PathKind::Kernel, name).unwrap().on_path;
        let each = [0, 0, 10, 13, 40];
        assert_eq!(
            ["a", "b", "c", "d", "e"].map(on_path),
            each.map(|each| us(20 * each)),
            "{path}"
        );
        assert_eq!(dependencies.predict(faster()).unwrap().saved(), us(9));
        // `b` ends at 36 us of 65, and `a` half a microsecond earlier than `b` needs.
        let slack = |name| path.row(PathKind::Kernel, name).unwrap().slack.unwrap();
        assert!(slack("b") >= us(29) && slack("a") >= us(29), "{path}");
    }
    // A graph that contains one node twice, and one without pairs that ran one after the other, are inferred.
    let mut program = steps(|p| {
        p.graph(7, &[("a", 0, 10 * US), ("b", 5 * US, 10 * US)]);
        p.wait();
    });
    program.dependencies_of_graph(&[(2, 1)]);
    let profile = program.profile();
    assert_eq!(profile.dependencies().assumptions().recorded_in_graphs, 0);
}

#[test]
fn assumptions_are_counted() {
    let profile = steps(streams_and_a_graph).profile();
    let assumptions = *profile.dependencies().assumptions();
    let expected =
        Assumptions { inferred_events: 20, inferred_in_graphs: 20, ..Assumptions::default() };
    assert_eq!(assumptions, expected);
    assert_eq!(
        assumptions.to_string(),
        "assumptions: 20 inferred in graphs, 20 inferred for events"
    );
    // A kernel that precedes its call by a millisecond is no consequence of it.
    let mut program = Program::new();
    program.host(2_000 * US);
    program.kernel(10 * US);
    program.wait();
    let time = Interval { start_ns: program.now - 1_500 * US, end_ns: program.now };
    let row = program.store.operations[0];
    program.store.operations[0] = tables::Operation::new(row.work, Some(time), row.correlation_id);
    let profile = program.profile();
    let assumptions = *profile.dependencies().assumptions();
    assert_eq!(assumptions.contradicted, 1, "{assumptions:?}");
}

/// What a change brings, beside the program with that change.
#[track_caller]
fn compare(before: impl FnMut(&mut Program), change: WhatIf, after: impl FnMut(&mut Program)) {
    let [before, after] = [steps(before).profile(), steps(after).profile()];
    let dependencies = before.dependencies();
    let measured = dependencies.critical_path_of("step").unwrap().length.as_secs_f64() / 20.0;
    let after = after.dependencies().with_steps("step").unwrap().clock_ns() as f64 / 1e9;
    let dependencies = before.dependencies().with_steps("step").unwrap();
    let prediction = dependencies.predict(change.clone()).unwrap();
    assert!((prediction.before.as_secs_f64() / measured - 1.0).abs() < 1e-9);
    let predicted = prediction.after.as_secs_f64();
    assert!((predicted / after - 1.0).abs() < 0.02, "{prediction}: measured {after}");
    assert!(after < 0.9 * measured, "the change does nothing");
    // So do the first steps of a large graph.
    let windows = dependencies.windows();
    let most_points = dependencies.graph.order.len() / 2;
    let (first, excerpt) = dependencies.first_steps(&windows, most_points);
    assert!(
        (LEAST_STEPS..windows.len()).contains(&first.len()) && excerpt.points.len() <= most_points
    );
    let of_first = dependencies.replayed_on(change, first, excerpt).after.as_secs_f64();
    assert!(
        (of_first / after - 1.0).abs() < 0.02,
        "{of_first} of the first steps, measured {after}"
    );
}

fn path() -> String {
    "step".to_owned()
}

#[test]
fn predictions_match_changed_programs() {
    let kernels = |times: u64, each: u64, waits: bool| {
        move |p: &mut Program| {
            for _ in 0..times {
                p.kernel(each);
                if waits {
                    p.wait();
                }
            }
            p.wait();
        }
    };
    let faster = WhatIf::Kernel { name: "work".to_owned(), times: 2.0 };
    compare(kernels(10, 40 * US, false), faster, kernels(10, 20 * US, false));
    let faster = WhatIf::RangeGpu { path: path(), times: 4.0 };
    compare(kernels(10, 40 * US, true), faster, kernels(10, 10 * US, true));
    compare(kernels(10, 60 * US, true), WhatIf::NoWait { path: path() }, |p| {
        (0..10).for_each(|_| p.kernel(60 * US));
    });
    let once = WhatIf::OneWait { path: path() };
    compare(kernels(10, 50 * US, true), once, kernels(10, 50 * US, false));
    let host = |each: u64| {
        move |p: &mut Program| {
            p.range("load", |p| p.host(each));
            p.kernel(100 * US);
            p.wait();
        }
    };
    let load = "load".to_owned();
    compare(host(90 * US), WhatIf::Host { path: load.clone(), times: 3.0 }, host(30 * US));
    // Four threads keep up, one does not.
    let ahead = |threads| WhatIf::Ahead { path: "load".to_owned(), threads };
    compare(host(300 * US), ahead(4), host(0));
    compare(host(300 * US), ahead(1), host(193 * US));
    let launches = kernels(40, US, false);
    let graph = |p: &mut Program| {
        let nodes: Vec<_> = (0..40).map(|n| ("work", n * 2 * US, US)).collect();
        p.graph(7, &nodes);
        p.wait();
    };
    compare(launches, WhatIf::OneGraph { path: path() }, graph);
    // Ten copies of 100 kB at 50 GB/s, beside one of all their bytes.
    let copies = |times: u64| {
        move |p: &mut Program| {
            for _ in 0..times {
                let bytes = 1_000_000 / times;
                p.launch(7, Job::In(bytes, false), bytes / 50);
            }
            p.kernel(60 * US);
            p.wait();
        }
    };
    compare(copies(10), WhatIf::OneCopy { path: path() }, copies(1));
    // A blocking copy of 4 MB at 10 GB/s, beside one at 50 GB/s that returns at once, and with the kernels hiding that.
    let loads = |is_pageable: bool, ns: u64| {
        move |p: &mut Program| {
            p.host(5 * US);
            p.launch(7, Job::In(4 << 20, is_pageable), ns);
            p.kernel(300 * US);
            p.wait();
        }
    };
    let pinned_ns = (4 << 20) / 50;
    compare(loads(true, (4 << 20) / 10), WhatIf::Pinned, loads(false, pinned_ns));
    let ahead = |p: &mut Program| {
        p.host(5 * US);
        p.launch(8, Job::In(4 << 20, false), pinned_ns);
        p.kernel(300 * US);
        p.wait_for(Some(7));
    };
    compare(loads(true, (4 << 20) / 10), WhatIf::CopiesAhead, ahead);
    let events = |waits: bool| {
        move |p: &mut Program| {
            for stream in 10..14 {
                if waits && stream != 10 {
                    p.wait_event(stream, stream - 1);
                }
                p.kernel_through("cuLaunchKernel", stream, "work", 400 * US);
            }
            p.wait();
        }
    };
    compare(events(true), WhatIf::NoEvents { path: path() }, events(false));
    // The driver waits for the kernel before it frees.
    let memory = |is_own: bool| {
        move |p: &mut Program| {
            if is_own {
                p.call("cuMemAlloc_v2", CallClass::Alloc, p.now + 50 * US);
            }
            p.kernel(300 * US);
            if is_own {
                p.call("cuMemFree_v2", CallClass::Free, p.streams[&7] + 20 * US);
            }
            p.host(200 * US);
            p.kernel(100 * US);
            p.wait();
        }
    };
    compare(memory(true), WhatIf::NoAllocations { path: path() }, memory(false));
}

#[test]
fn best_change_is_first_and_error_is_known() {
    let profile = steps(|p| {
        p.range("load", |p| p.host(300 * US));
        p.kernel(100 * US);
        p.wait();
    })
    .profile();
    let outlook = profile.dependencies().outlook();
    let first = &outlook.changes[0];
    assert_eq!(first.change, WhatIf::Ahead { path: "step/load".to_owned(), threads: 4 });
    assert!(outlook.changes.is_sorted_by(|a, b| a.saved() >= b.saved()));
    let replay = outlook.replay.unwrap();
    assert_eq!((replay.steps, replay.unusual, replay.measured), (10, 0, us(407)));
    assert!(replay.largest < 1e-9, "{replay}");
    assert!(replay.without_edges > 0.2, "{replay}");
    let text = outlook.to_string();
    assert!(text.contains("1. host's part of step/load ahead on 4 threads: "), "{text}");
    let json = serde_json::to_value(&outlook).unwrap();
    assert_eq!(json["path"]["length_ns"], 20 * 407 * US);
    assert_eq!(json["changes"][0]["change"]["kind"], "ahead");
}

/// Delays with a long tail, in odd steps as in even ones: their mean is no median, but the median step is known.
#[test]
fn median_step_is_known_where_single_steps_vary() {
    let mut number = 0_usize;
    let profile = steps(|p| {
        p.host([0, 0, 5, 10, 40][number / 2 % 5] * US);
        p.kernel(200 * US);
        p.wait();
        number += 1;
    })
    .profile();
    let error = profile.dependencies().replay_error().unwrap();
    assert_eq!((error.steps, error.unusual), (10, 0), "{error}");
    assert!(error.median_step < 1e-9 && error.halves < 1e-9, "{error}");
    assert!(error.median > 0.02 && error.spread > 0.02, "{error}");
}

#[test]
fn replay_without_a_change_is_the_recording() {
    let count = if std::env::var_os("THOROUGH_TESTS").is_some() { 300 } else { 60 };
    for (seed, _, profile) in programs(count) {
        let dependencies = profile.dependencies();
        let nothing = WhatIf::RangeGpu { path: "no such range".to_owned(), times: 2.0 };
        let replayed = |change| {
            let (windows, all) = (dependencies.windows(), dependencies.whole_excerpt());
            dependencies.replayed_on(change, &windows, all)
        };
        let prediction = replayed(nothing);
        assert_eq!(prediction.before, prediction.after, "seed {seed}");
        let slower = WhatIf::RangeGpu { path: "*".to_owned(), times: 0.5 };
        assert!(replayed(slower).after >= prediction.before, "seed {seed}");
        let ranges = dependencies.critical_path_of("*");
        for path in [Some(dependencies.critical_path()), ranges].into_iter().flatten() {
            let on_path: Duration = path.segments().iter().map(|of| of.span().duration()).sum();
            assert_eq!(on_path + path.unexplained, path.length, "seed {seed}\n{path}");
            let rows: Duration = path.rows().iter().map(|row| row.on_path).sum();
            let ranges: Duration = path.ranges().iter().map(|row| row.on_path).sum();
            assert_eq!([rows, ranges], [on_path; 2], "seed {seed}");
            if path.instances == 1 {
                let meets = |of: &[Segment]| of[0].span().end == of[1].span().start;
                assert!(path.segments().windows(2).all(meets), "seed {seed}");
            }
            assert!(path.rows().iter().all(|row| row.on_path <= row.total.max(path.length)));
        }
        let _ = dependencies.outlook().to_string();
    }
}

/// Random steps without the 60 us that the host takes at a random place: what the simulation does,
/// beside what the graph of the recording with them predicts.
#[test]
fn predictions_match_changed_random_programs() {
    let mut rng = fastrand::Rng::with_seed(25);
    let (mut near, mut hidden, mut partly, mut all) = (0, 0, 0, 0);
    for _ in 0..400 {
        let jobs: Vec<(u32, u32, u64)> = (0..rng.usize(4..12))
            .map(|_| (rng.u32(0..8), rng.u32(1..4), rng.u64(1..60) * US))
            .collect();
        let place = rng.usize(0..jobs.len());
        let program = |at_place: u64| {
            let program = steps(|p| {
                for (at, (job, stream, ns)) in jobs.iter().enumerate() {
                    if at == place {
                        p.range("place", |p| p.host(at_place));
                    }
                    match job {
                        0 => p.host(*ns),
                        1 => p.wait_for(Some(*stream)),
                        2 => p.wait(),
                        3 => p.launch(*stream, Job::In(1 << 20, true), *ns),
                        4 => p.wait_event(*stream, *stream % 3 + 1),
                        // Long enough to hide the time.
                        _ => p.kernel_through("cuLaunchKernel", *stream, "work", 3 * *ns),
                    }
                }
                p.wait();
            });
            program.profile()
        };
        let [before, after] = [program(60 * US), program(0)];
        let after = after.dependencies().with_steps("step").unwrap().clock_ns() as f64;
        let dependencies = before.dependencies().with_steps("step").unwrap();
        let change = WhatIf::Host { path: "step/place".to_owned(), times: f64::INFINITY };
        let prediction = dependencies.predict(change).unwrap();
        // Shares of the 60 us.
        let share = |after: f64| (prediction.before.as_nanos() as f64 - after) / (60 * US) as f64;
        let (measured, predicted) = (share(after), share(prediction.after.as_nanos() as f64));
        all += 1;
        hidden += u32::from(measured < 0.1);
        partly += u32::from((0.1..0.9).contains(&measured));
        match (measured - predicted).abs() < 0.1 {
            true => near += 1,
            false => println!("{measured} measured, {predicted} predicted: {jobs:?} at {place}"),
        }
    }
    println!("{near} of {all} within 0.1; {hidden} hidden, {partly} in part");
    assert!(near * 100 >= all * 95, "{near} of {all}");
    assert!(hidden > 50 && partly > 20, "{hidden} hidden, {partly} in part");
}

/// With few steps, the error of single steps is part of the model's.
#[test]
fn confidence_follows_the_error_of_the_model() {
    let outlook = steps(|p| {
        p.kernel(100 * US);
        p.wait();
    })
    .profile()
    .dependencies()
    .outlook();
    assert_eq!(outlook.confidence, ModelConfidence::High);
    assert!(outlook.to_string().contains("\nconfidence in predictions: high\n"), "{outlook}");
    assert_eq!(serde_json::to_value(&outlook).unwrap()["confidence"], "high");
    let exact = outlook.replay.unwrap();
    for (median_step, median, expected) in [
        (0.02, 0.0, ModelConfidence::High),
        (0.021, 0.0, ModelConfidence::Medium),
        (0.1, 0.0, ModelConfidence::Medium),
        (0.11, 0.0, ModelConfidence::Low),
        // Of ten steps.
        (0.0, 0.06, ModelConfidence::High),
        (0.0, 0.07, ModelConfidence::Medium),
        (0.0, 0.4, ModelConfidence::Low),
    ] {
        let replay = ReplayError { median_step, median, ..exact };
        assert_eq!(ModelConfidence::new(Some(&replay)), expected, "{median_step} {median}");
    }
    assert_eq!(ModelConfidence::new(None), ModelConfidence::Unknown);
}

#[test]
fn empty_profile_has_an_empty_path() {
    let profile = Program::new().profile();
    let dependencies = profile.dependencies();
    let path = dependencies.critical_path();
    assert_eq!((path.length, path.segments().len()), (Duration::ZERO, 0));
    assert!(dependencies.critical_path_of("step").is_none());
    assert!(dependencies.replay_error().is_none());
    assert!(dependencies.best_changes(10).is_empty());
    assert_eq!(nanoseconds(dependencies.outlook().clock), 0);
}

/// 20 steps of a host that runs two steps ahead: forward, backward and optimizer of 10, 20 and 8 ms on the GPU, of which the loss of the
/// step before the last is waited for.
fn host_ahead() -> Profile {
    let mut program = Program::new();
    let mut losses = Vec::new();
    for number in 0..20 {
        program.range("forward", |p| {
            p.host(2_000 * US);
            p.launch(7, Job::Kernel("first", 4_000), 6_000 * US);
            p.launch(7, Job::Kernel("gemm", 4_000), 4_000 * US);
        });
        program.host(3_000 * US);
        program.launch(7, Job::Kernel("backward", 4_000), 20_000 * US);
        program.launch(7, Job::Kernel("optimizer", 4_000), 8_000 * US);
        losses.push(program.record_event(7, true));
        if number >= 2 {
            program.synchronize_recorded(losses[number - 2]);
        }
    }
    program.wait();
    program.profile()
}

#[test]
fn each_operation_is_in_one_step_of_a_host_that_runs_ahead() {
    let profile = host_ahead();
    let dependencies = profile.dependencies();
    assert_eq!(dependencies.steps_path().as_deref(), Some("forward"));
    let path = dependencies.outlook().path;
    let row = |name| path.row(PathKind::Kernel, name).unwrap();
    // The steps end with the last forward.
    for (name, count) in [("first", 20), ("gemm", 20), ("backward", 19), ("optimizer", 19)] {
        assert_eq!((row(name).all_parts, row(name).parts), (count, count), "{name}\n{path}");
    }
    let all: Duration = path.segments().iter().map(|of| of.span().duration()).sum();
    assert_eq!(all + path.unexplained, path.length, "{path}");
    let first = profile.range("forward").unwrap();
    assert_eq!(first.instances(), 20);
    let steps = dependencies.windows();
    assert!(steps.windows(2).all(|of| of[0].end == of[1].start), "{steps:?}");
    assert_eq!(dependencies.clock_ns(), 38_000 * US);
    // Instances of the range alone do not overlap either.
    let path = dependencies.critical_path_of("forward").unwrap();
    assert_eq!(path.row(PathKind::Kernel, "gemm").unwrap().all_parts, 20, "{path}");
}

#[test]
fn kernels_save_at_most_the_time_that_they_take_less() {
    let profile = host_ahead();
    let dependencies = profile.dependencies();
    for (name, each) in [("gemm", 4_000), ("backward", 20_000)] {
        let faster = WhatIf::Kernel { name: name.to_owned(), times: 2.0 };
        let prediction = dependencies.predict(faster).unwrap();
        assert_eq!((prediction.before, prediction.saved()), (us(38_000), us(each / 2)));
    }
}

/// Odd steps compute on the host for 10 us, even ones for 300: no delay of one kind of step is that of the other.
#[test]
fn model_that_fails_its_check_makes_no_prediction() {
    let mut number = 0;
    let profile = steps(|p| {
        number += 1;
        p.range("load", |p| p.host(if number % 2 == 0 { 300 * US } else { 10 * US }));
        p.launch(7, Job::Kernel("work", 4_000), 300 * US);
        p.wait();
        p.host(if number % 2 == 0 { 10 * US } else { 120 * US });
    })
    .profile();
    let dependencies = profile.dependencies();
    let error = dependencies.replay_error().unwrap();
    assert!(error.median_step > 0.1, "{error}");
    let outlook = dependencies.outlook();
    assert!(outlook.changes.is_empty() && dependencies.best_changes(10).is_empty());
    let why = NoPrediction::ModelError { median_step: error.median_step, most: 0.1 };
    assert_eq!(outlook.no_prediction, Some(why));
    let faster = WhatIf::Kernel { name: "work".to_owned(), times: 2.0 };
    assert_eq!(dependencies.predict(faster), Err(why));
    for text in [outlook.to_string(), profile.diagnose().to_string()] {
        assert!(
            text.contains("\nno changes are predicted: the replay's median step is off by "),
            "{text}"
        );
        assert!(!text.contains("times as fast") && !text.contains("ahead on"), "{text}");
    }
    let json = serde_json::to_value(&outlook).unwrap();
    assert_eq!(json["no_prediction"]["why"], "model_error");
}

#[test]
fn changes_without_a_match_have_no_prediction() {
    let profile = steps(streams_and_a_graph).profile();
    let dependencies = profile.dependencies();
    let kernel = |name: &str| WhatIf::Kernel { name: name.to_owned(), times: 2.0 };
    assert!(dependencies.predict(kernel("fir*")).is_ok());
    for change in [
        kernel("foo"),
        WhatIf::OneWait { path: "nowhere".to_owned() },
        WhatIf::Host { path: "nowhere".to_owned(), times: 2.0 },
        WhatIf::Pinned,
    ] {
        assert_eq!(dependencies.predict(change), Err(NoPrediction::NothingMatches));
    }
    // Matched, and without anything to alter.
    let unaltered = [
        WhatIf::NoAllocations { path: "step".to_owned() },
        WhatIf::OneCopy { path: "step".to_owned() },
        WhatIf::Kernel { name: "fir*".to_owned(), times: 1.0 },
    ];
    for change in unaltered {
        assert_eq!(dependencies.predict(change), Err(NoPrediction::NothingToChange));
    }
}

#[test]
fn numbers_of_times_have_bounds_and_slower_is_more() {
    let profile = steps(streams_and_a_graph).profile();
    let dependencies = profile.dependencies();
    let kernel =
        |times: f64| dependencies.predict(WhatIf::Kernel { name: "fir*".to_owned(), times });
    for wrong in [0.0, -1.0, 1e-300, 0.009, 1.1e6, 1e308, f64::NAN, f64::NEG_INFINITY] {
        assert_eq!(kernel(wrong), Err(NoPrediction::Times), "{wrong}");
    }
    let slower = kernel(0.01).unwrap();
    assert!(slower.after > slower.before);
    let text = slower.to_string();
    assert!(text.contains(" more (") && !text.contains("faster"), "{text}");
    for faster in [2.0, 1e6, f64::INFINITY] {
        let text = kernel(faster).unwrap().to_string();
        assert!(text.contains(" less (") && text.ends_with("x faster"), "{text}");
    }
}

#[test]
fn changes_of_kernels_with_long_names_are_distinct() {
    let long =
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::";
    let names: Vec<&'static str> = ["add", "mul"]
        .map(|name| &*format!("{long}{name}>(at::TensorIteratorBase&)::{long}>(int, int)").leak())
        .to_vec();
    let profile = steps(|p| {
        for name in &names {
            p.launch(7, Job::Kernel(name, 4_000), 500 * US);
        }
        p.wait();
    })
    .profile();
    let outlook = profile.dependencies().outlook();
    let lines = |text: String| -> Vec<String> {
        let lines = text.lines().filter(|line| line.contains("2 times as fast"));
        lines.map(|line| line[4..].to_owned()).collect()
    };
    let short = lines(outlook.to_string());
    assert!(short.len() == 2 && short[0] != short[1], "{short:?}");
    // Lines without limit, as in pipes, have the whole names.
    let whole = lines(outlook.width(65535).to_string());
    assert!(names.iter().all(|name| whole.iter().any(|line| line.contains(name))), "{whole:?}");
    let diagnosis = lines(profile.diagnose().width(65535).to_string());
    assert_eq!(whole, diagnosis);
}

/// So many processes, each with the same six steps at the same times.
fn processes_with_equal_times(processes: u32) -> Program {
    let mut program = Program::new();
    for process in 0..processes {
        if process != 0 {
            program.process(process);
        }
        program.streams.clear();
        for step in 0..6 {
            program.range("step", |p| {
                p.host(10 * US + step % 2);
                p.kernel(50 * US);
                p.wait();
            });
        }
    }
    program
}

#[test]
fn replays_visit_few_points_of_many_processes_with_equal_times() {
    let visits = |processes: u32| -> usize {
        let profile = processes_with_equal_times(processes).profile();
        let dependencies = profile.dependencies();
        let windows = dependencies.windows();
        assert_eq!(windows.len(), 6 * processes as usize);
        assert!(dependencies.replay_error().is_some());
        windows.iter().map(|window| dependencies.points_of(window).len()).sum()
    };
    let points = |processes: u32| {
        processes_with_equal_times(processes).profile().dependencies().graph.order.len()
    };
    for processes in [20, 40, 80] {
        // The points where one step ends and the next begins are in both.
        assert!(visits(processes) < 2 * points(processes), "{processes} processes");
    }
}

#[test]
fn many_processes_have_the_path_and_steps_of_one() {
    let outlook =
        |processes| processes_with_equal_times(processes).profile().dependencies().outlook();
    let (one, many) = (outlook(1), outlook(graph::MOST_TOGETHER as u32 + 4));
    let times = |outlook: &Outlook| {
        let replay = outlook.replay.unwrap();
        (outlook.clock, replay.measured, replay.median_step, replay.without_edges)
    };
    assert_eq!(times(&one), times(&many));
    let processes = graph::MOST_TOGETHER as u32 + 4;
    assert_eq!(many.path.length, one.path.length * processes);
    for (one, many) in one.path.rows().iter().zip(many.path.rows()) {
        let of_one = (one.on_path * processes, one.total * processes, one.slack);
        assert_eq!((many.on_path, many.total, many.slack), of_one, "{}", one.name);
    }
}
