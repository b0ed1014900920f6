//! The growth of the recording cost along one dimension. One command measures one curve.
//!
//! ```text
//! overhead --bench --curve threads    [--rounds 5] [--seconds 1] [--most 16]
//! overhead --bench --curve streams    1 to 64 streams, launched to in turn by one thread
//! overhead --bench --curve kernels    kernels of 1 to 1,000 us, one after the other
//! overhead --bench --curve nodes      graphs of 10 to 5,000 kernels of 1 us
//! overhead --bench --curve operations 10,000 to 10,000,000 launches in a session; up to `--most`, 100,000,000
//! ```
//!
//! | mode | recorder |
//! | --- | --- |
//! | `none` | nothing |
//! | `full` | `Profiler::start` |
//! | `raw` | CUPTI from C++ with the same callbacks and the kinds of the same records, including synchronisations: `raw_cupti.cpp` |
//!
//! The value of a point is the time per launch, including the final wait for the GPU. For `threads`
//! it is the time in each thread. For `nodes` it is the time of a replay divided by its nodes. For
//! `operations` it is the time per launch of `full` alone. The table then also has the bytes that
//! the session added to the process per operation, and the times of the stop and of a query by
//! kernel. Points of 10,000,000 launches and more are measured once. Each measurement is a process
//! of its own, and the rounds interleave all modes.
//!
//! A ratio that grows along a curve shows where the curve bends. The last line has the points with
//! the minimum and the maximum. The benchmark prints a table in Markdown, and fails if a session is
//! incomplete. With `--rounds 3 --seconds 0.3` a curve has 36 or 45 processes of about 2 s.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that prints what it measured"
)]

use std::env;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use cupti::Config;
use gpu_profiler_benches::process_bench::{self, Arguments, Result};
use gpu_profiler_benches::stats::{self, Rounds, median};
use gpu_profiler_tests::cuda::{Gpu, Stream, unavailable};
use profiler_core::Profiler;
use serde::{Deserialize, Serialize};

#[path = "raw.rs"]
mod raw;
use raw::{Raw, raw_library_for};

/// The number of launches between two waits for a stream. Queues hold 1,024.
const BATCH: u64 = 500;
/// From this number of operations on, a point is measured only in the first round.
const ONCE: u64 = 10_000_000;
/// The maximum bytes of records per operation.
const MOST_BYTES: u64 = 400;
const WARM_UP: Duration = Duration::from_millis(200);

/// The points of a curve.
fn points(curve: &str) -> Result<&'static [u64]> {
    Ok(match curve {
        "threads" => &[1, 2, 4, 8, 16],
        "streams" => &[1, 4, 16, 64],
        "kernels" => &[1, 10, 100, 1_000],
        "nodes" => &[10, 100, 1_000, 5_000],
        "operations" => &[10_000, 100_000, 1_000_000, 10_000_000, 100_000_000],
        other => return Err(format!("no curve is called {other}").into()),
    })
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Sample {
    mode: String,
    point: u64,
    #[serde(default)]
    round: usize,
    /// Nanoseconds per launch or per node.
    ns: f64,
    /// The session's values: bytes per operation, and seconds of the stop and of a query.
    session: Option<[f64; 3]>,
    lost: Option<String>,
}

struct Options {
    curve: String,
    point: u64,
    rounds: usize,
    seconds: f64,
    most: u64,
}

fn read(arguments: &mut Arguments) -> Result<Options> {
    Ok(Options {
        curve: arguments.take("--curve")?.unwrap_or_else(|| "threads".to_owned()),
        point: arguments.take("--point")?.unwrap_or(1).max(1),
        rounds: arguments.take("--rounds")?.unwrap_or(5).max(1),
        seconds: arguments.take("--seconds")?.unwrap_or(1.0_f64).clamp(0.01, 60.0),
        most: arguments.take("--most")?.unwrap_or(ONCE).max(1),
    })
}

fn main() -> ExitCode {
    process_bench::run("overhead", unavailable, read, measure, compare)
}

// ---- One measurement, in a process of its own

enum Session {
    None,
    Full(Box<Profiler>),
    Raw(Raw),
}

