//! What the attributes accept and refuse, and with which words. `TRYBUILD=overwrite` renews the words.
//!
//! Here and not beside what re-exports them: the cases are built anew, with all that their package needs for its tests.

#[test]
fn ui() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}
