//! The C side of the stand-in: the functions of the table, and the state behind them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::counters;
use super::faults::{self, faulty};
use super::work::Work;
use super::written::Written;
use crate::call_class::CallClass;
use crate::callbacks::GraphIds;
use crate::calls::{DriverFunction, RuntimeFunction};
use crate::kind::ActivityKind;
use crate::sys::abi::*;
use crate::sys::api::Api;
use crate::sys::callback_ids::*;
use crate::sys::generated::DRIVER_CALLS;
use crate::sys::os;
use crate::sys::strides::stride_of_kind;
use crate::version::Version;

pub(super) static STATE: Mutex<State> = Mutex::new(State::new());
/// Apart from the state, since `get_next_record` is called from within callbacks.
static VERSION: AtomicU32 = AtomicU32::new(0);
/// The id of a kind that this stand-in writes at any length; its iterator steps over it by the length it was written in.
static ODD_LENGTHS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
/// Whether there ever was an id of the program's own: every call asks.
static ANY_EXTERNAL_ID: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
pub(super) struct State {
    pub(super) holder: Option<String>,
    pub(super) clock_offset: i64,
    pub(super) subscribed: bool,
    callback: Option<CallbackFunc>,
    pub(super) callback_ids: BTreeSet<(u32, u32)>,
    pub(super) domains: BTreeSet<u32>,
    requested: Option<BufferRequested>,
    completed: Option<BufferCompleted>,
    pub(super) kinds: BTreeSet<u32>,
    /// Functions of the driver and the runtime API that have records of their own, or none: by domain and id.
    pub(super) apis: BTreeMap<(u32, u32), bool>,
    /// The counters of managed memory that are on.
    pub(super) unified_memory: BTreeSet<u32>,
    pub(super) attributes: BTreeMap<u32, u64>,
    pub(super) thread_id_type: u32,
    pub(super) flush_period: u32,
    pub(super) latency_timestamps: bool,
    pub(super) launch_attributes: bool,
    buffer: Option<Buffer>,
    /// Full buffers that are not given back yet.
    held: Vec<Buffer>,
    pub(super) holds: bool,
    /// Bytes that the next buffer says to have fewer than were written.
    pub(super) cut: usize,
    pub(super) busy_until: Option<Instant>,
    pub(super) flush_takes: Duration,
    pub(super) flushes: u64,
    pub(super) dropped: usize,
    pub(super) timestamps_lost: bool,
    /// A library that cannot take no buffer got none.
    pub(super) crashed: bool,
    pub(super) correlation: u32,
    streams: Option<HashMap<u32, u64>>,
    /// Ids of the program's own, by thread and kind.
    external_ids: BTreeMap<(u32, u32), Vec<u64>>,
}

#[derive(Debug, Clone, Copy)]
struct Buffer {
    address: usize,
    size: usize,
    used: usize,
}

impl State {
    const fn new() -> Self {
        Self {
            holder: None,
            clock_offset: 0,
            subscribed: false,
            callback: None,
            callback_ids: BTreeSet::new(),
            domains: BTreeSet::new(),
            requested: None,
            completed: None,
            kinds: BTreeSet::new(),
            apis: BTreeMap::new(),
            unified_memory: BTreeSet::new(),
            attributes: BTreeMap::new(),
            thread_id_type: 0,
            flush_period: 0,
            latency_timestamps: false,
            launch_attributes: false,
            buffer: None,
            held: Vec::new(),
            holds: false,
            cut: 0,
            busy_until: None,
            flush_takes: Duration::ZERO,
            flushes: 0,
            dropped: 0,
            timestamps_lost: false,
            crashed: false,
            correlation: 0,
            streams: None,
            external_ids: BTreeMap::new(),
        }
    }

    fn now(&self) -> u64 {
        os::monotonic_ns().wrapping_add_signed(self.clock_offset)
    }
}

/// What the attributes are when CUPTI begins: (number, bytes of the value, value, first release that has it).
const ATTRIBUTES: [(u32, usize, u64, (u32, u32)); 7] = [
    (0, 8, 3_200_000, (12, 0)),
    (2, 8, 250, (12, 0)),
    (ATTR_ZEROED_OUT_ACTIVITY_BUFFER, 1, 0, (12, 0)),
    (6, 8, 3, (12, 0)),
    (8, 1, 0, (12, 0)),
    (9, 1, 1, (12, 3)),
    (10, 8, 16 << 20, (12, 9)),
];

pub(super) fn version() -> Version {
    Version(VERSION.load(Ordering::Relaxed))
}

/// Another library takes the place of the present one, whose buffers come back: who gave them could never free them.
pub(super) fn reset(version: u32, state: State) {
    give_all_back();
    VERSION.store(version, Ordering::Relaxed);
    ODD_LENGTHS.lock().clear();
    faults::clear();
    ANY_EXTERNAL_ID.store(false, Ordering::Release);
    counters::reset();
    *STATE.lock() = state;
}

