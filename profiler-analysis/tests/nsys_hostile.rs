//! Captures that nobody should give: endless, huge, with SQL for names and anything for a number. Each is an error, or a
//! profile that says what it could not read, and all that can be asked of that is answered.
//!
//! `HOSTILE_CAPTURES` says how many captures of odd cells there are, `HOSTILE_CAPTURES_SEED` the first one's seed.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // the helpers are tests too

#[path = "support/capture.rs"]
#[allow(dead_code)] // it makes random captures too
mod capture;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use capture::{Folder, SCHEMA, connect, global};
use profiler_analysis::Format;
use profiler_analysis::formats::Export;
use profiler_analysis::prelude::*;
use profiler_analysis::reports::{Rule, StatsReport};
use profiler_core::Profile;
use rusqlite::Connection;

fn train() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/captures/train-h200.sqlite")
}

/// Everything that a profile can be asked for as text or as a file.
fn ask_everything(profile: &Profile, folder: &Folder) {
    assert!(!profile.to_string().is_empty() && !profile.json_lines().is_empty());
    let state = if profile.health().is_complete() { "complete\n" } else { "INCOMPLETE\n" };
    assert!(profile.counts().ends_with(state));
    let stats = StatsReport::ALL.iter().map(|&report| profile.stats(report));
    for rows in stats.chain(Rule::ALL.iter().map(|&rule| profile.rules().get(rule))) {
        let name = rows.name();
        let lines = if rows.is_empty() { 0 } else { rows.len() + 1 };
        assert_eq!(rows.csv().lines().count(), lines, "{name}");
        let json: serde_json::Value = serde_json::from_str(&rows.json()).unwrap();
        assert_eq!(json.as_array().unwrap().len(), rows.len(), "{name}");
        assert!(rows.to_string().starts_with(name), "{name}");
    }
    for format in Format::ALL {
        let mut bytes = Vec::new();
        profile.export(Export::new(format), &mut bytes).unwrap();
    }
    let mut page = Vec::new();
    profile.write_html(&mut page).unwrap();
    let again = folder.file("again.sqlite");
    profile.write_nsys(&again, |_, _| ()).unwrap();
    // A call of a class that nobody knows is written as one of its API, and is then what its name says.
    let operations = |profile: &Profile| {
        let totals = profile.totals();
        (totals.kernels, totals.kernel_time(), totals.copies, totals.copy_bytes, totals.memsets)
    };
    assert_eq!(operations(&profiler_analysis::nsys::read(&again).unwrap()), operations(profile));
}

#[test]
fn any_value_in_any_cell_is_read_or_counted() {
    let folder = Folder::new();
    let values = [
        "NULL",
        "-1",
        "0",
        "1",
        "9223372036854775807",
        "-9223372036854775808",
        "4294967296",
        "1e308",
        "-1e308",
        "9e999",
        "''",
        "'; DROP TABLE NVTX_EVENTS; --'",
        "'\"'",
        "x'00ff'",
        "zeroblob(1000)",
        "char(0, 0x202e, 0x10ffff)",
        "rowid",
        "-rowid",
    ];
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (count, first) = (number("HOSTILE_CAPTURES", 4), number("HOSTILE_CAPTURES_SEED", 0));
    for seed in first..first + count {
        let mut rng = fastrand::Rng::with_seed(seed);
        let path = folder.file("odd.sqlite");
        fs::copy(train(), &path).unwrap();
        let connection = connect(&path);
        connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA writable_schema = ON;
             UPDATE sqlite_schema SET sql = replace(replace(replace(sql, 'NOT NULL', ''), 'INTEGER', ''), 'PRIMARY KEY', '')
             WHERE name LIKE 'CUPTI%' OR name LIKE 'NVTX%' OR name LIKE 'PRO%' OR name LIKE 'TARGET%'").unwrap();
        drop(connection);
        let connection = connect(&path);
        let tables: Vec<String> = {
            let query =
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'ENUM%'";
            let mut names = connection.prepare(query).unwrap();
            names.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
        };
        for table in tables {
            let mut columns = Vec::new();
            connection
                .pragma(None, "table_info", &table, |row| {
                    columns.push(row.get::<_, String>(1)?);
                    Ok(())
                })
                .unwrap();
            for column in columns {
                if rng.u8(..4) != 0 {
                    continue;
                }
                let value = rng.choice(values).unwrap();
                let every = rng.u8(1..9);
                let update = format!(
                    "UPDATE OR IGNORE {table} SET {column} = {value} WHERE rowid % {every} = 0"
                );
                // Some columns refuse some values; others then have them.
                let _ = connection.execute_batch(&update);
            }
        }
        drop(connection);
        let profile = profiler_analysis::nsys::read(&path).unwrap().with_inferred_ranges();
        assert!(!profile.health().is_complete(), "{seed}: {}", profile.health());
        ask_everything(&profile, &folder);
    }
}

