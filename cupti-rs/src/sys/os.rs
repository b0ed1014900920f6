//! The few calls to the operating system that have no safe wrapper in std.

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock under [`std::time::Instant`] on Linux.
#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live timespec of this frame, and CLOCK_MONOTONIC exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

/// The kernel's id of the calling thread, as `gettid`, nsys and CUPTI's SYSTEM thread ids have it.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: gettid takes no argument and cannot fail.
    let id = unsafe { libc::gettid() };
    id as u32
}

/// Has `child` run in every child that is forked off from now on, before anything else of this crate does. It may do
/// only what a signal handler may.
pub(crate) fn at_fork_in_child(child: extern "C" fn()) {
    // SAFETY: the two handlers that are not wanted may be null; `child` only stores to an atomic.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(child)) };
}
