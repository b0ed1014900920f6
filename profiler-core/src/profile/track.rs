//! Tracks: sampled values of a device, with sums and means of ranges, steps and intervals.

use std::ops::Range as Rows;
use std::time::Duration;

use profiler_base::getters;
use profiler_base::units::nanoseconds;

use super::{Profile, Range, RangeNode};
use crate::join::busy::united;
use crate::join::tables::Interval;
use crate::record::series::{Kind, Metric, Series, Source, Unit};

/// One column of a [`Series`]: a metric of a device over time. Samples cover all work on the
/// device, including other threads and processes.
#[derive(Debug, Clone, Copy)]
pub struct Track<'a> {
    profile: &'a Profile,
    series: &'a Series,
    column: usize,
}

/// One sample of a track.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct TrackSample {
    /// The start since the session's start.
    pub start: Duration,
    /// The end since the session's start.
    pub end: Duration,
    /// The value; NaN if unknown. Other non-finite values are treated as unknown.
    pub value: f64,
}

/// The value of several samples.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Sampled {
    /// A sum in [`Track::unit`], a mean in [`Track::rate_unit`], or a share, 0 to 1.
    pub value: f64,
    /// The number of samples, partial ones included.
    pub samples: usize,
    /// The number of samples entirely in the interval. With 0, the interval is too short: the value
    /// covers a longer one.
    pub whole: usize,
    /// The time covered by samples.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "covered_ns", serialize_with = "profiler_base::statistics::as_ns")
    )]
    pub covered: Duration,
    /// The requested time.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "asked_ns", serialize_with = "profiler_base::statistics::as_ns")
    )]
    pub asked: Duration,
}

impl Sampled {
    /// The share of the time covered by samples, 0 to 1.
    pub fn coverage(&self) -> f64 {
        if self.asked.is_zero() { 0.0 } else { self.covered.div_duration_f64(self.asked) }
    }
}

impl Profile {
    /// The series of all samplers. A sampler that failed to start has a series with a
    /// [`failure`](Series::failure).
    pub fn series(&self) -> impl ExactSizeIterator<Item = &Series> {
        self.store.series.iter().map(|series| &**series)
    }

    /// All columns of all [series](Self::series).
    pub fn tracks(&self) -> impl Iterator<Item = Track<'_>> {
        self.series().flat_map(|series| self.tracks_of(series))
    }

    /// All columns of one series.
    pub(crate) fn tracks_of<'a>(&'a self, series: &'a Series) -> impl Iterator<Item = Track<'a>> {
        let columns = 0..series.metrics().len();
        columns.map(move |column| Track { profile: self, series, column })
    }

    /// The track of a device, by CUDA ordinal, and metric, such as `dram__bytes_read.sum`.
    pub fn track(&self, device: u32, name: &str) -> Option<Track<'_>> {
        self.tracks().find(|track| track.device() == device && track.name() == name)
    }
}

impl<'a> Track<'a> {
    getters! {
        /// The series of the column.
        series: &'a Series = series;
        /// The device's CUDA ordinal.
        device: u32 = series.device();
        /// The origin of the samples.
        source: Source = series.source();
        /// The unit of the values.
        unit: Unit = metric().unit;
        /// The way in which values are combined.
        kind: Kind = metric().kind;
        /// The number of samples.
        len: usize = series.len();
        /// True if it has no samples.
        is_empty: bool = series.is_empty();
    }

