//! An append-only log that one thread writes and any thread may read meanwhile.
//!
//! Both hot paths of the profiler end here: the driver callbacks write calls, the range observer
//! writes ranges. A write is a few relaxed stores and one release store, with no lock. An entry is
//! a fixed number of 64-bit words. A word may be filled in later (the end of a call), so that a
//! stop or a crash loses no open entry. Every 4,096 entries the writer allocates the next chunk,
//! its only allocation.
//!
//! A log without drains retains all chunks. A [`Reader`] returns each entry once, when it has
//! finished, and frees the chunks without further entries to return. So a log that is drained now
//! and then holds the entries since, and the chunks of open entries. At a recording's end
//! [`Reader::let_go`] frees the rest, since writers live on.

use std::sync::{Arc, Weak};

use crate::shared::{AtomicBool, AtomicU64, AtomicUsize, Mutex, OnceLock, Ordering};

/// Entries in a chunk. Few in the models, so that a chunk is soon full.
const CHUNK: u64 = if cfg!(all(test, cupti_loom)) { 2 } else { 4096 };
/// Older chunks that a writer remembers before it checks which of them are freed.
const OLDER: usize = 64;

#[derive(Debug)]
struct Chunk<const WORDS: usize> {
    /// Its index among all chunks of the log.
    number: u64,
    entries: Box<[[AtomicU64; WORDS]]>,
    /// The log's count of allocated chunks.
    there: Arc<AtomicUsize>,
}

impl<const WORDS: usize> Chunk<WORDS> {
    fn new(number: u64, there: &Arc<AtomicUsize>) -> Arc<Self> {
        there.fetch_add(1, Ordering::Relaxed);
        let entry = |_| std::array::from_fn(|_| AtomicU64::new(0));
        let entries = (0..CHUNK).map(entry).collect();
        Arc::new(Self { number, entries, there: there.clone() })
    }

    fn entry(&self, slot: u64) -> &[AtomicU64; WORDS] {
        &self.entries[(slot % CHUNK) as usize]
    }

    /// Reads an entry's words. `last` is read first, so that if it is set, the other words are too.
    fn words(&self, slot: u64, last: usize) -> [u64; WORDS] {
        let entry = self.entry(slot);
        let newest = entry[last].load(Ordering::Acquire);
        let mut words = entry.each_ref().map(|word| word.load(Ordering::Relaxed));
        words[last] = newest;
        words
    }
}

impl<const WORDS: usize> Drop for Chunk<WORDS> {
    fn drop(&mut self) {
        self.there.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A chunk's link in the chain. A holder of a link holds all later chunks; a chunk may also be held
/// alone.
#[derive(Debug)]
struct Link<const WORDS: usize> {
    chunk: Arc<Chunk<WORDS>>,
    next: OnceLock<Arc<Link<WORDS>>>,
}

impl<const WORDS: usize> Link<WORDS> {
    fn new(number: u64, there: &Arc<AtomicUsize>) -> Arc<Self> {
        Arc::new(Self { chunk: Chunk::new(number, there), next: OnceLock::new() })
    }
}

impl<const WORDS: usize> Drop for Link<WORDS> {
    /// Unlinks the chain one by one: dropped recursively, a long one would overflow the stack.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(link) = next {
            next = Arc::into_inner(link).and_then(|mut link| link.next.take());
        }
    }
}

/// The entries from the beginning of a chunk to a slot, with the chunk of each, oldest first.
struct Walk<'a, const WORDS: usize> {
    link: &'a mut Arc<Link<WORDS>>,
    slot: u64,
    len: u64,
}

impl<const WORDS: usize> Walk<'_, WORDS> {
    /// Returns the next entry's slot. `link` is then the link of its chunk.
    fn next(&mut self) -> Option<u64> {
        let slot = self.slot;
        if slot >= self.len {
            return None;
        }
        if slot / CHUNK != self.link.chunk.number {
            // A reader that sees the length sees the chunk: it was linked before.
            *self.link = self.link.next.get()?.clone();
        }
        self.slot = slot + 1;
        Some(slot)
    }
}

/// A thread's log, for its readers.
#[derive(Debug)]
pub struct ThreadLog<const WORDS: usize> {
    /// The oldest chunk that no reader has passed. The writer never takes this lock.
    first: Mutex<Arc<Link<WORDS>>>,
    len: AtomicU64,
    closed: AtomicBool,
    chunks: Arc<AtomicUsize>,
}

