//! The command line of `gpuprof scorecard`.

use std::path::PathBuf;

use clap::{ValueEnum, ValueHint};
use profiler_analysis::scorecard::{ScoreKind, Target};

use super::{FileArgs, FormatArgs, PageFormat};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: 0 whatever the flags are, unless --fail-on sets 3; 1 if the file cannot be read."
)]
pub(crate) struct ScorecardArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<PageFormat>,
    /// Fail (status 3) if a value has this flag or a worse one, or the recording is too incomplete
    #[arg(long, value_enum, value_name = "FLAG")]
    pub(crate) fail_on: Option<FailOn>,
    /// Another target for a value, as gpu_busy=0.95,0.7: the bounds of good and of bad. Shares are
    /// from 0 to 1; JSON has the names
    #[arg(long, value_name = "NAME=GOOD,BAD", value_parser = target)]
    pub(crate) target: Vec<(ScoreKind, Target)>,
    /// Further names of ranges that load data, besides the known words; `*` for any text
    #[arg(long, value_name = "PATTERN")]
    pub(crate) loading: Vec<String>,
    /// A file with the roofs, as Peaks::to_json writes them
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) peaks: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// Values far from their target
    Bad,
    /// Also values to check
    Look,
}

/// `gpu_busy=0.95,0.7`.
fn target(text: &str) -> Result<(ScoreKind, Target), String> {
    let asked = || "expected NAME=GOOD,BAD, as in gpu_busy=0.95,0.7".to_owned();
    let (name, values) = text.split_once('=').ok_or_else(asked)?;
    let kind = ScoreKind::named(name).ok_or_else(|| {
        let known = ScoreKind::ALL.map(ScoreKind::name).join(", ");
        format!("there is no value {name:?}; there are: {known}")
    })?;
    let (good, bad) = values.split_once(',').ok_or_else(asked)?;
    let number = |text: &str| match text.trim().parse() {
        Ok(number) if f64::is_finite(number) => Ok(number),
        _ => Err(format!("{text:?} is no number")),
    };
    let target = Target::new(number(good)?, number(bad)?);
    // A target in percent would be met by every share or by none.
    let is_share = !matches!(kind, ScoreKind::Health | ScoreKind::Estimate);
    if is_share && (target.good > 1.0 || target.bad > 1.0) {
        return Err(format!("{name} is a share, which counts from 0 to 1: give 0.9 for 90 %"));
    }
    let is_beyond = match kind.more_is_better() {
        true => target.bad > target.good,
        false => target.bad < target.good,
    };
    match is_beyond {
        true => Err(format!(
            "for {name}, {} is better, so the bad bound cannot be beyond the good one",
            if kind.more_is_better() { "more" } else { "less" }
        )),
        false => Ok((kind, target)),
    }
}
