//! Rows of captures that are rare: negative times, ranges without an end, calls that share a correlation id, tables that
//! are none, rows in any order. What nsys says of each was seen with `nsys stats` 2023.4.

use crate::{capture, captured, file, rewritten};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use capture::{Folder, SCHEMA, connect, global};
use profiler_analysis::prelude::*;
use profiler_analysis::reports::StatsReport;
use profiler_core::{Profile, at_most, expect};
use rusqlite::Connection;

/// Rows of a capture, written in a few words.
struct Rows {
    text: String,
    pid: i64,
    tid: i64,
}

impl Rows {
    fn new() -> Self {
        let names = "INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'k(int)'), (3, 'k'), \
                     (4, 'cuLaunchKernel'), (5, 'cudaStreamBeginCapture_v10000'), (6, 'cudaStreamEndCapture_v10000'), \
                     (7, 'cudaMemcpy_v3020');";
        Self { text: names.to_owned(), pid: global(9, 0), tid: global(9, 9) }
    }

    fn sql(mut self, text: &str) -> Self {
        self.text += text;
        self
    }

    /// A call of the function of this number on thread 9.
    fn call(self, start: i64, end: i64, id: u32, name: u32) -> Self {
        let thread = self.tid;
        self.call_on(thread, start, end, id, name)
    }

    fn call_on(mut self, thread: i64, start: i64, end: i64, id: u32, name: u32) -> Self {
        let class = u32::from(name == 4);
        let _ = write!(
            self.text,
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({start}, {end}, {class}, {thread}, {id}, {name}, 0);"
        );
        self
    }

    fn kernel(mut self, start: i64, end: i64, id: u32) -> Self {
        let _ = write!(
            self.text,
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, correlationId, globalPid, \
             demangledName, shortName, gridX, gridY, gridZ, blockX, blockY, blockZ) VALUES ({start}, {end}, 0, 1, 7, {id}, \
             {}, 2, 3, 1, 1, 1, 1, 1, 1);",
            self.pid
        );
        self
    }

    /// Of a type and with a text as its end, which may be `NULL`.
    fn event(mut self, kind: u32, start: i64, end: &str, name: &str) -> Self {
        let _ = write!(
            self.text,
            "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES ({start}, {end}, {kind}, '{name}', {});",
            self.tid
        );
        self
    }

    fn range(self, start: i64, end: &str, name: &str) -> Self {
        self.event(59, start, end, name)
    }

    fn write(&self, path: &Path) {
        let connection = connect(path);
        connection.execute_batch(SCHEMA).unwrap();
        connection.execute_batch(&self.text).unwrap();
    }

    fn read(&self) -> Profile {
        let folder = Folder::new();
        let path = folder.file("rows.sqlite");
        self.write(&path);
        profiler_analysis::nsys::read(path).unwrap()
    }
}

/// The cells of a report, without its header.
fn cells(profile: &Profile, report: StatsReport) -> Vec<String> {
    profile.stats(report).csv().lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn negative_times_match_nsys() {
    let rows = Rows::new()
        .range(-100, "100", "b")
        .call(-20, -10, 1, 1)
        .kernel(-5, 50, 1)
        .call(20, 30, 2, 1)
        .kernel(60, 70, 2)
        .range(-50, "-30", "early");
    let profile = rows.read();
    let again = rewritten(&profile);
    for profile in [profile, again] {
        profile.health().assert_complete();
        assert_eq!(
            cells(&profile, StatsReport::NvtxPushpopTrace),
            [
                "-100,100,200,20,180,:b,9,9,0,1,1,,:1,:b",
                "-50,-30,20,0,20,:early,9,9,1,0,2,1,:1:2,--:early"
            ]
        );
        assert_eq!(
            cells(&profile, StatsReport::NvtxGpuProjTrace),
            [":b,-5,75,-100,200,PushPop,9,9,2,0,0,1,,:1"]
        );
        assert_eq!(
            cells(&profile, StatsReport::CudaKernExecTrace),
            [
                "-20,10,-10,5,-5,55,70,9,9,0,cudaLaunchKernel,   1    1    1,   1    1    1,k(int)",
                "20,10,30,30,60,10,50,9,9,0,cudaLaunchKernel,   1    1    1,   1    1    1,k(int)"
            ]
        );
        // The profile's own times are since the first event.
        let first = profile.range("b").unwrap();
        assert_eq!((first.kernels(), first.gpu_time()), (2, Duration::from_nanos(65)));
        let starts: Vec<_> = profile.kernels().map(|kernel| kernel.start().unwrap()).collect();
        assert_eq!(starts, [Duration::from_nanos(95), Duration::from_nanos(160)]);
        assert_eq!(profile.query().busy_time(), Duration::from_nanos(65));
    }
}

#[test]
fn clock_of_a_capture_with_negative_times_is_right() {
    let epoch = "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs);
                 INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000);";
    let at = |rows: Rows| {
        let profile = rows.sql(epoch).read();
        let start = profile.calls().next().unwrap().start();
        profile.started_at().unwrap() + start
    };
    let plain = at(Rows::new().call(1000, 1010, 1, 1).kernel(1020, 1030, 1));
    let early = at(Rows::new().call(1000, 1010, 1, 1).kernel(1020, 1030, 1).range(-500, "1", "a"));
    assert_eq!(plain, early);
}

