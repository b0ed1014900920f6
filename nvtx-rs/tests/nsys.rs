//! NVIDIA's own tool as a referee: does it record every range, at its level?
//!
//! `NSYS_NVTX` names a program that runs another under `nsys` with NVTX alone and exports what was
//! recorded, as `nsys-nvtx OUT.sqlite PROGRAM`; `nsys` lies beside it. No GPU is needed.
#![allow(clippy::panic, clippy::print_stderr, reason = "a test without the standard harness")]

mod support;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    support::run_scenario();
    let nsys = env::var_os("NSYS_NVTX");
    if nsys.is_none() {
        eprintln!(
            "the tests of nsys are ignored: NSYS_NVTX does not name a program that runs nsys"
        );
    }
    let ignored = nsys.is_none();
    let trial = |name, test: fn(&OsString) -> Result<(), Failed>| {
        let nsys = nsys.clone();
        Trial::test(name, move || test(&nsys.ok_or("NSYS_NVTX is not set")?))
            .with_ignored_flag(ignored)
    };
    let trials = vec![
        trial("nsys_records_every_range_at_its_level", records_every_range),
        trial("nsys_records_every_part_of_an_event", records_every_part),
        trial("nsys_reads_schemas_and_counters", reads_schemas_and_counters),
    ];
    // One nsys at a time: beside another it fails now and then.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit();
}

/// Records a scenario; gives the folder and the SQLite file in it.
fn record(nsys_nvtx: &OsString, scenario: &str) -> Result<(support::Folder, PathBuf), Failed> {
    let folder = support::Folder::new();
    let recorded = folder.0.join("recorded.sqlite");
    let output = Command::new(nsys_nvtx)
        .arg(&recorded)
        .arg(env::current_exe()?)
        .env(support::SCENARIO, scenario)
        .output()?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains("attached: true"), "{stdout}{stderr}");
    Ok((folder, recorded))
}

/// Prints a line for each event, in order: all columns of interest, with texts looked up.
const DUMP: &str = r#"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
text = dict(db.execute("select id, value from StringIds"))
domains = {d: t for d, t in db.execute(
    "select domainId, coalesce(text, textId) from NVTX_EVENTS where eventType = 75")}
domains = {d: text.get(t, t) for d, t in domains.items()}
columns = [row[1] for row in db.execute("pragma table_info(NVTX_EVENTS)")]
rows = [dict(zip(columns, row)) for row in db.execute("select * from NVTX_EVENTS order by start")]
tids = []
for row in rows:
    for key in ("globalTid", "endGlobalTid"):
        if row.get(key) is not None and row[key] not in tids:
            tids.append(row[key])
for row in rows:
    name = row["text"] if row["text"] is not None else text.get(row["textId"])
    parts = ["event %s" % row["eventType"], "%s" % name]
    if row["domainId"] in domains and row["domainId"] != 0:
        parts.append("domain %s" % domains[row["domainId"]])
    for key in ("color", "category", "uint64Value", "int64Value", "doubleValue", "uint32Value",
                "int32Value", "floatValue"):
        if row.get(key) is not None:
            parts.append("%s %s" % (key, row[key]))
    parts.append("thread %d" % tids.index(row["globalTid"]))
    if row.get("endGlobalTid") is not None:
        parts.append("to %d" % tids.index(row["endGlobalTid"]))
    print("; ".join(parts))
"#;

fn records_every_part(nsys_nvtx: &OsString) -> Result<(), Failed> {
    let (_folder, recorded) = record(nsys_nvtx, "real")?;
    let Ok(output) = Command::new("python3").arg("-c").arg(DUMP).arg(&recorded).output() else {
        eprintln!("nsys_records_every_part_of_an_event does nothing: there is no python3");
        return Ok(());
    };
    let dump = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{dump}{}", String::from_utf8_lossy(&output.stderr));
    let expected = include_str!("events/nsys.txt");
    // Newer versions add a domain of their own.
    let recorded = dump.lines().filter(|line| !line.contains("; domain NsysNvtxSemantics;"));
    assert_eq!(recorded.collect::<Vec<_>>(), expected.lines().collect::<Vec<_>>());
    Ok(())
}

/// Prints the schemas, enums and counter samples, with types and domains looked up.
const DUMP_EXTENSIONS: &str = r#"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
tables = {row[0] for row in db.execute("select name from sqlite_master")}
def rows(table, order):
    if table not in tables:
        return []
    columns = [row[1] for row in db.execute("pragma table_info(%s)" % table)]
    found = db.execute("select * from %s order by %s" % (table, order))
    return [dict(zip(columns, row)) for row in found]
