//! The logs of the threads that take part in a recording.
//!
//! A thread registers a log when it first has an entry to write. Between its check of the recording
//! and the registration, that recording may end and another begin: the log then belongs to the new
//! one, or to none. Logs have numbers that are never used again, so that a number identifies a log
//! for the life of the process. When 12 bits counted recordings and repeated, idle threads and old
//! contexts attributed kernels to unrelated ranges. The 2^33 numbers last 2.7 years with a recording
//! a second and a hundred threads in each.

use crate::shared::{AtomicU64, Mutex, Ordering};

/// The logs of the current recording.
#[derive(Debug)]
pub struct LogRegistry<T> {
    /// The number of the recording's first log; 0 while none is on. Changes with `logs` locked.
    ///
    /// It identifies the recording: registering a log raises the number with which the next
    /// recording begins.
    first: AtomicU64,
    logs: Mutex<Logs<T>>,
}

#[derive(Debug)]
struct Logs<T> {
    next: u64,
    list: Vec<T>,
}

/// A log as registered.
#[derive(Debug)]
pub struct Registered<T> {
    /// The number of the first log of its recording.
    pub first: u64,
    /// Its own number.
    pub number: u64,
    /// The log that `make` returned.
    pub log: T,
}

impl<T: Clone> LogRegistry<T> {
    /// Creates a registry without a recording. The first log has the number 1.
    #[cfg(not(all(test, cupti_loom)))]
    #[must_use]
    pub const fn new() -> Self {
        Self { first: AtomicU64::new(0), logs: Mutex::new(Logs { next: 1, list: Vec::new() }) }
    }

    /// As above; loom's atomics cannot be created in constants.
    #[cfg(all(test, cupti_loom))]
    #[must_use]
    pub fn new() -> Self {
        Self { first: AtomicU64::new(0), logs: Mutex::new(Logs { next: 1, list: Vec::new() }) }
    }

    /// Ends the recording in every child that is forked off from now on, before the child's first
    /// instruction. The threads that hold locks at the fork do not exist there to release them, and
    /// nothing drains the logs.
    #[cfg(not(all(test, cupti_loom)))]
    pub fn leave_children_out(&'static self) {
        crate::collection_state::leave_children_out();
        crate::forked::zero_in_children(&self.first);
    }

    /// Begins a recording without logs; returns the number of its first log. Runs `reset` before a
    /// log can be registered.
    pub fn begin(&self, reset: impl FnOnce()) -> u64 {
        let mut logs = self.logs.lock();
        let earlier = std::mem::take(&mut logs.list);
        reset();
        let first = logs.next;
        self.first.store(first, Ordering::Release);
        // Freeing logs may call back.
        drop(logs);
        drop(earlier);
        first
    }

    /// Ends the recording and returns its logs.
    pub fn end(&self) -> Vec<T> {
        let mut logs = self.logs.lock();
        self.first.store(0, Ordering::Release);
        std::mem::take(&mut logs.list)
    }

    /// The number of the first log of the current recording; 0 while none is on. One atomic load.
    #[inline]
    pub fn first(&self) -> u64 {
        self.first.load(Ordering::Acquire)
    }

    /// Adds a log to the current recording, which may be a later one than [`first`](Self::first)
    /// identified. `None` while none is on, and for numbers from `end` on.
    pub fn register(&self, end: u64, make: impl FnOnce(u64) -> T) -> Option<Registered<T>> {
        let mut logs = self.logs.lock();
        let (first, number) = (self.first.load(Ordering::Relaxed), logs.next);
        if first == 0 || number >= end {
            return None;
        }
        let log = make(number);
        logs.next += 1;
        logs.list.push(log.clone());
        Some(Registered { first, number, log })
    }

    /// Returns the registered logs.
    pub fn logs(&self) -> Vec<T> {
        self.logs.lock().list.clone()
    }

    /// Drops the current recording's logs for which `keep` returns false.
    pub fn retain(&self, keep: impl FnMut(&T) -> bool) {
        self.logs.lock().list.retain(keep);
    }
}

impl<T: Clone> Default for LogRegistry<T> {
    fn default() -> Self {
        Self::new()
    }
}
