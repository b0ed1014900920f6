//! The C side of the fake: the functions of CUPTI's table.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cupti::sys::abi::*;
use cupti::{ActivityKind, Version};

use crate::functions::{Api, Outcome};
use crate::state::{STATE, State, VERSION, version};
use crate::{Fake, buffers, counters, faults, pc_sampling, program};

/// The attributes' defaults: (number, bytes of the value, value, first release that has it).
const ATTRIBUTES: [(u32, usize, u64, (u32, u32)); 7] = [
    (0, 8, 3_200_000, (12, 0)),
    (2, 8, 250, (12, 0)),
    (ATTR_ZEROED_OUT_ACTIVITY_BUFFER, 1, 0, (12, 0)),
    (6, 8, 3, (12, 0)),
    (8, 1, 0, (12, 0)),
    (9, 1, 1, (12, 3)),
    (10, 8, 16 << 20, (12, 9)),
];

/// Replaces the library. Returns the old one's buffers first: their owner could not free them
/// otherwise.
pub(super) fn reset(version: u32, state: State) {
    // The subscription of the library before.
    let _ = cupti::unsubscribe();
    buffers::return_all();
    VERSION.store(version, Ordering::Relaxed);
    buffers::clear();
    faults::clear();
    counters::reset();
    pc_sampling::reset();
    *STATE.lock() = state;
}

/// The state of a library that was not used yet.
pub(super) fn fresh(holder: Option<String>, clock_offset: i64, version: Version) -> State {
    let release = version.cuda_release();
    let known = ATTRIBUTES.iter().filter(|(.., since)| *since <= release);
    let mut attributes: BTreeMap<u32, u64> = known.map(|&(id, _, value, _)| (id, value)).collect();
    if release < (13, 0) {
        attributes.entry(9).and_modify(|per_thread| *per_thread = 0);
    }
    State { holder, clock_offset, attributes, ..State::default() }
}

/// True if a library of this version has the callback id. The driver domain of 13.0 has 807 ids.
fn has_id(domain: u32, id: u32) -> bool {
    let release = version().cuda_release();
    match domain {
        DOMAIN_DRIVER_API => id < if release >= (13, 1) { 877 } else { 807 },
        DOMAIN_RUNTIME_API => id < 567,
        DOMAIN_RESOURCE => id < 21,
        _ => false,
    }
}

/// The bytes of the attribute's value, if the library has it and they fit into the caller's.
fn attribute_bytes(attribute: u32, room: usize) -> Result<usize, CuptiResult> {
    let release = version().cuda_release();
    let known = ATTRIBUTES.iter().find(|(id, .., since)| *id == attribute && *since <= release);
    let (_, bytes, ..) = *known.ok_or(CuptiResult::INVALID_PARAMETER)?;
    if room < bytes { Err(CuptiResult::PARAMETER_SIZE_NOT_SUFFICIENT) } else { Ok(bytes) }
}

/// The refusal of a kind that the library does not record, as by 12.8 and 13.0.1. 12.9 refuses
/// none.
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

/// Adds a value to a set or removes it.
fn switch<T: Ord>(all: &mut BTreeSet<T>, value: T, on: u32) {
    let _ = if on == 0 { all.remove(&value) } else { all.insert(value) };
}

/// Writes the id of a handle; in the fake, both have one value.
///
/// # Safety
/// `id` may be written.
unsafe fn write_id<T: TryFrom<usize>>(handle: *mut c_void, id: *mut T) -> Outcome {
    let value = T::try_from(handle as usize).map_err(|_| CuptiResult::INVALID_PARAMETER)?;
    // SAFETY: the caller's promise.
    unsafe { id.write(value) };
    Ok(())
}

impl Api for Fake {
    unsafe fn get_version(version: *mut u32) -> Outcome {
        // SAFETY: the caller passes a live u32.
        unsafe { version.write(VERSION.load(Ordering::Relaxed)) };
        Ok(())
    }

