//! Steady phases of repeating outermost ranges.
//!
//! The outermost ranges of a process are a sequence of names. A candidate is a part of the sequence
//! with one set of repeating names, such as `forward`, `backward`, `optimizer`. A different set,
//! such as the `forward` of an evaluation, begins the next candidate. A range that does not repeat
//! is replaced by its inner ranges.

use std::borrow::Cow;
use std::cmp::Reverse;

use profiler_base::name_pattern::with_stars;
use profiler_base::statistics::{upper_median, warm_up};
use profiler_base::units::{NAME_WIDTH, shortened};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Candidate, LEAST_INSTANCES};
use profiler_core::profile::Profile;
use profiler_core::tables::range_tree::NodeId;
use profiler_core::tables::{Interval, RangeId, Tables, ThreadId};

/// The maximum number of names of a process, those with the most time: each is a bit.
const MOST_NAMES: usize = 64;
/// The factor of instances for a rare name, such as a checkpoint among steps. A name with this many
/// times fewer instances and less time than another one beside it belongs to the other's phase.
const RARE: usize = 4;
/// The factor of a name's usual number of ranges between instances, after which it no longer
/// repeats.
const MOST_RANGES: usize = 4;
/// The same factor for its usual time between instances.
const MOST_PERIODS: u64 = 32;
/// The tenths of a name's instances that must lie within instances of another name to be part of
/// it.
const WITHIN: usize = 9;
/// The maximum number of instances of a name that this is checked on.
const MOST_WITHIN: usize = 256;
/// The minimum share of the ranges' time for a range to appear in the phase's name.
const LEAST_NAMED: f64 = 0.03;
/// The number of names of a phase in texts.
const SHOWN_NAMES: usize = 4;

/// The minimum share of the time of another thread's name that is beside the main name: above it, the
/// name does not divide phases.
const LEAST_BESIDE: f64 = 0.9;
/// The percentile of times between instances that is usual: most of those in bursts are short.
const USUAL_PERCENT: usize = 95;
/// The number of longer times, however few instances there are: pauses.
const LEAST_PAUSES: usize = 2;

/// A repeating outermost range.
#[derive(Debug, Clone, Copy)]
struct Instance {
    time: Interval,
    thread: ThreadId,
    name: usize,
}

/// The name of outermost ranges.
struct Label {
    text: String,
    /// True if the ranges launch kernels.
    launches_kernels: bool,
}

/// The candidates of each process.
pub(super) fn candidates(profile: &Profile) -> FxHashMap<u32, Vec<Candidate>> {
    let (names, instances) = instances(profile);
    let mut processes: FxHashMap<u32, Vec<Instance>> = FxHashMap::default();
    for instance in instances {
        let process = profile.tables().threads[instance.thread.at()].process;
        processes.entry(process).or_default().push(instance);
    }
    let of_process = |(process, mut all): (u32, Vec<Instance>)| {
        all.sort_unstable_by_key(|instance| (instance.time.start_ns, instance.time.end_ns));
        (process, of_process(&names, &without_names_beside(&names, all)))
    };
    processes.into_iter().map(of_process).collect()
}

/// The names of outermost ranges that repeat on a thread, and their instances.
fn instances(profile: &Profile) -> (Vec<Label>, Vec<Instance>) {
    let (store, tree) = (&profile.tables(), &profile.range_tree());
    let mut most: Vec<u32> = vec![0; tree.nodes.len()];
    let mut of_thread: FxHashMap<(NodeId, ThreadId), u32> = FxHashMap::default();
    for id in tree.ranges() {
        let node = tree.of_range[id.at()];
        let count = of_thread.entry((node, store.ranges[id.at()].thread)).or_default();
        *count += 1;
        most[node.at()] = most[node.at()].max(*count);
    }
    let mut names: Vec<Label> = Vec::new();
    let mut known: FxHashMap<String, usize> = FxHashMap::default();
    let mut instances = Vec::new();
    let mut left: Vec<Vec<NodeId>> = vec![tree.roots.to_vec()];
    while let Some(siblings) = left.pop() {
        let mut alike: FxHashMap<Cow<'_, str>, Vec<NodeId>> = FxHashMap::default();
        for id in siblings {
            let name = store.names.get(tree.node_at(id).name);
            let repeats = most[id.at()] as usize >= LEAST_INSTANCES;
            // Only names that do not recur are merged into one.
            let name = if repeats { Cow::Borrowed(name) } else { with_stars(name, |_| true) };
            alike.entry(name).or_default().push(id);
        }
        for (name, nodes) in alike {
            let ranges = || nodes.iter().flat_map(|node| tree.instances(*node));
            let children = nodes.iter().map(|id| tree.node_at(*id).children.to_vec());
            if !repeats(profile, ranges()) {
                left.extend(children);
                continue;
            }
            let continues = |id: &NodeId| continues_ended(store, tree.instances(*id));
            left.extend(children.map(|all| all.into_iter().filter(continues).collect()));
            let next = names.len();
            let name = *known.entry(name.into_owned()).or_insert_with_key(|name| {
                names.push(Label { text: name.clone(), launches_kernels: false });
                next
            });
            let kernels = nodes.iter().map(|node| tree.node_at(*node).inclusive.kernels);
            names[name].launches_kernels |= kernels.sum::<u64>() != 0;
            instances.extend(ranges().map(|id| {
                let range = &store.ranges[id.at()];
                Instance { time: range.time, thread: range.thread, name }
            }));
        }
    }
    (names, instances)
}

