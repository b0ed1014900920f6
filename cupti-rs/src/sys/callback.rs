//! The function that CUPTI calls at the start and end of each enabled call and for each enabled
//! event, on its thread. It converts CUPTI's structures to safe values and passes them to the logs
//! and the program's handler.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use super::abi::*;
use super::functions::*;
use crate::buffer::POOL;
use crate::call_class::CallClass;
use crate::call_log::{self, DriverFunction, RuntimeFunction};
use crate::callback_handler::{
    self, ApiCall, Callback, GraphIds, Module, NvtxCall, Resource, ResourceKind, Site, StateNotice,
    Synchronized,
};
use crate::callback_panics;
use crate::collection_state::{GRAPHS, HANDLER, HELD, ON, RUNTIME_CALLS, SWITCH, State, WAITS};
use crate::graphs::{self, GraphEvent, GraphEventKind};
use crate::launch_hold;
use crate::paused_launches;
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
            None if state.has(ON) => event(state, &payload),
            None => {}
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

    fn class(self) -> CallClass {
        if self.domain == DOMAIN_DRIVER_API {
            DriverFunction(self.id).class()
        } else {
            RuntimeFunction(self.id).class()
        }
    }

    fn name(self) -> &'a str {
        // SAFETY: CUPTI documents this member as the function's name.
        let name = unsafe { text(self.data, self.data.function_name) };
        name.unwrap_or_default()
    }

    /// The kernel's name, for a call that launches one: for other calls CUPTI does not define the
    /// member.
    fn symbol(self) -> Option<&'a str> {
        if self.class() != CallClass::KernelLaunch {
            return None;
        }
        // SAFETY: CUPTI documents this member as the kernel's name for calls that launch one.
        unsafe { text(self.data, self.data.symbol_name) }
    }

    fn kept(self) -> Option<&'a Cell<u64>> {
        let place = NonNull::new(self.data.correlation_data)?;
        // SAFETY: CUPTI has a u64 there for this call only, from its enter to its exit, and only
        // this thread makes the call; a Cell has the layout of its content. The lifetime is the
        // structure's, which ends with the callback.
        Some(unsafe { place.cast::<Cell<u64>>().as_ref() })
    }

    fn to_callback(self) -> Callback<'a> {
        let entering = self.is_entering();
        let call = ApiCall {
            site: if entering { Site::Enter } else { Site::Exit },
            id: self.id,
            name: self.name(),
            symbol: self.symbol(),
            correlation_id: self.data.correlation_id,
            context_id: self.data.context_uid,
            result: (!entering).then(|| self.result()),
            kept: self.kept(),
        };
        if self.domain == DOMAIN_DRIVER_API {
            Callback::Driver(call)
        } else {
            Callback::Runtime(call)
        }
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
    // The handler's time must not count as part of the call's.
    let entering = call.is_entering();
    if state.has(HANDLER) && entering {
        callback_handler::dispatch(state, call.domain, call.id, || call.to_callback());
    }
    log(state, call);
    if state.has(HANDLER) && !entering {
        callback_handler::dispatch(state, call.domain, call.id, || call.to_callback());
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

/// Returns a C string of CUPTI's that lives as long as its structure: a function's name, a launch's
/// symbol, a message. `None` for null, and for text that is not UTF-8.
///
/// # Safety
///
/// `string` is null or a member of `_owner` that CUPTI documents as a string: it ends in a NUL and
/// lives at least until the callback returns, and `_owner` no longer.
unsafe fn text<T>(_owner: &T, string: *const c_char) -> Option<&str> {
    if string.is_null() {
        return None;
    }
    // SAFETY: not null, and by the caller's promise a string that outlives `_owner`, from which the
    // result is borrowed.
    let string = unsafe { CStr::from_ptr(string) };
    string.to_str().ok()
}

/// Handles everything except API calls: all of it is rare.
#[cold]
fn event(state: State, payload: &Payload) {
    let (domain, id) = (payload.domain, payload.id);
    match domain {
        DOMAIN_RESOURCE => {
            // SAFETY: in this domain CUPTI passes a CUpti_ResourceData.
            resource(state, ResourceEvent { id, data: unsafe { payload.read() } });
        }
        DOMAIN_SYNCHRONIZE => callback_handler::dispatch(state, domain, id, || {
            // SAFETY: in this domain CUPTI passes a CUpti_SynchronizeData.
            let data = unsafe { payload.read::<SynchronizeData>() };
            // SAFETY: the context is CUPTI's, in the current callback.
            let context_id = unsafe { context_id(data.context) };
            let stream_id = match id {
                // SAFETY: both of these are too.
                SYNCHRONIZE_STREAM => unsafe { stream_id(data.context, data.stream, false) },
                _ => None,
            };
            Callback::Synchronize(Synchronized { stream_id, context_id })
        }),
        DOMAIN_NVTX => callback_handler::dispatch(state, domain, id, || {
            // SAFETY: in this domain CUPTI passes a CUpti_NvtxData.
            let data = unsafe { payload.read::<NvtxData>() };
            // SAFETY: CUPTI documents this member as the function's name, a constant.
            let name = unsafe { text(data, data.function_name) };
            Callback::Nvtx(NvtxCall { id, name: name.unwrap_or_default() })
        }),
        DOMAIN_STATE => callback_handler::dispatch(state, domain, id, || {
            // SAFETY: in this domain CUPTI passes a CUpti_StateData.
            let data = unsafe { payload.read::<StateData>() };
            // SAFETY: CUPTI documents this member as a message, or null.
            let message = unsafe { text(data, data.message) };
            Callback::State(StateNotice { id, code: data.result.0, message })
        }),
        _ => {}
    }
}

fn resource(state: State, event: ResourceEvent<'_>) {
    use GraphEventKind::{DependencyCreated, DependencyDestroyed};
    if event.id == RESOURCE_GRAPHNODE_CREATED {
        call_log::node_created(state);
    }
    let known = graphs::KINDS.iter().find(|(id, _)| *id == event.id).filter(|_| state.has(GRAPHS));
    if let Some((&(_, kind), ids)) = known.zip(event.graph_ids()) {
        let event = GraphEvent {
            kind,
            at_ns: 0,
            word: 0,
            call: 0,
            graph: ids.graph,
            original_graph: ids.original_graph,
            node: ids.node,
            original_node: match kind {
                DependencyCreated | DependencyDestroyed => ids.dependency,
                _ => ids.original_node,
            },
            node_type: ids.node_type,
            exec: ids.exec,
        };
        call_log::graph_event(state, event);
    }
    if state.has(HANDLER) {
        callback_handler::dispatch(state, DOMAIN_RESOURCE, event.id, || {
            Callback::Resource(Resource {
                kind: ResourceKind(event.id),
                context_id: event.context_id(),
                stream_id: event.stream_id(),
                module: event.module(),
                graph: event.graph_ids(),
            })
        });
    }
}

/// An event of a context, stream, module or graph. Made only by [`event`], so that its handles are
/// the ones that CUPTI passed to the current callback.
#[derive(Clone, Copy)]
struct ResourceEvent<'a> {
    id: u32,
    data: &'a ResourceData,
}

