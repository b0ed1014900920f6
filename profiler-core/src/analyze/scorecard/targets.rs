//! What values are to be.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Flag, ScoreKind};
use crate::analyze::diagnosis::Thresholds;
use crate::analyze::roofline::Peaks;

/// From where on a value is good, and from where on it is bad; in the unit of the value: shares from 0 to 1, factors.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Target {
    /// It is good here and beyond.
    pub good: f64,
    /// It is bad here and beyond, on the other side. What is both is good.
    pub bad: f64,
}

impl Target {
    /// A target.
    #[must_use]
    pub const fn new(good: f64, bad: f64) -> Self {
        Self { good, bad }
    }

    /// How a value fares. One that is not a number is not known.
    #[must_use]
    pub fn flag(self, kind: ScoreKind, value: f64) -> Flag {
        let (value, good, bad) = match kind.more_is_better() {
            true => (value, self.good, self.bad),
            false => (-value, -self.good, -self.bad),
        };
        match value {
            value if value.is_nan() => Flag::Unknown,
            value if value >= good => Flag::Good,
            value if value <= bad => Flag::Bad,
            _ => Flag::Look,
        }
    }
}

/// What a scorecard goes by: targets, [`Thresholds`] of the diagnosis, and roofs.
///
/// ```
/// use profiler_core::scorecard::{ScoreKind, Target, Targets};
///
/// let strict = Targets::new().with(ScoreKind::GpuBusy, Target::new(0.98, 0.9));
/// assert_eq!(strict.get(ScoreKind::GpuBusy).bad, 0.9);
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Targets {
    of: BTreeMap<ScoreKind, Target>,
    pub(super) thresholds: Thresholds,
    pub(super) peaks: Option<Peaks>,
}

impl Targets {
    /// The defaults, as [`ScoreKind`] tells them.
    pub fn new() -> Self {
        Self::default()
    }

    /// With another target for this value.
    pub fn with(mut self, kind: ScoreKind, target: Target) -> Self {
        self.of.insert(kind, target);
        self
    }

    /// With other thresholds of the diagnosis: they say what a small kernel is, in which ranges data is loaded, and the
    /// defaults of shares.
    pub fn thresholds(mut self, thresholds: Thresholds) -> Self {
        self.thresholds = thresholds;
        self
    }

    /// With these roofs instead of those of the device that ran most kernels.
    pub fn peaks(mut self, peaks: Peaks) -> Self {
        self.peaks = Some(peaks);
        self
    }

    /// The target of a value.
    pub fn get(&self, kind: ScoreKind) -> Target {
        self.of.get(&kind).copied().unwrap_or_else(|| kind.target(&self.thresholds))
    }
}
