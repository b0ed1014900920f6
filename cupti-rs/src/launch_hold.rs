//! Holds launches back while a collection disables its kinds.
//!
//! Where the kernel kind is disabled while a stream has work under way, CUPTI 13.0.1 writes no records for the first kernels
//! of that stream after the kind is enabled again, or holds their buffers back for good (seen on an H100; decision 021).

use std::time::{Duration, Instant};

use crate::calls;
use crate::flusher::Flusher;
use crate::session::{self, HELD, State};

/// How long launches are held back for work that does not finish.
const LONGEST: Duration = Duration::from_millis(100);
/// How long a launch waits: longer than a hold, unless a call into CUPTI does not return.
const LAUNCH_WAITS: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_micros(50);

/// Waits in the callback of a launch until none is held back.
#[cold]
pub(crate) fn wait() {
    let late = Instant::now() + LAUNCH_WAITS;
    while State::load().has(HELD) && Instant::now() < late {
        std::thread::sleep(PAUSE);
    }
}

/// Runs `work` once nothing is under way and all records have arrived, or after [`LONGEST`]. Launches that begin meanwhile
/// wait in their callbacks.
pub(crate) fn without_launches<R>(flusher: &Flusher, work: impl FnOnce() -> R) -> R {
    struct Held;
    impl Drop for Held {
        fn drop(&mut self) {
            session::release();
        }
    }

    session::hold();
    let _held = Held;
    let late = Instant::now() + LONGEST;
    loop {
        let quiet_since = calls::quiet_since();
        if quiet_since.is_some_and(|ns| ns < flusher.settled_ns()) {
            break;
        }
        let left = late.saturating_duration_since(Instant::now());
        // A flush finds nothing of a launch that has not returned.
        let goes_on =
            quiet_since.is_none() || flusher.request().and_then(|flush| flush.wait(left)).is_ok();
        if left.is_zero() || !goes_on {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    work()
}
