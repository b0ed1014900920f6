//! Lanes attribute the work of a thread that launches for several issuers in turn.
//!
//! A framework may send its work through a queue to a device thread, as cubecl does. A *lane* is a
//! number that identifies, on that thread, the issuer of the current job. An issuer [hands its
//! range over](HandOver) through the same queue, in order with its jobs; later launches in its
//! lane are attributed to that range.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::record::context::Context;
use crate::record::recording::ranges;

/// Upper bound of the lanes of a launching thread, for programs that use a new number per job and
/// end none.
const LANES: usize = 1 << 16;
/// Upper bound of the lanes for which an issuing thread remembers its last hand-over.
const REMEMBERED: usize = 1 << 10;

thread_local! {
    static LANES_OF_THREAD: RefCell<Lanes> = const { RefCell::new(Lanes::new(0, None)) };
    /// The tag handed over last by this thread, by hand-over and lane.
    static LAST: RefCell<FxHashMap<(u64, u64), u64>> =
        const { RefCell::new(HashMap::with_hasher(FxBuildHasher)) };
}

/// The lanes of a launching thread, which belong to one queue.
struct Lanes {
    /// The queue's function for the current lane; `None` before the first hand-over.
    current: Option<fn() -> u64>,
    /// The first log number of the recording that all lanes belong to.
    first_log: u64,
    /// By lane: the tag handed over last, and the sequence number of that hand-over.
    tags: FxHashMap<u64, (u64, u64)>,
    /// Sequence numbers with their lanes, oldest first. Entries of ended or changed lanes are
    /// stale.
    turns: VecDeque<(u64, u64)>,
    turn: u64,
}

impl Lanes {
    const fn new(first_log: u64, current: Option<fn() -> u64>) -> Self {
        let tags = HashMap::with_hasher(FxBuildHasher);
        Self { current, first_log, tags, turns: VecDeque::new(), turn: 0 }
    }

    fn tag(&self, lane: u64) -> u64 {
        self.tags.get(&lane).map_or(0, |(tag, _)| *tag)
    }

    /// The tag of the current lane; 0 without one.
    fn current_tag(&self) -> u64 {
        match self.current {
            Some(lane) if !self.tags.is_empty() => self.tag(lane()),
            _ => 0,
        }
    }

    /// Sets the tag of a lane in the recording with this first log number; tag 0 ends the lane.
    /// Returns the number of lanes that were dropped to make room.
    fn hand_over(&mut self, first_log: u64, lane: u64, tag: u64) -> u64 {
        if tag == 0 {
            self.tags.remove(&lane);
            return 0;
        }
        if first_log != self.first_log {
            // A call of this recording cannot be attributed to a range of another one.
            *self = Self::new(first_log, self.current);
        }
        self.turn += 1;
        self.tags.insert(lane, (tag, self.turn));
        self.turns.push_back((self.turn, lane));
        if self.turns.len() > 2 * LANES {
            let tags = &self.tags;
            self.turns.retain(|(turn, lane)| tags.get(lane).is_some_and(|(_, last)| last == turn));
        }
        if self.tags.len() > LANES { self.forget_oldest() } else { 0 }
    }

    #[cold]
    fn forget_oldest(&mut self) -> u64 {
        while let Some((turn, lane)) = self.turns.pop_front() {
            if self.tags.get(&lane).is_some_and(|(_, last)| *last == turn) {
                self.tags.remove(&lane);
                return 1;
            }
        }
        0
    }
}

/// The tag handed over last in this thread's current lane; 0 without one.
fn word_of_lane() -> u64 {
    let tag = |lanes: &RefCell<Lanes>| lanes.try_borrow().map_or(0, |lanes| lanes.current_tag());
    LANES_OF_THREAD.try_with(tag).unwrap_or(0)
}

