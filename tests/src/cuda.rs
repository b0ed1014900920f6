//! The CUDA driver calls that tests make, each checked, on one primary context.
//!
//! These are raw driver calls, so that a test knows exactly which calls the profiler has to see.

use std::ffi::{CString, c_void};
use std::sync::{Arc, OnceLock};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    self, CUcontext, CUdeviceptr, CUevent, CUfunction, CUgraphExec, CUmodule, CUresult, CUstream,
};

use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};
pub use gpu_profiler_examples::mlp::driver_unavailable as unavailable;

/// Two kernels: one does nothing, one runs for a number of nanoseconds of the GPU's timer.
const PTX: &str = r"
.version 7.0
.target sm_70
.address_size 64
.visible .entry empty() { ret; }
.visible .entry spin(.param .u64 nanoseconds) {
    .reg .u64 %begin, %now, %passed, %wanted;
    .reg .pred %go_on;
    ld.param.u64 %wanted, [nanoseconds];
    mov.u64 %begin, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %passed, %now, %begin;
    setp.lt.u64 %go_on, %passed, %wanted;
    @%go_on bra again;
    ret;
}
";

/// The GPU, its primary context current on this thread, and two kernels.
#[derive(Debug, Clone)]
pub struct Gpu {
    context: Arc<CudaContext>,
    current: Handle<CUcontext>,
    empty: Handle<CUfunction>,
    spin: Handle<CUfunction>,
}

/// A CUDA handle. The driver accepts it on any thread.
#[derive(Debug, Clone, Copy)]
pub struct Handle<T>(pub T);
// SAFETY: CUDA handles may be used on any thread; the driver synchronises.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

/// Host memory that the GPU copies from or to. The caller keeps it alive until the copies end.
#[derive(Debug, Clone, Copy)]
pub struct Host(*mut c_void);

impl Host {
    /// Pageable memory.
    #[must_use]
    pub fn pageable(memory: &mut [u8]) -> Self {
        Self(memory.as_mut_ptr().cast())
    }

    /// A null pointer, for copies of 0 bytes.
    #[must_use]
    pub fn none() -> Self {
        Self(std::ptr::null_mut())
    }
}

/// A stream.
pub type Stream = Handle<CUstream>;

/// The grid, the block, and the bytes of dynamic shared memory of a launch.
pub type Shape = ([u32; 3], [u32; 3], u32);

/// The default stream.
pub const DEFAULT: Stream = Handle(std::ptr::null_mut());

#[track_caller]
#[allow(clippy::panic)] // a failed call fails the test
pub(crate) fn check(result: CUresult) {
    if result != CUresult::CUDA_SUCCESS {
        panic!("CUDA call failed: {result:?}");
    }
}

macro_rules! cuda {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the arguments are pointers to live variables, live handles, or memory of at least
        // the given sizes.
        let result = unsafe { sys::$function($($argument),*) };
        check(result);
    }};
}

impl Gpu {
    /// GPU 0. The first call loads the kernels.
    ///
    /// # Panics
    /// If a CUDA call fails.
    #[must_use]
    #[allow(clippy::unwrap_used)] // as check
    pub fn get() -> Self {
        static GPU: OnceLock<Gpu> = OnceLock::new();
        let gpu = GPU.get_or_init(|| {
            let context = CudaContext::new(0).unwrap();
            context.bind_to_thread().unwrap();
            let current = Handle(context.cu_ctx());
            Gpu::with_kernels(context, current)
        });
        gpu.context.bind_to_thread().unwrap();
        gpu.clone()
    }

    /// The same GPU in a new context, which becomes current on this thread and is never destroyed.
    #[must_use]
    pub fn in_another_context(&self) -> Self {
        let mut context = std::ptr::null_mut();
        let ordinary = std::ptr::null_mut();
        cuda!(cuCtxCreate_v4(&mut context, ordinary, 0, self.context.cu_device()));
        Self::with_kernels(self.context.clone(), Handle(context))
    }

    /// Loads the kernels in the current context.
    fn with_kernels(context: Arc<CudaContext>, current: Handle<CUcontext>) -> Self {
        Self { context, current, empty: load(PTX, "empty"), spin: load(PTX, "spin") }
    }

