//! Buffers waiting to be asked for. CUPTI asks on an application thread inside a CUDA call, so that giving one must be
//! a lock-free pop; only where the pool ran dry a new buffer is allocated there, and counted.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crossbeam_queue::ArrayQueue;

use crate::sys::api::Api;

/// The most buffers kept for later use.
const KEPT: usize = 256;

/// The process's one pool: CUPTI's buffer callbacks carry no context of ours.
pub(crate) static POOL: LazyLock<Pool> = LazyLock::new(|| Pool {
    free: ArrayQueue::new(KEPT),
    buffer_words: AtomicUsize::new(0),
    out: AtomicI64::new(0),
    requested: AtomicU64::new(0),
    misses: AtomicU64::new(0),
    api: AtomicPtr::new(std::ptr::null_mut()),
});

#[derive(Debug)]
pub(crate) struct Pool {
    free: ArrayQueue<Box<[u64]>>,
    buffer_words: AtomicUsize,
    out: AtomicI64,
    requested: AtomicU64,
    misses: AtomicU64,
    /// The table whose `get_next_record` walks what comes back; leaked, one for each library.
    api: AtomicPtr<Api>,
}

impl Pool {
    /// Makes the pool ready: `count` zeroed buffers of `bytes` each, whose pages are there.
    pub(crate) fn prepare(&self, api: &'static Api, bytes: usize, count: usize) {
        let words = bytes / 8;
        let other_size = self.buffer_words.swap(words, Ordering::Relaxed) != words;
        let wanted = if other_size { 0 } else { count };
        while self.free.len() > wanted && self.free.pop().is_some() {}
        while self.free.len() < count.min(KEPT) {
            let mut buffer = vec![0u64; words].into_boxed_slice();
            touch(&mut buffer);
            if self.free.push(buffer).is_err() {
                break;
            }
        }
        self.requested.store(0, Ordering::Relaxed);
        self.misses.store(0, Ordering::Relaxed);
        self.api.store(std::ptr::from_ref(api).cast_mut(), Ordering::Release);
    }

    /// The present library's table.
    pub(crate) fn api(&self) -> Option<&'static Api> {
        let api = self.api.load(Ordering::Acquire);
        // SAFETY: the pointer is null or came from the `&'static Api` given to `prepare`.
        unsafe { api.as_ref() }
    }

    pub(crate) fn take(&self) -> Box<[u64]> {
        self.requested.fetch_add(1, Ordering::Relaxed);
        self.out.fetch_add(1, Ordering::Relaxed);
        self.free.pop().unwrap_or_else(|| {
            self.misses.fetch_add(1, Ordering::Relaxed);
            vec![0u64; self.buffer_words.load(Ordering::Relaxed).max(1024)].into_boxed_slice()
        })
    }

    /// Takes a buffer back. It must be all zero again.
    pub(crate) fn give(&self, buffer: Box<[u64]>) {
        if buffer.len() == self.buffer_words.load(Ordering::Relaxed) {
            // A full pool has buffers enough: this one goes back to the allocator.
            let _ = self.free.push(buffer);
        }
    }

    /// One buffer fewer is with CUPTI.
    pub(crate) fn returned(&self) {
        self.out.fetch_sub(1, Ordering::Release);
    }

    /// Buffers that CUPTI holds. After a flush without force it holds just those with an unfinished record.
    pub(crate) fn out(&self) -> i64 {
        self.out.load(Ordering::Acquire)
    }

    /// (buffers CUPTI asked for, those of them that had to be allocated on the spot)
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.requested.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }
}

/// Writes to every page, so that the application's thread takes no page fault.
fn touch(buffer: &mut [u64]) {
    for page in buffer.chunks_mut(512) {
        std::hint::black_box(&mut page[0]);
        page[0] = std::hint::black_box(0);
    }
}
