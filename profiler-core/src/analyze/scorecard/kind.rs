//! What a scorecard says of a run: its values and their flags.

use std::fmt;

use serde::Serialize;

use super::Target;
use crate::analyze::diagnosis::Thresholds;

/// A value of a scorecard. Shares are of the clock of the wall, as the [diagnosis](crate::analyze::diagnosis) divides it up, unless
/// said otherwise. Each says its target and why; [`Targets`](super::Targets) sets others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ScoreKind {
    /// Whether nothing was lost ([`Health`](crate::Health)). Good is complete: what is missing looks like an idle GPU.
    Health,
    /// Time in which a GPU ran anything but collectives; of several GPUs their mean ([`DeviceTimes::busy`](crate::query::DeviceTimes::busy)).
    /// Good from 90 %, for without the rest the whole is 1.11 times as fast; bad up to 50 %: the host decides more than the GPU.
    GpuBusy,
    /// The GPU was idle for the calls that launch, allocate and free. Good up to 5 % (without it 1.05 times as fast, which
    /// is less than runs differ by), bad from 20 %, from where on a diagnosis names it as the verdict
    /// ([`Thresholds::cause_share`], [`Thresholds::verdict_share`]).
    Launch,
    /// The GPU was idle since the host waited for it, or small copies ran alone. Targets as for [`Launch`](Self::Launch).
    Synchronization,
    /// The GPU was idle while the host computed. Targets as for [`Launch`](Self::Launch).
    Host,
    /// The GPU was idle while the host loaded data. Targets as for [`Launch`](Self::Launch).
    Loading,
    /// Copies ran and no kernel did, or the host was in their calls and nothing ran. Targets as for [`Launch`](Self::Launch).
    Copy,
    /// Collectives ran and nothing else: GPUs exchanged data, or waited for another rank. Targets as for [`Launch`](Self::Launch).
    Communication,
    /// The part of the copies' time in which kernels ran too. Good from 80 %, bad up to 20 %: four of five, and one of five;
    /// unknown where copies alone take no more than [`Copy`](Self::Copy) may: then hiding them brings too little to matter.
    Overlap,
    /// The part of the kernels' time that kernels take which are shorter than [`Thresholds::small_kernel`], 20 us. Good up
    /// to 20 %, bad from 50 %: a launch takes 3 to 5 us, so that most of the work pays a fifth or more of itself to be
    /// launched, and hardly fills the GPU.
    SmallKernels,
    /// Theoretical occupancy: the mean over kernels, by time. Good from 25 %, which is four warps for each of the four
    /// schedulers of a multiprocessor with 64, as many as dependent instructions take cycles since Volta; bad up to 6.25 %,
    /// which is no more than one warp each. What lies between is for kernels with much work a thread, as products have.
    Occupancy,
    /// The part of the time of products that tensor cores can do in which kernels that use them ran. Good from 90 %, bad up
    /// to 50 %; unknown where the rest takes no more of the clock than [`Launch`](Self::Launch) may.
    TensorCores,
    /// What ranges that declared their work achieved of the roofline, by time. Good from 60 %, bad up to 15 %: the limits
    /// that Nsight Compute's rules go by.
    OfRoof,
    /// The largest estimate of all causes and findings: how many times as fast the run is under the assumption that the note
    /// states (Amdahl). What the GPU computes is no such cause. Good up to the estimate of a part that is good, 1.05; bad from
    /// that of one that is bad, 1.25.
    Estimate,
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

    /// As people read it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Health => "recording",
            Self::GpuBusy => "GPU busy",
            Self::Launch => "idle for launches",
            Self::Synchronization => "idle for waits and small copies",
            Self::Host => "idle for the host",
            Self::Loading => "idle for data",
            Self::Copy => "copies alone and their calls",
            Self::Communication => "communication alone",
            Self::Overlap => "copies hidden behind kernels",
            Self::SmallKernels => "kernels too short",
            Self::Occupancy => "theoretical occupancy",
            Self::TensorCores => "tensor cores, where they can",
            Self::OfRoof => "achieved of the roof",
            Self::Estimate => "estimated for one change",
        }
    }

    /// As programs and arguments write it: `gpu_busy`.
    #[must_use]
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
    #[must_use]
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

impl fmt::Display for ScoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

/// How a value fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Flag {
    /// It cannot be decided, or so little depends on it that it does not matter; the note gives the reason.
    Unknown,
    /// At its target.
    Good,
    /// Worth a look: neither.
    Look,
    /// Far from its target.
    Bad,
}

impl Flag {
    /// As people read it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Good => "good",
            Self::Look => "look",
            Self::Bad => "bad",
        }
    }
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}
