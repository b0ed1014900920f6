//! A session while it runs: pauses, and snapshots beside the threads that work. Each is whole up to its time, and the
//! final profile is what it would have been.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use cupti::Config;
use cupti::sys::abi::CuptiResult;
use fake_cupti::{Fake, When, Work};
use nvtx::{FieldValue, range};
use profiler_core::{Context, Health, Profile, Profiler, Recording, at_most, expect};
use test_support::effort::rounds;

fn profiler(fake: &Fake) -> Profiler {
    Profiler::builder().library(fake.library().unwrap()).build().unwrap()
}

fn started(fake: &Fake) -> Profiler {
    let profiler = profiler(fake);
    profiler.start().unwrap();
    profiler
}

fn step(fake: &Fake) {
    let _step = range("step");
    fake.launch(Work::host_to_device(1000));
    fake.launch(Work::kernel(c"gemm"));
    fake.launch(Work::synchronize());
}

#[test]
fn work_in_a_pause_is_not_collected_and_not_missed() {
    let fake = Fake::new();
    let profiler = started(&fake);
    let outer = range("outer");
    step(&fake);
    assert!(!profiler.is_paused());
    for _ in 0..2 {
        profiler.pause().unwrap();
        assert!(profiler.is_paused() && profiler.is_running());
    }
    step(&fake);
    {
        let _paused = range("begun in the pause");
        step(&fake);
        for _ in 0..2 {
            profiler.resume().unwrap();
            assert!(!profiler.is_paused());
        }
        step(&fake);
    }
    drop(outer);
    let profile = profiler.stop().unwrap();
    assert!(!profiler.is_paused());
    profile.health().assert_complete();
    assert_eq!(profile.health().facts.calls_outside, 0);
    let outer = profile.range("outer").unwrap();
    assert_eq!((outer.kernels(), outer.copies(), outer.synchronizations()), (2, 2, 2));
    assert_eq!(profile.range("step").unwrap().instances(), 4, "ranges go on");
    assert_eq!(profile.range("begun in the pause/step").unwrap().kernels(), 1);
    assert_eq!(profile.recording().unwrap().windows_ns().len(), 2);
}

#[test]
fn a_session_may_begin_in_a_pause_and_end_in_one() {
    let fake = Fake::new();
    let profiler = Profiler::builder()
        .library(fake.library().unwrap())
        .config(Config::new().start_paused(true))
        .build()
        .unwrap();
    profiler.start().unwrap();
    assert!(profiler.is_paused());
    step(&fake);
    profiler.resume().unwrap();
    step(&fake);
    profiler.pause().unwrap();
    step(&fake);
    let snapshot = profiler.snapshot().unwrap();
    let profile = profiler.stop().unwrap();
    for profile in [&snapshot, &profile] {
        profile.health().assert_complete();
        assert_eq!((profile.totals().kernels, profile.range("step").unwrap().instances()), (1, 3));
        assert_eq!(profile.health().facts.pending_calls, 0);
    }
}

#[test]
fn failed_pause_or_resume_is_an_error() {
    let fake = Fake::new();
    let profiler = started(&fake);
    step(&fake);
    fake.fail("cuptiActivityFlushAll", CuptiResult::UNKNOWN, When::Once);
    let error = profiler.pause().unwrap_err();
    assert!(error.to_string().contains("cuptiActivityFlushAll"), "{error}");
    assert!(profiler.is_paused(), "all the same");
    fake.fail("cuptiActivityEnable", CuptiResult::UNKNOWN, When::Once);
    assert!(profiler.resume().is_err() && profiler.is_paused());
    profiler.resume().unwrap();
    step(&fake);
    let profile = profiler.stop().unwrap();
    profile.health().assert_complete();
    assert_eq!(profile.totals().kernels, 2);
}

#[test]
fn ended_session_cannot_be_paused_or_read() {
    let fake = Fake::new();
    let profiler = profiler(&fake);
    let check = || {
        let errors = [
            profiler.pause().unwrap_err(),
            profiler.resume().unwrap_err(),
            profiler.snapshot().unwrap_err(),
            profiler.snapshot_recording().unwrap_err(),
        ];
        assert!(errors.iter().all(|error| error.is_not_running()), "{errors:?}");
        assert!(!profiler.is_paused() && !profiler.is_running());
    };
    check();
    profiler.record(|| step(&fake)).unwrap();
    check();
}

