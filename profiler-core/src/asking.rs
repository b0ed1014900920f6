//! Who asks CUPTI for records of buffers that are not full, and when.
//!
//! A flush of CUPTI 13.0 takes longer and longer, and under load it may not return before the load is over: it first hands
//! over what comes meanwhile. So a thread of its own is in it, for which whoever takes records out waits as long as he likes.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cupti::clock::now_ns;
use parking_lot::{Condvar, Mutex};

use crate::background::Background;

/// Of so many parts of the time the answers may take one,
const PARTS: u64 = 10;
/// but however slow they are, it is asked again after such a time: a call whose record does not come is given up after a
/// minute and more.
const LATEST_NS: u64 = 20_000_000_000;
/// Bytes of records in a tenth of a second, as many as a buffer has by default, from which on CUPTI hands over enough by
/// itself: it is asked for what does not come so,
const ENOUGH: u64 = 1 << 20;
/// once something is waited for so long.
const LONGEST_NS: u64 = 10_000_000_000;

/// The thread that asks. Dropping it waits for the answer that is under way.
#[derive(Debug)]
pub(crate) struct Asker {
    asking: Arc<Asking>,
    thread: Option<JoinHandle<()>>,
    process_id: u32,
}

/// An answer that was asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    asking: Arc<Asking>,
    /// Which one.
    answer: u64,
}

#[derive(Debug, Default)]
struct Asking {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    pace: Pace,
    /// Answers so far, and how many are asked for.
    answers: u64,
    asked: u64,
    /// The next one is under way.
    is_asking: bool,
    /// The last refusal, and which answer it was.
    refused: Option<(u64, cupti::Error)>,
    ended: bool,
}

/// When it is time to ask again.
#[derive(Debug, Default)]
struct Pace {
    answered_ns: u64,
    took_ns: u64,
}

/// What speaks for asking.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Need {
    /// Bytes of records that came last, in a tenth of a second.
    pub(crate) came: u64,
    /// Since when what lacks its records longest does.
    pub(crate) waits_since_ns: Option<u64>,
}

impl Pace {
    fn is_due(&self, now_ns: u64, need: Need) -> bool {
        let is_loaded = need.came >= ENOUGH;
        let is_long = |ns: u64| now_ns.saturating_sub(ns) >= LONGEST_NS;
        if is_loaded && !need.waits_since_ns.is_some_and(is_long) {
            return false;
        }
        let least_ns = if is_loaded { LONGEST_NS } else { 0 };
        let since_ns = now_ns.saturating_sub(self.answered_ns);
        since_ns >= self.took_ns.saturating_mul(PARTS).min(LATEST_NS).max(least_ns)
    }

    fn answered(&mut self, asked_ns: u64, now_ns: u64) {
        (self.answered_ns, self.took_ns) = (now_ns, now_ns.saturating_sub(asked_ns));
    }
}

impl Asker {
    /// `ask` is what the thread does when it is asked to. `None` if there can be no thread.
    pub(crate) fn start(
        background: &Background,
        ask: impl Fn() -> Result<(), cupti::Error> + Send + 'static,
    ) -> Option<Self> {
        let asking = Arc::new(Asking::default());
        let (shared, caught) = (asking.clone(), background.clone());
        let work = move || {
            let mut state = shared.state.lock();
            while !state.ended {
                if state.asked <= state.answers {
                    shared.changed.wait(&mut state);
                    continue;
                }
                state.is_asking = true;
                drop(state);
                let asked_ns = now_ns();
                let answer = caught.catch(&ask).unwrap_or(Ok(()));
                state = shared.state.lock();
                state.pace.answered(asked_ns, now_ns());
                state.is_asking = false;
                state.answers += 1;
                if let Err(error) = answer {
                    state.refused = Some((state.answers, error));
                }
                shared.changed.notify_all();
            }
        };
        let thread = background.spawn("gpu-profiler-ask", work).ok()?;
        Some(Self { asking, thread: Some(thread), process_id: std::process::id() })
    }

    /// Asks if it is time to, or an answer is under way; then there is something to wait for.
    pub(crate) fn ask(&self, need: Need) -> Option<Asked> {
        let mut state = self.asking.state.lock();
        if state.asked <= state.answers && !state.pace.is_due(now_ns(), need) {
            return None;
        }
        let answer = state.answers + 1;
        Some(self.asked(&mut state, answer))
    }

    /// Asks for all that is complete by now: an answer that is under way may be of less.
    pub(crate) fn ask_now(&self) -> Asked {
        let mut state = self.asking.state.lock();
        let answer = state.answers + 1 + u64::from(state.is_asking);
        self.asked(&mut state, answer)
    }

    fn asked(&self, state: &mut State, answer: u64) -> Asked {
        state.asked = state.asked.max(answer);
        self.asking.changed.notify_all();
        Asked { asking: self.asking.clone(), answer }
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
            // A panic in it was counted.
            let _ = thread.join();
        }
    }
}

