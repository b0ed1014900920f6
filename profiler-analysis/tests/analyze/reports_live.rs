//! The reports of sessions and recordings: the driver API counts, and thresholds scale with what is looked at.

use std::time::{Duration, Instant};

use crate::{profiler, quickstart, record};
use cupti::record::UnifiedMemoryKind;
use cupti::sys::generated::unified_memory_counter::{ADDRESS, COUNTER_KIND, END, START, VALUE};
use cupti::{ActivityKind, Config};
use fake_cupti::{Fake, Work, Written};
use nvtx::range;
use profiler_analysis::prelude::*;
use profiler_analysis::reports::{AnyReport, Reports, Rule, Rules, StatsReport};
use profiler_core::Profile;
use serde_json::Value;
use test_support::folder;

const GEMM: &std::ffi::CStr = c"_ZN2ns4gemmIfLi4EEEvPfi";

/// One copy, two kernels, a memset, a copy back and a wait.
fn step(fake: &Fake) {
    let _step = range("step");
    {
        let _forward = range("forward");
        fake.launch(Work::host_to_device(100_000).taking_ns(5_000));
        fake.launch(Work::kernel(GEMM).taking_ns(3_000));
        fake.launch(Work::kernel(c"relu").taking_ns(1_000));
    }
    fake.launch(Work::memset(64).taking_ns(100));
    fake.launch(Work::device_to_host(4).taking_ns(50));
    fake.launch(Work::synchronize());
}

/// The rows of a report by their field names.
fn rows(report: &AnyReport) -> Vec<Value> {
    serde_json::from_value(serde_json::to_value(report).unwrap()).unwrap()
}

fn number(row: &Value, name: &str) -> u64 {
    row[name].as_u64().unwrap()
}

#[test]
fn kernels_have_the_requested_naming_and_are_summed_by_name() {
    let profile = record(|fake| (0..4).for_each(|_| step(fake)));
    let of = |reports: Reports<'_>| {
        let report = reports.get(StatsReport::CudaGpuKernSum);
        rows(&report).iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of(profile.reports()), ["void ns::gemm<float, 4>(float*, int)", "relu"]);
    assert_eq!(of(profile.reports().base_names()), ["gemm", "relu"]);
    assert_eq!(of(profile.reports().mangled_names()), ["_ZN2ns4gemmIfLi4EEEvPfi", "relu"]);

    let gemm = &rows(&profile.stats(StatsReport::CudaGpuKernSum))[0];
    assert_eq!((number(gemm, "instances"), number(gemm, "total_ns")), (4, 12_000));
    let real = |name: &str| gemm[name].as_f64().unwrap();
    assert_eq!(["med_ns", "time_percent", "stddev_ns"].map(real), [3_000.0, 75.0, 0.0]);
    let with_range = profile.reports().with_range_names().get(StatsReport::CudaGpuKernSum);
    assert_eq!(rows(&with_range)[1]["name"], "forward/relu");
}

#[test]
fn calls_of_the_driver_api_are_in_the_reports_and_rules() {
    let profile = record(|fake| (0..4).for_each(|_| step(fake)));
    let calls = rows(&profile.stats(StatsReport::CudaApiSum));
    let count: u64 = calls.iter().map(|row| number(row, "num_calls")).sum();
    assert_eq!(count, 24);
    assert!(calls.iter().any(|row| row["name"] == "cuLaunchKernel" && row["num_calls"] == 8));
    assert_eq!(profile.stats(StatsReport::CudaApiTrace).len(), 24);

    let waits = rows(&profile.rules().get(Rule::CudaApiSync));
    assert_eq!(waits.len(), 4);
    assert!(waits.iter().all(|row| row["api_name"].as_str().unwrap().ends_with("Synchronize")));
    assert!(waits.is_sorted_by(|a, b| number(a, "duration_ns") >= number(b, "duration_ns")));
    // As nsys, which knows the runtime API alone.
    assert!(profile.rules().driver_api(false).get(Rule::CudaApiSync).is_empty());

    let one = profile.rules().rows(Some(1)).get(Rule::CudaApiSync);
    assert_eq!((one.len(), one.more_rows()), (1, 3));
    assert!(one.to_string().ends_with("(3 more rows)"), "{one}");
}

