//! The same kernels counted by this crate and by Nsight Compute, each alone: instructions and operations exactly, bytes and
//! time nearly. Needs a GPU and `ncu`; without `ncu` it says so and counts nothing.
#![allow(clippy::unwrap_used, clippy::print_stderr)] // a test that says what it saw

use std::fmt::Write as _;
use std::process::{Command, ExitCode};

use cupti::Library;
use cupti::counters::{Measured, RangeProfiler};
use gpu_profiler_tests::counted::{BLOCK, Counted, Gemm};
use gpu_profiler_tests::cuda::{DEFAULT, Gpu};
use gpu_profiler_tests::{harness, ncu};

/// Says that a process is to run the kernels for `ncu`.
const PART: &str = "GPU_NCU_PART";

const TIME: &str = "gpu__time_duration.sum";
const READ: &str = "dram__bytes_read.sum";
const WRITTEN: &str = "dram__bytes_write.sum";
const INSTRUCTIONS: &str = "smsp__inst_executed.sum";
/// Both together.
const BYTES: &str = "dram bytes, read and written";
/// Time, bytes, then what has to be exact.
const METRICS: [&str; 8] = [
    TIME,
    READ,
    WRITTEN,
    INSTRUCTIONS,
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
];

/// The kernels in their order; what comes behind is of cuBLAS.
/// The empty one says what is counted of others' work: its own bytes are none.
const NAMES: [&str; 5] = ["axpy", "reduce", "copy", "gather", "empty"];

fn main() -> ExitCode {
    if std::env::var_os(PART).is_some() {
        let work = Work::new();
        work.gpu.profiler_start();
        work.run();
        work.gpu.profiler_stop();
        return ExitCode::SUCCESS;
    }
    harness::run(&[("kernel_counts_match_ncu", beside_ncu)]).exit_code()
}

/// Two buffers of a GiB, far larger than any cache, and matrices of 128 MiB.
struct Work {
    gpu: Gpu,
    kernels: Counted,
    gemm: Option<Gemm>,
    blocks: u32,
    x: u64,
    y: u64,
}

impl Work {
    fn new() -> Self {
        let gpu = Gpu::get();
        let bytes = 1usize << 30;
        let (x, y) = (gpu.alloc(bytes), gpu.alloc(bytes));
        gpu.fill(x, 0, bytes);
        gpu.fill(y, 0, bytes);
        let (kernels, gemm) = (Counted::load(), Gemm::bf16(&gpu, 8192));
        let blocks = (bytes / 4) as u32 / BLOCK;
        let work = Self { gpu, kernels, gemm, blocks, x, y };
        work.run(); // loads code, and the caches are as they will be
        work
    }

    fn run(&self) {
        let Self { kernels, blocks, x, y, .. } = *self;
        kernels.axpy(DEFAULT, blocks, x, y);
        kernels.reduce(DEFAULT, blocks / 64, 64, x, y);
        kernels.copy(DEFAULT, blocks, x, y);
        kernels.gather(DEFAULT, blocks, x, y);
        self.gpu.launch_empty(DEFAULT);
        self.gemm.iter().for_each(Gemm::run);
        self.gpu.synchronize_context();
    }
}

fn ours(work: &Work, metrics: &[&str]) -> Measured {
    let library = Library::open().unwrap();
    let profiler =
        RangeProfiler::builder(&library).metrics(metrics.iter().copied()).build().unwrap();
    let ((), measured) = profiler.measure_kernels(|| work.run()).unwrap();
    measured
}

fn beside_ncu() {
    let ncu = match ncu::find() {
        Ok(ncu) => ncu,
        Err(why) => {
            // Who names it wants it.
            assert!(std::env::var_os("NCU").is_none(), "{why}");
            eprintln!("nothing is compared: {why}");
            return;
        }
    };
    let measured = ours(&Work::new(), &METRICS);
    let theirs = |cache_control: &str| {
        let mut program = Command::new(std::env::current_exe().unwrap());
        ncu::count(&ncu, cache_control, &METRICS, program.env(PART, "1")).unwrap()
    };
    let (kept, flushed) = (theirs("none"), theirs("all"));
    let ours: Vec<_> = measured.ranges().collect();
    let names: Vec<_> = kept.iter().map(|row| row.name.clone()).collect();
    assert_eq!(ours.len(), kept.len(), "{names:?}");
    assert_eq!(flushed.len(), kept.len(), "{names:?}");
    assert!(names.iter().zip(NAMES).all(|(name, own)| name == own), "{names:?}");

    let mut table = format!(
        "{:<40} {:<52} {:>16} {:>16} {:>9} {:>16} {:>9}\n",
        "kernel", "metric", "ours", "ncu", "off by", "ncu, flushed", "off by"
    );
    let mut wrong = String::new();
    for (at, range) in ours.iter().enumerate() {
        for metric in METRICS.into_iter().chain([BYTES]) {
            let counted = match metric {
                BYTES => range.value(READ).unwrap() + range.value(WRITTEN).unwrap(),
                metric => range.value(metric).unwrap(),
            };
            let [kept, flushed] = [&kept, &flushed].map(|rows| match metric {
                BYTES => rows[at].values[READ] + rows[at].values[WRITTEN],
                metric => rows[at].values[metric],
            });
            let off = |other: f64| match (counted, other) {
                (0.0, 0.0) => 0.0,
                _ => (counted / other - 1.0) * 100.0,
            };
            let name: String = names[at].chars().take(40).collect();
            let line = format!(
                "{name:<40} {metric:<52} {counted:>16} {kept:>16} {:>7.2} % {flushed:>16} {:>7.2} %",
                off(kept),
                off(flushed)
            );
            let is_near = |percent: f64| off(kept).abs() <= percent;
            let is_right = match metric {
                // Microseconds, and what the caches held of what ran before.
                TIME | READ | WRITTEN | BYTES if names[at] == "empty" => true,
                TIME | READ | BYTES => is_near(5.0),
                // What a cache holds when a kernel begins is written in its time; a cache holds this much.
                WRITTEN => is_near(5.0) || (counted - kept).abs() < 60e6,
                // Warps of cuBLAS wait in loops, and ncu does not count the same twice.
                INSTRUCTIONS if kept != flushed => is_near(1.0),
                _ => counted == kept,
            };
            writeln!(table, "{line}").unwrap();
            if !is_right {
                writeln!(wrong, "{line}").unwrap();
            }
        }
    }
    eprintln!("{table}");
    if let Some(out) = std::env::var_os("OUT") {
        std::fs::write(std::path::Path::new(&out).join("ncu.txt"), &table).unwrap();
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
