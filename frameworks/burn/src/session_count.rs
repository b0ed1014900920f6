//! The number of sessions that run, which the threads of burn read.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Sessions that run.
static SESSIONS: AtomicUsize = AtomicUsize::new(0);
/// Those of them that follow compilations.
static FOLLOWING: AtomicUsize = AtomicUsize::new(0);

/// Counts a session that starts.
pub(crate) fn add(compilations: bool) {
    SESSIONS.fetch_add(1, Ordering::Relaxed);
    FOLLOWING.fetch_add(usize::from(compilations), Ordering::Relaxed);
}

/// Counts the end of a session. Returns whether it was the last one.
pub(crate) fn remove(compilations: bool) -> bool {
    FOLLOWING.fetch_sub(usize::from(compilations), Ordering::Relaxed);
    SESSIONS.fetch_sub(1, Ordering::Relaxed) == 1
}

/// Whether a session follows compilations.
pub(crate) fn follows_compilations() -> bool {
    FOLLOWING.load(Ordering::Relaxed) > 0
}

/// Whether a session runs.
#[cfg(feature = "fusion")]
pub(crate) fn is_running() -> bool {
    SESSIONS.load(Ordering::Relaxed) > 0
}
