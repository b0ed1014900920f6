//! The call log: for each call its function, thread, tag, start, end and result.
//!
//! A callback writes an entry when a call starts and adds the end when it returns, in a log of the
//! calling thread. The entry contains the thread's *word*, a tag of 64 bits. A profiler of ranges
//! stores the tag of the current range with [`set_word`]. CUPTI's correlation id then links
//! kernels, copies and synchronisations to that tag, without any clock.
//!
//! Driver calls are always logged; calls of the runtime API only if requested
//! ([`Config::runtime_calls`](crate::Config::runtime_calls)). A runtime call shares its correlation
//! id with the driver call that it makes.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use crate::call_class::CallClass;
use crate::callback_panics;
use crate::collection_state::{Epoch, State};
use crate::graphs::{self, GraphEvent, GraphReader, GraphWriter, ThreadGraphs};
use crate::huge_pages;
use crate::sys::functions::{DRIVER_CALLS, LoggedCall, RUNTIME_CALLS};
use crate::sys::os;
use crate::thread_log::{Reader, ThreadLog, Writer};
use crate::waits::{self, Wait, WaitReader, WaitWriter};

/// The functions of one API, by CUPTI's callback id.
macro_rules! functions {
    ($($(#[$doc:meta])* $function:ident, $unknown:literal, $calls:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $function(pub u32);

        impl $function {
            /// The table's entry, if calls of the function are logged.
            #[inline]
            pub(crate) fn entry(self) -> Option<&'static LoggedCall> {
                $calls.by_id(self.0)
            }

            /// Returns the function of this name, if its calls can be logged; the oldest id if it
            /// has several.
            #[must_use]
            pub fn by_name(name: &str) -> Option<Self> {
                $calls.iter().find(|call| call.name == name).map(|call| Self(call.id))
            }

            /// The function's name, without a version of the runtime API.
            pub fn name(self) -> &'static str {
                self.entry().map_or($unknown, |call| call.name)
            }

            /// The function's class.
            #[must_use]
            pub fn class(self) -> CallClass {
                self.entry().map_or(CallClass::Unknown, |call| call.class)
            }
        }

        impl sealed::Sealed for $function {}

        impl Function for $function {
            fn from_id(id: u32) -> Self {
                Self(id)
            }
            fn id(self) -> u32 {
                self.0
            }
        }
    )*};
}

functions! {
    /// A driver function, such as `cuLaunchKernel`, by CUPTI's callback id.
    DriverFunction, "(unknown driver call)", DRIVER_CALLS;
    /// A function of the runtime API, such as `cudaLaunchKernel`, by CUPTI's callback id.
    RuntimeFunction, "(unknown runtime call)", RUNTIME_CALLS;
}

/// A function of one of CUDA's two APIs; the type parameter of [`Call`].
pub trait Function: Copy + sealed::Sealed {
    /// The function with this callback id.
    fn from_id(id: u32) -> Self;
    /// Its callback id.
    fn id(self) -> u32;
}

mod sealed {
    pub trait Sealed {}
}

/// One call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call<F = DriverFunction> {
    /// The function called.
    pub function: F,
    /// The id in the activity records of its work. Unique among the driver calls of one collection,
    /// until its 32 bits wrap. A call of the runtime API has the id of the driver call that it
    /// makes.
    pub correlation_id: u32,
    /// The thread's tag when it was called; 0 if none was set.
    pub word: u64,
    /// When it was called, in [`now_ns`](crate::clock::now_ns) time.
    pub start_ns: u64,
    /// When it returned. `None` if it had not returned when the log was read, or if it returned in
    /// a pause.
    pub end_ns: Option<u64>,
    /// Its `CUresult` or `cudaError_t`: 0 is success. Meaningless while `end_ns` is `None`.
    pub result: u32,
    /// True if it made a node of a CUDA graph instead of doing its work (stream capture).
    pub captured: bool,
    /// True if it copied or filled no bytes; such a call has no record. Set for driver calls only.
    pub empty: bool,
    /// The number that the [stack source](set_stack_source) returned for it, from 1; 0 without a
    /// stack.
    pub stack: u32,
}

