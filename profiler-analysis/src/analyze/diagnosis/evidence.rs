//! Evidence of statements: moments of the profile.

use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

use profiler_base::statistics::as_ns;
use profiler_base::units::{PATH_WIDTH, shortened, time};
use serde::Serialize;

use profiler_core::profile::{ApiCall, GpuOperation, Profile};
use profiler_core::query::Span;
use profiler_core::tables::{CallId, Interval, OperationId};

/// A time span of the profile that supports a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Moment {
    /// Time since the session's start.
    #[serde(flatten)]
    pub span: Span,
    /// The operation that ran or that ended the idle time: its [`number`](GpuOperation::number).
    pub operation: Option<usize>,
    /// The host's call: its index in [`Profile::calls`].
    pub call: Option<usize>,
}

impl Moment {
    pub(super) fn new(
        profile: &Profile,
        time: Interval,
        operation: Option<OperationId>,
        call: Option<CallId>,
    ) -> Self {
        let (start, end) = (profile.since_start(time.start_ns), profile.since_start(time.end_ns));
        let (operation, call) = (operation.map(OperationId::at), call.map(CallId::at));
        Self { span: Span { start, end }, operation, call }
    }

    /// The operation, given the diagnosed profile.
    pub fn operation<'a>(&self, profile: &'a Profile) -> Option<GpuOperation<'a>> {
        let id = self.operation.filter(|id| *id < profile.tables().operations.len())?;
        Some(profile.operation(OperationId(id as u32)))
    }

    /// The call, given the diagnosed profile.
    pub fn call<'a>(&self, profile: &'a Profile) -> Option<ApiCall<'a>> {
        let id = self.call.filter(|id| *id < profile.tables().calls.len())?;
        Some(profile.call(CallId(id as u32)))
    }
}

/// The stack of a thread in idle times, by samples, or at their end, with the sum of these times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct IdleStack {
    /// The functions of the program, innermost first: see
    /// [`HostStack::frames`](profiler_core::profile::HostStack::frames).
    pub frames: Vec<String>,
    /// The state of the thread, by samples; `None` if the stack is from the end of the idle time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The idle time.
    #[serde(rename = "cost_ns", serialize_with = "as_ns")]
    pub cost: Duration,
}

/// The number of frames that a line shows.
const SHOWN_FRAMES: usize = 4;

impl fmt::Display for IdleStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<_> =
            self.frames.iter().take(SHOWN_FRAMES).map(|name| shortened(name, PATH_WIDTH)).collect();
        let more = if self.frames.len() > SHOWN_FRAMES { " < ..." } else { "" };
        let cost = time(self.cost);
        let shown = shown.join(" < ");
        match &self.state {
            Some(state) if shown.is_empty() => write!(f, "{cost}: {state}"),
            Some(state) => write!(f, "{cost}: {state}, in {shown}{more}"),
            None => write!(f, "{cost}: ended by {shown}{more}"),
        }
    }
}

/// The moments that support a statement: their number, and the longest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Evidence {
    /// Number of moments.
    pub count: u64,
    /// The longest moments: [`Thresholds::evidence`](super::Thresholds::evidence) of them.
    pub longest: Vec<Moment>,
}

/// Collects moments and retains the longest. Memory does not grow with the number of moments.
pub(super) struct Longest {
    most: usize,
    count: u64,
    moments: Vec<Moment>,
    /// Shorter moments are not among the longest.
    least: Duration,
}

impl Longest {
    /// The number of moments beyond the limit before they are dropped together.
    const BEYOND: usize = 1_024;

    pub(super) fn new(most: usize) -> Self {
        Self { most, count: 0, moments: Vec::new(), least: Duration::ZERO }
    }

    pub(super) fn push(&mut self, moment: Moment) {
        self.count += 1;
        if moment.span.duration() < self.least {
            return;
        }
        self.moments.push(moment);
        if self.moments.len() >= self.most.saturating_add(Self::BEYOND) {
            self.drop_shorter();
        }
    }

    /// Among moments of equal length and start, the earlier ones are retained.
    fn drop_shorter(&mut self) {
        let time = |moment: &Moment| moment.span.duration();
        self.moments.sort_by_key(|moment| (Reverse(time(moment)), moment.span.start));
        self.moments.truncate(self.most);
        let last = self.moments.last().filter(|_| self.moments.len() == self.most);
        self.least = last.map_or(self.least, time);
    }

    pub(super) fn finish(mut self) -> Evidence {
        self.drop_shorter();
        Evidence { count: self.count, longest: self.moments }
    }
}

impl Evidence {
    /// Retains the `most` longest.
    pub(super) fn new(moments: Vec<Moment>, most: usize) -> Self {
        let mut longest = Longest::new(most);
        moments.into_iter().for_each(|moment| longest.push(moment));
        longest.finish()
    }

    /// The operations of the retained moments, given the diagnosed profile.
    pub fn operations<'a>(&self, profile: &'a Profile) -> impl Iterator<Item = GpuOperation<'a>> {
        self.longest.iter().filter_map(move |moment| moment.operation(profile))
    }

    /// The calls of the retained moments, given the diagnosed profile.
    pub fn calls<'a>(&self, profile: &'a Profile) -> impl Iterator<Item = ApiCall<'a>> {
        self.longest.iter().filter_map(move |moment| moment.call(profile))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_moments_match_a_sort_of_all() {
        let mut rng = fastrand::Rng::with_seed(44);
        for most in [0, 1, 7, 50] {
            let moment = |number: usize| {
                let [start, took] = [rng.u64(..200), rng.u64(..40)].map(Duration::from_nanos);
                let span = Span { start, end: start + took };
                Moment { span, operation: Some(number), call: None }
            };
            let moments: Vec<Moment> = (0..5_000).map(moment).collect();
            let mut sorted = moments.clone();
            sorted.sort_by_key(|moment| (Reverse(moment.span.duration()), moment.span.start));
            sorted.truncate(most);
            assert_eq!(Evidence::new(moments, most), Evidence { count: 5_000, longest: sorted });
        }
    }
}
