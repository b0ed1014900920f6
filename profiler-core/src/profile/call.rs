//! Calls into CUDA.

use std::time::Duration;

use profiler_base::getters;

use super::{Profile, Range};
use crate::join::tables::{self, Api, CallId, CallKind, Interval, Maybe};

/// A call into CUDA's driver or runtime API.
#[derive(Debug, Clone, Copy)]
pub struct ApiCall<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) row: &'a tables::Call,
    /// `None` for calls of the runtime API that made a driver call.
    pub(crate) id: Maybe<CallId>,
}

impl<'a> ApiCall<'a> {
    fn kind(&self) -> &'a CallKind {
        self.profile.store.call_kind(self.row)
    }

    /// The function's name, such as `cuLaunchKernel`.
    pub fn name(&self) -> &'a str {
        self.profile.store.names.get(self.kind().name)
    }

    getters! {
        /// The class of the function.
        class: cupti::CallClass = kind().class;
        /// The API of the function.
        api: Api = kind().api;
        /// The id shared with the work it submitted.
        correlation_id: u32 = row.correlation_id;
        /// Its `CUresult` or `cudaError_t`; 0 is success.
        result: u32 = kind().result;
        /// True if it returned an error. A query that returns "not ready" is no failure.
        is_failure: bool = kind().is_failure();
        /// True if it created a node of a CUDA graph instead of running (stream capture).
        is_captured: bool = kind().captured;
        /// The interval in the store's clock.
        interval: Interval = row.time;
    }

    /// The start since the session's start.
    pub fn start(&self) -> Duration {
        self.profile.since_start(self.row.time.start_ns)
    }

    /// The return since the session's start. `None` if it had not returned at the stop or snapshot.
    pub fn end(&self) -> Option<Duration> {
        self.kind().has_returned.then(|| self.profile.since_start(self.row.time.end_ns))
    }

    /// The host time. `None` if it had not returned at the stop or snapshot.
    pub fn host_time(&self) -> Option<Duration> {
        self.kind().has_returned.then(|| Duration::from_nanos(self.row.time.ns()))
    }

    /// The host time; until the session's end if it had not returned.
    pub(crate) fn time_until_stop(&self) -> Duration {
        let stop_ns = self.profile.store.session.window_ns.1;
        let so_far = Duration::from_nanos(stop_ns.saturating_sub(self.row.time.start_ns));
        self.host_time().unwrap_or(so_far)
    }

    /// The kernel's id of its thread.
    pub fn thread_id(&self) -> u32 {
        self.profile.store.threads[self.row.thread.at()].id
    }

    /// The kernel's process id; 0 if the process recorded itself.
    pub fn process_id(&self) -> u32 {
        self.profile.store.threads[self.row.thread.at()].process
    }

    /// The range of the call.
    pub fn range(&self) -> Option<Range<'a>> {
        self.row.range.get().map(|id| Range { profile: self.profile, id })
    }

    /// The ranges that it is attributed to, innermost first, if an ancestor of its range excludes
    /// it.
    pub fn late_chain(&self) -> Option<impl Iterator<Item = Range<'a>> + use<'a>> {
        let profile = self.profile;
        let chain = profile.tree.late_chain(&profile.store, self.row)?;
        Some(chain.map(move |id| Range { profile, id }))
    }

    /// The inferred range: see [`Profile::with_inferred_ranges`]. `None` if the call has a range,
    /// or none was inferred.
    pub fn inferred_range(&self) -> Option<Range<'a>> {
        let id = self.profile.store.inferred_range_of(self.id)?;
        Some(Range { profile: self.profile, id })
    }

    /// All ranges of the call, without duplicates: first [`range`](Self::range), to which it is
    /// attributed, then those [joined](crate::Context::join) with it.
    pub fn ranges(&self) -> impl Iterator<Item = Range<'a>> + Clone + use<'a> {
        let profile = self.profile;
        let others = profile.store.shares_of(self.row).iter();
        self.range().into_iter().chain(others.map(move |&id| Range { profile, id }))
    }

    /// True if it has several ranges.
    pub fn is_shared(&self) -> bool {
        !self.profile.store.shares_of(self.row).is_empty()
    }
}
