//! Summaries: sums and distributions of ranges and kernels, for sessions without operations.

use std::fmt;
use std::time::Duration;

use cupti::CopyKind;
use profiler_base::display::{DisplayOptions, Layout};
use profiler_base::display_by_default_layout;
use profiler_base::distribution::Distribution;
use profiler_base::kernel_names::{Pattern, label, overloaded};
use profiler_base::table::Table;
use profiler_base::units::time;
use profiler_base::{getters, order};
#[cfg(feature = "serde")]
use serde::ser::{Serialize, SerializeStruct as _, Serializer};

use crate::join::health::Health;
use crate::join::intern::Names;
use crate::join::streaming::StreamingJoin;
use crate::join::sums::{PathSums, ProcessSums, SumTables};
use crate::join::totals::Totals;
use crate::record::recording::RecordingInfo;

/// Sums of every range and kernel, from [`Profiler::summarize`](crate::Profiler::summarize).
///
/// ```no_run
/// use profiler_core::Profiler;
///
/// # fn serve() {}
/// # fn main() -> Result<(), profiler_core::Error> {
/// let summarizing = Profiler::builder().build()?.summarize()?;
/// serve();
/// let summary = summarizing.stop()?;
/// println!("{summary}");
/// for path in summary.paths() {
///     println!("{}: {} instances", path.path(), path.instances());
/// }
/// # Ok(())
/// # }
/// ```
///
/// `{}` prints tables for people; its JSON has an entry per path. Counts, sums and attribution are
/// exact, as in a [`Profile`](crate::Profile). There is one exception. A context attached after
/// 262,144 other ranges have ended since its own counts as outside all ranges, and in
/// [`Losses::calls_in_unknown_ranges`](crate::profile::Losses::calls_in_unknown_ranges). The same holds for a joined context after as many other
/// joins. Marks and process ranges are summed by name.
///
/// The number of names and paths is [bounded](crate::ProfilerBuilder::summary_rows). Further ones
/// are summed as `(other)` of their parent path and counted in [`Facts::summed_as_other`](crate::profile::Facts::summed_as_other). Totals
/// stay exact.
#[derive(Debug, Clone)]
pub struct Summary {
    info: RecordingInfo,
    duration: Duration,
    sums: SumTables,
    children: Vec<Vec<u32>>,
    inclusive: Vec<Totals>,
    replayed: Vec<Totals>,
    pub(crate) health: Health,
}

impl Summary {
    pub(crate) fn new(streaming: &StreamingJoin, info: RecordingInfo, duration: Duration) -> Self {
        let sums = streaming.sums.tables.clone();
        let paths = &sums.paths;
        let inclusive = sums.inclusive();
        let mut replayed: Vec<Totals> = paths.iter().map(|path| path.replayed).collect();
        // Parents precede their children.
        for (row, path) in paths.iter().enumerate().rev() {
            if let Some(parent) = path.parent {
                let replays = replayed[row];
                replayed[parent as usize] += replays;
            }
        }
        let mut children = vec![Vec::new(); paths.len()];
        for (row, path) in (0_u32..).zip(paths) {
            path.parent.into_iter().for_each(|parent| children[parent as usize].push(row));
        }
        let mut health = streaming.health.clone();
        health.facts.pending_ranges = streaming.ranges.len() as u64;
        Self { info, duration, sums, children, inclusive, replayed, health }
    }

    getters! {
        /// The machine, versions and time of the recording.
        recording_info: &RecordingInfo = info;
        /// The length of the session.
        duration: Duration = duration;
        /// Completeness and losses.
        health: &Health = health;
        /// The totals outside all ranges.
        outside_ranges: Totals = sums.outside.totals;
    }

    /// The totals of the session, in ranges and outside.
    pub fn totals(&self) -> Totals {
        let mut totals = self.sums.outside.totals;
        // Summing the roots would miss work that descendants submit after the end of their
        // ancestor.
        self.paths().for_each(|path| totals += path.exclusive());
        totals
    }

