//! Steps of a run: the instances of one range, one after the other, compared.

use std::fmt;
use std::time::Duration;

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use super::{DeviceTimes, Span, device_times, ns};
use crate::base::kernel_names::Pattern;
use crate::base::statistics::Statistics;
use crate::base::totals::Totals;
use crate::base::units::time;
use crate::join::tables::{OperationId, RangeId};
use crate::profile::{Profile, Range, RangeNode, Sampled, Track};

/// One instance of the range, with what was asked for in it and within.
#[derive(Debug, Clone)]
pub struct Step<'a> {
    number: usize,
    range: Range<'a>,
    totals: Totals,
    devices: Vec<DeviceTimes>,
    period: Option<Duration>,
}

impl<'a> Step<'a> {
    /// Its number, from 0.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The range.
    #[must_use]
    pub fn range(&self) -> Range<'a> {
        self.range
    }

    /// How long the host was in it.
    pub fn host_time(&self) -> Duration {
        self.range.host_time()
    }

    /// From its start to that of the next step. `None` for the last one.
    pub fn period(&self) -> Option<Duration> {
        self.period
    }

    /// What was asked for in it and within.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The times of its operations, summed.
    pub fn gpu_time(&self) -> Duration {
        self.totals.gpu_time()
    }

    /// What its operations came to on each device.
    pub fn devices(&self) -> &[DeviceTimes] {
        &self.devices
    }

    /// What a total came to in it: see [`Range::sum`].
    pub fn sum(&self, track: &Track<'_>) -> Option<Sampled> {
        self.range.sum(track)
    }

    /// What was sampled in it: see [`Range::mean`].
    pub fn mean(&self, track: &Track<'_>) -> Option<Sampled> {
        self.range.mean(track)
    }

    /// From the first start to the last end of its operations. `None` if there are none with timestamps.
    pub fn gpu_span(&self) -> Option<Span> {
        let start = self.devices.iter().map(|device| device.span.start).min()?;
        let end = self.devices.iter().map(|device| device.span.end).max()?;
        Some(Span { start, end })
    }

    /// The time in which at least one of its operations ran that is no collective, summed over devices.
    pub fn busy_time(&self) -> Duration {
        self.devices.iter().map(|device| device.busy).fold(Duration::ZERO, Duration::saturating_add)
    }

    /// The time in which none of its operations ran, between its first and its last, summed over devices.
    pub fn idle(&self) -> Duration {
        let idle = |device: &DeviceTimes| device.idle();
        self.devices.iter().map(idle).fold(Duration::ZERO, Duration::saturating_add)
    }
}

impl Serialize for Step<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Step", 8)?;
        out.serialize_field("number", &self.number)?;
        out.serialize_field("start_ns", &ns(self.range.start()))?;
        out.serialize_field("host_ns", &ns(self.host_time()))?;
        out.serialize_field("period_ns", &self.period.map(ns))?;
        out.serialize_field("gpu_ns", &ns(self.gpu_time()))?;
        out.serialize_field("busy_ns", &ns(self.busy_time()))?;
        out.serialize_field("idle_ns", &ns(self.idle()))?;
        out.serialize_field("totals", &self.totals)?;
        out.end()
    }
}

/// The steps of a run, in the order they began.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Steps<'a> {
    steps: Vec<Step<'a>>,
}

/// The scale at which the median absolute deviation of normally distributed times is their standard deviation.
const NORMAL: f64 = 1.4826;
/// By how many of these a step of the warm-up is longer than the others.
const WARM_UP_DEVIATIONS: f64 = 5.0;
/// And by what part of their median, so that steps that hardly differ do not look cold for it.
const WARM_UP_SHARE: f64 = 0.1;

