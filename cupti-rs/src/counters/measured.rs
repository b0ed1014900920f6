//! Results of measurements: metrics by range.

use std::fmt;

use crate::accessors::getters;

/// The result of a measurement. Its `Display` is a table with a line for each range and metric.
///
/// With the feature `serde` it is serializable, NaN as null. serde_json needs its feature
/// `float_roundtrip` for exact numbers, except integers below 2^53.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(remote = "Self"))]
pub struct Measured {
    pub(super) chip: String,
    pub(super) passes: usize,
    pub(super) runs: usize,
    pub(super) dropped: usize,
    pub(super) too_deep: usize,
    pub(super) metrics: Vec<String>,
    pub(super) ranges: Vec<Opened>,
}

/// An opened range.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Opened {
    pub name: String,
    /// The index of the outer range.
    pub parent: Option<usize>,
    pub level: usize,
    /// The values by metric; `None` if the range was dropped, or before the evaluation.
    #[cfg_attr(feature = "serde", serde(default, with = "super::finite"))]
    pub values: Option<Vec<f64>>,
}

impl Opened {
    /// The index of the first range that cannot be at its index: a range follows its outer range,
    /// one level deeper.
    pub(super) fn misplaced(ranges: &[Self]) -> Option<usize> {
        let fits = |at: usize, range: &Self| match range.parent {
            Some(parent) => parent < at && ranges[parent].level.checked_add(1) == Some(range.level),
            None => range.level == 0,
        };
        (0..ranges.len()).find(|&at| !fits(at, &ranges[at]))
    }
}

/// A counted range.
#[derive(Debug, Clone, Copy)]
pub struct RangeValues<'a> {
    measured: &'a Measured,
    index: usize,
}

impl Measured {
    getters! {
        /// The chip.
        chip: &str = chip;
        /// The metrics, in the order they were requested.
        metrics: &[String] = metrics;
        /// The number of passes.
        passes: usize = passes;
        /// The number of runs. With several, each metric is from a single run, and a ratio of two
        /// metrics may be from two.
        runs: usize = runs;
        /// Ranges or kernels beyond [`Builder::max_ranges`](super::Builder::max_ranges), which were
        /// not counted.
        dropped: usize = dropped;
        /// Ranges deeper than the requested levels, counted as part of their outer ranges.
        too_deep: usize = too_deep;
    }

    /// The counted ranges, in start order.
    pub fn ranges(&self) -> impl Iterator<Item = RangeValues<'_>> {
        (0..self.ranges.len())
            .filter(|index| self.ranges[*index].values.is_some())
            .map(|index| RangeValues { measured: self, index })
    }

    /// The first range of this name.
    pub fn range(&self, name: &str) -> Option<RangeValues<'_>> {
        self.ranges().find(|range| range.name() == name)
    }

    /// A metric's sum over all ranges of this name. `None` without such ranges, if one was not
    /// counted, or if the metric is not additive: additive metrics end in `.sum`.
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
    fn counted(&self) -> &'a Opened {
        &self.measured.ranges[self.index]
    }

    /// The name; for kernels the index in launch order, from 0.
    pub fn name(&self) -> &'a str {
        &self.counted().name
    }

    /// The number of outer counted ranges.
    pub fn level(&self) -> usize {
        self.counted().level
    }

    /// The index among all ranges in start order, including those not counted. Outer ranges have
    /// lower indices.
    pub fn place(&self) -> usize {
        self.index
    }

    /// The outer range.
    pub fn parent(&self) -> Option<RangeValues<'a>> {
        let index = self.counted().parent?;
        Some(RangeValues { measured: self.measured, index })
    }

    /// The value of a metric; `None` if it was not requested or is NaN in CUPTI.
    pub fn value(&self, metric: &str) -> Option<f64> {
        let place = self.measured.metrics.iter().position(|name| name == metric)?;
        let value = *self.counted().values.as_ref()?.get(place)?;
        (!value.is_nan()).then_some(value)
    }

    /// All metrics with their values; NaN if unknown to CUPTI.
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
                "{} nested deeper than requested: counted in the range around them",
                self.too_deep
            )?;
        }
        Ok(())
    }
}

/// Integers without, other numbers with three decimals.
fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e18 {
        format!("{value:.0}")
    } else {
        format!("{value:.3}")
    }
}
