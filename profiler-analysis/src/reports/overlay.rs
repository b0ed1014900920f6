//! Sums of values in overlapping spans of a list: a value counts once for each span of a group.

use std::ops::Range;

use super::sums::TimeSummary;

/// The sum of one group of spans.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Overlay {
    /// The number of spans.
    pub(super) spans: u64,
    /// The number of values in at least one span.
    pub(super) values: u64,
    /// The statistics of the values, counted for each span.
    pub(super) summary: TimeSummary,
}

/// A part of the list, and the number of spans over it.
#[derive(Debug, Clone, Copy)]
struct Part {
    start: usize,
    end: usize,
    times: u64,
}

impl Part {
    fn len(&self) -> usize {
        self.end - self.start
    }
}

/// A part of the list and a number of spans over it.
pub(super) type Times = (Range<usize>, u64);

/// Returns the sum of each group. Ranges may nest 20,000 deep, so values are visited one by one
/// only if the groups contain few in total.
pub(super) fn sums(values: Vec<u64>, groups: Vec<Vec<Times>>) -> Vec<Overlay> {
    let count = |spans: &[Times]| spans.iter().map(|(_, times)| times).sum();
    let groups: Vec<(u64, Vec<Part>)> =
        groups.into_iter().map(|spans| (count(&spans), parts(&spans))).collect();
    let held: usize = groups.iter().flat_map(|(_, parts)| parts).map(Part::len).sum();
    let ordered = (held > FEW * values.len()).then(|| Ordered::new(&values)).flatten();
    let sum = |(spans, parts): (u64, Vec<Part>)| {
        let summary = match &ordered {
            Some(ordered) => ordered.summary(&parts),
            None => one_by_one(&values, &parts),
        };
        Some(Overlay {
            spans,
            values: parts.iter().map(|part| part.len() as u64).sum(),
            summary: summary?,
        })
    };
    groups.into_iter().filter_map(sum).collect()
}

/// The maximum visits per value for which visiting is cheaper than ordering.
const FEW: usize = 32;

/// The parts of the list under spans, ordered and disjoint.
pub(super) fn places(spans: &[Times]) -> impl Iterator<Item = Range<usize>> {
    parts(spans).into_iter().map(|part| part.start..part.end)
}

/// The parts under spans, in order.
fn parts(spans: &[Times]) -> Vec<Part> {
    let of = |(span, times): &Times| [(span.start, *times as i64), (span.end, -(*times as i64))];
    let mut ends: Vec<(usize, i64)> = spans.iter().flat_map(of).collect();
    ends.sort_unstable();
    let (mut parts, mut start, mut times): (Vec<Part>, _, _) = (Vec::new(), 0, 0_i64);
    for (at, change) in ends {
        if at > start && times > 0 {
            match parts.last_mut().filter(|last| last.end == start && last.times == times as u64) {
                Some(last) => last.end = at,
                None => parts.push(Part { start, end: at, times: times as u64 }),
            }
        }
        start = at;
        times += change;
    }
    parts
}

fn one_by_one(values: &[u64], parts: &[Part]) -> Option<TimeSummary> {
    if parts.iter().all(|part| part.times == 1) {
        let held: Vec<u64> =
            parts.iter().flat_map(|part| &values[part.start..part.end]).copied().collect();
        return TimeSummary::from_values(held);
    }
    let of = |part: &Part| {
        let times = part.times;
        values[part.start..part.end].iter().map(move |value| (*value, times))
    };
    let mut held: Vec<(u64, u64)> = parts.iter().flat_map(of).collect();
    held.sort_unstable();
    let count: u64 = held.iter().map(|(_, times)| times).sum();
    let total: u128 =
        held.iter().map(|(value, times)| u128::from(*value) * u128::from(*times)).sum();
    let avg = total as f64 / count as f64;
    let squares: f64 =
        held.iter().map(|(value, times)| (*value as f64 - avg).powi(2) * *times as f64).sum();
    let at = |place: u64| {
        let mut before = 0;
        let found = held.iter().find(|(_, times)| {
            before += times;
            place < before
        });
        found.map(|(value, _)| *value)
    };
    TimeSummary::from_parts(count, total, squares, at)
}

/// Values ordered for searches by rank within any parts: a wavelet matrix of their ranks.
struct Ordered {
    /// All values by size.
    sizes: Vec<u64>,
    /// For each bit of the rank, highest first: the number of zeros before each position.
    zeros: Vec<Vec<u32>>,
    /// An offset subtracted from each value before squaring, which limits the squares.
    middle: i128,
    /// Before each position: the sum of the differences, and of their squares.
    sums: Vec<(i128, i128)>,
}

/// The largest value whose sums of squares fit.
const LARGEST: u64 = 1 << 48;