impl Context {
    /// Attributes later launches of this thread in its current lane to this context.
    ///
    /// [`HandOver`] does this through a framework's queue; call it yourself in a job of your own
    /// queue, in order with the work. `lane` returns the number of the issuer whose job this thread
    /// runs. It is called within CUDA calls of the thread while no range is open on it. It must
    /// therefore be fast, and must not call CUDA, block or panic. A launching thread belongs to one
    /// queue: the `lane` of its last hand-over applies.
    ///
    /// The next hand-over in the lane replaces it; an [empty context](Context::is_empty) ends it.
    /// A range may have ended before its work reaches the launching thread.
    ///
    /// A thread stores 65,536 lanes per recording. Beyond that it drops the lanes with the oldest
    /// hand-over and counts them in [`Facts::forgotten_lanes`](crate::profile::Facts::forgotten_lanes).
    ///
    /// ```no_run
    /// use std::cell::Cell;
    ///
    /// use profiler_core::Context;
    ///
    /// thread_local!(static JOB_OF: Cell<u64> = const { Cell::new(0) }); // set by the queue around each job
    ///
    /// # fn submit(job: impl FnOnce() + Send + 'static) {}
    /// # fn issue_work() {}
    /// let _forward = nvtx::range("forward");
    /// let context = Context::capture();
    /// submit(move || context.hand_over(|| JOB_OF.get())); // before the work of the range
    /// issue_work();
    /// submit(|| Context::default().hand_over(|| JOB_OF.get())); // and after it
    /// ```
    pub fn hand_over(self, lane: fn() -> u64) {
        let is_source = cupti::calls::set_word_source(word_of_lane).is_ok();
        let dropped = LANES_OF_THREAD.try_with(|lanes| {
            let mut lanes = lanes.try_borrow_mut().ok()?;
            lanes.current = Some(lane);
            Some(lanes.hand_over(ranges::first_log(), lane(), self.tag()))
        });
        // A context that cannot be handed over counts as lost, like a dropped one.
        let lost = dropped.ok().flatten().unwrap_or(1);
        ranges::count_forgotten_lanes(if is_source { lost } else { lost.max(1) });
    }
}

/// A queue of a framework: its launching thread runs jobs that other threads issue.
///
/// Implement it for a type of your own that has the framework's handle, and pass that to
/// [`HandOver::new`].
pub trait LaunchQueue {
    /// Runs the job on the launching thread, after everything that this thread has issued so far
    /// and before everything that it issues later. Must not wait for the GPU.
    fn in_order(&self, job: Box<dyn FnOnce() + Send>);

    /// The number of the issuer whose job the current launching thread runs; called on the
    /// launching thread as described for [`Context::hand_over`]. On an issuing thread it returns
    /// the number of its jobs, or any constant. The default is 0, for queues with a single issuer.
    fn lane() -> u64
    where
        Self: Sized,
    {
        0
    }

    /// Waits until all jobs that this thread has issued were launched. Does not wait for the GPU.
    ///
    /// The default waits for a job of its own. Queues that collect jobs before they run them must
    /// flush.
    fn wait_launched(&self) {
        let (launched, wait) = mpsc::channel::<()>();
        self.in_order(Box::new(move || drop(launched)));
        // Nothing is sent: the wait ends when the job is dropped, whether it ran or not.
        let _ = wait.recv();
    }
}

/// The hand-over of ranges through a framework's [`LaunchQueue`].
///
/// The ranges of the threads that issue work travel through the queue, in order with that work. The
/// launching thread's calls are thus attributed to them. There may be any number of threads, ranges
/// and queues; use one hand-over for each queue.
///
/// ```
/// use std::cell::Cell;
/// use std::sync::mpsc;
///
/// use profiler_core::session::{HandOver, LaunchQueue};
///
/// type Job = Box<dyn FnOnce() + Send>;
/// thread_local!(static ISSUER: Cell<u64> = const { Cell::new(0) });
///
/// /// The framework's queue: jobs with the number of the thread that issued them.
/// struct Queue(mpsc::Sender<(u64, Job)>);
///
/// impl LaunchQueue for Queue {
///     fn in_order(&self, job: Job) {
///         let _ = self.0.send((ISSUER.get(), job));
///     }
///     fn lane() -> u64 {
///         ISSUER.get()
///     }
/// }
///
/// let (send, jobs) = mpsc::channel::<(u64, Job)>();
/// let device_thread = std::thread::spawn(move || {
///     for (issuer, job) in jobs {
///         ISSUER.set(issuer);
///         job();
///     }
/// });
/// ISSUER.set(1); // a number for this thread
/// let ranges = HandOver::new(Queue(send));
/// {
///     let _forward = ranges.range(nvtx::event("forward"));
///     ranges.queue().in_order(Box::new(|| { /* launches: attributed to "forward" */ }));
/// }
/// ranges.wait_launched(); // before a session stops
/// drop(ranges);
/// device_thread.join().unwrap();
/// ```
///
/// # Cost
/// A hand-over is one job of the queue if the context changed since the thread's last one, and at
/// a thread's first. Without a session there is none.
#[derive(Debug)]
pub struct HandOver<Q> {
    queue: Q,
    number: u64,
}

