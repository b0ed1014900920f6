//! Rooflines: the work that a program declares for its ranges, compared with the limits of the device.
//! [`Declared`] has an example.
//!
//! Source: S. Williams, A. Waterman, D. Patterson, *Roofline: An Insightful Visual Performance Model for Multicore
//! Architectures*, Communications of the ACM 52 (2009).

mod counted;
mod counted_views;
mod declared;
mod measure;
mod peaks;
mod plot;
mod point;
mod rates;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use nvtx::{Dtype, Pipe};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::base::page::Table;
use crate::base::units::{NAME_WIDTH, number, per_second, shortened, si, time};
use crate::join::busy::DeviceSweep;
use crate::join::tables::Interval;
use crate::profile::{GpuOperation, OperationKind, Profile};
pub use counted::{
    CountedBytes, CountedFlops, CountedPoint, CountedRoofline, DeclaredWork, Disagreement, Limit,
};
pub use declared::Declared;
use declared::Said;
pub use peaks::{ComputeRoof, Origin, Peaks, Roof};
pub use point::{Bound, RooflinePoint};

/// Points of ranges under the roofs of a device. Made by [`Profile::roofline`].
///
/// `{}` prints a table; serde, [`to_svg`](Self::to_svg) and [`to_html`](Self::to_html) have the same for machines and eyes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Roofline {
    /// The roofs.
    pub peaks: Peaks,
    /// The points, the one that took most GPU time first.
    pub points: Vec<RooflinePoint>,
    /// What was declared and is in no point, and what of the points is not known.
    pub trust: RooflineTrust,
}

/// How far a [`Roofline`] can be trusted: what was left out, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct RooflineTrust {
    /// Ranges whose work was declared and for which no kernel ran: there is no time to hold it against.
    pub without_kernels: u64,
    /// Kernels without timestamps: their work counts and their time does not.
    pub without_time: u64,
    /// Fields `flops`, `bytes`, `dtype` or `pipe` that could not be read: no such number, unit or name.
    pub unreadable_fields: u64,
    /// Ranges of which kernels ran directly and nodes made in them ran in graph launches too: how often the work was done
    /// is not known, and it counts once.
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
        let mut parts = parts.iter().filter(|(count, _)| *count != 0);
        match parts.next() {
            None => return f.write_str("complete"),
            Some((count, what)) => write!(f, "{count} {what}")?,
        }
        parts.try_for_each(|(count, what)| write!(f, ", {count} {what}"))
    }
}

/// What has one point.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    name: String,
    domain: Option<String>,
    is_kernel: bool,
    sort: Sort,
}

/// What work has to have in common to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Sort {
    dtype: Option<Dtype>,
    pipe: Option<Pipe>,
    has_flops: bool,
    has_bytes: bool,
}

impl Sort {
    fn of(said: &Said) -> Self {
        let Said { flops, bytes, dtype, pipe } = *said;
        Self { dtype, pipe, has_flops: flops.is_some(), has_bytes: bytes.is_some() }
    }
}

/// When a kernel ran, and where.
#[derive(Debug, Clone, Copy)]
struct Ran {
    device: u32,
    time: Interval,
    is_collective: bool,
}

impl Ran {
    fn of(operation: &GpuOperation<'_>, time: Interval) -> Self {
        let (device, is_collective) = (operation.device(), operation.is_collective());
        Self { device, time, is_collective }
    }
}

#[derive(Debug, Default)]
struct Sum {
    instances: u64,
    kernels: u64,
    flops: f64,
    bytes: f64,
    times: Vec<Ran>,
}

impl Sum {
    /// Adds what was said, so many times.
    fn declare(&mut self, said: &Said, times: u64) {
        self.instances += times;
        self.flops += said.flops.unwrap_or(0.0) * times as f64;
        self.bytes += said.bytes.unwrap_or(0.0) * times as f64;
    }

    fn add(&mut self, other: Self) {
        self.instances += other.instances;
        self.kernels += other.kernels;
        self.flops += other.flops;
        self.bytes += other.bytes;
        self.times.extend(other.times);
    }

    fn ran(&mut self, operation: &GpuOperation<'_>, trust: &mut RooflineTrust) {
        self.kernels += 1;
        match operation.interval() {
            Some(time) => self.times.push(Ran::of(operation, time)),
            None => trust.without_time += 1,
        }
    }
}

