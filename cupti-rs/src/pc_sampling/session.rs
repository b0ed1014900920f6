//! The sampling of a collection: its contexts, CUPTI's events about them, and the thread that reads
//! them.
//!
//! A context's lock is held while CUPTI reads it. Callbacks wait for it at most [`LONGEST_WAIT`]: a
//! reading may need a lock of the driver that the callback's thread holds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use parking_lot::Mutex;

use super::elf::has_line_table;
use super::known_contexts;
use super::line_finder::{Added, LineFinder};
use super::reading::Reading;
use super::samples::{PcContext, PcRecord, PcSamples};
use super::settings::PcSampling;
use super::undrained::Undrained;
use crate::clock;
use crate::error::{Error, Kind};
use crate::launch_hold::beside_no_launch;
use crate::quiet_thread;
use crate::sys::api::Api;
use crate::sys::counters::PcSamplingApi;
use crate::sys::driver::Context;
use crate::sys::os;
use crate::sys::pc_sampling::{self, ContextSampler, Rest};
use crate::version::Version;

/// The longest wait of a callback for a reading on another thread, and of a pause and a resume for
/// launches to return.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait of a context's creation for launches: they may wait for a lock that it holds.
const CREATION_WAITS: Duration = Duration::from_millis(20);

/// The session that callbacks feed.
static SESSION: Mutex<Option<Arc<Session>>> = Mutex::new(None);

/// The sampling of one collection.
#[derive(Debug)]
pub(crate) struct Session {
    api: Api,
    /// CUPTI's functions, or the reason why nothing is sampled.
    functions: Result<PcSamplingApi, Error>,
    has_correlation: bool,
    settings: PcSampling,
    contexts: Mutex<Vec<Arc<Sampled>>>,
    undrained: Mutex<Undrained>,
    lines: LineFinder,
    /// False in pauses: CUPTI enables no kind of kernel records while a context is sampled.
    is_on: AtomicBool,
    ends: AtomicBool,
    thread: OnceLock<Thread>,
    join: Mutex<Option<JoinHandle<()>>>,
}

/// A context of the process.
#[derive(Debug)]
struct Sampled {
    context: Context,
    /// Locked while CUPTI reads the context; `None` while it is not sampled.
    sampler: Mutex<Option<Sampler>>,
    /// The memory of the sampling that a pause ended.
    rest: Mutex<Option<Rest>>,
    /// True once CUPTI must not be called for it: it was refused, or is destroyed.
    is_over: AtomicBool,
    facts: Mutex<PcContext>,
}

#[derive(Debug)]
struct Sampler {
    sampler: ContextSampler,
    /// The times of the last two readings.
    read_ns: [u64; 2],
    /// The time since which samples were not returned, by the readings before the last one with
    /// samples: CUPTI decodes in batches, and a batch ends up to two readings before it is returned.
    since_ns: u64,
}

/// The cause of a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Request,
    ModuleEnds,
    Pause,
    ContextEnds,
}

impl Session {
    /// Prepares for contexts that callbacks report. They are sampled from the first
    /// [`resume`](Self::resume) on.
    pub(crate) fn begin(api: &Api, version: Version, settings: &PcSampling) -> Arc<Self> {
        let has_correlation = version.cuda_release() >= (12, 4);
        let lacks =
            |what: &str, since| Error::new(Kind::Lacks { what: what.to_owned(), since, version });
        let functions = match api.pc_sampling {
            _ if settings.is_serialized && !has_correlation => {
                Err(lacks("correlation ids in instruction samples", "12.4"))
            }
            Some(functions) if api.get_context_id.is_some() => Ok(functions),
            _ => Err(lacks("instruction samples", "")),
        };
        let session = Arc::new(Self {
            api: *api,
            functions,
            has_correlation,
            settings: settings.clone(),
            contexts: Mutex::default(),
            undrained: Mutex::default(),
            lines: LineFinder::default(),
            is_on: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            thread: OnceLock::new(),
            join: Mutex::default(),
        });
        known_contexts::clear();
        session.undrained.lock().samples.failure = session.functions.as_ref().err().cloned();
        if session.functions.is_ok() {
            end_with_process();
            session.spawn();
            *SESSION.lock() = Some(session.clone());
        }
        session
    }