/// True if most of these ranges begin after the end of their parent, whose context their thread has.
fn continues_ended(store: &Tables, ranges: impl Iterator<Item = RangeId>) -> bool {
    let (mut all, mut outside) = (0_u64, 0_u64);
    for id in ranges {
        let range = &store.ranges[id.at()];
        let parent = range.parent.get().map(|parent| store.ranges[parent.at()].time);
        all += 1;
        outside += u64::from(parent.is_some_and(|time| time.end_ns <= range.time.start_ns));
    }
    2 * outside > all
}

/// Without the names of other threads that are beside the main name, which launches kernels for the
/// longest time: a client's bursts of requests do not divide the batches of a server into phases.
fn without_names_beside(names: &[Label], mut all: Vec<Instance>) -> Vec<Instance> {
    #[derive(Default)]
    struct Sum {
        count: usize,
        ns: u64,
        /// From the first start to the last one.
        span: Interval,
        threads: FxHashSet<ThreadId>,
    }
    let mut sums: FxHashMap<usize, Sum> = FxHashMap::default();
    for Instance { name, time, thread } in &all {
        let sum = sums.entry(*name).or_default();
        if sum.count == 0 {
            sum.span.start_ns = time.start_ns;
        }
        (sum.count, sum.ns, sum.span.end_ns) = (sum.count + 1, sum.ns + time.ns(), time.start_ns);
        sum.threads.insert(*thread);
    }
    let repeat = sums.iter().filter(|(_, sum)| sum.count >= LEAST_INSTANCES);
    let main =
        repeat.max_by_key(|(name, sum)| (names[**name].launches_kernels, sum.ns, Reverse(**name)));
    let Some((_, main)) = main else { return all };
    let is_beside = |Sum { span, threads, .. }: &Sum| {
        let end_ns = span.end_ns.min(main.span.end_ns);
        let beside_ns = end_ns.saturating_sub(span.start_ns.max(main.span.start_ns));
        threads.is_disjoint(&main.threads) && beside_ns as f64 >= LEAST_BESIDE * span.ns() as f64
    };
    let beside: FxHashSet<usize> =
        sums.iter().filter(|(_, sum)| is_beside(sum)).map(|(name, _)| *name).collect();
    all.retain(|instance| !beside.contains(&instance.name));
    all
}

/// True if one thread has enough of these ranges.
fn repeats(profile: &Profile, ranges: impl Iterator<Item = RangeId>) -> bool {
    let mut of_thread: FxHashMap<ThreadId, usize> = FxHashMap::default();
    ranges.into_iter().any(|id| {
        let count = of_thread.entry(profile.tables().ranges[id.at()].thread).or_default();
        *count += 1;
        *count >= LEAST_INSTANCES
    })
}

/// The instances of one name, by index.
struct Name {
    name: usize,
    at: Vec<usize>,
    ns: u64,
}

impl Name {
    fn indices(&self, first: usize, last: usize) -> &[usize] {
        let from = self.at.partition_point(|at| *at < first);
        let until = self.at.partition_point(|at| *at <= last);
        &self.at[from..until]
    }

