//! Spans of `tracing` as an observer sees the ranges that the layer makes of them.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "what helps the tests is to fail as they do")]

#[path = "support/watch.rs"]
mod watch;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use nvtx::{NvtxLayer, SpanFields};
use tracing::instrument::WithSubscriber;
use tracing::span::Id;
use tracing::{Dispatch, Event, Instrument, Level, Subscriber, dispatcher, event, span};
use tracing_subscriber::filter::{EnvFilter, LevelFilter, Targets};
use tracing_subscriber::layer::Context;
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry, registry, reload};
use watch::watch;

fn run_with(layer: NvtxLayer, program: impl FnOnce()) {
    tracing::subscriber::with_default(registry().with(layer), program);
}

#[test]
fn a_span_is_a_range_each_time_it_is_entered() {
    let watching = watch();
    run_with(NvtxLayer::new(), || {
        let outer = span!(target: "lib", Level::INFO, "outer", n = 1);
        for _ in 0..3 {
            let _entered = outer.enter();
            let inner = span!(target: "lib", Level::INFO, "inner");
            inner.in_scope(|| ());
        }
    });
    let once = ["+outer domain=lib", "+inner domain=lib", "-inner", "-outer"];
    assert_eq!(watching.take_lines(), once.repeat(3));
}

#[test]
fn settings_leave_out_domains_and_marks_and_add_lives() {
    let watching = watch();
    run_with(NvtxLayer::new().domains(false).marks(false).lifetimes(true), || {
        let span = span!(target: "lib", Level::INFO, "span");
        span.in_scope(|| event!(target: "lib", Level::INFO, "not marked"));
        drop(span);
    });
    assert_eq!(watching.take_lines(), [">span", "+span", "-span", "<span"]);
}