    /// All paths, parents before their children.
    pub fn paths(&self) -> impl Iterator<Item = PathSummary<'_>> {
        (0..self.sums.paths.len()).map(|row| PathSummary { summary: self, row })
    }

    /// The outermost paths.
    pub fn roots(&self) -> impl Iterator<Item = PathSummary<'_>> {
        self.paths().filter(|path| path.sums().parent.is_none())
    }

    /// The paths of this name or path, as in [`Profile::range`](crate::Profile::range).
    pub fn find(&self, path: &str) -> impl Iterator<Item = PathSummary<'_>> {
        let rows = self.sums.paths.iter().map(|path| (path.parent, self.sums.names.get(path.name)));
        let rows = rows.map(|(parent, name)| (parent.map(|parent| parent as usize), name));
        let matching = Pattern::new(path).matching(rows);
        self.paths().filter(move |path| matching[path.row])
    }

    /// Process ranges by name, in the order they first began.
    pub fn process_ranges(&self) -> impl Iterator<Item = ProcessRangeSummary<'_>> {
        self.sums
            .process_ranges
            .iter()
            .map(|sums| ProcessRangeSummary { names: &self.sums.names, sums })
    }

    /// Marks by name, in order of first occurrence: domain (`None` is the default), name, count.
    pub fn marks(&self) -> impl Iterator<Item = (Option<&str>, &str, u64)> {
        let name = |name| self.sums.names.get(name);
        self.sums.marks.iter().map(move |mark| (mark.domain.map(name), name(mark.name), mark.count))
    }

    /// All kernels with their times, in ranges and outside, by descending time.
    pub fn kernels(&self) -> Vec<(&str, Totals)> {
        let mut sums: std::collections::BTreeMap<&str, Totals> = Default::default();
        let own = self.sums.paths.iter().map(|path| &path.own).chain([&self.sums.outside]);
        for (name, times) in own.flat_map(|own| &own.kernels) {
            let sum = sums.entry(self.sums.names.get(*name)).or_default();
            sum.kernels += times.count();
            sum.kernel_ns = sum.kernel_ns.saturating_add(times.sum().as_nanos() as u64);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        order::sort_by_number(&mut sums, |(_, sum)| !sum.kernel_ns);
        sums
    }
}

/// All ranges of one path.
#[derive(Debug, Clone, Copy)]
pub struct PathSummary<'a> {
    summary: &'a Summary,
    row: usize,
}

impl<'a> PathSummary<'a> {
    fn sums(&self) -> &'a PathSums {
        &self.summary.sums.paths[self.row]
    }

    fn ancestors(&self) -> impl Iterator<Item = PathSummary<'a>> + use<'a> {
        std::iter::successors(self.parent(), |path| path.parent())
    }

    /// The ranges' name.
    pub fn name(&self) -> &'a str {
        self.summary.sums.names.get(self.sums().name)
    }

    /// The domain's name; `None` is the default domain.
    pub fn domain(&self) -> Option<&'a str> {
        self.sums().domain.map(|domain| self.summary.sums.names.get(domain))
    }

    /// The path with the names of all ancestors: `batch/forward`. Beyond 128 names, the first and
    /// last 64 with the number omitted between them: `…(7 more)…`.
    pub fn path(&self) -> String {
        let summary = self.summary;
        self.sums().level.path(self.row, |row| {
            let path = PathSummary { summary, row };
            std::iter::once(path).chain(path.ancestors()).map(|path| path.name())
        })
    }

    /// The parent path.
    pub fn parent(&self) -> Option<PathSummary<'a>> {
        let row = self.sums().parent? as usize;
        Some(PathSummary { summary: self.summary, row })
    }

    /// The child paths in the order they first began.
    pub fn children(&self) -> impl Iterator<Item = PathSummary<'a>> + use<'a> {
        let summary = self.summary;
        let children = summary.children[self.row].iter();
        children.map(move |&row| PathSummary { summary, row: row as usize })
    }

    getters! {
        /// The number of instances.
        instances: u64 = sums().begun;
        /// The totals without descendants.
        exclusive: Totals = sums().own.totals;
        /// Shared work that is attributed to others; see
        /// [`RangeSummary::shared`](crate::profile::RangeSummary::shared).
        shared: Totals = sums().shared;
    }

    /// Host times of instances that have ended.
    pub fn host_time(&self) -> &'a Distribution {
        &self.sums().host
    }

    /// The summed GPU time of each instance whose work is done, with descendants. In an always-on
    /// session, only instances whose work is entirely in windows.
    pub fn gpu_time(&self) -> &'a Distribution {
        &self.sums().gpu
    }

    /// The totals with descendants.
    pub fn inclusive(&self) -> Totals {
        self.summary.inclusive[self.row]
    }

    /// Executions of graph nodes created in the ranges and their descendants.
    pub fn replayed(&self) -> Totals {
        self.summary.replayed[self.row]
    }

    /// GPU times of kernels by mangled name, without descendants.
    pub fn kernels(&self) -> impl Iterator<Item = (&'a str, &'a Distribution)> + use<'a> {
        let names = &self.summary.sums.names;
        self.sums().own.kernels.iter().map(|(name, times)| (names.get(*name), times))
    }

    /// GPU times and bytes of copies by direction, without descendants.
    pub fn copies(&self) -> impl Iterator<Item = (CopyKind, &'a Distribution, u64)> + use<'a> {
        self.sums().own.copies.iter().map(|(kind, (times, bytes))| (*kind, times, *bytes))
    }
}

