//! Checks the guarantees of an always-on service on a GPU. One check per command; each fails if the
//! guarantee is violated.
//!
//! ```text
//! always_live --bench --check estimates [--rounds 20] [--seconds 1.2]
//! always_live --bench --check memory    [--rounds 3] [--seconds 480] [--without recorder,graph,windows]
//! ```
//!
//! | `--check` | procedure | fails if |
//! | --- | --- | --- |
//! | `estimates` | each round is a process that runs the same steps with windows drawn at a rate of 0.25; the reference is a process in which GRAPH_TRACE and kernels are on for the whole run | the 95 % interval of a range contains the reference in fewer than 18 of 20 rounds |
//! | `memory` | several processes side by side, each with an always-on session and a flight recorder that retains 5 s, for `--seconds` in eight parts; optionally without the recorder, graphs or windows | the mean resident memory of the last part exceeds that of the fifth by 2 % and 2 MiB. The table of remembered ranges is filled first, so that all bounded memory is full by then |
//!
//! A correct interval of one range contains the reference in fewer than 18 of 20 rounds in 7.5 % of
//! checks. Graphs have nodes of 100 us. The gaps between nodes, which a GRAPH_TRACE interval
//! includes, are therefore about 1 % of it.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that prints what it measured"
)]

use std::collections::BTreeMap;
use std::env;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use gpu_profiler_benches::process_bench::{self, Arguments, Result};
use gpu_profiler_benches::stats::median;
use gpu_profiler_tests::cuda::{Gpu, unavailable};
use profiler_core::Profiler;
use profiler_core::session::FlightRecorder;
use profiler_core::session::always_on::{AlwaysOn, AlwaysOnReport};
use serde::{Deserialize, Serialize};

/// The number of parts of the `memory` run.
const PARTS: usize = 8;
/// The part with which the last one is compared. All bounded memory is full by then.
const FULL: usize = 5;
const MOST_GROWTH: f64 = 0.02;
const MOST_GROWN_BYTES: f64 = (2 << 20) as f64;
/// The number of ranges that a session remembers after their end.
const REMEMBERED: u64 = 1 << 18;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Sample {
    mode: String,
    #[serde(default)]
    round: usize,
    /// For `estimates`: the GPU time of each path in nanoseconds, with its bounds.
    paths: BTreeMap<String, [f64; 3]>,
    windows: u64,
    report: Option<String>,
    lost: Option<String>,
}

struct Options {
    check: String,
    rounds: Option<usize>,
    seconds: Option<f64>,
    without: Option<String>,
}

fn read(arguments: &mut Arguments) -> Result<Options> {
    Ok(Options {
        check: arguments.take("--check")?.unwrap_or_else(|| "estimates".to_owned()),
        rounds: arguments.take("--rounds")?.map(|rounds: usize| rounds.max(1)),
        seconds: arguments.take("--seconds")?.map(|seconds: f64| seconds.clamp(0.1, 3_600.0)),
        without: arguments.take("--without")?,
    })
}

impl Options {
    fn time(&self) -> Duration {
        let usual = match self.check.as_str() {
            "memory" => 480.0,
            _ => 1.2,
        };
        Duration::from_secs_f64(self.seconds.unwrap_or(usual))
    }

    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.check == "estimates" { 20 } else { 3 })
    }

    /// The command of a process in this mode.
    fn command(&self, mode: &str) -> Result<Command> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["--mode", mode, "--check", &self.check]);
        command.args(["--seconds", &self.time().as_secs_f64().to_string()]);
        command.args(self.without.iter().flat_map(|part| ["--without", part]));
        Ok(command)
    }
}

fn main() -> ExitCode {
    let measure = |mode: &str, options: &Options| match options.check.as_str() {
        "estimates" => estimates(mode, options.time()),
        "memory" => memory(mode, options),
        other => Err(format!("no check is called {other}").into()),
    };
    let check = |options: &Options| match options.check.as_str() {
        "estimates" => check_estimates(options),
        "memory" => check_memory(options),
        other => Err(format!("no check is called {other}").into()),
    };
    process_bench::run("always_live", unavailable, read, measure, check)
}

