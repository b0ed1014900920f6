//! Comparisons of two programs, or of two versions of one: work, times of kernels, and the largest cost of each side.
//! The function [`compare`] has an example.

mod clocks;
mod leaders;
mod page;
mod text;
mod tree;

use std::rc::Rc;

use serde::Serialize;

use crate::base::hodges_lehmann::{MOST, Ranks, Ratios, blocks, median, midmean};
use crate::base::named_variants::named_variants;
use crate::join::health::Health;
use crate::profile::Profile;
use crate::profile::profiles::Profiles;
use crate::record::recording::RecordingInfo;
pub use clocks::{ClockWarning, Side};
pub use leaders::{Leader, LeaderChange};

/// Runs of a side from which on a run is one value, as it should be.
const RUNS: usize = 5;

/// Compares what was with what is, kernels of one name and shape together wherever they were launched:
/// [`Compare::between`] without settings.
///
/// ```no_run
/// use profiler_core::{Profile, compare};
///
/// # fn main() -> Result<(), profiler_core::Error> {
/// let (before, after) = (Profile::load("main.gpuprof")?, Profile::load("branch.gpuprof")?);
/// let comparison = compare(&before, &after);
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

/// How to compare.
#[derive(Debug, Clone)]
#[must_use = "nothing is compared until `between` is called"]
pub struct Compare {
    by_range: bool,
    confidence: f64,
    margin: f64,
}

impl Default for Compare {
    fn default() -> Self {
        Self::new()
    }
}

impl Compare {
    /// With kernels by name and shape, bounds at a confidence of 99 %, and a margin of 1 %.
    pub fn new() -> Self {
        Self { by_range: false, confidence: 0.99, margin: 0.01 }
    }

    /// Kernels of each range by themselves.
    pub fn by_range(mut self, by_range: bool) -> Self {
        self.by_range = by_range;
        self
    }

    /// How sure the bounds of each time are, from 0 to 1; 0.99 if not told. It is that of one time: among hundred times that
    /// are the same, one is said to differ, but for the [margin](Self::margin).
    pub fn confidence(mut self, confidence: f64) -> Self {
        self.confidence = if confidence.is_finite() { confidence.clamp(0.0, 1.0) } else { 1.0 };
        self
    }

    /// By more than which part a time has to have changed for certain to be called [clear](TimeShift::is_clear); 0.01 if not
    /// told. It should be more than what differs between processes: on an H200 that was up to 0.6 %.
    pub fn margin(mut self, part: f64) -> Self {
        self.margin = if part.is_finite() { part.max(0.0) } else { 0.0 };
        self
    }

    /// Compares runs with runs: one of each, or several.
    ///
    /// Ranges are matched by path and domain, kernels by name, grid and block. Counts are those of a run: the median of
    /// several, which is exact where they agree ([`Change::varies`]). Times are compared one by one, instance by instance
    /// ([`TimeShift`]). With five runs or more on each side a run is one value, and what differs between runs is in the bounds; with
    /// fewer, instances that follow each other make a value, and what differs between runs is not.
    ///
    /// Costs a pass over the operations of each run, and for each range and different kernel the sorting of 4,096 ratios at most.
    pub fn between<A, B>(&self, before: &A, after: &B) -> Comparison
    where
        A: Profiles + ?Sized,
        B: Profiles + ?Sized,
    {
        let sides = [before.profiles(), after.profiles()];
        let changes = tree::changes(sides, self);
        Comparison {
            before: sides[0].iter().map(Compared::of).collect(),
            after: sides[1].iter().map(Compared::of).collect(),
            counts_differ: changes
                .iter()
                .any(|change| change.differs() && !change.quantity.is_time()),
            confidence: self.confidence,
            leaders: leaders::of(sides),
            clock_warnings: clocks::warnings(sides),
            changes,
        }
    }

    /// Of the times of each run, in the order they were measured.
    fn shift(&self, sides: [&[Vec<u64>]; 2], ranks: &mut Ranks) -> Option<TimeShift> {
        let by_run = sides.iter().all(|runs| runs.len() >= RUNS);
        let samples = sides.map(|runs| match by_run {
            true => {
                let runs = runs.iter().filter(|times| !times.is_empty());
                runs.map(|times| midmean(&mut times.clone())).take(MOST).collect()
            }
            false => blocks(&runs.concat(), MOST),
        });
        let [before, after] = &samples;
        let ratios = Ratios::of(before, after);
        let ratio = ratios.estimate()?;
        let (low, high) = ratios.bounds(ranks, (1.0 - self.confidence) / 2.0);
        let single = sides.map(|runs| {
            let mut times: Vec<f64> = runs.iter().flatten().map(|&ns| ns as f64).collect();
            let middle = middle(&mut times);
            times.iter_mut().for_each(|ns| *ns = (*ns - middle).abs());
            let deviation = self::middle(&mut times);
            SingleTimes { count: times.len() as u64, median_ns: middle, deviation_ns: deviation }
        });
        let is_clear = low > 1.0 + self.margin || high < 1.0 - self.margin;
        let high = high.is_finite().then_some(high);
        let [before, after] = single;
        Some(TimeShift { before, after, ratio, low, high, is_clear, by_run })
    }
}

fn middle(times: &mut [f64]) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    median(times).unwrap_or(0.0)
}

/// What two sides came to. Made by [`compare`]. `{}` is tables for people, at most 40 rows each.
#[derive(Debug, Clone, Serialize)]
#[must_use = "a comparison is to be looked at"]
pub struct Comparison {
    before: Vec<Compared>,
    after: Vec<Compared>,
    counts_differ: bool,
    confidence: f64,
    #[serde(rename = "bottlenecks")]
    leaders: Vec<LeaderChange>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    clock_warnings: Vec<ClockWarning>,
    #[serde(rename = "rows")]
    changes: Vec<Change>,
}

