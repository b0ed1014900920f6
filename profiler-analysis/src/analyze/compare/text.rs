//! A comparison as text tables and as CSV.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use profiler_base::display::{DisplayOptions, Layout, RowLimit, Tone};
use profiler_base::display_by_default_layout;
use profiler_base::table::Table;
use profiler_base::{text, units};

use super::wall::{signed, time};
use super::{
    CauseChange, Change, ChangeKind, Compared, Comparison, Leader, LeaderChange, PhaseChange,
    Presence, Quantity, Shape, Speed, TimeShift,
};

/// Rows of a text table, unless all are requested.
const SHOWN: usize = 40;

impl Quantity {
    pub(super) fn text(self, value: u64) -> String {
        match self {
            Self::CopyBytes => units::bytes(value),
            Self::HostNs | Self::BusyNs | Self::GpuNs => units::time(Duration::from_nanos(value)),
            _ => value.to_string(),
        }
    }

    /// The text in CSV.
    fn column(self) -> &'static str {
        self.second_text()
    }
}

/// The longest subject in a message, and in a table without a width.
const SUBJECT_WIDTH: usize = units::NAME_WIDTH + 40;

/// Grid and block, as `<132, 256>`.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}, {}>", units::shape(self.grid), units::shape(self.block))
    }
}

/// `gemm (62.1 %)`.
impl fmt::Display for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = units::shortened(&self.name, units::NAME_WIDTH);
        write!(f, "{name} ({})", units::percent(self.share))
    }
}

impl fmt::Display for LeaderChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leader = |leader: &Option<Leader>| match leader {
            Some(leader) => leader.to_string(),
            None => "none".to_owned(),
        };
        let (before, after) = (leader(&self.before), leader(&self.after));
        match self.moved {
            true => write!(f, "{}: {before} -> {after}, which is another", self.of),
            false => write!(f, "{}: {before} -> {after}", self.of),
        }
    }
}

/// `+4.9 % (+4.7 % to +5.1 %)`.
impl fmt::Display for TimeShift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |ratio: f64| units::change(ratio, 2);
        match self.high {
            Some(high) => {
                let (ratio, low) = (percent(self.ratio), percent(self.low));
                write!(f, "{ratio} ({low} to {})", percent(high))
            }
            None => write!(f, "{} (no bounds)", percent(self.ratio)),
        }
    }
}

/// The text in a gate: `launches of step from 8 to 12 (+50.0 %)`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [before, after] = [self.before, self.after].map(|value| self.quantity.text(value));
        write!(
            f,
            "{} of {} from {before} to {after} ({})",
            self.quantity,
            self.label(),
            self.share()
        )
    }
}

impl Change {
    fn subject(&self, kernel_width: usize) -> String {
        let mut subject = match (self.kind, &self.kernel) {
            (ChangeKind::Everything, _) => "(everything)".to_owned(),
            (ChangeKind::OutsideRanges, _) => "(outside any range)".to_owned(),
            (_, Some(kernel)) => {
                let shape = self.shape.map(|shape| format!(" {shape}")).unwrap_or_default();
                format!("{}{shape}", units::shortened(kernel, kernel_width))
            }
            _ => self.path.to_string(),
        };
        if self.kernel.is_some() && !self.path.is_empty() {
            let _ = write!(subject, " in {}", self.path);
        }
        if let Some(other) = self.reshaped {
            let which = if self.status == Presence::New { "was" } else { "now" };
            let _ = write!(subject, ", {which} {other}");
        }
        match &self.domain {
            Some(domain) => format!("{subject} [{domain}]"),
            None => subject,
        }
    }

    /// The subject, shortened for a message.
    pub(super) fn label(&self) -> String {
        units::shortened(&self.subject(units::NAME_WIDTH), SUBJECT_WIDTH)
    }

    /// The values, their difference, and the single times for tables that have them.
    pub(super) fn cells(&self, with_times: bool) -> Vec<String> {
        let text = |value| self.quantity.text(value);
        let sign = if self.after < self.before { '-' } else { '+' };
        let grown = format!("{sign}{}", text(self.after.abs_diff(self.before)));
        let mut cells = vec![text(self.before), text(self.after), grown, self.share()];
        let times = self.times.map(|times| times.to_string());
        cells.extend(with_times.then_some(times.unwrap_or_default()));
        cells
    }

