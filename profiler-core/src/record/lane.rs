//! Ordered queues: one thread launches what many issue, and says for whom it does so by a *lane*.
//!
//! Where a program's work goes through a queue to a thread of its own (a device thread, as cubecl's has it), that thread
//! runs jobs of several issuers by turns. A lane is a number that tells on the launching thread whose job runs: cubecl's
//! `StreamId`, an id that a runtime keeps per task. A context that goes through the same queue is [handed
//! over](Context::hand_over) there, and all that is launched later in its lane belongs to it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use crate::record::context::Context;
use crate::record::recording::ranges;

static LANE: OnceLock<fn() -> u64> = OnceLock::new();

/// Lanes that a thread keeps. A program that takes a new number for every job and ends none of them would fill the memory.
const LANES: usize = 1 << 16;

thread_local! {
    static HANDED: RefCell<Lanes> = RefCell::default();
}

/// The lanes of a thread.
#[derive(Default)]
struct Lanes {
    /// The number of the first log of the recording that all of them are of.
    first_log: u64,
    /// By lane, the tag of the context that was handed over last, and at which turn.
    tags: FxHashMap<u64, (u64, u64)>,
    /// Turns with their lanes, the oldest first. A lane that was handed something later, or ended, has others.
    turns: VecDeque<(u64, u64)>,
    turn: u64,
}

impl Lanes {
    fn tag(&self, lane: u64) -> u64 {
        self.tags.get(&lane).map_or(0, |(tag, _)| *tag)
    }

    /// Hands over a tag in the recording with this first log, or ends the lane with 0. True if the oldest lane was forgotten
    /// for it.
    fn hand_over(&mut self, first_log: u64, lane: u64, tag: u64) -> bool {
        if tag == 0 {
            self.tags.remove(&lane);
            return false;
        }
        if first_log != self.first_log {
            // No call of this recording belongs to a range of another.
            *self = Self { first_log, ..Self::default() };
        }
        self.turn += 1;
        self.tags.insert(lane, (tag, self.turn));
        self.turns.push_back((self.turn, lane));
        if self.turns.len() > 2 * LANES {
            let tags = &self.tags;
            self.turns.retain(|(turn, lane)| tags.get(lane).is_some_and(|(_, last)| last == turn));
        }
        self.tags.len() > LANES && self.forget_oldest()
    }

    #[cold]
    fn forget_oldest(&mut self) -> bool {
        while let Some((turn, lane)) = self.turns.pop_front() {
            if self.tags.get(&lane).is_some_and(|(_, last)| *last == turn) {
                self.tags.remove(&lane);
                return true;
            }
        }
        false
    }
}

/// Says how to find the present lane of a thread. Once in a process, and early: what is launched before finds none.
///
/// It is asked within CUDA calls of threads that are in no range of their own: it must be quick, and must not call CUDA,
/// wait or panic. Gives false if another function was set before.
///
/// ```
/// use std::cell::Cell;
///
/// thread_local!(static JOB_OF: Cell<u64> = const { Cell::new(0) }); // set by the queue around each job
///
/// assert!(profiler_core::set_lane(|| JOB_OF.get()));
/// ```
pub fn set_lane(lane: fn() -> u64) -> bool {
    if !std::ptr::fn_addr_eq(*LANE.get_or_init(|| lane), lane) {
        return false;
    }
    cupti::calls::set_word_source(word_of_lane).is_ok()
}

/// The tag of the range that was handed over in the present lane of this thread.
fn word_of_lane() -> u64 {
    let Some(lane) = LANE.get() else { return 0 };
    let lane = lane();
    HANDED.try_with(|lanes| lanes.try_borrow().map_or(0, |lanes| lanes.tag(lane))).unwrap_or(0)
}

impl Context {
    /// On a thread that launches for others: from now on, what it launches in its present lane, and in no range of its
    /// own, belongs to this context; until another one is handed over in the same lane, and an
    /// [empty one](Context::is_empty) ends it. See [`set_lane`]; without a lane nothing happens.
    ///
    /// A range's work may reach the launching thread after the range has ended: hand over where the queue is, in order
    /// with the work.
    ///
    /// A thread keeps 65,536 lanes of a recording. Where a program uses more and does not end them, the thread forgets the
    /// lanes to which nothing was handed over for longest, and counts them in
    /// [`Health::forgotten_lanes`](crate::Health::forgotten_lanes).
    ///
    /// ```no_run
    /// # fn submit(job: impl FnOnce() + Send + 'static) {}
    /// # fn issue_work() {}
    /// use profiler_core::Context;
    ///
    /// let _forward = nvtx::range("forward");
    /// let context = Context::capture();
    /// submit(move || context.hand_over()); // goes through the queue, before the work of the range
    /// issue_work();
    /// submit(|| Context::default().hand_over()); // and after it
    /// ```
    pub fn hand_over(self) {
        let Some(lane) = LANE.get() else { return };
        let lane = lane();
        let _ = HANDED.try_with(|lanes| {
            if let Ok(mut lanes) = lanes.try_borrow_mut()
                && lanes.hand_over(ranges::first_log(), lane, self.tag())
            {
                ranges::count_forgotten_lane();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::recording::ranges::{RangeTag, SLOTS};

    /// A tag of its own for each number; a log in tests has few entries.
    fn tag(recording: u64, number: u64) -> u64 {
        let (log, slot) = (recording * 1000 + number / SLOTS, number % SLOTS);
        RangeTag::new(log, slot).map_or(0, |tag| tag.0)
    }

    #[test]
    fn lanes_that_never_end_are_bounded_and_the_oldest_are_forgotten() {
        let (mut lanes, mut forgotten) = (Lanes::default(), 0);
        let many = LANES as u64 + 1_000;
        for lane in 0..many {
            // One lane is handed something all the time.
            assert!(!lanes.hand_over(1, u64::MAX, tag(1, lane)) || lanes.tags.len() <= LANES);
            forgotten += u64::from(lanes.hand_over(1, lane, tag(1, lane)));
            assert!(lanes.tags.len() <= LANES && lanes.turns.len() <= 2 * LANES + 1);
        }
        assert_eq!((forgotten, lanes.tags.len()), (1_001, LANES));
        assert_eq!(lanes.tag(u64::MAX), tag(1, many - 1), "it is not the oldest");
        assert_eq!((lanes.tag(1_000), lanes.tag(1_001)), (0, tag(1, 1_001)));
    }

    #[test]
    fn lanes_that_end_are_not_counted() {
        let mut lanes = Lanes::default();
        for lane in 0..4 * LANES as u64 {
            assert!(!lanes.hand_over(1, lane, tag(1, lane)));
            assert!(!lanes.hand_over(1, lane, 0));
            assert!(lanes.tags.is_empty() && lanes.turns.len() <= 2 * LANES + 1);
        }
    }

    #[test]
    fn lanes_of_an_earlier_recording_are_forgotten_by_the_next() {
        let mut lanes = Lanes::default();
        for lane in 0..100 {
            assert!(!lanes.hand_over(1, lane, tag(1, lane)));
        }
        assert!(!lanes.hand_over(2, 100, tag(2, 5)));
        assert_eq!((lanes.tags.len(), lanes.turns.len()), (1, 1));
        assert_eq!((lanes.tag(100), lanes.tag(99)), (tag(2, 5), 0));
    }
}
