//! A scorecard: a run on one page, a dozen values with targets and flags.
//!
//! ```no_run
//! use profiler_analysis::prelude::*;
//! use profiler_core::Profile;
//! use profiler_analysis::scorecard::{Flag, ScoreKind};
//!
//! # fn main() -> Result<(), profiler_analysis::Error> {
//! let card = Profile::load("run.gpuprof")?.scorecard();
//! println!("{card}");
//! assert_ne!(card.flag(ScoreKind::GpuBusy), Flag::Bad);
//! # Ok(())
//! # }
//! ```
//!
//! The scorecard measures nothing itself. Its values are taken from the
//! [diagnosis](crate::analyze::diagnosis), the [kernels](crate::analyze::kernels), the
//! [roofline](crate::roofline::Roofline) and [`Health`](profiler_core::Health), which have more
//! detail.

mod kind;
mod targets;
mod text;

use std::time::Duration;

use profiler_base::units::{NAME_WIDTH, shortened, time};
use serde::Serialize;

use crate::analyze::diagnosis::{
    Bottleneck, Diagnoser, Fix, Inconclusive, Judged, Others, Verdict, certainty, device_list,
    factor, faster, finite, fixable,
};
use crate::analyze::kernels::{Classifier, TcRemedy};
use crate::analyze::kernels::{launches, tensor_cores};
use crate::analyze::roofline::{Declared, peaks, roofline};
pub use kind::{Flag, ScoreKind};
use profiler_core::profile::Profile;
use profiler_core::query::Query;
pub use targets::{Target, Targets};

/// A value with its target.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Score {
    /// The kind.
    pub kind: ScoreKind,
    /// A share from 0 to 1, a factor, or 1 for a complete recording and 0 for an incomplete one.
    /// `None` if unknown. JSON has `null` for an infinite factor.
    #[serde(serialize_with = "known")]
    pub value: Option<f64>,
    /// The target.
    pub target: Target,
    /// The result of the comparison with the target.
    pub flag: Flag,
    /// The numbers behind the value, or the reason why it is unknown.
    pub note: String,
}

fn known<S: serde::Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    finite(&value.unwrap_or(f64::NAN), serializer)
}

/// A run on one page, by [`Profile::scorecard`](crate::prelude::ProfileExt::scorecard). `{}` is up
/// to 24 lines of text, and one more for each further phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scorecard {
    /// The verdict on the steady phase with the most time, or on the whole run; or the reason for
    /// its absence. All values refer to that phase, except [`Health`](ScoreKind::Health) and
    /// [`OfRoof`](ScoreKind::OfRoof), which refer to the run.
    pub verdict: String,
    /// The verdicts on the other steady phases, and the times of the phases without a verdict, a
    /// line each.
    pub others: Vec<String>,
    /// The verdict as an enum.
    pub bottleneck: Option<Bottleneck>,
    /// The time that shares refer to.
    #[serde(rename = "clock_ns", serialize_with = "profiler_base::statistics::as_ns")]
    pub clock: Duration,
    /// The first thing to fix: [`Diagnosis::first`](crate::diagnosis::Diagnosis::first).
    pub first: Option<Fix>,
    scores: Vec<Score>,
}

impl Scorecard {
    /// Makes a scorecard from an existing diagnosis.
    pub(crate) fn new(profile: &Profile, targets: &Targets, judged: &Judged) -> Self {
        Card { profile, targets, verdict: &judged.verdict, judged }.fill()
    }

    /// The values, in the order of [`ScoreKind::ALL`].
    pub fn scores(&self) -> &[Score] {
        &self.scores
    }

    /// The value of a kind.
    pub fn score(&self, kind: ScoreKind) -> Option<&Score> {
        self.scores.iter().find(|score| score.kind == kind)
    }

    /// The flag of a kind.
    pub fn flag(&self, kind: ScoreKind) -> Flag {
        self.score(kind).map_or(Flag::Unknown, |score| score.flag)
    }

    /// The values with this flag.
    pub fn with_flag(&self, flag: Flag) -> impl Iterator<Item = &Score> {
        self.scores.iter().filter(move |score| score.flag == flag)
    }
}

