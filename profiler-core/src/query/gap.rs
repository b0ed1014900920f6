//! Idle gaps of a device, and the host's activity during them.

use std::fmt;
use std::time::Duration;

use cupti::CallClass;
use profiler_base::aggregate::{Aggregate, Groups};
use profiler_base::display::{DisplayOptions, Layout};
use profiler_base::display_by_default_layout;
use profiler_base::text::printable;
use profiler_base::units::time;
use profiler_base::{getters, order};
use rustc_hash::FxHashMap;

use super::group::RangePath;
use super::timeline::HostTimeline;
use super::{Query, Span, ns};
use crate::join::busy::Sweep;
use crate::join::tables::{HostPart, Interval, RangeId};
use crate::profile::{GpuOperation, HostStack, HostState, Profile, Range};

/// The reason why a device was idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IdleReason<'a> {
    /// The submitting thread was in this call: an allocation, a wait, the launch.
    Call(&'a str, CallClass),
    /// The thread was in no call: the program computed, waited or read data.
    Host,
    /// The call that submitted the next operation had returned: the work was in transit or queued.
    Queued,
    /// The call of the next operation is unknown.
    Unknown,
}

/// The reason of an idle time, and its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct IdleCause<'a> {
    /// The reason.
    pub reason: IdleReason<'a>,
    /// The thread's innermost range; for queued work, the range of its call.
    pub range: RangePath<'a>,
}

impl fmt::Display for IdleReason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdleReason::Call(name, _) => write!(f, "host in {}", printable(name)),
            IdleReason::Host => f.write_str("host in no CUDA call"),
            IdleReason::Queued => f.write_str("work launched, not started"),
            IdleReason::Unknown => f.write_str("not known"),
        }
    }
}

impl fmt::Display for IdleCause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)?;
        match self.range.node() {
            _ if self.reason == IdleReason::Unknown => Ok(()),
            Some(_) => write!(f, ", in {}", self.range),
            None => f.write_str(", outside any range"),
        }
    }
}

#[cfg(feature = "serde")]
profiler_base::serialize_as_text!(IdleCause<'_>);

/// A time in which no selected operation ran on a device, between two that did.
#[derive(Debug, Clone, Copy)]
pub struct Gap<'a> {
    profile: &'a Profile,
    time: Interval,
    before: GpuOperation<'a>,
    after: GpuOperation<'a>,
}

impl<'a> Gap<'a> {
    /// The interval since the session's start.
    pub fn span(&self) -> Span {
        Span::since_start(self.profile, self.time)
    }

    getters! {
        /// The device's CUDA ordinal.
        device: u32 = after.device();
        /// The operation whose end started the gap.
        before: GpuOperation<'a> = before;
        /// The operation whose start ended the gap. The activity of its submitting thread is the
        /// cause.
        after: GpuOperation<'a> = after;
        /// The length of the gap.
        duration: Duration = Duration::from_nanos(time.ns());
    }

    /// The stack of the thread that ended the gap, when it submitted the next operation. `None`
    /// without stacks, if the thread had submitted another operation shortly before, or if the call
    /// is unknown.
    pub fn stack(&self) -> Option<HostStack<'a>> {
        self.after.call()?.host_stack()
    }

    /// The activity in the gap of the thread that submitted the next operation, in order. Requires
    /// a session with [`Sampling::host`](crate::Sampling). Times without a sample are omitted.
    pub fn samples(&self) -> Vec<GapSample<'a>> {
        let store = &self.profile.store;
        let Some(call) = self.after.row().call.get() else { return Vec::new() };
        let parts = store.host_parts(store.calls[call.at()].thread, self.time);
        let sample = |part: HostPart| GapSample {
            span: Span::since_start(self.profile, part.time),
            state: HostState::new(store, &part),
            stack: HostStack::of_part(store, &part),
        };
        parts.map(sample).collect()
    }
}

#[cfg(feature = "serde")]
profiler_base::serialize_fields!(Gap<'_>, "Gap", |gap| {
    "device": gap.device(),
    "span": gap.span(),
    "before": gap.before.number(),
    "after": gap.after.number(),
});

