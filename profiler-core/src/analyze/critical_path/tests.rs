//! Critical paths of programs whose path is known to the nanosecond, and properties of random ones.

use std::time::Duration;

use cupti::CallClass;

use super::*;
use crate::analyze::diagnosis::tests::{Job, Program, US, steps};
use crate::base::units::nanoseconds;
use crate::join::tables::{self, Interval, KernelNames, What, Work};
use crate::query::tests::programs;

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

    /// A stream waits for all work of another so far; the call takes 1 us.
    fn wait_event(&mut self, stream: u32, other: u32) {
        let mut record = cupti::Synchronization::default();
        record.kind = cupti::SynchronizationKind::StreamWaitEvent;
        (record.context, record.stream, record.event) = (1, Some(stream), Some(1));
        record.correlation_id = self.next_id;
        self.call("cuStreamWaitEvent", CallClass::WaitEvent, self.now + US);
        let row = tables::Synchronization { record, call: None, process: 0 };
        self.store.synchronizations.push(row);
        let end = self.streams.get(&other).copied().unwrap_or(0);
        let own = self.streams.entry(stream).or_default();
        *own = end.max(*own);
    }

    /// A launch of a graph: kernels by their start after the first and their length.
    fn graph(&mut self, stream: u32, nodes: &[(&'static str, u64, u64)]) {
        let free = self.streams.get(&stream).copied().unwrap_or(0);
        let begin = (self.now + 5 * US).max(free);
        let correlation_id = self.next_id;
        self.call("cuGraphLaunch", CallClass::GraphLaunch, self.now + 6 * US);
        for (name, start, ns) in nodes {
            let mut details = cupti::Kernel::default();
            (details.place.context, details.place.stream) = (1, stream);
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
fn compare(before: impl FnMut(&mut Program), change: Change, after: impl FnMut(&mut Program)) {
    let [before, after] = [steps(before).profile(), steps(after).profile()];
    let [measured, after] = [&before, &after].map(|profile| {
        let dependencies = profile.dependencies().with_steps("step").unwrap();
        dependencies.critical_path_of("step").unwrap().length.as_secs_f64() / 20.0
    });
    let prediction = before.dependencies().with_steps("step").unwrap().predict(change);
    assert!((prediction.before.as_secs_f64() / measured - 1.0).abs() < 1e-9);
    let predicted = prediction.after.as_secs_f64();
    assert!((predicted / after - 1.0).abs() < 0.02, "{prediction}: measured {after}");
    assert!(after < 0.9 * measured, "the change does nothing");
}

fn path() -> String {
    "step".to_owned()
}

#[test]
fn predictions_are_what_changed_programs_take() {
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
    let faster = Change::Kernel { name: "work".to_owned(), times: 2.0 };
    compare(kernels(10, 40 * US, false), faster, kernels(10, 20 * US, false));
    let faster = Change::RangeGpu { path: path(), times: 4.0 };
    compare(kernels(10, 40 * US, true), faster, kernels(10, 10 * US, true));
    let once = Change::OneWait { path: path() };
    compare(kernels(10, 50 * US, true), once, kernels(10, 50 * US, false));
    let host = |each: u64| {
        move |p: &mut Program| {
            p.range("load", |p| p.host(each));
            p.kernel(100 * US);
            p.wait();
        }
    };
    let load = "load".to_owned();
    compare(host(90 * US), Change::Host { path: load.clone(), times: 3.0 }, host(30 * US));
    // Four threads keep up, one does not.
    let ahead = |threads| Change::Ahead { path: "load".to_owned(), threads };
    compare(host(300 * US), ahead(4), host(0));
    compare(host(300 * US), ahead(1), host(193 * US));
    let launches = kernels(40, US, false);
    let graph = |p: &mut Program| {
        let nodes: Vec<_> = (0..40).map(|n| ("work", n * 2 * US, US)).collect();
        p.graph(7, &nodes);
        p.wait();
    };
    compare(launches, Change::OneGraph { path: path() }, graph);
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
    compare(events(true), Change::NoEvents { path: path() }, events(false));
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
    assert_eq!(first.change, Change::Ahead { path: "step/load".to_owned(), threads: 4 });
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

#[test]
fn replay_without_a_change_is_the_recording() {
    for (seed, _, profile) in programs(300) {
        let dependencies = profile.dependencies();
        let nothing = Change::RangeGpu { path: "no such range".to_owned(), times: 2.0 };
        let prediction = dependencies.predict(nothing);
        assert_eq!(prediction.before, prediction.after, "seed {seed}");
        let slower = Change::RangeGpu { path: "*".to_owned(), times: 0.5 };
        assert!(dependencies.predict(slower).after >= prediction.before, "seed {seed}");
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
