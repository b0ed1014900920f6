//! `gpuprof run` with programs that use no GPU.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use gpuprof_control::manifest::Run;
use gpuprof_control::{Options, RunFolder};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::raw::WithRawSiginfo;
use test_support::program;

use crate::support::{Folder, Ran, ran, wait_until};

/// Stands for the injection library, which no program here loads.
const LIBRARY: &str = env!("CARGO_BIN_EXE_gpuprof");

fn command(folder: &Folder, options: &[&str], program: &[&str]) -> Command {
    let words = ["run", "--inject", LIBRARY].iter().chain(options).chain(&["--"]).chain(program);
    folder.gpuprof(words)
}

fn run(folder: &Folder, options: &[&str], program: &[&str]) -> Ran {
    ran(&mut command(folder, options, program))
}

fn sh(folder: &Folder, options: &[&str], script: &str) -> Ran {
    run(folder, options, &["sh", "-c", script])
}

#[test]
fn the_status_matches_the_program() {
    let folder = Folder::new();
    for (script, status) in [("true", 0), ("false", 1), ("exit 3", 3), ("exit 255", 255)] {
        let ran = sh(&folder, &["--quiet"], script);
        assert_eq!((ran.status, ran.signal, ran.error.as_str()), (Some(status), None, ""));
    }
    assert_eq!(folder.runs(), [""; 0], "runs without recordings are removed");
}

#[test]
fn a_signal_that_ends_the_program_ends_gpuprof() {
    let folder = Folder::new();
    for signal in [9, 15, 2, 1, 6, 11, 10] {
        let ran = sh(&folder, &["-q"], &format!("ulimit -c 0; kill -{signal} $$"));
        assert_eq!((ran.status, ran.signal, ran.error.as_str()), (None, Some(signal), ""));
    }
    assert!(!folder.path("core").exists());
}

#[test]
fn standard_streams_belong_to_the_program() {
    let folder = Folder::new();
    let mut child = command(&folder, &["-q"], &["sh", "-c", "cat; echo wrong >&2"]);
    child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let bytes: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    let mut stdin = child.stdin.take().unwrap();
    let written = bytes.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&written).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.stdout == bytes);
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b"wrong\n"[..]));
    // Notes do not go to standard output either.
    let ran = sh(&folder, &[], "echo result");
    assert_eq!((ran.status, ran.out.as_str()), (Some(0), "result\n"));
    assert!(ran.error.starts_with("gpuprof: no process called CUDA"), "{}", ran.error);
    assert_eq!(ran.error.lines().count(), 1);
}

#[test]
fn self_recording_program_is_not_reported_as_without_gpu_work() {
    let folder = Folder::new();
    let manifest = r#"{"version": 1, "gpuprof": "0.1.0", "pid": 41, "start": 5, "parent": 1, "program": "service",
        "began": {"wall_ns": 1, "monotonic_ns": 1}, "state": "yielded", "reason": "the program records itself", "has_recording": false}"#;
    let script = format!("cat >$GPUPROF_RUN/process-41-5.json <<'END'\n{manifest}\nEND");
    let ran = sh(&folder, &[], &script);
    assert_eq!(ran.status, Some(0));
    assert!(ran.error.contains("41 (service) records itself with profiler-core"), "{}", ran.error);
    assert!(!ran.error.contains("used the GPU"), "{}", ran.error);
}

#[test]
fn words_after_the_program_are_its_own() {
    let folder = Folder::new();
    let words = ["run", "--inject", LIBRARY, "-q", "echo", "-q", "--start", "x", "--", "-o"];
    assert_eq!(ran(&mut folder.gpuprof(words)).out, "-q --start x -- -o\n");
}

