//! Memory, copies and fills. Device memory is host memory.

use std::ffi::{c_int, c_uint, c_void};

use ::cupti::MemoryKind;
use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUcontext, CUdevice, CUdeviceptr, CUmemPool_attribute, CUmemPoolProps,
    CUmemoryPool, CUmemorytype, CUresult, CUstream,
};
use fake_cupti::Work;

use super::{Pointer, driver, handle, put, put_if_wanted, submit};
use crate::call::{self, Outcome, fake};
use crate::effect::Effect;
use crate::machine::{DEVICE_BYTES, machine};
use crate::streams::wait_until;

/// The one memory pool of each device.
const POOL: u64 = 1;

/// How long a copy or fill of so many bytes takes: a microsecond, and 25 GB/s.
fn duration_ns(bytes: usize) -> u64 {
    1_000 + bytes as u64 / 25
}

/// One of the two ends of a copy.
#[derive(Clone, Copy)]
enum End {
    Host(u64),
    Device(u64),
    /// Whatever the address is of.
    Any(u64),
}

impl End {
    /// Its address and the kind of its memory. Device memory has to have the bytes.
    fn resolve(self, bytes: usize) -> Outcome<(u64, MemoryKind)> {
        let machine = machine();
        match self {
            Self::Host(address) => Ok((address, machine.kind_of(address))),
            Self::Device(address) => {
                machine.check_device(address, bytes)?;
                Ok((address, machine.kind_of(address)))
            }
            Self::Any(address) => {
                let kind = machine.kind_of(address);
                if kind != MemoryKind::PAGEABLE {
                    machine.check_device(address, bytes)?;
                }
                Ok((address, kind))
            }
        }
    }
}

/// Whether the host waits for a copy or fill.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Yes,
    No,
}

/// Submits a copy or fill, which writes no record and does nothing if it has no bytes.
///
/// # Safety
/// The addresses of host memory in `effect` have the bytes that it reads and writes; other addresses were checked.
unsafe fn transfer(
    work: Work,
    effect: Effect,
    stream: u64,
    wait: Wait,
    correlation: u32,
) -> Outcome {
    let found = machine().stream(stream)?;
    if effect.bytes() == 0 {
        return Ok(());
    }
    let work = work.taking_ns(duration_ns(effect.bytes()));
    let work = if wait == Wait::Yes { work.blocking() } else { work };
    // SAFETY: the caller's promise, with the check of what is not host memory.
    unsafe { submit(stream, correlation, &work, effect) }?;
    if wait == Wait::Yes {
        wait_until(fake().stream_end_ns(found.id));
    }
    Ok(())
}

/// Copies bytes.
///
/// # Safety
/// An end of host memory has the bytes.
unsafe fn copy(
    (to, from): (End, End),
    bytes: usize,
    (stream, wait): (u64, Wait),
    correlation: u32,
) -> Outcome {
    call::context()?;
    let ((to, to_kind), (from, from_kind)) = (to.resolve(bytes)?, from.resolve(bytes)?);
    let work = Work::copy(from_kind, to_kind, bytes as u64);
    // SAFETY: the caller's promise; device memory was checked.
    unsafe { transfer(work, Effect::copy(from, to, bytes), stream, wait, correlation) }
}

