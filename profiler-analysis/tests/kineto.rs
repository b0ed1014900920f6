//! Traces of `torch.profiler`: what was exported is read back, and hostile files are errors or profiles that say what they
//! lack.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use flate2::{Compression, write::GzEncoder};
use profiler_analysis::prelude::*;
use profiler_analysis::{Error, Format, kineto};
use profiler_core::Profile;
use profiler_core::profile::{ApiCall, Attribution, GpuOperation};
use profiler_core::tables::What;
use test_support::everything::everything;

const RECORDING: &[u8] = include_bytes!("../../examples/recordings/quickstart-h200.gpuprof");
const TORCH: &str = include_str!("../../tests/captures/torch.json");
const LIMIT: u64 = 1 << 30;

fn read(text: &[u8]) -> Result<Profile, Error> {
    kineto::read_from(text, LIMIT)
}

fn torch() -> Profile {
    read(TORCH.as_bytes()).unwrap()
}

fn exported(profile: &Profile) -> Vec<u8> {
    let mut bytes = Vec::new();
    profile.export(Format::Kineto, &mut bytes).unwrap();
    bytes
}

/// Instances, host time and work by path.
fn by_path(profile: &Profile) -> BTreeMap<String, (u64, Duration, [u64; 6], Duration)> {
    let sums = profile.nodes().map(|node| {
        let of = node.inclusive();
        let counts =
            [of.kernels, of.copies, of.copy_bytes, of.memsets, of.memset_bytes, of.launches];
        (node.path().to_string(), (node.instances(), node.host_time(), counts, of.gpu_time()))
    });
    sums.collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn an_exported_recording_is_read_back() {
    let recorded = Profile::from_bytes(RECORDING).unwrap();
    let again = read(&exported(&recorded)).unwrap();
    assert!(again.health().is_complete(), "{}", again.health());
    assert_eq!(by_path(&again), by_path(&recorded));
    let calls = |profile: &Profile| {
        let of_call = |call: ApiCall<'_>| {
            (call.name().to_owned(), call.correlation_id(), call.thread_id(), call.host_time())
        };
        let mut calls: Vec<_> = profile.calls().map(of_call).collect();
        calls.sort();
        calls
    };
    assert_eq!(calls(&again), calls(&recorded));
    let operations = |profile: &Profile| -> Vec<String> {
        let of_operation = |operation: GpuOperation<'_>| {
            let what = match operation.work().what {
                What::Kernel { details, .. } => {
                    let shared = details.static_shared_bytes + details.dynamic_shared_bytes;
                    let registers = details.registers_per_thread;
                    format!("{:?} {:?} {registers} {shared}", details.grid, details.block)
                }
                What::Copy(copy) => {
                    format!(
                        "{:?} {:?} {:?} {}",
                        copy.kind, copy.source, copy.destination, copy.bytes
                    )
                }
                What::Memset(memset) => {
                    format!("{:?} {}", memset.memory, memset.bytes)
                }
                ref other => format!("{other:?}"),
            };
            let (stream, device) = (operation.stream(), operation.device());
            let range = operation.range().map(|range| range.name().to_owned());
            format!("{device} {stream} {:?} {range:?} {what}", operation.gpu_time())
        };
        profile.operations().map(of_operation).collect()
    };
    assert_eq!(operations(&again), operations(&recorded));
    assert_eq!(again.kernels().count(), recorded.kernels().count());
    let second = |profile: &Profile| profile.recording_info().recorded_at_s;
    assert_eq!(second(&again), second(&recorded));
    // Once more, it is the same file but for the recorder.
    let twice = read(&exported(&again)).unwrap();
    assert_eq!(by_path(&twice), by_path(&again));
}

#[test]
fn sums_are_kept_of_whatever_a_recording_has() {
    let recorded = everything();
    let again = read(&exported(&recorded)).unwrap();
    // An operation without times has no event.
    let times = |profile: &Profile| {
        let operations = profile.operations().filter(|operation| operation.gpu_time().is_some());
        let mut times: Vec<String> = operations
            .map(|operation| format!("{:?} {:?}", operation.kind(), operation.gpu_time()))
            .collect();
        times.sort();
        times
    };
    assert_eq!(times(&again), times(&recorded));
}

