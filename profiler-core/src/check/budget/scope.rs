//! What a budget looks at: the work and the calls of a range, instance by instance, run by run.

use rustc_hash::FxHashMap;

use crate::base::kernel_names::Pattern;
use crate::base::order;
use crate::base::units;
use crate::join::tables::ShareId;
use crate::profile::{ApiCall, GpuOperation, Profile, Range, RangeNode};

/// The whole profile, or the ranges of a pattern.
#[derive(Debug)]
pub(super) struct Scope<'a> {
    pub(super) profiles: &'a [Profile],
    place: Option<Place>,
    /// What has to keep a budget, each on its own.
    pub(super) groups: Vec<Group<'a>>,
}

#[derive(Debug)]
struct Place {
    pattern: Pattern,
    each: bool,
}

/// All instances of one run, or one of them.
#[derive(Debug)]
pub(super) struct Group<'a> {
    pub(super) run: usize,
    /// Its number among the instances of its run, if it is one alone.
    pub(super) number: Option<usize>,
    /// How often the range was entered, also within itself.
    pub(super) entered: u64,
    pub(super) instances: Vec<Instance<'a>>,
}

impl Group<'_> {
    /// Of a run in which the range was never entered.
    pub(super) fn absent(run: usize) -> Self {
        Self { run, number: None, entered: 0, instances: Vec::new() }
    }
}

/// One time that the range was entered, with all that was asked for in it and within.
#[derive(Debug, Default)]
pub(super) struct Instance<'a> {
    /// `None` for the whole profile.
    pub(super) range: Option<Range<'a>>,
    pub(super) operations: Vec<GpuOperation<'a>>,
    pub(super) calls: Vec<ApiCall<'a>>,
    /// Operations that belong to it and count for others; with all instances of a run, each for one of them.
    pub(super) shared: Vec<GpuOperation<'a>>,
    /// True if it lies within another of the pattern.
    pub(super) nested: bool,
}

impl<'a> Scope<'a> {
    pub(super) fn whole(profiles: &'a [Profile]) -> Self {
        let group = |(run, profile): (usize, &'a Profile)| {
            let operations = profile.operations().collect();
            let calls = profile.calls().collect();
            let instance = Instance { operations, calls, ..Instance::default() };
            Group { run, number: None, entered: 1, instances: vec![instance] }
        };
        Self { profiles, place: None, groups: profiles.iter().enumerate().map(group).collect() }
    }

    pub(super) fn range(profiles: &'a [Profile], pattern: Pattern, each: bool) -> Self {
        let mut groups = Vec::new();
        for (run, profile) in profiles.iter().enumerate() {
            let instances = instances(profile, &pattern, each);
            if each {
                groups.extend(instances.into_iter().enumerate().map(|(number, instance)| Group {
                    run,
                    number: Some(number),
                    entered: 1,
                    instances: vec![instance],
                }));
            } else {
                let entered = instances.len() as u64;
                let instances = instances.into_iter().filter(|instance| !instance.nested).collect();
                groups.push(Group { run, number: None, entered, instances });
            }
        }
        Self { profiles, place: Some(Place { pattern, each }), groups }
    }

    pub(super) fn pattern(&self) -> Option<&Pattern> {
        self.place.as_ref().map(|place| &place.pattern)
    }

    /// How often the range was entered in a run.
    pub(super) fn entered(&self, run: usize) -> u64 {
        self.groups.iter().filter(|group| group.run == run).map(|group| group.entered).sum()
    }

    /// The outermost nodes of the pattern, or all roots.
    pub(super) fn nodes(&self, run: usize) -> Vec<RangeNode<'a>> {
        let profile = &self.profiles[run];
        let Some(pattern) = self.pattern() else {
            return profile.roots().collect();
        };
        let is_outermost = profile.outermost(pattern);
        profile.nodes().filter(|node| is_outermost[node.id.at()]).collect()
    }

    /// What it is, as the head of its violations.
    pub(super) fn title(&self) -> String {
        match &self.place {
            None => "the whole profile".to_owned(),
            Some(place) => {
                let which = if place.each { "each instance" } else { "all instances together" };
                format!("range `{}`, {which}", place.pattern.text())
            }
        }
    }

    /// Which of the groups it is, after its amount; empty if there is only one.
    pub(super) fn place_of(&self, group: &Group<'_>) -> String {
        let mut words = Vec::new();
        if let (Some(number), [Instance { range: Some(range), .. }]) =
            (group.number, &group.instances[..])
        {
            words.push(format!(
                "instance {} of {}, {}, {} after the start on thread {}",
                number + 1,
                self.entered(group.run),
                units::shortened(&range.node().cut_path(), units::PATH_WIDTH),
                units::time(range.start()),
                range.thread_id()
            ));
        }
        if self.profiles.len() > 1 {
            words.push(format!("run {} of {}", group.run + 1, self.profiles.len()));
        }
        words.join(", ")
    }
}

