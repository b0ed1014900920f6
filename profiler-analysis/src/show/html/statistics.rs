//! Times by name with the statistics of `nsys stats`, and busy times of each GPU.

use std::collections::BTreeMap;

use profiler_base::aggregate::{Aggregate, Group};
use profiler_base::statistics::Unrounded;
use profiler_base::units::nanoseconds as ns;
use serde::Serialize;

use super::names::NameRow;
use profiler_core::profile::Profile;
use profiler_core::tables::Interval;
use profiler_core::tables::busy::DeviceSweep;

/// A row of a table by name. Times are nanoseconds over the `timed` of `count`; `std` is the sample
/// standard deviation (n - 1).
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) name: NameRow,
    pub(super) of: u32,
    pub(super) count: u64,
    pub(super) timed: u64,
    pub(super) failed: u64,
    pub(super) bytes: u64,
    pub(super) total: u64,
    pub(super) mean: f64,
    pub(super) median: f64,
    pub(super) min: u64,
    pub(super) max: u64,
    pub(super) std: f64,
}

/// Sums by name, in the order of the names' first values.
#[derive(Default)]
pub(super) struct ByName {
    sums: Aggregate<NameRow>,
    /// By name: the row of the kind in another table, and the number of failed calls.
    of: Vec<(u32, u64)>,
}

impl ByName {
    pub(super) fn add(
        &mut self,
        name: NameRow,
        of: u32,
        took_ns: Option<u64>,
        bytes: u64,
        failed: bool,
    ) {
        let index = self.sums.add(name, took_ns, bytes);
        if index == self.of.len() {
            self.of.push((of, 0));
        }
        self.of[index].1 += u64::from(failed);
    }

    /// The rows, longest total first.
    pub(super) fn finish(&mut self) -> Vec<Row> {
        let groups = std::mem::take(&mut self.sums).into_groups();
        let rows = groups.iter().zip(std::mem::take(&mut self.of));
        let mut rows: Vec<Row> = rows.map(|(group, of)| row(group, of)).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.total));
        rows
    }
}

fn row(group: &Group<NameRow>, (of, failed): (u32, u64)) -> Row {
    let times = group.statistics();
    let unrounded = Unrounded::from(times);
    Row {
        name: *group.key(),
        of,
        count: group.count(),
        timed: times.count(),
        failed,
        bytes: group.bytes(),
        total: ns(times.sum()),
        mean: tenths(unrounded.mean_ns),
        median: tenths(unrounded.median_ns),
        min: ns(times.min()),
        max: ns(times.max()),
        std: tenths(unrounded.standard_deviation_ns),
    }
}

/// Tenths of a nanosecond: more digits are noise.
fn tenths(ns: f64) -> f64 {
    (ns * 10.0).round() / 10.0
}

/// Busy times of a GPU, as [`busy`](profiler_core::tables::busy) defines them.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Busy {
    pub(super) operations: u64,
    /// Time in which an operation other than a collective ran.
    pub(super) busy_ns: u64,
    /// Time in which only collectives ran.
    pub(super) communication_ns: u64,
    /// From the start of the first operation to the end of the last.
    pub(super) span_ns: u64,
    pub(super) gaps: u64,
    /// The longest gaps, longest first.
    #[serde(skip)]
    pub(super) longest_gaps: Vec<Interval>,
    /// Time of work after the stop.
    pub(super) after_stop_ns: u64,
}

impl Busy {
    /// By device, with at most `most` gaps. Operations are in the order of their starts.
    pub(super) fn by_device(profile: &Profile, most: usize) -> BTreeMap<u32, Busy> {
        let timed = profile.operations().map(|operation| {
            let time = operation.start().zip(operation.gpu_time());
            let time = time
                .map(|(start, took)| Interval { start_ns: ns(start), end_ns: ns(start + took) });
            (operation.device(), operation.is_collective(), time)
        });
        busy(timed, ns(profile.duration()), most)
    }
}

