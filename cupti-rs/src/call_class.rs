//! What the calls of a program do.

/// What a call does.
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
    /// Blocks the host until the GPU got somewhere.
    Synchronize,
    /// Makes a stream wait for an event; the host goes on.
    WaitEvent,
    /// Asks whether a stream or an event is done; the host goes on.
    Query,
    /// Allocates, registers or maps memory.
    Alloc,
    /// Frees, unregisters or unmaps memory.
    Free,
    /// A call this version of the crate has no name for.
    Unknown,
}

impl CallClass {
    /// Whether such calls submit work that gets records.
    pub(crate) fn submits_work(self) -> bool {
        matches!(self, Self::KernelLaunch | Self::GraphLaunch | Self::Memcpy | Self::Memset)
    }
}
