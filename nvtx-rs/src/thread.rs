//! Names of threads.

use crate::observer::{self, Named};
use crate::state;
use crate::sys::functions;
use crate::sys::types::Text;
use crate::text::with_c_str;

/// Names the thread with the system's number `thread`, which on Linux is what `gettid` gives.
///
/// It is for tools and the observer; the system's own name of the thread stays.
pub fn name_thread(thread: u32, name: &str) {
    if state::has_tool() {
        with_c_str(name, |name| functions::name_os_thread(thread, Text::new(name)));
    }
    observer::named(&Named::Thread(thread), name);
}

/// Names this thread. Where the system's number of a thread can't be had, which is so everywhere but on
/// Linux and Android, it does nothing.
///
/// ```
/// std::thread::spawn(|| nvtx::name_current_thread("loader"));
/// ```
pub fn name_current_thread(name: &str) {
    if state::is_idle() || state::current() == 0 {
        return;
    }
    if let Some(thread) = current_thread() {
        name_thread(thread, name);
    }
}

/// The system's number of this thread.
fn current_thread() -> Option<u32> {
    if !cfg!(any(target_os = "linux", target_os = "android")) {
        return None;
    }
    // The link says `PID/task/TID`; no call of the standard library gives the number.
    let link = std::fs::read_link("/proc/thread-self").ok()?;
    link.file_name()?.to_str()?.parse().ok()
}
