//! Captures of Nsight Systems as profiles, and profiles as captures.

use crate::formats::{KINDS, text};
use crate::{capture, captured, file, profiler, quickstart, rewritten};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use capture::{Folder, SCHEMA, Sums, connect, global};
use fake_cupti::{Fake, Work};
use profiler_analysis::Error;
use profiler_analysis::Format;
use profiler_analysis::prelude::*;
use profiler_core::profile::{Attribution, GpuOperation, OperationKind, RangeNode, Totals};
use profiler_core::{Profile, Range, at_most, expect};
use rusqlite::Connection;
use test_support::effort::{is_thorough, rounds};
use test_support::session;

/// A training run of 20 batches with PyTorch on an H200, exported by nsys 2025.3.
fn train() -> PathBuf {
    file("captures/train-h200.sqlite")
}

/// A capture of these rows, in tables of the usual columns.
fn capture(folder: &Folder, rows: &str) -> PathBuf {
    let path = folder.file("made.sqlite");
    let connection = connect(&path);
    connection.execute_batch(SCHEMA).unwrap();
    connection.execute_batch(rows).unwrap();
    path
}

fn read(folder: &Folder, rows: &str) -> Profile {
    profiler_analysis::nsys::read(capture(folder, rows)).unwrap()
}

fn error(path: impl AsRef<Path>) -> Error {
    profiler_analysis::nsys::read(path).unwrap_err()
}

#[test]
fn training_run_matches_nsys() {
    let profile = captured("train");
    profile.health().assert_complete();
    let info = profile.recording_info();
    assert_eq!(
        info.to_string(),
        "NVIDIA H200, NVIDIA Nsight Systems 2025.3.2.0 (schema 3.20.3), recorded 2026-11-20"
    );
    let device = &info.devices[0];
    assert_eq!((device.id, device.compute_capability, device.multiprocessors), (0, (9, 0), 132));
    let processes: Vec<_> = profile.processes().map(|of| (of.id(), of.name())).collect();
    assert_eq!(processes, [(438, Some("python3"))]);
    assert_eq!(profile.calls().count(), 2174);
    let totals = profile.totals();
    assert_eq!(
        (totals.launches, totals.kernels, totals.copies, totals.memsets),
        (508, 508, 45, 20)
    );
    assert_eq!((totals.synchronizations, totals.failed_calls), (25, 0));
    // nvtx_gpu_proj_sum: range, operations, nanoseconds on the host.
    for (name, operations, instances, host_ns) in
        [("Batch 0", 25, 1, 593_569_546), ("Backward pass", 168, 20, 262_477_733)]
    {
        let range = profile.range(name).unwrap();
        assert_eq!(range.inclusive().gpu_operations(), operations, "{name}");
        assert_eq!((range.instances(), range.host_time().as_nanos()), (instances, host_ns));
    }
    // cuda_gpu_trace: the first row.
    let first = profile.operations().next().unwrap();
    let copy = first.as_copy().unwrap();
    assert_eq!((first.start().unwrap().as_nanos(), copy.bytes()), (6_989_469_650, 16 << 20));
    assert_eq!(copy.details().source.to_string(), "pageable");
    assert!(copy.details().asynchronous, "cudaMemcpyAsync asked for it");
    assert_eq!((first.process_id(), first.stream(), first.correlation_id()), (438, 7, 150));
    let call = first.call().unwrap();
    assert_eq!((call.name(), call.thread_id()), ("cudaMemcpyAsync_v3020", 438));
    let kernel = profile.kernels().find(|kernel| kernel.range().is_some()).unwrap();
    assert_eq!(kernel.attribution(), Attribution::Contained);
    assert!(profile.kernels().any(|kernel| kernel.name().starts_with("_ZN2at6native")));
}

/// The names of the ranges around an operation, outermost first, as nsys prints them.
fn range_names(operation: GpuOperation<'_>) -> Vec<String> {
    let named = |range: Range<'_>| match range.domain() {
        Some(domain) => format!("{domain}:{}", range.name()),
        None => range.name().to_owned(),
    };
    let ranges = std::iter::successors(operation.range(), |range| range.parent());
    let mut names: Vec<String> = ranges.map(named).collect();
    names.reverse();
    names
}

fn sorted(mut sums: Sums) -> Sums {
    sums.values_mut().for_each(|values| values.sort_unstable());
    sums
}

