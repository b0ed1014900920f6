//! The command line of `gpuprof run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueHint;
use gpuprof_control::{AlwaysOn, KeepLast, Start, Stop};

use super::share;

/// The reports of `--stats` without names: those of CUDA and NVTX that nsys prints by default.
pub(crate) const DEFAULT_STATS: &str =
    "nvtx_sum,cuda_api_sum,cuda_gpu_kern_sum,cuda_gpu_mem_time_sum,cuda_gpu_mem_size_sum";

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "gpuprof run [OPTIONS] [--] <PROGRAM> [ARGS]...",
    after_help = "Examples:\n  gpuprof run -- python train.py\n  gpuprof run --delay 30 --duration 10 -- python train.py\n  \
                  gpuprof run --range step --ranges 5 --diagnose -- ./train\n  \
                  gpuprof run --start wait -o job -- torchrun --nproc-per-node 8 train.py   # then: gpuprof on job\n  \
                  gpuprof run --keep-last 10s --slow request=200ms --on-error -o job -- python serve.py\n\n\
                  The report goes to standard error after the program has ended: its own standard output stays \
                  its own.\nExit status: that of the program, and the same signal where one ended it; 125 if gpuprof \
                  failed before the program started, 126 if the program cannot be run, 127 if it is not found."
)]
pub(crate) struct RunArgs {
    /// When recording starts in each process: now, wait (for `gpuprof on`), after=SECONDS,
    /// range=NAME (an NVTX range of any domain), cuda-profiler-api [default: now]
    #[arg(long, value_name = "WHEN")]
    pub(crate) start: Option<Start>,
    /// Start after this time, as --start after=SECONDS
    #[arg(long, value_name = "SECONDS", conflicts_with = "start", value_parser = delay)]
    pub(crate) delay: Option<Start>,
    /// Record while this NVTX range is open, as --start range=NAME
    #[arg(long, value_name = "NAME", conflicts_with_all = ["start", "delay"], value_parser = range)]
    pub(crate) range: Option<Start>,
    /// Stop recording after this time; the program goes on
    #[arg(long, value_name = "SECONDS", conflicts_with = "ranges", value_parser = duration)]
    pub(crate) duration: Option<Stop>,
    /// Stop recording after this many instances of the range of --range; the program goes on
    #[arg(long, value_name = "COUNT", value_parser = ranges)]
    pub(crate) ranges: Option<Stop>,
    /// Record calls all the time, and GPU work in windows drawn at random that make the program slower by at most this
    /// share [default: 3%]; with --range NAME a window is one such range; `calls-only` opens none
    #[arg(long, value_name = "BUDGET", num_args = 0..=1, require_equals = true, default_missing_value = "3%",
          conflicts_with_all = ["delay", "duration", "ranges"], value_parser = always_on)]
    pub(crate) always_on: Option<AlwaysOn>,
    /// With --always-on, the share of ranges or slices that is drawn, from 0 to 1 [default: 0.01, and at least one in 20 s]
    #[arg(long, value_name = "SHARE", requires = "always_on", value_parser = share)]
    pub(crate) rate: Option<f64>,
    /// Keep only the last part, in memory: a time, as 10s, or a number of GPU operations, as 100000. It is written at the
    /// end, by `gpuprof snapshot`, and by --slow and --on-error
    #[arg(long, value_name = "TIME|COUNT", conflicts_with_all = ["always_on", "range", "duration", "ranges"], value_parser = keep_last)]
    pub(crate) keep_last: Option<KeepLast>,
    /// With --keep-last, write it to a file when an NVTX range of a thread with this name took longer, as request=200ms; may be
    /// given several times. With --always-on and --range, record the range after one that took longer
    #[arg(long, value_name = "NAME=TIME", value_parser = slow)]
    pub(crate) slow: Vec<(String, Duration)>,
    /// With --keep-last, write it to a file when a CUDA call returned an error
    #[arg(long, requires = "keep_last")]
    pub(crate) on_error: bool,
    /// Record each launch of a CUDA graph as one interval instead of its kernels, which costs the graph nothing
    #[arg(long, conflicts_with_all = ["always_on", "start", "delay", "range", "duration"])]
    pub(crate) whole_graphs: bool,
    /// Take the stack of a thread at each launch, copy or memset before which it launched nothing for this long, as 20us: the
    /// code that ran when the GPU ran out of work. See `gpuprof flamegraph --idle` [default: 20us]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "20us",
          value_parser = humantime::parse_duration)]
    pub(crate) stacks: Option<Duration>,
    /// Sample what threads do between such launches, each millisecond: their functions and the system calls they wait in. By
    /// perf_event_open where the kernel permits it; else by waits alone, or with timers also by SIGPROF. With --stacks=20us unless
    /// that is given [default: perf]
    #[arg(long, value_name = "SOURCE", num_args = 0..=1, require_equals = true, default_missing_value = "perf")]
    pub(crate) host_samples: Option<gpuprof_control::HostSamples>,
    /// Sample the instructions of kernels and what their warps wait for, at every so many cycles of a multiprocessor;
    /// `serialized` runs kernels one by one, so that each sample has its launch. See `gpuprof lines` [default: 65536]
    #[arg(long, value_name = "CYCLES", num_args = 0..=1, require_equals = true, default_missing_value = "65536",
          conflicts_with_all = ["always_on"])]
    pub(crate) lines: Option<gpuprof_control::Lines>,
    /// Store cubins with line tables, at most 256 MiB, so that `gpuprof lines --sass` can show machine code
    #[arg(long, requires = "lines", conflicts_with = "keep_last")]
    pub(crate) keep_cubins: bool,
    /// Sample the device each 100 us by hardware counters: utilization of all units, or bytes of memory, NVLink or PCIe,
    /// with commas between them. Needs the rights of hardware counters. GPU-bound programs take as long; the samples use
    /// 110 MB/s of PCIe and, of all units, 0.8 of a CPU. Excludes --lines
    #[arg(long, value_name = "UNITS", value_delimiter = ',', conflicts_with = "lines")]
    pub(crate) sample: Vec<profiler_core::session::Units>,
    /// Sample clocks, power, memory and temperature of the device each 100 ms by NVML, which needs no rights and 4 % of a CPU
    #[arg(long)]
    pub(crate) nvml: bool,
    /// The devices of --sample and --nvml by CUDA ordinal, with commas between them, in each process [default: the one that
    /// LOCAL_RANK names, else 0]
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    pub(crate) sample_devices: Vec<u32>,
    /// Record each allocation and free of memory, which takes 0.6 us and 160 bytes for each
    #[arg(long)]
    pub(crate) memory_records: bool,
    /// Record migrations and page faults of managed memory: up to a record of 104 bytes for each page. The cost in time was
    /// not measured
    #[arg(long)]
    pub(crate) unified_memory: bool,
    /// The run folder [default: a new folder PROGRAM-DATE-TIME.gpurun in the current one, in UTC]
    #[arg(short, long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) output: Option<PathBuf>,
    /// Use a run folder that is not empty; the run in it is removed
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
    /// Also print reports of `gpuprof stats`, with commas between them [default: those that `nsys
    /// profile --stats` prints of CUDA and NVTX]
    #[arg(long, value_name = "REPORT", num_args = 0..=1, require_equals = true,
          default_missing_value = DEFAULT_STATS)]
    pub(crate) stats: Option<String>,
    /// Also print the findings of `gpuprof diagnose`
    #[arg(long)]
    pub(crate) diagnose: bool,
    /// Also write a page for a browser
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
    /// Also write a trace for Perfetto
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) perfetto: Option<PathBuf>,
    /// Print no report and no notes, errors alone
    #[arg(short, long, conflicts_with_all = ["stats", "diagnose"])]
    pub(crate) quiet: bool,
    /// After the program has ended, also wait for the processes that it left behind
    #[arg(long)]
    pub(crate) wait_children: bool,
    /// The injection library [default: the one that this program carries, unpacked into the cache folder;
    /// in a build without it libgpuprof_inject.so beside this program or in ../lib]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) inject: Option<PathBuf>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true,
          value_hint = ValueHint::CommandWithArguments)]
    pub(crate) program: Vec<OsString>,
}

