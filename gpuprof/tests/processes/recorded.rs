//! Programs that are recorded: the fake GPU, and the part of the injection library without CUDA.

use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cupti::Config;
use fake_cupti::{Fake, Work};
use gpuprof_control::manifest::{Process, State};
use gpuprof_control::socket::{Answer, Request, Server};
use gpuprof_control::{Options, RunFolder, Start};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use profiler_core::session::RecordingFile;
use profiler_core::{Profile, Profiler};
use serde_json::Value;
use test_support::screen;

use crate::support::{Folder, Ran, ran, wait_until};

/// The variable with what [`recorded_program`] does: `loop`, or `STEPS END` with an exit status or
/// `kill` as the end, or `fail`.
pub(crate) const PLAN: &str = "GPUPROF_TEST_PLAN";
pub(crate) const PROGRAM: &str = "recorded::recorded_program";

/// Launches a kernel `gemm` in each range `step`, and does what requests say.
#[test]
#[ignore = "is a process of other tests"]
fn recorded_program() {
    let Some(options) = Options::from_environment().unwrap() else { return };
    let folder = RunFolder::open(&options.run).unwrap();
    let plan = std::env::var(PLAN).unwrap();
    let mut process = Process::current().unwrap();
    folder.claim(&mut process).unwrap();
    if plan == "fail" {
        process.set_state(State::Failed, Some("there is no CUPTI"));
        return folder.write_process(&process).unwrap();
    }
    let fake = Fake::new();
    let config = Config::default().start_paused(options.start == Start::Wait);
    let profiler = Profiler::builder().library(fake.library().unwrap()).config(config);
    let file = profiler.build().unwrap().record_to(folder.recording(&process)).unwrap();
    let file = Arc::new(file);
    process.has_recording = true;
    let state = if file.is_paused() { State::Waiting } else { State::Recording };
    process.set_state(state, None);
    folder.write_process(&process).unwrap();
    let server = Server::bind().unwrap();
    let stopper = server.stopper();
    let mut switch = Switch { file: file.clone(), process, folder };
    let serving = std::thread::spawn(move || {
        server.serve(|request| switch.answer(&request)).unwrap();
        switch
    });
    println!("socket is open");
    let step = || {
        let _step = nvtx::range("step");
        fake.launch(Work::kernel(c"gemm"));
    };
    let end = match plan.split_once(' ') {
        None => {
            let is_over = Arc::new(AtomicBool::new(false));
            let end = is_over.clone();
            std::thread::spawn(move || {
                let _ = std::io::stdin().read(&mut [0]);
                end.store(true, Ordering::Relaxed);
            });
            while !is_over.load(Ordering::Relaxed) {
                step();
                std::thread::sleep(Duration::from_millis(1));
            }
            "0"
        }
        Some((steps, end)) => {
            (0..steps.parse().unwrap()).for_each(|_| step());
            end
        }
    };
    if end == "kill" {
        file.flush().unwrap();
        kill(Pid::this(), Signal::SIGKILL).unwrap();
    }
    stopper.stop();
    let Switch { file: of_switch, mut process, folder } = serving.join().unwrap();
    drop(of_switch);
    let totals = Arc::into_inner(file).unwrap().finish().unwrap();
    process.counts.operations = totals.operations;
    process.set_state(State::Finished, None);
    folder.write_process(&process).unwrap();
    std::process::exit(end.parse().unwrap());
}

struct Switch {
    file: Arc<RecordingFile>,
    process: Process,
    folder: RunFolder,
}

impl Switch {
    fn answer(&mut self, request: &Request) -> Result<Answer, String> {
        let before = self.process.state;
        let done = match request {
            Request::On if self.file.is_paused() => {
                self.process.set_state(State::Recording, None);
                self.process.counts.windows += 1;
                self.file.resume()
            }
            Request::Off if !self.file.is_paused() => {
                self.process.set_state(State::Paused, None);
                self.file.pause()
            }
            Request::Mark { .. } if self.file.is_paused() => {
                return Err("recording is off".to_owned());
            }
            Request::Mark { text } => {
                nvtx::mark(text.as_str());
                Ok(())
            }
            Request::Snapshot => self.file.flush(),
            _ => Ok(()),
        };
        done.map_err(|error| error.to_string())?;
        let totals = self.file.totals();
        self.process.counts.operations = totals.operations;
        self.process.counts.ranges = totals.ranges;
        self.process.counts.bytes = totals.bytes;
        self.folder.write_process(&self.process).map_err(|error| error.to_string())?;
        let mut answer = Answer::new(self.process.clone(), self.folder.path().to_str().unwrap());
        answer.changed = self.process.state != before;
        Ok(answer)
    }
}

/// Runs a shell script, in which `$1 "$@"` is the program, under `gpuprof run`.
fn run(folder: &Folder, options: &[&str], script: &str) -> Ran {
    ran(&mut command(folder, options, script))
}

