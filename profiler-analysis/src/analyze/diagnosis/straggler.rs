//! The rank that the others wait for, and the cause of its lateness.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use profiler_base::kernel_names;
use profiler_base::statistics::{as_ns, median_and_deviation, median_of};
use profiler_base::text::shortened;
use profiler_base::units::{NAME_WIDTH, PATH_WIDTH};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::clock::{Clock, Part};
use crate::analyze::matches::{Match, Participant};
use profiler_core::profile::{DeviceClocks, Profile};
use profiler_core::tables::range_tree::NodeId;
use profiler_core::tables::{Interval, NameId, What};

/// The fewest collectives of a communicator to judge.
const LEAST_COLLECTIVES: usize = 16;
/// The maximum number of blocks of consecutive collectives whose lateness is compared.
const BLOCKS: usize = 32;
/// The minimum lateness of a straggler, as a share of a block's time.
const LEAST_SHARE: f64 = 0.025;
/// The minimum lateness of a straggler, in standard deviations of its lateness.
const LEAST_DEVIATIONS: f64 = 1.25;
/// From median absolute to standard deviation, for normal values.
const DEVIATION: f64 = 1.4826;
/// The minimum share of the lateness that a cause must explain.
const LEAST_EXPLAINED: f64 = 0.4;
/// The minimum factor of calls for an extra kernel.
const EXTRA: f64 = 1.02;
/// The maximum factor of a clock that explains longer kernels.
const SLOWER_CLOCK: f64 = 0.98;

/// The cause of a rank's lateness.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "cause")]
#[non_exhaustive]
pub enum LateCause {
    /// Its host loads data, in this range, while its GPU is idle.
    Data {
        /// The path of the range.
        range: Option<String>,
    },
    /// Its GPU is idle for its host, in this range.
    HostGap {
        /// The path of the range.
        range: Option<String>,
    },
    /// It runs a kernel more often than the other ranks.
    ExtraKernel {
        /// The demangled name.
        kernel: String,
        /// The number of additional calls.
        calls: u64,
    },
    /// A kernel takes longer than in other ranks.
    LongerKernel {
        /// The demangled name.
        kernel: String,
    },
    /// Kernels take longer since its GPU's clock is lower.
    SlowerClock {
        /// The device's CUDA ordinal.
        device: u32,
        /// The reason for the lower clock, if sampled.
        by: Option<&'static str>,
    },
    /// Copies take longer, or there are more of them.
    Copies,
    /// No part of its time is longer by as much as the rank is late.
    Unknown,
}

impl fmt::Display for LateCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = |range: &Option<String>| match range {
            Some(path) => format!(" in {}", shortened(path, PATH_WIDTH)),
            None => " outside any range".to_owned(),
        };
        match self {
            Self::Data { range: of } => write!(f, "its GPU waits for data{}", range(of)),
            Self::HostGap { range: of } => write!(f, "its GPU is idle for the host{}", range(of)),
            Self::ExtraKernel { kernel, calls } => {
                write!(f, "it runs {} {calls} times more", shortened(kernel, NAME_WIDTH))
            }
            Self::LongerKernel { kernel } => {
                write!(f, "its kernels take longer, {} most of all", shortened(kernel, NAME_WIDTH))
            }
            Self::SlowerClock { device, by } => {
                write!(f, "the clock of GPU {device} is lower")?;
                by.map_or(Ok(()), |by| write!(f, ": {by}"))
            }
            Self::Copies => f.write_str("its copies take longer"),
            Self::Unknown => f.write_str("no part of its time is longer by as much"),
        }
    }
}

/// A rank that is repeatedly later than all others.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Straggler {
    /// Index in [`Ranks::ranks`](crate::ranks::Ranks::ranks).
    pub rank: usize,
    /// The communicator's hash.
    pub communicator: u64,
    /// The wait that the others would save if it arrived with the second-latest rank.
    #[serde(rename = "late_ns", serialize_with = "as_ns")]
    pub late: Duration,
    /// `late` as a share of the time from the first to the last collective, from 0 to 1.
    pub share: f64,
    /// `late` in standard deviations of the rank's lateness.
    pub deviations: f64,
    /// The cause of the lateness.
    #[serde(flatten)]
    pub cause: LateCause,
}

/// A straggler before its cause is known.
struct Late {
    participant: usize,
    communicator: u64,
    members: Vec<usize>,
    late_ns: f64,
    span: Interval,
    deviations: f64,
}

/// Finds stragglers of a whole run or of its parts.
pub(crate) struct Stragglers<'a> {
    profile: &'a Profile,
    clock: &'a Clock,
    participants: &'a [Participant],
    device_clocks: OnceCell<Vec<DeviceClocks>>,
}

