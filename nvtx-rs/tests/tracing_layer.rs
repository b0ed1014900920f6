//! Spans of `tracing` as an observer sees the ranges that the layer makes of them.
#![forbid(unsafe_code)]

#[path = "support/watch.rs"]
mod watch;

use nvtx::NvtxLayer;
use tracing::{Level, event, span};
use tracing_subscriber::prelude::*;
use watch::watch;

fn with(layer: NvtxLayer, program: impl FnOnce()) {
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), program);
}

#[test]
fn a_span_is_a_range_each_time_it_is_entered() {
    let watching = watch();
    with(NvtxLayer::new(), || {
        let outer = span!(target: "lib", Level::INFO, "outer", n = 1);
        for _ in 0..3 {
            let _entered = outer.enter();
            let inner = span!(target: "lib", Level::INFO, "inner");
            inner.in_scope(|| ());
        }
    });
    let once = ["+outer domain=lib", "+inner domain=lib", "-inner", "-outer"];
    assert_eq!(watching.seen(), once.repeat(3));
}

#[test]
fn settings_leave_out_domains_and_marks_and_add_lives() {
    let watching = watch();
    with(NvtxLayer::new().domains(false).marks(false).lifetimes(true), || {
        let span = span!(target: "lib", Level::INFO, "span");
        span.in_scope(|| event!(target: "lib", Level::INFO, "not marked"));
        drop(span);
    });
    assert_eq!(watching.seen(), [">span", "+span", "-span", "<span"]);
}

#[test]
fn events_are_marks_with_their_message() {
    let watching = watch();
    with(NvtxLayer::new(), || {
        event!(target: "lib", Level::INFO, "loaded {} layers", 3);
        event!(target: "lib", Level::INFO, nvtx.payload = 7u64, "counted");
        event!(name: "nameless", target: "lib", Level::INFO, x = 1);
    });
    assert_eq!(
        watching.seen(),
        [
            "!loaded 3 layers domain=lib",
            "!counted domain=lib payload=U64(7)",
            "!nameless domain=lib"
        ]
    );
}

#[test]
fn fields_of_ours_are_details_also_when_they_are_recorded_later() {
    let watching = watch();
    with(NvtxLayer::new(), || {
        let span = span!(
            target: "lib", Level::INFO, "span",
            nvtx.color = 0x00ff00u64, nvtx.category = "io", nvtx.payload = tracing::field::Empty, other = 5
        );
        span.in_scope(|| ());
        span.record("nvtx.payload", 2.5);
        span.in_scope(|| ());
    });
    let first = "+span domain=lib color=ff00ff00 category=io";
    assert_eq!(watching.seen(), [first, "-span", &format!("{first} payload=F64(2.5)"), "-span"]);
}

#[test]
fn spans_left_in_another_order_stay_nested() {
    let watching = watch();
    with(NvtxLayer::new().domains(false), || {
        let (a, b, c) = (span!(Level::INFO, "a"), span!(Level::INFO, "b"), span!(Level::INFO, "c"));
        let (a, b, c) = (a.enter(), b.enter(), c.enter());
        drop(a);
        drop(c);
        drop(b);
    });
    assert_eq!(
        watching.seen(),
        ["+a", "+b", "+c", "-c", "-b", "-a", "+b", "+c", "-c", "-b"],
        "b and c end and begin again around the end of a"
    );
}

#[test]
fn a_span_entered_on_two_threads_is_a_range_on_each() {
    let watching = watch();
    let subscriber = tracing_subscriber::registry().with(NvtxLayer::new().domains(false));
    let dispatch = tracing::Dispatch::new(subscriber);
    let span = tracing::dispatcher::with_default(&dispatch, || span!(Level::INFO, "shared"));
    for worker in 0..2 {
        let (dispatch, span) = (dispatch.clone(), span.clone());
        let work = move || tracing::dispatcher::with_default(&dispatch, || span.in_scope(|| ()));
        std::thread::Builder::new()
            .name(format!("worker {worker}"))
            .spawn(work)
            .unwrap()
            .join()
            .unwrap();
    }
    let expected: Vec<String> = (0..2)
        .flat_map(|w| [format!("worker {w}: +shared"), format!("worker {w}: -shared")])
        .collect();
    assert_eq!(watching.seen(), expected);
}

#[test]
fn a_span_entered_twice_on_a_thread_is_two_ranges() {
    let watching = watch();
    with(NvtxLayer::new().domains(false), || {
        let span = span!(Level::INFO, "twice");
        let first = span.enter();
        span.in_scope(|| ());
        drop(first);
    });
    assert_eq!(watching.seen(), ["+twice", "+twice", "-twice", "-twice"]);
}

#[test]
fn filters_compose() {
    let watching = watch();
    let filter = tracing_subscriber::filter::filter_fn(|metadata| metadata.target() == "wanted");
    let subscriber = tracing_subscriber::registry().with(NvtxLayer::new().with_filter(filter));
    tracing::subscriber::with_default(subscriber, || {
        let outer = span!(target: "unwanted", Level::INFO, "outer");
        let inner = span!(target: "wanted", Level::INFO, "inner");
        outer.in_scope(|| inner.in_scope(|| event!(target: "unwanted", Level::INFO, "no")));
    });
    assert_eq!(watching.seen(), ["+inner domain=wanted", "-inner"]);
}

#[test]
fn a_thread_that_ends_within_spans_ends_their_ranges_from_the_inside() {
    let watching = watch();
    let dispatch = tracing::Dispatch::new(
        tracing_subscriber::registry().with(NvtxLayer::new().domains(false)),
    );
    let work = move || {
        tracing::dispatcher::with_default(&dispatch, || {
            std::mem::forget(span!(Level::INFO, "outer").entered());
            std::mem::forget(span!(Level::INFO, "inner").entered());
        });
    };
    std::thread::Builder::new().name("worker".into()).spawn(work).unwrap().join().unwrap();
    assert_eq!(
        watching.seen(),
        ["worker: +outer", "worker: +inner", "worker: -inner", "worker: -outer"]
    );
}

#[test]
fn nobody_looking_is_no_harm_and_someone_may_come_later() {
    let watching = watch();
    watching.look(false);
    with(NvtxLayer::new().domains(false), || {
        let outer = span!(Level::INFO, "outer");
        let entered = outer.enter();
        watching.look(true);
        span!(Level::INFO, "inner").in_scope(|| ());
        drop(entered);
        assert_eq!(watching.seen(), ["+inner", "-inner"]);
    });
}
