//! Durations summed by key: the number, bytes, share and statistics of each key's members.
//!
//! Every sum by name uses [`Aggregate`]: queries, reports, the page and `gpuprof top`.

use std::cmp::Reverse;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use rustc_hash::FxHashMap;
use serde_core::ser::{Serialize, SerializeStruct as _, Serializer};

use crate::display::{DisplayOptions, Layout};
use crate::statistics::Statistics;
use crate::table::Table;
use crate::units::{self, percent, time};
use crate::{getters, iterate, order};

/// Groups by descending time, then by count, then in order of first appearance.
#[derive(Debug, Clone)]
pub struct Groups<K> {
    groups: Vec<Group<K>>,
}

/// The operations, waits, calls or ranges with one key.
#[derive(Debug, Clone)]
pub struct Group<K> {
    key: K,
    count: u64,
    bytes: u64,
    /// The bytes of operations with timestamps, and their nanoseconds.
    timed_bytes: (u64, u64),
    share: f64,
    statistics: Statistics,
}

impl<K> Group<K> {
    getters! {
        /// The common key.
        key: &K = key;
        /// The number of members, with and without timestamps.
        count: u64 = count;
        /// The sum of their times.
        time: Duration = statistics.sum();
        /// The share of the time of all groups, 0 to 1.
        share: f64 = share;
        /// Bytes copied and set.
        bytes: u64 = bytes;
        /// Statistics of the times.
        statistics: &Statistics = statistics;
    }

    /// [Bytes](Self::bytes) per time in GB/s (10^9 bytes per second). `None` if either is 0.
    pub fn bandwidth(&self) -> Option<f64> {
        let (bytes, ns) = self.timed_bytes;
        // One byte per nanosecond equals one GB/s.
        (bytes != 0 && ns != 0).then(|| bytes as f64 / ns as f64)
    }
}

impl<K> Groups<K> {
    /// The smallest set of groups with this share of the total time, by descending time. Empty if
    /// no time was spent.
    pub fn top_share(&self, share: f64) -> &[Group<K>] {
        let total: f64 = self.groups.iter().map(|group| group.time().as_secs_f64()).sum();
        // Sums of shares are inexact in the last digits.
        let wanted = share.clamp(0.0, 1.0) * total * (1.0 - 1e-12);
        let mut reached = 0.0;
        let enough = self.groups.iter().position(|group| {
            if reached >= wanted {
                return true;
            }
            reached += group.time().as_secs_f64();
            false
        });
        &self.groups[..enough.unwrap_or(self.groups.len())]
    }

    getters! {
        /// The number of groups.
        len: usize = groups.len();
        /// True if there are no groups.
        is_empty: bool = groups.is_empty();
        /// The groups.
        iter: std::slice::Iter<'_, Group<K>> = groups.iter();
        /// The groups.
        as_slice: &[Group<K>] = groups;
    }

    /// The first group whose key has this text: a kernel without parameters, a range by its path.
    pub fn get(&self, key: &str) -> Option<&Group<K>>
    where
        K: fmt::Display,
    {
        self.groups.iter().find(|group| group.key.to_string() == key)
    }
}

impl<K> IntoIterator for Groups<K> {
    type Item = Group<K>;
    type IntoIter = std::vec::IntoIter<Group<K>>;

    fn into_iter(self) -> Self::IntoIter {
        self.groups.into_iter()
    }
}

iterate!(Groups<K>: Group<K>);

/// Rows of a table; the last row sums the remaining groups.
const SHOWN: usize = 20;

impl<K: fmt::Display> DisplayOptions for Groups<K> {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.groups.is_empty() {
            return f.write_str("none");
        }
        let mut header = vec!["", "count", "time", "share", "mean", "median", "min", "max"];
        let moves_bytes = self.groups.iter().any(|group| group.bytes != 0);
        if moves_bytes {
            header.extend(["bytes", "GB/s"]);
        }
        let mut table = Table::new(header, 1);
        for group in self.groups.iter().take(SHOWN) {
            let times = &group.statistics;
            let mut row = vec![
                group.key.to_string(),
                group.count.to_string(),
                time(group.time()),
                percent(group.share),
                time(times.mean()),
                time(times.median()),
                time(times.min()),
                time(times.max()),
            ];
            if group.bytes != 0 {
                row.push(units::bytes(group.bytes));
                row.extend(group.bandwidth().map(|rate| format!("{rate:.3}")));
            }
            table.add_row(row);
        }
        let rest = self.groups.get(SHOWN..).unwrap_or_default();
        if !rest.is_empty() {
            table.add_row([
                format!("({} others)", rest.len()),
                rest.iter().map(|group| group.count).sum::<u64>().to_string(),
                time(rest.iter().map(Group::time).fold(Duration::ZERO, Duration::saturating_add)),
                percent(rest.iter().map(|group| group.share).sum()),
            ]);
        }
        f.write_str(&table.render(layout))
    }
}

