//! Where the time of a run went: on every device, every nanosecond of it has one owner.
//!
//! What runs on a GPU comes before what the host does, and kernels before copies: a copy beside a kernel costs nothing.
//! Where the GPU is idle, the thread that asks for the next operation says why, as in [`gaps`](crate::query).

use std::collections::{BTreeMap, BTreeSet};

use cupti::CallClass;
use rustc_hash::FxHashSet;
use serde::Serialize;

use super::Thresholds;
use crate::base::named_variants::named_variants;
use crate::join::busy::extent;
use crate::join::tables::{CallId, Interval, OperationId, RangeId, Store};
use crate::profile::{OperationKind, Profile};
use crate::query::Timeline;

named_variants! {
    /// What a piece of the clock went to.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum Part with text in ALL {
        /// A kernel that is no collective, or a memset, ran.
        Kernels = "kernels",
        /// Collectives ran, and nothing else. How much of it was spent waiting for other ranks is not recorded.
        Communication = "communication alone",
        /// Copies ran, and no kernel but collectives; or the host was in the call of a large copy, and nothing ran.
        Copies = "copies alone and their calls",
        /// The GPU was idle although its next operation had been asked for before: it waited for other work, or was on its way.
        Scheduling = "work asked for, not started",
        /// The GPU was idle for the calls that launch, allocate and free.
        Launching = "idle for launches",
        /// The GPU was idle since a wait of the host had let it run dry; small copies that ran alone are in it, and the time
        /// until they began.
        Waiting = "idle for waits and small copies",
        /// The GPU was idle while the host was in no call, nor in a range of data loading.
        Host = "idle for the host",
        /// The GPU was idle while the host was in no call, and in a range of data loading.
        Loading = "idle for data",
        /// The GPU was idle, and the call of its next operation is not known.
        Unknown = "idle, not known why",
    }
}

impl Part {
    pub(super) const COUNT: usize = Self::ALL.len();
}

/// A piece of the clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) time: Interval,
    /// The device that ran it, or was idle.
    pub(super) device: u32,
    pub(super) part: Part,
    /// The operation that ran, or the next one.
    pub(super) operation: Option<OperationId>,
    pub(super) is_idle: bool,
    /// The call that the host was in while nothing ran.
    pub(super) call: Option<CallId>,
    /// The range that the host was in while nothing ran.
    pub(super) range: Option<RangeId>,
    /// The wait that let the GPU run dry before.
    pub(super) wait: Option<CallId>,
}

/// All pieces of a run: device by device, those of each by time and without a hole; pauses of the session are left out.
/// Every device has the same clock, so that an idle one is not hidden behind a busy one.
#[derive(Debug, Default)]
pub(super) struct Clock {
    pub(super) pieces: Vec<Piece>,
    /// Where the pieces of each device begin and end.
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
    /// How many devices there are; at least 1.
    pub(super) fn devices(&self) -> u64 {
        self.devices.len().max(1) as u64
    }

    /// The time on the clock: the mean over devices.
    pub(super) fn ns(&self) -> u64 {
        self.total_ns / self.devices()
    }

    /// The sum over devices, and at least 1: what sums of pieces are divided by for their share.
    pub(super) fn total(&self) -> f64 {
        self.total_ns.max(1) as f64
    }
}

/// A time in which an operation was the one to name.
type Ran = (Interval, OperationId);

/// The union of the times of operations by start, each piece with the operation that reached furthest.
fn union(operations: impl Iterator<Item = Ran>) -> Vec<Ran> {
    let mut ran: Vec<Ran> = Vec::new();
    let mut end = 0;
    for (time, id) in operations {
        let start_ns = time.start_ns.max(end);
        if time.end_ns > start_ns {
            ran.push((Interval { start_ns, end_ns: time.end_ns }, id));
            end = time.end_ns;
        }
    }
    ran
}

/// The pieces of `below` that nothing of `above` covers, cut.
fn uncovered(below: Vec<Ran>, above: &[(Interval, OperationId, Part)]) -> Vec<Ran> {
    let mut left = Vec::with_capacity(below.len());
    let mut first = 0;
    for (time, id) in below {
        let mut at = time.start_ns;
        while above.get(first).is_some_and(|(over, ..)| over.end_ns <= at) {
            first += 1;
        }
        for (over, ..) in &above[first..] {
            if over.start_ns >= time.end_ns {
                break;
            }
            if over.start_ns > at {
                left.push((Interval { start_ns: at, end_ns: over.start_ns }, id));
            }
            at = at.max(over.end_ns);
        }
        if at < time.end_ns {
            left.push((Interval { start_ns: at, end_ns: time.end_ns }, id));
        }
    }
    left
}

/// What the GPU is to be blamed on while it is idle.
struct Idle<'p> {
    profile: &'p Profile,
    /// The device that is idle.
    device: u32,
    timeline: Timeline,
    thresholds: &'p Thresholds,
    /// For each range whether it, or one around it, loads data.
    loads: Vec<bool>,
    /// Calls that asked for one.
    large_copies: FxHashSet<CallId>,
    pieces: Vec<Piece>,
}

