//! Call sites: source locations that create events of one name, registered with the tool.

use std::sync::OnceLock;

use crate::domain::{Domain, DomainRef};
use crate::domain_slot::DomainSlot;
use crate::event::Event;
use crate::state;
use crate::sys::types::{EventAttributes, Handle, Message};

/// A source location that creates events of one name, which is registered with the tool once.
#[derive(Debug)]
pub struct CallSite {
    /// `None` if the name is passed with the first event ([`CallSite::unnamed`]).
    name: Option<&'static str>,
    domain: Option<&'static Domain>,
    /// The registered name and the tool's handle.
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

    /// A call site whose name is passed with the first event.
    #[must_use]
    pub const fn unnamed() -> CallSite {
        CallSite { name: None, domain: None, registered: OnceLock::new() }
    }

    /// As [`CallSite::unnamed`], in `domain`.
    #[must_use]
    pub const fn unnamed_in_domain(domain: &'static Domain) -> CallSite {
        CallSite { name: None, domain: Some(domain), registered: OnceLock::new() }
    }

    /// The name; empty if it is passed with the event.
    #[inline]
    pub(crate) fn name(&self) -> &'static str {
        self.name.unwrap_or_default()
    }

    pub(crate) fn domain(&self) -> DomainRef<'static> {
        DomainRef::from_domain(self.domain)
    }

    /// Describes an event of this call site.
    #[cold]
    pub fn event(&'static self) -> Event<'static> {
        self.event_named(self.name())
    }

    /// The registered data of a range with a name only; `None` if the tool does not register
    /// strings, or another name was registered: a call site registers one name.
    #[inline]
    pub(crate) fn registered(&'static self, name: &'static str) -> Option<&'static Registered> {
        let (of, registered) = self.registered.get_or_init(|| (name, self.register(name)));
        registered.as_ref().filter(|_| std::ptr::eq(*of, name) || *of == name)
    }

    #[cold]
    #[inline(never)]
    fn register(&'static self, name: &'static str) -> Option<Registered> {
        let domain = self.domain();
        domain.register(name).map(|name| Registered::new(domain, name))
    }

    pub(crate) fn event_named(&'static self, name: &'static str) -> Event<'static> {
        let handle = if state::has_tool() { self.registered(name) } else { None };
        Event::registered(self.domain(), name, handle.map(Registered::name))
    }
}

/// The parts of a call site's range that are the same each time.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) domain: DomainSlot,
    /// The tool's handle of the domain; `None` is the default one.
    pub(crate) domain_handle: Option<Handle>,
    name: Handle,
    pub(crate) attributes: EventAttributes<'static>,
}

impl Registered {
    fn new(domain: DomainRef<'_>, name: Handle) -> Registered {
        let attributes = EventAttributes::new(Message::Registered(name));
        Registered { domain: domain.slot(), domain_handle: domain.handle(), name, attributes }
    }

    fn name(&self) -> Handle {
        self.name
    }
}
