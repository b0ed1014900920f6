//! CUDA graphs.

use std::ffi::{c_char, c_uint};

use cudarc::driver::sys::{
    CUDA_KERNEL_NODE_PARAMS, CUgraph, CUgraphExec, CUgraphNode, CUresult, CUstream,
};

use super::{Pointer, driver, handle, launches, perform, put_if_wanted};
use crate::call::Outcome;
use crate::effect::Effect;
use crate::graphs;
use crate::machine::machine;

/// Launches a graph within the call of this correlation id.
///
/// # Safety
/// The memory that its copies and fills name is still there.
unsafe fn launch(exec: CUgraphExec, stream: CUstream, correlation: u32) -> Outcome {
    let exec = graphs::exec(exec.number())?;
    let stream = machine().stream(stream.number())?;
    if stream.capture.is_some() {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    for effect in &exec.effects {
        // SAFETY: the caller's promise.
        unsafe { perform(effect) };
    }
    exec.run(stream, correlation);
    Ok(())
}

driver! { checked symbols;
    cuGraphCreate(_flags: c_uint) -> CUgraph |_| { Ok(handle(graphs::create())) }
    cuGraphDestroy(graph: CUgraph) |_| { graphs::destroy(graph.number()) }
    cuGraphClone(graph: CUgraph) -> CUgraph |_| { graphs::clone(graph.number()).map(handle) }
    cuGraphAddKernelNode_v2(
        graph: CUgraph, _dependencies: *const CUgraphNode, _count: usize, params: *const CUDA_KERNEL_NODE_PARAMS,
    ) -> CUgraphNode |_| {
        // SAFETY: the caller passes live parameters, or null.
        let params = unsafe { params.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let grid = [params.gridDimX, params.gridDimY, params.gridDimZ];
        let block = [params.blockDimX, params.blockDimY, params.blockDimZ];
        let function = if params.func.is_null() { params.kern.number() } else { params.func.number() };
        let work = launches::kernel(function, grid, block)?;
        graphs::add_node(graph.number(), &work, Effect::None).map(handle)
    }
    cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) |_| {
        let found = graphs::nodes(graph.number())?;
        // SAFETY: the caller passes a live count, or null.
        let count = unsafe { count.as_mut() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if nodes.is_null() {
            *count = found.len();
            return Ok(());
        }
        for (index, node) in found.iter().take(*count).enumerate() {
            // SAFETY: the caller's array has as many elements as it states, of which this is one.
            let place = unsafe { nodes.add(index) };
            // SAFETY: as above.
            unsafe { put_if_wanted(place, handle(*node)) };
        }
        *count = found.len().min(*count);
        Ok(())
    }
    cuGraphInstantiateWithFlags(graph: CUgraph, _flags: u64) -> CUgraphExec |_| {
        graphs::instantiate(graph.number()).map(handle)
    }
    cuGraphUpload(exec: CUgraphExec, _stream: CUstream) |_| { graphs::exec(exec.number()).map(drop) }
    cuGraphLaunch(exec: CUgraphExec, stream: CUstream) |correlation| {
        // SAFETY: a graph is launched while the memory that it was captured with is there.
        unsafe { launch(exec, stream, correlation) }
    }
    cuGraphExecDestroy(exec: CUgraphExec) |_| { graphs::destroy_exec(exec.number()) }
}

driver! { unchecked older_symbols;
    cuGraphInstantiate_v2(
        graph: CUgraph, _error_node: *mut CUgraphNode, _log: *mut c_char, _bytes: usize,
    ) -> CUgraphExec |_| {
        graphs::instantiate(graph.number()).map(handle)
    }
}
