//! A program that is profiled from outside: this binary starts itself again with `GPU_PROFILER` set.
#![allow(clippy::unwrap_used)] // the helpers are tests too

#[path = "support/folder.rs"]
mod folder;

use std::path::Path;
use std::process::{Command, Output};

use cupti::fake::{Fake, Work};
use profiler_core::{Profile, Profiler, from_env, from_env_with};

/// The program: what it does depends on the variable alone. By itself it is the test of a variable that is not set.
#[test]
fn program() {
    let fake = Fake::new();
    let profiling = from_env_with(|| Profiler::builder().library(fake.library()?).build());
    let expected = std::env::var("EXPECT_RECORDING").is_ok();
    assert_eq!((profiling.is_recording(), fake.is_subscribed()), (expected, expected));
    {
        let _step = nvtx::range("step");
        fake.launch(Work::kernel(c"work"));
    }
    drop(profiling);
    assert!(!fake.is_subscribed());
}

/// The same where there is no GPU, or another tool has it.
#[test]
fn program_that_cannot_record() {
    let fake = Fake::builder().held_by("another tool").build();
    let profiling = from_env_with(|| Profiler::builder().library(fake.library()?).build());
    assert!(!profiling.is_recording());
}

/// With a panic while it is profiled.
#[test]
#[should_panic(expected = "the program fails")]
fn program_that_panics() {
    let fake = Fake::new();
    let _profiling = from_env_with(|| Profiler::builder().library(fake.library()?).build());
    let _step = nvtx::range("doomed");
    assert!(fake.enabled_kinds().len() > 99, "the program fails");
}

/// Without the variable nothing is looked for, found or said, on any machine.
#[test]
fn program_of_this_machine() {
    assert!(!from_env().is_recording());
}

fn run(program: &str, value: &str, recording: bool, folder: &Path) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    // Not captured, as a program's standard error is not.
    command
        .args(["--exact", program, "--nocapture"])
        .current_dir(folder)
        .env("GPU_PROFILER", value);
    if recording {
        command.env("EXPECT_RECORDING", "1");
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn everything_that_is_asked_for_is_written() {
    let kept = folder::Folder::new();
    let folder = kept.0.as_path();
    let value = "report,report=r.txt,snapshot=s.txt,json=j.json,save=run-%p.gpuprof";
    let output = run("program", value, true, folder);
    let (mut names, mut recording) = (Vec::new(), None);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "gpuprof") {
            recording = Some(Profile::load(&path).unwrap());
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            assert!(name.strip_prefix("run-").unwrap().parse::<u32>().is_ok(), "{name}");
        } else {
            names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    names.sort();
    assert_eq!(names, ["j.json", "r.txt", "s.txt"]);
    let recording = recording.unwrap();
    assert_eq!(recording.range("step").unwrap().kernels(), 1);
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(read("r.txt"), format!("{recording}\n"));
    assert_eq!(read("s.txt"), recording.snapshot());
    assert_eq!(read("j.json"), recording.json_lines());
    assert!(stderr(&output).contains(&recording.to_string()), "{output:?}");
}

#[test]
fn without_the_variable_nothing_is_done() {
    let kept = folder::Folder::new();
    let folder = kept.0.as_path();
    for program in ["program", "program_that_cannot_record", "program_of_this_machine"] {
        let output = run(program, "", false, folder);
        assert_eq!(stderr(&output), "");
    }
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
}

#[test]
fn a_word_that_is_not_understood_is_named_and_nothing_is_recorded() {
    let kept = folder::Folder::new();
    let folder = kept.0.as_path();
    let output = run("program", "report=r.txt,sav=x", false, folder);
    let said = stderr(&output);
    assert!(
        said.contains("GPU_PROFILER: `sav` is not understood: write report, report=PATH"),
        "{said}"
    );
    // What a program's own profiler samples is not for the variable to say.
    let said = stderr(&run("program", "report,sample", false, folder));
    assert!(said.contains("GPU_PROFILER: `sample` is not for this program"), "{said}");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
}

#[test]
fn where_nothing_can_be_recorded_the_program_goes_on_and_says_why() {
    let kept = folder::Folder::new();
    let folder = kept.0.as_path();
    let said = stderr(&run("program_that_cannot_record", "report", false, folder));
    assert!(
        said.contains("GPU_PROFILER: nothing is recorded: ") && said.contains("another tool"),
        "{said}"
    );
}

#[test]
fn a_file_that_cannot_be_written_is_named_and_the_others_are_written() {
    let kept = folder::Folder::new();
    let folder = kept.0.as_path();
    let output = run("program", "save=no/such/folder/a.gpuprof,snapshot=s.txt", true, folder);
    let said = stderr(&output);
    assert!(said.contains("GPU_PROFILER: could not write no/such/folder/a.gpuprof: "), "{said}");
    assert!(folder.join("s.txt").exists());
}

#[test]
fn a_panic_does_not_lose_the_profile() {
    let kept = folder::Folder::new();
    let folder = kept.0.as_path();
    run("program_that_panics", "snapshot=s.txt", true, folder);
    let text = std::fs::read_to_string(folder.join("s.txt")).unwrap();
    assert!(text.contains("1 x doomed"), "{text}");
}
