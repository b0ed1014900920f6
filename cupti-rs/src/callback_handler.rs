//! Callbacks for the program's own handler: calls of both APIs, resources, waits, NVTX, and notices
//! of CUPTI itself.
//!
//! CUPTI has one subscriber, which the call log needs; a handler shares it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::accessors::getters;
use crate::call_class::CallClass;
use crate::collection_state::{Epoch, State};
pub use crate::sys::abi::ResourceKind;
use crate::sys::abi::*;
use crate::sys::functions::*;

type Handle = dyn Fn(&Callback<'_>) + Send + Sync;

/// The callbacks that a program handles, and its handler.
///
/// ```
/// use cupti::{Callback, Callbacks, CallClass};
///
/// let callbacks = Callbacks::new(|callback| {
///     if let Callback::Driver(call) = callback {
///         // count, or set a flag: quickly, without CUDA and without CUPTI
///         let _ = (call.site(), call.name(), call.symbol());
///     }
/// })
/// .driver_class(CallClass::KernelLaunch)
/// .contexts();
/// # let _ = callbacks;
/// ```
///
/// The handler runs on the thread of the call or event, inside it, and the program waits: it must
/// be quick. It must not call CUDA, nor CUPTI through this crate, nor wait for a thread that calls
/// either. It does not receive callbacks that it causes itself; these are counted
/// ([`Losses::missed_callbacks`](crate::Losses::missed_callbacks)). A panic in it is caught and
/// counted ([`Losses::handler_panics`](crate::Losses::handler_panics)). It is called while the
/// collection is on, not in a pause. For a call under way when the collection begins, it receives
/// at most the exit. This crate makes no CUDA call while it collects.
///
/// A callback costs the handler's own time, a check of the enabled ids, and CUPTI's own overhead:
/// some 100 ns on an H200. [`driver_all`](Self::driver_all) includes very frequent calls.
#[must_use]
pub struct Callbacks {
    wanted: Vec<Wanted>,
    handle: Arc<Handle>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    /// A domain's function of this name, in all its versions.
    Named(u32, String),
    Known(Enabled),
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callbacks").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

impl Clone for Callbacks {
    fn clone(&self) -> Self {
        Self { wanted: self.wanted.clone(), handle: self.handle.clone() }
    }
}

impl Callbacks {
    /// Creates a set without callbacks for this handler.
    pub fn new(handler: impl Fn(&Callback<'_>) + Send + Sync + 'static) -> Self {
        Self { wanted: Vec::new(), handle: Arc::new(handler) }
    }

    fn with_known(mut self, known: impl IntoIterator<Item = Enabled>) -> Self {
        self.wanted.extend(known.into_iter().map(Wanted::Known));
        self
    }

    fn named(mut self, domain: u32, name: impl Into<String>) -> Self {
        self.wanted.push(Wanted::Named(domain, name.into()));
        self
    }

    /// The driver function of this name, with all its versions and variants: `cuMemAlloc` includes
    /// `cuMemAlloc_v2`, `cuLaunchKernel` includes `cuLaunchKernel_ptsz`. The start fails if the
    /// library has none.
    pub fn driver(self, name: impl Into<String>) -> Self {
        self.named(DOMAIN_DRIVER_API, name)
    }

    /// All recorded driver functions of this class.
    pub fn driver_class(self, class: CallClass) -> Self {
        let of_class = DRIVER_CALLS.iter().filter(move |call| call.class == class);
        self.with_known(of_class.map(|call| Enabled::Id(DOMAIN_DRIVER_API, call.id)))
    }

    /// Every driver function.
    pub fn driver_all(self) -> Self {
        self.with_known([Enabled::Domain(DOMAIN_DRIVER_API)])
    }

    /// The function of the runtime API of this name, with all its versions and variants, as in
    /// [`driver`](Self::driver).
    pub fn runtime(self, name: impl Into<String>) -> Self {
        self.named(DOMAIN_RUNTIME_API, name)
    }

    /// All functions of the runtime API of this class.
    pub fn runtime_class(self, class: CallClass) -> Self {
        let of_class = RUNTIME_CALLS.iter().filter(move |call| call.class == class);
        self.with_known(of_class.map(|call| Enabled::Id(DOMAIN_RUNTIME_API, call.id)))
    }

    /// Every function of the runtime API.
    pub fn runtime_all(self) -> Self {
        self.with_known([Enabled::Domain(DOMAIN_RUNTIME_API)])
    }

    /// `cudaProfilerStart` and `cudaProfilerStop`, and the driver's functions of these names.
    pub fn profiler(self) -> Self {
        self.with_known(SWITCH)
    }

    fn resources(self, ids: &[u32]) -> Self {
        self.with_known(ids.iter().map(|&id| Enabled::Id(DOMAIN_RESOURCE, id)))
    }

    /// Contexts: created, and about to be destroyed.
    pub fn contexts(self) -> Self {
        self.resources(&[RESOURCE_CONTEXT_CREATED, RESOURCE_CONTEXT_DESTROY_STARTING])
    }

    /// Streams: created, about to be destroyed, an attribute changed (12.2+).
    pub fn streams(self) -> Self {
        self.resources(&[
            RESOURCE_STREAM_CREATED,
            RESOURCE_STREAM_DESTROY_STARTING,
            RESOURCE_STREAM_ATTRIBUTE_CHANGED,
        ])
    }

    /// Modules: loaded, about to be unloaded, instrumented by CUPTI.
    pub fn modules(self) -> Self {
        self.resources(&[
            RESOURCE_MODULE_LOADED,
            RESOURCE_MODULE_UNLOAD_STARTING,
            RESOURCE_MODULE_PROFILED,
        ])
    }

    /// Graphs and executable graphs: created, copied, about to be destroyed.
    pub fn graphs(self) -> Self {
        self.resources(&[
            RESOURCE_GRAPH_CREATED,
            RESOURCE_GRAPH_DESTROY_STARTING,
            RESOURCE_GRAPH_CLONED,
            RESOURCE_GRAPHEXEC_CREATE_STARTING,
            RESOURCE_GRAPHEXEC_CREATED,
            RESOURCE_GRAPHEXEC_DESTROY_STARTING,
        ])
    }

    /// Nodes of graphs: created, copied, about to be destroyed; updated and given parameters
    /// (13.0+).
    pub fn graph_nodes(self) -> Self {
        self.resources(&[
            RESOURCE_GRAPHNODE_CREATE_STARTING,
            RESOURCE_GRAPHNODE_CREATED,
            RESOURCE_GRAPHNODE_DESTROY_STARTING,
            RESOURCE_GRAPHNODE_CLONED,
            RESOURCE_GRAPH_NODE_UPDATED,
            RESOURCE_GRAPH_NODE_SET_PARAMS,
        ])
    }

    /// Dependencies between nodes of graphs: made, about to be removed.
    pub fn graph_dependencies(self) -> Self {
        self.resources(&[
            RESOURCE_GRAPHNODE_DEPENDENCY_CREATED,
            RESOURCE_GRAPHNODE_DEPENDENCY_DESTROY_STARTING,
        ])
    }

    /// Waits of the host for streams and contexts that have ended.
    pub fn synchronize(self) -> Self {
        self.with_known([
            Enabled::Id(DOMAIN_SYNCHRONIZE, SYNCHRONIZE_STREAM),
            Enabled::Id(DOMAIN_SYNCHRONIZE, SYNCHRONIZE_CONTEXT),
        ])
    }

    /// Calls of NVTX, in the libraries of the process for which libcupti is NVTX's tool
    /// (`NVTX_INJECTION64_PATH` names it). Elsewhere there are none.
    pub fn nvtx(self) -> Self {
        self.with_known([Enabled::Domain(DOMAIN_NVTX)])
    }

    /// Errors and warnings of CUPTI itself (12.2+; an older library reports none).
    pub fn state(self) -> Self {
        self.with_known([Enabled::Domain(DOMAIN_STATE)])
    }

    /// Returns the callbacks to enable in the library, and the handler with its own ones. `named`
    /// finds a name's ids.
    pub(crate) fn resolve<E>(
        &self,
        mut named: impl FnMut(u32, &str) -> Result<Vec<u32>, E>,
    ) -> Result<(Vec<Enabled>, Arc<Handler>), E> {
        let mut enabled = Vec::new();
        for wanted in &self.wanted {
            match wanted {
                Wanted::Named(domain, name) => {
                    let ids = named(*domain, name)?;
                    enabled.extend(ids.into_iter().map(|id| Enabled::Id(*domain, id)));
                }
                Wanted::Known(known) => enabled.push(*known),
            }
        }
        let mut filter = Filter::default();
        enabled.iter().for_each(|enabled| filter.add(*enabled));
        let (panics, missed) = Default::default();
        let handler = Handler { handle: self.handle.clone(), filter, panics, missed };
        Ok((enabled, Arc::new(handler)))
    }
}

/// A callback to enable in CUPTI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Enabled {
    /// One callback id of a domain.
    Id(u32, u32),
    /// A whole domain.
    Domain(u32),
}

/// The callbacks of the profiler switch, `cudaProfilerStart` and `cudaProfilerStop`.
pub(crate) const SWITCH: [Enabled; 4] = [
    Enabled::Id(DOMAIN_DRIVER_API, DRIVER_PROFILER_START),
    Enabled::Id(DOMAIN_DRIVER_API, DRIVER_PROFILER_STOP),
    Enabled::Id(DOMAIN_RUNTIME_API, RUNTIME_PROFILER_START),
    Enabled::Id(DOMAIN_RUNTIME_API, RUNTIME_PROFILER_STOP),
];

/// The handler's callbacks, by domain: the call log enables others, which the handler does not
/// receive.
#[derive(Debug, Default)]
struct Filter {
    /// Whole domains, one bit each.
    domains: u64,
    /// Ids below 1,024, which suffices for every domain; NVTX and notices are enabled as whole
    /// domains.
    ids: [[u64; 16]; 5],
}

impl Filter {
    fn add(&mut self, enabled: Enabled) {
        match enabled {
            Enabled::Domain(domain) => self.domains |= 1 << domain,
            Enabled::Id(domain, id) => {
                if let Some(bits) = self.place(domain, id) {
                    *bits |= 1 << (id % 64);
                }
            }
        }
    }

    fn place(&mut self, domain: u32, id: u32) -> Option<&mut u64> {
        self.ids.get_mut(domain as usize)?.get_mut(id as usize / 64)
    }

    fn wants(&self, domain: u32, id: u32) -> bool {
        let bits = self.ids.get(domain as usize).and_then(|ids| ids.get(id as usize / 64));
        self.domains & 1 << domain != 0 || bits.is_some_and(|bits| bits & 1 << (id % 64) != 0)
    }
}

/// A collection's handler. The collector owns it, so that it is dropped with the collection, unless
/// a callback is running it.
pub(crate) struct Handler {
    handle: Arc<Handle>,
    filter: Filter,
    panics: AtomicU64,
    missed: AtomicU64,
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handler").field("panics", &self.panics).finish_non_exhaustive()
    }
}

impl Handler {
    /// Panics of the handler that were caught.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Callbacks that the handler did not receive because it was already running on their thread.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

/// The current collection's handler. Each thread copies it once a collection.
static CURRENT: Mutex<Weak<Handler>> = Mutex::new(Weak::new());

thread_local! {
    static OWN: RefCell<(Epoch, Weak<Handler>)> = const { RefCell::new((Epoch::NONE, Weak::new())) };
    /// True while this thread runs the handler, whose own calls are not the program's.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn install(handler: &Arc<Handler>) {
    *CURRENT.lock() = Arc::downgrade(handler);
}

/// This thread's copy of the current collection's handler. Without a copy, for example when the
/// locals of an ending thread are gone, the handler is read under the lock.
fn current(state: State) -> Option<Arc<Handler>> {
    let own = OWN.try_with(|own| {
        let mut own = own.try_borrow_mut().ok()?;
        if !own.0.same_collection(state.epoch()) {
            *own = (state.epoch(), CURRENT.lock().clone());
        }
        Some(own.1.upgrade())
    });
    match own {
        Ok(Some(handler)) => handler,
        _ => CURRENT.lock().upgrade(),
    }
}

/// Calls the handler with the result of `make`, if this callback is one of its own.
pub(crate) fn dispatch<'a>(
    state: State,
    domain: u32,
    id: u32,
    make: impl FnOnce() -> Callback<'a>,
) {
    let wants = |handler: &Arc<Handler>| handler.filter.wants(domain, id);
    let Some(handler) = current(state).filter(wants) else { return };
    // A constant without a destructor: it exists until the thread is gone.
    if INSIDE.try_with(|inside| inside.replace(true)) != Ok(false) {
        handler.missed.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| (handler.handle)(&make())));
    let _ = INSIDE.try_with(|inside| inside.set(false));
    if let Err(panic) = outcome {
        handler.panics.fetch_add(1, Ordering::Relaxed);
        // Its drop might panic again.
        std::mem::forget(panic);
    }
}

