//! A part of joined tables: what a shorter recording would have had.
//!
//! Work belongs to the time of its call. Ranges are cut to the part's time; those that are kept only
//! because kept work belongs to them have no time left.

use cupti::clock;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::join::correlate;
use crate::join::health::Health;
use crate::join::range_tree::Tree;
use crate::join::tables::{
    Call, Details, Interval, Mark, MarkId, Maybe, Operation, ProcessRange, ProcessRangeId, Range,
    RangeId, Subject, Tables, ThreadId,
};

/// The rows of a part.
#[derive(Debug)]
pub(crate) struct Part {
    /// Its times, sorted and disjoint.
    windows_ns: Vec<(u64, u64)>,
    /// `None` for all that was recorded in these times.
    instances: Option<Instances>,
}

/// Instances of ranges, with their descendants.
#[derive(Debug)]
struct Instances {
    is_of: Vec<bool>,
    /// Calls inferred for them, by thread and correlation id.
    inferred: FxHashSet<(ThreadId, u32)>,
}

impl Instances {
    fn has_call(&self, call: &Call) -> bool {
        match call.range.get() {
            Some(range) => self.is_of[range.at()],
            None => self.inferred.contains(&(call.thread, call.correlation_id)),
        }
    }
}

impl Part {
    /// The calls of a time, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) fn of_time(from_ns: u64, until_ns: u64) -> Self {
        Self { windows_ns: vec![(from_ns, until_ns.max(from_ns))], instances: None }
    }

    /// The calls of these ranges and of their descendants, with inferred ones.
    pub(crate) fn of_ranges(store: &Tables, tree: &Tree, ranges: &[RangeId]) -> Self {
        let mut is_of = vec![false; store.ranges.len()];
        let subtrees = ranges.iter().flat_map(|range| tree.subtree(*range));
        subtrees.for_each(|range| is_of[range.at()] = true);
        let is_inferred = |range: &Maybe<RangeId>| range.get().is_some_and(|id| is_of[id.at()]);
        let calls = store.calls.iter().zip(&store.inferred);
        let calls = calls.filter(|(_, range)| is_inferred(range)).map(|(call, _)| call);
        let inferred = calls.map(|call| (call.thread, call.correlation_id)).collect();
        let time = |range: &RangeId| store.ranges[range.at()].time;
        // The end of a window is excluded.
        let times = ranges.iter().map(time);
        let windows = times.map(|time| (time.start_ns, time.end_ns.saturating_add(1)));
        let windows_ns = united(windows.collect());
        Self { windows_ns, instances: Some(Instances { is_of, inferred }) }
    }

    fn hull(&self) -> (u64, u64) {
        let first = self.windows_ns.first().map_or(0, |window| window.0);
        (first, self.windows_ns.last().map_or(first, |window| window.1))
    }

    fn has_time(&self, time: Interval) -> bool {
        // A window excludes its end.
        let next = self.windows_ns.partition_point(|(_, end_ns)| *end_ns <= time.start_ns);
        let window = self.windows_ns.get(next);
        window.is_some_and(|(from_ns, _)| time.end_ns > *from_ns || time.start_ns >= *from_ns)
    }

    /// Removes all other rows. The losses remain those of the whole.
    pub(crate) fn cut(&self, store: &mut Tables, health: &mut Health) {
        let is_of_time = self.instances.is_none();
        let within = |call: &Call| match &self.instances {
            None => clock::is_within(&self.windows_ns, call.time.start_ns),
            Some(instances) => instances.has_call(call),
        };
        let has_call_or_time = |operation: &Operation| {
            operation.call.get().is_some()
                || is_of_time && operation.time().is_some_and(|time| self.has_time(time))
        };
        store.operations.retain(has_call_or_time);
        store.retain_side_rows(|row| match row.times {
            _ if row.call.is_some_and(|(_, call)| call.get().is_some()) => true,
            [Some(start), end] => {
                let (start_ns, end_ns) = (*start, end.map_or(*start, |end| *end));
                self.has_time(Interval { start_ns, end_ns })
            }
            [None, _] => true,
        });
        let calls = store.calls.iter().zip(std::mem::take(&mut store.inferred));
        let inferred = calls.filter(|(call, _)| within(call)).map(|(_, range)| range);
        let inferred: Vec<Maybe<RangeId>> = inferred.collect();
        let mut counted = Health::default();
        correlate::join_within(store, &mut counted, &self.windows_ns, within);
        health.accounts = counted.accounts;
        store.inferred = inferred;
        self.cut_session(store);
        self.cut_ranges(store);
    }

    fn cut_session(&self, store: &mut Tables) {
        let (first, last) = self.hull();
        let cut = |of: &mut (u64, u64)| {
            of.0 = of.0.clamp(first, last);
            of.1 = of.1.clamp(of.0, last);
        };
        let session = &mut store.session;
        cut(&mut session.window_ns);
        session.windows_ns = common(&session.windows_ns, &self.windows_ns);
        let recorded = store.processes.iter_mut().filter_map(|process| process.recorded.as_mut());
        for recorded in recorded {
            cut(&mut recorded.window_ns);
            recorded.windows_ns = common(&recorded.windows_ns, &self.windows_ns);
        }
        for series in &mut store.series {
            std::sync::Arc::make_mut(series).clip((first, last));
        }
        store.host_samples.retain(|part| self.has_time(part.time));
    }

    /// Removes ranges, process ranges and marks, and renumbers the rest.
    fn cut_ranges(&self, store: &mut Tables) {
        let mut kept = Kept::new(store);
        for (row, range) in (0..).map(RangeId).zip(&store.ranges) {
            let is_kept = match &self.instances {
                None => self.has_time(range.time),
                Some(instances) => instances.is_of[row.at()],
            };
            if is_kept {
                kept.add(store, row);
            }
        }
        let calls = store.calls.iter().chain(&store.outer_calls).map(|call| call.range);
        let captured = store.operations.iter().map(|operation| operation.captured);
        for range in calls.chain(captured).chain(store.inferred.iter().copied()) {
            range.get().into_iter().for_each(|range| kept.add(store, range));
        }
        for (row, range) in (0..).map(ProcessRangeId).zip(&store.process_ranges) {
            let is_around = |parent: RangeId| kept.ranges[parent.at()];
            if self.has_time(range.time)
                && (self.instances.is_none() || range.parent.is_some_and(is_around))
            {
                kept.add_process_range(store, row);
            }
        }
        let mut marks = Vec::with_capacity(store.marks.len());
        for mark in &store.marks {
            let is_of_time = clock::is_within(&self.windows_ns, mark.at_ns);
            let parent = mark.parent;
            let is_of_range = parent.is_some_and(|parent| kept.ranges[parent.at()]);
            marks.push(is_of_time && (self.instances.is_none() || is_of_range));
            if let Some(parent) = parent.filter(|_| marks.last() == Some(&true)) {
                kept.add(store, parent);
            }
        }
        let rows = Rows {
            ranges: renumbered(&kept.ranges),
            process_ranges: renumbered(&kept.process_ranges),
            marks: renumbered(&marks),
        };
        rows.apply(store, self.hull());
    }
}