#[test]
fn launches_that_did_not_wait_have_a_deviation_of_zero_alone() {
    let before_the_return = || std::thread::sleep(Duration::from_millis(2));
    let profile = record(|fake| {
        fake.launch_around(&Work::kernel(c"relu").taking_ns(1_000), before_the_return);
    });
    let report = profile.stats(StatsReport::CudaKernExecSum);
    let first = &rows(&report)[0];
    assert_eq!((&first["queue_count"], &first["queue"]), (&0.into(), &Value::Null));
    let csv = report.csv();
    let cells = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let [names, cells] = <[Vec<&str>; 2]>::try_from(cells.collect::<Vec<_>>()).unwrap();
    let queue = names.iter().position(|name| name.starts_with("QAvg")).unwrap();
    assert_eq!(cells[queue..queue + 5], ["", "", "", "", "0.0"]);
}

#[test]
fn ranges_on_the_gpu_match_their_launches() {
    let profile = record(|fake| (0..4).for_each(|_| step(fake)));
    let projected = rows(&profile.stats(StatsReport::NvtxGpuProjSum));
    let of = |name: &str| projected.iter().find(|row| row["range"] == name).unwrap();
    let (step, forward) = (of(":step"), of(":forward"));
    assert_eq!((number(step, "range_instances"), number(step, "total_gpu_ops")), (4, 20));
    let real = |name: &str| step[name].as_f64().unwrap();
    let averages = ["avg_gpu_ops", "avg_range_level", "avg_num_children"].map(real);
    assert_eq!(averages, [5.0, 0.0, 1.0]);
    assert_eq!(forward["range_instances"], 4);
    assert_eq!(forward["avg_range_level"], 1.0);
    let projected = rows(&profile.stats(StatsReport::NvtxGpuProjTrace));
    let mut expected: Vec<(u128, u128)> = profile
        .ranges()
        .map(|range| {
            let start = range.operations().filter_map(|of| of.start()).min().unwrap();
            let end = range.operations().filter_map(|of| of.end()).max().unwrap();
            (start.as_nanos(), (end - start).as_nanos())
        })
        .collect();
    let of = |row| (number(row, "projected_start_ns"), number(row, "projected_duration_ns"));
    let times = projected.iter().map(of).map(|(start, length)| (start.into(), length.into()));
    let mut found: Vec<(u128, u128)> = times.collect();
    assert!(found.is_sorted_by_key(|(start, _)| *start));
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);

    let trace = rows(&profile.stats(StatsReport::NvtxPushpopTrace));
    assert_eq!(trace.len(), 8);
    let inner = &trace[1];
    assert_eq!(
        (&inner["name_tree"], &inner["range_stack"]),
        (&"--:forward".into(), &":1:2".into())
    );
    assert_eq!((number(inner, "parent_id"), number(inner, "level")), (1, 1));
    let outer = &trace[0];
    assert_eq!(
        (&outer["num_children"], &outer["child_duration_ns"]),
        (&1.into(), &inner["duration_ns"])
    );

    let kernels = rows(&profile.stats(StatsReport::NvtxKernSum));
    assert_eq!(kernels.len(), 4, "two kernels in two ranges each");
    let counts = |row| (number(row, "nvtx_instances"), number(row, "kernel_instances"));
    assert!(kernels.iter().all(|row| counts(row) == (4, 4)));
    assert!(profile.stats(StatsReport::NvtxStartendSum).is_empty());
}

#[test]
fn ranges_of_the_process_count_by_time_on_their_thread() {
    let profile = record(|fake| {
        let whole = nvtx::process_range("request");
        step(fake);
        drop(whole);
        let other = nvtx::process_range("elsewhere");
        std::thread::spawn(move || drop(other)).join().unwrap();
    });
    let sums = rows(&profile.stats(StatsReport::NvtxSum));
    assert_eq!(sums.iter().filter(|row| row["style"] == "StartEnd").count(), 2);
    let projected = rows(&profile.stats(StatsReport::NvtxGpuProjTrace));
    let of = |name: &str| projected.iter().find(|row| row["name"] == name);
    let (request, step) = (of(":request").unwrap(), of(":step").unwrap());
    assert_eq!((number(request, "num_gpu_ops"), number(request, "level")), (5, 0));
    assert_eq!(request["style"], "StartEnd");
    assert_eq!((&step["parent_id"], &step["level"]), (&request["range_id"], &1.into()));
    assert_eq!(of(":forward").unwrap()["range_stack"], ":1:2:3");
    assert!(of(":elsewhere").is_none(), "it ended on another thread");
}

