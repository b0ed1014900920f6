//! The CUDA runtime API calls of tests, each checked. The toolkit's library is opened at run time.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;

use libloading::Library;

type Pointer = *mut c_void;

/// The runtime. Its library stays loaded, because CUPTI keeps pointers into it.
#[derive(Debug)]
pub struct Runtime {
    library: ManuallyDrop<Library>,
}

/// `dim3`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Extent {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

/// A pointer or handle of the runtime, valid on any thread.
#[derive(Debug, Clone, Copy)]
pub struct Object(Pointer);
// SAFETY: handles and memory of CUDA may be used on any thread; the runtime synchronises.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Object {
    /// A null pointer, which is also the default stream.
    pub const NULL: Object = Object(std::ptr::null_mut());

    /// Host memory. The caller keeps the memory alive until the copies end.
    #[must_use]
    pub fn host(memory: &mut [u8]) -> Object {
        Object(memory.as_mut_ptr().cast())
    }
}

/// `cudaMemcpyDefault`: the runtime infers the direction from the pointers.
const DEFAULT_DIRECTION: c_int = 4;

macro_rules! call {
    ($runtime:expr, $name:literal, $($kind:ty: $argument:expr),* $(,)?) => {{
        // SAFETY: this is the function's type.
        let function = unsafe {
            $runtime.library.get::<unsafe extern "C" fn($($kind),*) -> c_int>($name.as_bytes())
        };
        match function {
            // SAFETY: the arguments are pointers to live variables, live handles, or memory of at
            // least the given sizes.
            Ok(function) => check($name, unsafe { function($($argument),*) }),
            Err(error) => panic!("{}: {error}", $name),
        }
    }};
}

#[track_caller]
#[allow(clippy::panic)] // a failed call fails the test
fn check(name: &str, result: c_int) {
    if result != 0 {
        panic!("{name} failed: error {result}");
    }
}

#[allow(clippy::panic)] // as check
impl Runtime {
    /// Opens the library; `None` if it is not found.
    #[must_use]
    pub fn open() -> Option<Runtime> {
        let names = ["libcudart.so.13", "libcudart.so.12", "libcudart.so"];
        // SAFETY: the runtime's initialisers are meant to run in any program.
        let open = |name| unsafe { Library::new(name) }.ok();
        let library = names.into_iter().find_map(open)?;
        Some(Runtime { library: ManuallyDrop::new(library) })
    }

    /// `cudaMalloc`.
    pub fn malloc(&self, bytes: usize) -> Object {
        let mut memory = Object::NULL.0;
        call!(self, "cudaMalloc", *mut Pointer: &mut memory, usize: bytes);
        Object(memory)
    }

    /// `cudaFree`.
    pub fn free(&self, memory: Object) {
        call!(self, "cudaFree", Pointer: memory.0);
    }

    /// `cudaHostAlloc`.
    pub fn host_alloc(&self, bytes: usize) -> Object {
        let mut memory = Object::NULL.0;
        call!(self, "cudaHostAlloc", *mut Pointer: &mut memory, usize: bytes, c_uint: 0);
        Object(memory)
    }

    /// `cudaMemcpy`.
    pub fn memcpy(&self, to: Object, from: Object, bytes: usize) {
        let direction = DEFAULT_DIRECTION;
        call!(self, "cudaMemcpy", Pointer: to.0, Pointer: from.0, usize: bytes, c_int: direction);
    }

    /// `cudaMemcpyAsync`.
    pub fn memcpy_async(&self, to: Object, from: Object, bytes: usize, stream: Object) {
        let (to, from, stream, direction) = (to.0, from.0, stream.0, DEFAULT_DIRECTION);
        call!(self, "cudaMemcpyAsync", Pointer: to, Pointer: from, usize: bytes, c_int: direction, Pointer: stream);
    }

    /// `cudaMemset`.
    pub fn memset(&self, memory: Object, value: c_int, bytes: usize) {
        call!(self, "cudaMemset", Pointer: memory.0, c_int: value, usize: bytes);
    }

    /// `cudaMemsetAsync`.
    pub fn memset_async(&self, memory: Object, value: c_int, bytes: usize, stream: Object) {
        let (memory, stream) = (memory.0, stream.0);
        call!(self, "cudaMemsetAsync", Pointer: memory, c_int: value, usize: bytes, Pointer: stream);
    }

    /// `cudaStreamCreate`.
    pub fn stream(&self) -> Object {
        let mut stream = Object::NULL.0;
        call!(self, "cudaStreamCreate", *mut Pointer: &mut stream);
        Object(stream)
    }

    /// `cudaStreamSynchronize`.
    pub fn stream_synchronize(&self, stream: Object) {
        call!(self, "cudaStreamSynchronize", Pointer: stream.0);
    }

    /// `cudaDeviceSynchronize`.
    pub fn device_synchronize(&self) {
        call!(self, "cudaDeviceSynchronize",);
    }

    /// `cudaLibraryLoadData` and `cudaLibraryGetKernel`.
    #[allow(clippy::unwrap_used)] // as check
    pub fn kernel(&self, ptx: &str, name: &CStr) -> Object {
        let image = CString::new(ptx).unwrap();
        let (mut library, mut kernel, null) = (Object::NULL.0, Object::NULL.0, Object::NULL.0);
        call!(self, "cudaLibraryLoadData", *mut Pointer: &mut library, *const i8: image.as_ptr(),
            Pointer: null, Pointer: null, c_uint: 0, Pointer: null, Pointer: null, c_uint: 0);
        call!(self, "cudaLibraryGetKernel", *mut Pointer: &mut kernel, Pointer: library,
            *const i8: name.as_ptr());
        Object(kernel)
    }

    /// `cudaLaunchKernel` of a kernel that takes one number.
    pub fn launch(&self, kernel: Object, grid: u32, block: u32, number: u64, stream: Object) {
        let mut number = number;
        let mut arguments = [(&raw mut number).cast::<c_void>()];
        let extent = |x| Extent { x, y: 1, z: 1 };
        call!(self, "cudaLaunchKernel", Pointer: kernel.0, Extent: extent(grid), Extent: extent(block),
            *mut Pointer: arguments.as_mut_ptr(), usize: 0, Pointer: stream.0);
    }

    /// Captures the work that `work` submits to a stream into an executable graph.
    pub fn capture(&self, stream: Object, work: impl FnOnce()) -> Object {
        let (mut graph, mut executable) = (Object::NULL.0, Object::NULL.0);
        // cudaStreamCaptureModeThreadLocal
        call!(self, "cudaStreamBeginCapture", Pointer: stream.0, c_int: 1);
        work();
        call!(self, "cudaStreamEndCapture", Pointer: stream.0, *mut Pointer: &mut graph);
        call!(self, "cudaGraphInstantiate", *mut Pointer: &mut executable, Pointer: graph, u64: 0);
        Object(executable)
    }

    /// `cudaGraphLaunch`.
    pub fn launch_graph(&self, graph: Object, stream: Object) {
        call!(self, "cudaGraphLaunch", Pointer: graph.0, Pointer: stream.0);
    }
}
