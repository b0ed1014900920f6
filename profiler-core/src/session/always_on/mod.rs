//! Profiles a service in production: calls are recorded all the time, the GPU work of some units.
//!
//! [`Profiler::always_on`] starts it. [`AlwaysOn`] has the settings and an example.

mod controller;
mod report;
mod units;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use cupti::clock::now_ns;
use parking_lot::Mutex;
use profiler_base::background::Background;
use profiler_base::setters;

use crate::collect::request::{Retention, SessionRequest};
use crate::collect::session::Session;
use crate::error::Error;
use crate::join::streaming::StreamingJoin;
use crate::join::window_sums::{WindowBounds, WindowSums};
use crate::profile::summary::Summary;
use crate::session::profiler::Profiler;
use controller::Controller;
use units::{Begun, Units, Window};

pub use report::{AlwaysOnReport, RangeEstimate, UnitCounts};

/// The maximum wait of a unit for the profiler's own threads; then it opens no window.
const PATIENCE: Duration = Duration::from_millis(1);
/// No unit is drawn this soon after a graph was made: a graph that is instantiated in a window
/// stays 13 % slower until it is destroyed.
const GRAPHS_QUIET: Duration = Duration::from_secs(1);

/// Settings of an always-on session.
///
/// ```no_run
/// use profiler_core::Profiler;
/// use profiler_core::session::always_on::AlwaysOn;
///
/// # fn requests() -> std::ops::Range<u32> { 0..10 }
/// # fn answer(_: u32) {}
/// # fn main() -> Result<(), profiler_core::Error> {
/// let service = Profiler::builder().build()?.always_on(&AlwaysOn::new())?;
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
/// units are drawn at random. A window records the GPU work of all threads from the begin of a
/// drawn unit to its end. Several units may be open at once, and windows that overlap are one. GPU
/// times of the whole run are estimated from windows, each weighted by the probability with which
/// it was recorded.
///
/// # Costs
/// A window costs the time by which units that overlap it take longer: the difference of the
/// medians of units with a window and without. The rate falls until that is within the
/// [budget](Self::budget). What CUPTI costs outside of windows is not measured: docs/guide/overhead.md
/// has what it cost on some GPUs.
#[derive(Debug, Clone)]
#[must_use]
pub struct AlwaysOn {
    rate: f64,
    budget: f64,
    names: Vec<String>,
    slow: Option<Duration>,
    mode: Mode,
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
    /// A rate of 1 % of the units, of any name, and a budget of 3 % of their time.
    pub fn new() -> Self {
        Self { rate: 0.01, budget: 0.03, names: Vec::new(), slow: None, mode: Mode::Windows }
    }

    setters! {
        /// The share of units that is drawn, from 0 to 1. If that is less than one unit in 20 s,
        /// units are drawn more often. Fewer are drawn if windows would exceed the budget.
        rate(share: f64) rate = share;
        /// The share of the units' time that windows may cost, from 0 to 1. The first three windows
        /// measure their cost.
        budget(share: f64) budget = share;
        /// Draws units of this name. May be called several times; without it, units of any name are
        /// drawn.
        name(name: impl Into<String>) names += name.into();
        /// Records the unit after a unit that took longer than this, if the budget allows it. Such
        /// windows are excluded from estimates.
        slow(threshold: Duration) slow = Some(threshold);
        /// Records only calls and ranges, and never opens a window.
        calls_only() mode = Mode::CallsOnly;
        /// Records all work for the whole run, each launch of a graph as one interval, which has no
        /// cost for the graph. There are no windows: CUPTI 13 loses records or crashes if its kinds
        /// for graphs and kernels alternate.
        whole_graphs() mode = Mode::WholeGraphs;
    }

    fn check(&self) -> Result<(), Error> {
        let in_range = |share: f64| (0.0..=1.0).contains(&share);
        if in_range(self.budget) && in_range(self.rate) {
            return Ok(());
        }
        let (budget, rate) = (self.budget, self.rate);
        Err(Error::other(format!(
            "an always-on session cannot start: a budget of {budget} and a rate of {rate}: both are shares from 0 to 1"
        )))
    }
}

/// The state shared by the threads of a session.
#[derive(Debug)]
struct Shared {
    session: Session,
    join: Arc<Mutex<StreamingJoin>>,
    bounds: Arc<WindowBounds>,
    units: Units,
    settings: AlwaysOn,
}

impl Window for Shared {
    fn open(&self) -> Result<(), Error> {
        self.session.begin_window(PATIENCE).inspect_err(|_| self.session.end_window())
    }

    fn end(&self) {
        self.session.end_window();
    }

    fn begin_estimate(&self) {
        self.bounds.begin();
    }

