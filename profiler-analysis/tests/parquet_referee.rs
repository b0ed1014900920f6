//! DuckDB as a referee: what SQL over our Parquet files comes to is what our queries say.
//!
//! `TRACE_REFEREES` names the folder that `.ci/fetch-trace-referees` filled. No GPU is needed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers are tests too")]
#![allow(clippy::print_stderr, reason = "a test without the standard harness")]

#[path = "parquet_referee/fleet.rs"]
mod fleet;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, io};

use libtest_mimic::{Arguments, Failed, Trial};
use profiler_analysis::formats::ParquetOptions;
use profiler_analysis::prelude::*;
use profiler_core::Profile;
use profiler_core::profile::{GpuOperation, RangeNode, Totals};
use serde_json::{Value, json};
use test_support::everything::everything;
use test_support::folder;
use test_support::folder::Folder;
use test_support::graphs::graphs;
use test_support::sampled;

const RECORDING: &[u8] = include_bytes!("../../examples/recordings/quickstart-h200.gpuprof");
const KINDS: &[u8] = include_bytes!("../../tests/recordings/kinds-130001.gpuprof");

type Test = fn(&Path) -> Result<(), Failed>;

fn main() {
    let arguments = Arguments::from_args();
    let python = env::var_os("TRACE_REFEREES").map(|folder| PathBuf::from(folder).join("duckdb"));
    let python = python.filter(|folder| folder.join("complete").exists());
    let tests: [(&str, Test); 5] = [
        ("duckdb_sums_up_as_we_do", sums_up),
        ("duckdb_finds_the_work_of_each_range", finds_ranges),
        ("duckdb_sums_samples_up_as_we_do", sums_samples),
        ("duckdb_tells_hosts_and_ranks_apart", tells_parts_apart),
        ("duckdb_reads_all_tables", reads_all),
    ];
    let trials = tests.map(|(name, test)| {
        if python.is_none() && !arguments.list {
            eprintln!("{name} is ignored: TRACE_REFEREES names no folder with duckdb/complete");
        }
        let ignored = python.is_none();
        let python = python.clone();
        let run = move || test(&python.ok_or("DuckDB is not there")?.join("bin/python"));
        Trial::test(name, run).with_ignored_flag(ignored)
    });
    // Engines over a fleet are a referee of their own.
    let sql = env::var_os("SQL_REFEREES").map(|folder| PathBuf::from(folder).join("bin/python"));
    let sql = sql.filter(|python| python.exists());
    if sql.is_none() && !arguments.list {
        eprintln!(
            "sql_engines_agree_on_a_fleet is ignored: SQL_REFEREES names no folder with bin/python"
        );
    }
    let spark = env::var_os("SPARK_REFEREE").map(|folder| PathBuf::from(folder).join("bin/python"));
    let both = sql.clone().zip(spark.filter(|python| python.exists()));
    if both.is_none() && !arguments.list {
        eprintln!(
            "spark_agrees_on_a_fleet is ignored: SQL_REFEREES and SPARK_REFEREE name no folders with bin/python"
        );
    }
    let is_ignored = [sql.is_none(), both.is_none()];
    let wide = sql.clone();
    let wide = move || {
        fleet::thousand_ranks(&wide.ok_or("the engines are not there")?, &["duckdb", "datafusion"])
    };
    let wide = Trial::test("sql_engines_read_1000_ranks", wide).with_ignored_flag(is_ignored[0]);
    let agree = move || {
        fleet::engines_agree(&sql.ok_or("the engines are not there")?, &["duckdb", "datafusion"])
    };
    let spark = move || {
        let (sql, spark) = both.ok_or("Spark is not there")?;
        fleet::spark_agrees(&sql, &spark)
    };
    let agree = Trial::test("sql_engines_agree_on_a_fleet", agree).with_ignored_flag(is_ignored[0]);
    let spark = Trial::test("spark_agrees_on_a_fleet", spark).with_ignored_flag(is_ignored[1]);
    let trials = trials.into_iter().chain([agree, wide, spark]).collect();
    // One fake at a time.
    let arguments = Arguments { test_threads: Some(1), ..arguments };
    libtest_mimic::run(&arguments, trials).exit();
}

/// By name: what was recorded, and what is made up.
fn profiles() -> [(&'static str, Profile); 4] {
    let read = |bytes| Profile::from_bytes(bytes).unwrap();
    let (recorded, kinds) = (read(RECORDING), read(KINDS));
    [("recorded", recorded), ("kinds", kinds), ("everything", everything()), ("graphs", graphs())]
}

/// The rows of each query, each an array.
fn ask(python: &Path, folder: &Path, queries: &[String]) -> Result<Vec<Vec<Value>>, Failed> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parquet_referee/ask_duckdb.py");
    let mut command = Command::new(python);
    command.arg(script).arg(folder).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // One that ends early says why.
    let _: io::Result<()> = child.stdin.take().unwrap().write_all(queries.join("\n").as_bytes());
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let said = String::from_utf8(output.stdout)?;
    let answers: Vec<Vec<Value>> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), queries.len());
    Ok(answers)
}

