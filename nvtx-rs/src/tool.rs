//! The tool of this process: found once, at the first range, and kept for the life of the process.

use std::cell::Cell;
use std::env;
use std::sync::OnceLock;

use crate::{Error, state, sys};

/// The variable in which a tool names its library; NVTX has one for each pointer width.
pub(crate) const PATH_VARIABLE: &str = if cfg!(target_pointer_width = "32") {
    "NVTX_INJECTION32_PATH"
} else {
    "NVTX_INJECTION64_PATH"
};

/// The value by which a user says that no tool is wanted.
const NO_TOOL: &str = "./.";

/// The outcome of the one attempt; `Ok(false)` where no tool was named.
static OUTCOME: OnceLock<Result<bool, Error>> = OnceLock::new();

thread_local! {
    static ATTACHING: Cell<bool> = const { Cell::new(false) };
}

/// Looks for the tool, once; `None` only inside that very attempt.
///
/// A tool that is itself annotated may start ranges while it is being loaded. They do nothing: to
/// wait for the attempt to end would be to wait for ourselves.
#[cold]
#[inline(never)]
pub(crate) fn attach() -> Option<&'static Result<bool, Error>> {
    if ATTACHING.get() {
        return None;
    }
    ATTACHING.set(true);
    let outcome = OUTCOME.get_or_init(|| {
        let outcome = find();
        if matches!(outcome, Ok(true)) {
            state::set(state::TOOL);
        }
        state::initialised();
        outcome
    });
    ATTACHING.set(false);
    Some(outcome)
}

fn find() -> Result<bool, Error> {
    match env::var_os(PATH_VARIABLE) {
        Some(path) if !path.is_empty() && path != NO_TOOL => sys::load(&path).map(|()| true),
        _ => Ok(false),
    }
}

pub(crate) fn is_attached() -> bool {
    matches!(attach(), Some(Ok(true)))
}

pub(crate) fn attach_error() -> Option<&'static Error> {
    attach()?.as_ref().err()
}
