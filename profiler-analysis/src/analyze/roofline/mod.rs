//! Rooflines: declared work of ranges compared with the limits of the device.
//!
//! A range may declare its work: operations, bytes, number type. The roofline compares this work
//! with the GPU time and the device's peaks, which follow from its attributes.
//! [`Declared`] declares work of unmodified programs.
//!
//! ```
//! use nvtx::{Dtype, Work};
//! use profiler_analysis::prelude::*;
//! use profiler_analysis::roofline::Declared;
//! use profiler_core::Profile;
//!
//! #[nvtx::annotate(work = Work::gemm(m, n, k, Dtype::F32))]
//! fn product(m: u64, n: u64, k: u64) { /* launches it */ }
//!
//! # fn main() -> Result<(), profiler_analysis::Error> {
//! # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
//! let profile = Profile::load(file)?;
//! if let Some(peaks) = profile.peaks(None) {
//!     let update = Work::elementwise(512 * 256, 3, 2, 4, Dtype::F32);
//!     let roofline = profile.roofline_with(&peaks, &Declared::new().kernel("sgd_update", update));
//!     println!("{roofline}"); // to_svg() and to_html() draw it
//!     assert_eq!(roofline.points[0].bound(), Some(profiler_analysis::roofline::Bound::Memory));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Source: S. Williams, A. Waterman, D. Patterson, *Roofline: An Insightful Visual Performance
//! Model for Multicore Architectures*, Communications of the ACM 52 (2009).

mod counted;
mod counted_views;
mod declared;
pub(crate) mod peaks;
mod plot;
mod point;
mod rates;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use nvtx::{Dtype, Pipe};
use profiler_base::display::{DisplayOptions, Layout};
use profiler_base::display_by_default_layout;
use profiler_base::units::{NAME_WIDTH, number, per_second, percent, shortened, si, time};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::page::Table;
pub use counted::{CountedFlops, CountedPoint, CountedRoofline, DeclaredWork, Disagreement, Limit};
pub use declared::Declared;
use declared::WorkAmount;
pub use peaks::{ComputeRoof, Origin, Peaks, Roof};
pub use point::{Bound, RooflinePoint};
use profiler_core::profile::{GpuOperation, OperationKind, Profile};
use profiler_core::tables::Interval;
use profiler_core::tables::busy::DeviceSweep;

/// Declared work of ranges under the roofs of a device. Made by
/// [`Profile::roofline`](crate::prelude::ProfileExt::roofline).
///
/// `{}` prints a table; serde, [`to_svg`](Self::to_svg) and [`to_html`](Self::to_html) write it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Roofline {
    /// The roofs.
    pub peaks: Peaks,
    /// The points, longest GPU time first.
    pub points: Vec<RooflinePoint>,
    /// Declared work that is in no point, and unknowns of the points.
    pub trust: RooflineTrust,
}

/// The trustworthiness of a [`Roofline`]: counts of omitted work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct RooflineTrust {
    /// Ranges with declared work and no kernel, hence no time.
    pub without_kernels: u64,
    /// Kernels without timestamps: their work is counted, their time is not.
    pub without_time: u64,
    /// Fields `flops`, `bytes`, `dtype` or `pipe` with an invalid number, unit or name.
    pub unreadable_fields: u64,
    /// Ranges with kernels that ran directly and nodes that ran in graph launches. The number of
    /// repetitions is unknown, so their work counts once.
    pub run_and_captured: u64,
}

impl RooflineTrust {
    /// True if nothing was left out.
    pub fn is_complete(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for RooflineTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.without_kernels, "ranges with declared work and no kernel"),
            (self.without_time, "kernels without timestamps"),
            (self.unreadable_fields, "fields of work that could not be read"),
            (self.run_and_captured, "ranges that ran and captured kernels, counted once"),
        ];
        let parts = parts.iter().filter(|(count, _)| *count != 0);
        let parts: Vec<_> = parts.map(|(count, what)| format!("{count} {what}")).collect();
        match parts[..] {
            [] => f.write_str("complete"),
            _ => f.write_str(&parts.join(", ")),
        }
    }
}

