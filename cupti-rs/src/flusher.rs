//! Flushes: CUPTI delivers its records, on a flush thread if a caller must not wait longer than a
//! limit.
//!
//! `cuptiActivityFlushAll` waits for CUPTI's own thread, which falls behind if a program launches
//! faster than it writes records (H200, CUPTI 13.0.1; docs/measurements/long-runs.md). Launches wait
//! during a flush (docs/decisions/013).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::buffer::POOL;
use crate::call_class::CallClass;
use crate::clock;
use crate::collection_state::{self, ON};
use crate::error::{Error, Kind};
use crate::launch_hold::Hold;
use crate::library::Library;
use crate::quiet_thread;

/// The longest wait for a flush that begins after the time limit.
const LAST_FLUSH: Duration = Duration::from_secs(1);

/// Flushes a collection from any thread; returned by
/// [`Collector::flusher`](crate::Collector::flusher).
#[derive(Debug, Clone)]
pub struct Flusher(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    library: Library,
    drain_timeout: Duration,
    /// All records of calls that returned before this time have arrived.
    settled_ns: AtomicU64,
    answered_ns: AtomicU64,
    process_id: u32,
    /// True once CUPTI is attached: before that it has no records.
    is_attached: AtomicBool,
    requests: Requests,
}

/// A flush that the flush thread was requested to do.
#[derive(Debug)]
pub struct PendingFlush {
    flusher: Flusher,
    number: u64,
}

/// The return time and the duration of the flush thread's last flush; 0 before the first.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct LastFlush {
    /// The time of its return, in [`clock::now_ns`] time.
    pub returned_ns: u64,
    /// Its duration in nanoseconds.
    pub took_ns: u64,
}

/// The requests to the flush thread, and their results.
#[derive(Debug, Default)]
struct Requests {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The numbers of flushes that have returned and that were requested.
    returned: u64,
    requested: u64,
    /// True while the next one is under way.
    is_flushing: bool,
    /// True if the next one also returns buffers with unfinished records.
    is_forced: bool,
    /// The last flush that was skipped because a launch of a graph did not return.
    skipped: u64,
    /// The last refusal, with the number of its flush.
    refused: Option<(u64, Error)>,
    last: LastFlush,
    has_thread: bool,
    ended: bool,
}

/// The end of a wait; `None` is later than any time.
#[derive(Debug, Clone, Copy)]
struct Deadline(Option<Instant>);

impl LastFlush {
    /// Builds a flush from its return time and its duration, both in nanoseconds.
    #[must_use]
    pub fn new(returned_ns: u64, took_ns: u64) -> Self {
        Self { returned_ns, took_ns }
    }
}

impl Deadline {
    fn from_timeout(time: Duration) -> Self {
        Self(Instant::now().checked_add(time))
    }

    fn remaining(self) -> Duration {
        self.0.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
    }
}

impl Requests {
    /// Requests a flush that begins from now on.
    fn add(&self, is_forced: bool) -> u64 {
        let mut state = self.state.lock();
        let number = state.returned + 1 + u64::from(state.is_flushing);
        self.request(&mut state, number, is_forced)
    }

    fn request(&self, state: &mut State, number: u64, is_forced: bool) -> u64 {
        state.requested = state.requested.max(number);
        state.is_forced |= is_forced;
        self.changed.notify_all();
        number
    }

    /// Joins the requested or running flush; without one, requests a flush if it is due.
    fn join_or_add(&self, is_due: impl FnOnce(LastFlush) -> bool) -> Option<u64> {
        let mut state = self.state.lock();
        if state.requested <= state.returned && !is_due(state.last) {
            return None;
        }
        let number = state.returned + 1;
        Some(self.request(&mut state, number, false))
    }

    /// Runs requests until [`end`](Self::end).
    fn serve(&self, flush: impl Fn(bool) -> Result<bool, Error>) {
        let mut state = self.state.lock();
        while !state.ended || state.requested > state.returned {
            if state.requested > state.returned {
                self.serve_one(&mut state, &flush);
            } else {
                self.changed.wait(&mut state);
            }
        }
        state.has_thread = false;
    }

