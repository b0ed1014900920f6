//! The fake's counters: one that [`Fake::count`](super::Fake::count) drives, read in passes and by
//! levels of ranges, as on the hardware.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Once};

use parking_lot::Mutex;

use cupti::counters::utilization;
use cupti::sys::abi::CuptiResult;
use cupti::sys::params::*;

use crate::functions::{HostApi, Outcome, RangeApi, SamplingApi};
use crate::work::Work;
use crate::{Fake, calls};

/// The chip of the fake.
const CHIP: &CStr = c"FK100";

pub(super) static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

#[derive(Debug, Default)]
pub(super) struct State {
    initialized: bool,
    pub(super) events: u64,
    pub(super) waits: u64,
    pub(super) lacks_context: bool,
    /// Bytes of allocated device memory.
    pub(super) allocated: BTreeMap<u64, usize>,
    pub(super) enabled: bool,
    /// The counting session, from `set_config` on.
    session: Option<Session>,
    pub(super) sampling: Sampling,
}

#[derive(Debug, Default)]
pub(super) struct Sampling {
    pub(super) enabled: bool,
    samples: u32,
    /// Samples that are not decoded: start, end, events.
    pub(super) waiting: VecDeque<[u64; 3]>,
    /// The samples in the image.
    decoded: Vec<[u64; 3]>,
    pub(super) overflow: bool,
}

#[derive(Debug, Clone, Default)]
struct Session {
    /// The passes, each a number of metrics, in their order.
    passes: Vec<u64>,
    levels: usize,
    ranges: usize,
    run: usize,
    /// The open ranges: the path to each, and the events when it began.
    open: Vec<(String, u64)>,
    /// The events of each pass, by path.
    counted: BTreeMap<String, BTreeMap<u64, u64>>,
    order: Vec<String>,
    image: usize,
    image_size: usize,
    /// The name that was returned last.
    name: Option<CString>,
    started: bool,
}

pub(super) fn reset() {
    *STATE.lock() = State::default();
}

/// The driver's functions for contexts and memory.
pub(super) fn driver(symbol: &str) -> Option<NonNull<c_void>> {
    let function = match symbol {
        "cuCtxGetCurrent" => get_current as *mut c_void,
        "cuCtxGetDevice" => get_device as *mut c_void,
        "cuCtxSynchronize" => synchronize as *mut c_void,
        "cuMemAlloc_v2" => allocate as *mut c_void,
        "cuMemFree_v2" => free as *mut c_void,
        "cuMemsetD8_v2" => fill as *mut c_void,
        _ => return None,
    };
    NonNull::new(function)
}

unsafe extern "C" fn get_current(context: *mut *mut c_void) -> c_int {
    let found =
        if STATE.lock().lacks_context { std::ptr::null_mut() } else { std::ptr::dangling_mut() };
    // SAFETY: the caller passes a live pointer.
    unsafe { context.write(found) };
    0
}

unsafe extern "C" fn get_device(device: *mut c_int) -> c_int {
    // SAFETY: the caller passes a live pointer.
    unsafe { device.write(0) };
    0
}

unsafe extern "C" fn synchronize() -> c_int {
    STATE.lock().waits += 1;
    0
}

unsafe extern "C" fn allocate(address: *mut u64, bytes: usize) -> c_int {
    const OUT_OF_MEMORY: c_int = 2;
    if bytes >= 64 << 30 {
        return OUT_OF_MEMORY;
    }
    let mut state = STATE.lock();
    let last = state.allocated.last_key_value();
    let next = last.map_or(1 << 20, |(address, bytes)| address + *bytes as u64);
    state.allocated.insert(next, bytes);
    // SAFETY: the caller passes a live pointer.
    unsafe { address.write(next) };
    0
}

unsafe extern "C" fn free(address: u64) -> c_int {
    const INVALID_VALUE: c_int = 1;
    match STATE.lock().allocated.remove(&address) {
        Some(_) => 0,
        None => INVALID_VALUE,
    }
}

unsafe extern "C" fn fill(address: u64, _: u8, bytes: usize) -> c_int {
    const INVALID_VALUE: c_int = 1;
    if STATE.lock().allocated.get(&address).is_none_or(|allocated| *allocated < bytes) {
        return INVALID_VALUE;
    }
    calls::submit(&Work::memset(bytes as u64));
    0
}

