//! Statistics of durations.

use std::fmt;
use std::time::Duration;

use serde_core::Serializer;

use crate::getters;
use crate::serialize_fields;
use crate::units::{nanoseconds as ns, time};

/// A statistic of several times.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Statistic {
    /// The minimum.
    Min,
    /// The middle value; the mean of the two middle values for an even number.
    Median,
    /// The arithmetic mean.
    Mean,
    /// The maximum.
    Max,
    /// The smallest value that this percentage of values does not exceed (nearest rank).
    Percentile(f64),
}

impl Statistic {
    /// The name in messages, such as `minimum`.
    pub fn name(self) -> String {
        match self {
            Self::Min => "minimum".into(),
            Self::Median => "median".into(),
            Self::Mean => "mean".into(),
            Self::Max => "maximum".into(),
            Self::Percentile(percent) => format!("{percent} % percentile"),
        }
    }

    /// The statistic of unsorted times; 0 if empty.
    pub fn compute(self, mut times: Vec<u64>) -> u64 {
        times.sort_unstable();
        self.compute_sorted(&times)
    }

    fn compute_sorted(self, times: &[u64]) -> u64 {
        let (Some(&first), Some(&last)) = (times.first(), times.last()) else {
            return 0;
        };
        let count = times.len();
        match self {
            Self::Min => first,
            Self::Median => times[(count - 1) / 2].midpoint(times[count / 2]),
            Self::Mean => (sum(times) / count as u128) as u64,
            Self::Max => last,
            Self::Percentile(percent) => {
                let rank = (percent * count as f64 / 100.0).ceil() as usize;
                times[rank.clamp(1, count) - 1]
            }
        }
    }
}

fn sum(times: &[u64]) -> u128 {
    times.iter().map(|&ns| u128::from(ns)).sum()
}

/// The middle value, the upper of two: always one of the values.
pub fn upper_median<T: Ord + Copy>(mut values: Vec<T>) -> Option<T> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(middle).1)
}

/// A part as a percentage of a whole; 0 if the whole is 0.
pub fn percent_of(part: u64, whole: u128) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// The median of sorted values.
pub fn median(sorted: &[f64]) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(f64::midpoint(sorted[last / 2], sorted[sorted.len() / 2]))
}

/// The median of unsorted values.
pub fn median_of(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    median(&values)
}

/// The median of unsorted values, and the median of their distances from it.
pub fn median_and_deviation(values: &[f64]) -> Option<(f64, f64)> {
    let middle = median_of(values.iter().copied())?;
    Some((middle, median_of(values.iter().map(|value| (value - middle).abs()))?))
}

/// Scales the median absolute deviation of normally distributed values to their standard deviation.
const NORMAL: f64 = 1.4826;
/// The number of standard deviations by which a warm-up step exceeds the others.
const WARM_UP_DEVIATIONS: f64 = 5.0;
/// The minimum excess as a share of the median: steps that hardly differ are not warm-up.
const WARM_UP_SHARE: f64 = 0.1;
/// The number of usual steps among consecutive ones that ends the warm-up.
const STEADY: (usize, usize) = (3, 4);

/// The number of slow first values, at most half of all. They end at the first usual value from
/// which on at least three of four consecutive values are usual. A value is usual if it is not far
/// above the median of the later half. The limit is 5 standard deviations (estimated by the median
/// absolute deviation) above it, or a tenth if that is more. If less than three quarters of the later
/// half are below it, as where fast and slow values alternate, the limit is a tenth above the third
/// quartile.
pub fn warm_up(values: &[u64]) -> usize {
    let half = values.len() / 2;
    let later = Statistics::from_nanos(values[half..].to_vec());
    let median = ns(later.median()) as f64;
    let deviation = ns(later.median_absolute_deviation()) as f64;
    let more = (WARM_UP_DEVIATIONS * NORMAL * deviation).max(WARM_UP_SHARE * median);
    let is_within = |limit: f64| move |value: &u64| *value as f64 <= limit;
    let within = values[half..].iter().filter(|value| is_within(median + more)(value)).count();
    let is_usual = is_within(match within * STEADY.1 < STEADY.0 * (values.len() - half) {
        true => (1.0 + WARM_UP_SHARE) * ns(later.percentile(75.0)) as f64,
        false => median + more,
    });
    let is_steady = |at: &usize| {
        let next = &values[*at..(*at + STEADY.1).min(values.len())];
        let usual = next.iter().filter(|value| is_usual(value)).count();
        is_usual(&next[0]) && usual * STEADY.1 >= STEADY.0 * next.len()
    };
    (0..half).find(is_steady).unwrap_or(half)
}

