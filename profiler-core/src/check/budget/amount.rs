//! Amounts and bounds as integers in their unit.

use std::marker::PhantomData;
use std::time::Duration;

/// The amount of a budget: `u64` for counts and bytes, [`Duration`] for times, `f64` for shares
/// from 0 to 1. A budget of NaN always fails.
///
/// It has no public path: only these types are amounts.
pub trait Amount {
    /// A number of items, bytes, nanoseconds or millionths; `None` for NaN.
    fn raw(self) -> Option<u64>;
}

impl Amount for u64 {
    fn raw(self) -> Option<u64> {
        Some(self)
    }
}

impl Amount for Duration {
    fn raw(self) -> Option<u64> {
        Some(profiler_base::units::nanoseconds(self))
    }
}

impl Amount for f64 {
    fn raw(self) -> Option<u64> {
        (!self.is_nan()).then(|| (self * SHARE).round() as u64)
    }
}

/// A bound on an amount, made by [`at_most`], [`at_least`], [`exactly`] or [`between`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a budget that is set on nothing checks nothing"]
pub struct Budget<T> {
    pub(super) bounds: Bounds,
    of: PhantomData<T>,
}

impl<T> Budget<T> {
    fn new(bounds: Bounds) -> Self {
        Self { bounds, of: PhantomData }
    }
}

/// An upper bound, inclusive; [`expect`](crate::expect) has an example.
pub fn at_most<T: Amount>(most: T) -> Budget<T> {
    Budget::new(most.raw().map_or(Bounds::NoNumber, Bounds::AtMost))
}

/// A lower bound, inclusive; used like [`at_most`].
pub fn at_least<T: Amount>(least: T) -> Budget<T> {
    Budget::new(least.raw().map_or(Bounds::NoNumber, Bounds::AtLeast))
}

/// Exactly this amount; [`expect`](crate::expect) has an example.
pub fn exactly<T: Amount>(amount: T) -> Budget<T> {
    Budget::new(amount.raw().map_or(Bounds::NoNumber, Bounds::Exactly))
}

/// An amount from `least` to `most`, inclusive; [`expect`](crate::expect) has an example.
pub fn between<T: Amount>(least: T, most: T) -> Budget<T> {
    let ends = least.raw().zip(most.raw());
    Budget::new(ends.map_or(Bounds::NoNumber, |(least, most)| Bounds::Between(least, most)))
}

/// Shares are stored in millionths.
pub(super) const SHARE: f64 = 1e6;

/// The unit of an amount in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Count,
    Bytes,
    Time,
    Share,
}

impl Unit {
    /// Exact, so that a budget copied from the text passes.
    pub(super) fn show(self, raw: u64) -> String {
        match self {
            Self::Count => raw.to_string(),
            Self::Bytes => format!("{raw} bytes"),
            Self::Time => exact(Duration::from_nanos(raw)),
            Self::Share => (raw as f64 / SHARE).to_string(),
        }
    }
}

/// Formats a time with all digits and a fitting unit: 75.518 us.
fn exact(time: Duration) -> String {
    let text = format!("{time:?}").replace('µ', "u");
    let digits = text.trim_end_matches(char::is_alphabetic).len();
    let (number, unit) = text.split_at(digits);
    format!("{number} {unit}")
}

/// A bound in the unit of its quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bounds {
    AtMost(u64),
    AtLeast(u64),
    Exactly(u64),
    Between(u64, u64),
    /// A bound was NaN: every amount fails.
    NoNumber,
}

impl Bounds {
    pub(super) fn ends(self) -> (u64, u64) {
        match self {
            Self::AtMost(most) => (0, most),
            Self::AtLeast(least) => (least, u64::MAX),
            Self::Exactly(amount) => (amount, amount),
            Self::Between(least, most) => (least, most),
            Self::NoNumber => (u64::MAX, 0),
        }
    }

    /// The distance to the nearest allowed amount; 0 if allowed.
    pub(super) fn excess(self, amount: u64) -> u64 {
        let (least, most) = self.ends();
        least.saturating_sub(amount).max(amount.saturating_sub(most))
    }

    /// The nearest bounds of this kind that allow all amounts from `low` to `high`.
    pub(super) fn widened(self, low: u64, high: u64) -> Self {
        match self {
            Self::AtMost(most) => Self::AtMost(most.max(high)),
            Self::AtLeast(least) => Self::AtLeast(least.min(low)),
            Self::Exactly(_) if low == high => Self::Exactly(low),
            Self::Exactly(_) | Self::NoNumber => Self::Between(low, high),
            Self::Between(least, most) => Self::Between(least.min(low), most.max(high)),
        }
    }

    pub(super) fn show(self, unit: Unit) -> String {
        match self {
            Self::AtMost(most) => format!("at most {}", unit.show(most)),
            Self::AtLeast(least) => format!("at least {}", unit.show(least)),
            Self::Exactly(amount) => format!("exactly {}", unit.show(amount)),
            Self::Between(least, most) => {
                format!("between {} and {}", unit.show(least), unit.show(most))
            }
            Self::NoNumber => "NaN, which no amount keeps".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_include_their_ends_and_widen_to_passing_values() {
        for (bounds, inside, outside) in [
            (Bounds::AtMost(5), [0, 5], [6, 9]),
            (Bounds::AtLeast(5), [5, u64::MAX], [4, 0]),
            (Bounds::Exactly(5), [5, 5], [4, 6]),
            (Bounds::Between(3, 5), [3, 5], [2, 6]),
        ] {
            for amount in inside {
                assert_eq!(bounds.excess(amount), 0, "{bounds:?} {amount}");
            }
            for amount in outside {
                assert_ne!(bounds.excess(amount), 0, "{bounds:?} {amount}");
                assert_eq!(bounds.widened(amount, amount).excess(amount), 0);
            }
            let (low, high) = (1, 8);
            let wide = bounds.widened(low, high);
            assert_eq!((wide.excess(low), wide.excess(high)), (0, 0), "{bounds:?}");
        }
    }

    #[test]
    fn amounts_are_written_exactly() {
        assert_eq!(Unit::Time.show(1_234_567), "1.234567 ms");
        assert_eq!(Unit::Time.show(1_500), "1.5 us");
        assert_eq!(Unit::Share.show(Amount::raw(0.853_217).unwrap()), "0.853217");
        assert_eq!(Unit::Bytes.show(77), "77 bytes");
        assert_eq!(Bounds::Between(1, 2).show(Unit::Count), "between 1 and 2");
    }
}
