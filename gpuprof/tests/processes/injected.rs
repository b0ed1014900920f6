//! Unmodified C programs from their start to the report: the injection library, and the fake driver
//! and CUPTI in place of NVIDIA's.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use gpuprof_control::manifest::State;
use gpuprof_control::{ProcessId, RunFolder};
use profiler_core::Profile;
use profiler_core::series::Source;
use serde_json::{Value, json};

use crate::support::{Folder, Ran, ran, wait_until};

pub(crate) const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fake_cuda/programs");
pub(crate) const OWN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/processes");

/// The injection library that cargo built for this test.
pub(crate) fn library() -> PathBuf {
    let own = env::current_exe().unwrap();
    let library = own.parent().unwrap().join("libgpuprof_inject.so");
    assert!(library.exists(), "{} is missing", library.display());
    library
}

/// Puts a compiled program and the fake driver into the folder.
pub(crate) fn compile(folder: &Folder, source: &str) {
    compile_with(folder, source, &[]);
}

/// The same with more options of the compiler.
pub(crate) fn compile_with(folder: &Folder, source: &str, options: &[&str]) {
    if !folder.path("cuda").exists() {
        fs::create_dir(folder.path("cuda")).unwrap();
        fake_cuda::install(&folder.path("cuda")).unwrap();
    }
    let name = Path::new(source).file_stem().unwrap();
    let mut cc = Command::new(env::var("CC").unwrap_or_else(|_| "cc".into()));
    cc.args([
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-variable",
        "-Wno-unused-function",
        "-O1",
        "-pthread",
        "-I",
        FAKE,
    ]);
    cc.args(options).arg(source).arg("-o").arg(folder.0.join(name)).arg("-ldl");
    let compiled = cc.output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

pub(crate) fn gpuprof_run(folder: &Folder, options: &[&str], program: &[&str]) -> Command {
    gpuprof_with_library(folder, "run", options, program)
}

/// A command of gpuprof that starts a program with the injection library and the fake driver.
pub(crate) fn gpuprof_with_library(
    folder: &Folder,
    subcommand: &str,
    options: &[&str],
    program: &[&str],
) -> Command {
    let library = library();
    let words = [subcommand, "--inject", library.to_str().unwrap()];
    let words = words.iter().chain(options).chain(&["--"]).chain(program);
    let mut command = folder.gpuprof(words);
    command.env("LD_LIBRARY_PATH", folder.path("cuda"));
    command
}

/// How often each kernel was launched, by the report.
pub(crate) fn counted(report: &str, kernel: &str) -> Option<u64> {
    let row = report.lines().find(|line| line.starts_with(&format!("{kernel} ")))?;
    row.split_whitespace().nth(1)?.parse().ok()
}

/// The profile of a run with one process.
pub(crate) fn profile(folder: &Folder, run: &str) -> Profile {
    let run = RunFolder::open(&folder.path(run)).unwrap();
    let processes = run.processes().unwrap();
    assert_eq!((processes.found.len(), processes.unreadable.len()), (1, 0));
    Profile::load(run.recording(&processes.found[0])).unwrap()
}

/// The program `commands` under `gpuprof run`.
struct Commands {
    gpuprof: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Commands {
    fn start(folder: &Folder, options: &[&str]) -> Self {
        compile(folder, &format!("{OWN}/commands.c"));
        let mut command = gpuprof_run(folder, options, &["./commands"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut gpuprof = command.spawn().unwrap();
        let input = gpuprof.stdin.take().unwrap();
        let mut output = BufReader::new(gpuprof.stdout.take().unwrap()).lines();
        assert_eq!(output.next().unwrap().unwrap(), "ready");
        Self { gpuprof, input, output }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    #[track_caller]
    fn does(&mut self, line: &str) {
        self.send(line);
        assert_eq!(self.output.next().unwrap().unwrap(), "done");
    }

    fn end(self) -> Ran {
        drop(self.input);
        self.gpuprof.wait_with_output().unwrap().into()
    }
}

#[test]
fn a_c_program_is_recorded_with_its_own_counts() {
    let folder = Folder::new();
    compile(&folder, &format!("{FAKE}/counts.c"));
    let plain =
        ran(Command::new(folder.path("counts")).env("LD_LIBRARY_PATH", folder.path("cuda")));
    let run = ran(&mut gpuprof_run(&folder, &["-o", "job"], &["./counts"]));
    assert_eq!((run.status, &run.out), (Some(0), &plain.out), "{}", run.error);
    let own = |what: &str| -> Option<u64> {
        plain.out.lines().find_map(|line| line.strip_prefix(what)?.trim().parse().ok())
    };
    for kernel in ["axpy", "norm"] {
        assert!(own(kernel).is_some_and(|count| count > 100), "{}", plain.out);
        assert_eq!(counted(&run.error, kernel), own(kernel), "{}", run.error);
    }
    let profile = profile(&folder, "job");
    assert_eq!(Some(profile.totals().copies), own("copies"));
    assert_eq!(Some(profile.totals().memsets), own("fills"));
    assert!(profile.health().is_complete(), "{}", profile.health());
    let manifest = RunFolder::open(&folder.path("job")).unwrap().run().unwrap().unwrap();
    assert_eq!(manifest.ended.unwrap().status, Some(0));
    // The files name nobody and no place.
    let user = folder.0.to_str().unwrap();
    for entry in fs::read_dir(folder.path("job")).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains(user) && !text.contains("LD_LIBRARY_PATH"));
    }
}

/// The fake has neither counters nor NVML.
#[test]
fn samplers_that_cannot_start_are_named_and_the_run_goes_on() {
    let folder = Folder::new();
    let samplers = ["--sample=memory,nvlink", "--nvml", "--sample-devices=0,1"];
    let options = [&samplers[..], &["--memory-records", "-o", "job"]].concat();
    let mut program = Commands::start(&folder, &options);
    program.does("launch 5");
    let run = program.end();
    assert_eq!((run.status, counted(&run.error, "step")), (Some(0), Some(5)), "{}", run.error);
    let profile = profile(&folder, "job");
    let failure = |source, device| {
        let mut series = profile.series();
        let of = series.find(|one| (one.source(), one.device()) == (source, device));
        of.and_then(|one| one.failure()).map_or(String::new(), ToString::to_string)
    };
    for (source, why) in [(Source::Counters, "sampling of counters"), (Source::Nvml, "NVML")] {
        assert!(failure(source, 0).contains(why), "{}", failure(source, 0));
        assert!(failure(source, 1).contains("has no device 1"), "{}", failure(source, 1));
    }
    let mut sampled: Vec<_> = profile.series().map(|one| (one.source(), one.device())).collect();
    sampled.sort_unstable();
    let both = |source| [(source, 0), (source, 1)];
    assert_eq!(sampled, [both(Source::Counters), both(Source::Nvml)].concat());
    assert_eq!(profile.health().facts.failed_samplers, 4);
    assert!(run.error.contains("samplers failed"), "{}", run.error);
}

#[test]
fn a_live_program_is_switched_to_the_exact_launches() {
    let folder = Folder::new();
    let mut program = Commands::start(&folder, &["--start", "wait", "-o", "job"]);
    let gpuprof = |args: &[&str]| {
        let ran = ran(&mut folder.gpuprof(args));
        assert_eq!(ran.status, Some(0), "{}", ran.error);
        ran.out
    };
    program.does("launch 10");
    assert!(gpuprof(&["on", "job"]).ends_with(": recording\n"));
    program.does("launch 7");
    assert!(gpuprof(&["mark", "job", "epoch 3"]).ends_with(": marked\n"));
    let snapshot = gpuprof(&["snapshot", "--report", "job"]);
    assert_eq!(counted(&snapshot, "step"), Some(7), "{snapshot}");
    assert!(gpuprof(&["off", "job"]).ends_with(": paused\n"));
    program.does("launch 5");
    gpuprof(&["on", "job"]);
    program.does("launch 3");
    let status: Value = serde_json::from_str(&gpuprof(&["status", "--json", "job"])).unwrap();
    assert_eq!(status[0]["process"]["counts"]["windows"], 2, "{status}");
    let run = program.end();
    assert_eq!((run.status, counted(&run.error, "step")), (Some(0), Some(10)), "{}", run.error);
    let profile = profile(&folder, "job");
    assert_eq!(profile.marks().filter(|mark| mark.name() == "epoch 3").count(), 1);
    assert!(profile.health().is_complete(), "{}", profile.health());
}

#[test]
fn each_end_of_a_program_has_its_status_and_a_report() {
    for (end, status, signal) in [
        ("exit 3", Some(3), None),
        ("raise 9", None, Some(9)),
        ("raise 6", None, Some(6)),
        ("raise 11", None, Some(11)),
    ] {
        let folder = Folder::new();
        let mut program = Commands::start(&folder, &["-o", "job"]);
        program.does("launch 4");
        if signal.is_some() {
            // What was not written yet is lost with the process.
            assert_eq!(ran(&mut folder.gpuprof(["snapshot", "job"])).status, Some(0));
        }
        program.send(end);
        let run = program.end();
        assert_eq!((run.status, run.signal), (status, signal), "{}", run.error);
        assert_eq!(counted(&run.error, "step"), Some(4), "{}", run.error);
        assert_eq!(run.error.contains("was cut off"), signal.is_some(), "{}", run.error);
        assert!(!folder.path("core").exists());
    }
}

#[test]
fn a_fork_that_exits_leaves_the_recording_of_its_parent_alone() {
    let folder = Folder::new();
    let mut program = Commands::start(&folder, &["-o", "job"]);
    program.does("launch 2");
    program.does("fork 0");
    program.does("launch 3");
    let run = program.end();
    assert_eq!((run.status, counted(&run.error, "step")), (Some(0), Some(5)), "{}", run.error);
    assert!(profile(&folder, "job").health().is_complete());
}

#[test]
fn programs_that_a_script_starts_are_ranks_of_one_report() {
    let folder = Folder::new();
    compile(&folder, &format!("{FAKE}/counts.c"));
    let script = "for r in 0 1 2; do RANK=$r ./counts & done; wait";
    let run = ran(&mut gpuprof_run(&folder, &["-o", "job"], &["sh", "-c", script]));
    assert_eq!(
        (run.status, counted(&run.error, "axpy")),
        (Some(0), Some(3 * 207)),
        "{}",
        run.error
    );
    for rank in 0..3 {
        assert!(run.error.contains(&format!("rank {rank}")), "{}", run.error);
    }
    // Another image of the same process.
    let script = "echo launch 2 | ./commands > log; exec ./counts";
    compile(&folder, &format!("{OWN}/commands.c"));
    let run = ran(&mut gpuprof_run(&folder, &["-o", "two"], &["sh", "-c", script]));
    assert_eq!(counted(&run.error, "step"), Some(2), "{}", run.error);
    assert_eq!(counted(&run.error, "axpy"), Some(207), "{}", run.error);
}

#[test]
fn collectives_of_ranks_are_matched() {
    let folder = Folder::new();
    compile(&folder, &format!("{OWN}/collectives.c"));
    let script = "RANK=0 ./collectives & RANK=1 ./collectives; wait";
    let run = ran(&mut gpuprof_run(&folder, &["-q", "-o", "job"], &["sh", "-c", script]));
    assert_eq!((run.status, run.error.as_str()), (Some(0), ""));
    let ranks = |format: &str| ran(&mut folder.gpuprof(["ranks", "--format", format, "job"]));
    let csv = ranks("csv").out;
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + 2 * 20, "{csv}");
    let of_plugin = "2,0000000000000abc,AllReduce,19,4096,float32,RING,SIMPLE,4,0,";
    assert_eq!(lines.iter().filter(|line| line.contains(of_plugin)).count(), 2, "{csv}");
    assert!(lines[1..].iter().all(|line| line.ends_with(",1,plugin")), "{csv}");
    let report: Value = serde_json::from_str(&ranks("json").out).unwrap();
    assert_eq!((&report["unmatched"], &report["missing"]), (&json!(0), &json!([])));
    // The ranks begin within a step of each other.
    assert!(report["matched"].as_u64().unwrap() == 20, "{report}");
    let text = ranks("text").out;
    assert!(text.starts_with("2 ranks, 20 collectives matched\n"), "{text}");
}

#[test]
fn recording_is_limited_in_time() {
    // Longer times where the machine did not come to the launches in these.
    let found = (0..8).find_map(|attempt| recorded_within(1 << attempt));
    assert_eq!(found, Some(20));
}

/// How many of the launches that the program makes before, within and after the limits are recorded; none if it was late.
fn recorded_within(seconds: u32) -> Option<u64> {
    let folder = Folder::new();
    let seconds = seconds.to_string();
    let limits = ["--delay", &*seconds, "--duration", &*seconds, "-o", "job"];
    let mut program = Commands::start(&folder, &limits);
    program.does("launch 1");
    let state = || -> State {
        let run = RunFolder::open(&folder.path("job")).unwrap();
        let status = ran(&mut folder.gpuprof(["status", "--json", "job"]));
        let rows: Value = serde_json::from_str(&status.out).unwrap();
        assert_eq!(rows.as_array().unwrap().len(), run.processes().unwrap().found.len());
        serde_json::from_value(rows[0]["process"]["state"].clone()).unwrap()
    };
    let was_waiting = state() == State::Waiting;
    wait_until("recording", || state() != State::Waiting);
    program.does("launch 20");
    let was_recording = state() == State::Recording;
    wait_until("the end of recording", || state() == State::Paused);
    program.does("launch 300");
    let run = program.end();
    assert_eq!(run.status, Some(0), "{}", run.error);
    counted(&run.error, "step").filter(|_| was_waiting && was_recording)
}

/// The last part of a live program, on demand and after an error, in files that each command reads.
#[test]
fn the_last_part_is_written_by_a_snapshot_and_after_an_error() {
    let folder = Folder::new();
    let options = ["--keep-last", "60s", "--on-error", "-o", "job"];
    let mut program = Commands::start(&folder, &options);
    let gpuprof = |args: &[&str]| {
        let ran = ran(&mut folder.gpuprof(args));
        assert_eq!(ran.status, Some(0), "{args:?}: {}", ran.error);
        ran.out
    };
    program.does("launch 10");
    let refused = ran(&mut folder.gpuprof(["report", "job"]));
    assert!(refused.failure(1).contains("`gpuprof snapshot`"), "{}", refused.error);
    let snapshot = gpuprof(&["snapshot", "--report", "job"]);
    assert_eq!(counted(&snapshot, "step"), Some(10), "{snapshot}");
    program.does("launch 7");
    program.does("fail 0");
    let counts = || {
        let status: Value = serde_json::from_str(&gpuprof(&["status", "--json", "job"])).unwrap();
        status[0]["process"]["counts"]["incidents"].as_u64().unwrap()
    };
    wait_until("a file of the error", || counts() == 1);
    let shown = gpuprof(&["status", "job"]);
    assert!(shown.lines().next().unwrap().contains("incidents"), "{shown}");
    program.does("launch 5");
    let run = program.end();
    assert_eq!((run.status, counted(&run.error, "step")), (Some(0), Some(22)), "{}", run.error);
    assert!(run.error.contains("incidents with a file in job/incidents: 1"), "{}", run.error);
    let mut files = fs::read_dir(folder.path("job/incidents")).unwrap();
    let file = files.next().unwrap().unwrap().path();
    assert!(files.next().is_none() && file.to_str().unwrap().ends_with("-1-error.gpuprof"));
    let file = file.to_str().unwrap();
    for command in [
        &["report", file][..],
        &["top", file],
        &["stats", "cuda_gpu_kern_sum", file],
        &["analyze", "all", file],
        &["kernels", file],
        &["diagnose", file],
        &["scorecard", file],
        &["critical-path", file],
        &["html", file],
        &["convert", "--format", "perfetto", "-o", "trace.pftrace", file],
        &["convert", "--format", "chrome", file],
        &["flamegraph", file],
        &["diff", file, "job"],
    ] {
        gpuprof(command);
    }
    assert_eq!(counted(&gpuprof(&["report", file]), "step"), Some(17));
}

#[test]
fn a_killed_process_that_kept_its_last_part_is_named() {
    let folder = Folder::new();
    let mut program = Commands::start(&folder, &["--keep-last", "1000", "-o", "job"]);
    program.does("launch 4");
    program.send("raise 9");
    let run = program.end();
    assert_eq!((run.status, run.signal), (None, Some(9)), "{}", run.error);
    assert!(run.error.contains("was cut off before it wrote its last part"), "{}", run.error);
    assert!(!run.error.contains("no process used the GPU"), "{}", run.error);
}

#[test]
fn processes_that_are_not_recorded_are_refused_with_the_reason() {
    let folder = Folder::new();
    let program = Commands::start(&folder, &["-o", "job"]);
    let run = RunFolder::open(&folder.path("job")).unwrap();
    let process = run.processes().unwrap().found.remove(0);
    assert!(process.id.is_alive() && process.state == State::Recording);
    // gpuprof itself was not started by `gpuprof run`.
    let outer = program.gpuprof.id().to_string();
    let refused = ran(&mut folder.gpuprof(["off", &outer]));
    assert!(refused.failure(1).contains("was not started by `gpuprof run`"));
    assert_eq!(program.end().status, Some(0));
    let ended = process.id.pid.to_string();
    let refused = ran(&mut folder.gpuprof(["off", &ended]));
    assert!(refused.failure(1).starts_with("there is no process"));
    assert!(ProcessId::from_pid(process.id.pid).is_err());
}
