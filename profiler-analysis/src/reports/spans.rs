//! Ranges of threads and processes in one list, with numbers and parents.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use profiler_base::kernel_names::{KEPT, Level};
use profiler_base::{named_variants, serialize_as_text};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::{Ends, EndsWith, Reports, is_imported};
use profiler_core::tables::{Call, Interval, Label, RangeId, Tables, ThreadId};

named_variants! {
    /// The NVTX style of a range.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    pub(crate) enum Style with text {
        /// A range of a thread.
        PushPop = "PushPop",
        /// A range of the process.
        StartEnd = "StartEnd",
    }
}

/// The text of every label of the store: `domain:name`, or `:name` in the default domain.
pub(super) fn range_texts(store: &Tables) -> Vec<Arc<str>> {
    let text = |label: &Label| {
        let domain = label.domain.map_or("", |domain| store.names.get(domain));
        format!("{domain}:{}", store.names.get(label.name)).into()
    };
    store.labels.iter().map(text).collect()
}

/// A range of either style.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) style: Style,
    /// Index of [`Spans::names`].
    pub(super) label: u32,
    pub(super) thread: ThreadId,
    pub(super) time: Interval,
    /// nsys's number; without one, a number by start from 1.
    pub(super) number: u64,
    /// The index of the parent span.
    pub(super) parent: Option<u32>,
    pub(super) level: u32,
}

impl Span {
    /// The sort key of the spans around a call: nsys uses the span with the greatest.
    pub(super) fn order(&self) -> (u64, Reverse<u64>) {
        (self.time.start_ns, Reverse(self.number))
    }
}

/// All ranges: thread ranges by row, then process ranges that began and ended on one thread.
#[derive(Debug)]
pub(super) struct Spans {
    pub(super) all: Vec<Span>,
    /// By label.
    pub(super) names: Vec<Arc<str>>,
    /// Process ranges by thread.
    process: FxHashMap<ThreadId, Overlaps>,
    /// True if ranges contain work by time.
    is_imported: bool,
    /// True if some ranges end before ranges that began within them.
    has_crossings: bool,
}

/// Overlapping spans, searched by the time they contain in logarithmic time each.
#[derive(Debug, Default)]
struct Overlaps {
    /// By start.
    spans: Vec<(Interval, u32)>,
    /// A tree of the latest ends: node n has the children 2n and 2n + 1, the leaves are spans.
    last_end_ns: Vec<u64>,
}

impl Overlaps {
    fn finish(&mut self) {
        self.spans.sort_by_key(|(time, id)| (time.start_ns, *id));
        let leaves = self.spans.len().next_power_of_two();
        self.last_end_ns = vec![0; 2 * leaves];
        for (leaf, (time, _)) in self.last_end_ns[leaves..].iter_mut().zip(&self.spans) {
            *leaf = time.end_ns;
        }
        for node in (1..leaves).rev() {
            let below = [self.last_end_ns[2 * node], self.last_end_ns[2 * node + 1]];
            self.last_end_ns[node] = below[0].max(below[1]);
        }
    }

    /// The spans around a time, latest start first.
    fn enclosing(&self, time: Interval) -> impl Iterator<Item = (Interval, u32)> {
        let until = self.spans.partition_point(|(span, _)| span.start_ns <= time.start_ns);
        let leaves = self.last_end_ns.len() / 2;
        // A node with its first leaf and size; the next node is last.
        let mut nodes = vec![(1, 0, leaves)];
        std::iter::from_fn(move || {
            while let Some((node, first, count)) = nodes.pop() {
                if first >= until || self.last_end_ns[node] < time.end_ns {
                    continue;
                }
                if count == 1 {
                    return Some(self.spans[first]);
                }
                let half = count / 2;
                nodes.push((2 * node, first, half));
                nodes.push((2 * node + 1, first + half, half));
            }
            None
        })
    }
}

/// Values at positions, merged over any prefix in logarithmic time: a Fenwick tree.
pub(super) struct Prefixes<T>(Vec<Option<T>>);

impl<T: Copy> Prefixes<T> {
    pub(super) fn new(places: usize) -> Self {
        Self(vec![None; places])
    }

    /// Adds a value. `merge` must be the same in all calls, associative and commutative.
    pub(super) fn add(&mut self, place: usize, value: T, merge: impl Fn(T, T) -> T) {
        let mut at = place;
        while let Some(of) = self.0.get_mut(at) {
            *of = Some(of.map_or(value, |of| merge(of, value)));
            at |= at + 1;
        }
    }

