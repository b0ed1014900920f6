//! Captures of nsys of a few rows, with what is true of each.

use std::time::Duration;

use profiler_analysis::Format;
use profiler_analysis::kernels::{Classifier, KernelClass};
use profiler_analysis::prelude::*;
use profiler_analysis::reports::StatsReport;
use profiler_core::Profile;
use profiler_core::profile::ProcessRangeGroup;
use rusqlite::{Connection, ToSql, params};

use crate::capture::{Folder, SCHEMA, global};
use crate::formats::export;

const US: i64 = 1_000;
const MS: i64 = 1_000_000;
const S: i64 = 1_000_000_000;

const PUSH_POP: i64 = 59;
const START_END: i64 = 60;

/// A capture that is written row by row.
struct Capture {
    folder: Folder,
    file: Connection,
    texts: i64,
    correlation: i64,
}

impl Capture {
    fn new() -> Self {
        let folder = Folder::new();
        let file = Connection::open(folder.file("small.sqlite")).unwrap();
        file.execute_batch(SCHEMA).unwrap();
        file.execute_batch(
            "CREATE TABLE ANALYSIS_DETAILS (duration INTEGER, startTime INTEGER, stopTime INTEGER);
             CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
             PRAGMA synchronous = off;",
        )
        .unwrap();
        Self { folder, file, texts: 0, correlation: 0 }
    }

    fn add(&self, sql: &str, values: &[&dyn ToSql]) {
        self.file.execute(sql, values).unwrap();
    }

    fn gpu(self) -> Self {
        let columns = "(id, name, totalMemory, smCount, computeMajor, computeMinor, cuDevice)";
        self.add(
            &format!("INSERT INTO TARGET_INFO_GPU {columns} VALUES (0, 'GPU', 1, 132, 9, 0, 0)"),
            &[],
        );
        self
    }

    fn text(&mut self, text: &str) -> i64 {
        self.texts += 1;
        self.add("INSERT INTO StringIds VALUES (?, ?)", params![self.texts, text]);
        self.texts
    }

    fn details(&self, start: i64, stop: i64) {
        self.add(
            "INSERT INTO ANALYSIS_DETAILS VALUES (?, ?, ?)",
            params![stop - start, start, stop],
        );
    }

    fn process(&self, process: u32, name: &str) {
        self.add(
            "INSERT INTO PROCESSES VALUES (?, ?, ?)",
            params![global(process, 0), process, name],
        );
    }

    fn call(&mut self, process: u32, thread: u32, at: i64) -> i64 {
        self.correlation += 1;
        let name = self.text("cudaLaunchKernel_v7000");
        self.add(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, ?, 0)",
            params![at, at + 4 * US, global(process, thread), self.correlation, name],
        );
        self.correlation
    }

    /// A launch by a thread of process 10, and its kernel by demangled and short name.
    fn launch_of(&mut self, thread: u32, (name, short): (&str, &str), at: i64, gpu: (i64, i64)) {
        let correlation = self.call(10, thread, at);
        let names = (self.text(name), self.text(short));
        self.add(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES \
             (?, ?, 0, 1, 7, ?, ?, ?, ?, NULL, 32, 8, 1, 1, 256, 1, 1, 0, 0, 0)",
            params![gpu.0, gpu.1, correlation, global(10, 0), names.0, names.1],
        );
    }

    fn launch(&mut self, name: &str, at: i64, gpu: (i64, i64)) {
        self.launch_of(10, (name, name), at, gpu);
    }

    fn range(
        &self,
        style: i64,
        name: &str,
        (thread, end_thread): (u32, u32),
        time: (i64, Option<i64>),
    ) {
        self.add(
            "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, endGlobalTid) VALUES (?, ?, ?, ?, ?, ?)",
            params![time.0, time.1, style, name, global(10, thread), time.1.map(|_| global(10, end_thread))],
        );
    }

    fn step(&self, start: i64, end: i64) {
        self.range(PUSH_POP, "step", (10, 10), (start, Some(end)));
    }

    fn read(&self) -> Profile {
        profiler_analysis::nsys::read(self.folder.file("small.sqlite")).unwrap()
    }
}

fn exported(profile: &Profile, format: Format) -> String {
    String::from_utf8_lossy(&export(profile, format)).into_owned()
}

fn ns(time: Duration) -> i64 {
    time.as_nanos() as i64
}