    /// Its metric.
    pub fn metric(&self) -> &'a Metric {
        &self.series.metrics()[self.column]
    }

    /// The name at its source: `dram__bytes_read.sum`.
    pub fn name(&self) -> &'a str {
        &self.metric().name
    }

    /// The name for people: `DRAM read`.
    pub fn label(&self) -> &'a str {
        &self.metric().label
    }

    /// The unit of [rates](Self::rates): per second for totals, otherwise the unit itself.
    pub fn rate_unit(&self) -> Unit {
        let unit = self.unit();
        if self.kind() == Kind::Total { unit.per_second().unwrap_or(Unit::Other) } else { unit }
    }

    /// The samples in time order.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = TrackSample> + Clone + use<'a> {
        let Self { profile, series, column } = *self;
        let since_start = |ns| profile.since_start(ns);
        (0..series.len()).map(move |row| TrackSample {
            start: since_start(series.start_ns()[row]),
            end: since_start(series.end_ns()[row]),
            value: series.value(row, column),
        })
    }

    /// The samples with totals per second.
    pub fn rates(&self) -> impl ExactSizeIterator<Item = TrackSample> + Clone + use<'a> {
        let is_total = self.kind() == Kind::Total;
        let starts_and_ends = self.series;
        self.samples().enumerate().map(move |(row, mut sample)| {
            if is_total {
                let length = length(starts_and_ends, row) as f64 / 1e9;
                sample.value = if length > 0.0 { sample.value / length } else { f64::NAN };
            }
            sample
        })
    }

    /// The sum of samples in an interval since the session's start. Partial samples count
    /// proportionally. Uncovered time is not extrapolated: see [`Sampled::coverage`]. `None` if it
    /// is not a total, or no sample overlaps the interval.
    pub fn sum(&self, from: Duration, to: Duration) -> Option<Sampled> {
        self.sum_of(&[self.interval(from, to)])
    }

    /// The mean over an interval since the session's start: totals per second, other values
    /// weighted by time. `None` if no sample overlaps the interval, or the values are flags.
    pub fn mean(&self, from: Duration, to: Duration) -> Option<Sampled> {
        self.mean_of(&[self.interval(from, to)])
    }

    fn interval(&self, from: Duration, to: Duration) -> Interval {
        let start_ns = self.profile.store.session.window_ns.0;
        let at = |time: Duration| start_ns.saturating_add(nanoseconds(time));
        Interval { start_ns: at(from), end_ns: at(to) }
    }

    fn value(&self, row: usize) -> f64 {
        self.series.value(row, self.column)
    }

    /// The rows that overlap an interval.
    fn rows(&self, time: Interval) -> Rows<usize> {
        let first = self.series.end_ns().partition_point(|end| *end <= time.start_ns);
        let end = self.series.start_ns().partition_point(|start| *start < time.end_ns);
        first..end.max(first)
    }

    pub(crate) fn sum_of(&self, times: &[Interval]) -> Option<Sampled> {
        (self.kind() == Kind::Total).then(|| self.add(times, |value| value).sum())?
    }

    /// The time-weighted mean over sorted, disjoint times.
    pub fn mean_of(&self, times: &[Interval]) -> Option<Sampled> {
        match self.kind() {
            Kind::Total => {
                let sum = self.add(times, |value| value).sum()?;
                let value = sum.value / sum.covered.as_secs_f64();
                value.is_finite().then_some(Sampled { value, ..sum })
            }
            _ if self.unit() == Unit::Flags => None,
            _ => self.add(times, |value| value).mean(),
        }
    }

    /// The share of the times, with values that `of` maps to 1 or 0.
    pub(super) fn share_of(&self, times: &[Interval], of: impl Fn(f64) -> f64) -> Option<Sampled> {
        self.add(times, of).mean()
    }

    /// Sums over sorted, disjoint times.
    fn add(&self, times: &[Interval], of: impl Fn(f64) -> f64) -> Sums {
        let mut sums = Sums::default();
        let mut counted = 0;
        for &time in times {
            sums.asked_ns = sums.asked_ns.saturating_add(time.ns());
            for row in self.rows(time) {
                let value = self.value(row);
                if !value.is_finite() {
                    continue;
                }
                let (start, end) = (self.series.start_ns()[row], self.series.end_ns()[row]);
                let within = end.min(time.end_ns).saturating_sub(start.max(time.start_ns));
                if within == 0 {
                    continue;
                }
                let value = of(value);
                let share = within as f64 / (end - start) as f64;
                sums.shares += value * share;
                sums.weighed += value * within as f64;
                sums.covered_ns = sums.covered_ns.saturating_add(within);
                sums.whole += usize::from(within == end - start);
                // Two times may overlap the same sample.
                sums.samples += usize::from(row >= counted);
                counted = counted.max(row + 1);
            }
        }
        sums
    }
}

fn length(series: &Series, row: usize) -> u64 {
    series.end_ns()[row].saturating_sub(series.start_ns()[row])
}

/// Accumulated samples.
#[derive(Debug, Default)]
struct Sums {
    /// Values weighted by the share of the sample.
    shares: f64,
    /// Values weighted by nanoseconds.
    weighed: f64,
    samples: usize,
    whole: usize,
    covered_ns: u64,
    asked_ns: u64,
}

impl Sums {
    /// `None` without samples, or if the value overflows.
    fn sampled(&self, value: f64) -> Option<Sampled> {
        (self.samples > 0 && value.is_finite()).then_some(Sampled {
            value,
            samples: self.samples,
            whole: self.whole,
            covered: Duration::from_nanos(self.covered_ns),
            asked: Duration::from_nanos(self.asked_ns),
        })
    }

    fn sum(&self) -> Option<Sampled> {
        self.sampled(self.shares)
    }

    fn mean(&self) -> Option<Sampled> {
        self.sampled(self.weighed / self.covered_ns as f64)
    }
}

impl<'a> Range<'a> {
    /// The interval from the first start to the last end of its operations on a device: nsys's
    /// projection.
    pub(crate) fn projection(&self, device: u32) -> Option<Interval> {
        let on_device =
            self.operations().filter(|operation| operation.work().place.device == device);
        on_device.filter_map(|operation| operation.row().time()).fold(None, |so_far, time| {
            let known = so_far.unwrap_or(time);
            Some(Interval {
                start_ns: known.start_ns.min(time.start_ns),
                end_ns: known.end_ns.max(time.end_ns),
            })
        })
    }

    /// The [sum](Track::sum) over its projection: the time from the first start to the last end of
    /// its operations on the track's device, with descendants. Work of other ranges in that time is
    /// included.
    ///
    /// `None` if it has no operation with timestamps there, the track is not a total, or no sample
    /// overlaps. See [`Sampled::whole`] for ranges shorter than the sampling interval. Each call
    /// visits all operations of the range; `range_track_sums` of `profiler_analysis` visits them
    /// once for all paths and tracks.
    pub fn sum(&self, track: &Track<'_>) -> Option<Sampled> {
        track.sum_of(&[self.projection(track.device())?])
    }

    /// The [mean](Track::mean) over the same time and at the same cost as [`sum`](Self::sum). For
    /// the host time use `track.mean(range.start(), range.end())`.
    pub fn mean(&self, track: &Track<'_>) -> Option<Sampled> {
        track.mean_of(&[self.projection(track.device())?])
    }
}

impl<'a> RangeNode<'a> {
    fn projections(&self, device: u32) -> Vec<Interval> {
        united(self.ranges().filter_map(|range| range.projection(device)).collect())
    }

    /// [`Range::sum`] over all instances; time shared by two instances counts once. Visits all
    /// operations on each call; see `range_track_sums` of `profiler_analysis` for many paths or
    /// tracks.
    pub fn sum(&self, track: &Track<'_>) -> Option<Sampled> {
        track.sum_of(&self.projections(track.device()))
    }

    /// [`Range::mean`] over all instances, like [`sum`](Self::sum).
    pub fn mean(&self, track: &Track<'_>) -> Option<Sampled> {
        track.mean_of(&self.projections(track.device()))
    }
}
