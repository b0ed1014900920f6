//! Comparisons of two programs or versions: wall time and the causes of its change, work, kernel
//! times, and the largest cost of each side. [`compare`] has an example.

mod clocks;
mod comparable;
mod leaders;
mod page;
mod phases;
mod stalls;
mod text;
mod tree;
pub(crate) mod wall;

use std::rc::Rc;
use std::time::Duration;

use profiler_base::hodges_lehmann::{Factor, MOST, Ranks, blocks, midmean};
use profiler_base::statistics::median_and_deviation;
use profiler_base::units::duration;
use profiler_base::{getters, named_variants, setters};
use serde::Serialize;

use crate::running_numbers::{NodeNames, Purpose};
use crate::speed::Speed;
pub(crate) use clocks::ClockFactors;
pub use clocks::{ClockWarning, Side};
pub use comparable::Undecidable;
pub(crate) use comparable::{DeviceCounts, RangeWork, Work, active_entries, span};
use leaders::{Leader, LeaderChange};
use phases::PhaseChange;
use profiler_core::Health;
use profiler_core::profile::Profiles;
use profiler_core::profile::RecordingInfo;
use profiler_core::profile::{Profile, Track};
use profiler_core::series::{Kind, Unit};
use stalls::StallChange;
use wall::CauseChange;
pub use wall::{Contribution, Explanation, WallCause, WallChange};
use wall::{HOST_VARIATION, ProcessKey, RangeKey, WallRun, WallSide};

/// The minimum runs of a side for one value per run.
const RUNS: usize = 5;

/// Compares two sides with the defaults of [`Compare`]: kernels by name and shape, in any range.
///
/// ```no_run
/// use profiler_analysis::compare;
/// use profiler_core::Profile;
///
/// # fn main() -> Result<(), profiler_analysis::Error> {
/// let (before, after) = (Profile::load("main.gpuprof")?, Profile::load("branch.gpuprof")?);
/// let comparison = compare(&before, &after);
/// println!("{}", comparison.wall().headline());
/// println!("{comparison}");
/// std::fs::write("comment.md", comparison.to_markdown()).ok();
/// # Ok(())
/// # }
/// ```
pub fn compare<A, B>(before: &A, after: &B) -> Comparison
where
    A: Profiles + ?Sized,
    B: Profiles + ?Sized,
{
    Compare::new().between(before, after)
}

/// The settings of a comparison.
#[derive(Debug, Clone)]
#[must_use = "nothing is compared until `between` is called"]
pub struct Compare {
    by_range: bool,
    confidence: f64,
    margin: f64,
    run_variation: Option<f64>,
    paired: bool,
    any_work: bool,
}

impl Default for Compare {
    fn default() -> Self {
        Self::new()
    }
}

impl Compare {
    /// Kernels by name and shape, bounds at 99 % confidence and a margin of 1 %.
    pub fn new() -> Self {
        Self {
            by_range: false,
            confidence: 0.99,
            margin: 0.01,
            run_variation: None,
            paired: false,
            any_work: false,
        }
    }

    setters! {
        /// Sets if the kernels of each range are separated.
        by_range(by_range: bool) by_range = by_range;
        /// Sets the confidence of the bounds of each time, from 0 to 1; 0.99 by default. At 0.99,
        /// one in a hundred equal times differs by chance, except within the
        /// [margin](Self::margin).
        confidence(confidence: f64) confidence =
            if confidence.is_finite() { confidence.clamp(0.0, 1.0) } else { 1.0 };
        /// Sets the relative change that a time must certainly exceed to be
        /// [clear](TimeShift::is_clear); 0.01 by default. It should exceed the difference between
        /// processes: up to 0.6 % on an H200.
        margin(part: f64) margin = if part.is_finite() { part.max(0.0) } else { 0.0 };
        /// Sets the share by which wall times and host times differ between processes, for a side
        /// with fewer than five. The default follows from the use of the time: 2 % of GPU time and
        /// 50 % of the rest. Five processes per side replace the assumption by a measurement.
        run_variation(part: f64) run_variation = part.is_finite().then_some(part.max(0.0));
        /// Sets if the runs of both sides are pairs, measured alternately: the first before with
        /// the first after, and so on. Drift over minutes, such as a temperature, then has no
        /// effect. Needs the same number of runs on each side, and eight to measure their variation
        /// at 99 %.
        paired(paired: bool) paired = paired;
        /// Sets if wall times are compared although the runs did different work. Different work
        /// means one of:
        ///
        /// - An outermost range was entered more often on one side, or is missing there
        ///   ([`Undecidable::OtherWork`]).
        /// - An outermost range has GPU work less often ([`Undecidable::WorkMissing`]).
        /// - A GPU has no work on one side ([`Undecidable::DeviceCount`]).
        /// - The kernels differ ([`Undecidable::OtherKernels`]).
        any_work(any_work: bool) any_work = any_work;
    }

