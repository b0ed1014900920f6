//! The total cost of an empty kernel launch on a GPU, with each recorder.
//!
//! ```text
//! launch_cost --bench [--rounds 9] [--launches 200000] [--threads 1] [--modes none,raw,ours,ours-range,nsys]
//! ```
//!
//! | mode | recorder |
//! | --- | --- |
//! | `none` | nothing |
//! | `raw` | CUPTI from C++ with the same activity kinds and callback ids, and an empty callback: `raw_cupti.cpp` |
//! | `ours` | `cupti::Collector` |
//! | `ours-range` | `profiler_core::Profiler`, with a range around each launch |
//! | `ours-file` | the same, appended to a file in `OUT` or the temporary folder (`Profiler::record_to`); only if named in `--modes` |
//! | `nsys` | `nsys profile -t cuda,nvtx` around `none`; the environment's `NSYS` names nsys |
//! | `nsys-range` | the same with a range around each launch; only if named in `--modes` |
//! | `raw-range` | `raw` and CUPTI's MARKER kind, with libcupti as the NVTX tool and a range around each launch; only if named in `--modes` |
//! | `raw-after`, `ours-after` | nothing: a collection of 5,000 launches was started and stopped before; only if named in `--modes` |
//!
//! With several threads each has a stream of its own and makes the same number of launches. The
//! reported time is that of one thread.
//!
//! Each measurement is a process of its own: this program started again with `--mode`. Each round
//! runs all modes, starting with a different mode, and only values of the same round are compared.
//! All modes run the same machine code around the launch. `RAW_CUPTI` names the shared library of
//! `raw`. If it is not set, `raw_cupti.cpp` is compiled, which needs a compiler and a CUDA toolkit.
//! With `OUT` set, each measurement is also a line in `$OUT/launch_cost.jsonl`.
//!
//! The benchmark fails if a kernel record was lost in any of our modes or in `raw`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that prints what it measured"
)]

use std::env;
use std::ffi::{CString, c_void};
use std::fs::{self, File};
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::ptr::null_mut;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use cudarc::driver::{DriverError, result, sys};
use cupti::{Collector, Config, Library, Record};
use gpu_profiler_benches::process_bench::{self, Arguments, Result};
use gpu_profiler_benches::stats::{bootstrap_median, median};
use gpu_profiler_tests::cuda::unavailable;
use profiler_base::named_variants;
use profiler_core::session::RecordingFile;
use profiler_core::{Profile, Profiler, Recording};
use serde::{Deserialize, Serialize};

#[path = "raw.rs"]
mod raw;
use raw::{Raw, raw_library};

const WARM_UP: u64 = 5_000;
/// The number of launches between two waits for the stream.
const SYNCHRONIZE_EVERY: u64 = 500;
const RESAMPLES: usize = 10_000;
const SEED: u64 = 20;

const PTX: &str =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty()\n{\n    ret;\n}\n";

named_variants! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Mode with name in ALL {
        None = "none",
        Raw = "raw",
        Ours = "ours",
        OursRange = "ours-range",
        OursFile = "ours-file",
        Nsys = "nsys",
        NsysRange = "nsys-range",
        RawRange = "raw-range",
        RawAfter = "raw-after",
        OursAfter = "ours-after",
    }
}

const RATIOS: [(Mode, Mode); 12] = [
    (Mode::Ours, Mode::Raw),
    (Mode::OursRange, Mode::Raw),
    (Mode::OursFile, Mode::OursRange),
    (Mode::Nsys, Mode::Raw),
    (Mode::Raw, Mode::None),
    (Mode::Ours, Mode::Nsys),
    (Mode::OursRange, Mode::Nsys),
    (Mode::OursRange, Mode::NsysRange),
    (Mode::RawRange, Mode::Raw),
    (Mode::OursRange, Mode::RawRange),
    (Mode::RawAfter, Mode::None),
    (Mode::OursAfter, Mode::None),
];

impl Mode {
    fn parse(name: &str) -> Result<Self> {
        let mode = Self::ALL.into_iter().find(|mode| mode.name() == name);
        mode.ok_or_else(|| format!("no mode is called {name}").into())
    }

