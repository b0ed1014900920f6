//! Selects the recorded steps and requests, so that recording stays within a budget of the
//! program's time.
//!
//! A state machine without a clock: every method receives the time. Windows are drawn at random
//! with a known probability. Elapsed time adds to the balance, and windows spend it. The balance
//! corrects the probability, so that spending follows the budget even if a single estimate is
//! wrong.

/// The time over which a balance is spent or paid back.
const HORIZON_NS: f64 = 10e9;
/// Maximum debt, in horizons: a sudden load may cost this much at once.
const MOST_DEBT: f64 = 6.0;
/// The time constant of the rates of units and of fixed costs.
const RATE_NS: f64 = 500e6;
const FIXED_NS: f64 = 2e9;
/// The assumed cost of a window before the first one.
const FIRST_WINDOW_NS: f64 = 10e6;
/// The minimum weight of the latest window in the mean cost is one divided by this.
const COSTS: f64 = 16.0;
/// The averaging time of the highest rate of launches.
const PEAK_NS: f64 = 10e9;
/// The maximum share of the budget for slower launches at the highest rate; above it, the first
/// window is not opened. Launches stay slower until the process ends.
const FIRST_SHARE: f64 = 0.75;
/// Launches became at most 19 % slower on all machines: with a budget above this share, launches
/// are not watched.
pub(super) const MOST_RISE: f64 = 0.2;
/// The share of the budget that logged calls may cost if other costs alone exceed the budget.
const BEYOND: f64 = 0.5;
/// Logging restarts once its cost would be at most this share of the remaining budget, and not
/// before the time below.
const LOG_AGAIN: f64 = 0.75;
const LOG_AGAIN_NS: u64 = 5_000_000_000;
/// A lower probability counts as 0: a single unit's weight would dominate all sums.
const LEAST_PROBABILITY: f64 = 1e-5;

/// The decision about a step or request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Decision {
    /// Recorded; it was drawn with this probability.
    Open { probability: f64 },
    /// Not drawn.
    Skip,
    /// The cost without windows exceeds the budget.
    ExceedsBudget,
}

/// The limits of a controller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The share of time that recording may cost.
    pub(crate) budget: f64,
    /// The maximum probability with which units are drawn.
    pub(crate) most_rate: f64,
    /// The assumed slowdown of a launch after the first window, until it is measured.
    pub(crate) assumed_launch_ns: f64,
    /// The time for which launches are watched before the first window.
    pub(crate) watch_ns: u64,
    /// The declared maximum of launches per second; 0 if unknown.
    pub(crate) peak_launches: f64,
}

/// The state of the controller.
#[derive(Debug, Clone)]
pub(crate) struct Controller {
    budget: f64,
    most_rate: f64,
    assumed_launch_ns: f64,
    watch_ns: u64,
    /// The start of the first observation with launches.
    first_launch_ns: Option<u64>,
    /// Launches per nanosecond over a longer time, and the maximum of this rate.
    slow_launch_rate: f64,
    peak_launch_rate: f64,
    start_ns: u64,
    now_ns: u64,
    /// The unspent budget, in nanoseconds of cost.
    balance_ns: f64,
    /// Units per nanosecond, and the fixed cost per nanosecond.
    unit_rate: f64,
    fixed: f64,
    fixed_is_known: bool,
    /// The cost of logged calls per nanosecond, also while they are not logged; whether they are
    /// logged, and since when.
    logging: f64,
    /// Their cost while they were logged, and the time of units meanwhile; both decay
    /// exponentially.
    logged_cost_ns: f64,
    logged_units_ns: f64,
    logs: bool,
    logs_since_ns: u64,
    /// The observed time, and the part of it in which calls were logged.
    observed_ns: f64,
    logged_ns: f64,
    launch_rate: f64,
    window_ns: f64,
    windows: u64,
    has_opened: bool,
    spent_ns: f64,
    fixed_ns: f64,
}

