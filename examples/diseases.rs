//! Runs nine programs that are slow for a known reason, and their cured twins, and records them.
//!
//! ```text
//! cargo run --release -p gpu-profiler-examples --example diseases -- FOLDER [NAME...]
//! ```
//!
//! For each it writes `NAME-ill.gpuprof` and `NAME-cured.gpuprof` into the folder, which it creates if needed, and prints how long the steps took
//! without the profiler (the best of five runs) and with it.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program, not a library

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gpu_profiler_examples::diseases::{Disease, Measured, Program};
use gpu_profiler_examples::mlp;

const USAGE: &str = "Usage: diseases FOLDER [NAME...]";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let Some(folder) = args.next().map(PathBuf::from) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let names: Vec<_> = args.map(|name| name.to_string_lossy().into_owned()).collect();
    if let Some(unknown) = names.iter().find(|name| Disease::ALL.iter().all(|d| d.name() != **name))
    {
        let known = Disease::ALL.map(Disease::name).join(", ");
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
    let chosen = |disease: &Disease| names.is_empty() || names.iter().any(|n| n == disease.name());
    for disease in Disease::ALL.into_iter().filter(chosen) {
        for cured in [false, true] {
            if let Err(error) = record(&folder, disease, cured) {
                eprintln!("diseases: {disease}, {}: {error}", state(cured));
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn state(cured: bool) -> &'static str {
    if cured { "cured" } else { "ill" }
}

/// Runs one of them without the profiler and with it, and writes the recording.
fn record(folder: &Path, disease: Disease, cured: bool) -> Result<(), Box<dyn Error>> {
    let steps = disease.steps();
    let Measured { alone, profiled, profile, .. } =
        Program::new(disease, cured, 0)?.measure(steps)?;
    let file = folder.join(format!("{disease}-{}.gpuprof", state(cured)));
    profile.save(&file)?;
    println!(
        "{disease:<20} {:<6} {steps} steps  {:9.3} ms  profiled {:9.3} ms  {} kernels, {} copies, {} bytes",
        state(cured),
        1e3 * alone.as_secs_f64(),
        1e3 * profiled.as_secs_f64(),
        profile.kernels().count(),
        profile.copies().count(),
        std::fs::metadata(&file)?.len(),
    );
    Ok(())
}
