//! The change of wall time, what explains it, and what cannot be decided.

use std::time::Duration;

use crate::load;
use fake_cupti::{Fake, Work};
use nvtx::range;
use profiler_analysis::compare::{Compare, Quantity, Side, Undecidable, WallCause, WallChange};
use profiler_analysis::gate::Gate;
use profiler_analysis::{Speed, compare};
use profiler_core::series::{Kind, Metric, Series, Source, Unit};
use profiler_core::{Profile, Profiler};
use test_support::everything;
use test_support::folder::Folder;
use test_support::own_process::of_its_own;
use test_support::relapses::{self, PLANTED};

/// The parts add up to the change within 1 %, and at most 10 % of it is unexplained.
#[track_caller]
fn assert_explained(wall: &WallChange) {
    let (missed, unexplained) = relapses::shares(wall);
    assert!(missed <= 0.01 && unexplained <= 0.1, "{missed} {unexplained}: {wall}");
}

/// Where the recordings of a program are, slow and fast.
fn recordings(name: &str) -> [String; 2] {
    match PLANTED.iter().position(|(of, _)| *of == name).unwrap() {
        0..9 => ["ill", "cured"].map(|state| format!("diseases/{name}-{state}")),
        _ => ["before", "after"].map(|state| format!("case-studies/{name}-{state}")),
    }
}

