//! Samples of a device over time, in columns: hardware counters at intervals (CUPTI's PM sampling)
//! and values of NVML. [`Profile::track`](crate::Profile::track) returns one column;
//! [`Sampling`](crate::Sampling) has an example.

mod kept;

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use profiler_base::units::{self, MESSAGE_WIDTH, nanoseconds, shortened};
use profiler_base::{getters, named_variants, setters};
use serde_core::ser::SerializeMap as _;

use crate::error::Error;
use crate::record::json::{json_names, json_object};
pub(crate) use kept::{Kept, Lost};

named_variants! {
    /// The origin of samples.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum Source {
        /// CUPTI's PM sampling of hardware counters.
        Counters = "hardware counters",
        /// NVML, as queried by `nvidia-smi`.
        Nvml = "NVML",
    }
}

named_variants! {
    /// The unit of a value.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum Unit {
        /// Percent of the maximum, 0 to 100.
        Percent = "%",
        /// Bytes.
        Bytes = "B",
        /// Bytes per second.
        BytesPerSecond = "B/s",
        /// Cycles or other events per second.
        Hertz = "Hz",
        /// Nanoseconds.
        Nanoseconds = "ns",
        /// Watts.
        Watts = "W",
        /// Joules.
        Joules = "J",
        /// Degrees Celsius.
        Celsius = "°C",
        /// A number of events or items.
        Count = "",
        /// Bits with individual meanings: NVML's clock event reasons (throttle reasons).
        Flags = "flags",
        /// Unknown to this version, or a plain number such as a ratio.
        Other = "",
    }
}

json_names! { Source { Counters = "counters", Nvml = "nvml", } }
json_names! {
    Unit {
        Percent = "percent", Bytes = "bytes", BytesPerSecond = "bytes_per_second", Hertz = "hertz",
        Nanoseconds = "nanoseconds", Watts = "watts", Joules = "joules", Celsius = "celsius",
        Count = "count", Flags = "flags", Other = "other",
    } else Other
}

impl Unit {
    /// The unit of this value per second; `None` if there is none.
    #[must_use]
    pub fn per_second(self) -> Option<Self> {
        match self {
            Self::Bytes => Some(Self::BytesPerSecond),
            Self::Count => Some(Self::Hertz),
            Self::Joules => Some(Self::Watts),
            Self::Nanoseconds | Self::Other => Some(Self::Other),
            _ => None,
        }
    }

    /// Formats a value for people.
    pub fn measured(self, value: f64) -> String {
        match self {
            Self::Percent => format!("{value:.1} %"),
            Self::Bytes => units::bytes(value.round() as u64),
            Self::Nanoseconds => units::time(Duration::from_nanos(value.round() as u64)),
            Self::Flags => format!("{:#x}", value as u64),
            Self::Celsius => format!("{value:.0} {self}"),
            Self::Watts => format!("{value:.1} {self}"),
            // Hz, B/s and numbers without a unit.
            _ => units::si(value, &self.to_string()).trim_end().to_owned(),
        }
    }
}

/// The way in which the values of several samples are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The total of the interval; totals are added.
    Total,
    /// The mean of the interval; means are weighted by its length.
    Mean,
    /// The state at the end of the interval; states are weighted by its length.
    State,
}

json_names! { Kind { Total = "total", Mean = "mean", State = "state", } }

/// One column of a series.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// The name at its source: `dram__bytes_read.sum`, `nvml__power`.
    pub name: String,
    /// The name for people: `DRAM read`.
    pub label: String,
    /// The unit of its values.
    pub unit: Unit,
    /// The way in which its values are combined.
    pub kind: Kind,
}

json_object! { Metric { name: required, label: required, unit: required, kind: required, } }

impl Metric {
    /// A metric with these properties.
    #[must_use]
    pub fn new(name: impl Into<String>, label: impl Into<String>, unit: Unit, kind: Kind) -> Self {
        Self { name: name.into(), label: label.into(), unit, kind }
    }
}

/// The reason why a sampler could not start, or ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The cause, for programs.
    pub cause: FailureCause,
    /// The failed action, its reason, and a remedy.
    pub message: String,
}

json_object! { Failure { cause: required, message: required, } }

impl Failure {
    /// The failure by an error of CUPTI.
    pub(crate) fn of_cupti(error: &cupti::Error) -> Self {
        let cause = match error {
            _ if error.is_permission() => FailureCause::Permission,
            _ if error.is_busy() => FailureCause::Busy,
            _ if error.is_unsupported() || error.is_unavailable() => FailureCause::Unsupported,
            _ => FailureCause::Other,
        };
        Self::new(cause, error.to_string())
    }

