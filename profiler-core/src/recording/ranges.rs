//! The range log: when each range of each thread began and ended, and which one it lay in.
//!
//! The observer below sees every range of the program. It writes an entry at the start and fills in the end, in a log
//! of the thread's own: two clock reads, a look at the thread's name table, a few stores. It keeps the thread's current
//! range in the word that driver calls carry (`cupti::calls::set_word`), which is how work finds its range.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cupti::calls::set_word;
use cupti::clock::now_ns;
use cupti::thread_log::{ThreadLog, Writer};
use nvtx::observer::{Observer, RangeStart, Token};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// A range's identity while it is recorded: which recording, which thread's log, which entry. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RangeWord(pub(crate) u64);

const SLOT_BITS: u32 = 30;
const THREAD_BITS: u32 = 22;
const EPOCH_BITS: u32 = 64 - SLOT_BITS - THREAD_BITS;

impl RangeWord {
    /// `None` where a number does not fit: the range is then counted as lost.
    fn new(epoch: u32, thread: u64, slot: u64) -> Option<Self> {
        let fits = thread < 1 << THREAD_BITS && slot < 1 << SLOT_BITS;
        fits.then_some(Self(
            u64::from(epoch) << (SLOT_BITS + THREAD_BITS) | thread << SLOT_BITS | slot,
        ))
    }

    pub(crate) fn epoch(self) -> u32 {
        (self.0 >> (SLOT_BITS + THREAD_BITS)) as u32
    }

    /// (index of the thread's log, index of the entry in it)
    pub(crate) fn place(self) -> (usize, usize) {
        let thread = self.0 >> SLOT_BITS & ((1 << THREAD_BITS) - 1);
        (thread as usize, (self.0 & ((1 << SLOT_BITS) - 1)) as usize)
    }
}

/// Words of an entry.
pub(crate) const WORDS: usize = 3;
/// The entry of the range around it plus 1, in the upper half; the index of its name in the lower.
const PLACE: usize = 0;
const START: usize = 1;
const END: usize = 2;

/// One range, as its thread wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RangeEntry {
    /// The entry of the same thread that it lay in.
    pub(crate) parent: Option<u64>,
    /// Index into the thread's names.
    pub(crate) name: u64,
    pub(crate) start_ns: u64,
    /// `None` if it had not ended when the log was read.
    pub(crate) end_ns: Option<u64>,
}

impl RangeEntry {
    pub(crate) fn from_words(words: [u64; WORDS]) -> Self {
        Self {
            parent: (words[PLACE] >> 32).checked_sub(1),
            name: words[PLACE] & u64::from(u32::MAX),
            start_ns: words[START],
            end_ns: (words[END] != 0).then_some(words[END]),
        }
    }

    pub(crate) fn to_words(self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[PLACE] = self.parent.map_or(0, |parent| parent + 1) << 32 | self.name;
        words[START] = self.start_ns;
        words[END] = self.end_ns.unwrap_or(0);
        words
    }
}

/// The ranges of one thread, in the order they began.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ThreadRanges {
    /// The kernel's id of the thread.
    pub(crate) thread_id: u32,
    pub(crate) thread_name: Option<String>,
    pub(crate) names: Vec<String>,
    pub(crate) entries: Vec<RangeEntry>,
}

/// What one recording's ranges came to.
#[derive(Debug, Default)]
pub(crate) struct RecordedRanges {
    pub(crate) threads: Vec<ThreadRanges>,
    /// Ranges that could not be recorded: on a thread that was ending, or beyond what a number can hold.
    pub(crate) lost: u64,
}

/// A thread's log, as the recording sees it.
#[derive(Debug)]
struct Shared {
    thread_id: u32,
    thread_name: Option<String>,
    names: Mutex<Vec<String>>,
    log: Arc<ThreadLog<WORDS>>,
}

static EPOCH: AtomicU32 = AtomicU32::new(0);
static THREADS: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());

/// The process's one observer of ranges.
pub(crate) static RECORDER: Recorder = Recorder { lost: AtomicU64::new(0) };

#[derive(Debug)]
pub(crate) struct Recorder {
    /// Ranges that could not be recorded.
    lost: AtomicU64,
}

/// Begins a recording; gives its epoch, which its range words carry.
pub(crate) fn begin() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let epoch = LAST.fetch_add(1, Ordering::Relaxed) % ((1 << EPOCH_BITS) - 1) + 1;
    THREADS.lock().clear();
    RECORDER.lost.store(0, Ordering::Relaxed);
    EPOCH.store(epoch, Ordering::Release);
    epoch
}

