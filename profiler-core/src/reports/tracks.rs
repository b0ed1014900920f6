//! What samplers saw, summed up: over the session, and over the ranges of each path.

use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::Report;
use super::table::{Cells, Row, Unit, Value};
use crate::base::units::nanoseconds as ns;
use crate::join::tables::Interval;
use crate::profile::{Profile, RangeNode, Sampled, Track, united};
use crate::record::series::{Kind, Source, Unit as TrackUnit};

const NO_TRACKS: &str = "no sampler ran, or none saw anything";
const NO_RANGES: &str = "no range had work on a device while that was sampled";

/// A sampled track over the whole session.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TrackSum {
    /// The device's CUDA ordinal.
    pub device: u32,
    /// Who sampled.
    pub source: Source,
    /// The metric for people.
    pub metric: String,
    /// The metric as its source names it.
    pub name: String,
    /// What the values are in: of a total, its unit a second.
    pub unit: TrackUnit,
    /// The mean by time; absent of flags.
    pub mean: Option<f64>,
    /// The value that half of the time is not above.
    pub median: f64,
    /// The value that 95 % of the time is not above.
    pub p95: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// Percent of the time in which it was not 0.
    pub nonzero_percent: f64,
    /// What a total came to in all; absent of all others.
    pub total: Option<f64>,
    /// What the total is in.
    pub total_unit: TrackUnit,
    /// Samples whose value is known.
    pub samples: u64,
    /// Their time.
    pub covered_ns: u64,
    /// Stretches between them of which nothing is known, and their time, as the sampler counted them.
    pub gaps: u64,
    /// See [`gaps`](Self::gaps).
    pub gap_ns: u64,
}

impl TrackSum {
    /// `None` if no value is known.
    pub(crate) fn of(track: &Track<'_>) -> Option<Self> {
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
        let (gaps, gap_ns) = track.series().gaps();
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
            nonzero_percent: share(nonzero_ns, covered_ns),
            total: track.sum(all.0, all.1).map(|sum| sum.value),
            total_unit: track.unit(),
            samples: values.len() as u64,
            covered_ns,
            gaps,
            gap_ns,
        })
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
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

/// With its unit; neither of what does not add up.
fn add_total(cells: &mut Cells<'_>, total: Option<f64>, unit: TrackUnit) {
    cells.add("Total", Unit::Plain, total.map(|total| Value::Measured(total, unit)));
    cells.add("Total Unit", Unit::InFiles, total.map(|_| unit.to_string()));
}

impl Row for TrackSum {
    const NAME: &'static str = "tracks";

    fn cells(&self, cells: &mut Cells<'_>) {
        let of = |value| Value::Measured(value, self.unit);
        cells.add("GPU", Unit::Plain, self.device).add("Metric", Unit::Plain, &self.metric);
        cells.add("Mean", Unit::Plain, self.mean.map(of)).add("Med", Unit::Plain, of(self.median));
        cells.add("P95", Unit::Plain, of(self.p95)).add("Min", Unit::Plain, of(self.min));
        cells.add("Max", Unit::Plain, of(self.max));
        cells.add("Unit", Unit::InFiles, self.unit.to_string());
        cells.add("Not 0", Unit::Percent, self.nonzero_percent);
        add_total(cells, self.total, self.total_unit);
        cells.add("Samples", Unit::Plain, self.samples);
        cells.add("Time", Unit::Duration, self.covered_ns).add("Gaps", Unit::Plain, self.gaps);
        cells.add("Gap Time", Unit::Duration, self.gap_ns);
        cells.add("Source", Unit::InFiles, self.source.to_string());
        cells.add("Name", Unit::Plain, &self.name);
    }
}

/// A sampled track while the work of the ranges of one path was on its device.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RangeTrackSum {
    /// The path.
    pub path: String,
    /// How often it was entered.
    pub instances: u64,
    /// The device's CUDA ordinal.
    pub device: u32,
    /// The metric for people.
    pub metric: String,
    /// The metric as its source names it.
    pub name: String,
    /// What the mean is in: of a total, its unit a second.
    pub unit: TrackUnit,
    /// The mean by time.
    pub mean: f64,
    /// What a total came to; absent of all others.
    pub total: Option<f64>,
    /// What the total is in.
    pub total_unit: TrackUnit,
    /// The samples that it is made of.
    pub samples: u64,
    /// Those that lie whole in the time. With none the value is that of a longer time around.
    pub whole: u64,
    /// How much of the time has samples.
    pub covered_ns: u64,
    /// From the first start to the last end of each instance's work on the device; what several have counts once.
    pub asked_ns: u64,
}

impl Row for RangeTrackSum {
    const NAME: &'static str = "range_tracks";

