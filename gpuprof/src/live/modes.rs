//! The recording of an always-on process, and of one that keeps its last part.

use std::time::Duration;

use super::model::{Model, process_name};
use super::observation::Observed;
use crate::message::whole_seconds;

/// A line for each selected process of a run in one of these modes.
pub(super) fn lines(model: &Model) -> Vec<String> {
    let Some(observation) = &model.observation else { return Vec::new() };
    let run = observation.run.as_ref();
    let always_on = run.and_then(|run| run.always_on.as_deref());
    let keep_last = run.and_then(|run| run.keep_last.as_deref());
    let line = |of: &Observed| {
        let mode = match (&of.report, always_on, keep_last) {
            (Some(report), ..) => sampled(of, report),
            (None, Some(settings), _) => {
                format!("always on ({settings}); w writes its first report, or 10 s do")
            }
            (None, None, Some(part)) => kept(of, part, observation.at.wall_ns),
            (None, None, None) => return None,
        };
        Some(format!("{}: {mode}", process_name(of)))
    };
    model.shown().filter_map(line).collect()
}

/// The cost from the report of an always-on process, which it writes every 10 s.
fn sampled(of: &Observed, report: &str) -> String {
    let cost = report.lines().find(|line| line.starts_with("cost: "));
    let line = cost.or(report.lines().next()).unwrap_or_default();
    format!("{} windows; {line}", of.process.counts.windows)
}

fn kept(of: &Observed, part: &str, now_ns: u64) -> String {
    let part = match part.split_once('=') {
        Some((unit, count)) => format!("{count} {unit}"),
        None => part.to_owned(),
    };
    let written = match of.recorded.as_ref().and_then(|recorded| recorded.written_ns) {
        Some(at) => {
            format!(
                "written {} ago",
                whole_seconds(Duration::from_nanos(now_ns.saturating_sub(at)))
            )
        }
        None => "not written yet".to_owned(),
    };
    let counts = of.process.counts;
    let (incidents, left_out) = (counts.incidents, counts.incidents_left_out);
    format!("keeps the last {part}, {written}; incidents: {incidents}, without a file: {left_out}")
}
