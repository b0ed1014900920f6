//! What the host did inside gaps, in unmodified programs whose cause has returned when the gap ends.
#![allow(clippy::panic, clippy::print_stderr)] // the helpers are tests too, and say what was not run

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use profiler_analysis::formats::stacks::{FrameKind, StackRoot};
use profiler_analysis::prelude::*;
use profiler_core::Profile;
use profiler_core::profile::{HostFrame, HostState, SampleSource};
use profiler_core::query::GapSample;

use crate::injected::{OWN, compile, compile_with, gpuprof_run, profile};
use crate::support::{Folder, ran};

const SHORTEST: Duration = Duration::from_micros(20);
/// The causes of `inside.c`, and for those that wait the system calls in which they do.
const CAUSES: [Cause; 11] = [
    ("sleep", &["clock_nanosleep", "nanosleep"]),
    ("busy_loop", &[]),
    ("lock", &["futex"]),
    ("page_faults", &[]),
    ("allocation", &[]),
    ("file_reading", &[]),
    ("decompression", &[]),
    ("channel_wait", &["read"]),
    ("pool_starvation", &["futex"]),
    ("garbage_collection", &[]),
    ("compiled", &[]),
];

fn run(folder: &Folder, options: &[&str], program: &[&str]) -> Profile {
    let options: Vec<_> =
        ["-o", "job", "--force"].into_iter().chain(options.iter().copied()).collect();
    let run = ran(&mut gpuprof_run(folder, &options, program));
    assert_eq!(run.status, Some(0), "{}", run.error);
    let id = run.out.lines().next().unwrap().to_owned();
    let _ = fs::remove_file(format!("/tmp/perf-{id}.map"));
    profile(folder, "job")
}

