//! Groups ranges whose names differ only in running numbers, such as `step 1` to `step 500`, under
//! one name: `step *`.
//!
//! A number in a name is running if its values do not recur: an id, a step, an address. A number
//! that recurs in every instance of the surrounding range is part of a name, as in `layer 0` to
//! `layer 11`.

use std::borrow::Cow;
use std::rc::Rc;

use profiler_base::name_pattern::{is_address, numbers, with_stars};
use rustc_hash::{FxHashMap, FxHashSet};

use profiler_core::profile::Totals;
use profiler_core::profile::{Profile, RangeNode};
use profiler_core::tables::RangeId;
use profiler_core::tables::range_tree::NodeId;

/// A value recurs if more than this share of the instances lies between its first and its last one.
/// A number that recurs in two instances of the surrounding range has half of them in between.
const MOST_BETWEEN: f64 = 0.25;
/// A value is the same in several runs if more than this share of the other runs has it.
pub(crate) const MOST_SHARED: f64 = 0.4;
/// The fewest values of a running number whose values occur once each, and of one that differs by
/// run.
const FEWEST: usize = 8;
pub(crate) const FEWEST_BY_RUN: usize = 4;
/// The fewest values of such a number per thread: a number of a worker or rank has one.
const BY_THREAD: usize = 2;
/// The number of values within one instance of the surrounding range above which a number is
/// running: no model has as many layers.
const MANY: usize = 128;

/// The use of the names. It decides ambiguous numbers, whose values occur once each in one instance
/// of the surrounding range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Grouping on request: such numbers are running from eight values on.
    Grouping,
    /// Comparison, which must not hide the layers of a single step. Within a range, such a number
    /// is running only if it has many values, or other values in each run.
    Comparison,
}

/// The names of one profile's range nodes, with `*` in place of running numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeNames {
    /// Names by node; `None` for a node with the range's own name. Empty if all nodes have their
    /// own.
    names: Vec<Option<Rc<str>>>,
}

impl NodeNames {
    /// The names of each profile's nodes. All profiles are judged together, so that the nodes of
    /// one range get the same name in each. Costs a pass over the ranges whose names have numbers.
    pub(crate) fn new<'p>(
        profiles: impl IntoIterator<Item = &'p Profile>,
        purpose: Purpose,
    ) -> Vec<Self> {
        let profiles: Vec<&Profile> = profiles.into_iter().collect();
        let count =
            |profile: &&Profile| Self { names: vec![None; profile.range_tree().nodes.len()] };
        let mut names: Vec<Self> = profiles.iter().map(count).collect();
        let runs = (0..).zip(&profiles);
        let roots =
            runs.flat_map(|(run, of)| of.range_tree().roots.iter().map(move |id| (run, *id)));
        let mut left: Vec<(bool, Vec<Member>)> = vec![(true, roots.collect())];
        while let Some((is_outermost, siblings)) = left.pop() {
            let judge = Judge { profiles: &profiles, purpose, is_outermost };
            for (name, members) in judge.named(siblings) {
                let mut within = Vec::new();
                for (run, id) in members {
                    let node = profiles[run].range_tree().node_at(id);
                    if profiles[run].tables().names.get(node.name) != &*name {
                        names[run].names[id.at()] = Some(name.clone());
                    }
                    within.extend(node.children.iter().map(|child| (run, *child)));
                }
                if !within.is_empty() {
                    left.push((false, within));
                }
            }
        }
        names
    }

    fn changed(&self, id: NodeId) -> Option<&Rc<str>> {
        self.names.get(id.at())?.as_ref()
    }

    /// The name of a node of this profile.
    pub(crate) fn name<'a>(&'a self, node: &RangeNode<'a>) -> &'a str {
        match self.changed(node.id()) {
            Some(name) => name,
            None => node.name(),
        }
    }

    /// [`RangeNode::cut_path`] with these names.
    pub(crate) fn cut_path(&self, node: &RangeNode<'_>) -> String {
        node.node().level.path(node.id().at(), |row| {
            let node = node.profile().node(NodeId(row as u32));
            std::iter::once(node).chain(node.ancestors()).map(|node| self.name(&node))
        })
    }

    /// The first name with a running number, if any.
    pub(crate) fn example(&self) -> Option<&str> {
        self.names.iter().flatten().next().map(|name| &**name)
    }
}

/// A node of one of the profiles, by number.
type Member = (usize, NodeId);

/// Judges siblings: nodes whose parents are one range.
struct Judge<'p> {
    profiles: &'p [&'p Profile],
    purpose: Purpose,
    is_outermost: bool,
}

