//! The contexts that driver calls need not report, by their ids; read in every driver call without a
//! lock.

use std::sync::atomic::{AtomicU32, Ordering};

/// The ids: 0 from the end on, [`GONE`] for a context that was destroyed.
static KNOWN: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];
const GONE: u32 = u32::MAX;

/// Removes all ids.
pub(super) fn clear() {
    KNOWN.iter().for_each(|id| id.store(0, Ordering::Release));
}

/// True if driver calls need not report the context with this id. None is reported once 64 were
/// known at a time.
#[inline]
pub(crate) fn is_known(id: u32) -> bool {
    if id == 0 {
        return true;
    }
    for known in &KNOWN {
        match known.load(Ordering::Acquire) {
            0 => return false,
            known if known == id => return true,
            _ => {}
        }
    }
    true
}

/// Adds an id. False if it is known, or if there is no room.
pub(super) fn add(id: u32) -> bool {
    if is_known(id) {
        return false;
    }
    for known in &KNOWN {
        let is_free = |known| matches!(known, 0 | GONE).then_some(id);
        match known.fetch_update(Ordering::AcqRel, Ordering::Acquire, is_free) {
            Ok(_) => return true,
            Err(other) if other == id => return false,
            Err(_) => {}
        }
    }
    false
}

/// Removes the id of a context that was destroyed.
pub(super) fn remove(id: u32) {
    let places = KNOWN.iter().filter(|known| known.load(Ordering::Acquire) == id);
    places.for_each(|known| known.store(GONE, Ordering::Release));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_added_once_and_their_places_are_used_again() {
        clear();
        assert!(is_known(0) && !is_known(7));
        assert!(add(7) && is_known(7) && !add(7));
        remove(7);
        assert!(!is_known(7));
        assert!((1..=64).all(add), "the removed id leaves its place");
        assert!(is_known(65) && !add(65), "without room none is reported");
        clear();
    }
}
