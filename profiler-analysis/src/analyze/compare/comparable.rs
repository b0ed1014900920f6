//! Checks if two sides can be compared: the same devices, the same program, the same amount of
//! work.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use profiler_base::units::{NAME_WIDTH, nanoseconds, shortened};
use serde::{Deserialize, Serialize};

use super::Compare;
use super::clocks::Side;
use crate::running_numbers::NodeNames;
use profiler_core::profile::Totals;
use profiler_core::profile::{Profile, RangeNode};

/// The reason why the wall times of two sides cannot be compared, regardless of the number of runs:
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
    /// A recording of a side is truncated, as after the program was killed.
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
    /// A run of a side has no GPU operation, while the other side has some.
    NoGpuWork {
        /// The side without GPU operations.
        side: Side,
    },
    /// A GPU had work on one side only.
    DeviceCount {
        /// The GPUs with operations before.
        before: u64,
        /// The GPUs with operations after.
        after: u64,
    },
    /// An outermost range has GPU work in fewer of its entries.
    WorkMissing {
        /// The path of the range.
        range: String,
        /// Entries with GPU work, and all entries before.
        before: (u64, u64),
        /// Entries with GPU work, and all entries after.
        after: (u64, u64),
    },
    /// Most of the GPU time is in different kernels, and in no outermost range of both sides.
    OtherKernels,
    /// Runs have no range and no kernel in common: they belong to different programs.
    NothingInCommon,
    /// An outermost range with GPU work was entered a different number of times.
    OtherWork {
        /// The path of the range.
        range: String,
        /// The fewest and the most entries of a run before.
        before: (u64, u64),
        /// The fewest and the most entries of a run after.
        after: (u64, u64),
    },
    /// The sides have different numbers of runs, so pairs cannot be formed.
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
                "a recording {side} is cut off, so its wall time is incomplete: record it again"
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
            Self::NoGpuWork { side } => write!(
                f,
                "a run {side} has no GPU operation, and the other side has some: record the GPU work of both sides"
            ),
            Self::DeviceCount { before, after } => write!(
                f,
                "{before} GPUs had work before and {after} after, so the runs did not do the same work: record all GPUs of \
                 both sides, {ON_PURPOSE}"
            ),
            Self::WorkMissing { range, before, after } => write!(
                f,
                "{} has GPU work in {} of {} entries before and in {} of {} after: check for missing records, \
                 {ON_PURPOSE}",
                shortened(range, NAME_WIDTH),
                before.0,
                before.1,
                after.0,
                after.1,
            ),
            Self::OtherKernels => write!(
                f,
                "most of the GPU time is in other kernels, and in no range of both sides: compare runs of the same work, \
                 with the same outermost ranges, {ON_PURPOSE}"
            ),
            Self::NothingInCommon => f.write_str(
                "the runs have no range and no kernel in common: they are of different programs, or need the same ranges",
            ),
            Self::OtherWork { range, before, after } => write!(
                f,
                "{} was entered {} times before and {} times after, so the runs did not do the same work: compare runs \
                 that did, {ON_PURPOSE}",
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

/// The advice for an intended difference.
const ON_PURPOSE: &str = "or allow it with `any_work` (`--any-work`) if it is on purpose";

/// The minimum and maximum of counts as a text.
pub(crate) fn span((least, most): (u64, u64)) -> String {
    if least == most { least.to_string() } else { format!("{least} to {most}") }
}

/// The share of its GPUs' time from which a GPU must also have work on the other side.
const DEVICE_SHARE: f64 = 0.01;
/// The share of the GPU time that characterizes the work of a run.
const MOST: f64 = 0.5;
/// The share of the GPU time from which the entries of an outermost range must have GPU work.
const RANGE_SHARE: f64 = 0.1;
/// The minimum overlap of the shares of kernels, for runs of the same work without common ranges.
const SAME_KERNELS: f64 = 0.25;

/// The work of the runs of a side.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// The outermost ranges, by path.
    pub(crate) outermost: BTreeMap<String, RangeWork>,
    /// All ranges.
    pub(crate) ranges: BTreeSet<String>,
    /// The GPU time of kernels by name, in nanoseconds.
    pub(crate) kernels: BTreeMap<String, f64>,
    /// The GPU time, in nanoseconds, in ranges and outside.
    pub(crate) gpu_ns: f64,
    /// `None` if unknown.
    pub(crate) devices: Option<DeviceCounts>,
}

