//! Medians, and how sure one can be of them.

/// The median; NaN of nothing.
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

/// The 95 % interval of the median, by percentiles of the medians of `resamples` bootstrap samples. The same seed gives
/// the same interval; nothing gives NaN.
#[must_use]
pub fn bootstrap_median(values: &[f64], resamples: usize, seed: u64) -> (f64, f64) {
    if values.is_empty() || resamples == 0 {
        return (f64::NAN, f64::NAN);
    }
    let mut random = XorShift::new(seed);
    let mut sample = vec![0.0; values.len()];
    let mut medians: Vec<f64> = (0..resamples)
        .map(|_| {
            for place in &mut sample {
                *place = values[random.below(values.len())];
            }
            median_of(&mut sample)
        })
        .collect();
    medians.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| medians[((resamples - 1) as f64 * share).round() as usize];
    (at(0.025), at(0.975))
}

/// Marsaglia's xorshift64: enough for resampling, and the same everywhere.
#[derive(Debug, Clone)]
pub struct XorShift(u64);

impl XorShift {
    /// A generator that starts from this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // The state must never be 0; the multiplication spreads small seeds over all bits.
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next_u64()) * n as u128) >> 64) as usize
    }
}

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
    fn the_interval_covers_a_known_median_about_95_times_in_100() {
        // Sums of uniform numbers have their median at the middle.
        let mut random = XorShift::new(7);
        let mut covered = 0;
        for trial in 0..400 {
            let values: Vec<f64> =
                (0..15).map(|_| (0..4).map(|_| random.below(1_000) as f64).sum()).collect();
            let (low, high) = bootstrap_median(&values, 1_000, trial);
            covered += u32::from(low <= 1_998.0 && 1_998.0 <= high);
        }
        assert!((360..=400).contains(&covered), "{covered} of 400");
    }

    #[test]
    fn numbers_below_n_reach_all_of_them_alike() {
        let mut random = XorShift::new(0);
        let mut counts = [0u32; 9];
        for _ in 0..90_000 {
            counts[random.below(9)] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }
}
