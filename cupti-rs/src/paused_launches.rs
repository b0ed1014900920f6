//! Launches that began in a pause and have not returned. No log contains them, and a flush after
//! the pause waits for them.
//!
//! Each thread counts in one of several words, so that threads that launch at the same time rarely
//! share a cache line.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const WORDS: usize = 16;

/// The number of a collection in the upper half, its launches in the lower one. Launches of an
/// earlier collection do not count: their returns may be unseen.
#[repr(align(128))]
struct Word(AtomicU64);

static COUNTS: [Word; WORDS] = [const { Word(AtomicU64::new(0)) }; WORDS];

thread_local! {
    static WORD_OF_THREAD: &'static Word = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        &COUNTS[NEXT.fetch_add(1, Ordering::Relaxed) % WORDS]
    };
    /// The collection for which the thread's current launch counts; 0 if it does not.
    static COUNTED_FOR: Cell<u32> = const { Cell::new(0) };
}

/// Counts a launch of this thread. The thread reads the state again afterwards: either it sees that
/// the pause has ended or launches wait, or a flush sees the launch.
pub(crate) fn begin(collection: u32) {
    let add = |word: u64| {
        let count = if (word >> 32) as u32 == collection { word as u32 } else { 0 };
        Some(u64::from(collection) << 32 | u64::from(count.saturating_add(1)))
    };
    let counted = WORD_OF_THREAD
        .try_with(|word| word.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).is_ok());
    if counted == Ok(true) {
        let _ = COUNTED_FOR.try_with(|counted| counted.set(collection));
    }
}

/// Ends this thread's counted launch, if there is one.
#[inline]
pub(crate) fn end() {
    let collection = COUNTED_FOR.try_with(Cell::get).unwrap_or(0);
    if collection != 0 {
        end_counted(collection);
    }
}

#[cold]
fn end_counted(collection: u32) {
    let remove = |word: u64| ((word >> 32) as u32 == collection).then(|| word.saturating_sub(1));
    let _ = COUNTED_FOR.try_with(|counted| counted.set(0));
    let _ = WORD_OF_THREAD
        .try_with(|word| word.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, remove));
}

/// True if a launch of this collection is in progress.
pub(crate) fn any(collection: u32) -> bool {
    COUNTS
        .iter()
        .map(|word| word.0.load(Ordering::SeqCst))
        .any(|word| (word >> 32) as u32 == collection && word as u32 != 0)
}
