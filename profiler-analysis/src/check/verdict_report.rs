//! The verdict of a gate as checks and metrics.

use crate::check::gate::{CountOutcome, GateVerdict, Outcome, TimeChange, TimeKind};
use profiler_core::testing::ci::{Check, CheckOutcome, CiMetric, CiReport};

/// A check for each changed count and each time, and a metric in nanoseconds for each time.
///
/// The bounds of a metric are the bounds of the factor of its change, applied to the value. A
/// verdict that wrote its baseline has one check, which passed.
impl From<&GateVerdict> for CiReport {
    fn from(verdict: &GateVerdict) -> Self {
        let mut report = Self::new("GPU gate");
        if verdict.is_written() {
            let check = Check::new("baseline", CheckOutcome::Passed);
            report = report.check(check.message("written, not compared"));
        } else if verdict.counts().iter().all(|count| count.outcome != CountOutcome::Failed) {
            report = report.check(Check::new("counts", CheckOutcome::Passed));
        }
        for count in verdict.counts() {
            let name = format!("{}: count of {}", count.range, count.what);
            let outcome = match count.outcome {
                CountOutcome::Failed => CheckOutcome::Failed,
                _ => CheckOutcome::Passed,
            };
            let check = Check::new(name, outcome);
            report = report.check(check.message(count.to_string()));
        }
        for time in verdict.times() {
            let outcome = match time.outcome {
                Outcome::Undecided => CheckOutcome::Undecided,
                outcome if outcome.is_pass() => CheckOutcome::Passed,
                _ => CheckOutcome::Failed,
            };
            let explained = verdict.wall().filter(|_| time.of == TimeKind::Wall);
            let message = explained.map_or_else(|| time.to_string(), ToString::to_string);
            let check = Check::new(name_of(time), outcome).message(message);
            report = report.check(check).metric(metric(time));
        }
        if report.is_pass() && !verdict.is_pass() {
            let outcome = match verdict.is_undecided() {
                true => CheckOutcome::Undecided,
                false => CheckOutcome::Failed,
            };
            report = report.check(Check::new("gate", outcome).message(verdict.to_string()));
        }
        verdict.notes().iter().fold(report, |report, note| report.note(note))
    }
}

fn name_of(time: &TimeChange) -> String {
    match (time.of, &time.kernel) {
        (TimeKind::Wall, _) => time.of.to_string(),
        (TimeKind::Kernels, _) => format!("{}: all kernels", time.range),
        (_, Some(kernel)) => format!("{}: {kernel}", time.range),
        (of, None) => format!("{}: {of}", time.range),
    }
}

fn metric(time: &TimeChange) -> CiMetric {
    let metric = CiMetric::new(name_of(time), "ns", time.after_ns).details(time.to_string());
    // The value is the median of this side alone, so its quotient is not exactly the ratio.
    let at = |factor: f64| time.after_ns * factor / time.ratio;
    match time.high {
        Some(high) => metric.bounds(at(time.low), at(high)),
        None => metric,
    }
}