/// The work of an outermost range.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RangeWork {
    /// The fewest and the most entries of a run.
    pub(crate) entries: (u64, u64),
    /// True if any run has a launch or a GPU operation in it.
    pub(crate) has_work: bool,
    /// Entries with GPU operations, and all entries, summed over runs; `None` if unknown.
    pub(crate) active: Option<(u64, u64)>,
    pub(crate) gpu_ns: f64,
}

/// The GPUs that a side used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceCounts {
    /// The fewest GPUs of a run with a hundredth of its GPU time or more.
    pub(crate) busy: u64,
    /// The most GPUs of a run with any operation.
    pub(crate) used: u64,
}

impl DeviceCounts {
    /// `None` without GPU operations.
    pub(crate) fn from_profile(profile: &Profile) -> Option<Self> {
        let mut of_device: BTreeMap<u32, u64> = BTreeMap::new();
        for operation in profile.operations() {
            let ns = operation.interval().map_or(0, |time| time.ns());
            *of_device.entry(operation.device()).or_default() += ns;
        }
        let all: u64 = of_device.values().sum();
        let is_busy = |ns: &&u64| **ns as f64 >= DEVICE_SHARE * all as f64;
        let busy = of_device.values().filter(is_busy).count() as u64;
        (!of_device.is_empty()).then_some(Self { busy, used: of_device.len() as u64 })
    }

    pub(crate) fn merged(self, other: Self) -> Self {
        Self { busy: self.busy.min(other.busy), used: self.used.max(other.used) }
    }
}

impl Work {
    fn new(profile: &Profile, names: &NodeNames) -> Self {
        let mut work = Self { devices: DeviceCounts::from_profile(profile), ..Self::default() };
        let ns = |totals: &Totals| nanoseconds(totals.gpu_time()) as f64;
        for (depth, node) in profile.walk() {
            let path = match node.domain() {
                Some(domain) => format!("{} [{domain}]", names.cut_path(&node)),
                None => names.cut_path(&node),
            };
            let totals = node.inclusive();
            if depth == 0 {
                let of_range = work.outermost.entry(path.clone()).or_default();
                of_range.add(&node, ns(&totals));
            }
            work.ranges.insert(path);
        }
        for kernel in profile.kernels() {
            let ns = kernel.interval().map_or(0, |time| time.ns()) as f64;
            match work.kernels.get_mut(kernel.name()) {
                Some(sum) => *sum += ns,
                None => drop(work.kernels.insert(kernel.name().to_owned(), ns)),
            }
        }
        work.gpu_ns = ns(&profile.totals());
        work
    }

    fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.kernels.is_empty()
    }

    /// Adds the work of another run.
    fn merge(&mut self, other: Self) {
        for (path, of) in other.outermost {
            match self.outermost.get_mut(&path) {
                Some(all) => all.merge(of),
                None => drop(self.outermost.insert(path, of)),
            }
        }
        for (name, ns) in other.kernels {
            *self.kernels.entry(name).or_default() += ns;
        }
        self.ranges.extend(other.ranges);
        self.gpu_ns += other.gpu_ns;
        self.devices = match (self.devices, other.devices) {
            (Some(one), Some(other)) => Some(one.merged(other)),
            (one, other) => one.or(other),
        };
    }

    /// True if these may be runs of one program.
    pub(crate) fn has_common(&self, other: &Self) -> bool {
        !self.ranges.is_disjoint(&other.ranges)
            || self.kernels.keys().any(|name| other.kernels.contains_key(name))
    }

    /// Returns the reason why these are not runs of the same work, if any. Compares their GPUs, the
    /// entries of the outermost ranges of both sides, and the ranges and kernels with most of the
    /// GPU time.
    pub(crate) fn differs(&self, after: &Self, margin: f64) -> Option<Undecidable> {
        if let Some((before, after)) = self.devices.zip(after.devices)
            && (before.busy > after.used || after.busy > before.used)
        {
            return Some(Undecidable::DeviceCount { before: before.used, after: after.used });
        }
        let other = self.of_both(after).find(|(_, of_before, of_after)| {
            of_before.has_work && of_after.has_work && of_before.is_apart(of_after, margin)
        });
        if let Some((path, before, after)) = other {
            let (before, after) = (before.entries, after.entries);
            return Some(Undecidable::OtherWork { range: path.clone(), before, after });
        }
        self.has_missing_work(after).or_else(|| self.has_other_ranges(after, margin))
    }

    /// The outermost ranges of both sides.
    fn of_both<'w>(
        &'w self,
        after: &'w Self,
    ) -> impl Iterator<Item = (&'w String, &'w RangeWork, &'w RangeWork)> {
        let before = self.outermost.iter();
        before.filter_map(|(path, of)| Some((path, of, after.outermost.get(path)?)))
    }

    /// The first large range with GPU work in far fewer of its entries on one side. A range whose
    /// work is attributed to no range on that side does not count.
    fn has_missing_work(&self, after: &Self) -> Option<Undecidable> {
        self.of_both(after).find_map(|(path, of_before, of_after)| {
            let is_large = of_before.gpu_ns > RANGE_SHARE * self.gpu_ns
                || of_after.gpu_ns > RANGE_SHARE * after.gpu_ns;
            let (active, active_after) = of_before.active.zip(of_after.active)?;
            let [share, share_after] =
                [active, active_after].map(|(active, all)| active as f64 / all.max(1) as f64);
            let (least, most) = (share.min(share_after), share.max(share_after));
            let is_outside = active.0 == 0 && self.is_mostly_outside()
                || active_after.0 == 0 && after.is_mostly_outside();
            (is_large && least < MOST * most && !is_outside).then(|| Undecidable::WorkMissing {
                range: path.clone(),
                before: active,
                after: active_after,
            })
        })
    }

    /// True if most of the GPU time of a side is in outermost ranges that the other side lacks.
    /// These ranges may only be renamed, or unnamed there: then they were entered as often, and the
    /// kernels are the same.
    fn has_other_ranges(&self, after: &Self, margin: f64) -> Option<Undecidable> {
        let sides = [(self, after), (after, self)];
        let lone = sides.map(|(side, other)| {
            let lone =
                side.outermost.iter().filter(|(path, _)| !other.outermost.contains_key(*path));
            let all: f64 = lone.clone().map(|(_, of)| of.gpu_ns).sum();
            let largest = lone.max_by(|a, b| a.1.gpu_ns.total_cmp(&b.1.gpu_ns));
            largest.filter(|_| all > MOST * side.gpu_ns)
        });
        let is_outside = sides.map(|(side, _)| side.is_mostly_outside());
        let other = |range: &String, before, after| {
            Some(Undecidable::OtherWork { range: range.clone(), before, after })
        };
        match lone {
            [Some((path, of)), Some((_, after))] if of.is_apart(after, margin) => {
                other(path, of.entries, (0, 0))
            }
            [Some((path, of)), None] if !is_outside[1] => other(path, of.entries, (0, 0)),
            [None, Some((path, of))] if !is_outside[0] => other(path, (0, 0), of.entries),
            [None, None] if is_outside != [true, true] => None,
            _ => (!self.has_same_kernels(after)).then_some(Undecidable::OtherKernels),
        }
    }

    /// True if most of the GPU time is outside all ranges.
    fn is_mostly_outside(&self) -> bool {
        let in_ranges: f64 = self.outermost.values().map(|of| of.gpu_ns).sum();
        self.gpu_ns - in_ranges > MOST * self.gpu_ns
    }

    /// True if the kernels have the same shares of the GPU time by name, or little GPU time in
    /// total.
    fn has_same_kernels(&self, after: &Self) -> bool {
        let of_kernels = [self, after].map(|side| side.kernels.values().sum::<f64>());
        if [self, after].iter().zip(of_kernels).any(|(side, ns)| ns <= MOST * side.gpu_ns) {
            return true;
        }
        let share = |(name, ns): (&String, &f64)| {
            let of_after = after.kernels.get(name).map_or(0.0, |ns| ns / of_kernels[1]);
            of_after.min(ns / of_kernels[0])
        };
        self.kernels.iter().map(share).sum::<f64>() >= SAME_KERNELS
    }
}

