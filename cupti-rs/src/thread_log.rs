//! An append-only log that one thread writes and any thread may read meanwhile.
//!
//! Both hot paths of the profiler end here: the driver callbacks write calls, the range observer writes ranges. A write
//! is a few relaxed stores and one release store, with no lock. Entries are fixed numbers of 64-bit words; a word may
//! be filled in later (the end of a call), which is how a stop or a crash loses no open entry. Every 4,096 entries the
//! writer allocates the next chunk: the one allocation on the way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Entries in a chunk.
const CHUNK: u64 = 4096;

#[derive(Debug)]
struct Chunk<const WORDS: usize> {
    entries: Box<[[AtomicU64; WORDS]]>,
    next: OnceLock<Arc<Chunk<WORDS>>>,
}

impl<const WORDS: usize> Chunk<WORDS> {
    fn new() -> Arc<Self> {
        let entries = (0..CHUNK).map(|_| [const { AtomicU64::new(0) }; WORDS]).collect();
        Arc::new(Self { entries, next: OnceLock::new() })
    }

    fn entry(&self, slot: u64) -> &[AtomicU64; WORDS] {
        &self.entries[(slot % CHUNK) as usize]
    }
}

impl<const WORDS: usize> Drop for Chunk<WORDS> {
    /// Unlinks the chain one by one: dropped recursively, a long one would overflow the stack.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(chunk) = next {
            next = Arc::into_inner(chunk).and_then(|mut chunk| chunk.next.take());
        }
    }
}

/// The reader's side of a thread's log.
#[derive(Debug)]
pub struct ThreadLog<const WORDS: usize> {
    first: Arc<Chunk<WORDS>>,
    len: AtomicU64,
}

/// The writer's side; it belongs to one thread.
#[derive(Debug)]
pub struct Writer<const WORDS: usize> {
    log: Arc<ThreadLog<WORDS>>,
    current: Arc<Chunk<WORDS>>,
    len: u64,
}

impl<const WORDS: usize> Writer<WORDS> {
    /// A new, empty log with its writer.
    #[must_use]
    pub fn new() -> Self {
        let first = Chunk::new();
        let log = Arc::new(ThreadLog { first: first.clone(), len: AtomicU64::new(0) });
        Self { log, current: first, len: 0 }
    }

    /// The log, for readers.
    #[must_use]
    pub fn log(&self) -> Arc<ThreadLog<WORDS>> {
        self.log.clone()
    }

    /// Appends an entry and returns its slot number, counted from 0.
    #[inline]
    pub fn push(&mut self, words: [u64; WORDS]) -> u64 {
        let slot = self.len;
        if slot != 0 && slot.is_multiple_of(CHUNK) {
            self.grow();
        }
        for (cell, word) in self.current.entry(slot).iter().zip(words) {
            cell.store(word, Ordering::Relaxed);
        }
        self.len = slot + 1;
        self.log.len.store(self.len, Ordering::Release);
        slot
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        self.current = self.current.next.get_or_init(Chunk::new).clone();
    }

    /// Stores one word of an earlier entry; whoever then reads this word sees all that was stored before.
    #[inline]
    pub fn set(&self, slot: u64, word: usize, value: u64) {
        if slot >= self.len.saturating_sub(1) / CHUNK * CHUNK {
            self.current.entry(slot)[word].store(value, Ordering::Release);
        } else {
            self.log.set(slot, word, value);
        }
    }

    /// One word of an earlier entry.
    #[must_use]
    pub fn get(&self, slot: u64, word: usize) -> u64 {
        if slot >= self.len.saturating_sub(1) / CHUNK * CHUNK {
            self.current.entry(slot)[word].load(Ordering::Relaxed)
        } else {
            self.log.chunk(slot).map_or(0, |chunk| chunk.entry(slot)[word].load(Ordering::Relaxed))
        }
    }
}