#[test]
fn a_range_without_an_end_owns_work_as_in_nsys() {
    // It is the innermost one around the call, though it lasts longer than the one around it.
    let rows = Rows::new()
        .range(0, "1000", "outer")
        .event(59, 500, "NULL", "open")
        .call(600, 610, 1, 1)
        .kernel(620, 630, 1);
    let profile = rows.read();
    let kernel = profile.kernels().next().unwrap();
    assert_eq!(kernel.range().unwrap().node().path(), "outer/open");
    assert_eq!(
        cells(&profile, StatsReport::NvtxKernSum),
        [
            ":open,PushPop,9,9,1,1,10,10.0,10.0,10,10,0.0,k(int)",
            ":outer,PushPop,9,9,1,1,10,10.0,10.0,10,10,0.0,k(int)"
        ]
    );
    // nsys takes it to end with the last range: a call after that is in none of its reports, and in the range here.
    let rows = Rows::new()
        .range(10, "NULL", "open")
        .range(15, "100", "b")
        .call(20, 30, 1, 1)
        .kernel(40, 50, 1)
        .call(120, 130, 2, 1)
        .kernel(140, 150, 2);
    let profile = rows.read();
    assert_eq!(profile.range("open").unwrap().kernels(), 2);
    assert_eq!(
        cells(&profile, StatsReport::NvtxGpuProjTrace),
        [":open,40,10,10,90,PushPop,9,9,1,0,1,1,,:1", ":b,40,10,15,85,PushPop,9,9,1,1,0,2,1,:1:2"]
    );
    // Marks are no ranges, but the sums of ranges end with them.
    let rows = Rows::new()
        .event(60, 10, "NULL", "open")
        .range(15, "100", "b")
        .event(34, 500, "NULL", "mark")
        .call(20, 30, 1, 1)
        .kernel(40, 50, 1)
        .call(120, 130, 2, 1)
        .kernel(140, 150, 2);
    let profile = rows.read();
    assert_eq!(
        cells(&profile, StatsReport::NvtxSum),
        [
            "85.2,490,1,490.0,490.0,490,490,0.0,StartEnd,:open",
            "14.8,85,1,85.0,85.0,85,85,0.0,PushPop,:b"
        ]
    );
    assert_eq!(
        cells(&profile, StatsReport::NvtxGpuProjTrace),
        [":open,40,10,10,90,StartEnd,9,9,1,0,1,1,,:1", ":b,40,10,15,85,PushPop,9,9,1,1,0,2,1,:1:2"]
    );
}

#[test]
fn ranges_of_nvtxt_are_ranges() {
    let rows = Rows::new()
        .event(70, 0, "100", "text")
        .event(71, 0, "90", "process")
        .call(20, 30, 1, 1)
        .kernel(40, 50, 1);
    let profile = rows.read();
    profile.health().assert_complete();
    assert_eq!(profile.range("text").unwrap().kernels(), 1);
    assert_eq!(profile.process_ranges().count(), 1);
}

