//! The command lines of the profiler. `gpuprof` records runs, controls live processes, and reports,
//! exports and compares recordings; `cargo gpuprof` records what cargo runs.
//!
//! ```text
//! cargo run --release -p gpuprof -- run.gpuprof
//! cargo run --release -p gpuprof --bin cargo-gpuprof -- run --example train
//! ```
//!
//! Results are written to standard output or the file of `-o`, messages to standard error. The exit
//! status is 0 for success, 1 for an error, 2 for contradictory arguments and 3 for a failed gate.
//! `run` exits with the status of its program, and `calibrate` with that of one that fails. If the reader closes the output, the program ends
//! with success.

mod args;
mod captures;
mod cargo;
mod closed;
mod control;
mod convert;
mod critical_path;
mod diagnose;
mod diff;
mod doctor;
mod explain;
mod export_format;
mod failure;
mod file_names;
mod file_size;
mod gaps;
mod gate;
mod global;
mod input;
mod interference;
mod kernels;
mod lines;
mod live;
mod mcp;
mod message;
mod open;
mod output;
mod part;
mod progress;
mod ranks;
mod reports;
mod roofline;
mod run;
mod scorecard;
mod steps;
mod suggest;
mod terminal;
mod tool;
mod top;
mod tracks;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};
use gpuprof_control::socket::Request;
use profiler_analysis::prelude::*;
use profiler_base::text::{self, printable};
use profiler_core::Profile;

use args::{Args, Command, OutputFormat as _, ReportArgs, ReportFormat, StackArgs, parsed};
use cargo::Task;
use export_format::ExportFormat;
use failure::Failure;
use global::GlobalArgs;
use message::note;
use output::Output;

/// The stack size of the working thread, in bytes. The main thread's stack may be smaller
/// (`ulimit -s`).
const STACK: usize = 8 << 20;

/// The program `gpuprof`, from its arguments to its exit status.
pub fn gpuprof() -> ExitCode {
    start(execute)
}

/// The program `cargo-gpuprof`, which cargo starts for `cargo gpuprof`.
pub fn cargo_gpuprof() -> ExitCode {
    start(|words| match cargo::parse(words)? {
        Task::Gpuprof(words) => execute(words),
        Task::Cargo(args) => {
            set(args.global);
            cargo::run(args.run)
        }
    })
}

fn start(program: fn(Vec<OsString>) -> Result<(), Failure>) -> ExitCode {
    file_size::writes_fail();
    let commanded = move || commanded(program);
    match std::thread::Builder::new().name("gpuprof".to_owned()).stack_size(STACK).spawn(commanded)
    {
        // The panic message has already been printed.
        Ok(thread) => thread.join().unwrap_or(ExitCode::from(101)),
        Err(_) => commanded(),
    }
}

fn commanded(program: fn(Vec<OsString>) -> Result<(), Failure>) -> ExitCode {
    match program(std::env::args_os().collect()) {
        Ok(()) | Err(Failure::Closed) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message().is_empty() {
                note(failure.message());
            }
            ExitCode::from(failure.status())
        }
    }
}

/// Runs a command line of `gpuprof`.
fn execute(words: Vec<OsString>) -> Result<(), Failure> {
    let args = parse(words)?;
    set(args.global);
    run(args.command)
}

fn set(global: GlobalArgs) {
    terminal::set_colours(global.color);
    global.set();
}

