//! The command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use clap::builder::PossibleValue;
use clap::{Parser, Subcommand, ValueEnum, ValueHint};
use profiler_core::kernels::KernelClass;
use profiler_core::scorecard::{ScoreKind, Target};
use profiler_core::{Format, Profile, Recording};

use crate::failure::Failure;
use crate::output::Output;

/// Reports, exports and differences of GPU profiles: recordings (.gpuprof) and captures of Nsight Systems (SQLite).
///
/// What a file is says its content, not its name. Results go to standard output or the file of -o, all else to standard
/// error.
#[derive(Debug, Parser)]
#[command(
    name = "gpuprof",
    version,
    after_help = "Exit status: 0 success, 1 error, 2 arguments that make no sense, 3 a gate that failed."
)]
pub(crate) struct Args {
    /// The size of the largest recording to read; also ends the reading of a pipe
    #[arg(long, global = true, value_name = "BYTES", default_value_t = Recording::MAX_BYTES)]
    pub(crate) max_bytes: u64,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Ranges, kernels and how far to trust them
    Report {
        /// A table for people, or a line of JSON for every range
        #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
        format: ReportFormat,
        #[command(flatten)]
        gate: CompleteArgs,
        #[command(flatten)]
        io: FileArgs,
    },
    /// The reports of `nsys stats`, by nsys's names and with its columns
    Stats(StatsArgs),
    /// The rules of `nsys analyze`: what makes the host wait, and where the GPU has nothing to do
    Analyze(AnalyzeArgs),
    /// Kernels by what they are for, and by launch shape: occupancy, waves, and which are worth a look with counters
    Kernels(KernelsArgs),
    /// What samplers saw of the devices: hardware counters and NVML, over the run and range by range
    Tracks(TracksArgs),
    /// Which operations use tensor cores, which could, and what to do: the tables of DLProf
    TensorCores(TensorCoresArgs),
    /// The run on one page: a dozen values, each with its target and a flag
    Scorecard(ScorecardArgs),
    /// What the run and its ranges are bound by, what slows them down, what helps, and an estimate of what that brings
    Diagnose(DiagnoseArgs),
    /// Writes a profile for other tools
    Export {
        /// The format
        #[arg(long, value_enum)]
        format: ExportFormat,
        /// Which of several processes it is; for kineto
        #[arg(long, requires = "world_size")]
        rank: Option<u32>,
        /// How many processes there are; for kineto
        #[arg(long, requires = "rank")]
        world_size: Option<u32>,
        /// Values of each sampled track at most, those after each other summed up to a mean; 0 is all; for perfetto, kineto
        /// and chrome
        #[arg(long, value_name = "COUNT")]
        samples: Option<usize>,
        #[command(flatten)]
        io: FileArgs,
    },
    /// Writes a page of HTML for a browser: timeline, ranges, kernels and calls, with nothing to fetch
    Html(FileArgs),
    /// Declared operations and bytes of ranges under the roofs of the device: which are near, and what bounds the others
    Roofline(RooflineArgs),
    /// What is different in B: counts, which are exact, before times, which are as they were measured
    Diff(DiffArgs),
    /// Judges recorded runs by a baseline: counts exactly, times by their noise
    Gate(GateArgs),
    /// What GPU profiling this machine and process allow, and what to do about what they do not
    Doctor {
        /// A page for people, or an object for programs
        #[arg(long, value_enum, default_value_t)]
        format: TextFormat,
        /// Fail (status 3) where GPU profiling is not ready
        #[arg(long)]
        require: bool,
    },
    /// Prints a script that completes the arguments of gpuprof in a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct OutputArgs {
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FileArgs {
    #[command(flatten)]
    output: OutputArgs,
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
}

impl FileArgs {
    /// Where the result goes; not to the file, nor to another one that is read.
    pub(crate) fn output(&self, other_inputs: &[&Option<PathBuf>]) -> Result<Output, Failure> {
        let others = other_inputs.iter().filter_map(|file| file.as_deref());
        let inputs: Vec<&Path> = others.chain([&*self.file]).collect();
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
    after_help = "NAME may be several, also with commas between them, or `all`. As with nsys, `:base` or `:mangled` after \
                  a name chooses the names of kernels, and `:nvtx-name` puts their range before them. Without a NAME: \
                  the list of reports, and with a FILE how many rows each has."
)]
pub(crate) struct StatsArgs {
    /// How it is written; files have nanoseconds and nsys's columns
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: TableFormat,
    #[command(flatten)]
    pub(crate) gate: CompleteArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Which reports, and last the file
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
    /// How it is written; files have nanoseconds and nsys's columns
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: TableFormat,
    /// How many rows each rule has at most; 0 is all
    #[arg(long, default_value_t = 50)]
    pub(crate) rows: usize,
    /// Look at the work of these ranges alone: a name or a path, `*` for any text
    #[arg(long, value_name = "PATH")]
    pub(crate) within: Option<String>,
    /// From how many milliseconds on gpu_gaps counts a gap [default: 500 of a capture, else a hundredth of the time]
    #[arg(long, value_name = "MS", value_parser = at_least_zero)]
    pub(crate) gap: Option<f64>,
    /// Fail (status 3) if a rule finds anything
    #[arg(long)]
    pub(crate) fail_if_found: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Which rules, and last the file
    #[arg(value_name = "RULE... FILE", value_hint = ValueHint::FilePath)]
    pub(crate) words: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct KernelsArgs {
    /// How it is written; files have nanoseconds
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: TableFormat,
    /// Look at the work of these ranges alone: a name or a path, `*` for any text
    #[arg(long, value_name = "PATH")]
    pub(crate) within: Option<String>,
    /// Classes of each range by itself, too
    #[arg(long)]
    pub(crate) by_range: bool,
    /// What kernels of this name are for, as in my_mlp*=gemm; counts before what is known of libraries
    #[arg(long = "class", value_name = "NAME=CLASS", value_parser = class_rule)]
    pub(crate) classes: Vec<(String, KernelClass)>,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TracksArgs {
    /// How it is written; files have nanoseconds, and values without a prefix
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: TableFormat,
    /// The means of each range by itself, too: while its work was on the device
    #[arg(long)]
    pub(crate) by_range: bool,
    /// Fail (status 3) if a sampler saw nothing, ended early, or lost samples
    #[arg(long)]
    pub(crate) fail_if_incomplete: bool,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TensorCoresArgs {
    /// How it is written; files have nanoseconds
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: TableFormat,
    /// What kernels of this name are for, as in my_mlp*=gemm; counts before what is known of libraries
    #[arg(long = "class", value_name = "NAME=CLASS", value_parser = class_rule)]
    pub(crate) classes: Vec<(String, KernelClass)>,
    /// Kernels of this name use tensor cores, as in my_wgmma*; counts before what is known of libraries
    #[arg(long = "using", value_name = "NAME")]
    pub(crate) using: Vec<String>,
    /// Fail (status 3) if an operation could use tensor cores and does not
    #[arg(long)]
    pub(crate) fail_if_unused: bool,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: 0 whatever is found, unless --fail-above asks for 3; 1 if the file cannot be read."
)]
pub(crate) struct DiagnoseArgs {
    /// For people, or everything as one object of JSON for programs
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: TextFormat,
    /// The verdict on these ranges alone: a name or a path, `*` for any text
    #[arg(long, value_name = "PATH", conflicts_with = "steps")]
    pub(crate) range: Option<String>,
    /// A verdict on each instance of these ranges
    #[arg(long, value_name = "PATH")]
    pub(crate) steps: Option<String>,
    /// Names of ranges in which data is loaded, besides those that are known by their words; `*` for any text
    #[arg(long, value_name = "PATTERN")]
    pub(crate) loading: Vec<String>,
    /// What part of the clock a cause has to take to be the verdict, from 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) verdict_share: Option<f64>,
    /// Give verdicts even if records are missing
    #[arg(long)]
    pub(crate) incomplete: bool,
    /// Fail (status 3) if mending one thing could make it faster by more than this: 1.25 is 25 %, or if nothing can be
    /// said of it. What the GPU computes does not count, nor do notes
    #[arg(long, value_name = "FACTOR", value_parser = at_least_zero)]
    pub(crate) fail_above: Option<f64>,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: 0 whatever the flags are, unless --fail-on asks for 3; 1 if the file cannot be read."
)]
pub(crate) struct ScorecardArgs {
    /// For people, as one object of JSON for programs, or for a comment on a pull request
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: PageFormat,
    /// Fail (status 3) if any value has this flag or a worse one, or if the recording is too thin to tell
    #[arg(long, value_enum, value_name = "FLAG")]
    pub(crate) fail_on: Option<FailOn>,
    /// Another target for a value, as gpu_busy=0.95,0.7: from where on it is good, and from where on bad. Shares count from
    /// 0 to 1; JSON has the names
    #[arg(long, value_name = "NAME=GOOD,BAD", value_parser = crate::scorecard::target)]
    pub(crate) target: Vec<(ScoreKind, Target)>,
    /// Names of ranges in which data is loaded, besides those that are known by their words; `*` for any text
    #[arg(long, value_name = "PATTERN")]
    pub(crate) loading: Vec<String>,
    /// Take the roofs from this file, as Peaks::to_json writes them
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) peaks: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// Values far from their target
    Bad,
    /// Those that are worth a look, too
    Look,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "WORK is any of flops=N, bytes=N, dtype=NAME, pipe=vector|tensor with commas between them, as in \
                  --range 'step/gemm:flops=2.1e9,bytes=8e6,dtype=bf16'. It is that of one range or launch."
)]
pub(crate) struct RooflineArgs {
    /// How it is written
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: RooflineFormat,
    /// Whose roofs, by CUDA ordinal [default: the device that ran most kernels]
    #[arg(long)]
    pub(crate) device: Option<u32>,
    /// Take the roofs from this file, as Peaks::to_json writes them, with what was measured
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "device")]
    pub(crate) peaks: Option<PathBuf>,
    /// The memory's bandwidth in GB/s, whatever the device says
    #[arg(long, value_name = "GB/S", value_parser = above_zero)]
    pub(crate) bandwidth: Option<f64>,
    /// A roof in TFLOP/s, whatever the device says: f32=67, or f64/tensor=67; of a type alone it is that of vectors for f32
    /// and f64, else of tensor cores
    #[arg(long, value_name = "DTYPE[/PIPE]=TFLOPS", value_parser = crate::roofline::peak)]
    pub(crate) peak: Vec<crate::roofline::Peak>,
    /// The work of each range of this name or path that says none itself, `*` for any text
    #[arg(long, value_name = "PATH:WORK", value_parser = crate::roofline::named_work)]
    pub(crate) range: Vec<crate::roofline::NamedWork>,
    /// The work of each launch of kernels of this name, `*` for any text
    #[arg(long, value_name = "NAME:WORK", value_parser = crate::roofline::named_work)]
    pub(crate) kernel: Vec<crate::roofline::NamedWork>,
    /// What counters said of the same ranges, as serde writes Measured: drawn at each level of the memory, beside what was
    /// declared
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) counted: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}