impl<'p> Idle<'p> {
    /// True if the range or one around it loads data.
    fn is_loading(&self, range: Option<RangeId>) -> bool {
        range.is_some_and(|range| self.loads[range.at()])
    }

    fn is_small_copy(&self, id: OperationId) -> bool {
        let is_copy = self.profile.operation(id).kind() == OperationKind::Copy;
        is_copy && copied(&self.profile.store, id) <= self.thresholds.get_small_copy_bytes()
    }

    /// Divides a time without work up, `next` being the operation that ends it, or `last` the one before where none does.
    fn add(&mut self, time: Interval, next: Option<OperationId>, last: Option<OperationId>) {
        let (store, device) = (&self.profile.store, self.device);
        let caused_by = |id: OperationId| store.operations[id.at()].call.get();
        let Some(call_id) = next.or(last).and_then(caused_by) else {
            let (operation, call, range, wait) = (next, None, None, None);
            let part = Part::Unknown;
            let is_idle = true;
            self.pieces.push(Piece { time, device, part, operation, is_idle, call, range, wait });
            return;
        };
        let call = &store.calls[call_id.at()];
        let has_returned = store.call_kind(call).has_returned;
        let asked_until = match next {
            Some(_) if has_returned => call.time.end_ns.clamp(time.start_ns, time.end_ns),
            _ => time.end_ns,
        };
        let host = Interval { start_ns: time.start_ns, end_ns: asked_until };
        let pieces = self.timeline.host(store, call.thread, host);
        // The host waited when the GPU ran dry: what it takes to fill it again is the wait's, not the launch's.
        let wait = pieces.first().and_then(|piece| piece.call).filter(|id| {
            let call = &store.calls[id.at()];
            match store.call_kind(call).class {
                CallClass::Synchronize => true,
                // It had asked for the copy before, and was held up until that was done.
                CallClass::Memcpy => *id != call_id && call.time.start_ns < time.start_ns,
                _ => false,
            }
        });
        let after = |part| if wait.is_some() { Part::Waiting } else { part };
        for piece in pieces {
            let part = match piece.call.map(|id| (id, store.call_kind(&store.calls[id.at()]).class))
            {
                None if self.is_loading(piece.range) => Part::Loading,
                None => Part::Host,
                Some((_, CallClass::Synchronize)) => Part::Waiting,
                Some((_, CallClass::Alloc | CallClass::Free)) => Part::Launching,
                Some((id, CallClass::Memcpy)) if self.large_copies.contains(&id) => Part::Copies,
                Some((_, CallClass::Memcpy)) => Part::Waiting,
                Some(_) => after(Part::Launching),
            };
            let (call, range) = (piece.call, piece.range);
            let (time, operation, is_idle) = (piece.time, next, true);
            self.pieces.push(Piece { time, device, part, operation, is_idle, call, range, wait });
        }
        if asked_until < time.end_ns {
            // Nothing was asked of the GPU before it ran dry, or it had other things to wait for.
            let was_asked = call.time.end_ns <= time.start_ns;
            let part = match was_asked {
                // What a small copy costs is that it has to start.
                _ if next.is_some_and(|id| self.is_small_copy(id)) => Part::Waiting,
                true => Part::Scheduling,
                false => after(Part::Launching),
            };
            let time = Interval { start_ns: asked_until, ..time };
            let (call, range) = (Some(call_id), call.range.get());
            let (operation, is_idle) = (next, true);
            self.pieces.push(Piece { time, device, part, operation, is_idle, call, range, wait });
        }
    }
}

/// For each range whether it, or one around it, loads data.
fn loads(profile: &Profile, thresholds: &Thresholds) -> Vec<bool> {
    let store = &profile.store;
    let mut by_label: Vec<Option<bool>> = vec![None; store.labels.len()];
    let mut loads = vec![false; store.ranges.len()];
    // Each comes after the one around it.
    for id in profile.tree.ranges() {
        let range = &store.ranges[id.at()];
        let own = by_label[range.label.at()].get_or_insert_with(|| {
            thresholds.is_loading(store.names.get(store.label(range.label).name))
        });
        loads[id.at()] = *own || range.parent.get().is_some_and(|parent| loads[parent.at()]);
    }
    loads
}

/// The bytes of a copy; 0 of all else.
pub(super) fn copied(store: &Store, id: OperationId) -> u64 {
    match &store.work(&store.operations[id.at()]).what {
        crate::join::tables::What::Copy(copy) => copy.bytes,
        _ => 0,
    }
}