pub(crate) const WORDS: usize = 5;
const ID: usize = 0;
const WORD: usize = 1;
const START: usize = 2;
const OUTCOME: usize = 3;
const END: usize = 4;
const CAPTURED: u64 = 1 << 32;
const EMPTY: u64 = 1 << 33;
/// A flag of the outcome, in the log only: the call's return was not seen, and is no longer
/// expected. Its thread has ended, or called again after two pauses; `END` is the time of that.
const LEFT_OPEN: u64 = 1 << 34;
/// A flag of the outcome, in the log only: the call waits in its callback and has submitted
/// nothing.
const WAITS: u64 = 1 << 35;
/// The position of the stack's number in the outcome; the number is at most [`MAX_STACK`].
const STACK_SHIFT: u32 = 40;
/// The largest number that a stack source may return.
pub const MAX_STACK: u32 = (1 << (u64::BITS - STACK_SHIFT)) - 1;
/// A flag in the first word of a call of the runtime API; callback ids have fewer than 31 bits.
const RUNTIME: u64 = 1 << 63;

impl<F: Function> Call<F> {
    /// Builds a call from a recording's words: the fields in the order of the log.
    #[must_use]
    pub fn from_words(words: [u64; WORDS]) -> Self {
        Self {
            function: F::from_id(((words[ID] & !RUNTIME) >> 32) as u32),
            correlation_id: words[ID] as u32,
            word: words[WORD],
            start_ns: words[START],
            end_ns: (words[END] != 0 && words[OUTCOME] & LEFT_OPEN == 0).then_some(words[END]),
            result: words[OUTCOME] as u32,
            captured: words[OUTCOME] & CAPTURED != 0,
            empty: words[OUTCOME] & EMPTY != 0,
            stack: (words[OUTCOME] >> STACK_SHIFT) as u32,
        }
    }

    /// Returns the words of the log that make this call.
    pub fn to_words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[ID] = u64::from(self.function.id()) << 32 | u64::from(self.correlation_id);
        words[WORD] = self.word;
        words[START] = self.start_ns;
        words[OUTCOME] = u64::from(self.result)
            | if self.captured { CAPTURED } else { 0 }
            | if self.empty { EMPTY } else { 0 }
            | u64::from(self.stack.min(MAX_STACK)) << STACK_SHIFT;
        words[END] = self.end_ns.unwrap_or(0);
        words
    }
}

/// The calls of one thread, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadCalls<F = DriverFunction> {
    /// The kernel's id of the thread (`gettid`).
    pub thread_id: u32,
    /// The thread's name at its first call in the collection, cut to 15 bytes by Linux. `main` for
    /// the first thread of the process.
    pub thread_name: Option<String>,
    /// Its calls.
    pub calls: Vec<Call<F>>,
}

impl<F> Default for ThreadCalls<F> {
    fn default() -> Self {
        Self { thread_id: 0, thread_name: None, calls: Vec::new() }
    }
}

impl<F> ThreadCalls<F> {
    /// Builds a thread's calls from a recording.
    #[must_use]
    pub fn new(thread_id: u32, thread_name: Option<String>, calls: Vec<Call<F>>) -> Self {
        Self { thread_id, thread_name, calls }
    }
}

/// The logs of one thread in the current collection.
#[derive(Debug, Clone)]
struct Logs {
    thread_id: u32,
    thread_name: Option<String>,
    log: Arc<ThreadLog<WORDS>>,
    calls: Arc<Mutex<Reader<WORDS>>>,
    /// Created with the thread's first graph event.
    graphs: Option<Arc<Mutex<GraphReader>>>,
    /// Created with the thread's first wait.
    waits: Option<Arc<Mutex<WaitReader>>>,
}

impl Logs {
    /// True if the thread has ended and its entries were drained.
    fn is_done(&self) -> bool {
        // No callback takes these locks.
        self.calls.lock().is_done()
            && self.graphs.as_ref().is_none_or(|graphs| graphs.lock().is_done())
            && self.waits.as_ref().is_none_or(|waits| waits.lock().is_done())
    }
}

static LOGS: Mutex<Vec<Logs>> = Mutex::new(Vec::new());
/// The start of the current [segment](begin_segment).
static SEGMENT_FROM_NS: AtomicU64 = AtomicU64::new(0);
/// Calls and graph events that could not be logged.
static UNLOGGED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static CURRENT_WORD: Cell<u64> = const { Cell::new(0) };
    static THREAD: RefCell<Option<Thread>> = const { RefCell::new(None) };
}