#[test]
fn sql_for_a_name_is_a_name() {
    let folder = Folder::new();
    let path = folder.file("names.sqlite");
    let connection = connect(&path);
    connection.execute_batch(SCHEMA).unwrap();
    let tid = global(9, 9);
    let name = "'); DROP TABLE NVTX_EVENTS; --\"";
    connection
        .execute(
            "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES (1, 2, 59, ?1, ?2)",
            (name, tid),
        )
        .unwrap();
    connection
        .execute_batch(
            "CREATE TABLE \"CUPTI_ACTIVITY_KIND_A\"\", (SELECT 1 FROM sqlite_schema a, sqlite_schema b), \"\"\" (a);
             INSERT INTO \"CUPTI_ACTIVITY_KIND_A\"\", (SELECT 1 FROM sqlite_schema a, sqlite_schema b), \"\"\" VALUES (1);
             CREATE TABLE \"a';DROP TABLE x\" (\"b\"\" FROM c; --\" TEXT);
             CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_MODULE USING rtree(a, b, c)",
        )
        .unwrap();
    drop(connection);
    let profile = profiler_analysis::nsys::read(&path).unwrap();
    assert_eq!(profile.range(name).unwrap().instances(), 1);
    // And what the module keeps beside its table.
    assert_eq!(profile.health().facts.unused_records, 2);
    ask_everything(&profile, &folder);
}

/// Pages of 512 bytes. In `chain` of them all of a page's entries lead to the next, and the last's to the rows: as many rows
/// as no file could hold.
fn endless(path: &Path, chain: usize) {
    const PAGE: usize = 512;
    const ENTRIES: usize = 60;
    let connection = Connection::open(path).unwrap();
    connection.execute_batch("PRAGMA page_size = 512; PRAGMA journal_mode = DELETE;").unwrap();
    connection
        .execute_batch(
            "CREATE TABLE NVTX_EVENTS (start, end, eventType, text, globalTid);
             INSERT INTO NVTX_EVENTS VALUES (1, 2, 59, 'again', 4)",
        )
        .unwrap();
    let root: u32 = connection
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'NVTX_EVENTS'", (), |row| {
            row.get(0)
        })
        .unwrap();
    drop(connection);
    let mut bytes = fs::read(path).unwrap();
    let (root, pages) = (root as usize, bytes.len() / PAGE);
    let leaf = bytes[(root - 1) * PAGE..root * PAGE].to_vec();
    // The rows move to the end, and their place becomes the first of the chain.
    let numbers: Vec<usize> = std::iter::once(root).chain(pages + 1..pages + 1 + chain).collect();
    bytes.resize((pages + chain) * PAGE, 0);
    for pair in numbers.windows(2) {
        let (page, next) = (pair[0], pair[1] as u32);
        let mut content = vec![0; PAGE];
        content[0] = 5; // within a table
        content[3..5].copy_from_slice(&(ENTRIES as u16).to_be_bytes());
        content[8..12].copy_from_slice(&next.to_be_bytes());
        for entry in 0..ENTRIES {
            let at = PAGE - (entry + 1) * 5;
            content[at..at + 4].copy_from_slice(&next.to_be_bytes());
            content[at + 4] = entry as u8 + 1;
            content[12 + 2 * entry..14 + 2 * entry].copy_from_slice(&(at as u16).to_be_bytes());
        }
        content[5..7].copy_from_slice(&((PAGE - ENTRIES * 5) as u16).to_be_bytes());
        bytes[(page - 1) * PAGE..page * PAGE].copy_from_slice(&content);
    }
    let last = numbers[chain] - 1;
    bytes[last * PAGE..(last + 1) * PAGE].copy_from_slice(&leaf);
    let count = (bytes.len() / PAGE) as u32;
    bytes[28..32].copy_from_slice(&count.to_be_bytes());
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_small_file_without_an_end_is_an_error_soon() {
    let folder = Folder::new();
    let path = folder.file("endless.sqlite");
    endless(&path, 1);
    assert_eq!(
        profiler_analysis::nsys::read(&path).unwrap().range("again").unwrap().instances(),
        61
    );
    let _ = fs::remove_file(&path);
    endless(&path, 12);
    // To read all of it would take years.
    let error = profiler_analysis::nsys::read(&path).unwrap_err();
    assert!(error.is_format() && error.to_string().contains("damaged"), "{error}");
    // Round in a circle.
    let mut bytes = fs::read(&path).unwrap();
    let root = 2_u32;
    for page in bytes[512..].chunks_exact_mut(512) {
        if page[0] == 5 {
            page[8..12].copy_from_slice(&root.to_be_bytes());
            for entry in 0..60 {
                page[512 - (entry + 1) * 5..][..4].copy_from_slice(&root.to_be_bytes());
            }
        }
    }
    fs::write(&path, bytes).unwrap();
    assert!(profiler_analysis::nsys::read(&path).unwrap_err().is_format());
}

