//! Profiles a service in production within a budget: calls are recorded all the time, GPU work in
//! windows.
//!
//! [`Profiler::always_on`] starts it. [`AlwaysOn`] has the settings and an example.

mod comparison;
mod controller;
mod launch_costs;
mod report;
mod sampler;
mod units;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use cupti::clock::now_ns;
use parking_lot::Mutex;
use profiler_base::background::Background;
use profiler_base::setters;

use crate::collect::request::{Retention, SessionRequest};
use crate::collect::session::{CuptiUse, Session};
use crate::error::{Error, Kind};
use crate::join::window_sums::{WindowBounds, WindowSums};
use crate::profile::summary::Summary;
use crate::session::profiler::Profiler;
use comparison::{Comparison, Step};
use controller::{Controller, Limits, MOST_RISE};
use sampler::Sampler;
use units::{Begun, OpenWindow, Units};

pub use comparison::{MeasuredShare, TimedCost};
pub use report::{AlwaysOnReport, LastingRise, RangeEstimate, State, UnitCounts};

/// The assumed cost of a launch after the first window, before it is measured: the maximum on H200
/// with CUPTI 13.0.1 and 13.5, 0.6 us.
const ASSUMED_LAUNCH_NS: f64 = 600.0;

/// Settings of an always-on session.
///
/// ```no_run
/// use profiler_core::Profiler;
/// use profiler_core::session::always_on::AlwaysOn;
///
/// # fn requests() -> std::ops::Range<u32> { 0..10 }
/// # fn answer(_: u32) {}
/// # fn main() -> Result<(), profiler_core::Error> {
/// let settings = AlwaysOn::new().budget(0.01); // one percent of the time; the default is three
/// let service = Profiler::builder().build()?.always_on(&settings)?;
/// for request in requests() {
///     let _unit = service.unit("request"); // a range, recorded in full if it is drawn
///     answer(request);
/// }
/// println!("{}", service.stop()?);
/// # Ok(())
/// # }
/// ```
///
/// # Windows
/// A unit is a step or request that the program marks with [`unit`](AlwaysOnSession::unit). Some
/// units are drawn at random and recorded with the GPU work of all threads. A controller sets the
/// probability from the measured cost of windows. Only one unit is open at a time: others that
/// begin meanwhile are part of it.
///
/// # CUPTI's first call
/// CUPTI's first call makes launches of graphs slower until the process ends. With 13.0 the host
/// cost is 0.3 to 0.4 us per node: nothing if launches are queued ahead, and up to 13 % of a decode
/// loop that waits for each graph. The session therefore starts without CUPTI, times units for the
/// [`baseline`](Self::baseline), calls CUPTI, and times units again. The budget includes the
/// difference, and [`AlwaysOnReport::attach_cost`] has it with its interval. The cost is permanent:
/// measure it in one process of a service, and declare it in the others
/// ([`attach_cost`](Self::attach_cost)). They never call CUPTI if it exceeds the budget.
///
/// # Measured costs
/// The session measures four costs. First, the time to turn CUPTI on and off, in which launches
/// wait. Second, the slowdown of units and launches in windows. Third, the slowdown of launches
/// after the first window: their lower quartile, by kind of launch and at the same rate. Fourth,
/// the cost of logging calls: units are timed for twice the [`baseline`](Self::baseline),
/// alternating with and without logged calls. At least 77 ns per call are counted. If logging and
/// slower launches alone exceed the budget, no window is opened.
///
/// # Expensive logging
/// If times of units show that logging calls costs more than the budget leaves, as in a saturated
/// service, calls are not logged ([`State::RangesOnly`]). Logging restarts once it would cost less
/// at the present load. [`AlwaysOnReport::logged_share`] has the share of the time with logging.
///
/// # The first window
/// The first window makes all later launches slower until the process ends. Launches are therefore
/// [watched](Self::watch) first, and the highest rate so far decides: slower launches may cost
/// three quarters of the budget at that rate. A later, higher load can still exceed the budget;
/// declare it with [`peak_launches`](Self::peak_launches).
#[derive(Debug, Clone)]
#[must_use]
pub struct AlwaysOn {
    budget: f64,
    most_rate: f64,
    names: Vec<String>,
    slow: Option<Duration>,
    mode: Mode,
    graphs_quiet: Duration,
    watch: Duration,
    peak_launches: f64,
    baseline: Duration,
    attach_cost: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Windows,
    CallsOnly,
    WholeGraphs,
}

