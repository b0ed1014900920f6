//! `diagnose`: the bottleneck of a run, findings, remedies, and their evidence.

use std::path::PathBuf;

use profiler_analysis::diagnosis::{Diagnosis, Evidence, FixKind};
use profiler_core::Profile;
use profiler_core::profile::OperationKind;
use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;
use serde_json::json;

use super::{Answer, PageArgs, Recordings, Tool};
use crate::diagnose::{Diagnosed, Scope, thresholds};
use crate::failure::Failure;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Diagnose {
    /// The profile
    file: PathBuf,
    /// The verdict on these ranges only: a name or a path, `*` for any text
    range: Option<String>,
    /// A verdict on each instance of these ranges
    steps: Option<String>,
    /// Further names of ranges that load data, besides the known words; `*` for any text
    #[serde(default)]
    loading: Vec<String>,
    /// Give verdicts even if records are missing
    #[serde(default)]
    incomplete: bool,
}

impl Tool for Diagnose {
    const NAME: &'static str = "diagnose";
    const ABOUT: &'static str = "The bottleneck of a run with its causes, remedies and estimated gains: `first` is what to fix \
                                 first, `findings` are anti-patterns, `outlook` the critical path and what changes would save, \
                                 `evidence` the operations and calls behind the numbers. The JSON of `gpuprof diagnose`.";

    fn answer(self, recordings: &mut Recordings, _: &mut PageArgs) -> Result<Answer, Failure> {
        if self.range.is_some() && self.steps.is_some() {
            return Err(Failure::Usage("give range or steps, not both".to_owned()));
        }
        let profile = recordings.profile(&self.file)?;
        let thresholds = thresholds(&self.loading, self.incomplete);
        let scope = Scope::new(self.range.as_deref(), self.steps.as_deref());
        let diagnosed = Diagnosed::new(&self.file, &profile, thresholds, scope)?;
        let mut answer = Answer::new(&self.file, &profile, &diagnosed.document(&profile))?;
        let (path, evidence) = match &diagnosed {
            Diagnosed::Run(diagnosis) => first_evidence(diagnosis),
            Diagnosed::Range(verdict) => {
                (verdict.path.as_deref(), verdict.cause().map(|cause| &cause.evidence))
            }
            Diagnosed::Steps(_) => (None, None),
        };
        if let Some(path) = path {
            let arguments = json!({ "file": self.file, "within": path });
            answer = answer.see("kernels", "the kernels in the range of the first fix", arguments);
        }
        if let Some(query) = evidence.and_then(|evidence| operations(&profile, evidence)) {
            let arguments = json!({ "file": self.file, "query": query });
            answer = answer.see("sql", "operations behind the first fix", arguments);
        }
        Ok(answer)
    }
}

/// The range and the evidence of the first fix.
fn first_evidence(diagnosis: &Diagnosis) -> (Option<&str>, Option<&Evidence>) {
    let Some(first) = diagnosis.first() else { return (None, None) };
    let evidence = match first.kind {
        FixKind::Cause(kind) => diagnosis.verdict().cause_of(kind).map(|cause| &cause.evidence),
        FixKind::Finding(kind) => diagnosis.finding(kind).map(|found| &found.evidence),
        _ => None,
    };
    (first.path.as_deref(), evidence)
}

/// A query for the longest operations of evidence, those of the kind of the first. `None` for several
/// processes, which have the same correlation ids.
fn operations(profile: &Profile, evidence: &Evidence) -> Option<String> {
    if profile.has_several_processes() {
        return None;
    }
    let all = || evidence.operations(profile);
    let kind = all().next()?.kind();
    let table = match kind {
        OperationKind::Kernel => "KERNEL",
        OperationKind::Copy => "MEMCPY",
        OperationKind::Memset => "MEMSET",
        _ => return None,
    };
    let of_kind = all().filter(|operation| operation.kind() == kind);
    let ids: Vec<String> =
        of_kind.map(|operation| operation.correlation_id().to_string()).collect();
    Some(format!(
        "SELECT * FROM CUPTI_ACTIVITY_KIND_{table} WHERE correlationId IN ({})",
        ids.join(", ")
    ))
}