impl Profile {
    /// The work that ranges declared ([`nvtx::Event::flops`], [`nvtx::Event::bytes`], [`nvtx::Work`]) under these roofs. One point for all instances of a path whose work is of one number type.
    ///
    /// The time of a point is the busy time of the kernels launched in its instances and within: time in which at least one of
    /// them ran that is no collective, on several devices the sum of theirs. Of a range of the process, such as an annotated future, they are those of
    /// its stays. Work declared where a CUDA graph was captured counts for every launch
    /// of the graph. Kernels of others that run beside them slow them down and are not taken off.
    ///
    /// Costs some 0.2 us a range that declared with its kernel, and nothing where none did.
    pub fn roofline(&self, peaks: &Peaks) -> Roofline {
        self.roofline_with(peaks, &Declared::new())
    }

    /// The same with work that is said here of ranges that said none themselves, and of kernels: for recordings of programs
    /// that declare nothing.
    pub fn roofline_with(&self, peaks: &Peaks, declared: &Declared) -> Roofline {
        let mut trust = RooflineTrust::default();
        let mut sums: FxHashMap<Key, Sum> = FxHashMap::default();
        let of_ranges = declared.of_ranges(self);
        for (_, node) in self.walk() {
            let of_path = of_ranges.get(node.id.at()).cloned().flatten();
            if of_path.is_none() && self.store.details.is_empty() {
                continue;
            }
            let mut of_node = Vec::new();
            for range in node.ranges() {
                let own = Said::of(range.fields(), &mut trust);
                let Some(said) = own.or_else(|| of_path.clone()) else { continue };
                let (launched, replayed) = (range.operations(), range.replayed_operations());
                add_range(&mut of_node, &mut trust, launched, replayed, &said);
            }
            for (sort, sum) in of_node {
                let domain = node.domain().map(str::to_owned);
                let key = Key { name: node.cut_path(), domain, is_kernel: false, sort };
                sums.entry(key).or_default().add(sum);
            }
        }
        for range in self.process_ranges() {
            let Some(said) = Said::of(range.fields(), &mut trust) else { continue };
            let launched = range.activations().flat_map(|activation| activation.operations());
            let replayed =
                range.activations().flat_map(|activation| activation.replayed_operations());
            let mut of_range = Vec::new();
            add_range(&mut of_range, &mut trust, launched, replayed, &said);
            for (sort, sum) in of_range {
                let around =
                    range.parent().map_or(String::new(), |around| around.node().cut_path() + "/");
                let domain = range.domain().map(str::to_owned);
                let key = Key { name: around + range.name(), domain, is_kernel: false, sort };
                sums.entry(key).or_default().add(sum);
            }
        }
        if declared.has_kernels() {
            for kernel in self.kernels() {
                let Some((name, said)) = declared.of_kernel(&kernel) else { continue };
                let sort = Sort::of(&said);
                let key = Key { name, domain: None, is_kernel: true, sort };
                let sum = sums.entry(key).or_default();
                sum.declare(&said, 1);
                sum.ran(&kernel, &mut trust);
            }
        }
        let mut points: Vec<RooflinePoint> =
            sums.into_iter().map(|(key, sum)| point(peaks, key, sum)).collect();
        points.sort_by(|one, other| {
            let name = |point: &RooflinePoint| (point.name.clone(), point.dtype, point.pipe);
            other.gpu_time.cmp(&one.gpu_time).then_with(|| name(one).cmp(&name(other)))
        });
        Roofline { peaks: peaks.clone(), points, trust }
    }
}

/// Adds a range to the sums of its path, of which there are few.
fn add_range<'p>(
    sums: &mut Vec<(Sort, Sum)>,
    trust: &mut RooflineTrust,
    launched: impl Iterator<Item = GpuOperation<'p>>,
    replayed: impl Iterator<Item = GpuOperation<'p>>,
    said: &Said,
) {
    let is_kernel = |one: &GpuOperation<'_>| one.kind() == OperationKind::Kernel;
    let mut launched = launched.filter(is_kernel).peekable();
    let mut replayed = replayed.filter(is_kernel).peekable();
    let is_run = launched.peek().is_some();
    if !is_run && replayed.peek().is_none() {
        trust.without_kernels += 1;
        return;
    }
    let sort = Sort::of(said);
    let at = sums.iter().position(|(of, _)| *of == sort).unwrap_or_else(|| {
        sums.push((sort, Sum::default()));
        sums.len() - 1
    });
    let sum = &mut sums[at].1;
    if is_run {
        sum.declare(said, 1);
        launched.for_each(|operation| sum.ran(&operation, trust));
        trust.run_and_captured += u64::from(replayed.peek().is_some());
        return;
    }
    let mut launches = FxHashSet::default();
    replayed.for_each(|operation| {
        launches.insert((operation.process_id(), operation.correlation_id()));
        sum.ran(&operation, trust);
    });
    sum.declare(said, launches.len() as u64);
}

