//! Verdicts on scopes, and reasons for their absence.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

use cupti::CallClass;
use profiler_base::statistics::{Statistics, as_ns, ratio};
use profiler_base::units::{NAME_WIDTH, PATH_WIDTH, shortened, time};
use rustc_hash::FxHashSet;
use serde::{Serialize, Serializer};

use super::bottleneck::{Bottleneck, INDEPENDENT_COLLECTIVES};
use super::clock::{Part, Piece, Sums, gaps, loading_names, reach};
use super::estimate::{DeviceClocks, device_list, faster};
use super::evidence::Evidence;
use super::sign::{Sign, SignUnit, first_decides};
use super::{Run, nanoseconds};
use profiler_core::profile::{GpuOperation, OperationKind};
use profiler_core::query::Query;
use profiler_core::tables::OperationId;

/// A cause that takes a share of the clock, with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Cause {
    /// The kind.
    pub bottleneck: Bottleneck,
    /// Its time on the clock.
    #[serde(rename = "cost_ns", serialize_with = "as_ns")]
    pub cost: Duration,
    /// `cost` as a share of the clock, from 0 to 1.
    pub share: f64,
    /// The share of the wall time that may vanish, as [`Finding::reach`](super::Finding::reach).
    /// For compute, the share on the GPU with most compute.
    pub reach: f64,
    /// Estimated speed-up of the whole by Amdahl's law, as
    /// [`Finding::estimate`](super::Finding::estimate).
    #[serde(serialize_with = "finite")]
    pub estimate: f64,
    /// True if no change of this kind saves more, as
    /// [`Finding::is_bound`](super::Finding::is_bound).
    pub is_bound: bool,
    /// The assumption of the estimate.
    pub assumption: &'static str,
    /// The numbers for or against the cause.
    pub(crate) signs: Vec<Sign>,
    /// The supporting moments.
    pub evidence: Evidence,
    /// The range names that made time count as data loading, longest time first. No other data
    /// separates it from other host time. Empty for other causes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decided_by_names: Vec<String>,
    /// The advice.
    pub remedy: &'static str,
}

/// Writes infinity as `null`, since JSON has none.
pub(crate) fn finite<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    value.is_finite().then_some(*value).serialize(serializer)
}

/// Records without a call, and calls without a record or open at the stop: few enough to judge.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Unmatched {
    /// Their share of all records and calls, from 0 to 1.
    pub(crate) share: f64,
    /// Time of operations without a call. The clock contains it; the gap before it has no known
    /// cause.
    #[serde(rename = "time_ns", serialize_with = "as_ns")]
    pub(crate) time: Duration,
    /// Calls without a record. The time of their operations is unknown and appears as idle GPU
    /// time.
    pub(crate) missing: u64,
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (percent, time, missing) = (100.0 * self.share, time(self.time), self.missing);
        write!(
            f,
            "{percent:.2} % of the records and calls are unmatched: operations without a call ran for {time}, {missing} calls have no record"
        )
    }
}

/// Reasons for a missing verdict.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "why")]
#[non_exhaustive]
pub enum Inconclusive {
    /// Fewer operations than [`Thresholds::least_operations`](super::Thresholds::least_operations).
    TooFewOperations {
        /// Number of operations.
        operations: u64,
        /// The required number.
        least: u64,
    },
    /// The profiler's own time may be more than
    /// [`Thresholds::most_overhead`](super::Thresholds::most_overhead) of the clock.
    TooMuchOverhead {
        /// The share, from 0 to 1.
        share: f64,
        /// The maximum share.
        most: f64,
    },
    /// Records are missing, beyond a few unmatched ones: see
    /// [`Health`](profiler_core::Health).
    Incomplete,
    /// Collectives alone have the largest share besides work.
    /// [`Profile::ranks`](crate::prelude::ProfileExt::ranks) separates the wait for another rank
    /// from the transfer, if the profile has all ranks.
    Collectives {
        /// Their share of the clock.
        share: f64,
    },
    /// One CUDA ordinal refers to several GPUs of different processes, whose times cannot be
    /// separated.
    SharedOrdinal {
        /// The ordinal.
        device: u32,
    },
    /// No cause takes enough of the clock.
    NoSingleCause {
        /// The largest share.
        largest: f64,
        /// The required share.
        least: f64,
    },
}

