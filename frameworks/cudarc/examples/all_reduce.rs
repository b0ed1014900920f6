//! Two GPUs or more add their gradients by NCCL: a thread and a rank for each GPU, in one process.
//!
//! The program knows nothing of the profiler but its ranges. `gpuprof run` records it, and `gpuprof ranks` reports which rank waited for which:
//!
//! ```sh
//! cargo build -p gpu-profiler-cudarc --example all_reduce
//! gpuprof run -o ranks.gpurun -- target/debug/examples/all_reduce
//! gpuprof ranks ranks.gpurun
//! ```
//!
//! Each rank prints one line of JSON: how often it called which function with how many bytes.

#![allow(clippy::print_stdout, reason = "it prints its results")]

use std::error::Error;
use std::thread;

use cudarc::driver::CudaContext;
use cudarc::nccl::{Comm, Id, ReduceOp};

type Anyhow = Box<dyn Error + Send + Sync>;

const STEPS: usize = 50;
/// Elements of each layer's gradients.
const LAYERS: [usize; 3] = [1 << 15, 1 << 18, 1 << 20];

fn main() -> Result<(), Anyhow> {
    let ranks = usize::try_from(CudaContext::device_count()?)?;
    if ranks < 2 {
        return Err(format!(
            "{ranks} GPUs are visible, and ranks that add their gradients need two"
        )
        .into());
    }
    let id = Id::new().map_err(|error| format!("NCCL made no id of a communicator: {error:?}"))?;
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..ranks).map(|rank| scope.spawn(move || train(rank, ranks, id))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a rank panicked")?)
    })
}

fn train(rank: usize, ranks: usize, id: Id) -> Result<(), Anyhow> {
    let stream = CudaContext::new(rank)?.new_stream()?;
    let comm = Comm::from_rank(stream.clone(), rank, ranks, id)
        .map_err(|error| format!("rank {rank} of {ranks} could not join: {error:?}"))?;
    let mut gradients = LAYERS
        .iter()
        .map(|&elements| stream.clone_htod(&vec![1_f32; elements]))
        .collect::<Result<Vec<_>, _>>()?;
    for _ in 0..STEPS {
        let _step = nvtx::range("step");
        for gradient in &mut gradients {
            let _reduce = nvtx::range("reduce");
            comm.all_reduce_in_place(gradient, &ReduceOp::Avg)
                .map_err(|error| format!("rank {rank} could not reduce: {error:?}"))?;
        }
        stream.synchronize()?;
    }
    // The mean of ones is one.
    if let Some(wrong) = stream.clone_dtoh(&gradients[0])?.iter().find(|&&value| value != 1.0) {
        return Err(format!("rank {rank} has a gradient of {wrong} instead of 1").into());
    }
    let calls: Vec<_> = LAYERS
        .iter()
        .map(|elements| format!(r#""AllReduce {}": {STEPS}"#, elements * size_of::<f32>()))
        .collect();
    println!(r#"{{"rank": {rank}, "calls": {{{}}}}}"#, calls.join(", "));
    Ok(())
}
