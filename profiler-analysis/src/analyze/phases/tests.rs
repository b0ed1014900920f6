//! Phases of synthetic runs, whose parts are known.

use crate::prelude::*;
use std::time::Duration;

use super::PhaseKind;
use crate::analyze::diagnosis::tests::{BASE, Job, Program, US};
use crate::analyze::diagnosis::{Bottleneck, Diagnosis, FindingKind, Part, Phase, Thresholds};
use profiler_core::profile::Profile;
use profiler_core::tables::RangeId;

/// A real run. Unpacking it needs the gzip of the feature.
#[cfg(feature = "pprof")]
mod gpt2;

const MS: u64 = 1_000 * US;

/// A step of two outermost ranges: `host_ns` without a call, then two kernels, to whose end the host waits.
fn step(program: &mut Program, host_ns: u64, gpu_ns: u64) {
    program.range("forward", |p| {
        p.host(host_ns);
        p.kernel(gpu_ns / 2);
    });
    program.range("backward", |p| {
        p.kernel(gpu_ns / 2);
        p.wait();
    });
}

fn steady(diagnosis: &Diagnosis) -> Vec<(&str, u64, u64)> {
    let steady = diagnosis.phases().iter().filter(|phase| phase.kind == PhaseKind::Steady);
    let row = |phase: &'_ Phase| (phase.instances, phase.warm_up);
    steady.map(|phase| (phase.name.as_deref().unwrap(), row(phase).0, row(phase).1)).collect()
}

fn phase(diagnosis: &Diagnosis, kind: PhaseKind) -> &Phase {
    diagnosis.phases().iter().find(|phase| phase.kind == kind).unwrap()
}

fn start_of(profile: &Profile, path: &str, instance: usize) -> Duration {
    profile.range(path).unwrap();
    profile.steps(path).as_slice()[instance].range().start()
}

#[test]
fn slow_first_steps_are_start_up() {
    let mut program = Program::new();
    // Two slow ones, one as usual, and two slow ones again: as of a framework that still tunes.
    for host_ns in [400 * MS, 20 * MS, 100 * US, 9 * MS, 9 * MS] {
        step(&mut program, host_ns, 900 * US);
    }
    (0..20).for_each(|_| step(&mut program, 100 * US, 900 * US));
    program.host(50 * MS);
    program.range("save", |p| p.host(10 * MS));
    let profile = program.profile();
    let diagnosis = profile.diagnose();
    assert_eq!(steady(&diagnosis), [("forward, backward", 20, 5)], "{diagnosis}");
    let of = phase(&diagnosis, PhaseKind::Steady);
    assert_eq!(of.span.start, start_of(&profile, "forward", 5));
    assert_eq!(phase(&diagnosis, PhaseKind::StartUp).span.end, of.span.start);
    // The whole run is CPU bound, the steps are not.
    assert_eq!(diagnosis.verdict().bottleneck, Some(Bottleneck::GpuCompute), "{diagnosis}");
    let whole = profile.diagnosis(Thresholds::new()).verdict();
    assert_eq!(whole.bottleneck, Some(Bottleneck::Cpu));
    // The phases divide the run.
    let shares: f64 = diagnosis.phases().iter().map(|phase| phase.share).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{diagnosis}");
    let text = diagnosis.to_string();
    assert!(
        text.starts_with("the steady phase of forward, backward is GPU-compute bound"),
        "{text}"
    );
    assert!(text.contains("with the first 5 of 25 instances of forward, backward"), "{text}");
    assert!(text.contains("\nteardown: 60.00 ms"), "{text}");
}

#[test]
fn work_of_several_seconds_before_the_steps_is_start_up() {
    let mut program = Program::new();
    program.kernel(US);
    // Imports and the initialisation of NCCL.
    program.host(10_000 * MS);
    for n in 0..220 {
        let host_ns = if n < 3 { 50 * MS } else { 900 * US };
        program.range("step", |p| step(p, host_ns, 3_800 * US));
    }
    let diagnosis = program.profile().diagnose();
    assert_eq!(steady(&diagnosis), [("step", 217, 3)], "{diagnosis}");
    let verdict = diagnosis.verdict();
    assert!(verdict.phase.as_deref() == Some("step") && verdict.instances == 217);
    let kernels = verdict.time_of(Part::Kernels);
    let share = kernels.as_secs_f64() / verdict.clock.as_secs_f64();
    assert!((0.79..0.82).contains(&share), "{diagnosis}");
    let start = phase(&diagnosis, PhaseKind::StartUp);
    assert!((0.8..0.95).contains(&start.share), "{diagnosis}");
    // Estimates, findings and ranges are of the steps.
    assert!(diagnosis.ranges().iter().all(|range| range.instances == 217), "{diagnosis}");
    let all = diagnosis.findings().iter().filter(|finding| !finding.is_note());
    assert!(all.clone().all(|finding| finding.cost <= verdict.clock), "{diagnosis}");
}

