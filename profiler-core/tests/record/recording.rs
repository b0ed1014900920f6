//! A recording is the raw logs and nothing else: it reads back the same, and every byte counts. `recording_format.rs` tests
//! damage and limits.

use std::time::Duration;

use cupti::Record;
use cupti::record::OverheadKind;
use cupti::sys::generated::overhead;
use cupti::{ActivityKind, Attribute, Config, GraphEventKind, Version};
use fake_cupti::{Fake, Work, Written};
use profiler_core::series::{Kind, Metric, Series, Source, Unit};
use profiler_core::{Profile, Profiler, Recording};
use test_support::frames;

fn recorded() -> Profile {
    let version = Version(130_401);
    let fake = Fake::builder().version(version.0).build();
    // A record with bytes beside it, which CUPTI leaves to its client.
    let overhead = Written::new(ActivityKind::OVERHEAD, version).unwrap();
    let overhead = overhead
        .set(overhead::OVERHEAD_KIND, OverheadKind::COMMAND_BUFFER_FULL.0)
        .leave(overhead::OVERHEAD_DATA, [7; 12]);
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let ((), profile) = profiler
        .record(|| {
            fake.write(&overhead);
            for i in 0..3 {
                let _batch = nvtx::range("batch");
                let _named = nvtx::range(&format!("größe {i}"));
                fake.launch(Work::kernel(c"_ZN4gemmIfEEvv").taking_ns(1_000 + i));
                fake.launch(Work::host_to_device(1 << 20));
                fake.launch(Work::memset(77));
                fake.launch(Work::synchronize());
            }
        })
        .unwrap();
    let recording = profile.recording().unwrap().clone();
    let start_ns = recording.windows_ns()[0].0;
    let metric = Metric::new("dram__bytes_read.sum", "DRAM read", Unit::Bytes, Kind::Total);
    let mut series = Series::new(0, Source::Counters, Duration::from_nanos(100), vec![metric]);
    for row in 0..20 {
        series.push(start_ns + 100 * row, start_ns + 100 * (row + 1), &[row as f64]).unwrap();
    }
    Profile::from_recording(recording.with_series(series))
}

#[test]
fn a_recording_reads_back_the_same() {
    let profile = recorded();
    let bytes = profile.recording().unwrap().to_bytes();
    let back = Profile::from_bytes(&bytes).unwrap();
    assert_eq!(back.recording(), profile.recording());
    assert_eq!(back.to_string(), profile.to_string());
    assert_eq!(back.recording().unwrap().to_bytes(), bytes);

    let path = std::env::temp_dir().join(format!("gpuprof-test-{}.gpuprof", std::process::id()));
    profile.save(&path).unwrap();
    let loaded = Profile::load(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(Recording::load(&path).unwrap().is_truncated());
    assert!(!Profile::load(&path).unwrap().health().is_complete());
    std::fs::write(&path, &bytes[..20]).unwrap();
    let error = Profile::load(&path).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with(path.to_str().unwrap()) && text.contains("cut short"), "{text}");
    assert!(error.is_format());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(loaded.recording(), profile.recording());
    let error = Profile::load(&path).unwrap_err();
    assert!(error.to_string().contains(path.to_str().unwrap()) && !error.is_format(), "{error}");
}

#[test]
fn a_changed_byte_of_a_kernel_record_changes_the_report() {
    let profile = recorded();
    let bytes = profile.recording().unwrap().to_bytes();
    // The end of the longest kernel: 1,002 ns after its start, found by its duration.
    let records = profile.recording().unwrap().records();
    let span = records
        .iter()
        .filter_map(|record| match record {
            Record::Kernel(kernel) => Some(kernel.span),
            _ => None,
        })
        .max_by_key(|span| span.end_ns - span.start_ns)
        .unwrap();
    let needle = [span.start_ns.to_le_bytes(), span.end_ns.to_le_bytes()].concat();
    let at = bytes.windows(16).position(|window| window == needle).unwrap();
    let mut changed = bytes.clone();
    changed[at + 8] ^= 0x40;
    let error = Profile::from_bytes(&changed).unwrap_err().to_string();
    assert!(error.contains("\"RECS\", is damaged: the checksum"), "{error}");
    // With the checksum of the changed content.
    let mut frames = frames::frames(&bytes);
    let content = &mut frames.iter_mut().find(|frame| frame.0 == *b"RECS").unwrap().1;
    let at = content.windows(16).position(|window| window == needle).unwrap();
    content[at + 8] ^= 0x40;
    let changed = Profile::from_bytes(&frames::file(&frames)).unwrap();
    assert_ne!(changed.to_string(), profile.to_string());
}

