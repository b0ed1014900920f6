//! cuBLAS and cuRAND, as far as frameworks call them: a product or a generation is one kernel on the calling thread, in the
//! stream of its handle, and changes no memory.

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_longlong, c_uint, c_ulonglong, c_void};
use std::sync::LazyLock;

use cudarc::cublas::sys::{
    cublasComputeType_t, cublasGemmAlgo_t, cublasHandle_t, cublasMath_t, cublasOperation_t,
    cublasStatus_t, cudaDataType, cudaStream_t,
};
use cudarc::curand::sys::{curandGenerator_t, curandRngType, curandStatus};
use cudarc::driver::sys::{CUfunction, CUmodule, CUresult, CUstream};
use parking_lot::Mutex;

use super::{Pointer as _, handle, launches, modules, put};
use crate::call::{self, Outcome};

/// Threads of a block, and elements that a block computes in each direction.
const TILE: u32 = 64;

static HANDLES: LazyLock<Mutex<Handles>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Handles {
    last: u64,
    /// The streams of handles and generators.
    streams: HashMap<u64, usize>,
    /// Kernels by name and context.
    kernels: HashMap<(&'static CStr, u32), usize>,
}

/// A new handle with the default stream.
fn create() -> Outcome<u64> {
    call::context()?;
    let mut handles = HANDLES.lock();
    handles.last += 1;
    let handle = handles.last;
    handles.streams.insert(handle, 0);
    Ok(handle)
}

fn destroy(of: u64) -> Outcome {
    HANDLES.lock().streams.remove(&of).map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

fn set_stream(of: u64, stream: usize) -> Outcome {
    let mut handles = HANDLES.lock();
    let known = handles.streams.get_mut(&of).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    *known = stream;
    Ok(())
}

fn stream(of: u64) -> Outcome<usize> {
    HANDLES.lock().streams.get(&of).copied().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// The driver's function of this name, loaded into the current context.
fn kernel(name: &'static CStr) -> Outcome<CUfunction> {
    let key = (name, call::context()?);
    let loaded = HANDLES.lock().kernels.get(&key).copied();
    if let Some(loaded) = loaded {
        return Ok(std::ptr::without_provenance_mut(loaded));
    }
    let done = |result| if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(result) };
    let mut module: CUmodule = std::ptr::null_mut();
    // SAFETY: `module` is a live place, and the fake reads no image.
    done(unsafe { modules::cuModuleLoadData(&mut module, std::ptr::null()) })?;
    let mut function: CUfunction = std::ptr::null_mut();
    // SAFETY: `function` is a live place, and the name ends in a NUL.
    done(unsafe { modules::cuModuleGetFunction(&mut function, module, name.as_ptr()) })?;
    HANDLES.lock().kernels.insert(key, function.addr());
    Ok(function)
}

/// Launches a kernel over `columns` by `rows` by `batches` elements in the stream of the handle. Nothing is launched for none.
fn launch(of: u64, name: &'static CStr, [columns, rows, batches]: [u64; 3]) -> Outcome {
    let stream: CUstream = std::ptr::without_provenance_mut(stream(of)?);
    if columns == 0 || rows == 0 || batches == 0 {
        return Ok(());
    }
    let blocks =
        |elements: u64| c_uint::try_from(elements.div_ceil(TILE.into())).unwrap_or(c_uint::MAX);
    let (function, null) = (kernel(name)?, std::ptr::null_mut());
    let (x, y, z) =
        (blocks(columns), blocks(rows), c_uint::try_from(batches).unwrap_or(c_uint::MAX));
    // SAFETY: the function is one of the driver's, and the fake reads no arguments.
    let result =
        unsafe { launches::cuLaunchKernel(function, x, y, z, TILE, 1, 1, 0, stream, null, null) };
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(result) }
}

fn size(of: c_int) -> u64 {
    u64::try_from(of).unwrap_or(0)
}

fn blas(result: Outcome) -> cublasStatus_t {
    match result {
        Ok(()) => cublasStatus_t::CUBLAS_STATUS_SUCCESS,
        Err(CUresult::CUDA_ERROR_INVALID_HANDLE) => cublasStatus_t::CUBLAS_STATUS_NOT_INITIALIZED,
        Err(_) => cublasStatus_t::CUBLAS_STATUS_EXECUTION_FAILED,
    }
}

fn rand(result: Outcome) -> curandStatus {
    match result {
        Ok(()) => curandStatus::CURAND_STATUS_SUCCESS,
        Err(CUresult::CUDA_ERROR_INVALID_HANDLE) => curandStatus::CURAND_STATUS_NOT_INITIALIZED,
        Err(_) => curandStatus::CURAND_STATUS_LAUNCH_FAILURE,
    }
}

/// Declares functions, each with the type that cudarc declares for it.
macro_rules! library {
    ($module:path, $status:ident, $result:ident; $(
        $name:ident($($argument:ident: $type:ty),* $(,)?) $body:expr;
    )*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As the library documents the function.
        #[allow(clippy::too_many_arguments)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> $status {
            $result($body)
        }

        const _: unsafe fn($($type),*) -> $status = {
            use $module as library;
            library::$name
        };
    )*};
}

type Op = cublasOperation_t;
type Floats = *const f32;
type Doubles = *const f64;
type Bytes = *const c_void;