#[test]
fn work_is_joined_to_every_call_of_its_correlation_id_as_in_nsys() {
    let other = global(9, 10);
    let rows = Rows::new()
        .range(0, "100", "a")
        .range(200, "300", "b")
        .call(20, 30, 1, 1)
        .call(220, 230, 1, 4)
        .kernel(240, 250, 1)
        .call_on(other, 225, 228, 1, 1);
    let profile = rows.read();
    assert_eq!(
        cells(&profile, StatsReport::CudaKernExecTrace),
        [
            "20,10,30,210,240,10,230,9,9,0,cudaLaunchKernel,   1    1    1,   1    1    1,k(int)",
            "220,10,230,10,240,10,30,9,9,0,cuLaunchKernel,   1    1    1,   1    1    1,k(int)",
            "225,3,228,12,240,10,25,9,10,0,cudaLaunchKernel,   1    1    1,   1    1    1,k(int)"
        ]
    );
    assert_eq!(
        cells(&profile, StatsReport::NvtxGpuProjTrace),
        [":a,240,10,0,100,PushPop,9,9,1,0,0,1,,:1", ":b,240,10,200,100,PushPop,9,9,1,0,0,2,,:2"]
    );
    assert_eq!(
        cells(&profile, StatsReport::NvtxKernSum),
        [
            ",,9,10,0,1,10,10.0,10.0,10,10,0.0,k(int)",
            ":a,PushPop,9,9,1,1,10,10.0,10.0,10,10,0.0,k(int)",
            ":b,PushPop,9,9,1,1,10,10.0,10.0,10,10,0.0,k(int)"
        ]
    );
    let named = profile.reports().with_range_names().get(StatsReport::CudaGpuKernSum);
    assert_eq!(serde_json::to_value(named).unwrap()[0]["name"], "b/k(int)");
    // Here it counts once, and for the last call that began before it.
    assert_eq!(
        (profile.totals().kernels, profile.totals().kernel_time()),
        (1, Duration::from_nanos(10))
    );
}

#[test]
fn an_id_that_comes_again_is_of_the_call_before_the_work() {
    let rows = |order: [usize; 2]| {
        let calls = [(20, 30), (1020, 1030)];
        let rows = Rows::new().range(0, "100", "first").range(1000, "1100", "second");
        let rows =
            order.into_iter().fold(rows, |rows, at| rows.call(calls[at].0, calls[at].1, 1, 1));
        rows.kernel(1040, 1050, 1).kernel(40, 50, 1).read()
    };
    for order in [[0, 1], [1, 0]] {
        let profile = rows(order);
        profile.health().assert_complete();
        let kernels = |name| profile.range(name).unwrap().kernels();
        assert_eq!((kernels("first"), kernels("second")), (1, 1), "{order:?}");
    }
}

#[test]
fn of_ranges_that_begin_at_once_the_first_row_names_kernels() {
    for (first, second, name) in
        [(("100", "long"), ("50", "short"), "long"), (("50", "short"), ("100", "long"), "short")]
    {
        let rows = Rows::new()
            .range(0, first.0, first.1)
            .range(0, second.0, second.1)
            .event(60, 0, "200", "longest")
            .call(20, 30, 1, 1)
            .kernel(40, 50, 1);
        let profile = rows.read();
        let named = profile.reports().with_range_names().get(StatsReport::CudaGpuKernSum);
        assert_eq!(serde_json::to_value(named).unwrap()[0]["name"], format!("{name}/k(int)"));
    }
}

/// Launches that all lack their record.
fn launches() -> Rows {
    (0..271).fold(Rows::new(), |rows, at| rows.call(at * 100, at * 100 + 10, at as u32 + 1, 1))
}

#[test]
fn a_capture_without_any_record_of_its_launches_is_not_complete() {
    let view = "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO other;
                CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT * FROM other;";
    let module = "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL;
                  CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_KERNEL USING rtree(id, start, end);";
    let missing = "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL;";
    for (what, computed) in [("", 0), (missing, 0), (view, 1), (module, 1)] {
        let profile = launches().sql(what).read();
        let health = profile.health();
        assert_eq!(
            (health.facts.calls_without_record, health.losses.calls_without_any_record),
            (271, 271)
        );
        assert_eq!(health.losses.computed_tables, computed, "{what}");
        assert!(!health.is_complete(), "{what}: {health}");
        let text = health.to_string();
        assert!(text.contains("271 calls of a kind without any record"), "{text}");
        let text = expect(&profile).kernels(at_most(9)).check().unwrap_err().to_string();
        assert!(text.contains("271 calls are of a kind without any record"), "{text}");
    }
    // A view of a table that has its rows besides.
    let view = "CREATE VIEW CUPTI_ACTIVITY_KIND_GRAPH_TRACE AS SELECT 1 AS start, 2 AS end;";
    let profile = Rows::new().call(0, 10, 1, 1).kernel(20, 30, 1).sql(view).read();
    assert!(
        profile.health().to_string().contains("1 tables of the capture that are views or virtual")
    );
    assert!(!profile.health().is_complete());
}

