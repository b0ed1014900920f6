//! The cost of the `tracing` layer, compared with a layer that does nothing.
//!
//! Per span (create, enter, exit, close), and per "stay" in an existing span (enter and exit). If
//! `NVTX_INJECTION64_PATH` names a tool's library, the rows are measured with that tool, because a
//! process keeps its tool until it ends. Differences of a few nanoseconds are smaller than the
//! variation of one row between runs. `benches/nvtx-peers` measures the difference in pairs.
#![allow(clippy::expect_used, reason = "a benchmark that cannot be set up must fail")]

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use nvtx::NvtxLayer;
use nvtx::observer::{self, Observer, RangeStart, Switch, Token};
use tracing::{Dispatch, Level, Subscriber, dispatcher, span};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Layer, registry};

/// A layer that does nothing, as the base cost of any layer.
struct NoLayer;

impl<S: Subscriber> Layer<S> for NoLayer {}

/// An observer that does the minimum that shows that it was called.
struct CountingObserver {
    seen: AtomicU64,
}

impl Observer for CountingObserver {
    fn range_start(&self, _: &RangeStart<'_>) -> Token {
        let seen = self.seen.load(Ordering::Relaxed);
        self.seen.store(seen + 1, Ordering::Relaxed);
        Token::new(seen)
    }
    fn range_end(&self, _: Token) {}
}

static OBSERVER: CountingObserver = CountingObserver { seen: AtomicU64::new(0) };

/// The rows of one subscriber.
fn rows(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, dispatch: &Dispatch) {
    dispatcher::with_default(dispatch, || {
        group.bench_function(format!("span, {name}"), |b| {
            b.iter(|| span!(Level::INFO, "step", batch = black_box(7u64)).in_scope(|| ()));
        });
        stays(group, name);
    });
}

/// Measures entries to existing spans of the current subscriber.
fn stays(group: &mut BenchmarkGroup<'_, WallTime>, name: &str) {
    let span = span!(Level::INFO, "step", batch = 7u64);
    group.bench_function(format!("stay, {name}"), |b| b.iter(|| span.in_scope(|| ())));
    let span = span!(Level::INFO, "step", nvtx.color = 0x76b900u32, nvtx.category = "io");
    group.bench_function(format!("stay with details, {name}"), |b| {
        b.iter(|| span.in_scope(|| ()));
    });
}

fn layers(c: &mut Criterion) {
    let mut group = c.benchmark_group("layer");
    let (off, on) = match nvtx::is_attached() {
        false => ("no observer", "an observer"),
        true => ("a tool", "a tool and an observer"),
    };
    // Only entries: without a layer the registry closes no span, and its memory grows.
    let alone = Dispatch::new(registry());
    dispatcher::with_default(&alone, || stays(&mut group, "the registry alone"));
    rows(&mut group, "a layer that does nothing", &Dispatch::new(registry().with(NoLayer)));
    let ours = Dispatch::new(registry().with(NvtxLayer::new()));
    rows(&mut group, &format!("NvtxLayer, {off}"), &ours);
    let switch: Switch = observer::install(&OBSERVER).expect("the slot is free");
    switch.on();
    rows(&mut group, &format!("NvtxLayer, {on}"), &ours);
    switch.off();
    assert!(OBSERVER.seen.load(Ordering::Relaxed) > 0, "the observer saw nothing");
    group.finish();
}

criterion_group! {
    name = benches;
    config = gpu_profiler_benches::criterion(3);
    targets = layers
}
criterion_main!(benches);
