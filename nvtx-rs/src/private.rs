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
use std::sync::OnceLock;

use crate::domain::{Domain, DomainRef};
use crate::event::Event;
use crate::state;
use crate::string;
use crate::sys::types::{EventAttributes, Handle, Message};
use crate::told::Told;
use crate::{ProcessRange, Range};

pub use std::boxed::Box;
pub use std::option::Option::{self, None, Some};
pub use std::{concat, format_args, module_path};

pub use crate::instrument::InRange;

/// Whether anyone looks, or may look: it costs one load.
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

/// A place in a program that makes events of one name. The tool is handed the name once.
#[derive(Debug)]
pub struct CallSite {
    /// `None` until the macro knows it, as with [`CallSite::unnamed`].
    name: Option<&'static str>,
    domain: Option<&'static Domain>,
    /// The name that was registered, and what the tool calls it.
    registered: OnceLock<(&'static str, Option<Registered>)>,
}

impl CallSite {
    /// A call site of the default domain.
    #[must_use]
    pub const fn new(name: &'static str) -> CallSite {
        CallSite { name: Some(name), domain: None, registered: OnceLock::new() }
    }

    /// A call site of `domain`.
    #[must_use]
    pub const fn in_domain(name: &'static str, domain: &'static Domain) -> CallSite {
        CallSite { name: Some(name), domain: Some(domain), registered: OnceLock::new() }
    }

    /// A call site whose name comes with the first event.
    #[must_use]
    pub const fn unnamed() -> CallSite {
        CallSite { name: None, domain: None, registered: OnceLock::new() }
    }

    /// As [`CallSite::unnamed`], in `domain`.
    #[must_use]
    pub const fn unnamed_in_domain(domain: &'static Domain) -> CallSite {
        CallSite { name: None, domain: Some(domain), registered: OnceLock::new() }
    }

    /// Whether anyone looks, or may look: it costs one load.
    #[inline]
    #[must_use]
    pub fn is_active(&self) -> bool {
        is_active()
    }

    /// Starts a range of this thread.
    #[inline]
    pub fn range(&'static self) -> Range {
        if state::is_idle() {
            Range::NONE
        } else {
            Range::begin_site(self, self.name.unwrap_or_default())
        }
    }

    /// Starts a range of this thread with what `describe` adds; it runs only if somebody looks.
    #[inline]
    pub fn range_with<'a>(&'static self, describe: impl FnOnce(Event<'a>) -> Event<'a>) -> Range {
        if is_active() { describe(self.event()).range() } else { Range::NONE }
    }

    /// Starts a range of the process.
    #[inline]
    pub fn process_range(&'static self) -> ProcessRange {
        ProcessRange::start(move || self.event())
    }

    /// Starts a range of the process with what `describe` adds; it runs only if somebody looks.
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

    /// Describes an event of this place.
    #[cold]
    pub fn event(&'static self) -> Event<'static> {
        self.event_named(self.name.unwrap_or_default())
    }

    /// What the tool gets of a range with this name and no more; `None` where it does not take names beforehand, or the
    /// place has another name. A place has one name; should it ever have two, the second is not registered.
    #[inline]
    pub(crate) fn registered(&'static self, name: &'static str) -> Option<&'static Registered> {
        let (of, registered) = self.registered.get_or_init(|| (name, self.register(name)));
        registered.as_ref().filter(|_| std::ptr::eq(*of, name) || *of == name)
    }

    #[cold]
    #[inline(never)]
    fn register(&'static self, name: &'static str) -> Option<Registered> {
        let domain = DomainRef::of(self.domain);
        string::register(domain, name).map(|name| Registered::new(domain, name))
    }

    pub(crate) fn event_named(&'static self, name: &'static str) -> Event<'static> {
        let handle = if state::has_tool() { self.registered(name) } else { None };
        Event::registered(DomainRef::of(self.domain), name, handle.map(Registered::name))
    }

    /// Starts a range of this thread of a name that [`Name::new`] made.
    #[cold]
    pub fn range_of(&'static self, name: &Name) -> Range {
        match name {
            Name::Literal(name) => Range::begin_site(self, name),
            Name::Formatted(name) => Range::begin_named(DomainRef::of(self.domain), name),
        }
    }

    /// Describes an event of a name that [`Name::new`] made.
    #[cold]
    pub fn event_of<'a>(&'static self, name: &'a Name) -> Event<'a> {
        match name {
            Name::Literal(name) => self.event_named(name),
            Name::Formatted(name) => Event::in_domain(DomainRef::of(self.domain), name),
        }
    }
}

/// A range of a place, as far as it is the same each time.
#[derive(Debug)]
pub(crate) struct Registered {
    #[cfg_attr(not(feature = "enable"), expect(dead_code, reason = "without tools there is none"))]
    pub(crate) domain: Told,
    /// What the tool calls the domain; `None` is the default one.
    #[cfg_attr(not(feature = "enable"), expect(dead_code, reason = "as above"))]
    pub(crate) domain_handle: Option<Handle>,
    name: Handle,
    #[cfg_attr(not(feature = "enable"), expect(dead_code, reason = "as above"))]
    pub(crate) attributes: EventAttributes<'static>,
}

impl Registered {
    fn new(domain: DomainRef<'_>, name: Handle) -> Registered {
        let attributes = EventAttributes::new(Message::Registered(name));
        Registered { domain: domain.told(), domain_handle: domain.handle(), name, attributes }
    }

    fn name(&self) -> Handle {
        self.name
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

/// What the macros expand to, when nobody looks.
pub mod idle {
    use crate::{ProcessRange, Range};

    /// A range that nobody sees.
    #[inline]
    pub fn range() -> Range {
        Range::NONE
    }

    /// A range that nobody sees.
    #[inline]
    pub fn process_range() -> ProcessRange {
        ProcessRange::NONE
    }

    /// Nothing.
    #[inline]
    pub fn mark() {}
}