impl<const WORDS: usize> Default for Writer<WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const WORDS: usize> ThreadLog<WORDS> {
    /// The chunk that holds a slot, by walking the chain: for the rare write to an entry of an older chunk.
    fn chunk(&self, slot: u64) -> Option<&Chunk<WORDS>> {
        let mut chunk = &self.first;
        for _ in 0..slot / CHUNK {
            chunk = chunk.next.get()?;
        }
        Some(chunk)
    }

    #[cold]
    fn set(&self, slot: u64, word: usize, value: u64) {
        if let Some(chunk) = self.chunk(slot) {
            chunk.entry(slot)[word].store(value, Ordering::Release);
        }
    }

    /// Entries written so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// True if nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives every entry written so far, oldest first. `last` is the word that is filled in last: it is read first, so
    /// that where it is set, the other words are too.
    pub fn for_each(&self, last: usize, mut visit: impl FnMut(u64, [u64; WORDS])) {
        let len = self.len();
        let mut chunk = &self.first;
        for slot in 0..len {
            if slot != 0 && slot % CHUNK == 0 {
                let Some(next) = chunk.next.get() else { return };
                chunk = next;
            }
            let entry = chunk.entry(slot);
            let newest = entry[last].load(Ordering::Acquire);
            let mut words = entry.each_ref().map(|word| word.load(Ordering::Relaxed));
            words[last] = newest;
            visit(slot, words);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<const W: usize>(log: &ThreadLog<W>) -> Vec<[u64; W]> {
        let mut out = Vec::new();
        log.for_each(W - 1, |slot, words| {
            assert_eq!(slot, out.len() as u64);
            out.push(words);
        });
        out
    }

    #[test]
    fn entries_come_back_in_order_across_chunks() {
        let mut writer = Writer::<2>::new();
        let log = writer.log();
        assert!(log.is_empty());
        for i in 0..CHUNK * 2 + 5 {
            assert_eq!(writer.push([i, i * 3]), i);
        }
        let entries = all(&log);
        assert_eq!(entries.len() as u64, CHUNK * 2 + 5);
        assert!(entries.iter().enumerate().all(|(i, e)| *e == [i as u64, i as u64 * 3]));
    }

    #[test]
    fn a_word_can_be_filled_in_later_in_any_chunk() {
        let mut writer = Writer::<2>::new();
        for i in 0..CHUNK {
            writer.push([i, 0]);
        }
        writer.set(CHUNK - 1, 1, 7); // the chunk is full, and the next one does not exist yet
        writer.push([CHUNK, 0]);
        writer.set(3, 1, 9);
        writer.set(CHUNK, 1, 11);
        assert_eq!((writer.get(3, 1), writer.get(CHUNK, 1)), (9, 11));
        let entries = all(&writer.log());
        assert_eq!(entries[CHUNK as usize - 1], [CHUNK - 1, 7]);
        assert_eq!(entries[3], [3, 9]);
        assert_eq!(entries[CHUNK as usize], [CHUNK, 11]);
    }

    #[test]
    fn a_reader_beside_the_writer_sees_only_whole_entries() {
        const N: u64 = 100_000;
        let mut writer = Writer::<3>::new();
        let log = writer.log();
        let reader = std::thread::spawn(move || {
            while log.len() < N {
                log.for_each(2, |slot, [a, b, end]| {
                    assert_eq!((a, b), (slot, !slot));
                    assert!(end == 0 || end == slot + 1);
                });
            }
        });
        for i in 0..N {
            let slot = writer.push([i, !i, 0]);
            writer.set(slot, 2, i + 1);
        }
        reader.join().unwrap();
    }

    #[test]
    fn a_chain_of_many_chunks_drops_without_recursion() {
        let mut writer = Writer::<1>::new();
        for i in 0..CHUNK * 3000 {
            writer.push([i]);
        }
        std::thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(move || drop(writer))
            .unwrap()
            .join()
            .unwrap();
    }
}