/// Parses the command line. A file in place of a command runs `report` on it.
fn parse(mut words: Vec<OsString>) -> Result<Args, Failure> {
    let parse = |words: &[OsString]| {
        let matches = Args::command_with_examples().try_get_matches_from(words);
        matches.and_then(|matches| Args::from_arg_matches(&matches)).map_err(parsed)
    };
    let args = parse(&words)?;
    let Command::File(rest) = &args.command else { return Ok(args) };
    let at = words.len() - rest.len();
    if let Some(file) = rest.first() {
        let is_word = !file.to_string_lossy().contains(['/', '.']) && file != "-";
        if is_word && !Path::new(file).exists() {
            let command = Args::command();
            let known = command.get_subcommands().map(|command| command.get_name());
            let file = file.to_string_lossy();
            let meant = suggest::similar(&file, known) + &suggest::file(Path::new(&*file));
            return Err(Failure::Usage(format!(
                "there is neither a command nor a file {file}: `gpuprof --help` lists the commands{meant}"
            )));
        }
    }
    words.insert(at, "report".into());
    parse(&words)
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Report(args) => report(&args),
        Command::Top(args) => top::top(&args),
        Command::Open(args) => open::open(&args),
        Command::Flamegraph(args) => {
            convert::write_as(ExportFormat::Flamegraph, &args.io, args.stacks)
        }
        Command::Convert(args) => convert::convert(args),
        Command::Stats(stats) => reports::stats(stats),
        Command::Analyze(analyze) => reports::analyze(analyze),
        Command::Kernels(args) => kernels::kernels(args),
        Command::Tracks(args) => tracks::tracks(args),
        Command::TensorCores(args) => kernels::tensor_cores(args),
        Command::Scorecard(args) => scorecard::scorecard(args),
        Command::Ranks(args) => ranks::ranks(args),
        Command::Diagnose(args) => diagnose::diagnose(args),
        Command::Gaps(args) => gaps::gaps(&args),
        Command::Interference(args) => interference::interference(&args),
        Command::Steps(args) => steps::steps(&args),
        Command::Requests(args) => steps::requests(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Lines(args) => lines::lines(&args),
        Command::CriticalPath(args) => critical_path::critical_path(args),
        Command::Html(io) => convert::write_as(ExportFormat::Html, &io, StackArgs::default()),
        Command::Roofline(args) => roofline::roofline(args),
        Command::Diff(args) => diff::diff(args),
        Command::Gate(args) => gate::gate(args),
        Command::Mcp => mcp::mcp(),
        Command::Doctor { format, require } => doctor::doctor(format.get(), require),
        Command::Run(args) => run::run(*args),
        Command::Calibrate(args) => run::calibrate(args),
        Command::List(args) => control::list(&args),
        Command::Live(args) => live::live(&args),
        Command::On(args) => control::switch(&args, &Request::On),
        Command::Off(args) => control::switch(&args, &Request::Off),
        Command::Mark { control, text } => control::switch(&control, &Request::Mark { text }),
        Command::Snapshot { report, control } => control::snapshot(&control, report),
        Command::Status { json, control } => control::status(&control, json),
        Command::Completions { shell } => {
            // `generate` panics if a write fails, so it writes to memory.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "gpuprof", &mut script);
            Output::Standard.write(|out| Ok(out.write_all(&script)?))
        }
        Command::Man { command } => man(command.as_deref()),
        // `parse` has already replaced this command by `report`.
        Command::File(_) => Ok(()),
    }
}

/// Runs `report`. If there are several files, each report is preceded by its file name.
fn report(args: &ReportArgs) -> Result<(), Failure> {
    let (output, format) = (args.io.output()?, args.format.get());
    let files = &args.io.files;
    let mut profiles = Vec::new();
    for file in files {
        profiles.push((file, args.numbers.profile(file)?));
    }
    output.write_in(format.is_for_people(), |out| {
        for (at, (file, profile)) in profiles.iter().enumerate() {
            match format {
                ReportFormat::Table => {
                    if files.len() > 1 {
                        let space = if at == 0 { "" } else { "\n" };
                        writeln!(out, "{space}{}:", printable(&file.to_string_lossy()))?;
                    }
                    out.show(profile)?;
                }
                ReportFormat::Json => {
                    let open = if at == 0 { "[" } else { ",\n" };
                    out.write_all(open.as_bytes())?;
                    report_json(out, file, profile)?;
                }
                ReportFormat::Jsonl => out.write_all(profile.json_lines().as_bytes())?,
            }
        }
        if format == ReportFormat::Json {
            out.write_all(b"]\n")?;
        }
        Ok(())
    })?;
    profiles.iter().try_for_each(|(file, profile)| args.gate.check(file, profile))
}

/// Writes the lines of JSON as one object: the ranges, and the totals from the last line.
fn report_json(out: &mut impl Write, file: &Path, profile: &Profile) -> Result<(), Failure> {
    out.write_all(b"{\"file\":")?;
    text::write_json_pretty(&mut *out, &file.to_string_lossy())?;
    let complete = profile.health().is_complete();
    write!(out, ",\"complete\":{complete},\"ranges\":[")?;
    let lines = profile.json_lines();
    let mut lines = lines.lines();
    let whole = lines.next_back().unwrap_or("null");
    for (at, line) in lines.enumerate() {
        let separator = if at == 0 { "\n" } else { ",\n" };
        write!(out, "{separator}{line}")?;
    }
    Ok(write!(out, "],\n\"whole\":{whole}}}")?)
}

/// Writes the manual page of the program or of a command, for `man -l -`.
fn man(name: Option<&str>) -> Result<(), Failure> {
    let mut command = Args::command_with_examples();
    command.build();
    let page = match name {
        None => command,
        Some(name) => {
            let found = command.find_subcommand(name).cloned();
            let names = command.get_subcommands().map(|command| command.get_name());
            let command = found.ok_or_else(|| {
                let meant = suggest::similar(name, names);
                Failure::Usage(format!("there is no command {name}{meant}"))
            })?;
            // The name of a subcommand contains a space.
            command.display_name(format!("gpuprof-{name}"))
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text)?;
    Output::Standard.write(|out| Ok(out.write_all(&text)?))
}
