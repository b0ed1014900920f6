//! The options of every command.

use std::sync::OnceLock;

use clap::ColorChoice;
use profiler_core::Recording;
use regex::Regex;

use crate::part::PartArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct GlobalArgs {
    /// The maximum size of a recording, also of one read from a pipe
    #[arg(long, global = true, value_name = "BYTES", default_value_t = Recording::MAX_BYTES)]
    pub(crate) max_bytes: u64,
    /// Leave out inferred ranges: those of threads that waited while another one launched outside of
    /// all ranges, as PyTorch's autograd does. They are in columns of their own, and in no other sum
    #[arg(long, global = true)]
    pub(crate) no_inferred: bool,
    /// Kernels that move data between GPUs, beside those known by name: they count as communication,
    /// not as compute. Matches the name without parameters, or the mangled name
    #[arg(long, global = true, value_name = "REGEX")]
    pub(crate) communication: Option<Regex>,
    #[command(flatten)]
    pub(crate) part: PartArgs,
    /// Colours of text for people; NO_COLOR and CLICOLOR_FORCE set the default
    #[arg(long, global = true, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    pub(crate) color: ColorChoice,
    /// The width of text for people; 0 is no limit [default: the terminal's; no limit elsewhere]
    #[arg(long, global = true, value_name = "COLUMNS")]
    pub(crate) width: Option<usize>,
    /// Full names of kernels and ranges, also on a terminal that is too narrow for them
    #[arg(long, global = true, conflicts_with = "width")]
    pub(crate) full_names: bool,
}

static GLOBAL: OnceLock<GlobalArgs> = OnceLock::new();

impl GlobalArgs {
    /// Makes these the options of the program.
    pub(crate) fn set(self) {
        let _: Result<(), Self> = GLOBAL.set(self);
    }

    /// The options of the program, once its arguments are parsed.
    pub(crate) fn get() -> Option<&'static Self> {
        GLOBAL.get()
    }
}
