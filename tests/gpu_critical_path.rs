//! Critical paths on a GPU: waits for recorded events and edges of graphs are known exactly. Run with
//! `cargo test --release -p gpu-profiler-tests --test gpu_critical_path`.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // tests

use std::process::ExitCode;
use std::time::Duration;

use cupti::{ActivityKind, Config};
use gpu_profiler_tests::cuda::{Gpu, Stream};
use gpu_profiler_tests::harness;
use profiler_analysis::critical_path::PathKind;
use profiler_analysis::prelude::*;
use profiler_core::{Profile, Profiler};

fn main() -> ExitCode {
    harness::run(&[
        ("recorded_events_are_known", recorded_events_are_known),
        ("dependencies_of_graphs_are_known", dependencies_of_graphs_are_known),
    ])
    .exit_code()
}

const STEPS: u64 = 20;

/// The GPU with its kernels loaded, and two streams.
fn warm() -> (Gpu, [Stream; 2]) {
    let gpu = Gpu::get();
    let streams = [gpu.stream(), gpu.stream()];
    for stream in streams {
        gpu.launch_spin(stream, 1_000);
    }
    gpu.synchronize_context();
    (gpu, streams)
}

fn record(config: Config, program: impl FnOnce()) -> Profile {
    let profiler = Profiler::builder().config(config).build().unwrap();
    let profile = profiler.record(program).unwrap().1;
    profile.health().assert_complete();
    profile
}

/// The second stream waits for the first kernel of the first one, which goes on with a kernel that nobody waits for.
fn recorded_events_are_known() {
    let (gpu, [first, second]) = warm();
    let event = gpu.event();
    let config = Config::new().add_kind_if_known(ActivityKind::CUDA_EVENT);
    let profile = record(config, || {
        for _ in 0..STEPS {
            let _step = nvtx::range("step");
            gpu.launch_spin(first, 300_000);
            gpu.record(event, first);
            gpu.launch_spin(first, 200_000);
            gpu.wait(second, event);
            gpu.launch_spin(second, 700_000);
            gpu.synchronize_context();
        }
    });
    let dependencies = profile.dependencies();
    let assumptions = dependencies.assumptions();
    println!("{assumptions}");
    let counts = (assumptions.recorded_events, assumptions.inferred_events);
    assert_eq!((counts, assumptions.contradicted), ((STEPS, 0), 0));
    // 300 and 700 us of each step, and not the 200.
    let path = dependencies.critical_path_of("step").unwrap();
    let kernels = path.time_of(PathKind::Kernel);
    let planned = Duration::from_micros(1_000 * STEPS);
    assert!(kernels.abs_diff(planned) < planned / 50, "{path}");
}

/// A graph with two branches: a kernel, two beside each other, and one after both.
fn dependencies_of_graphs_are_known() {
    let (gpu, [first, second]) = warm();
    let [fork, join] = [gpu.event(), gpu.event()];
    let profile = record(Config::new().graph_dependencies(true), || {
        let graph = gpu.capture(first, || {
            gpu.launch_spin(first, 50_000);
            gpu.record(fork, first);
            gpu.wait(second, fork);
            gpu.launch_spin(first, 300_000);
            gpu.launch_spin(second, 100_000);
            gpu.record(join, second);
            gpu.wait(first, join);
            gpu.launch_spin(first, 50_000);
        });
        for _ in 0..STEPS {
            let _step = nvtx::range("step");
            gpu.launch_graph(graph, first);
            gpu.synchronize(first);
        }
        gpu.destroy_graph(graph);
    });
    let dependencies = profile.dependencies();
    let assumptions = dependencies.assumptions();
    println!("{assumptions}");
    let counts = (assumptions.recorded_in_graphs, assumptions.inferred_in_graphs);
    assert_eq!((counts, assumptions.contradicted), ((4 * STEPS, 0), 0));
    let path = dependencies.critical_path_of("step").unwrap();
    let kernels = path.time_of(PathKind::Kernel);
    let planned = Duration::from_micros(400 * STEPS);
    assert!(kernels.abs_diff(planned) < planned / 50, "{path}");
}
