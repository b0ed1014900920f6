//! What an observer sees. There is one in a process, so all tests share it and take turns.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are not inside a #[test]")]

use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use nvtx::observer::{self, Observer, RangeStart, Switch, Token};

/// Writes down what it sees, and panics where it sees certain names.
struct Recorder {
    events: Mutex<Events>,
}

struct Events {
    next: u64,
    seen: Vec<Event>,
    panic_at_end_of: Option<Token>,
}

#[derive(Clone, Debug, PartialEq)]
enum Event {
    Start(String, u64),
    End(u64),
}

impl Recorder {
    const fn new() -> Recorder {
        Recorder { events: Mutex::new(Events { next: 0, seen: Vec::new(), panic_at_end_of: None }) }
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Recorder {
    fn range_start(&self, range: &RangeStart<'_>) -> Token {
        let mut events = self.events();
        let token = Token::new(events.next);
        events.next += 1;
        let start = Event::Start(range.name.to_owned(), token.get());
        events.seen.push(start);
        match range.name {
            "panics at its start" => panic!("at a start"),
            "panics at its end" => events.panic_at_end_of = Some(token),
            _ => (),
        }
        token
    }

    fn range_end(&self, token: Token) {
        let mut events = self.events();
        events.seen.push(Event::End(token.get()));
        if events.panic_at_end_of == Some(token) {
            panic!("at an end");
        }
    }
}

static RECORDER: Recorder = Recorder::new();
static OTHER: Recorder = Recorder::new();

/// Has the observer for itself, switched on and empty.
struct Turn {
    switch: Switch,
    _turn: MutexGuard<'static, ()>,
}

fn turn() -> Turn {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let switch = observer::install(&RECORDER).unwrap();
    *RECORDER.events() = Events { next: 1, seen: Vec::new(), panic_at_end_of: None };
    switch.on();
    Turn { switch, _turn: turn }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.switch.off();
    }
}

fn take_events() -> Vec<Event> {
    mem::take(&mut RECORDER.events().seen)
}

fn start(name: &str, token: u64) -> Event {
    Event::Start(name.to_owned(), token)
}

use Event::End;

#[test]
fn nested_ranges_give_their_own_tokens_back() {
    let _turn = turn();
    {
        let _outer = nvtx::range("outer");
        drop(nvtx::range("first"));
        let _second = nvtx::range("second");
    }
    let expected =
        [start("outer", 1), start("first", 2), End(2), start("second", 3), End(3), End(1)];
    assert_eq!(take_events(), expected);
}

#[test]
fn ranges_ended_out_of_order_are_distinguished() {
    let _turn = turn();
    let first = nvtx::range("first");
    let second = nvtx::range("second");
    drop(first);
    drop(second);
    assert_eq!(take_events(), [start("first", 1), start("second", 2), End(1), End(2)]);
}

#[test]
fn names_are_delivered_unchanged() {
    let _turn = turn();
    let long = "x".repeat(1 << 20);
    for name in ["", "größe ∑ 核 🚀", "a\0b", &long] {
        drop(nvtx::range(name));
    }
    let mut names = Vec::new();
    for event in take_events() {
        if let Event::Start(name, _) = event {
            names.push(name);
        }
    }
    assert_eq!(names, ["", "größe ∑ 核 🚀", "a\0b", &long]);
}

#[test]
fn a_range_that_began_observed_ends_observed_after_off() {
    let turn = turn();
    let open = nvtx::range("open");
    turn.switch.off();
    let unseen = nvtx::range("unseen");
    drop(unseen);
    drop(open);
    assert_eq!(take_events(), [start("open", 1), End(1)]);
}

#[test]
fn a_range_that_began_unobserved_ends_unobserved_after_on() {
    let turn = turn();
    turn.switch.off();
    let unseen = nvtx::range("unseen");
    turn.switch.on();
    let inner = nvtx::range("inner");
    drop(inner);
    drop(unseen);
    assert_eq!(take_events(), [start("inner", 1), End(1)]);
}

#[test]
fn a_switch_works_again_and_again() {
    let turn = turn();
    for round in 1..=100 {
        turn.switch.off();
        assert!(!turn.switch.is_on());
        drop(nvtx::range("unseen"));
        turn.switch.on();
        assert!(turn.switch.is_on());
        drop(nvtx::range("seen"));
        assert_eq!(take_events(), [start("seen", round), End(round)]);
    }
}

#[test]
fn panic_ends_the_ranges_of_its_frames() {
    let _turn = turn();
    let caught = panic::catch_unwind(|| {
        let _outer = nvtx::range("outer");
        let _inner = nvtx::range("inner");
        panic!("inside");
    });
    assert!(caught.is_err());
    assert_eq!(take_events(), [start("outer", 1), start("inner", 2), End(2), End(1)]);
}

#[test]
fn a_leaked_range_never_ends() {
    let _turn = turn();
    mem::forget(nvtx::range("leaked"));
    drop(nvtx::range("next"));
    assert_eq!(take_events(), [start("leaked", 1), start("next", 2), End(2)]);
}

#[test]
fn a_range_in_a_struct_ends_with_it() {
    struct Holder {
        _range: nvtx::Range,
        _inner: nvtx::Range,
    }
    let _turn = turn();
    let holder = Box::new(Holder { _range: nvtx::range("held"), _inner: nvtx::range("held too") });
    let moved = *holder;
    drop(nvtx::range("meanwhile"));
    drop(moved);
    // Fields are dropped in the order in which they are declared.
    let starts = [start("held", 1), start("held too", 2), start("meanwhile", 3)];
    let ends = [End(3), End(1), End(2)];
    assert_eq!(take_events(), starts.into_iter().chain(ends).collect::<Vec<_>>());
}

#[test]
fn ranges_may_be_ten_thousand_deep() {
    const DEPTH: u64 = 10_000;
    let _turn = turn();
    let mut ranges: Vec<_> = (0..DEPTH).map(|_| nvtx::range("deep")).collect();
    while let Some(innermost) = ranges.pop() {
        drop(innermost);
    }
    let starts = (1..=DEPTH).map(|token| start("deep", token));
    let ends = (1..=DEPTH).rev().map(End);
    assert!(take_events() == starts.chain(ends).collect::<Vec<_>>());
}

#[test]
fn a_thread_may_end_with_a_range_open() {
    let _turn = turn();
    let open = thread::spawn(|| mem::forget(nvtx::range("open")));
    open.join().unwrap();
    // A new thread, which may have the place of the old one.
    thread::spawn(|| drop(nvtx::range("next"))).join().unwrap();
    assert_eq!(take_events(), [start("open", 1), start("next", 2), End(2)]);
}

#[test]
fn ranges_of_all_threads_are_seen() {
    const THREADS: usize = 8;
    const RANGES: usize = 200;
    let _turn = turn();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for _ in 0..RANGES {
                    drop(nvtx::range(&format!("thread {thread}")));
                }
            });
        }
    });
    let seen = take_events();
    assert_eq!(seen.len(), 2 * THREADS * RANGES);
    for thread in 0..THREADS {
        let name = format!("thread {thread}");
        let tokens: Vec<u64> = seen
            .iter()
            .filter_map(|event| match event {
                Event::Start(started, token) if *started == name => Some(*token),
                _ => None,
            })
            .collect();
        assert_eq!(tokens.len(), RANGES, "{name}");
        for token in tokens {
            let ends = seen.iter().filter(|event| **event == End(token));
            assert_eq!(ends.count(), 1, "{name}");
        }
    }
}

