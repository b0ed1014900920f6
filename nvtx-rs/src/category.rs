//! Categories: groups of events that a tool can show or hide together.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// A group of events, such as `io`. Made by [`Domain::category`](crate::Domain::category) and
/// [`category`](crate::category).
///
/// A category is of its domain: with an event of another domain, a tool shows its number alone. To
/// make one takes a lock, so make it once:
///
/// ```
/// use std::sync::LazyLock;
/// use nvtx::Category;
///
/// static IO: LazyLock<Category> = LazyLock::new(|| nvtx::category("io"));
///
/// let _read = nvtx::event("read").category(*IO).range();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Category {
    id: u32,
    name: &'static str,
}

impl Category {
    /// The number by which tools know it in its domain; never 0.
    #[must_use]
    pub const fn id(self) -> u32 {
        self.id
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }
}

/// The categories of a domain; a category's number is one more than its place.
#[derive(Debug)]
pub(crate) struct Categories(Mutex<Vec<&'static str>>);

impl Categories {
    pub(crate) const fn new() -> Categories {
        Categories(Mutex::new(Vec::new()))
    }

    /// The category `name`; `announce` is called with one that is new, before anyone can use it.
    pub(crate) fn get(&self, name: &str, announce: impl FnOnce(Category)) -> Category {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = |place: usize| u32::try_from(place + 1).unwrap_or(u32::MAX);
        if let Some(place) = names.iter().position(|known| *known == name) {
            return Category { id: id(place), name: names.get(place).copied().unwrap_or_default() };
        }
        let category = Category { id: id(names.len()), name: interned(name) };
        names.push(category.name);
        announce(category);
        category
    }
}

/// One copy of each category's name, kept for the life of the process: programs have few.
fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let name: &'static str = Box::leak(name.into());
    names.insert(name);
    name
}