fn measure(mode: &str, options: &Options) -> Result<Sample> {
    let gpu = Gpu::get();
    let bytes_before = resident_bytes();
    let session = match mode {
        "none" => Session::None,
        "full" => {
            let mut config = Config::new();
            if options.curve == "operations" && options.point >= ONCE {
                config = config.memory_limit(MOST_BYTES * options.point);
            }
            let profiler = Profiler::builder().config(config).build()?;
            profiler.start()?;
            Session::Full(Box::new(profiler))
        }
        "raw" => Session::Raw(Raw::start()?),
        other => return Err(format!("no mode is called {other}").into()),
    };
    let (point, time) = (options.point, Duration::from_secs_f64(options.seconds));
    let ns = match options.curve.as_str() {
        "threads" => of_threads(&gpu, point, time),
        "operations" => launches(&gpu, &[gpu.stream()], point, 0),
        curve => {
            let _ = timed(&gpu, curve, point, WARM_UP);
            timed(&gpu, curve, point, time)
        }
    };
    let mut sample =
        Sample { mode: mode.to_owned(), point, round: 0, ns, session: None, lost: None };
    match session {
        Session::None => {}
        Session::Full(profiler) => {
            let begun = Instant::now();
            let profile = profiler.stop()?;
            let stop = begun.elapsed().as_secs_f64();
            let operations = profile.operations().count().max(1) as f64;
            let bytes = resident_bytes().saturating_sub(bytes_before) as f64 / operations;
            let begun = Instant::now();
            std::hint::black_box(profile.query().kernels().by_kernel());
            sample.session = Some([bytes, stop, begun.elapsed().as_secs_f64()]);
            let health = profile.health();
            sample.lost = (!health.is_complete()).then(|| health.to_string());
        }
        Session::Raw(raw) => {
            let [_, _, dropped, _] = raw.stop()?;
            sample.lost = (dropped != 0).then(|| format!("{dropped} records dropped"));
        }
    }
    Ok(sample)
}

/// The resident memory of this process in bytes.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    4096 * pages.unwrap_or(0)
}

/// Measures the nanoseconds per launch for this many launches to the streams in turn, including the
/// waits for them.
fn launches(gpu: &Gpu, streams: &[Stream], count: u64, spin_ns: u64) -> f64 {
    let begun = Instant::now();
    for number in 0..count {
        let stream = streams[number as usize % streams.len()];
        match spin_ns {
            0 => gpu.launch_empty(stream),
            _ => gpu.launch_spin(stream, spin_ns),
        }
        if number % BATCH == BATCH - 1 {
            streams.iter().for_each(|stream| gpu.synchronize(*stream));
        }
    }
    streams.iter().for_each(|stream| gpu.synchronize(*stream));
    begun.elapsed().as_nanos() as f64 / count as f64
}

/// Runs batches for this long. Returns the median nanoseconds per launch or per node.
fn timed(gpu: &Gpu, curve: &str, point: u64, time: Duration) -> f64 {
    let count = if curve == "streams" { point } else { 1 };
    let streams: Vec<_> = (0..count).map(|_| gpu.stream()).collect();
    let mut all = Vec::new();
    let mut repeat = |mut batch: Box<dyn FnMut() -> f64 + '_>| {
        let until = Instant::now() + time;
        all.push(batch());
        while Instant::now() < until {
            all.push(batch());
        }
    };
    match curve {
        "nodes" => {
            let graph = gpu.capture(streams[0], || {
                (0..point).for_each(|_| gpu.launch_spin(streams[0], 1_000));
            });
            repeat(Box::new(|| {
                let begun = Instant::now();
                (0..10).for_each(|_| gpu.launch_graph(graph, streams[0]));
                gpu.synchronize(streams[0]);
                begun.elapsed().as_nanos() as f64 / (10 * point) as f64
            }));
            gpu.destroy_graph(graph);
        }
        "kernels" => {
            // A batch takes about 50 ms.
            let count = (50_000 / point).clamp(10, BATCH);
            repeat(Box::new(|| launches(gpu, &streams, count, 1_000 * point)));
        }
        _ => repeat(Box::new(|| launches(gpu, &streams, BATCH, 0))),
    }
    streams.into_iter().for_each(|stream| gpu.destroy(stream));
    median(&all)
}

/// The mean over threads, each with a stream of its own.
fn of_threads(gpu: &Gpu, threads: u64, time: Duration) -> f64 {
    let work = || {
        let gpu = gpu.clone();
        gpu.make_current();
        let _ = timed(&gpu, "streams", 1, WARM_UP);
        timed(&gpu, "streams", 1, time)
    };
    let times: Vec<f64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN)).collect()
    });
    times.iter().sum::<f64>() / times.len() as f64
}

// ---- All of them, compared