/// One payload of many fields that every row has: a small file that would come to gigabytes.
#[test]
fn a_payload_that_all_rows_share_is_read_once_and_kept_within_bounds() {
    const FIELDS: usize = 20_000;
    let folder = Folder::new();
    let path = folder.file("payload.sqlite");
    let fields: Vec<String> = (0..FIELDS).map(|field| format!("\"f{field}\":{field}")).collect();
    let json = format!("{{{}}}", fields.join(","));
    let (tid, rows) = (global(9, 9), 20_000);
    let connection = connect(&path);
    connection
        .execute_batch(&format!(
            "{SCHEMA}
             INSERT INTO StringIds (id, value) VALUES (900, '{json}'), (901, '{{\"a\":1}}'), (902, 'x');
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
             INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, jsonTextId)
             SELECT i * 10, i * 10 + 5, 59, 'a', {tid}, CASE i % 4 WHEN 0 THEN 901 ELSE 900 END FROM n;
             INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, jsonTextId)
             VALUES (1, 2, 59, 'b', {tid}, 902), (3, 4, 59, 'b', {tid}, 903)"
        ))
        .unwrap();
    drop(connection);
    let profile = profiler_analysis::nsys::read(&path).unwrap();
    let counts: Vec<usize> = profile.ranges().map(|range| range.fields().count()).collect();
    let all: usize = counts.iter().sum();
    let bytes = fs::metadata(&path).unwrap().len() as usize;
    assert!((1 << 20..=(1 << 20) + bytes).contains(&all), "{all} of a file of {bytes}");
    let without = counts.iter().filter(|count| **count == 0).count();
    let whole = counts.iter().filter(|count| **count == FIELDS).count();
    let small = counts.iter().filter(|count| **count == 1).count();
    assert_eq!((whole + small + without, counts.len()), (rows + 2, rows + 2));
    assert!(whole > 50 && small > 50, "{whole} {small}");
    assert_eq!(profile.health().losses.unknown_records, without as u64);
}

/// Each number of a device in a row of its own, and each GPU again and again.
#[test]
fn devices_without_end_are_read_soon() {
    const DEVICES: usize = 60_000;
    let folder = Folder::new();
    let path = folder.file("devices.sqlite");
    let connection = connect(&path);
    connection
        .execute_batch(&format!(
            "{SCHEMA}
             DROP TABLE IF EXISTS TARGET_INFO_GPU; DROP TABLE IF EXISTS TARGET_INFO_CUDA_DEVICE;
             CREATE TABLE TARGET_INFO_GPU (id, name); CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId, cudaId);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {DEVICES})
             INSERT INTO TARGET_INFO_CUDA_DEVICE SELECT i / 2 * (i % 2), i FROM n;
             INSERT INTO TARGET_INFO_GPU SELECT gpuId, 'first' FROM TARGET_INFO_CUDA_DEVICE;
             INSERT INTO TARGET_INFO_GPU SELECT 0, 'second' FROM TARGET_INFO_CUDA_DEVICE"
        ))
        .unwrap();
    drop(connection);
    let profile = profiler_analysis::nsys::read(&path).unwrap();
    let devices = &profile.recording_info().devices;
    assert_eq!(devices.len(), DEVICES);
    assert!(devices.iter().all(|device| device.name == "first"));
}

#[test]
fn nodes_that_were_copied_in_a_circle_are_of_no_range() {
    let folder = Folder::new();
    let path = folder.file("circle.sqlite");
    let connection = connect(&path);
    let (pid, tid) = (global(9, 0), global(9, 9));
    connection
        .execute_batch(&format!(
            "{SCHEMA}
             CREATE TABLE CUDA_GRAPH_NODE_EVENTS (start, end, globalTid, graphNodeId, originalGraphNodeId);
             INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES (1, 2, {tid}, 5, 6), (1, 2, {tid}, 6, 7), (1, 2, {tid}, 7, 5);
             ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN graphNodeId;
             INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, correlationId, globalPid, graphNodeId)
             VALUES (10, 20, 1, {pid}, 5);
             INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES (0, 9, 59, 'a', {tid})"
        ))
        .unwrap();
    drop(connection);
    let profile = profiler_analysis::nsys::read(&path).unwrap();
    assert_eq!(profile.range("a").unwrap().replayed().kernels, 0);
    ask_everything(&profile, &folder);
}