#[test]
fn events_are_marks_with_their_message() {
    let watching = watch();
    run_with(NvtxLayer::new(), || {
        event!(target: "lib", Level::INFO, "loaded {} layers", 3);
        event!(target: "lib", Level::INFO, nvtx.payload = 7u64, "counted");
        event!(name: "nameless", target: "lib", Level::INFO, x = 1);
    });
    assert_eq!(
        watching.take_lines(),
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
    run_with(NvtxLayer::new(), || {
        let span = span!(
            target: "lib", Level::INFO, "span",
            nvtx.color = 0x00ff00u64, nvtx.category = "io", nvtx.payload = tracing::field::Empty, other = 5
        );
        span.in_scope(|| ());
        span.record("nvtx.payload", 2.5);
        span.in_scope(|| ());
    });
    let first = "+span domain=lib color=ff00ff00 category=io";
    assert_eq!(
        watching.take_lines(),
        [first, "-span", &format!("{first} payload=F64(2.5)"), "-span"]
    );
}

#[test]
fn spans_exited_out_of_order_remain_nested() {
    let watching = watch();
    run_with(NvtxLayer::new().domains(false), || {
        let (a, b, c) = (span!(Level::INFO, "a"), span!(Level::INFO, "b"), span!(Level::INFO, "c"));
        let (a, b, c) = (a.enter(), b.enter(), c.enter());
        drop(a);
        drop(c);
        drop(b);
    });
    assert_eq!(
        watching.take_lines(),
        ["+a", "+b", "+c", "-c", "-b", "-a", "+b", "+c", "-c", "-b"],
        "b and c end and begin again around the end of a"
    );
}

#[test]
fn a_span_entered_on_two_threads_is_a_range_on_each() {
    let watching = watch();
    let subscriber = registry().with(NvtxLayer::new().domains(false));
    let dispatch = Dispatch::new(subscriber);
    let span = dispatcher::with_default(&dispatch, || span!(Level::INFO, "shared"));
    for worker in 0..2 {
        let (dispatch, span) = (dispatch.clone(), span.clone());
        let work = move || dispatcher::with_default(&dispatch, || span.in_scope(|| ()));
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
    assert_eq!(watching.take_lines(), expected);
}

#[test]
fn a_span_entered_twice_on_a_thread_is_two_ranges() {
    let watching = watch();
    run_with(NvtxLayer::new().domains(false), || {
        let span = span!(Level::INFO, "twice");
        let first = span.enter();
        span.in_scope(|| ());
        drop(first);
    });
    assert_eq!(watching.take_lines(), ["+twice", "+twice", "-twice", "-twice"]);
}

#[test]
fn filters_compose() {
    let watching = watch();
    let filter = tracing_subscriber::filter::filter_fn(|metadata| metadata.target() == "wanted");
    let subscriber = registry().with(NvtxLayer::new().with_filter(filter));
    tracing::subscriber::with_default(subscriber, || {
        let outer = span!(target: "unwanted", Level::INFO, "outer");
        let inner = span!(target: "wanted", Level::INFO, "inner");
        outer.in_scope(|| inner.in_scope(|| event!(target: "unwanted", Level::INFO, "no")));
    });
    assert_eq!(watching.take_lines(), ["+inner domain=wanted", "-inner"]);
}

#[test]
fn a_thread_that_ends_within_spans_ends_their_ranges_from_the_inside() {
    let watching = watch();
    let dispatch = Dispatch::new(registry().with(NvtxLayer::new().domains(false)));
    let work = move || {
        dispatcher::with_default(&dispatch, || {
            std::mem::forget(span!(Level::INFO, "outer").entered());
            std::mem::forget(span!(Level::INFO, "inner").entered());
        });
    };
    std::thread::Builder::new().name("worker".into()).spawn(work).unwrap().join().unwrap();
    assert_eq!(
        watching.take_lines(),
        ["worker: +outer", "worker: +inner", "worker: -inner", "worker: -outer"]
    );
}

#[test]
fn layer_without_a_tool_works_and_a_later_one_attaches() {
    let watching = watch();
    watching.look(false);
    run_with(NvtxLayer::new().domains(false), || {
        let outer = span!(Level::INFO, "outer");
        let entered = outer.enter();
        watching.look(true);
        span!(Level::INFO, "inner").in_scope(|| ());
        drop(entered);
        assert_eq!(watching.take_lines(), ["+inner", "-inner"]);
    });
}

#[test]
fn payloads_keep_their_types_and_other_fields_are_omitted() {
    let watching = watch();
    let name = String::from("text");
    run_with(NvtxLayer::new().domains(false), || {
        let spans = [
            span!(Level::INFO, "s", nvtx.payload = -3),
            span!(Level::INFO, "s", nvtx.payload = u64::MAX),
            span!(Level::INFO, "s", nvtx.payload = 1.5f32),
            span!(Level::INFO, "s", nvtx.payload = true),
            span!(Level::INFO, "s", nvtx.payload = Some(7usize)),
            span!(Level::INFO, "s", nvtx.payload = None::<u64>),
            span!(Level::INFO, "s", nvtx.payload = "seven", nvtx.color = "red", nvtx.category = 7),
            span!(Level::INFO, "s", nvtx.payload = ?name, nvtx.color = true, nvtx.category = false),
            span!(Level::INFO, "s", nvtx.payload = 1u128, nvtx.color = 1.0, nvtx.category = 1.0),
            span!(Level::INFO, "s", payload = 1, color = 2, category = "not ours"),
        ];
        for span in spans {
            span.in_scope(|| ());
        }
    });
    let starts = [
        "+s payload=I64(-3)",
        "+s payload=U64(18446744073709551615)",
        "+s payload=F64(1.5)",
        "+s payload=U32(1)",
        "+s payload=U64(7)",
        "+s",
        "+s",
        "+s",
        "+s",
        "+s",
    ];
    assert_eq!(watching.take_lines(), starts.map(|start| [start, "-s"]).concat());
}

#[test]
fn colours_have_an_alpha_or_get_one() {
    let watching = watch();
    run_with(NvtxLayer::new().domains(false), || {
        let spans = [
            span!(Level::INFO, "s", nvtx.color = 0x76b900),
            span!(Level::INFO, "s", nvtx.color = 0x8076_b900u32),
            span!(Level::INFO, "s", nvtx.color = nvtx::Color::RED.to_argb()),
            span!(Level::INFO, "s", nvtx.color = 0),
            span!(Level::INFO, "s", nvtx.color = -1),
            span!(Level::INFO, "s", nvtx.color = 0x1_0000_0000u64),
        ];
        for span in spans {
            span.in_scope(|| ());
        }
    });
    let red = format!("+s color={:08x}", nvtx::Color::RED.to_argb());
    let starts =
        ["+s color=ff76b900", "+s color=8076b900", red.as_str(), "+s color=ff000000", "+s", "+s"];
    assert_eq!(watching.take_lines(), starts.map(|start| [start, "-s"]).concat());
}

#[test]
fn categories_are_named_as_a_value_is_shown() {
    let watching = watch();
    run_with(NvtxLayer::new(), || {
        for number in [1, 2, 1] {
            let name = format!("stage {number}");
            span!(target: "lib", Level::INFO, "s", nvtx.category = %name).in_scope(|| ());
            span!(target: "lib", Level::INFO, "s", nvtx.category = name.as_str()).in_scope(|| ());
        }
        event!(target: "lib", Level::INFO, nvtx.category = "io", "mark");
    });
    let mut expected = Vec::new();
    for number in [1, 1, 2, 2, 1, 1] {
        expected.extend([format!("+s domain=lib category=stage {number}"), "-s".to_owned()]);
    }
    expected.push("!mark domain=lib category=io".to_owned());
    assert_eq!(watching.take_lines(), expected);
}

#[test]
fn fields_recorded_later_are_added() {
    let watching = watch();
    run_with(NvtxLayer::new().domains(false), || {
        let span = span!(
            Level::INFO,
            "s",
            nvtx.color = 1,
            nvtx.category = tracing::field::Empty,
            nvtx.payload = 1,
            other = 1
        );
        let stay = span.enter();
        span.record("nvtx.payload", 2).record("nvtx.category", "io").record("other", 3);
        drop(stay);
        span.in_scope(|| ());
        span.record("nvtx.payload", "not a number").record("nvtx.color", -1);
        span.in_scope(|| ());
        span.record("nvtx.color", 2);
        span.in_scope(|| ());
    });
    assert_eq!(
        watching.take_lines(),
        [
            "+s color=ff000001 payload=I64(1)",
            "-s",
            "+s color=ff000001 category=io payload=I64(2)",
            "-s",
            "+s color=ff000001 category=io payload=I64(2)",
            "-s",
            "+s color=ff000002 category=io payload=I64(2)",
            "-s"
        ]
    );
}

/// A value whose own code uses the span that it is recorded for.
struct Meddler(tracing::Span);

impl std::fmt::Display for Meddler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.record("nvtx.payload", 5);
        self.0.in_scope(|| event!(Level::INFO, "within"));
        f.write_str("meddled")
    }
}

