//! Collectives of several ranks matched: by communicator, function and sequence number.

use std::collections::BTreeMap;

use profiler_base::distinct::Distinct;
use profiler_base::order;
use rustc_hash::{FxHashMap, FxHashSet};

use profiler_core::profile::CollectiveFunction;
use profiler_core::profile::Profile;
use profiler_core::tables::busy::united;
use profiler_core::tables::{CollectiveKey, CollectiveRow};
use profiler_core::tables::{Interval, OperationId, What};

/// A process on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Participant {
    pub(crate) process: u32,
    pub(crate) device: u32,
}

/// The kernel of one participant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    /// Index of [`Matches::participants`].
    pub(crate) participant: usize,
    /// Index of [`Profile::collective_rows`].
    pub(crate) row: usize,
    pub(crate) time: Interval,
    /// The part of its wait for the last arrival caused by delays since the communicator's previous
    /// collective.
    pub(crate) added_wait_ns: u64,
}

/// A collective with the kernels of at least two participants.
#[derive(Debug, Clone)]
pub(crate) struct Match {
    pub(crate) function: CollectiveFunction,
    pub(crate) communicator: u64,
    /// The bytes of one rank by NCCL; for a kernel with several collectives, their sum.
    pub(crate) bytes: u64,
    /// The bytes for nccl-tests' algorithm bandwidth, and the bytes times its factor for the bus
    /// bandwidth.
    pub(crate) total_bytes: f64,
    pub(crate) bus_bytes: Option<f64>,
    pub(crate) members: Vec<Member>,
    /// The latest arrival, and the second-latest.
    pub(crate) latest_ns: u64,
    pub(crate) second_ns: u64,
}

impl Match {
    /// The time from the first arrival to the last.
    pub(crate) fn skew_ns(&self) -> u64 {
        let first = self.members.iter().map(|member| member.time.start_ns).min();
        self.latest_ns.saturating_sub(first.unwrap_or(self.latest_ns))
    }

    /// The time that a member waits for the last one to arrive.
    pub(crate) fn wait_ns(&self, member: &Member) -> u64 {
        self.latest_ns.saturating_sub(member.time.start_ns).min(member.time.ns())
    }

    /// The transfer: from the last arrival to the last end.
    pub(crate) fn transfer_ns(&self) -> u64 {
        let end = self.members.iter().map(|member| member.time.end_ns).max();
        end.unwrap_or(0).saturating_sub(self.latest_ns)
    }

    /// The cost of the last arrival: the wait that the others would save if it arrived with the
    /// second-latest. In a step whose collectives overlap its backward pass, one delay makes all of
    /// them wait, and costs its own length.
    pub(crate) fn last_costs_ns(&self) -> u64 {
        // A kernel that ended earlier, such as a small send, did not wait.
        let waits = self.members.iter().map(|member| member.added_wait_ns);
        (self.latest_ns - self.second_ns).min(waits.max().unwrap_or(0))
    }

    /// The time by which a member arrives after all others, as far as it costs time; negative if
    /// another one arrives later.
    pub(crate) fn margin_ns(&self, member: &Member) -> f64 {
        match member.time.start_ns == self.latest_ns {
            true => self.last_costs_ns() as f64,
            false => -(member.added_wait_ns as f64),
        }
    }
}

/// The matched collectives of a profile.
#[derive(Debug, Default)]
pub(crate) struct Matches {
    pub(crate) participants: Vec<Participant>,
    /// By latest arrival. For a kernel that executes several collectives, one of them.
    pub(crate) all: Vec<Match>,
    /// Collectives that no other process recorded, or whose kernel is unknown.
    pub(crate) unmatched: u64,
}

impl Matches {
    /// Costs a sort of the collectives and a pass over operations; memory is proportional to both.
    pub(crate) fn new(profile: &Profile) -> Self {
        let rows = profile.collective_rows();
        let mut keyed: Vec<(CollectiveKey, usize)> =
            (0..).zip(rows).filter_map(|(at, row)| Some((row.key()?, at))).collect();
        order::sort_by_key(&mut keyed, |keyed| *keyed);
        let mut matches = Self::default();
        let sums = KernelSums::new(rows);
        let mut participants = Distinct::default();
        let mut kernels: FxHashSet<OperationId> = FxHashSet::default();
        let mut matched = 0;
        for group in keyed.chunk_by(|a, b| a.0 == b.0) {
            let mut members: Vec<Member> = Vec::with_capacity(group.len());
            for (_, at) in group {
                let Some(operation) = rows[*at].operation else { continue };
                let operation = profile.operation(operation);
                let Some(time) = operation.interval() else { continue };
                let (process, device) = (operation.process_id(), operation.device());
                let participant = participants.row(Participant { process, device }) as usize;
                // A repeated key means a communicator with the hash of an earlier one.
                if members.iter().all(|member| member.participant != participant) {
                    members.push(Member { participant, row: *at, time, added_wait_ns: 0 });
                }
            }
            if members.len() < 2 {
                continue;
            }
            matched += members.len();
            let first = rows[members[0].row].operation;
            if first.is_some_and(|kernel| kernels.insert(kernel)) {
                matches.all.push(sums.matched(group[0].0, members, rows));
            }
        }
        matches.participants = participants.into_values();
        matches.unmatched = (rows.len() - matched) as u64;
        order::sort_by_number(&mut matches.all, |matched| matched.latest_ns);
        matches.add_waits(&Covered::by_device(profile, |what| matches!(what, What::Kernel { .. })));
        matches
    }