/// The state of a library that nobody used yet.
pub(super) fn fresh(holder: Option<String>, clock_offset: i64, version: Version) -> State {
    let release = version.cuda_release();
    let known = ATTRIBUTES.iter().filter(|(.., since)| *since <= release);
    let mut attributes: BTreeMap<u32, u64> = known.map(|&(id, _, value, _)| (id, value)).collect();
    if release < (13, 0) {
        attributes.entry(9).and_modify(|per_thread| *per_thread = 0);
    }
    State { holder, clock_offset, attributes, ..State::new() }
}

pub(super) fn table() -> Api {
    let release = version().cuda_release();
    Api {
        get_version,
        subscribe,
        unsubscribe,
        enable_callback,
        enable_domain,
        get_callback_name,
        get_timestamp,
        register_callbacks,
        get_attribute,
        set_attribute,
        enable,
        disable,
        flush_all,
        flush_period,
        enable_latency_timestamps,
        enable_launch_attributes,
        get_thread_id_type,
        set_thread_id_type,
        get_next_record,
        get_num_dropped_records,
        get_context_id,
        get_stream_id,
        get_graph_id,
        get_graph_node_id,
        subscribe_v2: (release >= (13, 0)).then_some(subscribe_v2 as _),
        get_graph_exec_id: (release >= (12, 3)).then_some(get_graph_exec_id as _),
        enable_driver_api: (release >= (12, 5)).then_some(enable_driver_api as _),
        enable_runtime_api: (release >= (12, 5)).then_some(enable_runtime_api as _),
        push_external_id: Some(push_external_id),
        pop_external_id: Some(pop_external_id),
        configure_unified_memory: Some(configure_unified_memory),
        host: (release >= (12, 6)).then_some(counters::HOST),
        range: (release >= (12, 6)).then_some(counters::RANGE),
        sampling: (release >= (12, 6)).then_some(counters::SAMPLING),
        contexts: counters::contexts,
        hw_trace: release >= (12, 8),
        records_v2: release >= (13, 2),
        multiple_subscribers: release >= (13, 3),
    }
}

unsafe extern "C" fn get_version(version: *mut u32) -> CuptiResult {
    faulty!("cuptiGetVersion");
    // SAFETY: the caller passes a live u32.
    unsafe { version.write(VERSION.load(Ordering::Relaxed)) };
    CuptiResult::SUCCESS
}

