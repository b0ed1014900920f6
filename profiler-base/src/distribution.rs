//! Distributions of durations, accumulated one by one.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::getters;
use crate::serialize_fields;
use crate::units::{nanoseconds, time};

/// A summary of durations in a few KiB: count, sum, extremes, mean and deviation are exact,
/// percentiles within 1 %.
#[derive(Debug, Clone, Default)]
pub struct Distribution {
    count: u64,
    sum_ns: u64,
    least_ns: u64,
    most_ns: u64,
    /// The mean, and the sum of squared differences from it (Welford 1962).
    mean: f64,
    squares: f64,
    /// A histogram with two significant digits, created with the first duration.
    histogram: Option<Histogram<u32>>,
}

impl Distribution {
    /// Adds a duration.
    pub fn add(&mut self, ns: u64) {
        self.least_ns = if self.count == 0 { ns } else { self.least_ns.min(ns) };
        self.most_ns = self.most_ns.max(ns);
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        let from_mean = ns as f64 - self.mean;
        self.mean += from_mean / self.count as f64;
        self.squares += from_mean * (ns as f64 - self.mean);
        if self.histogram.is_none() {
            self.histogram = Histogram::new(2).ok();
        }
        if let Some(histogram) = &mut self.histogram {
            // It grows to hold any 64-bit value.
            let _ = histogram.record(ns);
        }
    }

    getters! {
        /// The number of durations.
        count: u64 = count;
        /// The sum.
        sum: Duration = Duration::from_nanos(sum_ns);
        /// The minimum; 0 if empty.
        min: Duration = Duration::from_nanos(least_ns);
        /// The maximum; 0 if empty.
        max: Duration = Duration::from_nanos(most_ns);
    }

    /// The number of durations above 0.
    pub fn above_zero(&self) -> u64 {
        let zeros = self.histogram.as_ref().map_or(0, |histogram| histogram.count_at(0));
        self.count.saturating_sub(zeros.into())
    }

    /// The arithmetic mean; 0 if empty.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum_ns / self.count.max(1))
    }

    /// The sample standard deviation; 0 for fewer than two.
    pub fn standard_deviation(&self) -> Duration {
        let degrees = self.count.saturating_sub(1).max(1) as f64;
        Duration::from_nanos((self.squares / degrees).max(0.0).sqrt() as u64)
    }

    /// The percentile, within 1 %; 0 if empty.
    pub fn percentile(&self, percent: f64) -> Duration {
        let at = |histogram: &Histogram<u32>| histogram.value_at_percentile(percent);
        let ns = self.histogram.as_ref().map_or(0, at);
        Duration::from_nanos(ns.clamp(self.least_ns, self.most_ns))
    }

    /// The median, within 1 %; 0 if empty.
    pub fn median(&self) -> Duration {
        self.percentile(50.0)
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} (median {}, {} to {})",
            self.count,
            time(self.mean()),
            time(self.median()),
            time(self.min()),
            time(self.max())
        )
    }
}

serialize_fields!(Distribution, "Distribution", |all| {
    "count": all.count,
    "sum_ns": all.sum_ns,
    "mean_ns": nanoseconds(all.mean()),
    "min_ns": all.least_ns,
    "max_ns": all.most_ns,
    "standard_deviation_ns": nanoseconds(all.standard_deviation()),
    "median_ns": nanoseconds(all.median()),
    "p99_ns": nanoseconds(all.percentile(99.0)),
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact_and_percentiles_near() {
        let mut all = Distribution::default();
        assert_eq!((all.mean(), all.median(), all.count()), (Duration::ZERO, Duration::ZERO, 0));
        (1..=10_000).rev().for_each(|us| all.add(us * 1000));
        let us = Duration::from_micros;
        assert_eq!((all.count(), all.min(), all.max()), (10_000, us(1), us(10_000)));
        assert_eq!(all.sum(), us(10_000 * 10_001 / 2));
        let near = |value: Duration, exact: f64| {
            let off = value.as_nanos() as f64 / exact - 1.0;
            assert!(off.abs() < 0.01, "{value:?} is not near {exact} ns");
        };
        near(all.median(), 5e6);
        near(all.percentile(99.0), 9.9e6);
        // Of 1 to n the variance is n (n + 1) / 12.
        near(all.standard_deviation(), (10_000.0_f64 * 10_001.0 / 12.0).sqrt() * 1e3);
        all.add(u64::MAX);
        assert_eq!(all.max(), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn durations_of_zero_are_not_above_zero() {
        let mut all = Distribution::default();
        assert_eq!(all.above_zero(), 0);
        [0, 1, 0, 2, 0, u64::MAX].into_iter().for_each(|ns| all.add(ns));
        assert_eq!((all.above_zero(), all.count()), (3, 6));
    }
}
