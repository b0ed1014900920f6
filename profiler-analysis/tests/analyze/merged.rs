//! Several processes as one profile in exports, reports and analyses.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::formats::{export, json};
use crate::html::data_of;
use crate::perfetto;
use fake_cupti::{Fake, Work};
use nvtx::range;
use profiler_analysis::Format;
use profiler_analysis::diagnosis::Part;
use profiler_analysis::prelude::*;
use profiler_analysis::reports::StatsReport;
use profiler_core::profile::Merger;
use profiler_core::{Profile, Recording};
use serde_json::{Value, json};
use test_support::processes::{recording, set_devices, with_info};

fn program(fake: &Fake) {
    nvtx::mark("begun");
    let request = nvtx::process_range("request");
    for _ in 0..20 {
        let _step = range("step");
        fake.launch(Work::host_to_device(1 << 20).taking_ns(30_000));
        fake.launch(Work::kernel(c"gemm").taking_ns(20_000));
        fake.launch(Work::kernel(c"relu").taking_ns(10_000).on_stream(9));
        fake.launch(Work::synchronize());
    }
    drop(request);
}

/// A process of its own on the GPU of this address, which it knows as 0.
pub(crate) fn rank(id: u32, address: &str) -> Recording {
    with_info(&recording(program), |info| {
        info["process_id"] = json!(id);
        set_devices(info, &[address]);
    })
}

pub(crate) fn merged(recordings: [Recording; 2]) -> Profile {
    let mut merger = Merger::new();
    for (rank, recording) in (0..).zip(recordings) {
        merger.add_process(recording, Some("train.py".to_owned()), Some(rank)).unwrap();
    }
    merger.finish().unwrap()
}

pub(crate) const A: &str = "0000:1b:00.0";
pub(crate) const B: &str = "0000:43:00.0";

/// Two ranks on one GPU.
fn on_one() -> Profile {
    merged([rank(7_100, A), rank(7_200, A)])
}

/// Two ranks on a GPU each.
fn on_two() -> Profile {
    merged([rank(7_100, A), rank(7_200, B)])
}

/// The names of processes and of their threads in a trace of events, by id.
fn named(events: &[Value]) -> (BTreeMap<u64, String>, BTreeMap<u64, Vec<String>>) {
    let (mut processes, mut threads) = (BTreeMap::new(), BTreeMap::<_, Vec<String>>::new());
    for event in events.iter().filter(|event| event["ph"] == "M") {
        let pid = event["pid"].as_u64().unwrap();
        let name = event["args"]["name"].as_str().map(str::to_owned);
        match event["name"].as_str().unwrap() {
            "process_name" => _ = processes.insert(pid, name.unwrap()),
            "thread_name" => threads.entry(pid).or_default().push(name.unwrap()),
            _ => {}
        }
    }
    (processes, threads)
}

#[test]
fn traces_of_events_have_a_process_for_each_process_and_each_device() {
    for (format, gpus) in [(Format::Chrome, [1_000_001, 1_000_002]), (Format::Kineto, [0, 1])] {
        let profile = on_two();
        let trace = json(&profile, format);
        let events = trace["traceEvents"].as_array().unwrap();
        let (processes, threads) = named(events);
        let pids: Vec<u64> = processes.keys().copied().collect();
        let mut expected = vec![7_100, 7_200, gpus[0], gpus[1]];
        expected.sort_unstable();
        assert_eq!(pids, expected, "{format}");
        assert_eq!(processes[&7_100], "rank 0, train.py, process 7100");
        assert!(threads[&7_100].len() == 1 && threads[&7_100] == threads[&7_200]);
        let count = |pid: u64, name: &str| {
            events
                .iter()
                .filter(|event| event["ph"] == "X" && event["pid"] == pid && event["name"] == name)
                .count()
        };
        for (pid, gpu) in [(7_100, gpus[0]), (7_200, gpus[1])] {
            // Kineto shows the range on the stream too.
            assert_eq!((count(pid, "step"), count(gpu, "gemm")), (20, 20));
        }
        // Arrows begin on the process that called, and end on its device.
        let ends = |ph: &str| {
            let arrows = events.iter().filter(|event| event["ph"] == ph);
            let end =
                |event: &Value| (event["id"].as_u64().unwrap(), event["pid"].as_u64().unwrap());
            arrows.map(end).collect::<BTreeMap<_, _>>()
        };
        let (begins, ends) = (ends("s"), ends("f"));
        assert_eq!(begins.len(), 2 * 60);
        let pairs: BTreeSet<_> = begins
            .iter()
            .map(|(id, pid)| {
                let mut pair = [*pid, ends[id]];
                pair.sort_unstable();
                pair
            })
            .collect();
        let mut expected = [[7_100, gpus[0]], [7_200, gpus[1]]];
        expected.iter_mut().for_each(|pair| pair.sort_unstable());
        assert_eq!(pairs, BTreeSet::from(expected), "{format}");
    }
}

