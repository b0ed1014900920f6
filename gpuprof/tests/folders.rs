//! Folders of recordings: every command reads the processes of a run as one profile.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use fake_cupti::Work;
use profiler_analysis::Format;
use profiler_core::Recording;
use rusqlite::Connection;
use serde_json::{Value, json};
use test_support::folder::Folder;
use test_support::processes::{as_process, bytes_with_info, recording};

struct Ran {
    status: i32,
    out: Vec<u8>,
    error: String,
}

impl Ran {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }
}

fn ran(words: &[&str], file: &Path) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuprof"));
    let output = command.args(words).arg(file).stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!error.contains("panicked"), "{error}");
    Ran { status: output.status.code().unwrap(), out: output.stdout, error }
}

fn train(kernels: u64) -> Recording {
    recording(|fake| {
        for _ in 0..3 {
            let _step = nvtx::range("step");
            for _ in 0..kernels {
                fake.launch(Work::kernel(c"gemm").taking_ns(20_000));
            }
            fake.launch(Work::device_to_host(4_096));
            fake.launch(Work::synchronize());
        }
    })
}

/// A run of two processes, of 1 and of 4 kernels a step.
fn run() -> Folder {
    let folder = Folder::new();
    for (id, kernels) in [(100, 1), (200, 4)] {
        let file = folder.0.join(format!("process-{id}-77.gpuprof"));
        as_process(&train(kernels), id).save(file).unwrap();
    }
    folder
}

#[test]
fn every_command_takes_a_folder() {
    let run = run();
    let baseline = run.0.join("baseline.json");
    let baseline = baseline.to_str().unwrap();
    let commands: [&[&str]; 20] = [
        &["report"],
        &["report", "--format=json"],
        &["report", "--fail-if-incomplete"],
        &["stats"],
        &["stats", "all"],
        &["analyze", "all"],
        &["kernels", "--by-range"],
        &["tracks"],
        &["tensor-cores"],
        &["scorecard"],
        &["critical-path"],
        &["gaps"],
        &["diagnose"],
        &["diagnose", "--steps=step"],
        &["export", "--format=counts"],
        &["export", "--format=json"],
        &["html"],
        &["roofline", "--kernel=gemm:flops=1e6,dtype=f32"],
        &["gate", "--update", baseline],
        &["diff", run.0.to_str().unwrap()],
    ];
    for words in commands {
        let ran = ran(words, &run.0);
        assert_eq!(ran.status, 0, "{words:?}: {}", ran.error);
    }
    for format in Format::ALL {
        let ran = ran(&["export", "--format", format.key()], &run.0);
        assert_eq!((ran.status, ran.out.is_empty()), (0, false), "{format}: {}", ran.error);
    }
    let capture = run.0.join("all.sqlite");
    let exported = ran(&["export", "--format=nsys", "-o", capture.to_str().unwrap()], &run.0);
    assert_eq!(exported.status, 0, "{}", exported.error);
    let again = ran(&["report"], &capture);
    assert!(again.text().contains("process 100") && again.text().contains("process 200"));
}

#[test]
fn report_of_a_folder_sums_its_processes_and_names_each() {
    let run = run();
    let report = ran(&["report"], &run.0);
    assert_eq!((report.status, report.error.as_str()), (0, ""));
    assert!(report.text().contains("process 100") && report.text().contains("process 200"));
    let json = ran(&["report", "--json"], &run.0);
    let json: Value = serde_json::from_slice(&json.out).unwrap();
    let (ranges, whole) = (&json[0]["ranges"], &json[0]["whole"]);
    assert_eq!((ranges[0]["path"].as_str(), &ranges[0]["instances"]), (Some("step"), &json!(6)));
    assert_eq!(ranges[0]["inclusive"]["kernels"], 15);
    let processes = whole["processes"].as_array().unwrap();
    let kernels: Vec<_> =
        processes.iter().map(|of| (of["id"].clone(), of["totals"]["kernels"].clone())).collect();
    assert_eq!(kernels, [(json!(100), json!(3)), (json!(200), json!(12))]);
}

#[test]
fn folder_without_recordings_is_an_error() {
    let folder = Folder::new();
    fs::write(folder.0.join("run.json"), "{}").unwrap();
    fs::create_dir(folder.0.join("odd.gpuprof")).unwrap();
    let ran = ran(&["report"], &folder.0);
    assert_eq!((ran.status, ran.out.len()), (1, 0));
    assert!(ran.error.contains("is a folder without recordings (.gpuprof)"), "{}", ran.error);
}