    fn share(&self) -> String {
        match (self.status, self.percent) {
            (Presence::Both, Some(percent)) => format!("{percent:+.1} %"),
            (Presence::Both, None) => "from none".to_owned(),
            (status, _) => status.to_string(),
        }
    }
}

/// A subject of one side, with its values.
pub(super) type Only<'c> = (&'c Change, [Option<u64>; Quantity::ALL.len()]);

impl Comparison {
    /// Returns all rows as CSV with a header, also equal ones.
    pub fn to_csv(&self) -> String {
        let mut out = String::from(
            "Kind,Status,Domain,Path,Kernel,Grid,Block,Quantity,Before,After,Change,Change (%),Median Before (ns),\
             Median After (ns),MAD Before (ns),MAD After (ns),Ratio,Ratio Low,Ratio High\n",
        );
        for row in &self.changes {
            let cell = |text: Option<&str>| text.map(text::csv_cell).unwrap_or_default();
            let shape = |of: fn(&Shape) -> [u32; 3]| {
                row.shape.as_ref().map(|shape| units::shape(of(shape))).unwrap_or_default()
            };
            let _ = write!(
                out,
                "{},{},{},{},{},{},{},{},{},{},{},{},",
                row.kind,
                row.status,
                cell(row.domain.as_deref()),
                text::csv_cell(&row.path),
                cell(row.kernel.as_deref()),
                shape(|shape| shape.grid),
                shape(|shape| shape.block),
                row.quantity.column(),
                row.before,
                row.after,
                row.change,
                row.percent.map(|percent| format!("{percent:.1}")).unwrap_or_default(),
            );
            match row.times {
                None => out.push_str(",,,,,,"),
                Some(TimeShift { before, after, ratio, low, high, .. }) => {
                    let high = high.map(|high| format!("{high:.6}")).unwrap_or_default();
                    let _ = write!(
                        out,
                        "{},{},{},{},{ratio:.6},{low:.6},{high}",
                        before.median_ns, after.median_ns, before.deviation_ns, after.deviation_ns,
                    );
                }
            }
            out.push('\n');
        }
        out
    }

    /// Differing counts of subjects on both sides.
    pub(super) fn differing_counts(&self) -> Vec<&Change> {
        let both = self.changes.iter().filter(|row| row.status == Presence::Both);
        both.filter(|row| row.differs() && !row.quantity.is_time()).collect()
    }

    /// Differing times of subjects on both sides, on the GPU or of ranges: totals first, then the
    /// largest change.
    pub(super) fn differing_times(&self, on_gpu: bool) -> Vec<&Change> {
        let both = self.changes.iter().filter(|row| row.status == Presence::Both);
        let of_kind = both
            .filter(|row| row.quantity.is_time() && (row.quantity == Quantity::GpuNs) == on_gpu);
        let mut times: Vec<_> = of_kind.filter(|row| row.differs()).collect();
        times.sort_by_key(|row| {
            (row.kind != ChangeKind::Everything, Reverse(row.before.abs_diff(row.after)))
        });
        times
    }