/// A value that cannot be shown; `format!` panics at it.
struct Unshown;

impl std::fmt::Display for Unshown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("half")?;
        Err(std::fmt::Error)
    }
}

#[test]
fn values_may_use_their_span_and_fail_to_be_shown() {
    let watching = watch();
    run_with(NvtxLayer::new().domains(false), || {
        let span = span!(
            Level::INFO,
            "s",
            nvtx.payload = tracing::field::Empty,
            nvtx.category = tracing::field::Empty
        );
        span.record("nvtx.category", tracing::field::display(Meddler(span.clone())));
        event!(Level::INFO, "around {}", Meddler(span.clone()));
        event!(Level::INFO, message = %Unshown);
        span!(Level::INFO, "t", nvtx.category = %Unshown).in_scope(|| ());
        span.in_scope(|| ());
    });
    let (first, then) = ("+s payload=I64(5)", "+s category=meddled payload=I64(5)");
    // The event within an event is one that `tracing` leaves out.
    let around = [then, "-s", "!around meddled", "!half", "+t category=half", "-t", then, "-s"];
    assert_eq!(watching.take_lines(), [[first, "!within", "-s"].as_slice(), &around].concat());
}

#[test]
fn message_is_the_message_field_of_the_event() {
    let watching = watch();
    let long = "x".repeat(10_000);
    run_with(NvtxLayer::new().domains(false), || {
        event!(Level::INFO, message = "as a field", nvtx.color = 1);
        event!(Level::INFO, "{long}");
        event!(Level::INFO, nvtx.payload = -1.0, "short again, {}", "formatted");
        event!(name: "nothing said", Level::INFO, message = "");
    });
    assert_eq!(
        watching.take_lines(),
        [
            "!as a field color=ff000001",
            &format!("!{long}"),
            "!short again, formatted payload=F64(-1.0)",
            "!nothing said"
        ]
    );
}

#[test]
fn target_maps_to_one_domain() {
    let watching = watch();
    run_with(NvtxLayer::new(), || {
        span!(target: "lib::one", Level::INFO, "a").in_scope(|| ());
        span!(target: "lib::two", Level::WARN, "b").in_scope(|| ());
        span!(target: "lib::one", Level::TRACE, "c").in_scope(|| ());
        span!(Level::INFO, "d").in_scope(|| ());
    });
    let here = format!("+d domain={}", module_path!());
    let expected = [
        "+a domain=lib::one",
        "-a",
        "+b domain=lib::two",
        "-b",
        "+c domain=lib::one",
        "-c",
        &here,
        "-d",
    ];
    assert_eq!(watching.take_lines(), expected);
}