/// The writer's side; it belongs to one thread.
#[derive(Debug)]
pub struct Writer<const WORDS: usize> {
    log: Arc<ThreadLog<WORDS>>,
    current: Arc<Chunk<WORDS>>,
    len: u64,
    link: Arc<Link<WORDS>>,
    /// Chunks before the current one that may still exist, oldest first: readers retain those with
    /// open entries.
    older: Vec<(u64, Weak<Chunk<WORDS>>)>,
    /// The number of older chunks at which the writer next checks which are freed.
    most_older: usize,
}

impl<const WORDS: usize> Writer<WORDS> {
    /// A new, empty log with its writer.
    #[must_use]
    pub fn new() -> Self {
        let chunks = Arc::new(AtomicUsize::new(0));
        let link = Link::new(0, &chunks);
        let current = link.chunk.clone();
        let log = Arc::new(ThreadLog {
            first: Mutex::new(link.clone()),
            len: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            chunks,
        });
        Self { log, current, len: 0, link, older: Vec::new(), most_older: OLDER }
    }

    /// The log, for readers.
    pub fn log(&self) -> Arc<ThreadLog<WORDS>> {
        self.log.clone()
    }

    /// Entries written so far: the slot that the next one will have.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
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
        if self.older.len() >= self.most_older {
            self.older.retain(|(_, chunk)| chunk.strong_count() != 0);
            self.most_older = OLDER.max(self.older.len() * 2);
        }
        self.older.push((self.current.number, Arc::downgrade(&self.current)));
        let next = || Link::new(self.current.number + 1, &self.log.chunks);
        let link = self.link.next.get_or_init(next).clone();
        self.current = link.chunk.clone();
        self.link = link;
    }

    /// Stores one word of an earlier entry. A reader of this word then sees everything that was
    /// stored before. Does nothing if the entry had finished and was drained.
    #[inline]
    pub fn set(&self, slot: u64, word: usize, value: u64) {
        if slot >= self.len.saturating_sub(1) / CHUNK * CHUNK {
            self.current.entry(slot)[word].store(value, Ordering::Release);
        } else {
            self.set_older(slot, word, value);
        }
    }

    #[cold]
    #[inline(never)]
    fn set_older(&self, slot: u64, word: usize, value: u64) {
        if let Some(chunk) = self.older(slot) {
            chunk.entry(slot)[word].store(value, Ordering::Release);
        }
    }

    /// One word of an earlier entry; 0 if the entry had finished and was drained.
    pub fn get(&self, slot: u64, word: usize) -> u64 {
        if slot >= self.len.saturating_sub(1) / CHUNK * CHUNK {
            self.current.entry(slot)[word].load(Ordering::Relaxed)
        } else {
            self.get_older(slot, word)
        }
    }

    #[cold]
    #[inline(never)]
    fn get_older(&self, slot: u64, word: usize) -> u64 {
        self.older(slot).map_or(0, |chunk| chunk.entry(slot)[word].load(Ordering::Relaxed))
    }

    /// Returns the chunk of an entry that is not in the current one, if it still exists.
    fn older(&self, slot: u64) -> Option<Arc<Chunk<WORDS>>> {
        let place = self.older.binary_search_by_key(&(slot / CHUNK), |&(number, _)| number).ok()?;
        self.older[place].1.upgrade()
    }
}

impl<const WORDS: usize> Default for Writer<WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const WORDS: usize> Drop for Writer<WORDS> {
    fn drop(&mut self) {
        self.log.closed.store(true, Ordering::Release);
    }
}

impl<const WORDS: usize> ThreadLog<WORDS> {
    /// Entries written so far, drained ones included.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// True if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that the log takes, in chunks of 4,096 entries.
    pub fn held_bytes(&self) -> u64 {
        self.chunks.load(Ordering::Relaxed) as u64 * CHUNK * size_of::<[u64; WORDS]>() as u64
    }

    /// Returns a reader that removes entries from the log; a log has one reader. A later one begins
    /// at the first chunk that no other has passed.
    ///
    /// `last` is the word that shows the end of an entry: 0 until the entry has finished, then a
    /// time, which grows from one finished entry to the next. `None` means that entries have
    /// finished when they are written.
    #[must_use]
    pub fn reader(self: &Arc<Self>, last: Option<usize>) -> Reader<WORDS> {
        let link = self.first.lock().clone();
        let next = link.chunk.number * CHUNK;
        Reader { log: self.clone(), last, link, next, open: Vec::new() }
    }
}