/// The costs of an interval without its windows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct FixedCost {
    /// Launches in it.
    pub(crate) launches: u64,
    /// The cost of CUPTI's first call, and the slowdown of launches since the first window.
    pub(crate) cost_ns: f64,
    /// The cost of logging calls; without logging, the cost it would have had, if times of units
    /// show it.
    pub(crate) logging_ns: f64,
    /// The time of the units that ended in it.
    pub(crate) units_ns: f64,
    /// True if calls were logged.
    pub(crate) logs: bool,
}

impl Controller {
    pub(crate) fn new(limits: &Limits, now_ns: u64) -> Self {
        let budget = limits.budget.clamp(0.0, 1.0);
        Self {
            budget,
            most_rate: limits.most_rate.clamp(0.0, 1.0),
            assumed_launch_ns: limits.assumed_launch_ns,
            watch_ns: if budget > MOST_RISE { 0 } else { limits.watch_ns },
            first_launch_ns: None,
            slow_launch_rate: 0.0,
            peak_launch_rate: limits.peak_launches / 1e9,
            start_ns: now_ns,
            now_ns,
            balance_ns: 0.0,
            unit_rate: 0.0,
            fixed: 0.0,
            fixed_is_known: false,
            logging: 0.0,
            logged_cost_ns: 0.0,
            logged_units_ns: 0.0,
            logs: true,
            logs_since_ns: now_ns,
            observed_ns: 0.0,
            logged_ns: 0.0,
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
        // Time before the first window earns no credit; otherwise the first minute with windows
        // would cost more than later ones.
        let most_credit = if self.has_opened { most } else { 0.0 };
        self.balance_ns = (self.balance_ns + earned).clamp(-MOST_DEBT * most, most_credit);
        self.unit_rate *= (-elapsed / RATE_NS).exp();
        elapsed
    }

    /// The share of elapsed time for fixed costs, including the expected costs of a first window.
    pub(crate) fn fixed_share(&self) -> f64 {
        let assumed = if self.has_opened { 0.0 } else { self.launch_rate * self.assumed_launch_ns };
        let logging = if self.logs { self.logging } else { 0.0 };
        self.fixed + logging + assumed
    }

    /// The share of time available for logged calls.
    fn room_for_calls(&self) -> f64 {
        let left = self.budget - self.fixed;
        if left > 0.0 { left } else { BEYOND * self.budget }
    }

    /// True if logged calls cost no more than this share.
    pub(crate) fn affords_calls(&self) -> bool {
        self.logging <= self.room_for_calls()
    }

    /// True if calls should be logged from now on, if times of units show the cost.
    pub(crate) fn wants_calls(&self) -> bool {
        let is_due = self.now_ns >= self.logs_since_ns + LOG_AGAIN_NS;
        let room = self.room_for_calls();
        if self.logs { self.affords_calls() } else { is_due && self.logging <= LOG_AGAIN * room }
    }

    /// Records whether calls are logged from now on.
    pub(crate) fn log_calls(&mut self, now_ns: u64, logs: bool) {
        if logs != self.logs {
            (self.logs, self.logs_since_ns) = (logs, now_ns);
        }
    }

    /// True if fixed costs exceed the budget, or would after a first window at the highest rate of
    /// launches. True also if calls are not logged.
    pub(crate) fn exceeds_budget(&self) -> bool {
        let lasting = self.peak_launch_rate * self.assumed_launch_ns;
        let is_too_dear = !self.has_opened && lasting > FIRST_SHARE * self.budget;
        !self.logs || self.fixed_is_known && (is_too_dear || self.fixed_share() > self.budget)
    }

    /// True if launches are watched before the first window.
    pub(crate) fn is_watching(&self) -> bool {
        let is_watched = self.watch_ns == 0
            || self.first_launch_ns.is_some_and(|since| self.now_ns >= since + self.watch_ns);
        !self.fixed_is_known || !(self.has_opened || is_watched)
    }

    /// Decides about a unit that begins now. `draw` is uniform in [0, 1).
    pub(crate) fn offer(&mut self, now_ns: u64, draw: f64) -> Decision {
        self.advance(now_ns);
        self.unit_rate += 1.0 / RATE_NS;
        if self.exceeds_budget() {
            return Decision::ExceedsBudget;
        }
        if self.is_watching() {
            return Decision::Skip;
        }
        let probability = self.probability();
        if draw < probability { Decision::Open { probability } } else { Decision::Skip }
    }

    /// True if a window that is not drawn may open now, for a unit of special interest.
    pub(crate) fn may_open(&mut self, now_ns: u64) -> bool {
        self.advance(now_ns);
        !self.is_watching()
            && !self.exceeds_budget()
            && self.balance_ns + self.budget * HORIZON_NS > self.window_ns
    }

    /// A window is open: launches are slower from now on.
    pub(crate) fn opened(&mut self) {
        self.has_opened = true;
    }

    fn probability(&self) -> f64 {
        // Soon after the start the rate has not converged.
        let age = self.now_ns.saturating_sub(self.start_ns) as f64;
        let seen = 1.0 - (-age / RATE_NS).exp();
        let rate = self.unit_rate / seen.max(0.1);
        let spend = self.budget - self.fixed_share() + self.balance_ns / HORIZON_NS;
        let probability = (spend / (self.window_ns * rate)).min(self.most_rate);
        if probability >= LEAST_PROBABILITY { probability } else { 0.0 }
    }

    /// A window has closed, with this total cost in program time.
    pub(crate) fn closed(&mut self, now_ns: u64, cost_ns: f64) {
        self.advance(now_ns);
        let cost_ns = cost_ns.max(0.0);
        self.windows += 1;
        let weight = (1.0 / self.windows as f64).max(1.0 / COSTS);
        // Every window has a cost, however short: probabilities stay finite.
        self.window_ns += weight * (cost_ns.max(1_000.0) - self.window_ns);
        self.spent_ns += cost_ns;
        self.balance_ns -= cost_ns;
    }

    /// Adds the costs since the last call, without windows.
    pub(crate) fn observe(&mut self, now_ns: u64, since_ns: u64, fixed: FixedCost) {
        self.advance(now_ns);
        let elapsed = now_ns.saturating_sub(since_ns) as f64;
        if elapsed <= 0.0 {
            return;
        }
        let weight = if self.fixed_is_known { 1.0 - (-elapsed / FIXED_NS).exp() } else { 1.0 };
        self.fixed += weight * (fixed.cost_ns / elapsed - self.fixed);
        let logging_ns = self.logging_ns(elapsed, fixed);
        self.logging += weight * (logging_ns / elapsed - self.logging);
        self.log_calls(now_ns, fixed.logs);
        let launch_rate = fixed.launches as f64 / elapsed;
        self.launch_rate += weight * (launch_rate - self.launch_rate);
        self.slow_launch_rate +=
            (1.0 - (-elapsed / PEAK_NS).exp()) * (launch_rate - self.slow_launch_rate);
        self.peak_launch_rate = self.peak_launch_rate.max(self.slow_launch_rate);
        if fixed.launches != 0 {
            self.first_launch_ns.get_or_insert(since_ns);
        }
        self.fixed_is_known = true;
        self.fixed_ns += fixed.cost_ns;
        self.observed_ns += elapsed;
        if fixed.logs {
            self.fixed_ns += fixed.logging_ns;
            self.logged_ns += elapsed;
        }
    }

    /// The cost of logging calls in this time. If they are not logged, the estimate is at least the
    /// cost to units while they were logged.
    fn logging_ns(&mut self, elapsed: f64, fixed: FixedCost) -> f64 {
        if fixed.logs {
            let faded = (-elapsed / FIXED_NS).exp();
            self.logged_cost_ns = faded * self.logged_cost_ns + fixed.logging_ns;
            self.logged_units_ns = faded * self.logged_units_ns + fixed.units_ns;
            return fixed.logging_ns;
        }
        let of_units = if self.logged_units_ns > 0.0 {
            self.logged_cost_ns / self.logged_units_ns
        } else {
            0.0
        };
        fixed.logging_ns.max(of_units * fixed.units_ns)
    }

    /// Includes expected future shares of cost immediately, before they are paid: of CUPTI's first
    /// call, and of logged calls.
    pub(crate) fn expect(&mut self, attach: f64, logging: f64) {
        self.fixed += attach.max(0.0);
        self.logging = self.logging.max(logging);
    }

    /// True if calls are logged.
    pub(crate) fn logs_calls(&self) -> bool {
        self.logs
    }

    /// The share of the time from the start to the last observation in which calls were logged.
    pub(crate) fn logged_share(&self) -> f64 {
        if self.observed_ns > 0.0 {
            self.logged_ns / self.observed_ns
        } else {
            f64::from(u8::from(self.logs))
        }
    }

    /// Launches per second at present.
    pub(crate) fn launches_per_second(&self) -> f64 {
        self.launch_rate * 1e9
    }

    /// The measured cost so far, as shares of the time since the start: of windows, and without
    /// windows.
    pub(crate) fn shares(&self) -> (f64, f64) {
        let age = self.now_ns.saturating_sub(self.start_ns).max(1) as f64;
        (self.spent_ns / age, self.fixed_ns / age)
    }
}

#[cfg(test)]
mod tests {
    use super::super::launch_costs::{LaunchCosts, LaunchKind, Phase};
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const LIMITS: Limits = Limits {
        budget: 0.03,
        most_rate: 1.0,
        assumed_launch_ns: 600.0,
        watch_ns: 60 * SECOND,
        peak_launches: 0.0,
    };