fn busy(
    operations: impl Iterator<Item = (u32, bool, Option<Interval>)>,
    stop: u64,
    most: usize,
) -> BTreeMap<u32, Busy> {
    let mut sums: BTreeMap<u32, (Busy, DeviceSweep)> = BTreeMap::new();
    for (device, is_collective, time) in operations {
        let (sum, sweep) = sums.entry(device).or_default();
        sum.operations += 1;
        let Some(time) = time else { continue };
        sum.after_stop_ns = sum.after_stop_ns.max(time.end_ns.saturating_sub(stop));
        if let Some(gap) = sweep.add(time, is_collective) {
            sum.gaps += 1;
            let at = sum.longest_gaps.partition_point(|longer| longer.ns() >= gap.ns());
            if at < most {
                sum.longest_gaps.truncate(most - 1);
                sum.longest_gaps.insert(at, gap);
            }
        }
    }
    let sum = |(device, (sum, sweep)): (u32, (Busy, DeviceSweep))| {
        let (busy_ns, communication_ns) = (sweep.busy_ns(), sweep.communication_ns());
        (device, Busy { busy_ns, communication_ns, span_ns: sweep.span().ns(), ..sum })
    };
    sums.into_iter().map(sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_statistics_of_its_times() {
        let mut rows = ByName::default();
        for time in [2, 4, 4, 4, 5, 5, 7, 9] {
            rows.add(3, 1, Some(time), 10, time == 9);
        }
        rows.add(3, 1, None, 10, false);
        rows.add(8, 2, Some(100), 0, false);
        rows.add(9, 2, None, 0, false);
        let rows = rows.finish();
        assert_eq!(rows.iter().map(|row| row.name).collect::<Vec<_>>(), [8, 3, 9]);
        let expected = Row {
            name: 3,
            of: 1,
            count: 9,
            timed: 8,
            failed: 1,
            bytes: 90,
            total: 40,
            mean: 5.0,
            median: 4.5,
            min: 2,
            max: 9,
            std: 2.1,
        };
        assert_eq!(rows[1], expected);
        assert_eq!((rows[0].median, rows[0].std), (100.0, 0.0));
        assert_eq!((rows[2].count, rows[2].timed, rows[2].mean), (1, 0, 0.0));
    }

    #[test]
    fn overlapping_time_is_busy_once() {
        let time = |start_ns, end_ns| Some(Interval { start_ns, end_ns });
        let all = [
            (0, false, time(10, 20)),
            (0, false, time(12, 15)),
            (0, false, time(18, 30)),
            (1, false, time(18, 19)),
            (0, false, None),
            (0, true, time(28, 32)),
            (0, false, time(40, 45)),
            (0, false, time(46, 47)),
        ];
        let busy = busy(all.into_iter(), 1_000, 1);
        let expected = Busy {
            operations: 7,
            busy_ns: 26,
            communication_ns: 2,
            span_ns: 37,
            gaps: 2,
            longest_gaps: vec![Interval { start_ns: 32, end_ns: 40 }],
            after_stop_ns: 0,
        };
        assert_eq!(busy[&0], expected);
        assert_eq!((busy[&1].busy_ns, busy[&1].gaps), (1, 0));
    }

    #[test]
    fn work_after_the_stop_counts_whole() {
        let time = |start_ns, end_ns| (0, false, Some(Interval { start_ns, end_ns }));
        let all = [time(10, 20), time(90, 130), time(150, 160)];
        let busy = busy(all.into_iter(), 100, 9);
        assert_eq!((busy[&0].busy_ns, busy[&0].gaps, busy[&0].span_ns), (60, 2, 150));
        let gaps: Vec<u64> = busy[&0].longest_gaps.iter().map(|gap| gap.start_ns).collect();
        assert_eq!(gaps, [20, 130], "longest first");
        assert_eq!(busy[&0].after_stop_ns, 60);
    }
}
