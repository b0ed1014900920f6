//! Steps of a run of which some are profiled: which steps are in which profile, and what is left on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use cupti::sys::abi::CuptiResult;
use fake_cupti::{Fake, When, Work};
use nvtx::Payload;
use profiler_core::session::{Scheduled, StepAction};
use profiler_core::{Profile, Profiler, Schedule};

/// The fake's collection is the process's, too.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> impl Drop {
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn profiler(fake: &Fake) -> Profiler {
    Profiler::builder().library(fake.library().unwrap()).build().unwrap()
}

/// The steps in a profile: each launched as many kernels as its number says, and one more.
fn steps_in(profile: &Profile) -> Vec<u64> {
    profile.health().assert_complete();
    let number = |range: &profiler_core::Range<'_>| match range.payload() {
        Some(Payload::U64(number)) => number,
        other => panic!("{other:?} is no number of a step"),
    };
    let steps = profile.ranges().filter(|range| range.name() == "step");
    let steps: Vec<(u64, u64)> =
        steps.map(|range| (number(&range), range.inclusive().kernels)).collect();
    assert!(steps.iter().all(|(number, kernels)| *kernels == number + 1), "{steps:?}");
    let kernels: u64 = steps.iter().map(|(_, kernels)| kernels).sum();
    assert_eq!(profile.totals().kernels, kernels);
    steps.into_iter().map(|(number, _)| number).collect()
}

fn work(fake: &Fake, number: u64) {
    (0..=number).for_each(|_| _ = fake.launch(Work::kernel(c"kernel")));
}

/// Runs so many steps; gives after which step which steps came out.
fn run(fake: &Fake, steps: &mut Scheduled, count: u64) -> Vec<(u64, Vec<u64>)> {
    let mut out = Vec::new();
    for _ in 0..count {
        let number = steps.number();
        let expected = matches!(steps.action(), StepAction::WarmUp | StepAction::Active);
        assert_eq!(fake.is_recording(), expected, "in step {number}");
        let ((), profile) = steps.run(|| work(fake, number)).unwrap();
        out.extend(profile.map(|profile| (number, steps_in(&profile))));
    }
    out
}

#[test]
fn a_profile_has_the_active_steps_of_its_cycle() {
    let (_turn, fake) = (turn(), Fake::new());
    let profiler = profiler(&fake);
    let schedule = Schedule::new().wait(1).warmup(1).active(3).repeat(2);
    let mut steps = profiler.schedule(schedule).unwrap();
    let out = run(&fake, &mut steps, 14);
    assert_eq!(out, [(4, vec![2, 3, 4]), (9, vec![7, 8, 9])]);
    assert_eq!((steps.number(), steps.action()), (14, StepAction::Over));
    assert!(!fake.is_recording() && steps.finish().unwrap().is_none());

    let schedule = Schedule::new().skip_first(2).active(2);
    let mut steps = profiler.schedule(schedule).unwrap();
    assert_eq!(run(&fake, &mut steps, 7), [(3, vec![2, 3]), (5, vec![4, 5])]);
    // It ends in the middle: what was active so far, and nothing is left on.
    assert_eq!(steps_in(&steps.finish().unwrap().unwrap()), [6]);
    assert!(!fake.is_recording());

    let mut steps = profiler.schedule(Schedule::default().warmup(2)).unwrap();
    assert_eq!(run(&fake, &mut steps, 6), [(2, vec![2]), (5, vec![5])]);
    assert!(steps.finish().unwrap().is_none());
}

#[test]
fn actions_match_torch() {
    use StepAction::{Active, Over, Wait, WarmUp};
    let actions = |schedule: Schedule, count| {
        (0..count).map(|step| schedule.action(step)).collect::<Vec<_>>()
    };
    let schedule = Schedule::new().skip_first(1).wait(1).warmup(1).active(2).repeat(2);
    let cycle = [Wait, WarmUp, Active, Active];
    let expected = [&[Wait][..], &cycle, &cycle, &[Over, Over]].concat();
    assert_eq!(actions(schedule, 11), expected);
    assert_eq!(actions(schedule.repeat(0), 1001)[1..], cycle.repeat(250));
    assert_eq!(schedule.wait(u64::MAX).action(u64::MAX - 1), Wait);
}

