//! The range log: when each range of each thread began and ended, and which one it lay in.
//!
//! The observer below sees every range of the program. It writes an entry at the start and fills in the end, in a log
//! of the thread's own: two clock reads, a look at the thread's name table, a few stores. It keeps the thread's current
//! range in the tag that driver calls carry (`cupti::calls::set_word`), which is how work finds its range.
//!
//! What only some ranges have (payload, fields, the process range that they are a stay in), marks and ranges of the
//! process go to a second log of the thread, which begins with its first entry. So do contexts of several ranges, which
//! have a tag of their own.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cupti::calls::set_word;
use cupti::clock::now_ns;
use cupti::log_registry::{LogRegistry, Registered};
use cupti::tables;
use cupti::thread_log::{Reader, Writer};
use nvtx::FieldValue;
use nvtx::observer::{Mark, Observer, RangeStart, Token};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Losses;
pub(crate) use super::entries::{
    Detail, EVENT_WORDS, Event, Label, RangeEntry, Subject, Texts, Value, WORDS,
};
use super::entries::{
    END, FIELD, HANDED, JOINS, KIND_SHIFT, LEFT_OPEN, MARK, MEMBER, OF_EVENT, PAYLOAD, PIECES,
    PROCESS_END, PROCESS_START, START, TEXT, UNIT_MASK, WITHIN, entries_of, pieces,
    words_of_payload,
};
pub(super) use super::entries::{LoggedEvent, put_texts_together};
pub(crate) use super::slots::Slots;
use super::tag::LOGS_END;
pub(crate) use super::tag::RangeTag;
#[cfg(test)]
pub(crate) use super::tag::SLOTS;
use crate::record::range_tap;

/// A thread's log, as the recording sees it.
#[derive(Debug)]
pub(super) struct Shared {
    /// The log's number in the tags of its ranges.
    pub(super) number: u64,
    pub(super) thread_id: u32,
    pub(super) thread_name: Option<String>,
    pub(super) texts: Mutex<Texts>,
    /// `None` once the thread has ended and all was taken.
    readers: Mutex<Option<Readers>>,
}

/// Those who read a thread's logs hold this lock; the thread itself does when it begins its second log.
#[derive(Debug)]
struct Readers {
    ranges: Reader<WORDS>,
    events: Option<Reader<EVENT_WORDS>>,
}

impl Readers {
    fn of(writer: &Writer<WORDS>) -> Mutex<Option<Self>> {
        Mutex::new(Some(Self { ranges: writer.log().reader(Some(END)), events: None }))
    }

    fn is_done(&self) -> bool {
        self.ranges.is_done() && self.events.as_ref().is_none_or(Reader::is_done)
    }
}

/// What was read of a thread's logs.
#[derive(Debug, Clone)]
pub(super) struct ThreadPart {
    pub(super) shared: Arc<Shared>,
    pub(super) entries: Vec<RangeEntry>,
    pub(super) slots: Slots,
    pub(super) events: Vec<LoggedEvent>,
}

impl ThreadPart {
    pub(super) fn none(shared: &Arc<Shared>) -> Self {
        let (entries, slots, events) = Default::default();
        Self { shared: shared.clone(), entries, slots, events }
    }
}

impl Shared {
    #[cfg(test)]
    pub(super) fn of_thread(number: u64) -> Arc<Self> {
        let readers = Readers::of(&Writer::new());
        let texts = Mutex::default();
        Arc::new(Self { number, thread_id: 0, thread_name: None, texts, readers })
    }

