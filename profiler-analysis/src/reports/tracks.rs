//! Sampled tracks summed up over the session and over ranges.

use std::time::Duration;

use profiler_base::statistics::percent_of;
use profiler_base::units::nanoseconds as ns;
use rustc_hash::FxHashMap;

use super::Report;
use super::table::{Cells, Unit, Value, computed_row, row};
use profiler_core::profile::{Profile, RangeNode, Sampled, Track};
use profiler_core::series::{Kind, Source, Unit as TrackUnit};
use profiler_core::tables::Interval;
use profiler_core::tables::busy::united;

const NO_TRACKS: &str = "no sampler ran, or none saw anything";
const NO_RANGES: &str = "no range had work on a device while that was sampled";

row! {
    /// A sampled track over the whole session.
    pub(crate) TrackSum = "tracks" {
        /// The sampler.
        device: u32 => "GPU" Plain,
        /// The metric's label.
        source: Source,
        /// The metric's name in its source.
        metric: String => "Metric" Plain,
        /// The metric as its source names it.
        name: String,
        /// The unit of the values; for a total, its rate per second.
        unit: TrackUnit,
        /// The mean by time; absent for flags.
        mean: Option<f64> => |row, cells| cells.add("Mean", Unit::Plain, row.mean.map(|mean| row.with_unit(mean))),
        /// The median by time.
        median: f64 => |row, cells| cells.add("Med", Unit::Plain, row.with_unit(row.median)),
        /// The 95th percentile by time.
        p95: f64 => |row, cells| cells.add("P95", Unit::Plain, row.with_unit(row.p95)),
        /// The minimum.
        min: f64 => |row, cells| cells.add("Min", Unit::Plain, row.with_unit(row.min)),
        /// The maximum.
        max: f64 => |row, cells| {
            cells.add("Max", Unit::Plain, row.with_unit(row.max));
            cells.add("Unit", Unit::InFiles, row.unit.to_string())
        },
        /// The percentage of the time with a value other than 0.
        nonzero_percent: f64 => "Not 0" Percent,
        /// The sum of a total; absent for other kinds.
        total: Option<f64> => |row, cells| add_total(cells, row.total, row.total_unit),
        /// The unit of `total`.
        total_unit: TrackUnit,
        /// Samples with a known value.
        samples: u64 => "Samples" Plain,
        /// Their time.
        covered_ns: u64 => "Time" Duration,
        /// Gaps between samples, and their time, as counted by the sampler.
        gaps: u64 => "Gaps" Plain,
        /// See [`gaps`](Self::gaps).
        gap_ns: u64 => |row, cells| {
            cells.add("Gap Time", Unit::Duration, row.gap_ns);
            cells.add("Source", Unit::InFiles, row.source.to_string());
            cells.add("Name", Unit::Plain, &row.name)
        },
    }
}

impl TrackSum {
    fn with_unit(&self, value: f64) -> Value<'_> {
        Value::Measured(value, self.unit)
    }

    /// `None` without known values.
    pub(crate) fn from_track(track: &Track<'_>) -> Option<Self> {
        let rates = || track.rates().filter(|sample| sample.value.is_finite());
        let mut values: Vec<(f64, u64)> = rates()
            .map(|sample| (sample.value, ns(sample.end.saturating_sub(sample.start))))
            .collect();
        values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let time = |of: &dyn Fn(f64) -> bool| {
            let times = values.iter().filter(|(value, _)| of(*value)).map(|(_, ns)| *ns);
            times.fold(0, u64::saturating_add)
        };
        let covered_ns = time(&|_| true);
        let (&(min, _), &(max, _)) = (values.first()?, values.last()?);
        let nonzero_ns = time(&|value| value != 0.0);
        let (gaps, gap_time) = track.series().gaps();
        let all = (Duration::ZERO, Duration::MAX);
        Some(Self {
            device: track.device(),
            source: track.source(),
            metric: track.label().to_owned(),
            name: track.name().to_owned(),
            unit: track.rate_unit(),
            mean: track.mean(all.0, all.1).map(|mean| mean.value),
            median: percentile(&values, covered_ns, 0.5),
            p95: percentile(&values, covered_ns, 0.95),
            min,
            max,
            nonzero_percent: percent_of(nonzero_ns, covered_ns.into()),
            total: track.sum(all.0, all.1).map(|sum| sum.value),
            total_unit: track.unit(),
            samples: values.len() as u64,
            covered_ns,
            gaps,
            gap_ns: ns(gap_time),
        })
    }
}

