//! A server whose workers answer requests by replaying a CUDA graph each, with a stream of their own.
//!
//! Each request is a range with its number; the graph's nodes belong to the layers of its capture. The program prints the
//! report, the GPU time of each worker's stream and the slowest request, and saves the profile if it is given a file:
//!
//! ```sh
//! cargo run -p gpu-profiler-cudarc --example server -- server.gpuprof
//! ```
//!
//! Where CUPTI is not to be had, workers time their requests by CUDA events.

#![allow(clippy::print_stdout, reason = "it prints its results")]

use std::error::Error;
use std::sync::{Arc, mpsc};
use std::thread;

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use gpu_profiler_cudarc::{Capture, Named, QueryStream, RecordedGraph};
use profiler_core::{Profile, Profiler, Recording};

type Anyhow = Box<dyn Error + Send + Sync>;

const WORKERS: usize = 4;
const LAYERS: usize = 6;
const REQUESTS: u64 = 200;
const ELEMENTS: usize = 1 << 16;

/// `x[i] = x[i] * s`.
const SCALE: &str = include_str!("scale.ptx");

/// A worker's stream and the graph of one request, with the kernel that the graph launches: a graph does not keep its module loaded.
struct Worker {
    stream: Arc<CudaStream>,
    graph: RecordedGraph,
    _scale: CudaFunction,
}

impl Worker {
    fn new(number: usize, context: &Arc<CudaContext>) -> Result<Self, Anyhow> {
        let stream = context.new_stream()?;
        stream.set_name(&format!("worker {number}"));
        let scale = context.load_module(Ptx::from_src(SCALE))?.load_function("scale")?;
        let mut data = stream.clone_htod(&vec![1.0_f32; ELEMENTS])?;
        let record = || -> Result<(), Anyhow> {
            for _ in 0..LAYERS {
                let _layer = nvtx::range("layer");
                let mut launch = stream.launch_builder(&scale);
                launch.arg(&mut data).arg(&0.5_f32).arg(&(ELEMENTS as u32));
                // SAFETY: the kernel takes a pointer to `ELEMENTS` floats, a float and their number.
                unsafe { launch.launch(LaunchConfig::for_num_elems(ELEMENTS as u32)) }?;
            }
            Ok(())
        };
        let graph = stream.capture("replay", record)?;
        // The graph has the address of `data`, which lives as long as the process.
        std::mem::forget(data);
        Ok(Self { stream, graph, _scale: scale })
    }

    fn answer(&self, request: u64) -> Result<(), Anyhow> {
        let _request = nvtx::event("request").payload(request).range();
        self.graph.launch()?;
        let _wait = nvtx::range("wait");
        Ok(self.stream.synchronize()?)
    }
}

/// Answers all requests on the workers' threads, and returns their streams.
fn serve(context: &Arc<CudaContext>) -> Result<Vec<Arc<CudaStream>>, Anyhow> {
    let (send, requests) = mpsc::channel::<u64>();
    let requests = Arc::new(parking_lot::Mutex::new(requests));
    (0..REQUESTS).try_for_each(|request| send.send(request))?;
    drop(send);
    thread::scope(|scope| {
        let work = |number: usize| {
            let requests = requests.clone();
            thread::Builder::new().name(format!("worker {number}")).spawn_scoped(scope, move || {
                let worker = Worker::new(number, context)?;
                let next = || requests.lock().recv();
                while let Ok(request) = next() {
                    worker.answer(request)?;
                }
                Ok::<_, Anyhow>(worker.stream.clone())
            })
        };
        let threads = (0..WORKERS).map(work).collect::<Result<Vec<_>, _>>()?;
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a worker panicked".into()))
        };
        threads.into_iter().map(join).collect()
    })
}

fn print(profile: &Profile) {
    println!("{profile}");
    let requests = profile.ranges().filter(|range| range.name() == "request");
    if let Some(slowest) = requests.max_by_key(|range| range.end() - range.start()) {
        let took = slowest.end() - slowest.start();
        let gpu = slowest.inclusive().gpu_time();
        println!("slowest request: {:?} in {took:?}, {gpu:?} on the GPU", slowest.payload());
    }
}

fn main() -> Result<(), Anyhow> {
    let file = std::env::args().nth(1);
    let profiler = match Profiler::builder().build() {
        Ok(profiler) => profiler,
        Err(error) if error.is_unavailable() => {
            println!("skipped: {error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let context = CudaContext::new(0)?;
    // SAFETY: each worker's memory is used on its own stream alone.
    unsafe { context.disable_event_tracking() };
    profiler.start()?;
    let streams = serve(&context)?;
    let recording: Recording = profiler.stop_recording()?;
    if let Some(file) = &file {
        recording.save(file)?;
    }
    let profile = Profile::from_recording(recording);
    print(&profile);
    for (number, stream) in streams.iter().enumerate() {
        let kernels = profile.query().on_stream(stream)?.kernels();
        let (count, busy) = (kernels.iter().count(), kernels.busy_time());
        println!("worker {number}: {count} kernels, {busy:?} busy");
    }
    Ok(())
}
