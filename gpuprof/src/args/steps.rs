//! The command lines of `gpuprof steps` and `gpuprof requests`.

use super::{FileArgs, FormatArgs, TextFormat};

#[derive(Debug, clap::Args)]
pub(crate) struct StepsArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<TextFormat>,
    /// The ranges that are steps, by name, path or pattern [default: of those with four
    /// or more instances, the one with the most host time]
    #[arg(long, value_name = "PATH")]
    pub(crate) range: Option<String>,
    /// Also count the steps of the warm-up
    #[arg(long)]
    pub(crate) warm_up: bool,
    /// The number of listed steps, the longest first
    #[arg(long, default_value_t = 5, value_name = "COUNT")]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RequestsArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<TextFormat>,
    /// The ranges of threads or of the process that are requests, by name, path or pattern
    #[arg(long, value_name = "PATH")]
    pub(crate) range: String,
    /// Group the requests by this field of their ranges, such as a route
    #[arg(long, value_name = "FIELD")]
    pub(crate) endpoint: Option<String>,
    /// Split the work of batches by this field of their ranges, such as tokens; evenly without it
    #[arg(long, value_name = "FIELD")]
    pub(crate) weight: Option<String>,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}
