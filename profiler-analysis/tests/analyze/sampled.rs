//! What samplers saw, in the formats of other tools: each value from its time on, gaps and ends as what they are.

use crate::formats::{export, json};
use crate::html::json_of;
use crate::{perfetto, quickstart};
use std::collections::BTreeMap;
use std::time::Duration;

use perfetto::Trace;
use profiler_analysis::Format;
use profiler_analysis::formats::Export;
use profiler_analysis::prelude::*;
use profiler_core::Profile;
use profiler_core::series::{Failure, FailureCause, Kind, Metric, Series, Source, Unit};
use serde_json::Value;
use test_support::sampled;
use test_support::sampled::{COUNTED, LONG, counted, sampled};

type Values = Vec<(u64, f64)>;
type Segments = Vec<(u64, u64, f64)>;

fn perfetto(profile: &Profile, format: impl Into<Export>) -> Trace {
    perfetto::read(&export(profile, format))
}

/// When the first sample began.
fn start(profile: &Profile) -> u64 {
    let track = profile.track(0, sampled::READ).unwrap();
    track.samples().next().unwrap().start.as_nanos() as u64
}

/// How busy device 0 was, and the bytes a second that it read, as a viewer is to show them.
fn expected(profile: &Profile) -> (Values, Values) {
    let (mut active, mut read) = (Vec::new(), Vec::new());
    let start = start(profile);
    for i in 0..COUNTED {
        let (at, busy, bytes) = counted(i);
        let at = start + at;
        if i == 60 {
            let end = start + counted(59).0 + LONG;
            active.push((end, 0.0));
            read.push((end, 0.0));
        }
        active.push((at, if busy.is_nan() { 0.0 } else { busy }));
        read.push((at, bytes * 1e9 / LONG as f64));
    }
    let end = start + counted(COUNTED - 1).0 + LONG;
    active.push((end, 0.0));
    read.push((end, 0.0));
    (active, read)
}

/// The area below a line in steps.
fn area(values: &[(u64, f64)]) -> f64 {
    values.windows(2).map(|pair| pair[0].1 * (pair[1].0 - pair[0].0) as f64).sum()
}

#[test]
fn perfetto_has_every_sample_at_its_time() {
    let profile = sampled();
    let trace = perfetto(&profile, Format::Perfetto);
    let (active, read) = expected(&profile);
    let at = start(&profile);
    let of = |name: &str| {
        let found = trace.reals.keys().find(|key| key.starts_with("GPU 0") && key.ends_with(name));
        trace.reals[found.unwrap_or_else(|| panic!("{name}: {:?}", trace.reals.keys()))].clone()
    };
    assert_eq!(of(&format!("/ SM active ({})", sampled::ACTIVE)), active);
    assert_eq!(of("/ DRAM read"), read);
    assert_eq!(trace.reals["GPU 1 / SM active"], active, "of a device on which nothing ran");
    // States are written where they change.
    assert_eq!(of("/ SM clock"), [(at, 1_980e6), (at + 40_000, 1_200e6), (at + 100_000, 0.0)]);
    assert_eq!(of("/ Clock event reasons"), [(at, 0.0), (at + 40_000, 4.0), (at + 100_000, 0.0)]);
    assert_eq!(of("/ SM active (nvml__utilization_gpu)")[..2], [(at, 0.0), (at + 10_000, 1.0)]);
    let units = |name: &str| trace.units[&format!("GPU 1 / {name}")].clone();
    assert_eq!([units("SM active"), units("DRAM read")], ["%", "B/s"]);
    assert_eq!(trace.reals.len(), 8, "{:?}", trace.reals.keys());
}

/// By process and name, with the name of the value.
fn counters(trace: &Value) -> BTreeMap<(u64, String), Values> {
    let mut found = BTreeMap::<_, Values>::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        if event["ph"] != "C" {
            continue;
        }
        let [(unit, value)] = event["args"].as_object().unwrap().iter().collect::<Vec<_>>()[..]
        else {
            panic!("{event}")
        };
        let name = format!("{} {unit}", event["name"].as_str().unwrap());
        let at = (event["ts"].as_f64().unwrap() * 1e3).round() as u64;
        let key = (event["pid"].as_u64().unwrap(), name);
        found.entry(key).or_default().push((at, value.as_f64().unwrap()));
    }
    found
}

