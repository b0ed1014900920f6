//! Background threads without signals: the program's handlers run on the program's own threads.
//!
//! A handler that runs on a thread of the profiler would not find the thread state that it expects.
//! A write beyond `RLIMIT_FSIZE` raises `SIGXFSZ`, which ends the program: blocked, the write is an
//! error.

use std::io;
use std::thread::{Builder, JoinHandle};

use crate::sys::os;

/// Spawns a thread in which every signal is blocked. The calling thread's mask is unchanged
/// afterwards.
///
/// # Errors
/// The system's refusal to create a thread.
pub fn spawn<R: Send + 'static>(
    builder: Builder,
    name: &str,
    work: impl FnOnce() -> R + Send + 'static,
) -> io::Result<JoinHandle<R>> {
    // A new thread inherits the mask of its creator: other signals are never unblocked in it.
    os::with_signals_blocked(|| builder.name(name.to_owned()).spawn(work))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The blocked signals of the calling thread, a bit for each.
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    }

    #[test]
    fn thread_blocks_all_signals_and_its_creator_does_not() {
        let before = blocked();
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = spawn(Builder::new(), "quiet", move || {
            let name = std::thread::current().name().map(str::to_owned);
            sender.send((name, blocked())).unwrap();
        });
        let (name, mask) = receiver.recv().unwrap();
        thread.unwrap().join().unwrap();
        assert_eq!((name.as_deref(), blocked()), (Some("quiet"), before));
        // SIGXFSZ, SIGTERM, SIGPROF and SIGUSR1; the kernel blocks neither SIGKILL nor SIGSTOP.
        for signal in [25, 15, 27, 10] {
            assert_eq!(mask >> (signal - 1) & 1, 1, "{signal}");
        }
        assert_eq!(mask >> 8 & 1, 0);
    }
}
