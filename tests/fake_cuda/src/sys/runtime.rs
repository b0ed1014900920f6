//! The runtime API, as far as programs that nvcc compiles and tests need it. A call of it makes calls of the driver, which
//! share its correlation id in CUPTI.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::LazyLock;

use cudarc::driver::sys::{
    CUcontext, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUmodule, CUresult,
    CUstream, CUstreamCaptureMode,
};
use parking_lot::Mutex;

use super::{
    Pointer, contexts, graphs, handle, init, launches, memory, modules, put, streams, text,
};
use crate::call::{self, Outcome, Shape};

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

/// `cudaFuncAttributes`, of 13.0.
#[repr(C)]
pub(crate) struct FunctionAttributes {
    sizes: [usize; 3],
    values: [c_int; 24],
}

impl FunctionAttributes {
    /// Those of every kernel of the fake: 1,024 threads a block, 32 registers, sm_90.
    fn of_any() -> Self {
        let mut values = [0; 24];
        values[..4].copy_from_slice(&[1024, 32, 90, 90]);
        Self { sizes: [0; 3], values }
    }
}

/// The kernels that the program registered, by the address of their function in the program. A function is loaded into each
/// device's primary context at its first launch there.
static KERNELS: LazyLock<Mutex<Kernels>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Kernels {
    names: HashMap<u64, &'static CStr>,
    /// By function and device.
    loaded: HashMap<(u64, c_int), u64>,
}

/// The configuration of a launch that `<<<>>>` pushes.
type Configuration = (Extent, Extent, usize, usize);

thread_local! {
    static DEVICE: Cell<c_int> = const { Cell::new(0) };
    static LAST_ERROR: Cell<c_int> = const { Cell::new(0) };
    static CONFIGURATION: Cell<Option<Configuration>> = const { Cell::new(None) };
}

/// The outcome of a driver function.
fn done(result: CUresult) -> Outcome {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(result) }
}

/// Initialises the driver and makes the primary context of the thread's device current, as the runtime does at first.
fn prepare() -> Outcome {
    done(init::cuInit(0))?;
    call::check_process()?;
    if call::current_context().is_some() {
        return Ok(());
    }
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: `context` is a live place.
    done(unsafe { contexts::cuDevicePrimaryCtxRetain(&mut context, DEVICE.get()) })?;
    // SAFETY: takes no place.
    done(unsafe { contexts::cuCtxSetCurrent(context) })
}

/// A call of a runtime function.
fn runtime(name: &str, shape: Shape, body: impl FnOnce() -> Outcome) -> c_int {
    let result = prepare().err().unwrap_or_else(|| call::runtime(name, shape, body));
    let result = result as c_int;
    if result != 0 {
        LAST_ERROR.set(result);
    }
    result
}

/// The handle of the thread's own default stream for none.
fn own_if_none(stream: CUstream) -> CUstream {
    if stream.is_null() { handle(2_u32) } else { stream }
}

/// Declares functions that programs call instead of others where the default stream is one of the thread (nvcc's
/// `--default-stream per-thread`).
macro_rules! per_thread {
    ($($name:ident = $function:ident($($argument:ident: $type:ty),*; $stream:ident);)*) => {$(
        #[doc = concat!("`", stringify!($function), "` with the thread's default stream.")]
        ///
        /// # Safety
        /// As CUDA documents the function.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($argument: $type,)* $stream: CUstream) -> c_int {
            // SAFETY: the caller's own arguments, and the handle of a stream that every thread has.
            unsafe { $function($($argument,)* own_if_none($stream)) }
        }
    )*};
}

/// Declares functions of the runtime API. `|| body` returns an [`Outcome`].
macro_rules! runtime {
    ($($name:ident($($argument:ident: $type:ty),* $(,)?) $([$($key:ident: $value:expr),*])? || $body:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As CUDA documents the function.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            #[allow(clippy::needless_update)]
            let shape = Shape { $($($key: $value,)*)? ..Shape::NONE };
            runtime(stringify!($name), shape, || $body)
        }
    )*};
}

/// Calls a driver function with the caller's own arguments.
macro_rules! forward {
    ($function:path, $($argument:expr),*) => {
        // SAFETY: the caller's own arguments, which mean the same to the driver.
        done(unsafe { $function($($argument),*) })
    };
}

/// The driver's function of a registered kernel.
fn load(function: u64) -> Outcome<CUfunction> {
    let key = (function, DEVICE.get());
    let (name, loaded) = {
        let kernels = KERNELS.lock();
        (kernels.names.get(&key.0).copied(), kernels.loaded.get(&key).copied())
    };
    if let Some(loaded) = loaded {
        return Ok(handle(loaded));
    }
    let name = name.ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
    let mut module: CUmodule = std::ptr::null_mut();
    forward!(modules::cuModuleLoadData, &mut module, std::ptr::null())?;
    let mut found: CUfunction = std::ptr::null_mut();
    forward!(modules::cuModuleGetFunction, &mut found, module, name.as_ptr())?;
    KERNELS.lock().loaded.insert(key, found.number());
    Ok(found)
}

