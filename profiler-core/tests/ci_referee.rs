//! Python's junitparser as a referee: it reads our JUnit files and finds in them what is reported.
//!
//! `CI_REFEREES` names the folder that `.ci/fetch-trace-referees` filled. No GPU is needed.
#![allow(clippy::unwrap_used, reason = "the helpers are tests too")]
#![allow(clippy::print_stderr, reason = "a test without the standard harness")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use libtest_mimic::{Arguments, Failed, Trial};
use profiler_base::text::printable;
use profiler_core::testing::ci::{CheckOutcome, CiReport};
use serde_json::Value;
use test_support::ci_reports;
use test_support::folder::Folder;

type Report = fn() -> CiReport;

fn main() {
    let arguments = Arguments::from_args();
    let python = env::var_os("CI_REFEREES").map(|folder| PathBuf::from(folder).join("junitparser"));
    let python = python.filter(|folder| folder.join("complete").exists());
    let reports: [(&str, Report); 3] = [
        ("junitparser_reads_a_report", ci_reports::example),
        ("junitparser_reads_hostile_names", ci_reports::hostile),
        ("junitparser_reads_an_empty_report", || CiReport::new("empty")),
    ];
    let trials = reports.map(|(name, report)| {
        if python.is_none() && !arguments.list {
            eprintln!("{name} is ignored: CI_REFEREES names no folder with junitparser/complete");
        }
        let ignored = python.is_none();
        let python = python.clone();
        let run = move || reads(&python.ok_or("junitparser is not there")?, &report());
        Trial::test(name, run).with_ignored_flag(ignored)
    });
    libtest_mimic::run(&arguments, trials.into()).exit();
}

fn check(is: bool, otherwise: impl Into<String>) -> Result<(), Failed> {
    if is { Ok(()) } else { Err(otherwise.into().into()) }
}

fn reads(python: &Path, report: &CiReport) -> Result<(), Failed> {
    let folder = Folder::new();
    let path = folder.0.join("junit.xml");
    fs::write(&path, report.to_junit())?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ci_referee/read_junit.py");
    let output = Command::new(python.join("bin/python")).arg(script).arg(&path).output()?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    check(output.status.success(), error)?;
    let read: Value = serde_json::from_slice(&output.stdout)?;
    let count = |outcome| report.checks().iter().filter(|check| check.outcome() == outcome).count();
    let expected = [
        ("tests", report.checks().len()),
        ("failures", count(CheckOutcome::Failed)),
        ("errors", count(CheckOutcome::Undecided)),
        ("skipped", count(CheckOutcome::Skipped)),
    ];
    // As written in the suite, and as the referee counts the cases itself.
    for (name, count) in expected {
        for totals in ["written", "counted"] {
            check(read[totals][name] == count, format!("{totals} {name}: {read}"))?;
        }
    }
    let cases = read["cases"].as_array().unwrap();
    check(cases.len() == report.checks().len(), read.to_string())?;
    for (case, of) in cases.iter().zip(report.checks()) {
        let outcome = match of.outcome() {
            CheckOutcome::Passed => "passed",
            CheckOutcome::Failed => "failure",
            CheckOutcome::Undecided => "error",
            _ => "skipped",
        };
        let name = printable(of.name());
        // An empty, a repeated or a huge name is another one.
        let is_name = case["name"].as_str().is_some_and(|read| {
            read.starts_with(&*name) || name.is_empty() || name.chars().count() > 1024
        });
        check(is_name && case["outcome"] == outcome, format!("{case} for {of:?}"))?;
        check(case["classname"] == read["suite"], case.to_string())?;
    }
    Ok(())
}