#[test]
fn streams_of_two_processes_on_one_device_are_distinct() {
    let profile = on_one();
    for format in [Format::Chrome, Format::Kineto] {
        let trace = json(&profile, format);
        let (_, threads) = named(trace["traceEvents"].as_array().unwrap());
        let gpu = if format == Format::Chrome { 1_000_001 } else { 0 };
        // Overlapping operations have a lane more.
        let is_first = |name: &&String| name.starts_with("stream") && !name.ends_with(')');
        let streams: BTreeSet<_> = threads[&gpu].iter().filter(is_first).cloned().collect();
        let expected = [7, 9].into_iter().flat_map(|stream| {
            [7_100, 7_200].map(|process| format!("stream {stream} of process {process}"))
        });
        assert_eq!(streams, expected.collect(), "{format}");
    }
    let trace = perfetto::read(&export(&profile, Format::Perfetto));
    assert_eq!(trace.processes, [7_100, 7_200]);
    let names: Vec<_> = trace.tracks.values().map(|track| track.name.as_str()).collect();
    for name in ["stream 7 of process 7100", "stream 9 of process 7200"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert_eq!(trace.flows.len(), 2 * 60);
    assert!(trace.flows.values().all(|touched| touched.len() == 2));
    let steps: BTreeMap<_, usize> = trace.slices.iter().filter(|slice| slice.name == "step").fold(
        BTreeMap::new(),
        |mut counts, slice| {
            *counts.entry(slice.track).or_default() += 1;
            counts
        },
    );
    assert_eq!(steps.values().copied().collect::<Vec<_>>(), [20, 20]);
}

#[test]
fn page_has_the_threads_of_each_process() {
    let data = data_of(&on_one());
    let labels: Vec<_> =
        data["processes"].as_array().unwrap().iter().map(|row| row["label"].clone()).collect();
    assert_eq!(labels, ["rank 0, train.py, process 7100", "rank 1, train.py, process 7200"]);
    let threads = data["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 2);
    assert_eq!(threads[0]["id"], threads[1]["id"]);
    assert_eq!([&threads[0]["process"], &threads[1]["process"]], [7_100, 7_200]);
    assert_eq!(data["streams"].as_array().unwrap().len(), 4);
    let of_ranges = data["ranges"]["thread"].as_array().unwrap();
    assert_eq!(of_ranges.iter().filter(|thread| **thread == 1).count(), 20);
    let alone = Profile::from_recording(rank(7_100, A)).to_html();
    assert!(alone.contains(r#""processes":[]"#));
}

#[test]
fn reports_have_the_process_of_each_row() {
    let profile = on_one();
    let expected = |rows| BTreeMap::from([(7_100, rows), (7_200, rows)]);
    let of = |report| {
        let rows = serde_json::to_value(profile.stats(report)).unwrap();
        let pids = rows.as_array().unwrap().iter().map(|row| row["pid"].as_u64().unwrap());
        pids.fold(BTreeMap::new(), |mut counts, pid| {
            *counts.entry(pid).or_default() += 1;
            counts
        })
    };
    assert_eq!(of(StatsReport::NvtxPushpopTrace), expected(20));
    assert_eq!(of(StatsReport::CudaApiTrace), expected(80));
    assert_eq!(of(StatsReport::CudaKernExecTrace), expected(40));
}

/// The clock of a device is that of the processes that use it: the other one runs later.
#[test]
fn clock_of_a_diagnosis_counts_no_time_of_other_processes() {
    let recordings = [rank(7_100, A), rank(7_200, B)];
    let alone = recordings.clone().map(|part| Profile::from_recording(part).diagnose());
    let merged = Profile::from_recordings(recordings).unwrap();
    let both = merged.diagnose();
    let clocks = alone.each_ref().map(|of| of.verdict().clock);
    let clock = both.verdict().clock;
    assert_eq!(both.verdict().devices, 2);
    assert!(
        clock.abs_diff((clocks[0] + clocks[1]) / 2) <= Duration::from_nanos(1),
        "{clock:?} {clocks:?}"
    );
    assert!(clock < merged.duration() * 3 / 4, "{clock:?} of {:?}", merged.duration());
    for part in Part::ALL {
        let sum = alone.iter().map(|of| of.verdict().time_of(part)).sum::<Duration>();
        let difference = both.verdict().time_of(part).abs_diff(sum / 2);
        assert!(difference <= Duration::from_nanos(2), "{part:?}");
    }
    // On one GPU the clock has both, and nothing between them.
    let recordings = [rank(7_100, A), rank(7_200, A)];
    let alone = recordings.clone().map(|part| Profile::from_recording(part).diagnose());
    let both = Profile::from_recordings(recordings).unwrap().diagnose();
    let sum = alone.iter().map(|of| of.verdict().clock).sum::<Duration>();
    assert_eq!((both.verdict().devices, both.verdict().clock), (1, sum));
    let step = both.ranges().iter().find(|of| of.path.as_deref() == Some("step")).unwrap();
    // Without slow first ones.
    let steps = alone.iter().map(|of| {
        let step = of.ranges().iter().find(|of| of.path.as_deref() == Some("step"));
        (step.unwrap().instances, step.unwrap().clock)
    });
    let (instances, clocks): (Vec<u64>, Vec<Duration>) = steps.unzip();
    assert_eq!((step.instances, step.clock), (instances.iter().sum(), clocks.iter().sum()));
}

#[test]
fn period_of_a_step_matches_its_process() {
    let profile = on_one();
    let steps = profile.steps("step");
    let ends =
        steps.iter().filter(|step| step.period().is_none()).map(|step| step.range().process_id());
    assert_eq!(ends.collect::<Vec<_>>(), [7_100, 7_200]);
    let alone: Vec<_> = profile
        .processes()
        .map(|process| {
            let of_process = steps.iter().filter(|step| step.range().process_id() == process.id());
            of_process.filter_map(|step| step.period()).max().unwrap()
        })
        .collect();
    assert!(alone.iter().all(|period| *period < profile.duration() / 2), "{alone:?}");
}

#[test]
fn waits_and_budgets_keep_processes_apart() {
    use profiler_core::{at_most, expect};
    let profile = on_one();
    let waits = profile.waits();
    let names: BTreeSet<_> = waits.iter().map(|wait| wait.target().to_string()).collect();
    let expected = [7_100, 7_200].map(|id| format!("stream 7 of context 1 of process {id}"));
    assert_eq!(names, BTreeSet::from(expected));
    // Two streams of each process.
    expect(&profile).streams(at_most(4)).check().unwrap();
    let error = expect(&profile).streams(at_most(3)).check().unwrap_err().to_string();
    assert!(error.contains("4"), "{error}");
}

#[test]
fn comparison_of_a_merged_run_with_itself_finds_no_change() {
    let profile = on_two();
    let comparison = profiler_analysis::compare(&profile, &profile);
    assert_eq!(comparison.wall().change_ns, 0.0);
    let before = comparison.wall().before();
    assert!(before > Duration::ZERO);
    let session = profile.duration();
    assert!(before <= session.mul_f64(1.01), "{before:?} of {session:?}");
}