fn check_random(profile: &Profile, truth: &capture::Truth) {
    profile.health().assert_complete();
    let places = profile.operations().map(|operation| {
        let call = operation.call().unwrap();
        assert_eq!(call.process_id(), operation.process_id());
        assert_eq!(call.correlation_id(), operation.correlation_id());
        ((operation.process_id(), operation.correlation_id()), range_names(operation))
    });
    assert_eq!(places.collect::<BTreeMap<_, _>>(), truth.places);
    let mut kernels = Sums::new();
    for kernel in profile.kernels() {
        let ns = kernel.gpu_time().unwrap().as_nanos() as u64;
        kernels.entry(kernel.name().to_owned()).or_default().push(ns);
        assert_eq!((kernel.grid(), kernel.block()), ([10, 20, 30], [128, 2, 1]));
    }
    assert_eq!(sorted(kernels), sorted(truth.kernels.clone()));
    let mut calls = Sums::new();
    for call in profile.calls() {
        let name = call.name().strip_suffix("_v7000").or(call.name().strip_suffix("_v3020"));
        let ns = call.host_time().unwrap().as_nanos() as u64;
        calls.entry(name.unwrap_or(call.name()).to_owned()).or_default().push(ns);
    }
    assert_eq!(sorted(calls), sorted(truth.calls.clone()));
    let bytes: u64 = truth.bytes.values().flatten().sum();
    let totals = profile.totals();
    assert_eq!(totals.copy_bytes + totals.memset_bytes, bytes);
    let mut ranges: BTreeMap<(String, String), Vec<u64>> = BTreeMap::new();
    let mut add = |style: &str, domain: Option<&str>, name: &str, time: std::time::Duration| {
        let domain = domain.map_or(String::new(), |domain| format!("{domain}:"));
        let key = (style.to_owned(), format!("{domain}{name}"));
        ranges.entry(key).or_default().push(time.as_nanos() as u64);
    };
    for range in profile.ranges() {
        add("PushPop", range.domain(), range.name(), range.host_time());
    }
    for range in profile.process_ranges() {
        add("StartEnd", range.domain(), range.name(), range.host_time());
    }
    ranges.values_mut().for_each(|values| values.sort_unstable());
    let mut truth_ranges = truth.ranges.clone();
    truth_ranges.values_mut().for_each(|values| values.sort_unstable());
    assert_eq!(ranges, truth_ranges);
    assert_eq!(profile.marks().count(), profile.process_ranges().count());
}

/// The rows of a table, with these columns, in an order of their own.
fn rows(file: &Path, columns: &str, from: &str) -> Vec<String> {
    let connection = Connection::open(file).unwrap();
    let mut query = connection.prepare(&format!("SELECT {columns} FROM {from}")).unwrap();
    let count = query.column_count();
    let row = |row: &rusqlite::Row<'_>| {
        (0..count).map(|i| row.get::<_, rusqlite::types::Value>(i)).collect::<Result<Vec<_>, _>>()
    };
    let mut rows: Vec<String> =
        query.query_map((), row).unwrap().map(|row| format!("{:?}", row.unwrap())).collect();
    rows.sort();
    rows
}

/// What of a capture's rows is in the one that we make of it.
const KEPT: [(&str, &str); 6] = [
    (
        "k.start, k.end, deviceId, contextId, streamId, correlationId, globalPid, d.value, s.value, registersPerThread, gridX, \
         gridY, gridZ, blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory, localMemoryPerThread",
        "CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds d ON d.id = demangledName JOIN StringIds s ON s.id = shortName",
    ),
    (
        "start, end, deviceId, contextId, greenContextId, streamId, correlationId, globalPid, bytes, copyKind, srcKind, dstKind",
        "CUPTI_ACTIVITY_KIND_MEMCPY",
    ),
    (
        "start, end, deviceId, contextId, streamId, correlationId, globalPid, value, bytes, memKind",
        "CUPTI_ACTIVITY_KIND_MEMSET",
    ),
    (
        "start, end, eventClass, globalTid, correlationId, n.value, returnValue",
        "CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds n ON n.id = nameId",
    ),
    (
        "start, end, eventType, coalesce(text, n.value), globalTid, endGlobalTid, uint64Value, doubleValue, color",
        "NVTX_EVENTS LEFT JOIN StringIds n ON n.id = textId WHERE eventType IN (34, 59, 60)",
    ),
    (
        "n.value, priority, globalTid",
        "ThreadNames JOIN StringIds n ON n.id = nameId WHERE globalTid IN \
         (SELECT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME UNION SELECT globalTid FROM NVTX_EVENTS)",
    ),
];

#[test]
fn capture_round_trips() {
    let folder = Folder::new();
    let mut files = vec![train()];
    let random = if is_thorough() { 10 } else { 3 };
    for seed in 100..100 + random {
        let path = folder.file(&format!("{seed}.sqlite"));
        capture::write(&path, seed);
        files.push(path);
    }
    for file in &files {
        let again = folder.file("again.sqlite");
        profiler_analysis::nsys::read(file).unwrap().write_nsys(&again, |_, _| ()).unwrap();
        for (columns, from) in KEPT {
            let theirs = rows(file, columns, from);
            assert!(!theirs.is_empty(), "{from} proves nothing");
            assert_eq!(rows(&again, columns, from), theirs, "{from}");
        }
    }
    let again = folder.file("again.sqlite");
    captured("train").write_nsys(&again, |_, _| ()).unwrap();
    for (columns, from) in [
        (
            "start, end, contextId, streamId, correlationId, globalPid, syncType, eventId",
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        ),
        ("globalPid, pid, name", "PROCESSES"),
        ("id, name, totalMemory, smCount, cuDevice, computeMajor, computeMinor", "TARGET_INFO_GPU"),
        ("gpuId, cudaId, pid", "TARGET_INFO_CUDA_DEVICE"),
        ("start, end", "PROFILER_OVERHEAD"),
    ] {
        assert_eq!(rows(&again, columns, from), rows(&train(), columns, from), "{from}");
    }
}

