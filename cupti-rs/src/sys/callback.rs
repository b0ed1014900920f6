//! The function that CUPTI calls at the start and end of each enabled call and for each enabled
//! event, on its thread. It converts CUPTI's structures to safe values and passes them to the logs.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use super::abi::*;
use super::driver::Context;
use super::functions::*;
use crate::buffer::POOL;
use crate::call_class::CallClass;
use crate::call_log::{self, DriverFunction, RuntimeFunction};
use crate::callback_panics;
use crate::collection_state::{GRAPHS, HELD, ON, RUNTIME_CALLS, SAMPLES, SWITCH, State, WAITS};
use crate::graphs::{self, GraphEvent, GraphEventKind};
use crate::launch_hold;
use crate::paused_launches;
use crate::pc_sampling::{known_contexts, session};
use crate::profiler_switch;
use crate::record::NO_ID;
use crate::waits::{self, Wait, Waiting};

/// `CUpti_CallbackFunc`.
///
/// # Safety
///
/// Only CUPTI may call it: `data` is null or the structure that CUPTI passes for this domain and
/// id.
pub(crate) unsafe extern "C" fn callback(
    _: *mut c_void,
    domain: u32,
    id: u32,
    data: *const c_void,
) {
    let state = State::load();
    // Callbacks stay enabled between collections.
    if state.is_none() {
        return;
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: CUPTI passed `data` to this call for this domain and id, and the value is dropped
        // before we return.
        let Some(payload) = (unsafe { Payload::new(domain, id, data) }) else { return };
        match payload.api_call() {
            Some(call) if call.domain == DOMAIN_DRIVER_API && state.only_logs() => {
                if !call.is_entering() {
                    paused_launches::end();
                }
                log_driver_call(state, call);
            }
            Some(call) => other(state, call),
            None => resource_event(state, &payload),
        }
    }));
    outcome.unwrap_or_else(callback_panics::caught);
}

/// CUPTI's structure for the current callback. It is a local of [`callback`] and of its callees:
/// everything borrowed from CUPTI's memory is borrowed from this value, and so ends before the
/// callback returns.
struct Payload {
    domain: u32,
    id: u32,
    data: NonNull<c_void>,
}

impl Payload {
    /// Returns `None` for a null pointer.
    ///
    /// # Safety
    ///
    /// `data` is null or the pointer that CUPTI passed for this domain and id to a callback that
    /// outlives the value.
    #[inline(always)] // into the one hot callback
    unsafe fn new(domain: u32, id: u32, data: *const c_void) -> Option<Self> {
        Some(Self { domain, id, data: NonNull::new(data.cast_mut())? })
    }

    /// The structure.
    ///
    /// # Safety
    /// `T` is the type that CUPTI documents for this domain, or for this id of it.
    #[inline(always)] // as new
    unsafe fn read<T>(&self) -> &T {
        // SAFETY: not null; by the promise of `new` CUPTI's structure, which lives as long as
        // `self` and is not written to while we run, and by the caller's promise a `T`.
        unsafe { self.data.cast::<T>().as_ref() }
    }

    #[inline(always)] // as new
    fn api_call(&self) -> Option<ApiData<'_>> {
        if self.domain != DOMAIN_DRIVER_API && self.domain != DOMAIN_RUNTIME_API {
            return None;
        }
        // SAFETY: in these two domains CUPTI passes a CUpti_CallbackData.
        let data = unsafe { self.read::<CallbackData>() };
        Some(ApiData { domain: self.domain, id: self.id, data })
    }
}

/// A call of one of the two APIs, in CUPTI's description at its start and at its end. Made only by
/// [`Payload::api_call`].
#[derive(Clone, Copy)]
struct ApiData<'a> {
    domain: u32,
    id: u32,
    data: &'a CallbackData,
}

impl<'a> ApiData<'a> {
    #[inline(always)] // into the one hot callback
    fn is_entering(self) -> bool {
        self.data.callback_site == API_ENTER
    }

