//! What is called when the program turns its switch, `cudaProfilerStart` and `cudaProfilerStop`.

use std::fmt;
use std::sync::Arc;

/// The program's own function for its switch.
#[derive(Clone)]
pub(crate) struct SwitchHandler {
    pub(crate) call: Arc<dyn Fn(bool) + Send + Sync>,
    /// Whether the switch bounds the collection, too.
    pub(crate) bounds_too: bool,
}

impl fmt::Debug for SwitchHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwitchHandler").finish_non_exhaustive()
    }
}
