//! Start, flush, stop: the one place that drives CUPTI.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::buffer::{self, LOG, Log, POOL};
use crate::calls::{self, ThreadCalls};
use crate::clock::{self, Clock, Reading};
use crate::config::Config;
use crate::error::{Error, Kind};
use crate::library::{Library, Version};
use crate::record::{ActivityKind, RecordBytes};
use crate::sys::abi::{
    ATTR_ZEROED_OUT_ACTIVITY_BUFFER, CuptiResult, DOMAIN_DRIVER_API, DOMAIN_RESOURCE,
    FLAG_FLUSH_FORCED, RESOURCE_GRAPHNODE_CREATED, SubscriberHandle, SubscriberParams,
};
use crate::sys::api::Api;
use crate::sys::generated::DRIVER_CALLS;

/// The activity kinds that are collected.
const KINDS: [ActivityKind; 6] = [
    ActivityKind::CONCURRENT_KERNEL,
    ActivityKind::MEMCPY,
    ActivityKind::MEMCPY2,
    ActivityKind::MEMSET,
    ActivityKind::OVERHEAD,
    ActivityKind::SYNCHRONIZATION,
];

/// Name under which other tools see this subscriber.
const NAME: &CStr = c"cupti-rs";

/// CUPTI has one subscriber, so a process has one collector at a time: this is its process id, or 0.
static COLLECTING: AtomicU32 = AtomicU32::new(0);

/// A running collection of GPU records and driver calls.
///
/// Dropping it stops the collection and throws away what was collected; [`stop`](Self::stop) gives it.
#[derive(Debug)]
pub struct Collector {
    library: Library,
    subscriber: Subscriber,
    config: Config,
    start_ns: u64,
    clock: Reading,
    process: u32,
    running: bool,
}

/// CUPTI's handle; it is only ever passed back to CUPTI.
#[derive(Debug)]
struct Subscriber(SubscriberHandle);
// SAFETY: CUPTI's functions may be called with the handle from any thread.
unsafe impl Send for Subscriber {}
// SAFETY: as above; the handle itself is never dereferenced here.
unsafe impl Sync for Subscriber {}

/// What a collection gave: CUPTI's bytes and the calls, raw, with all that is needed to read them elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collected {
    /// The library's version.
    pub version: Version,
    /// When the collection was on, in [`clock::now_ns`] time: what was called outside it is not accounted for.
    pub window_ns: (u64, u64),
    /// How the records' timestamps relate to [`clock::now_ns`].
    pub clock: Clock,
    /// The records, as CUPTI wrote them.
    pub records: RecordBytes,
    /// The calls, by thread.
    pub calls: Vec<ThreadCalls>,
    /// What was lost or odd, as far as the collector can tell.
    pub losses: Losses,
}

/// What the collector lost or met; all zero in a good run, except `buffers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Losses {
    /// Records that CUPTI says it dropped.
    pub dropped_by_cupti: u64,
    /// Records thrown away at [`Config::memory_limit`].
    pub over_memory_limit: u64,
    /// Records whose length is not that of their kind.
    pub irregular: u64,
    /// Bytes that CUPTI's iterator could not step over.
    pub unreadable_bytes: u64,
    /// Panics caught in callbacks.
    pub panics: u64,
    /// Buffers with work that the GPU had not finished when the stop gave up waiting.
    pub unfinished_buffers: u64,
    /// Buffers that CUPTI asked for.
    pub buffers: u64,
    /// Those of them that had to be allocated inside a CUDA call.
    pub pool_misses: u64,
}

impl Collector {
    /// Subscribes to CUPTI and starts collecting: kernels, copies, memsets, synchronisations, CUPTI's own overhead,
    /// and the driver calls that cause them, from all threads and contexts of this process.
    ///
    /// Costs milliseconds; the first start in a process, and contexts made before it, cost more. What ran before is not
    /// seen.
    ///
    /// # Errors
    /// [`is_busy`](Error::is_busy) if another tool or another collector holds CUPTI; otherwise CUPTI's own refusal, in
    /// which case everything is put back.
    pub fn start(library: &Library, config: &Config) -> Result<Self, Error> {
        let process = std::process::id();
        match COLLECTING.compare_exchange(0, process, Ordering::Acquire, Ordering::Relaxed) {
            Err(other) if other == process => return Err(Error::new(Kind::AlreadyCollecting)),
            Err(_) => return Err(Error::new(Kind::Forked)),
            Ok(_) => {}
        }
        let started = Self::start_alone(library, config, process);
        if started.is_err() {
            COLLECTING.store(0, Ordering::Release);
        }
        started
    }

