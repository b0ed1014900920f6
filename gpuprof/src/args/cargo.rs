//! The command line of `cargo gpuprof`.

use clap::{CommandFactory, Parser};

use super::RunArgs;
use crate::global::GlobalArgs;

/// The maximum number of runs in `target/gpuprof`.
pub(crate) const KEPT_RUNS: usize = 20;

/// Records the programs that a command of cargo runs, as `gpuprof run` does
#[derive(Debug, Parser)]
#[command(name = "cargo gpuprof", bin_name = "cargo gpuprof", version)]
pub(crate) struct CargoArgs {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

impl CargoArgs {
    /// The command, whose texts differ from those of `gpuprof run`.
    pub(crate) fn command_with_examples() -> clap::Command {
        let command = <Self as CommandFactory>::command();
        command
            .arg_required_else_help(true)
            .override_usage(
                "cargo gpuprof [OPTIONS] <COMMAND> [OPTIONS OF CARGO]... [-- ARGS]\n       \
                 cargo gpuprof <report|open|diff> [OPTIONS]",
            )
            .mut_arg("program", |arg| {
                arg.value_name("COMMAND").help(
                    "A command of cargo that runs programs, as run, test, bench and nextest, with its own options. Or report, open \
                     and diff, of the last run or the last two, with the options of these commands of gpuprof",
                )
            })
            .mut_arg("output", |arg| {
                arg.help("The run folder [default: a new folder cargo-DATE-TIME.gpurun in target/gpuprof, in UTC]")
            })
            .after_help(format!(
                "Options before the command are those of `gpuprof run`. The command and all that follows is cargo's.\n\n\
                 Examples:\n  cargo gpuprof run --release --example train -- --steps 10\n  \
                 cargo gpuprof --stacks test --test gpu -- --nocapture\n  cargo gpuprof --lines bench\n  \
                 cargo gpuprof nextest run\n  cargo gpuprof report\n  cargo gpuprof open\n  cargo gpuprof diff --by-range\n\n\
                 A profile of cargo without debug information gets line tables: CARGO_PROFILE_RELEASE_DEBUG=line-tables-only, \
                 unless that variable is set. Of the runs in target/gpuprof the last {KEPT_RUNS} are kept; a renamed run is \
                 neither removed nor counted.\n\
                 Exit status: that of cargo, which for `run` is that of the program; else as for `gpuprof run`."
            ))
    }
}
