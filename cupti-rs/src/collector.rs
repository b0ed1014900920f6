//! Start, pause, flush, stop: the one place that drives CUPTI.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::attribute::{AttributeId, AttributeSetting, ZEROED_BUFFERS};
use parking_lot::RwLock;

use crate::buffer::{LOG, Log, LogCounts, POOL, Setup};
use crate::callbacks::{self, Enabled, Handler};
use crate::calls::{self, Function, Part, RuntimeFunction, ThreadCalls};
use crate::clock::{self, Clock, Reading};
use crate::config::{ApiFilter, Config};
use crate::error::{Error, Kind};
use crate::flusher::Flusher;
use crate::forked;
use crate::graph_gate;
use crate::graphs::ThreadGraphs;
use crate::kind::ActivityKind;
use crate::library::Library;
use crate::record::RecordBytes;
use crate::session;
use crate::sys::abi::*;
use crate::sys::api::Api;
use crate::sys::callback_ids::*;
use crate::sys::generated::{DRIVER_CALLS, DRIVER_FUNCTIONS, RUNTIME_FUNCTIONS};
use crate::sys::safe::Subscription;
use crate::version::Version;

/// CUPTI has one subscriber, so a process has one collector at a time: this is its process id, or 0.
static COLLECTING: AtomicU32 = AtomicU32::new(0);

/// The process's one turn to collect, free again when dropped.
#[derive(Debug)]
pub(crate) struct CollectorLease(u32);

impl CollectorLease {
    pub(crate) fn take() -> Result<Self, Error> {
        // Also where the parent's collection had ended by the fork.
        if forked::is_child() {
            return Err(Error::new(Kind::Forked));
        }
        session::leave_children_out();
        let process = std::process::id();
        match COLLECTING.compare_exchange(0, process, Ordering::Acquire, Ordering::Relaxed) {
            Err(other) if other == process => Err(Error::new(Kind::AlreadyCollecting)),
            Err(_) => Err(Error::new(Kind::Forked)),
            Ok(_) => Ok(Self(process)),
        }
    }

    fn is_of_this_process(&self) -> bool {
        self.0 == std::process::id()
    }
}

impl Drop for CollectorLease {
    fn drop(&mut self) {
        // A forked child has no turn, and gets none: CUPTI does not work there.
        if self.is_of_this_process() {
            COLLECTING.store(0, Ordering::Release);
        }
    }
}

/// Events of graphs that are logged where asked to; libraries know all of them.
const GRAPH_EVENTS: [u32; 7] = [
    RESOURCE_GRAPH_CREATED,
    RESOURCE_GRAPH_DESTROY_STARTING,
    RESOURCE_GRAPH_CLONED,
    RESOURCE_GRAPHNODE_DESTROY_STARTING,
    RESOURCE_GRAPHNODE_CLONED,
    RESOURCE_GRAPHEXEC_CREATED,
    RESOURCE_GRAPHEXEC_DESTROY_STARTING,
];

/// The profiler switch.
const SWITCH: [Enabled; 4] = [
    Enabled::Id(DOMAIN_DRIVER_API, DRIVER_PROFILER_START),
    Enabled::Id(DOMAIN_DRIVER_API, DRIVER_PROFILER_STOP),
    Enabled::Id(DOMAIN_RUNTIME_API, RUNTIME_PROFILER_START),
    Enabled::Id(DOMAIN_RUNTIME_API, RUNTIME_PROFILER_STOP),
];

/// How many functions a library may have beyond those of the newest that is known here.
const NEWER_FUNCTIONS: usize = 128;

/// A running collection of GPU records and calls.
///
/// Dropping it stops the collection and throws away what was collected; [`stop`](Self::stop) gives it. A program may
/// end with a collection running: nothing waits for it, and what it collected is gone.
#[derive(Debug)]
pub struct Collector {
    library: Library,
    subscription: Subscription,
    config: Config,
    turn: CollectorLease,
    start_ns: u64,
    /// The callbacks that are on while it runs.
    callbacks: Vec<Enabled>,
    handler: Option<Arc<Handler>>,
    missing_kinds: Vec<ActivityKind>,
    /// Why the counters of managed memory cannot be had, if they cannot.
    counters_refused: Option<CuptiResult>,
    attributes: Vec<AttributeSetting>,
    /// What else to put back at the end.
    undo: Vec<Undo>,
    /// When it was on, and since when it is.
    windows: Vec<(u64, u64)>,
    on_since_ns: Option<u64>,
    unfinished: u64,
    /// CUPTI forgets this number once it has told it.
    dropped: AtomicU64,
    /// Held by a drain while it takes from the logs, and by a snapshot while it reads them: a record and its call are
    /// then on one side. No callback takes it, and no function of CUPTI that calls back is called under it.
    given: RwLock<DrainCursor>,
    flusher: Flusher,
    ended: bool,
}

/// What drains gave, and up to where.
#[derive(Debug)]
struct DrainCursor {
    losses: Losses,
    /// Where the last one ended.
    until_ns: u64,
    /// The last drain's reading, or the start's.
    clock: Reading,
}