    fn serve_one(
        &self,
        state: &mut MutexGuard<'_, State>,
        flush: impl Fn(bool) -> Result<bool, Error>,
    ) {
        let is_forced = std::mem::take(&mut state.is_forced);
        state.is_flushing = true;
        let (begun_ns, flushed) = MutexGuard::unlocked(state, || {
            let begun_ns = clock::now_ns();
            (begun_ns, flush(is_forced))
        });
        let returned_ns = clock::now_ns();
        state.last = LastFlush { returned_ns, took_ns: returned_ns.saturating_sub(begun_ns) };
        state.is_flushing = false;
        state.returned += 1;
        match flushed {
            Ok(true) => {}
            Ok(false) => state.skipped = state.returned,
            Err(error) => state.refused = Some((state.returned, error)),
        }
        self.changed.notify_all();
    }

    /// Returns false if the flush has not returned in time, or was skipped.
    fn wait(&self, number: u64, time: Duration) -> Result<bool, Error> {
        let deadline = Deadline::from_timeout(time);
        let mut state = self.state.lock();
        while state.returned < number {
            match deadline.0 {
                Some(at) if self.changed.wait_until(&mut state, at).timed_out() => break,
                Some(_) => {}
                None => self.changed.wait(&mut state),
            }
        }
        match &state.refused {
            Some((refused, error)) if *refused == number => Err(error.clone()),
            _ => Ok(state.returned >= number && state.skipped != number),
        }
    }

    fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }
}

impl Flusher {
    pub(crate) fn new(library: Library, drain_timeout: Duration) -> Self {
        let process_id = std::process::id();
        let (settled_ns, answered_ns, is_attached, requests) = Default::default();
        Self(Arc::new(Shared {
            library,
            drain_timeout,
            settled_ns,
            answered_ns,
            process_id,
            is_attached,
            requests,
        }))
    }

    /// Flushes reach CUPTI from now on.
    pub(crate) fn attach(&self) {
        self.0.is_attached.store(true, Ordering::Release);
    }

    /// CUPTI has nothing to deliver from now on.
    pub(crate) fn detach(&self) {
        self.0.is_attached.store(false, Ordering::Release);
    }

    /// Sets the start: no earlier record is expected.
    pub(crate) fn begin_at(&self, start_ns: u64) {
        self.0.settled_ns.fetch_max(start_ns, Ordering::AcqRel);
    }

    /// The time up to which the collection is complete, in [`clock::now_ns`] time: all records of
    /// calls that began in the collection and returned before it have arrived.
    pub fn settled_ns(&self) -> u64 {
        self.0.settled_ns.load(Ordering::Acquire)
    }

    /// When the last flush that has returned began, in [`clock::now_ns`] time; 0 before the first.
    /// Records that were complete by then have been delivered.
    pub fn answered_ns(&self) -> u64 {
        self.0.answered_ns.load(Ordering::Acquire)
    }

    /// Flushes as [`Collector::flush`](crate::Collector::flush) does, from any thread and with the
    /// same duration. After the collector's stop it delivers nothing.
    ///
    /// # Errors
    ///
    /// CUPTI's refusal, or a process forked off after the start.
    pub fn flush(&self) -> Result<(), Error> {
        self.flush_if_it_may(false).map(drop)
    }