/// [`ProfileExt::scorecard_with`](crate::prelude::ProfileExt::scorecard_with).
pub(crate) fn scorecard(profile: &Profile, targets: &Targets) -> Scorecard {
    let diagnoser = Diagnoser::new(profile, targets.thresholds.clone());
    Scorecard::new(profile, targets, &diagnoser.judged())
}

/// The inputs of a scorecard.
struct Card<'a> {
    profile: &'a Profile,
    targets: &'a Targets,
    verdict: &'a Verdict,
    judged: &'a Judged,
}

/// A value and its note, or the reason why it is unknown.
enum Known {
    Is(f64, String),
    /// A value that is unreliable for this reason.
    Doubtful(f64, String),
    Not(String),
}

use Known::{Doubtful, Is, Not};

impl Card<'_> {
    fn fill(&self) -> Scorecard {
        let scores = ScoreKind::ALL.into_iter().map(|kind| {
            let target = self.targets.get(kind);
            let (value, flag, note) = match self.value(kind) {
                Is(value, note) => (Some(value), target.flag(kind, value), note),
                Doubtful(value, note) => (Some(value), Flag::Unknown, note),
                Not(why) => (None, Flag::Unknown, why),
            };
            Score { kind, value, target, flag, note }
        });
        let verdict = match self.is_empty() {
            true => "no verdict: no GPU operation was recorded".to_owned(),
            false => self.verdict.line(),
        };
        let others = self.judged.verdicts().into_iter().skip(1).map(Verdict::line);
        let lines = Others(&self.judged.phases).to_string();
        let others = others.chain(lines.lines().map(str::to_owned)).collect();
        Scorecard {
            verdict,
            others,
            bottleneck: self.verdict.bottleneck,
            clock: self.verdict.clock,
            first: Fix::first(self.verdict, &self.judged.findings),
            scores: scores.collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.verdict.operations == 0
    }

    /// The operations of the phase, or of the run.
    fn query(&self) -> Query<'_> {
        match &self.judged.section {
            Some(section) => section.query(self.profile),
            None => self.profile.query(),
        }
    }

    fn value(&self, kind: ScoreKind) -> Known {
        if self.is_empty() && (kind != ScoreKind::Health || self.profile.health().is_complete()) {
            return Not("no GPU operation was recorded".to_owned());
        }
        match kind {
            ScoreKind::Health => self.health(),
            ScoreKind::GpuBusy => self.busy(),
            ScoreKind::Launch => self.part(Bottleneck::Launch),
            ScoreKind::Synchronization => self.part(Bottleneck::Synchronization),
            ScoreKind::Host => self.part(Bottleneck::Cpu),
            ScoreKind::Loading => self.part(Bottleneck::Data),
            ScoreKind::Copy => self.part(Bottleneck::Copy),
            ScoreKind::Communication => self.part(Bottleneck::Communication),
            ScoreKind::Overlap => self.overlap(),
            ScoreKind::SmallKernels => self.small_kernels(),
            ScoreKind::Occupancy => self.occupancy(),
            ScoreKind::TensorCores => self.tensor_cores(),
            ScoreKind::OfRoof => self.of_roof(),
            ScoreKind::Estimate => self.estimate(),
        }
    }

    /// A share of the clock; unreliable if the diagnosis is inconclusive.
    fn of_clock(&self, value: f64, note: String) -> Known {
        match self.verdict.inconclusive.filter(|why| why.is_without_verdict()) {
            Some(Inconclusive::Incomplete) => {
                Doubtful(value, "records are missing, which looks like an idle GPU".to_owned())
            }
            Some(Inconclusive::TooMuchOverhead { share, .. }) => Doubtful(
                value,
                format!("recording may have taken {:.0} % of the time", 100.0 * share),
            ),
            Some(why) => Doubtful(value, why.to_string()),
            None => Is(value, note),
        }
    }

    fn share_of_clock(&self, time: Duration) -> Option<f64> {
        let clock = self.verdict.clock.as_secs_f64();
        (clock > 0.0).then(|| time.as_secs_f64() / clock)
    }

    fn health(&self) -> Known {
        let health = self.profile.health();
        if health.is_complete() {
            return Is(1.0, format!("{} records, nothing lost", health.records));
        }
        let lost: Vec<String> =
            health.losses.named().map(|(name, count)| format!("{count} {name}")).collect();
        let unmatched = health.accounts.named().into_iter().filter(|(_, of)| !of.is_balanced());
        let unmatched = unmatched.map(|(name, of)| format!("{name}: {of} matched"));
        Is(0.0, lost.into_iter().chain(unmatched).collect::<Vec<_>>().join(", "))
    }

    fn busy(&self) -> Known {
        let mut devices = self.query().devices();
        let unused = &self.verdict.unused_devices;
        devices.retain(|device| !unused.contains(&device.device));
        let busy = sum(devices.iter().map(|device| device.busy));
        let count = devices.len();
        match self.share_of_clock(busy) {
            Some(share) if count != 0 => {
                let clock = time(self.verdict.clock);
                let note = match count {
                    1 => format!("{} of {clock}", time(busy)),
                    _ => format!("{} of {clock} on {count} GPUs together", time(busy)),
                };
                let note = match unused.is_empty() {
                    true => note,
                    false => format!("{note}; {} unused", device_list(unused)),
                };
                self.of_clock((share / count as f64).min(1.0), note)
            }
            _ => Not("no GPU operation has a time".to_owned()),
        }
    }

    fn part(&self, bottleneck: Bottleneck) -> Known {
        let parts = bottleneck.parts().iter().map(|part| self.verdict.time_of(*part));
        let spent = sum(parts);
        let Some(share) = self.share_of_clock(spent) else {
            return Not("no time passed".to_owned());
        };
        let note = match self.verdict.cause_of(bottleneck) {
            Some(cause) => {
                let faster = faster(cause.estimate, cause.is_bound, cause.assumption);
                format!("{}{}, {faster}", time(spent), cause.by_names())
            }
            None => time(spent),
        };
        self.of_clock(share, note)
    }

    /// A share. It is unreliable if it misses its target although its time on the clock meets the
    /// target.
    fn share_at_stake(&self, kind: ScoreKind, share: f64, note: String, time: Duration) -> Known {
        let of_clock = if kind == ScoreKind::Overlap { ScoreKind::Copy } else { ScoreKind::Launch };
        let good = |kind| self.targets.get(kind).good;
        match self.share_of_clock(time) {
            Some(at_stake) if share < good(kind) && at_stake <= good(of_clock) => {
                let percent = 100.0 * at_stake;
                Doubtful(share, format!("too little to matter: {percent:.1} % of the time; {note}"))
            }
            _ => Is(share, note),
        }
    }

    fn overlap(&self) -> Known {
        let of = self.query().overlap();
        let (both, alone) =
            (sum(of.iter().map(|of| of.both)), sum(of.iter().map(|of| of.copies_only)));
        let all = both.saturating_add(alone);
        if all.is_zero() {
            return Not("nothing was copied".to_owned());
        }
        let share = both.as_secs_f64() / all.as_secs_f64();
        let note = format!("{} of {}", time(both), time(all));
        self.share_at_stake(ScoreKind::Overlap, share, note, alone)
    }

    fn small_kernels(&self) -> Known {
        let least = self.targets.thresholds.get_small_kernel();
        let (mut small, mut all) = ((0_u64, Duration::ZERO), (0_u64, Duration::ZERO));
        for kernel in self.query().kernels().iter() {
            let Some(spent) = kernel.interval().map(|time| Duration::from_nanos(time.ns())) else {
                continue;
            };
            all = (all.0 + 1, all.1.saturating_add(spent));
            if spent < least {
                small = (small.0 + 1, small.1.saturating_add(spent));
            }
        }
        if all.1.is_zero() {
            return Not("no kernel with a time was recorded".to_owned());
        }
        let share = small.1.as_secs_f64() / all.1.as_secs_f64();
        let note = format!(
            "{} of {}; {} of {} kernels take less than {}",
            time(small.1),
            time(all.1),
            small.0,
            all.0,
            time(least)
        );
        Is(share, note)
    }

    fn occupancy(&self) -> Known {
        let shapes = launches::launch_shapes(&self.query(), &Classifier::new());
        if shapes.gpu_time().is_zero() {
            return Not(match shapes.unknown() {
                0 => "no kernel with a time was recorded".to_owned(),
                _ => "the limits of the device are unknown".to_owned(),
            });
        }
        let note = match shapes.unknown() {
            0 => format!("by time, of {} in kernels", time(shapes.gpu_time())),
            unknown => format!("by time; {unknown} launches on unknown devices are left out"),
        };
        Is(shapes.mean_occupancy(), note)
    }

    fn tensor_cores(&self) -> Known {
        let tensor_cores = tensor_cores::tensor_cores(&self.query(), &Classifier::new());
        let summary = tensor_cores.summary();
        let Some(share) = summary.utilization() else {
            return Not(match summary.unknown_time {
                Duration::ZERO => "nothing that they could do was found".to_owned(),
                unknown => format!("nothing they could do was found; {} not known", time(unknown)),
            });
        };
        let (using, eligible) = (summary.tc_time, summary.decided_time());
        let is_f32 = |(remedy, _): &(TcRemedy, Duration)| {
            matches!(remedy, TcRemedy::AllowTf32 | TcRemedy::MixedPrecision)
        };
        let has_f32 = tensor_cores.remedies().iter().any(is_f32);
        let of_f32 = if has_f32 { ", of f32 among them" } else { "" };
        let note = format!("{} of {} in products{of_f32}", time(using), time(eligible));
        let rest = eligible.saturating_sub(using);
        self.share_at_stake(ScoreKind::TensorCores, share, note, rest)
    }

    fn of_roof(&self) -> Known {
        let Some(peaks) = self.targets.peaks.clone().or_else(|| peaks::peaks(self.profile, None))
        else {
            return Not("the recording does not describe its device".to_owned());
        };
        let roofline = roofline(self.profile, &peaks, &Declared::new());
        if roofline.points.is_empty() {
            return Not("no range declared its work".to_owned());
        }
        let (mut ideal, mut spent, mut lowest) = (0.0, 0.0, None::<(f64, &str)>);
        let mut without = 0;
        for point in &roofline.points {
            let Some(share) = point.of_roof() else {
                without += 1;
                continue;
            };
            let seconds = point.gpu_time.as_secs_f64();
            // A share above the roof means cached data or too low a roof; the excess must not
            // improve other ranges.
            ideal += share.min(1.0) * seconds;
            spent += seconds;
            if lowest.is_none_or(|(least, _)| share < least) {
                lowest = Some((share, &point.name));
            }
        }
        let Some((share, name)) = lowest.filter(|_| spent > 0.0) else {
            return Not("no roof is known for the work that was declared".to_owned());
        };
        let name = shortened(name, NAME_WIDTH / 2);
        let note = format!("lowest {:.0} %: {name}", 100.0 * share);
        Is(
            ideal / spent,
            match without {
                0 => note,
                _ => format!("{note}; {without} without a known roof"),
            },
        )
    }

    fn estimate(&self) -> Known {
        // Among equal estimates the finding, which has a location.
        let all = self.findings().chain(self.causes());
        let largest = all.fold(None, |largest: Option<Fix>, next| match largest {
            Some(largest) if largest.estimate >= next.estimate => Some(largest),
            _ => Some(next),
        });
        match largest {
            Some(largest) => {
                let certainty = certainty(largest.is_bound);
                let note = format!("{certainty}, {}: {}", largest.assumption, largest.what);
                self.of_clock(largest.estimate, note)
            }
            None => self.of_clock(1.0, "nothing to mend was found".to_owned()),
        }
    }

    /// All causes except GPU work, the verdict's first.
    fn causes(&self) -> impl Iterator<Item = Fix> {
        let causes = self.verdict.causes.iter();
        causes.filter(|cause| cause.bottleneck != Bottleneck::GpuCompute).map(Fix::from)
    }

    /// The findings to fix, costliest first.
    fn findings(&self) -> impl Iterator<Item = Fix> {
        fixable(self.verdict, &self.judged.findings).map(Fix::from)
    }
}

fn sum(times: impl Iterator<Item = Duration>) -> Duration {
    times.fold(Duration::ZERO, Duration::saturating_add)
}