impl Asked {
    /// Waits for the answer, but not for longer than that.
    ///
    /// # Errors
    /// It is a refusal.
    pub(crate) fn wait(&self, time: Duration) -> Result<(), cupti::Error> {
        // `None` is later than any time.
        let until = Instant::now().checked_add(time);
        let changed = &self.asking.changed;
        let mut state = self.asking.state.lock();
        while state.answers < self.answer && !state.ended {
            match until {
                Some(until) if changed.wait_until(&mut state, until).timed_out() => break,
                Some(_) => {}
                None => changed.wait(&mut state),
            }
        }
        match &state.refused {
            Some((answer, error)) if *answer == self.answer => Err(error.clone()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// One that gives an answer for each word that it gets, and the receiver of what it begins.
    fn gated() -> (Asker, mpsc::Sender<()>, mpsc::Receiver<()>) {
        let (open, gate) = mpsc::channel();
        let (begins, begun) = mpsc::channel();
        let ask = move || {
            let _ = begins.send(());
            let _ = gate.recv();
            Ok(())
        };
        (Asker::start(&Background::default(), ask).unwrap(), open, begun)
    }

    #[test]
    fn it_asks_for_a_part_of_the_time_and_seldom_under_load() {
        let mut pace = Pace::default();
        let calm = Need::default();
        let loaded = Need { came: ENOUGH, waits_since_ns: Some(3_000) };
        assert!(pace.is_due(1, calm));
        pace.answered(1_000, 4_000);
        assert!(!pace.is_due(33_999, calm) && pace.is_due(34_000, calm));
        let asked_ns = 4_000 + LONGEST_NS;
        assert!(!pace.is_due(asked_ns - 1, loaded) && pace.is_due(asked_ns, loaded));
        let all_came = Need { waits_since_ns: None, ..loaded };
        let young = Need { waits_since_ns: Some(4_001), ..loaded };
        assert!(!pace.is_due(100 * LONGEST_NS, all_came) && !pace.is_due(asked_ns, young));
        pace.answered(0, 2 * LONGEST_NS);
        let latest_ns = 2 * LONGEST_NS + LATEST_NS;
        assert!(!pace.is_due(latest_ns - 1, calm) && pace.is_due(latest_ns, calm));
        assert!(!pace.is_due(latest_ns - 1, loaded) && pace.is_due(latest_ns, loaded));
    }

    #[test]
    fn nobody_waits_longer_than_he_likes() {
        let (asker, open, begun) = gated();
        let short = Duration::from_millis(10);
        asker.ask(Need::default()).unwrap().wait(short).unwrap();
        asker.ask(Need::default()).unwrap().wait(short).unwrap();
        begun.recv().unwrap();
        let answer = asker.ask(Need::default()).unwrap();
        open.send(()).unwrap();
        answer.wait(LONG).unwrap();
        assert_eq!(asker.asking.state.lock().answers, 1, "one for all who asked meanwhile");
        assert!(
            asker.ask(Need { came: ENOUGH, waits_since_ns: Some(0) }).is_none(),
            "there was one just now"
        );
        assert!(begun.try_recv().is_err());
    }

    #[test]
    fn there_may_be_no_limit_to_a_wait() {
        let (asker, open, _begun) = gated();
        open.send(()).unwrap();
        asker.ask_now().wait(Duration::MAX).unwrap();
        assert_eq!(asker.asking.state.lock().answers, 1);
    }

    #[test]
    fn an_answer_of_now_begins_now() {
        let (asker, open, begun) = gated();
        let first = asker.ask_now();
        begun.recv().unwrap();
        let second = asker.ask_now();
        assert_eq!((first.answer, second.answer, asker.ask_now().answer), (1, 2, 2));
        open.send(()).unwrap();
        first.wait(LONG).unwrap();
        begun.recv().unwrap();
        assert_eq!(asker.asking.state.lock().answers, 1);
        open.send(()).unwrap();
        second.wait(LONG).unwrap();
        assert_eq!(asker.asking.state.lock().answers, 2);
    }

    #[test]
    fn a_refusal_is_told_to_who_waited_for_it() {
        let refusal = || cupti::counters::CounterData::from_bytes(&[]).map(drop);
        let asker = Asker::start(&Background::default(), refusal).unwrap();
        assert!(asker.ask_now().wait(LONG).is_err());
    }

    #[test]
    fn flush_that_panics_is_counted_and_the_next_one_runs() {
        let (background, first) = (Background::default(), std::sync::Once::new());
        let ask = move || {
            first.call_once(|| panic!("planted"));
            Ok(())
        };
        let asker = Asker::start(&background, ask).unwrap();
        asker.ask_now().wait(LONG).unwrap();
        assert_eq!(background.take_failures(), 1);
        // The `Once` is poisoned: each further call panics, too.
        asker.ask_now().wait(LONG).unwrap();
        assert_eq!((asker.asking.state.lock().answers, background.take_failures()), (2, 1));
    }

    #[test]
    fn a_forked_child_does_not_wait_for_a_thread_that_it_does_not_have() {
        let (mut asker, open, begun) = gated();
        let _ = asker.ask_now();
        begun.recv().unwrap();
        asker.process_id = 0;
        // The answer never comes; a wait would not end.
        drop(asker);
        drop(open);
    }
}
