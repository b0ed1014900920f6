//! `gpuprof diagnose`: verdicts and findings.

use std::fmt::{self, Display};

use profiler_core::diagnosis::{Bottleneck, Diagnosis, Inconclusive, Thresholds, Verdict};
use serde::Serialize;

use crate::args::{DiagnoseArgs, OutputFormat as _, TextFormat};
use crate::failure::Failure;
use crate::output::Output;
use crate::tables::write_json;
use crate::{input, suggest};

pub(crate) fn diagnose(args: DiagnoseArgs) -> Result<(), Failure> {
    let (output, format) = (args.io.output(&[])?, args.format.get());
    let profile = input::profile(&args.io.file)?;
    let mut thresholds = Thresholds::new().incomplete(args.incomplete);
    for pattern in &args.loading {
        thresholds = thresholds.loading(pattern);
    }
    if let Some(share) = args.verdict_share {
        thresholds = thresholds.verdict_share(share);
    }
    let diagnoser = profile.diagnosis(thresholds);
    let missing = |path: &str| {
        Failure::Usage(format!(
            "{} has no range {path}; `gpuprof report` shows them{}",
            args.io.file.display(),
            suggest::range(&profile, path)
        ))
    };
    let (worst, unsaid) = if let Some(path) = &args.range {
        let verdict = diagnoser.range(path).ok_or_else(|| missing(path))?;
        write(&output, format, &verdict, &verdict)?;
        (worst_of(&verdict), unsaid(&verdict))
    } else if let Some(path) = &args.steps {
        let steps = diagnoser.steps(path);
        if steps.is_empty() {
            return Err(missing(path));
        }
        write(&output, format, &Steps(&steps), &steps)?;
        (steps.iter().map(worst_of).fold(1.0, f64::max), steps.iter().find_map(unsaid))
    } else {
        let diagnosis = diagnoser.run();
        write(&output, format, &diagnosis, &diagnosis)?;
        (worst_of_all(&diagnosis), unsaid(diagnosis.verdict()))
    };
    let Some(most) = args.fail_above else { return Ok(()) };
    let file = args.io.file.display();
    if worst > most {
        return Err(Failure::Gate(format!(
            "--fail-above {most}: {worst:.2} is the largest estimate for one change in {file}"
        )));
    }
    let Some(why) = unsaid else { return Ok(()) };
    let all_the_same = match why {
        Inconclusive::Incomplete | Inconclusive::SharedOrdinal { .. } => {
            "; --incomplete gives verdicts all the same"
        }
        _ => "",
    };
    Err(Failure::Gate(format!("--fail-above: {file} cannot be judged: {why}{all_the_same}")))
}

struct Steps<'s>(&'s [Verdict]);

impl Display for Steps<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(n, step)| {
            let line_break = if n == 0 { "" } else { "\n" };
            write!(f, "{line_break}step {n}: {step}")
        })
    }
}

fn write(
    output: &Output,
    format: TextFormat,
    text: &impl Display,
    json: &impl Serialize,
) -> Result<(), Failure> {
    output.write_in(format.is_for_people(), |out| match format {
        TextFormat::Text => out.show(text),
        TextFormat::Json => write_json(out, json),
    })
}

fn worst_of(verdict: &Verdict) -> f64 {
    let causes = verdict.causes.iter().filter(|cause| cause.bottleneck != Bottleneck::GpuCompute);
    causes.map(|cause| cause.estimate).fold(1.0, f64::max)
}

/// Why there is no verdict: an unknown result must not pass.
fn unsaid(verdict: &Verdict) -> Option<Inconclusive> {
    verdict.inconclusive.filter(|why| !matches!(why, Inconclusive::NoSingleCause { .. }))
}

fn worst_of_all(diagnosis: &Diagnosis) -> f64 {
    let findings = diagnosis.findings().iter().filter(|finding| !finding.kind.is_note());
    findings.map(|finding| finding.estimate).fold(worst_of(diagnosis.verdict()), f64::max)
}
