//! A flight recorder: the last part of a run in bounded memory, written when something goes wrong.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cupti::clock::now_ns;
use parking_lot::{Condvar, Mutex};
use profiler_base::background::Background;
use profiler_base::{named_variants, setters};
use rustc_hash::FxHashMap;

use crate::collect::request::{Retention, SessionRequest, Sink};
use crate::collect::session::Session;
use crate::error::Error;
use crate::join::account::is_failure;
use crate::record::recording::Recording;
use crate::record::recording::append::Taken;
use crate::record::recording::ranges::ThreadSegment;
use crate::session::profiler::Profiler;
use crate::session::recording_file::FileTotals;

/// The maximum wait of a panicking thread for its file.
const PANIC_WAITS: Duration = Duration::from_secs(5);
/// The maximum number of files whose names are stored.
const MOST_NAMES: usize = 1024;

/// Settings of a flight recorder.
///
/// ```no_run
/// use std::time::Duration;
///
/// use profiler_core::Profiler;
/// use profiler_core::session::FlightRecorder;
///
/// # fn serve() {}
/// # fn main() -> Result<(), profiler_core::Error> {
/// let settings = FlightRecorder::new("/var/tmp")
///     .slow("request", Duration::from_millis(200))
///     .on_error()
///     .on_panic();
/// let profiler = Profiler::builder().keep_last(Duration::from_secs(5)).build()?;
/// let recorder = profiler.flight_recorder(&settings)?;
/// serve();
/// println!("{:?}", recorder.files()); // /var/tmp/incident-<pid>-1-slow.gpuprof
/// recorder.write()?; // now, whatever happened
/// # Ok(())
/// # }
/// ```
///
/// The profiler's [`keep_last`](crate::ProfilerBuilder::keep_last) or
/// [`keep_last_operations`](crate::ProfilerBuilder::keep_last_operations) bounds the memory. A file
/// has the retained part and is a recording like any other. Triggers are found with the next
/// segment of the logs, once a [period](crate::ProfilerBuilder::period). Retain more time than a
/// slow request and a period take.
#[derive(Debug, Clone)]
#[must_use]
pub struct FlightRecorder {
    folder: PathBuf,
    /// `None` for the default.
    name: Option<String>,
    slow: Vec<(String, Duration)>,
    on_error: bool,
    on_panic: bool,
    most_files: u64,
    quiet: Duration,
}

named_variants! {
    /// The reason why a flight recorder wrote a file.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Trigger {
        /// A call of the program.
        Request = "request",
        /// A range took longer than its threshold.
        Slow = "slow",
        /// A call of the driver returned an error.
        Error = "error",
        /// A thread panicked.
        Panic = "panic",
    }
}

impl FlightRecorder {
    /// Writes files into this existing folder, only on request.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            name: None,
            slow: Vec::new(),
            on_error: false,
            on_panic: false,
            most_files: 16,
            quiet: Duration::from_secs(10),
        }
    }

    setters! {
        /// The first part of the names of files, before their number and trigger. `incident-<pid>`
        /// by default. Numbers of existing files are skipped: a program that was restarted under
        /// the same pid, as in a container, replaces no file.
        name(text: impl Into<String>) name = Some(text.into());
        /// Writes a file when a thread range of exactly this name took longer than the threshold.
        /// May be called several times. Process ranges are ignored.
        slow(range: impl Into<String>, threshold: Duration) slow += (range.into(), threshold);
        /// Writes a file when a logged call returned an error. `CUDA_ERROR_NOT_READY` of a query is
        /// not an error.
        on_error() on_error = true;
        /// Writes a file when a thread panics, before the panic unwinds, and waits up to 5 s for
        /// it. This wraps the process's panic hook, which stays wrapped after the session.
        on_panic() on_panic = true;
        /// The maximum number of written files, 16 by default. Later triggers are counted.
        most_files(count: u64) most_files = count;
        /// The minimum time between two files of one kind of trigger, 10 s by default. Kinds are
        /// independent: an error has its file even just after a slow range. Triggers within this
        /// time are counted. Files on request and of panics are always written.
        quiet(time: Duration) quiet = time;
    }
}