#[test]
fn random_captures_of_several_processes_round_trip() {
    let folder = Folder::new();
    for seed in 0..rounds(150) as u64 {
        let path = folder.file(&format!("{seed}.sqlite"));
        let truth = capture::write(&path, seed);
        let profile = profiler_analysis::nsys::read(&path).unwrap();
        check_random(&profile, &truth);
        check_random(&rewritten(&profile), &truth);
    }
}

static LIBRARY: nvtx::Domain = nvtx::Domain::new("library");

/// What a profile comes to, by path.
fn summary(profile: &Profile) -> Vec<(String, u64, u128, Totals)> {
    fn add(node: RangeNode<'_>, path: &str, to: &mut Vec<(String, u64, u128, Totals)>) {
        let path = format!("{path}/{}:{}", node.domain().unwrap_or(""), node.name());
        let host_ns = node.host_time().as_nanos();
        to.push((path.clone(), node.instances(), host_ns, node.inclusive()));
        node.children().for_each(|child| add(child, &path, to));
    }
    let mut nodes = Vec::new();
    profile.roots().for_each(|root| add(root, "", &mut nodes));
    nodes
}

#[test]
fn live_profile_round_trips_through_a_capture() {
    let fake = Fake::new();
    let [profile, _] = session::record(&fake, || {
        fake.stop_clock();
        for step in 0..3_u32 {
            let _step = nvtx::range("step");
            fake.launch(Work::host_to_device(1000));
            {
                let _inner = LIBRARY
                    .event("inner")
                    .category(LIBRARY.category("io"))
                    .color(nvtx::Color::from_argb(0xff00_ff00))
                    .payload(step)
                    .range();
                fake.launch(Work::kernel(c"_ZN2ns4gemmIfEEvPfi"));
                fake.launch(Work::memset(64));
                nvtx::mark("moment");
            }
            fake.capture(&Work::kernel(c"captured"));
            fake.launch_through_runtime("cudaLaunchKernel", &Work::kernel(c"relu"));
            fake.launch_graph(&[Work::kernel(c"a"), Work::kernel(c"b")]);
            fake.launch(Work::synchronize());
            fake.call_only("cuMemAlloc_v2", 0);
            fake.call_only("cuMemFree_v2", 1);
        }
        // The session ends after its operations.
        fake.advance_clock(Duration::from_millis(1));
    });
    let folder = Folder::new();
    let path = folder.file("live.sqlite");
    let mut reported = Vec::new();
    profile.write_nsys(&path, |rows, total| reported.push((rows, total))).unwrap();
    let (rows, total) = reported.last().unwrap();
    assert_eq!(rows, total);
    let again = profiler_analysis::nsys::read(&path).unwrap();
    again.health().assert_complete();
    assert_eq!(again.totals(), profile.totals());
    assert_eq!(summary(&again), summary(&profile));
    assert_eq!(again.duration(), profile.duration());
    let devices = |profile: &Profile| format!("{:?}", profile.recording_info().devices);
    assert_eq!(devices(&again), devices(&profile));
    assert_eq!(again.marks().count(), 3);
    let inner = again.ranges().find(|range| range.name() == "inner").unwrap();
    assert_eq!(inner.domain(), Some("library"));
    assert_eq!(inner.category(), Some("io"));
    assert_eq!(inner.color(), Some(nvtx::Color::from_argb(0xff00_ff00)));
    let payloads: Vec<_> = again.ranges().filter_map(|range| range.payload()).collect();
    assert_eq!(payloads, [0, 1, 2].map(nvtx::Payload::U32));
    let operations = |profile: &Profile| -> Vec<_> {
        let row = |operation: GpuOperation<'_>| {
            let name = operation.as_kernel().map(|kernel| kernel.name().to_owned());
            (operation.kind(), name, operation.start(), operation.end(), operation.stream())
        };
        profile.operations().map(row).collect()
    };
    assert_eq!(operations(&again), operations(&profile));
    assert!(again.operations().any(|operation| operation.kind() == OperationKind::Memset));
    // Names are those of nsys, with parameters and without.
    let connection = Connection::open(&path).unwrap();
    let names: (String, String) = connection
        .query_row(
            "SELECT d.value, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds d ON d.id = demangledName JOIN \
             StringIds s ON s.id = shortName WHERE d.value LIKE '%gemm%'",
            (),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!(names, ("void ns::gemm<float>(float*, int)".into(), "gemm".into()));
}

