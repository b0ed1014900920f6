//! `diff`: a comparison of two profiles, and a gate on growth.

use std::path::Path;

use profiler_core::Profile;
use profiler_core::compare::{Change, Compare, Comparison};
use profiler_core::formats::text::printable;
use serde::Serialize;

use crate::args::{DiffArgs, DiffFormat, Gated};
use crate::failure::{Failure, note};
use crate::input;
use crate::output::Output;
use crate::tables::write_json;

/// Values named in the message of a gate.
const NAMED: usize = 5;

pub(crate) fn diff(args: DiffArgs) -> Result<(), Failure> {
    let output = Output::new(args.output.output, &[&args.a, &args.b])?;
    if args.format == DiffFormat::Html {
        output.refuse_terminal("a page of HTML")?;
    }
    let [a, b] = [input::profile(&args.a)?, input::profile(&args.b)?];
    let sides = [(args.a.as_path(), &a), (args.b.as_path(), &b)];
    for (file, profile) in sides {
        if !profile.health().is_complete() {
            note(&format!("{} is {}", file.display(), profile.health()));
        }
    }
    let comparison = Compare::new().by_range(args.by_range).between(&a, &b);
    output.write(|out| {
        match args.format {
            DiffFormat::Table => {
                for (letter, (file, _)) in ["before", "after"].into_iter().zip(sides) {
                    writeln!(out, "{letter}: {}", printable(&file.display().to_string()))?;
                }
                match args.all {
                    true => write!(out, "\n{}", comparison.to_text())?,
                    false => writeln!(out, "\n{comparison}")?,
                }
            }
            DiffFormat::Csv => out.write_all(comparison.to_csv().as_bytes())?,
            DiffFormat::Json => {
                let files = sides.map(|(file, _)| file.display().to_string());
                write_json(out, &Written { files, comparison: &comparison })?;
            }
            DiffFormat::Markdown => out.write_all(comparison.to_markdown().as_bytes())?,
            DiffFormat::Html => out.write_all(comparison.to_html().as_bytes())?,
        }
        Ok(())
    })?;
    match args.fail_above {
        Some(percent) => gate(&comparison, sides, percent, args.of),
        None => Ok(()),
    }
}

#[derive(Serialize)]
struct Written<'c> {
    files: [String; 2],
    #[serde(flatten)]
    comparison: &'c Comparison,
}

fn gate(
    comparison: &Comparison,
    sides: [(&Path, &Profile); 2],
    percent: f64,
    of: Gated,
) -> Result<(), Failure> {
    for (file, profile) in sides {
        if !profile.health().is_complete() {
            return Err(Failure::Gate(format!(
                "--fail-above {percent}: what is not in {} cannot be compared: it is {}",
                file.display(),
                profile.health()
            )));
        }
    }
    let is_gated = |row: &&Change| match of {
        Gated::Counts => !row.quantity.is_time(),
        Gated::GpuTime => row.quantity.is_time(),
        Gated::All => true,
    };
    let rows = comparison.changes().iter();
    let grown: Vec<&Change> = rows.filter(is_gated).filter(|row| row.grew_above(percent)).collect();
    if grown.is_empty() {
        return Ok(());
    }
    let named: Vec<String> = grown.iter().take(NAMED).map(ToString::to_string).collect();
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