#[test]
fn a_life_has_the_details_and_ends_where_the_last_handle_is_dropped() {
    let watching = watch();
    run_with(NvtxLayer::new().domains(false).lifetimes(true), || {
        let span = span!(Level::INFO, "job", nvtx.payload = 1);
        let other = span.clone();
        span.in_scope(|| ());
        drop(span);
        worker(move || {
            other.in_scope(|| ());
            drop(other);
        });
    });
    assert_eq!(
        watching.take_lines(),
        [
            ">job payload=I64(1)",
            "+job payload=I64(1)",
            "-job",
            "worker: +job payload=I64(1)",
            "worker: -job",
            "worker: <job"
        ]
    );
}

/// Runs on a thread of its own, to its end.
fn worker(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().name("worker".into()).spawn(work).unwrap().join().unwrap();
}

#[test]
fn span_closed_while_entered_ends_at_its_exit() {
    let watching = watch();
    run_with(NvtxLayer::new().domains(false).lifetimes(true), || {
        let stay = span!(Level::INFO, "held").entered();
        event!(Level::INFO, "within");
        drop(stay);
        // The registry gives the place of the span that was closed to this one.
        span!(Level::INFO, "next").in_scope(|| ());
    });
    assert_eq!(
        watching.take_lines(),
        [">held", "+held", "!within", "-held", "<held", ">next", "+next", "-next", "<next"]
    );
}

#[test]
fn a_life_ends_with_the_close_though_the_data_of_the_span_are_held() {
    let watching = watch();
    let dispatch = Dispatch::new(registry().with(NvtxLayer::new().lifetimes(true).domains(false)));
    let span = dispatcher::with_default(&dispatch, || span!(Level::INFO, "s"));
    let data = dispatch.downcast_ref::<Registry>().unwrap().span_data(&span.id().unwrap());
    assert!(data.is_some());
    drop(span);
    assert_eq!(watching.take_lines(), [">s", "<s"]);
    drop(data);
    assert_eq!(watching.take_lines(), [""; 0]);
}

#[test]
fn filters_of_directives_and_of_targets_compose() {
    let program = || {
        let outer = span!(target: "wanted::part", Level::DEBUG, "outer", nvtx.payload = 1);
        let inner = span!(target: "unwanted", Level::INFO, "inner");
        let innermost = span!(target: "wanted", Level::TRACE, "innermost");
        outer.in_scope(|| {
            inner.in_scope(|| innermost.in_scope(|| event!(target: "wanted", Level::INFO, "mark")))
        });
        outer.record("nvtx.payload", 2);
        outer.in_scope(|| ());
    };
    let expected = [
        "+outer domain=wanted::part payload=I64(1)",
        "!mark domain=wanted",
        "-outer",
        "+outer domain=wanted::part payload=I64(2)",
        "-outer",
    ];
    let watching = watch();
    // Of this layer alone, beside one that takes all; and of all layers.
    let directives = || EnvFilter::new("wanted=debug");
    let subscriber =
        registry().with(NvtxLayer::new().with_filter(directives())).with(Enters::default());
    tracing::subscriber::with_default(subscriber, program);
    assert_eq!(watching.take_lines(), expected);
    tracing::subscriber::with_default(
        registry().with(NvtxLayer::new()).with(directives()),
        program,
    );
    assert_eq!(watching.take_lines(), expected);
    let targets = Targets::new().with_target("wanted", Level::DEBUG);
    tracing::subscriber::with_default(
        registry().with(NvtxLayer::new().with_filter(targets)),
        program,
    );
    assert_eq!(watching.take_lines(), expected);
}

#[test]
fn a_filter_may_be_exchanged_while_spans_are_open() {
    let watching = watch();
    let (filter, handle) = reload::Layer::new(LevelFilter::INFO);
    let subscriber = registry().with(NvtxLayer::new().domains(false).with_filter(filter));
    tracing::subscriber::with_default(subscriber, || {
        let work = || span!(Level::DEBUG, "debug").in_scope(|| ());
        let open = span!(Level::INFO, "open");
        let stay = open.enter();
        work();
        handle.reload(LevelFilter::DEBUG).unwrap();
        work();
        handle.reload(LevelFilter::OFF).unwrap();
        work();
        drop(stay);
        open.in_scope(|| ());
        span!(Level::ERROR, "off").in_scope(|| ());
    });
    let expected = ["+open", "+debug", "-debug", "-open", "+open", "-open"];
    assert_eq!(watching.take_lines(), expected, "what a span is, is settled when it is made");
}

