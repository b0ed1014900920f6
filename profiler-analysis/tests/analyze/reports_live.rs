//! The reports of sessions and recordings: the driver API counts, and thresholds scale with what is looked at.

use crate::folder;
use std::time::{Duration, Instant};

use cupti::fake::{Fake, Work, Written};
use cupti::record::UnifiedMemoryKind;
use cupti::sys::generated::unified_memory_counter::{ADDRESS, COUNTER_KIND, END, START, VALUE};
use cupti::{ActivityKind, Config};
use nvtx::range;
use profiler_analysis::prelude::*;
use profiler_analysis::reports::{GapThreshold, KernelNaming, Rule, StatsReport, Style};
use profiler_core::{Profile, Profiler};

fn record(fake: &Fake, program: impl FnOnce()) -> Profile {
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let ((), profile) = profiler.record(program).unwrap();
    profile
}

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

fn quickstart() -> Profile {
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
    Profile::load(path).unwrap()
}

#[test]
fn kernels_have_the_requested_naming_and_are_summed_by_name() {
    let fake = Fake::new();
    let profile = record(&fake, || (0..4).for_each(|_| step(&fake)));
    let of = |naming| {
        let rows = profile.reports().kernel_names(naming).cuda_gpu_kern_sum().into_rows();
        rows.iter().map(|row| row.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(of(KernelNaming::Demangled), ["void ns::gemm<float, 4>(float*, int)", "relu"]);
    assert_eq!(of(KernelNaming::Base), ["gemm", "relu"]);
    assert_eq!(of(KernelNaming::Mangled), ["_ZN2ns4gemmIfLi4EEEvPfi", "relu"]);

    let report = profile.reports().cuda_gpu_kern_sum();
    let gemm = &report.rows()[0];
    assert_eq!((gemm.instances, gemm.time.total_ns, gemm.time.med_ns), (4, 12_000, 3_000.0));
    assert_eq!((gemm.time_percent, gemm.time.stddev_ns), (75.0, 0.0));
    let with_range = profile.reports().with_range_names().cuda_gpu_kern_sum();
    assert_eq!(&*with_range.rows()[1].name, "forward/relu");
}

#[test]
fn calls_of_the_driver_api_are_in_the_reports_and_rules() {
    let fake = Fake::new();
    let profile = record(&fake, || (0..4).for_each(|_| step(&fake)));
    let calls = profile.reports().cuda_api_sum();
    let count: u64 = calls.rows().iter().map(|row| row.num_calls).sum();
    assert_eq!(count, 24);
    assert!(calls.rows().iter().any(|row| &*row.name == "cuLaunchKernel" && row.num_calls == 8));
    assert_eq!(profile.reports().cuda_api_trace().rows().len(), 24);

    let waits = profile.rules().cuda_api_sync();
    assert_eq!(waits.rows().len(), 4);
    assert!(waits.rows().iter().all(|row| row.api_name.ends_with("Synchronize")));
    assert!(waits.rows().is_sorted_by(|a, b| a.duration_ns >= b.duration_ns));
    // As nsys, which knows the runtime API alone.
    assert!(profile.rules().driver_api(false).cuda_api_sync().is_empty());

    let one = profile.rules().rows(Some(1)).cuda_api_sync();
    assert_eq!((one.rows().len(), one.more_rows()), (1, 3));
    assert!(one.to_string().ends_with("(3 more rows)"), "{one}");
}

#[test]
fn launches_that_did_not_wait_have_a_deviation_of_zero_alone() {
    let fake = Fake::new();
    let before_the_return = || std::thread::sleep(Duration::from_millis(2));
    let profile = record(&fake, || {
        fake.launch_around(&Work::kernel(c"relu").taking_ns(1_000), before_the_return);
    });
    let report = profile.reports().cuda_kern_exec_sum();
    assert_eq!((report.rows()[0].queue_count, report.rows()[0].queue), (0, None));
    let csv = report.csv();
    let cells = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let [names, cells] = <[Vec<&str>; 2]>::try_from(cells.collect::<Vec<_>>()).unwrap();
    let queue = names.iter().position(|name| name.starts_with("QAvg")).unwrap();
    assert_eq!(cells[queue..queue + 5], ["", "", "", "", "0.0"]);
}

#[test]
fn ranges_on_the_gpu_match_their_launches() {
    let fake = Fake::new();
    let profile = record(&fake, || (0..4).for_each(|_| step(&fake)));
    let projected = profile.reports().nvtx_gpu_proj_sum();
    let of = |name: &str| projected.rows().iter().find(|row| &*row.range == name).unwrap();
    let (step, forward) = (of(":step"), of(":forward"));
    assert_eq!((step.range_instances, step.total_gpu_ops, step.avg_gpu_ops), (4, 20, 5.0));
    assert_eq!((step.avg_range_level, step.avg_num_children), (0.0, 1.0));
    assert_eq!((forward.range_instances, forward.avg_range_level), (4, 1.0));
    let projected = profile.reports().nvtx_gpu_proj_trace();
    let mut expected: Vec<(u128, u128)> = profile
        .ranges()
        .map(|range| {
            let start = range.operations().filter_map(|of| of.start()).min().unwrap();
            let end = range.operations().filter_map(|of| of.end()).max().unwrap();
            (start.as_nanos(), (end - start).as_nanos())
        })
        .collect();
    let mut found: Vec<(u128, u128)> = projected
        .rows()
        .iter()
        .map(|row| (row.projected_start_ns.unsigned_abs().into(), row.projected_duration_ns.into()))
        .collect();
    assert!(found.is_sorted_by_key(|(start, _)| *start));
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);

    let trace = profile.reports().nvtx_pushpop_trace();
    assert_eq!(trace.rows().len(), 8);
    let inner = &trace.rows()[1];
    let texts = (inner.name_tree.to_string(), inner.range_stack.to_string());
    assert_eq!(texts, ("--:forward".to_owned(), ":1:2".to_owned()));
    assert_eq!(inner.range_stack.numbers().collect::<Vec<_>>(), [2, 1]);
    assert_eq!((inner.parent_id, inner.level), (Some(1), 1));
    let outer = &trace.rows()[0];
    assert_eq!((outer.num_children, outer.child_duration_ns), (1, inner.duration_ns));

    let kernels = profile.reports().nvtx_kern_sum();
    assert_eq!(kernels.rows().len(), 4, "two kernels in two ranges each");
    assert!(kernels.rows().iter().all(|row| (row.nvtx_instances, row.kernel_instances) == (4, 4)));
    assert!(profile.reports().nvtx_startend_sum().is_empty());
}

#[test]
fn ranges_of_the_process_count_by_time_on_their_thread() {
    let fake = Fake::new();
    let profile = record(&fake, || {
        let whole = nvtx::process_range("request");
        step(&fake);
        drop(whole);
        let other = nvtx::process_range("elsewhere");
        std::thread::spawn(move || drop(other)).join().unwrap();
    });
    let sums = profile.reports().nvtx_sum();
    let styles: Vec<Style> = sums.rows().iter().map(|row| row.style).collect();
    assert_eq!(styles.iter().filter(|style| **style == Style::StartEnd).count(), 2);
    let projected = profile.reports().nvtx_gpu_proj_trace();
    let of = |name: &str| projected.rows().iter().find(|row| &*row.name == name);
    let (request, step) = (of(":request").unwrap(), of(":step").unwrap());
    assert_eq!((request.num_gpu_ops, request.style, request.level), (5, Style::StartEnd, 0));
    assert_eq!((step.parent_id, step.level), (Some(request.range_id), 1));
    assert_eq!(of(":forward").unwrap().range_stack.to_string(), ":1:2:3");
    assert!(of(":elsewhere").is_none(), "it ended on another thread");
}

#[test]
fn gaps_and_use_scale_with_the_window() {
    let profile = quickstart();
    let all = profile.rules().gpu_gaps();
    assert!(!all.is_empty(), "a hundredth of the time, where half a second is all of it");
    assert!(
        profile
            .rules()
            .gap(GapThreshold::LongerThan(Duration::from_millis(500)))
            .gpu_gaps()
            .is_empty()
    );
    assert!(all.rows().is_sorted_by(|a, b| a.duration_ns >= b.duration_ns));

    // Each instance by itself: the times between two batches are nobody's gap.
    let within = profile.rules().rows(None).gap(GapThreshold::Share(0.0));
    let (between, in_batches) = (within.gpu_gaps(), within.within("batch").gpu_gaps());
    assert_eq!(between.rows().len(), in_batches.rows().len() + 19);

    let whole = profile.rules().chunks(1).below_percent(100.0).gpu_time_util();
    let [whole] = whole.rows() else { panic!("{whole}") };
    let busy: u64 =
        profile.operations().filter_map(|of| of.gpu_time()).map(|of| of.as_nanos() as u64).sum();
    let expected = busy as f64 * 100.0 / whole.duration_ns as f64;
    assert!((whole.in_use_percent - expected).abs() < 1e-9, "{whole:?} {expected}");
    assert!(profile.rules().below_percent(0.0).gpu_time_util().is_empty());
    assert!(profile.rules().within("nothing").gpu_time_util().is_empty());
    let first =
        profile.rules().between(Duration::ZERO, Duration::from_micros(300)).cuda_memcpy_async();
    assert_eq!(first.rows().len(), 2);
}

#[test]
fn empty_profile_has_empty_reports_with_a_reason() {
    let profile = record(&Fake::new(), || {});
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
    let report = quickstart().reports().cuda_gpu_kern_sum();
    let rows: serde_json::Value = serde_json::to_value(&report).unwrap();
    let first = &rows[0];
    assert_eq!(first["total_ns"], report.rows()[0].time.total_ns);
    assert_eq!(first["name"], &*report.rows()[0].name);
    // As nsys has it: what is absent is an empty text, and sizes are megabytes.
    let json: serde_json::Value =
        serde_json::from_str(&quickstart().reports().cuda_gpu_trace().json()).unwrap();
    assert_eq!((&json[0]["GrdX"], &json[0]["Bytes (MB)"]), (&"".into(), &0.524.into()));
    assert_eq!(json[0]["Name"], "[CUDA memcpy Host-to-Device]");
}

#[test]
fn all_reports_of_400_000_events_take_less_than_a_second() {
    let fake = Fake::new();
    let names = [GEMM, c"relu", c"softmax", c"_ZN7cutlass6KernelIfEEvNT_6ParamsE"];
    let count = if cfg!(debug_assertions) { 10_000 } else { 100_000 };
    let recorded = record(&fake, || {
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
    let profiler = Profiler::builder()
        .library(fake.library().unwrap())
        .config(Config::new().add_kind(ActivityKind::UNIFIED_MEMORY_COUNTER))
        .build()
        .unwrap();
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
        profile.reports().um_sum().csv(),
        "Virtual Address,HtoD Migration size (MB),DtoH Migration size (MB),CPU Page Faults, GPU Page Faults,\
         Migration Throughput (MB/s)\n\
         0x9000,,0.008,1,,8192.000\n\
         0x1000,0.008,,,7,4096.000\n"
    );
    assert_eq!(
        profile.stats(StatsReport::UmCpuPageFaultsSum).csv(),
        "CPU Page Faults,CPU Instruction Address,Source File,Source Line\n1,0xabcd,,\n"
    );
    let total = profile.reports().um_total_sum();
    let total = &total.rows()[0];
    assert_eq!((total.host_to_device_bytes, total.device_to_host_bytes), (Some(8192), Some(8192)));
    assert_eq!((total.cpu_page_faults, total.gpu_page_faults), (1, Some(7)));
    assert_eq!(
        total.minimum_virtual_address.zip(total.maximum_virtual_address),
        Some((0x1000, 0x9000))
    );
}

#[test]
fn work_without_timestamps_is_counted_by_its_reports() {
    let fake = Fake::new();
    let profile = record(&fake, || {
        step(&fake);
        fake.lose_timestamps();
        // Two kernels, two copies and a memset.
        step(&fake);
        fake.launch(Work::kernel(c"outside"));
    });
    let reports = profile.reports();
    assert_eq!(reports.nvtx_gpu_proj_sum().left_out(), 6);
    assert_eq!(reports.nvtx_gpu_proj_trace().left_out(), 6);
    let rules = || profile.rules();
    assert_eq!((rules().gpu_gaps().left_out(), rules().gpu_time_util().left_out()), (6, 6));
    let copies = (rules().cuda_memcpy_async().left_out(), rules().cuda_memcpy_sync().left_out());
    assert_eq!(copies, (2, 2));
    assert_eq!((rules().cuda_memset_sync().left_out(), rules().cuda_api_sync().left_out()), (1, 0));
    let in_forward = || profile.rules().within("forward");
    assert_eq!(in_forward().gpu_gaps().left_out(), 3);
    assert_eq!(in_forward().cuda_memcpy_sync().left_out(), 1);
    assert_eq!(in_forward().cuda_memset_sync().left_out(), 0);
    let text = rules().gpu_gaps().to_string();
    assert!(text.ends_with("(6 without timestamps are not in it)"), "{text}");
    assert_eq!(quickstart().rules().gpu_gaps().left_out(), 0);
}