fn command(folder: &Folder, options: &[&str], script: &str) -> Command {
    let program = std::env::current_exe().unwrap();
    let script = script
        .replace("PROGRAM", "\"$PROGRAM\" -q --ignored --exact --nocapture $NAME > /dev/null");
    let inject = env!("CARGO_BIN_EXE_gpuprof");
    let mut words: Vec<OsString> = ["run", "--inject", inject].map(Into::into).into();
    words.extend(options.iter().map(Into::into));
    words.extend(["--", "sh", "-c", &script].map(Into::into));
    let mut command = folder.gpuprof(words);
    command.env("PROGRAM", program).env("NAME", PROGRAM).env("TOOL", inject);
    command
}

fn kernels(profile: &Profile) -> usize {
    profile.kernels().count()
}

fn only_run(folder: &Folder) -> PathBuf {
    let mut runs = folder.runs();
    assert_eq!(runs.len(), 1, "{runs:?}");
    folder.path(&runs.remove(0))
}

#[test]
fn the_report_of_a_run_goes_to_standard_error() {
    let folder = Folder::new();
    let ran = run(&folder, &[], &format!("{PLAN}='20 5' PROGRAM"));
    assert_eq!((ran.status, ran.out.as_str()), (Some(5), ""), "{}", ran.error);
    assert!(ran.error.starts_with("\nGPU profile: "), "{}", ran.error);
    let row = ran.error.lines().find(|line| line.starts_with("gemm ")).unwrap();
    assert_eq!(row.split_whitespace().nth(1), Some("20"), "{row}");
    let run = folder.runs().remove(0);
    let last = ran.error.lines().last().unwrap();
    assert_eq!(
        last,
        format!("gpuprof: the recordings are in {run}: `gpuprof report {run}` reads them again")
    );
    let report = crate::support::ran(&mut folder.gpuprof(["report", &run]));
    assert!(report.status == Some(0) && ran.error.contains(report.out.trim()), "{}", report.out);
}

#[test]
fn the_report_of_a_run_fits_the_terminal() {
    for (width, colour) in [(80, "always"), (80, "never"), (120, "always"), (120, "never")] {
        let folder = Folder::new();
        let name = format!("{}.gpurun", "name-".repeat(30));
        let options = ["--color", colour, "--stats", "--diagnose", "-o", &name];
        let mut command = command(&folder, &options, &format!("{PLAN}='20 0' PROGRAM"));
        let (shown, succeeds) = screen::on_terminal(&mut command, width);
        assert!(succeeds && shown.contains("gemm"), "{shown}");
        assert_eq!(shown.contains('\u{1b}'), colour == "always", "{shown}");
        screen::fits(&format!("at {width}"), &screen::stripped(&shown), width);
    }
}

