//! Contexts of process ranges.

use super::context::Context;

impl Context {
    /// A context of a process range, such as a request. It is for work that is submitted after the
    /// threads that worked on the request have moved on: a batch, or a task without its own range.
    ///
    /// Records an activation of the range by this thread, named `name`, which begins and ends in
    /// this call. The work is attributed to that activation, and so to the process range. To
    /// include host time, leave an activation open ([`Event::within`](nvtx::Event::within)) and
    /// [`capture`](Self::capture) in it.
    ///
    /// ```
    /// use profiler_core::Context;
    ///
    /// let requests = [nvtx::process_range("request"), nvtx::process_range("request")];
    /// let batch = Context::join(requests.iter().map(|of| Context::from_process_range(of, "batch")));
    /// batch.run(|| {
    ///     // Work launched here is attributed to the first request and shared with the second.
    /// });
    /// ```
    #[must_use]
    pub fn from_process_range(range: &nvtx::ProcessRange, name: &str) -> Self {
        let _activation = nvtx::event(name).within(range).range();
        Self::capture()
    }
}
