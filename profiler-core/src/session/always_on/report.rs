//! The results of an always-on session so far.

use std::fmt;
use std::time::Duration;

use profiler_base::display::{DisplayOptions, Layout};
use profiler_base::display_by_default_layout;
use profiler_base::getters;
use profiler_base::ratio_estimator::Estimate;
use profiler_base::table::Table;
use profiler_base::units::{percent, time};

use super::Mode;
use crate::error::Error;
use crate::join::window_sums::Estimates;
use crate::profile::summary::Summary;

/// Counts of steps and requests, and of windows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct UnitCounts {
    /// Steps or requests.
    pub units: u64,
    /// Units that were drawn at random and recorded.
    pub drawn: u64,
    /// Units that were recorded because the unit before was slow. They are excluded from estimates.
    pub after_slow: u64,
    /// Units that took longer than the threshold.
    pub slow: u64,
    /// Units that could not be drawn because a window was opening or closing.
    pub while_closing: u64,
    /// Units that could not be drawn because the program made graphs.
    pub while_graphs_were_made: u64,
    /// Windows that could not be opened or closed: CUPTI refused, or the profiler's own threads
    /// were busy for a millisecond.
    pub refused: u64,
}

/// The results of an always-on session so far, from
/// [`AlwaysOnSession::snapshot`](super::AlwaysOnSession::snapshot) and
/// [`stop`](super::AlwaysOnSession::stop).
///
/// Launches and other calls are counted in full. GPU times are estimated from windows, scaled up to
/// all calls that submit work. [`gpu_time`](Self::gpu_time) and [`ranges`](Self::ranges) have them
/// with 95 % confidence intervals, by a ratio estimator.
#[derive(Debug, Clone)]
pub struct AlwaysOnReport {
    pub(super) mode: Mode,
    pub(super) budget: f64,
    pub(super) window_share: f64,
    pub(super) rate: f64,
    pub(super) is_limited: bool,
    pub(super) counts: UnitCounts,
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
        /// The share of the units' time that windows may cost.
        budget: f64 = budget;
        /// The measured share of the units' time that windows cost.
        window_share: f64 = window_share;
        /// The share of units that is drawn at present.
        rate: f64 = rate;
        /// Counts of units and windows.
        counts: UnitCounts = counts;
        /// Calls that returned an error.
        failed_calls: u64 = summary.totals().failed_calls;
        /// The recorded data: all calls, and the operations of all windows without scaling.
        recorded: &Summary = summary;
        /// Calls that submitted work, counted in full.
        submissions: u64 = estimates.submissions;
        /// The reason why the last window could not be opened or closed.
        last_error: Option<&Error> = last_error.as_ref();
        /// The estimated GPU time of all calls, in nanoseconds. `None` without a window.
        gpu_time: Option<Estimate> = estimates.all;
        /// The number of windows of drawn units whose records have all arrived; the estimates use these.
        sampled_windows: u64 = estimates.windows;
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
/// contained the truth in 95 to 96 % of draws from recordings of real GPUs
/// (docs/measurements/always-on.md).
const ENOUGH_WINDOWS: u64 = 40;

/// Formats a time with its bounds.
fn estimated(estimate: Option<Estimate>) -> String {
    let Some(Estimate { value, low, high, .. }) = estimate else { return "not sampled".to_owned() };
    let format = |ns: f64| time(Duration::from_nanos(ns as u64));
    if low == high {
        return format(value);
    }
    let high = if high.is_finite() { format(high) } else { "?".to_owned() };
    format!("{} ({} to {high})", format(value), format(low))
}

impl AlwaysOnReport {
    /// Writes the subject of the table, and its source.
    fn write_title(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode {
            Mode::CallsOnly => writeln!(f, "Calls by range; GPU times are not recorded"),
            Mode::WholeGraphs => {
                writeln!(f, "GPU time by range; each graph launch is one interval")
            }
            Mode::Windows if self.estimates.windows == 0 => {
                writeln!(f, "Calls by range; no GPU time yet, since no window has ended")
            }
            Mode::Windows => writeln!(
                f,
                "GPU time by range, estimated from {} windows, with 95 % intervals",
                self.estimates.windows
            ),
        }
    }

    fn write_table(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gpu_time = |estimate: Option<Estimate>, exact: Duration| match self.mode {
            Mode::WholeGraphs => time(exact),
            _ => estimated(estimate),
        };
        let mut table = Table::new(["range", "instances", "submissions", "GPU time"], 1);
        table.add_row(vec![
            "(all)".to_owned(),
            String::new(),
            self.estimates.submissions.to_string(),
            gpu_time(self.estimates.all, self.summary.totals().gpu_time()),
        ]);
        for (row, path) in self.ranges().zip(self.summary.paths()) {
            table.add_row(vec![
                row.path,
                row.instances.to_string(),
                row.submissions.to_string(),
                gpu_time(row.gpu_ns, path.inclusive().gpu_time()),
            ]);
        }
        writeln!(f, "{}", table.render(layout))
    }
}

impl DisplayOptions for AlwaysOnReport {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_title(f)?;
        self.write_table(layout, f)?;
        let counts = &self.counts;
        if self.mode == Mode::Windows {
            let limited = if self.is_limited { ", limited by the budget" } else { "" };
            writeln!(
                f,
                "cost: windows {} of the units' time, budget {}; rate {} of the units{limited}",
                percent(self.window_share),
                percent(self.budget),
                percent(self.rate)
            )?;
            writeln!(
                f,
                "{} of {} units recorded at random, {} after a slow one",
                counts.drawn, counts.units, counts.after_slow
            )?;
            let with_work = self.estimates.all.map_or(0, |all| all.units);
            if with_work < ENOUGH_WINDOWS && self.estimates.windows != 0 {
                writeln!(
                    f,
                    "intervals are rough below {ENOUGH_WINDOWS} windows with GPU work; there are {with_work}"
                )?;
            }
        }
        for (count, what) in [
            (counts.while_closing, "units could not be drawn while a window opened or closed"),
            (counts.while_graphs_were_made, "units could not be drawn while graphs were made"),
            (counts.refused, "windows could not be opened or closed"),
            (self.estimates.left_out, "windows were left out: too many waited for their records"),
            (self.failed_calls(), "calls returned an error"),
        ] {
            if count != 0 {
                writeln!(f, "{count} {what}")?;
            }
        }
        if let Some(error) = &self.last_error {
            writeln!(f, "{error}")?;
        }
        write!(f, "health: {}", self.summary.health())
    }
}

display_by_default_layout!(AlwaysOnReport);