/// One bad file hides nothing of the others, and is not passed over.
#[test]
fn unreadable_recording_is_named_and_counted() {
    let run = run();
    let name = OsStr::from_bytes(b"process-\xff.gpuprof");
    fs::write(run.0.join(name), b"GPUPROF\x03, and then something else altogether").unwrap();
    fs::write(run.0.join("process-300-1.gpuprof"), b"").unwrap();
    let report = ran(&["report"], &run.0);
    assert_eq!(report.status, 0);
    assert_eq!(report.error.lines().count(), 2, "{}", report.error);
    assert!(report.error.contains("process-300-1.gpuprof"), "{}", report.error);
    assert!(
        report.text().contains("2 recordings missing, unreadable or copies"),
        "{}",
        report.text()
    );
    let gate = ran(&["report", "--fail-if-incomplete"], &run.0);
    assert_eq!(gate.status, 3);
    let folder = Folder::new();
    fs::write(folder.0.join("only.gpuprof"), b"GPUPROF\x03?").unwrap();
    let none = ran(&["report"], &folder.0);
    assert_eq!((none.status, none.out.len()), (1, 0));
    assert!(none.error.contains("only.gpuprof"), "{}", none.error);
}

#[test]
fn process_that_was_killed_is_named_in_the_health() {
    let run = run();
    let file = run.0.join("process-200-77.gpuprof");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 40]).unwrap();
    let report = ran(&["report"], &run.0);
    let health = report.text().split("health: ").nth(1).unwrap();
    assert!(health.starts_with("INCOMPLETE"), "{health}");
    let line = health.lines().nth(1).unwrap();
    assert!(line.contains("process 200") && line.contains("truncated recording"), "{health}");
    for words in [&["stats", "cuda_gpu_kern_sum"][..], &["export", "--format=counts"]] {
        let noted = ran(words, &run.0);
        assert_eq!(noted.status, 0);
        assert!(noted.error.contains("process 200: 1 truncated recording"), "{}", noted.error);
    }
}

#[test]
fn recordings_of_two_boots_are_no_run() {
    let run = run();
    let other = bytes_with_info(&train(1), |info| info["boot_id"] = json!("another"));
    fs::write(run.0.join("process-300-1.gpuprof"), other).unwrap();
    let ran = ran(&["report"], &run.0);
    assert_eq!((ran.status, ran.out.len()), (1, 0));
    assert!(ran.error.contains("the recordings were made on several machines"), "{}", ran.error);
}

/// A manifest as the injection library writes it.
fn manifest(folder: &Folder, pid: u32, start: u64, more: Value) {
    let moment = json!({"wall_ns": 1, "monotonic_ns": 1});
    let mut manifest = json!({
        "version": 1, "gpuprof": "0.1.0", "pid": pid, "start": start, "parent": 1,
        "program": "python3", "state": "finished", "has_recording": true, "began": moment,
    });
    let fields = manifest.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let name = format!("process-{pid}-{start}.json");
    fs::write(folder.0.join(name), manifest.to_string()).unwrap();
}

#[test]
fn manifests_give_processes_their_names_and_ranks() {
    let run = run();
    manifest(&run, 100, 77, json!({"rank": 1, "world_size": 2}));
    manifest(&run, 200, 77, json!({"rank": 0, "world_size": 2}));
    let report = ran(&["report"], &run.0);
    assert_eq!((report.status, report.error.as_str()), (0, ""));
    let at = |text: &str| report.text().find(text).unwrap();
    assert!(at("rank 0, python3, process 200") < at("rank 1, python3, process 100"));
    // What one cannot read costs the name alone.
    fs::write(run.0.join("process-100-77.json"), "{").unwrap();
    let report = ran(&["report", "--fail-if-incomplete"], &run.0);
    assert_eq!(report.status, 0);
    assert!(report.error.contains("process-100-77.json is no manifest"), "{}", report.error);
    assert!(!report.text().contains("rank 1") && report.text().contains("process 100"));
}