/// Identifies a point.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PointKey {
    name: String,
    domain: Option<String>,
    is_kernel: bool,
    kind: WorkKind,
}

/// The properties that work must share to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct WorkKind {
    dtype: Option<Dtype>,
    pipe: Option<Pipe>,
    has_flops: bool,
    has_bytes: bool,
}

impl WorkKind {
    fn from_work(work: &WorkAmount) -> Self {
        let WorkAmount { flops, bytes, dtype, pipe } = *work;
        Self { dtype, pipe, has_flops: flops.is_some(), has_bytes: bytes.is_some() }
    }
}

/// The time of a kernel on its device.
#[derive(Debug, Clone, Copy)]
struct KernelTime {
    device: u32,
    time: Interval,
    is_collective: bool,
}

impl KernelTime {
    fn from_operation(operation: &GpuOperation<'_>) -> Option<Self> {
        let (device, is_collective) = (operation.device(), operation.is_collective());
        Some(Self { device, time: operation.interval()?, is_collective })
    }
}

fn is_kernel(operation: &GpuOperation<'_>) -> bool {
    operation.kind() == OperationKind::Kernel
}

#[derive(Debug, Default)]
struct Sum {
    instances: u64,
    kernels: u64,
    flops: f64,
    bytes: f64,
    times: Vec<KernelTime>,
}

impl Sum {
    /// Adds `times` instances of this work.
    fn declare(&mut self, work: &WorkAmount, times: u64) {
        self.instances += times;
        self.flops += work.flops.unwrap_or(0.0) * times as f64;
        self.bytes += work.bytes.unwrap_or(0.0) * times as f64;
    }

    fn add(&mut self, other: Self) {
        self.instances += other.instances;
        self.kernels += other.kernels;
        self.flops += other.flops;
        self.bytes += other.bytes;
        self.times.extend(other.times);
    }

    fn add_kernel(&mut self, operation: &GpuOperation<'_>, trust: &mut RooflineTrust) {
        self.kernels += 1;
        let time = KernelTime::from_operation(operation);
        trust.without_time += u64::from(time.is_none());
        self.times.extend(time);
    }
}

/// [`ProfileExt::roofline_with`](crate::prelude::ProfileExt::roofline_with).
pub(crate) fn roofline(profile: &Profile, peaks: &Peaks, declared: &Declared) -> Roofline {
    let mut trust = RooflineTrust::default();
    let mut sums: FxHashMap<PointKey, Sum> = FxHashMap::default();
    let of_ranges = declared.of_ranges(profile);
    for (_, node) in profile.walk() {
        let of_path = of_ranges.get(node.id().at()).cloned().flatten();
        if of_path.is_none() && profile.tables().details.is_empty() {
            continue;
        }
        let mut of_node = Vec::new();
        for range in node.ranges() {
            let own = WorkAmount::from_fields(range.fields(), &mut trust);
            let Some(work) = own.or_else(|| of_path.clone()) else { continue };
            let (launched, replayed) = (range.operations(), range.replayed_operations());
            add_range(&mut of_node, &mut trust, launched, replayed, &work);
        }
        for (kind, sum) in of_node {
            let domain = node.domain().map(str::to_owned);
            let key = PointKey { name: node.cut_path(), domain, is_kernel: false, kind };
            sums.entry(key).or_default().add(sum);
        }
    }
    for range in profile.process_ranges() {
        let Some(work) = WorkAmount::from_fields(range.fields(), &mut trust) else { continue };
        let launched = range.activations().flat_map(|entry| entry.operations());
        let replayed = range.activations().flat_map(|entry| entry.replayed_operations());
        let mut of_range = Vec::new();
        add_range(&mut of_range, &mut trust, launched, replayed, &work);
        for (kind, sum) in of_range {
            let path = range.parent().map_or(String::new(), |it| it.node().cut_path() + "/");
            let domain = range.domain().map(str::to_owned);
            let key = PointKey { name: path + range.name(), domain, is_kernel: false, kind };
            sums.entry(key).or_default().add(sum);
        }
    }
    for kernel in profile.kernels().filter(|_| !declared.kernels.is_empty()) {
        let Some((name, work)) = declared.of_kernel(&kernel) else { continue };
        let kind = WorkKind::from_work(&work);
        let key = PointKey { name, domain: None, is_kernel: true, kind };
        let sum = sums.entry(key).or_default();
        sum.declare(&work, 1);
        sum.add_kernel(&kernel, &mut trust);
    }
    let mut points: Vec<RooflinePoint> =
        sums.into_iter().map(|(key, sum)| point(peaks, key, sum)).collect();
    points.sort_by(|one, other| {
        let name = |point: &RooflinePoint| (point.name.clone(), point.dtype, point.pipe);
        other.gpu_time.cmp(&one.gpu_time).then_with(|| name(one).cmp(&name(other)))
    });
    Roofline { peaks: peaks.clone(), points, trust }
}

