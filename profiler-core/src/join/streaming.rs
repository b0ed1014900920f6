//! A session that is followed while it goes on: every range is summed up when it has ended and its work is done, and then
//! forgotten. What is kept grows with the number of different ranges and kernels up to a limit, not with time: what is
//! new beyond the limit is summed up as `(other)`.

use std::collections::VecDeque;
use std::sync::Arc;

use cupti::{CallClass, CopyKind, GraphEvent, GraphEventKind, Record};
use nvtx::Payload;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::distribution::Distribution;
use crate::base::kernel_names::Level;
use crate::base::totals::Totals;
use crate::collect::collection::Sink;
use crate::join::health::{ExpectedRecords, Health, is_failure};
use crate::join::tables::{NameId, Names};
use crate::record::id_window::{IdWindow, is_up_to};
use crate::record::recording::Recording;
use crate::record::recording::ranges::{self, Detail, Event, RangeEntry, RangeWord, Subject};
use crate::record::recording::segment::{OpenRanges, Segment, ThreadRangesPart};

/// Ranges that were forgotten and whose path is still known, for contexts of theirs that are attached later.
const REMEMBERED: usize = 1 << 18;
/// How long a call is kept whose records do not come, and a record whose call does not, in nanoseconds. Where CUPTI has not
/// answered since the call, which it may not do under load, [`UNANSWERED`] times as long.
const LONGEST_WAIT_NS: u64 = 60_000_000_000;
const UNANSWERED: u64 = 3;
/// How long after its return a call may get a record that CUPTI had not begun by then, in nanoseconds.
const GRACE_NS: u64 = 1_000_000_000;
/// How often the calls are looked through, in nanoseconds.
const SETTLE_EVERY_NS: u64 = 100_000_000;
/// Labels of threads that are kept at hand.
const LABELS: usize = 1 << 16;
/// Records that wait for their calls. Beyond them the oldest are counted as records without a call.
const MOST_EARLY: usize = 1 << 18;
/// Rows that are kept if nothing else is asked for.
pub(crate) const ROWS: usize = 10_000;
/// The name of all rows beyond the limit.
const OTHER: &str = "(other)";
/// Row of [`StreamingJoin::nodes`].
type Node = u32;

/// All ranges of one path.
#[derive(Debug, Clone)]
pub(crate) struct PathSums {
    pub(crate) name: NameId,
    /// `None` is the default one.
    pub(crate) domain: Option<NameId>,
    pub(crate) parent: Option<u32>,
    pub(crate) level: Level,
    /// It is `(other)`, or lies in one.
    is_in_other: bool,
    /// Instances that have begun.
    pub(crate) begun: u64,
    /// Of each instance that has ended.
    pub(crate) host: Distribution,
    /// The GPU time of each instance whose work is done, with ranges within it.
    pub(crate) gpu: Distribution,
    pub(crate) own: OwnSums,
    /// What graph launches made of the nodes that were made in them.
    pub(crate) replayed: Totals,
    /// What was asked for in them and within together with others, and counts for these.
    pub(crate) shared: Totals,
}

/// What was asked for in ranges directly.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnSums {
    pub(crate) totals: Totals,
    pub(crate) kernels: FxHashMap<NameId, Distribution>,
    pub(crate) copies: FxHashMap<CopyKind, (Distribution, u64)>,
}

/// All ranges of the process of one name.
#[derive(Debug, Clone)]
pub(crate) struct ProcessSums {
    pub(crate) name: NameId,
    /// `None` is the default one.
    pub(crate) domain: Option<NameId>,
    /// Instances that have begun.
    pub(crate) begun: u64,
    /// Ranges of threads that are stays in them, and have begun.
    pub(crate) stays: u64,
    /// Of each instance that has ended.
    pub(crate) host: Distribution,
    /// The GPU time of each instance that has ended and whose work is done.
    pub(crate) gpu: Distribution,
    /// What was asked for in their stays.
    pub(crate) totals: Totals,
}

/// All marks of one name.
#[derive(Debug, Clone)]
pub(crate) struct MarkSums {
    pub(crate) name: NameId,
    /// `None` is the default one.
    pub(crate) domain: Option<NameId>,
    pub(crate) count: u64,
}

/// A range of the process that a range of a thread is a stay in, or lies in a stay in: its word, and the row of its sums.
#[derive(Debug, Clone, Copy)]
struct Whole {
    process_range: u64,
    sums: u32,
}

/// All of them, each once; most ranges have none.
type Wholes = Option<Arc<Vec<Whole>>>;

/// The paths of other ranges that work belongs to than the one that it counts for; most has none.
type Shares = Option<Arc<Vec<Node>>>;

/// Where a word says that work belongs.
#[derive(Debug, Clone)]
struct Place {
    /// The word of the range that it counts for.
    word: u64,
    node: Node,
    wholes: Wholes,
    shares: Shares,
    /// True if there were others, which are not known.
    is_cut: bool,
}

/// A context of several ranges.
#[derive(Debug)]
struct Joined {
    members: Vec<u64>,
    /// As it was found when it was asked for first.
    place: Option<Place>,
}

/// A range that has ended and asked for work of the GPU, all of which is done. Stays in a range of the process are one of
/// these together, where its start was seen.
#[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "a layer asks for it"))]
#[derive(Debug, Clone)]
pub(crate) struct Done {
    /// The path; of stays that of the first one.
    pub(crate) node: u32,
    /// Where it began.
    pub(crate) thread_id: u32,
    pub(crate) start_ns: u64,
    pub(crate) host_ns: u64,
    /// The host time of its stays, or its own.
    pub(crate) busy_ns: u64,
    /// Ranges of threads that it is made of.
    pub(crate) stays: u64,
    pub(crate) payload: Option<Payload>,
    /// With ranges within it.
    pub(crate) totals: Totals,
}

/// A range that is open, or whose work is not done.
#[derive(Debug)]
struct Live {
    node: Node,
    parent: Option<u64>,
    thread_id: u32,
    start_ns: u64,
    /// Its own, and those of ranges within it that are done.
    totals: Totals,
    /// Calls in it whose records are to come, and ranges in it that are not done.
    waits_for: u32,
    host_ns: Option<u64>,
    within: Option<Within>,
    wholes: Wholes,
    shares: Shares,
    payload: Option<Payload>,
}

/// A range that was not seen before.
#[derive(Debug)]
struct New {
    start_ns: u64,
    of: u64,
    parent: Option<u64>,
    /// Its thread's place in the part, and its label there.
    thread: usize,
    label: u64,
}

