//! Weighted stacks: every operation in exactly one, by each root.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::formats::{KINDS, text};
use crate::quickstart;
use fake_cupti::Work;
use nvtx::range;
use profiler_analysis::Format;
use profiler_analysis::formats::stacks::{
    FrameKind, Stack, StackRoot, StackWeight, StackWeights, Stacks,
};
use profiler_analysis::prelude::*;
use profiler_core::Profile;
use profiler_core::profile::GpuOperation;
use test_support::everything::{everything, fake, record};
use test_support::processes::as_process;

fn profiles() -> [Profile; 4] {
    let recording = everything().recording().unwrap().clone();
    let other = as_process(&recording, 9);
    let several = Profile::from_recordings([recording, other]).unwrap();
    [quickstart(), Profile::from_bytes(KINDS).unwrap(), everything(), several]
}

fn weights(operations: &[GpuOperation<'_>]) -> (u64, u64, u64) {
    let bytes = |operation: &GpuOperation<'_>| {
        let copied = operation.as_copy().map(|copy| copy.bytes());
        copied.or(operation.as_memset().map(|memset| memset.bytes())).unwrap_or(0)
    };
    let ns = |operation: &GpuOperation<'_>| {
        operation.gpu_time().map_or(0, |time| time.as_nanos() as u64)
    };
    let count = operations.len() as u64;
    (operations.iter().map(ns).sum(), count, operations.iter().map(bytes).sum())
}

fn weights_of(weights: StackWeights) -> (u64, u64, u64) {
    (weights.gpu_time.as_nanos() as u64, weights.operations, weights.bytes)
}

fn names(stack: &Stack<'_>) -> Vec<(FrameKind, String)> {
    stack.frames.iter().map(|frame| (frame.kind, frame.name.to_string())).collect()
}

/// Sums of the stacks by their frames of some kinds.
fn by_kind(stacks: &Stacks<'_>, kinds: &[FrameKind]) -> BTreeMap<Vec<String>, (u64, u64, u64)> {
    let mut sums: BTreeMap<Vec<String>, (u64, u64, u64)> = BTreeMap::new();
    for stack in stacks.iter() {
        let frames = stack.frames.iter().filter(|frame| kinds.contains(&frame.kind));
        let sum = sums.entry(frames.map(|frame| frame.name.to_string()).collect()).or_default();
        let (ns, operations, bytes) = weights_of(stack.weights);
        *sum = (sum.0 + ns, sum.1 + operations, sum.2 + bytes);
    }
    sums
}

#[test]
fn stacks_add_up_to_the_totals_by_every_root() {
    for profile in profiles() {
        let totals = profile.totals();
        let total = (
            totals.gpu_time().as_nanos() as u64,
            totals.gpu_operations(),
            totals.copy_bytes + totals.memset_bytes,
        );
        for root in StackRoot::ALL {
            let stacks = profile.stacks(root);
            assert_eq!(weights_of(stacks.total()), total, "{root}");
            assert_eq!(stacks.iter().count(), stacks.len());
            let [whole] = &by_kind(&stacks, &[]).into_values().collect::<Vec<_>>()[..] else {
                panic!("no stacks")
            };
            assert_eq!(*whole, total, "{root}");
        }
    }
}

