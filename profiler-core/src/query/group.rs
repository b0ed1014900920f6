//! Groups of operations or waits by a common key, the most time first.

use std::cmp::Reverse;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use cupti::{CopyKind, MemoryKind};
use profiler_base::statistics::Statistics;
use profiler_base::table::{Layout, Table};
use profiler_base::text::printable;
use profiler_base::units::{self, time};
use profiler_base::{getters, iterate, kernel_names, order};
use rustc_hash::FxHashMap;
#[cfg(feature = "serde")]
use serde::{Serialize, Serializer};

use super::{Query, Wait};
use crate::join::tables::What;
use crate::profile::{ApiCall, GpuOperation, Kernel, Process, RangeNode};

/// Groups by time, then by count, then in order of first appearance.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(transparent))]
pub struct Groups<K> {
    groups: Vec<Group<K>>,
}

/// The operations or waits with one key.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Group<K> {
    key: K,
    count: u64,
    bytes: u64,
    /// The bytes of operations with timestamps, and their nanoseconds.
    #[cfg_attr(feature = "serde", serde(skip))]
    timed_bytes: (u64, u64),
    share: f64,
    #[cfg_attr(feature = "serde", serde(rename = "times"))]
    statistics: Statistics,
}

impl<K> Group<K> {
    getters! {
        /// The common key.
        key: &K = key;
        /// The number of members, with and without timestamps.
        count: u64 = count;
        /// The sum of their times.
        time: Duration = statistics.sum();
        /// The share of the time of all groups, 0 to 1.
        share: f64 = share;
        /// Bytes copied and set.
        bytes: u64 = bytes;
        /// Statistics of the times.
        statistics: &Statistics = statistics;
    }

    /// [Bytes](Self::bytes) per time in GB/s (10^9 bytes per second). `None` if either is 0.
    pub fn bandwidth(&self) -> Option<f64> {
        let (bytes, ns) = self.timed_bytes;
        // A byte a nanosecond is a GB/s.
        (bytes != 0 && ns != 0).then(|| bytes as f64 / ns as f64)
    }
}

impl<K> Groups<K> {
    /// The smallest set of groups with this share of the total time: those with the most time.
    /// Empty if no time was spent.
    pub fn top_share(&self, share: f64) -> &[Group<K>] {
        let total: f64 = self.groups.iter().map(|group| group.time().as_secs_f64()).sum();
        // Sums of shares are inexact in the last digits.
        let wanted = share.clamp(0.0, 1.0) * total * (1.0 - 1e-12);
        let mut reached = 0.0;
        let enough = self.groups.iter().position(|group| {
            if reached >= wanted {
                return true;
            }
            reached += group.time().as_secs_f64();
            false
        });
        &self.groups[..enough.unwrap_or(self.groups.len())]
    }

    getters! {
        /// The number of groups.
        len: usize = groups.len();
        /// True if there are no groups.
        is_empty: bool = groups.is_empty();
        /// The groups.
        iter: std::slice::Iter<'_, Group<K>> = groups.iter();
        /// The groups.
        as_slice: &[Group<K>] = groups;
    }

    /// The first group whose key has this text: a kernel without parameters, a range by its path.
    pub fn get(&self, key: &str) -> Option<&Group<K>>
    where
        K: fmt::Display,
    {
        self.groups.iter().find(|group| group.key.to_string() == key)
    }
}

impl<K> IntoIterator for Groups<K> {
    type Item = Group<K>;
    type IntoIter = std::vec::IntoIter<Group<K>>;

    fn into_iter(self) -> Self::IntoIter {
        self.groups.into_iter()
    }
}

iterate!(Groups<K>: Group<K>);

/// Rows of a table; the last row sums the remaining groups.
const SHOWN: usize = 20;

