//! Whether this process was forked off from one in which CUPTI was used: there CUPTI would hang.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Kind};

static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Called in the child.
pub(crate) fn is_child_now() {
    IS_CHILD.store(true, Ordering::Release);
}

/// Whether this process is such a child. Locks may be held there by threads that it does not have.
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Acquire)
}

/// In such a child CUPTI would hang.
pub(crate) fn check_process() -> Result<(), Error> {
    if is_child() { Err(Error::new(Kind::Forked)) } else { Ok(()) }
}
