//! Synchronization types: the standard library's, or loom's in models (`model.rs`).
//!
//! Only code that the models run uses them. Domains, call sites and categories take locks of the
//! standard library at their first event, which loom does not see.

#[cfg(not(nvtx_loom))]
pub(crate) use std::sync::{
    OnceLock,
    atomic::{AtomicU8, AtomicU64, Ordering},
};

#[cfg(nvtx_loom)]
pub(crate) use self::once::OnceLock;
#[cfg(nvtx_loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

/// A static; with loom, reset for each interleaving.
macro_rules! shared {
    ($(#[$doc:meta])* static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(nvtx_loom))]
        $(#[$doc])*
        static $name: $type = $value;
        #[cfg(nvtx_loom)]
        loom::lazy_static! {
            $(#[$doc])*
            static ref $name: $type = $value;
        }
    };
}

/// A thread-local static.
macro_rules! per_thread {
    (static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(nvtx_loom))]
        thread_local! {
            static $name: $type = const { $value };
        }
        #[cfg(nvtx_loom)]
        loom::thread_local! {
            static $name: $type = $value;
        }
    };
}

pub(crate) use {per_thread, shared};

#[cfg(nvtx_loom)]
mod once {
    use std::sync::PoisonError;

    use loom::sync::Mutex;
    use loom::sync::atomic::{AtomicBool, Ordering};

    /// A model of the standard library's `OnceLock`, which loom lacks, with the same memory
    /// ordering. Leaks its value.
    #[derive(Debug)]
    pub(crate) struct OnceLock<T: 'static> {
        filled: AtomicBool,
        filling: Mutex<()>,
        /// Not loom's: readers must not synchronize with each other.
        value: std::sync::Mutex<Option<&'static T>>,
    }

    impl<T> OnceLock<T> {
        pub(crate) fn new() -> OnceLock<T> {
            OnceLock {
                filled: AtomicBool::new(false),
                filling: Mutex::new(()),
                value: std::sync::Mutex::new(None),
            }
        }

        pub(crate) fn get(&self) -> Option<&'static T> {
            if !self.filled.load(Ordering::Acquire) {
                return None;
            }
            *self.value.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn get_or_init(&self, value: impl FnOnce() -> T) -> &'static T {
            if let Some(value) = self.get() {
                return value;
            }
            let _filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(value) = self.get() {
                return value;
            }
            let value: &'static T = Box::leak(Box::new(value()));
            *self.value.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            self.filled.store(true, Ordering::Release);
            value
        }
    }
}
