//! Programs with the library, from CUDA's initialisation to their end: against the fake driver, each in a process of its own.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)] // tests

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gpuprof_control::manifest::{Process, State};
use gpuprof_control::socket::{Client, Folder, Request};
use gpuprof_control::{Error, ProcessId, RunFolder};
use profiler_core::{Profile, Recording};

/// Where cargo puts what it builds for tests.
fn built(file: &str) -> PathBuf {
    let own = env::current_exe().unwrap();
    let folders = own.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join(file)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{file} is missing: build gpuprof-inject with its examples"))
}

/// A folder for a run, with the fake driver; removed when dropped.
struct Run {
    path: PathBuf,
    variables: Vec<(&'static str, String)>,
    options: Vec<String>,
}

struct Outcome {
    stdout: String,
    status: Option<i32>,
    /// By the time of their start.
    processes: Vec<Process>,
    folder: PathBuf,
    run: Run,
}

impl Run {
    fn new() -> Run {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("gpuprof-inject-{}-{next}", std::process::id()));
        for folder in ["fake", "run", "sockets"] {
            fs::create_dir_all(path.join(folder)).unwrap();
        }
        fs::set_permissions(path.join("sockets"), Permissions::from_mode(0o700)).unwrap();
        fake_cuda::install(&path.join("fake")).unwrap();
        Run { path, variables: Vec::new(), options: Vec::new() }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Run {
        self.variables.push((name, value.into()));
        self
    }

    /// Adds an option to `GPUPROF_OPTIONS`.
    fn option(mut self, key: &str, value: &str) -> Run {
        self.options.push(format!("{key}={value}"));
        self
    }

    fn folder(&self) -> PathBuf {
        self.path.join("run")
    }

    fn command(&self, steps: &str) -> Command {
        let library = built("libgpuprof_inject.so");
        let mut command = Command::new(built("examples/scripted"));
        command
            .args(steps.split_whitespace())
            .env("LD_LIBRARY_PATH", self.path.join("fake"))
            .env("CUDA_INJECTION64_PATH", &library)
            .env("NVTX_INJECTION64_PATH", &library)
            .env("NCCL_PROFILER_PLUGIN", &library)
            .env("GPUPROF_RUN", self.folder())
            .env("XDG_RUNTIME_DIR", self.path.join("sockets"))
            .env("GPUPROF_OPTIONS", self.options.join(","))
            .stdin(Stdio::null());
        for (name, value) in &self.variables {
            command.env(name, value);
        }
        command
    }

    fn processes(&self) -> Vec<Process> {
        let processes = RunFolder::open(&self.folder()).unwrap().processes().unwrap();
        assert!(processes.unreadable.is_empty(), "{:?}", processes.unreadable);
        processes.found
    }