fn point(peaks: &Peaks, key: Key, sum: Sum) -> RooflinePoint {
    let (busy, devices) = busy(sum.times);
    let compute = key.sort.dtype.and_then(|dtype| peaks.flops(dtype, key.sort.pipe));
    RooflinePoint {
        name: key.name,
        domain: key.domain,
        is_kernel: key.is_kernel,
        instances: sum.instances,
        kernels: sum.kernels,
        devices,
        flops: key.sort.has_flops.then_some(sum.flops),
        bytes: key.sort.has_bytes.then_some(sum.bytes),
        dtype: key.sort.dtype,
        pipe: compute.map(|compute| compute.pipe).or(key.sort.pipe),
        gpu_time: busy,
        compute: compute.map(|compute| compute.roof),
        memory: peaks.bandwidth(),
    }
}

/// The busy time, device by device and added; and how many devices there were.
fn busy(mut ran: Vec<Ran>) -> (Duration, u64) {
    ran.sort_unstable_by_key(|ran| ran.time.start_ns);
    let mut devices: BTreeMap<u32, DeviceSweep> = BTreeMap::new();
    for Ran { device, time, is_collective } in ran {
        devices.entry(device).or_default().add(time, is_collective);
    }
    let busy_ns = devices.values().map(DeviceSweep::busy_ns).fold(0, u64::saturating_add);
    (Duration::from_nanos(busy_ns), devices.len() as u64)
}

impl fmt::Display for Roofline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "roofline: {}", shortened(self.peaks.device(), NAME_WIDTH))?;
        if self.points.is_empty() {
            writeln!(
                f,
                "no range declared work: say flops and bytes of ranges, or of paths and kernels"
            )?;
        } else {
            writeln!(f, "{}", self.table(NAME_WIDTH).text(1))?;
        }
        writeln!(f, "\n{}", self.peaks.table().text(2))?;
        let notes = self.notes();
        write!(f, "{}", notes.join("\n"))
    }
}

impl Roofline {
    /// The points, with names of at most this width.
    fn table(&self, width: usize) -> Table {
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
            "of measured",
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
                shortened(&point.label(), width),
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
                share(point.of_measured()),
                point.bound().map_or_else(none, |bound| bound.to_string()),
            ]
        };
        Table::new("Ranges", head, self.points.iter().map(row))
    }

    /// What is to be said beside the tables.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for compute in self.roofs_in_use() {
            if let Some(ridge) = self.peaks.ridge(compute.dtype, Some(compute.pipe)) {
                notes.push(format!(
                    "ridge of {} {}: {} FLOP/B",
                    compute.dtype,
                    compute.pipe,
                    number(ridge)
                ));
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
            notes.push("the roofs are those of one device: time on several is added".to_owned());
        }
        notes.push(format!("trust: {}", self.trust));
        notes
    }

    /// The compute roofs that some point is under; all if there is no point.
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

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_overlapping_kernels_counts_once_and_of_devices_each() {
        let time = |device, start_ns, end_ns| Ran {
            device,
            time: Interval { start_ns, end_ns },
            is_collective: false,
        };
        // Given out of order: 0 to 20 and 30 to 40 on one, within it all of 2 to 8, and 10 on another.
        let times = vec![
            time(0, 30, 40),
            time(1, 5, 15),
            time(0, 5, 20),
            time(0, 0, 10),
            time(0, 2, 8),
            // A clock that was set back makes no time.
            time(0, 50, 45),
            // A collective may wait, and computes nothing.
            Ran { is_collective: true, ..time(1, 10, 90) },
        ];
        assert_eq!(busy(times), (Duration::from_nanos(40), 2));
        assert_eq!(busy(Vec::new()), (Duration::ZERO, 0));
    }
}
