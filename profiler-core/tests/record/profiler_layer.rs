//! The layer for `tracing`: what spans came to comes out as events, once each, complete, and as the profile has it.
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fake_cupti::{Fake, Work};
use profiler_core::session::LayerBuilder;
use profiler_core::{Profiler, ProfilerLayer};
use test_support::events::{Keeps, Seen, assert_same, paths};
use tracing::{Dispatch, Level, info_span};
use tracing_subscriber::filter::{EnvFilter, LevelFilter, Targets};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Layer, registry};

/// The fake's collection is the process's, too.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> impl Drop {
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Spans have one event each. No thread takes the logs out meanwhile, but where a test says so.
fn builder(fake: &Fake) -> LayerBuilder {
    every(fake, Duration::from_secs(3600))
}

fn every(fake: &Fake, period: Duration) -> LayerBuilder {
    let profiler = Profiler::builder().library(fake.library().unwrap()).period(period);
    ProfilerLayer::builder().profiler(profiler).lifetimes(true)
}

fn kernel(fake: &Fake) {
    fake.launch(Work::kernel(c"kernel"));
}

#[test]
fn spans_come_out_as_events_when_their_work_is_known() {
    let (_turn, fake, keeps) = (turn(), Fake::new(), Keeps::default());
    let (layer, guard) = builder(&fake).build().unwrap();
    let _default = registry().with(layer).with(keeps.clone()).set_default();
    let step = info_span!("step").entered();
    kernel(&fake);
    {
        let _forward = info_span!(target: "model", "forward").entered();
        kernel(&fake);
        kernel(&fake);
        fake.launch(Work::host_to_device(100));
        fake.launch(Work::memset(64));
        fake.launch(Work::synchronize());
        // Of the program's own, not a span.
        let _range = nvtx::event("range").payload(-1.5).range();
        kernel(&fake);
    }
    info_span!("idle").in_scope(|| ());
    tracing::info!(nvtx.payload = 7, "a mark");
    guard.flush().unwrap();
    let mut seen = keeps.take();
    assert_eq!(seen.remove(0).text("message"), "a mark");
    assert_eq!(seen.len(), 2, "{seen:?}");
    let (range, forward) = (&seen[0], &seen[1]);
    assert_eq!((range.text("path"), range.text("name")), ("step/forward/range", "range"));
    assert_eq!((range.text("payload"), forward.text("payload")), ("-1.5", ""));
    assert_eq!((range.text("domain"), range.number("kernels")), ("", 1));
    assert_eq!((forward.target.as_str(), forward.level), ("gpu_profiler::range", Level::INFO));
    assert_eq!((forward.text("path"), forward.text("name")), ("step/forward", "forward"));
    assert_eq!((forward.text("domain"), forward.text("message")), ("model", "GPU work done"));
    let numbers = ["kernels", "launches", "copies", "copy_bytes", "memsets", "synchronizations"];
    assert_eq!(numbers.map(|field| forward.number(field)), [3, 3, 1, 100, 1, 1]);
    assert_eq!(forward.number("activations"), 1);
    drop(step);
    let result = guard.results();
    assert_eq!((result.emitted, result.let_go, result.undelivered), (2, 0, 0));
    let profile = guard.finish().unwrap();
    let steps = keeps.take();
    assert_eq!(steps.len(), 1);
    assert_eq!((steps[0].text("path"), steps[0].number("kernels")), ("step", 4));

    // As the profile has it.
    profile.health().assert_complete();
    assert_same(&profile, &[seen, steps].concat());
    // None of them is a mark.
    assert_eq!(profile.marks().map(|mark| mark.name()).collect::<Vec<_>>(), ["a mark"]);
}