impl<'a> Stragglers<'a> {
    pub(crate) fn new(
        profile: &'a Profile,
        clock: &'a Clock,
        participants: &'a [Participant],
    ) -> Self {
        Self { profile, clock, participants, device_clocks: OnceCell::new() }
    }

    /// The straggler of each communicator that has one, the latest first, with the index of its
    /// participant as its rank. `matches` must be sorted by latest arrival. Costs a pass over them,
    /// and for each communicator with a straggler a pass over the operations in its time.
    pub(crate) fn find(&self, matches: &[&Match]) -> Vec<Straggler> {
        late(matches).into_iter().map(|late| self.explained(late)).collect()
    }
}

fn late(matches: &[&Match]) -> Vec<Late> {
    let mut communicators: FxHashMap<u64, Vec<&Match>> = FxHashMap::default();
    for matched in matches {
        communicators.entry(matched.communicator).or_default().push(matched);
    }
    let mut late: Vec<Late> = communicators
        .into_iter()
        .filter_map(|(communicator, all)| late_of(communicator, &all))
        .collect();
    late.sort_by(|a, b| b.late_ns.total_cmp(&a.late_ns));
    late
}

/// Lateness is summed over blocks of consecutive collectives: a step has several, and a delay
/// affects only one.
fn late_of(communicator: u64, all: &[&Match]) -> Option<Late> {
    if all.len() < LEAST_COLLECTIVES {
        return None;
    }
    let blocks = all.len().min(BLOCKS);
    let mut margins: FxHashMap<usize, Vec<f64>> = FxHashMap::default();
    let mut late: FxHashMap<usize, f64> = FxHashMap::default();
    for (at, matched) in all.iter().enumerate() {
        let block = at * blocks / all.len();
        for member in &matched.members {
            let margin = matched.margin_ns(member);
            let sums = margins.entry(member.participant).or_insert_with(|| vec![0.0; blocks]);
            sums[block] += margin;
            *late.entry(member.participant).or_default() += margin.max(0.0);
        }
    }
    let first = all.first()?;
    let start_ns = first.latest_ns - first.skew_ns();
    let span = Interval { start_ns, end_ns: all.last()?.latest_ns };
    let least = LEAST_SHARE * span.ns() as f64 / blocks as f64;
    let mut members: Vec<usize> = margins.keys().copied().collect();
    members.sort_unstable();
    let found = members.iter().filter_map(|participant| {
        let (middle, deviation) = median_and_deviation(&margins[participant])?;
        let deviation = DEVIATION * deviation;
        let is_late = middle >= least && middle >= LEAST_DEVIATIONS * deviation;
        is_late.then(|| (*participant, middle, middle / deviation.max(1.0)))
    });
    let (participant, _, deviations) = found.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let late_ns = late.get(&participant).copied().unwrap_or(0.0);
    Some(Late { participant, communicator, members, late_ns, span, deviations })
}

impl Stragglers<'_> {
    /// Finds the cause of a rank's lateness: the part of its clock that is longer than in the other
    /// ranks.
    fn explained(&self, late: Late) -> Straggler {
        let profile = self.profile;
        let own = self.participants[late.participant].device;
        let devices = late.members.iter().map(|at| self.participants[*at].device);
        let devices: BTreeSet<u32> = devices.collect();
        let pieces = self.clock.clipped(&[late.span], &devices);
        let devices: Vec<u32> = devices.into_iter().collect();
        let counted = pieces.iter().filter(|piece| piece.part != Part::Communication);
        let times = counted.map(|piece| (piece.device, piece.part, piece.time.ns()));
        let kernels = Kernels::new(profile, own, &devices, late.span);
        let parts = Excess::new(own, &devices, times);
        // Kernels beside a waiting collective are slower in the other ranks, which may hide a
        // longer kernel in this rank.
        let longest = kernels.times.largest().map(|(_, excess)| (Part::Kernels, excess));
        let (part, excess) = parts
            .excesses()
            .chain(longest)
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap_or((Part::Unknown, 0.0));
        let cause = match part {
            _ if excess < LEAST_EXPLAINED * late.late_ns => LateCause::Unknown,
            Part::Kernels => self.longer_kernel(own, &devices, &kernels),
            Part::Copies => LateCause::Copies,
            Part::Unknown => LateCause::Unknown,
            _ => {
                let of_part = pieces.iter().filter(|piece| piece.part == part);
                let nodes = of_part.map(|piece| {
                    let node =
                        piece.range.get().map(|range| profile.range_tree().of_range[range.at()]);
                    (piece.device, node, piece.time.ns())
                });
                let nodes = Excess::new(own, &devices, nodes);
                let node: Option<NodeId> = nodes.largest().and_then(|(node, _)| node);
                let range = node.map(|id| profile.node(id).cut_path());
                match part {
                    Part::Loading => LateCause::Data { range },
                    _ => LateCause::HostGap { range },
                }
            }
        };
        Straggler {
            rank: late.participant,
            communicator: late.communicator,
            late: Duration::from_nanos(late.late_ns as u64),
            share: late.late_ns / late.span.ns().max(1) as f64,
            deviations: late.deviations,
            cause,
        }
    }
}

