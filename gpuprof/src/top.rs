//! `top`: lists the kernels, ranges and API calls with the most time.

use std::cmp::Reverse;
use std::fmt::{self, Display};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use profiler_base::aggregate::Aggregate;
use profiler_base::display::Layout;
use profiler_base::kernel_names::versionless;
use profiler_base::statistics::Statistics;
use profiler_base::table::Table;
use profiler_base::text::{csv_cell, printable};
use profiler_base::units::{nanoseconds as ns, percent};
use profiler_core::Profile;
use profiler_core::profile::{GpuOperation, ProcessRangeGroup};
use profiler_core::query::{Group, KernelName, StreamKey};
use serde::Serialize;

use crate::args::{TableFormat, TopArgs, TopPlace, TopSelection, TopSort, TopTable};
use crate::failure::Failure;
use crate::input::note_losses;
use crate::output::write_json;

/// The tables that are shown unless others are asked for.
const USUAL: [TopTable; 3] = [TopTable::Kernels, TopTable::Ranges, TopTable::Api];
const ALL: [TopTable; 5] =
    [TopTable::Kernels, TopTable::Ranges, TopTable::Api, TopTable::Streams, TopTable::Devices];

/// A device or a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
enum Place {
    Device { device: u32 },
    Stream(StreamKey),
}

impl Place {
    fn new(by: TopPlace, operation: &GpuOperation<'_>) -> Self {
        match by {
            TopPlace::Device => Self::Device { device: operation.device() },
            TopPlace::Stream => Self::Stream(StreamKey::from_operation(operation)),
        }
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device { device } => write!(f, "device {device}"),
            Self::Stream(stream) => stream.fmt(f),
        }
    }
}