#[test]
fn spans_that_are_left_in_another_order_are_summed_up_right() {
    let (_turn, fake, keeps) = (turn(), Fake::new(), Keeps::default());
    let (layer, guard) = builder(&fake).build().unwrap();
    let _default = registry().with(layer).with(keeps.clone()).set_default();
    let outer = info_span!("outer").entered();
    kernel(&fake);
    let inner = info_span!("inner").entered();
    kernel(&fake);
    drop(outer);
    // In `inner` alone.
    kernel(&fake);
    drop(inner);
    // Entered within itself: in its sum once.
    let again = info_span!("again");
    again.in_scope(|| again.in_scope(|| kernel(&fake)));
    drop(again);
    let profile = guard.finish().unwrap();
    let seen = keeps.take();
    let of = |name: &str| seen.iter().find(|seen| seen.text("name") == name).unwrap();
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert_eq!((of("outer").number("kernels"), of("outer").number("activations")), (2, 1));
    assert_eq!((of("inner").number("kernels"), of("inner").number("activations")), (2, 2));
    assert_eq!(of("inner").text("path"), "outer/inner");
    assert_eq!((of("again").number("kernels"), of("again").number("activations")), (1, 1));
    assert_eq!(profile.totals().kernels, 4);
}

#[test]
fn by_default_every_entry_of_a_span_has_its_event() {
    let (_turn, fake, keeps) = (turn(), Fake::new(), Keeps::default());
    let profiler = Profiler::builder().library(fake.library().unwrap());
    let (layer, guard) = ProfilerLayer::builder().profiler(profiler).build().unwrap();
    let _default = registry().with(layer).with(keeps.clone()).set_default();
    let span = info_span!("span");
    span.in_scope(|| kernel(&fake));
    span.in_scope(|| (0..2).for_each(|_| kernel(&fake)));
    guard.flush().unwrap();
    assert_eq!(keeps.kernels(), paths(&[("span", 1), ("span", 2)]));
}

#[test]
fn a_result_waits_for_its_work_and_for_its_span() {
    let (_turn, fake, keeps) = (turn(), Fake::new(), Keeps::default());
    let (layer, guard) = every(&fake, Duration::from_millis(1)).build().unwrap();
    let _default = registry().with(layer).with(keeps.clone()).set_default();
    fake.hold_buffers(true);
    let outer = info_span!("outer");
    outer.in_scope(|| info_span!("inner").in_scope(|| kernel(&fake)));
    let (flushes, deadline) = (fake.flushes(), Instant::now() + Duration::from_secs(60));
    let wait_until = |is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(Instant::now() < deadline, "{} flushes", fake.flushes() - flushes);
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    // The thread of the session flushes in vain.
    wait_until(&|| fake.flushes() >= flushes + 10);
    assert_eq!(keeps.take(), []);
    fake.hold_buffers(false);
    // From the thread of the session, with no help.
    let wait = |count: usize| {
        wait_until(&|| keeps.count() >= count);
        keeps.kernels()
    };
    assert_eq!(wait(1), paths(&[("outer/inner", 1)]));
    // The span may be entered again until it is closed.
    guard.flush().unwrap();
    assert_eq!(keeps.take(), []);
    outer.in_scope(|| kernel(&fake));
    drop(outer);
    assert_eq!(wait(1), paths(&[("outer", 2)]));
    // The count follows the event.
    wait_until(&|| guard.results().emitted >= 2);
    assert_eq!(guard.results().emitted, 2);
    drop(guard);
    assert_eq!(keeps.take(), []);
}

#[test]
fn filters_select_ranges_and_results() {
    let (_turn, fake, keeps) = (turn(), Fake::new(), Keeps::default());
    let (layer, guard) = builder(&fake).event_level(Level::DEBUG).build().unwrap();
    let filter = EnvFilter::new("warn,model=info");
    let none = Keeps::default();
    let subscriber = registry()
        .with(layer.with_filter(filter))
        .with(keeps.clone().with_filter(Targets::new().with_target("gpu_profiler", Level::DEBUG)))
        .with(none.clone().with_filter(LevelFilter::INFO));
    let default = subscriber.set_default();
    let work = || {
        let _out = info_span!(target: "other", "out").entered();
        let _in = info_span!(target: "model", "in").entered();
        tracing::debug_span!(target: "model", "detail").in_scope(|| kernel(&fake));
    };
    work();
    let profile = guard.finish().unwrap();
    drop(default);
    assert_eq!(keeps.kernels(), paths(&[("in", 1)]));
    assert_eq!(none.take(), []);
    assert_eq!(profile.roots().map(|root| root.path()).collect::<Vec<_>>(), ["in"]);
}