/// The instances with GPU operations. Costs a pass over these.
pub(crate) fn active_entries(node: &RangeNode<'_>) -> u64 {
    node.ranges().filter(|range| range.inclusive().gpu_operations() != 0).count() as u64
}

impl RangeWork {
    /// Adds a range of the same run.
    fn add(&mut self, node: &RangeNode<'_>, gpu_ns: f64) {
        let (entries, totals) = (node.instances(), node.inclusive());
        let has_operations = totals.gpu_operations() != 0;
        let active = if has_operations { active_entries(node) } else { 0 };
        self.has_work |= totals.launches != 0 || has_operations;
        self.entries = (self.entries.0 + entries, self.entries.1 + entries);
        let (all_active, all) = self.active.unwrap_or_default();
        self.active = Some((all_active + active, all + entries));
        self.gpu_ns += gpu_ns;
    }

    /// Adds another run.
    fn merge(&mut self, other: Self) {
        let ((least, most), other_entries) = (self.entries, other.entries);
        self.entries = (least.min(other_entries.0), most.max(other_entries.1));
        self.has_work |= other.has_work;
        let sum = |((active, all), (other_active, other_all)): ((u64, u64), (u64, u64))| {
            (active + other_active, all + other_all)
        };
        self.active = self.active.zip(other.active).map(sum);
        self.gpu_ns += other.gpu_ns;
    }

    /// True if the entries differ by more than the margin.
    fn is_apart(&self, after: &Self, margin: f64) -> bool {
        let is_apart = |low: u64, high: u64| high as f64 > (1.0 + margin) * low as f64;
        is_apart(self.entries.1, after.entries.0) || is_apart(after.entries.1, self.entries.0)
    }
}

/// The names of the GPUs with operations.
fn devices(profile: &Profile) -> BTreeSet<String> {
    let used: BTreeSet<u32> = profile.operations().map(|operation| operation.device()).collect();
    let devices = profile.recording_info().devices.iter();
    devices.filter(|device| used.contains(&device.id)).map(|device| device.name.clone()).collect()
}

/// The first reason why these runs cannot be compared.
pub(super) fn undecidable(
    sides: [&[Profile]; 2],
    names: &[Vec<NodeNames>; 2],
    compare: &Compare,
) -> Option<Undecidable> {
    let both = [Side::Before, Side::After];
    if let Some(at) = sides.iter().position(|runs| runs.is_empty()) {
        return Some(Undecidable::NoRun { side: both[at] });
    }
    let is_cut_off = |profile: &Profile| profile.health().losses.truncated != 0;
    if let Some(at) = sides.iter().position(|runs| runs.iter().any(is_cut_off)) {
        return Some(Undecidable::CutOff { side: both[at] });
    }
    if compare.paired && sides[0].len() != sides[1].len() {
        let [before, after] = sides.map(<[Profile]>::len);
        return Some(Undecidable::NoPairs { before, after });
    }
    let mut works: [Work; 2] = Default::default();
    for (at, (all, side)) in works.iter_mut().zip(both).enumerate() {
        for (profile, names) in sides[at].iter().zip(&names[at]) {
            let work = Work::new(profile, names);
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
    let has_operations = |profile: &Profile| profile.totals().gpu_operations() != 0;
    let lacks = |at: usize| {
        !sides[at].iter().all(has_operations) && sides[1 - at].iter().any(has_operations)
    };
    if let Some(at) = [0, 1].into_iter().find(|at| lacks(*at)) {
        return Some(Undecidable::NoGpuWork { side: both[at] });
    }
    if !before.has_common(after) {
        return Some(Undecidable::NothingInCommon);
    }
    if compare.any_work { None } else { before.differs(after, compare.margin) }
}
