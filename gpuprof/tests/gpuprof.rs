//! The program `gpuprof` as its users call it: what it prints, where, and with which exit status.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fake_cupti::{Fake, Work};
use profiler_analysis::Format;
use profiler_analysis::prelude::*;
use profiler_analysis::reports::{Rule, StatsReport};
use profiler_core::series::{Series, Source};
use profiler_core::{Profile, Profiler};
use serde_json::{Value, json};
use test_support::own_process::of_its_own;
use test_support::sampled;

/// Where the fixtures are.
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests");

fn recording() -> PathBuf {
    Path::new(FIXTURES).join("../examples/recordings/quickstart-h200.gpuprof")
}

/// Of format 2, without checksums.
fn old_recording() -> PathBuf {
    Path::new(FIXTURES).join("recordings/case-studies/optimizer-before.gpuprof")
}

fn capture() -> PathBuf {
    Path::new(FIXTURES).join("captures/train-h200.sqlite")
}

fn gpuprof() -> Command {
    Command::new(env!("CARGO_BIN_EXE_gpuprof"))
}

struct Ran {
    status: i32,
    out: Vec<u8>,
    error: String,
}

impl Ran {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.out).unwrap()
    }
}

fn ran(command: &mut Command) -> Ran {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!error.contains("panicked"), "{error}");
    Ran { status: output.status.code().unwrap(), out: output.stdout, error }
}

/// With success and nothing to say beside the result.
#[track_caller]
fn result_of<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Ran {
    let ran = ran(gpuprof().args(args));
    assert_eq!((ran.status, ran.error.as_str()), (0, ""));
    ran
}

/// One message on standard error, and nothing on standard output.
#[track_caller]
fn failure_of<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>, status: i32) -> String {
    let ran = ran(gpuprof().args(args));
    assert_eq!((ran.status, ran.out.len()), (status, 0), "{}", ran.error);
    assert_eq!(ran.error.lines().count(), 1, "{}", ran.error);
    assert!(ran.error.starts_with("gpuprof: "), "{}", ran.error);
    ran.error
}

fn args<const N: usize>(words: [&dyn AsRef<OsStr>; N]) -> [&OsStr; N] {
    words.map(AsRef::as_ref)
}

/// An empty folder that goes away.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("gpuprof-{}-{number}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A recording of a program that launches so often in each step. Its kernels take far longer than
/// the host.
fn program(folder: &Folder, name: &str, launches: u32, extra: Option<&'static str>) -> PathBuf {
    recorded(folder, name, |fake| {
        for _ in 0..4 {
            let _step = nvtx::range("step");
            for _ in 0..launches {
                fake.launch(Work::kernel(c"gemm").taking_ns(100_000_000));
            }
            if let Some(extra) = extra {
                let _extra = nvtx::range(extra);
                fake.launch(Work::kernel(c"bias").taking_ns(100_000_000));
            }
        }
    })
}

fn recorded(folder: &Folder, name: &str, work: impl FnOnce(&Fake)) -> PathBuf {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let fake = Fake::new();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let ((), profile) = profiler.record(|| work(&fake)).unwrap();
    let profile = of_its_own(&profile);
    let path = folder.0.join(name);
    profile.save(&path).unwrap();
    path
}

// --- what it prints ---

#[test]
fn a_report_matches_the_library_for_either_kind_of_file() {
    for (file, profile) in [
        (recording(), Profile::load(recording()).unwrap()),
        (capture(), profiler_analysis::nsys::read(capture()).unwrap()),
    ] {
        let exact = result_of(args([&"report", &"--no-inferred", &file]));
        // As wide as it is: a pipe gets whole names.
        assert_eq!(exact.text(), format!("{}\n", profile.width(65535)));
        let profile = profile.with_inferred_ranges();
        assert_eq!(
            result_of(args([&"report", &file])).text(),
            format!("{}\n", profile.width(65535))
        );
        let lines = result_of(args([&"report", &"--format", &"jsonl", &file]));
        assert_eq!(lines.text(), profile.json_lines());
        for name in ["jsonl", "json"] {
            let converted = result_of(args([&"convert", &"--format", &name, &file]));
            assert_eq!(converted.text(), profile.json_lines(), "{name}");
        }
    }
    // PyTorch's autograd is in the capture.
    assert!(result_of(args([&"report", &capture()])).text().contains("inferred kernels"));
}

#[test]
fn report_as_json_is_one_document_with_an_object_for_each_file() {
    let files = [recording(), capture()];
    let json = result_of(args([&"report", &"--json", &files[0], &files[1]]));
    let json: Value = serde_json::from_str(json.text()).unwrap();
    for (at, file) in files.iter().enumerate() {
        let profile = match *file == capture() {
            true => profiler_analysis::nsys::read(file).unwrap(),
            false => Profile::load(file).unwrap(),
        };
        let profile = profile.with_inferred_ranges();
        let lines = profile.json_lines();
        let lines: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (whole, ranges) = lines.split_last().unwrap();
        assert!(!ranges.is_empty());
        let expected = json!({
            "file": file.to_str(), "complete": profile.health().is_complete(), "ranges": ranges, "whole": whole,
        });
        assert_eq!(json[at], expected);
    }
    assert_eq!(json.as_array().unwrap().len(), files.len());
}

#[test]
fn file_type_is_detected_from_the_content() {
    let folder = Folder::new();
    let swapped = folder.file("a.sqlite", &fs::read(recording()).unwrap());
    let other = folder.file("b.gpuprof", &fs::read(capture()).unwrap());
    assert!(result_of(args([&"report", &swapped])).text().contains("batch"));
    assert!(result_of(args([&"report", &other])).text().contains("Batch 0"));
}

#[test]
fn stats_are_nsys_s_own_files_byte_for_byte() {
    let mut compared = 0;
    for &report in StatsReport::ALL {
        let theirs = Path::new(FIXTURES).join(format!("captures/train-h200/{report}.csv"));
        let Ok(theirs) = fs::read_to_string(theirs) else { continue };
        let ours =
            ran(gpuprof().args(args([&"stats", &report.name(), &"--format=csv", &capture()])));
        assert_eq!(ours.status, 0, "{report}: {}", ours.error);
        assert_eq!(ours.text().trim_end(), theirs.trim_end(), "{report}");
        let is_empty = theirs.trim().is_empty();
        assert_eq!(
            ours.error.contains(&format!("{report} has no rows")),
            is_empty,
            "{}",
            ours.error
        );
        compared += 1;
    }
    assert!(compared >= 15, "{compared} reports were compared");
    for &rule in Rule::ALL {
        let theirs = Path::new(FIXTURES).join(format!("captures/train-h200/rule_{rule}.csv"));
        let theirs = fs::read_to_string(theirs).unwrap();
        let ours =
            ran(gpuprof().args(args([&"analyze", &rule.name(), &"--format=csv", &capture()])));
        assert_eq!(ours.text().trim_end(), theirs.trim_end(), "{rule}");
    }
}

#[test]
fn stats_honour_the_kernel_naming() {
    let name = |report: &str| {
        let csv = result_of(args([&"stats", &report, &"--format", &"csv", &recording()]));
        csv.text().lines().nth(1).unwrap().rsplit(',').next().unwrap().to_owned()
    };
    let plain = name("cuda_gpu_kern_sum:base");
    let in_range = name("cuda_gpu_kern_sum:nvtx-name:base");
    assert!(!plain.contains('/') && in_range.contains('/'), "{plain} {in_range}");
    let message = failure_of(args([&"stats", &"cuda_api_sum:short", &recording()]), 2);
    assert!(message.contains("base, mangled, nvtx-name"), "{message}");
}

#[test]
fn several_reports_have_headings() {
    let names = "cuda_gpu_kern_sum,nvtx_sum";
    let csv = result_of(args([&"stats", &names, &"cuda_api_sum", &"--format=csv", &recording()]));
    let heads: Vec<_> = csv.text().lines().filter(|line| line.starts_with("# ")).collect();
    assert_eq!(heads, ["# cuda_gpu_kern_sum", "# nvtx_sum", "# cuda_api_sum"]);
    let all = ran(gpuprof().args(args([&"stats", &"all", &"--format=json", &capture()])));
    let json = all.json();
    assert_eq!((all.status, json.as_object().unwrap().len()), (0, StatsReport::ALL.len()));
    let one = result_of(args([&"stats", &"nvtx_sum", &"--format=json", &capture()])).json();
    assert_eq!(json["nvtx_sum"], one);
    assert!(one.as_array().unwrap().len() > 10);
}

#[test]
fn list_shows_reports_and_their_availability() {
    let listed = result_of(["stats"]);
    assert_eq!(listed.text(), result_of(["stats", "list"]).text());
    assert!(StatsReport::ALL.iter().all(|report| listed.text().contains(report.name())));
    let json = result_of(args([&"analyze", &"list", &"--format=json", &recording()])).json();
    let waits = json.as_array().unwrap().iter().find(|rule| rule["name"] == "cuda_api_sync");
    assert_eq!(waits.unwrap()["rows"], 20, "a wait in each batch");
}

#[test]
fn rules_honour_their_options() {
    let rule = |more: &[&str]| {
        let mut words = vec!["analyze", "cuda_memcpy_async", "--format=json"];
        words.extend(more);
        let file = recording();
        words.push(file.to_str().unwrap());
        let ran = ran(gpuprof().args(words));
        (ran.json().as_array().map(Vec::len), ran.error)
    };
    let (all, note) = rule(&["--rows", "0"]);
    assert_eq!(
        (all, note.as_str()),
        (Some(60), ""),
        "every copy of the program is one of pageable memory"
    );
    assert_eq!(rule(&["--within", "batch/forward"]).0, Some(0));
    assert_eq!(rule(&["--rows", "0", "--within", "batch"]).0, all);
    assert_eq!(rule(&["--rows", "0", "--within", "batch/copy to device"]).0, Some(40));
    let (few, note) = rule(&["--rows", "2"]);
    assert_eq!(few, Some(2));
    assert!(note.contains("58 more rows"), "{note}");
    let message = failure_of(args([&"analyze", &"all", &"--within=nothing", &recording()]), 1);
    assert!(message.contains("has no range \"nothing\""), "{message}");
}