/// The state and stack of the thread that ended a gap, in a part of the gap.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct GapSample<'a> {
    /// The part, since the session's start.
    pub span: Span,
    /// The thread's state.
    pub state: HostState<'a>,
    /// The thread's stack; `None` if it could not be taken.
    pub stack: Option<HostStack<'a>>,
}

/// A wait of a thread within gaps, with its system call and range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct GapWait<'a> {
    /// The system call, and the kernel's function.
    pub state: HostState<'a>,
    /// The thread's innermost range.
    pub range: RangePath<'a>,
}

impl fmt::Display for GapWait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.range.node() {
            Some(_) => write!(f, "{}, in {}", self.state, self.range),
            None => write!(f, "{}, outside any range", self.state),
        }
    }
}

#[cfg(feature = "serde")]
profiler_base::serialize_as_text!(GapWait<'_>);

/// A part of a gap with one cause, as far as the thread's activity in it is known.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct GapPart<'a> {
    /// The cause of the idle time.
    pub cause: IdleCause<'a>,
    /// Its length.
    pub ns: u64,
    /// The stack of a sample. Without one, the stack of the call that ended the gap, if the thread
    /// was on its way to that call.
    pub stack: Option<HostStack<'a>>,
    /// The state of the thread in a sample.
    pub state: Option<HostState<'a>>,
}

/// The gaps of a query by device and time, with host activity.
///
/// Operations are matched to calls exactly. Host and GPU times are comparable up to the error of
/// CUPTI's clock ([`Facts::clock_error`](crate::profile::Facts::clock_error)), so shorter gaps have
/// uncertain causes.
#[derive(Debug)]
pub struct Gaps<'a> {
    profile: &'a Profile,
    gaps: Vec<Gap<'a>>,
    timeline: HostTimeline,
}

impl<'a> Query<'a> {
    /// The times of at least `shortest` in which no operation ran on a device, between two that
    /// did. Costs a pass over operations, calls and ranges.
    pub fn gaps(&self, shortest: Duration) -> Gaps<'a> {
        let profile = self.profile;
        let shortest = ns(shortest);
        let mut devices: FxHashMap<u32, (Sweep, GpuOperation<'a>)> = FxHashMap::default();
        let mut gaps = Vec::new();
        for after in self.iter() {
            let Some(time) = after.interval() else { continue };
            let Some((sweep, last)) = devices.get_mut(&after.device()) else {
                devices.insert(after.device(), (Sweep::new(time), after));
                continue;
            };
            let ends_last = time.end_ns > sweep.end_ns;
            if let Some(time) = sweep.add(time).filter(|gap| gap.ns() >= shortest) {
                gaps.push(Gap { profile, time, before: *last, after });
            }
            if ends_last {
                *last = after;
            }
        }
        order::sort_by_key(&mut gaps, |gap| (gap.device(), gap.time.start_ns));
        Gaps { profile, gaps, timeline: HostTimeline::new(&profile.store) }
    }
}

