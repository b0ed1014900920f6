//! Buffers ready for CUPTI's requests. CUPTI requests buffers on an application thread inside a
//! CUDA call, so lending one must be a lock-free pop. Only if the pool is empty is a new buffer
//! allocated there, and counted.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crossbeam_queue::ArrayQueue;

use super::outstanding::Outstanding;
use crate::clock;
use crate::sys::api::Api;

/// The maximum number of free buffers in the pool.
const KEPT: usize = 256;

/// The buffers of a collection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// The bytes of each buffer.
    pub(crate) buffer_bytes: usize,
    /// The number at the start, and the maximum number.
    pub(crate) buffers: usize,
    pub(crate) most: usize,
}

/// The process's one pool: CUPTI's buffer callbacks carry no context of ours.
pub(crate) static POOL: LazyLock<Pool> = LazyLock::new(Pool::new);

#[derive(Debug)]
pub(crate) struct Pool {
    free: ArrayQueue<Box<[u64]>>,
    /// The limit of free buffers: the whole capacity while a collection runs.
    kept: AtomicUsize,
    buffer_words: AtomicUsize,
    outstanding: Outstanding,
    /// Buffers that CUPTI requested.
    pub(crate) requested: AtomicU64,
    /// Buffers, of `requested`, that had to be allocated inside the request.
    pub(crate) misses: AtomicU64,
    /// The number of buffers, free and lent, and the maximum number.
    made: AtomicUsize,
    most: AtomicUsize,
    /// True if CUPTI accepts a refusal (a null buffer).
    refuse_with_null: AtomicBool,
    /// Requests that were refused.
    pub(crate) refused: AtomicU64,
    /// The table whose `get_next_record` walks returned buffers; leaked, one for each library.
    api: AtomicPtr<Api>,
}

