//! What is asked of the process: whether it may be observed, its forks and its end.

use std::ffi::c_ulong;
use std::panic;
use std::sync::Once;

use cupti::__private::stay_loaded;

use super::guarded;
use crate::{annotations, life};

/// Whether the process has more rights than its starter, who must not choose what it writes.
pub(super) fn is_privileged() -> bool {
    const AT_SECURE: c_ulong = libc::AT_SECURE;
    // SAFETY: looks a number up in what the kernel gave the process.
    unsafe { libc::getauxval(AT_SECURE) != 0 }
}

/// Keeps the library mapped and silent, and children from using what is their parent's. Once.
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
    // A panic of this library is counted and goes nowhere: neither does its message.
    panic::set_hook(Box::new(|_| {}));
    stay_loaded();
    // SAFETY: the functions take and return nothing, and their library stays mapped. That of the child stores to atomics and
    // releases a lock that its thread holds.
    let _ = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// Has `life` end before the process does.
pub(super) fn end_at_exit() {
    extern "C" fn at_exit() {
        guarded((), life::exit);
    }
    // SAFETY: the function takes and returns nothing, and its library stays mapped.
    let _ = unsafe { libc::atexit(at_exit) };
}