#[test]
fn results_may_be_chosen_by_domain_and_time_or_left_out() {
    let run = |of: fn(LayerBuilder) -> LayerBuilder| {
        let (fake, keeps) = (Fake::new(), Keeps::default());
        let (layer, guard) = of(builder(&fake)).build().unwrap();
        let _default = registry().with(layer).with(keeps.clone()).set_default();
        info_span!(target: "app::io", "one").in_scope(|| kernel(&fake));
        info_span!(target: "lib", "two").in_scope(|| (0..2).for_each(|_| kernel(&fake)));
        nvtx::range("none").end_after(|| kernel(&fake));
        let profile = guard.finish().unwrap();
        assert_eq!(profile.totals().kernels, 4);
        keeps.kernels()
    };
    let _turn = turn();
    assert_eq!(run(|builder| builder), paths(&[("one", 1), ("two", 2), ("none", 1)]));
    assert_eq!(run(|builder| builder.event_domains("app")), paths(&[("one", 1)]));
    assert_eq!(run(|builder| builder.events(false)), []);
    // A kernel of the fake takes 1 us.
    let least = |builder: LayerBuilder| builder.event_gpu_time(Duration::from_nanos(1500));
    assert_eq!(run(least), paths(&[("two", 2)]));
}

trait EndAfter {
    fn end_after(self, f: impl FnOnce());
}

impl EndAfter for nvtx::Range {
    fn end_after(self, f: impl FnOnce()) {
        f();
        drop(self);
    }
}

#[test]
fn results_without_a_subscriber_are_counted() {
    let (_turn, fake, keeps) = (turn(), Fake::new(), Keeps::default());
    let (layer, guard) = every(&fake, Duration::from_millis(1)).build().unwrap();
    nvtx::range("early").end_after(|| kernel(&fake));
    // Two attempts to emit the result, and those of the session's thread.
    (0..2).for_each(|_| guard.flush().unwrap());
    assert_eq!(guard.results().emitted + guard.results().undelivered, 0);
    let default = registry().with(layer).with(keeps.clone()).set_default();
    guard.flush().unwrap();
    assert_eq!(keeps.kernels(), paths(&[("early", 1)]));
    drop(default);
    nvtx::range("late").end_after(|| kernel(&fake));
    guard.flush().unwrap();
    assert_eq!(keeps.take(), []);
    assert_eq!((guard.results().emitted, guard.results().undelivered), (1, 1));
    assert_eq!(guard.results().to_string(), "1 results as events, 1 without a subscriber");

    // A layer that is never in a subscriber.
    drop(guard);
    let (_layer, guard) = builder(&fake).build().unwrap();
    nvtx::range("range").end_after(|| kernel(&fake));
    let results = |guard: &profiler_core::session::LayerGuard| guard.results().undelivered;
    guard.flush().unwrap();
    assert_eq!(results(&guard), 0);
}

#[test]
fn none_of_many_short_spans_is_missed_while_the_logs_are_taken_out() {
    let (_turn, fake, keeps) = (turn(), Fake::new(), Keeps::default());
    let (layer, guard) = builder(&fake).build().unwrap();
    let dispatch = tracing::Dispatch::new(registry().with(layer).with(keeps.clone()));
    let running = AtomicU32::new(3);
    // The first thread of the session is the first that is read.
    drop(nvtx::range("idle"));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let _default = tracing::dispatcher::set_default(&dispatch);
                for _ in 0..test_support::effort::rounds(5000) {
                    let span = info_span!("span");
                    (0..2).for_each(|_| span.in_scope(|| kernel(&fake)));
                }
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        while running.load(Ordering::Relaxed) != 0 {
            // While these are read, others begin and end: what is read of those is later than what is taken out.
            (0..2000).for_each(|_| drop(nvtx::range("idle")));
            guard.flush().unwrap();
        }
    });
    guard.flush().unwrap();
    let whole = |seen: &Seen| seen.number("activations") == 2 && seen.number("kernels") == 2;
    let seen = keeps.take();
    assert!(seen.iter().all(whole));
    assert_eq!(seen.len(), 3 * test_support::effort::rounds(5000));
    guard.finish().unwrap().health().assert_complete();
}

