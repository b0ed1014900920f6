//! The command line of `gpuprof calibrate`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueHint;

use super::{FormatArgs, OutputArgs, TextFormat};

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "gpuprof calibrate [OPTIONS] [--] <PROGRAM> [ARGS]...",
    after_help = "Examples:\n  gpuprof calibrate -- ./serve --requests 10000\n  gpuprof calibrate --rounds 20 --json -- python train.py > costs.json\n\n\
                  The program runs once to warm up, and then in each round once in each of five ways: without the \
                  profiler, dormant (`gpuprof run --start wait`), calls only (`--always-on=calls-only`), always on \
                  (`--always-on`) and recording everything. The order differs by round. Times are of the whole \
                  program, with start and end; CPU time is that of the program and of children that it waited for. \
                  Its standard streams are /dev/null. Recordings are written to TMPDIR and removed.\n\
                  Exit status: that of `gpuprof run`. A run of the program that fails ends the calibration with its \
                  status."
)]
pub(crate) struct CalibrateArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<TextFormat>,
    /// The number of rounds, from 2 to 100; fewer than 6 give no intervals
    #[arg(long, value_name = "COUNT", default_value_t = 9, value_parser = clap::value_parser!(u8).range(2..=100))]
    pub(crate) rounds: u8,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// The injection library [default: as for `gpuprof run`]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) inject: Option<PathBuf>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true,
          value_hint = ValueHint::CommandWithArguments)]
    pub(crate) program: Vec<OsString>,
}
