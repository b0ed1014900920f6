//! Two programs beside each other: what is matched with what, how sure changes of times are, and what leads.

use std::time::Duration;

use crate::{RECORDING, quickstart, record};
use base64::Engine as _;
use fake_cupti::{Fake, Work};
use hmac_sha256::Hash;
use nvtx::range;
use profiler_analysis::compare::{Change, ChangeKind, Compare, Comparison, Quantity};
use profiler_analysis::{Speed, compare};
use profiler_core::{Profile, Profiler};
use serde_json::Value;

fn gemm(ns: u64) -> Work {
    Work::kernel(c"_ZN4gemmIfEEvv").taking_ns(ns)
}

/// Steps of a gemm, which takes this and up to 2 % more, and a relu.
fn steps(count: usize, gemm_ns: u64, seed: u64) -> Profile {
    let mut random = fastrand::Rng::with_seed(seed);
    record(|fake| {
        for _ in 0..count {
            let _step = range("step");
            fake.launch(gemm(gemm_ns + random.u64(0..gemm_ns / 50)));
            fake.launch(Work::kernel(c"relu").taking_ns(30_000 + random.u64(0..600)));
        }
    })
}

/// The largest consumers of time before and after.
fn leaders(of: &Comparison) -> Vec<Value> {
    let json = serde_json::to_value(of).unwrap();
    json["bottlenecks"].as_array().unwrap().clone()
}

fn find_change<'c>(
    of: &'c Comparison,
    kernel: Option<&str>,
    path: &str,
    quantity: Quantity,
) -> &'c Change {
    let rows: Vec<_> = of
        .changes()
        .iter()
        .filter(|row| {
            row.kernel.as_deref() == kernel
                && &*row.path == path
                && row.quantity == quantity
                && matches!(row.kind, ChangeKind::Kernel | ChangeKind::Range)
        })
        .collect();
    assert_eq!(rows.len(), 1, "{kernel:?} {path} {quantity}");
    rows[0]
}

#[test]
fn profile_compared_with_itself_is_unchanged() {
    let profile = quickstart();
    let same = Compare::new().by_range(true).between(&profile, &profile);
    assert!(!same.counts_differ() && same.is_complete());
    assert!(same.changes().iter().all(|row| !row.differs() && !row.is_new() && !row.is_gone()));
    let times: Vec<_> = same.changes().iter().filter_map(|row| row.times).collect();
    assert!(times.len() > 10 && times.iter().all(|times| !times.is_clear));
    assert!(times.iter().all(|times| times.ratio == 1.0 && times.before == times.after));
    assert!(leaders(&same).iter().all(|of| of["moved"] == false && of["before"] == of["after"]));
    let text = same.to_string();
    assert!(
        text.contains("Every count is the same") && text.contains("Every GPU time present in both"),
        "{text}"
    );
    let kernels: u64 = same
        .changes()
        .iter()
        .filter(|row| row.kind == ChangeKind::Kernel && row.quantity == Quantity::Kernels)
        .map(|row| row.before)
        .sum();
    assert_eq!(kernels, profile.totals().kernels, "each kernel is in one row");
}

/// Two recordings of one program on an H200, of different processes.
#[test]
fn of_a_program_that_did_not_change_nothing_is_clear() {
    const OTHER: &[u8] = include_bytes!("../../../tests/recordings/format-1.gpuprof");
    let [one, other] = [RECORDING, OTHER].map(|bytes| Profile::from_bytes(bytes).unwrap());
    for by_range in [false, true] {
        let comparison = Compare::new().by_range(by_range).between(&one, &other);
        assert!(!comparison.counts_differ());
        let times: Vec<_> = comparison.changes().iter().filter_map(|row| row.times).collect();
        assert!(times.len() > 20 && !times.iter().any(|times| times.is_clear), "{comparison}");
        assert!(leaders(&comparison).iter().all(|of| of["moved"] == false), "{comparison}");
        // These two runs of 4 ms differ by 8.8 %.
        assert_eq!(comparison.wall().speed, Speed::Undecided, "{comparison}");
    }
}

