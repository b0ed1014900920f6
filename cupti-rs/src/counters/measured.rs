//! What was counted: metrics by range.

use std::fmt;

use super::data::{CounterData, Opened};

/// What a measurement counted. Its `Display` is a table, a line for each range and metric.
///
/// With the feature `serde` it is written and read, what is not a number as null. serde_json reads numbers to their last bit
/// with its feature `float_roundtrip` alone; counts below 2^53 it always does.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub(super) chip: String,
    pub(super) metrics: Vec<String>,
    pub(super) ranges: Vec<Counted>,
    pub(super) passes: usize,
    pub(super) runs: usize,
    pub(super) dropped: usize,
    pub(super) too_deep: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Counted {
    pub range: Opened,
    /// By metric; `None` where there was no room.
    pub values: Option<Vec<f64>>,
}

impl Counted {
    pub(super) fn without_values(opened: &Opened) -> Self {
        Self { range: opened.clone(), values: None }
    }
}

/// One range that was counted.
#[derive(Debug, Clone, Copy)]
pub struct RangeValues<'a> {
    measured: &'a Measured,
    index: usize,
}

impl Measured {
    pub(super) fn new(data: &CounterData, ranges: Vec<Counted>) -> Self {
        Self {
            chip: data.chip.clone(),
            metrics: data.metrics.clone(),
            ranges,
            passes: data.passes,
            runs: data.runs,
            dropped: data.dropped,
            too_deep: data.too_deep,
        }
    }

    /// The chip that counted.
    pub fn chip(&self) -> &str {
        &self.chip
    }

    /// The metrics, in the order they were requested.
    pub fn metrics(&self) -> &[String] {
        &self.metrics
    }

    /// How many passes the metrics took.
    pub fn passes(&self) -> usize {
        self.passes
    }

    /// How often the work ran. With more than one, each metric is of one run, and ratios of two metrics may be of two.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// Ranges or kernels that were not counted for lack of room; [`Builder::max_ranges`](super::Builder::max_ranges) makes
    /// more.
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// Ranges that lay deeper than the levels that were requested, and count for those around them.
    pub fn too_deep(&self) -> usize {
        self.too_deep
    }

    /// The ranges that were counted, in the order they began.
    pub fn ranges(&self) -> impl Iterator<Item = RangeValues<'_>> {
        (0..self.ranges.len())
            .filter(|index| self.ranges[*index].values.is_some())
            .map(|index| RangeValues { measured: self, index })
    }

    /// The first range of this name.
    pub fn range(&self, name: &str) -> Option<RangeValues<'_>> {
        self.ranges().find(|range| range.name() == name)
    }

    /// A metric's sum over all ranges of this name. `None` if there is none, if a range of it was not counted, or if the
    /// metric does not add up: those that do end in `.sum`.
    pub fn total(&self, name: &str, metric: &str) -> Option<f64> {
        if !metric.ends_with(".sum") || self.dropped > 0 {
            return None;
        }
        let mut values =
            self.ranges().filter(|range| range.name() == name).map(|range| range.value(metric));
        let first = values.next()??;
        values.try_fold(first, |sum, value| Some(sum + value?))
    }
}

impl<'a> RangeValues<'a> {
    fn counted(&self) -> &'a Counted {
        &self.measured.ranges[self.index]
    }

    /// Its name; of kernels their place in the order of launches, from 0.
    pub fn name(&self) -> &'a str {
        &self.counted().range.name
    }

    /// How many counted ranges lie around it.
    pub fn level(&self) -> usize {
        self.counted().range.level
    }

    /// Its place among all ranges in the order they began, those that were not counted among them: of a range around it, it
    /// is less.
    pub fn place(&self) -> usize {
        self.index
    }

    /// The range around it.
    pub fn parent(&self) -> Option<RangeValues<'a>> {
        let index = self.counted().range.parent?;
        Some(RangeValues { measured: self.measured, index })
    }

    /// The value of a metric; `None` if it was not requested, or if CUPTI does not know it (not a number).
    pub fn value(&self, metric: &str) -> Option<f64> {
        let place = self.measured.metrics.iter().position(|name| name == metric)?;
        let value = *self.counted().values.as_ref()?.get(place)?;
        (!value.is_nan()).then_some(value)
    }

    /// All metrics with their values; not a number where CUPTI does not know the value.
    pub fn values(&self) -> impl Iterator<Item = (&'a str, f64)> {
        let metrics = self.measured.metrics.iter().map(String::as_str);
        metrics.zip(self.counted().values.iter().flatten().copied())
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = if self.runs == 1 { "run" } else { "runs" };
        writeln!(f, "{}, {} {runs}", self.chip.escape_debug(), self.runs)?;
        for range in self.ranges() {
            let indent = 2 * range.level().min(32);
            writeln!(f, "{:indent$}{}", "", range.name().escape_debug())?;
            for (metric, value) in range.values() {
                let value = if value.is_nan() { "not known".to_owned() } else { number(value) };
                let metric = metric.escape_debug();
                writeln!(f, "{:indent$}{value:>20}  {metric}", "")?;
            }
        }
        if self.dropped > 0 {
            writeln!(f, "{} not counted for lack of room", self.dropped)?;
        }
        if self.too_deep > 0 {
            writeln!(
                f,
                "{} deeper than was asked for: they count for those around them",
                self.too_deep
            )?;
        }
        Ok(())
    }
}

/// Whole numbers as they are, others with three digits behind the point.
fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e18 {
        format!("{value:.0}")
    } else {
        format!("{value:.3}")
    }
}