#[test]
fn every_format_of_the_library_is_exported() {
    let folder = Folder::new();
    let profile = Profile::load(recording()).unwrap();
    let formats = ["perfetto", "kineto", "chrome", "folded", "pprof", "otlp", "firefox"];
    assert_eq!(formats.len(), Format::ALL.len());
    for (name, format) in formats.into_iter().zip(Format::ALL) {
        let mut expected = Vec::new();
        profile.export(format, &mut expected).unwrap();
        let printed = result_of(args([&"export", &"--format", &name, &recording()]));
        assert!(printed.out == expected, "{name}");
        let to = folder.0.join(name);
        result_of(args([&"export", &"--format", &name, &"-o", &to, &recording()]));
        assert!(fs::read(to).unwrap() == expected, "{name}");
    }
    let counts = result_of(args([&"export", &"--format=counts", &recording()]));
    assert_eq!(counts.text(), profile.counts());
    let html = result_of(args([&"html", &recording()]));
    assert_eq!(html.text(), profile.to_html());
    let ranked = ["export", "--format=kineto", "--rank=3", "--world-size=8"];
    let ranked = ran(gpuprof().args(ranked).arg(recording())).json();
    assert_eq!(ranked["distributedInfo"]["rank"], 3);
    assert_eq!(folder.names().len(), formats.len(), "nothing else is left: {:?}", folder.names());
}

/// A killed run cannot remove its partial file: the next one that writes to the folder does, and leaves those of living ones.
#[test]
fn files_of_a_killed_run_are_removed_by_the_next() {
    let folder = Folder::new();
    let to = folder.0.join("x.json");
    let is_partial = |name: &String| name.ends_with(".partial");
    let killed = (0..200).any(|_| {
        let mut command = gpuprof();
        command.args(args([&"export", &"--format=chrome", &"-o", &to, &recording()]));
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        while child.try_wait().unwrap().is_none() {
            if folder.names().iter().any(is_partial) {
                child.kill().unwrap();
                child.wait().unwrap();
                break;
            }
            std::thread::yield_now();
        }
        folder.names().iter().any(is_partial)
    });
    assert!(killed, "no run was killed while it wrote");
    let living = folder.0.join(".gpuprof.1.0.partial");
    let lock = File::create_new(&living).unwrap();
    lock.lock().unwrap();
    result_of(args([&"export", &"--format=nsys", &"-o", &folder.0.join("y"), &recording()]));
    result_of(args([&"export", &"--format=chrome", &"-o", &to, &recording()]));
    let mut names = folder.names();
    names.sort_unstable();
    assert_eq!(names, [".gpuprof.1.0.partial", "x.json", "y"]);
    assert!(serde_json::from_slice::<Value>(&fs::read(to).unwrap()).is_ok());
}

#[test]
fn a_recording_made_a_capture_is_the_same() {
    let folder = Folder::new();
    let to = folder.0.join("x.sqlite");
    result_of(args([&"export", &"--format=nsys", &"-o", &to, &recording()]));
    let diff = result_of(args([&"diff", &"--fail-above=0", &recording(), &to]));
    assert!(diff.text().contains("Every count is the same in both."), "{}", diff.text());
    assert_eq!(folder.names(), ["x.sqlite"]);
}

#[test]
fn completions_name_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = result_of(["completions", shell]);
        assert!(
            script.text().contains("analyze") && script.text().contains("fail-above"),
            "{shell}"
        );
    }
}

#[test]
fn doctor_matches_the_library() {
    let ran = result_of(["doctor"]);
    assert!(ran.text().contains(&cupti::support().to_string()));
    let support = cupti::support();
    let json = result_of(["doctor", "--format", "json"]).json();
    assert_eq!(json["cupti_rs"], cupti::version());
    assert_eq!(json["ready"], support.is_ready());
    assert_eq!(json["advice"], serde_json::to_value(support.advice()).unwrap());
    match &support.driver {
        Ok(driver) => {
            assert_eq!(json["driver"]["cuda_version"], driver.cuda_version);
            let devices = json["driver"]["devices"].as_array().unwrap();
            assert_eq!(devices.len(), driver.devices.len());
        }
        Err(error) => assert_eq!(json["driver"]["error"], error.to_string()),
    }
    match &support.cupti {
        Ok(cupti) => assert_eq!(json["cupti"]["version"], cupti.version.0),
        Err(error) => assert_eq!(json["cupti"]["error"], error.to_string()),
    }
    let required = self::ran(gpuprof().args(["doctor", "--require", "--format", "json"]));
    let ready = support.is_ready();
    assert_eq!(required.status, if ready { 0 } else { 3 }, "{}", required.error);
}

// --- differences and gates ---

#[test]
fn a_difference_is_counted_and_named() {
    let folder = Folder::new();
    let a = program(&folder, "a.gpuprof", 2, Some("old"));
    let b = program(&folder, "b.gpuprof", 3, Some("new"));
    let json = result_of(args([&"diff", &"--format=json", &a, &b])).json();
    assert_eq!(json["counts_differ"], true);
    let row = |kind: &str, path: &str, kernel: Value, quantity: &str| {
        let is_it = |row: &&Value| {
            row["kind"] == kind
                && row["path"] == path
                && row["kernel"] == kernel
                && row["quantity"] == quantity
        };
        let rows: Vec<_> = json["rows"].as_array().unwrap().iter().filter(is_it).collect();
        assert_eq!(rows.len(), 1, "{kind} {path} {kernel} {quantity}");
        let status = rows[0]["status"].as_str().unwrap().to_owned();
        (status, rows[0]["before"].as_u64(), rows[0]["after"].as_u64(), rows[0]["change"].as_i64())
    };
    let found = |status: &str, a: u64, b: u64| {
        (status.to_owned(), Some(a), Some(b), Some(b as i64 - a as i64))
    };
    assert_eq!(row("everything", "", Value::Null, "kernels"), found("both", 12, 16));
    assert_eq!(row("range", "step", Value::Null, "instances"), found("both", 4, 4));
    assert_eq!(row("range", "step", Value::Null, "launches"), found("both", 12, 16));
    assert_eq!(row("range", "step/old", Value::Null, "kernels"), found("gone", 4, 0));
    assert_eq!(row("range", "step/new", Value::Null, "kernels"), found("new", 0, 4));
    assert_eq!(row("kernel", "", "gemm".into(), "kernels"), found("both", 8, 12));
    assert_eq!(row("kernel", "", "bias".into(), "kernels"), found("both", 4, 4));
    let is_time = ["host_ns", "busy_ns", "gpu_ns"].map(Value::from);
    let counts =
        json["rows"].as_array().unwrap().iter().map(|row| !is_time.contains(&row["quantity"]));
    assert!(counts.is_sorted(), "times come first");

    let table = result_of(args([&"diff", &a, &b]));
    for line in
        ["Counts that differ", "Only before", "step/old", "Only after", "step/new", "+50.0 %"]
    {
        assert!(table.text().contains(line), "{line}: {}", table.text());
    }
    let csv = result_of(args([&"diff", &"--format=csv", &a, &b]));
    assert!(
        csv.text().contains("\nkernel,both,,,gemm,128,256,Kernels,8,12,4,50.0,,"),
        "{}",
        csv.text()
    );
    let by_range = result_of(args([&"diff", &"--by-range", &"--format=csv", &a, &b]));
    assert!(by_range.text().contains("\nkernel,new,,step/new,bias,128,256,Kernels,0,4,4,,,"));
    assert!(by_range.text().contains("\nkernel,both,,step,gemm,128,256,Kernels,8,12,4,50.0,,"));
}

#[test]
fn a_gate_fails_on_growth_alone() {
    let folder = Folder::new();
    let small = program(&folder, "small.gpuprof", 2, None);
    let large = program(&folder, "large.gpuprof", 3, None);
    let status = |limit: &str, a: &Path, b: &Path| {
        let ran =
            ran(gpuprof().args(args([&"diff", &"--of=counts", &"--fail-above", &limit, &a, &b])));
        assert!(!ran.out.is_empty(), "the difference is printed, too");
        (ran.status, ran.error)
    };
    let (code, message) = status("49.9", &small, &large);
    assert_eq!(code, 3);
    assert!(message.contains("launches of step from 8 to 12 (+50.0 %)"), "{message}");
    assert_eq!(status("50", &small, &large).0, 0);
    assert_eq!(status("0", &large, &small).0, 0, "fewer is no growth");
    assert_eq!(status("0", &small, &small).0, 0);
    let new = program(&folder, "new.gpuprof", 2, Some("new"));
    assert_eq!(status("1000000", &small, &new).0, 3, "from none is more than any percent");
    for limit in ["-1", "nan", "x", "inf"] {
        let limit = format!("--fail-above={limit}");
        assert_eq!(ran(gpuprof().args(args([&"diff", &limit, &small, &large]))).status, 2);
    }
}

/// A recording of a program that is slow for one reason, or of its cured twin.
fn pattern(name: &str) -> PathBuf {
    let recordings = "../tests/recordings/diseases";
    Path::new(env!("CARGO_MANIFEST_DIR")).join(recordings).join(format!("{name}.gpuprof"))
}

/// Nine programs that are slow for one known reason, and four case studies, with their twins.
fn pairs() -> Vec<[PathBuf; 2]> {
    let recordings = Path::new(FIXTURES).join("recordings");
    let mut pairs = Vec::new();
    for (folder, states) in [("diseases", ["ill", "cured"]), ("case-studies", ["before", "after"])]
    {
        let of_state = |state: &str| {
            let end = format!("-{state}.gpuprof");
            let entries = fs::read_dir(recordings.join(folder)).unwrap();
            let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            files.retain(|path| path.to_str().unwrap().ends_with(&end));
            files.sort();
            files
        };
        let [slow, fast] = states.map(of_state);
        assert_eq!(slow.len(), fast.len());
        pairs.extend(slow.into_iter().zip(fast).map(|(slow, fast)| [slow, fast]));
    }
    assert_eq!(pairs.len(), 13);
    pairs
}