/// Adds a range to the sums of its path, one per kind of work.
fn add_range<'p>(
    sums: &mut Vec<(WorkKind, Sum)>,
    trust: &mut RooflineTrust,
    launched: impl Iterator<Item = GpuOperation<'p>>,
    replayed: impl Iterator<Item = GpuOperation<'p>>,
    work: &WorkAmount,
) {
    let mut launched = launched.filter(is_kernel).peekable();
    let mut replayed = replayed.filter(is_kernel).peekable();
    let is_run = launched.peek().is_some();
    if !is_run && replayed.peek().is_none() {
        trust.without_kernels += 1;
        return;
    }
    let kind = WorkKind::from_work(work);
    let at = sums.iter().position(|(known, _)| *known == kind).unwrap_or_else(|| {
        sums.push((kind, Sum::default()));
        sums.len() - 1
    });
    let sum = &mut sums[at].1;
    if is_run {
        sum.declare(work, 1);
        launched.for_each(|operation| sum.add_kernel(&operation, trust));
        trust.run_and_captured += u64::from(replayed.peek().is_some());
        return;
    }
    let mut launches = FxHashSet::default();
    replayed.for_each(|operation| {
        launches.insert((operation.process_id(), operation.correlation_id()));
        sum.add_kernel(&operation, trust);
    });
    sum.declare(work, launches.len() as u64);
}

fn point(peaks: &Peaks, key: PointKey, sum: Sum) -> RooflinePoint {
    let (gpu_time, devices) = busy(sum.times);
    let PointKey { name, domain, is_kernel, kind } = key;
    let compute = kind.dtype.and_then(|dtype| peaks.flops(dtype, kind.pipe));
    RooflinePoint {
        name,
        domain,
        is_kernel,
        instances: sum.instances,
        kernels: sum.kernels,
        devices,
        flops: kind.has_flops.then_some(sum.flops),
        bytes: kind.has_bytes.then_some(sum.bytes),
        dtype: kind.dtype,
        pipe: compute.map(|compute| compute.pipe).or(kind.pipe),
        gpu_time,
        compute: compute.map(|compute| compute.roof),
        memory: peaks.bandwidth(),
    }
}

/// The busy time summed over devices, and the number of devices.
fn busy(mut kernels: Vec<KernelTime>) -> (Duration, u64) {
    kernels.sort_unstable_by_key(|kernel| kernel.time.start_ns);
    let mut devices: BTreeMap<u32, DeviceSweep> = BTreeMap::new();
    for KernelTime { device, time, is_collective } in kernels {
        devices.entry(device).or_default().add(time, is_collective);
    }
    let busy_ns = devices.values().map(DeviceSweep::busy_ns).fold(0, u64::saturating_add);
    (Duration::from_nanos(busy_ns), devices.len() as u64)
}