/// Launches a registered kernel.
fn launch(function: u64, grid: Extent, block: Extent, stream: u64) -> Outcome {
    let function = load(function)?;
    let null = std::ptr::null_mut();
    forward!(
        launches::cuLaunchKernel,
        function,
        grid.x,
        grid.y,
        grid.z,
        block.x,
        block.y,
        block.z,
        0,
        handle(stream),
        null,
        null
    )
}

/// Writes a device pointer that a driver function allocated.
///
/// # Safety
/// `place` is null or live.
unsafe fn put_device(place: *mut *mut c_void, address: CUdeviceptr) -> Outcome {
    // SAFETY: the caller's promise.
    unsafe { put(place, std::ptr::with_exposed_provenance_mut(address as usize)) }
}

/// Copies through the driver's function of this direction (`cudaMemcpyKind`).
///
/// # Safety
/// Host memory has the bytes.
unsafe fn copy(to: *mut c_void, from: *const c_void, bytes: usize, direction: c_int) -> Outcome {
    match direction {
        1 => forward!(memory::cuMemcpyHtoD_v2, to.address(), from, bytes),
        2 => forward!(memory::cuMemcpyDtoH_v2, to, from.address(), bytes),
        3 => forward!(memory::cuMemcpyDtoD_v2, to.address(), from.address(), bytes),
        _ => forward!(memory::cuMemcpy, to.address(), from.address(), bytes),
    }
}

/// The same in stream order.
///
/// # Safety
/// As [`copy`].
unsafe fn copy_async(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    direction: c_int,
    stream: CUstream,
) -> Outcome {
    match direction {
        1 => forward!(memory::cuMemcpyHtoDAsync_v2, to.address(), from, bytes, stream),
        2 => forward!(memory::cuMemcpyDtoHAsync_v2, to, from.address(), bytes, stream),
        3 => forward!(memory::cuMemcpyDtoDAsync_v2, to.address(), from.address(), bytes, stream),
        _ => forward!(memory::cuMemcpyAsync, to.address(), from.address(), bytes, stream),
    }
}

