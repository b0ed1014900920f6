//! `gpuprof diagnose`: reports verdicts and findings.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::io::Write as _;
use std::path::Path;

use profiler_analysis::diagnosis::{
    Bottleneck, Diagnosis, Evidence, Inconclusive, Thresholds, Verdict,
};
use profiler_analysis::prelude::*;
use profiler_base::units::nanoseconds as ns;
use profiler_core::{Profile, Range};
use serde::Serialize;

use crate::args::{DiagnoseArgs, OutputFormat as _};
use crate::failure::Failure;
use crate::suggest;
use crate::terminal::Text;

pub(crate) fn diagnose(args: DiagnoseArgs) -> Result<(), Failure> {
    let (output, is_for_people) = (args.io.output(&[])?, args.format.get().is_for_people());
    let profile = args.numbers.profile(&args.io.file)?;
    let mut thresholds = thresholds(&args.loading, args.incomplete);
    if let Some(share) = args.verdict_share {
        thresholds = thresholds.verdict_share(share);
    }
    let scope = Scope::new(args.range.as_deref(), args.steps.as_deref());
    let diagnosed = Diagnosed::new(&args.io.file, &profile, thresholds, scope)?;
    let text = |out: &mut Text<'_>| match &diagnosed {
        Diagnosed::Run(diagnosis) => out.show(&**diagnosis),
        Diagnosed::Range(verdict) => Ok(writeln!(out, "{verdict}")?),
        Diagnosed::Steps(steps) => Ok(writeln!(out, "{}", Steps(steps))?),
    };
    output.text_or_json(is_for_people, text, &diagnosed.document(&profile))?;
    let Some(most) = args.fail_above else { return Ok(()) };
    let (file, worst) = (args.io.file.display(), diagnosed.worst());
    if worst > most {
        return Err(Failure::Gate(format!(
            "--fail-above {most}: {worst:.2} is the largest estimate for one change in {file}"
        )));
    }
    let Some(why) = diagnosed.unsaid() else { return Ok(()) };
    let all_the_same = match why {
        Inconclusive::Incomplete | Inconclusive::SharedOrdinal { .. } => {
            "; --incomplete gives verdicts all the same"
        }
        _ => "",
    };
    Err(Failure::Gate(format!("--fail-above: {file} cannot be judged: {why}{all_the_same}")))
}

/// The default thresholds with further names of ranges that load data.
pub(crate) fn thresholds(loading: &[String], incomplete: bool) -> Thresholds {
    let all = Thresholds::new().incomplete(incomplete);
    loading.iter().fold(all, |thresholds, pattern| thresholds.loading(pattern))
}

/// The part of a run that is diagnosed.
pub(crate) enum Scope<'a> {
    Run,
    /// These ranges together.
    Range(&'a str),
    /// Each instance of these ranges.
    Steps(&'a str),
}

impl<'a> Scope<'a> {
    pub(crate) fn new(range: Option<&'a str>, steps: Option<&'a str>) -> Self {
        match (range, steps) {
            (Some(path), _) => Self::Range(path),
            (None, Some(path)) => Self::Steps(path),
            (None, None) => Self::Run,
        }
    }
}

/// The diagnosis of a scope.
pub(crate) enum Diagnosed {
    Run(Box<Diagnosis>),
    Range(Box<Verdict>),
    Steps(Vec<Verdict>),
}

impl Diagnosed {
    pub(crate) fn new(
        file: &Path,
        profile: &Profile,
        thresholds: Thresholds,
        scope: Scope<'_>,
    ) -> Result<Self, Failure> {
        let diagnoser = profile.diagnosis(thresholds);
        let missing = |path: &str| suggest::no_range(file, profile, path);
        match scope {
            Scope::Run => Ok(Self::Run(Box::new(diagnoser.run()))),
            Scope::Range(path) => {
                let verdict = diagnoser.range(path).ok_or_else(|| missing(path))?;
                Ok(Self::Range(Box::new(verdict)))
            }
            Scope::Steps(path) => match diagnoser.steps(path) {
                steps if steps.is_empty() => Err(missing(path)),
                steps => Ok(Self::Steps(steps)),
            },
        }
    }

    /// The JSON of the diagnosis.
    pub(crate) fn document(&self, profile: &Profile) -> Document<'_> {
        match self {
            Self::Run(diagnosis) => {
                let verdicts = diagnosis.verdicts().into_iter().chain(diagnosis.ranges());
                let findings = diagnosis.findings().iter().map(|finding| &finding.evidence);
                let evidence = verdicts.flat_map(evidence_of).chain(findings);
                Document::Run(Written::new(diagnosis, profile, evidence))
            }
            Self::Range(verdict) => {
                Document::Range(Written::new(verdict, profile, evidence_of(verdict)))
            }
            Self::Steps(steps) => Document::Steps(steps),
        }
    }

    /// The largest estimate for one change.
    fn worst(&self) -> f64 {
        match self {
            Self::Run(diagnosis) => worst_of_all(diagnosis),
            Self::Range(verdict) => worst_of(verdict),
            Self::Steps(steps) => steps.iter().map(worst_of).fold(1.0, f64::max),
        }
    }

    /// Returns why there is no verdict, because an unknown result must not pass the gate.
    fn unsaid(&self) -> Option<Inconclusive> {
        match self {
            Self::Run(diagnosis) => diagnosis.verdicts().into_iter().find_map(unsaid),
            Self::Range(verdict) => unsaid(verdict),
            Self::Steps(steps) => steps.iter().find_map(unsaid),
        }
    }
}