/// What a real recording knows beyond what the store keeps, and its process and calendar time, of which older ones know nothing.
#[test]
fn kernel_and_version_facts_are_written() {
    let folder = Folder::new();
    let path = folder.file("quickstart.sqlite");
    let profile = quickstart();
    assert_eq!((profile.recording_info().process_id, profile.started_at()), (None, None));
    profile.write_nsys(&path, |_, _| ()).unwrap();
    let kernels = profile.kernels().count() as i64;
    let number = |path: &Path, query: &str| -> i64 {
        Connection::open(path).unwrap().query_row(query, (), |row| row.get(0)).unwrap()
    };
    let from = "FROM CUPTI_ACTIVITY_KIND_KERNEL";
    assert_eq!(number(&path, &format!("SELECT count(DISTINCT gridId) {from}")), kernels);
    assert_eq!(number(&path, &format!("SELECT count(*) {from} WHERE launchType = 1")), kernels);
    // As nsys has them of such kernels: those with most shared memory were given as much cache.
    let as_nsys = "cacheConfig = iif(sharedMemoryExecuted = 135168, 4, 1) AND localMemoryTotal > 0";
    assert_eq!(number(&path, &format!("SELECT count(*) {from} WHERE {as_nsys}")), kernels);
    // Each has those of its own record.
    let details: Vec<_> = profile
        .recording()
        .unwrap()
        .records()
        .iter()
        .filter_map(|record| match record {
            cupti::Record::Kernel(kernel) => Some((kernel.correlation_id, kernel.details())),
            _ => None,
        })
        .collect();
    for (correlation, of) in details.iter().step_by(7) {
        let query = format!(
            "SELECT gridId = {} AND localMemoryTotal = {} {from} WHERE correlationId = {correlation}",
            of.grid_id, of.local_bytes
        );
        assert_eq!(number(&path, &query), 1, "{correlation}");
    }
    let again = profiler_analysis::nsys::read(&path).unwrap();
    let versions = |profile: &Profile| {
        let info = profile.recording_info();
        (info.cupti_version, info.cuda_driver_version, info.driver_release.clone())
    };
    assert_eq!(versions(&again), versions(&profile));
    assert!(versions(&again).0 > 0);

    // CUPTI reported cuMemAlloc and cuMemFree twice.
    let path = folder.file("kinds.sqlite");
    let profile = Profile::from_bytes(KINDS).unwrap();
    profile.write_nsys(&path, |_, _| ()).unwrap();
    let memory = profile.memory();
    let sum =
        |of: fn(&profiler_core::query::DeviceMemory<'_>) -> u64| memory.iter().map(of).sum::<u64>();
    let reported = sum(|memory| memory.allocations + memory.frees);
    assert!(reported > 3 && sum(|memory| memory.repeated_records) > 3, "{memory:?}");
    assert_eq!(number(&path, "SELECT count(*) FROM CUDA_GPU_MEMORY_USAGE_EVENTS"), reported as i64);
    assert_eq!(profile.memory_events().count() as u64, reported);
}

#[test]
fn capture_contains_process_and_start_time() {
    let fake = Fake::new();
    let before = std::time::SystemTime::now();
    let [profile, _] = session::record(&fake, || {
        let _range = nvtx::range("step");
        fake.launch(Work::kernel(c"k"));
    });
    let id = std::process::id();
    assert_eq!(profile.recording_info().process_id, Some(id));
    let started = profile.started_at().unwrap();
    let slack = std::time::Duration::from_millis(50);
    assert!(before - slack < started && started < std::time::SystemTime::now() + slack);
    let loaded = Profile::from_bytes(&profile.recording().unwrap().to_bytes()).unwrap();
    assert_eq!(loaded.started_at(), Some(started));

    let again = rewritten(&profile);
    assert_eq!(again.started_at(), Some(started));
    let processes: Vec<_> = again.processes().map(|of| (of.id(), of.name())).collect();
    assert_eq!(processes, [(id, None)]);
    assert!(again.operations().all(|operation| operation.process_id() == id));
    assert!(again.calls().all(|call| call.process_id() == id));
    for report in
        ["cuda_api_trace", "nvtx_pushpop_trace", "nvtx_gpu_proj_trace", "cuda_kern_exec_trace"]
    {
        let report = report.parse().unwrap();
        let (ours, theirs) = (profile.stats(report).csv(), again.stats(report).csv());
        assert!(ours.contains(&format!(",{id},")), "{ours}");
        assert_eq!(ours, theirs);
    }
}

#[test]
fn runtime_call_replaces_its_driver_call() {
    let fake = Fake::new();
    let config = cupti::Config::new().runtime_calls(true).add_kind(cupti::ActivityKind::MEMORY2);
    let profiler = profiler(&fake, config);
    profiler.start().unwrap();
    {
        let _range = nvtx::range("both");
        fake.launch(Work::kernel(c"a"));
        fake.launch_through_runtime("cudaLaunchKernel", &Work::kernel(c"b"));
        fake.launch_through_runtime("cudaMemcpyAsync", &Work::host_to_device(10));
    }
    let profile = profiler.stop().unwrap();
    assert_eq!((profile.calls().count(), profile.runtime_calls().count()), (3, 2));
    let again = rewritten(&profile);
    let mut names: Vec<_> = again.calls().map(|call| call.name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["cuLaunchKernel", "cudaLaunchKernel", "cudaMemcpyAsync"]);
    assert_eq!(again.runtime_calls().count(), 0);
    assert_eq!(again.totals(), profile.totals());
    assert_eq!(summary(&again), summary(&profile));
    again.health().assert_complete();
}

#[test]
fn file_that_is_no_capture_is_an_error() {
    let folder = Folder::new();
    let missing = error(folder.file("missing"));
    assert!(!missing.is_format() && missing.to_string().contains("No such file"), "{missing}");
    let text = folder.file("text");
    std::fs::write(&text, "text ".repeat(1000)).unwrap();
    let no_database = error(&text);
    assert!(no_database.is_format(), "{no_database}");
    assert!(no_database.to_string().contains("nsys export --type sqlite"), "{no_database}");
    let empty = folder.file("empty");
    std::fs::write(&empty, "").unwrap();
    assert!(error(&empty).to_string().contains("without the tables of Nsight Systems"));
    let other = folder.file("other");
    Connection::open(&other)
        .unwrap()
        .execute_batch("CREATE TABLE t (a); CREATE VIEW NVTX_EVENTS AS SELECT 1")
        .unwrap();
    assert!(error(&other).is_format());
    assert!(error(&folder.0).is_format());
}

#[test]
fn a_damaged_capture_is_an_error_or_counted() {
    let folder = Folder::new();
    let whole = std::fs::read(train()).unwrap();
    let path = folder.file("damaged");
    let mut rng = fastrand::Rng::with_seed(3);
    let (mut errors, mut profiles) = (0, 0);
    for round in 0..60 {
        let mut bytes = whole.clone();
        if round % 2 == 0 {
            bytes.truncate(rng.usize(..bytes.len()));
        } else {
            for _ in 0..rng.usize(1..200) {
                let at = rng.usize(..bytes.len());
                bytes[at] = rng.u8(..);
            }
        }
        std::fs::write(&path, bytes).unwrap();
        match profiler_analysis::nsys::read(&path) {
            Ok(profile) => {
                profiles += 1;
                // Whatever it says, it says it.
                assert!(!profile.to_string().is_empty());
                let _ = summary(&profile);
            }
            Err(error) => {
                errors += 1;
                assert!(error.is_format(), "{error}");
            }
        }
    }
    assert!(errors > 10 && profiles > 0, "{errors} {profiles}");
}

#[test]
fn processes_of_several_machines_are_distinct() {
    let folder = Folder::new();
    // The same process, thread and correlation id on three machines.
    let machine = |machine: i64| (machine << 48) + (global(9, 9) - (1 << 48));
    let mut rows =
        String::from("INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'k');");
    for (number, name) in [(1, "a"), (2, "b"), (255, "c")] {
        let (tid, pid) = (machine(number), machine(number) - 9);
        rows += &format!(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 15, 0, {tid}, 1, 1, 0);
             INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, correlationId, globalPid, demangledName) VALUES (20, 30, 1, \
             {pid}, 2);
             INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES (5, 16, 59, '{name}', {tid});"
        );
    }
    let profile = read(&folder, &rows);
    let again = rewritten(&profile);
    for profile in [profile, again] {
        profile.health().assert_complete();
        for name in ["a", "b", "c"] {
            assert_eq!(profile.range(name).unwrap().kernels(), 1, "{name}");
        }
        assert!(profile.operations().all(|operation| operation.process_id() & 0xff_ffff == 9));
        assert_eq!(profile.processes().count(), 3);
    }
}