#[test]
fn the_end_waits_for_no_more_kernels_of_a_graph() {
    let (_turn, fake, keeps) = (turn(), Fake::new(), Keeps::default());
    let (layer, guard) = builder(&fake).build().unwrap();
    let _default = registry().with(layer).with(keeps.clone()).set_default();
    let graph = || fake.launch_graph(&[Work::kernel(c"one"), Work::kernel(c"two")]);
    info_span!("graph").in_scope(graph);
    guard.flush().unwrap();
    // Nothing says yet that there is not a third one.
    assert_eq!(keeps.take(), []);
    guard.finish().unwrap();
    assert_eq!(keeps.kernels(), paths(&[("graph", 2)]));
}

#[test]
fn results_beyond_the_capacity_are_counted_and_reported() {
    let (_turn, fake, keeps) = (turn(), Fake::new(), Keeps::default());
    let (layer, guard) = builder(&fake).event_buffer(3).build().unwrap();
    let _default = registry().with(layer).with(keeps.clone()).set_default();
    for _ in 0..5 {
        info_span!("span").in_scope(|| kernel(&fake));
        nvtx::range("idle").end_after(|| ());
    }
    guard.flush().unwrap();
    let seen = keeps.take();
    assert_eq!(seen.iter().filter(|seen| seen.text("path") == "span").count(), 3);
    let reported: Vec<_> = seen.iter().filter(|seen| seen.target == "gpu_profiler::lost").collect();
    assert_eq!((reported.len(), seen.len()), (1, 4));
    assert_eq!((reported[0].level, reported[0].number("ranges")), (Level::WARN, 2));
    assert_eq!(guard.results().to_string(), "3 results as events, 2 let go");
    // It is reported once.
    guard.flush().unwrap();
    assert_eq!(keeps.take(), []);
    assert_eq!(guard.finish().unwrap().range("span").unwrap().kernels(), 5);
}

#[test]
fn guard_snapshots_pauses_and_ends() {
    let (_turn, fake, keeps) = (turn(), Fake::new(), Keeps::default());
    let profiler = Profiler::builder()
        .library(fake.library().unwrap())
        .period(Duration::from_secs(3600))
        .keep_last_operations(5);
    let (layer, guard) = ProfilerLayer::builder().profiler(profiler).build().unwrap();
    let _default = registry().with(layer).with(keeps.clone()).set_default();
    for _ in 0..10 {
        info_span!("step").in_scope(|| (0..3).for_each(|_| kernel(&fake)));
        guard.snapshot().unwrap();
    }
    guard.pause().unwrap();
    info_span!("paused").in_scope(|| kernel(&fake));
    guard.resume().unwrap();
    assert_eq!(keeps.kernels(), vec![("step".to_owned(), 3); 10]);
    // The sums are of all, the profile is of the last part.
    let summary = guard.summary().unwrap();
    let step = summary.find("step").next().unwrap();
    assert_eq!((step.instances(), step.inclusive().kernels), (10, 30));
    let profile = guard.snapshot().unwrap();
    assert!((5..15).contains(&profile.totals().kernels));
    info_span!("last").in_scope(|| kernel(&fake));
    drop(guard);
    assert_eq!(keeps.kernels(), paths(&[("last", 1)]));
    assert!(!fake.is_recording());
    info_span!("after").in_scope(|| kernel(&fake));
    assert_eq!(keeps.take(), []);
}

