//! A session that is written to a file while it runs.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cupti::clock::now_ns;
use parking_lot::Mutex;
use profiler_base::kept::{Identity, KeptFile};
use profiler_base::replace::{Replacement, Target};

use crate::collect::file_sink::{FileQueue, FileSink};
use crate::collect::request::Sink;
use crate::collect::session::Session;
use crate::error::Error;

/// The maximum time that `flush` and `finish` wait for the disk.
const DISK_WAIT: Duration = Duration::from_secs(10);

/// A session that is appended to a file while it runs, from
/// [`Profiler::record_to`](crate::Profiler::record_to).
///
/// Dropping it abandons the session: the file stays readable, as a [truncated
/// recording](crate::Recording::is_truncated) that ends with the last period. In a process forked
/// off since the start, all methods fail and dropping it does nothing: the file belongs to the
/// parent.
///
/// Any thread may call its methods.
#[derive(Debug)]
#[must_use = "the session ends when this is dropped, and its file is a truncated recording"]
pub struct RecordingFile {
    session: Session,
    sink: Arc<Mutex<FileSink>>,
    queue: Arc<FileQueue>,
    path: PathBuf,
    /// The file at `path` when the session began.
    identity: Identity,
    /// The bytes of its first frames.
    opening: u64,
}

/// The contents of a [`RecordingFile`] so far, or at its end, or of a file of a
/// [`FlightRecording`](super::FlightRecording).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FileTotals {
    /// Kernels, copies and memsets.
    pub operations: u64,
    /// Calls of the driver, and of the runtime if they are logged.
    pub calls: u64,
    /// Ended ranges of threads.
    pub ranges: u64,
    /// Records, calls, ranges and marks that were lost because the disk was slower than the program
    /// or failed, or the file had its [largest size](crate::ProfilerBuilder::max_file_bytes).
    pub unwritten_entries: u64,
    /// Bytes in the file.
    pub bytes: u64,
    /// True if the file has its largest size: nothing more is appended.
    pub is_full: bool,
}

