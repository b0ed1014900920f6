//! A program that is profiled from outside: this binary starts itself again with `GPU_PROFILER` set.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::fs::Permissions;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output};

use cupti::ActivityKind;
use cupti::sys::abi::CuptiResult;
use fake_cupti::{Fake, When, Work};
use profiler_analysis::from_env;
use profiler_analysis::prelude::*;
use profiler_core::session::{FromEnv, Guard};
use profiler_core::{Profile, Profiler};
use test_support::folder;

fn profiling(fake: &Fake) -> Guard {
    let profiler = || Profiler::builder().library(fake.library()?).build();
    FromEnv::default().json(ProfileExt::json_lines).start_with(profiler)
}

/// The program: what it does depends on the variable alone. By itself it is the test of a variable that is not set.
#[test]
fn program() {
    let fake = Fake::new();
    let profiling = profiling(&fake);
    let expected = std::env::var("EXPECT_RECORDING").is_ok();
    assert_eq!((profiling.is_recording(), fake.is_recording()), (expected, expected));
    {
        let _step = nvtx::range("step");
        fake.launch(Work::kernel(c"work"));
    }
    drop(profiling);
    assert!(!fake.is_recording());
}

/// The same where there is no GPU, or another tool has it.
#[test]
fn program_that_cannot_record() {
    let fake = Fake::builder().held_by("another tool").build();
    let profiling = profiling(&fake);
    assert!(!profiling.is_recording());
}

/// On a machine that refuses hardware counters.
#[test]
fn program_without_rights() {
    let fake = Fake::new();
    fake.fail("cuptiPmSamplingEnable", CuptiResult::INSUFFICIENT_PRIVILEGES, When::Always);
    let profiling =
        FromEnv::default().start_from(Profiler::builder().library(fake.library().unwrap()));
    if profiling.is_recording() {
        let kinds = fake.enabled_kinds();
        assert!(kinds.contains(&ActivityKind::MEMORY2), "{kinds:?}");
        assert!(kinds.contains(&ActivityKind::UNIFIED_MEMORY_COUNTER), "{kinds:?}");
    }
    let _step = nvtx::range("step");
    fake.launch(Work::kernel(c"work"));
}

/// With a panic while it is profiled.
#[test]
#[should_panic(expected = "the program fails")]
fn program_that_panics() {
    let fake = Fake::new();
    let _profiling = profiling(&fake);
    let _step = nvtx::range("doomed");
    assert!(fake.enabled_kinds().len() > 99, "the program fails");
}

/// Ends without a drop, as programs do that exit in the middle.
#[test]
fn program_that_exits() {
    let fake = Fake::new();
    let profiling = profiling(&fake);
    if profiling.is_recording() {
        let _step = nvtx::range("step");
        fake.launch(Work::kernel(c"work"));
        // The thread of the session writes it.
        let is_written =
            |profile: Profile| profile.kernels().count() + profile.ranges().count() == 2;
        while !Profile::load("run.gpuprof").is_ok_and(is_written) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        std::process::exit(0);
    }
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
fn every_requested_file_is_written() {
    let kept = folder::Folder::new();
    let folder = kept.0.as_path();
    let value = "report,report=r.txt,counts=s.txt,json=j.json,save=run-%p.gpuprof";
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
    assert_eq!(read("s.txt"), recording.counts());
    assert_eq!(read("j.json"), recording.json_lines());
    assert!(stderr(&output).contains(&recording.to_string()), "{output:?}");
}

#[test]
fn existing_files_keep_permissions_and_links() {
    let kept = folder::Folder::new();
    let folder = kept.0.as_path();
    let names = ["report", "counts", "json", "save"];
    for name in names {
        let file = folder.join(format!("{name}.old"));
        std::fs::write(&file, "old ".repeat(100_000)).unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o604)).unwrap();
        symlink(format!("{name}.old"), folder.join(name)).unwrap();
    }
    // Whoever has the old file open goes on reading that.
    let open = names.map(|name| std::fs::File::open(folder.join(name)).unwrap());
    run("program", &names.map(|name| format!("{name}={name}")).join(","), true, folder);
    for (name, mut open) in names.into_iter().zip(open) {
        let link = folder.join(name);
        assert_eq!(std::fs::read_link(&link).unwrap(), Path::new(&format!("{name}.old")));
        let about = std::fs::metadata(&link).unwrap();
        assert_eq!((name, about.permissions().mode() & 0o777), (name, 0o604));
        let mut old = String::new();
        open.read_to_string(&mut old).unwrap();
        assert_eq!((name, old.len()), (name, 400_000));
        assert!(!std::fs::read(&link).unwrap().starts_with(b"old "), "{name}");
    }
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 2 * names.len());
    let profile = Profile::load(folder.join("save")).unwrap();
    assert_eq!(profile.kernels().count(), 1);
}