#[test]
fn the_layer_may_be_exchanged_while_spans_are_open() {
    let watching = watch();
    let (layer, handle) = reload::Layer::new(Some(NvtxLayer::new().domains(false)));
    tracing::subscriber::with_default(registry().with(layer), || {
        let (open, within) =
            (span!(Level::INFO, "open", nvtx.payload = 1), span!(Level::INFO, "within"));
        let stay = open.enter();
        handle.reload(Some(NvtxLayer::new())).unwrap();
        within.in_scope(|| ());
        drop(stay);
        handle.reload(None).unwrap();
        open.in_scope(|| within.in_scope(|| ()));
        handle.reload(Some(NvtxLayer::new().domains(false))).unwrap();
        open.in_scope(|| ());
    });
    let within = format!("+within domain={}", module_path!());
    let open = "+open payload=I64(1)";
    assert_eq!(watching.take_lines(), [open, &within, "-within", "-open", open, "-open"]);
}

#[test]
fn subscribers_of_one_thread_do_not_mix_their_spans() {
    let watching = watch();
    let dispatch = || Dispatch::new(registry().with(NvtxLayer::new().domains(false)));
    let (one, other) = (dispatch(), dispatch());
    let a = dispatcher::with_default(&one, || span!(Level::INFO, "a", nvtx.payload = 1));
    let b = dispatcher::with_default(&other, || span!(Level::INFO, "b", nvtx.payload = 2));
    assert_eq!(a.id(), b.id(), "both are the first of their registry");
    let stay = a.enter();
    let within = b.enter();
    drop(stay);
    drop(within);
    let (a, b) = ("+a payload=I64(1)", "+b payload=I64(2)");
    assert_eq!(watching.take_lines(), [a, b, "-b", "-a", b, "-b"]);
}

#[test]
fn two_layers_of_one_subscriber_keep_their_own() {
    let watching = watch();
    let lives = || NvtxLayer::new().lifetimes(true).marks(false);
    let subscriber = registry().with(lives()).with(lives().domains(false));
    tracing::subscriber::with_default(subscriber, || {
        let span = span!(target: "lib", Level::INFO, "s", nvtx.payload = 1, nvtx.category = "io");
        span.record("nvtx.payload", 2);
        span.in_scope(|| ());
    });
    let (with, without) = ("s domain=lib category=io", "s category=io");
    let mut seen = watching.take_lines();
    // Each layer tells in its turn, and the turns are the registry's affair.
    let (lives, stays) = (seen.drain(..2).collect::<Vec<_>>(), seen);
    assert_eq!(lives, [format!(">{with} payload=I64(1)"), format!(">{without} payload=I64(1)")]);
    assert_eq!(
        stays[..2],
        [format!("+{with} payload=I64(2)"), format!("+{without} payload=I64(2)")]
    );
    assert_eq!(stays.iter().filter(|line| *line == "<s").count(), 2);
    let open = stays.iter().fold(0, |open, line| match line.as_bytes()[0] {
        b'+' => open + 1,
        b'-' => open - 1,
        _ => open,
    });
    assert_eq!(open, 0, "{stays:?}");
}

#[test]
fn fields_set_before_attach_reach_a_late_observer() {
    let watching = watch();
    watching.look(false);
    run_with(NvtxLayer::new().domains(false), || {
        let span = span!(Level::INFO, "s", nvtx.color = 1, nvtx.payload = tracing::field::Empty);
        span.record("nvtx.payload", 1);
        watching.look(true);
        span.in_scope(|| ());
    });
    assert_eq!(watching.take_lines(), ["+s color=ff000001 payload=I64(1)", "-s"]);
}

#[test]
fn observer_switched_off_within_a_span_receives_its_end() {
    let watching = watch();
    run_with(NvtxLayer::new().domains(false), || {
        let (outer, inner) = (span!(Level::INFO, "outer"), span!(Level::INFO, "inner"));
        let stay = outer.enter();
        watching.look(false);
        // The same span once more, and another: neither is seen, and neither ends what is.
        outer.in_scope(|| inner.in_scope(|| ()));
        assert_eq!(watching.take_lines(), ["+outer"]);
        watching.look(true);
        inner.in_scope(|| ());
        drop(stay);
    });
    assert_eq!(watching.take_lines(), ["+inner", "-inner", "-outer"]);
}

#[test]
fn span_exited_on_another_thread_ends_no_range() {
    let watching = watch();
    let dispatch = Dispatch::new(registry().with(NvtxLayer::new().domains(false)));
    let (a, b) =
        dispatcher::with_default(&dispatch, || (span!(Level::INFO, "a"), span!(Level::INFO, "b")));
    let id = a.id().unwrap();
    let stay = a.enter();
    worker(move || b.in_scope(|| dispatch.exit(&id)));
    drop(stay);
    assert_eq!(watching.take_lines(), ["+a", "worker: +b", "worker: -b", "-a"]);
}