impl Default for AlwaysOn {
    fn default() -> Self {
        Self::new()
    }
}

impl AlwaysOn {
    /// A budget of 3 % of the time, and windows of units of any name.
    pub fn new() -> Self {
        Self {
            budget: 0.03,
            most_rate: 1.0,
            names: Vec::new(),
            slow: None,
            mode: Mode::Windows,
            graphs_quiet: Duration::from_secs(1),
            watch: Duration::from_secs(30),
            peak_launches: 0.0,
            baseline: Duration::from_secs(5),
            attach_cost: None,
        }
    }

    setters! {
        /// The share of the program's time that recording may cost, from 0 to 1.
        budget(share: f64) budget = share;
        /// The maximum share of units that is drawn, from 0 to 1, however small the cost of
        /// windows.
        rate(share: f64) most_rate = share;
        /// Draws units of this name. May be called several times; without it, units of any name are
        /// drawn.
        name(name: impl Into<String>) names += name.into();
        /// Records the unit after a unit that took longer than this, if the budget allows it. Such
        /// windows are excluded from estimates.
        slow(threshold: Duration) slow = Some(threshold);
        /// Opens no window within this time after a graph was made or captured, by default a
        /// second. A graph that is instantiated in a window stays 13 % slower until it is
        /// destroyed.
        graphs_quiet(time: Duration) graphs_quiet = time;
        /// The time for which launches are watched, from the first one on, before the first window
        /// may open: 30 s by default. Budgets above 20 % of the time skip it: launches became at
        /// most 19 % slower on all machines.
        watch(time: Duration) watch = time;
        /// The launches per second that the program reaches under its highest load, if known.
        /// Without it, only rates before the first window are considered.
        peak_launches(per_second: f64) peak_launches = per_second;
        /// The time for which units are timed before CUPTI is called, and again afterwards: 5 s
        /// each by default. Then, for twice as long, logging is on and off in alternating blocks of
        /// a tenth of this time. During the first two phases, ranges are recorded and calls are
        /// not. Graphs that were captured before CUPTI was called, or while calls were not logged,
        /// have no ranges by node. A phase with few units lasts up to four times as long. With
        /// zero, CUPTI is called at the start, and nothing is measured; the same applies to budgets
        /// above 20 %.
        baseline(time: Duration) baseline = time;
        /// The share of the program's time that CUPTI's first call costs, from 0 to 1, from a
        /// report of another run. CUPTI is called at the start and this share is counted. If it
        /// exceeds the budget, CUPTI is never called, and only ranges are recorded.
        attach_cost(share: f64) attach_cost = Some(share);
        /// Records only calls and ranges, and never opens a window: launches are not slower
        /// afterwards.
        calls_only() mode = Mode::CallsOnly;
        /// Records all work for the whole run, each launch of a graph as one interval, which has no
        /// cost for the graph. There are no windows: CUPTI 13 loses records or crashes if its kinds
        /// for graphs and kernels alternate.
        whole_graphs() mode = Mode::WholeGraphs;
    }

    fn check(&self) -> Result<(), Error> {
        let in_range = |share: f64| (0.0..=1.0).contains(&share);
        if let Some(share) = self.attach_cost.filter(|share| !in_range(*share)) {
            let why = format!("an attach cost of {share}: give a share from 0 to 1");
            return Err(Error::new(Kind::AlwaysOn { why }));
        }
        if !(in_range(self.budget) && in_range(self.most_rate)) {
            let (budget, rate) = (self.budget, self.most_rate);
            let why =
                format!("a budget of {budget} and a rate of {rate}: both are shares from 0 to 1");
            return Err(Error::new(Kind::AlwaysOn { why }));
        }
        if self.peak_launches.is_finite() && self.peak_launches >= 0.0 {
            return Ok(());
        }
        let rate = self.peak_launches;
        let why = format!("a peak of {rate} launches a second: give a number from 0 on");
        Err(Error::new(Kind::AlwaysOn { why }))
    }

