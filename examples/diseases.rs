//! Runs and records programs with a known anti-pattern or unnecessary wait, and the same programs
//! without it.
//!
//! ```text
//! cargo run --release -p gpu-profiler-examples --example diseases -- FOLDER [NAME...]
//! ```
//!
//! For each anti-pattern it writes `NAME-ill.gpuprof` and `NAME-cured.gpuprof` into the folder,
//! which it creates if needed. For each unnecessary wait it writes `NAME-before.gpuprof` and
//! `NAME-after.gpuprof`. It prints the duration of the steps without the profiler (the best of five
//! runs) and with it.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program, not a library

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gpu_profiler_examples::diseases::{AntiPattern, Measured, Program};
use gpu_profiler_examples::mlp;
use gpu_profiler_examples::overlaps::Overlap;

const USAGE: &str = "Usage: diseases FOLDER [NAME...]";

/// A program to record.
#[derive(Clone, Copy)]
enum Pair {
    AntiPattern(AntiPattern),
    Overlap(Overlap),
}

impl Pair {
    fn all() -> impl Iterator<Item = Pair> {
        let overlaps = Overlap::ALL.map(Pair::Overlap);
        AntiPattern::ALL.map(Pair::AntiPattern).into_iter().chain(overlaps)
    }

    fn name(self) -> &'static str {
        match self {
            Pair::AntiPattern(disease) => disease.name(),
            Pair::Overlap(overlap) => overlap.name(),
        }
    }

    fn steps(self) -> usize {
        match self {
            Pair::AntiPattern(disease) => disease.steps(),
            Pair::Overlap(overlap) => overlap.steps(),
        }
    }

    fn program(self, after: bool) -> Result<Program, Box<dyn Error>> {
        match self {
            Pair::AntiPattern(disease) => Program::new(disease, after, 0),
            Pair::Overlap(overlap) => overlap.program(after, 0),
        }
    }

    fn state(self, after: bool) -> &'static str {
        match (self, after) {
            (Pair::AntiPattern(_), false) => "ill",
            (Pair::AntiPattern(_), true) => "cured",
            (Pair::Overlap(_), false) => "before",
            (Pair::Overlap(_), true) => "after",
        }
    }
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let Some(folder) = args.next().map(PathBuf::from) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let names: Vec<_> = args.map(|name| name.to_string_lossy().into_owned()).collect();
    if let Some(unknown) = names.iter().find(|name| Pair::all().all(|pair| pair.name() != **name)) {
        let known = Pair::all().map(Pair::name).collect::<Vec<_>>().join(", ");
        eprintln!("diseases: there is no {unknown}; there are {known}\n{USAGE}");
        return ExitCode::from(2);
    }
    if let Some(why) = mlp::unavailable() {
        eprintln!("diseases: {why}");
        return ExitCode::FAILURE;
    }
    if let Err(error) = std::fs::create_dir_all(&folder) {
        eprintln!("diseases: cannot create the folder {}: {error}", folder.display());
        return ExitCode::FAILURE;
    }
    let is_chosen = |pair: &Pair| names.is_empty() || names.iter().any(|n| n == pair.name());
    for pair in Pair::all().filter(is_chosen) {
        for after in [false, true] {
            if let Err(error) = record(&folder, pair, after) {
                eprintln!("diseases: {}, {}: {error}", pair.name(), pair.state(after));
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// Runs one program without the profiler and with it, and writes the recording.
fn record(folder: &Path, pair: Pair, after: bool) -> Result<(), Box<dyn Error>> {
    let (name, state, steps) = (pair.name(), pair.state(after), pair.steps());
    let Measured { alone, profiled, profile, .. } = pair.program(after)?.measure(steps)?;
    let file = folder.join(format!("{name}-{state}.gpuprof"));
    profile.save(&file)?;
    println!(
        "{name:<20} {state:<6} {steps} steps  {:9.3} ms  profiled {:9.3} ms  {} kernels, {} copies, {} bytes",
        1e3 * alone.as_secs_f64(),
        1e3 * profiled.as_secs_f64(),
        profile.kernels().count(),
        profile.copies().count(),
        std::fs::metadata(&file)?.len(),
    );
    Ok(())
}
