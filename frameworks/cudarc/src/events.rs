//! Ranges of a stream timed by CUDA events, for where CUPTI is not to be had.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::{CUevent_flags, CUstreamCaptureStatus};
use cudarc::driver::{CudaEvent, CudaStream};

use crate::error::Error;

/// Ranges that wait for their events, before a start reads those that are done.
const MOST_PENDING: usize = 1024;

/// Times ranges of one thread on one stream by CUDA events: the time from when the stream reaches the start to when it
/// reaches the end.
///
/// That is no sum of kernels, as CUPTI's is: it includes what the stream waits for in between, such as launches that come too
/// late, other streams and copies. Its resolution is about half a microsecond. A range costs two events, so ranges that few
/// kernels are in become longer by it.
///
/// ```no_run
/// use cudarc::driver::CudaContext;
/// use gpu_profiler_cudarc::EventTimer;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let stream = CudaContext::new(0)?.new_stream()?;
/// let timer = EventTimer::new(&stream);
/// {
///     let _step = timer.range("step");
///     let _forward = timer.range("forward"); // "step/forward"
/// }
/// println!("{}", timer.finish()?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EventTimer {
    stream: Arc<CudaStream>,
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    rows: Vec<EventRow>,
    /// Rows of the open ranges, outermost first.
    open: Vec<usize>,
    pending: VecDeque<Pending>,
    /// Events to be used again.
    free: Vec<CudaEvent>,
    untimed: u64,
    refused: Option<String>,
}

#[derive(Debug)]
struct Pending {
    row: usize,
    start: CudaEvent,
    end: CudaEvent,
}

/// The times of one path of ranges.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EventRow {
    /// The path, such as `step/forward`.
    pub path: String,
    /// The ranges that were timed.
    pub count: u64,
    /// The sum of their times on the stream.
    pub total: Duration,
    /// The shortest.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
}

/// Ranges timed by CUDA events. `{}` prints a table with this origin. Made by [`EventTimer::finish`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EventReport {
    /// By path, in the order of their first start.
    pub rows: Vec<EventRow>,
    /// Ranges without a time: within a capture, where events are not allowed, or where the driver refused one.
    pub untimed: u64,
    /// The driver's first refusal.
    pub refused: Option<String>,
    /// Why there is no profile of CUPTI's, if that was tried.
    pub fallback_reason: Option<String>,
}

impl EventRow {
    fn add(&mut self, time: Duration) {
        self.min = if self.count == 0 { time } else { self.min.min(time) };
        self.max = self.max.max(time);
        self.count += 1;
        self.total += time;
    }
}

impl State {
    /// The row of a range of this name in the innermost open one.
    fn row(&mut self, name: &str) -> usize {
        let outer = self.open.last().and_then(|row| self.rows.get(*row));
        let path = outer.map_or_else(|| name.to_owned(), |outer| format!("{}/{name}", outer.path));
        self.rows.iter().position(|row| row.path == path).unwrap_or_else(|| {
            let (count, total, min, max) = Default::default();
            self.rows.push(EventRow { path, count, total, min, max });
            self.rows.len() - 1
        })
    }

    fn refuse(&mut self, error: &Error) {
        self.untimed += 1;
        self.refused.get_or_insert_with(|| error.to_string());
    }

    /// Reads the ranges that are done, or with `waiting` all of them.
    fn read(&mut self, waiting: bool) {
        while let Some(first) = self.pending.front() {
            if !waiting && matches!(first.end.try_is_complete(), Ok(false)) {
                return;
            }
            let Some(Pending { row, start, end }) = self.pending.pop_front() else { return };
            let elapsed = start.elapsed_ms(&end).map_err(Error::driver("reading an event"));
            match (elapsed, self.rows.get_mut(row)) {
                (Ok(milliseconds), Some(row)) => {
                    row.add(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3));
                }
                (Err(error), _) => self.refuse(&error),
                (Ok(_), None) => {}
            }
            self.free.extend([start, end]);
        }
    }
}

impl EventTimer {
    /// A timer of ranges on this stream.
    #[must_use]
    pub fn new(stream: &Arc<CudaStream>) -> Self {
        Self { stream: stream.clone(), state: RefCell::default() }
    }

