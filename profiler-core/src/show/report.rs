//! The text report: ranges as a tree, the kernels with the most time, threads whose kernels have no
//! range, and the recording's health.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::time::Duration;

use cupti::MemoryKind;
use profiler_base::aggregate::Aggregate;
use profiler_base::display::{DisplayOptions, Layout, Tone};
use profiler_base::display_by_default_layout;
use profiler_base::order;
use profiler_base::statistics::Unrounded;
use profiler_base::table::Table;
use profiler_base::units::{MESSAGE_WIDTH, NAME_WIDTH, bytes, percent, shortened, time};
use rustc_hash::FxHashMap;

use crate::join::range_tree::NodeId;
use crate::join::totals::Totals;
use crate::profile::{Kernel, Process, ProcessRangeGroup, Profile, RangeNode};
use crate::query::MemoryEvent;
use crate::record::series::Series;
use crate::show::range_table::{RangeTable, columns};

/// The row of what has no range.
const OUTSIDE: &str = "(outside any range)";

/// Kernels in the table; its last row sums up the others.
const KERNELS: usize = 12;

impl DisplayOptions for Profile {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report().write_in(layout, f)
    }
}

display_by_default_layout!(Profile);

impl Profile {
    /// The text report, the same as `{}` of the profile prints.
    pub fn report(&self) -> TextReport<'_> {
        TextReport { profile: self, section: None }
    }
}

/// A profile as text for people: ranges, kernels, samples, health; from [`Profile::report`].
///
/// ```
/// use profiler_core::{DisplayOptions, Profile};
///
/// # fn main() -> Result<(), profiler_core::Error> {
/// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
/// let profile = Profile::load(file)?;
/// let report = profile.report().section("commit 4f2a, batch 32");
/// println!("{}", report.width(80).coloured(true));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "it is text to print"]
pub struct TextReport<'a> {
    profile: &'a Profile,
    section: Option<String>,
}

impl TextReport<'_> {
    /// Appends text of the program after the kernels.
    pub fn section(self, text: impl Into<String>) -> Self {
        Self { section: Some(text.into()), ..self }
    }
}

impl DisplayOptions for TextReport<'_> {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (layout, profile) = (layout, self.profile);
        writeln!(f, "GPU profile: {}", profile.recording_info())?;
        let totals = profile.totals();
        writeln!(
            f,
            "{} recorded; on the GPU {} in {} kernels, {} in {} copies ({}), {} in {} memsets\
             {}{} synchronisations blocked the host for {}",
            time(profile.duration()),
            time(totals.kernel_time()),
            totals.kernels,
            time(totals.copy_time()),
            totals.copies,
            bytes(totals.copy_bytes),
            time(totals.memset_time()),
            totals.memsets,
            graphs(&totals),
            totals.synchronizations,
            time(totals.synchronization_time()),
        )?;
        if profile.health().losses.truncated != 0 {
            writeln!(f, "{}", layout.paint(Tone::Bad, &truncation(profile)))?;
        }
        writeln!(f)?;
        // In a capture of the whole machine, work must be shown by process.
        if profile.has_several_processes() || profile.health().facts.silent_processes != 0 {
            writeln!(f, "{}\n", processes(profile, layout))?;
        }
        writeln!(f, "{}", RangeTable::whole(profile).text(layout))?;
        writeln!(f)?;
        let groups = profile.process_range_groups();
        if !groups.is_empty() {
            writeln!(f, "{}\n", process_ranges(groups, layout))?;
        }
        writeln!(f, "{}", kernels(profile.kernels(), layout))?;
        writeln!(f)?;
        if let Some(section) = &self.section {
            writeln!(f, "{section}\n")?;
        }
        if let Some(memory) = memory(profile, layout) {
            writeln!(f, "{memory}\n")?;
        }
        for series in profile.series() {
            writeln!(f, "{}", samples(profile, series))?;
        }
        if let Some(counts) = profile.instruction_counts() {
            writeln!(f, "{counts}")?;
        }
        if profile.series().len() > 0 || profile.instruction_counts().is_some() {
            writeln!(f)?;
        }
        for thread in profile.unattributed_threads() {
            writeln!(f, "{thread}\n")?;
        }
        let tone = if profile.health().is_complete() { Tone::Good } else { Tone::Bad };
        let (health, rest) = (profile.health().to_string(), "health:");
        write!(f, "{} {health}", layout.paint(tone, rest))?;
        let mut incomplete = profile.incomplete_processes();
        for (process, missing) in incomplete.by_ref().take(PROCESSES) {
            write!(f, "\n  {process}: {}", shortened(&missing, MESSAGE_WIDTH))?;
        }
        match incomplete.count() {
            0 => Ok(()),
            more => write!(f, "\n  and {more} other processes"),
        }
    }
}