#[test]
fn chrome_and_kineto_have_every_sample_at_its_time() {
    let profile = sampled();
    let (active, read) = expected(&profile);
    let at = start(&profile);
    for (format, first) in [(Format::Chrome, 1_000_001), (Format::Kineto, 0)] {
        let trace = json(&profile, format);
        let found = counters(&trace);
        let of = |device: u64, name: &str| found[&(first + device, name.to_owned())].clone();
        assert_eq!(of(0, &format!("SM active ({}) %", sampled::ACTIVE)), active);
        assert_eq!(of(0, "DRAM read B/s"), read);
        assert_eq!(of(1, "SM active %"), active);
        assert_eq!(
            of(0, "SM clock Hz"),
            [(at, 1_980e6), (at + 40_000, 1_200e6), (at + 100_000, 0.0)]
        );
        assert_eq!(of(0, "Power W")[..2], [(at, 400.5), (at + 10_000, 400.5)]);
        let names: Vec<&str> = trace["traceEvents"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["name"] == "process_name")
            .map(|event| event["args"]["name"].as_str().unwrap())
            .collect();
        assert!(names.contains(&"GPU 1"), "{names:?}");
    }
}

#[test]
fn trace_names_missing_samples() {
    let profile = sampled();
    let chrome = json(&profile, Format::Chrome);
    let said = &chrome["otherData"];
    assert_eq!(said["not sampled of GPU 0 (hardware counters)"], "1 gaps, 7.000 us in total");
    let failed = "counters are for administrators: ask yours";
    assert_eq!(said["not sampled of GPU 2 (hardware counters)"], failed);
    assert!(said.get("not sampled of GPU 0 (NVML)").is_none());
    let thinned = "sampled tracks are thinned out to values";
    assert!(said.get(thinned).is_none());
    let few = json(&profile, Export::new(Format::Kineto).samples(99));
    assert_eq!(few["otherData"][thinned], 99);
    let trace = perfetto(&profile, Format::Perfetto);
    let recording = trace.slices.iter().find(|slice| slice.category == "recording").unwrap();
    assert_eq!(recording.args["not sampled of GPU 2 (hardware counters)"], failed);
}

#[test]
fn lines_of_json_have_the_sums() {
    let profile = sampled();
    let lines: Vec<Value> =
        profile.json_lines().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [step, inner, last] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&step["path"], &inner["path"]), (&"step".into(), &"step/inner".into()));
    for (line, node) in [step, inner].into_iter().zip(profile.walk()) {
        // On a busy machine the inner ones come after the samples.
        let said = line["sampled"].as_array().cloned().unwrap_or_default();
        let means: Vec<_> =
            profile.tracks().filter_map(|track| Some((track, node.1.mean(&track)?))).collect();
        assert_eq!(said.len(), means.len());
        assert!(means.len() >= 4 || line == inner, "{means:?}");
        for (said, (track, mean)) in said.iter().zip(means) {
            assert_eq!((&said["device"], &said["name"]), (&0.into(), &track.name().into()));
            // Text of a number is read to the last bit but one.
            let said_mean = said["mean"].as_f64().unwrap();
            assert!((said_mean - mean.value).abs() <= 1e-12 * mean.value.abs(), "{said} {mean:?}");
            assert_eq!(said["samples"], mean.samples);
            assert_eq!(said["covered_ns"], mean.covered.as_nanos() as u64);
        }
    }
    let tracks = last["tracks"].as_array().unwrap();
    let of = |name: &str| tracks.iter().find(|track| track["name"] == name).unwrap();
    let active = of(sampled::ACTIVE);
    // 12 times 0 to 87.5, 0 to 37.5 once more, and not the 25 of the one that is not known.
    assert!((active["mean"].as_f64().unwrap() - 4250.0 / 99.0).abs() < 1e-9, "{active}");
    assert_eq!(active["samples"], 99);
    let percentiles = ["median", "p95", "min", "max"].map(|name| active[name].as_f64().unwrap());
    assert_eq!(percentiles, [37.5, 87.5, 0.0, 87.5]);
    assert_eq!(
        (&active["gaps"], &active["gap_ns"], &active["total"]),
        (&1.into(), &7_000.into(), &Value::Null)
    );
    let read = of(sampled::READ);
    assert_eq!((read["total"].as_f64(), &read["total_unit"]), (Some(4_950_000.0), &"bytes".into()));
    assert_eq!((read["mean"].as_f64(), &read["unit"]), (Some(49.5e9), &"bytes_per_second".into()));
    assert_eq!(of("nvml__clock_event_reasons")["nonzero_percent"], 60.0);
    let failures: Vec<&Value> =
        last["samplers"].as_array().unwrap().iter().map(|one| &one["failure"]["cause"]).collect();
    assert_eq!(failures, [&Value::Null, &Value::Null, &Value::Null, &"permission".into()]);
    let plain = quickstart().json_lines();
    assert!(!plain.contains("sampled") && !plain.contains("tracks"), "nothing where nothing was");
}

