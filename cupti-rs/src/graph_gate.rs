//! Separates flushes and launches of graphs, for CUPTI before 13.0.
//!
//! 12.8 and 12.9 can deadlock if one thread flushes while others launch graphs. The flush waits for
//! a driver lock that a launch holds, and that launch waits for a CUPTI lock that the flush holds
//! (seen on an H200; 13.0 and later do not deadlock). Only launches of graphs pass here, and only
//! with such a version.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The maximum wait of a flush for launches to return. A launch may wait for room in the GPU's
/// queue.
const FLUSH_WAITS: Duration = Duration::from_millis(100);
/// The maximum wait of a launch for a flush: a possible hang is better than a certain one.
const LAUNCH_WAITS: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_micros(20);

const UNDER_WAY: u64 = FLUSHING - 1;
const FLUSHING: u64 = 1 << 31;
const PERIOD: u32 = 32;

/// The number of launches under way, a flag for a running flush, and the number of the collection's
/// segment that counts them.
static WORD: AtomicU64 = AtomicU64::new(1 << PERIOD);
/// One flush at a time.
static FLUSH: Mutex<()> = Mutex::new(());

thread_local! {
    /// The segment in which this thread's launch was counted, or 0.
    static COUNTED: Cell<u64> = const { Cell::new(0) };
}

/// Begins a new segment: returns of launches that began before it may never be seen.
pub(crate) fn begin() {
    let next = |word: u64| Some((((word >> PERIOD) + 1) << PERIOD) | (word & FLUSHING));
    let _ = WORD.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
}

/// Counts a launch that begins on this thread, once no flush is under way.
pub(crate) fn enter() {
    let late = Instant::now() + LAUNCH_WAITS;
    loop {
        let word = WORD.load(Ordering::Acquire);
        if COUNTED.try_with(Cell::get) == Ok(word >> PERIOD) {
            return;
        }
        let waits = word & FLUSHING != 0 && Instant::now() < late;
        let one_more =
            |word| WORD.compare_exchange(word, word + 1, Ordering::AcqRel, Ordering::Relaxed);
        if waits {
            std::thread::sleep(PAUSE);
        } else if one_more(word).is_ok() {
            let _ = COUNTED.try_with(|counted| counted.set(word >> PERIOD));
            return;
        }
    }
}

/// Counts the launch as returned; ignores a launch whose begin was not seen.
pub(crate) fn leave() {
    let counted = COUNTED.try_with(|counted| counted.replace(0)).unwrap_or_default();
    let one_fewer =
        |word: u64| (word >> PERIOD == counted && word & UNDER_WAY != 0).then(|| word - 1);
    let _ = WORD.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_fewer);
}

/// Flushes while no launch is under way; does not flush if one does not return.
pub(crate) fn apart<R>(flush: impl FnOnce() -> R) -> Option<R> {
    struct Open;
    impl Drop for Open {
        fn drop(&mut self) {
            WORD.fetch_and(!FLUSHING, Ordering::AcqRel);
        }
    }

    let _one = FLUSH.lock();
    WORD.fetch_or(FLUSHING, Ordering::AcqRel);
    let _open = Open;
    let late = Instant::now() + FLUSH_WAITS;
    while WORD.load(Ordering::Acquire) & UNDER_WAY != 0 {
        if Instant::now() >= late {
            return None;
        }
        std::thread::sleep(PAUSE);
    }
    Some(flush())
}
