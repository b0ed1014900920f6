//! Confidence of statements by name.

use profiler_base::named_variants;
use serde::{Deserialize, Serialize};

named_variants! {
    /// The reliability of a statement by name.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Confidence {
        /// The usual case for such kernels, if type and device allow it.
        Low = "low",
        /// True in most cases.
        Medium = "medium",
        /// The name contains the instruction, or the library has no other kernels.
        High = "high",
    }
}
