//! A fleet, asked by DuckDB, DataFusion and Spark: equal rows, and those of the profiles.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fake_cupti::Work;
use libtest_mimic::Failed;
use profiler_analysis::formats::{FLEET_VIEWS, FleetPart, compact_fleet};
use profiler_analysis::prelude::*;
use profiler_core::Profile;
use serde_json::{Value, json};
use test_support::everything::{everything, fake, record};
use test_support::folder::{Folder, files};

use super::{KINDS, RECORDING};

/// What a running process appended.
const APPENDED: &[u8] = include_bytes!("../../../tests/recordings/nccl-2xh100/rank-1.gpuprof");

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

/// Ranks of two jobs, of which every second is missing; one of each has several recordings of a day.
fn fleet(folder: &Path) -> Vec<Part> {
    let mut parts = Vec::new();
    for (job, host) in JOBS.into_iter().zip(HOSTS) {
        let read = |bytes| Profile::from_bytes(bytes).unwrap();
        let several = (0..3).map(|_| everything()).collect();
        // A rank that was killed.
        let killed = read(&APPENDED[..APPENDED.len() - 40]);
        let ranks = [vec![read(RECORDING)], vec![read(KINDS)], several, vec![killed]];
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

/// A thousand ranks of one recording each.
pub(crate) fn thousand_ranks(python: &Path, engines: &[&str]) -> Result<(), Failed> {
    let folder = Folder::new();
    let profile = Profile::from_bytes(KINDS).unwrap();
    for rank in 0..1_000 {
        let part = FleetPart::new("wide", format!("node-{}", rank / 8), rank);
        profile.add_to_fleet(&folder.0, &part)?;
    }
    let first = ask(python, engines[0], &folder.0)?;
    let operations = 1_000 * profile.totals().gpu_operations();
    let row = &first[5][0];
    if [&row[2], &row[3], &row[6]] != [&json!(1_000), &json!(1_000), &json!(operations)] {
        return Err(format!("{row} of {operations} operations").into());
    }
    for engine in &engines[1..] {
        same(engine, &ask(python, engine, &folder.0)?, &first)?;
    }
    Ok(())
}

/// A training on four ranks, with 100,000 operations each.
fn add_training(folder: &Path) {
    let fake = fake();
    let profile = record(&fake, || {
        for at in 0..100_000_u64 {
            let _step = (at % 100 == 0).then(|| nvtx::range("step"));
            let name = [c"gemm", c"ncclDevKernel_AllReduce", c"relu"][at as usize % 3];
            fake.launch(Work::kernel(name).taking_ns(1_000 + at * 7_919 % 5_000));
        }
    });
    for rank in 0..4 {
        let part = FleetPart::new("large", format!("node-{}", rank / 2), rank);
        profile.add_to_fleet(folder, &part).unwrap();
    }
}

/// Spark with two executors finds what DuckDB does: in the rows of all kinds, and in four ranks with 100,000 operations each.
pub(crate) fn spark_agrees(sql: &Path, spark: &Path) -> Result<(), Failed> {
    let folder = Folder::new();
    fleet(&folder.0);
    add_training(&folder.0);
    let expected = ask(sql, "duckdb", &folder.0)?;
    let large = expected[0].as_array().unwrap().iter().filter(|row| row[0] == "large");
    let counts: Vec<&Value> = large.map(|row| &row[4]).collect();
    if counts != [&json!(100_000); 4] {
        return Err(format!("{counts:?} operations").into());
    }
    same("spark", &ask(spark, "spark", &folder.0)?, &expected)
}

/// The last question: missing ranks and incomplete recordings, by day.
fn check_completeness(found: &Value, parts: &[Part]) -> Result<(), Failed> {
    let mut expected: BTreeMap<(&str, String), [u64; 3]> = BTreeMap::new();
    for (job, _, rank, profiles) in parts {
        for profile in profiles {
            let day = profile.recording_info().date().unwrap();
            let [recordings, incomplete, last] = expected.entry((job, day)).or_default();
            *recordings += 1;
            *incomplete += u64::from(!profile.health().is_complete());
            *last = (*last).max((*rank).into());
        }
    }
    let incomplete: u64 = expected.values().map(|[_, incomplete, _]| incomplete).sum();
    let expected: Vec<Value> = expected
        .into_iter()
        .map(|((job, day), [recordings, incomplete, last])| {
            json!([job, day, recordings, incomplete, last])
        })
        .collect();
    let found: Vec<Value> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let last = row[3].as_u64().unwrap() + row[4].as_u64().unwrap() - 1;
            json!([row[0], row[1], row[2], row[5], last])
        })
        .collect();
    match found == expected && incomplete >= 2 {
        true => Ok(()),
        false => Err(format!("{found:?}\ninstead of\n{expected:?}").into()),
    }
}

/// Makes a partition's file one of a later version, which has a column that the others lack.
fn add_column(python: &Path, file: &Path) -> Result<(), Failed> {
    let program = "import sys, pyarrow, pyarrow.parquet as parquet\n\
        rows = parquet.ParquetFile(sys.argv[1]).read()\n\
        later = pyarrow.array([1] * len(rows), pyarrow.int64())\n\
        parquet.write_table(rows.append_column('later', later), sys.argv[1])";
    let output = Command::new(python).args(["-c", program]).arg(file).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
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
    check_completeness(&first[5], &parts)?;
    for engine in &engines[1..] {
        same(engine, &ask(python, engine, &folder.0)?, &first)?;
    }
    // The same rows from fewer files, also if a recording is added once more.
    let joined = compact_fleet(&folder.0)?;
    if joined != 2 * 3 * 3 {
        return Err(format!("{joined} files were joined").into());
    }
    let (job, host, rank, profiles) =
        parts.iter().rfind(|(_, _, _, profiles)| profiles.len() > 1).ok_or("no such rank")?;
    profiles[0].add_to_fleet(&folder.0, &FleetPart::new(*job, *host, *rank))?;
    for engine in engines {
        same(&format!("{engine}, joined"), &ask(python, engine, &folder.0)?, &first)?;
    }
    // Partitions of several versions.
    for table in ["operations", "ranges", "recordings"] {
        let table = folder.0.join(table);
        let is_whole = |file: &PathBuf| file.extension().is_some_and(|name| name == "parquet");
        let mut files = files(&table).into_iter();
        let file = files.find(|file| file.starts_with("job=train") && is_whole(file));
        add_column(python, &table.join(file.ok_or("there is no file")?))?;
    }
    compact_fleet(&folder.0)?;
    for engine in engines {
        same(&format!("{engine}, versions"), &ask(python, engine, &folder.0)?, &first)?;
    }
    Ok(())
}
