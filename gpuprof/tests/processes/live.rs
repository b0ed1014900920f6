//! `list`, `on`, `off`, `mark`, `snapshot`, `status`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use gpuprof_control::manifest::{Process, Run};
use gpuprof_control::{Options, ProcessId, RunFolder};
use serde_json::Value;
use test_support::screen;

use crate::support::{Folder, Served, ran, wait_until};

fn new_run(folder: &Folder, name: &str) -> RunFolder {
    let run = Run::new("python".as_ref(), &Options::new("/run"));
    RunFolder::create(&folder.path(name), &run).unwrap()
}

/// The rows of `gpuprof list --json` of this run.
fn listed(folder: &Folder, run: &RunFolder) -> Vec<Value> {
    let listed = ran(&mut folder.gpuprof(["list", "--json"]));
    assert_eq!(listed.status, Some(0), "{}", listed.error);
    let rows: Vec<Value> = serde_json::from_str(&listed.out).unwrap();
    rows.into_iter().filter(|row| row["run"] == run.path().to_str().unwrap()).collect()
}

#[test]
fn live_processes_are_listed_and_ended_ones_are_not() {
    let folder = Folder::new();
    let run = new_run(&folder, "train.gpurun");
    let mut first = Served::start(&folder, run.path(), Some(0));
    let mut second = Served::start(&folder, run.path(), Some(1));
    let rows = listed(&folder, &run);
    assert_eq!(rows.len(), 2);
    for row in &rows {
        let served = if row["process"]["rank"] == 0 { &first } else { &second };
        assert_eq!((&row["pid"], &row["start"]), (&served.id.pid.into(), &served.id.start.into()));
        assert_eq!((&row["process"]["state"], &row["is_alive"]), (&"waiting".into(), &true.into()));
    }
    let table = ran(&mut folder.gpuprof(["list"])).out;
    let line = table.lines().find(|line| line.contains(&first.pid())).unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!((words[2], words[3], *words.last().unwrap()), ("0", "waiting", "train.gpurun"));
    assert!(table.starts_with(" ") || table.starts_with("pid"), "{table}");
    first.end();
    second.kill();
    assert!(listed(&folder, &run).is_empty());
    let sockets = fs::read_dir(folder.path("runtime/gpuprof")).unwrap().count();
    assert_eq!(sockets, 0, "the socket of a killed process stays");
}

#[test]
fn a_process_is_switched_and_marked_by_its_pid() {
    let folder = Folder::new();
    let run = new_run(&folder, "run");
    let served = Served::start(&folder, run.path(), Some(3));
    let pid = served.pid();
    let says = |args: &[&str], text: &str| {
        let ran = ran(&mut folder.gpuprof(args));
        assert_eq!((ran.status, ran.error.as_str()), (Some(0), ""));
        assert!(ran.out.starts_with(&format!("{pid} (processes")), "{}", ran.out);
        assert!(ran.out.contains(", rank 3): ") && ran.out.ends_with(text), "{} {text}", ran.out);
    };
    let refused = ran(&mut folder.gpuprof(["mark", &pid, "early"]));
    assert!(refused.failure(1).ends_with("refused the request: recording is off\n"));
    says(&["on", &pid], ": recording\n");
    says(&["on", &pid], ": recording, as before\n");
    says(&["mark", &pid, "epoch 3"], ": marked\n");
    let recording = run.recording(&run.processes().unwrap().found[0]);
    says(&["snapshot", &pid], &format!(" bytes, readable until now: {}\n", recording.display()));
    says(&["off", &pid], ": paused\n");
    let status = ran(&mut folder.gpuprof(["status", "--json", &pid]));
    let rows: Value = serde_json::from_str(&status.out).unwrap();
    let process = &rows[0]["process"];
    assert_eq!((&process["state"], &process["counts"]["windows"]), (&"paused".into(), &1.into()));
    let long = ran(&mut folder.gpuprof(["mark", &pid, &"x".repeat(2000)]));
    assert!(long.failure(1).contains("shorten it"));
}