    /// True if callbacks must report contexts.
    pub(crate) fn is_sampling(&self) -> bool {
        self.functions.is_ok()
    }

    fn spawn(self: &Arc<Self>) {
        let session = self.clone();
        let read = move || {
            while !session.ends.load(Ordering::Acquire) {
                thread::park_timeout(session.settings.drain_period);
                session.read();
            }
        };
        match quiet_thread::spawn(thread::Builder::new(), "cupti-samples", read) {
            Ok(join) => {
                _ = self.thread.set(join.thread().clone());
                *self.join.lock() = Some(join);
            }
            // Drains, and the ends of modules and contexts, read too.
            Err(error) => {
                let reason = error.to_string();
                self.undrained.lock().samples.failure = Some(Error::new(Kind::Thread { reason }));
            }
        }
    }

    /// Reads every context.
    pub(crate) fn read(&self) {
        self.read_contexts(Cause::Request);
    }

    fn read_contexts(&self, cause: Cause) {
        let contexts = self.contexts.lock().clone();
        for context in contexts {
            self.read_context(&context, cause);
        }
    }

    /// Samples the contexts from now on. The kinds of records must be enabled before.
    pub(crate) fn resume(&self) {
        self.is_on.store(true, Ordering::Release);
        let contexts = self.contexts.lock().clone();
        for context in contexts {
            self.sample(&context, LONGEST_WAIT);
        }
    }

    /// Reads the contexts and samples them no more until the next [`resume`](Self::resume).
    pub(crate) fn pause(&self) {
        self.is_on.store(false, Ordering::Release);
        self.read_contexts(Cause::Pause);
    }

    /// Adds a context, which is sampled from now on unless the collection is paused.
    pub(crate) fn add(&self, context: Context, existed: bool) {
        let id = self.api.context_id(context).unwrap_or_default();
        // No other driver call need report it.
        known_contexts::add(id);
        let device = self.api.context_device(context).unwrap_or_default();
        let (begin_ns, stall_reasons) = (clock::now_ns(), Arc::default());
        let (end_ns, error) = (None, None);
        let facts = PcContext { id, device, begin_ns, end_ns, existed, error, stall_reasons };
        let sampled = Arc::new(Sampled {
            context,
            sampler: Mutex::default(),
            rest: Mutex::default(),
            is_over: AtomicBool::new(false),
            facts: Mutex::new(facts),
        });
        self.contexts.lock().push(sampled.clone());
        self.sample(&sampled, CREATION_WAITS);
        // The collection may have ended meanwhile.
        if self.ends.load(Ordering::Acquire) {
            self.read_context(&sampled, Cause::ContextEnds);
        }
    }

    /// Samples a context from now on, unless it is sampled or the collection is paused.
    fn sample(&self, sampled: &Sampled, longest: Duration) {
        let Ok(functions) = &self.functions else { return };
        let mut sampler = sampled.sampler.lock();
        // A pause that begins after this waits for the lock.
        let is_on = self.is_on.load(Ordering::Acquire);
        if !is_on || sampler.is_some() || sampled.is_over.load(Ordering::Acquire) {
            return;
        }
        let context = sampled.context;
        let (settings, has_correlation) = (&self.settings, self.has_correlation);
        let enable = || {
            let mut rest = sampled.rest.lock();
            ContextSampler::enable(*functions, has_correlation, context, settings, &mut rest)
        };
        // A launch that does not return must not prevent it.
        let enabled = beside_no_launch(longest, enable).unwrap_or_else(enable);
        let now_ns = clock::now_ns();
        let mut facts = sampled.facts.lock();
        match enabled {
            Ok(enabled) => {
                facts.stall_reasons = enabled.reasons().clone();
                *sampler =
                    Some(Sampler { sampler: enabled, read_ns: [now_ns; 2], since_ns: now_ns });
            }
            Err(error) => {
                sampled.is_over.store(true, Ordering::Release);
                (facts.end_ns, facts.error) = (Some(now_ns), Some(error));
            }
        }
    }

