//! Domains: name spaces for the events of a library.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::category::{Categories, Category};
use crate::domain_slot::DomainSlot;
use crate::state;
use crate::sys::functions;
use crate::sys::types::{Handle, Text};
use crate::text::with_c_str;

/// A name space for events, which tools show and filter together. Intended for a `static`.
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
/// The first event registers the domain with the tool; later events take no lock. Events without a
/// domain are in the default one. [`OwnedDomain`] is for names known at run time only, and for
/// domains that end before the program.
pub struct Domain {
    name: Cow<'static, str>,
    registered: OnceLock<(Handle, DomainSlot)>,
    categories: Categories,
    /// The tool's id of the schema of declared work.
    work_schema: OnceLock<Option<u64>>,
}

impl Domain {
    /// Creates a domain with this name. Tools treat two domains of one name as different.
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

    /// The tool's handle. Requires an attached tool.
    #[inline]
    fn handle(&self) -> Handle {
        self.registered().0
    }

    /// The tool's handle and the slot. Requires an attached tool.
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

/// A [`Domain`] created at run time. It ends for a tool when its last clone, range, string and
/// resource is dropped.
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
    /// Creates a domain with this name. Tools treat two domains of one name as different.
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

/// The domain of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DomainRef<'a> {
    Default,
    Static(&'static Domain),
    Owned(&'a Arc<Domain>),
}

/// The domain of a longer-lived object. Keeps an owned domain alive.
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
    pub(crate) fn from_domain(domain: Option<&'static Domain>) -> DomainRef<'a> {
        domain.map_or(DomainRef::Default, DomainRef::Static)
    }

    fn get(self) -> Option<&'a Domain> {
        match self {
            DomainRef::Default => None,
            DomainRef::Static(domain) => Some(domain),
            DomainRef::Owned(domain) => Some(domain),
        }
    }

    /// `None` is the default domain, which has its own functions.
    pub(crate) fn handle(self) -> Option<Handle> {
        self.get().map(Domain::handle)
    }

    /// For functions of all domains: null is the default one.
    pub(crate) fn handle_or_null(self) -> Handle {
        self.handle().unwrap_or(Handle::NULL)
    }

    /// The domain's slot. Requires an attached tool.
    pub(crate) fn slot(self) -> DomainSlot {
        self.get().map_or(DomainSlot::DEFAULT, |domain| domain.registered().1)
    }

    /// The slot; `None` if the domain is not registered with a tool yet.
    pub(crate) fn registered_slot(self) -> Option<DomainSlot> {
        match self.get() {
            None => Some(DomainSlot::DEFAULT),
            Some(domain) => domain.registered.get().map(|&(_, slot)| slot),
        }
    }

    /// True if the domain ends with its last user.
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

    /// True if both are the same domain.
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

    /// The tool's number of the schema of declared work in this domain, from `register` at the
    /// first call. Requires an attached tool.
    pub(crate) fn work_schema(self, register: impl FnOnce() -> Option<u64>) -> Option<u64> {
        let schema = self.get().map_or(&DEFAULT_WORK_SCHEMA, |domain| &domain.work_schema);
        *schema.get_or_init(register)
    }

    /// Registers a text with the tool; `None` if the tool does not support it. Events then contain
    /// the text.
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
        // A tool without the function accepts every domain.
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