/// Removes entries from a log, each once, and frees the log's memory.
///
/// It may be used on any thread, even after the writer is gone.
#[derive(Debug)]
pub struct Reader<const WORDS: usize> {
    log: Arc<ThreadLog<WORDS>>,
    last: Option<usize>,
    /// The chunk of the last entry seen, or the first chunk.
    link: Arc<Link<WORDS>>,
    /// The first unseen entry.
    next: u64,
    /// Entries that were seen before they had finished, oldest first, each with its chunk.
    open: Vec<(u64, Arc<Chunk<WORDS>>)>,
}

impl<const WORDS: usize> Reader<WORDS> {
    /// Visits every entry that finished before `until` and was not visited before, oldest first,
    /// and frees the chunks without further entries. `until` is a past time, in the time of the
    /// entries' last word: entries that finish meanwhile are left to the next drain. Without a last
    /// word `until` has no effect.
    ///
    /// An entry is visited after those that were appended while it was open and that had finished
    /// with it: they are in the same drain or an earlier one. Costs a check of each entry that was
    /// open, and of each later one.
    pub fn drain(&mut self, until: u64, mut visit: impl FnMut(u64, [u64; WORDS])) {
        let finished = |chunk: &Chunk<WORDS>, slot: u64, last: Option<usize>| {
            let words = chunk.words(slot, last.unwrap_or(0));
            last.is_none_or(|last| words[last] != 0 && words[last] < until).then_some(words)
        };
        let last = self.last;
        // Before the length is read: entries that were appended while these were open are then in
        // reach.
        self.open.retain(|(slot, chunk)| match finished(chunk, *slot, last) {
            Some(words) => {
                visit(*slot, words);
                false
            }
            None => true,
        });
        loop {
            let mut found = false;
            let len = self.log.len();
            let mut walk = Walk { link: &mut self.link, slot: self.next, len };
            while let Some(slot) = walk.next() {
                let chunk = &walk.link.chunk;
                self.next = slot + 1;
                match finished(chunk, slot, last) {
                    Some(words) => {
                        found = true;
                        visit(slot, words);
                    }
                    None => self.open.push((slot, chunk.clone())),
                }
            }
            // Others may have been appended to an entry that finished after the length was read.
            if !found || last.is_none() {
                break;
            }
        }
        self.release_passed();
    }

    /// The words of the entry that was appended last.
    pub fn last(&self) -> Option<[u64; WORDS]> {
        let slot = self.log.len().checked_sub(1)?;
        let mut link = &self.link;
        while link.chunk.number < slot / CHUNK {
            link = link.next.get()?;
        }
        Some(link.chunk.words(slot, self.last.unwrap_or(0)))
    }

    /// Frees the chunks before the current one, except those of open entries.
    fn release_passed(&self) {
        let mut first = self.log.first.lock();
        if first.chunk.number < self.link.chunk.number {
            *first = self.link.clone();
        }
    }

    /// Visits every entry that was not drained, finished or not, oldest first, and removes none.
    /// After a drain these are the open ones and those appended since.
    pub fn rest(&self, mut visit: impl FnMut(u64, [u64; WORDS])) {
        let last = self.last.unwrap_or(0);
        for (slot, chunk) in &self.open {
            visit(*slot, chunk.words(*slot, last));
        }
        let mut link = self.link.clone();
        let mut walk = Walk { link: &mut link, slot: self.next, len: self.log.len() };
        while let Some(slot) = walk.next() {
            visit(slot, walk.link.chunk.words(slot, last));
        }
    }

    /// Discards all entries, finished or not, and frees all chunks but the last: for the end of a
    /// recording, whose writer may live on. Words that the writer fills in later are lost.
    ///
    /// Costs some nanoseconds a chunk.
    pub fn let_go(&mut self) {
        self.open.clear();
        let len = self.log.len();
        // The chunks were linked before the length grew.
        while self.link.chunk.number < len.saturating_sub(1) / CHUNK {
            let Some(next) = self.link.next.get().cloned() else { break };
            self.link = next;
        }
        self.next = len;
        self.release_passed();
    }

    /// The log.
    pub fn log(&self) -> &ThreadLog<WORDS> {
        &self.log
    }