/// What a range is a stay in.
#[derive(Debug, Clone, Copy)]
struct Within {
    process_range: u64,
    /// It lies in another stay, in whose sum it is already.
    is_inner: bool,
}

/// A range of the process that is open, or has stays that are not done.
#[derive(Debug)]
struct LiveProcessRange {
    /// Row of [`StreamingJoin::process_sums`].
    sums: u32,
    /// The path of the first stay.
    node: Option<Node>,
    thread_id: u32,
    start_ns: u64,
    busy_ns: u64,
    stays: u64,
    totals: Totals,
    /// Stays that are not done.
    waits_for: u32,
    host_ns: Option<u64>,
    payload: Option<Payload>,
}

/// A call whose records are to come.
#[derive(Debug)]
struct Pending {
    owed: ExpectedRecords,
    /// The range that waits for it.
    waiting: Option<u64>,
    node: Option<Node>,
    wholes: Wholes,
    shares: Shares,
    /// False in a pause and before the start: its records are left out.
    counts: bool,
    found: bool,
    /// One call may give more than one record.
    has_many: bool,
    /// When it returned, or when its last record came.
    last_ns: u64,
}

/// The calls of a part that were not added yet, by thread, each in the order of their ids but for those that were long
/// under way.
struct Calls<'a> {
    threads: Vec<&'a [cupti::Call]>,
    /// The highest id that was asked for.
    until: Option<u32>,
}

impl<'a> Calls<'a> {
    fn of(part: &'a Segment) -> Self {
        let threads = part.calls.iter().map(|thread| thread.calls.as_slice()).collect();
        Self { threads, until: None }
    }

    /// Gives those up to an id. Ids may wrap.
    #[inline]
    fn until(&mut self, id: u32, mut visit: impl FnMut(&cupti::Call)) {
        if self.until.is_some_and(|until| is_up_to(id, until)) {
            return;
        }
        self.until = Some(id);
        for calls in &mut self.threads {
            while let Some((call, rest)) = calls.split_first()
                && is_up_to(call.correlation_id, id)
            {
                visit(call);
                *calls = rest;
            }
        }
    }

    fn rest(self) -> impl Iterator<Item = &'a cupti::Call> {
        self.threads.into_iter().flatten()
    }
}

/// A record whose call is not known yet.
#[derive(Debug)]
struct Early {
    id: u32,
    since_ns: u64,
    what: Work,
}

#[derive(Debug, Clone, Copy)]
enum Work {
    Operation { what: What, ns: Option<u64>, is_node: bool, captured: Option<Node> },
    Synchronization,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Kernel(NameId),
    Copy(CopyKind, u64),
    Memset(u64),
    Graph,
}

impl What {
    #[inline]
    fn add_to(self, totals: &mut Totals, ns: u64) {
        match self {
            Self::Kernel(_) => totals.add_kernel(ns),
            Self::Copy(_, bytes) => totals.add_copy(ns, bytes),
            Self::Memset(bytes) => totals.add_memset(ns, bytes),
            Self::Graph => totals.add_graph(ns),
        }
    }
}

/// The state of what is followed.
#[derive(Debug, Default)]
pub(crate) struct StreamingJoin {
    pub(crate) names: Names,
    /// The name `(other)`.
    other: NameId,
    /// Paths, kernels of a path, ranges of the process, and marks: as many of each.
    most_rows: usize,
    /// Kernels of all paths.
    kernel_rows: usize,
    /// One comes after the one around it.
    pub(crate) nodes: Vec<PathSums>,
    pub(crate) outside: OwnSums,
    pub(crate) process_sums: Vec<ProcessSums>,
    pub(crate) marks: Vec<MarkSums>,
    pub(crate) health: Health,
    by_path: FxHashMap<(Option<Node>, Option<NameId>, NameId), Node>,
    process_sums_by_name: FxHashMap<(NameId, Option<NameId>), u32>,
    marks_by_name: FxHashMap<(NameId, Option<NameId>), u32>,
    live: FxHashMap<u64, Live>,
    /// The range of another thread that a range lies in: said before it begins, perhaps in an earlier part.
    handed: FxHashMap<u64, u64>,
    remembered: FxHashMap<u64, (Node, Wholes, Shares)>,
    oldest: VecDeque<u64>,
    /// Contexts of several ranges, as many as ranges are remembered, by word.
    joined: FxHashMap<u64, Joined>,
    oldest_joined: VecDeque<u64>,
    /// What is known of a context of several ranges that comes in a later part: what is more than two.
    members: FxHashMap<u64, Vec<u64>>,
    /// For each path, the round in which it was marked last; and the present round.
    rounds: (Vec<u64>, u64),
    calls: IdWindow<Pending>,
    /// When the calls were looked through last for those that get no more records.
    settled_at_ns: u64,
    /// Since when one of them waits then, if one does.
    waits_since_ns: Option<u64>,
    /// What is known of a function, by its id.
    functions: Vec<Option<(CallClass, bool)>>,
    /// The kernel that came last, and its name.
    last_kernel: Option<(u64, NameId)>,
    early: VecDeque<Early>,
    /// By thread and label: name and domain.
    labels: FxHashMap<(u64, u64), (NameId, Option<NameId>)>,
    kernel_names: FxHashMap<u64, NameId>,
    /// Where the nodes of CUDA graphs that there are were made, or what they are copies of.
    captures: FxHashMap<u64, Node>,
    /// Records up to this id that have no call are of calls before the session.
    before_id: u32,
    /// Ranges that were open when their thread ended.
    left_open: u64,
    /// The number of the first log of ranges of the recording.
    first_log: u64,
    /// No call of the collection came before the session.
    has_all_calls: bool,
    /// `before_id` is not going to change.
    before_is_final: bool,
    /// When the session began.
    #[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "a layer asks for it"))]
    pub(crate) start_ns: u64,
    /// How many ranges that are done are kept until somebody asks for them; 0 for none ever.
    most_done: usize,
    done: VecDeque<Done>,
    /// Of those that were done and that nobody has asked for: how many there was no place for.
    #[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "a layer asks for it"))]
    pub(crate) done_let_go: u64,
    /// Ranges of the process that are open, or have stays that are not done.
    process_ranges: FxHashMap<u64, LiveProcessRange>,
    /// What a range is a stay in: said before it begins, perhaps in an earlier part.
    within: FxHashMap<u64, u64>,
    /// Payloads of what has not begun yet, by its word.
    payloads: FxHashMap<Subject, Payload>,
    /// Ends of ranges of the process that are later than the parts so far, of which more stays may come.
    process_ends: Vec<(u64, u64)>,
}

