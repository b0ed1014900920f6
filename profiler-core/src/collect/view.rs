//! One session's view of the collection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cupti::clock::now_ns;
use parking_lot::Mutex;

use crate::collect::request::{Retention, Sink};
use crate::record::recording::segment::CarriedOver;

/// Signals that threads set without the collection's lock, each with its time: the stop of a
/// session, and the bounds of its windows.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// Set before any lock is awaited, so that data of the session is not released in the meantime.
    /// 0 before the stop.
    stop_ns: AtomicU64,
    /// The bounds that the view has not seen; true for the start of a window.
    bounds: Mutex<Vec<(u64, bool)>>,
}

impl Signals {
    pub(super) fn stop(&self, at_ns: u64) {
        self.stop_ns.store(at_ns.max(1), Ordering::Release);
    }

    pub(super) fn stop_ns(&self) -> Option<u64> {
        Some(self.stop_ns.load(Ordering::Acquire)).filter(|at_ns| *at_ns != 0)
    }

    /// Begins or ends a window now. The time is read under the lock: a bound that a later reader of
    /// the list finds is later than the reading.
    pub(super) fn bound(&self, begins: bool) {
        let mut bounds = self.bounds.lock();
        if bounds.last().is_none_or(|(_, last)| *last != begins) {
            bounds.push((now_ns(), begins));
        }
    }
}

/// One session's view of the collection.
#[derive(Debug)]
pub(super) struct View {
    pub(super) id: u64,
    pub(super) keep: Retention,
    /// The number of the first segment that it needs.
    pub(super) from: u64,
    pub(super) start_ns: u64,
    pub(super) windows_ns: Vec<(u64, u64)>,
    pub(super) on_since_ns: Option<u64>,
    pub(super) signals: Arc<Signals>,
    /// Its end: the time of the stop call, but not before `earliest_end_ns`.
    pub(super) left_ns: Option<u64>,
    /// Work before this time was consumed by the sink, or released.
    pub(super) earliest_end_ns: u64,
    pub(super) before_id: u32,
    pub(super) carried_over: CarriedOver,
    pub(super) panics_before: u64,
    pub(super) sink: Option<Arc<Mutex<dyn Sink>>>,
}

impl View {
    pub(super) fn is_on(&self) -> bool {
        self.on_since_ns.is_some()
    }

    pub(super) fn turn_off(&mut self, at_ns: u64) {
        if let Some(since) = self.on_since_ns.take() {
            self.windows_ns.push((since, at_ns.max(since)));
        }
    }

    /// Sets the end if the stop was called, and the bounds of windows since the last call.
    pub(super) fn see_signals(&mut self) {
        if self.left_ns.is_none() {
            let earliest_ns = self.earliest_end_ns.max(self.start_ns);
            self.left_ns = self.signals.stop_ns().map(|at_ns| at_ns.max(earliest_ns));
        }
        let bounds = std::mem::take(&mut *self.signals.bounds.lock());
        for (at_ns, begins) in bounds {
            if begins {
                self.on_since_ns.get_or_insert(at_ns);
            } else {
                self.turn_off(at_ns);
            }
        }
    }

    /// This time, or the stop if that was earlier.
    pub(super) fn until_ns(&self, at_ns: u64) -> u64 {
        self.left_ns.map_or(at_ns, |left_ns| left_ns.min(at_ns))
    }

    /// The start of the retained data, at this time or at its stop.
    pub(super) fn first_ns(&self, at_ns: u64) -> u64 {
        let at_ns = self.until_ns(at_ns);
        match self.keep {
            Retention::LastTime(time) => {
                self.start_ns.max(at_ns.saturating_sub(time.as_nanos() as u64))
            }
            _ => self.start_ns,
        }
    }

    /// True if ranges that ended before the retained time are missing.
    pub(super) fn begins_late(&self, at_ns: u64) -> bool {
        self.from > 0 || self.first_ns(at_ns) > self.start_ns
    }

    /// The times in which it was on and not paused, from `from_ns` to `at_ns` or its stop.
    pub(super) fn windows(&self, from_ns: u64, at_ns: u64) -> Vec<(u64, u64)> {
        let at_ns = self.until_ns(at_ns);
        let open = self.on_since_ns.map(|since| (since, at_ns));
        let ended = self.windows_ns.partition_point(|(_, stop)| *stop < from_ns);
        let windows = self.windows_ns[ended..].iter().copied().chain(open);
        let counts = windows.map(|(start, stop)| (start.max(from_ns), stop.min(at_ns)));
        counts.filter(|(start, stop)| start < stop).collect()
    }
}
