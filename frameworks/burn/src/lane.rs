//! Whose work a device thread of cubecl launches.
//!
//! A device thread runs each task under the stream id of the thread that issued it. With fusion, one stream id has tasks of two
//! threads: the program's, such as copies of data, and the fusion thread's launches. Each has a lane.

use std::cell::Cell;

use burn::backend::cuda::CudaDevice;
use cubecl::Runtime;
use cubecl::cuda::CudaRuntime;
use cubecl_common::device::Device;
use cubecl_common::device_handle::DeviceHandle;
use cubecl_common::stream_id::StreamId;
use profiler_core::Context;
use profiler_core::session::LaunchQueue;

use crate::compile;

type Server = <CudaRuntime as Runtime>::Server;

thread_local! {
    /// On a device thread, the stream whose next launch is the fusion thread's.
    static FUSED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The number of this thread's stream, which its operations have.
pub(crate) fn stream() -> u64 {
    StreamId::current().value
}

/// The lane of the task that this device thread runs; on other threads, that of their own tasks.
fn current() -> u64 {
    let stream = stream();
    2 * stream + u64::from(FUSED.get() == Some(stream))
}

/// The queue of a device's thread.
pub(crate) struct DeviceQueue(DeviceHandle<Server>);

impl DeviceQueue {
    /// Starts the device's thread, if there is none yet.
    pub(crate) fn new(device: &CudaDevice) -> Self {
        Self(DeviceHandle::new(device.to_id()))
    }

    /// Attributes what this thread launches next in its stream, until [`launched`](Self::launched).
    #[cfg(feature = "fusion")]
    pub(crate) fn launches(&self, context: Context) {
        self.0.submit(move |_| {
            FUSED.set(Some(stream()));
            context.hand_over(current);
        });
    }

    /// The next launch of this thread is the first of its kernel.
    pub(crate) fn compiles(&self) {
        self.0.submit(|_| compile::begin(stream()));
    }

    /// It has returned; it was of this context.
    pub(crate) fn compiled(&self, context: Context) {
        self.0.submit(move |_| compile::end(stream(), context));
    }

    /// Ends what [`launches`](Self::launches) began.
    #[cfg(feature = "fusion")]
    pub(crate) fn launched(&self) {
        self.0.submit(|_| FUSED.set(None));
    }
}

impl LaunchQueue for DeviceQueue {
    fn in_order(&self, job: Box<dyn FnOnce() + Send>) {
        self.0.submit(move |_| {
            // A job of the program may run between the two of a launch of the fusion thread.
            let fused = FUSED.take();
            job();
            FUSED.set(fused);
        });
    }

    fn lane() -> u64 {
        current()
    }

    fn wait_launched(&self) {
        // An error means that the device thread ended, and with it what it would launch.
        let _ = self.0.submit_blocking(|_| ());
    }
}
