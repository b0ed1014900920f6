//! The session of the recording: everything in a file that grows, or the last part in memory.

use std::path::PathBuf;
use std::time::Duration;

use parking_lot::Mutex;
use profiler_core::Error;
use profiler_core::session::{FileTotals, FlightRecording, RecordingFile};

pub(crate) enum Recorded {
    File(RecordingFile),
    Last(LastPart),
}

/// A session that keeps the last part, and writes it on request and at its end.
pub(crate) struct LastPart {
    recorder: FlightRecording,
    path: PathBuf,
    /// What the file holds, once it was written.
    written: Mutex<Option<FileTotals>>,
}

/// What became of a recording.
pub(crate) struct Ended {
    pub(crate) path: PathBuf,
    pub(crate) totals: Result<FileTotals, Error>,
    /// The process called nothing that is recorded.
    pub(crate) is_empty: bool,
}

impl Recorded {
    pub(crate) fn last(recorder: FlightRecording, path: PathBuf) -> Self {
        Self::Last(LastPart { recorder, path, written: Mutex::default() })
    }

    /// Begins a window on a thread of the program, which waits at most this long for threads of the library. The last part has windows by
    /// requests and times alone, on threads of the library.
    pub(crate) fn begin_window(&self, patience: Duration) -> Result<(), Error> {
        match self {
            Self::File(file) => file.begin_window(patience),
            Self::Last(last) => last.recorder.resume(),
        }
    }

    /// Ends the window, without a wait. `rest` or `turn_off` follows.
    pub(crate) fn end_window(&self) {
        if let Self::File(file) = self {
            file.end_window();
        }
    }

    /// Turns CUPTI off after a window of the program, if no other has begun since. Waits for the GPU.
    pub(crate) fn rest(&self) -> Result<(), Error> {
        match self {
            Self::File(file) => file.rest(),
            // Its windows end by `turn_off` alone.
            Self::Last(_) => Ok(()),
        }
    }

    pub(crate) fn resume(&self) -> Result<(), Error> {
        match self {
            Self::File(file) => file.resume(),
            Self::Last(last) => last.recorder.resume(),
        }
    }

    /// Ends the window, with what has finished in the file. Waits for the GPU.
    pub(crate) fn turn_off(&self) -> Result<(), Error> {
        match self {
            Self::File(file) => {
                file.pause()?;
                file.flush()
            }
            Self::Last(last) => last.recorder.pause(),
        }
    }

    /// Writes what has finished to the file.
    pub(crate) fn write(&self) -> Result<(), Error> {
        match self {
            Self::File(file) => file.flush(),
            Self::Last(last) => {
                // One at a time: both write the same file.
                let mut written = last.written.lock();
                *written = Some(last.recorder.write_to(&last.path)?);
                Ok(())
            }
        }
    }

    /// What the file holds. `None` while there is none.
    pub(crate) fn totals(&self) -> Option<FileTotals> {
        match self {
            Self::File(file) => Some(file.totals()),
            Self::Last(last) => *last.written.lock(),
        }
    }

    /// Why nothing is written any more.
    pub(crate) fn error(&self) -> Option<Error> {
        match self {
            Self::File(file) => file.error(),
            Self::Last(_) => None,
        }
    }

    /// The files of triggers, the triggers without one, and why the last one has none.
    pub(crate) fn incidents(&self) -> (u64, u64, Option<Error>) {
        match self {
            Self::File(_) => (0, 0, None),
            Self::Last(LastPart { recorder, .. }) => {
                (recorder.files().len() as u64, recorder.left_out(), recorder.last_error())
            }
        }
    }

    /// Ends the session and its file.
    pub(crate) fn finish(self) -> Ended {
        let is_unused = |totals: &FileTotals| totals.operations == 0 && totals.calls == 0;
        match self {
            Self::File(file) => {
                let path = file.path().to_owned();
                let totals = file.finish();
                let is_empty = totals.as_ref().is_ok_and(is_unused);
                Ended { path, totals, is_empty }
            }
            Self::Last(LastPart { recorder, path, .. }) => {
                let calls_before = recorder.calls();
                let totals = recorder.finish(&path);
                let is_empty = calls_before == 0 && totals.as_ref().is_ok_and(is_unused);
                Ended { path, totals, is_empty }
            }
        }
    }
}