    /// Details come before what they are about, and texts before what refers to them: read after it, they are there.
    fn read(self: &Arc<Self>, until_ns: u64, take: bool) -> ThreadPart {
        let mut slots = Slots::default();
        let mut events = Vec::new();
        let mut readers = self.readers.lock();
        let Some(readers) = &mut *readers else {
            return ThreadPart::none(self);
        };
        let mut entries = tables::with_capacity(readers.ranges.len());
        let visit = |slot, words| {
            let entry = RangeEntry::from_log(words);
            if entry.start_ns() < until_ns {
                entries.push(entry.at(until_ns));
                slots.push(slot);
            }
        };
        if take {
            readers.ranges.drain(until_ns, visit)
        } else {
            readers.ranges.rest(visit)
        }
        if let Some(log) = &mut readers.events {
            let visit = |slot, words| events.push((slot, words));
            if take { log.drain(until_ns, visit) } else { log.rest(visit) }
        }
        ThreadPart { shared: self.clone(), entries, slots, events }
    }

    /// Frees what its logs hold, but for a chunk of each, which the thread keeps with its writers.
    fn let_go(&self) {
        let Some(mut readers) = self.readers.lock().take() else { return };
        readers.ranges.let_go();
        if let Some(log) = &mut readers.events {
            log.let_go();
        }
    }

    /// Whether there is nothing more to come. Then its logs go; what refers to it may stay.
    fn is_done(&self) -> bool {
        let mut readers = self.readers.lock();
        let is_done = readers.as_ref().is_none_or(Readers::is_done);
        if is_done {
            *readers = None;
        }
        is_done
    }
}

/// The logs of the threads of the present recording. The number of its first log tells recordings apart.
static LOGS: LogRegistry<Arc<Shared>> = LogRegistry::new();

/// The process's one observer of ranges.
pub(crate) static RECORDER: Recorder = Recorder {
    lost: AtomicU64::new(0),
    earlier_contexts: AtomicU64::new(0),
    forgotten_lanes: AtomicU64::new(0),
};

#[derive(Debug)]
pub(crate) struct Recorder {
    /// Ranges that could not be recorded.
    lost: AtomicU64,
    /// Contexts and ranges of the process of earlier recordings that were used in the present one.
    earlier_contexts: AtomicU64,
    /// Lanes that threads forgot to stay within their bound.
    forgotten_lanes: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Begins a recording; gives the number of its first log.
pub(crate) fn begin() -> u64 {
    LOGS.begin(|| {
        RECORDER.lost.store(0, Ordering::Relaxed);
        RECORDER.earlier_contexts.store(0, Ordering::Relaxed);
        RECORDER.forgotten_lanes.store(0, Ordering::Relaxed);
    })
}

/// Ends it and gives what of it was not taken. Ranges that are still open have no end.
pub(super) fn end() -> Vec<ThreadPart> {
    let threads = LOGS.end();
    let last = |thread: &Arc<Shared>| {
        let part = thread.read(u64::MAX, false);
        thread.let_go();
        part
    };
    threads.iter().map(last).collect()
}

/// Takes the ranges that had ended before a time, which has passed, and all that was said of any range; threads go on
/// recording. Only a thread that meets a new name, or begins its second log, may wait.
pub(super) fn take(until_ns: u64) -> Vec<ThreadPart> {
    let threads = LOGS.logs();
    let parts = threads.iter().map(|thread| thread.read(until_ns, true));
    let parts = parts.filter(|part| !(part.entries.is_empty() && part.events.is_empty())).collect();
    LOGS.retain(|thread| !thread.is_done());
    parts
}

/// What was recorded before a time, which has passed, and was not taken. What began before it and is being recorded at
/// this moment is left out, and nothing of another thread can refer to it yet.
pub(super) fn rest(until_ns: u64) -> Vec<ThreadPart> {
    let threads = LOGS.logs();
    threads.iter().map(|thread| thread.read(until_ns, false)).collect()
}

/// What the present recording lost so far, and what it met of earlier ones.
pub(crate) fn losses() -> Losses {
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Losses {
        ranges: of(&RECORDER.lost),
        earlier_contexts: of(&RECORDER.earlier_contexts),
        forgotten_lanes: of(&RECORDER.forgotten_lanes),
        ..Losses::default()
    }
}

/// The number of the first log of the present recording; 0 without one.
pub(crate) fn first_log() -> u64 {
    LOGS.first()
}

/// Counts a lane that its thread forgot.
pub(crate) fn count_forgotten_lane() {
    count(&RECORDER.forgotten_lanes);
}

/// The present thread's part of a recording.
struct Thread {
    /// The number of the first log of the recording.
    first_log: u64,
    number: u64,
    writer: Writer<WORDS>,
    events: Option<Writer<EVENT_WORDS>>,
    shared: Arc<Shared>,
    /// Labels of names alone, by content: an address may hold another name tomorrow.
    plain: FxHashMap<Box<str>, u64>,
    /// Some of them by address and content, so that names that come again and again need not be hashed.
    recent: [Recent; RECENT],
    /// The other labels: by name, domain, category's number and colour.
    labels: FxHashMap<(u32, Option<u32>, u32, Option<u32>), u64>,
    /// All texts but for values of fields that came when these had no more room.
    texts: FxHashMap<Box<str>, u32>,
    /// So many bytes are left for values of fields.
    room: usize,
    /// Details of the entry that comes next, still without the entry's slot.
    unsaid: Vec<[u64; EVENT_WORDS]>,
    /// Open ranges and attached ones of other threads, outermost first. Guards may be dropped in any order.
    open: Vec<Open>,
    /// Contexts attached so far.
    attached: u64,
}

/// What a thread is in: a range, by its own guard or as a context that was attached. A range may be there several times.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Open {
    tag: RangeTag,
    /// Which attachment it is; 0 for the range's own guard.
    attached: u64,
}

