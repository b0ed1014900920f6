//! A session while it runs: pauses.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use cupti::Config;
use cupti::fake::{Fake, When, Work};
use cupti::sys::abi::CuptiResult;
use nvtx::range;
use profiler_core::Profiler;

fn profiler(fake: &Fake) -> Profiler {
    Profiler::builder().library(fake.library().unwrap()).build().unwrap()
}

fn started(fake: &Fake) -> Profiler {
    let profiler = profiler(fake);
    profiler.start().unwrap();
    profiler
}

fn step(fake: &Fake) {
    let _step = range("step");
    fake.launch(Work::host_to_device(1000));
    fake.launch(Work::kernel(c"gemm"));
    fake.launch(Work::synchronize());
}

#[test]
fn work_in_a_pause_is_not_collected_and_not_missed() {
    let fake = Fake::new();
    let profiler = started(&fake);
    let outer = range("outer");
    step(&fake);
    assert!(!profiler.is_paused());
    for _ in 0..2 {
        profiler.pause().unwrap();
        assert!(profiler.is_paused() && profiler.is_running());
    }
    step(&fake);
    {
        let _paused = range("begun in the pause");
        step(&fake);
        for _ in 0..2 {
            profiler.resume().unwrap();
            assert!(!profiler.is_paused());
        }
        step(&fake);
    }
    drop(outer);
    let profile = profiler.stop().unwrap();
    assert!(!profiler.is_paused());
    profile.health().assert_complete();
    assert_eq!(profile.health().calls_outside, 0);
    let outer = profile.range("outer").unwrap();
    assert_eq!((outer.kernels(), outer.copies(), outer.synchronizations()), (2, 2, 2));
    assert_eq!(profile.range("step").unwrap().instances(), 4, "ranges go on");
    assert_eq!(profile.range("begun in the pause/step").unwrap().kernels(), 1);
    assert_eq!(profile.recording().windows_ns().len(), 2);
}

#[test]
fn a_session_may_begin_in_a_pause_and_end_in_one() {
    let fake = Fake::new();
    let profiler = Profiler::builder()
        .library(fake.library().unwrap())
        .config(Config::new().start_paused(true))
        .build()
        .unwrap();
    profiler.start().unwrap();
    assert!(profiler.is_paused());
    step(&fake);
    profiler.resume().unwrap();
    step(&fake);
    profiler.pause().unwrap();
    step(&fake);
    let profile = profiler.stop().unwrap();
    profile.health().assert_complete();
    assert_eq!((profile.totals().kernels, profile.range("step").unwrap().instances()), (1, 3));
}

#[test]
fn a_pause_or_resume_that_fails_says_so() {
    let fake = Fake::new();
    let profiler = started(&fake);
    step(&fake);
    fake.fail("cuptiActivityFlushAll", CuptiResult::UNKNOWN, When::Once);
    let error = profiler.pause().unwrap_err();
    assert!(error.to_string().contains("cuptiActivityFlushAll"), "{error}");
    assert!(profiler.is_paused(), "all the same");
    fake.fail("cuptiActivityEnable", CuptiResult::UNKNOWN, When::Once);
    assert!(profiler.resume().is_err() && profiler.is_paused());
    profiler.resume().unwrap();
    step(&fake);
    let profile = profiler.stop().unwrap();
    profile.health().assert_complete();
    assert_eq!(profile.totals().kernels, 2);
}

#[test]
fn what_does_not_run_cannot_be_paused() {
    let fake = Fake::new();
    let profiler = profiler(&fake);
    let check = || {
        let errors = [profiler.pause().unwrap_err(), profiler.resume().unwrap_err()];
        assert!(errors.iter().all(|error| error.is_not_running()), "{errors:?}");
        assert!(!profiler.is_paused() && !profiler.is_running());
    };
    check();
    profiler.record(|| step(&fake)).unwrap();
    check();
}