    /// The result of a call that returns; 0 at its start.
    #[inline(always)] // as is_entering
    fn result(self) -> u32 {
        if self.is_entering() || self.data.function_return_value.is_null() {
            return 0;
        }
        // SAFETY: at the exit of a call CUPTI points this at the call's CUresult or cudaError_t,
        // both C enums.
        unsafe { self.data.function_return_value.cast::<u32>().read() }
    }

    /// For a driver call that the log records, returns true if it submits zero bytes of work, and
    /// true if its class submits work. `None` for other calls.
    #[inline(always)] // as is_entering
    fn begins(self) -> Option<(bool, bool)> {
        if self.domain != DOMAIN_DRIVER_API {
            return None;
        }
        let call = DriverFunction(self.id).entry()?;
        let submits = call.class.submits_work();
        if call.sizes.is_empty() || self.data.function_params.is_null() {
            return Some((false, submits));
        }
        let is_zero = |&offset: &usize| {
            // SAFETY: the offsets of `sizes` lie in the parameter block of the function with this
            // id, whose layout is part of the driver's ABI.
            let place = unsafe { self.data.function_params.byte_add(offset) };
            // SAFETY: a size_t lies there, aligned to 8.
            unsafe { place.cast::<usize>().read() == 0 }
        };
        Some((call.sizes.iter().any(is_zero), submits))
    }

    /// CUPTI's id of the stream, for a driver call whose first parameter is a stream.
    fn stream(self, is_per_thread: bool) -> Option<u32> {
        if self.data.function_params.is_null() {
            return None;
        }
        // SAFETY: not null, and so the parameter block of this call, which begins with a CUstream
        // by the caller's promise.
        let stream = unsafe { self.data.function_params.cast::<*mut c_void>().read() };
        // SAFETY: the context that CUPTI passed to the current callback, and a stream that the
        // driver took from the program for a call that succeeded.
        unsafe { stream_id(self.data.context, stream, is_per_thread) }
    }

    /// The class of a driver call.
    fn class(self) -> CallClass {
        DriverFunction(self.id).class()
    }
}

#[inline(always)] // into the one hot callback
fn log_driver_call(state: State, call: ApiData<'_>) {
    let (id, correlation) = (call.id, call.data.correlation_id);
    if !call.is_entering() {
        if state.has(WAITS)
            && let Some(waiting) = waits::waiting(id)
        {
            log_wait(state, call, waiting);
        }
        call_log::exit(state, call_log::Api::Driver, id, correlation, call.result());
    } else if let Some((is_empty, submits)) = call.begins() {
        call_log::enter(state, call_log::Api::Driver, id, correlation, is_empty, submits);
        if launch_hold::is_held() {
            wait_logged(call);
        }
    }
}

/// Logs the wait of a call, if the call succeeded.
#[inline(never)]
fn log_wait(state: State, call: ApiData<'_>, waiting: Waiting) {
    if call.result() == 0 {
        let stream = if waiting.has_stream { call.stream(waiting.is_per_thread) } else { None };
        let (context, correlation_id) = (call.data.context_uid, call.data.correlation_id);
        let (kind, stream) = (waiting.kind, stream.unwrap_or(NO_ID));
        let (start_ns, end_ns) = (0, 0);
        let wait = Wait { kind, correlation_id, context, stream, start_ns, end_ns };
        call_log::waited(state, call.id, wait);
    }
}

/// Holds back a launch that was logged after the hold began; its thread had read the state before.
#[cold]
#[inline(never)]
fn wait_logged(call: ApiData<'_>) {
    if call.class().submits_work() {
        launch_hold::wait_logged(call.id, call.data.correlation_id);
        let state = State::load();
        if !state.has(ON) {
            begin_in_pause(state);
        }
    }
}

