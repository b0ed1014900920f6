//! The reports against what Nsight Systems 2025.3 says of the same capture, cell by cell and in its order: nothing differs.
//! The capture has no managed memory, and nsys no files for nvprof's tables. See `reports_nsys.rs` for what differs on
//! others.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::path::PathBuf;

use profiler_core::Profile;
use profiler_core::reports::{Rule, StatsReport};

fn captures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/captures")
}

fn train() -> Profile {
    Profile::from_nsys(captures().join("train-h200.sqlite")).unwrap()
}

/// nsys's file, of which each ends with an empty line.
fn expected(file: &str) -> String {
    let text = std::fs::read_to_string(captures().join("train-h200").join(file)).unwrap();
    match text.trim_end() {
        "" => String::new(),
        text => text.to_owned() + "\n",
    }
}

/// Lines that differ, at most 10.
fn differences(ours: &str, theirs: &str) -> Vec<String> {
    let mut all = Vec::new();
    if ours.lines().count() != theirs.lines().count() {
        all.push(format!("{} lines, not {}", ours.lines().count(), theirs.lines().count()));
    }
    for (number, (ours, theirs)) in (1..).zip(ours.lines().zip(theirs.lines())) {
        if ours != theirs {
            all.push(format!("line {number}:\n  ours: {ours}\n  nsys: {theirs}"));
        }
    }
    all.truncate(10);
    all
}

#[test]
fn every_report_is_that_of_nsys_in_every_cell() {
    let profile = train();
    let mut found = Vec::new();
    for &report in StatsReport::ALL {
        let file = captures().join("train-h200").join(format!("{report}.csv"));
        if !file.exists() {
            println!("{report}: {:?}", profile.stats(report).skipped());
            continue;
        }
        let (ours, theirs) = (profile.stats(report).csv(), expected(&format!("{report}.csv")));
        let differences = differences(&ours, &theirs);
        if !differences.is_empty() {
            found.push(format!("{report}:\n{}", differences.join("\n")));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n\n"));
}

#[test]
fn every_rule_is_that_of_nsys_in_every_cell() {
    let profile = train();
    let mut found = Vec::new();
    for &rule in Rule::ALL {
        let (ours, theirs) =
            (profile.rules().get(rule).csv(), expected(&format!("rule_{rule}.csv")));
        let differences = differences(&ours, &theirs);
        if !differences.is_empty() {
            found.push(format!("{rule}:\n{}", differences.join("\n")));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n\n"));
}

#[test]
fn a_recording_has_the_same_reports_when_it_was_a_capture() {
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
    let recorded = Profile::load(path).unwrap();
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("reports_quickstart.sqlite");
    recorded.write_nsys(&file, |_| {}).unwrap();
    let captured = Profile::from_nsys(&file).unwrap();
    let mut found = Vec::new();
    for &report in StatsReport::ALL {
        let (ours, theirs) = (recorded.stats(report).csv(), captured.stats(report).csv());
        let differences = differences(&ours, &theirs);
        if !differences.is_empty() {
            found.push(format!("{report}:\n{}", differences.join("\n")));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n\n"));
}
