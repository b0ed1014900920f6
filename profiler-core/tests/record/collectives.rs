//! Collectives of NCCL: from the marks of the injection library's plugin, and from NCCL's own ranges.

use fake_cupti::{Fake, Work};
use nvtx::{Domain, range};
use profiler_analysis::prelude::*;
use profiler_core::profile::CollectiveFunction as F;
use profiler_core::{Profile, Recording};
use test_support::processes::{as_process, recording};

static NCCL: Domain = Domain::new("NCCL");
static PLUGIN: Domain = Domain::new("NCCL profiler");

const COMMUNICATOR: u64 = 0x1234_5678_9abc_def0;

fn kernel(fake: &Fake) {
    fake.launch(Work::kernel(c"ncclDevKernel_AllReduce_Sum_f32_RING_LL").taking_ns(1_000));
}

/// What NCCL 2.28 does with its ranges: the group's end launches what was enqueued in it.
fn nccl_range(function: &'static str, bytes: u64) -> nvtx::Range {
    NCCL.event(function)
        .field("NCCL communicator ID", COMMUNICATOR, "")
        .field("Message size [bytes]", bytes, "")
        .range()
}

fn grouped(fake: &Fake, function: &'static str, bytes: u64) {
    let _start = NCCL.range("ncclGroupStart");
    drop(nccl_range(function, bytes));
    let _end = NCCL.range("ncclGroupEnd");
    kernel(fake);
}

/// What the plugin records.
fn plugin_mark(function: &'static str, sequence: u64, rank: u64) {
    plugin_mark_of(COMMUNICATOR, function, sequence, rank);
}

fn plugin_mark_of(communicator: u64, function: &'static str, sequence: u64, rank: u64) {
    PLUGIN
        .event(function)
        .field("communicator", communicator, "")
        .field("rank", rank, "")
        .field("ranks", 2u64, "")
        .field("sequence", sequence, "")
        .field("bytes", 4096u64, "B")
        .field("algorithm", "RING", "")
        .mark();
}

#[test]
fn ranges_of_nccl_stand_in_for_its_events() {
    let profile = Profile::from_recording(recording(|fake| {
        let _step = range("step");
        fake.launch(Work::kernel(c"gemm"));
        {
            let _direct = nccl_range("ncclAllReduce", 400);
            kernel(fake);
        }
        grouped(fake, "ncclAllReduce", 800);
        fake.launch(Work::kernel(c"gemm"));
        grouped(fake, "ncclBroadcast", 16);
        drop(NCCL.event("ncclCommDestroy").field("NCCL communicator ID", COMMUNICATOR, "").range());
        // Never launched.
        drop(nccl_range("ncclAllReduce", 1));
    }));
    profile.health().assert_complete();
    let found: Vec<_> = profile
        .collectives()
        .map(|one| (one.function(), one.sequence(), one.bytes(), one.kernel().map(|k| k.number())))
        .collect();
    let expected = [
        (F::AllReduce, 0, Some(400), Some(1)),
        (F::AllReduce, 1, Some(800), Some(2)),
        (F::Broadcast, 0, Some(16), Some(4)),
        (F::AllReduce, 2, Some(1), None),
    ];
    assert_eq!(found, expected);
    for one in profile.collectives() {
        assert!(!one.is_from_plugin() && one.communicator() == COMMUNICATOR);
        assert_eq!((one.rank(), one.ranks(), one.algorithm()), (None, None, None));
        assert_eq!(one.range().unwrap().node().path(), "step");
    }
    let alone = Profile::from_recording(recording(kernel));
    assert_eq!(alone.collectives().len(), 0);
}

fn ranks() -> Vec<Recording> {
    let of_rank = |rank: u64| {
        let recorded = recording(|fake| {
            for sequence in 0..3 {
                let _step = range("step");
                fake.launch(Work::kernel(c"gemm"));
                {
                    // With the plugin, NCCL's ranges are not counted a second time.
                    let _reduce = nccl_range("ncclAllReduce", 4096);
                    kernel(fake);
                    plugin_mark("AllReduce", sequence, rank);
                }
            }
            // Marks that are not the plugin's.
            PLUGIN.mark("AllReduce");
            PLUGIN.event("AllReduce").field("sequence", "text", "").mark();
        });
        as_process(&recorded, 100 + rank as u32)
    };
    (0..2).map(of_rank).collect()
}

