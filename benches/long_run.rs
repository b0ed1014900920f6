//! Memory growth when a program is profiled for a long time, layer by layer.
//!
//! ```text
//! cargo bench -p gpu-profiler-benches --bench long_run -- --bench [--seconds 20] [--period 50] [--threads 4] [--ranges tsPw] [--fake] MODE
//! ```
//!
//! Threads continuously launch an empty kernel, 200 times per step of nested ranges, and then wait.
//! Every 50 ms, or every `--period` ms, a mode takes the logs out:
//!
//! - `flush` discards no log: records are retained and grow.
//! - `drain` takes and drops the logs of a `Collector`; `delivered` does the same without a flush.
//! - `last` is a session that retains the last 100,000 operations, `sums` a summarizing session,
//!   and `both` the two together.
//! - `keep` is a session that retains everything.
//! - `file` is a session appended to a file of at most `--file-bytes` in `OUT` or the temporary
//!   folder.
//!
//! Every 5 s a line prints the launches, the process's memory and the bytes that the allocator has
//! handed out. It also has the mean and maximum time of taking the logs. `--fake` runs on the fake.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)] // a program that prints results

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cupti::{Collector, Config, Library};
use fake_cupti::{Fake, Work};
use gpu_profiler_tests::cuda::Gpu;
use profiler_core::Profiler;
use profiler_core::session::{RecordingFile, Summarizing};

enum On {
    Gpu(Gpu),
    Fake(Fake),
}

impl On {
    fn library(&self) -> Library {
        match self {
            Self::Gpu(_) => Library::open().unwrap(),
            Self::Fake(fake) => fake.library().unwrap(),
        }
    }

    fn work(&self, ranges: &str, over: &AtomicBool, launched: &AtomicU64) {
        match self {
            Self::Gpu(gpu) => {
                gpu.make_current();
                let stream = gpu.stream();
                let launch = || gpu.launch_empty(stream);
                let has = |letter| ranges.contains(letter);
                let graph = || gpu.capture(stream, || (0..100).for_each(|_| launch()));
                let graph = (has('c') || has('g')).then(graph);
                let wait = || {
                    if let Some(graph) = graph.filter(|_| has('g')) {
                        gpu.launch_graph(graph, stream);
                    }
                    gpu.synchronize(stream);
                };
                steps(ranges, launch, wait, over, launched);
            }
            Self::Fake(fake) => {
                let launch = || _ = fake.launch(Work::kernel(c"empty"));
                steps(ranges, launch, || (), over, launched);
            }
        }
    }
}

/// Repeatedly launches 200 times and waits, in these ranges: t around everything, s around 200
/// launches, p around 100 launches, w around the wait. P is like p with a payload. On the GPU c
/// makes a graph of 100 nodes first, and g launches it in each step.
fn steps(
    ranges: &str,
    launch: impl Fn(),
    wait: impl Fn(),
    over: &AtomicBool,
    launched: &AtomicU64,
) {
    let range = |letter: char, name| ranges.contains(letter).then(|| nvtx::range(name));
    let _thread = range('t', "thread");
    while !over.load(Ordering::Relaxed) {
        let _step = range('s', "step");
        for part in ["forward", "backward"] {
            let _part = range('p', part);
            let _with_payload =
                ranges.contains('P').then(|| nvtx::event(part).payload(1_u64).range());
            (0..100).for_each(|_| launch());
        }
        let _wait = range('w', "wait");
        wait();
        launched.fetch_add(200, Ordering::Relaxed);
    }
}

/// The action of every period. Dropped at the end.
enum Mode {
    Flush(Collector),
    Drain(Collector),
    Delivered(Collector),
    Sessions { _last: Option<Profiler>, _sums: Option<Summarizing> },
    File(Option<RecordingFile>),
}

impl Mode {
    fn start(name: &str, library: &Library, period: Duration, file_bytes: u64) -> Option<Self> {
        let collector = || Collector::start(library, &Config::new()).unwrap();
        let builder = || Profiler::builder().library(library.clone()).period(period);
        let last = || {
            let last = builder().keep_last_operations(100_000).build().unwrap();
            last.start().unwrap();
            last
        };
        let sums = || builder().build().unwrap().summarize().unwrap();
        let file = || {
            let folder = std::env::var_os("OUT").map_or_else(std::env::temp_dir, PathBuf::from);
            let path = folder.join(format!("long-run-{}.gpuprof", std::process::id()));
            builder().max_file_bytes(file_bytes).build().unwrap().record_to(path).unwrap()
        };
        let keep = || {
            let all = builder().build().unwrap();
            all.start().unwrap();
            all
        };
        Some(match name {
            "flush" => Self::Flush(collector()),
            "drain" => Self::Drain(collector()),
            "delivered" => Self::Delivered(collector()),
            "last" => Self::Sessions { _last: Some(last()), _sums: None },
            "sums" => Self::Sessions { _last: None, _sums: Some(sums()) },
            "both" => Self::Sessions { _last: Some(last()), _sums: Some(sums()) },
            "keep" => Self::Sessions { _last: Some(keep()), _sums: None },
            "file" => Self::File(Some(file())),
            _ => return None,
        })
    }

