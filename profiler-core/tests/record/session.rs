//! Whole sessions against the fake CUPTI: what a program does comes back in the right ranges, and every fault
//! says what happened.

use std::sync::mpsc;
use std::time::Duration;

use cupti::{ActivityKind, Config};
use fake_cupti::{Fake, Work};
use nvtx::range;
use profiler_analysis::prelude::*;
use profiler_core::profile::{Attribution, Totals};
use profiler_core::{Profile, Profiler};

fn profiler(fake: &Fake) -> Profiler {
    Profiler::builder().library(fake.library().unwrap()).build().unwrap()
}

fn record(fake: &Fake, program: impl FnOnce()) -> Profile {
    let ((), profile) = profiler(fake).record(program).unwrap();
    profile
}

/// One step of a training run: 1 copy in, 3 kernels, 1 memset, 1 copy out, 1 sync.
fn batch(fake: &Fake) {
    let _batch = range("batch");
    {
        let _copy = range("copy to device");
        fake.launch(Work::host_to_device(1000).taking_ns(500));
    }
    {
        let _forward = range("forward");
        fake.launch(Work::kernel(c"gemm").taking_ns(3_000));
        let _relu = range("activation");
        fake.launch(Work::kernel(c"relu").taking_ns(1_000));
    }
    fake.launch(Work::memset(64).taking_ns(100));
    fake.launch(Work::kernel(c"loss").taking_ns(200));
    fake.launch(Work::device_to_host(4).taking_ns(50));
    fake.launch(Work::synchronize());
}

#[test]
fn work_is_attributed_to_the_launching_range() {
    let fake = Fake::new();
    let profile = record(&fake, || (0..20).for_each(|_| batch(&fake)));
    profile.health().assert_complete();

    let batch = profile.range("batch").unwrap();
    assert_eq!(batch.instances(), 20);
    assert_eq!((batch.kernels(), batch.launches(), batch.copies()), (60, 60, 40));
    assert_eq!((batch.inclusive().memsets, batch.inclusive().memset_bytes), (20, 20 * 64));
    assert_eq!(batch.inclusive().copy_bytes, 20 * 1004);
    assert_eq!(batch.synchronizations(), 20);
    assert_eq!(batch.inclusive().gpu_operations(), 120);
    assert_eq!(batch.gpu_time(), Duration::from_nanos(20 * 4_850));
    assert_eq!(batch.exclusive().kernels, 20);
    assert_eq!(batch.exclusive().gpu_time(), Duration::from_nanos(20 * 350));

    let forward = profile.range("forward").unwrap();
    assert_eq!((forward.kernels(), forward.exclusive().kernels), (40, 20));
    assert_eq!(forward.inclusive().kernel_time(), Duration::from_nanos(20 * 4_000));
    assert_eq!(profile.range("batch/forward/activation").unwrap().kernels(), 20);
    assert_eq!(profile.range("forward/activation").unwrap().kernels(), 20);
    assert!(profile.range("batch/activation").is_none() && profile.range("nothing").is_none());
    assert!(profile.range("").is_none() && profile.range("/").is_none());

    let roots: Vec<_> = profile.roots().collect();
    assert_eq!(roots.iter().map(|node| node.path()).collect::<Vec<_>>(), ["batch"]);
    let children: Vec<_> =
        roots[0].children().map(|node| (node.path(), node.instances())).collect();
    assert_eq!(children, [("batch/copy to device".into(), 20), ("batch/forward".into(), 20)]);
    assert_eq!(profile.totals(), roots[0].inclusive());
    assert_eq!(profile.outside_ranges(), Totals::default());

    for kernel in profile.kernels() {
        let expected = match kernel.name() {
            "gemm" => "batch/forward",
            "relu" => "batch/forward/activation",
            "loss" => "batch",
            other => panic!("{other}"),
        };
        assert_eq!(kernel.range().unwrap().node().path(), expected);
        assert_eq!(kernel.attribution(), Attribution::Launch);
        assert_eq!(kernel.call().unwrap().name(), "cuLaunchKernel");
        assert!(kernel.start().unwrap() >= kernel.call().unwrap().start());
    }
    for instance in profile.ranges().filter(|instance| instance.name() == "batch") {
        assert_eq!(instance.inclusive().gpu_operations(), 6);
        assert!(instance.parent().is_none() && !instance.is_open());
    }
}