runtime! {
    cudaRuntimeGetVersion(version: *mut c_int) || {
        // SAFETY: the caller passes a live place, or null.
        unsafe { put(version, 13_000) }
    };
    cudaGetDeviceCount(count: *mut c_int) || forward!(contexts::cuDeviceGetCount, count);
    cudaGetDevice(place: *mut c_int) || {
        // SAFETY: the caller passes a live place, or null.
        unsafe { put(place, DEVICE.get()) }
    };
    cudaDeviceSynchronize() || forward!(contexts::cuCtxSynchronize,);
    cudaDeviceReset() || forward!(contexts::cuDevicePrimaryCtxReset_v2, DEVICE.get());
    cudaMalloc(place: *mut *mut c_void, bytes: usize) || {
        let mut address = 0;
        forward!(memory::cuMemAlloc_v2, &mut address, bytes)?;
        // SAFETY: the caller passes a live place, or null.
        unsafe { put_device(place, address) }
    };
    cudaMallocAsync(place: *mut *mut c_void, bytes: usize, stream: CUstream) || {
        let mut address = 0;
        forward!(memory::cuMemAllocAsync, &mut address, bytes, stream)?;
        // SAFETY: the caller passes a live place, or null.
        unsafe { put_device(place, address) }
    };
    cudaMallocManaged(place: *mut *mut c_void, bytes: usize, flags: c_uint) || {
        let mut address = 0;
        forward!(memory::cuMemAllocManaged, &mut address, bytes, flags)?;
        // SAFETY: the caller passes a live place, or null.
        unsafe { put_device(place, address) }
    };
    cudaMallocHost(place: *mut *mut c_void, bytes: usize) || forward!(memory::cuMemAllocHost_v2, place, bytes);
    cudaFree(pointer: *mut c_void) || forward!(memory::cuMemFree_v2, pointer.address());
    cudaFreeAsync(pointer: *mut c_void, stream: CUstream) || forward!(memory::cuMemFreeAsync, pointer.address(), stream);
    cudaFreeHost(pointer: *mut c_void) || forward!(memory::cuMemFreeHost, pointer);
    cudaMemGetInfo(free: *mut usize, total: *mut usize) || forward!(memory::cuMemGetInfo_v2, free, total);
    cudaMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, direction: c_int) || {
        // SAFETY: the caller's memory has the bytes.
        unsafe { copy(to, from, bytes, direction) }
    };
    cudaMemcpyAsync(to: *mut c_void, from: *const c_void, bytes: usize, direction: c_int, stream: CUstream) || {
        // SAFETY: as above.
        unsafe { copy_async(to, from, bytes, direction, stream) }
    };
    cudaMemset(to: *mut c_void, value: c_int, count: usize) || {
        forward!(memory::cuMemsetD8_v2, to.address(), value as u8, count)
    };
    cudaMemsetAsync(to: *mut c_void, value: c_int, count: usize, stream: CUstream) || {
        forward!(memory::cuMemsetD8Async, to.address(), value as u8, count, stream)
    };
    cudaStreamCreate(place: *mut CUstream) || forward!(streams::cuStreamCreate, place, 0);
    cudaStreamCreateWithFlags(place: *mut CUstream, flags: c_uint) || forward!(streams::cuStreamCreate, place, flags);
    cudaStreamDestroy(stream: CUstream) || forward!(streams::cuStreamDestroy_v2, stream);
    cudaStreamSynchronize(stream: CUstream) || forward!(streams::cuStreamSynchronize, stream);
    cudaStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) || {
        forward!(streams::cuStreamWaitEvent, stream, event, flags)
    };
    cudaStreamBeginCapture(stream: CUstream, mode: CUstreamCaptureMode) || {
        forward!(streams::cuStreamBeginCapture_v2, stream, mode)
    };
    cudaStreamEndCapture(stream: CUstream, graph: *mut CUgraph) || {
        forward!(streams::cuStreamEndCapture, stream, graph)
    };
    cudaGraphInstantiate(exec: *mut CUgraphExec, graph: CUgraph, flags: u64) || {
        forward!(graphs::cuGraphInstantiateWithFlags, exec, graph, flags)
    };
    cudaGraphLaunch(exec: CUgraphExec, stream: CUstream) || forward!(graphs::cuGraphLaunch, exec, stream);
    cudaGraphDestroy(graph: CUgraph) || forward!(graphs::cuGraphDestroy, graph);
    cudaGraphExecDestroy(exec: CUgraphExec) || forward!(graphs::cuGraphExecDestroy, exec);
    cudaEventCreate(place: *mut CUevent) || forward!(streams::cuEventCreate, place, 0);
    cudaEventCreateWithFlags(place: *mut CUevent, flags: c_uint) || forward!(streams::cuEventCreate, place, flags);
    cudaEventDestroy(event: CUevent) || forward!(streams::cuEventDestroy_v2, event);
    cudaEventRecord(event: CUevent, stream: CUstream) || forward!(streams::cuEventRecord, event, stream);
    cudaEventSynchronize(event: CUevent) || forward!(streams::cuEventSynchronize, event);
    cudaEventElapsedTime(milliseconds: *mut f32, from: CUevent, to: CUevent) || {
        forward!(streams::cuEventElapsedTime_v2, milliseconds, from, to)
    };
    cudaProfilerStart() || forward!(contexts::cuProfilerStart,);
    cudaProfilerStop() || forward!(contexts::cuProfilerStop,);
    cudaDeviceGetAttribute(place: *mut c_int, which: c_int, device: c_int) || {
        forward!(contexts::cuDeviceGetAttribute, place, which, device)
    };
    cudaFuncGetAttributes(attributes: *mut FunctionAttributes, function: *const c_void) || {
        load(function.number())?;
        // SAFETY: the caller passes a live place, or null.
        unsafe { put(attributes, FunctionAttributes::of_any()) }
    };
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        place: *mut c_int, function: *const c_void, threads: c_int, shared: usize, flags: c_uint,
    ) || {
        let function = load(function.number())?;
        forward!(
            modules::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, place, function, threads, shared, flags
        )
    };
    cudaFuncSetAttribute(function: *const c_void, _attribute: c_int, _value: c_int) || load(function.number()).map(drop);
    cudaLaunchKernel(
        function: *const c_void, grid: Extent, block: Extent, _arguments: *mut *mut c_void, _shared: usize,
        stream: CUstream,
    ) || launch(function.number(), grid, block, stream.number());
}

/// `__cudaGetKernel`, by which newer start-up code finds a kernel: here the program's function itself.
///
/// # Safety
/// The place is live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __cudaGetKernel(
    place: *mut *const c_void,
    function: *const c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe { put(place, function) };
    found.err().unwrap_or(CUresult::CUDA_SUCCESS) as c_int
}

/// `__cudaLaunchKernel`: a launch by what `__cudaGetKernel` found. For CUPTI it is `cudaLaunchKernel`.
///
/// # Safety
/// As `cudaLaunchKernel`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __cudaLaunchKernel(
    kernel: *const c_void,
    grid: Extent,
    block: Extent,
    arguments: *mut *mut c_void,
    shared: usize,
    stream: CUstream,
) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { cudaLaunchKernel(kernel, grid, block, arguments, shared, stream) }
}

