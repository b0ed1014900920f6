//! How sure it is what a name says.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How sure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// What such kernels do by default where types and device allow it.
    Low,
    /// Mostly so.
    Medium,
    /// The name says the instruction, or the library has no other kernels.
    High,
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        })
    }
}
