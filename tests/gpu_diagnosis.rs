//! Programs that are slow for one known reason, and their cured twins, live: each reason is named first, gone when cured,
//! and the cure, which does what the estimate assumes, brings no more than that. Run with `cargo test --release -p gpu-profiler-tests --test gpu_diagnosis`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // tests

use std::process::ExitCode;

use gpu_profiler_tests::harness;
use gpu_profiler_tests::programs::diseases::{AntiPattern, Program};
use profiler_core::{Profile, Profiler};
use test_support::diseases;

fn main() -> ExitCode {
    harness::run_optimized(&[
        ("every_anti_pattern_has_its_name", every_anti_pattern_has_its_name),
        ("every_anti_pattern_ranks_first_before_and_is_absent_after", every_disease_is_named),
    ])
    .exit_code()
}

fn record(disease: AntiPattern, cured: bool) -> Profile {
    let mut program = Program::new(disease, cured, 0).unwrap();
    program.run(2).unwrap();
    let profiler = Profiler::builder().build().unwrap();
    let (result, profile) = profiler.record(|| program.run(disease.steps())).unwrap();
    result.unwrap();
    profile.health().assert_complete();
    profile
}

fn every_anti_pattern_has_its_name() {
    for (disease, (name, _)) in AntiPattern::ALL.into_iter().zip(diseases::DISEASES) {
        assert_eq!(disease.name(), name);
    }
}

fn every_disease_is_named() {
    let mut wrong = Vec::new();
    for disease in AntiPattern::ALL {
        let [ill, cured] = [false, true].map(|cured| record(disease, cured));
        match diseases::judge(disease.name(), &ill, &cured, 0.04) {
            Ok(outcome) => println!(
                "{disease:<20} cured {:6.2}x, estimated {:6.2}x",
                outcome.gain, outcome.estimate
            ),
            Err(why) => wrong.push(why),
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n\n"));
}
