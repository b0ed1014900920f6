//! Idle gaps of a device, and what the host did during them.

use std::fmt;
use std::time::Duration;

use cupti::CallClass;
use rustc_hash::FxHashMap;

use super::group::{CallThread, Grouping, Groups, RangePath};
use super::timeline::Timeline;
use super::{Query, Span, ns};
use crate::base::accessors::getters;
use crate::base::order;
use crate::base::text::{printable, serialize_as_text, serialize_fields};
use crate::base::units::time;
use crate::join::busy::Sweep;
use crate::join::segments::within;
use crate::join::tables::{CallId, Interval, RangeId};
use crate::profile::{GpuOperation, HostStack, Profile, Range};

/// Why a device was idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IdleReason<'a> {
    /// The submitting thread was in this call: an allocation, a wait, the launch.
    Call(&'a str, CallClass),
    /// The thread was in no call: the program computed, waited or read data.
    Host,
    /// The call that submitted the next operation had returned: the work was in transit or waited.
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

serialize_as_text!(IdleCause<'_>);

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
        Span {
            start: self.profile.since_start(self.time.start_ns),
            end: self.profile.since_start(self.time.end_ns),
        }
    }

    getters! {
        /// The device's CUDA ordinal.
        device: u32 = after.device();
        /// The operation whose end started the gap.
        before: GpuOperation<'a> = before;
        /// The operation whose start ended the gap. The activity of its submitting thread is the cause.
        after: GpuOperation<'a> = after;
        /// The length of the gap.
        duration: Duration = Duration::from_nanos(time.ns());
    }

    /// Where the thread that ended the gap was when it submitted the next operation. `None` without stacks, if that operation
    /// had been submitted shortly after another one, or if its call is unknown.
    pub fn stack(&self) -> Option<HostStack<'a>> {
        self.after.call()?.host_stack()
    }
}

serialize_fields!(Gap<'_>, "Gap", |gap| {
    "device": gap.device(),
    "span": gap.span(),
    "before": gap.before.number(),
    "after": gap.after.number(),
});

