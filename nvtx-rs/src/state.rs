//! The state that every range reads: flags for an attached tool and an active observer.
//!
//! With state 0 a range does nothing. The initial state is [`UNINITIALISED`], so that the search
//! for a tool at the first range costs later ones nothing. Without the feature `enable`,
//! [`is_idle`] is a constant, and the compiler removes the rest.

#[cfg(nvtx_loom)]
pub(crate) use self::tool::FIND;
pub(crate) use self::tool::{attach_error, is_attached};
use crate::shared::{AtomicU8, Ordering, shared};

/// The search for a tool has not been done yet.
const UNINITIALISED: u8 = 1;
/// A tool is attached.
pub(crate) const TOOL: u8 = 2;
/// The observer is switched on.
pub(crate) const OBSERVER: u8 = 4;

shared! { static STATE: AtomicU8 = AtomicU8::new(UNINITIALISED); }

/// True if a range has nothing to do.
#[inline]
pub(crate) fn is_idle() -> bool {
    !cfg!(feature = "enable") || STATE.load(Ordering::Relaxed) == 0
}

/// The bits of tool and observer, after the search for a tool. Data written before a bit was
/// [`set`] is visible with it.
pub(crate) fn current() -> u8 {
    if !cfg!(feature = "enable") {
        return 0;
    }
    let state = STATE.load(Ordering::Acquire);
    if state & UNINITIALISED == 0 {
        return state;
    }
    tool::attach();
    // Still uninitialised only if the tool starts a range while it is being attached.
    STATE.load(Ordering::Acquire) & !UNINITIALISED
}

/// True if a tool is attached and no observer is on; false before the search for a tool.
#[inline]
pub(crate) fn is_tool_alone() -> bool {
    STATE.load(Ordering::Acquire) == TOOL
}

/// True if a tool is attached, after the search for one.
pub(crate) fn has_tool() -> bool {
    !is_idle() && current() & TOOL != 0
}

/// True if one of `bits` is set.
pub(crate) fn has(bits: u8) -> bool {
    STATE.load(Ordering::Acquire) & bits != 0
}

pub(crate) fn set(bits: u8) {
    STATE.fetch_or(bits, Ordering::Release);
}

pub(crate) fn clear(bits: u8) {
    STATE.fetch_and(!bits, Ordering::Release);
}

/// Ends the search for a tool, whose bit is already set if there is one.
pub(crate) fn initialised() {
    clear(UNINITIALISED);
}

/// The tool of this process: searched for at the first range, then fixed.
mod tool {
    use std::cell::Cell;

    use super::{TOOL, initialised, set};
    use crate::error::Error;
    use crate::shared::{OnceLock, per_thread, shared};
    #[cfg(all(feature = "enable", not(nvtx_loom)))]
    use crate::sys::load_named;

    shared! {
        /// The result of the search; `Ok(false)` if the variable names no tool.
        static OUTCOME: OnceLock<Result<bool, Error>> = OnceLock::new();
    }

    per_thread! { static ATTACHING: Cell<bool> = Cell::new(false); }

    /// Searches for the tool, once. `None` within the search itself: a tool with annotations may
    /// start ranges while it is being loaded. They do nothing, since waiting for the search would
    /// deadlock.
    #[cold]
    #[inline(never)]
    pub(crate) fn attach() -> Option<&'static Result<bool, Error>> {
        if ATTACHING.with(Cell::get) {
            return None;
        }
        ATTACHING.with(|attaching| attaching.set(true));
        let outcome = OUTCOME.get_or_init(|| {
            let outcome = load_named();
            if matches!(outcome, Ok(true)) {
                set(TOOL);
            }
            initialised();
            outcome
        });
        ATTACHING.with(|attaching| attaching.set(false));
        Some(outcome)
    }

    #[cfg(nvtx_loom)]
    std::thread_local! {
        /// A model's search, which replaces the search for a library. loom runs its threads on one
        /// OS thread.
        pub(crate) static FIND: Cell<fn() -> Result<bool, Error>> = const { Cell::new(|| Ok(false)) };
    }

    #[cfg(nvtx_loom)]
    fn load_named() -> Result<bool, Error> {
        FIND.with(Cell::get)()
    }

    #[cfg(not(any(feature = "enable", nvtx_loom)))]
    fn load_named() -> Result<bool, Error> {
        Ok(false)
    }

    pub(crate) fn is_attached() -> bool {
        matches!(attach(), Some(Ok(true)))
    }

    pub(crate) fn attach_error() -> Option<&'static Error> {
        attach()?.as_ref().err()
    }
}