#[test]
fn ranks_are_judged_in_each_instance_of_a_range() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings/nccl-2xh100");
    let report = ran(&["ranks", "--range", "late", "--format=json"], &folder);
    assert_eq!(report.status, 0, "{}", report.error);
    let report: Value = serde_json::from_slice(&report.out).unwrap();
    let windows = report["windows"].as_array().unwrap();
    assert_eq!(windows.len(), 50);
    for (number, window) in windows.iter().enumerate() {
        assert_eq!(
            (&window["path"], &window["number"], &window["collectives"]),
            (&json!("late"), &json!(number), &json!(1))
        );
        // One collective is too few to name a rank.
        assert_eq!(window["stragglers"], json!([]));
    }
    let text = ran(&["ranks", "--range", "late"], &folder);
    assert!(text.text().contains("in 0 of 50 instances of the range"), "{}", text.text());
    let whole = ran(&["ranks", "--format=json"], &folder);
    let whole: Value = serde_json::from_slice(&whole.out).unwrap();
    assert_eq!((&whole["windows"], &whole["matched"]), (&json!([]), &report["matched"]));
    let unknown = ran(&["ranks", "--range", "lat"], &folder);
    let said = (unknown.status, unknown.error.contains("has no range lat; `gpuprof report` shows"));
    assert_eq!(said, (2, true), "{}", unknown.error);
    let csv = ran(&["ranks", "--range", "late", "--format=csv"], &folder);
    assert!(csv.status == 2 && csv.error.contains("leave out --format csv"), "{}", csv.error);
}

#[test]
fn processes_without_a_recording_are_named() {
    let run = run();
    manifest(
        &run,
        300,
        5,
        json!({"state": "failed", "has_recording": false, "reason": "no permission"}),
    );
    manifest(&run, 400, 5, json!({"state": "yielded", "has_recording": false}));
    manifest(&run, 500, 5, json!({"state": "idle", "has_recording": false}));
    manifest(&run, 600, 5, json!({}));
    let report = ran(&["report"], &run.0);
    let lines: Vec<_> = report.error.lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(
        lines[0].contains("recording python3 (process 300) failed: no permission"),
        "{lines:?}"
    );
    assert!(lines[1].contains("python3 (process 400) records itself"), "{lines:?}");
    assert!(lines[2].contains("process-600-5.gpuprof is not in "), "{lines:?}");
    assert!(
        report.text().contains("2 recordings missing, unreadable or copies"),
        "{}",
        report.text()
    );
}

#[test]
fn run_of_a_program_that_records_itself_names_its_own_recording() {
    let folder = Folder::new();
    let reason = "the program records itself";
    let state = json!({"state": "yielded", "has_recording": false, "reason": reason});
    manifest(&folder, 9, 5, state);
    let ran = ran(&["report"], &folder.0);
    assert_eq!(ran.status, 1);
    assert!(ran.error.contains("writes its own recording"), "{}", ran.error);
    assert!(!ran.error.contains("used the GPU"), "{}", ran.error);
}

#[test]
fn run_without_gpu_work_is_named() {
    let folder = Folder::new();
    manifest(&folder, 9, 5, json!({"state": "idle", "has_recording": false}));
    let ran = ran(&["report"], &folder.0);
    assert_eq!(ran.status, 1);
    assert!(
        ran.error.contains("has no recording") && ran.error.contains("python3 9 is idle"),
        "{}",
        ran.error
    );
}

#[test]
fn copy_of_a_recording_is_named_and_not_summed() {
    let run = run();
    let original = run.0.join("process-200-77.gpuprof");
    fs::copy(&original, run.0.join("a copy.gpuprof")).unwrap();
    // Of a recording that goes on, the copy ends earlier.
    let whole = fs::read(&original).unwrap();
    fs::write(run.0.join("early.gpuprof"), &whole[..whole.len() - 40]).unwrap();
    manifest(&run, 200, 77, json!({"rank": 0}));
    let report = ran(&["report", "--json"], &run.0);
    assert_eq!(report.error.lines().count(), 2, "{}", report.error);
    for copy in ["a copy.gpuprof", "early.gpuprof"] {
        let said = format!("{copy}: a copy of another recording of process 200");
        assert!(report.error.contains(&said), "{}", report.error);
    }
    let json: Value = serde_json::from_slice(&report.out).unwrap();
    assert_eq!(
        (&json[0]["complete"], &json[0]["ranges"][0]["instances"]),
        (&json!(false), &json!(6))
    );
    let text = ran(&["report"], &run.0);
    // The one with a manifest was read.
    assert!(text.text().contains("rank 0, python3, process 200"), "{}", text.text());
    assert!(text.text().contains("2 recordings missing, unreadable or copies"), "{}", text.text());
}

