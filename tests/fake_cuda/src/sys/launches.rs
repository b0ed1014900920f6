//! Launches of kernels.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys::{
    CUfunction, CUlaunchConfig, CUresult, CUstream, CUtensorMap, CUtensorMapDataType,
    CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion, CUtensorMapSwizzle,
};
use fake_cupti::Work;

use super::{Pointer, driver, put, submit};
use crate::call::Outcome;
use crate::effect::Effect;
use crate::machine::{BLOCK_THREADS, machine};

/// The work of a launch in this shape.
pub(super) fn kernel(function: u64, grid: [c_uint; 3], block: [c_uint; 3]) -> Outcome<Work> {
    let machine = machine();
    let function = machine.function(function)?;
    let threads = block.iter().try_fold(1, |product: u32, size| product.checked_mul(*size));
    let is_valid = threads.is_some_and(|threads| (1..=BLOCK_THREADS).contains(&threads))
        && grid.iter().all(|size| *size > 0);
    if !is_valid {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Work::kernel(function.name).with_grid(grid, block).taking_ns(machine.kernel_ns()))
}

/// Launches a kernel within the call of this correlation id.
pub(super) fn launch(
    function: u64,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    stream: u64,
    correlation: u32,
) -> Outcome {
    let work = kernel(function, grid, block)?;
    // SAFETY: there is no effect.
    unsafe { submit(stream, correlation, &work, Effect::None) }
}

driver! { checked symbols;
    cuTensorMapEncodeIm2col(
        map: *mut CUtensorMap,
        _data_type: CUtensorMapDataType,
        _rank: u32,
        _address: *mut c_void,
        _dimensions: *const u64,
        _strides: *const u64,
        _lower_corner: *const c_int,
        _upper_corner: *const c_int,
        _channels: u32,
        _pixels: u32,
        _element_strides: *const u32,
        _interleave: CUtensorMapInterleave,
        _swizzle: CUtensorMapSwizzle,
        _promotion: CUtensorMapL2promotion,
        _fill: CUtensorMapFloatOOBfill,
    ) |_| {
        // SAFETY: the caller passes a live map, or null; no kernel of the fake reads it.
        unsafe { put(map, CUtensorMap { opaque: [0; 16] }) }
    }
    cuTensorMapEncodeTiled(
        map: *mut CUtensorMap,
        _data_type: CUtensorMapDataType,
        _rank: u32,
        _address: *mut c_void,
        _dimensions: *const u64,
        _strides: *const u64,
        _box: *const u32,
        _element_strides: *const u32,
        _interleave: CUtensorMapInterleave,
        _swizzle: CUtensorMapSwizzle,
        _promotion: CUtensorMapL2promotion,
        _fill: CUtensorMapFloatOOBfill,
    ) |_| {
        // SAFETY: the caller passes a live map, or null; no kernel of the fake reads it.
        unsafe { put(map, CUtensorMap { opaque: [0; 16] }) }
    }
    cuLaunchKernel(
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        _shared: c_uint,
        stream: CUstream,
        _arguments: *mut *mut c_void,
        _extra: *mut *mut c_void,
    ) |correlation| {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        launch(function.number(), grid, block, stream.number(), correlation)
    }
    cuLaunchCooperativeKernel(
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        _shared: c_uint,
        stream: CUstream,
        _arguments: *mut *mut c_void,
    ) |correlation| {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        launch(function.number(), grid, block, stream.number(), correlation)
    }
    cuLaunchKernelEx(
        config: *const CUlaunchConfig,
        function: CUfunction,
        _arguments: *mut *mut c_void,
        _extra: *mut *mut c_void,
    ) |correlation| {
        // SAFETY: the caller passes a live configuration, or null.
        let config = unsafe { config.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
        let block = [config.blockDimX, config.blockDimY, config.blockDimZ];
        launch(function.number(), grid, block, config.hStream.number(), correlation)
    }
}
