//! Medians and their confidence intervals.

/// The median; NaN without values.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    median_of(&mut sorted)
}

fn median_of(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// Returns the 95 % interval of the median: percentiles of the medians of `resamples` bootstrap
/// samples. The same seed gives the same interval. Without values the result is NaN.
#[must_use]
pub fn bootstrap_median(values: &[f64], resamples: usize, seed: u64) -> (f64, f64) {
    if values.is_empty() || resamples == 0 {
        return (f64::NAN, f64::NAN);
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let mut sample = vec![0.0; values.len()];
    let mut medians: Vec<f64> = (0..resamples)
        .map(|_| {
            sample.fill_with(|| values[random.usize(..values.len())]);
            median_of(&mut sample)
        })
        .collect();
    medians.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| medians[((resamples - 1) as f64 * share).round() as usize];
    (at(0.025), at(0.975))
}

/// Values with the numbers of their rounds.
pub type Rounds = Vec<(usize, f64)>;

/// Returns the median of the ratios within a round, and its 95 % interval; `None` without a common
/// round.
#[must_use]
pub fn ratio(own: &Rounds, other: &Rounds) -> Option<[f64; 3]> {
    let ratio = |(round, value): &(usize, f64)| {
        Some(value / other.iter().find(|(of_round, _)| of_round == round)?.1)
    };
    let ratios: Vec<f64> = own.iter().filter_map(ratio).collect();
    let (low, high) = bootstrap_median(&ratios, RESAMPLES, SEED);
    (!ratios.is_empty()).then(|| [median(&ratios), low, high])
}

/// Formats the median with the minimum and maximum. For each of the others it adds the median of
/// the ratios within a round with its 95 % interval:
/// `12.0 (11.0 to 13.0)  / none 1.0400 [1.0100, 1.0700]`.
#[must_use]
pub fn compared(own: &Rounds, others: &[(&str, Rounds)]) -> String {
    let values: Vec<f64> = own.iter().map(|(_, value)| *value).collect();
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    let mut text = format!("{:>12.1} ({low:.1} to {high:.1})", median(&values));
    for (name, other) in others {
        if let Some([ratio, low, high]) = ratio(own, other) {
            text += &format!("  / {name} {ratio:.4} [{low:.4}, {high:.4}]");
        }
    }
    text
}

/// Formats a line for each mode: its values compared with those of `none` and of `raw` in the same
/// rounds.
#[must_use]
pub fn beside_none_and_raw(modes: &[String], of: impl Fn(&str) -> Rounds) -> String {
    let mut text = String::new();
    for mode in modes {
        let others = ["none", "raw"].into_iter().filter(|other| other != mode);
        let others: Vec<_> = others.map(|other| (other, of(other))).collect();
        text += &format!("{mode:<10}{}\n", compared(&of(mode), &others));
    }
    text
}

const RESAMPLES: usize = 10_000;
const SEED: u64 = 23;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_both_middles() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&[7.0]), 7.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn an_interval_holds_the_median_and_lies_within_the_values() {
        let values = [1.02, 0.99, 1.01, 1.05, 1.00, 0.98, 1.03, 1.01, 1.04];
        let (low, high) = bootstrap_median(&values, 10_000, 1);
        assert!(low <= median(&values) && median(&values) <= high);
        assert!((0.98..1.01).contains(&low) && (1.01..=1.05).contains(&high));
    }

    #[test]
    fn ratios_are_within_a_round() {
        let own = vec![(0, 2.0), (1, 30.0), (3, 5.0)];
        let others = [("none", vec![(1, 10.0), (0, 1.0), (2, 7.0)]), ("raw", Vec::new())];
        let text = compared(&own, &others);
        assert_eq!(text.trim_start(), "5.0 (2.0 to 30.0)  / none 2.5000 [2.0000, 3.0000]");
    }

    #[test]
    fn equal_values_leave_no_doubt() {
        assert_eq!(bootstrap_median(&[2.0; 9], 1_000, 5), (2.0, 2.0));
        assert_eq!(bootstrap_median(&[2.0], 1_000, 5), (2.0, 2.0));
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let values: Vec<f64> = (0..20).map(f64::from).collect();
        let first = bootstrap_median(&values, 2_000, 42);
        assert_eq!(first, bootstrap_median(&values, 2_000, 42));
        assert!(bootstrap_median(&[], 10, 1).0.is_nan());
    }

    #[test]
    fn the_interval_covers_a_known_median_at_least_90_times_in_100() {
        // Sums of uniform numbers have their median at the middle. Of 15 values the interval is
        // from the 4th or 5th smallest to the 4th or 5th largest: about 92 % of trials, 1 % is the
        // error.
        let mut random = fastrand::Rng::with_seed(7);
        let mut covered = 0;
        for trial in 0..1_200 {
            let values: Vec<f64> =
                (0..15).map(|_| (0..4).map(|_| f64::from(random.u32(..1_000))).sum()).collect();
            let (low, high) = bootstrap_median(&values, 300, trial);
            covered += u32::from(low <= 1_998.0 && 1_998.0 <= high);
        }
        assert!((1_080..=1_164).contains(&covered), "{covered} of 1,200");
    }
}
