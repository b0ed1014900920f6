//! Recordings of several processes as one profile.

use std::time::{Duration, Instant};

use fake_cupti::{Fake, Work};
use nvtx::range;
use profiler_core::profile::{Attribution, Merger, Totals};
use profiler_core::{Profile, Recording};
use serde_json::json;
use test_support::processes::{as_process, recording, set_devices, with_info};

/// A step with a graph, copies and waits, on two streams: `extra` more kernels than the least.
fn step(fake: &Fake, extra: u64) {
    let mut graph = fake.graph();
    {
        let _layer = range("layer");
        fake.capture_into(&mut graph, &Work::kernel(c"gemm").taking_ns(1_000));
    }
    let exec = fake.instantiate(&graph);
    let _step = range("step");
    nvtx::mark("begun");
    {
        let _forward = range("forward");
        for _ in 0..=extra {
            fake.launch(Work::kernel(c"forward").taking_ns(100 + extra));
        }
        fake.launch(Work::host_to_device(1_000).on_stream(13));
        fake.launch(Work::synchronize());
    }
    fake.launch_exec(&exec);
    fake.launch(Work::memset(64));
}

/// Two processes whose threads, calls, streams and nodes have the same numbers.
fn two() -> [Recording; 2] {
    let recordings = [0, 3].map(|extra| {
        recording(|fake| {
            step(fake, extra);
            fake.launch(Work::kernel(c"outside"));
        })
    });
    let [first, second] = &recordings;
    [as_process(first, 100), as_process(second, 200)]
}

fn alone(recordings: &[Recording]) -> Vec<Profile> {
    recordings.iter().cloned().map(Profile::from_recording).collect()
}

#[test]
fn sums_of_a_merged_profile_are_the_sums_of_its_processes() {
    let recordings = two();
    let parts = alone(&recordings);
    let ids = |part: &Profile| part.calls().map(|call| call.correlation_id()).collect::<Vec<_>>();
    assert_eq!(ids(&parts[0])[..3], ids(&parts[1])[..3], "the test needs equal ids");
    let profile = Profile::from_recordings(recordings).unwrap();
    profile.health().assert_complete();
    let sum = |of: fn(&Profile) -> Totals| {
        parts.iter().map(of).fold(Totals::default(), |mut sum, totals| {
            sum += totals;
            sum
        })
    };
    assert_eq!(profile.totals(), sum(Profile::totals));
    assert_eq!(profile.outside_ranges(), sum(Profile::outside_ranges));
    for path in ["step", "forward", "step/forward", "layer"] {
        let merged = profile.range(path).unwrap();
        let of_parts = parts.iter().map(|part| part.range(path).unwrap());
        let mut sums = (0, Totals::default(), Totals::default());
        for part in of_parts {
            sums.0 += part.instances();
            sums.1 += part.inclusive();
            sums.2 += part.replayed();
        }
        assert_eq!((merged.instances(), merged.inclusive(), merged.replayed()), sums, "{path}");
    }
    let health = profile.health();
    let count = |of: fn(&Profile) -> u64| parts.iter().map(of).sum::<u64>();
    assert_eq!(health.records, count(|part| part.health().records));
    assert_eq!(
        health.accounts.kernels.matched_records,
        count(|part| part.health().accounts.kernels.matched_records)
    );
    assert_eq!(health.facts.captured_calls, 2);
    assert_eq!(profile.marks().count(), 2);
    let starts: Vec<_> = profile.operations().map(|operation| operation.start()).collect();
    assert!(starts.is_sorted() && starts.len() == profile.query().count() as usize);
    assert!(profile.recording().is_none());
}

/// Each row of a process is what it is alone, and refers to rows of its own process.
#[test]
fn rows_of_one_process_never_refer_to_those_of_another() {
    let recordings = two();
    let parts = alone(&recordings);
    let profile = Profile::from_recordings(recordings).unwrap();
    for (part, id) in parts.iter().zip([100, 200]) {
        let mut of_process = profile.query().process(id).iter();
        let process = profile.processes().find(|process| process.id() == id).unwrap();
        for expected in part.operations() {
            let found = of_process.next().unwrap();
            let path = |range: Option<profiler_core::Range<'_>>| Some(range?.node().path());
            assert_eq!(path(found.range()), path(expected.range()));
            assert_eq!(path(found.captured_in()), path(expected.captured_in()));
            assert_eq!(found.correlation_id(), expected.correlation_id());
            assert_eq!(
                (found.device(), found.stream(), found.context(), found.graph_node()),
                (expected.device(), expected.stream(), expected.context(), expected.graph_node())
            );
            assert_eq!(found.start().map(|at| at - process.start()), expected.start());
            assert_eq!(found.attribution(), expected.attribution());
            let call = found.call().unwrap();
            assert_eq!((call.process_id(), call.name()), (id, expected.call().unwrap().name()));
            assert!(found.ranges().all(|range| range.process_id() == id));
            assert!(found.captured_in().is_none_or(|range| range.process_id() == id));
        }
        assert!(of_process.next().is_none());
        let calls = profile.calls().filter(|call| call.process_id() == id).count();
        assert_eq!(calls, part.calls().count());
        let waits = profile.waits();
        let waits = waits.iter().filter(|wait| wait.call().process_id() == id);
        assert_eq!(waits.count() as u64, part.waits().count());
        assert!(profile.marks().any(|mark| mark.process_id() == id && mark.name() == "begun"));
    }
    let streams = profile.query().by_stream();
    assert_eq!(streams.len(), 4, "two streams of each of two processes: {streams}");
    assert!(profile.operations().all(|of| of.attribution() != Attribution::Handed));
}

