//! The results of a run: notes on its processes, the report, and further outputs.

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use gpuprof_control::RunFolder;
use gpuprof_control::manifest::{Process, State};
use gpuprof_control::socket::{Folder, Sockets, sockets};
use profiler_analysis::Format;
use profiler_analysis::diagnosis::Thresholds;
use profiler_analysis::formats::Export;
use profiler_analysis::prelude::*;
use profiler_base::text::printable;
use profiler_core::Profile;

use crate::args::TableFormat;
use crate::export_format::ExportFormat;
use crate::failure::Failure;
use crate::input;
use crate::message::{note, process_label};
use crate::output::Output;
use crate::reports::{self, NamedReport};
use crate::terminal::{self, Text};

use super::summary::Summary;

/// The outputs beside the report. Their files are checked before the program starts.
pub(super) struct Outputs {
    stats: Vec<(String, NamedReport)>,
    diagnose: bool,
    html: Option<Output>,
    perfetto: Option<Output>,
}

impl Outputs {
    pub(super) fn new(
        stats: Option<String>,
        diagnose: bool,
        html: Option<PathBuf>,
        perfetto: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let stats = stats.map_or(Ok(Vec::new()), |names| reports::named_reports(&names))?;
        let open =
            |path: Option<PathBuf>| path.map(|path| Output::new(Some(path), &[])).transpose();
        let (html, perfetto) = (open(html)?, open(perfetto)?);
        if let Some(html) = &html {
            html.refuse_terminal("a page of HTML")?;
        }
        if let Some(perfetto) = &perfetto {
            perfetto.check(ExportFormat::Trace(Format::Perfetto))?;
        }
        Ok(Self { stats, diagnose, html, perfetto })
    }
}

/// Prints the report to standard error. Failures are printed as notes, because the exit status is
/// the program's. Returns false if the run folder has no process manifest.
pub(super) fn print(folder: &RunFolder, outputs: &Outputs, quiet: bool) -> bool {
    remove_sockets();
    let path = folder.path();
    let processes = match folder.processes() {
        Ok(processes) => processes,
        Err(error) => {
            note(&error.to_string());
            return true;
        }
    };
    let found = &processes.found;
    // The folder exists if a trigger could have written a file. It is removed only if empty.
    let _: io::Result<()> = fs::remove_dir(folder.incidents());
    let mut has_sums = false;
    if !quiet {
        has_sums = found.iter().filter(|process| print_always_on(folder, process)).count() != 0;
        found.iter().filter_map(|process| incidents(folder, process)).for_each(|it| note(&it));
    }
    let cut: Vec<_> = found.iter().filter_map(cut).collect();
    if !quiet {
        cut.iter().for_each(|cut| note(cut));
    }
    if !found.iter().any(|process| process.has_recording) {
        processes.unreadable.iter().for_each(|error| note(&error.to_string()));
        let failures = found.iter().filter(|process| process.state == State::Failed);
        failures.for_each(|process| note(&failed(process)));
        let by_itself = found.iter().filter(|process| process.state == State::Yielded);
        let by_itself: Vec<_> = by_itself.map(process_label).collect();
        if !quiet && !by_itself.is_empty() {
            note(&format!(
                "nothing is recorded here: process {} records itself with profiler-core and writes its own recording",
                by_itself.join(", process ")
            ));
        } else if !quiet {
            note(match found.is_empty() {
                true if processes.unreadable.is_empty() => {
                    "no process called CUDA, so nothing is recorded (one that clears its environment or cannot \
                     write to the run folder is not followed: GPUPROF_OPTIONS=log=stderr prints the reason)"
                }
                true => "nothing is recorded that can be read",
                false if !cut.is_empty() => "nothing is recorded",
                false if has_sums => "no window was recorded: the texts above are all there is",
                false => "nothing is recorded: no process used the GPU while recording was on",
            });
        }
        return !found.is_empty() || !processes.unreadable.is_empty();
    }
    if let Err(failure) = report(path, outputs, quiet) {
        note(failure.message());
    }
    // The summary on a terminal names the folder.
    if !quiet && !io::stderr().is_terminal() {
        note(&format!(
            "the recordings are in {0}: `gpuprof report {0}` reads them again",
            shown(path)
        ));
    }
    true
}