    fn has_ranges(self) -> bool {
        matches!(self, Self::OursRange | Self::OursFile | Self::NsysRange | Self::RawRange)
    }

    fn is_raw(self) -> bool {
        matches!(self, Self::Raw | Self::RawAfter | Self::RawRange)
    }

    /// The mode that collects and stops before the measurement.
    fn predecessor(self) -> Option<Self> {
        match self {
            Self::RawAfter => Some(Self::Raw),
            Self::OursAfter => Some(Self::Ours),
            _ => None,
        }
    }

    fn is_under_nsys(self) -> bool {
        matches!(self, Self::Nsys | Self::NsysRange)
    }
}

/// One measurement, in the format that its process prints.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Sample {
    mode: String,
    #[serde(default)]
    round: usize,
    /// The number of launches of all threads together.
    launches: u64,
    /// Nanoseconds per launch of one thread.
    ns_per_launch: f64,
    /// The time from the end of the last launch until all records are available.
    stop_ms: Option<f64>,
    /// The time to join the records to a profile.
    join_ms: Option<f64>,
    /// The time to query the sums of every range, one by one.
    query_ms: Option<f64>,
    records: Option<u64>,
    kernels: Option<u64>,
    dropped: Option<u64>,
    bytes: Option<u64>,
    /// The number of buffers that had to be allocated during a launch.
    pool_misses: Option<u64>,
    /// CUPTI's API version.
    cupti: Option<u32>,
    /// The losses that our own accounts report.
    losses: Option<String>,
}

struct Options {
    modes: Vec<Mode>,
    rounds: usize,
    /// The number of launches per thread.
    launches: u64,
    threads: usize,
}

fn read(arguments: &mut Arguments) -> Result<Options> {
    let modes = arguments.take_list("--modes", "none,raw,ours,ours-range,nsys")?;
    Ok(Options {
        modes: modes.iter().map(|name| Mode::parse(name)).collect::<Result<_>>()?,
        rounds: arguments.take("--rounds")?.unwrap_or(9).max(1),
        launches: arguments.take("--launches")?.unwrap_or(200_000).max(1),
        threads: arguments.take("--threads")?.unwrap_or(1).max(1),
    })
}

fn main() -> ExitCode {
    let measure = |mode: &str, options: &Options| measure(Mode::parse(mode)?, options);
    process_bench::run("launch_cost", unavailable, read, measure, compare)
}

// ---- One measurement, in a process of its own

/// An empty kernel on GPU 0, and the stream of one thread. Both live as long as the process.
#[derive(Debug, Clone, Copy)]
struct Gpu {
    context: sys::CUcontext,
    kernel: sys::CUfunction,
    stream: sys::CUstream,
}

// SAFETY: the driver's handles may be used on every thread.
unsafe impl Send for Gpu {}

impl Gpu {
    fn new() -> Result<Self> {
        result::init()?;
        let device = result::device::get(0)?;
        // SAFETY: the device is the one just given.
        let context = unsafe { result::primary_ctx::retain(device) }?;
        // SAFETY: the context is the one just retained, and it is never released.
        unsafe { result::ctx::set_current(context) }?;
        let ptx = CString::new(PTX)?;
        // SAFETY: the image is PTX that ends with a NUL, and lives through the call.
        let module = unsafe { result::module::load_data(ptx.as_ptr().cast()) }?;
        // SAFETY: the module is loaded and is never unloaded.
        let kernel = unsafe { result::module::get_function(module, CString::new("empty")?) }?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        Ok(Self { context, kernel, stream })
    }

    /// Creates a copy with a stream of its own.
    fn another(self) -> Result<Self> {
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        Ok(Self { stream, ..self })
    }

    /// Makes the context current on the thread that uses it.
    fn make_current(self) -> std::result::Result<(), DriverError> {
        // SAFETY: the context is never released.
        unsafe { result::ctx::set_current(self.context) }
    }

