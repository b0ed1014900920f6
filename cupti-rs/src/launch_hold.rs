//! Holds launches back while a collection disables its kinds, and while CUPTI is flushed.
//!
//! A flush returns the buffers that CUPTI keeps for each thread. CUPTI 13.0.1 may free one that a
//! launch is about to write to, which crashes the program (seen on an H200; decision 013). 12.8 and
//! 12.9 can deadlock if one thread flushes while others launch graphs: the flush waits for a driver
//! lock that a launch holds, and that launch waits for a CUPTI lock that the flush holds.
//!
//! CUPTI 13.0.1 loses records if the kernel kind is disabled while a stream has work under way.
//! After the kind is enabled again, it writes no records for the first kernels of that stream, or
//! never returns their buffers (seen on an H100; decision 021).
//!
//! CUPTI 13.0.1 deadlocks if PC sampling of a context ends while another thread launches: the driver
//! waits for CUPTI's lock there, and CUPTI for the driver's (seen on an H200; decision 013).

use std::sync::atomic::{AtomicUsize, Ordering, compiler_fence};
use std::time::Duration;

use parking_lot::Mutex;

use crate::call_class::CallClass;
use crate::call_log;
use crate::collection_state::{self, HELD, State};
use crate::paused_launches;
use crate::sys::os;

/// The maximum time for which launches are held back for work that does not finish.
pub(crate) const LONGEST: Duration = Duration::from_millis(100);
/// The maximum wait of a flush for launches to return. A launch may wait for room in the GPU's
/// queue.
const FLUSH_WAITS: Duration = Duration::from_millis(20);
/// The maximum wait of a flush for another one.
const ONE_FLUSH: Duration = Duration::from_millis(50);
/// The maximum wait of a launch: longer than a hold, unless a call into CUPTI does not return.
const LAUNCH_WAITS: Duration = Duration::from_millis(200);
/// The maximum wait of a launch for a call that deadlocks beside one.
const LAUNCH_WAITS_FOR_SOLE_CALL: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_micros(50);

/// Waits in the callback of a launch until the hold ends. A hold that outlasts the wait, because a
/// call into CUPTI does not return, is over for all launches then.
#[cold]
pub(crate) fn wait() {
    WAITING.fetch_add(1, Ordering::AcqRel);
    let is_over = |_| Some(!State::load().has(HELD));
    let is_for_sole_call = || HOLDS.lock().sole_calls != 0;
    let is_released = wait_until(LAUNCH_WAITS, is_over)
        || is_for_sole_call() && wait_until(LAUNCH_WAITS_FOR_SOLE_CALL, is_over);
    if !is_released {
        let mut holds = HOLDS.lock();
        *holds = Holds { generation: holds.generation.wrapping_add(1), ..Holds::NONE };
        collection_state::release();
    }
    WAITING.fetch_sub(1, Ordering::AcqRel);
}

/// True if launches wait.
pub fn launches_wait() -> bool {
    State::load().has(HELD)
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
    while is_held() {
        call_log::set_waiting(id, correlation_id, true);
        wait();
        call_log::set_waiting(id, correlation_id, false);
    }
}

static HOLDS: Mutex<Holds> = Mutex::new(Holds::NONE);
/// The number of launches that wait.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// The [`Hold`]s of the process.
struct Holds {
    count: usize,
    /// Those for flushes.
    flushes: usize,
    /// Those for calls that deadlock beside a launch.
    sole_calls: usize,
    /// Rises when a launch has waited too long: earlier holds are over.
    generation: usize,
}

impl Holds {
    const NONE: Self = Self { count: 0, flushes: 0, sole_calls: 0, generation: 0 };
}

/// Calls CUPTI while no launch is in progress. `None` if one does not return in this time.
pub(crate) fn beside_no_launch<R>(longest: Duration, call: impl FnOnce() -> R) -> Option<R> {
    let hold = Hold::begin_with(0, 1);
    hold.wait_for_returns_within(longest).is_none().then(call)
}

/// Launches that begin wait in their callbacks until the last of these is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    flushes: usize,
    sole_calls: usize,
    generation: usize,
}

impl Hold {
    pub(crate) fn begin() -> Self {
        Self::begin_with(0, 0)
    }

    /// Begins the hold of a flush, after that of another flush: together they would hold launches
    /// back without an end.
    pub(crate) fn begin_flush() -> Self {
        wait_until(ONE_FLUSH, |_| Some(HOLDS.lock().flushes == 0));
        Self::begin_with(1, 0)
    }

    fn begin_with(flushes: usize, sole_calls: usize) -> Self {
        // Before the hold: the first call in a process takes milliseconds.
        let has_barrier = os::can_fence_all_threads();
        let mut holds = HOLDS.lock();
        if holds.count == 0 {
            // What waited for the hold before goes first.
            wait_until(FLUSH_WAITS, |_| Some(WAITING.load(Ordering::Acquire) == 0));
        }
        holds.count += 1;
        holds.flushes += flushes;
        holds.sole_calls += sole_calls;
        collection_state::hold();
        let hold = Self { flushes, sole_calls, generation: holds.generation };
        drop(holds);
        os::fence_all_threads(has_barrier);
        hold
    }

    /// Waits until no launch is in progress, at most [`FLUSH_WAITS`]. Returns the class of a launch
    /// that is still in progress.
    pub(crate) fn wait_for_returns(&self) -> Option<CallClass> {
        self.wait_for_returns_within(FLUSH_WAITS)
    }

    fn wait_for_returns_within(&self, longest: Duration) -> Option<CallClass> {
        let collection = State::load().collection();
        let in_progress = || match call_log::quiet_since() {
            Err(class) => Some(class),
            Ok(_) => paused_launches::any(collection).then_some(CallClass::KernelLaunch),
        };
        wait_until(longest, |_| Some(in_progress().is_none()));
        in_progress()
    }

    /// Waits until no launch is in progress and all records have arrived, at most `longest`.
    /// `has_settled` gets the last call's time; `flush` gets the time left, and returns false to
    /// give up.
    pub(crate) fn wait_for_records(
        &self,
        longest: Duration,
        has_settled: impl Fn(u64) -> bool,
        flush: impl Fn(Duration) -> bool,
    ) {
        wait_until(longest.min(LONGEST), |left| match call_log::quiet_since() {
            Ok(ns) if has_settled(ns) => Some(true),
            Ok(_) => flush(left).then_some(false),
            // A flush delivers nothing of a launch that has not returned.
            Err(_) => Some(false),
        });
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut holds = HOLDS.lock();
        if holds.generation == self.generation {
            holds.count -= 1;
            holds.flushes -= self.flushes;
            holds.sole_calls -= self.sole_calls;
            if holds.count == 0 {
                collection_state::release();
            }
        }
    }
}

/// Waits until `is_ready`, which gets the time left and returns `None` to give up. Returns true if
/// it became ready.
fn wait_until(longest: Duration, is_ready: impl Fn(Duration) -> Option<bool>) -> bool {
    let begun_ns = os::monotonic_ns();
    loop {
        let left = remaining(begun_ns, longest);
        match is_ready(left) {
            Some(true) => return true,
            Some(false) if !left.is_zero() => std::thread::sleep(PAUSE),
            _ => return false,
        }
    }
}

/// The remaining time of a wait that began at this time and lasts at most `longest`.
fn remaining(begun_ns: u64, longest: Duration) -> Duration {
    longest.saturating_sub(Duration::from_nanos(os::monotonic_ns().saturating_sub(begun_ns)))
}
