//! The items that macro expansions use. Not covered by semver.
//!
//! Expansions compile in every edition:
//!
#![cfg_attr(feature = "macros", doc = "```edition2018")]
#![cfg_attr(not(feature = "macros"), doc = "```ignore")]
//! #[nvtx::annotate]
//! fn work() -> Result<u32, std::num::ParseIntError> { "7".parse() }
//! assert_eq!(work(), Ok(7));
//! ```
//!
#![cfg_attr(feature = "macros", doc = "```edition2021")]
#![cfg_attr(not(feature = "macros"), doc = "```ignore")]
//! #[nvtx::annotate]
//! fn work() -> Result<u32, std::num::ParseIntError> { "7".parse() }
//! assert_eq!(work(), Ok(7));
//! ```

use std::fmt::Arguments;

use crate::event::Event;
use crate::range::{ProcessRange, Range};
use crate::state;

pub use std::boxed::Box;
pub use std::option::Option::{self, None, Some};
pub use std::{concat, format_args, module_path};

pub use crate::call_site::CallSite;
pub use crate::instrument::InRange;

/// True if a tool or observer is active, or no search for a tool has run yet. Costs one load.
#[inline]
#[must_use]
pub fn is_active() -> bool {
    !state::is_idle()
}

/// Calls a closure once, so that it may move captured values into its result. A direct call would
/// be inferred as `Fn`.
#[inline]
pub fn call<R>(f: impl FnOnce() -> R) -> R {
    f()
}

impl CallSite {
    /// True if a tool or observer is active, or no search for a tool has run yet. Costs one load.
    #[inline]
    pub fn is_active(&self) -> bool {
        is_active()
    }

    /// Starts a range of this thread.
    #[inline]
    pub fn range(&'static self) -> Range {
        if state::is_idle() { Range::NONE } else { Range::begin_site(self, self.name()) }
    }

    /// Starts a range of this thread. `describe` adds details and runs only if a tool or observer
    /// is active.
    #[inline]
    pub fn range_with<'a>(&'static self, describe: impl FnOnce(Event<'a>) -> Event<'a>) -> Range {
        if is_active() { describe(self.event()).range() } else { Range::NONE }
    }

    /// Starts a range of the process.
    #[inline]
    pub fn process_range(&'static self) -> ProcessRange {
        ProcessRange::start(move || self.event())
    }

    /// Starts a range of the process. `describe` adds details and runs only if a tool or observer
    /// is active.
    #[inline]
    pub fn process_range_with<'a>(
        &'static self,
        describe: impl FnOnce(Event<'a>) -> Event<'a>,
    ) -> ProcessRange {
        if is_active() { describe(self.event()).process_range() } else { ProcessRange::NONE }
    }

    /// Records a mark.
    #[inline]
    pub fn mark(&'static self) {
        if is_active() {
            self.event().mark();
        }
    }

    /// Starts a range of this thread with this name.
    #[cold]
    pub fn range_of(&'static self, name: &Name) -> Range {
        match name {
            Name::Literal(name) => Range::begin_site(self, name),
            Name::Formatted(name) => Range::begin_named(self.domain(), name),
        }
    }

    /// Describes an event with this name.
    #[cold]
    pub fn event_of<'a>(&'static self, name: &'a Name) -> Event<'a> {
        match name {
            Name::Literal(name) => self.event_named(name),
            Name::Formatted(name) => Event::in_domain(self.domain(), name),
        }
    }
}

/// A name in a macro.
#[derive(Debug)]
pub enum Name {
    /// Without arguments: the same for all events of a call site.
    Literal(&'static str),
    /// With arguments.
    Formatted(String),
}

impl Name {
    /// Formats the name unless it is a literal.
    #[cold]
    #[must_use]
    pub fn new(name: Arguments<'_>) -> Name {
        match name.as_str() {
            Some(name) => Name::Literal(name),
            None => Name::Formatted(name.to_string()),
        }
    }
}

/// The functions of expansions without an active tool or observer.
pub mod idle {
    use crate::range::{ProcessRange, Range};

    /// A range that is not recorded.
    #[inline]
    pub fn range() -> Range {
        Range::NONE
    }

    /// A range that is not recorded.
    #[inline]
    pub fn process_range() -> ProcessRange {
        ProcessRange::NONE
    }

    /// Does nothing.
    #[inline]
    pub fn mark() {}
}