#[test]
fn work_outside_ranges_is_shown_as_such() {
    let fake = Fake::new();
    let profile = record(&fake, || {
        fake.launch(Work::kernel(c"alone"));
        fake.call_only("cuMemAlloc_v2", 0);
        let _range = range("inside");
        fake.launch(Work::kernel(c"inside"));
    });
    profile.health().assert_complete();
    let outside = profile.outside_ranges();
    assert_eq!((outside.kernels, outside.launches, outside.allocations), (1, 1, 1));
    assert_eq!(profile.totals().kernels, 2);
    let alone = profile.kernels().find(|kernel| kernel.name() == "alone").unwrap();
    assert!(alone.range().is_none());
    assert_eq!(alone.attribution(), Attribution::None);
    assert!(profile.to_string().contains("(outside any range)"));
}

#[test]
fn a_range_within_one_of_its_name_counts_once() {
    fn descend(fake: &Fake, depth: u32) {
        let _range = range("recursive");
        fake.launch(Work::kernel(c"k").taking_ns(10));
        if depth > 1 {
            descend(fake, depth - 1);
        }
    }
    let fake = Fake::new();
    let profile = record(&fake, || descend(&fake, 4));
    let summary = profile.range("recursive").unwrap();
    assert_eq!((summary.instances(), summary.kernels(), summary.exclusive().kernels), (4, 4, 4));
    assert_eq!(summary.gpu_time(), Duration::from_nanos(40));
    let outermost = profile.ranges().next().unwrap();
    assert_eq!(summary.host_time(), outermost.host_time());
}

#[test]
fn each_thread_has_its_own_ranges() {
    let fake = Fake::new();
    let profile = record(&fake, || {
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let fake = &fake;
                let thread = std::thread::Builder::new().name(format!("worker {worker}"));
                let work = move || {
                    let _outer = range(&format!("worker {worker}"));
                    for _ in 0..100 * (worker + 1) {
                        let _inner = range("step");
                        fake.launch(Work::kernel(c"k"));
                    }
                };
                thread.spawn_scoped(scope, work).unwrap();
            }
        });
    });
    profile.health().assert_complete();
    for worker in 0..4 {
        let summary = profile.range(&format!("worker {worker}/step")).unwrap();
        assert_eq!(
            (summary.instances(), summary.kernels()),
            (100 * (worker + 1), 100 * (worker + 1))
        );
    }
    assert_eq!(profile.range("step").unwrap().kernels(), 1000);
    let of_worker_2 = profile.ranges().find(|range| range.name() == "worker 2").unwrap();
    assert_eq!(of_worker_2.thread_name(), Some("worker 2"));
    assert!(profile.calls().all(|call| call.range().unwrap().thread_id() == call.thread_id()));
}

#[test]
fn guards_may_be_dropped_in_any_order() {
    let fake = Fake::new();
    let profile = record(&fake, || {
        let outer = range("outer");
        let inner = range("inner");
        drop(outer);
        fake.launch(Work::kernel(c"in inner"));
        drop(inner);
        fake.launch(Work::kernel(c"in none"));
    });
    profile.health().assert_complete();
    assert_eq!(profile.range("inner").unwrap().exclusive().kernels, 1);
    assert_eq!(profile.outside_ranges().kernels, 1);
}

#[test]
fn names_are_compared_by_content() {
    let fake = Fake::new();
    let profile = record(&fake, || {
        let mut name = String::new();
        for i in 0..100 {
            use std::fmt::Write;
            name.clear(); // the same address, another name
            write!(name, "batch {}", i % 10).unwrap();
            let _range = range(&name);
            fake.launch(Work::kernel(c"k"));
        }
        drop(range(""));
        drop(range("größe/µ"));
    });
    for i in 0..10 {
        assert_eq!(profile.range(&format!("batch {i}")).unwrap().kernels(), 10);
    }
    assert_eq!(profile.range("").unwrap().instances(), 1);
    assert_eq!(profile.range("größe/µ").unwrap().instances(), 1, "a name may hold a slash");
}

#[test]
fn ranges_open_at_the_stop_keep_their_work_and_are_counted() {
    let fake = Fake::new();
    let profiler = profiler(&fake);
    profiler.start().unwrap();
    let open = range("open");
    fake.launch(Work::kernel(c"k"));
    let profile = profiler.stop().unwrap();
    assert_eq!(profile.range("open").unwrap().kernels(), 1);
    assert_eq!(profile.health().facts.open_ranges, 1);
    profile.health().assert_complete();
    assert!(profile.ranges().next().unwrap().is_open());
    assert!(profile.to_string().contains("1 ranges open at the stop"), "{profile}");

    // The same guard in the next session: its work is outside any range that session knows.
    profiler.start().unwrap();
    fake.launch(Work::kernel(c"k"));
    {
        let _inner = range("inner");
        fake.launch(Work::kernel(c"k"));
    }
    drop(open);
    fake.launch(Work::kernel(c"k"));
    let profile = profiler.stop().unwrap();
    profile.health().assert_complete();
    assert_eq!(
        (profile.outside_ranges().kernels, profile.range("inner").unwrap().kernels()),
        (2, 1)
    );
    assert!(profile.range("open").is_none());
}

