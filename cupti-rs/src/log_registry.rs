//! The logs of the threads that take part in a recording.
//!
//! A thread registers a log when it first has something to write. Between its look at the recording and that, the recording
//! may end and another begin: the log is then one of the other, or of none. Logs have numbers, which are never used again,
//! so that whatever names a log names it for the life of the process.

use crate::shared::{AtomicU64, Mutex, Ordering};

/// The logs of the present recording.
#[derive(Debug)]
pub struct LogRegistry<T> {
    /// The number of the recording's first log; 0 while none is on. Changes with `logs` locked.
    ///
    /// It tells recordings apart: a thread that has a log of one has raised the number that the next one begins with.
    first: AtomicU64,
    logs: Mutex<Logs<T>>,
}

#[derive(Debug)]
struct Logs<T> {
    next: u64,
    list: Vec<T>,
}

/// A log as it was registered.
#[derive(Debug)]
pub struct Registered<T> {
    /// The number of the first log of its recording.
    pub first: u64,
    /// Its own number.
    pub number: u64,
    /// What was made of it.
    pub log: T,
}

impl<T: Clone> LogRegistry<T> {
    /// Without a recording. The first log has the number 1.
    #[cfg(not(all(test, cupti_loom)))]
    #[must_use]
    pub const fn new() -> Self {
        Self { first: AtomicU64::new(0), logs: Mutex::new(Logs { next: 1, list: Vec::new() }) }
    }

    /// As above; loom's atomics are not made in constants.
    #[cfg(all(test, cupti_loom))]
    #[must_use]
    pub fn new() -> Self {
        Self { first: AtomicU64::new(0), logs: Mutex::new(Logs { next: 1, list: Vec::new() }) }
    }

    /// Begins a recording, in which no log is registered; gives the number of the first that will be. `reset` runs before
    /// a log can be registered.
    pub fn begin(&self, reset: impl FnOnce()) -> u64 {
        let mut logs = self.logs.lock();
        let earlier = std::mem::take(&mut logs.list);
        reset();
        let first = logs.next;
        self.first.store(first, Ordering::Release);
        // What is freed may call back.
        drop(logs);
        drop(earlier);
        first
    }

    /// Ends it and gives its logs.
    pub fn end(&self) -> Vec<T> {
        let mut logs = self.logs.lock();
        self.first.store(0, Ordering::Release);
        std::mem::take(&mut logs.list)
    }

    /// The number of the first log of the present recording; 0 while none is on. One atomic load.
    #[inline]
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first.load(Ordering::Acquire)
    }

    /// Adds a log to the recording that is on, which need not be the one that [`first`](Self::first) told of; `None` while
    /// none is on, and for a number from `end` on.
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

    /// The logs that are registered.
    pub fn logs(&self) -> Vec<T> {
        self.logs.lock().list.clone()
    }

    /// Forgets those of the present recording's logs for which `keep` is false.
    pub fn retain(&self, keep: impl FnMut(&T) -> bool) {
        self.logs.lock().list.retain(keep);
    }
}

impl<T: Clone> Default for LogRegistry<T> {
    fn default() -> Self {
        Self::new()
    }
}
