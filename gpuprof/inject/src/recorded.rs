//! The session of the recording: everything in a growing file, or the last part in memory.

use std::time::Duration;

use gpuprof_control::manifest::Process;
use gpuprof_control::{Ended, LastPart};
use profiler_core::Error;
use profiler_core::session::RecordingFile;

pub(crate) enum Recorded {
    File(RecordingFile),
    Last(LastPart),
}

impl Recorded {
    /// Begins a window on a thread of the program, which waits at most this long for the library's
    /// threads. The last part has windows only by requests and times, on threads of the library.
    pub(crate) fn begin_window(&self, patience: Duration) -> Result<(), Error> {
        match self {
            Self::File(file) => file.begin_window(patience),
            Self::Last(last) => last.recorder().resume(),
        }
    }

    /// Ends the window without waiting. A call of `rest` or `turn_off` must follow.
    pub(crate) fn end_window(&self) {
        if let Self::File(file) = self {
            file.end_window();
        }
    }

    /// Turns CUPTI off after a window of the program if no other window has begun since. Waits for
    /// the GPU.
    pub(crate) fn rest(&self) -> Result<(), Error> {
        match self {
            Self::File(file) => file.rest(),
            // Windows of the last part end only with `turn_off`.
            Self::Last(_) => Ok(()),
        }
    }

    pub(crate) fn resume(&self) -> Result<(), Error> {
        match self {
            Self::File(file) => file.resume(),
            Self::Last(last) => last.recorder().resume(),
        }
    }

    /// Ends the window and writes everything that has completed to the file. Waits for the GPU.
    pub(crate) fn turn_off(&self) -> Result<(), Error> {
        match self {
            Self::File(file) => {
                file.pause()?;
                file.flush()
            }
            Self::Last(last) => last.recorder().pause(),
        }
    }

    /// Writes everything that has completed to the file.
    pub(crate) fn write(&self) -> Result<(), Error> {
        match self {
            Self::File(file) => file.flush(),
            Self::Last(last) => last.write(),
        }
    }

    /// The error because of which nothing is written any more.
    pub(crate) fn error(&self) -> Option<Error> {
        match self {
            Self::File(file) => file.error(),
            Self::Last(_) => None,
        }
    }

    /// Copies the totals of the file into a manifest.
    pub(crate) fn describe(&self, process: &mut Process) {
        match self {
            Self::File(file) => {
                process.has_recording = true;
                process.set_totals(&file.totals());
            }
            Self::Last(last) => last.describe(process),
        }
    }

    /// Ends the session and its file.
    pub(crate) fn finish(self) -> Ended {
        match self {
            Self::File(file) => {
                let path = file.path().to_owned();
                Ended::new(path, file.finish(), 0)
            }
            Self::Last(last) => last.finish(),
        }
    }
}