#[test]
fn results_and_spans_of_many_threads_go_together() {
    let (_turn, fake, keeps) = (turn(), Fake::new(), Keeps::default());
    let (layer, guard) = every(&fake, Duration::from_millis(1)).build().unwrap();
    let dispatch = tracing::Dispatch::new(registry().with(layer).with(keeps.clone()));
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (dispatch, fake) = (&dispatch, &fake);
            scope.spawn(move || {
                let _default = tracing::dispatcher::set_default(dispatch);
                for step in 0..100 {
                    let _step = info_span!("step").entered();
                    (0..=thread).for_each(|_| kernel(fake));
                    if step % 10 == 0 {
                        info_span!("copy").in_scope(|| fake.launch(Work::host_to_device(1)));
                    }
                }
            });
        }
        for _ in 0..20 {
            guard.flush().unwrap();
        }
    });
    let profile = guard.finish().unwrap();
    profile.health().assert_complete();
    let seen = keeps.take();
    assert_same(&profile, &seen);
    let count = |name: &str| seen.iter().filter(|seen| seen.text("name") == name).count();
    assert_eq!((count("step"), count("copy")), (400, 40));
    let kernels: u64 = seen.iter().map(|seen| seen.number("kernels")).sum();
    assert_eq!(kernels, 100 * (1 + 2 + 3 + 4));
}

#[test]
fn without_a_session_spans_are_ranges_of_others() {
    let (_turn, fake) = (turn(), Fake::new());
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let _default = registry().with(ProfilerLayer::without_session()).set_default();
    let span = || info_span!("span").in_scope(|| kernel(&fake));
    let ((), profile) = profiler.record(span).unwrap();
    assert_eq!(profile.range("span").unwrap().kernels(), 1);
    // Without CUPTI the program gets an error.
    drop((profiler, fake));
    let busy = Fake::builder().held_by("another tool").build();
    assert!(builder(&busy).build().unwrap_err().is_busy());
}

/// A model whose modules hold their spans, as those of candle do.
struct Model {
    encoder: tracing::Span,
    layers: Vec<tracing::Span>,
}

impl Model {
    fn new(layers: usize) -> Self {
        let layers = (0..layers).map(|_| tracing::trace_span!(target: "model", "layer")).collect();
        Self { encoder: tracing::trace_span!(target: "model", "encoder"), layers }
    }

    fn forward(&self, fake: &Fake, batch: u64) {
        let _forward = info_span!("forward", batch, scale = 0.5, mode = "train").entered();
        let _encoder = self.encoder.enter();
        for layer in &self.layers {
            layer.in_scope(|| kernel(fake));
        }
    }
}

#[test]
fn spans_that_live_as_long_as_a_model_give_a_complete_profile() {
    let (_turn, fake) = (turn(), Fake::new());
    let run = |of: fn(LayerBuilder) -> LayerBuilder| {
        let profiler = Profiler::builder().library(fake.library().unwrap());
        let (layer, guard) = of(ProfilerLayer::builder().profiler(profiler)).build().unwrap();
        let _default = registry().with(layer).set_default();
        let model = Model::new(3);
        (0..2).for_each(|batch| model.forward(&fake, batch));
        // The model is still there.
        let profile = guard.finish().unwrap();
        assert_eq!((profile.health().facts.open_ranges, profile.process_ranges().count()), (0, 0));
        profile.health().assert_complete();
        profile
    };
    let count = |profile: &profiler_core::Profile, path: &str| {
        profile.range(path).map(|range| (range.instances(), range.kernels()))
    };
    let merged = run(|builder| builder);
    assert_eq!(count(&merged, "forward/encoder/layer"), Some((6, 6)));
    let apart = run(|builder| builder.instances(true));
    for n in 0..3 {
        assert_eq!(count(&apart, &format!("forward/encoder/layer {n}")), Some((2, 2)));
    }
    assert_eq!(count(&apart, "forward/encoder/layer"), None);
}