impl<Q: LaunchQueue> HandOver<Q> {
    /// A hand-over through this queue.
    pub fn new(queue: Q) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { queue, number: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// The queue.
    pub fn queue(&self) -> &Q {
        &self.queue
    }

    /// Hands over the context of this thread: its innermost range, or none. Call it at the start
    /// and end of a range, or before each launch if the framework has a hook there. Costs 10 ns if
    /// the context has not changed since the last hand-over.
    pub fn update(&self) {
        self.hand_over(Context::capture());
    }

    /// Hands over this context, for instance a [joined](Context::join) one of fused work.
    pub fn hand_over(&self, context: Context) {
        if ranges::first_log() == 0 {
            return;
        }
        let key = (self.number, Q::lane());
        let is_new = LAST.try_with(|last| {
            let Ok(mut last) = last.try_borrow_mut() else { return true };
            if last.len() >= REMEMBERED && !last.contains_key(&key) {
                // Costs each lane one hand-over that changes nothing.
                last.clear();
            }
            last.insert(key, context.tag()) != Some(context.tag())
        });
        if is_new.unwrap_or(true) {
            self.queue.in_order(Box::new(move || context.hand_over(Q::lane)));
        }
    }

    /// Starts a range on this thread and hands it over; its end hands over the outer range.
    pub fn range(&self, event: nvtx::Event<'_>) -> HandedRange<'_, Q> {
        let range = event.range();
        self.update();
        HandedRange { range: Some(range), hand_over: self, not_send: PhantomData }
    }

    /// Waits until all jobs that this thread has issued were launched. Does not wait for the GPU.
    /// Call it before stopping a session, which does not wait for the queue.
    pub fn wait_launched(&self) {
        self.queue.wait_launched();
    }
}

/// A range that is handed over while it is open. Made by [`HandOver::range`].
#[derive(Debug)]
#[must_use = "the range ends when this guard is dropped: keep it in a variable, `let _range = ...`"]
pub struct HandedRange<'h, Q: LaunchQueue> {
    range: Option<nvtx::Range>,
    hand_over: &'h HandOver<Q>,
    not_send: PhantomData<*mut ()>,
}

impl<Q: LaunchQueue> Drop for HandedRange<'_, Q> {
    fn drop(&mut self) {
        drop(self.range.take());
        if std::thread::panicking() {
            // The queue itself may have panicked, and a second panic would abort. The thread's next
            // hand-over is made regardless of its context.
            let _ = LAST.try_with(|last| last.try_borrow_mut().map(|mut last| last.clear()));
        } else {
            self.hand_over.update();
        }
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
        let (mut lanes, mut forgotten) = (Lanes::new(0, None), 0);
        let many = LANES as u64 + 1_000;
        for lane in 0..many {
            // One lane is handed a tag in every iteration.
            assert!(lanes.hand_over(1, u64::MAX, tag(1, lane)) == 0 || lanes.tags.len() <= LANES);
            forgotten += lanes.hand_over(1, lane, tag(1, lane));
            assert!(lanes.tags.len() <= LANES && lanes.turns.len() <= 2 * LANES + 1);
        }
        assert_eq!((forgotten, lanes.tags.len()), (1_001, LANES));
        assert_eq!(lanes.tag(u64::MAX), tag(1, many - 1), "it is not the oldest");
        assert_eq!((lanes.tag(1_000), lanes.tag(1_001)), (0, tag(1, 1_001)));
    }

    #[test]
    fn lanes_that_end_are_not_counted() {
        let mut lanes = Lanes::new(0, None);
        for lane in 0..4 * LANES as u64 {
            assert_eq!(lanes.hand_over(1, lane, tag(1, lane)), 0);
            assert_eq!(lanes.hand_over(1, lane, 0), 0);
            assert!(lanes.tags.is_empty() && lanes.turns.len() <= 2 * LANES + 1);
        }
    }

    #[test]
    fn lanes_of_an_earlier_recording_are_forgotten_by_the_next() {
        let mut lanes = Lanes::new(0, None);
        for lane in 0..100 {
            assert_eq!(lanes.hand_over(1, lane, tag(1, lane)), 0);
        }
        assert_eq!(lanes.hand_over(2, 100, tag(2, 5)), 0);
        assert_eq!((lanes.tags.len(), lanes.turns.len()), (1, 1));
        assert_eq!((lanes.tag(100), lanes.tag(99)), (tag(2, 5), 0));
    }
}