unsafe extern "C" fn subscribe(
    handle: *mut SubscriberHandle,
    callback: CallbackFunc,
    _userdata: *mut c_void,
) -> CuptiResult {
    faulty!("cuptiSubscribe");
    let mut state = STATE.lock();
    if state.subscribed || state.holder.is_some() {
        return CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    state.subscribed = true;
    state.callback = Some(callback);
    // SAFETY: the caller passes a live place.
    unsafe { handle.write(std::ptr::dangling_mut()) };
    CuptiResult::SUCCESS
}

unsafe extern "C" fn subscribe_v2(
    handle: *mut SubscriberHandle,
    callback: CallbackFunc,
    userdata: *mut c_void,
    params: *mut SubscriberParams,
) -> CuptiResult {
    faulty!("cuptiSubscribe_v2");
    // SAFETY: the caller's own arguments.
    let code = unsafe { subscribe(handle, callback, userdata) };
    if code == CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED {
        let holder =
            STATE.lock().holder.clone().unwrap_or_else(|| "CUPTI for <not provided>".into());
        // SAFETY: the caller passes live parameters.
        let params = unsafe { &*params };
        let length = holder.len().min(params.old_subscriber_size.saturating_sub(1));
        // SAFETY: the caller's buffer has `old_subscriber_size` bytes, more than `length`.
        let name = unsafe {
            std::slice::from_raw_parts_mut(params.old_subscriber_name.cast::<u8>(), length + 1)
        };
        name[..length].copy_from_slice(&holder.as_bytes()[..length]);
        name[length] = 0;
    }
    code
}

unsafe extern "C" fn unsubscribe(_handle: SubscriberHandle) -> CuptiResult {
    faulty!("cuptiUnsubscribe");
    let mut state = STATE.lock();
    state.subscribed = false;
    state.callback = None;
    state.callback_ids.clear();
    CuptiResult::SUCCESS
}

/// Whether a library of this version has the callback id. The driver domain of 13.0 has 807 ids.
fn has_id(domain: u32, id: u32) -> bool {
    let release = version().cuda_release();
    match domain {
        DOMAIN_DRIVER_API => id < if release >= (13, 1) { 877 } else { 807 },
        DOMAIN_RUNTIME_API => id < 567,
        DOMAIN_RESOURCE if release >= (13, 0) => id < 24,
        DOMAIN_RESOURCE => id < if release >= (12, 2) { 22 } else { 21 },
        DOMAIN_SYNCHRONIZE => id < 3,
        DOMAIN_NVTX => id < 50,
        DOMAIN_STATE => id < 4 && release >= (12, 2),
        _ => false,
    }
}

unsafe extern "C" fn enable_callback(
    on: u32,
    _handle: SubscriberHandle,
    domain: u32,
    id: u32,
) -> CuptiResult {
    faulty!("cuptiEnableCallback");
    if !has_id(domain, id) {
        return CuptiResult::INVALID_PARAMETER;
    }
    let mut state = STATE.lock();
    if on == 0 {
        state.callback_ids.remove(&(domain, id));
    } else {
        state.callback_ids.insert((domain, id));
    }
    CuptiResult::SUCCESS
}

unsafe extern "C" fn enable_domain(on: u32, _handle: SubscriberHandle, domain: u32) -> CuptiResult {
    faulty!("cuptiEnableDomain");
    if !has_id(domain, 1) {
        return CuptiResult::INVALID_PARAMETER;
    }
    let mut state = STATE.lock();
    if on == 0 {
        state.domains.remove(&domain);
        state.callback_ids.retain(|(other, _)| *other != domain);
    } else {
        state.domains.insert(domain);
    }
    CuptiResult::SUCCESS
}

/// The names of driver and runtime functions by id; those without a published name have a number.
fn names(domain: u32) -> &'static [CString] {
    static NAMES: LazyLock<[Vec<CString>; 2]> = LazyLock::new(|| {
        let name = |known: Option<&str>, prefix: &str, id: u32| {
            CString::new(known.map_or_else(|| format!("{prefix}{id:03}"), str::to_owned))
                .unwrap_or_default()
        };
        let driver = |id| match id {
            DRIVER_PROFILER_START => Some("cuProfilerStart"),
            DRIVER_PROFILER_STOP => Some("cuProfilerStop"),
            _ => DRIVER_CALLS.iter().find(|call| call.id == id).map(|call| call.name),
        };
        let runtime = |id| match id {
            RUNTIME_PROFILER_START => Some("cudaProfilerStart"),
            RUNTIME_PROFILER_STOP => Some("cudaProfilerStop"),
            _ => RUNTIME_CALLS.iter().find(|call| call.id == id).map(|call| call.name),
        };
        [
            (0..877).map(|id| name(driver(id), "cu", id)).collect(),
            (0..567).map(|id| name(runtime(id), "cuda", id)).collect(),
        ]
    });
    match domain {
        DOMAIN_DRIVER_API => &NAMES[0],
        DOMAIN_RUNTIME_API => &NAMES[1],
        _ => &[],
    }
}

unsafe extern "C" fn get_callback_name(
    domain: u32,
    id: u32,
    name: *mut *const c_char,
) -> CuptiResult {
    faulty!("cuptiGetCallbackName");
    let known = names(domain).get(id as usize).filter(|_| has_id(domain, id));
    let Some(known) = known else { return CuptiResult::INVALID_PARAMETER };
    // SAFETY: the caller passes a live place.
    unsafe { name.write(known.as_ptr()) };
    CuptiResult::SUCCESS
}

unsafe extern "C" fn get_timestamp(timestamp: *mut u64) -> CuptiResult {
    faulty!("cuptiGetTimestamp");
    let now = STATE.lock().now();
    // SAFETY: the caller passes a live u64.
    unsafe { timestamp.write(now) };
    CuptiResult::SUCCESS
}

unsafe extern "C" fn register_callbacks(
    requested: BufferRequested,
    completed: BufferCompleted,
) -> CuptiResult {
    faulty!("cuptiActivityRegisterCallbacks");
    let mut state = STATE.lock();
    state.requested = Some(requested);
    state.completed = Some(completed);
    CuptiResult::SUCCESS
}

/// How many bytes the attribute's value has, in a library that has it.
fn attribute_bytes(attribute: u32) -> Option<usize> {
    let release = version().cuda_release();
    let known = ATTRIBUTES.iter().find(|(id, .., since)| *id == attribute && *since <= release);
    known.map(|(_, bytes, ..)| *bytes)
}

unsafe extern "C" fn get_attribute(
    attribute: u32,
    size: *mut usize,
    value: *mut c_void,
) -> CuptiResult {
    faulty!("cuptiActivityGetAttribute");
    let Some(bytes) = attribute_bytes(attribute) else { return CuptiResult::INVALID_PARAMETER };
    // SAFETY: the caller passes a live size.
    if unsafe { size.read() } < bytes {
        return CuptiResult::PARAMETER_SIZE_NOT_SUFFICIENT;
    }
    let present = STATE.lock().attributes.get(&attribute).copied().unwrap_or(0).to_ne_bytes();
    // SAFETY: the caller has room for as many bytes as it says, of which these are no more.
    unsafe { std::ptr::copy_nonoverlapping(present.as_ptr(), value.cast(), bytes) };
    CuptiResult::SUCCESS
}