/// A name as it lay in the program when its label was looked up.
#[derive(Default)]
struct Recent {
    address: usize,
    name: Box<str>,
    label: u64,
}

/// Bytes of a thread's tables for values of fields: those that come again and again are there soon. Later ones stand in the log
/// and go with it, so that a session which lasts does not grow with every request's own id.
const VALUES: usize = 256 << 10;
/// What a text takes beside its bytes: in the table, in the map to its index, and once more its bytes there.
const TEXT_PLACE: usize = 64;

/// What is said of an entry at most, beside its fields.
const DETAILS: u64 = 3;

/// Places for them; a name has one, by its address.
const RECENT: usize = 16;

/// Puts a range of any thread up on this one; gives the number of the attachment, or `None` if the range is none of the
/// present recording, which is counted.
pub(crate) fn attach(tag: RangeTag) -> Option<u64> {
    if tag.log() < LOGS.first() {
        count(&RECORDER.earlier_contexts);
        return None;
    }
    let enter = |thread: &mut Thread| {
        // Another recording may have begun meanwhile.
        if !thread.is_of_recording(tag) {
            return None;
        }
        thread.attached += 1;
        thread.enter(Open { tag, attached: thread.attached });
        Some(thread.attached)
    };
    RECORDER.with_thread(enter).flatten()
}

/// Takes away what [`attach`] put up under this number.
pub(crate) fn detach(tag: RangeTag, attached: u64) {
    RECORDER.with_known_thread(|thread| _ = thread.leave(Open { tag, attached }));
}

/// The tag under which work belongs to several ranges of the present recording, each of which is there once; of one that
/// of this one, and `None` of none. If it cannot be written down, which is counted, the first one is left.
pub(crate) fn join(tags: impl IntoIterator<Item = RangeTag>) -> Option<RangeTag> {
    let first_log = LOGS.first();
    let mut known = FxHashSet::default();
    let tags = tags.into_iter().filter(|tag| {
        let is_of_this = first_log != 0 && tag.log() >= first_log;
        if first_log != 0 && tag.0 != 0 && !is_of_this {
            count(&RECORDER.earlier_contexts);
        }
        is_of_this && known.insert(*tag)
    });
    match tags.collect::<Vec<_>>()[..] {
        [first, second, ref more @ ..] => {
            let join = |thread: &mut Thread| {
                // Another recording may have begun meanwhile.
                let is_same = thread.first_log == first_log;
                let joined = if is_same { thread.join(first, second, more) } else { None };
                joined.or_else(|| RECORDER.lose())
            };
            RECORDER.with_thread(join).flatten().or(Some(first))
        }
        [one] => Some(one),
        [] => None,
    }
}

