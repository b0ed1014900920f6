//! `top`: lists the kernels, ranges and API calls with the most time.

use std::cmp::Reverse;
use std::fmt::Display;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use profiler_analysis::prelude::*;
use profiler_analysis::reports::StatsReport;
use profiler_base::display::Layout;
use profiler_base::table::Table;
use profiler_base::text::{csv_cell, printable};
use profiler_base::units::{nanoseconds as ns, percent};
use profiler_core::Profile;
use profiler_core::profile::ProcessRangeGroup;
use profiler_core::query::Group;
use serde::{Deserialize, Serialize};

use crate::args::{TableFormat, TopArgs, TopSelection, TopSort, TopTable};
use crate::failure::Failure;
use crate::input::note_losses;
use crate::output::write_json;

const ALL: [TopTable; 3] = [TopTable::Kernels, TopTable::Ranges, TopTable::Api];

/// A row of nsys's report on API calls.
#[derive(Deserialize)]
struct CallSum {
    name: String,
    num_calls: u64,
    total_ns: u64,
    avg_ns: f64,
    min_ns: u64,
    max_ns: u64,
}

/// The sums for one name.
#[derive(Default, Serialize)]
struct Row {
    name: String,
    /// For start/end ranges: the attribution of work, by time or by activations.
    #[serde(skip_serializing_if = "Option::is_none")]
    work: Option<&'static str>,
    count: u64,
    /// GPU time for kernels and ranges, host time for calls.
    time_ns: u64,
    /// For ranges: GPU time without nested ranges.
    #[serde(skip_serializing_if = "Option::is_none")]
    own_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_ns: Option<u64>,
    /// GPU time attributed to these ranges by inference; no other column includes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    inferred_ns: Option<u64>,
    /// Share of the time of all rows in the table; for ranges, share of all GPU time.
    share: f64,
    mean_ns: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_ns: Option<u64>,
}

/// The tables of a file.
#[derive(Serialize)]
pub(crate) struct Top {
    file: String,
    /// True if the recording is complete.
    complete: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernels: Option<Rows>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranges: Option<Rows>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api: Option<Rows>,
}

#[derive(Serialize)]
struct Rows {
    rows: Vec<Row>,
    /// The number of rows beyond the limit.
    more: usize,
    /// For ranges: GPU work outside all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    outside: Option<Outside>,
}

/// GPU work outside all ranges.
#[derive(Serialize)]
struct Outside {
    time_ns: u64,
    /// Share of all GPU time.
    share: f64,
}

/// The footnote of the column of inferred work.
const INFERRED: &str = "\n(inferred: work outside any range that another thread launched while the range's thread waited)";
/// The label of work outside all ranges, as in other reports.
const OUTSIDE: &str = "(outside any range)";

pub(crate) fn top(args: &TopArgs) -> Result<(), Failure> {
    let output = args.io.output()?;
    let mut files = Vec::new();
    for file in &args.io.files {
        let profile = args.numbers.profile(file)?;
        note_losses(file, &profile);
        files.push(Top::new(file, &profile, &args.selection)?);
    }
    match args.format.get() {
        TableFormat::Json => output.write(|out| write_json(out, &files)),
        TableFormat::Csv => output.write(|out| {
            writeln!(out, "File,Table,Name,Count,Time (ns),Own (ns),Host (ns),Share (%),Avg (ns),Min (ns),Max (ns),Inferred (ns)")?;
            for top in &files {
                for (table, rows) in top.tables() {
                    let (file, table) = (csv_cell(&top.file), table.name());
                    for row in &rows.rows {
                        writeln!(out, "{file},{table},{}", row.csv())?;
                    }
                    if let Some(Outside { time_ns, share }) = rows.outside {
                        let share = 100.0 * share;
                        writeln!(out, "{file},{table},{OUTSIDE},,{time_ns},,,{share:.1},,,,")?;
                    }
                }
            }
            Ok(())
        }),
        TableFormat::Table => output.write_in(true, |text| {
            for (at, top) in files.iter().enumerate() {
                if files.len() > 1 {
                    let space = if at == 0 { "" } else { "\n" };
                    writeln!(text, "{space}{}:\n", printable(&top.file))?;
                }
                let tables = top.tables().map(|(table, rows)| rows.text(table, text.layout));
                let tables: Vec<String> = tables.collect();
                writeln!(text, "{}", tables.join("\n\n"))?;
            }
            Ok(())
        }),
    }
}

