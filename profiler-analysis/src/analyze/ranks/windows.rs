//! Stragglers in each instance of a range.

use std::collections::BTreeMap;
use std::time::Duration;

use profiler_base::kernel_names::Pattern;
use profiler_base::statistics::as_ns;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::analyze::diagnosis::{Straggler, Stragglers};
use crate::analyze::matches::{Match, Matches};
use profiler_core::profile::Profile;
use profiler_core::tables::CollectiveRow;
use profiler_core::tables::{Interval, RangeId, ThreadId};

/// An instance of a range, with the collectives enqueued in it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankWindow {
    /// The path of the range.
    pub path: String,
    /// Its number among the instances of its thread, from 0. Instances of several ranks with one
    /// number form a window.
    pub number: usize,
    /// The first arrival at a collective, since the recording began.
    #[serde(rename = "start_ns", serialize_with = "as_ns")]
    pub start: Duration,
    /// The last end of a collective, since the recording began.
    #[serde(rename = "end_ns", serialize_with = "as_ns")]
    pub end: Duration,
    /// Matched kernels.
    pub collectives: u64,
    /// The straggler of each communicator that has one, the latest first.
    pub stragglers: Vec<Straggler>,
}

/// The outermost instances of ranges.
pub(super) struct Instances {
    /// By start.
    by_thread: FxHashMap<ThreadId, Vec<(Interval, RangeId)>>,
    /// The thread of a process with instances; `None` if several threads have some.
    only_thread: FxHashMap<u32, Option<ThreadId>>,
}

impl Instances {
    /// `None` without instances.
    pub(super) fn find(profile: &Profile, path: &str) -> Option<Self> {
        let outermost = profile.outermost(&Pattern::new(path));
        let nodes = profile.nodes().filter(|node| outermost[node.id().at()]);
        let mut by_thread: FxHashMap<ThreadId, Vec<(Interval, RangeId)>> = FxHashMap::default();
        for id in nodes.flat_map(|node| profile.range_tree().instances(node.id())) {
            let range = &profile.tables().ranges[id.at()];
            by_thread.entry(range.thread).or_default().push((range.time, id));
        }
        let mut only_thread: FxHashMap<u32, Option<ThreadId>> = FxHashMap::default();
        for (thread, instances) in &mut by_thread {
            instances.sort_unstable_by_key(|(time, id)| (time.start_ns, id.0));
            let process = profile.tables().threads[thread.at()].process;
            let only = only_thread.entry(process);
            only.and_modify(|thread| *thread = None).or_insert(Some(*thread));
        }
        (!by_thread.is_empty()).then_some(Self { by_thread, only_thread })
    }

    /// The instance around a collective, with its number. The search covers the thread that
    /// enqueued the collective. Another thread may enqueue, so it also covers the only thread of
    /// the process with instances.
    fn enclosing(&self, row: &CollectiveRow) -> Option<(usize, RangeId)> {
        let own = self.by_thread.get(&row.thread);
        let only = || self.by_thread.get(&(*self.only_thread.get(&row.process)?)?);
        let instances = own.or_else(only)?;
        let after = instances.partition_point(|(time, _)| time.start_ns <= row.at_ns);
        let number = after.checked_sub(1)?;
        let (time, id) = instances[number];
        (row.at_ns <= time.end_ns).then_some((number, id))
    }

    /// Collectives belong to the instance in which they were enqueued; their kernels may run after
    /// its end.
    pub(super) fn windows(
        &self,
        profile: &Profile,
        stragglers: &Stragglers<'_>,
        matches: &Matches,
    ) -> Vec<RankWindow> {
        let rows = profile.collective_rows();
        let mut by_number: BTreeMap<usize, (RangeId, Vec<&Match>)> = BTreeMap::new();
        for matched in &matches.all {
            let found = matched.members.iter().find_map(|member| self.enclosing(&rows[member.row]));
            if let Some((number, id)) = found {
                by_number.entry(number).or_insert((id, Vec::new())).1.push(matched);
            }
        }
        let window = |(number, (id, all)): (usize, (RangeId, Vec<&Match>))| {
            let members = || all.iter().flat_map(|matched| &matched.members);
            let start = members().map(|member| member.time.start_ns).min().unwrap_or(0);
            let end = members().map(|member| member.time.end_ns).max().unwrap_or(0);
            RankWindow {
                path: profile.node(profile.range_tree().of_range[id.at()]).cut_path(),
                number,
                start: profile.since_start(start),
                end: profile.since_start(end),
                collectives: all.len() as u64,
                stragglers: stragglers.find(&all),
            }
        };
        by_number.into_iter().map(window).collect()
    }
}