impl Sink for StreamingJoin {
    fn begin(&mut self, first_log: u64, before_id: u32, start_ns: u64) {
        (self.first_log, self.before_id, self.start_ns) = (first_log, before_id, start_ns);
        self.has_all_calls = before_id == 0;
        self.before_is_final = before_id != 0;
    }

    fn begins_with(&mut self, first_id: u32, is_final: bool) {
        if self.has_all_calls {
            self.before_id = first_id.wrapping_sub(1);
            self.before_is_final = is_final;
        }
    }

    fn add(&mut self, part: &Segment, open: &OpenRanges, windows_ns: &[(u64, u64)]) {
        self.health.add_losses(&part.losses);
        self.health.set_range_losses(&ranges::losses());
        self.begin_ranges(part, open);
        self.add_graphs(part);
        let mut calls = Calls::of(part);
        self.add_records(part, &mut calls, windows_ns);
        for call in calls.rest() {
            self.add_call(call, cupti::clock::is_within(windows_ns, call.start_ns));
        }
        self.retry_early(part.until_ns);
        self.settle(part);
        for thread in part.ranges() {
            for (slot, entry) in thread.entries() {
                self.end_range(word(&thread, slot), entry);
            }
        }
        self.end_process_ranges(part.until_ns);
        self.health.pending_calls = self.calls.len() as u64;
    }

    fn waits_since_ns(&self) -> Option<u64> {
        self.waits_since_ns
    }
}

impl StreamingJoin {
    /// With a place for so many ranges that are done, if they are to be asked for one by one; and with this many rows at
    /// most of each kind.
    pub(crate) fn new(most_done: usize, most_rows: usize) -> Self {
        let mut names = Names::default();
        let other = names.add_apart(OTHER);
        Self { names, other, most_rows, most_done, ..Self::default() }
    }

    /// Whether a record without a call is of one before the session.
    fn is_before(&self, id: u32) -> bool {
        self.before_id != 0 && is_up_to(id, self.before_id)
    }

    /// The ranges that were done since this was asked last.
    #[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "a layer asks for it"))]
    pub(crate) fn take_done(&mut self) -> VecDeque<Done> {
        std::mem::take(&mut self.done)
    }

    /// The path of a node, cut as those of a profile are.
    #[cfg(feature = "tracing")]
    pub(crate) fn path(&self, row: usize) -> String {
        let parent = |row: &usize| self.nodes[*row].parent.map(|parent| parent as usize);
        self.nodes[row].level.path(row, |row| {
            std::iter::successors(Some(row), parent).map(|row| self.names.get(self.nodes[row].name))
        })
    }

    /// Ranges that are open, and ranges whose work is not done.
    pub(crate) fn live(&self) -> usize {
        self.live.len() + self.process_ranges.len()
    }

    /// Finds the path of every range that is new.
    fn begin_ranges(&mut self, part: &Segment, open: &OpenRanges) {
        let mut new: Vec<New> = Vec::new();
        self.begin_process_ranges(part, open);
        let threads: Vec<ThreadRangesPart<'_>> = part.ranges().chain(open.iter()).collect();
        for (place, thread) in threads.iter().enumerate() {
            for (_, words) in thread.events {
                if let Event::Detail { of: Subject::Range(slot), detail: Detail::Handed(from) } =
                    Event::from_words(*words)
                {
                    let of = word(thread, slot);
                    if !self.live.contains_key(&of) {
                        self.handed.insert(of, from.0);
                    }
                }
            }
            for (slot, entry) in thread.entries() {
                let of = word(thread, slot);
                if self.live.contains_key(&of) {
                    continue;
                }
                let parent = entry.parent().map(|slot| word(thread, slot));
                let (start_ns, label) = (entry.start_ns(), entry.label());
                new.push(New { start_ns, of, parent, thread: place, label });
            }
        }
        // One comes after the one around it, whatever thread that is of.
        new.sort_unstable_by_key(|new| (new.start_ns, new.of));
        for New { start_ns, of, parent, thread, label } in new {
            let (thread, thread_id) = (&threads[thread], threads[thread].thread_id());
            let parent = parent.or(self.handed.remove(&of));
            let (parent, parent_node, mut wholes, shares) =
                match parent.and_then(|parent| self.place_of(parent)) {
                    Some(Place { word, node, wholes, shares, .. }) => {
                        (Some(word), Some(node), wholes, shares)
                    }
                    None => {
                        self.health.orphaned_ranges += u64::from(parent.is_some());
                        (parent, None, None, None)
                    }
                };
            let node = self.node(parent_node, thread, label);
            self.nodes[node as usize].begun += 1;
            let waiting = parent.and_then(|parent| self.live.get_mut(&parent));
            let parent = waiting.map(|live| live.waits_for += 1).and(parent);
            let within = self.within.remove(&of).and_then(|of| self.stay(of, node, &mut wholes));
            let (totals, waits_for, host_ns) = (Totals::default(), 0, None);
            let payload = self.payloads.remove(&Subject::Range(of));
            self.live.insert(
                of,
                Live {
                    node,
                    parent,
                    thread_id,
                    start_ns,
                    totals,
                    waits_for,
                    host_ns,
                    within,
                    wholes,
                    shares,
                    payload,
                },
            );
        }
    }