    /// Another GPU in its primary context, which becomes current on this thread, if it exists.
    #[allow(clippy::unwrap_used)] // as check
    pub fn other_device(&self, ordinal: usize) -> Option<Self> {
        if CudaContext::device_count().unwrap() as usize <= ordinal {
            return None;
        }
        let context = CudaContext::new(ordinal).unwrap();
        context.bind_to_thread().unwrap();
        let current = Handle(context.cu_ctx());
        Some(Self::with_kernels(context, current))
    }

    /// Copies from this device to another, in stream order.
    pub fn copy_to_peer(
        &self,
        (to, peer): (CUdeviceptr, &Self),
        from: CUdeviceptr,
        bytes: usize,
        stream: Stream,
    ) {
        let (there, here) = (peer.current.0, self.current.0);
        cuda!(cuMemcpyPeerAsync(to, there, from, here, bytes, stream.0));
    }

    /// Makes this context current on this thread.
    pub fn make_current(&self) {
        cuda!(cuCtxSetCurrent(self.current.0));
    }

    /// A new non-blocking stream.
    pub fn stream(&self) -> Stream {
        let mut stream = std::ptr::null_mut();
        cuda!(cuStreamCreate(&mut stream, 1));
        Handle(stream)
    }

    /// Device memory; freed by [`free`](Self::free).
    pub fn alloc(&self, bytes: usize) -> CUdeviceptr {
        let mut memory = 0;
        cuda!(cuMemAlloc_v2(&mut memory, bytes));
        memory
    }

    /// Page-locked host memory, never freed.
    pub fn pinned(&self, bytes: usize) -> Host {
        let mut memory = std::ptr::null_mut();
        cuda!(cuMemAllocHost_v2(&mut memory, bytes));
        Host(memory)
    }

    /// Free and total bytes of device memory.
    pub fn memory(&self) -> (usize, usize) {
        let (mut free, mut all) = (0, 0);
        cuda!(cuMemGetInfo_v2(&mut free, &mut all));
        (free, all)
    }

    /// Launches the kernel that does nothing.
    pub fn launch_empty(&self, stream: Stream) {
        self.launch_shaped(stream, ([1; 3], [32, 1, 1], 0));
    }

    /// Launches the kernel that does nothing in a given shape.
    pub fn launch_shaped(&self, stream: Stream, shape: Shape) {
        self.launch(self.empty, stream, shape, []);
    }

    /// Loads a kernel into the current context.
    pub fn kernel(&self, ptx: &str, name: &str) -> Handle<CUfunction> {
        load(ptx, name)
    }

    /// Launches a kernel with `N` parameters, which are numbers or addresses of at most 8 bytes.
    pub fn launch<const N: usize>(
        &self,
        kernel: Handle<CUfunction>,
        stream: Stream,
        shape: Shape,
        arguments: [u64; N],
    ) {
        check(launch(kernel, stream, shape, arguments));
    }

    /// Allocates and frees device memory in stream order; returns its former address.
    pub fn alloc_and_free_async(&self, bytes: usize, stream: Stream) -> CUdeviceptr {
        let mut memory = 0;
        cuda!(cuMemAllocAsync(&mut memory, bytes, stream.0));
        cuda!(cuMemFreeAsync(memory, stream.0));
        memory
    }

    /// Managed memory.
    pub fn alloc_managed(&self, bytes: usize) -> CUdeviceptr {
        let mut memory = 0;
        cuda!(cuMemAllocManaged(&mut memory, bytes, 1));
        memory
    }

    /// Fills managed memory on the CPU; the GPU must be done with it.
    pub fn fill_on_cpu(&self, managed: CUdeviceptr, value: u8, bytes: usize) {
        let memory = managed as usize as *mut u8;
        // SAFETY: the memory is managed and has as many bytes, so the CPU may write it while no GPU
        // work does.
        unsafe { memory.write_bytes(value, bytes) };
    }

    /// Reads managed memory on the CPU; the GPU must be done with it.
    pub fn read_on_cpu(&self, managed: CUdeviceptr, bytes: usize) -> Vec<u8> {
        let memory = managed as usize as *const u8;
        // SAFETY: the memory is managed, has as many bytes, and has been written.
        unsafe { std::slice::from_raw_parts(memory, bytes) }.to_vec()
    }

    /// Launches the empty kernel with more threads than a block may have; returns the error.
    pub fn launch_wrongly(&self, stream: Stream) -> CUresult {
        launch(self.empty, stream, ([1; 3], [4096, 1, 1], 0), [])
    }

