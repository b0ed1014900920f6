//! The live ranges of a running session: open, or with unfinished work. Each is summed once it is
//! done.

use std::collections::VecDeque;
use std::sync::Arc;

use nvtx::Payload;
use profiler_base::order;
use rustc_hash::FxHashMap;

use crate::join::attribute::{Contexts, Owner, links};
use crate::join::sums::{Activation, Activations, LateRows, Links, PathId, Rows, Sums};
use crate::join::totals::Totals;
use crate::record::recording::ranges::{
    Detail, Event, RangeEntry, RangeTag, Subject, ThreadSegment,
};
use crate::record::recording::segment::Segment;

/// Upper bound of removed ranges whose path is stored for contexts that are attached later. It also
/// limits joined contexts.
pub(crate) const REMEMBERED: usize = 1 << 18;

/// The rows and tag to which work under a tag is added.
#[derive(Debug, Clone, Default)]
pub(crate) struct Position {
    /// The tag of the range to which work is attributed.
    pub(crate) tag: u64,
    pub(crate) path: PathId,
    pub(crate) activations: Activations,
    pub(crate) links: Links,
}

impl Position {
    pub(crate) fn into_rows(self) -> Rows {
        let Self { path, activations, links, .. } = self;
        Rows { path: Some(path), activations, links, late: None }
    }
}

/// An ended range that submitted work to the GPU, and whose work is done. The activations of a
/// process range form one such range if its start was recorded.
#[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "a layer reads it"))]
#[derive(Debug, Clone)]
pub(crate) struct Done {
    /// The path; for activations, the path of the first one.
    pub(crate) path: PathId,
    /// The thread of its start.
    pub(crate) thread_id: u32,
    pub(crate) start_ns: u64,
    pub(crate) host_ns: u64,
    /// The host time of the range or of its activations.
    pub(crate) busy_ns: u64,
    /// The number of ranges of threads in it.
    pub(crate) activations: u64,
    pub(crate) payload: Option<Payload>,
    /// The GPU totals with descendants.
    pub(crate) totals: Totals,
}

/// A range that is open or has unfinished work.
#[derive(Debug, Default)]
struct LiveRange {
    position: Position,
    parent: Option<u64>,
    /// True if it began within its parent on one thread, without a handed-over context.
    is_nested: bool,
    /// The parent, skipping ranges of the thread that ended before all further calls, and whether
    /// it was nested in that parent. The outermost live ancestor is never skipped.
    outer: Option<u64>,
    is_nested_in_outer: bool,
    /// True if such ranges were skipped.
    has_skipped: bool,
    thread_id: u32,
    start_ns: u64,
    /// `u64::MAX` while it is open.
    end_ns: u64,
    /// True if it ended before a child that began within it.
    is_outlived: bool,
    /// The totals of the range and of its finished descendants, without [`late`](Self::late) ones.
    totals: Totals,
    /// Work of its own and of its descendants that some ancestor excludes.
    late: Option<Box<Totals>>,
    /// The number of its calls with expected records and of its unfinished child ranges.
    waits_for: u32,
    /// True if it or a descendant submitted work outside of windows, so that its GPU time is not
    /// known.
    is_partial: bool,
    /// Like `is_partial`, for late work.
    is_late_partial: bool,
    host_ns: Option<u64>,
    activation: Option<ActivationOf>,
    payload: Option<Payload>,
}

/// A range that begins in a segment.
#[derive(Debug)]
struct NewRange {
    start_ns: u64,
    end_ns: u64,
    tag: u64,
    parent: Option<u64>,
    /// The index of its thread in the segment, and of its label there.
    thread: usize,
    label: u64,
}

/// The process range of an activation.
#[derive(Debug, Clone, Copy)]
struct ActivationOf {
    process_range: u64,
    /// True if the sum of an enclosing activation includes it.
    is_inner: bool,
}

/// A process range that is open or has unfinished activations.
#[derive(Debug, Default)]
struct LiveProcessRange {
    /// The row of its sums.
    sums: u32,
    /// The path of the first activation.
    path: Option<PathId>,
    thread_id: u32,
    start_ns: u64,
    busy_ns: u64,
    activations: u64,
    totals: Totals,
    /// The number of unfinished activations.
    waits_for: u32,
    is_partial: bool,
    host_ns: Option<u64>,
    payload: Option<Payload>,
}

