//! `GPUPROF_ALWAYS_ON`: windows within a budget in a program that was not changed.
//!
//! A sampling session of `profiler-core` runs beside the recording. Its units are the ranges of a name, or slices of time; the
//! recording has the same windows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gpuprof_control::Budget;
use parking_lot::{Condvar, Mutex};
use profiler_core::session::always_on::{AlwaysOn, AlwaysOnReport, AlwaysOnSession, UnitToken};
use profiler_core::{Error, Profiler};

/// The length of a slice of time.
const SLICE: Duration = Duration::from_millis(20);

/// The sampling of this process.
static SAMPLING: OnceLock<Sampling> = OnceLock::new();

/// The windows of the recording.
pub(crate) struct Windows {
    pub(crate) begin: fn(),
    pub(crate) end: fn(),
}

/// A sampling session and its open unit.
struct Sampling {
    /// `None` once it has ended.
    session: Mutex<Option<Arc<AlwaysOnSession>>>,
    /// The name of the ranges that are units; `None` for slices of time.
    range: Option<Box<str>>,
    windows: Windows,
    /// Windows so far.
    count: AtomicU64,
    open: Mutex<Open>,
    /// Ends the slices.
    is_over: Mutex<bool>,
    ended: Condvar,
}

/// The open unit; there is at most one.
#[derive(Default)]
struct Open {
    number: u64,
    unit: Option<UnitToken>,
}

/// Starts sampling beside a recording that is paused.
pub(crate) fn start(
    profiler: &Profiler,
    budget: Budget,
    range: Option<&str>,
    windows: Windows,
) -> Result<(), Error> {
    let session = profiler.always_on(&AlwaysOn::new().budget(budget.share()))?;
    let _ = SAMPLING.set(Sampling {
        session: Mutex::new(Some(Arc::new(session))),
        range: range.map(Into::into),
        windows,
        count: AtomicU64::new(0),
        open: Mutex::default(),
        is_over: Mutex::new(false),
        ended: Condvar::new(),
    });
    Ok(())
}

/// Whether the process is sampled, and by slices of time.
pub(crate) fn is_by_slices() -> bool {
    SAMPLING.get().is_some_and(|sampling| sampling.range.is_none())
}

/// Called before a range begins, if names of ranges matter. The number of its unit; `None` if it is none.
pub(crate) fn range_begins(name: &str) -> Option<u64> {
    let sampling = SAMPLING.get().filter(|sampling| sampling.range.as_deref() == Some(name))?;
    cupti::__private::with_signals_blocked(|| sampling.begin(name))
}

/// Called after the range of a unit has ended.
pub(crate) fn range_ended(unit: u64) {
    if let Some(sampling) = SAMPLING.get() {
        cupti::__private::with_signals_blocked(|| sampling.end(unit));
    }
}

/// Makes units of slices of time until sampling ends: the work of a thread.
pub(crate) fn slice() {
    let Some(sampling) = SAMPLING.get() else { return };
    let mut is_over = sampling.is_over.lock();
    while !*is_over {
        let unit = sampling.begin("slice");
        let _ = sampling.ended.wait_for(&mut is_over, SLICE);
        if let Some(unit) = unit {
            sampling.end(unit);
        }
    }
}

/// What is known so far. `None` without sampling, and after its end.
pub(crate) fn report() -> Option<AlwaysOnReport> {
    SAMPLING.get()?.session()?.snapshot().ok()
}

/// The windows so far.
pub(crate) fn windows() -> u64 {
    SAMPLING.get().map_or(0, |sampling| sampling.count.load(Ordering::Relaxed))
}

/// Ends sampling. Returns its report, once.
pub(crate) fn finish() -> Option<Result<AlwaysOnReport, Error>> {
    let sampling = SAMPLING.get()?;
    *sampling.is_over.lock() = true;
    sampling.ended.notify_all();
    let unit = sampling.open.lock().number;
    sampling.end(unit);
    let session = sampling.session.lock().take()?;
    // A thread that begins a range may hold it for a moment.
    match Arc::try_unwrap(session) {
        Ok(session) => Some(session.stop()),
        Err(session) => Some(session.snapshot()),
    }
}

impl Sampling {
    fn session(&self) -> Option<Arc<AlwaysOnSession>> {
        self.session.lock().clone()
    }

    /// Begins a unit. Returns its number.
    fn begin(&self, name: &str) -> Option<u64> {
        let unit = self.session()?.begin_unit(name)?;
        let is_recorded = unit.is_recorded();
        let mut open = self.open.lock();
        open.number += 1;
        open.unit = Some(unit);
        if is_recorded {
            self.count.fetch_add(1, Ordering::Relaxed);
            (self.windows.begin)();
        }
        Some(open.number)
    }

    fn end(&self, number: u64) {
        let mut open = self.open.lock();
        if open.number != number {
            return;
        }
        let Some(unit) = open.unit.take() else { return };
        if unit.is_recorded() {
            (self.windows.end)();
        }
        drop(open);
        if let Some(session) = self.session() {
            session.end_unit(unit);
        }
    }
}
