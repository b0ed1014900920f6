//! The `always-on` key of `GPUPROF_OPTIONS`: windows drawn at random in an unmodified program.
//!
//! A sampling session of `profiler-core` runs beside the recording. Its units are the ranges with
//! one name, or time slices. The recording has the same windows.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gpuprof_control::AlwaysOn as Settings;
use parking_lot::{Condvar, Mutex};
use profiler_core::session::always_on::{AlwaysOn, AlwaysOnReport, AlwaysOnSession, UnitToken};
use profiler_core::{Error, Profiler};

/// The length of a time slice.
const SLICE: Duration = Duration::from_millis(20);

/// The sampling session of this process.
static SAMPLING: OnceLock<Sampling> = OnceLock::new();

/// Callbacks that begin and end windows of the recording.
pub(crate) struct Windows {
    /// Returns false if the recording refused the window.
    pub(crate) begin: fn() -> bool,
    pub(crate) end: fn(),
}

/// The result of sampling.
pub(crate) struct Report {
    sampling: AlwaysOnReport,
    /// The number of windows that the recording's file refused. Their operations are not in the
    /// file.
    unwritten: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unwritten != 0 {
            let unwritten = self.unwritten;
            writeln!(
                f,
                "{unwritten} windows are in the sums below, and not in the recording: its file refused them"
            )?;
        }
        self.sampling.fmt(f)
    }
}

/// A sampling session and its open units.
struct Sampling {
    /// `None` after the session has ended.
    session: Mutex<Option<Arc<AlwaysOnSession>>>,
    /// The name of the ranges that are units; `None` for time slices.
    range: Option<Box<str>>,
    windows: Windows,
    /// Counters of all windows, and of those that the recording refused.
    count: AtomicU64,
    unwritten: AtomicU64,
    open: Mutex<Open>,
    /// True to end the slices.
    is_over: Mutex<bool>,
    ended: Condvar,
}

/// The open units by number.
#[derive(Default)]
struct Open {
    last: u64,
    units: BTreeMap<u64, UnitToken>,
    /// The number of recorded units among them, which share a window of the recording.
    recorded: u32,
}

/// Starts sampling beside a paused recording.
pub(crate) fn start(
    profiler: &Profiler,
    settings: &Settings,
    range: Option<&str>,
    windows: Windows,
) -> Result<(), Error> {
    let session = profiler.always_on(&from_settings(settings))?;
    let _ = SAMPLING.set(Sampling::new(session, range, windows));
    Ok(())
}

/// Converts the options to the settings of the session.
fn from_settings(settings: &Settings) -> AlwaysOn {
    let Settings { budget, rate, slow, .. } = *settings;
    let all = match budget {
        Some(budget) => AlwaysOn::new().budget(budget.share()),
        None => AlwaysOn::new().calls_only(),
    };
    let all = rate.into_iter().fold(all, AlwaysOn::rate);
    slow.into_iter().fold(all, AlwaysOn::slow)
}

/// True if the process is sampled in time slices.
pub(crate) fn is_by_slices() -> bool {
    SAMPLING.get().is_some_and(|sampling| sampling.range.is_none())
}

/// Called before a range begins, if range names matter. Returns the number of its unit, or `None`
/// if the range is not a unit.
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

/// Makes each time slice a unit until sampling ends. Runs on a thread of its own.
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

/// Returns the report of the running session. `None` without sampling, and after its end.
pub(crate) fn report() -> Option<Report> {
    let sampling = SAMPLING.get()?;
    sampling.session()?.snapshot().ok().map(|report| sampling.described(report))
}

/// The number of windows so far.
pub(crate) fn windows() -> u64 {
    SAMPLING.get().map_or(0, |sampling| sampling.count.load(Ordering::Relaxed))
}

/// Ends sampling. Returns its report on the first call only.
pub(crate) fn finish() -> Option<Result<Report, Error>> {
    let sampling = SAMPLING.get()?;
    *sampling.is_over.lock() = true;
    sampling.ended.notify_all();
    let open: Vec<u64> = sampling.open.lock().units.keys().copied().collect();
    open.into_iter().for_each(|unit| sampling.end(unit));
    let session = sampling.session.lock().take()?;
    // A thread that begins a range may briefly hold another reference.
    let report = match Arc::try_unwrap(session) {
        Ok(session) => session.stop(),
        Err(session) => session.snapshot(),
    };
    Some(report.map(|report| sampling.described(report)))
}

impl Sampling {
    fn new(session: AlwaysOnSession, range: Option<&str>, windows: Windows) -> Self {
        Self {
            session: Mutex::new(Some(Arc::new(session))),
            range: range.map(Into::into),
            windows,
            count: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
            open: Mutex::default(),
            is_over: Mutex::new(false),
            ended: Condvar::new(),
        }
    }

    fn session(&self) -> Option<Arc<AlwaysOnSession>> {
        self.session.lock().clone()
    }

    fn described(&self, sampling: AlwaysOnReport) -> Report {
        Report { sampling, unwritten: self.unwritten.load(Ordering::Relaxed) }
    }

    /// Begins a unit and returns its number.
    fn begin(&self, name: &str) -> Option<u64> {
        let unit = self.session()?.begin_unit(name)?;
        let is_recorded = unit.is_recorded();
        let mut open = self.open.lock();
        open.last += 1;
        let number = open.last;
        open.units.insert(number, unit);
        if is_recorded {
            open.recorded += 1;
            if open.recorded == 1 {
                self.count.fetch_add(1, Ordering::Relaxed);
                let is_written = (self.windows.begin)();
                self.unwritten.fetch_add(u64::from(!is_written), Ordering::Relaxed);
            }
        }
        Some(number)
    }

    fn end(&self, number: u64) {
        let mut open = self.open.lock();
        let Some(unit) = open.units.remove(&number) else { return };
        if unit.is_recorded() {
            open.recorded -= 1;
            if open.recorded == 0 {
                (self.windows.end)();
            }
        }
        drop(open);
        if let Some(session) = self.session() {
            session.end_unit(unit);
        }
    }
}

#[cfg(test)]
mod tests {
    use fake_cupti::{Fake, Work};

    use super::*;

    #[test]
    fn windows_that_the_recording_refuses_are_in_the_report() {
        let fake = Fake::new();
        let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
        let session = profiler.always_on(&AlwaysOn::new().budget(1.0).rate(1.0)).unwrap();
        let windows = Windows { begin: || false, end: || {} };
        let sampling = Sampling::new(session, Some("step"), windows);
        let report = || sampling.described(sampling.session().unwrap().snapshot().unwrap());
        assert!(!report().to_string().contains("refused"));
        while sampling.count.load(Ordering::Relaxed) == 0 {
            let unit = sampling.begin("step");
            fake.launch(Work::kernel(c"k"));
            unit.into_iter().for_each(|unit| sampling.end(unit));
            std::thread::sleep(Duration::from_millis(1));
        }
        let text = report().to_string();
        assert!(
            text.starts_with("1 windows are in the sums below, and not in the recording"),
            "{text}"
        );
        assert!(text.contains("by range"), "{text}");
    }
}