#[test]
fn a_panic_in_a_range_ends_it() {
    let fake = Fake::new();
    let profile = record(&fake, || {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _range = range("doomed");
            fake.launch(Work::kernel(c"k"));
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(caught.is_err());
        fake.launch(Work::kernel(c"k"));
    });
    profile.health().assert_complete();
    assert_eq!(profile.range("doomed").unwrap().kernels(), 1);
    assert_eq!(profile.outside_ranges().kernels, 1);
}

#[test]
fn a_panic_while_recording_ends_the_session() {
    let fake = Fake::new();
    let profiler = profiler(&fake);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = profiler.record(|| std::panic::resume_unwind(Box::new("step failed")));
    }));
    assert!(caught.is_err() && !profiler.is_running() && !fake.is_recording());
    profiler.record(|| ()).unwrap();
}

/// A span with the life of a model is open at every stop. All records are there, so that there is a verdict.
#[test]
fn a_process_range_open_at_the_stop_leaves_the_profile_complete() {
    let fake = Fake::new();
    let profiler = profiler(&fake);
    profiler.start().unwrap();
    let model = nvtx::process_range("model");
    (0..20).for_each(|_| _ = fake.launch(Work::kernel(c"k").taking_ns(1_000_000)));
    let profile = profiler.stop().unwrap();
    drop(model);
    assert_eq!(profile.health().facts.open_ranges, 1);
    profile.health().assert_complete();
    assert!(profile.to_string().contains("complete; 20 records"), "{profile}");
    {
        let verdict = profile.diagnose().verdict().clone();
        assert_eq!(verdict.inconclusive, None, "{verdict}");
        assert!(serde_json::to_value(&verdict).unwrap()["unmatched"].is_null());
    }
}

#[test]
fn a_thread_that_dies_with_open_ranges_loses_nothing() {
    let fake = Fake::new();
    let profile = record(&fake, || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::mem::forget(range("leaked"));
                fake.launch(Work::kernel(c"k"));
            });
        });
    });
    assert_eq!(
        (profile.range("leaked").unwrap().kernels(), profile.health().facts.open_ranges),
        (1, 1)
    );
}

#[test]
fn a_range_that_ends_while_its_thread_is_torn_down_is_no_harm() {
    struct EndsLate(std::cell::RefCell<Option<nvtx::Range>>);
    impl Drop for EndsLate {
        fn drop(&mut self) {
            drop(range("begun in teardown"));
            self.0.take();
        }
    }
    thread_local!(static LATE: EndsLate = const { EndsLate(std::cell::RefCell::new(None)) });
    let fake = Fake::new();
    let profile = record(&fake, || {
        let late = || {
            LATE.with(|late| *late.0.borrow_mut() = Some(range("ends late")));
            fake.launch(Work::kernel(c"k"));
        };
        // Joined, since a scope ends before its threads' locals are gone.
        std::thread::scope(|scope| scope.spawn(late).join().unwrap());
    });
    let health = profile.health();
    assert_eq!(profile.range("ends late").unwrap().kernels(), 1);
    // Depending on which local goes first the range ends, or stays open and the one in teardown is lost: never silent.
    let seen = profile.range("begun in teardown").map_or(0, |summary| summary.instances());
    assert_eq!(seen + health.losses.lost_ranges, 1);
}

#[test]
fn a_profiler_that_runs_is_not_started_again() {
    let fake = Fake::new();
    let profiler = profiler(&fake);
    profiler.start().unwrap();
    let error = profiler.start().unwrap_err();
    assert!(error.is_busy() && error.to_string().contains("already"), "{error}");
    batch(&fake);
    let profile = profiler.stop().unwrap();
    profile.health().assert_complete();
    assert_eq!(profile.range("batch").unwrap().kernels(), 3);
}

#[test]
fn stop_without_start_is_an_error() {
    let fake = Fake::new();
    let profiler = profiler(&fake);
    let error = profiler.stop().unwrap_err();
    assert!(error.is_not_running() && error.to_string().contains("start"), "{error}");
    profiler.record(|| ()).unwrap();
    assert!(profiler.stop().unwrap_err().is_not_running());
}