    fn start_alone(library: &Library, config: &Config, process: u32) -> Result<Self, Error> {
        let api: &'static Api = leaked(&library.api);
        let subscriber = subscribe(&library.api)?;
        if let Some(why) = library.unusable {
            // SAFETY: the handle is the subscription just made.
            let _ = unsafe { (library.api.unsubscribe)(subscriber.0) };
            return Err(library.refuse(why));
        }
        let mut collector = Self {
            library: library.clone(),
            subscriber,
            config: config.clone(),
            start_ns: 0,
            clock: Reading { at_ns: 0, offset_ns: 0 },
            process,
            running: false,
        };
        POOL.prepare(api, config.buffer_bytes, config.buffers);
        *LOG.lock() = Some(Log::new(config.memory_limit));
        calls::begin();
        match collector.enable() {
            Ok(()) => {
                collector.running = true;
                Ok(collector)
            }
            Err(error) => {
                collector.disable();
                collector.forget();
                Err(error)
            }
        }
    }

    fn enable(&mut self) -> Result<(), Error> {
        let api = &self.library.api;
        self.clock = clock::read(&self.library)?;
        let mut size = size_of::<u8>();
        let mut zeroed = 1u8;
        // Our buffers are zeroed where nobody waits; without this CUPTI does it inside the program's CUDA call.
        // SAFETY: `size` tells the size of `zeroed`; both live through the call.
        let code = unsafe {
            (api.set_attribute)(
                ATTR_ZEROED_OUT_ACTIVITY_BUFFER,
                &mut size,
                (&raw mut zeroed).cast(),
            )
        };
        // A library that does not know the attribute zeroes the buffers itself.
        if code != CuptiResult::INVALID_PARAMETER {
            check("cuptiActivitySetAttribute", code)?;
        }
        // SAFETY: both functions live as long as the process and do not unwind.
        let code = unsafe { (api.register_callbacks)(buffer::requested, buffer::completed) };
        check("cuptiActivityRegisterCallbacks", code)?;
        for call in &DRIVER_CALLS {
            match self.enable_callback(true, DOMAIN_DRIVER_API, call.id) {
                // Functions that are newer than the library cannot be called in it either.
                CuptiResult::INVALID_PARAMETER => {}
                code => check("cuptiEnableCallback", code)?,
            }
        }
        let code = self.enable_callback(true, DOMAIN_RESOURCE, RESOURCE_GRAPHNODE_CREATED);
        check("cuptiEnableCallback", code)?;
        for kind in KINDS {
            // SAFETY: takes a kind by value.
            check("cuptiActivityEnable", unsafe { (api.enable)(kind.0) })?;
        }
        self.start_ns = clock::now_ns();
        Ok(())
    }

    fn enable_callback(&self, on: bool, domain: u32, id: u32) -> CuptiResult {
        let on = u32::from(on);
        // SAFETY: the handle is our live subscription.
        unsafe { (self.library.api.enable_callback)(on, self.subscriber.0, domain, id) }
    }

    /// Has CUPTI hand over the records that are complete. The GPU is not waited for.
    ///
    /// # Errors
    /// CUPTI's refusal, or a process forked off after the start.
    pub fn flush(&self) -> Result<(), Error> {
        self.check_process()?;
        // SAFETY: takes flags by value; no lock is held that our buffer callbacks take.
        check("cuptiActivityFlushAll", unsafe { (self.library.api.flush_all)(0) })
    }

    /// Ends the collection and gives what it collected.
    ///
    /// Waits until the GPU has finished what was launched, at most [`Config::drain_timeout`]; it does so by asking
    /// CUPTI which records are still open and touches no context or stream of the program.
    ///
    /// # Errors
    /// CUPTI's refusal, or a process forked off after the start. The collection is over all the same.
    pub fn stop(mut self) -> Result<Collected, Error> {
        self.check_process()?;
        self.running = false;
        let drained = self.drain();
        let stop_ns = clock::now_ns();
        let clock_at_stop = clock::read(&self.library);
        self.disable();
        let (calls, panics) = calls::end();
        let mut dropped = 0;
        // SAFETY: a null context asks for the global queue; `dropped` is a live usize.
        let code = unsafe {
            (self.library.api.get_num_dropped_records)(std::ptr::null_mut(), 0, &mut dropped)
        };
        let log = LOG.lock().take().unwrap_or_default();
        COLLECTING.store(0, Ordering::Release);

        let unfinished = drained?;
        check("cuptiActivityGetNumDroppedRecords", code)?;
        let clock = Clock { start: self.clock, stop: clock_at_stop? };
        let (buffers, pool_misses) = POOL.counts();
        Ok(Collected {
            version: self.library.version(),
            window_ns: (self.start_ns, stop_ns),
            clock,
            losses: Losses {
                dropped_by_cupti: dropped as u64,
                over_memory_limit: log.counts.over_limit,
                irregular: log.counts.irregular,
                unreadable_bytes: log.counts.unreadable_bytes,
                panics: panics + log.counts.panics,
                unfinished_buffers: unfinished,
                buffers,
                pool_misses,
            },
            records: RecordBytes::from_log(log),
            calls,
        })
    }