unsafe extern "C" fn set_attribute(
    attribute: u32,
    size: *mut usize,
    value: *mut c_void,
) -> CuptiResult {
    faulty!("cuptiActivitySetAttribute");
    let Some(bytes) = attribute_bytes(attribute) else { return CuptiResult::INVALID_PARAMETER };
    // SAFETY: the caller passes a live size.
    if unsafe { size.read() } < bytes {
        return CuptiResult::PARAMETER_SIZE_NOT_SUFFICIENT;
    }
    let mut new = [0u8; 8];
    // SAFETY: the caller's value has as many bytes as it says, of which these are no more.
    unsafe { std::ptr::copy_nonoverlapping(value.cast(), new.as_mut_ptr(), bytes) };
    STATE.lock().attributes.insert(attribute, u64::from_ne_bytes(new));
    CuptiResult::SUCCESS
}

/// What a library says to a kind that it does not give: as 12.8 and 13.0.1 do. 12.9 says nothing.
fn refusal(kind: u32) -> Option<CuptiResult> {
    let since = match kind {
        36 => (12, 9),
        53 | 54 => (12, 8),
        55 => (12, 9),
        56..=58 => (13, 1),
        59 => (13, 2),
        _ => (12, 0),
    };
    let release = version().cuda_release();
    let is_known = release >= since || release == (12, 9);
    match ActivityKind(kind) {
        ActivityKind::CUDA_EVENT if !is_known => Some(CuptiResult::INVALID_KIND),
        ActivityKind::MODULE => Some(CuptiResult::INVALID_KIND),
        ActivityKind::DEVICE_ATTRIBUTE => Some(CuptiResult::NOT_COMPATIBLE),
        kind if is_known && (kind.name().is_some() || release == (12, 9)) => None,
        _ => Some(CuptiResult::NOT_COMPATIBLE),
    }
}

unsafe extern "C" fn enable(kind: u32) -> CuptiResult {
    faulty!("cuptiActivityEnable");
    if let Some(code) = refusal(kind) {
        return code;
    }
    let mut state = STATE.lock();
    if ActivityKind(kind) == ActivityKind::UNIFIED_MEMORY_COUNTER && state.unified_memory.is_empty()
    {
        return CuptiResult::NOT_READY;
    }
    state.kinds.insert(kind);
    if let Some(domain) = api_domain(kind) {
        state.apis.retain(|(other, _), _| *other != domain);
    }
    CuptiResult::SUCCESS
}

unsafe extern "C" fn disable(kind: u32) -> CuptiResult {
    faulty!("cuptiActivityDisable");
    let mut state = STATE.lock();
    state.kinds.remove(&kind);
    if let Some(domain) = api_domain(kind) {
        state.apis.retain(|(other, _), _| *other != domain);
    }
    CuptiResult::SUCCESS
}

fn api_domain(kind: u32) -> Option<u32> {
    match ActivityKind(kind) {
        ActivityKind::DRIVER => Some(DOMAIN_DRIVER_API),
        ActivityKind::RUNTIME => Some(DOMAIN_RUNTIME_API),
        _ => None,
    }
}

/// Without its kind a function stays as it is, and CUPTI says that all is well.
fn enable_api(kind: ActivityKind, function: (u32, u32), on: bool) -> CuptiResult {
    let mut state = STATE.lock();
    if state.kinds.contains(&kind.0) {
        state.apis.insert(function, on);
    }
    CuptiResult::SUCCESS
}

unsafe extern "C" fn enable_driver_api(id: u32, on: u8) -> CuptiResult {
    faulty!("cuptiActivityEnableDriverApi");
    enable_api(ActivityKind::DRIVER, (DOMAIN_DRIVER_API, id), on != 0)
}

unsafe extern "C" fn enable_runtime_api(id: u32, on: u8) -> CuptiResult {
    faulty!("cuptiActivityEnableRuntimeApi");
    enable_api(ActivityKind::RUNTIME, (DOMAIN_RUNTIME_API, id), on != 0)
}

unsafe extern "C" fn configure_unified_memory(
    configs: *mut UnifiedMemoryCounterConfig,
    count: u32,
) -> CuptiResult {
    faulty!("cuptiActivityConfigureUnifiedMemoryCounter");
    if configs.is_null() || count == 0 {
        return CuptiResult::INVALID_PARAMETER;
    }
    // SAFETY: the caller passes as many live elements as it says.
    let configs = unsafe { std::slice::from_raw_parts(configs, count as usize) };
    let is_valid = |config: &UnifiedMemoryCounterConfig| {
        (1..=2).contains(&config.scope) && (1..=8).contains(&config.kind)
    };
    if !configs.iter().all(is_valid) {
        return CuptiResult::INVALID_PARAMETER;
    }
    let mut state = STATE.lock();
    for config in configs {
        if config.enable == 0 {
            state.unified_memory.remove(&config.kind);
        } else {
            state.unified_memory.insert(config.kind);
        }
    }
    CuptiResult::SUCCESS
}

