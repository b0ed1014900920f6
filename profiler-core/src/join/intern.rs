//! Strings and rows that are each stored once.

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

/// Index of an interned name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct NameId(u32);

impl NameId {
    /// The number of the name.
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

/// Strings, each stored once.
#[derive(Debug, Clone, Default)]
pub struct Names {
    strings: Vec<Box<str>>,
    ids: FxHashMap<Box<str>, NameId>,
}

impl Names {
    /// The id of a string, which is added if it is new.
    pub fn intern(&mut self, name: &str) -> NameId {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let id = NameId(self.strings.len() as u32);
        self.strings.push(name.into());
        self.ids.insert(name.into(), id);
        id
    }

    /// The id of an existing string.
    pub fn find(&self, name: &str) -> Option<NameId> {
        self.ids.get(name).copied()
    }

    /// Adds a string that [`intern`](Self::intern) does not find: an equal one is another name.
    pub(crate) fn add_apart(&mut self, name: &str) -> NameId {
        let id = NameId(self.strings.len() as u32);
        self.strings.push(name.into());
        id
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.strings.len()
    }

    /// True without names.
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }

    /// All strings, by their ids.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.strings.iter().map(|text| &**text)
    }

    /// The string with this id.
    pub fn get(&self, id: NameId) -> &str {
        &self.strings[id.0 as usize]
    }
}

/// Distinct rows, numbered.
///
/// A row is found by a quick hash of some of its fields. If another row has that hash, it is found
/// by a hash of the whole row: rows that differ only in other fields cost no search.
#[derive(Debug)]
pub struct Interned<T> {
    rows: Vec<T>,
    /// Row numbers.
    by_quick_hash: FxHashMap<u64, u32>,
    by_whole_hash: FxHashMap<u64, u32>,
}

/// The hash table and key for a new row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Slot {
    Quick(u64),
    Whole(u64),
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        let (by_quick_hash, by_whole_hash) = (FxHashMap::default(), FxHashMap::default());
        Self { rows: Vec::new(), by_quick_hash, by_whole_hash }
    }
}

impl<T> Interned<T> {
    /// All rows.
    pub fn rows(&self) -> &[T] {
        &self.rows
    }

    /// Changes rows. [`find`](Self::find) does not find changed rows.
    pub(crate) fn for_each_mut(&mut self, change: impl FnMut(&mut T)) {
        self.rows.iter_mut().for_each(change);
    }

    /// The row with this number.
    #[inline]
    pub fn row(&self, at: usize) -> &T {
        &self.rows[at]
    }

    /// The number of the row for which `is` is true, or the slot of a new one.
    #[inline]
    pub(crate) fn find(
        &self,
        quick_hash: u64,
        whole_hash: impl FnOnce() -> u64,
        is: impl Fn(&T) -> bool,
    ) -> Result<u32, Slot> {
        match self.by_quick_hash.get(&quick_hash) {
            None => Err(Slot::Quick(quick_hash)),
            Some(&known) if is(&self.rows[known as usize]) => Ok(known),
            Some(_) => self.find_whole(whole_hash(), is),
        }
    }

    #[cold]
    fn find_whole(&self, mut hash: u64, is: impl Fn(&T) -> bool) -> Result<u32, Slot> {
        while let Some(&known) = self.by_whole_hash.get(&hash) {
            if is(&self.rows[known as usize]) {
                return Ok(known);
            }
            // Two rows have the same hash.
            hash = hash.wrapping_add(1);
        }
        Err(Slot::Whole(hash))
    }

    /// Adds a row and returns its number.
    pub(crate) fn push(&mut self, slot: Slot, row: T) -> u32 {
        let new = self.rows.len() as u32;
        self.rows.push(row);
        match slot {
            Slot::Quick(hash) => self.by_quick_hash.insert(hash, new),
            Slot::Whole(hash) => self.by_whole_hash.insert(hash, new),
        };
        new
    }
}

pub(crate) fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Interns this many rows of one quick hash, and gives how often two rows were compared.
    fn comparisons(rows: u32) -> u64 {
        let compared = Cell::new(0);
        let mut interned: Interned<u32> = Interned::default();
        for round in 0..2 {
            for row in 0..rows {
                let is = |known: &u32| {
                    compared.set(compared.get() + 1);
                    *known == row
                };
                let found = interned.find(7, || hash_of(&row), is);
                let id = found.unwrap_or_else(|slot| interned.push(slot, row));
                assert_eq!(id, row, "round {round}");
            }
        }
        compared.get()
    }

    #[test]
    fn rows_of_one_quick_hash_are_found_without_a_search() {
        let (few, many) = (comparisons(1_000), comparisons(4_000));
        assert!(many <= 5 * few, "{few} comparisons, of four times the rows {many}");
        assert!(few <= 4_000, "{few}");
    }
}
