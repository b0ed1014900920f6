//! Modules, libraries, functions and their occupancy. A module has functions and variables of every name.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use cudarc::driver::sys::{
    CUdevice, CUdeviceptr, CUfunc_cache, CUfunction, CUfunction_attribute, CUjit_option, CUkernel,
    CUlibrary, CUlibraryOption, CUmodule, CUoccupancyB2DSize, CUresult,
};

use super::{Pointer, driver, handle, put, put_if_wanted, text};
use crate::call::{self, Outcome};
use crate::machine::{BLOCK_THREADS, machine};

/// Loads a module into the current context.
fn load() -> Outcome<u64> {
    call::context()?;
    Ok(machine().new_module())
}

/// Loads a module from a file, which has to exist.
fn load_file(name: &CStr) -> Outcome<u64> {
    let exists = name.to_str().is_ok_and(|name| std::path::Path::new(name).exists());
    if exists { load() } else { Err(CUresult::CUDA_ERROR_FILE_NOT_FOUND) }
}

/// An attribute of a function.
fn attribute(which: CUfunction_attribute) -> c_int {
    match which {
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => BLOCK_THREADS as c_int,
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS => 32,
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION
        | CUfunction_attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION => 90,
        _ => 0,
    }
}

/// How many blocks of this size a multiprocessor has room for.
fn blocks(threads: c_int) -> Outcome<c_int> {
    let threads =
        u32::try_from(threads).ok().filter(|threads| (1..=BLOCK_THREADS).contains(threads));
    let threads = threads.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    Ok((2_048 / threads).min(32) as c_int)
}

driver! { checked symbols;
    cuModuleLoad(name: *const c_char) -> CUmodule |_| {
        // SAFETY: the caller passes text, or null.
        load_file(unsafe { text(name) }?).map(handle)
    }
    cuModuleLoadData(_image: *const c_void) -> CUmodule |_| { load().map(handle) }
    cuModuleLoadDataEx(
        _image: *const c_void, _count: c_uint, _options: *mut CUjit_option, _values: *mut *mut c_void,
    ) -> CUmodule |_| {
        load().map(handle)
    }
    cuModuleLoadFatBinary(_image: *const c_void) -> CUmodule |_| { load().map(handle) }
    cuModuleUnload(module: CUmodule) |_| { machine().remove_module(module.number()) }
    cuModuleGetFunction(module: CUmodule, name: *const c_char) -> CUfunction |_| {
        // SAFETY: the caller passes text, or null.
        let name = unsafe { text(name) }?;
        machine().new_function(module.number(), name).map(handle)
    }
    cuModuleGetGlobal_v2(bytes: *mut usize, module: CUmodule, name: *const c_char) -> CUdeviceptr |_| {
        // SAFETY: the caller passes text, or null.
        let name = unsafe { text(name) }?;
        let (address, size) = machine().global(module.number(), name)?;
        // SAFETY: the caller passes a live place, or null.
        unsafe { put_if_wanted(bytes, size) };
        Ok(address)
    }
    cuLibraryLoadData(
        _code: *const c_void, _options: *mut CUjit_option, _values: *mut *mut c_void, _count: c_uint,
        _library_options: *mut CUlibraryOption, _library_values: *mut *mut c_void, _library_count: c_uint,
    ) -> CUlibrary |_| {
        Ok(handle(machine().new_module()))
    }
    cuLibraryUnload(library: CUlibrary) |_| { machine().remove_module(library.number()) }
    cuLibraryGetKernel(library: CUlibrary, name: *const c_char) -> CUkernel |_| {
        // SAFETY: the caller passes text, or null.
        let name = unsafe { text(name) }?;
        machine().new_function(library.number(), name).map(handle)
    }
    cuLibraryGetModule(library: CUlibrary) -> CUmodule |_| { Ok(library.cast()) }
    cuKernelGetFunction(kernel: CUkernel) -> CUfunction |_| { Ok(kernel.cast()) }
    cuKernelGetName(name: *mut *const c_char, kernel: CUkernel) |_| {
        let kernel = machine().function(kernel.number())?;
        // SAFETY: the caller passes a live place, or null.
        unsafe { put(name, kernel.name.as_ptr()) }
    }
    cuKernelGetAttribute(which: CUfunction_attribute, kernel: CUkernel, _device: CUdevice) -> c_int |_| {
        machine().function(kernel.number()).map(|_| attribute(which))
    }
    cuKernelSetAttribute(_which: CUfunction_attribute, _value: c_int, kernel: CUkernel, _device: CUdevice) |_| {
        machine().function(kernel.number()).map(drop)
    }
    cuFuncGetName(name: *mut *const c_char, function: CUfunction) |_| {
        let function = machine().function(function.number())?;
        // SAFETY: the caller passes a live place, or null.
        unsafe { put(name, function.name.as_ptr()) }
    }
    cuFuncGetModule(function: CUfunction) -> CUmodule |_| {
        machine().function(function.number()).map(|function| handle(function.module))
    }
    cuFuncGetAttribute(which: CUfunction_attribute, function: CUfunction) -> c_int |_| {
        machine().function(function.number()).map(|_| attribute(which))
    }
    cuFuncSetAttribute(function: CUfunction, _which: CUfunction_attribute, _value: c_int) |_| {
        machine().function(function.number()).map(drop)
    }
    cuFuncSetCacheConfig(function: CUfunction, _config: CUfunc_cache) |_| {
        machine().function(function.number()).map(drop)
    }
    cuOccupancyMaxActiveBlocksPerMultiprocessor(_function: CUfunction, threads: c_int, _shared: usize) -> c_int |_| {
        blocks(threads)
    }
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        _function: CUfunction, threads: c_int, _shared: usize, _flags: c_uint,
    ) -> c_int |_| {
        blocks(threads)
    }
    cuOccupancyMaxPotentialBlockSize(
        block: *mut c_int, _function: CUfunction, _shared_of: CUoccupancyB2DSize, _shared: usize, _limit: c_int,
    ) -> c_int |_| {
        // SAFETY: the caller passes a live place, or null.
        unsafe { put(block, BLOCK_THREADS as c_int) }?;
        Ok(132 * 2)
    }
}