/// The number of the utilization metrics; the chip has all except NVLink.
const UTILIZATION: u64 = u64::MAX;

/// The number in `fake__NUMBER.sum`, or in `fake__sass_NUMBER.sum`; another roll-up takes no other
/// pass.
fn number(name: &CStr) -> Option<u64> {
    let name = name.to_str().ok()?;
    let name = name.strip_prefix("fake__")?;
    let name =
        name.strip_suffix(".sum").or(name.strip_suffix(".avg.pct_of_peak_sustained_elapsed"))?;
    name.strip_prefix("sass_").unwrap_or(name).parse().ok()
}

/// A host object of the fake: its method of counting, and the numbers of the added metrics.
#[derive(Default)]
struct Added {
    samples: bool,
    numbers: BTreeSet<u64>,
}

impl Added {
    fn number(&self, name: &CStr) -> Option<u64> {
        let label = name.to_str().ok().and_then(utilization::label).filter(|_| self.samples);
        match label {
            Some(label) => (!label.starts_with("NVLink")).then_some(UTILIZATION),
            None => number(name),
        }
    }
}

/// The object that a parameter block names, for as long as the block is borrowed.
///
/// # Safety
///
/// `initialize` returned it, and it was not destroyed.
unsafe fn added(object: &mut *mut c_void) -> &mut Added {
    // SAFETY: the caller's promise; calls of the host interface are made one at a time.
    unsafe { &mut *object.cast::<Added>() }
}

/// The names that a parameter block lists, for as long as the block is borrowed.
///
/// # Safety
///
/// `count` pointers to strings that end in a NUL; all live through the call.
unsafe fn names<'a>(names: &'a *mut *const c_char, count: usize) -> Vec<&'a CStr> {
    // SAFETY: the caller's promise.
    let names: &'a [*const c_char] = unsafe { std::slice::from_raw_parts(*names, count) };
    // SAFETY: the caller's promise.
    names.iter().map(|name| unsafe { CStr::from_ptr(*name) }).collect()
}

