//! `gpuprof calibrate`, with programs on the fake driver and without CUDA. No test reads a time.

use std::fs;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::injected::{OWN, compile, gpuprof_with_library};
use crate::support::{Folder, Ran, ran, wait_until};

const ARMS: [&str; 5] = ["without", "dormant", "calls_only", "always_on", "recording"];

/// A calibration whose recordings are written to the folder `temporary`.
fn command(folder: &Folder, options: &[&str], program: &[&str]) -> Command {
    fs::create_dir_all(folder.path("temporary")).unwrap();
    let mut command = gpuprof_with_library(folder, "calibrate", options, program);
    command.env("TMPDIR", folder.path("temporary"));
    command
}

fn calibrate(folder: &Folder, options: &[&str], program: &[&str]) -> Ran {
    ran(&mut command(folder, options, program))
}

fn sh(folder: &Folder, options: &[&str], script: &str) -> Ran {
    calibrate(folder, options, &["sh", "-c", script])
}

/// Nothing stays of a calibration.
#[track_caller]
fn is_cleaned_up(folder: &Folder) {
    assert_eq!(fs::read_dir(folder.path("temporary")).unwrap().count(), 0);
    let sockets = fs::read_dir(folder.path("runtime")).unwrap();
    let sockets = sockets.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let sockets: Vec<_> = sockets.flat_map(|path| fs::read_dir(path).unwrap()).collect();
    assert!(sockets.is_empty() && folder.runs().is_empty(), "{sockets:?}");
}

#[test]
fn program_with_cuda_is_recorded_in_each_round() {
    let folder = Folder::new();
    compile(&folder, &format!("{OWN}/commands.c"));
    let script = "echo launch 20 | ./commands";
    let json = sh(&folder, &["--rounds", "2", "--json"], script);
    assert_eq!((json.status, json.error.as_str()), (Some(0), ""));
    let json: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&json["rounds"], &json["recorded_rounds"]), (&json!(2), &json!(2)));
    let arms = json["arms"].as_array().unwrap();
    let names: Vec<_> = arms.iter().map(|arm| arm["arm"].as_str().unwrap()).collect();
    assert_eq!(names, ARMS);
    for arm in arms {
        for times in [&arm["wall"], &arm["cpu"]] {
            assert!(times["median_ns"].is_u64(), "{times}");
            assert_eq!(times["rounds_ns"].as_array().unwrap().len(), 2);
            let is_compared = arm["arm"] != "without";
            assert_eq!(times["ratio"].is_f64(), is_compared, "{times}");
            let bounds = is_compared.then(|| (json!(0.0), json!(null), json!("undecided")));
            let found = times
                .get("low")
                .map(|low| (low.clone(), times["high"].clone(), times["speed"].clone()));
            assert_eq!(found, bounds, "two rounds have no interval");
        }
    }
    is_cleaned_up(&folder);
}

#[test]
fn text_has_both_times_and_notes() {
    let folder = Folder::new();
    let text = sh(&folder, &["--rounds", "2"], "echo nowhere; echo nowhere >&2; cat");
    assert_eq!((text.status, text.error.as_str()), (Some(0), ""));
    for part in [
        "2 rounds; ",
        "wall time  ",
        "CPU time  ",
        "\ncalls only  ",
        "left a recording in 0 of 2 rounds: if the program did not use CUDA",
        "so few rounds have wide intervals, and fewer than 6 have none",
        "the program alone takes less than 5 s",
    ] {
        assert!(text.out.contains(part), "{part}: {}", text.out);
    }
    assert!(!text.out.contains("nowhere"), "{}", text.out);
    is_cleaned_up(&folder);
    let narrow = sh(&folder, &["--rounds", "2", "--width", "60"], "true").out;
    assert!(narrow.lines().all(|line| line.len() <= 60), "{narrow}");
    assert!(narrow.contains("wall time") && narrow.contains("result"), "{narrow}");
    let written = sh(&folder, &["--rounds=2", "--json", "-o", "costs.json"], "true");
    assert_eq!((written.status, written.out.as_str()), (Some(0), ""), "{}", written.error);
    let json: Value =
        serde_json::from_slice(&fs::read(folder.path("costs.json")).unwrap()).unwrap();
    assert_eq!(json["recorded_rounds"], 0);
}