// --- times of the session ---

#[test]
fn stop_on_the_clock_of_the_machine_does_not_lengthen_the_run() {
    let mut capture = Capture::new().gpu();
    let uptime = 515_396_806_359_142;
    capture.details(uptime, uptime + 1005 * MS);
    capture
        .add("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?)", params![1_732_107_141 * S]);
    for step in 0..100 {
        let at = step * 10 * MS;
        capture.step(at, at + 10 * MS - US);
        capture.launch("gemm", at + 5 * US, (at + 30 * US, at + 9622 * US));
    }
    let profile = capture.read();
    assert_eq!(ns(profile.duration()), 1005 * MS);
    assert!(profile.to_string().contains("1.005 s recorded"), "{profile}");
    assert_eq!(profile.recording_info().date().as_deref(), Some("2024-11-20"));
    let utilization = profile.query().devices()[0].utilization();
    assert!((utilization - 0.9592).abs() < 1e-3, "{utilization}");
}

#[test]
fn times_since_1970_are_a_session_from_the_first_event() {
    let mut capture = Capture::new().gpu();
    let base = 1_732_107_141_551_429_079;
    capture.range(PUSH_POP, "all", (10, 10), (base - 1001, Some(base + 10 * MS)));
    let mut starts = Vec::new();
    for row in 0..50 {
        let at = base + row * 100_003;
        starts.push(at + 4001);
        capture.launch("tiny", at, (at + 4001, at + 6098));
    }
    let profile = capture.read();
    assert_eq!(ns(profile.duration()), 10 * MS + 1001);
    let kineto = exported(&profile, Format::Kineto);
    let trace: serde_json::Value = serde_json::from_str(&kineto).unwrap();
    let mut ts: Vec<f64> = Vec::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        if event["cat"] == "kernel" {
            assert_eq!(event["dur"].as_f64(), Some(2.097));
            ts.push(event["ts"].as_f64().unwrap());
        }
    }
    let distances = |times: &[i64]| times.windows(2).map(|w| w[1] - w[0]).collect::<Vec<_>>();
    // As a reader that holds doubles gets them.
    let exact: Vec<i64> = ts.iter().map(|us| (us * 1e3).round() as i64).collect();
    assert_eq!(distances(&exact), distances(&starts));
}

// --- devices and date of old captures ---

#[test]
fn gpu_tables_before_schema_versions_are_read() {
    let mut capture = Capture::new();
    let add = |sql: &str| capture.file.execute_batch(sql).unwrap();
    add("DROP TABLE TARGET_INFO_GPU; DROP TABLE TARGET_INFO_SESSION_START_TIME; DROP TABLE ANALYSIS_DETAILS;
         CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, deviceId INTEGER, name TEXT, busLocation TEXT, isDiscrete INTEGER);
         INSERT INTO TARGET_INFO_GPU VALUES (1, 0, 'NVIDIA GeForce RTX 3080', '0000:02:00.0', 1);");
    capture.launch("fill", 0, (10 * US, 60 * US));
    let devices = |profile: &Profile| -> Vec<(u32, String, u32, u64)> {
        let all = profile.recording_info().devices.iter();
        all.map(|gpu| (gpu.id, gpu.name.clone(), gpu.multiprocessors, gpu.memory_bytes)).collect()
    };
    let profile = capture.read();
    profile.health().assert_complete();
    assert_eq!(devices(&profile), [(0, "NVIDIA GeForce RTX 3080".to_owned(), 0, 0)]);
    assert_eq!(profile.recording_info().date(), None);
    let info = serde_json::to_value(profile.recording_info()).unwrap();
    assert!(info["recorded_at_s"].is_null(), "{info}");
    assert!(!profile.to_string().contains("1970"), "{profile}");

    let add = |sql: &str| capture.file.execute_batch(sql).unwrap();
    add("CREATE TABLE TARGET_INFO_CUDA_GPU (name TEXT, globalMemorySize INTEGER, l2CacheSize INTEGER, coreClockRate INTEGER,
             numMultiprocessors INTEGER, maxWarpsPerMultiprocessor INTEGER, computeCapabilityMajor INTEGER,
             computeCapabilityMinor INTEGER, deviceId INTEGER, pid INTEGER);
         INSERT INTO TARGET_INFO_CUDA_GPU VALUES ('NVIDIA GeForce RTX 3080', 10, 5, 1710000000, 68, 48, 8, 6, 0, 10);
         INSERT INTO TARGET_INFO_CUDA_GPU VALUES ('NVIDIA GeForce RTX 3080', 10, 5, 1710000000, 68, 48, 8, 6, 0, 11);");
    let profile = capture.read();
    profile.health().assert_complete();
    assert_eq!(devices(&profile), [(0, "NVIDIA GeForce RTX 3080".to_owned(), 68, 10)]);
    assert_eq!(profile.recording_info().devices[0].compute_capability, (8, 6));
}