#[test]
fn the_program_gets_the_variables_of_its_options_and_no_stale_ones() {
    let folder = Folder::new();
    let print = "env | grep -E '^(GPUPROF|CUDA_INJ|NVTX_INJ|NCCL_PROF)' | LC_ALL=C sort";
    let library = fs::canonicalize(LIBRARY).unwrap();
    let library = library.display();
    let variables = |options: &[&str]| {
        let mut command = command(
            &folder,
            &[&["-q", "--force", "-o", "run"], options].concat(),
            &["sh", "-c", print],
        );
        let out = ran(command.env("GPUPROF_STOP", "stale").env("GPUPROF_OPTIONS", "stale")).out;
        let run = folder.path("run").canonicalize().unwrap();
        let rest = out.strip_prefix(&format!("CUDA_INJECTION64_PATH={library}\n")).unwrap();
        let end = format!("NCCL_PROFILER_PLUGIN={library}\nNVTX_INJECTION64_PATH={library}\n");
        let rest = rest.replacen(&end, "", 1);
        let of_run = format!("GPUPROF_RUN={}\n", run.display());
        assert!(rest.contains(&of_run), "{rest}");
        rest.replacen(&of_run, "", 1)
    };
    for (options, expected) in [
        (&[][..], "start=now"),
        (&["--start", "wait"], "start=wait"),
        (&["--start", "after=2.5"], "start=after=2.5"),
        (&["--delay", "2", "--duration", "0.5"], "start=after=2,stop=duration=0.5"),
        (&["--range", "my step", "--ranges", "3"], "start=range=my step,stop=ranges=3"),
        (&["--always-on"], "start=now,always-on=3%"),
        (&["--always-on=0.5%", "--range", "step"], "start=range=step,always-on=0.5%"),
        (
            &["--always-on=1%", "--range=step", "--rate=0.1", "--slow=step=20ms"],
            "start=range=step,always-on=1%,rate=0.1,slow=0.02",
        ),
        (&["--always-on=calls-only"], "start=now,always-on=calls-only"),
        (
            &["--keep-last=1500ms", "--slow", "a=b=1s", "--on-error"],
            "start=now,keep-last=seconds=1.5,trigger=error,trigger=slow=1:a=b",
        ),
        (&["--keep-last=100000", "--start=wait"], "start=wait,keep-last=operations=100000"),
        (&["--whole-graphs"], "start=now,graphs=whole"),
        (&["--stacks"], "start=now,stacks=0.00002"),
        (&["--host-samples"], "start=now,stacks=0.00002,host-samples=perf"),
        (&["--host-samples=timers", "--stacks=1ms"], "start=now,stacks=0.001,host-samples=timers"),
        (&["--stacks=1ms"], "start=now,stacks=0.001"),
        (&["--lines"], "start=now,lines=65536"),
        (&["--lines=serialized", "--keep-cubins"], "start=now,lines=serialized,cubins=keep"),
        (&["--sample=memory,pcie", "--nvml"], "start=now,sample=memory+pcie,nvml=clocks"),
        (&["--memory-records"], "start=now,memory=allocations"),
        (&["--nvml", "--sample-devices=1,0"], "start=now,nvml=clocks,devices=1+0"),
        (
            &["--sample", "utilization", "--memory-records", "--unified-memory"],
            "start=now,sample=utilization,memory=allocations+managed",
        ),
        (&["--start=cuda-profiler-api"], "start=cuda-profiler-api"),
    ] {
        assert_eq!(variables(options), format!("GPUPROF_OPTIONS={expected}\n"));
    }
    let manifest = RunFolder::open(&folder.path("run")).unwrap().run().unwrap().unwrap();
    assert_eq!((manifest.program.as_str(), manifest.start.as_str()), ("sh", "cuda-profiler-api"));
    assert_eq!(manifest.ended.unwrap().status, Some(0));
}