    /// Finds the added part of each wait. `kernels` excludes collectives.
    ///
    /// A rank that waits while its kernels run is still ahead after the collective. It waits for
    /// the same delay again at the next one. The amount is unknown, because the waiting collective
    /// slows these kernels down. The upper bound is the wait without the part in which no kernel
    /// ran. Only a longer wait at the next collective is therefore another delay.
    fn add_waits(&mut self, kernels: &BTreeMap<u32, Covered>) {
        let mut before: FxHashMap<(u64, usize), Before> = FxHashMap::default();
        for matched in &mut self.all {
            let latest_ns = matched.latest_ns;
            for member in &mut matched.members {
                let Interval { start_ns, end_ns } = member.time;
                let wait = Interval { start_ns, end_ns: end_ns.min(latest_ns).max(start_ns) };
                let device = self.participants[member.participant].device;
                let hidden_ns = kernels.get(&device).map_or(0, |covered| covered.time_within(wait));
                let before = before.entry((matched.communicator, member.participant)).or_default();
                member.added_wait_ns = wait.ns().saturating_sub(before.ahead_ns);
                // Queued behind the previous collective, it starts with it in all ranks, even in
                // those ahead.
                let is_queued = start_ns <= before.end_ns.saturating_add(QUEUED_NS);
                let known_ns = if is_queued { before.ahead_ns } else { 0 };
                let exposed_ns = wait.ns().saturating_sub(hidden_ns);
                before.ahead_ns = wait.ns().max(known_ns).saturating_sub(exposed_ns);
                before.end_ns = end_ns;
            }
        }
    }
}

/// A member of a communicator after its last collective.
#[derive(Debug, Default)]
struct Before {
    end_ns: u64,
    /// The upper bound of its lead over the rank that arrived last.
    ahead_ns: u64,
}

/// The longest time from the end of a kernel to the start of the next one queued behind it.
const QUEUED_NS: u64 = 10_000;

/// Disjoint times in order, with the sum of those before each.
#[derive(Debug, Default)]
pub(crate) struct Covered {
    times: Vec<Interval>,
    before: Vec<u64>,
}

impl Covered {
    /// The times of these operations besides collectives, by device.
    pub(crate) fn by_device(
        profile: &Profile,
        are_meant: impl Fn(&What) -> bool,
    ) -> BTreeMap<u32, Self> {
        let store = &profile.tables();
        let kernels = profile.collective_kernels();
        let mut others: BTreeMap<u32, Vec<Interval>> = BTreeMap::new();
        for operation in &store.operations {
            let Some(time) = operation.time() else { continue };
            if !kernels.contains(operation.work) && are_meant(&store.work(operation).what) {
                others.entry(store.work(operation).place.device).or_default().push(time);
            }
        }
        others.into_iter().map(|(device, times)| (device, Self::new(times))).collect()
    }

    /// The union of these times.
    pub(crate) fn new(times: Vec<Interval>) -> Self {
        let times = united(times);
        let mut sum = 0;
        let before = times.iter().map(|time| {
            sum += time.ns();
            sum - time.ns()
        });
        Self { before: before.collect(), times }
    }

    /// The covered time before a moment.
    fn time_before(&self, ns: u64) -> u64 {
        let next = self.times.partition_point(|time| time.start_ns < ns);
        let Some(last) = next.checked_sub(1) else { return 0 };
        let time = self.times[last];
        self.before[last] + ns.min(time.end_ns).saturating_sub(time.start_ns)
    }

    /// The covered part of a time.
    pub(crate) fn time_within(&self, time: Interval) -> u64 {
        self.time_before(time.end_ns).saturating_sub(self.time_before(time.start_ns))
    }
}

/// The bytes of kernels that execute several collectives.
struct KernelSums(FxHashMap<OperationId, (u64, f64, Option<f64>)>);

impl KernelSums {
    fn new(rows: &[CollectiveRow]) -> Self {
        let mut sums: FxHashMap<OperationId, (u64, f64, Option<f64>)> = FxHashMap::default();
        for row in rows {
            let Some(operation) = row.operation else { continue };
            let sum = sums.entry(operation).or_insert((0, 0.0, Some(0.0)));
            // Both directions of a link are used at once.
            let is_counted = row.function != CollectiveFunction::Recv || row.in_kernel == 1;
            let bytes = row.bytes.unwrap_or(0) * u64::from(is_counted);
            let ranks = row.ranks.unwrap_or(1);
            let total = row.function.total_bytes(bytes, ranks) as f64;
            let bus = row.ranks.and_then(|ranks| row.function.bus_factor(ranks));
            sum.0 = sum.0.saturating_add(bytes);
            sum.1 += total;
            sum.2 = sum.2.zip(bus).map(|(sum, factor)| sum + total * factor);
        }
        Self(sums)
    }

    fn matched(&self, key: CollectiveKey, members: Vec<Member>, rows: &[CollectiveRow]) -> Match {
        let kernel = rows[members[0].row].operation;
        let sum = kernel.and_then(|kernel| self.0.get(&kernel)).copied();
        let (bytes, total_bytes, bus_bytes) = sum.unwrap_or_default();
        let (mut latest_ns, mut second_ns) = (0, 0);
        for Member { time, .. } in &members {
            match time.start_ns {
                start if start >= latest_ns => (latest_ns, second_ns) = (start, latest_ns),
                start => second_ns = second_ns.max(start),
            }
        }
        Match {
            function: key.function,
            communicator: key.communicator,
            bytes,
            total_bytes,
            bus_bytes,
            members,
            latest_ns,
            second_ns,
        }
    }
}
