//! A service profiled in production within a budget: calls are recorded all the time, GPU work in windows.
//!
//! [`Profiler::always_on`] starts it. [`AlwaysOn`] has the settings and an example.

mod controller;
mod launch_costs;
mod report;
mod sampler;
mod units;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use cupti::clock::now_ns;
use parking_lot::Mutex;

use crate::base::accessors::setters;
use crate::base::background::Background;
use crate::base::error::{Error, Kind};
use crate::collect::request::{Retention, SessionRequest};
use crate::collect::session::Session;
use crate::join::window_sums::{WindowBounds, WindowSums};
use crate::profile::summary::Summary;
use crate::session::profiler::Profiler;
use controller::{Controller, Limits};
use sampler::Sampler;
use units::{Begun, Units};

pub use report::{AlwaysOnReport, LastingRise, RangeEstimate, State, UnitCounts};

/// The assumed cost of a launch after the first window, before it is measured: the most that was seen on H200 with
/// CUPTI 13.0.1 and 13.5, 0.6 us.
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
/// A unit is a step or request that the program marks with [`unit`](AlwaysOnSession::unit). Some units are drawn at
/// random and recorded with the GPU work of all threads; a controller sets the probability from what windows are
/// measured to cost. Only one unit is open at a time: others that begin meanwhile are part of it.
///
/// # What is measured
/// The time to turn CUPTI on and off, in which launches wait; by how much units and launches take longer in windows;
/// by how much launches take longer after the first window, at their lower quartile, by kind of launch and at the same rate;
/// and 77 ns for each logged call, which a process cannot measure itself. Where logging and dearer launches alone exceed the
/// budget, no window is opened.
///
/// # The first window
/// It makes all later launches dearer until the process ends. So launches are [watched](Self::watch) first, and the highest
/// rate so far decides: dearer launches may cost three quarters of the budget at that rate. A load that comes later can still
/// exceed it; [`peak_launches`](Self::peak_launches) declares it.
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
        }
    }

    setters! {
        /// The share of the program's time that recording may cost, from 0 to 1.
        budget(share: f64) budget = share;
        /// The largest share of units that is drawn, from 0 to 1, however cheap windows are.
        rate(share: f64) most_rate = share;
        /// Draws units of this name. May be called several times; without it, names do not matter.
        name(name: impl Into<String>) names += name.into();
        /// Records the unit after one that took longer, if the budget allows it. Such windows are in no estimate.
        slow(threshold: Duration) slow = Some(threshold);
        /// Opens no window while graphs were made or captured in the last such time, by default a second. A graph that is
        /// instantiated in a window stays 13 % slower until it is destroyed.
        graphs_quiet(time: Duration) graphs_quiet = time;
        /// How long launches are watched, from the first one on, before the first window may open: 30 s by default. Budgets above 20 % of
        /// the time do not wait: launches became at most 19 % dearer on all machines.
        watch(time: Duration) watch = time;
        /// The launches a second that the program reaches under its highest load, if that is known. Without it, only what was seen
        /// before the first window counts.
        peak_launches(per_second: f64) peak_launches = per_second;
        /// Records calls and ranges alone, and never opens a window: launches are not dearer afterwards.
        calls_only() mode = Mode::CallsOnly;
        /// Records all work for the whole run, each launch of a graph as one interval, which costs the graph nothing.
        /// There are no windows: CUPTI 13 loses records or crashes where its kinds for graphs and kernels take turns.
        whole_graphs() mode = Mode::WholeGraphs;
    }

    fn check(&self) -> Result<(), Error> {
        let in_range = |share: f64| (0.0..=1.0).contains(&share);
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
}