#[test]
fn every_relapse_fails_by_its_wall_time_and_every_fix_passes() {
    let folder = Folder::new();
    let baseline = folder.0.join("baseline.json");
    for [slow, fast] in pairs() {
        let name = slow.display().to_string();
        for of in ["--of=wall", "--of=all"] {
            let worse = ran(gpuprof().args(args([&"diff", &of, &"--fail-above=10", &fast, &slow])));
            assert_eq!(worse.status, 3, "{name}: {}", worse.error);
            assert!(worse.error.contains("wall time slower"), "{}", worse.error);
            // A fix never fails, whatever it costs on the GPU.
            let better = ran(gpuprof().args(args([&"diff", &of, &"--fail-above=0", &slow, &fast])));
            assert_eq!(better.status, 0, "{name}: {}", better.error);
        }
        let judged = |before: &Path, after: &Path| {
            result_of(args([&"gate", &"--update", &baseline, &before]));
            ran(gpuprof().args(args([&"gate", &baseline, &after])))
        };
        let relapse = judged(&fast, &slow);
        assert_eq!(relapse.status, 3, "{name}: {}", relapse.text());
        assert!(relapse.error.contains("wall time slower"), "{name}: {}", relapse.error);
        let fix = judged(&slow, &fast);
        assert_eq!(fix.status, 0, "{name}: {}", fix.text());
        assert!(fix.text().contains("wall time faster"), "{name}: {}", fix.text());
    }
    // The cured loader's twin has as much GPU time: it is the wall time alone that tells.
    let [ill, cured] = ["slow-loader-ill", "slow-loader-cured"].map(pattern);
    let counts =
        ran(gpuprof().args(args([&"diff", &"--of=counts", &"--fail-above=0", &cured, &ill])));
    assert_eq!(counts.status, 0, "{}", counts.error);
}

/// What there is to compare, and what each command says and returns: the message of `diff`, its status with `--fail-above`,
/// and the message and status of `gate`.
#[test]
fn incomparable_profiles_have_a_reason_and_a_status() {
    let folder = Folder::new();
    let steps = |name: &str, range: &'static str, kernel: &'static std::ffi::CStr, count: usize| {
        recorded(&folder, name, |fake| {
            for _ in 0..count {
                let _step = nvtx::range(range);
                fake.launch(Work::kernel(kernel).taking_ns(100_000_000));
            }
        })
    };
    let good = steps("good.gpuprof", "step", c"gemm", 10);
    let whole = Profile::load(&good).unwrap().recording().unwrap().to_bytes();
    let cases = [
        (
            steps("other.gpuprof", "epoch", c"conv", 10),
            ("they are of different programs", 3),
            ("they are of another program", 1),
        ),
        (
            steps("half.gpuprof", "step", c"gemm", 5),
            ("step was entered 10 times before and 5 times after", 3),
            ("step was entered 10 times before and 5 times after", 3),
        ),
        (
            folder.file("aborted.gpuprof", &whole[..whole.len() - 30]),
            ("a recording after is cut off", 3),
            ("1 truncated recording", 1),
        ),
        (
            recorded(&folder, "nothing.gpuprof", |_| ()),
            ("a run after has neither a range nor a GPU operation", 3),
            ("nothing ran on the GPU in the runs", 1),
        ),
        (
            recorded(&folder, "no-kernels.gpuprof", |_| {
                for _ in 0..10 {
                    let _step = nvtx::range("step");
                }
            }),
            ("a run after has no GPU operation", 3),
            ("nothing ran on the GPU in the runs", 1),
        ),
        (
            steps("evaluated.gpuprof", "evaluate", c"gemm", 40),
            ("step was entered 10 times before and 0 times after", 3),
            ("step was entered 10 times before and 0 times after", 3),
        ),
        (
            pattern("slow-loader-ill"),
            ("the GPUs differ, Fake H200 before and NVIDIA H200 after", 3),
            ("has nothing of NVIDIA H200", 1),
        ),
    ];
    let baseline = folder.0.join("baseline.json");
    result_of(args([&"gate", &"--update", &baseline, &good]));
    for (file, (of_diff, diff_status), (of_gate, gate_status)) in cases {
        let name = file.display();
        let shown = ran(gpuprof().args(args([&"diff", &good, &file])));
        assert_eq!(shown.status, 0, "{name}: {}", shown.error);
        assert!(shown.text().contains(of_diff), "{name}: {}", shown.text());
        let gated = ran(gpuprof().args(args([&"diff", &"--fail-above=1000", &good, &file])));
        assert_eq!(gated.status, diff_status, "{name}: {}", gated.error);
        let judged = ran(gpuprof().args(args([&"gate", &baseline, &file])));
        assert_eq!(judged.status, gate_status, "{name}: {} {}", judged.error, judged.text());
        assert!(judged.error.contains(of_gate), "{name}: {}", judged.error);
    }
    // The reasons that are no reason for who says so.
    let half = folder.0.join("half.gpuprof");
    let any = ran(gpuprof().args(args([&"diff", &"--any-work", &"--fail-above=1", &good, &half])));
    assert!(any.status == 0 && any.text().contains("wall time faster"), "{}", any.error);
    let any = ran(gpuprof().args(args([&"gate", &"--any-work", &baseline, &half])));
    assert_eq!(any.status, 0, "{}", any.text());
    // Counts are exact on any device.
    let other = pattern("slow-loader-ill");
    let counts =
        ran(gpuprof().args(args([&"diff", &"--of=counts", &"--fail-above=0", &good, &other])));
    assert!(counts.status == 3 && counts.error.contains("kernels of"), "{}", counts.error);
    // One run a side decides no small change, and says what would.
    let again = steps("again.gpuprof", "step", c"gemm", 10);
    let one = result_of(args([&"diff", &good, &again]));
    assert!(one.text().contains("wall time undecided"), "{}", one.text());
    let words =
        "`gpuprof diff --before B1.gpuprof ... B5.gpuprof --after A1.gpuprof ... A5.gpuprof`";
    assert!(one.text().contains(words), "{}", one.text());
    // An older baseline.
    let text = fs::read_to_string(&baseline).unwrap().replace("gpu-baseline 2", "gpu-baseline 1");
    fs::write(&baseline, text).unwrap();
    let older = failure_of(args([&"gate", &baseline, &good]), 1);
    assert!(older.contains("of an older version") && older.contains("gate --update"), "{older}");
    result_of(args([&"gate", &"--update", &baseline, &good]));
}

/// Different work of one program, with kernels in common: neither direction is faster.
#[test]
fn training_and_decoding_are_not_compared() {
    let folder = Folder::new();
    let recordings = Path::new(FIXTURES).join("recordings/pytorch-h100");
    let [train, decode] =
        ["train", "decode"].map(|name| recordings.join(format!("{name}.gpuprof")));
    let baseline = folder.0.join("baseline.json");
    for (before, after, why) in [
        (&train, &decode, "step was entered 20 times before and 0 times after"),
        (&decode, &train, "decode was entered 50 times before and 0 times after"),
    ] {
        let shown = result_of(args([&"diff", before, after]));
        assert!(shown.text().contains(&format!("wall time undecided: {why}")), "{}", shown.text());
        let gated = ran(gpuprof().args(args([&"diff", &"--fail-above=1000", before, after])));
        assert!(gated.status == 3 && gated.error.contains(why), "{}", gated.error);
        result_of(args([&"gate", &"--update", &baseline, before]));
        let judged = ran(gpuprof().args(args([&"gate", &baseline, after])));
        assert!(judged.status == 3 && judged.error.contains(why), "{}", judged.error);
        assert!(!judged.text().contains("a trade"), "{}", judged.text());
        let json = ran(gpuprof().args(args([&"gate", &"--json", &baseline, after]))).json();
        assert_eq!(json["undecidable"]["kind"], "other_work");
    }
}

