//! Statistics of durations or sizes, as nsys prints them of each group.

use serde::Serialize;

/// Statistics of durations in nanoseconds, not rounded; files have one decimal, as nsys's.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// The sum.
    pub total_ns: u64,
    /// The arithmetic mean.
    pub avg_ns: f64,
    /// The median; for an even number of values the mean of the two in the middle.
    pub med_ns: f64,
    /// The minimum.
    pub min_ns: u64,
    /// The maximum.
    pub max_ns: u64,
    /// The standard deviation of a sample (divided by n - 1); 0 for one value.
    pub stddev_ns: f64,
}

/// Statistics of sizes in bytes. The values are not rounded; files have megabytes of 1,000,000
/// bytes with three decimals, as nsys's.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct SizeSummary {
    /// The sum.
    pub total_bytes: u64,
    /// The arithmetic mean.
    pub avg_bytes: f64,
    /// The median; for an even number of values the mean of the two in the middle.
    pub med_bytes: f64,
    /// The minimum.
    pub min_bytes: u64,
    /// The maximum.
    pub max_bytes: u64,
    /// The standard deviation of a sample (divided by n - 1); 0 for one value.
    pub stddev_bytes: f64,
}

impl Summary {
    /// Statistics of the values, which it reorders; `None` for no values.
    pub(crate) fn of(values: &mut [u64]) -> Option<Self> {
        let (&first, count) = (values.first()?, values.len());
        let (mut total, mut min, mut max) = (0_u128, first, first);
        for &value in &*values {
            total += u128::from(value);
            min = min.min(value);
            max = max.max(value);
        }
        let avg = total as f64 / count as f64;
        let squares: f64 = values.iter().map(|&value| (value as f64 - avg).powi(2)).sum();
        let stddev = if count == 1 { 0.0 } else { (squares / (count - 1) as f64).sqrt() };
        Some(Self {
            total_ns: u64::try_from(total).unwrap_or(u64::MAX),
            avg_ns: avg,
            med_ns: median(values),
            min_ns: min,
            max_ns: max,
            stddev_ns: stddev,
        })
    }

    /// Statistics of values that are not listed: their number, their sum, the sum of the squared
    /// distances from the mean, and a function from a rank to its value. `None` for no values.
    pub(super) fn of_parts(
        count: u64,
        total: u128,
        squares: f64,
        at: impl Fn(u64) -> Option<u64>,
    ) -> Option<Self> {
        let last = count.checked_sub(1)?;
        let upper = at(count / 2)?;
        let is_even = count.is_multiple_of(2);
        let med_ns =
            if is_even { (at(count / 2 - 1)? as f64 + upper as f64) / 2.0 } else { upper as f64 };
        Some(Self {
            total_ns: u64::try_from(total).unwrap_or(u64::MAX),
            avg_ns: total as f64 / count as f64,
            med_ns,
            min_ns: at(0)?,
            max_ns: at(last)?,
            stddev_ns: if last == 0 { 0.0 } else { (squares / last as f64).sqrt() },
        })
    }
}

impl From<Summary> for SizeSummary {
    fn from(of: Summary) -> Self {
        Self {
            total_bytes: of.total_ns,
            avg_bytes: of.avg_ns,
            med_bytes: of.med_ns,
            min_bytes: of.min_ns,
            max_bytes: of.max_ns,
            stddev_bytes: of.stddev_ns,
        }
    }
}

/// The median of at least one value.
fn median(values: &mut [u64]) -> f64 {
    let middle = values.len() / 2;
    let is_even = values.len().is_multiple_of(2);
    let (below, &mut upper, _) = values.select_nth_unstable(middle);
    match below.iter().max() {
        Some(&lower) if is_even => (lower as f64 + upper as f64) / 2.0,
        _ => upper as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_that_of_a_sample() {
        let of = |values: &mut [u64]| Summary::of(values).unwrap();
        let one = of(&mut [7]);
        assert_eq!((one.total_ns, one.avg_ns, one.med_ns, one.stddev_ns), (7, 7.0, 7.0, 0.0));
        let four = of(&mut [9, 2, 4, 5]);
        assert_eq!((four.med_ns, four.min_ns, four.max_ns, four.avg_ns), (4.5, 2, 9, 5.0));
        assert!((four.stddev_ns - 2.943_920_288_775_949).abs() < 1e-12);
        assert_eq!(Summary::of(&mut []), None);
        assert_eq!(of(&mut [u64::MAX, u64::MAX]).total_ns, u64::MAX);
    }
}
