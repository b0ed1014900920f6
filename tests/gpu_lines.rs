//! Kernels with a known stall on a known line: a session finds both, in the range of the launch, and
//! Nsight Compute gives its lines the same shares.
//!
//! The kernels run in processes of their own, so that a session can begin before the first context.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)] // a test that says what it saw

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};

use gpu_profiler_tests::cuda::Gpu;
use gpu_profiler_tests::planted::{FILE, PLANTED, Planted, lines_of};
use gpu_profiler_tests::{harness, ncu};
use profiler_core::query::SampledPlace;
use profiler_core::{Profile, Profiler, Sampling};

/// The part that this program, started by itself, plays: the file of its recording, or `ncu`.
const PART: &str = "GPU_LINES_PART";

/// Launches of each kernel in a session.
const LAUNCHES: usize = 40;

fn main() -> ExitCode {
    match std::env::var(PART) {
        Ok(part) if part == "ncu" => run_for_ncu(),
        Ok(part) => record(&part),
        Err(_) => {
            let tests: [harness::Test; 1] =
                [("planted_stalls_are_found", planted_stalls_are_found)];
            return harness::run(&tests).exit_code();
        }
    }
    ExitCode::SUCCESS
}

fn run_for_ncu() {
    let planted = Planted::new(Gpu::get());
    planted.gpu.profiler_start();
    (0..PLANTED.len()).for_each(|kernel| planted.launch(kernel));
    planted.gpu.synchronize_context();
    planted.gpu.profiler_stop();
}

fn record(file: &str) {
    let profiler = Profiler::builder().sample(Sampling::instructions()).build().unwrap();
    let recording = profiler.record_to(file).unwrap();
    let planted = Planted::new(Gpu::get());
    for (kernel, (name, _)) in PLANTED.into_iter().enumerate() {
        let _range = nvtx::range(name);
        (0..LAUNCHES).for_each(|_| planted.launch(kernel));
        planted.gpu.synchronize_context();
    }
    recording.finish().unwrap();
}

/// Runs a part of this program.
fn part(value: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(PART, value);
    command
}

fn recorded() -> Profile {
    let folder = std::env::temp_dir().join(format!("gpu-lines-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("run.gpuprof");
    let status = part(file.to_str().unwrap()).status().unwrap();
    assert!(status.success(), "{status}");
    let profile = Profile::load(&file).unwrap();
    if let Some(kept) = std::env::var_os("GPU_LINES_KEEP") {
        std::fs::copy(&file, kept).unwrap();
    }
    std::fs::remove_dir_all(&folder).unwrap();
    profile
}

/// The line in the planted source.
fn planted_line(place: &SampledPlace<'_>) -> Option<u32> {
    place.line.filter(|(file, _)| *file == FILE).map(|(_, line)| line)
}

fn planted_stalls_are_found() {
    let profile = recorded();
    profile.health().assert_complete();
    let counts = profile.instruction_counts().unwrap();
    println!("{counts}");
    if let Some(failure) = counts.failures.first() {
        return eprintln!("not run: {failure}");
    }
    assert!(counts.is_complete() && counts.recorded + counts.non_user <= counts.total, "{counts}");
    let mut wrong = Vec::new();
    let mut shares: BTreeMap<&str, BTreeMap<u32, f64>> = BTreeMap::new();
    for (name, stalls) in PLANTED {
        let all = profile.query().named(name).instructions();
        let of_range = profile.query().in_range(name).named(name).instructions();
        println!(
            "{name}: {:.0} samples, {:.0} in its range, {:.1} % exact: {}",
            all.samples(),
            of_range.samples(),
            100.0 * of_range.exact_share(),
            all.stalls()
        );
        let lines = all.by_line();
        for line in lines.iter().take(4) {
            println!("  {:5.1} % {}: {}", 100.0 * line.share, line.place(), line.stalls);
        }
        let own = lines_of(name);
        let top = lines.first().and_then(planted_line);
        let dominant = all.stalls().dominant();
        let is_right = top.is_some_and(|line| own.contains(&line))
            && dominant.is_some_and(|stall| stalls.contains(&stall));
        if !is_right {
            wrong.push(format!("{name}: line {top:?} of {own:?}, {dominant:?} of {stalls:?}"));
        }
        // Each kernel ran in its range alone.
        assert!((of_range.samples() - all.samples()).abs() < 1e-6 * all.samples(), "{name}");
        let by_line = lines.iter().filter_map(|line| Some((planted_line(line)?, line.share)));
        shares.insert(name, by_line.collect());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    match ncu::find() {
        Ok(_) => {}
        Err(why) => eprintln!("nothing is compared: {why}"),
    }
}