/// Ranges with numbers that run from 0 before and from 5,000 after.
#[test]
fn running_numbers_are_grouped_on_request_and_always_in_comparisons() {
    let folder = Folder::new();
    let operators = |name: &str, first: usize| {
        recorded(&folder, name, |fake| {
            for step in 0..20 {
                let _step = nvtx::range(&format!("training_step_{}", first + step));
                for layer in 0..2 {
                    let _layer = nvtx::range(&format!("layer {layer}"));
                    let id = first + 2 * step + layer;
                    let _operator = nvtx::range(&format!("aten::linear, op_id = {id}"));
                    fake.launch(Work::kernel(c"gemm_64x3").taking_ns(100_000_000));
                }
            }
        })
    };
    let (a, b) = (operators("a.gpuprof", 0), operators("b.gpuprof", 5_000));
    let pattern = "training_step_*/layer 1/aten::linear, op_id = *";
    for command in [&["report", "--json"][..], &["top", "--of=ranges", "--json", "--limit=0"]] {
        let single = result_of(command.iter().map(Path::new).chain([&*a]));
        assert!(single.text().contains("op_id = 17") && !single.text().contains("op_id = *"));
        let grouped =
            result_of(command.iter().map(Path::new).chain([Path::new("--group-numbers"), &a]));
        assert!(grouped.text().contains(pattern), "{}", grouped.text());
        assert!(!grouped.text().contains("op_id = 1"), "{}", grouped.text());
    }
    let diagnosis = ran(gpuprof().args(args([&"diagnose", &"--group-numbers", &a])));
    assert!(diagnosis.status == 0 && !diagnosis.text().contains("step_1"), "{}", diagnosis.text());
    let path = result_of(args([&"critical-path", &"--steps=training_step_*", &a]));
    let label = "critical path of 20 instances of training_step_*:";
    assert!(path.text().starts_with(label), "{}", path.text());
    // Which of them have the most time on the path depends on the host's times.
    assert!(path.text().contains("op_id = ") && !path.text().contains(pattern), "{}", path.text());
    let words = args([&"critical-path", &"--steps=training_step_*", &"--group-numbers", &a]);
    let path = result_of(words);
    assert!(path.text().starts_with(label), "{}", path.text());
    assert!(
        path.text().contains("op_id = *") && !path.text().contains("op_id = 1"),
        "{}",
        path.text()
    );

    let json = result_of(args([&"diff", &"--json", &"--of=counts", &"--fail-above=0", &a, &b]));
    let json = json.json();
    let rows = json["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["status"] == "both"), "{rows:?}");
    assert!(rows.iter().any(|row| row["path"] == pattern), "{rows:?}");
    let baseline = folder.0.join("baseline.json");
    result_of(args([&"gate", &"--update", &baseline, &a]));
    assert!(fs::read_to_string(&baseline).unwrap().contains(pattern));
    let judged = ran(gpuprof().args(args([&"gate", &"--json", &baseline, &b]))).json();
    assert_eq!(judged["counts"], Value::Array(Vec::new()));
}

#[test]
fn pairs_of_files_are_compared_pair_by_pair() {
    let folder = Folder::new();
    let run = |side: &str, at: u64, ns: u64| {
        recorded(&folder, &format!("{side}{at}.gpuprof"), |fake| {
            let _step = nvtx::range("step");
            // It drifts from pair to pair.
            fake.launch(Work::kernel(c"gemm").taking_ns(ns + at * 100_000_000));
        })
    };
    let sides = [("b", 1_000_000_000), ("a", 1_050_000_000)]
        .map(|(side, ns)| (0..8).map(|at| run(side, at, ns)).collect::<Vec<_>>());
    let diff = |options: &[&str], count: usize| {
        let mut command = gpuprof();
        command.arg("diff").args(options).arg("--before").args(&sides[0][..count]);
        ran(command.arg("--after").args(&sides[1][..count]))
    };
    let unpaired = diff(&[], 8);
    assert!(unpaired.text().contains("wall time undecided"), "{}", unpaired.text());
    let paired = diff(&["--paired"], 8);
    assert!(paired.text().contains("wall time slower"), "{}", paired.text());
    assert!(paired.text().contains("8 pairs of runs"), "{}", paired.text());
    let few = diff(&["--paired"], 7);
    let words = "`gpuprof diff --paired --before B1.gpuprof ... B8.gpuprof";
    assert!(few.text().contains(words), "{}", few.text());
    let missing = ran(gpuprof().args(args([&"diff", &"--paired", &sides[0][0], &sides[1][0]])));
    assert_eq!(missing.status, 2, "pairs have --before and --after");
}

#[test]
fn several_files_of_each_side_are_compared() {
    let [ill, cured] = ["tiny-copies-ill", "tiny-copies-cured"].map(pattern);
    let (before, after) = (vec![&ill; 5], vec![&cured; 5]);
    let mut words: Vec<&dyn AsRef<OsStr>> = vec![&"diff", &"--format=json", &"--before"];
    words.extend(before.iter().map(|file| *file as &dyn AsRef<OsStr>));
    words.push(&"--after");
    words.extend(after.iter().map(|file| *file as &dyn AsRef<OsStr>));
    let json = result_of(words).json();
    assert_eq!(json["files"][1].as_array().unwrap().len(), 5);
    assert_eq!(json["wall"]["runs"], serde_json::json!([5, 5]));
    assert_eq!(
        (&json["wall"]["speed"], &json["wall"]["is_measured"]),
        (&"faster".into(), &true.into())
    );
    for wrong in [
        &["diff", "--before", "a"][..],
        &["diff", "a"],
        &["diff", "a", "b", "--before", "c", "--after", "d"],
    ] {
        assert_eq!(ran(gpuprof().args(wrong)).status, 2, "{wrong:?}");
    }
}

#[test]
fn a_difference_is_written_for_a_pull_request_and_for_a_browser() {
    let folder = Folder::new();
    let a = program(&folder, "a.gpuprof", 2, Some("<old>"));
    let b = program(&folder, "b.gpuprof", 3, Some("<new>"));
    let markdown = result_of(args([&"diff", &"--format=markdown", &a, &b]));
    let rows = ["| launches of step | 12 | 16 | +4 | +33.3 % |", "| step/&lt;new&gt; | 4 |"];
    for row in rows {
        assert!(markdown.text().contains(row), "{row}: {}", markdown.text());
    }
    let html = result_of(args([&"diff", &"--format=html", &a, &b]));
    assert!(html.text().contains("<td>step/&lt;new&gt;</td>") && !html.text().contains("<new>"));
    let comparison =
        profiler_analysis::compare(&Profile::load(&a).unwrap(), &Profile::load(&b).unwrap());
    assert_eq!(
        (html.text(), markdown.text()),
        (&*comparison.to_html(), &*comparison.to_markdown())
    );
}

#[test]
fn recorded_runs_are_judged_by_a_baseline() {
    let folder = Folder::new();
    let names: Vec<String> = (0..8).map(|run| format!("{run}.gpuprof")).collect();
    let runs: Vec<PathBuf> = names.iter().map(|name| program(&folder, name, 2, None)).collect();
    let extra = program(&folder, "extra.gpuprof", 2, Some("new"));
    let baseline = folder.0.join("baseline.json");
    let judged = |options: &[&str], runs: &[PathBuf]| {
        ran(gpuprof().arg("gate").args(options).arg(&baseline).args(runs))
    };
    let missing = judged(&[], &runs);
    assert_eq!(missing.status, 1);
    assert!(missing.error.contains("there is no baseline"), "{}", missing.error);
    let written = judged(&["--update"], &runs);
    assert_eq!((written.status, written.error.as_str()), (0, ""));
    assert!(written.text().contains("baseline written from 8 runs"), "{}", written.text());
    let passed = judged(&[], &runs);
    assert_eq!((passed.status, passed.error.as_str()), (0, ""));
    assert!(passed.text().contains("passed after 8 runs"), "{}", passed.text());
    let failed = judged(&["--format=json"], &[extra]);
    assert_eq!(failed.status, 3);
    assert!(failed.error.contains("wall time slower"), "{}", failed.error);
    let new = &failed.json()["counts"][0];
    assert_eq!((&new["range"], &new["what"]), (&"step/new".into(), &"bias <128, 256>".into()));
    assert_eq!(new["outcome"], "failed");
    // Too few to say anything of times.
    let undecided = judged(&["--format=markdown"], &runs[..1]);
    assert_eq!(undecided.status, 3, "{}", undecided.text());
    assert!(
        undecided.error.contains(
            "cannot be decided on so few runs, which counts as a failure; files: 1; record "
        ),
        "{}",
        undecided.error
    );
    assert!(undecided.text().contains("failed, undecided"), "{}", undecided.text());
    let needed = undecided.error.split("record ").nth(1).unwrap().split(' ').next().unwrap();
    let decided = judged(&[], &runs[..needed.parse().unwrap()]);
    assert_eq!(decided.status, 0, "as many as it says: {}", decided.text());
    let lenient = judged(&["--ignore-times=*", "--build=release"], &runs[..1]);
    assert_eq!(lenient.status, 0, "{}", lenient.text());
    assert_eq!(judged(&["--build=debug"], &runs).status, 1, "there is none of that build");
    assert_eq!(judged(&[], &[]).status, 2, "runs are needed");
    assert_eq!(judged(&["-o", baseline.to_str().unwrap()], &runs).status, 1, "it is an input");
}

/// Losses are reported, and a gate does not decide on an incomplete profile.
#[test]
fn incomplete_profile_is_noted() {
    let folder = Folder::new();
    let path = folder.0.join("open.gpuprof");
    let whole = program(&folder, "whole.gpuprof", 2, None);
    // CUPTI dropped a record.
    {
        let fake = Fake::new();
        let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
        profiler.start().unwrap();
        let _step = nvtx::range("step");
        fake.launch(Work::kernel(c"gemm"));
        fake.drop_records(1);
        let profile = profiler.stop().unwrap();
        assert!(!profile.health().is_complete());
        profile.save(&path).unwrap();
    }
    let result =
        |words: &[&dyn AsRef<OsStr>]| ran(gpuprof().args(words.iter().map(|word| word.as_ref())));
    let report = result(&[&"report", &path]);
    assert_eq!((report.status, report.error.as_str()), (0, ""));
    assert!(report.text().contains("INCOMPLETE"));
    for command in ["report", "stats"] {
        let mut words: Vec<&dyn AsRef<OsStr>> = vec![&command, &"--fail-if-incomplete"];
        if command == "stats" {
            words.push(&"nvtx_sum");
        }
        let passed = words.iter().copied().chain([&whole as &dyn AsRef<OsStr>]).collect::<Vec<_>>();
        assert_eq!(result(&passed).status, 0);
        words.push(&path);
        let gated = result(&words);
        assert_eq!(gated.status, 3, "{}", gated.error);
        assert!(gated.error.contains("INCOMPLETE") && !gated.out.is_empty(), "{}", gated.error);
    }
    let stats = result(&[&"stats", &"nvtx_sum", &"--format=csv", &path]);
    assert!(stats.status == 0 && stats.error.contains("INCOMPLETE"), "{}", stats.error);
    let gated = result(&[&"diff", &"--fail-above=1000000", &whole, &path]);
    assert!(gated.status == 3 && gated.error.contains("cannot be compared"), "{}", gated.error);
    assert_eq!(result(&[&"diff", &whole, &path]).status, 0);
}

#[test]
fn findings_can_be_a_gate() {
    let rule = |name: &str| {
        ran(gpuprof().args(args([&"analyze", &"--fail-if-found", &name, &recording()])))
    };
    let found = rule("cuda_api_sync");
    assert_eq!(found.status, 3);
    assert!(found.error.contains("found 20 of cuda_api_sync"), "{}", found.error);
    assert!(found.text().contains("advice: "));
    assert_eq!(rule("cuda_memset_sync").status, 0);
}

#[test]
fn a_diagnosis_is_text_or_json_and_can_be_a_gate() {
    let text = result_of(args([&"diagnose", &recording()]));
    assert!(
        text.text().starts_with("the steady phase of batch is copy bound\n"),
        "{}",
        text.text()
    );
    assert!(text.text().contains("34 asynchronous copies of pageable memory"), "{}", text.text());
    let json = result_of(args([&"diagnose", &"--format=json", &recording()])).json();
    assert_eq!(json["verdict"]["bottleneck"], "copy");
    assert_eq!(json["findings"][0]["kind"], "pageable_copies");
    let range =
        result_of(args([&"diagnose", &"--format=json", &"--range=forward", &recording()])).json();
    assert_eq!((&range["bottleneck"], &range["instances"]), (&"gpu_compute".into(), &20.into()));
    let steps = result_of(args([&"diagnose", &"--format=json", &"--steps=batch", &recording()]));
    assert_eq!(steps.json().as_array().unwrap().len(), 20);
    let file = Path::new(FIXTURES).join("recordings/frameworks-h100/burn.gpuprof");
    let strict = args([&"diagnose", &"--format=json", &"--verdict-share=0.4", &file]);
    assert_ne!(result_of(strict).json()["verdict"]["bottleneck"], "copy");
    let file = capture();
    let loading = result_of(args([&"diagnose", &"--loading=batch*", &"--range=Batch 5", &file]));
    assert!(loading.text().contains("idle for data"), "{}", loading.text());

    let gate = |factor: &str| {
        ran(gpuprof().args(args([&"diagnose", &"--fail-above", &factor, &recording()])))
    };
    let failed = gate("1.2");
    assert_eq!(failed.status, 3);
    assert!(failed.error.contains("is the largest estimate for one change in"), "{}", failed.error);
    assert!(!failed.out.is_empty());
    assert_eq!(gate("3").status, 0);
    // No single cause is something that is known.
    let file = Path::new(FIXTURES).join("recordings/frameworks-h100/burn.gpuprof");
    let strict = args([&"diagnose", &"--verdict-share=0.4", &"--fail-above=3", &file]);
    assert!(result_of(strict).text().contains("no single cause"));
    let missing = failure_of(args([&"diagnose", &"--range=nothing", &recording()]), 2);
    assert!(missing.contains("has no range nothing"), "{missing}");
    failure_of(args([&"diagnose", &"missing.gpuprof"]), 1);
}

/// What cannot be judged is no pass, of a whole run, of a range and of its steps.
#[test]
fn unknown_diagnosis_fails_the_gate() {
    let folder = Folder::new();
    let record = |name: &str, program: fn(&Fake)| {
        let (path, fake) = (folder.0.join(name), Fake::new());
        let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
        let ((), profile) = profiler.record(|| program(&fake)).unwrap();
        profile.save(&path).unwrap();
        path
    };
    let damaged = record("damaged.gpuprof", |fake| {
        fake.drop_records(3);
        let _batch = nvtx::range("batch");
        (0..100).for_each(|_| _ = fake.launch(Work::kernel(c"gemm")));
    });
    let gate = |file: &Path, more: &[&str]| {
        let result = ran(gpuprof().args(["diagnose", "--fail-above=1000"]).args(more).arg(file));
        (result.status, result.error)
    };
    for more in [&[][..], &["--range=batch"], &["--steps=batch"]] {
        let (status, error) = gate(&damaged, more);
        assert_eq!(status, 3, "{error}");
        assert!(error.contains("damaged.gpuprof cannot be judged: records are missing"), "{error}");
        assert!(error.contains("; --incomplete gives verdicts all the same"), "{error}");
    }
    assert_eq!(gate(&damaged, &["--incomplete"]).0, 0);

    let empty = record("empty.gpuprof", |_| ());
    let (status, error) = gate(&empty, &[]);
    assert_eq!(status, 3, "{error}");
    assert!(error.contains("0 operations are too few"), "{error}");
    assert!(!error.contains("--incomplete"), "{error}");
}

#[test]
fn critical_path_has_rows_and_answers() {
    let train = Path::new(FIXTURES).join("recordings/pytorch-h100/train.gpuprof");
    let text = result_of(args([&"critical-path", &train]));
    assert!(text.text().starts_with("critical path of "), "{}", text.text());
    assert!(text.text().contains("changes, by the saving of each alone of the median step of "));
    let json = result_of(args([&"critical-path", &"--format=json", &recording()])).json();
    assert!(json["path"]["length_ns"].as_u64() > Some(0));
    assert!(json["replay"]["median"].as_f64() < Some(0.2), "{json}");
    let what_if = ["critical-path", "--what-if=kernel:*=2", "--what-if=copies-ahead", "--json"];
    let json = result_of(args([&what_if[0], &what_if[1], &what_if[2], &what_if[3], &train]));
    let predictions = json.json()["predictions"].as_array().unwrap().len();
    assert_eq!(predictions, 2);
    let range = result_of(args([&"critical-path", &"--range=batch/backward", &recording()]));
    assert!(range.text().contains("instances of batch/backward"), "{}", range.text());
    failure_of(args([&"critical-path", &"--range=nowhere", &recording()]), 2);
    for (change, expected) in [
        ("kernel:foo=2", "has no kernel foo; `gpuprof top` shows them"),
        (
            "one-wait:batch/bakward",
            "has no range batch/bakward; `gpuprof report` shows them; did you mean batch/backward?",
        ),
    ] {
        let what_if = format!("--what-if={change}");
        let error = failure_of(args([&"critical-path", &what_if, &recording()]), 2);
        assert!(error.contains("gpuprof: --what-if: ") && error.contains(expected), "{error}");
    }
    let kernel = result_of(args([&"top", &"--json", &recording()])).json()[0]["kernels"]["rows"][0]
        ["name"]
        .clone();
    let name = kernel.as_str().unwrap();
    let what_if = format!("--what-if=kernel:{}=2", &name[..name.len() - 1]);
    let error = failure_of(args([&"critical-path", &what_if, &recording()]), 2);
    assert!(error.contains(&format!("did you mean {name}")), "{error}");
}

#[test]
fn gaps_have_causes_and_note_missing_wait_samples() {
    let text = result_of(args([&"gaps", &recording()]));
    assert!(text.text().starts_with("gaps of 20us and more: "), "{}", text.text());
    assert!(text.text().contains("not sampled; `gpuprof run --host-samples`"), "{}", text.text());
    let all = result_of(args([&"gaps", &"--json", &"--shortest=0s", &recording()])).json();
    let causes = all["causes"].as_array().unwrap();
    let sum: u64 = causes.iter().filter_map(|cause| cause["times"]["sum_ns"].as_u64()).sum();
    assert!(sum > 0 && Some(sum) == all["time_ns"].as_u64(), "{all}");
    assert!(all["samples"]["source"].is_null() && all["waits"].as_array().unwrap().is_empty());
    let none = result_of(args([&"gaps", &"--json", &"--shortest=1h", &recording()])).json();
    assert_eq!(none["gaps"].as_u64(), Some(0));
    assert!(all["longest"].as_array().unwrap().is_empty());
    let long = result_of(args([&"gaps", &"--json", &"--longest=3", &recording()])).json();
    let times = long["longest"].as_array().unwrap().iter().map(|gap| gap["time_ns"].as_u64());
    let times: Vec<_> = times.map(Option::unwrap).collect();
    assert!(times.len() == 3 && times.is_sorted_by(|a, b| a >= b), "{times:?}");
    let after = long["longest"][0]["after"].as_str().unwrap();
    let text = result_of(args([&"gaps", &"--longest=3", &recording()]));
    assert!(
        text.text().contains(&format!(" before {after}, ended by not known")),
        "{}",
        text.text()
    );
}

#[test]
fn a_scorecard_is_text_json_or_markdown_and_can_be_a_gate() {
    let text = result_of(args([&"scorecard", &recording()]));
    assert!(text.text().starts_with("scorecard: 6 bad, 1 look, "), "{}", text.text());
    assert!(text.text().lines().count() <= 22);
    let json = result_of(args([&"scorecard", &"--format=json", &recording()])).json();
    assert_eq!(json["bottleneck"], "copy");
    assert_eq!(json["scores"].as_array().unwrap().len(), 14);
    let markdown = result_of(args([&"scorecard", &"--format=markdown", &recording()]));
    assert!(markdown.text().contains("| **bad** | GPU busy |"), "{}", markdown.text());
    let capture = result_of(args([&"scorecard", &"--format=json", &capture()])).json();
    assert_eq!(capture["bottleneck"], "cpu");

    let gate = |more: &[&str]| {
        ran(gpuprof().args(["scorecard", "--fail-on=bad"]).args(more).arg(recording()))
    };
    let failed = gate(&[]);
    assert_eq!(failed.status, 3);
    assert!(failed.error.contains("GPU busy is 49.0 % (bad, >= 90 % is good)"), "{}", failed.error);
    assert!(!failed.out.is_empty());
    let low = [
        "--target=gpu_busy=0.9,0.1",
        "--target=estimate=1.05,9",
        "--target=copy=0.05,0.9",
        "--target=overlap=0.1,-1",
        "--target=small_kernels=1,1",
        "--target=tensor_cores=0,0",
    ];
    let passed = gate(&low);
    assert_eq!((passed.status, passed.error.as_str()), (0, ""));
    let look = ran(gpuprof().args(["scorecard", "--fail-on=look"]).args(low).arg(recording()));
    assert_eq!(look.status, 3);

    let folder = Folder::new();
    let fake = Fake::new();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let empty = folder.0.join("empty.gpuprof");
    profiler.record(|| ()).unwrap().1.save(&empty).unwrap();
    let undecided = ran(gpuprof().args(args([&"scorecard", &"--fail-on=bad", &empty])));
    assert_eq!(undecided.status, 3);
    assert!(undecided.error.contains("cannot be judged: no GPU operation"), "{}", undecided.error);
    for wrong in ["gpu=1,0", "gpu_busy=1", "gpu_busy=0.5,0.9", "launch=0.5,0.1", "copy=x,1"] {
        let refused = ran(gpuprof().args(args([&"scorecard", &"--target", &wrong, &recording()])));
        assert_eq!(refused.status, 2, "{wrong}");
    }
    failure_of(args([&"scorecard", &"missing.gpuprof"]), 1);
}

// --- hostile files ---

#[test]
fn file_that_is_no_profile_is_identified() {
    let folder = Folder::new();
    let message = |path: &Path| failure_of(args([&"report", &path]), 1);
    let said = |path: &Path, part: &str| {
        let message = message(path);
        assert!(message.contains(part), "{part}: {message}");
        assert!(message.contains(path.file_name().unwrap().to_str().unwrap()), "{message}");
    };
    said(&folder.file("empty.gpuprof", b""), "is empty");
    said(&folder.file("text", b"{\"traceEvents\": []}"), "is not a known profile format");
    said(&folder.file("a.gz", b"\x1f\x8b\x08rest"), "unpack it first");
    said(&folder.file("run.nsys-rep", b"whatever it is"), "export it first");
    said(&Folder::new().0, "is a folder without recordings");
    said(&folder.0.join("missing"), "there is no file");
    said(Path::new("/dev/zero"), "is not a known profile format");
    let long = folder.0.join("x".repeat(5000));
    let message = message(&long);
    assert!(message.len() < 2500, "{}", message.len());
    let odd = folder.file("two\nlines\x1b[31m", b"?");
    assert!(failure_of(args([&"report", &odd]), 1).contains("is not a known profile format"));
    let bytes = OsStr::new("no-\u{fffd}");
    assert!(failure_of(args([&"report", &bytes]), 1).contains("there is no file"));
}

#[test]
fn random_bytes_are_no_profile() {
    let folder = Folder::new();
    let mut random = fastrand::Rng::with_seed(7);
    for head in [&b""[..], b"GPUPROF\x02", b"GPUPROF\x01INFO", b"SQLite format 3\0"] {
        for length in [1, 100, 5000, 70_000] {
            let mut bytes = head.to_vec();
            bytes.extend(std::iter::repeat_with(|| random.u8(..)).take(length));
            let path = folder.file("random", &bytes);
            for command in ["report", "html"] {
                failure_of(args([&command, &path]), 1);
            }
        }
    }
}

#[test]
fn an_old_recording_that_was_cut_short_is_refused() {
    let folder = Folder::new();
    let whole = fs::read(old_recording()).unwrap();
    for length in [3, 7, 8, 9, 20, 1000, whole.len() / 2, whole.len() - 1] {
        let path = folder.file("cut.gpuprof", &whole[..length]);
        let message = failure_of(args([&"stats", &"nvtx_sum", &path]), 1);
        assert!(message.contains("cut.gpuprof: not a readable recording"), "{length}: {message}");
        let is_reported = message.contains("cut short") || message.contains("too few");
        assert!(is_reported, "{length}: {message}");
    }
}

#[test]
fn a_truncated_recording_is_reported_as_incomplete() {
    let folder = Folder::new();
    let whole = Profile::load(recording()).unwrap().recording().unwrap().to_bytes();
    let path = folder.file("cut.gpuprof", &whole[..whole.len() / 2]);
    let report = result_of(args([&"report", &path]));
    assert!(report.text().contains("INCOMPLETE"), "{}", report.text());
    assert!(report.text().contains("1 truncated recording"), "{}", report.text());
    let gate = ran(gpuprof().args(args([&"report", &"--fail-if-incomplete", &path])));
    assert_eq!(gate.status, 3, "{}", gate.error);
    let empty = folder.file("empty.gpuprof", &whole[..30]);
    let message = failure_of(args([&"report", &empty]), 1);
    assert!(message.contains("cut short before its first frame"), "{message}");
}

#[test]
fn a_file_or_pipe_beyond_the_limit_is_refused_early() {
    let folder = Folder::new();
    let new = Profile::load(recording()).unwrap().recording().unwrap().to_bytes();
    let old = fs::read(old_recording()).unwrap();
    for whole in [&new, &old] {
        let sparse = folder.file("sparse.gpuprof", whole);
        File::options().write(true).open(&sparse).unwrap().set_len(1 << 40).unwrap();
        let message = failure_of(args([&"report", &sparse]), 1);
        assert!(message.contains("1099511627776") && message.contains("--max-bytes"), "{message}");
        let above = failure_of(args([&"report", &"--max-bytes=2000000000000", &sparse]), 1);
        assert!(above.contains("bytes follow its last frame"), "{above}");
    }
    let path = folder.file("large.gpuprof", &new);
    let message = failure_of(args([&"report", &"--max-bytes=1000", &path]), 1);
    assert!(message.contains("the limit is 1000"), "{message}");

    for option in ["--peaks", "--counted"] {
        let message = failure_of(args([&"roofline", &option, &"/dev/zero", &path]), 1);
        assert!(message.contains("it has more than 64 MiB"), "{message}");
    }

    // Pipes without an end: what follows a recording, frames of a kind that is skipped, and no frames at all.
    let unknown = [&b"XTRA"[..], &[0; 8]].concat();
    for (head, part, expected) in [
        (&new[..], &b"\0"[..], "bytes follow its last frame"),
        (&new[..8], b"y\n", "is damaged"),
        (&old[..8], b"\0", "no frame begins"),
        (&old[..8], &unknown, "the limit is 1000000"),
    ] {
        let mut command = gpuprof();
        command.args(["report", "--max-bytes=1000000", "/dev/stdin"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let mut bytes = head.to_vec();
        // Until nobody reads it any more.
        while pipe.write_all(&bytes).is_ok() {
            bytes = part.repeat(1000);
        }
        let output = child.wait_with_output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && message.contains(expected), "{message}");
    }
    // And one with an end, as from another program.
    let mut command = gpuprof();
    command.args(["report", "/dev/stdin"]).stdin(File::open(&path).unwrap());
    let piped = command.output().unwrap();
    assert_eq!(piped.stdout, result_of(args([&"report", &path])).out);
}

#[test]
fn recording_of_a_newer_format_is_identified() {
    let folder = Folder::new();
    let mut newer = fs::read(recording()).unwrap();
    newer[7] = 99;
    let message = failure_of(args([&"report", &folder.file("newer.gpuprof", &newer)]), 1);
    assert!(message.contains("format 99") && message.contains("use a newer"), "{message}");
}

#[test]
fn truncated_capture_is_identified() {
    let folder = Folder::new();
    let whole = fs::read(capture()).unwrap();
    for length in [8, 16, 100, 4096, whole.len() / 2] {
        let path = folder.file("cut.sqlite", &whole[..length]);
        let message = failure_of(args([&"report", &path]), 1);
        assert!(message.contains("cut.sqlite"), "{length}: {message}");
        assert!(message.contains("export"), "{length}: {message}");
    }
}

#[test]
fn unrelated_database_is_identified() {
    let folder = Folder::new();
    let path = folder.0.join("other.sqlite");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("CREATE TABLE people (name TEXT)").unwrap();
    drop(connection);
    let message = failure_of(args([&"report", &path]), 1);
    assert!(message.contains("without the tables of Nsight Systems"), "{message}");
}

#[test]
fn start_end_ranges_of_a_capture_are_in_top_report_and_diagnose() {
    let folder = Folder::new();
    let path = folder.file("ranges.sqlite", &fs::read(capture()).unwrap());
    let before = profiler_analysis::nsys::read(&path).unwrap();
    let name = "Forward pass";
    let (range, kernels) = (before.range(name).unwrap(), before.totals().kernels);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute("UPDATE NVTX_EVENTS SET eventType = 60 WHERE eventType = 59", ()).unwrap();
    drop(connection);
    let top =
        result_of(args([&"top", &"--of", &"ranges", &"--limit", &"0", &"--json", &path])).json();
    let rows = top[0]["ranges"]["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name).unwrap();
    assert_eq!(row["work"], "by time");
    assert_eq!(row["count"], range.instances());
    // The thread launches nothing else meanwhile.
    assert_eq!(row["time_ns"].as_u64().map(u128::from), Some(range.gpu_time().as_nanos()));
    let label = format!("{name} (start/end, by time)");
    let shown = [
        result_of(args([&"top", &"--of", &"ranges", &"--limit", &"0", &path])),
        result_of(args([&"diagnose", &"--range", &name, &path])),
    ];
    for shown in shown {
        assert!(shown.text().contains(&label), "{}", shown.text());
    }
    let report = result_of(args([&"report", &path]));
    assert!(report.text().contains("start/end range"), "{}", report.text());
    let lines = result_of(args([&"report", &"--format=jsonl", &path]));
    let last: Value = serde_json::from_str(lines.text().lines().last().unwrap()).unwrap();
    let ranges = last["process_ranges"].as_array().unwrap();
    let own = ranges.iter().find(|range| range["name"] == name).unwrap();
    assert_eq!(own["inclusive"]["kernels"], range.kernels());
    assert_eq!(last["inclusive"]["kernels"], kernels);
    let missing = failure_of(args([&"diagnose", &"--range", &"Forward pas", &path]), 2);
    assert!(missing.contains("did you mean Forward pass?"), "{missing}");
}

#[test]
fn communication_kernels_are_added_by_a_pattern() {
    let file = capture();
    let collectives = |names: &str| {
        let words = args([&"kernels", &"--json", &"--communication", &names, &file]);
        let all = result_of(words).json();
        let shapes = all["launch_shapes"].as_array().unwrap().clone();
        shapes.iter().filter(|row| row["Class"] == "collective").count()
    };
    assert_eq!(collectives("^no_such_kernel$"), 0);
    assert!(collectives("multi_tensor_apply|^cutlass") > 0);
    let wrong = ran(gpuprof().args(args([&"report", &"--communication", &"(", &capture()])));
    assert_eq!(wrong.status, 2, "{}", wrong.error);
}

#[test]
fn a_capture_of_a_newer_schema_is_noted() {
    let folder = Folder::new();
    let path = folder.file("newer.sqlite", &fs::read(capture()).unwrap());
    let connection = rusqlite::Connection::open(&path).unwrap();
    let changed = connection
        .execute(
            "UPDATE META_DATA_EXPORT SET value = '9' WHERE name = 'EXPORT_SCHEMA_VERSION_MAJOR'",
            (),
        )
        .unwrap();
    assert_eq!(changed, 1);
    drop(connection);
    let stats = ran(gpuprof().args(args([&"stats", &"nvtx_sum", &path])));
    assert!(
        stats.status == 0 && stats.error.contains("newer.sqlite: 1 warnings"),
        "{}",
        stats.error
    );
}

#[test]
fn file_without_read_permission_is_identified() {
    let folder = Folder::new();
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
    let path = folder.file("secret.gpuprof", &fs::read(recording()).unwrap());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = gpuprof();
    if File::open(&path).is_ok() {
        // The user who may read everything: go on as one who may not, with a program that this one can reach.
        let program = folder.0.join("gpuprof");
        // Not by this process: what it has open to write, a process that another test starts has too, and then nobody may
        // run it.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_gpuprof")).arg(&program).status();
        assert!(copied.unwrap().success());
        command = Command::new(program);
        command.uid(65534).gid(65534);
    }
    let ran = ran(command.arg("report").arg(&path));
    assert_eq!(ran.status, 1);
    assert!(ran.error.contains("no permission to read"), "{}", ran.error);
}

// --- where it writes ---

#[test]
fn closed_output_ends_the_program_silently() {
    for words in [
        &["stats", "cuda_api_trace", "--format=csv"][..],
        &["export", "--format=chrome"],
        &["html"],
        &["diff", "--format=json", recording().to_str().unwrap()],
        &["completions", "bash"],
    ] {
        let mut command = gpuprof();
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        if words[0] != "completions" {
            command.arg(recording());
        }
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let mut error = String::new();
        child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        assert_eq!((child.wait().unwrap().code(), error.as_str()), (Some(0), ""), "{words:?}");
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let folder = Folder::new();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let ran = ran_to(full, &["html", recording().to_str().unwrap()]);
    assert!(ran.0 == 1 && ran.1.contains("No space left"), "{ran:?}");
    for (to, part) in
        [(folder.0.join("no/such/folder"), "could not write"), (folder.0.clone(), "is a directory")]
    {
        let message = failure_of(args([&"html", &"-o", &to, &recording()]), 1);
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(folder.names(), [""; 0], "nothing is left behind");
    for words in [&["html"][..], &["export", "--format=nsys"]] {
        let input = folder.file("in.gpuprof", &fs::read(recording()).unwrap());
        let words = words.iter().map(OsStr::new).chain(args([&"-o", &input, &input]));
        assert!(failure_of(words, 1).contains("both input and output"));
        assert!(Profile::load(&input).is_ok());
    }
}

/// As a device is; a program that is wrong here would replace one.
#[test]
fn a_pipe_is_written_to_and_never_replaced() {
    let folder = Folder::new();
    let pipe = folder.0.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let message = failure_of(args([&"export", &"--format=nsys", &"-o", &pipe, &recording()]), 1);
    assert!(message.contains("is no file"), "{message}");
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).unwrap().len()
    });
    result_of(args([&"html", &"-o", &pipe, &recording()]));
    assert_eq!(reader.join().unwrap(), result_of(args([&"html", &recording()])).out.len());
    assert_eq!(folder.names(), ["pipe"]);
    assert!(!fs::metadata(&pipe).unwrap().is_file());
}

/// A shell's redirection of this program's standard output.
fn redirected(to: &str, words: &[&OsStr]) -> Ran {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec \"$0\" \"$@\" {to}"), env!("CARGO_BIN_EXE_gpuprof")]);
    ran(shell.args(words))
}