/// Searches each segment for triggers.
#[derive(Debug)]
struct Watcher {
    slow: Vec<(String, Duration)>,
    on_error: bool,
    requests: Arc<Requests>,
}

impl Watcher {
    fn is_slow(&self, thread: &ThreadSegment) -> bool {
        let Some(least) = self.slow.iter().map(|(_, threshold)| *threshold).min() else {
            return false;
        };
        thread.entries().any(|(_, entry)| {
            let Some(end_ns) = entry.end_ns() else { return false };
            let time = Duration::from_nanos(end_ns.saturating_sub(entry.start_ns()));
            time > least
                && thread.with_texts(|texts| {
                    let label = texts.labels.get(entry.label() as usize);
                    let name = label.and_then(|label| texts.texts.get(label.name as usize));
                    self.slow.iter().any(|(known, most)| Some(known) == name && time > *most)
                })
        })
    }
}

impl Sink for Watcher {
    fn add(&mut self, taken: &Taken<'_>) {
        if taken.segment.ranges.iter().any(|thread| self.is_slow(thread)) {
            self.requests.add(Trigger::Slow);
        }
        let count = taken.segment.calls.iter().map(|thread| thread.calls.len() as u64).sum();
        self.requests.calls.fetch_add(count, Ordering::Relaxed);
        let mut calls = taken.segment.calls.iter().flat_map(|thread| &thread.calls);
        if self.on_error && calls.any(|call| is_failure(call.function.class(), call.result)) {
            self.requests.add(Trigger::Error);
        }
    }
}

#[derive(Debug, Default)]
struct Pending {
    /// Triggers without a file, each at most once.
    triggers: VecDeque<Trigger>,
    is_over: bool,
    /// Panics whose file was written or could not be.
    panics: u64,
    files: VecDeque<(PathBuf, Trigger)>,
    count: u64,
    left_out: u64,
    /// The time of the last file of each kind, whether it was written or could not be.
    last: FxHashMap<Trigger, Instant>,
    last_error: Option<Error>,
}

/// The pending and completed files.
#[derive(Debug, Default)]
struct Requests {
    pending: Mutex<Pending>,
    changed: Condvar,
    /// Calls since the start.
    calls: AtomicU64,
}

impl Requests {
    fn add(&self, trigger: Trigger) {
        let mut pending = self.pending.lock();
        if !pending.triggers.contains(&trigger) {
            pending.triggers.push_back(trigger);
        }
        self.changed.notify_all();
    }

    /// Waits for the next trigger. `None` when the session ends.
    fn next(&self) -> Option<Trigger> {
        let mut pending = self.pending.lock();
        loop {
            if pending.is_over {
                return None;
            }
            if let Some(trigger) = pending.triggers.pop_front() {
                return Some(trigger);
            }
            self.changed.wait(&mut pending);
        }
    }
}

/// The state shared by the threads of a flight recorder.
#[derive(Debug)]
struct Shared {
    session: Session,
    requests: Arc<Requests>,
    settings: FlightRecorder,
    /// The number of the last file.
    last_number: Mutex<u64>,
}

