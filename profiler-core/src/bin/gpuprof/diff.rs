//! `diff`: two profiles beside each other. Ranges are matched by path and domain, kernels by name.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use profiler_core::{Health, Kernel, Profile, RangeNode, Totals};
use serde::Serialize;

use crate::args::{DiffArgs, Gated, TableFormat};
use crate::failure::{Failure, note};
use crate::output::Output;
use crate::tables::{csv_cell, write_json};
use crate::{input, units};

/// Rows of a table for people, unless all are asked for.
const SHOWN: usize = 40;
/// Levels of a path that are written: a recursion has as many as it likes.
const LEVELS: usize = 200;
/// Values that the message of a gate names.
const NAMED: usize = 5;

pub(crate) fn diff(args: DiffArgs) -> Result<(), Failure> {
    let output = Output::new(args.output.output, &[&args.a, &args.b])?;
    let a = input::profile(&args.a)?;
    let b = input::profile(&args.b)?;
    let diff = Diff::of(Side::of(&args.a, &a), Side::of(&args.b, &b), [&a, &b], args.by_range);
    for side in [&diff.a, &diff.b] {
        if !side.is_complete {
            note(&format!("{} is {}", side.file, side.health));
        }
    }
    output.write(|out| match args.format {
        TableFormat::Table => diff.write_tables(out, args.all),
        TableFormat::Csv => diff.write_csv(out),
        TableFormat::Json => write_json(out, &diff),
    })?;
    match args.fail_above {
        Some(percent) => diff.gate(percent, args.of),
        None => Ok(()),
    }
}

/// What is counted and measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Quantity {
    Instances,
    Launches,
    Kernels,
    Copies,
    CopyBytes,
    Memsets,
    Synchronizations,
    GpuNs,
}

impl Quantity {
    const ALL: [Self; 8] = [
        Self::Instances,
        Self::Launches,
        Self::Kernels,
        Self::Copies,
        Self::CopyBytes,
        Self::Memsets,
        Self::Synchronizations,
        Self::GpuNs,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Instances => "instances",
            Self::Launches => "launches",
            Self::Kernels => "kernels",
            Self::Copies => "copies",
            Self::CopyBytes => "copied",
            Self::Memsets => "memsets",
            Self::Synchronizations => "syncs",
            Self::GpuNs => "GPU time",
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

    /// Measured, and not the same twice.
    fn is_time(self) -> bool {
        self == Self::GpuNs
    }

    fn of(self, instances: u64, totals: &Totals) -> u64 {
        match self {
            Self::Instances => instances,
            Self::Launches => totals.launches,
            Self::Kernels => totals.kernels,
            Self::Copies => totals.copies,
            Self::CopyBytes => totals.copy_bytes,
            Self::Memsets => totals.memsets,
            Self::Synchronizations => totals.synchronizations,
            Self::GpuNs => ns(totals.gpu_time()),
        }
    }

    fn text(self, value: u64) -> String {
        match self {
            Self::CopyBytes => units::bytes(value),
            Self::GpuNs => units::time(Duration::from_nanos(value)),
            _ => value.to_string(),
        }
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Everything,
    OutsideRanges,
    Range,
    Kernel,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Everything => "everything",
            Self::OutsideRanges => "outside_ranges",
            Self::Range => "range",
            Self::Kernel => "kernel",
        }
    }

    fn has(self, quantity: Quantity) -> bool {
        match self {
            Self::Range => true,
            Self::Everything | Self::OutsideRanges => quantity != Quantity::Instances,
            Self::Kernel => matches!(quantity, Quantity::Kernels | Quantity::GpuNs),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Both,
    New,
    Gone,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::New => "new",
            Self::Gone => "gone",
        }
    }
}

/// One of the two files.
#[derive(Debug, Serialize)]
struct Side {
    file: String,
    recorded: String,
    is_complete: bool,
    health: Health,
}

