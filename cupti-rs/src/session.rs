//! The state of the collection, in one word that every callback reads once.
//!
//! The word also numbers the collections and, within one, the stretches between pauses. A thread's log belongs to a
//! collection; a call that was open at a pause belongs to an earlier stretch.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::clock;
use crate::forked;
use crate::graph_gate;
use crate::switch_handler::SwitchHandler;
use crate::sys::os;

/// Calls and events are logged and passed to the handler.
pub(crate) const ON: u64 = 1;
/// The program has a handler for callbacks.
pub(crate) const HANDLER: u64 = 1 << 1;
/// The runtime API's calls are logged too.
pub(crate) const RUNTIME_CALLS: u64 = 1 << 2;
/// Graph events are logged.
pub(crate) const GRAPHS: u64 = 1 << 3;
/// `cudaProfilerStart` and `cudaProfilerStop` bound the collection.
pub(crate) const SWITCH: u64 = 1 << 4;
/// The switch has been on, or does not bound the collection.
pub(crate) const SWITCHED_ON: u64 = 1 << 5;
/// Launches of graphs and flushes exclude each other.
pub(crate) const GATED: u64 = 1 << 6;
/// Launches wait, because kinds are being disabled.
pub(crate) const HELD: u64 = 1 << 7;
/// What calls wait for is logged.
pub(crate) const WAITS: u64 = 1 << 8;
/// Calls wait in their return, and in their begin, because callbacks are being disabled.
pub(crate) const RETURNS_HELD: u64 = 1 << 9;
pub(crate) const BEGINS_HELD: u64 = 1 << 10;

const FLAGS: u64 = 0x7ff;
const STRETCH: u64 = 1 << 11;
/// The bits of the stretch.
const STRETCHES: u64 = 0xffff_f800;
const NUMBER: u32 = 32;

static STATE: AtomicU64 = AtomicU64::new(0);
/// When the program turned the switch on, off, on, and so on, in the order of the calls.
static MARKS: Mutex<Vec<(u64, bool)>> = Mutex::new(Vec::new());
/// What is called when the program turns the switch.
static SWITCH_HANDLER: Mutex<Option<SwitchHandler>> = Mutex::new(None);

/// The word as a callback read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State(u64);

impl State {
    #[inline]
    pub(crate) fn load() -> Self {
        Self(STATE.load(Ordering::Acquire))
    }

    /// Whether any of these flags is set.
    #[inline]
    pub(crate) fn has(self, flags: u64) -> bool {
        self.0 & flags != 0
    }

    /// Whether logging is all that a callback does with a driver call.
    #[inline]
    pub(crate) fn only_logs(self) -> bool {
        self.0 & (ON | HANDLER | SWITCH | GATED | HELD) == ON
    }

    /// Whether there is a collection.
    #[inline]
    pub(crate) fn is_of_collection(self) -> bool {
        self.0 != 0
    }

    /// The collection's number.
    #[inline]
    pub(crate) fn number(self) -> u32 {
        (self.0 >> NUMBER) as u32
    }

    /// Which collection and which stretch of it.
    #[inline]
    pub(crate) fn epoch(self) -> Epoch {
        Epoch(self.0 & !FLAGS)
    }
}

/// A collection and a stretch of it between two pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Epoch(u64);

impl Epoch {
    /// Before any collection.
    pub(crate) const NONE: Self = Self(0);

    /// Whether both are of one collection.
    pub(crate) fn same_collection(self, other: Self) -> bool {
        self.0 >> NUMBER == other.0 >> NUMBER
    }
}

/// Begins a collection, paused.
pub(crate) fn begin(flags: u64) {
    static LAST: AtomicU32 = AtomicU32::new(0);
    MARKS.lock().clear();
    let number = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
    STATE.store(u64::from(number) << NUMBER | (flags & !ON & FLAGS), Ordering::Release);
}

/// Resumes the collection with a new stretch.
pub(crate) fn resume() {
    let next = |state: u64| {
        // The stretch wraps within its 21 bits and leaves the number alone.
        let stretch = state.wrapping_add(STRETCH) & STRETCHES;
        Some(state & !STRETCHES | stretch | ON)
    };
    graph_gate::begin();
    let _ = STATE.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
}

/// Holds launches back.
pub(crate) fn hold() {
    STATE.fetch_or(HELD, Ordering::AcqRel);
}

/// Holds launches back no longer, and goes on: those that waited are logged.
pub(crate) fn release() {
    STATE.fetch_and(!HELD, Ordering::AcqRel);
}

/// Holds calls back, in their return or their begin.
pub(crate) fn hold_calls(flag: u64) {
    STATE.fetch_or(flag, Ordering::SeqCst);
}

/// Holds calls back no longer.
pub(crate) fn release_calls() {
    STATE.fetch_and(!(RETURNS_HELD | BEGINS_HELD), Ordering::AcqRel);
}

/// Pauses the collection and holds launches back no longer: those that waited are not logged.
pub(crate) fn pause() {
    STATE.fetch_and(!(ON | HELD), Ordering::AcqRel);
}

