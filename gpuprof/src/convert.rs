//! `convert`, `html`, `flamegraph`: writes a profile as a file for other programs.

use profiler_analysis::Format;
use profiler_analysis::formats::{Export, ParquetOptions};
use profiler_analysis::prelude::*;
use profiler_core::Profile;
use std::io::Write;
use std::path::Path;

use crate::args::{ConvertArgs, FileArgs, StackArgs};
use crate::export_format::ExportFormat;
use crate::failure::Failure;
use crate::input::{self, note_losses};
use crate::output::Output;

pub(crate) fn convert(args: ConvertArgs) -> Result<(), Failure> {
    let to = args.output.output.or(args.to);
    let format = match (args.format, &to) {
        (Some(format), _) => format,
        (None, None) => {
            return Err(Failure::Usage(format!(
                "name a file to write, or a --format for standard output; there are: {}",
                ExportFormat::list()
            )));
        }
        (None, Some(to)) => format_of(to)?,
    };
    let options = Options {
        rank: args.rank.zip(args.world_size),
        samples: args.samples,
        stacks: args.stacks,
    };
    options.check(format)?;
    if format == ExportFormat::Parquet {
        let to = to
            .filter(|to| to != Path::new("-"))
            .ok_or_else(|| Failure::Usage("Parquet is a folder of tables: name it".to_owned()))?;
        let profile = input::profile(&args.file)?;
        note_losses(&args.file, &profile);
        return Ok(profile.write_parquet(to, &ParquetOptions::new())?);
    }
    let output = Output::new(to, &[&args.file])?;
    output.check(format)?;
    let profile = match format {
        // Some columns of this format need the records.
        ExportFormat::Nsys => input::recorded(&args.file)?,
        _ => input::profile(&args.file)?,
    };
    note_losses(&args.file, &profile);
    if format == ExportFormat::Nsys {
        return output.write_nsys(&profile);
    }
    output.write(|out| write(&profile, format, &options, &args.file, out))
}

/// Format-specific options.
#[derive(Default)]
struct Options {
    rank: Option<(u32, u32)>,
    samples: Option<usize>,
    /// The content of stacks: work, idle gaps or instruction samples.
    stacks: StackArgs,
}

/// Runs `html` and `flamegraph`.
pub(crate) fn write_as(
    format: ExportFormat,
    io: &FileArgs,
    stacks: StackArgs,
) -> Result<(), Failure> {
    let output = io.output(&[])?;
    output.check(format)?;
    let profile = input::profile(&io.file)?;
    let options = Options { stacks, ..Options::default() };
    output.write(|out| write(&profile, format, &options, &io.file, out))
}

fn format_of(to: &Path) -> Result<ExportFormat, Failure> {
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    ExportFormat::of_name(&name).ok_or_else(|| {
        Failure::Usage(format!(
            "the file name {} has no known extension: give --format, or one of these extensions: {}",
            to.display(),
            ExportFormat::list()
        ))
    })
}

impl Options {
    fn check(&self, format: ExportFormat) -> Result<(), Failure> {
        for (option, is_given, has) in [
            ("--samples", self.samples.is_some(), Format::has_samples as fn(Format) -> bool),
            ("--rank and --world-size", self.rank.is_some(), Format::has_rank),
            ("--idle", self.stacks.idle.is_some(), Format::has_stacks),
            ("--lines", self.stacks.lines, Format::has_stacks),
        ] {
            let is_fitting = match format {
                ExportFormat::Trace(format) => has(format),
                // It draws folded stacks.
                ExportFormat::Flamegraph => ["--idle", "--lines"].contains(&option),
                _ => false,
            };
            if is_given && !is_fitting {
                let keys = Format::ALL.into_iter().filter(|format| has(*format)).map(Format::key);
                let formats = keys.collect::<Vec<_>>().join(", ");
                return Err(Failure::Usage(format!("{option}: only for --format {formats}")));
            }
        }
        match self.rank {
            Some((rank, world_size)) if rank >= world_size => Err(Failure::Usage(format!(
                "--rank {rank} is not below --world-size {world_size}: ranks count from 0"
            ))),
            _ => Ok(()),
        }
    }
}

fn write(
    profile: &Profile,
    format: ExportFormat,
    options: &Options,
    file: &Path,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match format {
        ExportFormat::Trace(format) => {
            let mut export = Export::new(format);
            if let Some(samples) = options.samples {
                export = export.samples(if samples == 0 { usize::MAX } else { samples });
            }
            if let Some((rank, world_size)) = options.rank {
                export = export.rank(rank, world_size);
            }
            Ok(profile.export(content(export, options.stacks), out)?)
        }
        ExportFormat::Html => Ok(profile.write_html(out)?),
        ExportFormat::Flamegraph => flamegraph(profile, options.stacks, file, out),
        ExportFormat::JsonLines => Ok(out.write_all(profile.json_lines().as_bytes())?),
        ExportFormat::Counts => Ok(out.write_all(profile.counts().as_bytes())?),
        // `convert` writes these formats directly to their own folders or files.
        ExportFormat::Nsys | ExportFormat::Parquet => Ok(()),
    }
}

/// Sets the content of stacks.
fn content(export: Export, stacks: StackArgs) -> Export {
    match stacks.idle {
        _ if stacks.lines => export.lines(),
        Some(shortest) => export.idle(shortest),
        None => export,
    }
}

/// Draws the folded stacks with a frame per range. The topmost frames are kernels, or functions and
/// causes of idle time.
fn flamegraph(
    profile: &Profile,
    stacks: StackArgs,
    file: &Path,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut folded = Vec::new();
    let (what, kind, unit) = match stacks {
        StackArgs { lines: true, .. } => {
            ("Instruction samples", "Range, kernel or line:", "samples")
        }
        StackArgs { idle: Some(_), .. } => ("GPU idle time", "Range, function or cause:", "ns"),
        _ => ("GPU time", "Range or kernel:", "ns"),
    };
    profile.export(content(Export::new(Format::Folded), stacks), &mut folded)?;
    let folded = String::from_utf8_lossy(&folded);
    // Without time the picture would have no frames.
    let has_time = folded.lines().any(|line| !line.ends_with(" 0"));
    if !has_time {
        let has_operations = profile.operations().next().is_some();
        let are_timed = profile.operations().any(|operation| operation.start().is_some());
        let why = match stacks.idle {
            _ if stacks.lines => "there are no instruction samples to draw: record them with \
                                  `gpuprof run --lines`"
                .to_owned(),
            Some(shortest) => {
                let shortest = humantime::format_duration(shortest);
                format!("there is no idle time to draw: the GPU has no gap of {shortest} or more")
            }
            None => format!(
                "there is no time on the GPU to draw: {}",
                match (has_operations, are_timed) {
                    (false, _) => "the profile has no operation",
                    (true, false) => "no operation has timestamps",
                    (true, true) => "all operations have a length of 0",
                }
            ),
        };
        return Err(Failure::Error(why));
    }
    let mut options = inferno::flamegraph::Options::default();
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    options.title = format!("{what} of {}", profiler_base::text::shortened(&name, 80));
    unit.clone_into(&mut options.count_name);
    kind.clone_into(&mut options.name_type);
    options.image_width = Some(1200);
    // Give a name the same colour in every picture.
    options.hash = true;
    inferno::flamegraph::from_lines(&mut options, folded.lines(), out)
        .map_err(|error| Failure::from(error).context("the flame graph"))
}