#[test]
fn fields_of_spans_are_fields_of_ranges_also_in_a_file() {
    let (_turn, fake) = (turn(), Fake::new());
    let (layer, guard) = builder(&fake).fields(nvtx::SpanFields::Formatted).build().unwrap();
    let _default = registry().with(layer).set_default();
    let step = info_span!("step", loss = tracing::field::Empty, shape = ?[2, 3]);
    for n in 0..3 {
        let _step = step.enter();
        Model::new(1).forward(&fake, n);
        // In the snapshot, the value is that of the entry before.
        step.record("loss", f64::from(n as u32));
        let snapshot = guard.snapshot().unwrap();
        let last = snapshot.ranges().filter(|range| range.name() == "step").last().unwrap();
        let before = (n != 0).then(|| nvtx::FieldValue::F64(f64::from(n as u32 - 1)));
        assert_eq!(last.field("loss"), before);
    }
    drop(step);
    let profile = guard.finish().unwrap();
    let recording = profile.recording().unwrap().to_bytes();
    for profile in [profile, profiler_core::Profile::from_bytes(&recording).unwrap()] {
        profile.health().assert_complete();
        let of = |name: &'static str| profile.ranges().filter(move |range| range.name() == name);
        let steps: Vec<_> = of("step").map(|range| range.field("loss").unwrap()).collect();
        assert_eq!(steps, [0.0, 1.0, 2.0].map(nvtx::FieldValue::F64));
        assert_eq!(of("step").next().unwrap().field("shape"), Some("[2, 3]".into()));
        let forward = of("forward").nth(1).unwrap();
        let fields: Vec<_> = forward.fields().map(|field| (field.name, field.value)).collect();
        let expected = [("batch", 1u64.into()), ("scale", 0.5.into()), ("mode", "train".into())];
        assert_eq!(fields, expected);
    }
}

#[test]
fn report_names_a_late_or_filtered_layer() {
    let (_turn, fake) = (turn(), Fake::new());
    let module = || tracing::trace_span!(target: "late", "late module");
    let run = |early: Option<tracing::Span>, filter: LevelFilter| {
        let (layer, guard) = builder(&fake).build().unwrap();
        let coverage = guard.span_coverage();
        let _default = registry().with(layer.with_filter(filter)).set_default();
        early.unwrap_or_else(module).in_scope(|| kernel(&fake));
        let (summary, snapshot) = (guard.summary().unwrap(), guard.snapshot().unwrap());
        let profile = guard.finish().unwrap();
        let counts = |health: &profiler_core::Health| {
            (health.facts.unused_span_sites, health.facts.disabled_span_levels)
        };
        profile.health().assert_complete();
        assert_eq!(counts(profile.health()), counts(summary.health()));
        assert_eq!(counts(profile.health()), counts(snapshot.health()));
        let unused = coverage.unused().filter(|site| site.target() == "late").count();
        (unused, profile)
    };
    // The site is reached while no one listens in this thread; others in this process may be too. Only a level that some subscriber
    // of the process takes is looked at.
    let elsewhere = Dispatch::new(registry());
    let early = module();
    let (unused, profile) = run(Some(early), LevelFilter::TRACE);
    drop(elsewhere);
    assert_eq!((unused, profile.health().facts.disabled_span_levels), (1, 0));
    assert!(profile.health().facts.unused_span_sites >= 1);
    let report = profile.to_string();
    assert!(report.contains("call sites of spans made none: install the layer before"), "{report}");
    assert_eq!(profile.outside_ranges().kernels, 1);

    let (unused, profile) = run(None, LevelFilter::TRACE);
    assert_eq!((unused, profile.range("late module").unwrap().kernels()), (0, 1));

    assert_eq!(profile.health().facts.layers_without_spans, 0);

    let (_, profile) = run(None, LevelFilter::INFO);
    assert_eq!(profile.health().facts.layers_without_spans, 1);
    assert!(profile.to_string().contains("1 layer for which no span was created"));
    assert_eq!(
        (profile.health().facts.disabled_span_levels, profile.outside_ranges().kernels),
        (2, 1)
    );
    assert!(profile.to_string().contains("2 of 5 levels of spans disabled by filters"));
}