/// A part divided by its whole, from 0 to 1; 0 if the whole is 0.
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Serializes a time in nanoseconds.
///
/// # Errors
/// Errors of the serializer.
pub fn as_ns<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(ns(*time))
}

/// Exact statistics of times, which are stored with 8 bytes each. All are 0 without times. The JSON
/// has `count`, and in nanoseconds `sum_ns`, `mean_ns`, `median_ns`, `min_ns`, `max_ns`,
/// `standard_deviation_ns`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Nanoseconds, sorted.
    times: Vec<u64>,
}

impl Statistics {
    /// Statistics of unsorted times in nanoseconds.
    pub fn from_nanos(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        Self { times }
    }

    /// The number of times.
    pub fn count(&self) -> u64 {
        self.times.len() as u64
    }

    /// The sum; saturates at `u64::MAX` nanoseconds.
    pub fn sum(&self) -> Duration {
        // A damaged file may contain any times.
        Duration::from_nanos(u64::try_from(sum(&self.times)).unwrap_or(u64::MAX))
    }

    getters! {
        /// The arithmetic mean, in whole nanoseconds.
        mean: Duration = get(Statistic::Mean);
        /// The middle value; the mean of the two middle values for an even number.
        median: Duration = get(Statistic::Median);
        /// The minimum.
        min: Duration = get(Statistic::Min);
        /// The maximum.
        max: Duration = get(Statistic::Max);
    }

    /// The smallest value that this percentage of values does not exceed (nearest rank).
    pub fn percentile(&self, percent: f64) -> Duration {
        self.get(Statistic::Percentile(percent))
    }

    /// Any statistic.
    pub fn get(&self, statistic: Statistic) -> Duration {
        Duration::from_nanos(statistic.compute_sorted(&self.times))
    }

    /// The sample standard deviation (`count - 1`), as in nsys; 0 for fewer than two.
    pub fn standard_deviation(&self) -> Duration {
        Duration::from_nanos(Unrounded::from(self).standard_deviation_ns.round() as u64)
    }

    /// The median of absolute differences from the median, which is robust against outliers.
    pub fn median_absolute_deviation(&self) -> Duration {
        let median = Statistic::Median.compute_sorted(&self.times);
        let deviations = self.times.iter().map(|ns| ns.abs_diff(median)).collect();
        Duration::from_nanos(Statistic::Median.compute(deviations))
    }
}

/// Statistics with fractions of nanoseconds, as nsys prints them. All are 0 without times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unrounded {
    /// The arithmetic mean.
    pub mean_ns: f64,
    /// The median.
    pub median_ns: f64,
    /// The sample standard deviation; 0 for fewer than two times.
    pub standard_deviation_ns: f64,
}

impl From<&Statistics> for Unrounded {
    fn from(Statistics { times }: &Statistics) -> Self {
        let mean_ns = sum(times) as f64 / times.len().max(1) as f64;
        let last = times.len().saturating_sub(1);
        let median_ns = match (times.get(last / 2), times.get(times.len() / 2)) {
            (Some(&lower), Some(&upper)) => (lower as f64 + upper as f64) / 2.0,
            _ => 0.0,
        };
        let squares: f64 = times.iter().map(|&ns| (ns as f64 - mean_ns).powi(2)).sum();
        let degrees = times.len().saturating_sub(1).max(1) as f64;
        Self { mean_ns, median_ns, standard_deviation_ns: (squares / degrees).sqrt() }
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.times.is_empty() {
            return f.write_str("none");
        }
        write!(
            f,
            "{} x {}: median {}, {} to {}, standard deviation {}, sum {}",
            self.count(),
            time(self.mean()),
            time(self.median()),
            time(self.min()),
            time(self.max()),
            time(self.standard_deviation()),
            time(self.sum()),
        )
    }
}

