//! What the started processes do.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Barrier;
use std::thread;

use nvtx::range;

use super::{fork, whole};

/// Longer than the name of any range should be.
pub(crate) const LONG: usize = 100_000;
/// Threads of the scenario `threads`, and the outer ranges of each.
pub(crate) const THREADS: usize = 8;
pub(crate) const ROUNDS: usize = 50;

pub(crate) fn play(scenario: &str) {
    match scenario {
        "nested" => nested(),
        "names" => names(),
        "panic" => panicking(),
        "threads" => threads(),
        "early" => early(),
        "ask-first" => {
            let _ = nvtx::is_attached();
            nested();
        }
        "tree" => tree(),
        "events" => whole::events(),
        "domains" => whole::domains(),
        "names-of-things" => whole::names_of_things(),
        "records" => whole::records(),
        "work" => whole::work(),
        "counters" => whole::counters(),
        "deferred" => whole::deferred(),
        "panicking-clock" => whole::panicking_clock(),
        "sites" => whole::sites(),
        "unload" => whole::unload(),
        "odd-ends" => whole::odd_ends(),
        "stress" => stress(),
        "is-enabled" => whole::is_enabled(),
        "real" => whole::real(),
        "fork-in-open-ranges" => fork::in_open_ranges(),
        "fork-before-the-first-range" => fork::before_the_first_range(),
        "fork-amid-ranges" => fork::amid_ranges(),
        _ => panic!("no scenario `{scenario}`"),
    }
}

fn nested() {
    let _outer = range("outer");
    {
        let _first = range("first");
        let _inner = range("inner");
    }
    let _second = range("second");
}

fn names() {
    drop(range(""));
    drop(range("größe ∑ 核 🚀"));
    drop(range("line\nbreak"));
    drop(range("a\0b"));
    drop(range(&"x".repeat(255)));
    drop(range(&"y".repeat(256)));
    drop(range(&"z".repeat(LONG)));
}

fn panicking() {
    // The panic is meant: nothing is to be printed for it.
    panic::set_hook(Box::new(|_| ()));
    let _around = range("around");
    let caught = panic::catch_unwind(AssertUnwindSafe(|| {
        let _one = range("one");
        let _two = range("two");
        panic!("inside two ranges");
    }));
    assert!(caught.is_err());
    drop(range("after"));
}

fn threads() {
    // All at once, so that the first ranges of the process race for the tool.
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                barrier.wait();
                for round in 0..ROUNDS {
                    let _outer = range("outer");
                    let _inner = range(&format!("round {round}"));
                }
            });
        }
    });
}

fn early() {
    fn find(stop: usize) -> Option<usize> {
        for at in 0.. {
            let _step = range(&format!("step {at}"));
            if at == stop {
                return Some(at);
            }
            let _rest = Some(at).filter(|at| *at < 2)?;
        }
        None
    }
    assert_eq!(find(1), Some(1));
    assert_eq!(find(5), None);
}

/// Ranges of the scenario `stress`, over all its threads.
pub(crate) fn stress_ranges() -> u64 {
    const VARIABLE: &str = "NVTX_STRESS_RANGES";
    std::env::var(VARIABLE).ok().and_then(|ranges| ranges.parse().ok()).unwrap_or(1_000_000)
}

/// As many ranges as asked for, with a name of each kind.
fn stress() {
    let each = stress_ranges() / THREADS as u64;
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..each {
                    drop(range("a name"));
                }
            });
        }
    });
    // The fake tool answers with its counts.
    nvtx::initialize();
}

/// For a real tool: levels, threads, names. No comma or quote in a name, so that CSV stays simple.
fn tree() {
    fn branch() {
        let _training = range("training");
        for _ in 0..100 {
            let _step = range("step");
            drop(range("forward"));
            let _backward = range("backward ∑ 核");
            drop(range(&"l".repeat(300)));
        }
    }
    thread::scope(|scope| {
        scope.spawn(branch);
        branch();
    });
}
