//! What a sampler saw of one thing over time, and what it came to in a range, in a step or at any time.

use std::ops::Range as Rows;
use std::time::Duration;

use super::{Profile, Range, RangeNode};
use crate::base::order;
use crate::base::units::nanoseconds;
use crate::join::tables::Interval;
use crate::record::series::{Kind, Metric, Series, Source, Unit};

/// One column of a [`Series`]: a metric of a device over time.
///
/// Samples are of the device, not of a range: all that ran on it at a time counts, of other threads and processes too.
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
    /// When it begins, since the session's start.
    pub start: Duration,
    /// When it ends, since the session's start.
    pub end: Duration,
    /// Its value; not a number where it is not known. One that is not finite counts as not known.
    pub value: f64,
}

/// What the samples of some time came to, and how many there were.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct Sampled {
    /// A sum in [`Track::unit`], a mean in [`Track::rate_unit`], or a share, 0 to 1.
    pub value: f64,
    /// The samples that it is made of, those that lie in the time in part among them.
    pub samples: usize,
    /// Those that lie in it whole. With none the value is that of a longer time around: the time is too short for the
    /// interval.
    pub whole: usize,
    /// How much of the time has samples.
    #[serde(rename = "covered_ns", serialize_with = "as_ns")]
    pub covered: Duration,
    /// The time that was asked for.
    #[serde(rename = "asked_ns", serialize_with = "as_ns")]
    pub asked: Duration,
}

fn as_ns<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(nanoseconds(*time))
}

impl Sampled {
    /// The share of the time that has samples, 0 to 1.
    pub fn coverage(&self) -> f64 {
        if self.asked.is_zero() { 0.0 } else { self.covered.div_duration_f64(self.asked) }
    }
}

impl Profile {
    /// What samplers saw of the devices, as they gave it. One that could not begin is among them, with its
    /// [`failure`](Series::failure).
    pub fn series(&self) -> impl ExactSizeIterator<Item = &Series> {
        self.store.series.iter().map(|series| &**series)
    }

    /// Every column of every [series](Self::series).
    pub fn tracks(&self) -> impl Iterator<Item = Track<'_>> {
        self.series().flat_map(|series| self.tracks_of(series))
    }

    /// Every column of one of its series.
    pub(crate) fn tracks_of<'a>(&'a self, series: &'a Series) -> impl Iterator<Item = Track<'a>> {
        let columns = 0..series.metrics().len();
        columns.map(move |column| Track { profile: self, series, column })
    }

    /// The track of a device, by its CUDA ordinal, with this name: `dram__bytes_read.sum`. `None` if there is none.
    pub fn track(&self, device: u32, name: &str) -> Option<Track<'_>> {
        self.tracks().find(|track| track.device() == device && track.name() == name)
    }
}

