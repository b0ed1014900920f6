//! What the attribute accepts and refuses, and with which words. `TRYBUILD=overwrite` renews the words.

#[test]
fn ui() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}
