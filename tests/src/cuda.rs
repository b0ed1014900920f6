//! The CUDA driver calls that tests make, each checked, on one primary context.
//!
//! They are the raw calls, so that a test knows exactly what it asked for.

use std::ffi::{CStr, CString, c_void};
use std::sync::{Arc, OnceLock};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    self, CUcontext, CUdeviceptr, CUevent, CUfunction, CUgraphExec, CUresult, CUstream,
};

/// Why CUDA cannot be used here, or `None` if it can.
#[must_use]
pub fn unavailable() -> Option<String> {
    // SAFETY: opens and closes the library, whose initialisers are meant to run in any program.
    if !unsafe { sys::is_culib_present() } {
        return Some("the CUDA driver (libcuda) was not found".into());
    }
    match CudaContext::device_count() {
        Ok(0) => Some("the CUDA driver sees no GPU".into()),
        Ok(_) => None,
        Err(error) => Some(format!("the CUDA driver does not start: {:?}", error.0)),
    }
}

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

/// A CUDA handle. The driver takes them on any thread.
#[derive(Debug, Clone, Copy)]
pub struct Handle<T>(pub T);
// SAFETY: CUDA handles may be used on any thread; the driver synchronises.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

/// Host memory that the GPU copies from or to. Whoever makes one keeps the memory until the copies are done.
#[derive(Debug, Clone, Copy)]
pub struct Host(*mut c_void);

impl Host {
    /// Ordinary, pageable memory.
    #[must_use]
    pub fn pageable(memory: &mut [u8]) -> Self {
        Self(memory.as_mut_ptr().cast())
    }

    /// No memory, for copies of nothing.
    #[must_use]
    pub fn none() -> Self {
        Self(std::ptr::null_mut())
    }
}

/// A stream.
pub type Stream = Handle<CUstream>;

/// The default stream.
pub const DEFAULT: Stream = Handle(std::ptr::null_mut());

#[track_caller]
#[allow(clippy::panic)] // a test's call that fails fails the test
fn check(result: CUresult) {
    if result != CUresult::CUDA_SUCCESS {
        panic!("CUDA call failed: {result:?}");
    }
}

macro_rules! cuda {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the arguments are live places, live handles, or memory of the sizes told.
        let result = unsafe { sys::$function($($argument),*) };
        check(result);
    }};
}

impl Gpu {
    /// GPU 0. The first call loads the kernels.
    ///
    /// # Panics
    /// Where CUDA refuses.
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

    /// The same GPU in a new context, which is current on this thread then and is never destroyed.
    #[must_use]
    pub fn in_another_context(&self) -> Self {
        let mut context = std::ptr::null_mut();
        let ordinary = std::ptr::null_mut();
        cuda!(cuCtxCreate_v4(&mut context, ordinary, 0, self.context.cu_device()));
        Self::with_kernels(self.context.clone(), Handle(context))
    }

    /// Loads the kernels in the context that is current.
    fn with_kernels(context: Arc<CudaContext>, current: Handle<CUcontext>) -> Self {
        Self { context, current, empty: load(PTX, c"empty"), spin: load(PTX, c"spin") }
    }

    /// Another GPU, in its primary context, which is current on this thread then; `None` if there is no such GPU.
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

    /// Lets its context, which is current, reach the other's memory.
    pub fn enable_peer_access(&self, peer: &Self) {
        cuda!(cuCtxEnablePeerAccess(peer.current.0, 0));
    }

    /// Copies from a device to another, in stream order.
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

    /// Makes its context the current one of this thread.
    pub fn make_current(&self) {
        cuda!(cuCtxSetCurrent(self.current.0));
    }

    /// Destroys a stream.
    pub fn destroy(&self, stream: Stream) {
        cuda!(cuStreamDestroy_v2(stream.0));
    }

    /// A new stream that does not wait for the default one.
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

    /// Frees device memory.
    pub fn free(&self, memory: CUdeviceptr) {
        cuda!(cuMemFree_v2(memory));
    }

    /// Page-locked host memory, never freed.
    pub fn pinned(&self, bytes: usize) -> Host {
        let mut memory = std::ptr::null_mut();
        cuda!(cuMemAllocHost_v2(&mut memory, bytes));
        Host(memory)
    }

