//! The phases of both sides by kind and name.

use std::fmt;

use profiler_base::units::{NAME_WIDTH, shortened};
use serde::Serialize;

use super::wall::{signed, time};
use crate::analyze::phases::{PhaseKind, Phases};
use profiler_core::profile::Profile;

/// A phase of the runs on both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PhaseChange {
    /// The kind.
    pub(crate) kind: PhaseKind,
    /// The repeating ranges or operations of a steady phase.
    pub(crate) name: Option<String>,
    /// Nanoseconds on the clock before, the mean of the runs; 0 if no run has the phase.
    pub(crate) before_ns: f64,
    /// Nanoseconds after.
    pub(crate) after_ns: f64,
}

impl PhaseChange {
    pub(super) const HEAD: [&str; 4] = ["phase", "before", "after", "change"];

    pub(super) fn cells(&self) -> Vec<String> {
        let [before, after, change] = self.times();
        vec![self.label(), before, after, change]
    }

    /// Before, after and the change. A side that lacks the phase has a dash, and so has the change.
    fn times(&self) -> [String; 3] {
        let of = |ns: f64| if ns > 0.0 { time(ns) } else { "-".to_owned() };
        let is_common = self.before_ns > 0.0 && self.after_ns > 0.0;
        let change =
            if is_common { signed(self.after_ns - self.before_ns) } else { "-".to_owned() };
        [of(self.before_ns), of(self.after_ns), change]
    }

    fn label(&self) -> String {
        match &self.name {
            Some(name) => format!("{}: {}", self.kind, shortened(name, NAME_WIDTH)),
            None => self.kind.to_string(),
        }
    }
}

/// `start-up: 1.2 s -> 1.4 s, +200 ms`.
impl fmt::Display for PhaseChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [before, after, change] = self.times();
        write!(f, "{}: {before} -> {after}, {change}", self.label())
    }
}

/// The phases of the runs of both sides, in the order of the first run that has them.
pub(super) fn changes(sides: [&[Profile]; 2]) -> Vec<PhaseChange> {
    let mut changes: Vec<PhaseChange> = Vec::new();
    for (side, runs) in sides.into_iter().enumerate() {
        for (kind, name, ns) in runs.iter().flat_map(|run| Phases::new(run).times(run.tables())) {
            let known = changes.iter_mut().find(|of| of.kind == kind && of.name == name);
            let ns = ns as f64 / runs.len() as f64;
            match known {
                Some(of) if side == 0 => of.before_ns += ns,
                Some(of) => of.after_ns += ns,
                None => {
                    let (before_ns, after_ns) = if side == 0 { (ns, 0.0) } else { (0.0, ns) };
                    changes.push(PhaseChange { kind, name, before_ns, after_ns });
                }
            }
        }
    }
    changes
}