thread_local!(static THREAD: RefCell<Option<Thread>> = const { RefCell::new(None) });

impl Thread {
    #[cold]
    #[inline(never)]
    fn register() -> Option<Self> {
        let thread_id = cupti::calls::thread_id();
        let thread_name = std::thread::current().name().map(str::to_owned);
        let writer = Writer::new();
        let readers = Readers::of(&writer);
        let make = |number| {
            let texts = Mutex::default();
            Arc::new(Shared { number, thread_id, thread_name, texts, readers })
        };
        let Registered { first, log, .. } = LOGS.register(LOGS_END, make)?;
        // A range that began before this recording is none of it.
        set_word(0);
        Some(Self::new(first, log, writer))
    }

    fn new(first_log: u64, shared: Arc<Shared>, writer: Writer<WORDS>) -> Self {
        Self {
            first_log,
            number: shared.number,
            writer,
            events: None,
            shared,
            plain: FxHashMap::default(),
            recent: Default::default(),
            labels: FxHashMap::default(),
            texts: FxHashMap::default(),
            room: VALUES,
            unsaid: Vec::new(),
            open: Vec::with_capacity(32),
            attached: 0,
        }
    }

    /// Whether a tag is one of this recording; counts those of earlier ones.
    #[inline]
    fn is_of_recording(&self, tag: RangeTag) -> bool {
        let is_of_recording = tag.log() >= self.first_log;
        if !is_of_recording {
            count(&RECORDER.earlier_contexts);
        }
        is_of_recording
    }

    #[inline]
    fn label(&mut self, range: &RangeStart<'_>) -> u64 {
        if range.domain.is_some() || range.category.is_some() || range.color.is_some() {
            return self.full_label(range);
        }
        let address = range.name.as_ptr().addr();
        let recent = &self.recent[(address ^ address >> 4) % RECENT];
        if recent.address == address && *recent.name == *range.name {
            return recent.label;
        }
        self.plain_label(range.name)
    }

    #[inline(never)]
    fn plain_label(&mut self, name: &str) -> u64 {
        // A name that was not seen before is most likely computed, and will not be seen again.
        let Some(&label) = self.plain.get(name) else { return self.new_plain_label(name) };
        let address = name.as_ptr().addr();
        let place = &mut self.recent[(address ^ address >> 4) % RECENT];
        // The first to come keeps it: two names of one place would else copy themselves at each other's turn.
        if place.address == 0 {
            *place = Recent { address, name: name.into(), label };
        }
        label
    }

    #[cold]
    fn new_plain_label(&mut self, name: &str) -> u64 {
        let text = self.text(name);
        let index = self.new_label(Label::plain(text));
        self.plain.insert(name.into(), index);
        index
    }

    fn full_label(&mut self, range: &RangeStart<'_>) -> u64 {
        let name = self.text(range.name);
        let domain = range.domain.map(|domain| self.text(domain));
        let color = range.color.map(nvtx::Color::to_argb);
        let key = (name, domain, range.category.map_or(0, nvtx::Category::id), color);
        if let Some(&index) = self.labels.get(&key) {
            return index;
        }
        let category = range.category.map(|category| self.text(category.name()));
        let index = self.new_label(Label { name, domain, category, color });
        self.labels.insert(key, index);
        index
    }

    fn new_label(&mut self, label: Label) -> u64 {
        let labels = &mut self.shared.texts.lock().labels;
        labels.push(label);
        labels.len() as u64 - 1
    }

