//! Kernels with a known stall on a known line: a session finds both, in the range of the launch, and
//! Nsight Compute gives its lines the same shares.
//!
//! The kernels run in processes of their own, so that a session can begin before the first context.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)] // a test that says what it saw

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
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
    let local_bytes = planted.local_bytes();
    assert!(local_bytes[5] >= 512, "{local_bytes:?}");
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
        let recorded = profile.instructions().by_kernel();
        let recorded = recorded.iter().find(|kernel| kernel.kernel.symbol() == name).unwrap();
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
        assert_eq!((of_range.samples(), of_range.exact_share()), (recorded.stalls.total(), 1.0));
        let by_line = lines.iter().filter_map(|line| Some((planted_line(line)?, line.share)));
        shares.insert(name, by_line.collect());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    match ncu::find() {
        Ok(ncu) => beside_ncu(&ncu, &shares),
        Err(why) => eprintln!("nothing is compared: {why}"),
    }
}

/// The largest difference of a line's share from that of `ncu`.
const POINTS: f64 = 0.05;

/// Compares the shares of lines with those of `ncu`'s source counters, of one launch each.
fn beside_ncu(ncu: &Path, shares: &BTreeMap<&str, BTreeMap<u32, f64>>) {
    let theirs = ncu::lines(ncu, &mut part("ncu")).unwrap();
    let mut wrong = Vec::new();
    for (name, own) in shares {
        let lines = &theirs[*name];
        let all: f64 = lines.values().sum();
        let places: BTreeSet<u32> = own.keys().chain(lines.keys()).copied().collect();
        let of = |line: u32| {
            let own = own.get(&line).copied().unwrap_or(0.0);
            (own, lines.get(&line).copied().unwrap_or(0.0) / all)
        };
        let off = |line: u32| (of(line).0 - of(line).1).abs();
        let worst = places.iter().copied().max_by(|a, b| off(*a).total_cmp(&off(*b))).unwrap();
        let (own, other) = of(worst);
        println!(
            "{name}: line {worst} is off most: {:.2} %, ncu {:.2} % of {all:.0} samples",
            100.0 * own,
            100.0 * other
        );
        if off(worst) > POINTS {
            wrong.push(format!("{name}, line {worst}: {own:.3} and {other:.3} of ncu"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
