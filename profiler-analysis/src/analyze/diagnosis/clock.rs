//! The clock of a run: every nanosecond of every device is attributed to one part.
//!
//! GPU work comes before host activity, and kernels before copies, since a copy beside a kernel
//! costs nothing. Idle time belongs to the thread of the next operation, as in
//! [`gaps`](crate::query).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use cupti::{CallClass, tables};
use profiler_base::named_variants;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::Thresholds;
use crate::analyze::phases::uncovered;
use profiler_core::profile::{GpuOperation, OperationKind, Profile};
use profiler_core::tables::HostTimeline;
use profiler_core::tables::Maybe;
use profiler_core::tables::busy::{extent, observed};
use profiler_core::tables::range_tree::NodeId;
use profiler_core::tables::{CallId, Interval, OperationId, RangeId, Tables};

named_variants! {
    /// A part of the clock.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum Part with text in ALL {
        /// A kernel other than a collective, or a memset, ran.
        Kernels = "kernels",
        /// Only collectives ran: transfers, and waits for other ranks.
        Communication = "communication alone",
        /// Copies ran without kernels other than collectives, or nothing ran during the call of a
        /// large copy.
        Copies = "copies alone and their calls",
        /// The GPU was idle with its next operation submitted: waiting for other work, or starting.
        Scheduling = "work launched, not started",
        /// The GPU was idle for calls that launch, allocate and free.
        Launching = "idle for launches",
        /// The GPU was idle after a wait of the host; includes small copies alone and their start.
        Waiting = "idle for waits and small copies",
        /// The GPU was idle; the host was in no call and in no range of data loading.
        Host = "idle for the host",
        /// The GPU was idle; the host was in no call, but in a range of data loading.
        Loading = "idle for data",
        /// The GPU was idle, and the call of its next operation is unknown.
        Unknown = "idle, not known why",
    }
}

impl Part {
    pub(super) const COUNT: usize = Self::ALL.len();
}

/// A piece of the clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) time: Interval,
    /// The device that ran or was idle.
    pub(crate) device: u32,
    pub(crate) part: Part,
    /// The operation that ran, or the next one.
    pub(crate) operation: Maybe<OperationId>,
    pub(crate) is_idle: bool,
    /// The host's call while nothing ran.
    pub(crate) call: Maybe<CallId>,
    /// The host's range while nothing ran.
    pub(crate) range: Maybe<RangeId>,
    /// The wait before which the GPU ran out of work.
    pub(crate) wait: Maybe<CallId>,
}

impl Piece {
    /// The part within this time.
    pub(super) fn clipped(&self, time: &Interval) -> Self {
        let start_ns = self.time.start_ns.max(time.start_ns);
        let end_ns = self.time.end_ns.min(time.end_ns);
        Self { time: Interval { start_ns, end_ns }, ..*self }
    }
}

/// All pieces of a run, by device and time, without holes; session pauses are left out. Every
/// device has its own clock, so a busy device does not hide an idle one. The clock covers the time
/// in which the processes that used the device were recorded.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    pub(crate) pieces: Vec<Piece>,
    /// The range of pieces of each device.
    devices: Vec<std::ops::Range<usize>>,
    /// The sum of all pieces.
    total_ns: u64,
}

impl From<Vec<Piece>> for Clock {
    fn from(pieces: Vec<Piece>) -> Self {
        let total_ns = pieces.iter().map(|piece| piece.time.ns()).sum();
        let mut devices: Vec<std::ops::Range<usize>> = Vec::new();
        for same in pieces.chunk_by(|a, b| a.device == b.device) {
            let start = devices.last().map_or(0, |last| last.end);
            devices.push(start..start + same.len());
        }
        Self { pieces, devices, total_ns }
    }
}

impl Clock {
    /// Number of devices; at least 1.
    pub(crate) fn devices(&self) -> u64 {
        self.devices.len().max(1) as u64
    }

