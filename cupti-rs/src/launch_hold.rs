//! Holds launches back while a collection disables its kinds.
//!
//! CUPTI 13.0.1 loses records if the kernel kind is disabled while a stream has work under way.
//! After the kind is enabled again, it writes no records for the first kernels of that stream, or
//! never returns their buffers (seen on an H100; decision 021).

use std::sync::atomic::{Ordering, compiler_fence};
use std::time::{Duration, Instant};

use crate::call_log;
use crate::collection_state::{self, HELD, State};
use crate::flusher::Flusher;
use crate::sys::os;

/// The maximum time for which launches are held back for work that does not finish.
pub(crate) const LONGEST: Duration = Duration::from_millis(100);
/// The maximum wait of a launch: longer than a hold, unless a call into CUPTI does not return.
const LAUNCH_WAITS: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_micros(50);

/// Waits in the callback of a launch until the hold ends. False if the hold outlasts the wait.
#[cold]
pub(crate) fn wait() -> bool {
    let late = Instant::now() + LAUNCH_WAITS;
    while State::load().has(HELD) {
        if Instant::now() >= late {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

/// True if launches are held back. A thread checks this after it has logged a launch: either it
/// sees the hold, or the holder sees the launch.
#[inline]
pub(crate) fn is_held() -> bool {
    // There is no processor fence between the log and this load: the holder runs one on all
    // threads.
    compiler_fence(Ordering::SeqCst);
    State::load().has(HELD)
}

/// Waits as [`wait`] does in the callback of a launch that is logged already.
pub(crate) fn wait_logged(id: u32, correlation_id: u32) {
    let mut released = true;
    while released && is_held() {
        call_log::set_waiting(id, correlation_id, true);
        released = wait();
        call_log::set_waiting(id, correlation_id, false);
    }
}

/// Runs `work` once nothing is under way and all records have arrived, or after `longest`, and then
/// calls `release`, which ends the hold. Launches that begin meanwhile wait in their callbacks
/// until then. Launches that began before `from_ns` count as over: their returns may have been
/// missed.
pub(crate) fn without_launches<R>(
    flusher: &Flusher,
    longest: Duration,
    from_ns: u64,
    release: fn(),
    work: impl FnOnce() -> R,
) -> R {
    struct Held(fn());
    impl Drop for Held {
        fn drop(&mut self) {
            (self.0)();
        }
    }

    // Before the hold: the first call in a process takes milliseconds.
    let has_barrier = os::can_fence_all_threads();
    collection_state::hold();
    let _held = Held(release);
    os::fence_all_threads(has_barrier);
    let late = Instant::now() + longest.min(LONGEST);
    loop {
        let quiet_since = call_log::quiet_since(from_ns);
        if quiet_since.is_some_and(|ns| ns < flusher.settled_ns()) {
            break;
        }
        let left = late.saturating_duration_since(Instant::now());
        // A flush delivers nothing of a launch that has not returned.
        let goes_on =
            quiet_since.is_none() || flusher.request().and_then(|flush| flush.wait(left)).is_ok();
        if left.is_zero() || !goes_on {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    work()
}