/// The columns of a track on the page, as start, end and value.
fn on_page(profile: &Profile) -> (Value, Vec<Segments>, usize) {
    let page = profile.to_html();
    let data: Value = serde_json::from_str(json_of(&page)).unwrap();
    let numbers = |column: &Value| -> Vec<u64> {
        column.as_array().unwrap().iter().map(|value| value.as_u64().unwrap()).collect()
    };
    let of = |track: &Value| {
        let times = &data["track_times"][track["times"].as_u64().unwrap() as usize];
        let mut at = 0;
        let starts: Vec<u64> = numbers(&times["start_delta"])
            .iter()
            .map(|delta| {
                at += delta;
                at
            })
            .collect();
        let next = starts.iter().skip(1).copied().chain(times["end"].as_u64());
        let mut ends: Vec<u64> = next.collect();
        for gap in times["gaps"].as_array().unwrap() {
            ends[gap[0].as_u64().unwrap() as usize] = gap[1].as_u64().unwrap();
        }
        let values = track["value"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap());
        starts
            .into_iter()
            .zip(ends)
            .zip(values)
            .map(|((start, end), value)| (start, end, value))
            .collect()
    };
    let tracks = data["tracks"].as_array().unwrap().iter().map(of).collect();
    (data.clone(), tracks, page.len())
}

#[test]
fn the_page_has_every_sample_at_its_time() {
    let profile = sampled();
    let (data, tracks, _) = on_page(&profile);
    let start = start(&profile);
    let known = (0..COUNTED).map(counted).filter(|(_, active, _)| !active.is_nan());
    let active: Vec<_> =
        known.map(|(at, active, _)| (start + at, start + at + LONG, active)).collect();
    assert_eq!(tracks[0], active);
    let read =
        (0..COUNTED).map(counted).map(|(at, _, read)| (start + at, start + at + LONG, read * 1e6));
    assert_eq!(tracks[1], read.collect::<Vec<_>>());
    assert_eq!(
        tracks[2],
        [(start, start + 40_000, 1_980e6), (start + 40_000, start + 100_000, 1_200e6)]
    );
    assert_eq!(
        (tracks.len(), data["track_times"].as_array().unwrap().len()),
        (8, 4),
        "{}",
        data["track_times"]
    );
    let node = &data["nodes"][0]["sampled"];
    assert_eq!(node[0][0], 0, "row of the track");
    let step = profile.walk().next().unwrap().1;
    let mean = step.mean(&profile.track(0, sampled::ACTIVE).unwrap()).unwrap();
    assert!((node[0][1].as_f64().unwrap() - mean.value).abs() < 1e-9, "{node}");
    assert_eq!(node[0][2], mean.samples);
}