    /// Ranges and kernels of one side.
    pub(super) fn only(&self, status: Presence) -> Vec<Only<'_>> {
        // Counts and times of one subject are in separate rows.
        let mut places = HashMap::new();
        let mut subjects: Vec<Only<'_>> = Vec::new();
        for row in self.changes.iter().filter(|row| row.status == status) {
            let key = (row.kind, &row.domain, &row.path, &row.kernel, row.shape);
            let place = *places.entry(key).or_insert_with(|| {
                subjects.push((row, Default::default()));
                subjects.len() - 1
            });
            subjects[place].1[row.quantity as usize] = Some(row.before.max(row.after));
        }
        subjects
    }

    /// The meaning of the bounds.
    pub(super) fn caution(&self) -> String {
        let mut times = self.changes.iter().filter_map(|row| row.times);
        let by_run = times.any(|times| times.by_run);
        let confidence = 100.0 * self.confidence;
        match by_run {
            true => format!("bounds at {confidence} % for each time, from run to run"),
            false => format!(
                "bounds at {confidence} % for each time, without differences between runs: give five runs of each \
                 or more"
            ),
        }
    }

    /// A note on GPU time that changed against the wall time, if it did.
    pub(super) fn trade(&self) -> Option<String> {
        let is_whole =
            |row: &&Change| row.kind == ChangeKind::Everything && row.quantity == Quantity::GpuNs;
        let gpu = self.changes.iter().find(is_whole)?;
        let (is_more, is_less) = (gpu.after > gpu.before, gpu.after < gpu.before);
        let clearly = gpu.percent.is_none_or(|percent| percent.abs() > 1.0);
        match self.wall.speed {
            Speed::Faster if is_more && clearly => {
                Some(format!("a trade: {gpu}, for less wall time"))
            }
            Speed::Slower if is_less && clearly => {
                Some(format!("{gpu}, though the wall time grew"))
            }
            _ => None,
        }
    }

    /// A note on counts that differ between runs, if any.
    pub(super) fn varying(&self) -> Option<String> {
        match self.varying_counts() {
            0 => None,
            1 => Some("1 count differs from run to run; medians are compared".to_owned()),
            many => Some(format!("{many} counts differ from run to run; medians are compared")),
        }
    }

    fn write_tables(&self, out: &mut dyn fmt::Write, layout: Layout) -> fmt::Result {
        for (name, runs) in [("before", &self.before), ("after", &self.after)] {
            writeln!(out, "{name}: {}", side(runs))?;
        }
        for warning in &self.clock_warnings {
            writeln!(out, "warning: {warning}")?;
        }
        let wall = self.wall.to_string();
        let (headline, rest) = wall.split_once('\n').unwrap_or((&wall, ""));
        let tone = match self.wall.speed {
            Speed::Slower => Tone::Bad,
            Speed::Faster => Tone::Good,
            _ => Tone::Heading,
        };
        writeln!(out, "\n{}", layout.paint(tone, headline))?;
        if !rest.is_empty() {
            writeln!(out, "{rest}")?;
        }
        if let Some(trade) = self.trade() {
            writeln!(out, "  {trade}")?;
        }
        writeln!(out, "\nWall time by cause:\n")?;
        let all = Layout { rows: RowLimit::All, ..layout };
        write_rows(out, (&CAUSE_HEAD, 1), &self.wall.by_cause(), all, cause_cells)?;
        if !self.phases.is_empty() {
            writeln!(out, "\nTime of phases:\n")?;
            write_rows(out, (&PhaseChange::HEAD, 1), &self.phases, all, PhaseChange::cells)?;
        }
        let times = self.differing_times(false);
        if !times.is_empty() {
            writeln!(
                out,
                "\nTime of the host in ranges, and time in which the GPU worked for them:\n"
            )?;
            write_table(out, &times, layout, true)?;
        }
        let times = self.differing_times(true);
        if times.is_empty() {
            writeln!(out, "\nEvery GPU time present in both is the same.")?;
        } else {
            writeln!(out, "\nTime on the GPU; single times of kernels and instances by factor,")?;
            writeln!(out, "{}:\n", self.caution())?;
            write_table(out, &times, layout, true)?;
        }
        if !self.stalls.is_empty() {
            writeln!(out, "\nWhat the warps of kernels do, by instruction samples:\n")?;
            for change in self.stalls.iter().take(SHOWN_STALLS) {
                writeln!(out, "  {change}")?;
            }
            if let more @ 1.. = self.stalls.len().saturating_sub(SHOWN_STALLS) {
                writeln!(out, "  and {more} smaller changes")?;
            }
        }
        self.write_counts(out, layout)?;
        writeln!(out, "\nWhat leads:")?;
        for change in &self.leaders {
            writeln!(out, "  {change}")?;
        }
        Ok(())
    }

    fn write_counts(&self, out: &mut dyn fmt::Write, layout: Layout) -> fmt::Result {
        let counts = self.differing_counts();
        let varying = self.varying();
        let (every, exact) = match varying {
            None => ("Every count", "they are exact"),
            Some(_) => ("The median of every count", "they are exact where runs agree"),
        };
        if !self.counts_differ {
            writeln!(out, "\n{every} is the same in both.")?;
        } else if counts.is_empty() {
            writeln!(out, "\n{every} present in both is the same.")?;
        } else {
            writeln!(out, "\nCounts that differ; {exact}:\n")?;
            write_table(out, &counts, layout, false)?;
        }
        if let Some(varying) = varying {
            writeln!(out, "\n{varying}.")?;
        }
        for (status, title) in [(Presence::Gone, "Only before"), (Presence::New, "Only after")] {
            let subjects = self.only(status);
            if !subjects.is_empty() {
                writeln!(out, "\n{title}:\n")?;
                let names = Quantity::ALL.map(|quantity| quantity.to_string());
                let header: Vec<_> =
                    ["of"].into_iter().chain(names.iter().map(String::as_str)).collect();
                write_rows(out, (&header, 1), &subjects, layout, only_cells)?;
            }
        }
        Ok(())
    }
}