    /// Compares one or more runs of each side.
    ///
    /// Ranges are matched by path and domain, kernels by name, grid and block. Ranges whose names
    /// differ only in [running numbers](crate::prelude::ProfileExt::with_grouped_numbers) are one
    /// range. A number whose values occur once in each run is running if it has many values, or
    /// different ones in each run. Counts are per run: the median of several runs, exact if they
    /// agree ([`Change::varies`]).
    ///
    /// Times are compared one by one, instance by instance ([`TimeShift`]). With five or more runs
    /// on each side, a run is one value, and the bounds include the variation between runs. With
    /// fewer, several consecutive instances form a value, and the bounds exclude that variation.
    /// For wall times and host times a process is one value: they differ more between processes
    /// than between the runs of one process.
    ///
    /// Costs a pass over each run's operations, and a sort of up to 4,096 ratios for each subject.
    pub fn between<A, B>(&self, before: &A, after: &B) -> Comparison
    where
        A: Profiles + ?Sized,
        B: Profiles + ?Sized,
    {
        let sides = [before.profiles(), after.profiles()];
        let clock_warnings = clocks::warnings(sides);
        let clocks = ClockFactors::of_warnings(&clock_warnings);
        let processes = sides.map(|runs| {
            let keys: Vec<ProcessKey> = runs.iter().map(ProcessKey::from_profile).collect();
            ProcessKey::groups(keys.iter())
        });
        // Both sides together: ranges that differ only in running numbers are the same range.
        let mut of_before = NodeNames::new(sides.into_iter().flatten(), Purpose::Comparison);
        let of_after = of_before.split_off(sides[0].len());
        let names = [of_before, of_after];
        let changes = tree::changes(sides, &names, self, &Machine { clocks, processes });
        Comparison {
            before: sides[0].iter().map(Compared::new).collect(),
            after: sides[1].iter().map(Compared::new).collect(),
            counts_differ: changes
                .iter()
                .any(|change| change.differs() && !change.quantity.is_time()),
            confidence: self.confidence,
            leaders: leaders::leader_changes(sides),
            wall: self.wall(sides, &names, clocks),
            phases: phases::changes(sides),
            stalls: stalls::changes(sides),
            clock_warnings,
            changes,
        }
    }

    fn wall(
        &self,
        sides: [&[Profile]; 2],
        names: &[Vec<NodeNames>; 2],
        clocks: Option<ClockFactors>,
    ) -> WallChange {
        let wall_runs = |at: usize| {
            let runs = sides[at].iter().zip(&names[at]);
            runs.map(|(profile, names)| wall_run(profile, names)).collect::<Vec<_>>()
        };
        let runs = [wall_runs(0), wall_runs(1)];
        // Captures have no session: with one on either side, all wall times are of recorded
        // activity.
        let is_session = runs.iter().flatten().all(|run| run.session.is_some());
        let [before, after] = runs.each_ref().map(|runs| WallSide::from_runs(runs, is_session));
        let undecidable = comparable::undecidable(sides, names, self);
        wall::change([&before, &after], self, clocks, undecidable)
    }

    /// Compares times of runs, given in the order of measurement. With enough runs, a run is one
    /// value; for host times, a process. Too few processes do not show their variation, which is
    /// then assumed.
    fn shift(
        &self,
        sides: [&[Vec<u64>]; 2],
        quantity: Quantity,
        machine: &Machine,
        ranks: &mut Ranks,
    ) -> Option<TimeShift> {
        let is_host = quantity == Quantity::HostNs;
        let by_run = match is_host {
            true => machine.processes.iter().all(|processes| processes.len() >= RUNS),
            false => sides.iter().all(|runs| runs.len() >= RUNS),
        };
        let of_process = |runs: &[Vec<u64>], process: &Vec<usize>| {
            process.iter().flat_map(|run| runs[*run].iter().copied()).collect::<Vec<u64>>()
        };
        let mut samples: [Vec<f64>; 2] = Default::default();
        for ((samples, runs), processes) in samples.iter_mut().zip(sides).zip(&machine.processes) {
            let values: Vec<Vec<u64>> = match is_host {
                true => processes.iter().map(|process| of_process(runs, process)).collect(),
                false => runs.to_vec(),
            };
            *samples = match by_run {
                true => {
                    let values = values.iter().filter(|times| self.paired || !times.is_empty());
                    values.map(|times| midmean(&mut times.clone())).take(MOST).collect()
                }
                false => blocks(&runs.concat(), MOST),
            };
        }
        let paired = self.paired && by_run && samples[0].len() == samples[1].len();
        let samples = samples.each_ref().map(Vec::as_slice);
        let mut factor = Factor::estimate(samples, paired, (1.0 - self.confidence) / 2.0, ranks)?;
        if let Some(clocks) = machine.clocks {
            factor = clocks.widen(factor);
        }
        if is_host && !by_run {
            factor = factor.widened_by(1.0 + self.run_variation.unwrap_or(HOST_VARIATION));
        }
        let single = sides.map(|runs| {
            let times: Vec<f64> = runs.iter().flatten().map(|&ns| ns as f64).collect();
            let (median_ns, deviation_ns) = median_and_deviation(&times).unwrap_or_default();
            SingleTimes { count: times.len() as u64, median_ns, deviation_ns }
        });
        let Factor { ratio, low, high } = factor;
        let is_clear = Speed::from_factor(&factor, self.margin, None) != Speed::Undecided;
        let high = high.is_finite().then_some(high);
        let [before, after] = single;
        Some(TimeShift { before, after, ratio, low, high, is_clear, by_run })
    }
}

