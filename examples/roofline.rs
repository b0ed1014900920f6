//! Runs kernels with declared operations and bytes, and prints their positions under the roofs of
//! the GPU.
//!
//! ```text
//! cargo run --release -p gpu-profiler-examples --features analysis --example roofline -- --ceilings --html roofline.html
//! ```
//!
//! `--count` measures the kernels' work with hardware counters in seven more runs, and prints it
//! beside the declared work. `--count-kernels` does so for each kernel, and compares the measured
//! use of tensor cores with that inferred from kernel names.
//!
//! `--no-profiler` runs only the kernels, so that another profiler can use the counters:
//!
//! ```text
//! ncu --clock-control none --metrics dram__bytes_read.sum,... target/release/examples/roofline gemm --no-profiler
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program, not a library

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use cupti::Library;
use cupti::counters::{Measured, RangeProfiler, Set};
use gpu_profiler_examples::bound::{self, Bound};
use gpu_profiler_examples::mlp;
use nvtx::Work;
use profiler_analysis::counters::count_kernels;
use profiler_analysis::prelude::*;
use profiler_analysis::roofline::Peaks;
use profiler_core::Profiler;
use profiler_core::counters::count_ranges;

const USAGE: &str = "\
usage: roofline [gemm|axpy|reduction]... [OPTIONS]

  --times N        how often each kernel runs, 5 by default
  --ceilings       measure the roofs too: a copy, a matrix product of cuBLAS
  --save FILE      write the recording
  --peaks FILE     write the roofs as JSON, for `gpuprof roofline --peaks`
  --svg FILE       write the plot
  --html FILE      write the plot and the table
  --count          count operations and bytes too, beside the declared ones
  --count-kernels  the same kernel by kernel, with a product on tensor cores
  --counts FILE    write what was counted as JSON, for `gpuprof roofline --counted`
  --no-profiler    run the kernels alone, for another tool";

#[derive(Debug, Default)]
struct Args {
    kernels: Vec<String>,
    times: usize,
    ceilings: bool,
    profiler: bool,
    count: bool,
    count_kernels: bool,
    counts: Option<PathBuf>,
    save: Option<PathBuf>,
    peaks: Option<PathBuf>,
    svg: Option<PathBuf>,
    html: Option<PathBuf>,
}