    /// The time of the clock: the mean over devices.
    pub(crate) fn ns(&self) -> u64 {
        self.total_ns / self.devices()
    }

    /// The pieces of each device.
    fn by_device(&self) -> impl Iterator<Item = (u32, &[Piece])> {
        let pieces = self.devices.iter().map(|pieces| &self.pieces[pieces.clone()]);
        pieces.map(|pieces| (pieces[0].device, pieces))
    }

    /// True if it contains the device.
    pub(super) fn has(&self, device: u32) -> bool {
        self.by_device().any(|(id, _)| id == device)
    }

    /// The sum over devices, at least 1, as the divisor of shares.
    pub(super) fn total(&self) -> f64 {
        self.total_ns.max(1) as f64
    }
}

/// A time attributed to an operation.
type OperationTime = (Interval, OperationId);

/// The union of operation times in start order, each piece with its furthest operation.
fn union(operations: impl Iterator<Item = OperationTime>) -> Vec<OperationTime> {
    let mut union: Vec<OperationTime> = Vec::new();
    let mut end = 0;
    for (time, id) in operations {
        let start_ns = time.start_ns.max(end);
        if time.end_ns > start_ns {
            union.push((Interval { start_ns, end_ns: time.end_ns }, id));
            end = time.end_ns;
        }
    }
    union
}

/// Attributes the idle time of a device.
struct Idle<'p> {
    profile: &'p Profile,
    /// The idle device.
    device: u32,
    timeline: HostTimeline,
    thresholds: &'p Thresholds,
    /// True for each range that loads data itself or lies in a range that does.
    loads: Vec<bool>,
    /// Calls of large copies.
    large_copies: FxHashSet<CallId>,
    pieces: Vec<Piece>,
}

impl<'p> Idle<'p> {
    fn is_small_copy(&self, id: OperationId) -> bool {
        let is_copy = self.profile.operation(id).kind() == OperationKind::Copy;
        is_copy && copied(self.profile.tables(), id) <= self.thresholds.get_small_copy_bytes()
    }

    /// Divides idle time. `next` is the operation that ends it; without one, `last` is the
    /// operation before.
    fn add(&mut self, time: Interval, next: Option<OperationId>, last: Option<OperationId>) {
        let (store, device) = (&self.profile.tables(), self.device);
        let (part, operation, is_idle) = (Part::Unknown, next.into(), true);
        let (call, range, wait) = (Maybe::NONE, Maybe::NONE, Maybe::NONE);
        let unknown = Piece { time, device, part, operation, is_idle, call, range, wait };
        let call_of = |id: OperationId| store.operations[id.at()].call.get();
        let Some(call_id) = next.or(last).and_then(call_of) else {
            self.pieces.push(unknown);
            return;
        };
        let call = &store.calls[call_id.at()];
        let has_returned = store.call_kind(call).has_returned;
        let submitted = match next {
            Some(_) if has_returned => call.time.end_ns.clamp(time.start_ns, time.end_ns),
            _ => time.end_ns,
        };
        let host = Interval { start_ns: time.start_ns, end_ns: submitted };
        let pieces = self.timeline.host(store, call.thread, host);
        // After a wait of the host, the time to submit new work counts as waiting.
        let wait = pieces.first().and_then(|piece| piece.call).filter(|id| {
            let call = &store.calls[id.at()];
            match store.call_kind(call).class {
                CallClass::Synchronize => true,
                // An earlier copy that blocked the host.
                CallClass::Memcpy => *id != call_id && call.time.start_ns < time.start_ns,
                _ => false,
            }
        });
        let after = |part| if wait.is_some() { Part::Waiting } else { part };
        let wait = wait.into();
        for piece in pieces {
            let call = piece.call.map(|id| (id, store.call_kind(&store.calls[id.at()]).class));
            let part = match call {
                None if piece.range.is_some_and(|range| self.loads[range.at()]) => Part::Loading,
                None => Part::Host,
                Some((_, CallClass::Synchronize)) => Part::Waiting,
                Some((_, CallClass::Alloc | CallClass::Free)) => Part::Launching,
                Some((id, CallClass::Memcpy)) if self.large_copies.contains(&id) => Part::Copies,
                Some((_, CallClass::Memcpy)) => Part::Waiting,
                Some(_) => after(Part::Launching),
            };
            let (time, call, range) = (piece.time, piece.call.into(), piece.range.into());
            self.pieces.push(Piece { time, part, call, range, wait, ..unknown });
        }
        if submitted < time.end_ns {
            let part = match call.time.end_ns <= time.start_ns {
                // A small copy costs its start.
                _ if next.is_some_and(|id| self.is_small_copy(id)) => Part::Waiting,
                true => Part::Scheduling,
                false => after(Part::Launching),
            };
            let time = Interval { start_ns: submitted, ..time };
            let (call, range) = (Some(call_id).into(), call.range);
            self.pieces.push(Piece { time, part, call, range, wait, ..unknown });
        }
    }
}