/// The first of sorted values up to which this share of the time lies.
fn percentile(sorted: &[(f64, u64)], whole_ns: u64, share: f64) -> f64 {
    let wanted = whole_ns as f64 * share;
    let mut so_far = 0_u64;
    let reached = sorted.iter().find(|(_, ns)| {
        so_far = so_far.saturating_add(*ns);
        so_far as f64 >= wanted
    });
    reached.or(sorted.last()).map_or(f64::NAN, |(value, _)| *value)
}

/// Adds a total with its unit; both absent for other kinds.
fn add_total(cells: &mut Cells<'_>, total: Option<f64>, unit: TrackUnit) {
    cells.add("Total", Unit::Plain, total.map(|total| Value::Measured(total, unit)));
    cells.add("Total Unit", Unit::InFiles, total.map(|_| unit.to_string()));
}

computed_row! {
    /// A sampled track while the work of the ranges of one path was on its device.
    RangeTrackSum = "range_tracks" from (node: &RangeNode<'_>, path: String, track: &Track<'_>, mean: Sampled) {
        /// The path.
        path: String = path => "Range" Plain,
        /// The number of entries.
        instances: u64 = node.instances() => "Instances" Plain,
        /// The device's CUDA ordinal.
        device: u32 = track.device() => "GPU" Plain,
        /// The metric's label.
        metric: String = track.label().to_owned() => "Metric" Plain,
        /// The metric's name in its source.
        name: String = track.name().to_owned(),
        /// The unit of the mean; for a total, its rate per second.
        unit: TrackUnit = track.rate_unit(),
        /// The mean by time.
        mean: f64 = mean.value => |row, cells| {
            cells.add("Mean", Unit::Plain, Value::Measured(row.mean, row.unit));
            cells.add("Unit", Unit::InFiles, row.unit.to_string())
        },
        /// The sum of a total; absent for other kinds.
        total: Option<f64> = (track.kind() == Kind::Total).then_some(mean.value * mean.covered.as_secs_f64()) => |row, cells| add_total(cells, row.total, row.total_unit),
        /// The unit of `total`.
        total_unit: TrackUnit = track.unit(),
        /// Samples in the mean.
        samples: u64 = mean.samples as u64 => "Samples" Plain,
        /// Samples entirely in the time. Without any, the mean covers a longer time around it.
        whole: u64 = mean.whole as u64 => "Whole" Plain,
        /// The sampled part of the time.
        covered_ns: u64 = ns(mean.covered),
        /// The time from the first start to the last end of each instance's work, without overlaps.
        asked_ns: u64 = ns(mean.asked) => |row, cells| {
            cells.add("Time", Unit::Duration, row.asked_ns);
            cells.add("Known", Unit::Percent, percent_of(row.covered_ns, row.asked_ns.into()));
            cells.add("Name", Unit::InFiles, &row.name)
        },
    }
}

/// [`ProfileExt::track_sums`](crate::prelude::ProfileExt::track_sums).
pub(crate) fn track_sums(profile: &Profile) -> Report<TrackSum> {
    Report::new(
        profile.tracks().filter_map(|track| TrackSum::from_track(&track)).collect(),
        NO_TRACKS,
    )
}

/// [`ProfileExt::range_track_sums`](crate::prelude::ProfileExt::range_track_sums).
pub(crate) fn range_track_sums(profile: &Profile) -> Report<RangeTrackSum> {
    let tracks: Vec<Track<'_>> = profile.tracks().collect();
    let times = NodeTimes::new(profile, &tracks);
    let mut rows = Vec::new();
    for (_, node) in profile.walk() {
        let path = node.cut_path();
        for (at, mean) in times.means(&node, &tracks) {
            rows.push(RangeTrackSum::new(&node, path.clone(), &tracks[at], mean));
        }
    }
    Report::new(rows, NO_RANGES)
}

/// The times of the work of each node's ranges on each device.
pub(crate) struct NodeTimes(FxHashMap<(usize, u32), Vec<Interval>>);

