//! Reports for CI: each format to the letter, hostile names, and what tests write as the environment says.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use fake_cupti::{Fake, Work};
use nvtx::range;
use profiler_analysis::gate::{Gate, Outcome};
use profiler_analysis::prelude::*;
use profiler_core::GpuTest;
use profiler_core::testing::ci::{Check, CheckOutcome, CiReport};
use profiler_core::{Profile, Profiler, at_least, at_most, exactly, expect};
use quick_xml::Reader;
use quick_xml::events::Event;
use serde_json::Value;
use test_support::ci_reports::{NAMES, example, hostile};
use test_support::folder::Folder;
use test_support::own_process::of_its_own;

// --- formats ---

/// Compares with a file in `ci`. `UPDATE_SNAPSHOTS=1` writes it anew.
#[track_caller]
fn assert_snapshot(text: &str, name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ci").join(name);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    assert_eq!(text, expected, "{}", path.display());
}

#[test]
fn each_format_equals_its_file() {
    let report = example();
    assert_snapshot(&report.to_junit(), "junit.xml");
    assert_snapshot(&report.to_github(), "github.txt");
    assert_snapshot(&report.to_markdown(), "summary.md");
    assert_snapshot(&report.to_bencher(), "bencher.json");
    assert_snapshot(&report.to_benchmark_action(), "benchmark-action.json");
}

#[test]
fn empty_report_passes_in_every_format() {
    let report = CiReport::new("nothing");
    assert!(report.is_pass() && report.to_github().is_empty());
    assert_eq!(elements(&report.to_junit()).len(), 2);
    assert!(report.to_markdown().starts_with("### nothing: passed\n"));
    assert_eq!((report.to_bencher().trim(), report.to_benchmark_action().trim()), ("{}", "[]"));
}

/// The elements of an XML document with their attributes. Panics if it is not well-formed.
fn elements(xml: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut reader = Reader::from_str(xml);
    let mut elements = Vec::new();
    loop {
        match reader.read_event().unwrap() {
            Event::Start(tag) | Event::Empty(tag) => {
                let attributes = tag.attributes().map(|attribute| {
                    let attribute = attribute.unwrap();
                    let name = attribute.key.as_ref().to_owned();
                    let value = quick_xml::escape::unescape(&attribute.value).unwrap();
                    (name, value.into_owned())
                });
                let name = tag.name().as_ref().to_owned();
                elements.push((name, attributes.collect()));
            }
            Event::Eof => return elements,
            _ => {}
        }
    }
}

#[test]
fn hostile_names_are_text_in_every_format() {
    let report = hostile();
    let count = report.checks().len();
    let junit = report.to_junit();
    // XML 1.0 has no other characters, escaped or not.
    let is_char = |c: char| matches!(c, '\n' | ' '..='\u{fffd}' | '\u{10000}'..);
    assert!(junit.chars().all(is_char), "{junit}");
    let elements = elements(&junit);
    let cases: Vec<_> = elements.iter().filter(|(name, _)| name == "testcase").collect();
    assert_eq!(cases.len(), count);
    let names: Vec<&str> = cases.iter().map(|(_, attributes)| &*attributes[0].1).collect();
    assert_eq!(names[3..5], [NAMES[3], NAMES[4]], "names without controls are whole");
    let unique: std::collections::HashSet<_> = names.iter().collect();
    assert_eq!(unique.len(), count, "{names:?}");
    let kinds =
        ["testsuites", "testsuite", "testcase", "failure", "error", "skipped", "system-out"];
    assert!(elements.iter().all(|(name, _)| kinds.contains(&&**name)), "{elements:?}");

    let commands = report.to_github();
    assert_eq!(commands.lines().count(), 10, "GitHub shows no more: {commands}");
    for line in commands.split('\n').filter(|line| !line.is_empty()) {
        let (properties, _) = line.strip_prefix("::error ").unwrap().split_once("::").unwrap();
        let keys: Vec<_> =
            properties.split(',').map(|one| one.split_once('=').unwrap().0).collect();
        assert_eq!(keys, ["file", "line", "title"], "{line}");
        assert!(!line.contains(char::is_control) && line.chars().count() < 20_000, "{line}");
    }
    assert!(commands.contains("::2 more checks failed\n"));

    let markdown = report.to_markdown();
    for line in markdown.lines() {
        let is_ours = line.is_empty()
            || line.starts_with("      ")
            || ["### ", "- ", "16 checks: ", "Notes:"].iter().any(|start| line.starts_with(start));
        assert!(is_ours && !line.contains(char::is_control), "{line}");
        let is_code = line.starts_with("      ");
        assert!(is_code || !line.contains(['<', '@']), "{line}");
    }

    let bencher: Value = serde_json::from_str(&report.to_bencher()).unwrap();
    let benchmarks = bencher.as_object().unwrap();
    assert_eq!(benchmarks.len(), count);
    for (name, measures) in benchmarks {
        assert!((1..=1024).contains(&name.chars().count()), "{name}");
        for (measure, values) in measures.as_object().unwrap() {
            assert!((1..=64).contains(&measure.chars().count()), "{measure}");
            assert_eq!((&values["value"], &values["upper_value"]), (&1.5.into(), &2.0.into()));
        }
    }
    let action: Value = serde_json::from_str(&report.to_benchmark_action()).unwrap();
    assert_eq!(action.as_array().unwrap().len(), count);
    assert_eq!(action[1]["range"], "± 0.5");
}