impl<'p> Judge<'p> {
    fn node(&self, (run, id): Member) -> RangeNode<'p> {
        self.profiles[run].node(id)
    }

    /// The siblings by domain and new name.
    fn named(&self, siblings: Vec<Member>) -> Vec<(Rc<str>, Vec<Member>)> {
        let mut families: FxHashMap<(Option<&str>, Cow<'p, str>), Vec<Member>> =
            FxHashMap::default();
        for member in siblings {
            let node = self.node(member);
            let key = (node.domain(), with_stars(node.name(), |_| true));
            families.entry(key).or_default().push(member);
        }
        let mut named = Vec::new();
        for ((_, pattern), members) in families {
            match pattern {
                Cow::Borrowed(name) => named.push((name.into(), members)),
                Cow::Owned(_) => {
                    let runs = self.running(&members);
                    let mut by_name: FxHashMap<Cow<'p, str>, Vec<Member>> = FxHashMap::default();
                    for member in members {
                        let name = with_stars(self.node(member).name(), |index| runs[index]);
                        by_name.entry(name).or_default().push(member);
                    }
                    named.extend(by_name.into_iter().map(|(name, of)| (name.into(), of)));
                }
            }
        }
        named
    }

    /// Returns for each number of a pattern's names if it is running.
    fn running(&self, members: &[Member]) -> Vec<bool> {
        let mut columns: Vec<Column<'p>> = Vec::new();
        let mut of_family = Family::default();
        // The members of a run follow each other.
        for of_run in members.chunk_by(|one, other| one.0 == other.0) {
            let places = of_family.add_run(of_run.iter().map(|member| self.node(*member)));
            for (member, places) in of_run.iter().zip(places) {
                let name = self.node(*member).name();
                for (index, at) in numbers(name).enumerate() {
                    if columns.len() == index {
                        columns.push(Column::default());
                    }
                    columns[index].add(&name[at], places);
                }
            }
            columns.iter_mut().for_each(Column::end_run);
        }
        columns.iter().map(|column| self.is_running(column, &of_family)).collect()
    }

    fn is_running(&self, column: &Column<'_>, family: &Family) -> bool {
        let values = column.values.len();
        if column.values.keys().all(|value| is_address(value)) {
            return true;
        }
        if values < 2 {
            return false;
        }
        let runs = family.runs as f64;
        // The mean over values, against the mean over runs.
        if column.between / column.in_runs > MOST_BETWEEN * family.instances as f64 / runs {
            return false;
        }
        if family.is_replayed || family.has_several_around {
            return !family.is_replayed;
        }
        let of_run = column.in_runs / runs;
        let fewest = match self.purpose {
            Purpose::Comparison if !self.is_outermost => MANY,
            _ => FEWEST,
        };
        let is_sequence = column.in_runs >= (BY_THREAD * family.threads) as f64;
        let shared = column.in_runs / values as f64 - 1.0;
        of_run >= fewest as f64 && is_sequence
            || family.runs > 1
                && of_run >= FEWEST_BY_RUN as f64
                && shared <= MOST_SHARED * (runs - 1.0)
    }
}

/// The first and last index of a value among the instances of a run.
#[derive(Debug, Clone, Copy)]
struct Places(usize, usize);

impl Places {
    fn merge(&mut self, other: Self) {
        (self.0, self.1) = (self.0.min(other.0), self.1.max(other.1));
    }
}

/// The instances of the names of one pattern, summed over runs.
#[derive(Debug, Default)]
struct Family {
    runs: usize,
    instances: usize,
    threads: usize,
    /// True if a run has them in several instances of the surrounding range.
    has_several_around: bool,
    /// True if a CUDA graph captured in one of them was launched: the range recurs with each
    /// launch.
    is_replayed: bool,
}

impl Family {
    /// Adds the nodes of a run; returns the first and last index of each.
    fn add_run<'p>(&mut self, nodes: impl Iterator<Item = RangeNode<'p>>) -> Vec<Places> {
        let mut instances: Vec<(u64, RangeId, usize)> = Vec::new();
        let (mut around, mut threads) = (FxHashSet::default(), FxHashSet::default());
        let mut count = 0;
        for (index, node) in nodes.enumerate() {
            count += 1;
            self.is_replayed |= node.replayed() != Totals::default();
            for range in node.ranges() {
                let row = range.row();
                instances.push((row.time.start_ns, range.id(), index));
                around.extend(row.parent.get());
                threads.insert(row.thread);
            }
        }
        instances.sort_unstable();
        self.runs += 1;
        self.instances += instances.len();
        self.threads += threads.len();
        self.has_several_around |= around.len() > 1;
        let mut places = vec![Places(usize::MAX, 0); count];
        for (place, (_, _, index)) in instances.into_iter().enumerate() {
            places[index].merge(Places(place, place));
        }
        places
    }
}

/// The values of one number of a pattern.
#[derive(Debug, Default)]
struct Column<'p> {
    /// The indices of the values in the current run.
    values: FxHashMap<&'p str, Option<Places>>,
    /// The values in the current run.
    present: Vec<&'p str>,
    /// The number of these values, summed over runs.
    in_runs: f64,
    /// Instances from a value's first to its last, summed over values and runs.
    between: f64,
}

impl<'p> Column<'p> {
    fn add(&mut self, value: &'p str, places: Places) {
        let of_value = self.values.entry(value).or_default();
        match of_value {
            Some(of_value) => of_value.merge(places),
            None => {
                *of_value = Some(places);
                self.present.push(value);
            }
        }
    }

    fn end_run(&mut self) {
        self.in_runs += self.present.len() as f64;
        for value in self.present.drain(..) {
            let places = self.values.get_mut(value).and_then(Option::take);
            self.between +=
                places.map_or(0.0, |Places(first, last)| last.saturating_sub(first) as f64);
        }
    }
}

/// [`ProfileExt::with_grouped_numbers`](crate::prelude::ProfileExt::with_grouped_numbers).
pub(crate) fn with_grouped_numbers(profile: Profile) -> Profile {
    let names = NodeNames::new([&profile], Purpose::Grouping).pop().unwrap_or_default();
    if names.example().is_none() {
        return profile;
    }
    profile.with_node_names(|id| names.changed(id).map(|name| &**name))
}