    /// The merged values before a position.
    pub(super) fn up_to(&self, place: usize, merge: impl Fn(T, T) -> T) -> Option<T> {
        let (mut at, mut all) = (place, None);
        while let Some(last) = at.checked_sub(1) {
            all = match (all, self.0[last]) {
                (Some(all), Some(of)) => Some(merge(all, of)),
                (all, of) => all.or(of),
            };
            at &= last;
        }
        all
    }
}

impl Spans {
    /// Ranges of threads, or of both styles.
    pub(super) fn new(reports: Reports<'_>, with_process: bool) -> Self {
        let store = reports.store();
        let with = if with_process { EndsWith::Ranges } else { EndsWith::ThreadRanges };
        let ends = Ends::new(store, with);
        let known = &store.range_numbers;
        let mut all: Vec<Span> = store
            .ranges
            .iter()
            .enumerate()
            .map(|(row, range)| Span {
                style: Style::PushPop,
                label: range.label.0,
                thread: range.thread,
                time: ends.interval(range),
                number: known.get(row).copied().unwrap_or(0),
                parent: range.parent.get().map(|parent| parent.0),
                level: 0,
            })
            .collect();
        let mut process: FxHashMap<ThreadId, Overlaps> = FxHashMap::default();
        let ranges = if with_process { &store.process_ranges[..] } else { &[] };
        for (row, range) in (store.ranges.len()..).zip(ranges) {
            // nsys ignores ranges that end on another thread, and extends open ones.
            if range.end_thread.is_some_and(|end| end != range.thread) {
                continue;
            }
            let id = all.len() as u32;
            process.entry(range.thread).or_default().spans.push((ends.of_process(range), id));
            all.push(Span {
                style: Style::StartEnd,
                label: range.label.0,
                thread: range.thread,
                time: ends.of_process(range),
                number: known.get(row).copied().unwrap_or(0),
                parent: None,
                level: 0,
            });
        }
        process.values_mut().for_each(Overlaps::finish);
        let (names, is_imported) = (range_texts(store), is_imported(store));
        let has_crossings = reports.profile.range_tree().crossings().is_some();
        let mut spans = Self { all, names, process, is_imported, has_crossings };
        if known.is_empty() {
            spans.number();
        }
        if let Some(crossings) = reports.profile.range_tree().crossings() {
            for row in 0..store.ranges.len() as u32 {
                let end_ns = spans.all[row as usize].time.end_ns;
                let length = |range: RangeId| spans.all[range.at()].time.ns();
                let parent = crossings.shortest_around(RangeId(row), end_ns, length);
                spans.all[row as usize].parent = parent.map(|parent| parent.0);
            }
        }
        spans.nest(store);
        spans.set_levels();
        spans
    }

    /// Numbers spans by start if the source has no numbers.
    fn number(&mut self) {
        let mut order: Vec<u32> = (0..self.all.len() as u32).collect();
        order.sort_by_key(|&id| {
            let span = &self.all[id as usize];
            (span.time.start_ns, Reverse(span.time.end_ns), id)
        });
        for (number, id) in (1..).zip(order) {
            self.all[id as usize].number = number;
        }
    }

    /// Nests thread and process ranges: each in the shortest span of the other style around it.
    fn nest(&mut self, store: &Tables) {
        if self.process.is_empty() {
            return;
        }
        let slack = |outer: Interval, inner: Interval| outer.ns() - inner.ns();
        let count = store.ranges.len() as u32;
        // By thread; among simultaneous ranges, process ranges first, longest first.
        let mut order: Vec<u32> = (0..self.all.len() as u32)
            .filter(|id| self.process.contains_key(&self.all[*id as usize].thread))
            .collect();
        order.sort_by_key(|&id| {
            let Span { thread, time, .. } = self.all[id as usize];
            (thread, time.start_ns, id < count, Reverse(time.end_ns), id)
        });
        let mut parents = Vec::with_capacity(order.len());
        for of_thread in
            order.chunk_by(|a, b| self.all[*a as usize].thread == self.all[*b as usize].thread)
        {
            // The ends of process ranges, latest first.
            let is_process = |id: &u32| *id >= count;
            let mut ends: Vec<u64> = of_thread
                .iter()
                .filter(|id| is_process(id))
                .map(|&id| self.all[id as usize].time.end_ns)
                .collect();
            ends.sort_unstable_by_key(|end| Reverse(*end));
            let mut begun = Prefixes::new(ends.len());
            for &id in of_thread {
                let span = self.all[id as usize];
                let own = if is_process(&id) { self.innermost(store, &span) } else { span.parent };
                // A parent on another thread need not contain the range in time.
                let own = own.map(|own| {
                    (self.all[own as usize].time.ns().saturating_sub(span.time.ns()), own)
                });
                // The shortest; among equal ones the latest start, then the first span.
                let until = ends.partition_point(|&end| end >= span.time.end_ns);
                let tightest = begun.up_to(until, Ord::min);
                let best = match (own, tightest) {
                    (Some((own_slack, own)), Some((_, _, Reverse(other)))) => {
                        let other_slack = slack(self.all[other as usize].time, span.time);
                        Some(if other_slack < own_slack { other } else { own })
                    }
                    (own, tightest) => {
                        own.map(|(_, own)| own).or(tightest.map(|(.., Reverse(other))| other))
                    }
                };
                parents.push((id, best));
                if is_process(&id) {
                    let place = ends.partition_point(|&end| end > span.time.end_ns);
                    let key = (span.time.ns(), Reverse(span.time.start_ns), Reverse(id));
                    begun.add(place, key, Ord::min);
                }
            }
        }
        for (id, parent) in parents {
            self.all[id as usize].parent = parent;
        }
    }

