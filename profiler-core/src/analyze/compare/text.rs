//! A comparison as tables for people, and as a comma-separated file.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use super::{
    Change, ChangeKind, Compared, Comparison, Leader, LeaderChange, Presence, Quantity, Shape,
    TimeShift,
};
use crate::base::text;
use crate::base::units;

/// Rows of a table for people, unless all are asked for.
const SHOWN: usize = 40;

impl Quantity {
    pub(super) fn text(self, value: u64) -> String {
        match self {
            Self::CopyBytes => units::bytes(value),
            Self::GpuNs => units::time(Duration::from_nanos(value)),
            _ => value.to_string(),
        }
    }

    /// As a column of files has it.
    fn column(self) -> &'static str {
        match self {
            Self::CopyBytes => "Copied (bytes)",
            Self::GpuNs => "GPU Time (ns)",
            Self::Instances => "Instances",
            Self::Launches => "Launches",
            Self::Kernels => "Kernels",
            Self::Copies => "Copies",
            Self::Memsets => "Memsets",
            Self::Synchronizations => "Syncs",
        }
    }
}

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
        write!(f, "{name} ({:.1} %)", 100.0 * self.share)
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
        let percent = |ratio: f64| format!("{:+.2} %", 100.0 * (ratio - 1.0));
        match self.high {
            Some(high) => {
                let (ratio, low) = (percent(self.ratio), percent(self.low));
                write!(f, "{ratio} ({low} to {})", percent(high))
            }
            None => write!(f, "{} (no bounds)", percent(self.ratio)),
        }
    }
}