#[test]
fn a_snapshot_has_all_so_far_and_ranges_that_are_open_count_until_then() {
    let fake = Fake::new();
    let profiler = started(&fake);
    let outer = range("outer");
    let whole = nvtx::process_range("whole");
    step(&fake);
    thread::sleep(Duration::from_millis(2));
    let snapshot = profiler.snapshot().unwrap();
    step(&fake);
    drop((whole, outer));
    let profile = profiler.stop().unwrap();

    let health = snapshot.health();
    health.assert_complete();
    assert_eq!(
        (health.facts.pending_ranges, health.facts.open_ranges, health.facts.pending_calls),
        (2, 0, 0)
    );
    assert!(snapshot.recording().unwrap().is_snapshot());
    assert_eq!(snapshot.range("outer/step").unwrap().kernels(), 1);
    let open = snapshot.ranges().next().unwrap();
    assert!(open.is_open() && open.host_time() >= Duration::from_millis(2));
    assert_eq!(open.start() + open.host_time(), snapshot.duration());
    assert!(snapshot.process_ranges().next().unwrap().is_open());
    assert!(!snapshot.ranges().nth(1).unwrap().is_open());
    assert!(snapshot.to_string().contains("2 ranges open at the snapshot"), "{snapshot}");

    profile.health().assert_complete();
    assert_eq!(
        (profile.health().facts.pending_ranges, profile.recording().unwrap().is_snapshot()),
        (0, false)
    );
    assert_eq!(profile.range("outer/step").unwrap().kernels(), 2);
    let ended = profile.ranges().next().unwrap();
    assert!(
        !ended.is_open() && ended.start() == open.start() && ended.host_time() > open.host_time()
    );
}

#[test]
fn a_call_whose_record_may_still_come_is_pending_and_not_lost() {
    let fake = Fake::new();
    let profiler = started(&fake);
    step(&fake);
    fake.hold_buffers(true); // the GPU is at it
    {
        let _late = range("late");
        fake.launch(Work::kernel(c"long"));
        let _graph = range("graph");
        fake.launch_graph(&[Work::kernel(c"node"), Work::memset(4)]);
    }
    let recording = profiler.snapshot_recording().unwrap();
    let replayed = Recording::from_bytes(&recording.to_bytes()).unwrap();
    assert_eq!(replayed, recording, "a file keeps that it is a snapshot");
    let snapshot = Profile::from_recording(replayed);
    let health = snapshot.health();
    // The records of the step are in the same buffer, but for its synchronisation, which is made from its call.
    assert_eq!((health.records, health.facts.pending_calls), (1, 4));
    health.assert_complete();
    assert_eq!((health.accounts.kernels.calls, health.facts.silent_graph_launches), (0, 0));
    assert!(snapshot.to_string().contains("4 calls pending at the snapshot"), "{snapshot}");
    let late = snapshot.range("late").unwrap();
    assert_eq!((late.launches(), late.kernels()), (2, 0));
    // What may still come is not known to be within a budget.
    let unknown = expect(&snapshot).range("step").kernels(at_most(5)).check().unwrap_err();
    assert!(unknown.to_string().contains("4 calls were pending at the snapshot"), "{unknown}");
    expect(&snapshot).range("late").launches(at_most(2)).assert();

    fake.hold_buffers(false);
    let snapshot = profiler.snapshot().unwrap();
    snapshot.health().assert_complete();
    assert_eq!((snapshot.health().facts.pending_calls, snapshot.totals().kernels), (0, 3));
    expect(&snapshot).complete().range("late").kernels(at_most(2)).assert();
    profiler.stop().unwrap().health().assert_complete();
}

#[test]
fn a_record_that_will_not_come_is_lost_in_a_snapshot_too() {
    let fake = Fake::new();
    let profiler = started(&fake);
    fake.call_only("cuLaunchKernel", 0);
    fake.call_only("cuGraphLaunch", 0);
    fake.call_only("cuLaunchKernel", 700);
    let snapshot = profiler.snapshot().unwrap();
    let health = snapshot.health();
    assert!(!health.is_complete());
    assert_eq!((health.accounts.kernels.calls, health.accounts.kernels.matched_calls), (1, 0));
    assert_eq!((health.facts.pending_calls, health.facts.failed_calls), (0, 1));
    assert_eq!(health.facts.silent_graph_launches, 1);
    assert_eq!(facts(snapshot.health()), facts(profiler.stop().unwrap().health()));
}