    /// The innermost thread range around a process range; among ranges that cross, the shortest.
    fn innermost(&self, store: &Tables, span: &Span) -> Option<u32> {
        let of_thread = |range: &profiler_core::tables::Range| (range.thread, range.time.start_ns);
        let last = store
            .ranges
            .partition_point(|range| of_thread(range) <= (span.thread, span.time.start_ns));
        let last = RangeId(u32::try_from(last.checked_sub(1)?).ok()?);
        let is_around = |range: &RangeId| {
            let range = &store.ranges[range.at()];
            let is_longer = range.time.ns() > span.time.ns();
            range.thread == span.thread && range.time.end_ns >= span.time.end_ns && is_longer
        };
        let parent = |range: &RangeId| store.ranges[range.at()].parent.get();
        let mut around = std::iter::successors(Some(last), parent).filter(is_around);
        let innermost = match self.has_crossings {
            true => around.min_by_key(|range| store.ranges[range.at()].time.ns()),
            false => around.next(),
        };
        innermost.map(|range| range.0)
    }

    fn set_levels(&mut self) {
        let mut depths: Vec<Option<u32>> = vec![None; self.all.len()];
        let mut path = Vec::new();
        for id in 0..self.all.len() as u32 {
            let mut at = Some(id);
            while let Some(span) = at.filter(|&span| depths[span as usize].is_none()) {
                // Stops if parents form a cycle, which cannot happen.
                if path.len() > self.all.len() {
                    break;
                }
                path.push(span);
                at = self.all[span as usize].parent;
            }
            let mut depth = at.and_then(|at| depths[at as usize]).map_or(0, |depth| depth + 1);
            while let Some(span) = path.pop() {
                depths[span as usize] = Some(depth);
                depth += 1;
            }
        }
        for (span, depth) in self.all.iter_mut().zip(depths) {
            span.level = depth.unwrap_or(0);
        }
    }

    pub(super) fn name(&self, span: &Span) -> &Arc<str> {
        &self.names[span.label as usize]
    }

    pub(super) fn parent_number(&self, span: &Span) -> Option<u64> {
        span.parent.map(|parent| self.all[parent as usize].number)
    }

    /// The numbers and parents of all spans, for [`RangeStack`].
    pub(super) fn levels(&self) -> Arc<Levels> {
        Arc::new(Levels::new(&self.all))
    }

    /// The thread range of a call. In a capture, an open range that nsys ends before the call does
    /// not count.
    pub(super) fn range_around(&self, call: &Call) -> Option<RangeId> {
        let has_it = |range: &RangeId| self.all[range.at()].time.end_ns >= call.time.end_ns;
        call.range.get().filter(|range| !self.is_imported || has_it(range))
    }

    /// Process ranges by thread, sorted by start.
    pub(super) fn of_process(&self) -> impl Iterator<Item = (ThreadId, &[(Interval, u32)])> {
        self.process.iter().map(|(thread, process)| (*thread, &process.spans[..]))
    }

    /// The process ranges around a call, latest start first.
    pub(super) fn process_around(&self, call: &Call) -> impl Iterator<Item = u32> {
        let (process, time) = (self.process.get(&call.thread), call.time);
        process.into_iter().flat_map(move |process| process.enclosing(time).map(|(_, id)| id))
    }