/// As a gate names it: `launches of step from 8 to 12 (+50.0 %)`.
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
    fn subject(&self) -> String {
        let mut subject = match (self.kind, &self.kernel) {
            (ChangeKind::Everything, _) => "(everything)".to_owned(),
            (ChangeKind::OutsideRanges, _) => "(outside any range)".to_owned(),
            (_, Some(kernel)) => {
                let shape = self.shape.map(|shape| format!(" {shape}")).unwrap_or_default();
                format!("{}{shape}", units::shortened(kernel, units::NAME_WIDTH))
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

    /// As wide as a table has place for.
    pub(super) fn label(&self) -> String {
        units::shortened(&self.subject(), units::NAME_WIDTH + 40)
    }

    pub(super) fn grown(&self) -> String {
        let sign = if self.after < self.before { '-' } else { '+' };
        format!("{sign}{}", self.quantity.text(self.after.abs_diff(self.before)))
    }

    pub(super) fn share(&self) -> String {
        match (self.status, self.percent) {
            (Presence::Both, Some(percent)) => format!("{percent:+.1} %"),
            (Presence::Both, None) => "from none".to_owned(),
            (status, _) => status.to_string(),
        }
    }

    pub(super) fn single(&self) -> String {
        self.times.map(|times| times.to_string()).unwrap_or_default()
    }
}

/// A subject that one side alone has, with its values.
pub(super) type Only<'c> = (&'c Change, [Option<u64>; Quantity::ALL.len()]);

impl Comparison {
    /// All rows that a comma-separated file has, with a header: also what is the same.
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

    /// The tables of `{}` with every row.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let _ = self.write_tables(&mut out, true);
        out
    }

    /// Counts of what is on both sides that differ.
    pub(super) fn differing_counts(&self) -> Vec<&Change> {
        let both = self.changes.iter().filter(|row| row.status == Presence::Both);
        both.filter(|row| row.differs() && !row.quantity.is_time()).collect()
    }

    /// Times of what is on both sides that differ: everything, then what changed most.
    pub(super) fn differing_times(&self) -> Vec<&Change> {
        let both = self.changes.iter().filter(|row| row.status == Presence::Both);
        let mut times: Vec<_> =
            both.filter(|row| row.differs() && row.quantity.is_time()).collect();
        times.sort_by_key(|row| {
            (row.kind != ChangeKind::Everything, Reverse(row.before.abs_diff(row.after)))
        });
        times
    }

    /// Ranges and kernels that one side alone has.
    pub(super) fn only(&self, status: Presence) -> Vec<Only<'_>> {
        // Rows of one subject stand in two places: counts, and times.
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

    /// What the bounds of times leave out.
    pub(super) fn caution(&self) -> String {
        let by_run = self.changes.iter().filter_map(|row| row.times).any(|times| times.by_run);
        let confidence = 100.0 * self.confidence;
        match by_run {
            true => format!("bounds at {confidence} % for each time, from run to run"),
            false => format!(
                "bounds at {confidence} % for each time; what differs between runs is not in them: give five of each or more"
            ),
        }
    }

    /// That runs of a side differ in their counts, if they do.
    pub(super) fn varying(&self) -> Option<String> {
        match self.varying_counts() {
            0 => None,
            1 => Some("1 count differs from run to run; medians are compared".to_owned()),
            many => Some(format!("{many} counts differ from run to run; medians are compared")),
        }
    }

    fn write_tables(&self, out: &mut dyn fmt::Write, all: bool) -> fmt::Result {
        for (name, runs) in [("before", &self.before), ("after", &self.after)] {
            writeln!(out, "{name}: {}", side(runs))?;
        }
        for warning in &self.clock_warnings {
            writeln!(out, "warning: {warning}")?;
        }
        writeln!(out, "\nWhat leads:")?;
        for change in &self.leaders {
            writeln!(out, "  {change}")?;
        }
        let counts = self.differing_counts();
        let varying = self.varying();
        let (every, exact) = match varying {
            None => ("Every count", "they are exact"),
            Some(_) => ("The median of every count", "they are exact where runs agree"),
        };
        if !self.counts_differ {
            writeln!(out, "\n{every} is the same in both.")?;
        } else if counts.is_empty() {
            writeln!(out, "\n{every} of what is in both is the same.")?;
        } else {
            writeln!(out, "\nCounts that differ; {exact}:\n")?;
            write_table(out, &counts, all, false)?;
        }
        if let Some(varying) = varying {
            writeln!(out, "\n{varying}.")?;
        }
        for (status, title) in [(Presence::Gone, "Only before"), (Presence::New, "Only after")] {
            self.write_only(out, title, status, all)?;
        }
        let times = self.differing_times();
        if times.is_empty() {
            return writeln!(out, "\nEvery time on the GPU of what is in both is the same.");
        }
        writeln!(out, "\nTime on the GPU; single times of kernels and instances by factor,")?;
        writeln!(out, "{}:\n", self.caution())?;
        write_table(out, &times, all, true)
    }

    fn write_only(
        &self,
        out: &mut dyn fmt::Write,
        title: &str,
        status: Presence,
        all: bool,
    ) -> fmt::Result {
        let subjects = self.only(status);
        if subjects.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n{title}:\n")?;
        let names = Quantity::ALL.map(|quantity| quantity.to_string());
        let mut header = vec!["of"];
        header.extend(names.iter().map(String::as_str));
        let mut table = units::table(&header, 1);
        let shown = if all { subjects.len() } else { subjects.len().min(SHOWN) };
        for (row, values) in &subjects[..shown] {
            let texts = Quantity::ALL.into_iter().zip(values).map(|(quantity, value)| {
                value.map(|value| quantity.text(value)).unwrap_or_default()
            });
            table.add_row(std::iter::once(row.label()).chain(texts));
        }
        writeln!(out, "{}", units::finish(&table))?;
        write_rest(out, subjects.len() - shown)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        self.write_tables(&mut out, false)?;
        f.write_str(out.trim_end())
    }
}

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

fn write_table(
    out: &mut dyn fmt::Write,
    rows: &[&Change],
    all: bool,
    with_times: bool,
) -> fmt::Result {
    let shown = if all { rows.len() } else { rows.len().min(SHOWN) };
    let mut header = vec!["what", "of", "before", "after", "change", ""];
    if with_times {
        header.push("each");
    }
    let mut table = units::table(&header, 2);
    for row in &rows[..shown] {
        let mut cells = vec![
            row.quantity.to_string(),
            row.label(),
            row.quantity.text(row.before),
            row.quantity.text(row.after),
            row.grown(),
            row.share(),
        ];
        if with_times {
            cells.push(row.single());
        }
        table.add_row(cells);
    }
    writeln!(out, "{}", units::finish(&table))?;
    write_rest(out, rows.len() - shown)
}

fn write_rest(out: &mut dyn fmt::Write, rows: usize) -> fmt::Result {
    match rows {
        0 => Ok(()),
        _ => writeln!(out, "({rows} more rows)"),
    }
}
