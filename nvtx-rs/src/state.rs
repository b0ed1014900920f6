//! The one word that every range reads: who looks, if anyone.
//!
//! Zero means that a range has nothing to do. The word starts as [`UNINITIALISED`], so that looking
//! for a tool at the first range costs the later ones nothing. Without the feature `enable` it is a
//! constant zero, and with it goes all that would be done.

#[cfg(feature = "enable")]
use crate::shared::{AtomicU8, Ordering, shared};
#[cfg(feature = "enable")]
use crate::tool;

/// No tool was looked for yet.
#[cfg(feature = "enable")]
const UNINITIALISED: u8 = 1;
/// A tool is attached.
pub(crate) const TOOL: u8 = 2;
/// The observer is switched on.
pub(crate) const OBSERVER: u8 = 4;

#[cfg(feature = "enable")]
shared! { static STATE: AtomicU8 = AtomicU8::new(UNINITIALISED); }

/// Whether a range has nothing to do.
#[inline]
pub(crate) fn is_idle() -> bool {
    #[cfg(feature = "enable")]
    return STATE.load(Ordering::Relaxed) == 0;
    #[cfg(not(feature = "enable"))]
    return true;
}

/// Who looks, after a tool was looked for. What was written before a bit was [`set`] is seen with it.
pub(crate) fn current() -> u8 {
    #[cfg(feature = "enable")]
    {
        let state = STATE.load(Ordering::Acquire);
        if state & UNINITIALISED == 0 {
            return state;
        }
        tool::attach();
        // Still uninitialised only where the tool starts a range while it is being attached.
        STATE.load(Ordering::Acquire) & !UNINITIALISED
    }
    #[cfg(not(feature = "enable"))]
    return 0;
}

/// Whether a tool is attached and no observer is on; `false` too before a tool was looked for.
#[cfg(feature = "enable")]
#[inline]
pub(crate) fn is_tool_alone() -> bool {
    STATE.load(Ordering::Acquire) == TOOL
}

/// Whether a tool is attached, after one was looked for.
pub(crate) fn has_tool() -> bool {
    !is_idle() && current() & TOOL != 0
}

/// Whether one of `bits` is set.
#[cfg(feature = "enable")]
pub(crate) fn has(bits: u8) -> bool {
    STATE.load(Ordering::Acquire) & bits != 0
}

#[cfg(feature = "enable")]
pub(crate) fn set(bits: u8) {
    STATE.fetch_or(bits, Ordering::Release);
}

#[cfg(feature = "enable")]
pub(crate) fn clear(bits: u8) {
    STATE.fetch_and(!bits, Ordering::Release);
}

/// A tool was looked for, and its bit is already set if there is one.
#[cfg(feature = "enable")]
pub(crate) fn initialised() {
    clear(UNINITIALISED);
}