text = dict(db.execute("select id, value from StringIds"))
domains = {r["domainId"]: r["text"] for r in rows("NVTX_EVENTS", "start") if r["eventType"] == 75}
# nsys has a domain of its own.
ours = lambda r: domains.get(r["domainId"]) != "NsysNvtxSemantics"
print("tables" if "NVTX_PAYLOAD_SCHEMAS" in tables else "no tables")
names = {}
for r in filter(ours, rows("NVTX_PAYLOAD_ENUMS", "schemaId")):
    names[r["schemaId"]] = r["name"]
    print("enum %s of %d bytes" % (r["name"], r["size"]))
    for e in rows("NVTX_PAYLOAD_ENUM_ENTRIES", "schemaId, idx"):
        if e["schemaId"] == r["schemaId"]:
            print("  %s = %d%s" % (e["name"], e["value"] or 0, " flag" if e["isFlag"] else ""))
for r in filter(ours, rows("NVTX_PAYLOAD_SCHEMAS", "schemaId")):
    print("schema %s of %d bytes in %s, flags %d" % (
        r["name"], r["payloadSize"] or 0, domains.get(r["domainId"], "-"), r["flags"] or 0))
    for e in rows("NVTX_PAYLOAD_SCHEMA_ENTRIES", "schemaId, idx"):
        if e["schemaId"] == r["schemaId"]:
            print("  at %d: %s %s, flags %d, detail %s, %s" % (
                e["offset"] or 0, names.get(e["type"], e["type"]), e["name"], e["flags"] or 0,
                e["arrayOrUnionDetail"], e["description"]))
types = {r["typeId"]: text[r["nameId"]] for r in rows("GENERIC_EVENT_TYPES", "typeId")}
fields = {(r["typeId"], r["fieldIdx"]): text[r["fieldNameId"]]
          for r in rows("GENERIC_EVENT_TYPE_FIELDS", "typeId")}
kinds = {r["genericEventId"]: r["typeId"] for r in rows("GENERIC_EVENTS", "genericEventId")}
for r in rows("GENERIC_EVENT_DATA", "genericEventId"):
    kind = kinds[r["genericEventId"]]
    values = [r[key] for key in ("intVal", "uintVal", "floatVal", "doubleVal") if r[key] is not None]
    print("sample %s: %s %s" % (types[kind], fields[kind, r["fieldIdx"]], values))
"#;

/// What newer versions keep of schemas, enums and counters. The older one that needs no GPU machine keeps none.
fn reads_schemas_and_counters(nsys_nvtx: &OsString) -> Result<(), Failed> {
    let expected = include_str!("events/nsys-extensions.txt");
    let mut dumps = String::new();
    for scenario in ["records", "counters"] {
        let (_folder, recorded) = record(nsys_nvtx, scenario)?;
        let output = Command::new("python3").arg("-c").arg(DUMP_EXTENSIONS).arg(&recorded).output();
        let Ok(output) = output else {
            eprintln!("nsys_reads_schemas_and_counters does nothing: there is no python3");
            return Ok(());
        };
        let dump = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{dump}{}", String::from_utf8_lossy(&output.stderr));
        let Some(dump) = dump.strip_prefix("tables\n") else {
            eprintln!("nsys_reads_schemas_and_counters does nothing: this nsys keeps no schemas");
            return Ok(());
        };
        dumps += dump;
    }
    assert_eq!(dumps.lines().collect::<Vec<_>>(), expected.lines().collect::<Vec<_>>());
    Ok(())
}

fn records_every_range(nsys_nvtx: &OsString) -> Result<(), Failed> {
    let (_folder, recorded) = record(nsys_nvtx, "tree")?;
    let output = Command::new(Path::new(nsys_nvtx).with_file_name("nsys"))
        .args(["stats", "--report", "nvtx_pushpop_trace", "--format", "csv"])
        .arg(&recorded)
        .output()?;
    let report = String::from_utf8_lossy(&output.stdout);
    let mut threads: BTreeMap<&str, Vec<(usize, String)>> = BTreeMap::new();
    let mut columns: Option<(usize, usize, usize)> = None;
    for line in report.lines() {
        let cells: Vec<&str> = line.split(',').collect();
        if let Some((name, thread, level)) = columns {
            if cells.len() > level {
                // Newer versions write `domain:name`; the default domain has no name.
                let shown = cells[name].strip_prefix(':').unwrap_or(cells[name]);
                let range = (cells[level].parse()?, shown.to_owned());
                threads.entry(cells[thread]).or_default().push(range);
            }
        } else {
            let find = |title| cells.iter().position(|cell| *cell == title);
            columns = find("Name")
                .zip(find("TID"))
                .zip(find("Lvl"))
                .map(|((name, thread), level)| (name, thread, level));
        }
    }

    let mut expected = vec![(0, "training".to_owned())];
    for _ in 0..100 {
        expected.push((1, "step".to_owned()));
        expected.push((2, "forward".to_owned()));
        expected.push((2, "backward ∑ 核".to_owned()));
        expected.push((3, "l".repeat(300)));
    }
    assert_eq!(threads.len(), 2, "{report}");
    for ranges in threads.values() {
        assert_eq!(*ranges, expected);
    }
    Ok(())
}