/// Sets the tag of this thread's calls from now on and returns the previous one. Costs about 1 ns.
#[inline]
pub fn set_word(word: u64) -> u64 {
    CURRENT_WORD.try_with(|current| current.replace(word)).unwrap_or(0)
}

/// Returns the tag of this thread's calls.
#[inline]
#[must_use]
pub fn word() -> u64 {
    CURRENT_WORD.try_with(Cell::get).unwrap_or(0)
}

static SOURCE: OnceLock<fn() -> u64> = OnceLock::new();

/// Sets the source of tags for threads without one: it is called at the start of each such call and
/// graph event. Can be set once in a process.
///
/// The source runs within CUDA calls of the program: it must not call CUDA, wait or panic.
///
/// # Errors
///
/// The existing source, if one was set before.
pub fn set_word_source(source: fn() -> u64) -> Result<(), fn() -> u64> {
    match SOURCE.set(source) {
        Err(source) if SOURCE.get().is_some_and(|set| std::ptr::fn_addr_eq(*set, source)) => Ok(()),
        result => result,
    }
}

static STACK_SOURCE: OnceLock<fn(u64) -> u32> = OnceLock::new();
/// The minimum age of a thread's last launch at which the next one gets a stack; `u64::MAX` if none
/// gets one.
static STACKS_AFTER_NS: AtomicU64 = AtomicU64::new(u64::MAX);

/// Sets the source of stacks, which returns the number of a stack, from 1 to [`MAX_STACK`], or 0.
/// Can be set once in a process.
///
/// The source is called at the start of a driver call that submits work, on its thread. It is
/// called only if that thread submitted nothing for the time of
/// [`Config::stacks_after`](crate::Config::stacks_after). Its argument is the start of the gap:
/// when the thread's last submission returned, in [`clock::now_ns`](crate::clock::now_ns) time, or
/// 0 before the first one. It runs within CUDA calls of the program: it must not call CUDA, wait or
/// panic.
///
/// # Errors
///
/// The existing source, if one was set before.
pub fn set_stack_source(source: fn(u64) -> u32) -> Result<(), fn(u64) -> u32> {
    match STACK_SOURCE.set(source) {
        Err(source) if STACK_SOURCE.get().is_some_and(|set| std::ptr::fn_addr_eq(*set, source)) => {
            Ok(())
        }
        result => result,
    }
}

/// Sets the gap after which calls of the next collection get stacks.
pub(crate) fn set_stacks_after(time: Option<Duration>) {
    let ns = time.map_or(u64::MAX, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    STACKS_AFTER_NS.store(ns, Ordering::Relaxed);
}

/// Returns the number of the stack of a call that ends a gap.
#[cold]
#[inline(never)]
fn stack_of_call(since_ns: u64) -> u32 {
    STACK_SOURCE.get().map_or(0, |source| source(since_ns).min(MAX_STACK))
}

/// Returns the tag of a call that begins on this thread.
#[inline]
fn word_of_call() -> u64 {
    match word() {
        0 => SOURCE.get().map_or(0, |source| source()),
        word => word,
    }
}

/// Returns the kernel's id of the calling thread (`gettid`), as in [`ThreadCalls::thread_id`].
#[must_use]
pub fn thread_id() -> u32 {
    os::thread_id()
}

struct Thread {
    epoch: Epoch,
    writer: Writer<WORDS>,
    graphs: Option<GraphWriter>,
    waits: Option<WaitWriter>,
    /// Calls that were entered and have not returned, outermost first.
    open: Vec<Open>,
    /// The number of open calls that were entered before a pause: their returns may be unseen.
    before_pause: usize,
    submitted: Submitted,
}

/// The last call of a thread that submitted work.
#[derive(Debug, Clone, Copy)]
struct Submitted {
    slot: u64,
    /// When it returned, or when it was called if it has not returned.
    at_ns: u64,
    /// The minimum age at which the next submission gets a stack.
    stacks_after_ns: u64,
}

impl Submitted {
    fn none() -> Self {
        let stacks_after_ns = STACKS_AFTER_NS.load(Ordering::Relaxed);
        Self { slot: u64::MAX, at_ns: 0, stacks_after_ns }
    }
}

impl Drop for Thread {
    /// The thread ends, or continues in another collection.
    fn drop(&mut self) {
        self.leave_open(self.open.len());
    }
}

impl Thread {
    /// Removes the `count` outermost calls, whose return was not seen. Their entries finish without
    /// an end, so that the log can be read further and freed.
    #[cold]
    fn leave_open(&mut self, count: usize) {
        let now = os::monotonic_ns();
        // Innermost first: an entry must not finish before those inside it.
        for open in self.open.drain(..count).rev() {
            let flags = self.writer.get(open.slot, OUTCOME);
            self.writer.set(open.slot, OUTCOME, flags | LEFT_OPEN);
            self.writer.set(open.slot, END, now);
        }
    }

    /// The innermost call that is under way.
    fn innermost(&self) -> Option<&Open> {
        self.open.get(self.before_pause..)?.last()
    }
}

/// A call that has not returned: its slot, and the first word of its entry with function and
/// correlation id.
#[derive(Debug, Clone, Copy)]
struct Open {
    id: u64,
    slot: u64,
}

/// The API of a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Driver,
    Runtime,
}

