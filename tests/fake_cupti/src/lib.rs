//! A fake of CUPTI and a GPU, behind the same function table as the real library.
//!
//! The fake calls the driver callbacks as CUPTI does. It requests activity buffers, fills them with
//! records in the layout and stride of a chosen CUPTI version, and returns them. Nothing runs on a
//! GPU: a test makes a program's calls and sets how long the work takes. Faults can be planted.
//!
//! ```
//! use fake_cupti::{Fake, Work};
//! use cupti::{Collector, Config, Record};
//!
//! # fn main() -> Result<(), cupti::Error> {
//! let fake = Fake::new();
//! let collector = Collector::start(&fake.library()?, &Config::new())?;
//! cupti::calls::set_word(7);
//! fake.launch(Work::kernel(c"axpy"));
//! let collected = collector.stop()?;
//! assert_eq!(collected.calls[0].calls[0].word, 7);
//! let kernels = collected.records.iter().filter(|r| matches!(r, Record::Kernel(_)));
//! assert_eq!(kernels.count(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! A process has one fake at a time: [`Fake::new`] waits until the last one is dropped, so tests
//! run one after the other.

/// Declares methods of a builder that set a field: `name(argument: Type) field = value;`.
macro_rules! setters {
    ($($(#[$attribute:meta])* $name:ident($argument:ident: $type:ty) $field:ident = $value:expr;)+) => {$(
        $(#[$attribute])*
        pub fn $name(mut self, $argument: $type) -> Self {
            self.$field = $value;
            self
        }
    )+};
}

mod buffers;
mod calls;
mod counters;
#[doc(hidden)]
pub mod exports;
mod faults;
mod functions;
mod pc_sampling;
mod program;
mod state;
mod table;
mod work;
mod written;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use cupti::__private::launches_wait;
use cupti::record::UnifiedMemoryKind;
use cupti::sys::abi::*;
use cupti::sys::field::Family;
use cupti::sys::functions::*;
use cupti::{
    ActivityKind, Device, Driver, Error, Library, RuntimeFunction, Version, clock, stopped_clock,
};
use parking_lot::{Mutex, MutexGuard};

pub use calls::FakeCall;
use calls::GraphIds;
pub use pc_sampling::cubin;
use state::{STATE, Timestamps};
pub use work::Work;
pub use written::Written;

/// The running fake.
#[derive(Debug)]
pub struct Fake {
    _turn: MutexGuard<'static, ()>,
    driver: Driver,
}

/// Settings of a fake; made by [`Fake::builder`].
#[derive(Debug)]
#[must_use]
pub struct Builder {
    version: u32,
    holder: Option<String>,
    /// `None` for that of `CLOCK_REALTIME`.
    clock_offset: Option<i64>,
    faults: Vec<(&'static str, CuptiResult)>,
    lacks: Option<&'static str>,
}

static TURN: Mutex<()> = Mutex::new(());

impl Fake {
    /// CUPTI 13.0.1 with one GPU.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Begins the settings of a fake.
    pub fn builder() -> Builder {
        let (holder, clock_offset, faults, lacks) = Default::default();
        Builder { version: 130_001, holder, clock_offset, faults, lacks }
    }

    /// The library with the fake's function table, as [`Library::open`] would return it.
    ///
    /// # Errors
    /// As [`Library::open`], for a planted version or fault.
    pub fn library(&self) -> Result<Library, Error> {
        // SAFETY: the functions are constants of the types in the list of CUPTI's functions, and the
        // driver's as it declares them.
        unsafe { Library::from_functions(functions::lookup, "fake", self.driver.clone()) }
    }

    /// Makes a program's call that launches, copies, fills or waits, on this thread. Returns its
    /// correlation id.
    pub fn launch(&self, work: Work) -> u32 {
        self.call(work.function(), 0, std::slice::from_ref(&work))
    }

    /// Adds to the events that the GPU's counters count. A metric of the fake is
    /// `fake__NUMBER.sum`, or `fake__sass_NUMBER.sum`: metrics of one number fit into one pass.
    pub fn count(&self, events: u64) {
        counters::STATE.lock().events += events;
    }

    /// Adds a sample of the device's counters, in CUPTI's time, with this count; the next decoding
    /// finds it.
    pub fn sample(&self, start_ns: u64, end_ns: u64, events: u64) {
        let sample = [start_ns, end_ns, events];
        counters::STATE.lock().sampling.waiting.push_back(sample);
    }

    /// The samples that no decoding has found yet.
    pub fn undecoded_samples(&self) -> usize {
        counters::STATE.lock().sampling.waiting.len()
    }

    /// Makes the next decoding report a sample buffer overflow.
    pub fn overflow_samples(&self) {
        counters::STATE.lock().sampling.overflow = true;
    }

    /// The number of waits for the program's context at the begin and end of ranges.
    pub fn context_waits(&self) -> u64 {
        counters::STATE.lock().waits
    }

    /// The bytes of allocated device memory.
    pub fn device_memory(&self) -> usize {
        counters::STATE.lock().allocated.values().sum()
    }

    /// Sets whether a context is current on all threads; true at first.
    pub fn have_context(&self, is_current: bool) {
        counters::STATE.lock().lacks_context = !is_current;
    }

    /// True if the device's counters are in use.
    pub fn counts(&self) -> bool {
        let state = counters::STATE.lock();
        state.enabled || state.sampling.enabled
    }

    /// As [`launch`](Self::launch), with the record in the buffer before the call begins, while it
    /// runs, or after it has returned.
    pub fn launch_with(&self, work: &Work, arrival: Arrival) -> u32 {
        let correlation = calls::next_correlation();
        let arrive = |now| {
            if arrival == now {
                calls::execute(work, correlation, None);
            }
        };
        arrive(Arrival::BeforeCall);
        FakeCall::submitting(work, correlation).returning(0, |_| arrive(Arrival::WithinCall));
        arrive(Arrival::AfterCall);
        correlation
    }

    /// As [`launch`](Self::launch), with `within` run before the call returns.
    pub fn launch_around(&self, work: &Work, within: impl FnOnce()) -> u32 {
        FakeCall::submitting(work, calls::next_correlation()).returning(0, |correlation| {
            calls::execute(work, correlation, None);
            within();
        })
    }

    /// As [`launch`](Self::launch), through a function of the runtime API, whose call shares the
    /// correlation id.
    pub fn launch_through_runtime(&self, function: &str, work: &Work) -> u32 {
        self.through_runtime(function, work, |id| _ = calls::execute(work, id, None))
    }

    /// As [`launch_through_runtime`](Self::launch_through_runtime), while its stream is captured.
    pub fn capture_through_runtime(&self, function: &str, work: &Work) -> u32 {
        self.through_runtime(function, work, |_| calls::node_created())
    }

    fn through_runtime(&self, function: &str, work: &Work, within: impl FnOnce(u32)) -> u32 {
        let id = RuntimeFunction::by_name(function).map_or(0, |function| function.0);
        let outer = FakeCall::new(DOMAIN_RUNTIME_API, id, calls::next_correlation());
        outer.returning(0, |correlation| {
            _ = FakeCall::submitting(work, correlation).returning(0, within)
        })
    }

    /// Replaces CUPTI by an unused one of this version. Not allowed while a collection runs.
    /// Libraries that [`library`](Self::library) returned before belong to the old one.
    pub fn replace(&self, version: u32) {
        let offset = STATE.lock().clock_offset;
        table::reset(version, table::fresh(None, offset, Version(version)));
    }

    /// A graph launch whose nodes are `nodes`; all share the returned correlation id.
    pub fn launch_graph(&self, nodes: &[Work]) -> u32 {
        self.call("cuGraphLaunch", 0, nodes)
    }

    /// A call of this name that writes no record: an allocation, a query, or one with this
    /// `CUresult`.
    pub fn call_only(&self, function: &str, result: u32) -> u32 {
        self.call(function, result, &[])
    }

    /// A call of this name that writes no record; `within` runs before it returns.
    pub fn call_around(&self, function: &str, within: impl FnOnce()) -> u32 {
        FakeCall::driver(function, None).returning(0, |_| within())
    }

    /// A call while its stream is captured: it creates a graph node without an id, and does no
    /// work.
    pub fn capture(&self, work: &Work) -> u32 {
        let call = FakeCall::submitting(work, calls::next_correlation());
        call.returning(0, |_| calls::node_created())
    }

    fn call(&self, name: &str, result: u32, work: &[Work]) -> u32 {
        let mut call = FakeCall::driver(name, None);
        if let Some(work) = work.first() {
            call = call.with_bytes(work.bytes()).in_context(work.context());
            call = work.waits_for().into_iter().fold(call, FakeCall::of_stream);
        }
        call.returning(result, |correlation| {
            for work in work.iter().filter(|work| work.bytes() != 0) {
                calls::execute(work, correlation, None);
            }
        })
    }

    /// Begins a graph.
    pub fn graph(&self) -> FakeGraph {
        let id = FakeGraph::next_id();
        calls::graph_event(RESOURCE_GRAPH_CREATED, GraphIds { graph: id, ..GraphIds::default() });
        FakeGraph { id, nodes: Vec::new() }
    }

    /// A call while its stream is captured into this graph. Returns its correlation id.
    pub fn capture_into(&self, graph: &mut FakeGraph, work: &Work) -> u32 {
        FakeCall::submitting(work, calls::next_correlation())
            .returning(0, |_| self.add_node(graph, work))
    }

    /// Adds a node by a call that no log records, such as `cuGraphAddKernelNode`.
    pub fn add_node(&self, graph: &mut FakeGraph, work: &Work) {
        let node = graph.add(work.clone());
        calls::graph_event(RESOURCE_GRAPHNODE_CREATED, GraphIds { node, ..graph.ids() });
    }

    /// Makes one node of a graph wait for another, by their indices in [`FakeGraph::nodes`], and
    /// reports it. The order of execution depends on the streams of the nodes' work.
    pub fn add_dependency(&self, graph: &FakeGraph, from: usize, to: usize) {
        let [dependency, node] = [from, to].map(|at| graph.nodes[at].0);
        let ids = GraphIds { node, dependency, ..graph.ids() };
        calls::graph_event(RESOURCE_GRAPHNODE_DEPENDENCY_CREATED, ids);
    }

    /// Instantiates a graph: its nodes are copied into an executable graph, with the events of 12.8
    /// and 13.0.1.
    pub fn instantiate(&self, graph: &FakeGraph) -> FakeExec {
        let copy = FakeGraph { id: FakeGraph::next_id(), nodes: Vec::new() };
        calls::graph_event(RESOURCE_GRAPH_CREATED, copy.ids());
        let copy = self.copy_nodes(graph, copy);
        // The driver adds its own node.
        let own = GraphIds { node: copy.next_node(), ..copy.ids() };
        calls::graph_event(RESOURCE_GRAPHNODE_CREATED, own);
        calls::graph_event(RESOURCE_GRAPHEXEC_CREATED, GraphIds { exec: copy.id, ..graph.ids() });
        FakeExec(copy)
    }

    /// Copies a graph, as `cuGraphClone` does.
    pub fn clone_graph(&self, graph: &FakeGraph) -> FakeGraph {
        let copy = FakeGraph { id: FakeGraph::next_id(), nodes: Vec::new() };
        let from = GraphIds { original_graph: graph.id, ..copy.ids() };
        calls::graph_event(RESOURCE_GRAPH_CLONED, from);
        self.copy_nodes(graph, copy)
    }

    fn copy_nodes(&self, graph: &FakeGraph, mut copy: FakeGraph) -> FakeGraph {
        for (original_node, work) in &graph.nodes {
            let node = copy.add(work.clone());
            let ids = GraphIds { node, ..copy.ids() };
            calls::graph_event(RESOURCE_GRAPHNODE_CREATED, ids);
            let (original_graph, original_node) = (graph.id, *original_node);
            let ids = GraphIds { original_graph, original_node, ..ids };
            calls::graph_event(RESOURCE_GRAPHNODE_CLONED, ids);
        }
        copy
    }

    /// Launches an executable graph: every record has its id and its node. Returns the correlation
    /// id that they share.
    pub fn launch_exec(&self, exec: &FakeExec) -> u32 {
        FakeCall::driver("cuGraphLaunch", None).returning(0, |correlation| {
            for (node, work) in &exec.0.nodes {
                calls::execute(work, correlation, Some((exec.id(), *node)));
            }
        })
    }

    /// Destroys an executable graph.
    pub fn destroy_exec(&self, exec: FakeExec) {
        let ids = GraphIds { exec: exec.id(), ..GraphIds::default() };
        calls::graph_event(RESOURCE_GRAPHEXEC_DESTROY_STARTING, ids);
    }

    /// `cudaProfilerStart`, which calls the driver's function of that name.
    pub fn profiler_start(&self) {
        self.profiler_call(true, 0, || {});
    }

    /// `cudaProfilerStop`.
    pub fn profiler_stop(&self) {
        self.profiler_call(false, 0, || {});
    }

    /// Calls one of the two, with this result; `within` runs before it returns.
    pub fn profiler_call(&self, start: bool, result: u32, within: impl FnOnce()) {
        let (runtime, driver) = if start {
            (RUNTIME_PROFILER_START, DRIVER_PROFILER_START)
        } else {
            (RUNTIME_PROFILER_STOP, DRIVER_PROFILER_STOP)
        };
        let outer = FakeCall::new(DOMAIN_RUNTIME_API, runtime, calls::next_correlation());
        outer.returning(result, |correlation| {
            FakeCall::new(DOMAIN_DRIVER_API, driver, correlation).returning(result, |_| within());
        });
    }

    /// Runs work without a logged call, as from a call that the log does not record.
    pub fn unseen(&self, work: &Work) {
        calls::execute(work, calls::next_correlation(), None);
    }

    /// Writes an activity record.
    pub fn write<F: Family>(&self, record: &Written<F>) {
        buffers::write(&record.allocate());
    }

    /// Writes an activity record of any kind and length. An unknown kind stops CUPTI's iterator
    /// ([`INVALID_KIND`](CuptiResult::INVALID_KIND)), and an odd length leaves later records at odd
    /// addresses.
    pub fn raw_record(&self, kind: ActivityKind, length: usize) {
        let mut bytes = vec![0; length.max(8)];
        bytes[..4].copy_from_slice(&kind.0.to_ne_bytes());
        buffers::write(&bytes);
    }

    /// Makes the GPU busy for this long: records are unfinished, and flushes without force do not
    /// return their buffer.
    pub fn busy_for(&self, time: Duration) {
        STATE.lock().busy_until_ns = clock::now_ns() + time.as_nanos() as u64;
    }

    /// Makes CUPTI lose records from now on, as 13.0.1 on an H100: three kernels have no record
    /// after their kind was disabled within a launch. Disabling a kind takes a moment.
    pub fn forget_kernels(&self) {
        STATE.lock().forgets = true;
    }

    /// Stops the clock of the process, [`now_ns`](cupti::clock::now_ns), as long as the fake lives.
    /// It moves by a nanosecond at each reading and by [`advance_clock`](Self::advance_clock).
    /// Deadlines of waits use the machine's clock.
    pub fn stop_clock(&self) {
        stopped_clock::stop();
    }

    /// Moves the stopped clock forward. Dropping the fake takes as long, so that the process's time
    /// does not go back.
    pub fn advance_clock(&self, time: Duration) {
        stopped_clock::advance(time);
    }

    /// Sets the duration of a flush from now on.
    pub fn flush_takes(&self, time: Duration) {
        STATE.lock().flush_takes = time;
    }

    /// The number of flushes.
    pub fn flushes(&self) -> u64 {
        STATE.lock().flushes
    }

    /// Sets the number of records that CUPTI reports as dropped.
    pub fn drop_records(&self, count: usize) {
        STATE.lock().dropped = count;
    }

    /// Sets CUPTI's clock, `CLOCK_REALTIME`, forward or back by this much, while a collection may
    /// run.
    pub fn step_clock(&self, nanoseconds: i64) {
        let mut state = STATE.lock();
        state.clock_offset += nanoseconds;
        // Queued work ends at the same moment, on the new clock.
        state.streams.values_mut().for_each(|end| *end = end.saturating_add_signed(nanoseconds));
    }

    /// From now on operations have no timestamps, as when device buffers run out.
    pub fn lose_timestamps(&self) {
        STATE.lock().timestamps = Timestamps::Lost;
    }

    /// From now on operations end before they start, as was reported for CUPTI 13.0 once its device
    /// buffers are full.
    pub fn reverse_timestamps(&self) {
        STATE.lock().timestamps = Timestamps::Reversed;
    }

    /// Makes the next returned buffer report this many bytes fewer than were written.
    pub fn cut_next_buffer(&self, bytes: usize) {
        STATE.lock().cut = bytes;
    }

    /// From now on full buffers are held, as if their records waited for the GPU; with `false` they
    /// are returned.
    pub fn hold_buffers(&self, hold: bool) {
        STATE.lock().holds = hold;
        if !hold {
            buffers::return_held();
        }
    }

    /// Sets the correlation id of the next call; later calls count on: after [`u32::MAX`]
    /// follows 0.
    pub fn next_correlation_id(&self, id: u32) {
        STATE.lock().correlation = id.wrapping_sub(1);
    }

    /// Makes this function of CUPTI ([`FUNCTIONS`](Self::FUNCTIONS)) fail with this code.
    pub fn fail(&self, function: &'static str, code: CuptiResult, when: When) {
        faults::plant(function, code, when);
    }

    /// Makes the process's exit return buffers and call back, as CUPTI may.
    pub fn act_at_exit(&self) {
        calls::act_at_exit();
    }

    /// The functions of CUPTI that this crate calls; each can be made to fail.
    pub const FUNCTIONS: [&str; 25] = functions::SYMBOLS;

    /// True if a collection is running and not paused: an activity kind is enabled.
    pub fn is_recording(&self) -> bool {
        !STATE.lock().kinds.is_empty()
    }

    /// The number of flushes at whose begin or end a recorded launch had passed its callback and had
    /// not returned.
    pub fn flushes_beside_launches(&self) -> u64 {
        STATE.lock().flushes_beside_launches
    }

    /// The number of begins and ends of a context's sampling at which such a launch was under way.
    pub fn sampling_beside_launches(&self) -> u64 {
        STATE.lock().sampling_beside_launches
    }

    /// Launches on another thread until `work` has returned. Each launch returns once launches wait,
    /// or once CUPTI did beside it what it must not do.
    pub fn beside_launches<R>(&self, work: impl FnOnce() -> R) -> R {
        let is_over = AtomicBool::new(false);
        let done = || {
            let state = STATE.lock();
            (state.flushes, state.sampling_beside_launches)
        };
        let launch = || {
            while !is_over.load(Ordering::Acquire) {
                let before = done();
                self.launch_around(&Work::kernel(c"k"), || {
                    while !launches_wait() && done() == before && !is_over.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                });
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(launch);
            let result = work();
            is_over.store(true, Ordering::Release);
            result
        })
    }

    /// True if a subscriber is registered.
    pub fn is_subscribed(&self) -> bool {
        STATE.lock().subscribed
    }

    /// The activity kinds that are on.
    pub fn enabled_kinds(&self) -> Vec<ActivityKind> {
        STATE.lock().kinds.iter().map(|&kind| ActivityKind(kind)).collect()
    }

    /// The callbacks that are on: (domain, id).
    pub fn enabled_callbacks(&self) -> Vec<(u32, u32)> {
        STATE.lock().enabled.iter().copied().collect()
    }

    /// An attribute's value, by CUPTI's number for it; `None` if this version does not have it.
    pub fn attribute(&self, id: u32) -> Option<u64> {
        STATE.lock().attributes.get(&id).copied()
    }

    /// The counters of managed memory that are on, by number.
    pub fn unified_memory_counters(&self) -> Vec<UnifiedMemoryKind> {
        STATE.lock().unified_memory.iter().map(|&kind| UnifiedMemoryKind(kind)).collect()
    }

    /// CUPTI's other settings.
    pub fn settings(&self) -> Settings {
        let state = STATE.lock();
        Settings {
            system_thread_ids: state.thread_id_type == THREAD_ID_TYPE_SYSTEM,
            flush_period_ms: state.flush_period,
            latency_timestamps: state.latency_timestamps,
        }
    }

    /// True if a CUPTI before 12.9 was given no buffer, which crashes the real one.
    pub fn would_have_crashed(&self) -> bool {
        STATE.lock().crashed
    }
}

/// The calls at which a fault occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum When {
    /// At every call.
    Always,
    /// Only at the next call.
    Once,
    /// Only at this call, counted from 1.
    Nth(u32),
}

/// The time at which an activity record is written, relative to its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Before it begins.
    BeforeCall,
    /// While it runs, the usual case.
    WithinCall,
    /// After it has returned.
    AfterCall,
}

/// Settings of the fake that a collection may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Settings {
    /// True if records name threads by the kernel's ids.
    pub system_thread_ids: bool,
    /// Milliseconds between two flushes of the worker; 0 is the worker's own period.
    pub flush_period_ms: u32,
    /// True if records contain when kernels were queued and submitted.
    pub latency_timestamps: bool,
}

