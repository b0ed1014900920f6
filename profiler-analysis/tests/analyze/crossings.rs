//! Ranges of several domains that cross on one thread: what a range counts is what was submitted while it was open.

use std::collections::BTreeMap;

use fastrand::Rng;
use profiler_analysis::formats::stacks::{StackRoot, StackWeight};
use profiler_analysis::prelude::*;
use profiler_analysis::reports::StatsReport;
use profiler_core::Profile;
use rusqlite::params;
use serde_json::{Value, json};

use crate::capture::{Folder, SCHEMA, connect, global};

#[derive(Debug, Clone, Copy)]
struct Span {
    thread: u32,
    domain: u32,
    name: &'static str,
    time: (u64, u64),
}

/// A launch on the host, and its kernel's time on the GPU.
#[derive(Debug, Clone, Copy)]
struct Launch {
    thread: u32,
    kernel: &'static str,
    time: (u64, u64),
    on_gpu: (u64, u64),
}

const PROCESS: u32 = 100;
const DOMAINS: [&str; 3] = ["", "libA", "libB"];

fn capture(spans: &[Span], launches: &[Launch]) -> Profile {
    let folder = Folder::new();
    let path = folder.file("crossings.sqlite");
    let mut connection = connect(&path);
    let made = connection.transaction().unwrap();
    made.execute_batch(SCHEMA).unwrap();
    let insert = |sql: &str, params: &[&dyn rusqlite::ToSql]| {
        made.prepare(sql).unwrap().execute(params).unwrap();
    };
    insert("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION_MAJOR', '3')", &[]);
    insert("INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000')", &[]);
    for (domain, name) in DOMAINS.iter().enumerate().skip(1) {
        insert(
            "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId) VALUES (0, 75, ?, ?, ?)",
            params![name, global(PROCESS, PROCESS), domain as i64],
        );
    }
    for Span { thread, domain, name, time } in spans {
        insert(
            "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId) VALUES (?, ?, 59, ?, ?, ?)",
            params![time.0 as i64, time.1 as i64, name, global(PROCESS, *thread), domain],
        );
    }
    for (row, Launch { thread, kernel, time, on_gpu }) in launches.iter().enumerate() {
        let id = row as i64 + 1;
        insert(
            "INSERT OR IGNORE INTO StringIds VALUES (?, ?)",
            params![100 + kernel.as_bytes()[1] as i64, kernel],
        );
        insert(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, 1, 0)",
            params![time.0 as i64, time.1 as i64, global(PROCESS, *thread), id],
        );
        insert(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, 7, ?, ?, ?, ?, NULL, 32, 1, 1, 1, 128, 1, 1, 0, 0, 0)",
            params![
                on_gpu.0 as i64,
                on_gpu.1 as i64,
                id,
                global(PROCESS, 0),
                100 + kernel.as_bytes()[1] as i64,
                100 + kernel.as_bytes()[1] as i64
            ],
        );
    }
    made.commit().unwrap();
    drop(connection);
    profiler_analysis::nsys::read(&path).unwrap()
}

const MS: u64 = 1_000_000;
const US: u64 = 1_000;

/// Ten times: `user` from 0 to 6 ms, `libphase` of another domain from 4 to 9 ms, launches at 1, 5 and 8 ms.
fn phases() -> Profile {
    let (mut spans, mut launches) = (Vec::new(), Vec::new());
    for step in 0..10 {
        let at = |ms: u64| (10 * step + ms) * MS;
        let thread = PROCESS;
        spans.push(Span { thread, domain: 0, name: "user", time: (at(0), at(6)) });
        spans.push(Span { thread, domain: 1, name: "libphase", time: (at(4), at(9)) });
        for (kernel, ms, us) in [("k1", 1, 100), ("k2", 5, 200), ("k3", 8, 300)] {
            let on_gpu = (at(ms) + 10 * US, at(ms) + (10 + us) * US);
            let time = (at(ms), at(ms) + 10 * US);
            launches.push(Launch { thread, kernel, time, on_gpu });
        }
    }
    capture(&spans, &launches)
}