    /// The span around a call with the latest start.
    pub(super) fn innermost_around(&self, store: &Tables, call: &Call) -> Option<&Span> {
        let own = self.range_around(call);
        let start = |range: RangeId| self.all[range.at()].time.start_ns;
        let parent = |range: &RangeId| store.ranges[range.at()].parent.get();
        // Among simultaneous ranges nsys uses the one with the smallest number.
        let ranges = std::iter::successors(own, parent)
            .take_while(|range| own.is_some_and(|own| start(*range) >= start(own)));
        let mut process = self.process_around(call).peekable();
        let last_ns = process.peek().map(|span| self.all[*span as usize].time.start_ns);
        let process =
            process.take_while(|span| Some(self.all[*span as usize].time.start_ns) == last_ns);
        let around = ranges.map(|range| range.0).chain(process);
        around.map(|span| &self.all[span as usize]).max_by_key(|span| span.order())
    }
}

/// A range of a [`RangeStack`].
#[derive(Debug)]
struct Numbered {
    number: u64,
    parent: Option<u32>,
    level: Level,
}

/// The numbers and parents of all spans, for [`RangeStack`].
#[derive(Debug)]
pub(super) struct Levels(Vec<Numbered>);

impl Levels {
    fn new(spans: &[Span]) -> Self {
        let outermost = |(id, span): (usize, &Span)| {
            let Span { number, parent, .. } = *span;
            Numbered { number, parent, level: Level::new(id, None) }
        };
        let mut all: Vec<Numbered> = spans.iter().enumerate().map(outermost).collect();
        let mut order: Vec<u32> = (0..all.len() as u32).collect();
        order.sort_by_key(|id| spans[*id as usize].level);
        for id in order.into_iter().map(|id| id as usize) {
            let around = all[id].parent.map(|parent| all[parent as usize].level);
            all[id].level = Level::new(id, around);
        }
        Self(all)
    }

    /// A span's own number and those around it, innermost first.
    fn ancestors(&self, id: u32) -> impl Iterator<Item = u64> {
        let parent = |id: &u32| self.0[*id as usize].parent;
        let ids = std::iter::successors(Some(id), parent).take(self.0.len());
        ids.map(|id| self.0[id as usize].number)
    }
}

/// Writes the levels of a range from the outermost on. The levels between the first and last `kept`
/// are replaced by their number. Otherwise the texts of all ranges of a recording would have
/// quadratic length.
fn write_levels(
    out: &mut impl fmt::Write,
    levels: usize,
    kept: usize,
    mut write: impl FnMut(&mut dyn fmt::Write, std::ops::Range<usize>) -> fmt::Result,
) -> fmt::Result {
    match levels.checked_sub(2 * kept) {
        None | Some(0) => write(out, 0..levels),
        Some(between) => {
            write(out, 0..kept)?;
            write!(out, "…({between} more)…")?;
            write(out, kept + between..levels)
        }
    }
}

/// The numbers of a range and of the ranges around it. Text and `serde` begin with the outermost:
/// `:1:2`. Text of more than 128 numbers has the first and last 64, and the number of those
/// between: `:1:2…(7 more)…:10:11`.
///
/// The stacks of a report share their data: separate texts would have the length of the nesting
/// depth.
#[derive(Clone)]
pub(crate) struct RangeStack {
    spans: Arc<Levels>,
    id: u32,
}

impl RangeStack {
    pub(super) fn new(spans: &Arc<Levels>, id: u32) -> Self {
        Self { spans: spans.clone(), id }
    }

    /// All numbers, its own first.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.spans.ancestors(self.id)
    }

    /// Writes the text with this many numbers at either end, at most [`KEPT`]. The cost does not
    /// grow with the depth.
    pub(super) fn write(&self, out: &mut impl fmt::Write, kept: usize) -> fmt::Result {
        let level = self.spans.0[self.id as usize].level;
        write_levels(out, level.depth() + 1, kept, |out, levels| {
            // Starts at the innermost of these levels and goes outwards.
            let (from, skipped) = match levels.end > level.depth() {
                true => (self.id, 0),
                // CAST: spans are counted in 32 bits.
                false => (level.head() as u32, KEPT.min(level.depth() + 1) - levels.end),
            };
            let around = self.spans.ancestors(from).skip(skipped).take(levels.len());
            let numbers: Vec<u64> = around.collect();
            numbers.iter().rev().try_for_each(|number| write!(out, ":{number}"))
        })
    }
}

impl fmt::Display for RangeStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, KEPT)
    }
}

impl fmt::Debug for RangeStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RangeStack({self})")
    }
}

impl PartialEq for RangeStack {
    fn eq(&self, other: &Self) -> bool {
        self.numbers().eq(other.numbers())
    }
}

serialize_as_text!(RangeStack);
serialize_as_text!(NameTree);