impl Inconclusive {
    /// True if the evidence is too weak for any statement.
    pub(crate) fn is_without_verdict(self) -> bool {
        !matches!(self, Self::NoSingleCause { .. } | Self::Collectives { .. })
    }
}

impl fmt::Display for Inconclusive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewOperations { operations, least } => {
                write!(f, "{operations} operations are too few, {least} are required")
            }
            Self::TooMuchOverhead { share, most } => write!(
                f,
                "recording may have taken {:.0} % of the time, more than {:.0} %: record fewer kinds, or longer work",
                100.0 * share,
                100.0 * most
            ),
            Self::Incomplete => f.write_str(
                "records are missing, which looks like an idle GPU; the health line names them",
            ),
            Self::Collectives { share } => write!(
                f,
                "collectives alone take {:.1} % of the time: waits for other ranks and transfers are distinguished \
                 if all ranks are recorded (`gpuprof ranks`)",
                100.0 * share
            ),
            Self::SharedOrdinal { device } => write!(
                f,
                "device {device} is another GPU in other processes: their times cannot be separated"
            ),
            Self::NoSingleCause { largest, least } => write!(
                f,
                "no single cause: the largest takes {:.1} % of the time, {:.1} % are required",
                100.0 * largest,
                100.0 * least
            ),
        }
    }
}

/// A part of the clock and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct PartTime {
    /// The part.
    pub(crate) part: Part,
    /// Its time.
    #[serde(rename = "time_ns", serialize_with = "as_ns")]
    pub(crate) time: Duration,
}

/// The verdict on a scope.
///
/// The clock is wall time from the start of the scope to its end or the end of its last operation,
/// summed over instances. Every device with operations of the scope has this clock. Times and
/// shares are means over these devices, so a busy GPU does not hide an idle one. Estimates refer to
/// wall time and are limited by the busiest GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    /// The path of the range; `None` for a phase and the whole run.
    pub path: Option<String>,
    /// The name of the steady phase; `None` for ranges and the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Number of instances.
    pub instances: u64,
    /// Operations submitted in it.
    pub operations: u64,
    /// The time that all shares refer to.
    #[serde(rename = "clock_ns", serialize_with = "as_ns")]
    pub clock: Duration,
    /// Number of devices, without unused ones.
    pub devices: u64,
    /// Unused devices: they have operations of the scope, but ran for less than
    /// [`Thresholds::unused_share`](super::Thresholds::unused_share) of the busiest one's time.
    /// Times and shares exclude them.
    pub unused_devices: Vec<u32>,
    /// The parts of the clock; their times add up to it.
    pub(crate) parts: Vec<PartTime>,
    /// The bottleneck.
    pub bottleneck: Option<Bottleneck>,
    /// The reason for a missing bottleneck.
    pub inconclusive: Option<Inconclusive>,
    /// Unmatched records and calls of the profile, if any.
    pub(crate) unmatched: Option<Unmatched>,
    /// Causes with at least [`Thresholds::cause_share`](super::Thresholds::cause_share) of the
    /// clock: the verdict first, then by cost. Empty without enough evidence.
    pub causes: Vec<Cause>,
}

impl Verdict {
    /// The name of the scope, for display.
    pub(crate) fn subject(&self) -> String {
        match (&self.path, &self.phase) {
            (Some(path), _) => shortened(path, PATH_WIDTH),
            (None, Some(phase)) => format!("the steady phase of {}", shortened(phase, PATH_WIDTH)),
            (None, None) => "the run".to_owned(),
        }
    }