impl RecordingFile {
    /// Creates the file and starts its session.
    pub(crate) fn start(
        path: &Path,
        max_bytes: u64,
        start: impl FnOnce(Arc<Mutex<dyn Sink>>) -> Result<Session, Error>,
    ) -> Result<Self, Error> {
        let failed = |source: io::Error| Error::io("write", path, source);
        let new = match Target::from_path(path).map_err(failed)? {
            Target::File(to) => Replacement::begin(to).map_err(failed)?,
            Target::Stream(_) => {
                let why = "it is a pipe, a device or a socket: name a file";
                return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, why)));
            }
        };
        let queue = Arc::new(FileQueue::default());
        let sink = Arc::new(Mutex::new(FileSink::new(queue.clone(), max_bytes)));
        let session = start(sink.clone())?;
        let opening = sink.lock().take_opening();
        // An existing file is replaced by one that is readable from its first moment.
        new.file().write_all(&opening).map_err(failed)?;
        let length = opening.len() as u64;
        let (path, file) = new.commit_open().map_err(failed)?;
        let failed = |source: io::Error| Error::io("write", &path, source);
        let file = KeptFile::new(file, path.clone()).map_err(failed)?;
        let identity = file.identity();
        queue.write_to(file, length).map_err(failed)?;
        Ok(Self { session, sink, queue, path, identity, opening: length })
    }

    /// The path of the file; for a link, the path of its target.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Like [`Profiler::pause`](crate::Profiler::pause). Ranges that end within 10 s after a pause
    /// began are still written. Later ones are written only if they are open at the next resume, so
    /// a paused session does not grow its file. While another session of the process is on, its
    /// calls are written.
    ///
    /// # Errors
    /// CUPTI's refusal to flush; the session is paused nevertheless.
    pub fn pause(&self) -> Result<(), Error> {
        self.session.pause()
    }

    /// Same as [`Profiler::resume`](crate::Profiler::resume).
    ///
    /// # Errors
    /// CUPTI's refusal; the session remains paused.
    pub fn resume(&self) -> Result<(), Error> {
        self.session.resume()
    }

    /// Begins a window now, like [`resume`](Self::resume), for threads of the program. If CUPTI is
    /// still on since the last window, it only records the time of the window, without a wait.
    /// Otherwise it waits for the profiler's own threads up to `patience`, and turns CUPTI on.
    ///
    /// # Errors
    /// CUPTI's refusal; the profiler's threads were busy for `patience`. The window then begins
    /// with the next [`resume`](Self::resume).
    pub fn begin_window(&self, patience: Duration) -> Result<(), Error> {
        self.session.begin_window(patience)
    }

    /// Ends the window now, without a wait. CUPTI stays on, and launches cost as much as before,
    /// until [`rest`](Self::rest) or [`pause`](Self::pause).
    pub fn end_window(&self) {
        self.session.end_window();
    }

    /// Turns CUPTI off after a wait for the GPU, unless a window has begun. Does nothing if it is
    /// off.
    ///
    /// # Errors
    /// Same as [`pause`](Self::pause).
    pub fn rest(&self) -> Result<(), Error> {
        self.session.rest()
    }

    /// True between a pause and the next resume, and after a [paused
    /// start](cupti::Config::start_paused).
    pub fn is_paused(&self) -> bool {
        self.session.is_paused()
    }

    /// Writes everything that has finished by now, and waits until the file contains it. The file
    /// then has this data even if the process is killed later.
    ///
    /// Waits up to 10 s for CUPTI and twice as long for the disk, not for the GPU. The operating
    /// system then has the content: it survives the end of the process, but not a loss of power.
    ///
    /// # Errors
    /// CUPTI's refusal; the disk is full, fails or takes too long.
    pub fn flush(&self) -> Result<(), Error> {
        self.session.check_process()?;
        self.wait()?;
        self.sink.lock().require_states(true);
        let taken = self.session.catch_up();
        self.sink.lock().require_states(false);
        taken?;
        self.wait()
    }

    /// The contents of the file so far; zeros in a forked child.
    pub fn totals(&self) -> FileTotals {
        if self.session.check_process().is_err() {
            return FileTotals::default();
        }
        let held = self.sink.lock().contents();
        FileTotals {
            operations: held.operations,
            calls: held.calls,
            ranges: held.ranges,
            unwritten_entries: held.unwritten,
            bytes: held.bytes.max(self.opening),
            is_full: held.is_full,
        }
    }

    /// The error that ended writing, if it has failed. The file has the data written before.
    pub fn error(&self) -> Option<Error> {
        self.session.check_process().ok()?;
        self.queue.error().map(|source| Error::io("write", &self.path, source))
    }

    /// Stops the session and completes the file. Waits for the GPU as
    /// [`Profiler::stop`](crate::Profiler::stop) does, and up to 10 s for the disk.
    ///
    /// A file at its largest size is completed too: [`FileTotals::is_full`] is true, and
    /// [`Losses::unwritten_entries`](crate::profile::Losses::unwritten_entries) counts the missing entries.
    ///
    /// # Errors
    /// CUPTI's refusal; the disk was full, failed or took too long; the file was removed or
    /// replaced. The data written before is a truncated recording.
    pub fn finish(self) -> Result<FileTotals, Error> {
        let recording = self.session.stop(now_ns())?;
        self.sink.lock().finish(&recording);
        self.queue.close();
        self.wait()?;
        if !Identity::from_path(&self.path).is_ok_and(|identity| identity == self.identity) {
            let why = "it was removed or replaced while the session ran";
            let error = io::Error::new(io::ErrorKind::NotFound, why);
            return Err(Error::io("write", &self.path, error));
        }
        Ok(self.totals())
    }

    fn wait(&self) -> Result<(), Error> {
        self.queue.wait(DISK_WAIT).map_err(|source| Error::io("write", &self.path, source))
    }
}

impl Drop for RecordingFile {
    fn drop(&mut self) {
        // In a forked child a lost thread may hold the lock.
        if self.session.check_process().is_ok() {
            self.queue.close();
        }
    }
}