impl Comparison {
    /// Every quantity of everything, every range and every kernel, the same ones too. Counts stand before times.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The leaders before and after: of kernels, kinds of work, and causes of idle time.
    pub fn leaders(&self) -> &[LeaderChange] {
        &self.leaders
    }

    /// Why times differ for another reason than the program, where clocks [were sampled](crate::Sampling::nvml): throttled, or at
    /// another speed. Empty if nothing says so, and if no side was sampled.
    pub fn clock_warnings(&self) -> &[ClockWarning] {
        &self.clock_warnings
    }

    /// The runs that were.
    pub fn before(&self) -> &[Compared] {
        &self.before
    }

    /// The runs that are.
    pub fn after(&self) -> &[Compared] {
        &self.after
    }

    /// True if any count is another, which is exact where nothing was lost. Of several runs medians are compared: runs that
    /// differ among themselves may have the same one ([`Change::varies`] says of which counts that is so).
    pub fn counts_differ(&self) -> bool {
        self.counts_differ
    }

    /// Counts that are not the same in all runs of a side.
    fn varying_counts(&self) -> usize {
        self.changes.iter().filter(|row| row.varies && !row.quantity.is_time()).count()
    }

    /// True if nothing was lost in any run; of what is lost it is not known on which side it would be.
    pub fn is_complete(&self) -> bool {
        self.before.iter().chain(&self.after).all(|run| run.is_complete)
    }
}

/// One run of a comparison.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Compared {
    /// Where and when.
    pub info: RecordingInfo,
    /// Whether nothing was lost.
    pub is_complete: bool,
    /// What was.
    pub health: Health,
}

impl Compared {
    fn of(profile: &Profile) -> Self {
        let health = profile.health().clone();
        Self { info: profile.recording_info().clone(), is_complete: health.is_complete(), health }
    }
}

named_variants! {
    /// What is counted and measured in a comparison.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum Quantity in ALL {
        /// How often the range was entered.
        Instances = "instances",
        /// Launches of kernels and graphs.
        Launches = "launches",
        /// Kernels that ran.
        Kernels = "kernels",
        /// Copies that ran.
        Copies = "copies",
        /// Bytes they moved.
        CopyBytes = "copied",
        /// Memsets that ran.
        Memsets = "memsets",
        /// Calls that waited for the GPU.
        Synchronizations = "syncs",
        /// Time on the GPU, summed, in nanoseconds.
        GpuNs = "GPU time",
    }
}

impl Quantity {
    /// Measured, and not the same twice.
    pub fn is_time(self) -> bool {
        self == Self::GpuNs
    }
}

named_variants! {
    /// What a row of a comparison is about.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum ChangeKind {
        /// The whole profile.
        Everything = "everything",
        /// Calls and operations outside all ranges.
        OutsideRanges = "outside_ranges",
        /// A range, with what is within it.
        Range = "range",
        /// Kernels of one name and shape.
        Kernel = "kernel",
    }
}

named_variants! {
    /// On which side it is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum Presence {
        /// On both.
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

/// One quantity of one range, kernel or of everything.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Change {
    /// What it is about.
    pub kind: ChangeKind,
    /// On which side it is.
    pub status: Presence,
    /// The range's; `None` is the default one.
    pub domain: Option<Rc<str>>,
    /// Of a range, or of that in which a kernel was launched where they are told apart; else empty.
    pub path: Rc<str>,
    /// The kernel's name, without parameters.
    pub kernel: Option<Rc<str>>,
    /// Its shape.
    pub shape: Option<Shape>,
    /// Of a kernel that is new or gone, its only other shape on the other side, if it has one.
    pub reshaped: Option<Shape>,
    /// What is counted.
    pub quantity: Quantity,
    /// In a run, before.
    pub before: u64,
    /// In a run, after.
    pub after: u64,
    /// By how much it grew.
    pub change: i64,
    /// In percent of before. None from nothing.
    pub percent: Option<f64>,
    /// True if the runs of a side are not the same: then these are medians.
    pub varies: bool,
    /// Of a time, the single ones beside each other: kernels, or instances of the range.
    pub times: Option<TimeShift>,
}

impl Change {
    /// True if both sides are not the same.
    pub fn differs(&self) -> bool {
        self.before != self.after
    }

    /// True if it grew by more than so many percent; from nothing is more than any.
    pub fn grew_above(&self, percent: f64) -> bool {
        self.after > self.before && self.percent.is_none_or(|grown| grown > percent)
    }
}

/// Many times of one thing beside many others.
///
/// The factor is the median of all ratios of a time after to one before (Hodges and Lehmann), its bounds are of ranks
/// (Mann and Whitney): they assume nothing of how times are distributed, but that each side's are independent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TimeShift {
    /// Those that were.
    pub before: SingleTimes,
    /// Those that are.
    pub after: SingleTimes,
    /// By what factor they changed.
    pub ratio: f64,
    /// Not below this, at the comparison's confidence; 0 if there are too few to say.
    pub low: f64,
    /// Not above this; `None` if there are too few to say.
    pub high: Option<f64>,
    /// True if the bounds leave no doubt that it changed by more than the [margin](Compare::margin).
    pub is_clear: bool,
    /// True if each run is one value, so that the bounds hold for what differs between runs.
    pub by_run: bool,
}

/// Times of one side.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SingleTimes {
    /// How many, in all runs.
    pub count: u64,
    /// Their median, in nanoseconds.
    pub median_ns: f64,
    /// The median of how far each is from it.
    pub deviation_ns: f64,
}
