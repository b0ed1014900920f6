//! The recording of `quickstart` that was made on an H200, replayed: real records of a real GPU, joined here.

use cupti::Record;
use profiler_core::{Profile, Recording};

const RECORDING: &[u8] = include_bytes!("../examples/recordings/quickstart-h200.gpuprof");

#[test]
fn the_bundled_recording_is_complete() {
    let profile = Profile::from_bytes(RECORDING).unwrap();
    profile.health().assert_complete();
    assert!(profile.recording_info().to_string().contains("NVIDIA H200"));
    let recording = Recording::from_bytes(RECORDING).unwrap();
    assert_eq!(Recording::from_bytes(&recording.to_bytes()).unwrap(), recording);
}

/// What `nsys stats -r nvtx_gpu_proj_sum` says of the same program run under nsys on the same machine, in its columns
/// "Range Instances" and "Total GPU Ops".
#[test]
fn operations_per_range_match_nsys() {
    let profile = Profile::from_bytes(RECORDING).unwrap();
    for (range, instances, operations) in [
        ("batch", 20, 440),
        ("batch/copy to device", 20, 60),
        ("batch/forward", 20, 100),
        ("batch/backward", 20, 180),
        ("batch/optimizer", 20, 80),
    ] {
        let summary = profile.range(range).unwrap();
        assert_eq!(
            (summary.instances(), summary.inclusive().gpu_operations()),
            (instances, operations),
            "{range}"
        );
    }
}

#[test]
fn one_byte_of_a_kernel_record_is_found_by_its_checksum() {
    let profile = Profile::from_bytes(RECORDING).unwrap();
    let records = profile.recording().unwrap().records();
    let span = records.iter().find_map(|record| match record {
        Record::Kernel(kernel) => Some(kernel.span),
        _ => None,
    });
    let span = span.unwrap();
    let needle = [span.start_ns.to_le_bytes(), span.end_ns.to_le_bytes()].concat();
    let at = RECORDING.windows(16).position(|bytes| bytes == needle).unwrap();
    for byte in [at + 1, at + 9] {
        let mut changed = RECORDING.to_vec();
        changed[byte] ^= 0x10;
        let error = Profile::from_bytes(&changed).unwrap_err().to_string();
        assert!(error.contains("checksum"), "byte {byte}: {error}");
    }
}

#[test]
fn readme_shows_the_printed_output() {
    let report = Profile::from_bytes(RECORDING).unwrap().to_string();
    let readme = include_str!("../README.md");
    let shown = readme.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    let lines: Vec<_> = shown.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines.len() > 10, "{lines:?}");
    for line in lines {
        assert!(report.lines().any(|printed| printed == line), "the report has no line {line:?}");
    }
}