impl<K: fmt::Display> fmt::Display for Groups<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.groups.is_empty() {
            return f.write_str("none");
        }
        let mut header = vec!["", "count", "time", "share", "mean", "median", "min", "max"];
        let moves_bytes = self.groups.iter().any(|group| group.bytes != 0);
        if moves_bytes {
            header.extend(["bytes", "GB/s"]);
        }
        let mut table = Table::new(header, 1);
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        for group in self.groups.iter().take(SHOWN) {
            let times = &group.statistics;
            let mut row = vec![
                group.key.to_string(),
                group.count.to_string(),
                time(group.time()),
                percent(group.share),
                time(times.mean()),
                time(times.median()),
                time(times.min()),
                time(times.max()),
            ];
            if group.bytes != 0 {
                row.push(units::bytes(group.bytes));
                row.extend(group.bandwidth().map(|rate| format!("{rate:.3}")));
            }
            table.add_row(row);
        }
        let rest = self.groups.get(SHOWN..).unwrap_or_default();
        if !rest.is_empty() {
            table.add_row([
                format!("({} others)", rest.len()),
                rest.iter().map(|group| group.count).sum::<u64>().to_string(),
                time(super::sum(rest.iter().map(Group::time))),
                percent(rest.iter().map(|group| group.share).sum()),
            ]);
        }
        f.write_str(&table.render(Layout::of(f)))
    }
}

/// Keys numbered in order of first appearance.
#[derive(Debug)]
pub(super) struct Keys<K> {
    places: FxHashMap<K, usize>,
}

impl<K: Eq + Hash> Keys<K> {
    pub(super) fn new() -> Self {
        Self { places: FxHashMap::default() }
    }

    /// The number of a key.
    pub(super) fn place(&mut self, key: K) -> usize {
        let next = self.places.len();
        *self.places.entry(key).or_insert(next)
    }

    /// All keys by number. The caller takes each once.
    pub(super) fn into_slots(self) -> Vec<Option<K>> {
        let mut slots = Vec::new();
        for _ in 0..self.places.len() {
            slots.push(None);
        }
        for (key, place) in self.places {
            slots[place] = Some(key);
        }
        slots
    }
}

/// Accumulates groups.
#[derive(Debug)]
pub(super) struct Grouping<K> {
    keys: Keys<K>,
    /// By the number of the key.
    sums: Vec<Sum>,
}

#[derive(Debug, Default)]
struct Sum {
    count: u64,
    bytes: u64,
    timed_bytes: (u64, u64),
    times: Vec<u64>,
}

impl Sum {
    fn add(&mut self, ns: Option<u64>, bytes: u64) {
        self.count += 1;
        self.times.extend(ns);
        if let Some(ns) = ns.filter(|_| bytes != 0) {
            let (timed, time) = self.timed_bytes;
            self.timed_bytes = (timed.saturating_add(bytes), time.saturating_add(ns));
        }
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// The sums with their numbers, shares and statistics, the most time first. Not generic: compiled once for all keys.
fn ranked(sums: Vec<Sum>) -> Vec<(usize, Sum, f64, Statistics)> {
    let with_statistics = |(place, mut sum): (usize, Sum)| {
        let times = Statistics::of_ns(std::mem::take(&mut sum.times));
        (place, sum, 0.0, times)
    };
    let mut ranked: Vec<_> = sums.into_iter().enumerate().map(with_statistics).collect();
    order::sort_by_key(&mut ranked, |(_, sum, _, times)| Reverse((times.sum(), sum.count)));
    let total: f64 = ranked.iter().map(|(.., times)| times.sum().as_secs_f64()).sum();
    for (_, _, share, times) in &mut ranked {
        *share = if total == 0.0 { 0.0 } else { times.sum().as_secs_f64() / total };
    }
    ranked
}

impl<K: Eq + Hash> Grouping<K> {
    pub(super) fn new() -> Self {
        Self { keys: Keys::new(), sums: Vec::new() }
    }

    pub(super) fn add(&mut self, key: K, ns: Option<u64>, bytes: u64) {
        let place = self.keys.place(key);
        if place == self.sums.len() {
            self.sums.push(Sum::default());
        }
        self.sums[place].add(ns, bytes);
    }

    pub(super) fn finish(self) -> Groups<K> {
        let mut keys = self.keys.into_slots();
        let mut groups = Vec::new();
        for (place, Sum { count, bytes, timed_bytes, .. }, share, statistics) in ranked(self.sums) {
            if let Some(key) = keys[place].take() {
                groups.push(Group { key, count, bytes, timed_bytes, share, statistics });
            }
        }
        Groups { groups }
    }
}

/// The bytes copied or set by an operation.
pub(super) fn bytes(operation: &GpuOperation<'_>) -> u64 {
    match &operation.work().what {
        What::Kernel { .. } | What::Graph(_) => 0,
        What::Copy(copy) => copy.bytes,
        What::Memset(memset) => memset.bytes,
    }
}

/// The name of a kernel. `{}` omits the parameters, unless another kernel of the profile differs in
/// them alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelName<'a> {
    name: &'a str,
    demangled: Option<&'a str>,
    is_overloaded: bool,
}

impl<'a> KernelName<'a> {
    pub(super) fn of(kernel: &Kernel<'a>) -> Self {
        let (name, demangled) = (kernel.name(), kernel.demangled());
        Self { name, demangled, is_overloaded: kernel.is_overloaded() }
    }

