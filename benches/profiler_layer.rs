//! The cost of `ProfilerLayer` in a session of the fake.
//!
//! Per span and per "stay" as in `nvtx_layer.rs`, beside an `NvtxLayer` whose ranges the same
//! session observes. Also per result, from the session's logs to the subscriber, a cost paid by a
//! thread of the session.
#![allow(clippy::expect_used, reason = "a benchmark that cannot be set up must fail")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use fake_cupti::{Fake, Work};
use nvtx::{NvtxLayer, SpanFields};
use profiler_core::session::LayerGuard;
use profiler_core::{Profiler, ProfilerBuilder, ProfilerLayer};
use tracing::{Dispatch, Level, Subscriber, dispatcher, span};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Layer, registry};

/// A layer that does nothing, as the base cost of any layer.
struct NoLayer;

impl<S: Subscriber> Layer<S> for NoLayer {}

/// The rows of one subscriber. `then` runs every 10,000 iterations and is not timed: no program
/// creates spans endlessly, and removing them from the logs costs more than creating them.
fn rows(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    dispatch: &Dispatch,
    then: impl Fn(),
) {
    let timed = |count: u64, each: &dyn Fn()| {
        let mut total = Duration::ZERO;
        for from in (0..count).step_by(10_000) {
            let start = Instant::now();
            (from..count.min(from + 10_000)).for_each(|_| each());
            total += start.elapsed();
            then();
        }
        total
    };
    dispatcher::with_default(dispatch, || {
        let each = || span!(Level::INFO, "step", batch = black_box(7u64)).in_scope(|| ());
        group.bench_function(format!("span, {name}"), |b| b.iter_custom(|n| timed(n, &each)));
        let span = span!(Level::INFO, "step", batch = 7u64);
        let each = || span.in_scope(|| ());
        group.bench_function(format!("stay, {name}"), |b| b.iter_custom(|n| timed(n, &each)));
    });
}

/// Retains little, as in a long run.
fn profiler(fake: &Fake) -> ProfilerBuilder {
    let library = fake.library().expect("the fake opens");
    Profiler::builder().library(library).keep_last(Duration::from_millis(1))
}

fn layer(fake: &Fake, spans: NvtxLayer) -> (ProfilerLayer, LayerGuard) {
    let layer = ProfilerLayer::builder().profiler(profiler(fake)).spans(spans);
    layer.build().expect("nobody else has the fake")
}

fn layers(c: &mut Criterion) {
    let fake = Fake::new();
    let mut group = c.benchmark_group("profiler_layer");
    rows(&mut group, "a layer that does nothing", &Dispatch::new(registry().with(NoLayer)), || ());
    let session = profiler(&fake).build().expect("the fake opens");
    session.start().expect("nobody else has the fake");
    let nvtx = Dispatch::new(registry().with(NvtxLayer::new()));
    rows(&mut group, "NvtxLayer in a session", &nvtx, || drop(session.restart()));
    drop(session.stop().expect("it runs"));
    for (name, spans) in [
        ("ProfilerLayer without fields", NvtxLayer::new()),
        ("ProfilerLayer", NvtxLayer::new().fields(SpanFields::Plain)),
        ("ProfilerLayer with instances", NvtxLayer::new().instances(true)),
        ("ProfilerLayer with lives", NvtxLayer::new().lifetimes(true)),
    ] {
        let (layer, guard) = layer(&fake, spans);
        let take_out = || guard.flush().expect("it is on");
        rows(&mut group, name, &Dispatch::new(registry().with(layer)), take_out);
        drop(guard);
    }
    results(&mut group, &fake);
    group.finish();
}

/// Runs spans with a kernel each, and measures the time until the last result is delivered.
fn results(group: &mut BenchmarkGroup<'_, WallTime>, fake: &Fake) {
    for (name, events) in [("with no events", false), ("with events", true)] {
        let profiler = profiler(fake).period(Duration::from_secs(3600));
        let layer =
            ProfilerLayer::builder().profiler(profiler).events(events).event_buffer(1 << 24);
        let (layer, guard) = layer.build().expect("nobody else has the fake");
        let dispatch = Dispatch::new(registry().with(layer));
        group.bench_function(format!("result, {name}"), |b| {
            b.iter_custom(|count| {
                dispatcher::with_default(&dispatch, || {
                    for _ in 0..count {
                        let launch = || fake.launch(Work::kernel(c"kernel"));
                        span!(Level::INFO, "step").in_scope(launch);
                    }
                    let start = Instant::now();
                    guard.flush().expect("it is on");
                    start.elapsed()
                })
            });
        });
        let out = guard.results();
        assert_eq!((out.emitted > 0, out.let_go + out.undelivered), (events, 0));
        drop(guard);
    }
}

criterion_group! {
    name = benches;
    config = gpu_profiler_benches::criterion(3);
    targets = layers
}
criterion_main!(benches);