#[test]
fn annotations_beyond_those_that_github_shows_are_counted() {
    let failed = |count: u32| {
        let check = |number| Check::new(format!("{number}"), CheckOutcome::Failed).at("a.rs", 1);
        (0..count).map(check).fold(CiReport::new("many"), CiReport::check).to_github()
    };
    assert_eq!(failed(10).lines().count(), 10);
    assert!(failed(10).ends_with("title=9::many failed\n"), "{}", failed(10));
    assert_eq!(failed(12).lines().count(), 10);
    let last = "::error file=a.rs,line=1,title=many::3 more checks failed\n";
    assert!(failed(12).ends_with(last), "{}", failed(12));
}

// --- what is reported ---

/// A run on a fake of its own, which has nothing left to do.
fn record(gemms: usize, gemm_ns: u64) -> Profile {
    let fake = Fake::new();
    fake.stop_clock();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let ((), profile) = profiler.record(|| steps(&fake, gemms, gemm_ns)).unwrap();
    of_its_own(&profile)
}

fn steps(fake: &Fake, gemms: usize, gemm_ns: u64) {
    let _step = range("step");
    for _ in 0..gemms {
        fake.launch(Work::kernel(c"gemm").taking_ns(gemm_ns));
    }
}

fn outcomes(report: &CiReport) -> Vec<(&str, CheckOutcome)> {
    report.checks().iter().map(|check| (check.name(), check.outcome())).collect()
}

#[test]
fn report_of_budgets_has_a_check_for_each() {
    use CheckOutcome::{Failed, Passed, Undecided};
    let profile = record(3, 1000);
    let report = expect(&profile)
        .complete()
        .range("step")
        .kernels(at_most(2))
        .launches(exactly(3))
        .launches(exactly(3))
        .range("missing")
        .kernels(exactly(0))
        .report();
    assert_eq!(
        outcomes(&report),
        [
            ("the whole profile: completeness", Passed),
            ("range `step`, all instances together: launches", Passed),
            ("range `missing`, all instances together: kernels", Undecided),
            ("range `step`, all instances together: kernels", Failed),
        ]
    );
    assert!(!report.is_pass());
    let junit = report.to_junit();
    assert!(junit.contains("3, the budget is at most 2") && junit.contains("no such range"));
    let kept = expect(&profile).range("step").kernels(at_least(1)).report();
    assert!(kept.is_pass() && kept.checks().len() == 1);
    // Violations alone do not have what was kept, nor the budgets of a missing range.
    let violations =
        expect(&profile).kernels(exactly(3)).launches(exactly(1)).range("missing").check();
    let report = CiReport::from(&violations.unwrap_err());
    assert_eq!(
        outcomes(&report),
        [
            ("the whole profile: launches", Failed),
            ("range `missing`, all instances together: budgets", Undecided)
        ]
    );
    let none = expect(&[] as &[Profile]).kernels(exactly(0)).report();
    assert_eq!(outcomes(&none), [("the whole profile: kernels", Undecided)]);
    let nothing = expect(&[] as &[Profile]).report();
    assert_eq!(outcomes(&nothing), [("no profile: budgets", Undecided)]);
}