    fn end_estimate(&self, probability: f64) {
        self.bounds.end(probability);
    }
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
    /// Starts a session that records calls all the time and the GPU work of some steps or requests.
    /// [`AlwaysOn`] has the settings and an example. Other sessions may run beside it. While one of
    /// them records everything, windows save nothing.
    ///
    /// # Errors
    /// Returns an error for contradicting settings; otherwise as [`start`](Self::start).
    pub fn always_on(&self, settings: &AlwaysOn) -> Result<AlwaysOnSession, Error> {
        settings.check()?;
        let is_whole = settings.mode == Mode::WholeGraphs;
        let config = if is_whole { self.whole_graphs() } else { self.in_windows()? };
        let mut join = self.streaming(0);
        let bounds = Arc::new(WindowBounds::default());
        if !is_whole {
            join.windows = Some(Box::new(WindowSums::new(bounds.clone())));
        }
        let join = Arc::new(Mutex::new(join));
        let session = Session::start(&SessionRequest {
            config: &config,
            ..self.request(Retention::Nothing, Some(join.clone()))
        })?;
        let units = Units::new(Controller::new(settings.budget, settings.rate));
        let shared = Arc::new(Shared { session, join, bounds, units, settings: settings.clone() });
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
    /// Costs two locks and two clock reads more than a range. A unit that opens a window waits some
    /// 10 us while CUPTI enables its kinds; the profiler's own thread disables them afterwards.
    pub fn unit(&self, name: &str) -> UnitGuard<'_> {
        let begun = self.begin_unit(name);
        UnitGuard { range: Some(nvtx::range(name)), session: self, begun }
    }

    /// Begins a unit without a range, for a range that other code opens. `None` if settings exclude
    /// its name. End it with [`end_unit`](Self::end_unit), on any thread.
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
        let join = self.shared.join.lock();
        let summary = Summary::new(&join, so_far.info, so_far.duration);
        Ok(self.shared.report(&join, summary))
    }

    /// Ends the session. Waits for the GPU as [`Profiler::stop`] does.
    ///
    /// # Errors
    /// CUPTI's refusal.
    pub fn stop(mut self) -> Result<AlwaysOnReport, Error> {
        self.shared.session.check_process()?;
        self.end_closer();
        let recording = self.shared.session.stop(now_ns())?;
        let mut join = self.shared.join.lock();
        join.end(Some(&recording));
        let summary = Summary::new(&join, recording.info().clone(), recording.duration());
        Ok(self.shared.report(&join, summary))
    }

    fn end_closer(&mut self) {
        self.shared.units.finish();
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
#[must_use = "end it with `end_unit`; until then its window stays open"]
pub struct UnitToken(Begun);

impl UnitToken {
    /// True if the unit is recorded.
    pub fn is_recorded(&self) -> bool {
        self.0.recorded.is_some()
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
        let made_ns = cupti::graphs_last_made_ns();
        let quiet_ns = GRAPHS_QUIET.as_nanos() as u64;
        let is_quiet = made_ns == 0 || now_ns().saturating_sub(made_ns) >= quiet_ns;
        let can_be_drawn = self.settings.mode == Mode::Windows;
        self.units.begin(name, can_be_drawn.then_some(is_quiet), self)
    }

    fn end(&self, begun: Begun) {
        if self.session.check_process().is_ok() {
            self.units.end(&begun, self.settings.slow, self);
        }
    }

    /// Waits for the next window and closes it. Returns false when the session ends.
    fn close_next(&self) -> bool {
        if !self.units.next_to_close() {
            return false;
        }
        self.units.closed(self.session.rest());
        true
    }

    fn report(&self, join: &StreamingJoin, summary: Summary) -> AlwaysOnReport {
        let tables = &join.sums.tables;
        let windows = join.windows.as_ref();
        let mut estimates = windows.map(|windows| windows.estimates(tables)).unwrap_or_default();
        if windows.is_none() {
            // Rows without estimates.
            estimates.paths.resize(tables.paths.len(), None);
            estimates.path_submissions = summary.paths().map(|p| p.inclusive().launches).collect();
            estimates.submissions = summary.totals().launches;
        }
        self.units.read(|inner| AlwaysOnReport {
            mode: self.settings.mode,
            budget: self.settings.budget,
            window_share: inner.controller.window_share(),
            rate: inner.controller.probability(),
            is_limited: inner.controller.is_limited(),
            counts: inner.counts,
            last_error: inner.last_error(),
            summary,
            estimates,
        })
    }
}

#[cfg(test)]
mod tests {
    use fake_cupti::{Fake, Work};

    use super::*;
    use crate::collect::session::hold_collection;

    #[test]
    fn window_that_cannot_open_is_counted_and_the_next_one_opens() {
        let fake = Fake::new();
        let builder = Profiler::builder().library(fake.library().unwrap());
        let profiler = builder.period(Duration::from_millis(5)).build().unwrap();
        let service = profiler.always_on(&AlwaysOn::new().budget(1.0).rate(1.0)).unwrap();
        let counts = || service.shared.units.read(|inner| inner.counts);
        {
            let _busy = hold_collection();
            while counts().refused < 3 {
                assert!(!service.unit("request").is_recorded());
            }
        }
        assert_eq!(counts().drawn, 0, "{:?}", counts());
        while !service.unit("request").is_recorded() {
            fake.launch(Work::kernel(c"kernel"));
        }
        let report = service.stop().unwrap();
        assert_eq!((report.counts().drawn, report.counts().refused >= 3), (1, true), "{report}");
        report.recorded().health().assert_complete();
    }
}
