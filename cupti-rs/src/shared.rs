//! Synchronisation types: from the standard library and `parking_lot`, or from loom, which runs
//! every interleaving (`model.rs`).
//!
//! Only code that the models reach uses them.

#[cfg(not(all(test, cupti_loom)))]
pub(crate) use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

#[cfg(all(test, cupti_loom))]
pub(crate) use self::played::{Mutex, OnceLock};
#[cfg(all(test, cupti_loom))]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(all(test, cupti_loom)))]
pub(crate) use parking_lot::Mutex;

/// Called before a retry that depends on another thread.
pub(crate) fn spin() {
    #[cfg(not(all(test, cupti_loom)))]
    std::hint::spin_loop();
    #[cfg(all(test, cupti_loom))]
    loom::thread::yield_now();
}

#[cfg(all(test, cupti_loom))]
mod played {
    use loom::sync::MutexGuard;
    use loom::sync::atomic::{AtomicBool, Ordering};

    /// Loom's, without the poison.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }

    /// The standard library's, of which loom has none: for one thread that fills it, with no more order between threads
    /// than that one promises.
    #[derive(Debug)]
    pub(crate) struct OnceLock<T> {
        filled: AtomicBool,
        value: std::sync::OnceLock<T>,
    }

    impl<T> OnceLock<T> {
        pub(crate) fn new() -> Self {
            Self { filled: AtomicBool::new(false), value: std::sync::OnceLock::new() }
        }

        pub(crate) fn get(&self) -> Option<&T> {
            if self.filled.load(Ordering::Acquire) { self.value.get() } else { None }
        }

        pub(crate) fn get_or_init(&self, value: impl FnOnce() -> T) -> &T {
            let value = self.value.get_or_init(value);
            self.filled.store(true, Ordering::Release);
            value
        }

        pub(crate) fn take(&mut self) -> Option<T> {
            self.value.take()
        }
    }
}
