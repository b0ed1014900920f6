//! The text report: ranges as a tree, the kernels with the most time, threads whose kernels have no
//! range, and the recording's health.

use std::cmp::Reverse;
use std::fmt::{self, Write as _};
use std::time::Duration;

use comfy_table::Table;
use rustc_hash::FxHashMap;

use crate::base::kernel_names::demangled;
use crate::base::order;
use crate::base::totals::Totals;
use crate::base::units::{MESSAGE_WIDTH, NAME_WIDTH, bytes, finish, shortened, table, time};
use crate::profile::{Kernel, Profile, RangeNode};
use crate::record::series::Series;

/// Kernels in the table; its last row sums up the others.
const KERNELS: usize = 12;
/// Findings that the alternate form shows.
#[cfg(feature = "analysis")]
const FINDINGS: usize = 3;

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "GPU profile: {}", self.recording_info())?;
        let totals = self.totals();
        writeln!(
            f,
            "{} recorded; on the GPU {} in {} kernels, {} in {} copies ({}), {} in {} memsets\
             {}{} synchronisations blocked the host for {}",
            time(self.duration()),
            time(totals.kernel_time()),
            totals.kernels,
            time(totals.copy_time()),
            totals.copies,
            bytes(totals.copy_bytes),
            time(Duration::from_nanos(totals.memset_ns)),
            totals.memsets,
            graphs(&totals),
            totals.synchronizations,
            time(totals.synchronization_time()),
        )?;
        writeln!(f)?;
        writeln!(f, "{}", ranges(self))?;
        writeln!(f)?;
        writeln!(f, "{}", kernels(self.kernels()))?;
        writeln!(f)?;
        #[cfg(feature = "analysis")]
        if f.alternate() {
            writeln!(f, "{}\n", self.diagnose().brief(FINDINGS))?;
        }
        for series in self.series() {
            writeln!(f, "{}", samples(self, series))?;
        }
        if self.series().len() > 0 {
            writeln!(f)?;
        }
        for thread in self.unattributed_threads() {
            writeln!(f, "{thread}\n")?;
        }
        write!(f, "health: {}", self.health())
    }
}

/// Whole graphs, if any, and the separator before the next part.
fn graphs(totals: &Totals) -> String {
    match totals.graphs {
        0 => "; ".to_owned(),
        count => format!(", {} in {count} graphs traced as a whole; ", time(totals.graph_time())),
    }
}

/// One line per sampler: the mean of each metric over the session, and losses.
fn samples(profile: &Profile, series: &Series) -> String {
    let mut line = format!("samples of GPU {} ({}): ", series.device(), series.source());
    let interval = time(Duration::from_nanos(series.interval_ns()));
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
) -> String {
    let roots: Vec<_> = roots.collect();
    let has_shared = roots.iter().any(|root| root.profile.has_shared_work());
    let mut table = range_table(has_shared);
    roots.iter().for_each(|root| add_range(&mut table, root, "", ("", ""), 0));
    format!("{}\n\n{}", finish(&table), kernels(of))
}

fn range_table(has_shared: bool) -> Table {
    let mut header = vec![
        "range",
        "times",
        "host time",
        "GPU time",
        "own GPU",
        "launches",
        "kernels",
        "copies",
        "copied",
        "memsets",
        "syncs",
    ];
    // Most profiles have no shared work.
    header.extend(has_shared.then_some("shared GPU"));
    table(&header, 1)
}

fn ranges(profile: &Profile) -> String {
    let mut table = range_table(profile.has_shared_work());
    profile.roots().for_each(|root| add_range(&mut table, &root, "", ("", ""), 0));
    let outside = profile.outside_ranges();
    if outside != Totals::default() {
        let mut row = vec!["(outside any range)".to_owned(), String::new(), String::new()];
        row.extend(columns(&outside, &outside));
        table.add_row(row);
    }
    if table.row_count() == 0 {
        return "no ranges and no GPU work".into();
    }
    finish(&table)
}

/// Displayed levels of the tree: recursions may be arbitrarily deep.
const LEVELS: usize = 24;

/// Adds a range and the ranges within it. `lead` draws the line to the range, `below` continues it.
fn add_range(
    table: &mut Table,
    node: &RangeNode<'_>,
    indent: &str,
    (lead, below): (&str, &str),
    level: usize,
) {
    let has_shared = node.profile.has_shared_work();
    let mut row = vec![
        format!("{indent}{lead}{}", shortened(node.name(), NAME_WIDTH)),
        node.instances().to_string(),
        time(node.host_time()),
    ];
    row.extend(columns(&node.inclusive(), &node.exclusive()));
    row.extend(has_shared.then(|| time(node.shared().gpu_time())));
    table.add_row(row);
    let indent = format!("{indent}{below}");
    let mut children = node.children().peekable();
    if level == LEVELS && children.peek().is_some() {
        table.add_row([format!("{indent}└─ (further in)")]);
        return;
    }
    while let Some(child) = children.next() {
        let is_last = children.peek().is_none();
        let lines = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        add_range(table, &child, &indent, lines, level + 1);
    }
}

fn columns(inclusive: &Totals, exclusive: &Totals) -> [String; 8] {
    [
        time(inclusive.gpu_time()),
        time(exclusive.gpu_time()),
        inclusive.launches.to_string(),
        inclusive.kernels.to_string(),
        inclusive.copies.to_string(),
        bytes(inclusive.copy_bytes),
        inclusive.memsets.to_string(),
        inclusive.synchronizations.to_string(),
    ]
}

#[derive(Default)]
struct KernelSum {
    count: u64,
    total: Duration,
    least: Option<Duration>,
    most: Duration,
}

fn kernels<'a>(kernels: impl Iterator<Item = Kernel<'a>>) -> String {
    let mut sums: FxHashMap<&str, KernelSum> = FxHashMap::default();
    for kernel in kernels {
        let sum = sums.entry(kernel.name()).or_default();
        sum.count += 1;
        let Some(took) = kernel.gpu_time() else {
            continue;
        };
        sum.total = sum.total.saturating_add(took);
        sum.least = Some(sum.least.map_or(took, |least| least.min(took)));
        sum.most = sum.most.max(took);
    }
    if sums.is_empty() {
        return "no kernels".into();
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    order::sort_by_key(&mut sums, |(name, sum)| (Reverse(sum.total), *name));
    let all: Duration = sums.iter().map(|(_, sum)| sum.total).sum();
    let share = |total: Duration| {
        let percent = 100.0 * total.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE);
        format!("{percent:.1} %")
    };

    let mut table = table(&["kernel", "count", "GPU time", "share", "mean", "min", "max"], 1);
    let shown = if sums.len() == KERNELS + 1 { KERNELS + 1 } else { KERNELS };
    for (name, sum) in sums.iter().take(shown) {
        table.add_row([
            shortened(&demangled(name), NAME_WIDTH),
            sum.count.to_string(),
            time(sum.total),
            share(sum.total),
            time(sum.total.div_f64(sum.count as f64)),
            time(sum.least.unwrap_or_default()),
            time(sum.most),
        ]);
    }
    let rest = sums.get(shown..).unwrap_or_default();
    if !rest.is_empty() {
        let total: Duration = rest.iter().map(|(_, sum)| sum.total).sum();
        let count: u64 = rest.iter().map(|(_, sum)| sum.count).sum();
        let name = format!("({} other kernels)", rest.len());
        table.add_row([name, count.to_string(), time(total), share(total)]);
    }
    finish(&table)
}