/// Calls that have begun and not returned, as [`Collector::unfinished_calls`] gives them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct UnfinishedCalls {
    /// The driver calls, by thread.
    pub calls: Vec<ThreadCalls>,
    /// The calls of the runtime API, by thread, where asked for.
    pub runtime_calls: Vec<ThreadCalls<RuntimeFunction>>,
}

/// Where the logs of a collection are cut off: at its stop, at a snapshot or at a drain.
#[derive(Debug)]
struct Cut {
    at_ns: u64,
    clock: Clock,
    windows_ns: Vec<(u64, u64)>,
    pending_from_ns: Option<u64>,
}

/// A setting of CUPTI's to put back.
#[derive(Debug, Clone, Copy)]
enum Undo {
    Attribute(AttributeId, u64),
    ThreadIdType(u32),
    FlushPeriod,
    LatencyTimestamps,
    LaunchAttributes,
    UnifiedMemoryCounters,
}

/// What a collection gave, at its stop, in a snapshot or in a drain: CUPTI's bytes and the calls, raw, with all that is
/// needed to read them elsewhere.
///
/// Where the collection was drained before, it is what was not drained; the times are still those of all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collected {
    /// The library's version.
    pub version: Version,
    /// From the collection's start to the stop, or to the snapshot or drain, in [`clock::now_ns`] time, with all pauses
    /// between.
    pub window_ns: (u64, u64),
    /// The parts of it in which the collection was on: not paused and, where the profiler switch bounds it, switched on.
    /// In order and apart. What was called outside them is not accounted for: leave such calls out, and their records.
    pub windows_ns: Vec<(u64, u64)>,
    /// In a snapshot or a drain: the records of calls that had returned before then have all come, in it or in drains
    /// before, and those of later calls may be on their way. `None` after a stop, when none is.
    pub pending_from_ns: Option<u64>,
    /// How the records' timestamps relate to [`clock::now_ns`]: by a reading at the start, or at the drain before, and
    /// one at the end.
    pub clock: Clock,
    /// The records, as CUPTI wrote them.
    pub records: RecordBytes,
    /// The driver calls, by thread.
    pub calls: Vec<ThreadCalls>,
    /// The calls of the runtime API, by thread, where asked for.
    pub runtime_calls: Vec<ThreadCalls<RuntimeFunction>>,
    /// What was done to graphs, by thread, where asked for.
    pub graphs: Vec<ThreadGraphs>,
    /// The attributes that were set.
    pub attributes: Vec<AttributeSetting>,
    /// Kinds that were asked for where known, and that the library does not have.
    pub missing_kinds: Vec<ActivityKind>,
    /// What was lost or odd since the drain before, as far as the collector can tell.
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
    /// Records whose length is not that of their kind, or of a newer CUPTI whose layout may be another one
    /// ([`Library`]).
    pub irregular: u64,
    /// Bytes that CUPTI's iterator could not step over.
    pub unreadable_bytes: u64,
    /// Panics caught in callbacks.
    pub panics: u64,
    /// Panics caught in the program's own handler.
    pub handler_panics: u64,
    /// Buffers with work that the GPU had not finished when a stop or a pause gave up waiting.
    pub unfinished_buffers: u64,
    /// Buffers that CUPTI asked for.
    pub buffers: u64,
    /// Those of them that had to be allocated inside a CUDA call.
    pub pool_misses: u64,
    /// Those of them that were refused at [`Config::max_buffers`].
    pub refused_buffers: u64,
    /// Records thrown away with buffers that were refused to a CUPTI before 12.9.
    pub refused_records: u64,
    /// Records thrown away since they came before the profiler switch was first on. They are no loss.
    pub before_switch: u64,
    /// Calls and graph events that could not be logged: the locals of their thread, which was ending, were gone, or they were
    /// made within the logging of another call, as by a word source that calls CUDA. Their records have no call.
    pub unlogged_calls: u64,
    /// Callbacks that the program's own handler wanted and did not get, since they were caused by that handler.
    pub missed_callbacks: u64,
    /// Buffers that CUPTI gave back with another size than it had been given. They are read as far as both sizes allow; what
    /// CUPTI says to be valid beyond is in `unreadable_bytes`.
    pub mismatched_buffers: u64,
}

