//! Marks: named points in time.

use std::time::Duration;

use crate::join::tables::{self, MarkId, Subject};
use crate::profile::labels::{Labelled, label_methods};
use crate::profile::{Profile, Range};

/// A named point in time.
#[derive(Debug, Clone, Copy)]
pub struct Mark<'a> {
    profile: &'a Profile,
    id: MarkId,
}

label_methods!(Mark);

impl<'a> Mark<'a> {
    fn row(&self) -> &'a tables::Mark {
        &self.profile.store.marks[self.id.at()]
    }

    /// The time since the session's start.
    pub fn at(&self) -> Duration {
        self.profile.since_start(self.row().at_ns)
    }

    /// The innermost open range of its thread.
    pub fn range(&self) -> Option<Range<'a>> {
        self.row().parent.map(|id| Range { profile: self.profile, id })
    }
}

impl Profile {
    /// All marks, by thread in time order.
    pub fn marks(&self) -> impl Iterator<Item = Mark<'_>> {
        let rows = 0..self.store.marks.len() as u32;
        rows.map(|row| Mark { profile: self, id: MarkId(row) })
    }
}
