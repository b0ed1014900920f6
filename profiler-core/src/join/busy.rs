//! Busy time, defined once: per device, with communication separate.
//!
//! A device is **busy** while a copy, a memset, or a kernel other than a collective runs on it.
//! **Communication** is the time in which only collectives run. A collective that waits for another
//! rank occupies its device without computing, and a record does not separate that wait from the
//! transfer. The rest is **idle**. Times of several devices are added or averaged, never united: a
//! union would hide an idle device behind a busy one.
//!
//! [`communication`](crate::join::communication) has the kernels that are collectives.

use std::collections::{BTreeMap, BTreeSet};

use profiler_base::order;
use rustc_hash::FxHashMap;

use crate::join::tables::{Interval, Tables, ThreadId};

/// Intervals in start order: their union and the gaps between them.
#[derive(Debug, Clone, Copy)]
pub struct Sweep {
    /// The first start.
    pub first_ns: u64,
    /// The latest end so far.
    pub end_ns: u64,
    /// The length of the union.
    pub busy_ns: u64,
    /// The sum of all lengths.
    pub gpu_ns: u64,
}

impl Sweep {
    /// Begins with the first interval.
    pub fn new(first: Interval) -> Self {
        // An end before the start is a damaged record.
        let end_ns = first.end_ns.max(first.start_ns);
        Self { first_ns: first.start_ns, end_ns, busy_ns: first.ns(), gpu_ns: first.ns() }
    }

    /// Adds the next interval in start order. Returns the gap before it.
    pub fn add(&mut self, time: Interval) -> Option<Interval> {
        let gap = Interval { start_ns: self.end_ns, end_ns: time.start_ns };
        self.busy_ns += time.end_ns.saturating_sub(time.start_ns.max(self.end_ns));
        self.gpu_ns = self.gpu_ns.saturating_add(time.ns());
        self.end_ns = self.end_ns.max(time.end_ns).max(time.start_ns);
        (gap.ns() != 0).then_some(gap)
    }
}

/// The operations of one device in start order.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeviceSweep {
    all: Option<Sweep>,
    /// The sweep without collectives.
    work: Option<Sweep>,
}

impl DeviceSweep {
    /// Adds the next operation in start order. Returns the gap before it.
    pub fn add(&mut self, time: Interval, is_collective: bool) -> Option<Interval> {
        if !is_collective {
            next(&mut self.work, time);
        }
        next(&mut self.all, time)
    }

    /// The first start and the last end.
    pub fn span(&self) -> Interval {
        let span = |all: Sweep| Interval { start_ns: all.first_ns, end_ns: all.end_ns };
        self.all.map_or(Interval { start_ns: 0, end_ns: 0 }, span)
    }

    /// The sum of all lengths; overlaps count repeatedly.
    pub(crate) fn gpu_ns(&self) -> u64 {
        self.all.map_or(0, |all| all.gpu_ns)
    }

    /// The time in which something other than a collective ran.
    pub fn busy_ns(&self) -> u64 {
        self.work.map_or(0, |work| work.busy_ns)
    }

    /// The time in which only collectives ran.
    pub fn communication_ns(&self) -> u64 {
        self.all.map_or(0, |all| all.busy_ns).saturating_sub(self.busy_ns())
    }

    /// The time in which nothing ran, between the first start and the last end.
    pub(crate) fn idle_ns(&self) -> u64 {
        self.all.map_or(0, |all| (all.end_ns - all.first_ns).saturating_sub(all.busy_ns))
    }
}

fn next(sweep: &mut Option<Sweep>, time: Interval) -> Option<Interval> {
    match sweep {
        Some(sweep) => sweep.add(time),
        None => {
            *sweep = Some(Sweep::new(time));
            None
        }
    }
}

