//! `stats` and `analyze`: run reports and rules by their nsys names.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use profiler_analysis::Error;
use profiler_analysis::prelude::*;
use profiler_analysis::reports::{AnyReport, Reports, Rule, StatsReport};
use profiler_base::table::Table;
use profiler_base::text;
use profiler_core::Profile;
use serde::Serialize;

use crate::args::{AnalyzeArgs, OutputFormat as _, StatsArgs, TableFormat};
use crate::failure::Failure;
use crate::input::{self, note_losses};
use crate::message::note;
use crate::output::{Output, write_json};
use crate::suggest;
use crate::terminal::Text;

/// A report and its style of kernel names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamedReport {
    report: StatsReport,
    /// Sets base or mangled names instead of demangled ones.
    naming: for<'a> fn(Reports<'a>) -> Reports<'a>,
    with_range: bool,
}

impl NamedReport {
    fn plain(report: StatsReport) -> Self {
        Self { report, naming: |reports| reports, with_range: false }
    }

    /// Parses a name such as `cuda_gpu_kern_sum:nvtx-name:base`.
    fn parse(word: &str) -> Result<Self, Failure> {
        let mut parts = word.split(':');
        let name = parts.next().unwrap_or_default();
        let names = StatsReport::ALL.iter().map(|report| report.name());
        let mut chosen = Self::plain(name.parse().map_err(|error| usage(&error, name, names))?);
        for part in parts {
            match part {
                "base" => chosen.naming = |reports| reports.base_names(),
                "mangled" => chosen.naming = |reports| reports.mangled_names(),
                "nvtx-name" => chosen.with_range = true,
                _ => {
                    return Err(Failure::Usage(format!(
                        "there is no way {part:?} to name kernels, as in {word}; there are: base, mangled, nvtx-name"
                    )));
                }
            }
        }
        Ok(chosen)
    }

    pub(crate) fn build(self, profile: &Profile) -> AnyReport {
        let reports = (self.naming)(profile.reports());
        let reports = if self.with_range { reports.with_range_names() } else { reports };
        reports.get(self.report)
    }
}

pub(crate) fn stats(args: StatsArgs) -> Result<(), Failure> {
    let (all, format) = (all_reports(), args.format.get());
    let count = |profile: &Profile, chosen: NamedReport| profile.stats(chosen.report).len();
    let words = (&args.words[..], "report");
    let Some(Opened { chosen, file, profile, output }) =
        open(words, format, args.output.output, NamedReport::parse, all, count)?
    else {
        return Ok(());
    };
    output.write_in(format.is_for_people(), |out| {
        let reports = chosen.into_iter().map(|(name, chosen)| (name, chosen.build(&profile), None));
        write(out, format, reports)
    })?;
    args.gate.check(&file, &profile)
}

pub(crate) fn analyze(args: AnalyzeArgs) -> Result<(), Failure> {
    let all = Rule::ALL.iter().map(|&rule| (rule.name(), rule.about(), rule));
    let format = args.format.get();
    let names = || Rule::ALL.iter().map(|rule| rule.name());
    let parse = |word: &str| word.parse::<Rule>().map_err(|error| usage(&error, word, names()));
    let count = |profile: &Profile, rule| profile.rules().rows(None).get(rule).len();
    let words = (&args.words[..], "rule");
    let Some(Opened { chosen, file, profile, output }) =
        open(words, format, args.output.output, parse, all, count)?
    else {
        return Ok(());
    };
    let mut rules = profile.rules().rows((args.rows != 0).then_some(args.rows));
    if let Some(path) = args.within.as_deref() {
        check_within(&file, &profile, path)?;
        rules = rules.within(path);
    }
    if let Some(ms) = args.gap {
        let gap = Duration::try_from_secs_f64(ms / 1e3).unwrap_or(Duration::MAX);
        rules = rules.min_gap(gap);
    }
    let mut found = Vec::new();
    output.write_in(format.is_for_people(), |out| {
        let reports = chosen.into_iter().map(|(name, rule)| {
            let report = rules.get(rule);
            if !report.is_empty() {
                let rows = report.len() as u64 + report.more_rows();
                found.push(format!("{rows} of {}", rule.name()));
            }
            (name, report, Some(rule.advice()))
        });
        write(out, format, reports)
    })?;
    match args.fail_if_found && !found.is_empty() {
        true => Err(Failure::Gate(format!("--fail-if-found: found {}", found.join(", ")))),
        false => Ok(()),
    }
}