#[test]
fn a_page_of_long_tracks_is_bounded() {
    let metric = |i: usize| {
        let label = format!("</script><img src=x> {i}");
        Metric::new(format!("metric_{i}"), label, Unit::Count, Kind::Total)
    };
    let mut series =
        Series::new(0, Source::Counters, Duration::from_nanos(100), (0..3).map(metric).collect());
    let recording = sampled::recorded();
    let start = recording.windows_ns()[0].0;
    for i in 0..45_000u64 {
        let values = [i as f64, (i % 7) as f64, 1.0];
        series.push(start + i * 100, start + i * 100 + 100, &values).unwrap();
    }
    let bare = on_page(&Profile::from_recording(recording.clone())).2;
    let profile = Profile::from_recording(recording.with_series(series));
    let (data, tracks, length) = on_page(&profile);
    assert!(length - bare < 3 * 20_000 * 30, "{} bytes more", length - bare);
    let last = &data["tracks"][8];
    assert_eq!(
        (&last["label"], &last["count"]),
        (&"</script><img src=x> 0".into(), &45_000.into())
    );
    for (track, total) in tracks[8..].iter().zip([45_000.0 * 44_999.0 / 2.0, 134_994.0, 45_000.0]) {
        assert_eq!(track.len(), 15_000);
        let sum: f64 =
            track.iter().map(|(start, end, value)| value * (end - start) as f64 / 1e9).sum();
        assert!((sum / total - 1.0).abs() < 1e-6, "{sum} of {total}");
    }
    let [least, most] = ["least", "most"].map(|name| data["tracks"][9][name][0].as_f64().unwrap());
    assert_eq!((least, most), (0.0, 2e7), "0, 1 and 2 in 100 ns each");
}

/// All that is made of samples, as JSON where it is.
fn all_of(profile: &Profile) -> Value {
    let (sums, of_ranges) = (profile.track_sums(), profile.range_track_sums());
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    for text in [sums.json(), of_ranges.json()] {
        read(&text);
    }
    profile.json_lines().lines().for_each(|line| drop(read(line)));
    let _ = (format!("{profile} {sums} {of_ranges}"), sums.csv(), of_ranges.csv());
    for format in [Format::Chrome, Format::Kineto] {
        let _: Value = serde_json::from_slice(&export(profile, format)).unwrap();
    }
    perfetto(profile, Format::Perfetto);
    on_page(profile).0
}

/// From the first of the samples on, with one second of one metric.
fn second(device: u32, metric: Metric, value: f64) -> Series {
    let mut series =
        Series::new(device, Source::Counters, Duration::from_nanos(1_000_000_000), vec![metric]);
    let start = sampled::recorded().windows_ns()[0].0;
    series.push(start - 1_000_000_000, start + 1_000_000_000, &[value]).unwrap();
    series
}

#[test]
fn report_has_a_line_per_series_for_any_name() {
    let hostile =
        Metric::new("name", format!("\x1b[31m\nred{}", "x".repeat(100)), Unit::Count, Kind::Mean);
    let failure = Failure::new(FailureCause::Ended, "ended\r\x07early");
    let mut series = second(3, hostile, 1500.0).with_failure(failure);
    series = series.with_missing(vec!["m\nissing".to_owned()]).with_losses(
        5,
        6,
        7,
        Duration::from_micros(8),
    );
    let used = Metric::new("used", "used", Unit::Bytes, Kind::State);
    let recording = sampled::recorded().with_series(series).with_series(second(3, used, 2.1e9));
    let text = Profile::from_recording(recording).to_string();
    let control = text.find(|char: char| char.is_control() && char != '\n');
    assert_eq!(control, None, "{text:?}");
    let lines: Vec<&str> =
        text.lines().filter(|line| line.starts_with("samples of GPU 3")).collect();
    let x = "x".repeat(100);
    let [first, second] = lines[..] else { panic!("{text}") };
    assert!(
        first.starts_with("samples of GPU 3 (hardware counters): 1 of 1.000 s, \u{fffd}[31m redxx"),
        "{first}"
    );
    assert!(
        !first.contains(&x)
            && first.contains("xx 1.500 k; ended \u{fffd}early; not to be had: m issing; "),
        "{first}"
    );
    let lost = "7 gaps, 8.000 us in total; 5 samples went for newer ones; the device had no room for samples 6 times";
    assert!(first.ends_with(lost), "{first}");
    assert_eq!(second, "samples of GPU 3 (hardware counters): 1 of 1.000 s, used 1.956 GiB");
}

#[test]
fn the_page_has_of_each_track_its_own_numbers() {
    let metric = || Metric::new(sampled::ACTIVE, "SM active", Unit::Percent, Kind::Mean);
    let recording = sampled::recorded().with_series(second(0, metric(), 3.0));
    let profile = Profile::from_recording(recording.with_series(second(0, metric(), 9.0)));
    let tracks = on_page(&profile).0["tracks"].as_array().unwrap().clone();
    let of = |row: usize| (tracks[row]["mean"].as_f64(), tracks[row]["count"].as_u64());
    assert_eq!([of(8), of(9)], [(Some(3.0), Some(1)), (Some(9.0), Some(1))]);
}