/// Returns for each range if it or a range around it loads data.
fn loads(profile: &Profile, thresholds: &Thresholds) -> Vec<bool> {
    let store = &profile.tables();
    let mut by_label: Vec<Option<bool>> = vec![None; store.labels.len()];
    let mut loads = vec![false; store.ranges.len()];
    // A range comes after its parent.
    for id in profile.range_tree().ranges() {
        let range = &store.ranges[id.at()];
        let own = by_label[range.label.at()].get_or_insert_with(|| {
            thresholds.is_loading(store.names.get(store.label(range.label).name))
        });
        loads[id.at()] = *own || range.parent.get().is_some_and(|parent| loads[parent.at()]);
    }
    loads
}

/// The maximum number of range names that explain time as data loading.
const LOADING_NAMES: usize = 3;

/// The names that made this idle time count as data loading, longest time first.
pub(super) fn loading_names<'p>(
    profile: &Profile,
    thresholds: &Thresholds,
    pieces: impl Iterator<Item = &'p Piece>,
) -> Vec<String> {
    let store = &profile.tables();
    let name = |id: RangeId| store.names.get(store.label(store.ranges[id.at()].label).name);
    let mut by_node: FxHashMap<NodeId, (u64, RangeId)> = FxHashMap::default();
    for piece in pieces.filter(|piece| piece.part == Part::Loading) {
        let Some(range) = piece.range.get() else { continue };
        let node = profile.range_tree().of_range[range.at()];
        by_node.entry(node).or_insert((0, range)).0 += piece.time.ns();
    }
    let mut by_name: FxHashMap<&str, u64> = FxHashMap::default();
    for (ns, range) in by_node.into_values() {
        let parent = |id: &RangeId| store.ranges[id.at()].parent.get();
        let mut names = std::iter::successors(Some(range), parent).map(name);
        if let Some(name) = names.find(|name| thresholds.is_loading(name)) {
            *by_name.entry(name).or_default() += ns;
        }
    }
    let mut names: Vec<(&str, u64)> = by_name.into_iter().collect();
    names.sort_unstable_by_key(|(name, ns)| (Reverse(*ns), *name));
    names.into_iter().take(LOADING_NAMES).map(|(name, _)| name.to_owned()).collect()
}

/// Process, context and number of an operation's stream.
pub(super) fn stream_key(operation: &GpuOperation<'_>) -> (u32, u32, u32) {
    (operation.process_id(), operation.context(), operation.stream())
}

/// The bytes of a copy; 0 for other operations.
pub(super) fn copied(store: &Tables, id: OperationId) -> u64 {
    match &store.work(&store.operations[id.at()]).what {
        profiler_core::tables::What::Copy(copy) => copy.bytes,
        _ => 0,
    }
}

