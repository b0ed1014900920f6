//! The call log: which driver call, on which thread, in which range, from when to when, with which result.
//!
//! A driver callback writes an entry at a call's start and fills in its end, in a log of the calling thread's own. The
//! caller's *word* goes with it: whoever owns the ranges keeps the current one in [`set_word`], and CUPTI's correlation
//! id then ties kernels, copies and synchronisations to it. No clock is involved in that.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::sys::abi::{API_ENTER, CallbackData, DOMAIN_DRIVER_API, DOMAIN_RESOURCE};
use crate::sys::generated::DRIVER_CALLS;
use crate::sys::os;
use crate::thread_log::{ThreadLog, Writer};

/// What a driver call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CallClass {
    /// Launches one kernel.
    KernelLaunch,
    /// Launches a CUDA graph: as many operations as the graph has nodes.
    GraphLaunch,
    /// Has the driver call a host function in stream order.
    HostFunction,
    /// Copies memory.
    Memcpy,
    /// Fills memory.
    Memset,
    /// Blocks the host until the GPU got somewhere.
    Synchronize,
    /// Makes a stream wait for an event; the host goes on.
    WaitEvent,
    /// Asks whether a stream or an event is done; the host goes on.
    Query,
    /// Allocates, registers or maps memory.
    Alloc,
    /// Frees, unregisters or unmaps memory.
    Free,
    /// A call this version of the crate has no name for.
    Unknown,
}

/// The index into [`DRIVER_CALLS`] of each callback id; 0 for those that are not recorded.
static INDEX: [u8; INDEX_LEN] = {
    let mut index = [0u8; INDEX_LEN];
    let mut i = 0;
    while i < DRIVER_CALLS.len() {
        index[DRIVER_CALLS[i].id as usize] = i as u8 + 1;
        i += 1;
    }
    index
};
const INDEX_LEN: usize = DRIVER_CALLS[DRIVER_CALLS.len() - 1].id as usize + 1;
const _: () = assert!(DRIVER_CALLS.len() < u8::MAX as usize);

/// A driver function, by CUPTI's callback id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DriverFunction(pub u32);

impl DriverFunction {
    fn entry(self) -> Option<&'static crate::sys::generated::DriverCall> {
        let index = *INDEX.get(self.0 as usize)?;
        DRIVER_CALLS.get((index as usize).checked_sub(1)?)
    }

    /// The function of this name, if its calls are recorded.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        DRIVER_CALLS.iter().find(|call| call.name == name).map(|call| Self(call.id))
    }

    /// The function's name, such as `cuLaunchKernel`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.entry().map_or("(unknown driver call)", |call| call.name)
    }

    /// What it does.
    #[must_use]
    pub fn class(self) -> CallClass {
        self.entry().map_or(CallClass::Unknown, |call| call.class)
    }
}

/// One driver call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// Which function.
    pub function: DriverFunction,
    /// The id that the activity records of its work carry. Unique within one collection.
    pub correlation_id: u32,
    /// The thread's word when it was called; 0 if none was set.
    pub word: u64,
    /// When it was called, in [`now_ns`](crate::clock::now_ns) time.
    pub start_ns: u64,
    /// When it returned; `None` if it had not when the log was read.
    pub end_ns: Option<u64>,
    /// Its `CUresult`: 0 is success. Meaningless while `end_ns` is `None`.
    pub result: u32,
    /// True if it made a node of a CUDA graph instead of doing its work (stream capture).
    pub captured: bool,
    /// True if it was asked to copy or fill nothing, which gives no record.
    pub empty: bool,
}

pub(crate) const WORDS: usize = 5;
const ID: usize = 0;
const WORD: usize = 1;
const START: usize = 2;
const OUTCOME: usize = 3;
const END: usize = 4;
const CAPTURED: u64 = 1 << 32;
const EMPTY: u64 = 1 << 33;