    #[inline]
    fn launch(&self) -> std::result::Result<(), DriverError> {
        let none: *mut *mut c_void = null_mut();
        // SAFETY: kernel and stream live as long as the process, in its one context; the kernel
        // takes no parameter.
        let code = unsafe {
            sys::cuLaunchKernel(self.kernel, 1, 1, 1, 1, 1, 1, 0, self.stream, none, none)
        };
        code.result()
    }

    #[inline]
    fn synchronize(&self) -> std::result::Result<(), DriverError> {
        // SAFETY: the stream lives as long as the process.
        unsafe { result::stream::synchronize(self.stream) }
    }

    /// The measured loop, with the same instructions in every mode. Returns with the GPU idle.
    #[inline(never)]
    fn launch_all(
        &self,
        launches: u64,
        ranges: bool,
    ) -> std::result::Result<Duration, DriverError> {
        let start = Instant::now();
        for i in 1..=launches {
            // Opaque, because the compiler would otherwise split the loop in two.
            let range = black_box(ranges).then(|| nvtx::range("launch"));
            self.launch()?;
            drop(range);
            if i % SYNCHRONIZE_EVERY == 0 {
                self.synchronize()?;
            }
        }
        self.synchronize()?;
        Ok(start.elapsed())
    }
}

fn measure(mode: Mode, options: &Options) -> Result<Sample> {
    let gpu = Gpu::new()?;
    gpu.launch_all(WARM_UP, false)?;
    let launches = options.launches * options.threads as u64;
    let mut sample = Sample {
        mode: mode.name().into(),
        round: 0,
        launches,
        ns_per_launch: 0.0,
        stop_ms: None,
        join_ms: None,
        query_ms: None,
        records: None,
        kernels: None,
        dropped: None,
        bytes: None,
        pool_misses: None,
        cupti: None,
        losses: None,
    };
    if let Some(before) = mode.predecessor() {
        let collection = Collection::start(before)?;
        gpu.launch_all(WARM_UP, false)?;
        collection.stop(&mut sample.clone())?;
    }
    let collection = Collection::start(mode)?;
    let time = match options.threads {
        1 => gpu.launch_all(options.launches, mode.has_ranges())?,
        threads => on_threads(gpu, threads, options.launches, mode.has_ranges())?,
    };
    sample.ns_per_launch = time.as_nanos() as f64 / options.launches as f64;
    collection.stop(&mut sample)?;
    Ok(sample)
}

/// Measures the median thread, with all threads launching at once.
fn on_threads(gpu: Gpu, threads: usize, launches: u64, ranges: bool) -> Result<Duration> {
    let barrier = Barrier::new(threads);
    let gpus = (0..threads).map(|_| gpu.another()).collect::<Result<Vec<_>>>()?;
    let times = std::thread::scope(|scope| {
        let run = |gpu: Gpu| {
            gpu.make_current()?;
            barrier.wait();
            gpu.launch_all(launches, ranges)
        };
        let threads: Vec<_> = gpus.into_iter().map(|gpu| scope.spawn(move || run(gpu))).collect();
        threads
            .into_iter()
            .map(|thread| Ok(thread.join().map_err(|_| "a thread panicked")??.as_secs_f64()))
            .collect::<Result<Vec<f64>>>()
    })?;
    Ok(Duration::from_secs_f64(median(&times)))
}

/// The recorder of a measurement, if any.
enum Collection {
    Nothing,
    Raw(Raw),
    Ours(Box<Collector>),
    OursRange(Box<Profiler>),
    OursFile(Box<RecordingFile>),
}

