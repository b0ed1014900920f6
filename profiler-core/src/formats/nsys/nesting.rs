//! Nesting by time: the range around each range and call of a thread. A capture has only times.

use crate::join::tables::Interval;

/// The open ranges of one thread, in a sweep over their starts.
///
/// The range around something is the shortest one, as in nsys. On one stack that is the innermost;
/// ranges of several domains may overlap. A range without an end ends at `u64::MAX`; nsys assigns
/// it the length up to the last end of all ranges.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// The last start or end of all ranges.
    last_ns: u64,
    open: Vec<Open>,
    /// Open ranges at which ended ones are removed.
    room: usize,
}

#[derive(Debug)]
struct Open {
    row: u32,
    time: Interval,
    /// The first end among this range and earlier ones.
    first_end_ns: u64,
}

/// Overlapping ranges examined; only a damaged file reaches the limit.
const MOST_LOOKED_AT: usize = 4096;

impl Sweep {
    pub(super) fn new(last_ns: u64) -> Self {
        Self { last_ns, ..Self::default() }
    }

    fn length(&self, time: Interval) -> u64 {
        let end_ns = if time.end_ns == u64::MAX { self.last_ns } else { time.end_ns };
        end_ns.saturating_sub(time.start_ns)
    }

    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.room = 0;
    }

    /// Adds a range. Ranges arrive in the order of their starts.
    pub(super) fn begin(&mut self, row: u32, time: Interval) {
        self.end_until(time.start_ns);
        if self.open.len() > self.room {
            self.forget_ended(time.start_ns);
        }
        let before = self.open.last().map_or(u64::MAX, |open| open.first_end_ns);
        self.open.push(Open { row, time, first_end_ns: before.min(time.end_ns) });
    }

    /// Removes ranges that ended before a later range.
    fn forget_ended(&mut self, now_ns: u64) {
        self.open.retain(|open| open.time.end_ns >= now_ns);
        let mut first_end_ns = u64::MAX;
        for open in &mut self.open {
            first_end_ns = first_end_ns.min(open.time.end_ns);
            open.first_end_ns = first_end_ns;
        }
        self.room = 2 * self.open.len() + 16;
    }

    /// The range around a time; all ranges that began before it were added.
    pub(super) fn around(&mut self, time: Interval) -> Option<u32> {
        self.end_until(time.start_ns);
        let mut best: Option<&Open> = None;
        for open in self.open.iter().rev().take(MOST_LOOKED_AT) {
            // No earlier range can be shorter than this.
            let least = time.end_ns.saturating_sub(open.time.start_ns);
            if best.is_some_and(|best| self.length(best.time) <= least) {
                break;
            }
            let is_around = open.time.end_ns >= time.end_ns;
            let is_shorter = |best: &Open| self.length(open.time) < self.length(best.time);
            if is_around && best.is_none_or(is_shorter) {
                best = Some(open);
            }
            // Earlier ranges end no sooner: they contain it too, and are longer.
            if is_around && open.first_end_ns == open.time.end_ns {
                break;
            }
        }
        best.map(|open| open.row)
    }

    fn end_until(&mut self, now_ns: u64) {
        while self.open.last().is_some_and(|open| open.time.end_ns < now_ns) {
            self.open.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(start_ns: u64, end_ns: u64) -> Interval {
        Interval { start_ns, end_ns }
    }

    /// The shortest range around each, the last of equal ones, by a search of all.
    fn by_looking(ranges: &[Interval], inner: usize) -> Option<u32> {
        let this = ranges[inner];
        let is_around =
            |range: &Interval| range.start_ns <= this.start_ns && range.end_ns >= this.end_ns;
        let before = (0..).zip(&ranges[..inner]).filter(|(_, range)| is_around(range));
        before.min_by_key(|(row, range)| (range.ns(), u32::MAX - row)).map(|(row, _)| row)
    }

    #[test]
    fn the_sweep_finds_what_looking_at_all_finds() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..2000 {
            let mut ranges: Vec<Interval> = (0..rng.usize(..30))
                .map(|_| {
                    let start = rng.u64(..40);
                    time(start, start + rng.u64(..20))
                })
                .collect();
            ranges.sort_by_key(|range| (range.start_ns, u64::MAX - range.end_ns));
            let mut sweep = Sweep::default();
            for (row, &range) in ranges.iter().enumerate() {
                assert_eq!(sweep.around(range), by_looking(&ranges, row), "{row} of {ranges:?}");
                sweep.begin(row as u32, range);
            }
        }
    }

    #[test]
    fn a_range_without_an_end_is_around_calls_in_a_longer_one() {
        let mut sweep = Sweep::new(1000);
        sweep.begin(0, time(0, 1000));
        sweep.begin(1, time(500, u64::MAX));
        assert_eq!(sweep.around(time(600, 610)), Some(1));
        assert_eq!(sweep.around(time(1600, 1610)), Some(1), "it has not ended");
        let mut sweep = Sweep::new(1000);
        sweep.begin(0, time(0, u64::MAX));
        sweep.begin(1, time(500, 1000));
        assert_eq!(sweep.around(time(600, 610)), Some(1));
        assert_eq!(sweep.around(time(700, 1010)), Some(0));
    }

    #[test]
    fn a_call_that_outlives_its_range_is_in_the_one_around() {
        let mut sweep = Sweep::default();
        sweep.begin(0, time(0, 100));
        sweep.begin(1, time(10, 20));
        assert_eq!(sweep.around(time(15, 18)), Some(1));
        assert_eq!(sweep.around(time(15, 25)), Some(0));
        assert_eq!(sweep.around(time(15, 18)), Some(1), "it is still open");
        assert_eq!(sweep.around(time(15, 101)), None);
        assert_eq!(sweep.around(time(30, 40)), Some(0));
    }
}
