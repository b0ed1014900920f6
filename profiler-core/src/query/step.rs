//! Steps of a run: consecutive instances of one range.

use std::fmt;
use std::time::Duration;

use profiler_base::kernel_names::Pattern;
use profiler_base::statistics::{self, Statistics};
use profiler_base::units::time;
use profiler_base::{getters, iterate};
use rustc_hash::FxHashMap;

use super::{DeviceTimes, Span, device_times, ns};
use crate::join::tables::{OperationId, RangeId};
use crate::join::totals::Totals;
use crate::profile::{Profile, Range, RangeNode, Sampled, Track};

/// One instance of the range with the work submitted in it.
#[derive(Debug, Clone)]
pub struct Step<'a> {
    number: usize,
    range: Range<'a>,
    totals: Totals,
    devices: Vec<DeviceTimes>,
    period: Option<Duration>,
}

impl<'a> Step<'a> {
    getters! {
        /// The index, from 0.
        number: usize = number;
        /// The range.
        range: Range<'a> = range;
        /// The host time.
        host_time: Duration = range.host_time();
        /// The time from its start to the start of the next step of its process. `None` for the
        /// last step.
        period: Option<Duration> = period;
        /// The inclusive totals.
        totals: Totals = totals;
        /// The sum of GPU times.
        gpu_time: Duration = totals.gpu_time();
        /// Busy and idle times by device.
        devices: &[DeviceTimes] = devices;
    }

    /// The sum of a track in the step: see [`Range::sum`].
    pub fn sum(&self, track: &Track<'_>) -> Option<Sampled> {
        self.range.sum(track)
    }

    /// The mean of a track in the step: see [`Range::mean`].
    pub fn mean(&self, track: &Track<'_>) -> Option<Sampled> {
        self.range.mean(track)
    }

    /// The interval from the first start to the last end of its operations. `None` without
    /// timestamps.
    pub fn gpu_span(&self) -> Option<Span> {
        super::span_of(&self.devices)
    }

    /// The time in which an operation other than a collective ran, summed over devices.
    pub fn busy_time(&self) -> Duration {
        super::sum(self.devices.iter().map(|device| device.busy))
    }

    /// The time in which no operation ran between the first and the last, summed over devices.
    pub fn idle(&self) -> Duration {
        super::sum(self.devices.iter().map(DeviceTimes::idle))
    }
}

#[cfg(feature = "serde")]
profiler_base::serialize_fields!(Step<'_>, "Step", |step| {
    "number": step.number,
    "start_ns": ns(step.range.start()),
    "host_ns": ns(step.host_time()),
    "period_ns": step.period.map(ns),
    "gpu_ns": ns(step.gpu_time()),
    "busy_ns": ns(step.busy_time()),
    "idle_ns": ns(step.idle()),
    "totals": step.totals,
});

/// The steps of a run in start order.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(transparent))]
pub struct Steps<'a> {
    steps: Vec<Step<'a>>,
}

impl Profile {
    /// The outermost instances of the ranges of this name, path or pattern as steps, in start order
    /// on all threads. Costs O(n log n) in their operations.
    pub fn steps(&self, path: &str) -> Steps<'_> {
        self.steps_where(&self.outermost(&Pattern::new(path)))
    }

    /// The instances of one outermost range only.
    pub fn steps_of(&self, root: &RangeNode<'_>) -> Steps<'_> {
        let is_step: Vec<bool> = self.nodes().map(|node| node.id == root.id).collect();
        self.steps_where(&is_step)
    }

    fn steps_where(&self, is_step: &[bool]) -> Steps<'_> {
        let of_range = &self.tree.of_range;
        let rows = (0..self.store.ranges.len() as u32).map(RangeId);
        let mut ranges: Vec<RangeId> = rows.filter(|id| is_step[of_range[id.at()].at()]).collect();
        self.store.sort_ranges(&mut ranges);
        // Steps of several processes alternate.
        let process =
            |id: &RangeId| self.store.threads[self.store.ranges[id.at()].thread.at()].process;
        let mut next: Vec<Option<RangeId>> = vec![None; ranges.len()];
        let mut later: FxHashMap<u32, RangeId> = FxHashMap::default();
        for (next, id) in next.iter_mut().zip(&ranges).rev() {
            *next = later.insert(process(id), *id);
        }
        let step = |(number, (&id, next)): (usize, (&RangeId, Option<RangeId>))| {
            let range = Range { profile: self, id };
            let mut operations: Vec<OperationId> = self.tree.operations(id).collect();
            operations.sort_unstable();
            let by_start = operations.into_iter().map(|id| self.operation(id));
            let next = next.map(|id| Range { profile: self, id });
            Step {
                number,
                range,
                totals: range.inclusive(),
                devices: device_times(self, by_start),
                period: next.map(|next| next.start().saturating_sub(range.start())),
            }
        };
        Steps { steps: ranges.iter().zip(next).enumerate().map(step).collect() }
    }
}

impl<'a> Steps<'a> {
    getters! {
        /// The steps.
        iter: std::slice::Iter<'_, Step<'a>> = steps.iter();
        /// The steps.
        as_slice: &[Step<'a>] = steps;
        /// The number of steps.
        len: usize = steps.len();
        /// True if there are no steps.
        is_empty: bool = steps.is_empty();
    }

    /// Statistics of a time that each step has: `steps.statistics(Step::gpu_time)`.
    pub fn statistics(&self, of: impl Fn(&Step<'a>) -> Duration) -> Statistics {
        Statistics::from_nanos(self.steps.iter().map(|step| ns(of(step))).collect())
    }

    /// Steps that differ from the median by over `deviations` median absolute deviations.
    pub fn outliers(&self, deviations: f64, of: impl Fn(&Step<'a>) -> Duration) -> Vec<&Step<'a>> {
        let times = self.statistics(&of);
        let (median, deviation) = (ns(times.median()), ns(times.median_absolute_deviation()));
        let most = deviations * deviation as f64;
        let is_far = |step: &&Step<'a>| ns(of(step)).abs_diff(median) as f64 > most;
        self.steps.iter().filter(is_far).collect()
    }

    /// The number of warm-up steps at the beginning, at most half of all steps. Warm-up ends at the
    /// first usual step from which on at least three of four consecutive steps are usual. A step is
    /// usual if its host time is not far above the median of the later half. The limit is 5
    /// standard deviations (estimated by the median absolute deviation) above it, or a tenth if
    /// that is more.
    pub fn warm_up(&self) -> usize {
        let times: Vec<u64> = self.steps.iter().map(|step| ns(step.host_time())).collect();
        statistics::warm_up(&times)
    }

    /// The steps after the [warm-up](Self::warm_up).
    #[must_use]
    pub fn warm(&self) -> Self {
        Self { steps: self.steps[self.warm_up()..].to_vec() }
    }
}

iterate!(Steps<'a>: Step<'a>);

impl fmt::Display for Steps<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            return f.write_str("no steps");
        }
        let warm = self.warm();
        writeln!(f, "{} steps, {} of them warm-up; the others:", self.len(), self.warm_up())?;
        writeln!(f, "host time: {}", warm.statistics(Step::host_time))?;
        writeln!(f, "GPU time: {}", warm.statistics(Step::gpu_time))?;
        writeln!(f, "busy: {}", warm.statistics(Step::busy_time))?;
        writeln!(f, "idle: {}", warm.statistics(Step::idle))?;
        match warm.steps.iter().max_by_key(|step| step.host_time()) {
            Some(step) => write!(f, "slowest: {}, {}", step.number, time(step.host_time())),
            None => Ok(()),
        }
    }
}