impl Clock {
    /// Costs several passes over operations, and one over calls and ranges.
    pub(crate) fn new(profile: &Profile, thresholds: &Thresholds) -> Self {
        let store = &profile.tables();
        let mut devices: BTreeMap<u32, Vec<OperationId>> = BTreeMap::new();
        for operation in profile.operations().filter(|operation| operation.interval().is_some()) {
            let id = OperationId(operation.number() as u32);
            devices.entry(operation.device()).or_default().push(id);
        }
        let timeline = HostTimeline::new(store);
        let ids = devices.values().flatten().copied();
        let large = ids.filter(|id| copied(store, *id) > thresholds.get_small_copy_bytes());
        let large_copies = large.filter_map(|id| store.operations[id.at()].call.get()).collect();
        let loads = loads(profile, thresholds);
        let pieces = tables::with_capacity(2 * store.operations.len());
        let mut idle =
            Idle { profile, device: 0, timeline, thresholds, loads, large_copies, pieces };
        let whole = extent(store);
        for (device, operations) in devices {
            idle.device = device;
            idle.divide(whole, busy(profile, &operations));
        }
        let observed = observed(store);
        if observed.values().all(|times| times[..] == [whole]) {
            return idle.pieces.into();
        }
        // Pauses are not idle, nor is the time before and after the processes of a device.
        let all = Self::from(idle.pieces);
        let of = |(device, times): (&u32, &Vec<Interval>)| {
            all.clipped(times, &BTreeSet::from([*device]))
        };
        observed.iter().flat_map(of).collect::<Vec<_>>().into()
    }

    /// The time of the clock of one device.
    pub(crate) fn ns_of(&self, device: u32) -> u64 {
        let pieces = self.by_device().filter(|(id, _)| *id == device);
        pieces.flat_map(|(_, pieces)| pieces).map(|piece| piece.time.ns()).sum()
    }

    /// The number of pieces in these disjoint, ordered times.
    pub(super) fn count_within(&self, times: &[Interval]) -> u64 {
        let overlaps = self.overlaps(times, &BTreeSet::new());
        overlaps.iter().map(|(_, pieces)| pieces.len() as u64).sum()
    }

    /// The pieces of these devices (all if empty) that overlap each of these disjoint, ordered
    /// times.
    pub(super) fn overlaps<'c>(
        &'c self,
        times: &'c [Interval],
        devices: &BTreeSet<u32>,
    ) -> Vec<(&'c Interval, &'c [Piece])> {
        let is_used = |id: u32| devices.is_empty() || devices.contains(&id);
        let used = self.by_device().filter(|(id, _)| is_used(*id));
        let overlaps = used.flat_map(|(_, pieces)| {
            times.iter().map(move |time| {
                let first = pieces.partition_point(|piece| piece.time.end_ns <= time.start_ns);
                let rest = &pieces[first..];
                let count = rest.partition_point(|piece| piece.time.start_ns < time.end_ns);
                (time, &rest[..count])
            })
        });
        overlaps.collect()
    }

    /// The pieces of these devices (all if empty) clipped to disjoint, ordered times.
    pub(super) fn clipped(&self, times: &[Interval], devices: &BTreeSet<u32>) -> Vec<Piece> {
        let overlaps = self.overlaps(times, devices);
        let count = overlaps.iter().map(|(_, pieces)| pieces.len()).sum();
        let mut found = tables::with_capacity(count);
        for (time, pieces) in overlaps {
            found.extend(pieces.iter().map(|piece| piece.clipped(time)));
        }
        found
    }
}

impl Idle<'_> {
    /// Divides the clock of the device: operations, and idle times between them.
    fn divide(&mut self, whole: Interval, busy: Vec<(Interval, OperationId, Part)>) {
        let mut at = whole.start_ns;
        let mut last = None;
        for (time, id, part) in busy {
            if time.start_ns > at {
                self.add(Interval { start_ns: at, end_ns: time.start_ns }, Some(id), last);
            }
            let part =
                if self.is_small_copy(id) && part == Part::Copies { Part::Waiting } else { part };
            let (device, operation, is_idle) = (self.device, Some(id).into(), false);
            let (call, range, wait) = (Maybe::NONE, Maybe::NONE, Maybe::NONE);
            self.pieces.push(Piece { time, device, part, operation, is_idle, call, range, wait });
            (at, last) = (time.end_ns, Some(id));
        }
        if at < whole.end_ns && last.is_some() {
            self.add(Interval { start_ns: at, end_ns: whole.end_ns }, None, last);
        }
    }
}