/// A limit of the size of files stops the writers in the middle.
#[test]
fn an_error_in_the_middle_leaves_the_files_that_are_there() {
    let kept = folder::Folder::new();
    let folder = kept.0.as_path();
    let names = ["report", "counts", "json", "save"];
    names.iter().for_each(|name| std::fs::write(folder.join(name), "old").unwrap());
    let value = names.map(|name| format!("{name}={name}")).join(",");
    // The signal that a file is too large would end the program.
    let limited = "trap '' XFSZ; ulimit -f 0; exec \"$0\" --exact program --nocapture";
    let output = Command::new("sh")
        .args(["-c", limited])
        .arg(std::env::current_exe().unwrap())
        .current_dir(folder)
        .env("GPU_PROFILER", value)
        .env("EXPECT_RECORDING", "1")
        .output()
        .unwrap();
    let said = stderr(&output);
    for name in names {
        let line = format!("GPU_PROFILER: could not write {name}: File too large");
        assert!(said.contains(&line), "{line}: {said}");
        assert_eq!(std::fs::read_to_string(folder.join(name)).unwrap(), "old", "{name}");
    }
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), names.len());
}

#[test]
fn file_that_is_recorded_to_is_complete_or_ends_with_the_program() {
    let kept = folder::Folder::new();
    let folder = kept.0.as_path();
    run("program", "record=run.gpuprof", true, folder);
    let profile = Profile::load(folder.join("run.gpuprof")).unwrap();
    profile.health().assert_complete();
    assert_eq!(profile.range("step").unwrap().kernels(), 1);
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
    // Beside other outputs.
    run("program", "counts=s.txt,record=a.gpuprof,record=b.gpuprof", true, folder);
    let counts = std::fs::read_to_string(folder.join("s.txt")).unwrap();
    for name in ["a.gpuprof", "b.gpuprof"] {
        assert_eq!(Profile::load(folder.join(name)).unwrap().counts(), counts);
    }
    run("program_that_exits", "record=run.gpuprof", true, folder);
    let profile = Profile::load(folder.join("run.gpuprof")).unwrap();
    assert_eq!((profile.health().losses.truncated, profile.kernels().count()), (1, 1));
    assert!(profile.ranges().all(|range| range.is_open()));
    let said = stderr(&run("program", "record=no/such/folder/a.gpuprof", false, folder));
    assert!(said.contains("GPU_PROFILER: nothing is recorded: could not write no/such"), "{said}");
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
fn unknown_word_is_named_and_nothing_is_recorded() {
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
fn refused_samplers_are_named_and_the_rest_is_recorded() {
    let kept = folder::Folder::new();
    let folder = kept.0.as_path();
    let value = "save=run.gpuprof,sample=memory+nvlink,nvml=clocks,memory=allocations+managed";
    let said = stderr(&run("program_without_rights", value, false, folder));
    let lines = |start: &str| said.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(lines("GPU_PROFILER: "), 2, "{said}");
    assert!(said.contains("cuptiPmSamplingEnable"), "{said}");
    // Without the library, or built without the feature nvml.
    assert!(said.contains("NVML of device 0: "), "{said}");
    let profile = Profile::load(folder.join("run.gpuprof")).unwrap();
    assert_eq!(profile.range("step").unwrap().kernels(), 1);
    assert_eq!(profile.health().facts.failed_samplers, 2);
    let said = stderr(&run("program_without_rights", "report,sample=dram", false, folder));
    let why = "GPU_PROFILER: `sample=dram`: give utilization, memory, nvlink or pcie";
    assert!(said.contains(why), "{said}");
    let said = stderr(&run("program", "report,memory=managed", false, folder));
    assert!(said.contains("GPU_PROFILER: `memory` is not for this program"), "{said}");
}

#[test]
fn program_without_recording_continues_with_a_reason() {
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
    let output = run("program", "save=no/such/folder/a.gpuprof,counts=s.txt", true, folder);
    let said = stderr(&output);
    assert!(said.contains("GPU_PROFILER: could not write no/such/folder/a.gpuprof: "), "{said}");
    assert!(folder.join("s.txt").exists());
}

#[test]
fn a_panic_does_not_lose_the_profile() {
    let kept = folder::Folder::new();
    let folder = kept.0.as_path();
    run("program_that_panics", "counts=s.txt", true, folder);
    let text = std::fs::read_to_string(folder.join("s.txt")).unwrap();
    assert!(text.contains("1 x doomed"), "{text}");
}