#[test]
fn a_trace_of_torch_has_ranges_calls_and_work() {
    let profile = torch();
    let health = profile.health();
    assert!(health.is_complete(), "{health}");
    // Functions of Python, and an allocation.
    assert_eq!(health.facts.unused_records, 3, "{health}");
    assert_eq!(health.facts.overhead, Duration::from_micros(80));
    assert_eq!(health.accounts.synchronizations.matched_records, 2);
    let sums = by_path(&profile);
    let of = |path: &str| sums.get(path).unwrap_or_else(|| panic!("{path} in {sums:?}"));
    let gemm = Duration::from_nanos(120_750);
    let addmm = of("ProfilerStep#2/forward/aten::linear/aten::addmm");
    assert_eq!((addmm.0, addmm.2[0], addmm.3), (1, 1, gemm));
    let mm = "autograd::engine::evaluate_function: AddmmBackward0/AddmmBackward0/aten::mm";
    assert_eq!((of(mm).0, of(mm).3), (2, Duration::from_micros(481)));
    let step = of("ProfilerStep#3");
    assert_eq!((step.1, step.2), (Duration::from_micros(900), [2, 1, 1 << 20, 1, 4096, 2]));
    let info = profile.recording_info();
    assert_eq!(info.cuda_driver_version, 12080);
    assert_eq!(info.recorder_version, "torch.profiler (Kineto), rank 1 of 2");
    let [device] = &info.devices[..] else { panic!("{:?}", info.devices) };
    assert_eq!((device.multiprocessors, device.compute_capability), (132, (9, 0)));
    let started = UNIX_EPOCH + Duration::from_nanos(1_764_547_200_000_000_000 + 4_999_800_000);
    assert_eq!(profile.started_at(), Some(started));
    assert_eq!(profile.duration(), Duration::from_micros(2500));
    let names: BTreeMap<_, _> =
        profile.ranges().map(|range| (range.thread_id(), range.thread_name())).collect();
    assert_eq!(names, [(4242, Some("python")), (4243, Some("pt_autograd_0"))].into());
    let operation = profile.operations().find(|operation| operation.as_kernel().is_some()).unwrap();
    assert_eq!(operation.attribution(), Attribution::Contained);
    assert_eq!(operation.call().unwrap().name(), "cuLaunchKernel");
}

#[test]
fn gzip_is_unpacked() {
    let packed = gzip(TORCH.as_bytes());
    assert_eq!(by_path(&read(&packed).unwrap()), by_path(&torch()));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/captures/torch.json");
    assert_eq!(by_path(&kineto::read(path).unwrap()), by_path(&torch()));
    for length in [1, 2, 9, 40, packed.len() / 2, packed.len() - 1] {
        let error = read(&packed[..length]).unwrap_err();
        assert!(error.is_format(), "{length}: {error}");
    }
    let mut damaged = packed.clone();
    damaged[packed.len() / 2] ^= 0x55;
    assert!(read(&damaged).unwrap_err().is_format());
}

/// `message` is a part of the error.
#[track_caller]
fn refused(text: &str, message: &str) {
    let error = read(text.as_bytes()).unwrap_err();
    assert!(error.is_format() && error.to_string().contains(message), "{error}");
}

#[test]
fn what_is_no_trace_is_refused() {
    refused("", "cut off");
    refused("[]", "export_chrome_trace");
    refused("{}", "export_chrome_trace");
    refused("{\"traceEvents\": 7}", "expected a list");
    refused("{\"traceEvents\": []} x", "trailing characters");
    refused(
        "{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"v8\", \"ts\": 1, \"dur\": 1}]}",
        "category",
    );
    let error = kineto::read_from(TORCH.as_bytes(), 1000).unwrap_err();
    assert!(error.to_string().contains("more than 1000 bytes"), "{error}");
    // An empty trace is one.
    assert_eq!(read(b"{\"schemaVersion\": 1, \"traceEvents\": []}").unwrap().ranges().count(), 0);
    for length in (0..TORCH.trim_end().len()).step_by(97) {
        refused(&TORCH[..length], "cut off");
    }
    let missing = kineto::read("/nonexistent/trace.json").unwrap_err();
    assert!(missing.to_string().contains("/nonexistent/trace.json"), "{missing}");
}

/// Everything that a profile can be asked for, in part.
fn ask(profile: &Profile) {
    assert!(!profile.to_string().is_empty() && !profile.json_lines().is_empty());
    let mut page = Vec::new();
    profile.write_html(&mut page).unwrap();
    for format in Format::ALL {
        profile.export(format, &mut std::io::sink()).unwrap();
    }
    assert!(!profile.health().to_string().is_empty());
}

#[test]
fn any_value_of_any_member_is_read_or_counted() {
    let values = [
        "null",
        "true",
        "-1",
        "0",
        "1",
        "4294967296",
        "18446744073709551615",
        "-9223372036854775808",
        "1e308",
        "-1e308",
        "9223372036854775.5",
        "1e-300",
        "7.0",
        "4611686018427387.9",
        "-4611686018427387",
        "4611686018427387",
        "\"\"",
        "\"7\"",
        "\"\\u0000\\ud83d\\ude00\"",
        "[]",
        "[1,2,3,4,[5]]",
        "[-1,1e9,\"x\"]",
        "{}",
        "{\"name\":{\"name\":[1]}}",
    ];
    let keys = [
        "ph",
        "cat",
        "name",
        "pid",
        "tid",
        "ts",
        "dur",
        "args",
        "correlation",
        "device",
        "context",
        "stream",
        "bytes",
        "registers per thread",
        "shared memory",
        "grid",
        "block",
        "id",
        "numSms",
        "warpSize",
        "rank",
        "world_size",
        "baseTimeNanoseconds",
        "cupti_version",
        "totalGlobalMem",
        "schemaVersion",
    ];
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (count, first) = (number("HOSTILE_TRACES", 8), number("HOSTILE_TRACES_SEED", 0));
    for seed in first..first + count {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut text = String::new();
        for line in TORCH.lines() {
            let mut line = line.to_owned();
            for key in keys {
                let member = format!("\"{key}\": ");
                let Some(at) = line.find(&member).filter(|_| rng.u8(..60) == 0) else { continue };
                // Twice: the last one counts.
                line.insert_str(at, &format!("{member}{}, ", rng.choice(values).unwrap()));
                if rng.bool() {
                    let (before, after) = line.split_at(at);
                    let rest = after.split_once(", ").unwrap().1;
                    let known = rest.strip_prefix(&*member).unwrap();
                    if known.starts_with(|first: char| first.is_ascii_digit()) {
                        let value = known.find([',', '}']).map_or(known, |end| &known[end..]);
                        let put = rng.choice(values).unwrap();
                        line = format!("{before}{member}{put}{value}");
                    }
                }
            }
            writeln!(text, "{line}").unwrap();
        }
        match read(text.as_bytes()) {
            Ok(profile) => ask(&profile),
            Err(error) => {
                assert!(error.is_format() && error.to_string().len() < 4096, "{seed}: {error}")
            }
        }
    }
}

