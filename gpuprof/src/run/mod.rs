//! `gpuprof run`: runs a program with the injection library and reports its processes.

mod calibrate;
mod carried;
mod library;
mod program;
mod result;
mod summary;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gpuprof_control::manifest::{Ended, Run};
use gpuprof_control::{Options, RunFolder, Start};

use crate::args::{DEFAULT_STATS, RunArgs};
use crate::failure::Failure;
use crate::message::note;
use crate::reports;
use program::{Outcome, Program};
use result::Outputs;

pub(crate) use calibrate::calibrate;
pub(crate) use library::INJECTION_VARIABLE;
pub(crate) use program::ignored as ignored_signals;

/// The minimum age of a thread's last launch for retaining host samples, if --stacks is not given.
const SHORTEST_GAP: Duration = Duration::from_micros(20);
/// The exit status for a failure before the program started, as in `env`, `timeout` and
/// `docker run`.
const NOT_STARTED: u8 = 125;
/// The maximum number of names tried for a run folder.
const MAX_NAMES: u32 = 1000;

pub(crate) fn run(args: RunArgs) -> Result<(), Failure> {
    record(args, Path::new(""), &[])?.end()
}

/// Runs a program with further variables, and prints the report. A run folder that gpuprof names is
/// created in `parent`.
pub(crate) fn record(
    args: RunArgs,
    parent: &Path,
    variables: &[(String, OsString)],
) -> Result<Outcome, Failure> {
    let prepared = Prepared::new(args, parent).map_err(not_started)?;
    prepared.run(variables)
}

/// The failure of a step before the program starts.
pub(crate) fn not_started(failure: Failure) -> Failure {
    match failure {
        Failure::Error(message) => Failure::Run(NOT_STARTED, message),
        failure => failure,
    }
}

/// The prepared run: every step that can fail before the program starts.
struct Prepared {
    program: Program,
    outputs: Outputs,
    folder: RunFolder,
    manifest: Run,
    options: Options,
    library: PathBuf,
    /// True if gpuprof chose the name of the folder.
    is_named: bool,
    quiet: bool,
    wait_children: bool,
}

impl Prepared {
    fn new(mut args: RunArgs, parent: &Path) -> Result<Self, Failure> {
        check_stats(args.stats.as_deref(), &args.program)?;
        let mut options = options(&mut args)?;
        let outputs = Outputs::new(args.stats, args.diagnose, args.html, args.perfetto)?;
        library::refuse_other_tools()?;
        let library = library::find(args.inject)?;
        let program = Program::new(args.program, "run")?;
        let manifest = Run::new(program.path(), &options);
        let (quiet, is_named) = (args.quiet, args.output.is_none());
        let folder = match args.output {
            Some(path) if args.force => RunFolder::replace(&path, &manifest)?,
            Some(path) => RunFolder::create(&path, &manifest).map_err(|error| {
                let hint =
                    if RunFolder::is_at(&path) { ", or remove its run with --force" } else { "" };
                Failure::Error(format!("{error}{hint}"))
            })?,
            None => named_folder(parent, &manifest)?,
        };
        options.run = folder.path().to_owned();
        let wait_children = args.wait_children;
        let prepared = Self {
            program,
            outputs,
            folder,
            manifest,
            options,
            library,
            is_named,
            quiet,
            wait_children,
        };
        match prepared.options.variables() {
            Ok(_) => Ok(prepared),
            Err(error) => {
                prepared.remove_folder();
                Err(error.into())
            }
        }
    }

    fn run(mut self, further: &[(String, OsString)]) -> Result<Outcome, Failure> {
        if self.options.start == Start::Wait && !self.quiet {
            let folder = self.folder.path().display();
            note(&format!("recording starts with `gpuprof on {folder}`"));
        }
        let mut variables: Vec<(&str, _)> = self.options.variables()?;
        variables.extend(library::variables(&self.library, self.quiet).collect::<Vec<_>>());
        variables.extend(further.iter().map(|(name, value)| (&**name, Some(value.clone()))));
        let ended = match self.program.run(&variables, self.wait_children) {
            Ok(ended) => ended,
            Err(failure) => {
                self.remove_folder();
                return Err(failure);
            }
        };
        self.manifest.ended = Some(Ended::now(ended.status.code(), ended.signal()));
        if let Err(error) = self.folder.write_run(&self.manifest) {
            note(&error.to_string());
        }
        let has_recordings = result::print(&self.folder, &self.outputs, self.quiet);
        if self.is_named && !has_recordings {
            self.remove_folder();
        }
        Ok(ended)
    }

