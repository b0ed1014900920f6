//! Records what the gate's tests are replayed from: one step of several kernels, in many sessions of several processes, as
//! it is and with faults planted.
//!
//! ```text
//! cargo run --release -p gpu-profiler-examples --example gate_samples -- OUT.csv [PROCESSES]
//! ```
//!
//! Each process is this program again. Its sessions follow in random order, some after a pause, so that clocks are as they
//! are in tests. A planted fault is real: one kernel has 5 % more work (`slow:KERNEL`), or is launched once more (`extra`).
//!
//! The file has a row for each kernel and each range of each session: process, session, variant, what, and the times in
//! nanoseconds in the order they ran, with spaces between them. A kernel is `RANGE|NAME|GRID|BLOCK`; of a range it is the
//! time that its operations took, and with `|span` the time from the start of the first to the end of the last.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program, not a library

use std::error::Error;
use std::fmt::Write as _;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};
use gpu_profiler_examples::mlp;
use profiler_core::{Profile, Profiler};

const PROCESSES: u64 = 20;
/// Of each process: sessions of the step as it is, and of each variant.
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
/// Steps of a session.
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
        let mut child = Command::new(std::env::current_exe()?);
        let output = child.args(["--child", &process.to_string()]).output()?;
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            return Err(format!("process {process} failed").into());
        }
        all.push_str(std::str::from_utf8(&output.stdout)?);
        std::fs::write(out, &all)?;
    }
    println!("{out}: {} bytes", all.len());
    Ok(())
}

fn child(process: u64) -> Result<()> {
    if let Some(why) = mlp::unavailable() {
        return Err(why.into());
    }
    let work = Work::new()?;
    let profiler = Profiler::builder().build()?;
    let ((), warm_up) = profiler.record(|| drop(work.step("plain")))?;
    if process == 0 {
        eprintln!("{}", warm_up.recording_info());
    }
    let mut random = Random(process.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut order = vec!["plain"; PLAIN];
    for variant in VARIANTS {
        order.extend([variant; OF_A_VARIANT]);
    }
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    for (session, variant) in order.into_iter().enumerate() {
        let pause = match random.below(8) {
            0 => 200 + random.below(300),
            1..3 => random.below(20),
            _ => 0,
        };
        std::thread::sleep(Duration::from_millis(pause));
        let (worked, profile) =
            profiler.record(|| (0..STEPS).try_for_each(|_| work.step(variant)))?;
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

/// Values of the largest buffer, 256 MiB.
const LARGE: u32 = 1 << 26;

struct Work {
    stream: Arc<CudaStream>,
    latency: CudaFunction,
    arithmetic: CudaFunction,
    stream_add: CudaFunction,
    gather: CudaFunction,
    reduce: CudaFunction,
    large: CudaSlice<f32>,
    second: CudaSlice<f32>,
    out: CudaSlice<f32>,
}

impl Work {
    fn new() -> Result<Self> {
        let context = CudaContext::new(0)?;
        let stream = context.new_stream()?;
        // SAFETY: all buffers are used and freed on the one stream, in its order.
        unsafe { context.disable_event_tracking() };
        let (major, minor) = context.compute_capability()?;
        let options = vec![format!("--gpu-architecture=compute_{major}{minor}")];
        let options = CompileOptions { options, ..CompileOptions::default() };
        let source = include_str!("gate_samples.cu");
        let module = context.load_module(compile_ptx_with_opts(source, options)?)?;
        Ok(Self {
            latency: module.load_function("latency")?,
            arithmetic: module.load_function("arithmetic")?,
            stream_add: module.load_function("stream_add")?,
            gather: module.load_function("gather")?,
            reduce: module.load_function("reduce")?,
            large: stream.alloc_zeros(LARGE as usize)?,
            second: stream.alloc_zeros(LARGE as usize)?,
            out: stream.alloc_zeros(1 << 20)?,
            stream,
        })
    }

    fn step(&self, variant: &str) -> Result<()> {
        let much = |kernel: &str, work: u32| {
            let is_slow = variant.strip_prefix("slow:") == Some(kernel);
            if is_slow { work + work / 20 } else { work }
        };
        let _step = nvtx::range("step");
        {
            let _range = nvtx::range("prepare");
            for _ in 0..4 {
                self.latency(much("latency", 1_000))?;
            }
            self.reduce(much("reduce", 1 << 23))?;
        }
        {
            let _range = nvtx::range("forward");
            self.arithmetic(132 * 8, much("arithmetic_long", 15_000))?;
            self.arithmetic(132 * 2, much("arithmetic_short", 2_000))?;
            self.gather(much("gather", 60))?;
        }
        {
            let _range = nvtx::range("update");
            self.stream_add(much("stream_add", 3 << 23))?;
            if variant == "extra" {
                self.latency(1_000)?;
            }
        }
        self.stream.synchronize()?;
        Ok(())
    }

    fn latency(&self, rounds: u32) -> Result<()> {
        let mut launch = self.stream.launch_builder(&self.latency);
        launch.arg(&self.out).arg(&rounds);
        // SAFETY: the arguments match the kernel's parameters; it writes 32 values of `out`, which has 2^20.
        unsafe { launch.launch(shape(1, 32)) }?;
        Ok(())
    }

    fn arithmetic(&self, blocks: u32, rounds: u32) -> Result<()> {
        let mut launch = self.stream.launch_builder(&self.arithmetic);
        launch.arg(&self.out).arg(&rounds);
        check(blocks * 256 <= 1 << 20)?;
        // SAFETY: the arguments match the kernel's parameters; it writes a value a thread, and `out` has as many.
        unsafe { launch.launch(shape(blocks, 256)) }?;
        Ok(())
    }

    fn stream_add(&self, count: u32) -> Result<()> {
        let mut launch = self.stream.launch_builder(&self.stream_add);
        launch.arg(&self.large).arg(&self.second).arg(&count);
        check(count <= LARGE)?;
        // SAFETY: the arguments match the kernel's parameters; it stays below `count`, and both buffers have as many.
        unsafe { launch.launch(shape(132 * 16, 256)) }?;
        Ok(())
    }

    fn gather(&self, rounds: u32) -> Result<()> {
        let mut launch = self.stream.launch_builder(&self.gather);
        let mask = LARGE - 1;
        launch.arg(&self.out).arg(&self.second).arg(&mask).arg(&rounds);
        // SAFETY: the arguments match the kernel's parameters; it reads below 2^26, the length of `second`, and writes
        // 132 * 4 * 256 values of `out`, which has 2^20.
        unsafe { launch.launch(shape(132 * 4, 256)) }?;
        Ok(())
    }

    fn reduce(&self, count: u32) -> Result<()> {
        let mut launch = self.stream.launch_builder(&self.reduce);
        launch.arg(&self.out).arg(&self.second).arg(&count);
        check(count <= LARGE)?;
        // SAFETY: the arguments match the kernel's parameters; it stays below `count`, and `second` has as many; its
        // block has the 256 threads that it expects.
        unsafe { launch.launch(shape(132 * 4, 256)) }?;
        Ok(())
    }
}

fn check(fits: bool) -> Result<()> {
    if fits { Ok(()) } else { Err("the buffers are too small for it".into()) }
}

fn shape(blocks: u32, threads: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 }
}

/// Xorshift: the same order whenever it is run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