// --- processes ---

#[test]
fn processes_without_events_are_a_number() {
    let mut capture = Capture::new().gpu();
    for process in 1..=300 {
        if process != 10 {
            capture.process(process, &format!("kworker/{process}:0H"));
        }
    }
    capture.process(10, "python train.py");
    for step in 0..20 {
        let at = step * MS;
        capture.step(at, at + 900 * US);
        capture.launch("gemm", at, (at + 10 * US, at + 510 * US));
    }
    let profile = capture.read();
    assert_eq!(profile.processes().map(|process| process.id()).collect::<Vec<_>>(), [10]);
    assert_eq!(profile.health().facts.silent_processes, 299);
    let report = profile.to_string();
    assert!(report.contains("python train.py, process 10"), "{report}");
    assert!(report.contains("299 other processes without events"), "{report}");
    profile.health().assert_complete();
    let texts = [
        report,
        profile.json_lines(),
        profile.counts(),
        profile.to_html(),
        exported(&profile, Format::Chrome),
        exported(&profile, Format::Kineto),
        exported(&profile, Format::Perfetto),
    ];
    for text in &texts {
        assert!(!text.contains("kworker"), "{text:.200}");
    }
    // Written again, the capture lists one process.
    let again = capture.folder.file("again.sqlite");
    profile.write_nsys(&again, |_, _| {}).unwrap();
    let count = "SELECT count(*) FROM PROCESSES";
    let rows: i64 =
        Connection::open(again).unwrap().query_row(count, (), |row| row.get(0)).unwrap();
    assert_eq!(rows, 1);
}

// --- start/end ranges ---

/// Name, instances, open ones, host time, launches, kernels, GPU time.
type Group = (String, u64, u64, i64, u64, u64, i64);

fn groups(profile: &Profile) -> Vec<Group> {
    let row = |group: &ProcessRangeGroup<'_>| {
        assert!(group.is_by_time());
        let all = group.inclusive();
        let (name, host) = (group.name().to_owned(), ns(group.host_time()));
        let counts = (group.instances(), group.open(), all.launches, all.kernels);
        (name, counts.0, counts.1, host, counts.2, counts.3, all.kernel_time().as_nanos() as i64)
    };
    profile.process_range_groups().iter().map(row).collect()
}