fn log_runtime_call(state: State, call: ApiData<'_>) {
    if !state.has(RUNTIME_CALLS) {
        return;
    }
    let (id, correlation) = (call.id, call.data.correlation_id);
    if !call.is_entering() {
        call_log::exit(state, call_log::Api::Runtime, id, correlation, call.result());
    } else if RuntimeFunction(id).entry().is_some() {
        call_log::enter(state, call_log::Api::Runtime, id, correlation, false, false);
    }
}

/// Handles all calls except driver calls that are only logged.
#[inline(never)]
fn other(mut state: State, call: ApiData<'_>) {
    if state.has(SWITCH) {
        switch(call);
    }
    let is_driver = call.domain == DOMAIN_DRIVER_API;
    if state.has(SAMPLES) && is_driver && call.is_entering() {
        find_context(call);
    }
    if is_driver && call.is_entering() && call.class().submits_work() {
        if state.has(HELD) {
            launch_hold::wait();
            state = State::load();
        }
        if !state.has(ON) {
            state = begin_in_pause(state);
        }
    } else if is_driver && !call.is_entering() {
        paused_launches::end();
    }
    if !state.has(ON) {
        return;
    }
    let log = if is_driver { log_driver_call } else { log_runtime_call };
    log(state, call);
}

/// Reports the call's context, unless it is known.
#[inline]
fn find_context(call: ApiData<'_>) {
    if !known_contexts::is_known(call.data.context_uid) {
        // SAFETY: CUPTI passed the context to this callback.
        let context = unsafe { Context::from_callback(call.data.context) };
        if let Some(context) = context {
            session::context_found(context, call.data.context_uid);
        }
    }
}

/// Counts a launch that begins in a pause until it returns, unless the pause has ended. Returns the
/// state after that.
fn begin_in_pause(state: State) -> State {
    if state.is_none() {
        return state;
    }
    paused_launches::begin(state.collection());
    let mut state = State::load();
    if state.has(HELD) && !state.has(ON) {
        // It waits uncounted, and counts whatever comes next.
        paused_launches::end();
        launch_hold::wait();
        paused_launches::begin(state.collection());
        state = State::load();
    }
    if state.has(ON) {
        paused_launches::end();
    }
    state
}

/// Turns the switch at the end of a successful start and at the beginning of a stop.
#[cold]
fn switch(call: ApiData<'_>) {
    let entering = call.is_entering();
    match (call.domain, call.id) {
        (DOMAIN_DRIVER_API, DRIVER_PROFILER_START)
        | (DOMAIN_RUNTIME_API, RUNTIME_PROFILER_START)
            if !entering && call.result() == 0 =>
        {
            profiler_switch::switched(true);
        }
        (DOMAIN_DRIVER_API, DRIVER_PROFILER_STOP) | (DOMAIN_RUNTIME_API, RUNTIME_PROFILER_STOP)
            if entering =>
        {
            profiler_switch::switched(false);
        }
        _ => {}
    }
}

/// Handles an event of a context, a module or a graph: all of them are rare.
#[cold]
fn resource_event(state: State, payload: &Payload) {
    if payload.domain != DOMAIN_RESOURCE {
        return;
    }
    match payload.id {
        RESOURCE_CONTEXT_CREATED
        | RESOURCE_CONTEXT_DESTROY_STARTING
        | RESOURCE_MODULE_LOADED
        | RESOURCE_MODULE_UNLOAD_STARTING
            if state.has(SAMPLES) =>
        {
            sampled_event(payload);
        }
        _ if state.has(ON) => graph_event(state, payload),
        _ => {}
    }
}

