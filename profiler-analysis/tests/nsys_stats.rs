//! NVIDIA's own tool as a referee: what `nsys stats` says of our captures is what was written into them.
//!
//! `NSYS` names the program, of 2023.4 or later. No GPU is needed. `NSYS_CAPTURES` says how many random captures there are,
//! `NSYS_CAPTURES_SEED` the first one's seed.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // a test without the standard harness

#[path = "support/capture.rs"]
mod capture;

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use capture::{Folder, Truth};
use libtest_mimic::{Arguments, Failed, Trial};
use profiler_analysis::prelude::*;
use profiler_core::Profile;

fn main() {
    let nsys = env::var_os("NSYS");
    if nsys.is_none() {
        eprintln!("the tests of nsys stats are ignored: NSYS does not name the program");
    }
    let ignored = nsys.is_none();
    let trial = |name, test: fn(&OsStr)| {
        let nsys = nsys.clone();
        let run = move || -> Result<(), Failed> {
            test(&nsys.ok_or("NSYS is not set")?);
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(ignored)
    };
    let trials = vec![
        trial("nsys_stats_matches_random_captures", sums_up_random_captures),
        trial("nsys_stats_agrees_on_a_capture_and_its_copy", says_the_same),
        trial("nsys_stats_sums_up_a_recording_of_the_driver_api", sums_up_a_recording),
        trial("nsys_analyze_finds_the_same_in_a_capture_and_in_ours", finds_the_same),
    ];
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit();
}

/// Every report that is about CUDA or NVTX.
const REPORTS: [&str; 19] = [
    "cuda_api_gpu_sum",
    "cuda_api_sum",
    "cuda_api_trace",
    "cuda_gpu_kern_gb_sum",
    "cuda_gpu_kern_sum",
    "cuda_gpu_mem_size_sum",
    "cuda_gpu_mem_time_sum",
    "cuda_gpu_sum",
    "cuda_gpu_trace",
    "cuda_kern_exec_sum",
    "cuda_kern_exec_trace",
    "nvtx_gpu_proj_sum",
    "nvtx_gpu_proj_trace",
    "nvtx_kern_sum",
    "nvtx_pushpop_sum",
    "nvtx_pushpop_trace",
    "nvtx_startend_sum",
    "nvtx_sum",
    "um_sum",
];

const RULES: [&str; 6] = [
    "cuda_api_sync",
    "cuda_memcpy_async",
    "cuda_memcpy_sync",
    "cuda_memset_sync",
    "gpu_gaps",
    "gpu_time_util",
];

/// What one report prints: a header and rows.
fn run(nsys: &OsStr, words: &[&str], name: &str, file: &Path) -> Vec<Vec<String>> {
    let mut command = Command::new(nsys);
    command.args(words).arg(name).args(["--format", "csv"]).arg(file);
    let output = command.output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {stdout}{stderr}");
    assert!(!stderr.to_lowercase().contains("error"), "{name}: {stderr}");
    rows(&stdout)
}

fn report(nsys: &OsStr, name: &str, file: &Path) -> Vec<Vec<String>> {
    run(nsys, &["stats", "-q", "--report"], name, file)
}

/// Comma-separated values. nsys leaves quotes within quotes as they are: the last one has a comma or the end after it.
fn rows(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut cell, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && matches!(chars.peek(), None | Some(',' | '\n')) => quoted = false,
            '"' if !quoted && cell.is_empty() => quoted = true,
            ',' if !quoted => row.push(std::mem::take(&mut cell)),
            '\n' if !quoted => {
                if !(row.is_empty() && cell.is_empty()) {
                    row.push(std::mem::take(&mut cell));
                    rows.push(std::mem::take(&mut row));
                }
            }
            c => cell.push(c),
        }
    }
    rows
}

/// Total, count, average, median, minimum and maximum, as nsys prints them.
fn statistics(values: &[u64]) -> [String; 6] {
    let mut values = values.to_vec();
    values.sort_unstable();
    let (count, total) = (values.len(), values.iter().sum::<u64>());
    let median = (values[(count - 1) / 2] + values[count / 2]) as f64 / 2.0;
    [
        total.to_string(),
        count.to_string(),
        rounded(total as f64 / count as f64),
        rounded(median),
        values[0].to_string(),
        values[count - 1].to_string(),
    ]
}