impl DisplayOptions for Roofline {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "roofline: {}", shortened(self.peaks.device(), NAME_WIDTH))?;
        if self.points.is_empty() {
            let hint = "declare flops and bytes of ranges, or of paths and kernels";
            writeln!(f, "no range declared work: {hint}")?;
        } else {
            writeln!(f, "{}", self.table().text(1, layout))?;
        }
        writeln!(f, "\n{}", self.peaks.table().text(2, layout))?;
        f.write_str(&self.notes().join("\n"))
    }
}

display_by_default_layout!(Roofline);

impl Roofline {
    fn table(&self) -> Table {
        let head = [
            "range",
            "times",
            "type",
            "kernels",
            "GPU time",
            "FLOP",
            "bytes",
            "FLOP/B",
            "achieved",
            "attainable",
            "of roof",
            "bound by",
        ];
        let none = || "-".to_owned();
        let row = |point: &RooflinePoint| {
            let kind = match (point.dtype, point.pipe) {
                (Some(dtype), Some(pipe)) => format!("{dtype} {pipe}"),
                (Some(dtype), None) => dtype.to_string(),
                (None, _) => none(),
            };
            let share = |share: Option<f64>| share.map_or_else(none, percent);
            let (unit, achieved, attainable) = point.rate();
            let rate = |value: Option<f64>| value.map_or_else(none, |v| per_second(v, unit));
            [
                point.label(),
                point.instances.to_string(),
                kind,
                point.kernels.to_string(),
                time(point.gpu_time),
                point.flops.map_or_else(none, |flops| si(flops, "FLOP")),
                point.bytes.map_or_else(none, |bytes| si(bytes, "B")),
                point.intensity().map_or_else(none, number),
                rate(achieved),
                rate(attainable),
                share(point.of_roof()),
                point.bound().map_or_else(none, |bound| bound.to_string()),
            ]
        };
        Table::new("Ranges", head, self.points.iter().map(row))
    }

    /// The notes below the tables.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for ComputeRoof { dtype, pipe, .. } in self.roofs_in_use() {
            if let Some(ridge) = self.peaks.ridge(dtype, Some(pipe)) {
                notes.push(format!("ridge of {dtype} {pipe}: {} FLOP/B", number(ridge)));
            }
        }
        notes.extend(self.peaks.notes());
        if self.points.iter().any(|point| point.of_roof().is_some_and(|share| share > 1.0)) {
            notes.push(
                "above the roof: bytes came from a cache, fewer operations were done than declared, or the roof is low"
                    .to_owned(),
            );
        }
        if self.points.iter().any(|point| point.devices > 1) {
            notes.push("the roofs are of one device, but the time covers several".to_owned());
        }
        notes.push(format!("trust: {}", self.trust));
        notes
    }

    /// The compute roofs of the points; all roofs without a point.
    fn roofs_in_use(&self) -> Vec<ComputeRoof> {
        let is_used = |roof: &&ComputeRoof| {
            let same = |point: &RooflinePoint| {
                (point.dtype, point.pipe) == (Some(roof.dtype), Some(roof.pipe))
            };
            self.points.is_empty() || self.points.iter().any(same)
        };
        self.peaks.compute().filter(is_used).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_overlapping_kernels_counts_once_and_of_devices_each() {
        let time = |device, start_ns, end_ns| KernelTime {
            device,
            time: Interval { start_ns, end_ns },
            is_collective: false,
        };
        // Unordered. Device 0 is busy from 0 to 20 and 30 to 40, device 1 for 10.
        let times = vec![
            time(0, 30, 40),
            time(1, 5, 15),
            time(0, 5, 20),
            time(0, 0, 10),
            time(0, 2, 8),
            // A clock that was set back adds no time.
            time(0, 50, 45),
            // A collective may only wait.
            KernelTime { is_collective: true, ..time(1, 10, 90) },
        ];
        assert_eq!(busy(times), (Duration::from_nanos(40), 2));
        assert_eq!(busy(Vec::new()), (Duration::ZERO, 0));
    }
}