/// A run with its ranges by path and domain.
fn wall_run(profile: &Profile, names: &NodeNames) -> WallRun {
    let nowhere = RangeKey { path: "".into(), domain: None };
    let mut keys = vec![nowhere; profile.range_tree().nodes.len()];
    for (_, node) in profile.walk() {
        let domain = node.domain().map(Rc::from);
        keys[node.id().at()] = RangeKey { path: names.cut_path(&node).into(), domain };
    }
    WallRun::new(profile, &keys)
}

/// The differences between both sides' times that occur without a change of the program.
struct Machine {
    clocks: Option<ClockFactors>,
    /// The runs of each process of each side.
    processes: [Vec<Vec<usize>>; 2],
}

/// The result of [`compare`]. `{}` is text tables with at most 40 rows each;
/// [`all_rows`](crate::prelude::DisplayOptions::all_rows) prints all.
#[derive(Debug, Clone, Serialize)]
#[must_use = "a comparison is to be looked at"]
pub struct Comparison {
    before: Vec<Compared>,
    after: Vec<Compared>,
    counts_differ: bool,
    confidence: f64,
    wall: WallChange,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    phases: Vec<PhaseChange>,
    /// Empty without instruction samples on both sides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stalls: Vec<StallChange>,
    #[serde(rename = "bottlenecks")]
    leaders: Vec<LeaderChange>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    clock_warnings: Vec<ClockWarning>,
    #[serde(rename = "rows")]
    changes: Vec<Change>,
}

impl Comparison {
    getters! {
        /// The change of wall time, with the ranges and causes that explain it.
        wall: &WallChange = wall;
        /// Every quantity of the profile, each range and each kernel, also equal ones; times first.
        changes: &[Change] = changes;
        /// Reasons for different times other than the program: throttling or different clocks.
        /// Known only if clocks [were sampled](profiler_core::Sampling::nvml), else empty.
        clock_warnings: &[ClockWarning] = clock_warnings;
        /// True if a count differs; exact if nothing was lost. Medians of several runs are
        /// compared, so runs that differ may have equal ones ([`Change::varies`]).
        counts_differ: bool = counts_differ;
    }

    /// Counts that differ between runs of a side.
    fn varying_counts(&self) -> usize {
        self.changes.iter().filter(|row| row.varies && !row.quantity.is_time()).count()
    }

    /// The number of runs before and after.
    pub fn runs(&self) -> [usize; 2] {
        [self.before.len(), self.after.len()]
    }

    /// True if nothing was lost in any run.
    pub fn is_complete(&self) -> bool {
        self.before.iter().chain(&self.after).all(|run| run.is_complete)
    }
}

/// One run of a comparison.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Compared {
    /// The recording's time and machine.
    pub(crate) info: RecordingInfo,
    /// True if nothing was lost.
    pub(crate) is_complete: bool,
    /// The losses.
    pub(crate) health: Health,
    /// The energy of its devices in joules, if [sampled](profiler_core::Sampling::nvml).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) energy_j: Option<f64>,
}

impl Compared {
    fn new(profile: &Profile) -> Self {
        let health = profile.health().clone();
        let tracks = profile.tracks();
        let energy = tracks.filter(|of| of.unit() == Unit::Joules && of.kind() == Kind::Total);
        let all = |of: Track<'_>| of.sum(Duration::ZERO, Duration::MAX).map(|sum| sum.value);
        Self {
            info: profile.recording_info().clone(),
            is_complete: health.is_complete(),
            energy_j: energy.filter_map(all).reduce(|sum, one| sum + one),
            health,
        }
    }
}