    /// Finds the ranges of the process that are new and that have ended, and what is said of them and of ranges.
    fn begin_process_ranges(&mut self, part: &Segment, open: &OpenRanges) {
        for thread in part.ranges() {
            for (slot, words) in thread.events {
                let of_event = word(&thread, *slot);
                match Event::from_words(*words) {
                    Event::ProcessStart { label, at_ns, .. } => {
                        let begun = LiveProcessRange {
                            sums: self.begin_process_range(&thread, label),
                            node: None,
                            thread_id: thread.thread_id(),
                            start_ns: at_ns,
                            busy_ns: 0,
                            stays: 0,
                            totals: Totals::default(),
                            waits_for: 0,
                            host_ns: None,
                            payload: self.payloads.remove(&Subject::Event(of_event)),
                        };
                        self.process_ranges.insert(of_event, begun);
                    }
                    Event::ProcessEnd { of, at_ns } => self.process_ends.push((of.0, at_ns)),
                    Event::Mark { label, .. } => {
                        self.payloads.remove(&Subject::Event(of_event));
                        self.count_mark(&thread, label);
                    }
                    Event::Detail {
                        of: Subject::Event(slot),
                        detail: Detail::Payload(payload),
                    } => {
                        let of = Subject::Event(word(&thread, slot));
                        self.payloads.insert(of, payload);
                    }
                    Event::Detail { of: Subject::Event(slot), detail: Detail::Member(member) } => {
                        let of = word(&thread, slot);
                        self.members.entry(of).or_default().push(member.0);
                    }
                    Event::Joined { first, second } => {
                        let mut members = vec![first.0, second.0];
                        members.extend(self.members.remove(&of_event).unwrap_or_default());
                        if let Some(word) = RangeWord::joined(thread.number, *slot) {
                            self.add_joined(word.0, members);
                        }
                    }
                    _ => {}
                }
            }
        }
        for thread in part.ranges().chain(open.iter()) {
            for (_, words) in thread.events {
                let Event::Detail { of: Subject::Range(slot), detail } = Event::from_words(*words)
                else {
                    continue;
                };
                let range = word(&thread, slot);
                match detail {
                    _ if self.live.contains_key(&range) => {}
                    Detail::Within(of) => _ = self.within.insert(range, of.0),
                    Detail::Payload(payload) => {
                        self.payloads.insert(Subject::Range(range), payload);
                    }
                    _ => {}
                }
            }
        }
    }

    fn begin_process_range(&mut self, thread: &ThreadRangesPart<'_>, label: u32) -> u32 {
        let is_full = self.process_sums.len() >= self.most_rows;
        let mut key = self.label(thread, label.into(), is_full);
        if is_full && !self.process_sums_by_name.contains_key(&key) {
            key = (self.other, None);
        }
        self.health.summed_as_other += u64::from(key.0 == self.other);
        let (name, domain) = key;
        let row = *self.process_sums_by_name.entry(key).or_insert_with(|| {
            self.process_sums.push(ProcessSums {
                name,
                domain,
                begun: 0,
                stays: 0,
                host: Distribution::default(),
                gpu: Distribution::default(),
                totals: Totals::default(),
            });
            self.process_sums.len() as u32 - 1
        });
        self.process_sums[row as usize].begun += 1;
        row
    }

    fn count_mark(&mut self, thread: &ThreadRangesPart<'_>, label: u32) {
        let is_full = self.marks.len() >= self.most_rows;
        let mut key = self.label(thread, label.into(), is_full);
        if is_full && !self.marks_by_name.contains_key(&key) {
            key = (self.other, None);
        }
        self.health.summed_as_other += u64::from(key.0 == self.other);
        let (name, domain) = key;
        let row = *self.marks_by_name.entry(key).or_insert_with(|| {
            self.marks.push(MarkSums { name, domain, count: 0 });
            self.marks.len() as u32 - 1
        });
        self.marks[row as usize].count += 1;
    }

    /// A stay begins, in a range of the process whose start was seen. `wholes` are those that the range around it has.
    fn stay(&mut self, of: u64, node: Node, wholes: &mut Wholes) -> Option<Within> {
        let process_range = self.process_ranges.get_mut(&of)?;
        process_range.waits_for += 1;
        process_range.node.get_or_insert(node);
        let sums = process_range.sums;
        self.process_sums[sums as usize].stays += 1;
        let around = wholes.as_ref().map_or(&[][..], |wholes| wholes);
        let is_inner = around.iter().any(|whole| whole.process_range == of);
        if !is_inner {
            let more = [Whole { process_range: of, sums }];
            *wholes = Some(Arc::new([around, &more].concat()));
        }
        Some(Within { process_range: of, is_inner })
    }

    fn end_process_ranges(&mut self, until_ns: u64) {
        for (of, at_ns) in std::mem::take(&mut self.process_ends) {
            // A stay that ended before it is in this part at the latest.
            if at_ns >= until_ns {
                self.process_ends.push((of, at_ns));
            } else if let Some(process_range) = self.process_ranges.get_mut(&of) {
                let host_ns = at_ns.saturating_sub(process_range.start_ns);
                process_range.host_ns = Some(host_ns);
                self.process_sums[process_range.sums as usize].host.add(host_ns);
                self.finish_process_range(of);
            }
        }
    }

