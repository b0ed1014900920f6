//! Totals estimated from a sample of units, with their confidence interval.

/// Estimates a total from units that were drawn at random, each with a known probability of its
/// own.
///
/// Each drawn unit has a known amount, and every unit has a known size: for a step, its GPU time
/// and its launches. The estimate is the total size times the ratio of the weighted sums.
///
/// ```
/// use profiler_base::ratio_estimator::RatioEstimator;
///
/// let mut gpu_ns = RatioEstimator::default();
/// for (launches, ns) in [(10.0, 52_000.0), (20.0, 99_000.0), (10.0, 50_000.0), (40.0, 201_000.0)] {
///     gpu_ns.add(0.25, launches, ns); // each step was drawn with probability 1/4
/// }
/// let total = gpu_ns.estimate(1_000.0).unwrap(); // of 1,000 launches
/// assert!(total.low < 5.0e6 && total.high > 5.0e6);
/// ```
///
/// The method is the ratio estimator under Poisson sampling with its linearised variance: Särndal,
/// Swensson and Wretman, *Model Assisted Survey Sampling* (1992), sections 3.5, 5.6 and 7.3. Each
/// squared residual is enlarged by twice the unit's share of the weighted size, as the jackknife
/// does to first order: Royall and Cumberland, *An empirical study of the ratio estimator and
/// estimators of its variance* (1981). The interval uses Student's t, with degrees of freedom from
/// the fourth powers of the residuals (Satterthwaite 1946).
///
/// If the sizes of drawn units, each divided by its probability, add up to less than the total
/// size, some units could not be drawn. They are treated as omitted at random, so that each
/// probability is multiplied by this share. A unit with probability 1 adds no variance if all units
/// could be drawn. The estimator stores only sums, however many units are added.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RatioEstimator {
    units: u64,
    /// The ratio of the first unit with a size. Sums are of differences from it, so that rounding
    /// does not hide small residuals.
    pilot: f64,
    size: f64,
    amount: f64,
    /// Sums of products, size with size, size with amount, amount with amount: over the square of
    /// the probability, and over the probability.
    squares: [[f64; 3]; 2],
    /// Sums as in `squares`, each product times the size of its unit over its probability.
    leverages: [[f64; 3]; 2],
    /// Sums of products of four, from the fourth power of size to the fourth power of amount: over
    /// the fourth, third and second power of the probability.
    fourths: [[f64; 5]; 3],
}

/// An estimated total, from [`RatioEstimator::estimate`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Estimate {
    /// The estimated total.
    pub value: f64,
    /// The lower bound of its 95 % confidence interval, not below 0.
    pub low: f64,
    /// The upper bound; infinite for a single unit that was not certain to be drawn.
    pub high: f64,
    /// The number of units in the estimate: units with a size or an amount.
    pub units: u64,
}

crate::serialize_fields! {
    Estimate, "Estimate", |this| {
        "value": this.value,
        "low": this.low,
        "high": this.high,
        "units": this.units,
    }
}

impl RatioEstimator {
    /// Adds a drawn unit. A probability outside of (0, 1] is treated as 1. A unit without size and
    /// amount is ignored, since it does not affect the ratio.
    pub fn add(&mut self, probability: f64, size: f64, amount: f64) {
        if size == 0.0 && amount == 0.0 {
            return;
        }
        let probability = if probability > 0.0 && probability <= 1.0 { probability } else { 1.0 };
        if self.size == 0.0 && size > 0.0 {
            // All earlier units had no size.
            self.pilot = amount / size;
        }
        let amount = amount - self.pilot * size;
        self.units += 1;
        self.size += size / probability;
        self.amount += amount / probability;
        let products = [size * size, size * amount, amount * amount];
        for (power, weight) in [probability.powi(-2), probability.recip()].into_iter().enumerate() {
            for (row, product) in products.into_iter().enumerate() {
                self.squares[power][row] += weight * product;
                self.leverages[power][row] += weight * product * size / probability;
            }
        }
        let [sizes, both, amounts] = products;
        let products =
            [sizes * sizes, sizes * both, sizes * amounts, both * amounts, amounts * amounts];
        for (sums, power) in self.fourths.iter_mut().zip([-4, -3, -2]) {
            for (sum, product) in sums.iter_mut().zip(products) {
                *sum += probability.powi(power) * product;
            }
        }
    }

    /// The number of units with a size or an amount.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Estimates the total amount of units whose sizes add up to `total_size`. `None` without a
    /// drawn unit of a size above 0.
    pub fn estimate(&self, total_size: f64) -> Option<Estimate> {
        if self.size <= 0.0 || self.units == 0 {
            return None;
        }
        let ratio = self.amount / self.size;
        let value = (self.pilot + ratio) * total_size;
        // The share of the size whose units could be drawn.
        let share = (self.size / total_size).min(1.0);
        let residuals = |[full, finite]: [[f64; 3]; 2]| {
            let [sizes, both, amounts] = [0, 1, 2].map(|row| full[row] - share * finite[row]);
            (amounts - 2.0 * ratio * both + ratio * ratio * sizes).max(0.0)
        };
        let (squares, leverages) = (residuals(self.squares), residuals(self.leverages));
        let [full, finite] = self.squares;
        let half = if (0..3).all(|row| full[row] - share * finite[row] == 0.0) {
            0.0
        } else if self.units == 1 {
            f64::INFINITY
        } else {
            let variance = squares + 2.0 * leverages / self.size;
            self.quantile(ratio, share, squares) * (total_size / self.size) * variance.sqrt()
        };
        let low = (value - half).max(0.0);
        Some(Estimate { value, low, high: value + half, units: self.units })
    }