/// In release, for the figures: `cargo test --release -p profiler-core --features analysis,nsys --test analyze -- nsys:: --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn a_million_operations_are_written_in_three_seconds() {
    let folder = Folder::new();
    let tid = global(9, 9);
    let path = capture(&folder, "INSERT INTO StringIds VALUES (100, 'cudaLaunchKernel_v7000')");
    Connection::open(&path)
        .unwrap()
        .execute_batch(&format!(
            "PRAGMA synchronous = OFF; BEGIN; CREATE TEMP TABLE n AS WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 \
             FROM n WHERE i < 999999) SELECT i FROM n;
             INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME SELECT i * 2000 + 100, i * 2000 + 1000, 0, {tid}, i + 1, 100, 0 FROM n;
             INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT i * 2000 + 1500, i * 2000 + 3000, 0, 1, 7, i + 1, {tid} - 9, \
             i % 50, i % 50, i % 50, 32, 100, 1, 1, 256, 1, 1, 0, 0, 0 FROM n;
             INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) SELECT i * 2000, i * 2000 + 19999, 59, 'step', \
             {tid} FROM n WHERE i % 10 = 0;
             INSERT INTO StringIds SELECT i, '_Z8kernel' || (10 + i) || 'if' FROM n WHERE i < 50; COMMIT"
        ))
        .unwrap();
    let start = std::time::Instant::now();
    let profile = profiler_analysis::nsys::read(&path).unwrap();
    let read = start.elapsed();
    let start = std::time::Instant::now();
    profile.write_nsys(folder.file("written.sqlite"), |_, _| ()).unwrap();
    let written = start.elapsed();
    println!(
        "1,000,000 kernels with their calls in 100,000 ranges: read in {read:?}, written in {written:?}"
    );
    assert_eq!(profile.range("step").unwrap().kernels(), 1_000_000);
    assert!(written.as_secs() < 3);
}