#[test]
fn folder_named_like_a_recording_is_reported() {
    let run = run();
    symlink("nowhere", run.0.join("dangling.gpuprof")).unwrap();
    let pipe = run.0.join("pipe.gpuprof");
    assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    symlink(run.0.join("process-100-77.gpuprof"), run.0.join("process-1-1.json")).unwrap();
    let report = ran(&["report"], &run.0);
    assert_eq!(report.status, 0);
    for said in [
        "dangling.gpuprof is a link to nothing",
        "pipe.gpuprof is no file",
        "process-1-1.json is a link",
    ] {
        assert!(report.error.contains(said), "{said}: {}", report.error);
    }
    assert!(
        report.text().contains("2 recordings missing, unreadable or copies"),
        "{}",
        report.text()
    );
    assert_eq!(ran(&["report", "--fail-if-incomplete"], &run.0).status, 3);
}

#[test]
fn outputs_are_no_files_of_the_folder_that_is_read() {
    let (run, elsewhere) = (run(), Folder::new());
    let outside = elsewhere.0.join("other.data");
    fs::rename(run.0.join("process-100-77.gpuprof"), &outside).unwrap();
    symlink(&outside, run.0.join("process-100-77.gpuprof")).unwrap();
    let before =
        (fs::read(&outside).unwrap(), fs::read(run.0.join("process-200-77.gpuprof")).unwrap());
    for name in [
        "process-200-77.gpuprof",
        "process-100-77.gpuprof",
        "new.gpuprof",
        "run.json",
        "process-1-2.json",
    ] {
        let output = run.0.join(name);
        let refused = ran(&["export", "--format=json", "-o", output.to_str().unwrap()], &run.0);
        assert_eq!(refused.status, 1, "{name}");
        assert!(refused.error.contains("is both input and output"), "{}", refused.error);
    }
    let refused = ran(&["export", "--format=json", "-o", outside.to_str().unwrap()], &run.0);
    assert!(
        refused.status == 1 && refused.error.contains("is both input and output"),
        "{}",
        refused.error
    );
    assert_eq!(
        before,
        (fs::read(&outside).unwrap(), fs::read(run.0.join("process-200-77.gpuprof")).unwrap())
    );
    let page = run.0.join("page.html");
    assert_eq!(ran(&["html", "-o", page.to_str().unwrap()], &run.0).status, 0);
}

/// The captures of a run on two GPUs, by rank, in files with these names.
fn captures(names: [&str; 2]) -> Folder {
    let folder = Folder::new();
    for (rank, name) in names.iter().enumerate() {
        let recording = run_of_ranks().join(format!("rank-{rank}.gpuprof"));
        let capture = folder.file(name);
        let words = ["export", "--format=nsys", "-o", capture.to_str().unwrap()];
        assert_eq!(ran(&words, &recording).status, 0);
    }
    folder
}

fn run_of_ranks() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings/nccl-2xh100")
}

/// Adds the environment of nsys to a capture, as nsys exports it.
fn set_environment(capture: &Path, environment: &str) {
    let insert =
        "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, 'Local', 'DeviceEnvironment', 0, ?1)";
    Connection::open(capture).unwrap().execute(insert, [environment]).unwrap();
}

/// The ranks of a folder's processes, by their kernel's ids.
fn ranks_of(folder: &Folder) -> (Vec<(u64, u64)>, String) {
    let report = ran(&["report", "--json"], &folder.0);
    assert_eq!(report.status, 0, "{}", report.error);
    let json: Value = serde_json::from_slice(&report.out).unwrap();
    let processes = json[0]["whole"]["processes"].as_array().unwrap();
    let number = |of: &Value, key: &str| of[key].as_u64().unwrap();
    (processes.iter().map(|of| (number(of, "id"), number(of, "rank"))).collect(), report.error)
}

