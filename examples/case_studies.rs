//! Runs four programs before and after a change with a known gain, and compares the gain with the
//! profiler's estimates.
//!
//! ```text
//! cargo run --release -p gpu-profiler-examples --features analysis --example case_studies -- [--save FOLDER] [NAME...]
//! ```
//!
//! For each program it prints the diagnosis before the change, the comparison of both runs, and the
//! diagnosis after the change. Finally it prints the gain without the profiler (the best of five
//! runs) and with it, beside the estimates and their assumptions. A gain may exceed an estimate,
//! because a change often shortens more than the estimate assumes. With `--save` it writes
//! `NAME-before.gpuprof` and `NAME-after.gpuprof` into the folder.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program, not a library

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gpu_profiler_examples::case_studies::CaseStudy;
use gpu_profiler_examples::diseases::Measured;
use gpu_profiler_examples::mlp;
use nvtx::{Dtype, Pipe};
use profiler_analysis::compare;
use profiler_analysis::diagnosis::{Bottleneck, Diagnosis};
use profiler_analysis::prelude::*;
use profiler_core::Profile;
use profiler_core::query::Step;

const USAGE: &str = "Usage: case_studies [--save FOLDER] [NAME...]";

#[derive(Debug, Default)]
struct Args {
    save: Option<PathBuf>,
    names: Vec<String>,
}

fn parse(args: impl IntoIterator<Item = String>) -> Result<Args, String> {
    let mut parsed = Args::default();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        if arg == "--save" {
            parsed.save = Some(args.next().map(PathBuf::from).ok_or("--save needs a folder")?);
        } else if CaseStudy::ALL.iter().any(|case| case.name() == arg) {
            parsed.names.push(arg);
        } else {
            let known = CaseStudy::ALL.map(CaseStudy::name).join(", ");
            return Err(format!("there is no {arg}; there are {known}"));
        }
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(mistake) => {
            eprintln!("case_studies: {mistake}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("case_studies: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    if let Some(why) = mlp::unavailable() {
        return Err(format!("this example needs a GPU: {why}").into());
    }
    if let Some(folder) = &args.save {
        std::fs::create_dir_all(folder)?;
    }
    let is_chosen = |case: &CaseStudy| {
        args.names.is_empty() || args.names.iter().any(|name| name == case.name())
    };
    let mut outcomes = Vec::new();
    for case in CaseStudy::ALL.into_iter().filter(is_chosen) {
        let outcome = study(case, args.save.as_deref());
        outcomes.push(outcome.map_err(|error| format!("{case}: {error}"))?);
    }
    println!("what came of it");
    for outcome in &outcomes {
        println!("{outcome}");
    }
    Ok(())
}

/// Runs one case study before and after the change, prints both, and writes the recordings.
fn study(case: CaseStudy, folder: Option<&Path>) -> Result<Outcome, Box<dyn Error>> {
    let before = case.program(false, 0)?.measure(case.steps())?;
    let after = case.program(true, 0)?.measure(case.steps())?;
    if let Some(folder) = folder {
        before.profile.save(folder.join(format!("{case}-before.gpuprof")))?;
        after.profile.save(folder.join(format!("{case}-after.gpuprof")))?;
    }
    let said = [&before, &after].map(|measured| measured.profile.diagnose());
    println!("=== {case}: {}\n", case.change());
    println!("before: {}\n", said[0]);
    println!("{}\n", compare(&before.profile, &after.profile));
    println!("after: {}\n", said[1]);
    for (state, measured) in [("before", &before), ("after", &after)] {
        println!("{state}: {}\n", measured.profile.scorecard());
    }
    Ok(Outcome::new(case, &before, &after, &said))
}

/// The measured gains of a change, with the estimates made before it.
struct Outcome {
    case: CaseStudy,
    /// Gains without the profiler, by the median step with it, and by the clock of the recording,
    /// on which the estimates are based.
    gains: [f64; 3],
    before: Option<Bottleneck>,
    after: Option<Bottleneck>,
    /// The finding with its assumption, and the estimate.
    estimates: Vec<(String, f64)>,
}

impl Outcome {
    fn new(case: CaseStudy, before: &Measured, after: &Measured, said: &[Diagnosis; 2]) -> Outcome {
        let step = |measured: &Measured| {
            let steps = measured.profile.steps("step");
            steps.statistics(Step::host_time).median().as_secs_f64()
        };
        let clock = |said: &Diagnosis| said.verdict().clock.as_secs_f64();
        let mut estimates = Vec::new();
        // GPU compute cannot be removed, so its estimate is not a proposal.
        let cause = said[0].verdict().cause();
        if let Some(cause) = cause.filter(|cause| cause.bottleneck != Bottleneck::GpuCompute) {
            estimates.push((format!("{}, {}", cause.bottleneck, cause.assumption), cause.estimate));
        }
        if let Some(found) = said[0].findings().iter().find(|found| !found.kind.is_note()) {
            estimates.push((format!("{}, {}", found.kind, found.assumption), found.estimate));
        }
        if let Some(estimate) = on_tensor_cores(&before.profile, &said[0]) {
            estimates.push((
                "if f32 took the time of bf16 at the roof of tensor cores".to_owned(),
                estimate,
            ));
        }
        Outcome {
            case,
            gains: [
                before.alone.as_secs_f64() / after.alone.as_secs_f64(),
                step(before) / step(after),
                clock(&said[0]) / clock(&said[1]),
            ],
            before: said[0].verdict().bottleneck,
            after: said[1].verdict().bottleneck,
            estimates,
        }
    }
}

/// The estimated speed-up of the run if its declared f32 work runs at the bf16 roof.
fn on_tensor_cores(profile: &Profile, said: &Diagnosis) -> Option<f64> {
    let peaks = profile.peaks(None)?;
    let roof = peaks.flops(Dtype::Bf16, Some(Pipe::Tensor))?.roof.peak?;
    let roofline = profile.roofline(&peaks);
    let points = roofline.points.iter().filter(|point| point.dtype == Some(Dtype::F32));
    let (time, flops) = points.fold((0.0, 0.0), |(time, flops), point| {
        (time + point.gpu_time.as_secs_f64(), flops + point.flops.unwrap_or(0.0))
    });
    let clock = said.verdict().clock.as_secs_f64();
    // Amdahl's law: this share of the clock becomes so many times faster.
    let (share, factor) = (time / clock, time * roof / flops);
    (flops > 0.0 && clock > 0.0).then(|| 1.0 / (1.0 - share + share / factor))
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named =
            |bottleneck: Option<Bottleneck>| bottleneck.map_or("no verdict", Bottleneck::text);
        let [alone, step, clock] = self.gains;
        writeln!(f, "{}: {}", self.case, self.case.change())?;
        writeln!(
            f,
            "  {alone:.2}x as fast; with the profiler {step:.2}x by the median step, {clock:.2}x as a whole"
        )?;
        write!(f, "  {} before, {} after", named(self.before), named(self.after))?;
        for (what, estimate) in &self.estimates {
            write!(f, "\n  about {estimate:.2}x faster: {what}")?;
        }
        Ok(())
    }
}
