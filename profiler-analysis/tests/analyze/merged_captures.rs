//! Captures of Nsight Systems of several processes as one profile.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::capture::{Folder, connect};
use crate::merged::{A, B, merged, rank};
use profiler_analysis::prelude::*;
use profiler_analysis::reports::StatsReport;
use profiler_core::profile::{GpuOperation, Merger};
use profiler_core::tables::Joined;
use profiler_core::{Profile, Recording};
use serde_json::json;
use test_support::processes::with_info;

/// The rows of a recording's capture, whose process is this and began at this calendar time.
fn capture_of(recording: &Recording, id: u32, epoch_ns: i64) -> Joined {
    let folder = Folder::new();
    let recording = with_info(recording, |info| info["process_id"] = json!(id));
    let profile = Profile::from_recording(recording);
    profile.write_nsys(folder.file("a.sqlite"), |_, _| ()).unwrap();
    let connection = connect(&folder.file("a.sqlite"));
    let update = "UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = ?1";
    connection.execute(update, [epoch_ns]).unwrap();
    drop(connection);
    profiler_analysis::nsys::read_rows(folder.file("a.sqlite")).unwrap()
}

/// 2026-11-20.
const BEGAN_NS: i64 = 1_795_198_309_376_159_534;

#[test]
fn captures_are_aligned_by_the_calendar_time_at_their_starts() {
    let recordings = [rank(7_100, A), rank(7_200, B)];
    let expected = merged(recordings.clone());
    let mut merger = Merger::new();
    // The second began first, by 5.000000007 s.
    let began = [BEGAN_NS, BEGAN_NS - 5_000_000_007];
    for (at, recording) in recordings.iter().enumerate() {
        let rows = capture_of(recording, 7_100 + 100 * at as u32, began[at]);
        merger.add_capture(rows, Some("node"), Some(at as u32)).unwrap();
    }
    let again = capture_of(&recordings[0], 7_100, BEGAN_NS);
    assert!(merger.add_capture(again, Some("node"), Some(5)).unwrap_err().is_duplicate());
    let error = merger.add(recordings[0].clone()).unwrap_err().to_string();
    assert!(error.contains("recordings and captures of another tool"), "{error}");
    let profile = merger.finish().unwrap();
    assert_eq!(profile.health().facts.clocks_by_utc, 2);
    assert_eq!((profile.totals(), profile.hosts().len()), (expected.totals(), 0));
    let processes: Vec<_> = profile.processes().collect();
    let ids: Vec<_> = processes.iter().map(|of| (of.id(), of.rank())).collect();
    assert_eq!(ids, [(7_100, Some(0)), (7_200, Some(1))]);
    let starts: Vec<_> = processes.iter().map(|of| of.start()).collect();
    assert_eq!(starts, [Duration::from_nanos(5_000_000_007), Duration::ZERO]);
    let date = std::time::UNIX_EPOCH + Duration::from_nanos((BEGAN_NS - 5_000_000_007) as u64);
    assert_eq!(profile.started_at(), Some(date));
    // Every row is where it is alone.
    for (recording, process) in recordings.into_iter().zip(processes) {
        let alone = Profile::from_recording(recording);
        let own: Vec<_> = profile.query().process(process.id()).iter().collect();
        let of = |of: &GpuOperation<'_>, start| {
            let path = of.range().map(|range| range.node().path());
            let call_start = of.call().map(|call| call.start() - start);
            (of.start().map(|at| at - start), of.gpu_time(), path, call_start)
        };
        let expected: Vec<_> = alone.operations().map(|it| of(&it, Duration::ZERO)).collect();
        let found: Vec<_> = own.iter().map(|it| of(it, process.start())).collect();
        assert_eq!(found, expected);
        let ranges = profile.ranges().filter(|range| range.process_id() == process.id());
        let times: Vec<_> = ranges.map(|range| range.host_time()).collect();
        assert_eq!(times, alone.ranges().map(|range| range.host_time()).collect::<Vec<_>>());
    }
    let devices: Vec<_> = profile.recording_info().devices.iter().collect();
    let addresses: Vec<_> = devices.iter().map(|of| of.pci_bus_id.as_deref()).collect();
    assert_eq!(addresses, [Some(A), Some(B)]);
}

/// Equal addresses are different GPUs on different machines.
#[test]
fn captures_of_machines_without_common_collectives_have_clocks_without_a_bound() {
    let mut merger = Merger::new();
    for (at, machine) in ["one", "two"].into_iter().enumerate() {
        let rows = capture_of(&rank(7_100, A), 7_100, BEGAN_NS);
        merger.add_capture(rows, Some(machine), Some(at as u32)).unwrap();
    }
    let profile = merger.finish().unwrap();
    assert_eq!(profile.recording_info().devices.len(), 2);
    let hosts: Vec<_> = profile.processes().map(|process| process.host()).collect();
    assert_eq!(hosts, [0, 1]);
    assert!(profile.hosts().iter().all(|clock| (clock.offset_ns, clock.collectives) == (0, 0)));
    assert!(profile.ranks().to_string().contains("host 1: its clock is aligned by the calendar"));
    let mut merger = Merger::new();
    merger.add(rank(1, A)).unwrap();
    let rows = capture_of(&rank(2, A), 2, BEGAN_NS);
    assert!(merger.add_capture(rows, None, None).is_err());
    assert_eq!(merger.finish().unwrap().processes().len(), 1);
}

/// All processes of a capture have its rank, and keep their own calls.
#[test]
fn capture_of_several_processes_is_one_rank() {
    let path = crate::file("captures/family-h200.sqlite");
    let alone = profiler_analysis::nsys::read(&path).unwrap();
    let mut merger = Merger::new();
    let rows = profiler_analysis::nsys::read_rows(&path).unwrap();
    merger.add_capture(rows, None, Some(3)).unwrap();
    let profile = merger.finish().unwrap();
    let ids = |of: &Profile| of.processes().map(|one| one.id()).collect::<BTreeSet<_>>();
    assert_eq!((ids(&profile), ids(&profile).len()), (ids(&alone), 3));
    assert!(profile.processes().all(|process| process.rank() == Some(3)));
    assert_eq!(profile.totals_by_process(), alone.totals_by_process());
    for &report in StatsReport::ALL {
        // Ranges of several captures have no numbers of nsys.
        if matches!(report, StatsReport::NvtxGpuProjTrace | StatsReport::NvtxPushpopTrace) {
            continue;
        }
        let csv = |of: &Profile| of.stats(report).csv();
        assert!(csv(&profile) == csv(&alone), "{report:?}");
    }
}
