//! Sums over GPU operations and driver calls.

use std::ops::{AddAssign, SubAssign};
use std::time::Duration;

use cupti::CallClass;
use profiler_base::getters;

/// Counts and summed times. Counts are exact; concurrent operations add the time of each. The JSON
/// has times in nanoseconds: `kernel_ns`, `copy_ns`, `memset_ns`, `graph_ns`, `synchronization_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Totals {
    /// Successful calls that launched a kernel or graph, without calls under capture.
    pub launches: u64,
    /// Executed kernels.
    pub kernels: u64,
    // Their GPU time (`end - start` of CUPTI's records). An integer costs less to add.
    pub(crate) kernel_ns: u64,
    /// Executed copies.
    pub copies: u64,
    pub(crate) copy_ns: u64,
    /// Bytes they moved.
    pub copy_bytes: u64,
    /// Executed memsets.
    pub memsets: u64,
    pub(crate) memset_ns: u64,
    /// Bytes they wrote.
    pub memset_bytes: u64,
    /// Launches of CUDA graphs traced as one interval. Their operations are not counted.
    pub graphs: u64,
    pub(crate) graph_ns: u64,
    /// Calls that blocked the host until the GPU reached some point: `cuCtxSynchronize`,
    /// `cuStreamSynchronize`, `cuEventSynchronize`. Blocking copies are not included.
    pub synchronizations: u64,
    pub(crate) synchronization_ns: u64,
    /// Calls that allocated, registered or mapped memory.
    pub allocations: u64,
    /// Calls that freed, unregistered or unmapped memory.
    pub frees: u64,
    /// Calls that returned an error.
    pub failed_calls: u64,
}

impl Totals {
    /// Kernels, copies and memsets, and [`graphs`](Self::graphs), which nsys excludes from its "GPU
    /// Ops".
    pub fn gpu_operations(&self) -> u64 {
        self.kernels + self.copies + self.memsets + self.graphs
    }

    /// The sum of GPU times.
    pub fn gpu_time(&self) -> Duration {
        let transfers = self.copy_ns.saturating_add(self.memset_ns);
        let ns = self.kernel_ns.saturating_add(transfers).saturating_add(self.graph_ns);
        Duration::from_nanos(ns)
    }

    getters! {
        /// The sum of kernel times.
        kernel_time: Duration = Duration::from_nanos(kernel_ns);
        /// The sum of copy times.
        copy_time: Duration = Duration::from_nanos(copy_ns);
        /// The sum of memset times.
        memset_time: Duration = Duration::from_nanos(memset_ns);
        /// The sum of times of graphs traced as one interval, from the first node's start to the
        /// last node's end.
        graph_time: Duration = Duration::from_nanos(graph_ns);
        /// The host time in synchronisation calls.
        synchronization_time: Duration = Duration::from_nanos(synchronization_ns);
    }
}

/// Sums saturate: a damaged file may contain any times and sizes.
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

    /// Adds a call, without its GPU work.
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

impl Totals {
    /// The difference from earlier sums of the same rows.
    pub fn since(mut self, earlier: &Self) -> Self {
        self -= *earlier;
        self
    }
}

macro_rules! assign {
    ($trait:ident $assign:ident $by:ident: $($field:ident)+) => {
        impl $trait for Totals {
            fn $assign(&mut self, other: Self) {
                $(self.$field = self.$field.$by(other.$field);)+
            }
        }
    };
    ($($trait:ident $assign:ident $by:ident)+) => {
        $(assign!(
            $trait $assign $by: launches kernels kernel_ns copies copy_ns copy_bytes memsets
            memset_ns memset_bytes graphs graph_ns synchronizations synchronization_ns allocations
            frees failed_calls
        );)+
    };
}
assign!(AddAssign add_assign saturating_add SubAssign sub_assign saturating_sub);