    /// True if the program's declarations prevent any call of CUPTI.
    fn stays_detached(&self) -> bool {
        let is_too_dear = self.attach_cost.is_some_and(|share| share > self.budget);
        is_too_dear && self.mode != Mode::WholeGraphs
    }

    /// The comparison of units, from now on.
    fn comparison(&self) -> Comparison {
        let is_left_out =
            self.mode == Mode::WholeGraphs || self.baseline.is_zero() || self.budget > MOST_RISE;
        match self.attach_cost.map(TimedCost::Declared) {
            Some(declared) if is_left_out || self.stays_detached() => {
                Comparison::with_attach_cost(declared, "calls were logged from the start, or never")
            }
            Some(declared) => Comparison::of_logging(declared, self.baseline, now_ns()),
            None if is_left_out => Comparison::without("CUPTI was called at the start"),
            None => Comparison::of_all(self.baseline, now_ns()),
        }
    }
}

/// The state shared by the threads of a session.
#[derive(Debug)]
struct Shared {
    session: Session,
    sampler: Arc<Mutex<Sampler>>,
    controller: Mutex<Controller>,
    bounds: Arc<WindowBounds>,
    units: Units,
    first_window_ns: Arc<AtomicU64>,
    /// CUPTI is never called: it costs too much, or refused.
    stays_detached: AtomicBool,
    /// Held by the observing thread.
    observing: Mutex<()>,
    settings: AlwaysOn,
}

/// A running always-on session. Any thread may use it. Dropping it discards its results.
#[derive(Debug)]
#[must_use = "the session ends when this is dropped, and its results are lost"]
pub struct AlwaysOnSession {
    shared: Arc<Shared>,
    /// Closes windows.
    closer: Option<JoinHandle<()>>,
}

impl Profiler {
    /// Starts a session that records calls all the time and the GPU work of some steps or requests,
    /// within a budget of the program's time. [`AlwaysOn`] has the settings and an example. Other
    /// sessions may run beside it. While one of them records everything, windows save nothing.
    ///
    /// # Errors
    /// Returns an error for contradicting settings; otherwise as [`start`](Self::start).
    pub fn always_on(&self, settings: &AlwaysOn) -> Result<AlwaysOnSession, Error> {
        settings.check()?;
        let config = match settings.mode {
            Mode::WholeGraphs => self.whole_graphs(),
            _ => {
                let is_before = settings.comparison().is_before();
                self.in_windows(is_before || settings.stays_detached())?
            }
        };
        let mut join = self.streaming(0);
        let bounds = Arc::new(WindowBounds::default());
        if settings.mode != Mode::WholeGraphs {
            join.windows = Some(Box::new(WindowSums::new(bounds.clone())));
        }
        let first_window_ns = Arc::new(AtomicU64::new(u64::MAX));
        let sampler = Sampler::new(join, first_window_ns.clone(), ASSUMED_LAUNCH_NS);
        let sampler = Arc::new(Mutex::new(sampler));
        let limits = Limits {
            budget: settings.budget,
            most_rate: settings.most_rate,
            assumed_launch_ns: ASSUMED_LAUNCH_NS,
            watch_ns: settings.watch.as_nanos() as u64,
            peak_launches: settings.peak_launches,
        };
        let controller = Mutex::new(Controller::new(&limits, now_ns()));
        let observer: Arc<OnceLock<Weak<Shared>>> = Arc::default();
        let observed = observer.clone();
        let observe = move || {
            if let Some(shared) = observed.get().and_then(Weak::upgrade) {
                shared.observe();
            }
        };
        let session = Session::start(&SessionRequest {
            config: &config,
            then: Some(Arc::new(observe)),
            ..self.request(Retention::Nothing, Some(sampler.clone()))
        })?;
        let units = Units::default();
        let mut comparison = settings.comparison();
        let cupti = session.cupti_use()?;
        // Another session may have called CUPTI, and the profiler's settings may need it.
        if comparison.is_before() && cupti.is_attached {
            comparison.give_up("CUPTI was called before the first unit");
            session.log_calls()?;
        }
        units.compare(comparison);
        let settings = settings.clone();
        let stays_detached = AtomicBool::new(settings.stays_detached());
        let shared = Arc::new(Shared {
            session,
            sampler,
            controller,
            bounds,
            units,
            first_window_ns,
            stays_detached,
            observing: Mutex::default(),
            settings,
        });
        let _ = observer.set(Arc::downgrade(&shared));
        let of_thread = shared.clone();
        let close = move || while of_thread.close_next() {};
        // Without the thread no window can be closed, so none is opened.
        let closer = Background::default().spawn("gpu-profiler-windows", close).ok();
        Ok(AlwaysOnSession { shared, closer })
    }
}

