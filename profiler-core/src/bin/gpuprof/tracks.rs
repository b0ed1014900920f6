//! `tracks`: what samplers saw.

use profiler_core::series::Series;

use crate::args::{TableFormat, TracksArgs};
use crate::failure::{Failure, note};
use crate::output::Output;
use crate::{input, note_losses, tables};

pub(crate) fn tracks(args: TracksArgs) -> Result<(), Failure> {
    let output = Output::new(args.output.output, &[&args.file])?;
    let profile = input::profile(&args.file)?;
    note_losses(&args.file, &profile);
    let mut reports = vec![("tracks".to_owned(), profile.track_sums().into(), None)];
    if args.by_range {
        reports.push(("range_tracks".to_owned(), profile.range_track_sums().into(), None));
    }
    let losses: Vec<String> = profile.series().filter_map(losses).collect();
    output.write(|out| {
        tables::write(out, args.format, reports.into_iter())?;
        if args.format == TableFormat::Table {
            losses.iter().try_for_each(|loss| writeln!(out, "{loss}"))?;
        }
        Ok(())
    })?;
    if args.format != TableFormat::Table {
        losses.iter().for_each(|loss| note(loss));
    }
    let none = profile.series().len() == 0;
    match args.fail_if_incomplete {
        true if none => Err(Failure::Gate("--fail-if-incomplete: no sampler ran".to_owned())),
        true if !losses.is_empty() => {
            Err(Failure::Gate(format!("--fail-if-incomplete: {}", losses.join("; "))))
        }
        _ => Ok(()),
    }
}

/// What a sampler did not see, if anything.
fn losses(series: &Series) -> Option<String> {
    let losses = series.losses();
    let who = format!("GPU {}, {}", series.device(), series.source());
    (!losses.is_empty()).then(|| format!("{who}: {}", losses.join("; ")))
}
