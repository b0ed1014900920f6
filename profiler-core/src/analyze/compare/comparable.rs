//! Whether two sides can be compared: the same devices, the same program, the same amount of work.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::Compare;
use super::clocks::Side;
use crate::base::units::{NAME_WIDTH, shortened};
use crate::profile::Profile;

/// Why the wall times of two sides cannot be compared, however many runs there are:
/// [`WallChange::undecidable`](super::WallChange::undecidable).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum Undecidable {
    /// A side has no run.
    NoRun {
        /// The side.
        side: Side,
    },
    /// A recording of a side is cut off, as of a program that was killed.
    CutOff {
        /// The side.
        side: Side,
    },
    /// A run of a side has neither a range nor a GPU operation.
    Nothing {
        /// The side.
        side: Side,
    },
    /// The runs of both sides used different GPUs.
    Devices {
        /// The GPUs before.
        before: String,
        /// The GPUs after.
        after: String,
    },
    /// Runs have no range and no kernel in common: they are of different programs.
    NothingInCommon,
    /// An outermost range with GPU work was entered a different number of times.
    OtherWork {
        /// Its path.
        range: String,
        /// The fewest and the most entries of a run before.
        before: (u64, u64),
        /// The fewest and the most entries of a run after.
        after: (u64, u64),
    },
    /// Pairs of runs need as many on each side.
    NoPairs {
        /// Runs before.
        before: usize,
        /// Runs after.
        after: usize,
    },
}

impl fmt::Display for Undecidable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRun { side } => write!(f, "there is no run {side}"),
            Self::CutOff { side } => write!(
                f,
                "a recording {side} is cut off, so its wall time is not that of the run: record it again"
            ),
            Self::Nothing { side } => write!(
                f,
                "a run {side} has neither a range nor a GPU operation: record the part of the program that uses the GPU"
            ),
            Self::Devices { before, after } => write!(
                f,
                "the GPUs differ, {} before and {} after, so times differ without a change of the program: record both sides \
                 on one machine",
                shortened(before, NAME_WIDTH),
                shortened(after, NAME_WIDTH),
            ),
            Self::NothingInCommon => f.write_str(
                "the runs have no range and no kernel in common: they are of different programs, or need the same ranges",
            ),
            Self::OtherWork { range, before, after } => write!(
                f,
                "{} was entered {} times before and {} times after, so the runs did not do the same work",
                shortened(range, NAME_WIDTH),
                span(*before),
                span(*after),
            ),
            Self::NoPairs { before, after } => write!(
                f,
                "there are {before} runs before and {after} after, which are no pairs: give as many on each side, in the order \
                 of measurement"
            ),
        }
    }
}

fn span((least, most): (u64, u64)) -> String {
    if least == most { least.to_string() } else { format!("{least} to {most}") }
}

/// What the runs of a side did.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// The fewest and the most entries of each outermost range with GPU work.
    pub(crate) entries: BTreeMap<String, (u64, u64)>,
    /// All ranges.
    pub(crate) ranges: BTreeSet<String>,
    pub(crate) kernels: BTreeSet<String>,
}

impl Work {
    fn of(profile: &Profile) -> Self {
        let label = |name: &str, domain: Option<&str>| match domain {
            Some(domain) => format!("{name} [{domain}]"),
            None => name.to_owned(),
        };
        let mut work = Self::default();
        for (depth, node) in profile.walk() {
            let path = label(&node.cut_path(), node.domain());
            let totals = node.inclusive();
            if depth == 0 && (totals.launches != 0 || totals.gpu_operations() != 0) {
                work.entries.insert(path.clone(), (node.instances(), node.instances()));
            }
            work.ranges.insert(path);
        }
        work.kernels = profile.kernels().map(|kernel| kernel.name().to_owned()).collect();
        work
    }

    fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.kernels.is_empty()
    }

    fn merge(&mut self, other: Self) {
        for (range, (least, most)) in other.entries {
            let (all_least, all_most) = self.entries.entry(range).or_insert((least, most));
            (*all_least, *all_most) = (least.min(*all_least), most.max(*all_most));
        }
        self.ranges.extend(other.ranges);
        self.kernels.extend(other.kernels);
    }

    /// True if these may be runs of one program.
    pub(crate) fn has_common(&self, other: &Self) -> bool {
        !self.ranges.is_disjoint(&other.ranges) || !self.kernels.is_disjoint(&other.kernels)
    }

    /// The first outermost range of both sides whose entries differ by more than the margin.
    pub(crate) fn differs(&self, after: &Self, margin: f64) -> Option<Undecidable> {
        self.entries.iter().find_map(|(range, &before)| {
            let &after = after.entries.get(range)?;
            let is_apart = |low: u64, high: u64| high as f64 > (1.0 + margin) * low as f64;
            (is_apart(before.1, after.0) || is_apart(after.1, before.0))
                .then(|| Undecidable::OtherWork { range: range.clone(), before, after })
        })
    }
}

/// The GPUs with operations: their names.
fn devices(profile: &Profile) -> BTreeSet<String> {
    let used: BTreeSet<u32> = profile.operations().map(|operation| operation.device()).collect();
    let devices = profile.recording_info().devices.iter();
    devices.filter(|device| used.contains(&device.id)).map(|device| device.name.clone()).collect()
}

/// The first reason why these runs cannot be compared.
pub(super) fn undecidable(sides: [&[Profile]; 2], compare: &Compare) -> Option<Undecidable> {
    let both = [Side::Before, Side::After];
    if let Some(at) = sides.iter().position(|runs| runs.is_empty()) {
        return Some(Undecidable::NoRun { side: both[at] });
    }
    let is_cut_off = |profile: &Profile| profile.health().truncated != 0;
    if let Some(at) = sides.iter().position(|runs| runs.iter().any(is_cut_off)) {
        return Some(Undecidable::CutOff { side: both[at] });
    }
    if compare.paired && sides[0].len() != sides[1].len() {
        let [before, after] = sides.map(<[Profile]>::len);
        return Some(Undecidable::NoPairs { before, after });
    }
    let mut works: [Work; 2] = Default::default();
    for ((all, runs), side) in works.iter_mut().zip(sides).zip(both) {
        for profile in runs {
            let work = Work::of(profile);
            if work.is_empty() {
                return Some(Undecidable::Nothing { side });
            }
            if !all.is_empty() && !all.has_common(&work) {
                return Some(Undecidable::NothingInCommon);
            }
            all.merge(work);
        }
    }
    let [before, after] = sides.map(|runs| {
        let all: BTreeSet<String> = runs.iter().flat_map(devices).collect();
        all.into_iter().collect::<Vec<_>>().join(" + ")
    });
    if before != after && !before.is_empty() && !after.is_empty() {
        return Some(Undecidable::Devices { before, after });
    }
    let [before, after] = &works;
    if !before.has_common(after) {
        return Some(Undecidable::NothingInCommon);
    }
    if compare.any_work { None } else { before.differs(after, compare.margin) }
}