/// With one digit, of two that are as near the one away from zero: as SQLite rounds.
fn rounded(value: f64) -> String {
    format!("{:.1}", (value * 10.0 + 0.5).floor() / 10.0)
}

/// The statistics of each row, by the name in its last column and what `style` gives.
fn summed(rows: &[Vec<String>], style: Option<usize>) -> BTreeMap<(String, String), [String; 6]> {
    let row = |row: &Vec<String>| {
        let style = style.map_or(String::new(), |style| row[style].clone());
        let key = (style, row.last().unwrap().clone());
        (key, std::array::from_fn(|i| row[i + 1].clone()))
    };
    // nsys prints no header where there is nothing below it.
    let below = rows.get(1..).unwrap_or_default();
    let found: BTreeMap<_, _> = below.iter().map(row).collect();
    assert_eq!(found.len(), below.len(), "names stand twice: {rows:?}");
    found
}

fn sums_up_random_captures(nsys: &OsStr) {
    let number = |name, default| env::var(name).map_or(default, |text| text.parse().unwrap());
    let (count, first) = (number("NSYS_CAPTURES", 20), number("NSYS_CAPTURES_SEED", 1000));
    let folder = Folder::new();
    let made = folder.file("made.sqlite");
    for seed in first..first + count {
        let _ = std::fs::remove_file(&made);
        let truth = capture::write(&made, seed);
        let ours = folder.file(&format!("ours-{seed}.sqlite"));
        profiler_analysis::nsys::read(&made).unwrap().write_nsys(&ours, |_, _| ()).unwrap();
        compare(nsys, &ours, &truth, seed);
        std::fs::remove_file(&ours).unwrap();
    }
}

fn compare(nsys: &OsStr, ours: &Path, truth: &Truth, seed: u64) {
    let plain = |sums: &capture::Sums| -> BTreeMap<(String, String), [String; 6]> {
        let row = |(name, values): (&String, &Vec<u64>)| {
            ((String::new(), name.clone()), statistics(values))
        };
        sums.iter().map(row).collect()
    };
    for (name, truth) in [
        ("cuda_gpu_kern_sum", &truth.kernels),
        ("cuda_api_sum", &truth.calls),
        ("cuda_gpu_mem_time_sum", &truth.copies),
    ] {
        let rows = report(nsys, name, ours);
        assert_eq!(summed(&rows, None), plain(truth), "{name} of {seed}");
    }
    let rows = report(nsys, "nvtx_sum", ours);
    let ranges = truth.ranges.iter().map(|(key, values)| (key.clone(), statistics(values)));
    assert_eq!(summed(&rows, Some(8)), ranges.collect(), "nvtx_sum of {seed}");
    // In megabytes with three digits.
    let rows = report(nsys, "cuda_gpu_mem_size_sum", ours);
    let below = rows.get(1..).unwrap_or_default();
    let sizes: BTreeMap<_, _> =
        below.iter().map(|row| (row[7].clone(), (row[0].clone(), row[1].clone()))).collect();
    let bytes = |(name, values): (&String, &Vec<u64>)| {
        let megabytes = values.iter().sum::<u64>() as f64 / 1e6;
        (name.clone(), (format!("{megabytes:.3}"), values.len().to_string()))
    };
    assert_eq!(sizes, truth.bytes.iter().map(bytes).collect(), "cuda_gpu_mem_size_sum of {seed}");
    // Which call an operation is of, which ranges that is in.
    let rows = report(nsys, "nvtx_gpu_proj_trace", ours);
    let counted: u64 = rows
        .get(1..)
        .unwrap_or_default()
        .iter()
        .filter(|row| row[5] == "PushPop")
        .map(|row| row[8].parse::<u64>().unwrap())
        .sum();
    let around: usize = truth.places.values().map(Vec::len).sum();
    assert_eq!(counted, around as u64, "nvtx_gpu_proj_trace of {seed}");
}

