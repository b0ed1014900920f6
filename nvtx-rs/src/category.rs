//! Categories: groups of events that a tool can show or hide together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// A group of events, such as `io`. Made by [`Domain::category`](crate::Domain::category) and
/// [`category`](crate::category).
///
/// A category belongs to its domain: for events of another domain a tool shows its number only.
/// Create a category once, since this takes a lock. Each distinct name stays in memory until the
/// process ends: use categories for a few names, not for values such as request numbers.
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
    /// Builds a category from the data that a tool receives.
    #[doc(hidden)]
    #[must_use]
    pub const fn from_parts(id: u32, name: &'static str) -> Category {
        Category { id, name }
    }

    /// The number that identifies it to tools in its domain; never 0.
    pub const fn id(self) -> u32 {
        self.id
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        self.name
    }
}

/// The numbers of a domain's categories, from 1 in order of creation.
#[derive(Debug)]
pub(crate) struct Categories(Mutex<BTreeMap<&'static str, u32>>);

impl Categories {
    pub(crate) const fn new() -> Categories {
        Categories(Mutex::new(BTreeMap::new()))
    }

    /// The category `name`. Calls `announce` with a new one before others can use it.
    pub(crate) fn get(&self, name: &str, announce: impl FnOnce(Category)) -> Category {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((name, id)) = names.get_key_value(name) {
            return Category { id: *id, name };
        }
        let id = u32::try_from(names.len() + 1).unwrap_or(u32::MAX);
        let category = Category { id, name: interned(name) };
        names.insert(category.name, category.id);
        announce(category);
        category
    }
}

/// The one copy of a category's name, stored until the process ends.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number_and_is_announced_once() {
        let categories = Categories::new();
        let mut announced = Vec::new();
        for name in ["b", "a", "b", "c", "a"] {
            let category = categories.get(name, |new| announced.push((new.id(), new.name())));
            assert_eq!(category.name(), name);
        }
        assert_eq!(announced, [(1, "b"), (2, "a"), (3, "c")]);
        assert_eq!(categories.get("a", |_| ()).id(), 2);
    }
}
