//! The change of wall time, what explains it, and what cannot be decided.

use std::path::Path;

use cupti::fake::{Fake, Work};
use nvtx::range;
use profiler_core::compare::{Compare, Speed, WallCause, WallChange};
use profiler_core::{Profile, Profiler, compare};

fn load(file: &str) -> Profile {
    Profile::load(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings").join(file))
        .unwrap()
}

/// The parts add up to the change within 1 %, and at most 10 % of it is unexplained.
#[track_caller]
fn assert_explained(wall: &WallChange) {
    let sum: f64 = wall.contributions.iter().map(|of| of.change_ns).sum();
    let within = 0.01 * wall.change_ns.abs() + 1.0;
    assert!((sum - wall.change_ns).abs() <= within, "{sum} of {}", wall.change_ns);
    assert!(wall.unexplained_ns.abs() <= 0.1 * wall.change_ns.abs() + 1.0, "{wall}");
    let before: f64 = wall.contributions.iter().map(|of| of.before_ns).sum();
    assert!((before - wall.before_ns).abs() <= 0.01 * wall.before_ns, "{before}: {wall}");
}

/// Programs that are slow for one reason, and the cause that a comparison with their cured twins has to name.
const PLANTED: [(&str, &[WallCause]); 9] = [
    ("launch-bound", &[WallCause::Launching]),
    ("sync-every-kernel", &[WallCause::Waiting]),
    ("pageable-copies", &[WallCause::Copies]),
    ("host-preprocessing", &[WallCause::Host]),
    ("slow-loader", &[WallCause::Loading]),
    ("tiny-copies", &[WallCause::Waiting]),
    // Many small kernels in place of few: they launch and run for longer.
    ("small-gemms", &[WallCause::Kernels, WallCause::Launching]),
    ("tail-effect", &[WallCause::Kernels]),
    ("serial-streams", &[WallCause::Overlap]),
];

#[test]
fn relapses_are_slower_fixes_are_faster_and_the_planted_cause_is_named() {
    let mut wrong = Vec::new();
    for (name, causes) in PLANTED {
        let [ill, cured] =
            ["ill", "cured"].map(|state| load(&format!("diseases/{name}-{state}.gpuprof")));
        for (before, after, speed) in [(&cured, &ill, Speed::Slower), (&ill, &cured, Speed::Faster)]
        {
            let comparison = compare(before, after);
            let wall = comparison.wall();
            assert_explained(wall);
            let cause = wall.explanation.as_ref().map(|explanation| explanation.cause);
            if wall.speed != speed || !cause.is_some_and(|cause| causes.contains(&cause)) {
                wrong.push(format!("{name}, should be {speed} for {causes:?}: {wall}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn case_studies_are_faster_after_and_slower_back() {
    for (name, cause) in [
        ("loader", WallCause::Loading),
        ("bf16", WallCause::Kernels),
        ("optimizer", WallCause::Launching),
    ] {
        let [before, after] =
            ["before", "after"].map(|state| load(&format!("case-studies/{name}-{state}.gpuprof")));
        for (from, to, speed) in
            [(&before, &after, Speed::Faster), (&after, &before, Speed::Slower)]
        {
            let comparison = compare(from, to);
            let wall = comparison.wall();
            assert_explained(wall);
            let explanation = wall.explanation.as_ref().unwrap();
            assert_eq!((wall.speed, explanation.cause), (speed, cause), "{name}: {wall}");
        }
    }
}

fn record(program: impl FnOnce(&Fake)) -> Profile {
    let fake = Fake::new();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let ((), profile) = profiler.record(|| program(&fake)).unwrap();
    profile
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
fn one_run_a_side_decides_what_exceeds_the_assumed_variation() {
    let second = 1_000_000_000;
    let slower = compare(&run(second), &run(4 * second));
    let wall = slower.wall();
    assert_eq!(wall.speed, Speed::Slower, "{wall}");
    assert!((3.9..4.1).contains(&wall.ratio) && !wall.is_measured, "{wall}");
    let explanation = wall.explanation.as_ref().unwrap();
    assert_eq!(explanation.cause, WallCause::Kernels);
    assert_eq!(explanation.path.as_deref(), Some("step/inner"));
    let headline = wall.headline();
    for part in ["slower", "if runs vary by at most 5 %", "kernel time in step/inner"] {
        assert!(headline.contains(part), "{headline}");
    }
    for text in [slower.to_string(), slower.to_markdown(), slower.to_html()] {
        assert!(text.contains("wall time slower"), "{text}");
    }
    // 3 % may be another run.
    let near = compare(&run(second), &run(second + second / 33));
    assert_eq!((near.wall().speed, near.wall().runs_needed), (Speed::Undecided, Some(5)));
    assert!(near.wall().headline().contains("5 runs of each would decide"), "{}", near.wall());
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
    assert!(near.wall().runs_needed.is_some_and(|runs| runs > 6), "{}", near.wall());
}

#[test]
fn what_has_no_wall_time_to_compare_is_undecided_and_says_why() {
    let wall = |before: &[Profile], after: &[Profile]| compare(before, after).wall().clone();
    let none = wall(&[], &[run(1_000)]);
    assert_eq!((none.speed, none.runs), (Speed::Undecided, [0, 1]));
    assert!(none.headline().contains("there is no run on one side"), "{none}");
    // Without GPU work the whole time is the host's.
    let idle = record(|_| std::thread::sleep(std::time::Duration::from_millis(5)));
    let idle = wall(&[idle], &[run(1_000_000_000)]);
    assert_eq!(idle.speed, Speed::Slower, "{idle}");
    assert_explained(&idle);
    // A recording that ends early has a wall time that is not the run's.
    let whole = run(1_000).recording().unwrap().to_bytes();
    let cut = Profile::from_bytes(&whole[..whole.len() - 30]).unwrap();
    assert_eq!(cut.health().truncated, 1);
    let cut = wall(&[Profile::from_bytes(&whole).unwrap()], &[cut]);
    assert_eq!(cut.speed, Speed::Undecided, "{cut}");
    assert!(cut.headline().contains("cut off"), "{cut}");
}