    /// The cause in one line, or the reason for its absence.
    pub fn line(&self) -> String {
        let subject = self.subject();
        match (self.cause(), self.inconclusive) {
            (Some(cause), _) => format!("{subject} is {cause}"),
            (None, Some(why)) => format!("{subject}: no verdict: {why}"),
            (None, None) => format!("{subject}: no verdict"),
        }
    }

    /// The cause of the verdict.
    pub fn cause(&self) -> Option<&Cause> {
        self.causes.first().filter(|cause| Some(cause.bottleneck) == self.bottleneck)
    }

    /// The listed cause of this kind.
    pub fn cause_of(&self, bottleneck: Bottleneck) -> Option<&Cause> {
        self.causes.iter().find(|cause| cause.bottleneck == bottleneck)
    }

    /// The time of a part.
    pub fn time_of(&self, part: Part) -> Duration {
        let time = self.parts.iter().find(|time| time.part == part);
        time.map_or(Duration::ZERO, |time| time.time)
    }
}

/// A scope to judge.
pub(super) struct Scope<'a> {
    pub(super) path: Option<String>,
    pub(super) phase: Option<String>,
    pub(super) instances: u64,
    pub(super) pieces: Cow<'a, [Piece]>,
    /// Its operations.
    pub(super) query: Query<'a>,
    /// Calls in it that blocked the host.
    pub(super) waits: u64,
}

/// Numbers on the operations of a scope, for signs.
struct Numbers {
    operations: u64,
    launches: u64,
    copies: u64,
    copy_bytes: f64,
    pageable_bytes: f64,
    small_copies: u64,
    median_copy: f64,
    copy_ns: u64,
    /// Time of large copies without concurrent kernels and without the host's time in their calls.
    exposed_ns: u64,
}

impl Numbers {
    fn new(run: &Run<'_>, query: &Query<'_>, pieces: &[Piece]) -> Self {
        let mut launches = 0;
        query.clone().kernels().each_launch(|_| launches += 1);
        let small = run.thresholds.get_small_copy_bytes();
        let mut sizes = Vec::new();
        let (mut pageable, mut copy_ns) = (0_u64, 0_u64);
        let mut operations = 0;
        for operation in query.iter() {
            operations += 1;
            let Some(copy) = operation.as_copy() else { continue };
            sizes.push(copy.bytes());
            copy_ns = copy_ns.saturating_add(operation.interval().map_or(0, |time| time.ns()));
            let sides = [copy.source(), copy.destination()];
            if sides.contains(&cupti::MemoryKind::PAGEABLE) {
                pageable = pageable.saturating_add(copy.bytes());
            }
        }
        sizes.sort_unstable();
        Self {
            operations,
            launches,
            copies: sizes.len() as u64,
            copy_bytes: sizes.iter().map(|bytes| *bytes as f64).sum(),
            pageable_bytes: pageable as f64,
            small_copies: sizes.partition_point(|bytes| *bytes <= small) as u64,
            median_copy: sizes.get(sizes.len() / 2).map_or(0.0, |bytes| *bytes as f64),
            copy_ns,
            exposed_ns: pieces
                .iter()
                .filter(|piece| piece.part == Part::Copies && !piece.is_idle)
                .fold(0, |sum, piece| sum.saturating_add(piece.time.ns())),
        }
    }
}

/// The median times of the kernels of a query, and of the calls that launch them.
fn median_kernel_and_launch(query: &Query<'_>) -> (Duration, Duration) {
    let (mut kernels, mut calls) = (Vec::new(), Vec::new());
    query.clone().kernels().each_launch(|launch| {
        kernels.push(nanoseconds(launch.gpu_time()));
        calls.extend(launch.api_time().map(nanoseconds));
    });
    (Statistics::from_nanos(kernels).median(), Statistics::from_nanos(calls).median())
}

/// True for a copy whose call returns after the copy.
fn blocks_host(operation: &GpuOperation<'_>) -> bool {
    let class = operation.call().map(|call| call.class());
    let copy = operation.as_copy();
    class == Some(CallClass::Memcpy)
        && copy.is_some_and(|copy| copy.destination() == cupti::MemoryKind::PAGEABLE)
}

