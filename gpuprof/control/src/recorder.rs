//! A flight recorder as the recording of its process, in the injection library and in programs that
//! record themselves.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use profiler_core::session::{FileTotals, FlightRecording};

use crate::manifest::{Moment, Process, State};
use crate::socket::{Answer, Request, Server, Stopper};
use crate::{Error, RunFolder};

/// A session that retains the last part of a run. Its file is written on request and at the end of
/// the session.
#[derive(Debug)]
pub struct LastPart {
    recorder: FlightRecording,
    path: PathBuf,
    /// The totals of the file, once written.
    written: Mutex<Option<FileTotals>>,
}

/// The outcome of a recording.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ended {
    /// The path of the file.
    pub path: PathBuf,
    /// The totals of the file, or the error that prevented writing it.
    pub totals: Result<FileTotals, profiler_core::Error>,
    /// True if the process made no recorded call.
    pub is_empty: bool,
}

impl Ended {
    /// Creates the outcome. A recording is empty if neither it nor `calls_before` has calls.
    pub fn new(
        path: PathBuf,
        totals: Result<FileTotals, profiler_core::Error>,
        calls_before: u64,
    ) -> Self {
        let is_unused = |totals: &FileTotals| totals.operations == 0 && totals.calls == 0;
        let is_empty = calls_before == 0 && totals.as_ref().is_ok_and(is_unused);
        Self { path, totals, is_empty }
    }
}

impl LastPart {
    /// Creates a session that writes the retained part of `recorder` to `path`.
    pub fn new(recorder: FlightRecording, path: PathBuf) -> Self {
        Self { recorder, path, written: Mutex::default() }
    }

    /// The recorder.
    pub fn recorder(&self) -> &FlightRecording {
        &self.recorder
    }

    /// Rewrites the file with the part retained now.
    ///
    /// # Errors
    /// See [`FlightRecording::write_to`]; on failure the former file remains.
    pub fn write(&self) -> Result<(), profiler_core::Error> {
        // All callers write the same file, so only one may write at a time.
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        *written = Some(self.recorder.write_to(&self.path)?);
        Ok(())
    }

    /// The totals of the file; `None` before the first write.
    pub fn totals(&self) -> Option<FileTotals> {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies the counts of the file and of incidents into a manifest, and the reason why the last
    /// incident has no file.
    pub fn describe(&self, process: &mut Process) {
        let recorder = &self.recorder;
        let totals = self.totals();
        process.has_recording = totals.is_some();
        process.set_totals(&totals.unwrap_or_default());
        process.counts.incidents = recorder.files().len() as u64;
        process.counts.incidents_left_out = recorder.left_out();
        if let Some(error) = recorder.last_error() {
            process.set_state(process.state, Some(&error.to_string()));
        }
    }

    /// Ends the session and writes its last part to the file. Waits for the GPU.
    pub fn finish(self) -> Ended {
        let calls_before = self.recorder.calls();
        let totals = self.recorder.finish(&self.path);
        Ended::new(self.path, totals, calls_before)
    }
}

/// A flight recorder in a program that records itself, registered as a process of a run folder.
/// `gpuprof list`, `status`, `snapshot`, `on` and `off` reach it through the control socket of the
/// process.
///
/// ```no_run
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use gpuprof_control::ServedRecorder;
/// use profiler_core::Profiler;
/// use profiler_core::session::FlightRecorder;
///
/// # fn serve() {}
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let profiler = Profiler::builder().keep_last(Duration::from_secs(10)).build()?;
/// let settings = FlightRecorder::new("/var/tmp").slow("request", Duration::from_millis(200));
/// let recorder = profiler.flight_recorder(&settings)?;
/// let served = Arc::new(ServedRecorder::bind(recorder, "/var/tmp/service.gpurun".as_ref())?);
/// let of_thread = served.clone();
/// let thread = std::thread::spawn(move || of_thread.serve());
/// serve(); // meanwhile: gpuprof snapshot /var/tmp/service.gpurun
/// served.stopper().stop();
/// let _ = thread.join();
/// if let Some(served) = Arc::into_inner(served) {
///     served.finish()?; // the last part at the end of the run
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ServedRecorder {
    last: LastPart,
    folder: RunFolder,
    manifest: Mutex<Process>,
    server: Server,
}

impl ServedRecorder {
    /// Opens the control socket of this process and writes its manifest into this run folder.
    /// Creates the folder if it is missing. Several processes may share a folder.
    ///
    /// # Errors
    /// The folder cannot be written, the process already has a socket, or the system refuses a
    /// socket.
    pub fn bind(recorder: FlightRecording, run: &Path) -> Result<Self, Error> {
        fs::create_dir_all(run).map_err(|error| Error::io("create", run, error))?;
        let folder = RunFolder::open(run)?;
        let server = Server::bind()?;
        let mut process = Process::current()?;
        process.set_state(State::Recording, None);
        folder.claim(&mut process)?;
        let last = LastPart::new(recorder, folder.recording(&process));
        Ok(Self { last, folder, manifest: Mutex::new(process), server })
    }

    /// The recorder.
    pub fn recorder(&self) -> &FlightRecording {
        self.last.recorder()
    }

    /// Returns a handle that ends [`serve`](Self::serve).
    pub fn stopper(&self) -> Stopper {
        self.server.stopper()
    }

    /// Answers requests on the calling thread until a [`Stopper`] ends it.
    ///
    /// # Errors
    /// See [`Server::serve`].
    pub fn serve(&self) -> Result<(), Error> {
        self.server.serve(|request| self.answer(&request))
    }

    fn answer(&self, request: &Request) -> Result<Answer, String> {
        let mut process = self.manifest.lock().unwrap_or_else(PoisonError::into_inner);
        let before = process.state;
        let (recorder, mut state) = (self.last.recorder(), before);
        let done = match request {
            Request::Status => Ok(()),
            Request::On => recorder.resume().map(|()| state = State::Recording),
            Request::Off => recorder.pause().map(|()| state = State::Paused),
            Request::Snapshot => self.last.write(),
            Request::Mark { .. } => {
                return Err("the program records itself: its own marks are kept".to_owned());
            }
        };
        done.map_err(|error| error.to_string())?;
        process.set_state(state, None);
        self.last.describe(&mut process);
        let changed = state != before || *request == Request::Snapshot;
        if changed {
            self.folder.write_process(&process).map_err(|error| error.to_string())?;
        }
        let mut answer = Answer::new(process.clone(), self.folder.path().to_string_lossy());
        answer.changed = changed;
        Ok(answer)
    }

    /// Ends the session, closes the socket, and writes the last part and the manifest. Waits for
    /// the GPU.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn finish(self) -> Result<(), Error> {
        let mut process = self.manifest.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.last.describe(&mut process);
        let Ended { path, totals, .. } = self.last.finish();
        process.ended = Some(Moment::now());
        match totals {
            Ok(totals) => {
                process.has_recording = true;
                process.set_totals(&totals);
                process.set_state(State::Finished, None);
                self.folder.write_process(&process)
            }
            Err(error) => {
                process.set_state(State::Failed, Some(&error.to_string()));
                self.folder.write_process(&process)?;
                Err(Error::path(&path, error.to_string()))
            }
        }
    }
}