impl AlwaysOnSession {
    /// Opens a range of this name that is a step or request, and possibly a window. The window ends
    /// with the range.
    ///
    /// Costs a lock and two clock reads more than a range. A unit that opens a window waits some 10
    /// us while CUPTI enables its kinds; the profiler's own thread disables them afterwards.
    pub fn unit(&self, name: &str) -> UnitGuard<'_> {
        let begun = self.begin_unit(name);
        UnitGuard { range: Some(nvtx::range(name)), session: self, begun }
    }

    /// Begins a unit without a range, for a range that other code opens. `None` if another unit is
    /// open, or settings exclude its name. End it with [`end_unit`](Self::end_unit).
    pub fn begin_unit(&self, name: &str) -> Option<UnitToken> {
        self.closer.as_ref()?;
        self.shared.begin(name).map(UnitToken)
    }

    /// Ends a unit, on any thread.
    pub fn end_unit(&self, unit: UnitToken) {
        self.shared.end(unit.0);
    }

    /// Returns the results so far. Flushes CUPTI; windows whose records have not arrived are
    /// excluded from the estimates.
    ///
    /// # Errors
    /// CUPTI's refusal.
    pub fn snapshot(&self) -> Result<AlwaysOnReport, Error> {
        let so_far = self.shared.session.catch_up()?;
        let sampler = self.shared.sampler.lock();
        let summary = Summary::new(&sampler.join, so_far.info, so_far.duration);
        Ok(self.shared.report(&sampler, summary))
    }

    /// Ends the session. Waits for the GPU as [`Profiler::stop`] does.
    ///
    /// # Errors
    /// CUPTI's refusal.
    pub fn stop(mut self) -> Result<AlwaysOnReport, Error> {
        self.shared.session.check_process()?;
        self.end_closer();
        let recording = self.shared.session.stop(now_ns())?;
        let mut sampler = self.shared.sampler.lock();
        sampler.join.end(Some(&recording));
        let summary = Summary::new(&sampler.join, recording.info().clone(), recording.duration());
        Ok(self.shared.report(&sampler, summary))
    }

    fn end_closer(&mut self) {
        self.shared.units.end();
        if let Some(closer) = self.closer.take() {
            let _ = closer.join();
        }
    }
}

impl Drop for AlwaysOnSession {
    fn drop(&mut self) {
        // The thread is lost in a forked child.
        if self.shared.session.check_process().is_ok() {
            self.end_closer();
        }
    }
}

/// An open unit, from [`AlwaysOnSession::begin_unit`].
#[derive(Debug)]
#[must_use = "end it with `end_unit`; until then no other unit can begin"]
pub struct UnitToken(Begun);

impl UnitToken {
    /// True if the unit is recorded.
    pub fn is_recorded(&self) -> bool {
        self.0.window.is_some()
    }
}