impl Collection {
    fn start(mode: Mode) -> Result<Self> {
        Ok(match mode {
            // Under nsys this process records nothing itself.
            Mode::None | Mode::Nsys | Mode::NsysRange | Mode::RawAfter | Mode::OursAfter => {
                Self::Nothing
            }
            Mode::Raw => Self::Raw(Raw::start()?),
            Mode::RawRange => {
                let raw = Raw::start()?;
                enable_markers()?;
                Self::Raw(raw)
            }
            Mode::Ours => {
                let collector = Collector::start(&Library::open()?, &Config::new())?;
                Self::Ours(Box::new(collector))
            }
            Mode::OursRange => {
                let profiler = Profiler::builder().build()?;
                profiler.start()?;
                Self::OursRange(Box::new(profiler))
            }
            Mode::OursFile => {
                let folder = env::var_os("OUT").map_or_else(env::temp_dir, PathBuf::from);
                let file = folder.join(format!("launch-cost-{}.gpuprof", std::process::id()));
                Self::OursFile(Box::new(Profiler::builder().build()?.record_to(file)?))
            }
        })
    }

    fn stop(self, sample: &mut Sample) -> Result<()> {
        let start = Instant::now();
        match self {
            Self::Nothing => {}
            Self::Raw(raw) => {
                let [records, kernels, dropped, bytes] = raw.stop()?;
                sample.stop_ms = Some(milliseconds(start));
                sample.records = Some(records);
                sample.kernels = Some(kernels);
                sample.dropped = Some(dropped);
                sample.bytes = Some(bytes);
                sample.cupti = Some(raw.version()?);
            }
            Self::Ours(collector) => {
                let collected = collector.stop()?;
                sample.stop_ms = Some(milliseconds(start));
                let records = &collected.records;
                let kernels = records.iter().filter(|r| matches!(r, Record::Kernel(_)));
                sample.kernels = Some(kernels.count() as u64);
                sample.records = Some(records.iter().count() as u64);
                sample.bytes = Some(records.buffers().map(|b| b.len() as u64).sum());
                let losses = collected.losses;
                sample.dropped = Some(losses.dropped_by_cupti + losses.over_memory_limit);
                sample.pool_misses = Some(losses.pool_misses);
                sample.cupti = Some(collected.version.0);
                let lost = losses.irregular
                    + losses.unreadable_bytes
                    + losses.panics
                    + losses.unfinished_buffers;
                sample.losses = (lost != 0).then(|| format!("{losses:?}"));
            }
            Self::OursRange(profiler) => {
                let recording = profiler.stop_recording()?;
                sample.stop_ms = Some(milliseconds(start));
                sample.join(recording);
            }
            Self::OursFile(file) => {
                let path = file.path().to_owned();
                let bytes = file.finish()?.bytes;
                sample.stop_ms = Some(milliseconds(start));
                let recording = Recording::load(&path)?;
                fs::remove_file(path)?;
                sample.join(recording);
                sample.bytes = Some(bytes);
            }
        }
        Ok(())
    }
}