    /// Flushes until CUPTI holds no buffer, which then has no unfinished record; gives how many it kept to itself.
    fn drain(&self) -> Result<u64, Error> {
        let deadline = Instant::now() + self.config.drain_timeout;
        let mut pause = Duration::from_micros(50);
        loop {
            self.flush()?;
            let out = POOL.out();
            if out <= 0 {
                return Ok(0);
            }
            if Instant::now() >= deadline {
                return Ok(out as u64);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    /// Turns everything off that [`enable`](Self::enable) turns on; errors on this way have nobody to go to.
    fn disable(&self) {
        let api = &self.library.api;
        for kind in KINDS {
            // SAFETY: takes a kind by value; disabling what is off does nothing.
            let _ = unsafe { (api.disable)(kind.0) };
        }
        // SAFETY: takes flags by value; no lock is held that our buffer callbacks take.
        let _ = unsafe { (api.flush_all)(FLAG_FLUSH_FORCED) };
        // SAFETY: the handle is our live subscription; this ends it and with it all callbacks.
        let _ = unsafe { (api.unsubscribe)(self.subscriber.0) };
    }

    /// Throws away what was collected and frees the place.
    fn forget(&self) {
        let _ = calls::end();
        *LOG.lock() = None;
        COLLECTING.store(0, Ordering::Release);
    }

    /// The library this collection uses.
    #[must_use]
    pub fn library(&self) -> &Library {
        &self.library
    }

    fn check_process(&self) -> Result<(), Error> {
        if self.process == std::process::id() { Ok(()) } else { Err(Error::new(Kind::Forked)) }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // In a forked child CUPTI would hang.
        if self.running && self.check_process().is_ok() {
            self.disable();
            self.forget();
        }
    }
}

fn check(function: &'static str, code: CuptiResult) -> Result<(), Error> {
    if code == CuptiResult::SUCCESS { Ok(()) } else { Err(Error::call(function, code)) }
}

fn subscribe(api: &Api) -> Result<Subscriber, Error> {
    let mut handle = std::ptr::null_mut();
    // SAFETY: `handle` is a live place, and the callback lives as long as the process and does not unwind.
    let code = unsafe { (api.subscribe)(&mut handle, calls::callback, std::ptr::null_mut()) };
    match code {
        CuptiResult::SUCCESS => Ok(Subscriber(handle)),
        CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED => {
            Err(Error::new(Kind::Busy { holder: holder(api) }))
        }
        code => Err(Error::call("cuptiSubscribe", code)),
    }
}

/// Who holds CUPTI, as far as it says; only asked for after a refusal.
fn holder(api: &Api) -> Option<String> {
    let subscribe = api.subscribe_v2?;
    let mut name = [0u8; 128];
    let mut params = SubscriberParams {
        struct_size: size_of::<SubscriberParams>(),
        subscriber_name: NAME.as_ptr(),
        old_subscriber_name: name.as_mut_ptr().cast(),
        old_subscriber_size: name.len() - 1,
    };
    let mut handle = std::ptr::null_mut();
    // SAFETY: `handle` and `params` are live, and `params` tells the room in `name`, which outlives the call.
    let code =
        unsafe { subscribe(&mut handle, calls::callback, std::ptr::null_mut(), &mut params) };
    if code == CuptiResult::SUCCESS {
        // The holder has gone meanwhile.
        // SAFETY: the handle is the subscription just made.
        let _ = unsafe { (api.unsubscribe)(handle) };
        return None;
    }
    let name = CStr::from_bytes_until_nul(&name).ok()?.to_string_lossy();
    // nsys and clients of the first subscribe function give no name; CUPTI then says so.
    (!name.is_empty() && !name.contains("<not provided>")).then(|| name.into_owned())
}

/// The one lasting copy of a function table, for callbacks that carry no context.
fn leaked(api: &Api) -> &'static Api {
    use parking_lot::Mutex;
    static TABLES: Mutex<Vec<&'static Api>> = Mutex::new(Vec::new());
    let mut tables = TABLES.lock();
    let known =
        tables.iter().find(|table| table.get_next_record as usize == api.get_next_record as usize);
    match known {
        Some(table) => table,
        None => {
            let table: &'static Api = Box::leak(Box::new(*api));
            tables.push(table);
            table
        }
    }
}