    fn find(&self, context: Context) -> Option<Arc<Sampled>> {
        let contexts = self.contexts.lock();
        let is_it = |sampled: &&Arc<Sampled>| {
            sampled.context == context && !sampled.is_over.load(Ordering::Acquire)
        };
        contexts.iter().find(is_it).cloned()
    }

    /// True if the context is known and not sampled.
    fn is_refused(&self, context: Context) -> bool {
        let contexts = self.contexts.lock();
        let mut known = contexts.iter().rev().filter(|sampled| sampled.context == context);
        known.next().is_some_and(|sampled| sampled.is_over.load(Ordering::Acquire))
    }

    /// Reads a context and, at a pause or its end, ends its sampling.
    fn read_context(&self, sampled: &Sampled, cause: Cause) {
        let is_last = cause == Cause::ContextEnds;
        let guard = sampled.sampler.try_lock_for(LONGEST_WAIT);
        let is_over = sampled.is_over.fetch_or(is_last, Ordering::AcqRel);
        let Some(mut guard) = guard else {
            if cause != Cause::Request && !is_over {
                let mut undrained = self.undrained.lock();
                undrained.samples.losses.missed_ends += 1;
                if is_last {
                    sampled.facts.lock().end_ns = Some(clock::now_ns());
                }
            }
            return;
        };
        let Some(Sampler { sampler, read_ns, since_ns }) = guard.as_mut().filter(|_| !is_over)
        else {
            if is_last && !is_over {
                sampled.facts.lock().end_ns = Some(clock::now_ns());
            }
            return;
        };
        let mut reading = Reading::default();
        reading.read(sampler);
        let mut end_ns = clock::now_ns();
        let [earlier_ns, begin_ns] = std::mem::replace(read_ns, [read_ns[1], end_ns]);
        let since_ns = match reading.is_empty() {
            true => *since_ns,
            false => std::mem::replace(since_ns, earlier_ns),
        };
        let mut is_missed = false;
        if is_last || cause == Cause::Pause {
            let disabled = beside_no_launch(LONGEST_WAIT, || {
                let sampler = guard.take()?.sampler;
                Some(sampler.disable(&mut |row| reading.add(row)))
            });
            // A context that a launch does not leave is sampled on, and its samples are read later.
            is_missed = is_last && disabled.is_none();
            if let Some(disabled) = disabled.flatten() {
                let counts = disabled.map(|(counts, rest)| {
                    *sampled.rest.lock() = rest;
                    counts
                });
                reading.count(counts);
                end_ns = clock::now_ns();
            }
        }
        // Callbacks that wait for the context may proceed.
        drop(guard);
        let failed = reading.failed.take();
        let mut undrained = self.undrained.lock();
        let mut facts = sampled.facts.lock();
        if is_last {
            facts.end_ns = Some(end_ns);
        }
        facts.error.clone_from(&failed);
        undrained.samples.losses.failed_reads += u64::from(failed.is_some());
        undrained.samples.losses.missed_ends += u64::from(is_missed);
        undrained.add([since_ns, begin_ns, end_ns], facts.id, reading, self.settings.max_records);
    }

    /// Keeps a cubin that has a line table.
    fn keep_cubin(&self, cubin: &[u8]) {
        let Ok(functions) = &self.functions else { return };
        if self.settings.max_cubin_bytes == 0 || !has_line_table(cubin) {
            return;
        }
        let added = pc_sampling::cubin_crc(functions, cubin)
            .ok()
            .and_then(|crc| self.lines.add(crc, cubin, self.settings.max_cubin_bytes));
        let mut undrained = self.undrained.lock();
        match added {
            Some(Added::New(cubin)) if self.settings.keep_cubins => {
                undrained.samples.cubins.push(cubin);
            }
            Some(_) => {}
            None => undrained.samples.losses.cubins_left_out += 1,
        }
    }

