//! What a scope is bound by, or why that cannot be said.

use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

use cupti::CallClass;
use serde::{Serialize, Serializer};

use super::amdahl::amdahl;
use super::bottleneck::{Bottleneck, INDEPENDENT_COLLECTIVES};
use super::clock::{Part, Piece, Sums, gaps, reach};
use super::evidence::Evidence;
use super::sign::{Sign, SignUnit};
use super::{Run, nanoseconds};
use crate::base::statistics::{Statistics, as_ns};
use crate::base::units::time;
use crate::join::tables::OperationId;
use crate::profile::{GpuOperation, OperationKind};
use crate::query::Query;

/// What takes a part of the clock, with what it rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Cause {
    /// What.
    pub bottleneck: Bottleneck,
    /// The time on the clock that it accounts for.
    #[serde(rename = "cost_ns", serialize_with = "as_ns")]
    pub cost: Duration,
    /// That as a part of the clock, from 0 to 1.
    pub share: f64,
    /// The part of the clock that goes with it: its share, and the rest of the idle times that are half its or more, which
    /// may be hidden once the host comes in time.
    pub reach: f64,
    /// How much faster the whole is by Amdahl's law under the [`assumption`](Self::assumption), by its reach. Infinite if
    /// it is the whole. An estimate, not a bound: a change that also shortens other work brings more.
    #[serde(serialize_with = "finite")]
    pub estimate: f64,
    /// What the estimate assumes.
    pub assumption: &'static str,
    /// The numbers that speak for it or against it.
    pub signs: Vec<Sign>,
    /// Where it shows.
    pub evidence: Evidence,
    /// What helps.
    pub remedy: &'static str,
}

/// JSON knows no infinity.
pub(crate) fn finite<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    value.is_finite().then_some(*value).serialize(serializer)
}

impl Cause {
    /// How much faster the whole is if this takes an `s`-th of its time: [`amdahl`].
    pub fn speedup(&self, s: f64) -> f64 {
        amdahl(self.share, s)
    }
}

/// Records without a call, and calls without a record or open at the stop: few enough for a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Unmatched {
    /// The part of all records and calls that they are, from 0 to 1.
    pub share: f64,
    /// The time that operations without a call ran. It is in the clock; what the GPU waited for before them is not known.
    #[serde(rename = "time_ns", serialize_with = "as_ns")]
    pub time: Duration,
    /// Calls without a record. The time of their operations is not known, and looks like an idle GPU.
    pub missing: u64,
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.2} % of the records and calls are unmatched: operations without a call ran for {}, {} calls have no record",
            100.0 * self.share,
            time(self.time),
            self.missing
        )
    }
}

/// Why there is no verdict.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "why")]
#[non_exhaustive]
pub enum Inconclusive {
    /// Fewer operations than [`Thresholds::least_operations`](super::Thresholds::least_operations).
    TooFewOperations {
        /// How many there are.
        operations: u64,
        /// How many are asked for.
        least: u64,
    },
    /// The profiler's own time may be more than [`Thresholds::most_overhead`](super::Thresholds::most_overhead) of the clock.
    TooMuchOverhead {
        /// That part, from 0 to 1.
        share: f64,
        /// The most that is allowed.
        most: f64,
    },
    /// Records are missing: see [`Health`](crate::Health). A few [unmatched](Unmatched) ones leave a verdict possible.
    Incomplete,
    /// Collectives alone take the largest part that is not work. Whether they transfer data or wait for another rank is not
    /// recorded.
    Collectives {
        /// The part of the clock that they take alone.
        share: f64,
    },
    /// One CUDA ordinal is several GPUs, since each process numbers those that it sees. Their times cannot be separated.
    SharedOrdinal {
        /// The ordinal.
        device: u32,
    },
    /// No cause takes enough of the clock.
    NoSingleCause {
        /// The part of the clock that the largest one takes.
        largest: f64,
        /// What it would need.
        least: f64,
    },
}

impl Inconclusive {
    /// True if the evidence is too thin to say anything.
    pub(crate) fn says_nothing(self) -> bool {
        !matches!(self, Self::NoSingleCause { .. } | Self::Collectives { .. })
    }
}