    fn text(&mut self, text: &str) -> u32 {
        if let Some(&index) = self.texts.get(text) {
            return index;
        }
        let texts = &mut self.shared.texts.lock().texts;
        // CAST: more texts than this do not fit into memory.
        let index = texts.len() as u32;
        texts.push(text.to_owned());
        self.texts.insert(text.into(), index);
        index
    }

    /// The index of a field's value, if it has one or there is room for it.
    fn value(&mut self, value: &str) -> Option<u32> {
        if let Some(&index) = self.texts.get(value) {
            return Some(index);
        }
        self.room = self.room.checked_sub(2 * value.len() + TEXT_PLACE)?;
        Some(self.text(value))
    }

    fn start(&mut self, range: &RangeStart<'_>) -> Option<RangeTag> {
        // Nothing is written of a range that has no tag: it would have no end.
        let tag = match RangeTag::new(self.number, self.writer.len()) {
            Some(tag) => tag,
            None => self.renew().then(|| RangeTag::new(self.number, 0)).flatten()?,
        };
        let label = self.label(range);
        let parent = self.parent();
        // A parent of another thread is a detail.
        if has_details(range) || parent == 0 && self.handed().is_some() {
            self.details(range);
            self.say(self.writer.len());
        }
        self.writer.push([parent << 32 | label, now_ns(), 0]);
        self.enter(Open { tag, attached: 0 });
        Some(tag)
    }

    /// Begins new logs in place of full ones; not while a range is open, whose end stands in the old one.
    #[cold]
    fn renew(&mut self) -> bool {
        let renewed = if self.open.is_empty() { Self::register() } else { None };
        renewed.map(|renewed| *self = renewed).is_some()
    }

    fn enter(&mut self, open: Open) {
        self.open.push(open);
        set_word(open.tag.0);
    }

    /// Whether the range was open here, in this way.
    fn leave(&mut self, guard: Open) -> bool {
        if self.open.last() == Some(&guard) {
            self.open.pop();
        } else if let Some(place) = self.open.iter().rposition(|open| *open == guard) {
            self.open.remove(place);
        } else {
            return false;
        }
        set_word(self.open.last().map_or(0, |top| top.tag.0));
        true
    }

    /// What is more than two comes first: whoever reads the entry then finds it.
    fn join(&mut self, first: RangeTag, second: RangeTag, more: &[RangeTag]) -> Option<RangeTag> {
        let slot = self.events.as_ref().map_or(0, Writer::len) + more.len() as u64;
        let tag = RangeTag::joined(self.number, slot)?;
        for member in more {
            self.event([MEMBER << KIND_SHIFT | OF_EVENT | slot, member.0, 0]);
        }
        self.event([JOINS << KIND_SHIFT, first.0, second.0]);
        Some(tag)
    }

    /// The entry of the innermost open range plus 1; 0 if there is none, or it is one of another thread, or of several.
    fn parent(&self) -> u64 {
        match self.open.last().and_then(|parent| parent.tag.place()) {
            Some((log, slot)) if log == self.number => slot + 1,
            _ => 0,
        }
    }

    /// The innermost open range, if it is one of another thread, or of several.
    #[inline]
    fn handed(&self) -> Option<RangeTag> {
        let innermost = self.open.last()?.tag;
        innermost.place().is_none_or(|(log, _)| log != self.number).then_some(innermost)
    }

    fn end(&mut self, tag: RangeTag) {
        let now = now_ns();
        if self.leave(Open { tag, attached: 0 }) {
            self.writer.set(tag.slot(), END, now);
        }
    }

    fn event(&mut self, words: [u64; EVENT_WORDS]) -> u64 {
        let shared = &self.shared;
        let writer = self.events.get_or_insert_with(|| {
            let writer = Writer::new();
            if let Some(readers) = &mut *shared.readers.lock() {
                readers.events = Some(writer.log().reader(None));
            }
            writer
        });
        writer.push(words)
    }

