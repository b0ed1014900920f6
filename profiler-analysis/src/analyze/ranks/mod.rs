//! Several ranks: matched collectives, waits between ranks, and the cost of communication.
//!
//! A rank **arrives** at a collective when its kernel starts. **Skew** is the time from the first
//! arrival to the last. Until the last arrival the other ranks **wait**; from then to the last end
//! the collective **transfers**. All times are on one clock; with several hosts, [`Profile::hosts`]
//! states its error.
//!
//! ```no_run
//! use profiler_analysis::prelude::*;
//! # fn main() -> Result<(), profiler_analysis::Error> {
//! # let profile = profiler_core::Profile::load("run.gpuprof")?;
//! let ranks = profile.ranks();
//! println!("{ranks}");
//! if let Some(straggler) = ranks.stragglers.first() {
//!     println!("{} is late: {:?}", ranks.ranks[straggler.rank].name, straggler.cause);
//! }
//! # Ok(())
//! # }
//! ```

mod exposed;
#[cfg(test)]
pub(crate) mod tests;
mod text;
mod windows;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use profiler_base::statistics::{as_ns, ratio};
use rustc_hash::FxHashMap;
use serde::Serialize;

pub use crate::analyze::diagnosis::straggler::{LateCause, Straggler};
use crate::analyze::diagnosis::{Clock, Part, Stragglers, Thresholds, amdahl};
use crate::analyze::matches::{Match, Matches, Member, Participant};
use exposed::RangeCommunication;
use profiler_core::profile::{CollectiveFunction, Profile};
use profiler_core::tables::HostClock;
use profiler_core::tables::Interval;
pub use windows::RankWindow;

/// A rank: a process on a device.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Rank {
    /// The process, with its rank if known.
    pub name: String,
    /// The operating system's process id.
    pub process_id: u32,
    /// The rank that the launcher gave.
    pub rank: Option<u32>,
    /// The device's CUDA ordinal.
    pub device: u32,
    /// The time in which the device was observed.
    #[serde(rename = "clock_ns", serialize_with = "as_ns")]
    pub clock: Duration,
    /// The part in which copies, memsets, or kernels other than collectives ran.
    #[serde(rename = "busy_ns", serialize_with = "as_ns")]
    pub busy: Duration,
    /// The part in which only collectives ran: exposed communication.
    #[serde(rename = "communication_ns", serialize_with = "as_ns")]
    pub communication: Duration,
    /// The time in matched collectives before the last rank arrived.
    #[serde(rename = "waited_ns", serialize_with = "as_ns")]
    pub waited: Duration,
    /// The waits of other ranks added by this rank's last arrivals.
    #[serde(rename = "late_ns", serialize_with = "as_ns")]
    pub late: Duration,
    /// The number of matched collectives.
    pub collectives: u64,
    /// The number of collectives at which it arrived last.
    pub last: u64,
}

impl Rank {
    /// The part of the clock in which nothing ran.
    pub fn idle(&self) -> Duration {
        self.clock.saturating_sub(self.busy + self.communication)
    }
}

/// The matched collectives of one function, size and communicator.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CollectiveGroup {
    /// The function, by NCCL's name; for a kernel with several collectives, the function of one of
    /// them.
    pub function: &'static str,
    /// The communicator's hash.
    pub communicator: u64,
    /// The ranks whose kernels are known.
    pub ranks: usize,
    /// The bytes of one rank in one kernel.
    pub bytes: u64,
    /// Matched kernels.
    pub count: u64,
    /// The median time from the first arrival to the last.
    #[serde(rename = "skew_ns", serialize_with = "as_ns")]
    pub skew: Duration,
    /// The maximum time from the first arrival to the last.
    #[serde(rename = "max_skew_ns", serialize_with = "as_ns")]
    pub max_skew: Duration,
    /// The median time from the last arrival to the last end.
    #[serde(rename = "transfer_ns", serialize_with = "as_ns")]
    pub transfer: Duration,
    /// The waiting share of the kernels' time, from 0 to 1.
    pub wait_share: f64,
    /// Bytes over the median transfer time in GB/s: the algorithm bandwidth of nccl-tests.
    pub algorithm_bandwidth: Option<f64>,
    /// The algorithm bandwidth times nccl-tests' factor, in GB/s, comparable with the bandwidth of
    /// a link. `None` without the plugin.
    pub bus_bandwidth: Option<f64>,
    /// The bus bandwidth as a share of the GPU's NVLink bandwidth in one direction. Only known if
    /// all ranks are on one host and the GPU is a known model.
    pub link_share: Option<f64>,
}