/// The minimum share of GPU work for a GPU-bound verdict: more than all other parts together.
const HAS_WORK: f64 = 0.5;

impl Run<'_> {
    pub(super) fn judge(&self, mut scope: Scope<'_>) -> Verdict {
        let unused_devices =
            DeviceClocks::new(&scope.pieces).unused(self.thresholds.get_unused_share());
        if !unused_devices.is_empty() {
            scope.pieces.to_mut().retain(|piece| !unused_devices.contains(&piece.device));
        }
        let clocks = DeviceClocks::new(&scope.pieces);
        let sums = Sums::from_pieces(scope.pieces.iter());
        let total_ns = sums.total();
        let devices = scope.pieces.chunk_by(|a, b| a.device == b.device).count().max(1) as u64;
        let clock_ns = total_ns / devices;
        let numbers = Numbers::new(self, &scope.query, &scope.pieces);
        let thresholds = self.thresholds;
        let share = |bottleneck: Bottleneck| ratio(bottleneck.ns(&sums), total_ns);
        let gaps = gaps(&scope.pieces);
        let pieces = |bottleneck: Bottleneck| {
            let parts = bottleneck.parts();
            scope.pieces.iter().filter(move |piece| parts.contains(&piece.part))
        };
        let estimate = |bottleneck: Bottleneck| match bottleneck {
            Bottleneck::GpuCompute => clocks.with_half_the_compute(),
            _ => {
                let reach = reach(pieces(bottleneck).map(|piece| (piece, 1.0)), &gaps);
                clocks.without(reach / total_ns.max(1) as f64, pieces(bottleneck))
            }
        };

        let largest_share = |bottleneck: Bottleneck| match bottleneck {
            Bottleneck::GpuCompute => clocks.compute_share(),
            _ => share(bottleneck),
        };
        let mut causes: Vec<Bottleneck> = Bottleneck::ALL
            .into_iter()
            .filter(|b| largest_share(*b) >= thresholds.get_cause_share() && share(*b) > 0.0)
            .collect();
        causes.sort_by_key(|bottleneck| Reverse(bottleneck.ns(&sums)));
        // With several GPUs, a large mean cost may be a small cost on the busiest one.
        let is_decisive = |b: &Bottleneck| {
            let least = thresholds.get_verdict_share();
            *b != Bottleneck::GpuCompute && share(*b) >= least && estimate(*b).reaches(least)
        };
        let has_work = clocks.compute_share() >= HAS_WORK;
        let decided = causes.iter().copied().find(is_decisive);
        let decided = decided.or(has_work.then_some(Bottleneck::GpuCompute));
        causes.sort_by_key(|bottleneck| Some(*bottleneck) != decided);

        let overhead = self.overhead_ns(&scope.query, scope.waits, numbers.operations);
        let unmatched = *self.known.unmatched.get_or_init(|| self.unmatched());
        let overhead = ratio(overhead, clock_ns);
        let reached = |bottleneck| share(bottleneck).min(estimate(bottleneck).reach);
        let inconclusive = self.inconclusive(numbers.operations, overhead, decided, &reached);
        if inconclusive.is_some_and(Inconclusive::is_without_verdict) {
            causes.clear();
        }
        let cause = |bottleneck: Bottleneck| {
            let ns = bottleneck.ns(&sums);
            let estimate = estimate(bottleneck);
            Cause {
                bottleneck,
                cost: Duration::from_nanos(ns / devices),
                share: ratio(ns, total_ns),
                reach: estimate.reach,
                estimate: estimate.speed_up,
                is_bound: estimate.is_bound,
                assumption: bottleneck.assumption(),
                signs: first_decides(self.signs(bottleneck, &scope, &sums, &numbers, &clocks)),
                decided_by_names: loading_names(self.profile, thresholds, pieces(bottleneck)),
                evidence: self.evidence(pieces(bottleneck)),
                remedy: match bottleneck {
                    // Overlap helps only if no collective waits for kernels before it.
                    Bottleneck::Communication if !self.collectives_depend() => {
                        INDEPENDENT_COLLECTIVES
                    }
                    _ => bottleneck.remedy(),
                },
            }
        };
        let parts = Part::ALL.into_iter().filter(|part| sums.get(*part) != 0);
        Verdict {
            instances: scope.instances,
            operations: numbers.operations,
            clock: Duration::from_nanos(clock_ns),
            parts: parts
                .map(|part| PartTime { part, time: Duration::from_nanos(sums.get(part) / devices) })
                .collect(),
            devices,
            unused_devices,
            unmatched,
            bottleneck: decided.filter(|_| inconclusive.is_none()),
            inconclusive,
            causes: causes.into_iter().map(cause).collect(),
            path: scope.path,
            phase: scope.phase,
        }
    }

    /// The reason for a missing verdict, given the leading cause and the shares of all causes.
    fn inconclusive(
        &self,
        operations: u64,
        overhead: f64,
        decided: Option<Bottleneck>,
        share: &dyn Fn(Bottleneck) -> f64,
    ) -> Option<Inconclusive> {
        let thresholds = self.thresholds;
        let least = thresholds.get_least_operations();
        let shared = self.known.shared_ordinal.get_or_init(|| self.shared_ordinal());
        let must_be_complete = !thresholds.get_incomplete();
        if operations < least {
            Some(Inconclusive::TooFewOperations { operations, least })
        } else if must_be_complete && self.lacks_records() {
            Some(Inconclusive::Incomplete)
        } else if let Some(why) = shared.filter(|_| must_be_complete) {
            Some(why)
        } else if overhead > thresholds.get_most_overhead() {
            let most = thresholds.get_most_overhead();
            Some(Inconclusive::TooMuchOverhead { share: overhead, most })
        } else if decided.is_none() {
            let largest = Bottleneck::ALL.into_iter().map(share).fold(0.0, f64::max);
            let least = thresholds.get_verdict_share();
            Some(Inconclusive::NoSingleCause { largest, least })
        } else if decided == Some(Bottleneck::Communication) && !self.has_ranks() {
            Some(Inconclusive::Collectives { share: share(Bottleneck::Communication) })
        } else {
            None
        }
    }

    /// True if too many records are missing for a verdict.
    fn lacks_records(&self) -> bool {
        let share = self.profile.health().unmatched_share();
        share.is_none_or(|share| share > self.thresholds.get_most_unmatched())
    }

    /// The records without a call and the calls without a record.
    fn unmatched(&self) -> Option<Unmatched> {
        let health = self.profile.health();
        let accounts = health.accounts.named();
        let missing = accounts.iter().map(|(_, it)| it.calls.saturating_sub(it.matched_calls));
        let missing = missing.fold(health.losses.open_calls, u64::saturating_add);
        let all = accounts.iter().map(|(_, account)| account.records.max(account.calls));
        let without = accounts.iter().map(|(_, account)| account.unmatched());
        let without = without.fold(health.losses.open_calls, u64::saturating_add);
        let share = ratio(without, all.fold(health.losses.open_calls, u64::saturating_add));
        let operations = self.profile.tables().operations.iter();
        let rows = operations.filter(|row| row.call.get().is_none());
        let rows = rows.filter(|row| !self.profile.tables().work(row).is_migration());
        let ns = rows.fold(0, |sum, row| row.ns().saturating_add(sum));
        (without != 0).then_some(Unmatched { share, time: Duration::from_nanos(ns), missing })
    }

    /// An ordinal with operations that refers to several GPUs, if any.
    fn shared_ordinal(&self) -> Option<Inconclusive> {
        let store = &self.profile.tables();
        let ran = |device: &&u32| store.works.rows().iter().any(|w| w.place.device == **device);
        let device = *store.shared_ordinals.iter().find(ran)?;
        Some(Inconclusive::SharedOrdinal { device })
    }

    /// The estimated host time of recording in a scope. For several processes, which run
    /// concurrently, the mean.
    pub(super) fn overhead_ns(&self, query: &Query<'_>, waits: u64, operations: u64) -> u64 {
        let store = &self.profile.tables();
        let mut is_counted = vec![false; store.calls.len()];
        let mut has_calls = vec![false; store.threads.len()];
        let mut calls = 0;
        for call in query.iter().filter_map(|operation| operation.call_id()) {
            calls += u64::from(!std::mem::replace(&mut is_counted[call.at()], true));
            has_calls[store.calls[call.at()].thread.at()] = true;
        }
        let threads = store.threads.iter().zip(has_calls).filter(|(_, has_calls)| *has_calls);
        let processes: FxHashSet<u32> = threads.map(|(thread, _)| thread.process).collect();
        let processes = processes.len().max(1) as u64;
        let calls = (calls + waits).min(operations + waits);
        calls.saturating_mul(nanoseconds(self.thresholds.get_overhead_per_call())) / processes
    }

    /// The share of launches whose kernel ended an idle time that began before the launch.
    fn awaited(&self, scope: &Scope<'_>, numbers: &Numbers) -> f64 {
        let late = |piece: &&Piece| piece.is_idle && piece.part != Part::Scheduling;
        let mut awaited: Vec<_> =
            scope.pieces.iter().filter(late).filter_map(|piece| piece.operation.get()).collect();
        awaited.dedup();
        let is_launch =
            |id: &OperationId| self.profile.operation(*id).kind() == OperationKind::Kernel;
        ratio(awaited.into_iter().filter(is_launch).count() as u64, numbers.launches).min(1.0)
    }

    fn signs(
        &self,
        bottleneck: Bottleneck,
        scope: &Scope<'_>,
        sums: &Sums,
        numbers: &Numbers,
        clocks: &DeviceClocks,
    ) -> Vec<Sign> {
        use SignUnit::{Bytes, Count, Seconds, Share};
        let total = sums.total();
        let least = self.thresholds.get_verdict_share();
        let share = ratio(bottleneck.ns(sums), total);
        let busy = [Part::Kernels, Part::Communication, Part::Copies].map(|part| sums.get(part));
        let of_idle = ratio(bottleneck.ns(sums), total - busy.iter().sum::<u64>());
        let awaited = || self.awaited(scope, numbers);
        let seconds = |time: Duration| time.as_secs_f64();
        let copies = ratio(sums.get(Part::Copies), total);
        match bottleneck {
            Bottleneck::GpuCompute => vec![
                Sign::share_at_least("GPU has work", clocks.compute_share(), HAS_WORK),
                Sign::at_most("copies alone and their calls", copies, Share, 0.02),
                Sign::at_most("launches that the GPU waited for", awaited(), Share, 0.5),
            ],
            Bottleneck::Launch => {
                let (kernel, launch) = median_kernel_and_launch(&scope.query);
                vec![
                    Sign::share_at_least("GPU idle for launches", share, least),
                    Sign::at_most("median kernel", seconds(kernel), Seconds, seconds(launch)),
                    Sign::share_at_least("launches that the GPU waited for", awaited(), 0.5),
                ]
            }
            Bottleneck::Synchronization => {
                let blocked = scope.query.iter().filter(blocks_host).count() as u64;
                let waits = scope.waits + blocked;
                let small = self.thresholds.get_small_copy_bytes() as f64;
                let each = numbers.operations as f64 / waits.max(1) as f64;
                let mut signs = vec![
                    Sign::share_at_least("GPU idle for waits and small copies", share, least),
                    Sign::at_most("operations for each wait of the host", each, Count, 16.0),
                ];
                if numbers.copies != 0 {
                    signs.push(Sign::at_most("median copy", numbers.median_copy, Bytes, small));
                    let part = ratio(numbers.small_copies, numbers.operations);
                    signs.push(Sign::share_at_least("operations that are small copies", part, 0.5));
                }
                signs
            }
            Bottleneck::Cpu => vec![
                Sign::share_at_least("GPU idle, host in no call", share, least),
                Sign::share_at_least("of the idle time", of_idle, 0.5),
            ],
            Bottleneck::Data => vec![
                Sign::share_at_least("GPU idle, host loading data", share, least),
                Sign::share_at_least("of the idle time", of_idle, 0.5),
            ],
            Bottleneck::Copy => {
                let exposed = ratio(numbers.exposed_ns, numbers.copy_ns).min(1.0);
                let pageable = numbers.pageable_bytes / numbers.copy_bytes.max(1.0);
                vec![
                    Sign::share_at_least("copies alone and their calls", share, least),
                    Sign::share_at_least("copy time behind no kernel", exposed, 0.5),
                    Sign::share_at_least("bytes of pageable memory", pageable, 0.5),
                ]
            }
            Bottleneck::Communication => {
                vec![Sign::share_at_least("communication alone", share, least)]
            }
        }
    }
}

