//! Rooflines of counted work: operations and bytes from hardware counters at each memory level,
//! compared with the declared work.
//!
//! Source: T. Koskela et al., *A Novel Multi-Level Integrated Roofline Model Approach for
//! Performance Characterization*, ISC High Performance 2018; C. Yang, T. Kurth, S. Williams,
//! *Hierarchical Roofline analysis for GPUs*, Concurrency and Computation 32 (2020).

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use cupti::counters::{Flops, Measured, MemoryLevel, RangeValues, time_ns};
use nvtx::{Dtype, Pipe};
use profiler_base::kernel_names::Level;
use profiler_base::units::{PATH_WIDTH, nanoseconds, number, shortened, si};
use profiler_base::{serialize_as_text, serialize_fields};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::point::ratio;
use super::{Peaks, Roof, Roofline};
use crate::analyze::kernel_counters::{CountedKernels, operations};
use crate::analyze::kernels::{as_text, name_if_known};

/// Relative difference above which tables report declared and counted work as different.
pub(super) const TOLERANCE: f64 = 0.1;

/// Counted work of ranges or kernels under the roofs of a device. Made by
/// [`CountedRoofline::from_measured`], [`Roofline::counted`] and [`CountedKernels::roofline`].
///
/// `{}` prints tables; serde, [`to_svg`](Self::to_svg) and [`to_html`](Self::to_html) write them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CountedRoofline {
    /// The roofs, with the counted ones of the caches.
    pub peaks: Peaks,
    /// The points, longest GPU time first.
    pub points: Vec<CountedPoint>,
    /// Runs of the work. With more than one, time, bytes and operations are each from one run.
    pub runs: usize,
    /// Ranges or kernels that were not counted for lack of space. They are in no point.
    pub dropped: usize,
    /// Ranges or kernels without a time. They are in no point.
    pub without_time: u64,
}

/// Operations of one type on one kind of units.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CountedFlops {
    /// The number type; for tensor cores the type of the sources.
    #[serde(serialize_with = "as_text")]
    pub dtype: Dtype,
    /// The units.
    #[serde(serialize_with = "as_text")]
    pub pipe: Pipe,
    /// Operations, summed over all instances.
    pub flops: f64,
    /// The roof for type and units, in operations per second.
    pub roof: Option<Roof>,
}

/// Bytes at one level of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct CountedBytes {
    /// The level.
    pub(crate) level: MemoryLevel,
    /// Bytes moved there, summed over all instances.
    pub(crate) bytes: f64,
    bytes_per_s: Option<f64>,
    intensity_flop_per_byte: Option<f64>,
    /// The level's roof, in bytes per second.
    pub(crate) roof: Roof,
}

/// The limit of a point's speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// The units for this type.
    Compute(Dtype, Pipe),
    /// A memory level.
    Memory(MemoryLevel),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compute(dtype, pipe) => f.pad(&format!("{dtype} {pipe}")),
            Self::Memory(level) => f.pad(level.name()),
        }
    }
}

serialize_as_text!(Limit);

/// The declared work of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DeclaredWork {
    /// Operations.
    pub flops: Option<f64>,
    /// Bytes read from and written to the device's memory.
    pub bytes: Option<f64>,
    /// The number type, if declared.
    #[serde(serialize_with = "name_if_known")]
    pub dtype: Option<Dtype>,
}

/// A difference between declared and counted work.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "of", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Disagreement {
    /// Operations per instance.
    Flops {
        /// The point.
        name: String,
        /// The declared operations.
        declared: f64,
        /// The counted operations.
        counted: f64,
    },
    /// DRAM bytes per instance.
    Bytes {
        /// The point.
        name: String,
        /// The declared bytes.
        declared: f64,
        /// The counted bytes.
        counted: f64,
    },
    /// The type of most operations.
    Type {
        /// The point.
        name: String,
        /// The declared type.
        declared: &'static str,
        /// The counted type.
        counted: &'static str,
    },
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let amounts = |f: &mut fmt::Formatter<'_>, name, declared: f64, counted: f64, unit| {
            let factor = number(counted / declared);
            let (declared, counted) = (si(declared, unit), si(counted, unit));
            write!(f, "{name}: {declared} declared, {counted} counted ({factor} x)")
        };
        let (Self::Flops { name, .. } | Self::Bytes { name, .. } | Self::Type { name, .. }) = self;
        let name = &shortened(name, PATH_WIDTH);
        match self {
            Self::Flops { declared, counted, .. } => amounts(f, name, *declared, *counted, "FLOP"),
            Self::Bytes { declared, counted, .. } => amounts(f, name, *declared, *counted, "B"),
            Self::Type { declared, counted, .. } => {
                write!(f, "{name}: {declared} declared, most operations were {counted}")
            }
        }
    }
}