#[test]
fn gaps_and_use_scale_with_the_window() {
    let profile = quickstart();
    let all = profile.rules().get(Rule::GpuGaps);
    assert!(!all.is_empty(), "a hundredth of the time, where half a second is all of it");
    assert!(profile.rules().min_gap(Duration::from_millis(500)).get(Rule::GpuGaps).is_empty());
    let duration = |row: &Value| number(row, "duration_ns");
    assert!(rows(&all).is_sorted_by(|a, b| duration(a) >= duration(b)));

    // Each instance by itself: the times between two batches are nobody's gap.
    let within = profile.rules().rows(None).min_gap_share(0.0);
    let gaps = |rules: Rules<'_>| rules.get(Rule::GpuGaps).len();
    assert_eq!(gaps(within), gaps(within.within("batch")) + 19);

    let whole = profile.rules().chunks(1).below_percent(100.0).get(Rule::GpuTimeUtil);
    let rows = rows(&whole);
    let [whole] = &rows[..] else { panic!("{whole}") };
    let busy: u64 =
        profile.operations().filter_map(|of| of.gpu_time()).map(|of| of.as_nanos() as u64).sum();
    let expected = busy as f64 * 100.0 / duration(whole) as f64;
    let in_use = whole["in_use_percent"].as_f64().unwrap();
    assert!((in_use - expected).abs() < 1e-9, "{whole:?} {expected}");
    assert!(profile.rules().below_percent(0.0).get(Rule::GpuTimeUtil).is_empty());
    assert!(profile.rules().within("nothing").get(Rule::GpuTimeUtil).is_empty());
    let first = profile.rules().between(Duration::ZERO, Duration::from_micros(300));
    assert_eq!(first.get(Rule::CudaMemcpyAsync).len(), 2);
}

#[test]
fn empty_profile_has_empty_reports_with_a_reason() {
    let profile = record(|_| ());
    for &report in StatsReport::ALL {
        let report = profile.stats(report);
        assert!(report.is_empty() && report.csv().is_empty(), "{report}");
        assert_eq!(report.json(), "[]\n");
        let reason = report.skipped().unwrap();
        assert_eq!(report.to_string(), format!("{}: {reason}", report.name()));
    }
    for &rule in Rule::ALL {
        assert!(profile.rules().get(rule).skipped().is_some_and(|reason| !reason.is_empty()));
        assert!(!rule.advice().is_empty());
    }
}

#[test]
fn reports_go_by_the_names_of_nsys() {
    for &report in StatsReport::ALL {
        assert_eq!(report.name().parse::<StatsReport>().unwrap(), report);
        assert_eq!(quickstart().stats(report).name(), report.name());
    }
    for &rule in Rule::ALL {
        assert_eq!(rule.to_string().parse::<Rule>().unwrap(), rule);
    }
    let error = "gpukernsum".parse::<StatsReport>().unwrap_err().to_string();
    assert!(
        error.starts_with("there is no report \"gpukernsum\"; there are: cuda_api_gpu_sum,"),
        "{error}"
    );
}

#[test]
fn rows_are_for_machines_too() {
    let profile = quickstart();
    let first = &rows(&profile.stats(StatsReport::CudaGpuKernSum))[0];
    let kernels = profile.query().kernels().by_kernel();
    let kernel = kernels.iter().max_by_key(|kernel| kernel.time()).unwrap();
    assert_eq!(u128::from(number(first, "total_ns")), kernel.time().as_nanos());
    assert_eq!(number(first, "instances"), kernel.count());
    // As nsys has it: what is absent is an empty text, and sizes are megabytes.
    let json: serde_json::Value =
        serde_json::from_str(&profile.stats(StatsReport::CudaGpuTrace).json()).unwrap();
    assert_eq!((&json[0]["GrdX"], &json[0]["Bytes (MB)"]), (&"".into(), &0.524.into()));
    assert_eq!(json[0]["Name"], "[CUDA memcpy Host-to-Device]");
}

#[test]
fn all_reports_of_400_000_events_take_less_than_a_second() {
    let names = [GEMM, c"relu", c"softmax", c"_ZN7cutlass6KernelIfEEvNT_6ParamsE"];
    let count = if cfg!(debug_assertions) { 10_000 } else { 100_000 };
    let recorded = record(|fake| {
        for at in 0..count / 10 {
            let _step = range("step");
            for at in 0..10 {
                let _layer = range(["attention", "mlp"][at % 2]);
                fake.launch(Work::kernel(names[at % 4]).taking_ns(1_000 + at as u64));
            }
            if at % 10 == 0 {
                fake.launch(Work::host_to_device(1_000).taking_ns(500));
            }
        }
    });
    let bytes = {
        let folder = folder::Folder::new();
        let path = folder.0.join("400000.gpuprof");
        recorded.save(&path).unwrap();
        std::fs::read(path).unwrap()
    };
    let start = Instant::now();
    let profile = Profile::from_bytes(&bytes).unwrap();
    let loaded = start.elapsed();
    let rows: usize = StatsReport::ALL
        .iter()
        .map(|&report| {
            let start = Instant::now();
            let rows = profile.stats(report).len();
            println!("{report}: {rows} rows in {:?}", start.elapsed());
            rows
        })
        .sum();
    let found: usize = Rule::ALL.iter().map(|&rule| profile.rules().get(rule).len()).sum();
    let all = start.elapsed();
    let events =
        profile.operations().count() + profile.calls().count() + 2 * profile.ranges().count();
    println!("{events} events, {rows} rows, {found} findings: load {loaded:?}, all {all:?}");
    assert!(rows > 4 * count);
    if !cfg!(debug_assertions) {
        assert!(events >= 400_000, "{events}");
    }
}