/// An open unit with its range, from [`AlwaysOnSession::unit`].
#[derive(Debug)]
#[must_use = "the unit ends when this is dropped: keep it in a variable, `let _unit = ...`"]
pub struct UnitGuard<'a> {
    range: Option<nvtx::Range>,
    session: &'a AlwaysOnSession,
    begun: Option<UnitToken>,
}

impl UnitGuard<'_> {
    /// True if the unit is recorded.
    pub fn is_recorded(&self) -> bool {
        self.begun.as_ref().is_some_and(UnitToken::is_recorded)
    }
}

impl Drop for UnitGuard<'_> {
    fn drop(&mut self) {
        self.range = None;
        if let Some(begun) = self.begun.take() {
            self.session.end_unit(begun);
        }
    }
}

impl Shared {
    fn begin(&self, name: &str) -> Option<Begun> {
        let names = &self.settings.names;
        if !names.is_empty() && !names.iter().any(|known| known == name) {
            return None;
        }
        self.session.check_process().ok()?;
        let mut begun = self.units.begin(name, |is_after_slow, random, counts| {
            let is_detached = self.stays_detached.load(Ordering::Relaxed);
            if self.settings.mode != Mode::Windows || is_detached {
                return None;
            }
            let quiet_ns = self.settings.graphs_quiet.as_nanos() as u64;
            let now_ns = now_ns();
            let made_ns = cupti::graphs_last_made_ns();
            if made_ns != 0 && now_ns.saturating_sub(made_ns) < quiet_ns {
                counts.while_graphs_were_made += 1;
                return None;
            }
            units::decide(&mut self.controller.lock(), now_ns, is_after_slow, random, counts)
        })?;
        begun.window = begun.window.and_then(|window| self.open(window));
        begun.start_ns = now_ns();
        Some(begun)
    }

    /// Opens a window for the unit that begins. `None` if it could not be opened.
    fn open(&self, mut window: OpenWindow) -> Option<OpenWindow> {
        let since_ns = now_ns();
        // No other unit begins meanwhile.
        let before_ns = self.first_window_ns.fetch_min(since_ns, Ordering::Relaxed);
        let opened = self.session.begin_window(units::PATIENCE);
        match &opened {
            // The cost of launches is unchanged.
            Err(error) if error.is_before_cupti() => {
                self.first_window_ns.store(before_ns, Ordering::Relaxed);
            }
            _ => self.controller.lock().opened(),
        }
        match opened {
            Ok(()) => {
                if let Some(probability) = window.probability {
                    self.bounds.begin(probability);
                }
                self.units.opened(&window);
                window.begin_ns = now_ns().saturating_sub(since_ns);
                Some(window)
            }
            Err(error) => {
                self.session.end_window();
                self.units.refuse(error);
                None
            }
        }
    }

    fn end(&self, begun: Begun) {
        if self.session.check_process().is_err() {
            return;
        }
        if let Some(window) = &begun.window {
            if window.probability.is_some() {
                self.bounds.end();
            }
            self.session.end_window();
        }
        let ns = now_ns().saturating_sub(begun.start_ns);
        self.units.end_unit(&begun, ns, self.settings.slow);
    }

    /// Measures the costs since the last call, compares units, and decides whether calls are
    /// logged.
    fn observe(&self) {
        // The thread that takes segments and a snapshot may call this at the same time. The
        // interval that one skips is in the next.
        let Some(_observing) = self.observing.try_lock() else { return };
        let (since_ns, until_ns, mut fixed) = self.sampler.lock().observe();
        let is_detached = self.stays_detached.load(Ordering::Relaxed);
        let cupti = self.session.cupti_use().unwrap_or_default();
        let charged = self.units.take_cost(until_ns.saturating_sub(since_ns));
        if !is_detached {
            fixed.cost_ns += charged.attach_ns;
        }
        fixed.logging_ns = fixed.logging_ns.max(charged.logging_ns.unwrap_or_default());
        fixed.units_ns = charged.units_ns;
        fixed.logs = cupti.logs;
        let wants_calls = {
            let mut controller = self.controller.lock();
            controller.observe(until_ns, since_ns, fixed);
            controller.wants_calls()
        };
        let (is_comparing, is_before) = self.units.is_comparing();
        if is_comparing {
            self.compare(is_before, cupti);
        } else if !cupti.is_on && self.units.next_step(now_ns()) == Step::Again {
            self.log(true);
            self.units.compare_again(now_ns());
        } else if charged.logging_ns.is_some()
            && self.settings.mode == Mode::Windows
            && wants_calls != cupti.logs
        {
            self.log(wants_calls);
        }
    }