impl Top {
    pub(crate) fn new(
        file: &Path,
        profile: &Profile,
        selection: &TopSelection,
    ) -> Result<Self, Failure> {
        let rows = |table: TopTable| {
            let is_asked = selection.of.is_empty() || selection.of.contains(&table);
            is_asked.then(|| Rows::new(table, profile, selection)).transpose()
        };
        Ok(Self {
            file: file.display().to_string(),
            complete: profile.health().is_complete(),
            kernels: rows(TopTable::Kernels)?,
            ranges: rows(TopTable::Ranges)?,
            api: rows(TopTable::Api)?,
        })
    }

    fn tables(&self) -> impl Iterator<Item = (TopTable, &Rows)> {
        let tables = ALL.into_iter().zip([&self.kernels, &self.ranges, &self.api]);
        tables.filter_map(|(table, rows)| rows.as_ref().map(|rows| (table, rows)))
    }
}

impl TopTable {
    fn name(self) -> &'static str {
        match self {
            Self::Kernels => "kernels",
            Self::Ranges => "ranges",
            Self::Api => "api",
        }
    }
}

impl Rows {
    fn new(table: TopTable, profile: &Profile, selection: &TopSelection) -> Result<Self, Failure> {
        let mut rows = match table {
            TopTable::Kernels => {
                let groups = profile.query().kernels().by_kernel();
                groups.iter().map(Row::kernel).collect()
            }
            TopTable::Api => {
                let report = serde_json::to_value(profile.stats(StatsReport::CudaApiSum));
                let calls = report.and_then(serde_json::from_value::<Vec<CallSum>>);
                let calls = calls.map_err(|error| Failure::Error(format!("API calls: {error}")))?;
                calls.into_iter().map(Row::call).collect()
            }
            TopTable::Ranges => ranges(profile),
        };
        // Shares relate to all rows, including those removed by the filter.
        let all: u64 = match table {
            TopTable::Ranges => ns(profile.totals().gpu_time()),
            _ => rows.iter().map(|row| row.time_ns).fold(0, u64::saturating_add),
        };
        let share = |time_ns: u64| time_ns as f64 / all.max(1) as f64;
        for row in &mut rows {
            row.share = share(row.time_ns);
        }
        let is_shown =
            |name: &str| selection.filter.as_ref().is_none_or(|filter| filter.is_match(name));
        let outside = (table == TopTable::Ranges && !rows.is_empty() && is_shown(OUTSIDE))
            .then(|| ns(profile.outside_ranges().gpu_time()))
            .filter(|time_ns| *time_ns != 0)
            .map(|time_ns| Outside { time_ns, share: share(time_ns) });
        rows.retain(|row| is_shown(&row.name));
        match selection.sort {
            TopSort::Time => rows.sort_by_key(|row| Reverse((row.time_ns, row.host_ns))),
            TopSort::Count => rows.sort_by_key(|row| Reverse((row.count, row.time_ns))),
            TopSort::Mean => rows.sort_by(|a, b| b.mean_ns.total_cmp(&a.mean_ns)),
            TopSort::Name => rows.sort_by(|a, b| a.name.cmp(&b.name)),
        }
        let limit = if selection.limit == 0 { usize::MAX } else { selection.limit };
        let more = rows.len().saturating_sub(limit);
        rows.truncate(limit);
        Ok(Self { rows, more, outside })
    }