#[test]
fn other_ranges_are_another_phase() {
    let mut program = Program::new();
    (0..20).for_each(|_| step(&mut program, 100 * US, 900 * US));
    for _ in 0..20 {
        program.range("forward", |p| {
            p.host(2 * MS);
            p.kernel(100 * US);
            p.wait();
        });
    }
    let profile = program.profile();
    let diagnosis = profile.diagnose();
    assert_eq!(steady(&diagnosis), [("forward, backward", 20, 0), ("forward", 20, 0)]);
    let verdicts = diagnosis.verdicts();
    // The longer one is first.
    let bottlenecks: Vec<_> = verdicts.iter().map(|verdict| verdict.bottleneck).collect();
    assert_eq!(bottlenecks, [Some(Bottleneck::Cpu), Some(Bottleneck::GpuCompute)], "{diagnosis}");
    assert_eq!(diagnosis.verdict(), verdicts[0]);
    let idle = diagnosis.finding(FindingKind::IdleGaps).unwrap();
    assert_eq!(idle.phase.as_deref(), Some("forward"), "{diagnosis}");
    let of_forward = profile.diagnose_range("forward").unwrap();
    assert_eq!(of_forward.instances, 40, "a range that the user names is all of it");
}

#[test]
fn phases_that_alternate_have_several_windows() {
    let mut program = Program::new();
    for _ in 0..6 {
        for n in 0..30 {
            step(&mut program, 100 * US, 900 * US);
            if n % 10 == 9 {
                program.range("checkpoint", |p| p.host(300 * US));
            }
        }
        (0..20).for_each(|_| program.range("evaluate", |p| p.kernel(400 * US)));
        program.wait();
    }
    let diagnosis = program.profile().diagnose();
    let steady = steady(&diagnosis);
    assert_eq!(steady, [("forward, backward", 180, 0), ("evaluate", 120, 0)], "{diagnosis}");
    assert!(
        diagnosis.phases().iter().filter(|phase| phase.verdict.is_some()).all(|p| p.windows == 6)
    );
}

/// As autograd's thread calls NCCL, five times in each step, for more and for less of the step's time than names a phase.
#[test]
fn ranges_of_another_thread_within_the_steps_do_not_name_them() {
    for host_ns in [0, 30 * US] {
        let mut program = Program::new();
        let main = program.thread;
        (0..2).for_each(|_| program.process(0));
        let other = program.thread;
        program.thread = main;
        for _ in 0..40 {
            program.range("step", |p| {
                let open = std::mem::take(&mut p.open);
                p.thread = other;
                for _ in 0..5 {
                    p.range("ncclAllReduce", |p| {
                        p.kernel(20 * US);
                        p.host(host_ns);
                    });
                }
                (p.thread, p.open) = (main, open);
                p.kernel(900 * US);
                p.wait();
            });
        }
        let diagnosis = program.profile().diagnose();
        assert_eq!(steady(&diagnosis), [("step", 40, 0)], "{diagnosis}");
    }
}

/// One token: a sequence of 12 layers with other work before and after.
fn token(program: &mut Program, gap_ns: u64) {
    program.launch(7, Job::Kernel("embed", 8), 2 * US);
    for _ in 0..12 {
        for name in ["norm", "project", "attend", "project", "add"] {
            program.launch(7, Job::Kernel(name, 8), 2 * US);
        }
    }
    program.launch(7, Job::Kernel("argmax", 8), 2 * US);
    program.launch(7, Job::Out(8), US);
    program.host(gap_ns);
}

