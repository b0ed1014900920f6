//! Start, flush, stop: the one place that drives CUPTI.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::buffer::{LOG, Log, POOL};
use crate::calls::{self, ThreadCalls};
use crate::clock::{self, Clock, Reading};
use crate::config::Config;
use crate::error::{Error, Kind};
use crate::kind::ActivityKind;
use crate::library::{Library, Version};
use crate::record::RecordBytes;
use crate::sys::abi::{
    CuptiResult, DOMAIN_DRIVER_API, DOMAIN_RESOURCE, RESOURCE_GRAPHNODE_CREATED,
};
use crate::sys::api::Api;
use crate::sys::generated::DRIVER_CALLS;
use crate::sys::safe::Subscription;

/// The activity kinds that are collected.
const KINDS: [ActivityKind; 6] = [
    ActivityKind::CONCURRENT_KERNEL,
    ActivityKind::MEMCPY,
    ActivityKind::MEMCPY2,
    ActivityKind::MEMSET,
    ActivityKind::OVERHEAD,
    ActivityKind::SYNCHRONIZATION,
];

/// CUPTI has one subscriber, so a process has one collector at a time: this is its process id, or 0.
static COLLECTING: AtomicU32 = AtomicU32::new(0);

/// A running collection of GPU records and driver calls.
///
/// Dropping it stops the collection and throws away what was collected; [`stop`](Self::stop) gives it.
#[derive(Debug)]
pub struct Collector {
    library: Library,
    subscription: Subscription,
    config: Config,
    start_ns: u64,
    clock: Reading,
    process: u32,
    running: bool,
}

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
        let subscription = library.api.subscribe_callback()?;
        if let Some(why) = library.unusable {
            subscription.end();
            return Err(library.refuse(why));
        }
        let mut collector = Self {
            library: library.clone(),
            subscription,
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
        api.use_pool()?;
        for call in &DRIVER_CALLS {
            // A function that the library does not know cannot be called in it either.
            self.subscription.enable_callback(DOMAIN_DRIVER_API, call.id)?;
        }
        // Every library has this one; without it captured calls would pass for calls that lost their work.
        if !self.subscription.enable_callback(DOMAIN_RESOURCE, RESOURCE_GRAPHNODE_CREATED)? {
            return Err(Error::call("cuptiEnableCallback", CuptiResult::INVALID_PARAMETER));
        }
        for kind in KINDS {
            api.enable_kind(kind.0)?;
        }
        self.start_ns = clock::now_ns();
        Ok(())
    }

    /// Has CUPTI hand over the records that are complete. The GPU is not waited for.
    ///
    /// # Errors
    /// CUPTI's refusal, or a process forked off after the start.
    pub fn flush(&self) -> Result<(), Error> {
        self.check_process()?;
        self.library.api.flush(false)
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
        let dropped = self.library.api.dropped();
        let log = LOG.lock().take().unwrap_or_default();
        COLLECTING.store(0, Ordering::Release);

        let unfinished = drained?;
        let clock = Clock { start: self.clock, stop: clock_at_stop? };
        let (buffers, pool_misses) = POOL.counts();
        Ok(Collected {
            version: self.library.version(),
            window_ns: (self.start_ns, stop_ns),
            clock,
            losses: Losses {
                dropped_by_cupti: dropped?,
                over_memory_limit: log.counts.over_limit,
                irregular: log.counts.irregular,
                unreadable_bytes: log.counts.unreadable_bytes,
                panics: panics + log.counts.panics,
                unfinished_buffers: unfinished,
                buffers,
                pool_misses,
            },
            records: RecordBytes::from_log(log, self.library.version()),
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
            api.disable_kind(kind.0);
        }
        let _ = api.flush(true);
        self.subscription.end();
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
