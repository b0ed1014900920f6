//! Chooses the probability with which units are recorded.
//!
//! A state machine without a clock: every method receives the time.

use profiler_base::statistics::upper_median;
use rustc_hash::FxHashMap;

/// One unit is expected to be drawn in this time, however low the rate is.
const DRAWN_EVERY_NS: f64 = 20e9;
/// Where the budget forbids windows, one in this time measures their cost again.
const MEASURED_EVERY_NS: f64 = 600e9;
/// The number of windows that open before their cost bounds the rate.
const FIRST_WINDOWS: u64 = 3;
/// The number of times from which medians are taken, for each name.
const RECENT: usize = 15;
/// The maximum number of unit names with their own times; others share one.
const MOST_NAMES: usize = 64;
/// The minimum weight of the latest value in a mean is one divided by this.
const MEAN_OF: f64 = 16.0;

/// The latest times of units, in nanoseconds.
#[derive(Debug, Clone, Default)]
struct Recent {
    ns: Vec<u64>,
    next: usize,
}

impl Recent {
    fn add(&mut self, ns: u64) {
        match self.ns.get_mut(self.next) {
            Some(oldest) => *oldest = ns,
            None => self.ns.push(ns),
        }
        self.next = (self.next + 1) % RECENT;
    }

    fn median(&self) -> Option<u64> {
        upper_median(self.ns.clone())
    }
}

/// An exponentially weighted mean.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    count: f64,
    value: f64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.count = (self.count + 1.0).min(MEAN_OF);
        self.value += (value - self.value) / self.count;
    }
}

/// The times of units of one name: those that overlapped a window, and the others.
#[derive(Debug, Clone, Default)]
struct Times {
    with: Recent,
    without: Recent,
}

impl Times {
    /// The time by which units that overlap a window take longer.
    fn longer_ns(&self) -> f64 {
        match (self.with.median(), self.without.median()) {
            (Some(with), Some(without)) => with.saturating_sub(without) as f64,
            _ => 0.0,
        }
    }
}

/// The state of the controller.
///
/// A window costs the time by which the units that overlap it take longer, from the medians of
/// units with and without a window. The probability is the rate, or higher if otherwise no unit
/// would be drawn in 20 s, and falls until windows cost no more than the budget.
#[derive(Debug, Clone, Default)]
pub(crate) struct Controller {
    budget: f64,
    rate: f64,
    last_begin_ns: Option<u64>,
    /// The time between the begins of two units, and the time of a unit.
    interval_ns: Mean,
    unit_ns: Mean,
    names: FxHashMap<String, usize>,
    times: Vec<Times>,
    /// The cost of a drawn unit, and that of the units since the last one was drawn.
    drawn_ns: Mean,
    pending_ns: f64,
    drawn: u64,
    /// The cost of all windows, and the time of all units.
    spent_ns: f64,
    time_ns: f64,
}

impl Controller {
    pub(crate) fn new(budget: f64, rate: f64) -> Self {
        Self { budget, rate, ..Self::default() }
    }

    /// A unit begins. Returns the probability with which it is drawn.
    pub(crate) fn begin(&mut self, now_ns: u64) -> f64 {
        if let Some(last_ns) = self.last_begin_ns.replace(now_ns) {
            self.interval_ns.add(now_ns.saturating_sub(last_ns) as f64);
        }
        self.probability()
    }

    /// The present probability.
    pub(crate) fn probability(&self) -> f64 {
        if self.budget <= 0.0 || self.rate <= 0.0 {
            return 0.0;
        }
        let interval_ns = self.interval_ns.value;
        let wanted = self.rate.max(interval_ns / DRAWN_EVERY_NS);
        let least = (interval_ns / MEASURED_EVERY_NS).min(wanted);
        wanted.min(self.affordable()).max(least).min(1.0)
    }

    /// True if the budget lowers the probability.
    pub(crate) fn is_limited(&self) -> bool {
        self.affordable() < self.rate.max(self.interval_ns.value / DRAWN_EVERY_NS).min(1.0)
    }

    /// The probability at which windows cost what the budget allows.
    fn affordable(&self) -> f64 {
        let cost_ns = self.drawn_ns.value;
        if self.drawn < FIRST_WINDOWS || cost_ns <= 0.0 {
            return f64::INFINITY;
        }
        self.budget * self.unit_ns.value / cost_ns
    }

    /// True if a window that was not drawn may open, for a unit of special interest.
    pub(crate) fn may_open(&self) -> bool {
        let cost_ns = self.spent_ns + self.drawn_ns.value;
        self.budget > 0.0 && (self.drawn_ns.count == 0.0 || cost_ns <= self.budget * self.time_ns)
    }

    /// A drawn unit has ended.
    pub(crate) fn drawn(&mut self) {
        self.drawn += 1;
        let cost_ns = std::mem::take(&mut self.pending_ns);
        self.drawn_ns.add(cost_ns);
    }