/// Three processes that see one GPU as device 0 are one GPU; if one of them sees another as its device 0 they are two.
#[test]
fn ordinal_of_two_gpus_gives_no_verdict() {
    use profiler_analysis::diagnosis::Inconclusive;
    let folder = Folder::new();
    let family = file("captures/family-h200.sqlite");
    let inconclusive = |file: &Path| {
        profiler_analysis::nsys::read(file).unwrap().diagnose().verdict().inconclusive
    };
    assert!(!matches!(inconclusive(&family), Some(Inconclusive::SharedOrdinal { .. })));
    let path = folder.file("two.sqlite");
    std::fs::copy(&family, &path).unwrap();
    Connection::open(&path)
        .unwrap()
        .execute_batch(
            "CREATE TEMP TABLE another AS SELECT * FROM TARGET_INFO_GPU; UPDATE another SET id = 1;
             INSERT INTO TARGET_INFO_GPU SELECT * FROM another;
             UPDATE TARGET_INFO_CUDA_DEVICE SET gpuId = 1 WHERE pid = (SELECT max(pid) FROM TARGET_INFO_CUDA_DEVICE);",
        )
        .unwrap();
    assert_eq!(inconclusive(&path), Some(Inconclusive::SharedOrdinal { device: 0 }));
}

#[test]
fn odd_values_are_counted() {
    let folder = Folder::new();
    let (pid, tid) = (global(9, 0), global(9, 9));
    let calls = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES";
    let kernels = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, streamId, correlationId, globalPid) VALUES";
    let profile = read(&folder, &format!(
        "{calls} (10, 20, 0, {tid}, 1, 77, 0), (30, 20, 0, {tid}, 2, 77, 0), (-5, 20, 0, {tid}, 3, 77, 0),
            ('x', 20, 0, {tid}, 4, 77, 0), (9223372036854775806, 9223372036854775807, 0, {tid}, 5, 77, 0),
            (1, 2, 0, NULL, 6, 77, 0);
         {kernels} (100, 200, 7, 1, {pid}), (100, 200, -7, 1, {pid}), (100, 50, 7, 1, {pid}),
            (100, 200, 7, 99999999999, {pid}), (0, 0, 7, 1, {pid});
         INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES (0, -1, 59, 'a', {tid}),
            (5, 9223372036854775807, 59, 'b', {tid}), (6, NULL, 59, 'c', {tid}), (7, 8, 'x', 'd', {tid}),
            (7, 8, 12345, 'e', {tid}), (7, 8, 59, NULL, {tid}), (7, 8, 59, 12, {tid});"
    ));
    let health = profile.health();
    assert!(!health.is_complete(), "{health}");
    // One of them began before the session.
    assert_eq!(profile.calls().count(), 3);
    assert_eq!(health.accounts.kernels.records, 4);
    assert_eq!(health.accounts.kernels.matched_records, 3, "one id is beyond 32 bits");
    assert_eq!(
        (health.losses.zero_timestamps, health.facts.open_ranges, health.facts.unused_records),
        (1, 1, 1)
    );
    // Two calls with odd times and one of no thread; one kernel; a name that is not there, of two calls alike; six
    // kernels without a name; three ranges; and six odd cells.
    assert!(health.losses.unknown_records >= 15, "{health}");
    assert_eq!(profile.range("b").unwrap().instances(), 1);
    assert!(!profile.to_string().is_empty());
    // And it can be written and read again.
    assert_eq!(rewritten(&profile).totals(), profile.totals());
}

#[test]
fn tables_and_columns_that_are_not_there_are_empty() {
    let folder = Folder::new();
    let tables: Vec<String> = {
        let connection = Connection::open(train()).unwrap();
        let mut names =
            connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").unwrap();
        names.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    for table in &tables {
        let path = folder.file("without.sqlite");
        std::fs::copy(train(), &path).unwrap();
        connect(&path).execute_batch(&format!("DROP TABLE {table}")).unwrap();
        let profile = profiler_analysis::nsys::read(&path).unwrap();
        let kernels = if table == "CUPTI_ACTIVITY_KIND_KERNEL" { 0 } else { 508 };
        assert_eq!(profile.kernels().count(), kernels, "{table}");
    }
    let path = folder.file("columns.sqlite");
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (end, START, correlationId);
             INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (20, 10, 1)",
        )
        .unwrap();
    let profile = profiler_analysis::nsys::read(&path).unwrap();
    assert_eq!(profile.totals().kernel_time(), Duration::from_nanos(10));
    assert_eq!(profile.recording_info().recorder_version, "a capture without a version");
}

