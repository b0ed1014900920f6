//! Whether this process was forked off from one in which CUPTI was used: there CUPTI would hang.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, Kind};

static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Counters that are 0 in a child from its first instruction on.
static ZEROED: [OnceLock<&'static AtomicU64>; 4] = [const { OnceLock::new() }; 4];

/// Called in the child. Does only what a signal handler may.
pub(crate) fn is_child_now() {
    IS_CHILD.store(true, Ordering::Release);
    for counter in ZEROED.iter().filter_map(OnceLock::get) {
        counter.store(0, Ordering::Release);
    }
}

/// Has a counter be 0 in children. Each registry of the program takes one place; there are more than that.
pub(crate) fn zero_in_children(counter: &'static AtomicU64) {
    let is_there = |place: &OnceLock<&'static AtomicU64>| {
        std::ptr::eq(*place.get_or_init(|| counter), counter)
    };
    let is_there = ZEROED.iter().any(is_there);
    debug_assert!(is_there);
}

/// Whether this process is such a child. Locks may be held there by threads that it does not have.
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Acquire)
}

/// An error in such a child, where CUPTI would hang.
///
/// # Errors
/// The process was forked off from one in which CUPTI was used.
pub fn check_process() -> Result<(), Error> {
    if is_child() { Err(Error::new(Kind::Forked)) } else { Ok(()) }
}
