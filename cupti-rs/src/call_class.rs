//! Classes of calls.

/// The class of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CallClass {
    /// Launches one kernel.
    KernelLaunch,
    /// Launches a CUDA graph: as many operations as the graph has nodes.
    GraphLaunch,
    /// Has the driver call a host function in stream order.
    HostFunction,
    /// Copies memory.
    Memcpy,
    /// Fills memory.
    Memset,
    /// Blocks the host until the GPU has reached a point.
    Synchronize,
    /// Makes a stream wait for an event; the host continues.
    WaitEvent,
    /// Queries whether a stream or an event is done; the host continues.
    Query,
    /// Allocates, registers or maps memory.
    Alloc,
    /// Frees, unregisters or unmaps memory.
    Free,
    /// A call without a name in this version of the crate.
    Unknown,
}

impl CallClass {
    /// True if such calls submit work that gets records.
    pub(crate) fn submits_work(self) -> bool {
        matches!(self, Self::KernelLaunch | Self::GraphLaunch | Self::Memcpy | Self::Memset)
    }
}
