//! The function that CUPTI calls at the start and end of each enabled call and for each enabled event, on the thread
//! where it happens: from CUPTI's structures to safe values, and on to the logs and the program's handler.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::abi::*;
use super::callback_ids::*;
use super::generated::DriverCall;
use crate::buffer::POOL;
use crate::callbacks::{
    self, ApiCall, Callback, GraphIds, Module, NvtxCall, Resource, ResourceKind, Site, StateNotice,
    Synchronized,
};
use crate::calls::{self, CallClass, DriverFunction, RuntimeFunction};
use crate::graph_gate;
use crate::graphs::{GraphEvent, GraphEventKind};
use crate::session::{self, GATED, GRAPHS, HANDLER, ON, RUNTIME_CALLS, SWITCH, State};

/// `CUpti_CallbackFunc`.
pub(crate) unsafe extern "C" fn callback(
    _: *mut c_void,
    domain: u32,
    id: u32,
    data: *const c_void,
) {
    let state = State::load();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        if data.is_null() {
            return;
        }
        if domain == DOMAIN_DRIVER_API && state.only_logs() {
            // SAFETY: in this domain CUPTI passes a CUpti_CallbackData that lives until we return.
            log_driver_call(state, id, unsafe { &*data.cast::<CallbackData>() });
        } else if state.has(ON | SWITCH) {
            other(state, domain, id, data);
        }
    }));
    if let Err(panic) = outcome {
        calls::panicked();
        // Its drop might panic again, with nobody left to catch it.
        std::mem::forget(panic);
    }
}

#[inline(always)] // into the one hot callback
fn log_driver_call(state: State, id: u32, data: &CallbackData) {
    if data.callback_site != API_ENTER {
        calls::exit(state, calls::Api::Driver, id, data.correlation_id, result(data));
    } else if let Some(call) = DriverFunction(id).entry() {
        calls::enter(state, calls::Api::Driver, id, data.correlation_id, is_empty(call, data));
    }
}

fn log_runtime_call(state: State, id: u32, data: &CallbackData) {
    if !state.has(RUNTIME_CALLS) {
        return;
    }
    if data.callback_site != API_ENTER {
        calls::exit(state, calls::Api::Runtime, id, data.correlation_id, result(data));
    } else if RuntimeFunction(id).is_recorded() {
        calls::enter(state, calls::Api::Runtime, id, data.correlation_id, false);
    }
}

/// All but a driver call that is only logged.
#[inline(never)]
fn other(state: State, domain: u32, id: u32, data: *const c_void) {
    if domain != DOMAIN_DRIVER_API && domain != DOMAIN_RUNTIME_API {
        if state.has(ON) {
            event(state, domain, id, data);
        }
        return;
    }
    // SAFETY: in these domains CUPTI passes a CUpti_CallbackData that lives until we return.
    let data = unsafe { &*data.cast::<CallbackData>() };
    if state.has(SWITCH) {
        switch(domain, id, data);
    }
    if !state.has(ON) {
        return;
    }
    let log = if domain == DOMAIN_DRIVER_API { log_driver_call } else { log_runtime_call };
    // The handler's time is no part of the call's.
    let entering = data.callback_site == API_ENTER;
    let is_gated = state.has(GATED)
        && domain == DOMAIN_DRIVER_API
        && DriverFunction(id).class() == CallClass::GraphLaunch;
    if is_gated && entering {
        graph_gate::enter();
    }
    if state.has(HANDLER) && entering {
        hand_on(state, domain, id, data);
    }
    log(state, id, data);
    if is_gated && !entering {
        graph_gate::leave();
    }
    if state.has(HANDLER) && !entering {
        hand_on(state, domain, id, data);
    }
}

/// Turns the switch at the end of a successful start and at the beginning of a stop.
#[cold]
fn switch(domain: u32, id: u32, data: &CallbackData) {
    let entering = data.callback_site == API_ENTER;
    match (domain, id) {
        (DOMAIN_DRIVER_API, DRIVER_PROFILER_START)
        | (DOMAIN_RUNTIME_API, RUNTIME_PROFILER_START)
            if !entering && result(data) == 0 =>
        {
            session::switched(true);
        }
        (DOMAIN_DRIVER_API, DRIVER_PROFILER_STOP) | (DOMAIN_RUNTIME_API, RUNTIME_PROFILER_STOP)
            if entering =>
        {
            session::switched(false);
        }
        _ => {}
    }
}

/// The result of a call that returns.
#[inline]
fn result(data: &CallbackData) -> u32 {
    if data.function_return_value.is_null() {
        return 0;
    }
    // SAFETY: at the exit of a call CUPTI points this at the call's CUresult or cudaError_t, both C enums.
    unsafe { data.function_return_value.cast::<u32>().read() }
}