/// A call that generates tokens: what it prepares, the prompt, and the tokens after it.
fn generate(program: &mut Program, tokens: usize) {
    for name in ["ones", "cumsum", "mask", "fill", "arange", "copy", "where", "index"] {
        program.launch(7, Job::Kernel(name, 8), 2 * US);
    }
    for _ in 0..12 {
        for name in ["norm", "gemm", "split", "flash", "gemm", "add", "gelu"] {
            program.launch(7, Job::Kernel(name, 64), 2 * US);
        }
    }
    (0..tokens).for_each(|_| token(program, 2 * MS));
    program.wait();
}

#[test]
fn tokens_without_ranges_are_a_phase() {
    let mut program = Program::new();
    program.kernel(US);
    program.host(300 * MS);
    (0..10).for_each(|_| step(&mut program, 100 * US, 900 * US));
    generate(&mut program, 6);
    let second = program.now;
    generate(&mut program, 60);
    let end = program.now;
    program.host(40 * MS);
    program.kernel(US);
    let profile = program.profile();
    let diagnosis = profile.diagnose();
    assert_eq!(steady(&diagnosis), [("forward, backward", 10, 0), ("63 operations", 60, 0)]);
    let tokens =
        diagnosis.phases().iter().find(|phase| phase.name.as_deref() == Some("63 operations"));
    let (span, token) = (tokens.unwrap().span, Duration::from_micros(2_500));
    let [second, end] = [second, end].map(|ns| profile.since_start(ns));
    assert!(span.start >= second && span.start <= second + token, "{diagnosis}");
    assert!(span.end <= end + token && span.end + token >= end, "{diagnosis}");
    assert_eq!(diagnosis.verdict().bottleneck, Some(Bottleneck::Cpu), "{diagnosis}");
}

#[test]
fn a_pause_separates_repeating_operations() {
    let mut program = Program::new();
    (0..20).for_each(|_| token(&mut program, 100 * US));
    program.host(1_000 * MS);
    (0..20).for_each(|_| token(&mut program, 100 * US));
    let diagnosis = program.profile().diagnose();
    assert_eq!(steady(&diagnosis), [("63 operations", 40, 0)], "{diagnosis}");
    assert_eq!(phase(&diagnosis, PhaseKind::Steady).windows, 2);
    assert!(phase(&diagnosis, PhaseKind::Between).clock > Duration::from_millis(990));
}

#[test]
fn runs_without_repetition_have_no_phases() {
    let mut rng = fastrand::Rng::with_seed(3);
    let names: Vec<String> = (0..300).map(|n| format!("kernel_{n}")).collect();
    let names: Vec<&'static str> = names.into_iter().map(|name| &*name.leak()).collect();
    let mut random = Program::new();
    for _ in 0..600 {
        random.launch(7, Job::Kernel(names[rng.usize(..names.len())], 8), rng.u64(1..50) * US);
    }
    let mut once = Program::new();
    once.range("step", |p| (0..20).for_each(|_| p.kernel(100 * US)));
    let mut other_names = Program::new();
    for name in ["read", "tokenize", "train", "evaluate", "save", "report"] {
        other_names.range(name, |p| (0..4).for_each(|_| p.kernel(100 * US)));
    }
    let mut without_work = Program::new();
    (0..20).for_each(|_| without_work.range("parse", |p| p.host(MS)));
    (0..20).for_each(|_| without_work.kernel(100 * US));
    let empty = Program::new();
    for program in [random, once, other_names, without_work, empty] {
        let diagnosis = program.profile().diagnose();
        assert!(diagnosis.phases().is_empty(), "{diagnosis}");
        let text = diagnosis.to_string();
        assert!(text.starts_with("the run") && text.contains("phases: none"), "{text}");
        assert!(diagnosis.verdict().phase.is_none());
    }
}

#[test]
fn names_with_running_numbers_repeat() {
    let mut program = Program::new();
    program.range("train 7", |p| {
        for n in 0..24 {
            let name = format!("step_{n:02} of 24");
            p.range(&name, |p| step(p, if n == 0 { 90 * MS } else { 100 * US }, 900 * US));
        }
    });
    let diagnosis = program.profile().diagnose();
    assert_eq!(steady(&diagnosis), [("step_* of *", 23, 1)], "{diagnosis}");
}