impl Side {
    fn of(file: &Path, profile: &Profile) -> Self {
        Self {
            file: file.display().to_string(),
            recorded: profile.recording_info().to_string(),
            is_complete: profile.health().is_complete(),
            health: profile.health().clone(),
        }
    }
}

/// One quantity of one range, kernel or of everything.
#[derive(Debug, Clone, Serialize)]
struct Row {
    kind: Kind,
    status: Status,
    /// Of the default domain, none.
    domain: Option<Rc<str>>,
    /// Of a range, or of that in which a kernel was launched.
    path: Rc<str>,
    /// Of a kernel.
    kernel: Option<Rc<str>>,
    quantity: Quantity,
    a: u64,
    b: u64,
    change: i64,
    /// None from nothing.
    percent: Option<f64>,
}

impl Row {
    fn differs(&self) -> bool {
        self.a != self.b
    }

    fn grew_above(&self, percent: f64) -> bool {
        self.b > self.a && self.percent.is_none_or(|grown| grown > percent)
    }

    fn subject(&self) -> String {
        match (self.kind, &self.kernel) {
            (Kind::Everything, _) => "(everything)".to_owned(),
            (Kind::OutsideRanges, _) => "(outside any range)".to_owned(),
            (_, Some(kernel)) if self.path.is_empty() => kernel.to_string(),
            (_, Some(kernel)) => format!("{kernel} in {}", self.path),
            _ => self.path.to_string(),
        }
    }

    /// As wide as a table has place for.
    fn label(&self) -> String {
        let subject = match &self.domain {
            Some(domain) => format!("{} [{domain}]", self.subject()),
            None => self.subject(),
        };
        units::shortened(&subject, units::NAME_WIDTH)
    }

    fn change(&self) -> String {
        let sign = if self.b < self.a { '-' } else { '+' };
        format!("{sign}{}", self.quantity.text(self.b.abs_diff(self.a)))
    }

    fn share(&self) -> String {
        match (self.status, self.percent) {
            (Status::Both, Some(percent)) => format!("{percent:+.1} %"),
            (Status::Both, None) => "from none".to_owned(),
            (status, _) => status.name().to_owned(),
        }
    }
}

/// Rows of counts stand before those of times.
#[derive(Debug, Serialize)]
struct Diff {
    a: Side,
    b: Side,
    counts_differ: bool,
    rows: Vec<Row>,
}

/// Values by side.
type Both = [Option<[u64; Quantity::ALL.len()]>; 2];

fn add(to: &mut Both, side: usize, value: impl Fn(Quantity) -> u64) {
    let values = to[side].get_or_insert_default();
    for (sum, quantity) in values.iter_mut().zip(Quantity::ALL) {
        *sum = sum.saturating_add(value(quantity));
    }
}

/// The two trees of ranges laid over each other.
#[derive(Default)]
struct Tree {
    nodes: Vec<Node>,
    roots: Vec<usize>,
    ids: BTreeMap<(Option<usize>, Option<String>, String), usize>,
}

struct Node {
    name: String,
    domain: Option<Rc<str>>,
    parent: Option<usize>,
    children: Vec<usize>,
    values: Both,
}

impl Tree {
    /// The number of a node's like.
    fn id(&mut self, parent: Option<usize>, node: &RangeNode<'_>) -> usize {
        let key = (parent, node.domain().map(str::to_owned), node.name().to_owned());
        if let Some(&id) = self.ids.get(&key) {
            return id;
        }
        let id = self.nodes.len();
        self.nodes.push(Node {
            name: node.name().to_owned(),
            domain: node.domain().map(Rc::from),
            parent,
            children: Vec::new(),
            values: Both::default(),
        });
        match parent {
            Some(parent) => self.nodes[parent].children.push(id),
            None => self.roots.push(id),
        }
        self.ids.insert(key, id);
        id
    }

