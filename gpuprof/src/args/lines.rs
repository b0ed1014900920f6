//! The command lines of `gpuprof lines` and `gpuprof explain`.

use std::path::PathBuf;

use clap::ValueHint;
use regex::Regex;

use super::{FileArgs, FormatArgs, TextFormat};

#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<TextFormat>,
    /// The kernels whose name matches this regular expression, longest time first
    #[arg(long, value_name = "REGEX")]
    pub(crate) kernel: Regex,
    /// Only launches in ranges of this name, path or pattern
    #[arg(long, value_name = "PATH")]
    pub(crate) range: Option<String>,
    /// A file with the counters of each kernel of this run, as serde writes the Measured of count_kernels: adds the roofline point
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) counted: Option<PathBuf>,
    /// The maximum number of kernels
    #[arg(long, default_value_t = 1, value_name = "COUNT")]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LinesArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<TextFormat>,
    /// Only kernels whose name matches this regular expression
    #[arg(long, value_name = "REGEX")]
    pub(crate) kernel: Option<Regex>,
    /// Only launches in ranges of this name, path or pattern
    #[arg(long, value_name = "PATH")]
    pub(crate) range: Option<String>,
    /// Also show the source around sampled lines, from files with these names in this folder and its subfolders
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) source: Option<PathBuf>,
    /// Also show machine code around sampled instructions, by nvdisasm from the cubins of `gpuprof run --keep-cubins`
    #[arg(long)]
    pub(crate) sass: bool,
    /// The maximum number of rows of each table; 0 is no limit
    #[arg(long, default_value_t = 10, value_name = "ROWS")]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}