#[test]
fn options_that_make_no_sense_start_nothing() {
    let folder = Folder::new();
    for options in [
        &["--start", "later"][..],
        &["--always-on=3"],
        &["--always-on", "--start", "wait"],
        &["--always-on", "--duration", "1"],
        &["--always-on", "--keep-last", "1s"],
        &["--always-on", "--slow", "step=1s"],
        &["--always-on", "--slow", "other=1s", "--range", "step"],
        &["--always-on=calls-only", "--rate", "0.1"],
        &["--always-on", "--rate", "2"],
        &["--rate", "0.1"],
        &["--slow", "step=1s"],
        &["--on-error"],
        &["--keep-last", "soon"],
        &["--keep-last", "0"],
        &["--keep-last", "1s", "--range", "step"],
        &["--keep-last", "1s", "--start", "cuda-profiler-api"],
        &["--keep-last", "1s", "--slow", "step"],
        &["--keep-last", "1s", "--slow", "=1s"],
        &["--whole-graphs", "--start", "wait"],
        &["--start", "now", "--delay", "1"],
        &["--delay", "-1"],
        &["--delay", "soon"],
        &["--range", ""],
        &["--duration", "0"],
        &["--duration", "1", "--ranges", "1"],
        &["--ranges", "0", "--range", "a"],
        &["--ranges", "2"],
        &["--ranges", "2", "--start", "wait"],
        &["--lines=16"],
        &["--lines", "--always-on"],
        &["--sample"],
        &["--sample=dram"],
        &["--sample=memory", "--lines"],
        &["--sample-devices=0"],
        &["--nvml", "--sample-devices=0,1,0"],
        &["--nvml", "--sample-devices=first"],
        &["--keep-cubins"],
        &["--keep-cubins", "--lines", "--keep-last", "1s"],
        &["--stats=nonsense"],
        &["--force"],
        &["--quiet", "--diagnose"],
    ] {
        let ran = run(&folder, options, &["touch", "started"]);
        assert_eq!((ran.status, ran.out.as_str()), (Some(2), ""), "{options:?}: {}", ran.error);
        assert!(!ran.error.is_empty());
    }
    assert_eq!(ran(&mut folder.gpuprof(["run"])).status, Some(2));
    assert!(!folder.path("started").exists() && folder.runs().is_empty());
}

#[test]
fn outputs_that_cannot_be_written_start_nothing() {
    let folder = Folder::new();
    let run = |options: &[&str]| run(&folder, options, &["touch", "started"]);
    assert!(run(&["--html", "runtime"]).failure(125).contains("it is a directory"));
    assert!(run(&["-o", "missing/run"]).failure(125).contains("could not create missing/run"));
    fs::write(folder.path("file"), "").unwrap();
    run(&["-o", "file"]).failure(125);
    let earlier = Run::new("python".as_ref(), &Options::new("/"));
    RunFolder::create(&folder.path("run"), &earlier).unwrap();
    let full = run(&["-o", "run"]);
    assert!(
        full.failure(125)
            .ends_with("is not empty: name a new folder, or remove its run with --force\n")
    );
    assert!(!folder.path("started").exists());
    assert_eq!(RunFolder::open(&folder.path("run")).unwrap().run().unwrap(), Some(earlier));
    assert_eq!(run(&["-q", "--force", "-o", "run"]).status, Some(0));
    assert!(folder.path("started").exists() && folder.path("run/run.json").exists());
}

#[test]
fn empty_folder_is_used_as_the_run_folder() {
    let folder = Folder::new();
    fs::create_dir(folder.path("run")).unwrap();
    assert_eq!(sh(&folder, &["-q", "-o", "run"], "kill -9 $$").signal, Some(9));
    let ended = RunFolder::open(&folder.path("run")).unwrap().run().unwrap().unwrap().ended;
    assert_eq!(ended.map(|ended| (ended.status, ended.signal)), Some((None, Some(9))));
}

#[test]
fn programs_that_cannot_be_run_have_the_statuses_of_shells() {
    let folder = Folder::new();
    let script = |name: &str, text: &str, mode| program::write(folder.path(name), text, mode);
    script("plain", "exit 4", 0o755);
    script("locked", "exit 4", 0o644);
    script("orphan", "#!/missing/interpreter\n", 0o755);
    let run = |program: &str| run(&folder, &[], &[program]);
    assert!(run("no-such-program").failure(127).contains("no such program"));
    assert!(run("./missing").failure(127).contains("no such program"));
    assert!(run("./locked").failure(126).contains("no permission to run it"));
    assert!(run("./orphan").failure(126).contains("interpreter"));
    run("./runtime").failure(126);
    // The head of a program for a big-endian machine.
    script("foreign", "\x7fELF\x02\x02\x01\0\0\0\0\0\0\0\0\0\0\x02\0\x16", 0o755);
    assert!(run("./foreign").failure(126).contains("for another machine"));
    // As `execvp` does, and so shells.
    assert_eq!(run("./plain").status, Some(4));
    assert!(folder.runs().is_empty());
}