    /// (free, all) bytes of device memory.
    pub fn memory(&self) -> (usize, usize) {
        let (mut free, mut all) = (0, 0);
        cuda!(cuMemGetInfo_v2(&mut free, &mut all));
        (free, all)
    }

    /// Launches the kernel that does nothing.
    pub fn launch_empty(&self, stream: Stream) {
        let (no_arguments, no_extra) = (std::ptr::null_mut(), std::ptr::null_mut());
        cuda!(cuLaunchKernel(self.empty.0, 1, 1, 1, 32, 1, 1, 0, stream.0, no_arguments, no_extra));
    }

    /// The same, in a shape of one's own and with shared memory.
    pub fn launch_shaped(&self, stream: Stream, grid: [u32; 3], block: [u32; 3], shared: u32) {
        let (no_arguments, no_extra) = (std::ptr::null_mut(), std::ptr::null_mut());
        let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
        let (kernel, stream) = (self.empty.0, stream.0);
        cuda!(cuLaunchKernel(
            kernel,
            gx,
            gy,
            gz,
            bx,
            by,
            bz,
            shared,
            stream,
            no_arguments,
            no_extra
        ));
    }

    /// Loads a kernel of one's own into the context that is current.
    pub fn kernel(&self, ptx: &str, name: &CStr) -> Handle<CUfunction> {
        load(ptx, name)
    }

    /// Launches a kernel that takes one number.
    pub fn launch(
        &self,
        kernel: Handle<CUfunction>,
        stream: Stream,
        (grid, block, shared): ([u32; 3], [u32; 3], u32),
        number: u64,
    ) {
        let mut number = number;
        let mut arguments = [(&raw mut number).cast::<c_void>()];
        let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
        let (arguments, no_extra) = (arguments.as_mut_ptr(), std::ptr::null_mut());
        let (kernel, stream) = (kernel.0, stream.0);
        cuda!(cuLaunchKernel(kernel, gx, gy, gz, bx, by, bz, shared, stream, arguments, no_extra));
    }

