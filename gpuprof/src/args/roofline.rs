//! The command line of `gpuprof roofline`.

use std::path::PathBuf;

use clap::ValueHint;
use nvtx::{Dtype, Pipe, Work};

use super::{FileArgs, FormatArgs, RooflineFormat, above_zero};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "WORK is any of flops=N, bytes=N, dtype=NAME, pipe=vector|tensor with commas between them, as in \
                  --range 'step/gemm:flops=2.1e9,bytes=8e6,dtype=bf16'. It is the work of one range or launch."
)]
pub(crate) struct RooflineArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<RooflineFormat>,
    /// The CUDA ordinal of the device for the roofs [default: the device that ran most kernels]
    #[arg(long)]
    pub(crate) device: Option<u32>,
    /// A file with the roofs, as Peaks::to_json writes them
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "device")]
    pub(crate) peaks: Option<PathBuf>,
    /// The memory bandwidth in GB/s, instead of the device's
    #[arg(long, value_name = "GB/S", value_parser = above_zero)]
    pub(crate) bandwidth: Option<f64>,
    /// A roof in TFLOP/s, instead of the device's: f32=67, or f64/tensor=67; a type alone means
    /// vector units for f32 and f64, else tensor cores
    #[arg(long, value_name = "DTYPE[/PIPE]=TFLOPS", value_parser = peak)]
    pub(crate) peak: Vec<Peak>,
    /// The work of each range of this name or path that declares none itself, `*` for any text
    #[arg(long, value_name = "PATH:WORK", value_parser = named_work)]
    pub(crate) range: Vec<NamedWork>,
    /// The work of each launch of kernels of this name, `*` for any text
    #[arg(long, value_name = "NAME:WORK", value_parser = named_work)]
    pub(crate) kernel: Vec<NamedWork>,
    /// A file with counters of the same ranges, as serde writes Measured: drawn at each level of
    /// the memory, beside the declared work
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) counted: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}

/// A roof of `--peak`, in operations per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Peak {
    pub(crate) dtype: Dtype,
    pub(crate) pipe: Pipe,
    pub(crate) per_second: f64,
}

/// A pattern and the work of each match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedWork {
    pub(crate) pattern: String,
    pub(crate) work: Work,
}

/// `f32=67`, `f64/tensor=67`.
fn peak(text: &str) -> Result<Peak, String> {
    let (of, teraflops) =
        text.split_once('=').ok_or("expected DTYPE[/PIPE]=TFLOPS, as in f32=67")?;
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
fn named_work(text: &str) -> Result<NamedWork, String> {
    let (pattern, work_text) = text
        .rsplit_once(':')
        .filter(|(pattern, _)| !pattern.is_empty())
        .ok_or("expected NAME:WORK, as in step/gemm:flops=2e9,dtype=f32")?;
    let mut work = Work::default();
    for part in work_text.split(',') {
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
        return Err(format!("{work_text:?} gives neither flops nor bytes"));
    }
    Ok(NamedWork { pattern: pattern.to_owned(), work })
}

fn amount(key: &str, value: &str) -> Result<u64, String> {
    if let Ok(number) = value.parse() {
        return Ok(number);
    }
    match value.parse::<f64>() {
        // CAST: numbers that are too large saturate at the maximum.
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
