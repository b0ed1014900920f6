//! Aligns the clock of one host to another host's clock, by events that end on both hosts at almost
//! the same time.
//!
//! The difference of the clocks is a line: an offset and a drift. The drift is the median of the
//! slopes between blocks of events (Theil and Sen). The offset is the median of the residuals.
//! Single late ends therefore change neither.

use profiler_base::statistics::median;

/// The minimum number of events to compare two clocks.
pub(crate) const LEAST_EVENTS: usize = 4;
/// The maximum number of blocks of consecutive events between which slopes are computed.
const BLOCKS: usize = 32;
/// The number of parts of the time; the bound holds in each of them.
const PARTS: usize = 4;
/// The share of the ends within the stated spread.
const WITHIN: f64 = 0.95;

/// The clock of a host, relative to the clock of the profile's first host.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HostClock {
    /// The host with which its collectives were compared; its own index for the first host.
    pub compared_with: usize,
    /// The collectives whose ends were compared; 0 for a machine whose [captures](
    /// crate::profile::Merger::add_capture) have the calendar's time, with an unknown error.
    pub collectives: u64,
    /// Nanoseconds to add to its clock in the middle of these collectives.
    pub offset_ns: i64,
    /// The drift of its clock in parts per million; positive if it is slow.
    pub drift_ppm: f64,
    /// The difference between 95 of 100 ends and the line through all of them is at most this.
    pub spread_ns: u64,
    /// The maximum error of the offset for which every collective ends after all its ranks have
    /// arrived.
    pub error_bound_ns: u64,
    /// The number of collectives that end before a rank has arrived, by more than the spread. Many
    /// of them indicate that the collectives of the hosts were matched wrongly.
    pub contradictions: u64,
    /// The time at which the offset holds.
    #[cfg_attr(feature = "serde", serde(skip))]
    at_ns: u64,
}

/// A collective on two hosts, in nanoseconds of their clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedEvent {
    pub(crate) own: Occurrence,
    pub(crate) other: Occurrence,
}

/// The kernels of a collective on one host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Occurrence {
    /// The last arrival.
    pub(crate) arrived_ns: u64,
    pub(crate) first_end_ns: u64,
    pub(crate) last_end_ns: u64,
}

