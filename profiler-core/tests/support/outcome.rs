//! What is said of a session, in words that the generator of a program and a reader of its profile share.

use std::collections::{BTreeMap, BTreeSet};

use profiler_core::profile::Attribution;

use crate::program::Kind;

/// Launches; kernels, their ns; copies, their ns and bytes; memsets, their ns and bytes; synchronisations; allocations;
/// frees; failed calls.
pub(crate) type Sums = [u64; 13];

pub(crate) fn add(to: &mut Sums, sums: &Sums) {
    to.iter_mut().zip(sums).for_each(|(to, more)| *to += more);
}

/// A range: its thread, and which one of that thread.
pub(crate) type Spot = (usize, usize);
/// The domain's name, and its own.
pub(crate) type Key = (Option<String>, String);

#[derive(Debug, Default, PartialEq)]
pub(crate) struct RangeRow {
    pub(crate) key: Key,
    pub(crate) parent: Option<Spot>,
    pub(crate) payload: Option<u64>,
    /// The range of the process that it is a stay in: its thread, and which one of that thread.
    pub(crate) within: Option<Spot>,
    pub(crate) is_open: bool,
    pub(crate) inclusive: Sums,
    pub(crate) replayed: Sums,
    pub(crate) shared: Sums,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct ProcessRow {
    pub(crate) key: Key,
    pub(crate) parent: Option<Spot>,
    pub(crate) payload: Option<u64>,
    pub(crate) end: Option<usize>,
    pub(crate) stays: BTreeSet<Spot>,
    pub(crate) inclusive: Sums,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallRow {
    pub(crate) function: String,
    pub(crate) range: Option<Spot>,
    /// Other ranges that it belongs to.
    pub(crate) others: BTreeSet<Spot>,
    pub(crate) is_failure: bool,
    pub(crate) is_captured: bool,
}

#[derive(Debug, PartialEq)]
pub(crate) struct OperationRow {
    pub(crate) range: Option<Spot>,
    pub(crate) others: BTreeSet<Spot>,
    pub(crate) captured: Option<Spot>,
    /// The thread and the function of the call.
    pub(crate) call: Option<(usize, String)>,
    pub(crate) attribution: Attribution,
    pub(crate) bytes: u64,
    pub(crate) ns: u64,
    pub(crate) stream: u32,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct NodeRow {
    pub(crate) instances: u64,
    pub(crate) inclusive: Sums,
    pub(crate) exclusive: Sums,
    pub(crate) replayed: Sums,
    pub(crate) shared: Sums,
}

/// All that is said of a session, by the generator or by a profile. Lists are by thread.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) ranges: Vec<Vec<RangeRow>>,
    pub(crate) processes: Vec<Vec<ProcessRow>>,
    pub(crate) marks: Vec<Vec<(Key, Option<Spot>)>>,
    pub(crate) calls: Vec<Vec<CallRow>>,
    pub(crate) operations: BTreeMap<(Kind, u64), Vec<OperationRow>>,
    /// By path, with domains.
    pub(crate) nodes: BTreeMap<Vec<Key>, NodeRow>,
    /// By name, path and end of a path, whatever the domain.
    pub(crate) summaries: BTreeMap<String, NodeRow>,
    pub(crate) outside: Sums,
    pub(crate) totals: Sums,
    /// Kernels, copies, memsets, synchronisations: records, those matched, calls, those matched.
    pub(crate) accounts: [[u64; 4]; 4],
    pub(crate) facts: Facts,
    /// Of each call, who waited; a profile has that in inferred ranges.
    pub(crate) waiting: Vec<Vec<Waiting>>,
    /// No two threads ever did anything at the same time.
    pub(crate) is_sequential: bool,
    /// Calls after the end of a range in which their own range began.
    pub(crate) after_an_end: u64,
}

/// What is known of the threads that were in a range and did nothing during a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Waiting {
    /// The innermost open range of each; of none if the call's own thread was in a range.
    pub(crate) ranges: BTreeSet<Spot>,
    /// Nobody else did anything.
    pub(crate) is_alone: bool,
    /// The call's thread has no range of an earlier session, which makes its own range unknown.
    pub(crate) is_known: bool,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Facts {
    pub(crate) failed_calls: u64,
    pub(crate) captured_calls: u64,
    pub(crate) silent_graph_launches: u64,
    pub(crate) graph_operations: u64,
    pub(crate) graph_operations_captured: u64,
    pub(crate) open_ranges: u64,
    pub(crate) open_calls: u64,
    pub(crate) is_complete: bool,
}

impl Outcome {
    /// How often there is what is easily missed.
    pub(crate) fn kinds(&self) -> [(&'static str, u64); 19] {
        let count = |of: usize| of as u64;
        let ranges = || self.ranges.iter().flatten();
        let processes = || self.processes.iter().flatten();
        let operations = || self.operations.values().flatten();
        let by = |how| operations().filter(|row| row.attribution == how).count();
        let is_elsewhere = |(worker, rows): (usize, &Vec<ProcessRow>)| {
            rows.iter().filter(|row| row.end.is_some_and(|end| end != worker)).count()
        };
        let of_others = |(worker, rows): (usize, &Vec<RangeRow>)| {
            rows.iter().filter(|row| row.parent.is_some_and(|(thread, _)| thread != worker)).count()
        };
        let waited = |of: fn(usize) -> bool| {
            let calls = self.calls.iter().flatten().zip(self.waiting.iter().flatten());
            let is_it = |(call, waiting): &(&CallRow, &Waiting)| {
                let is_certain = waiting.is_alone && waiting.is_known && self.is_sequential;
                is_certain && call.range.is_none() && of(waiting.ranges.len())
            };
            count(calls.filter(is_it).count())
        };
        [
            ("outside ranges while no thread waited", waited(|waiting| waiting == 0)),
            ("outside ranges while one thread waited", waited(|waiting| waiting == 1)),
            ("outside ranges while several threads waited", waited(|waiting| waiting > 1)),
            ("launched in a range", count(by(Attribution::Launch))),
            ("handed", count(by(Attribution::Handed))),
            ("in no range", count(by(Attribution::None))),
            ("without a call", count(operations().filter(|row| row.call.is_none()).count())),
            (
                "captured in a range",
                count(operations().filter(|row| row.captured.is_some()).count()),
            ),
            ("shared", count(operations().filter(|row| !row.others.is_empty()).count())),
            (
                "shared by more than three",
                count(operations().filter(|row| row.others.len() > 2).count()),
            ),
            ("paths that share with others", {
                count(self.nodes.values().filter(|row| row.shared != Sums::default()).count())
            }),
            ("run again", count(self.operations.values().filter(|rows| rows.len() > 1).count())),
            ("ranges in ranges of other threads", {
                count(self.ranges.iter().enumerate().map(of_others).sum())
            }),
            ("stays", count(ranges().filter(|row| row.within.is_some()).count())),
            ("lives with stays of several threads", {
                let threads = |row: &ProcessRow| {
                    BTreeSet::from_iter(row.stays.iter().map(|stay| stay.0)).len()
                };
                count(processes().filter(|row| threads(row) > 1).count())
            }),
            ("ended elsewhere", count(self.processes.iter().enumerate().map(is_elsewhere).sum())),
            ("calls after the end of a range around", self.after_an_end),
            ("open ranges", self.facts.open_ranges),
            ("complete", u64::from(self.facts.is_complete)),
        ]
    }
}
