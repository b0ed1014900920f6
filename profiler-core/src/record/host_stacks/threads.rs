//! The threads that the sampler samples: threads that submit work. They register themselves and the
//! gaps that they end.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::sys;

/// The maximum number of threads.
pub(super) const THREADS: usize = 256;
/// The maximum number of unread gaps of a thread; further ones are lost.
const GAPS: usize = 64;

/// A thread, and the gaps that it ended. One thread writes and the sampler reads.
struct Place {
    /// 0 while the slot is free, and [`CLAIMED`] until the other fields are written.
    thread_id: AtomicU32,
    stack_start: AtomicU64,
    stack_end: AtomicU64,
    gaps: [(AtomicU64, AtomicU64); GAPS],
    written: AtomicUsize,
    read: AtomicUsize,
}

static PLACES: [Place; THREADS] = [const {
    Place {
        thread_id: AtomicU32::new(0),
        stack_start: AtomicU64::new(0),
        stack_end: AtomicU64::new(0),
        gaps: [const { (AtomicU64::new(0), AtomicU64::new(0)) }; GAPS],
        written: AtomicUsize::new(0),
        read: AtomicUsize::new(0),
    }
}; THREADS];

/// The number of the sampling, odd while one is on: threads register once for each.
static GENERATION: AtomicU32 = AtomicU32::new(0);
static LOST_THREADS: AtomicU64 = AtomicU64::new(0);
static LOST_GAPS: AtomicU64 = AtomicU64::new(0);

/// No thread has this id.
const CLAIMED: u32 = u32::MAX;
/// The slot of a thread that found none.
const NONE: usize = usize::MAX;

thread_local! {
    /// The generation in which the thread registered, and its slot.
    static OWN: Cell<(u32, usize)> = const { Cell::new((0, NONE)) };
}

/// Makes threads register from now on. `None` if a sampling is already on.
pub(super) fn begin() -> Option<()> {
    let now = GENERATION.load(Ordering::Acquire);
    if now % 2 == 1 {
        return None;
    }
    PLACES.iter().for_each(|place| place.thread_id.store(0, Ordering::Relaxed));
    LOST_THREADS.store(0, Ordering::Relaxed);
    LOST_GAPS.store(0, Ordering::Relaxed);
    GENERATION
        .compare_exchange(now, now.wrapping_add(1), Ordering::AcqRel, Ordering::Relaxed)
        .ok()
        .map(drop)
}

/// Ends the sampling that [`begin`] started.
pub(super) fn end() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
}

/// Called when the calling thread submits work; its last submission returned at `since_ns`, or this
/// is its first (0). Costs one load without a sampler. Neither waits nor allocates.
#[inline]
pub(super) fn ended_gap(since_ns: u64) {
    let generation = GENERATION.load(Ordering::Acquire);
    if generation % 2 == 1 {
        add(generation, since_ns);
    }
}

#[inline(never)]
fn add(generation: u32, since_ns: u64) {
    let Ok((known, mut at)) = OWN.try_with(Cell::get) else { return };
    if known != generation {
        at = claim();
        let _ = OWN.try_with(|own| own.set((generation, at)));
    }
    let Some(place) = PLACES.get(at) else { return };
    if since_ns == 0 {
        return;
    }
    let written = place.written.load(Ordering::Relaxed);
    if written.wrapping_sub(place.read.load(Ordering::Acquire)) >= GAPS {
        LOST_GAPS.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let (start, end) = &place.gaps[written % GAPS];
    start.store(since_ns, Ordering::Relaxed);
    end.store(cupti::clock::now_ns(), Ordering::Relaxed);
    place.written.store(written.wrapping_add(1), Ordering::Release);
}

fn claim() -> usize {
    let own = cupti::calls::thread_id();
    let stack = sys::bounds_of_thread().unwrap_or_default();
    let free = PLACES.iter().position(|place| {
        let claimed =
            place.thread_id.compare_exchange(0, CLAIMED, Ordering::AcqRel, Ordering::Relaxed);
        claimed.is_ok()
    });
    let Some(at) = free else {
        LOST_THREADS.fetch_add(1, Ordering::Relaxed);
        return NONE;
    };
    let place = &PLACES[at];
    place.read.store(place.written.load(Ordering::Relaxed), Ordering::Relaxed);
    place.stack_start.store(stack.start, Ordering::Relaxed);
    place.stack_end.store(stack.end, Ordering::Relaxed);
    place.thread_id.store(own, Ordering::Release);
    at
}

/// The registered threads: slot, id and stack.
pub(super) fn registered() -> impl Iterator<Item = (usize, u32, Range<u64>)> {
    PLACES.iter().enumerate().filter_map(|(at, place)| {
        let thread_id = place.thread_id.load(Ordering::Acquire);
        let end = place.stack_end.load(Ordering::Relaxed);
        let stack = place.stack_start.load(Ordering::Relaxed)..end;
        (thread_id != 0 && thread_id != CLAIMED).then_some((at, thread_id, stack))
    })
}

/// The next gap that the thread in a slot ended.
pub(super) fn next_gap(at: usize) -> Option<Range<u64>> {
    let place = &PLACES[at];
    let read = place.read.load(Ordering::Relaxed);
    if read == place.written.load(Ordering::Acquire) {
        return None;
    }
    let (start, end) = &place.gaps[read % GAPS];
    let gap = start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed);
    place.read.store(read.wrapping_add(1), Ordering::Release);
    Some(gap)
}

/// Removes the ended thread in a slot.
pub(super) fn remove(at: usize) {
    PLACES[at].thread_id.store(0, Ordering::Release);
}

/// The numbers of threads and of gaps that found no room.
pub(super) fn lost() -> (u64, u64) {
    (LOST_THREADS.load(Ordering::Relaxed), LOST_GAPS.load(Ordering::Relaxed))
}