#[test]
fn values_without_end_are_not_known() {
    let metrics = || {
        vec![
            Metric::new("huge", "huge", Unit::Bytes, Kind::Total),
            Metric::new("some", "some", Unit::Percent, Kind::Mean),
        ]
    };
    let start = sampled::recorded().windows_ns()[0].0;
    let row = |series: &mut Series, at: u64, values: &[f64]| {
        series.push(start + at, start + at + 1_000_000_000, values).unwrap();
    };
    let mut series =
        Series::new(0, Source::Counters, Duration::from_nanos(1_000_000_000), metrics());
    row(&mut series, 0, &[f64::INFINITY, 7.0]);
    row(&mut series, 1_000_000_000, &[1e308, f64::NEG_INFINITY]);
    row(&mut series, 2_000_000_000, &[1e308, 1e308]);
    row(&mut series, 3_000_000_000, &[1e308, 9.0]);
    let recording = sampled::recorded().with_series(series);
    let profile = Profile::from_recording(recording);
    let all = (std::time::Duration::ZERO, std::time::Duration::MAX);
    let huge = profile.track(0, "huge").unwrap();
    assert_eq!((huge.sum(all.0, all.1), huge.mean(all.0, all.1)), (None, None));
    let page = all_of(&profile);
    let text = page["tracks"].to_string();
    assert!(text.contains("[7.0,3.4028235e+38,9.0]"), "{text}");
    for track in page["tracks"].as_array().unwrap() {
        let values = track["value"].as_array().unwrap();
        assert!(values.iter().all(Value::is_number), "{text}");
    }
    let nodes = page["nodes"].as_array().unwrap().iter();
    let means = nodes.filter_map(|node| node["sampled"].as_array()).flatten();
    assert!(means.map(|mean| &mean[1]).all(Value::is_number));
}

#[test]
fn rows_as_long_as_time_are_added_up() {
    let metric = Metric::new("busy", "busy", Unit::Percent, Kind::Mean);
    let mut series = Series::new(0, Source::Counters, Duration::from_nanos(1_000), vec![metric]);
    series.push(0, u64::MAX - 1, &[1.0]).unwrap();
    series.push(1, u64::MAX, &[3.0]).unwrap();
    series.push(u64::MAX - 1, u64::MAX, &[5.0]).unwrap();
    let profile = Profile::from_recording(sampled::recorded().with_series(series));
    let sums = profile.track_sums();
    let sums = serde_json::to_value(sums).unwrap();
    let sum = sums.as_array().unwrap().iter().find(|sum| sum["name"] == "busy").unwrap();
    assert_eq!(sum["covered_ns"], u64::MAX);
    assert_eq!(["min", "max", "median"].map(|name| sum[name].as_f64().unwrap()), [1.0, 5.0, 1.0]);
    let whole = profile.track(0, "busy").unwrap();
    let whole = whole.mean(std::time::Duration::ZERO, std::time::Duration::MAX).unwrap();
    assert_eq!(whole.covered.as_nanos(), u128::from(u64::MAX));
    all_of(&profile);
}

#[cfg(feature = "nsys")]
#[test]
fn counter_values_round_trip_through_a_capture() {
    let profile = sampled();
    let back = crate::rewritten(&profile);
    assert_eq!(back.health().losses.unknown_records, 0);
    let values = |profile: &Profile| -> Vec<_> {
        let counted = profile.tracks().filter(|track| track.source() == Source::Counters);
        let values = counted.map(|track| {
            let known = track.samples().filter(|sample| !sample.value.is_nan());
            let samples: Vec<_> = known.map(|sample| (sample.start, sample.value)).collect();
            (track.device(), track.label().to_owned(), track.unit(), track.kind(), samples)
        });
        values.collect()
    };
    let all = values(&profile);
    assert!(all.iter().any(|(.., samples)| samples.len() > 50));
    assert_eq!(values(&back), all);
    assert!(
        back.tracks().all(|track| track.source() == Source::Counters),
        "NVML has no place there"
    );
}