/// Whether CUPTI knows the kind of an id of the program's own.
fn is_external_kind(kind: u32) -> bool {
    (1..=5).contains(&kind)
}

unsafe extern "C" fn push_external_id(kind: u32, id: u64) -> CuptiResult {
    faulty!("cuptiActivityPushExternalCorrelationId");
    if !is_external_kind(kind) {
        return CuptiResult::INVALID_PARAMETER;
    }
    STATE.lock().external_ids.entry((os::thread_id(), kind)).or_default().push(id);
    ANY_EXTERNAL_ID.store(true, Ordering::Release);
    CuptiResult::SUCCESS
}

unsafe extern "C" fn pop_external_id(kind: u32, last: *mut u64) -> CuptiResult {
    faulty!("cuptiActivityPopExternalCorrelationId");
    if !is_external_kind(kind) {
        return CuptiResult::INVALID_PARAMETER;
    }
    let popped = STATE.lock().external_ids.get_mut(&(os::thread_id(), kind)).and_then(Vec::pop);
    let Some(id) = popped else { return CuptiResult::QUEUE_EMPTY };
    // SAFETY: the caller passes a live u64.
    unsafe { last.write(id) };
    CuptiResult::SUCCESS
}

/// Ties a call to this thread's ids, as CUPTI does for a call that has a record of its own; before 12.8 for those
/// without, too, as long as their kind is on.
fn tie(domain: u32, id: u32, correlation: u32) {
    use crate::sys::generated::external_correlation::*;
    if !ANY_EXTERNAL_ID.load(Ordering::Acquire) {
        return;
    }
    let kind = ActivityKind::EXTERNAL_CORRELATION;
    let api =
        if domain == DOMAIN_DRIVER_API { ActivityKind::DRIVER } else { ActivityKind::RUNTIME };
    let ids: Vec<(u32, u64)> = {
        let state = STATE.lock();
        let filtered_out = state.apis.get(&(domain, id)) == Some(&false);
        let has_record = !filtered_out || version().cuda_release() < (12, 8);
        if !has_record || ![kind, api].iter().all(|kind| state.kinds.contains(&kind.0)) {
            return;
        }
        let thread = os::thread_id();
        let of_thread = state.external_ids.range((thread, 0)..=(thread, u32::MAX));
        of_thread.filter_map(|((_, kind), ids)| Some((*kind, *ids.last()?))).collect()
    };
    for (external, id) in ids {
        let record = Written::new(kind, version()).map(|record| {
            record
                .set(EXTERNAL_KIND, external)
                .set(EXTERNAL_ID, id)
                .set(CORRELATION_ID, correlation)
        });
        if let Some(record) = record {
            write(&record.into_bytes());
        }
    }
}

unsafe extern "C" fn flush_period(milliseconds: u32) -> CuptiResult {
    faulty!("cuptiActivityFlushPeriod");
    STATE.lock().flush_period = milliseconds;
    CuptiResult::SUCCESS
}

unsafe extern "C" fn enable_latency_timestamps(on: u8) -> CuptiResult {
    faulty!("cuptiActivityEnableLatencyTimestamps");
    STATE.lock().latency_timestamps = on != 0;
    CuptiResult::SUCCESS
}

unsafe extern "C" fn enable_launch_attributes(on: u8) -> CuptiResult {
    faulty!("cuptiActivityEnableLaunchAttributes");
    STATE.lock().launch_attributes = on != 0;
    CuptiResult::SUCCESS
}

unsafe extern "C" fn get_thread_id_type(kind: *mut u32) -> CuptiResult {
    faulty!("cuptiGetThreadIdType");
    // SAFETY: the caller passes a live place.
    unsafe { kind.write(STATE.lock().thread_id_type) };
    CuptiResult::SUCCESS
}

unsafe extern "C" fn set_thread_id_type(kind: u32) -> CuptiResult {
    faulty!("cuptiSetThreadIdType");
    STATE.lock().thread_id_type = kind;
    CuptiResult::SUCCESS
}

// The handles of this stand-in are the ids themselves.

unsafe extern "C" fn get_context_id(context: *mut c_void, id: *mut u32) -> CuptiResult {
    faulty!("cuptiGetContextId");
    // SAFETY: the caller passes a live place.
    unsafe { id.write(context as usize as u32) };
    CuptiResult::SUCCESS
}

