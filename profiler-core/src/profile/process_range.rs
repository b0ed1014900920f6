//! Ranges of the process: they may overlap, end on another thread than they began, and hold stays of many threads.

use std::time::Duration;

use crate::base::totals::Totals;
use crate::join::tables::{self, ProcessRangeId, Subject};
use crate::profile::labels::{Described, described_methods};
use crate::profile::{Profile, Range};

/// One range of the process, such as the life of a future or a request.
///
/// No work is put down to it by time. Its work is that of its [`stays`](Self::stays): the ranges of threads of which the
/// program said that they belong to it, as the polls of an annotated `async fn` do.
#[derive(Debug, Clone, Copy)]
pub struct ProcessRange<'a> {
    profile: &'a Profile,
    id: ProcessRangeId,
}

described_methods!(ProcessRange);

impl<'a> ProcessRange<'a> {
    fn row(&self) -> &'a tables::ProcessRange {
        &self.profile.store.process_ranges[self.id.at()]
    }

    fn described(&self) -> Described<'a> {
        let (store, label) = (&self.profile.store, self.row().label);
        Described { store, label, subject: Subject::ProcessRange(self.id) }
    }

    /// When it began, since the session's start.
    pub fn start(&self) -> Duration {
        self.profile.since_start(self.row().time.start_ns)
    }

    /// From its start to its end; until the stop, if it had not ended. Its stays together may be much shorter.
    pub fn host_time(&self) -> Duration {
        Duration::from_nanos(self.row().time.ns())
    }

    /// True if it had not ended at the stop.
    pub fn is_open(&self) -> bool {
        self.row().end_thread.is_none()
    }

    /// The kernel's id of the thread it began on.
    pub fn thread_id(&self) -> u32 {
        self.profile.store.threads[self.row().thread.at()].id
    }

    /// The kernel's id of the thread it ended on; `None` if it had not ended.
    pub fn end_thread_id(&self) -> Option<u32> {
        Some(self.profile.store.threads[self.row().end_thread?.at()].id)
    }

    /// The range of its thread in which it began.
    #[must_use]
    pub fn parent(&self) -> Option<Range<'a>> {
        self.row().parent.map(|id| Range { profile: self.profile, id })
    }

    /// The ranges of threads that are stays in it, on whatever thread, by start.
    pub fn stays(&self) -> impl Iterator<Item = Range<'a>> {
        let profile = self.profile;
        profile.tree.stays[self.id.at()].iter().map(|&id| Range { profile, id })
    }

    /// What was asked for in its stays and in ranges within them. Sums it up each time.
    pub fn inclusive(&self) -> Totals {
        self.profile.tree.of_process_range(&self.profile.store, self.id)
    }
}

impl Profile {
    /// Every range of the process, by the thread it began on and there in the order they began.
    pub fn process_ranges(&self) -> impl Iterator<Item = ProcessRange<'_>> {
        let rows = 0..self.store.process_ranges.len() as u32;
        rows.map(|row| ProcessRange { profile: self, id: ProcessRangeId(row) })
    }
}

impl<'a> Range<'a> {
    /// The range of the process that it is a stay in.
    #[must_use]
    pub fn process_range(&self) -> Option<ProcessRange<'a>> {
        let id = self.described().details()?.within?;
        Some(ProcessRange { profile: self.profile, id })
    }
}
