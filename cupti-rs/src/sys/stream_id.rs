//! CUPTI's number of a stream.

use std::ffi::c_void;

use super::safe::check;
use crate::error::Error;

impl crate::Library {
    /// Returns the number of this stream (`CUstream`) of this context (`CUcontext`) in records.
    /// Null is the default stream.
    ///
    /// # Safety
    ///
    /// The context is alive, and the stream is a live stream of it or one of the driver's special
    /// handles.
    ///
    /// # Errors
    ///
    /// CUPTI's refusal.
    pub unsafe fn stream_id(
        &self,
        context: *mut c_void,
        stream: *mut c_void,
    ) -> Result<u32, Error> {
        let mut id = 0;
        // SAFETY: the caller's promise; `id` is a live u32.
        let code = unsafe { (self.api.get_stream_id)(context, stream, 0, &mut id) };
        check("cuptiGetStreamIdEx", code).map(|()| id)
    }
}
