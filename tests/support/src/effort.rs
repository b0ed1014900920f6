//! How much the tests of many cases do: all with `THOROUGH_TESTS` in the environment, as in `.ci/run`, or else a part.

pub fn is_thorough() -> bool {
    std::env::var_os("THOROUGH_TESTS").is_some()
}

/// So many of all rounds.
pub fn rounds(all: usize) -> usize {
    if is_thorough() { all } else { all / 10 }
}