/// Copies the rows of a rectangle. Arrays are not supported.
///
/// # Safety
/// The parameters are live, and an end of host memory has the rectangle.
unsafe fn copy_rectangle(
    params: *const CUDA_MEMCPY2D,
    on: (u64, Wait),
    correlation: u32,
) -> Outcome {
    call::context()?;
    // SAFETY: the caller's promise.
    let params = unsafe { params.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let (width, rows) = (params.WidthInBytes, params.Height);
    let end = |kind, memory: u64, device: u64, pitch: usize, x: usize, y: usize| {
        let pitch = if pitch == 0 { width } else { pitch };
        let skipped = (y * pitch + x) as u64;
        let end = match kind {
            CUmemorytype::CU_MEMORYTYPE_HOST => End::Host(memory + skipped),
            CUmemorytype::CU_MEMORYTYPE_DEVICE => End::Device(device + skipped),
            CUmemorytype::CU_MEMORYTYPE_UNIFIED => End::Any(device + skipped),
            CUmemorytype::CU_MEMORYTYPE_ARRAY => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        };
        let bytes = rows.saturating_sub(1).saturating_mul(pitch).saturating_add(width);
        let (address, kind) = end.resolve(if rows == 0 { 0 } else { bytes })?;
        Ok((address, kind, pitch))
    };
    let p = params;
    let source = (p.srcHost.address(), p.srcDevice, p.srcPitch, p.srcXInBytes, p.srcY);
    let target = (p.dstHost.address(), p.dstDevice, p.dstPitch, p.dstXInBytes, p.dstY);
    let from = end(p.srcMemoryType, source.0, source.1, source.2, source.3, source.4)?;
    let to = end(p.dstMemoryType, target.0, target.1, target.2, target.3, target.4)?;
    let pitch = [from.2, to.2];
    let effect = Effect::Copy { from: from.0, to: to.0, width, rows, pitch };
    let work = Work::copy(from.1, to.1, effect.bytes() as u64);
    // SAFETY: the caller's promise; device memory was checked.
    unsafe { transfer(work, effect, on.0, on.1, correlation) }
}

/// Fills device memory with values of 1, 2 or 4 bytes.
fn fill(
    to: CUdeviceptr,
    (value, size, count): (u32, usize, usize),
    (stream, wait): (u64, Wait),
    correlation: u32,
) -> Outcome {
    call::context()?;
    let bytes = count.checked_mul(size).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    machine().check_device(to, bytes)?;
    let effect = Effect::Fill { to, value, size, count };
    // SAFETY: device memory with these bytes, as checked above.
    unsafe { transfer(Work::memset(bytes as u64), effect, stream, wait, correlation) }
}

fn allocate(bytes: usize, kind: MemoryKind) -> Outcome<u64> {
    call::context()?;
    machine().allocate(bytes, kind)
}

/// A pointer to an allocation.
fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

driver! { checked symbols;
    cuMemAlloc_v2(bytes: usize) -> CUdeviceptr [bytes: bytes] |_| { allocate(bytes, MemoryKind::DEVICE) }
    cuMemAllocManaged(bytes: usize, _flags: c_uint) -> CUdeviceptr [bytes: bytes] |_| {
        allocate(bytes, MemoryKind::MANAGED)
    }
    cuMemAllocPitch_v2(pitch: *mut usize, width: usize, height: usize, _element: c_uint) -> CUdeviceptr |_| {
        let row = width.next_multiple_of(512);
        // SAFETY: the caller passes a live place, or null.
        unsafe { put(pitch, row) }?;
        allocate(row.saturating_mul(height), MemoryKind::DEVICE)
    }
    cuMemAllocAsync(bytes: usize, stream: CUstream) -> CUdeviceptr [bytes: bytes] |_| {
        machine().stream(stream.number())?;
        allocate(bytes, MemoryKind::DEVICE)
    }
    cuMemAllocFromPoolAsync(bytes: usize, _pool: CUmemoryPool, stream: CUstream) -> CUdeviceptr [bytes: bytes] |_| {
        machine().stream(stream.number())?;
        allocate(bytes, MemoryKind::DEVICE)
    }
    cuMemFree_v2(address: CUdeviceptr) |_| {
        if address == 0 { Ok(()) } else { machine().free(address) }
    }
    cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) |_| {
        let mut machine = machine();
        machine.stream(stream.number())?;
        machine.free(address)
    }
    cuMemAllocHost_v2(bytes: usize) -> *mut c_void [bytes: bytes] |_| {
        allocate(bytes, MemoryKind::PINNED).map(pointer)
    }
    cuMemHostAlloc(bytes: usize, _flags: c_uint) -> *mut c_void [bytes: bytes] |_| {
        allocate(bytes, MemoryKind::PINNED).map(pointer)
    }
    cuMemFreeHost(memory: *mut c_void) |_| { machine().free(memory.address()) }
    cuMemHostRegister_v2(memory: *mut c_void, bytes: usize, _flags: c_uint) |_| {
        call::context()?;
        machine().register(memory.address(), bytes);
        Ok(())
    }
    cuMemHostUnregister(memory: *mut c_void) |_| { machine().free(memory.address()) }
    cuMemHostGetDevicePointer_v2(memory: *mut c_void, _flags: c_uint) -> CUdeviceptr |_| {
        Ok(memory.address())
    }
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |_| {
        call::context()?;
        // SAFETY: the caller passes a live place, or null.
        unsafe { put_if_wanted(free, machine().free_bytes()) };
        // SAFETY: so is this.
        unsafe { put_if_wanted(total, DEVICE_BYTES) };
        Ok(())
    }
    cuMemGetAddressRange_v2(start: *mut CUdeviceptr, bytes: *mut usize, address: CUdeviceptr) |_| {
        let (found, length) = machine().range_of(address)?;
        // SAFETY: the caller passes a live place, or null.
        unsafe { put_if_wanted(start, found) };
        // SAFETY: so is this.
        unsafe { put_if_wanted(bytes, length) };
        Ok(())
    }

    cuDeviceGetDefaultMemPool(device: CUdevice) -> CUmemoryPool |_| {
        machine().device(device).map(|_| handle(POOL))
    }
    cuDeviceGetMemPool(device: CUdevice) -> CUmemoryPool |_| {
        machine().device(device).map(|_| handle(POOL))
    }
    cuDeviceSetMemPool(device: CUdevice, _pool: CUmemoryPool) |_| { machine().device(device).map(drop) }
    cuMemPoolCreate(_props: *const CUmemPoolProps) -> CUmemoryPool |_| { Ok(handle(POOL)) }
    cuMemPoolDestroy(_pool: CUmemoryPool) |_| { Ok(()) }
    cuMemPoolTrimTo(_pool: CUmemoryPool, _bytes: usize) |_| { Ok(()) }
    cuMemPoolSetAttribute(_pool: CUmemoryPool, _which: CUmemPool_attribute, _value: *mut c_void) |_| { Ok(()) }
    cuMemPoolGetAttribute(_pool: CUmemoryPool, which: CUmemPool_attribute, value: *mut c_void) |_| {
        // The first three are ints, all others numbers of 64 bits.
        if (which as u32) <= 3 {
            // SAFETY: the caller passes a live place for the attribute's type, or null.
            unsafe { put(value.cast::<c_int>(), 1) }
        } else {
            // SAFETY: as above.
            unsafe { put(value.cast::<u64>(), 0) }
        }
    }

    cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) [bytes: bytes] |correlation| {
        // SAFETY: the caller's memory has the bytes.
        unsafe { copy((End::Any(to), End::Any(from)), bytes, (0, Wait::Yes), correlation) }
    }
    cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) [bytes: bytes] |correlation| {
        // SAFETY: as above.
        unsafe { copy((End::Any(to), End::Any(from)), bytes, (stream.number(), Wait::No), correlation) }
    }
    cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize) [bytes: bytes] |correlation| {
        // SAFETY: as above.
        unsafe { copy((End::Device(to), End::Host(from.address())), bytes, (0, Wait::Yes), correlation) }
    }
    cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) [bytes: bytes] |correlation| {
        let ends = (End::Device(to), End::Host(from.address()));
        // SAFETY: as above.
        unsafe { copy(ends, bytes, (stream.number(), Wait::No), correlation) }
    }
    cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize) [bytes: bytes] |correlation| {
        // SAFETY: as above.
        unsafe { copy((End::Host(to.address()), End::Device(from)), bytes, (0, Wait::Yes), correlation) }
    }
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) [bytes: bytes] |correlation| {
        let ends = (End::Host(to.address()), End::Device(from));
        // SAFETY: as above.
        unsafe { copy(ends, bytes, (stream.number(), Wait::No), correlation) }
    }
    cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) [bytes: bytes] |correlation| {
        // SAFETY: both ends are device memory.
        unsafe { copy((End::Device(to), End::Device(from)), bytes, (0, Wait::No), correlation) }
    }
    cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) [bytes: bytes] |correlation| {
        let ends = (End::Device(to), End::Device(from));
        // SAFETY: as above.
        unsafe { copy(ends, bytes, (stream.number(), Wait::No), correlation) }
    }
    cuMemcpyPeerAsync(
        to: CUdeviceptr, _there: CUcontext, from: CUdeviceptr, _here: CUcontext, bytes: usize, stream: CUstream,
    ) [bytes: bytes] |correlation| {
        let ends = (End::Device(to), End::Device(from));
        // SAFETY: as above.
        unsafe { copy(ends, bytes, (stream.number(), Wait::No), correlation) }
    }
    cuMemcpy2D_v2(params: *const CUDA_MEMCPY2D) |correlation| {
        // SAFETY: the caller passes live parameters, and its memory has the rectangle.
        unsafe { copy_rectangle(params, (0, Wait::Yes), correlation) }
    }
    cuMemcpy2DUnaligned_v2(params: *const CUDA_MEMCPY2D) |correlation| {
        // SAFETY: as above.
        unsafe { copy_rectangle(params, (0, Wait::Yes), correlation) }
    }
    cuMemcpy2DAsync_v2(params: *const CUDA_MEMCPY2D, stream: CUstream) |correlation| {
        // SAFETY: as above.
        unsafe { copy_rectangle(params, (stream.number(), Wait::No), correlation) }
    }

    cuMemsetD8_v2(to: CUdeviceptr, value: u8, count: usize) [bytes: count] |correlation| {
        fill(to, (value.into(), 1, count), (0, Wait::No), correlation)
    }
    cuMemsetD16_v2(to: CUdeviceptr, value: u16, count: usize) [bytes: count] |correlation| {
        fill(to, (value.into(), 2, count), (0, Wait::No), correlation)
    }
    cuMemsetD32_v2(to: CUdeviceptr, value: c_uint, count: usize) [bytes: count] |correlation| {
        fill(to, (value, 4, count), (0, Wait::No), correlation)
    }
    cuMemsetD8Async(to: CUdeviceptr, value: u8, count: usize, stream: CUstream) [bytes: count] |correlation| {
        fill(to, (value.into(), 1, count), (stream.number(), Wait::No), correlation)
    }
    cuMemsetD16Async(to: CUdeviceptr, value: u16, count: usize, stream: CUstream) [bytes: count] |correlation| {
        fill(to, (value.into(), 2, count), (stream.number(), Wait::No), correlation)
    }
    cuMemsetD32Async(to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) [bytes: count] |correlation| {
        fill(to, (value, 4, count), (stream.number(), Wait::No), correlation)
    }
}
