//! One clock for host and GPU: `CLOCK_MONOTONIC` in nanoseconds, the clock under [`std::time::Instant`] on Linux.
//!
//! CUPTI's own clock is `CLOCK_REALTIME`, which steps. A timestamp callback replaces it; it is registered once per
//! process, before anything is enabled, since registering again corrupts records. Whether it took is checked at every
//! start; where it did not, the offset to CUPTI's clock is measured at start and at stop.

use parking_lot::Mutex;

use crate::error::Error;
use crate::library::Library;
use crate::sys::abi::CuptiResult;
use crate::sys::os;

/// Nanoseconds of `CLOCK_MONOTONIC` now. Costs about 27 ns.
#[inline]
#[must_use]
pub fn now_ns() -> u64 {
    os::monotonic_ns()
}

/// How CUPTI's timestamps relate to [`now_ns`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Clock {
    /// CUPTI reads the same clock.
    Monotonic,
    /// CUPTI reads its own clock, ahead of ours by this many nanoseconds, as measured at start and at stop.
    Offset {
        /// At the start.
        at_start: i64,
        /// At the stop.
        at_stop: i64,
    },
}

extern "C" fn timestamp() -> u64 {
    os::monotonic_ns()
}

/// How far outside the bracket a reading may lie and still count as the same clock.
const TOLERANCE_NS: i64 = 1_000;
const BRACKETS: usize = 32;

/// Registers the timestamp callback with this library if this process has not done so.
pub(crate) fn register(library: &Library) {
    static REGISTERED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let register = library.api.register_timestamp_callback;
    let mut registered = REGISTERED.lock();
    if !registered.contains(&(register as usize)) {
        registered.push(register as usize);
        // SAFETY: `timestamp` lives as long as the process and cannot unwind; nothing is enabled yet. A refusal shows
        // in `compare`.
        unsafe { register(timestamp) };
    }
}

/// What CUPTI's clock shows against ours: (offset at the tightest of many brackets, whether it lies in the bracket).
pub(crate) fn compare(library: &Library) -> Result<(i64, bool), Error> {
    let mut best = (u64::MAX, 0, false);
    for _ in 0..BRACKETS {
        let mut cupti = 0;
        let before = now_ns();
        // SAFETY: `cupti` is a live u64, all that cuptiGetTimestamp writes.
        let code = unsafe { (library.api.get_timestamp)(&mut cupti) };
        let after = now_ns();
        if code != CuptiResult::SUCCESS {
            return Err(Error::call("cuptiGetTimestamp", code));
        }
        let width = after - before;
        if width < best.0 {
            let offset = cupti.wrapping_sub(before + width / 2) as i64;
            let inside = offset.abs() <= width as i64 / 2 + TOLERANCE_NS;
            best = (width, offset, inside);
        }
    }
    Ok((best.1, best.2))
}