    unsafe fn subscribe(
        handle: *mut SubscriberHandle,
        callback: CallbackFunc,
        _userdata: *mut c_void,
    ) -> Outcome {
        let mut state = STATE.lock();
        if state.subscribed || state.holder.is_some() {
            return Err(CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
        }
        state.subscribed = true;
        state.callback = Some(callback);
        // SAFETY: the caller passes a live pointer.
        unsafe { handle.write(std::ptr::dangling_mut()) };
        Ok(())
    }

    unsafe fn subscribe_v2(
        handle: *mut SubscriberHandle,
        callback: CallbackFunc,
        userdata: *mut c_void,
        params: *mut SubscriberParams,
    ) -> Outcome {
        // SAFETY: the caller's own arguments.
        let outcome = unsafe { Self::subscribe(handle, callback, userdata) };
        if outcome == Err(CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
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
        outcome
    }

    unsafe fn unsubscribe(_handle: SubscriberHandle) -> Outcome {
        let mut state = STATE.lock();
        state.subscribed = false;
        state.callback = None;
        state.enabled.clear();
        Ok(())
    }

    unsafe fn enable_callback(on: u32, _handle: SubscriberHandle, domain: u32, id: u32) -> Outcome {
        if !has_id(domain, id) {
            return Err(CuptiResult::INVALID_PARAMETER);
        }
        let mut state = STATE.lock();
        switch(&mut state.enabled, (domain, id), on);
        switch(&mut state.hooks, (domain, id), on);
        Ok(())
    }

    unsafe fn get_timestamp(timestamp: *mut u64) -> Outcome {
        let now = STATE.lock().now();
        // SAFETY: the caller passes a live u64.
        unsafe { timestamp.write(now) };
        Ok(())
    }

    unsafe fn register_callbacks(
        requested: BufferRequested,
        completed: BufferCompleted,
    ) -> Outcome {
        let mut state = STATE.lock();
        state.requested = Some(requested);
        state.completed = Some(completed);
        Ok(())
    }

    unsafe fn get_attribute(attribute: u32, size: *mut usize, value: *mut c_void) -> Outcome {
        // SAFETY: the caller passes a live size.
        let bytes = attribute_bytes(attribute, unsafe { size.read() })?;
        let present = STATE.lock().attributes.get(&attribute).copied().unwrap_or(0).to_ne_bytes();
        // SAFETY: the caller has room for as many bytes as it states, of which these are no more.
        unsafe { std::ptr::copy_nonoverlapping(present.as_ptr(), value.cast(), bytes) };
        Ok(())
    }

    unsafe fn set_attribute(attribute: u32, size: *mut usize, value: *mut c_void) -> Outcome {
        // SAFETY: the caller passes a live size.
        let bytes = attribute_bytes(attribute, unsafe { size.read() })?;
        let mut new = [0u8; 8];
        // SAFETY: the caller's value has as many bytes as it states, of which these are no more.
        unsafe { std::ptr::copy_nonoverlapping(value.cast(), new.as_mut_ptr(), bytes) };
        STATE.lock().attributes.insert(attribute, u64::from_ne_bytes(new));
        Ok(())
    }

    unsafe fn enable(kind: u32) -> Outcome {
        refusal(kind).map_or(Ok(()), Err)?;
        let mut state = STATE.lock();
        if ActivityKind(kind) == ActivityKind::UNIFIED_MEMORY_COUNTER
            && state.unified_memory.is_empty()
        {
            return Err(CuptiResult::NOT_READY);
        }
        // As CUPTI 13.0.1.
        let is_kernel =
            [ActivityKind::KERNEL, ActivityKind::CONCURRENT_KERNEL].contains(&ActivityKind(kind));
        if is_kernel && pc_sampling::is_sampling() {
            return Err(CuptiResult::NOT_COMPATIBLE);
        }
        state.kinds.insert(kind);
        Ok(())
    }

    unsafe fn disable(kind: u32) -> Outcome {
        let forgets = STATE.lock().forgets;
        if forgets {
            std::thread::sleep(Duration::from_micros(300));
        }
        let mut state = STATE.lock();
        if state.kinds.remove(&kind) && kind == ActivityKind::CONCURRENT_KERNEL.0 {
            state.kernels_disabled += 1;
            state.forgotten += 3 * u32::from(forgets && state.launching > 0);
        }
        Ok(())
    }

    unsafe fn configure_unified_memory(
        configs: *mut UnifiedMemoryCounterConfig,
        count: u32,
    ) -> Outcome {
        if configs.is_null() || count == 0 {
            return Err(CuptiResult::INVALID_PARAMETER);
        }
        // SAFETY: the caller passes as many live elements as it states.
        let configs = unsafe { std::slice::from_raw_parts(configs, count as usize) };
        let is_valid = |config: &UnifiedMemoryCounterConfig| {
            (1..=2).contains(&config.scope) && (1..=8).contains(&config.kind)
        };
        if !configs.iter().all(is_valid) {
            return Err(CuptiResult::INVALID_PARAMETER);
        }
        let mut state = STATE.lock();
        for config in configs {
            switch(&mut state.unified_memory, config.kind, config.enable);
        }
        Ok(())
    }

    unsafe fn flush_period(milliseconds: u32) -> Outcome {
        STATE.lock().flush_period = milliseconds;
        Ok(())
    }

    unsafe fn enable_latency_timestamps(on: u8) -> Outcome {
        STATE.lock().latency_timestamps = on != 0;
        Ok(())
    }

    unsafe fn get_thread_id_type(kind: *mut u32) -> Outcome {
        // SAFETY: the caller passes a live pointer.
        unsafe { kind.write(STATE.lock().thread_id_type) };
        Ok(())
    }

    unsafe fn set_thread_id_type(kind: u32) -> Outcome {
        STATE.lock().thread_id_type = kind;
        Ok(())
    }

    unsafe fn get_stream_id(
        context: *mut c_void,
        stream: *mut c_void,
        per_thread: u8,
        id: *mut u32,
    ) -> Outcome {
        let stream = if stream.is_null() && per_thread != 0 { 2 } else { stream as u64 };
        let found = program::stream_id(context as usize as u32, stream);
        // SAFETY: the caller passes a live pointer.
        unsafe { id.write(found.ok_or(CuptiResult::INVALID_STREAM)?) };
        Ok(())
    }

    unsafe fn get_num_dropped_records(
        _context: *mut c_void,
        _stream: u32,
        dropped: *mut usize,
    ) -> Outcome {
        let count = std::mem::take(&mut STATE.lock().dropped);
        // SAFETY: the caller passes a live usize.
        unsafe { dropped.write(count) };
        Ok(())
    }

    unsafe fn get_context_id(handle: *mut c_void, id: *mut u32) -> Outcome {
        // SAFETY: the caller passes a live pointer.
        unsafe { write_id(handle, id) }
    }

    unsafe fn get_device_id(_context: *mut c_void, device: *mut u32) -> Outcome {
        // SAFETY: the caller passes a live pointer.
        unsafe { device.write(0) };
        Ok(())
    }

    unsafe fn get_graph_id(handle: *mut c_void, id: *mut u32) -> Outcome {
        // SAFETY: the caller passes a live pointer.
        unsafe { write_id(handle, id) }
    }

    unsafe fn get_graph_exec_id(handle: *mut c_void, id: *mut u32) -> Outcome {
        // SAFETY: the caller passes a live pointer.
        unsafe { write_id(handle, id) }
    }

    unsafe fn get_graph_node_id(handle: *mut c_void, id: *mut u64) -> Outcome {
        // SAFETY: the caller passes a live pointer.
        unsafe { write_id(handle, id) }
    }

    unsafe fn flush_all(flags: u32) -> Outcome {
        let is_beside_launch = || STATE.lock().launching > 0;
        let before = is_beside_launch();
        buffers::flush_all(flags);
        if before || is_beside_launch() {
            STATE.lock().flushes_beside_launches += 1;
        }
        Ok(())
    }

    unsafe fn get_next_record(buffer: *mut u8, valid: usize, record: *mut *mut u8) -> Outcome {
        // SAFETY: the caller's own arguments.
        unsafe { buffers::get_next_record(buffer, valid, record) }
    }
}
