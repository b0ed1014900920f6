//! The cost of an always-on profiler for a service: throughput and latency, paired and interleaved.
//!
//! ```text
//! always_on --bench [--rounds 5] [--seconds 1] [--modes none,again,dormant,stopped,calls,windows,full,raw] [--nodes 500]
//!                   [--only decode|service] [--settle 5] [--within] [--pace 1000] [--threads 4] [--graphs]
//! ```
//!
//! | mode | recorder |
//! | --- | --- |
//! | `none` | nothing |
//! | `again` | nothing, again: the interval of its ratio is the reference for the other modes |
//! | `dormant` | a session that is paused from its start and never switched on; its ranges are recorded |
//! | `stopped` | nothing: a session was started and stopped before, with 0.3 s of the service in it |
//! | `calls` | `AlwaysOn::calls_only` |
//! | `windows` | `AlwaysOn` with its defaults |
//! | `full` | `Profiler::start`, everything |
//! | `raw` | CUPTI from C++ with the same callbacks and the kinds of the same records, including synchronisations: `raw_cupti.cpp` |
//! | `subscribed`, `callbacks` | CUPTI from C++ without records: only a subscriber, or also empty callbacks of the same calls; only if named in `--modes` |
//!
//! Each measurement is a process of its own: this program started again with `--mode`. It measures
//! four quantities for `--seconds` each:
//!
//! - replays per second of a graph of `--nodes` kernels of 1 to 5 us; a decode loop launches each
//!   replay and waits for it;
//! - the same with two replays queued ahead, so that the GPU is the limit;
//! - requests per second of a service at saturation, each of whose `--threads` launches 12 small
//!   kernels per request, or with `--graphs` a graph of them;
//! - the median and the 99th percentile of the service's latency at `--pace` requests per second.
//!
//! Before the first quantity the same load runs for `--settle` seconds. Each round runs all modes,
//! starting with a different mode, and only values of the same round are compared. The benchmark
//! fails if a session is incomplete.
//!
//! Processes differ by several percent. `--within` measures only the service at saturation, before
//! the session of each process begins and after its `--settle`, and prints the ratio of both. The
//! ratio of `none` is the drift over time.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that prints what it measured"
)]

use std::env;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUgraphExec;
use cupti::Config;
use gpu_profiler_benches::process_bench::{self, Arguments, Result};
use gpu_profiler_benches::stats::{self, Rounds, median};
use gpu_profiler_tests::cuda::{Gpu, Handle, Stream, unavailable};
use profiler_core::Profiler;
use profiler_core::session::always_on::{AlwaysOn, AlwaysOnSession, UnitGuard};
use serde::{Deserialize, Serialize};

#[path = "raw.rs"]
mod raw;
use raw::{Raw, raw_library_for};

const DEFAULT_THREADS: usize = 4;
const KERNELS: u64 = 12;
/// The number of replays queued before the oldest is waited for.
const AHEAD: usize = 2;
const DEFAULT_SETTLE: f64 = 5.0;
/// The duration of a piece. Rates at saturation are means of pieces, each with its own threads and
/// streams. The placement of the threads determines the rate of a piece.
const PIECE: Duration = Duration::from_millis(200);
/// The warm-up before each other measurement. In it graphs become quiet, launches are measured, and
/// clocks rise.
const WARM_UP: Duration = Duration::from_millis(400);

/// One measurement, in the format that its process prints.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Sample {
    mode: String,
    #[serde(default)]
    round: usize,
    replays_per_second: f64,
    queued_per_second: f64,
    requests_per_second: f64,
    /// The ratio to the rate before the session, if that is measured.
    #[serde(default)]
    within: f64,
    p50_us: f64,
    p99_us: f64,
    /// The report of an always-on session.
    report: Option<String>,
    /// The session's own measurement of the cost of windows, as a share of time.
    measured: Option<f64>,
    lost: Option<String>,
}

struct Options {
    modes: Vec<String>,
    rounds: usize,
    seconds: f64,
    nodes: u64,
    only: Option<String>,
    settle: f64,
    within: bool,
    pace: u64,
    threads: usize,
    graphs: bool,
}

impl Options {
    fn measures(&self, part: &str) -> bool {
        let only = if self.within { Some("service") } else { self.only.as_deref() };
        only.is_none_or(|only| only == part)
    }

    /// The duration of the first load's warm-up.
    fn settle(&self) -> Duration {
        Duration::from_secs_f64(self.settle)
    }
}