    /// A mark, or the start of a range of the process; gives its entry.
    fn occurrence(&mut self, kind: u64, event: &RangeStart<'_>) -> u64 {
        let label = self.label(event);
        let parent = self.parent();
        if has_details(event) || parent == 0 && self.handed().is_some() {
            self.details(event);
            let next = self.events.as_ref().map_or(0, Writer::len);
            let slot = next + self.unsaid.len() as u64;
            self.say(OF_EVENT | slot);
        }
        self.event([kind << KIND_SHIFT | label, now_ns(), parent])
    }

    /// Writes down what is to be said of the entry that comes next: whoever reads that one then finds it. `subject` is
    /// an entry of the range log, or of the second one with [`OF_EVENT`].
    #[inline(never)]
    fn say(&mut self, subject: u64) {
        for at in 0..self.unsaid.len() {
            let [what, first, second] = self.unsaid[at];
            self.event([what | subject, first, second]);
        }
        self.unsaid.clear();
    }

    /// Finds what is to be said of the next entry.
    #[inline(never)]
    fn details(&mut self, event: &RangeStart<'_>) {
        if let Some(parent) = self.handed() {
            self.unsaid.push([HANDED << KIND_SHIFT, parent.0, 0]);
        }
        if let Some(within) = event.within
            && self.is_of_recording(RangeTag(within.get()))
        {
            self.unsaid.push([WITHIN << KIND_SHIFT, within.get(), 0]);
        }
        if let Some((kind, bits)) = event.payload.and_then(words_of_payload) {
            self.unsaid.push([PAYLOAD << KIND_SHIFT, bits, kind]);
        }
        for field in event.fields {
            let (kind, bits) = match field.value {
                FieldValue::U64(value) => (1, value),
                FieldValue::I64(value) => (2, value.cast_unsigned()),
                FieldValue::F64(value) => (3, value.to_bits()),
                FieldValue::Bool(value) => (4, value.into()),
                FieldValue::Str(value) => match self.value(value) {
                    Some(index) => (TEXT, index.into()),
                    None => {
                        self.unsaid.extend(pieces(value));
                        (PIECES, value.len() as u64)
                    }
                },
                _ => continue,
            };
            let (name, unit) = (self.text(field.name), self.text(field.unit) & UNIT_MASK);
            let what = u64::from(name) << 32 | u64::from(unit) << 8 | kind;
            self.unsaid.push([FIELD << KIND_SHIFT, bits, what]);
        }
    }
}

#[inline]
fn has_details(event: &RangeStart<'_>) -> bool {
    event.payload.is_some() || event.within.is_some() || !event.fields.is_empty()
}

impl Drop for Thread {
    /// The thread ends, or goes on in another recording. Ranges that are open stay so, and their entries have finished: the
    /// log can be taken out and freed.
    fn drop(&mut self) {
        let now = now_ns();
        // The innermost first: what lies in an entry has finished when it has.
        for open in self.open.iter().rev().filter(|open| open.attached == 0) {
            let slot = open.tag.slot();
            self.writer.set(slot, START, self.writer.get(slot, START) | LEFT_OPEN);
            self.writer.set(slot, END, now);
        }
        // No call that follows on the thread is made in them.
        set_word(0);
    }
}

impl Recorder {
    /// Counts a range, or a context of several, that could not be recorded.
    #[cold]
    fn lose<R>(&self) -> Option<R> {
        // What begins as a recording ends is none of it.
        if LOGS.first() != 0 {
            count(&self.lost);
        }
        None
    }