    /// A program whose load changes tenfold every 30 s. What the controller learns of it is measured from the times of its launches.
    struct Simulation {
        controller: Controller,
        costs: LaunchCosts,
        random: fastrand::Rng,
        now_ns: u64,
        observed_ns: u64,
        launches: u64,
        /// Times and phases of launches since the last observation.
        times: Vec<(Phase, u64)>,
        kind: LaunchKind,
        /// Cost by second of the run.
        by_second: Vec<f64>,
        windows: u64,
        /// What each launch costs before and after the first window, beyond its own time.
        logging_ns: f64,
        dearer_ns: f64,
    }

    impl Simulation {
        fn new(limits: Limits, logging_ns: f64, dearer_ns: f64) -> Self {
            Self {
                controller: Controller::new(&limits, 0),
                costs: LaunchCosts::new(limits.assumed_launch_ns),
                random: fastrand::Rng::with_seed(7),
                now_ns: 0,
                observed_ns: 0,
                launches: 0,
                times: Vec::new(),
                kind: LaunchKind::Kernel,
                by_second: Vec::new(),
                windows: 0,
                logging_ns,
                dearer_ns,
            }
        }

        fn pay(&mut self, ns: f64) {
            let second = (self.now_ns / SECOND) as usize;
            self.by_second.resize(self.by_second.len().max(second + 1), 0.0);
            self.by_second[second] += ns;
            self.now_ns += ns as u64;
        }

