//! Calls into CUDA.

use std::time::Duration;

use super::{Profile, Range};
use crate::join::tables::{self, Api, CallKind, Interval};

/// A call into CUDA, of the driver API or of the runtime API.
#[derive(Debug, Clone, Copy)]
pub struct ApiCall<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) row: &'a tables::Call,
}

impl<'a> ApiCall<'a> {
    fn kind(&self) -> &'a CallKind {
        self.profile.store.call_kind(self.row)
    }

    /// The function's name, such as `cuLaunchKernel`.
    pub fn name(&self) -> &'a str {
        self.profile.store.names.get(self.kind().name)
    }

    /// What it does.
    pub fn class(&self) -> cupti::CallClass {
        self.kind().class
    }

    /// Of which API it is.
    pub fn api(&self) -> Api {
        self.kind().api
    }

    /// The id that the work it caused has too.
    pub fn correlation_id(&self) -> u32 {
        self.row.correlation_id
    }

    /// When it was called, since the session's start.
    pub fn start(&self) -> Duration {
        self.profile.since_start(self.row.time.start_ns)
    }

    /// When it returned, since the session's start. `None` if it had not at the stop, or at the snapshot.
    pub fn end(&self) -> Option<Duration> {
        self.kind().has_returned.then(|| self.profile.since_start(self.row.time.end_ns))
    }

    /// How long it took on the host. `None` if it had not returned at the stop, or at the snapshot.
    pub fn host_time(&self) -> Option<Duration> {
        self.kind().has_returned.then(|| Duration::from_nanos(self.row.time.ns()))
    }

    /// How long it took on the host, until the session's end if it had not returned.
    pub(crate) fn time_until_stop(&self) -> Duration {
        let stop = self.profile.store.session.window_ns.1;
        self.host_time()
            .unwrap_or_else(|| Duration::from_nanos(stop.saturating_sub(self.row.time.start_ns)))
    }

    /// Its `CUresult` or `cudaError_t`; 0 is success.
    pub fn result(&self) -> u32 {
        self.kind().result
    }

    /// True if it returned an error. A query that says "not yet" returned none.
    pub fn is_failure(&self) -> bool {
        self.kind().is_failure()
    }

    /// True if it made a node of a CUDA graph instead of doing its work (stream capture).
    pub fn is_captured(&self) -> bool {
        self.kind().captured
    }

    /// The kernel's id of the thread that made it.
    pub fn thread_id(&self) -> u32 {
        self.profile.store.threads[self.row.thread.at()].id
    }

    /// The kernel's id of its process; 0 if one process was recorded, by itself.
    pub fn process_id(&self) -> u32 {
        self.profile.store.threads[self.row.thread.at()].process
    }

    /// The range in which it was made.
    #[must_use]
    pub fn range(&self) -> Option<Range<'a>> {
        let profile = self.profile;
        self.row.range.get().map(|id| Range { profile, id })
    }

    /// All ranges that it belongs to, each once: first [`range`](Self::range), for which it counts, and then those that were
    /// [joined](crate::Context::join) with it. Mostly one, and none outside of ranges.
    pub fn ranges(&self) -> impl Iterator<Item = Range<'a>> + Clone + use<'a> {
        let profile = self.profile;
        let others = profile.store.shares_of(self.row).iter();
        self.range().into_iter().chain(others.map(move |&id| Range { profile, id }))
    }

    /// True if it belongs to several ranges.
    pub fn is_shared(&self) -> bool {
        !self.profile.store.shares_of(self.row).is_empty()
    }

    /// Where and when it was, in the store's terms.
    pub(crate) fn interval(&self) -> Interval {
        self.row.time
    }
}
