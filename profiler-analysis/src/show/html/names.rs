//! The names on the page, each stored once.

use std::hash::Hash;

use rustc_hash::FxHashMap;

/// The index of a name.
pub(super) type NameRow = u32;

/// The longest name on the page, in characters; a longer name states its length.
const LONGEST: usize = 4_096;

/// Values, each stored once.
#[derive(Default)]
pub(super) struct Distinct<T> {
    pub(super) values: Vec<T>,
    rows: FxHashMap<T, u32>,
}

impl<T: Clone + Eq + Hash> Distinct<T> {
    /// Returns the index of a value, and stores a new value.
    pub(super) fn row(&mut self, value: T) -> u32 {
        *self.rows.entry(value).or_insert_with_key(|value| {
            self.values.push(value.clone());
            self.values.len() as u32 - 1
        })
    }
}

#[derive(Default)]
pub(super) struct Names {
    strings: Vec<String>,
    /// By the full name, so that names with equal shortened texts stay distinct.
    rows: FxHashMap<String, NameRow>,
}

impl Names {
    pub(super) fn row(&mut self, name: &str) -> NameRow {
        if let Some(&row) = self.rows.get(name) {
            return row;
        }
        let row = self.strings.len() as NameRow;
        self.strings.push(shortened(name));
        self.rows.insert(name.to_owned(), row);
        row
    }

    pub(super) fn into_strings(self) -> Vec<String> {
        self.strings
    }
}

/// A name, without its middle if it is too long.
fn shortened(name: &str) -> String {
    // Each character has at least a byte.
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    let length = name.chars().count();
    if length <= LONGEST {
        return name.to_owned();
    }
    let half = LONGEST / 2;
    let head: String = name.chars().take(half).collect();
    let tail: String = name.chars().skip(length - half).collect();
    format!("{head} [… {} of {length} characters left out …] {tail}", length - LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_stored_once_and_long_ones_are_marked() {
        let mut names = Names::default();
        assert_eq!([names.row("a"), names.row("b"), names.row("a")], [0, 1, 0]);
        let long = |middle: &str| format!("{}{middle}{}", "ä".repeat(5_000), "z".repeat(5_000));
        assert_eq!([names.row(&long("1")), names.row(&long("2"))], [2, 3], "distinct");
        let strings = names.into_strings();
        assert_eq!(strings[..2], ["a", "b"]);
        assert!(strings[2].contains("[… 5905 of 10001 characters left out …]"), "{}", strings[2]);
        assert!(strings[2].starts_with("ää") && strings[2].ends_with("zz"));
        assert_eq!(shortened(&"ä".repeat(LONGEST)), "ä".repeat(LONGEST));
    }
}
