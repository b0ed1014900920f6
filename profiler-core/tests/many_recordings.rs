//! Ranges, contexts and threads that outlive their recording never count for a range of a later one, however many
//! recordings lie between. What a thread does while it ends is recorded or counted.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use fake_cupti::{Fake, Work};
use nvtx::{process_range, range};
use profiler_core::{Context, Profile, Profiler, Recording, exactly, expect};
use test_support::effort;
use test_support::worker::Worker;

/// After so many recordings the numbers of recordings once repeated. A tenth of them by default.
const RECORDINGS: usize = 4095;

/// Never dropped: threads of any length of life may use it.
fn fake() -> &'static Fake {
    static FAKE: OnceLock<&'static Fake> = OnceLock::new();
    FAKE.get_or_init(|| Box::leak(Box::default()))
}

/// With the process's one collection.
fn profiler() -> (MutexGuard<'static, ()>, Profiler) {
    static COLLECTION: Mutex<()> = Mutex::new(());
    let guard = COLLECTION.lock().unwrap_or_else(PoisonError::into_inner);
    (guard, Profiler::builder().library(fake().library().unwrap()).build().unwrap())
}

#[test]
fn kept_ranges_count_for_no_later_recording() {
    let (fake, (_fake, profiler)) = (fake(), profiler());
    let kept = Arc::new(Mutex::new((Context::default(), None)));
    let [idle, other] = [Worker::new(), Worker::new()];

    profiler.start().unwrap();
    let keeps = kept.clone();
    idle.run(move |guards| {
        guards.push(range("old"));
        *keeps.lock().unwrap() = (Context::capture(), Some(process_range("old process")));
        fake.launch(Work::kernel(c"old"));
    });
    let first = profiler.stop().unwrap();
    assert_eq!(first.range("old").unwrap().kernels(), 1);
    for _ in 1..effort::rounds(RECORDINGS) {
        profiler.start().unwrap();
        profiler.stop_recording().unwrap();
    }

    profiler.start().unwrap();
    let new = range("new");
    let new_process = process_range("new process");
    fake.launch(Work::kernel(c"new"));
    // The thread is in "old" since the first recording.
    idle.run(|_| _ = fake.launch(Work::kernel(c"idle")));
    let keeps = kept.clone();
    other.run(move |_| {
        let (context, ref mut process) = *keeps.lock().unwrap();
        drop(process.take());
        context.run(|| {
            let _inner = range("inner");
            fake.launch(Work::kernel(c"context"));
        });
        Context::join([context, Context::capture()]).run(|| fake.launch(Work::kernel(c"joined")));
    });
    idle.run(|guards| {
        let again = range("again");
        fake.launch(Work::kernel(c"again"));
        guards.clear();
        fake.launch(Work::kernel(c"again"));
        drop(again);
        fake.launch(Work::kernel(c"after"));
    });
    drop(new);
    let profile = profiler.stop().unwrap();
    drop(new_process);
    let context = kept.lock().unwrap().0;

    let kernels = |name: &str| profile.range(name).map(|range| range.kernels());
    assert_eq!(kernels("new"), Some(1));
    assert_eq!(kernels("again"), Some(2));
    assert_eq!(kernels("inner"), Some(1));
    assert_eq!(profile.outside_ranges().kernels, 3, "idle, joined and after");
    assert!(profile.ranges().all(|range| range.parent().is_none()));
    let mut processes = profile.process_ranges();
    assert!(processes.all(|range| range.is_open() && range.name() == "new process"));
    assert_eq!(profile.process_ranges().count(), 1);
    // Nothing of it is silent: the idle thread's call, and the context that was attached and joined.
    let health = profile.health();
    assert_eq!(
        (health.facts.calls_in_earlier_ranges, health.facts.earlier_contexts),
        (1, 2),
        "{health}"
    );
    assert_eq!(
        (health.losses.lost_ranges, health.losses.calls_in_unknown_ranges),
        (0, 0),
        "{health}"
    );
    let replayed = Profile::from_recording(
        Recording::from_bytes(&profile.recording().unwrap().to_bytes()).unwrap(),
    );
    assert_eq!(replayed.health(), health);

    // A summary says the same.
    let idle = Worker::new();
    profiler.start().unwrap();
    idle.run(|guards| guards.push(range("old")));
    profiler.stop_recording().unwrap();
    let summary = profiler.summarize().unwrap();
    idle.run(|_| _ = fake.launch(Work::kernel(c"idle")));
    drop(context.attach());
    let summary = summary.stop().unwrap();
    assert_eq!(summary.outside_ranges().kernels, 1);
    let health = summary.health();
    assert_eq!(
        (health.facts.calls_in_earlier_ranges, health.facts.earlier_contexts),
        (1, 1),
        "{health}"
    );
}

#[test]
fn launch_of_an_ending_thread_is_in_the_profile_or_in_its_health() {
    struct LaunchesLate;
    impl Drop for LaunchesLate {
        fn drop(&mut self) {
            let _late = range("late");
            fake().launch(Work::kernel(c"late"));
        }
    }
    // One of them goes after the thread's logs, whatever the order is.
    thread_local!(static BEFORE: LaunchesLate = const { LaunchesLate });
    thread_local!(static AFTER: LaunchesLate = const { LaunchesLate });
    let (_fake, profiler) = profiler();
    let launches = || {
        BEFORE.with(|_| ());
        std::mem::forget(range("left open"));
        fake().launch(Work::kernel(c"k"));
        AFTER.with(|_| ());
    };
    let record = || std::thread::spawn(launches).join().unwrap();
    let ((), profile) = profiler.record(record).unwrap();
    let health = profile.health();
    assert!(health.losses.unlogged_calls >= 1 && !health.is_complete(), "{health}");
    assert!(health.to_string().contains("calls that could not be logged"), "{health}");
    assert_eq!(profile.calls().count() as u64 + health.losses.unlogged_calls, 3);
    let undecided = expect(&profile).launches(exactly(3)).check().unwrap_err().to_string();
    assert!(undecided.contains("calls could not be logged"), "{undecided}");
    let late = profile.range("late").map_or(0, |range| range.instances());
    assert_eq!(late + health.losses.lost_ranges, 2);
    let left_open = profile.range("left open").unwrap();
    assert!(left_open.kernels() < 3, "{profile}");
}