    /// A failure with this cause.
    #[must_use]
    pub fn new(cause: FailureCause, message: impl Into<String>) -> Self {
        Self { cause, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shortened(&self.message, MESSAGE_WIDTH))
    }
}

/// The cause of a sampler failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FailureCause {
    /// Reading counters requires administrator rights.
    Permission,
    /// Another tool or session uses the counters.
    Busy,
    /// Not supported by the library, the driver or the chip.
    Unsupported,
    /// The sampler ended before it was stopped; later samples are missing.
    Ended,
    /// Described by the message only.
    Other,
}

json_names! {
    FailureCause {
        Permission = "permission", Busy = "busy", Unsupported = "unsupported", Ended = "ended",
        Other = "other",
    } else Other
}

json_object! {
    /// A series without its rows, as JSON: its metrics, losses and failure.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Head {
        pub(crate) device: u32 = required,
        pub(crate) source: Source = required,
        pub(crate) interval_ns: u64 = required,
        pub(crate) metrics: Vec<Metric> = required,
        pub(crate) missing: Vec<String> = later,
        pub(crate) dropped: u64 = later,
        pub(crate) overflows: u64 = later,
        pub(crate) gaps: u64 = later,
        pub(crate) gap_ns: u64 = later,
        pub(crate) failure: Option<Failure> = later,
    }
}

/// The samples of one device over time: rows of values, each for an interval.
///
/// Times are nanoseconds of `CLOCK_MONOTONIC`, as in
/// [`Recording::windows_ns`](crate::Recording::windows_ns); times of a
/// [`Track`](crate::profile::Track) are relative to the session's start. Intervals are consecutive;
/// gaps are counted. A series whose sampler failed to start has no rows and a
/// [`failure`](Self::failure).
#[derive(Debug, Clone)]
pub struct Series {
    pub(crate) head: Head,
    start_ns: Vec<u64>,
    end_ns: Vec<u64>,
    /// A row per interval, a column per metric; NaN if unknown (null in JSON).
    values: Vec<f64>,
}

impl serde_core::Serialize for Series {
    fn serialize<S: serde_core::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut out = to.serialize_map(None)?;
        self.head.write_fields(&mut out)?;
        out.serialize_entry("start_ns", &self.start_ns)?;
        out.serialize_entry("end_ns", &self.end_ns)?;
        out.serialize_entry("values", &self.values)?;
        out.end()
    }
}

impl PartialEq for Series {
    /// Compares values by their bits: unknown values are equal.
    fn eq(&self, other: &Self) -> bool {
        self.head == other.head && self.words().eq(other.words())
    }
}

impl Eq for Series {}