display_by_default_layout!(TextReport<'_>);

/// Processes in the table and in the health lines.
const PROCESSES: usize = 64;

/// A row for each process.
fn processes(profile: &Profile, layout: Layout) -> String {
    let header = [
        "process", "began", "recorded", "GPUs", "GPU time", "launches", "kernels", "copies",
        "copied",
    ];
    let mut table = Table::new(header, 1);
    let totals = profile.totals_by_process();
    let of = |process: &Process<'_>| totals.get(&process.id()).copied().unwrap_or_default();
    let mut devices: FxHashMap<u32, BTreeSet<u32>> = FxHashMap::default();
    for work in profile.store.works() {
        devices.entry(work.process).or_default().insert(work.place.device);
    }
    for process in profile.processes().take(PROCESSES) {
        let totals = of(&process);
        let devices = devices.get(&process.id()).into_iter().flatten();
        let devices: Vec<String> = devices.map(u32::to_string).collect();
        table.add_row([
            process.to_string(),
            time(process.start()),
            time(process.duration()),
            devices.join(","),
            time(totals.gpu_time()),
            totals.launches.to_string(),
            totals.kernels.to_string(),
            totals.copies.to_string(),
            bytes(totals.copy_bytes),
        ]);
    }
    let mut rest = Totals::default();
    profile.processes().skip(PROCESSES).for_each(|process| rest += of(&process));
    if let more @ 1.. = profile.processes().len().saturating_sub(PROCESSES) {
        let [gpu, _, launches, kernels, copies, copied, ..] = columns(&rest, &rest);
        let name = format!("({more} other processes)");
        let empty = const { String::new() };
        table.add_row([
            name,
            empty.clone(),
            empty.clone(),
            empty,
            gpu,
            launches,
            kernels,
            copies,
            copied,
        ]);
    }
    table.render(layout)
}

/// Names of process ranges in the table; its last row sums up the others.
const PROCESS_RANGES: usize = 32;

/// A row for each name of process ranges, by descending GPU time.
fn process_ranges(mut groups: Vec<ProcessRangeGroup<'_>>, layout: Layout) -> String {
    order::sort_by_key(&mut groups, |group| {
        (Reverse(group.inclusive().gpu_time()), Reverse(group.host_time()), group.name())
    });
    let header = [
        "start/end range",
        "work",
        "times",
        "host time",
        "GPU time",
        "launches",
        "kernels",
        "copies",
        "copied",
        "memsets",
        "syncs",
    ];
    let mut table = Table::new(header, 2);
    let shown = if groups.len() == PROCESS_RANGES + 1 { groups.len() } else { PROCESS_RANGES };
    let mut rest = (0, Duration::ZERO);
    for (at, group) in groups.iter().enumerate() {
        let (times, host, totals) = (group.instances(), group.host_time(), group.inclusive());
        if at >= shown {
            rest.0 += times;
            rest.1 = rest.1.saturating_add(host);
            continue;
        }
        let [gpu, _, others @ ..] = columns(&totals, &totals);
        let work = if group.is_by_time() { "by time" } else { "activations" };
        let first = [group.name().to_owned(), work.to_owned(), times.to_string(), time(host), gpu];
        table.add_row(first.into_iter().chain(others));
    }
    if let others @ 1.. = groups.len().saturating_sub(shown) {
        let name = format!("({others} other start/end ranges)");
        table.add_row([name, String::new(), rest.0.to_string(), time(rest.1)]);
    }
    let mut text = table.render(layout);
    if groups.iter().any(ProcessRangeGroup::is_by_time) {
        text.push_str(
            "\nby time: work that the thread which began the range submitted until its end; the rows above have it too",
        );
    }
    text
}

/// Describes the contents and the missing part of a truncated file.
fn truncation(profile: &Profile) -> String {
    let (duration, health) = (time(profile.duration()), profile.health());
    // A saved recording begins with its final bounds; the file of a running session has the bounds
    // so far.
    if !profile.is_snapshot() {
        return format!(
            "TRUNCATED: the file is not whole; an unknown part of the {duration} is missing"
        );
    }
    let mut text = format!(
        "TRUNCATED: the file ends before the session did; it has the first {duration}, and all that came later is missing"
    );
    if health.facts.pending_calls != 0 {
        let _ = write!(text, "; {} calls had no record yet", health.facts.pending_calls);
    }
    if health.facts.pending_ranges != 0 {
        let _ = write!(text, "; {} ranges were open", health.facts.pending_ranges);
    }
    text
}

/// Whole graphs, if any, and the separator before the next part.
fn graphs(totals: &Totals) -> String {
    match totals.graphs {
        0 => "; ".to_owned(),
        count => format!(", {} in {count} graphs traced as a whole; ", time(totals.graph_time())),
    }
}

/// Paths of ranges in the table of allocations; its last row sums up the others.
const ALLOCATIONS: usize = 12;

/// The allocations by range and kind of memory, by descending bytes, and the peak of each device and
/// kind. `None` without records of them.
fn memory(profile: &Profile, layout: Layout) -> Option<String> {
    let devices = profile.memory();
    if devices.is_empty() {
        return None;
    }
    let mut rows: FxHashMap<(Option<NodeId>, MemoryKind), [u64; 4]> = FxHashMap::default();
    let mut add = |event: &MemoryEvent<'_>, counts: [u64; 4]| {
        let node = event.range().map(|range| range.node().id);
        let row = rows.entry((node, event.kind())).or_default();
        row.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.saturating_add(count));
    };
    for event in profile.memory_events() {
        let is_allocation = u64::from(event.is_allocation());
        let bytes = if event.is_allocation() { event.bytes() } else { 0 };
        add(&event, [bytes, is_allocation, 1 - is_allocation, 0]);
    }
    for event in devices.iter().flat_map(|device| &device.not_freed) {
        add(event, [0, 0, 0, event.bytes()]);
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    order::sort_by_key(&mut rows, |(row, sums)| (Reverse(*sums), *row));
    let header = ["memory of", "kind", "allocated", "allocations", "frees", "not freed"];
    let mut table = Table::new(header, 2);
    let mut add_row =
        |path: String, kind: String, [allocated, allocations, frees, left]: [u64; 4]| {
            let (allocations, frees) = (allocations.to_string(), frees.to_string());
            table.add_row([path, kind, bytes(allocated), allocations, frees, bytes(left)]);
        };
    let others = rows.split_off(rows.len().min(ALLOCATIONS));
    for ((node, kind), sums) in rows {
        let path = |id| RangeNode { profile, id }.cut_path();
        add_row(node.map_or_else(|| OUTSIDE.to_owned(), path), kind.to_string(), sums);
    }
    if !others.is_empty() {
        let sum = |mut sums: [u64; 4], (_, counts): &(_, [u64; 4])| {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
            sums
        };
        let name = format!("({} more)", others.len());
        add_row(name, String::new(), others.iter().fold([0; 4], sum));
    }
    let mut text = table.render(layout);
    for device in devices {
        let _ = write!(text, "\n{device}");
    }
    Some(text)
}