/// The tables as nsys 2025.3 makes them: values from their timestamp on, devices by nsys's own numbers.
#[cfg(feature = "nsys")]
#[test]
fn gpu_metrics_of_a_capture_are_tracks() {
    let path = std::env::temp_dir().join(format!("gpu-metrics-{}.sqlite", std::process::id()));
    Profile::from_recording(sampled::bare()).write_nsys(&path, |_, _| ()).unwrap();
    let bare = profiler_analysis::nsys::read(&path).unwrap();
    assert_eq!((bare.tracks().count(), bare.health().losses.unknown_records), (0, 0));
    let capture = rusqlite::Connection::open(&path).unwrap();
    const GPU_1: i64 = 281_479_271_677_953;
    capture
        .execute_batch(&format!(
            "DELETE FROM TARGET_INFO_CUDA_DEVICE;
             INSERT INTO TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid) VALUES (0, 1, 7), (1, 0, 7);
             CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER NOT NULL, sourceId INTEGER NOT NULL, typeName TEXT NOT NULL,
                 metricId INTEGER NOT NULL, metricName TEXT NOT NULL);
             INSERT INTO TARGET_INFO_GPU_METRICS VALUES ({GPU_1}, 1, '', 0, 'GPC Clock Frequency [MHz]'),
                 ({GPU_1}, 1, '', 3, 'SMs Active [Throughput %]');
             CREATE TABLE GPU_METRICS (rawTimestamp INTEGER NOT NULL, timestamp INTEGER NOT NULL, typeId INTEGER NOT NULL,
                 metricId INTEGER NOT NULL, value INTEGER NOT NULL);"
        ))
        .unwrap();
    let mut insert =
        capture.prepare("INSERT INTO GPU_METRICS VALUES (?1, ?1, ?2, ?3, ?4)").unwrap();
    // One before the start, ten, two that are missing, and ten more; one metric of one of them is not there.
    for i in (-1..10).chain(12..22) {
        insert.execute((i * 1_000, GPU_1, 0, 1_980_000_000)).unwrap();
        if i != 5 {
            insert.execute((i * 1_000, GPU_1, 3, i)).unwrap();
        }
    }
    insert.execute((3_000, GPU_1, 99, 1)).unwrap();
    drop(insert);
    drop(capture);
    let profile = profiler_analysis::nsys::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(profile.health().losses.unknown_records, 1, "a metric that nobody names");
    let tracks: Vec<_> =
        profile.tracks().map(|track| (track.device(), track.label(), track.unit())).collect();
    assert_eq!(tracks, [(0, "GPC Clock Frequency", Unit::Hertz), (0, "SMs Active", Unit::Percent)]);
    let active = profile.track(0, "SMs Active [Throughput %]").unwrap();
    let samples: Vec<_> = active
        .samples()
        .filter(|sample| !sample.value.is_nan())
        .map(|sample| (sample.start.as_nanos() as u64, sample.end.as_nanos() as u64, sample.value))
        .collect();
    let expected = (0..10).chain(12..22).filter(|i| *i != 5);
    assert_eq!(
        samples,
        expected.map(|i| (i * 1_000, i * 1_000 + 1_000, i as f64)).collect::<Vec<_>>()
    );
    assert_eq!(
        (active.series().interval(), active.series().gaps()),
        (Duration::from_micros(1), (1, Duration::from_micros(2)))
    );
}

#[test]
fn a_track_that_is_thinned_out_has_the_same_area() {
    let profile = sampled();
    let (active, read) = expected(&profile);
    let whole = perfetto(&profile, Export::new(Format::Perfetto).samples(usize::MAX));
    assert_eq!(whole.reals["GPU 1 / DRAM read"], read);
    for most in [1, 3, 20, 99] {
        let trace = perfetto(&profile, Export::new(Format::Perfetto).samples(most));
        for (name, expected) in [("SM active", &active), ("DRAM read", &read)] {
            let values = &trace.reals[&format!("GPU 1 / {name}")];
            let shown = values.iter().filter(|(_, value)| *value != 0.0).count();
            assert!(shown <= most, "{shown} of {name} with {most}");
            assert!((area(values) / area(expected) - 1.0).abs() < 1e-9, "{name} with {most}");
        }
    }
}