pub(super) const CAUSE_HEAD: [&str; 4] = ["cause", "before", "after", "change"];

pub(super) fn cause_cells(of: &CauseChange) -> Vec<String> {
    let change = signed(of.after_ns - of.before_ns);
    vec![of.cause.to_string(), signed_time(of.before_ns), signed_time(of.after_ns), change]
}

/// A signed time: concurrency makes it negative.
pub(super) fn signed_time(ns: f64) -> String {
    if ns < 0.0 { signed(ns) } else { time(ns) }
}

impl DisplayOptions for Comparison {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        self.write_tables(&mut out, layout)?;
        f.write_str(out.trim_end())
    }
}

display_by_default_layout!(Comparison);

/// The changes of stalls in the text; JSON has all.
const SHOWN_STALLS: usize = 10;

pub(super) fn side(runs: &[Compared]) -> String {
    let Some(first) = runs.first() else {
        return "no run".to_owned();
    };
    let mut text = first.info.to_string();
    if runs.len() > 1 {
        let _ = write!(text, ", {} runs", runs.len());
    }
    match runs.iter().filter(|run| !run.is_complete).count() {
        0 => {}
        lost if runs.len() == 1 => text.push_str(if lost == 1 { ", INCOMPLETE" } else { "" }),
        lost => {
            let _ = write!(text, ", {lost} of them INCOMPLETE");
        }
    }
    text
}

fn only_cells((row, values): &Only<'_>) -> Vec<String> {
    let text = |(quantity, value): (Quantity, &Option<u64>)| {
        value.map(|value| quantity.text(value)).unwrap_or_default()
    };
    let texts = Quantity::ALL.into_iter().zip(values).map(text);
    std::iter::once(row.subject(usize::MAX)).chain(texts).collect()
}

fn write_table(
    out: &mut dyn fmt::Write,
    rows: &[&Change],
    layout: Layout,
    with_times: bool,
) -> fmt::Result {
    let mut header = vec!["what", "of", "before", "after", "change", ""];
    header.extend(with_times.then_some("each"));
    write_rows(out, (&header, 2), rows, layout, |row| {
        let mut cells = vec![row.quantity.to_string(), row.subject(usize::MAX)];
        cells.extend(row.cells(with_times));
        cells
    })
}

/// Writes up to [`SHOWN`] rows as a table. Columns from the given one on are right-aligned.
fn write_rows<R>(
    out: &mut dyn fmt::Write,
    (header, right_from): (&[&str], usize),
    rows: &[R],
    layout: Layout,
    cells: impl Fn(&R) -> Vec<String>,
) -> fmt::Result {
    let shown = match layout.rows {
        RowLimit::All => rows.len(),
        RowLimit::Default | RowLimit::Most(_) => rows.len().min(SHOWN),
    };
    let mut table = Table::new(header.iter().copied(), right_from).with_name_width(SUBJECT_WIDTH);
    rows[..shown].iter().for_each(|row| table.add_row(cells(row)));
    writeln!(out, "{}", table.render(layout))?;
    match rows.len() - shown {
        0 => Ok(()),
        more => writeln!(out, "({more} more rows)"),
    }
}
