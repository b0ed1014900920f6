//! Counter tracks: allocated memory, and the samples of a track as segments to draw, with gaps where
//! no value is known.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use profiler_base::units::nanoseconds as ns;
use rustc_hash::FxHashMap;

use profiler_core::profile::{Profile, Track};
use profiler_core::series::Kind;

/// Values, each valid from its time.
pub(crate) type Samples = Vec<(u64, i64)>;

/// Bytes of device memory relative to the session's start, if CUPTI recorded allocations
/// (`MEMORY2`). Freeing an older allocation subtracts the size in its record.
pub(crate) fn memory(profile: &Profile) -> BTreeMap<u32, Samples> {
    let mut changes: BTreeMap<u32, Samples> = BTreeMap::new();
    let mut sizes = FxHashMap::default();
    let events = profile.tables().memory_events();
    for event in events.filter(|event| event.kind == cupti::MemoryKind::DEVICE) {
        let bytes = i64::try_from(event.bytes).unwrap_or(i64::MAX >> 16);
        let key = (event.process, event.device, event.address);
        let change = if event.is_allocation {
            sizes.insert(key, bytes);
            bytes
        } else {
            -sizes.remove(&key).unwrap_or(bytes)
        };
        let at = ns(profile.since_start(event.at_ns));
        changes.entry(event.device).or_default().push((at, change));
    }
    changes.into_iter().map(|(device, changes)| (device, summed(changes))).collect()
}

/// Sums up changes to values, one for each time.
pub(crate) fn summed(mut changes: Samples) -> Samples {
    changes.sort_unstable_by_key(|&(at, _)| at);
    let mut samples: Samples = Vec::with_capacity(changes.len());
    let mut sum = 0i64;
    for (at, change) in changes {
        sum = sum.saturating_add(change);
        match samples.last_mut() {
            Some(last) if last.0 == at => last.1 = sum,
            _ => samples.push((at, sum)),
        }
    }
    samples
}

/// A value over an interval, in the caller's nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TrackSegment {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The mean of several samples by time; for states the longest-held value.
    pub(crate) value: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// The number of samples combined.
    pub(crate) samples: u64,
}