unsafe extern "C" fn get_stream_id(
    _context: *mut c_void,
    stream: *mut c_void,
    _per_thread: u8,
    id: *mut u32,
) -> CuptiResult {
    faulty!("cuptiGetStreamIdEx");
    // SAFETY: the caller passes a live place.
    unsafe { id.write(stream as usize as u32) };
    CuptiResult::SUCCESS
}

unsafe extern "C" fn get_graph_id(graph: *mut c_void, id: *mut u32) -> CuptiResult {
    faulty!("cuptiGetGraphId");
    // SAFETY: the caller passes a live place.
    unsafe { id.write(graph as usize as u32) };
    CuptiResult::SUCCESS
}

unsafe extern "C" fn get_graph_exec_id(exec: *mut c_void, id: *mut u32) -> CuptiResult {
    faulty!("cuptiGetGraphExecId");
    // SAFETY: the caller passes a live place.
    unsafe { id.write(exec as usize as u32) };
    CuptiResult::SUCCESS
}

unsafe extern "C" fn get_graph_node_id(node: *mut c_void, id: *mut u64) -> CuptiResult {
    faulty!("cuptiGetGraphNodeId");
    // SAFETY: the caller passes a live place.
    unsafe { id.write(node as usize as u64) };
    CuptiResult::SUCCESS
}

unsafe extern "C" fn flush_all(flags: u32) -> CuptiResult {
    faulty!("cuptiActivityFlushAll");
    let (busy, holds, takes) = {
        let mut state = STATE.lock();
        state.flushes += 1;
        let busy = state.busy_until.is_some_and(|until| Instant::now() < until);
        (busy, state.holds, state.flush_takes)
    };
    if !takes.is_zero() {
        std::thread::sleep(takes);
    }
    if !(busy || holds) || flags & FLAG_FLUSH_FORCED != 0 {
        give_all_back();
    }
    CuptiResult::SUCCESS
}

unsafe extern "C" fn get_num_dropped_records(
    _context: *mut c_void,
    _stream: u32,
    dropped: *mut usize,
) -> CuptiResult {
    faulty!("cuptiActivityGetNumDroppedRecords");
    let count = std::mem::take(&mut STATE.lock().dropped);
    // SAFETY: the caller passes a live usize.
    unsafe { dropped.write(count) };
    CuptiResult::SUCCESS
}

unsafe extern "C" fn get_next_record(
    buffer: *mut u8,
    valid: usize,
    record: *mut *mut u8,
) -> CuptiResult {
    faulty!("cuptiActivityGetNextRecord");
    // SAFETY: the caller passes a live place.
    let last = unsafe { record.read() };
    let release = version().cuda_release();
    let length = |at: *mut u8| {
        let odd = ODD_LENGTHS
            .lock()
            .iter()
            .find(|(address, _)| *address == at as usize)
            .map(|(_, len)| *len);
        // SAFETY: a record begins at `at`, with its kind; after one of an odd length it is not aligned.
        odd.or_else(|| stride_of_kind(unsafe { at.cast::<u32>().read_unaligned() }, release))
    };
    let next = if last.is_null() {
        0
    } else {
        match length(last) {
            Some(length) => last as usize - buffer as usize + length,
            None => return CuptiResult::INVALID_KIND,
        }
    };
    if next >= valid {
        return CuptiResult::MAX_LIMIT_REACHED;
    }
    // SAFETY: `next` is below `valid`, so within the buffer.
    let next = unsafe { buffer.add(next) };
    if length(next).is_none() {
        return CuptiResult::INVALID_KIND;
    }
    // SAFETY: the caller passes a live place.
    unsafe { record.write(next) };
    CuptiResult::SUCCESS
}

/// Held while the present buffer is written to or given back; never while a driver callback runs.
static BUFFER: Mutex<()> = Mutex::new(());

/// Gives the present buffer back, with the state unlocked; what was written is cut short if a test wants that.
fn complete() {
    let buffer = {
        let mut state = STATE.lock();
        let cut = state.cut;
        let buffer = state.buffer.take();
        if buffer.is_some() {
            state.cut = 0;
        }
        buffer.map(|buffer| Buffer { used: buffer.used.saturating_sub(cut), ..buffer })
    };
    buffer.into_iter().for_each(give_back);
}

fn give_back(buffer: Buffer) {
    let completed = STATE.lock().completed;
    if let Some(completed) = completed {
        let address = buffer.address as *mut u8;
        // SAFETY: this is a buffer that `requested` gave, given back once.
        unsafe { completed(std::ptr::null_mut(), 0, address, buffer.size, buffer.used) };
    }
}

fn give_all_back() {
    let _writing = BUFFER.lock();
    complete();
    give_back_held();
}

pub(super) fn give_back_held() {
    let held = std::mem::take(&mut STATE.lock().held);
    held.into_iter().for_each(give_back);
}

