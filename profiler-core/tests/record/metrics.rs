//! Sums for the `metrics` facade, as Prometheus scrapes them.

use std::collections::BTreeMap;
use std::time::Duration;

use fake_cupti::{Fake, Work};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use profiler_core::session::always_on::AlwaysOn;
use profiler_core::session::metrics::RangeMetrics;
use profiler_core::{Profiler, Summary};

/// Values by name and labels, read as the text format says.
fn scraped(recorder: &PrometheusRecorder) -> BTreeMap<(String, String), f64> {
    let text = recorder.handle().render();
    let mut values = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').unwrap()),
            None => (series, ""),
        };
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{line}");
        let known = values.insert((name.to_owned(), labels.to_owned()), value.parse().unwrap());
        assert_eq!(known, None, "{line} is there twice");
    }
    values
}

fn value(values: &BTreeMap<(String, String), f64>, name: &str, labels: &str) -> f64 {
    *values.get(&(name.to_owned(), labels.to_owned())).unwrap_or_else(|| panic!("{name} {labels}"))
}

fn sum(values: &BTreeMap<(String, String), f64>, name: &str) -> f64 {
    values.iter().filter(|((known, _), _)| known == name).map(|(_, value)| value).sum()
}

/// The sums over all labels are those of the session.
fn assert_equal(values: &BTreeMap<(String, String), f64>, summary: &Summary) {
    let totals = summary.totals();
    for (name, expected) in [
        ("gpu_range_gpu_nanoseconds_total", totals.gpu_time().as_nanos() as u64),
        ("gpu_range_launches_total", totals.launches),
        ("gpu_range_kernels_total", totals.kernels),
        ("gpu_range_bytes_total", totals.copy_bytes + totals.memset_bytes),
        ("gpu_range_synchronizations_total", totals.synchronizations),
        (
            "gpu_range_synchronization_nanoseconds_total",
            totals.synchronization_time().as_nanos() as u64,
        ),
        ("gpu_range_instances_total", summary.paths().map(|path| path.instances()).sum()),
    ] {
        assert_eq!(sum(values, name), expected as f64, "{name}");
    }
}

fn work(fake: &Fake, request: u64) {
    let _request = nvtx::range("request \"a\\b\"");
    fake.launch(Work::host_to_device(64 * request).taking_ns(2_000));
    {
        let _layer = nvtx::range("layer");
        fake.launch(Work::kernel(c"k").taking_ns(1_000 * request));
        fake.launch(Work::memset(10).taking_ns(100));
    }
    fake.launch(Work::synchronize());
}

#[test]
fn scraped_sums_equal_the_report() {
    let fake = Fake::new();
    let recorder = PrometheusBuilder::new().build_recorder();
    let mut metrics = RangeMetrics::new();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let session = profiler.summarize().unwrap();
    fake.launch(Work::kernel(c"outside").taking_ns(7));
    (1..=10).for_each(|request| work(&fake, request));
    let first = session.snapshot().unwrap();
    metrics::with_local_recorder(&recorder, || metrics.publish(&first));
    assert_equal(&scraped(&recorder), &first);
    (1..=20).for_each(|request| work(&fake, request));
    let last = session.stop().unwrap();
    metrics::with_local_recorder(&recorder, || metrics.publish(&last));
    let values = scraped(&recorder);
    assert_equal(&values, &last);
    assert_eq!(value(&values, "gpu_range_gpu_nanoseconds_total", "range=\"(outside)\""), 7.0);
    let request = r#"range="request \"a\\b\"""#;
    assert_eq!(value(&values, "gpu_range_instances_total", request), 30.0);
    for ratio in ["gpu_range_idle_ratio", "gpu_range_synchronization_ratio"] {
        let share = value(&values, ratio, request);
        assert!((0.0..=1.0).contains(&share), "{ratio} {share}");
    }
    let text = recorder.handle().render();
    assert!(!text.contains("outside\"\n") && !text.contains("\"k\""), "no kernel names: {text}");
    assert!(text.contains("# TYPE gpu_range_launches_total counter"), "{text}");

    // Another session goes on where this one ended.
    let session = profiler.summarize().unwrap();
    work(&fake, 1);
    let next = session.stop().unwrap();
    metrics::with_local_recorder(&recorder, || metrics.publish(&next));
    assert_eq!(value(&scraped(&recorder), "gpu_range_instances_total", request), 31.0);
}