/// The time span of each process, to which shares are relative. Ranges and calls may begin long
/// before the session and end after it; that time is excluded. Operations count until their end.
fn extents(store: &Tables) -> FxHashMap<u32, Interval> {
    let whole = &store.session.windows_ns[..];
    let recorded = store
        .processes
        .iter()
        .filter_map(|process| Some((process.id, &process.recorded.as_ref()?.windows_ns[..])));
    let windows: FxHashMap<u32, &[(u64, u64)]> = recorded.collect();
    let mut rows: FxHashMap<u32, usize> = FxHashMap::default();
    let mut extents: Vec<(u32, (u64, u64), Interval)> = Vec::new();
    let mut row = |process: u32| {
        *rows.entry(process).or_insert_with(|| {
            let windows = windows.get(&process).copied().unwrap_or(whole);
            let first_ns = windows.first().map_or(0, |window| window.0);
            let last_ns = windows.last().map_or(u64::MAX, |window| window.1).max(first_ns);
            let none = Interval { start_ns: u64::MAX, end_ns: 0 };
            extents.push((process, (first_ns, last_ns), none));
            extents.len() - 1
        })
    };
    let of_threads: Vec<usize> = store.threads.iter().map(|of| row(of.process)).collect();
    let of_works: Vec<usize> = store.works().iter().map(|work| row(work.process)).collect();
    let mut add = |row: usize, time: Interval| {
        let extent = &mut extents[row].2;
        extent.start_ns = extent.start_ns.min(time.start_ns);
        extent.end_ns = extent.end_ns.max(time.end_ns).max(time.start_ns);
    };
    for operation in &store.operations {
        operation.time().into_iter().for_each(|time| add(of_works[operation.work.at()], time));
    }
    let mut add_within = |thread: ThreadId, time: Interval| {
        let (_, (first_ns, last_ns), extent) = &mut extents[of_threads[thread.at()]];
        extent.start_ns = extent.start_ns.min(time.start_ns.clamp(*first_ns, *last_ns));
        let end_ns = time.end_ns.max(time.start_ns).clamp(*first_ns, *last_ns);
        extent.end_ns = extent.end_ns.max(end_ns);
    };
    store.calls.iter().for_each(|call| add_within(call.thread, call.time));
    store.ranges.iter().for_each(|range| add_within(range.thread, range.time));
    let is_active = |extent: &Interval| extent.start_ns <= extent.end_ns;
    let extents = extents.into_iter().map(|(process, _, extent)| (process, extent));
    extents.filter(|(_, extent)| is_active(extent)).collect()
}

/// The time span of all processes.
pub fn extent(store: &Tables) -> Interval {
    let (start_ns, end_ns) = extents(store)
        .values()
        .fold((u64::MAX, 0), |(start, end), of| (of.start_ns.min(start), of.end_ns.max(end)));
    Interval { start_ns: start_ns.min(end_ns), end_ns }
}

/// The times in which each device was observed, in order and disjoint: the recorded times of the
/// processes that used it, without common pauses.
pub fn observed(store: &Tables) -> BTreeMap<u32, Vec<Interval>> {
    let extents = extents(store);
    let mut of_processes: FxHashMap<u32, Vec<Interval>> = FxHashMap::default();
    let mut add = |process: u32, windows: &[(u64, u64)]| {
        let Some(extent) = extents.get(&process) else { return };
        let mut windows: Vec<Interval> = windows
            .iter()
            .map(|&(start_ns, end_ns)| Interval {
                start_ns: start_ns.max(extent.start_ns),
                end_ns: end_ns.min(extent.end_ns),
            })
            .collect();
        // Work submitted in the session continues after its end.
        windows.iter_mut().rev().take(1).for_each(|last| last.end_ns = extent.end_ns);
        windows.retain(|window| window.start_ns < window.end_ns);
        of_processes.insert(process, windows);
    };
    extents.keys().for_each(|process| add(*process, &store.session.windows_ns));
    for process in &store.processes {
        let recorded = process.recorded.iter();
        recorded.for_each(|recorded| add(process.id, &recorded.windows_ns));
    }
    let mut users: BTreeSet<(u32, u32)> = BTreeSet::new();
    for operation in store.operations.iter().filter(|operation| operation.time().is_some()) {
        let work = store.work(operation);
        users.insert((work.place.device, work.process));
    }
    let mut observed: BTreeMap<u32, Vec<Interval>> = BTreeMap::new();
    for (device, process) in users {
        let times = of_processes.get(&process).into_iter().flatten();
        observed.entry(device).or_default().extend(times);
    }
    observed.into_iter().map(|(device, times)| (device, united(times))).collect()
}