#[test]
fn the_same_observer_installs_again_and_another_is_refused() {
    let turn = turn();
    let again = observer::install(&RECORDER).unwrap();
    again.off();
    assert!(!turn.switch.is_on());
    let refused = observer::install(&OTHER).unwrap_err();
    assert!(refused.is_taken());
    assert!(!refused.is_disabled());
    assert!(refused.to_string().contains("another one holds the slot"));
    turn.switch.on();
    drop(nvtx::range("still the first"));
    assert_eq!(take_events(), [start("still the first", 1), End(1)]);
    assert!(OTHER.events().seen.is_empty());
}

#[test]
fn a_panic_at_a_start_is_kept_from_the_program() {
    let turn = turn();
    let before = turn.switch.panics();
    {
        let _around = nvtx::range("around");
        let _range = nvtx::range("panics at its start");
        assert!(!turn.switch.is_on());
        drop(nvtx::range("unseen"));
    }
    // No end for the start that gave no token.
    let expected = [start("around", 1), start("panics at its start", 2), End(1)];
    assert_eq!(take_events(), expected);
    assert_eq!(turn.switch.panics(), before + 1);
    turn.switch.on();
    drop(nvtx::range("seen again"));
    assert_eq!(take_events(), [start("seen again", 3), End(3)]);
}

#[test]
fn a_panic_at_an_end_is_kept_from_the_program() {
    let turn = turn();
    let before = turn.switch.panics();
    drop(nvtx::range("panics at its end"));
    assert_eq!(turn.switch.panics(), before + 1);
    assert!(!turn.switch.is_on());
}

#[test]
fn a_panic_at_an_end_during_a_panic_does_not_abort() {
    let turn = turn();
    let before = turn.switch.panics();
    let caught = panic::catch_unwind(AssertUnwindSafe(|| {
        let _range = nvtx::range("panics at its end");
        panic!("of the program");
    }));
    let message = caught.unwrap_err();
    assert_eq!(message.downcast_ref::<&str>(), Some(&"of the program"));
    assert_eq!(turn.switch.panics(), before + 1);
}

#[test]
fn ranges_in_the_destructors_of_a_thread_are_seen() {
    struct AtExit;
    impl Drop for AtExit {
        fn drop(&mut self) {
            drop(nvtx::range("at exit"));
        }
    }
    thread_local! {
        static AT_EXIT: AtExit = const { AtExit };
    }
    let _turn = turn();
    thread::spawn(|| AT_EXIT.with(|_| drop(nvtx::range("before")))).join().unwrap();
    assert_eq!(take_events(), [start("before", 1), End(1), start("at exit", 2), End(2)]);
}