#[test]
fn open_range_counts_submissions_across_domains() {
    let profile = phases();
    assert!(profile.health().is_complete());
    let sums = |name: &str| {
        let range = profile.range(name).unwrap();
        (
            range.kernels(),
            range.inclusive().kernel_time().as_nanos() as u64,
            range.exclusive().kernels,
        )
    };
    assert_eq!(sums("user"), (20, 3 * MS, 10));
    assert_eq!(sums("libphase"), (20, 5 * MS, 20));
    assert_eq!(
        (profile.totals().kernels, profile.totals().kernel_time().as_nanos() as u64),
        (30, 6 * MS)
    );
    assert_eq!(profile.outlived_ranges(), 10);
    let report = profile.to_string();
    assert!(report.contains("10 ranges end before a range that began within"), "{report}");
    for range in profile.ranges() {
        assert_eq!((range.inclusive().kernels, range.operations().count()), (2, 2));
        assert_eq!((range.calls().count(), range.query().kernels().count()), (2, 2));
    }
    for (name, ns) in [("user", 3 * MS), ("libphase", 5 * MS)] {
        let query = profile.query().in_range(name);
        assert_eq!((query.count(), query.gpu_time().as_nanos()), (20, ns.into()));
        let node = profile.walk().map(|(_, node)| node).find(|node| node.name() == name).unwrap();
        assert_eq!(node.inclusive().kernels, 20);
    }
}

/// The rows of a report by their field names.
fn rows(profile: &Profile, report: StatsReport) -> Vec<Value> {
    serde_json::from_value(serde_json::to_value(profile.stats(report)).unwrap()).unwrap()
}

#[test]
fn exports_give_late_work_to_the_ranges_that_were_open() {
    let profile = phases();
    let stacks = profile.stacks(StackRoot::Ranges);
    let lines: Vec<String> = stacks.folded(StackWeight::Operations).collect();
    assert_eq!(lines, ["user;k1 10", "user;libphase;k2 10", "libphase;k3 10"]);
    let projected = rows(&profile, StatsReport::NvtxGpuProjSum);
    let rows = projected.iter().map(|row| {
        let time = row["projected"]["total_ns"].clone();
        [row["range"].clone(), row["range_instances"].clone(), row["total_gpu_ops"].clone(), time]
    });
    let (user, lib) = (4 * MS + 200 * US, 3 * MS + 300 * US);
    let expected = [
        [json!(":user"), json!(10), json!(20), json!(10 * user)],
        [json!("libA:libphase"), json!(10), json!(20), json!(10 * lib)],
    ];
    assert_eq!(rows.collect::<Vec<_>>(), expected);
}