/// Writes a record into the present buffer, or a new one where it does not fit.
pub(super) fn write(record: &[u8]) {
    let _writing = BUFFER.lock();
    let fits = STATE.lock().buffer.is_some_and(|buffer| buffer.used + record.len() <= buffer.size);
    if !fits {
        {
            let mut state = STATE.lock();
            if state.holds {
                let full = state.buffer.take();
                state.held.extend(full);
            }
        }
        complete();
        let Some(requested) = STATE.lock().requested else {
            return;
        };
        let (mut address, mut size, mut limit) = (std::ptr::null_mut(), 0, 0);
        // SAFETY: all three places are live.
        unsafe { requested(&mut address, &mut size, &mut limit) };
        if address.is_null() || size < record.len() {
            let mut state = STATE.lock();
            state.dropped += 1;
            state.crashed |= !version().takes_no_buffer();
            return;
        }
        STATE.lock().buffer = Some(Buffer { address: address as usize, size, used: 0 });
    }
    let mut state = STATE.lock();
    let Some(buffer) = &mut state.buffer else {
        return;
    };
    let place = (buffer.address + buffer.used) as *mut u8;
    // SAFETY: the buffer has `size` bytes, of which `record.len()` after `used` are free, as tested above.
    unsafe { std::ptr::copy_nonoverlapping(record.as_ptr(), place, record.len()) };
    buffer.used += record.len();
    let kind = record.first_chunk().map_or(0, |kind| u32::from_ne_bytes(*kind));
    let release = version().cuda_release();
    ODD_LENGTHS.lock().retain(|(address, _)| *address != place as usize);
    if stride_of_kind(kind, release).is_some_and(|stride| stride != record.len()) {
        ODD_LENGTHS.lock().push((place as usize, record.len()));
    }
}

pub(super) fn next_correlation() -> u32 {
    let mut state = STATE.lock();
    state.correlation = state.correlation.wrapping_add(1);
    state.correlation
}

/// Runs the work and writes its record, if its kind is on.
pub(super) fn execute(work: &Work, correlation: u32, node: Option<(u32, u64)>) {
    let record = {
        let mut state = STATE.lock();
        if !state.kinds.contains(&work.kind()) {
            return;
        }
        let now = state.now();
        let (mut start, mut end) = if work.is_on_gpu() {
            let free = state.streams.get_or_insert_default().entry(work.stream()).or_default();
            let start = (*free).max(now.saturating_add(2_000));
            *free = start.saturating_add(work.duration_ns());
            (start, *free)
        } else {
            (now, now.saturating_add(work.duration_ns()))
        };
        if state.timestamps_lost {
            (start, end) = (0, 0);
        }
        work.record(version(), correlation, (start, end), node)
    };
    if let Some(record) = record {
        write(&record);
    }
}

/// Calls the subscriber, if it wants this callback.
///
/// # Safety
/// `data` points to a live structure of the type that CUPTI passes for this domain and id.
unsafe fn call_back(domain: u32, id: u32, data: *const c_void) {
    let callback = {
        let state = STATE.lock();
        let wanted = |_: &CallbackFunc| {
            state.callback_ids.contains(&(domain, id)) || state.domains.contains(&domain)
        };
        state.callback.filter(wanted)
    };
    if let Some(callback) = callback {
        // SAFETY: the subscriber's callback; the data is as it has to be by the caller's promise.
        unsafe { callback(std::ptr::null_mut(), domain, id, data) };
    }
}

/// A call of one of the APIs, from its enter to its exit.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) domain: u32,
    pub(super) id: u32,
    pub(super) correlation: u32,
    /// What stands wherever its parameter block has a size.
    pub(super) bytes: u64,
    pub(super) symbol: Option<&'static CStr>,
    kept: u64,
}

impl Frame {
    pub(super) fn new(domain: u32, id: u32, correlation: u32) -> Self {
        Self { domain, id, correlation, bytes: 1, symbol: None, kept: 0 }
    }

    fn data(&mut self, site: u32, params: Option<&[u64; 8]>, result: Option<&u32>) -> CallbackData {
        let names = names(self.domain);
        // A call of no function has a name too, so that a benchmark may take it for one that is not recorded.
        let name = names.get(self.id as usize).or(names.first());
        let name = name.map_or(c"".as_ptr(), |name| name.as_ptr());
        CallbackData {
            callback_site: site,
            function_name: name,
            function_params: params.map_or(std::ptr::null(), |params| params.as_ptr().cast()),
            function_return_value: result
                .map_or(std::ptr::null(), |result| std::ptr::from_ref(result).cast()),
            symbol_name: match self.symbol {
                _ if !self.launches() => c"no symbol".as_ptr(),
                Some(symbol) => symbol.as_ptr(),
                None => std::ptr::null(),
            },
            context: std::ptr::null_mut(),
            context_uid: 1,
            correlation_data: &raw mut self.kept,
            correlation_id: self.correlation,
        }
    }

