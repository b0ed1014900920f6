//! `gpuprof lines`: what the warps of kernels wait for, by kernel and source line.

mod listing;
mod machine_code;

use std::path::Path;

use profiler_base::display::{DisplayOptions, Layout};
use profiler_base::table::Table;
use profiler_base::text::printable;
use profiler_base::units::percent;
use profiler_core::Profile;
use profiler_core::query::{InstructionCounts, Instructions, SampledPlace, Stalls};
use regex::Regex;
use serde::Serialize;

use crate::args::{LinesArgs, OutputFormat as _};
use crate::failure::Failure;
use crate::{input, reports};
use listing::Sources;
use machine_code::MachineCode;

/// The length of the longest bar.
const BAR: usize = 20;
/// The share of samples without a line from which the tables say so.
const WITHOUT_LINE: f64 = 0.05;

/// The JSON of samples.
#[derive(Serialize)]
pub(crate) struct Rows {
    samples: f64,
    exact_share: f64,
    account: Account,
    kernels: Vec<Row>,
    lines: Vec<Row>,
}

impl Rows {
    pub(crate) fn new(counts: &InstructionCounts<'_>, samples: &Instructions<'_>) -> Self {
        let rows = |places: Vec<SampledPlace<'_>>| places.iter().map(Row::new).collect();
        Self {
            samples: samples.samples(),
            exact_share: samples.exact_share(),
            account: Account {
                total: counts.total,
                recorded: counts.recorded,
                dropped: counts.dropped,
                non_user: counts.non_user,
                over_limit: counts.over_limit,
                outside_windows: counts.outside_windows,
                without_launch: counts.without_launch,
                without_line: counts.without_line,
                full_slices: counts.full_slices,
                failed_reads: counts.failed_reads,
                missed_ends: counts.missed_ends,
                cubins_left_out: counts.cubins_left_out,
                is_complete: counts.is_complete(),
                failures: counts.failures.iter().map(ToString::to_string).collect(),
            },
            kernels: rows(samples.by_kernel()),
            lines: rows(samples.by_line()),
        }
    }
}

/// The samples of the whole recording.
#[derive(Serialize)]
struct Account {
    total: u64,
    recorded: u64,
    dropped: u64,
    non_user: u64,
    over_limit: u64,
    outside_windows: u64,
    without_launch: u64,
    without_line: u64,
    full_slices: u64,
    failed_reads: u64,
    missed_ends: u64,
    cubins_left_out: u64,
    is_complete: bool,
    failures: Vec<String>,
}

/// A kernel or a line.
#[derive(Serialize)]
struct Row {
    kernel: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    share: f64,
    samples: f64,
    /// Samples by CUPTI's name of the state.
    stalls: Stalls,
}

impl Row {
    fn new(place: &SampledPlace<'_>) -> Self {
        Self {
            kernel: place.kernel.to_string(),
            file: place.line.map(|(file, _)| file.to_owned()),
            line: place.line.map(|(_, line)| line),
            share: place.share,
            samples: place.stalls.total(),
            stalls: place.stalls,
        }
    }
}

/// A bar of a share of the largest.
fn bar(share: f64, largest: f64) -> String {
    let cells = if largest > 0.0 { share / largest * BAR as f64 } else { 0.0 };
    "█".repeat((cells.round() as usize).clamp(1, BAR))
}

fn table(rows: &[SampledPlace<'_>], is_of_lines: bool, limit: usize, layout: Layout) -> String {
    let largest = rows.first().map_or(0.0, |row| row.share);
    let names: &[&str] = if is_of_lines { &["line", "kernel", ""] } else { &["kernel", ""] };
    let heads = names.iter().copied().chain(["samples", "share", "warps"]);
    let mut table =
        Table::new(heads, names.len()).with_left_out_first(&["samples", ""]).with_prose();
    let shown = if limit == 0 { rows.len() } else { limit };
    let of = |row: &SampledPlace<'_>| {
        let samples = format!("{:.0}", row.stalls.total());
        [bar(row.share, largest), samples, percent(row.share), row.stalls.to_string()]
    };
    for row in rows.iter().take(shown) {
        let kernel = row.kernel.to_string();
        let line = match row.line {
            _ if !is_of_lines => None,
            Some(_) => Some(row.place()),
            None => Some("(no lines)".to_owned()),
        };
        table.add_row(line.into_iter().chain([kernel]).chain(of(row)));
    }
    if let Some(rest) = rows.get(shown..).filter(|rest| !rest.is_empty()) {
        let what = if is_of_lines { "lines" } else { "kernels" };
        let share: f64 = rest.iter().map(|row| row.share).sum();
        let samples: f64 = rest.iter().map(|row| row.stalls.total()).sum();
        let first = [format!("({} other {what})", rest.len())].into_iter();
        let empty = vec![String::new(); names.len() - 1];
        table.add_row(first.chain(empty).chain([format!("{samples:.0}"), percent(share)]));
    }
    table.render(layout)
}

