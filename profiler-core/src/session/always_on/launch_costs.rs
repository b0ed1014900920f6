//! The cost of a launch, measured continuously from the call log: by kind of launch, by rate, and
//! by phase.

use profiler_base::distribution::Distribution;

/// The number of launches from which a quartile is taken.
const ENOUGH: u64 = 200;
/// The number of launches after which a comparison restarts, so that it follows the program.
const MANY: u64 = 20_000;
/// Classes of rates: a launch costs more if many threads launch. Each class is four times as wide
/// as the one before.
const RATES: usize = 8;
/// The end of the first class, in launches per second.
const FIRST_RATE: f64 = 1_000.0;

/// Kinds of launches with different costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaunchKind {
    Kernel,
    Graph,
}

/// The time of a launch relative to windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Before the first window of the session.
    Before,
    Within,
    After,
}

/// The slowdown of each launch, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rise {
    pub(super) ns: f64,
    /// False if launches of the kind were never measured at one rate both before and after the
    /// first window.
    pub(super) is_measured: bool,
}

/// The lower quartile of the latest launches. A launch that waits for a full queue takes as long as
/// the GPU does, which is not a cost of the profiler.
#[derive(Debug, Default)]
struct Latest {
    times: Distribution,
    quartile_ns: Option<f64>,
}

impl Latest {
    fn add(&mut self, ns: u64) {
        self.times.add(ns);
        if self.times.count() == ENOUGH || self.times.count() == MANY {
            self.quartile_ns = quartile(&self.times);
        }
        if self.times.count() >= MANY {
            self.times = Distribution::default();
        }
    }
}

fn quartile(times: &Distribution) -> Option<f64> {
    (times.count() >= ENOUGH).then(|| times.percentile(25.0).as_nanos() as f64)
}

#[derive(Debug, Default)]
struct OfKind {
    before: [Distribution; RATES],
    after: [Latest; RATES],
    within: Latest,
}

impl OfKind {
    fn rise_at(&self, rate: usize) -> Option<f64> {
        let before = quartile(&self.before[rate])?;
        Some((self.after[rate].quartile_ns? - before).max(0.0))
    }
}

/// Host times of launches.
#[derive(Debug)]
pub(super) struct LaunchCosts {
    /// The assumed slowdown of a kind that was not measured.
    assumed_ns: f64,
    kernels: OfKind,
    graphs: OfKind,
}

fn class_of(rate: f64) -> usize {
    let class = (rate / FIRST_RATE).max(1.0).log2() / 2.0;
    (class.ceil() as usize).min(RATES - 1)
}

impl LaunchCosts {
    pub(super) fn new(assumed_ns: f64) -> Self {
        Self { assumed_ns, kernels: OfKind::default(), graphs: OfKind::default() }
    }

    fn of_kind(&self, kind: LaunchKind) -> &OfKind {
        match kind {
            LaunchKind::Kernel => &self.kernels,
            LaunchKind::Graph => &self.graphs,
        }
    }

    /// Adds a launch with its host time, at this rate of launches per second.
    pub(super) fn add(&mut self, kind: LaunchKind, phase: Phase, rate: f64, ns: u64) {
        let of_kind = match kind {
            LaunchKind::Kernel => &mut self.kernels,
            LaunchKind::Graph => &mut self.graphs,
        };
        match phase {
            Phase::Before => of_kind.before[class_of(rate)].add(ns),
            Phase::Within => of_kind.within.add(ns),
            Phase::After => of_kind.after[class_of(rate)].add(ns),
        }
    }

    /// Returns the slowdown of launches at this rate since the first window. Without earlier
    /// launches at this rate, it is the largest slowdown at other rates. If there is none either,
    /// it is the assumed slowdown, or the difference from earlier launches at the nearest rate if
    /// that is larger.
    pub(super) fn rise(&self, kind: LaunchKind, rate: f64) -> Rise {
        let (of_kind, class) = (self.of_kind(kind), class_of(rate));
        let others = || (0..RATES).filter_map(|class| of_kind.rise_at(class)).reduce(f64::max);
        if let Some(ns) = of_kind.rise_at(class).or_else(others) {
            return Rise { ns, is_measured: true };
        }
        let known = (0..RATES).filter_map(|of| Some((of, quartile(&of_kind.before[of])?)));
        let nearest = known.min_by_key(|(of, _)| of.abs_diff(class));
        let rise = || Some(of_kind.after[class].quartile_ns? - nearest?.1);
        Rise { ns: self.assumed_ns.max(rise().unwrap_or_default()), is_measured: false }
    }