#[test]
fn graphs_managed_memory_and_diagnostics_are_read() {
    let folder = Folder::new();
    let (pid, tid) = (global(9, 0), global(9, 9));
    let profile = read(&folder, &format!(
        "INSERT INTO StringIds VALUES (1, 'cudaGraphLaunch_v10000'), (2, 'k'), (3, 'cudaLaunchKernel_v7000');
         INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION_MAJOR', '4');
         CREATE TABLE CUDA_GRAPH_NODE_EVENTS (start, end, globalTid, graphNodeId, originalGraphNodeId);
         INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES (12, 13, {tid}, 4294967297, NULL), (50, 51, {tid}, 8589934593, 4294967297),
            (60, 61, {tid}, 77, 78), (60, 61, {tid}, 78, 77);
         INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES (5, 30, 59, 'capture', {tid}),
            (90, 120, 59, 'replay', {tid});
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 15, 0, {tid}, 1, 3, 0), (100, 110, 0, {tid}, 2, 1, 0);
         ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN graphNodeId;
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, correlationId, globalPid, demangledName, graphNodeId) VALUES
            (200, 300, 2, {pid}, 2, 8589934593), (300, 400, 2, {pid}, 2, 77);
         INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (500, 600, 0, 1, NULL, 7, NULL, {pid}, 4096, 11, 4, 2);
         CREATE TABLE CUDA_UM_CPU_PAGE_FAULT_EVENTS (start, globalPid, address, CpuInstruction);
         INSERT INTO CUDA_UM_CPU_PAGE_FAULT_EVENTS VALUES (510, {pid}, 65536, 1);
         CREATE TABLE CUDA_UM_GPU_PAGE_FAULT_EVENTS (start, end, globalPid, deviceId, address, numberOfPageFaults);
         INSERT INTO CUDA_UM_GPU_PAGE_FAULT_EVENTS VALUES (520, 530, {pid}, 0, 65536, 7);
         ALTER TABLE CUPTI_ACTIVITY_KIND_MEMCPY ADD COLUMN virtualAddress;
         UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET virtualAddress = 65536;
         CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start, globalPid, deviceId, address, bytes, memKind,
            memoryOperationType, correlationId);
         INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (400, {pid}, 0, 4096, 100, 2, 0, 5), (700, {pid}, 0, 4096, 100, 2, 1, 6);
         CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end);
         INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1001, 1002), (1003, 1004);
         CREATE TABLE CUPTI_ACTIVITY_KIND_NEW (start, end);
         INSERT INTO CUPTI_ACTIVITY_KIND_NEW VALUES (1, 2), (1, 2), (1, 2);
         CREATE TABLE DIAGNOSTIC_EVENT (severity, text);
         INSERT INTO DIAGNOSTIC_EVENT VALUES (2, '12 CUDA events were dropped.'), (2, 'No symbols.'), (1, 'Lost in thought.'),
            (3, 'Not all NVTX events might have been collected.');"
    ));
    let health = profile.health();
    assert_eq!((health.facts.captured_calls, health.facts.graph_operations), (1, 2));
    assert_eq!(health.facts.graph_operations_captured, 1);
    let [first, second] = [0, 1].map(|at| profile.operations().nth(at).unwrap());
    assert_eq!(first.captured_in().unwrap().name(), "capture");
    assert_eq!(first.range().unwrap().name(), "replay");
    assert!(second.captured_in().is_none(), "its copies go round in a circle");
    assert_eq!(profile.totals().launches, 1, "what was captured launched nothing");
    assert_eq!((health.facts.migrations, health.accounts.copies.records), (1, 0));
    assert_eq!(profile.totals().copy_bytes, 4096);
    assert_eq!((health.facts.whole_graphs, health.facts.unused_records), (2, 3));
    assert_eq!(health.losses.whole_graphs_without_call, 2, "they have no correlation id");
    // One of them is that the schema is newer.
    assert_eq!((health.losses.capture_losses, health.facts.capture_warnings), (2, 2));
    assert!(!health.is_complete());
    let text = health.to_string();
    assert!(text.contains("2 losses in the capture's diagnostics"), "{text}");
    // Of any sort: no budget can be known.
    for budget in [
        expect(&profile).kernels(at_most(99)),
        expect(&profile).launches(at_most(99)),
        expect(&profile).range("replay").instances(at_most(99)),
    ] {
        let text = budget.check().unwrap_err().to_string();
        assert!(text.contains("cannot be known: 2 losses in the capture's diagnostics"), "{text}");
    }
    let (made, path) = (folder.file("made.sqlite"), folder.file("again.sqlite"));
    profile.write_nsys(&path, |_, _| ()).unwrap();
    let again = profiler_analysis::nsys::read(&path).unwrap();
    assert_eq!(again.totals(), profile.totals());
    assert_eq!(again.health().facts.migrations, 1);
    for (columns, from) in [
        ("*", "CUDA_UM_GPU_PAGE_FAULT_EVENTS"),
        (
            "start, globalPid, address, (SELECT value FROM StringIds WHERE id = CpuInstruction)",
            "CUDA_UM_CPU_PAGE_FAULT_EVENTS",
        ),
        ("start, bytes, copyKind, virtualAddress", "CUPTI_ACTIVITY_KIND_MEMCPY"),
        (
            "start, globalPid, deviceId, address, bytes, memKind, memoryOperationType, correlationId",
            "CUDA_GPU_MEMORY_USAGE_EVENTS",
        ),
    ] {
        let columns =
            columns.replace('*', "start, end, globalPid, deviceId, address, numberOfPageFaults");
        assert_eq!(rows(&path, &columns, from), rows(&made, &columns, from), "{from}");
    }
}