/// A cause, and the system calls in which it waits.
type Cause = (&'static str, &'static [&'static str]);

/// Of the gaps before the kernels of each cause the time, and the time of the samples that name it.
fn shares(
    profile: &Profile,
    causes: &[Cause],
    names: impl Fn(&str, &[&str], &GapSample<'_>) -> bool,
) -> BTreeMap<&'static str, (Duration, Duration)> {
    let mut named: BTreeMap<&str, (Duration, Duration)> = BTreeMap::new();
    for gap in profile.query().gaps(SHORTEST).iter() {
        let Some(kernel) = gap.after().as_kernel() else { continue };
        let found = causes.iter().find(|(cause, _)| *cause == kernel.name());
        let Some((cause, calls)) = found else { continue };
        let sums = named.entry(cause).or_default();
        sums.0 += gap.duration();
        for sample in gap.samples().iter().filter(|sample| names(cause, calls, sample)) {
            sums.1 += sample.span.duration();
        }
    }
    assert_eq!(named.len(), causes.len(), "{named:?}");
    named
}

/// Runs a program until its samples have named each cause for 95 % of its time: another program may stop the thread outside of the
/// cause's function. Returns the last run.
fn named_in_some_run(
    run: impl Fn() -> Profile,
    causes: &[Cause],
    names: impl Fn(&str, &[&str], &GapSample<'_>) -> bool,
) -> Profile {
    let mut best: BTreeMap<&str, f64> = BTreeMap::new();
    let mut texts = Vec::new();
    for _ in 0..5 {
        let profile = run();
        let named = shares(&profile, causes, &names);
        for (cause, (all, of_cause)) in named {
            let share = of_cause.as_secs_f64() / all.as_secs_f64();
            let best = best.entry(cause).or_default();
            *best = best.max(share);
        }
        let text: Vec<_> =
            best.iter().map(|(cause, share)| format!("{cause} {share:.3}")).collect();
        let text = format!("{}: {}", profile.host_samples(), text.join(", "));
        eprintln!("{text}");
        texts.push(text);
        if best.values().all(|share| *share >= 0.95) {
            return profile;
        }
    }
    panic!("{}", texts.join("\n"));
}

fn has_function(sample: &GapSample<'_>, name: &str) -> bool {
    let frames = sample.stack.map(|stack| stack.frames()).unwrap_or_default();
    frames.iter().any(|frame| frame.function == Some(name))
}

fn waits_in(sample: &GapSample<'_>, calls: &[&str]) -> bool {
    matches!(sample.state, HostState::Waiting { system_call: Some(call), .. } if calls.contains(&call))
}

/// True where the kernel lets perf see all; else says that the test was not run.
fn is_permitted(profile: &Profile) -> bool {
    let samples = profile.host_samples();
    let is_permitted = samples.source == Some(SampleSource::Perf);
    if !is_permitted {
        eprintln!("not run: perf_event_open does not show the kernel here: {samples}");
    }
    is_permitted
}

#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn perf_names_the_function_inside_the_gap() {
    let folder = Folder::new();
    compile(&folder, &format!("{OWN}/inside.c"));
    let record = || run(&folder, &["--host-samples"], &["./inside", "20"]);
    if !is_permitted(&record()) {
        return;
    }
    let profile = named_in_some_run(record, &CAUSES, |cause, _, sample| {
        has_function(sample, &format!("cause_{cause}"))
    });

    // Those that wait have their system call, by range.
    let gaps = profile.query().gaps(SHORTEST);
    let waits = gaps.waits().to_string();
    for (cause, calls) in CAUSES.iter().filter(|(_, calls)| !calls.is_empty()) {
        let is_there = calls.iter().any(|call| waits.contains(&format!("waiting in {call}, ")));
        assert!(is_there, "{cause}: {waits}");
    }

    // The same as weighted stacks, which add up to the gaps.
    let stacks = profile.idle_stacks(StackRoot::Ranges, SHORTEST);
    assert_eq!(stacks.total().idle_time, gaps.time());
    let sleeping = stacks.iter().filter(|stack| {
        let names: Vec<_> = stack.frames.iter().map(|frame| (frame.kind, &*frame.name)).collect();
        names.contains(&(FrameKind::Function, "cause_sleep"))
            && names.contains(&(FrameKind::State, "waiting in clock_nanosleep"))
    });
    let time: Duration = sleeping.map(|stack| stack.weights.idle_time).sum();
    assert!(time > Duration::from_millis(80), "{time:?}");
    let job = folder.path("job");
    let job = job.to_str().unwrap();
    let table = ran(&mut folder.gpuprof(["gaps", job]));
    assert!(table.out.contains("waiting in futex, outside any range"), "{}", table.out);
    assert!(table.out.contains(" samples by perf"), "{}", table.out);
    let diagnosis = ran(&mut folder.gpuprof(["diagnose", job]));
    assert!(diagnosis.out.contains("waiting in futex, in "), "{}", diagnosis.out);
}

/// With seccomp in place of a container that denies perf: by signals where the program uses the CPU, by system calls elsewhere.
#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn timers_name_the_function_inside_the_gap_where_perf_is_denied() {
    let folder = Folder::new();
    compile(&folder, &format!("{OWN}/inside.c"));
    let record = || run(&folder, &["--host-samples=timers"], &["./inside", "60", "denied"]);
    let names = |cause: &str, calls: &[&str], sample: &GapSample<'_>| match calls.is_empty() {
        true => has_function(sample, &format!("cause_{cause}")),
        false => waits_in(sample, calls),
    };
    let profile = named_in_some_run(record, &CAUSES, names);
    let samples = profile.host_samples();
    assert_eq!(samples.source, Some(SampleSource::Timers), "{samples}");
    assert!(samples.failure.unwrap().contains("perf_event_open: "), "{samples}");
}

/// Without perf and signals, system calls alone.
#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn waits_have_system_calls_where_perf_is_denied() {
    let folder = Folder::new();
    compile(&folder, &format!("{OWN}/inside.c"));
    let record = || run(&folder, &["--host-samples"], &["./inside", "60", "denied"]);
    let waiting: Vec<Cause> = CAUSES.into_iter().filter(|(_, calls)| !calls.is_empty()).collect();
    let profile = named_in_some_run(record, &waiting, |_, calls, sample| waits_in(sample, calls));
    let samples = profile.host_samples();
    assert_eq!(samples.source, Some(SampleSource::Waits), "{samples}");
}

/// The causes of `inside.py`, and for that which waits the system calls in which it does.
const PYTHON_CAUSES: [Cause; 4] = [
    ("python", &[]),
    ("unpacking", &[]),
    ("sleep", &["clock_nanosleep", "select", "pselect6"]),
    ("collecting", &[]),
];

/// A Python without perf's trampoline: the interpreter's function, that of a library in C behind a module, or the system call. Nothing tells
/// a collection from other work of a stripped interpreter.
fn names_python(cause: &str, calls: &[&str], sample: &GapSample<'_>) -> bool {
    match cause {
        "python" => has_function(sample, "_PyEval_EvalFrameDefault"),
        "unpacking" => sample.stack.is_some_and(|stack| {
            let modules = stack.frames().into_iter().filter_map(|frame| frame.module);
            stack.to_string().contains("decompress")
                || modules.into_iter().any(|module| module.starts_with("libz"))
        }),
        _ => waits_in(sample, calls),
    }
}