    /// Removes the run folder unless it contains other files. A folder named by the user is removed
    /// only if the program did not run.
    fn remove_folder(&self) {
        if self.is_named || self.manifest.ended.is_none() {
            let path = self.folder.path();
            let _: io::Result<()> = fs::remove_dir(self.folder.incidents());
            let _: io::Result<()> = fs::remove_file(path.join("run.json"));
            let _: io::Result<()> = fs::remove_dir(path);
        }
    }
}

/// Builds the options of the processes. The path of the run folder is set once the folder exists.
fn options(args: &mut RunArgs) -> Result<Options, Failure> {
    let usage = |why: &str| Err(Failure::Usage(why.to_owned()));
    let mut options = Options::new("/");
    let (start, delay, range) = (args.start.take(), args.delay.take(), args.range.take());
    options.start = start.or(delay).or(range).unwrap_or_default();
    options.stop = args.duration.or(args.ranges);
    options.always_on = args.always_on;
    options.keep_last = args.keep_last;
    options.triggers.on_error = args.on_error;
    options.whole_graphs = args.whole_graphs;
    options.host_samples = args.host_samples;
    options.lines = args.lines;
    options.keep_cubins = args.keep_cubins;
    let data = &mut options.device_data;
    data.sample.clone_from(&args.sample);
    data.nvml = args.nvml;
    data.devices.clone_from(&args.sample_devices);
    data.memory_records = args.memory_records;
    data.unified_memory = args.unified_memory;
    if let Err((_, why)) = data.check() {
        return usage(&format!("--sample-devices: {why}"));
    }
    options.stacks = args.stacks.or(args.host_samples.map(|_| SHORTEST_GAP));
    options.log_to_stderr = Options::environment_logs_to_stderr();
    let slow = std::mem::take(&mut args.slow);
    let range = options.start.range();
    if args.ranges.is_some() && range.is_none() {
        return usage("--ranges counts the ranges of --range NAME: give both");
    }
    match (&mut options.always_on, &slow[..]) {
        (Some(settings), _) => {
            settings.rate = args.rate;
            settings.slow = slow.first().map(|(_, time)| *time);
            if options.start != Start::Now && range.is_none() {
                return usage(
                    "--always-on draws windows of the whole run, or of --range NAME: leave out other starts",
                );
            }
            if !slow.is_empty()
                && (slow.len() > 1 || range != slow.first().map(|(name, _)| &**name))
            {
                return usage(
                    "with --always-on, --slow NAME=TIME is of the range of --range NAME: give both, once",
                );
            }
            if settings.budget.is_none() && settings.has_settings_of_windows() {
                return usage(
                    "--always-on=calls-only opens no window: leave out --rate and --slow",
                );
            }
        }
        (None, []) => {}
        (None, _) if options.keep_last.is_none() => {
            return usage(
                "--slow writes the last part or opens a window: add --keep-last or --always-on",
            );
        }
        (None, _) => options.triggers.slow = slow,
    }
    let is_by_program = options.start == Start::CudaProfilerApi || range.is_some();
    if options.keep_last.is_some() && is_by_program {
        return usage("--keep-last covers the whole run: leave out starts by the program");
    }
    Ok(options)
}

/// Refuses `--stats REPORT PROGRAM`, which would run the report's name as the program.
fn check_stats(stats: Option<&str>, program: &[OsString]) -> Result<(), Failure> {
    let first = program.first().and_then(|word| word.to_str()).unwrap_or_default();
    if stats != Some(DEFAULT_STATS) || Path::new(first).exists() {
        return Ok(());
    }
    match reports::named_reports(first) {
        Err(_) => Ok(()),
        Ok(_) => Err(Failure::Usage(format!(
            "{first} is a report and would be run as the program: write --stats={first}"
        ))),
    }
}

/// Creates a folder `PROGRAM-DATE-TIME.gpurun` in the parent folder, or in the current one if that
/// is empty.
fn named_folder(parent: &Path, manifest: &Run) -> Result<RunFolder, Failure> {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let now = now.replace(['-', ':', 'Z'], "").replace('T', "-");
    // A longer program name would exceed the file name limit.
    let program = &manifest.program[..manifest.program.floor_char_boundary(200)];
    for number in 1..MAX_NAMES {
        let again = if number == 1 { String::new() } else { format!("-{number}") };
        let path = parent.join(format!("{program}-{now}{again}.gpurun"));
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(Failure::Error(format!(
                    "could not create the run folder {}: {error}; name one with -o",
                    path.display()
                )));
            }
            Ok(()) => return Ok(RunFolder::create(&path, manifest)?),
        }
    }
    Err(Failure::Error(format!("{MAX_NAMES} run folders of this second exist: name one with -o")))
}