named_variants! {
    /// A quantity of a comparison.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum Quantity in ALL {
        /// Time of the host in the range, in nanoseconds, summed over its instances.
        HostNs = "host time" and "Host Time (ns)",
        /// Time in which the GPU worked for the subject, in nanoseconds. Concurrent operations
        /// count once, collectives do not count.
        BusyNs = "busy time" and "Busy Time (ns)",
        /// Time on the GPU, summed over operations, in nanoseconds.
        GpuNs = "GPU time" and "GPU Time (ns)",
        /// Entries into the range.
        Instances = "instances" and "Instances",
        /// Launches of kernels and graphs.
        Launches = "launches" and "Launches",
        /// Kernels that ran.
        Kernels = "kernels" and "Kernels",
        /// Calls that waited for the GPU.
        Synchronizations = "syncs" and "Syncs",
        /// Copies that ran.
        Copies = "copies" and "Copies",
        /// Memsets that ran.
        Memsets = "memsets" and "Memsets",
        /// Bytes that copies moved.
        CopyBytes = "copied" and "Copied (bytes)",
    }
}

impl Quantity {
    /// The times, in the order of [`ALL`](Self::ALL).
    const TIMES: [Self; 3] = [Self::HostNs, Self::BusyNs, Self::GpuNs];

    /// True for times, which vary between runs.
    pub fn is_time(self) -> bool {
        Self::TIMES.contains(&self)
    }
}

named_variants! {
    /// The subject of a row.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum ChangeKind {
        /// The whole profile.
        Everything = "everything",
        /// Calls and operations outside all ranges.
        OutsideRanges = "outside_ranges",
        /// A range with the ranges within it.
        Range = "range",
        /// Kernels of one name and shape.
        Kernel = "kernel",
    }
}

named_variants! {
    /// The sides with the subject.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub(crate) enum Presence {
        /// Both sides.
        Both = "both",
        /// Only after.
        New = "new",
        /// Only before.
        Gone = "gone",
    }
}

/// Blocks and threads of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[non_exhaustive]
pub struct Shape {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads in a block in x, y, z.
    pub block: [u32; 3],
}

/// A quantity of the profile, a range or a kernel.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Change {
    /// The kind of subject.
    pub kind: ChangeKind,
    /// The sides with the subject.
    pub(crate) status: Presence,
    /// The range's domain; `None` for the default domain.
    pub domain: Option<Rc<str>>,
    /// The path of the range; for a kernel, its range if kernels are separated, else empty.
    pub path: Rc<str>,
    /// The kernel's name, without parameters.
    pub kernel: Option<Rc<str>>,
    /// Its shape.
    pub shape: Option<Shape>,
    /// The only other shape of a new or gone kernel on the other side, if any.
    pub reshaped: Option<Shape>,
    /// The quantity.
    pub quantity: Quantity,
    /// The value of a run before.
    pub before: u64,
    /// The value of a run after.
    pub after: u64,
    /// The difference.
    pub change: i64,
    /// The difference in percent of `before`; `None` for an increase from 0.
    pub percent: Option<f64>,
    /// True if runs of a side differ: the values are then medians.
    pub varies: bool,
    /// The single times of kernels or instances, for a quantity that is a time.
    pub times: Option<TimeShift>,
}

impl Change {
    /// True if only the side after has the subject.
    pub fn is_new(&self) -> bool {
        self.status == Presence::New
    }

    /// True if only the side before has the subject.
    pub fn is_gone(&self) -> bool {
        self.status == Presence::Gone
    }

    /// True if the values differ.
    pub fn differs(&self) -> bool {
        self.before != self.after
    }

    /// True if it grew by more than this percentage; always true for an increase from 0.
    pub fn grew_above(&self, percent: f64) -> bool {
        self.after > self.before && self.percent.is_none_or(|grown| grown > percent)
    }
}

/// The shift between two sets of times.
///
/// The factor is the Hodges-Lehmann estimate: the median of all ratios of a time after to a time
/// before. Its bounds are by ranks (Mann and Whitney) and assume only independent times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TimeShift {
    /// The times before.
    pub before: SingleTimes,
    /// The times after.
    pub after: SingleTimes,
    /// The factor of the change.
    pub ratio: f64,
    /// The lower bound at the comparison's confidence; 0 with too few times.
    pub low: f64,
    /// The upper bound; `None` with too few times.
    pub high: Option<f64>,
    /// True if the bounds show a change by more than the [margin](Compare::margin).
    pub is_clear: bool,
    /// True if each run is one value: the bounds then include the variation between runs.
    pub by_run: bool,
}

/// Times of one side.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SingleTimes {
    /// The number of times in all runs.
    pub count: u64,
    // Not rounded: the median of an even number of times may have a half.
    median_ns: f64,
    deviation_ns: f64,
}

impl SingleTimes {
    /// Their median, in whole nanoseconds.
    pub fn median(&self) -> Duration {
        duration(self.median_ns)
    }

    /// The median of their distances from it, in whole nanoseconds.
    pub fn deviation(&self) -> Duration {
        duration(self.deviation_ns)
    }
}