        /// The time of a launch: more under load, where threads stand in each other's way, and with a queue that is full at times.
        fn launch_ns(&mut self, is_high: bool) -> (Phase, u64) {
            let own_ns = if is_high { 3_500.0 } else { 2_500.0 };
            let waits_ns = if self.random.u32(..5) == 0 { 50_000.0 } else { 0.0 };
            let dearer_ns = if self.windows > 0 { self.dearer_ns } else { 0.0 };
            let phase = if self.windows > 0 { Phase::After } else { Phase::Before };
            let ns = own_ns * (0.9 + 0.2 * self.random.f64()) + waits_ns + dearer_ns;
            (phase, ns as u64)
        }

        /// Runs for so many seconds: units of `unit_ns`, at high load ten times as often.
        fn run(&mut self, seconds: u64, unit_ns: u64, launches: u64, window_ns: f64) {
            let end_ns = self.now_ns + seconds * SECOND;
            while self.now_ns < end_ns {
                let is_high = (self.now_ns / (30 * SECOND)) % 2 == 1;
                let pause_ns = if is_high { unit_ns / 10 } else { 10 * unit_ns };
                let dearer_ns = if self.windows > 0 { self.dearer_ns } else { 0.0 };
                let draw = self.random.f64();
                let decision = self.controller.offer(self.now_ns, draw);
                self.now_ns += unit_ns + (pause_ns as f64 * 2.0 * self.random.f64()) as u64;
                self.pay((self.logging_ns + dearer_ns) * launches as f64);
                self.launches += launches;
                // Enough of them to have a quartile.
                for _ in 0..launches.min(8) {
                    let time = self.launch_ns(is_high);
                    self.times.push(time);
                }
                if let Decision::Open { probability } = decision {
                    assert!(probability > 0.0 && probability <= 1.0);
                    // From half to one and a half times the mean.
                    let cost = window_ns * (0.5 + self.random.f64());
                    self.controller.opened();
                    self.pay(cost);
                    self.windows += 1;
                    self.controller.closed(self.now_ns, cost);
                }
                if self.now_ns - self.observed_ns >= SECOND / 10 {
                    self.observe();
                }
            }
        }