/// The image of a session: the number of ranges, then for each range the number of counts, and
/// these as number and events.
fn image_of(session: &Session) -> Vec<u8> {
    let mut words = vec![session.order.len() as u64];
    for path in &session.order {
        let counted = session.counted.get(path).into_iter().flatten();
        let counts: Vec<u64> = counted.flat_map(|(number, events)| [*number, *events]).collect();
        words.push(counts.len() as u64 / 2);
        words.extend(counts);
    }
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// The counts of one range in an image.
fn counted_in(image: &[u8], index: usize) -> Option<BTreeMap<u64, u64>> {
    let mut words = image.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    if index as u64 >= words.next()? {
        return None;
    }
    for _ in 0..index {
        let counts = words.next()?;
        (0..counts.checked_mul(2)?).try_for_each(|_| words.next().map(drop))?;
    }
    let counts = words.next()?;
    (0..counts).map(|_| Some((words.next()?, words.next()?))).collect()
}

impl HostApi for Fake {
    fn initialize(params: &mut HostInitialize) -> Outcome {
        // SAFETY: the name ends in a NUL.
        if unsafe { CStr::from_ptr(params.chip_name) } != CHIP {
            return Err(CuptiResult::INVALID_PARAMETER);
        }
        let added = Added { samples: params.profiler_type == 1, ..Added::default() };
        params.host_object = Box::into_raw(Box::new(added)).cast();
        Ok(())
    }

    fn deinitialize(params: &mut HostDeinitialize) -> Outcome {
        let object = params.host_object.cast::<Added>();
        // SAFETY: `initialize` returned it, and it is passed for the last time.
        drop(unsafe { Box::from_raw(object) });
        Ok(())
    }

    fn chips(params: &mut HostGetSupportedChips) -> Outcome {
        struct Names([*const c_char; 1]);
        // SAFETY: it points to a constant.
        unsafe impl Sync for Names {}
        static NAMES: Names = Names([CHIP.as_ptr()]);
        (params.chip_names, params.num_chips) = (NAMES.0.as_ptr(), 1);
        Ok(())
    }

    fn base_metrics(_params: &mut HostGetBaseMetrics) -> Outcome {
        Err(CuptiResult::NOT_SUPPORTED)
    }

    fn properties(params: &mut HostGetMetricProperties) -> Outcome {
        // SAFETY: the caller passes a live object.
        let added = unsafe { added(&mut params.host_object) };
        // SAFETY: the name ends in a NUL.
        let number = added.number(unsafe { CStr::from_ptr(params.metric_name) });
        number.ok_or(CuptiResult::INVALID_METRIC_NAME)?;
        params.description = c"a counter of the fake".as_ptr();
        params.hw_unit = c"fake".as_ptr();
        params.dim_unit = c"event".as_ptr();
        Ok(())
    }

    fn add_metrics(params: &mut HostConfigAddMetrics) -> Outcome {
        // SAFETY: the caller passes a live object.
        let added = unsafe { added(&mut params.host_object) };
        // SAFETY: the caller passes as many names as stated.
        let names = unsafe { names(&params.metric_names, params.num_metrics) };
        for name in names {
            let number = added.number(name).ok_or(CuptiResult::INVALID_METRIC_NAME)?;
            added.numbers.insert(number);
        }
        Ok(())
    }

    fn image_size(params: &mut HostGetConfigImageSize) -> Outcome {
        // SAFETY: the caller passes a live object.
        params.config_image_size = 8 * unsafe { added(&mut params.host_object) }.numbers.len();
        Ok(())
    }

    fn image(params: &mut HostGetConfigImage) -> Outcome {
        // SAFETY: the caller passes a live object.
        let added = unsafe { added(&mut params.host_object) };
        let size = params.config_image_size;
        // SAFETY: the caller passes as much room as stated.
        let room = unsafe { std::slice::from_raw_parts_mut(params.config_image, size) };
        for (number, place) in added.numbers.iter().zip(room.chunks_exact_mut(8)) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        Ok(())
    }

    fn passes(params: &mut HostGetNumOfPasses) -> Outcome {
        params.num_of_passes = params.config_image_size / 8;
        Ok(())
    }

    fn evaluate(params: &mut HostEvaluateToGpuValues) -> Outcome {
        let (count, index) = (params.num_metrics, params.range_index);
        // SAFETY: the caller passes as many names as stated.
        let names = unsafe { names(&params.metric_names, count) };
        // SAFETY: the caller passes room for as many values as names.
        let values = unsafe { std::slice::from_raw_parts_mut(params.metric_values, count) };
        let state = STATE.lock();
        if state.sampling.enabled {
            let decoded = state.sampling.decoded.get(index);
            let [.., events] = decoded.ok_or(CuptiResult::INVALID_PARAMETER)?;
            values.fill(*events as f64);
            return Ok(());
        }
        drop(state);
        let (image, size) = (params.counter_data_image, params.counter_data_image_size);
        // SAFETY: the caller passes an image of the stated size.
        let image = unsafe { std::slice::from_raw_parts(image, size) };
        let counted = counted_in(image, index).ok_or(CuptiResult::INVALID_PARAMETER)?;
        for (name, value) in names.into_iter().zip(values) {
            let count = number(name).and_then(|number| counted.get(&number));
            *value = count.map_or(f64::NAN, |count| *count as f64);
        }
        Ok(())
    }
}

impl RangeApi for Fake {
    fn initialize(_params: &mut ProfilerInitialize) -> Outcome {
        unload_host_at_exit();
        STATE.lock().initialized = true;
        Ok(())
    }

    fn chip_name(params: &mut DeviceGetChipName) -> Outcome {
        params.chip_name = CHIP.as_ptr();
        Ok(())
    }

    fn availability(params: &mut ProfilerGetCounterAvailability) -> Outcome {
        if !STATE.lock().initialized {
            return Err(CuptiResult::NOT_INITIALIZED);
        }
        params.counter_availability_image_size = 1;
        Ok(())
    }

    fn enable(params: &mut RangeEnable) -> Outcome {
        let mut state = STATE.lock();
        if state.enabled {
            return Err(CuptiResult::HARDWARE_BUSY);
        }
        (state.enabled, state.session) = (true, None);
        params.range_profiler_object = std::ptr::dangling_mut();
        Ok(())
    }

    fn disable(_params: &mut RangeDisable) -> Outcome {
        let mut state = STATE.lock();
        (state.enabled, state.session) = (false, None);
        Ok(())
    }

    fn data_size(params: &mut RangeGetCounterDataSize) -> Outcome {
        params.counter_data_size =
            8 * (1 + params.max_num_of_ranges * (1 + 2 * params.num_metrics));
        Ok(())
    }

    fn set_config(params: &mut RangeSetConfig) -> Outcome {
        // SAFETY: the caller passes an image of the stated size.
        let config = unsafe { std::slice::from_raw_parts(params.config, params.config_size) };
        let numbers = config.chunks_exact(8).filter_map(|chunk| chunk.first_chunk());
        STATE.lock().session = Some(Session {
            passes: numbers.map(|chunk| u64::from_le_bytes(*chunk)).collect(),
            levels: params.num_nesting_levels.into(),
            ranges: params.max_ranges_per_pass,
            image: params.counter_data_image.expose_provenance(),
            image_size: params.counter_data_image_size,
            ..Session::default()
        });
        Ok(())
    }

    fn start(_params: &mut RangeStart) -> Outcome {
        match &mut STATE.lock().session {
            Some(session) if !session.started => session.started = true,
            _ => return Err(CuptiResult::INVALID_OPERATION),
        }
        Ok(())
    }

    fn stop(params: &mut RangeStop) -> Outcome {
        let mut state = STATE.lock();
        let session = state.session.as_mut().ok_or(CuptiResult::INVALID_OPERATION)?;
        if !session.started || !session.open.is_empty() {
            return Err(CuptiResult::INVALID_OPERATION);
        }
        session.started = false;
        session.run += 1;
        params.pass_index = session.run % session.passes.len();
        params.target_nesting_level = 1 + session.run / session.passes.len();
        params.is_all_pass_submitted =
            (session.run >= session.passes.len() * session.levels).into();
        Ok(())
    }

    fn push(params: &mut RangePushRange) -> Outcome {
        let name = params.range_name;
        // SAFETY: the caller passes a name that ends in a NUL.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let mut state = STATE.lock();
        let events = state.events;
        let session = state.session.as_mut().ok_or(CuptiResult::INVALID_OPERATION)?;
        if !session.started {
            return Err(CuptiResult::INVALID_OPERATION);
        }
        let path = match session.open.last() {
            Some((outer, _)) => format!("{outer}/{name}"),
            None => name.into_owned(),
        };
        session.open.push((path, events));
        Ok(())
    }

    fn pop(_params: &mut RangePopRange) -> Outcome {
        let mut state = STATE.lock();
        let events = state.events;
        let session = state.session.as_mut().ok_or(CuptiResult::INVALID_OPERATION)?;
        let (path, begun) = session.open.pop().ok_or(CuptiResult::INVALID_OPERATION)?;
        // One set of counters: a run has the ranges of one level, and one pass of them.
        let (pass, level) =
            (session.run % session.passes.len(), session.run / session.passes.len());
        if session.open.len() == level {
            if !session.counted.contains_key(&path) {
                session.order.push(path.clone());
            }
            let number = session.passes[pass];
            *session.counted.entry(path).or_default().entry(number).or_default() += events - begun;
        }
        Ok(())
    }

    fn decode(params: &mut RangeDecodeData) -> Outcome {
        let mut state = STATE.lock();
        let session = state.session.as_mut().ok_or(CuptiResult::INVALID_OPERATION)?;
        let dropped = session.order.len().saturating_sub(session.ranges);
        session.order.truncate(session.ranges);
        let image = image_of(session);
        if image.len() > session.image_size {
            return Err(CuptiResult::OUT_OF_MEMORY);
        }
        let place = std::ptr::with_exposed_provenance_mut::<u8>(session.image);
        // SAFETY: the caller retains the image that it configured, of the size that it stated,
        // until it releases the device.
        unsafe { place.copy_from_nonoverlapping(image.as_ptr(), image.len()) };
        params.num_of_range_dropped = dropped;
        Ok(())
    }

    fn data_info(params: &mut RangeGetCounterDataInfo) -> Outcome {
        let state = STATE.lock();
        match &state.session {
            Some(session) if params.counter_data_image.addr() == session.image => {
                params.num_total_ranges = session.order.len();
                Ok(())
            }
            _ => Err(CuptiResult::INVALID_PARAMETER),
        }
    }

    fn range_info(params: &mut RangeCounterDataGetRangeInfo) -> Outcome {
        let mut state = STATE.lock();
        let session = state.session.as_mut().ok_or(CuptiResult::INVALID_PARAMETER)?;
        let path = session.order.get(params.range_index);
        let path = path.and_then(|path| CString::new(path.as_str()).ok());
        let path = path.ok_or(CuptiResult::INVALID_PARAMETER)?;
        params.range_name = session.name.insert(path).as_ptr();
        Ok(())
    }
}

/// True once the objects of libnvperf_host are gone.
static IS_HOST_GONE: AtomicBool = AtomicBool::new(false);

/// The preparation loads libnvperf_host, whose objects end with the process: after the exit handlers that
/// are registered later, and before the others. CUPTI 13.0.1 then frees memory twice.
fn unload_host_at_exit() {
    static ONCE: Once = Once::new();
    extern "C" fn unload() {
        IS_HOST_GONE.store(true, Ordering::Release);
    }
    // SAFETY: the function stays mapped, takes and returns nothing, and does not unwind.
    ONCE.call_once(|| _ = unsafe { libc::atexit(unload) });
}

fn abort_without_host() {
    if IS_HOST_GONE.load(Ordering::Acquire) {
        std::process::abort();
    }
}

impl SamplingApi for Fake {
    fn availability(params: &mut SamplingGetCounterAvailability) -> Outcome {
        // A process without another initialisation of CUPTI's counters crashed here or soon after.
        if !STATE.lock().initialized {
            return Err(CuptiResult::NOT_INITIALIZED);
        }
        params.counter_availability_image_size = 1;
        Ok(())
    }

    fn enable(params: &mut SamplingEnable) -> Outcome {
        let sampling = &mut STATE.lock().sampling;
        if sampling.enabled {
            return Err(CuptiResult::HARDWARE_BUSY);
        }
        sampling.enabled = true;
        params.pm_sampling_object = std::ptr::dangling_mut();
        Ok(())
    }

    fn disable(_params: &mut SamplingDisable) -> Outcome {
        abort_without_host();
        STATE.lock().sampling.enabled = false;
        Ok(())
    }

    fn data_size(params: &mut SamplingGetCounterDataSize) -> Outcome {
        STATE.lock().sampling.samples = params.max_samples;
        params.counter_data_size = 8;
        Ok(())
    }

    fn data_initialize(_params: &mut SamplingCounterDataImageInitialize) -> Outcome {
        STATE.lock().sampling.decoded.clear();
        Ok(())
    }

    fn decode(params: &mut SamplingDecodeData) -> Outcome {
        abort_without_host();
        let sampling = &mut STATE.lock().sampling;
        let room = sampling.samples as usize - sampling.decoded.len();
        let ready = room.min(sampling.waiting.len());
        sampling.decoded.extend(sampling.waiting.drain(..ready));
        // The image is full, or all was decoded.
        params.decode_stop_reason = if sampling.waiting.is_empty() { 2 } else { 1 };
        params.overflow = std::mem::take(&mut sampling.overflow).into();
        Ok(())
    }

    fn data_info(params: &mut SamplingGetCounterDataInfo) -> Outcome {
        params.num_completed_samples = STATE.lock().sampling.decoded.len();
        Ok(())
    }

    fn sample_info(params: &mut SamplingCounterDataGetSampleInfo) -> Outcome {
        let state = STATE.lock();
        let sample = state.sampling.decoded.get(params.sample_index);
        let [start, end, _] = *sample.ok_or(CuptiResult::INVALID_PARAMETER)?;
        (params.start_timestamp, params.end_timestamp) = (start, end);
        Ok(())
    }
}
