//! Detection of a closed standard output at program start.
//!
//! Rust's runtime replaces a closed descriptor by `/dev/null` before `main`, which would lose the
//! output silently. The check therefore runs before the runtime starts.

use std::sync::atomic::{AtomicBool, Ordering};

static WAS_OPEN: AtomicBool = AtomicBool::new(true);

ctor::declarative::ctor! {
    /// Runs before the runtime, so it only makes system calls.
    #[ctor]
    fn look() {
        // Without /proc, assume that standard output is open.
        let has_proc = std::fs::symlink_metadata("/proc/self/fd").is_ok();
        let is_open = std::fs::symlink_metadata("/proc/self/fd/1").is_ok();
        WAS_OPEN.store(is_open || !has_proc, Ordering::Relaxed);
    }
}

pub(crate) fn was_stdout_open() -> bool {
    WAS_OPEN.load(Ordering::Relaxed)
}
