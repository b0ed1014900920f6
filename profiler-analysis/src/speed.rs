//! The judgement of two sides by the bounds of the factor between their times.
//! [`compare`](crate::compare), [`gate`](crate::gate) and [`measure`](crate::measure) share it.

use profiler_base::hodges_lehmann::Factor;
use profiler_base::named_variants;
use serde::Serialize;

named_variants! {
    /// The result of comparing the times of two sides.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum Speed {
        /// The second side takes less time: both bounds are below the margin.
        Faster = "faster",
        /// The second side takes more time: both bounds are above the margin.
        Slower = "slower",
        /// A difference in either direction is at most the precision.
        Same = "as fast as before",
        /// The bounds allow for more than one of the above: too few samples, or too much noise.
        Undecided = "undecided",
    }
}

impl Speed {
    /// Differences beyond `margin` are slower or faster, and differences up to `same` count as
    /// equal. Without `same` the result is never `Same`.
    pub(crate) fn from_factor(factor: &Factor, margin: f64, same: Option<f64>) -> Self {
        if factor.is_slower(margin) {
            Self::Slower
        } else if factor.is_faster(margin) {
            Self::Faster
        } else if same.is_some_and(|same| factor.is_same(same)) {
            Self::Same
        } else {
            Self::Undecided
        }
    }
}
