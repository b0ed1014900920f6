//! Signs: numbers with thresholds that support a cause.

use std::fmt;
use std::time::Duration;

use profiler_base::{serialize_fields, units};
use serde::Serialize;

/// The unit of a sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SignUnit {
    /// A share from 0 to 1.
    Share,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// A count, or a factor.
    Count,
}

/// The supporting side of a sign's threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SignSide {
    /// The threshold or more.
    AtLeast,
    /// The threshold or less.
    AtMost,
}

/// A number that supports or contradicts a cause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sign {
    /// The measured quantity.
    pub(crate) name: &'static str,
    /// Its value.
    pub(crate) value: f64,
    /// The unit of value and threshold.
    pub(crate) unit: SignUnit,
    /// The supporting side of the threshold.
    pub(crate) side: SignSide,
    /// The threshold.
    pub(crate) threshold: f64,
    /// True for the sign that defines the cause; the others support it or not.
    pub(crate) decides: bool,
}

/// Makes the first sign the deciding one.
pub(super) fn first_decides(mut signs: Vec<Sign>) -> Vec<Sign> {
    signs.iter_mut().skip(1).for_each(|sign| sign.decides = false);
    signs
}

impl Sign {
    pub(super) fn at_least(name: &'static str, value: f64, unit: SignUnit, threshold: f64) -> Self {
        Self { name, value, unit, side: SignSide::AtLeast, threshold, decides: true }
    }

    pub(super) fn share_at_least(name: &'static str, value: f64, threshold: f64) -> Self {
        Self::at_least(name, value, SignUnit::Share, threshold)
    }

    pub(super) fn at_most(name: &'static str, value: f64, unit: SignUnit, threshold: f64) -> Self {
        Self { side: SignSide::AtMost, ..Self::at_least(name, value, unit, threshold) }
    }

    /// True if the value is on the supporting side of the threshold.
    pub(crate) fn is_met(&self) -> bool {
        match self.side {
            SignSide::AtLeast => self.value >= self.threshold,
            SignSide::AtMost => self.value <= self.threshold,
        }
    }
}

/// A number with its unit, for display.
struct WithUnit(f64, SignUnit);

impl fmt::Display for WithUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value, unit) = *self;
        match unit {
            SignUnit::Share => f.write_str(&units::percent(value)),
            SignUnit::Seconds => {
                let time = Duration::try_from_secs_f64(value.max(0.0)).unwrap_or(Duration::MAX);
                f.write_str(&units::time(time))
            }
            SignUnit::Bytes => f.write_str(&units::bytes(value as u64)),
            SignUnit::Count if value.fract() == 0.0 => write!(f, "{value:.0}"),
            SignUnit::Count => write!(f, "{value:.2}"),
        }
    }
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match (self.side, self.is_met()) {
            (SignSide::AtLeast, true) => "at least",
            (SignSide::AtLeast, false) => "less than",
            (SignSide::AtMost, true) => "at most",
            (SignSide::AtMost, false) => "more than",
        };
        let [value, threshold] =
            [self.value, self.threshold].map(|number| WithUnit(number, self.unit));
        write!(f, "{}: {value} ({side} {threshold})", self.name)
    }
}

serialize_fields!(Sign, "Sign", |sign| {
    "name": sign.name,
    "value": sign.value,
    "unit": sign.unit,
    "side": sign.side,
    "threshold": sign.threshold,
    "decides": sign.decides,
    "met": sign.is_met(),
});
