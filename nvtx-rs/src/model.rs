//! Models of the state, the tool and the observer's slot: loom runs all thread interleavings (`.ci/run loom`).
//!
//! The models run the crate's own code with loom's atomics (`shared.rs`) and a model of a tool. Like C code, the
//! tool fills its slots by relaxed stores.

use std::cell::Cell;
use std::ffi::{c_char, c_int};

use crate::error::Error;
use crate::sys::fill;

/// What there is to be found.
#[derive(Clone, Copy, Default, PartialEq)]
enum Kind {
    #[default]
    None,
    Tool,
    /// A tool that starts a range while it is being attached.
    Annotated,
}

/// The tool, and the calls since its reset.
#[derive(Default)]
struct Tool {
    kind: Cell<Kind>,
    searches: Cell<u32>,
    pushes: Cell<u32>,
    pops: Cell<u32>,
}

std::thread_local! {
    // The standard library's: loom runs its threads on the OS thread of the test.
    static TOOL: Tool = Tool::default();
}

fn count(which: impl FnOnce(&Tool) -> &Cell<u32>) {
    TOOL.with(|tool| {
        let which = which(tool);
        which.set(which.get() + 1);
    });
}

extern "C" fn push(_: *const c_char) -> c_int {
    count(|tool| &tool.pushes);
    0
}

extern "C" fn pop() -> c_int {
    count(|tool| &tool.pops);
    0
}

