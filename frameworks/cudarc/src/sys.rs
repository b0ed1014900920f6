//! The C boundary: CUPTI's number of a stream, by the driver's handles.

use cudarc::driver::CudaStream;
use cupti::Library;

/// The number of a stream in CUPTI's records.
pub(crate) fn stream_id(library: &Library, stream: &CudaStream) -> Result<u32, cupti::Error> {
    let context = stream.context().cu_ctx().cast();
    // SAFETY: cudarc destroys neither handle while the stream and the context that it holds are borrowed.
    unsafe { library.stream_id(context, stream.cu_stream().cast()) }
}