    /// Runs `with` on this thread's part of the recording that is on, which is made if it is new; `None` while none is on, or
    /// where the thread cannot have a part, which is counted: it is ending, or in here already, as where an allocator has
    /// ranges.
    #[inline]
    fn with_thread<R>(&self, with: impl FnOnce(&mut Thread) -> R) -> Option<R> {
        let first_log = LOGS.first();
        if first_log == 0 {
            return None;
        }
        let result = THREAD.try_with(|thread| {
            let mut thread = thread.try_borrow_mut().ok()?;
            let thread = match &mut *thread {
                Some(thread) if thread.first_log == first_log => thread,
                other => other.insert(Thread::register()?),
            };
            Some(with(thread))
        });
        result.ok().flatten().or_else(|| self.lose())
    }

    /// Runs `with` on this thread's part of the recording that it was seen in last, if it has one; not on a thread that is
    /// ending, which has left all that it was in. Where the thread is in here already, that is counted.
    #[inline]
    fn with_known_thread(&self, with: impl FnOnce(&mut Thread)) {
        let _ = THREAD.try_with(|thread| match thread.try_borrow_mut() {
            Ok(mut thread) => {
                if let Some(thread) = &mut *thread {
                    with(thread);
                }
            }
            Err(_) => _ = self.lose::<()>(),
        });
    }
}

impl Observer for Recorder {
    fn range_start(&self, range: &RangeStart<'_>) -> Token {
        let start = |thread: &mut Thread| thread.start(range).or_else(|| self.lose());
        let tag = self.with_thread(start).flatten();
        // Without a recording they may be counted. No tag of a recording is as small.
        Token::new(tag.map_or_else(|| range_tap::begin(range.name).unwrap_or(0), |tag| tag.0))
    }

    fn range_end(&self, token: Token) {
        if token.get() == 0 {
            return;
        }
        let tag = RangeTag(token.get());
        if tag.is_below_logs() {
            range_tap::end(tag.0);
        } else {
            self.with_known_thread(|thread| thread.end(tag));
        }
    }

    fn process_range_start(&self, range: &RangeStart<'_>) -> Option<Token> {
        let start = |thread: &mut Thread| {
            // What is said of it comes before it. Nothing is written of one that has no tag.
            let room = entries_of(range.fields) + DETAILS;
            let has_room = |thread: &Thread| {
                let next = thread.events.as_ref().map_or(0, Writer::len);
                RangeTag::new(thread.number, next + room).is_some()
            };
            if has_room(thread) || thread.renew() && has_room(thread) {
                let slot = thread.occurrence(PROCESS_START, range);
                return RangeTag::new(thread.number, slot);
            }
            self.lose()
        };
        self.with_thread(start).flatten().map(|tag| Token::new(tag.0))
    }

    fn process_range_end(&self, token: Token) {
        let of = RangeTag(token.get());
        self.with_thread(|thread| {
            // One that began in an earlier recording is none of this one.
            if of.log() >= thread.first_log {
                thread.event([PROCESS_END << KIND_SHIFT, now_ns(), of.0]);
            }
        });
    }