/// Values by key, up to a limit; the oldest are dropped.
#[derive(Debug)]
struct Remembered<T> {
    values: FxHashMap<u64, T>,
    oldest: VecDeque<u64>,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self { values: FxHashMap::default(), oldest: VecDeque::new() }
    }
}

impl<T> Remembered<T> {
    /// Inserts a value. Returns the key that was dropped, if any.
    fn insert(&mut self, key: u64, value: T) -> Option<u64> {
        let full = self.oldest.len() == REMEMBERED;
        let dropped = if full { self.oldest.pop_front() } else { None };
        if let Some(oldest) = dropped {
            self.values.remove(&oldest);
        }
        self.oldest.push_back(key);
        self.values.insert(key, value);
        dropped
    }
}

/// The ranges of a session that are not summed yet.
#[derive(Debug, Default)]
pub(crate) struct LiveRanges {
    ranges: FxHashMap<u64, LiveRange>,
    remembered: Remembered<Position>,
    /// The positions of open calls. A call whose return was not seen may arrive after any number of
    /// other ranges.
    held: FxHashMap<u64, (Position, bool)>,
    /// Rows of open calls whose range may be done when they return, by its tag and their start.
    held_late: FxHashMap<(u64, u64), Rows>,
    /// The outer range on another thread, logged before the range begins, possibly in an earlier
    /// segment.
    handed: FxHashMap<u64, u64>,
    contexts: Contexts,
    /// Contexts, with their positions once resolved.
    resolved: Remembered<Option<(Position, bool)>>,
    /// Members after the second of contexts, which a later segment may contain.
    members: FxHashMap<u64, Vec<RangeTag>>,
    process_ranges: FxHashMap<u64, LiveProcessRange>,
    /// The process range of an activation, logged before the range begins, possibly in an earlier
    /// segment.
    activation_of: FxHashMap<u64, u64>,
    /// Payloads of ranges that have not begun.
    payloads: FxHashMap<Subject, Payload>,
    /// Ends of process ranges later than the segments so far, which may contain further
    /// activations.
    process_ends: Vec<(u64, u64)>,
    /// The number of live ranges that ended before a child.
    outlived: u64,
    /// No further call began before this time.
    calls_from_ns: u64,
    /// Ranges that were open when their thread ended.
    left_open: u64,
    /// The number of ranges whose outer range is not known.
    pub(crate) orphaned: u64,
    /// The number of the recording's first range log.
    pub(crate) first_log: u64,
    /// Upper bound of the finished ranges stored until they are taken; 0 for none.
    most_done: usize,
    pub(crate) done: VecDeque<Done>,
    /// The number of finished ranges that were dropped at the bound.
    pub(crate) done_dropped: u64,
}

impl LiveRanges {
    pub(crate) fn new(most_done: usize) -> Self {
        Self { most_done, ..Self::default() }
    }