    /// Launches the kernel that runs for this long.
    pub fn launch_spin(&self, stream: Stream, nanoseconds: u64) {
        self.launch(self.spin, stream, ([1; 3], [1; 3], 0), [nanoseconds]);
    }

    /// Copies from the host through two CUDA arrays and device memory back to the host.
    pub fn copy_through_arrays(&self, memory: CUdeviceptr, host: &mut [u8]) {
        let format = sys::CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8;
        let wanted = sys::CUDA_ARRAY_DESCRIPTOR {
            Width: host.len(),
            Height: 0,
            Format: format,
            NumChannels: 1,
        };
        let (mut a, mut b) = (std::ptr::null_mut(), std::ptr::null_mut());
        cuda!(cuArrayCreate_v2(&mut a, &wanted));
        cuda!(cuArrayCreate_v2(&mut b, &wanted));
        cuda!(cuMemcpyHtoA_v2(a, 0, host.as_ptr().cast(), host.len()));
        cuda!(cuMemcpyAtoA_v2(b, 0, a, 0, host.len()));
        cuda!(cuMemcpyAtoD_v2(memory, b, 0, host.len()));
        cuda!(cuMemcpyDtoA_v2(a, 0, memory, host.len()));
        cuda!(cuMemcpyAtoH_v2(host.as_mut_ptr().cast(), a, 0, host.len()));
        cuda!(cuArrayDestroy(a));
        cuda!(cuArrayDestroy(b));
    }

    /// True if all work of a stream has completed.
    pub fn is_done(&self, stream: Stream) -> bool {
        // SAFETY: a live stream.
        let result = unsafe { sys::cuStreamQuery(stream.0) };
        result == CUresult::CUDA_SUCCESS
    }

    /// A new event.
    pub fn event(&self) -> Handle<CUevent> {
        let mut event = std::ptr::null_mut();
        cuda!(cuEventCreate(&mut event, 0));
        Handle(event)
    }

    /// True if an event has completed.
    pub fn event_is_done(&self, event: Handle<CUevent>) -> bool {
        // SAFETY: a live event.
        let result = unsafe { sys::cuEventQuery(event.0) };
        result == CUresult::CUDA_SUCCESS
    }

    /// Nanoseconds between two completed events.
    pub fn elapsed_ns(&self, from: Handle<CUevent>, to: Handle<CUevent>) -> f64 {
        let mut milliseconds = 0.0;
        cuda!(cuEventElapsedTime_v2(&mut milliseconds, from.0, to.0));
        f64::from(milliseconds) * 1e6
    }

