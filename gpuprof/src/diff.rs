//! `diff`: compares profiles before and after a change, and gates growth.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use profiler_analysis::Speed;
use profiler_analysis::compare::{Change, Compare, Comparison, Quantity, Undecidable};
use profiler_base::text::printable;
use profiler_core::Profile;
use serde::Serialize;

use crate::args::{DiffArgs, DiffFormat, Gated, OutputFormat as _};
use crate::failure::Failure;
use crate::input;
use crate::message::note;
use crate::output::{Output, write_json};

/// The maximum number of values named in a gate's message.
const NAMED: usize = 5;

/// The files of one side with their profiles.
struct Side {
    files: Vec<PathBuf>,
    profiles: Vec<Profile>,
}

impl Side {
    fn read(files: Vec<PathBuf>) -> Result<Self, Failure> {
        let profiles = files.iter().map(|file| input::profile(file));
        Ok(Self { profiles: profiles.collect::<Result<_, _>>()?, files })
    }

    fn incomplete(&self) -> impl Iterator<Item = (&Path, &Profile)> {
        let files = self.files.iter().map(PathBuf::as_path).zip(&self.profiles);
        files.filter(|(_, profile)| !profile.health().is_complete())
    }

    fn names(&self) -> Vec<String> {
        self.files.iter().map(|file| file.display().to_string()).collect()
    }
}

pub(crate) fn diff(args: DiffArgs) -> Result<(), Failure> {
    let files = match <[PathBuf; 2]>::try_from(args.files) {
        Ok([before, after]) => [vec![before], vec![after]],
        Err(_) => [args.before, args.after],
    };
    let inputs: Vec<&Path> = files.iter().flatten().map(PathBuf::as_path).collect();
    let (output, format) = (Output::new(args.output.output, &inputs)?, args.format.get());
    if format == DiffFormat::Html {
        output.refuse_terminal("a page of HTML")?;
    }
    let [before, after] = files;
    let sides = [Side::read(before)?, Side::read(after)?];
    for (file, profile) in sides.iter().flat_map(Side::incomplete) {
        note(&format!("{} is {}", file.display(), profile.health()));
    }
    let [before, after] = &sides;
    let compare =
        Compare::new().by_range(args.by_range).paired(args.paired).any_work(args.any_work);
    let comparison = compare.between(&before.profiles[..], &after.profiles[..]);
    output.write_in(format.is_for_people(), |out| {
        match format {
            DiffFormat::Table => {
                for (side, of) in ["before", "after"].into_iter().zip(&sides) {
                    for file in of.names() {
                        writeln!(out, "{side}: {}", printable(&file))?;
                    }
                }
                writeln!(out)?;
                match args.all {
                    true => out.show_all(&comparison)?,
                    false => out.show(&comparison)?,
                }
                if let Some(runs) = comparison.wall().runs_needed {
                    writeln!(
                        out,
                        "\nThe wall time is undecided: {}.",
                        more_runs(runs, args.paired)
                    )?;
                }
            }
            DiffFormat::Csv => out.write_all(comparison.to_csv().as_bytes())?,
            DiffFormat::Json => {
                let files = sides.each_ref().map(Side::names);
                write_json(out, &Document { files, comparison: &comparison })?;
            }
            DiffFormat::Markdown => out.write_all(comparison.to_markdown().as_bytes())?,
            DiffFormat::Html => out.write_all(comparison.to_html().as_bytes())?,
        }
        Ok(())
    })?;
    match args.fail_above {
        Some(percent) => gate(&comparison, &sides, percent, args.of),
        None => Ok(()),
    }
}

/// The JSON of a comparison.
#[derive(Serialize)]
pub(crate) struct Document<'c> {
    pub(crate) files: [Vec<String>; 2],
    #[serde(flatten)]
    pub(crate) comparison: &'c Comparison,
}

/// The commands that record and compare this number of runs of each side.
fn more_runs(runs: usize, paired: bool) -> String {
    let paired = if paired { " --paired" } else { "" };
    format!(
        "record {runs} runs of each side, and compare them with `gpuprof diff{paired} --before \
         B1.gpuprof ... B{runs}.gpuprof --after A1.gpuprof ... A{runs}.gpuprof`"
    )
}

fn gate(
    comparison: &Comparison,
    sides: &[Side; 2],
    percent: f64,
    of: Gated,
) -> Result<(), Failure> {
    if let Some((file, profile)) = sides.iter().flat_map(Side::incomplete).next() {
        return Err(Failure::Gate(format!(
            "--fail-above {percent}: {} cannot be compared: it is {}",
            file.display(),
            profile.health()
        )));
    }
    let wall = comparison.wall();
    match &wall.undecidable {
        // Counts are comparable across devices.
        None | Some(Undecidable::Devices { .. }) if of == Gated::Counts => {}
        None => {}
        Some(why) => {
            return Err(Failure::Gate(format!(
                "--fail-above {percent}: nothing is compared: {why}"
            )));
        }
    }
    let is_gated = |row: &&Change| match of {
        Gated::Wall => false,
        Gated::HostTime => row.quantity == Quantity::HostNs,
        Gated::BusyTime => row.quantity == Quantity::BusyNs,
        Gated::GpuTime => row.quantity == Quantity::GpuNs,
        Gated::Counts => !row.quantity.is_time(),
        Gated::All => row.quantity == Quantity::GpuNs || !row.quantity.is_time(),
    };
    let rows = comparison.changes().iter();
    let grown = rows.filter(is_gated).filter(|row| row.grew_above(percent));
    let mut named: Vec<String> = grown.take(NAMED).map(ToString::to_string).collect();
    let rows = comparison.changes().iter();
    let mut count = rows.filter(is_gated).filter(|row| row.grew_above(percent)).count();
    if of == Gated::All && wall.speed == Speed::Faster {
        if count != 0 {
            note(&format!(
                "a trade: {}, though {count} values grew by more than {percent} %: {}",
                wall.headline(),
                named.join("; ")
            ));
        }
        return Ok(());
    }
    let is_slower = match of {
        Gated::Wall | Gated::All => 100.0 * (wall.ratio - 1.0) > percent,
        _ => false,
    };
    if is_slower {
        named.insert(0, wall.headline());
        count += 1;
    }
    if count == 0 {
        return Ok(());
    }
    let more = match count - named.len() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    Err(Failure::Gate(format!(
        "--fail-above {percent}: {count} values grew by more: {}{more}",
        named.join("; ")
    )))
}