/// A running flight recorder. Any thread may use it. Dropping it ends the session; its files stay.
#[derive(Debug)]
#[must_use = "the session ends when this is dropped"]
pub struct FlightRecording {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

impl Profiler {
    /// Starts a session that retains the last part in memory, and writes it to a file on a trigger.
    /// [`FlightRecorder`] has the settings and an example. It records everything, at the cost of a
    /// session; other sessions may run beside it.
    ///
    /// # Errors
    /// The profiler has no memory bound, or the folder is not a folder; otherwise as
    /// [`start`](Self::start).
    pub fn flight_recorder(&self, settings: &FlightRecorder) -> Result<FlightRecording, Error> {
        let keep = self.retention();
        if keep == Retention::All {
            return Err(Error::other(
                "a flight recorder needs a bound of its memory: set keep_last or keep_last_operations on the profiler",
            ));
        }
        let folder = std::fs::canonicalize(&settings.folder).and_then(|folder| {
            let is_folder = folder.is_dir();
            let no_folder = || std::io::Error::from(std::io::ErrorKind::NotADirectory);
            is_folder.then_some(folder).ok_or_else(no_folder)
        });
        let failed =
            |source: std::io::Error| Error::io("write to the folder", &settings.folder, source);
        let folder = folder.map_err(failed)?;
        let settings = FlightRecorder { folder, ..settings.clone() };
        let requests = Arc::new(Requests::default());
        let (slow, on_error) = (settings.slow.clone(), settings.on_error);
        let watcher = Arc::new(Mutex::new(Watcher { slow, on_error, requests: requests.clone() }));
        let session = Session::start(&SessionRequest { ..self.request(keep, Some(watcher)) })?;
        let last_number = Mutex::default();
        let shared = Arc::new(Shared { session, requests, settings, last_number });
        if shared.settings.on_panic {
            write_on_panic(Arc::downgrade(&shared));
        }
        let of_thread = shared.clone();
        let write = move || while of_thread.write_next() {};
        // Without the thread, files are written only on request.
        let writer = Background::default().spawn("gpu-profiler-flight", write).ok();
        Ok(FlightRecording { shared, writer })
    }
}

/// Writes a recording to a file, and counts its contents.
fn save(recording: &Recording, path: &Path) -> Result<FileTotals, Error> {
    recording.save(path)?;
    let calls = recording.calls.iter().map(|thread| thread.calls.len() as u64).sum();
    let ranges = recording.ranges.iter().map(|thread| thread.entries.len() as u64).sum();
    let bytes = path.metadata().map_or(0, |about| about.len());
    let operations = recording.operations();
    Ok(FileTotals { operations, calls, ranges, bytes, ..FileTotals::default() })
}

/// Writes a file on panics of the process while the session runs.
fn write_on_panic(shared: Weak<Shared>) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if let Some(shared) = shared.upgrade()
            && shared.session.check_process().is_ok()
        {
            shared.wait_for_panic();
        }
        before(panic);
    }));
}

impl FlightRecording {
    /// Writes the part retained now, and returns the file. Flushes CUPTI; does not wait for the
    /// GPU.
    ///
    /// # Errors
    /// CUPTI's refusal, or the file cannot be written.
    pub fn write(&self) -> Result<PathBuf, Error> {
        self.shared.session.check_process()?;
        self.shared.write(Trigger::Request)
    }

    /// Writes the part retained now to this file, which is replaced once the new one is complete.
    /// The file is not in [`files`](Self::files). Flushes CUPTI; does not wait for the GPU.
    ///
    /// # Errors
    /// Same as [`write`](Self::write).
    pub fn write_to(&self, path: impl AsRef<Path>) -> Result<FileTotals, Error> {
        self.shared.session.check_process()?;
        save(&self.shared.session.snapshot()?, path.as_ref())
    }

    /// The files so far with their reasons, the last 1,024.
    pub fn files(&self) -> Vec<(PathBuf, Trigger)> {
        self.shared.requests.pending.lock().files.iter().cloned().collect()
    }

    /// Driver calls since the start, retained or not, up to the last period.
    pub fn calls(&self) -> u64 {
        self.shared.requests.calls.load(Ordering::Relaxed)
    }

    /// Triggers without a file: too soon after another one, above the maximum number of files, or
    /// the file could not be written.
    pub fn left_out(&self) -> u64 {
        self.shared.requests.pending.lock().left_out
    }

    /// The reason why the last file could not be written.
    pub fn last_error(&self) -> Option<Error> {
        self.shared.requests.pending.lock().last_error.clone()
    }