/// How often spans of each name were entered, and how many events there were, as `tracing` says to any layer.
#[derive(Clone, Default)]
struct Enters(Arc<Mutex<BTreeMap<&'static str, usize>>>);

impl Enters {
    fn count(&self, what: &'static str) {
        *self.0.lock().unwrap().entry(what).or_default() += 1;
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Enters {
    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        self.count(context.span(id).unwrap().name());
    }
    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        self.count("event");
    }
}

#[test]
fn each_poll_of_a_task_is_a_range_of_the_thread_that_polls() {
    const TASKS: usize = 100;
    const STEPS: usize = 4;
    const YIELDS: usize = 5;

    async fn task(meeting: Option<Arc<Barrier>>) {
        // Two tasks that wait for each other are on two workers.
        if let Some(meeting) = meeting {
            meeting.wait();
        }
        for _ in 0..STEPS {
            let step = async {
                for _ in 0..YIELDS {
                    tokio::task::yield_now().await;
                }
                event!(Level::INFO, "stepped");
            };
            step.instrument(span!(Level::INFO, "step")).await;
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
    }

    let watching = watch();
    let enters = Enters::default();
    let layer = NvtxLayer::new().domains(false);
    let dispatch = Dispatch::new(registry().with(layer).with(enters.clone()));
    let meeting = Arc::new(Barrier::new(2));
    let number = AtomicUsize::new(0);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .thread_name_fn(move || format!("worker {}", number.fetch_add(1, Ordering::Relaxed)))
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let spawn = |number| {
            let span = dispatcher::with_default(&dispatch, || span!(Level::INFO, "task"));
            let task = task((number < 2).then(|| meeting.clone()));
            tokio::spawn(task.instrument(span).with_subscriber(dispatch.clone()))
        };
        for task in (0..TASKS).map(spawn).collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
    drop(runtime);

    let mut threads: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut seen = BTreeMap::<_, usize>::new();
    for line in watching.take_lines() {
        let (thread, what) = line.split_once(": ").expect("all runs on workers");
        let open = threads.entry(thread.to_owned()).or_default();
        let (kind, name) = what.split_at(1);
        match kind {
            "+" => {
                let around = open.last().map(String::as_str);
                assert_eq!(around, (name == "step").then_some("task"), "{line}");
                open.push(name.to_owned());
            }
            "-" => {
                assert_eq!(open.pop().as_deref(), Some(name), "{line}");
                continue;
            }
            _ => {
                assert_eq!(
                    (open.last().map(String::as_str), name),
                    (Some("step"), "stepped"),
                    "{line}"
                );
            }
        }
        let counted = if kind == "!" { "event" } else { name };
        *seen.entry(counted.to_owned()).or_default() += 1;
    }
    assert!(threads.values().all(Vec::is_empty), "{threads:?}");
    assert!(threads.len() > 1, "one worker did it all");
    // A future is entered at each poll, and once more to be dropped.
    assert_eq!(seen["step"], TASKS * STEPS * (YIELDS + 1 + 1));
    assert_eq!(seen["event"], TASKS * STEPS);
    let expected =
        enters.0.lock().unwrap().iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    assert_eq!(seen, expected);
}

#[test]
fn fields_of_spans_are_fields_of_ranges_by_choice() {
    let watching = watch();
    let program = || {
        let span = span!(
            target: "lib", Level::INFO, "batch",
            size = 32u64, shift = -1, rate = 0.5, last = false, name = "train", nvtx.payload = 7,
            shape = ?[2, 3], kernel.name = %"gemm", later = tracing::field::Empty
        );
        span.in_scope(|| ());
    };
    let seen = |wanted| {
        run_with(NvtxLayer::new().domains(false).fields(wanted), program);
        watching.take_lines().swap_remove(0)
    };
    let plain = "size=U64(32) shift=I64(-1) rate=F64(0.5) last=Bool(false) name=Str(\"train\")";
    assert_eq!(seen(SpanFields::None), "+batch payload=I64(7)");
    assert_eq!(seen(SpanFields::Plain), format!("+batch payload=I64(7) {plain}"));
    let formatted = r#"shape=Str("[2, 3]") kernel.name=Str("gemm")"#;
    assert_eq!(seen(SpanFields::Formatted), format!("+batch payload=I64(7) {plain} {formatted}"));
}

#[test]
fn fields_recorded_later_belong_to_the_entry_and_to_those_after_it() {
    let watching = watch();
    run_with(NvtxLayer::new().domains(false).fields(SpanFields::Plain), || {
        let span = span!(Level::INFO, "batch", loss = tracing::field::Empty, n = 1u64);
        span.in_scope(|| span.record("loss", 0.5));
        // The value is that of the end, once, however often it was recorded.
        span.in_scope(|| (0..3).for_each(|n| _ = span.record("n", n as u64)));
        // Recorded from within a span inside it.
        let inner = span!(Level::INFO, "inner");
        span.in_scope(|| inner.in_scope(|| span.record("loss", 0.25)));
        // The same value again is none that is new.
        span.in_scope(|| span.record("loss", 0.25));
    });
    assert_eq!(
        watching.take_lines(),
        [
            "+batch n=U64(1)",
            "=batch loss=F64(0.5)",
            "-batch",
            "+batch n=U64(1) loss=F64(0.5)",
            "=batch n=U64(2)",
            "-batch",
            "+batch n=U64(2) loss=F64(0.5)",
            "+inner",
            "-inner",
            "=batch loss=F64(0.25)",
            "-batch",
            "+batch n=U64(2) loss=F64(0.25)",
            "-batch",
        ]
    );
}

#[test]
fn fields_come_with_ranges_that_begin_again_and_with_lives() {
    let watching = watch();
    run_with(NvtxLayer::new().domains(false).fields(SpanFields::Plain).lifetimes(true), || {
        let (a, b) = (span!(Level::INFO, "a"), span!(Level::INFO, "b", n = 1u64));
        let (a, b) = (a.enter(), b.enter());
        drop(a);
        drop(b);
    });
    let b = "b n=U64(1)";
    let expected =
        [">a", &format!(">{b}"), "+a", &format!("+{b}"), "-b", "-a", &format!("+{b}"), "-b"];
    assert_eq!(watching.take_lines()[..8], expected);
}

/// A model as candle has them: each module creates its span with itself and enters it at each pass.
struct Module {
    span: tracing::Span,
    inner: Vec<Module>,
}

impl Module {
    fn new(span: tracing::Span, inner: Vec<Module>) -> Module {
        Module { span, inner }
    }

    fn linear() -> Module {
        // Sites of their own with one name.
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let span = match MADE.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => span!(Level::TRACE, "linear"),
            _ => span!(Level::TRACE, "linear"),
        };
        Module::new(span, vec![])
    }

    fn layer() -> Module {
        let attention = vec![Module::linear(), Module::linear(), Module::linear()];
        let attention = Module::new(span!(Level::TRACE, "attention"), attention);
        Module::new(span!(Level::TRACE, "layer"), vec![attention])
    }

    fn model(layers: usize) -> Module {
        let layers = (0..layers).map(|_| Module::layer()).collect();
        let encoder = Module::new(span!(Level::TRACE, "encoder"), layers);
        Module::new(span!(Level::TRACE, "model"), vec![encoder])
    }

    fn forward(&self) {
        let _entered = self.span.enter();
        self.inner.iter().for_each(Module::forward);
    }
}

/// The paths of the ranges, with how often each began.
fn paths(seen: &[String]) -> BTreeMap<String, u32> {
    let (mut open, mut paths) = (Vec::new(), BTreeMap::new());
    for line in seen {
        match line.split_at(1) {
            ("+", name) => {
                open.push(name.to_owned());
                *paths.entry(open.join("/")).or_default() += 1;
            }
            ("-", name) => assert_eq!(open.pop().as_deref(), Some(name)),
            other => unreachable!("{other:?}"),
        }
    }
    paths
}

#[test]
fn instances_of_a_module_are_numbered_by_their_place_in_the_model() {
    let watching = watch();
    let pass = |model: &Module| {
        // A span for each step is none of a module.
        span!(Level::INFO, "step").in_scope(|| model.forward());
    };
    run_with(NvtxLayer::new().domains(false).instances(true), || {
        let model = Module::model(2);
        (0..3).for_each(|_| pass(&model));
        let layer = |n: usize| format!("step/model/encoder/layer {n}");
        let mut expected = BTreeMap::new();
        for path in ["step", "step/model", "step/model/encoder"] {
            expected.insert(path.to_owned(), 3);
        }
        for n in 0..2 {
            expected.insert(layer(n), 3);
            expected.insert(format!("{}/attention", layer(n)), 3);
            for m in 0..3 {
                expected.insert(format!("{}/attention/linear {m}", layer(n)), 3);
            }
        }
        assert_eq!(paths(&watching.take_lines()), expected);
        // A second model beside the first, and one in place of both.
        let second = Module::model(1);
        pass(&second);
        let seen = paths(&watching.take_lines());
        assert!(seen.contains_key("step/model 1/encoder/layer 0/attention/linear 2"), "{seen:?}");
        drop((model, second));
        pass(&Module::model(2));
        assert_eq!(
            paths(&watching.take_lines()).keys().collect::<Vec<_>>(),
            expected.keys().collect::<Vec<_>>()
        );
    });
    // Without the setting they are one.
    run_with(NvtxLayer::new().domains(false), || Module::model(2).forward());
    assert_eq!(paths(&watching.take_lines())["model/encoder/layer/attention/linear"], 6);
}

#[test]
fn threads_that_enter_a_module_first_agree_on_its_number() {
    let watching = watch();
    let dispatch = Dispatch::new(registry().with(NvtxLayer::new().domains(false).instances(true)));
    let modules = dispatcher::with_default(&dispatch, || {
        (0..8).map(|_| Module::new(span!(Level::TRACE, "block"), vec![])).collect::<Vec<_>>()
    });
    let meeting = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                dispatcher::with_default(&dispatch, || {
                    for module in &modules {
                        meeting.wait();
                        module.forward();
                    }
                });
            });
        }
    });
    let mut counts = BTreeMap::new();
    for line in watching.take_lines().iter().filter(|line| line.starts_with('+')) {
        *counts.entry(line.clone()).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 8, "{counts:?}");
    assert!(counts.values().all(|count| *count == 4), "{counts:?}");
    assert!(counts.keys().all(|name| name.starts_with("+block ")), "{counts:?}");
}

