//! The program `gpuprof` as its users call it: what it prints, where, and with which exit status.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fake_cupti::{Fake, Work};
use profiler_analysis::Format;
use profiler_analysis::prelude::*;
use profiler_analysis::reports::{Rule, StatsReport};
use profiler_core::series::{Series, Source};
use profiler_core::{Profile, Profiler};
use serde_json::{Value, json};
use test_support::folder::Folder;
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

    /// Its output has this part.
    #[track_caller]
    fn shows(&self, part: &str) -> &Self {
        assert!(self.text().contains(part), "{part}: {}", self.text());
        self
    }

    /// Its message has this part.
    #[track_caller]
    fn says(&self, part: &str) -> &Self {
        assert!(self.error.contains(part), "{part}: {}", self.error);
        self
    }
}

fn ran(command: &mut Command) -> Ran {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!error.contains("panicked"), "{error}");
    Ran { status: output.status.code().unwrap(), out: output.stdout, error }
}

/// With this exit status.
#[track_caller]
fn ended<A: AsRef<OsStr>>(status: i32, args: impl IntoIterator<Item = A>) -> Ran {
    let ran = ran(gpuprof().args(args));
    assert_eq!(ran.status, status, "{}{}", ran.text(), ran.error);
    ran
}

/// With success and nothing to say beside the result.
#[track_caller]
fn result_of<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Ran {
    let ran = ended(0, args);
    assert_eq!(ran.error, "");
    ran
}

/// One message on standard error, and nothing on standard output.
#[track_caller]
fn failure_of<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>, status: i32) -> Ran {
    let ran = ended(status, args);
    assert_eq!((ran.out.len(), ran.error.lines().count()), (0, 1), "{}", ran.error);
    assert!(ran.error.starts_with("gpuprof: "), "{}", ran.error);
    ran
}

fn args<const N: usize>(words: [&dyn AsRef<OsStr>; N]) -> [&OsStr; N] {
    words.map(AsRef::as_ref)
}