impl Series {
    /// The series without its rows, for serde: its metrics, losses and failure.
    pub fn head(&self) -> impl serde_core::Serialize + '_ {
        &self.head
    }

    /// A series without rows, of the device with this CUDA ordinal.
    #[must_use]
    pub fn new(device: u32, source: Source, interval: Duration, metrics: Vec<Metric>) -> Self {
        let interval_ns = nanoseconds(interval);
        let head = Head {
            device,
            source,
            interval_ns,
            metrics,
            missing: Vec::new(),
            dropped: 0,
            overflows: 0,
            gaps: 0,
            gap_ns: 0,
            failure: None,
        };
        Self { head, start_ns: Vec::new(), end_ns: Vec::new(), values: Vec::new() }
    }

    /// Adds a row: a value for each metric, NaN if unknown. Consecutive intervals may overlap
    /// slightly.
    ///
    /// # Errors
    /// The number of values is 0 or differs from the number of metrics; the row ends before it
    /// begins; it begins or ends before the previous row; or it begins before the end of the row
    /// before the previous one.
    pub fn push(&mut self, start_ns: u64, end_ns: u64, values: &[f64]) -> Result<(), Error> {
        let error = |why: String| {
            Error::other(format!(
                "not a sample of this series: {why}; give rows in the order of time, with a value for each metric"
            ))
        };
        if values.len() != self.head.metrics.len() || values.is_empty() {
            let (values, metrics) = (values.len(), self.head.metrics.len());
            return Err(error(format!("{values} values were given for {metrics} metrics")));
        }
        let rows = self.len();
        let last = (self.start_ns.last(), self.end_ns.last());
        let last_but_one = rows.checked_sub(2).and_then(|row| self.end_ns.get(row));
        if start_ns > end_ns
            || last.0 > Some(&start_ns)
            || last.1 > Some(&end_ns)
            || last_but_one > Some(&start_ns)
        {
            return Err(error(format!(
                "a sample from {start_ns} to {end_ns} ns was given after one from {} to {} and one to {}",
                last.0.unwrap_or(&0),
                last.1.unwrap_or(&0),
                last_but_one.unwrap_or(&0)
            )));
        }
        self.start_ns.push(start_ns);
        self.end_ns.push(end_ns);
        self.values.extend_from_slice(values);
        Ok(())
    }

    setters! {
        /// Sets the requested metrics that are missing.
        #[must_use]
        with_missing(names: Vec<String>) head.missing = names;
        /// Sets the reason why there are no samples, or no more.
        #[must_use]
        with_failure(failure: Failure) head.failure = Some(failure);
    }

    /// Sets the losses: replaced samples, sample buffer overflows, gaps, and the time of gaps.
    #[must_use]
    pub fn with_losses(
        mut self,
        dropped: u64,
        overflows: u64,
        gaps: u64,
        gap_time: Duration,
    ) -> Self {
        let (head, gap_ns) = (&mut self.head, nanoseconds(gap_time));
        (head.dropped, head.overflows, head.gaps, head.gap_ns) = (dropped, overflows, gaps, gap_ns);
        self
    }

    getters! {
        /// The device's CUDA ordinal.
        device: u32 = head.device;
        /// The origin of the samples.
        source: Source = head.source;
        /// The requested time between two samples.
        interval: Duration = Duration::from_nanos(head.interval_ns);
        /// Its columns.
        metrics: &[Metric] = head.metrics;
        /// Requested metrics that the chip lacks, or that did not fit beside the others.
        missing: &[String] = head.missing;
        /// The number of rows.
        len: usize = start_ns.len();
        /// True if it has no rows.
        is_empty: bool = start_ns.is_empty();
        /// The start of each row in nanoseconds of `CLOCK_MONOTONIC`.
        start_ns: &[u64] = start_ns;
        /// The end of each row in nanoseconds of `CLOCK_MONOTONIC`.
        end_ns: &[u64] = end_ns;
        /// Samples that newer ones replaced before they were read.
        dropped: u64 = head.dropped;
        /// Sample buffer overflows of the device; each loses samples.
        overflows: u64 = head.overflows;
        /// The reason why the sampler could not start, or ended early.
        failure: Option<&Failure> = head.failure.as_ref();
    }

    /// The values of a column, NaN if unknown; empty without such a column.
    pub fn column(&self, column: usize) -> impl ExactSizeIterator<Item = f64> + Clone + '_ {
        let columns = self.head.metrics.len();
        let rows = if column < columns { 0..self.len() } else { 0..0 };
        rows.map(move |row| self.values[row * columns + column])
    }

    /// A value; NaN if unknown.
    pub fn value(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.head.metrics.len() + column]
    }

    /// The number of gaps between samples, and their total time.
    pub fn gaps(&self) -> (u64, Duration) {
        (self.head.gaps, Duration::from_nanos(self.head.gap_ns))
    }

    /// Describes all losses: a failure, missing metrics, gaps and lost samples. Empty if there are
    /// none.
    pub fn losses(&self) -> Vec<String> {
        let head = &self.head;
        let mut losses = Vec::new();
        losses.extend(head.failure.iter().map(|failure| failure.message.clone()));
        if !head.missing.is_empty() {
            losses.push(format!("not to be had: {}", head.missing.join(", ")));
        }
        if head.gaps != 0 {
            let time = units::time(Duration::from_nanos(head.gap_ns));
            losses.push(format!("{} gaps, {time} in total", head.gaps));
        }
        if head.dropped != 0 {
            losses.push(format!("{} samples went for newer ones", head.dropped));
        }
        if head.overflows != 0 {
            losses.push(format!("the device had no room for samples {} times", head.overflows));
        }
        losses
    }

    /// Changes all times, by a function that preserves their order.
    pub(crate) fn change_times(&mut self, change: impl Fn(u64) -> u64) {
        self.start_ns.iter_mut().chain(&mut self.end_ns).for_each(|ns| *ns = change(*ns));
    }

    /// Retains only these rows.
    fn keep(&mut self, rows: Range<usize>) {
        let columns = self.head.metrics.len();
        self.start_ns.truncate(rows.end);
        self.end_ns.truncate(rows.end);
        self.values.truncate(rows.end * columns);
        self.start_ns.drain(..rows.start);
        self.end_ns.drain(..rows.start);
        self.values.drain(..rows.start * columns);
    }

    /// Returns a copy with the rows that overlap or touch a window.
    fn touching(&self, (from_ns, until_ns): (u64, u64)) -> Self {
        let first = self.end_ns.partition_point(|end| *end < from_ns);
        let end = self.start_ns.partition_point(|start| *start <= until_ns).max(first);
        let columns = self.head.metrics.len();
        Self {
            head: self.head.clone(),
            start_ns: self.start_ns[first..end].to_vec(),
            end_ns: self.end_ns[first..end].to_vec(),
            values: self.values[first * columns..end * columns].to_vec(),
        }
    }

    /// Retains only the rows entirely within a window.
    fn cut(&mut self, (from_ns, until_ns): (u64, u64)) {
        let first = self.start_ns.partition_point(|start| *start < from_ns);
        let end = self.end_ns.partition_point(|end| *end <= until_ns).max(first);
        self.keep(first..end);
    }

    /// Recounts the gaps between rows: gaps longer than half an interval.
    fn count_gaps(&mut self) {
        let pairs = self.end_ns.iter().zip(self.start_ns.iter().skip(1));
        let gaps = pairs.map(|(end, start)| start.saturating_sub(*end));
        let (mut count, mut sum_ns) = (0, 0);
        for gap_ns in gaps.filter(|gap_ns| *gap_ns > self.head.interval_ns / 2) {
            count += 1;
            sum_ns += gap_ns;
        }
        (self.head.gaps, self.head.gap_ns) = (count, sum_ns);
    }

    /// Clips the rows to a window; totals of clipped rows are scaled.
    pub(crate) fn clip(&mut self, (from_ns, until_ns): (u64, u64)) {
        let columns = self.head.metrics.len();
        for row in 0..self.len() {
            let (start, end) = (self.start_ns[row], self.end_ns[row]);
            let (from, until) = (start.max(from_ns), end.min(until_ns));
            if from >= until || (from, until) == (start, end) {
                continue;
            }
            let share = (until - from) as f64 / (end - start) as f64;
            let values = self.values[row * columns..].iter_mut().zip(&self.head.metrics);
            for (value, metric) in values {
                *value *= if metric.kind == Kind::Total { share } else { 1.0 };
            }
            (self.start_ns[row], self.end_ns[row]) = (from, until);
        }
        self.cut((from_ns, until_ns));
    }

    /// Encodes the rows: all starts, all ends, then values by row.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> + '_ {
        let values = self.values.iter().map(|value| value.to_bits());
        self.start_ns.iter().chain(&self.end_ns).copied().chain(values)
    }

    /// Decodes [`words`](Self::words). `None` if rows are incomplete or not in order.
    pub(crate) fn from_words(head: Head, words: &[u64]) -> Option<Self> {
        let width = head.metrics.len() + 2;
        if !words.len().is_multiple_of(width) || (width == 2 && !words.is_empty()) {
            return None;
        }
        let rows = words.len() / width;
        let (start_ns, rest) = words.split_at(rows);
        let (end_ns, values) = rest.split_at(rows);
        let is_forward = start_ns.iter().zip(end_ns).all(|(start, end)| start <= end);
        let is_apart = start_ns.iter().skip(2).zip(end_ns).all(|(start, end)| start >= end);
        if !is_forward || !is_apart || !start_ns.is_sorted() || !end_ns.is_sorted() {
            return None;
        }
        let values = values.iter().copied().map(f64::from_bits).collect();
        Some(Self { head, start_ns: start_ns.to_vec(), end_ns: end_ns.to_vec(), values })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn series() -> Series {
        let metrics = vec![
            Metric::new("dram__bytes_read.sum", "DRAM read", Unit::Bytes, Kind::Total),
            Metric::new("busy", "busy", Unit::Percent, Kind::Mean),
        ];
        let mut series = Series::new(0, Source::Counters, Duration::from_nanos(10), metrics);
        for row in 0..5_u64 {
            series.push(row * 10, row * 10 + 10, &[row as f64, f64::NAN]).unwrap();
        }
        series
    }

    #[test]
    fn cut_removes_rows_not_entirely_within_the_window() {
        let mut series = series();
        series.cut((5, 45));
        assert_eq!((series.start_ns(), series.end_ns()), (&[10, 20, 30][..], &[20, 30, 40][..]));
        assert_eq!(series.column(0).collect::<Vec<_>>(), [1.0, 2.0, 3.0]);
        series.count_gaps();
        assert_eq!(series.gaps(), (0, Duration::ZERO));
        series.push(46, 50, &[0.0, 0.0]).unwrap();
        series.count_gaps();
        assert_eq!(series.gaps(), (1, Duration::from_nanos(6)));
        series.cut((21, 24));
        assert!(series.is_empty() && series.column(0).len() == 0);
    }

    #[test]
    fn clip_scales_totals_at_the_edges() {
        let mut clipped = series();
        clipped.clip((14, 43));
        assert_eq!(
            (clipped.start_ns(), clipped.end_ns()),
            (&[14, 20, 30, 40][..], &[20, 30, 40, 43][..])
        );
        let totals: Vec<f64> = clipped.column(0).collect();
        let expected = [0.6, 2.0, 3.0, 1.2];
        assert!(
            totals.iter().zip(expected).all(|(is, should)| (is - should).abs() < 1e-9),
            "{totals:?}"
        );
        let mut within = series();
        within.clip((22, 23));
        assert_eq!((within.start_ns(), within.end_ns()), (&[22][..], &[23][..]));
        let mut outside = series();
        outside.clip((50, 60));
        assert!(outside.is_empty());
    }

    #[test]
    fn rows_out_of_order_are_refused() {
        let mut series = series();
        for (start, end) in [(30, 60), (50, 49), (45, 49)] {
            let error = series.push(start, end, &[0.0, 0.0]).unwrap_err().to_string();
            assert!(error.contains(&start.to_string()), "{error}");
        }
        let error = series.push(50, 60, &[0.0]).unwrap_err().to_string();
        assert!(error.contains("1 values were given for 2 metrics"), "{error}");
        // A row may overlap its neighbour only.
        series.push(45, 60, &[0.0, 0.0]).unwrap();
        let error = series.push(49, 60, &[0.0, 0.0]).unwrap_err().to_string();
        assert!(error.contains("from 49 to 60 ns was given after one from 45 to 60 and one to 50"));
        assert_eq!(series.len(), 6);
        let mut empty = Series::new(0, Source::Nvml, Duration::from_nanos(10), vec![]);
        let error = empty.push(0, 1, &[]).unwrap_err().to_string();
        assert!(error.contains("0 values were given for 0 metrics"), "{error}");
    }

    #[test]
    fn unknown_values_are_equal_and_null_in_json() {
        let series = series();
        assert_eq!(series, series.clone());
        let words: Vec<u64> = series.words().collect();
        assert_eq!(Series::from_words(series.head.clone(), &words).unwrap(), series);
        let json = serde_json::to_value(&series).unwrap();
        assert_eq!(json["values"][1], serde_json::Value::Null);
        assert_eq!(json["metrics"][0]["unit"], "bytes");
    }

    #[test]
    fn values_read_in_their_unit() {
        for (unit, value, expected) in [
            (Unit::Percent, 99.96, "100.0 %"),
            (Unit::Bytes, 2.1e9, "1.956 GiB"),
            (Unit::BytesPerSecond, 2.1e9, "2.100 GB/s"),
            (Unit::Nanoseconds, 1.5e6, "1.500 ms"),
            (Unit::Flags, 68.0, "0x44"),
            (Unit::Celsius, 41.4, "41 °C"),
            (Unit::Watts, 307.25, "307.2 W"),
            (Unit::Count, 1500.0, "1.500 k"),
            (Unit::Other, 0.5, "0.500"),
        ] {
            assert_eq!(unit.measured(value), expected);
        }
    }

    #[test]
    fn damaged_words_are_refused() {
        let series = series();
        let words: Vec<u64> = series.words().collect();
        let read = |words: &[u64]| Series::from_words(series.head.clone(), words);
        assert!(read(&words[1..]).is_none());
        let mut backwards = words.clone();
        backwards[2] = 0;
        assert!(read(&backwards).is_none());
        let mut far = words.clone();
        (far[5], far[6]) = (30, 30);
        assert!(read(&far).is_none(), "the first ends when the third has begun");
        let mut ends_early = words.clone();
        ends_early[9] = 0;
        assert!(read(&ends_early).is_none());
        let none = Head { metrics: vec![], ..series.head.clone() };
        assert!(Series::from_words(none.clone(), &words).is_none());
        assert!(Series::from_words(none, &[]).unwrap().is_empty());
    }
}