    /// Starts a range on this thread and the stream. Ranges nest; end them in the reverse order. The range is one of NVTX,
    /// too. Where the driver refuses an event, the range is counted as untimed.
    pub fn range(&self, name: &str) -> EventRange<'_> {
        let range = nvtx::range(name);
        let start = self.event();
        let mut state = self.state.borrow_mut();
        if state.pending.len() >= MOST_PENDING {
            // Waits for the oldest if the GPU is that far behind: memory stays bounded.
            state.read(false);
            if state.pending.len() >= MOST_PENDING {
                state.read(true);
            }
        }
        let row = state.row(name);
        state.open.push(row);
        let start = start.inspect_err(|error| state.refuse(error)).ok().flatten();
        EventRange { timer: self, row, start, _range: range }
    }

    /// An event that the stream reaches now; `None` within a capture, which counts as untimed.
    fn event(&self) -> Result<Option<CudaEvent>, Error> {
        let status = self.stream.capture_status().map_err(Error::driver("asking for a capture"))?;
        if status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
            self.state.borrow_mut().untimed += 1;
            return Ok(None);
        }
        let known = self.state.borrow_mut().free.pop();
        let event = match known {
            Some(event) => event,
            None => {
                let flags = Some(CUevent_flags::CU_EVENT_DEFAULT);
                let event = self.stream.context().new_event(flags);
                event.map_err(Error::driver("creating an event"))?
            }
        };
        event.record(&self.stream).map_err(Error::driver("recording an event"))?;
        Ok(Some(event))
    }

    /// Waits for the stream's events and returns the times.
    ///
    /// # Errors
    /// The driver refuses to wait, as after an error of earlier work.
    pub fn finish(self) -> Result<EventReport, Error> {
        let mut state = self.state.into_inner();
        if !state.pending.is_empty() {
            self.stream.synchronize().map_err(Error::driver("waiting for the stream"))?;
        }
        state.read(true);
        let State { rows, untimed, refused, .. } = state;
        Ok(EventReport { rows, untimed, refused, fallback_reason: None })
    }
}

/// An open range of an [`EventTimer`]; dropping it ends it.
#[derive(Debug)]
#[must_use = "the range ends when this guard is dropped: keep it in a variable, `let _range = ...`"]
pub struct EventRange<'t> {
    timer: &'t EventTimer,
    row: usize,
    /// `None` if it is not timed.
    start: Option<CudaEvent>,
    _range: nvtx::Range,
}

impl Drop for EventRange<'_> {
    fn drop(&mut self) {
        let end = self.start.is_some().then(|| self.timer.event());
        let mut state = self.timer.state.borrow_mut();
        if let Some(place) = state.open.iter().rposition(|row| *row == self.row) {
            state.open.remove(place);
        }
        match (self.start.take(), end) {
            (Some(start), Some(Ok(Some(end)))) => {
                let row = self.row;
                state.pending.push_back(Pending { row, start, end });
            }
            (_, Some(Err(error))) => state.refuse(&error),
            _ => {}
        }
    }
}

impl fmt::Display for EventReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Ranges timed by CUDA events on one stream: from start to end on the stream, gaps and waits included; no kernels"
        )?;
        if let Some(reason) = &self.fallback_reason {
            writeln!(f, "instead of a profile: {reason}")?;
        }
        let width = self.rows.iter().map(|row| row.path.chars().count()).max().unwrap_or(0).max(5);
        writeln!(
            f,
            "\n{:width$}  {:>7}  {:>11}  {:>11}  {:>11}  {:>11}",
            "range", "times", "total", "mean", "min", "max"
        )?;
        for row in &self.rows {
            let mean = row.total.checked_div(u32::try_from(row.count).unwrap_or(u32::MAX));
            let [total, mean, min, max] = [row.total, mean.unwrap_or_default(), row.min, row.max]
                .map(|time| format!("{:.1?}", time));
            writeln!(
                f,
                "{:width$}  {:>7}  {total:>11}  {mean:>11}  {min:>11}  {max:>11}",
                row.path, row.count
            )?;
        }
        match (self.untimed, &self.refused) {
            (0, _) => Ok(()),
            (count, None) => writeln!(f, "{count} ranges without a time, within captures"),
            (count, Some(refused)) => writeln!(f, "{count} ranges without a time: {refused}"),
        }
    }
}