fn evidence_of(verdict: &Verdict) -> impl Iterator<Item = &Evidence> {
    verdict.causes.iter().map(|cause| &cause.evidence)
}

/// The JSON of a diagnosis.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Document<'d> {
    Run(Written<'d, Diagnosis>),
    Range(Written<'d, Verdict>),
    Steps(&'d [Verdict]),
}

/// A diagnosis with the tables that resolve the indices in its evidence.
#[derive(Serialize)]
pub(crate) struct Written<'d, T> {
    #[serde(flatten)]
    of: &'d T,
    evidence: EvidenceTables,
}

/// Rows by the indices in `operation` and `call` of evidence moments.
#[derive(Serialize, Default)]
struct EvidenceTables {
    operations: BTreeMap<usize, OperationRow>,
    calls: BTreeMap<usize, CallRow>,
}

#[derive(Serialize)]
struct OperationRow {
    kind: &'static str,
    /// The name of the kernel, or the kind of copy.
    name: String,
    path: Option<String>,
    start_ns: Option<u64>,
    end_ns: Option<u64>,
    device: u32,
    stream: u32,
    process_id: u32,
    correlation_id: u32,
}

#[derive(Serialize)]
struct CallRow {
    name: String,
    path: Option<String>,
    start_ns: u64,
    end_ns: Option<u64>,
    thread_id: u32,
    process_id: u32,
}

impl<'d, T> Written<'d, T> {
    fn new<'e>(of: &'d T, profile: &Profile, evidence: impl Iterator<Item = &'e Evidence>) -> Self {
        let path = |range: Option<Range<'_>>| range.map(|range| range.node().path());
        let mut tables = EvidenceTables::default();
        for moment in evidence.flat_map(|evidence| &evidence.longest) {
            if let (Some(number), Some(operation)) = (moment.operation, moment.operation(profile)) {
                let kernel = operation.as_kernel().map(|kernel| kernel.demangled_name());
                let copy = || operation.as_copy().map(|copy| copy.kind().to_string());
                let kind = operation.kind().name();
                let row = OperationRow {
                    name: kernel.or_else(copy).unwrap_or_else(|| kind.to_owned()),
                    kind,
                    path: path(operation.range()),
                    start_ns: operation.start().map(ns),
                    end_ns: operation.end().map(ns),
                    device: operation.device(),
                    stream: operation.stream(),
                    process_id: operation.process_id(),
                    correlation_id: operation.correlation_id(),
                };
                tables.operations.insert(number, row);
            }
            if let (Some(number), Some(call)) = (moment.call, moment.call(profile)) {
                let row = CallRow {
                    name: call.name().to_owned(),
                    path: path(call.range()),
                    start_ns: ns(call.start()),
                    end_ns: call.end().map(ns),
                    thread_id: call.thread_id(),
                    process_id: call.process_id(),
                };
                tables.calls.insert(number, row);
            }
        }
        Self { of, evidence: tables }
    }
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

fn worst_of(verdict: &Verdict) -> f64 {
    let causes = verdict.causes.iter().filter(|cause| cause.bottleneck != Bottleneck::GpuCompute);
    causes.map(|cause| cause.estimate).fold(1.0, f64::max)
}

fn unsaid(verdict: &Verdict) -> Option<Inconclusive> {
    verdict.inconclusive.filter(|why| !matches!(why, Inconclusive::NoSingleCause { .. }))
}

fn worst_of_all(diagnosis: &Diagnosis) -> f64 {
    let findings = diagnosis.findings().iter().filter(|finding| !finding.is_note());
    let verdicts = diagnosis.verdicts().into_iter().map(worst_of);
    findings.map(|finding| finding.estimate).chain(verdicts).fold(1.0, f64::max)
}