    /// The slowdown of launches in windows, relative to launches between windows at the rate with
    /// the lowest cost.
    pub(super) fn rise_in_window_ns(&self) -> f64 {
        let count = |of_kind: &OfKind| of_kind.within.times.count();
        let graphs_are_more = count(&self.graphs) > count(&self.kernels);
        let of_kind = if graphs_are_more { &self.graphs } else { &self.kernels };
        let before = of_kind.before.iter().filter_map(quartile);
        let after = of_kind.after.iter().filter_map(|after| after.quartile_ns);
        let outside = after.reduce(f64::min).or_else(|| before.reduce(f64::min));
        match (outside, of_kind.within.quartile_ns) {
            (Some(outside), Some(within)) => (within - outside).max(0.0),
            _ => self.assumed_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(costs: &mut LaunchCosts, phase: Phase, rate: f64, ns: u64) {
        // A quarter waits for a full queue.
        for number in 0..ENOUGH {
            let waits = if number % 4 == 3 { 1_000_000 } else { 0 };
            costs.add(LaunchKind::Kernel, phase, rate, ns + waits);
        }
    }

    #[test]
    fn rates_have_classes() {
        assert_eq!([0.0, 1e3, 1.1e3, 4e3, 5e3, 5.4e5, 1e12].map(class_of), [0, 0, 1, 1, 2, 5, 7]);
    }

    #[test]
    fn launches_are_compared_at_their_own_rate() {
        let mut costs = LaunchCosts::new(600.0);
        assert_eq!(costs.rise(LaunchKind::Kernel, 500.0), Rise { ns: 600.0, is_measured: false });
        add(&mut costs, Phase::Before, 500.0, 2_500);
        add(&mut costs, Phase::Before, 500_000.0, 3_500);
        add(&mut costs, Phase::After, 500.0, 2_900);
        let near = |rise: Rise, ns: f64| rise.is_measured && (rise.ns - ns).abs() < 40.0;
        assert!(near(costs.rise(LaunchKind::Kernel, 500.0), 400.0));
        // The rate was not seen after the first window: the rise of another rate counts.
        assert!(near(costs.rise(LaunchKind::Kernel, 500_000.0), 400.0));
        add(&mut costs, Phase::After, 500_000.0, 4_000);
        assert!(near(costs.rise(LaunchKind::Kernel, 500_000.0), 500.0));
        // Never seen before a window.
        add(&mut costs, Phase::After, 10_000.0, 9_000);
        assert!(near(costs.rise(LaunchKind::Kernel, 10_000.0), 500.0));
        assert!(!costs.rise(LaunchKind::Graph, 500.0).is_measured);
    }

    #[test]
    fn without_a_common_rate_the_nearest_one_counts_if_it_shows_more() {
        let mut costs = LaunchCosts::new(600.0);
        add(&mut costs, Phase::Before, 500.0, 2_000);
        add(&mut costs, Phase::Before, 10_000.0, 2_500);
        add(&mut costs, Phase::After, 500_000.0, 2_700);
        assert_eq!(
            costs.rise(LaunchKind::Kernel, 500_000.0),
            Rise { ns: 600.0, is_measured: false }
        );
        add(&mut costs, Phase::After, 2_000_000.0, 5_500);
        let rise = costs.rise(LaunchKind::Kernel, 2_000_000.0);
        assert!(!rise.is_measured && (rise.ns - 3_000.0).abs() < 60.0, "{rise:?}");
    }

    #[test]
    fn the_latest_launches_count_after_the_first_window() {
        let mut costs = LaunchCosts::new(600.0);
        add(&mut costs, Phase::Before, 500.0, 2_500);
        for ns in [2_900, 3_300] {
            (0..2 * MANY).for_each(|_| costs.add(LaunchKind::Kernel, Phase::After, 500.0, ns));
        }
        let rise = costs.rise(LaunchKind::Kernel, 500.0).ns;
        assert!((rise - 800.0).abs() < 40.0, "{rise}");
        add(&mut costs, Phase::Within, 500.0, 4_300);
        assert!((costs.rise_in_window_ns() - 1_000.0).abs() < 60.0);
    }
}
