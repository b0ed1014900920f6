//! The indices of a thread's texts.

use rustc_hash::FxHashMap;

/// Slots of the cache, selected by address.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 7;

/// The index of each text of a thread. A text that repeats at its address, such as a field's name,
/// is found without hashing it.
#[derive(Debug)]
pub(super) struct TextIndex {
    by_text: FxHashMap<Box<str>, u32>,
    /// A cache of `by_text` by address and content: an address may have another text later.
    cached: Box<[Cached]>,
    /// The index of the empty text, which is the unit of most fields. It is not in the map: there,
    /// comparing two empty texts takes 160 ns with glibc's `memcmp` for AVX-512, since the address
    /// of an empty `Box<str>` is not mapped.
    empty: Option<u32>,
}

#[derive(Debug, Default)]
struct Cached {
    address: usize,
    text: Box<str>,
    index: u32,
}

impl Default for TextIndex {
    fn default() -> Self {
        let cached = std::iter::repeat_with(Cached::default).take(SLOTS).collect();
        Self { by_text: FxHashMap::default(), cached, empty: None }
    }
}

/// The slot of an address. Literals are adjacent in memory, so the bits are mixed (Fibonacci
/// hashing).
#[inline]
fn slot(address: usize) -> usize {
    let mixed = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // CAST: as many bits as there are slots.
    (mixed >> (u64::BITS - SLOT_BITS)) as usize
}

impl TextIndex {
    /// The index of a text; `None` for a new one.
    #[inline]
    pub(super) fn find(&mut self, text: &str) -> Option<u32> {
        if text.is_empty() {
            return self.empty;
        }
        let address = text.as_ptr().addr();
        let cached = &self.cached[slot(address)];
        if cached.address == address && *cached.text == *text {
            return Some(cached.index);
        }
        self.find_by_text(text)
    }

    #[inline(never)]
    fn find_by_text(&mut self, text: &str) -> Option<u32> {
        // A new text is most likely computed and not repeated, so it is not cached.
        let index = *self.by_text.get(text)?;
        let address = text.as_ptr().addr();
        let cached = &mut self.cached[slot(address)];
        // The first text remains in the slot: alternating texts would otherwise evict each other.
        if cached.address == 0 {
            *cached = Cached { address, text: text.into(), index };
        }
        Some(index)
    }

    /// Adds a new text.
    pub(super) fn add(&mut self, text: &str, index: u32) {
        if text.is_empty() {
            self.empty = Some(index);
        } else {
            self.by_text.insert(text.into(), index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_wherever_they_are() {
        let mut texts = TextIndex::default();
        let all: Vec<String> = (0..1_000).map(|at| "x".repeat(at)).collect();
        for (index, text) in (0..).zip(&all) {
            assert_eq!(texts.find(text), None);
            texts.add(text, index);
        }
        for _ in 0..3 {
            for (index, text) in (0..).zip(&all) {
                assert_eq!(texts.find(text), Some(index));
                // A part of a text begins at the same address.
                assert_eq!(texts.find(&text[..index as usize / 2]), Some(index / 2));
                assert_eq!(texts.find(&text.clone()), Some(index));
            }
        }
    }

    #[test]
    fn address_may_hold_another_text_later() {
        let mut texts = TextIndex::default();
        texts.add("first", 0);
        texts.add("other", 1);
        let mut place = "first".to_owned();
        for _ in 0..2 {
            assert_eq!(texts.find(&place), Some(0));
        }
        place.replace_range(.., "other");
        assert_eq!(texts.find(&place), Some(1));
        place.replace_range(.., "third");
        assert_eq!(texts.find(&place), None);
    }
}
