//! Devices and contexts.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::thread;

use cudarc::driver::sys::{
    CUcontext, CUctxCreateParams, CUdevice, CUfunc_cache, CUlimit, CUresult, CUuuid,
};

use super::{Pointer, driver, handle, put, put_if_wanted};
use crate::call::{self, Outcome};
use crate::machine::{BLOCK_THREADS, DEVICE_BYTES, machine};
use crate::streams;

/// Makes a context on a device, current on this thread.
fn create(device: CUdevice) -> Outcome<CUcontext> {
    let mut machine = machine();
    let device = machine.device(device)?;
    let context = machine.new_context(device);
    drop(machine);
    call::push_context(context);
    Ok(handle(context))
}

/// Destroys a context with all that is in it.
fn destroy(context: u32) -> Outcome {
    machine().device_of(context)?;
    if call::current_context() == Some(context) {
        call::pop_context()?;
    }
    machine().remove_context(context)
}

/// The number of a context that exists.
fn existing(context: CUcontext) -> Outcome<u32> {
    let context = u32::try_from(context.number()).unwrap_or_default();
    machine().device_of(context).map(|_| context)
}

/// An attribute of a device: those of an H200 that programs look at, and 0 for others.
fn attribute(attribute: c_int, device: u32) -> c_int {
    match attribute {
        // Threads of a block, in all and in x and y.
        1..=3 => BLOCK_THREADS as c_int,
        4 => 64,
        5 => c_int::MAX,
        6 | 7 => 65_535,
        8 => 48 << 10,
        9 => 64 << 10,
        // Threads of a warp.
        10 => 32,
        12 | 82 => 65_536,
        13 => 1_980_000,
        // Multiprocessors.
        16 => 132,
        // Overlap, mapped host memory, concurrent kernels.
        15 | 19 | 31 => 1,
        // The bus.
        33 => 0x10 + device as c_int,
        36 => 3_201_000,
        37 => 6_016,
        38 => 60 << 20,
        39 => 2_048,
        40 => 3,
        // Unified addresses, priorities, managed memory, cooperative launches, memory pools.
        41 | 78 | 83 | 90 | 95 | 99 | 115 => 1,
        // Compute capability.
        75 => 9,
        76 => 0,
        81 => 228 << 10,
        97 => 227 << 10,
        106 => 32,
        _ => 0,
    }
}

/// The device's UUID.
fn uuid(device: CUdevice) -> Outcome<CUuuid> {
    let device = machine().device(device)?;
    let mut bytes = [7; 16];
    bytes[15] = device as c_char;
    Ok(CUuuid { bytes })
}

/// Writes text into the caller's buffer.
///
/// # Safety
/// `place` has this many bytes.
unsafe fn write_text(place: *mut c_char, length: c_int, text: &str) -> Outcome {
    let room = usize::try_from(length).unwrap_or_default();
    if room == 0 || place.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let bytes: Vec<u8> = text.bytes().take(room - 1).chain([0]).collect();
    // SAFETY: the caller's promise; these are no more than its bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast(), bytes.len()) };
    Ok(())
}