fn id_word(api: Api, id: u32, correlation_id: u32) -> u64 {
    let runtime = if api == Api::Runtime { RUNTIME } else { 0 };
    runtime | u64::from(id) << 32 | u64::from(correlation_id)
}

/// The contents of a collection's logs.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) calls: Vec<ThreadCalls>,
    pub(crate) runtime_calls: Vec<ThreadCalls<RuntimeFunction>>,
    pub(crate) graphs: Vec<ThreadGraphs>,
    pub(crate) waits: Vec<Wait>,
    pub(crate) panics: u64,
    pub(crate) unlogged: u64,
}

/// Drops the calls of an earlier collection.
pub(crate) fn clear() {
    LOGS.lock().clear();
    callback_panics::clear();
    UNLOGGED.store(0, Ordering::Relaxed);
}

/// Removes the undrained entries of a collection that has ended. Each thread retains its writer and
/// a chunk.
pub(crate) fn take() -> Read {
    let logs = std::mem::take(&mut *LOGS.lock());
    take_all(&logs)
}

fn take_all(logs: &[Logs]) -> Read {
    let read = read(logs, u64::MAX, Part::Rest);
    for Logs { calls, graphs, waits, .. } in logs {
        calls.lock().let_go();
        if let Some(graphs) = graphs {
            graphs.lock().let_go();
        }
        if let Some(waits) = waits {
            waits.lock().let_go();
        }
    }
    read
}

/// Reads a part of the logs up to a past time, beside the threads that write them. A call that
/// began before that time but is still being logged is left out: it has done nothing yet.
pub(crate) fn read_until(until_ns: u64, part: Part) -> Read {
    // A copy: a thread's first call takes this lock.
    let logs = LOGS.lock().clone();
    let read = read(&logs, until_ns, part);
    if part == Part::Finished {
        LOGS.lock().retain(|logs| !logs.is_done());
    }
    read
}

/// Starts a segment of the collection now. Calls that began before it count as over: their returns
/// may have been missed.
pub(crate) fn begin_segment() {
    SEGMENT_FROM_NS.store(os::monotonic_ns(), Ordering::Release);
}

/// Returns the start of the current [segment](begin_segment).
pub(crate) fn segment_from_ns() -> u64 {
    SEGMENT_FROM_NS.load(Ordering::Acquire)
}

/// Returns when a driver call was last seen to begin or to return; 0 before the first.
///
/// Costs a step for each thread and each of its chunks.
///
/// # Errors
///
/// The class of a launch of the [segment](begin_segment) that is in progress and not
/// [waiting](set_waiting); of a graph's launch if there is one.
pub(crate) fn quiet_since() -> Result<u64, CallClass> {
    let from_ns = segment_from_ns();
    let logs = LOGS.lock().clone();
    let (mut last_ns, mut in_progress) = (0, None);
    for words in logs.iter().filter_map(|logs| logs.calls.lock().last()) {
        let function = DriverFunction(((words[ID] & !RUNTIME) >> 32) as u32);
        let is_open = words[END] == 0 && words[ID] & RUNTIME == 0 && words[OUTCOME] & WAITS == 0;
        let class = function.class();
        if is_open && words[START] >= from_ns && class.submits_work() {
            in_progress =
                in_progress.filter(|class| *class == CallClass::GraphLaunch).or(Some(class));
        }
        last_ns = last_ns.max(words[START]).max(words[END]);
    }
    in_progress.map_or(Ok(last_ns), Err)
}