/// Counts of all instances of a path, or of all launches of a kernel.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CountedPoint {
    /// The range's path, or the kernel's name.
    pub name: String,
    /// True for a kernel.
    pub is_kernel: bool,
    /// Number of ranges or launches.
    pub instances: u64,
    /// Sum over instances of the time from first to last work (`gpu__time_duration`).
    pub gpu_time: Duration,
    /// Operations by type, most first; types without operations are left out. Kernels in CUDA
    /// graphs have tensor-core operations only: CUPTI counts the others by instrumentation, which
    /// graphs lack.
    pub flops: Vec<CountedFlops>,
    /// Bytes by level, DRAM first.
    pub(crate) bytes: Vec<CountedBytes>,
    /// The declared work, if any.
    pub declared: Option<DeclaredWork>,
}

impl CountedPoint {
    /// Floating-point operations of all types, without integer ones.
    pub fn total_flops(&self) -> f64 {
        total(&self.flops)
    }

    /// Operations per second.
    pub fn achieved(&self) -> Option<f64> {
        ratio(self.total_flops(), self.gpu_time.as_secs_f64())
    }

    /// Bytes moved at a level; `None` if not counted.
    pub fn bytes_at(&self, level: MemoryLevel) -> Option<f64> {
        self.at(level).map(|at| at.bytes)
    }

    /// Operations per byte at a level.
    pub fn intensity_at(&self, level: MemoryLevel) -> Option<f64> {
        self.at(level)?.intensity_flop_per_byte
    }

    pub(super) fn at(&self, level: MemoryLevel) -> Option<&CountedBytes> {
        self.bytes.iter().find(|at| at.level == level)
    }

    /// The achieved share of each known roof, greatest first; 1 is at the roof. Units and levels
    /// work in parallel, so the greatest share shows the distance to the device's best for this
    /// work.
    pub fn shares(&self) -> Vec<(Limit, f64)> {
        let seconds = self.gpu_time.as_secs_f64();
        let compute = self.flops.iter().filter_map(|counted| {
            let ideal = counted.flops / counted.roof?.peak?;
            Some((Limit::Compute(counted.dtype, counted.pipe), ratio(ideal, seconds)?))
        });
        let memory = self.bytes.iter().filter_map(|at| {
            let ideal = at.bytes / at.roof.peak?;
            Some((Limit::Memory(at.level), ratio(ideal, seconds)?))
        });
        let mut shares: Vec<_> = compute.chain(memory).collect();
        shares.sort_by(|one, other| other.1.total_cmp(&one.1));
        shares
    }

    /// The nearest roof, and the share of it.
    pub fn of_roof(&self) -> Option<(Limit, f64)> {
        self.shares().into_iter().next()
    }

    /// The type and units of most operations.
    pub fn main_type(&self) -> Option<(Dtype, Pipe)> {
        self.flops.first().map(|counted| (counted.dtype, counted.pipe))
    }

    /// Differences between declared and counted work: in type, or by more than this share.
    pub fn disagreements(&self, tolerance: f64) -> Vec<Disagreement> {
        let Some(declared) = &self.declared else { return Vec::new() };
        let name = || self.name.clone();
        let each = |sum: f64| sum / self.instances.max(1) as f64;
        let differ = |declared: f64, counted: f64| {
            (counted - declared).abs() > tolerance.max(0.0) * declared.abs()
        };
        let mut found = Vec::new();
        if let Some(flops) = declared.flops {
            let ints = self.flops.iter().filter(|counted| counted.dtype == Dtype::I8);
            let is_int = declared.dtype == Some(Dtype::I8);
            let sum = if is_int { ints.map(|int| int.flops).sum() } else { self.total_flops() };
            let counted = each(sum);
            if differ(flops, counted) {
                found.push(Disagreement::Flops { name: name(), declared: flops, counted });
            }
        }
        if let (Some(bytes), Some(counted)) = (declared.bytes, self.bytes_at(MemoryLevel::Dram)) {
            let counted = each(counted);
            if differ(bytes, counted) {
                found.push(Disagreement::Bytes { name: name(), declared: bytes, counted });
            }
        }
        if let (Some(declared), Some((counted, _))) = (declared.dtype, self.main_type())
            && declared != counted
        {
            let (declared, counted) = (declared.name(), counted.name());
            found.push(Disagreement::Type { name: name(), declared, counted });
        }
        found
    }
}