pub(crate) fn check_within(file: &Path, profile: &Profile, path: &str) -> Result<(), Failure> {
    match profile.range(path) {
        Some(_) => Ok(()),
        None => Err(Failure::Error(format!(
            "{} has no range {path:?} for --within: `gpuprof report` shows those it has{}",
            file.display(),
            suggest::range(profile, path)
        ))),
    }
}

fn usage(error: &Error, word: &str, known: impl Iterator<Item = &'static str>) -> Failure {
    Failure::Usage(format!("{error}{}", suggest::similar(word, known)))
}

/// The requested reports or rules, and the opened files.
struct Opened<T> {
    chosen: Vec<(String, T)>,
    file: PathBuf,
    profile: Profile,
    output: Output,
}

/// Opens the files of a command line. If the list of reports or rules was requested, writes it and
/// returns `None`.
fn open<T: Copy>(
    (words, what): (&[OsString], &str),
    format: TableFormat,
    to: Option<PathBuf>,
    parse: impl Fn(&str) -> Result<T, Failure>,
    all: impl Iterator<Item = (&'static str, &'static str, T)> + Clone,
    count: impl Fn(&Profile, T) -> usize,
) -> Result<Option<Opened<T>>, Failure> {
    let Some((last, names)) = words.split_last() else {
        return list(format, to, None, all, count).map(|()| None);
    };
    let is_name =
        |word: &OsString| word.to_str().is_some_and(|word| word == "all" || parse(word).is_ok());
    let file = match names {
        [] if last == "list" => None,
        [] if is_name(last) => {
            return Err(Failure::Usage(format!(
                "no file is named: the last word is the file, as in {} run.gpuprof",
                last.display()
            )));
        }
        [] if !PathBuf::from(last).exists() => {
            return Err(Failure::Usage(format!(
                "there is neither a {what} nor a file {}: `list` shows the {what}s{}",
                last.display(),
                suggest::similar(&last.to_string_lossy(), all.map(|(name, ..)| name))
                    + &suggest::file(Path::new(last))
            )));
        }
        _ => Some(PathBuf::from(last)),
    };
    let is_list = match names {
        [] => true,
        [list] => list == "list",
        _ => false,
    };
    let Some(file) = file.clone().filter(|_| !is_list) else {
        return list(format, to, file, all, count).map(|()| None);
    };
    let names: Vec<_> = names.iter().map(|word| word.to_string_lossy()).collect();
    let chosen = choose(&names.join(","), what, parse, all)?;
    let output = Output::new(to, &[&file])?;
    let profile = input::profile(&file)?;
    note_losses(&file, &profile);
    Ok(Some(Opened { chosen, file, profile, output }))
}

/// Parses a comma-separated list of reports or rules, without duplicates.
fn choose<T: Copy>(
    names: &str,
    what: &str,
    parse: impl Fn(&str) -> Result<T, Failure>,
    all: impl Iterator<Item = (&'static str, &'static str, T)> + Clone,
) -> Result<Vec<(String, T)>, Failure> {
    let mut chosen: Vec<(String, T)> = Vec::new();
    let mut add = |name: &str, one: T| {
        if !chosen.iter().any(|(known, _)| known == name) {
            chosen.push((name.to_owned(), one));
        }
    };
    for name in names.split(',').filter(|name| !name.is_empty()) {
        match name {
            "all" => all.clone().for_each(|(name, _, one)| add(name, one)),
            _ => add(name, parse(name)?),
        }
    }
    match chosen.is_empty() {
        true => Err(Failure::Usage(format!("no {what} is named: `list` shows the {what}s"))),
        false => Ok(chosen),
    }
}

/// Parses the comma-separated list of reports for `gpuprof run`.
pub(crate) fn named_reports(names: &str) -> Result<Vec<(String, NamedReport)>, Failure> {
    choose(names, "report", NamedReport::parse, all_reports())
}

fn all_reports() -> impl Iterator<Item = (&'static str, &'static str, NamedReport)> + Clone {
    let reports = StatsReport::ALL.iter();
    reports.map(|&report| (report.name(), report.about(), NamedReport::plain(report)))
}

