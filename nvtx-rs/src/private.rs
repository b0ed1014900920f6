//! All that the expansions of the macros may touch. Outside semver: it changes with them.
//!
//! The expansion has to compile in every edition that a caller may use:
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

/// Whether a tool or observer is active, or no tool was searched yet. Costs one load.
#[inline]
#[must_use]
pub fn is_active() -> bool {
    !state::is_idle()
}

/// Calls a closure that may move what it captured into its result: called where it is written it would be taken for one
/// that is called again.
#[inline]
pub fn call<R>(f: impl FnOnce() -> R) -> R {
    f()
}

impl CallSite {
    /// Whether a tool or observer is active, or no tool was searched yet. Costs one load.
    #[inline]
    pub fn is_active(&self) -> bool {
        is_active()
    }

    /// Starts a range of this thread.
    #[inline]
    pub fn range(&'static self) -> Range {
        if state::is_idle() { Range::NONE } else { Range::begin_site(self, self.name()) }
    }

    /// Starts a range of this thread with what `describe` adds; it runs only if a tool or observer is active.
    #[inline]
    pub fn range_with<'a>(&'static self, describe: impl FnOnce(Event<'a>) -> Event<'a>) -> Range {
        if is_active() { describe(self.event()).range() } else { Range::NONE }
    }

    /// Starts a range of the process.
    #[inline]
    pub fn process_range(&'static self) -> ProcessRange {
        ProcessRange::start(move || self.event())
    }

    /// Starts a range of the process with what `describe` adds; it runs only if a tool or observer is active.
    #[inline]
    pub fn process_range_with<'a>(
        &'static self,
        describe: impl FnOnce(Event<'a>) -> Event<'a>,
    ) -> ProcessRange {
        if is_active() { describe(self.event()).process_range() } else { ProcessRange::NONE }
    }

    /// Marks a moment.
    #[inline]
    pub fn mark(&'static self) {
        if is_active() {
            self.event().mark();
        }
    }

    /// Starts a range of this thread of a name that [`Name::new`] made.
    #[cold]
    pub fn range_of(&'static self, name: &Name) -> Range {
        match name {
            Name::Literal(name) => Range::begin_site(self, name),
            Name::Formatted(name) => Range::begin_named(self.domain(), name),
        }
    }

    /// Describes an event of a name that [`Name::new`] made.
    #[cold]
    pub fn event_of<'a>(&'static self, name: &'a Name) -> Event<'a> {
        match name {
            Name::Literal(name) => self.event_named(name),
            Name::Formatted(name) => Event::in_domain(self.domain(), name),
        }
    }
}

/// A name as the macros take it.
#[derive(Debug)]
pub enum Name {
    /// Without arguments: it is the same for all events of a place.
    Literal(&'static str),
    /// With arguments.
    Formatted(String),
}

impl Name {
    /// Formats the name, unless it is a literal.
    #[cold]
    #[must_use]
    pub fn new(name: Arguments<'_>) -> Name {
        match name.as_str() {
            Some(name) => Name::Literal(name),
            None => Name::Formatted(name.to_string()),
        }
    }
}

/// What the macros expand to, when no tool or observer is active.
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

    /// Nothing.
    #[inline]
    pub fn mark() {}
}