impl Losses {
    /// What came since an earlier count.
    fn since(&self, earlier: &Self) -> Self {
        let Self {
            dropped_by_cupti,
            over_memory_limit,
            irregular,
            unreadable_bytes,
            panics,
            handler_panics,
            unfinished_buffers,
            buffers,
            pool_misses,
            refused_buffers,
            refused_records,
            before_switch,
            unlogged_calls,
            missed_callbacks,
            mismatched_buffers,
        } = *earlier;
        Self {
            dropped_by_cupti: self.dropped_by_cupti.saturating_sub(dropped_by_cupti),
            over_memory_limit: self.over_memory_limit.saturating_sub(over_memory_limit),
            irregular: self.irregular.saturating_sub(irregular),
            unreadable_bytes: self.unreadable_bytes.saturating_sub(unreadable_bytes),
            panics: self.panics.saturating_sub(panics),
            handler_panics: self.handler_panics.saturating_sub(handler_panics),
            unfinished_buffers: self.unfinished_buffers.saturating_sub(unfinished_buffers),
            buffers: self.buffers.saturating_sub(buffers),
            pool_misses: self.pool_misses.saturating_sub(pool_misses),
            refused_buffers: self.refused_buffers.saturating_sub(refused_buffers),
            refused_records: self.refused_records.saturating_sub(refused_records),
            before_switch: self.before_switch.saturating_sub(before_switch),
            unlogged_calls: self.unlogged_calls.saturating_sub(unlogged_calls),
            missed_callbacks: self.missed_callbacks.saturating_sub(missed_callbacks),
            mismatched_buffers: self.mismatched_buffers.saturating_sub(mismatched_buffers),
        }
    }
}

impl Collected {
    /// Whether what was called at this time, in [`clock::now_ns`] time, is accounted for.
    #[must_use]
    pub fn was_on(&self, at_ns: u64) -> bool {
        clock::is_within(&self.windows_ns, at_ns)
    }
}

impl Collector {
    /// Subscribes to CUPTI and starts collecting what `config` says, by default kernels, copies, memsets,
    /// synchronisations, CUPTI's own overhead, and the driver calls that cause them, from all threads and contexts of
    /// this process.
    ///
    /// Costs milliseconds; the first start in a process, and contexts made before it, cost more. What ran before is not
    /// seen.
    ///
    /// # Errors
    /// [`is_busy`](Error::is_busy) if another tool or another collector holds CUPTI;
    /// [`is_unsupported`](Error::is_unsupported) if the library does not have what was asked for; otherwise CUPTI's own
    /// refusal. Everything is put back then.
    pub fn start(library: &Library, config: &Config) -> Result<Self, Error> {
        let turn = CollectorLease::take()?;
        let api: &'static Api = leaked(&library.api);
        let subscription = library.api.subscribe_callback()?;
        if let Some(why) = library.unusable {
            subscription.end();
            return Err(library.refuse(why));
        }
        let mut collector = Self {
            flusher: Flusher::new(library.clone(), config.drain_timeout),
            library: library.clone(),
            subscription,
            config: config.clone(),
            turn,
            start_ns: 0,
            callbacks: Vec::new(),
            handler: None,
            missing_kinds: Vec::new(),
            counters_refused: None,
            attributes: Vec::new(),
            undo: Vec::new(),
            windows: Vec::new(),
            on_since_ns: None,
            unfinished: 0,
            dropped: AtomicU64::new(0),
            given: RwLock::new(DrainCursor {
                losses: Losses::default(),
                until_ns: 0,
                clock: Reading { at_ns: 0, offset_ns: 0 },
            }),
            ended: false,
        };
        POOL.prepare(
            api,
            Setup {
                bytes: config.buffer_bytes,
                ready: config.buffers,
                most: config.max_buffers,
                refuse_with_null: library.version().takes_no_buffer(),
            },
        );
        *LOG.lock() = Some(Log::new(config.memory_limit));
        calls::clear();
        // On an error the collector is dropped, which puts everything back.
        collector.set_up()?;
        if !config.start_paused {
            collector.turn_on()?;
        }
        collector.start_ns = collector.on_since_ns.unwrap_or_else(clock::now_ns);
        collector.flusher.begin_at(collector.start_ns);
        Ok(collector)
    }

    /// All that is set once and stays through pauses.
    fn set_up(&mut self) -> Result<(), Error> {
        self.given.get_mut().clock = clock::read(&self.library)?;
        self.set_attributes()?;
        let api = &self.library.api;
        if self.config.system_thread_ids {
            let before = api.thread_id_type()?;
            api.set_thread_id_type(THREAD_ID_TYPE_SYSTEM)?;
            self.undo.push(Undo::ThreadIdType(before));
        }
        api.use_pool()?;
        if let Some(period) = self.config.flush_period {
            let milliseconds = u32::try_from(period.as_millis()).unwrap_or(u32::MAX).max(1);
            api.set_flush_period(milliseconds)?;
            self.undo.push(Undo::FlushPeriod);
        }
        if self.config.latency_timestamps {
            api.set_latency_timestamps(true)?;
            self.undo.push(Undo::LatencyTimestamps);
        }
        if self.config.launch_attributes {
            api.set_launch_attributes(true)?;
            self.undo.push(Undo::LaunchAttributes);
        }
        self.choose_counters()?;
        self.choose_callbacks()?;
        let flag = |on: bool, flag: u64| if on { flag } else { 0 };
        session::begin(
            flag(self.handler.is_some(), session::HANDLER)
                | flag(self.config.runtime_calls, session::RUNTIME_CALLS)
                | flag(self.config.graph_events, session::GRAPHS)
                | flag(self.config.profiler_switch, session::SWITCH)
                | flag(self.library.version().hangs_over_graphs(), session::GATED),
        );
        if self.config.profiler_switch {
            // On in pauses, too: what the program turns then counts afterwards.
            for id in SWITCH {
                if !self.subscription.enable(id, true)? {
                    return Err(Error::call("cuptiEnableCallback", CuptiResult::INVALID_PARAMETER));
                }
            }
        }
        Ok(())
    }

