//! The cost of recording for an AllReduce: two ranks, back to back, paired and interleaved.
//!
//! ```text
//! all_reduce --bench [--rounds 10] [--modes none,again,raw,waiting,library,plugin] --gpuprof GPUPROF --library LIBRARY
//! ```
//!
//! | mode | recorder |
//! | --- | --- |
//! | `none`, `again` | nothing, two separate modes |
//! | `raw` | CUPTI from C++ with the same callbacks and the kinds of the same records, including synchronisations: `raw_cupti.cpp` |
//! | `waiting` | the injection library with NCCL's plugin, not switched on |
//! | `library` | the injection library, recording everything, without the plugin |
//! | `plugin` | the injection library, recording everything, with the plugin |
//!
//! Each measurement is a process of its own: this program started again with `--mode`, under
//! `gpuprof run` in the modes of the library. Each of two GPUs has a thread and a rank, which
//! reduce 128 KiB to 4 MiB. Each round runs all modes, starting with a different mode, and only
//! values of the same round are compared. Needs libnccl.so (2.26 or newer).
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that prints what it measured"
)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Instant;

use cudarc::driver::CudaContext;
use cudarc::nccl::{Comm, Id, ReduceOp};
use gpu_profiler_benches::process_bench::{self, Arguments, Result};
use gpu_profiler_benches::stats::{self, Rounds, median};
use serde::{Deserialize, Serialize};

#[path = "raw.rs"]
mod raw;
use raw::{Raw, raw_library_for};

const RANKS: usize = 2;
const KIBIBYTES: [usize; 4] = [128, 512, 1024, 4096];
const WARM_UP: usize = 200;
const BATCHES: usize = 40;
/// The number of reductions in a batch, which ends with a wait for the stream.
const REDUCTIONS: usize = 50;

/// Microseconds per AllReduce for each size, as a process prints them: medians of its batches.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Sample {
    us: [f64; KIBIBYTES.len()],
}

struct Options {
    modes: Vec<String>,
    rounds: usize,
    gpuprof: Option<PathBuf>,
    library: Option<PathBuf>,
}

fn read(arguments: &mut Arguments) -> Result<Options> {
    let mut path = |name: &str| -> Result<Option<PathBuf>> {
        Ok(arguments.take::<PathBuf>(name)?.map(std::path::absolute).transpose()?)
    };
    let (gpuprof, library) = (path("--gpuprof")?, path("--library")?);
    let modes = arguments.take_list("--modes", "none,again,raw,waiting,library,plugin")?;
    let rounds = arguments.take("--rounds")?.unwrap_or(10).max(1);
    Ok(Options { modes, rounds, gpuprof, library })
}

fn main() -> ExitCode {
    let measure = |mode: &str, _: &Options| measure(mode);
    process_bench::run("all_reduce", unavailable, read, measure, compare)
}

fn unavailable() -> Option<String> {
    if let Some(why) = gpu_profiler_tests::cuda::unavailable() {
        return Some(why);
    }
    match CudaContext::device_count() {
        Ok(devices) if devices >= RANKS as i32 => None,
        Ok(devices) => Some(format!("it needs {RANKS} GPUs, and {devices} are visible")),
        Err(error) => Some(error.to_string()),
    }
}

fn measure(mode: &str) -> Result<Sample> {
    let raw = (mode == "raw").then(Raw::start).transpose()?;
    let id = Id::new().map_err(|error| format!("ncclGetUniqueId: {error:?}"))?;
    let ranks: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..RANKS)
            .map(|rank| scope.spawn(move || reduce(rank, id).map_err(|error| error.to_string())))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("panicked".into())))
            .collect()
    });
    let us = ranks.into_iter().collect::<std::result::Result<Vec<_>, _>>()?[0];
    if let Some(raw) = raw {
        let [_, _, dropped, _] = raw.stop()?;
        if dropped != 0 {
            return Err(format!("{dropped} records dropped").into());
        }
    }
    Ok(Sample { us })
}