    /// Returns false if the flush was skipped because a launch of a graph does not return. Forced
    /// flushes are never skipped.
    fn flush_if_it_may(&self, is_forced: bool) -> Result<bool, Error> {
        self.check_process()?;
        if !self.0.is_attached.load(Ordering::Acquire) {
            let now_ns = clock::now_ns();
            self.0.answered_ns.fetch_max(now_ns, Ordering::AcqRel);
            self.begin_at(now_ns);
            return Ok(true);
        }
        let hangs = self.0.library.version().hangs_over_graphs();
        // Launches write no records in a pause.
        let hold = (hangs || collection_state::State::load().has(ON)).then(Hold::begin_flush);
        let in_progress = hold.as_ref().and_then(Hold::wait_for_returns);
        if hangs && in_progress == Some(CallClass::GraphLaunch) && !is_forced {
            return Ok(false);
        }
        let begun_ns = clock::now_ns();
        self.0.library.api.flush(is_forced)?;
        drop(hold);
        if is_forced {
            // The delivered records need not be finished.
            return Ok(true);
        }
        self.0.answered_ns.fetch_max(begun_ns, Ordering::AcqRel);
        self.begin_at(POOL.flushed(begun_ns));
        Ok(true)
    }

    fn check_process(&self) -> Result<(), Error> {
        let is_child = std::process::id() != self.0.process_id;
        if is_child { Err(Error::new(Kind::Forked)) } else { Ok(()) }
    }

    /// Requests a flush that begins after this call, from a thread that the first request spawns.
    /// If no thread can be spawned, flushes at once.
    ///
    /// # Errors
    /// A process forked off after the start.
    pub fn request(&self) -> Result<PendingFlush, Error> {
        self.check_process()?;
        let number = self.0.requests.add(false);
        Ok(self.pending(number))
    }

    /// Joins the requested or running flush. Without one, requests a flush if `is_due` returns
    /// true.
    pub fn request_if(&self, is_due: impl FnOnce(LastFlush) -> bool) -> Option<PendingFlush> {
        self.check_process().ok()?;
        let number = self.0.requests.join_or_add(is_due)?;
        Some(self.pending(number))
    }

    fn pending(&self, number: u64) -> PendingFlush {
        let of_thread = self.clone();
        let serve = move || of_thread.serve();
        let mut state = self.0.requests.state.lock();
        if !state.has_thread {
            let spawned = quiet_thread::spawn(std::thread::Builder::new(), "cupti-flush", serve);
            state.has_thread = spawned.is_ok();
            if !state.has_thread {
                let flush = |is_forced| self.flush_if_it_may(is_forced);
                self.0.requests.serve_one(&mut state, flush);
            }
        }
        drop(state);
        PendingFlush { flusher: self.clone(), number }
    }

    fn serve(&self) {
        self.0.requests.serve(|is_forced| self.flush_if_it_may(is_forced));
    }

