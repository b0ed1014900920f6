//! The factor by which times changed, with distribution-free bounds.
//!
//! The estimate is the Hodges-Lehmann estimate (Annals of Mathematical Statistics 34, 1963): the
//! median of all ratios of a later to an earlier time. The bounds are ratios at ranks from the
//! exact distribution of the Mann-Whitney statistic (Annals of Mathematical Statistics 18, 1947).
//! They hold at the requested confidence or more, ties included, if the times of both sides are
//! independent and differ only by a factor.

use std::collections::HashMap;

use crate::statistics::median;

/// Above this number, times of a side are combined into blocks.
pub const MOST: usize = 64;

/// All ratios of a later to an earlier time, sorted.
#[derive(Debug)]
pub struct Ratios {
    before: usize,
    after: usize,
    ratios: Vec<f64>,
}

impl Ratios {
    /// Ratios of times in nanoseconds, with at least one on each side. The cost is proportional to
    /// the product of their numbers: see [`blocks`].
    pub fn new(before: &[f64], after: &[f64]) -> Self {
        let pairs = after
            .iter()
            .flat_map(|after| before.iter().map(move |before| after.max(1.0) / before.max(1.0)));
        let mut ratios: Vec<f64> = pairs.collect();
        ratios.sort_unstable_by(f64::total_cmp);
        Self { before: before.len(), after: after.len(), ratios }
    }

    /// The median; `None` if empty.
    pub fn estimate(&self) -> Option<f64> {
        median(&self.ratios)
    }

    /// The smallest and the largest ratio; `None` if empty.
    pub fn extremes(&self) -> Option<(f64, f64)> {
        self.ratios.first().copied().zip(self.ratios.last().copied())
    }

    /// The bounds that the true factor exceeds with a probability of at most `tail` on each side; 0
    /// and infinity if there are too few times.
    pub fn bounds(&self, ranks: &mut Ranks, tail: f64) -> (f64, f64) {
        match ranks.rank(self.before, self.after, tail) {
            Some(rank) => (self.ratios[rank - 1], self.ratios[self.ratios.len() - rank]),
            None => (0.0, f64::INFINITY),
        }
    }
}

/// The factor between the times of two sides, with its bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factor {
    /// Times of the second side divided by times of the first.
    pub ratio: f64,
    /// 0 with too few times.
    pub low: f64,
    /// Infinity with too few times.
    pub high: f64,
}

impl Factor {
    /// Estimates the factor, which exceeds each bound with a probability of at most `tail`. Paired
    /// times are compared by position, which requires equal numbers on both sides. The result is
    /// then the median of their ratios, with bounds by order statistics. `None` without times.
    pub fn estimate(
        sides: [&[f64]; 2],
        paired: bool,
        tail: f64,
        ranks: &mut Ranks,
    ) -> Option<Self> {
        let [before, after] = sides;
        if !paired {
            let ratios = Ratios::new(before, after);
            let (low, high) = ratios.bounds(ranks, tail);
            return Some(Self { ratio: ratios.estimate()?, low, high });
        }
        let pairs = before.iter().zip(after);
        let ratios = pairs.map(|(before, after)| after.max(1.0) / before.max(1.0)).collect();
        Self::of_ratios(ratios, 1.0 - 2.0 * tail)
    }

    /// The median of ratios, with bounds by order statistics; `None` without ratios.
    pub fn of_ratios(mut ratios: Vec<f64>, confidence: f64) -> Option<Self> {
        ratios.sort_unstable_by(f64::total_cmp);
        let bounds = median_bounds(&ratios, confidence);
        let (low, high) = bounds.unwrap_or((0.0, f64::INFINITY));
        Some(Self { ratio: median(&ratios)?, low, high })
    }

    /// The factor with the extreme ratios as bounds, widened by an assumed variation: for too few
    /// times to measure it.
    pub fn assuming(self, sides: [&[f64]; 2], variation: f64) -> Self {
        match Ratios::new(sides[0], sides[1]).extremes() {
            Some((low, high)) => Self { low, high, ..self }.widened_by(1.0 + variation),
            None => self,
        }
    }

