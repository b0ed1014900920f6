//! Records the samples from which the error rates of comparisons are replayed. They are short runs
//! of two programs in many processes, unmodified and with a planted slowdown.
//!
//! ```text
//! cargo run --release -p gpu-profiler-examples --features analysis --example compare_samples -- FOLDER [SECONDS]
//! ```
//!
//! `gpu` is bound by the GPU, and `launch` by launches of small kernels. A slow run has more work
//! of one kind. In `gpu` a kernel has more rounds, so that the run takes 2 % longer. In `launch`
//! the host computes more, so that the run takes 5 % longer. The first process measures how much
//! work that is. Each process is this program again. Its runs follow in random order, a fourth of
//! them after a pause.
//!
//! FOLDER gets `samples.csv` and `about.txt`, rewritten after every ten processes. A row is a run:
//! process, run, workload, variant, then times in nanoseconds. `wall` is the wall time as a
//! comparison measures it, and `wall|PATH|CAUSE` the part attributed to a cause in a range.
//! `host|PATH` is the host time in a range. `busy|PATH` is the time in which the range's work ran,
//! and `kernels|PATH` the sum of its kernel times.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program, not a library

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use gpu_profiler_examples::mlp;
use gpu_profiler_examples::samples::{Kernels, Workload, output_of_child};
use profiler_analysis::compare;
use profiler_core::{Profile, Profiler};

