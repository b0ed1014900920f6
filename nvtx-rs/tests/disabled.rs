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

static DOMAIN: nvtx::Domain = nvtx::Domain::new("nothing");
static COUNTER: nvtx::counter::Counter<i64> = nvtx::counter::Counter::new("nothing");

#[test]
fn all_other_calls_have_no_effect() {
    let process = nvtx::event("nothing").color(nvtx::Color::RED).payload(1u64).process_range();
    assert_eq!(size_of_val(&process), 0);
    drop(process);
    drop(nvtx::range!(domain: DOMAIN, payload: unreachable(), "nothing {}", unreachable()));
    nvtx::mark!("nothing {}", unreachable());
    DOMAIN.mark("nothing");
    drop(DOMAIN.range("nothing"));
    assert_eq!(DOMAIN.category("io").name(), "io");
    assert_eq!(DOMAIN.register("text").as_str(), "text");
    assert!(!DOMAIN.is_enabled());
    drop(DOMAIN.resource(nvtx::ResourceId::handle(1), "nothing"));
    DOMAIN.sync_object("nothing").acquire().succeeded().release();
    COUNTER.sample(1);
    nvtx::name_current_thread("nothing");
    nvtx::initialize();
    assert_eq!(nvtx::time::timestamp(), None);
}

fn unreachable() -> u64 {
    unreachable!("no observer")
}