#[test]
fn launches_that_were_captured_into_a_graph_lack_no_record() {
    let rows = (0..20)
        .fold(Rows::new(), |rows, at| rows.call(1000 + at * 10, 1005 + at * 10, at as u32 + 9, 1));
    let captured = rows.call(900, 910, 1, 5).call(2000, 2010, 2, 6);
    let profile = captured.read();
    assert_eq!(profile.health().facts.calls_without_record, 20);
    assert_eq!(profile.health().losses.calls_without_any_record, 0);
    profile.health().assert_complete();
    // One after the capture is not among them.
    let rows = Rows::new().call(900, 910, 1, 5).call(1000, 1005, 9, 1).call(2000, 2010, 2, 6);
    let profile = rows.call(3000, 3005, 10, 1).read();
    assert_eq!(profile.health().losses.calls_without_any_record, 1);
}

/// A copy of a capture with the rows of all its tables in another order. Ranges keep their numbers, which are their rows'.
fn shuffled(from: &Path, to: &Path, seed: u64) {
    std::fs::copy(from, to).unwrap();
    let connection = connect(to);
    let tables: Vec<String> = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        .unwrap()
        .query_map((), |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let mut order = String::new();
    for table in tables {
        // Numbers of rows in an order that the seed gives.
        let by = format!("(rowid * {} + {seed}) % 1000003", 7919 + 2 * seed);
        match &*table {
            "StringIds" | "NVTX_EVENTS" => {}
            _ if table.starts_with("ENUM_") => {}
            _ => {
                let _ = write!(
                    order,
                    "CREATE TEMP TABLE rows_of AS SELECT * FROM main.{table} ORDER BY {by};
                     DELETE FROM main.{table}; INSERT INTO main.{table} SELECT * FROM rows_of; DROP TABLE rows_of;"
                );
            }
        }
    }
    // These keep their rows' numbers, and their rows stand in a table without an order of its own.
    connection.execute_batch(&order).unwrap();
}

#[test]
fn row_order_is_irrelevant() {
    let folder = Folder::new();
    let mut files: Vec<PathBuf> = ["one", "family", "managed", "whole-graphs", "train"]
        .map(|name| file(format!("captures/{name}-h200.sqlite")))
        .to_vec();
    let random = if test_support::effort::is_thorough() { 5 } else { 2 };
    for seed in 0..random {
        let path = folder.file(&format!("random-{seed}.sqlite"));
        capture::write(&path, seed);
        files.push(path);
    }
    for (seed, file) in (1..).zip(&files) {
        let other = folder.file("shuffled.sqlite");
        shuffled(file, &other, seed);
        let (one, other) = (
            profiler_analysis::nsys::read(file).unwrap(),
            profiler_analysis::nsys::read(other).unwrap(),
        );
        assert_eq!(one.health(), other.health(), "{}", file.display());
        for report in StatsReport::ALL {
            let (ours, theirs) = (one.stats(*report).csv(), other.stats(*report).csv());
            assert_eq!(ours, theirs, "{report} of {}", file.display());
        }
        assert_eq!(one.counts(), other.counts());
        assert_eq!(one.json_lines(), other.json_lines());
        assert_eq!(one.diagnose().to_string(), other.diagnose().to_string());
        let operations = |profile: &Profile| -> Vec<String> {
            let row = |operation: profiler_core::profile::GpuOperation<'_>| {
                let call = operation.call().map(|call| (call.thread_id(), call.start()));
                format!(
                    "{:?} {:?} {call:?} {:?}",
                    operation.kind(),
                    operation.start(),
                    operation.stream()
                )
            };
            profile.operations().map(row).collect()
        };
        assert_eq!(operations(&one), operations(&other), "{}", file.display());
    }
}

