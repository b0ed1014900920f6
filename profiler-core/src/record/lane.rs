//! Lanes attribute the work of a thread that launches for several issuers in turn.
//!
//! A program may send its work through a queue to a device thread, as cubecl does. A *lane* is a
//! number that identifies, on that thread, the issuer of the current job: cubecl's `StreamId`, or
//! an id that a runtime keeps per task. A context sent through the same queue is [handed
//! over](Context::hand_over) there; later launches in its lane are attributed to it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use crate::record::context::Context;
use crate::record::recording::ranges;

static LANE: OnceLock<fn() -> u64> = OnceLock::new();

/// Upper bound of the lanes of a thread, for programs that use a new number per job and end none.
const LANES: usize = 1 << 16;

thread_local! {
    static HANDED: RefCell<Lanes> = RefCell::default();
}

/// The lanes of a thread.
#[derive(Default)]
struct Lanes {
    /// The first log number of the recording that all lanes belong to.
    first_log: u64,
    /// By lane: the tag handed over last, and the turn of that hand-over.
    tags: FxHashMap<u64, (u64, u64)>,
    /// Turns with their lanes, oldest first. Turns of ended or changed lanes are stale.
    turns: VecDeque<(u64, u64)>,
    turn: u64,
}

impl Lanes {
    fn tag(&self, lane: u64) -> u64 {
        self.tags.get(&lane).map_or(0, |(tag, _)| *tag)
    }

    /// Sets the tag of a lane in the recording with this first log number; tag 0 ends the lane.
    /// Returns true if the oldest lane was dropped to make room.
    fn hand_over(&mut self, first_log: u64, lane: u64, tag: u64) -> bool {
        if tag == 0 {
            self.tags.remove(&lane);
            return false;
        }
        if first_log != self.first_log {
            // A call of this recording cannot be attributed to a range of another one.
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

/// Sets the function that returns the current lane of a thread. Call it once per process, early:
/// earlier launches have no lane.
///
/// The function is called within CUDA calls of threads with no open range. It must be fast, and
/// must not call CUDA, block or panic. Returns false if another function was set before.
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

/// The tag handed over last in this thread's current lane; 0 without one.
fn word_of_lane() -> u64 {
    let Some(lane) = LANE.get() else { return 0 };
    let lane = lane();
    HANDED.try_with(|lanes| lanes.try_borrow().map_or(0, |lanes| lanes.tag(lane))).unwrap_or(0)
}

impl Context {
    /// Attributes later launches of this thread in its current lane to this context.
    ///
    /// The next hand-over in the lane replaces it; an [empty context](Context::is_empty) ends it.
    /// Does nothing without a lane: see [`set_lane`]. A range may have ended before its work
    /// reaches the launching thread, so hand over in the queue, in order with the work.
    ///
    /// A thread keeps 65,536 lanes per recording. Beyond that it drops the lanes with the oldest
    /// hand-over and counts them in [`Health::forgotten_lanes`](crate::Health::forgotten_lanes).
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

    /// A distinct tag for each number; logs have few entries in tests.
    fn tag(recording: u64, number: u64) -> u64 {
        let (log, slot) = (recording * 1000 + number / SLOTS, number % SLOTS);
        RangeTag::new(log, slot).map_or(0, |tag| tag.0)
    }

    #[test]
    fn lanes_that_never_end_are_bounded_and_the_oldest_are_forgotten() {
        let (mut lanes, mut forgotten) = (Lanes::default(), 0);
        let many = LANES as u64 + 1_000;
        for lane in 0..many {
            // One lane is handed a tag in every iteration.
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
