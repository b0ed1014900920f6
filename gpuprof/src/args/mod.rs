//! The command line.

mod calibrate;
mod cargo;
mod critical_path;
mod examples;
mod formats;
mod gaps;
mod lines;
mod roofline;
mod run;
mod scorecard;
mod steps;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand, ValueEnum, ValueHint};
use profiler_analysis::kernels::KernelClass;
use profiler_analysis::prelude::*;
use profiler_core::Profile;
use regex::Regex;

pub(crate) use calibrate::CalibrateArgs;
pub(crate) use cargo::{CargoArgs, KEPT_RUNS};
pub(crate) use critical_path::CriticalPathArgs;
pub(crate) use formats::{
    DiffFormat, FormatArgs, GateFormat, OutputFormat, PageFormat, RanksFormat, ReportFormat,
    RooflineFormat, TableFormat, TextFormat,
};
pub(crate) use gaps::{GapsArgs, StackArgs};
pub(crate) use lines::{ExplainArgs, LinesArgs};
pub(crate) use roofline::{Peak, RooflineArgs};
pub(crate) use run::{DEFAULT_STATS, RunArgs};
pub(crate) use scorecard::{FailOn, ScorecardArgs};
pub(crate) use steps::{RequestsArgs, StepsArgs};

use crate::export_format::ExportFormat;
use crate::failure::Failure;
use crate::global::GlobalArgs;
use crate::input;
use crate::output::{Output, standard};

/// Reports, pages and comparisons of GPU profiles: recordings (.gpuprof), folders of them,
/// captures of Nsight Systems (SQLite), and traces of torch.profiler.
///
/// `gpuprof FILE` prints the report. The file type is detected from the content, not the extension;
/// `-` is standard input. Results go to standard output or the file of -o, messages to standard
/// error.
#[derive(Debug, Parser)]
#[command(
    name = "gpuprof",
    version,
    override_usage = "gpuprof [OPTIONS] <FILE>...\n       gpuprof [OPTIONS] <COMMAND> ...",
    arg_required_else_help = true,
    after_help = "Exit status: 0 success, 1 error, 2 arguments that make no sense, 3 a gate that failed; `run` and \
                  `calibrate` have the status of their program."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// The command with examples in its help.
    pub(crate) fn command_with_examples() -> clap::Command {
        examples::add(<Self as clap::CommandFactory>::command())
    }
}