impl fmt::Display for Inconclusive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewOperations { operations, least } => {
                write!(f, "{operations} operations are too few to say, {least} are asked for")
            }
            Self::TooMuchOverhead { share, most } => write!(
                f,
                "recording may have taken {:.0} % of the time, more than {:.0} %: record fewer kinds, or longer work",
                100.0 * share,
                100.0 * most
            ),
            Self::Incomplete => {
                f.write_str("records are missing, and what is missing looks like an idle GPU; the health says which")
            }
            Self::Collectives { share } => write!(
                f,
                "collectives alone take {:.1} % of the time: whether they transfer or wait for another rank is not recorded",
                100.0 * share
            ),
            Self::SharedOrdinal { device } => write!(
                f,
                "device {device} is another GPU in other processes: their times cannot be separated"
            ),
            Self::NoSingleCause { largest, least } => write!(
                f,
                "no single cause: the largest takes {:.1} % of the time, {:.1} % are asked for",
                100.0 * largest,
                100.0 * least
            ),
        }
    }
}

/// A part of the clock and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PartTime {
    /// Which.
    pub part: Part,
    /// How long.
    #[serde(rename = "time_ns", serialize_with = "as_ns")]
    pub time: Duration,
}

/// What a scope is bound by.
///
/// The clock is that of the wall, from the beginning of the scope to its end or to that of its last operation, whichever is
/// later; what several instances have of it is summed. Every device on which the scope has operations has this clock; times
/// and shares are the mean over these devices, so that a busy GPU does not hide an idle one.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    /// The path of the range; `None` is the whole run.
    pub path: Option<String>,
    /// How many instances of it.
    pub instances: u64,
    /// Operations asked for in it.
    pub operations: u64,
    /// The time that all shares are of.
    #[serde(rename = "clock_ns", serialize_with = "as_ns")]
    pub clock: Duration,
    /// The devices that times and shares are the mean of.
    pub devices: u64,
    /// Where it went; the times add up to the clock.
    pub parts: Vec<PartTime>,
    /// What it is bound by.
    pub bottleneck: Option<Bottleneck>,
    /// Why there is none.
    pub inconclusive: Option<Inconclusive>,
    /// What is unmatched in the profile, if anything.
    pub unmatched: Option<Unmatched>,
    /// What takes at least [`Thresholds::cause_share`](super::Thresholds::cause_share) of the clock: the verdict first, then
    /// by what they cost. Empty where nothing can be said.
    pub causes: Vec<Cause>,
}

impl Verdict {
    /// The cause that is the verdict.
    pub fn cause(&self) -> Option<&Cause> {
        self.causes.first().filter(|cause| Some(cause.bottleneck) == self.bottleneck)
    }

    /// The cause of this sort, if it is listed.
    pub fn cause_of(&self, bottleneck: Bottleneck) -> Option<&Cause> {
        self.causes.iter().find(|cause| cause.bottleneck == bottleneck)
    }

    /// The time that went to this part.
    pub fn time_of(&self, part: Part) -> Duration {
        let time = self.parts.iter().find(|time| time.part == part);
        time.map_or(Duration::ZERO, |time| time.time)
    }
}

/// What is to be judged.
pub(super) struct Scope<'a> {
    pub(super) path: Option<String>,
    pub(super) instances: u64,
    pub(super) pieces: Vec<Piece>,
    /// What was asked for in it.
    pub(super) query: Query<'a>,
    /// Calls made in it that blocked the host.
    pub(super) waits: u64,
}

/// What of a scope's own operations the signs are about.
struct Numbers {
    operations: u64,
    launches: u64,
    kernel: Statistics,
    launch: Statistics,
    copies: u64,
    copy_bytes: f64,
    pageable_bytes: f64,
    small_copies: u64,
    median_copy: f64,
    copy_ns: u64,
    /// The time of large copies beside no kernel, without the time that the host spends in their calls.
    exposed_ns: u64,
}

