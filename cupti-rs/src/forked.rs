//! Detection of a process forked off from one in which CUPTI was used: there CUPTI would hang.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, Kind};

static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Counters that are 0 in a child from its first instruction on.
static ZEROED: [OnceLock<&'static AtomicU64>; 4] = [const { OnceLock::new() }; 4];

/// Called in the child. Restricted to what a signal handler may do.
pub(crate) fn is_child_now() {
    IS_CHILD.store(true, Ordering::Release);
    for counter in ZEROED.iter().filter_map(OnceLock::get) {
        counter.store(0, Ordering::Release);
    }
}

/// Makes a counter 0 in children. Each registry of the program takes one of the slots, which
/// suffice for all registries.
pub(crate) fn zero_in_children(counter: &'static AtomicU64) {
    let is_there = |place: &OnceLock<&'static AtomicU64>| {
        std::ptr::eq(*place.get_or_init(|| counter), counter)
    };
    let is_there = ZEROED.iter().any(is_there);
    debug_assert!(is_there);
}

/// True if this process is such a child. Locks may be held there by threads that it does not have.
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Acquire)
}

/// Checks that this process is not such a child, where CUPTI would hang.
///
/// # Errors
///
/// The process was forked off from one in which CUPTI was used.
pub fn check_process() -> Result<(), Error> {
    if is_child() { Err(Error::new(Kind::Forked)) } else { Ok(()) }
}
