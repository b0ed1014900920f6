//! Registered strings: texts that a tool stores.

use crate::domain::{DomainKeep, DomainRef};
use crate::event::Event;
use crate::range::{ProcessRange, Range};
use crate::state;
use crate::sys::types::Handle;

/// A text registered with the tool, for repeated names. Made by
/// [`Domain::register`](crate::Domain::register) and [`register`](crate::register).
///
/// The text and its events belong to its domain. Tools store registered texts until the process
/// ends: do not register computed names. The macros and [`annotate`](macro@crate::annotate)
/// register literal names.
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

    /// The tool's handle, if this is the text's domain.
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

    /// Records a mark.
    #[inline]
    pub fn mark(&self) {
        if !state::is_idle() {
            self.event().mark();
        }
    }
}
