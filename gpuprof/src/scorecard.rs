//! `gpuprof scorecard`: summarizes a run on one page.

use std::io::Write as _;

use profiler_analysis::diagnosis::Thresholds;
use profiler_analysis::prelude::*;
use profiler_analysis::scorecard::{Flag, Score, ScoreKind, Scorecard, Targets};

use crate::args::{FailOn, OutputFormat as _, PageFormat, ScorecardArgs};
use crate::failure::Failure;
use crate::input;
use crate::output::write_json;
use crate::roofline::read_peaks;

pub(crate) fn scorecard(args: ScorecardArgs) -> Result<(), Failure> {
    let (output, format) = (args.io.output(&[&args.peaks])?, args.format.get());
    let profile = input::profile(&args.io.file)?;
    let loading = args
        .loading
        .iter()
        .fold(Thresholds::new(), |thresholds, pattern| thresholds.loading(pattern));
    let mut targets = Targets::new().thresholds(loading);
    for (kind, target) in &args.target {
        targets = targets.with_target(*kind, *target);
    }
    if let Some(file) = &args.peaks {
        targets = targets.peaks(read_peaks(file)?);
    }
    let card = profile.scorecard_with(&targets);
    output.write_in(format.is_for_people(), |out| {
        match format {
            PageFormat::Text => out.show(&card)?,
            PageFormat::Json => write_json(out, &card)?,
            PageFormat::Markdown => out.write_all(card.to_markdown().as_bytes())?,
        }
        Ok(())
    })?;
    match args.fail_on {
        Some(worst) => gate(&card, worst, &args.io.file.display().to_string()),
        None => Ok(()),
    }
}

fn gate(card: &Scorecard, fail_on: FailOn, file: &str) -> Result<(), Failure> {
    let (word, least) = match fail_on {
        FailOn::Bad => ("bad", Flag::Bad),
        FailOn::Look => ("look", Flag::Look),
    };
    let failed = card.scores().iter().filter(|score| score.flag >= least);
    let failed: Vec<String> = failed
        .map(|score| {
            let (value, target) = (score.value_text(), score.target_text());
            format!("{} is {value} ({}, {target} is good)", score.kind, score.flag)
        })
        .collect();
    if !failed.is_empty() {
        return Err(Failure::Gate(format!("--fail-on {word}: {file}: {}", failed.join("; "))));
    }
    // Without a verdict the flags are unknown, which must not pass the gate.
    let undecided = |score: &&Score| score.flag == Flag::Unknown;
    match card.score(ScoreKind::GpuBusy).filter(undecided) {
        Some(score) => {
            Err(Failure::Gate(format!("--fail-on {word}: {file} cannot be judged: {}", score.note)))
        }
        None => Ok(()),
    }
}
