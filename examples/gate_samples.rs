//! Records the samples from which the gate's tests are replayed. They are sessions of one step with
//! several kernels, in several processes, unmodified and with planted faults.
//!
//! ```text
//! cargo run --release -p gpu-profiler-examples --example gate_samples -- OUT.csv [PROCESSES]
//! ```
//!
//! Each process is this program again. Its sessions follow in random order, some after a pause, so
//! that clocks vary as in tests. A planted fault is real: one kernel has 5 % more work
//! (`slow:KERNEL`), or is launched once more (`extra`).
//!
//! The file has a row for each kernel and each range of each session: process, session, variant,
//! name, times. The times are in nanoseconds, in execution order, separated by spaces. The name of
//! a kernel is `RANGE|NAME|GRID|BLOCK`. The row of a range has the time of its operations. Its row
//! with `|span` has the time from the start of the first operation to the end of the last.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program, not a library

use std::error::Error;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use gpu_profiler_examples::mlp;
use gpu_profiler_examples::samples::{Kernels, output_of_child};
use profiler_core::{Profile, Profiler};

const PROCESSES: u64 = 20;
/// Sessions per process: of the unmodified step, and of each variant.
const PLAIN: usize = 24;
const OF_A_VARIANT: usize = 8;
const VARIANTS: [&str; 7] = [
    "slow:latency",
    "slow:arithmetic_long",
    "slow:arithmetic_short",
    "slow:stream_add",
    "slow:gather",
    "slow:reduce",
    "extra",
];
/// The number of steps in a session.
const STEPS: usize = 2;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["--child", process] => {
            process.parse().map_err(Into::into).and_then(|process| child(process))
        }
        [out] => parent(out, PROCESSES),
        [out, processes] => {
            processes.parse().map_err(Into::into).and_then(|processes| parent(out, processes))
        }
        _ => {
            eprintln!("usage: gate_samples OUT.csv [PROCESSES]");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gate_samples: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parent(out: &str, processes: u64) -> Result<()> {
    let mut all = String::from("process,session,variant,what,times_ns\n");
    for process in 0..processes {
        all.push_str(&output_of_child(&["--child", &process.to_string()])?);
        std::fs::write(out, &all)?;
    }
    println!("{out}: {} bytes", all.len());
    Ok(())
}

fn child(process: u64) -> Result<()> {
    if let Some(why) = mlp::unavailable() {
        return Err(why.into());
    }
    let kernels = Kernels::new(0)?;
    let profiler = Profiler::builder().build()?;
    let ((), warm_up) = profiler.record(|| drop(step(&kernels, "plain")))?;
    if process == 0 {
        eprintln!("{}", warm_up.recording_info());
    }
    let mut random = fastrand::Rng::with_seed(process);
    let mut order = vec!["plain"; PLAIN];
    for variant in VARIANTS {
        order.extend([variant; OF_A_VARIANT]);
    }
    random.shuffle(&mut order);
    for (session, variant) in order.into_iter().enumerate() {
        let pause = match random.u64(0..8) {
            0 => random.u64(200..500),
            1..3 => random.u64(0..20),
            _ => 0,
        };
        std::thread::sleep(Duration::from_millis(pause));
        let (worked, profile) =
            profiler.record(|| (0..STEPS).try_for_each(|_| step(&kernels, variant)))?;
        worked?;
        if !profile.health().is_complete() {
            return Err(format!("process {process}: {}", profile.health()).into());
        }
        print!("{}", rows(process, session, variant, &profile)?);
    }
    Ok(())
}

fn rows(process: u64, session: usize, variant: &str, profile: &Profile) -> Result<String> {
    let mut rows: Vec<(String, Vec<u64>)> = Vec::new();
    let mut add = |what: String, ns: u64| match rows.iter_mut().find(|(of, _)| *of == what) {
        Some((_, times)) => times.push(ns),
        None => rows.push((what, vec![ns])),
    };
    for range in profile.ranges() {
        let path = range.node().path();
        let query = range.query();
        add(path.clone(), query.gpu_time().as_nanos() as u64);
        let span = query.span().ok_or("a range without work")?;
        add(format!("{path}|span"), span.duration().as_nanos() as u64);
        for operation in range.own_operations() {
            let kernel = operation.as_kernel().ok_or("work that is no kernel")?;
            let [grid, ..] = kernel.grid();
            let [block, ..] = kernel.block();
            let time = operation.gpu_time().ok_or("a kernel without times")?;
            let what = format!("{path}|{}|{grid}|{block}", kernel.name());
            add(what, time.as_nanos() as u64);
        }
    }
    let mut text = String::new();
    for (what, times) in rows {
        let times: Vec<_> = times.iter().map(u64::to_string).collect();
        writeln!(text, "{process},{session},{variant},{what},{}", times.join(" "))?;
    }
    Ok(text)
}

fn step(kernels: &Kernels, variant: &str) -> Result<()> {
    let much = |kernel: &str, work: u32| {
        let is_slow = variant.strip_prefix("slow:") == Some(kernel);
        if is_slow { work + work / 20 } else { work }
    };
    let _step = nvtx::range("step");
    {
        let _range = nvtx::range("prepare");
        for _ in 0..4 {
            kernels.latency(much("latency", 1_000))?;
        }
        kernels.reduce(much("reduce", 1 << 23))?;
    }
    {
        let _range = nvtx::range("forward");
        kernels.arithmetic(132 * 8, much("arithmetic_long", 15_000))?;
        kernels.arithmetic(132 * 2, much("arithmetic_short", 2_000))?;
        kernels.gather(much("gather", 60))?;
    }
    {
        let _range = nvtx::range("update");
        kernels.stream_add(much("stream_add", 3 << 23))?;
        if variant == "extra" {
            kernels.latency(1_000)?;
        }
    }
    kernels.wait()
}
