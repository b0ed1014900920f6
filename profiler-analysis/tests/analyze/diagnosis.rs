//! The diagnosis of recordings: nine programs that are slow for one known reason each, and their cured twins, as they ran
//! on an NVIDIA H200.
use crate::load;
use profiler_analysis::diagnosis::{Bottleneck, FindingKind, Thresholds};
use profiler_analysis::prelude::*;
use profiler_core::Profile;
use test_support::diseases::{DISEASES, FIXES, judge};

/// What two runs of one program differ by; and the cured twin's copies, kernels and waits are not the ill one's to the last
/// microsecond: a copy of what the host has just written takes longer.
const NOISE: f64 = 0.02;

fn pair(name: &str) -> [Profile; 2] {
    ["ill", "cured"].map(|state| {
        let profile = load(&format!("diseases/{name}-{state}"));
        profile.health().assert_complete();
        profile
    })
}

#[test]
fn every_anti_pattern_ranks_first_before_and_is_absent_after() {
    let mut wrong = Vec::new();
    for (name, _) in DISEASES {
        let [ill, cured] = pair(name);
        match judge(name, &ill, &cured, NOISE) {
            Ok(outcome) => println!(
                "{name:<20} cured {:6.2}x, estimated {:6.2}x",
                outcome.gain, outcome.estimate
            ),
            Err(why) => wrong.push(why),
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n\n"));
}

/// The right answer is not luck: a twin in the place of the patient is no patient.
#[test]
fn fixed_program_has_no_finding() {
    for (name, _) in DISEASES {
        let [ill, cured] = pair(name);
        assert!(judge(name, &cured, &ill, NOISE).is_err(), "{name}");
    }
}

/// No default stands on the edge: half as strict or twice as strict, every disease keeps its name.
#[test]
fn names_do_not_hang_on_a_threshold() {
    let named = |ill: &Profile, thresholds: &Thresholds| {
        let diagnosis = ill.diagnosis(thresholds.clone()).run();
        let first = diagnosis.findings().first().map(|finding| finding.kind);
        (diagnosis.verdict().bottleneck, first)
    };
    let plain = Thresholds::new();
    for (name, _) in DISEASES {
        let [ill, _] = pair(name);
        let usual = named(&ill, &plain);
        for factor in [0.5, 1.5] {
            let share = factor * plain.get_verdict_share();
            let bytes = (factor * plain.get_small_copy_bytes() as f64) as u64;
            for other in [
                plain.clone().verdict_share(share),
                plain.clone().small_copy_bytes(bytes),
                plain.clone().finding_share(factor * plain.get_finding_share()),
                plain.clone().least_operations((factor * 10.0) as u64),
                plain.clone().least_repeats((factor * 8.0) as u64),
                plain.clone().least_fill(factor * plain.get_least_fill()),
            ] {
                assert_eq!(named(&ill, &other), usual, "{name} by {other:?}");
            }
        }
    }
}

#[test]
fn steps_and_ranges_match_the_run() {
    for (name, bottleneck) in [
        ("launch-bound", Bottleneck::Launch),
        ("sync-every-kernel", Bottleneck::Synchronization),
        ("tiny-copies", Bottleneck::Synchronization),
    ] {
        let [ill, _] = pair(name);
        let diagnoser = ill.diagnosis(Thresholds::new());
        let steps = diagnoser.steps("step");
        assert_eq!(steps.len(), 5);
        assert!(steps.iter().all(|step| step.bottleneck == Some(bottleneck)), "{name}");
        assert_eq!(diagnoser.range("step").unwrap().bottleneck, Some(bottleneck));
    }
    let [ill, _] = pair("slow-loader");
    assert_eq!(ill.diagnose().findings()[0].path(), Some("step/data loading"));
    let [ill, _] = pair("host-preprocessing");
    assert_eq!(ill.diagnose().findings()[0].path(), Some("step/preprocess"));
}

#[test]
fn evidence_leads_to_the_operations_and_calls() {
    let [ill, _] = pair("tiny-copies");
    let diagnosis = ill.diagnose();
    let found = diagnosis.finding(FindingKind::TinyCopies).unwrap();
    let copies: Vec<_> = found.evidence.operations(&ill).collect();
    assert_eq!(copies.len(), diagnosis.thresholds().get_evidence());
    assert!(copies.iter().all(|copy| copy.as_copy().is_some_and(|copy| copy.bytes() == 256)));
    let [ill, _] = pair("sync-every-kernel");
    let diagnosis = ill.diagnose();
    let evidence = &diagnosis.verdict().cause().unwrap().evidence;
    let waits = evidence.calls(&ill).filter(|call| call.name() == "cuStreamSynchronize").count();
    assert!(
        waits >= 7,
        "{waits} of {:?}",
        evidence.calls(&ill).map(|call| call.name()).collect::<Vec<_>>()
    );
}

#[test]
fn report_shows_a_requested_diagnosis() {
    let [ill, _] = pair("slow-loader");
    let (plain, more) = (ill.to_string(), ill.report_with_findings().to_string());
    let said: Vec<&str> = more.lines().filter(|line| !plain.lines().any(|l| l == *line)).collect();
    assert_eq!(said.len(), 3, "{more}");
    assert!(
        said[0].starts_with(
            "diagnosis: the steady phase of step is data-starved (by the name of range"
        ),
        "{}",
        said[0]
    );
    let first = "  1. GPU idle 30 times while the host loads data, by the range's name, in step/data loading: ";
    assert!(said[1].starts_with("phases: all of the run is steady"), "{}", said[1]);
    assert!(said[2].starts_with(first), "{}", said[2]);
}

/// `cargo test --release -p profiler-core --features analysis --test analyze -- diagnosis:: --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn diagnosis_time_is_bounded() {
    for launches in [10_000, 100_000] {
        let fake = fake_cupti::Fake::new();
        let profiler = profiler_core::Profiler::builder().library(fake.library().unwrap());
        let program = || {
            for n in 0..launches {
                let _step = nvtx::range("step");
                let _part = nvtx::range(if n % 2 == 0 { "even" } else { "odd" });
                fake.launch(fake_cupti::Work::kernel(c"kernel").taking_ns(500));
            }
        };
        let profile = profiler.build().unwrap().record(program).unwrap().1;
        let start = std::time::Instant::now();
        let diagnosis = profile.diagnose();
        let took = start.elapsed();
        println!("{launches} launches in {} ranges: {took:?}", 2 * launches);
        assert_eq!(diagnosis.verdict().operations, launches);
        let start = std::time::Instant::now();
        let steps = profile.diagnosis(Thresholds::new()).steps("step");
        println!("{} steps: {:?}", steps.len(), start.elapsed());
    }
}

#[cfg(feature = "nsys")]
#[test]
fn a_capture_of_nsys_is_diagnosed_too() {
    let profile = crate::captured("train");
    let diagnosis = profile.diagnose();
    // Python's imports, and libraries that load their kernels in the first batch, are start-up.
    let whole = profile.diagnosis(Thresholds::new()).verdict();
    assert_eq!(whole.bottleneck, Some(Bottleneck::Cpu));
    assert_eq!(diagnosis.verdict().phase.as_deref(), Some("Batch *"), "{diagnosis}");
    let first = profile.diagnose_range("Batch 0").unwrap();
    assert_eq!(first.bottleneck, Some(Bottleneck::Launch));
    assert!(diagnosis.ranges().iter().all(|range| range.path.as_deref() != Some("Batch 0")));
    let loading = diagnosis.finding(FindingKind::LazyLoading).unwrap();
    assert_eq!(loading.phase.as_deref(), Some("start-up"));
    assert!(loading.cost.as_millis() > 300, "{loading}");
    assert!(loading.path().unwrap().starts_with("Batch 0"), "{loading}");
}

/// The fix of each program is its first fix before the change, and no longer after it.
#[test]
fn first_fix_is_the_planted_one() {
    for (name, planted) in FIXES {
        let [before, after] = match DISEASES.iter().any(|(of, _)| *of == name) {
            true => pair(name),
            false => ["before", "after"].map(|state| load(&format!("case-studies/{name}-{state}"))),
        };
        let first = |profile: &Profile| profile.diagnose().first().map(|fix| fix.kind);
        assert_eq!(first(&before), Some(planted), "{name}");
        // Products in bf16 keep the GPU busy, too.
        assert!(first(&after) != Some(planted) || name == "bf16", "{name}");
        assert_eq!(before.scorecard().first.map(|fix| fix.kind), Some(planted), "{name}");
    }
}
