//! Totals estimated from a sample of units, with their confidence interval.

use crate::split_mix::mixed;

/// The groups of the jackknife.
const GROUPS: usize = 32;

/// The sums of the drawn units of one stratum: a kind of work with a size that is known in full, as
/// the launches of a range path, and an amount that is known in drawn units, as their GPU time.
#[derive(Debug, Clone, Default)]
pub struct Stratum {
    /// Sums of squared amounts, over the probability with which a unit was drawn, and over its
    /// square: their ratio is the mean probability by what a unit adds to the variance.
    squares: [f64; 2],
    /// The sizes and amounts by group, over the probability.
    groups: [(f64, f64); GROUPS],
}

impl Stratum {
    /// Adds the work of a drawn unit. `unit` identifies it and is the same for all strata of a
    /// total, as the time of its begin. A probability outside of (0, 1] is treated as 1.
    pub fn add(&mut self, unit: u64, probability: f64, size: f64, amount: f64) {
        let probability = if probability > 0.0 && probability <= 1.0 { probability } else { 1.0 };
        for (sum, power) in self.squares.iter_mut().zip([-1, -2]) {
            *sum += amount * amount * probability.powi(power);
        }
        let group = &mut self.groups[group(unit)];
        group.0 += size / probability;
        group.1 += amount / probability;
    }

    /// The ratio of amount to size, without one group if given. `None` without a size.
    fn ratio(&self, without: Option<usize>) -> Option<f64> {
        let rest = self.groups.iter().enumerate().filter(|(group, _)| Some(*group) != without);
        let (size, amount) =
            rest.fold((0.0, 0.0), |sums, (_, group)| (sums.0 + group.0, sums.1 + group.1));
        (size > 0.0).then(|| amount / size)
    }
}

/// The group of a unit, at random. Groups in turns would be more alike than samples of a load that
/// drifts.
fn group(unit: u64) -> usize {
    (mixed(unit) % GROUPS as u64) as usize
}

/// Estimates the total amount of several strata from units that were drawn at random, each with a
/// known probability of its own.
///
/// ```
/// use profiler_base::ratio_estimator::{RatioEstimator, Stratum};
///
/// let mut forward = Stratum::default();
/// let steps = [(10.0, 52_000.0), (20.0, 99_000.0), (10.0, 50_000.0), (40.0, 201_000.0)];
/// for (step, (launches, ns)) in (0..).zip(steps) {
///     forward.add(step, 0.25, launches, ns); // each step was drawn with probability 1/4
/// }
/// let mut gpu_ns = RatioEstimator::default();
/// gpu_ns.add(&forward, 1_000.0); // of 1,000 launches
/// let total = gpu_ns.estimate(steps.len() as u64).unwrap();
/// assert!(total.low < 5.0e6 && total.high > 5.0e6);
/// ```
///
/// The method is the separate ratio estimator (Cochran, *Sampling Techniques*, 1977, section 6.10):
/// the size of each stratum times its ratio of amount to size in the sample. A mix of strata that
/// differs between drawn and other units does not bias it. A stratum without a drawn unit takes the
/// mean ratio of the others. The variance is that of the jackknife over 32 groups of units (Wolter,
/// *Introduction to Variance Estimation*, 2007, section 4.2), times the share of the variance of
/// units that were not drawn. The interval uses Student's t. If the sizes of drawn units, each over
/// its probability, add up to less than the size of the strata, some units could not be drawn; they
/// are treated as omitted at random.
#[derive(Debug, Clone, Copy)]
pub struct RatioEstimator {
    /// The size of all strata, and its estimate from drawn units.
    size: f64,
    drawn_size: f64,
    squares: [f64; 2],
    /// The groups with a drawn unit, as bits.
    groups: u32,
    all: Replicate,
    /// Without one group each.
    without: [Replicate; GROUPS],
}

/// The amount and the size of the strata whose ratio is known.
#[derive(Debug, Clone, Copy, Default)]
struct Replicate {
    amount: f64,
    size: f64,
}