/// Runs of each workload per process: unmodified, and with the slowdown.
const PLAIN: usize = 12;
const SLOW: usize = 6;
/// Unrecorded runs of each workload per process.
const WARM_UP: usize = 3;
/// The number of processes between two writes of the files.
const WRITTEN: usize = 10;
const USAGE: &str = "usage: compare_samples FOLDER [SECONDS]";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The planted slowdown, as a share of the wall time.
fn slowdown(workload: Workload) -> f64 {
    match workload {
        Workload::Launch => 0.05,
        _ => 0.02,
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["--calibrate"] => calibrate(),
        ["--child", process, gpu, launch] => child(process, [gpu, launch]),
        [folder] => parent(Path::new(folder), "75"),
        [folder, seconds] => parent(Path::new(folder), seconds),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare_samples: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts processes until the time is used up.
fn parent(folder: &Path, seconds: &str) -> Result<()> {
    if let Some(why) = mlp::unavailable() {
        return Err(why.into());
    }
    let budget = Duration::from_secs(seconds.parse().map_err(|_| USAGE)?);
    std::fs::create_dir_all(folder)?;
    let start = Instant::now();
    let calibrated = output_of_child(&["--calibrate"])?;
    print!("{calibrated}");
    let rounds: Vec<&str> =
        calibrated.lines().filter_map(|line| line.split(' ').next_back()).collect();
    let [gpu, launch] = rounds[..] else { return Err("the calibration printed no rounds".into()) };
    let mut rows = Vec::new();
    let mut process = 0;
    // The longest process so far is the estimate for the next one.
    let mut longest = Duration::ZERO;
    while process < 2 || start.elapsed() + longest < budget {
        let before = Instant::now();
        let number = process.to_string();
        rows.extend(output_of_child(&["--child", &number, gpu, launch])?.lines().map(Row::parse));
        longest = longest.max(before.elapsed());
        process += 1;
        if process % WRITTEN == 0 {
            write(folder, &calibrated, process, &rows)?;
        }
    }
    write(folder, &calibrated, process, &rows)?;
    println!(
        "{process} processes and {} runs in {:.1} s",
        rows.len(),
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// The output of a child for one run.
struct Row {
    head: String,
    times: BTreeMap<String, String>,
}

impl Row {
    fn parse(line: &str) -> Self {
        let mut cells = line.split('\t');
        let head = cells.next().unwrap_or_default().to_owned();
        let times = cells.filter_map(|cell| cell.split_once('='));
        Self { head, times: times.map(|(of, ns)| (of.to_owned(), ns.to_owned())).collect() }
    }
}

fn write(folder: &Path, calibrated: &str, processes: usize, rows: &[Row]) -> Result<()> {
    let columns: BTreeSet<&str> =
        rows.iter().flat_map(|row| row.times.keys().map(String::as_str)).collect();
    let mut text = String::from("process,run,workload,variant");
    columns.iter().for_each(|column| text.extend([",", column]));
    for row in rows {
        write!(text, "\n{}", row.head)?;
        for column in &columns {
            text.extend([",", row.times.get(*column).map_or("", String::as_str)]);
        }
    }
    text.push('\n');
    std::fs::write(folder.join("samples.csv"), text)?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let counts = format!("{} processes, {} runs, at {now} s since 1970\n", processes, rows.len());
    std::fs::write(folder.join("about.txt"), calibrated.to_owned() + &counts)?;
    Ok(())
}

/// The wall time of a run, as comparisons measure it.
fn wall_ns(profile: &Profile) -> f64 {
    compare(profile, profile).wall().before().as_nanos() as f64
}

fn record(
    profiler: &Profiler,
    kernels: &Kernels,
    workload: Workload,
    rounds: u32,
) -> Result<Profile> {
    let (worked, profile) = profiler.record(|| workload.run(kernels, rounds))?;
    worked?;
    match profile.health().is_complete() {
        true => Ok(profile),
        false => Err(profile.health().to_string().into()),
    }
}

/// Prints the machine and a line for each workload, which ends with the rounds of its slow variant.
fn calibrate() -> Result<()> {
    let kernels = Kernels::new(0)?;
    let profiler = Profiler::builder().build()?;
    for workload in Workload::ALL {
        let rounds = workload.rounds();
        let more = rounds + rounds / 5;
        let mut walls = [Vec::new(), Vec::new()];
        let mut machine = String::new();
        for round in 0..40 {
            for (walls, rounds) in walls.iter_mut().zip([rounds, more]) {
                let profile = record(&profiler, &kernels, workload, rounds)?;
                machine = profile.recording_info().to_string();
                // The first runs are warm-up.
                walls.extend((round >= 8).then(|| wall_ns(&profile)));
            }
        }
        let [plain, longer] = walls.map(|mut walls| {
            walls.sort_unstable_by(f64::total_cmp);
            walls[walls.len() / 2]
        });
        // The wall time grows linearly with the rounds.
        let of_a_round = (longer - plain) / f64::from(more - rounds);
        let slow = f64::from(rounds) + slowdown(workload) * plain / of_a_round;
        println!(
            "{}: {machine}; a run of {:.3} ms, {:.3} ms with {more} rounds; planted {} %: from {rounds} to {}",
            workload.name(),
            plain / 1e6,
            longer / 1e6,
            100.0 * slowdown(workload),
            slow.round() as u32,
        );
    }
    Ok(())
}

/// Prints a line for each run.
fn child(process: &str, slow: [&str; 2]) -> Result<()> {
    let kernels = Kernels::new(0)?;
    let profiler = Profiler::builder().build()?;
    let mut order: Vec<(Workload, bool)> = Vec::new();
    for workload in Workload::ALL {
        for _ in 0..WARM_UP {
            record(&profiler, &kernels, workload, workload.rounds())?;
        }
        order.extend([(workload, false); PLAIN]);
        order.extend([(workload, true); SLOW]);
    }
    let mut random = fastrand::Rng::with_seed(process.parse()?);
    random.shuffle(&mut order);
    for (run, (workload, is_slow)) in order.into_iter().enumerate() {
        if random.u8(0..4) == 0 {
            std::thread::sleep(Duration::from_millis(random.u64(0..12)));
        }
        let rounds = match is_slow {
            true => slow[workload as usize].parse()?,
            false => workload.rounds(),
        };
        let profile = record(&profiler, &kernels, workload, rounds)?;
        let variant = if is_slow { "slow" } else { "plain" };
        println!("{process},{run},{},{variant}{}", workload.name(), times(&profile)?);
    }
    Ok(())
}

/// Cells `NAME=NANOSECONDS`, each after a tab.
fn times(profile: &Profile) -> Result<String> {
    let mut cells = String::new();
    let mut add = |name: String, ns: f64| {
        if ns.round() != 0.0 {
            cells.push_str(&format!("\t{name}={ns:.0}"));
        }
    };
    let comparison = compare(profile, profile);
    add("wall".to_owned(), comparison.wall().before().as_nanos() as f64);
    for part in &comparison.wall().contributions {
        let path = part.path.as_deref().unwrap_or("");
        let cause = serde_json::to_value(part.cause)?;
        let cause = cause.as_str().ok_or("a cause without a name")?;
        add(format!("wall|{path}|{cause}"), part.before_ns);
    }
    for (_, node) in profile.walk() {
        let path = node.path();
        let host: Duration = node.ranges().map(|range| range.end() - range.start()).sum();
        let query = node.query();
        add(format!("host|{path}"), host.as_nanos() as f64);
        add(format!("busy|{path}"), query.busy_time().as_nanos() as f64);
        add(format!("kernels|{path}"), query.kernels().gpu_time().as_nanos() as f64);
    }
    Ok(cells)
}