    /// True if its instances lie within instances of `outer`, which has more time. For example,
    /// NCCL's ranges on autograd's thread lie within the steps of the main thread.
    fn is_within(&self, outer: &Self, all: &[Instance]) -> bool {
        if outer.ns <= self.ns || outer.at.len() >= self.at.len() {
            return false;
        }
        let is_in = |at: &usize| {
            let time = all[*at].time;
            let begun = outer.at.partition_point(|of| all[*of].time.start_ns <= time.start_ns);
            begun.checked_sub(1).is_some_and(|last| time.end_ns <= all[outer.at[last]].time.end_ns)
        };
        let looked_at = || self.at.iter().step_by(self.at.len().div_ceil(MOST_WITHIN));
        10 * looked_at().filter(|at| is_in(at)).count() >= WITHIN * looked_at().count()
    }

    /// The parts in which the name repeats, as indices of the first and last instance.
    fn parts(&self, all: &[Instance]) -> Vec<(usize, usize)> {
        let steps = || self.at.windows(2).map(|pair| (pair[0], pair[1]));
        let period = |(a, b): (usize, usize)| all[b].time.start_ns - all[a].time.start_ns;
        // A slow instance is not a pause.
        let pause =
            |(a, b): (usize, usize)| all[b].time.start_ns.saturating_sub(all[a].time.end_ns);
        let usual =
            upper_median(steps().map(|(a, b)| (b - a) as u64).collect()).unwrap_or(0u64) as usize;
        let mut periods: Vec<u64> = steps().map(period).collect();
        periods.sort_unstable();
        let shorter = periods.len().saturating_sub(LEAST_PAUSES);
        let usual_at = (USUAL_PERCENT * periods.len()).div_ceil(100).min(shorter);
        let usual_ns = usual_at.checked_sub(1).map_or(0, |at| periods[at]);
        let goes_on = |a: &usize, b: &usize| {
            b - a <= MOST_RANGES * usual + MOST_RANGES
                && pause((*a, *b)) <= MOST_PERIODS.saturating_mul(usual_ns)
        };
        let parts = self.at.chunk_by(goes_on).filter(|part| part.len() >= LEAST_INSTANCES);
        parts.map(|part| (part[0], part[part.len() - 1])).collect()
    }
}

/// A part of the sequence with one set of names, as bits. The end is exclusive.
#[derive(Debug, Clone, Copy)]
struct Part {
    first: usize,
    end: usize,
    set: u64,
}

/// Removes names by a predicate over all of them.
fn leave_out(used: &mut Vec<Name>, is_left_out: impl Fn(&Name, &[Name]) -> bool) {
    let left_out: Vec<bool> = used.iter().map(|name| is_left_out(name, used)).collect();
    let mut left_out = left_out.into_iter();
    used.retain(|_| !left_out.next().unwrap_or(false));
}

/// `all` is in start order.
fn of_process(names: &[Label], all: &[Instance]) -> Vec<Candidate> {
    let mut used: FxHashMap<usize, Name> = FxHashMap::default();
    for (at, Instance { name, time, .. }) in all.iter().enumerate() {
        let new = || Name { name: *name, at: Vec::new(), ns: 0 };
        let of_name = used.entry(*name).or_insert_with(new);
        of_name.at.push(at);
        of_name.ns += time.ns();
    }
    let mut used: Vec<Name> = used.into_values().collect();
    used.retain(|name| name.at.len() >= LEAST_INSTANCES);
    used.sort_unstable_by_key(|name| (Reverse(name.ns), name.name));
    used.truncate(MOST_NAMES);
    // Ranges of data loaders launch no kernels and do not contain the steps.
    leave_out(&mut used, |name, used| {
        used.iter().any(|of| names[of.name].launches_kernels && name.is_within(of, all))
    });
    leave_out(&mut used, |name, used| {
        let (first, last) = (name.at[0], name.at[name.at.len() - 1]);
        used.iter().any(|other| {
            other.ns > name.ns && other.indices(first, last).len() > RARE * name.at.len()
        })
    });

    let parts = parts(&used, all);
    let is_enough = |part: &Part| {
        let counts = used.iter().map(|name| name.indices(part.first, part.end - 1).len());
        counts.max().is_some_and(|most| most >= LEAST_INSTANCES)
    };
    let enough: Vec<bool> = parts.iter().map(is_enough).collect();
    let mut candidates = Vec::new();
    let mut free = 0;
    for (at, part) in parts.iter().enumerate().filter(|(at, _)| enough[*at]) {
        // The names of a cycle begin and end one after the other.
        let is_of = |other: usize| !enough[other] && parts[other].set & !part.set == 0;
        let first = (free..at).rev().take_while(|other| is_of(*other)).last().unwrap_or(at);
        let last = (at + 1..parts.len()).take_while(|other| is_of(*other)).last().unwrap_or(at);
        free = last + 1;
        let whole = Part { first: parts[first].first, end: parts[last].end, set: part.set };
        candidates.extend(candidate(names, &used, all, whole));
    }
    candidates
}

