//! Synchronisation: calls that wait, their targets and durations.

use std::fmt;
use std::time::Duration;

use profiler_base::aggregate::{Aggregate, Groups};
use profiler_base::getters;
use profiler_base::kernel_names::Pattern;
use rustc_hash::FxHashMap;

use super::group::RangePath;
use crate::join::tables::{Call, CallId, Synchronization};
use crate::profile::{ApiCall, Profile, Range};

/// The target of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum WaitTarget {
    /// All work of a stream, by CUPTI's ids.
    Stream {
        /// The process, by the kernel's id; 0 if it recorded itself.
        process: u32,
        /// The stream's context.
        context: u32,
        /// The stream.
        stream: u32,
    },
    /// An event, by CUPTI's ids. Requires CUPTI's own records of waits
    /// ([`Config::synchronizations_from_calls`](cupti::Config::synchronizations_from_calls) off, or
    /// the kind `CUDA_EVENT`); otherwise waits for events are [`Unknown`](Self::Unknown).
    Event {
        /// The process, as above.
        process: u32,
        /// The event's context.
        context: u32,
        /// The event.
        event: u32,
    },
    /// All work of a context, by CUPTI's id.
    Context {
        /// The process, as above.
        process: u32,
        /// The context.
        context: u32,
    },
    /// No record has the target.
    Unknown,
}

impl fmt::Display for WaitTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let process = match self {
            Self::Stream { process, context, stream } => {
                write!(f, "stream {stream} of context {context}")?;
                process
            }
            Self::Event { process, context, event } => {
                write!(f, "event {event} of context {context}")?;
                process
            }
            Self::Context { process, context } => {
                write!(f, "context {context}")?;
                process
            }
            Self::Unknown => return f.write_str("(unknown)"),
        };
        match process {
            0 => Ok(()),
            process => write!(f, " of process {process}"),
        }
    }
}

/// A call that blocked the host until the GPU reached some point.
#[derive(Debug, Clone, Copy)]
pub struct Wait<'a> {
    call: ApiCall<'a>,
    target: WaitTarget,
}

impl<'a> Wait<'a> {
    getters! {
        /// The call.
        call: ApiCall<'a> = call;
        /// The range of the call.
        range: Option<Range<'a>> = call.range();
        /// The target (`CUpti_ActivitySynchronization`).
        target: WaitTarget = target;
        /// The start since the session's start.
        start: Duration = call.start();
        /// The host time; until the stop or snapshot if the call had not returned.
        time: Duration = call.time_until_stop();
    }
}

/// The calls counted by [`Totals::synchronizations`](crate::profile::Totals::synchronizations),
/// with their targets. Blocking copies are not included.
#[derive(Debug, Clone)]
pub struct Waits<'a> {
    waits: Vec<Wait<'a>>,
}

impl Profile {
    /// The calls that blocked the host, by thread in call order.
    pub fn waits(&self) -> Waits<'_> {
        let store = &self.store;
        let is_wait = |call: &Call| {
            let kind = store.call_kind(call);
            kind.class == cupti::CallClass::Synchronize && !kind.is_failure()
        };
        let records: FxHashMap<CallId, WaitTarget> = store
            .synchronizations
            .iter()
            .filter_map(|row| Some((row.call.get()?, target(row))))
            .collect();
        let calls = (0..store.calls.len() as u32).map(CallId);
        let wait = |id| {
            let target = records.get(&id).copied().unwrap_or(WaitTarget::Unknown);
            Wait { call: self.call(id), target }
        };
        Waits { waits: calls.filter(|id| is_wait(&store.calls[id.at()])).map(wait).collect() }
    }
}

fn target(row: &Synchronization) -> WaitTarget {
    let (record, process) = (&row.record, row.process);
    let context = record.context;
    match (record.kind, record.stream, record.event) {
        (cupti::SynchronizationKind::Stream, Some(stream), _) => {
            WaitTarget::Stream { process, context, stream }
        }
        (cupti::SynchronizationKind::Event, _, Some(event)) => {
            WaitTarget::Event { process, context, event }
        }
        (cupti::SynchronizationKind::Context, ..) => WaitTarget::Context { process, context },
        _ => WaitTarget::Unknown,
    }
}

impl<'a> Waits<'a> {
    /// The waits.
    pub fn iter(&self) -> impl Iterator<Item = Wait<'a>> {
        self.waits.iter().copied()
    }

    /// The number of waits.
    pub fn count(&self) -> u64 {
        self.waits.len() as u64
    }

    /// The host time, summed over threads.
    pub fn time(&self) -> Duration {
        super::sum(self.waits.iter().map(Wait::time))
    }

    /// The waits in ranges of this name, path or pattern, or in their descendants.
    #[must_use]
    pub fn in_range(&self, path: &str) -> Self {
        let pattern = Pattern::new(path);
        let Some(first) = self.waits.first() else { return Self { waits: Vec::new() } };
        let profile = first.call.profile;
        let matching = profile.matching(&pattern);
        let within = profile.is_within(&matching);
        let is_in = |wait: &&Wait<'a>| {
            let node = wait.range().map(|range| range.node().id.at());
            node.is_some_and(|node| matching[node] || within[node])
        };
        Self { waits: self.waits.iter().filter(is_in).copied().collect() }
    }

    /// Groups by the path of the range of the call.
    pub fn by_range(&self) -> Groups<RangePath<'a>> {
        let mut groups = Aggregate::default();
        for wait in &self.waits {
            groups.add(RangePath::of_call(&wait.call), Some(super::ns(wait.time())), 0);
        }
        groups.ranked()
    }
}