#[test]
fn managed_memory_of_a_session_is_summed_by_address() {
    let fake = Fake::new();
    let config = Config::new().add_kind(ActivityKind::UNIFIED_MEMORY_COUNTER);
    let profiler = profiler(&fake, config);
    let version = fake.library().unwrap().version();
    let event = |kind: UnifiedMemoryKind, address: u64, value: u64, ns: u64| {
        let record = Written::new(ActivityKind::UNIFIED_MEMORY_COUNTER, version).unwrap();
        let record = record.set(COUNTER_KIND, kind.0).set(ADDRESS, address).set(VALUE, value);
        fake.write(&record.set(START, 1_000).set(END, if ns == 0 { 0 } else { 1_000 + ns }));
    };
    let ((), profile) = profiler
        .record(|| {
            event(UnifiedMemoryKind::HOST_TO_DEVICE, 0x1000, 4096, 1_000);
            event(UnifiedMemoryKind::HOST_TO_DEVICE, 0x1000, 4096, 1_000);
            event(UnifiedMemoryKind::DEVICE_TO_HOST, 0x9000, 8192, 1_000);
            event(UnifiedMemoryKind::CPU_PAGE_FAULT, 0x9000, 0xABCD, 0);
            event(UnifiedMemoryKind::GPU_PAGE_FAULT, 0x1000, 7, 500);
            event(UnifiedMemoryKind::THRASHING, 0x1000, 1, 0);
        })
        .unwrap();
    assert_eq!(profile.health().facts.unused_records, 1, "thrashing is in no report");
    assert_eq!(
        profile.stats(StatsReport::UmSum).csv(),
        "Virtual Address,HtoD Migration size (MB),DtoH Migration size (MB),CPU Page Faults, GPU Page Faults,\
         Migration Throughput (MB/s)\n\
         0x9000,,0.008,1,,8192.000\n\
         0x1000,0.008,,,7,4096.000\n"
    );
    assert_eq!(
        profile.stats(StatsReport::UmCpuPageFaultsSum).csv(),
        "CPU Page Faults,CPU Instruction Address,Source File,Source Line\n1,0xabcd,,\n"
    );
    let total = &rows(&profile.stats(StatsReport::UmTotalSum))[0];
    let of = |names: [&str; 2]| names.map(|name| number(total, name));
    assert_eq!(of(["host_to_device_bytes", "device_to_host_bytes"]), [8192, 8192]);
    assert_eq!(of(["cpu_page_faults", "gpu_page_faults"]), [1, 7]);
    assert_eq!(of(["minimum_virtual_address", "maximum_virtual_address"]), [0x1000, 0x9000]);
}

#[test]
fn work_without_timestamps_is_counted_by_its_reports() {
    let profile = record(|fake| {
        step(fake);
        fake.lose_timestamps();
        // Two kernels, two copies and a memset.
        step(fake);
        fake.launch(Work::kernel(c"outside"));
    });
    for report in [StatsReport::NvtxGpuProjSum, StatsReport::NvtxGpuProjTrace] {
        assert_eq!(profile.stats(report).left_out(), 6);
    }
    let left_out = |rule| profile.rules().get(rule).left_out();
    assert_eq!([Rule::GpuGaps, Rule::GpuTimeUtil].map(left_out), [6, 6]);
    assert_eq!([Rule::CudaMemcpyAsync, Rule::CudaMemcpySync].map(left_out), [2, 2]);
    assert_eq!([Rule::CudaMemsetSync, Rule::CudaApiSync].map(left_out), [1, 0]);
    let in_forward = |rule| profile.rules().within("forward").get(rule).left_out();
    let rules = [Rule::GpuGaps, Rule::CudaMemcpySync, Rule::CudaMemsetSync];
    assert_eq!(rules.map(in_forward), [3, 1, 0]);
    let text = profile.rules().get(Rule::GpuGaps).to_string();
    assert!(text.ends_with("(6 without timestamps are not in it)"), "{text}");
    assert_eq!(quickstart().rules().get(Rule::GpuGaps).left_out(), 0);
}