#[test]
fn an_output_that_is_lost_is_no_success() {
    let file = recording();
    for words in [
        args([&"report", &file]).to_vec(),
        args([&"stats", &"list"]).to_vec(),
        args([&"diagnose", &file]).to_vec(),
        args([&"export", &"--format=counts", &file]).to_vec(),
        args([&"completions", &"bash"]).to_vec(),
        args([&"doctor"]).to_vec(),
        args([&"--version"]).to_vec(),
        args([&"--help"]).to_vec(),
    ] {
        let closed = redirected(">&-", &words);
        assert_eq!(closed.status, 1, "{words:?}");
        assert!(closed.error.contains("standard output is closed"), "{}", closed.error);
        let full = redirected(">/dev/full", &words);
        assert_eq!(full.status, 1, "{words:?}");
        assert!(full.error.contains("No space left"), "{}", full.error);
        assert_eq!(redirected(">/dev/null", &words).status, 0, "{words:?}");
        // As Python's subprocess.DEVNULL is.
        assert_eq!(redirected("1<>/dev/null", &words).status, 0, "{words:?}");
    }
    // A file needs no standard output.
    let folder = Folder::new();
    let to = folder.0.join("to");
    assert_eq!(redirected(">&-", &args([&"report", &"-o", &to, &file])).status, 0);
    assert!(fs::metadata(&to).unwrap().len() > 100);
    let full = ran(gpuprof().args(args([&"report", &"-o", &"/dev/full", &file])));
    assert!(full.status == 1 && full.error.contains("/dev/full"), "{}", full.error);
}