/// Ends the collection, for callbacks that are still running, too. Returns the switch's marks.
pub(crate) fn end() -> Vec<(u64, bool)> {
    STATE.store(0, Ordering::Release);
    handle_switch(None);
    std::mem::take(&mut *MARKS.lock())
}

/// When the program turned the switch, so far.
pub(crate) fn marks() -> Vec<(u64, bool)> {
    MARKS.lock().clone()
}

/// Prepares the process before CUPTI is used: in a forked child the state is 0 from the first instruction on, and the code that
/// CUPTI calls stays mapped.
pub(crate) fn leave_children_out() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    extern "C" fn in_child() {
        STATE.store(0, Ordering::Release);
        forked::is_child_now();
    }
    ONCE.call_once(|| {
        os::stay_loaded();
        os::at_fork_in_child(in_child);
    });
}

/// Sets what is called when the program turns the switch.
pub(crate) fn handle_switch(handler: Option<SwitchHandler>) {
    *SWITCH_HANDLER.lock() = handler;
}

/// Records that the program turned the switch, and calls its handler: rare enough for a lock.
#[cold]
pub(crate) fn switched(on: bool) {
    // Called without the lock: it may end the collection.
    let handler = SWITCH_HANDLER.lock().clone();
    if let Some(SwitchHandler { call, bounds_too }) = handler {
        call(on);
        if !bounds_too {
            return;
        }
    }
    let mut marks = MARKS.lock();
    if on {
        STATE.fetch_or(SWITCHED_ON, Ordering::AcqRel);
    }
    turn(&mut marks, on);
}

/// A call that does not change the switch adds no mark.
fn turn(marks: &mut Vec<(u64, bool)>, on: bool) {
    if marks.last().is_some_and(|&(_, last)| last) != on {
        marks.push((os::monotonic_ns(), on));
    }
}

/// False while every record is discarded: the switch was never on yet, so the calls of all records were outside.
pub(crate) fn keeps_records() -> bool {
    let state = State::load();
    !state.has(SWITCH) || state.has(SWITCHED_ON)
}

/// The parts of `windows` in which the switch was on; both are in order.
pub(crate) fn while_switched_on(windows: &[(u64, u64)], marks: &[(u64, bool)]) -> Vec<(u64, u64)> {
    let on: Vec<(u64, u64)> = marks
        .chunks(2)
        .map(|turns| (turns[0].0, turns.get(1).map_or(u64::MAX, |&(at, _)| at)))
        .collect();
    clock::intersection(windows, &on)
}

/// Drops the times in which the switch was on that ended before a time.
pub(crate) fn forget_marks(before_ns: u64) {
    forget(&mut MARKS.lock(), before_ns);
}

fn forget(marks: &mut Vec<(u64, bool)>, before_ns: u64) {
    let ended = marks.chunks_exact(2).take_while(|turns| turns[1].0 < before_ns).count();
    marks.drain(..2 * ended);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_on_both_ways_counts() {
        let marks = [(10, true), (20, false), (30, true)];
        assert_eq!(while_switched_on(&[(0, 100)], &marks), [(10, 20), (30, 100)]);
        assert_eq!(while_switched_on(&[(0, 15), (18, 40)], &marks), [(10, 15), (18, 20), (30, 40)]);
        assert_eq!(while_switched_on(&[(20, 30)], &marks), []);
        assert_eq!(while_switched_on(&[(0, 100)], &[]), []);
        let pauses = [(0, 5), (6, 12), (12, 13), (14, 40), (41, 50)];
        let both = [(10, 12), (12, 13), (14, 20), (30, 40), (41, 50)];
        assert_eq!(while_switched_on(&pauses, &marks), both);
    }

    #[test]
    fn only_turns_of_the_switch_are_marks() {
        let mut marks = Vec::new();
        for on in [false, false, true, true, false, false, true, true, true] {
            turn(&mut marks, on);
        }
        let ways: Vec<bool> = marks.iter().map(|&(_, on)| on).collect();
        assert_eq!(ways, [true, false, true]);
        assert!(marks.is_sorted());
    }

    #[test]
    fn stretches_that_ended_are_forgotten_and_open_ones_stay() {
        let mut marks = vec![(10, true), (20, false), (30, true), (40, false), (50, true)];
        for (before_ns, left) in [(20, 5), (21, 3), (40, 3), (41, 1), (u64::MAX, 1)] {
            forget(&mut marks, before_ns);
            assert_eq!(marks.len(), left, "before {before_ns}");
        }
        assert_eq!(while_switched_on(&[(0, 100)], &marks), [(50, 100)]);
    }

    #[test]
    fn many_windows_and_turns_are_walked_once() {
        let windows: Vec<_> = (0..200_000).map(|i| (10 * i, 10 * i + 9)).collect();
        let marks: Vec<_> = (0..400_000).map(|i| (5 * i + 1, i % 2 == 0)).collect();
        // Each with each would take minutes.
        let both = while_switched_on(&windows, &marks);
        assert!(both.len() == 200_000 && both[7] == (71, 76), "{}", both.len());
    }
}