    fn cells(&self, cells: &mut Cells<'_>) {
        cells.add("Range", Unit::Plain, &self.path);
        cells.add("Instances", Unit::Plain, self.instances).add("GPU", Unit::Plain, self.device);
        cells.add("Metric", Unit::Plain, &self.metric);
        cells.add("Mean", Unit::Plain, Value::Measured(self.mean, self.unit));
        cells.add("Unit", Unit::InFiles, self.unit.to_string());
        add_total(cells, self.total, self.total_unit);
        cells.add("Samples", Unit::Plain, self.samples).add("Whole", Unit::Plain, self.whole);
        cells.add("Time", Unit::Duration, self.asked_ns);
        cells.add("Known", Unit::Percent, share(self.covered_ns, self.asked_ns));
        cells.add("Name", Unit::InFiles, &self.name);
    }
}

impl Profile {
    /// Every [track](Self::tracks) with samples, summed up over the session.
    pub fn track_sums(&self) -> Report<TrackSum> {
        Report::new(self.tracks().filter_map(|track| TrackSum::of(&track)).collect(), NO_TRACKS)
    }

    /// Every [track](Self::tracks) summed up over the ranges of each path, by path in the order of the report: while their
    /// work and that of ranges within them was on the track's device, whatever else ran there meanwhile. Flags are left
    /// out. Costs as much as a look at each sample for every range around it.
    pub fn range_track_sums(&self) -> Report<RangeTrackSum> {
        let tracks: Vec<Track<'_>> = self.tracks().collect();
        let times = NodeTimes::of(self, &tracks);
        let mut rows = Vec::new();
        for (_, node) in self.walk() {
            let path = node.cut_path();
            for (at, mean) in times.means(&node, &tracks) {
                let track = &tracks[at];
                let total = track.kind() == Kind::Total;
                rows.push(RangeTrackSum {
                    path: path.clone(),
                    instances: node.instances(),
                    device: track.device(),
                    metric: track.label().to_owned(),
                    name: track.name().to_owned(),
                    unit: track.rate_unit(),
                    mean: mean.value,
                    total: total.then_some(mean.value * mean.covered.as_secs_f64()),
                    total_unit: track.unit(),
                    samples: mean.samples as u64,
                    whole: mean.whole as u64,
                    covered_ns: ns(mean.covered),
                    asked_ns: ns(mean.asked),
                });
            }
        }
        Report::new(rows, NO_RANGES)
    }
}

/// When the work of the ranges of each node was on each device.
pub(crate) struct NodeTimes(FxHashMap<(usize, u32), Vec<Interval>>);

impl NodeTimes {
    /// Of the devices of these tracks, those that have samples.
    pub(crate) fn of(profile: &Profile, tracks: &[Track<'_>]) -> Self {
        let sampled = tracks.iter().filter(|track| !track.is_empty());
        let mut of_devices: FxHashMap<u32, Vec<(usize, Interval)>> =
            sampled.map(|track| (track.device(), Vec::new())).collect();
        for operation in profile.operations() {
            if let Some(work) = of_devices.get_mut(&operation.device())
                && let (Some(range), Some(time)) = (operation.range(), operation.row().time())
            {
                work.push((range.id.at(), time));
            }
        }
        of_devices.retain(|_, work| !work.is_empty());
        let mut times = FxHashMap::default();
        if of_devices.is_empty() {
            return Self(times);
        }
        // One around another stands before it by start; backwards every one is whole before it is added.
        let ranges = &profile.store.ranges;
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
            let mut of_nodes: FxHashMap<usize, Vec<Interval>> = FxHashMap::default();
            for (node, span) in profile.tree.of_range.iter().zip(spans) {
                if let Some(span) = span {
                    of_nodes.entry(node.at()).or_default().push(span);
                }
            }
            let united = of_nodes.into_iter().map(|(node, spans)| ((node, device), united(spans)));
            times.extend(united);
        }
        Self(times)
    }

    /// The mean of each track that has samples then, with the track's place in the list.
    pub(crate) fn means(
        &self,
        node: &RangeNode<'_>,
        tracks: &[Track<'_>],
    ) -> impl Iterator<Item = (usize, Sampled)> {
        tracks.iter().enumerate().filter_map(|(at, track)| {
            let times = self.0.get(&(node.id.at(), track.device()))?;
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
        let file = include_bytes!("../../tests/recordings/samples-h200.gpuprof");
        let profile = Profile::from_bytes(file).unwrap();
        let tracks: Vec<Track<'_>> = profile.tracks().collect();
        let times = NodeTimes::of(&profile, &tracks);
        let of = |name: &str| {
            let node = profile.nodes().find(|node| node.name() == name).unwrap();
            times.0.get(&(node.id.at(), 0)).map(Vec::len)
        };
        assert_eq!((of("copy"), of("copies"), of("idle")), (Some(200), Some(1), None));
        assert!(NodeTimes::of(&profile, &[]).0.is_empty());
    }
}
