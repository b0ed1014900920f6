//! The results of an always-on session so far.

use std::fmt;
use std::time::Duration;

use profiler_base::getters;
use profiler_base::ratio_estimator::Estimate;
use profiler_base::table::{Layout, Table};
use profiler_base::units::time;

use super::comparison::{MeasuredShare, TimedCost, percent};
use crate::error::Error;
use crate::join::window_sums::Estimates;
use crate::profile::summary::Summary;

/// The activity of an always-on session, and its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Windows are opened within the budget.
    Sampling,
    /// Units are timed before CUPTI is called, after it, and with logged calls and without:
    /// [`AlwaysOn::baseline`](super::AlwaysOn::baseline).
    Comparing,
    /// Calls are not logged at present: times of units show that logging costs more than the budget
    /// leaves. Only ranges are recorded.
    RangesOnly,
    /// CUPTI is not called, because the [declared cost](super::AlwaysOn::attach_cost) exceeds the
    /// budget or CUPTI refused ([`last_error`](AlwaysOnReport::last_error)). Only ranges are
    /// recorded.
    NotAttached,
    /// Launches have not been measured long enough to open a window:
    /// [`AlwaysOn::watch`](super::AlwaysOn::watch).
    Measuring,
    /// The cost without windows exceeds the budget: no window is opened.
    BudgetExceeded,
    /// Only calls are recorded, by the settings.
    CallsOnly,
    /// All work is recorded, and each launch of a graph as one interval, by the settings.
    WholeGraphs,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sampling => "windows are opened within the budget",
            Self::Comparing => {
                "units are timed before and after CUPTI's first call, and with logged calls"
            }
            Self::RangesOnly => {
                "CALLS ARE NOT LOGGED: that costs more than the budget leaves; ranges alone are recorded"
            }
            Self::NotAttached => "CUPTI IS NOT CALLED: ranges alone are recorded",
            Self::Measuring => {
                "watching launches before the first window, which makes later ones dearer"
            }
            Self::BudgetExceeded => {
                "NO WINDOW IS OPENED: CUPTI's first call, logging calls and dearer launches alone exceed the budget"
            }
            Self::CallsOnly => "calls only: no window is opened",
            Self::WholeGraphs => "all work, each graph launch as one interval: nothing is sampled",
        })
    }
}

/// Counts of steps and requests, and of windows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct UnitCounts {
    /// Steps or requests that could have been drawn.
    pub units: u64,
    /// Windows of units that were drawn at random.
    pub drawn: u64,
    /// Windows of units after a slow one. They are excluded from estimates.
    pub after_slow: u64,
    /// Units that took longer than the threshold.
    pub slow: u64,
    /// Units that began while another one was open or its window was closing. Sums include their
    /// work.
    pub overlapping: u64,
    /// Units that were not drawn because the program made graphs.
    pub while_graphs_were_made: u64,
    /// Units that could not open a window: the fixed cost exceeded the budget.
    pub over_budget: u64,
    /// Windows that could not be opened or closed: CUPTI refused, or the profiler's own threads
    /// were busy for a millisecond.
    pub refused: u64,
}

/// The slowdown of launches since the first window, until the process ends.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LastingRise {
    /// Nanoseconds per launch, the mean of the latest ones.
    pub ns: f64,
    /// True if launches of these kinds were measured at one rate before the first window and after
    /// it. Otherwise, `ns` is 600, the maximum on other machines, or the difference between
    /// different rates if that is larger.
    pub is_measured: bool,
}

/// The results of an always-on session so far, from
/// [`AlwaysOnSession::snapshot`](super::AlwaysOnSession::snapshot) and
/// [`stop`](super::AlwaysOnSession::stop).
///
/// Launches and other calls are counted in full, since the time from which units were
/// [timed](State::Comparing). GPU times are estimated from a sample, scaled up to all calls that
/// submit work. [`gpu_time`](Self::gpu_time) and [`ranges`](Self::ranges) have them with 95 %
/// confidence intervals, by [`RatioEstimator`](crate::statistics::RatioEstimator).
#[derive(Debug, Clone)]
pub struct AlwaysOnReport {
    pub(super) state: State,
    pub(super) budget: f64,
    pub(super) window_share: f64,
    pub(super) fixed_share: f64,
    pub(super) attach_cost: TimedCost,
    pub(super) logging_cost: TimedCost,
    pub(super) logged_share: f64,
    pub(super) launches_per_second: f64,
    pub(super) rise: Option<LastingRise>,
    pub(super) counts: UnitCounts,
    pub(super) failed_calls: u64,
    pub(super) last_error: Option<Error>,
    pub(super) summary: Summary,
    pub(super) estimates: Estimates,
}