/// A graph that is being built.
#[derive(Debug)]
pub struct FakeGraph {
    id: u32,
    nodes: Vec<(u64, Work)>,
}

impl FakeGraph {
    /// The graph's id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The ids of its nodes.
    pub fn nodes(&self) -> Vec<u64> {
        self.nodes.iter().map(|(node, _)| *node).collect()
    }

    fn next_id() -> u32 {
        static LAST: AtomicU32 = AtomicU32::new(0);
        LAST.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn ids(&self) -> GraphIds {
        GraphIds { graph: self.id, ..GraphIds::default() }
    }

    fn next_node(&self) -> u64 {
        u64::from(self.id) << 32 | (self.nodes.len() as u64 + 1)
    }

    /// Adds a node and returns its id, which is unique among all graphs.
    fn add(&mut self, work: Work) -> u64 {
        let node = self.next_node();
        self.nodes.push((node, work));
        node
    }
}

/// An instantiated graph.
#[derive(Debug)]
pub struct FakeExec(FakeGraph);

impl FakeExec {
    /// Its id, which is the graph id in its records.
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// The ids of its nodes.
    pub fn nodes(&self) -> Vec<u64> {
        self.0.nodes()
    }
}

impl Default for Fake {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        table::reset(0, table::fresh(None, 0, Version(0)));
        stopped_clock::resume();
    }
}

