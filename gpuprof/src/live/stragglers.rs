//! Which rank the others wait for, and which is slower.
//!
//! Ranks that work in step wait for the last one within their collectives: that rank spends the
//! least time there. `gpuprof ranks` compares each collective; this compares shares of time.

use std::collections::HashMap;

/// The least difference that is named, as a share of the time.
const LEAST_WAIT: f64 = 0.05;
/// The least difference of rates that is named, as a share of the median.
const LEAST_LAG: f64 = 0.05;

/// A rank in the last seconds.
#[derive(Debug, Clone, Default)]
pub(super) struct RankPace {
    pub(super) name: String,
    /// The share of the time in which only collectives ran; `None` without recorded time.
    pub(super) communication: Option<f64>,
    /// Instances a second by path of ranges, and the GPU time in them as a share.
    pub(super) ranges: Vec<(String, f64, f64)>,
}

/// The comparison of ranks, each in its order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Stragglers {
    /// The path of the range that is compared.
    pub(super) step: Option<String>,
    /// Its instances a second.
    pub(super) rates: Vec<Option<f64>>,
    /// The share of the time in collectives beyond that of the rank with the least.
    pub(super) waits: Vec<Option<f64>>,
    /// The ranks that hold up the others, as sentences.
    pub(super) findings: Vec<String>,
}

impl Stragglers {
    /// Compares ranks; there is nothing to compare for fewer than two.
    pub(super) fn new(ranks: &[RankPace]) -> Self {
        if ranks.len() < 2 {
            return Self::default();
        }
        let step = common_range(ranks);
        let rate = |rank: &RankPace| {
            let (_, rate, _) = rank.ranges.iter().find(|(path, ..)| Some(path) == step.as_ref())?;
            Some(*rate)
        };
        let rates: Vec<Option<f64>> = ranks.iter().map(rate).collect();
        let shares = ranks.iter().map(|rank| rank.communication);
        let least = shares.clone().flatten().reduce(f64::min).unwrap_or_default();
        let communicates = shares.clone().flatten().any(|share| share > 0.0);
        let wait = |share: Option<f64>| share.filter(|_| communicates).map(|share| share - least);
        let waits: Vec<Option<f64>> = shares.map(wait).collect();
        let findings = [waited_for(ranks, &waits), slower(ranks, step.as_deref(), &rates)];
        let findings = findings.into_iter().flatten().collect();
        Self { step, rates, waits, findings }
    }

    /// The comparison of some of `count` processes, at these places.
    pub(super) fn placed(self, places: &[usize], count: usize) -> Self {
        let spread = |values: Vec<Option<f64>>| {
            let mut all = vec![None; count];
            places.iter().zip(values).for_each(|(place, value)| all[*place] = value);
            all
        };
        Self { rates: spread(self.rates), waits: spread(self.waits), ..self }
    }
}

/// The path with the most GPU time among those that every rank has passed in the last seconds; of
/// equal ones the outermost.
fn common_range(ranks: &[RankPace]) -> Option<String> {
    let mut found: HashMap<&str, (usize, f64)> = HashMap::new();
    for (path, rate, share) in ranks.iter().flat_map(|rank| &rank.ranges) {
        if *rate > 0.0 {
            let (count, sum) = found.entry(path).or_default();
            (*count, *sum) = (*count + 1, *sum + share);
        }
    }
    let common = found.into_iter().filter(|(_, (count, _))| *count == ranks.len());
    let best = common.max_by(|(one, (_, share)), (other, (_, more))| {
        share.total_cmp(more).then(other.len().cmp(&one.len())).then(other.cmp(one))
    });
    best.map(|(path, _)| path.to_owned())
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0_u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count != 0).then(|| sum / f64::from(count))
}

fn waited_for(ranks: &[RankPace], waits: &[Option<f64>]) -> Option<String> {
    let known = || waits.iter().enumerate().filter_map(|(at, wait)| Some((at, (*wait)?)));
    let (last, _) = known().min_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let others = mean(known().filter(|(at, _)| *at != last).map(|(_, wait)| wait))?;
    (others >= LEAST_WAIT).then(|| {
        let percent = 100.0 * others;
        format!("the others wait for {}: {percent:.0} % more time in collectives", ranks[last].name)
    })
}

fn slower(ranks: &[RankPace], step: Option<&str>, rates: &[Option<f64>]) -> Option<String> {
    let known = || rates.iter().enumerate().filter_map(|(at, rate)| Some((at, (*rate)?)));
    let mut sorted: Vec<f64> = known().map(|(_, rate)| rate).collect();
    sorted.sort_by(f64::total_cmp);
    let median = *sorted.get(sorted.len() / 2)?;
    let (last, rate) = known().min_by(|(_, one), (_, other)| one.total_cmp(other))?;
    (rate < median * (1.0 - LEAST_LAG)).then(|| {
        let (name, step) = (&ranks[last].name, step.unwrap_or_default());
        format!("{name} is slower: {step} {rate:.1} times a second, the median is {median:.1}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(number: u32, communication: f64, step: f64) -> RankPace {
        RankPace {
            name: format!("rank {number}"),
            communication: Some(communication),
            ranges: vec![
                ("epoch".to_owned(), 0.0, 0.9),
                ("epoch/step".to_owned(), step, 0.9),
                ("epoch/step/forward".to_owned(), step, 0.4),
            ],
        }
    }

    #[test]
    fn rank_with_the_least_time_in_collectives_is_waited_for() {
        let ranks = [rank(0, 0.3, 10.0), rank(1, 0.31, 10.0), rank(2, 0.1, 10.0)];
        let found = Stragglers::new(&ranks);
        assert_eq!(found.step.as_deref(), Some("epoch/step"), "no epoch has passed");
        assert_eq!(found.waits[2], Some(0.0));
        assert!((found.waits[0].unwrap() - 0.2).abs() < 1e-9);
        let text = "the others wait for rank 2: 20 % more time in collectives";
        assert_eq!(found.findings, [text]);
    }

    #[test]
    fn slow_rank_without_collectives_is_named() {
        let ranks = [rank(0, 0.0, 10.0), rank(1, 0.0, 8.0), rank(2, 0.0, 10.1)];
        let found = Stragglers::new(&ranks);
        assert_eq!(found.rates, [Some(10.0), Some(8.0), Some(10.1)]);
        assert_eq!(found.waits, [None; 3], "there are no collectives");
        let text = "rank 1 is slower: epoch/step 8.0 times a second, the median is 10.0";
        assert_eq!(found.findings, [text]);
    }

    #[test]
    fn equal_ranks_and_single_ones_have_no_straggler() {
        let equal = [rank(0, 0.3, 10.0), rank(1, 0.32, 10.2)];
        assert_eq!(Stragglers::new(&equal).findings, [""; 0]);
        assert_eq!(Stragglers::new(&equal[..1]), Stragglers::default());
        let unlike = [rank(0, 0.3, 10.0), RankPace::default()];
        let found = Stragglers::new(&unlike);
        assert_eq!((found.step, found.rates), (None, vec![None, None]));
    }
}