fn read(arguments: &mut Arguments) -> Result<Options> {
    let modes = "none,again,dormant,stopped,calls,windows,full,raw";
    Ok(Options {
        modes: arguments.take_list("--modes", modes)?,
        rounds: arguments.take("--rounds")?.unwrap_or(5).max(1),
        seconds: arguments.take("--seconds")?.unwrap_or(1.0_f64).clamp(0.01, 60.0),
        nodes: arguments.take("--nodes")?.unwrap_or(500).max(1),
        only: arguments.take("--only")?,
        settle: arguments.take("--settle")?.unwrap_or(DEFAULT_SETTLE).clamp(1.0, 120.0),
        within: arguments.take_flag("--within"),
        pace: arguments.take("--pace")?.unwrap_or(1_000).max(1),
        threads: arguments.take("--threads")?.unwrap_or(DEFAULT_THREADS).max(1),
        graphs: arguments.take_flag("--graphs"),
    })
}

fn main() -> ExitCode {
    process_bench::run("always_on", unavailable, read, measure, compare)
}

// ---- One measurement, in a process of its own

/// The recorder of a measurement, if any.
enum Session {
    None,
    Dormant(Profiler),
    AlwaysOn(AlwaysOnSession),
    Full(Profiler),
    Raw(Raw),
}

impl Session {
    fn start(mode: &str) -> Result<Self> {
        let always_on = |settings: AlwaysOn| -> Result<Self> {
            Ok(Self::AlwaysOn(Profiler::builder().build()?.always_on(&settings)?))
        };
        Ok(match mode {
            "none" | "again" => Self::None,
            "dormant" => {
                let config = Config::new().start_paused(true);
                let profiler = Profiler::builder().config(config).build()?;
                profiler.start()?;
                Self::Dormant(profiler)
            }
            "stopped" => {
                let profiler = Profiler::builder().build()?;
                profiler.start()?;
                let service =
                    Service { gpu: Gpu::get(), threads: DEFAULT_THREADS, graphs: Vec::new() };
                service.serve(&Self::None, Duration::from_millis(300), None);
                let health = profiler.stop()?.health().clone();
                if !health.is_complete() {
                    return Err(health.to_string().into());
                }
                Self::None
            }
            "calls" => always_on(AlwaysOn::new().calls_only())?,
            "windows" => always_on(AlwaysOn::new())?,
            "full" => {
                let profiler = Profiler::builder().build()?;
                profiler.start()?;
                Self::Full(profiler)
            }
            "raw" => Self::Raw(Raw::start()?),
            "subscribed" | "callbacks" => Self::Raw(Raw::without_records(mode == "callbacks")?),
            other => return Err(format!("no mode is called {other}").into()),
        })
    }

    /// Begins a step or request.
    fn unit(&self, name: &str) -> Guard<'_> {
        match self {
            Self::AlwaysOn(session) => Guard::Unit(session.unit(name)),
            Self::None | Self::Raw(_) => Guard::None,
            _ => Guard::Range(nvtx::range(name)),
        }
    }

    fn stop(self, sample: &mut Sample) -> Result<()> {
        match self {
            Self::None => {}
            Self::Dormant(profiler) | Self::Full(profiler) => {
                let profile = profiler.stop()?;
                let health = profile.health();
                sample.lost = (!health.is_complete()).then(|| health.to_string());
            }
            Self::AlwaysOn(session) => {
                let report = session.stop()?;
                let health = report.recorded().health();
                sample.lost = (!health.is_complete()).then(|| health.to_string());
                sample.measured = Some(report.window_share());
                sample.report = Some(report.to_string());
            }
            Self::Raw(raw) => {
                let [_, _, dropped, _] = raw.stop()?;
                sample.lost = (dropped != 0).then(|| format!("{dropped} records dropped"));
            }
        }
        Ok(())
    }
}

/// Ends a step or request when it is dropped.
#[expect(dead_code, reason = "guards are dropped, not read")]
enum Guard<'a> {
    None,
    Range(nvtx::Range),
    Unit(UnitGuard<'a>),
}

