//! `gpuprof critical-path`: what determined the length of a run or its steps, and what changes would bring.

use std::path::Path;

use profiler_core::Profile;
use profiler_core::critical_path::{
    Assumptions, Change, CriticalPath, NoPrediction, Outlook, Prediction,
};
use serde::Serialize;

use crate::args::{CriticalPathArgs, OutputFormat as _, TextFormat};
use crate::failure::Failure;
use crate::message::note;
use crate::suggest;
use crate::tables::write_json;

/// The path of some ranges, or the answers to questions.
#[derive(Debug, Serialize)]
struct Paths<'a> {
    path: Option<CriticalPath>,
    predictions: Vec<Prediction>,
    assumptions: &'a Assumptions,
}

pub(crate) fn critical_path(args: CriticalPathArgs) -> Result<(), Failure> {
    let (output, format) = (args.io.output(&[])?, args.format.get());
    let profile = args.numbers.profile(&args.io.file)?;
    let missing = |path: &str| {
        Failure::Usage(format!(
            "{} has no range {path}; `gpuprof report` shows them{}",
            args.io.file.display(),
            suggest::range(&profile, path)
        ))
    };
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
        return output.write_in(format.is_for_people(), |out| match format {
            TextFormat::Text => out.show(&outlook),
            TextFormat::Json => write_json(out, &outlook),
        });
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
    output.write_in(format.is_for_people(), |out| match format {
        TextFormat::Text => {
            if let Some(path) = &paths.path {
                out.show(path)?;
            }
            paths.predictions.iter().try_for_each(|prediction| out.show(prediction))?;
            out.show(paths.assumptions)
        }
        TextFormat::Json => write_json(out, &paths),
    })
}

fn no_prediction(profile: &Profile, file: &Path, change: &Change, why: NoPrediction) -> Failure {
    let file = file.display();
    match (why, change) {
        (NoPrediction::NothingMatches, Change::Kernel { name, .. }) => Failure::Usage(format!(
            "--what-if: {file} has no kernel {name}; `gpuprof top` shows them{}",
            suggest::kernel(profile, name)
        )),
        (NoPrediction::NothingMatches, change) => match range_of(change) {
            Some(path) => Failure::Usage(format!(
                "--what-if: {file} has no range {path}; `gpuprof report` shows them{}",
                suggest::range(profile, path)
            )),
            None => Failure::Usage(format!("--what-if: {file} has no copies")),
        },
        (NoPrediction::Times, _) => Failure::Usage(format!("--what-if: {why}")),
        _ => Failure::Error(format!("--what-if: no prediction for {file}: {why}")),
    }
}

fn range_of(change: &Change) -> Option<&str> {
    match change {
        Change::RangeGpu { path, .. }
        | Change::Host { path, .. }
        | Change::Ahead { path, .. }
        | Change::NoWait { path }
        | Change::OneWait { path }
        | Change::NoAllocations { path }
        | Change::NoEvents { path }
        | Change::OneGraph { path }
        | Change::OneCopy { path } => Some(path),
        _ => None,
    }
}

/// What a change is called, the last without a name.
const CHANGES: &str = "kernel:NAME=2, gpu:RANGE=2, host:RANGE=2, ahead:RANGE=4, no-wait:RANGE, one-wait:RANGE, \
                       no-allocations:RANGE, no-events:RANGE, one-graph:RANGE, one-copy:RANGE, pinned, copies-ahead";

/// A change from an argument.
pub(crate) fn change(text: &str) -> Result<Change, String> {
    let unknown = || format!("there is no change {text}; there are {CHANGES}");
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    // A name or path may contain `=`.
    let with_number = || {
        let (name, number) =
            rest.rsplit_once('=').ok_or_else(|| format!("{kind}:{rest} lacks =NUMBER"))?;
        let number: f64 = match number {
            "inf" => f64::INFINITY,
            number => number.parse().map_err(|_| format!("{number} is no number"))?,
        };
        match number > 0.0 && !name.is_empty() {
            true => Ok((name.to_owned(), number)),
            false => Err(format!("{rest}: a name and a number above 0 are needed")),
        }
    };
    let path = || match rest {
        "" => Err(unknown()),
        path => Ok(path.to_owned()),
    };
    Ok(match kind {
        "kernel" => with_number().map(|(name, times)| Change::Kernel { name, times })?,
        "gpu" => with_number().map(|(path, times)| Change::RangeGpu { path, times })?,
        "host" => with_number().map(|(path, times)| Change::Host { path, times })?,
        "ahead" => {
            let (path, threads) = with_number()?;
            // CAST: a number of threads; more than 2^32 are as many.
            Change::Ahead { path, threads: threads.max(1.0) as u32 }
        }
        "no-wait" => Change::NoWait { path: path()? },
        "one-wait" => Change::OneWait { path: path()? },
        "no-allocations" => Change::NoAllocations { path: path()? },
        "no-events" => Change::NoEvents { path: path()? },
        "one-graph" => Change::OneGraph { path: path()? },
        "one-copy" => Change::OneCopy { path: path()? },
        "pinned" if rest.is_empty() => Change::Pinned,
        "copies-ahead" if rest.is_empty() => Change::CopiesAhead,
        _ => return Err(unknown()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_from_arguments() {
        let name = |name: &str| name.to_owned();
        assert_eq!(change("kernel:a=b=2"), Ok(Change::Kernel { name: name("a=b"), times: 2.0 }));
        let times = f64::INFINITY;
        assert_eq!(
            change("host:step/load=inf"),
            Ok(Change::Host { path: name("step/load"), times })
        );
        assert_eq!(change("ahead:load=4"), Ok(Change::Ahead { path: name("load"), threads: 4 }));
        assert_eq!(change("no-wait:step"), Ok(Change::NoWait { path: name("step") }));
        assert_eq!(change("one-wait:step"), Ok(Change::OneWait { path: name("step") }));
        assert_eq!(change("no-allocations:step"), Ok(Change::NoAllocations { path: name("step") }));
        assert_eq!(change("copies-ahead"), Ok(Change::CopiesAhead));
        for wrong in [
            "",
            "x",
            "pinned:x",
            "one-wait",
            "one-wait:",
            "kernel:a",
            "kernel:=2",
            "gpu:a=0",
            "gpu:a=x",
        ] {
            assert!(change(wrong).is_err(), "{wrong}");
        }
    }
}