    /// A unit has ended after this time. `overlaps` is true if a window was open meanwhile.
    pub(crate) fn end(&mut self, name: usize, ns: u64, overlaps: bool) {
        self.unit_ns.add(ns as f64);
        self.time_ns += ns as f64;
        let Some(times) = self.times.get_mut(name) else { return };
        if !overlaps {
            times.without.add(ns);
            return;
        }
        times.with.add(ns);
        let longer_ns = times.longer_ns();
        self.pending_ns += longer_ns;
        self.spent_ns += longer_ns;
    }

    /// The measured share of the units' time that windows cost.
    pub(crate) fn window_share(&self) -> f64 {
        if self.time_ns > 0.0 { self.spent_ns / self.time_ns } else { 0.0 }
    }

    /// The row of a name.
    pub(crate) fn row(&mut self, name: &str) -> usize {
        if let Some(row) = self.names.get(name) {
            return *row;
        }
        // The last row is shared by all further names.
        let row = self.names.len().min(MOST_NAMES);
        if row < MOST_NAMES {
            self.names.insert(name.to_owned(), row);
        }
        self.times.resize(self.times.len().max(row + 1), Times::default());
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A service whose units take `unit_ns` and, if drawn, `slower` times as long.
    struct Service {
        controller: Controller,
        random: fastrand::Rng,
        now_ns: u64,
        drawn: u64,
        lost_ns: f64,
        busy_ns: f64,
    }

    impl Service {
        fn new(budget: f64, rate: f64) -> Self {
            let controller = Controller::new(budget, rate);
            let random = fastrand::Rng::with_seed(7);
            Self { controller, random, now_ns: 0, drawn: 0, lost_ns: 0.0, busy_ns: 0.0 }
        }

        fn run(&mut self, seconds: u64, unit_ns: u64, slower: f64) {
            let end_ns = self.now_ns + seconds * SECOND;
            let row = self.controller.row("request");
            while self.now_ns < end_ns {
                let is_drawn = self.random.f64() < self.controller.begin(self.now_ns);
                let own_ns = unit_ns as f64 * (0.9 + 0.2 * self.random.f64());
                let ns = own_ns * if is_drawn { slower } else { 1.0 };
                self.now_ns += ns as u64;
                self.controller.end(row, ns as u64, is_drawn);
                if is_drawn {
                    self.controller.drawn();
                    self.drawn += 1;
                    self.lost_ns += ns - own_ns;
                }
                self.busy_ns += ns;
            }
        }
    }

    #[test]
    fn rate_holds_where_windows_are_cheap() {
        let mut service = Service::new(0.03, 0.01);
        service.run(60, 500_000, 1.2);
        let units = service.busy_ns / 500_000.0;
        let share = service.drawn as f64 / units;
        assert!((0.008..0.012).contains(&share) && !service.controller.is_limited(), "{share}");
    }

    #[test]
    fn budget_bounds_the_cost_and_the_account_equals_it() {
        for (budget, slower) in [(0.01, 9.0), (0.03, 40.0), (0.001, 3.0)] {
            let mut service = Service::new(budget, 0.5);
            service.run(120, 1_000_000, slower);
            let share = service.lost_ns / service.busy_ns;
            let account = service.controller.window_share();
            println!("budget {budget}: {share:.5}, its account {account:.5}");
            assert!(share < 1.2 * budget && share > 0.5 * budget, "{budget}: {share}");
            assert!((account - share).abs() < 0.15 * budget, "{budget}: {share} and {account}");
            assert!(service.controller.is_limited());
        }
    }

    #[test]
    fn long_units_are_drawn_within_a_minute() {
        // Ten seconds each: half of them.
        let mut service = Service::new(0.03, 0.01);
        service.run(600, 10 * SECOND, 1.02);
        assert!((15..=45).contains(&service.drawn), "{}", service.drawn);
        // The same where a window doubles the time of a unit: the budget counts.
        let mut service = Service::new(0.03, 0.01);
        service.run(6_000, 10 * SECOND, 2.0);
        let share = service.lost_ns / service.busy_ns;
        assert!(share < 0.05, "{share}");
    }

    #[test]
    fn windows_begin_again_once_they_are_cheap() {
        let mut service = Service::new(0.01, 0.5);
        service.run(60, 20_000_000, 100.0);
        let dear = service.controller.probability();
        service.run(3_600, 20_000_000, 1.01);
        let cheap = service.controller.probability();
        assert!(dear < 0.01 && cheap > 0.1, "{dear} and {cheap}");
    }

    #[test]
    fn nothing_is_drawn_without_a_budget_or_a_rate() {
        for (budget, rate) in [(0.0, 0.5), (0.5, 0.0)] {
            let mut service = Service::new(budget, rate);
            service.run(60, 1_000_000, 1.0);
            assert_eq!(service.drawn, 0);
        }
        assert!(!Controller::new(0.0, 0.5).may_open() && Controller::new(0.5, 0.0).may_open());
    }

    #[test]
    fn names_are_bounded() {
        let mut controller = Controller::new(0.03, 0.01);
        (0..1_000).for_each(|number| {
            let row = controller.row(&number.to_string());
            controller.end(row, 5, false);
        });
        assert_eq!(controller.times.len(), MOST_NAMES + 1);
    }
}
