//! Taking turns at the GPU: CUPTI serves one session at a time, and tests run beside each other.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

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
    /// Processes are kept apart by a lock on `gpu-profiler-tests.lock` in the folder for temporary files, whoever made it:
    /// that it can be read is enough. Where it can be neither read nor made, processes may meet, and the second to start a
    /// session is told that CUPTI is busy.
    pub fn wait() -> Self {
        let here = TURN.lock();
        {
            let mut held = here.borrow_mut();
            if held.depth == 0 {
                let path = std::env::temp_dir().join("gpu-profiler-tests.lock");
                held.file = locked(&path).ok();
            }
            held.depth += 1;
        }
        Self(here)
    }
}

/// The file with its lock; another user's can be read alone.
fn locked(path: &Path) -> io::Result<File> {
    let made = || OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let file = File::open(path).or_else(|_| made())?;
    loop {
        match file.lock() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            locked => return locked.map(|()| file),
        }
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

#[cfg(test)]
mod tests {
    use std::fs::TryLockError;

    use super::*;

    #[test]
    fn a_file_that_can_only_be_read_is_locked_and_kept_as_it_is() {
        let name = format!("turn-{}.lock", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "another's").unwrap();
        let mut permissions = std::fs::metadata(&path).unwrap().permissions();
        permissions.set_readonly(true);
        std::fs::set_permissions(&path, permissions).unwrap();
        let mut held = locked(&path).unwrap();
        // Not opened for writing, which root alone could do.
        assert!(io::Write::write(&mut held, b"x").is_err());
        let other = File::open(&path).unwrap();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(held);
        other.try_lock().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "another's");
        std::fs::remove_file(&path).unwrap();
        drop(locked(&path).unwrap());
        assert!(path.exists(), "it is made where there is none");
        std::fs::remove_file(&path).unwrap();
    }
}
