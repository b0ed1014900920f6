//! Marks: moments that a program named.

use std::time::Duration;

use crate::join::tables::{self, MarkId, Subject};
use crate::profile::labels::{Described, described_methods};
use crate::profile::{Profile, Range};

/// A moment that was marked.
#[derive(Debug, Clone, Copy)]
pub struct Mark<'a> {
    profile: &'a Profile,
    id: MarkId,
}

described_methods!(Mark);

impl<'a> Mark<'a> {
    fn row(&self) -> &'a tables::Mark {
        &self.profile.store.marks[self.id.at()]
    }

    fn described(&self) -> Described<'a> {
        let (store, label) = (&self.profile.store, self.row().label);
        Described { store, label, subject: Subject::Mark(self.id) }
    }

    /// When, since the session's start.
    pub fn at(&self) -> Duration {
        self.profile.since_start(self.row().at_ns)
    }

    /// The kernel's id of its thread.
    pub fn thread_id(&self) -> u32 {
        self.profile.store.threads[self.row().thread.at()].id
    }

    /// The range of its thread that was open.
    #[must_use]
    pub fn range(&self) -> Option<Range<'a>> {
        self.row().parent.map(|id| Range { profile: self.profile, id })
    }
}

impl Profile {
    /// Every mark, by thread and in order.
    pub fn marks(&self) -> impl Iterator<Item = Mark<'_>> {
        let rows = 0..self.store.marks.len() as u32;
        rows.map(|row| Mark { profile: self, id: MarkId(row) })
    }
}