    /// Before the buffer functions are registered, as CUPTI wants it.
    fn set_attributes(&mut self) -> Result<(), Error> {
        let api = &self.library.api;
        // A library that does not know this one zeroes buffers itself; one that does not tell its value has the default.
        let before = api.attribute(ZEROED_BUFFERS).ok().flatten().unwrap_or(0);
        if api.set_attribute(ZEROED_BUFFERS, 1)? {
            self.undo.push(Undo::Attribute(ZEROED_BUFFERS, before));
        }
        for &(attribute, asked) in &self.config.attributes {
            let lacks = || self.library.lacks(format!("setting for {attribute}"), "");
            let before = api.attribute(attribute.key())?.ok_or_else(lacks)?;
            if !api.set_attribute(attribute.key(), asked)? {
                return Err(Error::call(
                    "cuptiActivitySetAttribute",
                    CuptiResult::INVALID_PARAMETER,
                ));
            }
            self.undo.push(Undo::Attribute(attribute.key(), before));
            let set = api.attribute(attribute.key())?.unwrap_or(asked);
            self.attributes.push(AttributeSetting { attribute, before, asked, set });
        }
        Ok(())
    }

    /// CUPTI turns the kind of managed memory on only when it knows the counters; it keeps them through pauses.
    fn choose_counters(&mut self) -> Result<(), Error> {
        let counters = &self.config.unified_memory_counters;
        let is_unified_memory =
            |(kind, _): &(ActivityKind, bool)| *kind == ActivityKind::UNIFIED_MEMORY_COUNTER;
        if counters.is_empty() || !self.config.kinds.iter().any(is_unified_memory) {
            return Ok(());
        }
        self.counters_refused = self.library.api.set_unified_memory_counters(counters, true)?;
        if self.counters_refused.is_none() {
            self.undo.push(Undo::UnifiedMemoryCounters);
        }
        Ok(())
    }

    /// The list of what [`turn_on`](Self::turn_on) turns on.
    fn choose_callbacks(&mut self) -> Result<(), Error> {
        let driver = DRIVER_CALLS.iter().map(|call| Enabled::Id(DOMAIN_DRIVER_API, call.id));
        self.callbacks.extend(driver);
        self.callbacks.push(Enabled::Id(DOMAIN_RESOURCE, RESOURCE_GRAPHNODE_CREATED));
        if self.config.runtime_calls {
            let runtime = RUNTIME_CALLS.iter().map(|call| Enabled::Id(DOMAIN_RUNTIME_API, call.id));
            self.callbacks.extend(runtime);
        }
        if self.config.graph_events {
            self.callbacks.extend(GRAPH_EVENTS.map(|id| Enabled::Id(DOMAIN_RESOURCE, id)));
        }
        if let Some(callbacks) = &self.config.callbacks {
            let named = |domain, name: &str| {
                let ids = self.library.api.callback_ids(domain, name);
                let api = if domain == DOMAIN_DRIVER_API { "driver" } else { "runtime" };
                let lacks = || self.library.lacks(format!("{api} function called {name}"), "");
                if ids.is_empty() { Err(lacks()) } else { Ok(ids) }
            };
            let (enabled, handler) = callbacks.resolve(named)?;
            callbacks::install(&handler);
            self.callbacks.extend(enabled);
            self.handler = Some(handler);
        }
        Ok(())
    }

    fn turn_on(&mut self) -> Result<(), Error> {
        session::resume();
        for &id in &self.callbacks {
            // A function that the library does not know cannot be called in it either.
            let known = self.subscription.enable(id, true)?;
            // Every library has this one; without it captured calls would pass for calls that lost their work.
            if !known && id == Enabled::Id(DOMAIN_RESOURCE, RESOURCE_GRAPHNODE_CREATED) {
                return Err(Error::call("cuptiEnableCallback", CuptiResult::INVALID_PARAMETER));
            }
        }
        self.missing_kinds.clear();
        for &(kind, required) in &self.config.kinds {
            let refused = match self.counters_refused {
                Some(code) if kind == ActivityKind::UNIFIED_MEMORY_COUNTER => Some(code),
                _ => self.enable(kind)?,
            };
            let Some(code) = refused else { continue };
            if required {
                let version = self.library.version();
                return Err(Error::new(Kind::UnknownActivity { kind, code, version }));
            }
            self.missing_kinds.push(kind);
        }
        let (driver, runtime) = (&self.config.driver_records, &self.config.runtime_records);
        let functions = (DRIVER_FUNCTIONS.len(), RUNTIME_FUNCTIONS.len());
        self.filter(driver, ActivityKind::DRIVER, functions.0, Api::enable_driver_api)?;
        self.filter(runtime, ActivityKind::RUNTIME, functions.1, Api::enable_runtime_api)?;
        self.on_since_ns = Some(clock::now_ns());
        Ok(())
    }

