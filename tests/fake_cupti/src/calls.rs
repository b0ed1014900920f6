//! A program's calls and resource events: the resulting callbacks and records of CUPTI.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::LazyLock;

use cupti::calls::thread_id;
use cupti::sys::abi::*;
use cupti::sys::functions::*;
use cupti::{CallClass, DriverFunction, RuntimeFunction};

use crate::buffers;
use crate::pc_sampling;
use crate::state::{STATE, version};
use crate::work::Work;

/// CUPTI does not call back on a thread with this many calls by its own count, as seen with 13.0
/// and 13.5.
const DEPTH: usize = 3;

/// The callback id of a driver function.
fn driver_id(name: &str) -> Option<u32> {
    static IDS: LazyLock<HashMap<&str, u32>> =
        LazyLock::new(|| DRIVER_FUNCTIONS.iter().copied().zip(0..).collect());
    IDS.get(name).copied()
}

/// The callback id of a function of the runtime API, by its name without a version: the oldest
/// version's id.
fn runtime_id(name: &str) -> Option<u32> {
    static IDS: LazyLock<HashMap<&str, u32>> = LazyLock::new(|| {
        let mut ids = HashMap::new();
        for (name, id) in RUNTIME_FUNCTIONS.iter().map(|name| unversioned(name)).zip(0..) {
            ids.entry(name).or_insert(id);
        }
        ids
    });
    IDS.get(name).copied()
}

pub(super) fn next_correlation() -> u32 {
    let mut state = STATE.lock();
    state.correlation = state.correlation.wrapping_add(1);
    state.correlation
}

/// Runs the work and writes its record, if its kind is on; returns its end.
pub(super) fn execute(work: &Work, correlation: u32, node: Option<(u32, u64)>) -> u64 {
    let times = STATE.lock().run(work);
    pc_sampling::ran(work, correlation);
    record(work, correlation, times, node);
    times.1
}

/// Writes the record of work that ran at these times, if its kind is on.
pub(super) fn record(work: &Work, correlation: u32, times: (u64, u64), node: Option<(u32, u64)>) {
    let times = {
        let mut state = STATE.lock();
        if !state.kinds.contains(&work.kind()) {
            return;
        }
        if work.name().is_some() && state.forgotten > 0 {
            state.forgotten -= 1;
            return;
        }
        state.timestamps.apply(times)
    };
    if let Some(record) = work.record(version(), correlation, times, node) {
        buffers::write(&record);
    }
}

/// Calls the subscriber, if it enabled this callback.
///
/// # Safety
/// `data` points to a live structure of the type that CUPTI passes for this domain and id.
unsafe fn call_back(domain: u32, id: u32, data: *const c_void) -> bool {
    let callback = {
        let state = STATE.lock();
        state.callback.filter(|_| state.enabled.contains(&(domain, id)))
    };
    if let Some(callback) = callback {
        // SAFETY: the subscriber's callback; the data has its type by the caller's promise.
        unsafe { callback(std::ptr::null_mut(), domain, id, data) };
    }
    callback.is_some()
}

/// A call of the driver or runtime API, from its enter to its exit, with the data of its callbacks.
#[derive(Debug)]
#[must_use]
pub struct FakeCall {
    domain: u32,
    id: u32,
    correlation: u32,
    context: u32,
    bytes: u64,
    stream: Option<u32>,
    /// It passed through CUPTI when it began.
    is_hooked: bool,
    /// By CUPTI's count the thread is in too many calls for another callback.
    is_silent: bool,
    /// A launch whose callback began and returned in one period of recording kernels.
    is_recorded: bool,
    /// A launch whose callback returned.
    is_under_way: bool,
}

impl FakeCall {
    pub(super) fn new(domain: u32, id: u32, correlation: u32) -> Self {
        Self {
            domain,
            id,
            correlation,
            context: 1,
            bytes: 1,
            stream: None,
            is_hooked: false,
            is_silent: false,
            is_recorded: false,
            is_under_way: false,
        }
    }