/// Returns the bytes of memory that the logs take.
pub(crate) fn held_bytes() -> u64 {
    let logs = LOGS.lock().clone();
    let of = |logs: &Logs| {
        let graphs = logs.graphs.as_ref().map_or(0, |graphs| graphs.lock().log().held_bytes());
        let waits = logs.waits.as_ref().map_or(0, |waits| waits.lock().log().held_bytes());
        logs.log.held_bytes() + graphs + waits
    };
    logs.iter().map(of).sum()
}

/// The entries of the logs to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Calls that have returned, and graph events; reading removes them.
    Finished,
    /// Calls that have not returned.
    UnderWay,
    /// Calls that were not removed, as if none had returned.
    Left,
    /// All entries that were not removed.
    Rest,
}

fn read(logs: &[Logs], until_ns: u64, part: Part) -> Read {
    let (panics, unlogged) = (callback_panics::count(), UNLOGGED.load(Ordering::Relaxed));
    let mut read = Read { panics, unlogged, ..Read::default() };
    let gives_most = matches!(part, Part::Finished | Part::Rest);
    for Logs { thread_id, thread_name, calls: reader, graphs, waits, .. } in logs {
        let mut reader = reader.lock();
        let mut calls = huge_pages::with_capacity(if gives_most { reader.len() } else { 0 });
        let mut runtime_calls = Vec::new();
        let visit = |_, mut words: [u64; WORDS]| {
            if words[START] >= until_ns {
                return;
            }
            if words[END] >= until_ns || part == Part::Left {
                words[END] = 0;
            }
            if part == Part::UnderWay && words[END] != 0 {
                return;
            }
            if words[ID] & RUNTIME == 0 {
                calls.push(Call::from_words(words));
            } else {
                runtime_calls.push(Call::from_words(words));
            }
        };
        match part {
            Part::Finished => reader.drain(until_ns, visit),
            Part::UnderWay | Part::Left | Part::Rest => reader.rest(visit),
        }
        drop(reader);
        if !calls.is_empty() {
            read.calls.push(ThreadCalls::new(*thread_id, thread_name.clone(), calls));
        }
        if !runtime_calls.is_empty() {
            let name = thread_name.clone();
            read.runtime_calls.push(ThreadCalls::new(*thread_id, name, runtime_calls));
        }
        if let Some(graphs) = graphs.as_ref().filter(|_| gives_most) {
            let take = part == Part::Finished;
            let graphs = ThreadGraphs::read(*thread_id, &mut graphs.lock(), until_ns, take);
            if !graphs.events.is_empty() {
                read.graphs.push(graphs);
            }
        }
        if let Some(waits) = waits.as_ref().filter(|_| gives_most) {
            Wait::read(&mut waits.lock(), until_ns, part == Part::Finished, &mut read.waits);
        }
    }
    read
}

/// Runs `with` on the thread's state. Returns false if the state is unavailable: the thread's
/// locals are gone, or another callback on this thread uses it, as in a word source that calls
/// CUDA.
#[inline(always)] // into the one hot callback
fn with_thread(with: impl FnOnce(&mut Option<Thread>)) -> bool {
    let ran = THREAD.try_with(|thread| thread.try_borrow_mut().map(|mut thread| with(&mut thread)));
    matches!(ran, Ok(Ok(())))
}

/// Counts a call or a graph event that could not be logged.
#[cold]
#[inline(never)]
fn unlogged() {
    UNLOGGED.fetch_add(1, Ordering::Relaxed);
}