    fn take(&self) {
        match self {
            Self::Flush(collector) => collector.flush().unwrap(),
            Self::Drain(collector) => drop(collector.drain().unwrap()),
            Self::Delivered(collector) => drop(collector.drain_delivered().unwrap()),
            Self::Sessions { .. } | Self::File(_) => {}
        }
    }
}

/// Returns the resident bytes of this process, and the bytes that the allocator has handed out.
fn memory() -> (u64, u64) {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
    // SAFETY: reads the C library's own counts.
    let allocator = unsafe { libc::mallinfo2() };
    (pages * 4096, (allocator.uordblks + allocator.hblkhd) as u64)
}

/// Returns the processor seconds used by the profiler's own threads.
fn profiler_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let of = |path: std::path::PathBuf| {
        let stat = std::fs::read_to_string(path.join("stat")).ok()?;
        let (name, rest) = stat.rsplit_once(") ")?;
        let field = |at: usize| rest.split(' ').nth(at)?.parse::<f64>().ok();
        name.contains("(gpu-profiler").then_some((field(11)? + field(12)?) / 100.0)
    };
    tasks.filter_map(|task| of(task.path())).sum()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name)?;
        arguments.get(place + 1).cloned()
    };
    let number =
        |name: &str, otherwise| text(name).and_then(|n| n.parse().ok()).unwrap_or(otherwise);
    let ranges = text("--ranges").unwrap_or_else(|| "tsPw".to_owned());
    let (seconds, threads) = (number("--seconds", 20), number("--threads", 4));
    let period = Duration::from_millis(number("--period", 50));
    let on = if arguments.iter().any(|argument| argument == "--fake") {
        On::Fake(Fake::new())
    } else if gpu_profiler_tests::cuda::unavailable().is_some() {
        println!("long_run: no GPU here; --fake runs on the fake");
        return;
    } else {
        On::Gpu(Gpu::get())
    };
    let library = on.library();
    let file_bytes = number("--file-bytes", 4 << 30);
    let start = |name: &String| Mode::start(name, &library, period, file_bytes);
    let Some(mut mode) = arguments.iter().find_map(start) else {
        println!("long_run: name a mode: flush, drain, delivered, last, sums, both, keep or file");
        return;
    };

    let (over, launched) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        (0..threads).for_each(|_| _ = scope.spawn(|| on.work(&ranges, &over, &launched)));
        let start = Instant::now();
        let (mut next, mut taken, mut sum, mut most) = (0, 0, Duration::ZERO, Duration::ZERO);
        let (mut launches_before, mut seconds_before) = (0, 0.0);
        while start.elapsed() < Duration::from_secs(seconds) {
            std::thread::sleep(period);
            let from = Instant::now();
            mode.take();
            let took = from.elapsed();
            (taken, sum, most) = (taken + 1, sum + took, most.max(took));
            if start.elapsed().as_secs() >= next {
                let (resident, handed_out) = memory();
                let (launches, seconds) = (launched.load(Ordering::Relaxed), profiler_seconds());
                println!(
                    "{:5.1} s, {launches} launches, {} MiB resident, {} MiB handed out, taking {:.1} ms, at most {:.1} ms; \
                     {:.0} ns of the profiler's threads a launch",
                    start.elapsed().as_secs_f64(),
                    resident >> 20,
                    handed_out >> 20,
                    sum.as_secs_f64() * 1e3 / f64::from(taken),
                    most.as_secs_f64() * 1e3,
                    (seconds - seconds_before) * 1e9 / (launches - launches_before).max(1) as f64,
                );
                (launches_before, seconds_before) = (launches, seconds);
                next += 5;
                (taken, sum, most) = (0, Duration::ZERO, Duration::ZERO);
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    // Outstanding work is complete by then.
    let behind = Instant::now() + Duration::from_secs(5);
    while Instant::now() < behind {
        mode.take();
        std::thread::sleep(period);
    }
    let (resident, handed_out) = memory();
    println!("5 s later, {} MiB resident, {} MiB handed out", resident >> 20, handed_out >> 20);
    if let Mode::File(file) = &mut mode
        && let Some(file) = file.take()
    {
        let path = file.path().to_owned();
        println!("the file: {:?}", file.finish());
        std::fs::remove_file(path).unwrap();
    }
    drop(mode);
}