/// The calls and the estimated GPU time of a range path, including descendants.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RangeEstimate {
    /// The names, outermost range first: `request/decode`.
    pub path: String,
    /// Ranges of this path, counted in full.
    pub instances: u64,
    /// Calls that submitted work, counted in full.
    pub submissions: u64,
    /// The GPU time in nanoseconds; `None` if no window had a call of the path.
    pub gpu_ns: Option<Estimate>,
}

impl AlwaysOnReport {
    getters! {
        /// The activity of the session.
        state: State = state;
        /// The share of the program's time that recording may cost.
        budget: f64 = budget;
        /// The measured share of the time that windows cost.
        window_share: f64 = window_share;
        /// The measured share of the time that logging calls, CUPTI's first call and slower
        /// launches cost.
        fixed_share: f64 = fixed_share;
        /// The cost of CUPTI's first call until the process ends, at the load under which it was
        /// measured.
        attach_cost: TimedCost = attach_cost;
        /// The cost of logging calls, at the load under which it was measured. If it is less than
        /// 77 ns per call, or not measured, 77 ns per call are counted.
        logging_cost: TimedCost = logging_cost;
        /// The share of the time since the start in which calls were logged. Counts of calls, and
        /// the estimates, cover this time.
        logged_share: f64 = logged_share;
        /// Launches per second at present: the mean of the last seconds.
        launches_per_second: f64 = launches_per_second;
        /// The slowdown of launches since the first window; `None` without a window and later
        /// launches.
        lasting_rise: Option<LastingRise> = rise;
        /// Counts of units and windows.
        counts: UnitCounts = counts;
        /// Calls that returned an error.
        failed_calls: u64 = failed_calls;
        /// The recorded data: all calls, and the operations of all windows without scaling.
        recorded: &Summary = summary;
        /// Calls that submitted work, counted in full since units were timed.
        submissions: u64 = estimates.submissions;
    }

    /// The share of time lost to slower launches at their present rate, since a window was opened
    /// and until the process ends. 0 without a window. After a change of load it differs from the
    /// part in [`fixed_share`](Self::fixed_share), which covers the whole time.
    pub fn lasting_share(&self) -> f64 {
        self.rise.map_or(0.0, |rise| rise.ns * self.launches_per_second / 1e9)
    }

    /// The reason why the last window could not be opened or closed.
    pub fn last_error(&self) -> Option<&Error> {
        self.last_error.as_ref()
    }

    /// The estimated GPU time of all calls, in nanoseconds. `None` without a window.
    pub fn gpu_time(&self) -> Option<Estimate> {
        self.estimates.all
    }

    /// The number of drawn windows whose records have all arrived; the estimates use these.
    pub fn sampled_windows(&self) -> u64 {
        self.estimates.windows
    }

    /// Every range path, parents before their children.
    pub fn ranges(&self) -> impl Iterator<Item = RangeEstimate> {
        self.summary.paths().zip(&self.estimates.paths).zip(&self.estimates.path_submissions).map(
            |((path, gpu_ns), submissions)| RangeEstimate {
                path: path.path(),
                instances: path.instances(),
                submissions: *submissions,
                gpu_ns: *gpu_ns,
            },
        )
    }
}

/// The minimum number of windows with work for reliable 95 % intervals. From this number on, they
/// contained the truth in 94 to 96 % of draws from recordings of real GPUs. With a handful of
/// windows it was 71 to 98 % (docs/measurements/always-on.md).
const ENOUGH_WINDOWS: u64 = 40;