fn difference(a: u64, b: u64) -> i64 {
    // CAST: times that far apart do not occur.
    (i128::from(a) - i128::from(b)).clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

fn moved(ns: u64, by: i64) -> u64 {
    ns.saturating_add_signed(by)
}

impl HostClock {
    /// The clock to which all others are aligned.
    pub(crate) fn first(host: usize) -> Self {
        Self {
            compared_with: host,
            collectives: 0,
            offset_ns: 0,
            drift_ppm: 0.0,
            spread_ns: 0,
            error_bound_ns: 0,
            contradictions: 0,
            at_ns: 0,
        }
    }

    /// The clock that is read this much later.
    pub(crate) fn with_offset(self, offset_ns: i64) -> Self {
        Self { offset_ns, ..self }
    }

    /// A clock of a simulated host.
    #[cfg(test)]
    pub(crate) fn planted(offset_ns: i64, drift_ppm: f64, at_ns: u64) -> Self {
        Self { offset_ns, drift_ppm, at_ns, ..Self::first(0) }
    }

    /// Compares two clocks. Costs a sort of the events. `None` with too few events.
    pub(crate) fn fitted(compared_with: usize, events: &mut [SharedEvent]) -> Option<Self> {
        if events.len() < LEAST_EVENTS {
            return None;
        }
        events.sort_by_key(|event| event.own.last_end_ns);
        let middle = events[events.len() / 2];
        let at_ns = middle.own.last_end_ns;
        // Differences of differences: a double holds nanoseconds of days, not of years.
        let base = difference(middle.other.last_end_ns, at_ns);
        let beside = |other: u64, own: u64| difference(other, own).saturating_sub(base) as f64;
        let times: Vec<f64> =
            events.iter().map(|event| difference(event.own.last_end_ns, at_ns) as f64).collect();
        let offsets: Vec<f64> = events
            .iter()
            .map(|event| beside(event.other.last_end_ns, event.own.last_end_ns))
            .collect();
        let drift = slope(&times, &offsets);
        let line = |drift: f64, time: f64| drift * time;
        let rest: Vec<f64> =
            times.iter().zip(&offsets).map(|(time, offset)| offset - line(drift, *time)).collect();
        let offset = middle_of(rest.clone())?;
        let mut apart: Vec<f64> = rest.iter().map(|rest| (rest - offset).abs()).collect();
        apart.sort_by(f64::total_cmp);
        let spread = apart[((apart.len() - 1) as f64 * WITHIN).ceil() as usize];
        let mut contradictions = 0;
        let mut bound: f64 = 0.0;
        let part = events.len().div_ceil(PARTS);
        for (events, times) in events.chunks(part).zip(times.chunks(part)) {
            let (mut up, mut down) = (f64::INFINITY, f64::INFINITY);
            for (event, time) in events.iter().zip(times) {
                let fitted = offset + line(drift, *time);
                // Neither host ends before the other has arrived.
                let may_rise = beside(event.other.first_end_ns, event.own.arrived_ns) - fitted;
                let may_fall = fitted - beside(event.other.arrived_ns, event.own.first_end_ns);
                if may_rise < -spread || may_fall < -spread {
                    contradictions += 1;
                    continue;
                }
                (up, down) = (up.min(may_rise), down.min(may_fall));
            }
            if up.is_finite() {
                bound = bound.max(up).max(down);
            }
        }
        Some(Self {
            compared_with,
            collectives: events.len() as u64,
            offset_ns: base.saturating_add(offset.round() as i64),
            drift_ppm: drift * 1e6,
            spread_ns: spread.ceil() as u64,
            error_bound_ns: bound.ceil() as u64,
            contradictions,
            at_ns,
        })
    }

    /// Converts a time of its clock to the clock with which it was compared. Negative times
    /// become 0.
    pub fn aligned(&self, ns: u64) -> u64 {
        // 0 represents no time, and the largest number no end.
        if ns == 0 || ns == u64::MAX {
            return ns;
        }
        let drift = self.drift_ppm * 1e-6 * difference(ns, self.at_ns) as f64;
        moved(ns, self.offset_ns.saturating_add(drift.round() as i64))
    }

    /// Composes it with the alignment of the clock with which it was compared. Errors add up.
    pub(crate) fn through(&self, other: &Self) -> Self {
        let aligned = other.aligned(moved(self.at_ns, self.offset_ns));
        let slope = (1.0 + self.drift_ppm * 1e-6) * (1.0 + other.drift_ppm * 1e-6) - 1.0;
        Self {
            offset_ns: difference(aligned, self.at_ns),
            drift_ppm: slope * 1e6,
            spread_ns: self.spread_ns + other.spread_ns,
            error_bound_ns: self.error_bound_ns + other.error_bound_ns,
            ..*self
        }
    }
}

fn middle_of(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    median(&values)
}

/// The median slope between the medians of consecutive blocks. Times are sorted.
fn slope(times: &[f64], values: &[f64]) -> f64 {
    let size = times.len().div_ceil(BLOCKS);
    let blocks = times.chunks(size).zip(values.chunks(size));
    let middles: Vec<(f64, f64)> = blocks
        .filter_map(|(times, values)| Some((median(times)?, middle_of(values.to_vec())?)))
        .collect();
    let pairs = middles.iter().enumerate().flat_map(|(at, first)| {
        middles[at + 1..].iter().map(move |last| (last.0 - first.0, last.1 - first.1))
    });
    let slopes = pairs.filter(|(time, _)| *time > 0.0).map(|(time, value)| value / time);
    middle_of(slopes.collect()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Collectives of two hosts; the own clock is behind by an offset and slow by a drift.
    fn events(rng: &mut Rng, count: u64, offset_ns: i64, drift: f64) -> Vec<SharedEvent> {
        let mut all = Vec::new();
        for at in 0..count {
            let end = 100_000 * SECOND + at * 10_000_000 + rng.u64(..1_000_000);
            let mut occurrence = || {
                // Up to 5 us apart at the end; the arrivals 30 to 330 us before.
                let end = end + rng.u64(..5_000);
                Occurrence {
                    arrived_ns: end - rng.u64(30_000..330_000),
                    first_end_ns: end,
                    last_end_ns: end + rng.u64(..500),
                }
            };
            let (mut own, mut other) = (occurrence(), occurrence());
            // One has to be the last: neither ends before both have arrived.
            let arrived = own.arrived_ns.max(other.arrived_ns);
            assert!(arrived < own.first_end_ns.min(other.first_end_ns));
            if rng.u32(..20) == 0 {
                // The record of a kernel that another one held up.
                other.last_end_ns += 2_000_000;
            }
            let own_clock = |ns: u64| {
                let slow = drift * difference(ns, 100_000 * SECOND) as f64;
                (ns as i64 - offset_ns - slow.round() as i64) as u64
            };
            for time in [&mut own.arrived_ns, &mut own.first_end_ns, &mut own.last_end_ns] {
                *time = own_clock(*time);
            }
            all.push(SharedEvent { own, other });
        }
        all
    }

    #[test]
    fn planted_offsets_and_drifts_are_found_within_the_stated_errors() {
        let mut rng = Rng::with_seed(39);
        for (count, minutes, ppm) in
            [(2_000, 7, 20.0), (500, -12, -80.0), (64, 500, 0.5), (10, 1, 5.0)]
        {
            let (offset, drift) = (minutes * 60 * SECOND as i64, ppm * 1e-6);
            let mut events = events(&mut rng, count, offset, drift);
            let clock = HostClock::fitted(0, &mut events).unwrap();
            assert_eq!((clock.collectives, clock.contradictions), (count, 0), "{clock:?}");
            // The planted line is that of the true time; the own clock's is a millionth of it off.
            for event in &events {
                let own = event.own.first_end_ns;
                let slow = drift / (1.0 - drift) * ((own as i64 + offset) as f64 - 100_000e9);
                let expected = own as i64 + offset + slow.round() as i64;
                let error = (clock.aligned(own) as i64 - expected).unsigned_abs();
                assert!(error <= clock.spread_ns, "{error} ns, {clock:?}");
                assert!(error <= clock.error_bound_ns, "{error} ns, {clock:?}");
            }
            // With few events one of 20 that ended late is among the 95.
            assert!(clock.spread_ns < 2_000_000 + 10_000, "{clock:?}");
            assert!(clock.error_bound_ns < 350_000, "{clock:?}");
            if count > 100 {
                assert!((clock.drift_ppm - ppm).abs() < 0.5, "{clock:?}");
                assert!(clock.error_bound_ns < 60_000, "{clock:?}");
            }
        }
        assert_eq!(HostClock::fitted(0, &mut events(&mut rng, 3, 0, 0.0)), None);
    }

    #[test]
    fn wrongly_matched_events_contradict() {
        let mut shifted = events(&mut Rng::with_seed(7), 200, 0, 0.0);
        let others: Vec<Occurrence> = shifted.iter().map(|event| event.other).collect();
        for (event, other) in shifted.iter_mut().zip(&others[1..]) {
            event.other = *other;
        }
        // Their distances vary by a millisecond, more than a rank waits.
        let clock = HostClock::fitted(0, &mut shifted[..199]).unwrap();
        assert!(clock.spread_ns > 500_000, "{clock:?}");
    }

    #[test]
    fn clocks_are_aligned_through_others() {
        let fitted = |offset, ppm, seed| {
            let mut rng = Rng::with_seed(seed);
            HostClock::fitted(0, &mut events(&mut rng, 400, offset, ppm * 1e-6)).unwrap()
        };
        let (second, third) = (fitted(5_000_000_000, 10.0, 1), fitted(-1_000_000_000, 30.0, 2));
        let through = third.through(&second);
        for seconds in [99_990, 100_000, 100_004, 100_100] {
            let by_steps = second.aligned(third.aligned(seconds * SECOND));
            let apart = by_steps.abs_diff(through.aligned(seconds * SECOND));
            assert!(apart < 20, "{apart} ns: {through:?}");
        }
        assert_eq!(through.spread_ns, second.spread_ns + third.spread_ns);
        assert_eq!(through.error_bound_ns, second.error_bound_ns + third.error_bound_ns);
        assert_eq!((second.aligned(0), second.aligned(u64::MAX)), (0, u64::MAX));
    }
}
