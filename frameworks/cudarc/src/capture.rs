//! Captured graphs that keep the attribution of their work.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaStream, DriverError};

use crate::error::Error;

/// Captures what is launched on a stream into a graph.
pub trait Capture {
    /// Captures what `record` launches on this stream into a graph. Each launch of the graph is a range of this name.
    ///
    /// Ranges that are open around launches within `record` are those of the graph's nodes:
    /// [`GpuOperation::captured_in`](profiler_core::profile::GpuOperation::captured_in) and the column `replayed` of
    /// ranges. That needs a session that is on during the capture, paused or not; a graph of before has its launches
    /// attributed, and its nodes to no range
    /// ([`Facts::graph_operations_captured`](profiler_core::profile::Facts::graph_operations_captured)).
    ///
    /// The capture ends in any case: after an error or a panic of `record` the stream is as before, and the error or panic
    /// goes through. cudarc's default stream cannot be captured, nor a stream whose memory has events of before:
    /// [`CudaContext::disable_event_tracking`](cudarc::driver::CudaContext::disable_event_tracking) before allocating.
    ///
    /// ```no_run
    /// use cudarc::driver::CudaContext;
    /// use gpu_profiler_cudarc::{Capture, Error};
    ///
    /// # fn launch_layer(_: &cudarc::driver::CudaStream) -> Result<(), Error> { Ok(()) }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let stream = CudaContext::new(0)?.new_stream()?;
    /// let graph = stream.capture("decode", || {
    ///     for _ in 0..2 {
    ///         let _layer = nvtx::range("layer");
    ///         launch_layer(&stream)?;
    ///     }
    ///     Ok::<(), Error>(())
    /// })?;
    /// graph.launch()?; // a range "decode"; its kernels are replays of "layer"
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// That of `record`, those of the driver, and [`Error::EmptyCapture`].
    fn capture<E: From<Error>>(
        &self,
        name: &'static str,
        record: impl FnOnce() -> Result<(), E>,
    ) -> Result<RecordedGraph, E>;
}

/// A graph with a name. Made by [`Capture::capture`].
pub struct RecordedGraph {
    graph: CudaGraph,
    name: &'static str,
}

impl fmt::Debug for RecordedGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedGraph").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Capture for Arc<CudaStream> {
    fn capture<E: From<Error>>(
        &self,
        name: &'static str,
        record: impl FnOnce() -> Result<(), E>,
    ) -> Result<RecordedGraph, E> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.begin_capture(mode).map_err(Error::driver("beginning a capture"))?;
        let recorded = catch_unwind(AssertUnwindSafe(record));
        let graph = self.end_capture(CUgraphInstantiate_flags(0));
        // The program's own error comes first: a broken capture may be its consequence.
        recorded.unwrap_or_else(|panic| resume_unwind(panic))?;
        let graph = graph.map_err(Error::driver("ending a capture"))?;
        let graph = graph.ok_or(Error::EmptyCapture)?;
        Ok(RecordedGraph { graph, name })
    }
}

impl RecordedGraph {
    /// Launches the graph in a range of its name.
    ///
    /// # Errors
    /// The driver's.
    pub fn launch(&self) -> Result<(), DriverError> {
        let _launch = nvtx::range(self.name);
        self.graph.launch()
    }

    /// The graph as cudarc has it.
    pub fn graph(&self) -> &CudaGraph {
        &self.graph
    }
}