    /// A call of a driver function, by its name with its version, such as `cuMemAlloc_v2`. Without
    /// a correlation id it gets the next one; a call within a runtime call shares the id of that
    /// call.
    pub fn driver(function: &str, correlation: Option<u32>) -> Self {
        let id = driver_id(function).unwrap_or(u32::MAX);
        Self::new(DOMAIN_DRIVER_API, id, correlation.unwrap_or_else(next_correlation))
    }

    /// A call of a function of the runtime API, by its name without a version. It gets the next
    /// correlation id.
    pub fn runtime(function: &str) -> Self {
        let id = runtime_id(function).unwrap_or(u32::MAX);
        Self::new(DOMAIN_RUNTIME_API, id, next_correlation())
    }

    setters! {
        /// Sets the id of the context that is current at the call; 1 by default.
        in_context(id: u32) context = id;
        /// Sets the value of every size in the parameter block; 1 by default.
        with_bytes(bytes: u64) bytes = bytes;
        /// Sets the stream that is the first parameter.
        of_stream(id: u32) stream = Some(id);
    }

    /// Runs the whole call: `within` receives its correlation id, does its work and returns its
    /// result, which this function returns too.
    pub fn run(mut self, within: impl FnOnce(u32) -> u32) -> u32 {
        self.enter();
        let result = within(self.correlation);
        self.exit(result);
        result
    }

    fn data(&self, site: u32, params: &[u64; 8], result: Option<&u32>) -> CallbackData {
        CallbackData {
            callback_site: site,
            function_name: std::ptr::null(),
            function_params: params.as_ptr().cast(),
            function_return_value: result
                .map_or(std::ptr::null(), |result| std::ptr::from_ref(result).cast()),
            symbol_name: std::ptr::null(),
            context: handle(self.context.into()),
            context_uid: self.context,
            correlation_data: std::ptr::null_mut(),
            correlation_id: self.correlation,
        }
    }

    /// True if it launches a kernel.
    fn launches(&self) -> bool {
        let class = if self.domain == DOMAIN_DRIVER_API {
            DriverFunction(self.id).class()
        } else {
            RuntimeFunction(self.id).class()
        };
        class == CallClass::KernelLaunch
    }

    /// The driver call that submits or captures this work.
    pub(super) fn submitting(work: &Work, correlation: u32) -> Self {
        let (bytes, context, stream) = (work.bytes(), work.context(), work.waits_for());
        Self { bytes, context, stream, ..Self::driver(work.function(), Some(correlation)) }
    }

    /// Runs the whole call, which returns this result; `within` runs before it returns. Returns its
    /// correlation id.
    pub(super) fn returning(self, result: u32, within: impl FnOnce(u32)) -> u32 {
        let mut known = 0;
        self.run(|correlation| {
            known = correlation;
            within(correlation);
            result
        });
        known
    }

    /// The parameter block: sizes, with the stream first.
    fn params(&self) -> [u64; 8] {
        let mut params = [self.bytes; 8];
        params[0] = self.stream.map_or(self.bytes, u64::from);
        params
    }

    /// Counts the call as begun in CUPTI; the decision to call back follows later. On a thread that
    /// is in another call by CUPTI's count, it has that call's correlation id.
    fn open(&mut self) {
        let state = STATE.lock();
        self.is_hooked = state.hooks.contains(&(self.domain, self.id));
        if !self.is_hooked || state.left_open.is_empty() {
            return;
        }
        let Some(open) = state.left_open.get(&thread_id()) else { return };
        (self.correlation, self.is_silent) = (open[0], open.len() >= DEPTH);
    }

    /// Counts the call as returned in CUPTI, unless its function was disabled meanwhile. A function
    /// disabled within the callback of the return is disabled too late to matter.
    fn close(&mut self) {
        let mut state = STATE.lock();
        let is_known = self.is_hooked && !self.is_silent;
        if is_known && !state.hooks.contains(&(self.domain, self.id)) {
            state.left_open.entry(thread_id()).or_default().push(self.correlation);
        }
    }