/// The kept ranges, always with the ranges around them.
struct Kept {
    ranges: Vec<bool>,
    process_ranges: Vec<bool>,
}

impl Kept {
    fn new(store: &Tables) -> Self {
        let process_ranges = vec![false; store.process_ranges.len()];
        Self { ranges: vec![false; store.ranges.len()], process_ranges }
    }

    fn add(&mut self, store: &Tables, range: RangeId) {
        let mut next = Some(range);
        while let Some(range) = next.filter(|range| !self.ranges[range.at()]) {
            self.ranges[range.at()] = true;
            let details = store.details.get(&Subject::Range(range));
            if let Some(whole) = details.and_then(|details| details.within) {
                self.process_ranges[whole.at()] = true;
            }
            next = store.ranges[range.at()].parent.get();
        }
    }

    fn add_process_range(&mut self, store: &Tables, range: ProcessRangeId) {
        self.process_ranges[range.at()] = true;
        let parent = store.process_ranges[range.at()].parent;
        parent.into_iter().for_each(|parent| self.add(store, parent));
    }
}

/// The new number of each kept row.
fn renumbered(kept: &[bool]) -> Vec<Option<u32>> {
    let mut next = 0..;
    kept.iter().map(|is_kept| is_kept.then(|| next.next()).flatten()).collect()
}

/// The new numbers of rows.
struct Rows {
    ranges: Vec<Option<u32>>,
    process_ranges: Vec<Option<u32>>,
    marks: Vec<Option<u32>>,
}

impl Rows {
    fn range(&self, range: RangeId) -> Option<RangeId> {
        self.ranges[range.at()].map(RangeId)
    }

