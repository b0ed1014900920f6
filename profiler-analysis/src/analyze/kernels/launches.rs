//! Launches by kernel and shape: idle parts of the device, and candidates for hardware counters.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use profiler_base::display::{DisplayOptions, Layout};
use profiler_base::display_by_default_layout;
use profiler_base::getters;
use profiler_base::units::{MESSAGE_WIDTH, shortened, time};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::ncu::Instances;
use super::{Classifier, KernelClass, LaunchShape, ShapeFinding, ShapeFindingKind};
use super::{shape, shares};
use crate::reports::{AnyReport, Cells, Report, Row, Unit};
use profiler_core::profile::Kernel;
use profiler_core::query::Query;
use profiler_core::tables::WorkId;

/// All launches of one kernel with one shape.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct KernelShape {
    /// The kernel's name without parameters.
    pub name: Arc<str>,
    /// Its class, by its name.
    pub class: KernelClass,
    /// The device's CUDA ordinal.
    pub device: u32,
    /// Percent of the time of all kernels in the query.
    pub time_percent: f64,
    /// Sum of their GPU times.
    pub total_ns: u64,
    /// Number of launches.
    pub instances: u64,
    /// The launch shape.
    #[serde(flatten)]
    pub shape: LaunchShape,
    /// The idle part of the device's time: [`LaunchShape::headroom`].
    pub headroom: f64,
    /// `total_ns` x `headroom`: the estimated saving with a shape that fills the device, if blocks
    /// take the same time. Rows are sorted by it.
    pub estimated_saving_ns: u64,
    /// Findings on the shape.
    pub findings: Vec<ShapeFinding>,
    /// An Nsight Compute command for the launch with the median time: see [`LaunchShapes`].
    pub ncu: String,
}

impl Row for KernelShape {
    const NAME: &'static str = "launch_shapes";
    const KEPT_LONGER: &'static [&'static str] =
        &["Total Time", "Estimated Saving", "Findings", "Name"];

    fn cells(&self, cells: &mut Cells<'_>) {
        let (shape, occupancy) = (&self.shape, self.shape.achievable());
        let limiters: Vec<&str> = occupancy.limiters().map(|limiter| limiter.name()).collect();
        let findings: Vec<&str> = self.findings.iter().map(|finding| finding.kind.name()).collect();
        cells.add("Time", Unit::Percent, self.time_percent);
        cells.add("Total Time", Unit::Duration, self.total_ns);
        cells.add("Instances", Unit::Plain, self.instances);
        cells.add("Head-room", Unit::Percent, 100.0 * self.headroom);
        cells.add("Estimated Saving", Unit::Duration, self.estimated_saving_ns);
        cells.add("Occupancy", Unit::Percent, 100.0 * occupancy.fraction());
        cells.add("Limited By", Unit::Plain, limiters.join(" and "));
        cells.add("Waves", Unit::Ratio, shape.waves());
        cells.add("GridXYZ", Unit::Plain, shape.grid).add("BlockXYZ", Unit::Plain, shape.block);
        cells.add("Reg/Trd", Unit::Plain, shape.needs.registers_per_thread);
        cells.add("StcSMem (B)", Unit::Plain, shape.needs.static_shared_bytes);
        cells.add("DymSMem (B)", Unit::Plain, shape.needs.dynamic_shared_bytes);
        cells.add("Local/Trd (B)", Unit::Plain, shape.local_bytes_per_thread);
        cells.add("Class", Unit::Plain, self.class.name());
        cells.add("Findings", Unit::Plain, findings.join(", "));
        cells.add("Name", Unit::Plain, &self.name);
        cells.add("Device", Unit::InFiles, self.device).add("Command", Unit::InFiles, &self.ncu);
    }
}

/// Launches by kernel and shape, largest [head-room](LaunchShape::headroom) x GPU time first. Made
/// by [`Query::launch_shapes`](crate::prelude::QueryExt::launch_shapes).
///
/// Each row has an Nsight Compute command that measures one launch. The launch is identified by the
/// number of earlier launches of the same kernel in the session. That number is exact if the
/// session began before the first launch and the program repeats its launches.
///
/// `{}` prints a table, advice, and the commands of the first rows.
#[derive(Debug, Clone, Serialize)]
#[must_use]
pub struct LaunchShapes {
    rows: Report<KernelShape>,
    total_ns: u64,
    mean_occupancy: f64,
    unknown: u64,
}

impl LaunchShapes {
    /// The rows, largest estimated saving first.
    pub fn rows(&self) -> &[KernelShape] {
        self.rows.rows()
    }

    getters! {
        /// The rows as a report, for CSV and JSON.
        report: AnyReport = rows.clone().into();
        /// Mean theoretical occupancy of the launches, from 0 to 1, weighted by time.
        mean_occupancy: f64 = mean_occupancy;
        /// Launches on devices with unknown limits, which are in no row.
        unknown: u64 = unknown;
        /// Sum of the GPU times of all rows.
        gpu_time: Duration = Duration::from_nanos(total_ns);
    }

    /// Time of the launches with this finding.
    pub fn time_with(&self, kind: ShapeFindingKind) -> Duration {
        let has = |row: &&KernelShape| row.findings.iter().any(|finding| finding.kind == kind);
        let ns = self.rows().iter().filter(has).map(|row| row.total_ns);
        Duration::from_nanos(ns.fold(0, u64::saturating_add))
    }
}

/// The number of commands in a printed text.
const SHOWN: usize = 3;