/// Ranks of a communicator without recorded collectives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MissingRanks {
    /// The communicator's hash.
    pub communicator: u64,
    /// The missing ranks of the communicator, at most 64 of them.
    pub ranks: Vec<u32>,
    /// The number of missing ranks.
    pub count: u32,
    /// The number of ranks of the communicator.
    pub of: u32,
}

/// Speed-ups of the time from the first to the last collective, by Amdahl's law.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct SpeedUps {
    /// The upper bound if no communication were exposed: the rank that takes longest without it
    /// still takes the rest.
    pub(crate) communication: f64,
    /// The speed-up if all ranks arrived at their mean time: perfectly divided work.
    pub(crate) balance: f64,
    /// The speed-up if every last rank arrived with the second-latest.
    pub(crate) stragglers: f64,
}

/// The ranks of a run. `{}` prints a report. Made by
/// [`Profile::ranks`](crate::prelude::ProfileExt::ranks).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Ranks {
    /// Ranks in order; indices in stragglers refer to them.
    pub ranks: Vec<Rank>,
    /// Ranks that others repeatedly wait for, the latest first; at most one for each communicator.
    pub stragglers: Vec<Straggler>,
    /// The instances of the range of
    /// [`Profile::ranks_by_range`](crate::prelude::ProfileExt::ranks_by_range), in order; otherwise
    /// empty.
    pub windows: Vec<RankWindow>,
    /// Matched collectives, longest time first.
    pub collectives: Vec<CollectiveGroup>,
    /// Exposed and hidden communication by range, longest exposed first.
    pub(crate) ranges: Vec<RangeCommunication>,
    /// The clocks of several hosts: see [`Profile::hosts`].
    pub hosts: Vec<HostClock>,
    /// `None` without matched collectives.
    pub(crate) speed_ups: Option<SpeedUps>,
    /// Matched kernels.
    pub matched: u64,
    /// Collectives that no other process recorded, or whose kernel is unknown.
    pub unmatched: u64,
    /// Ranks without recorded collectives.
    pub missing: Vec<MissingRanks>,
    /// Processes without records of NCCL's plugin: their names, and the data they have instead.
    pub without_plugin: Vec<String>,
    /// Devices without operations, by CUDA ordinal.
    pub unused_devices: Vec<u32>,
}

/// The maximum number of missing ranks listed in a report.
const MOST_MISSING: usize = 64;

/// [`ProfileExt::ranks`](crate::prelude::ProfileExt::ranks).
pub(crate) fn of_profile(profile: &Profile) -> Ranks {
    ranks_and(profile, |_, _| Vec::new())
}

/// [`ProfileExt::ranks_by_range`](crate::prelude::ProfileExt::ranks_by_range).
pub(crate) fn by_range(profile: &Profile, path: &str) -> Option<Ranks> {
    let instances = windows::Instances::find(profile, path)?;
    Some(ranks_and(profile, |stragglers, matches| instances.windows(profile, stragglers, matches)))
}

fn ranks_and(
    profile: &Profile,
    windows: impl FnOnce(&Stragglers<'_>, &Matches) -> Vec<RankWindow>,
) -> Ranks {
    let matches = Matches::new(profile);
    let clock = Clock::new(profile, &Thresholds::new());
    let stragglers = Stragglers::new(profile, &clock, &matches.participants);
    let windows = windows(&stragglers, &matches);
    let all: Vec<&Match> = matches.all.iter().collect();
    let stragglers = stragglers.find(&all);
    let ranks = ranks(profile, &matches, &clock);
    let mut report = Ranks {
        speed_ups: speed_ups(&matches, &ranks),
        ranks,
        stragglers,
        windows,
        collectives: groups(profile, &matches),
        ranges: exposed::by_range(profile),
        hosts: profile.hosts().to_vec(),
        matched: matches.all.len() as u64,
        unmatched: matches.unmatched,
        missing: missing(profile),
        without_plugin: without_plugin(profile),
        unused_devices: unused_devices(profile),
    };
    report.sort();
    report
}

impl Ranks {
    /// The longest [busy time](Rank::busy) of a rank over the mean: 1 if compute is evenly divided.
    /// `None` without busy time.
    pub fn imbalance(&self) -> Option<f64> {
        let busy = || self.ranks.iter().map(|rank| rank.busy.as_secs_f64());
        let mean = busy().sum::<f64>() / self.ranks.len().max(1) as f64;
        (mean > 0.0).then(|| busy().fold(0.0, f64::max) / mean)
    }

    /// Sorts the ranks by the launcher's ranks, then by process and device.
    fn sort(&mut self) {
        let mut order: Vec<usize> = (0..self.ranks.len()).collect();
        let key = |rank: &Rank| (rank.rank.unwrap_or(u32::MAX), rank.process_id, rank.device);
        order.sort_by_key(|at| key(&self.ranks[*at]));
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, at)| places[*at] = place);
        self.ranks.sort_by_key(key);
        let of_windows = self.windows.iter_mut().flat_map(|window| &mut window.stragglers);
        let all = self.stragglers.iter_mut().chain(of_windows);
        all.for_each(|straggler| straggler.rank = places[straggler.rank]);
    }
}