    /// Forgets a range of the process if it has ended and its stays are done.
    fn finish_process_range(&mut self, of: u64) {
        if let Some(live) = self.process_ranges.get(&of)
            && live.waits_for == 0
            && let Some(host_ns) = live.host_ns
            && let Some(live) = self.process_ranges.remove(&of)
        {
            let gpu_ns = live.totals.gpu_time().as_nanos() as u64;
            self.process_sums[live.sums as usize].gpu.add(gpu_ns);
            let Some(node) = live.node else { return };
            let LiveProcessRange { thread_id, start_ns, busy_ns, stays, payload, totals, .. } =
                live;
            self.add_done(Done {
                node,
                thread_id,
                start_ns,
                host_ns,
                busy_ns,
                stays,
                payload,
                totals,
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
            self.done_let_go += 1;
        }
        self.done.push_back(done);
    }

    /// The name and the domain of a label. Where the rows that they are for are full, a name of no row is `(other)`: so
    /// there are no more names than rows.
    fn label(
        &mut self,
        thread: &ThreadRangesPart<'_>,
        label: u64,
        is_full: bool,
    ) -> (NameId, Option<NameId>) {
        if let Some(known) = self.labels.get(&(thread.number, label)) {
            return *known;
        }
        let found = thread.with_texts(|texts| {
            let text = |index: u32| texts.texts.get(index as usize).map_or("", String::as_str);
            let label = texts.labels.get(label as usize);
            let name = label.map_or("(unknown name)", |label| text(label.name));
            let domain = label.and_then(|label| label.domain).map(text);
            if !is_full {
                return Some((self.names.intern(name), domain.map(|text| self.names.intern(text))));
            }
            let domain = match domain {
                Some(text) => Some(self.names.find(text)?),
                None => None,
            };
            Some((self.names.find(name)?, domain))
        });
        let Some(found) = found else { return (self.other, None) };
        // Names that never come again fill it with labels that nobody asks for any more.
        if self.labels.len() >= LABELS {
            self.labels.clear();
        }
        self.labels.insert((thread.number, label), found);
        found
    }

    /// The path of a range. Beyond the limit of rows it is the `(other)` of the path around it; in an `(other)` there may be
    /// as many rows again, and beyond these all that lies in it is the `(other)` itself.
    fn node(&mut self, parent: Option<Node>, thread: &ThreadRangesPart<'_>, label: u64) -> Node {
        let is_in_other = parent.is_some_and(|parent| self.nodes[parent as usize].is_in_other);
        let most = if is_in_other { self.most_rows.saturating_mul(2) } else { self.most_rows };
        let is_full = self.nodes.len() >= most;
        let (name, domain) = self.label(thread, label, is_full);
        match self.by_path.get(&(parent, domain, name)) {
            Some(&known) if name != self.other => return known,
            None if !is_full => return self.add_node(parent, name, domain),
            _ => {}
        }
        self.health.summed_as_other += 1;
        match (parent, self.by_path.get(&(parent, None, self.other))) {
            (Some(parent), _) if is_in_other => parent,
            (_, Some(&known)) => known,
            _ => self.add_node(parent, self.other, None),
        }
    }

    fn add_node(&mut self, parent: Option<Node>, name: NameId, domain: Option<NameId>) -> Node {
        let node = self.nodes.len() as Node;
        let around = parent.map(|parent| &self.nodes[parent as usize]);
        self.nodes.push(PathSums {
            name,
            domain,
            parent,
            level: Level::of(node as usize, around.map(|around| around.level)),
            is_in_other: name == self.other || around.is_some_and(|around| around.is_in_other),
            begun: 0,
            host: Distribution::default(),
            gpu: Distribution::default(),
            own: OwnSums::default(),
            replayed: Totals::default(),
            shared: Totals::default(),
        });
        self.by_path.insert((parent, domain, name), node);
        node
    }

    /// The path of a range or of the first of several, and what else its work belongs to.
    #[inline]
    fn place_of(&mut self, word: u64) -> Option<Place> {
        let place = self.place_of_range(word);
        if place.is_none() && RangeWord(word).is_joined() {
            self.place_of_joined(word)
        } else {
            place
        }
    }

    fn place_of_range(&self, word: u64) -> Option<Place> {
        let is_cut = false;
        if let Some(Live { node, wholes, shares, .. }) = self.live.get(&word) {
            let (wholes, shares) = (wholes.clone(), shares.clone());
            return Some(Place { word, node: *node, wholes, shares, is_cut });
        }
        let (node, wholes, shares) = self.remembered.get(&word)?.clone();
        Some(Place { word, node, wholes, shares, is_cut })
    }

    /// Work counts for the first range of a context that is known.
    #[cold]
    fn place_of_joined(&mut self, word: u64) -> Option<Place> {
        if let Some(place) = &self.joined.get(&word)?.place {
            return Some(place.clone());
        }
        let (mut left, mut place) = (vec![word], None::<Place>);
        let (mut shares, mut is_cut) = (Vec::new(), false);
        let (mut seen, mut known) = (FxHashSet::default(), FxHashSet::default());
        while let Some(word) = left.pop() {
            if !seen.insert(word) {
                continue;
            }
            if let Some(joined) = self.joined.get(&word) {
                left.extend(joined.members.iter().rev());
            } else if let Some(of_range) = self.place_of_range(word) {
                let others = of_range.shares.iter().flat_map(|shares| shares.iter().copied());
                let node = place.is_some().then_some(of_range.node);
                shares.extend(node.into_iter().chain(others).filter(|node| known.insert(*node)));
                place.get_or_insert(of_range);
            } else {
                is_cut = true;
            }
        }
        let mut place = place?;
        place.is_cut = is_cut;
        place.shares = (!shares.is_empty()).then(|| Arc::new(shares));
        self.joined.get_mut(&word)?.place = Some(place.clone());
        Some(place)
    }

    fn add_joined(&mut self, word: u64, members: Vec<u64>) {
        if self.oldest_joined.len() == REMEMBERED
            && let Some(oldest) = self.oldest_joined.pop_front()
        {
            self.joined.remove(&oldest);
        }
        self.oldest_joined.push_back(word);
        self.joined.insert(word, Joined { members, place: None });
    }

    /// Adds to the paths around other ranges that are not around the one that it counts for, to each once.
    fn add_to_shares(&mut self, node: Option<Node>, shares: &Shares, add: impl Fn(&mut Totals)) {
        let Some(shares) = shares else { return };
        let (rounds, round) = &mut self.rounds;
        rounds.resize(self.nodes.len(), 0);
        *round += 1;
        let mut mark = |node: Node| std::mem::replace(&mut rounds[node as usize], *round) != *round;
        let mut next = node;
        while let Some(node) = next {
            mark(node);
            next = self.nodes[node as usize].parent;
        }
        for node in shares.iter() {
            let mut next = Some(*node);
            while let Some(node) = next.filter(|node| mark(*node)) {
                let path = &mut self.nodes[node as usize];
                add(&mut path.shared);
                next = path.parent;
            }
        }
    }

    fn add_to_wholes(&mut self, wholes: &Wholes, add: impl Fn(&mut Totals)) {
        for whole in wholes.iter().flat_map(|wholes| wholes.iter()) {
            add(&mut self.process_sums[whole.sums as usize].totals);
        }
    }

    fn own(&mut self, node: Option<Node>) -> &mut OwnSums {
        match node {
            Some(node) => &mut self.nodes[node as usize].own,
            None => &mut self.outside,
        }
    }

    fn add_graphs(&mut self, part: &Segment) {
        let events = part.graphs.iter().flat_map(|thread| &thread.events);
        let mut events: Vec<&GraphEvent> = events.collect();
        events.sort_by_key(|event| event.at_ns);
        for event in events {
            let range = match event.kind {
                GraphEventKind::NodeCreated => self.place_of(event.word).map(|place| place.node),
                // It was created, too, which says where the copy was made: what counts is where its original was.
                GraphEventKind::NodeCloned => self.captures.get(&event.original_node).copied(),
                GraphEventKind::NodeDestroyed => None,
                _ => continue,
            };
            match range {
                Some(range) => _ = self.captures.insert(event.node, range),
                None => _ = self.captures.remove(&event.node),
            }
        }
    }

    fn add_call(&mut self, call: &cupti::Call, counts: bool) {
        let (class, has_many) = self.function(call.function);
        let owed = ExpectedRecords {
            class,
            end_ns: call.end_ns,
            is_failure: is_failure(class, call.result),
            captured: call.captured,
            empty: call.empty,
        };
        let (mut node, mut wholes, mut shares) = (None, None, None);
        let mut word = call.word;
        if counts {
            let is_earlier = RangeWord(word).log() < self.first_log;
            self.health.calls_in_earlier_ranges += u64::from(word != 0 && is_earlier);
            let mut is_known = is_earlier;
            if let Some(place) = self.place_of(word) {
                (word, node, is_known) = (place.word, Some(place.node), !place.is_cut);
                (wholes, shares) = (place.wholes, place.shares);
            }
            self.health.calls_in_unknown_ranges += u64::from(!is_known);
            let ns = call.end_ns.map_or(0, |end| end.saturating_sub(call.start_ns));
            let add = |to: &mut Totals| to.add_call(class, owed.is_failure, owed.captured, ns);
            add(&mut self.own(node).totals);
            self.add_to_wholes(&wholes, add);
            self.add_to_shares(node, &shares, add);
            if let Some(live) = self.live.get_mut(&word) {
                add(&mut live.totals);
            }
        } else {
            self.health.calls_outside += 1;
        }
        if !owed.may_have_records() {
            if counts {
                self.health.settle(&owed, false, false, None);
            }
            return;
        }
        let waits = counts && owed.owes_records();
        let waiting = self.live.get_mut(&word).filter(|_| waits).map(|live| {
            live.waits_for += 1;
            word
        });
        let last_ns = owed.end_ns.unwrap_or(call.start_ns);
        let found = false;
        let pending =
            Pending { owed, waiting, node, wholes, shares, counts, found, has_many, last_ns };
        if let Some(earlier) = self.calls.insert(call.correlation_id, pending) {
            self.finish_call(&earlier);
        }
    }

    /// Its class, and whether one call of it may give more than one record.
    #[inline]
    fn function(&mut self, function: cupti::DriverFunction) -> (CallClass, bool) {
        match self.functions.get(function.0 as usize) {
            Some(Some(known)) => *known,
            _ => self.new_function(function),
        }
    }

    #[cold]
    fn new_function(&mut self, function: cupti::DriverFunction) -> (CallClass, bool) {
        let (class, name) = (function.class(), function.name());
        let has_many = class == CallClass::GraphLaunch
            || name.contains("Batch")
            || name.contains("MultiDevice");
        // A damaged number could be any.
        if class != CallClass::Unknown {
            let place = function.0 as usize;
            if place >= self.functions.len() {
                self.functions.resize(place + 1, None);
            }
            self.functions[place] = Some((class, has_many));
        }
        (class, has_many)
    }

    fn kernel_name(&mut self, part: &Segment, key: cupti::NameKey) -> NameId {
        if let Some((last, name)) = self.last_kernel
            && last == key.0
        {
            return name;
        }
        let name = match self.kernel_names.get(&key.0) {
            Some(&known) => known,
            None => {
                let name = part.records.name(key).unwrap_or("(unknown kernel)");
                let is_full = self.kernel_rows >= self.most_rows;
                let known =
                    if is_full { self.names.find(name) } else { Some(self.names.intern(name)) };
                let Some(name) = known else { return self.other };
                if self.kernel_names.len() < self.most_rows {
                    self.kernel_names.insert(key.0, name);
                }
                name
            }
        };
        self.last_kernel = Some((key.0, name));
        name
    }

    fn retry_early(&mut self, now_ns: u64) {
        for early in std::mem::take(&mut self.early) {
            self.add_work(early.id, early.what, early.since_ns, now_ns);
        }
    }

    /// Calls come as records need them: those that are not done stay few, however long a part is.
    fn add_records(&mut self, part: &Segment, calls: &mut Calls<'_>, windows_ns: &[(u64, u64)]) {
        self.health.clock_step_ns = self.health.clock_step_ns.max(part.clock.step_ns());
        for record in &part.records {
            self.health.records += 1;
            let (what, span, node, id) = match record {
                Record::Kernel(kernel) => {
                    let name = self.kernel_name(part, kernel.name);
                    (What::Kernel(name), kernel.span, kernel.graph_node, kernel.correlation_id)
                }
                Record::Memcpy(copy) => {
                    let what = What::Copy(copy.kind, copy.bytes);
                    (what, copy.span, copy.graph_node, copy.correlation_id)
                }
                Record::Memset(set) => {
                    (What::Memset(set.bytes), set.span, set.graph_node, set.correlation_id)
                }
                Record::GraphTrace(graph) => (What::Graph, graph.span, None, graph.correlation_id),
                Record::Synchronization(record) => {
                    let (id, now_ns) = (record.correlation_id, part.until_ns);
                    calls.until(id, |call| {
                        self.add_call(call, cupti::clock::is_within(windows_ns, call.start_ns));
                    });
                    self.add_work(id, Work::Synchronization, now_ns, now_ns);
                    continue;
                }
                Record::Overhead(overhead) => {
                    let ns = overhead.span.end_ns.saturating_sub(overhead.span.start_ns);
                    self.health.overhead_ns = self.health.overhead_ns.saturating_add(ns);
                    continue;
                }
                Record::Unreadable { bytes } => {
                    self.health.records -= 1;
                    self.health.unreadable_bytes += bytes.len() as u64;
                    continue;
                }
                Record::Unknown { .. } => {
                    self.health.unknown_records += 1;
                    continue;
                }
                _ => {
                    self.health.unused_records += 1;
                    continue;
                }
            };
            calls.until(id, |call| {
                self.add_call(call, cupti::clock::is_within(windows_ns, call.start_ns));
            });
            let captured = node.and_then(|node| self.captures.get(&node.node).copied());
            let ns = span.is_known().then(|| span.end_ns.saturating_sub(span.start_ns));
            let work = Work::Operation { what, ns, is_node: node.is_some(), captured };
            self.add_work(id, work, part.until_ns, part.until_ns);
        }
    }

    fn add_work(&mut self, id: u32, what: Work, since_ns: u64, now_ns: u64) {
        let Some(pending) = self.calls.get_mut(id) else {
            if self.before_is_final && self.is_before(id) {
                self.health.records_before += 1;
            } else if now_ns.saturating_sub(since_ns) < LONGEST_WAIT_NS {
                self.early.push_back(Early { id, since_ns, what });
                if self.early.len() > MOST_EARLY
                    && let Some(oldest) = self.early.pop_front()
                {
                    self.give_up(oldest.id, oldest.what);
                }
            } else {
                self.give_up(id, what);
            }
            return;
        };
        pending.found = true;
        pending.last_ns = pending.last_ns.max(now_ns);
        let (node, waiting, counts) = (pending.node, pending.waiting, pending.counts);
        let (wholes, shares) = (pending.wholes.clone(), pending.shares.clone());
        let is_done = !pending.has_many;
        if counts {
            self.count_work(what, node, (&wholes, &shares), waiting);
        }
        if is_done && let Some(pending) = self.calls.remove(id) {
            self.finish_call(&pending);
        }
    }

    fn count_work(
        &mut self,
        what: Work,
        node: Option<Node>,
        (wholes, shares): (&Wholes, &Shares),
        waiting: Option<u64>,
    ) {
        let Work::Operation { what, ns, is_node, captured } = what else {
            self.health.synchronizations.records += 1;
            self.health.synchronizations.matched_records += 1;
            return;
        };
        let ns = self.count_time(ns);
        self.count_node(is_node, captured);
        self.count_operation(what, ns, node);
        self.add_to_wholes(wholes, |totals| what.add_to(totals, ns));
        self.add_to_shares(node, shares, |totals| what.add_to(totals, ns));
        let account = match what {
            What::Kernel(_) => Some(&mut self.health.kernels),
            What::Copy(..) => Some(&mut self.health.copies),
            What::Memset(_) => Some(&mut self.health.memsets),
            What::Graph => None,
        };
        match account {
            Some(account) => {
                account.records += 1;
                account.matched_records += 1;
            }
            None => self.health.count_whole_graph(true),
        }
        if let Some(live) = waiting.and_then(|word| self.live.get_mut(&word)) {
            what.add_to(&mut live.totals, ns);
        }
        if let Some(node) = captured {
            what.add_to(&mut self.nodes[node as usize].replayed, ns);
        }
    }

    /// What has no times counts for none.
    fn count_time(&mut self, ns: Option<u64>) -> u64 {
        self.health.zero_timestamps += u64::from(ns.is_none());
        ns.unwrap_or_default()
    }

    fn count_node(&mut self, is_node: bool, captured: Option<Node>) {
        self.health.graph_operations += u64::from(is_node);
        self.health.graph_operations_captured += u64::from(captured.is_some());
    }

    fn count_operation(&mut self, what: What, ns: u64, node: Option<Node>) {
        let (other, is_full) = (self.other, self.kernel_rows >= self.most_rows);
        let own = match node {
            Some(node) => &mut self.nodes[node as usize].own,
            None => &mut self.outside,
        };
        what.add_to(&mut own.totals, ns);
        match what {
            What::Kernel(name) => {
                let name = if is_full && !own.kernels.contains_key(&name) { other } else { name };
                self.health.summed_as_other += u64::from(name == other);
                let times = own.kernels.entry(name).or_insert_with(|| {
                    self.kernel_rows += 1;
                    Distribution::default()
                });
                times.add(ns);
            }
            What::Copy(kind, bytes) => {
                let (times, sum) = own.copies.entry(kind).or_default();
                times.add(ns);
                *sum = sum.saturating_add(bytes);
            }
            What::Memset(_) | What::Graph => {}
        }
    }

    /// Its call never came.
    /// Counts a record whose call is not going to come.
    fn give_up(&mut self, id: u32, what: Work) {
        if self.is_before(id) {
            self.health.records_before += 1;
            return;
        }
        match what {
            Work::Synchronization => self.health.synchronizations.records += 1,
            Work::Operation { what, ns, is_node, captured } => {
                let ns = self.count_time(ns);
                self.count_node(is_node, captured);
                self.count_operation(what, ns, None);
                match what {
                    What::Kernel(_) => self.health.kernels.records += 1,
                    What::Copy(..) => self.health.copies.records += 1,
                    What::Memset(_) => self.health.memsets.records += 1,
                    What::Graph => self.health.count_whole_graph(false),
                }
            }
        }
    }

    /// The calls that get no more records; and those that most likely do not, for which nothing waits any longer.
    fn settle(&mut self, part: &Segment) {
        let (settled_ns, answered_ns, now_ns) = (part.settled_ns, part.answered_ns, part.until_ns);
        if now_ns.saturating_sub(self.settled_at_ns) < SETTLE_EVERY_NS {
            return;
        }
        self.settled_at_ns = now_ns;
        let (mut settled, mut quiet) = (Vec::new(), Vec::new());
        let mut waits_since_ns = None;
        for (id, pending) in self.calls.iter() {
            let end_ns = pending.owed.end_ns.unwrap_or(now_ns);
            let after_ns = end_ns.saturating_add(GRACE_NS);
            let longest_ns = match pending.owed.owes_records() {
                true if answered_ns > end_ns => LONGEST_WAIT_NS,
                true => UNANSWERED * LONGEST_WAIT_NS,
                false => GRACE_NS,
            };
            // More may lie in a buffer that is not full, as long as CUPTI was not asked for it.
            let since_ns = |ns: u64| ns.saturating_sub(pending.last_ns);
            let is_quiet = since_ns(answered_ns) >= GRACE_NS || since_ns(now_ns) >= LONGEST_WAIT_NS;
            if after_ns < settled_ns || now_ns.saturating_sub(end_ns) >= longest_ns {
                settled.push(id);
            } else if pending.found && pending.waiting.is_some() && is_quiet {
                quiet.push(id);
            } else {
                // What may have more is waited for by its range alone.
                let waits_ns = match pending.found {
                    true => pending.waiting.map(|_| pending.last_ns),
                    false => pending.owed.owes_records().then_some(end_ns),
                };
                waits_since_ns = waits_since_ns.into_iter().chain(waits_ns).min();
            }
        }
        self.waits_since_ns = waits_since_ns;
        for id in quiet {
            if let Some(word) = self.calls.get_mut(id).and_then(|pending| pending.waiting.take()) {
                self.stop_waiting(word);
            }
        }
        for id in settled {
            if let Some(pending) = self.calls.remove(id) {
                self.finish_call(&pending);
            }
        }
    }

    fn finish_call(&mut self, pending: &Pending) {
        if pending.counts {
            self.health.settle(&pending.owed, pending.found, pending.found, None);
        }
        if let Some(word) = pending.waiting {
            self.stop_waiting(word);
        }
    }

    /// One thing less that a range waits for.
    fn stop_waiting(&mut self, word: u64) {
        if let Some(live) = self.live.get_mut(&word) {
            live.waits_for = live.waits_for.saturating_sub(1);
            self.finish_range(word);
        }
    }

    fn end_range(&mut self, word: u64, entry: &RangeEntry) {
        let host_ns = entry.end_ns().map(|end_ns| end_ns.saturating_sub(entry.start_ns()));
        if let Some(live) = self.live.get_mut(&word) {
            live.host_ns = Some(host_ns.unwrap_or_default());
            let node = live.node;
            match host_ns {
                Some(host_ns) => self.nodes[node as usize].host.add(host_ns),
                // Its thread has ended before it.
                None => self.left_open += 1,
            }
            self.finish_range(word);
        }
    }

    /// Forgets a range if it has ended and its work is done, and then perhaps the one around it.
    fn finish_range(&mut self, word: u64) {
        let mut word = word;
        while let Some(live) = self.live.get(&word)
            && live.waits_for == 0
            && let Some(host_ns) = live.host_ns
            && let Some(live) = self.live.remove(&word)
        {
            self.nodes[live.node as usize].gpu.add(live.totals.gpu_time().as_nanos() as u64);
            self.remember(word, (live.node, live.wholes.clone(), live.shares.clone()));
            match live.within {
                Some(within) => self.finish_stay(within, &live, host_ns),
                None => {
                    let Live { node, thread_id, start_ns, totals, payload, .. } = live;
                    let (busy_ns, stays) = (host_ns, 1);
                    let done = Done {
                        node,
                        thread_id,
                        start_ns,
                        host_ns,
                        busy_ns,
                        stays,
                        payload,
                        totals,
                    };
                    self.add_done(done);
                }
            }
            let Some(parent) = live.parent else { return };
            let Some(around) = self.live.get_mut(&parent) else { return };
            around.totals += live.totals;
            around.waits_for = around.waits_for.saturating_sub(1);
            word = parent;
        }
    }

    fn finish_stay(&mut self, within: Within, stay: &Live, host_ns: u64) {
        if let Some(process_range) = self.process_ranges.get_mut(&within.process_range) {
            if !within.is_inner {
                process_range.totals += stay.totals;
                process_range.busy_ns = process_range.busy_ns.saturating_add(host_ns);
                process_range.stays += 1;
            }
            process_range.waits_for = process_range.waits_for.saturating_sub(1);
            self.finish_process_range(within.process_range);
        }
    }

    fn remember(&mut self, word: u64, of: (Node, Wholes, Shares)) {
        if self.oldest.len() == REMEMBERED
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.remembered.remove(&oldest);
        }
        self.oldest.push_back(word);
        self.remembered.insert(word, of);
    }

    /// Ends what is followed: whatever waits for records waits in vain. Calls that had not returned are in no part, but in
    /// what was recorded.
    pub(crate) fn end(&mut self, recording: Option<&Recording>) {
        if let Some(recording) = recording {
            for call in recording.open_calls() {
                let counts = cupti::clock::is_within(&recording.windows_ns, call.start_ns);
                self.add_call(call, counts);
            }
            // Calls that returned since the last part, whose records had come before.
            let mut early: FxHashSet<u32> = self.early.iter().map(|early| early.id).collect();
            early.retain(|id| self.calls.get_mut(*id).is_none());
            let calls = recording.calls.iter().flat_map(|thread| &thread.calls);
            for call in calls.filter(|call| call.end_ns.is_some()) {
                if early.remove(&call.correlation_id) {
                    let counts = cupti::clock::is_within(&recording.windows_ns, call.start_ns);
                    self.add_call(call, counts);
                }
            }
            self.retry_early(recording.window_ns.1);
        }
        let cut_ns = recording.map_or(u64::MAX, |recording| recording.window_ns.1);
        self.end_process_ranges(u64::MAX);
        let ids: Vec<u32> = self.calls.iter().map(|(id, _)| id).collect();
        for id in ids {
            if let Some(mut pending) = self.calls.remove(id) {
                // As in a recording, of calls that returned after the cut it is not known what they asked for.
                let is_late = pending.owed.end_ns.is_some_and(|end_ns| end_ns >= cut_ns);
                if is_late && !pending.found && pending.owed.owes_records() {
                    pending.owed.end_ns = None;
                }
                self.finish_call(&pending);
            }
        }
        for early in std::mem::take(&mut self.early) {
            self.give_up(early.id, early.what);
        }
        self.health.pending_calls = 0;
        // Parts have no counts of these: they are kept for the whole of what is recorded.
        if let Some(losses) = recording.map(|recording| &recording.losses) {
            self.health.set_range_losses(losses);
            self.health.forgotten_lanes = losses.forgotten_lanes;
        }
        let ranges = self.live.values().filter(|live| live.host_ns.is_none());
        let process_ranges = self.process_ranges.values().filter(|live| live.host_ns.is_none());
        let open = (ranges.count() + process_ranges.count()) as u64;
        self.health.open_ranges = self.left_open + open;
    }
}

/// The word of a range of a thread.
fn word(thread: &ThreadRangesPart<'_>, slot: u64) -> u64 {
    RangeWord::new(thread.number, slot).map_or(0, |word| word.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_of_several_ranges_are_forgotten_as_ranges_are() {
        let mut streaming = StreamingJoin::new(0, ROWS);
        for word in 1..=REMEMBERED as u64 + 10 {
            streaming.add_joined(word, vec![word, word + 1]);
        }
        assert_eq!(
            (streaming.joined.len(), streaming.oldest_joined.len()),
            (REMEMBERED, REMEMBERED)
        );
        assert!(!streaming.joined.contains_key(&10) && streaming.joined.contains_key(&11));
    }

    #[test]
    fn calls_come_up_to_the_id_that_a_record_has() {
        let call = |id| {
            let mut call = cupti::Call::from_words([0; 5]);
            call.correlation_id = id;
            call
        };
        let last = u32::MAX;
        // The ids wrap; the first call of the second thread was long under way.
        let threads: [Vec<cupti::Call>; 2] =
            [[last - 3, last, 2].map(call).to_vec(), [last - 9, last - 1, 1, 5].map(call).to_vec()];
        let mut calls = Calls { threads: threads.iter().map(Vec::as_slice).collect(), until: None };
        let mut until = |id| {
            let mut ids = Vec::new();
            calls.until(id, |call| ids.push(call.correlation_id));
            ids
        };
        assert_eq!(until(last - 1), [last - 3, last - 9, last - 1]);
        assert!(until(last - 2).is_empty());
        assert_eq!(until(1), [last, 1]);
        let rest: Vec<u32> = calls.rest().map(|call| call.correlation_id).collect();
        assert_eq!(rest, [2, 5]);
    }
}