    /// Captures the work that `work` submits to a stream into an executable graph.
    pub fn capture(&self, stream: Stream, work: impl FnOnce()) -> Handle<CUgraphExec> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        cuda!(cuStreamBeginCapture_v2(stream.0, mode));
        work();
        let mut graph = std::ptr::null_mut();
        cuda!(cuStreamEndCapture(stream.0, &mut graph));
        let mut executable = std::ptr::null_mut();
        cuda!(cuGraphInstantiateWithFlags(&mut executable, graph, 0));
        cuda!(cuGraphDestroy(graph));
        Handle(executable)
    }

    /// Launches the empty kernel `launches` times in a new context, destroyed without a wait.
    pub fn launch_in_own_context(&self, launches: usize) {
        let mut context = std::ptr::null_mut();
        cuda!(cuCtxCreate_v4(&mut context, std::ptr::null_mut(), 0, 0));
        let empty = load(PTX, "empty");
        (0..launches).for_each(|_| self.launch(empty, DEFAULT, ([1; 3], [32, 1, 1], 0), []));
        cuda!(cuCtxDestroy_v2(context));
        cuda!(cuCtxSetCurrent(self.context.cu_ctx()));
    }

    /// Compiles a source for this device, with line tables.
    #[allow(clippy::panic)] // an error fails the test
    pub fn compile_with_lines<const N: usize>(
        &self,
        file: &str,
        source: &str,
        names: [&str; N],
    ) -> [Handle<CUfunction>; N] {
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        };
        let (major, minor) = (self.device_attribute(MAJOR), self.device_attribute(MINOR));
        let architecture = format!("--gpu-architecture=compute_{major}{minor}");
        let options = vec!["--generate-line-info".to_owned(), architecture];
        let options = CompileOptions { options, name: Some(file.to_owned()), ..Default::default() };
        match compile_ptx_with_opts(source, options) {
            Ok(ptx) => self.load_ptx_with_lines(&ptx.to_src(), names),
            Err(error) => panic!("{file} does not compile: {error:?}"),
        }
    }

    /// The kernels of these names in a module of PTX, which the driver compiles with a line table.
    pub fn load_ptx_with_lines<const N: usize>(
        &self,
        ptx: &str,
        names: [&str; N],
    ) -> [Handle<CUfunction>; N] {
        let module = load_module_with_lines(ptx);
        names.map(|name| function(module, name))
    }

    /// The kernels of these names in a module of PTX.
    pub fn load_ptx(&self, ptx: &str, names: &[String]) -> Vec<Handle<CUfunction>> {
        let module = load_module(ptx);
        names.iter().map(|name| function(module, name)).collect()
    }

    /// An attribute of a kernel.
    #[must_use]
    pub fn kernel_attribute(
        &self,
        kernel: Handle<CUfunction>,
        attribute: sys::CUfunction_attribute,
    ) -> i32 {
        let mut value = 0;
        cuda!(cuFuncGetAttribute(&mut value, attribute, kernel.0));
        value
    }

    /// An attribute of the device.
    pub fn device_attribute(&self, attribute: sys::CUdevice_attribute) -> i32 {
        let mut value = 0;
        cuda!(cuDeviceGetAttribute(&mut value, attribute, self.context.cu_device()));
        value
    }

    /// How many blocks of a kernel fit on a multiprocessor at once, according to CUDA.
    #[must_use]
    pub fn blocks_per_multiprocessor(
        &self,
        kernel: Handle<CUfunction>,
        threads: u32,
        dynamic_shared: usize,
    ) -> u32 {
        let mut blocks = 0;
        let threads = threads.cast_signed();
        let (kernel, shared) = (kernel.0, dynamic_shared);
        cuda!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, kernel, threads, shared));
        blocks.cast_unsigned()
    }
}

/// Declares methods that make one driver call each.
macro_rules! calls {
    ($(#[doc = $doc:literal] $name:ident($($argument:ident: $type:ty),*) = $function:ident($($value:expr),*);)+) => {
        impl Gpu {$(
            #[doc = $doc]
            pub fn $name(&self, $($argument: $type),*) {
                cuda!($function($($value),*));
            }
        )+}
    };
}

calls! {
    /// Destroys a stream.
    destroy(stream: Stream) = cuStreamDestroy_v2(stream.0);
    /// Frees device memory.
    free(memory: CUdeviceptr) = cuMemFree_v2(memory);
    /// Copies to the device and returns when the source may be reused.
    copy_in(to: CUdeviceptr, from: &[u8]) = cuMemcpyHtoD_v2(to, from.as_ptr().cast(), from.len());
    /// Copies from the device.
    copy_out(to: &mut [u8], from: CUdeviceptr) = cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), from, to.len());
    /// Copies within the device.
    copy_within(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) = cuMemcpyDtoD_v2(to, from, bytes);
    /// Copies from pinned memory to pinned memory.
    copy_on_host(to: Host, from: Host, bytes: usize) = cuMemcpy(to.0 as CUdeviceptr, from.0 as CUdeviceptr, bytes);
    /// Copies to the device in stream order.
    copy_in_async(to: CUdeviceptr, from: Host, bytes: usize, stream: Stream) = cuMemcpyHtoDAsync_v2(to, from.0, bytes, stream.0);
    /// Copies from the device in stream order.
    copy_out_async(to: Host, from: CUdeviceptr, bytes: usize, stream: Stream) = cuMemcpyDtoHAsync_v2(to.0, from, bytes, stream.0);
    /// Copies within the device in stream order.
    copy_within_async(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: Stream) = cuMemcpyDtoDAsync_v2(to, from, bytes, stream.0);
    /// Fills with a byte.
    fill(memory: CUdeviceptr, value: u8, bytes: usize) = cuMemsetD8_v2(memory, value, bytes);
    /// Fills with a byte in stream order.
    fill_async(memory: CUdeviceptr, value: u8, bytes: usize, stream: Stream) = cuMemsetD8Async(memory, value, bytes, stream.0);
    /// Fills a rectangle with a 32-bit value in stream order.
    fill_2d_async(memory: CUdeviceptr, pitch: usize, width: usize, height: usize, stream: Stream) = cuMemsetD2D32Async(memory, pitch, 5, width, height, stream.0);
    /// Waits for a stream.
    synchronize(stream: Stream) = cuStreamSynchronize(stream.0);
    /// Waits for the context.
    synchronize_context() = cuCtxSynchronize();
    /// Records an event in a stream.
    record(event: Handle<CUevent>, stream: Stream) = cuEventRecord(event.0, stream.0);
    /// Waits for an event.
    synchronize_event(event: Handle<CUevent>) = cuEventSynchronize(event.0);
    /// Makes a stream wait for an event.
    wait(stream: Stream, event: Handle<CUevent>) = cuStreamWaitEvent(stream.0, event.0, 0);
    /// Destroys a graph of [`capture`](Self::capture).
    destroy_graph(graph: Handle<CUgraphExec>) = cuGraphExecDestroy(graph.0);
    /// Launches a graph.
    launch_graph(graph: Handle<CUgraphExec>, stream: Stream) = cuGraphLaunch(graph.0, stream.0);
    /// Begins the part of the program that profilers record.
    profiler_start() = cuProfilerStart();
    /// Ends the part of the program that profilers record.
    profiler_stop() = cuProfilerStop();
    /// Resets the primary context with everything in it. No value of this type is usable then.
    reset() = cuDevicePrimaryCtxReset_v2(0);
    /// Sets an attribute of a kernel.
    set_kernel_attribute(kernel: Handle<CUfunction>, attribute: sys::CUfunction_attribute, value: i32) = cuFuncSetAttribute(kernel.0, attribute, value);
    /// Lets this context, which must be current, access the memory of `peer`.
    enable_peer_access(peer: &Self) = cuCtxEnablePeerAccess(peer.current.0, 0);
}

