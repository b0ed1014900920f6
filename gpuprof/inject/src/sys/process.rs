//! What is asked of the process: whether it may be observed, its forks and its end.

use std::ffi::c_ulong;

use cupti::__private::{at_fork_in_child, stay_loaded};

use crate::life;

/// Whether the process has more rights than its starter, who must not choose what it writes.
pub(crate) fn is_privileged() -> bool {
    const AT_SECURE: c_ulong = libc::AT_SECURE;
    // SAFETY: looks a number up in what the kernel gave the process.
    unsafe { libc::getauxval(AT_SECURE) != 0 }
}

/// Keeps the library mapped, and children from using what is their parent's.
pub(crate) fn prepare() {
    extern "C" fn in_child() {
        life::forked();
    }
    stay_loaded();
    at_fork_in_child(in_child);
}

/// Has `life` end before the process does.
pub(crate) fn end_at_exit() {
    extern "C" fn at_exit() {
        super::guarded((), life::exit);
    }
    // SAFETY: the function takes and returns nothing, and its library stays mapped.
    let _ = unsafe { libc::atexit(at_exit) };
}