    /// Of a path beyond so many levels, those in the middle are left out.
    fn path(&self, id: usize) -> Rc<str> {
        let around = std::iter::successors(Some(id), |&id| self.nodes[id].parent);
        let mut names: Vec<&str> = around.map(|id| self.nodes[id].name.as_str()).collect();
        names.reverse();
        if names.len() > LEVELS {
            let end = names.split_off(names.len() - LEVELS / 2);
            names.truncate(LEVELS / 2);
            names.push("…");
            names.extend(end);
        }
        names.join("/").into()
    }

    /// Each before those within it.
    fn walk(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut left: Vec<usize> = self.roots.iter().rev().copied().collect();
        while let Some(id) = left.pop() {
            order.push(id);
            left.extend(self.nodes[id].children.iter().rev());
        }
        order
    }
}

impl Diff {
    fn of(a: Side, b: Side, profiles: [&Profile; 2], by_range: bool) -> Self {
        let (mut everything, mut outside) = (Both::default(), Both::default());
        let mut tree = Tree::default();
        // By the range that they are told apart by, if any.
        let mut kernels: BTreeMap<(Option<usize>, Rc<str>), Both> = BTreeMap::new();
        for (side, profile) in profiles.into_iter().enumerate() {
            add(&mut everything, side, |quantity| quantity.of(0, &profile.totals()));
            add(&mut outside, side, |quantity| quantity.of(0, &profile.outside_ranges()));
            let mut names: HashMap<String, Rc<str>> = HashMap::new();
            let mut add_kernel = |range: Option<usize>, kernel: Kernel<'_>| {
                let name = match names.get(kernel.name()) {
                    Some(name) => name.clone(),
                    None => {
                        let name: Rc<str> = kernel.demangled_name().into();
                        names.insert(kernel.name().to_owned(), name.clone());
                        name
                    }
                };
                let both = kernels.entry((range, name)).or_default();
                let time = ns(kernel.gpu_time().unwrap_or_default());
                add(both, side, |quantity| match quantity {
                    Quantity::Kernels => 1,
                    Quantity::GpuNs => time,
                    _ => 0,
                });
            };
            let mut around: Vec<usize> = Vec::new();
            for (depth, node) in profile.walk() {
                around.truncate(depth);
                let id = tree.id(around.last().copied(), &node);
                around.push(id);
                let (instances, totals) = (node.instances(), node.inclusive());
                add(&mut tree.nodes[id].values, side, |quantity| quantity.of(instances, &totals));
                if by_range {
                    let own = node.ranges().flat_map(|range| range.own_operations());
                    own.filter_map(|operation| operation.as_kernel())
                        .for_each(|kernel| add_kernel(Some(id), kernel));
                }
            }
            let others =
                profile.operations().filter(|operation| !by_range || operation.range().is_none());
            others
                .filter_map(|operation| operation.as_kernel())
                .for_each(|kernel| add_kernel(None, kernel));
        }