impl DisplayOptions for LaunchShapes {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows.write_in(layout, f)?;
        if self.unknown != 0 {
            let why = "launches on devices of which no limits are known are not in it";
            write!(f, "\n({} {why})", self.unknown)?;
        }
        if self.rows().is_empty() {
            return Ok(());
        }
        let mean = 100.0 * self.mean_occupancy;
        write!(f, "\n\ntheoretical occupancy, weighted by time: {mean:.1} %")?;
        let mut kinds: Vec<(Duration, ShapeFindingKind)> = Vec::new();
        for finding in self.rows().iter().flat_map(|row| &row.findings) {
            if kinds.iter().all(|(_, known)| *known != finding.kind) {
                kinds.push((self.time_with(finding.kind), finding.kind));
            }
        }
        kinds.sort_by_key(|(time, kind)| (std::cmp::Reverse(*time), *kind));
        for (spent, kind) in kinds {
            write!(f, "\n{kind}, in {} of {}: ", time(spent), time(self.gpu_time()))?;
            f.write_str(kind.advice())?;
        }
        let worth = self.rows().iter().filter(|row| row.estimated_saving_ns != 0).take(SHOWN);
        for (at, row) in worth.enumerate() {
            if at == 0 {
                f.write_str("\n\ncandidates for counters:")?;
            }
            let saves = time(Duration::from_nanos(row.estimated_saving_ns));
            let (name, command) = (shortened(&row.name, 100), shortened(&row.ncu, MESSAGE_WIDTH));
            write!(f, "\n{name}, an estimated {saves} to save with a full shape:\n  {command}")?;
        }
        Ok(())
    }
}

display_by_default_layout!(LaunchShapes);

/// The launches of a row.
struct Launches<'a> {
    kernel: Kernel<'a>,
    shape: LaunchShape,
    count: u64,
    /// Nanoseconds and operation number.
    times: Vec<(u64, usize)>,
}

/// [`QueryExt::launch_shapes_with`](crate::prelude::QueryExt::launch_shapes_with).
pub(crate) fn launch_shapes<'a>(query: &Query<'a>, classifier: &Classifier) -> LaunchShapes {
    // Works that differ only in stream or graph node share a row.
    let mut of_work: FxHashMap<WorkId, Option<usize>> = FxHashMap::default();
    let mut of_shape: FxHashMap<(u32, &'a str, LaunchShape), usize> = FxHashMap::default();
    let mut rows: Vec<Launches<'a>> = Vec::new();
    let (mut unknown, mut left_out) = (0, 0);
    for operation in query.iter() {
        let work = operation.row().work;
        let index = match of_work.get(&work) {
            Some(index) => *index,
            None => {
                let Some(kernel) = operation.as_kernel() else { continue };
                let index = shape::launch_shape(&kernel).map(|shape| {
                    let key = (kernel.device(), kernel.name(), shape);
                    *of_shape.entry(key).or_insert_with(|| {
                        rows.push(Launches { kernel, shape, count: 0, times: Vec::new() });
                        rows.len() - 1
                    })
                });
                of_work.insert(work, index);
                index
            }
        };
        let Some(row) = index.map(|index| &mut rows[index]) else {
            unknown += 1;
            continue;
        };
        row.count += 1;
        match operation.interval() {
            Some(time) => row.times.push((time.ns(), operation.number())),
            None => left_out += 1,
        }
    }
    let total = |row: &Launches<'_>| -> u64 {
        row.times.iter().fold(0, |sum, (ns, _)| sum.saturating_add(*ns))
    };
    let total_ns = rows.iter().map(total).fold(0, u64::saturating_add);
    let weighted: f64 =
        rows.iter().map(|row| total(row) as f64 * row.shape.achievable().fraction()).sum();
    let instances = Instances::new(query.profile(), rows.iter().map(|row| row.kernel));
    let row = |mut row: Launches<'_>| {
        let total_of_row = total(&row);
        let class = shares::class(&row.kernel, classifier);
        let headroom = row.shape.headroom(class);
        row.times.sort_unstable();
        let median = row.times.get(row.times.len().saturating_sub(1) / 2);
        let number = median.map_or(row.kernel.number(), |(_, number)| *number);
        KernelShape {
            name: row.kernel.demangled_name().into(),
            class,
            device: row.kernel.device(),
            time_percent: match total_ns {
                0 => 0.0,
                _ => 100.0 * total_of_row as f64 / total_ns as f64,
            },
            total_ns: total_of_row,
            instances: row.count,
            findings: row.shape.findings(),
            shape: row.shape,
            headroom,
            estimated_saving_ns: (total_of_row as f64 * headroom).round() as u64,
            ncu: instances.command(&row.kernel, number),
        }
    };
    let mut rows: Vec<KernelShape> = rows.into_iter().map(row).collect();
    rows.sort_by(|a, b| {
        let by_saving = b.estimated_saving_ns.cmp(&a.estimated_saving_ns);
        by_saving.then(b.total_ns.cmp(&a.total_ns)).then_with(|| a.name.cmp(&b.name))
    });
    let reason = match unknown {
        0 => "no kernel was recorded",
        _ => "no limits are known of the devices on which kernels were recorded",
    };
    LaunchShapes {
        rows: Report::new(rows, reason).leaving_out(left_out),
        total_ns,
        mean_occupancy: if total_ns == 0 { 0.0 } else { weighted / total_ns as f64 },
        unknown,
    }
}
