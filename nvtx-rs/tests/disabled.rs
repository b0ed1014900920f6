//! Without the feature `enable` the same code compiles, and there is nothing behind it.
#![cfg(not(feature = "enable"))]

use nvtx::observer::{self, Observer, RangeStart, Token};

struct Never;

impl Observer for Never {
    fn range_start(&self, _range: &RangeStart<'_>) -> Token {
        unreachable!("no range is seen")
    }

    fn range_end(&self, _token: Token) {
        unreachable!("no range is seen")
    }
}

#[cfg(feature = "macros")]
#[nvtx::annotate]
fn annotated() -> u8 {
    1
}

#[test]
fn a_range_is_nothing() {
    let range = nvtx::range("nothing");
    assert_eq!(size_of_val(&range), 0);
    drop(range);
    #[cfg(feature = "macros")]
    assert_eq!(annotated(), 1);
}

#[test]
fn there_is_no_tool_and_no_observer() {
    assert!(!nvtx::is_attached());
    assert!(nvtx::attach_error().is_none());
    let refused = observer::install(&Never).unwrap_err();
    assert!(refused.is_disabled());
    assert!(!refused.is_taken());
    assert!(refused.to_string().contains("`enable`"));
}