/// The text for people.
struct Text<'a> {
    profile: &'a Profile,
    samples: &'a Instructions<'a>,
    /// The options that select.
    selected: Option<String>,
    limit: usize,
    sources: Option<&'a Sources>,
    code: Option<&'a MachineCode>,
}

impl DisplayOptions for Text<'_> {
    fn write_in(&self, layout: Layout, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { profile, samples, selected, limit, sources, code } = self;
        let counts = profile.instruction_counts().unwrap_or_default();
        writeln!(f, "{counts}")?;
        if let Some(selected) = selected {
            let (total, exact) = (samples.samples(), percent(samples.exact_share()));
            writeln!(f, "{total:.0} {}; {exact} of them are exact", printable(selected))?;
        }
        if samples.is_empty() {
            return writeln!(f, "\nno samples to show");
        }
        let lines = samples.by_line();
        write!(f, "\n{}\n", table(&samples.by_kernel(), false, *limit, layout))?;
        write!(f, "\n{}\n", table(&lines, true, *limit, layout))?;
        let without: f64 = lines.iter().filter(|row| row.line.is_none()).map(|row| row.share).sum();
        if without >= WITHOUT_LINE {
            writeln!(
                f,
                "\n{} of the samples have no line: compile with line tables (nvcc and NVRTC: -lineinfo), \
                 and begin before the modules are loaded",
                percent(without)
            )?;
        }
        if let Some(sources) = sources {
            sources.write(f, &lines, layout)?;
        }
        match code {
            Some(code) => code.write(f, samples, *limit, layout),
            None => Ok(()),
        }
    }
}

/// The samples of kernels in these ranges whose name matches, and the counts of all samples.
pub(crate) fn samples<'p>(
    file: &Path,
    profile: &'p Profile,
    kernel: Option<&'p Regex>,
    range: Option<&str>,
) -> Result<(InstructionCounts<'p>, Instructions<'p>), Failure> {
    let Some(counts) = profile.instruction_counts() else {
        return Err(Failure::Error(format!(
            "{} has no instruction samples: record it with `gpuprof run --lines`, or with Sampling::instructions",
            file.display()
        )));
    };
    let mut query = profile.query().kernels();
    if let Some(path) = range {
        reports::check_within(file, profile, path)?;
        query = query.in_range(path);
    }
    if let Some(regex) = kernel {
        query = query.filter(|operation| {
            let kernel = operation.as_kernel();
            kernel
                .is_some_and(|of| regex.is_match(&of.demangled_name()) || regex.is_match(of.name()))
        });
    }
    let samples = match (kernel, range) {
        (None, None) => profile.instructions(),
        _ => query.instructions(),
    };
    Ok((counts, samples))
}

pub(crate) fn lines(args: &LinesArgs) -> Result<(), Failure> {
    let (output, is_for_people) = (args.io.output(&[])?, args.format.get().is_for_people());
    let file = &args.io.file;
    let profile = input::profile(file)?;
    let (counts, samples) = samples(file, &profile, args.kernel.as_ref(), args.range.as_deref())?;
    let of_kernels = args.kernel.as_ref().map(|regex| format!("of kernels that match {regex}"));
    let in_range = args.range.as_ref().map(|path| format!("in {path}"));
    let selected: Vec<String> = of_kernels.into_iter().chain(in_range).collect();
    let code = args.sass.then(|| MachineCode::new(file, &profile, &samples)).transpose()?;
    let sources =
        args.source.as_deref().map(|folder| Sources::new(folder, &profile)).transpose()?;
    let text = Text {
        profile: &profile,
        samples: &samples,
        selected: (!selected.is_empty()).then(|| selected.join(" ")),
        limit: args.limit,
        sources: sources.as_ref(),
        code: code.as_ref(),
    };
    output.text_or_json(is_for_people, |out| out.show(&text), &Rows::new(&counts, &samples))
}