    fn text(&self, table: TopTable, layout: Layout) -> String {
        let of_ranges = table == TopTable::Ranges;
        let name = match table {
            TopTable::Kernels => "kernel",
            TopTable::Ranges => "range",
            TopTable::Api => "API call",
        };
        if self.rows.is_empty() && self.outside.is_none() {
            return format!("no {name}s");
        }
        let time_name = if table == TopTable::Api { "time" } else { "GPU time" };
        let has_inferred = self.rows.iter().any(|row| row.inferred_ns.is_some());
        let mut head = vec![name, "count", time_name, "share"];
        head.extend(match of_ranges {
            true => ["own GPU", "host time", "mean"],
            false => ["mean", "min", "max"],
        });
        // Insert before the last column, because a narrow table drops this column first.
        if has_inferred {
            head.insert(head.len() - 1, "inferred GPU");
        }
        let mut text = Table::new(head, 1);
        for row in &self.rows {
            let time = |ns: Option<u64>| ns.map(time).unwrap_or_default();
            let mean = self::time(row.mean_ns.round() as u64);
            let rest = match of_ranges {
                true => [time(row.own_ns), time(row.host_ns), mean],
                false => [mean, time(row.min_ns), time(row.max_ns)],
            };
            let (count, share) = (row.count.to_string(), percent(row.share));
            let first = [row.label(), count, self::time(row.time_ns), share];
            let mut cells: Vec<String> = first.into_iter().chain(rest).collect();
            if has_inferred {
                cells.insert(cells.len() - 1, time(row.inferred_ns));
            }
            text.add_row(cells);
        }
        if let Some(Outside { time_ns, share }) = self.outside {
            text.add_row([OUTSIDE.to_owned(), String::new(), self::time(time_ns), percent(share)]);
        }
        let more = match self.more {
            0 => String::new(),
            more => format!("\n({more} more; --limit 0 shows all)"),
        };
        let inferred = if has_inferred { INFERRED } else { "" };
        text.render(layout) + &more + inferred
    }
}

impl Row {
    fn kernel(group: &Group<impl Display>) -> Self {
        let times = group.statistics();
        Self {
            name: group.key().to_string(),
            count: group.count(),
            time_ns: ns(group.time()),
            mean_ns: ns(times.sum()) as f64 / times.count().max(1) as f64,
            min_ns: Some(ns(times.min())),
            max_ns: Some(ns(times.max())),
            ..Self::default()
        }
    }

    fn call(call: CallSum) -> Self {
        Self {
            name: call.name,
            count: call.num_calls,
            time_ns: call.total_ns,
            mean_ns: call.avg_ns,
            min_ns: Some(call.min_ns),
            max_ns: Some(call.max_ns),
            ..Self::default()
        }
    }

    fn label(&self) -> String {
        match self.work {
            Some(work) => format!("{} (start/end, {work})", self.name),
            None => self.name.clone(),
        }
    }

    fn csv(&self) -> String {
        let number = |number: Option<u64>| number.map(|n| n.to_string()).unwrap_or_default();
        let Self { count, time_ns, mean_ns, .. } = self;
        let (name, own, host) =
            (csv_cell(&self.label()), number(self.own_ns), number(self.host_ns));
        let (min, max, share) = (number(self.min_ns), number(self.max_ns), 100.0 * self.share);
        let inferred = number(self.inferred_ns);
        format!(
            "{name},{count},{time_ns},{own},{host},{share:.1},{mean_ns:.1},{min},{max},{inferred}"
        )
    }
}

fn ranges(profile: &Profile) -> Vec<Row> {
    let row = |(_, node): (usize, profiler_core::profile::RangeNode<'_>)| {
        let (count, time_ns) = (node.instances(), ns(node.inclusive().gpu_time()));
        Row {
            name: node.path(),
            count,
            time_ns,
            own_ns: Some(ns(node.exclusive().gpu_time())),
            host_ns: Some(ns(node.host_time())),
            inferred_ns: Some(ns(node.inferred().gpu_time())).filter(|inferred| *inferred != 0),
            mean_ns: time_ns as f64 / count.max(1) as f64,
            ..Row::default()
        }
    };
    let by_name = |group: &ProcessRangeGroup<'_>| {
        let (count, time_ns) = (group.instances(), ns(group.inclusive().gpu_time()));
        Row {
            name: group.name().to_owned(),
            work: Some(if group.is_by_time() { "by time" } else { "activations" }),
            count,
            time_ns,
            host_ns: Some(ns(group.host_time())),
            mean_ns: time_ns as f64 / count.max(1) as f64,
            ..Row::default()
        }
    };
    let groups = profile.process_range_groups();
    profile.walk().map(row).chain(groups.iter().map(by_name)).collect()
}

fn time(ns: u64) -> String {
    profiler_base::table::time(Duration::from_nanos(ns))
}
