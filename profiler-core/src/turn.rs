//! Taking turns at the GPU: CUPTI serves one session at a time, and tests run beside each other.

use std::cell::RefCell;
use std::fs::File;

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};

/// The right to be the only one that measures, among the threads of this process and the processes of this machine. Ends
/// when dropped.
#[derive(Debug)]
#[must_use = "the turn ends when this is dropped"]
pub struct Turn(ReentrantMutexGuard<'static, RefCell<Held>>);

#[derive(Debug)]
struct Held {
    depth: u32,
    file: Option<File>,
}

static TURN: ReentrantMutex<RefCell<Held>> =
    ReentrantMutex::new(RefCell::new(Held { depth: 0, file: None }));

impl Turn {
    /// Waits until nobody else has it, for however long that is. A thread that has it already has it again at once.
    ///
    /// Processes are kept apart by a lock on `gpu-profiler-tests.lock` in the folder for temporary files. Where that
    /// file cannot be had, processes may meet, and the second to start a session is told that CUPTI is busy.
    pub fn wait() -> Self {
        let here = TURN.lock();
        {
            let mut held = here.borrow_mut();
            if held.depth == 0 {
                let path = std::env::temp_dir().join("gpu-profiler-tests.lock");
                held.file = File::create(path).and_then(|file| file.lock().map(|()| file)).ok();
            }
            held.depth += 1;
        }
        Self(here)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut held = self.0.borrow_mut();
        held.depth -= 1;
        if held.depth == 0 {
            held.file = None;
        }
    }
}
