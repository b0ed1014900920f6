//! The C side of the stand-in: the functions of the table, and the state behind them.

use std::collections::{BTreeSet, HashMap};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::work::Work;
use super::written::stride;
use crate::library::Version;
use crate::sys::abi::*;
use crate::sys::api::Api;
use crate::sys::os;

pub(super) static STATE: Mutex<State> = Mutex::new(State::new());
/// Apart from the state, since `get_next_record` is called from within callbacks.
static VERSION: AtomicU32 = AtomicU32::new(0);
/// The id of a kind that this stand-in writes at any length; its iterator steps over it by the length it was written in.
static ODD_LENGTHS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

#[derive(Debug)]
pub(super) struct State {
    holder: Option<String>,
    clock_offset: i64,
    faults: Vec<(&'static str, CuptiResult)>,
    pub(super) subscribed: bool,
    callback: Option<CallbackFunc>,
    callback_ids: BTreeSet<(u32, u32)>,
    requested: Option<BufferRequested>,
    completed: Option<BufferCompleted>,
    pub(super) kinds: BTreeSet<u32>,
    buffer: Option<Buffer>,
    pub(super) busy_until: Option<Instant>,
    pub(super) dropped: usize,
    pub(super) timestamps_lost: bool,
    correlation: u32,
    streams: Option<HashMap<u32, u64>>,
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
            faults: Vec::new(),
            subscribed: false,
            callback: None,
            callback_ids: BTreeSet::new(),
            requested: None,
            completed: None,
            kinds: BTreeSet::new(),
            buffer: None,
            busy_until: None,
            dropped: 0,
            timestamps_lost: false,
            correlation: 0,
            streams: None,
        }
    }

    fn now(&self) -> u64 {
        os::monotonic_ns().wrapping_add_signed(self.clock_offset)
    }
}

