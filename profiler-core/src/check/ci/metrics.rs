//! Metrics for programs that track them over commits.

use profiler_base::text::{json_pretty, shortened};
use serde_json::{Map, Value, json};

use super::{CiMetric, CiReport, unique_names};

/// The maximum number of characters of the name of a measure of Bencher.
const MEASURE_WIDTH: usize = 64;

impl CiReport {
    /// Bencher Metric Format (JSON, for `bencher run --adapter json`). Nanoseconds are the built-in
    /// measure `latency`; other units are measures of their name.
    #[must_use]
    pub fn to_bencher(&self) -> String {
        let benchmarks = self.finite_metrics().map(|(name, metric)| {
            let measure = match &*metric.unit {
                "ns" => "latency".to_owned(),
                "" => "value".to_owned(),
                unit => shortened(unit, MEASURE_WIDTH),
            };
            let mut values = Map::new();
            values.insert("value".to_owned(), json!(metric.value));
            if let Some((low, high)) = metric.bounds {
                values.insert("lower_value".to_owned(), json!(low));
                values.insert("upper_value".to_owned(), json!(high));
            }
            (name, json!({ measure: values }))
        });
        text(&Value::Object(benchmarks.collect()))
    }

    /// JSON for the GitHub action `benchmark-action/github-action-benchmark`, tool
    /// `customSmallerIsBetter`. `range` is the larger distance of the bounds from the value.
    #[must_use]
    pub fn to_benchmark_action(&self) -> String {
        let entries = self.finite_metrics().map(|(name, metric)| {
            let unit = shortened(&metric.unit, MEASURE_WIDTH);
            let mut entry = json!({ "name": name, "unit": unit, "value": metric.value });
            if let Some((low, high)) = metric.bounds {
                let distance = (high - metric.value).max(metric.value - low).max(0.0);
                entry["range"] = json!(format!("± {distance:.1}"));
            }
            if !metric.details.is_empty() {
                entry["extra"] = json!(shortened(&metric.details, 1000));
            }
            entry
        });
        text(&Value::Array(entries.collect()))
    }

    /// Excludes metrics that are not finite: JSON cannot represent them.
    fn finite_metrics(&self) -> impl Iterator<Item = (String, &CiMetric)> {
        let metrics: Vec<&CiMetric> =
            self.metrics.iter().filter(|metric| metric.value.is_finite()).collect();
        let names = unique_names(metrics.iter().map(|metric| &*metric.name));
        names.into_iter().zip(metrics)
    }
}

fn text(value: &Value) -> String {
    // Serialising a value as JSON cannot fail.
    json_pretty(value).unwrap_or_default() + "\n"
}
