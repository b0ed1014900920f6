//! Panics that are caught in CUPTI's callbacks: none may unwind into CUPTI.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};

/// Panics of the collection so far.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Counts a panic that was caught.
#[cold]
pub(crate) fn caught(panic: Box<dyn Any + Send>) {
    COUNT.fetch_add(1, Ordering::Relaxed);
    // Its drop might panic again, with no code left to catch it.
    std::mem::forget(panic);
}

pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Begins a collection.
pub(crate) fn clear() {
    COUNT.store(0, Ordering::Relaxed);
}
