//! The life of the library in its process: it begins when CUDA is initialised, and ends when the process does, when a program
//! records itself, or in a forked child.

use std::env;
use std::panic;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Once, OnceLock};

use parking_lot::Mutex;
use profiler_core::session::RecordingFile;
use profiler_core::{Error, Profiler};

use crate::sys::process;
use crate::{annotations, mode};

static BEGAN: AtomicBool = AtomicBool::new(false);
static OWNER: AtomicU32 = AtomicU32::new(0);
static FILE: Mutex<Option<RecordingFile>> = Mutex::new(None);

/// The run folder, if the process may be observed.
fn folder() -> Option<&'static PathBuf> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        if process::is_privileged() {
            return None;
        }
        env::var_os("GPUPROF_RUN").map(PathBuf::from).filter(|folder| folder.is_absolute())
    };
    FOLDER.get_or_init(find).as_ref()
}

static FOR_TESTS: AtomicBool = AtomicBool::new(false);

pub(crate) fn observe_for_tests() {
    FOR_TESTS.store(true, Ordering::Relaxed);
    mode::turn_on(false);
}

/// Whether events are of use: the process may be observed, and its recording has not ended.
pub(crate) fn may_observe() -> bool {
    if FOR_TESTS.load(Ordering::Relaxed) {
        return true;
    }
    if folder().is_none() || mode::Mode::load().is_off() {
        return false;
    }
    prepare();
    true
}

fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // A panic of this library is counted and goes nowhere: neither does its message.
        panic::set_hook(Box::new(|_| {}));
        process::prepare();
    });
}

/// Begins the recording, once.
pub(crate) fn begin() {
    if !may_observe() || BEGAN.swap(true, Ordering::AcqRel) {
        return;
    }
    OWNER.store(std::process::id(), Ordering::Relaxed);
    let Some(folder) = folder() else { return };
    match cupti::__private::with_signals_blocked(|| record(folder)) {
        Ok(file) => *FILE.lock() = Some(file),
        Err(error) => {
            mode::turn_off();
            let _ = std::fs::write(
                folder.join(format!("process-{}.error", std::process::id())),
                error.to_string(),
            );
            return;
        }
    }
    mode::turn_on(false);
    annotations::start_waiting();
    process::end_at_exit();
}

fn record(folder: &std::path::Path) -> Result<RecordingFile, Error> {
    let library = cupti::Library::open_within_initialisation()?;
    let profiler = Profiler::builder().library(library).build()?;
    profiler.record_to(folder.join(format!("process-{}.gpuprof", std::process::id())))
}

/// In a forked child: the parent's recording is not its own. Only stores to atomics.
pub(crate) fn forked() {
    if BEGAN.load(Ordering::Relaxed) {
        mode::turn_off();
    }
}

/// At the end of the process.
pub(crate) fn exit() {
    if OWNER.load(Ordering::Relaxed) == std::process::id() {
        finish();
    }
}

fn finish() -> bool {
    mode::turn_off();
    let file = FILE.lock().take();
    file.map(RecordingFile::finish);
    true
}

/// Ends the recording for a program that records itself.
pub(crate) fn yield_to_program() -> bool {
    finish()
}