impl Call {
    /// A call as a recording holds it: the fields in the order of the log's words.
    #[must_use]
    pub fn from_words(words: [u64; WORDS]) -> Self {
        Self {
            function: DriverFunction((words[ID] >> 32) as u32),
            correlation_id: words[ID] as u32,
            word: words[WORD],
            start_ns: words[START],
            end_ns: (words[END] != 0).then_some(words[END]),
            result: words[OUTCOME] as u32,
            captured: words[OUTCOME] & CAPTURED != 0,
            empty: words[OUTCOME] & EMPTY != 0,
        }
    }

    /// The words of the log that make this call.
    #[must_use]
    pub fn to_words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[ID] = u64::from(self.function.0) << 32 | u64::from(self.correlation_id);
        words[WORD] = self.word;
        words[START] = self.start_ns;
        words[OUTCOME] = u64::from(self.result)
            | if self.captured { CAPTURED } else { 0 }
            | if self.empty { EMPTY } else { 0 };
        words[END] = self.end_ns.unwrap_or(0);
        words
    }
}

/// The calls of one thread, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ThreadCalls {
    /// The kernel's id of the thread (`gettid`).
    pub thread_id: u32,
    /// Its calls.
    pub calls: Vec<Call>,
}

impl ThreadCalls {
    /// Calls as a recording holds them.
    #[must_use]
    pub fn new(thread_id: u32, calls: Vec<Call>) -> Self {
        Self { thread_id, calls }
    }
}

/// Which collection is on; 0 while none is. Threads make a new log when it changes.
static EPOCH: AtomicU32 = AtomicU32::new(0);
/// The logs of the present collection, by thread.
static LOGS: Mutex<Vec<(u32, Arc<ThreadLog<WORDS>>)>> = Mutex::new(Vec::new());
/// Panics caught and exits without an enter, in callbacks.
static PANICS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static CURRENT_WORD: Cell<u64> = const { Cell::new(0) };
    static THREAD: RefCell<Option<Thread>> = const { RefCell::new(None) };
}

/// Sets the word that this thread's calls carry from now on, and returns the one before. Costs about 1 ns.
#[inline]
pub fn set_word(word: u64) -> u64 {
    CURRENT_WORD.try_with(|current| current.replace(word)).unwrap_or(0)
}

/// The word that this thread's calls carry.
#[inline]
#[must_use]
pub fn word() -> u64 {
    CURRENT_WORD.try_with(Cell::get).unwrap_or(0)
}

/// The kernel's id of the calling thread (`gettid`), as [`ThreadCalls::thread_id`] has it.
#[must_use]
pub fn thread_id() -> u32 {
    os::thread_id()
}

struct Thread {
    epoch: u32,
    writer: Writer<WORDS>,
    /// Calls that were entered and have not returned, outermost first: (correlation id, slot).
    open: Vec<(u32, u64)>,
}

/// Forgets the calls of an earlier collection and begins a new one.
pub(crate) fn begin() {
    static LAST: AtomicU32 = AtomicU32::new(0);
    LOGS.lock().clear();
    PANICS.store(0, Ordering::Relaxed);
    let epoch = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
    EPOCH.store(epoch, Ordering::Release);
}

/// Ends the collection and gives its calls, with the number of panics caught in callbacks.
pub(crate) fn end() -> (Vec<ThreadCalls>, u64) {
    EPOCH.store(0, Ordering::Release);
    let logs = std::mem::take(&mut *LOGS.lock());
    let threads = logs.into_iter().map(|(thread_id, log)| {
        let mut calls = Vec::with_capacity(log.len() as usize);
        log.for_each(END, |_, words| calls.push(Call::from_words(words)));
        ThreadCalls { thread_id, calls }
    });
    (threads.collect(), PANICS.load(Ordering::Relaxed))
}