/// A range's name after two dashes for each range around it: `--:name`. Text of more than 128 pairs
/// of dashes states the number of further pairs between them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NameTree {
    pub(super) level: u32,
    pub(super) name: Arc<str>,
}

impl NameTree {
    /// Writes the text with this many pairs of dashes at either end.
    pub(super) fn write(&self, out: &mut impl fmt::Write, kept: usize) -> fmt::Result {
        write_levels(out, self.level as usize, kept, |out, mut levels| {
            levels.try_for_each(|_| out.write_str("--"))
        })?;
        out.write_str(&self.name)
    }
}

impl fmt::Display for NameTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, KEPT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_sums_before_each_index() {
        let mut rng = fastrand::Rng::with_seed(4);
        for places in 0..40 {
            let (mut prefixes, mut plain) = (Prefixes::new(places), vec![None; places]);
            for _ in 0..rng.usize(..2 * places + 1).min(places * 2) {
                let (place, value) = (rng.usize(..places), rng.u64(..100));
                prefixes.add(place, value, Ord::min);
                plain[place] = plain[place].into_iter().chain([value]).min();
                for until in 0..=places {
                    let expected = plain[..until].iter().flatten().min().copied();
                    assert_eq!(prefixes.up_to(until, Ord::min), expected);
                }
            }
        }
    }

    #[test]
    fn intervals_around_a_time_are_found_among_many() {
        let mut rng = fastrand::Rng::with_seed(3);
        for count in 0..40 {
            let mut overlaps = Overlaps::default();
            let span = |rng: &mut fastrand::Rng| {
                let start_ns = rng.u64(..50);
                Interval { start_ns, end_ns: start_ns + rng.u64(..30) }
            };
            overlaps.spans = (0..count).map(|id| (span(&mut rng), id)).collect();
            overlaps.finish();
            for _ in 0..50 {
                let time = span(&mut rng);
                let is_around = |(span, _): &&(Interval, u32)| {
                    span.start_ns <= time.start_ns && span.end_ns >= time.end_ns
                };
                let expected: Vec<_> = overlaps.spans.iter().rev().filter(is_around).collect();
                let found: Vec<_> = overlaps.enclosing(time).collect();
                assert_eq!(found.iter().collect::<Vec<_>>(), expected);
            }
        }
    }

    /// The stack and the tree of the innermost of so many nested spans, numbered from 1.
    fn innermost(depth: u32) -> (RangeStack, NameTree) {
        let level = |id: u32| Span {
            style: Style::PushPop,
            label: 0,
            thread: ThreadId(0),
            time: Interval::default(),
            number: u64::from(id) + 1,
            parent: id.checked_sub(1),
            level: id,
        };
        // Parents may follow their children.
        let mut spans: Vec<Span> = (0..depth).rev().map(level).collect();
        spans
            .iter_mut()
            .for_each(|span| span.parent = span.parent.map(|parent| depth - 1 - parent));
        let stack = RangeStack::new(&Arc::new(Levels::new(&spans)), 0);
        (stack, NameTree { level: depth - 1, name: ":name".into() })
    }

    #[test]
    fn texts_of_deep_ranges_lose_their_middle() {
        let numbers = |numbers: std::ops::RangeInclusive<u32>| -> String {
            numbers.map(|number| format!(":{number}")).collect()
        };
        for depth in [1, 2, 64, 65, 127, 128] {
            let (stack, tree) = innermost(depth);
            assert_eq!(stack.to_string(), numbers(1..=depth));
            assert_eq!(tree.to_string(), format!("{}:name", "--".repeat(depth as usize - 1)));
        }
        for depth in [129, 130, 192, 193, 50_000] {
            let (stack, tree) = innermost(depth);
            let ends = (numbers(1..=64), numbers(depth - 63..=depth));
            let expected = format!("{}…({} more)…{}", ends.0, depth - 128, ends.1);
            assert_eq!(stack.to_string(), expected, "{depth}");
            assert_eq!(stack.numbers().count(), depth as usize, "all are in the value");
            let between = depth - 1 - 128;
            let dashes = "--".repeat(64);
            let expected = match between {
                0 => format!("{dashes}{dashes}:name"),
                _ => format!("{dashes}…({between} more)…{dashes}:name"),
            };
            assert_eq!(tree.to_string(), expected, "{depth}");
        }
        let (stack, tree) = innermost(40);
        let (mut short, mut dashes) = (String::new(), String::new());
        stack.write(&mut short, 2).and_then(|()| tree.write(&mut dashes, 1)).unwrap();
        assert_eq!((&*short, &*dashes), (":1:2…(36 more)…:39:40", "--…(37 more)…--:name"));
    }
}
