//! Busy time, defined once: per device, with communication apart.
//!
//! A device is **busy** while a copy, a memset, or a kernel other than a collective runs on it.
//! **Communication** is the time in which collectives run and nothing else: a collective that waits
//! for another rank occupies its device without computing, and a record does not separate that wait
//! from the transfer. The rest is **idle**. Times of several devices are added or averaged, never
//! united: a union would hide an idle device behind a busy one.
//!
//! Which kernels are collectives is read from their names.

use rustc_hash::FxHashMap;

use crate::base::kernel_names;
use crate::join::tables::{Interval, NameId, Operation, Store, What, WorkId};

/// Patterns of collectives' kernel names in lower case, with the libraries that use them.
pub(crate) const COLLECTIVES: &[(&str, &str)] = &[
    ("nccl*kernel*", "NCCL"),
    ("*nvshmem*", "NVSHMEM"),
    ("*cross_device_reduce*", "vLLM, SGLang"),
    ("*allreduce*", "TensorRT-LLM, FlashInfer"),
    ("*all_reduce*", "PyTorch symmetric memory"),
    ("*all_gather*", "PyTorch symmetric memory"),
    ("*allgather*", "TensorRT-LLM, MSCCL++"),
    ("*reduce_scatter*", "PyTorch symmetric memory"),
    ("*reducescatter*", "TensorRT-LLM, MSCCL++"),
    ("*all_to_all*", "PyTorch symmetric memory"),
    ("deep_ep::*", "DeepEP"),
];

/// Which rows of [`Store::works`] are collectives. Costs microseconds for each kernel name.
#[derive(Debug)]
pub(crate) struct Collectives(Vec<bool>);

impl Collectives {
    pub(crate) fn of(store: &Store) -> Self {
        let is_named = |name: &str| {
            let (shown, _) = kernel_names::lower_case(name);
            COLLECTIVES.iter().any(|(pattern, _)| kernel_names::matches(pattern, &shown))
        };
        let mut known: FxHashMap<NameId, bool> = FxHashMap::default();
        let mut is_collective =
            |id: NameId| *known.entry(id).or_insert_with(|| is_named(store.names.get(id)));
        let rows = store.works.rows().iter().map(|work| match &work.what {
            // A capture of nsys may hold the matching name in either field.
            What::Kernel { names, .. } => {
                is_collective(names.name) || names.demangled.is_some_and(&mut is_collective)
            }
            _ => false,
        });
        Self(rows.collect())
    }

    #[inline]
    pub(crate) fn contains(&self, work: WorkId) -> bool {
        self.0.get(work.at()).copied().unwrap_or(false)
    }
}

/// Intervals in start order: their union and the gaps between them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sweep {
    pub(crate) first_ns: u64,
    /// The latest end so far.
    pub(crate) end_ns: u64,
    /// The length of the union.
    pub(crate) busy_ns: u64,
    /// The sum of all lengths.
    pub(crate) gpu_ns: u64,
}

impl Sweep {
    pub(crate) fn new(first: Interval) -> Self {
        // An end before the start is a damaged record.
        let end_ns = first.end_ns.max(first.start_ns);
        Self { first_ns: first.start_ns, end_ns, busy_ns: first.ns(), gpu_ns: first.ns() }
    }

    /// Adds the next interval in start order. Returns the gap before it.
    pub(crate) fn add(&mut self, time: Interval) -> Option<Interval> {
        let gap = Interval { start_ns: self.end_ns, end_ns: time.start_ns };
        self.busy_ns += time.end_ns.saturating_sub(time.start_ns.max(self.end_ns));
        self.gpu_ns = self.gpu_ns.saturating_add(time.ns());
        self.end_ns = self.end_ns.max(time.end_ns).max(time.start_ns);
        (gap.ns() != 0).then_some(gap)
    }
}

/// The operations of one device in start order.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeviceSweep {
    all: Option<Sweep>,
    /// Without collectives.
    work: Option<Sweep>,
}

