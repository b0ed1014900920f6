//! Joins an always-on session while it runs, and measures the cost of recording from its calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cupti::{Call, CallClass};

use super::controller::FixedCost;
use super::launch_costs::{LaunchCosts, LaunchKind, Phase};
use super::report::LastingRise;
use crate::collect::request::Sink;
use crate::join::account::is_failure;
use crate::join::streaming::StreamingJoin;
use crate::record::recording::append::{SessionStart, Taken};

/// The minimum cost of both callbacks of a call, as measured on an H200
/// (docs/measurements/cost.md). It is the cost of logging unless units show more.
const CALLBACKS_NS: f64 = 77.0;

/// The sink of an always-on session.
#[derive(Debug)]
pub(super) struct Sampler {
    pub(super) join: StreamingJoin,
    /// The time of the first window; [`u64::MAX`] before it.
    first_window_ns: Arc<AtomicU64>,
    costs: LaunchCosts,
    /// Calls and launches since the last observation, and the total slowdown of launches after the
    /// first window.
    calls: u64,
    launches: u64,
    dearer_ns: f64,
    /// The mean slowdown in the latest observation with launches after the first window.
    rise: Option<LastingRise>,
    /// The total of failed calls.
    pub(super) failed_calls: u64,
    /// The end of the last segment, and of the last observation.
    until_ns: u64,
    observed_ns: u64,
}

impl Sampler {
    pub(super) fn new(
        join: StreamingJoin,
        first_window_ns: Arc<AtomicU64>,
        assumed_launch_ns: f64,
    ) -> Self {
        Self {
            join,
            first_window_ns,
            costs: LaunchCosts::new(assumed_launch_ns),
            calls: 0,
            launches: 0,
            dearer_ns: 0.0,
            rise: None,
            failed_calls: 0,
            until_ns: 0,
            observed_ns: 0,
        }
    }

    /// Measures the calls of a segment of this length.
    fn measure(&mut self, taken: &Taken<'_>, ns: u64) {
        let all = || taken.segment.calls.iter().flat_map(|thread| &thread.calls);
        let launches = all().filter_map(|call| Some((call, launch_kind(call)?)));
        let (mut calls, mut count) = (0_u64, 0_u64);
        for call in all() {
            calls += 1;
            count += u64::from(launch_kind(call).is_some());
            self.failed_calls += u64::from(is_failure(call.function.class(), call.result));
        }
        let rate = count as f64 * 1e9 / ns.max(1) as f64;
        let enabled_ns = taken.enabled_ns.unwrap_or_default();
        let first_ns = self.first_window_ns.load(Ordering::Relaxed);
        // Launches of kernels and of graphs.
        let mut after = [0_u64; 2];
        for (call, kind) in launches {
            let phase = if cupti::clock::is_within(enabled_ns, call.start_ns) {
                Phase::Within
            } else if call.start_ns < first_ns {
                Phase::Before
            } else {
                Phase::After
            };
            if call.start_ns >= first_ns {
                after[usize::from(kind == LaunchKind::Graph)] += 1;
            }
            if let Some(end_ns) = call.end_ns {
                self.costs.add(kind, phase, rate, end_ns.saturating_sub(call.start_ns));
            }
        }
        (self.calls, self.launches) = (self.calls + calls, self.launches + count);
        let kinds = [LaunchKind::Kernel, LaunchKind::Graph];
        let rises = kinds.map(|kind| self.costs.rise(kind, rate));
        let dearer_ns: f64 = rises.iter().zip(after).map(|(rise, n)| rise.ns * n as f64).sum();
        self.dearer_ns += dearer_ns;
        let launches = after.iter().sum::<u64>();
        if launches != 0 {
            let mean_ns = dearer_ns / launches as f64;
            let is_measured = rises.iter().zip(after).all(|(rise, n)| rise.is_measured || n == 0);
            self.rise = Some(LastingRise { ns: mean_ns, is_measured });
        }
    }

    /// Returns the costs since the last observation without windows, with its start and end.
    pub(super) fn observe(&mut self) -> (u64, u64, FixedCost) {
        let fixed = FixedCost {
            launches: self.launches,
            cost_ns: self.dearer_ns,
            logging_ns: self.calls as f64 * CALLBACKS_NS,
            units_ns: 0.0,
            logs: true,
        };
        let since_ns = std::mem::replace(&mut self.observed_ns, self.until_ns);
        (self.calls, self.launches, self.dearer_ns) = (0, 0, 0.0);
        (since_ns, self.until_ns, fixed)
    }

    /// The mean slowdown of launches since the first window, in the last segment with such
    /// launches.
    pub(super) fn lasting_rise(&self) -> Option<LastingRise> {
        self.rise
    }

    /// The mean total slowdown of the launches of one window, in nanoseconds.
    pub(super) fn window_launches_ns(&self) -> f64 {
        let mean = self.join.windows.as_ref().map_or(0.0, |windows| windows.mean_submissions());
        mean * self.costs.rise_in_window_ns()
    }
}

/// The kind of launch; `None` for other calls, and for launches that are captured into a graph.
fn launch_kind(call: &Call) -> Option<LaunchKind> {
    match call.function.class() {
        _ if call.captured => None,
        CallClass::KernelLaunch => Some(LaunchKind::Kernel),
        CallClass::GraphLaunch => Some(LaunchKind::Graph),
        _ => None,
    }
}

impl Sink for Sampler {
    fn begin(&mut self, start: &SessionStart<'_>) {
        (self.until_ns, self.observed_ns) = (start.start_ns, start.start_ns);
        self.join.begin(start);
    }

    fn begins_with(&mut self, first_id: u32, is_final: bool) {
        self.join.begins_with(first_id, is_final);
    }

    fn add(&mut self, taken: &Taken<'_>) {
        self.measure(taken, taken.segment.until_ns.saturating_sub(self.until_ns));
        self.until_ns = taken.segment.until_ns;
        self.join.add(taken);
    }

    fn waits_since_ns(&self) -> Option<u64> {
        self.join.waits_since_ns()
    }

    fn reads_pauses(&self) -> bool {
        true
    }
}