    /// Whether it launches a kernel; CUPTI does not say what stands in the symbol of other calls.
    fn launches(&self) -> bool {
        let class = if self.domain == DOMAIN_DRIVER_API {
            DriverFunction(self.id).class()
        } else {
            RuntimeFunction(self.id).class()
        };
        class == CallClass::KernelLaunch
    }

    /// It begins.
    pub(super) fn enter(&mut self) {
        let params = [self.bytes; 8];
        let data = self.data(API_ENTER, Some(&params), None);
        // SAFETY: a live CUpti_CallbackData, whose parameter block has room for all sizes that are read.
        unsafe { call_back(self.domain, self.id, (&raw const data).cast()) };
    }

    /// It returns.
    pub(super) fn exit(&mut self, result: u32) {
        tie(self.domain, self.id, self.correlation);
        let data = self.data(API_ENTER + 1, None, Some(&result));
        // SAFETY: a live CUpti_CallbackData, which points to a live result.
        unsafe { call_back(self.domain, self.id, (&raw const data).cast()) };
    }
}

/// What an event of a resource is about, beside its context and stream.
#[derive(Debug)]
enum Descriptor {
    Nothing,
    Graph(GraphData),
    Module(ModuleData),
}

/// A resource event happens on this thread.
pub(super) fn resource(id: u32, context: u32, stream: u32) {
    event_of(id, context, stream, &Descriptor::Nothing);
}

/// The same with what it is about, which is left out where the id is not one of such events.
fn event_of(id: u32, context: u32, stream: u32, descriptor: &Descriptor) {
    let handle = |id: u32| id as usize as *mut c_void;
    let is_module = (RESOURCE_MODULE_LOADED..=RESOURCE_MODULE_PROFILED).contains(&id);
    let descriptor: *const c_void = match descriptor {
        Descriptor::Graph(data) if !is_module => std::ptr::from_ref(data).cast(),
        Descriptor::Module(data) if is_module => std::ptr::from_ref(data).cast(),
        _ => std::ptr::null(),
    };
    let data = ResourceData { context: handle(context), stream: handle(stream), descriptor };
    // SAFETY: a live CUpti_ResourceData, whose descriptor is of the type for this id, or null.
    unsafe { call_back(DOMAIN_RESOURCE, id, (&raw const data).cast()) };
}

/// An event of a graph.
pub(super) fn graph_event(id: u32, ids: GraphIds) {
    let handle = |id: u64| id as usize as *mut c_void;
    let data = GraphData {
        graph: handle(ids.graph.into()),
        original_graph: handle(ids.original_graph.into()),
        node: handle(ids.node),
        original_node: handle(ids.original_node),
        node_type: ids.node_type,
        dependency: std::ptr::null_mut(),
        graph_exec: handle(ids.exec.into()),
    };
    event_of(id, 1, 0, &Descriptor::Graph(data));
}

pub(super) fn module_event(id: u32, module_id: u32, cubin: &[u8]) {
    let data = ModuleData { module_id, cubin_size: cubin.len(), cubin: cubin.as_ptr() };
    event_of(id, 1, 0, &Descriptor::Module(data));
}

pub(super) fn synchronized(id: u32, context: u32, stream: u32) {
    let handle = |id: u32| id as usize as *mut c_void;
    let data = SynchronizeData { context: handle(context), stream: handle(stream) };
    // SAFETY: a live CUpti_SynchronizeData.
    unsafe { call_back(DOMAIN_SYNCHRONIZE, id, (&raw const data).cast()) };
}

pub(super) fn nvtx(id: u32, name: &CStr) {
    let null = std::ptr::null();
    let data = NvtxData {
        function_name: name.as_ptr(),
        function_params: null,
        function_return_value: null,
    };
    // SAFETY: a live CUpti_NvtxData.
    unsafe { call_back(DOMAIN_NVTX, id, (&raw const data).cast()) };
}

pub(super) fn notice(id: u32, result: CuptiResult, message: &CStr) {
    let data = StateData { result, message: message.as_ptr() };
    // SAFETY: a live CUpti_StateData.
    unsafe { call_back(DOMAIN_STATE, id, (&raw const data).cast()) };
}

/// Has the process's exit do what CUPTI may do then: give buffers back, and call back once more.
pub(super) fn act_at_exit() {
    extern "C" fn at_exit() {
        give_all_back();
        let mut frame = Frame::new(DOMAIN_DRIVER_API, DRIVER_CALLS[0].id, next_correlation());
        frame.enter();
        frame.exit(0);
    }
    // SAFETY: the function lives as long as the process and does not unwind: what it calls of ours catches panics.
    let _ = unsafe { libc::atexit(at_exit) };
}