/// Launches a kernel with `N` parameters, which are numbers or addresses of at most 8 bytes.
pub(crate) fn launch<const N: usize>(
    kernel: Handle<CUfunction>,
    stream: Stream,
    (grid, block, shared): Shape,
    mut arguments: [u64; N],
) -> CUresult {
    let mut pointers = arguments.each_mut().map(|argument| std::ptr::from_mut(argument).cast());
    let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
    let (kernel, stream, pointers) = (kernel.0, stream.0, pointers.as_mut_ptr());
    let no_extra: *mut *mut c_void = std::ptr::null_mut();
    // SAFETY: the kernel is live and has N parameters of at most 8 bytes, each with a pointer to a
    // live number that is read during the call; the driver checks the sizes; memory behind
    // addresses is the caller's.
    unsafe {
        sys::cuLaunchKernel(kernel, gx, gy, gz, bx, by, bz, shared, stream, pointers, no_extra)
    }
}

/// Loads a kernel into the current context.
fn load(ptx: &str, name: &str) -> Handle<CUfunction> {
    function(load_module(ptx), name)
}

/// Loads PTX into the current context.
#[allow(clippy::unwrap_used)] // as check
pub(crate) fn load_module(ptx: &str) -> CUmodule {
    let image = CString::new(ptx).unwrap();
    let mut module = std::ptr::null_mut();
    cuda!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
    module
}

/// Loads PTX into the current context, with a line table.
#[allow(clippy::unwrap_used)] // as check
fn load_module_with_lines(ptx: &str) -> CUmodule {
    let image = CString::new(ptx).unwrap();
    let mut module = std::ptr::null_mut();
    let mut option = sys::CUjit_option::CU_JIT_GENERATE_LINE_INFO;
    // The driver reads the number from the pointer's value.
    let mut on: *mut c_void = std::ptr::without_provenance_mut(1);
    cuda!(cuModuleLoadDataEx(&mut module, image.as_ptr().cast(), 1, &mut option, &mut on));
    module
}

/// A kernel of a module.
#[allow(clippy::unwrap_used)] // as check
pub(crate) fn function(module: CUmodule, name: &str) -> Handle<CUfunction> {
    let name = CString::new(name).unwrap();
    let mut function = std::ptr::null_mut();
    cuda!(cuModuleGetFunction(&mut function, module, name.as_ptr()));
    Handle(function)
}