/// Removes the sockets of ended processes, which do not remove them.
pub(super) fn remove_sockets() {
    let _: Sockets<'_> = sockets(&Folder::existing().0);
}

/// Describes the files written by triggers of a process.
fn incidents(folder: &RunFolder, process: &Process) -> Option<String> {
    let (count, left_out) = (process.counts.incidents, process.counts.incidents_left_out);
    if count + left_out == 0 {
        return None;
    }
    let (label, path) = (process_label(process), folder.incidents());
    let path = shown(&path);
    let files = format!("process {label}: incidents with a file in {path}: {count}");
    Some(match left_out {
        0 => files,
        _ => format!("{files}; without one, as within 10 s of another: {left_out}"),
    })
}

/// Prints the report of an always-on process. Returns false if there is none.
fn print_always_on(folder: &RunFolder, process: &Process) -> bool {
    let text = match folder.read_always_on(process) {
        Ok(Some(text)) => text,
        Ok(None) => return false,
        Err(error) => {
            note(&error.to_string());
            return false;
        }
    };
    note(&format!("process {}", process_label(process)));
    let mut out = io::BufWriter::new(io::stderr().lock());
    let mut out = Text::new(&mut out, terminal::stderr());
    for line in text.lines() {
        let _: io::Result<()> = writeln!(out, "{}", printable(line));
    }
    true
}

fn failed(process: &Process) -> String {
    let why = process.reason.as_deref().unwrap_or("no reason is given");
    format!("process {} is not recorded: {}", process_label(process), printable(why))
}

/// Describes why a recording is missing, ends before its process, or lacks its last part.
fn cut(process: &Process) -> Option<String> {
    let label = process_label(process);
    let is_alive = process.id.is_alive();
    if !process.state.is_open() {
        None
    } else if !process.has_recording && is_alive {
        Some(format!("process {label} still runs, and has written nothing yet"))
    } else if !process.has_recording {
        Some(format!("process {label} was cut off before it wrote its last part"))
    } else if is_alive {
        Some(format!(
            "process {label} still runs: the report covers the run until now; --wait-children waits for it"
        ))
    } else {
        Some(format!("process {label} was cut off, and its recording ends there"))
    }
}

fn report(path: &Path, outputs: &Outputs, quiet: bool) -> Result<(), Failure> {
    if quiet && outputs.html.is_none() && outputs.perfetto.is_none() {
        return Ok(());
    }
    let profile = input::profile(path)?;
    if !quiet {
        // A closed standard error must not prevent writing the files.
        let _: Result<(), Failure> = print_tables(&profile, path, outputs);
    }
    if let Some(html) = &outputs.html {
        html.write(|out| Ok(profile.write_html(out)?))?;
    }
    if let Some(perfetto) = &outputs.perfetto {
        perfetto.write(|out| Ok(profile.export(Export::new(Format::Perfetto), out)?))?;
    }
    Ok(())
}

fn print_tables(profile: &Profile, path: &Path, outputs: &Outputs) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stderr().lock());
    let mut out = Text::new(&mut out, terminal::stderr());
    writeln!(out)?;
    match io::stderr().is_terminal() {
        true => out.show(&Summary { profile, path: Path::new(&shown(path)) })?,
        false => out.show(profile)?,
    }
    if !outputs.stats.is_empty() {
        writeln!(out)?;
        let reports = outputs.stats.iter();
        let reports = reports.map(|(name, report)| (name.clone(), report.build(profile), None));
        reports::write(&mut out, TableFormat::Table, reports)?;
    }
    if outputs.diagnose {
        writeln!(out)?;
        out.show(&profile.diagnosis(Thresholds::new()).run())?;
    }
    writeln!(out)?;
    Ok(out.flush()?)
}

/// The path relative to the current folder, if it is inside.
fn shown(path: &Path) -> String {
    let current = std::env::current_dir().and_then(|current| current.canonicalize());
    let inner = current.ok().and_then(|current| path.strip_prefix(current).ok());
    inner.filter(|inner| !inner.as_os_str().is_empty()).unwrap_or(path).display().to_string()
}
