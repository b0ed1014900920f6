//! Reports, exports and differences of recorded files, from the command line.
//!
//! ```text
//! cargo run --release -p gpuprof -- report run.gpuprof
//! ```
//!
//! Results go to standard output or the file of `-o`, messages to standard error. The exit status
//! is 0 for success, 1 for an error, 2 for contradictory arguments, 3 for a failed gate; `run` has
//! that of its program. A reader that closes the output ends the program with success.

mod args;
mod closed;
mod diagnose;
mod diff;
mod doctor;
mod failure;
mod gate;
mod input;
mod kernels;
mod live;
mod output;
mod progress;
mod ranks;
mod roofline;
mod run;
mod scorecard;
mod tables;
mod tracks;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use gpuprof_control::socket::Request;
use profiler_core::formats::Export;
use profiler_core::{Format, Profile};

use args::{Args, Command, ExportFormat, ReportFormat, TextFormat};
use failure::{Failure, note};
use output::Output;

fn main() -> ExitCode {
    match Args::try_parse().map_err(parsed).and_then(|args| {
        input::set_max_bytes(args.max_bytes);
        input::set_inferred(!args.no_inferred);
        run(args.command)
    }) {
        Ok(()) | Err(Failure::Closed) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message().is_empty() {
                note(failure.message());
            }
            ExitCode::from(failure.status())
        }
    }
}

/// Prints `--help` and `--version` as results; other messages of clap exit with its status.
fn parsed(error: clap::Error) -> Failure {
    if error.use_stderr() {
        error.exit();
    }
    let printed = output::standard().and_then(|mut out| {
        error.print()?;
        Ok(out.flush()?)
    });
    printed.err().unwrap_or(Failure::Closed)
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Report { io, format, gate } => {
            let output = io.output(&[])?;
            let profile = input::profile(&io.file)?;
            output.write(|out| {
                match format {
                    ReportFormat::Table => writeln!(out, "{profile}")?,
                    ReportFormat::Json => out.write_all(profile.json_lines().as_bytes())?,
                }
                Ok(())
            })?;
            gate.check(&io.file, &profile)
        }
        Command::Stats(stats) => tables::stats(stats),
        Command::Analyze(analyze) => tables::analyze(analyze),
        Command::Kernels(args) => kernels::kernels(args),
        Command::Tracks(args) => tracks::tracks(args),
        Command::TensorCores(args) => kernels::tensor_cores(args),
        Command::Scorecard(args) => scorecard::scorecard(args),
        Command::Ranks(args) => ranks::ranks(args),
        Command::Diagnose(args) => diagnose::diagnose(args),
        Command::Export { io, format, rank, world_size, samples } => {
            let output = io.output(&[])?;
            output.check(format)?;
            let profile = match format {
                // Some columns need the records.
                ExportFormat::Nsys => input::recorded(&io.file)?,
                _ => input::profile(&io.file)?,
            };
            note_losses(&io.file, &profile);
            export(&profile, format, rank.zip(world_size), samples, &output)
        }
        Command::Html(io) => {
            let output = io.output(&[])?;
            output.refuse_terminal("a page of HTML")?;
            let profile = input::profile(&io.file)?;
            output.write(|out| Ok(profile.write_html(out)?))
        }
        Command::Roofline(args) => roofline::roofline(args),
        Command::Diff(args) => diff::diff(args),
        Command::Gate(args) => gate::gate(args),
        Command::Doctor { format, require } => {
            let support = cupti::support();
            Output::Standard.write(|out| {
                match format {
                    TextFormat::Text => {
                        writeln!(out, "cupti-rs {}\n\n{support}", cupti::version())?;
                    }
                    TextFormat::Json => tables::write_json(out, &doctor::json(&support))?,
                }
                Ok(())
            })?;
            if require && !support.is_ready() {
                return Err(Failure::Gate("GPU profiling is not ready here".to_owned()));
            }
            Ok(())
        }
        Command::Run(args) => run::run(args),
        Command::List(args) => live::list(&args),
        Command::On(args) => live::switch(&args, &Request::On),
        Command::Off(args) => live::switch(&args, &Request::Off),
        Command::Mark { live, text } => live::switch(&live, &Request::Mark { text }),
        Command::Snapshot { report, live } => live::snapshot(&live, report),
        Command::Status { json, live } => live::status(&live, json),
        Command::Completions { shell } => {
            // It panics if it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "gpuprof", &mut script);
            Output::Standard.write(|out| Ok(out.write_all(&script)?))
        }
    }
}

fn export(
    profile: &Profile,
    kind: ExportFormat,
    rank: Option<(u32, u32)>,
    samples: Option<usize>,
    output: &Output,
) -> Result<(), Failure> {
    let format = match kind {
        ExportFormat::Trace(format) => Some(format),
        _ => None,
    };
    let formats = |has: fn(Format) -> bool| {
        let keys = Format::ALL.into_iter().filter(|format| has(*format)).map(Format::key);
        keys.collect::<Vec<_>>().join(", ")
    };
    for (option, is_given, has) in [
        ("--samples", samples.is_some(), Format::has_samples as fn(Format) -> bool),
        ("--rank and --world-size", rank.is_some(), Format::has_rank),
    ] {
        if is_given && !format.is_some_and(has) {
            let formats = formats(has);
            return Err(Failure::Usage(format!("{option}: only for --format {formats}")));
        }
    }
    let format = match kind {
        ExportFormat::Trace(format) => format,
        ExportFormat::Nsys => return output.write_nsys(profile),
        ExportFormat::Json => {
            return output.write(|out| Ok(out.write_all(profile.json_lines().as_bytes())?));
        }
        ExportFormat::Counts => {
            return output.write(|out| Ok(out.write_all(profile.counts().as_bytes())?));
        }
    };
    let mut export = Export::new(format);
    if let Some(samples) = samples {
        export = export.samples(if samples == 0 { usize::MAX } else { samples });
    }
    if let Some((rank, world_size)) = rank {
        if rank >= world_size {
            return Err(Failure::Usage(format!(
                "--rank {rank} is not below --world-size {world_size}: ranks count from 0"
            )));
        }
        export = export.rank(rank, world_size);
    }
    output.write(|out| Ok(profile.export(export, out)?))
}

/// For commands that do not show the health themselves.
fn note_losses(file: &Path, profile: &Profile) {
    let health = profile.health();
    if !health.is_complete() {
        note(&format!("{} is {health}{}", file.display(), of_processes(profile)));
    } else if health.capture_warnings != 0 {
        note(&format!(
            "{}: {} warnings in what its recorder says of itself, {}; `gpuprof report` shows what was read",
            file.display(),
            health.capture_warnings,
            profile.recording_info().recorder_version,
        ));
    }
}

/// What is missing of some processes of a run, for the end of a message.
fn of_processes(profile: &Profile) -> String {
    let of = profile.incomplete_processes().take(NAMED);
    of.map(|(process, missing)| format!("; {process}: {missing}")).collect()
}

/// Processes in a message; the report names more.
const NAMED: usize = 8;