    /// Begins the call.
    pub(super) fn enter(&mut self) {
        self.open();
        let params = self.params();
        let data = self.data(API_ENTER, &params, None);
        let before = STATE.lock().recording_of_kernels();
        // SAFETY: a live CUpti_CallbackData, whose parameter block has room for all sizes that are
        // read.
        let is_seen =
            !self.is_silent && unsafe { call_back(self.domain, self.id, (&raw const data).cast()) };
        if is_seen && self.launches() {
            let mut state = STATE.lock();
            self.is_under_way = true;
            state.under_way += 1;
            self.is_recorded = before.is_some() && before == state.recording_of_kernels();
            state.launching += usize::from(self.is_recorded);
        }
    }

    /// Returns from the call.
    pub(super) fn exit(&mut self, result: u32) {
        let mut state = STATE.lock();
        state.launching -= usize::from(self.is_recorded);
        state.under_way -= usize::from(self.is_under_way);
        drop(state);
        self.close();
        let params = self.params();
        let data = self.data(API_ENTER + 1, &params, Some(&result));
        if !self.is_silent {
            // SAFETY: a live CUpti_CallbackData, which points to a live result.
            unsafe { call_back(self.domain, self.id, (&raw const data).cast()) };
        }
    }
}

/// Runs the whole call that submits this work.
pub(super) fn submit(work: &Work) {
    FakeCall::submitting(work, next_correlation())
        .returning(0, |correlation| _ = execute(work, correlation, None));
}

/// The handle of an object with this id.
fn handle(id: u64) -> *mut c_void {
    id as usize as *mut c_void
}

/// Reports an event of a resource on this thread. The descriptor has the type that CUPTI passes for
/// this id.
fn resource<T>(id: u32, context: u32, descriptor: Option<&T>) {
    let data = ResourceData {
        context: handle(context.into()),
        stream: handle(0),
        descriptor: descriptor.map_or(std::ptr::null(), |data| std::ptr::from_ref(data).cast()),
    };
    // SAFETY: a live CUpti_ResourceData, whose descriptor is live, and of this event's type, or null.
    unsafe { call_back(DOMAIN_RESOURCE, id, (&raw const data).cast()) };
}

/// Reports the begin or end of a context.
pub(super) fn context_event(id: u32, context: u32) {
    resource::<GraphData>(id, context, None);
}

/// Reports the load or unload of a module.
pub(super) fn module_event(id: u32, context: u32, cubin: &[u8]) {
    let data = ModuleData { module_id: 1, cubin_size: cubin.len(), cubin: cubin.as_ptr() };
    resource(id, context, Some(&data));
}

/// Reports a node of a graph, without ids.
pub(super) fn node_created() {
    resource::<GraphData>(RESOURCE_GRAPHNODE_CREATED, 1, None);
}

/// The ids of a graph event, each 0 by default.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GraphIds {
    pub(super) graph: u32,
    pub(super) original_graph: u32,
    pub(super) node: u64,
    pub(super) original_node: u64,
    pub(super) dependency: u64,
    pub(super) exec: u32,
}

/// Reports a graph event.
pub(super) fn graph_event(id: u32, ids: GraphIds) {
    let data = GraphData {
        graph: handle(ids.graph.into()),
        original_graph: handle(ids.original_graph.into()),
        node: handle(ids.node),
        original_node: handle(ids.original_node),
        node_type: 0,
        dependency: handle(ids.dependency),
        graph_exec: handle(ids.exec.into()),
    };
    resource(id, 1, Some(&data));
}

/// Makes the process's exit do what CUPTI may do then: return buffers, and call back once more.
pub(super) fn act_at_exit() {
    extern "C" fn at_exit() {
        buffers::return_all();
        FakeCall::new(DOMAIN_DRIVER_API, DRIVER_CALLS[0].id, next_correlation()).returning(0, drop);
    }
    // SAFETY: the function lives as long as the process and does not unwind: our functions that it
    // calls catch panics.
    let _ = unsafe { libc::atexit(at_exit) };
}
