//! Whether the program was started with a standard output.
//!
//! Rust's runtime opens `/dev/null` in place of a closed one before `main`, and what is written there is lost in silence. So
//! this is looked at before the runtime starts.

use std::sync::atomic::{AtomicBool, Ordering};

static WAS_OPEN: AtomicBool = AtomicBool::new(true);

ctor::declarative::ctor! {
    /// Runs before the runtime: calls the system, and uses nothing else of the standard library.
    #[ctor]
    fn look() {
        // Without /proc nothing is known, and an open one is the rule.
        let has_proc = std::fs::symlink_metadata("/proc/self/fd").is_ok();
        let is_open = std::fs::symlink_metadata("/proc/self/fd/1").is_ok();
        WAS_OPEN.store(is_open || !has_proc, Ordering::Relaxed);
    }
}

pub(crate) fn was_stdout_open() -> bool {
    WAS_OPEN.load(Ordering::Relaxed)
}