impl<'a> Track<'a> {
    /// The series that it is a column of.
    pub fn series(&self) -> &'a Series {
        self.series
    }

    /// Its metric.
    pub fn metric(&self) -> &'a Metric {
        &self.series.metrics()[self.column]
    }

    /// The device's CUDA ordinal.
    pub fn device(&self) -> u32 {
        self.series.device()
    }

    /// Who sampled.
    pub fn source(&self) -> Source {
        self.series.source()
    }

    /// The metric as its source names it: `dram__bytes_read.sum`.
    pub fn name(&self) -> &'a str {
        &self.metric().name
    }

    /// The metric for people: `DRAM read`.
    pub fn label(&self) -> &'a str {
        &self.metric().label
    }

    /// What its values are in.
    pub fn unit(&self) -> Unit {
        self.metric().unit
    }

    /// What its [rates](Self::rates) are in: what a total comes to in a second, and else its unit.
    pub fn rate_unit(&self) -> Unit {
        let unit = self.unit();
        if self.kind() == Kind::Total { unit.per_second().unwrap_or(Unit::Other) } else { unit }
    }

    /// How its values are added up.
    pub fn kind(&self) -> Kind {
        self.metric().kind
    }

    /// How many samples it has.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// True if it has none.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Its samples, in the order of time.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = TrackSample> + Clone + use<'a> {
        let Self { profile, series, column } = *self;
        let since_start = |ns| profile.since_start(ns);
        (0..series.len()).map(move |row| TrackSample {
            start: since_start(series.start_ns()[row]),
            end: since_start(series.end_ns()[row]),
            value: series.value(row, column),
        })
    }

    /// The same as people look at them: of a total, what it comes to in a second.
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

    /// What its samples came to in a time, since the session's start. A sample that lies in it in part counts by the part of
    /// its length. What has no samples is not made up for: see [`Sampled::coverage`].
    ///
    /// `None` if it is not a total, or no sample lies in that time.
    pub fn sum(&self, from: Duration, to: Duration) -> Option<Sampled> {
        self.sum_of(&[self.interval(from, to)])
    }

    /// The mean over a time, since the session's start: of a total what it comes to in a second, of all else weighed by the
    /// time that samples have in it.
    ///
    /// `None` if no sample lies in that time, or the values are flags.
    pub fn mean(&self, from: Duration, to: Duration) -> Option<Sampled> {
        self.mean_of(&[self.interval(from, to)])
    }

    /// The share of a time, since the session's start, in which the value is of some kind, 0 to 1: how long a GPU was
    /// throttled, how long it was busy. `None` if no sample lies in that time.
    #[must_use]
    pub fn share(
        &self,
        from: Duration,
        to: Duration,
        is_so: impl Fn(f64) -> bool,
    ) -> Option<Sampled> {
        self.share_of(&[self.interval(from, to)], |value| f64::from(u8::from(is_so(value))))
    }

    /// The least and the greatest value of the samples that lie in a time whole or in part, in [`unit`](Self::unit): of a
    /// total what a sample came to, where [`TrackSum`](crate::reports::TrackSum) has so much a second. `None` if there is
    /// none.
    pub fn extremes(&self, from: Duration, to: Duration) -> Option<(f64, f64)> {
        let values = self.rows(self.interval(from, to)).map(|row| self.value(row));
        values.filter(|value| value.is_finite()).fold(None, |so_far, value| {
            let (least, greatest) = so_far.unwrap_or((value, value));
            Some((value.min(least), value.max(greatest)))
        })
    }

    fn interval(&self, from: Duration, to: Duration) -> Interval {
        let start_ns = self.profile.store.session.window_ns.0;
        let at = |time: Duration| start_ns.saturating_add(nanoseconds(time));
        Interval { start_ns: at(from), end_ns: at(to) }
    }

    fn value(&self, row: usize) -> f64 {
        self.series.value(row, self.column)
    }

    /// The rows that lie in a time, whole or in part.
    fn rows(&self, time: Interval) -> Rows<usize> {
        let first = self.series.end_ns().partition_point(|end| *end <= time.start_ns);
        let end = self.series.start_ns().partition_point(|start| *start < time.end_ns);
        first..end.max(first)
    }

    pub(crate) fn sum_of(&self, times: &[Interval]) -> Option<Sampled> {
        (self.kind() == Kind::Total).then(|| self.add(times, |value| value).sum())?
    }

    pub(crate) fn mean_of(&self, times: &[Interval]) -> Option<Sampled> {
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

    /// The share of times, where each value counts as 1 or 0.
    pub(super) fn share_of(&self, times: &[Interval], of: impl Fn(f64) -> f64) -> Option<Sampled> {
        self.add(times, of).mean()
    }

    /// Adds up over times that are in order and apart.
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
                // Two times may lie in the same sample.
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

/// What samples came to.
#[derive(Debug, Default)]
struct Sums {
    /// Values by the part of the sample that counts.
    shares: f64,
    /// Values by nanoseconds.
    weighed: f64,
    samples: usize,
    whole: usize,
    covered_ns: u64,
    asked_ns: u64,
}

impl Sums {
    /// `None` of no samples, and of values too large to add up.
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

/// Times that may overlap, as times that are in order and apart.
pub(crate) fn united(mut times: Vec<Interval>) -> Vec<Interval> {
    order::sort_by_number(&mut times, |time| time.start_ns);
    let mut united: Vec<Interval> = Vec::with_capacity(times.len());
    for time in times {
        match united.last_mut() {
            Some(last) if time.start_ns <= last.end_ns => {
                last.end_ns = last.end_ns.max(time.end_ns)
            }
            _ => united.push(time),
        }
    }
    united
}

impl<'a> Range<'a> {
    /// From the first start to the last end of its operations on a device, those of ranges within it too: where nsys projects
    /// a range to on the GPU.
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

    /// What a [total](Track::sum) came to from the first start to the last end of its operations on the track's device,
    /// those of ranges within it among them (its projection, as nsys has it). What other ranges ran meanwhile counts too.
    ///
    /// `None` if it has no operation there with timestamps, the track is not a total, or has no sample then. See
    /// [`Sampled::whole`] for ranges that are shorter than the interval.
    ///
    /// Each call looks at all operations of the range, and at the samples of that time. Of all paths and tracks
    /// [`Profile::range_track_sums`] looks at them once.
    pub fn sum(&self, track: &Track<'_>) -> Option<Sampled> {
        track.sum_of(&[self.projection(track.device())?])
    }

    /// The [mean](Track::mean) over the same time as [`sum`](Self::sum), at the same cost. Over its time on the host it is
    /// `track.mean(range.start(), range.end())`.
    pub fn mean(&self, track: &Track<'_>) -> Option<Sampled> {
        track.mean_of(&[self.projection(track.device())?])
    }
}

impl<'a> RangeNode<'a> {
    fn projections(&self, device: u32) -> Vec<Interval> {
        united(self.ranges().filter_map(|range| range.projection(device)).collect())
    }

    /// The same as [`Range::sum`] over all its instances: time that two of them have counts once. Each call looks at all
    /// operations of all of them; see [`Profile::range_track_sums`] for many paths or tracks.
    pub fn sum(&self, track: &Track<'_>) -> Option<Sampled> {
        track.sum_of(&self.projections(track.device()))
    }

    /// The same as [`Range::mean`] over all its instances: time that two of them have counts once. Costs what
    /// [`sum`](Self::sum) costs.
    pub fn mean(&self, track: &Track<'_>) -> Option<Sampled> {
        track.mean_of(&self.projections(track.device()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_overlap_or_touch_are_one() {
        let time = |(start_ns, end_ns)| Interval { start_ns, end_ns };
        let all = [(20, 30), (0, 5), (25, 27), (5, 6), (31, 32)].map(time);
        assert_eq!(united(all.to_vec()), [(0, 6), (20, 30), (31, 32)].map(time));
    }
}
