//! The bottlenecks of a run.

use profiler_base::named_variants;
use serde::Serialize;

use super::clock::{Part, Sums};

named_variants! {
    /// The bottleneck of a run, a range or a step: the known patterns of traces.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum Bottleneck with text in ALL {
        /// The GPU always has work: only faster work helps. This is the intended state.
        GpuCompute = "GPU-compute bound"
            and "the GPU has work: make the work less or faster: lower precision on tensor cores (fp16, bf16, int8), fused \
                 kernels, pruning, a better algorithm, a faster GPU",
        /// The GPU waits for calls that launch, allocate and free: they take longer than kernels.
        Launch = "launch bound"
            and "launch less often: larger batches, fused kernels, a CUDA graph; restructure item-by-item work, and \
                 take allocations out of the loop",
        /// Host and GPU wait for each other in turn, or copies are small and many.
        Synchronization = "bound by synchronisation and small copies"
            and "wait only where a result is read, and for an event rather than the device; do \
                 loops over single results on the GPU; combine small copies",
        /// The host computes while the GPU is idle.
        Cpu = "CPU bound"
            and "move host computation to the GPU, or to another thread while the GPU works; if \
                 it is a framework's own time between operations, take larger batches or a CUDA \
                 graph",
        /// The GPU waits for data that the host loads.
        Data = "data-starved"
            and "load ahead: more loader threads, prefetching, pinned memory, decoding on the GPU, or data stored as it is \
                 needed",
        /// Copies run without kernels, or the host is in their calls.
        Copy = "copy bound"
            and "hide copies behind kernels: pinned memory, asynchronous calls, a stream of their own, the next batch while \
                 this one is computed; leave data on the GPU",
        /// Only collectives run: GPUs exchange data, or wait for another rank. The recording does
        /// not separate the two, so this is a cause and never a verdict.
        Communication = "communication bound"
            and "compare the ranks: a late rank keeps the others waiting in the collective, so divide the work \
                 evenly; send less: lower precision, accumulated gradients, another way to divide the model",
    }
}

impl Bottleneck {
    /// The parts of the clock that count as this bottleneck.
    pub const fn parts(self) -> &'static [Part] {
        match self {
            Self::GpuCompute => &[Part::Kernels, Part::Scheduling],
            Self::Launch => &[Part::Launching],
            Self::Synchronization => &[Part::Waiting],
            Self::Cpu => &[Part::Host],
            Self::Data => &[Part::Loading],
            Self::Copy => &[Part::Copies],
            Self::Communication => &[Part::Communication],
        }
    }

    pub(super) fn ns(self, sums: &Sums) -> u64 {
        self.parts().iter().map(|part| sums.get(*part)).sum()
    }

    /// The advice as a text.
    pub const fn remedy(self) -> &'static str {
        self.second_text()
    }

    /// The assumption of its speed-up estimate: half the time for compute, which cannot be removed.
    pub const fn assumption(self) -> &'static str {
        match self {
            Self::GpuCompute => "if its kernels took half the time",
            _ => "without it",
        }
    }
}

/// Advice if no collective depends on kernels before it.
pub(super) const INDEPENDENT_COLLECTIVES: &str = "compare the ranks: a late rank keeps the \
                                                  others waiting in the collective, so divide the \
                                                  work evenly; these collectives wait for no \
                                                  kernel of their own stream and for no event, so \
                                                  they can run beside kernels; send less: lower \
                                                  precision, accumulated gradients, another way \
                                                  to divide the model";