    fn mark(&self, mark: &Mark<'_>) {
        self.with_thread(|thread| thread.occurrence(MARK, mark));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_recorded_is_let_go_but_for_a_chunk() {
        let (mut writer, mut event_writer) = (Writer::new(), Writer::<EVENT_WORDS>::new());
        let shared = Shared::of_thread(0);
        let (log, events) = (writer.log(), event_writer.log());
        let (ranges, rest) = (log.reader(Some(END)), Some(events.reader(None)));
        *shared.readers.lock() = Some(Readers { ranges, events: rest });
        let chunk = log.held_bytes();
        for slot in 0..20_000 {
            writer.push([0, slot, slot % 2]);
            event_writer.push([0; EVENT_WORDS]);
        }
        let part = shared.read(u64::MAX, false);
        assert_eq!((part.entries.len(), part.events.len()), (20_000, 20_000));
        assert!(log.held_bytes() == 5 * chunk && events.held_bytes() == 5 * chunk);
        shared.let_go();
        assert_eq!((log.held_bytes(), events.held_bytes()), (chunk, chunk));
        assert!(shared.is_done() && shared.read(u64::MAX, false).entries.is_empty());
        drop((writer, event_writer));
    }

    #[test]
    fn ended_thread_leaves_no_log_behind_its_open_ranges() {
        let writer = Writer::new();
        let log = writer.log();
        let shared = Shared::of_thread(1);
        *shared.readers.lock() = Readers::of(&writer).into_inner();
        let mut thread = Thread::new(1, shared.clone(), writer);
        let starts = ["outer", "ended", "inner"].map(|name| {
            let tag = thread.start(&RangeStart::new(name)).unwrap();
            if name == "ended" {
                thread.end(tag);
            }
            tag.slot()
        });
        assert_eq!(starts, [0, 1, 2]);
        let taken = shared.read(u64::MAX, true);
        assert_eq!((taken.slots.iter().collect::<Vec<_>>(), shared.is_done()), (vec![1], false));
        drop(thread);
        assert_eq!(cupti::calls::word(), 0);
        // A drain up to a time before the thread's end leaves them, and both come together.
        assert!(shared.read(1, true).entries.is_empty() && !shared.is_done());
        let rest = shared.read(u64::MAX, false);
        let taken = shared.read(u64::MAX, true);
        assert_eq!(rest.entries, taken.entries);
        assert_eq!(taken.slots.iter().collect::<Vec<_>>(), [0, 2]);
        assert!(taken.entries.iter().all(|entry| entry.end_ns().is_none()));
        let now = now_ns();
        assert!(taken.entries.iter().all(|entry| (1..=now).contains(&entry.start_ns())));
        assert!(shared.is_done());
        assert_eq!(Arc::strong_count(&log), 1, "the chunk is freed");
    }

    #[test]
    fn a_table_of_texts_has_an_end_and_values_beyond_it_are_put_together() {
        let mut thread = Thread::new(1, Shared::of_thread(1), Writer::new());
        let value = |i: usize| format!("{}{i}", "\u{e9}\u{20ac}".repeat(i % 23));
        const COUNT: usize = 10_000;
        for i in 0..COUNT {
            let value = value(i);
            let fields = [nvtx::Field::new("id", &*value, ""), nvtx::Field::new("n", i as u64, "")];
            let next = thread.events.as_ref().map_or(0, Writer::len);
            let mut start = RangeStart::new("");
            start.fields = &fields;
            thread.details(&start);
            thread.say(i as u64);
            let said = thread.events.as_ref().map_or(0, Writer::len) - next;
            assert!((2..=entries_of(&fields)).contains(&said));
        }
        let held: usize = thread.shared.texts.lock().texts.iter().map(|text| text.len()).sum();
        assert!(held < VALUES / 2, "{held}");
        let read = |without: Option<u64>| {
            let mut events = thread.shared.read(u64::MAX, false).events;
            events.retain(|(slot, _)| Some(*slot) != without);
            let mut texts = thread.shared.texts.lock().clone();
            put_texts_together(&mut events, &mut texts);
            let values = events.iter().filter_map(|(_, words)| match Event::from_words(*words) {
                Event::Detail { of: Subject::Range(of), detail } => match detail {
                    Detail::Field { value: Value::Text(index), .. } => {
                        Some((of as usize, texts.texts[index as usize].clone()))
                    }
                    Detail::Field { value: Value::U64(_), .. } => None,
                    Detail::Field { value: Value::LongText(_), .. } => {
                        Some((of as usize, "?".into()))
                    }
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            });
            values.collect::<Vec<_>>()
        };
        let mut expected: Vec<_> = (0..COUNT).map(|i| (i, value(i))).collect();
        assert_eq!(read(None), expected);
        // The last value has several pieces, before its length and the number.
        let last = thread.events.as_ref().map_or(0, Writer::len) - 3;
        expected[COUNT - 1].1 = "?".into();
        assert_eq!(read(Some(last)), expected);
    }
}