#[test]
fn start_under_another_subscriber_names_the_other() {
    let fake = Fake::builder().held_by("Nsight Compute").build();
    let profiler = profiler(&fake);
    let error = profiler.start().unwrap_err();
    assert!(error.is_busy() && error.to_string().contains("Nsight Compute"), "{error}");
    assert!(!profiler.is_running());
    batch(&fake); // the program goes on
}

#[test]
fn building_without_a_gpu_names_the_missing_part() {
    match Profiler::builder().build() {
        Ok(profiler) => assert!(!profiler.library().driver().devices.is_empty()),
        Err(error) => assert!(error.is_unavailable() && !error.is_busy(), "{error}"),
    }
}

#[test]
fn a_session_may_start_and_stop_on_different_threads() {
    let fake = Fake::new();
    let profiler = std::sync::Arc::new(profiler(&fake));
    let (stop, stopped) = mpsc::channel();
    let remote = profiler.clone();
    let controller = std::thread::spawn(move || {
        remote.start().unwrap();
        stop.send(()).unwrap();
        remote
    });
    stopped.recv().unwrap();
    batch(&fake);
    controller.join().unwrap();
    assert_eq!(profiler.stop().unwrap().range("batch").unwrap().kernels(), 3);
}

#[test]
fn dropping_a_running_profiler_frees_the_place() {
    let fake = Fake::new();
    let lost = profiler(&fake);
    lost.start().unwrap();
    let open = range("open while dropped");
    drop(lost);
    drop(open);
    assert!(!fake.is_recording());
    let profile = record(&fake, || batch(&fake));
    profile.health().assert_complete();
    assert!(profile.range("open while dropped").is_none());
}

#[test]
fn every_loss_shows_in_health_and_report() {
    let fake = Fake::new();
    // Those made from calls cannot be lost.
    let config = Config::new().synchronizations_from_calls(false);
    let builder = Profiler::builder().library(fake.library().unwrap()).config(config);
    let program = || {
        fake.drop_records(3);
        fake.launch(Work::kernel(c"fine"));
        fake.raw_record(ActivityKind::STREAM, 24);
        fake.unseen(&Work::kernel(c"no call"));
        fake.unseen(&Work::host_to_device(8));
        fake.call_only("cuLaunchKernel", 0); // expects a kernel
        fake.call_only("cuStreamSynchronize", 0); // expects a record
        fake.call_only("cuLaunchKernel", 700);
        fake.capture(&Work::kernel(c"captured"));
        fake.launch(Work::memset(0));
        fake.call_only("cuStreamQuery", 600);
        fake.lose_timestamps();
        fake.launch(Work::kernel(c"timeless"));
        fake.reverse_timestamps();
        fake.launch(Work::kernel(c"backwards"));
        fake.raw_record(ActivityKind(99), 128);
    };
    let ((), profile) = builder.build().unwrap().record(program).unwrap();
    let health = profile.health();
    assert!(!health.is_complete());
    assert_eq!(health.losses.dropped_by_cupti, 3);
    assert_eq!((health.accounts.kernels.records, health.accounts.kernels.matched_records), (4, 3));
    assert_eq!((health.accounts.kernels.calls, health.accounts.kernels.matched_calls), (4, 3));
    assert_eq!((health.accounts.copies.records, health.accounts.copies.matched_records), (1, 0));
    assert_eq!(
        (health.accounts.synchronizations.calls, health.accounts.synchronizations.matched_calls),
        (1, 0)
    );
    assert_eq!(
        (health.accounts.memsets.calls, health.facts.failed_calls, health.facts.captured_calls),
        (0, 1, 1)
    );
    assert_eq!((health.losses.zero_timestamps, health.losses.unreadable_bytes >= 128), (2, true));
    assert_eq!((health.facts.unused_records, health.losses.unknown_records), (1, 0));
    let report = profile.to_string();
    for part in [
        "INCOMPLETE",
        "kernels 3 of 4 records and 3 of 4 calls",
        "3 records dropped by CUPTI",
        "2 operations without timestamps",
        "1 failed calls",
        "1 calls captured into graphs",
    ] {
        assert!(report.contains(part), "{part:?} is missing in\n{report}");
    }
    let assertion = std::panic::catch_unwind(|| health.assert_complete()).unwrap_err();
    assert!(assertion.downcast_ref::<String>().unwrap().contains("INCOMPLETE"));
}