#[test]
fn payloads_of_several_values_are_fields() {
    let folder = Folder::new();
    let tid = global(9, 9);
    let profile = read(&folder, &format!(
        "INSERT INTO StringIds VALUES (1, '{{\"id\": 5}}');
         INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, jsonText, jsonTextId, doubleValue) VALUES
            (1, 9, 59, 'a', {tid}, '{{\"bytes\": 12, \"ratio\": -0.5, \"of\": \"x\", \"deep\": [1]}}', NULL, 2.5),
            (2, 3, 59, 'b', {tid}, NULL, 1, NULL), (4, 5, 59, 'c', {tid}, 'no json', NULL, NULL);"
    ));
    let [a, b, c] = [0, 1, 2].map(|at| profile.ranges().nth(at).unwrap());
    assert_eq!(a.field("bytes"), Some(nvtx::FieldValue::U64(12)));
    assert_eq!(a.field("ratio"), Some(nvtx::FieldValue::F64(-0.5)));
    assert_eq!(a.field("of"), Some(nvtx::FieldValue::Str("x")));
    assert_eq!(a.field("deep"), Some(nvtx::FieldValue::Str("[1]")));
    assert_eq!(a.payload(), Some(nvtx::Payload::F64(2.5)));
    assert_eq!(b.field("id"), Some(nvtx::FieldValue::U64(5)));
    assert_eq!((c.fields().count(), profile.health().losses.unknown_records), (0, 1));
}

#[test]
fn a_capture_that_cannot_be_written_leaves_nothing() {
    let profile = captured("train");
    let folder = Folder::new();
    let error = profile.write_nsys(folder.file("no/such/folder.sqlite"), |_, _| ()).unwrap_err();
    assert!(error.to_string().contains("no/such/folder.sqlite"), "{error}");
    // A folder stands where the file is to be.
    assert!(profile.write_nsys(&folder.0, |_, _| ()).is_err());
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
    assert_eq!(
        std::fs::read_dir(folder.0.parent().unwrap())
            .unwrap()
            .filter(|entry| entry
                .as_ref()
                .unwrap()
                .path()
                .extension()
                .is_some_and(|end| end == "partial"))
            .count(),
        0
    );
    let path = folder.file("train.sqlite");
    std::fs::write(&path, "something else").unwrap();
    profile.write_nsys(&path, |_, _| ()).unwrap();
    assert_eq!(profiler_analysis::nsys::read(&path).unwrap().kernels().count(), 508);
}

#[test]
fn nothing_of_the_machine_is_written() {
    let folder = Folder::new();
    let (pid, tid) = (global(9, 0), global(9, 9));
    let profile = read(&folder, &format!(
        "INSERT INTO PROCESSES VALUES ({pid}, 9, '/home/somebody/secret/program');
         CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid, devStateName, name, nameEnum, value);
         INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1, 'DeviceEnvironment', 'TOKEN', 1, 'secret');
         INSERT INTO StringIds VALUES (5, 'secret');
         INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES (1, 9, 59, 'a', {tid})"
    ));
    let path = folder.file("written.sqlite");
    profile.write_nsys(&path, |_, _| ()).unwrap();
    let bytes = std::fs::read(path).unwrap();
    let has = |text: &[u8]| bytes.windows(text.len()).any(|bytes| bytes == text);
    assert!(has(b"program") && !has(b"secret") && !has(b"somebody"));
}

/// A real run of PyTorch: autograd's thread has no range, and launches while the caller waits in
/// `Backward pass`.
#[test]
fn backward_pass_of_pytorch_has_the_work_of_autograds_thread_as_inferred() {
    let exact = captured("train");
    let profile = captured("train").with_inferred_ranges();
    assert_eq!(
        (profile.totals(), profile.outside_ranges()),
        (exact.totals(), exact.outside_ranges())
    );
    let (mut helpers, mut batches) = (BTreeSet::new(), 0);
    for (_, node) in profile.walk() {
        let kernels = node.inferred().kernels;
        match node.name() {
            "Backward pass" => {
                // That of the first batch also has what is loaded once.
                assert_eq!((kernels, node.exclusive().kernels >= 8), (10, true));
                let of_range = node.ranges().flat_map(|range| range.inferred_operations());
                helpers.extend(of_range.filter_map(|of| Some(of.call()?.thread_id())));
                batches += 1;
            }
            name if name.starts_with("Batch") => assert_eq!(kernels, 10),
            name => assert_eq!(kernels, 0, "{name}"),
        }
    }
    assert_eq!((helpers.len(), batches), (1, 20));
    let has_range = |range: Range<'_>| helpers.contains(&range.thread_id());
    assert!(!profile.ranges().any(has_range));
    let trace = text(&profile, Format::Chrome);
    let named =
        trace.lines().filter(|line| line.contains("\"inferred path\":\"Batch 3/Backward pass\""));
    let of_batch = profile.range("Batch 3/Backward pass").unwrap().inferred().gpu_operations();
    assert_eq!(named.count() as u64, of_batch);
    // All that thread launched is inferred: nothing of it is left over.
    let left = profile.query().with_inferred().outside_ranges();
    let left = left.filter(|of| of.call().is_some_and(|call| helpers.contains(&call.thread_id())));
    assert_eq!(left.count(), 0);
}
