//! `gpuprof critical-path`: reports what determined the duration of a run or its steps, and
//! predicts the effect of changes.

use std::io::Write as _;
use std::path::Path;

use profiler_analysis::critical_path::{
    Assumptions, CriticalPath, NoPrediction, Outlook, Prediction, WhatIf,
};
use profiler_analysis::prelude::*;
use profiler_core::Profile;
use serde::Serialize;

use crate::args::{CriticalPathArgs, OutputFormat as _};
use crate::failure::Failure;
use crate::message::note;
use crate::suggest;
use crate::terminal::Text;

/// The critical path of some ranges, or the requested predictions.
#[derive(Debug, Serialize)]
struct Paths<'a> {
    path: Option<CriticalPath>,
    predictions: Vec<Prediction>,
    assumptions: &'a Assumptions,
}

pub(crate) fn critical_path(args: CriticalPathArgs) -> Result<(), Failure> {
    let (output, is_for_people) = (args.io.output(&[])?, args.format.get().is_for_people());
    let profile = args.numbers.profile(&args.io.file)?;
    let missing = |path: &str| suggest::no_range(&args.io.file, &profile, path);
    let mut dependencies = profile.dependencies();
    if let Some(path) = &args.steps {
        dependencies = dependencies.with_steps(path).ok_or_else(|| missing(path))?;
    }
    let path = match &args.range {
        Some(path) => Some(dependencies.critical_path_of(path).ok_or_else(|| missing(path))?),
        None => None,
    };
    if path.is_none() && args.what_if.is_empty() {
        let outlook: Outlook = dependencies.outlook();
        return output.text_or_json(is_for_people, |out| out.show(&outlook), &outlook);
    }
    let mut predictions = Vec::new();
    for change in &args.what_if {
        match dependencies.predict(change.clone()) {
            Ok(prediction) => predictions.push(prediction),
            Err(why @ NoPrediction::NothingToChange) => note(&format!("--what-if {change}: {why}")),
            Err(why) => return Err(no_prediction(&profile, &args.io.file, change, why)),
        }
    }
    let paths = Paths { path, predictions, assumptions: dependencies.assumptions() };
    let text = |out: &mut Text<'_>| {
        if let Some(path) = &paths.path {
            out.show(path)?;
        }
        paths.predictions.iter().try_for_each(|prediction| out.show(prediction))?;
        Ok(writeln!(out, "{}", paths.assumptions)?)
    };
    output.text_or_json(is_for_people, text, &paths)
}

fn no_prediction(profile: &Profile, file: &Path, change: &WhatIf, why: NoPrediction) -> Failure {
    let shown = file.display();
    match (why, change) {
        (NoPrediction::NothingMatches, WhatIf::Kernel { name, .. }) => Failure::Usage(format!(
            "--what-if: {shown} has no kernel {name}; `gpuprof top` shows them{}",
            suggest::kernel(profile, name)
        )),
        (NoPrediction::NothingMatches, change) => match change.range() {
            Some(path) => suggest::no_range(file, profile, path).context("--what-if"),
            None => Failure::Usage(format!("--what-if: {shown} has no copies")),
        },
        (NoPrediction::Times, _) => Failure::Usage(format!("--what-if: {why}")),
        _ => Failure::Error(format!("--what-if: no prediction for {shown}: {why}")),
    }
}