    /// The mangled name.
    pub fn as_str(&self) -> &'a str {
        self.name
    }

    fn short(&self) -> String {
        kernel_names::label(self.name, self.demangled, self.is_overloaded)
    }
}

impl fmt::Display for KernelName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.short()))
    }
}

/// The text for work outside all ranges.
const OUTSIDE: &str = "(outside any range)";

/// The path of a range, or work outside all ranges.
#[derive(Debug, Clone, Copy)]
pub struct RangePath<'a> {
    node: Option<RangeNode<'a>>,
}

impl<'a> RangePath<'a> {
    pub(super) fn new(node: Option<RangeNode<'a>>) -> Self {
        Self { node }
    }

    /// The path of an operation's range.
    pub fn of(operation: &GpuOperation<'a>) -> Self {
        Self::new(operation.range().map(|range| range.node()))
    }

    pub(super) fn of_call(call: &ApiCall<'a>) -> Self {
        Self::new(call.range().map(|range| range.node()))
    }

    /// The node of the tree; `None` outside all ranges.
    pub fn node(&self) -> Option<RangeNode<'a>> {
        self.node
    }
}

impl PartialEq for RangePath<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.node.map(|node| node.id) == other.node.map(|node| node.id)
    }
}

impl Eq for RangePath<'_> {}

impl Hash for RangePath<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.node.map(|node| node.id).hash(state);
    }
}

impl fmt::Display for RangePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Some(node) => f.write_str(&printable(&node.cut_path())),
            None => f.write_str(OUTSIDE),
        }
    }
}

/// A stream. Ids are unique within a context only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StreamKey {
    /// The kernel's process id; 0 if the process recorded itself.
    pub process: u32,
    /// The device's CUDA ordinal.
    pub device: u32,
    /// CUPTI's context id.
    pub context: u32,
    /// CUPTI's stream id.
    pub stream: u32,
}

impl fmt::Display for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.process != 0 {
            write!(f, "process {}, ", self.process)?;
        }
        write!(f, "device {}, context {}, stream {}", self.device, self.context, self.stream)
    }
}

/// A thread that makes calls, or the unknown thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CallThread<'a> {
    /// The kernel's process id; 0 if the process recorded itself.
    pub process: u32,
    /// The kernel's thread id; 0 if the call is unknown.
    pub id: u32,
    /// The name, if any.
    pub name: Option<&'a str>,
}

impl<'a> CallThread<'a> {
    pub(super) fn new(thread: &'a crate::join::tables::Thread) -> Self {
        Self { process: thread.process, id: thread.id, name: thread.name.as_deref() }
    }

    const UNKNOWN: Self = Self { process: 0, id: 0, name: None };
}

impl fmt::Display for CallThread<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.id, self.name) {
            (0, _) => f.write_str("(unknown thread)"),
            (id, Some(name)) => write!(f, "thread {id} ({})", printable(name)),
            (id, None) => write!(f, "thread {id}"),
        }
    }
}

