//! Texts that a tool was handed once.

use crate::domain::{DomainKeep, DomainRef};
use crate::event::Event;
use crate::range::{ProcessRange, Range};
use crate::state;
use crate::sys::types::Handle;

/// A text that the tool keeps, for events that say it often. Made by
/// [`Domain::register`](crate::Domain::register) and [`register`](crate::register).
///
/// It is of its domain, and so are its events. Tools keep registered texts for the life of the
/// process: register what is known beforehand, not what is computed. The macros and
/// [`annotate`](macro@crate::annotate) register their literal names by themselves.
///
/// ```
/// let step = nvtx::register("step");
/// for _ in 0..3 {
///     let _range = step.range();
/// }
/// ```
#[derive(Clone, Debug)]
pub struct RegisteredString {
    text: Box<str>,
    handle: Option<Handle>,
    domain: DomainKeep,
}

impl RegisteredString {
    pub(crate) fn new(domain: DomainRef<'_>, text: &str) -> RegisteredString {
        let handle = if state::has_tool() { domain.register(text) } else { None };
        RegisteredString { text: text.into(), handle, domain: domain.keep() }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The tool's handle, in its own domain.
    pub(crate) fn handle_in(&self, domain: DomainRef<'_>) -> Option<Handle> {
        self.handle.filter(|_| self.domain.as_ref().is(domain))
    }

    /// Describes an event of this name.
    #[inline]
    pub fn event(&self) -> Event<'_> {
        Event::registered(self.domain.as_ref(), &self.text, self.handle)
    }

    /// Starts a range of this thread.
    #[inline]
    pub fn range(&self) -> Range {
        if state::is_idle() { Range::NONE } else { Range::begin_event(self.event()) }
    }

    /// Starts a range that may end on any thread.
    #[inline]
    pub fn process_range(&self) -> ProcessRange {
        ProcessRange::start(move || self.event())
    }

    /// Marks a moment.
    #[inline]
    pub fn mark(&self) {
        if !state::is_idle() {
            self.event().mark();
        }
    }
}