    /// Waits until the GPU has finished previously launched work, at most
    /// [`Config::drain_timeout`](crate::Config::drain_timeout). Then waits at most 1 s for a last
    /// flush, which delivers the records. Polls CUPTI for open records and touches no context or
    /// stream of the program. Does not wait for later launches, unless their records share a buffer
    /// with earlier ones: CUPTI before 13.0 delivers such a buffer once all of it is finished.
    ///
    /// Returns the number of buffers with unfinished work that CUPTI still held at the end: 0
    /// unless the time was up, and at least 1 if no flush returned in time. That happens with CUPTI
    /// before 13.0 if launches of graphs never let a flush run. After a 0,
    /// [`settled_ns`](Self::settled_ns) is not before the call.
    ///
    /// # Errors
    ///
    /// CUPTI's refusal to flush, or a process forked off after the start.
    pub fn wait_idle(&self) -> Result<u64, Error> {
        let deadline = Deadline::from_timeout(self.0.drain_timeout);
        let mut pause = Duration::from_micros(50);
        let asked_ns = clock::now_ns();
        loop {
            // Work that was finished when the time was up is delivered by the flush after it.
            let left = deadline.remaining();
            let has_returned = self.request()?.wait(left.max(LAST_FLUSH))?;
            if self.settled_ns() >= asked_ns {
                return Ok(0);
            }
            let held = POOL.out_before(asked_ns);
            let is_late = left.is_zero() || !has_returned && deadline.remaining().is_zero();
            if is_late && (held > 0 || !has_returned) {
                return Ok(held.max(1));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    /// Makes CUPTI return all buffers, unfinished records included, and ends the thread. Waits at
    /// most a second for CUPTI.
    pub(crate) fn end(&self) {
        if !self.0.is_attached.load(Ordering::Acquire) {
            return self.0.requests.end();
        }
        let number = self.0.requests.add(true);
        let _ = self.pending(number).wait(LAST_FLUSH);
        self.0.requests.end();
    }
}

impl PendingFlush {
    /// Waits for the flush, at most `time`. False if it did not return in time, or was skipped
    /// because a launch of a graph does not return (CUPTI before 13.0).
    ///
    /// # Errors
    /// CUPTI's refusal.
    pub fn wait(&self, time: Duration) -> Result<bool, Error> {
        self.flusher.0.requests.wait(self.number, time)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(10);

    /// Serves requests with one flush per message on the first channel, and reports on the second when each begins.
    fn gated() -> (Arc<Requests>, mpsc::Sender<()>, mpsc::Receiver<bool>) {
        let (open, gate) = mpsc::channel();
        let (begins, begun) = mpsc::channel();
        let requests = Arc::new(Requests::default());
        let of_thread = requests.clone();
        let flush = move |is_forced| {
            let _ = begins.send(is_forced);
            Ok(gate.recv().is_ok())
        };
        std::thread::spawn(move || of_thread.serve(flush));
        (requests, open, begun)
    }

    #[test]
    fn wait_ends_at_its_timeout() {
        let (requests, open, begun) = gated();
        let always = |_: LastFlush| true;
        let first = requests.join_or_add(always).unwrap();
        begun.recv().unwrap();
        assert!(!requests.wait(first, SHORT).unwrap());
        assert_eq!(
            requests.join_or_add(always),
            Some(first),
            "one flush for all concurrent requests"
        );
        open.send(()).unwrap();
        assert!(requests.wait(first, LONG).unwrap());
        assert_eq!(requests.state.lock().returned, 1);
        let last = requests.state.lock().last;
        let is_due = |seen: LastFlush| {
            assert_eq!((seen.returned_ns, seen.took_ns), (last.returned_ns, last.took_ns));
            assert!(seen.took_ns >= SHORT.as_nanos() as u64);
            false
        };
        assert_eq!(requests.join_or_add(is_due), None);
        assert!(begun.try_recv().is_err());
    }

    #[test]
    fn wait_may_have_no_limit() {
        let (requests, open, _begun) = gated();
        open.send(()).unwrap();
        assert!(requests.wait(requests.add(false), Duration::MAX).unwrap());
    }

    #[test]
    fn flush_that_is_added_begins_afterwards() {
        let (requests, open, begun) = gated();
        let first = requests.add(false);
        begun.recv().unwrap();
        let second = requests.add(true);
        assert_eq!((first, second, requests.add(false)), (1, 2, 2));
        open.send(()).unwrap();
        assert!(requests.wait(first, LONG).unwrap());
        assert!(begun.recv().unwrap(), "the second one is forced");
        assert_eq!(requests.state.lock().returned, 1);
        open.send(()).unwrap();
        assert!(requests.wait(second, LONG).unwrap());
    }

    #[test]
    fn waiters_receive_refused_and_skipped_flushes() {
        let requests = Arc::new(Requests::default());
        let of_thread = requests.clone();
        std::thread::spawn(move || {
            let first = std::cell::Cell::new(true);
            of_thread.serve(|_| match first.take() {
                true => Err(Error::new(Kind::Forked)),
                false => Ok(false),
            });
        });
        assert!(requests.wait(requests.add(false), LONG).is_err());
        assert!(!requests.wait(requests.add(false), LONG).unwrap());
    }

    #[test]
    fn thread_ends_once_all_is_done() {
        let (requests, open, _begun) = gated();
        let number = requests.add(true);
        requests.end();
        open.send(()).unwrap();
        assert!(requests.wait(number, LONG).unwrap());
        while Arc::strong_count(&requests) > 1 {
            std::thread::yield_now();
        }
    }
}