#[test]
fn a_call_under_way_is_pending() {
    let fake = Fake::new();
    let profiler = started(&fake);
    let mut snapshot = None;
    fake.launch_around(&Work::kernel(c"k"), || snapshot = Some(profiler.snapshot().unwrap()));
    let snapshot = snapshot.unwrap();
    snapshot.health().assert_complete();
    assert_eq!(
        (snapshot.health().facts.pending_calls, snapshot.health().losses.open_calls),
        (1, 0)
    );
    assert_eq!(snapshot.totals().kernels, 1, "its record came before it returned");
    assert!(snapshot.calls().next().unwrap().host_time().is_none());
    profiler.stop().unwrap().health().assert_complete();
}

#[test]
fn snapshot_has_the_nodes_of_a_replayed_graph() {
    let fake = Fake::new();
    let profiler = started(&fake);
    let mut graph = fake.graph();
    {
        let _capture = range("capture");
        fake.capture_into(&mut graph, &Work::kernel(c"node"));
    }
    let exec = fake.instantiate(&graph);
    let _replay = range("replay");
    for replays in 1..4 {
        fake.launch_exec(&exec);
        let snapshot = profiler.snapshot().unwrap();
        snapshot.health().assert_complete();
        assert_eq!(snapshot.range("replay").unwrap().kernels(), replays);
        assert_eq!(snapshot.range("capture").unwrap().replayed().kernels, replays);
    }
}

/// Counts that do not depend on when CUPTI gave its buffers.
fn facts(health: &Health) -> Health {
    let mut health = health.clone();
    (health.facts.buffers, health.facts.pool_misses, health.facts.overhead) =
        (0, 0, Duration::ZERO);
    (health.facts.before_their_call, health.facts.clock_error) = (0, Duration::ZERO);
    health
}

const THREADS: usize = 8;
const STEPS: usize = 150;

/// Threads that launch and wait in ranges with fields, hand ranges on to each other, and end each other's ranges of the
/// process.
fn work(fake: &Fake) {
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..THREADS).map(|_| mpsc::channel::<(Context, nvtx::ProcessRange)>()).unzip();
    thread::scope(|scope| {
        for (i, receiver) in receivers.into_iter().enumerate() {
            let next = senders[(i + 1) % THREADS].clone();
            scope.spawn(move || {
                for step in 0..STEPS {
                    let _outer = range("outer");
                    let job = nvtx::process_range("job");
                    // Also a name that is new to the thread.
                    let name = format!("inner {}", step % 20);
                    let _inner = DOMAIN
                        .event(&name)
                        .payload(step as u64)
                        .field("step", step as u64, "")
                        .range();
                    fake.launch(Work::kernel(c"gemm").on_stream(i as u32));
                    fake.launch(Work::host_to_device(64).on_stream(i as u32));
                    DOMAIN.event("launched").field("step", step as u64, "").mark();
                    next.send((Context::capture(), job)).unwrap();
                    fake.launch(Work::synchronize());
                    let (context, job) = receiver.recv().unwrap();
                    let _attached = context.attach();
                    let _handed = range("handed");
                    fake.launch(Work::kernel(c"handed"));
                    drop(job);
                }
            });
        }
    });
}

static DOMAIN: nvtx::Domain = nvtx::Domain::new("live");

/// Nothing in it refers to what is not in it.
fn check(profile: &Profile) {
    let health = profile.health();
    health.assert_complete();
    for account in
        [&health.accounts.kernels, &health.accounts.copies, &health.accounts.synchronizations]
    {
        assert!(account.records >= account.calls && account.is_balanced(), "{health}");
    }
    let totals = profile.totals();
    assert!(totals.kernels <= totals.launches, "{} of {}", totals.kernels, totals.launches);
    assert_eq!(profile.outside_ranges().gpu_operations(), 0);
    for kernel in profile.kernels() {
        let parent = kernel.range().unwrap().parent().unwrap();
        assert!(kernel.call().is_some() && parent.start() <= kernel.call().unwrap().start());
    }
    for range in profile.ranges() {
        let parent = range.parent().map(|parent| parent.name().to_owned());
        let step = range.field("step");
        match range.name() {
            "outer" => assert_eq!((parent, step), (None, None)),
            "handed" => assert!(parent.unwrap().starts_with("inner ")),
            inner => {
                let Some(FieldValue::U64(step)) = step else { panic!("{inner} without its field") };
                assert_eq!(inner, format!("inner {}", step % 20));
                assert_eq!(parent.as_deref(), Some("outer"));
            }
        }
        assert!(range.start() + range.host_time() <= profile.duration());
    }
    for mark in profile.marks() {
        assert!(mark.field("step").is_some() && mark.range().is_some());
    }
    for job in profile.process_ranges() {
        assert_eq!(job.parent().map(|range| range.name()), Some("outer"));
    }
}

