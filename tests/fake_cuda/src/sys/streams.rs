//! Streams and events.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys::{
    CUcontext, CUdeviceptr, CUevent, CUgraph, CUgraphNode, CUhostFn, CUresult, CUstream,
    CUstreamCaptureMode, CUstreamCaptureStatus,
};

use super::{Pointer, driver, handle, put, put_if_wanted};
use crate::call::{Outcome, fake};
use crate::machine::machine;
use crate::streams;

/// Makes a stream: one with the flag 1 runs beside the default stream.
fn create(flags: c_uint) -> Outcome<CUstream> {
    Ok(handle(machine().new_stream(flags & 1 != 0)?.id))
}

/// CUPTI's id of a stream.
fn id(stream: CUstream) -> Option<u32> {
    machine().stream(stream.number()).ok().map(|stream| stream.id)
}

/// What a capture is at.
fn status(is_capturing: bool) -> CUstreamCaptureStatus {
    if is_capturing {
        CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE
    } else {
        CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE
    }
}

/// Writes what is known of a stream's capture. Its dependencies are not known.
///
/// # Safety
/// The places are null or live.
unsafe fn capture_info(
    stream: CUstream,
    state: *mut CUstreamCaptureStatus,
    id: *mut u64,
    graph: *mut CUgraph,
) -> Outcome {
    let capture = machine().stream(stream.number())?.capture;
    // SAFETY: the caller's promise.
    unsafe { put(state, status(capture.is_some())) }?;
    if let Some(capture) = capture {
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(id, capture.into()) };
        // SAFETY: so is this.
        unsafe { put_if_wanted(graph, handle(capture)) };
    }
    Ok(())
}

driver! { checked symbols;
    cuStreamCreate(flags: c_uint) -> CUstream |_| { create(flags) }
    cuStreamCreateWithPriority(flags: c_uint, _priority: c_int) -> CUstream |_| { create(flags) }
    cuStreamDestroy_v2(stream: CUstream) |_| {
        machine().remove_stream(stream.number())
    }
    cuStreamSynchronize(stream: CUstream) [stream: id(stream)] |correlation| {
        streams::synchronize(stream.number(), correlation)
    }
    cuStreamQuery(stream: CUstream) |_| {
        let stream = machine().stream(stream.number())?;
        streams::query(fake().stream_end_ns(stream.id))
    }
    cuStreamWaitEvent(stream: CUstream, event: CUevent, _flags: c_uint) [stream: id(stream)] |correlation| {
        streams::wait_event(stream.number(), event.number(), correlation)
    }
    cuStreamGetFlags(stream: CUstream, flags: *mut c_uint) |_| {
        let stream = machine().stream(stream.number())?;
        // SAFETY: the caller passes a live place, or null.
        unsafe { put(flags, stream.is_apart.into()) }
    }
    cuStreamGetPriority(stream: CUstream, priority: *mut c_int) |_| {
        machine().stream(stream.number())?;
        // SAFETY: the caller passes a live place, or null.
        unsafe { put(priority, 0) }
    }
    cuStreamGetId(stream: CUstream, id: *mut u64) |_| {
        let stream = machine().stream(stream.number())?;
        // SAFETY: the caller passes a live place, or null.
        unsafe { put(id, stream.id.into()) }
    }
    cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) |_| {
        let stream = machine().stream(stream.number())?;
        // SAFETY: the caller passes a live place, or null.
        unsafe { put(context, handle(stream.context)) }
    }
    cuStreamAttachMemAsync(stream: CUstream, _memory: CUdeviceptr, _bytes: usize, _flags: c_uint) |_| {
        machine().stream(stream.number()).map(drop)
    }
    cuStreamBeginCapture_v2(stream: CUstream, _mode: CUstreamCaptureMode) |_| {
        streams::begin_capture(stream.number())
    }
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) |_| {
        let captured = streams::end_capture(stream.number())?;
        // SAFETY: the caller passes a live place, or null.
        unsafe { put(graph, handle(captured)) }
    }
    cuStreamIsCapturing(stream: CUstream, state: *mut CUstreamCaptureStatus) |_| {
        let capture = machine().stream(stream.number())?.capture;
        // SAFETY: the caller passes a live place, or null.
        unsafe { put(state, status(capture.is_some())) }
    }
    cuThreadExchangeStreamCaptureMode(_mode: *mut CUstreamCaptureMode) |_| { Ok(()) }
    cuEventCreate(_flags: c_uint) -> CUevent |_| { Ok(handle(machine().new_event())) }
    cuEventDestroy_v2(event: CUevent) |_| {
        let removed = machine().events.remove(&event.number());
        removed.map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }
    cuEventRecord(event: CUevent, stream: CUstream) |_| {
        streams::record(event.number(), stream.number())
    }
    cuEventRecordWithFlags(event: CUevent, stream: CUstream, _flags: c_uint) |_| {
        streams::record(event.number(), stream.number())
    }
    cuEventSynchronize(event: CUevent) |correlation| {
        streams::synchronize_event(event.number(), correlation)
    }
    cuEventQuery(event: CUevent) |_| {
        let event = machine().event(event.number())?;
        streams::query(event.at_ns.unwrap_or_default())
    }
    cuEventElapsedTime_v2(from: CUevent, to: CUevent) -> f32 |_| {
        streams::elapsed_ms(from.number(), to.number())
    }
    cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void) |_| {
        let stream = machine().stream(stream.number())?;
        if stream.capture.is_some() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        streams::wait_until(fake().stream_end_ns(stream.id));
        let function = function.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program's own function, which it wants called with this argument once.
        unsafe { function(data) };
        Ok(())
    }
}

driver! { unchecked older_symbols;
    cuEventElapsedTime(from: CUevent, to: CUevent) -> f32 |_| {
        streams::elapsed_ms(from.number(), to.number())
    }
    cuStreamGetCaptureInfo_v2(
        stream: CUstream,
        state: *mut CUstreamCaptureStatus,
        id: *mut u64,
        graph: *mut CUgraph,
        _dependencies: *mut *const CUgraphNode,
        count: *mut usize,
    ) |_| {
        // SAFETY: the caller passes a live place, or null.
        unsafe { put_if_wanted(count, 0) };
        // SAFETY: so are these.
        unsafe { capture_info(stream, state, id, graph) }
    }
    cuStreamGetCaptureInfo_v3(
        stream: CUstream,
        state: *mut CUstreamCaptureStatus,
        id: *mut u64,
        graph: *mut CUgraph,
        _dependencies: *mut *const CUgraphNode,
        _edges: *mut *const c_void,
        count: *mut usize,
    ) |_| {
        // SAFETY: the caller passes a live place, or null.
        unsafe { put_if_wanted(count, 0) };
        // SAFETY: so are these.
        unsafe { capture_info(stream, state, id, graph) }
    }
}
