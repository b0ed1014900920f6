//! Records of synchronisations that are made from the calls that wait, beside those that the library writes.
#![allow(clippy::unwrap_used, clippy::panic)] // the helpers are tests too

use std::collections::BTreeMap;

use cupti::{
    ActivityKind, Call, Collected, Collector, Config, Record, Synchronization, SynchronizationKind,
};
use fake_cupti::{Fake, FakeCall, Work};

fn start(fake: &Fake, config: &Config) -> Collector {
    Collector::start(&fake.library().unwrap(), config).unwrap()
}

/// The default.
fn from_calls() -> Config {
    Config::new()
}

/// With the library's own records.
fn from_library() -> Config {
    Config::new().synchronizations_from_calls(false)
}

fn waits(collected: &Collected) -> Vec<Synchronization> {
    let wait = |record| {
        if let Record::Synchronization(wait) = record { Some(wait) } else { None }
    };
    collected.records.iter().filter_map(wait).collect()
}

fn calls(collected: &Collected) -> BTreeMap<u32, Call> {
    let calls = collected.calls.iter().flat_map(|thread| &thread.calls);
    calls.map(|call| (call.correlation_id, *call)).collect()
}

/// All that waits, on several streams and contexts, and in two threads.
fn program(fake: &Fake) {
    let some = |stream: u32| {
        fake.launch(Work::kernel(c"kernel").on_stream(stream));
        fake.launch(Work::synchronize().on_stream(stream));
        fake.launch(Work::wait_event().on_stream(stream + 1));
        fake.launch(Work::synchronize_event().on_stream(stream));
        fake.launch(Work::synchronize().on_stream(stream).in_context(2));
        fake.launch(Work::synchronize_context().in_context(3));
    };
    some(7);
    std::thread::scope(|scope| _ = scope.spawn(|| some(20)).join());
}

/// Kind, context and stream; the library writes a stream for waits that have none.
fn place(wait: &Synchronization) -> (SynchronizationKind, u32, Option<u32>) {
    use SynchronizationKind::{Stream, StreamWaitEvent};
    let stream = wait.stream.filter(|_| matches!(wait.kind, Stream | StreamWaitEvent));
    (wait.kind, wait.context, stream)
}

#[test]
fn synthesized_records_match_the_library() {
    for version in [18, 130_001] {
        let of = |config: &Config| {
            let fake = Fake::builder().version(version).build();
            let collector = start(&fake, config);
            let has_kind = fake.enabled_kinds().contains(&ActivityKind::SYNCHRONIZATION);
            program(&fake);
            (has_kind, collector.stop().unwrap())
        };
        let ((library_has, theirs), (made_has, made)) = (of(&from_library()), of(&from_calls()));
        assert!(library_has && !made_has, "CUPTI writes none of the second kind");
        let sorted = |collected: &Collected| {
            let mut places: Vec<_> = waits(collected).iter().map(place).collect();
            places.sort_unstable();
            places
        };
        assert_eq!(sorted(&made), sorted(&theirs));
        assert_eq!(waits(&made).len(), 10);
        let calls = calls(&made);
        for wait in waits(&made) {
            let call = calls[&wait.correlation_id];
            let at = |ns| made.clock.monotonic_ns(ns);
            // A timestamp leads back to a nanosecond.
            assert!(at(wait.span.start_ns) + 1 >= call.start_ns);
            assert!(at(wait.span.start_ns) <= at(wait.span.end_ns));
            assert!(at(wait.span.end_ns) <= call.end_ns.unwrap() + 1);
            assert_eq!((wait.event, wait.event_sync_id.unwrap_or(0)), (None, 0));
        }
    }
}

#[test]
fn a_wait_is_in_one_drain_a_snapshot_or_the_stop() {
    let fake = Fake::new();
    let collector = start(&fake, &from_calls());
    let first = fake.launch(Work::synchronize());
    let drained = collector.drain().unwrap();
    let second = fake.launch(Work::synchronize_context());
    let snapshot = collector.snapshot().unwrap();
    let third = fake.launch(Work::synchronize_event());
    let stopped = collector.stop().unwrap();
    let ids =
        |collected| waits(collected).iter().map(|wait| wait.correlation_id).collect::<Vec<_>>();
    assert_eq!((ids(&drained), ids(&snapshot)), (vec![first], vec![second]));
    assert_eq!(ids(&stopped), [second, third]);
    let strides = |collected: &Collected| collected.records.strides().collect::<Vec<_>>();
    assert!(strides(&drained).contains(&(ActivityKind::SYNCHRONIZATION, 56)));
}

#[test]
fn pauses_failures_and_calls_under_way_have_no_record() {
    let fake = Fake::new();
    for calls_in_pauses in [false, true] {
        let mut collector = start(&fake, &from_calls().calls_in_pauses(calls_in_pauses));
        fake.call_only("cuStreamSynchronize", 700);
        let first = fake.launch(Work::synchronize());
        collector.pause().unwrap();
        fake.launch(Work::synchronize());
        collector.resume().unwrap();
        let last = fake.launch(Work::wait_event());
        let mut under_way = None;
        fake.call_around("cuCtxSynchronize", || under_way = collector.snapshot().ok());
        let ids = |collected: &Collected| -> Vec<u32> {
            waits(collected).iter().map(|wait| wait.correlation_id).collect()
        };
        assert_eq!(ids(&under_way.unwrap()), [first, last]);
        assert_eq!(ids(&collector.stop().unwrap()).len(), 3);
    }
}

#[test]
fn default_stream_of_a_thread_is_resolved() {
    let fake = Fake::new();
    let collector = start(&fake, &from_calls());
    FakeCall::driver("cuStreamSynchronize_ptsz", None).of_stream(0).run(|_| 0);
    FakeCall::driver("cuStreamSynchronize", None).of_stream(0).run(|_| 0);
    let collected = collector.stop().unwrap();
    // The handle of the thread's own default stream.
    let streams: Vec<_> = waits(&collected).iter().map(|wait| wait.stream).collect();
    assert_eq!(streams, [Some(2), Some(0)]);
}

#[test]
fn with_records_of_events_the_library_writes_waits_too() {
    let fake = Fake::new();
    let config = from_calls().add_kind_if_known(ActivityKind::CUDA_EVENT);
    let collector = start(&fake, &config);
    assert!(fake.enabled_kinds().contains(&ActivityKind::SYNCHRONIZATION));
    fake.launch(Work::record_event(5));
    fake.launch(Work::synchronize_event().for_event(5));
    let collected = collector.stop().unwrap();
    assert_eq!(waits(&collected).iter().map(|wait| wait.event).collect::<Vec<_>>(), [Some(5)]);
    assert!(from_calls().covers(&from_library(), &[]).unwrap_err().contains("from calls"));
    assert_eq!(from_library().covers(&from_calls(), &[]), Ok(()));
}

#[test]
fn without_the_kind_nothing_is_made() {
    let fake = Fake::new();
    let config = from_calls().kinds([ActivityKind::CONCURRENT_KERNEL]);
    let collector = start(&fake, &config);
    program(&fake);
    assert!(waits(&collector.stop().unwrap()).is_empty());
}

#[test]
fn drained_wait_log_remains_small() {
    let fake = Fake::new();
    let collector = start(&fake, &from_calls());
    let mut held = Vec::new();
    for _ in 0..20 {
        for _ in 0..5_000 {
            fake.launch(Work::synchronize());
        }
        assert_eq!(waits(&collector.drain().unwrap()).len(), 5_000);
        held.push(collector.held_bytes());
    }
    assert!(held[19] <= held[1] * 2, "{held:?}");
}
