//! A flight recorder as the recording of its process: in the injection library, and in programs that record themselves.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use profiler_core::session::{FileTotals, FlightRecording};

use crate::manifest::{Moment, Process, State};
use crate::socket::{Answer, Request, Server, Stopper};
use crate::{Error, RunFolder};

/// A session that keeps the last part of a run. Its file is written on request and at its end.
#[derive(Debug)]
pub struct LastPart {
    recorder: FlightRecording,
    path: PathBuf,
    /// What the file holds, once it was written.
    written: Mutex<Option<FileTotals>>,
}

/// What became of a recording.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ended {
    /// The file.
    pub path: PathBuf,
    /// What it holds, or why it could not be written.
    pub totals: Result<FileTotals, profiler_core::Error>,
    /// True if the process called nothing that is recorded.
    pub is_empty: bool,
}

impl Ended {
    /// A recording of a process that called nothing before it, or `calls_before`.
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
    /// Writes what `recorder` keeps to `path`.
    pub fn new(recorder: FlightRecording, path: PathBuf) -> Self {
        Self { recorder, path, written: Mutex::default() }
    }

    /// The recorder.
    pub fn recorder(&self) -> &FlightRecording {
        &self.recorder
    }

    /// Writes the file anew, with what is kept now.
    ///
    /// # Errors
    /// As for [`FlightRecording::write_to`]; the former file stays.
    pub fn write(&self) -> Result<(), profiler_core::Error> {
        // One at a time: all write the same file.
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        *written = Some(self.recorder.write_to(&self.path)?);
        Ok(())
    }

    /// What the file holds. `None` before it was written.
    pub fn totals(&self) -> Option<FileTotals> {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the counts of the file and of incidents into a manifest, and why the last incident has no file.
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

    /// Ends the session, with the last part at its end in the file. Waits for the GPU.
    pub fn finish(self) -> Ended {
        let calls_before = self.recorder.calls();
        let totals = self.recorder.finish(&self.path);
        Ended::new(self.path, totals, calls_before)
    }
}

/// A flight recorder of a program that records itself, as a process of a run folder: `gpuprof list`, `status`, `snapshot`, `on` and `off`
/// reach it through the control socket of the process.
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
    /// Opens the control socket of this process, and writes its manifest into this run folder, which is created if it is not there. Processes
    /// may share a folder.
    ///
    /// # Errors
    /// The folder cannot be written; the process has a socket, or the system refuses one.
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

    /// What ends [`serve`](Self::serve).
    pub fn stopper(&self) -> Stopper {
        self.server.stopper()
    }

    /// Answers requests on this thread until a [`Stopper`] ends it.
    ///
    /// # Errors
    /// As for [`Server::serve`].
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

    /// Ends the session, closes the socket, and writes the last part and the manifest. Waits for the GPU.
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