#[test]
fn earliest_of_several_names_counts_in_any_row_order() {
    let tid = global(9, 9);
    let domain = |start: i64, name: &str| {
        format!(
            "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId) VALUES ({start}, 75, '{name}', {tid}, 3);"
        )
    };
    let range = format!(
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId) VALUES (10, 20, 59, 'a', {tid}, 3);"
    );
    for names in [[(1, "first"), (2, "second")], [(2, "second"), (1, "first")]] {
        let rows =
            names.iter().fold(Rows::new(), |rows, (start, name)| rows.sql(&domain(*start, name)));
        let profile = rows.sql(&range).read();
        assert_eq!(profile.ranges().next().unwrap().domain(), Some("first"));
    }
}

/// What a capture has in a folder that cannot be written: no file may be made beside it.
#[test]
fn a_capture_with_a_write_ahead_log_is_read_without_a_trace() {
    let folder = Folder::new();
    let path = folder.file("with log, and % and ?.sqlite");
    Rows::new().call(0, 10, 1, 1).kernel(20, 30, 1).write(&path);
    let connection = Connection::open(&path).unwrap();
    let mode: String =
        connection.query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    connection.close().unwrap();
    let names = || {
        let files = std::fs::read_dir(&folder.0).unwrap();
        let mut names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    assert_eq!(profiler_analysis::nsys::read(&path).unwrap().kernels().count(), 1);
    assert_eq!(names(), before, "files were made beside it");
    // What stands in the log alone is read, too.
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("PRAGMA wal_autocheckpoint = 0").unwrap();
    connection.execute_batch("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL").unwrap();
    assert_eq!(profiler_analysis::nsys::read(&path).unwrap().kernels().count(), 0);
    drop(connection);
}

/// A capture of a kernel, which its write-ahead log deletes. There is no index of the log, as where both were copied.
fn with_log(folder: &Path) -> PathBuf {
    let (made, path) = (folder.join("made.sqlite"), folder.join("with log.sqlite"));
    Rows::new().call(0, 10, 1, 1).kernel(20, 30, 1).write(&made);
    let connection = Connection::open(&made).unwrap();
    connection.query_row("PRAGMA journal_mode = WAL", (), |_| Ok(())).unwrap();
    connection.execute_batch("PRAGMA wal_autocheckpoint = 0").unwrap();
    connection.execute_batch("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL").unwrap();
    std::fs::copy(&made, &path).unwrap();
    std::fs::copy(folder.join("made.sqlite-wal"), folder.join("with log.sqlite-wal")).unwrap();
    path
}

/// What is left of copies of this process.
fn copies() -> Vec<OsString> {
    let names = std::fs::read_dir(std::env::temp_dir()).unwrap();
    let mine = format!("gpuprof-{}-", std::process::id());
    let names = names.flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_string_lossy().starts_with(&mine)).collect()
}

#[test]
fn a_log_whose_index_cannot_be_written_is_read_in_a_copy() {
    // Whoever runs the tests, SQLite follows no link to write its index.
    let folder = Folder::new();
    let path = with_log(&folder.0);
    symlink("nowhere", folder.file("with log.sqlite-shm")).unwrap();
    let profile = profiler_analysis::nsys::read(&path).unwrap();
    assert_eq!((profile.calls().count(), profile.kernels().count()), (1, 0));
    assert_eq!(copies(), [""; 0]);

    let folder = Folder::new();
    let path = with_log(&folder.0);
    let set = |mode| std::fs::set_permissions(&folder.0, Permissions::from_mode(mode)).unwrap();
    set(0o555);
    if std::fs::write(folder.file("written"), "").is_ok() {
        set(0o755);
        eprintln!("a folder of mode 555 is skipped: this user can write to it");
        return;
    }
    let kernels = profiler_analysis::nsys::read(&path).map(|profile| profile.kernels().count());
    let left = std::fs::read_dir(&folder.0).unwrap().count();
    set(0o755);
    assert_eq!((kernels.unwrap(), left), (0, 3), "the database that was made, and the two");
    assert_eq!(copies(), [""; 0]);
}

#[test]
fn a_capture_that_is_written_again_keeps_the_numbers_of_its_ranges() {
    for name in ["one", "family", "train"] {
        let profile = captured(name);
        let again = rewritten(&profile);
        for report in [StatsReport::NvtxPushpopTrace, StatsReport::NvtxGpuProjTrace] {
            let ours = again.stats(report).csv();
            assert!(ours.lines().count() > 1, "{name} proves nothing");
            assert_eq!(ours, profile.stats(report).csv(), "{report} of {name}");
        }
        assert_eq!(again.marks().count(), profile.marks().count());
    }
}