fn compare(options: &Options) -> Result<ExitCode> {
    let scratch = env::temp_dir().join(format!("overhead-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let is_session = options.curve == "operations";
    let mut modes = if is_session { vec!["full"] } else { vec!["none", "full", "raw"] };
    let raw = raw_library_for(&mut modes, &scratch);
    let points = points(&options.curve)?;
    let points: Vec<u64> = points.iter().copied().filter(|point| *point <= options.most).collect();
    let (mut samples, mut failed): (Vec<Sample>, bool) = (Vec::new(), false);
    for round in 0..options.rounds {
        for point in &points {
            if is_session && *point >= ONCE && round != 0 {
                continue;
            }
            for place in 0..modes.len() {
                let mode = modes[(place + round) % modes.len()];
                let mut command = Command::new(env::current_exe()?);
                command.args(["--mode", mode, "--curve", &options.curve]);
                command.args(["--point", &point.to_string()]);
                command.args(["--seconds", &options.seconds.to_string()]);
                if let Some(raw) = &raw {
                    command.env("RAW_CUPTI", raw);
                }
                let sample = match process_bench::sample::<Sample>(&mut command) {
                    Ok(sample) => sample,
                    Err(error) => {
                        println!("ERROR: {mode} at {point}: {error}");
                        failed = true;
                        continue;
                    }
                };
                if let Some(lost) = &sample.lost {
                    println!("ERROR: round {}: {mode} at {point}: {lost}", round + 1);
                    failed = true;
                }
                samples.push(Sample { round, ..sample });
            }
        }
    }
    let _ = std::fs::remove_dir_all(&scratch);
    print_table(&options.curve, &points, &modes, &samples);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints a table of all points and modes, and the points with the minimum and maximum cost of
/// recording.
fn print_table(curve: &str, points: &[u64], modes: &[&str], samples: &[Sample]) {
    let is_session = curve == "operations";
    println!("\n`--curve {curve}`; ratios within a round, with 95 % intervals\n");
    print!("| {curve} | mode | ns, median (least to most) |");
    let columns: &[&str] = match is_session {
        true => &["bytes an operation", "stop, ms", "query, ms"],
        false => &["/ none", "/ raw"],
    };
    columns.iter().for_each(|column| print!(" {column} |"));
    println!("\n|{}", " --- |".repeat(3 + columns.len()));
    let mut ratios: Vec<(u64, f64)> = Vec::new();
    for point in points {
        let at_point = || samples.iter().filter(|sample| sample.point == *point);
        let of = |mode: &str| -> Rounds {
            let of_mode = at_point().filter(|sample| sample.mode == mode);
            of_mode.map(|sample| (sample.round, sample.ns)).collect()
        };
        for mode in modes {
            let own = of(mode);
            if own.is_empty() {
                continue;
            }
            let values: Vec<f64> = own.iter().map(|(_, ns)| *ns).collect();
            let [least, most] =
                [f64::min, f64::max].map(|of| values.iter().copied().fold(values[0], of));
            print!("| {point} | {mode} | {:.1} ({least:.1} to {most:.1}) |", median(&values));
            if is_session {
                let all = at_point().filter_map(|sample| sample.session);
                let all: Vec<[f64; 3]> = all.collect();
                for (part, scale) in [1.0, 1e3, 1e3].into_iter().enumerate() {
                    let values: Vec<f64> = all.iter().map(|own| scale * own[part]).collect();
                    print!(" {:.1} |", median(&values));
                }
                ratios.push((*point, median(&values)));
            } else {
                for other in ["none", "raw"] {
                    let ratio = (other != *mode).then(|| stats::ratio(&own, &of(other))).flatten();
                    let text = ratio
                        .map(|[ratio, low, high]| format!("{ratio:.3} ({low:.3} to {high:.3})"));
                    print!(" {} |", text.unwrap_or_default());
                }
                if let Some([ratio, ..]) =
                    (*mode == "full").then(|| stats::ratio(&own, &of("none"))).flatten()
                {
                    ratios.push((*point, ratio));
                }
            }
            println!();
        }
    }
    let by_ratio = |a: &&(u64, f64), b: &&(u64, f64)| a.1.total_cmp(&b.1);
    if let (Some(least), Some(most)) =
        (ratios.iter().min_by(by_ratio), ratios.iter().max_by(by_ratio))
    {
        let what = if is_session { "ns a launch" } else { "full / none" };
        println!("\n{what}: least {:.3} at {}, most {:.3} at {}", least.1, least.0, most.1, most.0);
    }
}