/// Begins the thread's log of this collection. `None` if the collection has ended since the
/// callback saw it: its entries must not enter the next one, which may have begun.
#[cold]
#[inline(never)]
fn register(epoch: Epoch) -> Option<Thread> {
    let writer = Writer::new();
    let log = writer.log();
    let calls = Arc::new(Mutex::new(log.reader(Some(END))));
    let (thread_id, thread_name) = (thread_id(), os::thread_name());
    let logs = Logs { thread_id, thread_name, log, calls, graphs: None, waits: None };
    let mut all = LOGS.lock();
    // A collection's logs are taken with this lock after it has ended.
    if !State::load().epoch().same_collection(epoch) {
        return None;
    }
    all.push(logs);
    drop(all);
    let (open, submitted) = (Vec::with_capacity(16), Submitted::none());
    let (graphs, waits) = (None, None);
    Some(Thread { epoch, writer, graphs, waits, open, before_pause: 0, submitted })
}

/// Returns the thread's logs; begins them if it has none of this collection, renews them if it was
/// last seen before a pause.
#[cold]
#[inline(never)]
fn renew(thread: &mut Option<Thread>, epoch: Epoch) -> Option<&mut Thread> {
    let known = thread.take().filter(|thread| thread.epoch.same_collection(epoch));
    let mut known = match known {
        Some(known) => known,
        None => register(epoch)?,
    };
    known.epoch = epoch;
    // Calls from before one pause may be under way and enclose this call; older ones would
    // accumulate.
    known.leave_open(known.before_pause);
    known.before_pause = known.open.len();
    Some(thread.insert(known))
}

/// Returns the thread's logs of this epoch, begun or renewed if needed.
#[inline(always)] // into the one hot callback
fn of_epoch(thread: &mut Option<Thread>, epoch: Epoch) -> Option<&mut Thread> {
    if thread.as_ref().is_some_and(|thread| thread.epoch == epoch) {
        return thread.as_mut();
    }
    renew(thread, epoch)
}

/// Logs the begin of a call. `submits` is true if the call may end a gap: a driver call that
/// submits work.
#[inline(always)] // into the one hot callback
pub(crate) fn enter(
    state: State,
    api: Api,
    id: u32,
    correlation_id: u32,
    empty: bool,
    submits: bool,
) {
    let epoch = state.epoch();
    let logged = with_thread(|thread| {
        let Some(thread) = of_epoch(thread, epoch) else { return };
        let id = id_word(api, id, correlation_id);
        let mut flags = if empty { EMPTY } else { 0 };
        let word = word_of_call();
        // The time is taken last: a stop that precedes the entry must not have a time after its
        // start.
        let mut now = os::monotonic_ns();
        if submits {
            let Submitted { at_ns, stacks_after_ns, .. } = thread.submitted;
            if now.saturating_sub(at_ns) >= stacks_after_ns {
                flags |= u64::from(stack_of_call(at_ns)) << STACK_SHIFT;
                now = os::monotonic_ns();
            }
        }
        let slot = thread.writer.push([id, word, now, flags, 0]);
        if submits {
            (thread.submitted.slot, thread.submitted.at_ns) = (slot, now);
        }
        thread.open.push(Open { id, slot });
    });
    if !logged {
        unlogged();
    }
}

/// Logs the return of a call; ignores calls that are not logged.
#[inline(always)] // as enter
pub(crate) fn exit(state: State, api: Api, id: u32, correlation_id: u32, result: u32) {
    let end = os::monotonic_ns();
    let id = id_word(api, id, correlation_id);
    // Without the thread's state its enter was not logged, and was counted.
    let _ = with_thread(|thread| {
        let of_this = |thread: &&mut Thread| thread.epoch.same_collection(state.epoch());
        let Some(thread) = thread.as_mut().filter(of_this) else { return };
        // An exit whose enter was before the start has no entry. Entries above it on the stack
        // never returned here.
        let Some(place) = thread.open.iter().rposition(|open| open.id == id) else { return };
        let slot = thread.open[place].slot;
        if slot == thread.submitted.slot {
            thread.submitted.at_ns = end;
        }
        thread.open.truncate(place);
        thread.before_pause = thread.before_pause.min(place);
        let flags = thread.writer.get(slot, OUTCOME);
        thread.writer.set(slot, OUTCOME, flags | u64::from(result));
        thread.writer.set(slot, END, end);
    });
}