    /// Turns on records of some functions of an API: the kind, which means all of them, and then the others off. That is
    /// the one order that CUPTI heeds (12.8 and 13.0.1): without the kind it takes functions and gives no record, and
    /// turning the kind on forgets what was said of functions before.
    fn filter<F: Function>(
        &self,
        filter: &Option<ApiFilter<F>>,
        kind: ActivityKind,
        functions: usize,
        enable: impl Fn(&Api, u32, bool) -> Option<Result<(), Error>>,
    ) -> Result<(), Error> {
        let Some(filter) = filter else { return Ok(()) };
        let lacks =
            || self.library.lacks(format!("filter for {kind} records by function"), "CUPTI 12.5");
        let turn_off = |id| enable(&self.library.api, id, false).unwrap_or_else(|| Err(lacks()));
        self.require(kind)?;
        match filter {
            ApiFilter::Only(wanted) => {
                let wanted: Vec<u32> = wanted.iter().map(|function| function.id()).collect();
                // The library may have functions that have no name here, and lack some that do.
                for id in
                    (1..(functions + NEWER_FUNCTIONS) as u32).filter(|id| !wanted.contains(id))
                {
                    match turn_off(id) {
                        Err(error) if error.is_unsupported() => return Err(error),
                        _ => {}
                    }
                }
            }
            ApiFilter::Except(unwanted) => {
                for function in unwanted {
                    turn_off(function.id())?;
                }
            }
        }
        Ok(())
    }

    fn require(&self, kind: ActivityKind) -> Result<(), Error> {
        let version = self.library.version();
        match self.enable(kind)? {
            None => Ok(()),
            Some(code) => Err(Error::new(Kind::UnknownActivity { kind, code, version })),
        }
    }

    /// The refusal, if the library does not have the kind.
    fn enable(&self, kind: ActivityKind) -> Result<Option<CuptiResult>, Error> {
        match self.library.version().lacks_kind(kind) {
            true => Ok(Some(CuptiResult::INVALID_KIND)),
            false => self.library.api.enable_kind(kind.0),
        }
    }

    /// Turns off what [`turn_on`](Self::turn_on) turns on, all of it or as much as was; errors have nobody to go to.
    fn turn_off(&self) {
        let api = &self.library.api;
        for &(kind, _) in &self.config.kinds {
            if !self.missing_kinds.contains(&kind) {
                api.disable_kind(kind.0);
            }
        }
        if self.config.driver_records.is_some() {
            api.disable_kind(ActivityKind::DRIVER.0);
        }
        if self.config.runtime_records.is_some() {
            api.disable_kind(ActivityKind::RUNTIME.0);
        }
    }

    /// What has to be done also where a launch of a graph does not return.
    fn apart_from_graphs(&self, work: impl Fn()) {
        if !self.library.version().hangs_over_graphs() || graph_gate::apart(&work).is_none() {
            work();
        }
    }

    /// Turns off the callbacks that [`turn_on`](Self::turn_on) turns on, but for those of the switch.
    fn turn_callbacks_off(&self) {
        for &id in &self.callbacks {
            if !(self.config.profiler_switch && SWITCH.contains(&id)) {
                let _ = self.subscription.enable(id, false);
            }
        }
        if self.config.profiler_switch {
            // A whole domain may have been turned off with those on top.
            SWITCH.iter().for_each(|&id| _ = self.subscription.enable(id, true));
        }
    }

    /// When it began, in [`clock::now_ns`] time.
    #[must_use]
    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// Has CUPTI hand over the records that are complete. The GPU is not waited for.
    ///
    /// Any thread may. With CUPTI 13.0 it takes longer the longer a collection goes on (3 ms at first, 30 ms after 150
    /// million launches by 4 threads on an H200), and where the program launches faster than CUPTI writes records it does not
    /// return before the load is over: [request](Flusher::request) it then, wait for as long as you like, and use
    /// [`drain_delivered`](Self::drain_delivered). With CUPTI before 13.0,
    /// where it could hang over graphs that other threads launch, these wait for it, and it for them, 0.1 s at most: then
    /// nothing is handed over.
    ///
    /// # Errors
    /// CUPTI's refusal, or a process forked off after the start.
    pub fn flush(&self) -> Result<(), Error> {
        self.flusher.flush()
    }

    /// Turns records and callbacks off for a while; what was collected stays. Nothing happens if it is paused.
    ///
    /// Waits for the GPU as [`stop`](Self::stop) does: what is unfinished when kinds are turned off may get its end only
    /// when they are turned on again. A call under way on another thread may be seen to begin and not to end; calls that
    /// other threads begin during the wait are left out, as those in the pause.
    ///
    /// # Errors
    /// CUPTI's refusal to flush, or a process forked off after the start. It is paused all the same.
    pub fn pause(&mut self) -> Result<(), Error> {
        self.check_process()?;
        let Some(since) = self.on_since_ns.take() else { return Ok(()) };
        let held = self.wait_idle();
        self.windows.push((since, self.waited_until(&held).max(since)));
        self.apart_from_graphs(|| self.turn_off());
        self.turn_callbacks_off();
        session::pause();
        self.unfinished = self.unfinished.saturating_add(held?);
        Ok(())
    }

