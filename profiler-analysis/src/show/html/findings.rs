//! The findings at the top of the page: losses, the diagnosis, and facts from health and sums.

use std::collections::BTreeMap;
use std::time::Duration;

use profiler_base::units::{nanoseconds as ns, time};
use serde::Serialize;

use super::EVIDENCE;
use super::pauses::pauses;
use super::statistics::Busy;
use crate::analyze::diagnosis::{Bottleneck, Evidence, Judged, Moment as Found, Others, Verdict};
use profiler_core::profile::{ApiCall, Attribution, GpuOperation, Profile};
use profiler_core::tables::Interval;

/// The importance of a finding, in the order of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Something was not recorded: numbers on the page may be too low.
    Loss,
    /// A problem.
    Warning,
    /// A fact.
    Fact,
}

/// A statement about a profile and its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    /// One line.
    pub(crate) title: String,
    /// The evidence; may be empty.
    pub(crate) text: String,
    /// The number of moments that support it.
    pub(crate) count: u64,
    /// The longest moments.
    pub(crate) evidence: Vec<Moment>,
}

/// Start and length in nanoseconds since the session's start, then operation, call and device, each
/// as its index plus one, or 0 for none.
type Moment = (u64, u64, u64, u64, u64);

impl Finding {
    pub(crate) fn new(level: Level, title: impl Into<String>, text: impl Into<String>) -> Self {
        let (title, text) = (title.into(), text.into());
        Self { level, title, text, count: 0, evidence: Vec::new() }
    }

    fn with_evidence(self, count: u64, evidence: Vec<Moment>) -> Self {
        Self { count, evidence, ..self }
    }
}

/// Findings from health, sums and the diagnosis. `clock` is the run's clock: busy times are shares
/// of it.
pub(super) fn plain(profile: &Profile, judged: &Judged, clock: Duration) -> Vec<Finding> {
    let mut findings = Vec::new();
    losses(profile, &mut findings);
    failures(profile, &mut findings);
    let health = profile.health();
    if health.facts.clock_error != Duration::ZERO {
        findings.push(Finding::new(
            Level::Fact,
            format!("Times of GPU and host may be up to {} apart", nanoseconds(ns(health.facts.clock_error))),
            format!(
                "{} seem to start before their call. CUPTI maps the GPU's clock to the host's with an error; durations, \
                 calls and ranges do not depend on it.",
                counted(health.facts.before_their_call, "operation")
            ),
        ));
    }
    if health.facts.pending_calls + health.facts.pending_ranges != 0 {
        findings.push(Finding::new(
            Level::Fact,
            "A snapshot: the session went on",
            format!(
                "{} and {} were pending when it was taken.",
                counted(health.facts.pending_calls, "call"),
                counted(health.facts.pending_ranges, "range")
            ),
        ));
    }
    let pauses = pauses(profile);
    if !pauses.is_empty() {
        let time = pauses.iter().map(|(from, to)| to - from).sum();
        let finding = Finding::new(
            Level::Fact,
            format!("The session was off for {}", nanoseconds(time)),
            format!(
                "In {}, paused or switched off. Work in that time is not on this page: a gap there is not idle \
                 time, and shares are of the whole session.",
                counted(pauses.len() as u64, "part")
            ),
        );
        let moment = |(from, to): &(u64, u64)| (*from, to - from, 0, 0, 0);
        let evidence = pauses.iter().take(EVIDENCE).map(moment).collect();
        findings.push(finding.with_evidence(pauses.len() as u64, evidence));
    }
    diagnosed(judged, &mut findings);
    work(profile, clock, &mut findings);
    findings.sort_by_key(|finding| finding.level);
    findings
}