#[test]
fn a_run_on_a_terminal_ends_with_a_summary() {
    let folder = Folder::new();
    let mut command = command(&folder, &["-o", "job"], &format!("{PLAN}='20 0' PROGRAM"));
    let (shown, succeeds) = screen::on_terminal(&mut command, 80);
    let shown = screen::stripped(&shown);
    assert!(succeeds && shown.lines().count() <= 24, "{shown}");
    for part in ["gemm ", "\ncomplete: ", "\ngpuprof diagnose job\n", "\ngpuprof report job\n"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn the_processes_of_a_run_are_one_profile() {
    let folder = Folder::new();
    let script = format!("for r in 0 1 2; do RANK=$r {PLAN}=\"$((r + 5)) 0\" PROGRAM & done; wait");
    let page = folder.path("page.html");
    let options = [
        "--stats=cuda_gpu_kern_sum",
        "--diagnose",
        "--html",
        "page.html",
        "--perfetto",
        "trace",
        "-o",
        "job",
    ];
    let ran = run(&folder, &options, &script);
    assert_eq!(ran.status, Some(0), "{}", ran.error);
    for rank in 0..3 {
        assert!(ran.error.contains(&format!("rank {rank}")), "{}", ran.error);
    }
    let row = ran.error.lines().find(|line| line.starts_with("gemm ")).unwrap();
    assert_eq!(row.split_whitespace().nth(1), Some("18"), "{row}");
    let stats = crate::support::ran(&mut folder.gpuprof(["stats", "cuda_gpu_kern_sum", "job"]));
    assert!(!stats.out.trim().is_empty() && ran.error.contains(stats.out.trim()), "{}", ran.error);
    let diagnosis = crate::support::ran(&mut folder.gpuprof(["diagnose", "job"]));
    assert!(ran.error.contains(diagnosis.out.trim()), "{}", ran.error);
    assert!(fs::read_to_string(page).unwrap().starts_with("<!doctype html>"));
    assert!(fs::metadata(folder.path("trace")).unwrap().len() > 100);
}

#[test]
fn a_quiet_run_writes_its_files_alone() {
    let folder = Folder::new();
    let ran = run(&folder, &["-q", "--html", "page.html"], &format!("{PLAN}='3 0' PROGRAM"));
    assert_eq!((ran.status, ran.error.as_str()), (Some(0), ""));
    assert!(folder.path("page.html").exists());
    assert_eq!(kernels(&Profile::load(recordings(&only_run(&folder)).remove(0)).unwrap()), 3);
}

fn recordings(run: &std::path::Path) -> Vec<PathBuf> {
    let run = RunFolder::open(run).unwrap();
    run.processes().unwrap().found.iter().map(|process| run.recording(process)).collect()
}

#[test]
fn a_killed_process_has_its_recording_in_the_report() {
    let folder = Folder::new();
    let ran = run(&folder, &[], &format!("export {PLAN}='9 kill'; exec PROGRAM"));
    assert_eq!((ran.status, ran.signal), (None, Some(9)), "{}", ran.error);
    let sockets = fs::read_dir(folder.path("runtime/gpuprof")).unwrap().count();
    assert_eq!(sockets, 0, "its socket stays");
    assert!(
        ran.error.starts_with("gpuprof: process ") && ran.error.contains(" was cut off"),
        "{}",
        ran.error
    );
    let row = ran.error.lines().find(|line| line.starts_with("gemm ")).unwrap();
    assert_eq!(row.split_whitespace().nth(1), Some("9"), "{row}");
    assert!(ran.error.contains("TRUNCATED"), "{}", ran.error);
}

#[test]
fn recording_of_a_running_process_is_read_so_far() {
    let folder = Folder::new();
    let script = format!(
        "{PLAN}=loop PROGRAM 2>&1 < keep & until \"$TOOL\" snapshot \"$GPUPROF_RUN\" 2> error \
         | grep -q ': [1-9][0-9]* operations'; do sleep 0.05; done"
    );
    let made = Command::new("mkfifo").arg(folder.path("keep")).status().unwrap();
    assert!(made.success());
    let keep = folder.path("keep");
    let writer = std::thread::spawn(move || fs::File::options().write(true).open(keep).unwrap());
    let ran = run(&folder, &[], &script);
    assert!(
        ran.error.contains(" still runs: the report covers the run until now"),
        "{}",
        ran.error
    );
    assert!(ran.error.contains("\ngemm "), "{}", ran.error);
    drop(writer.join().unwrap());
    let run = only_run(&folder);
    let run = RunFolder::open(&run).unwrap();
    wait_until("the end", || run.processes().unwrap().found[0].state == State::Finished);
}

#[test]
fn a_process_that_cannot_be_recorded_is_named_with_the_reason() {
    let folder = Folder::new();
    let failed = run(&folder, &["-q"], &format!("{PLAN}=fail PROGRAM; exit 6"));
    assert_eq!(failed.status, Some(6));
    assert!(failed.error.ends_with(" is not recorded: there is no CUPTI\n"), "{}", failed.error);
    assert_eq!(failed.error.lines().count(), 1);
    let beside = format!("{PLAN}=fail PROGRAM; {PLAN}='2 0' PROGRAM");
    let beside = run(&folder, &["-o", "beside"], &beside);
    assert_eq!(beside.error.matches("there is no CUPTI").count(), 1, "{}", beside.error);
    assert!(beside.error.contains("\ngemm "), "{}", beside.error);
}

#[test]
fn a_live_run_is_switched_marked_and_read() {
    let folder = Folder::new();
    let mut child =
        command(&folder, &["--start", "wait", "-o", "job"], &format!("{PLAN}=loop exec PROGRAM"));
    let mut child =
        child.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let gpuprof = |args: &[&str]| ran(&mut folder.gpuprof(args));
    wait_until("the process", || gpuprof(&["on", "job"]).status == Some(0));
    let status =
        || -> Value { serde_json::from_str(&gpuprof(&["status", "--json", "job"]).out).unwrap() };
    let operations =
        |status: &Value| status[0]["process"]["counts"]["operations"].as_u64().unwrap();
    wait_until("an operation", || {
        gpuprof(&["snapshot", "job"]).status == Some(0) && operations(&status()) > 3
    });
    assert!(gpuprof(&["mark", "job", "epoch 3"]).out.ends_with(": marked\n"));
    let snapshot = gpuprof(&["snapshot", "--report", "job"]);
    assert_eq!(snapshot.status, Some(0), "{}", snapshot.error);
    assert!(
        snapshot.out.contains("readable until now: ") && snapshot.out.contains("\ngemm "),
        "{}",
        snapshot.out
    );
    assert!(gpuprof(&["off", "job"]).out.ends_with(": paused\n"));
    let count = || {
        let out = gpuprof(&["snapshot", "job"]).out;
        out.split(" operations").next().unwrap().to_owned()
    };
    let before = count();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(count(), before, "no operation while it is off");
    assert!(gpuprof(&["on", "job"]).out.ends_with(": recording\n"));
    drop(child.stdin.take());
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.status, Some(0), "{}", ran.error);
    assert!(ran.error.starts_with("gpuprof: recording starts with `gpuprof on "), "{}", ran.error);
    let profile = Profile::load(recordings(&folder.path("job")).remove(0)).unwrap();
    assert_eq!(profile.marks().filter(|mark| mark.name() == "epoch 3").count(), 1);
    assert!(kernels(&profile) > 3 && profile.health().is_complete(), "{}", profile.health());
}