/// A row of the list of reports or rules.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    shows: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<u64>,
}

impl Listed {
    fn rows(&self) -> String {
        self.rows.map(|rows| rows.to_string()).unwrap_or_default()
    }
}

fn list_table(all: &[Listed]) -> Table {
    let has_rows = all.iter().any(|listed| listed.rows.is_some());
    let header = ["name", "shows", if has_rows { "rows" } else { "" }];
    let mut table = Table::new(header, 2);
    for listed in all {
        table.add_row([listed.name, listed.shows, &*listed.rows()]);
    }
    table
}

fn list<T>(
    format: TableFormat,
    to: Option<PathBuf>,
    file: Option<PathBuf>,
    all: impl Iterator<Item = (&'static str, &'static str, T)>,
    count: impl Fn(&Profile, T) -> usize,
) -> Result<(), Failure> {
    let inputs: Vec<_> = file.iter().map(PathBuf::as_path).collect();
    let output = Output::new(to, &inputs)?;
    let profile = file.as_deref().map(input::profile).transpose()?;
    if let (Some(file), Some(profile)) = (&file, &profile) {
        note_losses(file, profile);
    }
    let all: Vec<_> = all
        .map(|(name, shows, one)| {
            let rows = profile.as_ref().map(|profile| count(profile, one) as u64);
            Listed { name, shows, rows }
        })
        .collect();
    output.write_in(format.is_for_people(), |out| {
        match format {
            TableFormat::Table => writeln!(out, "{}", list_table(&all).render(out.layout))?,
            TableFormat::Csv => {
                writeln!(out, "Name,Shows,Rows")?;
                for listed in &all {
                    let (name, shows) = (listed.name, text::csv_cell(listed.shows));
                    writeln!(out, "{name},{shows},{}", listed.rows())?;
                }
            }
            TableFormat::Json => write_json(out, &all)?,
        }
        Ok(())
    })
}

/// Writes reports in sequence. If there are several, CSV has a line `# name` before each report,
/// and JSON has an object with a field per report.
pub(crate) fn write(
    out: &mut Text<'_>,
    format: TableFormat,
    reports: impl ExactSizeIterator<Item = (String, AnyReport, Option<&'static str>)>,
) -> Result<(), Failure> {
    let are_several = reports.len() > 1;
    if are_several && format == TableFormat::Json {
        out.write_all(b"{\n")?;
    }
    for (row, (name, report, advice)) in reports.enumerate() {
        if format != TableFormat::Table {
            note_rest(&name, &report);
        }
        match format {
            TableFormat::Table => {
                let space = if row == 0 { "" } else { "\n" };
                out.write_all(space.as_bytes())?;
                out.show_all(&report)?;
                if let Some(advice) = advice.filter(|_| !report.is_empty()) {
                    writeln!(out, "advice: {advice}")?;
                }
            }
            TableFormat::Csv => {
                if are_several {
                    let space = if row == 0 { "" } else { "\n" };
                    writeln!(out, "{space}# {name}")?;
                }
                out.write_all(report.csv().as_bytes())?;
            }
            TableFormat::Json if are_several => {
                let comma = if row == 0 { "" } else { ",\n" };
                write!(out, "{comma}\"{name}\": {}", report.json().trim_end())?;
            }
            TableFormat::Json => out.write_all(report.json().as_bytes())?,
        }
    }
    if are_several && format == TableFormat::Json {
        out.write_all(b"\n}\n")?;
    }
    Ok(())
}

/// Writes the notes below a table as messages, for formats that cannot contain them.
fn note_rest(name: &str, report: &AnyReport) {
    if let Some(reason) = report.skipped() {
        note(&format!("{name} has no rows: {reason}"));
    }
    if report.more_rows() != 0 {
        let more = report.more_rows();
        note(&format!("{name}: {more} more rows were found; --rows sets how many are written"));
    }
    if report.left_out() != 0 {
        note(&format!("{name}: {} without timestamps are not in it", report.left_out()));
    }
    if report.whole_graphs() != 0 {
        let graphs = report.whole_graphs();
        note(&format!(
            "{name}: {graphs} graph launches traced as a whole are not in it, as nsys leaves them out"
        ));
    }
}