fn exit(has_failed: bool) -> ExitCode {
    println!("{}", if has_failed { "FAILED" } else { "passed" });
    if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Copies the report of a session into the sample.
fn describe(sample: &mut Sample, report: &AlwaysOnReport) {
    let health = report.recorded().health();
    sample.lost = (!health.is_complete()).then(|| health.to_string());
    sample.windows = report.sampled_windows();
    sample.report = Some(report.to_string());
}

// ---- Estimates

/// Runs steps that are identical in each process: the time determines their number, and the number
/// of a step determines its work.
fn steps(gpu: &Gpu, count: u64, mut unit: impl FnMut(&mut dyn FnMut())) {
    let stream = gpu.stream();
    let graphs = [2, 5, 8, 11].map(|nodes: u64| {
        gpu.capture(stream, || (0..nodes).for_each(|_| gpu.launch_spin(stream, 100_000)))
    });
    // The first launches are slower, so they precede all ranges.
    graphs.iter().for_each(|graph| gpu.launch_graph(*graph, stream));
    gpu.synchronize(stream);
    // No unit is drawn within a second after a graph was made.
    std::thread::sleep(Duration::from_millis(1_100));
    let mut random = fastrand::Rng::with_seed(23);
    for _ in 0..count {
        let (graph, kernels, each_us) =
            (graphs[random.usize(..4)], random.u64(1..8), random.u64(10..60));
        unit(&mut || {
            {
                let _decode = nvtx::range("decode");
                gpu.launch_graph(graph, stream);
            }
            let _sample = nvtx::range("sample");
            (0..kernels).for_each(|_| gpu.launch_spin(stream, 1_000 * each_us));
            gpu.synchronize(stream);
        });
    }
    graphs.into_iter().for_each(|graph| gpu.destroy_graph(graph));
    gpu.destroy(stream);
}

fn estimates(mode: &str, time: Duration) -> Result<Sample> {
    let gpu = Gpu::get();
    let settings = match mode {
        "truth" => AlwaysOn::new().whole_graphs(),
        _ => AlwaysOn::new().budget(1.0).rate(0.25),
    };
    let session = Profiler::builder().build()?.always_on(&settings)?;
    // A step takes about 0.8 ms.
    let count = (time.as_secs_f64() / 0.8e-3) as u64;
    steps(&gpu, count, |step| {
        let _unit = session.unit("step");
        step();
    });
    let report = session.stop()?;
    let mut sample = Sample { mode: mode.to_owned(), ..Sample::default() };
    describe(&mut sample, &report);
    if mode == "truth" {
        for path in report.recorded().paths() {
            let ns = path.inclusive().gpu_time().as_nanos() as f64;
            sample.paths.insert(path.path(), [ns; 3]);
        }
    } else {
        for range in report.ranges() {
            let Some(estimate) = range.gpu_ns else { continue };
            // JSON has no infinity, the upper bound with few windows.
            let of_path = [estimate.value, estimate.low, estimate.high.min(f64::MAX)];
            sample.paths.insert(range.path, of_path);
        }
    }
    Ok(sample)
}

fn check_estimates(options: &Options) -> Result<ExitCode> {
    let run = |mode: &str| process_bench::sample::<Sample>(&mut options.command(mode)?);
    let (truth, again) = (run("truth")?, run("truth")?);
    println!(
        "| range | truth, ms | a second truth | within | estimate / truth, median | half interval / truth, median |"
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    let rounds = options.rounds();
    let samples: Vec<Sample> = (0..rounds).map(|_| run("windows")).collect::<Result<_>>()?;
    let mut has_failed = samples.iter().chain([&truth, &again]).any(|sample| {
        sample.lost.iter().for_each(|lost| println!("ERROR: {}: {lost}", sample.mode));
        sample.lost.is_some()
    });
    for (path, [ns, ..]) in &truth.paths {
        let of_path: Vec<&[f64; 3]> =
            samples.iter().filter_map(|sample| sample.paths.get(path)).collect();
        let within = of_path.iter().filter(|[_, low, high]| low <= ns && ns <= high).count();
        let ratios: Vec<f64> = of_path.iter().map(|[value, ..]| value / ns).collect();
        let halves: Vec<f64> =
            of_path.iter().map(|[_, low, high]| (high - low) / 2.0 / ns).collect();
        let second = again.paths.get(path).map_or(f64::NAN, |[ns, ..]| ns / 1e6);
        println!(
            "| {path} | {:.1} | {second:.1} | {within} of {rounds} | {:.3} | {:.3} |",
            ns / 1e6,
            median(&ratios),
            median(&halves)
        );
        has_failed |= within < rounds * 18 / 20;
    }
    let windows: Vec<f64> = samples.iter().map(|sample| sample.windows as f64).collect();
    println!("windows of a round, median: {}", median(&windows));
    has_failed |= !truth.paths.contains_key("step");
    Ok(exit(has_failed))
}

// ---- Memory

/// The resident memory of this process in bytes.
fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
    4096.0 * pages.unwrap_or(0.0)
}

/// The bytes that the C library's allocator has handed out.
fn handed_out_bytes() -> f64 {
    // SAFETY: reads the C library's own counts.
    let allocator = unsafe { libc::mallinfo2() };
    (allocator.uordblks + allocator.hblkhd) as f64
}

/// Runs requests of a graph and kernels for the given time. The parent prints the line of each part
/// when it arrives.
fn memory(mode: &str, options: &Options) -> Result<Sample> {
    let left_out = options.without.as_deref().unwrap_or_default();
    let with = |part: &str| !left_out.split(',').any(|without| without == part);
    let gpu = Gpu::get();
    let folder = env::temp_dir().join(format!("always_live-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let settings = AlwaysOn::new();
    let settings = if with("windows") { settings } else { settings.calls_only() };
    let session = Profiler::builder().build()?.always_on(&settings)?;
    let keep = Profiler::builder().keep_last(Duration::from_secs(5)).build()?;
    let settings = FlightRecorder::new(&folder).on_error();
    let recorder = with("recorder").then(|| keep.flight_recorder(&settings)).transpose()?;
    let stream = gpu.stream();
    let capture = || gpu.capture(stream, || (0..50).for_each(|_| gpu.launch_spin(stream, 2_000)));
    let graph = with("graph").then(capture);
    for number in 0..REMEMBERED {
        drop(nvtx::event("remembered").payload(number).range());
        if number % 1_000 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    let part = options.time() / PARTS as u32;
    let (mut means, mut requests) = (Vec::new(), 0_u64);
    for number in 1..=PARTS {
        let (start, mut bytes, mut sampled) = (Instant::now(), Vec::new(), Instant::now());
        while start.elapsed() < part {
            let _unit = session.unit("request");
            let _request = nvtx::event("answer").payload(requests).range();
            graph.iter().for_each(|graph| gpu.launch_graph(*graph, stream));
            (0..12).for_each(|_| gpu.launch_spin(stream, 5_000));
            gpu.synchronize(stream);
            requests += 1;
            if sampled.elapsed() > Duration::from_millis(200) {
                bytes.push(resident_bytes());
                sampled = Instant::now();
            }
        }
        let mean = bytes.iter().sum::<f64>() / bytes.len().max(1) as f64;
        println!(
            "process {mode}: part {number} of {PARTS}, {:.0} s each: {:.1} MiB resident, {:.1} handed out by the allocator, {requests} requests",
            part.as_secs_f64(),
            mean / f64::from(1 << 20),
            handed_out_bytes() / f64::from(1 << 20)
        );
        means.push(mean);
        // Write one file on request in each part. The recorder's copy in memory is freed
        // afterwards.
        if let Some(recorder) = &recorder {
            std::fs::remove_file(recorder.write()?)?;
        }
    }
    recorder.map(|recorder| recorder.stop()).transpose()?;
    let mut sample = Sample { mode: mode.to_owned(), ..Sample::default() };
    let report = session.stop()?;
    println!("process {mode}: {} windows", report.counts().drawn);
    describe(&mut sample, &report);
    graph.into_iter().for_each(|graph| gpu.destroy_graph(graph));
    std::fs::remove_dir_all(&folder)?;
    let (full, last) = (means[FULL - 1], means[PARTS - 1]);
    if last > full * (1.0 + MOST_GROWTH) + MOST_GROWN_BYTES {
        let grown = (last - full) / f64::from(1 << 20);
        sample.lost = Some(format!("memory grew by {grown:.1} MiB after part {FULL}"));
    }
    Ok(sample)
}

fn check_memory(options: &Options) -> Result<ExitCode> {
    let start = |number: usize| -> Result<Child> {
        let mut command = options.command(&(number + 1).to_string())?;
        Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?)
    };
    let children: Vec<Child> = (0..options.rounds()).map(start).collect::<Result<_>>()?;
    let follow = |mut child: Child| -> Option<Sample> {
        let mut sample = None;
        let lines = child.stdout.take().map(std::io::BufReader::new);
        for line in
            lines.into_iter().flat_map(std::io::BufRead::lines).map_while(std::io::Result::ok)
        {
            match serde_json::from_str(&line) {
                Ok(last) => sample = Some(last),
                Err(_) => println!("{line}"),
            }
        }
        child.wait().ok().filter(std::process::ExitStatus::success).and(sample)
    };
    let samples: Vec<Option<Sample>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            children.into_iter().map(|child| scope.spawn(move || follow(child))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    });
    let mut has_failed = false;
    for (number, sample) in samples.iter().enumerate() {
        let why = match sample {
            None => "it did not end well".to_owned(),
            Some(Sample { lost: Some(lost), .. }) => lost.clone(),
            Some(_) => continue,
        };
        println!("ERROR: process {}: {why}", number + 1);
        has_failed = true;
    }
    Ok(exit(has_failed))
}