/// The busy times of one device by start, attributed to kernels before copies before collectives.
/// `operations` are in start order.
fn busy(profile: &Profile, operations: &[OperationId]) -> Vec<(Interval, OperationId, Part)> {
    let kind = |id: OperationId| match profile.operation(id).kind() {
        OperationKind::Copy => Part::Copies,
        _ if profile.operation(id).is_collective() => Part::Communication,
        OperationKind::Kernel | OperationKind::Memset | OperationKind::Graph => Part::Kernels,
    };
    let mut busy: Vec<(Interval, OperationId, Part)> = Vec::new();
    for part in [Part::Kernels, Part::Copies, Part::Communication] {
        let of_part = operations.iter().copied().filter(|id| kind(*id) == part);
        let times = union(of_part.filter_map(|id| Some((profile.operation(id).interval()?, id))));
        let above: Vec<Interval> = busy.iter().map(|(time, ..)| *time).collect();
        let more = uncovered(times, &above);
        busy.extend(more.into_iter().map(|(time, id)| (time, id, part)));
        busy.sort_unstable_by_key(|(time, ..)| time.start_ns);
    }
    busy
}

/// An idle time of a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    device: u32,
    time: Interval,
}

/// The idle times, in the order of the pieces.
pub(super) fn gaps(pieces: &[Piece]) -> Vec<Gap> {
    let mut gaps: Vec<Gap> = Vec::new();
    for Piece { device, time, .. } in pieces.iter().filter(|piece| piece.is_idle).copied() {
        match gaps.last_mut() {
            Some(last) if last.device == device && last.time.end_ns == time.start_ns => {
                last.time.end_ns = time.end_ns;
            }
            _ => gaps.push(Gap { device, time }),
        }
    }
    gaps
}

/// The nanoseconds that may vanish with the given parts of these pieces, in clock order. A gap
/// counts as a whole if half or more of it is removed, since the host may then hide the rest.
pub(super) fn reach<'p>(pieces: impl Iterator<Item = (&'p Piece, f64)>, gaps: &[Gap]) -> f64 {
    let mut reach = 0.0;
    let mut gaps = gaps.iter();
    let mut gap: Option<(Gap, f64)> = None;
    let whole = |(gap, sum): (Gap, f64)| {
        let ns = gap.time.ns() as f64;
        if 2.0 * sum >= ns { ns } else { sum }
    };
    for (piece, part) in pieces {
        let ns = piece.time.ns() as f64 * part;
        if !piece.is_idle {
            reach += ns;
            continue;
        }
        let is_in = |gap: &Gap| {
            gap.device == piece.device
                && gap.time.start_ns <= piece.time.start_ns
                && piece.time.start_ns < gap.time.end_ns
        };
        match &mut gap {
            Some((current, sum)) if is_in(current) => *sum += ns,
            _ => {
                reach += gap.take().map_or(0.0, whole);
                gap = gaps.find(|gap| is_in(gap)).map(|found| (*found, ns));
            }
        }
    }
    reach + gap.map_or(0.0, whole)
}

/// Nanoseconds by part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sums(pub(super) [u64; Part::COUNT]);

impl Sums {
    pub(super) fn from_pieces<'p>(pieces: impl Iterator<Item = &'p Piece>) -> Self {
        let mut sums = Self::default();
        for piece in pieces {
            sums.0[piece.part as usize] += piece.time.ns();
        }
        sums
    }

    pub(super) fn get(&self, part: Part) -> u64 {
        self.0[part as usize]
    }

    pub(super) fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}
