//! The lock of GPU tests: CUPTI supports one session at a time, and tests run concurrently.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};
use profiler_base::text::shortened;

/// Exclusive use of the GPU among threads and the processes of this user, until dropped.
#[derive(Debug)]
#[must_use = "the turn ends when this is dropped"]
pub struct GpuLock(ReentrantMutexGuard<'static, RefCell<Held>>);

#[derive(Debug)]
struct Held {
    depth: u32,
    file: Option<File>,
}

static TURN: ReentrantMutex<RefCell<Held>> =
    ReentrantMutex::new(RefCell::new(Held { depth: 0, file: None }));

impl GpuLock {
    /// Waits without a limit for the lock, and writes its holder to standard error. A thread that
    /// holds the lock gets it again at once.
    ///
    /// Processes lock `gpu-profiler-tests-UID.lock` among temporary files; no other user can hold
    /// it.
    ///
    /// # Panics
    /// If the file cannot be opened or locked, or belongs to another user.
    #[track_caller]
    #[allow(clippy::panic)] // an assertion for tests, as documented
    pub fn wait() -> Self {
        let here = TURN.lock();
        let is_first = here.borrow().depth == 0;
        if is_first {
            match lock_file().and_then(|path| locked(&path)) {
                Ok(file) => here.borrow_mut().file = Some(file),
                Err(why) => panic!("cannot take the lock of GPU tests: {why}"),
            }
        }
        here.borrow_mut().depth += 1;
        Self(here)
    }
}

/// The user of this process.
fn user() -> io::Result<u32> {
    Ok(fs::metadata("/proc/self")?.uid())
}

fn lock_file() -> Result<PathBuf, String> {
    let user = user().map_err(|error| format!("the user is not known: /proc/self: {error}"))?;
    Ok(std::env::temp_dir().join(format!("gpu-profiler-tests-{user}.lock")))
}

/// Opens and locks the file, and writes this process's id into it for waiting processes.
fn locked(path: &Path) -> Result<File, String> {
    let failed = |error: &dyn std::fmt::Display| {
        let path = shortened(&path.display().to_string(), 500);
        format!("{path}: {error}; set TMPDIR to a folder of your own")
    };
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let mut file = open.map_err(|error| failed(&error))?;
    let owner = file.metadata().map_err(|error| failed(&error))?.uid();
    if user().ok() != Some(owner) {
        return Err(failed(&format!("it belongs to user {owner}")));
    }
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::Error(error)) => return Err(failed(&error)),
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Reading the holder and writing the message may fail; waiting still works.
            let _: io::Result<usize> = (&file).take(20).read_to_string(&mut holder);
            let holder = shortened(holder.trim(), 20);
            let path = shortened(&path.display().to_string(), 500);
            let _: io::Result<()> =
                writeln!(io::stderr(), "waiting for the GPU: process {holder} holds {path}");
            loop {
                match file.lock() {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    locked => break locked.map_err(|error| failed(&error))?,
                }
            }
        }
    }
    let number = std::process::id().to_string();
    let emptied = file.set_len(0).and_then(|()| io::Seek::rewind(&mut file));
    // A failure only shortens the message of waiting processes.
    let _: io::Result<()> = emptied.and_then(|()| file.write_all(number.as_bytes()));
    Ok(file)
}

impl Drop for GpuLock {
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
    use super::*;

    #[test]
    fn unavailable_lock_file_has_a_reason() {
        let missing = Path::new("/no/such/folder/x.lock");
        let why = locked(missing).unwrap_err();
        assert!(why.contains("/no/such/folder/x.lock: No such file"), "{why}");
        assert!(why.ends_with("set TMPDIR to a folder of your own"), "{why}");
        assert!(locked(Path::new("/proc")).unwrap_err().contains("/proc: "));
        // Without the right to change owners, a file of the system stands for another user's.
        let name = format!("turn-{}.lock", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, "").unwrap();
        match std::os::unix::fs::chown(&path, Some(65534), None) {
            Ok(()) => {
                let why = locked(&path).unwrap_err();
                assert!(why.contains("it belongs to user 65534"), "{why}");
            }
            Err(_) => {
                let why = locked(Path::new("/etc/passwd")).unwrap_err();
                assert!(why.contains("Permission denied"), "{why}");
            }
        }
        fs::remove_file(&path).unwrap();
    }
}
