//! The values of a scorecard, their default targets, and their flags.

use profiler_base::named_variants;
use serde::Serialize;

use super::Target;
use crate::analyze::diagnosis::Thresholds;

named_variants! {
    /// A value of a scorecard. Shares refer to the [diagnosis'](crate::analyze::diagnosis) clock by
    /// default. [`Targets`](super::Targets) sets other targets.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum ScoreKind with text in ALL {
        /// The completeness of the recording ([`Health`](profiler_core::Health)): missing records
        /// appear as an idle GPU.
        Health = "recording" and "health",
        /// Time in which a GPU ran anything but collectives; the mean of several GPUs without
        /// [unused](Thresholds::unused_share) ones
        /// ([`DeviceTimes::busy`](profiler_core::query::DeviceTimes::busy)). Good from 90 %:
        /// without the rest the run is 1.11 times as fast. Bad up to 50 %: the host determines more
        /// of the time than the GPU.
        GpuBusy = "GPU busy" and "gpu_busy",
        /// The largest estimate of all causes and findings, without GPU compute: the speed-up of
        /// the run under the assumption in the note (Amdahl). The note also states if it is an
        /// upper bound. Good up to the estimate of a good share, 1.05; bad from the estimate of a
        /// bad share, 1.25.
        Estimate = "speed-up by one change" and "estimate",
        /// The GPU was idle for calls that launch, allocate and free. Good up to 5 %: without it
        /// the run is 1.05 times as fast, less than the variation of runs. Bad from 20 %, the share
        /// of a verdict ([`Thresholds::cause_share`], [`Thresholds::verdict_share`]).
        Launch = "idle for launches" and "launch",
        /// The GPU was idle because the host waited for it, or small copies ran alone. Targets as
        /// for [`Launch`](Self::Launch).
        Synchronization = "idle for waits and small copies" and "synchronization",
        /// The GPU was idle while the host computed. Targets as for [`Launch`](Self::Launch).
        Host = "idle for the host" and "host",
        /// The GPU was idle while the host loaded data. Targets as for [`Launch`](Self::Launch).
        Loading = "idle for data" and "loading",
        /// Copies ran without kernels, or the host was in their calls and nothing ran. Targets as
        /// for [`Launch`](Self::Launch).
        Copy = "copies alone and their calls" and "copy",
        /// Only collectives ran: GPUs exchanged data, or waited for another rank. Targets as for
        /// [`Launch`](Self::Launch).
        Communication = "communication alone" and "communication",
        /// The share of the copies' time with concurrent kernels. Good from 80 %, bad up to 20 %.
        /// Unknown if copies alone are within the good range of [`Copy`](Self::Copy).
        Overlap = "copies hidden behind kernels" and "overlap",
        /// The share of the kernels' time in kernels shorter than [`Thresholds::small_kernel`], 20
        /// us. Good up to 20 %, bad from 50 %. A launch takes 3 to 5 us, a fifth or more of such a
        /// kernel, which also hardly fills the GPU.
        SmallKernels = "kernels too short" and "small_kernels",
        /// Theoretical occupancy, the mean over kernels by time. Good from 25 %: four warps for
        /// each of the four schedulers of a multiprocessor with 64 warps. Four is also the latency
        /// of dependent instructions in cycles since Volta. Bad up to 6.25 %, one warp per
        /// scheduler. Kernels with much work per thread, such as products, are in between.
        Occupancy = "theoretical occupancy" and "occupancy",
        /// The share of the time of eligible products in kernels that use tensor cores. Good from
        /// 90 %, bad up to 50 %. Unknown if the rest is within the good range of
        /// [`Launch`](Self::Launch).
        TensorCores = "tensor cores, where they can" and "tensor_cores",
        /// The achieved share of the roofline in ranges with declared work, by time. Good from 60
        /// %, bad up to 15 %: the limits of Nsight Compute's rules.
        OfRoof = "achieved of the roof" and "of_roof",
    }
}

/// The unit of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Share,
    Factor,
    Complete,
}

impl ScoreKind {
    /// The name in JSON and arguments: `gpu_busy`.
    pub const fn name(self) -> &'static str {
        self.second_text()
    }

    /// The kind with this [`name`](Self::name).
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// True if more is better.
    pub const fn more_is_better(self) -> bool {
        matches!(
            self,
            Self::Health
                | Self::GpuBusy
                | Self::Overlap
                | Self::Occupancy
                | Self::TensorCores
                | Self::OfRoof
        )
    }

    /// The default target.
    pub(super) fn target(self, thresholds: &Thresholds) -> Target {
        let (good, bad) = match self {
            Self::Health => (1.0, 0.0),
            Self::GpuBusy => (0.9, 0.5),
            Self::Launch
            | Self::Synchronization
            | Self::Host
            | Self::Loading
            | Self::Copy
            | Self::Communication => (thresholds.get_cause_share(), thresholds.get_verdict_share()),
            Self::Overlap => (0.8, 0.2),
            Self::SmallKernels => (0.2, 0.5),
            Self::Occupancy => (0.25, 0.0625),
            Self::TensorCores => (0.9, 0.5),
            Self::OfRoof => (0.6, 0.15),
            Self::Estimate => {
                let estimate = |share| crate::analyze::diagnosis::amdahl(share, f64::INFINITY);
                (estimate(thresholds.get_cause_share()), estimate(thresholds.get_verdict_share()))
            }
        };
        Target { good, bad }
    }

    pub(super) const fn unit(self) -> Unit {
        match self {
            Self::Health => Unit::Complete,
            Self::Estimate => Unit::Factor,
            _ => Unit::Share,
        }
    }
}

named_variants! {
    /// The result of a comparison with a target.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum Flag with text {
        /// Undecided or unimportant; the note has the reason.
        Unknown = "unknown",
        /// The target is met.
        Good = "good",
        /// Between good and bad.
        Look = "look",
        /// Far from its target.
        Bad = "bad",
    }
}