/// A callback as the handler receives it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Callback<'a> {
    /// A driver call begins or ends.
    Driver(ApiCall<'a>),
    /// A call of the runtime API begins or ends.
    Runtime(ApiCall<'a>),
    /// A context, stream, module, graph or node.
    Resource(Resource<'a>),
    /// A wait of the host for a stream or a context has ended.
    Synchronize(Synchronized),
    /// NVTX was called.
    Nvtx(NvtxCall<'a>),
    /// CUPTI reports an error or warning of its own.
    State(StateNotice<'a>),
}

/// The position of a callback in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Site {
    /// Before the function does its work.
    Enter,
    /// After the function has done its work.
    Exit,
}

/// A call of one of CUDA's APIs.
#[derive(Debug)]
pub struct ApiCall<'a> {
    pub(crate) site: Site,
    pub(crate) id: u32,
    pub(crate) name: &'a str,
    pub(crate) symbol: Option<&'a str>,
    pub(crate) correlation_id: u32,
    pub(crate) context_id: u32,
    pub(crate) result: Option<u32>,
    pub(crate) kept: Option<&'a Cell<u64>>,
}

impl<'a> ApiCall<'a> {
    getters! {
        /// The position in the call: its begin or its end.
        site: Site = site;
        /// CUPTI's callback id, as in [`DriverFunction`](crate::DriverFunction) or
        /// [`RuntimeFunction`](crate::RuntimeFunction).
        id: u32 = id;
        /// The function's name in CUPTI.
        name: &'a str = name;
        /// The name of the kernel, for calls that launch one, as the compiler mangled it.
        symbol: Option<&'a str> = symbol;
        /// The id in the activity records of its work.
        correlation_id: u32 = correlation_id;
        /// The current context's id, as in activity records.
        context_id: u32 = context_id;
        /// The `CUresult` or `cudaError_t` at the end: 0 is success. `None` at the begin.
        result: Option<u32> = result;
    }

    /// The number that [`store_value`](Self::store_value) stored when this call began; 0 if none.
    pub fn stored_value(&self) -> u64 {
        self.kept.map_or(0, Cell::get)
    }

    /// Stores a number for the end of this call. CUPTI holds it.
    pub fn store_value(&self, value: u64) {
        if let Some(kept) = self.kept {
            kept.set(value);
        }
    }
}

/// An event of a resource.
#[derive(Debug)]
#[non_exhaustive]
pub struct Resource<'a> {
    /// The kind of the event.
    pub kind: ResourceKind,
    /// The context, by its id in activity records.
    pub context_id: Option<u32>,
    /// The stream, for events of streams.
    pub stream_id: Option<u32>,
    /// The module, for events of modules.
    pub module: Option<Module<'a>>,
    /// Graph, node and executable graph, for events of graphs.
    pub graph: Option<GraphIds>,
}

/// A loaded module.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Module<'a> {
    /// Its id, as in activity records.
    pub id: u32,
    /// Its image; empty where CUPTI has none.
    pub cubin: &'a [u8],
}

