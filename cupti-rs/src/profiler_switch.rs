//! The program's profiler switch, `cudaProfilerStart` and `cudaProfilerStop`: the times of its use,
//! and the handler called at each.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock;
use crate::collection_state::{self, SWITCH, SWITCHED_ON, State};
use crate::sys::os;

/// The times when the program turned the switch on, off, on, and so on, in the order of the calls.
static MARKS: Mutex<Vec<(u64, bool)>> = Mutex::new(Vec::new());
/// The handler that is called when the program uses the switch.
static HANDLER: Mutex<Option<SwitchHandler>> = Mutex::new(None);

/// The program's own function for its switch.
#[derive(Clone)]
pub(crate) struct SwitchHandler {
    pub(crate) call: Arc<dyn Fn(bool) + Send + Sync>,
    /// True if the switch also bounds the collection.
    pub(crate) bounds_too: bool,
}

impl fmt::Debug for SwitchHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwitchHandler").finish_non_exhaustive()
    }
}

/// Drops the marks of an earlier collection.
pub(crate) fn begin() {
    MARKS.lock().clear();
}

/// Removes the handler and returns the marks of the collection.
pub(crate) fn end() -> Vec<(u64, bool)> {
    set_handler(None);
    std::mem::take(&mut *MARKS.lock())
}

/// Returns the times when the program used the switch, so far.
pub(crate) fn marks() -> Vec<(u64, bool)> {
    MARKS.lock().clone()
}

/// Sets the handler that is called when the program uses the switch.
pub(crate) fn set_handler(handler: Option<SwitchHandler>) {
    *HANDLER.lock() = handler;
}

/// Records a use of the switch and calls its handler: rare enough for a lock.
#[cold]
pub(crate) fn switched(on: bool) {
    // Called without the lock: it may end the collection.
    let handler = HANDLER.lock().clone();
    if let Some(SwitchHandler { call, bounds_too }) = handler {
        call(on);
        if !bounds_too {
            return;
        }
    }
    let mut marks = MARKS.lock();
    if on {
        collection_state::set_switched_on();
    }
    turn(&mut marks, on);
}

/// Adds a mark; a call that does not change the switch adds none.
fn turn(marks: &mut Vec<(u64, bool)>, on: bool) {
    if marks.last().is_some_and(|&(_, last)| last) != on {
        marks.push((os::monotonic_ns(), on));
    }
}

/// Returns false while every record is discarded: the switch has never been on, so the calls of all
/// records were outside.
pub(crate) fn keeps_records() -> bool {
    let state = State::load();
    !state.has(SWITCH) || state.has(SWITCHED_ON)
}

/// Returns the parts of `windows` in which the switch was on; both are sorted.
pub(crate) fn while_switched_on(windows: &[(u64, u64)], marks: &[(u64, bool)]) -> Vec<(u64, u64)> {
    let on: Vec<(u64, u64)> = marks
        .chunks(2)
        .map(|turns| (turns[0].0, turns.get(1).map_or(u64::MAX, |&(at, _)| at)))
        .collect();
    clock::intersection(windows, &on)
}

/// Drops the periods with the switch on that ended before a time.
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
    fn work_counts_only_if_both_switches_are_on() {
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
    fn ended_windows_are_dropped_and_open_ones_retained() {
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
