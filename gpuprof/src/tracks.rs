//! `tracks`: lists sampled tracks.

use std::io::Write as _;

use profiler_analysis::prelude::*;
use profiler_base::text::shortened;
use profiler_core::series::Series;

use crate::args::{OutputFormat as _, TableFormat, TracksArgs};
use crate::failure::Failure;
use crate::message::{self, note};
use crate::reports;

pub(crate) fn tracks(args: TracksArgs) -> Result<(), Failure> {
    let ((output, profile), format) = (args.io.open()?, args.format.get());
    let mut reports = vec![("tracks".to_owned(), profile.track_sums(), None)];
    if args.by_range {
        reports.push(("range_tracks".to_owned(), profile.range_track_sums(), None));
    }
    let losses: Vec<String> = profile.series().filter_map(losses).collect();
    output.write_in(format.is_for_people(), |out| {
        reports::write(out, format, reports.into_iter())?;
        if format == TableFormat::Table {
            losses.iter().try_for_each(|loss| writeln!(out, "{loss}"))?;
        }
        Ok(())
    })?;
    if format != TableFormat::Table {
        losses.iter().for_each(|loss| note(loss));
    }
    if !args.fail_if_incomplete {
        return Ok(());
    }
    let incomplete = profile.series().filter(|series| is_incomplete(series));
    let incomplete: Vec<String> = incomplete.filter_map(self::losses).collect();
    let why = match profile.series().len() {
        0 => "no sampler ran".to_owned(),
        _ if incomplete.is_empty() => return Ok(()),
        _ => incomplete.join("; "),
    };
    Err(Failure::Gate(format!("--fail-if-incomplete: {why}")))
}

/// True if samples were lost. Metrics that the chip does not support are not a loss.
fn is_incomplete(series: &Series) -> bool {
    let lost = series.dropped() > 0 || series.overflows() > 0 || series.gaps().0 > 0;
    lost || series.failure().is_some()
}

/// The losses of a sampler, if any.
fn losses(series: &Series) -> Option<String> {
    let losses = series.losses();
    let who = format!("GPU {}, {}", series.device(), series.source());
    (!losses.is_empty())
        .then(|| shortened(&format!("{who}: {}", losses.join("; ")), message::MAX_WIDTH))
}
