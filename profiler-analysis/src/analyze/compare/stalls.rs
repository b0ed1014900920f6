//! Changes of what the warps of kernels wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use profiler_base::text::printable;
use profiler_base::units::percent;
use profiler_core::profile::Profile;
use profiler_core::query::{Stall, Stalls};
use serde::Serialize;

/// The half width of a 99 % interval, in standard deviations.
const DEVIATIONS: f64 = 2.576;
/// Smaller changes of a share are left out.
const LEAST: f64 = 0.01;

/// A changed share of the samples of a kernel: of a state, or of a line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct StallChange {
    /// The kernel.
    pub(crate) kernel: String,
    /// The line; `None` for all of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<String>,
    /// The state; `None` for all samples of the line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stall: Option<Stall>,
    /// The share before, from 0 to 1.
    pub(crate) before: f64,
    /// The share after.
    pub(crate) after: f64,
    /// Half the width of the 99 % interval of the difference, by the number of samples.
    pub(crate) within: f64,
}

impl fmt::Display for StallChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.kernel))?;
        match (&self.stall, &self.line) {
            (Some(stall), _) => write!(f, " {stall}")?,
            (None, Some(line)) => write!(f, " is at {line}")?,
            (None, None) => {}
        }
        let [before, after] = [self.before, self.after].map(percent);
        let points = 100.0 * (self.after - self.before);
        write!(f, ": {before} to {after} ({points:+.1} points, +-{:.1})", 100.0 * self.within)
    }
}

/// The samples of a kernel: by state, and by line.
#[derive(Default)]
struct Sampled {
    stalls: Stalls,
    lines: BTreeMap<String, f64>,
}

fn sampled(runs: &[Profile]) -> BTreeMap<String, Sampled> {
    let mut kernels: BTreeMap<String, Sampled> = BTreeMap::new();
    for place in runs.iter().flat_map(|profile| profile.instructions().by_line()) {
        let kernel = kernels.entry(place.kernel.to_string()).or_default();
        kernel.stalls += place.stalls;
        if place.line.is_some() {
            *kernel.lines.entry(place.place()).or_default() += place.stalls.total();
        }
    }
    kernels
}

/// The shares that differ by more than chance and a point, largest change first.
pub(super) fn changes(sides: [&[Profile]; 2]) -> Vec<StallChange> {
    let [before, after] = sides.map(sampled);
    let mut changes = Vec::new();
    for (kernel, old) in &before {
        let Some(new) = after.get(kernel) else { continue };
        let totals = [old.stalls.total(), new.stalls.total()];
        let mut add = |line: Option<&String>, stall, shares: [f64; 2]| {
            let variance: f64 =
                shares.iter().zip(totals).map(|(share, of)| share * (1.0 - share) / of).sum();
            let within = DEVIATIONS * variance.max(0.0).sqrt();
            let [before, after] = shares;
            if (after - before).abs() > within.max(LEAST) {
                let (kernel, line) = (kernel.clone(), line.cloned());
                changes.push(StallChange { kernel, line, stall, before, after, within });
            }
        };
        for stall in Stall::ALL {
            add(None, Some(stall), [old.stalls.share(stall), new.stalls.share(stall)]);
        }
        let lines: BTreeSet<&String> = old.lines.keys().chain(new.lines.keys()).collect();
        for line in lines {
            let of =
                |side: &Sampled, total: f64| side.lines.get(line).copied().unwrap_or(0.0) / total;
            add(Some(line), None, [of(old, totals[0]), of(new, totals[1])]);
        }
    }
    let size = |change: &StallChange| (change.after - change.before).abs();
    changes.sort_by(|a, b| size(b).total_cmp(&size(a)));
    changes
}
