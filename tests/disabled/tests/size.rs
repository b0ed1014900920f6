//! With the feature `enable` off there is nothing to keep.
#![cfg(not(feature = "enabled"))]

#[test]
fn a_range_has_no_size() {
    assert_eq!(size_of::<nvtx::Range>(), 0);
    assert_eq!(align_of_val(&nvtx::range("x")), 1);
}

#[test]
fn nothing_is_looked_for() {
    assert!(!nvtx::is_attached());
}