/// Formats a time with its bounds.
fn estimated(estimate: Option<Estimate>) -> String {
    let Some(Estimate { value, low, high, .. }) = estimate else { return "not sampled".to_owned() };
    let of = |ns: f64| time(Duration::from_nanos(ns as u64));
    if low == high {
        return of(value);
    }
    let high = if high.is_finite() { of(high) } else { "?".to_owned() };
    format!("{} ({} to {high})", of(value), of(low))
}

impl AlwaysOnReport {
    fn write_costs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (windows, fixed) = (percent(self.window_share), percent(self.fixed_share));
        writeln!(
            f,
            "cost: windows {windows}, calls and launches {fixed} of the time; budget {}",
            percent(self.budget)
        )?;
        writeln!(f, "CUPTI's first call: {}", self.attach_cost)?;
        writeln!(f, "logging calls: {}", self.logging_cost)?;
        if matches!(self.logging_cost, TimedCost::Measured(_)) && self.logged_share < 1.0 {
            writeln!(
                f,
                "calls were logged for {} of the time: their counts and the estimates are of this time",
                percent(self.logged_share)
            )?;
        }
        if matches!(self.attach_cost, TimedCost::Measured(MeasuredShare { value, .. }) if value > self.budget)
        {
            writeln!(
                f,
                "it alone exceeds the budget, and nothing takes it back until the process ends: in other processes of this program \
                 declare it (`attach_cost`), so that CUPTI is not called, or start with `gpuprof run --start wait`"
            )?;
        }
        if let (State::NotAttached, Some(error)) = (self.state, &self.last_error) {
            writeln!(f, "{error}")?;
        }
        if let Some(rise) = self.rise {
            let source = if rise.is_measured { "measured" } else { "estimated" };
            writeln!(
                f,
                "launches since the first window: {:.2} us dearer each ({source}), {} of the time at the present {:.0} a second",
                rise.ns / 1e3,
                percent(self.lasting_share()),
                self.launches_per_second
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for AlwaysOnReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Always on: {}", self.state)?;
        self.write_costs(f)?;
        let counts = &self.counts;
        writeln!(
            f,
            "{} of {} units recorded at random, {} after a slow one",
            counts.drawn, counts.units, counts.after_slow
        )?;
        for (count, what) in [
            (counts.overlapping, "units overlapped another one"),
            (counts.while_graphs_were_made, "units were left out while graphs were made"),
            (counts.over_budget, "units were left out: launches alone exceeded the budget"),
            (counts.refused, "windows could not be opened"),
            (self.failed_calls, "calls returned an error"),
        ] {
            if count != 0 {
                writeln!(f, "{count} {what}")?;
            }
        }
        let gpu_time = |estimate: Option<Estimate>, exact: Duration| match self.state {
            State::WholeGraphs => time(exact),
            _ => estimated(estimate),
        };
        if !matches!(self.state, State::WholeGraphs | State::CallsOnly | State::NotAttached) {
            writeln!(
                f,
                "GPU times are SAMPLED in {} windows, scaled up, with 95 % intervals",
                self.estimates.windows
            )?;
            let of_work = self.estimates.all.map_or(0, |all| all.units);
            if of_work < ENOUGH_WINDOWS && self.estimates.submissions != 0 {
                writeln!(
                    f,
                    "only {of_work} of them had GPU work: the intervals are rough below {ENOUGH_WINDOWS}"
                )?;
            }
        }
        let mut table = Table::new(["range", "instances", "submissions", "GPU time"], 1);
        let totals = self.summary.totals();
        table.add_row(vec![
            "(all)".to_owned(),
            String::new(),
            self.estimates.submissions.to_string(),
            gpu_time(self.estimates.all, totals.gpu_time()),
        ]);
        for (row, path) in self.ranges().zip(self.summary.paths()) {
            table.add_row(vec![
                row.path,
                row.instances.to_string(),
                row.submissions.to_string(),
                gpu_time(row.gpu_ns, path.inclusive().gpu_time()),
            ]);
        }
        writeln!(f, "{}", table.render(Layout::from_formatter(f)))?;
        write!(f, "health: {}", self.summary.health())
    }
}
