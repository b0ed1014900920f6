//! Ordered queues: one thread launches what many issue, and says for whom it does so by a *lane*.
//!
//! Where a program's work goes through a queue to a thread of its own (a device thread, as cubecl's has it), that thread
//! runs jobs of several issuers by turns. A lane is a number that tells on the launching thread whose job runs: cubecl's
//! `StreamId`, an id that a runtime keeps per task. A context that goes through the same queue is [handed
//! over](Context::hand_over) there, and all that is launched later in its lane belongs to it.

use std::cell::RefCell;
use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use crate::context::Context;

static LANE: OnceLock<fn() -> u64> = OnceLock::new();

thread_local! {
    /// The word of the context that was handed over last in each lane of this thread.
    static HANDED: RefCell<FxHashMap<u64, u64>> = RefCell::default();
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

/// The word of the range that was handed over in the present lane of this thread.
fn word_of_lane() -> u64 {
    let Some(lane) = LANE.get() else { return 0 };
    let lane = lane();
    let handed = HANDED.try_with(|handed| handed.try_borrow().ok()?.get(&lane).copied());
    handed.ok().flatten().unwrap_or(0)
}

impl Context {
    /// On a thread that launches for others: from now on, what it launches in its present lane, and in no range of its
    /// own, belongs to this context; until another one is handed over in the same lane, and an
    /// [empty one](Context::is_empty) ends it. See [`set_lane`]; without a lane nothing happens.
    ///
    /// A range's work may reach the launching thread after the range has ended: hand over where the queue is, in order
    /// with the work.
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
        let _ = HANDED.try_with(|handed| {
            if let Ok(mut handed) = handed.try_borrow_mut() {
                match self.word() {
                    0 => _ = handed.remove(&lane),
                    word => _ = handed.insert(lane, word),
                }
            }
        });
    }
}