    fn find_lines(&self, samples: &mut PcSamples) {
        if let Ok(functions) = &self.functions {
            self.lines.find(functions, samples);
        }
    }

    /// Returns the data that was not taken, and retains it.
    pub(crate) fn snapshot(&self) -> PcSamples {
        let undrained = self.undrained.lock();
        let contexts = self.contexts.lock();
        let contexts = contexts.iter().map(|sampled| sampled.facts.lock().clone()).collect();
        let mut samples = PcSamples { contexts, ..undrained.samples.clone() };
        drop(undrained);
        self.find_lines(&mut samples);
        samples
    }

    /// Removes and returns the data that was not taken.
    pub(crate) fn take(&self) -> PcSamples {
        let mut undrained = self.undrained.lock();
        let mut samples = undrained.take();
        self.contexts.lock().retain(|sampled| {
            samples.contexts.push(sampled.facts.lock().clone());
            samples.contexts.last().is_some_and(|facts| facts.end_ns.is_none())
        });
        drop(undrained);
        self.find_lines(&mut samples);
        samples
    }

    /// Bytes of memory with undrained data.
    pub(crate) fn held_bytes(&self) -> u64 {
        let records = self.undrained.lock().records;
        (self.lines.held_bytes() + records * size_of::<PcRecord>()) as u64
    }

    /// Ends the thread and the sampling of every context.
    pub(crate) fn end(&self) {
        self.stop_reading();
        self.read_contexts(Cause::ContextEnds);
        // Until here a context that was destroyed meanwhile is reported.
        *SESSION.lock() = None;
    }

    fn stop_reading(&self) {
        self.ends.store(true, Ordering::Release);
        let join = self.join.lock().take();
        if let Some(join) = join {
            join.thread().unpark();
            if join.join().is_err() {
                let reason = "it panicked".to_owned();
                self.undrained.lock().samples.failure = Some(Error::new(Kind::Thread { reason }));
            }
        }
    }
}

fn current() -> Option<Arc<Session>> {
    SESSION.lock().clone()
}

/// A driver call names a context that is not known.
#[cold]
pub(crate) fn context_found(context: Context, id: u32) {
    if known_contexts::add(id)
        && let Some(session) = current()
    {
        session.add(context, true);
    }
}

/// A context was created.
pub(crate) fn context_created(context: Context) {
    if let Some(session) = current() {
        session.add(context, false);
    }
}

/// A context is about to be destroyed.
pub(crate) fn context_ends(context: Context) {
    if let Some(session) = current()
        && let Some(sampled) = session.find(context)
    {
        session.read_context(&sampled, Cause::ContextEnds);
        known_contexts::remove(sampled.facts.lock().id);
    }
}

/// A module was loaded, with this cubin.
pub(crate) fn module_loaded(context: Context, cubin: &[u8]) {
    if let Some(session) = current()
        && !session.is_refused(context)
    {
        session.keep_cubin(cubin);
        // CUPTI requires a reading after a module was replaced.
        if let Some(thread) = session.thread.get() {
            thread.unpark();
        }
    }
}

/// A module is about to be unloaded: its samples are read, since another module may get its
/// addresses.
pub(crate) fn module_ends(context: Context) {
    if let Some(session) = current()
        && let Some(sampled) = session.find(context)
    {
        session.read_context(&sampled, Cause::ModuleEnds);
    }
}

/// Stops the reading thread before CUPTI ends with the process.
fn end_with_process() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    let last = || {
        if let Some(session) = current() {
            session.stop_reading();
        }
    };
    ONCE.call_once(|| os::at_exit(last));
}