impl Numbers {
    fn of(run: &Run<'_>, query: &Query<'_>, pieces: &[Piece]) -> Self {
        let launches = query.clone().kernels().launches();
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
        let of = |time: fn(&crate::query::Launch<'_>) -> Option<Duration>| {
            Statistics::of_ns(launches.iter().filter_map(|l| time(&l)).map(nanoseconds).collect())
        };
        Self {
            operations,
            launches: launches.count(),
            kernel: of(|launch| Some(launch.gpu_time())),
            launch: of(|launch| launch.api_time()),
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

/// True for a copy whose call returns when the copy is done.
fn blocks_host(operation: &GpuOperation<'_>) -> bool {
    let class = operation.call().map(|call| call.class());
    let copy = operation.as_copy();
    class == Some(CallClass::Memcpy)
        && copy.is_some_and(|copy| copy.destination() == cupti::MemoryKind::PAGEABLE)
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// How many devices these pieces are of; at least 1.
fn devices(pieces: &[Piece]) -> u64 {
    pieces.chunk_by(|a, b| a.device == b.device).count().max(1) as u64
}

/// What a verdict needs of the GPU's time to be on the GPU: more than all else together.
const HAS_WORK: f64 = 0.5;

impl Run<'_> {
    pub(super) fn judge(&self, scope: Scope<'_>) -> Verdict {
        let sums = Sums::of(scope.pieces.iter());
        let total_ns = sums.total();
        let devices = devices(&scope.pieces);
        let clock_ns = total_ns / devices;
        let numbers = Numbers::of(self, &scope.query, &scope.pieces);
        let thresholds = self.thresholds;
        let share = |bottleneck: Bottleneck| ratio(bottleneck.ns(&sums), total_ns);

        let mut causes: Vec<Bottleneck> = Bottleneck::ALL
            .into_iter()
            .filter(|b| share(*b) >= thresholds.get_cause_share() && share(*b) > 0.0)
            .collect();
        causes.sort_by_key(|bottleneck| Reverse(bottleneck.ns(&sums)));
        let decided = causes
            .iter()
            .copied()
            .find(|b| *b != Bottleneck::GpuCompute && share(*b) >= thresholds.get_verdict_share())
            .or_else(|| {
                (share(Bottleneck::GpuCompute) >= HAS_WORK).then_some(Bottleneck::GpuCompute)
            });
        causes.sort_by_key(|bottleneck| Some(*bottleneck) != decided);

        let overhead = self.overhead_ns(&scope.query, scope.waits, numbers.operations);
        let overhead = ratio(overhead, clock_ns);
        let least = thresholds.get_least_operations();
        let unmatched = *self.known.unmatched.get_or_init(|| self.unmatched());
        let shared = self.known.shared_ordinal.get_or_init(|| self.shared_ordinal());
        let is_doubtful = !thresholds.get_incomplete();
        let inconclusive = if numbers.operations < least {
            let operations = numbers.operations;
            Some(Inconclusive::TooFewOperations { operations, least })
        } else if is_doubtful && self.lacks_records() {
            Some(Inconclusive::Incomplete)
        } else if let Some(why) = shared.filter(|_| is_doubtful) {
            Some(why)
        } else if overhead > thresholds.get_most_overhead() {
            let most = thresholds.get_most_overhead();
            Some(Inconclusive::TooMuchOverhead { share: overhead, most })
        } else if decided.is_none() {
            let largest = Bottleneck::ALL.into_iter().map(share).fold(0.0, f64::max);
            let least = thresholds.get_verdict_share();
            Some(Inconclusive::NoSingleCause { largest, least })
        } else if decided == Some(Bottleneck::Communication) {
            Some(Inconclusive::Collectives { share: share(Bottleneck::Communication) })
        } else {
            None
        };
        if inconclusive.is_some_and(Inconclusive::says_nothing) {
            causes.clear();
        }
        let cause = |bottleneck: Bottleneck| {
            let ns = bottleneck.ns(&sums);
            let reach = self.reach(bottleneck, &scope) / total_ns.max(1) as f64;
            Cause {
                bottleneck,
                cost: Duration::from_nanos(ns / devices),
                share: ratio(ns, total_ns),
                reach,
                estimate: match bottleneck {
                    Bottleneck::GpuCompute => amdahl(ratio(ns, total_ns), 2.0),
                    _ => amdahl(reach, f64::INFINITY),
                },
                assumption: bottleneck.assumption(),
                signs: self.signs(bottleneck, &scope, &sums, &numbers),
                evidence: self.evidence_of(
                    scope.pieces.iter().filter(|piece| bottleneck.parts().contains(&piece.part)),
                ),
                remedy: self.remedy(bottleneck),
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
            unmatched,
            bottleneck: decided.filter(|_| inconclusive.is_none()),
            inconclusive,
            causes: causes.into_iter().map(cause).collect(),
            path: scope.path,
        }
    }

    /// True if too much is missing for a verdict.
    fn lacks_records(&self) -> bool {
        let share = self.profile.health().unmatched_share();
        share.is_none_or(|share| share > self.thresholds.get_most_unmatched())
    }

    /// What lacks its call or record.
    fn unmatched(&self) -> Option<Unmatched> {
        let health = self.profile.health();
        let accounts = health.accounts();
        let missing = accounts.iter().map(|(_, of)| of.calls.saturating_sub(of.matched_calls));
        let missing = missing.fold(health.open_calls, u64::saturating_add);
        let all = accounts.iter().map(|(_, of)| of.records.max(of.calls));
        let without = accounts.iter().map(|(_, of)| of.unmatched());
        let without = without.fold(health.open_calls, u64::saturating_add);
        let share = ratio(without, all.fold(health.open_calls, u64::saturating_add));
        let operations = self.profile.store.operations.iter();
        let rows = operations.filter(|row| row.call.get().is_none());
        let rows = rows.filter(|row| !self.profile.store.work(row).is_migration());
        let ns = rows.fold(0, |sum, row| row.ns().saturating_add(sum));
        (without != 0).then_some(Unmatched { share, time: Duration::from_nanos(ns), missing })
    }

    /// An ordinal that is several GPUs, if operations ran on it.
    fn shared_ordinal(&self) -> Option<Inconclusive> {
        let store = &self.profile.store;
        let ran = |device: &&u32| store.works.rows().iter().any(|w| w.place.device == **device);
        let device = *store.shared_ordinals.iter().find(ran)?;
        Some(Inconclusive::SharedOrdinal { device })
    }

    /// What helps: overlap only where no collective has to wait for kernels before it.
    fn remedy(&self, bottleneck: Bottleneck) -> &'static str {
        match bottleneck {
            Bottleneck::Communication if !self.collectives_depend() => INDEPENDENT_COLLECTIVES,
            _ => bottleneck.remedy(),
        }
    }

    /// The time on the clock that goes with a cause.
    fn reach(&self, bottleneck: Bottleneck, scope: &Scope<'_>) -> f64 {
        let of = scope.pieces.iter().filter(|piece| bottleneck.parts().contains(&piece.part));
        reach(of.map(|piece| (piece, 1.0)), &gaps(&scope.pieces))
    }

    fn evidence_of<'p>(&self, pieces: impl Iterator<Item = &'p Piece>) -> Evidence {
        Evidence::of(self.moments(pieces), self.thresholds.get_evidence())
    }

    /// What recording took of the host's time in a scope, as far as it is known.
    pub(super) fn overhead_ns(&self, query: &Query<'_>, waits: u64, operations: u64) -> u64 {
        let mut calls: Vec<_> = query.iter().filter_map(|operation| operation.call_id()).collect();
        calls.sort_unstable();
        calls.dedup();
        let calls = (calls.len() as u64 + waits).min(operations + waits);
        calls.saturating_mul(nanoseconds(self.thresholds.get_overhead_per_call()))
    }

    /// The share of launches whose kernel ended an idle time that began before the launch.
    fn awaited(&self, scope: &Scope<'_>, numbers: &Numbers) -> f64 {
        let late = |piece: &&Piece| piece.is_idle && piece.part != Part::Scheduling;
        let mut awaited: Vec<_> =
            scope.pieces.iter().filter(late).filter_map(|piece| piece.operation).collect();
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
    ) -> Vec<Sign> {
        use SignUnit::{Bytes, Count, Seconds, Share};
        let total = sums.total();
        let least = self.thresholds.get_verdict_share();
        let share = ratio(bottleneck.ns(sums), total);
        let idle = [
            Part::Scheduling,
            Part::Launching,
            Part::Waiting,
            Part::Host,
            Part::Loading,
            Part::Unknown,
        ];
        let of_idle = ratio(bottleneck.ns(sums), idle.map(|part| sums.get(part)).iter().sum());
        let awaited = self.awaited(scope, numbers);
        let seconds = |time: Duration| time.as_secs_f64();
        match bottleneck {
            Bottleneck::GpuCompute => vec![
                Sign::at_least("GPU has work", share, Share, HAS_WORK).deciding(),
                Sign::at_most(
                    "copies alone and their calls",
                    ratio(sums.get(Part::Copies), total),
                    Share,
                    0.02,
                ),
                Sign::at_most("launches that the GPU waited for", awaited, Share, 0.5),
            ],
            Bottleneck::Launch => {
                let median = seconds(numbers.launch.median());
                vec![
                    Sign::at_least("GPU idle for launches", share, Share, least).deciding(),
                    Sign::at_most(
                        "median kernel",
                        seconds(numbers.kernel.median()),
                        Seconds,
                        median,
                    ),
                    Sign::at_least("launches that the GPU waited for", awaited, Share, 0.5),
                ]
            }
            Bottleneck::Synchronization => {
                let blocked = scope.query.iter().filter(blocks_host).count() as u64;
                let waits = scope.waits + blocked;
                let small = self.thresholds.get_small_copy_bytes() as f64;
                let mut signs = vec![
                    Sign::at_least("GPU idle for waits and small copies", share, Share, least)
                        .deciding(),
                    Sign::at_most(
                        "operations for each wait of the host",
                        numbers.operations as f64 / waits.max(1) as f64,
                        Count,
                        16.0,
                    ),
                ];
                if numbers.copies != 0 {
                    signs.push(Sign::at_most("median copy", numbers.median_copy, Bytes, small));
                    let part = ratio(numbers.small_copies, numbers.operations);
                    signs.push(Sign::at_least(
                        "operations that are small copies",
                        part,
                        Share,
                        0.5,
                    ));
                }
                signs
            }
            Bottleneck::Cpu => vec![
                Sign::at_least("GPU idle, host in no call", share, Share, least).deciding(),
                Sign::at_least("of the idle time", of_idle, Share, 0.5),
            ],
            Bottleneck::Data => vec![
                Sign::at_least("GPU idle, host loading data", share, Share, least).deciding(),
                Sign::at_least("of the idle time", of_idle, Share, 0.5),
            ],
            Bottleneck::Copy => {
                let exposed = ratio(numbers.exposed_ns, numbers.copy_ns).min(1.0);
                let pageable = numbers.pageable_bytes / numbers.copy_bytes.max(1.0);
                vec![
                    Sign::at_least("copies alone and their calls", share, Share, least).deciding(),
                    Sign::at_least("copy time behind no kernel", exposed, Share, 0.5),
                    Sign::at_least("bytes of pageable memory", pageable, Share, 0.5),
                ]
            }
            Bottleneck::Communication => {
                vec![Sign::at_least("communication alone", share, Share, least).deciding()]
            }
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cost = Cost { time: self.cost, share: self.share, reach: self.reach };
        write!(f, "{}: {cost}, {}", self.bottleneck, Estimate(self.estimate, self.assumption))
    }
}

/// What something takes, as people read it.
pub(super) struct Cost {
    pub(super) time: Duration,
    pub(super) share: f64,
    pub(super) reach: f64,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:.1} %", time(self.time), 100.0 * self.share)?;
        if self.reach - self.share >= 0.01 {
            write!(f, ", {:.1} % with the idle time around it", 100.0 * self.reach)?;
        }
        f.write_str(")")
    }
}

/// An estimate with its assumption, as people read it.
pub(super) struct Estimate(pub(super) f64, pub(super) &'static str);

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "estimated {}x {}", Factor(self.0), self.1)
    }
}

/// A factor as people read it.
pub(crate) struct Factor(pub(crate) f64);

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            factor if factor > 100.0 => f.write_str("over 100"),
            factor if factor > 10.0 => write!(f, "{factor:.0}"),
            factor => write!(f, "{factor:.2}"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => {
                f.write_str(&crate::base::units::shortened(path, crate::base::units::PATH_WIDTH))?
            }
            None => f.write_str("the run")?,
        }
        match (self.bottleneck, self.inconclusive) {
            (Some(bottleneck), _) => write!(f, " is {bottleneck}")?,
            (None, Some(why)) => write!(f, ": no verdict: {why}")?,
            (None, None) => f.write_str(": no verdict")?,
        }
        write!(f, "\n  {} on the clock", time(self.clock))?;
        if self.path.is_some() {
            write!(f, " of {} instances", self.instances)?;
        }
        if self.devices > 1 {
            write!(f, ", mean of {} GPUs", self.devices)?;
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