/// Measures the microseconds per AllReduce for each size.
fn reduce(rank: usize, id: Id) -> Result<[f64; KIBIBYTES.len()]> {
    let stream = CudaContext::new(rank)?.new_stream()?;
    let nccl = |what: &str, error| format!("{what} of rank {rank}: {error:?}");
    let comm = Comm::from_rank(stream.clone(), rank, RANKS, id)
        .map_err(|error| nccl("ncclCommInitRank", error))?;
    let mut medians = [0.0; KIBIBYTES.len()];
    for (of_size, kibibytes) in medians.iter_mut().zip(KIBIBYTES) {
        let mut values = stream.alloc_zeros::<f32>(kibibytes << 8)?;
        let mut batch = |reductions: usize| -> Result<f64> {
            let began = Instant::now();
            for _ in 0..reductions {
                comm.all_reduce_in_place(&mut values, &ReduceOp::Sum)
                    .map_err(|error| nccl("ncclAllReduce", error))?;
            }
            stream.synchronize()?;
            Ok(began.elapsed().as_secs_f64() * 1e6 / reductions as f64)
        };
        batch(WARM_UP)?;
        let times = (0..BATCHES).map(|_| batch(REDUCTIONS)).collect::<Result<Vec<_>>>()?;
        *of_size = median(&times);
    }
    Ok(medians)
}

fn compare(options: &Options) -> Result<ExitCode> {
    let scratch = env::temp_dir().join(format!("all_reduce-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let mut modes = options.modes.clone();
    let raw = raw_library_for(&mut modes, &scratch);
    let mut samples: Vec<(String, usize, Sample)> = Vec::new();
    let mut failed = false;
    for (round, mode) in process_bench::turns(options.rounds, &modes) {
        let mut command = command(mode, options, &scratch.join(format!("{mode}-{round}")))?;
        if let Some(raw) = &raw {
            command.env("RAW_CUPTI", raw);
        }
        match process_bench::sample::<Sample>(&mut command) {
            Ok(sample) => samples.push((mode.clone(), round, sample)),
            Err(error) => {
                println!("ERROR: round {}: {mode}: {error}", round + 1);
                failed = true;
            }
        }
    }
    let _ = std::fs::remove_dir_all(&scratch);
    for (index, kibibytes) in KIBIBYTES.into_iter().enumerate() {
        println!(
            "\nus an AllReduce of {kibibytes} KiB: median (min to max); against none and raw within a round, 95 % interval of the median"
        );
        let of = |mode: &str| -> Rounds {
            let of_mode = samples.iter().filter(|sample| sample.0 == mode);
            of_mode.map(|(_, round, sample)| (*round, sample.us[index])).collect()
        };
        print!("{}", stats::beside_none_and_raw(&modes, of));
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The command that runs this program in a mode, under `gpuprof run` if the mode uses the library.
fn command(mode: &str, options: &Options, folder: &Path) -> Result<Command> {
    let own = env::current_exe()?;
    if !["waiting", "library", "plugin"].contains(&mode) {
        let mut command = Command::new(own);
        command.args(["--mode", mode]);
        return Ok(command);
    }
    let of = |path: &Option<PathBuf>, name: &str| {
        path.clone().ok_or_else(|| format!("mode {mode} needs --{name}"))
    };
    let mut command = Command::new(of(&options.gpuprof, "gpuprof")?);
    command.args(["run", "--quiet", "--inject"]).arg(of(&options.library, "library")?);
    command.arg("--output").arg(folder);
    if mode == "waiting" {
        command.args(["--start", "wait"]);
    }
    if mode == "library" {
        // NCCL's own keyword for no plugin.
        command.env("NCCL_PROFILER_PLUGIN", "none");
    }
    command.arg("--").arg(own).args(["--mode", mode]);
    Ok(command)
}