/// The last `=` parts them: names of operators have some too.
fn class_rule(text: &str) -> Result<(String, KernelClass), String> {
    let Some((name, class)) = text.rsplit_once('=') else {
        return Err("give a name and a class with = between them".to_owned());
    };
    let class = class.parse().map_err(|error: profiler_core::Error| error.to_string())?;
    Ok((name.to_owned(), class))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum RooflineFormat {
    /// Tables for people
    #[default]
    Text,
    /// For programs
    Json,
    /// A picture
    Svg,
    /// A page with picture and tables, with nothing to fetch
    Html,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DiffArgs {
    /// How it is written; csv and json have what is the same, too
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: DiffFormat,
    /// Kernels of each range by itself instead of all of one name
    #[arg(long)]
    pub(crate) by_range: bool,
    /// Every row of the tables
    #[arg(long)]
    pub(crate) all: bool,
    /// Fail (status 3) if anything grew by more than this, or if a file is incomplete; 0 is any growth
    #[arg(long, value_name = "PERCENT", value_parser = at_least_zero)]
    pub(crate) fail_above: Option<f64>,
    /// What --fail-above looks at
    #[arg(long, value_enum, default_value_t = Gated::All, requires = "fail_above")]
    pub(crate) of: Gated,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// What it was
    #[arg(value_name = "A", value_hint = ValueHint::FilePath)]
    pub(crate) a: PathBuf,
    /// What it is
    #[arg(value_name = "B", value_hint = ValueHint::FilePath)]
    pub(crate) b: PathBuf,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Several runs of one program on one machine, all in one look. What is undecided fails, too (status 3). A \
                  baseline is a file for version control: --update writes it, a review accepts it."
)]
pub(crate) struct GateArgs {
    /// How the verdict is written
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: PageFormat,
    /// Write the baseline from these runs instead of judging them
    #[arg(long)]
    pub(crate) update: bool,
    /// From how many percent on a time is slower
    #[arg(long, value_name = "PERCENT", value_parser = at_least_zero, default_value_t = 3.0)]
    pub(crate) minimum_effect: f64,
    /// How often a gate may be wrong, in percent, above 0 and up to 50: pass what is slower, or call slower what is not
    #[arg(long, value_name = "PERCENT", value_parser = error_rate, default_value_t = 1.0)]
    pub(crate) error_rate: f64,
    /// What the build is called in the baseline
    #[arg(long, value_name = "NAME", default_value = "release")]
    pub(crate) build: String,
    /// Leave the times of these kernels and ranges out: a name or a path, `*` for any text; may be given again
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

/// A gate that is wrong more often than a coin decides nothing, and one that is never wrong never decides.
fn error_rate(text: &str) -> Result<f64, String> {
    number(text, |number| number > 0.0 && number <= 50.0, "of percent above 0 and up to 50")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Gated {
    /// Counts and bytes, which are exact
    Counts,
    /// Time on the GPU, which is never twice the same
    GpuTime,
    /// Both
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum TableFormat {
    /// For people
    #[default]
    Table,
    /// With a header, for programs
    Csv,
    /// For programs
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum DiffFormat {
    /// For people
    #[default]
    Table,
    /// With a header, for programs
    Csv,
    /// For programs
    Json,
    /// For a comment on a pull request
    Markdown,
    /// One page for a browser
    Html,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum TextFormat {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum PageFormat {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
    /// For a comment on a pull request
    Markdown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// For people
    Table,
    /// An object a line, for programs
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExportFormat {
    /// Of the library's list.
    Trace(Format),
    Nsys,
    Json,
    Counts,
}

impl ValueEnum for ExportFormat {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<ExportFormat>> = LazyLock::new(|| {
            let traces = Format::ALL.into_iter().map(ExportFormat::Trace);
            traces.chain([ExportFormat::Nsys, ExportFormat::Json, ExportFormat::Counts]).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (key, help) = match self {
            Self::Trace(format) => (format.key(), format.summary()),
            Self::Nsys => (
                "nsys",
                "SQLite as `nsys export` writes it, for `nsys stats` and what else reads it",
            ),
            Self::Json => ("json", "A line of JSON for every range"),
            Self::Counts => (
                "counts",
                "Names and counts, never times: the same text whenever the program does the same",
            ),
        };
        Some(PossibleValue::new(key).help(help))
    }
}