        /// As the sampler does it.
        fn observe(&mut self) {
            let rate = self.launches as f64 * 1e9 / (self.now_ns - self.observed_ns) as f64;
            for (phase, ns) in self.times.drain(..) {
                self.costs.add(self.kind, phase, rate, ns);
            }
            let rise_ns = self.costs.rise(self.kind, rate).ns;
            let each_ns = if self.windows > 0 { rise_ns } else { 0.0 };
            let launches = self.launches as f64;
            let (cost_ns, logging_ns) = (launches * each_ns, launches * self.logging_ns);
            let fixed = FixedCost {
                launches: self.launches,
                cost_ns,
                logging_ns,
                units_ns: 0.0,
                logs: true,
            };
            self.controller.observe(self.now_ns, self.observed_ns, fixed);
            (self.observed_ns, self.launches) = (self.now_ns, 0);
        }

        fn share(&self) -> f64 {
            self.by_second.iter().sum::<f64>() / self.now_ns as f64
        }

        /// The dearest minute.
        fn dearest_minute(&self) -> f64 {
            let minutes = self.by_second.windows(60).map(|costs| costs.iter().sum::<f64>() / 60e9);
            minutes.fold(0.0, f64::max)
        }

        /// The share of the last second.
        fn latest_share(&self) -> f64 {
            self.by_second.iter().rev().nth(1).map_or(0.0, |cost| cost / 1e9)
        }
    }

    /// The stated tolerances: over ten minutes 2 % of the budget, over any minute 15 %.
    #[test]
    fn budgets_are_kept_while_the_load_changes_tenfold() {
        for budget in [0.01, 0.03, 0.1] {
            let cases = [(1_000_000, 4, 300e3), (100_000, 1, 2e6), (20_000_000, 40, 8e6)];
            for (unit_ns, launches, window_ns) in cases {
                let mut run = Simulation::new(Limits { budget, ..LIMITS }, 77.0, 400.0);
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
                // What it measured is what was paid.
                let (of_windows, fixed) = run.controller.shares();
                assert!((of_windows + fixed - share).abs() < 0.03 * budget, "{log}");
            }
        }
    }

    #[test]
    fn no_window_opens_where_later_launches_would_cost_more_than_the_budget() {
        // 1,000 launches in a millisecond: 0.6 us more for each are more than half of the time.
        let mut run = Simulation::new(LIMITS, 10.0, 600.0);
        run.run(120, 1_000_000, 1_000, 300e3);
        assert_eq!((run.windows, run.controller.exceeds_budget()), (0, true));
        assert_eq!(run.controller.offer(run.now_ns, 0.0), Decision::ExceedsBudget);
        assert!(!run.controller.may_open(run.now_ns));
        // With few launches the same program is sampled.
        let mut run = Simulation::new(LIMITS, 10.0, 600.0);
        run.run(120, 1_000_000, 5, 300e3);
        assert!(run.windows > 10 && !run.controller.exceeds_budget(), "{}", run.windows);
    }

