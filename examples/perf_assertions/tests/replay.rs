//! On the recording of a training run on an H200: the same everywhere, GPU or not.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::path::Path;
use std::time::Duration;

use gpu_profiler_perf_assertions::lean_batch;
use profiler_core::statistics::Statistic;
use profiler_core::{Profile, at_least, at_most, exactly, expect};

const RECORDING: &[u8] = include_bytes!("../../recordings/quickstart-h200.gpuprof");

fn recorded() -> Profile {
    Profile::from_bytes(RECORDING).unwrap()
}

/// Compares with a file beside this one. `UPDATE_SNAPSHOTS=1` writes it anew.
#[track_caller]
fn assert_snapshot(text: &str, name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert!(text == expected, "{} is no longer what comes out:\n{text}", path.display());
}

#[test]
fn a_batch_keeps_its_budgets() {
    lean_batch(expect(&recorded())).assert();
}

/// Times of a recording stay what they were; of a live run these would need more room.
#[test]
fn batch_time_is_within_its_budget() {
    expect(&recorded())
        .range("batch")
        .gpu_time_of(Statistic::Median, at_most(Duration::from_micros(80)))
        .gpu_time_of(Statistic::Percentile(95.0), at_most(Duration::from_micros(100)))
        .busy_share(at_least(0.3))
        .assert();
}

/// What a broken budget looks like: which ranges, which kernels and calls, what would pass, and the report.
#[test]
fn exceeded_budget_names_its_cause() {
    let violations = expect(&recorded())
        .range("forward")
        .kernels(at_most(80))
        .kernels_named("*sgemm*", at_most(30))
        .range("batch")
        .each()
        .synchronizations(exactly(0))
        .gpu_time(at_most(Duration::from_micros(75)))
        .range("evaluate")
        .kernels(at_most(80))
        .check()
        .unwrap_err();
    assert_snapshot(&format!("{violations}\n"), "too-tight.txt");
}

#[test]
#[should_panic(expected = "kernels: 100, the budget is at most 80; at most 100 would pass")]
fn a_broken_budget_fails_its_test() {
    expect(&recorded()).range("forward").kernels(at_most(80)).assert();
}

/// Names and counts, no times: what the run does is reviewed like code.
#[test]
fn counts_of_a_run_match_its_snapshot() {
    assert_snapshot(&recorded().counts(), "counts.txt");
}