impl Profile {
    /// The instances of the ranges of this name, path or pattern as steps, in the order they began, whatever thread they
    /// are of. One within another is a part of that, not a step. Costs O(n log n) in their operations.
    pub fn steps(&self, path: &str) -> Steps<'_> {
        self.steps_where(&self.outermost(&Pattern::new(path)))
    }

    /// The instances of one outermost range, and of no other of its name.
    pub(crate) fn steps_of(&self, root: &RangeNode<'_>) -> Steps<'_> {
        let is_step: Vec<bool> = self.nodes().map(|node| node.id == root.id).collect();
        self.steps_where(&is_step)
    }

    fn steps_where(&self, is_step: &[bool]) -> Steps<'_> {
        let of_range = &self.tree.of_range;
        let rows = (0..self.store.ranges.len() as u32).map(RangeId);
        let mut ranges: Vec<RangeId> = rows.filter(|id| is_step[of_range[id.at()].at()]).collect();
        self.store.sort_ranges(&mut ranges);
        let step = |(number, &id): (usize, &RangeId)| {
            let range = Range { profile: self, id };
            let mut operations: Vec<OperationId> = self.tree.operations(id).collect();
            operations.sort_unstable();
            let by_start = operations.into_iter().map(|id| self.operation(id));
            let next = ranges.get(number + 1).map(|&id| Range { profile: self, id });
            Step {
                number,
                range,
                totals: range.inclusive(),
                devices: device_times(self, by_start),
                period: next.map(|next| next.start().saturating_sub(range.start())),
            }
        };
        Steps { steps: ranges.iter().enumerate().map(step).collect() }
    }
}

impl<'a> Steps<'a> {
    /// Each of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Step<'a>> {
        self.steps.iter()
    }

    /// The steps.
    pub fn as_slice(&self) -> &[Step<'a>] {
        &self.steps
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Of a time that each step has: `steps.statistics(Step::gpu_time)`.
    pub fn statistics(&self, of: impl Fn(&Step<'a>) -> Duration) -> Statistics {
        Statistics::of_ns(self.steps.iter().map(|step| ns(of(step))).collect())
    }

    /// The steps whose time is further from the median of all than `deviations` times the median absolute deviation.
    pub fn outliers(&self, deviations: f64, of: impl Fn(&Step<'a>) -> Duration) -> Vec<&Step<'a>> {
        let times = self.statistics(&of);
        let (median, deviation) = (ns(times.median()), ns(times.median_absolute_deviation()));
        let most = deviations * deviation as f64;
        let is_far = |step: &&Step<'a>| ns(of(step)).abs_diff(median) as f64 > most;
        self.steps.iter().filter(is_far).collect()
    }

    /// How many of the first steps are warm-up: those up to the first that takes no longer than usual on the host. Usual is
    /// what the later half takes: their median and 5 standard deviations more (told by the median absolute deviation), at
    /// least a tenth. At most the first half can be warm-up.
    pub fn warm_up(&self) -> usize {
        let half = self.steps.len() / 2;
        let (first, later) = self.steps.split_at(half);
        let later = Steps { steps: later.to_vec() }.statistics(Step::host_time);
        let median = ns(later.median()) as f64;
        let deviation = ns(later.median_absolute_deviation()) as f64;
        let more = (WARM_UP_DEVIATIONS * NORMAL * deviation).max(WARM_UP_SHARE * median);
        let is_usual = |step: &Step<'_>| ns(step.host_time()) as f64 <= median + more;
        first.iter().position(is_usual).unwrap_or(half)
    }

    /// The steps after the [warm-up](Self::warm_up).
    #[must_use]
    pub fn warm(&self) -> Self {
        Self { steps: self.steps[self.warm_up()..].to_vec() }
    }
}

impl<'s, 'a> IntoIterator for &'s Steps<'a> {
    type Item = &'s Step<'a>;
    type IntoIter = std::slice::Iter<'s, Step<'a>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

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
        let slowest = warm.steps.iter().max_by_key(|step| step.host_time());
        match slowest {
            Some(step) => write!(f, "slowest: {}, {}", step.number, time(step.host_time())),
            None => Ok(()),
        }
    }
}