impl Pool {
    fn new() -> Self {
        Self {
            free: ArrayQueue::new(KEPT),
            kept: AtomicUsize::new(KEPT),
            buffer_words: AtomicUsize::new(0),
            outstanding: Outstanding::new(),
            requested: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            made: AtomicUsize::new(0),
            most: AtomicUsize::new(usize::MAX),
            refuse_with_null: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            api: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Fills the pool with the zeroed buffers of a collection, whose pages are mapped.
    /// `refuse_with_null`: CUPTI accepts a refusal.
    pub(crate) fn prepare(&self, api: &'static Api, sizes: Sizes, refuse_with_null: bool) {
        let words = sizes.buffer_bytes / 8 + HEADER;
        let count = sizes.buffers.min(sizes.most).min(KEPT);
        let other_size = self.buffer_words.swap(words, Ordering::Relaxed) != words;
        let wanted = if other_size { 0 } else { count };
        self.keep(wanted);
        self.kept.store(KEPT, Ordering::Relaxed);
        while self.free.len() < count {
            let mut buffer = vec![0u64; words].into_boxed_slice();
            touch(&mut buffer);
            if self.free.push(buffer).is_err() {
                break;
            }
            self.made.fetch_add(1, Ordering::Relaxed);
        }
        self.outstanding.begin(clock::now_ns());
        self.most.store(sizes.most, Ordering::Relaxed);
        self.refuse_with_null.store(refuse_with_null, Ordering::Relaxed);
        self.requested.store(0, Ordering::Relaxed);
        self.misses.store(0, Ordering::Relaxed);
        self.refused.store(0, Ordering::Relaxed);
        self.api.store(std::ptr::from_ref(api).cast_mut(), Ordering::Release);
    }

    /// Limits the free buffers to this number, including those returned later. Intended for the end
    /// of a collection, which may have needed many more than the next one.
    pub(crate) fn keep(&self, most: usize) {
        self.kept.store(most, Ordering::Relaxed);
        while self.free.len() > most && self.free.pop().is_some() {
            self.made.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The current library's table.
    pub(crate) fn api(&self) -> Option<&'static Api> {
        let api = self.api.load(Ordering::Acquire);
        // SAFETY: the pointer is null or came from the `&'static Api` given to `prepare`.
        unsafe { api.as_ref() }
    }

    /// Lends a buffer to CUPTI, zeroed except for its header, which CUPTI does not see: the length
    /// in words, and the span for [`returned`](Self::returned). `None` if the maximum exists and
    /// CUPTI accepts a refusal.
    pub(crate) fn take(&self) -> Option<Box<[u64]>> {
        self.requested.fetch_add(1, Ordering::Relaxed);
        let mut buffer = self.free.pop().or_else(|| self.make())?;
        let length = buffer.len() as u64;
        if let Some(header) = buffer.first_chunk_mut::<HEADER>() {
            *header = [length, u64::from(self.outstanding.lend())];
        }
        Some(buffer)
    }

    #[cold]
    fn make(&self) -> Option<Box<[u64]>> {
        let most = self.most.load(Ordering::Relaxed);
        let one_more = |made: usize| (made < most).then_some(made + 1);
        if self.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok() {
            self.misses.fetch_add(1, Ordering::Relaxed);
            let words = self.buffer_words.load(Ordering::Relaxed).max(SCRATCH_WORDS + 1);
            return Some(vec![0u64; words].into_boxed_slice());
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        let scratch = !self.refuse_with_null.load(Ordering::Relaxed);
        scratch.then(|| vec![0u64; SCRATCH_WORDS].into_boxed_slice())
    }

    /// Takes a buffer back, which must be zeroed again.
    pub(crate) fn give(&self, buffer: Box<[u64]>) {
        if is_scratch(&buffer) {
            return;
        }
        let fits = buffer.len() == self.buffer_words.load(Ordering::Relaxed);
        let has_room = self.free.len() < self.kept.load(Ordering::Relaxed);
        // A full pool has enough buffers: this one is freed.
        if !(fits && has_room) || self.free.push(buffer).is_err() {
            self.made.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts a buffer with this second word as returned by CUPTI.
    pub(crate) fn returned(&self, span: u64) {
        self.outstanding.returned(span as u32);
    }

    /// Accounts for a flush that began at this time and has returned. Returns the time before which
    /// all requested work has its records delivered.
    pub(crate) fn flushed(&self, begun_ns: u64) -> u64 {
        self.outstanding.flushed(begun_ns);
        self.outstanding.settled_ns()
    }

    /// The lent buffers that may contain records of calls before a time. After a flush without
    /// force each has an unfinished record.
    pub(crate) fn out_before(&self, time_ns: u64) -> u64 {
        self.outstanding.count_before(time_ns)
    }
}

/// Words at the start of a buffer that CUPTI does not see, so that freeing the buffer depends on
/// nothing that CUPTI returns.
pub(super) const HEADER: usize = 2;

/// Words of scratch buffers, whose records are discarded; other buffers are longer.
const SCRATCH_WORDS: usize = (32 << 10) / 8 + HEADER;

/// True if the records of this buffer are discarded.
pub(crate) fn is_scratch(buffer: &[u64]) -> bool {
    buffer.len() == SCRATCH_WORDS
}

/// Writes to every page, so that application threads take no page fault.
fn touch(buffer: &mut [u64]) {
    for page in buffer.chunks_mut(512) {
        std::hint::black_box(&mut page[0]);
        page[0] = std::hint::black_box(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: usize = 2 * SCRATCH_WORDS;

    #[test]
    fn ended_collection_retains_no_more_buffers_than_at_its_start() {
        let pool = Pool::new();
        pool.buffer_words.store(WORDS, Ordering::Relaxed);
        let mut taken: Vec<_> = (0..100).filter_map(|_| pool.take()).collect();
        let late = taken.split_off(90);
        taken.into_iter().for_each(|buffer| pool.give(buffer));
        assert_eq!((pool.free.len(), pool.made.load(Ordering::Relaxed)), (90, 100));
        pool.keep(16);
        assert_eq!((pool.free.len(), pool.made.load(Ordering::Relaxed)), (16, 26));
        late.into_iter().for_each(|buffer| pool.give(buffer));
        assert_eq!((pool.free.len(), pool.made.load(Ordering::Relaxed)), (16, 16));
    }
}