/// Pushes and pops of three domains at any times, of which each nests by itself, and launches at any times.
fn random(seed: u64) -> (Vec<Span>, Vec<Launch>) {
    let mut rng = Rng::with_seed(seed);
    let (mut spans, mut launches) = (Vec::new(), Vec::new());
    let mut gpu = 0;
    for thread in (0..rng.u32(1..4)).map(|thread| PROCESS + thread) {
        let mut open: [Vec<(&'static str, u64)>; 3] = Default::default();
        let mut now = 10;
        let mut pass = |rng: &mut Rng| {
            now += rng.u64(1..20);
            now
        };
        for _ in 0..rng.usize(1..60) {
            let domain = rng.usize(..3);
            match rng.u8(..5) {
                0 | 1 => {
                    let name = ["a", "b", "c"][rng.usize(..3)];
                    open[domain].push((name, pass(&mut rng)));
                }
                2 => {
                    if let Some((name, start)) = open[domain].pop() {
                        let time = (start, pass(&mut rng));
                        spans.push(Span { thread, domain: domain as u32, name, time });
                    }
                }
                _ => {
                    // A call may go on while ranges of callbacks begin, or end.
                    let start = pass(&mut rng);
                    let time = (start, start + 1 + rng.u64(..4) * 10 / 3);
                    gpu = gpu.max(start) + rng.u64(1..9);
                    let on_gpu = (gpu, gpu + rng.u64(1..50));
                    gpu = on_gpu.1;
                    let kernel = ["k1", "k2"][rng.usize(..2)];
                    launches.push(Launch { thread, kernel, time, on_gpu });
                }
            }
        }
        for (domain, open) in open.iter_mut().enumerate() {
            while let Some((name, start)) = open.pop() {
                let time = (start, pass(&mut rng));
                spans.push(Span { thread, domain: domain as u32, name, time });
            }
        }
    }
    (spans, launches)
}

fn contains(span: &Span, thread: u32, time: (u64, u64)) -> bool {
    span.thread == thread && span.time.0 <= time.0 && time.1 <= span.time.1
}

fn title(span: &Span) -> String {
    format!("{}:{}", DOMAINS[span.domain as usize], span.name)
}

/// As nsys sums: a launch is within each range that contains it, whatever is around that.
fn check(seed: u64) -> bool {
    let (spans, launches) = random(seed);
    let profile = capture(&spans, &launches);
    let within = |span: &Span| {
        let of = launches.iter().filter(|launch| contains(span, launch.thread, launch.time));
        of.copied().collect::<Vec<_>>()
    };
    let ns = |of: &[Launch]| of.iter().map(|of| of.on_gpu.1 - of.on_gpu.0).sum::<u64>();
    // Ranges come by thread, each in the order of its starts.
    let mut in_order = spans.clone();
    in_order.sort_by_key(|span| (span.thread, span.time.0));
    assert_eq!(profile.ranges().count(), in_order.len());
    for (range, span) in profile.ranges().zip(&in_order) {
        let of = within(span);
        let inclusive = range.inclusive();
        assert_eq!((range.thread_id(), range.name()), (span.thread, span.name));
        assert_eq!(
            (inclusive.kernels, inclusive.kernel_time().as_nanos() as u64),
            (of.len() as u64, ns(&of)),
            "{span:?}"
        );
        assert_eq!(inclusive.launches, of.len() as u64);
    }
    for name in ["a", "b", "c"] {
        let of = launches.iter().filter(|launch| {
            spans.iter().any(|span| span.name == name && contains(span, launch.thread, launch.time))
        });
        let of: Vec<Launch> = of.copied().collect();
        let range = profile.range(name);
        let seen =
            range.map(|range| (range.kernels(), range.inclusive().kernel_time().as_nanos() as u64));
        let expected = (of.len() as u64, ns(&of));
        assert_eq!(seen.unwrap_or_default(), expected, "{name} of {seed}");
        let query = profile.query().in_range(name);
        assert_eq!((query.count(), query.gpu_time().as_nanos() as u64), expected);
    }
    let nodes: u64 = profile.walk().map(|(_, node)| node.exclusive().kernels).sum();
    assert_eq!(nodes + profile.outside_ranges().kernels, launches.len() as u64);
    assert_eq!(profile.totals().kernel_time().as_nanos() as u64, ns(&launches));
    check_projections(&profile, &spans, &within);
    profile.outlived_ranges() != 0
}

fn check_projections(profile: &Profile, spans: &[Span], within: &dyn Fn(&Span) -> Vec<Launch>) {
    let mut expected: Vec<_> = spans
        .iter()
        .filter_map(|span| {
            let of = within(span);
            let start = of.iter().map(|of| of.on_gpu.0).min()?;
            let end = of.iter().map(|of| of.on_gpu.1).max()?;
            let around = spans
                .iter()
                .filter(|outer| contains(outer, span.thread, span.time) && outer.time != span.time);
            let parent = around
                .min_by_key(|outer| (outer.time.1 - outer.time.0, std::cmp::Reverse(outer.time.0)));
            let parent = parent.map(|outer| outer.time.0);
            Some((title(span), span.thread, span.time, (start, end), of.len() as u64, parent))
        })
        .collect();
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap();
    let starts: BTreeMap<u64, u64> = rows(profile, StatsReport::NvtxPushpopTrace)
        .iter()
        .map(|row| (number(row, "range_id"), number(row, "start_ns")))
        .collect();
    let mut seen: Vec<_> = rows(profile, StatsReport::NvtxGpuProjTrace)
        .iter()
        .map(|row| {
            assert_eq!(row["style"], "PushPop");
            let start = number(row, "original_start_ns");
            let on_gpu = number(row, "projected_start_ns");
            let time = (start, start + number(row, "original_duration_ns"));
            let projected = (on_gpu, on_gpu + number(row, "projected_duration_ns"));
            let parent = row["parent_id"].as_u64().map(|parent| starts[&parent]);
            let (name, thread) = (row["name"].as_str().unwrap(), number(row, "tid") as u32);
            (name.to_owned(), thread, time, projected, number(row, "num_gpu_ops"), parent)
        })
        .collect();
    expected.sort();
    seen.sort();
    assert_eq!(seen, expected);
    let mut kernels: BTreeMap<(String, u32, &str), (u64, u64)> = BTreeMap::new();
    for span in spans {
        for launch in within(span) {
            let sum = kernels.entry((title(span), span.thread, launch.kernel)).or_default();
            *sum = (sum.0 + 1, sum.1 + launch.on_gpu.1 - launch.on_gpu.0);
        }
    }
    let report = rows(profile, StatsReport::NvtxKernSum);
    let rows = report.iter().filter_map(|row| {
        let (range, thread) = (row["nvtx_range"].as_str()?, row["tid"].as_u64()? as u32);
        let key = (range.to_owned(), thread, row["kernel_name"].as_str().unwrap());
        Some((key, number(row, "total_ns")))
    });
    let expected: Vec<_> = kernels.into_iter().map(|(key, (_, ns))| (key, ns)).collect();
    let mut seen: Vec<_> = rows.collect();
    seen.sort();
    assert_eq!(seen, expected);
}

#[test]
fn random_crossings_of_three_domains_match_their_times() {
    let all = test_support::effort::rounds(300);
    let crossed = (0..all as u64).filter(|seed| check(*seed)).count();
    assert!(crossed > all / 3, "{crossed} of {all}");
}
