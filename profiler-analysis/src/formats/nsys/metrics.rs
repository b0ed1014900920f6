//! `GPU_METRICS` of a capture: hardware counters sampled by nsys or by this crate.
//!
//! A row is one value, valid from its timestamp on. A sample covers the 100 us after its timestamp,
//! not before it: its correlation with kernels of known times is 0.99 against 0.61 (H200, nsys
//! 2025.3, 10 kHz). Values are whole numbers: percent, or hertz for names with MHz.

use std::time::Duration;

use profiler_base::statistics::upper_median;
use rustc_hash::FxHashMap;

use super::file::File;
use super::format::METRIC_ENDS;
use super::schema;
use crate::error::Error;
use profiler_core::series::{Kind, Metric, Series, Source, Unit};

/// The maximum number of metrics read for a device: nsys's sets have about 30, a damaged file any
/// number.
const MOST_METRICS: usize = 256;

/// The maximum number of cells of a series per value: nsys writes all metrics of a set at each
/// timestamp.
const MOST_CELLS_A_VALUE: usize = 8;

/// Timestamp, metric index and value.
type Value = (u64, usize, f64);

/// The series of each device, and the number of unreadable rows.
pub(super) fn read(file: &File) -> Result<(Vec<Series>, u64), Error> {
    let mut unreadable = 0;
    // By type, whose last byte is nsys's number of the device.
    let mut metrics: FxHashMap<i64, Vec<(i64, Metric)>> = FxHashMap::default();
    file.rows(("TARGET_INFO_GPU_METRICS", "typeId, metricId, metricName"), |row| {
        let (Some(of), Some(id), Some(name)) = (row.number(0), row.number(1), row.text(2)) else {
            return unreadable += 1;
        };
        let metrics = metrics.entry(of).or_default();
        if metrics.len() < MOST_METRICS && metrics.iter().all(|(known, _)| *known != id) {
            metrics.push((id, metric(&name)));
        }
    })?;
    for metrics in metrics.values_mut() {
        metrics.sort_by_key(|(id, _)| *id);
    }
    let mut places: FxHashMap<(i64, i64), usize> = FxHashMap::default();
    for (of, metrics) in &metrics {
        places.extend(metrics.iter().enumerate().map(|(place, (id, _))| ((*of, *id), place)));
    }
    let mut ordinals: FxHashMap<i64, u32> = FxHashMap::default();
    file.rows(schema::DEVICE_IDS, |row| {
        if let (Some(gpu), Some(ordinal)) = (row.number(0), row.number(1)) {
            ordinals.entry(gpu).or_insert(ordinal);
        }
    })?;

    let mut values: FxHashMap<i64, Vec<Value>> = FxHashMap::default();
    file.rows(("GPU_METRICS", "timestamp, typeId, metricId, value"), |row| {
        let fields = (row.number::<i64>(0), row.number(1), row.number(2), row.real(3));
        let (Some(at), Some(of), Some(id), Some(value)) = fields else {
            return unreadable += 1;
        };
        let Some(&place) = places.get(&(of, id)) else { return unreadable += 1 };
        // nsys starts sampling before the session.
        if let Some(at) = file.at(at).filter(|at| *at >= file.first_ns()) {
            values.entry(of).or_default().push((at, place, value));
        }
    })?;

    let mut all = Vec::new();
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_unstable_by_key(|(of, _)| *of);
    for (of, mut values) in values {
        let gpu = of & 0xff;
        let device = ordinals.get(&gpu).copied().unwrap_or(u32::try_from(gpu).unwrap_or(0));
        let metrics = metrics.remove(&of).unwrap_or_default();
        let metrics = metrics.into_iter().map(|(_, metric)| metric).collect();
        values.sort_by_key(|&(at, place, value)| (at, place, value.to_bits()));
        all.extend(all_series(device, metrics, values));
    }
    all.sort_by_key(Series::device);
    Ok((all, unreadable))
}

/// `SMs Active [Throughput %]`.
fn metric(name: &str) -> Metric {
    let found = METRIC_ENDS.into_iter().find_map(|(end, unit, kind)| {
        let label = name.strip_suffix(end)?;
        Some(Metric::new(name, label.trim_end(), unit, kind))
    });
    found.unwrap_or_else(|| Metric::new(name, name, Unit::Other, Kind::Mean))
}

