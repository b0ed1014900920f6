//! The layer for `tracing` where work is launched by whatever thread a task is on, and by the subscriber itself.
#![allow(clippy::unwrap_used, clippy::panic)] // the helpers are tests too

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use fake_cupti::{Fake, Work};
use profiler_core::session::{LayerBuilder, LayerGuard};
use profiler_core::{Profiler, ProfilerLayer};
use test_support::events::{Keeps, Seen, assert_same};
use tracing::{Dispatch, Event, Instrument, Subscriber, info_span};
use tracing_subscriber::layer::Context;
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, registry};

/// For the life of the process: tasks borrow nothing.
static FAKE: LazyLock<&Fake> = LazyLock::new(|| Box::leak(Box::new(Fake::new())));

static TURN: Mutex<()> = Mutex::new(());

fn turn() -> impl Drop {
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn every(period: Duration) -> LayerBuilder {
    let profiler = Profiler::builder().library(FAKE.library().unwrap()).period(period);
    ProfilerLayer::builder().profiler(profiler).lifetimes(true)
}

fn kernel() {
    FAKE.launch(Work::kernel(c"kernel"));
}

/// Gives the thread up, so that another one may go on.
async fn give_way(turns: usize) {
    for _ in 0..turns {
        tokio::time::sleep(Duration::from_micros(200)).await;
        tokio::task::yield_now().await;
    }
}

#[test]
fn task_is_reported_once_with_its_launches_on_any_thread() {
    let (_turn, keeps) = (turn(), Keeps::default());
    // The logs are taken out in the middle of everything.
    let (layer, guard) = every(Duration::from_millis(1)).build().unwrap();
    let dispatch = Dispatch::new(registry().with(layer).with(keeps.clone()));
    let of_threads = dispatch.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .on_thread_start(move || {
            // For the life of the thread.
            std::mem::forget(tracing::dispatcher::set_default(&of_threads));
        })
        .build()
        .unwrap();
    let _default = tracing::dispatcher::set_default(&dispatch);
    let task = |number: u64| async move {
        for _ in 0..number % 5 + 1 {
            kernel();
            give_way(2).await;
            let inner = async {
                kernel();
                give_way(1).await;
                FAKE.launch(Work::host_to_device(number + 1));
            };
            inner.instrument(info_span!("inner")).await;
        }
    };
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            let span = info_span!("task", nvtx.payload = number);
            runtime.spawn(task(number).instrument(span))
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    drop(runtime);
    let profile = guard.finish().unwrap();
    profile.health().assert_complete();
    let seen = keeps.take();
    assert_same(&profile, &seen);
    let (tasks, inner): (Vec<_>, Vec<_>) =
        seen.iter().partition(|seen| seen.text("name") == "task");
    assert_eq!((tasks.len(), inner.len()), (100, 300));
    assert!(inner.iter().all(|seen| (seen.number("kernels"), seen.number("copies")) == (1, 1)));
    // Each task's work is its own, however the threads took turns.
    let mut numbers = BTreeSet::new();
    for task in &tasks {
        let number = task.number("payload");
        let rounds = number % 5 + 1;
        let found = ["kernels", "copies", "copy_bytes"].map(|field| task.number(field));
        assert_eq!(found, [rounds * 2, rounds, rounds * (number + 1)], "{task:?}");
        numbers.insert(number);
    }
    assert_eq!(numbers.len(), 100);
    // They were polled more than once, and on more than one thread.
    assert!(tasks.iter().all(|task| task.number("activations") > 1));
    assert!(tasks.iter().all(|task| task.number("busy_ns") <= task.number("host_ns")));
    let threads: BTreeSet<u32> = profile
        .process_ranges()
        .flat_map(|span| span.activations().map(|stay| stay.thread_id()).collect::<Vec<_>>())
        .collect();
    assert!(threads.len() > 1, "{threads:?}");
}

/// Opens a span and launches within at each event, and asks the guard.
struct Busy {
    guard: Arc<Mutex<Option<LayerGuard>>>,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Busy {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        info_span!("of the event").in_scope(kernel);
        if let Ok(guard) = self.guard.try_lock()
            && let Some(guard) = &*guard
        {
            guard.flush().unwrap();
        }
        if Seen::from_event(event).text("path") == "bad" {
            std::panic::panic_any(Bomb);
        }
    }
}

/// A panic's payload that panics in its turn.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("in the drop of a payload");
    }
}

#[test]
fn a_subscriber_that_makes_spans_or_panics_does_no_harm() {
    let (_turn, keeps) = (turn(), Keeps::default());
    let (layer, guard) = every(Duration::from_millis(1)).build().unwrap();
    let guard = Arc::new(Mutex::new(Some(guard)));
    let busy = Busy { guard: guard.clone() };
    let default = registry().with(layer).with(keeps.clone()).with(busy);
    let default = tracing::subscriber::set_default(default);
    info_span!("bad").in_scope(kernel);
    for _ in 0..20 {
        info_span!("good").in_scope(kernel);
        std::thread::sleep(Duration::from_millis(1));
    }
    let guard = guard.lock().unwrap().take().unwrap();
    guard.flush().unwrap();
    let results = guard.results();
    assert_eq!((results.emitted, results.panicked), (20, 1));
    assert_eq!(results.to_string(), "20 results as events, 1 at which it panicked");
    let profile = guard.finish().unwrap();
    drop(default);
    assert_eq!(keeps.kernels().len(), 21);
    assert!(profile.range("of the event").is_none());
}