#[test]
fn gate_decides_with_a_closed_output() {
    let file = recording();
    let mut command = gpuprof();
    command.args(args([&"analyze", &"--fail-if-found", &"cuda_api_sync", &file]));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(error.contains("--fail-if-found"), "{error}");
}

#[test]
fn output_keeps_permissions_and_links() {
    let folder = Folder::new();
    let file = recording();
    let path = |name: &str| folder.0.join(name);
    for (number, mode) in [0o600, 0o640, 0o664, 0o755].into_iter().enumerate() {
        for format in ["chrome", "nsys"] {
            let to = folder.file(&format!("{number}-{format}"), b"old");
            fs::set_permissions(&to, fs::Permissions::from_mode(mode)).unwrap();
            result_of(args([&"export", &"--format", &format, &"-o", &to, &file]));
            assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, mode, "{format}");
            assert_ne!(fs::read(&to).unwrap(), b"old");
        }
    }
    // Also a link to a file that is yet to be, by way of another.
    std::os::unix::fs::symlink("second", path("first")).unwrap();
    std::os::unix::fs::symlink("target", path("second")).unwrap();
    for format in ["chrome", "nsys"] {
        result_of(args([&"export", &"--format", &format, &"-o", &path("first"), &file]));
        assert!(path("first").is_symlink() && path("second").is_symlink());
        assert!(!path("target").is_symlink() && fs::read(path("target")).unwrap().len() > 100);
        fs::remove_file(path("target")).unwrap();
    }
    std::os::unix::fs::symlink("circle", path("circle")).unwrap();
    let circle = failure_of(args([&"html", &"-o", &path("circle"), &file]), 1);
    assert!(circle.contains("circle"), "{circle}");
}