/// Unites times that overlap or touch; returns them sorted and disjoint.
pub fn united(mut times: Vec<Interval>) -> Vec<Interval> {
    order::sort_by_number(&mut times, |time| time.start_ns);
    let mut united: Vec<Interval> = Vec::with_capacity(times.len());
    for time in times {
        match united.last_mut() {
            Some(last) if time.start_ns <= last.end_ns => {
                last.end_ns = last.end_ns.max(time.end_ns);
            }
            _ => united.push(time),
        }
    }
    united
}

/// The part of a time in the windows of a session; all of it without any windows. Work that was
/// submitted in the session continues after its end.
pub fn time_in_windows(windows: &[(u64, u64)], time: Interval) -> u64 {
    let Some((last, others)) = windows.split_last() else { return time.ns() };
    let ends = others.iter().copied().chain([(last.0, u64::MAX)]);
    let parts =
        ends.map(|(start, end)| time.end_ns.min(end).saturating_sub(time.start_ns.max(start)));
    parts.fold(0, u64::saturating_add)
}

/// The time of a session, without pauses, until the end of its last operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionTime {
    /// The whole time.
    pub ns: u64,
    /// The part before the first and after the last activity.
    pub outside_ns: u64,
}

impl SessionTime {
    /// `None` for captures, which have no session.
    pub fn new(windows: &[(u64, u64)], active: Interval) -> Option<Self> {
        let (first, last) = (windows.first()?.0, windows.last()?.1);
        if last == u64::MAX {
            return None;
        }
        let whole = Interval { start_ns: first, end_ns: last.max(active.end_ns) };
        let before = Interval { end_ns: active.start_ns.clamp(first, whole.end_ns), ..whole };
        let after = Interval { start_ns: active.end_ns.clamp(first, whole.end_ns), ..whole };
        Some(Self {
            ns: time_in_windows(windows, whole),
            outside_ns: time_in_windows(windows, before) + time_in_windows(windows, after),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(start_ns: u64, end_ns: u64) -> Interval {
        Interval { start_ns, end_ns }
    }

    #[test]
    fn collectives_alone_are_communication_and_not_busy() {
        let mut sweep = DeviceSweep::default();
        assert_eq!(sweep.add(time(10, 20), false), None);
        assert_eq!(sweep.add(time(15, 40), true), None);
        assert_eq!(sweep.add(time(30, 35), false), None);
        assert_eq!(sweep.add(time(50, 60), true), Some(time(40, 50)));
        assert_eq!((sweep.busy_ns(), sweep.communication_ns(), sweep.idle_ns()), (15, 25, 10));
        assert_eq!((sweep.span(), sweep.gpu_ns()), (time(10, 60), 50));
    }

    #[test]
    fn empty_profile_is_neither_busy_nor_idle() {
        let sweep = DeviceSweep::default();
        assert_eq!((sweep.busy_ns(), sweep.communication_ns(), sweep.idle_ns()), (0, 0, 0));
    }

    #[test]
    fn times_that_overlap_or_touch_are_one() {
        let time = |(start_ns, end_ns)| Interval { start_ns, end_ns };
        let all = [(20, 30), (0, 5), (25, 27), (5, 6), (31, 32)].map(time);
        assert_eq!(united(all.to_vec()), [(0, 6), (20, 30), (31, 32)].map(time));
    }
}