/// Each run appends a line of what it got.
#[test]
fn rounds_run_every_arm_once_in_their_own_order() {
    let folder = Folder::new();
    let script = "echo \"${GPUPROF_OPTIONS-none} ${CUDA_INJECTION64_PATH:+injected}\" >> log";
    assert_eq!(sh(&folder, &["--rounds", "3"], script).status, Some(0));
    let log = fs::read_to_string(folder.path("log")).unwrap();
    let alone = "none ";
    let dormant = "start=wait injected";
    let calls = "start=now,always-on=calls-only injected";
    let always = "start=now,always-on=3% injected";
    let recording = "start=now injected";
    let expected = [
        &[alone][..],
        &[alone, dormant, recording, calls, always],
        &[recording, always, alone, calls, dormant],
        &[calls, always, dormant, recording, alone],
    ];
    assert_eq!(log.lines().collect::<Vec<_>>(), expected.concat());
}

#[test]
fn program_that_fails_ends_the_calibration() {
    let folder = Folder::new();
    let failure = |script: &str, status: i32, expected: &str| {
        let ran = sh(&folder, &[], script);
        let expected = format!("{expected}; run it alone or with `gpuprof run` to see its output");
        assert_eq!(ran.failure(status).trim_end(), expected);
        assert_eq!(ran.out, "");
        is_cleaned_up(&folder);
    };
    failure("exit 3", 3, "warm-up, without: the program ended with exit status: 3");
    failure(
        "case $GPUPROF_OPTIONS in *calls-only*) exit 1;; esac",
        1,
        "round 1 of 9, calls only: the program ended with exit status: 1",
    );
    failure(
        "ulimit -c 0; echo >> runs; [ $(wc -l < runs) = 8 ] && kill -9 $$; true",
        137,
        "round 2 of 9, always on: the program ended with signal: 9 (SIGKILL)",
    );
}

#[test]
fn program_that_cannot_start_has_the_statuses_of_a_run() {
    let folder = Folder::new();
    let failure = |options: &[&str], program: &str, status| {
        calibrate(&folder, options, &[program]).failure(status).to_owned()
    };
    assert!(failure(&[], "no-such-program", 127).contains("no such program"));
    failure(&[], "./runtime", 126);
    let failed = failure(&["--round", "3"], "true", 2);
    assert!(failed.contains("--round is no option of `gpuprof calibrate`"), "{failed}");
    assert!(failed.contains("did you mean --rounds?"), "{failed}");
    let mut command = command(&folder, &[], &["true"]);
    let injected = ran(command.env("CUDA_INJECTION64_PATH", "/opt/other.so"));
    assert!(injected.failure(125).contains("unset the variable"), "{}", injected.error);
    let missing = ran(command.env_remove("CUDA_INJECTION64_PATH").env("TMPDIR", "/missing"));
    assert!(missing.failure(125).contains("set TMPDIR"), "{}", missing.error);
    is_cleaned_up(&folder);
}

#[test]
fn numbers_of_rounds_that_make_no_sense_start_nothing() {
    let folder = Folder::new();
    for rounds in ["0", "1", "101", "1000000000", "1e9", "-1", "", "nan", "99999999999999999999"] {
        let ran = calibrate(&folder, &["--rounds", rounds], &["touch", "started"]);
        assert_eq!((ran.status, ran.out.as_str()), (Some(2), ""), "{rounds}: {}", ran.error);
    }
    assert_eq!(ran(&mut folder.gpuprof(["calibrate"])).status, Some(2));
    assert!(!folder.path("started").exists());
    is_cleaned_up(&folder);
}

/// A signal ends the program, or the calibration after the run in which the program handles it.
#[test]
fn signals_end_the_calibration_and_leave_nothing() {
    for (signal, status, trap) in
        [(Signal::SIGTERM, 143, ""), (Signal::SIGINT, 130, "trap 'exit 0' INT;")]
    {
        let folder = Folder::new();
        let script = format!(
            "{trap} [ -z \"$GPUPROF_OPTIONS\" ] && exit 0; echo >> started; while :; do sleep 0.02; done"
        );
        let mut command = command(&folder, &[], &["sh", "-c", &script]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let started = || fs::read_to_string(folder.path("started")).unwrap_or_default();
        wait_until("the second run of a round", || started() == "\n");
        kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!(ran.failure(status), "round 1 of 9, dormant: interrupted\n");
        assert_eq!(started(), "\n");
        is_cleaned_up(&folder);
    }
}
