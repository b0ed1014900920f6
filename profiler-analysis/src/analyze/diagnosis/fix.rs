//! Causes and findings as things to fix, and which of them is first.

use profiler_base::units::{PATH_WIDTH, shortened};
use serde::Serialize;

use super::bottleneck::Bottleneck;
use super::finding::{Finding, FindingKind};
use super::verdict::{Cause, Verdict, finite};

/// The share of a cause that a finding has to take to be fixed in its place.
const MOST_OF_A_CAUSE: f64 = 0.5;

/// A cause or finding to fix, with an estimate of the gain.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Fix {
    /// The cause or finding.
    pub kind: FixKind,
    /// The cause or finding as text.
    pub what: String,
    /// The path of the costliest range; `None` for a cause, and outside any range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The speed-up of the run under [`assumption`](Self::assumption); infinite if the whole run is
    /// removed.
    #[serde(serialize_with = "finite")]
    pub estimate: f64,
    /// True if no change of this kind saves more: [`Finding::is_bound`].
    pub is_bound: bool,
    /// The assumption of the estimate.
    pub assumption: &'static str,
    /// The advice.
    pub remedy: &'static str,
}

/// The kind of a [`Fix`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum FixKind {
    /// A cause of a verdict.
    Cause(Bottleneck),
    /// A finding.
    Finding(FindingKind),
}

impl From<&Cause> for Fix {
    fn from(cause: &Cause) -> Self {
        Self {
            kind: FixKind::Cause(cause.bottleneck),
            what: cause.bottleneck.text().to_owned(),
            path: None,
            estimate: cause.estimate,
            is_bound: cause.is_bound,
            assumption: cause.assumption,
            remedy: cause.remedy,
        }
    }
}

impl From<&Finding> for Fix {
    fn from(found: &Finding) -> Self {
        Self {
            kind: FixKind::Finding(found.kind),
            what: match found.path() {
                Some(path) => format!("{}, in {}", found.title, shortened(path, PATH_WIDTH)),
                None => found.title.clone(),
            },
            path: found.path().map(str::to_owned),
            estimate: found.estimate,
            is_bound: found.is_bound,
            assumption: found.assumption,
            remedy: found.remedy,
        }
    }
}

impl Fix {
    /// The first thing to fix: the cause of the verdict, or in its place a finding that names a
    /// narrower remedy for most of its time. If the cause is GPU work, or there is none, the
    /// costliest finding; without one, GPU work itself.
    pub(crate) fn first(verdict: &Verdict, findings: &[Finding]) -> Option<Self> {
        let mut findings = fixable(verdict, findings);
        match verdict.cause() {
            Some(cause) if cause.bottleneck != Bottleneck::GpuCompute => {
                let least = cause.cost.mul_f64(MOST_OF_A_CAUSE);
                let narrower = findings.find(|found| {
                    found.kind.narrows() == Some(cause.bottleneck) && found.cost >= least
                });
                Some(narrower.map_or_else(|| cause.into(), Self::from))
            }
            cause => findings.next().map(Self::from).or(cause.map(Self::from)),
        }
    }
}

/// The findings in the phase of a verdict that need a change, costliest first.
pub(crate) fn fixable<'f>(
    verdict: &'f Verdict,
    findings: &'f [Finding],
) -> impl Iterator<Item = &'f Finding> {
    let is_of = |found: &&Finding| found.phase.is_none() || found.phase == verdict.phase;
    findings.iter().filter(is_of).filter(|found| !found.is_note())
}

impl FindingKind {
    /// The bottleneck for a part of which this finding has the narrower remedy.
    const fn narrows(self) -> Option<Bottleneck> {
        match self {
            Self::PageableCopies | Self::BlockingCopies => Some(Bottleneck::Copy),
            Self::TinyCopies | Self::RedundantSyncs => Some(Bottleneck::Synchronization),
            Self::SmallGemms | Self::RepeatedAllocation | Self::LazyLoading => {
                Some(Bottleneck::Launch)
            }
            _ => None,
        }
    }
}