#[test]
fn profile_is_split_by_process() {
    let [first, second] = two();
    let mut merger = Merger::new();
    merger.add_process(second, Some("train".to_owned()), Some(1)).unwrap();
    merger.add_process(first, Some("train".to_owned()), Some(0)).unwrap();
    let profile = merger.finish().unwrap();
    let processes: Vec<_> = profile.processes().map(|process| process.to_string()).collect();
    assert_eq!(processes, ["rank 0, train, process 100", "rank 1, train, process 200"]);
    let groups = profile.query().in_range("forward").kernels().by_process();
    let counts: Vec<_> = groups.iter().map(|group| (group.key().id(), group.count())).collect();
    assert_eq!(counts, [(200, 4), (100, 1)]);
    let forward = |id| profile.query().process(id).in_range("step").kernels().count();
    assert_eq!([forward(100), forward(200), forward(300)], [2, 5, 0]);
    for process in profile.processes() {
        assert!(process.health().unwrap().is_complete());
        assert_eq!(process.recording_info().unwrap().process_id, Some(process.id()));
        assert!(process.duration() < profile.duration());
    }
    // The second fake began when the first had stopped: the session is both, and what is between.
    let [first, second] = [0, 1].map(|at| profile.processes().nth(at).unwrap());
    assert_eq!(first.start(), Duration::ZERO);
    assert!(second.start() >= first.duration());
    assert_eq!(second.start() + second.duration(), profile.duration());
}

#[test]
fn report_has_a_row_for_each_process_and_the_processes_of_each_range() {
    let [first, second] = two();
    let second = second.to_bytes();
    let cut = Recording::from_bytes(&second[..second.len() - 64]).unwrap();
    let mut merger = Merger::new();
    merger.add_process(first, Some("train".to_owned()), Some(0)).unwrap();
    merger.add_process(cut, Some("train".to_owned()), Some(1)).unwrap();
    let profile = merger.finish().unwrap();
    assert!(!profile.health().is_complete() && profile.health().losses.truncated == 1);
    let report = profile.to_string();
    let line = |of: &str| report.lines().find(|line| line.contains(of)).unwrap().to_owned();
    assert!(line("rank 0, train, process 100").contains(" 0 "), "{report}");
    let columns: Vec<_> = line("step").split_whitespace().map(str::to_owned).collect();
    assert_eq!(columns[..3], ["step", "2", "2"], "{report}");
    let health = report.split("health: ").nth(1).unwrap();
    let mut lines = health.lines();
    assert!(lines.next().unwrap().starts_with("INCOMPLETE"), "{health}");
    let of_process = lines.next().unwrap();
    assert!(of_process.starts_with("  rank 1, train, process 200: "), "{of_process}");
    assert!(of_process.contains("1 truncated recording"), "{of_process}");
    assert_eq!(lines.next(), None);
}

fn with_devices(recording: &Recording, id: u32, addresses: &[&str]) -> Recording {
    with_info(recording, |info| {
        info["process_id"] = json!(id);
        set_devices(info, addresses);
    })
}

