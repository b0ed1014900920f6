//! The open push/pop ranges of each thread.
//!
//! Ranges of several domains and several copies of NVTX share one stack. A pop ends the innermost
//! range of its domain.

use std::cell::RefCell;

use nvtx::observer::{RangeStart, Token};

use super::domain::Domain;
use super::waiting::Waiting;
use super::{NO_LEVEL, observer};
use crate::counts::{COUNTS, count};
use crate::mode::Mode;
use crate::switch::{self, Instance};

/// The maximum number of open ranges in a thread. Further ranges are counted, and their pops are
/// ignored.
const DEEPEST: usize = 1 << 14;
/// The limit for ranges that are opened before the recording begins, instead of [`DEEPEST`].
const DEEPEST_WAITING: usize = 1 << 10;
/// The result of a pop without an open range.
const UNBALANCED: i32 = -1;

thread_local!(static THREAD: RefCell<Thread> = const { RefCell::new(Thread::new()) });

struct Thread {
    /// The open ranges, outermost first.
    open: Vec<Open>,
    /// The number of ranges opened before the recording began.
    waiting: usize,
    /// The number of ranges beyond [`DEEPEST`], by domain.
    beyond: Vec<(u32, u32)>,
}

struct Open {
    /// The number of the domain.
    domain: u32,
    /// The level in the domain, from 0.
    level: i32,
    state: State,
    instance: Option<Instance>,
}

enum State {
    /// The observer has started the range.
    Started(Token),
    /// The range was opened before the recording began.
    Waiting(Box<Waiting>),
}

impl Thread {
    const fn new() -> Thread {
        Thread { open: Vec::new(), waiting: 0, beyond: Vec::new() }
    }

    /// The level of the next range of a domain.
    fn next_level(&self, domain: u32) -> i32 {
        let innermost = self.open.iter().rfind(|open| open.domain == domain);
        innermost.map_or(0, |open| open.level + 1)
    }

    fn push(&mut self, mode: Mode, domain: &Domain, start: &RangeStart<'_>) -> i32 {
        let level = self.next_level(domain.number);
        if self.open.len() >= if mode.is_on() { DEEPEST } else { DEEPEST_WAITING } {
            return self.push_beyond(domain.number, level);
        }
        let (state, instance) = if mode.is_on() {
            if self.waiting != 0 {
                self.start_waiting();
            }
            // Begin the window first, so that the recording started by this range includes the
            // range's first call.
            let instance = if mode.is_armed() { switch::range_begins(start.name) } else { None };
            (State::Started(observer().range_start(start)), instance)
        } else {
            self.waiting += 1;
            (State::Waiting(Waiting::new(start, domain.name)), None)
        };
        self.open.push(Open { domain: domain.number, level, state, instance });
        level
    }

    #[cold]
    fn push_beyond(&mut self, domain: u32, level: i32) -> i32 {
        count(&COUNTS.too_deep);
        match self.beyond.iter_mut().find(|(of, _)| *of == domain) {
            Some((_, beyond)) => *beyond = beyond.saturating_add(1),
            None => self.beyond.push((domain, 1)),
        }
        level
    }

    fn pop(&mut self, mode: Mode, domain: &Domain) -> i32 {
        if !self.beyond.is_empty() && self.pop_beyond(domain.number) {
            return self.next_level(domain.number);
        }
        let innermost = self.open.iter().rposition(|open| open.domain == domain.number);
        let Some(place) = innermost else {
            count(&COUNTS.unbalanced_pops);
            return UNBALANCED;
        };
        let open = self.open.remove(place);
        match open.state {
            State::Started(token) => observer().range_end(token),
            State::Waiting(_) => self.waiting -= 1,
        }
        if let Some(instance) = open.instance {
            switch::range_ended(instance);
        }
        if self.waiting != 0 && mode.is_on() {
            self.start_waiting();
        }
        open.level
    }

    #[cold]
    fn pop_beyond(&mut self, domain: u32) -> bool {
        let Some(place) = self.beyond.iter().position(|(of, _)| *of == domain) else {
            return false;
        };
        self.beyond[place].1 -= 1;
        if self.beyond[place].1 == 0 {
            self.beyond.swap_remove(place);
        }
        true
    }

    /// Starts the ranges that were opened before the recording began, outermost first.
    #[cold]
    fn start_waiting(&mut self) {
        for open in &mut self.open {
            if let State::Waiting(waiting) = &open.state {
                open.state = State::Started(observer().range_start(&waiting.start()));
            }
        }
        self.waiting = 0;
    }
}

/// Calls `with` with this thread's ranges. Returns `None` on reentry and on a thread that has
/// ended, and counts that.
#[inline]
fn with_thread<R>(with: impl FnOnce(&mut Thread) -> R) -> Option<R> {
    let result = THREAD.try_with(|thread| Some(with(&mut *thread.try_borrow_mut().ok()?)));
    result.ok().flatten().or_else(|| {
        count(&COUNTS.nested_events);
        None
    })
}

/// Starts a range of this thread and returns its level.
#[inline]
pub(crate) fn push(mode: Mode, domain: &Domain, start: &RangeStart<'_>) -> i32 {
    with_thread(|thread| thread.push(mode, domain, start)).unwrap_or(NO_LEVEL)
}

/// Ends the innermost range of this thread and domain, and returns its level, or a negative number
/// without such a range.
#[inline]
pub(crate) fn pop(mode: Mode, domain: &Domain) -> i32 {
    with_thread(|thread| thread.pop(mode, domain)).unwrap_or(NO_LEVEL)
}

/// Starts this thread's ranges that were opened before the recording began.
pub(crate) fn start_waiting() {
    with_thread(|thread| {
        if thread.waiting != 0 {
            thread.start_waiting();
        }
    });
}
