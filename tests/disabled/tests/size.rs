//! With the feature `enable` off there is nothing to keep.
#![cfg(not(feature = "enabled"))]

#[test]
fn a_range_has_no_size() {
    assert_eq!(size_of::<nvtx::Range>(), 0);
    assert_eq!(align_of_val(&nvtx::range("x")), 1);
}

#[test]
fn disabled_crate_searches_for_no_tool() {
    assert!(!nvtx::is_attached());
}
