//! Queries of the process: permission to observe it, its forks and its end.

use std::ffi::c_ulong;
use std::panic;
use std::sync::Once;

use cupti::__private::stay_loaded;

use super::guarded;
use crate::{annotations, life};

/// True if the process has more privileges than its starter. The starter must not choose what it
/// writes.
pub(super) fn is_privileged() -> bool {
    const AT_SECURE: c_ulong = libc::AT_SECURE;
    // SAFETY: looks up a number that the kernel passed to the process.
    unsafe { libc::getauxval(AT_SECURE) != 0 }
}

/// Prepares the process, once. Keeps the library mapped, silences its panics, and prevents forked
/// children from using their parent's recording.
pub(super) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(prepare_once);
}

fn prepare_once() {
    extern "C" fn before() {
        guarded((), annotations::before_fork);
    }
    extern "C" fn in_parent() {
        guarded((), annotations::after_fork);
    }
    extern "C" fn in_child() {
        life::forked();
        guarded((), annotations::after_fork);
    }
    // Panics of this library are counted, and their messages must not be printed.
    panic::set_hook(Box::new(|_| {}));
    stay_loaded();
    // SAFETY: the functions take and return nothing, and their library stays mapped. The child's
    // function stores to atomics and releases a lock that its thread holds.
    let _ = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// Ends `life` before the process ends.
pub(super) fn end_at_exit() {
    extern "C" fn at_exit() {
        guarded((), life::exit);
    }
    // SAFETY: the function takes and returns nothing, and its library stays mapped.
    let _ = unsafe { libc::atexit(at_exit) };
}