    /// Continues the comparison of units.
    fn compare(&self, is_before: bool, cupti: CuptiUse) {
        if cupti.is_on || is_before && cupti.is_attached {
            self.units.give_up_comparison("another session used CUPTI meanwhile", None);
            self.log(true);
            return;
        }
        match self.units.next_step(now_ns()) {
            Step::Nothing | Step::Again => {}
            Step::Attach => match self.session.attach() {
                Ok(()) => self.units.attached(now_ns()),
                Err(error) => {
                    self.stays_detached.store(true, Ordering::Relaxed);
                    self.units.give_up_comparison("CUPTI refused its first call", Some(error));
                }
            },
            Step::StopLogging => match self.session.stop_logging() {
                Ok(true) => self.units.silent(now_ns()),
                stopped => {
                    let why = "another session logs calls";
                    self.units.give_up_comparison(why, stopped.err());
                }
            },
            Step::LogAgain => {
                self.log(true);
                self.units.logging(now_ns());
            }
            Step::LogCalls => {
                let [attach, _] = self.units.costs();
                self.controller.lock().expect(attach.share().unwrap_or_default(), 0.0);
                self.log(true);
                self.units.logging(now_ns());
            }
            Step::Conclude => {
                let mut affords_calls = true;
                if let [_, TimedCost::Measured(share)] = self.units.costs()
                    && share.low > 0.0
                {
                    let mut controller = self.controller.lock();
                    controller.expect(0.0, share.value);
                    affords_calls = controller.affords_calls();
                }
                self.log(affords_calls || self.settings.mode != Mode::Windows);
                self.units.conclude(now_ns());
            }
        }
    }

    /// Starts or stops logging calls.
    fn log(&self, calls: bool) {
        let logs = match calls {
            true => self.session.log_calls().map(|()| true),
            false => self.session.stop_logging().map(|is_stopped| !is_stopped),
        };
        match logs {
            Ok(logs) => self.controller.lock().log_calls(now_ns(), logs),
            Err(error) => self.units.refuse(error),
        }
    }

    /// Waits for the next window and closes it. Returns false when the session ends.
    fn close_next(&self) -> bool {
        let Some(closing) = self.units.next_to_close() else { return false };
        let held = match self.session.rest() {
            Ok(held) => held,
            Err(error) => {
                self.units.refuse(error);
                Duration::ZERO
            }
        };
        let launches_ns = self.sampler.lock().window_launches_ns();
        let longer_ns = closing.longer_ns.max(launches_ns).max(0.0);
        let cost_ns = closing.begin_ns as f64 + held.as_nanos() as f64 + longer_ns;
        self.controller.lock().closed(now_ns(), cost_ns);
        self.units.closed();
        true
    }

