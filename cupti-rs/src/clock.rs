//! One clock for host and GPU: `CLOCK_MONOTONIC` in nanoseconds, the clock under
//! [`std::time::Instant`] on Linux.
//!
//! CUPTI has its own clock (`CLOCK_REALTIME`). Its offset to this one is measured at the start and
//! at the stop of a collection. Timestamps are converted by linear interpolation between these
//! readings.
//!
//! CUPTI can also call a timestamp function of the client, which this crate does not use. On an
//! H200 it made CUPTI's GPU times drift several times faster. It cannot be undone, and it would
//! change the clock of every other CUPTI user of the process (docs/decisions/002-clock.md).

use std::convert::Infallible;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::Error;
use crate::library::Library;
use crate::sys::os;

/// Returns the time of `CLOCK_MONOTONIC` in nanoseconds. Costs about 27 ns.
#[inline]
#[must_use]
pub fn now_ns() -> u64 {
    os::monotonic_ns()
}

/// True if a time lies in one of these windows, which are sorted and disjoint. A window includes
/// its first nanosecond and excludes its second. The cost is logarithmic in their number.
#[inline]
#[must_use]
pub fn is_within(windows_ns: &[(u64, u64)], at_ns: u64) -> bool {
    // Most sessions have one window.
    if let [(start, stop)] = windows_ns {
        return (*start..*stop).contains(&at_ns);
    }
    let begun = windows_ns.partition_point(|(start, _)| *start <= at_ns);
    begun.checked_sub(1).is_some_and(|last| at_ns < windows_ns[last].1)
}

/// True if an interval from `start_ns` to `end_ns`, or without an end, touches one of these
/// windows, which are sorted and disjoint.
#[must_use]
pub fn overlaps(windows_ns: &[(u64, u64)], start_ns: u64, end_ns: Option<u64>) -> bool {
    let next = windows_ns.partition_point(|(_, stop)| *stop < start_ns);
    windows_ns.get(next).is_some_and(|(start, _)| end_ns.is_none_or(|end_ns| end_ns >= *start))
}

/// Returns the times that lie in both lists of windows, each sorted and disjoint. Takes one pass
/// over both.
#[must_use]
pub fn intersection(windows_ns: &[(u64, u64)], others_ns: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let (mut windows, mut others) = (windows_ns.iter().peekable(), others_ns.iter().peekable());
    let mut both = Vec::new();
    while let (Some(&&(start, stop)), Some(&&(from, to))) = (windows.peek(), others.peek()) {
        if start.max(from) < stop.min(to) {
            both.push((start.max(from), stop.min(to)));
        }
        // The window that ends first overlaps nothing later.
        if stop < to {
            windows.next();
        } else {
            others.next();
        }
    }
    both
}

/// One comparison of the two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The time of the reading, in [`now_ns`] time.
    pub at_ns: u64,
    /// The lead of CUPTI's clock, in nanoseconds.
    pub offset_ns: i64,
}

/// The relation of CUPTI's timestamps to [`now_ns`]: two readings, and the line between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// The reading at the start of the collection.
    pub start: Reading,
    /// The reading at its stop.
    pub stop: Reading,
}

/// The steepest slew of a disciplined clock is 500 ppm. A change beyond twice that plus a
/// millisecond means that the clock was set.
const STEP_NS: u64 = 1_000_000;
const SLEW: f64 = 1e-3;

impl Clock {
    /// Converts a timestamp of CUPTI to [`now_ns`] time. 0, which CUPTI writes for a missing time,
    /// has no meaning in the result either.
    #[inline]
    pub fn monotonic_ns(&self, cupti_ns: u64) -> u64 {
        let first = cupti_ns.wrapping_add_signed(self.start.offset_ns.wrapping_neg());
        let change = self.stop.offset_ns.wrapping_sub(self.start.offset_ns);
        if change.unsigned_abs() > STEP_NS && self.step_ns() != 0 {
            // The clock was set once, at an unknown time: only one of both offsets may lead to a
            // time between the readings.
            let last = cupti_ns.wrapping_add_signed(self.stop.offset_ns.wrapping_neg());
            let is_between = |at_ns: u64| (self.start.at_ns..=self.stop.at_ns).contains(&at_ns);
            match (is_between(first), is_between(last)) {
                (true, false) => return first,
                (false, true) => return last,
                _ => {}
            }
        }
        let between = self.stop.at_ns.saturating_sub(self.start.at_ns).max(1);
        let elapsed = first.saturating_sub(self.start.at_ns).min(between);
        let change = change as f64 * (elapsed as f64 / between as f64);
        first.wrapping_add_signed((change as i64).wrapping_neg())
    }

    /// Returns the timestamp that CUPTI would write at this [`now_ns`] time. It is the inverse of
    /// [`monotonic_ns`](Self::monotonic_ns), to a nanosecond if the clock was not set between the
    /// readings.
    pub(crate) fn cupti_ns(&self, at_ns: u64) -> u64 {
        let change = self.stop.offset_ns.wrapping_sub(self.start.offset_ns);
        let at_stop = at_ns.wrapping_add_signed(self.stop.offset_ns);
        if change.unsigned_abs() > STEP_NS && self.step_ns() != 0 {
            let at_start = at_ns.wrapping_add_signed(self.start.offset_ns);
            return if self.monotonic_ns(at_start) == at_ns { at_start } else { at_stop };
        }
        let between = self.stop.at_ns.saturating_sub(self.start.at_ns).max(1);
        let elapsed = at_ns.saturating_sub(self.start.at_ns) as f64;
        // The line's slope is per unit of CUPTI's time.
        let elapsed = elapsed / (1.0 - change as f64 / between as f64);
        let change = change as f64 * (elapsed / between as f64).min(1.0);
        at_ns.wrapping_add_signed(self.start.offset_ns).wrapping_add_signed(change as i64)
    }