impl Ordered {
    /// `None` for values too large for times.
    fn new(values: &[u64]) -> Option<Self> {
        let mut sizes = values.to_vec();
        sizes.sort_unstable();
        if sizes.last().is_none_or(|&last| last > LARGEST) || u32::try_from(sizes.len()).is_err() {
            return None;
        }
        let bits = usize::BITS - sizes.len().leading_zeros();
        // Equal values have the same rank.
        let mut ranks: Vec<u32> =
            values.iter().map(|value| sizes.partition_point(|size| size < value) as u32).collect();
        let mut zeros = Vec::new();
        for bit in (0..bits).rev() {
            let mut before = 0;
            let mut counts = vec![0];
            for rank in &ranks {
                before += u32::from(rank >> bit & 1 == 0);
                counts.push(before);
            }
            let (low, high): (Vec<u32>, Vec<u32>) =
                ranks.iter().partition(|rank| **rank >> bit & 1 == 0);
            ranks = [low, high].concat();
            zeros.push(counts);
        }
        let middle = i128::from(sizes[sizes.len() / 2]);
        let mut sums = vec![(0, 0)];
        let (mut sum, mut squares) = (0, 0);
        for &value in values {
            let rest = i128::from(value) - middle;
            sum += rest;
            squares += rest * rest;
            sums.push((sum, squares));
        }
        Some(Self { sizes, zeros, middle, sums })
    }

    fn summary(&self, parts: &[Part]) -> Option<TimeSummary> {
        let count: u64 = parts.iter().map(|part| part.len() as u64 * part.times).sum();
        let (mut sum, mut squares) = (0, 0);
        for part in parts {
            let ((first, first_squares), (end, end_squares)) =
                (self.sums[part.start], self.sums[part.end]);
            sum += (end - first) * i128::from(part.times);
            squares += (end_squares - first_squares) * i128::from(part.times);
        }
        let total = u128::try_from(sum + self.middle * i128::from(count)).ok()?;
        let around_mean = squares as f64 - sum as f64 * (sum as f64 / count as f64);
        TimeSummary::from_parts(count, total, around_mean.max(0.0), |place| self.at(parts, place))
    }

    /// The value of a rank among all parts.
    fn at(&self, parts: &[Part], mut place: u64) -> Option<u64> {
        let mut parts = parts.to_vec();
        let mut rank = 0_usize;
        for counts in &self.zeros {
            let zeros = |at: usize| counts[at] as usize;
            let low: u64 = parts
                .iter()
                .map(|part| (zeros(part.end) - zeros(part.start)) as u64 * part.times)
                .sum();
            let is_low = place < low;
            rank = rank << 1 | usize::from(!is_low);
            place -= if is_low { 0 } else { low };
            let all = counts.last().map_or(0, |all| *all as usize);
            for part in &mut parts {
                let to = |at: usize| if is_low { zeros(at) } else { all + at - zeros(at) };
                (part.start, part.end) = (to(part.start), to(part.end));
            }
            parts.retain(|part| part.end > part.start);
        }
        self.sizes.get(rank).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected result, value by value.
    fn plain(values: &[u64], spans: &[Times]) -> Overlay {
        let each = || spans.iter().flat_map(|(span, times)| vec![span.clone(); *times as usize]);
        let held: Vec<u64> = each().flat_map(|span| &values[span]).copied().collect();
        let is_held = |at: &usize| spans.iter().any(|(span, _)| span.contains(at));
        Overlay {
            spans: each().count() as u64,
            values: (0..values.len()).filter(is_held).count() as u64,
            summary: TimeSummary::from_values(held).unwrap(),
        }
    }

    fn assert_alike(ours: &Overlay, expected: &Overlay, seed: u64) {
        assert_eq!((ours.spans, ours.values), (expected.spans, expected.values), "{seed}");
        let (ours, expected) = (ours.summary, expected.summary);
        let exact = |of: TimeSummary| (of.total_ns, of.med_ns, of.min_ns, of.max_ns);
        assert_eq!(exact(ours), exact(expected), "{seed}");
        assert!((ours.avg_ns - expected.avg_ns).abs() <= 1e-9 * expected.avg_ns, "{seed}");
        assert!((ours.stddev_ns - expected.stddev_ns).abs() <= 1e-6 * expected.avg_ns, "{seed}");
    }

    #[test]
    fn both_overlays_match_the_values() {
        for seed in 0..300 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let most = *rng.choice(&[3, 50, 1_000_000_000]).unwrap();
            let values: Vec<u64> = (0..rng.usize(1..40)).map(|_| rng.u64(0..most)).collect();
            let spans: Vec<Times> = (0..rng.usize(1..8))
                .map(|_| {
                    let start = rng.usize(..values.len());
                    (start..rng.usize(start + 1..=values.len()), rng.u64(1..4))
                })
                .collect();
            let expected = plain(&values, &spans);
            let parts = parts(&spans);
            let ordered = Ordered::new(&values).unwrap();
            for summary in [one_by_one(&values, &parts), ordered.summary(&parts)] {
                assert_alike(&Overlay { summary: summary.unwrap(), ..expected }, &expected, seed);
            }
            assert_alike(&sums(values, vec![spans])[0], &expected, seed);
        }
    }

    #[test]
    fn times_beyond_reason_are_summed_up_one_by_one() {
        let values = vec![u64::MAX; 4];
        let groups: Vec<Vec<Times>> = (0..400).map(|_| vec![(0..4, 1), (1..3, 1)]).collect();
        let found = sums(values, groups);
        assert_eq!(found.len(), 400);
        assert_eq!((found[7].summary.min_ns, found[7].summary.total_ns), (u64::MAX, u64::MAX));
        assert_eq!((found[7].spans, found[7].values), (2, 4));
    }
}
