//! The mode of the library as one atomic byte, which each NVTX function reads.

use std::sync::atomic::{AtomicU8, Ordering};

/// The library has not been called yet.
const DORMANT: u8 = 0;
/// There is no recording yet. Threads retain their open ranges for its start.
const BEFORE: u8 = 1;
/// The observer receives events.
const ON: u8 = 2;
/// The library ignores all events. Final.
const OFF: u8 = 4;
/// Flag beside [`ON`]: range names may start or stop the recording.
const ARMED: u8 = 8;
/// Flag beside [`ON`]: no window of the recording is open, and calls are not recorded.
const PAUSED: u8 = 16;

static MODE: AtomicU8 = AtomicU8::new(DORMANT);

/// The mode that an event has loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode(u8);

impl Mode {
    #[inline]
    pub(crate) fn load() -> Mode {
        Mode(MODE.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn is_on(self) -> bool {
        self.0 & ON != 0
    }

    #[inline]
    pub(crate) fn is_armed(self) -> bool {
        self.0 & ARMED != 0
    }

    /// True if calls are not recorded. Events that describe a call are then useless.
    #[inline]
    pub(crate) fn is_paused(self) -> bool {
        self.0 & PAUSED != 0
    }

    /// True if events are useful.
    #[inline]
    pub(crate) fn is_active(self) -> bool {
        self.0 & (BEFORE | ON) != 0
    }

    pub(crate) fn is_off(self) -> bool {
        self.0 == OFF
    }
}

fn change(to: impl Fn(u8) -> Option<u8>) {
    let _ = MODE.fetch_update(Ordering::AcqRel, Ordering::Acquire, to);
}

/// Makes threads retain their open ranges, unless a recording began or ended.
pub(crate) fn await_recording() {
    change(|mode| (mode == DORMANT).then_some(BEFORE));
}

/// Sends events to the observer, unless the library is off.
pub(crate) fn turn_on(is_armed: bool) {
    let on = if is_armed { ON | ARMED } else { ON };
    change(|mode| (mode != OFF).then_some(on | mode & PAUSED));
}

/// Marks that a window of the recording is open.
pub(crate) fn resume() {
    change(|mode| Some(mode & !PAUSED));
}

/// Marks that no window is open until [`resume`].
pub(crate) fn pause() {
    change(|mode| (mode != OFF).then_some(mode | PAUSED));
}

/// Stops comparing range names.
pub(crate) fn disarm() {
    change(|mode| Some(mode & !ARMED));
}

/// Ignores all events from now on. Only stores to an atomic, so that a forked child may call it.
pub(crate) fn turn_off() {
    MODE.store(OFF, Ordering::Release);
}
