//! NVIDIA's own `nsys stats` and `nsys analyze` as referees of our reports, on random captures.
//!
//! `NSYS` names `nsys` 2023.4 and python3 writes the captures; no GPU is needed. `NSYS_CAPTURES` says how many captures,
//! 20 if it is not set.
//!
//! Every cell is the same but for these:
//! - Rows that tie in what nsys sorts by have no order there; ours is by name, or by start. The test sorts both.
//! - nsys 2025.3, which we follow, writes `:name` for ranges of the default domain, has no row for work in no range in
//!   `nvtx_gpu_proj_trace`, and rounds numbers as they are; 2023.4 writes `name`, has one, and rounds 10683.15 up.
//! - nsys writes quotes within a cell as they are; ours are doubled, so that the file can be read. No capture has any.
//! - The rules on copies and memsets take calls of other processes with the same correlation id for theirs; ours do not.
//!   They are not compared where there are several processes.
//! - `um_total_sum` has a row of zeros where the tables are there without rows; ours has none.
//! - nsys has no index by which ranges that begin at once would have an order; here the first row names kernels.
//! - A range of a thread and another with the very same times are each the other's parent to nsys, and in no tree. No
//!   capture has any.
//! - No capture has ranges of several domains that cross on a thread. `tests/analyze/crossings.rs` compares the reports of
//!   such captures with a search of all ranges by their times.
//! - Where no range of a capture has an end, nsys has none for those without one, and no work in them; here they end with the
//!   last start. No capture has any.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "not the standard harness"
)]

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use profiler_analysis::prelude::*;
use profiler_analysis::reports::{AnyReport, Rule, StatsReport};
use profiler_core::Profile;

fn main() {
    let nsys = env::var_os("NSYS");
    if nsys.is_none() {
        eprintln!("the tests of nsys stats are ignored: NSYS does not name nsys");
    }
    let ignored = nsys.is_none();
    let count: u64 =
        env::var("NSYS_CAPTURES").ok().and_then(|count| count.parse().ok()).unwrap_or(20);
    let trials = (0..count)
        .map(|seed| {
            let nsys = nsys.clone();
            let test = move || check(&nsys.ok_or("NSYS is not set")?, seed);
            Trial::test(format!("nsys_agrees_on_capture_{seed}"), test).with_ignored_flag(ignored)
        })
        .collect();
    // One nsys at a time: beside another it fails now and then.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit();
}

/// Reports that nsys has, with its options, and ours.
fn reports(profile: &Profile) -> Vec<(String, AnyReport)> {
    let mut all: Vec<(String, AnyReport)> = StatsReport::ALL
        .iter()
        .map(|&report| (report.name().to_owned(), profile.stats(report)))
        .collect();
    let of = profile.reports();
    for (option, of) in [
        ("base", of.base_names()),
        ("mangled", of.mangled_names()),
        ("nvtx-name", of.with_range_names()),
    ] {
        for report in [StatsReport::CudaGpuKernSum, StatsReport::CudaGpuTrace] {
            all.push((format!("{report}:{option}"), of.get(report)));
        }
    }
    all
}

fn rules(profile: &Profile) -> Vec<(String, AnyReport)> {
    let of = profile.rules();
    let mut all: Vec<(String, AnyReport)> = Rule::ALL
        .iter()
        .map(|&rule| (format!("{rule}:rows=-1"), of.rows(None).get(rule)))
        .collect();
    let of = of.rows(None).min_gap(Duration::from_millis(1)).chunks(7).below_percent(80.0);
    all.push(("gpu_gaps:rows=-1:gap=1".to_owned(), of.get(Rule::GpuGaps)));
    let name = "gpu_time_util:rows=-1:chunks=7:threshold=80".to_owned();
    all.push((name, of.get(Rule::GpuTimeUtil)));
    all
}

fn check(nsys: &OsString, seed: u64) -> Result<(), Failed> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("reports_nsys_{}_{seed}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let capture = folder.join("capture.sqlite");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reports_nsys/random_capture.py");
    let made = Command::new("python3").arg(script).arg(seed.to_string()).arg(&capture).status()?;
    assert!(made.success(), "python3 wrote no capture");
    let profile = profiler_analysis::nsys::read(&capture)?;

    let mut found = Vec::new();
    let mut rows = 0;
    for (verb, option, all) in
        [("stats", "--report", reports(&profile)), ("analyze", "--rule", rules(&profile))]
    {
        for (name, ours) in all {
            let output = Command::new(nsys)
                .args([verb, "-q", "--format", "csv", option, &name])
                .arg(&capture)
                .output()?;
            let theirs = String::from_utf8(output.stdout)?;
            let mut ours = ours.csv();
            // nsys 2023.4 has no columns for file and line, which no capture has.
            if name == "um_cpu_page_faults_sum" {
                ours = ours.replace(",Source File,Source Line", "").replace(",,\n", "\n");
            }
            rows += ours.lines().count();
            // nsys finds the calls of copies by correlation id alone, and so those of other processes too.
            let processes: BTreeSet<u32> = profile.calls().map(|call| call.process_id()).collect();
            let is_blind = processes.len() > 1 && name.starts_with("cuda_mem") && verb == "analyze";
            // A row of zeros, from tables without rows.
            let is_nothing = name == "um_total_sum" && ours.is_empty();
            if is_blind || is_nothing {
                continue;
            }
            if let Err(difference) = compare(&name, &ours, &theirs) {
                found.push(format!("{name}: {difference}"));
            }
        }
    }
    for report in [StatsReport::CudaGpuTrace, StatsReport::CudaGpuMemSizeSum, StatsReport::UmSum] {
        let theirs = Command::new(nsys)
            .args(["stats", "-q", "--format", "json", "--report", report.name()])
            .arg(&capture)
            .output()?;
        if objects(&profile.stats(report).json())? != objects(&String::from_utf8(theirs.stdout)?)? {
            found.push(format!("{report} differs as JSON"));
        }
    }
    assert!(rows > 200, "{rows} rows are not much of a test");
    if found.is_empty() {
        fs::remove_dir_all(&folder)?;
        return Ok(());
    }
    Err(format!("{}:\n{}", capture.display(), found.join("\n")).into())
}

