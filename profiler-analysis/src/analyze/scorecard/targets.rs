//! Targets of values.

use std::collections::BTreeMap;

use profiler_base::setters;
use serde::Serialize;

use super::{Flag, ScoreKind};
use crate::analyze::diagnosis::Thresholds;
use crate::analyze::roofline::Peaks;

/// The bounds of good and bad, in the unit of the value: shares from 0 to 1, or factors.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Target {
    /// Values from this bound on are good.
    pub good: f64,
    /// Values from this bound on, in the other direction, are bad. A value that meets both bounds
    /// is good.
    pub bad: f64,
}

impl Target {
    /// A target from its bounds.
    #[must_use]
    pub const fn new(good: f64, bad: f64) -> Self {
        Self { good, bad }
    }

    /// The flag of a value; unknown for NaN.
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

/// The settings of a scorecard: targets, [`Thresholds`] of the diagnosis, and roofs.
///
/// ```
/// use profiler_analysis::scorecard::{ScoreKind, Target, Targets};
///
/// let strict = Targets::new().with_target(ScoreKind::GpuBusy, Target::new(0.98, 0.9));
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
    /// The defaults of [`ScoreKind`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the target of a value.
    pub fn with_target(mut self, kind: ScoreKind, target: Target) -> Self {
        self.of.insert(kind, target);
        self
    }

    setters! {
        /// Sets the diagnosis' thresholds: small kernels, names of loading ranges, default shares.
        thresholds(thresholds: Thresholds) thresholds = thresholds;
        /// Sets the roofs, instead of those of the device with the most kernels.
        peaks(peaks: Peaks) peaks = Some(peaks);
    }

    /// The target of a value.
    pub fn get(&self, kind: ScoreKind) -> Target {
        self.of.get(&kind).copied().unwrap_or_else(|| kind.target(&self.thresholds))
    }
}