fn names(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(&folder.0).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn written(folder: &Folder, name: &str, content: &[u8]) -> PathBuf {
    let path = folder.file(name);
    fs::write(&path, content).unwrap();
    path
}

/// A recording of a program that launches so often in each step. Its kernels take far longer than
/// the host.
fn program(folder: &Folder, name: &str, launches: u32, extra: Option<&'static str>) -> PathBuf {
    recorded(folder, name, |fake| {
        fake.stop_clock();
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
    let path = folder.file(name);
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
    let swapped = written(&folder, "a.sqlite", &fs::read(recording()).unwrap());
    let other = written(&folder, "b.gpuprof", &fs::read(capture()).unwrap());
    assert!(result_of(args([&"report", &swapped])).text().contains("batch"));
    assert!(result_of(args([&"report", &other])).text().contains("Batch 0"));
}

#[test]
fn stats_are_nsys_s_own_files_byte_for_byte() {
    let mut compared = 0;
    for &report in StatsReport::ALL {
        let theirs = Path::new(FIXTURES).join(format!("captures/train-h200/{report}.csv"));
        let Ok(theirs) = fs::read_to_string(theirs) else { continue };
        let ours = ended(0, args([&"stats", &report.name(), &"--format=csv", &capture()]));
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
    failure_of(args([&"stats", &"cuda_api_sum:short", &recording()]), 2)
        .says("base, mangled, nvtx-name");
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
    failure_of(args([&"analyze", &"all", &"--within=nothing", &recording()]), 1)
        .says("has no range \"nothing\"");
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
        let to = folder.file(name);
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
    assert_eq!(names(&folder).len(), formats.len(), "nothing else is left: {:?}", names(&folder));
}

/// A killed run cannot remove its partial file: the next one that writes to the folder does, and leaves those of living ones.
#[test]
fn files_of_a_killed_run_are_removed_by_the_next() {
    let folder = Folder::new();
    let to = folder.file("x.json");
    let is_partial = |name: &String| name.ends_with(".partial");
    let killed = (0..200).any(|_| {
        let mut command = gpuprof();
        command.args(args([&"export", &"--format=chrome", &"-o", &to, &recording()]));
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        while child.try_wait().unwrap().is_none() {
            if names(&folder).iter().any(is_partial) {
                child.kill().unwrap();
                child.wait().unwrap();
                break;
            }
            std::thread::yield_now();
        }
        names(&folder).iter().any(is_partial)
    });
    assert!(killed, "no run was killed while it wrote");
    let living = folder.file(".gpuprof.1.0.partial");
    let lock = File::create_new(&living).unwrap();
    lock.lock().unwrap();
    result_of(args([&"export", &"--format=nsys", &"-o", &folder.file("y"), &recording()]));
    result_of(args([&"export", &"--format=chrome", &"-o", &to, &recording()]));
    let mut names = names(&folder);
    names.sort_unstable();
    assert_eq!(names, [".gpuprof.1.0.partial", "x.json", "y"]);
    assert!(serde_json::from_slice::<Value>(&fs::read(to).unwrap()).is_ok());
}

#[test]
fn a_recording_made_a_capture_is_the_same() {
    let folder = Folder::new();
    let to = folder.file("x.sqlite");
    result_of(args([&"export", &"--format=nsys", &"-o", &to, &recording()]));
    result_of(args([&"diff", &"--fail-above=0", &recording(), &to]))
        .shows("Every count is the same in both.");
    assert_eq!(names(&folder), ["x.sqlite"]);
}

#[test]
fn completions_name_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        result_of(["completions", shell]).shows("analyze").shows("fail-above");
    }
}

#[test]
fn doctor_matches_the_library() {
    let ran = result_of(["doctor"]);
    ran.shows(&cupti::support().to_string());
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
        table.shows(line);
    }
    let csv = result_of(args([&"diff", &"--format=csv", &a, &b]));
    csv.shows("\nkernel,both,,,gemm,128,256,Kernels,8,12,4,50.0,,");
    let by_range = result_of(args([&"diff", &"--by-range", &"--format=csv", &a, &b]));
    by_range.shows("\nkernel,new,,step/new,bias,128,256,Kernels,0,4,4,,,");
    by_range.shows("\nkernel,both,,step,gemm,128,256,Kernels,8,12,4,50.0,,");
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
        ended(2, args([&"diff", &limit, &small, &large]));
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
    let baseline = folder.file("baseline.json");
    for [slow, fast] in pairs() {
        let name = slow.display().to_string();
        for of in ["--of=wall", "--of=all"] {
            ended(3, args([&"diff", &of, &"--fail-above=10", &fast, &slow]))
                .says("wall time slower");
            // A fix never fails, whatever it costs on the GPU.
            ended(0, args([&"diff", &of, &"--fail-above=0", &slow, &fast]));
        }
        let judged = |before: &Path, after: &Path| {
            result_of(args([&"gate", &"--update", &baseline, &before]));
            ran(gpuprof().args(args([&"gate", &baseline, &after])))
        };
        let relapse = judged(&fast, &slow);
        assert_eq!(relapse.status, 3, "{name}: {}", relapse.text());
        relapse.says("wall time slower");
        let fix = judged(&slow, &fast);
        assert_eq!(fix.status, 0, "{name}: {}", fix.text());
        fix.shows("wall time faster");
    }
    // The cured loader's twin has as much GPU time: it is the wall time alone that tells.
    let [ill, cured] = ["slow-loader-ill", "slow-loader-cured"].map(pattern);
    ended(0, args([&"diff", &"--of=counts", &"--fail-above=0", &cured, &ill]));
}

/// What there is to compare, and what each command says and returns: the message of `diff`, its status with `--fail-above`,
/// and the message and status of `gate`.
#[test]
fn incomparable_profiles_have_a_reason_and_a_status() {
    let folder = Folder::new();
    let steps = |name: &str, range: &'static str, kernel: &'static std::ffi::CStr, count: usize| {
        recorded(&folder, name, |fake| {
            fake.stop_clock();
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
            written(&folder, "aborted.gpuprof", &whole[..whole.len() - 30]),
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
    let baseline = folder.file("baseline.json");
    result_of(args([&"gate", &"--update", &baseline, &good]));
    for (file, (of_diff, diff_status), (of_gate, gate_status)) in cases {
        ended(0, args([&"diff", &good, &file])).shows(of_diff);
        ended(diff_status, args([&"diff", &"--fail-above=1000", &good, &file]));
        ended(gate_status, args([&"gate", &baseline, &file])).says(of_gate);
    }
    // The reasons that are no reason for who says so.
    let half = folder.file("half.gpuprof");
    let any = ended(0, args([&"diff", &"--any-work", &"--fail-above=1", &good, &half]));
    any.shows("wall time faster");
    ended(0, args([&"gate", &"--any-work", &baseline, &half]));
    // Counts are exact on any device.
    let other = pattern("slow-loader-ill");
    ended(3, args([&"diff", &"--of=counts", &"--fail-above=0", &good, &other])).says("kernels of");
    // One run a side decides no small change, and says what would.
    let again = steps("again.gpuprof", "step", c"gemm", 10);
    let one = result_of(args([&"diff", &good, &again]));
    one.shows("wall time undecided");
    let words =
        "`gpuprof diff --before B1.gpuprof ... B5.gpuprof --after A1.gpuprof ... A5.gpuprof`";
    one.shows(words);
    // An older baseline.
    let text = fs::read_to_string(&baseline).unwrap().replace("gpu-baseline 2", "gpu-baseline 1");
    fs::write(&baseline, text).unwrap();
    failure_of(args([&"gate", &baseline, &good]), 1)
        .says("of an older version")
        .says("gate --update");
    result_of(args([&"gate", &"--update", &baseline, &good]));
}

/// Different work of one program, with kernels in common: neither direction is faster.
#[test]
fn training_and_decoding_are_not_compared() {
    let folder = Folder::new();
    let recordings = Path::new(FIXTURES).join("recordings/pytorch-h100");
    let [train, decode] =
        ["train", "decode"].map(|name| recordings.join(format!("{name}.gpuprof")));
    let baseline = folder.file("baseline.json");
    for (before, after, why) in [
        (&train, &decode, "step was entered 20 times before and 0 times after"),
        (&decode, &train, "decode was entered 50 times before and 0 times after"),
    ] {
        result_of(args([&"diff", before, after])).shows(&format!("wall time undecided: {why}"));
        ended(3, args([&"diff", &"--fail-above=1000", before, after])).says(why);
        result_of(args([&"gate", &"--update", &baseline, before]));
        let judged = ended(3, args([&"gate", &baseline, after]));
        judged.says(why);
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
            fake.stop_clock();
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
        grouped.shows(pattern);
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
    let baseline = folder.file("baseline.json");
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
            fake.stop_clock();
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
    diff(&[], 8).shows("wall time undecided");
    let paired = diff(&["--paired"], 8);
    paired.shows("wall time slower");
    paired.shows("8 pairs of runs");
    let few = diff(&["--paired"], 7);
    let words = "`gpuprof diff --paired --before B1.gpuprof ... B8.gpuprof";
    few.shows(words);
    ended(2, args([&"diff", &"--paired", &sides[0][0], &sides[1][0]]));
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
        ended(2, wrong);
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
        markdown.shows(row);
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
    let baseline = folder.file("baseline.json");
    let judged = |options: &[&str], runs: &[PathBuf]| {
        ran(gpuprof().arg("gate").args(options).arg(&baseline).args(runs))
    };
    let missing = judged(&[], &runs);
    assert_eq!(missing.status, 1);
    missing.says("there is no baseline");
    let written = judged(&["--update"], &runs);
    assert_eq!((written.status, written.error.as_str()), (0, ""));
    written.shows("baseline written from 8 runs");
    let passed = judged(&[], &runs);
    assert_eq!((passed.status, passed.error.as_str()), (0, ""));
    passed.shows("passed after 8 runs");
    let failed = judged(&["--format=json"], &[extra]);
    assert_eq!(failed.status, 3);
    failed.says("wall time slower");
    let new = &failed.json()["counts"][0];
    assert_eq!((&new["range"], &new["what"]), (&"step/new".into(), &"bias <128, 256>".into()));
    assert_eq!(new["outcome"], "failed");
    // Too few to say anything of times.
    let undecided = judged(&["--format=markdown"], &runs[..1]);
    assert_eq!(undecided.status, 3, "{}", undecided.text());
    undecided
        .says("cannot be decided on so few runs, which counts as a failure; files: 1; record ");
    undecided.shows("failed, undecided");
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
    let whole = program(&folder, "whole.gpuprof", 2, None);
    // CUPTI dropped a record.
    let path = recorded(&folder, "open.gpuprof", |fake| {
        let _step = nvtx::range("step");
        fake.launch(Work::kernel(c"gemm"));
        fake.drop_records(1);
    });
    let result =
        |words: &[&dyn AsRef<OsStr>]| ran(gpuprof().args(words.iter().map(|word| word.as_ref())));
    let report = result(&[&"report", &path]);
    assert_eq!((report.status, report.error.as_str()), (0, ""));
    report.shows("INCOMPLETE");
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
    assert_eq!(stats.status, 0, "{}", stats.error);
    stats.says("INCOMPLETE");
    let gated = result(&[&"diff", &"--fail-above=1000000", &whole, &path]);
    assert_eq!(gated.status, 3, "{}", gated.error);
    gated.says("cannot be compared");
    assert_eq!(result(&[&"diff", &whole, &path]).status, 0);
}

#[test]
fn findings_can_be_a_gate() {
    let rule = |name: &str| {
        ran(gpuprof().args(args([&"analyze", &"--fail-if-found", &name, &recording()])))
    };
    let found = rule("cuda_api_sync");
    assert_eq!(found.status, 3);
    found.says("found 20 of cuda_api_sync");
    found.shows("advice: ");
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
    text.shows("34 asynchronous copies of pageable memory");
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
    result_of(args([&"diagnose", &"--loading=batch*", &"--range=Batch 5", &file]))
        .shows("idle for data");

    let gate = |factor: &str| {
        ran(gpuprof().args(args([&"diagnose", &"--fail-above", &factor, &recording()])))
    };
    let failed = gate("1.2");
    assert_eq!(failed.status, 3);
    failed.says("is the largest estimate for one change in");
    assert!(!failed.out.is_empty());
    assert_eq!(gate("3").status, 0);
    // No single cause is something that is known.
    let file = Path::new(FIXTURES).join("recordings/frameworks-h100/burn.gpuprof");
    let strict = args([&"diagnose", &"--verdict-share=0.4", &"--fail-above=3", &file]);
    assert!(result_of(strict).text().contains("no single cause"));
    let missing = failure_of(args([&"diagnose", &"--range=nothing", &recording()]), 2);
    missing.says("has no range nothing");
    failure_of(args([&"diagnose", &"missing.gpuprof"]), 1);
}

/// What cannot be judged is no pass, of a whole run, of a range and of its steps.
#[test]
fn unknown_diagnosis_fails_the_gate() {
    let folder = Folder::new();
    let damaged = recorded(&folder, "damaged.gpuprof", |fake| {
        fake.stop_clock();
        fake.drop_records(3);
        let _batch = nvtx::range("batch");
        (0..100).for_each(|_| _ = fake.launch(Work::kernel(c"gemm").taking_ns(100_000)));
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
    let (status, error) = gate(&damaged, &["--incomplete"]);
    assert_eq!(status, 0, "{error}");

    let empty = recorded(&folder, "empty.gpuprof", |_| ());
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
    text.shows("changes, by the saving of each alone of the median step of ");
    let json = result_of(args([&"critical-path", &"--format=json", &recording()])).json();
    assert!(json["path"]["length_ns"].as_u64() > Some(0));
    assert!(json["replay"]["median"].as_f64() < Some(0.2), "{json}");
    let what_if = ["critical-path", "--what-if=kernel:*=2", "--what-if=copies-ahead", "--json"];
    let json = result_of(args([&what_if[0], &what_if[1], &what_if[2], &what_if[3], &train]));
    let predictions = json.json()["predictions"].as_array().unwrap().len();
    assert_eq!(predictions, 2);
    let range = result_of(args([&"critical-path", &"--range=batch/backward", &recording()]));
    range.shows("instances of batch/backward");
    failure_of(args([&"critical-path", &"--range=nowhere", &recording()]), 2);
    for (change, expected) in [
        ("kernel:foo=2", "has no kernel foo; `gpuprof top` shows them"),
        (
            "one-wait:batch/bakward",
            "has no range batch/bakward; `gpuprof report` shows them; did you mean batch/backward?",
        ),
    ] {
        let what_if = format!("--what-if={change}");
        failure_of(args([&"critical-path", &what_if, &recording()]), 2)
            .says("gpuprof: --what-if: ")
            .says(expected);
    }
    let kernel = result_of(args([&"top", &"--json", &recording()])).json()[0]["kernels"]["rows"][0]
        ["name"]
        .clone();
    let name = kernel.as_str().unwrap();
    let what_if = format!("--what-if=kernel:{}=2", &name[..name.len() - 1]);
    failure_of(args([&"critical-path", &what_if, &recording()]), 2)
        .says(&format!("did you mean {name}"));
}

#[test]
fn gaps_have_causes_and_note_missing_wait_samples() {
    let text = result_of(args([&"gaps", &recording()]));
    assert!(text.text().starts_with("gaps of 20us and more: "), "{}", text.text());
    text.shows("not sampled; `gpuprof run --host-samples`");
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
    result_of(args([&"gaps", &"--longest=3", &recording()]))
        .shows(&format!(" before {after}, ended by not known"));
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
    failed.says("GPU busy is 49.0 % (bad, >= 90 % is good)");
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
    let empty = recorded(&folder, "empty.gpuprof", |_| ());
    ended(3, args([&"scorecard", &"--fail-on=bad", &empty]))
        .says("cannot be judged: no GPU operation");
    for wrong in ["gpu=1,0", "gpu_busy=1", "gpu_busy=0.5,0.9", "launch=0.5,0.1", "copy=x,1"] {
        ended(2, args([&"scorecard", &"--target", &wrong, &recording()]));
    }
    failure_of(args([&"scorecard", &"missing.gpuprof"]), 1);
}

// --- traces of torch.profiler ---

#[test]
fn traces_of_torch_are_reported_compared_and_converted() {
    let folder = Folder::new();
    let trace = Path::new(FIXTURES).join("captures/torch.json");
    let profile = profiler_analysis::kineto::read(&trace).unwrap();
    result_of(args([&"report", &trace]))
        .shows("torch.profiler (Kineto), rank 1 of 2")
        .shows("aten::_foreach_add_")
        .shows("health: complete");
    let top = result_of(args([&"top", &"--of", &"kernels", &"--json", &trace]));
    top.shows("cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x64_64x4_tn_align8");
    result_of(args([&"diagnose", &trace])).shows("ProfilerStep");
    let kernels = result_of(args([&"stats", &"cuda_gpu_kern_sum", &"--format", &"csv", &trace]));
    assert_eq!(kernels.text(), profile.stats(StatsReport::CudaGpuKernSum).csv());
    // One kernel of each step takes longer.
    let text = fs::read_to_string(&trace).unwrap();
    let slower = written(&folder, "slower.json", text.replace("240.5", "2400.5").as_bytes());
    result_of(args([&"diff", &"--json", &trace, &slower])).shows("aten::mm");
    for format in ["run.pftrace", "run.html", "run.sqlite", "run.kineto.json"] {
        let to = folder.file(format);
        result_of(args([&"convert", &trace, &to]));
        assert!(fs::metadata(&to).unwrap().len() > 0, "{format}");
    }
    // What was written is read again.
    let again = folder.file("run.kineto.json");
    let totals = profiler_analysis::kineto::read(&again).unwrap().totals().kernel_time();
    assert_eq!(totals, profile.totals().kernel_time());
    let mut piped = gpuprof();
    piped.args(["report", "-"]).stdin(File::open(&trace).unwrap());
    let output = piped.output().unwrap();
    assert_eq!(output.stdout, result_of(args([&"report", &trace])).out);
    failure_of(args([&"--max-bytes", &"1000", &"report", &trace]), 1).says("more than 1000 bytes");
}

// --- hostile files ---

#[test]
fn file_that_is_no_profile_is_identified() {
    let folder = Folder::new();
    let message = |path: &Path| failure_of(args([&"report", &path]), 1);
    let said = |path: &Path, part: &str| {
        let message = message(path);
        message.says(part).says(path.file_name().unwrap().to_str().unwrap());
    };
    said(&written(&folder, "empty.gpuprof", b""), "is empty");
    said(&written(&folder, "text", b"traceEvents: []"), "is not a known profile format");
    said(&written(&folder, "a.json", b"{\"traceEvents\": []}"), "no category of torch.profiler");
    said(&written(&folder, "cut.json", b"{\"traceEvents\": [{\"ph\""), "the file is cut off");
    said(&written(&folder, "a.gz", b"\x1f\x8b\x08rest"), "is damaged or cut off");
    said(&written(&folder, "a.zst", b"\x28\xb5\x2f\xfdrest"), "unpack it first");
    said(&written(&folder, "empty.nsys-rep", b""), "is empty");
    said(&Folder::new().0, "is a folder without recordings");
    said(&folder.file("missing"), "there is no file");
    said(Path::new("/dev/zero"), "is not a known profile format");
    let long = folder.file(&"x".repeat(5000));
    let message = message(&long);
    assert!(message.error.len() < 2500, "{}", message.error.len());
    let odd = written(&folder, "two\nlines\x1b[31m", b"?");
    failure_of(args([&"report", &odd]), 1).says("is not a known profile format");
    let bytes = OsStr::new("no-\u{fffd}");
    failure_of(args([&"report", &bytes]), 1).says("there is no file");
}

/// A script in place of nsys, which exports a real capture.
#[test]
fn reports_of_nsight_systems_are_exported_by_its_own_program() {
    let folder = Folder::new();
    let report = written(&folder, "run.nsys-rep", b"whatever it is");
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/captures/one-h200.sqlite");
    let script = "#!/bin/sh\n[ \"$1 $2 $3 $4 $5 $6\" = 'export --type sqlite --force-overwrite true -o' ] || exit 9\n\
                  [ \"$(cat \"$8\")\" = 'whatever it is' ] || { echo 'it is damaged' >&2; exit 3; }\n\
                  echo 'Processing'\n";
    let nsys = written(&folder, "nsys", format!("{script}cp '{capture}' \"$7\"\n").as_bytes());
    fs::set_permissions(&nsys, fs::Permissions::from_mode(0o755)).unwrap();
    let temporary = folder.file("temporary");
    fs::create_dir(&temporary).unwrap();
    let with = |words: &[&dyn AsRef<OsStr>]| {
        let mut command = gpuprof();
        command.args(words.iter().map(|word| word.as_ref()));
        ran(command.env("NSYS", &nsys).env("TMPDIR", &temporary))
    };
    let expected = result_of(args([&"top", &"--json", &capture])).json();
    let read = with(&[&"top", &"--json", &report]);
    assert_eq!((read.status, read.error.as_str()), (0, ""));
    assert_eq!(read.json()[0]["kernels"], expected[0]["kernels"]);
    assert!(expected[0]["kernels"]["rows"].as_array().is_some_and(|rows| !rows.is_empty()));
    let damaged = with(&[&"report", &written(&folder, "damaged.nsys-rep", b"other")]);
    assert_eq!(damaged.says("it is damaged").status, 1);
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "nothing is left");
    let without = ran(gpuprof().arg(&report).env("PATH", folder.file("no")).env_remove("NSYS"));
    assert_eq!(without.says("nsys export --type sqlite -o").says("set NSYS").status, 1);
    let wrong = ran(gpuprof().arg(&report).env("NSYS", folder.file("no")));
    assert_eq!(wrong.says("NSYS is").says("no file").status, 1);
}

#[test]
fn random_bytes_are_no_profile() {
    let folder = Folder::new();
    let mut random = fastrand::Rng::with_seed(7);
    for head in [&b""[..], b"GPUPROF\x02", b"GPUPROF\x01INFO", b"SQLite format 3\0"] {
        for length in [1, 100, 5000, 70_000] {
            let mut bytes = head.to_vec();
            bytes.extend(std::iter::repeat_with(|| random.u8(..)).take(length));
            let path = written(&folder, "random", &bytes);
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
        let path = written(&folder, "cut.gpuprof", &whole[..length]);
        let message = failure_of(args([&"stats", &"nvtx_sum", &path]), 1);
        message.says("cut.gpuprof: not a readable recording");
        let message = &message.error;
        let is_reported = message.contains("cut short") || message.contains("too few");
        assert!(is_reported, "{length}: {message}");
    }
}

#[test]
fn a_truncated_recording_is_reported_as_incomplete() {
    let folder = Folder::new();
    let whole = Profile::load(recording()).unwrap().recording().unwrap().to_bytes();
    let path = written(&folder, "cut.gpuprof", &whole[..whole.len() / 2]);
    let report = result_of(args([&"report", &path]));
    report.shows("INCOMPLETE");
    report.shows("1 truncated recording");
    ended(3, args([&"report", &"--fail-if-incomplete", &path]));
    let empty = written(&folder, "empty.gpuprof", &whole[..30]);
    failure_of(args([&"report", &empty]), 1).says("cut short before its first frame");
}

#[test]
fn a_file_or_pipe_beyond_the_limit_is_refused_early() {
    let folder = Folder::new();
    let new = Profile::load(recording()).unwrap().recording().unwrap().to_bytes();
    let old = fs::read(old_recording()).unwrap();
    for whole in [&new, &old] {
        let sparse = written(&folder, "sparse.gpuprof", whole);
        File::options().write(true).open(&sparse).unwrap().set_len(1 << 40).unwrap();
        failure_of(args([&"report", &sparse]), 1).says("1099511627776").says("--max-bytes");
        failure_of(args([&"report", &"--max-bytes=2000000000000", &sparse]), 1)
            .says("bytes follow its last frame");
    }
    let path = written(&folder, "large.gpuprof", &new);
    failure_of(args([&"report", &"--max-bytes=1000", &path]), 1).says("the limit is 1000");

    for option in ["--peaks", "--counted"] {
        failure_of(args([&"roofline", &option, &"/dev/zero", &path]), 1)
            .says("it has more than 64 MiB");
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
    failure_of(args([&"report", &written(&folder, "newer.gpuprof", &newer)]), 1)
        .says("format 99")
        .says("use a newer");
}

#[test]
fn truncated_capture_is_identified() {
    let folder = Folder::new();
    let whole = fs::read(capture()).unwrap();
    for length in [8, 16, 100, 4096, whole.len() / 2] {
        let path = written(&folder, "cut.sqlite", &whole[..length]);
        let message = failure_of(args([&"report", &path]), 1);
        message.says("cut.sqlite");
        message.says("export");
    }
}

#[test]
fn unrelated_database_is_identified() {
    let folder = Folder::new();
    let path = folder.file("other.sqlite");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("CREATE TABLE people (name TEXT)").unwrap();
    drop(connection);
    failure_of(args([&"report", &path]), 1).says("without the tables of Nsight Systems");
}

#[test]
fn start_end_ranges_of_a_capture_are_in_top_report_and_diagnose() {
    let folder = Folder::new();
    let path = written(&folder, "ranges.sqlite", &fs::read(capture()).unwrap());
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
        shown.shows(&label);
    }
    let report = result_of(args([&"report", &path]));
    report.shows("start/end range");
    let lines = result_of(args([&"report", &"--format=jsonl", &path]));
    let last: Value = serde_json::from_str(lines.text().lines().last().unwrap()).unwrap();
    let ranges = last["process_ranges"].as_array().unwrap();
    let own = ranges.iter().find(|range| range["name"] == name).unwrap();
    assert_eq!(own["inclusive"]["kernels"], range.kernels());
    assert_eq!(last["inclusive"]["kernels"], kernels);
    failure_of(args([&"diagnose", &"--range", &"Forward pas", &path]), 2)
        .says("did you mean Forward pass?");
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
    ended(2, args([&"report", &"--communication", &"(", &capture()]));
}

#[test]
fn a_capture_of_a_newer_schema_is_noted() {
    let folder = Folder::new();
    let path = written(&folder, "newer.sqlite", &fs::read(capture()).unwrap());
    let connection = rusqlite::Connection::open(&path).unwrap();
    let changed = connection
        .execute(
            "UPDATE META_DATA_EXPORT SET value = '9' WHERE name = 'EXPORT_SCHEMA_VERSION_MAJOR'",
            (),
        )
        .unwrap();
    assert_eq!(changed, 1);
    drop(connection);
    ended(0, args([&"stats", &"nvtx_sum", &path])).says("newer.sqlite: 1 warnings");
}

#[test]
fn file_without_read_permission_is_identified() {
    // Where other users have access.
    let folder = std::env::temp_dir().join(format!("gpuprof-{}", std::process::id()));
    let folder = Folder(folder);
    fs::create_dir(&folder.0).unwrap();
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
    let path = written(&folder, "secret.gpuprof", &fs::read(recording()).unwrap());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = gpuprof();
    if File::open(&path).is_ok() {
        // The user who may read everything: go on as one who may not, with a program that this one can reach.
        let program = folder.file("gpuprof");
        // Not by this process: what it has open to write, a process that another test starts has too, and then nobody may
        // run it.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_gpuprof")).arg(&program).status();
        assert!(copied.unwrap().success());
        command = Command::new(program);
        command.uid(65534).gid(65534);
    }
    let ran = ran(command.arg("report").arg(&path));
    assert_eq!(ran.status, 1);
    ran.says("no permission to read");
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
        [(folder.file("no/such/folder"), "could not write"), (folder.0.clone(), "is a directory")]
    {
        failure_of(args([&"html", &"-o", &to, &recording()]), 1).says(part);
    }
    assert_eq!(names(&folder), [""; 0], "nothing is left behind");
    for words in [&["html"][..], &["export", "--format=nsys"]] {
        let input = written(&folder, "in.gpuprof", &fs::read(recording()).unwrap());
        let words = words.iter().map(OsStr::new).chain(args([&"-o", &input, &input]));
        failure_of(words, 1).says("both input and output");
        assert!(Profile::load(&input).is_ok());
    }
}

/// As a device is; a program that is wrong here would replace one.
#[test]
fn a_pipe_is_written_to_and_never_replaced() {
    let folder = Folder::new();
    let pipe = folder.file("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    failure_of(args([&"export", &"--format=nsys", &"-o", &pipe, &recording()]), 1)
        .says("is no file");
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).unwrap().len()
    });
    result_of(args([&"html", &"-o", &pipe, &recording()]));
    assert_eq!(reader.join().unwrap(), result_of(args([&"html", &recording()])).out.len());
    assert_eq!(names(&folder), ["pipe"]);
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
        closed.says("standard output is closed");
        let full = redirected(">/dev/full", &words);
        assert_eq!(full.status, 1, "{words:?}");
        full.says("No space left");
        assert_eq!(redirected(">/dev/null", &words).status, 0, "{words:?}");
        // As Python's subprocess.DEVNULL is.
        assert_eq!(redirected("1<>/dev/null", &words).status, 0, "{words:?}");
    }
    // A file needs no standard output.
    let folder = Folder::new();
    let to = folder.file("to");
    assert_eq!(redirected(">&-", &args([&"report", &"-o", &to, &file])).status, 0);
    assert!(fs::metadata(&to).unwrap().len() > 100);
    ended(1, args([&"report", &"-o", &"/dev/full", &file])).says("/dev/full");
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
    let path = |name: &str| folder.file(name);
    for (number, mode) in [0o600, 0o640, 0o664, 0o755].into_iter().enumerate() {
        for format in ["chrome", "nsys"] {
            let to = written(&folder, &format!("{number}-{format}"), b"old");
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
    failure_of(args([&"html", &"-o", &path("circle"), &file]), 1).says("circle");
}

#[test]
fn standard_output_by_its_name_is_standard_output() {
    let folder = Folder::new();
    let log = written(&folder, "log", b"before\n");
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
    assert_eq!(names(&folder), ["log"]);
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
        refused.says("invalid value");
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
    let to = written(&folder, "out.html", b"old");
    let broken = written(&folder, "broken.gpuprof", b"GPUPROF\x02");
    failure_of(args([&"html", &"-o", &to, &broken]), 1);
    assert_eq!(fs::read(&to).unwrap(), b"old");
    let link = folder.file("link.html");
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
        let (format, to) = (format!("--format={format}"), folder.file("x"));
        let ranked = [&"export" as &dyn AsRef<OsStr>, &format, &"--rank=0", &"--world-size=2"];
        let rest = [&"-o" as &dyn AsRef<OsStr>, &to, &file];
        let words = ranked.into_iter().chain(rest).map(AsRef::as_ref);
        let message = failure_of(words.collect::<Vec<_>>(), 2);
        message.says("for --format kineto");
        assert!(names(&folder).is_empty());
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
        failure_of(words, 2).says(part);
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
        text.shows(part);
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
    ended(2, args([&"kernels", &"--class", &"sgd_*=step", &recording()]))
        .says("\"step\"")
        .says("optimizer");
    failure_of(args([&"kernels", &"--within", &"nowhere", &recording()]), 1)
        .says("no range \"nowhere\"");
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
    ended(3, args([&"tensor-cores", &"--fail-if-unused", &capture()]))
        .says("21 operations could use tensor cores and do not");
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

    // Roofs of a file.
    let peaks = profiler_analysis::roofline::Peaks::new("of a file")
        .with_bandwidth(4e12)
        .with_flops(nvtx::Dtype::F32, nvtx::Pipe::Vector, 50e12);
    let file = written(&folder, "peaks.json", peaks.to_json().as_bytes());
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
    let counts = written(&folder, "counts.json", counts.to_string().as_bytes());
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
        result_of(words).shows(part);
    }

    result_of(args([&"roofline", &recording])).shows("no range declared work");
    for (words, status, part) in [
        (["--device", "7"], 1, "no device 7"),
        (["--peaks", "/dev/null"], 1, "not the peaks of a device"),
        (["--counted", "/dev/null"], 1, "no counts of ranges"),
    ] {
        failure_of(args([&"roofline", &words[0], &words[1], &recording]), status).says(part);
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
        ran.says(part);
    }
}

fn sampled(folder: &Folder) -> PathBuf {
    let file = folder.file("sampled.gpuprof");
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

    ended(3, args([&"tracks", &"--fail-if-incomplete", &file]))
        .says("1 gaps, 7.000 us in total")
        .says(last);
    // What the chip has not is said, and is no loss.
    let h200 = Path::new(FIXTURES).join("recordings/samples-h200.gpuprof");
    let complete = result_of(args([&"tracks", &"--fail-if-incomplete", &h200]));
    let missing = "GPU 0, hardware counters: not to be had: nvlrx__bytes.sum, nvltx__bytes.sum";
    assert!(complete.text().lines().any(|line| line == missing), "{}", complete.text());
    let hostile = Series::new(3, Source::Counters, Duration::from_nanos(1_000), vec![]);
    let hostile = hostile.with_missing(vec!["\x1b[2Jmetric\n".to_owned()]);
    let path = folder.file("hostile.gpuprof");
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
    failure_of(words, 2).says("--samples: only for --format perfetto, kineto, chrome");
}

/// With success, whatever is said on standard error.
#[track_caller]
fn result_of_notes<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Ran {
    let ran = ended(0, args);
    ran.says("counters are for administrators");
    ran
}

/// The planted kernels, sampled on an H200.
fn lines() -> PathBuf {
    Path::new(FIXTURES).join("recordings/lines/planted-h200.gpuprof")
}

#[test]
fn lines_have_stalls_and_the_source_beside_them() {
    let file = lines();
    let folder = Path::new(FIXTURES).join("recordings/lines");
    let text = result_of(args([&"lines", &"--kernel", &"^gather$", &"--source", &folder, &file]));
    text.shows("instruction samples; ").shows(" of kernels that match ^gather$; 100.0 % of them");
    text.shows("planted.cu:4  gather  ████████████████████");
    text.shows("99.9 %  waits for global or local memory 99.9 %");
    text.shows(" 99.9 % ████████████████████     4          at = next[at]; // gather\n");
    let json = result_of(args([&"lines", &"--json", &file])).json();
    assert_eq!(json["account"]["is_complete"], true);
    assert_eq!(json["exact_share"], 1.0);
    let kernels: Vec<&str> = json["kernels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["kernel"].as_str().unwrap())
        .collect();
    assert_eq!(kernels.len(), 8, "{kernels:?}");
    let recorded = json["account"]["recorded"].as_f64().unwrap();
    for rows in ["kernels", "lines"] {
        let samples =
            json[rows].as_array().unwrap().iter().map(|row| row["samples"].as_f64().unwrap());
        assert_eq!(samples.sum::<f64>(), recorded, "{rows}");
    }
    // The kernel ran in its range alone.
    let in_range = result_of(args([&"lines", &"--range", &"barrier", &"--json", &file])).json();
    let of = |json: &Value, name: &str| {
        let rows = json["kernels"].as_array().unwrap();
        rows.iter().find(|row| row["kernel"] == name).unwrap()["samples"].as_f64().unwrap()
    };
    assert_eq!(
        (of(&in_range, "barrier"), in_range["exact_share"].as_f64()),
        (of(&json, "barrier"), Some(1.0))
    );
    let none = failure_of(args([&"lines", &recording()]), 1);
    none.says("has no instruction samples: record it with `gpuprof run --lines`");
    let folder = Folder::new();
    let absent = result_of(args([&"lines", &"--source", &folder.0, &file]));
    absent.shows("\nplanted.cu: not found in ");
    let missing = folder.file("missing");
    failure_of(args([&"lines", &"--source", &missing, &file]), 1).says("could not read ");
}

#[test]
fn sampled_lines_are_in_stacks_findings_and_explanations() {
    let file = lines();
    let folded = result_of(args([&"export", &"--format", &"folded", &"--lines", &file]));
    let total = |line: &str| {
        let rows = folded.text().lines().filter(|row| row.starts_with(line));
        rows.map(|row| row.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum::<u64>()
    };
    let json = result_of(args([&"lines", &"--json", &file])).json();
    assert_eq!(Some(total("")), json["account"]["recorded"].as_u64());
    assert!(total("spill;spill;planted.cu:39 ") * 10 > total("spill;") * 9, "{}", folded.text());
    let firefox = args([&"export", &"--format", &"firefox", &"--lines", &file]);
    let firefox = result_of(firefox).json().to_string();
    assert!(firefox.contains("planted.cu"), "{firefox}");
    failure_of(args([&"export", &"--format", &"chrome", &"--lines", &file]), 2)
        .says("--lines: only for --format folded, pprof, otlp, firefox");
    let picture = result_of(args([&"flamegraph", &"--lines", &file]));
    picture.shows("Instruction samples of planted-h200.gpuprof").shows("planted.cu:9 (");
    failure_of(args([&"flamegraph", &"--lines", &recording()]), 1).says("no instruction samples");

    let diagnosis = result_of(args([&"diagnose", &file]));
    diagnosis.shows("barrier waits at a barrier at planted.cu:15 in ");
    diagnosis.shows("divide the work before the barrier evenly among warps");
    diagnosis.shows("spill waits for global or local memory at planted.cu:39 in ");
    diagnosis.shows("if registers spill (ptxas -v), use fewer live values");

    let explained = result_of(args([&"explain", &"--kernel", &"banks", &file]));
    explained
        .shows("banks\n  time ")
        .shows(" in 40 launches")
        .shows("  ranges     100.0 % banks\n");
    explained
        .shows("40 x grid [132, 1, 1], block [512, 1, 1]: ")
        .shows("planted.cu:24: waits for shared");
    explained.shows(
        "  try        it waits for shared memory or a special function at planted.cu:24 in ",
    );
    let plain = result_of(args([&"explain", &"--kernel", &"col_sum", &recording()]));
    plain.shows("  warps      not sampled: record with `gpuprof run --lines`\n");
    failure_of(args([&"explain", &"--kernel", &"absent", &file]), 1)
        .says("no kernel matches absent; the longest are: ");
}

#[test]
fn steps_and_requests_have_percentiles() {
    let file = recording();
    let profile = Profile::load(&file).unwrap();
    let ns = |time: Duration| u64::try_from(time.as_nanos()).ok();
    let found = result_of(args([&"steps", &"--json", &file])).json();
    let steps = profile.steps("batch");
    let (warm, count) = (steps.warm(), |name: &str| found[name].as_u64().unwrap() as usize);
    assert_eq!(
        (&found["range"], count("steps"), count("warm_up")),
        (&json!("batch"), 20, steps.warm_up())
    );
    let host = &found["times"][1];
    let times = warm.statistics(|step| step.host_time());
    for (name, percent) in [("p50_ns", 50.0), ("p90_ns", 90.0), ("p99_ns", 99.0), ("max_ns", 100.0)]
    {
        assert_eq!(host[name].as_u64(), ns(times.percentile(percent)), "{name}");
    }
    // The last step has no next one.
    assert_eq!(found["times"][0]["count"].as_u64(), Some(warm.len() as u64 - 1));
    let longest = found["longest"].as_array().unwrap();
    assert_eq!((longest.len(), longest[0]["host_ns"].as_u64()), (5, ns(times.max())));
    let whole = result_of(args([&"steps", &"--warm-up", &"--range", &"batch/forward", &file]));
    whole.shows("20 instances of batch/forward, 0 of them warm-up\n").shows("\nGPU busy ");
    failure_of(args([&"steps", &"--range", &"batsh", &file]), 1).says("no range \"batsh\"");
    // No range is a steady phase: several repeat together.
    let several = Path::new(FIXTURES).join("recordings/nccl-2xh100/rank-0.gpuprof");
    result_of(args([&"steps", &several])).shows("100 instances of ncclAllReduce, ");

    let found = result_of(args([&"requests", &"--range", &"batch", &"--json", &file])).json();
    let endpoint = &found["endpoints"][0];
    let requests = profile.requests("batch").find();
    assert_eq!((&endpoint["endpoint"], endpoint["open"].as_u64()), (&json!("batch"), Some(0)));
    let total = requests.statistics(|request| request.total_time());
    assert_eq!(endpoint["times"][0]["p99_ns"].as_u64(), ns(total.percentile(99.0)));
    let text = result_of(args([&"requests", &"--range", &"batch", &file]));
    text.shows("batch ").shows("\nexecuting ").shows("A request is pending until");
    failure_of(args([&"requests", &"--range", &"none", &file]), 1).says("no range \"none\"");
}

#[test]
fn kept_cubins_show_machine_code() {
    let folder = Folder::new();
    let file = with_stalls(&folder, "run.gpuprof", 700);
    // A script in place of the disassembler, unless NVDISASM names the real one.
    let tool = folder.file("nvdisasm");
    let text = "#!/bin/sh\n[ \"$1\" = -c ] && head -c 4 \"$2\" | grep -q ELF || exit 7\n\
                printf '.text.gather:\\n  /*0000*/  LDC R1, c[0x0][0x28] ;\\n  /*0010*/  LDC R2,  c[0x0][0x220] ;\\n'\n\
                printf '  /*0020*/  S2R R0, SR_CTAID.X ;\\n'\n";
    let write = |text: &str| {
        fs::write(&tool, text).unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    };
    write(text);
    let lines = |tool: &Path, file: &Path| {
        ran(gpuprof().env("NVDISASM", tool).args(args([&"lines", &"--sass", &file])))
    };
    let real = std::env::var_os("NVDISASM").map(PathBuf::from);
    let shown = lines(real.as_ref().unwrap_or(&tool), &file);
    shown.shows("\ngather\n").shows("                                 0  LDC R1, c[0x0][0x28]\n");
    shown.shows(
        "70.0 % ████████████████████    10  LDC R2, c[0x0][0x220]  gather.cu:12: waits for global",
    );
    shown.shows("30.0 % █████████               20  S2R R0, SR_CTAID.X  gather.cu:13: ");
    lines(&folder.file("absent"), &file).says("which is no file");
    write("#!/bin/sh\necho broken >&2\nexit 7\n");
    lines(&tool, &file).says("broken");
    lines(&tool, &self::lines()).says("gpuprof run --lines --keep-cubins");
}

#[test]
fn explanation_has_the_counted_roofline_point() {
    let folder = Folder::new();
    let file = with_stalls(&folder, "run.gpuprof", 700);
    let counted = folder.file("counted.json");
    let metrics = ["gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"];
    let values = |ranges: usize| {
        let range = serde_json::json!({"name": "0", "parent": null, "level": 0, "values": [1000.0, 4000.0, 800.0]});
        serde_json::json!({"chip": "GH100", "passes": 1, "runs": 1, "dropped": 0, "too_deep": 0,
                           "metrics": metrics, "ranges": vec![range; ranges]})
    };
    std::fs::write(&counted, values(1).to_string()).unwrap();
    let explained =
        result_of(args([&"explain", &"--kernel", &"gather", &"--counted", &counted, &file]));
    explained.shows("\n  roofline   ");
    std::fs::write(&counted, values(2).to_string()).unwrap();
    failure_of(args([&"explain", &"--kernel", &"gather", &"--counted", &counted, &file]), 1)
        .says("they cannot be matched");
}

/// A recording of one kernel with this share of waits for memory, of 1,000 samples, and its cubin.
fn with_stalls(folder: &Folder, name: &str, memory: u32) -> PathBuf {
    let path = folder.file(name);
    let fake = Fake::new();
    fake.source_line(c"gather", 0x10, ("/src", "gather.cu", 12));
    fake.source_line(c"gather", 0x20, ("/src", "gather.cu", 13));
    fake.pc_samples(c"gather", &[(0x10, 9, memory), (0x20, 3, 1_000 - memory)]);
    let builder = Profiler::builder().library(fake.library().unwrap());
    let profiler =
        builder.sample(profiler_core::Sampling::instructions().keep_cubins()).build().unwrap();
    let work = || {
        fake.load_module(1, include_bytes!("../../tests/recordings/lines/gather.cubin"));
        fake.launch(Work::kernel(c"gather"));
    };
    let ((), profile) = profiler.record(work).unwrap();
    of_its_own(&profile).save(&path).unwrap();
    path
}

#[test]
fn changed_stalls_have_an_interval() {
    let folder = Folder::new();
    let before = with_stalls(&folder, "before.gpuprof", 700);
    let after = with_stalls(&folder, "after.gpuprof", 400);
    let diff = result_of_diff(args([&"diff", &before, &after]));
    diff.shows("\nWhat the warps of kernels do, by instruction samples:\n");
    diff.shows("gather waits for global or local memory: 70.0 % to 40.0 % (-30.0 points, +-5.5)\n");
    diff.shows("gather is at gather.cu:13: 30.0 % to 60.0 % (+30.0 points, +-5.5)\n");
    let json = result_of_diff(args([&"diff", &"--json", &before, &after])).json();
    let stalls = json["stalls"].as_array().unwrap();
    assert_eq!(stalls.len(), 4, "two states and two lines");
    let memory = stalls.iter().find(|change| change["stall"] == "long_scoreboard").unwrap();
    assert_eq!((memory["before"].as_f64(), memory["after"].as_f64()), (Some(0.7), Some(0.4)));
    // Within what chance explains.
    let near = with_stalls(&folder, "near.gpuprof", 690);
    assert!(!result_of_diff(args([&"diff", &before, &near])).text().contains("warps"));
}

/// With success or a difference, whatever is noted.
#[track_caller]
fn result_of_diff<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Ran {
    let ran = ran(gpuprof().args(args));
    assert!(matches!(ran.status, 0 | 3), "{}{}", ran.text(), ran.error);
    ran
}