    /// Turns records and callbacks on again, by a call into CUPTI for each callback id and kind. Nothing happens if it is
    /// not paused.
    ///
    /// # Errors
    /// CUPTI's refusal, after which it is paused as before; or a process forked off after the start.
    pub fn resume(&mut self) -> Result<(), Error> {
        self.check_process()?;
        if self.on_since_ns.is_some() {
            return Ok(());
        }
        let on = self.turn_on();
        if on.is_err() {
            self.turn_off();
            self.turn_callbacks_off();
            session::pause();
        }
        on
    }

    /// True between a pause and the next resume.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.on_since_ns.is_none()
    }

    /// Ends the collection and gives what it collected, or what of it was not [drained](Self::drain).
    ///
    /// Waits until the GPU has finished what was launched, as [`wait_idle`](Self::wait_idle) does, and for a last flush, for
    /// which it waits 1 s at most. Where other threads launch meanwhile, [`Collected::window_ns`] ends at the time up to which everything has come.
    ///
    /// # Errors
    /// CUPTI's refusal, or a process forked off after the start. The collection is over all the same.
    pub fn stop(self) -> Result<Collected, Error> {
        self.check_process()?;
        let held = if self.is_paused() { Ok(0) } else { self.wait_idle() };
        self.stop_with(held)
    }

    /// Ends the collection as [`stop`](Self::stop) does, after a wait: `unfinished` is what [`Flusher::wait_idle`] gave, and
    /// is not waited for again.
    ///
    /// # Errors
    /// As there.
    pub fn stop_after_wait(self, unfinished: u64) -> Result<Collected, Error> {
        self.check_process()?;
        self.stop_with(Ok(unfinished))
    }

    fn stop_with(mut self, held: Result<u64, Error>) -> Result<Collected, Error> {
        let stop_ns = if self.is_paused() { clock::now_ns() } else { self.waited_until(&held) };
        let clock_at_stop = clock::read(&self.library);
        let windows = self.windows_until(stop_ns);
        let marks = self.end();
        let read = calls::take();
        let dropped = self.count_dropped();
        let log = LOG.lock().take().unwrap_or_default();

        self.unfinished = self.unfinished.saturating_add(held?);
        dropped?;
        let given = self.given.read();
        let cut = Cut {
            at_ns: stop_ns,
            clock: Clock { start: given.clock, stop: clock_at_stop? },
            windows_ns: self.bounded(windows, &marks),
            pending_from_ns: None,
        };
        let losses = self.losses(log.counts, &read).since(&given.losses);
        Ok(self.collected(cut, read, log, losses))
    }

    /// What was collected up to now and not [drained](Self::drain); the collection goes on, and what its stop gives is
    /// what it would have been.
    ///
    /// Has CUPTI hand over the records that are complete, as a [`flush`](Self::flush) does, shares their bytes and copies the other logs, so that it costs
    /// time and memory by the number of calls: take few of a long collection that nobody drains. The GPU is not waited
    /// for, and no thread of the program, but for one that makes its first call meanwhile. All is cut off at one time, the
    /// end of [`Collected::window_ns`]: calls and events from then on are left out, and a call that had not returned by
    /// then has no end. Every record has its call, if that is one that is logged and was not drained. What of the work of
    /// these calls can be without a record says [`Collected::pending_from_ns`].
    ///
    /// Any thread may take one, also several at once.
    ///
    /// # Errors
    /// CUPTI's refusal, or a process forked off after the start.
    pub fn snapshot(&self) -> Result<Collected, Error> {
        self.flush()?;
        self.count_dropped()?;
        // Before the records are read.
        let settled_ns = self.flusher.settled_ns();
        let given = self.given.read();
        let log = LOG.lock().as_ref().map(Log::snapshot).unwrap_or_default();
        // After the records: a call is logged before there can be a record of it.
        let at_ns = clock::now_ns();
        let clock = Clock { start: given.clock, stop: clock::read(&self.library)? };
        let cut = self.cut(at_ns, clock, settled_ns);
        let read = calls::read_until(at_ns, Part::Rest);
        let losses = self.losses(log.counts, &read).since(&given.losses);
        Ok(self.collected(cut, read, log, losses))
    }

    /// Takes what was collected up to now; the collection goes on. What a drain gives is not given again: all drains and
    /// the stop together give what a stop alone would have, with their [`losses`](Collected::losses) added up. A
    /// collection that is drained now and then needs memory for what came since, and for the names of the program's
    /// kernels, of which each is kept once. A drain has the names of its own records.
    ///
    /// Has CUPTI hand over the records that are complete. The GPU is not waited for, and no thread of the program, but for
    /// one that makes its first call meanwhile. It gives
    /// - every record that came since the drain before;
    /// - every call that had returned by the end of [`Collected::window_ns`] and was in no drain before, so that each has
    ///   an end. One that is under way comes with the drain in which it has returned, or at the stop, and until then
    ///   [`unfinished_calls`](Self::unfinished_calls) has it. So does one that a [`pause`](Self::pause) saw begin and not
    ///   end; it comes at the stop, without an end;
    /// - every graph event since the drain before.
    ///
    /// A record and its call may come in different drains. A call is logged before there can be a record of it: with a
    /// record, its call (if that is one that is logged) is in the same drain, in one before, or under way at the end of
    /// `window_ns`, and then in the first one after it has returned. The other way round, the records of a call come with
    /// the first drain whose [`Collected::pending_from_ns`] is later than the call's end, or before.
    ///
    /// Any thread may drain; of several each gets a part. Costs a [`flush`](Self::flush), and what was collected since. On
    /// an error nothing is taken.
    ///
    /// # Errors
    /// CUPTI's refusal, or a process forked off after the start.
    pub fn drain(&self) -> Result<Collected, Error> {
        self.flush()?;
        self.drain_delivered()
    }

    /// A [`drain`](Self::drain) of the records that CUPTI has handed over: by itself, as it does once a buffer is full, or
    /// to a [`Flusher`]. It is not asked for the rest, which come with a later drain or the stop.
    ///
    /// Costs no [`flush`](Self::flush).
    ///
    /// # Errors
    /// CUPTI's refusal, or a process forked off after the start.
    pub fn drain_delivered(&self) -> Result<Collected, Error> {
        self.check_process()?;
        self.count_dropped()?;
        // Before the records are taken.
        let settled_ns = self.flusher.settled_ns();
        let mut given = self.given.write();
        let reading = clock::read(&self.library)?;
        // From here on nothing fails: what is taken is given.
        let log = LOG.lock().as_mut().map(Log::drain).unwrap_or_default();
        // After the records, as in a snapshot.
        let at_ns = clock::now_ns();
        let clock = Clock { start: given.clock, stop: reading };
        let cut = self.cut(at_ns, clock, settled_ns);
        let read = calls::read_until(at_ns, Part::Finished);
        let losses = self.losses(log.counts, &read);
        let since = losses.since(&given.losses);
        (given.losses, given.clock, given.until_ns) = (losses, reading, at_ns);
        drop(given);
        Ok(self.collected(cut, read, log, since))
    }

    /// What has CUPTI hand over its records, from whatever thread, for as long as it takes.
    #[must_use]
    pub fn flusher(&self) -> Flusher {
        self.flusher.clone()
    }

    /// The calls that had begun before a time, which has passed, and had not returned by then; none has an end. For the
    /// end of a drain's [`Collected::window_ns`] these are just the calls that the drain left, as long as there was no
    /// other drain since.
    ///
    /// Any thread may ask. Costs a look at each call that was not drained.
    #[must_use]
    pub fn unfinished_calls(&self, at_ns: u64) -> UnfinishedCalls {
        // A forked child may have locked logs.
        if self.check_process().is_err() {
            return UnfinishedCalls::default();
        }
        let given = self.given.read();
        // What a drain left was under way at its end, also what was logged to have ended in the moment after.
        let part = if at_ns <= given.until_ns { Part::Left } else { Part::UnderWay };
        let read = calls::read_until(at_ns, part);
        UnfinishedCalls { calls: read.calls, runtime_calls: read.runtime_calls }
    }

    /// Bytes that the collection holds in memory for what was not drained: records, and the logs of calls and graph
    /// events, which a thread has in pieces of 160 and 224 KiB. Names and CUPTI's own buffers come on top.
    ///
    /// Any thread may ask. Costs some nanoseconds a thread that has called.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        // A forked child may have locked logs.
        if self.check_process().is_err() {
            return 0;
        }
        LOG.lock().as_ref().map_or(0, |log| log.held) + calls::held_bytes()
    }

    fn cut(&self, at_ns: u64, clock: Clock, pending_from_ns: u64) -> Cut {
        Cut {
            at_ns,
            clock,
            windows_ns: self.bounded(self.windows_until(at_ns), &session::marks()),
            pending_from_ns: Some(pending_from_ns),
        }
    }

    /// When it was on up to this time.
    fn windows_until(&self, at_ns: u64) -> Vec<(u64, u64)> {
        let open = self.on_since_ns.map(|since| (since, at_ns));
        self.windows.iter().copied().chain(open).collect()
    }

    /// Forgets the windows that ended before a time: [`Collected::windows_ns`] of later drains and of the stop lacks them. For
    /// a collection that is drained and pauses often, whose list would grow without end. Keep those in which a call began that
    /// has not been drained ([`unfinished_calls`](Self::unfinished_calls)).
    pub fn forget_windows(&mut self, before_ns: u64) {
        self.windows.retain(|(_, stop)| *stop >= before_ns);
        if self.config.profiler_switch {
            session::forget_marks(before_ns);
        }
    }

    /// The windows as far as the program's switch lets them count.
    fn bounded(&self, windows: Vec<(u64, u64)>, marks: &[(u64, bool)]) -> Vec<(u64, u64)> {
        if self.config.profiler_switch {
            session::while_switched_on(&windows, marks)
        } else {
            windows
        }
    }

    /// Adds what CUPTI dropped since it was asked last.
    fn count_dropped(&self) -> Result<(), Error> {
        self.dropped.fetch_add(self.library.api.dropped()?, Ordering::Relaxed);
        Ok(())
    }

    /// What was lost or odd since the start.
    fn losses(&self, log: LogCounts, read: &calls::Read) -> Losses {
        let counts = POOL.counts();
        let of_handler = |count: fn(&Handler) -> u64| self.handler.as_deref().map_or(0, count);
        Losses {
            dropped_by_cupti: self.dropped.load(Ordering::Relaxed),
            over_memory_limit: log.over_limit,
            irregular: log.irregular,
            unreadable_bytes: log.unreadable_bytes,
            panics: read.panics,
            handler_panics: of_handler(Handler::panics),
            unfinished_buffers: self.unfinished,
            buffers: counts.requested,
            pool_misses: counts.misses,
            refused_buffers: counts.refused,
            refused_records: log.refused,
            before_switch: log.before_switch,
            unlogged_calls: read.unlogged,
            missed_callbacks: of_handler(Handler::missed),
            mismatched_buffers: log.mismatched_buffers,
        }
    }

    fn collected(&self, cut: Cut, read: calls::Read, log: Log, losses: Losses) -> Collected {
        Collected {
            version: self.library.version(),
            window_ns: (self.start_ns, cut.at_ns),
            windows_ns: cut.windows_ns,
            pending_from_ns: cut.pending_from_ns,
            clock: cut.clock,
            losses,
            records: RecordBytes::from_log(log, self.library.version()),
            calls: read.calls,
            runtime_calls: read.runtime_calls,
            graphs: read.graphs,
            attributes: self.attributes.clone(),
            missing_kinds: self.missing_kinds.clone(),
        }
    }

    /// Waits for the GPU as [`Flusher::wait_idle`] does.
    ///
    /// # Errors
    /// As there.
    pub fn wait_idle(&self) -> Result<u64, Error> {
        self.flusher.wait_idle()
    }

    /// Until when everything has come: not from later on, where other threads went on.
    fn waited_until(&self, held: &Result<u64, Error>) -> u64 {
        match held {
            Ok(0) => self.flusher.settled_ns(),
            _ => clock::now_ns(),
        }
    }

    /// Turns everything off and puts everything back; errors on this way have nobody to go to. Gives the switch's marks.
    fn end(&mut self) -> Vec<(u64, bool)> {
        self.ended = true;
        self.apart_from_graphs(|| self.turn_off());
        self.flusher.end();
        POOL.keep(self.config.buffers);
        self.subscription.end();
        while let Some(undo) = self.undo.pop() {
            self.put_back(undo);
        }
        session::end()
    }

    fn put_back(&self, undo: Undo) {
        let api = &self.library.api;
        let _ = match undo {
            Undo::Attribute(attribute, value) => api.set_attribute(attribute, value).map(|_| ()),
            Undo::ThreadIdType(kind) => api.set_thread_id_type(kind),
            Undo::FlushPeriod => api.set_flush_period(0),
            Undo::LatencyTimestamps => api.set_latency_timestamps(false),
            Undo::LaunchAttributes => api.set_launch_attributes(false),
            Undo::UnifiedMemoryCounters => {
                let counters = &self.config.unified_memory_counters;
                api.set_unified_memory_counters(counters, false).map(|_| ())
            }
        };
    }

    /// The library this collection uses.
    #[must_use]
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// The attributes that were set, with what CUPTI made of them.
    #[must_use]
    pub fn attributes(&self) -> &[AttributeSetting] {
        &self.attributes
    }

    /// Kinds that were asked for where known, and that the library does not have. Known once it has been on.
    #[must_use]
    pub fn missing_kinds(&self) -> &[ActivityKind] {
        &self.missing_kinds
    }

    fn check_process(&self) -> Result<(), Error> {
        if self.turn.is_of_this_process() { Ok(()) } else { Err(Error::new(Kind::Forked)) }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // In a forked child CUPTI would hang.
        if !self.ended && self.check_process().is_ok() {
            self.end();
            let _ = calls::take();
            *LOG.lock() = None;
        }
    }
}

/// The one lasting copy of a function table, for callbacks that carry no context.
fn leaked(api: &Api) -> &'static Api {
    use parking_lot::Mutex;
    static TABLES: Mutex<Vec<&'static Api>> = Mutex::new(Vec::new());
    // Those of its functions that callbacks use. The stand-in's versions share all but the last.
    let key = |api: &Api| {
        (api.get_next_record as usize, api.get_graph_exec_id.map(|function| function as usize))
    };
    let mut tables = TABLES.lock();
    let known = tables.iter().find(|table| key(table) == key(api));
    match known {
        Some(table) => table,
        None => {
            let table: &'static Api = Box::leak(Box::new(*api));
            tables.push(table);
            table
        }
    }
}
