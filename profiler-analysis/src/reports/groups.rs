//! Durations and sizes grouped by a key, and the rows of reports that list such groups.

use std::cmp::Reverse;
use std::hash::Hash;

use profiler_base::aggregate::{self as base, Aggregate};
use profiler_base::statistics::percent_of;

use super::Report;
use super::sums::TimeSummary;
use super::table::Row;
use profiler_core::tables::Interval;

/// Values grouped by a key.
pub(super) struct Groups<K> {
    sums: Aggregate<K>,
    /// The number of operations and calls without a time, which are in no group.
    left_out: u64,
}

/// One group of [`Groups`].
pub(super) struct Group<K> {
    pub(super) key: K,
    pub(super) count: u64,
    pub(super) summary: TimeSummary,
    /// The sum of the group in percent of the sum of all groups.
    pub(super) percent: f64,
}

impl<K: Copy + Eq + Hash> Groups<K> {
    pub(super) fn new() -> Self {
        Self { sums: Aggregate::default(), left_out: 0 }
    }

    #[inline]
    pub(super) fn add(&mut self, key: K, value: u64) {
        self.sums.add(key, Some(value), 0);
    }

    /// Adds a duration, or counts a missing one.
    #[inline]
    pub(super) fn add_time(&mut self, time: Option<Interval>, key: impl FnOnce() -> K) {
        match time {
            Some(time) => self.add(key(), time.ns()),
            None => self.left_out += 1,
        }
    }

    /// Returns the groups in the order of their first values.
    pub(super) fn finish(self) -> Vec<Group<K>> {
        let groups = self.sums.into_groups();
        let whole = groups.iter().map(|group| group.statistics().sum().as_nanos()).sum();
        let group = |group: base::Group<K>| {
            let summary = TimeSummary::from_statistics(group.statistics())?;
            let percent = percent_of(summary.total_ns, whole);
            Some(Group { key: *group.key(), count: group.count(), summary, percent })
        };
        groups.into_iter().filter_map(group).collect()
    }

    /// Makes a row for each group, largest sum first, then in the order that `row` returns with it.
    pub(super) fn report<R: Row, O: Ord>(
        self,
        reason: &'static str,
        row: impl Fn(&Group<K>) -> (O, R),
    ) -> Report<R> {
        let left_out = self.left_out;
        let row = |group: Group<K>| {
            let (order, row) = row(&group);
            ((Reverse(group.summary.total_ns), order), row)
        };
        let mut rows: Vec<_> = self.finish().into_iter().map(row).collect();
        rows.sort_by(|(a, _), (b, _)| a.cmp(b));
        Report::new(rows.into_iter().map(|(_, row)| row).collect(), reason).leaving_out(left_out)
    }
}

/// Declares the row of a report of sums: share, number and durations, then the columns of the key.
macro_rules! sum_row {
    ($(#[$doc:meta])* $type:ident = $name:literal, $count:ident $header:literal of $whole:literal {
        $($(#[$attribute:meta])* $field:ident: $of:ty => $column:literal $unit:ident,)+
    }) => {
        $crate::reports::table::row! {
            $(#[$doc])*
            pub(crate) $type = $name {
                #[doc = concat!("Percent of the time of all ", $whole, ".")]
                time_percent: f64 => "Time" Percent,
                /// The number of durations.
                $count: u64,
                /// Statistics of the durations.
                #[serde(flatten)]
                time: $crate::reports::TimeSummary =>
                    |row, cells| cells.add_sum($header, row.$count, &row.time),
                $($(#[$attribute])* $field: $of => $column $unit,)+
            }
        }

        impl $type {
            fn new<K>(group: &$crate::reports::groups::Group<K>, $($field: $of),+) -> Self {
                let (time_percent, $count, time) = (group.percent, group.count, group.summary);
                Self { time_percent, $count, time, $($field),+ }
            }
        }
    };
}
pub(super) use sum_row;
