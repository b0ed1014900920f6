//! The command line of `gpuprof gaps`, and the options of other commands for the content of stacks.

use std::time::Duration;

use super::{FileArgs, FormatArgs, TextFormat};

#[derive(Debug, clap::Args)]
pub(crate) struct GapsArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<TextFormat>,
    /// Leave out shorter gaps, as 1ms
    #[arg(long, value_name = "TIME", default_value = "20us", value_parser = humantime::parse_duration)]
    pub(crate) shortest: Duration,
    /// Also list so many gaps, the longest first, with the operation after each and what its thread did meanwhile
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) longest: usize,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}

#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct StackArgs {
    /// The time in which the GPU did nothing, by range, host function and cause, in place of its work: gaps of at least this
    /// length; for flamegraph, folded, pprof, otlp and firefox. Functions are those of a run with --stacks [default: 20us]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "20us",
          value_parser = humantime::parse_duration)]
    pub(crate) idle: Option<Duration>,
    /// Instruction samples by range, kernel and source line in place of GPU time, of a run with --lines; for flamegraph,
    /// folded, pprof, otlp and firefox
    #[arg(long, conflicts_with = "idle")]
    pub(crate) lines: bool,
}