fn trace(events: &str) -> String {
    format!("{{\"schemaVersion\":1,\"traceEvents\":[{events}null]}}")
}

#[test]
fn huge_and_deep_traces_are_read() {
    // Ranges in ranges, each with a name of its own.
    let mut events = String::new();
    let depth = 20_000_u32;
    for at in 0..depth {
        let dur = 2 * (depth - at);
        writeln!(events, "{{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"op {at}\",\"pid\":1,\"tid\":1,\"ts\":{at},\"dur\":{dur}}},").unwrap();
    }
    let deep = read(trace(&events).as_bytes()).unwrap();
    assert_eq!(deep.ranges().count(), depth as usize);
    assert_eq!(deep.ranges().filter(|range| range.parent().is_none()).count(), 1);
    // One correlation id for all, and operations without a call.
    let mut events = String::new();
    for at in 0..20_000 {
        let call = "\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":1,\"tid\":1";
        writeln!(
            events,
            "{{\"ph\":\"X\",{call},\"ts\":{at},\"dur\":0.5,\"args\":{{\"correlation\":7}}}},"
        )
        .unwrap();
        let kernel = "\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":7";
        writeln!(
            events,
            "{{\"ph\":\"X\",{kernel},\"ts\":{at},\"dur\":1,\"args\":{{\"correlation\":7}}}},"
        )
        .unwrap();
    }
    assert_eq!(read(trace(&events).as_bytes()).unwrap().totals().kernels, 20_000);
    // A long name is cut, and a long member that nobody reads is skipped.
    let long = "n".repeat(1 << 20);
    let named = format!(
        "{{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"{long}\",\"{long}\":\"{long}\",\"pid\":1,\"tid\":1,\"ts\":1,\"dur\":1}},"
    );
    let profile = read(trace(&named).as_bytes()).unwrap();
    assert_eq!(profile.ranges().next().unwrap().name().len(), 1 << 16);
    assert_eq!(profile.health().losses.unknown_records, 1);
    // Lists in lists.
    let lists = |depth| trace(&format!("{{\"args\":{}{}}},", "[".repeat(depth), "]".repeat(depth)));
    assert!(read(lists(50).as_bytes()).is_ok());
    refused(&lists(100_000), "recursion limit");
    let unread =
        format!("{{\"schemaVersion\":1,\"x\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(read(unread.as_bytes()).is_ok());
}

#[test]
fn times_before_zero_and_cut_times_keep_calls_in_their_ranges() {
    let event = |cat: &str, name: &str, ts: &str, dur: &str| {
        format!(
            "{{\"ph\":\"X\",\"cat\":\"{cat}\",\"name\":\"{name}\",\"pid\":1,\"tid\":1,\"ts\":{ts},\"dur\":{dur},\"args\":{{\"correlation\":{}}}}},",
            name.len()
        )
    };
    let events = [
        event("cpu_op", "before", "-30", "10"),
        event("cpu_op", "outer", "-10", "20"),
        // It ends a microsecond after its range, which began in the same one as its end.
        event("cuda_runtime", "cudaMalloc", "5", "6"),
        // It begins when the range ends.
        event("cuda_runtime", "cudaFree", "10", "0.5"),
        event("cuda_runtime", "cudaEventRecord", "-12", "1"),
        event("cuda_runtime", "cudaDeviceSynchronize", "5", "8"),
    ];
    let profile = read(trace(&events.concat()).as_bytes()).unwrap();
    let ranges: BTreeMap<_, _> = profile
        .calls()
        .map(|call| (call.name().to_owned(), call.range().map(|range| range.name().to_owned())))
        .collect();
    let outer = Some("outer".to_owned());
    assert_eq!(ranges["cudaMalloc"], outer);
    assert_eq!(
        [&ranges["cudaFree"], &ranges["cudaEventRecord"], &ranges["cudaDeviceSynchronize"]],
        [&None; 3]
    );
    assert_eq!(profile.duration(), Duration::from_micros(43));
}