    /// Plays the steps. The library prints nothing.
    fn play(self, steps: &str) -> Outcome {
        let output = self.command(steps).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(stderr, "", "{steps}: {}", output.status);
        Outcome {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            status: output.status.code(),
            processes: self.processes(),
            folder: self.folder(),
            run: self,
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl Outcome {
    /// The one process, in this state, after a normal end of the program.
    fn one(&self, state: State) -> &Process {
        assert_eq!((self.status, &*self.stdout), (Some(0), ""));
        let [process] = &self.processes[..] else { panic!("{:?}", self.processes) };
        assert_eq!(process.state, state, "{:?}", process.reason);
        process
    }

    fn profile(&self, process: &Process) -> Profile {
        let profile = Profile::load(self.folder.join(process.recording_name())).unwrap();
        assert!(profile.health().is_complete(), "{}", profile.health());
        profile
    }

    /// The kernels of a finished process, by their range and name.
    fn finished(&self) -> BTreeMap<String, usize> {
        let process = self.one(State::Finished);
        assert!(process.has_recording && process.ended.is_some() && process.counts.lost == 0);
        kernels(&self.profile(process))
    }
}

/// Kernels by the path of their range and their name.
fn kernels(profile: &Profile) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for kernel in profile.kernels() {
        let path = kernel.range().map(|range| range.node().path()).unwrap_or_default();
        *all.entry(format!("{path}:{}", kernel.name())).or_insert(0) += 1;
    }
    all
}

fn counts<const N: usize>(of: [(&str, usize); N]) -> BTreeMap<String, usize> {
    of.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

#[test]
fn short_program_names_its_devices_on_a_slow_driver() {
    let run = Run::new().with("FAKE_CUDA_NAMING_NS", "200000000");
    let outcome = run.play("init launch=axpy sync");
    let process = outcome.one(State::Finished);
    let recording = Recording::load(outcome.folder.join(process.recording_name())).unwrap();
    assert_eq!(recording.info().devices.len(), 1);
}

#[test]
fn program_is_recorded_with_its_ranges() {
    let run = Run::new();
    let outcome =
        run.play("init push=step launch=axpy*3 push=inner launch=norm pop pop launch=axpy sync");
    let expected = counts([("step:axpy", 3), ("step/inner:norm", 1), (":axpy", 1)]);
    assert_eq!(outcome.finished(), expected);
    let process = &outcome.processes[0];
    assert_eq!(
        (process.counts.operations, process.counts.ranges, process.counts.windows),
        (5, 2, 1)
    );
    assert_eq!(process.program, "scripted");
    let recording = Recording::load(outcome.folder.join(process.recording_name())).unwrap();
    // Found once the driver was initialised.
    assert_eq!(recording.info().devices.len(), 1);
    let files = fs::read_dir(&outcome.folder).unwrap().count();
    assert_eq!(files, 2, "a manifest and a recording");
    assert_eq!(
        fs::read_dir(outcome.run.path.join("sockets/gpuprof")).unwrap().count(),
        0,
        "no socket is left"
    );
}

#[test]
fn ranges_that_are_open_at_the_initialisation_are_recorded() {
    let outcome = Run::new().play(
        "push=ended pop push=main push=load init launch=axpy pop launch=axpy \
         thread=init+push:other+launch:norm+pop pop sync",
    );
    let expected = counts([("main/load:axpy", 1), ("main:axpy", 1), ("other:norm", 1)]);
    assert_eq!(outcome.finished(), expected);
    let outcome =
        Run::new().play("start=ended end start=whole init launch=axpy sync end start=later end");
    let profile = outcome.profile(outcome.one(State::Finished));
    let names: Vec<_> = profile.process_ranges().map(|range| range.name().to_owned()).collect();
    assert_eq!(names, ["whole", "later"]);
    assert!(profile.process_ranges().all(|range| !range.is_open()));
}

#[test]
fn program_without_cuda_leaves_nothing() {
    let outcome = Run::new().play("push=a mark=b pop");
    assert_eq!((outcome.status, outcome.processes.len()), (Some(0), 0));
    assert_eq!(fs::read_dir(&outcome.folder).unwrap().count(), 0);
}

#[test]
fn program_that_does_not_use_the_gpu_leaves_no_recording() {
    let outcome = Run::new().play("init push=a pop");
    let process = outcome.one(State::Idle);
    assert!(!process.has_recording);
    assert_eq!(fs::read_dir(&outcome.folder).unwrap().count(), 1);
}

#[test]
fn library_that_is_initialised_again_goes_on() {
    let outcome = Run::new().play("again init launch=axpy again launch=axpy init launch=axpy sync");
    assert_eq!(outcome.finished(), counts([(":axpy", 3)]));
}

/// Waits until the process is no longer in this state. Whether it was.
fn await_end_of(live: &Live, state: State) -> bool {
    let mut was_in_it = false;
    while live.ask(Request::Status).unwrap().0 == state {
        was_in_it = true;
        std::thread::sleep(Duration::from_millis(10));
    }
    was_in_it
}

/// Calls `play` with longer and longer times, until the program came to its steps within them.
fn with_enough_time(mut play: impl FnMut(f64) -> Option<BTreeMap<String, usize>>) {
    let found = (0..8).find_map(|attempt| play(0.3 * f64::from(1 << attempt)));
    assert_eq!(found, Some(counts([(":inside", 1)])));
}

/// The kernels of a live program that has ended by itself.
fn kernels_of_one(run: &Run) -> BTreeMap<String, usize> {
    let [process] = &run.processes()[..] else { panic!() };
    assert_eq!(process.state, State::Finished, "{process:?}");
    kernels(&Profile::load(run.folder().join(process.recording_name())).unwrap())
}

#[test]
fn recording_starts_after_a_time_and_stops_after_another() {
    with_enough_time(|seconds| {
        let run = Run::new().option("start", &format!("after={seconds}"));
        let run = run.option("stop", &format!("duration={seconds}"));
        let steps = "launch=before sync wait launch=inside sync wait launch=after sync wait";
        let mut live = Live::start(&run, &format!("init {steps}"));
        let started_late = await_end_of(&live, State::Waiting);
        live.go_on();
        let stopped_late = await_end_of(&live, State::Recording);
        live.go_on();
        live.end();
        (started_late && stopped_late).then(|| kernels_of_one(&run))
    });
}

#[test]
fn recording_stops_after_a_time() {
    with_enough_time(|seconds| {
        let run = Run::new().option("stop", &format!("duration={seconds}"));
        let mut live = Live::start(&run, "init launch=inside sync wait launch=after sync wait");
        let stopped_late = await_end_of(&live, State::Recording);
        live.go_on();
        live.end();
        stopped_late.then(|| kernels_of_one(&run))
    });
}

#[test]
fn range_starts_and_stops_the_recording() {
    let run = Run::new().option("start", "range=step").option("stop", "ranges=2");
    let steps = "launch=between push=step launch=first launch=axpy*2 pop ";
    let outcome = run.play(&format!("push=outer init {} pop sync", steps.repeat(4)));
    let expected = counts([("outer/step:first", 2), ("outer/step:axpy", 4)]);
    assert_eq!(outcome.finished(), expected);
    assert_eq!(outcome.processes[0].counts.windows, 2);
}

/// CUPTI is turned off in between, as the ranges are far from each other.
#[test]
fn ranges_far_from_each_other_turn_cupti() {
    let run = Run::new().option("start", "range=step");
    let steps = "push=step launch=in pop launch=out sleep=1300 ";
    let outcome =
        run.play(&format!("init {} start=step launch=in end launch=out sync", steps.repeat(2)));
    assert_eq!(outcome.finished(), counts([("step:in", 2), (":in", 1)]));
}

#[test]
fn calls_of_the_profiler_start_and_stop_the_recording() {
    let run = Run::new().option("start", "cuda-profiler-api");
    let steps = "launch=out start-profiler launch=in*3 stop-profiler launch=out ";
    let outcome = run.play(&format!("init {} sleep=1300 {steps} sync", steps.repeat(2)));
    assert_eq!(outcome.finished(), counts([(":in", 9)]));
}

#[test]
fn program_is_recorded_where_cupti_cannot_sample() {
    let steps = "launch=out start-profiler launch=in*3 stop-profiler launch=out sleep=1300 ";
    for start in ["now", "cuda-profiler-api"] {
        let run = Run::new().option("start", start).option("lines", "65536");
        let outcome = run.option("cubins", "keep").play(&format!("init {} sync", steps.repeat(2)));
        let profile = outcome.profile(outcome.one(State::Finished));
        assert!(profile.kernels().any(|kernel| kernel.name() == "in"));
        let counts = profile.instruction_counts().unwrap().to_string();
        assert!(counts.ends_with("has no instruction samples"), "{start}: {counts}");
    }
}

#[test]
fn recording_that_never_starts_is_no_recording() {
    for start in ["wait", "after=3600", "range=never", "cuda-profiler-api"] {
        let outcome = Run::new().option("start", start).play("init push=a launch=axpy pop sync");
        let process = outcome.one(State::Finished);
        assert!(!process.has_recording, "{start}");
        assert_eq!(process.reason.as_deref(), Some("recording was never switched on"));
        assert_eq!(fs::read_dir(&outcome.folder).unwrap().count(), 1);
    }
}

/// A live program with its standard input and output.
struct Live {
    child: std::process::Child,
    output: BufReader<std::process::ChildStdout>,
    folders: [Folder; 1],
}

impl Live {
    fn start(run: &Run, steps: &str) -> Live {
        let mut command = run.command(steps);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        let process = ProcessId::from_pid(child.id()).unwrap();
        let folder = (0..12_000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            let folders = [Folder::open(&run.path.join("sockets/gpuprof")).ok()?];
            Client::find(&folders, process).is_ok().then_some(folders)
        });
        Live { child, output, folders: folder.expect("a socket") }
    }

    fn ask(&self, request: Request) -> Result<(State, bool, Process), Error> {
        let process = ProcessId::from_pid(self.child.id())?;
        let client = Client::find(&self.folders, process)?;
        let answer = client.ask(request, Duration::from_secs(120))?;
        Ok((answer.process.state, answer.changed, answer.process))
    }

    /// What it holds of memory, from `/proc`.
    fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Has the program go on to its next wait.
    fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        self.output.read_line(&mut String::new()).unwrap();
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }

    /// Has the program go on to its death; its exit status.
    fn died(mut self) -> Option<i32> {
        drop(self.child.stdin.take());
        self.child.wait().unwrap().code()
    }
}

#[test]
fn live_program_is_switched_over_its_socket() {
    let run = Run::new().option("start", "wait");
    let mut live = Live::start(
        &run,
        "init launch=before sync wait push=on launch=inside sync wait launch=between sync wait launch=inside sync wait",
    );
    let (state, changed, _) = live.ask(Request::Status).unwrap();
    assert_eq!((state, changed), (State::Waiting, false));
    let refused = live.ask(Request::Mark { text: "too early".to_owned() }).unwrap_err().to_string();
    assert!(refused.contains("recording is off"), "{refused}");
    assert_eq!(
        live.ask(Request::On).map(|(state, changed, _)| (state, changed)).unwrap(),
        (State::Recording, true)
    );
    assert!(!live.ask(Request::On).unwrap().1);
    live.go_on();
    live.ask(Request::Mark { text: "a mark".to_owned() }).unwrap();
    let (_, _, process) = live.ask(Request::Snapshot).unwrap();
    let so_far = Recording::load(run.folder().join(process.recording_name())).unwrap();
    assert!(so_far.is_truncated());
    let profile = Profile::from_recording(so_far);
    assert_eq!(kernels(&profile), counts([("on:inside", 1)]));
    assert_eq!(profile.marks().map(|mark| mark.name().to_owned()).collect::<Vec<_>>(), ["a mark"]);
    assert_eq!(
        live.ask(Request::Off).map(|(state, changed, _)| (state, changed)).unwrap(),
        (State::Paused, true)
    );
    live.go_on();
    live.ask(Request::On).unwrap();
    live.go_on();
    live.end();
    let [process] = &run.processes()[..] else { panic!() };
    let profile = Profile::load(run.folder().join(process.recording_name())).unwrap();
    assert_eq!(kernels(&profile), counts([("on:inside", 2)]));
    assert_eq!((process.state, process.counts.windows), (State::Finished, 2));
}

/// Each call within a window has its record, and what the library holds does not grow with the windows.
#[test]
fn many_switches_lose_nothing_and_hold_nothing() {
    let switches = if std::env::var_os("THOROUGH_TESTS").is_some() { 1000 } else { 100 };
    let run = Run::new().option("start", "wait");
    let steps = " launch=inside*3 sync wait launch=between sync wait".repeat(switches);
    let mut live = Live::start(&run, &format!("init launch=before sync wait{steps}"));
    let mut held = Vec::new();
    for _ in 0..switches {
        assert!(live.ask(Request::On).unwrap().1);
        live.go_on();
        assert!(live.ask(Request::Off).unwrap().1);
        live.go_on();
        held.push(live.resident_kib());
    }
    live.end();
    let [process] = &run.processes()[..] else { panic!() };
    assert_eq!(process.counts.windows, switches as u64);
    let profile = Profile::load(run.folder().join(process.recording_name())).unwrap();
    assert!(profile.health().is_complete(), "{}", profile.health());
    assert_eq!(kernels(&profile), counts([(":inside", 3 * switches)]));
    let (early, late) = (held[switches / 5], held[switches - 1]);
    assert!(late < early + 1024, "{early} KiB after a fifth of them, {late} after all");
}

#[test]
fn program_that_ends_in_a_thread_is_finished() {
    let outcome = Run::new().play("init push=a launch=axpy*2 sync exit-in-thread");
    assert_eq!(outcome.finished(), counts([("a:axpy", 2)]));
}

#[test]
fn work_at_the_end_of_the_program_is_in_the_recording() {
    let run = Run::new().with("FAKE_CUDA_KERNEL_NS", "300000000");
    assert_eq!(run.play("init push=a launch=axpy pop").finished(), counts([("a:axpy", 1)]));
}

#[test]
fn reset_device_loses_nothing() {
    let outcome = Run::new().play("init launch=axpy*2 sync reset");
    assert_eq!(outcome.finished(), counts([(":axpy", 2)]));
}

/// What was there at the last state.
#[test]
fn dead_process_leaves_a_readable_file() {
    // Each waits for a period of the file.
    std::thread::scope(|scope| {
        for (end, status) in [("_exit", Some(0)), ("abort", None), ("kill", None)] {
            scope.spawn(move || dies(end, status));
        }
    });
}

fn dies(end: &str, status: Option<i32>) {
    let run = Run::new();
    let live = Live::start(&run, &format!("init push=a launch=axpy*2 sync pop wait {end}"));
    let [process] = &run.processes()[..] else { panic!() };
    let path = run.folder().join(process.recording_name());
    let launches = |profile: &Profile| {
        profile.calls().filter(|call| call.name().contains("LaunchKernel")).count()
    };
    // The thread of the file writes it.
    let is_written = |profile: Profile| {
        launches(&profile) == 2 && profile.ranges().any(|range| !range.is_open())
    };
    while !Profile::load(&path).is_ok_and(is_written) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(live.died(), status, "{end}");
    let [process] = &run.processes()[..] else { panic!() };
    assert_eq!((process.state, process.ended), (State::Recording, None));
    let recording = Recording::load(path).unwrap();
    assert!(recording.is_truncated(), "{end}");
    // Whether CUPTI had delivered the records depends on its buffers; the calls are there.
    let profile = Profile::from_recording(recording);
    assert_eq!(launches(&profile), 2);
    assert_eq!(profile.range("a").map(|range| range.instances()), Some(1));
}

#[test]
fn forked_child_is_silent() {
    let outcome = Run::new().play(
        "init push=parent launch=axpy fork=push:child+mark:child+pop+pop launch=axpy pop launch=axpy sync",
    );
    let expected = counts([("parent:axpy", 2), (":axpy", 1)]);
    assert_eq!(outcome.finished(), expected);
    let profile = outcome.profile(&outcome.processes[0]);
    assert_eq!((profile.range("child").is_none(), profile.marks().count()), (true, 0));
}

#[test]
fn child_that_is_forked_before_cuda_is_a_process_of_its_own() {
    let outcome = Run::new().play(
        "push=both fork=init+push:child+launch:norm+sync+pop+pop init push=parent launch=axpy pop pop sync",
    );
    assert_eq!((outcome.status, outcome.processes.len()), (Some(0), 2));
    let all: Vec<_> = outcome.processes.iter().map(|one| kernels(&outcome.profile(one))).collect();
    assert_eq!(all, [counts([("both/child:norm", 1)]), counts([("both/parent:axpy", 1)])]);
    assert_ne!(outcome.processes[0].id.pid, outcome.processes[1].id.pid);
}

/// A child finds the tables of names whole and unlocked, before the recording; in one, it is silent.
#[test]
fn forks_amid_registrations_leave_no_lock_held() {
    let outcome = Run::new().play("fork-amid=100");
    assert_eq!((outcome.status, outcome.processes.len()), (Some(0), 0));
    let outcome = Run::new().play("init fork-amid=100 launch=axpy sync");
    assert_eq!(outcome.finished(), counts([(":axpy", 1)]));
}

/// Its own ranges are recorded once, by itself.
#[test]
fn program_that_records_itself_gets_cupti() {
    let run = Run::new();
    let own = run.path.join("own.gpuprof");
    let outcome = run.play(&format!(
        "push=outer init launch=before sync embed push=a launch=axpy*2 pop sync embed-stop={} launch=later sync",
        own.display()
    ));
    let process = outcome.one(State::Yielded);
    assert_eq!(process.reason.as_deref(), Some("the program records itself"));
    assert_eq!(kernels(&outcome.profile(process)), counts([("outer:before", 1)]));
    let profile = Profile::load(&own).unwrap();
    assert!(profile.health().is_complete(), "{}", profile.health());
    assert_eq!(kernels(&profile), counts([("a:axpy", 2)]));
    assert_eq!(profile.range("a").unwrap().instances(), 1);
}

#[test]
fn program_that_records_itself_from_the_start_has_one_recording() {
    let run = Run::new();
    let own = run.path.join("own.gpuprof");
    let outcome =
        run.play(&format!("embed init push=a launch=axpy pop sync embed-stop={}", own.display()));
    let process = outcome.one(State::Yielded);
    assert!(!process.has_recording);
    assert_eq!(kernels(&Profile::load(&own).unwrap()), counts([("a:axpy", 1)]));
}

#[test]
fn invalid_options_are_the_reason_of_a_failure() {
    let outcome = Run::new().option("start", "tomorrow").play("init launch=axpy sync");
    let process = outcome.one(State::Failed);
    let reason = process.reason.as_deref().unwrap();
    assert!(reason.starts_with("GPUPROF_OPTIONS=start=tomorrow"), "{reason}");
}

#[test]
fn missing_cupti_is_the_reason_of_a_failure() {
    let run = Run::new().with("CUPTI_LIBRARY_PATH", "/nowhere/libcupti.so");
    let outcome = run.play("push=a init launch=axpy sync pop");
    let process = outcome.one(State::Failed);
    let reason = process.reason.as_deref().unwrap();
    // Manifests hold no absolute paths.
    assert!(reason.contains("tried libcupti.so (") && !reason.contains("/nowhere"), "{reason}");
    assert!(!process.has_recording);
}

#[test]
fn unusable_folder_harms_no_program() {
    for folder in ["", "relative", "/nowhere/at/all", "/dev/null", "/proc"] {
        let run = Run::new().with("GPUPROF_RUN", folder);
        let outcome = run.play("push=a init launch=axpy sync pop");
        assert_eq!((outcome.status, outcome.processes.len()), (Some(0), 0), "{folder}");
    }
    let missing = |variable| {
        let run = Run::new();
        let mut command = run.command("push=a init launch=axpy sync pop");
        let output = command.env_remove(variable).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{variable}");
    };
    missing("GPUPROF_RUN");
    missing("NVTX_INJECTION64_PATH");
}

/// Its starter must not choose what a process with more rights than its own writes.
#[test]
fn program_with_more_rights_than_its_starter_is_left_alone() {
    let run = Run::new();
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let [program, library] = ["scripted", "library.so"].map(|name| run.path.join(name));
    if !is_root {
        println!("skipped: only root can give a program another user's rights");
        return;
    }
    // By a child: a process that another test starts inherits for a moment what this one has open,
    // and a file that is open for writing cannot be run.
    let copied = Command::new("cp").arg(built("examples/scripted")).arg(&program).status().unwrap();
    assert!(copied.success());
    fs::copy(built("libgpuprof_inject.so"), &library).unwrap();
    let attached = |mode| {
        fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
        let mut command = Command::new(&program);
        command.arg("attached").env("NVTX_INJECTION64_PATH", &library);
        let command = command.env("GPUPROF_RUN", run.folder()).uid(65_534).gid(65_534);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(attached(0o755), "attached true\n");
    assert_eq!(attached(0o4755), "attached false\n");
}

/// Without a recording, threads keep names in bounded memory; pops find their pushes all the same.
#[test]
fn many_open_ranges_before_cuda_are_bounded() {
    let deep = "push=deep ".repeat(3000);
    let outcome =
        Run::new().play(&format!("{deep} init launch=in {} launch=out sync", "pop ".repeat(3000)));
    let process = outcome.one(State::Finished);
    assert_eq!((process.counts.lost, process.counts.ranges), (3000 - 1024, 1024));
    let kernels = kernels(&outcome.profile(process));
    assert_eq!(kernels[&format!("{}:in", ["deep"; 1024].join("/"))], 1);
    assert_eq!(kernels[":out"], 1);
}

#[test]
fn messages_go_to_standard_error_on_request() {
    let run = Run::new().option("log", "stderr").with("CUPTI_LIBRARY_PATH", "/nowhere/cupti");
    let output = run.command("init launch=axpy sync").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.starts_with("gpuprof: "), "{stderr}");
    assert!(stderr.contains("/nowhere/cupti"), "{stderr}");
}

/// Nothing of the library's own threads, names, handlers or environment is seen by the program, or left in the run folder.
#[test]
fn manifests_and_recordings_hold_no_path() {
    let run = Run::new();
    let outcome = run.play("init push=a launch=axpy pop sync");
    let secret = outcome.run.path.to_str().unwrap().as_bytes();
    for entry in fs::read_dir(&outcome.folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        assert!(!bytes.windows(secret.len()).any(|part| part == secret), "{}", path.display());
    }
}

/// The report that a process that is always on wrote.
fn always_on(outcome: &Outcome, process: &Process) -> String {
    fs::read_to_string(outcome.folder.join(process.always_on_name())).unwrap()
}

#[test]
fn ranges_are_drawn_within_a_budget_and_recorded_in_full() {
    let run = Run::new().option("start", "range=step").option("always-on", "100%,rate=1");
    let steps = "push=step launch=axpy*3 pop launch=out sleep=20 ";
    let outcome = run.play(&format!("init sleep=300 {} sync", steps.repeat(40)));
    let process = outcome.one(State::Finished);
    let report = always_on(&outcome, process);
    assert!(process.has_recording && process.counts.windows > 0, "{report}");
    // All of a step, and nothing between steps: they are apart from each other.
    let expected = counts([("step:axpy", 3 * process.counts.windows as usize)]);
    assert_eq!(kernels(&outcome.profile(process)), expected, "{report}");
    assert!(report.contains("GPU time by range, estimated from"), "{report}");
    assert!(report.contains("budget 100.0 %"), "{report}");
    let row = report.lines().find(|line| line.starts_with("step")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[1..3], ["40", "120"], "instances and submissions, counted in full: {report}");
    let row = report.lines().find(|line| line.starts_with("(all)")).unwrap();
    assert!(row.contains(" 160 "), "{report}");
}

#[test]
fn slices_of_time_are_drawn_where_no_range_is_named() {
    let run = Run::new().option("always-on", "100%,rate=0.5");
    let outcome = run.play(&format!("init {} sync", "launch=axpy*5 sleep=10 ".repeat(90)));
    let process = outcome.one(State::Finished);
    let report = always_on(&outcome, process);
    assert!(process.counts.windows > 0, "{report}");
    let found = kernels(&outcome.profile(process));
    let axpy = found.get(":axpy").copied().unwrap_or_default();
    assert!(axpy > 0 && axpy < 450 && found.len() == 1, "{found:?}\n{report}");
    let row = report.lines().find(|line| line.starts_with("(all)")).unwrap();
    assert!(row.contains(" 450 "), "{report}");
}

#[test]
fn always_on_excludes_other_starts_and_stops() {
    let run = Run::new().option("always-on", "3%").option("start", "wait");
    let outcome = run.play("init launch=axpy sync");
    let process = outcome.one(State::Failed);
    let reason = process.reason.as_deref().unwrap();
    assert!(reason.contains("GPUPROF_OPTIONS=always-on=3%") && !process.has_recording, "{reason}");
}

/// Function, sequence, bytes, range and kernel of each collective with a size.
fn collectives(profile: &Profile) -> Vec<String> {
    let each = profile.collectives().filter_map(|collective| {
        let kernel = collective
            .kernel()
            .map_or("none".to_owned(), |kernel| kernel.as_kernel().unwrap().name().to_owned());
        let range = collective.range().map(|range| range.node().path()).unwrap_or_default();
        let (function, number) = (collective.function(), collective.sequence());
        let (bytes, of) = (collective.bytes()?, collective.in_kernel());
        Some(format!("{function} {number}, {bytes} B in {range:?}: {kernel} of {of}"))
    });
    each.collect()
}

const GENERIC: &str = "ncclDevKernel_Generic_1";

#[test]
fn collectives_have_the_range_and_kernel_of_the_thread_that_enqueued_them() {
    for (version, mask) in [(5, 2 | 4 | 2048), (4, 2 | 4)] {
        let outcome = Run::new().play(&format!(
            "init communicator={version}/77/1/2 launch=axpy push=step push=inner group=AllReduce/1000 \
             launch=axpy pop group=AllReduce/10+AllReduce/20+Broadcast/4/1 pop \
             group=Send/5/0+Recv/5/0 group=Send/6/0 group=Later/7 sync destroy"
        ));
        assert_eq!(outcome.stdout, format!("mask {mask}\n"));
        assert_eq!((outcome.status, outcome.processes.len()), (Some(0), 1));
        let profile = outcome.profile(&outcome.processes[0]);
        let expected = [
            r#"AllReduce 0, 4000 B in "step/inner": KERNEL of 1"#,
            r#"AllReduce 1, 40 B in "step": KERNEL of 3"#,
            r#"AllReduce 2, 80 B in "step": KERNEL of 3"#,
            r#"Broadcast 0, 16 B in "step": KERNEL of 3"#,
            r#"Send 0, 20 B in "": KERNEL of 2"#,
            r#"Recv 0, 20 B in "": KERNEL of 2"#,
            r#"Send 1, 24 B in "": KERNEL of 1"#,
            r#"other 0, 28 B in "": KERNEL of 1"#,
        ];
        let expected = expected.map(|line| line.replace("KERNEL", GENERIC));
        assert_eq!(collectives(&profile), expected, "v{version}");
        let kernels: Vec<_> =
            profile.collectives().map(|one| one.kernel().unwrap().number()).collect();
        let mut distinct = kernels.clone();
        distinct.dedup();
        assert_eq!((kernels.len(), distinct.len()), (8, 5), "{kernels:?}");
        let first = profile.collectives().next().unwrap();
        assert_eq!((first.rank(), first.ranks(), first.communicator()), (Some(1), Some(2), 77));
        assert_eq!(
            (first.datatype(), first.algorithm(), first.protocol(), first.channels()),
            (Some("float32"), Some("RING"), Some("SIMPLE"), Some(8))
        );
        assert_eq!(first.communicator_name(), Some("gradients"));
        assert!(first.is_from_plugin());
    }
}

/// A thread of the driver reports the work of graphs, and windows leave calls out.
#[test]
fn collective_without_a_launch_has_no_kernel() {
    let outcome = Run::new().play(
        "init communicator=5/1/0/2 group=AllReduce/1 launch=axpy unlaunched=AllReduce/2 sync",
    );
    let profile = outcome.profile(&outcome.processes[0]);
    let expected = [
        format!(r#"AllReduce 0, 4 B in "": {GENERIC} of 1"#),
        r#"AllReduce 1, 8 B in "": none of 0"#.into(),
    ];
    assert_eq!(collectives(&profile), expected);
}

/// Sends and receives are counted on in a pause: other ranks may record them.
#[test]
fn collectives_are_recorded_in_windows_alone() {
    let run = Run::new().option("start", "range=step");
    let outcome = run.play(
        "init communicator=5/1/0/2 group=AllReduce/1 group=Send/5/0 push=step group=AllReduce/2 \
         group=Send/6/0+Recv/6/0 sync pop group=AllReduce/3 group=Send/7/0 push=step group=Send/8/0 sync pop",
    );
    assert_eq!(outcome.stdout, format!("mask {}\n", 2 | 4 | 2048));
    let profile = outcome.profile(&outcome.processes[0]);
    let expected = [
        r#"AllReduce 1, 8 B in "step": KERNEL of 1"#,
        r#"Send 1, 24 B in "step": KERNEL of 2"#,
        r#"Recv 0, 24 B in "step": KERNEL of 2"#,
        r#"Send 3, 32 B in "step": KERNEL of 1"#,
    ];
    assert_eq!(collectives(&profile), expected.map(|line| line.replace("KERNEL", GENERIC)));
}

/// Null, unknown types, other contexts, texts that are missing.
#[test]
fn nonsense_of_nccl_is_counted_and_harmless() {
    for version in [4, 5] {
        let outcome = Run::new().play(&format!(
            "init communicator={version}/1/0/2 nonsense group=AllReduce/1 sync nonsense"
        ));
        let profile = outcome.profile(&outcome.processes[0]);
        assert_eq!(collectives(&profile), [format!(r#"AllReduce 0, 4 B in "": {GENERIC} of 1"#)]);
    }
}

#[test]
fn plugin_without_a_recording_enables_nothing() {
    let outcome = Run::new().play("init communicator=3/1/0/2 launch=axpy sync");
    assert_eq!(outcome.stdout, "no plugin\n");
    let outcome = Run::new().play("communicator=5/1/0/2 unlaunched=AllReduce/1");
    assert_eq!((outcome.stdout.as_str(), outcome.processes.len()), ("mask 0\n", 0));
    let run = Run::new();
    let output = run
        .command("init communicator=5/1/0/2 group=AllReduce/1 sync")
        .env_remove("GPUPROF_RUN")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "mask 0\n");
}

/// The library's layouts beside NCCL's header, which is no part of this repository: `NCCL_PROFILER_HEADERS` is a folder with
/// `profiler_v4.h` and `profiler_v5.h`, as in `src/include/plugin/profiler` of NCCL.
#[test]
#[ignore = "needs NCCL's headers: NCCL_PROFILER_HEADERS names their folder"]
fn layouts_match_nccls_headers() {
    let headers = env::var_os("NCCL_PROFILER_HEADERS").unwrap();
    let run = Run::new();
    for version in [4, 5] {
        let (source, program) = (run.path.join("offsets.c"), run.path.join("offsets"));
        let lines: String = gpuprof_inject::__private::NCCL_OFFSETS
            .iter()
            .map(|(field, at)| {
                format!("_Static_assert(offsetof(D, {field}) == {at}, \"{field}\");\n")
            })
            .collect();
        let begin = format!(
            "#include <stddef.h>\n#include <stdint.h>\n#include <stdbool.h>\n#include <sys/types.h>\n\
             typedef int ncclResult_t; typedef void* ncclDebugLogger_t; typedef int ncclProfilerEventState_v{version}_t;\n\
             #include \"profiler_v{version}.h\"\ntypedef ncclProfilerEventDescr_v{version}_t D;\n"
        );
        fs::write(&source, format!("{begin}{lines}int main(void) {{ return 0; }}\n")).unwrap();
        let mut cc = Command::new("cc");
        let built =
            cc.arg("-I").arg(&headers).arg(&source).arg("-o").arg(&program).output().unwrap();
        assert!(built.status.success(), "v{version}: {}", String::from_utf8_lossy(&built.stderr));
    }
}

/// A run that keeps its last part, written by these triggers.
fn keeping(part: &str, triggers: &str) -> Run {
    let run = Run::new().option("keep-last", part);
    triggers.lines().fold(run, |run, trigger| run.option("trigger", trigger))
}

/// The files of triggers by name, each as a profile.
fn incidents(folder: &std::path::Path) -> Vec<(String, Profile)> {
    let entries = fs::read_dir(folder.join("incidents")).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    paths.iter().map(|path| (name(path), Profile::load(path).unwrap())).collect()
}

/// Waits until this many incidents are counted: the trigger is found once a period.
fn await_incidents(live: &Live, count: u64) -> Process {
    loop {
        let (_, _, process) = live.ask(Request::Status).unwrap();
        let counts = process.counts;
        if counts.incidents + counts.incidents_left_out >= count {
            return process;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn last_part_is_written_on_request_and_at_the_end() {
    let run = keeping("operations=100", "");
    let steps = "init launch=old*2000 sync sleep=1500 wait push=step launch=new*100 pop sync wait launch=last*100 sync";
    let mut live = Live::start(&run, steps);
    let (state, _, process) = live.ask(Request::Status).unwrap();
    assert_eq!((state, process.has_recording), (State::Recording, false), "nothing is written yet");
    live.go_on();
    let (_, _, process) = live.ask(Request::Snapshot).unwrap();
    let path = run.folder().join(process.recording_name());
    let profile = Profile::load(&path).unwrap();
    let found = kernels(&profile);
    assert_eq!(found.get("step:new"), Some(&100), "{found:?}");
    assert!(found.get(":old").is_none_or(|old| *old < 2000), "{found:?}");
    let operations = found.values().sum::<usize>() as u64;
    assert_eq!((process.counts.operations, process.counts.ranges), (operations, 1));
    assert_eq!(process.counts.bytes, path.metadata().unwrap().len());
    live.end();
    let [process] = &run.processes()[..] else { panic!() };
    assert_eq!((process.state, process.has_recording), (State::Finished, true), "{process:?}");
    assert_eq!(kernels(&Profile::load(&path).unwrap()).get(":last"), Some(&100));
    assert!(!run.folder().join("incidents").exists(), "nothing could have been written there");
}

#[test]
fn last_part_of_an_idle_process_is_retained() {
    let outcome = keeping("seconds=0.2", "").play("init launch=axpy sync sleep=1500");
    let process = outcome.one(State::Finished);
    assert!(process.has_recording && process.reason.is_none(), "{process:?}");
    let profile = Profile::load(outcome.folder.join(process.recording_name())).unwrap();
    assert_eq!(profile.kernels().count(), 0, "it is older than what is kept");
    let outcome = keeping("seconds=0.2", "").play("init");
    assert!(!outcome.one(State::Idle).has_recording);
}

#[test]
fn last_part_is_switched_over_the_socket() {
    let run = keeping("seconds=60", "");
    let mut live = Live::start(
        &run,
        "init launch=first sync wait launch=second sync wait launch=third sync wait",
    );
    assert_eq!(live.ask(Request::Off).unwrap().0, State::Paused);
    live.go_on();
    assert_eq!(live.ask(Request::On).unwrap().0, State::Recording);
    live.ask(Request::Mark { text: "a mark".to_owned() }).unwrap();
    live.go_on();
    let (_, _, process) = live.ask(Request::Snapshot).unwrap();
    let profile = Profile::load(run.folder().join(process.recording_name())).unwrap();
    assert_eq!(kernels(&profile), counts([(":first", 1), (":third", 1)]));
    assert_eq!(profile.marks().count(), 1);
    live.end();
}

#[test]
fn slow_request_among_thousands_is_in_the_file_of_its_incident() {
    // A thread of a busy machine runs again after less.
    let run = keeping("seconds=60", "error\nslow=1.8:request");
    let mut live = Live::start(&run, "init wait serve=20000/14000/1900 sync wait");
    live.go_on();
    let process = await_incidents(&live, 1);
    live.end();
    assert_eq!((process.counts.incidents, process.counts.incidents_left_out), (1, 0));
    let found = incidents(&run.folder());
    let [(name, profile)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(*name, format!("{}-1-slow.gpuprof", process.stem()));
    let slow = |range: &profiler_core::Range<'_>| {
        range.name() == "request" && range.host_time() > Duration::from_millis(1800)
    };
    let slow: Vec<_> = profile.ranges().filter(slow).collect();
    assert!(slow.len() == 1 && slow[0].inclusive().kernels == 1, "{profile}");
    assert!(profile.ranges().any(|range| range.name() == "wait for a lock"));
}

#[test]
fn error_of_cuda_has_a_file_and_the_next_ones_are_counted() {
    let run = keeping("seconds=60", "error");
    let mut live = Live::start(&run, "init launch=before wait fail wait fail sync wait");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(live.ask(Request::Status).unwrap().2.counts.incidents, 0);
    live.go_on();
    await_incidents(&live, 1);
    live.go_on();
    let process = await_incidents(&live, 2);
    live.end();
    assert_eq!((process.counts.incidents, process.counts.incidents_left_out), (1, 1));
    let found = incidents(&run.folder());
    let [(name, profile)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(*name, format!("{}-1-error.gpuprof", process.stem()));
    assert_eq!((profile.totals().failed_calls, profile.totals().kernels), (1, 1), "{profile}");
}

/// What is held does not grow with the requests, which are far more than what is kept.
#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn memory_of_the_last_part_is_bounded() {
    const ROUNDS: usize = 40;
    let run = keeping("operations=2000", "slow=3600:request");
    let steps = "serve=20000/20000/0 sync wait ".repeat(ROUNDS);
    let mut live = Live::start(&run, &format!("init wait {steps}"));
    let mut held = Vec::new();
    for _ in 0..ROUNDS {
        live.go_on();
        held.push(live.resident_kib());
    }
    live.end();
    println!("{held:?} KiB");
    // All of it, at 300 bytes a launch with its range, would be 140 MiB more. Where the machine is busy, segments are larger.
    let least = |part: &[u64]| part.iter().copied().min().unwrap();
    let (early, late) = (least(&held[5..15]), least(&held[ROUNDS - 10..]));
    assert!(late < early + (40 << 10), "{held:?} KiB");
}

#[test]
fn incident_that_cannot_be_written_is_counted_with_the_reason() {
    let run = keeping("seconds=60", "slow=0:request");
    let mut live = Live::start(&run, "init wait serve=1/1/0 sync wait");
    fs::remove_dir(run.folder().join("incidents")).unwrap();
    live.go_on();
    let process = await_incidents(&live, 1);
    assert_eq!((process.counts.incidents, process.state), (0, State::Recording));
    assert!(process.reason.as_deref().unwrap().contains("could not write"), "{process:?}");
    live.end();
    let [process] = &run.processes()[..] else { panic!() };
    assert!(process.has_recording && process.state == State::Finished, "{process:?}");
}

#[test]
fn calls_alone_are_recorded_where_no_window_may_open() {
    let run = Run::new().option("always-on", "calls-only");
    let outcome = run.play("init push=step launch=axpy*30 pop sync sleep=300");
    let process = outcome.one(State::Finished);
    let report = always_on(&outcome, process);
    assert!(report.contains("GPU times are not recorded"), "{report}");
    let row = report.lines().find(|line| line.starts_with("step")).unwrap();
    assert_eq!(row.split_whitespace().nth(2), Some("30"), "{report}");
    assert!(!process.has_recording && process.reason.is_none(), "{process:?}");
}

#[test]
fn settings_of_windows_match_the_variable() {
    let wait = |settings: &str| {
        let run = Run::new().option("start", "range=step");
        let run = run.option("always-on", settings);
        let steps = "push=step launch=axpy pop sleep=10 ".repeat(60);
        let outcome = run.play(&format!(
            "init {steps} push=step sleep=120 pop sleep=100 push=step launch=axpy pop sync"
        ));
        let process = outcome.one(State::Finished);
        (process.counts.windows, always_on(&outcome, process))
    };
    // The programs sleep more than they work.
    let [slow, none, all] = std::thread::scope(|scope| {
        let settings = ["100%,rate=0,slow=0.1", "0%,rate=1", "100%,rate=1"];
        let threads = settings.map(|settings| scope.spawn(move || wait(settings)));
        threads.map(|thread| thread.join().unwrap())
    });
    // No unit is drawn, but the one after the slow one.
    let (windows, report) = slow;
    assert!(windows >= 1 && report.contains("0 of 62 units recorded at random"), "{report}");
    let (windows, report) = none;
    assert!(windows == 0 && report.contains("no window has ended"), "{report}");
    let (windows, report) = all;
    assert!(windows >= 1 && report.contains("GPU time by range, estimated"), "{report}");
}

#[test]
fn graphs_as_intervals_are_for_the_whole_run() {
    let run = Run::new().option("graphs", "whole");
    let live = Live::start(&run, "init launch=axpy sync wait");
    let refused = live.ask(Request::Off).unwrap_err().to_string();
    assert!(refused.contains("whole run"), "{refused}");
    live.end();
    let [process] = &run.processes()[..] else { panic!() };
    let profile = Profile::load(run.folder().join(process.recording_name())).unwrap();
    assert_eq!(kernels(&profile), counts([(":axpy", 1)]));
}

/// A full disk: the program goes on, nothing half-written stays, and each loss has its reason.
#[test]
fn full_disk_harms_neither_the_program_nor_earlier_files() {
    let run = keeping("seconds=60", "slow=0:request");
    let steps = "init launch=early*10 sync wait limit-files=1000 serve=2000/2000/0 sync wait";
    let mut live = Live::start(&run, steps);
    let (_, _, process) = live.ask(Request::Snapshot).unwrap();
    let path = run.folder().join(process.recording_name());
    live.go_on();
    let process = await_incidents(&live, 1);
    // More of the requests may have been tried meanwhile.
    let (written, left_out) = (process.counts.incidents, process.counts.incidents_left_out);
    assert!(written == 0 && left_out >= 1, "{process:?}");
    assert!(process.reason.as_deref().unwrap().contains("could not write"), "{process:?}");
    let refused = live.ask(Request::Snapshot).unwrap_err().to_string();
    assert!(refused.contains("could not write"), "{refused}");
    live.end();
    let [process] = &run.processes()[..] else { panic!() };
    assert_eq!((process.state, process.has_recording), (State::Failed, true), "{process:?}");
    // What was written before is whole, and nothing else is there.
    assert_eq!(kernels(&Profile::load(&path).unwrap()), counts([(":early", 10)]));
    assert_eq!(fs::read_dir(run.folder().join("incidents")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(run.folder()).unwrap().count(), 3, "manifest, recording, incidents");

    let run = Run::new().option("always-on", "calls-only");
    let outcome = run.play("init launch=axpy sync limit-files=8 launch=axpy sync");
    assert_eq!((outcome.status, outcome.processes.len()), (Some(0), 1));
    let names = fs::read_dir(&outcome.folder).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = names.collect();
    assert!(names.iter().all(|name| !name.to_str().unwrap().contains("always-on")), "{names:?}");
}

/// The manifest, or the begin of the recording, is the first write beyond the limit, on the program's own thread.
#[test]
fn limit_of_file_sizes_before_cuda_harms_no_program() {
    for limit in [0, 100, 1000] {
        let outcome = Run::new().play(&format!("limit-files={limit} init launch=axpy sync"));
        assert_eq!(outcome.status, Some(0), "{limit}");
        let failed = |process: &Process| process.state == State::Failed;
        assert!(outcome.processes.iter().all(failed), "{limit}: {:?}", outcome.processes);
    }
}

#[test]
fn names_that_never_repeat_are_counted_in_full_or_as_other() {
    let run = Run::new().option("always-on", "calls-only");
    let outcome = run.play("init names=12000 sync");
    let process = outcome.one(State::Finished);
    let report = always_on(&outcome, process);
    let row = |name: &str| report.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("(all)").contains(" 12000 "), "{report}");
    let other: Vec<_> = row("(other)").split_whitespace().map(str::to_owned).collect();
    assert_eq!(other[1..3], ["2000", "2000"], "instances and submissions beyond 10,000 names");
    assert!(report.contains("2000 ranges, marks and kernels summed up as (other)"), "{report}");
    let outcome = keeping("seconds=60", "").play("init names=12000 sync");
    let profile = outcome.profile(outcome.one(State::Finished));
    assert_eq!((profile.ranges().count(), profile.kernels().count()), (12_000, 12_000));
}