#[test]
fn standard_output_by_its_name_is_standard_output() {
    let folder = Folder::new();
    let log = folder.file("log", b"before\n");
    let report = result_of(args([&"report", &recording()])).out;
    for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let file = recording();
        let words = args([&"report", &"-o", &name, &file]);
        assert_eq!(result_of(words).out, report, "{name}");
        let to = format!(">>{}", log.display());
        assert_eq!(redirected(&to, &words).status, 0, "{name}");
    }
    let whole = fs::read(&log).unwrap();
    assert_eq!(whole, [b"before\n", &report[..], &report, &report].concat());
    assert_eq!(folder.names(), ["log"]);
}

#[test]
fn numbers_that_no_gate_can_mean_are_refused() {
    let file = recording();
    for words in [
        ["gate", "--error-rate=1000"],
        ["gate", "--error-rate=50.1"],
        ["gate", "--error-rate=0"],
        ["gate", "--error-rate=-1"],
        ["gate", "--error-rate=nan"],
        ["gate", "--wall-effect=nan"],
        ["gate", "--minimum-effect=-1"],
        ["diagnose", "--verdict-share=1.1"],
        ["diagnose", "--verdict-share=30"],
        ["scorecard", "--target=gpu_busy=95,70"],
        ["scorecard", "--target=small_kernels=50,100"],
    ] {
        let refused = ran(gpuprof().args(words).args(args([&file, &file])));
        assert_eq!((refused.status, refused.out.len()), (2, 0), "{words:?}");
        assert!(refused.error.contains("invalid value"), "{words:?}: {}", refused.error);
    }
}