fn delay(seconds: &str) -> Result<Start, String> {
    format!("after={seconds}").parse()
}

fn range(name: &str) -> Result<Start, String> {
    format!("range={name}").parse()
}

fn duration(seconds: &str) -> Result<Stop, String> {
    format!("duration={seconds}").parse()
}

/// A budget alone: other options have the rest.
fn always_on(text: &str) -> Result<AlwaysOn, String> {
    match text {
        "calls-only" => Ok(AlwaysOn::new(None)),
        budget => budget.parse().map(|budget| AlwaysOn::new(Some(budget))),
    }
}

fn keep_last(text: &str) -> Result<KeepLast, String> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return format!("operations={text}").parse();
    }
    let time = humantime::parse_duration(text);
    let time = time.map_err(|_| "give a time, as 10s, or a number of operations, as 100000")?;
    format!("seconds={}", time.as_secs_f64()).parse()
}

/// The last `=` is the separator: names of ranges contain `=` too.
fn slow(text: &str) -> Result<(String, Duration), String> {
    let give = || "give the name of a range and a time, as request=200ms".to_owned();
    let (name, time) =
        text.rsplit_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(give)?;
    Ok((name.to_owned(), humantime::parse_duration(time).map_err(|_| give())?))
}

fn ranges(count: &str) -> Result<Stop, String> {
    format!("ranges={count}").parse()
}
