//! Initialisation, the injection library, functions by name, errors by number.

use std::collections::HashMap;
use std::env;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::mem;
use std::sync::LazyLock;

use cudarc::driver::sys::{CUdriverProcAddressQueryResult, CUresult, CUuuid};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::{contexts, graphs, launches, memory, modules, put, put_if_wanted, streams, text};
use crate::call;

/// CUDA 13.0.
const VERSION: c_int = 13_000;

/// `cuInit`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuInit(flags: c_uint) -> CUresult {
    if flags != 0 {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    call::initialize(inject).err().unwrap_or(CUresult::CUDA_SUCCESS)
}

/// Loads the injection library and calls it. One that cannot be loaded or has no such function is left out.
fn inject() {
    let Some(path) = env::var_os("CUDA_INJECTION64_PATH").filter(|path| !path.is_empty()) else {
        return;
    };
    // SAFETY: whoever set the variable says that its initialisers may run in this process.
    let Ok(library) = (unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }) else { return };
    // SAFETY: CUDA documents this type for the function of this name.
    let function =
        unsafe { library.get::<unsafe extern "C" fn() -> c_int>(b"InitializeInjection") };
    if let Ok(function) = function {
        // SAFETY: it is called once in a process, as CUDA documents.
        let _ = unsafe { function() };
    }
    mem::forget(library);
}

/// `cuDriverGetVersion`, which may be called before `cuInit`.
///
/// # Safety
/// As CUDA documents the function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> CUresult {
    // SAFETY: the caller passes a live place, or null.
    let result = unsafe { put(version, VERSION) };
    result.err().unwrap_or(CUresult::CUDA_SUCCESS)
}

/// The functions by name without a version, with the version of each.
static FUNCTIONS: LazyLock<HashMap<&str, Vec<(u32, usize)>>> = LazyLock::new(|| {
    let own: [(&str, usize); 5] = [
        ("cuInit", cuInit as *const () as usize),
        ("cuDriverGetVersion", cuDriverGetVersion as *const () as usize),
        ("cuGetProcAddress_v2", cuGetProcAddress_v2 as *const () as usize),
        ("cuGetErrorName", cuGetErrorName as *const () as usize),
        ("cuGetErrorString", cuGetErrorString as *const () as usize),
    ];
    let groups = [
        contexts::symbols(),
        contexts::older_symbols(),
        graphs::symbols(),
        graphs::older_symbols(),
        launches::symbols(),
        memory::symbols(),
        modules::symbols(),
        streams::symbols(),
        streams::older_symbols(),
    ];
    let mut functions: HashMap<&str, Vec<(u32, usize)>> = HashMap::new();
    for (name, address) in own.into_iter().chain(groups.into_iter().flatten()) {
        let versioned = name.rsplit_once("_v");
        let found = versioned.and_then(|(name, version)| Some((name, version.parse().ok()?)));
        let (name, version) = found.unwrap_or((name, 1));
        functions.entry(name).or_default().push((version, address));
    }
    functions
});

/// `cuGetProcAddress_v2`, which may be called before `cuInit`: the newest version of the function that there is here.
///
/// # Safety
/// As CUDA documents the function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    function: *mut *mut c_void,
    _version: c_int,
    _flags: u64,
    status: *mut CUdriverProcAddressQueryResult,
) -> CUresult {
    // SAFETY: the caller passes text, or null.
    let found = unsafe { text(symbol) }.map(|symbol| {
        let versions = symbol.to_str().ok().and_then(|symbol| FUNCTIONS.get(symbol));
        versions.and_then(|versions| versions.iter().max()).map(|(_, address)| *address)
    });
    let (address, seen, result) = match found {
        Err(error) => return error,
        Ok(Some(address)) => (
            address,
            CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS,
            CUresult::CUDA_SUCCESS,
        ),
        Ok(None) => (
            0,
            CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
            CUresult::CUDA_ERROR_NOT_FOUND,
        ),
    };
    // SAFETY: the caller passes a live place, or null.
    unsafe { put_if_wanted(status, seen) };
    // SAFETY: so is this.
    let written = unsafe { put(function, std::ptr::with_exposed_provenance_mut(address)) };
    written.err().unwrap_or(result)
}

/// `cuGetProcAddress` of before 12.0.
///
/// # Safety
/// As CUDA documents the function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetProcAddress(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> CUresult {
    // SAFETY: the caller's own arguments; no status is wanted.
    unsafe { cuGetProcAddress_v2(symbol, function, version, flags, std::ptr::null_mut()) }
}

/// `cuGetExportTable`: the tables that NVIDIA's own libraries ask for are not here.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuGetExportTable(
    _table: &mut Option<&c_void>,
    _id: Option<&CUuuid>,
) -> CUresult {
    CUresult::CUDA_ERROR_NOT_FOUND
}

/// The text of an error, one for each number that the fake returns.
fn error_text(error: u32) -> Option<&'static CString> {
    static TEXTS: LazyLock<HashMap<u32, CString>> = LazyLock::new(|| {
        use CUresult::*;
        let all = [
            CUDA_SUCCESS,
            CUDA_ERROR_INVALID_VALUE,
            CUDA_ERROR_OUT_OF_MEMORY,
            CUDA_ERROR_NOT_INITIALIZED,
            CUDA_ERROR_NO_DEVICE,
            CUDA_ERROR_INVALID_DEVICE,
            CUDA_ERROR_INVALID_CONTEXT,
            CUDA_ERROR_FILE_NOT_FOUND,
            CUDA_ERROR_INVALID_HANDLE,
            CUDA_ERROR_ILLEGAL_STATE,
            CUDA_ERROR_NOT_FOUND,
            CUDA_ERROR_NOT_READY,
            CUDA_ERROR_NOT_SUPPORTED,
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            CUDA_ERROR_UNKNOWN,
        ];
        let text = |error| CString::new(format!("{error:?}")).unwrap_or_default();
        all.into_iter().map(|error| (error as u32, text(error))).collect()
    });
    TEXTS.get(&error)
}

/// `cuGetErrorName`.
///
/// # Safety
/// As CUDA documents the function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetErrorName(
    error: c_uint,
    place: *mut *const c_char,
) -> CUresult {
    let text = error_text(error);
    // SAFETY: the caller passes a live place, or null.
    let result = unsafe { put(place, text.map_or(std::ptr::null(), |text| text.as_ptr())) };
    let known = text.map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE);
    result.and(known).err().unwrap_or(CUresult::CUDA_SUCCESS)
}

/// `cuGetErrorString`: the error's name again.
///
/// # Safety
/// As CUDA documents the function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetErrorString(
    error: c_uint,
    place: *mut *const c_char,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    unsafe { cuGetErrorName(error, place) }
}