/// The direction and memory kinds of copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct TransferKey {
    /// The direction.
    pub kind: CopyKind,
    /// The memory kind of the source.
    pub source: MemoryKind,
    /// The memory kind of the destination.
    pub destination: MemoryKind,
}

impl fmt::Display for TransferKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} to {}", self.kind, self.source, self.destination)
    }
}

#[cfg(feature = "serde")]
profiler_base::serialize_as_text!(TransferKey);

/// As the name without parameters.
#[cfg(feature = "serde")]
impl Serialize for KernelName<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.short())
    }
}

/// As the full path.
#[cfg(feature = "serde")]
impl Serialize for RangePath<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.node {
            Some(node) => serializer.serialize_str(&node.path()),
            None => serializer.serialize_str(OUTSIDE),
        }
    }
}

/// Groups.
impl<'a> Query<'a> {
    /// Groups by `key`; operations without a key are excluded.
    #[must_use]
    pub fn group_by<K: Eq + Hash>(
        &self,
        key: impl Fn(&GpuOperation<'a>) -> Option<K>,
    ) -> Groups<K> {
        let mut groups = Grouping::new();
        for operation in self.iter() {
            if let Some(key) = key(&operation) {
                let ns = operation.interval().map(|time| time.ns());
                groups.add(key, ns, bytes(&operation));
            }
        }
        groups.finish()
    }

    /// Groups kernels by name.
    pub fn by_kernel(&self) -> Groups<KernelName<'a>> {
        self.group_by(|operation| Some(KernelName::of(&operation.as_kernel()?)))
    }

    /// Groups by the path of the range; exclusive times that add up to the total.
    pub fn by_range(&self) -> Groups<RangePath<'a>> {
        self.group_by(|operation| Some(RangePath::of(operation)))
    }

    /// Groups executions of CUDA graph nodes by the path of the range that created the node. Other
    /// operations are excluded.
    pub fn by_capture(&self) -> Groups<RangePath<'a>> {
        self.group_by(|operation| Some(RangePath::new(Some(operation.captured_in()?.node()))))
    }

    /// Groups by stream.
    pub fn by_stream(&self) -> Groups<StreamKey> {
        self.group_by(|operation| {
            Some(StreamKey {
                process: operation.process_id(),
                device: operation.device(),
                context: operation.context(),
                stream: operation.stream(),
            })
        })
    }

    /// Groups by device.
    pub fn by_device(&self) -> Groups<u32> {
        self.group_by(|operation| Some(operation.device()))
    }

    /// Groups by process.
    pub fn by_process(&self) -> Groups<Process<'a>> {
        let processes = self.profile.processes_by_id();
        self.group_by(|operation| Some(processes.get(operation.process_id())))
    }

    /// Groups by the thread of the call.
    pub fn by_thread(&self) -> Groups<CallThread<'a>> {
        let threads = &self.profile.store.threads;
        self.group_by(|operation| {
            let thread = operation.call().map(|call| &threads[call.row.thread.at()]);
            Some(thread.map_or(CallThread::UNKNOWN, CallThread::new))
        })
    }

    /// Groups copies by direction.
    pub fn by_copy_kind(&self) -> Groups<CopyKind> {
        self.group_by(|operation| Some(operation.as_copy()?.kind()))
    }

    /// Groups copies by direction and memory kinds.
    pub fn by_transfer(&self) -> Groups<TransferKey> {
        self.group_by(|operation| {
            let copy = operation.as_copy()?;
            let (source, destination) = (copy.source(), copy.destination());
            Some(TransferKey { kind: copy.kind(), source, destination })
        })
    }
}

pub(super) fn of_waits<'a, K: Eq + Hash>(
    waits: impl Iterator<Item = Wait<'a>>,
    key: impl Fn(&Wait<'a>) -> K,
) -> Groups<K> {
    let mut groups = Grouping::new();
    for wait in waits {
        groups.add(key(&wait), Some(super::ns(wait.time())), 0);
    }
    groups.finish()
}