#[test]
fn folder_of_captures_is_the_run_of_its_ranks() {
    let folder = captures(["rank0.sqlite", "rank1.sqlite"]);
    let json = |file: &Path, words: &[&str]| -> Value {
        let ran = ran(words, file);
        assert_eq!(ran.status, 0, "{}", ran.error);
        serde_json::from_slice(&ran.out).unwrap()
    };
    let of_ranks = |file: &Path| json(file, &["ranks", "--format=json"]);
    let (expected, found) = (of_ranks(&run_of_ranks()), of_ranks(&folder.0));
    assert_eq!(found["matched"], 100);
    assert_eq!(found["matched"], expected["matched"]);
    assert_eq!(found["stragglers"].as_array().unwrap().len(), 1);
    assert_eq!(found["stragglers"][0]["rank"], expected["stragglers"][0]["rank"]);
    assert_eq!(found["ranks"].as_array().unwrap().len(), 2);
    for (at, rank) in found["ranks"].as_array().unwrap().iter().enumerate() {
        assert_eq!(rank["rank"], at);
        assert_eq!(rank["device"], expected["ranks"][at]["device"]);
        assert_eq!(rank["busy_ns"], expected["ranks"][at]["busy_ns"]);
    }
    let of_report = |file: &Path| json(file, &["report", "--json"])[0]["ranges"].clone();
    let (expected, found) = (of_report(&run_of_ranks()), of_report(&folder.0));
    for (at, range) in expected.as_array().unwrap().iter().enumerate() {
        for key in ["path", "instances", "inclusive"] {
            assert_eq!(found[at][key], range[key], "{at} {key}");
        }
    }
    let report = ran(&["report"], &folder.0);
    assert!(
        report.error.contains("2 captures are from the numbers after `rank`"),
        "{}",
        report.error
    );
    assert!(
        report.text().contains("2 captures aligned by their calendar time at the start"),
        "{}",
        report.text()
    );
    let commands: [&[&str]; 9] = [
        &["top"],
        &["diagnose"],
        &["steps", "--range=work"],
        &["stats", "all"],
        &["analyze", "all"],
        &["critical-path"],
        &["tracks"],
        &["html"],
        &["diff", folder.0.to_str().unwrap()],
    ];
    for words in commands {
        let ran = ran(words, &folder.0);
        assert_eq!((ran.status, ran.out.is_empty()), (0, false), "{words:?}: {}", ran.error);
    }
    for format in Format::ALL {
        let ran = ran(&["export", "--format", format.key()], &folder.0);
        assert_eq!((ran.status, ran.out.is_empty()), (0, false), "{format}: {}", ran.error);
    }
    let over = folder.file("rank0.sqlite");
    let refused = ran(&["export", "--format=nsys", "-o", over.to_str().unwrap()], &folder.0);
    assert!(refused.error.contains("is both input and output"), "{}", refused.error);
}

#[test]
fn ranks_of_captures_are_in_their_data_their_names_or_their_order() {
    let folder = captures(["b.sqlite", "a.sqlite"]);
    let [b, a] = ["b.sqlite", "a.sqlite"].map(|name| folder.file(name));
    let (ranks, said) = ranks_of(&folder);
    assert_eq!(ranks, [(1045, 0), (1044, 1)]);
    assert!(said.contains("are from the order of their names"), "{said}");
    // A process outside of `srun` has the number 0.
    set_environment(&a, "PATH=/bin\0SLURM_PROCID=0\0HOME=/");
    set_environment(&b, "SLURM_PROCID=0");
    assert!(ranks_of(&folder).1.contains("are from the order of their names"));
    for (capture, rank) in [(&a, 3), (&b, 2)] {
        let connection = Connection::open(capture).unwrap();
        let ranks = format!(
            "CREATE TABLE MPI_RANKS (globalTid INTEGER NOT NULL, rank INTEGER NOT NULL);
             INSERT INTO MPI_RANKS VALUES (1, {rank}), (2, {rank});"
        );
        connection.execute_batch(&ranks).unwrap();
    }
    let (ranks, said) = ranks_of(&folder);
    assert_eq!(ranks, [(1044, 2), (1045, 3)]);
    assert!(said.contains("are from MPI_RANKS"), "{said}");
    set_environment(&a, "NOTE=a RANK=9\0MY_RANK=8\0OMPI_COMM_WORLD_RANK=5\0SLURM_PROCID=0");
    set_environment(&b, "XRANK=1\0RANK=4\0HOME=/");
    let (ranks, said) = ranks_of(&folder);
    assert_eq!(ranks, [(1044, 4), (1045, 5)]);
    assert!(!said.contains("of different runs"), "{said}");
    let year =
        "UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs - 31536000000000000";
    Connection::open(&a).unwrap().execute(year, ()).unwrap();
    assert!(ranks_of(&folder).1.contains("the captures are of different runs"));
    assert!(said.contains("are from OMPI_COMM_WORLD_RANK, RANK;"), "{said}");
    set_environment(&a, "RANK=4");
    let twice = ran(&["report"], &folder.0);
    assert_eq!((twice.status, twice.out.len()), (1, 0));
    let message = "b.sqlite are both rank 4 by RANK: a folder has one capture per rank";
    assert!(twice.error.contains(message), "{}", twice.error);
    let numbered = captures(["n1.x7.sqlite", "n1.x3.sqlite"]);
    let (ranks, said) = ranks_of(&numbered);
    assert_eq!(ranks, [(1045, 3), (1044, 7)]);
    assert!(said.contains("are from the last numbers of their names"), "{said}");
}

