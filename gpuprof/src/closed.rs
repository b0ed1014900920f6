//! Whether the program was started with an open standard output.
//!
//! Rust's runtime replaces a closed one by `/dev/null` before `main`, which loses the output
//! silently. So the check runs before the runtime starts.

use std::sync::atomic::{AtomicBool, Ordering};

static WAS_OPEN: AtomicBool = AtomicBool::new(true);

ctor::declarative::ctor! {
    /// Runs before the runtime: only calls the system.
    #[ctor]
    fn look() {
        // Without /proc, assume that it is open.
        let has_proc = std::fs::symlink_metadata("/proc/self/fd").is_ok();
        let is_open = std::fs::symlink_metadata("/proc/self/fd/1").is_ok();
        WAS_OPEN.store(is_open || !has_proc, Ordering::Relaxed);
    }
}

pub(crate) fn was_stdout_open() -> bool {
    WAS_OPEN.load(Ordering::Relaxed)
}