#[test]
fn a_run_is_switched_by_its_path_and_by_its_name() {
    let folder = Folder::new();
    let (run, other) = (new_run(&folder, "job"), new_run(&folder, "other"));
    let mut served: Vec<_> =
        (0..3).map(|rank| Served::start(&folder, run.path(), Some(rank))).collect();
    let bystander = Served::start(&folder, other.path(), None);
    let on = ran(&mut folder.gpuprof(["on", "job"]));
    assert_eq!((on.status, on.out.lines().count()), (Some(0), 3), "{}", on.error);
    // From elsewhere, by name.
    let off = ran(folder.gpuprof(["off", "job"]).current_dir("/"));
    assert_eq!((off.status, off.out.matches(": paused\n").count()), (Some(0), 3), "{}", off.error);
    let rows = listed(&folder, &other);
    assert_eq!((rows.len(), &rows[0]["process"]["state"]), (1, &"waiting".into()));
    assert_eq!(rows[0]["pid"], bystander.id.pid);
    // Processes that have ended are shown, and not asked.
    served[0].end();
    served[1].kill();
    let status = ran(&mut folder.gpuprof(["status", "job"]));
    assert_eq!(status.status, Some(0), "{}", status.error);
    let state = |rank: usize| {
        let pid = served[rank].pid();
        let line = status.out.lines().find(|line| line.trim_start().starts_with(&pid)).unwrap();
        line.split_whitespace().nth(3).unwrap().to_owned()
    };
    assert_eq!([state(0), state(1), state(2)], ["finished", "cut", "paused"]);
    served[2].end();
    let over = ran(&mut folder.gpuprof(["on", "job"]));
    assert!(over.failure(1).contains("no process of "), "{}", over.error);
    assert!(over.error.contains("3 have been"), "{}", over.error);
    let status = ran(&mut folder.gpuprof(["status", "job"]));
    assert_eq!((status.status, status.out.lines().count()), (Some(0), 4), "{}", status.error);
}

/// What people see of live processes fits their terminal, with and without colours.
#[test]
fn each_command_for_live_processes_fits_the_terminal() {
    let folder = Folder::new();
    let run = new_run(&folder, &format!("{}.gpurun", "a-name-of-a-run-".repeat(8)));
    let served: Vec<_> =
        (0..2).map(|rank| Served::start(&folder, run.path(), Some(1_000_000 + rank))).collect();
    let path = run.path().to_str().unwrap();
    let mark = "a long mark ".repeat(30);
    for width in [80, 120] {
        for colour in ["always", "never"] {
            for words in [
                &["list"][..],
                &["on", path],
                &["mark", path, &mark],
                &["snapshot", "--report", path],
                &["status", path],
                &["off", path],
                &["on", "no-such-run"],
                &["mark", &served[0].pid(), "x"],
            ] {
                let what = format!("{words:?} at {width}, colours {colour}");
                let mut command = folder.gpuprof(["--color", colour]);
                let (shown, _) = screen::on_terminal(command.args(words), width);
                assert!(!shown.trim().is_empty(), "{what}");
                assert!(colour == "always" || !shown.contains('\u{1b}'), "{what}: {shown}");
                let shown = screen::stripped(&shown);
                screen::fits(&what, &shown, width);
                if matches!(words[0], "list" | "status") {
                    assert!(served.iter().all(|one| shown.contains(&one.pid())), "{shown}");
                }
            }
        }
    }
}

#[test]
fn two_live_runs_of_one_name_need_a_path() {
    let folder = Folder::new();
    fs::create_dir(folder.path("a")).unwrap();
    fs::create_dir(folder.path("b")).unwrap();
    let name = format!("twice-{}.gpurun", std::process::id());
    let runs = ["a", "b"].map(|parent| new_run(&folder, &format!("{parent}/{name}")));
    let _served = runs.each_ref().map(|run| Served::start(&folder, run.path(), None));
    let ambiguous = ran(&mut folder.gpuprof(["on", &name]));
    let error = ambiguous.failure(1);
    assert!(
        error.contains("several live runs") && error.contains(runs[1].path().to_str().unwrap()),
        "{error}"
    );
    let on = ran(&mut folder.gpuprof(["on", &format!("b/{name}")]));
    assert_eq!((on.status, on.out.lines().count()), (Some(0), 1), "{}", on.error);
}

#[test]
fn target_that_is_no_pid_and_no_run_is_refused() {
    let folder = Folder::new();
    let error = |target: &str| {
        let refused = ran(&mut folder.gpuprof(["on", target]));
        refused.failure(1).to_owned()
    };
    assert!(error("nothing").starts_with("nothing is no pid, no run folder"));
    fs::write(folder.path("file"), "").unwrap();
    assert!(error("file").contains("is no folder"));
    let run = new_run(&folder, "run");
    assert!(error("run").contains("none has called CUDA yet"));
    assert_eq!(error("2147483647"), "there is no process 2147483647\n");
    fs::write(run.path().join("process-1-1.json"), "{").unwrap();
    let damaged = ran(&mut folder.gpuprof(["on", "run"]));
    assert_eq!(damaged.error.lines().count(), 2);
    assert!(damaged.error.contains("process-1-1.json is no manifest"), "{}", damaged.error);
}

/// A program that waits for the end of its input, with these variables.
fn waiting(variables: &[(&str, &str)], program: &mut Command) -> std::process::Child {
    let child = program.envs(variables.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::null());
    child.spawn().unwrap()
}