driver! { checked symbols;
    cuDeviceGetCount() -> c_int |_| { Ok(machine().device_count() as c_int) }
    cuDeviceGet(ordinal: c_int) -> CUdevice |_| { machine().device(ordinal).map(|_| ordinal) }
    cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice) |_| {
        let naming_time = {
            let machine = machine();
            machine.device(device)?;
            machine.naming_time()
        };
        thread::sleep(naming_time);
        // SAFETY: the caller's buffer has the length that it states.
        unsafe { write_text(name, length, "Fake H200") }
    }
    cuDeviceGetPCIBusId(id: *mut c_char, length: c_int, device: CUdevice) |_| {
        let device = machine().device(device)?;
        // SAFETY: the caller's buffer has the length that it states.
        unsafe { write_text(id, length, &format!("0000:{:02x}:00.0", 0x10 + device)) }
    }
    cuDeviceTotalMem_v2(device: CUdevice) -> usize |_| {
        machine().device(device).map(|_| DEVICE_BYTES)
    }
    cuDeviceGetUuid_v2(device: CUdevice) -> CUuuid |_| { uuid(device) }
    cuDeviceCanAccessPeer(device: CUdevice, peer: CUdevice) -> c_int |_| {
        let machine = machine();
        Ok(c_int::from(machine.device(device)? != machine.device(peer)?))
    }
    cuDevicePrimaryCtxRetain(device: CUdevice) -> CUcontext |_| {
        let mut machine = machine();
        let device = machine.device(device)?;
        Ok(handle(machine.retain_primary(device)))
    }
    cuDevicePrimaryCtxRelease_v2(device: CUdevice) |_| {
        let mut machine = machine();
        let device = machine.device(device)?;
        let last = machine.release_primary(device)?;
        drop(machine);
        last.map_or(Ok(()), destroy)
    }
    cuDevicePrimaryCtxReset_v2(device: CUdevice) |_| {
        let mut machine = machine();
        let device = machine.device(device)?;
        let context = machine.reset_primary(device);
        drop(machine);
        context.map_or(Ok(()), destroy)
    }
    cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int) |_| {
        let machine = machine();
        let device = machine.device(device)?;
        // SAFETY: the caller passes a live place, or null.
        unsafe { put_if_wanted(flags, 0) };
        // SAFETY: so is this.
        unsafe { put_if_wanted(active, c_int::from(machine.has_primary(device))) };
        Ok(())
    }
    cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, _flags: c_uint) |_| {
        machine().device(device).map(drop)
    }
    cuCtxCreate_v4(_params: *mut CUctxCreateParams, _flags: c_uint, device: CUdevice) -> CUcontext |_| {
        create(device)
    }
    cuCtxDestroy_v2(context: CUcontext) |_| { destroy(existing(context)?) }
    cuCtxGetCurrent() -> CUcontext |_| {
        Ok(call::current_context().map_or(std::ptr::null_mut(), handle))
    }
    cuCtxSetCurrent(context: CUcontext) |_| {
        let context = if context.is_null() { None } else { Some(existing(context)?) };
        call::set_context(context);
        Ok(())
    }
    cuCtxPushCurrent_v2(context: CUcontext) |_| {
        call::push_context(existing(context)?);
        Ok(())
    }
    cuCtxPopCurrent_v2() -> CUcontext |_| { call::pop_context().map(handle) }
    cuCtxGetDevice() -> CUdevice |_| {
        Ok(machine().device_of(call::context()?)? as CUdevice)
    }
    cuCtxGetId(context: CUcontext, id: *mut u64) |_| {
        let context = if context.is_null() { call::context()? } else { existing(context)? };
        // SAFETY: the caller passes a live place, or null.
        unsafe { put(id, context.into()) }
    }
    cuCtxGetApiVersion(context: CUcontext, version: *mut c_uint) |_| {
        existing(context)?;
        // SAFETY: the caller passes a live place, or null.
        unsafe { put(version, 3_020) }
    }
    cuCtxGetFlags() -> c_uint |_| { call::context().map(|_| 0) }
    cuCtxSetFlags(_flags: c_uint) |_| { call::context().map(drop) }
    cuCtxGetLimit(limit: *mut usize, _which: CUlimit) |_| {
        // SAFETY: the caller passes a live place, or null.
        unsafe { put(limit, 1_024) }
    }
    cuCtxSetLimit(_which: CUlimit, _value: usize) |_| { call::context().map(drop) }
    cuCtxGetCacheConfig() -> CUfunc_cache |_| { Ok(CUfunc_cache::CU_FUNC_CACHE_PREFER_NONE) }
    cuCtxSetCacheConfig(_config: CUfunc_cache) |_| { call::context().map(drop) }
    cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) |_| {
        // SAFETY: the caller passes a live place, or null.
        unsafe { put_if_wanted(least, 0) };
        // SAFETY: so is this.
        unsafe { put_if_wanted(greatest, -5) };
        Ok(())
    }
    cuCtxEnablePeerAccess(peer: CUcontext, _flags: c_uint) |_| { existing(peer).map(drop) }
    cuCtxSynchronize() |correlation| { streams::synchronize_context(correlation) }
    cuProfilerStart() |_| { Ok(()) }
    cuProfilerStop() |_| { Ok(()) }
}

driver! { unchecked older_symbols;
    cuDeviceGetUuid(device: CUdevice) -> CUuuid |_| { uuid(device) }
    // Callers may ask for attributes that cudarc's enumeration does not have.
    cuDeviceGetAttribute(which: c_int, device: CUdevice) -> c_int |_| {
        let device = machine().device(device)?;
        Ok(attribute(which, device))
    }
    cuDeviceComputeCapability(minor: *mut c_int, device: CUdevice) -> c_int |_| {
        machine().device(device)?;
        // SAFETY: the caller passes a live place, or null.
        unsafe { put(minor, 0) }?;
        Ok(9)
    }
    cuCtxCreate_v2(_flags: c_uint, device: CUdevice) -> CUcontext |_| { create(device) }
    cuCtxCreate_v3(_params: *mut c_void, _count: c_int, _flags: c_uint, device: CUdevice) -> CUcontext |_| {
        create(device)
    }
}
