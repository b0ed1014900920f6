//! A clock that a test moves, instead of the machine's.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Fake;
use crate::sys::os;
use crate::sys::os::stopped_clock::{AT_NS, IS_STOPPED};

impl Fake {
    /// Stops the clock of the process, [`now_ns`](crate::clock::now_ns), as long as the fake lives.
    /// It moves by a nanosecond at each reading and by [`advance_clock`](Self::advance_clock).
    /// Deadlines of waits use the machine's clock.
    pub fn stop_clock(&self) {
        AT_NS.fetch_max(os::machine_ns(), Ordering::AcqRel);
        IS_STOPPED.store(true, Ordering::Release);
    }

    /// Moves the stopped clock forward. Dropping the fake takes as long, so that the process's time
    /// does not go back.
    pub fn advance_clock(&self, time: Duration) {
        AT_NS.fetch_add(time.as_nanos() as u64, Ordering::AcqRel);
    }
}

/// Resumes the machine's clock, once that has caught up.
pub(super) fn start_again() {
    if IS_STOPPED.load(Ordering::Acquire) {
        let left = AT_NS.load(Ordering::Acquire).saturating_sub(os::machine_ns());
        std::thread::sleep(Duration::from_nanos(left));
        IS_STOPPED.store(false, Ordering::Release);
    }
}
