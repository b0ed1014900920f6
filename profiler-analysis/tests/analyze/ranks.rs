//! Two ranks of PyTorch on two H100, of which rank 1 launches a longer kernel before every second AllReduce.

use std::path::PathBuf;
use std::time::Duration;

use crate::file;
use profiler_analysis::prelude::*;
use profiler_analysis::ranks::LateCause;
use profiler_core::profile::{CollectiveFunction, OperationKind};
use profiler_core::{Profile, Recording};
use test_support::processes::with_info;

const STEPS: usize = 50;

fn path(rank: u32) -> PathBuf {
    file(format!("recordings/nccl-2xh100/rank-{rank}.gpuprof"))
}

fn recordings() -> [Recording; 2] {
    [0, 1].map(|rank| Recording::load(path(rank)).unwrap())
}

pub(crate) fn job() -> Profile {
    let profile = Profile::from_recordings(recordings()).unwrap();
    profile.health().assert_complete();
    profile
}

#[test]
fn planted_straggler_is_named_with_its_kernel() {
    let ranks = job().ranks();
    assert_eq!((ranks.matched, ranks.unmatched, ranks.ranks.len()), (2 * STEPS as u64, 0, 2));
    let [straggler] = &ranks.stragglers[..] else { panic!("{ranks}") };
    assert_eq!(straggler.rank, 1);
    let LateCause::LongerKernel { kernel } = &straggler.cause else { panic!("{ranks}") };
    assert!(kernel.contains("spin_kernel"), "{kernel}");
    // The library of this recording had no plugin: these are from NCCL's own NVTX ranges.
    assert_eq!(ranks.without_plugin.len(), 2);
    let sizes: Vec<_> = ranks.collectives.iter().map(|group| (group.bytes, group.count)).collect();
    assert!(sizes.contains(&(1 << 20, 50)) && sizes.contains(&(1 << 19, 50)), "{sizes:?}");
}

/// The file of a killed rank ends early: here with the ranges of 62 collectives, whose kernels would have come later.
#[test]
fn rank_with_a_truncated_file_is_not_compared() {
    let bytes = std::fs::read(path(1)).unwrap();
    let cut = Recording::from_bytes(&bytes[..bytes.len() * 2 / 3]).unwrap();
    let [first, _] = recordings();
    let profile = Profile::from_recordings([first, cut]).unwrap();
    assert!(!profile.health().is_complete(), "{}", profile.health());
    let ranks = profile.ranks();
    assert_eq!((ranks.matched, ranks.unmatched, ranks.stragglers.len()), (0, 100 + 62, 0));
}

/// The same recordings as those of two hosts, whose clocks are one: the true offset and drift are 0.
#[test]
fn clocks_of_hosts_are_aligned_by_the_ends_of_real_collectives() {
    let other_boot = |recording: &Recording| {
        with_info(recording, |info| info["boot_id"] = serde_json::json!("another"))
    };
    let [first, second] = recordings();
    let profile = Profile::from_recordings([first, other_boot(&second)]).unwrap();
    profile.health().assert_complete();
    let [_, clock] = profile.hosts() else { panic!("{:?}", profile.hosts()) };
    println!("{clock:?}");
    assert_eq!((clock.collectives, clock.contradictions), (2 * STEPS as u64, 0), "{clock:?}");
    assert!(
        clock.offset_ns.unsigned_abs() <= clock.spread_ns.min(clock.error_bound_ns),
        "{clock:?}"
    );
    assert!(clock.spread_ns < 20_000 && clock.error_bound_ns < 200_000, "{clock:?}");
    // Two GPUs of one address and ordinal on two hosts.
    assert_eq!(profile.recording_info().devices.len(), 4);
    let (ranks, on_one) = (profile.ranks(), job().ranks());
    let [straggler] = &ranks.stragglers[..] else { panic!("{ranks}") };
    assert!(matches!(straggler.cause, LateCause::LongerKernel { .. }), "{ranks}");
    for (group, of_one) in ranks.collectives.iter().zip(&on_one.collectives) {
        let apart = group.skew.abs_diff(of_one.skew).as_nanos() as u64;
        assert!(apart <= 2 * clock.spread_ns, "{apart} ns: {ranks}");
        assert!(group.link_share.is_none(), "{ranks}");
    }
}

/// The skew of each late collective is that of the kernels before it on both GPUs, which the ranks' recordings time alone.
#[test]
fn skew_matches_the_kernels_before() {
    let profile = job();
    let ends = |process: u32| -> Vec<Duration> {
        let spins = profile.kernels().filter(|kernel| {
            kernel.name().contains("spin_kernel")
                && kernel.range().is_some_and(|range| range.name() == "work")
                && kernel.range().unwrap().process_id() == process
        });
        spins.map(|kernel| kernel.end().unwrap()).collect()
    };
    let starts = |process: u32| -> Vec<Duration> {
        let late = profile.collectives().filter(|collective| {
            collective.range().is_some_and(|range| range.process_id() == process)
                && collective.bytes() == Some(1 << 19)
        });
        late.map(|collective| {
            assert_eq!(collective.function(), CollectiveFunction::AllReduce);
            let kernel = collective.kernel().unwrap();
            assert_eq!(kernel.kind(), OperationKind::Kernel);
            kernel.start().unwrap()
        })
        .collect()
    };
    let mut processes: Vec<_> = profile.processes().map(|process| process.id()).collect();
    processes.sort_unstable();
    let [first, second] = processes[..] else { panic!("{processes:?}") };
    let (ends, starts) = ([ends(first), ends(second)], [starts(first), starts(second)]);
    assert!(
        ends.iter().all(|ends| ends.len() == STEPS)
            && starts.iter().all(|starts| starts.len() == STEPS)
    );
    let mut differences: Vec<i64> = (0..STEPS)
        .map(|step| {
            let skew = |times: &[Vec<Duration>; 2]| {
                times[1][step].as_nanos() as i64 - times[0][step].as_nanos() as i64
            };
            (skew(&starts) - skew(&ends)).abs()
        })
        .collect();
    differences.sort_unstable();
    println!("median {} ns, worst {} ns", differences[STEPS / 2], differences[STEPS - 1]);
    assert!(differences[STEPS / 2] < 3_000, "{differences:?}");
}