/// The verdicts on the steady phases, or on the run, and the findings of the diagnosis.
fn diagnosed(judged: &Judged, findings: &mut Vec<Finding>) {
    if judged.verdict.operations == 0 {
        return;
    }
    for verdict in judged.verdicts() {
        findings.extend(of_verdict(verdict));
    }
    for found in &judged.findings {
        let level = if found.is_note() { Level::Fact } else { Level::Warning };
        let details: String = found.details().iter().map(|detail| format!(" {detail}.")).collect();
        let text = format!("Remedy: {}.{details}", found.remedy);
        let finding = Finding::new(level, found.line(), text);
        let (count, evidence) = moments(&found.evidence);
        findings.push(finding.with_evidence(count, evidence));
    }
    let lines = Others(&judged.phases).to_string();
    let text = match judged.phases.is_empty() {
        true => "No range and no sequence of GPU operations repeats often enough.",
        false => {
            "Verdicts and findings are about the steady phases; tables and the timeline show the whole run."
        }
    };
    findings.push(Finding::new(Level::Fact, capitalised(&lines.replace('\n', "; ")), text));
}

fn of_verdict(verdict: &Verdict) -> Option<Finding> {
    let finding = match (verdict.cause(), verdict.inconclusive) {
        (Some(cause), _) => {
            let level = match cause.bottleneck {
                Bottleneck::GpuCompute => Level::Fact,
                _ => Level::Warning,
            };
            let signs: Vec<String> = cause.signs.iter().map(ToString::to_string).collect();
            let text = format!("{}. Remedy: {}.", signs.join("; "), cause.remedy);
            Finding::new(level, capitalised(&format!("{} is {cause}", verdict.subject())), text)
        }
        (None, Some(why)) => {
            let title = format!("No verdict on {}", verdict.subject());
            Finding::new(Level::Fact, title, format!("{why}."))
        }
        (None, None) => return None,
    };
    let (count, evidence) =
        verdict.cause().map(|cause| moments(&cause.evidence)).unwrap_or_default();
    Some(finding.with_evidence(count, evidence))
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// The number of moments, and the longest.
fn moments(evidence: &Evidence) -> (u64, Vec<Moment>) {
    let row = |at: Option<usize>| at.map_or(0, |at| at as u64 + 1);
    let moment = |moment: &Found| {
        let (start, length) = (ns(moment.span.start), ns(moment.span.duration()));
        (start, length, row(moment.operation), row(moment.call), 0)
    };
    (evidence.count, evidence.longest.iter().map(moment).collect())
}

/// Moments of these times and rows, the first [`EVIDENCE`] of them.
fn calls<'a>(calls: impl Iterator<Item = (usize, ApiCall<'a>)>) -> Vec<Moment> {
    let moment = |(row, call): (usize, ApiCall<'_>)| {
        (ns(call.start()), call.host_time().map_or(0, ns), 0, row as u64 + 1, 0)
    };
    calls.take(EVIDENCE).map(moment).collect()
}

fn losses(profile: &Profile, findings: &mut Vec<Finding>) {
    let health = profile.health();
    for (name, count) in health.losses.named() {
        findings.push(Finding::new(
            Level::Loss,
            format!("{} {name}", grouped(count)),
            "Counts and times on this page may be too low by them.",
        ));
    }
    for (name, account) in health.accounts.named() {
        if !account.is_balanced() {
            findings.push(Finding::new(
                Level::Loss,
                format!("The account of {name} does not balance"),
                format!("Matched: {account}."),
            ));
        }
    }
}

fn failures(profile: &Profile, findings: &mut Vec<Finding>) {
    let mut failures: BTreeMap<(&str, u32), u64> = BTreeMap::new();
    for call in profile.calls().filter(|call| call.is_failure()) {
        *failures.entry((call.name(), call.result())).or_default() += 1;
    }
    if failures.is_empty() {
        return;
    }
    let count: u64 = failures.values().sum();
    let which: Vec<String> = failures
        .iter()
        .map(|((name, result), count)| format!("{name} returned {result}, {}", times(*count)))
        .collect();
    let title = format!("{} returned an error", counted(count, "call"));
    let finding = Finding::new(Level::Warning, title, format!("{}.", which.join("; ")));
    let failed = profile.calls().enumerate().filter(|(_, call)| call.is_failure());
    findings.push(finding.with_evidence(count, calls(failed)));
}

