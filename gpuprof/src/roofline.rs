//! `roofline`: compares declared work with the roofs of a device.

use std::io::Write as _;
use std::path::Path;

use cupti::counters::Measured;
use profiler_analysis::prelude::*;
use profiler_analysis::roofline::{Declared, Peaks};
use profiler_base::text;
use profiler_core::{DisplayOptions, Profile};

use crate::args::{OutputFormat as _, Peak, RooflineArgs, RooflineFormat};
use crate::failure::Failure;
use crate::input::{self, note_losses};
use crate::output::{Output, write_json};

pub(crate) fn roofline(args: RooflineArgs) -> Result<(), Failure> {
    let (output, format) = (args.io.output(&[&args.peaks, &args.counted])?, args.format.get());
    if format == RooflineFormat::Html {
        output.refuse_terminal("a page of HTML")?;
    }
    let profile = input::profile(&args.io.file)?;
    note_losses(&args.io.file, &profile);
    let peaks = peaks(&args, &profile)?;
    let declared = Declared::new();
    let declared = args
        .range
        .iter()
        .fold(declared, |declared, named| declared.range(&named.pattern, named.work));
    let declared = args
        .kernel
        .iter()
        .fold(declared, |declared, named| declared.kernel(&named.pattern, named.work));
    let roofline = profile.roofline_with(&peaks, &declared);
    let Some(counted) = &args.counted else {
        let (svg, html) = (|| roofline.to_svg(), || roofline.to_html());
        return write(&output, format, &roofline, svg, html);
    };
    let roofline = roofline.counted(&read_counted(counted)?);
    write(&output, format, &roofline, || roofline.to_svg(), || roofline.to_html())
}

fn write(
    output: &Output,
    format: RooflineFormat,
    roofline: &(impl DisplayOptions + serde::Serialize),
    svg: impl Fn() -> String,
    html: impl Fn() -> String,
) -> Result<(), Failure> {
    output.write_in(format.is_for_people(), |out| {
        match format {
            RooflineFormat::Text => out.show(roofline)?,
            RooflineFormat::Json => write_json(out, roofline)?,
            RooflineFormat::Svg => out.write_all(svg().as_bytes())?,
            RooflineFormat::Html => out.write_all(html().as_bytes())?,
        }
        Ok(())
    })
}

/// Reads measured counts in serde's JSON format.
pub(crate) fn read_counted(file: &Path) -> Result<Measured, Failure> {
    serde_json::from_str(&read_text(file)?).map_err(|error| {
        Failure::Error(format!("{} has no counts of ranges: {error}", file.display()))
    })
}

fn peaks(args: &RooflineArgs, profile: &Profile) -> Result<Peaks, Failure> {
    let known = match (&args.peaks, args.device) {
        (Some(file), _) => Some(read_peaks(file)?),
        (None, device) => profile.peaks(device),
    };
    let known = match (known, args.device) {
        (None, Some(device)) => {
            let all: Vec<_> = profile
                .recording_info()
                .devices
                .iter()
                .map(|device| device.id.to_string())
                .collect();
            return Err(Failure::Error(format!(
                "{} has no device {device} for --device; it has: {}",
                args.io.file.display(),
                if all.is_empty() { "none".to_owned() } else { all.join(", ") },
            )));
        }
        (known, _) => known.unwrap_or_else(|| Peaks::new("unknown device")),
    };
    let known = match args.bandwidth {
        Some(gigabytes) => known.with_bandwidth(gigabytes * 1e9),
        None => known,
    };
    let give = |peaks: Peaks, peak: &Peak| peaks.with_flops(peak.dtype, peak.pipe, peak.per_second);
    Ok(args.peak.iter().fold(known, give))
}

/// Reads roofs in the format of `Peaks::to_json`.
pub(crate) fn read_peaks(file: &Path) -> Result<Peaks, Failure> {
    Peaks::from_json(&read_text(file)?)
        .map_err(|error| Failure::Error(format!("{}: {error}", file.display())))
}

fn read_text(file: &Path) -> Result<String, Failure> {
    text::read_file(file)
        .map_err(|error| Failure::Error(format!("could not read {}: {error}", file.display())))
}