impl TrackSegment {
    fn ns(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// The segments of a track since the session's start, downsampled to at most `most`.
pub(crate) fn track_segments(track: &Track<'_>, most: usize) -> Vec<TrackSegment> {
    let samples = track.samples().map(|sample| (ns(sample.start), ns(sample.end), sample.value));
    let kind = track.kind();
    downsampled(segments(samples, ns(track.series().interval()), kind), kind, most)
}

/// The segments of a state that changes at some times and ends with the session.
pub(crate) fn state_segments(changes: &Samples, end: u64, most: usize) -> Vec<TrackSegment> {
    let ends = changes.iter().skip(1).map(|(at, _)| *at).chain([end]);
    let samples = changes.iter().zip(ends).map(|(&(at, value), end)| (at, end, value as f64));
    downsampled(segments(samples, 0, Kind::State), Kind::State, most)
}

/// Converts samples to sorted, disjoint segments.
///
/// Intervals of consecutive samples differ by some hundred nanoseconds: a sample that begins less
/// than half an interval after the previous one continues it. A larger distance leaves a gap.
/// Totals become rates per second, so that the area below the track is the total.
fn segments(
    samples: impl Iterator<Item = (u64, u64, f64)>,
    interval_ns: u64,
    kind: Kind,
) -> Vec<TrackSegment> {
    let near = interval_ns / 2;
    let mut found: Vec<TrackSegment> = Vec::new();
    for (start, end, value) in samples {
        // A sample without a length has no area.
        if !value.is_finite() || end <= start {
            continue;
        }
        let mut new = TrackSegment { start, end, value, least: value, most: value, samples: 1 };
        if let Some(last) = found.last_mut() {
            if start <= last.end.saturating_add(near) && end > last.end {
                last.end = start.max(last.start + 1);
            }
            new.start = start.max(last.end);
            new.end = end.max(new.start);
            if kind == Kind::State && last.end == new.start && last.value == value {
                last.end = new.end;
                last.samples += 1;
                continue;
            }
        }
        found.push(new);
    }
    found.retain(|segment| segment.ns() > 0);
    if kind == Kind::Total {
        for segment in &mut found {
            let rate = segment.value * 1e9 / segment.ns() as f64;
            (segment.value, segment.least, segment.most) = (rate, rate, rate);
        }
        found.retain(|segment| segment.value.is_finite());
    }
    found
}

/// Merges equal numbers of consecutive segments so that at most `most` remain. The area and the
/// extremes are preserved; gaps within a merged segment follow it.
fn downsampled(all: Vec<TrackSegment>, kind: Kind, most: usize) -> Vec<TrackSegment> {
    let each = all.len().div_ceil(most.max(1));
    if each <= 1 {
        return all;
    }
    all.chunks(each).filter_map(|chunk| merged(chunk, kind)).collect()
}

fn merged(chunk: &[TrackSegment], kind: Kind) -> Option<TrackSegment> {
    let first = chunk.first()?;
    let ns: u64 = chunk.iter().map(TrackSegment::ns).sum();
    let value = match kind {
        Kind::Total | Kind::Mean => {
            let area: f64 = chunk.iter().map(|segment| segment.value * segment.ns() as f64).sum();
            area / ns as f64
        }
        Kind::State => longest(chunk),
    };
    value.is_finite().then_some(TrackSegment {
        start: first.start,
        end: first.start.saturating_add(ns),
        value,
        least: chunk.iter().fold(f64::INFINITY, |least, segment| least.min(segment.least)),
        most: chunk.iter().fold(f64::NEG_INFINITY, |most, segment| most.max(segment.most)),
        samples: chunk.iter().map(|segment| segment.samples).sum(),
    })
}

/// The value held longest; the first of equal ones.
fn longest(chunk: &[TrackSegment]) -> f64 {
    let mut times: FxHashMap<u64, (u64, Reverse<usize>)> = FxHashMap::default();
    for (row, segment) in chunk.iter().enumerate() {
        times.entry(segment.value.to_bits()).or_insert((0, Reverse(row))).0 += segment.ns();
    }
    let longest = times.into_iter().max_by_key(|(_, held)| *held);
    longest.map_or(f64::NAN, |(bits, _)| f64::from_bits(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_one_time_are_one_sample() {
        assert_eq!(
            summed(vec![(5, -1), (1, 1), (1, 1), (3, 1), (5, -1)]),
            [(1, 2), (3, 3), (5, 1)]
        );
    }

    fn segments_of(samples: &[(u64, u64, f64)], kind: Kind) -> Vec<TrackSegment> {
        segments(samples.iter().copied(), 100, kind)
    }

    fn plain(all: &[TrackSegment]) -> Vec<(u64, u64, f64)> {
        all.iter().map(|segment| (segment.start, segment.end, segment.value)).collect()
    }

    fn area(all: &[TrackSegment]) -> f64 {
        all.iter().map(|segment| segment.value * segment.ns() as f64).sum()
    }

    #[test]
    fn nearly_adjacent_samples_join_and_gaps_remain() {
        let samples = [(0, 98, 1.0), (100, 203, 2.0), (200, 300, 3.0), (500, 600, 4.0)];
        let all = segments_of(&samples, Kind::Mean);
        assert_eq!(plain(&all), [(0, 100, 1.0), (100, 200, 2.0), (200, 300, 3.0), (500, 600, 4.0)]);
    }

    #[test]
    fn totals_become_rates_and_unknown_values_gaps() {
        let samples = [(0, 100, 5.0), (100, 200, f64::NAN), (200, 300, 7.0), (300, 300, 9.0)];
        let all = segments_of(&samples, Kind::Total);
        assert_eq!(plain(&all), [(0, 100, 5e7), (200, 300, 7e7)], "no time, no rate");
        assert!(segments_of(&[(0, 100, f64::NAN)], Kind::State).is_empty());
    }

    #[test]
    fn equal_adjacent_states_are_merged() {
        let samples = [(0, 100, 1.0), (101, 210, 1.0), (208, 310, 2.0), (900, 1000, 2.0)];
        let all = segments_of(&samples, Kind::State);
        assert_eq!(plain(&all), [(0, 208, 1.0), (208, 310, 2.0), (900, 1000, 2.0)]);
        assert_eq!(all.iter().map(|segment| segment.samples).collect::<Vec<_>>(), [2, 1, 1]);
    }

    #[test]
    fn downsampling_keeps_the_area_and_the_extremes() {
        let samples: Vec<_> = (0..10_007u64)
            .map(|i| {
                (i * 100 + i / 3000 * 700, (i + 1) * 100 + i / 3000 * 700, (i * i % 97) as f64)
            })
            .collect();
        let all = segments_of(&samples, Kind::Mean);
        assert_eq!(all.len(), samples.len());
        for most in [1, 7, 100, 5_000, 10_006] {
            let few = downsampled(all.clone(), Kind::Mean, most);
            assert!(few.len() <= most && few.len() * 2 > most, "{} of {most}", few.len());
            assert!((area(&few) / area(&all) - 1.0).abs() < 1e-12);
            assert_eq!(few.iter().map(|segment| segment.samples).sum::<u64>(), 10_007);
            let ends = |all: &[TrackSegment]| {
                all.iter().fold((f64::MAX, 0.0f64), |(least, most), segment| {
                    (segment.least.min(least), segment.most.max(most))
                })
            };
            assert_eq!(ends(&few), ends(&all));
            assert!(few.windows(2).all(|pair| pair[0].end <= pair[1].start));
        }
        assert_eq!(downsampled(all.clone(), Kind::Mean, 10_007), all);
    }

    #[test]
    fn downsampling_keeps_the_longest_state() {
        let samples = [(0, 100, 1.0), (100, 200, 3.0), (200, 300, 1.0), (300, 400, 2.0)];
        let all = segments_of(&samples, Kind::State);
        let few = downsampled(all, Kind::State, 1);
        assert_eq!(plain(&few), [(0, 400, 1.0)]);
        assert_eq!((few[0].least, few[0].most), (1.0, 3.0));
    }
}