/// `clock` is the verdict's clock: shares on the page refer to it.
fn work(profile: &Profile, clock: Duration, findings: &mut Vec<Finding>) {
    let totals = profile.totals();
    if totals.gpu_operations() == 0 {
        findings.push(Finding::new(
            Level::Fact,
            "No work on a GPU was recorded",
            "No kernel, copy or memset ran between the session's start and its stop.",
        ));
    }
    for (device, busy) in Busy::by_device(profile, EVIDENCE) {
        if busy.span_ns == 0 {
            continue;
        }
        let finding = Finding::new(
            Level::Fact,
            format!(
                "GPU {device} was busy for {} of the time",
                percent(busy.busy_ns as f64, clock.as_nanos() as f64)
            ),
            format!(
                "Kernels, copies and memsets ran on it for {} of {}, from the first to the last that was recorded; \
                 overlapping operations count once{}. Between its first and its last operation: {}{}.",
                nanoseconds(busy.busy_ns),
                time(clock).replace("us", "µs"),
                match busy.communication_ns {
                    0 => String::new(),
                    ns => format!(
                        ". Collectives alone ran for {} and are not in it: how much of that is waiting for other GPUs is \
                         not recorded",
                        nanoseconds(ns)
                    ),
                },
                counted(busy.gaps, "gap"),
                match busy.longest_gaps.first() {
                    None => String::new(),
                    Some(gap) => format!(", the longest {}", nanoseconds(gap.ns())),
                },
            ),
        );
        let device = u64::from(device) + 1;
        let moment = |gap: &Interval| (gap.start_ns, gap.ns(), 0, 0, device);
        findings
            .push(finding.with_evidence(busy.gaps, busy.longest_gaps.iter().map(moment).collect()));
        if busy.after_stop_ns != 0 {
            findings.push(Finding::new(
                Level::Fact,
                format!("GPU {device} worked on for {} after the stop", nanoseconds(busy.after_stop_ns)),
                "Work that was submitted in the session is on this page whole, and counts until its end.",
            ));
        }
    }
    let by_time = |operation: GpuOperation<'_>| operation.attribution() == Attribution::Contained;
    if profile.operations().any(by_time) {
        findings.push(Finding::new(
            Level::Fact,
            "Ranges are those that were open on the calling thread",
            "The source of this profile has no range of a call: thread and time determine it.",
        ));
    }
    let outside = profile.outside_ranges();
    if outside.gpu_operations() != 0 {
        let without = |operation: &GpuOperation<'_>| operation.range().is_none();
        let moment = |operation: GpuOperation<'_>| {
            let start = operation.start().map_or(0, ns);
            (start, operation.gpu_time().map_or(0, ns), operation.number() as u64 + 1, 0, 0)
        };
        let evidence = profile.operations().filter(without).take(EVIDENCE).map(moment).collect();
        let finding = Finding::new(
            Level::Fact,
            format!(
                "{} of {} have no range",
                grouped(outside.gpu_operations()),
                counted(totals.gpu_operations(), "GPU operation")
            ),
            format!(
                "{} of GPU time: no range was open on the thread that made the call.",
                nanoseconds(outside.gpu_time().as_nanos() as u64)
            ),
        );
        findings.push(finding.with_evidence(outside.gpu_operations(), evidence));
    }
}

fn nanoseconds(ns: u64) -> String {
    time(Duration::from_nanos(ns)).replace("us", "µs")
}

fn percent(part: f64, whole: f64) -> String {
    let share = 100.0 * part / whole.max(1.0);
    if share > 0.0 && share < 0.05 { "less than 0.1 %".into() } else { format!("{share:.1} %") }
}

fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", grouped(count))
}

fn times(count: u64) -> String {
    if count == 1 { "once".into() } else { format!("{} times", grouped(count)) }
}

/// Separates thousands with commas.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i != 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_read_as_people_write_them() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([counted(1, "gap"), counted(1_000, "gap")], ["1 gap", "1,000 gaps"]);
        assert_eq!([times(1), times(2)], ["once", "2 times"]);
        assert_eq!(percent(1.0, 3.0), "33.3 %");
        assert_eq!([percent(1.0, 1e6), percent(0.0, 0.0)], ["less than 0.1 %", "0.0 %"]);
    }
}
