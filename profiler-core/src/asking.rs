//! Who asks CUPTI for records of buffers that are not full, and when.
//!
//! A flush of CUPTI 13.0 takes longer and longer, and under load it may not return before the load is over: it first hands
//! over what comes meanwhile. So a thread of its own is in it, for which whoever takes records out waits as long as he likes.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cupti::clock::now_ns;
use parking_lot::{Condvar, Mutex};

/// Of so many parts of the time the answers may take one.
const PARTS: u64 = 10;
/// Bytes of records in a part, as many as a buffer has by default, from which on CUPTI hands over enough by itself.
const ENOUGH: u64 = 1 << 20;
/// How long it is left to that. A call whose record does not come is given up after a minute.
const LONGEST_NS: u64 = 10_000_000_000;

/// The thread that asks. Dropping it waits for the answer that is under way.
#[derive(Debug)]
pub(crate) struct Asker {
    asking: Arc<Asking>,
    thread: Option<JoinHandle<()>>,
    process_id: u32,
}

/// What is asked, for those who wait for the answer.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    pace: Pace,
    is_asked: bool,
    answers: u64,
    ended: bool,
}

/// When it is time to ask again.
#[derive(Debug, Default)]
struct Pace {
    answered_ns: u64,
    took_ns: u64,
}

impl Pace {
    fn is_due(&self, now_ns: u64, came: u64) -> bool {
        let least_ns = if came >= ENOUGH { LONGEST_NS } else { 0 };
        let since_ns = now_ns.saturating_sub(self.answered_ns);
        since_ns >= self.took_ns.saturating_mul(PARTS).max(least_ns)
    }

    fn answered(&mut self, asked_ns: u64, now_ns: u64) {
        (self.answered_ns, self.took_ns) = (now_ns, now_ns.saturating_sub(asked_ns));
    }
}

impl Asker {
    /// `ask` is what the thread does when it is asked to. `None` if there can be no thread.
    pub(crate) fn start(ask: impl Fn() + Send + 'static) -> Option<Self> {
        let asking = Arc::new(Asking::default());
        let shared = asking.clone();
        let work = move || {
            let mut state = shared.state.lock();
            while !state.ended {
                if !state.is_asked {
                    shared.changed.wait(&mut state);
                    continue;
                }
                drop(state);
                let asked_ns = now_ns();
                ask();
                state = shared.state.lock();
                state.pace.answered(asked_ns, now_ns());
                (state.is_asked, state.answers) = (false, state.answers + 1);
                shared.changed.notify_all();
            }
        };
        let thread = std::thread::Builder::new().name("gpu-profiler-ask".to_owned()).spawn(work);
        Some(Self { asking, thread: Some(thread.ok()?), process_id: std::process::id() })
    }

    /// Asks if it is time to, or an answer is under way; then there is something to wait for. `came` are the bytes of
    /// records that came last.
    pub(crate) fn ask(&self, came: u64) -> Option<Arc<Asking>> {
        let mut state = self.asking.state.lock();
        if !state.is_asked && !state.pace.is_due(now_ns(), came) {
            return None;
        }
        state.is_asked = true;
        self.asking.changed.notify_all();
        Some(self.asking.clone())
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        // A forked child does not have the thread, and may have its lock.
        if std::process::id() != self.process_id {
            std::mem::forget(self.thread.take());
            return;
        }
        self.asking.state.lock().ended = true;
        self.asking.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // What it does is CUPTI's; a panic in it has been told where it happened.
            let _ = thread.join();
        }
    }
}

impl Asking {
    /// Waits for the next answer, but not for longer than that.
    pub(crate) fn wait(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        let answers = state.answers;
        while state.is_asked && !state.ended && state.answers == answers {
            if self.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn it_asks_for_a_part_of_the_time_and_seldom_under_load() {
        let mut pace = Pace::default();
        assert!(pace.is_due(1, 0));
        pace.answered(1_000, 4_000);
        assert!(!pace.is_due(33_999, 0) && pace.is_due(34_000, 0));
        assert!(!pace.is_due(34_000, ENOUGH) && pace.is_due(4_000 + LONGEST_NS, ENOUGH));
        pace.answered(0, 2 * LONGEST_NS);
        assert!(!pace.is_due(21 * LONGEST_NS, 0) && pace.is_due(22 * LONGEST_NS, 0));
    }

    #[test]
    fn nobody_waits_longer_than_he_likes() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let asker = Asker::start(|| {
            std::thread::sleep(Duration::from_millis(300));
            ASKED.fetch_add(1, Ordering::Relaxed);
        });
        let asker = asker.unwrap();
        let begun = Instant::now();
        asker.ask(0).unwrap().wait(Duration::from_millis(10));
        asker.ask(0).unwrap().wait(Duration::from_millis(10));
        assert!(begun.elapsed() < Duration::from_millis(290) && ASKED.load(Ordering::Relaxed) == 0);
        asker.ask(0).unwrap().wait(Duration::from_secs(60));
        assert_eq!(ASKED.load(Ordering::Relaxed), 1, "one answer for all who asked meanwhile");
        assert!(asker.ask(0).is_none(), "it took long");
        drop(asker);
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_forked_child_does_not_wait_for_a_thread_that_it_does_not_have() {
        let mut asker = Asker::start(|| std::thread::sleep(Duration::from_secs(5))).unwrap();
        assert!(asker.ask(0).is_some());
        asker.process_id = 0;
        let begun = Instant::now();
        drop(asker);
        assert!(begun.elapsed() < Duration::from_secs(4));
    }
}