#[test]
fn stack_has_the_path_thread_and_stream_of_its_operations() {
    for profile in profiles() {
        let mut ranges: BTreeMap<Vec<String>, Vec<_>> = BTreeMap::new();
        let mut kernels: BTreeMap<Vec<String>, Vec<_>> = BTreeMap::new();
        let mut threads: BTreeMap<(u32, Option<u32>), Vec<_>> = BTreeMap::new();
        let mut streams: BTreeMap<(u32, u32, u32, u32), Vec<_>> = BTreeMap::new();
        for operation in profile.operations() {
            let path = operation.range().map(|range| range.node().path());
            let path = path.map(|path| path.split('/').map(str::to_owned).collect());
            ranges.entry(path.unwrap_or_default()).or_default().push(operation);
            let name = operation.as_kernel().map(|kernel| kernel.demangled_name());
            kernels.entry(name.into_iter().collect()).or_default().push(operation);
            let (process, device) = (operation.process_id(), operation.device());
            let thread = operation.call().map(|call| call.thread_id());
            threads.entry((process, thread)).or_default().push(operation);
            let stream = (process, device, operation.context(), operation.stream());
            streams.entry(stream).or_default().push(operation);
        }
        let sums = |by: BTreeMap<Vec<String>, Vec<GpuOperation<'_>>>| -> BTreeMap<_, _> {
            by.into_iter().map(|(path, operations)| (path, weights(&operations))).collect()
        };
        let by_range = profile.stacks(StackRoot::Ranges);
        assert_eq!(by_kind(&by_range, &[FrameKind::Range]), sums(ranges.clone()));
        assert_eq!(by_kind(&by_range, &[FrameKind::Kernel]), sums(kernels));
        let by_thread = profile.stacks(StackRoot::Threads);
        assert_eq!(by_kind(&by_thread, &[FrameKind::Range]), sums(ranges));

        // Names may differ in words; each thread and each stream has one of its own.
        let sorted = |mut sums: Vec<(u64, u64, u64)>| {
            sums.sort_unstable();
            sums
        };
        let of_threads = by_kind(&by_thread, &[FrameKind::Process, FrameKind::Thread]);
        let expected = threads.values().map(|operations| weights(operations)).collect();
        assert_eq!(sorted(of_threads.into_values().collect()), sorted(expected));
        for (process, thread) in threads.keys() {
            let name = thread.map_or("unknown thread".to_owned(), |id| format!("thread {id}"));
            let is_there = by_thread.iter().any(|stack| stack.frames[1].name.starts_with(&name));
            assert!(is_there, "{process} {name}");
        }
        let kinds = [FrameKind::Process, FrameKind::Device, FrameKind::Stream];
        let of_streams = by_kind(&profile.stacks(StackRoot::Streams), &kinds);
        let expected = streams.values().map(|operations| weights(operations)).collect();
        assert_eq!(sorted(of_streams.into_values().collect()), sorted(expected));
    }
}

#[test]
fn stacks_of_one_domain_and_path_are_one_row() {
    for profile in profiles() {
        let domains: BTreeSet<_> = profile.walk().map(|(_, node)| node.domain()).collect();
        for root in StackRoot::ALL {
            let stacks = profile.stacks(root);
            let all: Vec<_> = stacks.iter().map(|stack| names(&stack)).collect();
            let distinct: BTreeSet<_> = all.iter().collect();
            assert!(domains.len() > 1 || distinct.len() == all.len(), "{all:?}");
            let again: Vec<_> = stacks.iter().map(|stack| names(&stack)).collect();
            assert_eq!(all, again);
        }
    }
}

#[test]
fn folded_lines_have_each_weight() {
    let profile = quickstart();
    let stacks = profile.stacks(StackRoot::Ranges);
    for weight in stacks.weights().iter().copied() {
        let lines: Vec<String> = stacks.folded(weight).collect();
        let values: Vec<u64> =
            lines.iter().map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
        assert_eq!(values.iter().sum::<u64>(), stacks.total().get(weight), "{weight}");
        assert!(stacks.total().get(weight) > 0, "{weight}");
    }
    let lines: Vec<String> = stacks.folded(StackWeight::GpuTime).collect();
    assert_eq!(text(&profile, Format::Folded), lines.join("\n") + "\n");
}

/// Paths of all depths have quadratic length together.
#[test]
fn stacks_of_a_deep_recursion_have_bounded_length() {
    const DEPTH: usize = 3_000;
    let fake = fake();
    let profile = record(&fake, || {
        let mut open = Vec::new();
        for _ in 0..DEPTH {
            open.push(range("r"));
            fake.launch(Work::kernel(c"k").taking_ns(10));
        }
        while open.pop().is_some() {}
    });
    let stacks = profile.stacks(StackRoot::Ranges);
    assert_eq!(stacks.len(), DEPTH);
    let frames: usize = stacks.iter().map(|stack| stack.frames.len()).sum();
    assert!(frames <= 100_000 + DEPTH * 130, "{frames}");
    let last = stacks.iter().last().unwrap();
    assert_eq!(last.frames.len(), 130);
    assert_eq!(last.frames[64].name, format!("…({} more)…", DEPTH - 128));
    assert_eq!(
        stacks.iter().map(|stack| stack.weights.gpu_time).sum::<Duration>(),
        Duration::from_micros(30)
    );
}

#[test]
fn empty_profile_has_no_stacks() {
    let profile = record(&fake(), || drop(range("idle")));
    let stacks = profile.stacks(StackRoot::Threads);
    assert!(stacks.is_empty() && stacks.iter().next().is_none());
    assert_eq!(weights_of(stacks.total()), (0, 0, 0));
}