/// The ranges of the pattern in the order they began; `each` if they are looked at one by one.
fn instances<'a>(profile: &'a Profile, pattern: &Pattern, each: bool) -> Vec<Instance<'a>> {
    let of_pattern = profile.matching(pattern);
    let mut instances: Vec<Instance<'a>> = Vec::new();
    // Of every range, the innermost instance that it is or lies in; and of every instance, the one around it.
    let store = &profile.store;
    let mut innermost: Vec<Option<usize>> = vec![None; store.ranges.len()];
    let mut around: Vec<Option<usize>> = Vec::new();
    let mut ranges: Vec<Range<'a>> = profile.ranges().collect();
    order::sort_by_key(&mut ranges, |range| store.order(range.id));
    for range in ranges {
        // A range comes after the one it lies in, whatever thread that is of.
        let parent = store.ranges[range.id.at()].parent.get();
        let outer = parent.and_then(|parent| innermost[parent.at()]);
        innermost[range.id.at()] = if of_pattern[profile.tree.of_range[range.id.at()].at()] {
            around.push(outer);
            let nested = outer.is_some();
            instances.push(Instance { range: Some(range), nested, ..Instance::default() });
            Some(instances.len() - 1)
        } else {
            outer
        };
    }
    let all_around = |range: Range<'_>| {
        std::iter::successors(innermost[range.id.at()], |instance| around[*instance])
    };
    // All together, only those that lie in no other are looked at.
    let outermost: Vec<usize> = if each {
        Vec::new()
    } else {
        let mut outermost: Vec<usize> = Vec::with_capacity(around.len());
        for (instance, around) in around.iter().enumerate() {
            outermost.push(around.map_or(instance, |around| outermost[around]));
        }
        outermost
    };
    let mut all_of = |range: Option<Range<'a>>, add: &mut dyn FnMut(&mut Instance<'a>)| {
        let Some(range) = range else { return };
        match innermost[range.id.at()] {
            Some(instance) if !each => add(&mut instances[outermost[instance]]),
            _ => all_around(range).for_each(|instance| add(&mut instances[instance])),
        }
    };
    for operation in profile.operations() {
        all_of(operation.range(), &mut |instance| instance.operations.push(operation));
    }
    for call in profile.calls() {
        all_of(call.range(), &mut |instance| instance.calls.push(call));
    }
    if profile.has_shared_work() {
        // Together they have it once, and one that counts it has it: the first of those that share it.
        let mut first: FxHashMap<Option<ShareId>, Option<usize>> = FxHashMap::default();
        for operation in profile.operations().filter(GpuOperation::is_shared) {
            if !each {
                if operation.range().is_some_and(|range| innermost[range.id.at()].is_some()) {
                    continue;
                }
                let call = operation.row().call.get().map(|call| &store.calls[call.at()]);
                let share = call.and_then(|call| store.call_kind(call).share);
                let first = *first.entry(share).or_insert_with(|| {
                    let ranges = operation.ranges().skip(1);
                    let of = ranges.filter_map(|range| innermost[range.id.at()]);
                    of.map(|instance| outermost[instance]).min()
                });
                first.into_iter().for_each(|first| instances[first].shared.push(operation));
                continue;
            }
            let counted: Vec<usize> = operation.range().into_iter().flat_map(all_around).collect();
            let others = operation.ranges().skip(1).flat_map(all_around);
            let mut others: Vec<usize> = others.filter(|other| !counted.contains(other)).collect();
            others.sort_unstable();
            others.dedup();
            others.into_iter().for_each(|other| instances[other].shared.push(operation));
        }
    }
    instances
}