    /// Like [`Profiler::pause`]: work submitted until [`resume`](Self::resume) is not retained, and
    /// costs less. Earlier data stays until later work replaces it.
    ///
    /// # Errors
    /// CUPTI's refusal to flush; the session is paused nevertheless.
    pub fn pause(&self) -> Result<(), Error> {
        self.shared.session.pause()
    }

    /// Same as [`Profiler::resume`].
    ///
    /// # Errors
    /// CUPTI's refusal; the session remains paused.
    pub fn resume(&self) -> Result<(), Error> {
        self.shared.session.resume()
    }

    /// Ends the session without a file.
    ///
    /// # Errors
    /// CUPTI's refusal.
    pub fn stop(self) -> Result<(), Error> {
        self.end().map(drop)
    }

    /// Ends the session, and writes the part retained at its end to this file, like
    /// [`write_to`](Self::write_to). Waits for the GPU as [`Profiler::stop`] does.
    ///
    /// # Errors
    /// CUPTI's refusal, or the file cannot be written.
    pub fn finish(self, path: impl AsRef<Path>) -> Result<FileTotals, Error> {
        save(&self.end()?, path.as_ref())
    }

    fn end(mut self) -> Result<Recording, Error> {
        self.shared.session.check_process()?;
        self.end_writer();
        self.shared.session.stop(now_ns())
    }

    fn end_writer(&mut self) {
        self.shared.requests.pending.lock().is_over = true;
        self.shared.requests.changed.notify_all();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

impl Drop for FlightRecording {
    fn drop(&mut self) {
        // The thread is lost in a forked child.
        if self.shared.session.check_process().is_ok() {
            self.end_writer();
        }
    }
}

impl Shared {
    /// Writes the file of the next trigger. Returns false when the session ends.
    fn write_next(&self) -> bool {
        let Some(trigger) = self.requests.next() else { return false };
        let may = {
            let mut pending = self.requests.pending.lock();
            let quiet = self.settings.quiet;
            let is_soon = pending.last.get(&trigger).is_some_and(|last| last.elapsed() < quiet);
            let may =
                pending.count < self.settings.most_files && (trigger == Trigger::Panic || !is_soon);
            pending.left_out += u64::from(!may);
            may
        };
        if may {
            let written = self.write(trigger);
            let mut pending = self.requests.pending.lock();
            pending.last.insert(trigger, Instant::now());
            if let Err(error) = written {
                pending.left_out += 1;
                pending.last_error = Some(error);
            }
        }
        if trigger == Trigger::Panic {
            self.requests.pending.lock().panics += 1;
            self.requests.changed.notify_all();
        }
        true
    }

    fn write(&self, trigger: Trigger) -> Result<PathBuf, Error> {
        let recording = self.session.snapshot()?;
        let path = self.free_path(trigger);
        recording.save(&path)?;
        let mut pending = self.requests.pending.lock();
        pending.count += 1;
        if pending.files.len() == MOST_NAMES {
            pending.files.pop_front();
        }
        pending.files.push_back((path.clone(), trigger));
        Ok(path)
    }

    /// The path of the next file, which does not exist.
    fn free_path(&self, trigger: Trigger) -> PathBuf {
        let name = self.settings.name.clone();
        let name = name.unwrap_or_else(|| format!("incident-{}", std::process::id()));
        let mut number = self.last_number.lock();
        loop {
            *number += 1;
            let path = self.settings.folder.join(format!("{name}-{number}-{trigger}.gpuprof"));
            if path.symlink_metadata().is_err() {
                return path;
            }
        }
    }

    /// Requests the file from the writer thread, and waits for it. Runs in the panicking thread.
    fn wait_for_panic(&self) {
        let late = Instant::now() + PANIC_WAITS;
        let before = self.requests.pending.lock().panics;
        self.requests.add(Trigger::Panic);
        let mut pending = self.requests.pending.lock();
        while pending.panics == before && !pending.is_over {
            if self.requests.changed.wait_until(&mut pending, late).timed_out() {
                return;
            }
        }
    }
}