    /// The number of entries that [`rest`](Self::rest) visits, or more.
    pub fn len(&self) -> usize {
        self.open.len() + (self.log.len() - self.next) as usize
    }

    /// True if all entries were drained.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if no entry will follow: the writer has ended, and all its entries were drained.
    pub fn is_done(&self) -> bool {
        self.log.closed.load(Ordering::Acquire) && self.is_empty()
    }
}

#[cfg(all(test, not(cupti_loom)))]
mod tests {
    use super::*;

    fn read_all<const W: usize>(log: &Arc<ThreadLog<W>>) -> Vec<[u64; W]> {
        let mut out = Vec::new();
        log.reader(Some(W - 1)).rest(|slot, words| {
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
        let entries = read_all(&log);
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
        let entries = read_all(&writer.log());
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
                log.reader(Some(2)).rest(|slot, [a, b, end]| {
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

    fn chunks<const W: usize>(log: &ThreadLog<W>) -> u64 {
        log.held_bytes() / (CHUNK * W as u64 * 8)
    }

    fn drain<const W: usize>(reader: &mut Reader<W>, until: u64) -> Vec<(u64, [u64; W])> {
        let mut out = Vec::new();
        reader.drain(until, |slot, words| out.push((slot, words)));
        out
    }

    fn slots<const W: usize>(entries: Vec<(u64, [u64; W])>) -> Vec<u64> {
        entries.into_iter().map(|(slot, _)| slot).collect()
    }

    #[test]
    fn entry_is_returned_once_by_the_drain_after_its_end() {
        let mut writer = Writer::<2>::new();
        let mut reader = writer.log().reader(Some(1));
        assert!(drain(&mut reader, u64::MAX).is_empty() && reader.is_empty());
        for i in 0..4 {
            writer.push([i, 0]);
        }
        writer.set(1, 1, 5);
        writer.set(3, 1, 6);
        assert_eq!(drain(&mut reader, u64::MAX), [(1, [1, 5]), (3, [3, 6])]);
        let mut open = Vec::new();
        reader.rest(|slot, words| open.push((slot, words)));
        assert_eq!(open, [(0, [0, 0]), (2, [2, 0])]);

        writer.push([4, 0]);
        for (slot, end) in [(2, 7), (0, 9), (4, 10)] {
            writer.set(slot, 1, end);
        }
        assert_eq!(slots(drain(&mut reader, 7)), [], "it ended at the cut");
        let mut rest = Vec::new();
        reader.rest(|slot, words| rest.push((slot, words[1])));
        assert_eq!((rest, reader.len()), (vec![(0, 9), (2, 7), (4, 10)], 3));
        assert_eq!(slots(drain(&mut reader, 10)), [0, 2]);
        assert!(!reader.is_done());
        drop(writer);
        assert!(!reader.is_done());
        assert_eq!(slots(drain(&mut reader, 11)), [4]);
        assert!(reader.is_done());
    }

    #[test]
    fn entry_without_an_end_word_is_complete_when_written() {
        let mut writer = Writer::<1>::new();
        let mut reader = writer.log().reader(None);
        let mut given = Vec::new();
        for i in 0..CHUNK * 2 {
            writer.push([i % 2]);
            if i % 1000 == 0 {
                given.extend(slots(drain(&mut reader, 0)));
            }
        }
        given.extend(slots(drain(&mut reader, 0)));
        assert!(given.into_iter().eq(0..CHUNK * 2));
        assert!(reader.is_empty());
    }

    #[test]
    fn drained_chunks_are_reused_except_those_of_open_entries() {
        const N: u64 = 2_000_000;
        const OPEN: [u64; 3] = [10, CHUNK * 7, N - CHUNK * 20];
        let mut writer = Writer::<2>::new();
        let log = writer.log();
        let mut reader = log.reader(Some(1));
        let (mut given, mut most) = (0, 0);
        for i in 0..N {
            assert_eq!(writer.push([i, 0]), i);
            if !OPEN.contains(&i) {
                writer.set(i, 1, i + 1);
            }
            if i % 10_000 == 9_999 {
                given += drain(&mut reader, u64::MAX).len() as u64;
                most = most.max(chunks(&log));
            }
        }
        // Three with open entries, the present one, and what came between two drains.
        assert_eq!(given, N - 3);
        assert!(most <= 3 + 1 + 3, "{most} chunks");
        assert!(writer.older.len() <= 2 * OLDER, "{}", writer.older.len());
        assert_eq!(reader.len(), 3);
        for slot in OPEN {
            assert_eq!(writer.get(slot, 0), slot);
            writer.set(slot, 1, N);
        }
        assert_eq!(slots(drain(&mut reader, u64::MAX)), OPEN);
        assert!(chunks(&log) <= 2, "{} chunks", chunks(&log));
        // Of what is gone nothing is left to read or to write.
        writer.set(5, 1, 7);
        assert_eq!(writer.get(5, 0), 0);
        drop((writer, reader, log));
    }

    #[test]
    fn released_log_holds_at_most_one_chunk() {
        for len in [0, 1, CHUNK, CHUNK + 1, 5 * CHUNK, 5 * CHUNK + 7] {
            let mut writer = Writer::<2>::new();
            let log = writer.log();
            let mut reader = log.reader(Some(1));
            for slot in 0..len {
                writer.push([slot, slot % 2]);
                // Some are open, of a drain as well.
                if slot == CHUNK / 2 {
                    drain(&mut reader, u64::MAX);
                }
            }
            reader.let_go();
            assert_eq!((chunks(&log), reader.len()), (1, 0), "{len}");
            reader.rest(|slot, _| panic!("{slot}"));
            // The writer goes on, and what it ends late is gone.
            if len > CHUNK {
                writer.set(0, 1, 9);
                assert_eq!(writer.get(0, 0), 0);
            }
            for slot in len..len + 2 * CHUNK {
                assert_eq!(writer.push([slot, 1]), slot);
            }
            let given = slots(drain(&mut reader, u64::MAX));
            assert!(given.into_iter().eq(len..len + 2 * CHUNK), "{len}");
        }
    }

    /// Entries are nested five deep, some stay open for thousands of others; they are drained at random times.
    #[test]
    fn concurrent_drain_returns_every_entry_once_inner_first() {
        const N: u64 = 300_000;
        let (clock, drains) = (AtomicU64::new(1), AtomicU64::new(0));
        let mut writer = Writer::<3>::new();
        let log = writer.log();
        let mut reader = log.reader(Some(2));
        let mut end_of = vec![0; N as usize];
        std::thread::scope(|scope| {
            let (clock, drains) = (&clock, &drains);
            scope.spawn(move || {
                let mut open: Vec<u64> = Vec::new();
                let mut random = 1u64;
                for i in 0..N {
                    // On a busy machine the reader may not run for long.
                    let so_far = drains.load(Ordering::Relaxed);
                    while i % (N / 10) == 0 && drains.load(Ordering::Relaxed) == so_far {
                        std::thread::yield_now();
                    }
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let parent = open.last().map_or(0, |slot| slot + 1);
                    let slot = writer.push([!i, parent, 0]);
                    assert_eq!(slot, i);
                    open.push(slot);
                    let keep = if i % 50_000 < 40_000 { 2 } else { 1 };
                    while open.len() > keep && (open.len() > 5 || random >> 62 != 0) {
                        let Some(slot) = open.pop() else { break };
                        writer.set(slot, 2, clock.fetch_add(1, Ordering::Relaxed));
                        random = random.rotate_left(7);
                    }
                }
                while let Some(slot) = open.pop() {
                    writer.set(slot, 2, clock.fetch_add(1, Ordering::Relaxed));
                }
            });
            while !reader.is_done() {
                let nth = drains.load(Ordering::Relaxed);
                let until =
                    if nth.is_multiple_of(2) { clock.load(Ordering::Relaxed) } else { u64::MAX };
                let mut given = drain(&mut reader, until);
                drains.store(nth + 1, Ordering::Relaxed);
                assert!(given.iter().all(|&(_, [.., end])| end < until));
                // By end: those within another come before it.
                given.sort_by_key(|&(_, [.., end])| end);
                for (slot, [not, parent, end]) in given {
                    assert_eq!((not, end_of[slot as usize]), (!slot, 0), "slot {slot}");
                    end_of[slot as usize] = end;
                    if let Some(parent) = parent.checked_sub(1) {
                        assert_eq!(end_of[parent as usize], 0, "{parent} came before {slot}");
                    }
                }
            }
        });
        assert!(drains.into_inner() > 5);
        assert!(end_of.iter().all(|&end| end != 0));
        assert_eq!(log.len(), N);
        assert!(chunks(&log) <= 2, "{}", chunks(&log));
    }
}