/// Runs [`work`] with this many threads that take snapshots; gives how many they took, and the final profile.
fn run(fake: &Fake, takers: usize) -> (usize, Profile) {
    let profiler = Profiler::builder()
        .library(fake.library().unwrap())
        .config(Config::new().buffer_bytes(64 << 10)) // so that buffers come back on their own
        .build()
        .unwrap();
    profiler.start().unwrap();
    let done = AtomicBool::new(false);
    let taken = thread::scope(|scope| {
        let takers: Vec<_> = (0..takers)
            .map(|_| {
                scope.spawn(|| {
                    let (mut taken, mut last) = (0, (0, 0, 0));
                    while !done.load(Ordering::Relaxed) {
                        let snapshot = profiler.snapshot().unwrap();
                        check(&snapshot);
                        let seen = snapshot.ranges().count() as u64;
                        let now = (snapshot.totals().kernels, snapshot.totals().launches, seen);
                        assert!(last.0 <= now.0 && last.1 <= now.1 && last.2 <= now.2);
                        (taken, last) = (taken + 1, now);
                    }
                    taken
                })
            })
            .collect();
        work(fake);
        done.store(true, Ordering::Relaxed);
        takers.into_iter().map(|taker| taker.join().unwrap()).sum()
    });
    (taken, profiler.stop().unwrap())
}

#[test]
fn the_final_profile_matches_a_session_without_snapshots() {
    let fake = Fake::new();
    let (none, without) = run(&fake, 0);
    assert_eq!(none, 0);
    check(&without);
    assert_eq!(without.totals().kernels, 2 * (THREADS * STEPS) as u64);
    for takers in [1, 3] {
        let (taken, with) = run(&fake, takers);
        assert!(taken >= takers, "{taken}");
        check(&with);
        assert_eq!(with.counts(), without.counts());
        assert_eq!(facts(with.health()), facts(without.health()));
        let counts = |profile: &Profile| {
            (profile.ranges().count(), profile.marks().count(), profile.process_ranges().count())
        };
        assert_eq!(counts(&with), counts(&without));
        assert!(with.process_ranges().all(|job| !job.is_open()));
    }
}

/// A thread is at a range or a mark nearly always when a snapshot looks at its logs: with what was said of it, or not yet.
#[test]
fn labels_precede_their_range_or_mark() {
    const FIELDS: usize = 200;
    let fake = Fake::new();
    let profiler = profiler(&fake);
    let fields = vec![nvtx::Field::new("field", 1u64, ""); FIELDS];
    let (mut sessions, mut taken, mut ranges) = (0, 0, 0);
    // Until a snapshot was taken while ranges were written, however the machine runs the threads.
    while sessions < rounds(20) || taken <= sessions || ranges == 0 {
        sessions += 1;
        profiler.start().unwrap();
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for _ in 0..300 {
                    let _range = DOMAIN.event("range").fields(&fields).range();
                    DOMAIN.event("mark").fields(&fields).mark();
                }
            });
            loop {
                let is_last = writer.is_finished();
                let snapshot = profiler.snapshot().unwrap();
                snapshot.health().assert_complete();
                assert!(snapshot.ranges().all(|range| range.fields().count() == FIELDS));
                assert!(snapshot.marks().all(|mark| mark.fields().count() == FIELDS));
                (taken, ranges) = (taken + 1, ranges + snapshot.ranges().count());
                if is_last {
                    break;
                }
            }
        });
        profiler.stop().unwrap();
    }
}

#[test]
fn stop_during_snapshots_ends_them_with_an_error() {
    let fake = Fake::new();
    let profiler = profiler(&fake);
    for _ in 0..20 {
        profiler.start().unwrap();
        step(&fake);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let error = loop {
                        match profiler.snapshot() {
                            Ok(snapshot) => assert_eq!(snapshot.totals().kernels, 1),
                            Err(error) => break error,
                        }
                    };
                    assert!(error.is_not_running(), "{error}");
                });
            }
            let profile = profiler.stop().unwrap();
            profile.health().assert_complete();
            assert_eq!(profile.totals().kernels, 1);
        });
    }
}
