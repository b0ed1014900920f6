//! Busy and communication time of a device over the last minute, while a recording grows.
//!
//! The times are those of [`busy`](crate::join::busy), counted in bins of [`BIN`]. Operations that
//! arrive together are united; with earlier arrivals they fill a bin at most.

use std::collections::VecDeque;
use std::time::Duration;

use crate::join::busy::united;
use crate::join::rows::Interval;

/// The length of a bin.
pub(crate) const BIN: Duration = Duration::from_millis(100);
const BIN_NS: u64 = BIN.as_nanos() as u64;
/// The number of bins: a minute.
const BINS: usize = 600;

#[derive(Debug, Clone, Copy, Default)]
struct Bin {
    /// The time in which something other than a collective ran.
    busy_ns: u64,
    /// The time in which anything ran.
    all_ns: u64,
}

/// The bins of a device.
#[derive(Debug, Default)]
pub(crate) struct RecentBusy {
    bins: VecDeque<Bin>,
    /// The number of the first bin since the clock's origin.
    first: u64,
    arrived: Vec<(Interval, bool)>,
}

impl RecentBusy {
    /// Adds an operation. It counts with the next call of [`settle`](Self::settle).
    #[inline]
    pub(crate) fn add(&mut self, time: Interval, is_collective: bool) {
        self.arrived.push((time, is_collective));
    }

    /// Counts the operations since the last call, and forgets bins that ended a minute before
    /// `until_ns`.
    pub(crate) fn settle(&mut self, until_ns: u64) {
        let end = until_ns.div_ceil(BIN_NS);
        let first = end.saturating_sub(BINS as u64).max(self.first);
        let gone = usize::try_from(first - self.first).unwrap_or(usize::MAX);
        self.bins.drain(..gone.min(self.bins.len()));
        self.first = first;
        let length = usize::try_from(end.saturating_sub(first)).unwrap_or(0);
        self.bins.resize(length.max(self.bins.len()), Bin::default());
        let arrived = std::mem::take(&mut self.arrived);
        let work = arrived.iter().filter(|(_, is_collective)| !is_collective);
        for time in united(work.map(|(time, _)| *time).collect()) {
            self.fill(time, |bin| &mut bin.busy_ns);
        }
        for time in united(arrived.into_iter().map(|(time, _)| time).collect()) {
            self.fill(time, |bin| &mut bin.all_ns);
        }
    }

    fn fill(&mut self, time: Interval, part: fn(&mut Bin) -> &mut u64) {
        let begin_ns = self.first * BIN_NS;
        let end_ns = begin_ns.saturating_add(self.bins.len() as u64 * BIN_NS);
        let (mut from_ns, until_ns) = (time.start_ns.max(begin_ns), time.end_ns.min(end_ns));
        while from_ns < until_ns {
            let bin = from_ns / BIN_NS;
            let next_ns = (bin + 1).saturating_mul(BIN_NS).min(until_ns);
            // CAST: the bin is one of the list.
            let part = part(&mut self.bins[(bin - self.first) as usize]);
            *part = (*part + (next_ns - from_ns)).min(BIN_NS);
            from_ns = next_ns;
        }
    }

    /// Busy and communication time from the bin of `from_ns` to the bin of `until_ns`, in
    /// nanoseconds.
    pub(crate) fn times_ns(&self, from_ns: u64, until_ns: u64) -> (u64, u64) {
        let bins = self.between(from_ns / BIN_NS, until_ns.div_ceil(BIN_NS));
        bins.fold((0, 0), |(busy, communication), bin| {
            (busy + bin.busy_ns, communication + bin.all_ns.saturating_sub(bin.busy_ns))
        })
    }

    fn between(&self, from: u64, until: u64) -> impl Iterator<Item = Bin> {
        let skipped = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let count = until.saturating_sub(from.max(self.first));
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        self.bins.iter().skip(skipped).take(count).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn ms(start: u64, end: u64) -> Interval {
        Interval { start_ns: start * MS, end_ns: end * MS }
    }

    #[test]
    fn operations_that_overlap_count_once_and_collectives_alone_are_communication() {
        let mut recent = RecentBusy::default();
        recent.add(ms(1_050, 1_150), false);
        recent.add(ms(1_100, 1_260), false);
        recent.add(ms(1_200, 1_400), true);
        recent.settle(1_400 * MS);
        assert_eq!(recent.times_ns(1_000 * MS, 1_400 * MS), (210 * MS, 140 * MS));
        assert_eq!(recent.times_ns(1_200 * MS, 1_300 * MS), (60 * MS, 40 * MS));
        // Half of this bin was busy already: late operations fill it at most.
        recent.add(ms(1_000, 1_100), false);
        recent.settle(1_400 * MS);
        assert_eq!(recent.times_ns(1_000 * MS, 1_100 * MS), (100 * MS, 0));
    }

    #[test]
    fn a_minute_is_stored_whatever_arrives() {
        let mut recent = RecentBusy::default();
        for second in 0..1_000 {
            recent.add(ms(1_000 * second, 1_000 * second + 500), false);
            recent.settle(1_000 * (second + 1) * MS);
        }
        assert_eq!(recent.bins.len(), BINS);
        assert_eq!(recent.times_ns(0, u64::MAX), (60 * 500 * MS, 0));
        // A damaged file may contain any times.
        recent.add(Interval { start_ns: 0, end_ns: u64::MAX }, false);
        recent.add(Interval { start_ns: 9, end_ns: 3 }, true);
        recent.settle(1_000_000 * MS);
        assert_eq!((recent.bins.len(), recent.times_ns(0, u64::MAX).0), (BINS, 60_000 * MS));
        recent.settle(u64::MAX);
        assert_eq!((recent.bins.len(), recent.times_ns(0, u64::MAX)), (BINS, (0, 0)));
        recent.settle(0);
        assert_eq!(recent.bins.len(), BINS);
    }
}
