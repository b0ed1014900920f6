//! Marks: events without a duration.

use crate::event::{Event, event};
use crate::{emit, observer, state};

impl Event<'_> {
    /// Records the event as a mark.
    #[inline]
    pub fn mark(self) {
        if !state::is_idle() {
            self.mark_now();
        }
    }

    #[cold]
    #[inline(never)]
    fn mark_now(self) {
        let state = state::current();
        if state & state::TOOL != 0 {
            emit::mark(&self);
        }
        if state & state::OBSERVER != 0 {
            observer::mark(&self.start());
        }
    }
}

/// Records a mark in the default domain.
///
/// ```
/// nvtx::mark("cache miss");
/// ```
#[inline]
pub fn mark(name: &str) {
    if !state::is_idle() {
        event(name).mark_now();
    }
}