/// Ends it and gives its ranges. Those still open have no end.
pub(crate) fn end() -> RecordedRanges {
    EPOCH.store(0, Ordering::Release);
    let shared = std::mem::take(&mut *THREADS.lock());
    let threads = shared.into_iter().map(|thread| {
        let mut entries = Vec::with_capacity(thread.log.len() as usize);
        thread.log.for_each(END, |_, words| entries.push(RangeEntry::from_words(words)));
        ThreadRanges {
            thread_id: thread.thread_id,
            thread_name: thread.thread_name.clone(),
            names: thread.names.lock().clone(),
            entries,
        }
    });
    RecordedRanges { threads: threads.collect(), lost: RECORDER.lost.load(Ordering::Relaxed) }
}

/// The present thread's part of a recording.
struct Thread {
    epoch: u32,
    number: u64,
    writer: Writer<WORDS>,
    shared: Arc<Shared>,
    /// Indices of names already seen on this thread, by content: an address may hold another name tomorrow.
    names: FxHashMap<Box<str>, u64>,
    /// Open ranges, outermost first. Guards may be dropped in any order.
    open: Vec<RangeWord>,
}

thread_local!(static THREAD: RefCell<Option<Thread>> = const { RefCell::new(None) });

impl Thread {
    #[cold]
    #[inline(never)]
    fn register(epoch: u32) -> Self {
        let writer = Writer::new();
        let shared = Arc::new(Shared {
            thread_id: cupti::calls::thread_id(),
            thread_name: std::thread::current().name().map(str::to_owned),
            names: Mutex::default(),
            log: writer.log(),
        });
        let mut threads = THREADS.lock();
        threads.push(shared.clone());
        let number = threads.len() as u64 - 1;
        // A range that began before this recording is none of it.
        set_word(0);
        Self {
            epoch,
            number,
            writer,
            shared,
            names: FxHashMap::default(),
            open: Vec::with_capacity(32),
        }
    }

    #[inline]
    fn name(&mut self, name: &str) -> u64 {
        match self.names.get(name) {
            Some(&index) => index,
            None => self.new_name(name),
        }
    }

    #[cold]
    fn new_name(&mut self, name: &str) -> u64 {
        let mut names = self.shared.names.lock();
        let index = names.len() as u64;
        names.push(name.to_owned());
        self.names.insert(name.into(), index);
        index
    }

    fn start(&mut self, name: &str) -> Option<RangeWord> {
        let name = self.name(name);
        let parent = self.open.last().map_or(0, |parent| parent.place().1 as u64 + 1);
        let slot = self.writer.push([parent << 32 | name, now_ns(), 0]);
        let word = RangeWord::new(self.epoch, self.number, slot)?;
        self.open.push(word);
        set_word(word.0);
        Some(word)
    }

    fn end(&mut self, word: RangeWord) {
        let now = now_ns();
        if self.open.last() == Some(&word) {
            self.open.pop();
        } else if let Some(place) = self.open.iter().rposition(|open| *open == word) {
            self.open.remove(place);
        } else {
            return;
        }
        self.writer.set(word.place().1 as u64, END, now);
        set_word(self.open.last().map_or(0, |top| top.0));
    }
}

impl Observer for Recorder {
    fn range_start(&self, range: &RangeStart<'_>) -> Token {
        let epoch = EPOCH.load(Ordering::Acquire);
        if epoch == 0 {
            return Token::new(0);
        }
        let started = THREAD.try_with(|thread| {
            let mut thread = thread.try_borrow_mut().ok()?;
            let thread = match &mut *thread {
                Some(thread) if thread.epoch == epoch => thread,
                other => other.insert(Thread::register(epoch)),
            };
            thread.start(range.name)
        });
        match started {
            Ok(Some(word)) => Token::new(word.0),
            _ => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                Token::new(0)
            }
        }
    }

    fn range_end(&self, token: Token) {
        if token.get() == 0 {
            return;
        }
        let word = RangeWord(token.get());
        let _ = THREAD.try_with(|thread| {
            if let Ok(mut thread) = thread.try_borrow_mut()
                && let Some(thread) = thread.as_mut().filter(|thread| thread.epoch == word.epoch())
            {
                thread.end(word);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_its_place() {
        let word = RangeWord::new(4095, (1 << 22) - 1, (1 << 30) - 1).unwrap();
        assert_eq!((word.epoch(), word.place()), (4095, ((1 << 22) - 1, (1 << 30) - 1)));
        let word = RangeWord::new(1, 0, 0).unwrap();
        assert_ne!(word.0, 0);
        assert_eq!((word.epoch(), word.place()), (1, (0, 0)));
        assert!(RangeWord::new(1, 1 << 22, 0).is_none() && RangeWord::new(1, 0, 1 << 30).is_none());
    }

    #[test]
    fn an_entry_survives_its_words() {
        for entry in [
            RangeEntry { parent: None, name: 3, start_ns: 5, end_ns: Some(9) },
            RangeEntry { parent: Some(0), name: 0, start_ns: 1, end_ns: None },
        ] {
            assert_eq!(RangeEntry::from_words(entry.to_words()), entry);
        }
    }
}