fn ranks(profile: &Profile, matches: &Matches, clock: &Clock) -> Vec<Rank> {
    let mut times: FxHashMap<u32, [u64; 3]> = FxHashMap::default();
    for piece in &clock.pieces {
        let of_device = times.entry(piece.device).or_default();
        of_device[0] += piece.time.ns();
        match piece.part {
            Part::Communication => of_device[2] += piece.time.ns(),
            _ if !piece.is_idle => of_device[1] += piece.time.ns(),
            _ => {}
        }
    }
    let process_by_id = profile.processes_by_id();
    let rank = |participant: &Participant| {
        let process = process_by_id(participant.process);
        let [clock, busy, communication] =
            times.get(&participant.device).copied().unwrap_or_default().map(Duration::from_nanos);
        Rank {
            name: process.to_string(),
            process_id: participant.process,
            rank: process.rank(),
            device: participant.device,
            clock,
            busy,
            communication,
            waited: Duration::ZERO,
            late: Duration::ZERO,
            collectives: 0,
            last: 0,
        }
    };
    let mut ranks: Vec<Rank> = matches.participants.iter().map(rank).collect();
    for matched in &matches.all {
        for member in &matched.members {
            let rank = &mut ranks[member.participant];
            rank.collectives += 1;
            rank.waited += Duration::from_nanos(matched.wait_ns(member));
            let margin = matched.margin_ns(member);
            if margin > 0.0 {
                rank.last += 1;
                rank.late += Duration::from_nanos(margin as u64);
            }
        }
    }
    ranks
}

/// The span of the matched collectives.
fn span(matches: &Matches) -> Option<Interval> {
    let starts = matches.all.iter().map(|matched| matched.latest_ns - matched.skew_ns());
    let ends = matches.all.iter().map(|matched| matched.latest_ns + matched.transfer_ns());
    Some(Interval { start_ns: starts.min()?, end_ns: ends.max()? })
}

fn speed_ups(matches: &Matches, ranks: &[Rank]) -> Option<SpeedUps> {
    let span = span(matches)?.ns().max(1) as f64;
    let (mut balance, mut stragglers) = (0.0, 0.0);
    for matched in &matches.all {
        let count = matched.members.len() as f64;
        let waits = matched.members.iter().map(|member| member.added_wait_ns);
        balance += waits.sum::<u64>() as f64 / count;
        stragglers += matched.last_costs_ns() as f64;
    }
    // Communicators overlap, since each rank is in some of them.
    let per_rank = matches.all.iter().map(|matched| matched.members.len()).sum::<usize>() as f64
        / ranks.len().max(1) as f64
        / matches.all.len().max(1) as f64;
    let without = |ns: f64| amdahl(ns * per_rank / span, f64::INFINITY);
    let longest = |of: &dyn Fn(&Rank) -> Duration| ranks.iter().map(of).max().unwrap_or_default();
    let clock = longest(&|rank| rank.clock).as_secs_f64().max(f64::MIN_POSITIVE);
    let rest = longest(&|rank| rank.clock.saturating_sub(rank.communication)).as_secs_f64();
    Some(SpeedUps {
        communication: amdahl(1.0 - rest / clock, f64::INFINITY),
        balance: without(balance),
        stragglers: without(stragglers),
    })
}

