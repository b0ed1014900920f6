//! What a running collection has so far: cut off at one time, whole up to there, and no loss for what comes after.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use cupti::sys::abi::CuptiResult;
use cupti::{ActivityKind, Call, Collected, Collector, Config, Record, clock};
use fake_cupti::{Fake, When, Work};

fn start(fake: &Fake, config: &Config) -> Collector {
    Collector::start(&fake.library().unwrap(), config).unwrap()
}

/// The correlation ids of its kernels.
fn kernels(collected: &Collected) -> Vec<u32> {
    let id = |record| {
        if let Record::Kernel(kernel) = record { Some(kernel.correlation_id) } else { None }
    };
    collected.records.iter().filter_map(id).collect()
}

fn calls(collected: &Collected) -> Vec<Call> {
    collected.calls.iter().flat_map(|thread| thread.calls.clone()).collect()
}

#[test]
fn snapshot_copies_collected_records() {
    let fake = Fake::new();
    let config = Config::new()
        .runtime_calls(true)
        .graph_events(true)
        .add_kind_if_known(ActivityKind::GREEN_CONTEXT);
    let collector = start(&fake, &config);
    fake.launch(Work::kernel(c"first"));
    fake.launch_through_runtime("cudaLaunchKernel", &Work::kernel(c"second"));
    let mut graph = fake.graph();
    fake.capture_into(&mut graph, &Work::kernel(c"captured"));
    let before = clock::now_ns();
    let snapshot = collector.snapshot().unwrap();
    let after = clock::now_ns();
    fake.launch(Work::kernel(c"third"));
    fake.launch_through_runtime("cudaLaunchKernel", &Work::kernel(c"fourth"));
    fake.capture_into(&mut graph, &Work::kernel(c"captured"));
    let whole = collector.stop().unwrap();

    let at = snapshot.window_ns.1;
    assert!(before < at && at < after);
    assert_eq!(snapshot.window_ns.0, whole.window_ns.0);
    assert_eq!((&snapshot.windows_ns, snapshot.was_on(at - 1)), (&vec![snapshot.window_ns], true));
    assert_eq!((kernels(&snapshot).len(), kernels(&whole).len()), (2, 4));
    assert!(kernels(&whole).starts_with(&kernels(&snapshot)));
    assert_eq!((calls(&snapshot).len(), calls(&whole).len()), (3, 6));
    assert!(calls(&whole).starts_with(&calls(&snapshot)));
    let runtime = |of: &Collected| of.runtime_calls[0].calls.len();
    assert_eq!((runtime(&snapshot), runtime(&whole)), (1, 2));
    let events = |of: &Collected| of.graphs[0].events.clone();
    assert_eq!((events(&snapshot).len(), events(&whole).len()), (2, 3));
    assert!(events(&whole).starts_with(&events(&snapshot)));
    assert_eq!(snapshot.records.names().count(), 2);
    assert_eq!(snapshot.missing_kinds, [ActivityKind::GREEN_CONTEXT]);
    assert_eq!(whole.missing_kinds, [ActivityKind::GREEN_CONTEXT]);
    assert_eq!(
        (snapshot.clock.start, whole.clock.start),
        (whole.clock.start, snapshot.clock.start)
    );
    assert!(snapshot.clock.stop.at_ns >= at);
}

#[test]
fn records_dropped_by_cupti_are_counted_once() {
    let fake = Fake::new();
    let collector = start(&fake, &Config::new());
    fake.drop_records(7);
    for _ in 0..2 {
        assert_eq!(collector.snapshot().unwrap().losses.dropped_by_cupti, 7);
    }
    fake.drop_records(2);
    assert_eq!(collector.stop().unwrap().losses.dropped_by_cupti, 9);
}

#[test]
fn records_pending_since_is_reported() {
    let fake = Fake::new();
    let collector = start(&fake, &Config::new());
    fake.launch(Work::kernel(c"done"));
    let done = clock::now_ns();
    let snapshot = collector.snapshot().unwrap();
    let pending = snapshot.pending_from_ns.unwrap();
    assert!(done <= pending && pending < snapshot.window_ns.1);

    // The GPU is at it: CUPTI keeps the buffer, and does not say which of its records are open.
    fake.hold_buffers(true);
    fake.launch(Work::kernel(c"running"));
    let snapshot = collector.snapshot().unwrap();
    assert_eq!((kernels(&snapshot).len(), calls(&snapshot).len()), (1, 2));
    assert_eq!(snapshot.pending_from_ns, Some(pending), "what came stays settled");
    assert_eq!(snapshot.losses.unfinished_buffers, 0, "nobody has given up waiting");

    fake.hold_buffers(false);
    assert_eq!(kernels(&collector.snapshot().unwrap()).len(), 2);
    assert_eq!(collector.stop().unwrap().pending_from_ns, None);
}

#[test]
fn a_call_under_way_has_no_end_yet() {
    let fake = Fake::new();
    let collector = start(&fake, &Config::new());
    let mut snapshot = None;
    let within = || snapshot = Some(collector.snapshot().unwrap());
    let id = fake.launch_around(&Work::kernel(c"k"), within);
    let snapshot = snapshot.unwrap();
    assert_eq!(kernels(&snapshot), [id]);
    assert_eq!(calls(&snapshot)[0].end_ns, None);
    assert!(calls(&collector.stop().unwrap())[0].end_ns.is_some());
}

