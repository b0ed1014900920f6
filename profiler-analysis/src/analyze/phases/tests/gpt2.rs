//! The phases of a recording of GPT-2: 25 steps of training and two generations.

use crate::prelude::*;
use std::io::Read as _;

use cupti::CallClass;

use super::*;
use crate::analyze::diagnosis::tests::BASE;
use profiler_core::tables::{
    Interval, KernelNames, Label, LabelId, Operation, Range, RangeId, ThreadId, What, Work,
};

/// The recording of `tests/recordings/gpt2-h100`.
fn gpt2() -> Profile {
    let packed = include_bytes!("../../../../../tests/recordings/gpt2-h100/columns.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    let mut lines = text.lines();
    let numbers =
        |line: &str| line.split_whitespace().map(|n| n.parse().unwrap()).collect::<Vec<i64>>();
    let [copies, memsets] = [(), ()].map(|()| numbers(lines.next().unwrap()));
    let names: Vec<&str> = lines.next().unwrap().split('|').collect();
    let columns: Vec<Vec<i64>> = lines.map(numbers).collect();
    let ns = |us: i64| BASE + us as u64 * US;
    // Starts are the difference to the start before.
    let times = |at: usize| {
        let starts = columns[at].iter().scan(0, |last, more| {
            *last += more;
            Some(*last)
        });
        let ends = |(start, length): (i64, &i64)| Interval {
            start_ns: ns(start),
            end_ns: ns(start + length),
        };
        starts.zip(&columns[at + 1]).map(ends).collect::<Vec<Interval>>()
    };
    let mut program = Program::new();
    (0..2).for_each(|_| program.process(0));
    let thread = |row: i64| ThreadId(row as u32 + 1);
    let ranges = times(0);
    for (at, time) in ranges.iter().enumerate() {
        let name = program.store.names.intern(names[columns[3][at] as usize]);
        program.store.labels.push(Label { name, domain: None, category: None, color: None });
        program.store.ranges.push(Range {
            time: *time,
            label: LabelId(at as u32),
            thread: thread(columns[2][at]),
            parent: None.into(),
            is_open: false,
        });
    }
    let around = |program: &Program, at: u64| {
        let (thread, until) =
            (program.thread.0, ranges.partition_point(|range| range.start_ns <= at));
        let mut before = (0..until).rev().filter(|row| program.store.ranges[*row].thread == thread);
        before.next().filter(|row| at < ranges[*row].end_ns).map(|row| RangeId(row as u32))
    };
    let call = |program: &mut Program, row: i64, time: Interval, name: &str, class: CallClass| {
        program.thread = (thread(row), 0);
        program.now = time.start_ns;
        program.open = around(program, time.start_ns).into_iter().collect();
        program.call(name, class, time.end_ns);
    };
    let calls = times(7);
    for (at, time) in calls.into_iter().enumerate() {
        let id = columns[10][at];
        let mut place = cupti::Place::default();
        (place.context, place.stream) = (1, 7);
        let (what, name, class) = if copies.contains(&id) {
            let mut copy = cupti::Memcpy::default();
            (copy.kind, copy.bytes, copy.place) = (cupti::CopyKind::DeviceToHost, 8, place);
            (What::Copy(copy), "cuMemcpyDtoHAsync_v2", CallClass::Memcpy)
        } else if memsets.contains(&id) {
            (What::Memset(cupti::Memset::default()), "cuMemsetD8Async", CallClass::Memset)
        } else {
            let mut details = cupti::Kernel::default();
            (details.grid, details.block, details.place) = ([4_000, 1, 1], [128, 1, 1], place);
            let name = program.store.names.intern(&format!("kernel {id}"));
            let names = KernelNames { name, demangled: None, short: None };
            (What::Kernel { names, details }, "cuLaunchKernel", CallClass::KernelLaunch)
        };
        let correlation_id = program.next_id;
        call(&mut program, columns[9][at], time, name, class);
        let work = program.store.intern_work(Work::new(what, place));
        let start_ns = time.start_ns.wrapping_add_signed(columns[11][at] * US as i64);
        let time = Interval { start_ns, end_ns: start_ns + columns[12][at] as u64 * US };
        program.store.operations.push(Operation::new(work, Some(time), correlation_id));
    }
    for (at, time) in times(4).into_iter().enumerate() {
        program.synchronization(cupti::SynchronizationKind::Context, None);
        call(&mut program, columns[6][at], time, "cuCtxSynchronize", CallClass::Synchronize);
    }
    program.store.calls.sort_by_key(|call| call.time.start_ns);
    program.profile()
}

/// Idle shares by SQL over `gpuprof convert --format nsys` of the recording: see docs/decisions/052-phases.md.
#[test]
fn phases_of_gpt2_are_its_later_steps_and_second_generation() {
    let profile = gpt2();
    let diagnosis = profile.diagnose();
    let steady: Vec<&Phase> =
        diagnosis.phases().iter().filter(|phase| phase.kind == PhaseKind::Steady).collect();
    let [steps, tokens] = steady[..] else { panic!("{diagnosis}") };
    assert_eq!(steps.name.as_deref(), Some("forward, backward, optimizer"));
    // Steps 6 to 25, within one.
    assert!(
        (19..=21).contains(&steps.instances) && steps.instances + steps.warm_up == 25,
        "{diagnosis}"
    );
    // 63 tokens after the one of the prompt, within one.
    assert_eq!(tokens.name.as_deref(), Some("328 operations"));
    assert!((62..=64).contains(&tokens.instances), "{diagnosis}");
    let idle = |phase: &Phase| {
        let verdict = phase.verdict.as_ref().unwrap();
        let is_busy = |of: &Part| matches!(of, Part::Kernels | Part::Copies | Part::Communication);
        let idle = verdict.parts.iter().filter(|part| !is_busy(&part.part));
        idle.map(|part| part.time.as_secs_f64()).sum::<f64>() / verdict.clock.as_secs_f64()
    };
    let near = |share: f64, sql: f64| (share - sql).abs() < 0.01;
    assert!(near(idle(steps), 0.0610) && near(idle(tokens), 0.9804), "{diagnosis}");
    let bottlenecks = [steps, tokens].map(|phase| phase.verdict.as_ref().unwrap().bottleneck);
    assert_eq!(bottlenecks, [Some(Bottleneck::GpuCompute), Some(Bottleneck::Cpu)], "{diagnosis}");
    // The tokens take more time: the headline is about them.
    assert_eq!(diagnosis.verdict().phase, tokens.name);
}
