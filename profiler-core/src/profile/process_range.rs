//! Process ranges: they may overlap, end on another thread, and have activations on many threads.

use std::time::Duration;

use crate::base::accessors::getters;
use crate::base::totals::Totals;
use crate::join::tables::{self, ProcessRangeId, Subject};
use crate::profile::labels::{Labelled, label_methods};
use crate::profile::{Profile, Range};

/// A process range, such as the life of a future or a request.
///
/// Work is not attributed to it by time. Its work is that of its
/// [`activations`](Self::activations): the thread ranges that the program assigned to it, as an
/// annotated `async fn` does with its polls.
#[derive(Debug, Clone, Copy)]
pub struct ProcessRange<'a> {
    profile: &'a Profile,
    id: ProcessRangeId,
}

label_methods!(ProcessRange);

impl<'a> ProcessRange<'a> {
    fn row(&self) -> &'a tables::ProcessRange {
        &self.profile.store.process_ranges[self.id.at()]
    }

    fn labelled(&self) -> Labelled<'a> {
        let (store, label) = (&self.profile.store, self.row().label);
        Labelled { store, label, subject: Subject::ProcessRange(self.id) }
    }

    /// The start since the session's start.
    pub fn start(&self) -> Duration {
        self.profile.since_start(self.row().time.start_ns)
    }

    getters! {
        /// From its start to its end, or to the stop if open. Its activations may cover less.
        host_time: Duration = Duration::from_nanos(row().time.ns());
        /// True if it had not ended at the stop.
        is_open: bool = row().end_thread.is_none();
    }

    /// The kernel's id of the thread that started it.
    pub fn thread_id(&self) -> u32 {
        self.profile.store.threads[self.row().thread.at()].id
    }

    /// The kernel's process id; 0 if the process recorded itself.
    pub fn process_id(&self) -> u32 {
        self.profile.store.threads[self.row().thread.at()].process
    }

    /// The kernel's id of the thread that ended it; `None` if it had not ended.
    pub fn end_thread_id(&self) -> Option<u32> {
        Some(self.profile.store.threads[self.row().end_thread?.at()].id)
    }

    /// The enclosing range on the thread that started it.
    pub fn parent(&self) -> Option<Range<'a>> {
        self.row().parent.map(|id| Range { profile: self.profile, id })
    }

    /// The thread ranges that activated it, on any thread, by start.
    pub fn activations(&self) -> impl Iterator<Item = Range<'a>> {
        let profile = self.profile;
        profile.tree.activations[self.id.at()].iter().map(|&id| Range { profile, id })
    }

    /// The totals of its activations with their descendants. Summed on each call.
    pub fn inclusive(&self) -> Totals {
        self.profile.tree.of_process_range(&self.profile.store, self.id)
    }
}

impl Profile {
    /// All process ranges, by starting thread in start order.
    pub fn process_ranges(&self) -> impl Iterator<Item = ProcessRange<'_>> {
        let rows = 0..self.store.process_ranges.len() as u32;
        rows.map(|row| ProcessRange { profile: self, id: ProcessRangeId(row) })
    }
}

impl<'a> Range<'a> {
    /// The process range that this range is an activation of.
    pub fn process_range(&self) -> Option<ProcessRange<'a>> {
        let id = self.labelled().details()?.within?;
        Some(ProcessRange { profile: self.profile, id })
    }
}