    /// The factor with bounds that are further away by a factor.
    pub fn widened_by(self, factor: f64) -> Self {
        Self { low: self.low / factor, high: self.high * factor, ..self }
    }

    /// True if the second side certainly takes longer by more than this share.
    pub fn is_slower(&self, margin: f64) -> bool {
        self.low > 1.0 + margin
    }

    /// True if the second side certainly takes less time by more than this share.
    pub fn is_faster(&self, margin: f64) -> bool {
        self.high < 1.0 - margin
    }

    /// True if the second side certainly takes at most this share longer.
    pub fn is_within(&self, margin: f64) -> bool {
        self.high < 1.0 + margin
    }

    /// True if both sides certainly differ by at most this share.
    pub fn is_same(&self, margin: f64) -> bool {
        let within = 1.0 - margin..=1.0 + margin;
        within.contains(&self.low) && within.contains(&self.high)
    }

    /// Widens the bounds by a factor, on a log scale.
    pub fn widened(self, times: f64) -> Self {
        let Self { ratio, low, high } = self;
        let far = |bound: f64| ratio * (bound / ratio).powf(times);
        Self { ratio, low: far(low), high: far(high) }
    }

    /// The minimum number of times per side for finite bounds; `None` if even [`MOST`] are too few.
    pub fn fewest(paired: bool, tail: f64, ranks: &mut Ranks) -> Option<usize> {
        (1..=MOST).find(|&count| match paired {
            true => bound_rank(count, tail).is_some(),
            false => ranks.rank(count, count, tail).is_some(),
        })
    }
}

/// The order statistics that contain the true median with at least this confidence.
pub fn median_bounds(sorted: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let rank = bound_rank(sorted.len(), (1.0 - confidence) / 2.0)?;
    Some((sorted[rank - 1], sorted[sorted.len() - rank]))
}

/// The greatest rank from each end that exceeds the median with a probability of at most `tail`:
/// the number of values below the median is binomial.
fn bound_rank(count: usize, tail: f64) -> Option<usize> {
    // In logarithms, because a half to the power of 1,075 is 0.
    let mut ln_ways = -(count as f64) * std::f64::consts::LN_2;
    let mut below = 0.0;
    let mut rank = 0;
    while rank < count.div_ceil(2) {
        below += ln_ways.exp();
        if below > tail {
            break;
        }
        ln_ways += ((count - rank) as f64 / (rank + 1) as f64).ln();
        rank += 1;
    }
    (rank != 0).then_some(rank)
}

/// The mean of the middle half: as robust as the median, finer with coarse clocks. 0 if empty.
pub fn midmean(times: &mut [u64]) -> f64 {
    times.sort_unstable();
    let cut = times.len() / 4;
    let middle = &times[cut..times.len() - cut];
    if middle.is_empty() {
        return 0.0;
    }
    middle.iter().map(|&ns| ns as f64).sum::<f64>() / middle.len() as f64
}

/// Combines consecutive times, which are correlated, into at most `most` midmeans.
pub fn blocks(times: &[u64], most: usize) -> Vec<f64> {
    let count = times.len().min(most.max(1));
    let block = |at: usize| {
        let (start, end) = (at * times.len() / count, (at + 1) * times.len() / count);
        midmean(&mut times[start..end].to_vec())
    };
    (0..count).map(block).collect()
}

/// A cache of ranks, which cost some microseconds each.
#[derive(Debug, Default)]
pub struct Ranks(HashMap<(usize, usize, u64), Option<usize>>);

impl Ranks {
    /// The greatest rank `k` such that the true factor is below the `k`th ratio with a probability
    /// of at most `tail`. `None` if the first is too high.
    pub fn rank(&mut self, before: usize, after: usize, tail: f64) -> Option<usize> {
        let key = (before.min(after), before.max(after), tail.to_bits());
        *self.0.entry(key).or_insert_with(|| rank(key.0, key.1, tail))
    }
}