impl Sample {
    /// Joins a recording with ranges, and checks it for losses.
    fn join(&mut self, recording: Recording) {
        let sample = self;
        let start = Instant::now();
        let profile = Profile::from_recording(recording);
        sample.join_ms = Some(milliseconds(start));
        let start = Instant::now();
        profile.ranges().for_each(|range| _ = black_box(range.inclusive()));
        sample.query_ms = Some(milliseconds(start));
        let health = profile.health();
        sample.records = Some(health.records);
        sample.kernels = Some(health.accounts.kernels.records);
        sample.dropped = Some(health.losses.dropped_by_cupti + health.losses.over_memory_limit);
        sample.pool_misses = Some(health.facts.pool_misses);
        sample.cupti = Some(profile.recording_info().cupti_version);
        sample.losses = (!health.is_complete()).then(|| health.to_string());
        let in_ranges = profile.range("launch").map_or(0, |range| range.kernels());
        if in_ranges != health.accounts.kernels.records {
            sample.losses = Some(format!("only {in_ranges} kernels found their range"));
        }
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Enables CUPTI's records of ranges.
fn enable_markers() -> Result<()> {
    // SAFETY: the library is in use already.
    let library = unsafe { libloading::Library::new(Library::open()?.path()) }?;
    type Enable = unsafe extern "C" fn(u32) -> i32;
    // SAFETY: this is the function's type in CUPTI.
    let enable = unsafe { library.get::<Enable>(b"cuptiActivityEnable\0") }?;
    // SAFETY: the function takes only the kind.
    match unsafe { enable(cupti::ActivityKind::MARKER.0) } {
        0 => Ok(()),
        code => Err(format!("the MARKER kind gives CUPTI's error {code}").into()),
    }
}

// ---- All of them, compared

/// A temporary folder that is removed with its content.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let path = env::temp_dir().join(format!("launch_cost-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The settings of the measuring processes.
struct Setup {
    program: PathBuf,
    scratch: Scratch,
    raw: Option<PathBuf>,
    nsys: Option<PathBuf>,
}

fn compare(options: &Options) -> Result<ExitCode> {
    let mut setup =
        Setup { program: env::current_exe()?, scratch: Scratch::new()?, raw: None, nsys: None };
    let mut modes = options.modes.clone();
    if modes.iter().any(|mode| mode.is_raw()) {
        match raw_library(&setup.scratch.0) {
            Ok(path) => setup.raw = Some(path),
            Err(why) => {
                eprintln!("launch_cost: raw is left out: {why}");
                modes.retain(|mode| !mode.is_raw());
            }
        }
    }
    if modes.iter().any(|mode| mode.is_under_nsys()) {
        match nsys() {
            Ok(path) => setup.nsys = Some(path),
            Err(why) => {
                eprintln!("launch_cost: nsys is left out: {why}");
                modes.retain(|mode| !mode.is_under_nsys());
            }
        }
    }
    let mut lines = match env::var_os("OUT") {
        Some(folder) => Some(File::create(Path::new(&folder).join("launch_cost.jsonl"))?),
        None => None,
    };

    let mut samples: Vec<Sample> = Vec::new();
    let mut failed = Vec::new();
    let mut lost = false;
    for (round, &mode) in process_bench::turns(options.rounds, &modes) {
        if failed.contains(&mode) {
            continue;
        }
        match setup.measure(mode, options) {
            Ok(sample) => {
                let sample = Sample { mode: mode.name().into(), round, ..sample };
                if let Some(lines) = &mut lines {
                    writeln!(lines, "{}", serde_json::to_string(&sample)?)?;
                }
                eprintln!(
                    "launch_cost: round {}: {}: {:.0} ns",
                    round + 1,
                    mode.name(),
                    sample.ns_per_launch
                );
                lost |= report_losses(mode, &sample);
                samples.push(sample);
            }
            Err(error) => {
                println!("ERROR: round {}: {}: {error}", round + 1, mode.name());
                failed.push(mode);
            }
        }
    }
    print_tables(options, &modes, &samples);
    Ok(if lost || !failed.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints the losses. Returns true if there were any.
fn report_losses(mode: Mode, sample: &Sample) -> bool {
    let mut lost = false;
    let mut error = |what: String| {
        println!("ERROR: round {}: {}: {what}", sample.round + 1, mode.name());
        lost = true;
    };
    if let Some(kernels) = sample.kernels.filter(|kernels| *kernels != sample.launches) {
        error(format!("{kernels} kernel records of {} launches", sample.launches));
    }
    if let Some(dropped) = sample.dropped.filter(|dropped| *dropped != 0) {
        error(format!("{dropped} records dropped"));
    }
    if let Some(losses) = &sample.losses {
        error(losses.clone());
    }
    lost
}

impl Setup {
    fn measure(&self, mode: Mode, options: &Options) -> Result<Sample> {
        let mut command = match &self.nsys {
            Some(nsys) if mode.is_under_nsys() => {
                let mut command = Command::new(nsys);
                command.args(["profile", "-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none", "-o"]);
                command.arg(self.scratch.0.join("report"));
                command.args(["-f", "true"]);
                command.arg(&self.program);
                command
            }
            _ => Command::new(&self.program),
        };
        command.args(["--mode", mode.name()]);
        command.args(["--launches", &options.launches.to_string()]);
        command.args(["--threads", &options.threads.to_string()]);
        if let Some(raw) = &self.raw {
            command.env("RAW_CUPTI", raw);
        }
        if mode == Mode::RawRange {
            command.env("NVTX_INJECTION64_PATH", Library::open()?.path());
        }
        // Use files, because nsys may leave processes behind that would keep a pipe open.
        let (out, err) = (self.scratch.0.join("stdout"), self.scratch.0.join("stderr"));
        let status = command
            .stdin(Stdio::null())
            .stdout(File::create(&out)?)
            .stderr(File::create(&err)?)
            .status()?;
        let read = |path| fs::read(path).map(|text| String::from_utf8_lossy(&text).into_owned());
        let stdout = read(&out)?;
        // nsys prints its own lines around our line.
        let sample = stdout.lines().find_map(|line| serde_json::from_str::<Sample>(line).ok());
        match sample {
            Some(sample) if status.success() => Ok(sample),
            _ => Err(format!("{status}: {stdout}{}", read(&err)?.trim_end()).into()),
        }
    }
}

fn print_tables(options: &Options, modes: &[Mode], samples: &[Sample]) {
    let of = |mode: Mode| samples.iter().filter(move |s| s.mode == mode.name());
    println!(
        "\nOne launch of an empty kernel, in ns: {} rounds of {} threads with {} launches each, a wait every \
         {SYNCHRONIZE_EVERY}",
        options.rounds, options.threads, options.launches
    );
    println!(
        "{:<12}{:>9}{:>9}{:>9}{:>12}{:>12}{:>12}{:>14}",
        "mode", "median", "min", "max", "stop (ms)", "join (ms)", "query (ms)", "bytes/launch"
    );
    for &mode in modes {
        let times: Vec<f64> = of(mode).map(|s| s.ns_per_launch).collect();
        if times.is_empty() {
            continue;
        }
        let (min, max) =
            times.iter().fold((f64::INFINITY, 0.0_f64), |(min, max), &t| (min.min(t), max.max(t)));
        let stops: Vec<f64> = of(mode).filter_map(|s| s.stop_ms).collect();
        let bytes: Vec<f64> =
            of(mode).filter_map(|s| Some(s.bytes? as f64 / s.launches as f64)).collect();
        let optional = |values: &[f64]| match values {
            [] => String::new(),
            values => format!("{:.1}", median(values)),
        };
        println!(
            "{:<12}{:>9.0}{min:>9.0}{max:>9.0}{:>12}{:>12}{:>12}{:>14}",
            mode.name(),
            median(&times),
            optional(&stops),
            optional(&of(mode).filter_map(|s| s.join_ms).collect::<Vec<_>>()),
            optional(&of(mode).filter_map(|s| s.query_ms).collect::<Vec<_>>()),
            optional(&bytes)
        );
    }
    println!("\nRatios within a round: median, with the 95 % interval of the median (bootstrap)");
    for (over, under) in RATIOS {
        let ratios: Vec<f64> = of(over)
            .filter_map(|s| {
                let other = of(under).find(|other| other.round == s.round)?;
                Some(s.ns_per_launch / other.ns_per_launch)
            })
            .collect();
        if ratios.is_empty() {
            continue;
        }
        let (low, high) = bootstrap_median(&ratios, RESAMPLES, SEED);
        let name = format!("{} / {}", over.name(), under.name());
        println!(
            "{name:<26}{:>7.3}  [{low:.3}, {high:.3}]  of {} rounds",
            median(&ratios),
            ratios.len()
        );
    }
    let versions = |mode: Mode| of(mode).find_map(|s| s.cupti);
    if let (Some(raw), Some(ours)) = (versions(Mode::Raw), versions(Mode::Ours))
        && raw != ours
    {
        println!(
            "NOTE: raw used CUPTI {raw} and ours {ours}: set CUPTI_LIBRARY_PATH to the file that raw is linked to"
        );
    }
}

/// The path of nsys, if the environment names an nsys that runs.
fn nsys() -> Result<PathBuf> {
    let path = PathBuf::from(env::var_os("NSYS").ok_or("NSYS names none")?);
    let output = Command::new(&path)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{}: {error}", path.display()))?;
    if output.status.success() {
        Ok(path)
    } else {
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(format!("{}: {}", path.display(), stderr.trim_end()).into())
    }
}