fn ran_to(out: File, words: &[&str]) -> (i32, String) {
    let mut command = gpuprof();
    command.args(words).stdout(out).stderr(Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_file_that_was_there_is_replaced_when_the_new_one_is_whole() {
    let folder = Folder::new();
    let to = folder.file("out.html", b"old");
    let broken = folder.file("broken.gpuprof", b"GPUPROF\x02");
    failure_of(args([&"html", &"-o", &to, &broken]), 1);
    assert_eq!(fs::read(&to).unwrap(), b"old");
    let link = folder.0.join("link.html");
    std::os::unix::fs::symlink(&to, &link).unwrap();
    result_of(args([&"html", &"-o", &link, &recording()]));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::read(&to).unwrap().len() > 10_000);
}

#[test]
fn invalid_arguments_list_the_valid_ones() {
    let file = recording();
    for format in ["nsys", "json", "counts", "perfetto"] {
        let folder = Folder::new();
        let (format, to) = (format!("--format={format}"), folder.0.join("x"));
        let ranked = [&"export" as &dyn AsRef<OsStr>, &format, &"--rank=0", &"--world-size=2"];
        let rest = [&"-o" as &dyn AsRef<OsStr>, &to, &file];
        let words = ranked.into_iter().chain(rest).map(AsRef::as_ref);
        let message = failure_of(words.collect::<Vec<_>>(), 2);
        assert!(message.contains("for --format kineto") && folder.names().is_empty(), "{message}");
    }
    for (words, part) in [
        (args([&"stats", &"cuda_api_sum"]).to_vec(), "no file is named"),
        (args([&"stats", &"no_report", &file]).to_vec(), "cuda_gpu_kern_sum"),
        (args([&"stats", &"no_report"]).to_vec(), "neither a report nor a file"),
        (args([&"analyze", &"no_rule", &file]).to_vec(), "cuda_memcpy_async"),
        (args([&"export", &"--format=nsys", &file]).to_vec(), "name it with -o"),
        (
            args([&"export", &"--format=chrome", &"--rank=0", &"--world-size=2", &file]).to_vec(),
            "for --format kineto",
        ),
        (
            args([&"export", &"--format=kineto", &"--rank=2", &"--world-size=2", &file]).to_vec(),
            "is not below",
        ),
    ] {
        let message = failure_of(words, 2);
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(ran(gpuprof().arg("nothing")).status, 2);
    assert_eq!(ran(&mut gpuprof()).status, 2);
    assert_eq!(ran(gpuprof().arg("--version")).status, 0);
}

#[test]
fn kernels_are_shown_by_class_and_by_shape() {
    let text = result_of(args([&"kernels", &recording()]));
    for part in
        ["kernel_classes:\n", "\nlaunch_shapes:\n", " gemm ", "weighted by time", "ncu --set full"]
    {
        assert!(text.text().contains(part), "{part}: {}", text.text());
    }
    let json = result_of(args([&"kernels", &"--format", &"json", &recording()])).json();
    let profile = Profile::load(recording()).unwrap();
    let classes = profile.kernel_classes();
    assert_eq!(json["kernel_classes"][0]["Class"], classes.as_slice()[0].key().name());
    assert_eq!(
        json["launch_shapes"].as_array().unwrap().len(),
        profile.launch_shapes().rows().len()
    );
    let csv =
        result_of(args([&"kernels", &"--format", &"csv", &"--within", &"forward", &recording()]));
    assert!(csv.text().starts_with("# kernel_classes\nTime (%),Total Time (ns),"));

    let file = recording();
    let words = args([&"kernels", &"--by-range", &"--format", &"json", &file]);
    assert_eq!(result_of(words).json()["kernel_classes_by_range"][0]["Range"], "batch/backward");

    // A rule of the user's.
    let words = args([&"kernels", &"--format", &"json", &"--class", &"sgd_*=optimizer", &file]);
    let classes = &result_of(words).json()["kernel_classes"];
    let is_optimizer = |row: &&Value| row["Class"] == "optimizer";
    assert_eq!(classes.as_array().unwrap().iter().find(is_optimizer).unwrap()["Instances"], 80);
    let wrong = ran(gpuprof().args(args([&"kernels", &"--class", &"sgd_*=step", &recording()])));
    assert_eq!(wrong.status, 2);
    assert!(
        wrong.error.contains("\"step\"") && wrong.error.contains("optimizer"),
        "{}",
        wrong.error
    );
    let missing = failure_of(args([&"kernels", &"--within", &"nowhere", &recording()]), 1);
    assert!(missing.contains("no range \"nowhere\""), "{missing}");
}

#[test]
fn tensor_cores_are_shown_and_gated() {
    let text = result_of(args([&"tensor-cores", &capture()]));
    assert!(
        text.text()
            .starts_with("operations 103: 21 eligible for tensor cores, 0 using them, 0 unknown\n")
    );
    let json = result_of(args([&"tensor-cores", &"--format", &"json", &capture()])).json();
    // Classes of kernels in 41 ranges.
    assert_eq!(json["tensor_core_ops"].as_array().unwrap().len(), 103);
    let products = |json: &Value| -> Value {
        let ops = json["tensor_core_ops"].as_array().unwrap();
        ops.iter().find(|op| op["Op Type"] == "gemm").unwrap()["TC Status"].clone()
    };
    assert_eq!(products(&json), "eligible, not using");
    assert_eq!(json["tensor_core_kernels"][0]["Using TC"], "no");
    assert!(json["tensor_core_groups"].is_array());
    let file = capture();
    let result = args([&"tensor-cores", &"--using", &"*sgemm*", &"--format", &"json", &file]);
    assert_eq!(products(&result_of(result).json()), "using");
    let gated = ran(gpuprof().args(args([&"tensor-cores", &"--fail-if-unused", &capture()])));
    assert_eq!(gated.status, 3);
    assert!(
        gated.error.contains("21 operations could use tensor cores and do not"),
        "{}",
        gated.error
    );
}

#[test]
fn a_roofline_takes_roofs_and_work_from_its_arguments() {
    let (recording, folder) = (recording(), Folder::new());
    let work = "batch/forward:flops=1.7e8,bytes=3000000,dtype=fp32";
    let words = args([&"roofline", &"--range", &work, &recording]);
    let text = result_of(words);
    let text = text.text();
    assert!(text.contains("roofline: NVIDIA H200") && text.contains("batch/forward"), "{text}");
    assert!(text.contains("66.91 TFLOP/s") && text.contains("compute"), "{text}");

    let peak = "--peak=f32=10";
    let json = args([
        &"roofline",
        &"--format=json",
        &peak,
        &"--bandwidth=1000",
        &"--range",
        &work,
        &recording,
    ]);
    let json = result_of(json).json();
    let point = &json["points"][0];
    assert_eq!(
        (&point["attainable_flop_per_s"], &point["bound"]),
        (&10e12.into(), &"compute".into())
    );
    assert_eq!(json["peaks"]["bandwidth"]["origin"], "given");

    // Roofs of a file; what was measured shows.
    let peaks = profiler_analysis::roofline::Peaks::new("of a file")
        .with_bandwidth(4e12)
        .with_measured_flops(nvtx::Dtype::F32, nvtx::Pipe::Vector, 50e12);
    let file = folder.file("peaks.json", peaks.to_json().as_bytes());
    let kernel = "sgd_update:bytes=2621440";
    for (format, part) in [("text", "of a file"), ("svg", "</svg>"), ("html", "</html>")] {
        let words = args([
            &"roofline",
            &"--format",
            &format,
            &"--peaks",
            &file,
            &"--kernel",
            &kernel,
            &recording,
        ]);
        let text = result_of(words);
        assert!(
            text.text().contains(part) && text.text().contains("sgd_update") == (format != "svg")
        );
    }

    // What was counted, at every level of the memory and beside what was declared.
    let counts = serde_json::json!({
        "chip": "GH100", "passes": 1, "runs": 1, "dropped": 0, "too_deep": 0,
        "metrics": ["gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_bytes.sum",
            "sm__ops_path_tensor_src_tf32_dst_fp32.sum"],
        "ranges": [
            {"name": "batch", "parent": null, "level": 0, "values": [90000, 1, 1, 1, null]},
            {"name": "forward", "parent": 0, "level": 1, "values": [15000, 2e6, 1e6, 6e6, 3.4e8]},
        ],
    });
    let counts = folder.file("counts.json", counts.to_string().as_bytes());
    for (format, part) in [
        ("text", "batch/forward: 170 MFLOP declared, 340 MFLOP counted (2 x)"),
        ("text", "batch/forward: f32 declared, most operations were tf32"),
        ("json", "\"limit\": \"tf32 tensor\""),
        ("svg", ">DRAM 4.8"),
        ("html", "<h2>Declared and counted</h2>"),
    ] {
        let words = args([
            &"roofline",
            &"--format",
            &format,
            &"--counted",
            &counts,
            &"--range",
            &work,
            &recording,
        ]);
        let text = result_of(words);
        assert!(text.text().contains(part), "{part}: {}", text.text());
    }

    let nothing = result_of(args([&"roofline", &recording]));
    assert!(nothing.text().contains("no range declared work"));
    for (words, status, part) in [
        (["--device", "7"], 1, "no device 7"),
        (["--peaks", "/dev/null"], 1, "not the peaks of a device"),
        (["--counted", "/dev/null"], 1, "no counts of ranges"),
    ] {
        let error = failure_of(args([&"roofline", &words[0], &words[1], &recording]), status);
        assert!(error.contains(part), "{error}");
    }
    for (words, part) in [
        (["--range", "forward"], "NAME:WORK"),
        (["--range", "forward:flops=many"], "no number of flops"),
        (["--range", "forward:dtype=f32"], "neither flops nor bytes"),
        (["--kernel", "k:flops=1,speed=2"], "there is no \"speed\""),
        (["--kernel", "k:flops=1,dtype=q8"], "no number type"),
        (["--peak", "f32=-1"], "above 0"),
        (["--peak", "f32/matrix=1"], "no units"),
        (["--bandwidth", "0"], "above 0"),
    ] {
        let ran = ran(gpuprof().args(args([&"roofline", &words[0], &words[1], &recording])));
        assert_eq!((ran.status, ran.out.len()), (2, 0), "{words:?}");
        assert!(ran.error.contains(part), "{words:?}: {}", ran.error);
    }
}

fn sampled(folder: &Folder) -> PathBuf {
    let file = folder.0.join("sampled.gpuprof");
    sampled::recorded().save(&file).unwrap();
    file
}

#[test]
fn tracks_match_the_library() {
    let folder = Folder::new();
    let file = sampled(&folder);
    let profile = Profile::load(&file).unwrap();
    let table = result_of(args([&"tracks", &file]));
    let lines: Vec<&str> = table.text().lines().collect();
    let of = |name: &str| lines.iter().find(|line| line.ends_with(name)).unwrap();
    let cells = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        cells(of("dram__bytes_read.sum")),
        "0 DRAM read 49.50 GB/s 49 GB/s 94 GB/s 0 B/s 99 GB/s 99.0 % 4.721 MiB 100 100.0 us 1 7.000 us \
         dram__bytes_read.sum"
    );
    assert_eq!(
        cells(of("nvml__clock_event_reasons")),
        "0 Clock event reasons 0x4 0x4 0x0 0x4 60.0 % 10 100.0 us 0 0 ns nvml__clock_event_reasons"
    );
    let last = "GPU 2, hardware counters: counters are for administrators: ask yours";
    assert_eq!(lines.last(), Some(&last));
    let csv = result_of_notes(args([&"tracks", &"--format", &"csv", &file]));
    assert_eq!(csv.text(), profile.track_sums().csv());
    let row = csv.text().lines().find(|row| row.ends_with("nvml__clock_sm")).unwrap();
    assert!(
        row.starts_with("0,SM clock,1512000000,1200000000,1980000000,1200000000,1980000000,Hz,"),
        "{row}"
    );
    // A total has a unit of its own, which is not that of the mean.
    let header: Vec<&str> = csv.text().lines().next().unwrap().split(',').collect();
    let place = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let units = [place("Unit"), place("Total Unit")];
    let units_of = |name: &str| {
        let row: Vec<&str> =
            csv.text().lines().find(|row| row.ends_with(name)).unwrap().split(',').collect();
        units.map(|place| row[place].to_owned())
    };
    assert_eq!(units_of("dram__bytes_read.sum"), ["B/s", "B"]);
    assert_eq!(units_of("nvml__clock_sm"), ["Hz", ""]);
    let both =
        result_of_notes(args([&"tracks", &"--by-range", &"--format", &"json", &file])).json();
    assert_eq!(both["tracks"].as_array().unwrap().len(), 8);
    let rows = both["range_tracks"].as_array().unwrap();
    assert_eq!(rows.len(), profile.range_track_sums().len());
    let read = rows.iter().find(|row| row["Range"] == "step" && row["Metric"] == "DRAM read");
    assert_eq!(
        (&read.unwrap()["Unit"], &read.unwrap()["Total Unit"]),
        (&"B/s".into(), &"B".into())
    );

    let error = failed_gate(args([&"tracks", &"--fail-if-incomplete", &file]));
    assert!(error.contains("1 gaps, 7.000 us in total") && error.contains(last), "{error}");
    // What the chip has not is said, and is no loss.
    let h200 = Path::new(FIXTURES).join("recordings/samples-h200.gpuprof");
    let complete = result_of(args([&"tracks", &"--fail-if-incomplete", &h200]));
    let missing = "GPU 0, hardware counters: not to be had: nvlrx__bytes.sum, nvltx__bytes.sum";
    assert!(complete.text().lines().any(|line| line == missing), "{}", complete.text());
    let hostile = Series::new(3, Source::Counters, Duration::from_nanos(1_000), vec![]);
    let hostile = hostile.with_missing(vec!["\x1b[2Jmetric\n".to_owned()]);
    let path = folder.0.join("hostile.gpuprof");
    sampled::recorded().with_series(hostile).save(&path).unwrap();
    let text = result_of(args([&"tracks", &path])).text().to_owned();
    assert_eq!(
        text.lines().last(),
        Some("GPU 3, hardware counters: not to be had: \u{fffd}[2Jmetric ")
    );
    let none = result_of(args([&"tracks", &recording()]));
    assert_eq!(none.text(), "tracks: no sampler ran, or none saw anything\n");
}

#[test]
fn export_has_the_requested_number_of_samples() {
    let folder = Folder::new();
    let file = sampled(&folder);
    let counters = |samples: &str| {
        let words = args([&"export", &"--format", &"chrome", &"--samples", &samples, &file]);
        let trace = result_of(words).json();
        let events = trace["traceEvents"].as_array().unwrap();
        events.iter().filter(|event| event["ph"] == "C" && event["name"] == "DRAM read").count()
    };
    // Two devices, each with a gap and an end.
    assert_eq!((counters("0"), counters("1000"), counters("1")), (2 * 102, 2 * 102, 2 * 2));
    let words = args([&"export", &"--format", &"folded", &"--samples", &"1", &file]);
    assert!(failure_of(words, 2).contains("--samples: only for --format perfetto, kineto, chrome"));
}

/// With success, whatever is said on standard error.
#[track_caller]
fn result_of_notes<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Ran {
    let ran = ran(gpuprof().args(args));
    assert_eq!(ran.status, 0, "{}", ran.error);
    assert!(ran.error.contains("counters are for administrators"), "{}", ran.error);
    ran
}

/// What a gate says that failed after the result was written.
#[track_caller]
fn failed_gate<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> String {
    let ran = ran(gpuprof().args(args));
    assert_eq!(ran.status, 3, "{}", ran.error);
    ran.error
}