/// What the threads of a session share.
#[derive(Debug)]
struct Shared {
    session: Session,
    sampler: Arc<Mutex<Sampler>>,
    controller: Arc<Mutex<Controller>>,
    bounds: Arc<WindowBounds>,
    units: Units,
    first_window_ns: Arc<AtomicU64>,
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
    /// Starts a session that records calls all the time and the GPU work of some steps or requests, within a budget of the
    /// program's time. [`AlwaysOn`] has the settings and an example. Other sessions may run beside it; while one of them records
    /// everything, windows save nothing.
    ///
    /// # Errors
    /// Settings that contradict each other; otherwise as [`start`](Self::start).
    pub fn always_on(&self, settings: &AlwaysOn) -> Result<AlwaysOnSession, Error> {
        settings.check()?;
        let config = match settings.mode {
            Mode::WholeGraphs => self.whole_graphs(),
            _ => self.in_windows()?,
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
        let controller = Controller::new(&limits, now_ns());
        let controller = Arc::new(Mutex::new(controller));
        let (measured, measuring) = (sampler.clone(), controller.clone());
        let observe = move || {
            let (since_ns, until_ns, fixed) = measured.lock().observe();
            measuring.lock().observe(until_ns, since_ns, fixed);
        };
        let session = Session::start(&SessionRequest {
            config: &config,
            then: Some(Arc::new(observe)),
            ..self.request(Retention::Nothing, Some(sampler.clone()))
        })?;
        let units = Units::default();
        let settings = settings.clone();
        let shared = Arc::new(Shared {
            session,
            sampler,
            controller,
            bounds,
            units,
            first_window_ns,
            settings,
        });
        let of_thread = shared.clone();
        let close = move || while of_thread.close_next() {};
        // Without the thread no window can be closed, and none is opened.
        let closer = Background::default().spawn("gpu-profiler-windows", close).ok();
        Ok(AlwaysOnSession { shared, closer })
    }
}

impl AlwaysOnSession {
    /// Opens a range of this name that is a step or request, and perhaps a window. The window ends with the range.
    ///
    /// Costs a lock and two clock reads more than a range. A unit that opens a window waits while CUPTI enables its kinds,
    /// some 10 us; the profiler's own thread disables them afterwards.
    pub fn unit(&self, name: &str) -> Unit<'_> {
        let begun = self.begin_unit(name);
        Unit { range: Some(nvtx::range(name)), session: self, begun }
    }

    /// Begins a unit without a range, for a range that something else opens. `None` if it is not one: another unit is open, or
    /// settings leave out its name. End it with [`end_unit`](Self::end_unit).
    pub fn begin_unit(&self, name: &str) -> Option<UnitToken> {
        self.closer.as_ref()?;
        self.shared.begin(name).map(UnitToken)
    }

    /// Ends a unit, on any thread.
    pub fn end_unit(&self, unit: UnitToken) {
        self.shared.end(unit.0);
    }

    /// What the session knows so far. Flushes CUPTI; windows whose records have not arrived are not in the estimates.
    ///
    /// # Errors
    /// CUPTI's refusal.
    pub fn snapshot(&self) -> Result<AlwaysOnReport, Error> {
        let so_far = self.shared.session.catch_up()?;
        let sampler = self.shared.sampler.lock();
        let summary = Summary::of(&sampler.join, so_far.info, so_far.duration);
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
        let summary = Summary::of(&sampler.join, recording.info().clone(), recording.duration());
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
    /// Whether the unit is recorded.
    pub fn is_recorded(&self) -> bool {
        self.0.window.is_some()
    }
}

/// An open unit with its range, from [`AlwaysOnSession::unit`].
#[derive(Debug)]
#[must_use = "the unit ends when this is dropped: keep it in a variable, `let _unit = ...`"]
pub struct Unit<'a> {
    range: Option<nvtx::Range>,
    session: &'a AlwaysOnSession,
    begun: Option<UnitToken>,
}

impl Unit<'_> {
    /// Whether the unit is recorded.
    pub fn is_recorded(&self) -> bool {
        self.begun.as_ref().is_some_and(UnitToken::is_recorded)
    }
}

impl Drop for Unit<'_> {
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
            if self.settings.mode != Mode::Windows {
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
        if let Some(window) = &mut begun.window {
            let since_ns = now_ns();
            let _ = self.first_window_ns.fetch_min(since_ns, Ordering::Relaxed);
            match self.session.begin_window(units::PATIENCE) {
                Ok(()) => {
                    if let Some(probability) = window.probability {
                        self.bounds.begin(probability);
                    }
                    window.begin_ns = now_ns().saturating_sub(since_ns);
                }
                Err(error) => {
                    self.session.end_window();
                    begun.window = None;
                    self.units.refuse(error);
                }
            }
        }
        begun.start_ns = now_ns();
        Some(begun)
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

    /// Closes the next window once there is one. False when the session ends.
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
        let state = match self.settings.mode {
            Mode::CallsOnly => State::CallsOnly,
            Mode::WholeGraphs => State::WholeGraphs,
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
