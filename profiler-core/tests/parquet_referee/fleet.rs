//! A fleet, asked by DuckDB and DataFusion: equal rows, and those of the profiles.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use libtest_mimic::Failed;
use profiler_core::Profile;
use profiler_core::formats::{FLEET_VIEWS, FleetPart, compact_fleet};
use serde_json::{Value, json};

use super::folder::Folder;
use super::{KINDS, RECORDING, everything};

/// Labels that mean something in paths and in SQL.
const JOBS: [&str; 2] = ["train", "a/../b='%2F' \"é\n"];
const HOSTS: [&str; 2] = ["007", ".. $(x)"];

/// A question of each view, with its order.
pub(crate) const QUESTIONS: [&str; 6] = [
    "SELECT job_name, day, host_name, rank_number, COUNT(*), SUM(gpu_ns), SUM(bytes), SUM(is_collective), MIN(start_ns) FROM fleet_operations GROUP BY job_name, day, host_name, rank_number ORDER BY job_name, host_name, rank_number",
    "SELECT * FROM fleet_work_by_day ORDER BY job_name, day, kind, name",
    "SELECT * FROM fleet_ranks ORDER BY job_name, day, host_name, rank_number",
    "SELECT * FROM fleet_imbalance ORDER BY job_name, day, host_name, rank_number",
    "SELECT * FROM fleet_ranges ORDER BY job_name, day, host_name, rank_number, path",
    "SELECT * FROM fleet_completeness ORDER BY job_name, day",
];

pub(crate) fn ask(python: &Path, engine: &str, folder: &Path) -> Result<Vec<Value>, Failed> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parquet_referee");
    let views = folder.with_extension("sql");
    fs::write(&views, FLEET_VIEWS)?;
    let questions = folder.with_extension("questions");
    fs::write(&questions, QUESTIONS.join("\n"))?;
    let mut command = Command::new(python);
    command.arg(tests.join("ask_fleet.py")).arg(engine).arg(folder).arg(&views);
    command.stdin(fs::File::open(&questions)?).stderr(Stdio::piped());
    let output = command.output()?;
    _ = fs::remove_file(&views);
    _ = fs::remove_file(&questions);
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{engine}: {error}").into());
    }
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// The recordings of a job, a host and a rank.
type Part = (&'static str, &'static str, u32, Vec<Profile>);

/// Ranks of two jobs; the last of each has several recordings of a day.
fn fleet(folder: &Path) -> Vec<Part> {
    let mut parts = Vec::new();
    for (job, host) in JOBS.into_iter().zip(HOSTS) {
        let read = |bytes| Profile::from_bytes(bytes).unwrap();
        let several = (0..3).map(|_| everything()).collect();
        let ranks = [vec![read(RECORDING)], vec![read(KINDS)], several];
        for (rank, profiles) in (0..).step_by(2).zip(ranks) {
            let part = FleetPart::new(job, host, rank);
            profiles.iter().for_each(|profile| profile.add_to_fleet(folder, &part).unwrap());
            parts.push((job, host, rank, profiles));
        }
    }
    parts.sort_by_key(|part| (part.0, part.2));
    parts
}

fn same(what: &str, found: &[Value], expected: &[Value]) -> Result<(), Failed> {
    for ((question, found), expected) in QUESTIONS.iter().zip(found).zip(expected) {
        if found != expected {
            return Err(format!("{what}: {question}\n{found}\ninstead of\n{expected}").into());
        }
    }
    match found.len() == QUESTIONS.len() {
        true => Ok(()),
        false => Err(format!("{what}: {} answers", found.len()).into()),
    }
}

/// The first question, by the profiles themselves.
fn check_sums(found: &Value, parts: &[Part]) -> Result<(), Failed> {
    let found: Vec<Value> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|row| json!([row[0], row[2], row[3], row[4], row[5], row[6]]))
        .collect();
    let sum = |(job, host, rank, profiles): &Part| {
        let totals: Vec<_> = profiles.iter().map(Profile::totals).collect();
        let operations: u64 = totals.iter().map(|totals| totals.gpu_operations()).sum();
        let ns: u64 = totals.iter().map(|totals| totals.gpu_time().as_nanos() as u64).sum();
        let bytes: u64 = totals.iter().map(|totals| totals.copy_bytes + totals.memset_bytes).sum();
        json!([job, host, rank, operations, ns, bytes])
    };
    let expected: Vec<Value> = parts.iter().map(sum).collect();
    match found == expected {
        true => Ok(()),
        false => Err(format!("{found:?}\ninstead of\n{expected:?}").into()),
    }
}

pub(crate) fn engines_agree(python: &Path, engines: &[&str]) -> Result<(), Failed> {
    let folder = Folder::new();
    let parts = fleet(&folder.0);
    // A half-written file, and a recording that is not in `recordings` yet.
    let half = folder.0.join("operations/job=train/date=2026-11-21/host=007/rank=0");
    fs::create_dir_all(&half)?;
    fs::write(half.join(".gpuprof.1.0.partial"), b"PAR1 half")?;
    parts[0].3[0].add_to_fleet(&folder.0, &FleetPart::new("late", "late", 7))?;
    fs::remove_dir_all(folder.0.join("recordings/job=late"))?;

    let first = ask(python, engines[0], &folder.0)?;
    check_sums(&first[0], &parts)?;
    for engine in &engines[1..] {
        same(engine, &ask(python, engine, &folder.0)?, &first)?;
    }
    // The same rows from fewer files, also if a recording is added once more.
    let joined = compact_fleet(&folder.0)?;
    if joined != 2 * 3 * 3 {
        return Err(format!("{joined} files were joined").into());
    }
    let (job, host, rank, profiles) = &parts[parts.len() - 1];
    profiles[0].add_to_fleet(&folder.0, &FleetPart::new(*job, *host, *rank))?;
    for engine in engines {
        same(&format!("{engine}, joined"), &ask(python, engine, &folder.0)?, &first)?;
    }
    Ok(())
}
