//! Queries by stream.

use cudarc::driver::CudaStream;
use cupti::Library;
use profiler_core::query::Query;

use crate::error::Error;
use crate::sys;

/// Queries of the work on a stream.
pub trait QueryStream: Sized {
    /// Selects the operations of this stream and its device. Several streams select those of any.
    ///
    /// The profile has to be of this process. The default stream is a stream as others are. `per_thread_stream` is a stream of
    /// each thread: the one of the thread that calls this.
    ///
    /// ```no_run
    /// use gpu_profiler_cudarc::QueryStream;
    ///
    /// # fn f(profile: profiler_core::Profile, stream: &cudarc::driver::CudaStream) -> Result<(), gpu_profiler_cudarc::Error> {
    /// let copies = profile.query().on_stream(stream)?.copies();
    /// println!("{:?}", copies.gpu_time());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// CUPTI is not to be had here, or refuses the stream.
    fn on_stream(self, stream: &CudaStream) -> Result<Self, Error>;
}

impl QueryStream for Query<'_> {
    fn on_stream(self, stream: &CudaStream) -> Result<Self, Error> {
        let id = sys::stream_id(&Library::open()?, stream)?;
        // CAST: an ordinal is below the number of devices.
        Ok(self.device(stream.context().ordinal() as u32).stream(id))
    }
}