#[test]
fn capture_replaces_only_a_regular_file() {
    use std::os::unix::fs::{FileTypeExt as _, symlink};
    let folder = Folder::new();
    let profile = profiler_analysis::nsys::read(train()).unwrap();
    let write = |path: &Path| profile.write_nsys(path, |_, _| ());
    let refused = |path: &Path, says: &str| {
        let error = write(path).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains(&*path.to_string_lossy()), "{error}");
    };
    refused(&folder.0, "directory");
    let socket = folder.file("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    refused(&socket, "socket");
    assert!(fs::metadata(&socket).unwrap().file_type().is_socket());
    refused(Path::new("/dev/null"), "device");
    let link = folder.file("link");
    symlink(folder.file("no/where"), &link).unwrap();
    refused(&link, "No such file");
    assert!(!folder.file("no").exists());
    for to in ["/dev/null", folder.0.to_str().unwrap()] {
        fs::remove_file(&link).unwrap();
        symlink(to, &link).unwrap();
        refused(&link, "it is a d");
    }

    // A link stays one, and leads to the capture, also where there was no file.
    fs::remove_file(&link).unwrap();
    symlink(folder.file("new.sqlite"), &link).unwrap();
    write(&link).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(
        profiler_analysis::nsys::read(folder.file("new.sqlite")).unwrap().totals(),
        profile.totals()
    );
    let there = folder.file("there.sqlite");
    fs::write(&there, "something else").unwrap();
    fs::remove_file(&link).unwrap();
    symlink(&there, &link).unwrap();
    write(&link).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(profiler_analysis::nsys::read(&there).unwrap().totals(), profile.totals());
    // What an earlier process of the same number left is not written to.
    let left = folder.file(&format!(".gpuprof.{}.0.partial", std::process::id()));
    symlink(folder.file("elsewhere"), &left).unwrap();
    let longest = folder.file(&"x".repeat(255));
    write(&longest).unwrap();
    assert!(!folder.file("elsewhere").exists());
    assert_eq!(profiler_analysis::nsys::read(&longest).unwrap().totals(), profile.totals());
    fs::remove_file(&left).unwrap();
    let names = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().contains("partial")));
}

/// In release, for the figures:
/// `cargo test --release -p profiler-core --features nsys --test nsys_hostile -- --ignored --nocapture`. Needs 4 GB of disk.
#[test]
#[ignore = "a measurement"]
fn ten_million_rows_are_read_and_reported() {
    let folder = Folder::new();
    let path = folder.file("large.sqlite");
    let tid = global(9, 9);
    let connection = connect(&path);
    connection.execute_batch(SCHEMA).unwrap();
    connection
        .execute_batch(&format!(
            "PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF; BEGIN;
             CREATE TEMP TABLE n AS WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 4499999)
             SELECT i FROM n;
             INSERT INTO StringIds SELECT i, '_Z8kernel' || (10 + i) || 'if' FROM n WHERE i < 50;
             INSERT INTO StringIds VALUES (100, 'cudaLaunchKernel_v7000');
             INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME SELECT i * 2000 + 100, i * 2000 + 1000, 0, {tid}, i + 1, 100, 0 FROM n;
             INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT i * 2000 + 1500, i * 2000 + 3000, 0, 1, 7, i + 1, {tid} - 9,
             i % 50, i % 50, i % 50, 32, 100, 1, 1, 256, 1, 1, 0, 0, 0 FROM n;
             INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) SELECT i * 2000, i * 2000 + 9999, 59, 'step',
             {tid} FROM n WHERE i % 5 = 0;
             INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) SELECT i * 2000, NULL, 34, 'mark', {tid} FROM n
             WHERE i % 45 = 0; COMMIT; DROP TABLE n"
        ))
        .unwrap();
    let rows: i64 = connection
        .query_row(
            "SELECT (SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME) + (SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL)
             + (SELECT count(*) FROM NVTX_EVENTS)",
            (),
            |row| row.get(0),
        )
        .unwrap();
    drop(connection);
    let megabytes = fs::metadata(&path).unwrap().len() / 1_000_000;
    let peak = || {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default().to_owned()
    };
    let before = peak();
    let start = Instant::now();
    let profile = profiler_analysis::nsys::read(&path).unwrap();
    let read = start.elapsed();
    let after = peak();
    let start = Instant::now();
    let sums: Vec<usize> = StatsReport::ALL
        .iter()
        .filter(|report| !report.name().contains("trace"))
        .map(|report| profile.stats(*report).csv().len())
        .collect();
    let summed = start.elapsed();
    println!(
        "{rows} rows, {megabytes} MB: read in {read:?}, summed in {summed:?}; {before} before, {after} read, {} at the end",
        peak()
    );
    assert_eq!(profile.kernels().count(), 4_500_000);
    assert_eq!(profile.range("step").unwrap().kernels(), 4_500_000);
    assert!(sums.iter().sum::<usize>() > 0 && rows >= 10_000_000);
}