fn rank(m: usize, n: usize, tail: f64) -> Option<usize> {
    if m == 0 {
        return None;
    }
    let ways = ways(m, n);
    let all: f64 = ways.iter().sum();
    let mut below = 0.0;
    // The first `k` ratios are too high by chance if the statistic is below `k`.
    let rank = ways.iter().take_while(|&&here| {
        below += here / all;
        below <= tail
    });
    match rank.count() {
        0 => None,
        // No bound beyond the middle.
        rank => Some(rank.min((m * n).div_ceil(2))),
    }
}

/// The number of orders for each statistic 0, 1, ... `m * n`: Gaussian binomial coefficients.
fn ways(m: usize, n: usize) -> Vec<f64> {
    // Compute the lower half, where rounding is negligible, and mirror it.
    let mut ways = vec![0.0; m * n / 2 + 1];
    ways[0] = 1.0;
    for i in 1..=m {
        // Multiply by 1 - q^(n + i), then divide by 1 - q^i.
        for at in (n + i..ways.len()).rev() {
            ways[at] -= ways[at - n - i];
        }
        for at in i..ways.len() {
            ways[at] += ways[at - i];
        }
    }
    ways.extend_from_within(..m * n - m * n / 2);
    ways[m * n / 2 + 1..].reverse();
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_matches_all_orders() {
        // Every choice of 4 positions out of 9 for the later values.
        let (m, n) = (4, 5);
        let mut counted = vec![0.0; m * n + 1];
        for set in 0_u32..1 << (m + n) {
            if set.count_ones() as usize != m {
                continue;
            }
            let mut statistic = 0;
            for high in 0..m + n {
                let lower = (0..high).filter(|low| set >> low & 1 == 0).count();
                statistic += if set >> high & 1 == 1 { lower } else { 0 };
            }
            counted[statistic] += 1.0;
        }
        assert_eq!(ways(m, n), counted);
        // 64 of each have more orders than 2^53, but no count goes below 0.
        let large = ways(MOST, MOST);
        let all: f64 = large.iter().sum();
        assert!(large.iter().all(|&ways| ways >= 0.0), "rounding must not show");
        assert!((all.log2() - 124.17).abs() < 0.01, "128 over 64 is 2.4e37: {}", all.log2());
    }

    #[test]
    fn ranks_match_the_tables() {
        let mut ranks = Ranks::default();
        // Critical values of Mann and Whitney's U for a tail of 0.025, each one less than the rank of the bound.
        for (m, n, critical) in [(4, 4, 0), (5, 8, 6), (10, 10, 23), (8, 15, 29), (20, 20, 127)] {
            assert_eq!(ranks.rank(m, n, 0.025), Some(critical + 1), "{m} {n}");
            assert_eq!(ranks.rank(n, m, 0.025), Some(critical + 1), "{n} {m}");
        }
        assert_eq!(ranks.rank(3, 3, 0.025), None, "one of 20 orders is more");
        assert_eq!((ranks.rank(0, 9, 0.5), ranks.rank(1, 1, 0.9)), (None, Some(1)));
    }

    #[test]
    fn ranks_match_the_tables_of_the_sign_test() {
        // Critical values of the two-sided sign test at 5 %, each one less than the rank.
        for (count, critical) in [(6, 0), (8, 0), (9, 1), (12, 2), (20, 5), (25, 7), (100, 39)] {
            assert_eq!(bound_rank(count, 0.025), Some(critical + 1), "{count}");
        }
        assert_eq!((bound_rank(5, 0.025), bound_rank(0, 0.5)), (None, None));
        // n / 2 - 1.96 * sqrt(n) / 2 of the normal approximation.
        let rank = bound_rank(100_000, 0.025).unwrap();
        assert!(rank.abs_diff(49_690) <= 1, "{rank}");
        assert_eq!(bound_rank(4, 1.0), Some(2), "no bound beyond the middle");
    }

    #[test]
    fn pairs_cancel_drift() {
        // The machine drifts by a half, the program is 3 % slower in each pair.
        let before: Vec<f64> = (0..10).map(|at| 1000.0 + 50.0 * f64::from(at)).collect();
        let after: Vec<f64> = before
            .iter()
            .enumerate()
            .map(|(at, ns)| (1.03 + 0.001 * (at % 3) as f64) * ns)
            .collect();
        let mut ranks = Ranks::default();
        let mut of =
            |paired| Factor::estimate([&before, &after], paired, 0.005, &mut ranks).unwrap();
        let (paired, unpaired) = (of(true), of(false));
        assert!(1.029 < paired.low && paired.high < 1.033, "{paired:?}");
        assert!(unpaired.low < 1.0 && 1.1 < unpaired.high, "{unpaired:?}");
        let few = Factor::estimate([&before[..7], &after[..7]], true, 0.005, &mut ranks).unwrap();
        assert_eq!((few.low, few.high), (0.0, f64::INFINITY));
        assert_eq!(Factor::fewest(true, 0.005, &mut ranks), Some(8));
        assert_eq!(Factor::fewest(false, 0.005, &mut ranks), Some(5));
        assert_eq!(Factor::fewest(false, 0.0, &mut ranks), None);
        assert_eq!(Factor::estimate([&[], &[]], true, 0.1, &mut ranks), None);
    }

    #[test]
    fn the_factor_is_found_and_lies_within_its_bounds() {
        let before: Vec<f64> = (0..20).map(|at| 1000.0 + f64::from(at)).collect();
        let after: Vec<f64> = before.iter().map(|ns| 1.1 * ns).collect();
        let ratios = Ratios::new(&before, &after);
        let estimate = ratios.estimate().unwrap();
        assert!((estimate - 1.1).abs() < 1e-9, "{estimate}");
        let mut ranks = Ranks::default();
        let (low, high) = ratios.bounds(&mut ranks, 0.005);
        assert!(low < 1.1 && 1.1 < high && high - low < 0.015, "{low} {high}");
        let (lower, higher) = ratios.bounds(&mut ranks, 0.0005);
        assert!(lower < low && high < higher);
        assert_eq!(Ratios::new(&[1.0], &[2.0]).bounds(&mut ranks, 0.1), (0.0, f64::INFINITY));
        assert_eq!(Ratios::new(&[], &[2.0]).estimate(), None);
        assert_eq!(Ratios::new(&[0.0], &[0.0]).estimate(), Some(1.0));
    }

    /// The bounds miss the true factor about as often as allowed.
    #[test]
    fn bounds_hold_at_their_confidence() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut ranks = Ranks::default();
        let mut sample = |factor: f64| -> Vec<f64> {
            let one = |_| factor * (1000.0 - 30.0 * (1.0 - random.f64()).ln());
            (0..12).map(one).collect()
        };
        let (mut below, mut above) = (0, 0);
        for _ in 0..4000 {
            let (low, high) = Ratios::new(&sample(1.0), &sample(1.05)).bounds(&mut ranks, 0.05);
            below += i32::from(1.05 < low);
            above += i32::from(high < 1.05);
        }
        for missed in [below, above] {
            assert!((100..=230).contains(&missed), "{missed} of 4000 are not 5 % at most");
        }
    }

    #[test]
    fn many_times_become_few_in_their_order() {
        assert_eq!(midmean(&mut [9, 1, 2, 1000]), 5.5);
        assert_eq!((midmean(&mut []), midmean(&mut [7])), (0.0, 7.0));
        let times: Vec<u64> = (0..1000).collect();
        let blocks = blocks(&times, 10);
        assert_eq!(blocks.len(), 10);
        assert!((blocks[0], blocks[9]) == (49.5, 949.5), "{blocks:?}");
        assert_eq!(super::blocks(&[3, 4], 10), [3.0, 4.0]);
        assert!(super::blocks(&[], 10).is_empty());
    }
}
