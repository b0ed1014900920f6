//! Background threads: the only module that spawns them for sessions. Signals are blocked in them,
//! and their failures are counted.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use cupti::quiet_thread;

/// Counts threads that could not be spawned, and panics in spawned threads.
#[derive(Debug, Clone, Default)]
pub struct Background {
    failures: Arc<AtomicU64>,
}

/// A thread that repeats a step. Ends after the current one once this is dropped.
#[derive(Debug)]
pub struct Repeating {
    end: Option<mpsc::SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Repeating {
    fn drop(&mut self) {
        self.end.take();
        // A panic has already been counted.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Background {
    /// Spawns a thread. A failure is counted.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn spawn(
        &self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        self.spawn_with(Builder::new(), name, work)
    }

    /// Spawns a thread that repeats a step, which returns the time until the next one.
    ///
    /// # Errors
    /// Same as [`spawn`](Self::spawn).
    pub fn repeat(
        &self,
        name: &str,
        mut wait: Duration,
        mut step: impl FnMut() -> Duration + Send + 'static,
    ) -> io::Result<Repeating> {
        let (end, ended) = mpsc::sync_channel(0);
        let caught = self.clone();
        let work = move || {
            while ended.recv_timeout(wait) == Err(mpsc::RecvTimeoutError::Timeout) {
                wait = caught.catch(&mut step).unwrap_or(wait);
            }
        };
        Ok(Repeating { end: Some(end), thread: Some(self.spawn(name, work)?) })
    }

    fn spawn_with(
        &self,
        builder: Builder,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let of_thread = self.clone();
        let work = move || _ = of_thread.catch(work);
        let thread = quiet_thread::spawn(builder, name, work);
        if thread.is_err() {
            self.count();
        }
        thread
    }

    /// Runs a step of a thread that continues after a panic in it. A panic is counted and returns
    /// `None`.
    pub fn catch<R>(&self, step: impl FnOnce() -> R) -> Option<R> {
        match catch_unwind(AssertUnwindSafe(step)) {
            Ok(result) => Some(result),
            Err(payload) => {
                // Dropping the payload may panic in turn.
                std::mem::forget(payload);
                self.count();
                None
            }
        }
    }

    fn count(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the failures since the last call.
    pub fn take_failures(&self) -> u64 {
        self.failures.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_that_cannot_be_spawned_is_counted() {
        let background = Background::default();
        // No address space has room for its stack.
        let builder = Builder::new().stack_size(1 << 60);
        assert!(background.spawn_with(builder, "test", || ()).is_err());
        assert_eq!((background.take_failures(), background.take_failures()), (1, 0));
    }

    #[test]
    fn panic_is_counted_and_does_not_leave_the_thread() {
        let background = Background::default();
        let thread = background.spawn("test thread", || {
            assert_eq!(std::thread::current().name(), Some("test thread"));
            panic!("planted");
        });
        assert!(thread.unwrap().join().is_ok());
        assert_eq!(background.catch(|| 7), Some(7));
        assert_eq!(background.take_failures(), 1);
    }
}