/// Prints `--help` and `--version` as results. Other clap messages end the program with clap's
/// status.
pub(crate) fn parsed(error: clap::Error) -> Failure {
    if error.use_stderr() {
        error.exit();
    }
    let printed = standard().and_then(|mut out| {
        error.print()?;
        Ok(out.flush()?)
    });
    printed.err().unwrap_or(Failure::Closed)
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Ranges, kernels and the health of the recording
    Report(ReportArgs),
    /// The kernels, ranges and API calls with the most time
    Top(TopArgs),
    /// Opens the page of a profile, or a viewer's, in the browser
    Open(OpenArgs),
    /// Draws GPU time by range and kernel, or idle time by cause, as a flame graph (SVG)
    Flamegraph(FlamegraphArgs),
    /// Writes a profile for other tools, in the format of the file's extension
    #[command(alias = "export")]
    Convert(ConvertArgs),
    /// The reports of `nsys stats`, by nsys's names and with its columns
    Stats(StatsArgs),
    /// The rules of `nsys analyze`: waits of the host, and idle times of the GPU
    Analyze(AnalyzeArgs),
    /// Kernels by class and by launch shape: occupancy, waves, and candidates for counters
    Kernels(KernelsArgs),
    /// Sampled tracks of the devices, hardware counters and NVML: over the run and by range
    Tracks(TracksArgs),
    /// Operations that use tensor cores, those that could, and remedies: the tables of DLProf
    TensorCores(TensorCoresArgs),
    /// The run on one page: a dozen values, each with its target and a flag
    Scorecard(ScorecardArgs),
    /// Bottlenecks of the run and its ranges, anti-patterns, remedies, and estimates of the gain
    Diagnose(DiagnoseArgs),
    /// What determined the length of the run and its steps, the slack of all else, and what changes would bring
    CriticalPath(CriticalPathArgs),
    /// Idle times of the GPU by cause and range, and the system calls that the host waited in
    Gaps(GapsArgs),
    /// Which kernels ran beside communication between GPUs, and how much longer they took then
    Interference(InterferenceArgs),
    /// Percentiles of the steps of a run, and its longest steps
    Steps(StepsArgs),
    /// Percentiles of the requests of a service, by stage and endpoint
    Requests(RequestsArgs),
    /// Instruction samples: what the warps of kernels wait for, by kernel and source line
    Lines(LinesArgs),
    /// All that is known of a kernel: time by range, launch shape, occupancy, stalls, lines, and what to try first
    Explain(ExplainArgs),
    /// Waits between ranks in collectives, stragglers, and exposed communication
    Ranks(RanksArgs),
    /// Writes a self-contained HTML page for a browser: timeline, ranges, kernels and calls
    Html(FileArgs),
    /// Declared operations and bytes of ranges under the roofs of the device, and the bound of each
    Roofline(RooflineArgs),
    /// Differences of B from A: wall time and what explains it, counts, which are exact, times on the
    /// GPU
    Diff(DiffArgs),
    /// Compares recorded runs with a baseline: counts exactly, times by their noise
    Gate(GateArgs),
    /// Serves recordings to agents: the Model Context Protocol over standard input and output
    #[command(
        after_help = "It reads the files that a call names, and writes none. Record with `gpuprof run`."
    )]
    Mcp,
    /// The GPU profiling that this machine and process allow, and remedies for what is missing
    Doctor {
        #[command(flatten)]
        format: FormatArgs<TextFormat>,
        /// Fail (status 3) if GPU profiling is not ready
        #[arg(long)]
        require: bool,
    },
    /// Runs a program and reports what each of its processes does on the GPU
    Run(Box<RunArgs>),
    /// Measures what the profiler costs a program: runs it by turns without and with the profiler
    Calibrate(CalibrateArgs),
    /// The live processes that a run records, of this user
    List(ListArgs),
    /// A terminal view of a run or a process, refreshed each second: GPUs, ranges, kernels, ranks
    Live(LiveArgs),
    /// Opens a window of recording in a live process, or in all of a run
    On(ControlArgs),
    /// Closes the window of recording in a live process, or in all of a run
    Off(ControlArgs),
    /// Records a mark in a live process, or in all of a run
    Mark {
        #[command(flatten)]
        control: ControlArgs,
        /// The text of the mark
        #[arg(value_name = "TEXT")]
        text: String,
    },
    /// Writes what has finished in a live process, or in all of a run, to its recording
    Snapshot {
        /// Also print the report of the run until now
        #[arg(long)]
        report: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// The state of a live process, or of all of a run
    Status {
        /// An array for programs
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Prints a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Prints the manual page of the program, or of a command
    Man {
        /// The command
        command: Option<String>,
    },
    /// A file without a command: its report.
    #[command(external_subcommand)]
    File(Vec<OsString>),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<ReportFormat>,
    #[command(flatten)]
    pub(crate) gate: CompleteArgs,
    #[command(flatten)]
    pub(crate) numbers: NumbersArgs,
    #[command(flatten)]
    pub(crate) io: FilesArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<TableFormat>,
    #[command(flatten)]
    pub(crate) selection: TopSelection,
    #[command(flatten)]
    pub(crate) numbers: NumbersArgs,
    #[command(flatten)]
    pub(crate) io: FilesArgs,
}

/// The tables and rows of `top`.
#[derive(Debug, clap::Args)]
pub(crate) struct TopSelection {
    /// Only these tables [default: kernels,ranges,api]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "TABLE")]
    pub(crate) of: Vec<TopTable>,
    /// Kernels of each device or stream apart
    #[arg(long, value_enum, value_name = "PLACE")]
    pub(crate) by: Option<TopPlace>,
    /// The order
    #[arg(long, value_enum, default_value_t, value_name = "BY")]
    pub(crate) sort: TopSort,
    /// The maximum number of rows of each table; 0 is no limit
    #[arg(long, default_value_t = 10, value_name = "ROWS")]
    pub(crate) limit: usize,
    /// Only names and paths that match this regular expression
    #[arg(long, value_name = "REGEX")]
    pub(crate) filter: Option<Regex>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopTable {
    /// Kernels by name
    Kernels,
    /// Ranges by path
    Ranges,
    /// Calls of the CUDA API by function
    Api,
    /// GPU work by stream
    Streams,
    /// GPU work by device
    Devices,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopPlace {
    Device,
    Stream,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum TopSort {
    /// The total time, of ranges on the GPU
    #[default]
    Time,
    /// How often
    Count,
    /// The mean time
    Mean,
    /// Alphabetical
    Name,
}

#[derive(Debug, clap::Args)]
pub(crate) struct OpenArgs {
    /// Hand the profile to Perfetto (ui.perfetto.dev), which reads it from this machine
    #[arg(long)]
    pub(crate) perfetto: bool,
    /// Hand the GPU time by range and kernel to the Firefox Profiler (profiler.firefox.com), which reads
    /// it from this machine
    #[arg(long, conflicts_with = "perfetto")]
    pub(crate) firefox: bool,
    /// Write the page to this file, which stays, instead of a temporary one
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["perfetto", "firefox"])]
    pub(crate) output: Option<PathBuf>,
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConvertArgs {
    /// The format [default: that of the file's extension]
    #[arg(long, value_enum)]
    pub(crate) format: Option<ExportFormat>,
    /// The rank of this process, for kineto
    #[arg(long, requires = "world_size")]
    pub(crate) rank: Option<u32>,
    /// The number of processes, for kineto
    #[arg(long, requires = "rank")]
    pub(crate) world_size: Option<u32>,
    /// The maximum number of values of each sampled track; longer tracks are downsampled to means; 0
    /// is no limit; for perfetto, kineto and chrome
    #[arg(long, value_name = "COUNT")]
    pub(crate) samples: Option<usize>,
    #[command(flatten)]
    pub(crate) stacks: StackArgs,
    /// The profile
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The file to write [default: standard output, with --format]
    #[arg(value_name = "OUTPUT", value_hint = ValueHint::FilePath, conflicts_with = "output")]
    pub(crate) to: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct OutputArgs {
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FlamegraphArgs {
    #[command(flatten)]
    pub(crate) stacks: StackArgs,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FileArgs {
    #[command(flatten)]
    output: OutputArgs,
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
}

impl FileArgs {
    /// The output, which must not be the file or another input.
    pub(crate) fn output(&self, other_inputs: &[&Option<PathBuf>]) -> Result<Output, Failure> {
        let others = other_inputs.iter().filter_map(|file| file.as_deref());
        let inputs: Vec<&Path> = others.chain([&*self.file]).collect();
        Output::new(self.output.output.clone(), &inputs)
    }

    /// The output and the profile, whose losses are written to standard error.
    pub(crate) fn open(&self) -> Result<(Output, Profile), Failure> {
        let output = self.output(&[])?;
        let profile = input::profile(&self.file)?;
        input::note_losses(&self.file, &profile);
        Ok((output, profile))
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct NumbersArgs {
    /// Show ranges whose names differ in running numbers alone as one, as `step *` for `step 1` to `step
    /// 500`. Numbers that come back, as `layer 0` to `layer 11` in every step, stay
    #[arg(long)]
    group_numbers: bool,
}

impl NumbersArgs {
    /// The profile of a file, with grouped numbers if wanted.
    pub(crate) fn profile(&self, file: &Path) -> Result<Profile, Failure> {
        let profile = input::profile(file)?;
        Ok(if self.group_numbers { profile.with_grouped_numbers() } else { profile })
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct InterferenceArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<TextFormat>,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}

/// One file or several.
#[derive(Debug, clap::Args)]
pub(crate) struct FilesArgs {
    #[command(flatten)]
    output: OutputArgs,
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, required = true)]
    pub(crate) files: Vec<PathBuf>,
}

impl FilesArgs {
    /// The output, which must not be an input.
    pub(crate) fn output(&self) -> Result<Output, Failure> {
        let inputs: Vec<&Path> = self.files.iter().map(PathBuf::as_path).collect();
        Output::new(self.output.output.clone(), &inputs)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct CompleteArgs {
    /// Fail (status 3) if anything was lost or could not be matched
    #[arg(long)]
    fail_if_incomplete: bool,
}

impl CompleteArgs {
    pub(crate) fn check(&self, file: &Path, profile: &Profile) -> Result<(), Failure> {
        let health = profile.health();
        if !self.fail_if_incomplete || health.is_complete() {
            return Ok(());
        }
        Err(Failure::Gate(format!("--fail-if-incomplete: {} is {health}", file.display())))
    }
}

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "gpuprof stats [OPTIONS] <NAME>... <FILE>\n       gpuprof stats [list] [FILE]",
    after_help = "NAME may be several, also with commas between them, or `all`. As with nsys, \
                  `:base` or `:mangled` after a name chooses the names of kernels, and \
                  `:nvtx-name` puts their range before them. Without a NAME: the list of reports, \
                  and with a FILE how many rows each has."
)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<TableFormat>,
    #[command(flatten)]
    pub(crate) gate: CompleteArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// The reports, then the file
    #[arg(value_name = "NAME... FILE", value_hint = ValueHint::FilePath)]
    pub(crate) words: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "gpuprof analyze [OPTIONS] <RULE>... <FILE>\n       gpuprof analyze [list] [FILE]",
    after_help = "RULE may be several, also with commas between them, or `all`. Without a RULE: the list of rules, and \
                  with a FILE how much each finds."
)]
pub(crate) struct AnalyzeArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<TableFormat>,
    /// The maximum number of rows of each rule; 0 is no limit
    #[arg(long, default_value_t = 50)]
    pub(crate) rows: usize,
    /// Only the work of these ranges: a name or a path, `*` for any text
    #[arg(long, value_name = "PATH")]
    pub(crate) within: Option<String>,
    /// Minimum ms of gpu_gaps [default: 500 for a capture, else a hundredth of the time]
    #[arg(long, value_name = "MS", value_parser = at_least_zero)]
    pub(crate) gap: Option<f64>,
    /// Fail (status 3) if a rule finds anything
    #[arg(long)]
    pub(crate) fail_if_found: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// The rules, then the file
    #[arg(value_name = "RULE... FILE", value_hint = ValueHint::FilePath)]
    pub(crate) words: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct KernelsArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<TableFormat>,
    /// Only the work of these ranges: a name or a path, `*` for any text
    #[arg(long, value_name = "PATH")]
    pub(crate) within: Option<String>,
    /// Also the classes of each range
    #[arg(long)]
    pub(crate) by_range: bool,
    /// The maximum number of launch shapes for people; 0 is no limit. CSV and JSON have all
    #[arg(long, default_value_t = 10, value_name = "ROWS")]
    pub(crate) limit: usize,
    /// The class of kernels with this name, as in my_mlp*=gemm; overrides known names
    #[arg(long = "class", value_name = "NAME=CLASS", value_parser = class_rule)]
    pub(crate) classes: Vec<(String, KernelClass)>,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TracksArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<TableFormat>,
    /// Also the means of each range, while its work was on the device
    #[arg(long)]
    pub(crate) by_range: bool,
    /// Fail (status 3) if a sampler has no samples, ended early, or lost samples
    #[arg(long)]
    pub(crate) fail_if_incomplete: bool,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TensorCoresArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<TableFormat>,
    /// The maximum number of rows of each table for people; 0 is no limit. CSV and JSON have all
    #[arg(long, default_value_t = 10, value_name = "ROWS")]
    pub(crate) limit: usize,
    /// The class of kernels with this name, as in my_mlp*=gemm; overrides known names
    #[arg(long = "class", value_name = "NAME=CLASS", value_parser = class_rule)]
    pub(crate) classes: Vec<(String, KernelClass)>,
    /// Kernels that use tensor cores, as in my_wgmma*; overrides the known names of libraries
    #[arg(long = "using", value_name = "NAME")]
    pub(crate) using: Vec<String>,
    /// Fail (status 3) if an operation could use tensor cores and does not
    #[arg(long)]
    pub(crate) fail_if_unused: bool,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RanksArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<RanksFormat>,
    /// Also the stragglers in each instance of these ranges, such as an epoch: a name or a path, `*` for any
    /// text
    #[arg(long, value_name = "PATH")]
    pub(crate) range: Option<String>,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: 0 whatever is found, unless --fail-above sets 3; 1 if the file cannot be read."
)]
pub(crate) struct DiagnoseArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<TextFormat>,
    /// The verdict on these ranges only: a name or a path, `*` for any text
    #[arg(long, value_name = "PATH", conflicts_with = "steps")]
    pub(crate) range: Option<String>,
    /// A verdict on each instance of these ranges
    #[arg(long, value_name = "PATH")]
    pub(crate) steps: Option<String>,
    /// Further names of ranges that load data, besides the known words; `*` for any text
    #[arg(long, value_name = "PATTERN")]
    pub(crate) loading: Vec<String>,
    /// The minimum share of the clock of a cause that is the verdict, from 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) verdict_share: Option<f64>,
    /// Give verdicts even if records are missing
    #[arg(long)]
    pub(crate) incomplete: bool,
    /// Fail (status 3) if one change could make the run faster by more than this factor (1.25 is 25
    /// %), or if there is no verdict. GPU compute and notes do not count
    #[arg(long, value_name = "FACTOR", value_parser = at_least_zero)]
    pub(crate) fail_above: Option<f64>,
    #[command(flatten)]
    pub(crate) numbers: NumbersArgs,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Sockets of processes that have ended are removed.")]
pub(crate) struct ListArgs {
    /// An array for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Keys: s start recording, x or o stop it, m record a mark, w write what has finished to the \
                        recording (with --keep-last, the last part), tab or an arrow select a process, a all, q quit."
)]
pub(crate) struct LiveArgs {
    /// A process, or a run: the path of its folder, or its name as `gpuprof list` prints it [default:
    /// the newest run with a live process, or else the newest in this folder]
    #[arg(value_name = "PID|RUN", value_hint = ValueHint::DirPath)]
    pub(crate) target: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ControlArgs {
    /// A process, or a run: the path of its folder, or its name as `gpuprof list` prints it
    #[arg(value_name = "PID|RUN", value_hint = ValueHint::DirPath)]
    pub(crate) target: PathBuf,
    /// How long each process may take to answer
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = above_zero)]
    pub(crate) timeout: f64,
}

/// The last `=` is the separator: names of operators contain `=` too.
fn class_rule(text: &str) -> Result<(String, KernelClass), String> {
    let Some((name, class)) = text.rsplit_once('=') else {
        return Err("give a name and a class with = between them".to_owned());
    };
    let class = class.parse().map_err(|error: profiler_analysis::Error| error.to_string())?;
    Ok((name.to_owned(), class))
}

#[derive(Debug, clap::Args)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<DiffFormat>,
    /// Kernels by range instead of by name
    #[arg(long)]
    pub(crate) by_range: bool,
    /// Every row of the tables
    #[arg(long)]
    pub(crate) all: bool,
    /// The files are pairs, measured by turns: the first of --before with the first of --after, and so
    /// on. Eight pairs or more show how much they vary
    #[arg(long, requires = "after")]
    pub(crate) paired: bool,
    /// Compare wall times although an outermost range was entered more often on one side
    #[arg(long)]
    pub(crate) any_work: bool,
    /// Fail (status 3) if the wall time, a count or a GPU time grew by more than this, or the files
    /// cannot be compared; 0 is any. If the wall time certainly fell, other growth is reported as a
    /// trade
    #[arg(long, value_name = "PERCENT", value_parser = at_least_zero)]
    pub(crate) fail_above: Option<f64>,
    /// The quantities for --fail-above; with one of them alone nothing is a trade
    #[arg(long, value_enum, default_value_t = Gated::All, requires = "fail_above")]
    pub(crate) of: Gated,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// The profiles before, in place of A; five runs or more show how much runs vary
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "after", value_hint = ValueHint::FilePath)]
    pub(crate) before: Vec<PathBuf>,
    /// The profiles after, in place of B
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "before", value_hint = ValueHint::FilePath)]
    pub(crate) after: Vec<PathBuf>,
    /// The profile before, A, and the profile after, B
    #[arg(value_names = ["A", "B"], num_args = 2, required_unless_present = "before",
          conflicts_with = "before", value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Several runs of one program on one machine, judged together. Undecided \
                  quantities fail too (status 3). A baseline is a file for version control: \
                  --update writes it, a review accepts it.")]
