//! Domains: the name space that a library gives its events.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::category::{Categories, Category};
use crate::domain_slot::DomainSlot;
use crate::state;
use crate::sys::functions;
use crate::sys::types::{Handle, Text};
use crate::text::with_c_str;

/// The events of a library, which tools show and filter together. Made for a `static`.
///
/// ```
/// use nvtx::Domain;
///
/// static GPU: Domain = Domain::new("my-lib");
///
/// fn upload() {
///     let _range = GPU.range("upload");
/// }
/// # upload();
/// ```
///
/// The domain is registered with a tool at its first event; events after that take no lock. Events
/// that name no domain are in the default one. A domain whose name is only known at run time, or that
/// ends before the program does, is an [`OwnedDomain`].
pub struct Domain {
    name: Cow<'static, str>,
    registered: OnceLock<(Handle, DomainSlot)>,
    categories: Categories,
    /// The tool's id of the schema of declared work.
    work_schema: OnceLock<Option<u64>>,
}

impl Domain {
    /// A domain with this name. Tools take two with one name for different domains.
    #[must_use]
    pub const fn new(name: &'static str) -> Domain {
        Domain {
            name: Cow::Borrowed(name),
            registered: OnceLock::new(),
            categories: Categories::new(),
            work_schema: OnceLock::new(),
        }
    }

    /// The domain's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tool's handle; call it only where a tool is attached.
    #[inline]
    fn handle(&self) -> Handle {
        self.registered().0
    }

    /// As [`handle`](Domain::handle), with the number of the domain in this crate.
    #[inline]
    fn registered(&self) -> (Handle, DomainSlot) {
        *self.registered.get_or_init(|| {
            let handle = with_c_str(&self.name, |name| functions::domain_create(Text::new(name)));
            let handle = handle.unwrap_or(Handle::NULL);
            (handle, DomainSlot::new(handle))
        })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if let Some(&(_, slot)) = self.registered.get() {
            slot.release();
        }
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Domain").field(&self.name).finish()
    }
}

/// A [`Domain`] of run time: it ends for a tool when the last clone, range, string and resource
/// of it is dropped.
///
/// ```
/// let domain = nvtx::OwnedDomain::new(format!("worker {}", 3));
/// let range = domain.process_range("job");
/// drop(domain);
/// drop(range); // The domain ends here.
/// ```
#[derive(Clone, Debug)]
pub struct OwnedDomain(Arc<Domain>);

impl OwnedDomain {
    /// A domain with this name. Tools take two with one name for different domains.
    #[must_use]
    pub fn new(name: impl Into<String>) -> OwnedDomain {
        let mut domain = Domain::new("");
        domain.name = Cow::Owned(name.into());
        OwnedDomain(Arc::new(domain))
    }

    /// The domain's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

/// The domain of an event that is being described.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DomainRef<'a> {
    Default,
    Static(&'static Domain),
    Owned(&'a Arc<Domain>),
}

/// The domain of something that goes on; it keeps an owned one alive.
#[derive(Clone, Debug)]
pub(crate) enum DomainKeep {
    Default,
    Static(&'static Domain),
    Owned(Arc<Domain>),
}

static DEFAULT_CATEGORIES: Categories = Categories::new();
static DEFAULT_WORK_SCHEMA: OnceLock<Option<u64>> = OnceLock::new();

impl<'a> From<&'a OwnedDomain> for DomainRef<'a> {
    fn from(domain: &'a OwnedDomain) -> DomainRef<'a> {
        DomainRef::Owned(&domain.0)
    }
}

impl<'a> DomainRef<'a> {
    pub(crate) fn of(domain: Option<&'static Domain>) -> DomainRef<'a> {
        domain.map_or(DomainRef::Default, DomainRef::Static)
    }

    fn get(self) -> Option<&'a Domain> {
        match self {
            DomainRef::Default => None,
            DomainRef::Static(domain) => Some(domain),
            DomainRef::Owned(domain) => Some(domain),
        }
    }

    /// `None` is the default domain, which has functions of its own.
    pub(crate) fn handle(self) -> Option<Handle> {
        self.get().map(Domain::handle)
    }

    /// For functions that all domains share: the default one is null.
    pub(crate) fn handle_or_null(self) -> Handle {
        self.handle().unwrap_or(Handle::NULL)
    }

    /// The domain's number in this crate; call it only where a tool is attached.
    pub(crate) fn slot(self) -> DomainSlot {
        self.get().map_or(DomainSlot::DEFAULT, |domain| domain.registered().1)
    }

    /// The slot, or `None` where the domain is not registered with a tool yet.
    pub(crate) fn registered_slot(self) -> Option<DomainSlot> {
        match self.get() {
            None => Some(DomainSlot::DEFAULT),
            Some(domain) => domain.registered.get().map(|&(_, slot)| slot),
        }
    }

    /// Whether it lives only as long as it is used.
    pub(crate) fn is_owned(self) -> bool {
        matches!(self, DomainRef::Owned(_))
    }

    pub(crate) fn name(self) -> Option<&'a str> {
        self.get().map(Domain::name)
    }

    pub(crate) fn keep(self) -> DomainKeep {
        match self {
            DomainRef::Default => DomainKeep::Default,
            DomainRef::Static(domain) => DomainKeep::Static(domain),
            DomainRef::Owned(domain) => DomainKeep::Owned(domain.clone()),
        }
    }

    /// Whether both are one domain.
    pub(crate) fn is(self, other: DomainRef<'_>) -> bool {
        match (self.get(), other.get()) {
            (None, None) => true,
            (Some(one), Some(other)) => std::ptr::eq(one, other),
            _ => false,
        }
    }

    pub(crate) fn category(self, name: &str) -> Category {
        let categories = self.get().map_or(&DEFAULT_CATEGORIES, |domain| &domain.categories);
        categories.get(name, |category| {
            if state::has_tool() {
                let domain = self.handle();
                with_c_str(name, |name| match domain {
                    None => functions::name_category(category.id(), Text::new(name)),
                    Some(domain) => {
                        functions::domain_name_category(domain, category.id(), Text::new(name))
                    }
                });
            }
        })
    }

    /// The tool's number of the schema of declared work in this domain; `register` gives it at the first call, which
    /// needs an attached tool.
    pub(crate) fn work_schema(self, register: impl FnOnce() -> Option<u64>) -> Option<u64> {
        let schema = self.get().map_or(&DEFAULT_WORK_SCHEMA, |domain| &domain.work_schema);
        *schema.get_or_init(register)
    }

    /// Hands the tool a text to keep; `None` where the tool takes none, and events then carry the text themselves.
    pub(crate) fn register(self, text: &str) -> Option<Handle> {
        let domain = self.handle_or_null();
        let handle = with_c_str(text, |text| functions::register_string(domain, Text::new(text)));
        handle.filter(|handle| !handle.is_null())
    }

    pub(crate) fn is_enabled(self) -> bool {
        if state::is_idle() {
            return false;
        }
        let state = state::current();
        // A tool that does not answer takes every domain.
        state & state::OBSERVER != 0
            || state & state::TOOL != 0
                && functions::domain_is_enabled(self.handle_or_null()) != Some(0)
    }
}

impl DomainKeep {
    pub(crate) fn as_ref(&self) -> DomainRef<'_> {
        match self {
            DomainKeep::Default => DomainRef::Default,
            DomainKeep::Static(domain) => DomainRef::Static(domain),
            DomainKeep::Owned(domain) => DomainRef::Owned(domain),
        }
    }
}