#[test]
fn numbers_are_bounded_and_given_back() {
    let watching = watch();
    run_with(NvtxLayer::new().domains(false).instances(true), || {
        let many = (0..1_100).map(|_| Module::new(span!(Level::TRACE, "one"), vec![]));
        let many: Vec<_> = many.collect();
        many.iter().for_each(Module::forward);
        let seen = paths(&watching.take_lines());
        assert_eq!((seen.len(), seen["one"], seen["one 1023"]), (1_025, 76, 1));
        drop(many);
        let few: Vec<_> = (0..3).map(|_| Module::new(span!(Level::TRACE, "one"), vec![])).collect();
        few.iter().rev().for_each(Module::forward);
        // Of those that were created before it, the last is none of a step.
        assert_eq!(
            paths(&watching.take_lines()).keys().collect::<Vec<_>>(),
            ["one", "one 0", "one 1"]
        );
    });
}

#[test]
fn coverage_names_sites_whose_spans_the_layer_cannot_have() {
    let _watching = watch();
    let mut layer = NvtxLayer::new();
    let coverage = layer.coverage();
    let unused = |coverage: &nvtx::SpanCoverage| {
        let mut names: Vec<_> = coverage.unused().map(|site| site.name()).collect();
        names.retain(|name| name.starts_with("seen "));
        names.sort_unstable();
        names
    };
    let early = || span!(target: "coverage", Level::INFO, "seen early");
    let traced = || span!(target: "coverage", Level::TRACE, "seen filtered");
    // Interested in all levels, so that `tracing` registers sites of each, whatever other tests do.
    let _all_levels = Dispatch::new(registry());
    let span = early();
    let filter = LevelFilter::INFO;
    let subscriber = Dispatch::new(registry().with(filter).with(layer));
    dispatcher::with_default(&subscriber, || {
        span.in_scope(|| ());
        traced().in_scope(|| ());
        assert!(unused(&coverage).contains(&"seen early") && !coverage.has_spans());
        early().in_scope(|| ());
        assert!(!unused(&coverage).contains(&"seen early") && coverage.has_spans());
    });
    assert_eq!(coverage.unknown_entries(), 0);

    // A layer that joins later gets the entries of spans that are there.
    let mut layer = NvtxLayer::new();
    let coverage = layer.coverage();
    let (slot, handle) = reload::Layer::new(None::<NvtxLayer>);
    tracing::subscriber::with_default(registry().with(slot), || {
        let early = span!(target: "coverage", Level::INFO, "seen reloaded");
        handle.reload(Some(layer)).unwrap();
        (0..3).for_each(|_| early.in_scope(|| ()));
        assert_eq!(coverage.unknown_entries(), 3);
        let later = || span!(target: "coverage", Level::INFO, "seen later");
        later().in_scope(|| ());
        // Created on one thread and entered on another.
        let span = later();
        std::thread::scope(|scope| _ = scope.spawn(|| span.in_scope(|| ())));
        assert_eq!(coverage.unknown_entries(), 3);
        assert_eq!(unused(&coverage), ["seen early", "seen filtered", "seen reloaded"]);
    });
}
