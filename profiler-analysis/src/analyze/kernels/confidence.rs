//! Confidence of statements by name.

use profiler_base::named_variants;
use serde::{Deserialize, Serialize};

named_variants! {
    /// How reliable a statement by name is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Confidence {
        /// The default for such kernels, if type and device allow it.
        Low = "low",
        /// Mostly true.
        Medium = "medium",
        /// The name contains the instruction, or the library has no other kernels.
        High = "high",
    }
}
