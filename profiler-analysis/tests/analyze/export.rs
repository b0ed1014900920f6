//! A profile as text for other programs.

use crate::formats::export;
use crate::record;
use fake_cupti::{Fake, Work};
use nvtx::range;
use profiler_analysis::prelude::*;
use profiler_analysis::reports::StatsReport;

fn forward(fake: &Fake, taking_ns: u64) {
    let _forward = range("forward");
    fake.launch(Work::kernel(c"_ZN4gemmIfEEvv").taking_ns(taking_ns));
    fake.launch(Work::kernel(c"_ZN4gemmIfEEvv").taking_ns(taking_ns));
    let _relu = range("activation");
    fake.launch(Work::kernel(c"relu"));
}

fn load(fake: &Fake) {
    let _load = range("load");
    fake.launch(Work::host_to_device(1000));
    fake.call_only("cuMemAlloc_v2", 0);
}

#[test]
fn a_snapshot_has_names_and_counts_and_nothing_else() {
    let profile = record(|fake| {
        for _ in 0..2 {
            let _step = range("step");
            load(fake);
            forward(fake, 100);
        }
        drop(range("empty"));
        {
            static GPU: nvtx::Domain = nvtx::Domain::new("gpu");
            let _step = GPU.range("step"); // of the same name, and another
            fake.launch(Work::synchronize());
        }
        fake.launch(Work::memset(64));
    });
    let expected = "\
1 x empty: nothing
2 x step: nothing
  2 x forward: 4 launches, 4 kernels
    - 4 x cuLaunchKernel
    - 4 x kernel gemm<float>
    2 x activation: 2 launches, 2 kernels
      - 2 x cuLaunchKernel
      - 2 x kernel relu
  2 x load: 2 copies, 2000 bytes copied, 2 allocations
    - 2 x copy host to device, pageable to device
    - 2 x cuMemAlloc_v2
    - 2 x cuMemcpyHtoDAsync_v2
1 x step (domain gpu): 1 synchronisations
  - 1 x cuStreamSynchronize
(outside any range): 1 memsets, 64 bytes set
  - 1 x cuMemsetD8Async
complete
";
    assert_eq!(profile.counts(), expected);
}

#[test]
fn snapshot_is_independent_of_order_and_duration() {
    let both = |first: fn(&Fake), second: fn(&Fake)| {
        record(|fake| {
            std::thread::scope(|scope| scope.spawn(|| first(fake)).join().unwrap());
            second(fake);
        })
        .counts()
    };
    assert_eq!(both(|fake| forward(fake, 5), load), both(load, |fake| forward(fake, 70_000)));
    let lossy = record(|fake| fake.drop_records(1));
    assert_eq!(lossy.counts(), "INCOMPLETE\n");
}

#[test]
fn json_lines_match_the_queries() {
    let profile = record(|fake| {
        let _step = range("a \"step\"");
        load(fake);
    });
    let lines: Vec<serde_json::Value> =
        profile.json_lines().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let paths: Vec<_> = lines.iter().map(|line| line["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["a \"step\"", "a \"step\"/load", ""]);
    let load = profile.range("load").unwrap();
    assert_eq!(lines[1]["inclusive"], serde_json::to_value(load.inclusive()).unwrap());
    assert_eq!(lines[1]["host_ns"], load.host_time().as_nanos() as u64);
    assert_eq!(lines[0]["exclusive"]["copies"], 0);
    assert_eq!(
        (&lines[2]["complete"], &lines[2]["inclusive"]["copies"]),
        (&true.into(), &1.into())
    );
    assert_eq!(lines[2]["health"]["records"], profile.health().records);
}

/// Text as long as all paths, all stacks of numbers or the times in all ranges would be hundreds of megabytes.
fn deep_ranges_need_little_text(name: impl Fn(usize) -> String + Copy) {
    const DEPTH: usize = 2_003;
    let profile = record(|fake| {
        let mut open = Vec::with_capacity(DEPTH);
        for depth in 0..DEPTH {
            open.push(range(&name(depth)));
            fake.launch(Work::kernel(c"deep").taking_ns(1_000 + depth as u64 % 7));
        }
        // From the inside out.
        while open.pop().is_some() {}
    });
    let text = profile.json_lines();
    assert!(text.len() < DEPTH * 4_000, "{} bytes", text.len());
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), DEPTH + 1);
    let path = |line: usize| lines[line]["path"].as_str().unwrap();
    let names = |from: usize, to: usize| (from..to).map(name).collect::<Vec<_>>().join("/");
    assert_eq!(path(127), names(0, 128));
    let (first, last) = (names(0, 64), names(65, 129));
    assert_eq!(path(128), format!("{first}/…(1 more)…/{last}"));
    assert!(lines[0].get("parent").is_none());
    let is_within = |(line, row): (usize, &serde_json::Value)| row["parent"] == line as u64;
    assert!(lines[1..DEPTH].iter().enumerate().all(is_within));
    assert_eq!(lines[DEPTH - 1]["inclusive"]["kernels"], 1);

    for &report in StatsReport::ALL {
        let text = profile.stats(report).to_string();
        assert!(text.len() < 20_000, "{report}: {} bytes", text.len());
    }
    let counts = profile.counts();
    assert!(counts.len() < DEPTH * 1_000, "{} bytes", counts.len());
    let deep = format!("{}… 65: 1 x {}: 1 launches, 1 kernels\n", "  ".repeat(64), name(65));
    assert!(counts.contains(&deep), "{}", &counts[..10_000]);
    let folded = export(&profile, profiler_analysis::Format::Folded);
    assert!(folded.len() < DEPTH * 4_000, "{} bytes", folded.len());
    let rows = serde_json::to_value(profile.stats(StatsReport::NvtxKernSum)).unwrap();
    let rows = rows.as_array().unwrap();
    let of = |name: &str| rows.iter().find(|row| row["nvtx_range"] == name);
    if rows.len() == 1 {
        let row = of(":again").unwrap();
        let (depth, once) = (DEPTH as u64, &row["min_ns"]);
        assert_eq!(
            (&row["nvtx_instances"], &row["kernel_instances"]),
            (&depth.into(), &depth.into())
        );
        assert_eq!(once, 1_000);
        let times: u64 = (1..=depth).map(|times| times * (1_000 + (times - 1) % 7)).sum();
        assert_eq!(row["total_ns"], times);
    } else {
        assert_eq!(rows.len(), DEPTH);
        let row = of(":range 1993").unwrap();
        assert_eq!((&row["nvtx_instances"], &row["kernel_instances"]), (&1.into(), &10.into()));
        // 1,993 is 5 more than 7 divides.
        let times: Vec<u64> = (0..10).map(|place| 1_000 + (5 + place) % 7).collect();
        assert_eq!(row["total_ns"], times.iter().sum::<u64>());
        assert_eq!((&row["min_ns"], &row["max_ns"]), (&1_000.into(), &1_006.into()));
        assert_eq!(row["med_ns"], 1_003.5);
    }
}

#[test]
fn deep_ranges_of_many_names_export_compactly() {
    deep_ranges_need_little_text(|depth| format!("range {depth}"));
}

#[test]
fn deep_ranges_of_one_name_export_compactly() {
    deep_ranges_need_little_text(|_| "again".to_owned());
}
