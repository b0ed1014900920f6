//! The tool of this process: found once, at the first range, and kept for the life of the process.

use std::cell::Cell;

#[cfg(nvtx_loom)]
use crate::model::find as load_named;
use crate::shared::{OnceLock, per_thread, shared};
#[cfg(not(nvtx_loom))]
use crate::sys::load_named;
use crate::{Error, state};

/// The variable in which a tool names its library; NVTX has one for each pointer width.
pub(crate) const PATH_VARIABLE: &str = if cfg!(target_pointer_width = "32") {
    "NVTX_INJECTION32_PATH"
} else {
    "NVTX_INJECTION64_PATH"
};

shared! {
    /// The outcome of the one attempt; `Ok(false)` where no tool was named.
    static OUTCOME: OnceLock<Result<bool, Error>> = OnceLock::new();
}

per_thread! { static ATTACHING: Cell<bool> = Cell::new(false); }

/// Looks for the tool, once; `None` only inside that very attempt.
///
/// A tool that is itself annotated may start ranges while it is being loaded. They do nothing: to
/// wait for the attempt to end would be to wait for ourselves.
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
            state::set(state::TOOL);
        }
        state::initialised();
        outcome
    });
    ATTACHING.with(|attaching| attaching.set(false));
    Some(outcome)
}

pub(crate) fn is_attached() -> bool {
    matches!(attach(), Some(Ok(true)))
}

pub(crate) fn attach_error() -> Option<&'static Error> {
    attach()?.as_ref().err()
}
