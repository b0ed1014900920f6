//! Synchronisation: who waited, for what, and for how long.

use std::fmt;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::group::{self, Groups, RangePath};
use crate::base::kernel_names::Pattern;
use crate::join::tables::{Call, CallId};
use crate::profile::{ApiCall, Profile, Range};

/// What the host waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum WaitTarget {
    /// For all work of a stream, by CUPTI's ids.
    Stream {
        /// The stream's context.
        context: u32,
        /// The stream.
        stream: u32,
    },
    /// For an event, by CUPTI's ids.
    Event {
        /// The event's context.
        context: u32,
        /// The event.
        event: u32,
    },
    /// For all work of a context, by CUPTI's id.
    Context(u32),
    /// There is no record of it.
    Unknown,
}

impl fmt::Display for WaitTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream { context, stream } => write!(f, "stream {stream} of context {context}"),
            Self::Event { context, event } => write!(f, "event {event} of context {context}"),
            Self::Context(context) => write!(f, "context {context}"),
            Self::Unknown => f.write_str("(unknown)"),
        }
    }
}

/// A call that blocked the host until the GPU got somewhere.
#[derive(Debug, Clone, Copy)]
pub struct Wait<'a> {
    call: ApiCall<'a>,
    target: WaitTarget,
}

impl<'a> Wait<'a> {
    /// The call, with its thread.
    pub fn call(&self) -> ApiCall<'a> {
        self.call
    }

    /// The range in which it was made.
    #[must_use]
    pub fn range(&self) -> Option<Range<'a>> {
        self.call.range()
    }

    /// What was waited for (`CUpti_ActivitySynchronization`).
    pub fn target(&self) -> WaitTarget {
        self.target
    }

    /// When it began, since the session's start.
    pub fn start(&self) -> Duration {
        self.call.start()
    }

    /// How long it took on the host; up to the stop, or the snapshot, if it had not returned.
    pub fn time(&self) -> Duration {
        self.call.time_until_stop()
    }
}

/// All waits: the calls that [`Totals::synchronizations`](crate::profile::Totals::synchronizations) counts, with what they waited
/// for. Copies that block the host are not among them.
#[derive(Debug, Clone)]
pub struct Waits<'a> {
    waits: Vec<Wait<'a>>,
}

impl Profile {
    /// The calls that blocked the host until the GPU got somewhere, by thread and in the order they were made.
    pub fn waits(&self) -> Waits<'_> {
        let store = &self.store;
        let is_wait = |call: &Call| {
            let kind = store.call_kind(call);
            kind.class == cupti::CallClass::Synchronize && !kind.is_failure()
        };
        let records: FxHashMap<CallId, WaitTarget> = store
            .synchronizations
            .iter()
            .filter_map(|row| Some((row.call?, target(&row.record))))
            .collect();
        let rows = (0..store.calls.len() as u32).map(CallId);
        let waits = rows
            .filter(|id| is_wait(&store.calls[id.at()]))
            .map(|id| Wait {
                call: self.call(id),
                target: records.get(&id).copied().unwrap_or(WaitTarget::Unknown),
            })
            .collect();
        Waits { waits }
    }
}

fn target(record: &cupti::Synchronization) -> WaitTarget {
    let context = record.context;
    match (record.kind, record.stream, record.event) {
        (cupti::SynchronizationKind::Stream, Some(stream), _) => {
            WaitTarget::Stream { context, stream }
        }
        (cupti::SynchronizationKind::Event, _, Some(event)) => WaitTarget::Event { context, event },
        (cupti::SynchronizationKind::Context, ..) => WaitTarget::Context(context),
        _ => WaitTarget::Unknown,
    }
}

impl<'a> Waits<'a> {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = Wait<'a>> {
        self.waits.iter().copied()
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.waits.len() as u64
    }

    /// The host time in them, summed over threads.
    pub fn time(&self) -> Duration {
        self.waits.iter().map(Wait::time).fold(Duration::ZERO, Duration::saturating_add)
    }

    /// Those in ranges of this name, path or pattern, or within them.
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

    /// By the path of the range they were made in directly.
    pub fn by_range(&self) -> Groups<RangePath<'a>> {
        group::of_waits(self.iter(), |wait| RangePath::of_call(&wait.call))
    }

    /// By function.
    pub fn by_call(&self) -> Groups<&'a str> {
        group::of_waits(self.iter(), |wait| wait.call.name())
    }

    /// By what was waited for.
    pub fn by_target(&self) -> Groups<WaitTarget> {
        group::of_waits(self.iter(), Wait::target)
    }
}