    /// Device memory of the stream's pool, freed in stream order too.
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
        // SAFETY: the memory is managed and has as many bytes, so the CPU may write it while no GPU work does.
        unsafe { memory.write_bytes(value, bytes) };
    }

    /// Reads managed memory on the CPU; the GPU must be done with it.
    pub fn read_on_cpu(&self, managed: CUdeviceptr, bytes: usize) -> Vec<u8> {
        let memory = managed as usize as *const u8;
        // SAFETY: the memory is managed, has as many bytes, and has been written.
        unsafe { std::slice::from_raw_parts(memory, bytes) }.to_vec()
    }

    /// A call of the runtime API. The toolkit's library is opened for it; `false` where there is none.
    pub fn runtime_synchronize(&self) -> bool {
        let names = ["libcudart.so.13", "libcudart.so.12", "libcudart.so"];
        // SAFETY: the runtime's initialisers are meant to run in any program.
        let open = |name| unsafe { libloading::Library::new(name) }.ok();
        let Some(library) = names.into_iter().find_map(open) else { return false };
        // SAFETY: this is the function's type.
        let function =
            unsafe { library.get::<unsafe extern "C" fn() -> i32>(b"cudaDeviceSynchronize") };
        let called = function.is_ok_and(|function| {
            // SAFETY: it takes nothing.
            unsafe { function() == 0 }
        });
        // CUPTI keeps what it learnt of the library.
        std::mem::forget(library);
        called
    }

    /// Launches it with more threads than a block may have; gives the error.
    pub fn launch_wrongly(&self, stream: Stream) -> CUresult {
        let null = std::ptr::null_mut();
        // SAFETY: the driver checks the sizes and refuses; no kernel runs.
        unsafe {
            sys::cuLaunchKernel(
                self.empty.0,
                1,
                1,
                1,
                4096,
                1,
                1,
                0,
                stream.0,
                null,
                std::ptr::null_mut(),
            )
        }
    }

    /// Launches the kernel that runs for this long.
    pub fn launch_spin(&self, stream: Stream, nanoseconds: u64) {
        let mut nanoseconds = nanoseconds;
        let mut arguments = [(&raw mut nanoseconds).cast::<c_void>()];
        let no_extra = std::ptr::null_mut();
        cuda!(cuLaunchKernel(
            self.spin.0,
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            stream.0,
            arguments.as_mut_ptr(),
            no_extra
        ));
    }

    /// Copies to the device and returns when the source may be reused.
    pub fn copy_in(&self, to: CUdeviceptr, from: &[u8]) {
        cuda!(cuMemcpyHtoD_v2(to, from.as_ptr().cast(), from.len()));
    }

    /// Copies from the device.
    pub fn copy_out(&self, to: &mut [u8], from: CUdeviceptr) {
        cuda!(cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), from, to.len()));
    }

    /// Copies within the device.
    pub fn copy_within(&self, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) {
        cuda!(cuMemcpyDtoD_v2(to, from, bytes));
    }

    /// Copies from pinned memory to pinned memory.
    pub fn copy_on_host(&self, to: Host, from: Host, bytes: usize) {
        cuda!(cuMemcpy(to.0 as CUdeviceptr, from.0 as CUdeviceptr, bytes));
    }

    /// Copies through two CUDA arrays: from the host, to the other, to and from device memory, and to the host.
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

    /// Copies to the device in the order of a stream.
    pub fn copy_in_async(&self, to: CUdeviceptr, from: Host, bytes: usize, stream: Stream) {
        cuda!(cuMemcpyHtoDAsync_v2(to, from.0, bytes, stream.0));
    }

    /// Copies from the device in the order of a stream.
    pub fn copy_out_async(&self, to: Host, from: CUdeviceptr, bytes: usize, stream: Stream) {
        cuda!(cuMemcpyDtoHAsync_v2(to.0, from, bytes, stream.0));
    }

    /// Copies within the device in the order of a stream.
    pub fn copy_within_async(
        &self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
        stream: Stream,
    ) {
        cuda!(cuMemcpyDtoDAsync_v2(to, from, bytes, stream.0));
    }

    /// Fills with a byte.
    pub fn fill(&self, memory: CUdeviceptr, value: u8, bytes: usize) {
        cuda!(cuMemsetD8_v2(memory, value, bytes));
    }

    /// Fills with a byte in the order of a stream.
    pub fn fill_async(&self, memory: CUdeviceptr, value: u8, bytes: usize, stream: Stream) {
        cuda!(cuMemsetD8Async(memory, value, bytes, stream.0));
    }

    /// Fills a rectangle with a 32-bit value in the order of a stream.
    pub fn fill_2d_async(
        &self,
        memory: CUdeviceptr,
        pitch: usize,
        width: usize,
        height: usize,
        stream: Stream,
    ) {
        cuda!(cuMemsetD2D32Async(memory, pitch, 5, width, height, stream.0));
    }

    /// Waits for a stream.
    pub fn synchronize(&self, stream: Stream) {
        cuda!(cuStreamSynchronize(stream.0));
    }

    /// Waits for the context.
    pub fn synchronize_context(&self) {
        cuda!(cuCtxSynchronize());
    }

    /// Asks whether a stream is done.
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

    /// Records an event in a stream.
    pub fn record(&self, event: Handle<CUevent>, stream: Stream) {
        cuda!(cuEventRecord(event.0, stream.0));
    }

    /// Waits for an event.
    pub fn synchronize_event(&self, event: Handle<CUevent>) {
        cuda!(cuEventSynchronize(event.0));
    }

    /// Asks whether an event is done.
    pub fn event_is_done(&self, event: Handle<CUevent>) -> bool {
        // SAFETY: a live event.
        let result = unsafe { sys::cuEventQuery(event.0) };
        result == CUresult::CUDA_SUCCESS
    }

    /// Has a stream wait for an event.
    pub fn wait(&self, stream: Stream, event: Handle<CUevent>) {
        cuda!(cuStreamWaitEvent(stream.0, event.0, 0));
    }

    /// Nanoseconds between two events that are done.
    pub fn elapsed_ns(&self, from: Handle<CUevent>, to: Handle<CUevent>) -> f64 {
        let mut milliseconds = 0.0;
        cuda!(cuEventElapsedTime_v2(&mut milliseconds, from.0, to.0));
        f64::from(milliseconds) * 1e6
    }

    /// Captures what `work` asks of a stream into a graph, ready to launch.
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

    /// Destroys what [`capture`](Self::capture) gave.
    pub fn destroy_graph(&self, graph: Handle<CUgraphExec>) {
        cuda!(cuGraphExecDestroy(graph.0));
    }

    /// Launches a graph.
    pub fn launch_graph(&self, graph: Handle<CUgraphExec>, stream: Stream) {
        cuda!(cuGraphLaunch(graph.0, stream.0));
    }

    /// Tells profilers that what comes is of interest.
    pub fn profiler_start(&self) {
        cuda!(cuProfilerStart());
    }

    /// Tells them that it is over.
    pub fn profiler_stop(&self) {
        cuda!(cuProfilerStop());
    }

    /// Makes a context of its own, launches the empty kernel in it this often, and destroys it, waiting for nothing.
    pub fn launch_in_own_context(&self, launches: usize) {
        let mut context = std::ptr::null_mut();
        cuda!(cuCtxCreate_v4(&mut context, std::ptr::null_mut(), 0, 0));
        let empty = load(PTX, c"empty");
        for _ in 0..launches {
            let (no_arguments, no_extra) = (std::ptr::null_mut(), std::ptr::null_mut());
            let default = DEFAULT.0;
            cuda!(cuLaunchKernel(empty.0, 1, 1, 1, 32, 1, 1, 0, default, no_arguments, no_extra));
        }
        cuda!(cuCtxDestroy_v2(context));
        cuda!(cuCtxSetCurrent(self.context.cu_ctx()));
    }

    /// The kernels of these names in a module of PTX.
    #[allow(clippy::unwrap_used)] // as check
    pub fn load_ptx(&self, ptx: &str, names: &[String]) -> Vec<Handle<CUfunction>> {
        let image = CString::new(ptx).unwrap();
        let mut module = std::ptr::null_mut();
        cuda!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
        let function = |name: &String| {
            let name = CString::new(name.as_str()).unwrap();
            let mut function = std::ptr::null_mut();
            cuda!(cuModuleGetFunction(&mut function, module, name.as_ptr()));
            Handle(function)
        };
        names.iter().map(function).collect()
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

    /// Sets an attribute of a kernel.
    pub fn set_kernel_attribute(
        &self,
        kernel: Handle<CUfunction>,
        attribute: sys::CUfunction_attribute,
        value: i32,
    ) {
        cuda!(cuFuncSetAttribute(kernel.0, attribute, value));
    }

    /// An attribute of the device.
    pub fn device_attribute(&self, attribute: sys::CUdevice_attribute) -> i32 {
        let mut value = 0;
        cuda!(cuDeviceGetAttribute(&mut value, attribute, self.context.cu_device()));
        value
    }

    /// How many blocks of a kernel CUDA says a multiprocessor can have at once.
    #[must_use]
    pub fn blocks_per_multiprocessor(
        &self,
        kernel: Handle<CUfunction>,
        threads: u32,
        dynamic_shared: usize,
    ) -> u32 {
        let mut blocks = 0;
        let threads = threads.cast_signed();
        cuda!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &mut blocks,
            kernel.0,
            threads,
            dynamic_shared
        ));
        blocks.cast_unsigned()
    }

    /// Launches a kernel that takes an address.
    pub fn launch_with_address(
        &self,
        kernel: Handle<CUfunction>,
        (grid, block): (u32, u32),
        dynamic_shared: u32,
        address: CUdeviceptr,
    ) {
        let mut address = address;
        let mut arguments = [(&raw mut address).cast::<c_void>()];
        let (arguments, no_extra) = (arguments.as_mut_ptr(), std::ptr::null_mut());
        cuda!(cuLaunchKernel(
            kernel.0,
            grid,
            1,
            1,
            block,
            1,
            1,
            dynamic_shared,
            DEFAULT.0,
            arguments,
            no_extra
        ));
    }

    /// Resets the primary context, with all that was made in it. Nothing of this type may be used afterwards.
    pub fn reset(&self) {
        cuda!(cuDevicePrimaryCtxReset_v2(0));
    }
}

/// The kernel of this name in the current context.
#[allow(clippy::unwrap_used)] // as check
fn load(ptx: &str, name: &CStr) -> Handle<CUfunction> {
    let image = CString::new(ptx).unwrap();
    let mut module = std::ptr::null_mut();
    cuda!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
    let mut function = std::ptr::null_mut();
    cuda!(cuModuleGetFunction(&mut function, module, name.as_ptr()));
    Handle(function)
}