    /// The quantile of Student's t. For equal weights and normal residuals the degrees of freedom
    /// are about the number of units.
    fn quantile(&self, ratio: f64, share: f64, squares: f64) -> f64 {
        const BINOMIAL: [f64; 5] = [1.0, -4.0, 6.0, -4.0, 1.0];
        let [full, mixed, finite] = self.fourths;
        let of_row = |row: usize| {
            let sum = full[row] - 2.0 * share * mixed[row] + share * share * finite[row];
            ratio.powi(4 - row as i32) * BINOMIAL[row] * sum
        };
        let fourths: f64 = (0..5).map(of_row).sum();
        let most = self.units - 1;
        let degrees = if fourths > 0.0 { 3.0 * squares * squares / fourths } else { most as f64 };
        t_975((degrees as u64).clamp(2.min(most), most))
    }
}

/// The 97.5 % quantile of Student's t, within 0.001: exact values up to 8 degrees of freedom, above
/// them the expansion 26.7.5 of Abramowitz and Stegun.
fn t_975(degrees: u64) -> f64 {
    const FEW: [f64; 8] = [12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060];
    const Z: f64 = 1.959_964;
    if let Some(quantile) = (degrees as usize).checked_sub(1).and_then(|row| FEW.get(row)) {
        return *quantile;
    }
    let n = degrees.max(1) as f64;
    let terms = [
        (Z.powi(3) + Z) / 4.0,
        (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0,
        (3.0 * Z.powi(7) + 19.0 * Z.powi(5) + 17.0 * Z.powi(3) - 15.0 * Z) / 384.0,
    ];
    Z + terms[0] / n + terms[1] / n.powi(2) + terms[2] / n.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_match_the_tables() {
        for (degrees, quantile) in
            [(1, 12.706), (4, 2.776), (5, 2.571), (10, 2.228), (30, 2.042), (1_000, 1.962)]
        {
            let off = (t_975(degrees) - quantile).abs();
            assert!(off < 0.002, "{degrees}: {}", t_975(degrees));
        }
    }

    #[test]
    fn all_units_give_the_total_exactly() {
        let mut all = RatioEstimator::default();
        assert_eq!(all.estimate(10.0), None);
        all.add(1.0, 2.0, 30.0);
        all.add(1.0, 3.0, 20.0);
        let total = all.estimate(5.0).unwrap();
        assert_eq!((total.value, total.low, total.high, total.units), (50.0, 50.0, 50.0, 2));
    }

    #[test]
    fn one_unit_has_no_upper_bound_and_equal_ratios_no_error() {
        let mut few = RatioEstimator::default();
        few.add(0.5, 2.0, 30.0);
        let one = few.estimate(100.0).unwrap();
        assert_eq!((one.value, one.low, one.high), (1_500.0, 0.0, f64::INFINITY));
        few.add(0.1, 4.0, 60.0);
        let two = few.estimate(100.0).unwrap();
        assert!((two.value - 1_500.0).abs() < 1e-9 && two.high - two.low < 1e-3, "{two:?}");
    }

    /// Idle slices of time say nothing: the one unit with work has no upper bound, as alone.
    #[test]
    fn units_without_work_add_no_certainty() {
        let mut sums = RatioEstimator::default();
        (0..5).for_each(|_| sums.add(0.5, 0.0, 0.0));
        assert_eq!((sums.units(), sums.estimate(10.0)), (0, None));
        sums.add(0.5, 2.0, 30.0);
        sums.add(0.5, 0.0, 0.0);
        let one = sums.estimate(100.0).unwrap();
        assert_eq!((one.units, one.low, one.high), (1, 0.0, f64::INFINITY));
    }

    /// Units that overlap an open one cannot be drawn, and their size is in the total: a quarter of them can be, with a probability of 0.8.
    #[test]
    fn units_that_could_not_be_drawn_widen_the_interval() {
        let mut random = fastrand::Rng::with_seed(29);
        let mut within = 0;
        for _ in 0..2_000 {
            let (mut sums, mut size, mut amount) = (RatioEstimator::default(), 0.0, 0.0);
            for _ in 0..800 {
                let own = 1.0 + f64::from(random.u32(..8));
                let of_unit = own * (0.5 + random.f64());
                (size, amount) = (size + own, amount + of_unit);
                if random.f64() < 0.25 && random.f64() < 0.8 {
                    sums.add(0.8, own, of_unit);
                }
            }
            let total = sums.estimate(size).unwrap();
            within += u32::from(total.low <= amount && amount <= total.high);
        }
        assert!((1_880..=1_920).contains(&within), "{within} of 2,000");
    }

    /// By hand: weights 2 (4 - 2 = 2 and (1 - 0.5) / 0.25 = 2), sizes 1 and 1, amounts 1 and 3.
    #[test]
    fn the_variance_matches_the_formula() {
        let mut sums = RatioEstimator::default();
        sums.add(0.5, 1.0, 1.0);
        sums.add(0.5, 1.0, 3.0);
        // Ratio 2, residuals -1 and 1, each unit half of the size: (4 / 4)^2 * 2 * (1 + 1) * (1 + 2 / 2) = 8.
        let total = sums.estimate(4.0).unwrap();
        assert!((total.value - 8.0).abs() < 1e-12);
        let half = 12.7062 * 8.0_f64.sqrt();
        assert!((total.high - (8.0 + half)).abs() < 1e-9 && total.low == 0.0, "{total:?}");
    }
}