    fn maybe(&self, range: Maybe<RangeId>) -> Maybe<RangeId> {
        range.get().and_then(|range| self.range(range)).into()
    }

    fn process_range(&self, range: ProcessRangeId) -> Option<ProcessRangeId> {
        self.process_ranges[range.at()].map(ProcessRangeId)
    }

    fn subject(&self, of: Subject) -> Option<Subject> {
        match of {
            Subject::Range(range) => self.range(range).map(Subject::Range),
            Subject::ProcessRange(range) => self.process_range(range).map(Subject::ProcessRange),
            Subject::Mark(mark) => self.marks[mark.at()].map(MarkId).map(Subject::Mark),
        }
    }

    /// Removes rows without a number. Ranges are cut to a time.
    fn apply(&self, store: &mut Tables, (from_ns, until_ns): (u64, u64)) {
        let cut = |time: Interval| {
            let start_ns = time.start_ns.clamp(from_ns, until_ns);
            Interval { start_ns, end_ns: time.end_ns.clamp(start_ns, until_ns) }
        };
        let numbers = self.ranges.iter().chain(&self.process_ranges);
        let mut numbers = numbers.map(|number| number.is_some());
        store.range_numbers.retain(|_| numbers.next().unwrap_or(true));
        let ranges = std::mem::take(&mut store.ranges).into_iter().zip(&self.ranges);
        store.ranges = ranges
            .filter(|(_, number)| number.is_some())
            .map(|(row, _)| Range { time: cut(row.time), parent: self.maybe(row.parent), ..row })
            .collect();
        let process_ranges = std::mem::take(&mut store.process_ranges).into_iter();
        store.process_ranges = process_ranges
            .zip(&self.process_ranges)
            .filter(|(_, number)| number.is_some())
            .map(|(row, _)| ProcessRange {
                time: cut(row.time),
                parent: row.parent.and_then(|parent| self.range(parent)),
                ..row
            })
            .collect();
        let marks = std::mem::take(&mut store.marks).into_iter().zip(&self.marks);
        store.marks = marks
            .filter(|(_, number)| number.is_some())
            .map(|(row, _)| Mark { parent: row.parent.and_then(|id| self.range(id)), ..row })
            .collect();
        let details: FxHashMap<Subject, Details> = std::mem::take(&mut store.details);
        store.details = details
            .into_iter()
            .filter_map(|(of, details)| {
                let within = details.within.and_then(|whole| self.process_range(whole));
                Some((self.subject(of)?, Details { within, ..details }))
            })
            .collect();
        for share in &mut store.shares {
            *share = share.iter().filter_map(|range| self.range(*range)).collect();
        }
        let repeated = store.repeated_calls.values_mut().flatten();
        for call in store.calls.iter_mut().chain(&mut store.outer_calls).chain(repeated) {
            call.range = self.maybe(call.range);
        }
        for operation in &mut store.operations {
            operation.captured = self.maybe(operation.captured);
        }
        store.inferred.iter_mut().for_each(|range| *range = self.maybe(*range));
    }
}

/// Windows in order; those that overlap are one.
fn united(mut windows_ns: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    windows_ns.sort_unstable();
    windows_ns.dedup_by(|next, last| {
        let is_joined = next.0 <= last.1;
        if is_joined {
            last.1 = last.1.max(next.1);
        }
        is_joined
    });
    windows_ns
}

/// The times in both, or an empty one; each is sorted and disjoint.
fn common(some_ns: &[(u64, u64)], others_ns: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let (mut common, mut others) = (Vec::new(), others_ns.iter().peekable());
    for &(from, until) in some_ns {
        while let Some(&&(start, end)) = others.peek() {
            if start.max(from) < end.min(until) {
                common.push((start.max(from), end.min(until)));
            }
            if end > until {
                break;
            }
            others.next();
        }
    }
    // Without any windows all time would count.
    if common.is_empty() {
        let at_ns = others_ns.first().map_or(0, |window| window.0);
        common.push((at_ns, at_ns));
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_united_and_intersected() {
        let windows = united(vec![(30, 40), (0, 10), (10, 20), (35, 38)]);
        assert_eq!(windows, [(0, 20), (30, 40)]);
        assert_eq!(common(&windows, &[(5, 32), (39, 90)]), [(5, 20), (30, 32), (39, 40)]);
        assert_eq!(common(&[(0, u64::MAX)], &windows), windows);
        assert_eq!(common(&windows, &[(20, 30)]), [(20, 20)]);
    }
}