/// All process ranges of one name, such as the futures of one `async fn`.
#[derive(Debug, Clone, Copy)]
pub struct ProcessRangeSummary<'a> {
    names: &'a Names,
    sums: &'a ProcessSums,
}

impl<'a> ProcessRangeSummary<'a> {
    /// Their name.
    pub fn name(&self) -> &'a str {
        self.names.get(self.sums.name)
    }

    /// The domain's name; `None` is the default domain.
    pub fn domain(&self) -> Option<&'a str> {
        self.sums.domain.map(|domain| self.names.get(domain))
    }

    getters! {
        /// The number of starts.
        instances: u64 = sums.begun;
        /// The number of activations: thread ranges such as the polls of a future.
        activations: u64 = sums.activations;
        /// The totals of activations with descendants, which their paths' sums contain, too.
        inclusive: Totals = sums.totals;
    }

    /// The time from start to end of each ended instance. Activations may cover less.
    pub fn host_time(&self) -> &'a Distribution {
        &self.sums.host
    }

    /// The summed GPU time of each ended instance whose work is done. In an always-on session, only
    /// instances entirely in windows.
    pub fn gpu_time(&self) -> &'a Distribution {
        &self.sums.gpu
    }
}

#[cfg(feature = "serde")]
profiler_base::serialize_fields!(ProcessRangeSummary<'_>, "ProcessRangeSummary", |range| {
    "name": range.name(),
    "domain": range.domain(),
    "instances": range.instances(),
    "activations": range.activations(),
    "host": range.host_time(),
    "gpu": range.gpu_time(),
    "inclusive": range.inclusive(),
});

#[cfg(feature = "serde")]
#[derive(serde::Serialize)]
struct NamedMarks<'a> {
    name: &'a str,
    domain: Option<&'a str>,
    count: u64,
}

#[cfg(feature = "serde")]
profiler_base::serialize_fields!(Summary, "Summary", |summary| {
    "duration_ns": profiler_base::units::nanoseconds(summary.duration),
    "totals": summary.totals(),
    "outside": summary.sums.outside.totals,
    "paths": summary.paths().collect::<Vec<_>>(),
    "process_ranges": summary.process_ranges().collect::<Vec<_>>(),
    "marks": summary
        .marks()
        .map(|(domain, name, count)| NamedMarks { name, domain, count })
        .collect::<Vec<_>>(),
    "complete": summary.health.is_complete(),
    "health": summary.health,
});

