//! The range log: start, end and parent of each range of each thread.
//!
//! The observer writes an entry to the thread's log at the start of a range and fills in the end:
//! two clock reads, a name lookup, a few stores. It sets the tag that driver calls carry
//! (`cupti::calls::set_word`), by which work is attributed to the range.
//!
//! A thread's second log has rare data of ranges (payload, fields, their process range), marks,
//! process ranges, and joined contexts, which have their own tags.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cupti::calls::set_word;
use cupti::clock::now_ns;
use cupti::log_registry::{LogRegistry, Registered};
use cupti::tables;
use cupti::thread_log::{Reader, Writer};
use nvtx::observer::{
    CounterSample, DeferredEvent, Mark, Named, Observer, RangeStart, SyncStep, Token,
};
use nvtx::{Field, FieldValue};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

pub(crate) use super::entries::{
    Detail, EVENT_WORDS, Event, Label, RangeEntry, Subject, Texts, Value, WORDS,
};
use super::entries::{
    END, FIELD, HANDED, JOINS, KIND_SHIFT, LEFT_OPEN, MARK, MEMBER, OF_EVENT, PAYLOAD, PIECES,
    PROCESS_END, PROCESS_FIELDS, PROCESS_START, START, TEXT, UNIT_MASK, WITHIN, entries_of, pieces,
    words_of_payload,
};
pub(super) use super::entries::{LoggedEvent, assemble_texts};
pub(crate) use super::slots::Slots;
use super::tag::LOGS_END;
pub(crate) use super::tag::RangeTag;
#[cfg(test)]
pub(crate) use super::tag::SLOTS;
use super::text_index::TextIndex;
use super::{Losses, other_events};
use crate::record::context_hooks::context_changed;
use crate::record::range_tap;

/// A thread's logs, for readers of the recording.
#[derive(Debug)]
pub(super) struct Shared {
    /// The log's number in the tags of its ranges.
    pub(super) number: u64,
    pub(super) thread_id: u32,
    pub(super) thread_name: Option<String>,
    pub(super) texts: Mutex<Texts>,
    /// `None` once the thread has ended and all entries were taken.
    readers: Mutex<Option<Readers>>,
}

/// Readers of a thread's logs. Locked to read, and by the thread when it starts its second log.
#[derive(Debug)]
struct Readers {
    ranges: Reader<WORDS>,
    events: Option<Reader<EVENT_WORDS>>,
}

impl Readers {
    fn locked(writer: &Writer<WORDS>) -> Mutex<Option<Self>> {
        Mutex::new(Some(Self { ranges: writer.log().reader(Some(END)), events: None }))
    }

    fn is_done(&self) -> bool {
        self.ranges.is_done() && self.events.as_ref().is_none_or(Reader::is_done)
    }
}

/// The entries that were read from the two logs of a thread.
#[derive(Debug, Clone)]
pub(crate) struct ThreadSegment {
    pub(super) shared: Arc<Shared>,
    pub(super) entries: Vec<RangeEntry>,
    pub(super) slots: Slots,
    pub(crate) events: Vec<LoggedEvent>,
}

impl ThreadSegment {
    pub(super) fn empty(shared: &Arc<Shared>) -> Self {
        let (entries, slots, events) = Default::default();
        Self { shared: shared.clone(), entries, slots, events }
    }

    /// The log number in the tags of its ranges.
    pub(crate) fn number(&self) -> u64 {
        self.shared.number
    }

    /// The kernel's thread id.
    pub(crate) fn thread_id(&self) -> u32 {
        self.shared.thread_id
    }

    /// Its ranges with their slots.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, &RangeEntry)> {
        self.slots.iter().zip(&self.entries)
    }

    /// Calls `with` on the texts and labels to which its entries refer, and possibly more.
    pub(crate) fn with_texts<R>(&self, with: impl FnOnce(&Texts) -> R) -> R {
        with(&self.shared.texts.lock())
    }
}

