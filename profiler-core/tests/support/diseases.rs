//! What a diagnosis has to say of programs that are slow for one known reason, and of their cured twins: the same for their
//! recordings and for live runs.

use profiler_core::Profile;
use profiler_core::diagnosis::{Bottleneck, Diagnosis, FindingKind};

/// What names a disease.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Named {
    Verdict(Bottleneck),
    Finding(FindingKind),
}

/// Every program, and what it is to be named.
pub(crate) const DISEASES: [(&str, &[Named]); 9] = [
    ("launch-bound", &[Named::Verdict(Bottleneck::Launch)]),
    ("sync-every-kernel", &[Named::Verdict(Bottleneck::Synchronization)]),
    (
        "pageable-copies",
        &[Named::Verdict(Bottleneck::Copy), Named::Finding(FindingKind::PageableCopies)],
    ),
    (
        "host-preprocessing",
        &[Named::Verdict(Bottleneck::Cpu), Named::Finding(FindingKind::IdleGaps)],
    ),
    ("slow-loader", &[Named::Verdict(Bottleneck::Data), Named::Finding(FindingKind::IdleGaps)]),
    (
        "tiny-copies",
        &[Named::Verdict(Bottleneck::Synchronization), Named::Finding(FindingKind::TinyCopies)],
    ),
    ("small-gemms", &[Named::Finding(FindingKind::SmallGemms)]),
    ("tail-effect", &[Named::Finding(FindingKind::TailEffect)]),
    ("serial-streams", &[Named::Finding(FindingKind::SerialStreams)]),
];

/// What a pair of runs came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// How much faster the cured twin's steps are.
    pub(crate) gain: f64,
    /// How much faster they were said to be at most.
    pub(crate) bound: f64,
}

/// The gain and the bound, or what the diagnosis said wrong.
///
/// `noise` is how much more than its bound a cure may seem to bring, for two runs of one program differ, too.
pub(crate) fn judge(
    name: &str,
    ill: &Profile,
    cured: &Profile,
    noise: f64,
) -> Result<Outcome, String> {
    let named = DISEASES.iter().find(|(of, _)| *of == name).map(|(_, named)| *named);
    let named = named.ok_or_else(|| format!("there is no {name}"))?;
    let (said, twin) = (ill.diagnose(), cured.diagnose());
    let mut bound = f64::INFINITY;
    for &named in named {
        let told = is_first(&said, named);
        let told = told.ok_or_else(|| format!("{name} is not named {named:?} first:\n{said}"))?;
        bound = bound.min(told);
        if is_named(&twin, named) {
            return Err(format!("{name} is cured and still named {named:?}:\n{twin}"));
        }
    }
    let time = |profile: &Profile| profile.range("step").map(|step| step.host_time());
    let (Some(before), Some(after)) = (time(ill), time(cured)) else {
        return Err(format!("{name} has no steps"));
    };
    let gain = before.as_secs_f64() / after.as_secs_f64();
    if gain > bound * noise {
        return Err(format!(
            "{name}: cured {gain:.2}x, though at most {bound:.2}x was said:\n{said}"
        ));
    }
    Ok(Outcome { gain, bound })
}

/// The bound, if this is what is said first.
fn is_first(said: &Diagnosis, named: Named) -> Option<f64> {
    match named {
        Named::Verdict(bottleneck) => {
            let cause = said.verdict().cause()?;
            (cause.bottleneck == bottleneck).then_some(cause.bound)
        }
        Named::Finding(kind) => {
            let first = said.findings().first()?;
            (first.kind == kind).then_some(first.bound)
        }
    }
}

fn is_named(said: &Diagnosis, named: Named) -> bool {
    match named {
        Named::Verdict(bottleneck) => said.verdict().bottleneck == Some(bottleneck),
        Named::Finding(kind) => said.finding(kind).is_some(),
    }
}
