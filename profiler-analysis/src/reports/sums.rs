//! Statistics of durations or sizes, in the form that nsys prints for each group.

use profiler_base::statistics::{Statistics, Unrounded};
use profiler_base::units::nanoseconds;
use serde::Serialize;

/// Statistics of durations in nanoseconds, not rounded; files have one decimal, like nsys's.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub(crate) struct TimeSummary {
    /// The sum.
    pub(crate) total_ns: u64,
    /// The arithmetic mean.
    pub(crate) avg_ns: f64,
    /// The median; for an even number of values the mean of the two in the middle.
    pub(crate) med_ns: f64,
    /// The minimum.
    pub(crate) min_ns: u64,
    /// The maximum.
    pub(crate) max_ns: u64,
    /// The standard deviation of a sample (divided by n - 1); 0 for one value.
    pub(crate) stddev_ns: f64,
}

/// Statistics of sizes in bytes. The values are not rounded. Files have megabytes of 1,000,000
/// bytes with three decimals, like nsys's.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub(crate) struct SizeSummary {
    /// The sum.
    pub(crate) total_bytes: u64,
    /// The arithmetic mean.
    pub(crate) avg_bytes: f64,
    /// The median; for an even number of values the mean of the two in the middle.
    pub(crate) med_bytes: f64,
    /// The minimum.
    pub(crate) min_bytes: u64,
    /// The maximum.
    pub(crate) max_bytes: u64,
    /// The standard deviation of a sample (divided by n - 1); 0 for one value.
    pub(crate) stddev_bytes: f64,
}

impl TimeSummary {
    /// Statistics of the values; `None` for no values.
    pub(crate) fn from_values(values: Vec<u64>) -> Option<Self> {
        Self::from_statistics(&Statistics::from_nanos(values))
    }

    /// The statistics as nsys's columns; `None` for no values.
    pub(crate) fn from_statistics(times: &Statistics) -> Option<Self> {
        (times.count() != 0).then(|| {
            let unrounded = Unrounded::from(times);
            Self {
                total_ns: nanoseconds(times.sum()),
                avg_ns: unrounded.mean_ns,
                med_ns: unrounded.median_ns,
                min_ns: nanoseconds(times.min()),
                max_ns: nanoseconds(times.max()),
                stddev_ns: unrounded.standard_deviation_ns,
            }
        })
    }

    /// Statistics of values without a list. The inputs are their number, their sum, the sum of the
    /// squared distances from the mean, and a function from a rank to its value. `None` without
    /// values.
    pub(super) fn from_parts(
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

impl From<TimeSummary> for SizeSummary {
    fn from(of: TimeSummary) -> Self {
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
