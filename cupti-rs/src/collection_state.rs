//! The state of the collection, in one integer that every callback reads once.
//!
//! It also numbers the collections and, within one, the segments between pauses. A thread's log
//! belongs to a collection; a call that was open at a pause belongs to an earlier segment.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::forked;
use crate::sys::os;

/// Calls and events are logged.
pub(crate) const ON: u64 = 1;
/// The runtime API's calls are logged too.
pub(crate) const RUNTIME_CALLS: u64 = 1 << 1;
/// Graph events are logged.
pub(crate) const GRAPHS: u64 = 1 << 2;
/// `cudaProfilerStart` and `cudaProfilerStop` bound the collection.
pub(crate) const SWITCH: u64 = 1 << 3;
/// The switch has been on, or does not bound the collection.
pub(crate) const SWITCHED_ON: u64 = 1 << 4;
/// Launches wait, because kinds are being disabled or CUPTI is flushed.
pub(crate) const HELD: u64 = 1 << 5;
/// Waits of calls are logged.
pub(crate) const WAITS: u64 = 1 << 6;
/// Contexts that calls name are sampled.
pub(crate) const SAMPLES: u64 = 1 << 7;

const FLAGS: u64 = 0xff;
/// One segment, and the bits of its number.
const SEGMENT: u64 = 1 << 8;
const SEGMENTS: u64 = 0xffff_ff00;
const NUMBER: u32 = 32;

static STATE: AtomicU64 = AtomicU64::new(0);

/// The state as a callback read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State(u64);

impl State {
    #[inline]
    pub(crate) fn load() -> Self {
        Self(STATE.load(Ordering::Acquire))
    }

    /// True if any of these flags is set.
    #[inline]
    pub(crate) fn has(self, flags: u64) -> bool {
        self.0 & flags != 0
    }

    /// True if logging is all that a callback does with a driver call.
    #[inline]
    pub(crate) fn only_logs(self) -> bool {
        self.0 & (ON | SWITCH | HELD | SAMPLES) == ON
    }

    /// True outside collections.
    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The collection's number; 0 outside collections.
    #[inline]
    pub(crate) fn collection(self) -> u32 {
        (self.0 >> NUMBER) as u32
    }

    /// The collection and its segment.
    #[inline]
    pub(crate) fn epoch(self) -> Epoch {
        Epoch(self.0 & !FLAGS)
    }
}

/// A collection and a segment of it between two pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Epoch(u64);

impl Epoch {
    /// True if both belong to one collection.
    pub(crate) fn same_collection(self, other: Self) -> bool {
        self.0 >> NUMBER == other.0 >> NUMBER
    }
}

/// Begins a collection, paused.
pub(crate) fn begin(flags: u64) {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
    STATE.store(u64::from(number) << NUMBER | (flags & !ON & FLAGS), Ordering::Release);
}

/// Resumes the collection with a new segment.
pub(crate) fn resume() {
    let next = |state: u64| {
        // The segment wraps within its 24 bits and leaves the number unchanged.
        let segment = state.wrapping_add(SEGMENT) & SEGMENTS;
        Some(state & !SEGMENTS | segment | ON)
    };
    let _ = STATE.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
}

/// Holds launches back.
pub(crate) fn hold() {
    STATE.fetch_or(HELD, Ordering::AcqRel);
}

/// Releases held launches.
pub(crate) fn release() {
    STATE.fetch_and(!HELD, Ordering::AcqRel);
}

/// Records that the switch has been on: from here on records are retained.
pub(crate) fn set_switched_on() {
    STATE.fetch_or(SWITCHED_ON, Ordering::AcqRel);
}

/// Pauses the collection. Launches that wait now are not logged.
pub(crate) fn pause() {
    STATE.fetch_and(!ON, Ordering::AcqRel);
}

/// Ends the collection, for callbacks that are still running too.
pub(crate) fn end() {
    STATE.store(0, Ordering::Release);
}

/// Prepares the process before CUPTI is used: in a forked child the state is 0 from the first
/// instruction on, and the code that CUPTI calls stays mapped.
pub(crate) fn leave_children_out() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    extern "C" fn in_child() {
        STATE.store(0, Ordering::Release);
        forked::is_child_now();
    }
    ONCE.call_once(|| {
        os::stay_loaded();
        os::at_fork_in_child(in_child);
    });
}