serialize_fields!(Statistics, "Statistics", |all| {
    "count": all.count(),
    "sum_ns": ns(all.sum()),
    "mean_ns": ns(all.mean()),
    "median_ns": ns(all.median()),
    "min_ns": ns(all.min()),
    "max_ns": ns(all.max()),
    "standard_deviation_ns": ns(all.standard_deviation()),
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_slow_first_values_are_warm_up() {
        let slow = [90, 99, 95];
        // With an even and an odd number of values in the later half.
        for alternating in [&[10, 25].repeat(20)[..], &[10, 25].repeat(21)[..]] {
            assert_eq!(warm_up(alternating), 0);
            assert_eq!(warm_up(&[&slow[..], alternating].concat()), 3);
        }
        assert_eq!(warm_up(&[&slow[..], &[10; 9]].concat()), 3);
        assert_eq!(warm_up(&[[25; 9], [10; 9]].concat()), 9);
    }

    #[test]
    fn statistics_match_the_textbook() {
        let times = vec![40, 15, 50, 20, 35];
        for (statistic, expected) in [
            (Statistic::Min, 15),
            (Statistic::Median, 35),
            (Statistic::Mean, 32),
            (Statistic::Max, 50),
            (Statistic::Percentile(5.0), 15),
            (Statistic::Percentile(30.0), 20),
            (Statistic::Percentile(40.0), 20),
            (Statistic::Percentile(50.0), 35),
            (Statistic::Percentile(100.0), 50),
            (Statistic::Percentile(-1.0), 15),
            (Statistic::Percentile(f64::NAN), 15),
        ] {
            assert_eq!(statistic.compute(times.clone()), expected, "{statistic:?}");
            assert_eq!(statistic.compute(Vec::new()), 0);
        }
        assert_eq!(Statistic::Median.compute(vec![10, 20, 40, 50]), 30);
        // 99.9 % of 1,000 are 999 of them.
        for count in [1000_u64, 2000, 10_000, 100_000] {
            assert_eq!(
                Statistic::Percentile(99.9).compute((1..=count).collect()),
                count / 1000 * 999
            );
        }
    }

    #[test]
    fn deviations_are_sample_deviations() {
        let ns = Duration::from_nanos;
        let times = Statistics::from_nanos(vec![4, 2, 5, 4, 4, 9, 7, 5]);
        // Squares of 3, 1, 1, 1, 0, 0, 2, 4 from the mean of 5: 32, of 7.
        assert_eq!((times.mean(), times.standard_deviation()), (ns(5), ns(2)));
        let times = Statistics::from_nanos(vec![10, 1_000, 20, 30, 40]);
        assert_eq!((times.median(), times.median_absolute_deviation()), (ns(30), ns(10)));
        assert_eq!(times.standard_deviation(), ns(436), "the square root of 761,000 / 4 is 436.18");
        assert_eq!(Statistics::from_nanos(vec![7]).standard_deviation(), Duration::ZERO);
        assert_eq!(Statistics::from_nanos(vec![u64::MAX; 2]).sum(), ns(u64::MAX));
        let four = Statistics::from_nanos(vec![9, 2, 4, 5]);
        let Unrounded { mean_ns, median_ns, .. } = Unrounded::from(&four);
        assert_eq!((median_ns, mean_ns), (4.5, 5.0));
        let deviation = Unrounded::from(&four).standard_deviation_ns;
        assert!((deviation - 2.943_920_288_775_949).abs() < 1e-12);
        assert_eq!((upper_median(vec![9, 2, 4, 5]), upper_median::<u8>(vec![])), (Some(5), None));
        assert_eq!((percent_of(0, 0), percent_of(1, 4)), (0.0, 25.0));
    }

    #[test]
    fn statistics_display_and_serialize() {
        let times = Statistics::from_nanos(vec![1_000, 3_000, 8_000]);
        assert_eq!(
            times.to_string(),
            "3 x 4.000 us: median 3.000 us, 1.000 us to 8.000 us, standard deviation 3.606 us, sum 12.00 us"
        );
        assert_eq!(
            serde_json::to_string(&times).unwrap(),
            "{\"count\":3,\"sum_ns\":12000,\"mean_ns\":4000,\"median_ns\":3000,\"min_ns\":1000,\"max_ns\":8000,\
             \"standard_deviation_ns\":3606}"
        );
        assert_eq!(Statistics::default().to_string(), "none");
    }
}
