//! Which steps and requests are recorded, so that recording keeps a budget of the program's time.
//!
//! A state machine without a clock: every method gets the time. Windows are drawn at random with a known
//! probability. What they cost is earned by the passing of time and spent by windows; the balance of both
//! corrects the probability, so that spending follows the budget however wrong a single estimate is.

/// The time over which a balance is spent or paid back.
const HORIZON_NS: f64 = 10e9;
/// The most time whose budget may be owed, in horizons: a sudden load may cost this much at once.
const MOST_DEBT: f64 = 6.0;
/// The time constant of the rates of units and of fixed costs.
const RATE_NS: f64 = 500e6;
const FIXED_NS: f64 = 2e9;
/// The assumed cost of a window before the first one.
const FIRST_WINDOW_NS: f64 = 10e6;
/// The weight of the latest window in the mean cost is at least one of this many.
const COSTS: f64 = 16.0;
/// A lower probability is none: its weight would decide all sums.
const LEAST_PROBABILITY: f64 = 1e-5;

/// What becomes of a step or request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Decision {
    /// It is recorded; it was drawn with this probability.
    Open { probability: f64 },
    /// It was not drawn.
    Skip,
    /// The cost that is there without windows exceeds the budget.
    ExceedsBudget,
}

/// The state of the controller.
#[derive(Debug, Clone)]
pub(crate) struct Controller {
    budget: f64,
    most_rate: f64,
    assumed_launch_ns: f64,
    start_ns: u64,
    now_ns: u64,
    /// Budget earned and not spent, in nanoseconds of cost.
    balance_ns: f64,
    /// Units a nanosecond, and the fixed cost a nanosecond.
    unit_rate: f64,
    fixed: f64,
    fixed_is_known: bool,
    launch_rate: f64,
    window_ns: f64,
    windows: u64,
    has_opened: bool,
    spent_ns: f64,
    fixed_ns: f64,
}

/// What a time without windows came to.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct FixedCost {
    /// Launches in it.
    pub(crate) launches: u64,
    /// What logging calls cost, and by how much launches took longer than before the first window.
    pub(crate) cost_ns: f64,
}

impl Controller {
    /// A controller for this share of time. Units are drawn with at most the probability `most_rate`. Until the
    /// first window has opened, it is assumed to make each later launch this much dearer.
    pub(crate) fn new(budget: f64, most_rate: f64, assumed_launch_ns: f64, now_ns: u64) -> Self {
        Self {
            budget: budget.clamp(0.0, 1.0),
            most_rate: most_rate.clamp(0.0, 1.0),
            assumed_launch_ns,
            start_ns: now_ns,
            now_ns,
            balance_ns: 0.0,
            unit_rate: 0.0,
            fixed: 0.0,
            fixed_is_known: false,
            launch_rate: 0.0,
            window_ns: FIRST_WINDOW_NS,
            windows: 0,
            has_opened: false,
            spent_ns: 0.0,
            fixed_ns: 0.0,
        }
    }

    fn advance(&mut self, now_ns: u64) -> f64 {
        let elapsed = now_ns.saturating_sub(self.now_ns) as f64;
        self.now_ns = self.now_ns.max(now_ns);
        let earned = (self.budget - self.fixed_share()) * elapsed;
        let most = self.budget * HORIZON_NS;
        self.balance_ns = (self.balance_ns + earned).clamp(-MOST_DEBT * most, most);
        self.unit_rate *= (-elapsed / RATE_NS).exp();
        elapsed
    }

    /// The share of time that passes for fixed costs: with those that a first window would bring.
    pub(crate) fn fixed_share(&self) -> f64 {
        let assumed = if self.has_opened { 0.0 } else { self.launch_rate * self.assumed_launch_ns };
        self.fixed + assumed
    }

    /// Whether fixed costs alone exceed the budget.
    pub(crate) fn exceeds_budget(&self) -> bool {
        self.fixed_share() > self.budget
    }

    /// Decides about a unit that begins now. `draw` is uniform in [0, 1).
    pub(crate) fn offer(&mut self, now_ns: u64, draw: f64) -> Decision {
        self.advance(now_ns);
        self.unit_rate += 1.0 / RATE_NS;
        if self.exceeds_budget() || !self.fixed_is_known {
            return if self.fixed_is_known { Decision::ExceedsBudget } else { Decision::Skip };
        }
        let probability = self.probability();
        if draw < probability {
            self.has_opened = true;
            Decision::Open { probability }
        } else {
            Decision::Skip
        }
    }