/// 10,000 names of ranges: labels are bounded, and nothing is missing in their sum.
#[test]
fn names_beyond_the_bound_are_other() {
    let fake = Fake::new();
    let recorder = PrometheusBuilder::new().build_recorder();
    let mut metrics = RangeMetrics::new().most_ranges(20);
    let profiler = Profiler::builder().library(fake.library().unwrap());
    let session = profiler.summary_rows(5_000).build().unwrap().summarize().unwrap();
    let many = |names: std::ops::Range<u64>| {
        for number in names {
            let name = format!("user {number} {}", "x".repeat(300));
            let _range = nvtx::range(&name);
            fake.launch(Work::kernel(c"k").taking_ns(number + 1));
        }
    };
    many(0..5_000);
    let first = session.snapshot().unwrap();
    metrics::with_local_recorder(&recorder, || metrics.publish(&first));
    let labels = |values: &BTreeMap<(String, String), f64>| {
        values.keys().filter(|(name, _)| name == "gpu_range_launches_total").count()
    };
    let values = scraped(&recorder);
    assert_equal(&values, &first);
    // Those with a label, the others, and what is outside.
    assert_eq!(labels(&values), 22);
    many(5_000..10_000);
    let last = session.stop().unwrap();
    metrics::with_local_recorder(&recorder, || metrics.publish(&last));
    let values = scraped(&recorder);
    assert_equal(&values, &last);
    assert_eq!(labels(&values), 22, "a label stays, and none is added");
    assert!(value(&values, "gpu_profiler_lost_total", "what=\"names\"") >= 5_000.0);
    assert!(values.keys().all(|(_, labels)| labels.len() < 300), "names are cut");
}

#[test]
fn an_always_on_session_has_counts_in_full_and_estimates() {
    let fake = Fake::new();
    let recorder = PrometheusBuilder::new().build_recorder();
    let mut metrics = RangeMetrics::new();
    let profiler = Profiler::builder().library(fake.library().unwrap());
    let profiler = profiler.period(Duration::from_millis(5)).build().unwrap();
    let settings = AlwaysOn::new().budget(1.0).rate(1.0);
    let service = profiler.always_on(&settings).unwrap();
    let mut recorded = 0;
    while recorded < 3 {
        let unit = service.unit("request");
        fake.launch(Work::kernel(c"k").taking_ns(1_000));
        recorded += u64::from(unit.is_recorded());
    }
    let report = service.stop().unwrap();
    metrics::with_local_recorder(&recorder, || metrics.publish_always_on(&report));
    let values = scraped(&recorder);
    let launches = report.recorded().totals().launches;
    assert_eq!(sum(&values, "gpu_range_launches_total"), launches as f64);
    assert_eq!(sum(&values, "gpu_range_gpu_nanoseconds_total"), 0.0, "sums of windows are no sums");
    let estimate = report.ranges().next().unwrap().gpu_ns.unwrap();
    let labels = "range=\"request\",bound=\"value\"";
    let published = value(&values, "gpu_range_estimated_gpu_seconds", labels);
    assert!((published - estimate.value / 1e9).abs() < 1e-12, "{published} {estimate:?}");
    let drawn = value(&values, "gpu_profiler_windows_total", "outcome=\"drawn\"");
    assert_eq!(drawn, report.counts().drawn as f64);
    assert_eq!(value(&values, "gpu_profiler_cost_ratio", "part=\"budget\""), 1.0);
    let windows = value(&values, "gpu_profiler_cost_ratio", "part=\"windows\"");
    assert_eq!(windows, report.window_share());
}