#[test]
fn processes_have_phases_on_their_devices() {
    let mut program = Program::new();
    for rank in 0..2 {
        let stream = 7 + 100 * rank;
        program.process(40 + rank);
        program.host(if rank == 0 { 500 * MS } else { 900 * MS });
        for n in 0..22 {
            program.range("step", |p| {
                p.host(if n < 2 { 80 * MS } else { 100 * US });
                p.launch(stream, Job::Kernel("work", 4_000), 900 * US);
                p.wait_for(Some(stream));
            });
        }
    }
    let profile = program.profile();
    let diagnosis = profile.diagnose();
    assert_eq!(steady(&diagnosis), [("step", 20, 2)], "{diagnosis}");
    let verdict = diagnosis.verdict();
    assert_eq!((verdict.devices, verdict.operations), (2, 40));
    assert!(verdict.clock < Duration::from_millis(25), "{diagnosis}");
    assert_eq!(verdict.bottleneck, Some(Bottleneck::GpuCompute), "{diagnosis}");
}

#[test]
fn ranges_beside_the_steps_do_not_name_them() {
    let mut program = Program::new();
    program.process(0);
    (0..30).for_each(|_| step(&mut program, 100 * US, 900 * US));
    program.process(0);
    program.host(120 * US);
    // As the ranges of a library on the thread of PyTorch's autograd.
    for _ in 0..29 {
        program.range("cub::DeviceScan", |p| p.host(20 * US));
        program.host(990 * US);
    }
    let diagnosis = program.profile().diagnose();
    assert_eq!(steady(&diagnosis), [("forward, backward", 30, 0)], "{diagnosis}");
}

/// A client's bursts of requests, and workers whose batches continue ranges that have ended.
#[test]
fn batches_of_a_service_are_its_phase() {
    const WAVES: u64 = 20;
    const WAVE: u64 = 3 * MS;
    let mut program = Program::new();
    program.process(0);
    for wave in 0..WAVES {
        program.now = BASE + 600 * MS + wave * WAVE;
        (0..24).for_each(|_| program.range("prepare", |p| p.host(4 * US)));
    }
    for worker in 1..4 {
        program.process(0);
        for wave in 0..WAVES {
            program.now = BASE + 600 * MS + wave * WAVE + u64::from(worker) * 40 * US;
            for _ in 0..2 {
                for _ in 0..4 {
                    program.range("batched", |p| p.host(US));
                }
                // The context of the last one, attached.
                program.open.push(RangeId(program.store.ranges.len() as u32 - 1));
                program.range("infer", |p| {
                    (0..10).for_each(|_| p.launch(worker, Job::Kernel("work", 64), 3 * US));
                    p.host(900 * US);
                    p.wait_for(Some(worker));
                });
                program.open.clear();
            }
        }
    }
    let diagnosis = program.profile().diagnose();
    assert_eq!(steady(&diagnosis), [("infer", 120, 0)], "{diagnosis}");
    assert!(phase(&diagnosis, PhaseKind::Steady).clock > Duration::from_millis(55), "{diagnosis}");
}

/// Unpacking it needs the gzip of the feature.
#[cfg(feature = "pprof")]
#[test]
fn batches_of_a_real_service_are_its_phase() {
    let packed = include_bytes!("../../../../tests/recordings/service-h200.gpuprof.gz");
    let mut file = Vec::new();
    std::io::copy(&mut flate2::read::GzDecoder::new(&packed[..]), &mut file).unwrap();
    let diagnosis = Profile::from_bytes(&file).unwrap().diagnose();
    assert_eq!(steady(&diagnosis), [("infer", 33, 0)], "{diagnosis}");
    assert_eq!(diagnosis.verdict().bottleneck, Some(Bottleneck::Cpu), "{diagnosis}");
    // Before it, the kernels are compiled for half a second.
    assert!(phase(&diagnosis, PhaseKind::Steady).clock > Duration::from_millis(18), "{diagnosis}");
    assert!(phase(&diagnosis, PhaseKind::StartUp).share > 0.9, "{diagnosis}");
}

#[test]
fn many_names_and_operations_cost_no_square() {
    let mut program = Program::new();
    for n in 0..40_000_u32 {
        let name: &'static str =
            ["a", "b", "c", "d"][(n.wrapping_mul(2_654_435_761) >> 9) as usize % 4];
        program.launch(7, Job::Kernel(name, 8), US);
        if n % 8 == 0 {
            program.range(&format!("{name}{}", "x".repeat(n as usize % 200)), |p| p.host(US));
        }
    }
    let profile = program.profile();
    // A square of the ranges or operations would take minutes.
    assert!(super::Phases::new(&profile).steady.len() <= super::MOST_PHASES);
}
