//! How sure it is what a name says.

use serde::{Deserialize, Serialize};

use crate::base::named_variants::named_variants;

named_variants! {
    /// How sure it is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Confidence {
        /// What such kernels do by default where types and device allow it.
        Low = "low",
        /// Mostly so.
        Medium = "medium",
        /// The name says the instruction, or the library has no other kernels.
        High = "high",
    }
}
