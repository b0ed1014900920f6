//! Texts retained until the process ends, and the handles by which programs refer to objects.
//!
//! A handle is a tagged number, not an address. A wrong handle is detected and never dereferenced.

use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::counts::{COUNTS, count};

/// The maximum number of texts, and the maximum total of their bytes.
const MOST_TEXTS: usize = 1 << 20;
const MOST_BYTES: usize = 64 << 20;

/// The kind of object that a handle identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Kind {
    Domain = 1,
    Text = 2,
    Resource = 3,
    Sync = 4,
}

const KIND_BITS: u32 = 4;

/// The handle of an object of this kind; never 0.
pub(crate) const fn handle(kind: Kind, index: usize) -> usize {
    (index + 1) << KIND_BITS | kind as usize
}

/// The index of the object that a handle identifies; `None` if the handle is of another kind.
#[inline]
pub(crate) const fn index(kind: Kind, handle: usize) -> Option<usize> {
    if handle & ((1 << KIND_BITS) - 1) == kind as usize {
        (handle >> KIND_BITS).checked_sub(1)
    } else {
        None
    }
}

/// The retained texts. Reading one takes no lock.
static TEXTS: boxcar::Vec<&'static str> = boxcar::Vec::new();

struct Known {
    by_text: FxHashMap<&'static str, usize>,
    bytes: usize,
}

static KNOWN: Mutex<Known> =
    Mutex::new(Known { by_text: FxHashMap::with_hasher(FxBuildHasher), bytes: 0 });

/// Stores a text and returns its index. Equal texts have the same index. Called while tables
/// [change](super::changing). Returns `None` if there is no room, and counts that.
pub(crate) fn keep(text: &str) -> Option<usize> {
    let mut known = KNOWN.lock();
    if let Some(&index) = known.by_text.get(text) {
        return Some(index);
    }
    if TEXTS.count() >= MOST_TEXTS || known.bytes + text.len() > MOST_BYTES {
        count(&COUNTS.refused_objects);
        return None;
    }
    let text: &'static str = Box::leak(text.into());
    let index = TEXTS.push(text);
    known.bytes += text.len();
    known.by_text.insert(text, index);
    Some(index)
}

/// The text at this index.
#[inline]
pub(crate) fn text(index: usize) -> Option<&'static str> {
    TEXTS.get(index).copied()
}

/// Stores a text and returns the stored copy; empty if there is no room.
pub(crate) fn intern(text: &str) -> &'static str {
    keep(text).and_then(self::text).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_kept_once() {
        let one = keep("a text of this test").unwrap();
        assert_eq!(keep("a text of this test"), Some(one));
        assert_ne!(keep("another text of this test"), Some(one));
        assert_eq!(text(one), Some("a text of this test"));
        assert_eq!(text(usize::MAX >> 5), None);
    }

    #[test]
    fn handles_name_their_kind_only() {
        for at in [0, 1, 1 << 20] {
            let handle = handle(Kind::Text, at);
            assert_ne!(handle, 0);
            assert_eq!(index(Kind::Text, handle), Some(at));
            assert_eq!(index(Kind::Domain, handle), None);
        }
        for wrong in [0, 1, 2, 15, usize::MAX, 0x7fff_1234_5678] {
            assert!(index(Kind::Text, wrong).and_then(text).is_none(), "{wrong:x}");
        }
    }
}
