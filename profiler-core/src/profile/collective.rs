//! Collectives of NCCL.

use std::time::Duration;

use profiler_base::getters;

use super::{GpuOperation, Profile, Range};
pub use crate::join::collectives::CollectiveFunction;
use crate::join::collectives::{CollectiveRow, CollectiveSource};
use crate::join::tables::NameId;

/// A collective, send or receive of one rank.
///
/// The injection library's NCCL plugin records it (NCCL 2.26 and newer). Without the plugin it is
/// read from NCCL's NVTX ranges, which have only the function, message size and communicator. A
/// collective in a CUDA graph has no [`kernel`](Self::kernel).
#[derive(Debug, Clone, Copy)]
pub struct Collective<'a> {
    profile: &'a Profile,
    row: &'a CollectiveRow,
}

impl<'a> Collective<'a> {
    fn text(&self, name: Option<NameId>) -> Option<&'a str> {
        name.map(|name| self.profile.store.names.get(name))
    }

    getters! {
        /// The function.
        function: CollectiveFunction = row.function;
        /// The communicator's hash, which is the same in all its ranks.
        communicator: u64 = row.communicator;
        /// The rank in the communicator, from the plugin.
        rank: Option<u32> = row.rank;
        /// The number of ranks of the communicator, from the plugin.
        ranks: Option<u32> = row.ranks;
        /// The index among the operations of its function in its communicator, from 0. Sends and
        /// receives are numbered for each peer. NCCL does not count collectives in CUDA graphs.
        /// Without the plugin, numbering begins at the first recorded one.
        sequence: u64 = row.sequence;
        /// The message size of this rank in bytes, as in NCCL's NVTX ranges: the sent bytes for
        /// `AllGather`, the received bytes for `ReduceScatter`.
        bytes: Option<u64> = row.bytes;
        /// The number of channels that NCCL uses for it, from the plugin.
        channels: Option<u32> = row.channels;
        /// The root's rank, or the peer's rank of a send or receive.
        other_rank: Option<u32> = row.other_rank;
        /// The number of collectives that its kernel executes; 0 if the kernel is unknown.
        in_kernel: u32 = row.in_kernel;
        /// The kernel's process id; 0 if the process recorded itself.
        process_id: u32 = row.process;
    }

    /// NCCL's name of the function, also for functions that this version does not support.
    pub fn function_name(&self) -> &'a str {
        let name = self.profile.store.names.get(self.row.name);
        name.strip_prefix("nccl").unwrap_or(name)
    }

    /// The program's name for the communicator.
    pub fn communicator_name(&self) -> Option<&'a str> {
        self.text(self.row.communicator_name)
    }

    /// The element type, such as `float32`, from the plugin. NCCL states bytes for `AllGather` and
    /// `Broadcast`.
    pub fn datatype(&self) -> Option<&'a str> {
        self.text(self.row.datatype)
    }

    /// The algorithm, such as `RING`, from the plugin.
    pub fn algorithm(&self) -> Option<&'a str> {
        self.text(self.row.algorithm)
    }

    /// The protocol, such as `LL128`, from the plugin.
    pub fn protocol(&self) -> Option<&'a str> {
        self.text(self.row.protocol)
    }

    /// True if the plugin recorded it; false if it is read from NCCL's NVTX ranges.
    pub fn is_from_plugin(&self) -> bool {
        matches!(self.row.source, CollectiveSource::Plugin(_))
    }

    /// The time since the session's start: after the launch of its kernel. Without the plugin, the
    /// start of NCCL's range.
    pub fn at(&self) -> Duration {
        self.profile.since_start(self.row.at_ns)
    }

    /// The kernel's id of the thread that enqueued it.
    pub fn thread_id(&self) -> u32 {
        self.profile.store.threads[self.row.thread.at()].id
    }

    /// The innermost range of the program in which it was enqueued.
    pub fn range(&self) -> Option<Range<'a>> {
        self.row.range.get().map(|id| Range { profile: self.profile, id })
    }

    /// The kernel that executed it, alone or with [others](Self::in_kernel). `None` in a CUDA
    /// graph, if a thread of the driver reported it, or if the launch is not recorded.
    pub fn kernel(&self) -> Option<GpuOperation<'a>> {
        self.row.operation.map(|id| self.profile.operation(id))
    }
}

impl Profile {
    /// The collectives, sends and receives of NCCL, by process and time. The first call visits all
    /// operations, marks and ranges.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), profiler_core::Error> {
    /// let profile = profiler_core::Profile::load("rank0.gpuprof")?;
    /// for collective in profile.collectives() {
    ///     let time = collective.kernel().and_then(|kernel| kernel.gpu_time());
    ///     println!("{} of {:?} bytes: {time:?}", collective.function(), collective.bytes());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn collectives(&self) -> impl ExactSizeIterator<Item = Collective<'_>> {
        self.collective_rows().iter().map(|row| Collective { profile: self, row })
    }
}
