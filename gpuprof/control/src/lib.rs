//! The interface between the program `gpuprof` and the processes that it profiles: [options in
//! environment variables](Options), the [manifests](manifest) of a [run folder](RunFolder), and the
//! control [socket] of a live process. A flight recorder behind that socket is also available to
//! [programs that record themselves](ServedRecorder).
//!
//! This crate starts no thread, installs no signal handler and prints nothing. No file contains
//! environment variables, user names, host names or absolute paths.
#![forbid(unsafe_code)]

mod error;
pub mod manifest;
mod modes;
mod options;
mod process;
mod recorder;
mod run_folder;
pub mod socket;
mod start_stop;

pub use error::Error;
pub use modes::{AlwaysOn, Budget, KeepLast, Triggers};
pub use options::{HostSamples, Lines, OPTIONS_VARIABLE, Options, RUN_VARIABLE};
pub use process::ProcessId;
pub use recorder::{Ended, LastPart, ServedRecorder};
pub use run_folder::{Processes, RunFolder};
pub use start_stop::{Start, Stop};