#[test]
fn a_slower_kernel_has_a_factor_with_bounds() {
    let (before, after) = (steps(40, 50_000, 1), steps(40, 51_500, 2));
    let comparison = compare(&before, &after);
    let times = find_change(&comparison, Some("gemm<float>"), "", Quantity::GpuNs).times.unwrap();
    let high = times.high.unwrap();
    assert!(times.low < 1.03 && 1.03 < high && times.low > 1.02 && high < 1.04, "{times:?}");
    assert!(times.is_clear && !times.by_run);
    assert_eq!((times.before.count, times.after.count), (40, 40));
    assert!(
        (Duration::from_micros(50)..Duration::from_micros(51)).contains(&times.before.median()),
        "{times:?}"
    );
    assert!(
        (Duration::from_nanos(100)..Duration::from_nanos(400)).contains(&times.before.deviation()),
        "of 0 to 1000 evenly, 250: {times:?}"
    );
    let relu = find_change(&comparison, Some("relu"), "", Quantity::GpuNs).times.unwrap();
    assert!(!relu.is_clear, "{relu:?}");
    let step = find_change(&comparison, None, "step", Quantity::GpuNs).times.unwrap();
    assert!(step.is_clear && step.ratio < times.ratio, "instance by instance: {step:?}");
    let text = comparison.to_string();
    assert!(text.contains("without differences between runs"), "{text}");
    let wide = Compare::new().margin(0.03).between(&before, &after);
    let times = find_change(&wide, Some("gemm<float>"), "", Quantity::GpuNs).times.unwrap();
    assert!(!times.is_clear && times.low > 1.02, "surely not by 3 %: {times:?}");
    // Fewer than two of each have no bounds at such a confidence.
    let few = compare(&steps(1, 50_000, 1), &steps(1, 90_000, 2));
    let times = find_change(&few, Some("gemm<float>"), "", Quantity::GpuNs).times.unwrap();
    assert!(times.high.is_none() && !times.is_clear && times.ratio > 1.7, "{times:?}");
    assert!(few.to_string().contains("(no bounds)"), "{few}");
}

/// Of the same program at most as many are called different as the confidence says.
#[test]
fn unchanged_time_is_seldom_reported_as_changed() {
    let runs: Vec<Profile> = (0..40).map(|seed| steps(20, 50_000, seed)).collect();
    let mut clear = 0;
    for pair in runs.windows(2) {
        let comparison = Compare::new().confidence(0.9).margin(0.0).between(&pair[0], &pair[1]);
        let times =
            find_change(&comparison, Some("gemm<float>"), "", Quantity::GpuNs).times.unwrap();
        clear += u32::from(times.is_clear);
    }
    assert!(clear <= 10, "{clear} of 39 at 90 %");
}

#[test]
fn of_several_runs_each_is_one_value() {
    let runs = |ns: u64, first: u64| -> Vec<Profile> {
        (first..first + 6).map(|seed| steps(4, ns, seed)).collect()
    };
    let (before, after) = (runs(50_000, 1), runs(55_000, 10));
    let comparison = Compare::new().confidence(0.95).between(&before, &after);
    let row = find_change(&comparison, Some("gemm<float>"), "", Quantity::GpuNs);
    let times = row.times.unwrap();
    assert!(times.by_run && times.is_clear && row.varies, "{row:?}");
    assert_eq!((times.before.count, comparison.runs()[0]), (24, 6));
    let kernels = find_change(&comparison, Some("gemm<float>"), "", Quantity::Kernels);
    assert_eq!((kernels.before, kernels.after, kernels.varies), (4, 4, false), "of a run");
    assert!(comparison.to_string().contains("from run to run"), "{comparison}");
    // Runs with different work are shown by their median.
    let mixed = [steps(4, 50_000, 1), steps(4, 50_000, 2), steps(5, 50_000, 3)];
    let comparison = compare(&mixed[..], &mixed[2]);
    let kernels = find_change(&comparison, Some("relu"), "", Quantity::Kernels);
    assert_eq!((kernels.before, kernels.after, kernels.varies), (4, 5, true));
    // Medians that agree are not said to be counts that do.
    let same = compare(&mixed[..], &mixed[0]);
    assert!(!same.counts_differ());
    let varying = same.changes().iter().filter(|row| row.varies && !row.quantity.is_time()).count();
    let said = format!("{varying} counts differ from run to run; medians are compared");
    assert!(varying > 1);
    let (text, page) = (same.to_string(), same.to_html());
    assert!(text.contains("\nThe median of every count is the same in both.\n"), "{text}");
    assert!(text.contains(&said) && !text.contains("Every count"), "{text}");
    for text in [&same.to_markdown(), &page] {
        assert!(text.contains("the median of every count is the same; times"), "{text}");
        assert!(text.contains(&said), "{text}");
    }
    let exact = compare(&mixed[..2], &mixed[0]).to_string();
    assert!(exact.contains("Every count is the same in both.") && !exact.contains("counts differ"));
}