    /// Whether a window that is not drawn may open now: for a unit that is of interest by itself.
    pub(crate) fn may_open(&mut self, now_ns: u64) -> bool {
        self.advance(now_ns);
        let may = self.fixed_is_known
            && !self.exceeds_budget()
            && self.balance_ns + self.budget * HORIZON_NS > self.window_ns;
        self.has_opened |= may;
        may
    }

    fn probability(&self) -> f64 {
        // Soon after the start the rate has not reached its value.
        let age = self.now_ns.saturating_sub(self.start_ns) as f64;
        let seen = 1.0 - (-age / RATE_NS).exp();
        let rate = self.unit_rate / seen.max(0.1);
        let spend = self.budget - self.fixed_share() + self.balance_ns / HORIZON_NS;
        let probability = (spend / (self.window_ns * rate)).min(self.most_rate);
        if probability >= LEAST_PROBABILITY { probability } else { 0.0 }
    }

    /// A window has closed, and cost this much of the program's time in all.
    pub(crate) fn closed(&mut self, now_ns: u64, cost_ns: f64) {
        self.advance(now_ns);
        let cost_ns = cost_ns.max(0.0);
        self.windows += 1;
        let weight = (1.0 / self.windows as f64).max(1.0 / COSTS);
        // No window is free, however short: probabilities stay finite.
        self.window_ns += weight * (cost_ns.max(1_000.0) - self.window_ns);
        self.spent_ns += cost_ns;
        self.balance_ns -= cost_ns;
    }

    /// Adds what the time since the last call cost without windows.
    pub(crate) fn observe(&mut self, now_ns: u64, since_ns: u64, fixed: FixedCost) {
        self.advance(now_ns);
        let elapsed = now_ns.saturating_sub(since_ns) as f64;
        if elapsed <= 0.0 {
            return;
        }
        let weight = if self.fixed_is_known { 1.0 - (-elapsed / FIXED_NS).exp() } else { 1.0 };
        self.fixed += weight * (fixed.cost_ns / elapsed - self.fixed);
        self.launch_rate += weight * (fixed.launches as f64 / elapsed - self.launch_rate);
        self.fixed_is_known = true;
        self.fixed_ns += fixed.cost_ns;
    }

    /// Whether launches have been measured.
    pub(crate) fn is_measured(&self) -> bool {
        self.fixed_is_known
    }