/// True if the call asks for zero bytes of work.
#[inline]
fn is_empty(call: &DriverCall, data: &CallbackData) -> bool {
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

/// A C string of CUPTI's that lives as long as the callback runs: a function's name, a launch's symbol, a message.
fn text<'a>(string: *const c_char) -> Option<&'a str> {
    if string.is_null() {
        return None;
    }
    // SAFETY: every caller gives a member that CUPTI documents as a string in the callback at hand: such end in a NUL and
    // live at least until that callback returns, which is as long as the values of this module are lent.
    let string = unsafe { CStr::from_ptr(string) };
    string.to_str().ok()
}

fn hand_on(state: State, domain: u32, id: u32, data: &CallbackData) {
    callbacks::dispatch(state, domain, id, || {
        let entering = data.callback_site == API_ENTER;
        let kept = if data.correlation_data.is_null() {
            None
        } else {
            // SAFETY: CUPTI keeps a u64 there for this call alone, from its enter to its exit, and this thread alone
            // makes the call; a Cell has the layout of what it holds.
            Some(unsafe { &*data.correlation_data.cast::<Cell<u64>>() })
        };
        let class = if domain == DOMAIN_DRIVER_API {
            DriverFunction(id).class()
        } else {
            RuntimeFunction(id).class()
        };
        // Of other calls nobody says what stands there.
        let symbol = if class == CallClass::KernelLaunch { text(data.symbol_name) } else { None };
        let call = ApiCall {
            site: if entering { Site::Enter } else { Site::Exit },
            id,
            name: text(data.function_name).unwrap_or_default(),
            symbol,
            correlation_id: data.correlation_id,
            context_id: data.context_uid,
            result: (!entering).then(|| result(data)),
            kept,
        };
        if domain == DOMAIN_DRIVER_API { Callback::Driver(call) } else { Callback::Runtime(call) }
    });
}

/// Everything but API calls: all of it is rare.
#[cold]
fn event(state: State, domain: u32, id: u32, data: *const c_void) {
    match domain {
        DOMAIN_RESOURCE => {
            // SAFETY: in this domain CUPTI passes a CUpti_ResourceData that lives until we return.
            resource(state, id, unsafe { &*data.cast::<ResourceData>() });
        }
        DOMAIN_SYNCHRONIZE => callbacks::dispatch(state, domain, id, || {
            // SAFETY: in this domain CUPTI passes a CUpti_SynchronizeData that lives until we return.
            let data = unsafe { &*data.cast::<SynchronizeData>() };
            Callback::Synchronize(Synchronized {
                stream_id: if id == SYNCHRONIZE_STREAM {
                    stream_id(data.context, data.stream)
                } else {
                    None
                },
                context_id: context_id(data.context),
            })
        }),
        DOMAIN_NVTX => callbacks::dispatch(state, domain, id, || {
            // SAFETY: in this domain CUPTI passes a CUpti_NvtxData that lives until we return.
            let data = unsafe { &*data.cast::<NvtxData>() };
            Callback::Nvtx(NvtxCall { id, name: text(data.function_name).unwrap_or_default() })
        }),
        DOMAIN_STATE => callbacks::dispatch(state, domain, id, || {
            // SAFETY: in this domain CUPTI passes a CUpti_StateData that lives until we return.
            let data = unsafe { &*data.cast::<StateData>() };
            Callback::State(StateNotice { id, code: data.result.0, message: text(data.message) })
        }),
        _ => {}
    }
}

fn resource(state: State, id: u32, data: &ResourceData) {
    if id == RESOURCE_GRAPHNODE_CREATED {
        calls::node_created(state);
    }
    let graph = match id {
        RESOURCE_GRAPH_CREATED..=RESOURCE_GRAPHNODE_CLONED
        | RESOURCE_GRAPH_NODE_UPDATED
        | RESOURCE_GRAPH_NODE_SET_PARAMS
            if !data.descriptor.is_null() =>
        {
            // SAFETY: for the events of graphs and nodes CUPTI points the descriptor at a CUpti_GraphData.
            Some(unsafe { &*data.descriptor.cast::<GraphData>() })
        }
        _ => None,
    };
    if let (true, Some(kind), Some(graph)) = (state.has(GRAPHS), graph_event_kind(id), graph) {
        let ids = graph_ids(graph);
        let event = GraphEvent {
            kind,
            at_ns: 0,
            word: 0,
            call: 0,
            graph: ids.graph,
            original_graph: ids.original_graph,
            node: ids.node,
            original_node: ids.original_node,
            node_type: ids.node_type,
            exec: ids.exec,
        };
        calls::graph_event(state, event);
    }
    if state.has(HANDLER) {
        callbacks::dispatch(state, DOMAIN_RESOURCE, id, || {
            Callback::Resource(Resource {
                kind: ResourceKind(id),
                context_id: context_id(data.context),
                stream_id: match id {
                    RESOURCE_STREAM_CREATED
                    | RESOURCE_STREAM_DESTROY_STARTING
                    | RESOURCE_STREAM_ATTRIBUTE_CHANGED => stream_id(data.context, data.stream),
                    _ => None,
                },
                module: module(id, data),
                graph: graph.map(graph_ids),
            })
        });
    }
}

fn module<'a>(id: u32, data: &'a ResourceData) -> Option<Module<'a>> {
    if !(RESOURCE_MODULE_LOADED..=RESOURCE_MODULE_PROFILED).contains(&id)
        || data.descriptor.is_null()
    {
        return None;
    }
    // SAFETY: for the events of modules CUPTI points the descriptor at a CUpti_ModuleResourceData.
    let module = unsafe { &*data.descriptor.cast::<ModuleData>() };
    let cubin = if module.cubin.is_null() {
        &[][..]
    } else {
        // SAFETY: the image has this many bytes and stays until the callback returns, as CUPTI's documentation says.
        unsafe { std::slice::from_raw_parts(module.cubin, module.cubin_size) }
    };
    Some(Module { id: module.module_id, cubin })
}