/// A thread's main activity during a gap.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct HostActivity<'a> {
    /// The thread.
    pub thread: CallThread<'a>,
    /// The CUDA function with the most time, and that time. `None` if the thread made no call.
    pub call: Option<(&'a str, Duration)>,
    /// The time in any call.
    pub in_calls: Duration,
    /// The innermost range with the most time, and that time. `None` outside any range.
    pub range: Option<(Range<'a>, Duration)>,
}

/// The gaps of a query by device and time, with host activity.
///
/// Operations are matched to calls exactly. Host and GPU times are comparable up to the error of
/// CUPTI's clock ([`Health::clock_error_ns`](crate::Health::clock_error_ns)), so shorter gaps have
/// uncertain causes.
#[derive(Debug)]
pub struct Gaps<'a> {
    profile: &'a Profile,
    gaps: Vec<Gap<'a>>,
    timeline: Timeline,
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
        Gaps { profile, gaps, timeline: Timeline::new(&profile.store) }
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
    /// operation. Times add up to those of the gaps; counts are of gaps with the cause.
    pub fn by_cause(&self) -> Groups<IdleCause<'a>> {
        let mut groups = Grouping::new();
        for gap in &self.gaps {
            for (cause, ns) in self.causes_ns(gap) {
                groups.add(cause, Some(ns), 0);
            }
        }
        groups.finish()
    }

    /// The causes of one gap in the order they began. Times add up to the gap.
    pub fn causes(&self, gap: &Gap<'a>) -> Vec<(IdleCause<'a>, Duration)> {
        let causes = self.causes_ns(gap);
        causes.into_iter().map(|(cause, ns)| (cause, Duration::from_nanos(ns))).collect()
    }

    fn causes_ns(&self, gap: &Gap<'a>) -> Vec<(IdleCause<'a>, u64)> {
        let mut causes: Vec<(IdleCause<'a>, u64)> = Vec::new();
        self.visit_causes(gap, |cause, ns, _| {
            match causes.iter_mut().find(|(known, _)| *known == cause) {
                Some((_, sum)) => *sum = sum.saturating_add(ns),
                None => causes.push((cause, ns)),
            }
        });
        causes
    }

    /// The parts of the gaps with their causes, and for those that [`Gap::stack`] accounts for the stack: the time in no call
    /// and in the call that ended the gap.
    #[cfg(feature = "analysis")]
    pub(crate) fn for_each_part(
        &self,
        mut visit: impl FnMut(&Gap<'a>, IdleCause<'a>, u64, Option<HostStack<'a>>),
    ) {
        for gap in &self.gaps {
            let stack = gap.stack();
            self.visit_causes(gap, |cause, ns, is_at_stack| {
                visit(gap, cause, ns, stack.filter(|_| is_at_stack));
            });
        }
    }

    /// Visits the parts of a gap: their cause, time, and whether the thread was on its way to the call that ended the gap.
    fn visit_causes(&self, gap: &Gap<'a>, mut visit: impl FnMut(IdleCause<'a>, u64, bool)) {
        let store = &self.profile.store;
        let mut add = |reason, range: Option<RangeId>, ns: u64, is_at_stack| {
            let node = range.map(|id| Range { profile: self.profile, id }.node());
            if ns != 0 {
                visit(IdleCause { reason, range: RangePath::new(node) }, ns, is_at_stack);
            }
        };
        let Some(call_id) = gap.after.row().call.get() else {
            add(IdleReason::Unknown, None, gap.time.ns(), false);
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
            let is_at_stack = piece.call.is_none_or(|id| id == call_id);
            add(reason, piece.range, piece.time.ns(), is_at_stack);
        }
        add(IdleReason::Queued, call.range.get(), gap.time.end_ns - until, false);
    }

    /// The activity of each thread during a gap; threads without calls and ranges are excluded.
    pub fn threads_during(&self, gap: &Gap<'a>) -> Vec<HostActivity<'a>> {
        let store = &self.profile.store;
        let lanes = store.threads.iter().zip(&self.timeline.lanes);
        let activity = |(thread, lane): (&'a _, &super::timeline::Lane)| {
            let name = |id: CallId| store.call_kind(&store.calls[id.at()]).name;
            let calls = within(&lane.calls, gap.time);
            let (in_calls, call) = longest(calls.map(|piece| (name(piece.of), piece.time.ns())));
            let ranges = within(&lane.ranges, gap.time);
            let (_, range) = longest(ranges.map(|piece| (piece.of, piece.time.ns())));
            let is_there = call.is_some() || range.is_some();
            let ns = Duration::from_nanos;
            let range = range.map(|(id, time)| (Range { profile: self.profile, id }, ns(time)));
            let call = call.map(|(name, time)| (store.names.get(name), ns(time)));
            let (thread, in_calls) = (CallThread::new(thread), ns(in_calls));
            is_there.then_some(HostActivity { thread, call, in_calls, range })
        };
        lanes.filter_map(activity).collect()
    }
}

/// The total, and the key with the most of it; the first of equal ones.
fn longest<K: Copy + Eq + std::hash::Hash>(
    parts: impl Iterator<Item = (K, u64)>,
) -> (u64, Option<(K, u64)>) {
    let mut sums: Vec<(K, u64)> = Vec::new();
    let mut places: FxHashMap<K, usize> = FxHashMap::default();
    let mut total = 0;
    for (key, ns) in parts {
        total = ns.saturating_add(total);
        let place = *places.entry(key).or_insert(sums.len());
        match sums.get_mut(place) {
            Some((_, sum)) => *sum = sum.saturating_add(ns),
            None => sums.push((key, ns)),
        }
    }
    (total, sums.into_iter().rev().max_by_key(|(_, ns)| *ns))
}

impl fmt::Display for Gaps<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} gaps, idle for {}", self.count(), time(self.time()))?;
        if self.gaps.is_empty() { Ok(()) } else { write!(f, "\n{}", self.by_cause()) }
    }
}