/// Passes an event of a context or module to the session that samples instructions.
fn sampled_event(payload: &Payload) {
    // SAFETY: in this domain CUPTI passes a CUpti_ResourceData.
    let resource = unsafe { payload.read::<ResourceData>() };
    // SAFETY: CUPTI passed the context to this callback.
    let Some(context) = (unsafe { Context::from_callback(resource.context) }) else { return };
    match payload.id {
        RESOURCE_CONTEXT_CREATED => session::context_created(context),
        RESOURCE_CONTEXT_DESTROY_STARTING => session::context_ends(context),
        RESOURCE_MODULE_UNLOAD_STARTING => session::module_ends(context),
        _ if resource.descriptor.is_null() => {}
        _ => {
            // SAFETY: for the events of modules CUPTI points the descriptor at a
            // CUpti_ModuleResourceData, which lives as long as the structure that contains it.
            let module = unsafe { &*resource.descriptor.cast::<ModuleData>() };
            if !module.cubin.is_null() {
                // SAFETY: CUPTI's copy of the cubin, of this size, which lives as long.
                let cubin = unsafe { std::slice::from_raw_parts(module.cubin, module.cubin_size) };
                session::module_loaded(context, cubin);
            }
        }
    }
}

/// Logs an event of a graph.
fn graph_event(state: State, payload: &Payload) {
    use GraphEventKind::{DependencyCreated, DependencyDestroyed};
    if payload.id == RESOURCE_GRAPHNODE_CREATED {
        call_log::node_created(state);
    }
    let known = graphs::KINDS.iter().find(|(id, _)| *id == payload.id);
    let Some(&(_, kind)) = known.filter(|_| state.has(GRAPHS)) else { return };
    // SAFETY: in this domain CUPTI passes a CUpti_ResourceData.
    let resource = unsafe { payload.read::<ResourceData>() };
    if resource.descriptor.is_null() {
        return;
    }
    // SAFETY: for the events of graphs and nodes CUPTI points the descriptor at a CUpti_GraphData,
    // which lives as long as the structure that contains it.
    let data = unsafe { &*resource.descriptor.cast::<GraphData>() };
    let Some(api) = POOL.api() else { return };
    // An id is 0 if CUPTI refuses it; its id functions are allowed in callbacks.
    // SAFETY: the handles of `data` are CUPTI's, in the current callback.
    let graph = |handle| unsafe { id_of(api.get_graph_id, handle) }.unwrap_or(0);
    // SAFETY: as above.
    let node = |handle| unsafe { id_of(api.get_graph_node_id, handle) }.unwrap_or(0);
    // SAFETY: as above.
    let exec = |function| unsafe { id_of(function, data.graph_exec) };
    let event = GraphEvent {
        kind,
        at_ns: 0,
        word: 0,
        call: 0,
        graph: graph(data.graph),
        original_graph: graph(data.original_graph),
        node: node(data.node),
        original_node: node(match kind {
            DependencyCreated | DependencyDestroyed => data.dependency,
            _ => data.original_node,
        }),
        node_type: data.node_type,
        exec: api.get_graph_exec_id.and_then(exec).unwrap_or(0),
    };
    call_log::graph_event(state, event);
}

/// Returns the id of a handle. `None` if there is no handle or CUPTI refuses.
///
/// # Safety
///
/// `handle` is null or a handle of the kind that `function` takes, which CUPTI passed to the
/// current callback.
unsafe fn id_of<T: Default>(
    function: unsafe extern "C" fn(*mut c_void, *mut T) -> CuptiResult,
    handle: *mut c_void,
) -> Option<T> {
    if handle.is_null() {
        return None;
    }
    let mut id = T::default();
    // SAFETY: the handle is live by the caller's promise; `id` is live memory of the type that the
    // function writes.
    let code = unsafe { function(handle, &mut id) };
    (code == CuptiResult::SUCCESS).then_some(id)
}

/// # Safety
///
/// `context` is null or a context that CUPTI passed to the current callback, and `stream` a live
/// stream of it.
unsafe fn stream_id(context: *mut c_void, stream: *mut c_void, is_per_thread: bool) -> Option<u32> {
    let api = POOL.api().filter(|_| !context.is_null())?;
    let mut id = 0;
    // SAFETY: both are live by the caller's promise; a null stream is the default one; `id` is a
    // live u32.
    let code = unsafe { (api.get_stream_id)(context, stream, is_per_thread.into(), &mut id) };
    (code == CuptiResult::SUCCESS).then_some(id)
}