fn measure(mode: &str, options: &Options) -> Result<Sample> {
    let gpu = Gpu::get();
    let mut sample = Sample {
        mode: mode.to_owned(),
        round: 0,
        replays_per_second: 0.0,
        queued_per_second: 0.0,
        requests_per_second: 0.0,
        within: 0.0,
        p50_us: 0.0,
        p99_us: 0.0,
        report: None,
        measured: None,
        lost: None,
    };
    let time = Duration::from_secs_f64(options.seconds);
    let before = options.within.then(|| {
        let (none, service) = (Session::None, Service::new(&gpu, options));
        service.serve(&none, options.settle(), None);
        service.saturated(&none, time)
    });
    let session = Session::start(mode)?;
    let is_first = !options.measures("decode");
    if !is_first {
        [sample.replays_per_second, sample.queued_per_second] =
            decode(&gpu, &session, options, time);
    }
    if options.measures("service") {
        // Units are drawn again a second after a graph was made.
        let warm_up = if is_first || options.graphs { options.settle() } else { WARM_UP };
        let service = Service::new(&gpu, options);
        service.serve(&session, warm_up, None);
        sample.requests_per_second = service.saturated(&session, time);
        if let Some(before) = before {
            sample.within = sample.requests_per_second / before;
        } else {
            let (_, mut latencies) = service.serve(&session, time, Some(options.pace));
            latencies.sort_unstable();
            let percentile = |percent: usize| {
                let rank = (latencies.len() * percent / 100).min(latencies.len().saturating_sub(1));
                latencies.get(rank).map_or(f64::NAN, |ns| *ns as f64 / 1e3)
            };
            (sample.p50_us, sample.p99_us) = (percentile(50), percentile(99));
        }
    }
    session.stop(&mut sample)?;
    Ok(sample)
}

/// Measures replays per second of a graph in a decode loop: first with a wait for each, then with
/// some queued ahead.
fn decode(gpu: &Gpu, session: &Session, options: &Options, time: Duration) -> [f64; 2] {
    let stream = gpu.stream();
    let graph = gpu.capture(stream, || {
        (0..options.nodes).for_each(|node| gpu.launch_spin(stream, 500 + 1_000 * (node % 5)));
    });
    let events: Vec<_> = (0..=AHEAD).map(|_| gpu.event()).collect();
    let replay = |name, ahead: usize, for_time: Duration| {
        let (start, mut replays) = (Instant::now(), 0_usize);
        while start.elapsed() < for_time {
            let _token = session.unit(name);
            gpu.launch_graph(graph, stream);
            gpu.record(events[replays % events.len()], stream);
            if replays >= ahead {
                gpu.synchronize_event(events[(replays - ahead) % events.len()]);
            }
            replays += 1;
        }
        gpu.synchronize(stream);
        replays as f64 / start.elapsed().as_secs_f64()
    };
    replay("decode", 0, options.settle());
    let waited = replay("decode", 0, time);
    replay("queued", AHEAD, WARM_UP);
    let queued = replay("queued", AHEAD, time);
    gpu.destroy_graph(graph);
    [waited, queued]
}

/// A service whose threads launch kernels, or a graph of them each.
struct Service {
    gpu: Gpu,
    threads: usize,
    /// One of each thread; none if the threads launch kernels.
    graphs: Vec<Handle<CUgraphExec>>,
}

impl Service {
    fn new(gpu: &Gpu, options: &Options) -> Self {
        let graph = |_| {
            let stream = gpu.stream();
            let graph = gpu.capture(stream, || launch_kernels(gpu, stream));
            gpu.destroy(stream);
            graph
        };
        let graphs = if options.graphs { options.threads } else { 0 };
        Self {
            gpu: gpu.clone(),
            threads: options.threads,
            graphs: (0..graphs).map(graph).collect(),
        }
    }

    /// Measures requests per second at saturation: the mean of pieces whose total duration is
    /// `time`.
    fn saturated(&self, session: &Session, time: Duration) -> f64 {
        let pieces = time.as_nanos().div_ceil(PIECE.as_nanos()).max(1);
        let rates = (0..pieces).map(|_| self.serve(session, PIECE, None).0);
        rates.sum::<f64>() / pieces as f64
    }