#[derive(Serialize)]
struct Share {
    limit: Limit,
    share: f64,
}

serialize_fields!(CountedPoint, "CountedPoint", |point| {
    "name": point.name,
    "is_kernel": point.is_kernel,
    "instances": point.instances,
    "gpu_time_ns": nanoseconds(point.gpu_time),
    "total_flops": point.total_flops(),
    "achieved_flop_per_s": point.achieved(),
    "flops": point.flops,
    "levels": point.bytes,
    "shares_of_roofs": {
        let shares = point.shares().into_iter();
        shares.map(|(limit, share)| Share { limit, share }).collect::<Vec<_>>()
    },
    "declared": point.declared,
    "disagreements": point.disagreements(TOLERANCE),
});

fn total(flops: &[CountedFlops]) -> f64 {
    let floats = flops.iter().filter(|counted| counted.dtype != Dtype::I8);
    floats.map(|counted| counted.flops).sum()
}

/// The sums of one point.
#[derive(Debug, Default)]
struct Sum {
    instances: u64,
    ns: f64,
    flops: Vec<(Dtype, Pipe, f64)>,
    /// By level; `None` once an instance lacks the metric.
    bytes: [Option<f64>; MemoryLevel::ALL.len()],
}

impl Sum {
    fn add(&mut self, range: &RangeValues<'_>, ns: f64) {
        let first = self.instances == 0;
        self.instances += 1;
        self.ns += ns;
        for (dtype, pipe, count) in operations(&Flops::from_range(range)) {
            let same = |sum: &&mut (Dtype, Pipe, f64)| (sum.0, sum.1) == (dtype, pipe);
            match self.flops.iter_mut().find(same) {
                Some((.., sum)) => *sum += count,
                None => self.flops.push((dtype, pipe, count)),
            }
        }
        for (sum, level) in self.bytes.iter_mut().zip(MemoryLevel::ALL) {
            let before = if first { Some(0.0) } else { *sum };
            *sum = before.and_then(|before| Some(before + level.bytes(range)?));
        }
    }

    fn point(self, name: String, is_kernel: bool, peaks: &Peaks) -> CountedPoint {
        let flops = self.flops.into_iter().filter(|(.., count)| *count > 0.0);
        let mut flops: Vec<_> = flops
            .map(|(dtype, pipe, flops)| {
                let roof = peaks.flops(dtype, Some(pipe)).map(|known| known.roof);
                CountedFlops { dtype, pipe, flops, roof }
            })
            .collect();
        flops.sort_by(|one, other| other.flops.total_cmp(&one.flops));
        let gpu_time = Duration::try_from_secs_f64(self.ns / 1e9).unwrap_or(Duration::MAX);
        let levels = self.bytes.into_iter().zip(MemoryLevel::ALL);
        let levels = levels.filter_map(|(bytes, level)| Some((bytes?, level)));
        let bytes = levels.map(|(bytes, level)| CountedBytes {
            level,
            bytes,
            bytes_per_s: ratio(bytes, gpu_time.as_secs_f64()),
            intensity_flop_per_byte: ratio(total(&flops), bytes),
            roof: peaks.level(level),
        });
        let bytes = bytes.collect();
        CountedPoint {
            name,
            is_kernel,
            instances: self.instances,
            gpu_time,
            flops,
            bytes,
            declared: None,
        }
    }
}

/// The distinct paths of counted ranges. Nesting may have any depth in the file.
#[derive(Debug, Default)]
struct CountedPaths<'m> {
    nodes: Vec<PathNode<'m>>,
    /// By parent node and name.
    known: FxHashMap<(Option<usize>, &'m str), usize>,
    /// The node of each range, by the range's index.
    of_range: FxHashMap<usize, usize>,
}

#[derive(Debug)]
struct PathNode<'m> {
    name: &'m str,
    parent: Option<usize>,
    level: Level,
}

impl<'m> CountedPaths<'m> {
    /// The node of a range's path.
    fn node(&mut self, range: RangeValues<'m>) -> usize {
        let (mut new, mut next, mut node) = (Vec::new(), Some(range), None);
        while let Some(range) = next {
            node = self.of_range.get(&range.place()).copied();
            if node.is_some() {
                break;
            }
            new.push(range);
            next = range.parent();
        }
        for range in new.into_iter().rev() {
            let found = self.add(node, range.name());
            self.of_range.insert(range.place(), found);
            node = Some(found);
        }
        node.unwrap_or(0)
    }

