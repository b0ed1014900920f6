//! Findings on the whole run: first steps, idle times, GPUs, profiler overhead.

use std::collections::BTreeSet;
use std::time::Duration;

use profiler_base::units::time;
use rustc_hash::FxHashMap;

use super::clock::{Part, Piece};
use super::estimate::device_list;
use super::evidence::{Evidence, IdleStack, Moment};
use super::finding::{Finding, FindingKind, Place};
use super::sign::{Sign, SignUnit};
use super::{Run, nanoseconds, times};
use crate::analyze::phases::PhaseKind;
use profiler_core::profile::{HostStack, HostState, Range, RangeNode};
use profiler_core::query::{DeviceTimes, Step};
use profiler_core::tables::range_tree::NodeId;

/// Minimum steps to compare the first with the others.
const LEAST_STEPS: usize = 5;
/// Reported ranges with an idle GPU.
const IDLE_PLACES: usize = 3;
/// Busy time relative to the busiest GPU below which a GPU is underused.
const LEAST_BUSY: f64 = 0.5;

impl Run<'_> {
    /// Slow first steps and kernel loading, for a run whose steady phases have neither.
    pub(super) fn start_up(&self) -> impl Iterator<Item = Finding> {
        let phase = Some(PhaseKind::StartUp.text().to_owned());
        let found = self.first_iterations().into_iter().chain(self.lazy_loading());
        found.map(move |found| Finding { phase: phase.clone(), ..found })
    }

    /// Outermost ranges whose first instances take longer.
    pub(super) fn first_iterations(&self) -> Vec<Finding> {
        // The first steps of a shorter range cannot cost more.
        let least = self.thresholds.get_finding_share() * self.clock.ns() as f64;
        let roots = self.profile.roots().filter(|root| {
            let is_long = nanoseconds(root.host_time()) as f64 >= least;
            root.instances() >= LEAST_STEPS as u64 && is_long
        });
        let finding = |root: RangeNode<'_>| {
            let steps = self.profile.steps_of(&root);
            let cold = steps.warm_up();
            if cold == 0 || steps.len() < LEAST_STEPS {
                return None;
            }
            let usual = steps.warm().statistics(Step::host_time).median();
            let longer = |step: &Step<'_>| step.host_time().saturating_sub(usual);
            let first = &steps.as_slice()[..cold];
            let cost: f64 = first.iter().map(|step| nanoseconds(longer(step)) as f64).sum();
            let (which, verb) = match cold {
                1 => ("the first".to_owned(), "takes"),
                more => (format!("the first {more}"), "take"),
            };
            let (count, usual_text) = (steps.len(), time(usual));
            let title = format!("{which} of {count} steps {verb} longer than {usual_text}");
            let slowest =
                first.iter().map(|step| step.host_time().as_secs_f64()).fold(0.0, f64::max);
            let factor = slowest / usual.as_secs_f64().max(f64::MIN_POSITIVE);
            let sign =
                Sign::at_least("slowest of them by the others", factor, SignUnit::Count, 1.1);
            let found = self.costing(FindingKind::FirstIterations, title, cost, vec![sign]);
            let first_times: Vec<Range<'_>> = first.iter().map(Step::range).collect();
            let within = self.clock.clipped(&times(&first_times), &BTreeSet::new());
            let found = self.limited(found, within.iter());
            let moment =
                |step: &Step<'_>| Moment::new(self.profile, step.range().row().time, None, None);
            let moments = first.iter().map(moment).collect();
            let evidence = Evidence::new(moments, self.thresholds.get_evidence());
            let places = vec![Place { path: Some(root.cut_path()), cost: found.cost }];
            let is_found = found.share >= self.thresholds.get_finding_share();
            is_found.then_some(Finding { places, evidence, ..found })
        };
        roots.filter_map(finding).collect()
    }

    /// Idle times with the host in no call, by the host's range.
    pub(super) fn idle_gaps(&self) -> Vec<Finding> {
        let mut places: FxHashMap<Option<NodeId>, Vec<(Piece, f64)>> = FxHashMap::default();
        for piece in &self.clock.pieces {
            if matches!(piece.part, Part::Host | Part::Loading) {
                let node =
                    piece.range.get().map(|range| self.profile.range_tree().of_range[range.at()]);
                places.entry(node).or_default().push((*piece, 1.0));
            }
        }
        // Each sum is a pass over the whole clock, so only the costliest are computed.
        let sum =
            |pieces: &[(Piece, f64)]| pieces.iter().map(|piece| piece.0.time.ns()).sum::<u64>();
        let places = places.into_iter().map(|(node, pieces)| (sum(&pieces), (node, pieces)));
        let places = self.costliest(places.collect(), IDLE_PLACES, |(node, _)| *node);
        let found = places.into_iter().filter_map(|(ns, (node, pieces))| {
            let is_loading = pieces.iter().all(|(piece, _)| piece.part == Part::Loading);
            let what =
                if is_loading { "loads data, by the range's name" } else { "is in no CUDA call" };
            let times = match pieces.len() {
                1 => "once".to_owned(),
                count => format!("{count} times"),
            };
            let place = if node.is_none() { ", outside any range" } else { "" };
            let title = format!("GPU idle {times} while the host {what}{place}");
            let least = self.thresholds.get_finding_share();
            let sign =
                Sign::share_at_least("GPU idle for it", ns as f64 / self.clock.total(), least);
            let idle_stacks = self.idle_stacks(&pieces);
            let found = self.finish(FindingKind::IdleGaps, title, pieces, vec![sign])?;
            Some(Finding { idle_stacks, ..found })
        });
        let mut found: Vec<Finding> = found.collect();
        found.sort_by(|a, b| b.cost.cmp(&a.cost).then_with(|| a.path().cmp(&b.path())));
        found.truncate(IDLE_PLACES);
        found
    }

    /// The host's stacks in idle times, or at their end, longest time first.
    fn idle_stacks(&self, pieces: &[(Piece, f64)]) -> Vec<IdleStack> {
        let store = &self.profile.tables();
        type Place<'a> = (Option<HostStack<'a>>, Option<HostState<'a>>);
        // By table, index in it and state: of many parts few are different.
        let mut sums: FxHashMap<_, (u64, Place<'_>)> = FxHashMap::default();
        for (piece, _) in pieces {
            let call = piece.operation.get().and_then(|id| store.operations[id.at()].call.get());
            let Some(call) = call.map(|id| &store.calls[id.at()]) else { continue };
            let mut left_ns = piece.time.ns();
            for part in store.host_parts(call.thread, piece.time) {
                left_ns = left_ns.saturating_sub(part.time.ns());
                let state = HostState::new(store, &part);
                let place = (HostStack::of_part(store, &part), Some(state));
                let key = (part.table, part.stack, Some(state));
                sums.entry(key).or_insert((0, place)).0 += part.time.ns();
            }
            let key = store.stack_of(call);
            if let (Some((table, place)), Some(stack)) = (key, HostStack::from_call(store, call)) {
                let place = ((table, Some(place), None), (Some(stack), None));
                sums.entry(place.0).or_insert((0, place.1)).0 += left_ns;
            }
        }
        // Samples of one function differ in their addresses.
        let mut by_name: FxHashMap<(Vec<String>, Option<HostState<'_>>), u64> =
            FxHashMap::default();
        for (ns, (stack, state)) in sums.into_values().filter(|(ns, _)| *ns != 0) {
            let frames = stack.map(|stack| stack.frames()).unwrap_or_default();
            let names = frames.iter().map(ToString::to_string).collect();
            *by_name.entry((names, state)).or_default() += ns;
        }
        let mut sums: Vec<_> = by_name.into_iter().collect();
        sums.sort_unstable_by(|(key, ns), (other, other_ns)| other_ns.cmp(ns).then(key.cmp(other)));
        sums.truncate(self.thresholds.get_evidence());
        let stack = |((frames, state), ns): ((_, Option<HostState<'_>>), u64)| IdleStack {
            frames,
            state: state.map(|state| state.to_string()),
            // The mean over devices, like the clock.
            cost: Duration::from_nanos(ns / self.clock.devices()),
        };
        sums.into_iter().map(stack).collect()
    }

    /// A GPU with much less work than the busiest, or without any. The effect of even work is not
    /// estimated, because the recording does not show if the work can be divided.
    pub(super) fn underused_gpu(&self) -> Option<Finding> {
        let devices = self.devices();
        let (there, used) = (self.profile.recording_info().devices.len(), devices.len());
        let most = devices.iter().max_by_key(|device| device.busy)?;
        let is_unused = |device: &&DeviceTimes| !self.clock.has(device.device);
        let unused: Vec<u32> = devices.iter().filter(is_unused).map(|it| it.device).collect();
        let least = devices.iter().min_by_key(|device| device.busy)?;
        let part = nanoseconds(least.busy) as f64 / (nanoseconds(most.busy) as f64).max(1.0);
        let note = |title, signs| Some(self.costing(FindingKind::UnderusedGpu, title, 0.0, signs));
        let busiest = format!("GPU {} for {}", most.device, time(most.busy));
        if !unused.is_empty() {
            let longest = devices.iter().filter(is_unused).map(|device| device.busy).max()?;
            let verb = if unused.len() == 1 { "is" } else { "are" };
            let title = format!(
                "{} {verb} unused: busy for at most {}, {busiest}",
                device_list(&unused),
                time(longest)
            );
            return note(title, Vec::new());
        }
        if devices.len() > 1 && part < LEAST_BUSY {
            let title = format!("GPU {} is busy for {}, {busiest}", least.device, time(least.busy));
            let sign = Sign::at_most("busy, by the busiest", part, SignUnit::Share, LEAST_BUSY);
            return note(title, vec![sign]);
        }
        match there > used {
            true => note(format!("{used} of {there} GPUs used"), Vec::new()),
            false => None,
        }
    }

    /// The estimated cost of recording.
    pub(super) fn profiler_overhead(&self) -> Option<Finding> {
        let waits = self.wait_count();
        let query = self.query();
        let ns = self.overhead_ns(&query, waits, query.count());
        let per_call = time(self.thresholds.get_overhead_per_call());
        let title = format!("recording may have taken {per_call} of each call");
        let found = self.costing(FindingKind::ProfilerOverhead, title, ns as f64, Vec::new());
        let mut found = self.limited(found, std::iter::empty());
        let least = self.thresholds.get_overhead_share();
        found.signs = vec![Sign::share_at_least("of the clock", found.share, least)];
        (found.share >= least).then_some(found)
    }
}
