//! The names on the page, each stored once.

use profiler_base::distinct::Texts;

/// The index of a name.
pub(super) type NameRow = u32;

/// The longest name on the page, in characters; a longer name states its length.
const LONGEST: usize = 4_096;

/// The names as on the page. Names with equal shortened texts stay distinct.
pub(super) fn strings(names: &Texts) -> Vec<String> {
    names.values().iter().map(|name| shortened(name)).collect()
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
        let mut names = Texts::default();
        assert_eq!([names.text("a"), names.text("b"), names.text("a")], [0, 1, 0]);
        let long = |middle: &str| format!("{}{middle}{}", "ä".repeat(5_000), "z".repeat(5_000));
        assert_eq!([names.text(&long("1")), names.text(&long("2"))], [2, 3], "distinct");
        let strings = strings(&names);
        assert_eq!(strings[..2], ["a", "b"]);
        assert!(strings[2].contains("[… 5905 of 10001 characters left out …]"), "{}", strings[2]);
        assert!(strings[2].starts_with("ää") && strings[2].ends_with("zz"));
        assert_eq!(shortened(&"ä".repeat(LONGEST)), "ä".repeat(LONGEST));
    }
}
