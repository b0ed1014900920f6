//! A write beyond the limit of file sizes (`ulimit -f`) is an error like a full disk, not the end of gpuprof.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nix::libc::SIGXFSZ;

use crate::run::ignored_signals;

/// Handles the signal of such a write, which then fails. A program that gpuprof runs has its default action all the same, or
/// ignores it, as gpuprof was started.
pub(crate) fn writes_fail() {
    if ignored_signals() >> (SIGXFSZ - 1) & 1 == 0 {
        // Without a handler gpuprof ends there, as it would have.
        let _: io::Result<_> =
            signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    }
}