fn parse(args: impl IntoIterator<Item = String>) -> Result<Args, String> {
    let mut parsed = Args { times: 5, profiler: true, ..Args::default() };
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let mut file = || args.next().map(PathBuf::from).ok_or(format!("{arg} needs a file"));
        match &*arg {
            "gemm" | "axpy" | "reduction" => parsed.kernels.push(arg),
            "--ceilings" => parsed.ceilings = true,
            "--count" => parsed.count = true,
            "--count-kernels" => parsed.count_kernels = true,
            "--counts" => parsed.counts = Some(file()?),
            "--no-profiler" => parsed.profiler = false,
            "--save" => parsed.save = Some(file()?),
            "--peaks" => parsed.peaks = Some(file()?),
            "--svg" => parsed.svg = Some(file()?),
            "--html" => parsed.html = Some(file()?),
            "--times" => {
                let times = args.next().and_then(|times| times.parse().ok());
                parsed.times =
                    times.filter(|times| *times > 0).ok_or("--times needs a number above 0")?;
            }
            _ => return Err(format!("unknown argument {arg}")),
        }
    }
    if parsed.kernels.is_empty() {
        parsed.kernels = ["gemm", "axpy", "reduction"].map(str::to_owned).to_vec();
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(mistake) => {
            eprintln!("roofline: {mistake}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("roofline: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    if let Some(why) = mlp::unavailable() {
        return Err(format!("this example needs a GPU: {why}").into());
    }
    let mut bound = Bound::new(0)?;
    bound.reset()?;
    if !args.profiler {
        return kernels(args, &mut bound);
    }
    let profiler = Profiler::builder().build()?;
    kernels(args, &mut bound)?; // loads the code before the measurement
    bound.reset()?;
    let (ran, profile) = profiler.record(|| kernels(args, &mut bound))?;
    ran?;
    if let Some(file) = &args.save {
        profile.save(file)?;
    }
    let mut peaks = profile.peaks(Some(0)).unwrap_or_else(|| Peaks::new("GPU 0"));
    if args.ceilings {
        measure(&mut peaks, &profiler, &mut bound)?;
    }
    let roofline = profile.roofline(&peaks);
    println!("{roofline}");
    let (mut svg, mut html) = (roofline.to_svg(), roofline.to_html());
    if args.count || args.counts.is_some() {
        let measured = count(args, &mut bound)?;
        let counted = roofline.counted(&measured);
        println!("\n{counted}");
        (svg, html) = (counted.to_svg(), counted.to_html());
        peaks = counted.peaks.clone();
        if let Some(file) = &args.counts {
            std::fs::write(file, serde_json::to_string_pretty(&measured)?)?;
        }
    }
    if args.count_kernels {
        of_kernels(args, &profiler, &peaks, &mut bound)?;
    }
    if let Some(file) = &args.peaks {
        std::fs::write(file, peaks.to_json())?;
    }
    if let Some(file) = &args.svg {
        std::fs::write(file, svg)?;
    }
    if let Some(file) = &args.html {
        std::fs::write(file, html)?;
    }
    Ok(())
}

/// Counts the work of the ranges with hardware counters. The kernels run once per pass.
fn count(args: &Args, bound: &mut Bound) -> Result<Measured, Box<dyn Error>> {
    let library = Library::open()?;
    let ranges = args.times * args.kernels.len();
    let counters =
        RangeProfiler::builder(&library).set(Set::Roofline).max_ranges(ranges).build()?;
    println!("\n{}", counters.plan());
    let mut failed = None;
    let measured = count_ranges(&counters, || failed = quiet(args, bound).err().or(failed.take()));
    failed.map_or(Ok(()), Err)?;
    Ok(measured?)
}

/// Reports each kernel separately: its position under the roofs, and its use of tensor cores.
fn of_kernels(
    args: &Args,
    profiler: &Profiler,
    peaks: &Peaks,
    bound: &mut Bound,
) -> Result<(), Box<dyn Error>> {
    let library = Library::open()?;
    for set in [Set::Roofline, Set::Tensor] {
        // A reduction has two kernels, and some cuBLAS calls have several.
        let kernels = 4 * args.times * args.kernels.len() + 64;
        let counters = RangeProfiler::builder(&library).set(set).max_ranges(kernels).build()?;
        let mut failed = None;
        let kernels = count_kernels(&counters, profiler, || {
            let ran = quiet(args, bound).and_then(|()| bound.cublas_bf16());
            failed = ran.err().or(failed.take());
        });
        failed.map_or(Ok(()), Err)?;
        match set {
            Set::Roofline => println!("\n{}", kernels?.roofline(peaks)),
            _ => println!("\n{}", kernels?.tensor_pipes()),
        }
    }
    Ok(())
}

/// Runs the kernels the requested number of times without printing.
fn quiet(args: &Args, bound: &mut Bound) -> Result<(), Box<dyn Error>> {
    for name in &args.kernels {
        for _ in 0..args.times {
            launch(name, bound)?;
        }
    }
    bound.wait()
}

fn launch(name: &str, bound: &mut Bound) -> Result<(), Box<dyn Error>> {
    match name {
        "gemm" => bound.gemm(),
        "axpy" => bound.axpy(),
        _ => bound.reduction(),
    }
}

fn kernels(args: &Args, bound: &mut Bound) -> Result<(), Box<dyn Error>> {
    for name in &args.kernels {
        let work = match &**name {
            "gemm" => bound::gemm_work(),
            "axpy" => bound::axpy_work(),
            _ => bound::sum_work(),
        };
        say(name, work, args.times);
        for _ in 0..args.times {
            launch(name, bound)?;
        }
        bound.wait()?;
        let (first, sum) = bound.results()?;
        println!("  first number {first}, sum {sum}");
    }
    Ok(())
}

fn say(name: &str, work: Work, times: usize) {
    let amount = |amount: Option<u64>| amount.unwrap_or_default();
    println!(
        "{name}: {} flop and {} bytes declared each time, {times} times",
        amount(work.flops()),
        amount(work.bytes())
    );
}

/// Measures the peaks. The closure of a probe cannot return an error, so the error is stored.
fn measure(
    peaks: &mut Peaks,
    profiler: &Profiler,
    bound: &mut Bound,
) -> Result<(), Box<dyn Error>> {
    let mut failed = None;
    let measured =
        peaks.measure_bandwidth(profiler, || failed = bound.copy().err().or(failed.take()));
    failed.map_or(Ok(()), Err)?;
    println!("a copy moves {:.1} GB/s", measured? / 1e9);
    let mut failed = None;
    let measured = peaks.measure_work(profiler, Bound::PROBE_WORK, || {
        failed = bound.cublas().err().or(failed.take());
    });
    failed.map_or(Ok(()), Err)?;
    println!("a product of cuBLAS does {:.1} TFLOP/s in f32", measured? / 1e12);
    Ok(())
}