#[test]
fn a_graph_launch_gives_its_nodes_to_the_range_of_the_launch() {
    let fake = Fake::new();
    let profile = record(&fake, || {
        {
            let _capture = range("capture");
            fake.capture(&Work::kernel(c"node"));
        }
        let _replay = range("replay");
        for _ in 0..3 {
            fake.launch_graph(&[Work::kernel(c"node"), Work::memset(8), Work::kernel(c"node")]);
        }
    });
    profile.health().assert_complete();
    let replay = profile.range("replay").unwrap();
    assert_eq!((replay.launches(), replay.kernels(), replay.inclusive().memsets), (3, 6, 3));
    let capture = profile.range("capture").unwrap();
    assert_eq!((capture.launches(), capture.kernels()), (0, 0));
}

#[test]
fn a_foreign_clock_is_brought_to_ours() {
    let fake = Fake::builder().clock_offset(-3_000_000).build();
    let profile = record(&fake, || batch(&fake));
    profile.health().assert_complete();
    for operation in profile.operations() {
        let call = operation.call().unwrap();
        let (begun, ended) = (call.start(), call.end().unwrap());
        let started = operation.start().unwrap();
        // The clocks are 3 ms apart.
        let in_time = begun <= started && started < ended + Duration::from_millis(2);
        assert!(in_time, "{begun:?} {started:?} {ended:?}");
    }
}

#[test]
fn fifty_sessions_in_one_process_lose_nothing() {
    let fake = Fake::new();
    let profiler = profiler(&fake);
    for session in 0..50 {
        let ((), profile) = profiler.record(|| (0..10).for_each(|_| batch(&fake))).unwrap();
        profile.health().assert_complete();
        let summary = profile.range("batch").unwrap();
        assert_eq!((summary.instances(), summary.kernels()), (10, 30), "session {session}");
    }
}

#[test]
fn ranges_with_the_least_time_share_a_row_if_there_are_very_many() {
    let fake = Fake::new();
    let profile = record(&fake, || {
        {
            let _compile = range("compile");
            for pass in 0..150 {
                let _pass = range(&format!("pass {pass}"));
                let _inner = range("inner");
            }
        }
        let _step = range("step");
        let _layer = range("layer");
        fake.launch(Work::kernel(c"k"));
    });
    let text = profile.to_string();
    let rows = |part: &str| text.lines().filter(|line| line.contains(part)).count();
    let named: Vec<&str> = text.lines().filter(|line| line.contains("─ pass ")).collect();
    assert_eq!((rows("└─ layer"), rows("compile ")), (1, 1), "{text}");
    // Some may have an own row because of their `inner`.
    assert!((90..=97).contains(&named.len()) && rows("─ inner") == named.len(), "{text}");
    let others: Vec<&str> = text.lines().filter(|line| line.contains(" other ranges)")).collect();
    let [others] = others[..] else { panic!("{text}") };
    let hidden = 150 - named.len();
    assert!(others.contains(&format!("└─ ({} other ranges)", 2 * hidden)), "{text}");
    let sums: Vec<&str> = others.split(')').nth(1).unwrap().split_whitespace().collect();
    assert_eq!(sums[0], hidden.to_string(), "{text}");
    let note = format!("\n{} ranges with the least GPU time and host time have no row", 2 * hidden);
    assert!(text.contains(&note), "{text}");
}

#[test]
fn a_report_of_a_deep_recursion_and_odd_names_is_a_page() {
    let fake = Fake::new();
    let profile = record(&fake, || {
        let mut open: Vec<_> = (0..3_000).map(|_| range("recurse")).collect();
        fake.launch(Work::kernel(c"deep"));
        while open.pop().is_some() {}
        drop(range("a\u{1b}[31mred\0 \u{7}bell"));
        drop(range(&"long ".repeat(1 << 16)));
    });
    profile.health().assert_complete();
    let report = profile.to_string();
    assert!(report.lines().all(|line| line.chars().count() < 400) && report.lines().count() < 60);
    assert!(
        report.contains("(further in)") && report.contains("a\u{fffd}[31mred\u{fffd} \u{fffd}bell"),
        "{report}"
    );
    assert!(!report.chars().any(|c| c.is_control() && c != '\n'));
    // All of it is there to be asked for.
    assert_eq!(profile.range("recurse").unwrap().instances(), 3_000);
    let inner = profile.ranges().find(|range| range.inclusive() == range.node().exclusive());
    assert_eq!(inner.unwrap().node().path().matches("recurse").count(), 3_000);
}
