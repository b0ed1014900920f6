//! Queries by candle's device.

use candle_core::Device;
use gpu_profiler_cudarc::QueryStream;
use profiler_core::query::Query;

/// Queries of the work on a device of candle's, which is a stream.
pub trait QueryDevice: Sized {
    /// Selects the operations of this device and its stream: for [`Device::new_cuda`](candle_core::Device::new_cuda) the default
    /// stream of the thread that calls this, or one of its own for `new_cuda_with_stream`. Of the CPU it selects nothing.
    ///
    /// # Errors
    /// CUPTI is not to be had here, or refuses the stream.
    fn on_device(self, device: &Device) -> Result<Self, gpu_profiler_cudarc::Error>;
}

impl QueryDevice for Query<'_> {
    fn on_device(self, device: &Device) -> Result<Self, gpu_profiler_cudarc::Error> {
        match device {
            Device::Cuda(device) => self.on_stream(&device.cuda_stream()),
            _ => Ok(self.filter(|_| false)),
        }
    }
}