#[test]
fn a_process_without_a_socket_is_refused_with_the_reason() {
    let folder = Folder::new();
    let run = new_run(&folder, "run");
    let run_path = run.path().to_str().unwrap();
    let library = "/usr/lib/libgpuprof_inject.so";
    let reason = |child: &mut std::process::Child, name: &str| {
        let pid = child.id().to_string();
        // Until exec it is a fork of this process.
        wait_until("exec", || {
            fs::read_to_string(format!("/proc/{pid}/comm")).unwrap() == format!("{name}\n")
        });
        let refused = ran(&mut folder.gpuprof(["on", &pid]));
        let error = refused.failure(1).to_owned();
        assert!(error.starts_with(&format!("process {pid} ")), "{error}");
        drop(child.stdin.take());
        child.wait().unwrap();
        error
    };
    let mut plain = waiting(&[], &mut Command::new("cat"));
    assert!(reason(&mut plain, "cat").contains("was not started by `gpuprof run`"));
    let variables = [("GPUPROF_RUN", run_path), ("CUDA_INJECTION64_PATH", library)];
    let mut early = waiting(&variables, &mut Command::new("cat"));
    assert!(reason(&mut early, "cat").contains("has not loaded CUDA: recording"));
    // Its own executable counts as the library.
    let cat = fs::canonicalize("/bin/cat").unwrap();
    let loaded = [("GPUPROF_RUN", run_path), ("CUDA_INJECTION64_PATH", cat.to_str().unwrap())];
    let mut silent = waiting(&loaded, &mut Command::new("cat"));
    assert!(reason(&mut silent, "cat").contains("has the library and no recording"));
    let mut failed = waiting(&loaded, &mut Command::new("cat"));
    let mut process = Process::current().unwrap();
    wait_until("exec", || {
        fs::read_to_string(format!("/proc/{}/comm", failed.id())).unwrap() == "cat\n"
    });
    process.id = ProcessId::from_pid(failed.id()).unwrap();
    process.set_state(gpuprof_control::manifest::State::Failed, Some("no CUPTI was found"));
    run.write_process(&process).unwrap();
    assert!(reason(&mut failed, "cat").ends_with("is not recorded: no CUPTI was found\n"));
    if nix::unistd::geteuid().is_root() {
        let mut other = Command::new("cat");
        other.uid(65_534).gid(65_534);
        let mut other = waiting(&loaded, &mut other);
        assert!(reason(&mut other, "cat").contains("belongs to user 65534"));
    } else {
        println!("skipped: only root can start a process of another user");
    }
}

#[test]
fn a_fork_of_a_recorded_process_is_refused_with_the_reason() {
    let folder = Folder::new();
    let run = new_run(&folder, "run");
    // A subshell is a fork. Its executable counts as the library.
    let shell = fs::canonicalize("/bin/sh").unwrap();
    let variables = [
        ("GPUPROF_RUN", run.path().to_str().unwrap()),
        ("CUDA_INJECTION64_PATH", shell.to_str().unwrap()),
    ];
    let script = "exec 3<&0; (read line <&3; :) & echo $! > pid; wait; :";
    let mut parent = Command::new(&shell);
    parent.args(["-c", script]).current_dir(&folder.0);
    let mut parent = waiting(&variables, &mut parent);
    let pid = || fs::read_to_string(folder.path("pid")).unwrap_or_default();
    wait_until("the fork", || pid().ends_with('\n'));
    let mut process = Process::current().unwrap();
    process.id = ProcessId::from_pid(parent.id()).unwrap();
    run.write_process(&process).unwrap();
    let refused = ran(&mut folder.gpuprof(["on", pid().trim()]));
    let error = refused.failure(1);
    assert!(error.contains(&format!("is a fork of process {}", parent.id())), "{error}");
    drop(parent.stdin.take());
    parent.wait().unwrap();
}

#[test]
fn a_stopped_process_times_out() {
    let folder = Folder::new();
    let run = new_run(&folder, "run");
    let served = Served::start(&folder, run.path(), None);
    let pid = served.pid();
    let kill =
        |signal| assert!(Command::new("kill").args([signal, &*pid]).status().unwrap().success());
    kill("-STOP");
    let tasks =
        || fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|task| task.unwrap().path());
    let is_stopped = |task: PathBuf| {
        let stat = fs::read_to_string(task.join("stat")).unwrap();
        stat.rsplit_once(')').unwrap().1.trim_start().starts_with('T')
    };
    wait_until("the stop of all threads", || tasks().all(is_stopped));
    let slow = ran(&mut folder.gpuprof(["status", &pid, "--timeout", "0.2"]));
    assert!(slow.failure(1).contains("did not answer in time"));
    let mut command = folder.gpuprof(["status", &pid, "--timeout", "1000"]);
    let mut waiting = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let line = BufReader::new(waiting.stderr.take().unwrap()).lines().next().unwrap().unwrap();
    let expected = format!("gpuprof: waiting for process {pid}, at most 16m 40s (--timeout)");
    assert_eq!(line, expected);
    let listed = ran(&mut folder.gpuprof(["list"]));
    let line = listed.out.lines().find(|line| line.contains(&pid)).unwrap();
    assert!(line.contains("no answer"), "{line}");
    kill("-CONT");
    assert!(waiting.wait().unwrap().success());
    assert_eq!(ran(&mut folder.gpuprof(["status", &pid])).status, Some(0));
}