impl<'a> Gaps<'a> {
    /// The gaps.
    pub fn iter(&self) -> impl Iterator<Item = Gap<'a>> {
        self.gaps.iter().copied()
    }

    /// The number of gaps.
    pub fn count(&self) -> u64 {
        self.gaps.len() as u64
    }

    /// The sum of their lengths.
    pub fn time(&self) -> Duration {
        super::sum(self.gaps.iter().map(Gap::duration))
    }

    /// The `count` longest gaps, longest first.
    pub fn longest(&self, count: usize) -> Vec<Gap<'a>> {
        let mut gaps = self.gaps.clone();
        order::sort_by_number(&mut gaps, |gap| !gap.time.ns());
        gaps.truncate(count);
        gaps
    }

    /// Divides the gaps among their causes: the activity of the thread that submitted the next
    /// operation. Times add up to the total gap time; counts are of gaps with the cause.
    pub fn by_cause(&self) -> Groups<IdleCause<'a>> {
        let mut groups = Aggregate::default();
        for gap in &self.gaps {
            for (cause, ns) in self.causes_ns(gap) {
                groups.add(cause, Some(ns), 0);
            }
        }
        groups.ranked()
    }

    /// The causes of one gap in the order they began. Times add up to the gap.
    pub fn causes(&self, gap: &Gap<'a>) -> Vec<(IdleCause<'a>, Duration)> {
        let causes = self.causes_ns(gap);
        causes.into_iter().map(|(cause, ns)| (cause, Duration::from_nanos(ns))).collect()
    }

    fn causes_ns(&self, gap: &Gap<'a>) -> Vec<(IdleCause<'a>, u64)> {
        let mut causes: Vec<(IdleCause<'a>, u64)> = Vec::new();
        self.visit_parts(gap, |GapPart { cause, ns, .. }| {
            match causes.iter_mut().find(|(known, _)| *known == cause) {
                Some((_, sum)) => *sum = sum.saturating_add(ns),
                None => causes.push((cause, ns)),
            }
        });
        causes
    }

    /// Divides the time that threads waited in gaps by system call and range: the blocking system
    /// calls of each range. Requires a session with [`Sampling::host`](crate::Sampling); counts are
    /// of parts of gaps.
    pub fn waits(&self) -> Groups<GapWait<'a>> {
        let mut groups = Aggregate::default();
        for gap in &self.gaps {
            self.visit_parts(gap, |part| {
                if let Some(state) = part.state.filter(|state| state.is_waiting()) {
                    groups.add(GapWait { state, range: part.cause.range }, Some(part.ns), 0);
                }
            });
        }
        groups.ranked()
    }

    /// The parts of the gaps.
    pub fn for_each_part(&self, mut visit: impl FnMut(&Gap<'a>, GapPart<'a>)) {
        for gap in &self.gaps {
            self.visit_parts(gap, |part| visit(gap, part));
        }
    }

    /// Visits the parts of a gap. Parts that were not sampled have the stack of the call that ended
    /// the gap if [`Gap::stack`] accounts for them: the time in no call and in that call.
    fn visit_parts(&self, gap: &Gap<'a>, mut visit: impl FnMut(GapPart<'a>)) {
        let store = &self.profile.store;
        let at_end = gap.stack();
        let mut add = |reason, range: Option<RangeId>, ns: u64, stack, state| {
            let node = range.map(|id| Range { profile: self.profile, id }.node());
            if ns != 0 {
                let cause = IdleCause { reason, range: RangePath::new(node) };
                visit(GapPart { cause, ns, stack, state });
            }
        };
        let Some(call_id) = gap.after.row().call.get() else {
            add(IdleReason::Unknown, None, gap.time.ns(), None, None);
            return;
        };
        let call = &store.calls[call_id.at()];
        let returned_ns = match store.call_kind(call).has_returned {
            true => call.time.end_ns,
            false => u64::MAX,
        };
        // Until the launch returns, the thread's activity is the cause; then the work is queued.
        let until = returned_ns.clamp(gap.time.start_ns, gap.time.end_ns);
        let host = Interval { start_ns: gap.time.start_ns, end_ns: until };
        for piece in self.timeline.host(store, call.thread, host) {
            let reason = match piece.call {
                Some(id) => {
                    let kind = store.call_kind(&store.calls[id.at()]);
                    IdleReason::Call(store.names.get(kind.name), kind.class)
                }
                None => IdleReason::Host,
            };
            let is_at_end = piece.call.is_none_or(|id| id == call_id);
            let at_end = at_end.filter(|_| is_at_end);
            let mut left_ns = piece.time.ns();
            for part in store.host_parts(call.thread, piece.time) {
                let (ns, state) = (part.time.ns(), HostState::new(store, &part));
                left_ns = left_ns.saturating_sub(ns);
                let stack = HostStack::of_part(store, &part).or(at_end);
                add(reason, piece.range, ns, stack, Some(state));
            }
            add(reason, piece.range, left_ns, at_end, None);
        }
        add(IdleReason::Queued, call.range.get(), gap.time.end_ns - until, None, None);
    }
}

impl DisplayOptions for Gaps<'_> {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} gaps, idle for {}", self.count(), time(self.time()))?;
        if self.gaps.is_empty() {
            return Ok(());
        }
        f.write_str("; their parts by cause:\n")?;
        self.by_cause().write_in(layout, f)
    }
}

display_by_default_layout!(Gaps<'_>);