#[test]
fn report_of_a_verdict_has_counts_times_and_bounds() {
    let folder = Folder::new();
    let gate = Gate::new(folder.0.join("step.json")).update(false);
    let runs =
        |gemms, ns: u64| -> Vec<Profile> { (0..10).map(|run| record(gemms, ns + run)).collect() };
    let (usual, slow) = (50_000_000, 60_000_000);
    let written = CiReport::from(&gate.clone().update(true).judge(&runs(3, usual)).unwrap());
    assert_eq!(outcomes(&written), [("baseline", CheckOutcome::Passed)]);
    let same = CiReport::from(&gate.judge(&runs(3, usual)).unwrap());
    assert!(same.is_pass() && outcomes(&same)[0] == ("counts", CheckOutcome::Passed));

    let verdict = gate.judge(&runs(4, slow)).unwrap();
    let report = CiReport::from(&verdict);
    let slower = "step: gemm <128, 256>";
    let failures = [slower, "step: count of gemm <128, 256>", "step: all kernels", "wall time"];
    for failed in failures {
        assert!(outcomes(&report).contains(&(failed, CheckOutcome::Failed)), "{report:?}");
    }
    let bencher: Value = serde_json::from_str(&report.to_bencher()).unwrap();
    let times = verdict.times();
    assert_eq!(bencher.as_object().unwrap().len(), times.len());
    let time = times.iter().find(|time| time.kernel.is_some()).unwrap();
    assert_eq!(time.outcome, Outcome::Slower);
    let values = &bencher[slower]["latency"];
    let number = |name: &str| values[name].as_f64().unwrap();
    let after = number("value");
    assert_eq!(Duration::from_nanos(after.round() as u64), time.after());
    assert!(number("lower_value") <= after && after <= number("upper_value"));
    assert!((number("lower_value") / number("value") - time.low / time.ratio).abs() < 1e-9);
    let action: Value = serde_json::from_str(&report.to_benchmark_action()).unwrap();
    let entry = action.as_array().unwrap().iter().find(|entry| entry["name"] == slower).unwrap();
    assert_eq!((&entry["unit"], &entry["extra"]), (&"ns".into(), &time.to_string().into()));
    // Two runs decide nothing, and their metrics have no bounds.
    let verdict = gate.judge(&runs(3, usual)[..2]).unwrap();
    let report = CiReport::from(&verdict);
    assert!(verdict.is_undecided() && !report.is_pass(), "{verdict}");
    // But for the wall time, whose variation is assumed.
    let bencher: Value = serde_json::from_str(&report.to_bencher()).unwrap();
    let bounded = bencher.as_object().unwrap().iter();
    let bounded = bounded.filter(|(_, of)| !of["latency"]["upper_value"].is_null());
    assert_eq!(bounded.map(|(name, _)| &**name).collect::<Vec<_>>(), ["wall time"]);
    assert!(report.to_junit().contains("<error message="), "{}", report.to_junit());
}

// --- tests as processes of their own ---

/// The line of this file that ends with a comment of one word.
fn line_of(comment: &str) -> usize {
    let comment = format!("; // {comment}");
    let mut lines = include_str!("ci.rs").lines();
    1 + lines.position(|line| line.ends_with(&comment)).unwrap()
}

#[test]
#[ignore = "a process of `assertions_are_reported`"]
fn breaks_a_budget() {
    let profile = record(3, 1000);
    expect(&profile).range("step").kernels(exactly(3)).assert();
    expect(&profile).range("step").kernels(at_most(2)).assert(); // broken
}

#[test]
#[ignore = "a process of `gates_are_reported`"]
fn fails_a_gate() {
    let fake = Fake::new();
    let path = Path::new(&std::env::var("GATE_FOLDER").unwrap()).join("step.json");
    let test = || {
        let profiler = Profiler::builder().library(fake.library().unwrap()).build();
        GpuTest::from_profiler(profiler).unwrap().warm_up(0)
    };
    let gate = Gate::new(path).runs(8, 8).ignore_times("wall time");
    test().baseline(gate.clone().update(true)).run(|| steps(&fake, 3, 1000));
    test().baseline(gate.update(false)).run(|| steps(&fake, 4, 1000)); // gated
}

#[test]
#[ignore = "a process of `skipped_tests_are_reported`"]
fn is_skipped() {
    let fake = Fake::builder().version(17).build();
    let profiler = fake
        .library()
        .map_err(Into::into)
        .and_then(|library| Profiler::builder().library(library).build());
    assert!(GpuTest::from_profiler(profiler).is_none());
}

/// One test of this program under libtest, which captures its output, as on GitHub.
fn run_on_github(test: &str, checkout: &Path, folder: &Path) -> (Output, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored"]);
    command.env("GITHUB_ACTIONS", "true").env("GITHUB_WORKSPACE", checkout);
    command.env("GITHUB_STEP_SUMMARY", folder.join("summary.md"));
    command.env("GPU_TEST_REPORTS", folder.join("in a/folder")).env("GATE_FOLDER", folder);
    let output = command.output().unwrap();
    let out = String::from_utf8(output.stdout.clone()).unwrap();
    (output, out)
}

fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The JUnit files by name, in the order of their assertions.
fn reports(folder: &Path) -> Vec<(String, String)> {
    let mut files: Vec<_> = fs::read_dir(folder.join("in a/folder"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn assertions_are_reported() {
    let folder = Folder::new();
    let line = line_of("broken");
    let (output, out) = run_on_github("breaks_a_budget", checkout(), &folder.0);
    assert!(!output.status.success() && out.contains("1 failed"), "{out}");
    let annotations: Vec<&str> = out.lines().filter(|line| line.starts_with("::error ")).collect();
    let begin = format!(
        "::error file=profiler-analysis/tests/ci.rs,line={line},title=range `step`%2C all instances together%3A kernels::kernels: 3, the budget is at most 2"
    );
    assert!(annotations.len() == 1 && annotations[0].starts_with(&begin), "{out}");

    let reports = reports(&folder.0);
    assert_eq!(reports.len(), 2, "one for each assertion: {reports:?}");
    assert!(reports.iter().all(|(name, _)| name.starts_with("breaks_a_budget-")), "{reports:?}");
    assert!(reports[0].1.contains("failures=\"0\"") && reports[1].1.contains("failures=\"1\""));
    let place = format!("file=\"profiler-analysis/tests/ci.rs\" line=\"{line}\"");
    assert!(reports[1].1.contains(&place), "{}", reports[1].1);

    let summary = fs::read_to_string(folder.0.join("summary.md")).unwrap();
    assert!(summary.starts_with("### breaks\\_a\\_budget: failed\n"), "{summary}");
    assert_eq!(summary.matches("### ").count(), 1, "what passed is not in it");

    // A workspace that is a folder of the checkout; the summary is appended to.
    let above = checkout().parent().unwrap();
    let (_, out) = run_on_github("breaks_a_budget", above, &folder.0);
    let name = checkout().file_name().unwrap().to_str().unwrap();
    let begin = format!("::error file={name}/profiler-analysis/tests/ci.rs,line={line},");
    assert!(out.lines().any(|line| line.starts_with(&begin)), "{out}");
    let summary = fs::read_to_string(folder.0.join("summary.md")).unwrap();
    assert_eq!(summary.matches("### ").count(), 2);
}

/// The harness has written the name of the test by then, and no end of the line.
#[test]
fn annotations_begin_a_line_beside_the_output_of_one_thread() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "breaks_a_budget", "--ignored", "--test-threads=1"]);
    command.env("GITHUB_ACTIONS", "true").env_remove("GITHUB_STEP_SUMMARY");
    let out = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert_eq!(out.lines().filter(|line| line.starts_with("::error file=")).count(), 1, "{out}");
}

#[test]
fn gates_are_reported() {
    let folder = Folder::new();
    let (output, out) = run_on_github("fails_a_gate", checkout(), &folder.0);
    assert!(!output.status.success(), "{out}");
    let begin =
        format!("::error file=profiler-analysis/tests/ci.rs,line={},title=", line_of("gated"));
    let annotations: Vec<&str> = out.lines().filter(|line| line.starts_with("::error ")).collect();
    assert!(annotations.len() == 4, "{out}");
    assert!(annotations.iter().all(|line| line.starts_with(&begin)), "{out}");
    assert!(annotations[0].contains("title=step%3A count of gemm <128%2C 256>::"), "{out}");
    let reports = reports(&folder.0);
    assert!(reports[0].1.contains("written, not compared"), "{reports:?}");
    assert!(reports[1].1.contains("failures=\"4\"") && reports[1].1.contains(" time=\""));
}

#[test]
fn skipped_tests_are_reported() {
    let folder = Folder::new();
    let (output, out) = run_on_github("is_skipped", checkout(), &folder.0);
    assert!(output.status.success() && !out.contains("::error"), "{out}");
    let reports = reports(&folder.0);
    let skipped = "<skipped message=";
    assert!(reports.len() == 1 && reports[0].1.contains(skipped), "{reports:?}");
    assert!(!folder.0.join("summary.md").exists());
}

/// The assertion decides, whatever becomes of its report.
#[test]
fn unwritable_reports_are_named_and_fail_nothing() {
    let folder = Folder::new();
    let summary = folder.0.join("summary.md");
    fs::write(&summary, vec![b'x'; 1_000_000]).unwrap();
    fs::write(folder.0.join("in a"), "a file").unwrap();
    let (output, _) = run_on_github("is_skipped", checkout(), &folder.0);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    assert!(error.contains("GPU_TEST_REPORTS: a report could not be written to "), "{error}");
    let (output, out) = run_on_github("breaks_a_budget", checkout(), &folder.0);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(out.contains("at most 2"), "{out}");
    assert!(error.contains("GITHUB_STEP_SUMMARY: ") && error.contains("it is full"), "{error}");
    assert_eq!(fs::metadata(&summary).unwrap().len(), 1_000_000);
}

#[test]
fn nothing_is_written_by_default() {
    let folder = Folder::new();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "breaks_a_budget", "--ignored"]).current_dir(&folder.0);
    for variable in ["GITHUB_ACTIONS", "GPU_TEST_REPORTS"] {
        command.env(variable, "");
    }
    command.env("GITHUB_STEP_SUMMARY", folder.0.join("summary.md"));
    let output = command.output().unwrap();
    assert!(!output.status.success());
    assert!(!String::from_utf8_lossy(&output.stdout).contains("::error"));
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
}