        let mut rows = Vec::new();
        let nowhere: Rc<str> = "".into();
        push(&mut rows, Kind::Everything, None, &nowhere, None, &everything);
        push(&mut rows, Kind::OutsideRanges, None, &nowhere, None, &outside);
        let paths: Vec<_> = (0..tree.nodes.len()).map(|id| tree.path(id)).collect();
        for id in tree.walk() {
            let node = &tree.nodes[id];
            push(&mut rows, Kind::Range, node.domain.as_ref(), &paths[id], None, &node.values);
        }
        for ((range, name), both) in &kernels {
            let domain = range.and_then(|id| tree.nodes[id].domain.as_ref());
            let path = range.map_or(&nowhere, |id| &paths[id]);
            push(&mut rows, Kind::Kernel, domain, path, Some(name.clone()), both);
        }
        rows.sort_by_key(|row| row.quantity.is_time());
        let counts_differ = rows.iter().any(|row| row.differs() && !row.quantity.is_time());
        Self { a, b, counts_differ, rows }
    }

    fn write_csv(&self, out: &mut dyn Write) -> Result<(), Failure> {
        writeln!(out, "Kind,Status,Domain,Path,Kernel,Quantity,A,B,Change,Change (%)")?;
        for row in &self.rows {
            let cell = |text: &Option<Rc<str>>| text.as_deref().map(csv_cell).unwrap_or_default();
            writeln!(
                out,
                "{},{},{},{},{},{},{},{},{},{}",
                row.kind.name(),
                row.status.name(),
                cell(&row.domain),
                csv_cell(&row.path),
                cell(&row.kernel),
                row.quantity.column(),
                row.a,
                row.b,
                row.change,
                row.percent.map(|percent| format!("{percent:.1}")).unwrap_or_default(),
            )?;
        }
        Ok(())
    }

    fn write_tables(&self, out: &mut dyn Write, all: bool) -> Result<(), Failure> {
        for (letter, side) in [("A", &self.a), ("B", &self.b)] {
            let lost = if side.is_complete { "" } else { ", INCOMPLETE" };
            writeln!(out, "{letter}: {} ({}{lost})", clean(&side.file), side.recorded)?;
        }
        let differing = |is_time: bool| {
            let of_both = self.rows.iter().filter(|row| row.status == Status::Both);
            of_both.filter(move |row| row.differs() && row.quantity.is_time() == is_time)
        };
        let counts: Vec<&Row> = differing(false).collect();
        if !self.counts_differ {
            writeln!(out, "\nEvery count is the same in both.")?;
        } else if counts.is_empty() {
            writeln!(out, "\nEvery count of what is in both is the same.")?;
        } else {
            writeln!(out, "\nCounts that differ; they are exact:\n")?;
            write_table(out, &counts, all)?;
        }
        self.write_only(out, Status::Gone, all)?;
        self.write_only(out, Status::New, all)?;
        let mut times: Vec<&Row> = differing(true).collect();
        if times.is_empty() {
            let what = "Every time on the GPU of what is in both is the same.";
            return Ok(writeln!(out, "\n{what}")?);
        }
        // Everything, then what changed most.
        times.sort_by_key(|row| (row.kind != Kind::Everything, Reverse(row.a.abs_diff(row.b))));
        writeln!(out, "\nTime on the GPU, as it was in each; what differs may be chance:\n")?;
        write_table(out, &times, all)
    }

    /// Ranges and kernels that one file alone has, a row each.
    fn write_only(&self, out: &mut dyn Write, status: Status, all: bool) -> Result<(), Failure> {
        // Rows of one subject stand in two places: counts, and times.
        let mut places = HashMap::new();
        let mut subjects: Vec<(&Row, [Option<u64>; Quantity::ALL.len()])> = Vec::new();
        for row in self.rows.iter().filter(|row| row.status == status) {
            let key = (row.kind.name(), &row.domain, &row.path, &row.kernel);
            let place = *places.entry(key).or_insert_with(|| {
                subjects.push((row, Default::default()));
                subjects.len() - 1
            });
            subjects[place].1[row.quantity as usize] = Some(row.a.max(row.b));
        }
        if subjects.is_empty() {
            return Ok(());
        }
        let letter = if status == Status::Gone { 'A' } else { 'B' };
        writeln!(out, "\nOnly in {letter}:\n")?;
        let mut header = vec!["of"];
        header.extend(Quantity::ALL.map(Quantity::name));
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

    fn gate(&self, percent: f64, of: Gated) -> Result<(), Failure> {
        for side in [&self.a, &self.b] {
            if !side.is_complete {
                return Err(Failure::Gate(format!(
                    "--fail-above {percent}: what is not in {} cannot be compared: it is {}",
                    side.file, side.health
                )));
            }
        }
        let is_gated = |row: &&Row| match of {
            Gated::Counts => !row.quantity.is_time(),
            Gated::GpuTime => row.quantity.is_time(),
            Gated::All => true,
        };
        let grown: Vec<&Row> =
            self.rows.iter().filter(is_gated).filter(|row| row.grew_above(percent)).collect();
        if grown.is_empty() {
            return Ok(());
        }
        let named: Vec<String> = grown.iter().take(NAMED).map(|row| named(row)).collect();
        let more = match grown.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        Err(Failure::Gate(format!(
            "--fail-above {percent}: {} values grew by more: {}{more}",
            grown.len(),
            named.join("; ")
        )))
    }
}

