//! What a diagnosis has to say of programs that are slow for one known reason, and of their cured twins: the same for their
//! recordings and for live runs.

use profiler_analysis::diagnosis::{Bottleneck, Diagnosis, FindingKind, FixKind, Thresholds};
use profiler_analysis::prelude::*;
use profiler_core::Profile;

/// What names a disease.
#[derive(Clone, Copy, Debug)]
pub enum Named {
    Verdict(Bottleneck),
    Finding(FindingKind),
}

/// Every program, and what it is to be named.
pub const DISEASES: [(&str, &[Named]); 9] = [
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

/// The first thing to fix in these programs and in the case studies: what was planted.
pub const FIXES: [(&str, FixKind); 13] = [
    ("launch-bound", FixKind::Cause(Bottleneck::Launch)),
    ("sync-every-kernel", FixKind::Cause(Bottleneck::Synchronization)),
    ("pageable-copies", FixKind::Finding(FindingKind::PageableCopies)),
    ("host-preprocessing", FixKind::Cause(Bottleneck::Cpu)),
    ("slow-loader", FixKind::Cause(Bottleneck::Data)),
    ("tiny-copies", FixKind::Finding(FindingKind::TinyCopies)),
    ("small-gemms", FixKind::Finding(FindingKind::SmallGemms)),
    ("tail-effect", FixKind::Finding(FindingKind::TailEffect)),
    ("serial-streams", FixKind::Finding(FindingKind::SerialStreams)),
    ("loader", FixKind::Cause(Bottleneck::Data)),
    // Products in f32: the remedy names lower precision on tensor cores.
    ("bf16", FixKind::Cause(Bottleneck::GpuCompute)),
    ("batched", FixKind::Finding(FindingKind::SmallGemms)),
    ("optimizer", FixKind::Cause(Bottleneck::Launch)),
];

/// What a pair of runs came to.
#[derive(Debug)]
pub struct Outcome {
    /// How much faster the cured twin is, by the clock.
    pub gain: f64,
    /// The estimate of that.
    pub estimate: f64,
}

/// The gain and the estimate, or what the diagnosis said wrong.
///
/// These cures do what the estimates assume and no more. `noise` is the part of the time that may go beyond the estimate, for two runs of one program differ, too.
/// It is a part and no factor: a run that takes a fifteenth is one step late from taking a twelfth.
pub fn judge(name: &str, ill: &Profile, cured: &Profile, noise: f64) -> Result<Outcome, String> {
    let named = DISEASES.iter().find(|(of, _)| *of == name).map(|(_, named)| *named);
    let named = named.ok_or_else(|| format!("there is no {name}"))?;
    let (said, twin) = (ill.diagnose(), cured.diagnose());
    let mut estimate = f64::INFINITY;
    for &named in named {
        let estimated = is_first(&said, named);
        let estimated =
            estimated.ok_or_else(|| format!("{name} is not named {named:?} first:\n{said}"))?;
        estimate = estimate.min(estimated);
        if is_named(&twin, named) {
            return Err(format!("{name} is cured and still named {named:?}:\n{twin}"));
        }
    }
    // Of what the estimate is of: a step of the steady phase, or the whole run with its slow first steps, for which two runs
    // pay differently.
    let is_same = said.verdict().phase == twin.verdict().phase;
    let clock = |profile: &Profile, of: &Diagnosis| match is_same {
        true => of.verdict().clock.as_secs_f64() / of.verdict().instances as f64,
        false => profile.diagnosis(Thresholds::new()).verdict().clock.as_secs_f64(),
    };
    let gain = clock(ill, &said) / clock(cured, &twin);
    let first = said.finding(FindingKind::FirstIterations).map_or(0.0, |first| first.share);
    // Without a bound below 1 nothing is judged. First steps count only for what is beyond the noise.
    let saved = 1.0 - 1.0 / gain;
    let within = |most: f64| saved <= most && most < 1.0;
    let most = 1.0 - 1.0 / estimate + noise;
    if !within(most) && !within(most + first) {
        return Err(format!(
            "{name}: cured {gain:.2}x, though {estimate:.2}x was estimated, and {first:.3} of it goes to first steps:\n{said}"
        ));
    }
    Ok(Outcome { gain, estimate })
}

/// The estimate, if this is what is said first.
fn is_first(said: &Diagnosis, named: Named) -> Option<f64> {
    match named {
        Named::Verdict(bottleneck) => {
            let cause = said.verdict().cause()?;
            (cause.bottleneck == bottleneck).then_some(cause.estimate)
        }
        Named::Finding(kind) => {
            let first = said.findings().first()?;
            (first.kind == kind).then_some(first.estimate)
        }
    }
}

fn is_named(said: &Diagnosis, named: Named) -> bool {
    match named {
        Named::Verdict(bottleneck) => said.verdict().bottleneck == Some(bottleneck),
        Named::Finding(kind) => said.finding(kind).is_some(),
    }
}