/// The function that CUPTI calls at the start and end of each enabled driver call, on the calling thread.
pub(crate) unsafe extern "C" fn callback(
    _: *mut c_void,
    domain: u32,
    id: u32,
    data: *const c_void,
) {
    let epoch = EPOCH.load(Ordering::Acquire);
    if epoch == 0 || data.is_null() {
        return;
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| match domain {
        DOMAIN_DRIVER_API => {
            // SAFETY: in this domain CUPTI passes a CUpti_CallbackData that lives until we return.
            let data = unsafe { &*data.cast::<CallbackData>() };
            if data.callback_site == API_ENTER { enter(epoch, id, data) } else { exit(epoch, data) }
        }
        DOMAIN_RESOURCE => node_created(epoch),
        _ => {}
    }));
    if outcome.is_err() {
        PANICS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs `with` on the thread's state; not at all while the thread's locals are being destroyed.
fn with_thread(with: impl FnOnce(&mut Option<Thread>)) {
    let _ = THREAD.try_with(|thread| {
        if let Ok(mut thread) = thread.try_borrow_mut() {
            with(&mut thread);
        }
    });
}

#[cold]
#[inline(never)]
fn register(epoch: u32) -> Thread {
    let writer = Writer::new();
    LOGS.lock().push((thread_id(), writer.log()));
    Thread { epoch, writer, open: Vec::with_capacity(16) }
}

fn enter(epoch: u32, id: u32, data: &CallbackData) {
    let empty = is_empty(id, data);
    with_thread(|thread| {
        let thread = match thread {
            Some(thread) if thread.epoch == epoch => thread,
            _ => thread.insert(register(epoch)),
        };
        let slot = thread.writer.push([
            u64::from(id) << 32 | u64::from(data.correlation_id),
            word(),
            os::monotonic_ns(),
            if empty { EMPTY } else { 0 },
            0,
        ]);
        thread.open.push((data.correlation_id, slot));
    });
}

fn exit(epoch: u32, data: &CallbackData) {
    let end = os::monotonic_ns();
    let result = if data.function_return_value.is_null() {
        0
    } else {
        // SAFETY: at the exit of a driver call CUPTI points this at the call's CUresult.
        unsafe { data.function_return_value.cast::<u32>().read() }
    };
    with_thread(|thread| {
        let Some(thread) = thread.as_mut().filter(|thread| thread.epoch == epoch) else {
            return;
        };
        // An exit whose enter was before the start has no entry; those above it on the stack never returned here.
        let Some(place) = thread.open.iter().rposition(|(id, _)| *id == data.correlation_id) else {
            return;
        };
        let (_, slot) = thread.open[place];
        thread.open.truncate(place);
        let flags = thread.writer.get(slot, OUTCOME);
        thread.writer.set(slot, OUTCOME, flags | u64::from(result));
        thread.writer.set(slot, END, end);
    });
}

/// A graph node was made: if within a recorded call, that call was captured.
fn node_created(epoch: u32) {
    with_thread(|thread| {
        let Some(thread) = thread.as_mut().filter(|thread| thread.epoch == epoch) else {
            return;
        };
        let Some(&(_, slot)) = thread.open.last() else {
            return;
        };
        let flags = thread.writer.get(slot, OUTCOME);
        thread.writer.set(slot, OUTCOME, flags | CAPTURED);
    });
}

/// True if the call asks for zero bytes of work.
fn is_empty(id: u32, data: &CallbackData) -> bool {
    let Some(call) = DriverFunction(id).entry() else {
        return false;
    };
    if call.sizes.is_empty() || data.function_params.is_null() {
        return false;
    }
    call.sizes.iter().any(|&offset| {
        // SAFETY: the offsets of `call.sizes` lie in this function's parameter block, whose layout is part of the ABI.
        let place = unsafe { data.function_params.byte_add(offset) };
        // SAFETY: a size_t lies there, aligned to 8.
        unsafe { place.cast::<usize>().read() == 0 }
    })
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
    }

    #[test]
    fn a_call_survives_its_words() {
        let call = Call {
            function: DriverFunction(307),
            correlation_id: u32::MAX,
            word: u64::MAX - 1,
            start_ns: 5,
            end_ns: Some(9),
            result: 700,
            captured: true,
            empty: false,
        };
        assert_eq!(Call::from_words(call.to_words()), call);
        let open = Call { end_ns: None, captured: false, empty: true, ..call };
        assert_eq!(Call::from_words(open.to_words()), open);
    }
}
