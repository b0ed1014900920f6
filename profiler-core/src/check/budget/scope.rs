//! The scope of budgets: operations and calls of a range, by instance and run.

use profiler_base::kernel_names::Pattern;
use profiler_base::{order, units};
use rustc_hash::FxHashMap;

use crate::join::tables::ShareId;
use crate::profile::{ApiCall, GpuOperation, Profile, Range, RangeNode};

/// The whole profile, or the ranges of a pattern.
#[derive(Debug)]
pub(super) struct Scope<'a> {
    pub(super) profiles: &'a [Profile],
    target: Option<Target>,
    /// Each group must satisfy the budgets separately.
    pub(super) groups: Vec<Group<'a>>,
}

#[derive(Debug)]
struct Target {
    pattern: Pattern,
    each: bool,
}

/// All instances of one run, or a single instance.
#[derive(Debug, Default)]
pub(super) struct Group<'a> {
    pub(super) run: usize,
    /// The instance's index in its run, for a single instance.
    pub(super) number: Option<usize>,
    /// Entries into the range, nested ones included.
    pub(super) entered: u64,
    pub(super) instances: Vec<Instance<'a>>,
}

impl<'a> Group<'a> {
    pub(super) fn operations(&self) -> impl Iterator<Item = &GpuOperation<'a>> {
        self.instances.iter().flat_map(|instance| &instance.operations)
    }
}

/// One entry into the range, with everything submitted in it and in the ranges within it.
#[derive(Debug, Default)]
pub(super) struct Instance<'a> {
    /// `None` for the whole profile.
    pub(super) range: Option<Range<'a>>,
    /// The range's host time; the wall time of the whole profile.
    pub(super) host_ns: u64,
    pub(super) operations: Vec<GpuOperation<'a>>,
    pub(super) calls: Vec<ApiCall<'a>>,
    /// Operations shared with this instance and attributed to others; for all instances of a run
    /// together, each operation belongs to one instance.
    pub(super) shared: Vec<GpuOperation<'a>>,
    /// True within another match of the pattern.
    pub(super) nested: bool,
}

impl<'a> Scope<'a> {
    pub(super) fn whole(profiles: &'a [Profile]) -> Self {
        let group = |(run, profile): (usize, &'a Profile)| {
            let operations = profile.operations().collect();
            let calls = profile.calls().collect();
            let host_ns = units::nanoseconds(profile.wall_time());
            let instance = Instance { host_ns, operations, calls, ..Instance::default() };
            Group { run, entered: 1, instances: vec![instance], ..Group::default() }
        };
        Self { profiles, target: None, groups: profiles.iter().enumerate().map(group).collect() }
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
        Self { profiles, target: Some(Target { pattern, each }), groups }
    }

    pub(super) fn pattern(&self) -> Option<&Pattern> {
        self.target.as_ref().map(|target| &target.pattern)
    }

    /// Entries into the range in a run.
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

    /// The heading of the violations.
    pub(super) fn title(&self) -> String {
        match &self.target {
            None => "the whole profile".to_owned(),
            Some(target) => {
                let which = if target.each { "each instance" } else { "all instances together" };
                format!("range `{}`, {which}", target.pattern.text())
            }
        }
    }

    /// The position of a group, for a line after its amount; empty for the only group.
    pub(super) fn position_of(&self, group: &Group<'_>) -> String {
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

/// The ranges of the pattern in start order. With `each`, nested matches are separate instances.
fn instances<'a>(profile: &'a Profile, pattern: &Pattern, each: bool) -> Vec<Instance<'a>> {
    let of_pattern = profile.matching(pattern);
    let mut instances: Vec<Instance<'a>> = Vec::new();
    // The innermost instance of every range, and the instance around every instance.
    let store = &profile.store;
    let mut innermost: Vec<Option<usize>> = vec![None; store.ranges.len()];
    let mut around: Vec<Option<usize>> = Vec::new();
    let mut ranges: Vec<Range<'a>> = profile.ranges().collect();
    order::sort_by_key(&mut ranges, |range| store.order(range.id));
    for range in ranges {
        // A range follows its parent in this order, also across threads.
        let parent = store.ranges[range.id.at()].parent.get();
        let outer = parent.and_then(|parent| innermost[parent.at()]);
        innermost[range.id.at()] = if of_pattern[profile.tree.of_range[range.id.at()].at()] {
            around.push(outer);
            let nested = outer.is_some();
            let host_ns = units::nanoseconds(range.host_time());
            let range = Some(range);
            instances.push(Instance { range, host_ns, nested, ..Instance::default() });
            Some(instances.len() - 1)
        } else {
            outer
        };
    }
    let all_around = |range: Range<'_>| {
        std::iter::successors(innermost[range.id.at()], |instance| around[*instance])
    };
    // Without `each`, only outermost instances collect work.
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
        // Without `each`, the first instance that shares an operation gets it, if none counts it.
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