#[cfg(feature = "serde")]
impl Serialize for PathSummary<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let kernels: std::collections::BTreeMap<&str, &Distribution> = self.kernels().collect();
        let shared = Some(self.shared()).filter(|shared| *shared != Totals::default());
        let mut fields =
            serializer.serialize_struct("PathSummary", 7 + usize::from(shared.is_some()))?;
        fields.serialize_field("path", &self.path())?;
        fields.serialize_field("instances", &self.instances())?;
        fields.serialize_field("host", self.host_time())?;
        fields.serialize_field("gpu", self.gpu_time())?;
        fields.serialize_field("inclusive", &self.inclusive())?;
        fields.serialize_field("exclusive", &self.exclusive())?;
        if let Some(shared) = shared {
            fields.serialize_field("shared", &shared)?;
        }
        fields.serialize_field("kernels", &kernels)?;
        fields.end()
    }
}

/// Rows of the kernel table.
const KERNELS: usize = 12;

fn time_and_counts(totals: &Totals) -> impl Iterator<Item = String> {
    let counts = [totals.launches, totals.kernels, totals.copies, totals.synchronizations];
    [time(totals.gpu_time())].into_iter().chain(counts.map(|count| count.to_string()))
}

impl DisplayOptions for Summary {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "GPU summary: {}", self.info)?;
        writeln!(f, "{} summed up", time(self.duration))?;
        let mut header = vec!["range", "times", "host mean", "host p99", "GPU mean", "GPU p99"];
        header.extend(["GPU time", "launches", "kernels", "copies", "syncs"]);
        let has_shared = self.sums.paths.iter().any(|path| path.shared != Totals::default());
        let shared = has_shared.then_some("shared GPU");
        header.extend(shared);
        let mut ranges = Table::new(header, 1);
        for path in self.paths() {
            let totals = path.inclusive();
            let mut row = vec![path.path()];
            row.push(path.instances().to_string());
            for times in [path.host_time(), path.gpu_time()] {
                row.extend([time(times.mean()), time(times.percentile(99.0))]);
            }
            row.extend(time_and_counts(&totals));
            row.extend(shared.map(|_| time(path.shared().gpu_time())));
            ranges.add_row(row);
        }
        let outside = self.sums.outside.totals;
        if outside != Totals::default() {
            let mut row = vec!["(outside any range)".to_owned()];
            row.extend([const { String::new() }; 5]);
            row.extend(time_and_counts(&outside));
            ranges.add_row(row);
        }
        writeln!(f, "\n{}\n", ranges.render(layout))?;
        if !self.sums.process_ranges.is_empty() {
            let mut header = vec!["range of the process", "times", "activations", "host mean"];
            header.extend(["host p99", "GPU mean", "GPU p99", "GPU time", "kernels"]);
            let mut ranges = Table::new(header, 1);
            for range in self.process_ranges() {
                let mut row = vec![range.name().to_owned()];
                row.extend([range.instances().to_string(), range.activations().to_string()]);
                for times in [range.host_time(), range.gpu_time()] {
                    row.extend([time(times.mean()), time(times.percentile(99.0))]);
                }
                let totals = range.inclusive();
                row.extend([time(totals.gpu_time()), totals.kernels.to_string()]);
                ranges.add_row(row);
            }
            writeln!(f, "{}\n", ranges.render(layout))?;
        }
        if !self.sums.marks.is_empty() {
            let mut marks = Table::new(["mark", "times"], 1);
            for (_, name, count) in self.marks() {
                marks.add_row([name.to_owned(), count.to_string()]);
            }
            writeln!(f, "{}\n", marks.render(layout))?;
        }
        let mut kernels = Table::new(["kernel", "count", "GPU time", "mean"], 1);
        let sums = self.kernels();
        let overloads = overloaded(sums.iter().map(|(name, _)| (*name, *name, None)));
        for (name, sum) in sums.into_iter().take(KERNELS) {
            let mean = sum.kernel_time() / u32::try_from(sum.kernels.max(1)).unwrap_or(u32::MAX);
            let name = label(name, None, overloads.contains(name));
            kernels.add_row([name, sum.kernels.to_string(), time(sum.kernel_time()), time(mean)]);
        }
        writeln!(f, "{}\n", kernels.render(layout))?;
        write!(f, "health: {}", self.health)
    }
}

display_by_default_layout!(Summary);