#[test]
fn unreadable_capture_is_named_and_counted() {
    let folder = captures(["0.sqlite", "1.sqlite"]);
    fs::write(folder.file("2.sqlite"), b"SQLite format 3\0, and then something else").unwrap();
    fs::copy(folder.file("1.sqlite"), folder.file("copy-of-3.sqlite")).unwrap();
    symlink("nowhere", folder.file("4.sqlite")).unwrap();
    assert!(Command::new("mkfifo").arg(folder.file("5.sqlite")).status().unwrap().success());
    let without_start = folder.file("6.sqlite");
    fs::copy(folder.file("0.sqlite"), &without_start).unwrap();
    let connection = Connection::open(&without_start).unwrap();
    connection.execute("DELETE FROM TARGET_INFO_SESSION_START_TIME", ()).unwrap();
    drop(connection);
    let (ranks, said) = ranks_of(&folder);
    assert_eq!(ranks, [(1044, 0), (1045, 1)], "{said}");
    for message in [
        "2.sqlite is not an SQLite file",
        "copy-of-3.sqlite: a copy of another recording of process 1045",
        "4.sqlite is no file: it is not read",
        "5.sqlite is no file: it is not read",
        "6.sqlite: the capture does not contain the calendar time of its start",
    ] {
        assert!(said.contains(message), "{message}: {said}");
    }
    let report = ran(&["report", "--fail-if-incomplete"], &folder.0);
    assert_eq!(report.status, 3);
    assert!(report.text().contains("5 recordings missing, unreadable or copies"));
    let none = Folder::new();
    fs::write(none.file("only.sqlite"), b"SQLite format 3\0?").unwrap();
    let refused = ran(&["report"], &none.0);
    assert_eq!((refused.status, refused.out.len()), (1, 0));
    assert!(refused.error.contains("only.sqlite is not an SQLite file"), "{}", refused.error);
}

#[test]
fn captures_beside_recordings_are_not_read() {
    let run = run();
    fs::write(run.file("rank0.sqlite"), b"anything").unwrap();
    let report = ran(&["report", "--json"], &run.0);
    assert_eq!(report.status, 0);
    let message = "has recordings: its captures of Nsight Systems are not read (1)";
    assert!(report.error.contains(message), "{}", report.error);
    let json: Value = serde_json::from_slice(&report.out).unwrap();
    assert_eq!(json[0]["complete"], true);
}

/// A script in place of nsys, which exports a real capture.
#[test]
fn newer_one_of_a_report_and_its_export_is_read() {
    let folder = captures(["rank0.sqlite", "rank1.sqlite"]);
    let elsewhere = captures(["0.sqlite", "1.sqlite"]);
    let script = "#!/bin/sh\ncp \"$(cat \"$8\")\" \"$7\"\n";
    let nsys = elsewhere.file("nsys");
    fs::write(&nsys, script).unwrap();
    fs::set_permissions(&nsys, fs::Permissions::from_mode(0o755)).unwrap();
    let temporary = elsewhere.file("temporary");
    fs::create_dir(&temporary).unwrap();
    let report = folder.file("rank1.nsys-rep");
    fs::write(&report, elsewhere.file("1.sqlite").to_str().unwrap()).unwrap();
    let set_time = |seconds: u64| {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        fs::File::options().write(true).open(&report).unwrap().set_modified(time).unwrap();
    };
    let read = |nsys: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuprof"));
        command.args(["ranks", "--format=json"]).arg(&folder.0).stdin(Stdio::null());
        command.env("NSYS", nsys).env("TMPDIR", &temporary);
        let output = command.output().unwrap();
        let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (json["ranks"].as_array().map_or(0, Vec::len), String::from_utf8(output.stderr).unwrap())
    };
    // The export is newer: nsys is not needed.
    set_time(1);
    assert_eq!(read(&folder.file("no nsys")).0, 2);
    // The report is: its export in the folder is not read.
    set_time(1 << 33);
    fs::write(folder.file("rank1.sqlite"), b"outdated").unwrap();
    set_time(1 << 33);
    let (ranks, said) = read(&nsys);
    assert_eq!(ranks, 2, "{said}");
    let (_, said) = read(&folder.file("no nsys"));
    assert!(said.contains("NSYS is") && said.contains("no file"), "{said}");
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "nothing is left");
}
