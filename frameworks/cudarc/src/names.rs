//! Names of streams, contexts and events for tools that read NVTX.

use cudarc::driver::{CudaContext, CudaEvent, CudaStream};

/// An object with a name in NVTX. Nsight Systems shows it at the object's row. Without a tool it costs a load.
///
/// ```no_run
/// use cudarc::driver::CudaContext;
/// use gpu_profiler_cudarc::Named;
///
/// # fn main() -> Result<(), cudarc::driver::DriverError> {
/// let context = CudaContext::new(0)?;
/// context.set_name("training");
/// let copies = context.new_stream()?;
/// copies.set_name("copies");
/// # Ok(())
/// # }
/// ```
pub trait Named {
    /// Names the object. A later name replaces the first.
    fn set_name(&self, name: &str);
}

impl Named for CudaContext {
    fn set_name(&self, name: &str) {
        nvtx::cuda::driver::name_context(self.cu_ctx().cast(), name);
    }
}

impl Named for CudaStream {
    fn set_name(&self, name: &str) {
        nvtx::cuda::driver::name_stream(self.cu_stream().cast(), name);
    }
}

impl Named for CudaEvent {
    fn set_name(&self, name: &str) {
        nvtx::cuda::driver::name_event(self.cu_event().cast(), name);
    }
}