/// Replaces the search for a library.
fn find() -> Result<bool, Error> {
    count(|tool| &tool.searches);
    let kind = TOOL.with(|tool| tool.kind.get());
    if kind == Kind::None {
        return Ok(false);
    }
    fill(push, pop);
    if kind == Kind::Annotated {
        drop(crate::range::range("in the tool"));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use loom::sync::atomic::{AtomicBool, Ordering};
    use loom::thread;

    use super::*;
    use crate::observer::{self, Observer, RangeStart, Token};
    use crate::range::range;
    use crate::state::{self, is_attached};

    /// Runs all interleavings of a scenario, each with a new tool of this kind.
    fn play(kind: Kind, scenario: impl Fn() + Send + Sync + 'static) {
        let played = std::sync::Arc::new(AtomicU32::new(0));
        let counter = played.clone();
        loom::model(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            TOOL.with(|tool| {
                tool.kind.set(kind);
                for count in [&tool.searches, &tool.pushes, &tool.pops] {
                    count.set(0);
                }
            });
            state::FIND.with(|slot| slot.set(find));
            scenario();
        });
        assert!(played.load(Ordering::Relaxed) > 1, "there was but one order");
    }

    /// Searches, pushes and pops.
    fn seen_by_tool() -> [u32; 3] {
        TOOL.with(|tool| [&tool.searches, &tool.pushes, &tool.pops].map(Cell::get))
    }

    /// An observer that must be initialized when it is called.
    #[derive(Default)]
    struct Watch {
        whole: AtomicBool,
        starts: AtomicU32,
        ends: AtomicU32,
        found_unfinished: AtomicU32,
    }

    impl Watch {
        /// Leaked, since observers are `'static`.
        fn new() -> &'static Watch {
            Box::leak(Box::default())
        }

        /// Starts, ends, and starts before the observer was initialized.
        fn counts(&self) -> [u32; 3] {
            [&self.starts, &self.ends, &self.found_unfinished]
                .map(|count| count.load(Ordering::Relaxed))
        }
    }

    impl Observer for Watch {
        fn range_start(&self, _: &RangeStart<'_>) -> Token {
            if !self.whole.load(Ordering::Relaxed) {
                self.found_unfinished.fetch_add(1, Ordering::Relaxed);
            }
            Token::new(self.starts.fetch_add(1, Ordering::Relaxed).into())
        }

        fn range_end(&self, _: Token) {
            self.ends.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn racing_first_ranges_attach_one_tool() {
        play(Kind::Tool, || {
            let other = thread::spawn(|| drop(range("other")));
            drop(range("one"));
            other.join().unwrap();
            assert_eq!(seen_by_tool(), [1, 2, 2]);
            assert!(is_attached());
        });
    }

    #[test]
    fn racing_first_ranges_search_for_a_tool_once() {
        play(Kind::None, || {
            let other = thread::spawn(|| drop(range("other")));
            drop(range("one"));
            other.join().unwrap();
            assert_eq!(seen_by_tool(), [1, 0, 0]);
            assert!(state::is_idle());
        });
    }

    #[test]
    fn range_opened_by_an_attaching_tool_does_not_block() {
        play(Kind::Annotated, || {
            let other = thread::spawn(|| drop(range("other")));
            drop(range("one"));
            other.join().unwrap();
            assert_eq!(seen_by_tool(), [1, 2, 2]);
        });
    }

    #[test]
    fn range_that_sees_the_observer_finds_it_initialized() {
        play(Kind::None, || {
            assert!(!is_attached());
            let watch = Watch::new();
            let other = thread::spawn(|| {
                drop(range("before it, or after"));
                drop(range("another"));
            });
            let switch = observer::install(watch).unwrap();
            watch.whole.store(true, Ordering::Relaxed);
            switch.on();
            drop(range("after"));
            other.join().unwrap();
            let [starts, ends, unfinished] = watch.counts();
            assert!((1..=3).contains(&starts));
            assert_eq!((ends, unfinished), (starts, 0));
        });
    }

    #[test]
    fn of_two_observers_one_is_installed_and_sees_all() {
        play(Kind::None, || {
            assert!(!is_attached());
            let install = |watch: &'static Watch| {
                watch.whole.store(true, Ordering::Relaxed);
                let switch = observer::install(watch);
                let refused = switch.as_ref().is_err_and(Error::is_taken);
                if let Ok(switch) = switch {
                    switch.on();
                    drop(range("seen"));
                }
                refused
            };
            let (one, two) = (Watch::new(), Watch::new());
            let other = thread::spawn(move || install(two));
            let refused = [install(one), other.join().unwrap()];
            let seen = [one.counts(), two.counts()];
            match refused {
                [false, true] => assert_eq!(seen, [[1, 1, 0], [0, 0, 0]]),
                [true, false] => assert_eq!(seen, [[0, 0, 0], [1, 1, 0]]),
                _ => panic!("refused: {refused:?}"),
            }
        });
    }

    #[test]
    fn a_switch_thrown_amid_ranges_leaves_each_whole() {
        play(Kind::None, || {
            assert!(!is_attached());
            let watch = Watch::new();
            watch.whole.store(true, Ordering::Relaxed);
            let switch = observer::install(watch).unwrap();
            switch.on();
            let other = thread::spawn(|| {
                let _outer = range("outer");
                drop(range("inner"));
            });
            let open = range("open");
            switch.off();
            drop(range("unseen"));
            switch.on();
            drop(range("seen"));
            drop(open);
            other.join().unwrap();
            let [starts, ends, unfinished] = watch.counts();
            assert!((2..=4).contains(&starts));
            assert_eq!((ends, unfinished), (starts, 0));
        });
    }

    #[test]
    fn tool_attached_during_a_switch_leaves_the_observer_unchanged() {
        play(Kind::Tool, || {
            let watch = Watch::new();
            watch.whole.store(true, Ordering::Relaxed);
            let other = thread::spawn(|| drop(range("other")));
            let switch = observer::install(watch).unwrap();
            switch.on();
            other.join().unwrap();
            let [before, ..] = watch.counts();
            drop(range("both see it"));
            assert_eq!(watch.counts(), [before + 1, before + 1, 0]);
            switch.off();
            drop(range("the tool sees it"));
            assert_eq!(watch.counts(), [before + 1, before + 1, 0]);
            assert_eq!(seen_by_tool(), [1, 3, 3]);
        });
    }
}
