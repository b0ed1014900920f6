//! Counters over the ranges of a program, with the fake CUPTI.

use cupti::counters::{Measured, RangeProfiler};
use fake_cupti::{Fake, Work};
use nvtx::range;
use profiler_core::Profiler;
use profiler_core::counters::count_ranges;

const METRIC: &str = "fake__0.sum";

fn counter(fake: &Fake, levels: u16) -> RangeProfiler {
    let library = fake.library().unwrap();
    RangeProfiler::builder(&library).metric(METRIC).levels(levels).build().unwrap()
}

fn counts(measured: &Measured) -> Vec<(&str, usize, f64)> {
    let of = |range: cupti::counters::RangeValues<'_>| range.value(METRIC).unwrap();
    measured.ranges().map(|range| (range.name(), range.level(), of(range))).collect()
}

#[test]
fn ranges_of_the_program_are_counted() {
    let fake = Fake::new();
    let profiler = counter(&fake, 2);
    let work = || {
        let _batch = range("batch");
        fake.count(1);
        {
            let _forward = range("forward");
            fake.count(10);
            let _deeper = range("deeper");
            fake.count(100);
        }
        let other = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let _range = range("of another thread");
                    fake.count(1000);
                })
                .join()
        });
        other.unwrap();
    };
    drop(range("before"));
    let measured = count_ranges(&profiler, work).unwrap();
    drop(range("after"));
    assert_eq!(counts(&measured), [("batch", 0, 1111.0), ("forward", 1, 110.0)]);
    assert_eq!((measured.runs(), measured.too_deep()), (2, 1));
    assert!(!fake.counts());
}

#[test]
fn guards_that_end_out_of_order_or_never_are_no_harm() {
    let fake = Fake::new();
    let profiler = counter(&fake, 2);
    let measured = count_ranges(&profiler, || {
        let outer = range("outer");
        let inner = range("inner");
        fake.count(1);
        drop(outer);
        fake.count(10);
        drop(inner);
        std::mem::forget(range("leaked"));
        fake.count(100);
    })
    .unwrap();
    assert_eq!(counts(&measured), [("outer", 0, 1.0), ("inner", 1, 1.0), ("leaked", 0, 100.0)]);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        count_ranges(&profiler, || {
            let _range = range("panics");
            panic!("the work panics");
        })
    }));
    assert!(panicked.is_err() && !fake.counts());
    let again = count_ranges(&profiler, || drop(range("again"))).unwrap();
    assert_eq!(counts(&again), [("again", 0, 0.0)]);
    let error = count_ranges(&profiler, || ()).unwrap_err().to_string();
    assert!(error.contains("opened no range"), "{error}");
}

#[test]
fn recording_and_counting_exclude_each_other() {
    let fake = Fake::new();
    let counter = counter(&fake, 1);
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let ((), profile) = profiler
        .record(|| {
            let error = count_ranges(&counter, || drop(range("x"))).unwrap_err();
            assert!(
                error.is_busy() && error.to_string().contains("either records or counts"),
                "{error}"
            );
            let _range = range("recorded");
            fake.launch(Work::kernel(c"k").taking_ns(10));
        })
        .unwrap();
    assert_eq!(profile.range("recorded").unwrap().kernels(), 1);
    let measured = count_ranges(&counter, || {
        let _range = range("counted");
        let error = profiler.start().unwrap_err();
        assert!(error.is_busy(), "{error}");
        fake.count(3);
    })
    .unwrap();
    assert_eq!(counts(&measured), [("counted", 0, 3.0)]);
    // And each goes on as before.
    let ((), profile) = profiler.record(|| drop(range("again"))).unwrap();
    assert!(profile.range("again").is_some() && profile.range("counted").is_none());
}