impl Cause {
    /// The deciding range names, for display; empty if there are none.
    pub(crate) fn by_names(&self) -> String {
        if self.decided_by_names.is_empty() {
            return String::new();
        }
        let names = self.decided_by_names.iter().map(|name| shortened(name, NAME_WIDTH));
        let noun = if self.decided_by_names.len() == 1 { "range" } else { "ranges" };
        format!(" (by the name of {noun} {})", names.collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bottleneck, share, reach, .. } = *self;
        let faster = faster(self.estimate, self.is_bound, self.assumption);
        let around = difference_text(share, reach, bottleneck == Bottleneck::GpuCompute);
        let by_names = self.by_names();
        write!(f, "{bottleneck}{by_names}: {}", gain(self.cost, share, &around, &faster))
    }
}

/// The difference between a mean share of the clock and the share of the wall time that may vanish.
pub(super) fn difference_text(share: f64, reach: f64, is_of_busiest: bool) -> String {
    let percent = 100.0 * reach;
    match reach - share {
        difference if difference.abs() < 0.01 => String::new(),
        difference if difference < 0.0 || is_of_busiest => {
            format!(" as a mean, {percent:.1} % on the busiest GPU")
        }
        _ => format!(", {percent:.1} % with the idle time around it"),
    }
}

