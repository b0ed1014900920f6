//! A number that speaks for something, or against it.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::base::units;

/// What a sign's numbers count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SignUnit {
    /// A part of a whole, from 0 to 1.
    Share,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// So many, or so many times.
    Count,
}

/// Which side of its threshold a sign has to be on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SignSide {
    /// The threshold or more.
    AtLeast,
    /// The threshold or less.
    AtMost,
}

/// A number that speaks for a cause, or against it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Sign {
    /// What is measured.
    pub name: &'static str,
    /// What it is here.
    pub value: f64,
    /// What both numbers count.
    pub unit: SignUnit,
    /// The side of the threshold that speaks for the cause.
    pub side: SignSide,
    /// The threshold.
    pub threshold: f64,
    /// True if the cause is named for this sign; the others go with it or not.
    pub decides: bool,
}

impl Sign {
    pub(super) fn at_least(name: &'static str, value: f64, unit: SignUnit, threshold: f64) -> Self {
        Self { name, value, unit, side: SignSide::AtLeast, threshold, decides: false }
    }

    pub(super) fn at_most(name: &'static str, value: f64, unit: SignUnit, threshold: f64) -> Self {
        Self { side: SignSide::AtMost, ..Self::at_least(name, value, unit, threshold) }
    }

    pub(super) fn deciding(self) -> Self {
        Self { decides: true, ..self }
    }

    /// True if the value is on the threshold's right side.
    pub fn is_met(&self) -> bool {
        match self.side {
            SignSide::AtLeast => self.value >= self.threshold,
            SignSide::AtMost => self.value <= self.threshold,
        }
    }
}

/// A number with its unit.
struct Shown(f64, SignUnit);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value, unit) = *self;
        match unit {
            SignUnit::Share => write!(f, "{:.1} %", 100.0 * value),
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
        let side = match self.side {
            SignSide::AtLeast => "at least",
            SignSide::AtMost => "at most",
        };
        let (value, threshold) = (Shown(self.value, self.unit), Shown(self.threshold, self.unit));
        let met = if self.is_met() { "" } else { "not " };
        write!(f, "{}: {value} ({met}{side} {threshold})", self.name)
    }
}

impl Serialize for Sign {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Whole {
            name: &'static str,
            value: f64,
            unit: SignUnit,
            side: SignSide,
            threshold: f64,
            decides: bool,
            met: bool,
        }
        let Self { name, value, unit, side, threshold, decides } = *self;
        Whole { name, value, unit, side, threshold, decides, met: self.is_met() }
            .serialize(serializer)
    }
}
