//! Names of threads.

use crate::observer::{self, Named};
use crate::state;
use crate::sys::functions;
use crate::sys::types::Text;
use crate::text::with_c_str;

/// Names the thread with this id of the operating system (`gettid` on Linux), for tools and the
/// observer. The operating system's name of the thread is unchanged.
pub fn name_thread(thread: u32, name: &str) {
    if state::has_tool() {
        with_c_str(name, |name| functions::name_os_thread(thread, Text::new(name)));
    }
    observer::named(&Named::Thread(thread), name);
}

/// Names this thread. Does nothing except on Linux and Android, where the thread's id is available.
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

/// The operating system's id of this thread.
fn current_thread() -> Option<u32> {
    if !cfg!(any(target_os = "linux", target_os = "android")) {
        return None;
    }
    // The link contains `PID/task/TID`; the standard library has no call for the id.
    let link = std::fs::read_link("/proc/thread-self").ok()?;
    link.file_name()?.to_str()?.parse().ok()
}
