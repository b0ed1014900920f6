//! `roofline`: declared work under the roofs of a device.

use std::io::Write as _;
use std::path::Path;

use cupti::counters::Measured;
use nvtx::{Dtype, Pipe, Work};
use profiler_base::text;
use profiler_core::Profile;
use profiler_core::roofline::{Declared, Peaks};

use crate::args::{OutputFormat as _, RooflineArgs, RooflineFormat};
use crate::failure::Failure;
use crate::input::{self, note_losses};
use crate::output::Output;
use crate::tables::write_json;

/// A roof of `--peak`, in operations per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Peak {
    dtype: Dtype,
    pipe: Pipe,
    per_second: f64,
}

/// A pattern and the work of each match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedWork {
    pattern: String,
    work: Work,
}

pub(crate) fn roofline(args: RooflineArgs) -> Result<(), Failure> {
    let (output, format) = (args.io.output(&[&args.peaks, &args.counted])?, args.format.get());
    if format == RooflineFormat::Html {
        output.refuse_terminal("a page of HTML")?;
    }
    let profile = input::profile(&args.io.file)?;
    note_losses(&args.io.file, &profile);
    let peaks = peaks(&args, &profile)?;
    let declared = Declared::new();
    let declared =
        args.range.iter().fold(declared, |declared, said| declared.range(&said.pattern, said.work));
    let declared = args
        .kernel
        .iter()
        .fold(declared, |declared, said| declared.kernel(&said.pattern, said.work));
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
    roofline: &(impl std::fmt::Display + serde::Serialize),
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

/// Counts as serde writes them.
fn read_counted(file: &Path) -> Result<Measured, Failure> {
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

/// Roofs in the format of `Peaks::to_json`.
pub(crate) fn read_peaks(file: &Path) -> Result<Peaks, Failure> {
    Peaks::from_json(&read_text(file)?)
        .map_err(|error| Failure::Error(format!("{}: {error}", file.display())))
}

fn read_text(file: &Path) -> Result<String, Failure> {
    text::read_file(file)
        .map_err(|error| Failure::Error(format!("could not read {}: {error}", file.display())))
}

/// `f32=67`, `f64/tensor=67`.
pub(crate) fn peak(text: &str) -> Result<Peak, String> {
    let (of, teraflops) =
        text.split_once('=').ok_or("DTYPE[/PIPE]=TFLOPS is asked for, as f32=67")?;
    let (name, units) = match of.split_once('/') {
        Some((name, units)) => (name, Some(units)),
        None => (of, None),
    };
    let dtype = dtype(name)?;
    let pipe = match units {
        Some(units) => pipe(units)?,
        None if matches!(dtype, Dtype::F32 | Dtype::F64) => Pipe::Vector,
        None => Pipe::Tensor,
    };
    match teraflops.parse() {
        Ok(number) if f64::is_finite(number) && number > 0.0 => {
            Ok(Peak { dtype, pipe, per_second: number * 1e12 })
        }
        _ => Err(format!("{teraflops:?} is no number of TFLOP/s above 0")),
    }
}

/// `step/gemm:flops=2.1e9,bytes=8e6,dtype=bf16`. Only the pattern may contain colons.
pub(crate) fn named_work(text: &str) -> Result<NamedWork, String> {
    let (pattern, said) = text
        .rsplit_once(':')
        .filter(|(pattern, _)| !pattern.is_empty())
        .ok_or("a name, a colon and work are asked for, as step/gemm:flops=2e9,dtype=f32")?;
    let mut work = Work::default();
    for part in said.split(',') {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        work = match key {
            "flops" => work.with_flops(amount(key, value)?),
            "bytes" => work.with_bytes(amount(key, value)?),
            "dtype" => work.with_dtype(dtype(value)?),
            "pipe" => work.with_pipe(pipe(value)?),
            _ => {
                return Err(format!(
                    "there is no {key:?} of work; there are: flops, bytes, dtype, pipe"
                ));
            }
        };
    }
    if work.flops().is_none() && work.bytes().is_none() {
        return Err(format!("{said:?} says neither flops nor bytes"));
    }
    Ok(NamedWork { pattern: pattern.to_owned(), work })
}

fn amount(key: &str, value: &str) -> Result<u64, String> {
    if let Ok(number) = value.parse() {
        return Ok(number);
    }
    match value.parse::<f64>() {
        // CAST: too large numbers become the maximum.
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number.round() as u64),
        _ => Err(format!("{value:?} is no number of {key}")),
    }
}

fn dtype(name: &str) -> Result<Dtype, String> {
    let known = || Dtype::ALL.map(Dtype::name).join(", ");
    Dtype::named(name)
        .ok_or_else(|| format!("there is no number type {name:?}; there are: {}", known()))
}

fn pipe(name: &str) -> Result<Pipe, String> {
    Pipe::named(name)
        .ok_or_else(|| format!("there are no units {name:?}; there are: vector, tensor"))
}
