//! Turns a write beyond the file size limit (`ulimit -f`) into an error instead of a fatal signal.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nix::libc::SIGXFSZ;

use crate::run::ignored_signals;

/// Handles SIGXFSZ so that such a write fails with an error. A program started by gpuprof still has
/// the default action, or ignores the signal if gpuprof was started with it ignored.
pub(crate) fn writes_fail() {
    if ignored_signals() >> (SIGXFSZ - 1) & 1 == 0 {
        // If the handler cannot be installed, the signal keeps its default action and ends gpuprof.
        let _: io::Result<_> =
            signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    }
}