/// Logs the wait of a driver call that returns now. Ignores a call that was not logged.
#[cold]
#[inline(never)]
pub(crate) fn waited(state: State, id: u32, wait: Wait) {
    let end_ns = os::monotonic_ns();
    let id = id_word(Api::Driver, id, wait.correlation_id);
    // Without the thread's state its enter was not logged, and was counted.
    let _ = with_thread(|thread| {
        let Some(thread) = thread.as_mut().filter(|thread| thread.epoch == state.epoch()) else {
            return;
        };
        let Some(open) = thread.open[thread.before_pause..].iter().rfind(|open| open.id == id)
        else {
            return;
        };
        let start_ns = thread.writer.get(open.slot, START);
        let log = &thread.writer.log();
        let writer = thread.waits.get_or_insert_with(|| {
            let writer = WaitWriter::new();
            let reader = waits::reader(&writer);
            of_log(log, |logs| logs.waits = Some(Arc::new(Mutex::new(reader))));
            writer
        });
        writer.push(Wait { start_ns, end_ns, ..wait }.to_words());
    });
}

/// Applies `change` to the entry of a thread's logs.
fn of_log(log: &Arc<ThreadLog<WORDS>>, change: impl FnOnce(&mut Logs)) {
    if let Some(logs) = LOGS.lock().iter_mut().find(|logs| Arc::ptr_eq(&logs.log, log)) {
        change(logs);
    }
}

/// Records whether the driver call that this thread has begun waits in its callback: such a call
/// has submitted nothing.
#[cold]
pub(crate) fn set_waiting(id: u32, correlation_id: u32, waits: bool) {
    let id = id_word(Api::Driver, id, correlation_id);
    // Without the thread's state the call was not logged.
    let _ = with_thread(|thread| {
        let Some(thread) = thread.as_mut() else { return };
        let Some(&Open { slot, .. }) = thread.innermost().filter(|open| open.id == id) else {
            return;
        };
        let flags = thread.writer.get(slot, OUTCOME) & !WAITS;
        thread.writer.set(slot, OUTCOME, flags | if waits { WAITS } else { 0 });
    });
}

/// Handles a new graph node: if it was made within a recorded call, that call was captured.
pub(crate) fn node_created(state: State) {
    // Without the thread's state its call was not logged either.
    let _ = with_thread(|thread| {
        let Some(thread) = thread.as_mut().filter(|thread| thread.epoch == state.epoch()) else {
            return;
        };
        let Some(&innermost) = thread.innermost() else { return };
        // The driver call, and the call of the runtime API that made it.
        let same = |open: &&Open| open.id as u32 == innermost.id as u32;
        for open in thread.open[thread.before_pause..].iter().rev().take_while(same) {
            let flags = thread.writer.get(open.slot, OUTCOME);
            thread.writer.set(open.slot, OUTCOME, flags | CAPTURED);
        }
    });
}