library! { cudarc::cublas::sys, cublasStatus_t, blas;
    cublasCreate_v2(place: *mut cublasHandle_t) create().and_then(|new| {
        // SAFETY: the caller passes a live place, or null.
        unsafe { put(place, handle(new)) }
    });
    cublasDestroy_v2(of: cublasHandle_t) destroy(of.number());
    cublasSetStream_v2(of: cublasHandle_t, stream: cudaStream_t) set_stream(of.number(), stream.addr());
    cublasGetStream_v2(of: cublasHandle_t, place: *mut cudaStream_t) stream(of.number()).and_then(|stream| {
        // SAFETY: the caller passes a live place, or null.
        unsafe { put(place, std::ptr::without_provenance_mut(stream)) }
    });
    cublasSetWorkspace_v2(of: cublasHandle_t, _workspace: *mut c_void, _bytes: usize) stream(of.number()).map(drop);
    cublasSetMathMode(of: cublasHandle_t, _mode: cublasMath_t) stream(of.number()).map(drop);
    cublasSgemm_v2(
        of: cublasHandle_t, _a: Op, _b: Op, m: c_int, n: c_int, _k: c_int, _alpha: Floats, _x: Floats, _ldx: c_int,
        _y: Floats, _ldy: c_int, _beta: Floats, _z: *mut f32, _ldz: c_int,
    ) launch(of.number(), c"fake_sgemm", [size(m), size(n), 1]);
    cublasDgemm_v2(
        of: cublasHandle_t, _a: Op, _b: Op, m: c_int, n: c_int, _k: c_int, _alpha: Doubles, _x: Doubles, _ldx: c_int,
        _y: Doubles, _ldy: c_int, _beta: Doubles, _z: *mut f64, _ldz: c_int,
    ) launch(of.number(), c"fake_dgemm", [size(m), size(n), 1]);
    cublasGemmEx(
        of: cublasHandle_t, _a: Op, _b: Op, m: c_int, n: c_int, _k: c_int, _alpha: Bytes, _x: Bytes, _xt: cudaDataType,
        _ldx: c_int, _y: Bytes, _yt: cudaDataType, _ldy: c_int, _beta: Bytes, _z: *mut c_void, _zt: cudaDataType,
        _ldz: c_int, _compute: cublasComputeType_t, _algorithm: cublasGemmAlgo_t,
    ) launch(of.number(), c"fake_gemm", [size(m), size(n), 1]);
    cublasSgemmStridedBatched(
        of: cublasHandle_t, _a: Op, _b: Op, m: c_int, n: c_int, _k: c_int, _alpha: Floats, _x: Floats, _ldx: c_int,
        _sx: c_longlong, _y: Floats, _ldy: c_int, _sy: c_longlong, _beta: Floats, _z: *mut f32, _ldz: c_int,
        _sz: c_longlong, batches: c_int,
    ) launch(of.number(), c"fake_sgemm_batched", [size(m), size(n), size(batches)]);
    cublasDgemmStridedBatched(
        of: cublasHandle_t, _a: Op, _b: Op, m: c_int, n: c_int, _k: c_int, _alpha: Doubles, _x: Doubles, _ldx: c_int,
        _sx: c_longlong, _y: Doubles, _ldy: c_int, _sy: c_longlong, _beta: Doubles, _z: *mut f64, _ldz: c_int,
        _sz: c_longlong, batches: c_int,
    ) launch(of.number(), c"fake_dgemm_batched", [size(m), size(n), size(batches)]);
    cublasGemmStridedBatchedEx(
        of: cublasHandle_t, _a: Op, _b: Op, m: c_int, n: c_int, _k: c_int, _alpha: Bytes, _x: Bytes, _xt: cudaDataType,
        _ldx: c_int, _sx: c_longlong, _y: Bytes, _yt: cudaDataType, _ldy: c_int, _sy: c_longlong, _beta: Bytes,
        _z: *mut c_void, _zt: cudaDataType, _ldz: c_int, _sz: c_longlong, batches: c_int,
        _compute: cublasComputeType_t, _algorithm: cublasGemmAlgo_t,
    ) launch(of.number(), c"fake_gemm_batched", [size(m), size(n), size(batches)]);
}

library! { cudarc::curand::sys, curandStatus, rand;
    curandCreateGenerator(place: *mut curandGenerator_t, _kind: curandRngType) create().and_then(|new| {
        // SAFETY: the caller passes a live place, or null.
        unsafe { put(place, handle(new)) }
    });
    curandDestroyGenerator(of: curandGenerator_t) destroy(of.number());
    curandSetPseudoRandomGeneratorSeed(of: curandGenerator_t, _seed: c_ulonglong) stream(of.number()).map(drop);
    curandSetStream(of: curandGenerator_t, stream: cudarc::curand::sys::cudaStream_t) {
        set_stream(of.number(), stream.addr())
    };
    curandGenerateUniform(of: curandGenerator_t, _place: *mut f32, count: usize) {
        launch(of.number(), c"fake_uniform", [count as u64, 1, 1])
    };
    curandGenerateUniformDouble(of: curandGenerator_t, _place: *mut f64, count: usize) {
        launch(of.number(), c"fake_uniform_double", [count as u64, 1, 1])
    };
    curandGenerateNormal(of: curandGenerator_t, _place: *mut f32, count: usize, _mean: f32, _deviation: f32) {
        launch(of.number(), c"fake_normal", [count as u64, 1, 1])
    };
    curandGenerateNormalDouble(of: curandGenerator_t, _place: *mut f64, count: usize, _mean: f64, _deviation: f64) {
        launch(of.number(), c"fake_normal_double", [count as u64, 1, 1])
    };
}