#[test]
fn word_that_is_no_option_is_not_taken_for_a_program() {
    let folder = Folder::new();
    let ran = run(&folder, &["--durations", "5"], &["true"]);
    let failure = ran.failure(2);
    assert!(failure.contains("--durations is no option of `gpuprof run`"), "{failure}");
    assert!(failure.contains("did you mean --duration?"), "{failure}");
}

#[test]
fn programs_with_the_rights_of_others_are_refused() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can give a program to another user");
        return;
    }
    let folder = Folder::new();
    let copy = |name: &str, uid, gid, mode| {
        program::copy("/bin/true", folder.path(name));
        chown(folder.path(name), Some(uid), Some(gid)).unwrap();
        fs::set_permissions(folder.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    copy("setuid", 65_534, 0, 0o4755);
    copy("setgid", 0, 65_534, 0o2755);
    copy("own", 0, 0, 0o6755);
    let run = |program: &str| run(&folder, &["-q"], &[program]);
    assert!(run("./setuid").failure(126).contains("runs as another user (setuid)"));
    assert!(run("./setgid").failure(126).contains("runs as another group (setgid)"));
    assert_eq!(run("./own").status, Some(0));
}

#[test]
fn another_injected_tool_is_refused() {
    let folder = Folder::new();
    for variable in ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"] {
        let run =
            |tool: &str| ran(command(&folder, &[], &["touch", "started"]).env(variable, tool));
        let other = run("/opt/nsys/libToolsInjection64.so");
        let error = other.failure(125);
        assert!(
            error.starts_with(&format!("{variable}=/opt/nsys/"))
                && error.contains("unset the variable"),
            "{error}"
        );
        assert!(run("/x/libgpuprof_inject.so").failure(125).contains("another `gpuprof run`"));
        assert!(!folder.path("started").exists());
        assert_eq!(run("").status, Some(0));
        fs::remove_file(folder.path("started")).unwrap();
    }
}

#[test]
fn nccl_plugin_of_the_user_is_retained() {
    let folder = Folder::new();
    let print = ["printenv", "NCCL_PROFILER_PLUGIN"];
    let ran = |plugin: &str, options: &[&str]| {
        ran(command(&folder, options, &print).env("NCCL_PROFILER_PLUGIN", plugin))
    };
    let own = ran("/opt/inspector.so", &[]);
    assert_eq!((own.out.as_str(), own.status), ("/opt/inspector.so\n", Some(0)));
    assert!(own.error.contains("NCCL_PROFILER_PLUGIN=/opt/inspector.so stays"), "{}", own.error);
    assert!(!ran("none", &["-q"]).error.contains("stays"));
    let library = fs::canonicalize(LIBRARY).unwrap();
    assert_eq!(ran("", &["-q"]).out, format!("{}\n", library.display()));
}

#[test]
fn library_is_searched_beside_the_program_and_in_lib() {
    let folder = Folder::new();
    let program = folder.path("bin/gpuprof");
    fs::create_dir_all(folder.path("bin")).unwrap();
    fs::create_dir_all(folder.path("lib")).unwrap();
    program::copy(LIBRARY, &program);
    let variable = "CUDA_INJECTION64_PATH";
    let run = |options: &[&str]| {
        let words = [&["run", "-q"], options, &["printenv", variable]].concat();
        let mut command = Command::new(&program);
        command
            .args(words)
            .current_dir(&folder.0)
            .env_remove(variable)
            .env_remove("NVTX_INJECTION64_PATH");
        ran(&mut command)
    };
    let missing = run(&[]);
    let error = missing.failure(125);
    assert!(
        error.contains("bin/libgpuprof_inject.so, ")
            && error.contains("bin/../lib/libgpuprof_inject.so: "),
        "{error}"
    );
    assert!(error.contains("--inject"), "{error}");
    fs::copy("/bin/true", folder.path("lib/libgpuprof_inject.so")).unwrap();
    let real = folder.0.canonicalize().unwrap();
    assert_eq!(run(&[]).out, format!("{}\n", real.join("lib/libgpuprof_inject.so").display()));
    fs::copy("/bin/true", folder.path("bin/libgpuprof_inject.so")).unwrap();
    assert_eq!(run(&[]).out, format!("{}\n", real.join("bin/libgpuprof_inject.so").display()));
    fs::write(folder.path("text"), "no library").unwrap();
    assert!(run(&["--inject", "text"]).failure(125).ends_with("it is no library of 64 bits\n"));
    run(&["--inject", "nowhere"]).failure(125);
    run(&["--inject", "bin"]).failure(125);
}