/// What nsys shows of a program of the driver API: everything but what its rules would find of the runtime API's names.
fn sums_up_a_recording(nsys: &OsStr) {
    let folder = Folder::new();
    let recording = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../examples/recordings/quickstart-h200.gpuprof");
    let profile = Profile::load(recording).unwrap();
    let ours = folder.file("ours.sqlite");
    profile.write_nsys(&ours, |_, _| ()).unwrap();
    let totals = profile.totals();
    let ns = |time: Duration| time.as_nanos() as u64;
    let sum = |name: &str| -> (u64, u64) {
        let rows = report(nsys, name, &ours);
        let column = |at: usize| rows[1..].iter().map(|row| row[at].parse::<u64>().unwrap()).sum();
        (column(1), column(2))
    };
    assert_eq!(sum("cuda_gpu_kern_sum"), (ns(totals.kernel_time()), totals.kernels));
    let copies = (ns(totals.copy_time() + totals.memset_time()), totals.copies + totals.memsets);
    assert_eq!(sum("cuda_gpu_mem_time_sum"), copies);
    let calls = profile.calls().filter_map(|call| call.host_time());
    let ns: u128 = calls.map(|time| time.as_nanos()).sum();
    assert_eq!(sum("cuda_api_sum"), (ns as u64, profile.calls().count() as u64));
    let mut instances = BTreeMap::new();
    for range in profile.ranges() {
        let name = range
            .domain()
            .map_or(range.name().to_owned(), |domain| format!("{domain}:{}", range.name()));
        let entry: &mut (u64, u64) = instances.entry(name).or_default();
        *entry = (entry.0 + 1, entry.1 + range.inclusive().gpu_operations());
    }
    let rows = report(nsys, "nvtx_gpu_proj_sum", &ours);
    assert!(rows.len() > 3, "{rows:?}");
    for row in &rows[1..] {
        let operations = (row[4].parse().unwrap(), row[10].parse().unwrap());
        assert_eq!(instances[&row[0]], operations, "{}", row[0]);
    }
    // The rules look for names of the runtime API.
    assert!(totals.synchronizations > 0);
    let rows = run(nsys, &["analyze", "-q", "--rule"], "cuda_api_sync", &ours);
    assert!(rows.len() < 2, "nsys has learned of the driver API: say so in the docs: {rows:?}");
}

/// The training run that nsys itself exported, and what we make of it.
fn train(folder: &Folder) -> [std::path::PathBuf; 2] {
    let train = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/captures/train-h200.sqlite");
    // nsys wants to write beside it.
    let [theirs, ours] = ["theirs.sqlite", "ours.sqlite"].map(|name| folder.file(name));
    std::fs::copy(train, &theirs).unwrap();
    profiler_analysis::nsys::read(&theirs).unwrap().write_nsys(&ours, |_, _| ()).unwrap();
    [theirs, ours]
}

fn says_the_same(nsys: &OsStr) {
    let folder = Folder::new();
    let [theirs, ours] = train(&folder);
    let mut empty = Vec::new();
    for name in REPORTS {
        let theirs = report(nsys, name, &theirs);
        if theirs.len() < 2 {
            empty.push(name);
        }
        assert_eq!(report(nsys, name, &ours), theirs, "{name}");
    }
    assert_eq!(empty, ["nvtx_startend_sum", "um_sum"], "a report is no proof without rows");
}

fn finds_the_same(nsys: &OsStr) {
    let folder = Folder::new();
    let [theirs, ours] = train(&folder);
    let mut found: BTreeMap<OsString, usize> = BTreeMap::new();
    for name in RULES {
        let rule = |file: &Path| run(nsys, &["analyze", "-q", "--rule"], name, file);
        let theirs = rule(&theirs);
        assert_eq!(rule(&ours), theirs, "{name}");
        found.insert(name.into(), theirs.len());
    }
    assert!(found.values().filter(|rows| **rows > 1).count() >= 2, "{found:?}");
}