impl Builder {
    setters! {
        /// Sets CUPTI's API version, which determines the strides of records and the available
        /// functions.
        version(version: u32) version = version;
        /// Makes CUPTI held by another subscriber of this name.
        held_by(name: impl Into<String>) holder = Some(name.into());
        /// Sets CUPTI's clock ahead of ours by this many nanoseconds, instead of `CLOCK_REALTIME`.
        clock_offset(nanoseconds: i64) clock_offset = Some(nanoseconds);
        /// Leaves out the functions whose names begin so.
        lacking(functions: &'static str) lacks = Some(functions);
    }

    /// Makes this function of CUPTI fail with this code, every time, from the beginning.
    pub fn fault(mut self, function: &'static str, code: CuptiResult) -> Self {
        self.faults.push((function, code));
        self
    }

    /// Waits until other fakes of this process are dropped, and starts this one.
    #[must_use]
    pub fn build(self) -> Fake {
        let turn = TURN.lock();
        let version = Version(self.version);
        // Other fakes of the process, which may have moved the clock, have ended.
        let offset = self.clock_offset.unwrap_or_else(|| clock::read_realtime().offset_ns);
        table::reset(self.version, table::fresh(self.holder, offset, version));
        STATE.lock().lacks = self.lacks;
        for (function, code) in self.faults {
            faults::plant(function, code, When::Always);
        }
        let mut device = Device::new(0, "Fake H200", (9, 0), 132, 139 << 30);
        // The values of a real H200.
        device.core_clock_khz = Some(1_980_000);
        device.memory_bandwidth = Some(4_814_304_000_000);
        device.l2_bytes = Some(60 << 20);
        Fake { _turn: turn, driver: Driver::new(13_000, vec![device]) }
    }
}