/// In formats 1 and 2. A prefix of a newer file is a truncated recording: see `recording_format.rs`.
#[test]
fn every_truncation_of_an_old_file_is_an_error() {
    for file in ["format-1.gpuprof", "roofline-h200.gpuprof"] {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/recordings");
        let bytes = std::fs::read(format!("{folder}/{file}")).unwrap();
        for length in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
            let error = Recording::from_bytes(&bytes[..length]).unwrap_err();
            assert!(error.is_format(), "{length}: {error}");
            if length >= 8 {
                assert!(error.to_string().contains("cut short"), "{length}: {error}");
            }
        }
    }
}

#[test]
fn other_files_and_newer_formats_are_identified() {
    let error = Recording::from_bytes(b"SQLite format 3\0 and so on").unwrap_err();
    assert!(error.to_string().contains("does not begin as one"), "{error}");
    assert!(Recording::from_bytes(b"").unwrap_err().to_string().contains("0 bytes"));
    let mut newer = recorded().recording().unwrap().to_bytes();
    newer[7] = 9;
    let error = Recording::from_bytes(&newer).unwrap_err();
    assert!(
        error.to_string().contains("format 9") && error.to_string().contains("newer"),
        "{error}"
    );
}

#[test]
fn a_frame_of_an_unknown_tag_is_skipped() {
    let bytes = recorded().recording().unwrap().to_bytes();
    let mut with_more = frames::frames(&bytes);
    with_more.insert(1, (*b"XTRA", b"12345".to_vec()));
    let with_more = frames::file(&with_more);
    assert_eq!(Recording::from_bytes(&with_more).unwrap().to_bytes(), bytes);
}

/// Numbers of a file may be any.
#[test]
fn losses_beyond_all_bounds_are_losses() {
    let bytes = recorded().recording().unwrap().to_bytes();
    for name in ["unreadable_bytes", "irregular", "dropped_by_cupti", "ranges", "pool_misses"] {
        let mut frames = frames::frames(&bytes);
        let state = &mut frames.iter_mut().find(|frame| frame.0 == *b"STAT").unwrap().1;
        let text = String::from_utf8(state.clone()).unwrap();
        let field = format!("\"{name}\":");
        assert!(text.contains(&format!("{field}0")), "{name}: {text}");
        let most = format!("{field}{}", u64::MAX);
        *state = text.replace(&format!("{field}0"), &most).into_bytes();
        // And something that is not understood, which is added.
        frames.insert(2, (*b"RECS", vec![0xff; 16]));
        let profile = Profile::from_bytes(&frames::file(&frames)).unwrap();
        assert!(name == "pool_misses" || !profile.health().is_complete(), "{name}");
    }
}

/// What they are searched in takes them to be in order.
#[test]
fn times_out_of_order_are_an_error() {
    let bytes = recorded().recording().unwrap().to_bytes();
    let read = |windows: &str| {
        let mut frames = frames::frames(&bytes);
        let state = &mut frames.iter_mut().find(|frame| frame.0 == *b"STAT").unwrap().1;
        let mut value: serde_json::Value = serde_json::from_slice(state).unwrap();
        value["windows_ns"] = serde_json::from_str(windows).unwrap();
        *state = serde_json::to_vec(&value).unwrap();
        Profile::from_bytes(&frames::file(&frames))
    };
    for good in ["[]", "[[5,5]]", "[[1,2],[2,3],[7,9]]"] {
        assert!(read(good).is_ok(), "{good}");
    }
    for bad in ["[[2,1]]", "[[3,4],[1,2]]", "[[1,3],[2,4]]", "[[1,9],[2,3],[10,11]]"] {
        let error = read(bad).unwrap_err();
        assert!(error.to_string().contains("not in order"), "{bad}: {error}");
    }
}