impl Replicate {
    fn add(&mut self, size: f64, ratio: Option<f64>) {
        if let Some(ratio) = ratio {
            self.amount += size * ratio;
            self.size += size;
        }
    }

    fn merge(&mut self, other: Self) {
        self.amount += other.amount;
        self.size += other.size;
    }

    fn total(self, size: f64) -> Option<f64> {
        (self.size > 0.0).then(|| self.amount * (size / self.size))
    }
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

impl Default for RatioEstimator {
    fn default() -> Self {
        let all = Replicate::default();
        Self {
            size: 0.0,
            drawn_size: 0.0,
            squares: [0.0; 2],
            groups: 0,
            all,
            without: [all; GROUPS],
        }
    }
}

impl RatioEstimator {
    /// Adds a stratum whose size in all units is `size`.
    pub fn add(&mut self, stratum: &Stratum, size: f64) {
        self.size += size;
        self.add_squares(stratum.squares);
        self.all.add(size, stratum.ratio(None));
        for (number, group) in stratum.groups.iter().enumerate() {
            self.drawn_size += group.0;
            self.groups |= u32::from(group.0 > 0.0) << number;
            self.without[number].add(size, stratum.ratio(Some(number)));
        }
    }

    /// Adds the strata of another total.
    pub fn merge(&mut self, other: &Self) {
        self.size += other.size;
        self.drawn_size += other.drawn_size;
        self.add_squares(other.squares);
        self.groups |= other.groups;
        self.all.merge(other.all);
        self.without.iter_mut().zip(other.without).for_each(|(sum, other)| sum.merge(other));
    }

    fn add_squares(&mut self, squares: [f64; 2]) {
        self.squares.iter_mut().zip(squares).for_each(|(sum, other)| *sum += other);
    }

    /// The size of all strata.
    pub fn size(&self) -> f64 {
        self.size
    }

    /// Estimates the total amount from so many drawn units with work. `None` without a drawn unit
    /// of a size above 0.
    pub fn estimate(&self, units: u64) -> Option<Estimate> {
        let value = self.all.total(self.size)?;
        // Less than 1 if units could not be drawn.
        let share = (self.drawn_size / self.size).min(1.0);
        let [once, twice] = self.squares;
        let not_recorded = if twice > 0.0 { 1.0 - share * (once / twice).min(1.0) } else { 1.0 };
        let groups = f64::from(self.groups.count_ones());
        let half = if not_recorded == 0.0 {
            0.0
        } else if groups < 2.0 {
            f64::INFINITY
        } else {
            let totals = (0..GROUPS).filter(|group| self.groups >> group & 1 == 1);
            let totals = totals.filter_map(|group| self.without[group].total(self.size));
            let squares = totals.map(|total| (total - value).powi(2));
            let (sum, fourths) = squares
                .fold((0.0, 0.0), |sums, square| (sums.0 + square, sums.1 + square * square));
            let variance = not_recorded * sum * (groups - 1.0) / groups;
            // For normal differences about the number of groups; fewer where few units dominate.
            let degrees = if fourths > 0.0 { 3.0 * sum * sum / fourths } else { groups };
            t_975((degrees.min(groups) - 1.0).max(1.0) as u64) * variance.sqrt()
        };
        Some(Estimate { value, low: (value - half).max(0.0), high: value + half, units })
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

    /// The estimate of one stratum from its drawn units: probability, size, amount.
    fn estimate(size: f64, units: &[(f64, f64, f64)]) -> Option<Estimate> {
        let (mut stratum, mut total) = (Stratum::default(), RatioEstimator::default());
        for (unit, (probability, size, amount)) in (0..).zip(units) {
            stratum.add(unit, *probability, *size, *amount);
        }
        total.add(&stratum, size);
        total.estimate(units.len() as u64)
    }

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
        assert_eq!(estimate(10.0, &[]), None);
        let total = estimate(5.0, &[(1.0, 2.0, 30.0), (1.0, 3.0, 20.0)]).unwrap();
        assert_eq!((total.value, total.low, total.high, total.units), (50.0, 50.0, 50.0, 2));
    }