#[test]
fn kernels_are_matched_by_name_and_shape() {
    let before = record(|fake| {
        let _step = range("step");
        fake.launch(gemm(1_000).with_shape(132, 256));
        fake.launch(gemm(2_000).with_shape(264, 256));
        fake.launch(Work::kernel(c"old"));
    });
    let after = record(|fake| {
        let _step = range("step");
        fake.launch(gemm(1_000).with_shape(132, 256));
        fake.launch(gemm(2_500).with_shape(264, 128));
        fake.launch(Work::kernel(c"new"));
    });
    let comparison = compare(&before, &after);
    let rows: Vec<_> = comparison
        .changes()
        .iter()
        .filter(|row| row.kind == ChangeKind::Kernel && row.quantity == Quantity::Kernels)
        .map(|row| {
            let shape = |shape: profiler_analysis::compare::Shape| (shape.grid[0], shape.block[0]);
            (
                row.kernel.as_deref().unwrap(),
                row.shape.map(shape).unwrap(),
                [row.is_new(), row.is_gone()],
                row.reshaped.map(shape),
            )
        })
        .collect();
    let [both, new, gone] = [[false, false], [true, false], [false, true]];
    assert_eq!(
        rows,
        [
            ("gemm<float>", (132, 256), both, None),
            ("gemm<float>", (264, 128), new, Some((264, 256))),
            ("gemm<float>", (264, 256), gone, Some((264, 128))),
            ("new", (128, 256), new, None),
            ("old", (128, 256), gone, None),
        ]
    );
    let text = comparison.to_string();
    for line in ["gemm<float> <264, 256>, now <264, 128>", "gemm<float> <264, 128>, was <264, 256>"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    // As many kernels as before, but not the same ones.
    assert!(comparison.counts_differ());
    let by_range = Compare::new().by_range(true).between(&before, &after);
    assert!(find_change(&by_range, Some("old"), "step", Quantity::Kernels).is_gone());
}

#[test]
fn moved_leader_is_reported() {
    let program = |gemm_ns: u64, copy_ns: u64| {
        record(|fake| {
            let _step = range("step");
            fake.launch(gemm(gemm_ns));
            fake.launch(Work::kernel(c"relu").taking_ns(1_000_000));
            fake.launch(Work::host_to_device(1000).taking_ns(copy_ns));
        })
    };
    let (before, after) = (program(5_000_000, 10), program(10_000, 900_000_000));
    let comparison = compare(&before, &after);
    let all = leaders(&comparison);
    let [kernel, time, idle] = &all[..] else { panic!("three respects") };
    assert_eq!([kernel, time, idle].map(|of| &of["of"]), ["kernel", "time", "idle"]);
    let leader = &kernel["before"];
    assert_eq!(leader["name"], "gemm<float>");
    assert!((leader["share"].as_f64().unwrap() - 5.0 / 6.0).abs() < 1e-6, "{leader}");
    assert_eq!(kernel["after"]["name"], "relu");
    assert!(kernel["moved"] == true && time["after"]["name"] == "copies");
    let text = comparison.to_string();
    assert!(text.contains("-> relu (99.0 %), which is another"), "{text}");
    let nothing = record(|_| ());
    let nothing_leads = |of: &Value| of["before"].is_null() && of["moved"] == false;
    assert!(leaders(&compare(&nothing, &nothing)).iter().all(nothing_leads));
    assert_eq!(compare(&[] as &[Profile], &nothing).runs(), [0, 1]);
}

/// Names may hold anything: on a page they are text, in Markdown too.
#[test]
fn names_are_never_markup() {
    const EVIL: &str = "<script>alert(1)</script>|`x` @you **b** \"&'\n";
    let program = |kernels: usize| {
        record(|fake| {
            let _evil = range(EVIL);
            for _ in 0..kernels {
                fake.launch(Work::kernel(c"<img src=x>"));
            }
        })
    };
    let comparison = compare(&program(1), &program(2));
    let html = comparison.to_html();
    assert!(!html.contains("<script") && !html.contains("<img"), "{html}");
    assert!(html.contains("&lt;script&gt;") && html.contains("&quot;&amp;&#39;"), "{html}");
    let markdown = comparison.to_markdown();
    assert!(!markdown.contains("<script") && !markdown.contains("@you"), "{markdown}");
    assert!(markdown.contains("\\|\\`x\\` &#64;you \\*\\*b\\*\\*"), "{markdown}");
    for row in markdown.lines().filter(|line| line.starts_with("| ")) {
        let cells = row.replace("\\|", "").matches('|').count() - 1;
        assert!((3..=6).contains(&cells), "{row}");
    }
    let csv = comparison.to_csv();
    assert!(csv.contains("\"<script>alert(1)</script>|`x` @you **b** \"\"&'"), "{csv}");
}

#[test]
fn the_policy_of_the_page_names_its_style() {
    let html = compare(&record(|_| ()), &record(|_| ())).to_html();
    let style = html.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
    let hash = base64::engine::general_purpose::STANDARD.encode(Hash::hash(style.as_bytes()));
    assert!(
        html.contains(&format!("style-src 'sha256-{hash}'")),
        "write sha256-{hash} into compare/page.rs"
    );
    assert!(!html.contains("http:") && !html.contains("https:") && !html.contains("<script"));
}

#[test]
fn a_comparison_is_read_by_machines() {
    let comparison = compare(&steps(8, 50_000, 1), &steps(8, 60_000, 2));
    let json = serde_json::to_value(&comparison).unwrap();
    let rows = json["rows"].as_array().unwrap();
    let gemm =
        rows.iter().find(|row| row["kernel"] == "gemm<float>" && row["quantity"] == "gpu_ns");
    let times = &gemm.unwrap()["times"];
    assert!(times["ratio"].as_f64().unwrap() > 1.15 && times["before"]["count"] == 8, "{times}");
    assert_eq!(gemm.unwrap()["shape"]["grid"], serde_json::json!([128, 1, 1]));
    assert!(
        json["bottlenecks"][0]["after"]["name"] == "gemm<float>" && json["counts_differ"] == false
    );
    let csv = comparison.to_csv();
    let columns = csv.lines().next().unwrap().split(',').count();
    assert!(csv.lines().all(|line| line.split(',').count() == columns), "{csv}");
    assert_eq!(csv.lines().count(), 1 + comparison.changes().len());
}

#[test]
fn incomplete_profile_is_reported() {
    let open = {
        let fake = Fake::new();
        let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
        profiler.start().unwrap();
        let _step = range("step");
        fake.launch(gemm(1_000));
        fake.drop_records(1);
        profiler.stop().unwrap()
    };
    let comparison = compare(&open, &steps(1, 1_000, 1));
    assert!(!comparison.is_complete());
    for text in [comparison.to_string(), comparison.to_markdown(), comparison.to_html()] {
        assert!(text.contains("INCOMPLETE"), "{text}");
    }
}
