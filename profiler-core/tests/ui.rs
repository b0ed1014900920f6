//! What `#[gpu_test]` accepts and refuses, and with which words. `TRYBUILD=overwrite` renews the words.

#[test]
fn ui() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/fail/*.rs");
}