fn groups(profile: &Profile, matches: &Matches) -> Vec<CollectiveGroup> {
    type Key = (u64, CollectiveFunction, u64);
    let mut groups: BTreeMap<Key, Vec<&Match>> = BTreeMap::new();
    for matched in &matches.all {
        let key = (matched.communicator, matched.function, matched.bytes);
        groups.entry(key).or_default().push(matched);
    }
    let link = link_bytes_per_s(profile);
    let group = |((communicator, function, bytes), all): (Key, Vec<&Match>)| {
        let sorted = |of: fn(&Match) -> u64| {
            let mut values: Vec<u64> = all.iter().map(|matched| of(matched)).collect();
            values.sort_unstable();
            values
        };
        let (skews, transfers) = (sorted(Match::skew_ns), sorted(Match::transfer_ns));
        let middle = |values: &[u64]| Duration::from_nanos(values[values.len() / 2]);
        let sum = |of: fn(&Match, &Member) -> u64| -> u64 {
            let members = |matched: &'_ &Match| -> u64 {
                matched.members.iter().map(|one| of(matched, one)).sum()
            };
            all.iter().map(members).sum()
        };
        let transfer = middle(&transfers);
        // One byte per nanosecond is 1 GB/s.
        let rate = |bytes: f64| {
            let ns = transfer.as_nanos() as f64;
            (ns > 0.0 && bytes > 0.0).then(|| bytes / ns)
        };
        let bus_bandwidth = all[0].bus_bytes.and_then(rate);
        CollectiveGroup {
            function: function.name(),
            communicator,
            ranks: all.iter().map(|matched| matched.members.len()).max().unwrap_or(0),
            bytes,
            count: all.len() as u64,
            skew: middle(&skews),
            max_skew: Duration::from_nanos(skews.last().copied().unwrap_or(0)),
            transfer,
            wait_share: ratio(sum(Match::wait_ns), sum(|_, member| member.time.ns())),
            algorithm_bandwidth: rate(all[0].total_bytes),
            bus_bandwidth,
            link_share: bus_bandwidth.zip(link).map(|(bus, link)| bus * 1e9 / link),
        }
    };
    let mut groups: Vec<CollectiveGroup> = groups.into_iter().map(group).collect();
    groups.sort_by_key(|group| {
        std::cmp::Reverse(u128::from(group.count) * group.transfer.as_nanos())
    });
    groups
}

/// The NVLink bandwidth of a GPU in one direction, if all devices are of one known model. It is
/// half of the bandwidth for both directions in NVIDIA's data sheets. Models with only PCIe or with
/// bridges, and the network between hosts, are unknown.
fn link_bytes_per_s(profile: &Profile) -> Option<f64> {
    if !profile.hosts().is_empty() {
        return None;
    }
    const LINKS: [(&str, f64); 6] = [
        ("NVIDIA H100 80GB HBM3", 450e9),
        ("NVIDIA H200", 450e9),
        ("NVIDIA A100-SXM4-40GB", 300e9),
        ("NVIDIA A100-SXM4-80GB", 300e9),
        ("NVIDIA B200", 900e9),
        ("Tesla V100-SXM2-32GB", 150e9),
    ];
    let devices = &profile.recording_info().devices;
    let name = devices.first()?.name.as_str();
    let is_uniform = devices.iter().all(|device| device.name == name);
    LINKS.into_iter().find(|(known, _)| is_uniform && *known == name).map(|(_, link)| link)
}

fn missing(profile: &Profile) -> Vec<MissingRanks> {
    let mut seen: BTreeMap<u64, (u32, BTreeSet<u32>)> = BTreeMap::new();
    for row in profile.collective_rows() {
        let Some((rank, ranks)) = row.rank.zip(row.ranks) else { continue };
        let communicator = seen.entry(row.communicator).or_default();
        communicator.0 = communicator.0.max(ranks);
        communicator.1.insert(rank);
    }
    let missing = seen.into_iter().map(|(communicator, (of, seen))| {
        let count = of.saturating_sub(seen.len() as u32);
        // A damaged number of ranks would take too long without a limit.
        let all = (0..of).filter(|rank| !seen.contains(rank)).take(MOST_MISSING);
        MissingRanks {
            communicator,
            ranks: if count == 0 { Vec::new() } else { all.collect() },
            count,
            of,
        }
    });
    missing.filter(|missing| missing.count != 0).collect()
}

/// Processes with collective kernels but without events of the plugin.
fn without_plugin(profile: &Profile) -> Vec<String> {
    let store = &profile.tables();
    let mut of_process: BTreeMap<u32, (u64, bool, u64)> = BTreeMap::new();
    for operation in &store.operations {
        if profile.collective_kernels().contains(operation.work) {
            of_process.entry(store.work(operation).process).or_default().0 += 1;
        }
    }
    for collective in profile.collectives() {
        let entry = of_process.entry(collective.process_id()).or_default();
        entry.1 |= collective.is_from_plugin();
        entry.2 += 1;
    }
    let process_by_id = profile.processes_by_id();
    let lacks = of_process.into_iter().filter(|(_, (kernels, has, _))| *kernels != 0 && !has);
    let described = lacks.map(|(process, (kernels, _, ranges))| {
        let name = process_by_id(process);
        match ranges {
            0 => format!("{name}: {kernels} kernels of collectives, no event of NCCL"),
            _ => format!("{name}: {ranges} collectives from NCCL's NVTX ranges, without ranks"),
        }
    });
    described.collect()
}

fn unused_devices(profile: &Profile) -> Vec<u32> {
    let used: BTreeSet<u32> = profile
        .tables()
        .operations
        .iter()
        .map(|operation| profile.tables().work(operation).place.device)
        .collect();
    let devices = profile.recording_info().devices.iter().map(|device| device.id);
    devices.filter(|device| !used.contains(device)).collect()
}