impl DeviceSweep {
    /// Adds the next operation in start order. Returns the gap before it.
    pub(crate) fn add(&mut self, time: Interval, is_collective: bool) -> Option<Interval> {
        if !is_collective {
            next(&mut self.work, time);
        }
        next(&mut self.all, time)
    }

    /// The first start and the last end.
    pub(crate) fn span(&self) -> Interval {
        let span = |all: Sweep| Interval { start_ns: all.first_ns, end_ns: all.end_ns };
        self.all.map_or(Interval { start_ns: 0, end_ns: 0 }, span)
    }

    /// The sum of all lengths, overlaps counted repeatedly.
    pub(crate) fn gpu_ns(&self) -> u64 {
        self.all.map_or(0, |all| all.gpu_ns)
    }

    /// The time in which something other than a collective ran.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.work.map_or(0, |work| work.busy_ns)
    }

    /// The time in which only collectives ran.
    pub(crate) fn communication_ns(&self) -> u64 {
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

/// The time span of a run, which shares are relative to. Ranges and calls may begin long before the
/// session and end after it; that time does not count. Operations count until their end.
pub(crate) fn extent(store: &Store) -> Interval {
    let windows = &store.session.windows_ns;
    let first_ns = windows.first().map_or(0, |window| window.0);
    let last_ns = windows.last().map_or(u64::MAX, |window| window.1);
    let within = |time: Interval| Interval {
        start_ns: time.start_ns.clamp(first_ns, last_ns.max(first_ns)),
        end_ns: time.end_ns.clamp(first_ns, last_ns.max(first_ns)),
    };
    let operations = store.operations.iter().filter_map(Operation::time);
    let calls = store.calls.iter().map(|call| within(call.time));
    let ranges = store.ranges.iter().map(|range| within(range.time));
    let all = operations.chain(calls).chain(ranges);
    let (start, end_ns) = all.fold((u64::MAX, 0), |(start, end), time| {
        (start.min(time.start_ns), end.max(time.end_ns).max(time.start_ns))
    });
    Interval { start_ns: start.min(end_ns), end_ns }
}

/// The part of a time in the windows of a session; all of it without any. Work that was submitted in
/// the session goes on after its end.
pub(crate) fn within(windows: &[(u64, u64)], time: Interval) -> u64 {
    let Some((last, others)) = windows.split_last() else { return time.ns() };
    let ends = others.iter().copied().chain([(last.0, u64::MAX)]);
    let parts =
        ends.map(|(start, end)| time.end_ns.min(end).saturating_sub(time.start_ns.max(start)));
    parts.fold(0, u64::saturating_add)
}

/// The time of a session, without pauses, until the end of its last operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SessionTime {
    pub(crate) ns: u64,
    /// The part before the first and after the last activity.
    #[cfg_attr(not(feature = "analysis"), allow(dead_code))]
    pub(crate) outside_ns: u64,
}

impl SessionTime {
    /// `None` for captures, which have no session.
    pub(crate) fn of(windows: &[(u64, u64)], active: Interval) -> Option<Self> {
        let (first, last) = (windows.first()?.0, windows.last()?.1);
        if last == u64::MAX {
            return None;
        }
        let whole = Interval { start_ns: first, end_ns: last.max(active.end_ns) };
        let before = Interval { end_ns: active.start_ns.clamp(first, whole.end_ns), ..whole };
        let after = Interval { start_ns: active.end_ns.clamp(first, whole.end_ns), ..whole };
        Some(Self {
            ns: within(windows, whole),
            outside_ns: within(windows, before) + within(windows, after),
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
    fn nothing_is_neither_busy_nor_idle() {
        let sweep = DeviceSweep::default();
        assert_eq!((sweep.busy_ns(), sweep.communication_ns(), sweep.idle_ns()), (0, 0, 0));
    }
}
