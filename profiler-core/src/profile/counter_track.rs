//! A sampled track as those draw it who show it: stretches with a value, and nothing between them where nothing is known.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use crate::base::units::nanoseconds as ns;
use crate::profile::Track;
use crate::record::series::Kind;

/// A value over a stretch of time, in the caller's nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stretch {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Of several samples the mean by time; of states the one that held longest.
    pub(crate) value: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// How many samples it is made of.
    pub(crate) samples: u64,
}

impl Stretch {
    fn ns(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// A track's stretches since the session's start, at most so many.
pub(crate) fn of(track: &Track<'_>, most: usize) -> Vec<Stretch> {
    let samples = track.samples().map(|sample| (ns(sample.start), ns(sample.end), sample.value));
    let kind = track.kind();
    thinned(stretches(samples, track.series().interval_ns(), kind), kind, most)
}

/// Stretches in the order of time; none overlaps another.
///
/// Samples follow each other within some hundred nanoseconds, earlier or later: one that begins less than half an interval
/// after the one before it carries on where that ends. What is farther away leaves a gap. A total becomes so much a second,
/// so that the area below it is the total.
fn stretches(
    samples: impl Iterator<Item = (u64, u64, f64)>,
    interval_ns: u64,
    kind: Kind,
) -> Vec<Stretch> {
    let near = interval_ns / 2;
    let mut found: Vec<Stretch> = Vec::new();
    for (start, end, value) in samples {
        // One of no length has no part in anything.
        if !value.is_finite() || end <= start {
            continue;
        }
        let mut new = Stretch { start, end, value, least: value, most: value, samples: 1 };
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
    found.retain(|stretch| stretch.ns() > 0);
    if kind == Kind::Total {
        for stretch in &mut found {
            let rate = stretch.value * 1e9 / stretch.ns() as f64;
            (stretch.value, stretch.least, stretch.most) = (rate, rate, rate);
        }
        found.retain(|stretch| stretch.value.is_finite());
    }
    found
}

/// At most so many stretches: of more, always as many after each other become one. The area below them stays the same, and
/// so do the least and the most; gaps within one of the new ones come after it.
fn thinned(all: Vec<Stretch>, kind: Kind, most: usize) -> Vec<Stretch> {
    let each = all.len().div_ceil(most.max(1));
    if each <= 1 {
        return all;
    }
    all.chunks(each).filter_map(|chunk| merged(chunk, kind)).collect()
}

fn merged(chunk: &[Stretch], kind: Kind) -> Option<Stretch> {
    let first = chunk.first()?;
    let ns: u64 = chunk.iter().map(Stretch::ns).sum();
    let value = match kind {
        Kind::Total | Kind::Mean => {
            let area: f64 = chunk.iter().map(|stretch| stretch.value * stretch.ns() as f64).sum();
            area / ns as f64
        }
        Kind::State => longest(chunk),
    };
    value.is_finite().then_some(Stretch {
        start: first.start,
        end: first.start.saturating_add(ns),
        value,
        least: chunk.iter().fold(f64::INFINITY, |least, stretch| least.min(stretch.least)),
        most: chunk.iter().fold(f64::NEG_INFINITY, |most, stretch| most.max(stretch.most)),
        samples: chunk.iter().map(|stretch| stretch.samples).sum(),
    })
}

/// The value that held for most of the time; the first of several.
fn longest(chunk: &[Stretch]) -> f64 {
    let mut times: FxHashMap<u64, (u64, Reverse<usize>)> = FxHashMap::default();
    for (row, stretch) in chunk.iter().enumerate() {
        times.entry(stretch.value.to_bits()).or_insert((0, Reverse(row))).0 += stretch.ns();
    }
    let longest = times.into_iter().max_by_key(|(_, held)| *held);
    longest.map_or(f64::NAN, |(bits, _)| f64::from_bits(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(samples: &[(u64, u64, f64)], kind: Kind) -> Vec<Stretch> {
        stretches(samples.iter().copied(), 100, kind)
    }

    fn plain(all: &[Stretch]) -> Vec<(u64, u64, f64)> {
        all.iter().map(|stretch| (stretch.start, stretch.end, stretch.value)).collect()
    }

    fn area(all: &[Stretch]) -> f64 {
        all.iter().map(|stretch| stretch.value * stretch.ns() as f64).sum()
    }

    #[test]
    fn samples_that_nearly_touch_touch_and_gaps_stay() {
        let samples = [(0, 98, 1.0), (100, 203, 2.0), (200, 300, 3.0), (500, 600, 4.0)];
        let all = seen(&samples, Kind::Mean);
        assert_eq!(plain(&all), [(0, 100, 1.0), (100, 200, 2.0), (200, 300, 3.0), (500, 600, 4.0)]);
    }

    #[test]
    fn sums_are_rates_and_what_is_not_known_is_a_gap() {
        let samples = [(0, 100, 5.0), (100, 200, f64::NAN), (200, 300, 7.0), (300, 300, 9.0)];
        let all = seen(&samples, Kind::Total);
        assert_eq!(plain(&all), [(0, 100, 5e7), (200, 300, 7e7)], "no time, no rate");
        assert!(seen(&[(0, 100, f64::NAN)], Kind::State).is_empty());
    }

    #[test]
    fn states_that_stay_the_same_are_one() {
        let samples = [(0, 100, 1.0), (101, 210, 1.0), (208, 310, 2.0), (900, 1000, 2.0)];
        let all = seen(&samples, Kind::State);
        assert_eq!(plain(&all), [(0, 208, 1.0), (208, 310, 2.0), (900, 1000, 2.0)]);
        assert_eq!(all.iter().map(|stretch| stretch.samples).collect::<Vec<_>>(), [2, 1, 1]);
    }

    #[test]
    fn what_is_thinned_out_has_the_same_area_and_the_same_ends() {
        let samples: Vec<_> = (0..10_007u64)
            .map(|i| {
                (i * 100 + i / 3000 * 700, (i + 1) * 100 + i / 3000 * 700, (i * i % 97) as f64)
            })
            .collect();
        let all = seen(&samples, Kind::Mean);
        assert_eq!(all.len(), samples.len());
        for most in [1, 7, 100, 5_000, 10_006] {
            let few = thinned(all.clone(), Kind::Mean, most);
            assert!(few.len() <= most && few.len() * 2 > most, "{} of {most}", few.len());
            assert!((area(&few) / area(&all) - 1.0).abs() < 1e-12);
            assert_eq!(few.iter().map(|stretch| stretch.samples).sum::<u64>(), 10_007);
            let ends = |all: &[Stretch]| {
                all.iter().fold((f64::MAX, 0.0f64), |(least, most), stretch| {
                    (stretch.least.min(least), stretch.most.max(most))
                })
            };
            assert_eq!(ends(&few), ends(&all));
            assert!(few.windows(2).all(|pair| pair[0].end <= pair[1].start));
        }
        assert_eq!(thinned(all.clone(), Kind::Mean, 10_007), all);
    }

    #[test]
    fn of_states_the_one_that_held_longest_stays() {
        let samples = [(0, 100, 1.0), (100, 200, 3.0), (200, 300, 1.0), (300, 400, 2.0)];
        let all = seen(&samples, Kind::State);
        let few = thinned(all, Kind::State, 1);
        assert_eq!(plain(&few), [(0, 400, 1.0)]);
        assert_eq!((few[0].least, few[0].most), (1.0, 3.0));
    }
}