pub(super) fn reset(
    version: u32,
    holder: Option<String>,
    clock_offset: i64,
    faults: Vec<(&'static str, CuptiResult)>,
) {
    VERSION.store(version, Ordering::Relaxed);
    ODD_LENGTHS.lock().clear();
    *STATE.lock() = State { holder, clock_offset, faults, ..State::new() };
}

/// The planted fault of this function, if there is one.
fn fault(function: &str) -> Option<CuptiResult> {
    STATE.lock().faults.iter().find(|(name, _)| *name == function).map(|(_, code)| *code)
}

macro_rules! faulty {
    ($function:literal) => {
        if let Some(code) = fault($function) {
            return code;
        }
    };
}

pub(super) fn table() -> Api {
    let release = Version(VERSION.load(Ordering::Relaxed)).cuda_release();
    Api {
        get_version,
        subscribe,
        unsubscribe,
        enable_callback,
        get_timestamp,
        register_callbacks,
        set_attribute,
        enable,
        disable,
        flush_all,
        get_next_record,
        get_num_dropped_records,
        subscribe_v2: (release >= (13, 0)).then_some(subscribe_v2 as _),
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
    // SAFETY: the caller's own arguments.
    let code = unsafe { subscribe(handle, callback, userdata) };
    if code == CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED {
        let holder =
            STATE.lock().holder.clone().unwrap_or_else(|| "CUPTI for <not provided>".into());
        // SAFETY: the caller passes live parameters.
        let params = unsafe { &*params };
        let length = holder.len().min(params.old_subscriber_size - 1);
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

unsafe extern "C" fn enable_callback(
    on: u32,
    _handle: SubscriberHandle,
    domain: u32,
    id: u32,
) -> CuptiResult {
    faulty!("cuptiEnableCallback");
    // What the library does not know it refuses: the driver domain of 13.0 has 807 ids.
    if domain == DOMAIN_DRIVER_API && id >= 807 && VERSION.load(Ordering::Relaxed) < 130_101 {
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

unsafe extern "C" fn set_attribute(
    _attribute: u32,
    _size: *mut usize,
    _value: *mut c_void,
) -> CuptiResult {
    faulty!("cuptiActivitySetAttribute");
    CuptiResult::SUCCESS
}

unsafe extern "C" fn enable(kind: u32) -> CuptiResult {
    faulty!("cuptiActivityEnable");
    STATE.lock().kinds.insert(kind);
    CuptiResult::SUCCESS
}

unsafe extern "C" fn disable(kind: u32) -> CuptiResult {
    STATE.lock().kinds.remove(&kind);
    CuptiResult::SUCCESS
}

unsafe extern "C" fn flush_all(flags: u32) -> CuptiResult {
    faulty!("cuptiActivityFlushAll");
    let busy = STATE.lock().busy_until.is_some_and(|until| Instant::now() < until);
    if !busy || flags & FLAG_FLUSH_FORCED != 0 {
        let _writing = BUFFER.lock();
        complete();
    }
    CuptiResult::SUCCESS
}

unsafe extern "C" fn get_num_dropped_records(
    _context: *mut c_void,
    _stream: u32,
    dropped: *mut usize,
) -> CuptiResult {
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
    // SAFETY: the caller passes a live place.
    let last = unsafe { record.read() };
    let version = Version(VERSION.load(Ordering::Relaxed));
    let length = |at: *mut u8| {
        let odd = ODD_LENGTHS
            .lock()
            .iter()
            .find(|(address, _)| *address == at as usize)
            .map(|(_, len)| *len);
        // SAFETY: a record begins at `at`, with its kind.
        odd.or_else(|| stride(unsafe { at.cast::<u32>().read() }, version))
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

/// Gives the present buffer back, with the state unlocked.
fn complete() {
    let (buffer, completed) = {
        let mut state = STATE.lock();
        (state.buffer.take(), state.completed)
    };
    if let (Some(buffer), Some(completed)) = (buffer, completed) {
        let address = buffer.address as *mut u8;
        // SAFETY: this is the buffer that `requested` gave, given back once.
        unsafe { completed(std::ptr::null_mut(), 0, address, buffer.size, buffer.used) };
    }
}

/// Writes a record into the present buffer, or a new one where it does not fit.
pub(super) fn write(record: &[u8]) {
    let _writing = BUFFER.lock();
    let fits = STATE.lock().buffer.is_some_and(|buffer| buffer.used + record.len() <= buffer.size);
    if !fits {
        complete();
        let Some(requested) = STATE.lock().requested else {
            return;
        };
        let (mut address, mut size, mut limit) = (std::ptr::null_mut(), 0, 0);
        // SAFETY: all three places are live.
        unsafe { requested(&mut address, &mut size, &mut limit) };
        if address.is_null() || size < record.len() {
            STATE.lock().dropped += 1;
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
    let version = Version(VERSION.load(Ordering::Relaxed));
    ODD_LENGTHS.lock().retain(|(address, _)| *address != place as usize);
    if stride(kind, version).is_some_and(|stride| stride != record.len()) {
        ODD_LENGTHS.lock().push((place as usize, record.len()));
    }
}

pub(super) fn next_correlation() -> u32 {
    let mut state = STATE.lock();
    state.correlation += 1;
    state.correlation
}

/// Runs the work and writes its record, if its kind is on.
pub(super) fn execute(work: &Work, correlation: u32) {
    let record = {
        let mut state = STATE.lock();
        if !state.kinds.contains(&work.kind()) {
            return;
        }
        let now = state.now();
        let (mut start, mut end) = if work.is_on_gpu() {
            let free = state.streams.get_or_insert_default().entry(work.stream()).or_default();
            let start = (*free).max(now + 2_000);
            *free = start + work.duration_ns();
            (start, *free)
        } else {
            (now, now + work.duration_ns())
        };
        if state.timestamps_lost {
            (start, end) = (0, 0);
        }
        work.record(Version(VERSION.load(Ordering::Relaxed)), correlation, start, end)
    };
    if let Some(record) = record {
        write(&record);
    }
}

fn data(site: u32, correlation: u32, params: *const c_void, result: *const c_void) -> CallbackData {
    CallbackData {
        callback_site: site,
        function_name: c"".as_ptr(),
        function_params: params,
        function_return_value: result,
        symbol_name: std::ptr::null(),
        context: std::ptr::null_mut(),
        context_uid: 1,
        correlation_data: std::ptr::null_mut(),
        correlation_id: correlation,
    }
}

fn call_back(domain: u32, id: u32, data: *const c_void) {
    let callback = {
        let state = STATE.lock();
        state.callback.filter(|_| state.callback_ids.contains(&(domain, id)))
    };
    if let Some(callback) = callback {
        // SAFETY: the subscriber's callback, with data of the domain's type.
        unsafe { callback(std::ptr::null_mut(), domain, id, data) };
    }
}

/// A driver call begins; `bytes` stands wherever its parameter block has a size.
pub(super) fn enter(id: u32, bytes: u64) -> u32 {
    let correlation = next_correlation();
    let params = [bytes; 8];
    let data = data(API_ENTER, correlation, params.as_ptr().cast(), std::ptr::null());
    call_back(DOMAIN_DRIVER_API, id, (&raw const data).cast());
    correlation
}

/// It returns.
pub(super) fn exit(id: u32, correlation: u32, result: u32) {
    let data = data(API_ENTER + 1, correlation, std::ptr::null(), (&raw const result).cast());
    call_back(DOMAIN_DRIVER_API, id, (&raw const data).cast());
}

/// A resource event happens on this thread.
pub(super) fn resource(id: u32) {
    let data = [0u64; 3];
    call_back(DOMAIN_RESOURCE, id, data.as_ptr().cast());
}