impl<'a> ResourceEvent<'a> {
    fn context_id(self) -> Option<u32> {
        // SAFETY: CUPTI passed this context in the current callback.
        unsafe { context_id(self.data.context) }
    }

    fn stream_id(self) -> Option<u32> {
        match self.id {
            RESOURCE_STREAM_CREATED
            | RESOURCE_STREAM_DESTROY_STARTING
            | RESOURCE_STREAM_ATTRIBUTE_CHANGED => {
                // SAFETY: CUPTI passed this context and this stream in the current callback.
                unsafe { stream_id(self.data.context, self.data.stream, false) }
            }
            _ => None,
        }
    }

    fn module(self) -> Option<Module<'a>> {
        if !(RESOURCE_MODULE_LOADED..=RESOURCE_MODULE_PROFILED).contains(&self.id)
            || self.data.descriptor.is_null()
        {
            return None;
        }
        // SAFETY: for the events of modules CUPTI points the descriptor at a
        // CUpti_ModuleResourceData, which lives as long as the structure that contains it.
        let module: &'a ModuleData = unsafe { &*self.data.descriptor.cast::<ModuleData>() };
        let cubin = if module.cubin.is_null() {
            &[][..]
        } else {
            // SAFETY: by CUPTI's documentation the image has this many bytes and stays until the
            // callback returns.
            unsafe { std::slice::from_raw_parts(module.cubin, module.cubin_size) }
        };
        Some(Module { id: module.module_id, cubin })
    }

    /// The ids of the handles in the event of a graph or node. CUPTI allows its id functions in
    /// callbacks; if one refuses, the id is 0.
    fn graph_ids(self) -> Option<GraphIds> {
        match self.id {
            RESOURCE_GRAPH_CREATED..=RESOURCE_GRAPHNODE_CLONED
            | RESOURCE_GRAPH_NODE_UPDATED
            | RESOURCE_GRAPH_NODE_SET_PARAMS
                if !self.data.descriptor.is_null() => {}
            _ => return None,
        }
        // SAFETY: for the events of graphs and nodes CUPTI points the descriptor at a
        // CUpti_GraphData, which lives as long as the structure that contains it.
        let data: &'a GraphData = unsafe { &*self.data.descriptor.cast::<GraphData>() };
        let Some(api) = POOL.api() else {
            return Some(GraphIds::default());
        };
        // SAFETY: the handles of `data` are CUPTI's, in the current callback.
        let graph = |handle| unsafe { id_of(api.get_graph_id, handle) }.unwrap_or(0);
        // SAFETY: as above.
        let node = |handle| unsafe { id_of(api.get_graph_node_id, handle) }.unwrap_or(0);
        // SAFETY: as above.
        let exec = |function| unsafe { id_of(function, data.graph_exec) };
        Some(GraphIds {
            graph: graph(data.graph),
            original_graph: graph(data.original_graph),
            node: node(data.node),
            original_node: node(data.original_node),
            dependency: node(data.dependency),
            node_type: data.node_type,
            exec: api.get_graph_exec_id.and_then(exec).unwrap_or(0),
        })
    }
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
/// `context` is null or a context that CUPTI passed to the current callback.
unsafe fn context_id(context: *mut c_void) -> Option<u32> {
    // SAFETY: the caller's promise.
    unsafe { id_of(POOL.api()?.get_context_id, context) }
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