/// Logs a graph event.
#[cold]
pub(crate) fn graph_event(state: State, event: GraphEvent) {
    let epoch = state.epoch();
    let logged = with_thread(|thread| {
        let Some(thread) = of_epoch(thread, epoch) else { return };
        let event = GraphEvent {
            at_ns: os::monotonic_ns(),
            word: word_of_call(),
            call: thread.innermost().map_or(0, |open| open.id as u32),
            ..event
        };
        let log = &thread.writer.log();
        let writer = thread.graphs.get_or_insert_with(|| {
            let writer = GraphWriter::new();
            let reader = graphs::reader(&writer);
            of_log(log, |logs| logs.graphs = Some(Arc::new(Mutex::new(reader))));
            writer
        });
        graphs::note(event.kind, event.at_ns);
        writer.push(event.to_words());
    });
    if !logged {
        unlogged();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_know_their_name_and_class() {
        let of = |name| DriverFunction::by_name(name).unwrap();
        assert_eq!(of("cuLaunchKernel"), DriverFunction(307));
        assert_eq!(of("cuLaunchKernelEx_ptsz").class(), CallClass::KernelLaunch);
        assert_eq!(of("cuGraphLaunch").class(), CallClass::GraphLaunch);
        assert_eq!(of("cuMemcpyHtoDAsync_v2").class(), CallClass::Memcpy);
        assert_eq!(of("cuStreamSynchronize").class(), CallClass::Synchronize);
        assert_eq!(of("cuStreamWaitEvent").class(), CallClass::WaitEvent);
        assert_eq!(of("cuEventQuery").class(), CallClass::Query);
        assert_eq!(of("cuMemFreeAsync").class(), CallClass::Free);
        assert_eq!(of("cuLaunchHostFunc_v2").class(), CallClass::HostFunction);
        assert!(DriverFunction::by_name("cuGetErrorName").is_none());
        assert_eq!(DriverFunction(1).class(), CallClass::Unknown);
        assert_eq!(DriverFunction(u32::MAX).name(), "(unknown driver call)");

        let of = |name| RuntimeFunction::by_name(name).unwrap();
        assert_eq!(of("cudaLaunchKernel"), RuntimeFunction(211));
        assert_eq!(of("cudaMemcpyAsync_ptsz").class(), CallClass::Memcpy);
        assert_eq!(of("cudaDeviceSynchronize").class(), CallClass::Synchronize);
        assert_eq!(of("cudaHostAlloc").class(), CallClass::Alloc);
        assert!(of("cudaFree").entry().is_some() && RuntimeFunction(0).entry().is_none());
        assert!(RuntimeFunction::by_name("cudaGetLastError").is_none());
        assert_eq!(RuntimeFunction(u32::MAX).class(), CallClass::Unknown);
    }

    #[test]
    fn call_round_trips_through_its_words() {
        let call = Call {
            function: DriverFunction(307),
            correlation_id: u32::MAX,
            word: u64::MAX - 1,
            start_ns: 5,
            end_ns: Some(9),
            result: 700,
            captured: true,
            empty: false,
            stack: MAX_STACK,
        };
        assert_eq!(Call::from_words(call.to_words()), call);
        let open = Call { end_ns: None, captured: false, empty: true, stack: 0, ..call };
        assert_eq!(Call::from_words(open.to_words()), open);
    }

    fn logs(log: Arc<ThreadLog<WORDS>>, calls: Arc<Mutex<Reader<WORDS>>>) -> Logs {
        Logs { thread_id: 1, thread_name: None, log, calls, graphs: None, waits: None }
    }

    #[test]
    fn a_thread_that_goes_on_keeps_a_chunk_of_a_collection_that_has_ended() {
        let (mut writer, mut graph_writer) = (Writer::new(), GraphWriter::new());
        let log = writer.log();
        let calls = Arc::new(Mutex::new(log.reader(Some(END))));
        let graphs = Some(Arc::new(Mutex::new(graphs::reader(&graph_writer))));
        let chunks = (log.held_bytes(), graph_writer.log().held_bytes());
        for id in 0..20_000 {
            writer.push([id_word(Api::Driver, 307, id), 0, 5, 0, u64::from(id % 2)]);
            graph_writer.push([1; 7]);
        }
        assert!(log.held_bytes() > 2 * chunks.0 && graph_writer.log().held_bytes() > 2 * chunks.1);
        let read = take_all(&[Logs { graphs, ..logs(log.clone(), calls) }]);
        assert_eq!((read.calls[0].calls.len(), read.graphs[0].events.len()), (20_000, 20_000));
        assert_eq!((log.held_bytes(), graph_writer.log().held_bytes()), chunks);
        drop((writer, graph_writer));
    }

    /// A call reads the clock and then logs its end: a drain may come between.
    #[test]
    fn call_left_by_a_drain_was_running_at_its_end() {
        let mut writer = Writer::new();
        let log = writer.log();
        let calls = Arc::new(Mutex::new(log.reader(Some(END))));
        let logs = [logs(log, calls)];
        let ends = |until_ns, part| -> Vec<_> {
            let read = read(&logs, until_ns, part);
            read.calls.iter().flat_map(|t| &t.calls).map(|call| call.end_ns).collect()
        };
        let slot = writer.push([id_word(Api::Driver, 307, 1), 0, 5, 0, 0]);
        assert!(ends(10, Part::Finished).is_empty());
        writer.set(slot, END, 8);
        assert_eq!(ends(10, Part::Left), [None]);
        assert!(ends(5, Part::Left).is_empty() && ends(10, Part::UnderWay).is_empty());
        assert_eq!((ends(8, Part::UnderWay), ends(8, Part::Rest)), (vec![None], vec![None]));
        assert_eq!((ends(9, Part::Rest), ends(9, Part::Finished)), (vec![Some(8)], vec![Some(8)]));
        assert!(ends(20, Part::Rest).is_empty());
    }
}