/// `CUDA_VISIBLE_DEVICES` gives each process another GPU, which each knows as 0.
#[test]
fn device_is_a_gpu_whatever_its_ordinal_in_a_process() {
    let [first, second] = two();
    let (a, b) = ("0000:1b:00.0", "0000:43:00.0");
    let devices = |recordings: Vec<Recording>| {
        let infos: Vec<_> = recordings.iter().map(Recording::info).collect();
        let numbers = Merger::device_numbers(&infos);
        let ids: Vec<_> = infos.iter().map(|info| info.process_id.unwrap()).collect();
        let profile = Profile::from_recordings(recordings).unwrap();
        for (id, numbers) in ids.into_iter().zip(numbers) {
            let used: Vec<_> =
                profile.query().process(id).by_device().iter().map(|group| *group.key()).collect();
            assert_eq!(used, [numbers[&0]], "the work is on ordinal 0");
        }
        let known = &profile.recording_info().devices;
        let known: Vec<_> =
            known.iter().map(|of| (of.id, of.pci_bus_id.clone().unwrap())).collect();
        let used = |id| {
            profile
                .query()
                .process(id)
                .by_device()
                .iter()
                .map(|group| *group.key())
                .collect::<Vec<_>>()
        };
        assert_eq!(profile.health().facts.devices_by_ordinal, 0);
        assert!(profile.kernels().all(|kernel| kernel.details().place.device == kernel.device()));
        (known, used(1), used(2))
    };
    let both = vec![(0, a.to_owned()), (1, b.to_owned())];
    // Each sees one of two: numbered by address, whoever is read first.
    for recordings in [
        vec![with_devices(&first, 1, &[b]), with_devices(&second, 2, &[a])],
        vec![with_devices(&second, 2, &[a]), with_devices(&first, 1, &[b])],
    ] {
        assert_eq!(devices(recordings), (both.clone(), vec![1], vec![0]));
    }
    // One sees both, the other the second alone.
    let recordings = vec![with_devices(&first, 1, &[a, b]), with_devices(&second, 2, &[b])];
    assert_eq!(devices(recordings), (both.clone(), vec![0], vec![1]));
    // Both see the same: their ordinals stay.
    let recordings = vec![with_devices(&first, 1, &[b, a]), with_devices(&second, 2, &[b, a])];
    let swapped = vec![(0, b.to_owned()), (1, a.to_owned())];
    assert_eq!(devices(recordings), (swapped, vec![0], vec![0]));
}

#[test]
fn devices_without_addresses_are_known_by_ordinal_and_counted() {
    let profile = Profile::from_recordings(two()).unwrap();
    assert_eq!(profile.health().facts.devices_by_ordinal, 1);
    assert!(profile.health().is_complete());
    let text = profile.health().to_string();
    assert!(text.contains("1 devices of several processes known by their ordinal alone"), "{text}");
    assert_eq!(profile.query().by_device().len(), 1);
}

#[test]
fn recordings_of_other_boots_without_collectives_are_refused_with_the_reason() {
    let [first, second] = two();
    let boot = |id: &str| with_info(&second, |info| info["boot_id"] = json!(id));
    let offset = |by: i64| {
        with_info(&second, |info| {
            info.as_object_mut().unwrap().remove("boot_id");
            info["utc_offset_ns"] = json!(info["utc_offset_ns"].as_i64().unwrap() + by);
        })
    };
    let old = with_info(&second, |info| {
        info.as_object_mut()
            .unwrap()
            .retain(|name, _| name != "boot_id" && name != "utc_offset_ns");
    });
    let merged = |second: Recording| Profile::from_recordings([first.clone(), second]);
    const SEVERAL: &str = "the machine of process 200 shares 0 with another one and needs 4";
    for (other, why) in [
        (boot("another"), SEVERAL),
        (offset(11_000_000_000), SEVERAL),
        (offset(-11_000_000_000), SEVERAL),
        (old, "does not contain when its machine started"),
    ] {
        let error = merged(other).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    // An adjusted clock is no other boot.
    assert_eq!(merged(offset(9_000_000_000)).unwrap().processes().count(), 2);
    let none = Profile::from_recordings([]).unwrap_err().to_string();
    assert!(none.contains("no recording"), "{none}");
}

#[test]
fn processes_with_equal_ids_remain_distinct() {
    let [first, second] = two();
    let merged = [as_process(&first, 7), as_process(&second, 7)];
    let profile = Profile::from_recordings(merged).unwrap();
    let processes: Vec<_> = profile.processes().map(|process| process.to_string()).collect();
    assert_eq!(processes, ["process 7", "process 7 (here 4194305)"]);
    let kernels = |id| profile.query().process(id).kernels().count();
    assert_eq!([kernels(7), kernels(4_194_305)], [3, 6]);
}

#[test]
fn one_recording_is_a_profile_of_one_process() {
    let [first, _] = two();
    let alone = Profile::from_recording(first.clone());
    let merged = Profile::from_recordings([first]).unwrap();
    assert_eq!(merged.to_string(), alone.to_string());
    assert_eq!((merged.totals(), merged.health()), (alone.totals(), alone.health()));
    assert_eq!(merged.processes().count(), 1);
}

#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn thousand_recordings_take_time_in_proportion() {
    let small = recording(|fake| {
        let _range = range("step");
        for stream in 0..20 {
            fake.launch(Work::kernel(c"work").on_stream(stream));
        }
    });
    let time = |count: u32| {
        let recordings: Vec<_> = (1..=count).map(|id| as_process(&small, id)).collect();
        let begun = Instant::now();
        let profile = Profile::from_recordings(recordings).unwrap();
        let took = begun.elapsed();
        assert_eq!(profile.processes().count(), count as usize);
        assert_eq!(profile.range("step").unwrap().kernels(), u64::from(20 * count));
        assert!(profile.to_string().contains(&format!("({} other processes)", count - 64)));
        took
    };
    let (few, many) = (time(100).max(Duration::from_millis(1)), time(1_000));
    assert!(many < 60 * few, "100 recordings take {few:?}, 1,000 take {many:?}");
}