/// The rows of a report as JSON, in any order.
fn objects(json: &str) -> Result<BTreeSet<String>, Failed> {
    if json.trim().is_empty() {
        return Ok(BTreeSet::new());
    }
    let rows: Vec<serde_json::Value> = serde_json::from_str(json)?;
    Ok(rows.iter().map(ToString::to_string).collect())
}

/// Compares the rows in any order: ties have none that is defined.
fn compare(name: &str, ours: &str, theirs: &str) -> Result<(), String> {
    let (ours, theirs) = (parse(ours), parse(theirs));
    let is_trace = name.starts_with("nvtx_gpu_proj_trace");
    let normal = |rows: Vec<Vec<String>>| -> Vec<Vec<String>> {
        let mut rows: Vec<Vec<String>> = rows
            .into_iter()
            .map(|row| row.iter().map(|cell| without_domain_mark(cell)).collect())
            // nsys 2023.4 has a row for what lies in no range, nsys 2025.3 has not.
            .filter(|row: &Vec<String>| !(is_trace && row[0].is_empty()))
            .collect();
        if !rows.is_empty() {
            rows[1..].sort();
        }
        // Without rows it is no report at all.
        if rows.len() == 1 { Vec::new() } else { rows }
    };
    let (ours, theirs) = (normal(ours), normal(theirs));
    let names = |rows: &[Vec<String>]| rows.first().cloned().unwrap_or_default();
    if names(&ours) != names(&theirs) {
        return Err(format!("columns {:?}, not {:?}", names(&ours), names(&theirs)));
    }
    let same = |(ours, theirs): (&Vec<String>, &Vec<String>)| {
        ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| is_same(a, b))
    };
    if ours.len() == theirs.len() && ours.iter().zip(&theirs).all(same) {
        return Ok(());
    }
    let (a, b): (BTreeSet<_>, BTreeSet<_>) = (ours.iter().collect(), theirs.iter().collect());
    let show = |rows: Vec<&&Vec<String>>| {
        let lines = rows.into_iter().take(4).map(|row| row.join(" | "));
        lines.collect::<Vec<_>>().join("\n    ")
    };
    Err(format!(
        "{} rows, not {}\n  ours alone:\n    {}\n  nsys alone:\n    {}",
        ours.len(),
        theirs.len(),
        show(a.difference(&b).collect()),
        show(b.difference(&a).collect())
    ))
}

/// nsys 2025.3 writes `:name` for a range of the default domain, nsys 2023.4 `name`.
fn without_domain_mark(cell: &str) -> String {
    let name = cell.trim_start_matches("--");
    let is_stack =
        name.len() > 1 && name[1..].bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
    match name.strip_prefix(':') {
        Some(bare) if !is_stack => format!("{}{bare}", &cell[..cell.len() - name.len()]),
        _ => cell.to_owned(),
    }
}

/// nsys 2023.4 rounds the decimal number that is nearest, nsys 2025.3 the number itself: 10683.15 is below one half.
fn is_same(ours: &str, theirs: &str) -> bool {
    let decimals = |text: &str| text.split_once('.').map(|(_, decimals)| decimals.len());
    if ours == theirs {
        return true;
    }
    match (ours.parse::<f64>(), theirs.parse::<f64>()) {
        (Ok(a), Ok(b)) => decimals(ours) == Some(1) && (a - b).abs() < 0.11,
        _ => false,
    }
}

fn parse(csv: &str) -> Vec<Vec<String>> {
    let mut rows = vec![vec![String::new()]];
    let mut quoted = false;
    let mut chars = csv.trim_end().chars().peekable();
    while let Some(char) = chars.next() {
        let row = rows.last_mut().unwrap();
        match char {
            '"' if quoted && chars.peek() == Some(&'"') => {
                row.last_mut().unwrap().push('"');
                chars.next();
            }
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(String::new()),
            '\n' if !quoted => rows.push(vec![String::new()]),
            _ => row.last_mut().unwrap().push(char),
        }
    }
    rows
}
