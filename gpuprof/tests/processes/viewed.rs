//! `gpuprof live`: the terminal view of an unmodified program, and its keys.

use std::fs;
use std::process::{Child, Command, Stdio};

use gpuprof_control::RunFolder;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use profiler_core::Profile;
use test_support::screen::{Interactive, on_terminal_that_goes};

use crate::injected::{OWN, compile, gpuprof_run, profile};
use crate::support::{Folder, ran, wait_until};

/// `gpuprof run` with these ranks of the program `steps`, until its input ends.
fn run(folder: &Folder, options: &[&str], ranks: u32) -> Child {
    compile(folder, &format!("{OWN}/steps.c"));
    // Each rank reads the end of the input of the shell.
    let script = format!(
        "exec 3<&0; for rank in $(seq 0 {}); do RANK=$rank WORLD_SIZE={ranks} ./steps 2000 <&3 & done; wait",
        ranks - 1
    );
    let options: Vec<&str> = ["-q", "-o", "job"].iter().chain(options).copied().collect();
    let mut command = gpuprof_run(folder, &options, &["sh", "-c", &script]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let run = folder.path("job");
    let count = || {
        let processes = RunFolder::open(&run).and_then(|run| run.processes());
        processes.map_or(0, |processes| processes.found.len())
    };
    wait_until("all ranks", || count() == ranks as usize);
    child
}

fn end(mut run: Child) {
    drop(run.stdin.take());
    assert!(run.wait().unwrap().success());
}

fn view(folder: &Folder, target: &str, columns: u16, rows: u16) -> Interactive {
    Interactive::start(&mut folder.gpuprof(["live", target]), columns, rows)
}

#[track_caller]
fn wait_for(view: &Interactive, texts: &[&str]) {
    let mut last = String::new();
    wait_until(&format!("{texts:?}"), || {
        last = view.contents();
        texts.iter().all(|text| last.contains(text))
    });
}

#[test]
fn view_shows_a_running_program_and_keys_control_its_recording() {
    let folder = Folder::new();
    let program = run(&folder, &[], 1);
    let mut view = view(&folder, "job", 80, 24);
    wait_for(&view, &["job  runs for ", "\nstep/forward ", "\ngemm ", " recording ", "q quit"]);
    view.press("m");
    wait_for(&view, &["mark (enter: record, esc: cancel): _"]);
    view.press("epoch 3\r");
    wait_for(&view, &["marked: epoch 3 (1 process)"]);
    view.press("x");
    wait_for(&view, &["stopped: 1 process", " paused "]);
    view.press("s");
    wait_for(&view, &["recording: 1 process", " recording "]);
    view.press("w");
    wait_for(&view, &["written: "]);
    view.press("q");
    let (status, left) = view.wait();
    assert!(status.success() && !left.contains("gemm"), "{left}");
    end(program);
    let profile = profile(&folder, "job");
    profile.health().assert_complete();
    assert_eq!(profile.marks().map(|mark| mark.name()).collect::<Vec<_>>(), ["epoch 3"]);
    assert_eq!(profile.recording().unwrap().windows_ns().len(), 2);
    assert!(profile.range("step/forward").unwrap().kernels() > 0);
}

#[test]
fn all_ranks_are_shown_and_one_is_selected() {
    let folder = Folder::new();
    let program = run(&folder, &[], 3);
    let mut view = view(&folder, "job", 200, 50);
    wait_for(&view, &[" 3 processes", "range (last 10 s)", "gemm", "written", "Fake H200"]);
    // The last rank, from the keys of the arrows.
    view.press("\u{1b}[A");
    wait_for(&view, &["range (rank 2, "]);
    view.press("x");
    wait_for(&view, &["stopped: 1 process", " paused "]);
    view.press("a");
    wait_for(&view, &["range (last 10 s)"]);
    // Interrupted as by Ctrl-C.
    view.press("\u{3}");
    assert!(view.wait().0.success());
    end(program);
    let run = RunFolder::open(&folder.path("job")).unwrap();
    let mut last: Vec<(u32, u64)> = Vec::new();
    for process in run.processes().unwrap().found {
        let profile = Profile::load(run.recording(&process)).unwrap();
        let windows_ns = profile.recording().unwrap().windows_ns();
        last.push((process.rank.unwrap(), windows_ns.last().unwrap().1));
    }
    last.sort_by_key(|(_, end_ns)| *end_ns);
    assert_eq!((last.len(), last[0].0), (3, 2), "the recording of rank 2 ended first: {last:?}");
}

#[test]
fn last_part_is_shown_once_it_is_written() {
    let folder = Folder::new();
    let program = run(&folder, &["--keep-last", "600s"], 1);
    let mut view = view(&folder, "job", 80, 24);
    wait_for(&view, &[" recording ", "rank 0: keeps the last 600 seconds, not written yet; "]);
    assert!(!view.contents().contains("gemm"), "nothing is written yet");
    view.press("w");
    wait_for(&view, &["written: ", "\ngemm ", "rank 0: keeps the last 600 seconds, written "]);
    view.press("q");
    assert!(view.wait().0.success());
    end(program);
}

#[test]
fn always_on_process_shows_its_cost_once_its_report_is_written() {
    let folder = Folder::new();
    let program = run(&folder, &["--always-on"], 1);
    let mut view = view(&folder, "job", 100, 24);
    wait_for(&view, &[" recording "]);
    view.press("w");
    wait_for(&view, &["written: ", " windows; cost: windows ", "budget 3"]);
    view.press("q");
    assert!(view.wait().0.success());
    end(program);
}

#[test]
fn ended_run_is_shown_and_a_signal_restores_the_terminal() {
    let folder = Folder::new();
    end(run(&folder, &[], 1));
    let mut view = view(&folder, "job", 80, 24);
    wait_for(&view, &["job  ended ", ", status 0", " finished ", "\nstep ", "whole recording"]);
    view.press("s");
    wait_for(&view, &["no process of this run is recorded now"]);
    kill(Pid::from_raw(view.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    assert!(view.wait().0.success());
}

/// As after a lost connection.
#[test]
fn view_ends_with_its_terminal() {
    let folder = Folder::new();
    let program = run(&folder, &[], 1);
    let status = on_terminal_that_goes(&mut folder.gpuprof(["live", "job"]), "q quit");
    assert_eq!(status.code(), Some(1), "{status}");
    end(program);
}

#[test]
fn view_without_a_terminal_or_a_run_is_refused() {
    let folder = Folder::new();
    let refused = ran(&mut folder.gpuprof(["live"]));
    assert!(refused.failure(1).contains("`gpuprof status --json RUN`"), "{}", refused.error);
    let (status, text) = view(&folder, "no-such-run", 80, 24).wait();
    assert!(!status.success() && text.contains("no-such-run is no pid, no run folder"), "{text}");
    let mut stranger =
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    wait_until("exec", || {
        fs::read_to_string(format!("/proc/{}/comm", stranger.id())).unwrap() == "cat\n"
    });
    let (status, text) = view(&folder, &stranger.id().to_string(), 80, 24).wait();
    assert!(!status.success() && text.contains("was not started by `gpuprof run`"), "{text}");
    drop(stranger.stdin.take());
    stranger.wait().unwrap();
}
