//! Sums over GPU operations and driver calls: what a range, or everything, came to.

use std::ops::AddAssign;
use std::time::Duration;

use cupti::CallClass;
use serde::Serialize;

/// Counts and sums. Counts are exact; times are sums over operations, so that two kernels that run at the same time
/// count twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// Calls that launched a kernel or a graph, successfully and not into a graph under capture.
    pub launches: u64,
    /// Kernels that ran.
    pub kernels: u64,
    /// Their time on the GPU, in nanoseconds (`end - start` of CUPTI's records).
    pub kernel_ns: u64,
    /// Copies that ran.
    pub copies: u64,
    /// Their time, in nanoseconds.
    pub copy_ns: u64,
    /// Bytes they moved.
    pub copy_bytes: u64,
    /// Memsets that ran.
    pub memsets: u64,
    /// Their time, in nanoseconds.
    pub memset_ns: u64,
    /// Bytes they wrote.
    pub memset_bytes: u64,
    /// Launches of CUDA graphs that were traced as one interval each. The kernels, copies and memsets in them
    /// have no records, and are in no other count.
    pub graphs: u64,
    /// Their time on the GPU from the first node's start to the last node's end, in nanoseconds.
    pub graph_ns: u64,
    /// Calls that blocked the host until the GPU got somewhere: `cuCtxSynchronize`, `cuStreamSynchronize`,
    /// `cuEventSynchronize`. Copies that block are not among them.
    pub synchronizations: u64,
    /// The host time spent in them, in nanoseconds.
    pub synchronization_ns: u64,
    /// Calls that allocated, registered or mapped memory.
    pub allocations: u64,
    /// Calls that freed, unregistered or unmapped memory.
    pub frees: u64,
    /// Calls that returned an error.
    pub failed_calls: u64,
}

impl Totals {
    /// Kernels, copies and memsets, and [`graphs`](Self::graphs), which nsys leaves out of its "GPU Ops".
    pub fn gpu_operations(&self) -> u64 {
        self.kernels + self.copies + self.memsets + self.graphs
    }

    fn gpu_ns(&self) -> u64 {
        let transfers = self.copy_ns.saturating_add(self.memset_ns);
        self.kernel_ns.saturating_add(transfers).saturating_add(self.graph_ns)
    }

    /// The time of all GPU operations, summed.
    pub fn gpu_time(&self) -> Duration {
        Duration::from_nanos(self.gpu_ns())
    }

    /// The time of all kernels, summed.
    pub fn kernel_time(&self) -> Duration {
        Duration::from_nanos(self.kernel_ns)
    }

    /// The time of all copies, summed.
    pub fn copy_time(&self) -> Duration {
        Duration::from_nanos(self.copy_ns)
    }

    /// The time of all graphs that were traced as one interval each, summed.
    pub fn graph_time(&self) -> Duration {
        Duration::from_nanos(self.graph_ns)
    }

    /// The host time in synchronisation calls, summed.
    pub fn synchronization_time(&self) -> Duration {
        Duration::from_nanos(self.synchronization_ns)
    }
}

/// Times and sizes of a damaged file may be anything, so that sums stay at the most there is.
impl Totals {
    #[inline]
    pub(crate) fn add_kernel(&mut self, ns: u64) {
        self.kernels += 1;
        self.kernel_ns = self.kernel_ns.saturating_add(ns);
    }

    #[inline]
    pub(crate) fn add_copy(&mut self, ns: u64, bytes: u64) {
        self.copies += 1;
        self.copy_ns = self.copy_ns.saturating_add(ns);
        self.copy_bytes = self.copy_bytes.saturating_add(bytes);
    }

    #[inline]
    pub(crate) fn add_memset(&mut self, ns: u64, bytes: u64) {
        self.memsets += 1;
        self.memset_ns = self.memset_ns.saturating_add(ns);
        self.memset_bytes = self.memset_bytes.saturating_add(bytes);
    }

    #[inline]
    pub(crate) fn add_graph(&mut self, ns: u64) {
        self.graphs += 1;
        self.graph_ns = self.graph_ns.saturating_add(ns);
    }

    /// What one call adds, apart from its work on the GPU.
    #[inline]
    pub(crate) fn add_call(&mut self, class: CallClass, is_failure: bool, captured: bool, ns: u64) {
        if is_failure {
            self.failed_calls += 1;
            return;
        }
        match class {
            CallClass::KernelLaunch | CallClass::GraphLaunch => {
                self.launches += u64::from(!captured);
            }
            CallClass::Synchronize => {
                self.synchronizations += 1;
                self.synchronization_ns = self.synchronization_ns.saturating_add(ns);
            }
            CallClass::Alloc => self.allocations += 1,
            CallClass::Free => self.frees += 1,
            _ => {}
        }
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.launches = self.launches.saturating_add(other.launches);
        self.kernels = self.kernels.saturating_add(other.kernels);
        self.kernel_ns = self.kernel_ns.saturating_add(other.kernel_ns);
        self.copies = self.copies.saturating_add(other.copies);
        self.copy_ns = self.copy_ns.saturating_add(other.copy_ns);
        self.copy_bytes = self.copy_bytes.saturating_add(other.copy_bytes);
        self.memsets = self.memsets.saturating_add(other.memsets);
        self.memset_ns = self.memset_ns.saturating_add(other.memset_ns);
        self.memset_bytes = self.memset_bytes.saturating_add(other.memset_bytes);
        self.graphs = self.graphs.saturating_add(other.graphs);
        self.graph_ns = self.graph_ns.saturating_add(other.graph_ns);
        self.synchronizations = self.synchronizations.saturating_add(other.synchronizations);
        self.synchronization_ns = self.synchronization_ns.saturating_add(other.synchronization_ns);
        self.allocations = self.allocations.saturating_add(other.allocations);
        self.frees = self.frees.saturating_add(other.frees);
        self.failed_calls = self.failed_calls.saturating_add(other.failed_calls);
    }
}
