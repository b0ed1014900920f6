//! The data of `tracing`'s call sites: created once, and found in a thread-local table.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustc_hash::{FxBuildHasher, FxHashMap};
use tracing_core::Metadata;
use tracing_core::callsite::Identifier;

use super::details::{self, Details};
use crate::call_site::CallSite;
use crate::category::Category;
use crate::domain::{Domain, DomainRef};
use crate::event::Event;
use crate::range::{ProcessRange, Range};

/// A call site of `tracing`, with its target as a domain or without. Kept until the process ends, like the call
/// site.
#[derive(Debug)]
pub(super) struct Place {
    site: CallSite,
    domain: Option<&'static Domain>,
    /// The site has `nvtx.*` fields, so that its spans keep details.
    pub(super) has_details: bool,
    /// The first category of the site.
    category: OnceLock<Category>,
}

thread_local! {
    static PLACES: RefCell<FxHashMap<(usize, bool), &'static Place>> =
        const { RefCell::new(HashMap::with_hasher(FxBuildHasher)) };
}

impl Place {
    /// From the thread's table or, at a thread's first visit, the process's, which takes a lock.
    pub(super) fn of(metadata: &'static Metadata<'static>, domains: bool) -> &'static Place {
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
            let name = metadata.name();
            let site = match domain {
                Some(domain) => CallSite::in_domain(name, domain),
                None => CallSite::new(name),
            };
            let has_details = details::are_in(metadata);
            Box::leak(Box::new(Place { site, domain, has_details, category: OnceLock::new() }))
        })
    }

    /// Starts a range with these details, if any.
    #[inline]
    pub(super) fn range(&'static self, details: Option<Details>) -> Range {
        match details {
            None => self.site.range(),
            Some(details) => self.site.range_with(|event| details.describe(event)),
        }
    }

    pub(super) fn process_range(&'static self, details: Details) -> ProcessRange {
        self.site.process_range_with(|event| details.describe(event))
    }

    /// Describes an event of this site with a name of its own.
    pub(super) fn event<'a>(&self, name: &'a str) -> Event<'a> {
        match self.domain {
            Some(domain) => domain.event(name),
            None => Event::in_domain(DomainRef::Default, name),
        }
    }

    /// The first category of a site, mostly the only one, is found without a lock.
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