fn same(what: &str, said: &[Value], ours: impl IntoIterator<Item = Value>) -> Result<(), Failed> {
    let sorted = |rows: Vec<Value>| {
        let mut rows: Vec<String> = rows.iter().map(Value::to_string).collect();
        rows.sort();
        rows
    };
    let (said, ours) = (sorted(said.to_vec()), sorted(ours.into_iter().collect()));
    if said == ours {
        return Ok(());
    }
    Err(format!("{what}: DuckDB says\n{}\nand we\n{}", said.join("\n"), ours.join("\n")).into())
}

/// Count, nanoseconds and bytes of all that have the same key.
fn grouped<'a>(
    profile: &'a Profile,
    key: impl Fn(&GpuOperation<'a>) -> Option<String>,
) -> Vec<Value> {
    let groups = profile.query().group_by(key);
    let row = |group: &profiler_core::query::Group<String>| {
        json!([group.key(), group.count(), group.time().as_nanos() as u64, group.bytes()])
    };
    groups.iter().map(row).collect()
}

fn sums_up(python: &Path) -> Result<(), Failed> {
    let queries = [
        r#"SELECT value, count(*), sum("end" - start), 0 FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = mangledName GROUP BY value"#,
        r#"SELECT replace(lower(label), '-', ' '), count(*), sum("end" - start), sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY JOIN ENUM_CUDA_MEMCPY_OPER ON id = copyKind GROUP BY label"#,
        r#"SELECT value::VARCHAR, count(*), sum("end" - start), sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMSET GROUP BY value"#,
        r#"SELECT value, count(*), sum(if(returnValue = 0, 1, 0)) FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId GROUP BY value"#,
        r#"SELECT streamId::VARCHAR, count(*) FROM (SELECT streamId FROM CUPTI_ACTIVITY_KIND_KERNEL UNION ALL SELECT streamId FROM CUPTI_ACTIVITY_KIND_MEMCPY UNION ALL SELECT streamId FROM CUPTI_ACTIVITY_KIND_MEMSET) GROUP BY streamId"#,
    ]
    .map(str::to_owned);
    for (name, profile) in profiles() {
        let folder = Folder::new();
        profile.write_parquet(&folder.0, &ParquetOptions::new())?;
        let answers = ask(python, &folder.0, &queries)?;
        let kernels = grouped(&profile, |operation| Some(operation.as_kernel()?.name().to_owned()));
        same(&format!("{name}: kernels"), &answers[0], kernels)?;
        let copies = grouped(&profile, |operation| Some(operation.as_copy()?.kind().to_string()));
        same(&format!("{name}: copies"), &answers[1], copies)?;
        let memsets =
            grouped(&profile, |operation| Some(operation.as_memset()?.details().value.to_string()));
        same(&format!("{name}: memsets"), &answers[2], memsets)?;
        let mut calls: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for call in profile.calls() {
            let sums = calls.entry(call.name()).or_default();
            sums.0 += 1;
            sums.1 += u64::from(call.result() == 0);
        }
        let calls = calls.into_iter().map(|(name, sums)| json!([name, sums.0, sums.1]));
        same(&format!("{name}: calls"), &answers[3], calls)?;
        let streams = profile.query().group_by(|operation| Some(operation.stream()));
        let streams = streams.iter().map(|group| json!([group.key().to_string(), group.count()]));
        same(&format!("{name}: streams"), &answers[4], streams)?;
    }
    Ok(())
}