    /// The measured cost so far, as shares of the time since the start: of windows, and without them.
    pub(crate) fn shares(&self) -> (f64, f64) {
        let age = self.now_ns.saturating_sub(self.start_ns).max(1) as f64;
        (self.spent_ns / age, self.fixed_ns / age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A program whose load changes tenfold every 30 s.
    struct Simulation {
        controller: Controller,
        random: fastrand::Rng,
        now_ns: u64,
        observed_ns: u64,
        launches: u64,
        /// Cost by second of the run.
        costs: Vec<f64>,
        windows: u64,
        /// What each launch costs before and after the first window, beyond its own time.
        logging_ns: f64,
        dearer_ns: f64,
    }

    impl Simulation {
        fn new(budget: f64, logging_ns: f64, dearer_ns: f64) -> Self {
            Self {
                controller: Controller::new(budget, 1.0, 600.0, 0),
                random: fastrand::Rng::with_seed(7),
                now_ns: 0,
                observed_ns: 0,
                launches: 0,
                costs: Vec::new(),
                windows: 0,
                logging_ns,
                dearer_ns,
            }
        }

        fn pay(&mut self, ns: f64) {
            let second = (self.now_ns / SECOND) as usize;
            self.costs.resize(self.costs.len().max(second + 1), 0.0);
            self.costs[second] += ns;
            self.now_ns += ns as u64;
        }

        /// Runs for so many seconds: units of `unit_ns`, at high load ten times as often.
        fn run(&mut self, seconds: u64, unit_ns: u64, launches: u64, window_ns: f64) {
            let end_ns = self.now_ns + seconds * SECOND;
            while self.now_ns < end_ns {
                let is_high = (self.now_ns / (30 * SECOND)) % 2 == 1;
                let pause_ns = if is_high { unit_ns / 10 } else { 10 * unit_ns };
                let each_ns = if self.controller.has_opened {
                    self.logging_ns + self.dearer_ns
                } else {
                    self.logging_ns
                };
                let draw = self.random.f64();
                let decision = self.controller.offer(self.now_ns, draw);
                self.now_ns += unit_ns + (pause_ns as f64 * 2.0 * self.random.f64()) as u64;
                self.pay(each_ns * launches as f64);
                self.launches += launches;
                if let Decision::Open { probability } = decision {
                    assert!(probability > 0.0 && probability <= 1.0);
                    // From half to one and a half times the mean.
                    let cost = window_ns * (0.5 + self.random.f64());
                    self.pay(cost);
                    self.windows += 1;
                    self.controller.closed(self.now_ns, cost);
                }
                if self.now_ns - self.observed_ns >= SECOND / 10 {
                    let cost_ns = self.launches as f64 * each_ns;
                    let fixed = FixedCost { launches: self.launches, cost_ns };
                    self.controller.observe(self.now_ns, self.observed_ns, fixed);
                    (self.observed_ns, self.launches) = (self.now_ns, 0);
                }
            }
        }

        fn share(&self) -> f64 {
            self.costs.iter().sum::<f64>() / self.now_ns as f64
        }

        /// The dearest minute.
        fn dearest_minute(&self) -> f64 {
            let minutes = self.costs.windows(60).map(|costs| costs.iter().sum::<f64>() / 60e9);
            minutes.fold(0.0, f64::max)
        }
    }

    /// The stated tolerances: over ten minutes 2 % of the budget, over any minute 15 %.
    #[test]
    fn budgets_are_kept_while_the_load_changes_tenfold() {
        for budget in [0.01, 0.03, 0.1] {
            let cases = [(1_000_000, 4, 300e3), (100_000, 1, 2e6), (20_000_000, 40, 8e6)];
            for (unit_ns, launches, window_ns) in cases {
                let mut run = Simulation::new(budget, 77.0, 400.0);
                run.run(600, unit_ns, launches, window_ns);
                let (share, minute) = (run.share(), run.dearest_minute());
                let case = format!("budget {budget}, unit {unit_ns} ns, window {window_ns} ns");
                let log =
                    format!("{case}: {share:.5}, minute {minute:.5}, {} windows", run.windows);
                println!("{log}");
                assert!(share <= 1.02 * budget, "{log}");
                assert!(minute <= 1.15 * budget, "{log}");
                // It spends what it may, unless all units are recorded.
                assert!(share >= 0.8 * budget || run.windows > 5_000, "{log}");
                let (of_windows, fixed) = run.controller.shares();
                assert!((of_windows + fixed - share).abs() < 0.02 * budget, "{log}");
            }
        }
    }

    #[test]
    fn no_window_opens_where_later_launches_would_cost_more_than_the_budget() {
        // 1,000 launches in a millisecond: 0.6 us more for each are more than half of the time.
        let mut run = Simulation::new(0.03, 10.0, 600.0);
        run.run(60, 1_000_000, 1_000, 300e3);
        assert_eq!((run.windows, run.controller.exceeds_budget()), (0, true));
        assert_eq!(run.controller.offer(run.now_ns, 0.0), Decision::ExceedsBudget);
        assert!(!run.controller.may_open(run.now_ns));
        // With few launches the same program is sampled.
        let mut run = Simulation::new(0.03, 10.0, 600.0);
        run.run(60, 1_000_000, 5, 300e3);
        assert!(run.windows > 10 && !run.controller.exceeds_budget(), "{}", run.windows);
    }

    #[test]
    fn windows_end_once_the_load_makes_launches_too_dear() {
        let mut run = Simulation::new(0.03, 20.0, 400.0);
        run.run(30, 1_000_000, 4, 300e3);
        let before = run.windows;
        assert!(before > 0);
        run.run(60, 1_000_000, 2_000, 300e3);
        let later = run.windows;
        assert!(run.controller.exceeds_budget());
        run.run(60, 1_000_000, 2_000, 300e3);
        assert_eq!(run.windows, later, "none while launches alone exceed the budget");
        // And begin again when the load is gone.
        run.run(180, 1_000_000, 4, 300e3);
        assert!(run.windows > later);
    }

    #[test]
    fn a_slow_unit_may_open_a_window_within_the_budget() {
        let mut controller = Controller::new(0.03, 0.0, 600.0, 0);
        assert!(!controller.may_open(SECOND), "the load is not known yet");
        controller.observe(SECOND, 0, FixedCost { launches: 10, cost_ns: 1_000.0 });
        assert_eq!(controller.offer(SECOND, 0.0), Decision::Skip, "its rate is 0");
        let mut opened = 0;
        for millisecond in 1_000..61_000 {
            if controller.may_open(millisecond * 1_000_000) {
                opened += 1;
                controller.closed(millisecond * 1_000_000, 10e6);
            }
        }
        // 60 s of 3 % are 180 windows of 10 ms, and a horizon's more at once.
        assert!((150..=215).contains(&opened), "{opened}");
    }
}
