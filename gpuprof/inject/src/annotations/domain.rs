//! Domains and the names of their categories.

use std::sync::atomic::{AtomicBool, Ordering};

use nvtx::Category;
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::changing;
use super::names::{self, Kind};
use crate::counts::{COUNTS, count};
use crate::mode::Mode;

/// The maximum number of domains besides the default one. A destroyed domain is reused for a new
/// one with the same name.
const MOST_DOMAINS: usize = 1 << 16;
/// The maximum number of category names in a domain, including renames.
const MOST_CATEGORIES: usize = 1 << 12;

/// A domain. It is never freed, because events may refer to it after its end.
#[derive(Debug)]
pub(crate) struct Domain {
    /// The number of the domain; 0 for the default domain.
    pub(crate) number: u32,
    /// `None` for the default domain.
    pub(crate) name: Option<&'static str>,
    is_live: AtomicBool,
    /// Numbers and names in order of registration. The last name of a number applies.
    categories: boxcar::Vec<Category>,
    /// The schema ids chosen by the program, with their indices among all schemas.
    pub(crate) schemas: boxcar::Vec<(u64, usize)>,
}

static DEFAULT: Domain = Domain::new(0, None);
static DOMAINS: boxcar::Vec<Domain> = boxcar::Vec::new();
/// The indices of destroyed domains, by name.
static ENDED: Mutex<FxHashMap<&str, Vec<usize>>> =
    Mutex::new(FxHashMap::with_hasher(FxBuildHasher));

impl Domain {
    const fn new(number: u32, name: Option<&'static str>) -> Domain {
        Domain {
            number,
            name,
            is_live: AtomicBool::new(true),
            categories: boxcar::Vec::new(),
            schemas: boxcar::Vec::new(),
        }
    }

    /// The domain of a handle. Handle 0 is the default domain. An unknown handle is counted and
    /// also returns the default domain.
    #[inline]
    pub(crate) fn from_handle(handle: usize) -> &'static Domain {
        if handle == 0 { &DEFAULT } else { Domain::other(handle) }
    }

    fn other(handle: usize) -> &'static Domain {
        let known = names::index(Kind::Domain, handle).and_then(|index| DOMAINS.get(index));
        known.unwrap_or_else(|| {
            count(&COUNTS.unknown_handles);
            &DEFAULT
        })
    }

    /// Creates a domain and returns its handle, or 0 if there are too many.
    pub(crate) fn create(name: &str) -> usize {
        if !Mode::load().is_active() {
            return 0;
        }
        let _changes = changing();
        let ended = ENDED.lock().get_mut(name).and_then(Vec::pop);
        if let Some((index, domain)) = ended.and_then(|index| Some((index, DOMAINS.get(index)?))) {
            domain.is_live.store(true, Ordering::Relaxed);
            return names::handle(Kind::Domain, index);
        }
        if DOMAINS.count() >= MOST_DOMAINS {
            count(&COUNTS.refused_objects);
            return 0;
        }
        let name = names::intern(name);
        let number = |index: usize| u32::try_from(index + 1).unwrap_or(u32::MAX);
        let index = DOMAINS.push_with(|index| Domain::new(number(index), Some(name)));
        names::handle(Kind::Domain, index)
    }

    /// Destroys a domain. The next domain with its name reuses the handle.
    pub(crate) fn destroy(handle: usize) {
        if handle == 0 || !Mode::load().is_active() {
            return;
        }
        let _changes = changing();
        let domain = Domain::from_handle(handle);
        if let (Some(name), Some(index)) = (domain.name, names::index(Kind::Domain, handle))
            && domain.is_live.swap(false, Ordering::Relaxed)
        {
            ENDED.lock().entry(name).or_default().push(index);
        }
    }

    /// Names a category.
    pub(crate) fn name_category(&self, id: u32, name: &str) {
        if !Mode::load().is_active() {
            return;
        }
        let _changes = changing();
        if self.known_category(id).is_some_and(|known| known.name() == name) {
            return;
        }
        if self.categories.count() >= MOST_CATEGORIES {
            count(&COUNTS.refused_objects);
            return;
        }
        self.categories.push(Category::from_parts(id, names::intern(name)));
    }

    /// The category of an event, or `None` for id 0. An unnamed category gets its number as its
    /// name, as in other tools.
    #[inline]
    pub(crate) fn category(&self, id: u32) -> Option<Category> {
        if id == 0 {
            return None;
        }
        self.known_category(id).or_else(|| {
            self.name_category(id, &id.to_string());
            self.known_category(id)
        })
    }

    fn known_category(&self, id: u32) -> Option<Category> {
        let last_first = (0..self.categories.count()).rev();
        let mut known = last_first.filter_map(|index| self.categories.get(index));
        known.find(|category| category.id() == id).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mode;

    #[test]
    fn domains_of_one_name_differ_until_one_has_ended() {
        mode::turn_on(false);
        let one = Domain::create("domain test");
        let other = Domain::create("domain test");
        assert_ne!(one, other);
        assert_eq!(Domain::from_handle(one).name, Some("domain test"));
        Domain::destroy(one);
        assert_eq!(Domain::create("domain test"), one);
        assert_ne!(Domain::create("domain test"), one);
    }

    #[test]
    fn wrong_handles_name_the_default_domain() {
        for handle in [0, 1, 7, usize::MAX, names::handle(Kind::Domain, 1 << 40)] {
            assert_eq!(Domain::from_handle(handle).number, 0, "{handle:x}");
            Domain::destroy(handle);
        }
    }

    #[test]
    fn the_last_name_of_a_category_applies() {
        mode::turn_on(false);
        let domain = Domain::from_handle(Domain::create("categories test"));
        assert_eq!(domain.category(0), None);
        assert_eq!(domain.category(7).map(Category::name), Some("7"));
        domain.name_category(7, "io");
        domain.name_category(7, "io");
        domain.name_category(8, "math");
        assert_eq!(domain.category(7), Some(Category::from_parts(7, "io")));
        assert_eq!(domain.categories.count(), 3);
    }
}