/// Kernels besides collectives, by name.
struct Kernels {
    times: Excess<NameId>,
    calls: Excess<NameId>,
}

impl Kernels {
    fn new(profile: &Profile, own: u32, devices: &[u32], span: Interval) -> Self {
        // The kernel of a late rank before the first collective may reach into the span.
        let operations = &profile.tables().operations;
        let first = operations.partition_point(|operation| operation.start_ns() < span.start_ns);
        let end = operations.partition_point(|operation| operation.start_ns() < span.end_ns);
        let kernels = || {
            operations[first..end.max(first)].iter().filter_map(|operation| {
                let work = profile.tables().work(operation);
                let What::Kernel { names, .. } = &work.what else { return None };
                let time = operation.time()?;
                let is_collective = profile.collective_kernels().contains(operation.work);
                let ns = time.end_ns.min(span.end_ns).saturating_sub(time.start_ns);
                (!is_collective).then_some((work.place.device, names.name, ns))
            })
        };
        let each = kernels().map(|(device, name, _)| (device, name, 1));
        Self { times: Excess::new(own, devices, kernels()), calls: Excess::new(own, devices, each) }
    }
}

/// Times by device and key.
struct Excess<K> {
    own: usize,
    devices: usize,
    sums: FxHashMap<K, Vec<u64>>,
}

impl<K: Copy + Eq + std::hash::Hash> Excess<K> {
    fn new(own: u32, devices: &[u32], times: impl Iterator<Item = (u32, K, u64)>) -> Self {
        let place = |device| devices.binary_search(&device).ok();
        let mut sums: FxHashMap<K, Vec<u64>> = FxHashMap::default();
        for (device, key, ns) in times {
            let Some(at) = place(device) else { continue };
            sums.entry(key).or_insert_with(|| vec![0; devices.len()])[at] += ns;
        }
        Self { own: place(own).unwrap_or(0), devices: devices.len(), sums }
    }

    /// The excess of the own device over the median of the others.
    fn excess(&self, of: &[u64]) -> f64 {
        let others = (0..self.devices).filter(|at| *at != self.own);
        of[self.own] as f64 - median_of(others.map(|at| of[at] as f64)).unwrap_or(0.0)
    }

    fn excesses(&self) -> impl Iterator<Item = (K, f64)> {
        self.sums.iter().map(|(key, of)| (*key, self.excess(of)))
    }

    fn largest(&self) -> Option<(K, f64)> {
        self.excesses().max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

impl Stragglers<'_> {
    /// Returns the kernel whose time exceeds that in the other ranks most, or the clock that makes
    /// all kernels longer.
    fn longer_kernel(&self, own: u32, devices: &[u32], kernels: &Kernels) -> LateCause {
        let Kernels { times, calls } = kernels;
        let Some((name, _)) = times.largest() else { return LateCause::Unknown };
        let kernel = kernel_names::displayed(self.profile.tables().names.get(name), None);
        let more = calls.sums.get(&name).map_or(0.0, |of| calls.excess(of));
        let own_calls = calls.sums.get(&name).map_or(0, |of| of[calls.own]) as f64;
        if own_calls > EXTRA * (own_calls - more) {
            return LateCause::ExtraKernel { kernel, calls: more as u64 };
        }
        self.slower_clock(own, devices).unwrap_or(LateCause::LongerKernel { kernel })
    }

    fn slower_clock(&self, own: u32, devices: &[u32]) -> Option<LateCause> {
        let clocks = self.device_clocks.get_or_init(|| self.profile.device_clocks());
        let of = |device: u32| clocks.iter().find(|clocks| clocks.device == device);
        let others = devices.iter().filter(|device| **device != own);
        let usual = median_of(others.filter_map(|device| of(*device)?.sm_hz));
        let own_clocks = of(own)?;
        let is_slower = own_clocks.sm_hz? < SLOWER_CLOCK * usual?;
        let by = own_clocks.slowed_by().next().map(|(by, _)| by);
        is_slower.then_some(LateCause::SlowerClock { device: own, by })
    }
}