#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn python_names_the_interpreter_and_libraries_inside_the_gap() {
    let programs = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/unmodified/programs");
    let program = format!("{OWN}/inside.py");
    let folder = Folder::new();
    fs::create_dir(folder.path("cuda")).unwrap();
    fake_cuda::install(&folder.path("cuda")).unwrap();
    let words = ["python3", "-B", &program, programs, "60"];
    let record = || run(&folder, &["--host-samples=timers"], &words);
    named_in_some_run(record, &PYTHON_CAUSES[..3], names_python);
}

/// A Python with perf's trampoline, which writes the names of its functions: 3.12 or later. None, with the reason, if none is found.
fn python_with_trampoline() -> Option<String> {
    let mut candidates: Vec<String> =
        ["python3", "python3.12", "python3.13"].map(Into::into).into();
    if let Ok(named) = std::env::var("PYTHON_WITH_TRAMPOLINE") {
        candidates.insert(0, named);
    }
    let versions = std::env::var("HOME").ok().map(|home| format!("{home}/.pyenv/versions"));
    for version in versions.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten() {
        candidates.extend(
            version.ok().map(|entry| entry.path().join("bin/python3").display().to_string()),
        );
    }
    let question =
        "import sys; sys.activate_stack_trampoline('perf'); sys.deactivate_stack_trampoline()";
    let has_it = |python: &String| {
        let mut command = std::process::Command::new(python);
        command.args(["-c", question]).stderr(std::process::Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let found = candidates.iter().find(|python| has_it(python)).cloned();
    if found.is_none() {
        eprintln!("not run: no Python of {candidates:?} has a trampoline for perf");
    }
    found
}

#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn python_with_trampoline_names_its_functions() {
    let Some(python) = python_with_trampoline() else { return };
    let programs = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/unmodified/programs");
    let program = format!("{OWN}/inside.py");
    let folder = Folder::new();
    fs::create_dir(folder.path("cuda")).unwrap();
    fake_cuda::install(&folder.path("cuda")).unwrap();
    let is_cause = |frames: Vec<HostFrame<'_>>, cause: &str| {
        let name = format!("py::cause_{cause}:inside.py");
        frames.iter().any(|frame| frame.function == Some(&*name))
    };

    // Inside the gap, by samples: of perf where that is permitted, else by timers, which see no thread that waits.
    let words = [&*python, "-X", "perf", "-B", &program, programs, "60"];
    let record = || run(&folder, &["--host-samples=timers"], &words);
    let by_timers = !is_permitted(&record());
    named_in_some_run(record, &PYTHON_CAUSES, |cause, calls, sample| {
        match by_timers && !calls.is_empty() {
            true => waits_in(sample, calls),
            false => is_cause(sample.stack.map(|stack| stack.frames()).unwrap_or_default(), cause),
        }
    });

    // At its end, by the stack of the launch.
    let words = [&*python, "-X", "perf", "-B", &program, programs, "10", "ended"];
    let profile = run(&folder, &["--stacks"], &words);
    let mut ended = 0;
    for gap in profile.query().gaps(Duration::from_millis(5)).iter() {
        let Some(kernel) = gap.after().as_kernel() else { continue };
        if PYTHON_CAUSES.iter().any(|(cause, _)| *cause == kernel.name()) {
            let stack = gap.stack().unwrap();
            assert!(is_cause(stack.frames(), kernel.name()), "{}: {stack}", kernel.name());
            assert!(!stack.is_truncated(), "{stack}");
            ended += 1;
        }
    }
    assert_eq!(ended, 20);
}

#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn stripped_program_has_addresses_inside_the_gap() {
    let folder = Folder::new();
    compile_with(&folder, &format!("{OWN}/inside.c"), &["-s"]);
    let profile = run(&folder, &["--host-samples=timers"], &["./inside", "20"]);
    let gaps = profile.query().gaps(SHORTEST);
    let mut own = Duration::ZERO;
    for sample in gaps.iter().flat_map(|gap| gap.samples()) {
        let is_own = sample.stack.is_some_and(|stack| stack.to_string().contains("inside+0x"));
        own += if is_own { sample.span.duration() } else { Duration::ZERO };
    }
    assert!(own > gaps.time() / 2, "{own:?} of {:?}", gaps.time());
}

#[test]
fn run_without_the_option_has_no_samples() {
    let folder = Folder::new();
    compile(&folder, &format!("{OWN}/inside.c"));
    let profile = run(&folder, &["--stacks"], &["./inside", "1"]);
    assert_eq!((profile.host_samples().source, profile.host_samples().parts), (None, 0));
}
