//! What a scorecard says of a run: its values and their flags.

use serde::Serialize;

use super::Target;
use crate::analyze::diagnosis::Thresholds;
use crate::base::named_variants::named_variants;

named_variants! {
    /// A value of a scorecard. Shares are of the clock of the wall, as the [diagnosis](crate::analyze::diagnosis) divides it up, unless
    /// said otherwise. Each says its target and why; [`Targets`](super::Targets) sets others.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum ScoreKind with text {
        /// Whether nothing was lost ([`Health`](crate::Health)). Good is complete: what is missing looks like an idle GPU.
        Health = "recording",
        /// Time in which a GPU ran anything but collectives; of several GPUs their mean ([`DeviceTimes::busy`](crate::query::DeviceTimes::busy)).
        /// Good from 90 %, for without the rest the whole is 1.11 times as fast; bad up to 50 %: the host decides more than the GPU.
        GpuBusy = "GPU busy",
        /// The GPU was idle for the calls that launch, allocate and free. Good up to 5 % (without it 1.05 times as fast, which
        /// is less than runs differ by), bad from 20 %, from where on a diagnosis names it as the verdict
        /// ([`Thresholds::cause_share`], [`Thresholds::verdict_share`]).
        Launch = "idle for launches",
        /// The GPU was idle since the host waited for it, or small copies ran alone. Targets as for [`Launch`](Self::Launch).
        Synchronization = "idle for waits and small copies",
        /// The GPU was idle while the host computed. Targets as for [`Launch`](Self::Launch).
        Host = "idle for the host",
        /// The GPU was idle while the host loaded data. Targets as for [`Launch`](Self::Launch).
        Loading = "idle for data",
        /// Copies ran and no kernel did, or the host was in their calls and nothing ran. Targets as for [`Launch`](Self::Launch).
        Copy = "copies alone and their calls",
        /// Collectives ran and nothing else: GPUs exchanged data, or waited for another rank. Targets as for [`Launch`](Self::Launch).
        Communication = "communication alone",
        /// The part of the copies' time in which kernels ran too. Good from 80 %, bad up to 20 %: four of five, and one of five;
        /// unknown where copies alone take no more than [`Copy`](Self::Copy) may: then hiding them brings too little to matter.
        Overlap = "copies hidden behind kernels",
        /// The part of the kernels' time that kernels take which are shorter than [`Thresholds::small_kernel`], 20 us. Good up
        /// to 20 %, bad from 50 %: a launch takes 3 to 5 us, so that most of the work pays a fifth or more of itself to be
        /// launched, and hardly fills the GPU.
        SmallKernels = "kernels too short",
        /// Theoretical occupancy: the mean over kernels, by time. Good from 25 %, which is four warps for each of the four
        /// schedulers of a multiprocessor with 64, as many as dependent instructions take cycles since Volta; bad up to 6.25 %,
        /// which is no more than one warp each. What lies between is for kernels with much work a thread, as products have.
        Occupancy = "theoretical occupancy",
        /// The part of the time of products that tensor cores can do in which kernels that use them ran. Good from 90 %, bad up
        /// to 50 %; unknown where the rest takes no more of the clock than [`Launch`](Self::Launch) may.
        TensorCores = "tensor cores, where they can",
        /// What ranges that declared their work achieved of the roofline, by time. Good from 60 %, bad up to 15 %: the limits
        /// that Nsight Compute's rules go by.
        OfRoof = "achieved of the roof",
        /// The largest estimate of all causes and findings: how many times as fast the run is under the assumption that the note
        /// states (Amdahl). What the GPU computes is no such cause. Good up to the estimate of a part that is good, 1.05; bad from
        /// that of one that is bad, 1.25.
        Estimate = "estimated for one change",
    }
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Share,
    Factor,
    Complete,
}

impl ScoreKind {
    /// All of them, in the order of a scorecard.
    pub const ALL: [Self; 14] = [
        Self::Health,
        Self::GpuBusy,
        Self::Estimate,
        Self::Launch,
        Self::Synchronization,
        Self::Host,
        Self::Loading,
        Self::Copy,
        Self::Communication,
        Self::Overlap,
        Self::SmallKernels,
        Self::Occupancy,
        Self::TensorCores,
        Self::OfRoof,
    ];

    /// As programs and arguments write it: `gpu_busy`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::GpuBusy => "gpu_busy",
            Self::Launch => "launch",
            Self::Synchronization => "synchronization",
            Self::Host => "host",
            Self::Loading => "loading",
            Self::Copy => "copy",
            Self::Communication => "communication",
            Self::Overlap => "overlap",
            Self::SmallKernels => "small_kernels",
            Self::Occupancy => "occupancy",
            Self::TensorCores => "tensor_cores",
            Self::OfRoof => "of_roof",
            Self::Estimate => "estimate",
        }
    }

    /// By its [`name`](Self::name).
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// True if more of it is better.
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

    /// Its target unless told otherwise.
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
    /// How a value fares.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum Flag with text {
        /// It cannot be decided, or so little depends on it that it does not matter; the note gives the reason.
        Unknown = "unknown",
        /// At its target.
        Good = "good",
        /// Worth a look: neither.
        Look = "look",
        /// Far from its target.
        Bad = "bad",
    }
}