#[test]
fn start_end_ranges_have_the_work_of_their_thread_by_time() {
    let mut capture = Capture::new().gpu();
    for step in 0..10 {
        let at = step * 10 * MS;
        capture.range(START_END, "train_step", (10, 10), (at, Some(at + 9 * MS)));
        for k in 0..4 {
            let at = at + (1 + k) * MS;
            capture.launch("gemm", at, (at + 10 * US, at + 510 * US));
        }
    }
    let profile = capture.read();
    let whole = ("train_step".to_owned(), 10, 0, 90 * MS, 40, 40, 20 * MS);
    assert_eq!(groups(&profile), [whole]);
    let report = profile.to_string();
    let row = report.lines().find(|line| line.starts_with("train_step")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(
        cells[..10],
        ["train_step", "by", "time", "10", "90.00", "ms", "20.00", "ms", "40", "40"]
    );
    assert!(report.contains("the thread which began the range submitted"), "{report}");
    // The work is outside of all thread ranges, and counted once in the whole.
    assert_eq!((profile.outside_ranges().kernels, profile.totals().kernels), (40, 40));
    let last = profile.json_lines();
    let last: serde_json::Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
    let range = &last["process_ranges"][0];
    assert_eq!((&range["name"], &range["by_time"]), (&"train_step".into(), &true.into()));
    assert_eq!(
        (range["host_ns"].as_i64(), range["inclusive"]["kernels"].as_i64()),
        (Some(90 * MS), Some(40))
    );
    let verdict = profile.diagnose_range("train_step").unwrap();
    assert_eq!(verdict.instances, 10);
    assert!(verdict.to_string().contains("train_step (start/end, by time)"), "{verdict}");
    assert!(profile.diagnose().to_string().contains("train_step (start/end, by time): "));
    assert!(profile.diagnose_range("other").is_none());
}

#[test]
fn start_end_ranges_overlap_end_on_other_threads_or_remain_open() {
    let mut capture = Capture::new().gpu();
    let launch = |capture: &mut Capture, thread, at: i64| {
        capture.launch_of(thread, ("k", "k"), at * MS, (at * MS + 10 * US, at * MS + 110 * US));
    };
    // Two overlapping ones of one name: the launch at 5 ms is in both, and counts once.
    capture.range(START_END, "request", (10, 10), (0, Some(6 * MS)));
    capture.range(START_END, "request", (10, 10), (4 * MS, Some(9 * MS)));
    // Ended by thread 11, whose launches are not its own; a call that outlives it neither.
    capture.range(START_END, "handed", (10, 11), (20 * MS, Some(24 * MS + 2 * US)));
    // Never ended.
    capture.range(START_END, "server", (11, 11), (21 * MS, None));
    for at in [1, 5, 8, 22, 24, 30] {
        launch(&mut capture, 10, at);
    }
    for at in [20, 23, 31] {
        launch(&mut capture, 11, at);
    }
    let profile = capture.read();
    let end = ns(profile.duration());
    let row = |name: &str, instances, open, host, work: u64| -> Group {
        (name.to_owned(), instances, open, host, work, work, work as i64 * 100 * US)
    };
    assert_eq!(
        groups(&profile),
        [
            row("request", 2, 0, 11 * MS, 3),
            row("handed", 1, 0, 4 * MS + 2 * US, 1),
            row("server", 1, 1, end - 21 * MS, 2),
        ]
    );
}

#[test]
fn thread_ranges_keep_their_work_beside_start_end_ranges() {
    let mut capture = Capture::new().gpu();
    capture.range(START_END, "epoch", (10, 10), (0, Some(10 * MS)));
    capture.step(MS, 3 * MS);
    capture.launch("k", 2 * MS, (2 * MS + 10 * US, 2 * MS + 20 * US));
    capture.launch("k", 5 * MS, (5 * MS + 10 * US, 5 * MS + 20 * US));
    let profile = capture.read();
    assert_eq!(groups(&profile), [("epoch".to_owned(), 1, 0, 10 * MS, 2, 2, 20 * US)]);
    assert_eq!(profile.range("step").unwrap().kernels(), 1);
    assert_eq!((profile.outside_ranges().kernels, profile.totals().kernels), (1, 2));
}

// --- sums and labels of kernels ---

#[test]
fn mean_covers_kernels_with_times() {
    let mut capture = Capture::new().gpu();
    for row in 1..=10 {
        let at = row * MS;
        let gpu = if row % 3 == 0 { (0, 0) } else { (at + 10 * US, at + 110 * US) };
        capture.launch("k", at, gpu);
    }
    for row in 11..=12 {
        capture.launch("without_times", row * MS, (0, 0));
    }
    let report = capture.read().to_string();
    let row = |name: &str| {
        let line = report.lines().find(|line| line.starts_with(name)).unwrap();
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>()
    };
    assert_eq!(row("k "), ["k", "10", "700.0 us", "100.0 %", "100.0 us", "100.0 us", "100.0 us"]);
    assert_eq!(
        row("without_times"),
        ["without_times", "2", "0 ns", "0.0 %", "0 ns", "0 ns", "0 ns"]
    );
}

#[test]
fn overloads_are_two_kernels_everywhere() {
    let mut capture = Capture::new().gpu();
    let (float, double) = ("scale(float *, int)", "void scale(double *, int)");
    for row in 0..4 {
        let (name, length) = if row % 2 == 0 { (float, US) } else { (double, 2 * US) };
        let at = row * MS;
        capture.launch_of(10, (name, "scale"), at, (at + 10 * US, at + 10 * US + length));
    }
    capture.launch_of(
        10,
        ("other(float *)", "other"),
        5 * MS,
        (5 * MS + 10 * US, 5 * MS + 11 * US),
    );
    let profile = capture.read();
    let labels = ["scale(float *, int)", "scale(double *, int)"];
    let folded = exported(&profile, Format::Folded);
    for text in [profile.to_string(), profile.counts(), folded] {
        for label in labels {
            assert_eq!(text.matches(label).count(), 1, "{label}: {text}");
        }
        assert!(!text.contains("other("), "{text}");
    }
    let groups = profile.query().by_kernel();
    let names: Vec<String> = groups.iter().map(|group| group.key().to_string()).collect();
    assert_eq!(names, [labels[1], labels[0], "other"]);
    // Both are selected by the name without parameters.
    assert_eq!(profile.query().named("scale").count(), 4);
}

// --- communication ---

#[test]
fn communication_is_known_by_the_name_of_the_function_and_can_be_added_to() {
    let mut capture = Capture::new().gpu();
    let names = [
        "userbuffers_fp16_sum_inplace_gpu_rw_ag(int, int, int)",
        "mscclKernel_Sum_float_Simple(ncclDevComm *, mscclAlgo *)",
        "void pplx::dispatchKernel<(unsigned int)16, (bool)1>(int *)",
        "void my_ring::exchange<float>(float *)",
        "void norm<BlockAllReduce<float> >(float *)",
    ];
    for step in 0..10 {
        let at = step * 10 * MS;
        capture.step(at, at + 10 * MS - US);
        capture.launch("gemm_bf16", at + 5 * US, (at + 20 * US, at + 5020 * US));
        for (k, name) in (0..).zip(names) {
            let from = at + 5100 * US + 900 * US * k;
            capture.launch(name, at + (15 + 10 * k) * US, (from, from + 800 * US));
        }
    }
    let communication = |profile: &Profile| ns(profile.query().devices()[0].communication);
    let profile = capture.read();
    assert_eq!(communication(&profile), 10 * 3 * 800 * US);
    let class = |profile: &Profile, name: &str| {
        let kernel = profile.kernels().find(|kernel| kernel.demangled_name().starts_with(name));
        kernel.unwrap().class()
    };
    assert_eq!(class(&profile, "pplx::"), KernelClass::Collective);
    assert_eq!(class(&profile, "my_ring::"), KernelClass::Other);
    assert_ne!(class(&profile, "norm"), KernelClass::Collective);
    let profile = profile.with_communication(|name| name == "my_ring::exchange<float>");
    assert_eq!(communication(&profile), 10 * 4 * 800 * US);
    assert_eq!(class(&profile, "my_ring::"), KernelClass::Collective);
    // A rule of the program counts before.
    let own = Classifier::new().rule("my_ring::*", KernelClass::Copy);
    let groups = profile.query().kernels().by_kernel_class_with(&own);
    assert_eq!(groups.get("collective").unwrap().count(), 30);
    assert_eq!(groups.get("copy").unwrap().count(), 10);
}

// --- rates ---

#[test]
fn throughput_is_exact_but_in_the_cells_of_nsys() {
    let mut capture = Capture::new().gpu();
    let copies = [(30 * MS, 300), (107_414_858, 512), (600 * MS, 6000), (1500 * MS, 15_000)];
    let mut at = 0;
    for (length, megabytes) in copies {
        let correlation = capture.call(10, 10, at);
        let from = at + 10 * US;
        capture.add(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, 0, 1, NULL, 7, ?, ?, ?, 1, 1, 2)",
            params![from, from + length, correlation, global(10, 0), megabytes * MS],
        );
        at += length + MS;
    }
    let report = capture.read().stats(StatsReport::CudaGpuTrace);
    let rows = serde_json::to_value(&report).unwrap();
    let rates = rows.as_array().unwrap().iter();
    let rates: Vec<u64> = rates.filter_map(|row| row["throughput_bytes_per_s"].as_u64()).collect();
    assert_eq!(rates, [10_000_000_000, 4_766_565_907, 10_000_000_000, 10_000_000_000]);
    let cells = |text: &str| -> Vec<f64> {
        let rows = serde_json::from_str::<Vec<serde_json::Value>>(text).unwrap();
        rows.iter().map(|row| row["Throughput (MB/s)"].as_f64().unwrap()).collect()
    };
    assert_eq!(cells(&report.json()), [9900.0, 4608.0, 6000.0, 0.0]);
    assert!(report.csv().contains(",9900.000,"), "{}", report.csv());
    let shown = report.to_string();
    assert!(shown.matches("/s").count() == 4 && !shown.contains(" 0 B/s"), "{shown}");
}