/// One line per sampler: the mean of each metric over the session, and losses.
fn samples(profile: &Profile, series: &Series) -> String {
    let mut line = format!("samples of GPU {} ({}): ", series.device(), series.source());
    let interval = time(series.interval());
    let _ = write!(line, "{} of {interval}", series.len());
    for track in profile.tracks_of(series) {
        if let Some(mean) = track.mean(Duration::ZERO, profile.duration()) {
            let label = shortened(track.label(), NAME_WIDTH);
            let _ = write!(line, ", {label} {}", track.rate_unit().measured(mean.value));
        }
    }
    for loss in series.losses() {
        let _ = write!(line, "; {}", shortened(&loss, MESSAGE_WIDTH));
    }
    line
}

/// The two tables of the report for some ranges and kernels.
pub(crate) fn part<'a>(
    roots: impl Iterator<Item = RangeNode<'a>>,
    of: impl Iterator<Item = Kernel<'a>>,
    layout: Layout,
) -> String {
    let roots: Vec<_> = roots.collect();
    let table = RangeTable::new(roots.first().map(|root| root.profile), roots.iter().copied());
    format!("{}\n\n{}", table.text(layout), kernels(of, layout))
}

fn kernels<'a>(kernels: impl Iterator<Item = Kernel<'a>>, layout: Layout) -> String {
    let (mut sums, mut labels) = (Aggregate::default(), Vec::new());
    for kernel in kernels {
        let index = sums.add(kernel.name(), kernel.interval().map(|time| time.ns()), 0);
        if index == labels.len() {
            labels.push(kernel.demangled_name());
        }
    }
    if labels.is_empty() {
        return "no kernels".into();
    }
    let mut sums: Vec<_> = sums.into_groups().into_iter().zip(labels).collect();
    order::sort_by_key(&mut sums, |(group, _)| (Reverse(group.time()), *group.key()));

    let mut table = Table::new(["kernel", "count", "GPU time", "share", "mean", "min", "max"], 1);
    let shown = if sums.len() == KERNELS + 1 { KERNELS + 1 } else { KERNELS };
    for (group, label) in sums.iter().take(shown) {
        let times = group.statistics();
        table.add_row([
            label.clone(),
            group.count().to_string(),
            time(group.time()),
            percent(group.share()),
            // Rounded to the nearest nanosecond.
            time(Duration::from_nanos(Unrounded::from(times).mean_ns.round() as u64)),
            time(times.min()),
            time(times.max()),
        ]);
    }
    let rest = sums.get(shown..).unwrap_or_default();
    if !rest.is_empty() {
        let total = rest.iter().map(|(group, _)| group.time());
        let count: u64 = rest.iter().map(|(group, _)| group.count()).sum();
        let share = rest.iter().map(|(group, _)| group.share()).sum();
        table.add_row([
            format!("({} other kernels)", rest.len()),
            count.to_string(),
            time(total.fold(Duration::ZERO, Duration::saturating_add)),
            percent(share),
        ]);
    }
    table.render(layout)
}