/// Sums by path and domain of what `totals` says of each node, those of nothing left out.
fn by_path(
    profile: &Profile,
    totals: impl Fn(&RangeNode<'_>) -> Totals,
    of: impl Fn(&Totals) -> [u64; 3],
) -> Vec<Value> {
    let mut paths: BTreeMap<(String, Option<&str>), [u64; 3]> = BTreeMap::new();
    for (_, node) in profile.walk() {
        let sums = of(&totals(&node));
        if sums[0] != 0 {
            let known = paths.entry((node.path(), node.domain())).or_default();
            known.iter_mut().zip(sums).for_each(|(known, sum)| *known += sum);
        }
    }
    paths
        .into_iter()
        .map(|((path, domain), [n, ns, bytes])| json!([path, domain, n, ns, bytes]))
        .collect()
}

fn ns(time: Duration) -> u64 {
    time.as_nanos() as u64
}

fn finds_ranges(python: &Path) -> Result<(), Failed> {
    type Of = fn(&Totals) -> [u64; 3];
    type Sums = fn(&RangeNode<'_>) -> Totals;
    let kinds: [(&str, &str, Of); 3] = [
        ("KERNEL", "0", |totals| [totals.kernels, ns(totals.kernel_time()), 0]),
        ("MEMCPY", "sum(bytes)", |totals| {
            [totals.copies, ns(totals.copy_time()), totals.copy_bytes]
        }),
        ("MEMSET", "sum(bytes)", |totals| {
            [totals.memsets, ns(totals.memset_time()), totals.memset_bytes]
        }),
    ];
    // Each range with those around it, itself among them.
    let around = "WITH RECURSIVE up(id, around) AS (SELECT id, id FROM RANGES UNION SELECT up.id, parentId FROM up \
                  JOIN RANGES r ON r.id = up.around WHERE parentId IS NOT NULL) ";
    let within = "JOIN up ON up.id = {} JOIN RANGES r ON r.id = up.around";
    let sums: [(&str, &str, String, Sums); 3] = [
        ("", "JOIN RANGES r ON r.id = {}", "rangeId".to_owned(), |node| node.exclusive()),
        (around, within, "rangeId".to_owned(), |node| node.inclusive()),
        (around, within, "capturedRangeId".to_owned(), |node| node.replayed()),
    ];
    let (mut queries, mut ours) = (Vec::new(), Vec::new());
    for (before, join, column, of_node) in &sums {
        for (kind, bytes, of) in kinds {
            let join = join.replace("{}", column);
            queries.push(format!(
                "{before}SELECT path, domain, count(*), sum(o.\"end\" - o.start), {bytes} FROM CUPTI_ACTIVITY_KIND_{kind} o \
                 {join} GROUP BY path, domain"
            ));
            ours.push((*of_node, of));
        }
    }
    let mut found = [0; 9];
    for (name, profile) in profiles() {
        let folder = Folder::new();
        profile.write_parquet(&folder.0, &ParquetOptions::new())?;
        let answers = ask(python, &folder.0, &queries)?;
        for (at, (said, (of_node, of))) in answers.iter().zip(&ours).enumerate() {
            same(&format!("{name}: {}", queries[at]), said, by_path(&profile, of_node, of))?;
            found[at] += said.len();
        }
    }
    // No copy is in a graph.
    assert!(found.iter().enumerate().all(|(at, found)| *found > 0 || at == 7), "{found:?}");
    Ok(())
}

/// Totals add up, all else weighs by time; of what is not known there is no row in it.
fn sums_samples(python: &Path) -> Result<(), Failed> {
    let profile = sampled::sampled();
    let folder = Folder::new();
    profile.write_parquet(&folder.0, &ParquetOptions::new())?;
    let query = "SELECT device, metric, count(value), if(kind = 'total', sum(value), \
        sum(value * (\"end\" - start)) / sum(if(value IS NULL, 0, \"end\" - start))) FROM SAMPLES GROUP BY device, metric, kind";
    let answers = ask(python, &folder.0, &[query.to_owned()])?;
    let sums = serde_json::to_value(profile.track_sums())?;
    let ours = sums.as_array().unwrap().iter().map(|sum| {
        let (device, name) = (sum["device"].as_u64().unwrap(), sum["name"].as_str().unwrap());
        let flags = || profile.track(device as u32, name).map(|_| 0.6 * 4.0);
        let value = sum["total"].as_f64().or(sum["mean"].as_f64()).or_else(flags);
        json!([device, name, sum["samples"], value])
    });
    same("samples", &answers[0], ours)
}

fn tells_parts_apart(python: &Path) -> Result<(), Failed> {
    let parts = [
        ("node é/1 = 5%", 0, graphs()),
        ("node é/1 = 5%", 1, everything()),
        ("b", 10, everything()),
    ];
    let folder = Folder::new();
    for (host, rank, profile) in &parts {
        profile.write_parquet(&folder.0, &ParquetOptions::new().host(*host).rank(*rank))?;
    }
    let query = "SELECT host, rank, value, count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s USING (host, rank) \
                 WHERE s.id = k.mangledName GROUP BY host, rank, value";
    let answers = ask(python, &folder.0, &[query.to_owned()])?;
    let mut kernels: BTreeMap<(&str, u32, String), u64> = BTreeMap::new();
    for (host, rank, profile) in &parts {
        for kernel in profile.kernels() {
            *kernels.entry((host, *rank, kernel.name().to_owned())).or_default() += 1;
        }
    }
    let kernels = kernels.into_iter().map(|((host, rank, name), n)| json!([host, rank, name, n]));
    same("parts", &answers[0], kernels)
}

/// Every table can be read, and has as many rows as the footers say.
fn reads_all(python: &Path) -> Result<(), Failed> {
    for (name, profile) in profiles() {
        let folder = Folder::new();
        profile.write_parquet(&folder.0, &ParquetOptions::new())?;
        let tables: Vec<String> = folder::files(&folder.0)
            .iter()
            .map(|file| file.iter().next().unwrap().to_str().unwrap().to_owned())
            .collect();
        let queries: Vec<String> =
            tables.iter().map(|table| format!("SELECT * FROM {table}")).collect();
        let answers = ask(python, &folder.0, &queries)?;
        let rows =
            |table: &str| answers[tables.iter().position(|name| name == table).unwrap()].len();
        let store =
            (rows("RANGES"), rows("CUPTI_ACTIVITY_KIND_RUNTIME"), rows("PROFILER_OVERHEAD"));
        assert_eq!(store, (profile.ranges().count(), profile.calls().count(), 0), "{name}");
    }
    Ok(())
}
