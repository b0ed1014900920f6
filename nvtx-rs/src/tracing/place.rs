//! The data of `tracing`'s call sites: created once, and found in a thread-local table.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustc_hash::{FxBuildHasher, FxHashMap};
use tracing_core::Metadata;
use tracing_core::callsite::Identifier;

use super::details::{self, Details};
use super::kept::KeptFields;
use crate::__private::is_active;
use crate::call_site::CallSite;
use crate::category::Category;
use crate::domain::{Domain, DomainRef};
use crate::event::Event;
use crate::range::{ProcessRange, Range};

/// A call site of `tracing`, with its target as a domain or without. Stored until the process ends,
/// like the call site.
#[derive(Debug)]
pub(super) struct Place {
    site: CallSite,
    domain: Option<&'static Domain>,
    /// The number of its name in its target.
    pub(super) name: u32,
    /// The number appended to the name, plus 1; 0 without.
    pub(super) instance: u32,
    /// True if the site has `nvtx.*` fields, so that its spans store details.
    pub(super) has_details: bool,
    /// True if the site has other fields.
    pub(super) has_fields: bool,
    /// The first category of the site.
    category: OnceLock<Category>,
}

thread_local! {
    static PLACES: RefCell<FxHashMap<(usize, bool), &'static Place>> =
        const { RefCell::new(HashMap::with_hasher(FxBuildHasher)) };
}

impl Place {
    /// Returns the data from the thread's table or, at a thread's first visit, from the process's,
    /// which takes a lock.
    pub(super) fn for_callsite(
        metadata: &'static Metadata<'static>,
        domains: bool,
    ) -> &'static Place {
        let key = (std::ptr::from_ref(metadata).addr(), domains);
        let known = PLACES.try_with(|places| places.try_borrow().ok()?.get(&key).copied());
        if let Ok(Some(place)) = known {
            return place;
        }
        let place = Place::shared(metadata, domains);
        let _ = PLACES.try_with(|places| {
            if let Ok(mut places) = places.try_borrow_mut() {
                places.insert(key, place);
            }
        });
        place
    }

    #[cold]
    fn shared(metadata: &'static Metadata<'static>, domains: bool) -> &'static Place {
        type Places = Mutex<HashMap<(Identifier, bool), &'static Place>>;
        static ALL: OnceLock<Places> = OnceLock::new();
        let all = ALL.get_or_init(Places::default);
        let key = (metadata.callsite(), domains);
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(key).or_insert_with(|| {
            let domain = domains.then(|| domain(metadata.target()));
            let place =
                Place::new(metadata.name(), domain, number(metadata.target(), metadata.name()));
            let has_details = details::are_in(metadata);
            let has_fields = details::are_others_in(metadata);
            Box::leak(Box::new(Place { has_details, has_fields, ..place }))
        })
    }

    fn new(text: &'static str, domain: Option<&'static Domain>, name: u32) -> Place {
        let site = match domain {
            Some(domain) => CallSite::in_domain(text, domain),
            None => CallSite::new(text),
        };
        let (has_details, has_fields, category) = (false, false, OnceLock::new());
        Place { site, domain, name, instance: 0, has_details, has_fields, category }
    }

    /// Returns the data of the spans with this name and number. Stored until the process ends.
    pub(super) fn numbered(&'static self, number: u32) -> &'static Place {
        type Places = Mutex<FxHashMap<(u32, bool, bool, bool, u32), &'static Place>>;
        static ALL: OnceLock<Places> = OnceLock::new();
        let Place { domain, name, has_details, has_fields, .. } = *self;
        let key = (name, domain.is_some(), has_details, has_fields, number);
        let mut all =
            ALL.get_or_init(Places::default).lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(key).or_insert_with(|| {
            let text = Box::leak(format!("{} {number}", self.site.name()).into_boxed_str());
            let place = Place::new(text, domain, name);
            let instance = number + 1;
            Box::leak(Box::new(Place { instance, has_details, has_fields, ..place }))
        })
    }

    /// Starts a range with these details, if any, and fields.
    #[inline]
    pub(super) fn range(&'static self, details: Option<Details>, fields: &KeptFields) -> Range {
        if fields.is_empty() {
            return match details {
                None => self.site.range(),
                Some(details) => self.site.range_with(|event| details.describe(event)),
            };
        }
        let details = details.unwrap_or_default();
        fields.with_fields(|fields| details.describe(self.site.event().fields(fields)).range())
    }

    pub(super) fn process_range(
        &'static self,
        details: Details,
        fields: &KeptFields,
    ) -> ProcessRange {
        if !is_active() {
            return ProcessRange::NONE;
        }
        fields.with_fields(|fields| {
            details.describe(self.site.event().fields(fields)).process_range()
        })
    }

    /// Describes an event of this site with its own name.
    pub(super) fn event<'a>(&self, name: &'a str) -> Event<'a> {
        match self.domain {
            Some(domain) => domain.event(name),
            None => Event::in_domain(DomainRef::Default, name),
        }
    }

    /// Returns the category. The first category of a site, usually the only one, is found without a
    /// lock.
    pub(super) fn category(&self, name: &str) -> Category {
        let find = || match self.domain {
            Some(domain) => domain.category(name),
            None => DomainRef::Default.category(name),
        };
        let first = *self.category.get_or_init(find);
        if first.name() == name { first } else { find() }
    }
}

/// The domain of a target, one per name: tools treat two domains of one name as different.
fn domain(target: &'static str) -> &'static Domain {
    static ALL: OnceLock<Mutex<HashMap<&'static str, &'static Domain>>> = OnceLock::new();
    let mut all = ALL.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    all.entry(target).or_insert_with(|| Box::leak(Box::new(Domain::new(target))))
}

/// The number of a name in a target, the same at every call site.
fn number(target: &'static str, name: &'static str) -> u32 {
    type Numbers = Mutex<HashMap<(&'static str, &'static str), u32>>;
    static ALL: OnceLock<Numbers> = OnceLock::new();
    let mut all = ALL.get_or_init(Numbers::default).lock().unwrap_or_else(PoisonError::into_inner);
    // CAST: a program has fewer names.
    let next = all.len() as u32;
    *all.entry((target, name)).or_insert(next)
}
