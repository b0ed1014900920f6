//! Host stacks of unmodified C programs.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use profiler_analysis::formats::stacks::{FrameKind, StackRoot};
use profiler_analysis::prelude::*;

use crate::injected::{OWN, compile, compile_with, gpuprof_run, profile};
use crate::support::{Folder, ran};

const SHORTEST: Duration = Duration::from_micros(20);
/// The kernels of `gaps.c`, and the function that each gap before one of them is of.
const CAUSES: [&str; 10] = [
    "sleep",
    "busy_loop",
    "lock",
    "page_faults",
    "allocation",
    "file_reading",
    "channel_wait",
    "pool_starvation",
    "compiled",
    "trampoline",
];

/// Runs `gaps`, and returns its id.
fn run(folder: &Folder) -> String {
    let run = ran(&mut gpuprof_run(folder, &["-o", "job", "--stacks"], &["./gaps"]));
    assert_eq!(run.status, Some(0), "{}", run.error);
    let id = run.out.lines().next().unwrap().to_owned();
    let _ = fs::remove_file(format!("/tmp/perf-{id}.map"));
    id
}

/// Decompression and garbage collection are loops of a program, as the busy one; [`inside`](crate::inside) has them, and Python.
#[test]
fn gaps_name_their_function() {
    let folder = Folder::new();
    compile(&folder, &format!("{OWN}/gaps.c"));
    run(&folder);
    let profile = profile(&folder, "job");
    let counts = profile.host_stacks();
    assert_eq!((counts.missing, counts.truncated, counts.losses.total()), (0, 0, 0), "{counts}");
    // The time of gaps, and that in which the function is on the stack.
    let mut named: BTreeMap<&str, (Duration, Duration)> = BTreeMap::new();
    for gap in profile.query().gaps(SHORTEST).iter() {
        let Some(kernel) = gap.after().as_kernel() else { continue };
        let Some(cause) = CAUSES.into_iter().find(|cause| *cause == kernel.name()) else {
            continue;
        };
        let sums = named.entry(cause).or_default();
        sums.0 += gap.duration();
        let function = format!("cause_{cause}");
        let frames = gap.stack().map(|stack| stack.frames()).unwrap_or_default();
        let is_it = |name: &str| name == function || name == format!("py::{function}:program.py");
        if frames.iter().any(|frame| frame.function.is_some_and(is_it)) {
            sums.1 += gap.duration();
        }
    }
    assert_eq!(named.len(), CAUSES.len(), "{named:?}");
    for (cause, (all, in_function)) in &named {
        let share = in_function.as_secs_f64() / all.as_secs_f64();
        assert!(share >= 0.95, "{cause}: {share:.3} of {all:?}");
        assert!(*all > Duration::from_millis(10), "{cause}: {all:?}");
    }

    // The same as weighted stacks, which add up to the gaps.
    let stacks = profile.idle_stacks(StackRoot::Ranges, SHORTEST);
    let time = profile.query().gaps(SHORTEST).time();
    assert_eq!(stacks.total().idle_time, time);
    let main = stacks.iter().filter(|stack| {
        let is_main = |name: &str| name == "main";
        stack.frames.iter().any(|frame| frame.kind == FrameKind::Function && is_main(&frame.name))
    });
    let in_main: Duration = main.map(|stack| stack.weights.idle_time).sum();
    assert!(in_main >= time.mul_f64(0.95), "{in_main:?} of {time:?}");

    let job = folder.path("job");
    let job = job.to_str().unwrap();
    let folded = ran(&mut folder.gpuprof(["convert", "--format", "folded", "--idle", job]));
    assert_eq!(folded.status, Some(0), "{}", folded.error);
    assert!(folded.out.lines().any(|line| line.contains("main;cause_sleep;host in no CUDA call ")));
    assert!(!folded.out.contains("/secret"), "{}", folded.out);
    let picture = ran(&mut folder.gpuprof(["flamegraph", "--idle=1ms", "-o", "idle.svg", job]));
    assert_eq!(picture.status, Some(0), "{}", picture.error);
    let picture = fs::read_to_string(folder.path("idle.svg")).unwrap();
    assert!(picture.contains("GPU idle time of") && picture.contains("cause_busy_loop"));
    let diagnosis = ran(&mut folder.gpuprof(["diagnose", job]));
    assert!(diagnosis.out.contains("ended by cause_"), "{}", diagnosis.out);
    let refused = ran(&mut folder.gpuprof(["convert", "--format", "perfetto", "--idle", job]));
    assert_eq!(refused.status, Some(2), "{}", refused.error);
}

#[test]
fn stripped_program_has_addresses() {
    let folder = Folder::new();
    compile_with(&folder, &format!("{OWN}/gaps.c"), &["-s"]);
    run(&folder);
    let profile = profile(&folder, "job");
    let mut own = 0;
    for call in profile.calls().filter_map(|call| call.host_stack()) {
        assert!(!call.is_truncated(), "{call}");
        own += u64::from(call.to_string().contains("gaps+0x"));
    }
    assert!(own >= 9 * 5 - 5, "{own}");
}

#[test]
fn run_without_the_option_has_no_stacks() {
    let folder = Folder::new();
    compile(&folder, &format!("{OWN}/gaps.c"));
    let run = ran(&mut gpuprof_run(&folder, &["-o", "job"], &["./gaps"]));
    let _ = fs::remove_file(format!("/tmp/perf-{}.map", run.out.lines().next().unwrap()));
    let profile = profile(&folder, "job");
    assert_eq!(profile.host_stacks().calls, 0);
    // Causes are reported nevertheless.
    assert!(!profile.idle_stacks(StackRoot::Ranges, SHORTEST).is_empty());
}