    #[test]
    fn one_unit_has_no_upper_bound_and_equal_ratios_no_error() {
        let one = estimate(100.0, &[(0.5, 2.0, 30.0)]).unwrap();
        assert_eq!((one.value, one.low, one.high), (1_500.0, 0.0, f64::INFINITY));
        let two = estimate(100.0, &[(0.5, 2.0, 30.0), (0.1, 4.0, 60.0)]).unwrap();
        assert!((two.value - 1_500.0).abs() < 1e-9 && two.high - two.low < 1e-3, "{two:?}");
    }

    /// Idle slices of time say nothing: the one unit with work has no upper bound, as alone.
    #[test]
    fn units_without_work_add_no_certainty() {
        let idle = (0.5, 0.0, 0.0);
        assert_eq!(estimate(10.0, &[idle; 5]), None);
        let one = estimate(100.0, &[idle, idle, (0.5, 2.0, 30.0), idle]).unwrap();
        assert_eq!((one.low, one.high), (0.0, f64::INFINITY));
    }

    /// Windows have three short launches to one long one, and the program has as many of both.
    #[test]
    fn mix_of_strata_that_differs_in_the_sample_does_not_bias_the_total() {
        let (mut short, mut long) = (Stratum::default(), Stratum::default());
        let mut random = fastrand::Rng::with_seed(5);
        for unit in 0..100 {
            short.add(unit, 0.01, 3.0, 3.0 * (0.9 + 0.2 * random.f64()));
            long.add(unit, 0.01, 1.0, 100.0 * (0.9 + 0.2 * random.f64()));
        }
        let mut total = RatioEstimator::default();
        total.add(&short, 30_000.0);
        total.add(&long, 30_000.0);
        // A stratum that no window has: the mean of the others.
        total.add(&Stratum::default(), 600.0);
        let (truth, estimate) = (60_600.0 * 50.5, total.estimate(100).unwrap());
        let half = estimate.high - estimate.value;
        assert!((estimate.value - truth).abs() < half && half < 0.02 * truth, "{estimate:?}");
    }

    /// Units that overlap an open one cannot be drawn, and their size is in the total: a quarter of
    /// them can be, with a probability of 0.8.
    #[test]
    fn units_that_could_not_be_drawn_widen_the_interval() {
        let mut random = fastrand::Rng::with_seed(29);
        let mut within = 0;
        for _ in 0..2_000 {
            let (mut drawn, mut size, mut amount) = (Vec::new(), 0.0, 0.0);
            for _ in 0..800 {
                let own = 1.0 + f64::from(random.u32(..8));
                let of_unit = own * (0.5 + random.f64());
                (size, amount) = (size + own, amount + of_unit);
                if random.f64() < 0.25 && random.f64() < 0.8 {
                    drawn.push((0.8, own, of_unit));
                }
            }
            let total = estimate(size, &drawn).unwrap();
            within += u32::from(total.low <= amount && amount <= total.high);
        }
        assert!((1_880..=1_920).contains(&within), "{within} of 2,000");
    }

    /// By hand: amounts 1 and 3 of sizes 1 and 1, a total size of 4. Without one unit the total is
    /// 12 or 4, with both 8. Half of the size was recorded.
    #[test]
    fn the_variance_matches_the_formula() {
        let total = estimate(4.0, &[(0.5, 1.0, 1.0), (0.5, 1.0, 3.0)]).unwrap();
        assert!((total.value - 8.0).abs() < 1e-12);
        let half = 12.7062 * (0.5 * (16.0 + 16.0) * 0.5_f64).sqrt();
        assert!((total.high - (8.0 + half)).abs() < 1e-9 && total.low == 0.0, "{total:?}");
    }
}