    fn report(&self, sampler: &Sampler, summary: Summary) -> AlwaysOnReport {
        let tables = &sampler.join.sums.tables;
        let windows = sampler.join.windows.as_ref();
        let mut estimates = windows.map(|windows| windows.estimates(tables)).unwrap_or_default();
        if windows.is_none() {
            // Rows without estimates.
            estimates.paths.resize(tables.paths.len(), None);
            estimates.path_submissions = summary.paths().map(|p| p.inclusive().launches).collect();
            estimates.submissions = summary.totals().launches;
        }
        let controller = self.controller.lock();
        let (window_share, fixed_share) = controller.shares();
        let (is_comparing, _) = self.units.is_comparing();
        let [attach_cost, logging_cost] = self.units.costs();
        let state = match self.settings.mode {
            _ if self.stays_detached.load(Ordering::Relaxed) => State::NotAttached,
            _ if is_comparing => State::Comparing,
            Mode::CallsOnly => State::CallsOnly,
            Mode::WholeGraphs => State::WholeGraphs,
            Mode::Windows if !controller.logs_calls() => State::RangesOnly,
            Mode::Windows if controller.exceeds_budget() => State::BudgetExceeded,
            Mode::Windows if controller.is_watching() => State::Measuring,
            Mode::Windows => State::Sampling,
        };
        let (counts, last_error) = self.units.counts();
        AlwaysOnReport {
            state,
            budget: self.settings.budget,
            window_share,
            fixed_share,
            attach_cost,
            logging_cost,
            logged_share: controller.logged_share(),
            launches_per_second: controller.launches_per_second(),
            rise: sampler.lasting_rise(),
            counts,
            failed_calls: sampler.failed_calls,
            last_error,
            summary,
            estimates,
        }
    }
}

#[cfg(test)]
mod tests {
    use cupti::fake::{Fake, Work};

    use super::*;
    use crate::collect::session::hold_collection;
    use crate::join::live_ranges::REMEMBERED;

    #[test]
    fn a_window_that_could_not_be_opened_is_not_the_first() {
        let fake = Fake::new();
        let builder = Profiler::builder().library(fake.library().unwrap());
        let profiler = builder.period(Duration::from_millis(5)).build().unwrap();
        let settings = AlwaysOn::new().budget(1.0).baseline(Duration::ZERO);
        let service = profiler.always_on(&settings.graphs_quiet(Duration::ZERO)).unwrap();
        let is_measured = || {
            let report = service.snapshot().unwrap();
            report.state() == State::Sampling && report.launches_per_second() > 0.0
        };
        while !is_measured() {
            fake.launch(Work::kernel(c"kernel"));
        }
        let shared = &service.shared;
        let has_opened = || shared.first_window_ns.load(Ordering::Relaxed) != u64::MAX;
        {
            let _busy = hold_collection();
            while shared.units.counts().0.refused < 3 {
                assert!(!service.unit("request").is_recorded());
            }
        }
        let (counts, _) = shared.units.counts();
        assert_eq!((counts.drawn, has_opened()), (0, false), "{counts:?}");
        assert!(shared.controller.lock().fixed_share() > 0.0, "what a first window brings counts");
        while !service.unit("request").is_recorded() {}
        assert!(has_opened());
        let counts = service.stop().unwrap().counts();
        assert_eq!((counts.drawn, counts.refused >= 3), (1, true), "{counts:?}");
    }

    /// A thread is in a call when logging stops, and more ranges than are remembered end until its log can be read.
    #[test]
    fn a_call_that_returned_unseen_is_one_of_its_range() {
        let fake = Fake::new();
        let builder = Profiler::builder().library(fake.library().unwrap());
        let profiler = builder.period(Duration::from_millis(5)).build().unwrap();
        let settings = AlwaysOn::new().calls_only().baseline(Duration::ZERO);
        let service = profiler.always_on(&settings).unwrap();
        while service.snapshot().unwrap().state() != State::CallsOnly {
            fake.launch(Work::kernel(c"outside"));
        }
        std::thread::scope(|scope| {
            let serve = || {
                let unit = service.unit("request");
                let stop = || assert!(service.shared.session.stop_logging().unwrap());
                fake.call_around("cuStreamSynchronize", stop);
                drop(unit);
                (0..=REMEMBERED).for_each(|_| drop(nvtx::range("later")));
                // They are read before the thread ends.
                drop(service.snapshot().unwrap());
            };
            scope.spawn(serve);
        });
        let report = service.stop().unwrap();
        report.recorded().health().assert_complete();
        let totals = report.recorded().paths().find(|path| path.path() == "request").unwrap();
        assert_eq!(totals.exclusive().synchronizations, 1, "{report}");
    }
}