#[test]
fn a_schedule_that_gives_nothing_is_refused() {
    let (_turn, fake) = (turn(), Fake::new());
    let error = profiler(&fake).schedule(Schedule::new().wait(1).active(0)).unwrap_err();
    assert!(error.to_string().contains("active(1)"), "{error}");
}

#[test]
fn schedule_continues_beside_another_session() {
    let (_turn, fake) = (turn(), Fake::new());
    let profiler = profiler(&fake);
    profiler.start().unwrap();
    let mut steps = profiler.schedule(Schedule::new().wait(1).warmup(1).active(1)).unwrap();
    let mut out = Vec::new();
    for number in 0..6 {
        let ((), profile) = steps.run(|| work(&fake, number)).unwrap();
        out.extend(profile.map(|profile| steps_in(&profile)));
    }
    assert_eq!(out, [[2], [5]]);
    let all = profiler.stop().unwrap();
    assert_eq!(steps_in(&all), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_panic_or_a_drop_leaves_nothing_on() {
    let (_turn, fake) = (turn(), Fake::new());
    let profiler = profiler(&fake);
    for steps in 0..3 {
        let schedule = Schedule::new().warmup(1).active(2);
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut of_run = profiler.schedule(schedule).unwrap();
            run(&fake, &mut of_run, steps);
            let _ = of_run.run(|| panic!("planted"));
        }));
        assert!(result.is_err() && !fake.is_recording());
    }
    let ((), profile) = profiler.record(|| work(&fake, 0)).unwrap();
    assert_eq!(profile.totals().kernels, 1);
    // A step that panics and is gone on after counts when it is ended.
    let mut steps = profiler.schedule(Schedule::new().active(2)).unwrap();
    let _ = catch_unwind(AssertUnwindSafe(|| steps.run(|| panic!("planted"))));
    assert_eq!(steps.number(), 0);
    drop(steps);
    assert!(!fake.is_recording());
}

#[test]
fn failed_start_is_reported_once_and_retried_next_cycle() {
    let (_turn, fake) = (turn(), Fake::new());
    let profiler = profiler(&fake);
    let refuse = || fake.fail("cuptiActivityEnable", CuptiResult(999), When::Once);
    // At once.
    refuse();
    assert!(profiler.schedule(Schedule::new().active(2)).is_err());
    // After a wait: that step's end says so.
    let mut steps = profiler.schedule(Schedule::new().wait(1).active(2)).unwrap();
    refuse();
    assert!(steps.step().is_err());
    assert!(!fake.is_recording());
    let rest = (1..6).map(|_| steps.run(|| work(&fake, steps_number())).unwrap().1.is_some());
    let rest: Vec<bool> = rest.collect();
    assert_eq!(rest, [false, false, false, false, true]);
    // After a profile: the profile comes first.
    let mut steps = profiler.schedule(Schedule::new().active(1)).unwrap();
    refuse();
    assert!(steps.step().unwrap().is_some());
    assert!(steps.step().is_err());
    assert!(steps.step().unwrap().is_some());
    // Where no step comes after it, the end says so.
    refuse();
    assert!(steps.step().unwrap().is_some());
    let error = steps.finish().unwrap_err();
    assert!(error.to_string().contains("999"), "{error}");
}

#[test]
fn a_wait_without_end_is_waited_for() {
    let (_turn, fake) = (turn(), Fake::new());
    let schedule = Schedule::new().wait(u64::MAX).warmup(1).active(1);
    let mut steps = profiler(&fake).schedule(schedule).unwrap();
    for _ in 0..3 {
        assert!(steps.step().unwrap().is_none());
    }
    assert!(!fake.is_recording() && steps.finish().unwrap().is_none());
}

fn steps_number() -> u64 {
    0
}