impl NodeTimes {
    /// The times on the devices of tracks with samples.
    pub(crate) fn new(profile: &Profile, tracks: &[Track<'_>]) -> Self {
        let sampled = tracks.iter().filter(|track| !track.is_empty());
        let mut of_devices: FxHashMap<u32, Vec<(usize, Interval)>> =
            sampled.map(|track| (track.device(), Vec::new())).collect();
        let mut late: Vec<(u32, usize, Interval)> = Vec::new();
        for operation in profile.operations() {
            if let Some(work) = of_devices.get_mut(&operation.device())
                && let (Some(range), Some(time)) = (operation.range(), operation.row().time())
            {
                match operation.late_chain() {
                    None => work.push((range.id().at(), time)),
                    Some(chain) => {
                        late.extend(chain.map(|range| (operation.device(), range.id().at(), time)));
                    }
                }
            }
        }
        late.sort_unstable_by_key(|(device, ..)| *device);
        of_devices.retain(|device, work| {
            !work.is_empty() || late.binary_search_by_key(device, |(of, ..)| *of).is_ok()
        });
        let mut times = FxHashMap::default();
        if of_devices.is_empty() {
            return Self(times);
        }
        // Sorted by start, parents precede children; in reverse each span is complete when added.
        let ranges = &profile.tables().ranges;
        let mut order: Vec<usize> = (0..ranges.len()).collect();
        order.sort_by_key(|&row| (ranges[row].time.start_ns, row));
        let add = |span: &mut Option<Interval>, time: Interval| {
            let whole = span.get_or_insert(time);
            whole.start_ns = whole.start_ns.min(time.start_ns);
            whole.end_ns = whole.end_ns.max(time.end_ns);
        };
        for (device, work) in of_devices {
            let mut spans: Vec<Option<Interval>> = vec![None; ranges.len()];
            work.into_iter().for_each(|(row, time)| add(&mut spans[row], time));
            for &row in order.iter().rev() {
                if let (Some(parent), Some(span)) = (ranges[row].parent.get(), spans[row]) {
                    add(&mut spans[parent.at()], span);
                }
            }
            let first = late.partition_point(|(of, ..)| *of < device);
            let of_device = late[first..].iter().take_while(|(of, ..)| *of == device);
            of_device.for_each(|(_, row, time)| add(&mut spans[*row], *time));
            let mut of_nodes: FxHashMap<usize, Vec<Interval>> = FxHashMap::default();
            for (node, span) in profile.range_tree().of_range.iter().zip(spans) {
                if let Some(span) = span {
                    of_nodes.entry(node.at()).or_default().push(span);
                }
            }
            let united = of_nodes.into_iter().map(|(node, spans)| ((node, device), united(spans)));
            times.extend(united);
        }
        Self(times)
    }

    /// The mean of each track with samples in the times of a node, with the track's index.
    pub(crate) fn means(
        &self,
        node: &RangeNode<'_>,
        tracks: &[Track<'_>],
    ) -> impl Iterator<Item = (usize, Sampled)> {
        tracks.iter().enumerate().filter_map(|(at, track)| {
            let times = self.0.get(&(node.id().at(), track.device()))?;
            Some((at, track.mean_of(times)?))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn percentiles_are_by_time() {
        let values = [(1.0, 10), (2.0, 80), (9.0, 10)];
        let of = |share| percentile(&values, 100, share);
        assert_eq!(
            [of(0.0), of(0.1), of(0.11), of(0.5), of(0.9), of(0.95), of(1.0)],
            [1.0, 1.0, 2.0, 2.0, 2.0, 9.0, 9.0]
        );
    }

    #[test]
    fn times_are_of_ranges_with_work_and_of_devices_with_samples() {
        let file = include_bytes!("../../../tests/recordings/samples-h200.gpuprof");
        let profile = Profile::from_bytes(file).unwrap();
        let tracks: Vec<Track<'_>> = profile.tracks().collect();
        let times = NodeTimes::new(&profile, &tracks);
        let of = |name: &str| {
            let node = profile.nodes().find(|node| node.name() == name).unwrap();
            times.0.get(&(node.id().at(), 0)).map(Vec::len)
        };
        assert_eq!((of("copy"), of("copies"), of("idle")), (Some(200), Some(1), None));
        assert!(NodeTimes::new(&profile, &[]).0.is_empty());
    }
}