#[test]
fn a_snapshot_in_a_pause_ends_at_the_pause() {
    let fake = Fake::new();
    let mut collector = start(&fake, &Config::new());
    fake.launch(Work::kernel(c"before"));
    collector.pause().unwrap();
    fake.launch(Work::kernel(c"meanwhile"));
    let snapshot = collector.snapshot().unwrap();
    assert_eq!((kernels(&snapshot).len(), snapshot.windows_ns.len()), (1, 1));
    assert!(snapshot.windows_ns[0].1 < snapshot.window_ns.1);
    collector.resume().unwrap();
    fake.launch(Work::kernel(c"after"));
    let snapshot = collector.snapshot().unwrap();
    assert_eq!((kernels(&snapshot).len(), snapshot.windows_ns.len()), (2, 2));
    assert_eq!(snapshot.windows_ns[1].1, snapshot.window_ns.1);
    let whole = collector.stop().unwrap();
    assert_eq!((kernels(&whole).len(), whole.windows_ns.len()), (2, 2));
    assert_eq!(whole.windows_ns[1].0, snapshot.windows_ns[1].0);
}

#[test]
fn a_snapshot_that_fails_does_no_harm() {
    let fake = Fake::new();
    let collector = start(&fake, &Config::new());
    fake.launch(Work::kernel(c"k"));
    for function in
        ["cuptiActivityFlushAll", "cuptiActivityGetNumDroppedRecords", "cuptiGetTimestamp"]
    {
        fake.fail(function, CuptiResult::UNKNOWN, When::Once);
        let error = collector.snapshot().unwrap_err();
        assert!(error.to_string().contains(function), "{error}");
    }
    let whole = collector.stop().unwrap();
    assert_eq!((kernels(&whole).len(), calls(&whole).len()), (1, 1));
}

#[test]
fn profiler_switch_limits_the_work_of_a_snapshot() {
    let fake = Fake::new();
    let collector = start(&fake, &Config::new().profiler_switch(true));
    fake.launch(Work::kernel(c"before"));
    assert!(collector.snapshot().unwrap().windows_ns.is_empty());
    fake.profiler_start();
    fake.launch(Work::kernel(c"k"));
    let during = collector.snapshot().unwrap();
    assert_eq!((during.windows_ns.len(), kernels(&during).len()), (1, 1));
    assert_eq!(during.windows_ns[0].1, during.window_ns.1);
    fake.profiler_stop();
    fake.launch(Work::kernel(c"after"));
    let after = collector.snapshot().unwrap();
    assert!(after.windows_ns[0].1 < after.window_ns.1);
    let last = collector.stop().unwrap();
    assert_eq!(
        (&last.windows_ns, kernels(&last).len()),
        (&after.windows_ns, kernels(&after).len())
    );
}

/// Four threads launch, four take snapshots; buffers are small, so that CUPTI gives them back all the time.
#[test]
fn snapshots_from_several_threads_beside_launches() {
    let fake = Fake::new();
    let collector = start(&fake, &Config::new().buffer_bytes(64 << 10).runtime_calls(true));
    let launched = AtomicBool::new(false);
    let taken = std::thread::scope(|scope| {
        let launchers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        fake.launch_through_runtime("cudaLaunchKernel", &Work::kernel(c"k"));
                    }
                })
            })
            .collect();
        let takers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let (mut taken, mut most) = (0, 0);
                    // One more where the launches are over before this thread runs.
                    while taken == 0 || !launched.load(Ordering::Relaxed) {
                        let snapshot = collector.snapshot().unwrap();
                        check(&snapshot);
                        let count = kernels(&snapshot).len();
                        assert!(count >= most, "{count} kernels after {most}");
                        (taken, most) = (taken + 1, count);
                    }
                    taken
                })
            })
            .collect();
        launchers.into_iter().for_each(|thread| thread.join().unwrap());
        launched.store(true, Ordering::Relaxed);
        takers.into_iter().map(|thread| thread.join().unwrap()).sum::<u32>()
    });
    assert!(taken >= 4, "{taken}");
    let whole = collector.stop().unwrap();
    check(&whole);
    assert_eq!((kernels(&whole).len(), calls(&whole).len()), (8_000, 8_000));
    assert!(calls(&whole).iter().all(|call| call.end_ns.is_some()));
}

/// Every record has its call, and every call that can have no record to come has one.
fn check(collected: &Collected) {
    let (calls, kernels) = (calls(collected), kernels(collected));
    let ids: HashSet<u32> = calls.iter().map(|call| call.correlation_id).collect();
    assert!(kernels.iter().all(|id| ids.contains(id)), "a record has no call");
    let kernels: HashSet<u32> = kernels.into_iter().collect();
    let (_, at) = collected.window_ns;
    let settled = collected.pending_from_ns.unwrap_or(at);
    for call in calls {
        assert!(call.start_ns < at && call.end_ns.is_none_or(|end| end < at));
        let is_settled = call.end_ns.is_some_and(|end| end < settled);
        assert!(!is_settled || kernels.contains(&call.correlation_id), "a call has no record");
    }
}