per_thread! {
    __cudaLaunchKernel_ptsz = __cudaLaunchKernel(
        kernel: *const c_void, grid: Extent, block: Extent, arguments: *mut *mut c_void, shared: usize; stream
    );
    cudaMallocAsync_ptsz = cudaMallocAsync(place: *mut *mut c_void, bytes: usize; stream);
    cudaFreeAsync_ptsz = cudaFreeAsync(pointer: *mut c_void; stream);
    cudaMemsetAsync_ptsz = cudaMemsetAsync(to: *mut c_void, value: c_int, count: usize; stream);
    cudaStreamSynchronize_ptsz = cudaStreamSynchronize(; stream);
}

/// `cudaGetErrorName`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetErrorName(error: c_int) -> *const c_char {
    cudaGetErrorString(error)
}

/// `__cudaRegisterVar`: a variable of the device, which no kernel of the fake reads.
///
/// # Safety
/// None is needed: nothing is read.
#[allow(clippy::too_many_arguments)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __cudaRegisterVar(
    _handle: *mut *mut c_void,
    _variable: *mut c_char,
    _address: *mut c_char,
    _name: *const c_char,
    _is_extern: c_int,
    _bytes: usize,
    _is_constant: c_int,
    _is_global: c_int,
) {
}

/// `cudaSetDevice`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaSetDevice(device: c_int) -> c_int {
    DEVICE.set(device);
    call::set_context(None);
    runtime("cudaSetDevice", Shape::NONE, || Ok(()))
}

/// `cudaGetLastError`: the last error of this thread, which is forgotten.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetLastError() -> c_int {
    LAST_ERROR.replace(0)
}

/// `cudaPeekAtLastError`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaPeekAtLastError() -> c_int {
    LAST_ERROR.get()
}

/// `cudaGetErrorString`: the name of the driver's error of this number, which has the same meaning.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetErrorString(error: c_int) -> *const c_char {
    let mut name = c"unknown error".as_ptr();
    // SAFETY: `name` is a live place.
    let _ = unsafe { init::cuGetErrorName(error as c_uint, &mut name) };
    if name.is_null() { c"unknown error".as_ptr() } else { name }
}

/// `__cudaRegisterFatBinary`, which nvcc's start-up code calls.
///
/// # Safety
/// None is needed: nothing is read.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __cudaRegisterFatBinary(_binary: *mut c_void) -> *mut *mut c_void {
    static HANDLE: usize = 0;
    (&raw const HANDLE).cast_mut().cast()
}

/// `__cudaRegisterFatBinaryEnd`.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __cudaRegisterFatBinaryEnd(_handle: *mut *mut c_void) {}

/// `__cudaUnregisterFatBinary`.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __cudaUnregisterFatBinary(_handle: *mut *mut c_void) {}

/// `__cudaRegisterFunction`: a kernel's name and the address by which the program launches it.
///
/// # Safety
/// The name ends in a NUL.
#[allow(clippy::too_many_arguments)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __cudaRegisterFunction(
    _handle: *mut *mut c_void,
    function: *const c_void,
    _device_function: *mut c_char,
    name: *const c_char,
    _thread_limit: c_int,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_dimensions: *mut c_void,
    _grid_dimensions: *mut c_void,
    _warp_size: *mut c_int,
) {
    // SAFETY: the caller passes text, or null.
    if let Ok(name) = unsafe { text(name) } {
        let name: &'static CStr = Box::leak(name.to_owned().into_boxed_c_str());
        KERNELS.lock().names.insert(function.number(), name);
    }
}

/// `__cudaPushCallConfiguration`, the first half of `<<<>>>`. The stream is passed on as it is.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaPushCallConfiguration(
    grid: Extent,
    block: Extent,
    shared: usize,
    stream: usize,
) -> c_uint {
    CONFIGURATION.set(Some((grid, block, shared, stream)));
    0
}

/// `__cudaPopCallConfiguration`.
///
/// # Safety
/// All places are live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __cudaPopCallConfiguration(
    grid: *mut Extent,
    block: *mut Extent,
    shared: *mut usize,
    stream: *mut usize,
) -> c_int {
    let Some((x, y, bytes, on)) = CONFIGURATION.take() else { return 1 };
    // SAFETY: the caller's promise.
    let grid = unsafe { put(grid, x) };
    // SAFETY: so is this.
    let block = unsafe { put(block, y) };
    // SAFETY: so is this.
    let shared = unsafe { put(shared, bytes) };
    // SAFETY: so is this.
    let stream = unsafe { put(stream, on) };
    c_int::from([grid, block, shared, stream].iter().any(Result::is_err))
}