/// A session with all that a recording may hold beside records, driver calls and ranges.
fn recorded_in_full() -> Profile {
    let fake = Fake::new();
    let config = Config::new()
        .runtime_calls(true)
        .graph_events(true)
        .profiler_switch(true)
        .add_kind_if_known(ActivityKind::GREEN_CONTEXT)
        .attribute(Attribute::DeviceBufferLimit, 8);
    let profiler =
        Profiler::builder().library(fake.library().unwrap()).config(config).build().unwrap();
    let ((), profile) = profiler
        .record(|| {
            let _range = nvtx::range("all");
            fake.launch(Work::kernel(c"warm-up"));
            fake.profiler_start();
            fake.launch_through_runtime("cudaLaunchKernel", &Work::kernel(c"counts"));
            let mut graph = fake.graph();
            fake.capture_into(&mut graph, &Work::kernel(c"node"));
            let exec = fake.instantiate(&graph);
            fake.launch_exec(&exec);
            fake.profiler_stop();
            fake.launch(Work::kernel(c"too late"));
            fake.profiler_start();
        })
        .unwrap();
    profile
}

#[test]
fn only_work_switched_on_by_the_program_counts() {
    let profile = recorded_in_full();
    profile.health().assert_complete();
    let names: Vec<&str> = profile.kernels().map(|kernel| kernel.name()).collect();
    assert_eq!(names, ["counts", "node"]);
    assert_eq!(profile.range("all").unwrap().kernels(), 2);
    assert_eq!(profile.health().facts.calls_outside, 2);
    assert_eq!(profile.recording().unwrap().windows_ns().len(), 2);
}

#[test]
fn a_recording_holds_calls_graphs_windows_and_settings() {
    let profile = recorded_in_full();
    let back = Recording::from_bytes(&profile.recording().unwrap().to_bytes()).unwrap();
    assert_eq!(&back, profile.recording().unwrap());
    assert_eq!(back.runtime_calls()[0].calls[0].function.name(), "cudaLaunchKernel");
    let events = &back.graphs()[0].events;
    assert_eq!((events.len(), events[1].kind), (7, GraphEventKind::NodeCreated));
    // The node's word is that of the range it was captured in.
    assert_eq!(events[1].word, back.runtime_calls()[0].calls[0].word);
    let [setting] = back.attributes() else { panic!("{:?}", back.attributes()) };
    assert_eq!((setting.before, setting.asked, setting.set), (250, 8, 8));
    assert_eq!(back.missing_kinds(), [ActivityKind::GREEN_CONTEXT]);
    let health = profile.health().to_string();
    assert!(health.contains("1 kinds of records refused by CUPTI"), "{health}");
}

#[test]
fn a_recording_of_format_1_reads_as_one_that_was_on_all_the_time() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/recordings/format-1.gpuprof");
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes[7], 1, "made anew, it no longer shows that format 1 reads");
    let profile = Profile::from_bytes(&bytes).unwrap();
    profile.health().assert_complete();
    assert_eq!(profile.range("batch").unwrap().kernels(), 360);
    let recording = profile.recording().unwrap();
    assert_eq!(recording.windows_ns().len(), 1);
    assert!(recording.graphs().is_empty() && recording.runtime_calls().is_empty());
    assert!(!recording.has_checksums());
    assert_eq!(profile.health().facts.unchecked_recordings, 1);
    assert!(profile.to_string().contains("1 recordings with no checksums"), "{profile}");
    // It is written in the present format, with checksums, and still the same.
    let bytes = recording.to_bytes();
    let again = Profile::from_bytes(&bytes).unwrap();
    assert_eq!((bytes[7], again.recording().unwrap().to_bytes()), (3, bytes.clone()));
    assert!(again.recording().unwrap().has_checksums() && !again.to_string().contains("checksum"));
    let kernels =
        |profile: &Profile| profile.kernels().map(|kernel| kernel.start()).collect::<Vec<_>>();
    assert_eq!(kernels(&again), kernels(&profile));
}