/// Returns one series from values in order of time, or a series for each metric if most cells would
/// be empty.
fn all_series(device: u32, metrics: Vec<Metric>, values: Vec<Value>) -> Vec<Series> {
    let samples = values.chunk_by(|a, b| a.0 == b.0).count();
    if samples.saturating_mul(metrics.len()) <= MOST_CELLS_A_VALUE * values.len() {
        return vec![series(device, metrics, &values)];
    }
    let mut of_metrics: Vec<Vec<Value>> = metrics.iter().map(|_| Vec::new()).collect();
    for (at, place, value) in values {
        of_metrics[place].push((at, 0, value));
    }
    let some = metrics.into_iter().zip(of_metrics).filter(|(_, values)| !values.is_empty());
    some.map(|(metric, values)| series(device, vec![metric], &values)).collect()
}

/// Makes a series from values by time. A sample ends at the next one, or after the usual interval.
fn series(device: u32, metrics: Vec<Metric>, values: &[Value]) -> Series {
    let samples: Vec<_> = values.chunk_by(|a, b| a.0 == b.0).collect();
    let starts: Vec<u64> = samples.iter().map(|sample| sample[0].0).collect();
    let intervals: Vec<u64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let usual = upper_median(intervals).unwrap_or(0);
    let columns = metrics.len();
    let mut series = Series::new(device, Source::Counters, Duration::from_nanos(usual), metrics);
    let (mut gaps, mut gap_ns) = (0, 0);
    let mut of_row = vec![f64::NAN; columns];
    for (row, sample) in samples.iter().enumerate() {
        let start = starts[row];
        let usual_end = start.saturating_add(usual);
        let end = match starts.get(row + 1) {
            Some(&next) if next > usual_end.saturating_add(usual / 2) => {
                gaps += 1;
                gap_ns += next - usual_end;
                usual_end
            }
            Some(&next) => next,
            None => usual_end,
        };
        of_row.fill(f64::NAN);
        for &(_, place, value) in *sample {
            of_row[place] = value;
        }
        // Samples are sorted and complete, so `push` accepts them.
        let _: Result<(), profiler_core::Error> = series.push(start, end, &of_row);
    }
    series.with_losses(0, 0, gaps, Duration::from_nanos(gap_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::nsys::format::metric_name;

    #[test]
    fn sparse_metrics_are_separate() {
        let metrics = |count: usize| -> Vec<Metric> {
            (0..count).map(|place| metric(&format!("metric {place} [Throughput %]"))).collect()
        };
        // One value at a time, of 200 of 256 metrics in turn.
        let values = (0..10_000_usize).map(|at| (at as u64 * 10, at % 200, at as f64)).collect();
        let all = all_series(3, metrics(256), values);
        assert_eq!(all.len(), 200);
        let second = &all[1];
        assert_eq!((second.device(), second.metrics(), second.len()), (3, &metrics(2)[1..], 50));
        assert_eq!(second.column(0).take(2).collect::<Vec<_>>(), [1.0, 201.0]);
        assert_eq!(
            (second.start_ns()[1], second.end_ns()[0], second.gaps()),
            (2_010, 2_010, (0, Duration::ZERO))
        );
        // As nsys writes them, except for one missing value.
        let dense = (0..80).filter(|at| *at != 7).map(|at| (at / 8 * 10, at as usize % 8, 1.0));
        let [all] = &all_series(0, metrics(8), dense.collect())[..] else { panic!("not one") };
        assert_eq!((all.len(), all.metrics().len()), (10, 8));
        assert!(all.value(0, 7).is_nan() && all.value(1, 7) == 1.0);
    }

    #[test]
    fn names_contain_the_unit() {
        let of = |name| {
            let metric = metric(name);
            (metric.label, metric.unit)
        };
        assert_eq!(of("SMs Active [Throughput %]"), ("SMs Active".to_owned(), Unit::Percent));
        assert_eq!(
            of("GPC Clock Frequency [MHz]"),
            ("GPC Clock Frequency".to_owned(), Unit::Hertz)
        );
        assert_eq!(of("DRAM read [B per sample]"), ("DRAM read".to_owned(), Unit::Bytes));
        for (_, unit, kind) in METRIC_ENDS {
            let metric = metric(&metric_name("of a part", unit, kind));
            assert_eq!((&*metric.label, metric.unit, metric.kind), ("of a part", unit, kind));
        }
        let warps = "Pixel Warps in Flight [Avg Warps per Cycle]";
        assert_eq!(of(warps), (warps.to_owned(), Unit::Other));
    }
}