/// A cost with its share, and the estimated speed-up without it, for display.
pub(super) fn gain(cost: Duration, share: f64, around: &str, faster: &str) -> String {
    format!("{} ({:.1} %{around}), {faster}", time(cost), 100.0 * share)
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.subject())?;
        match (self.bottleneck, self.inconclusive) {
            (Some(bottleneck), _) => write!(f, " is {bottleneck}")?,
            (None, Some(why)) => write!(f, ": no verdict: {why}")?,
            (None, None) => f.write_str(": no verdict")?,
        }
        write!(f, "\n  {}", time(self.clock))?;
        match self.path.is_some() || self.phase.is_some() {
            true => write!(f, " of {} instances", self.instances)?,
            false => f.write_str(" from the first call, range or operation to the last")?,
        }
        if self.devices > 1 {
            write!(f, ", mean of {} GPUs", self.devices)?;
        }
        if !self.unused_devices.is_empty() {
            write!(f, ", without {} (unused)", device_list(&self.unused_devices))?;
        }
        for (n, part) in self.parts.iter().enumerate() {
            let share = part.time.as_secs_f64() / self.clock.as_secs_f64().max(f64::MIN_POSITIVE);
            let before = if n == 0 { ": " } else { ", " };
            write!(f, "{before}{} {:.1} %", part.part.text(), 100.0 * share)?;
        }
        if let Some(unmatched) = self.unmatched {
            write!(f, "\n  {unmatched}")?;
        }
        for (n, cause) in self.causes.iter().enumerate() {
            write!(f, "\n  {}. {cause}", n + 1)?;
            for sign in &cause.signs {
                write!(f, "\n       {} {sign}", if sign.is_met() { "+" } else { "-" })?;
            }
            write!(f, "\n     {}", cause.remedy)?;
        }
        Ok(())
    }
}
