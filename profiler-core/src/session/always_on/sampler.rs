//! Joins an always-on session while it runs, and measures what recording costs in its calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cupti::{Call, CallClass};

use super::controller::FixedCost;
use crate::base::distribution::Distribution;
use crate::collect::request::Sink;
use crate::join::account::is_failure;
use crate::join::streaming::StreamingJoin;
use crate::record::recording::append::{SessionStart, Taken};

/// What both callbacks of a call cost: measured on an H200 (docs/measurements.md), since a process that logs its
/// calls cannot compare them with calls that are not logged.
const CALLBACKS_NS: f64 = 77.0;
/// Launches of which a quartile is taken.
const ENOUGH: u64 = 200;
/// Launches after which the comparison begins anew, so that it follows the program.
const MANY: u64 = 20_000;

/// Host times of launches of one class.
#[derive(Debug, Default)]
struct Times {
    before: Distribution,
    within: Distribution,
    after: Distribution,
    /// The latest quartiles, in nanoseconds.
    within_ns: Option<f64>,
    after_ns: Option<f64>,
}

impl Times {
    /// By how much launches are dearer after the first window than before it: compared at the lower quartile, since
    /// launches that wait for a full queue take as long as the GPU does.
    fn dearer_ns(&self, assumed_ns: f64) -> f64 {
        match (quartile(&self.before), self.after_ns) {
            (Some(before), Some(after)) => (after - before).max(0.0),
            _ => assumed_ns,
        }
    }

    /// By how much they are dearer in windows than between them.
    fn dearer_within_ns(&self, assumed_ns: f64) -> f64 {
        match (self.after_ns.or_else(|| quartile(&self.before)), self.within_ns) {
            (Some(outside), Some(within)) => (within - outside).max(0.0),
            _ => assumed_ns,
        }
    }
}

fn quartile(times: &Distribution) -> Option<f64> {
    (times.count() >= ENOUGH).then(|| times.percentile(25.0).as_nanos() as f64)
}

/// Adds a time, and updates the quartile whenever enough are known.
fn add(times: &mut Distribution, latest: &mut Option<f64>, ns: u64) {
    times.add(ns);
    if times.count() == ENOUGH || times.count() == MANY {
        *latest = quartile(times);
    }
    if times.count() >= MANY {
        *times = Distribution::default();
    }
}

/// The sink of an always-on session.
#[derive(Debug)]
pub(super) struct Sampler {
    pub(super) join: StreamingJoin,
    /// When the first window opened; [`u64::MAX`] before.
    first_window_ns: Arc<AtomicU64>,
    assumed_launch_ns: f64,
    kernels: Times,
    graphs: Times,
    /// Calls and launches since the last observation; launches outside of windows, by class.
    calls: u64,
    launches: u64,
    after: [u64; 2],
    /// Calls that failed, in all.
    pub(super) failed_calls: u64,
    /// The end of the last segment, and that of the last observation.
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
            assumed_launch_ns,
            kernels: Times::default(),
            graphs: Times::default(),
            calls: 0,
            launches: 0,
            after: [0; 2],
            failed_calls: 0,
            until_ns: 0,
            observed_ns: 0,
        }
    }

    fn measure(&mut self, call: &Call, is_within: bool) {
        self.calls += 1;
        let class = call.function.class();
        self.failed_calls += u64::from(is_failure(class, call.result));
        let (times, row) = match class {
            CallClass::KernelLaunch => (&mut self.kernels, 0),
            CallClass::GraphLaunch => (&mut self.graphs, 1),
            _ => return,
        };
        if call.captured {
            return;
        }
        self.launches += 1;
        let Some(ns) = call.end_ns.map(|end_ns| end_ns.saturating_sub(call.start_ns)) else {
            return;
        };
        if is_within {
            add(&mut times.within, &mut times.within_ns, ns);
        } else if call.start_ns < self.first_window_ns.load(Ordering::Relaxed) {
            times.before.add(ns);
        } else {
            self.after[row] += 1;
            add(&mut times.after, &mut times.after_ns, ns);
        }
    }

    /// What the time since the last observation cost without windows; with its start and end.
    pub(super) fn observe(&mut self) -> (u64, u64, FixedCost) {
        let dearer =
            [&self.kernels, &self.graphs].map(|times| times.dearer_ns(self.assumed_launch_ns));
        let dearer: f64 = dearer.iter().zip(self.after).map(|(ns, count)| ns * count as f64).sum();
        let cost_ns = self.calls as f64 * CALLBACKS_NS + dearer;
        let fixed = FixedCost { launches: self.launches, cost_ns };
        let since_ns = std::mem::replace(&mut self.observed_ns, self.until_ns);
        (self.calls, self.launches, self.after) = (0, 0, [0; 2]);
        (since_ns, self.until_ns, fixed)
    }

    /// By how much the launches of a mean window were dearer than others, in nanoseconds.
    pub(super) fn window_launches_ns(&self) -> f64 {
        let mean = self.join.windows.as_ref().map_or(0.0, |windows| windows.mean_submissions());
        let class = if self.graphs.within.count() > self.kernels.within.count() {
            &self.graphs
        } else {
            &self.kernels
        };
        mean * class.dearer_within_ns(self.assumed_launch_ns)
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
        let calls = taken.segment.calls.iter().flat_map(|thread| &thread.calls);
        for call in calls {
            let enabled = taken.enabled_ns.unwrap_or_default();
            self.measure(call, cupti::clock::is_within(enabled, call.start_ns));
        }
        self.until_ns = taken.segment.until_ns;
        self.join.add(taken);
    }

    fn waits_since_ns(&self) -> Option<u64> {
        self.join.waits_since_ns()
    }
}