    /// The number of open ranges and of ranges with unfinished work.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len() + self.process_ranges.len()
    }

    /// The number of ranges without an end, including those whose thread has ended.
    pub(crate) fn open(&self) -> u64 {
        let ranges = self.ranges.values().filter(|range| range.host_ns.is_none());
        let process_ranges = self.process_ranges.values().filter(|range| range.host_ns.is_none());
        self.left_open + (ranges.count() + process_ranges.count()) as u64
    }

    /// Resolves the tag of a call or a graph node.
    #[inline]
    pub(crate) fn owner(&mut self, tag: u64) -> Owner<Position> {
        let logs = self.first_log..;
        Owner::resolve(tag, &logs, |tag| match self.position_of_range(tag) {
            Some(position) => Some((position.clone(), false)),
            None => self.position_of_context(tag).or_else(|| self.held.get(&tag.0).cloned()),
        })
    }

    /// Replaces the stored positions of open calls, each with its thread. Further calls begin at
    /// `until_ns` or later.
    pub(crate) fn hold<'a>(
        &mut self,
        calls: impl Iterator<Item = (u32, &'a cupti::Call)>,
        until_ns: u64,
        sums: &Sums,
    ) {
        let mut calls_from_ns = until_ns;
        let (mut held, mut held_late) = (FxHashMap::default(), FxHashMap::default());
        for (thread_id, call) in calls {
            let tag = call.word;
            calls_from_ns = calls_from_ns.min(call.start_ns);
            if let Owner::Range { range, is_partial } = self.owner(tag) {
                let innermost = range.tag;
                let mut rows = range.clone().into_rows();
                held.insert(tag, (range, is_partial));
                self.leave_ended_out(innermost, (thread_id, call.start_ns), &mut rows, sums);
                if rows.late.is_some() {
                    held_late.insert((innermost, call.start_ns), rows);
                }
            }
        }
        (self.held, self.held_late) = (held, held_late);
        self.calls_from_ns = calls_from_ns;
    }

    #[inline]
    fn position_of_range(&self, tag: RangeTag) -> Option<&Position> {
        match self.ranges.get(&tag.0) {
            Some(range) => Some(&range.position),
            None => self.remembered.values.get(&tag.0),
        }
    }

    /// Returns the position of a context, and whether a range of it is unknown.
    #[cold]
    fn position_of_context(&mut self, tag: RangeTag) -> Option<(Position, bool)> {
        if let Some(resolved) = self.resolved.values.get(&tag.0)? {
            return Some(resolved.clone());
        }
        let members = self.contexts.members(tag, |tag| self.position_of_range(tag).is_some());
        let position_of = |tag: &RangeTag| self.position_of_range(*tag);
        let ranges: Vec<&Position> = members.ranges.iter().filter_map(position_of).collect();
        let mut position = Position::clone(ranges.first()?);
        let mut paths: Vec<PathId> = ranges.iter().map(|range| range.path).collect();
        for links in ranges.iter().filter_map(|range| range.links.as_ref()) {
            paths.extend_from_slice(links);
        }
        let links = links(position.path, paths);
        position.links = (!links.is_empty()).then(|| Arc::new(links));
        let resolved = (position, members.unknown != 0);
        self.resolved.values.insert(tag.0, Some(resolved.clone()));
        Some(resolved)
    }

    fn add_context(&mut self, tag: RangeTag, members: Vec<RangeTag>) {
        self.contexts.add(tag, members);
        if let Some(dropped) = self.resolved.insert(tag.0, None) {
            self.contexts.remove(RangeTag(dropped));
        }
    }

    /// Adds the ranges of a segment, and the ranges that were `open` at its end.
    pub(crate) fn begin(&mut self, segment: &Segment, open: &[ThreadSegment], sums: &mut Sums) {
        for thread in &segment.ranges {
            self.read_events(thread, sums);
        }
        let threads: Vec<&ThreadSegment> = segment.ranges.iter().chain(open).collect();
        for thread in &threads {
            self.read_details(thread);
        }
        let (mut new, mut begun): (Vec<NewRange>, Vec<u64>) = Default::default();
        for (index, thread) in threads.iter().enumerate() {
            for (slot, entry) in thread.entries() {
                let tag = tag(thread, slot);
                let end_ns = entry.end_ns().unwrap_or(u64::MAX);
                if let Some(range) = self.ranges.get_mut(&tag) {
                    range.end_ns = end_ns;
                    begun.push(tag);
                } else {
                    let parent = entry.parent().map(|slot| self::tag(thread, slot));
                    let (start_ns, label) = (entry.start_ns(), entry.label());
                    new.push(NewRange { start_ns, end_ns, tag, parent, thread: index, label });
                }
            }
        }
        begun.into_iter().for_each(|tag| self.cross(tag));
        // A range follows its outer range, also on another thread.
        order::sort_by_key(&mut new, |new| (new.start_ns, new.tag));
        for range in new {
            self.begin_range(&range, threads[range.thread], sums);
        }
    }

    fn begin_range(&mut self, new: &NewRange, thread: &ThreadSegment, sums: &mut Sums) {
        let parent = new.parent.or(self.handed.remove(&new.tag));
        let outer = parent.and_then(|parent| self.owner(parent).range());
        self.orphaned += u64::from(parent.is_some() && outer.is_none());
        let path = sums.begin(outer.as_ref().map(|outer| outer.path), thread, new.label);
        sums.tables.paths[path as usize].begun += 1;
        let (parent, mut activations, links) = match outer {
            Some(outer) => (Some(outer.tag), outer.activations, outer.links),
            None => (parent, None, None),
        };
        let waiting = parent.and_then(|parent| self.ranges.get_mut(&parent));
        let is_nested = waiting.as_ref().is_some_and(|outer| {
            outer.thread_id == thread.thread_id()
                && (new.start_ns < outer.end_ns || new.end_ns <= outer.end_ns)
        });
        let parent = waiting.map(|outer| outer.waits_for += 1).and(parent);
        let activation = self.activation_of.remove(&new.tag);
        let activation = activation.and_then(|of| self.activate(of, path, &mut activations, sums));
        let range = LiveRange {
            position: Position { tag: new.tag, path, activations, links },
            parent,
            is_nested,
            outer: parent,
            is_nested_in_outer: is_nested,
            thread_id: thread.thread_id(),
            start_ns: new.start_ns,
            end_ns: new.end_ns,
            activation,
            payload: self.payloads.remove(&Subject::Range(new.tag)),
            ..LiveRange::default()
        };
        self.ranges.insert(new.tag, range);
        self.cross(new.tag);
    }

    /// Records that a range ended after its parent, within which it began.
    fn cross(&mut self, tag: u64) {
        let Some(range) = self.ranges.get(&tag).filter(|range| range.is_nested) else { return };
        let end_ns = range.end_ns;
        if let Some(outer) = range.parent.and_then(|parent| self.ranges.get_mut(&parent))
            && outer.end_ns < end_ns
        {
            self.outlived += u64::from(!outer.is_outlived);
            outer.is_outlived = true;
        }
    }

    /// Determines the attribution of a call's work if an ancestor of its range ended before the
    /// call on that thread: such ancestors are excluded. Sets `rows` to the result.
    #[inline]
    pub(crate) fn leave_ended_out(
        &mut self,
        tag: u64,
        (thread_id, start_ns): (u32, u64),
        rows: &mut Rows,
        sums: &Sums,
    ) {
        if let Some(held) = self.held_late.get(&(tag, start_ns)) {
            *rows = held.clone();
        } else if self.outlived != 0 {
            self.find_late(tag, (thread_id, start_ns), rows, sums);
        }
    }

    /// Skips the ranges around a range that ended before all further calls on their thread.
    /// Otherwise, ranges that each begin within the previous one and outlive it would form an
    /// endless chain.
    fn skip_ended(&mut self, tag: u64) {
        let skipped = |ranges: &FxHashMap<u64, LiveRange>| {
            let range = ranges.get(&tag).filter(|range| range.is_nested_in_outer)?;
            let outer = ranges.get(&range.outer?)?;
            let has_ended = outer.end_ns <= self.calls_from_ns && outer.outer.is_some();
            has_ended.then_some((outer.outer, outer.is_nested_in_outer))
        };
        while let Some((outer, is_nested)) = skipped(&self.ranges)
            && let Some(range) = self.ranges.get_mut(&tag)
        {
            (range.outer, range.is_nested_in_outer, range.has_skipped) = (outer, is_nested, true);
        }
    }

    fn find_late(
        &mut self,
        tag: u64,
        (thread_id, start_ns): (u32, u64),
        rows: &mut Rows,
        sums: &Sums,
    ) {
        let Some(innermost) = self.ranges.get(&tag) else { return };
        let mut is_nested = innermost.thread_id == thread_id && innermost.end_ns > start_ns;
        if !is_nested {
            return;
        }
        let (mut late, mut has_ended, mut last) = (LateRows::default(), false, tag);
        late.ranges.push(tag);
        loop {
            if is_nested {
                self.skip_ended(last);
            }
            let Some(range) = self.ranges.get(&last) else { break };
            has_ended |= is_nested && range.has_skipped;
            // Above a handed-over context all ancestors are included.
            let around = if is_nested { range.outer } else { range.parent };
            is_nested &= range.is_nested_in_outer;
            let Some(outer) = around.and_then(|around| self.ranges.get(&around)) else { break };
            match is_nested && outer.end_ns <= start_ns {
                true => has_ended = true,
                false => late.ranges.push(outer.position.tag),
            }
            last = outer.position.tag;
        }
        let Some(outermost) = self.ranges.get(&last).filter(|_| has_ended) else { return };
        let of_range = |tag: &u64| self.ranges.get(tag);
        late.paths.extend(late.ranges.iter().filter_map(of_range).map(|range| range.position.path));
        // Ancestors that are done were handed over: all of them are included.
        let parent = |path: &PathId| sums.tables.paths[*path as usize].parent;
        late.paths.extend(std::iter::successors(parent(&outermost.position.path), parent));
        late.paths.sort_unstable();
        late.paths.dedup();
        let own = |range: &LiveRange| range.activation.map(|activation| activation.process_range);
        let all = outermost.position.activations.iter().flat_map(|all| all.iter());
        let outer = all.map(|activation| activation.process_range);
        // First the ranges around the outermost range, then around the ranges to which it is
        // attributed.
        let is_first = outermost.activation.is_some_and(|activation| !activation.is_inner);
        let first = own(outermost).filter(|_| is_first);
        late.process_ranges.extend(outer.filter(|of| Some(*of) != first));
        late.process_ranges.extend(late.ranges.iter().filter_map(of_range).filter_map(own));
        late.process_ranges.sort_unstable();
        late.process_ranges.dedup();
        let activations = rows.activations.iter().flat_map(|all| all.iter());
        let activations: Vec<Activation> = activations
            .filter(|activation| late.process_ranges.contains(&activation.process_range))
            .copied()
            .collect();
        rows.activations = (!activations.is_empty()).then(|| Arc::new(activations));
        rows.late = Some(Arc::new(late));
    }

    /// Reads the process ranges, marks and contexts of a thread.
    fn read_events(&mut self, thread: &ThreadSegment, sums: &mut Sums) {
        for (slot, words) in &thread.events {
            let of_event = tag(thread, *slot);
            match Event::from_words(*words) {
                Event::ProcessStart { label, at_ns, .. } => {
                    let begun = LiveProcessRange {
                        sums: sums.begin_process_range(thread, label),
                        thread_id: thread.thread_id(),
                        start_ns: at_ns,
                        payload: self.payloads.remove(&Subject::Event(of_event)),
                        ..LiveProcessRange::default()
                    };
                    self.process_ranges.insert(of_event, begun);
                }
                Event::ProcessEnd { of, at_ns } => self.process_ends.push((of.0, at_ns)),
                Event::Mark { label, .. } => {
                    self.payloads.remove(&Subject::Event(of_event));
                    sums.count_mark(thread, label);
                }
                Event::Detail { of: Subject::Event(slot), detail: Detail::Payload(payload) } => {
                    self.payloads.insert(Subject::Event(tag(thread, slot)), payload);
                }
                Event::Detail { of: Subject::Event(slot), detail: Detail::Member(member) } => {
                    self.members.entry(tag(thread, slot)).or_default().push(member);
                }
                Event::Joined { first, second } => {
                    let mut members = vec![first, second];
                    members.extend(self.members.remove(&of_event).unwrap_or_default());
                    if let Some(tag) = RangeTag::joined(thread.number(), *slot) {
                        self.add_context(tag, members);
                    }
                }
                _ => {}
            }
        }
    }

    /// Reads the details of ranges of a thread that have not begun.
    fn read_details(&mut self, thread: &ThreadSegment) {
        for (_, words) in &thread.events {
            let Event::Detail { of: Subject::Range(slot), detail } = Event::from_words(*words)
            else {
                continue;
            };
            let range = tag(thread, slot);
            if self.ranges.contains_key(&range) {
                continue;
            }
            match detail {
                Detail::Handed(from) => _ = self.handed.insert(range, from.0),
                Detail::Within(of) => _ = self.activation_of.insert(range, of.0),
                Detail::Payload(payload) => {
                    self.payloads.insert(Subject::Range(range), payload);
                }
                _ => {}
            }
        }
    }

    /// Begins an activation of a process range whose start was recorded. `activations` has the
    /// activations of the outer range.
    fn activate(
        &mut self,
        of: u64,
        path: PathId,
        activations: &mut Activations,
        sums: &mut Sums,
    ) -> Option<ActivationOf> {
        let process_range = self.process_ranges.get_mut(&of)?;
        process_range.waits_for += 1;
        process_range.path.get_or_insert(path);
        let row = process_range.sums;
        sums.tables.process_ranges[row as usize].activations += 1;
        let outer = activations.as_ref().map_or(&[][..], |outer| outer);
        let is_inner = outer.iter().any(|activation| activation.process_range == of);
        if !is_inner {
            let more = [Activation { process_range: of, sums: row }];
            *activations = Some(Arc::new([outer, &more].concat()));
        }
        Some(ActivationOf { process_range: of, is_inner })
    }

    /// Adds to the totals of a range, unless it is done, or of all ranges to which late work is
    /// attributed.
    #[inline]
    pub(crate) fn add(&mut self, tag: u64, rows: &Rows, add: impl Fn(&mut Totals)) {
        match &rows.late {
            None => {
                if let Some(range) = self.ranges.get_mut(&tag) {
                    add(&mut range.totals);
                }
            }
            Some(late) => self.each_of(
                late,
                |range| add(range.late.get_or_insert_default()),
                |process_range| add(&mut process_range.totals),
            ),
        }
    }

    /// Calls a function for each range to which late work is attributed, one for each process
    /// range.
    fn each_of(
        &mut self,
        late: &LateRows,
        mut range: impl FnMut(&mut LiveRange),
        mut process_range: impl FnMut(&mut LiveProcessRange),
    ) {
        for tag in &late.ranges {
            self.ranges.get_mut(tag).into_iter().for_each(&mut range);
        }
        for of in &late.process_ranges {
            self.process_ranges.get_mut(of).into_iter().for_each(&mut process_range);
        }
    }

    /// Marks a range that submitted work without records: in a session with windows, outside of
    /// them.
    pub(crate) fn submitted_outside(&mut self, tag: u64, rows: &Rows) {
        if let Some(late) = &rows.late {
            self.each_of(
                late,
                |range| range.is_late_partial = true,
                |process_range| process_range.is_partial = true,
            );
        } else if let Some(range) = self.ranges.get_mut(&tag) {
            range.is_partial = true;
        }
    }

    /// Adds one pending item to a range, or to all ranges to which late work is attributed. Returns
    /// its tag if it is not done.
    pub(crate) fn start_waiting(&mut self, tag: u64, rows: &Rows) -> Option<u64> {
        let range = self.ranges.get_mut(&tag)?;
        match &rows.late {
            None => range.waits_for += 1,
            Some(late) => self.each_of(late, |range| range.waits_for += 1, |_| {}),
        }
        Some(tag)
    }

    /// Removes one pending item from a range, or from all ranges to which late work is attributed.
    pub(crate) fn stop_waiting(&mut self, tag: u64, rows: &Rows, sums: &mut Sums) {
        match &rows.late {
            None => self.stop_one(tag, sums),
            Some(late) => late.ranges.iter().for_each(|tag| self.stop_one(*tag, sums)),
        }
    }

    fn stop_one(&mut self, tag: u64, sums: &mut Sums) {
        if let Some(range) = self.ranges.get_mut(&tag) {
            range.waits_for = range.waits_for.saturating_sub(1);
            self.finish(tag, sums);
        }
    }

    /// Ends the ranges whose ends are in a segment.
    pub(crate) fn end(&mut self, segment: &Segment, sums: &mut Sums) {
        for thread in &segment.ranges {
            for (slot, entry) in thread.entries() {
                self.end_range(tag(thread, slot), entry, sums);
            }
        }
        self.end_process_ranges(segment.until_ns, sums);
    }

    fn end_range(&mut self, tag: u64, entry: &RangeEntry, sums: &mut Sums) {
        let host_ns = entry.end_ns().map(|end_ns| end_ns.saturating_sub(entry.start_ns()));
        if let Some(range) = self.ranges.get_mut(&tag) {
            range.host_ns = Some(host_ns.unwrap_or_default());
            match host_ns {
                Some(host_ns) => {
                    sums.tables.paths[range.position.path as usize].host.add(host_ns);
                }
                // The thread of the range ended first.
                None => self.left_open += 1,
            }
            self.finish(tag, sums);
        }
    }

    /// Ends the process ranges that ended before `until_ns`.
    pub(crate) fn end_process_ranges(&mut self, until_ns: u64, sums: &mut Sums) {
        for (of, at_ns) in std::mem::take(&mut self.process_ends) {
            // Activations that ended before it are in this segment at the latest.
            if at_ns >= until_ns {
                self.process_ends.push((of, at_ns));
            } else if let Some(process_range) = self.process_ranges.get_mut(&of) {
                let host_ns = at_ns.saturating_sub(process_range.start_ns);
                process_range.host_ns = Some(host_ns);
                sums.tables.process_ranges[process_range.sums as usize].host.add(host_ns);
                self.finish_process_range(of, sums);
            }
        }
    }

    /// Removes a range that has ended and whose work is done, then its outer range if that is done,
    /// too.
    fn finish(&mut self, tag: u64, sums: &mut Sums) {
        let mut tag = tag;
        while let Some(range) = self.ranges.get(&tag)
            && range.waits_for == 0
            && let Some(host_ns) = range.host_ns
            && let Some(range) = self.ranges.remove(&tag)
        {
            let path = range.position.path;
            let mut totals = range.totals;
            range.late.iter().for_each(|late| totals += **late);
            self.outlived -= u64::from(range.is_outlived);
            if !range.is_partial && !range.is_late_partial {
                let gpu_ns = totals.gpu_time().as_nanos() as u64;
                sums.tables.paths[path as usize].gpu.add(gpu_ns);
            }
            match range.activation {
                Some(activation) => self.finish_activation(activation, &range, host_ns, sums),
                None => self.add_done(Done {
                    path,
                    thread_id: range.thread_id,
                    start_ns: range.start_ns,
                    host_ns,
                    busy_ns: host_ns,
                    activations: 1,
                    payload: range.payload,
                    totals,
                }),
            }
            self.remembered.insert(tag, range.position);
            let Some(parent) = range.parent else { return };
            let Some(outer) = self.ranges.get_mut(&parent) else { return };
            outer.totals += range.totals;
            outer.is_partial |= range.is_partial;
            outer.waits_for = outer.waits_for.saturating_sub(1);
            tag = parent;
        }
    }

    fn finish_activation(
        &mut self,
        activation: ActivationOf,
        range: &LiveRange,
        host_ns: u64,
        sums: &mut Sums,
    ) {
        let of = activation.process_range;
        if let Some(process_range) = self.process_ranges.get_mut(&of) {
            if !activation.is_inner {
                process_range.totals += range.totals;
                process_range.is_partial |= range.is_partial;
                process_range.busy_ns = process_range.busy_ns.saturating_add(host_ns);
                process_range.activations += 1;
            }
            process_range.waits_for = process_range.waits_for.saturating_sub(1);
            self.finish_process_range(of, sums);
        }
    }

    /// Removes a process range that has ended and whose activations are done.
    fn finish_process_range(&mut self, of: u64, sums: &mut Sums) {
        if let Some(range) = self.process_ranges.get(&of)
            && range.waits_for == 0
            && let Some(host_ns) = range.host_ns
            && let Some(range) = self.process_ranges.remove(&of)
        {
            if !range.is_partial {
                let gpu_ns = range.totals.gpu_time().as_nanos() as u64;
                sums.tables.process_ranges[range.sums as usize].gpu.add(gpu_ns);
            }
            let Some(path) = range.path else { return };
            self.add_done(Done {
                path,
                thread_id: range.thread_id,
                start_ns: range.start_ns,
                host_ns,
                busy_ns: range.busy_ns,
                activations: range.activations,
                payload: range.payload,
                totals: range.totals,
            });
        }
    }

    fn add_done(&mut self, done: Done) {
        if self.most_done == 0 {
            return;
        }
        if done.totals.launches == 0 && done.totals.gpu_operations() == 0 {
            return;
        }
        if self.done.len() >= self.most_done {
            self.done.pop_front();
            self.done_dropped += 1;
        }
        self.done.push_back(done);
    }
}

/// Returns the tag of a range of a thread.
fn tag(thread: &ThreadSegment, slot: u64) -> u64 {
    RangeTag::new(thread.number(), slot).map_or(0, |tag| tag.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_of_several_ranges_are_forgotten_as_ranges_are() {
        let mut ranges = LiveRanges::new(0);
        for tag in 1..=REMEMBERED as u64 + 10 {
            ranges.add_context(RangeTag(tag), vec![RangeTag(tag), RangeTag(tag + 1)]);
        }
        assert_eq!((ranges.contexts.len(), ranges.resolved.oldest.len()), (REMEMBERED, REMEMBERED));
        assert!(!ranges.contexts.contains(RangeTag(10)));
        assert!(ranges.contexts.contains(RangeTag(11)));
    }
}
