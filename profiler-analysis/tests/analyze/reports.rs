//! The reports against what Nsight Systems 2025.3 says of the same captures, cell by cell and in its order. Nothing differs
//! but quotes within a cell and what a rule finds twice where processes share correlation ids. See `reports_nsys.rs` for what differs on others.

use crate::{captured, quickstart, rewritten};
use profiler_analysis::prelude::*;
use profiler_analysis::reports::{Rule, StatsReport};

/// A training run of a Python program, and programs of `tests/captures/program.rs`: one process with threads, streams and
/// graphs, the same with graphs as wholes, three processes, and managed memory.
const CAPTURES: [&str; 5] = ["train", "one", "whole-graphs", "family", "managed"];

/// The reports of which nsys wrote no file for a capture.
const WITHOUT_FILE: [&[&str]; 5] =
    [&["um_cpu_page_faults_sum", "um_sum", "um_total_sum"], &[], &[], &[], &[]];

/// nsys's file, of which each ends with an empty line.
fn expected(capture: &str, file: &str) -> String {
    let text =
        std::fs::read_to_string(crate::file(format!("captures/{capture}-h200/{file}"))).unwrap();
    match text.trim_end() {
        "" => String::new(),
        text => text.to_owned() + "\n",
    }
}

/// Lines that differ, at most 10, if any do. nsys leaves quotes within a cell as they are; ours are doubled, so that the file can be
/// read.
fn differences(of: &str, ours: &str, theirs: &str) -> Option<String> {
    let ours = &ours.replace("\"\"", "\"");
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
    (!all.is_empty()).then(|| format!("{of}:\n{}", all.join("\n")))
}

#[test]
fn every_report_matches_nsys_in_every_cell() {
    let mut found = Vec::new();
    for (name, without) in CAPTURES.into_iter().zip(WITHOUT_FILE) {
        let profile = captured(name);
        for &report in StatsReport::ALL {
            if without.contains(&report.name()) {
                continue;
            }
            let (ours, theirs) =
                (profile.stats(report).csv(), expected(name, &format!("{report}.csv")));
            found.extend(differences(&format!("{name}: {report}"), &ours, &theirs));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n\n"));
}

#[test]
fn every_rule_matches_nsys_in_every_cell() {
    let mut found = Vec::new();
    for name in CAPTURES {
        let profile = captured(name);
        for &rule in Rule::ALL {
            let ours = profile.rules().get(rule).csv();
            let mut theirs = expected(name, &format!("rule_{rule}.csv"));
            // nsys finds the calls of copies by correlation id alone: here it has those of both children twice.
            if name.starts_with("family") && rule.name().starts_with("cuda_mem") {
                let mut lines: Vec<&str> = theirs.lines().collect();
                lines.dedup();
                theirs = lines.iter().map(|line| format!("{line}\n")).collect();
            }
            found.extend(differences(&format!("{name}: {rule}"), &ours, &theirs));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n\n"));
}

#[test]
fn a_capture_that_we_wrote_has_the_same_reports() {
    let mut found = Vec::new();
    for name in CAPTURES {
        let read = captured(name);
        let again = rewritten(&read);
        for &report in StatsReport::ALL {
            // Their numbers of ranges are those of the rows of a table, which has marks and domains too.
            if matches!(report, StatsReport::NvtxGpuProjTrace | StatsReport::NvtxPushpopTrace) {
                continue;
            }
            let (ours, theirs) = (again.stats(report).csv(), read.stats(report).csv());
            let theirs = theirs.replace("\"\"", "\"");
            found.extend(differences(&format!("{name}: {report}"), &ours, &theirs));
        }
        for &rule in Rule::ALL {
            let (ours, theirs) = (again.rules().get(rule).csv(), read.rules().get(rule).csv());
            found.extend(differences(&format!("{name}: {rule}"), &ours, &theirs));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n\n"));
}

#[test]
fn reports_of_a_recording_match_those_of_its_capture() {
    let recorded = quickstart();
    let captured = rewritten(&recorded);
    let mut found = Vec::new();
    for &report in StatsReport::ALL {
        let (ours, theirs) = (recorded.stats(report).csv(), captured.stats(report).csv());
        found.extend(differences(report.name(), &ours, &theirs));
    }
    assert!(found.is_empty(), "{}", found.join("\n\n"));
}