crate::display_by_default_layout!([K: std::fmt::Display] Groups<K>);

/// Accumulates groups, with 8 bytes for each duration.
#[derive(Debug)]
pub struct Aggregate<K> {
    /// The sums by key, each with the number of its key in order of first appearance.
    sums: FxHashMap<K, (usize, Sum)>,
}

#[derive(Debug, Default)]
struct Sum {
    count: u64,
    bytes: u64,
    timed_bytes: (u64, u64),
    times: Vec<u64>,
}

impl Sum {
    #[inline]
    fn add(&mut self, ns: Option<u64>, bytes: u64) {
        self.count += 1;
        self.times.extend(ns);
        if let Some(ns) = ns.filter(|_| bytes != 0) {
            let (timed, time) = self.timed_bytes;
            self.timed_bytes = (timed.saturating_add(bytes), time.saturating_add(ns));
        }
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl<K: Eq + Hash> Default for Aggregate<K> {
    fn default() -> Self {
        Self { sums: FxHashMap::default() }
    }
}

impl<K: Eq + Hash> Aggregate<K> {
    /// Adds a member: its duration, if it has one, and its bytes. Returns the number of the key.
    #[inline]
    pub fn add(&mut self, key: K, ns: Option<u64>, bytes: u64) -> usize {
        let next = self.sums.len();
        let (number, sum) = self.sums.entry(key).or_insert_with(|| (next, Sum::default()));
        sum.add(ns, bytes);
        *number
    }

    /// The groups by the numbers of their keys, which is the order of first appearance.
    pub fn into_groups(self) -> Vec<Group<K>> {
        let mut sums: Vec<(K, (usize, Sum))> = self.sums.into_iter().collect();
        order::sort_by_number(&mut sums, |(_, (number, _))| *number as u64);
        let group = |(key, (_, sum)): (K, (usize, Sum))| {
            let Sum { count, bytes, timed_bytes, times } = sum;
            let statistics = Statistics::from_nanos(times);
            Group { key, count, bytes, timed_bytes, share: 0.0, statistics }
        };
        let mut groups: Vec<Group<K>> = sums.into_iter().map(group).collect();
        let total: u128 = groups.iter().map(|group| group.time().as_nanos()).sum();
        for group in groups.iter_mut().filter(|_| total != 0) {
            group.share = group.time().as_nanos() as f64 / total as f64;
        }
        groups
    }

    /// The groups by descending time.
    pub fn ranked(self) -> Groups<K> {
        let mut groups = self.into_groups();
        order::sort_by_key(&mut groups, |group| Reverse((group.time(), group.count)));
        Groups { groups }
    }
}

impl<K: Serialize> Serialize for Groups<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.groups.serialize(serializer)
    }
}

impl<K: Serialize> Serialize for Group<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Group", 5)?;
        fields.serialize_field("key", &self.key)?;
        fields.serialize_field("count", &self.count)?;
        fields.serialize_field("bytes", &self.bytes)?;
        fields.serialize_field("share", &self.share)?;
        fields.serialize_field("times", &self.statistics)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_in_the_order_of_time_or_of_appearance() {
        let mut sums = Aggregate::default();
        for (key, ns, bytes) in
            [("a", Some(2), 10), ("b", Some(9), 0), ("a", None, 5), ("a", Some(5), 10)]
        {
            sums.add(key, ns, bytes);
        }
        assert_eq!(sums.add("c", None, 0), 2, "the third key");
        let keys = |groups: &[Group<&'static str>]| {
            groups.iter().map(|group| *group.key()).collect::<Vec<_>>()
        };
        let ranked = sums.ranked();
        assert_eq!(keys(ranked.as_slice()), ["b", "a", "c"]);
        let a = ranked.get("a").unwrap();
        assert_eq!((a.count(), a.bytes(), a.statistics().count()), (3, 25, 2));
        assert_eq!((a.share(), a.bandwidth()), (0.4375, Some(20.0 / 7.0)));
        assert_eq!(keys(ranked.top_share(0.5)), ["b"]);
        let mut sums = Aggregate::default();
        let indices = ["x", "y", "x"].map(|key| sums.add(key, Some(1), 0));
        assert_eq!(indices, [0, 1, 0]);
        assert_eq!(keys(&sums.into_groups()), ["x", "y"]);
    }
}