impl Clock {
    /// Costs some passes over operations, and one over calls and ranges.
    pub(super) fn new(profile: &Profile, thresholds: &Thresholds) -> Self {
        let store = &profile.store;
        let mut devices: BTreeMap<u32, Vec<OperationId>> = BTreeMap::new();
        for operation in profile.operations().filter(|operation| operation.interval().is_some()) {
            let id = OperationId(operation.number() as u32);
            devices.entry(operation.device()).or_default().push(id);
        }
        let timeline = Timeline::new(store);
        let ids = devices.values().flatten().copied();
        let large = ids.filter(|id| copied(store, *id) > thresholds.get_small_copy_bytes());
        let large_copies = large.filter_map(|id| store.operations[id.at()].call.get()).collect();
        let (loads, pieces) =
            (loads(profile, thresholds), Vec::with_capacity(2 * store.operations.len()));
        let device = 0;
        let mut idle = Idle { profile, device, timeline, thresholds, loads, large_copies, pieces };
        let whole = extent(store);
        for (device, operations) in devices {
            idle.device = device;
            idle.divide(whole, busy(profile, &operations));
        }
        let windows = &store.session.windows_ns;
        let pieces = if windows.len() > 1 { cut(idle.pieces, windows) } else { idle.pieces };
        pieces.into()
    }

    /// How many pieces these times have, which are by time and apart.
    pub(super) fn count_within(&self, times: &[Interval]) -> u64 {
        let count = |pieces: &[Piece], time: &Interval| {
            let first = pieces.partition_point(|piece| piece.time.end_ns <= time.start_ns);
            let end = pieces.partition_point(|piece| piece.time.start_ns < time.end_ns);
            end.saturating_sub(first) as u64
        };
        let of_device = |of: &std::ops::Range<usize>| -> u64 {
            times.iter().map(|time| count(&self.pieces[of.clone()], time)).sum()
        };
        self.devices.iter().map(of_device).sum()
    }

    /// The pieces in these times, which are by time and apart, cut to them: of these devices, or of all if there are none.
    pub(super) fn within(&self, times: &[Interval], devices: &BTreeSet<u32>) -> Vec<Piece> {
        let mut found = Vec::new();
        for pieces in self.devices.iter().map(|of| &self.pieces[of.clone()]) {
            let is_meant = |piece: &Piece| devices.is_empty() || devices.contains(&piece.device);
            if !pieces.first().is_some_and(is_meant) {
                continue;
            }
            for time in times {
                let first = pieces.partition_point(|piece| piece.time.end_ns <= time.start_ns);
                let overlap =
                    pieces[first..].iter().take_while(|piece| piece.time.start_ns < time.end_ns);
                found.extend(overlap.map(|piece| {
                    let start_ns = piece.time.start_ns.max(time.start_ns);
                    let end_ns = piece.time.end_ns.min(time.end_ns);
                    Piece { time: Interval { start_ns, end_ns }, ..*piece }
                }));
            }
        }
        found
    }
}

impl Idle<'_> {
    /// Divides the clock of the device up: what ran on it, and the idle times between.
    fn divide(&mut self, whole: Interval, busy: Vec<(Interval, OperationId, Part)>) {
        let mut at = whole.start_ns;
        let mut last = None;
        for (time, id, part) in busy {
            if time.start_ns > at {
                self.add(Interval { start_ns: at, end_ns: time.start_ns }, Some(id), last);
            }
            let part =
                if self.is_small_copy(id) && part == Part::Copies { Part::Waiting } else { part };
            let (device, operation) = (self.device, Some(id));
            let (is_idle, call, range, wait) = (false, None, None, None);
            self.pieces.push(Piece { time, device, part, operation, is_idle, call, range, wait });
            (at, last) = (time.end_ns, Some(id));
        }
        if at < whole.end_ns && last.is_some() {
            self.add(Interval { start_ns: at, end_ns: whole.end_ns }, None, last);
        }
    }
}

/// When these operations of one device, which are by start, ran: in pieces by time, kernels before copies before
/// collectives.
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
        let more = uncovered(times, &busy);
        busy.extend(more.into_iter().map(|(time, id)| (time, id, part)));
        busy.sort_unstable_by_key(|(time, ..)| time.start_ns);
    }
    busy
}

/// What lies in these windows.
fn cut(pieces: Vec<Piece>, windows: &[(u64, u64)]) -> Vec<Piece> {
    // Work that was asked for in the session runs on after its end.
    let last = windows.len() - 1;
    let windows: Vec<Interval> = windows
        .iter()
        .enumerate()
        .map(|(n, &(start_ns, end_ns))| Interval {
            start_ns,
            end_ns: if n == last { u64::MAX } else { end_ns },
        })
        .collect();
    Clock::from(pieces).within(&windows, &BTreeSet::new())
}

/// A time in which nothing ran on a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    device: u32,
    time: Interval,
}

/// The times in which nothing ran, in the order of the pieces.
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

/// The nanoseconds that may go with these pieces, of which `part` is taken: of a gap that is half theirs or more all of it,
/// for what remains of it may be hidden when the host comes in time. They are in the order of the clock.
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
            Some((of, sum)) if is_in(of) => *sum += ns,
            _ => {
                reach += gap.take().map_or(0.0, whole);
                gap = gaps.find(|gap| is_in(gap)).map(|of| (*of, ns));
            }
        }
    }
    reach + gap.map_or(0.0, whole)
}

/// Nanoseconds by part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sums(pub(super) [u64; Part::COUNT]);

impl Sums {
    pub(super) fn of<'p>(pieces: impl Iterator<Item = &'p Piece>) -> Self {
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