#[test]
fn relapses_fail_fixes_pass_and_the_planted_cause_is_named() {
    let folder = Folder::new();
    let mut wrong = Vec::new();
    for (name, _) in PLANTED {
        let [slow, fast] = recordings(name).map(|file| vec![load(&file)]);
        match relapses::judge(name, &slow, &fast, &folder.0.join("baseline.json")) {
            Ok(shown) => println!("{name:<20} {shown:?}"),
            Err(why) => wrong.push(why),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Only the program moves the clock: the host's part of a run takes no time of its own.
fn record(program: impl FnOnce(&Fake)) -> Profile {
    let fake = Fake::new();
    fake.stop_clock();
    of_its_own(&everything::record(&fake, || program(&fake)))
}

/// A run of a kernel of so many milliseconds in `step/inner`, which is far longer than the host's part of it.
fn run(kernel_ns: u64) -> Profile {
    record(|fake| {
        let _step = range("step");
        let _inner = range("inner");
        fake.launch(Work::kernel(c"gemm").taking_ns(kernel_ns));
    })
}

fn runs(base_ns: u64, count: u64) -> Vec<Profile> {
    (0..count).map(|at| run(base_ns + at * 7 % 5 * base_ns / 1000)).collect()
}

#[test]
fn single_runs_decide_beyond_the_assumed_variation() {
    let second = 1_000_000_000;
    let slower = compare(&run(second), &run(4 * second));
    let wall = slower.wall();
    assert_eq!(wall.speed, Speed::Slower, "{wall}");
    assert!((3.9..4.1).contains(&wall.ratio) && !wall.is_measured, "{wall}");
    let explanation = wall.explanation.as_ref().unwrap();
    assert_eq!(explanation.cause, WallCause::Kernels);
    assert_eq!(explanation.path.as_deref(), Some("step/inner"));
    let headline = wall.headline();
    for part in ["slower", "if processes differ by at most 2 %", "kernel time in step/inner"] {
        assert!(headline.contains(part), "{headline}");
    }
    for text in [slower.to_string(), slower.to_markdown(), slower.to_html()] {
        assert!(text.contains("wall time slower"), "{text}");
    }
    // 2 % may be another process.
    let near = compare(&run(second), &run(second + second / 50));
    assert_eq!((near.wall().speed, near.wall().runs_needed), (Speed::Undecided, Some(5)));
    assert!(
        near.wall()
            .headline()
            .contains("5 runs of each would probably decide, each of a process of its own"),
        "{}",
        near.wall()
    );
    let strict =
        Compare::new().run_variation(0.0).between(&run(second), &run(second + second / 33));
    assert_eq!(strict.wall().speed, Speed::Slower, "{}", strict.wall());
}

#[test]
fn several_runs_measure_their_variation() {
    let second = 1_000_000_000;
    let comparison = compare(&runs(second, 6), &runs(second + second / 33, 6));
    let wall = comparison.wall();
    assert!(wall.is_measured && wall.assumed_variation.is_none(), "{wall}");
    assert_eq!((wall.speed, wall.runs), (Speed::Slower, [6, 6]), "{wall}");
    assert_explained(wall);
    let same = compare(&runs(second, 6), &runs(second, 6));
    assert_eq!(same.wall().speed, Speed::Same, "{}", same.wall());
    assert!(same.wall().runs_needed.is_none());
    // A change near the margin takes more runs than there are.
    let near = compare(&runs(second, 6), &runs(second + second / 90, 6));
    assert_eq!(near.wall().speed, Speed::Undecided, "{}", near.wall());
    // `None`: more than are tried, as on a busy machine.
    assert!(near.wall().runs_needed.is_none_or(|runs| runs > 6), "{}", near.wall());
}

#[test]
fn process_is_one_value_for_any_number_of_runs() {
    let second = 1_000_000_000;
    let in_process = |runs: &[Profile], id: u32| -> Vec<Profile> {
        let moved = runs.iter().map(|run| {
            let recording = run.recording().unwrap().clone();
            let mut info = recording.info().clone();
            info.process_id = Some(id);
            Profile::from_recording(recording.with_info(info))
        });
        moved.collect()
    };
    // Thirty runs of one process do not show how processes differ.
    let (before, after) = (runs(second, 30), runs(second + second / 50, 30));
    let comparison = compare(&in_process(&before, 7_000), &in_process(&after, 7_001));
    let wall = comparison.wall();
    assert_eq!((wall.runs, wall.processes), ([30, 30], [1, 1]), "{wall}");
    assert!(!wall.is_measured && wall.speed == Speed::Undecided, "{wall}");
    assert!(wall.headline().contains("30 runs of one process and 30 of one process"), "{wall}");
    // Of as many processes they do.
    assert_eq!(compare(&before, &after).wall().speed, Speed::Slower);
    // What the host does is assumed to differ by half, what the GPU does by 2 %.
    let on_host = |ms| {
        record(|fake| {
            let _step = range("step");
            fake.advance_clock(std::time::Duration::from_millis(ms));
            fake.launch(Work::kernel(c"gemm").taking_ns(1_000));
        })
    };
    let wall = compare(&on_host(20), &on_host(26)).wall().clone();
    assert!(wall.assumed_variation.unwrap() > 0.49 && wall.speed == Speed::Undecided, "{wall}");
    let slower = compare(&on_host(20), &on_host(42));
    assert_eq!(slower.wall().speed, Speed::Slower, "{}", slower.wall());
}

#[test]
fn paired_comparison_cancels_drift() {
    let second = 1_000_000_000;
    // The machine gets slower from pair to pair, the program by 3 % within each.
    let drifting = |factor: u64| -> Vec<Profile> {
        (0..8).map(|at| run(second * (100 + factor) / 100 + at * second / 20)).collect()
    };
    let (before, after) = (drifting(0), drifting(4));
    let unpaired = compare(&before, &after);
    assert_eq!(unpaired.wall().speed, Speed::Undecided, "{}", unpaired.wall());
    let paired = Compare::new().paired(true).between(&before, &after);
    let wall = paired.wall();
    assert!(wall.speed == Speed::Slower && wall.is_measured && wall.is_paired, "{wall}");
    assert!((1.02..1.041).contains(&wall.ratio), "{wall}");
    assert!(wall.headline().contains("8 pairs of runs"), "{wall}");
    assert_explained(wall);
    // Fewer do not show how pairs vary.
    let few = Compare::new().paired(true).between(&before[..5], &after[..5]);
    assert_eq!(
        (few.wall().is_measured, few.wall().runs_needed),
        (false, Some(8)),
        "{}",
        few.wall()
    );
    let uneven = Compare::new().paired(true).between(&before, &after[..7]);
    assert_eq!(uneven.wall().undecidable, Some(Undecidable::NoPairs { before: 8, after: 7 }));
    assert!(uneven.wall().headline().contains("which are no pairs"), "{}", uneven.wall());
}

/// Steps of a kernel of a second.
fn steps(range_name: &'static str, kernel: &'static std::ffi::CStr, count: usize) -> Profile {
    record(|fake| {
        for _ in 0..count {
            let _step = range(range_name);
            fake.launch(Work::kernel(kernel).taking_ns(1_000_000_000));
        }
    })
}

#[test]
fn runs_of_different_programs_or_of_different_work_are_undecided() {
    let step = |count| steps("step", c"gemm", count);
    let why = |before: &[Profile], after: &[Profile]| {
        let comparison = compare(before, after);
        let wall = comparison.wall();
        assert_eq!((wall.speed, wall.runs_needed), (Speed::Undecided, None), "{wall}");
        assert!(wall.headline().contains(&wall.undecidable.as_ref().unwrap().to_string()));
        wall.undecidable.clone().unwrap()
    };
    let other = || steps("epoch", c"conv", 2);
    assert_eq!(why(&[step(2)], &[other()]), Undecidable::NothingInCommon);
    assert_eq!(why(&[step(2), other()], &[step(2)]), Undecidable::NothingInCommon);
    // Half the steps in half the time are no improvement.
    let half = Undecidable::OtherWork { range: "step".to_owned(), before: (4, 5), after: (2, 2) };
    assert_eq!(why(&[step(4), step(5)], &[step(2)]), half);
    let any = Compare::new().any_work(true).between(&step(4), &step(2));
    assert_eq!(any.wall().speed, Speed::Faster, "{}", any.wall());
    // A kernel or a range in common is enough, and runs that vary may overlap.
    let renamed = steps("step", c"gemm_v2", 2);
    assert_eq!(compare(&step(2), &renamed).wall().undecidable, None);
    let [mixed, some] = [[step(2), step(3)], [step(3), step(4)]];
    assert_eq!(compare(&mixed[..], &some[..]).wall().undecidable, None);
}

#[test]
fn runs_on_different_devices_are_undecided() {
    let text = |profile: &Profile| {
        let comparison = compare(profile, &load("diseases/slow-loader-ill"));
        comparison.wall().headline()
    };
    // The fake has a device of another name than an H200.
    let profile = record(|fake| {
        for _ in 0..30 {
            let _step = range("step");
            fake.launch(Work::kernel(c"gemm").taking_ns(1_000_000));
        }
    });
    let headline = text(&profile);
    assert!(headline.starts_with("wall time undecided"), "{headline}");
    assert!(headline.contains("the GPUs differ") && headline.contains("NVIDIA H200"), "{headline}");
}

#[test]
fn empty_cut_off_and_missing_runs_are_undecided() {
    let undecidable = |before: &[Profile], after: &[Profile]| {
        let comparison = compare(before, after);
        assert_eq!(comparison.wall().speed, Speed::Undecided, "{}", comparison.wall());
        comparison.wall().undecidable.clone().unwrap()
    };
    assert_eq!(undecidable(&[], &[run(1_000)]), Undecidable::NoRun { side: Side::Before });
    let five_ms = std::time::Duration::from_millis(5);
    let nothing = || record(|fake| fake.advance_clock(five_ms));
    let empty = Undecidable::Nothing { side: Side::After };
    assert_eq!(undecidable(&[run(1_000)], &[nothing()]), empty);
    // Without GPU work on both sides the whole time is the host's.
    let on_host = || {
        record(|fake| {
            let _step = range("step");
            fake.advance_clock(five_ms);
        })
    };
    let comparison = compare(&on_host(), &on_host());
    let wall = comparison.wall();
    assert_eq!((&wall.undecidable, wall.unexplained_ns), (&None, 0.0), "{wall}");
    assert!(wall.contributions.iter().all(|of| of.cause == WallCause::Host), "{wall}");
    // A recording that ends early has a wall time that is not the run's.
    let whole = run(1_000).recording().unwrap().to_bytes();
    let cut = Profile::from_bytes(&whole[..whole.len() - 30]).unwrap();
    assert_eq!(cut.health().losses.truncated, 1);
    let cut_off = Undecidable::CutOff { side: Side::After };
    assert_eq!(undecidable(&[Profile::from_bytes(&whole).unwrap()], &[cut]), cut_off);
}

#[test]
fn idle_time_is_split_by_cause_after_range_times() {
    let [ill, cured] = ["ill", "cured"].map(|state| load(&format!("diseases/slow-loader-{state}")));
    let comparison = compare(&ill, &cured);
    let time_of = |cause| comparison.wall().time_of(cause);
    let sum: f64 = WallCause::ALL.into_iter().map(|cause| time_of(cause)[0]).sum();
    assert!((sum - comparison.wall().before().as_nanos() as f64).abs() < 1.0);
    let [before_ns, after_ns] = time_of(WallCause::Loading);
    assert!(before_ns > 10.0 * after_ns, "{before_ns} {after_ns}");
    let row = |quantity: Quantity| {
        let mut rows = comparison.changes().iter();
        let row = rows.find(|row| &*row.path == "step/data loading" && row.quantity == quantity);
        row.unwrap()
    };
    let host = row(Quantity::HostNs);
    assert!(host.before > 90_000_000 && host.after < host.before / 10, "{host:?}");
    assert!(host.times.unwrap().is_clear && host.times.unwrap().before.count == 30, "{host:?}");
    let busy = comparison.changes().iter().find(|row| row.quantity == Quantity::BusyNs).unwrap();
    assert!(busy.before > 29_000_000 && busy.before < 32_000_000, "30 kernels of 1 ms: {busy:?}");
    let text = comparison.to_string();
    let places = [
        "wall time faster",
        "Wall time by cause:",
        "Time of phases:",
        "Time of the host in ranges",
        "Time on the GPU",
    ]
    .map(|title| text.find(title).unwrap());
    assert!(places.is_sorted(), "{text}");
}

/// A run of a kernel of so many seconds, with a clock of the multiprocessors of so many MHz.
fn at_clock(seconds: u64, mhz: f64) -> Profile {
    let fake = Fake::builder().clock_offset(0).build();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    profiler.start().unwrap();
    {
        let _step = range("step");
        fake.launch(Work::kernel(c"gemm").taking_ns(seconds * 1_000_000_000));
    }
    let recording = profiler.stop_recording().unwrap();
    let metrics = vec![Metric::new("nvml__sm_clock", "SM clock", Unit::Hertz, Kind::State)];
    let mut clock = Series::new(0, Source::Nvml, Duration::from_nanos(1_000_000_000), metrics);
    let start_ns = recording.windows_ns()[0].0;
    for second in 0..=seconds {
        let from_ns = start_ns + second * 1_000_000_000;
        clock.push(from_ns, from_ns + 1_000_000_000, &[mhz * 1e6]).unwrap();
    }
    of_its_own(&Profile::from_recording(recording.with_series(clock)))
}

/// The factors of the clocks.
fn clocks(of: &WallChange) -> serde_json::Value {
    serde_json::to_value(of).unwrap()["clocks"].clone()
}

#[test]
fn clocks_that_differ_widen_the_bounds_by_their_factor() {
    let plain = || at_clock(10, 1980.0);
    let same = compare(&plain(), &at_clock(15, 1980.0));
    assert!(same.clock_warnings().is_empty() && clocks(same.wall()).is_null(), "{}", same.wall());
    assert_eq!(same.wall().speed, Speed::Slower);
    // Half as slow again at two thirds of the clock is what the clock explains.
    let throttled = compare(&plain(), &at_clock(15, 1320.0));
    let wall = throttled.wall();
    assert_eq!(wall.speed, Speed::Undecided, "{wall}");
    let clocks = clocks(wall);
    assert!((clocks["low"].as_f64().unwrap() - 2.0 / 3.0).abs() < 1e-6, "{clocks}");
    assert_eq!(clocks["high"], 1.0);
    assert!(wall.headline().contains("SM clocks included"), "{wall}");
    assert!(throttled.to_string().contains("the SM clock of GPU 0 ran at 1980 MHz before"));
    let kernel = throttled.changes().iter().find(|row| row.kernel.is_some()).unwrap();
    assert!(!kernel.times.unwrap().is_clear, "{kernel:?}");
    // Four times as slow is more than that; and at a higher clock, as slow is no less.
    assert_eq!(compare(&plain(), &at_clock(40, 1320.0)).wall().speed, Speed::Slower);
    assert_eq!(compare(&at_clock(15, 1320.0), &plain()).wall().speed, Speed::Undecided);
    assert_eq!(compare(&at_clock(40, 1320.0), &plain()).wall().speed, Speed::Faster);

    // The same for a gate, whose file keeps the clock.
    let folder = Folder::new();
    let gate = Gate::new(folder.0.join("baseline.json"));
    let of = |seconds, mhz| (0..5).map(|_| at_clock(seconds, mhz)).collect::<Vec<_>>();
    gate.clone().update(true).judge(&of(10, 1980.0)).unwrap();
    let gate = gate.update(false);
    let verdict = gate.judge(&of(13, 1320.0)).unwrap();
    assert!(verdict.is_undecided(), "{verdict}");
    let note = "the SM clock was 1980 MHz for the baseline and is 1320 MHz now";
    assert!(verdict.notes().iter().any(|of| of.contains(note)), "{verdict}");
    assert!(verdict.times().iter().all(|time| time.low < 1.0), "{verdict}");
    let verdict = gate.judge(&of(13, 1980.0)).unwrap();
    assert!(!verdict.is_pass() && !verdict.is_undecided(), "{verdict}");
    let verdict = gate.judge(&of(40, 1320.0)).unwrap();
    assert!(!verdict.is_pass() && !verdict.is_undecided(), "{verdict}");
}
