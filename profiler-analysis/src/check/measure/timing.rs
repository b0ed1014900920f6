//! The distribution of a time over samples: the median with its bounds, and the spread.

use std::fmt;
use std::time::Duration;

use profiler_base::hodges_lehmann::median_bounds;
use profiler_base::statistics::median_and_deviation;
use profiler_base::units::{duration, time};

/// A time over samples, of each call of the work. The JSON has fractions of nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Timing {
    pub(super) median_ns: f64,
    pub(super) bounds_ns: Option<(f64, f64)>,
    pub(super) min_ns: f64,
    pub(super) p10_ns: f64,
    pub(super) p90_ns: f64,
    pub(super) mad_ns: f64,
}

impl Timing {
    /// The distribution of times in nanoseconds; all 0 if there are none.
    pub(super) fn from_times(mut times: Vec<f64>, confidence: f64) -> Self {
        times.sort_unstable_by(f64::total_cmp);
        let (median_ns, mad_ns) = median_and_deviation(&times).unwrap_or_default();
        let nearest_rank = |part: f64| {
            let rank = (part * times.len() as f64).ceil() as usize;
            times.get(rank.max(1) - 1).copied().unwrap_or_default()
        };
        Self {
            median_ns,
            bounds_ns: median_bounds(&times, confidence),
            min_ns: times.first().copied().unwrap_or_default(),
            p10_ns: nearest_rank(0.1),
            p90_ns: nearest_rank(0.9),
            mad_ns,
        }
    }

    /// The median, as all times in whole nanoseconds.
    pub fn median(&self) -> Duration {
        duration(self.median_ns)
    }

    /// The bounds of the median at the confidence of the measurement; `None` with too few samples
    /// (fewer than 6 at 95 %). They are order statistics, so they assume no distribution.
    pub fn bounds(&self) -> Option<(Duration, Duration)> {
        self.bounds_ns.map(|(low, high)| (duration(low), duration(high)))
    }

    /// The minimum.
    pub fn min(&self) -> Duration {
        duration(self.min_ns)
    }

    /// The value that 10 % of the samples do not exceed.
    pub fn p10(&self) -> Duration {
        duration(self.p10_ns)
    }

    /// The value that 90 % of the samples do not exceed.
    pub fn p90(&self) -> Duration {
        duration(self.p90_ns)
    }

    /// The median of absolute differences from the median.
    pub fn median_absolute_deviation(&self) -> Duration {
        duration(self.mad_ns)
    }

    /// The greater distance of a bound from the median, as a share of the median: 0.01 is 1 %.
    /// `None` without bounds, and if the median is 0.
    pub fn uncertainty(&self) -> Option<f64> {
        let (low, high) = self.bounds_ns?;
        let distance = (high - self.median_ns).max(self.median_ns - low);
        (self.median_ns > 0.0).then(|| distance / self.median_ns)
    }
}

/// `median (low to high)`.
impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&time(self.median()))?;
        match self.bounds() {
            Some((low, high)) => write!(f, " ({} to {})", time(low), time(high)),
            None => f.write_str(" (too few samples for bounds)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_contain_the_median_as_often_as_they_state() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut missed = 0;
        for _ in 0..2000 {
            let times: Vec<f64> = (0..30).map(|_| 1000.0 - 50.0 * random.f64().ln()).collect();
            let true_median = 1000.0 + 50.0 * std::f64::consts::LN_2;
            let (low, high) = Timing::from_times(times, 0.95).bounds_ns.unwrap();
            missed += i32::from(true_median < low || high < true_median);
        }
        // The next rank would miss more than 5 %: of 30 values it is 4.3 %.
        assert!((50..=120).contains(&missed), "{missed} of 2000");
    }

    #[test]
    fn a_timing_has_median_spread_and_text() {
        let timing = Timing::from_times((1..=100).map(|ns| f64::from(ns) * 100.0).collect(), 0.95);
        assert_eq!((timing.median_ns, timing.min_ns, timing.mad_ns), (5050.0, 100.0, 2500.0));
        assert_eq!((timing.p10_ns, timing.p90_ns), (1000.0, 9000.0));
        assert_eq!(timing.bounds_ns, Some((4000.0, 6100.0)));
        assert!((timing.uncertainty().unwrap() - 1050.0 / 5050.0).abs() < 1e-9);
        assert_eq!(timing.to_string(), "5.050 us (4.000 us to 6.100 us)");
        let few = Timing::from_times(vec![7.0], 0.95);
        assert_eq!((few.bounds_ns, few.uncertainty(), few.p90_ns), (None, None, 7.0));
        assert!(few.to_string().contains("too few"), "{few}");
        assert_eq!(Timing::from_times(Vec::new(), 0.95).median_ns, 0.0);
    }
}