    /// The step by which CUPTI's clock was set between the readings, in nanoseconds; 0 if it was
    /// not set. A timestamp for which both offsets lead to a time between the readings is then
    /// wrong by up to this.
    pub fn step_ns(&self) -> u64 {
        let between = self.stop.at_ns.saturating_sub(self.start.at_ns);
        let change = self.stop.offset_ns.abs_diff(self.start.offset_ns);
        if change > STEP_NS + (between as f64 * SLEW) as u64 { change } else { 0 }
    }
}

const BRACKETS: usize = 32;

/// Compares the clocks: the narrowest of many brackets, some tens of nanoseconds wide.
pub(crate) fn read(library: &Library) -> Result<Reading, Error> {
    read_with(|| library.api.timestamp())
}

/// Compares with `CLOCK_REALTIME`, which is CUPTI's clock, without a call into CUPTI.
#[must_use]
pub fn read_realtime() -> Reading {
    let reading = read_with(|| {
        // CAST: nanoseconds since 1970 fit until 2554.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok::<_, Infallible>(since.as_nanos() as u64)
    });
    let Ok(reading) = reading;
    reading
}

fn read_with<E>(timestamp: impl Fn() -> Result<u64, E>) -> Result<Reading, E> {
    let mut best = (u64::MAX, Reading { at_ns: 0, offset_ns: 0 });
    for _ in 0..BRACKETS {
        let before = now_ns();
        let cupti = timestamp();
        let after = now_ns();
        let cupti = cupti?;
        let width = after - before;
        if width < best.0 {
            let at_ns = before + width / 2;
            best = (width, Reading { at_ns, offset_ns: cupti.wrapping_sub(at_ns) as i64 });
        }
    }
    Ok(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(start: (u64, i64), stop: (u64, i64)) -> Clock {
        let reading = |(at_ns, offset_ns)| Reading { at_ns, offset_ns };
        Clock { start: reading(start), stop: reading(stop) }
    }

    #[test]
    fn a_drifting_clock_is_followed() {
        let drifting = clock((1_000_000, 500), (2_000_000, 700));
        assert_eq!(drifting.monotonic_ns(1_000_500), 1_000_000);
        assert_eq!(drifting.monotonic_ns(2_000_700), 2_000_000);
        assert_eq!(drifting.monotonic_ns(1_500_600), 1_500_000);
        assert_eq!(drifting.step_ns(), 0);
    }

    #[test]
    fn a_time_leads_to_its_timestamp_and_back() {
        let hour = 3_600_000_000_000;
        for stop in [(2_000_000_000, 700), (2_000_000_000, -400_000), (2_000_000_000, 500)] {
            let clock = clock((1_000_000, 500), stop);
            for at in
                [0, 1_000_000, 1_000_001, 7_000_003, 1_999_999_999, 2_000_000_000, 9_000_000_000]
            {
                let back = clock.monotonic_ns(clock.cupti_ns(at));
                assert!(back.abs_diff(at) <= 1, "{at} {back} {stop:?}");
            }
        }
        let set = clock((1_000_000, 500), (9_000_000, 500 + hour));
        assert_eq!(set.monotonic_ns(set.cupti_ns(2_000_000)), 2_000_000);
    }

    #[test]
    fn time_near_a_clock_step_uses_the_nearer_reading() {
        const HOUR: i64 = 3_600_000_000_000;
        for step in [HOUR, -HOUR] {
            let set = clock((1_000_000, 500), (9_000_000, 500 + step));
            assert_eq!(set.monotonic_ns(2_000_500), 2_000_000);
            assert_eq!(set.monotonic_ns(8_000_500_u64.wrapping_add_signed(step)), 8_000_000);
        }
    }

    #[test]
    fn a_clock_that_was_set_is_noticed() {
        assert_eq!(clock((0, 0), (1_000_000_000, 3_600_000_000_000)).step_ns(), 3_600_000_000_000);
        assert_eq!(clock((0, 5_000_000), (1_000_000_000, 0)).step_ns(), 5_000_000);
        assert_eq!(clock((0, 0), (1_000_000_000, 500_000)).step_ns(), 0, "500 ppm is a slew");
    }

    #[test]
    fn a_time_is_in_a_window_or_between_two() {
        let windows = [(10, 20), (20, 21), (30, 40)];
        let inside = |at| is_within(&windows, at);
        assert!([10, 19, 20, 30, 39].into_iter().all(inside));
        assert!(![0, 9, 21, 29, 40, u64::MAX].into_iter().any(inside));
        assert!(!is_within(&[], 0));
    }

    #[test]
    fn intersection_has_the_times_of_both_lists() {
        assert_eq!(intersection(&[(0, 10), (20, 30)], &[(5, 25)]), [(5, 10), (20, 25)]);
        assert_eq!(intersection(&[(5, 25)], &[(0, 10), (20, 30)]), [(5, 10), (20, 25)]);
        assert_eq!(intersection(&[(0, 10)], &[(10, 20)]), []);
        assert_eq!(intersection(&[(0, 10)], &[]), []);
    }

    #[test]
    fn extreme_readings_wrap_and_are_a_step() {
        let extreme = clock((u64::MAX, i64::MIN), (0, i64::MAX));
        assert_eq!(extreme.monotonic_ns(0), 1 << 63);
        assert_eq!(extreme.monotonic_ns(u64::MAX), (1 << 63) - 1);
        assert_eq!(extreme.step_ns(), u64::MAX);
    }
}