impl Shared {
    /// A thread of a file, without logs to read.
    pub(super) fn of_file(number: u64, thread_id: u32) -> Arc<Self> {
        let (thread_name, texts, readers) = Default::default();
        Arc::new(Self { number, thread_id, thread_name, texts, readers })
    }

    /// Reads, and with `take` removes, the entries before `until_ns`. Threads write details before
    /// their subject and texts before references to them, so reading in reverse order finds both.
    fn read(self: &Arc<Self>, until_ns: u64, take: bool) -> ThreadSegment {
        let mut slots = Slots::default();
        let mut events = Vec::new();
        let mut readers = self.readers.lock();
        let Some(readers) = &mut *readers else {
            return ThreadSegment::empty(self);
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
        ThreadSegment { shared: self.clone(), entries, slots, events }
    }

    /// Frees the logs, except for the chunk of each that the thread's writer is using.
    fn release(&self) {
        let Some(mut readers) = self.readers.lock().take() else { return };
        readers.ranges.let_go();
        if let Some(log) = &mut readers.events {
            log.let_go();
        }
    }

    /// Returns true if no entries remain and the thread has ended; frees the logs then.
    fn is_done(&self) -> bool {
        let mut readers = self.readers.lock();
        let is_done = readers.as_ref().is_none_or(Readers::is_done);
        if is_done {
            *readers = None;
        }
        is_done
    }
}

/// The thread logs of the current recording. The number of its first log identifies a recording.
static LOGS: LogRegistry<Arc<Shared>> = LogRegistry::new();

/// The only range observer of the process.
pub(crate) static RECORDER: Recorder = Recorder {
    lost: AtomicU64::new(0),
    earlier_contexts: AtomicU64::new(0),
    forgotten_lanes: AtomicU64::new(0),
};

#[derive(Debug)]
pub(crate) struct Recorder {
    /// Ranges that could not be recorded.
    lost: AtomicU64,
    /// Contexts and process ranges of earlier recordings that were used in the current one.
    earlier_contexts: AtomicU64,
    /// Lanes that threads dropped at their upper bound.
    forgotten_lanes: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Begins a recording and returns the number of its first log.
pub(crate) fn begin() -> u64 {
    LOGS.leave_children_out();
    LOGS.begin(|| {
        RECORDER.lost.store(0, Ordering::Relaxed);
        RECORDER.earlier_contexts.store(0, Ordering::Relaxed);
        RECORDER.forgotten_lanes.store(0, Ordering::Relaxed);
    })
}

/// Ends the recording and returns the entries that were not taken. Open ranges have no end.
pub(crate) fn end() -> Vec<ThreadSegment> {
    let threads = LOGS.end();
    let last = |thread: &Arc<Shared>| {
        let part = thread.read(u64::MAX, false);
        thread.release();
        part
    };
    threads.iter().map(last).collect()
}

/// Takes the ranges that ended before a past time, and all events. Threads continue to record. Only
/// a thread with a new name, or one that starts its second log, may wait.
pub(super) fn take(until_ns: u64) -> Vec<ThreadSegment> {
    let threads = LOGS.logs();
    let parts = threads.iter().map(|thread| thread.read(until_ns, true));
    let parts = parts.filter(|part| !(part.entries.is_empty() && part.events.is_empty())).collect();
    LOGS.retain(|thread| !thread.is_done());
    parts
}

/// Returns the entries before a past time that were not taken, except entries that are being
/// written now; no other thread can refer to those yet.
pub(crate) fn unfinished(until_ns: u64) -> Vec<ThreadSegment> {
    let threads = LOGS.logs();
    threads.iter().map(|thread| thread.read(until_ns, false)).collect()
}

/// The losses of the current recording so far.
pub(crate) fn losses() -> Losses {
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Losses {
        ranges: of(&RECORDER.lost),
        earlier_contexts: of(&RECORDER.earlier_contexts),
        forgotten_lanes: of(&RECORDER.forgotten_lanes),
        ..Losses::default()
    }
}

/// The number of the first log of the current recording; 0 without one.
pub(crate) fn first_log() -> u64 {
    LOGS.first()
}

/// Counts lanes that their thread dropped.
pub(crate) fn count_forgotten_lanes(lanes: u64) {
    RECORDER.forgotten_lanes.fetch_add(lanes, Ordering::Relaxed);
}

/// The state of the current thread in a recording.
struct Thread {
    /// The number of the first log of the recording.
    first_log: u64,
    number: u64,
    writer: Writer<WORDS>,
    events: Option<Writer<EVENT_WORDS>>,
    shared: Arc<Shared>,
    /// Labels that consist of a name, by content: an address may have another name later.
    plain: FxHashMap<Box<str>, u64>,
    /// A cache of `plain` by address and content, which avoids hashing repeated names.
    recent: [Recent; RECENT],
    /// The other labels: by name, domain, category number and colour.
    labels: FxHashMap<(u32, Option<u32>, u32, Option<u32>), u64>,
    /// All texts, except field values beyond [`VALUES`].
    texts: TextIndex,
    /// Bytes left for field values.
    room: usize,
    /// Details of the next entry, without its slot.
    pending_details: Vec<[u64; EVENT_WORDS]>,
    /// Open and attached ranges, outermost first. Guards may be dropped in any order.
    open: Vec<Open>,
    /// Contexts attached so far.
    attached: u64,
}

/// A range entered by its own guard or by attaching a context, possibly several times.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Open {
    tag: RangeTag,
    /// The number of the attachment; 0 for the range's own guard.
    attached: u64,
}

/// A cached label with the address and content of its name.
#[derive(Default)]
struct Recent {
    address: usize,
    name: Box<str>,
    label: u64,
}

/// Bytes of a thread's tables for field values, which repeated values fill early. Later values are
/// stored in the log and freed with it, so long sessions do not grow with every request id.
const VALUES: usize = 256 << 10;
/// Bytes of a text in the table and the map, besides its content.
const TEXT_PLACE: usize = 64;

/// Upper bound of an entry's details besides its fields.
const DETAILS: u64 = 3;

/// Slots of the label cache, selected by address.
const RECENT: usize = 16;

/// Enters a range of any thread on this one and returns the number of the attachment. Counts a
/// range of an earlier recording and returns `None`.
pub(crate) fn attach(tag: RangeTag) -> Option<u64> {
    if tag.log() < LOGS.first() {
        count(&RECORDER.earlier_contexts);
        return None;
    }
    let enter = |thread: &mut Thread| {
        // Another recording may have begun since.
        if !thread.is_of_recording(tag) {
            return None;
        }
        thread.attached += 1;
        thread.enter(Open { tag, attached: thread.attached });
        Some(thread.attached)
    };
    let attached = RECORDER.with_thread(enter).flatten();
    context_changed();
    attached
}

/// Leaves a range that [`attach`] entered under this number.
pub(crate) fn detach(tag: RangeTag, attached: u64) {
    RECORDER.with_known_thread(|thread| _ = thread.leave(Open { tag, attached }));
    context_changed();
}

/// Returns one tag for several ranges of this recording, deduplicated; the range's own tag if one
/// remains; `None` if none. If writing the entry fails, counts a loss and returns the first tag.
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
                // Another recording may have begun since.
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
        let readers = Readers::locked(&writer);
        let make = |number| {
            let texts = Mutex::default();
            Arc::new(Shared { number, thread_id, thread_name, texts, readers })
        };
        let Registered { first, log, .. } = LOGS.register(LOGS_END, make)?;
        // The thread may be in a range of an earlier recording.
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
            texts: TextIndex::default(),
            room: VALUES,
            pending_details: Vec::new(),
            open: Vec::with_capacity(32),
            attached: 0,
        }
    }

    /// True if the tag belongs to this recording; counts tags of earlier ones.
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
        // A new name is most likely computed and not repeated, so it is not cached.
        let Some(&label) = self.plain.get(name) else { return self.new_plain_label(name) };
        let address = name.as_ptr().addr();
        let place = &mut self.recent[(address ^ address >> 4) % RECENT];
        // The first name remains in the slot: alternating names would otherwise evict each other.
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
        self.texts.find(text).unwrap_or_else(|| self.new_text(text))
    }

    #[cold]
    fn new_text(&mut self, text: &str) -> u32 {
        let texts = &mut self.shared.texts.lock().texts;
        // CAST: more texts do not fit into memory.
        let index = texts.len() as u32;
        texts.push(text.to_owned());
        self.texts.add(text, index);
        index
    }

    /// The index of a field value, if it is known or there is room for it.
    fn value(&mut self, value: &str) -> Option<u32> {
        if value.is_empty() {
            return Some(self.text(value));
        }
        if let Some(index) = self.texts.find(value) {
            return Some(index);
        }
        self.room = self.room.checked_sub(2 * value.len() + TEXT_PLACE)?;
        Some(self.text(value))
    }

    fn start(&mut self, range: &RangeStart<'_>) -> Option<RangeTag> {
        // A range without a tag is not written: its end could not be.
        let tag = match RangeTag::new(self.number, self.writer.len()) {
            Some(tag) => tag,
            None => self.renew().then(|| RangeTag::new(self.number, 0)).flatten()?,
        };
        let label = self.label(range);
        let parent = self.parent();
        // A parent on another thread is stored as a detail.
        if has_details(range) || parent == 0 && self.foreign_parent().is_some() {
            self.collect_details(range);
            self.write_details(self.writer.len());
        }
        self.writer.push([parent << 32 | label, now_ns(), 0]);
        self.enter(Open { tag, attached: 0 });
        Some(tag)
    }

    /// Replaces full logs by new ones, unless a range is open: its end belongs in the old log.
    #[cold]
    fn renew(&mut self) -> bool {
        let renewed = if self.open.is_empty() { Self::register() } else { None };
        renewed.map(|renewed| *self = renewed).is_some()
    }

    fn enter(&mut self, open: Open) {
        self.open.push(open);
        set_word(open.tag.0);
    }

    /// Leaves a range; false if this thread had not entered it.
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

    /// Writes a joined context, further members first: a reader of the context then finds them.
    fn join(&mut self, first: RangeTag, second: RangeTag, more: &[RangeTag]) -> Option<RangeTag> {
        let slot = self.events.as_ref().map_or(0, Writer::len) + more.len() as u64;
        let tag = RangeTag::joined(self.number, slot)?;
        for member in more {
            self.event([MEMBER << KIND_SHIFT | OF_EVENT | slot, member.0, 0]);
        }
        self.event([JOINS << KIND_SHIFT, first.0, second.0]);
        Some(tag)
    }

    /// The entry of the innermost range plus 1; 0 without one, or if it is of another thread.
    fn parent(&self) -> u64 {
        match self.open.last().and_then(|parent| parent.tag.place()) {
            Some((log, slot)) if log == self.number => slot + 1,
            _ => 0,
        }
    }

    /// The innermost range if it belongs to another thread, or a joined context.
    #[inline]
    fn foreign_parent(&self) -> Option<RangeTag> {
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

    /// Writes a mark or the start of a process range, and returns its entry.
    fn write_event(&mut self, kind: u64, event: &RangeStart<'_>) -> u64 {
        let label = self.label(event);
        let parent = self.parent();
        if has_details(event) || parent == 0 && self.foreign_parent().is_some() {
            self.collect_details(event);
            self.write_details_of_next_event();
        }
        self.event([kind << KIND_SHIFT | label, now_ns(), parent])
    }

    /// Writes the pending details of the event that is written next.
    fn write_details_of_next_event(&mut self) {
        let next = self.events.as_ref().map_or(0, Writer::len);
        self.write_details(OF_EVENT | (next + self.pending_details.len() as u64));
    }

    /// Writes the pending details before their entry, so that its readers find them. `subject` is
    /// an entry of the range log, or with [`OF_EVENT`] of the second log.
    #[inline(never)]
    fn write_details(&mut self, subject: u64) {
        for at in 0..self.pending_details.len() {
            let [what, first, second] = self.pending_details[at];
            self.event([what | subject, first, second]);
        }
        self.pending_details.clear();
    }

    /// Collects the details of the next entry.
    #[inline(never)]
    fn collect_details(&mut self, event: &RangeStart<'_>) {
        if let Some(parent) = self.foreign_parent() {
            self.pending_details.push([HANDED << KIND_SHIFT, parent.0, 0]);
        }
        if let Some(within) = event.within
            && self.is_of_recording(RangeTag(within.get()))
        {
            self.pending_details.push([WITHIN << KIND_SHIFT, within.get(), 0]);
        }
        if let Some((kind, bits)) = event.payload.and_then(words_of_payload) {
            self.pending_details.push([PAYLOAD << KIND_SHIFT, bits, kind]);
        }
        self.collect_fields(event.fields);
    }

    fn collect_fields(&mut self, fields: &[Field<'_>]) {
        for field in fields {
            let (kind, bits) = match field.value {
                FieldValue::U64(value) => (1, value),
                FieldValue::I64(value) => (2, value.cast_unsigned()),
                FieldValue::F64(value) => (3, value.to_bits()),
                FieldValue::Bool(value) => (4, value.into()),
                FieldValue::Str(value) => match self.value(value) {
                    Some(index) => (TEXT, index.into()),
                    None => {
                        self.pending_details.extend(pieces(value));
                        (PIECES, value.len() as u64)
                    }
                },
                _ => continue,
            };
            let (name, unit) = (self.text(field.name), self.text(field.unit) & UNIT_MASK);
            let what = u64::from(name) << 32 | u64::from(unit) << 8 | kind;
            self.pending_details.push([FIELD << KIND_SHIFT, bits, what]);
        }
    }
}

#[inline]
fn has_details(event: &RangeStart<'_>) -> bool {
    event.payload.is_some() || event.within.is_some() || !event.fields.is_empty()
}

impl Drop for Thread {
    /// Runs when the thread ends, or continues in another recording. Its open ranges remain open,
    /// but their entries are marked as finished, so the log can be taken and freed.
    fn drop(&mut self) {
        let now = now_ns();
        // Innermost first: children must finish no later than their parent.
        for open in self.open.iter().rev().filter(|open| open.attached == 0) {
            let slot = open.tag.slot();
            self.writer.set(slot, START, self.writer.get(slot, START) | LEFT_OPEN);
            self.writer.set(slot, END, now);
        }
        // Later calls of the thread are outside these ranges.
        set_word(0);
    }
}

impl Recorder {
    /// Counts a range or joined context that could not be recorded.
    #[cold]
    fn lose<R>(&self) -> Option<R> {
        // Without a recording, nothing is lost.
        if LOGS.first() != 0 {
            count(&self.lost);
        }
        None
    }

    /// Calls `with` on this thread's state in the current recording, which is created if needed.
    /// `None` without a recording. Counts a loss and returns `None` on a thread that is ending or
    /// already in this function, as in an allocator that opens ranges.
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

    /// Calls `with` on this thread's state in its last recording, if any. A thread that is ending
    /// has left all its ranges. Counts a loss if the thread is already in this function.
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
        context_changed();
        // Without a recording, ranges may be counted. Their tokens are below all tags.
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
            context_changed();
        }
    }

    fn range_fields(&self, token: Token, fields: &[Field<'_>]) {
        let tag = RangeTag(token.get());
        self.with_known_thread(|thread| {
            // A counted range has no log, and a range of an earlier recording has no entry.
            if tag.place().is_some_and(|(log, _)| log == thread.number) {
                thread.collect_fields(fields);
                thread.write_details(tag.slot());
            }
        });
    }

    fn process_range_start(&self, range: &RangeStart<'_>) -> Option<Token> {
        let start = |thread: &mut Thread| {
            // Details precede the entry. Nothing is written without a tag for the entry.
            let room = entries_of(range.fields) + DETAILS;
            let has_room = |thread: &Thread| {
                let next = thread.events.as_ref().map_or(0, Writer::len);
                RangeTag::new(thread.number, next + room).is_some()
            };
            if has_room(thread) || thread.renew() && has_room(thread) {
                let slot = thread.write_event(PROCESS_START, range);
                return RangeTag::new(thread.number, slot);
            }
            self.lose()
        };
        self.with_thread(start).flatten().map(|tag| Token::new(tag.0))
    }

    fn process_range_fields(&self, token: Token, fields: &[Field<'_>]) {
        let of = RangeTag(token.get());
        self.with_thread(|thread| {
            if of.log() >= thread.first_log {
                thread.collect_fields(fields);
                thread.write_details_of_next_event();
                thread.event([PROCESS_FIELDS << KIND_SHIFT, now_ns(), of.0]);
            }
        });
    }

    fn process_range_end(&self, token: Token) {
        let of = RangeTag(token.get());
        self.with_thread(|thread| {
            // Not a range of an earlier recording.
            if of.log() >= thread.first_log {
                thread.event([PROCESS_END << KIND_SHIFT, now_ns(), of.0]);
            }
        });
    }

    fn mark(&self, mark: &Mark<'_>) {
        self.with_thread(|thread| thread.write_event(MARK, mark));
    }

    fn named(&self, what: &Named<'_>, name: &str) {
        other_events::named(what, name, |mark| self.mark(mark));
    }

    fn counter(&self, sample: &CounterSample<'_>) {
        other_events::counter(sample, |mark| self.mark(mark));
    }

    fn sync(&self, domain: Option<&str>, name: &str, step: SyncStep) {
        other_events::sync(domain, name, step, |mark| self.mark(mark));
    }

    fn deferred(&self, event: &DeferredEvent<'_>) {
        other_events::deferred(event, |mark| self.mark(mark));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_frees_all_but_one_chunk_of_each_log() {
        let (mut writer, mut event_writer) = (Writer::new(), Writer::<EVENT_WORDS>::new());
        let shared = Shared::of_file(0, 0);
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
        shared.release();
        assert_eq!((log.held_bytes(), events.held_bytes()), (chunk, chunk));
        assert!(shared.is_done() && shared.read(u64::MAX, false).entries.is_empty());
        drop((writer, event_writer));
    }

    #[test]
    fn ended_thread_leaves_no_log_behind_its_open_ranges() {
        let writer = Writer::new();
        let log = writer.log();
        let shared = Shared::of_file(1, 0);
        *shared.readers.lock() = Readers::locked(&writer).into_inner();
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
        // A drain up to a time before the thread's end leaves both ranges; they come together.
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
    fn values_beyond_the_table_of_texts_are_assembled_from_pieces() {
        let shared = Shared::of_file(1, 0);
        *shared.readers.lock() = Readers::locked(&Writer::new()).into_inner();
        let mut thread = Thread::new(1, shared, Writer::new());
        let value = |i: usize| format!("{}{i}", "\u{e9}\u{20ac}".repeat(i % 23));
        const COUNT: usize = 10_000;
        for i in 0..COUNT {
            let value = value(i);
            let fields = [nvtx::Field::new("id", &*value, ""), nvtx::Field::new("n", i as u64, "")];
            let next = thread.events.as_ref().map_or(0, Writer::len);
            let mut start = RangeStart::new("");
            start.fields = &fields;
            thread.collect_details(&start);
            thread.write_details(i as u64);
            let logged = thread.events.as_ref().map_or(0, Writer::len) - next;
            assert!((2..=entries_of(&fields)).contains(&logged));
        }
        let held: usize = thread.shared.texts.lock().texts.iter().map(|text| text.len()).sum();
        assert!(held < VALUES / 2, "{held}");
        let read = |without: Option<u64>| {
            let mut events = thread.shared.read(u64::MAX, false).events;
            events.retain(|(slot, _)| Some(*slot) != without);
            let mut texts = thread.shared.texts.lock().clone();
            assemble_texts(&mut events, &mut texts);
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
