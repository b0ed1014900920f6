//! The kinds of activity records, by number. `record/mod.rs` lists them with their names.

use std::fmt;

/// `CUpti_ActivityKind`. A newer library may have kinds without a name here.
///
/// Kinds that CUPTI 13.0 removed (events, metrics, source-level sampling of the old interfaces)
/// have no name either. No library of 12.0 or later writes them unless a program uses those
/// interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActivityKind(pub u32);

impl fmt::Display for ActivityKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "activity kind {}", self.0),
        }
    }
}