/// The sums for one name.
#[derive(Default, Serialize)]
struct Row {
    name: String,
    #[serde(flatten)]
    place: Option<Place>,
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
    /// Of the times; for ranges, of the GPU times of instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p90_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_ns: Option<u64>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    streams: Option<Rows>,
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<Rows>,
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
        files.push(Top::new(file, &profile, &args.selection));
    }
    match args.format.get() {
        TableFormat::Json => output.write(|out| write_json(out, &files)),
        TableFormat::Csv => output.write(|out| {
            writeln!(out, "File,Table,Name,Count,Time (ns),Own (ns),Host (ns),Share (%),Avg (ns),Min (ns),Max (ns),Inferred (ns),P50 (ns),P90 (ns),P99 (ns),Place")?;
            for top in &files {
                for (table, rows) in top.tables() {
                    let (file, table) = (csv_cell(&top.file), table.name());
                    for row in &rows.rows {
                        writeln!(out, "{file},{table},{}", row.csv())?;
                    }
                    if let Some(Outside { time_ns, share }) = rows.outside {
                        let share = 100.0 * share;
                        writeln!(out, "{file},{table},{OUTSIDE},,{time_ns},,,{share:.1},,,,,,,,")?;
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
    pub(crate) fn new(file: &Path, profile: &Profile, selection: &TopSelection) -> Self {
        let rows = |table: TopTable| {
            let asked = if selection.of.is_empty() { &USUAL[..] } else { &selection.of };
            let is_asked = asked.contains(&table);
            is_asked.then(|| Rows::new(table, profile, selection))
        };
        Self {
            file: file.display().to_string(),
            complete: profile.health().is_complete(),
            kernels: rows(TopTable::Kernels),
            ranges: rows(TopTable::Ranges),
            api: rows(TopTable::Api),
            streams: rows(TopTable::Streams),
            devices: rows(TopTable::Devices),
        }
    }

    fn tables(&self) -> impl Iterator<Item = (TopTable, &Rows)> {
        let rows = [&self.kernels, &self.ranges, &self.api, &self.streams, &self.devices];
        let tables = ALL.into_iter().zip(rows);
        tables.filter_map(|(table, rows)| rows.as_ref().map(|rows| (table, rows)))
    }
}

impl TopTable {
    fn name(self) -> &'static str {
        match self {
            Self::Kernels => "kernels",
            Self::Ranges => "ranges",
            Self::Api => "api",
            Self::Streams => "streams",
            Self::Devices => "devices",
        }
    }
}

impl Rows {
    fn new(table: TopTable, profile: &Profile, selection: &TopSelection) -> Self {
        let all = || profile.query();
        let mut rows: Vec<Row> = match table {
            TopTable::Kernels => {
                let groups = all().kernels().group_by(|operation| {
                    let place = selection.by.map(|by| Place::new(by, operation));
                    Some((KernelName::new(&operation.as_kernel()?), place))
                });
                groups.iter().map(|group| Row::new(group.key().0, group.key().1, group)).collect()
            }
            TopTable::Streams => {
                let row = |group: &Group<StreamKey>| {
                    Row::new("", Some(Place::Stream(*group.key())), group)
                };
                all().by_stream().iter().map(row).collect()
            }
            TopTable::Devices => {
                let place = |group: &Group<u32>| Place::Device { device: *group.key() };
                let groups = all().by_device();
                groups.iter().map(|group| Row::new("", Some(place(group)), group)).collect()
            }
            TopTable::Api => calls(profile),
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
        rows.retain(|row| is_shown(&row.label()));
        match selection.sort {
            TopSort::Time => rows.sort_by_key(|row| Reverse((row.time_ns, row.host_ns))),
            TopSort::Count => rows.sort_by_key(|row| Reverse((row.count, row.time_ns))),
            TopSort::Mean => rows.sort_by(|a, b| b.mean_ns.total_cmp(&a.mean_ns)),
            TopSort::Name => rows.sort_by(|a, b| a.name.cmp(&b.name)),
        }
        let limit = if selection.limit == 0 { usize::MAX } else { selection.limit };
        let more = rows.len().saturating_sub(limit);
        rows.truncate(limit);
        Self { rows, more, outside }
    }

    fn text(&self, table: TopTable, layout: Layout) -> String {
        let of_ranges = table == TopTable::Ranges;
        let name = match table {
            TopTable::Kernels => "kernel",
            TopTable::Ranges => "range",
            TopTable::Api => "API call",
            TopTable::Streams => "stream",
            TopTable::Devices => "device",
        };
        if self.rows.is_empty() && self.outside.is_none() {
            return format!("no {name}s");
        }
        let time_name = if table == TopTable::Api { "time" } else { "GPU time" };
        let has_inferred = self.rows.iter().any(|row| row.inferred_ns.is_some());
        let mut head = vec![name, "count", time_name, "share"];
        if of_ranges {
            head.extend(["own GPU", "host time"]);
        }
        head.extend(["mean", "p50", "p99", "max"]);
        // A narrow table drops the last columns first.
        if has_inferred {
            head.insert(6, "inferred GPU");
        }
        let mut text = Table::new(head, 1);
        for row in &self.rows {
            let time = |ns: Option<u64>| ns.map(time).unwrap_or_default();
            let (count, share) = (row.count.to_string(), percent(row.share));
            let mut cells = vec![row.label(), count, self::time(row.time_ns), share];
            if of_ranges {
                cells.extend([time(row.own_ns), time(row.host_ns)]);
            }
            let mean = self::time(row.mean_ns.round() as u64);
            cells.extend([mean, time(row.p50_ns), time(row.p99_ns), time(row.max_ns)]);
            if has_inferred {
                cells.insert(6, time(row.inferred_ns));
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
    fn new<K>(name: impl Display, place: Option<Place>, group: &Group<K>) -> Self {
        let row = Self {
            name: name.to_string(),
            place,
            count: group.count(),
            time_ns: ns(group.time()),
            ..Self::default()
        };
        row.with_times(group.statistics())
    }

    fn with_times(self, times: &Statistics) -> Self {
        let percentile = |percent| Some(ns(times.percentile(percent)));
        Self {
            mean_ns: ns(times.sum()) as f64 / times.count().max(1) as f64,
            min_ns: Some(ns(times.min())),
            max_ns: Some(ns(times.max())),
            p50_ns: percentile(50.0),
            p90_ns: percentile(90.0),
            p99_ns: percentile(99.0),
            ..self
        }
    }

    fn label(&self) -> String {
        match (self.work, self.place) {
            (Some(work), _) => format!("{} (start/end, {work})", self.name),
            (None, Some(place)) if self.name.is_empty() => place.to_string(),
            (None, Some(place)) => format!("{} on {place}", self.name),
            (None, None) => self.name.clone(),
        }
    }

    fn csv(&self) -> String {
        let number = |number: Option<u64>| number.map(|n| n.to_string()).unwrap_or_default();
        let Self { count, time_ns, mean_ns, .. } = self;
        let (name, own, host) =
            (csv_cell(&self.label()), number(self.own_ns), number(self.host_ns));
        let (min, max, share) = (number(self.min_ns), number(self.max_ns), 100.0 * self.share);
        let inferred = number(self.inferred_ns);
        let percentiles = [self.p50_ns, self.p90_ns, self.p99_ns].map(number).join(",");
        let place = csv_cell(&self.place.map(|place| place.to_string()).unwrap_or_default());
        format!(
            "{name},{count},{time_ns},{own},{host},{share:.1},{mean_ns:.1},{min},{max},{inferred},{percentiles},{place}"
        )
    }
}

/// Calls by function, without the version in its name.
fn calls(profile: &Profile) -> Vec<Row> {
    let mut groups = Aggregate::default();
    for call in profile.calls().chain(profile.runtime_calls()) {
        if let Some(time) = call.host_time() {
            groups.add(versionless(call.name()), Some(ns(time)), 0);
        }
    }
    groups.ranked().iter().map(|group| Row::new(group.key(), None, group)).collect()
}

fn ranges(profile: &Profile) -> Vec<Row> {
    let row = |(_, node): (usize, profiler_core::profile::RangeNode<'_>)| {
        let (count, time_ns) = (node.instances(), ns(node.inclusive().gpu_time()));
        let times = node.ranges().map(|range| ns(range.inclusive().gpu_time())).collect();
        let row = Row {
            name: node.path(),
            count,
            time_ns,
            own_ns: Some(ns(node.exclusive().gpu_time())),
            host_ns: Some(ns(node.host_time())),
            inferred_ns: Some(ns(node.inferred().gpu_time())).filter(|inferred| *inferred != 0),
            ..Row::default()
        };
        Row {
            mean_ns: time_ns as f64 / count.max(1) as f64,
            ..row.with_times(&Statistics::from_nanos(times))
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
