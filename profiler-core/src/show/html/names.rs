//! The names on the page, each held once.

use rustc_hash::FxHashMap;

/// Row of a name.
pub(super) type NameRow = u32;

/// Longest name on the page, in characters; the page says how long it was.
const LONGEST: usize = 4_096;

#[derive(Default)]
pub(super) struct Names {
    strings: Vec<String>,
    /// By the whole name: what differs only in what is left out stays apart.
    rows: FxHashMap<String, NameRow>,
}

impl Names {
    pub(super) fn row(&mut self, name: &str) -> NameRow {
        if let Some(&row) = self.rows.get(name) {
            return row;
        }
        let row = self.strings.len() as NameRow;
        self.strings.push(kept(name));
        self.rows.insert(name.to_owned(), row);
        row
    }

    pub(super) fn into_strings(self) -> Vec<String> {
        self.strings
    }
}

/// A name without its middle where it is too long.
fn kept(name: &str) -> String {
    // A character has a byte at least.
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
    fn a_name_is_held_once_and_one_that_is_too_long_says_so() {
        let mut names = Names::default();
        assert_eq!([names.row("a"), names.row("b"), names.row("a")], [0, 1, 0]);
        let long = |middle: &str| format!("{}{middle}{}", "ä".repeat(5_000), "z".repeat(5_000));
        assert_eq!([names.row(&long("1")), names.row(&long("2"))], [2, 3], "told apart");
        let strings = names.into_strings();
        assert_eq!(strings[..2], ["a", "b"]);
        assert!(strings[2].contains("[… 5905 of 10001 characters left out …]"), "{}", strings[2]);
        assert!(strings[2].starts_with("ää") && strings[2].ends_with("zz"));
        assert_eq!(kept(&"ä".repeat(LONGEST)), "ä".repeat(LONGEST));
    }
}
