//! What comparisons and gates have to say of programs that are slow for one planted reason and of the same without it, in
//! both directions: the same for their recordings and for live runs.

use std::path::Path;
use std::time::Duration;

use profiler_analysis::Speed;
use profiler_analysis::compare;
use profiler_analysis::compare::{WallCause, WallChange};
use profiler_analysis::gate::{Gate, GateVerdict, Outcome, TimeKind};
use profiler_core::Profile;

/// Each program and the causes of which one has to explain the change. The first nine are anti-patterns, the others case
/// studies.
pub const PLANTED: [(&str, &[WallCause]); 13] = [
    ("launch-bound", &[WallCause::Launching]),
    ("sync-every-kernel", &[WallCause::Waiting]),
    ("pageable-copies", &[WallCause::Copies]),
    ("host-preprocessing", &[WallCause::Host]),
    ("slow-loader", &[WallCause::Loading]),
    ("tiny-copies", &[WallCause::Waiting]),
    // Many small kernels in place of few: they launch and run for longer.
    ("small-gemms", &[WallCause::Kernels, WallCause::Launching]),
    ("tail-effect", &[WallCause::Kernels]),
    ("serial-streams", &[WallCause::Overlap]),
    ("loader", &[WallCause::Loading]),
    ("bf16", &[WallCause::Kernels]),
    ("batched", &[WallCause::Kernels, WallCause::Launching]),
    ("optimizer", &[WallCause::Launching]),
];

/// The largest of these over both directions.
#[derive(Debug, Default)]
pub struct Shown {
    /// How many times as long the slow program takes.
    pub factor: f64,
    /// By how much the parts miss the whole, and how much has no cause: shares of the change.
    pub missed: f64,
    pub unexplained: f64,
}

/// Compares runs of the program named with runs of it without the planted reason. The baseline is written to `file`.
pub fn judge(name: &str, slow: &[Profile], fast: &[Profile], file: &Path) -> Result<Shown, String> {
    let (_, causes) = PLANTED.iter().find(|(of, _)| *of == name).unwrap();
    let mut shown = Shown::default();
    for (before, after, speed) in [(fast, slow, Speed::Slower), (slow, fast, Speed::Faster)] {
        let comparison = compare(before, after);
        let gate = Gate::new(file);
        let written = gate.clone().update(true).judge(before);
        let verdict = written.and_then(|_| gate.update(false).judge(after));
        let verdict = verdict.map_err(|error| format!("{name}: {error}"))?;
        let of_gate = verdict.wall().ok_or("the gate has no wall time")?;
        for wall in [comparison.wall(), of_gate] {
            let said = format!("{name}, should be {speed} for {causes:?}: {wall}");
            let cause = wall.explanation.as_ref().map(|explanation| explanation.cause);
            if wall.speed != speed || !cause.is_some_and(|cause| causes.contains(&cause)) {
                return Err(said);
            }
            let (missed, unexplained) = shares(wall);
            if missed > 0.01 || unexplained > 0.1 {
                return Err(format!("{missed} missed and {unexplained} not explained: {said}"));
            }
            shown.missed = shown.missed.max(missed);
            shown.unexplained = shown.unexplained.max(unexplained);
        }
        if speed == Speed::Slower {
            shown.factor = comparison.wall().ratio;
        }
        check(&verdict, speed).map_err(|why| format!("{name}: {why}: {verdict}"))?;
    }
    Ok(shown)
}

/// A relapse fails by the wall time, a fix passes.
fn check(verdict: &GateVerdict, speed: Speed) -> Result<(), &'static str> {
    let wall = verdict.times().iter().find(|time| time.of == TimeKind::Wall);
    let wall = wall.ok_or("the wall time is not judged")?;
    match speed {
        Speed::Slower if verdict.is_pass() || verdict.is_undecided() => Err("a relapse passes"),
        Speed::Slower if wall.outcome != Outcome::Slower => Err("it fails by something else"),
        Speed::Faster if !verdict.is_pass() => Err("a fix fails"),
        _ => Ok(()),
    }
}

/// By how much the parts of a change of both sides miss their whole, and the part without a known cause.
pub fn shares(wall: &WallChange) -> (f64, f64) {
    let change = wall.change_ns.abs().max(1.0);
    let sum = |of: fn(&profiler_analysis::compare::Contribution) -> f64| -> f64 {
        wall.contributions.iter().map(of).sum()
    };
    let of_change = (sum(|of| of.change_ns) - wall.change_ns).abs() / change;
    let ns = |time: Duration| time.as_nanos() as f64;
    let of_sides =
        [sum(|of| of.before_ns) / ns(wall.before()), sum(|of| of.after_ns) / ns(wall.after())];
    let missed = of_sides.into_iter().map(|part| (part - 1.0).abs()).fold(of_change, f64::max);
    (missed, wall.unexplained_ns.abs() / change)
}