    /// Measures requests per second, and the latency of each in nanoseconds. With a pace, latency
    /// counts from the time at which the request was due.
    fn serve(&self, session: &Session, time: Duration, paced: Option<u64>) -> (f64, Vec<u64>) {
        let next = AtomicU64::new(0);
        let start = Instant::now();
        let serve = |graph: Option<Handle<CUgraphExec>>| {
            let gpu = self.gpu.clone();
            gpu.make_current();
            let stream = gpu.stream();
            let mut latencies = Vec::new();
            while start.elapsed() < time {
                let due = paced.map(|per_second| {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    start + Duration::from_nanos(number * 1_000_000_000 / per_second)
                });
                if let Some(due) = due {
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                }
                let begun = due.unwrap_or_else(Instant::now);
                let request = session.unit("request");
                match graph {
                    Some(graph) => gpu.launch_graph(graph, stream),
                    None => launch_kernels(&gpu, stream),
                }
                gpu.synchronize(stream);
                drop(request);
                latencies.push(begun.elapsed().as_nanos() as u64);
            }
            gpu.destroy(stream);
            latencies
        };
        let latencies: Vec<u64> = std::thread::scope(|scope| {
            let (serve, threads) = (&serve, 0..self.threads);
            let threads: Vec<_> = threads
                .map(|thread| {
                    let graph = self.graphs.get(thread).copied();
                    scope.spawn(move || serve(graph))
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
        });
        (latencies.len() as f64 / start.elapsed().as_secs_f64(), latencies)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.graphs.drain(..).for_each(|graph| self.gpu.destroy_graph(graph));
    }
}

/// Launches the kernels of one request.
fn launch_kernels(gpu: &Gpu, stream: Stream) {
    (0..KERNELS).for_each(|number| gpu.launch_spin(stream, 500 + 300 * number));
}

// ---- All of them, compared

fn compare(options: &Options) -> Result<ExitCode> {
    let mut modes = options.modes.clone();
    let scratch = env::temp_dir().join(format!("always_on-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let raw = raw_library_for(&mut modes, &scratch);
    let mut samples: Vec<Sample> = Vec::new();
    let mut failed = false;
    for (round, mode) in process_bench::turns(options.rounds, &modes) {
        let mut command = Command::new(env::current_exe()?);
        command.args(["--mode", mode, "--seconds", &options.seconds.to_string()]);
        command.args(["--nodes", &options.nodes.to_string()]);
        command.args(["--settle", &options.settle.to_string()]);
        command.args(["--pace", &options.pace.to_string()]);
        command.args(options.only.iter().flat_map(|only| ["--only", only]));
        command.args(options.within.then_some("--within"));
        command.args(["--threads", &options.threads.to_string()]);
        command.args(options.graphs.then_some("--graphs"));
        if let Some(raw) = &raw {
            command.env("RAW_CUPTI", raw);
        }
        let sample = match process_bench::sample::<Sample>(&mut command) {
            Ok(sample) => sample,
            Err(error) => {
                println!("ERROR: {mode}: {error}");
                failed = true;
                continue;
            }
        };
        if let Some(lost) = &sample.lost {
            println!("ERROR: round {}: {mode}: {lost}", round + 1);
            failed = true;
        }
        samples.push(Sample { round, ..sample });
    }
    let _ = std::fs::remove_dir_all(&scratch);
    print_tables(&modes, &samples);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A compared quantity: its name and its value.
type Quantity = (&'static str, fn(&Sample) -> f64);

const QUANTITIES: [Quantity; 6] = [
    ("graph replays a second", |sample| sample.replays_per_second),
    ("queued replays a second", |sample| sample.queued_per_second),
    ("requests a second", |sample| sample.requests_per_second),
    ("requests a second by those before the session, %", |sample| 100.0 * sample.within),
    ("median latency at --pace, us", |sample| sample.p50_us),
    ("p99 latency at --pace, us", |sample| sample.p99_us),
];

fn print_tables(modes: &[String], samples: &[Sample]) {
    for (name, value) in QUANTITIES {
        if samples.iter().all(|sample| value(sample) == 0.0) {
            // The quantity was not measured.
            continue;
        }
        println!(
            "\n{name}: median (min to max); against none and raw within a round, 95 % interval of the median"
        );
        let of = |mode: &str| -> Rounds {
            let of_mode = samples.iter().filter(|sample| sample.mode == mode);
            of_mode.map(|sample| (sample.round, value(sample))).collect()
        };
        print!("{}", stats::beside_none_and_raw(modes, of));
    }
    for mode in modes {
        let own: Vec<&Sample> = samples.iter().filter(|sample| sample.mode == *mode).collect();
        let shares: Vec<f64> = own.iter().filter_map(|sample| sample.measured).collect();
        if shares.is_empty() {
            continue;
        }
        let share = 100.0 * median(&shares);
        println!("\n{mode}: windows cost {share:.2} % of the units' time, the session's median");
        if let Some(report) = own.last().and_then(|sample| sample.report.as_ref()) {
            println!("{report}");
        }
    }
}