/// Splits the sequence by the set of repeating names.
fn parts(used: &[Name], all: &[Instance]) -> Vec<Part> {
    let mut changes: Vec<(usize, u64)> = Vec::new();
    for (bit, name) in used.iter().enumerate() {
        for (first, last) in name.parts(all) {
            changes.extend([(first, 1 << bit), (last + 1, 1 << bit)]);
        }
    }
    changes.sort_unstable();
    let mut parts: Vec<Part> = Vec::new();
    let (mut first, mut set) = (0, 0_u64);
    for (at, change) in changes {
        if at > first && set != 0 {
            parts.push(Part { first, end: at, set });
        }
        (first, set) = (at, set ^ change);
    }
    parts
}

/// A part without its slow first instances.
fn candidate(names: &[Label], used: &[Name], all: &[Instance], part: Part) -> Option<Candidate> {
    struct Used {
        name: usize,
        count: usize,
        first: usize,
        ns: u64,
    }
    let mut of_part: Vec<Used> = Vec::new();
    for (_, name) in used.iter().enumerate().filter(|(bit, _)| part.set & (1 << bit) != 0) {
        let within = name.indices(part.first, part.end - 1);
        let Some(&first) = within.first() else { continue };
        // Without slow first instances.
        let times = within.iter().map(|at| all[*at].time.ns()).collect();
        let ns = within.len() as u64 * upper_median(times).unwrap_or(0);
        of_part.push(Used { name: name.name, count: within.len(), first, ns });
    }
    of_part.sort_unstable_by_key(|name| name.first);
    let all_ns: u64 = of_part.iter().map(|name| name.ns).sum();
    of_part.retain(|name| name.ns as f64 >= LEAST_NAMED * all_ns as f64);
    let most = of_part.iter().map(|name| name.count).max()?;
    // The first name of a cycle.
    let anchor = of_part.iter().find(|name| 2 * name.count >= most)?;

    let within = &all[part.first..part.end];
    let anchors = within.iter().filter(|instance| instance.name == anchor.name);
    let mut of_thread: FxHashMap<ThreadId, Vec<u64>> = FxHashMap::default();
    for instance in anchors {
        of_thread.entry(instance.thread).or_default().push(instance.time.start_ns);
    }
    let starts = of_thread.into_values().max_by_key(|starts| (starts.len(), starts[0]))?;
    let end_ns = within.iter().map(|instance| instance.time.end_ns).max()?;
    let ends = starts.iter().skip(1).copied().chain([end_ns]);
    let lengths: Vec<u64> = starts.iter().zip(ends).map(|(a, b)| b.saturating_sub(*a)).collect();
    let cold = warm_up(&lengths);
    let start_ns = within.first()?.time.start_ns;
    // Work of the first instance may begin before it.
    let steady_ns = if cold == 0 { start_ns } else { starts[cold] };
    let of_phase = within.iter().filter(|instance| instance.name == anchor.name);
    let instances = of_phase.filter(|instance| instance.time.start_ns >= steady_ns).count();
    let shown: Vec<String> = of_part
        .iter()
        .take(SHOWN_NAMES)
        .map(|name| shortened(&names[name.name].text, NAME_WIDTH))
        .collect();
    let more = of_part.len().saturating_sub(SHOWN_NAMES);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let whole = Interval { start_ns, end_ns };
    let covered_ns: u64 = within.iter().map(|instance| instance.time.ns()).sum();
    Some(Candidate {
        name: shown.join(", ") + &more,
        instances: instances as u64,
        warm_up: anchor.count.saturating_sub(instances) as u64,
        whole,
        steady: Interval { start_ns: steady_ns, end_ns },
        covered: covered_ns as f64 / whole.ns().max(1) as f64,
    })
}