#[test]
fn events_of_the_plugin_survive_a_merge_and_a_file() {
    let recordings = ranks();
    let again: Vec<Recording> =
        recordings.iter().map(|one| Recording::from_bytes(&one.to_bytes()).unwrap()).collect();
    let profile = Profile::from_recordings(again).unwrap();
    let found: Vec<_> = profile
        .collectives()
        .map(|one| (one.process_id(), one.rank().unwrap(), one.sequence()))
        .collect();
    let expected = [(100, 0, 0), (100, 0, 1), (100, 0, 2), (101, 1, 0), (101, 1, 1), (101, 1, 2)];
    assert_eq!(found, expected);
    for one in profile.collectives() {
        assert!(one.is_from_plugin() && one.in_kernel() == 1);
        assert_eq!((one.bytes(), one.algorithm()), (Some(4096), Some("RING")));
        let kernel = one.kernel().unwrap();
        assert_eq!(kernel.process_id(), one.process_id());
        assert!(kernel.as_kernel().unwrap().name().starts_with("ncclDevKernel"));
        // NCCL's own range is not the program's.
        assert_eq!(one.range().unwrap().name(), "step");
    }
}

/// A communicator that is split in two, one of which is destroyed; a later one has its hash and counts from 0 again.
#[test]
fn split_and_destroyed_communicators_are_matched_separately() {
    const SPLIT: [u64; 2] = [7, 8];
    let of_rank = |rank: u64| {
        let recorded = recording(|fake| {
            let reduce = |communicator, sequence| {
                let _step = range("step");
                kernel(fake);
                plugin_mark_of(communicator, "AllReduce", sequence, rank);
            };
            reduce(COMMUNICATOR, 0);
            for sequence in 0..4 {
                reduce(SPLIT[0], sequence);
                reduce(SPLIT[1], sequence);
            }
            reduce(COMMUNICATOR, 1);
            (0..2).for_each(|sequence| reduce(SPLIT[0], sequence));
        });
        as_process(&recorded, 100 + rank as u32)
    };
    let profile = Profile::from_recordings([of_rank(0), of_rank(1)]).unwrap();
    profile.health().assert_complete();
    let ranks = profile.ranks();
    // What repeats a number of its communicator is not matched with what had it before.
    assert_eq!((ranks.matched, ranks.unmatched), (2 + 4 + 4, 2 * 2), "{ranks}");
    let counts: Vec<(u64, u64)> = {
        let groups = ranks.collectives.iter();
        let mut counts: Vec<_> = groups.map(|group| (group.communicator, group.count)).collect();
        counts.sort_unstable();
        counts
    };
    assert_eq!(counts, [(SPLIT[0], 4), (SPLIT[1], 4), (COMMUNICATOR, 2)]);
    assert!(ranks.missing.is_empty() && ranks.without_plugin.is_empty(), "{ranks}");
}

/// One rank loaded a plugin and the other did not, both from the first collective on.
#[test]
fn rank_without_the_plugin_is_matched_by_the_ranges_of_nccl() {
    let of_rank = |rank: u64| {
        let recorded = recording(|fake| {
            for sequence in 0..3 {
                let _step = range("step");
                let _reduce = nccl_range("ncclAllReduce", 4096);
                kernel(fake);
                if rank == 0 {
                    plugin_mark("AllReduce", sequence, rank);
                }
            }
        });
        as_process(&recorded, 100 + rank as u32)
    };
    let ranks = Profile::from_recordings([of_rank(0), of_rank(1)]).unwrap().ranks();
    assert_eq!((ranks.matched, ranks.unmatched), (3, 0), "{ranks}");
    let [without] = &ranks.without_plugin[..] else { panic!("{ranks}") };
    assert!(without.contains("process 101: 3 collectives from NCCL's NVTX ranges"), "{ranks}");
    // The ranges have no rank.
    assert_eq!(ranks.missing.len(), 1, "{ranks}");
}