fn graph_event_kind(id: u32) -> Option<GraphEventKind> {
    Some(match id {
        RESOURCE_GRAPH_CREATED => GraphEventKind::GraphCreated,
        RESOURCE_GRAPH_DESTROY_STARTING => GraphEventKind::GraphDestroyed,
        RESOURCE_GRAPH_CLONED => GraphEventKind::GraphCloned,
        RESOURCE_GRAPHNODE_CREATED => GraphEventKind::NodeCreated,
        RESOURCE_GRAPHNODE_DESTROY_STARTING => GraphEventKind::NodeDestroyed,
        RESOURCE_GRAPHNODE_CLONED => GraphEventKind::NodeCloned,
        RESOURCE_GRAPHEXEC_CREATED => GraphEventKind::ExecCreated,
        RESOURCE_GRAPHEXEC_DESTROY_STARTING => GraphEventKind::ExecDestroyed,
        _ => return None,
    })
}

/// The ids of the handles that the event has. CUPTI allows its id functions in callbacks; where one refuses, the id is
/// 0.
fn graph_ids(data: &GraphData) -> GraphIds {
    let Some(api) = POOL.api() else {
        return GraphIds::default();
    };
    let id = |function: unsafe extern "C" fn(*mut c_void, *mut u32) -> CuptiResult,
              handle: *mut c_void| {
        let mut id = 0;
        if handle.is_null() {
            return 0;
        }
        // SAFETY: CUPTI gave this live handle in the callback we are in; `id` is a live u32.
        let code = unsafe { function(handle, &mut id) };
        if code == CuptiResult::SUCCESS { id } else { 0 }
    };
    let node_id = |handle: *mut c_void| {
        let mut id = 0;
        if handle.is_null() {
            return 0;
        }
        // SAFETY: CUPTI gave this live handle in the callback we are in; `id` is a live u64.
        let code = unsafe { (api.get_graph_node_id)(handle, &mut id) };
        if code == CuptiResult::SUCCESS { id } else { 0 }
    };
    GraphIds {
        graph: id(api.get_graph_id, data.graph),
        original_graph: id(api.get_graph_id, data.original_graph),
        node: node_id(data.node),
        original_node: node_id(data.original_node),
        node_type: data.node_type,
        exec: api.get_graph_exec_id.map_or(0, |function| id(function, data.graph_exec)),
    }
}

fn context_id(context: *mut c_void) -> Option<u32> {
    let api = POOL.api().filter(|_| !context.is_null())?;
    let mut id = 0;
    // SAFETY: CUPTI gave this live context in the callback we are in; `id` is a live u32.
    let code = unsafe { (api.get_context_id)(context, &mut id) };
    (code == CuptiResult::SUCCESS).then_some(id)
}

fn stream_id(context: *mut c_void, stream: *mut c_void) -> Option<u32> {
    let api = POOL.api().filter(|_| !context.is_null())?;
    let mut id = 0;
    // SAFETY: CUPTI gave this live context and stream in the callback we are in; a null stream is the default one; `id`
    // is a live u32.
    let code = unsafe { (api.get_stream_id)(context, stream, 0, &mut id) };
    (code == CuptiResult::SUCCESS).then_some(id)
}