/// The ids of a graph event. An id that the event does not have, or that CUPTI did not set, is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct GraphIds {
    /// The graph.
    pub graph: u32,
    /// The graph it was copied from.
    pub original_graph: u32,
    /// The node.
    pub node: u64,
    /// The node it was copied from.
    pub original_node: u64,
    /// The other node of a dependency. CUPTI does not document which of the two waits.
    pub dependency: u64,
    /// `CUgraphNodeType` of the node.
    pub node_type: u32,
    /// The executable graph (12.3+).
    pub exec: u32,
}

/// A wait of the host that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Synchronized {
    /// The context, by its id in activity records.
    pub context_id: Option<u32>,
    /// The stream that was waited for; `None` if the wait was for the whole context.
    pub stream_id: Option<u32>,
}

/// A call of NVTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct NvtxCall<'a> {
    /// CUPTI's id of the function (`CUpti_nvtx_api_trace_cbid`).
    pub id: u32,
    /// Its name, such as `nvtxRangePushEx`.
    pub name: &'a str,
}

/// An error or warning of CUPTI itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateNotice<'a> {
    /// `CUpti_CallbackIdState`: 1 is a fatal error, 2 an error, 3 a warning.
    pub id: u32,
    /// CUPTI's result code.
    pub code: u32,
    /// The text.
    pub message: Option<&'a str>,
}