fn push(
    rows: &mut Vec<Row>,
    kind: Kind,
    domain: Option<&Rc<str>>,
    path: &Rc<str>,
    kernel: Option<Rc<str>>,
    both: &Both,
) {
    let status = match both {
        [Some(_), None] => Status::Gone,
        [None, Some(_)] => Status::New,
        _ => Status::Both,
    };
    for (at, quantity) in Quantity::ALL.into_iter().enumerate() {
        if !kind.has(quantity) {
            continue;
        }
        let [a, b] = both.map(|values| values.map_or(0, |values| values[at]));
        let change = i128::from(b) - i128::from(a);
        rows.push(Row {
            kind,
            status,
            domain: domain.cloned(),
            path: path.clone(),
            kernel: kernel.clone(),
            quantity,
            a,
            b,
            change: change.clamp(i64::MIN.into(), i64::MAX.into()) as i64,
            percent: percent(a, b),
        });
    }
}

fn percent(a: u64, b: u64) -> Option<f64> {
    match (a, b) {
        (0, 0) => Some(0.0),
        (0, _) => None,
        _ => Some(100.0 * (b as f64 - a as f64) / a as f64),
    }
}

fn write_table(out: &mut dyn Write, rows: &[&Row], all: bool) -> Result<(), Failure> {
    let shown = if all { rows.len() } else { rows.len().min(SHOWN) };
    let mut table = units::table(&["what", "of", "A", "B", "change", ""], 2);
    for row in &rows[..shown] {
        table.add_row([
            row.quantity.name().to_owned(),
            row.label(),
            row.quantity.text(row.a),
            row.quantity.text(row.b),
            row.change(),
            row.share(),
        ]);
    }
    writeln!(out, "{}", units::finish(&table))?;
    write_rest(out, rows.len() - shown)
}

fn write_rest(out: &mut dyn Write, rows: usize) -> Result<(), Failure> {
    match rows {
        0 => Ok(()),
        _ => Ok(writeln!(out, "({rows} more rows; --all shows them)")?),
    }
}

fn named(row: &Row) -> String {
    let (of, quantity) = (row.label(), row.quantity);
    let [a, b] = [row.a, row.b].map(|value| quantity.text(value));
    format!("{} of {of} from {a} to {b} ({})", quantity.name(), row.share())
}

fn clean(text: &str) -> String {
    text.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_from_nothing_has_no_percent_and_fails_every_gate() {
        assert_eq!([percent(0, 0), percent(0, 3), percent(4, 6)], [Some(0.0), None, Some(50.0)]);
        let mut rows = Vec::new();
        let mut both = Both::default();
        add(&mut both, 1, |_| 3);
        push(&mut rows, Kind::Kernel, None, &"".into(), Some("k".into()), &both);
        assert_eq!(rows.len(), 2, "a kernel has a count and a time");
        assert!(rows.iter().all(|row| row.status == Status::New && row.grew_above(1e9)));
        assert_eq!(rows[0].share(), "new");
    }

    #[test]
    fn a_gate_is_exceeded_by_more_alone() {
        let row = |a, b| {
            let (mut rows, mut both) = (Vec::new(), Both::default());
            add(&mut both, 0, |_| a);
            add(&mut both, 1, |_| b);
            push(&mut rows, Kind::Everything, None, &"".into(), None, &both);
            rows.remove(0)
        };
        assert!(!row(100, 105).grew_above(5.0));
        assert!(row(100, 106).grew_above(5.0));
        assert!(!row(100, 50).grew_above(5.0));
        assert!(!row(100, 100).grew_above(0.0));
        assert_eq!(row(u64::MAX, 0).change, i64::MIN);
    }
}