    /// A decode loop of graph launches, then a service with 500 times as many launches: what cost 13 % of throughput with a
    /// budget of 3 % on an H100.
    #[test]
    fn a_load_that_was_seen_before_the_first_window_keeps_windows_from_opening() {
        let service = |run: &mut Simulation, seconds| {
            run.kind = LaunchKind::Kernel;
            run.run(seconds, 1_000_000, 500, 300e3);
        };
        let decode = |run: &mut Simulation, seconds| {
            run.kind = LaunchKind::Graph;
            run.run(seconds, 1_000_000, 1, 1e6);
        };
        let mut run = Simulation::new(LIMITS, 10.0, 240.0);
        decode(&mut run, 30);
        service(&mut run, 10);
        decode(&mut run, 200);
        assert_eq!((run.windows, run.controller.exceeds_budget()), (0, true));
        service(&mut run, 60);
        assert!(run.latest_share() < 0.01, "logging alone: {}", run.latest_share());

        // The same where the load is declared, and nothing is watched.
        let limits = Limits { watch_ns: 0, peak_launches: 500_000.0, ..LIMITS };
        let mut run = Simulation::new(limits, 10.0, 240.0);
        decode(&mut run, 30);
        service(&mut run, 30);
        assert_eq!((run.windows, run.controller.exceeds_budget()), (0, true));

        // Where it comes later, windows end, and the ledger has the cost at the present rate.
        let mut run = Simulation::new(Limits { watch_ns: SECOND, ..LIMITS }, 10.0, 240.0);
        decode(&mut run, 30);
        let before = run.windows;
        assert!(before > 0);
        service(&mut run, 5);
        let soon = run.windows;
        service(&mut run, 25);
        assert_eq!(run.windows, soon);
        assert!(run.controller.exceeds_budget() && run.latest_share() > 0.1);
        // Kernels were not launched before the first window, so the assumption counts.
        let rise = run.costs.rise(LaunchKind::Kernel, 450_000.0);
        assert!(!rise.is_measured && rise.ns == 600.0, "{rise:?}");
        let per_second = run.controller.launches_per_second();
        let shown = run.controller.fixed_share();
        let expected = per_second * (600.0 + 10.0) / 1e9;
        assert!((shown / expected - 1.0).abs() < 0.02, "{shown} {expected}");
        // Once that load is gone, it is the cost of the few launches, and windows begin again.
        decode(&mut run, 120);
        assert!(run.controller.fixed_share() < 0.001, "{}", run.controller.fixed_share());
        assert!(run.windows > soon);
    }

    #[test]
    fn the_first_window_waits_until_launches_were_watched() {
        let mut run = Simulation::new(LIMITS, 10.0, 400.0);
        run.run(59, 1_000_000, 4, 300e3);
        assert_eq!((run.windows, run.controller.is_watching()), (0, true));
        run.run(5, 1_000_000, 4, 300e3);
        assert!(run.windows > 0 && !run.controller.is_watching());
        // Nothing has to be watched for with a budget above what dearer launches can cost.
        let mut run = Simulation::new(Limits { budget: 0.5, ..LIMITS }, 10.0, 400.0);
        run.run(1, 1_000_000, 4, 300e3);
        assert!(run.windows > 0);
    }