pub(crate) struct GateArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<GateFormat>,
    /// Write the baseline from these runs instead of judging them
    #[arg(long)]
    pub(crate) update: bool,
    /// The minimum growth in percent of a time on the GPU that is slower
    #[arg(long, value_name = "PERCENT", value_parser = at_least_zero, default_value_t = 3.0)]
    pub(crate) minimum_effect: f64,
    /// The minimum growth in percent of a wall time or a host time that is slower
    #[arg(long, value_name = "PERCENT", value_parser = at_least_zero, default_value_t = 5.0)]
    pub(crate) wall_effect: f64,
    /// Fail on every count that differs, also on fewer, and on growth also for less wall time
    #[arg(long)]
    pub(crate) strict: bool,
    /// Allow outermost ranges that are entered more or less often than in the baseline
    #[arg(long)]
    pub(crate) any_work: bool,
    /// The error rate of a gate in percent, above 0 and up to 50, of passes and of failures
    #[arg(long, value_name = "PERCENT", value_parser = error_rate, default_value_t = 1.0)]
    pub(crate) error_rate: f64,
    /// The name of the build in the baseline
    #[arg(long, value_name = "NAME", default_value = "release")]
    pub(crate) build: String,
    /// Exclude times of these kernels and ranges, or of a kind as `wall time`: a name or a path, `*`
    /// for any text; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) ignore_times: Vec<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// The baseline (JSON)
    #[arg(value_name = "BASELINE", value_hint = ValueHint::FilePath)]
    pub(crate) baseline: PathBuf,
    /// The runs
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, required = true)]
    pub(crate) files: Vec<PathBuf>,
}

fn number(text: &str, fits: impl Fn(f64) -> bool, range: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if f64::is_finite(number) && fits(number) => Ok(number),
        _ => Err(format!("give a number {range}")),
    }
}

fn at_least_zero(text: &str) -> Result<f64, String> {
    number(text, |number| number >= 0.0, "of 0 or more")
}

fn above_zero(text: &str) -> Result<f64, String> {
    number(text, |number| number > 0.0, "above 0")
}

fn share(text: &str) -> Result<f64, String> {
    number(text, |number| (0.0..=1.0).contains(&number), "from 0 to 1")
}

/// A rate of 50 % is a coin toss, and a rate of 0 never decides.
fn error_rate(text: &str) -> Result<f64, String> {
    number(text, |number| number > 0.0 && number <= 50.0, "of percent above 0 and up to 50")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Gated {
    /// Wall time
    Wall,
    /// Time of the host in each range, which varies most
    HostTime,
    /// Time in which the GPU worked for each range
    BusyTime,
    /// Time on the GPU, which varies
    GpuTime,
    /// Counts and bytes, which are exact
    Counts,
    /// Wall time, time on the GPU, and counts
    All,
}
