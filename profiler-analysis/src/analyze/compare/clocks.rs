//! Clock differences that make times of both sides incomparable.

use std::collections::BTreeMap;
use std::fmt;

use profiler_base::hodges_lehmann::Factor;
use profiler_base::named_variants;
use serde::Serialize;

use profiler_core::profile::{DeviceClocks, Profile};

/// The relative difference of clocks that is reported.
const DIFFERS: f64 = 0.02;

named_variants! {
    /// A side of a comparison.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Side {
        /// The reference.
        Before = "before",
        /// The change.
        After = "after",
    }
}

/// A reason for different times other than the program:
/// [`Comparison::clock_warnings`](super::Comparison::clock_warnings).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum ClockWarning {
    /// The clocks of a side were lowered for a hundredth or more of the time with operations.
    Throttled {
        /// The device's CUDA ordinal.
        device: u32,
        /// The side.
        side: Side,
        /// The reason: heat, the power limit and so on.
        by: &'static str,
        /// The share of the time with operations, 0 to 1; the mean of several runs.
        share: f64,
    },
    /// A clock differed by more than 2 % while operations ran.
    Differs {
        /// The device's CUDA ordinal.
        device: u32,
        /// `SM` or `memory`.
        clock: &'static str,
        /// The mean in Hz before.
        before_hz: f64,
        /// The mean in Hz after.
        after_hz: f64,
    },
    /// Clocks were sampled on the other side only.
    Unknown {
        /// The side without samples.
        side: Side,
    },
}

impl fmt::Display for ClockWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Throttled { device, side, by, share } => write!(
                f,
                "{side}, the clocks of GPU {device} were lowered by {by} in {:.1} % of its busy time, which \
                 lengthens its times",
                100.0 * share
            ),
            Self::Differs { device, clock, before_hz, after_hz } => write!(
                f,
                "the {clock} clock of GPU {device} ran at {:.0} MHz before and at {:.0} MHz after ({:+.1} %), by which times may \
                 differ without a change of the program",
                before_hz / 1e6,
                after_hz / 1e6,
                100.0 * (after_hz / before_hz - 1.0)
            ),
            Self::Unknown { side } => {
                write!(f, "clocks were not sampled {side}: they may differ")
            }
        }
    }
}

/// The factors by which times may differ because of the SM clocks alone.
///
/// Times of compute scale with the clock; times of memory and of the host do not. At equal clocks,
/// the factor of a time would lie between itself and itself times the factor of the clocks. The
/// bounds are widened by that interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct ClockFactors {
    /// The least factor from the clock before to the clock after, at most 1.
    pub(crate) low: f64,
    /// The greatest such factor, at least 1.
    pub(crate) high: f64,
}

impl ClockFactors {
    /// `None` unless a clock differs by more than `DIFFERS`.
    pub(crate) fn from_factors(factors: impl Iterator<Item = f64>) -> Option<Self> {
        let (low, high) = factors
            .filter(|factor| is_apart(1.0, *factor))
            .fold((1.0, 1.0), |(low, high): (f64, f64), factor| {
                (low.min(factor), high.max(factor))
            });
        (low != high).then_some(Self { low, high })
    }

    pub(super) fn of_warnings(warnings: &[ClockWarning]) -> Option<Self> {
        Self::from_factors(warnings.iter().filter_map(|warning| match warning {
            ClockWarning::Differs { clock: SM, before_hz, after_hz, .. } => {
                Some(after_hz / before_hz)
            }
            _ => None,
        }))
    }

    pub(crate) fn widen(self, Factor { ratio, low, high }: Factor) -> Factor {
        Factor { ratio, low: low * self.low, high: high * self.high }
    }
}

/// The name of the clock of the multiprocessors.
const SM: &str = "SM";

/// True if two clocks differ by more than `DIFFERS`.
fn is_apart(before_hz: f64, after_hz: f64) -> bool {
    (after_hz - before_hz).abs() > DIFFERS * before_hz.max(after_hz)
}

/// The clocks of one device in the runs of a side.
#[derive(Debug, Default)]
struct Clocks {
    sm_hz: Vec<f64>,
    memory_hz: Vec<f64>,
    /// Shares of runs with lowered clocks, by reason.
    slowed_by: BTreeMap<&'static str, Vec<f64>>,
    runs: usize,
}

impl Clocks {
    fn add(&mut self, clocks: &DeviceClocks) {
        self.runs += 1;
        self.sm_hz.extend(clocks.sm_hz);
        self.memory_hz.extend(clocks.memory_hz);
        for (by, share) in clocks.slowed_by() {
            self.slowed_by.entry(by).or_default().push(share);
        }
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

pub(super) fn warnings(sides: [&[Profile]; 2]) -> Vec<ClockWarning> {
    let [before, after] = sides.map(|runs| {
        let mut devices: BTreeMap<u32, Clocks> = BTreeMap::new();
        for clocks in runs.iter().flat_map(Profile::device_clocks) {
            devices.entry(clocks.device).or_default().add(&clocks);
        }
        devices
    });
    let mut warnings = Vec::new();
    match (before.is_empty(), after.is_empty()) {
        (true, false) => warnings.push(ClockWarning::Unknown { side: Side::Before }),
        (false, true) => warnings.push(ClockWarning::Unknown { side: Side::After }),
        _ => {}
    }
    for (side, devices) in [(Side::Before, &before), (Side::After, &after)] {
        for (&device, clocks) in devices {
            for (&by, shares) in &clocks.slowed_by {
                let share = shares.iter().sum::<f64>() / clocks.runs as f64;
                if share >= DeviceClocks::THROTTLED_SHARE {
                    warnings.push(ClockWarning::Throttled { device, side, by, share });
                }
            }
        }
    }
    for (&device, before) in &before {
        let Some(after) = after.get(&device) else { continue };
        let clocks =
            [(SM, &before.sm_hz, &after.sm_hz), ("memory", &before.memory_hz, &after.memory_hz)];
        for (clock, before, after) in clocks {
            let (Some(before_hz), Some(after_hz)) = (mean(before), mean(after)) else { continue };
            if is_apart(before_hz, after_hz) {
                warnings.push(ClockWarning::Differs { device, clock, before_hz, after_hz });
            }
        }
    }
    warnings
}