/// The script writes its pid, then its signals, into files.
const TRAPS: &str = "for s in HUP QUIT TERM USR1 USR2 INT; do trap \"echo $s >> got\" $s; done
    trap 'echo INT >> got; exit 7' INT
    echo $$ > pid; while :; do sleep 0.02; done";

fn start(folder: &Folder, options: &[&str], script: &str) -> (std::process::Child, i32) {
    let mut child = command(folder, options, &["sh", "-c", script]);
    child.stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own, as a shell with job control gives it.
    let child = child.process_group(0).spawn().unwrap();
    let pid = || fs::read_to_string(folder.path("pid")).unwrap_or_default();
    wait_until("the start of the program", || pid().ends_with('\n'));
    (child, pid().trim().parse().unwrap())
}

#[test]
fn signals_sent_to_gpuprof_reach_the_program_once() {
    let folder = Folder::new();
    let (child, _) = start(&folder, &[], TRAPS);
    let gpuprof = Pid::from_raw(child.id().try_into().unwrap());
    let got = || fs::read_to_string(folder.path("got")).unwrap_or_default();
    let mut expected = String::new();
    for signal in [
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGINT,
    ] {
        kill(gpuprof, signal).unwrap();
        expected += &format!("{}\n", signal.as_str().strip_prefix("SIG").unwrap());
        wait_until("the signal", || got() == expected);
    }
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.status, Some(7), "{}", ran.error);
    assert!(ran.error.contains("no process called CUDA"), "the report is printed: {}", ran.error);
    assert_eq!(got(), expected);
}

#[test]
fn an_interrupt_of_both_ends_the_program_and_then_gpuprof() {
    let folder = Folder::new();
    let (child, pid) = start(&folder, &[], "echo $$ > pid; while :; do sleep 0.02; done");
    let group = Pid::from_raw(-i32::try_from(child.id()).unwrap());
    kill(group, Signal::SIGINT).unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.status, ran.signal), (None, Some(2)));
    assert!(ran.error.contains("no process called CUDA"), "the report is printed: {}", ran.error);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

/// The terminal sends it to both, and gpuprof passes it on no second time.
#[test]
fn an_interrupt_of_the_terminal_reaches_the_program_once() {
    let folder = Folder::new();
    let terminal = nix::pty::openpty(None, None).unwrap();
    let program = std::env::current_exe().unwrap();
    let program = [program.to_str().unwrap(), "--ignored", "--exact", "run::count_interrupts"];
    let gpuprof = command(&folder, &["-q"], &program);
    // A session with the terminal of its input.
    let mut session = Command::new("setsid");
    session.arg("--ctty").arg(gpuprof.get_program()).args(gpuprof.get_args());
    session.env_remove("CUDA_INJECTION64_PATH").env_remove("NVTX_INJECTION64_PATH");
    session.current_dir(&folder.0).env(COUNTED, "got").stdout(Stdio::null());
    let mut child = session.stdin(Stdio::from(terminal.slave)).spawn().unwrap();
    wait_until("the start", || folder.path("got").exists());
    fs::File::from(terminal.master).write_all(b"\x03").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
    let of_kernel = format!("{} ", nix::libc::SI_KERNEL);
    assert_eq!(fs::read_to_string(folder.path("got")).unwrap(), of_kernel);
}

/// The variable with the file for [`count_interrupts`].
const COUNTED: &str = "GPUPROF_TEST_COUNTED";