    fn add(&mut self, parent: Option<usize>, name: &'m str) -> usize {
        let at = self.nodes.len();
        let found = *self.known.entry((parent, name)).or_insert(at);
        if found == at {
            let level = Level::new(at, parent.map(|parent| self.nodes[parent].level));
            self.nodes.push(PathNode { name, parent, level });
        }
        found
    }

    fn text(&self, node: usize) -> String {
        self.nodes[node].level.path(node, |from| {
            let parent = |node: &&PathNode<'m>| node.parent.map(|at| &self.nodes[at]);
            std::iter::successors(Some(&self.nodes[from]), parent).map(|node| node.name)
        })
    }
}

impl CountedRoofline {
    /// Creates one point per path of ranges counted with
    /// [`Set::Roofline`](cupti::counters::Set::Roofline). Counted roofs of the caches are added to
    /// `peaks`. Fewer metrics give fewer levels and types.
    #[must_use]
    pub fn from_measured(measured: &Measured, peaks: &Peaks) -> Self {
        let mut paths = CountedPaths::default();
        let ranges: Vec<_> = measured.ranges().map(|range| (paths.node(range), range)).collect();
        Self::new(measured, peaks, ranges.into_iter(), |node| paths.text(node), false)
    }

    /// Creates one point for all ranges with the same key.
    fn new<'m, K: Hash + Eq>(
        measured: &Measured,
        peaks: &Peaks,
        ranges: impl Iterator<Item = (K, RangeValues<'m>)>,
        name: impl Fn(K) -> String,
        is_kernel: bool,
    ) -> Self {
        let peaks = peaks.clone().with_counted(measured);
        let mut sums: FxHashMap<K, Sum> = FxHashMap::default();
        let mut without_time = 0;
        for (key, range) in ranges {
            match time_ns(&range) {
                Some(ns) => sums.entry(key).or_default().add(&range, ns),
                None => without_time += 1,
            }
        }
        let mut points: Vec<_> =
            sums.into_iter().map(|(key, sum)| sum.point(name(key), is_kernel, &peaks)).collect();
        points.sort_by(|one, other| {
            other.gpu_time.cmp(&one.gpu_time).then_with(|| one.name.cmp(&other.name))
        });
        let (runs, dropped) = (measured.runs(), measured.dropped());
        Self { peaks, points, runs, dropped, without_time }
    }

    /// Adds the declared work of the same paths or kernels. Amounts are per instance, since the
    /// two runs may have different numbers of instances.
    #[must_use]
    pub fn with_declared(mut self, declared: &Roofline) -> Self {
        for point in &mut self.points {
            let same = |other: &&super::RooflinePoint| {
                other.is_kernel == point.is_kernel && other.name == point.name
            };
            let same: Vec<_> = declared.points.iter().filter(same).collect();
            let instances: u64 = same.iter().map(|other| other.instances).sum();
            if instances == 0 {
                continue;
            }
            let each = |sum: Option<f64>| sum.map(|sum| sum / instances as f64);
            let dtype = same.iter().find_map(|other| other.dtype);
            point.declared = Some(DeclaredWork {
                flops: each(same.iter().filter_map(|other| other.flops).reduce(|a, b| a + b)),
                bytes: each(same.iter().filter_map(|other| other.bytes).reduce(|a, b| a + b)),
                dtype: dtype.filter(|_| same.iter().all(|other| other.dtype == dtype)),
            });
        }
        self
    }

    /// The disagreements of all points; see [`CountedPoint::disagreements`].
    pub fn disagreements(&self, tolerance: f64) -> Vec<Disagreement> {
        self.points.iter().flat_map(|point| point.disagreements(tolerance)).collect()
    }
}

impl Roofline {
    /// Counted work of the same ranges under the same roofs, with the declared work.
    pub fn counted(&self, measured: &Measured) -> CountedRoofline {
        CountedRoofline::from_measured(measured, &self.peaks).with_declared(self)
    }
}

impl CountedKernels {
    /// One point per kernel name, under these roofs.
    pub fn roofline(&self, peaks: &Peaks) -> CountedRoofline {
        let kernels = self.kernels().map(|kernel| (kernel.name(), kernel.values()));
        CountedRoofline::new(self.measured(), peaks, kernels, str::to_owned, true)
    }
}