    #[test]
    fn windows_end_once_the_load_makes_launches_too_dear() {
        let mut run = Simulation::new(Limits { watch_ns: SECOND, ..LIMITS }, 20.0, 400.0);
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

    /// A service at saturation, and then a twentieth of its load: calls that cost more than the budget are not logged, until they do not.
    #[test]
    fn calls_are_logged_while_that_costs_less_than_the_budget() {
        let mut controller = Controller::new(&Limits { watch_ns: 0, ..LIMITS }, 0);
        let (mut logs, mut changes) = (true, Vec::new());
        for tenth in 1..=1_200 {
            let is_saturated = (200..600).contains(&tenth);
            // 8 % of the time at saturation, 0.4 % otherwise.
            let logging_ns = 100e6 * if is_saturated { 0.08 } else { 0.004 };
            let launches = if logs { 100 } else { 0 };
            let now_ns = tenth * SECOND / 10;
            let fixed = FixedCost { launches, cost_ns: 500e3, logging_ns, units_ns: 0.0, logs };
            controller.observe(now_ns, now_ns - SECOND / 10, fixed);
            if controller.wants_calls() != logs {
                logs = !logs;
                changes.push((tenth, logs));
            }
            if !controller.logs_calls() {
                assert_eq!(controller.offer(now_ns, 0.0), Decision::ExceedsBudget);
                assert!(!controller.may_open(now_ns));
            }
        }
        let [(stopped, false), (again, true)] = changes[..] else { panic!("{changes:?}") };
        assert!((200..220).contains(&stopped) && (600..640).contains(&again), "{changes:?}");
        let logged = (stopped + 1_200 - again) as f64 / 1_200.0;
        assert!((controller.logged_share() - logged).abs() < 0.01);
        // What was paid: the first call all the time, and calls while they were logged.
        let (_, fixed) = controller.shares();
        assert!(fixed < 0.005 + 0.004 + 0.08 * 20.0 / 1_200.0, "{fixed}");

        // Where the first call alone exceeds the budget, calls that cost next to nothing are logged all the same.
        for (share, wants) in [(0.01, true), (0.02, false)] {
            let mut controller = Controller::new(&LIMITS, 0);
            let logging_ns = share * SECOND as f64;
            let fixed =
                FixedCost { launches: 1, cost_ns: 120e6, logging_ns, units_ns: 0.0, logs: true };
            (1..10).for_each(|s| controller.observe(s * SECOND, (s - 1) * SECOND, fixed));
            assert_eq!(controller.wants_calls(), wants, "{share}");
            assert!(controller.exceeds_budget());
        }
    }

    /// Units do not show what logged calls cost, but 600,000 a second take 4.6 % of the time at 77 ns each. How many there are is known
    /// only while they are logged.
    #[test]
    fn calls_are_not_logged_again_at_the_load_at_which_that_was_too_dear() {
        let mut controller = Controller::new(&Limits { watch_ns: 0, ..LIMITS }, 0);
        let (mut logs, mut changes) = (true, Vec::new());
        for tenth in 1..=1_200 {
            let load = if tenth <= 900 { 1.0 } else { 0.1 };
            let launches = if logs { (60_000.0 * load) as u64 } else { 0 };
            let now_ns = tenth * SECOND / 10;
            let fixed = FixedCost {
                launches,
                cost_ns: 0.0,
                logging_ns: 77.0 * launches as f64,
                units_ns: 90e6 * load,
                logs,
            };
            controller.observe(now_ns, now_ns - SECOND / 10, fixed);
            if controller.wants_calls() != logs {
                logs = !logs;
                changes.push((tenth, logs));
            }
        }
        let [(stopped, false), (again, true)] = changes[..] else { panic!("{changes:?}") };
        assert!(stopped < 20 && (900..950).contains(&again), "{changes:?}");
    }

    #[test]
    fn a_slow_unit_may_open_a_window_within_the_budget() {
        let limits = Limits { most_rate: 0.0, watch_ns: 0, ..LIMITS };
        let mut controller = Controller::new(&limits, 0);
        assert!(!controller.may_open(SECOND), "the load is not known yet");
        let fixed = FixedCost {
            launches: 10,
            cost_ns: 1_000.0,
            logging_ns: 0.0,
            units_ns: 0.0,
            logs: true,
        };
        controller.observe(SECOND, 0, fixed);
        assert_eq!(controller.offer(SECOND, 0.0), Decision::Skip, "its rate is 0");
        let mut opened = 0;
        for millisecond in 1_000..61_000 {
            if controller.may_open(millisecond * 1_000_000) {
                opened += 1;
                controller.opened();
                controller.closed(millisecond * 1_000_000, 10e6);
            }
        }
        // 60 s of 3 % are 180 windows of 10 ms, and a horizon's more at once.
        assert!((150..=215).contains(&opened), "{opened}");
    }
}