#[test]
#[ignore = "is a process of `an_interrupt_of_the_terminal_reaches_the_program_once`"]
fn count_interrupts() {
    let Some(path) = std::env::var_os(COUNTED) else { return };
    let mut signals = SignalsInfo::<WithRawSiginfo>::new([Signal::SIGINT as i32]).unwrap();
    let mut file = fs::File::create(path).unwrap();
    let first = signals.wait().collect::<Vec<_>>();
    std::thread::sleep(Duration::from_millis(300));
    for info in first.into_iter().chain(signals.pending()) {
        write!(file, "{} ", info.si_code).unwrap();
    }
    std::process::exit(7);
}

#[test]
fn ignored_signals_remain_ignored() {
    let folder = Folder::new();
    // The trap makes the shell ignore them, and what it starts.
    let script = "trap '' INT HUP; exec \"$@\"";
    let inner = "kill -INT $$; kill -HUP $$; grep SigIgn /proc/self/status";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh", LIBRARY, "run", "-q", "--inject", LIBRARY, "sh", "-c", inner]);
    let ran = ran(shell
        .current_dir(&folder.0)
        .env_remove("CUDA_INJECTION64_PATH")
        .env_remove("NVTX_INJECTION64_PATH"));
    let mask = ran.out.trim().strip_prefix("SigIgn:").unwrap();
    assert_eq!((ran.status, u64::from_str_radix(mask.trim(), 16).unwrap() & 0b11), (Some(0), 0b11));
}

#[test]
fn processes_left_behind_are_waited_for_on_request_alone() {
    let folder = Folder::new();
    let made = Command::new("mkfifo").arg(folder.path("gate")).status().unwrap();
    assert!(made.success());
    // With closed outputs, so that the test itself does not wait for it.
    let script = "(exec > /dev/null 2>&1; read line < gate; touch late) & exit 5";
    assert_eq!(sh(&folder, &["-q"], script).status, Some(5));
    assert!(!folder.path("late").exists());
    fs::write(folder.path("gate"), "go\n").unwrap();
    wait_until("the process left behind", || folder.path("late").exists());
    let script = "(exec > /dev/null 2>&1; sleep 0.5; touch later) & (exit 0) & exit 5";
    assert_eq!(sh(&folder, &["-q", "--wait-children"], script).status, Some(5));
    assert!(folder.path("later").exists());
}

#[test]
fn an_interrupt_ends_the_wait_for_processes_left_behind() {
    let folder = Folder::new();
    let script = "sleep 600 > /dev/null 2>&1 & echo $! > pid; exit 5";
    let (mut child, sleeper) = start(&folder, &["--wait-children"], script);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let said = std::thread::spawn(move || lines.next().unwrap().unwrap());
    wait_until("the end", || {
        // The first ones count as the program's own.
        let _ = kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT);
        said.is_finished()
    });
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert!(said.join().unwrap().starts_with("gpuprof: interrupted: "));
    kill(Pid::from_raw(sleeper), Signal::SIGKILL).unwrap();
}

/// Under `ulimit -f 0` nothing can be written.
#[test]
fn limit_of_file_sizes_is_an_error_and_not_the_end() {
    let folder = Folder::new();
    let limited = |words: &str| {
        let script = format!("ulimit -f 0; exec {} {words}", env!("CARGO_BIN_EXE_gpuprof"));
        ran(Command::new("sh").args(["-c", &script]).current_dir(&folder.0))
    };
    let recording =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
    for words in
        ["html", "convert --format=perfetto", "convert --format=nsys", "convert --format=parquet"]
    {
        let failed = limited(&format!("{words} {recording} -o out"));
        assert!(
            failed.failure(1).contains("File too large") || words.contains("nsys"),
            "{}",
            failed.error
        );
    }
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "the folder of sockets alone");
    // The program of a run has the limit, and the signal's default action.
    let refused = limited(&format!("run --inject {LIBRARY} -o run -- sh -c 'exit 3'"));
    assert!(refused.failure(125).contains("File too large"), "{}", refused.error);
}
