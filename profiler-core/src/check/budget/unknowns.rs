//! Unknowns: reasons why a recording does not determine an amount.

use cupti::CopyKind;
use profiler_base::units::{nanoseconds, percent};
use rustc_hash::FxHashSet;

use super::quantity::{Quantity, Source, blocks, is_pageable, spans};
use super::scope::{Group, Instance, Scope};
use crate::join::health::{Account, Health};
use crate::profile::{ApiCall, MemoryCopy, Profile};

/// Fewer samples do not determine a share: with 400, its 95 % interval is at most 5 points to each
/// side.
const SAMPLES: f64 = 400.0;
/// The least share of exact samples.
const EXACT: f64 = 0.95;

/// Reasons why this amount of this group is unknown; empty if it is known.
pub(super) fn unknowns(quantity: &Quantity, scope: &Scope<'_>, group: &Group<'_>) -> Vec<String> {
    let mut unknowns = Unknowns(Vec::new());
    let profile = &scope.profiles[group.run];
    let health = profile.health();
    let in_range = scope.pattern().is_some();
    if in_range {
        let ranges = group.instances.iter().filter_map(|instance| instance.range);
        let open = ranges.filter(|range| range.is_open()).count() as u64;
        unknowns.add(open, "of its instances had not ended at the stop");
        unknowns.add(health.losses.lost_ranges, "ranges were lost");
        let calls = health.losses.calls_in_unknown_ranges;
        unknowns.add(calls, "calls were made in ranges that are not known");
    }
    unknowns.add(health.losses.panics, "panics were caught while recording");
    unknowns.add(health.losses.capture_losses, "losses in the capture's diagnostics");
    match quantity.source() {
        Source::Ranges if *quantity == Quantity::Instances => {}
        Source::Ranges => unknowns.add(health.losses.truncated, "recording is cut off"),
        Source::Calls => unknowns.add_calls(profile, quantity),
        Source::Work | Source::Times => {
            unknowns.add_work(health, quantity, in_range);
            unknowns.add_graphs(group);
            if let Quantity::StallShare(..) = quantity {
                unknowns.add_instructions(profile, quantity, group);
            }
            if quantity.source() == Source::Work {
                // Operations inside a graph traced as a whole have no records.
                let graphs = group.operations().filter(|operation| operation.as_graph().is_some());
                unknowns.add(graphs.count() as u64, "CUDA graphs were traced as a whole");
            }
        }
    }
    unknowns.add_copies(quantity, group);
    if quantity.source() == Source::Times {
        let untimed = group.operations().filter(|operation| operation.interval().is_none());
        unknowns.add(untimed.count() as u64, "operations have no timestamps");
        unknowns
            .add(nanoseconds(health.losses.clock_step), "ns were added to or taken from the clock");
        let is_empty = || group.instances.iter().flat_map(spans).all(|span| span.total == 0);
        if *quantity == Quantity::BusyShare && is_empty() {
            unknowns.0.push("no GPU operation was submitted".to_owned());
        }
    }
    unknowns.0
}

/// Reasons with their counts.
struct Unknowns(Vec<String>);

impl Unknowns {
    fn add(&mut self, count: u64, what: &str) {
        if count != 0 {
            self.0.push(format!("{count} {what}"));
        }
    }

    fn add_calls(&mut self, profile: &Profile, quantity: &Quantity) {
        let store = &profile.store;
        let has_records = !store.operations.is_empty() || !store.synchronizations.is_empty();
        if store.calls.is_empty() && has_records {
            self.0.push("the recording has no driver calls".to_owned());
            return;
        }
        let health = profile.health();
        self.add(health.losses.unlogged_calls, "calls could not be logged");
        let (account, what) = match quantity {
            Quantity::Launches | Quantity::GraphLaunches => {
                (health.accounts.kernels, "kernels have no call")
            }
            Quantity::Synchronizations => (health.accounts.synchronizations, "waits have no call"),
            _ => return,
        };
        self.add(account.records - account.matched_records, what);
    }

    fn add_work(&mut self, health: &Health, quantity: &Quantity, in_range: bool) {
        self.add(health.losses.dropped_by_cupti, "records were dropped by CUPTI");
        self.add(health.losses.refused_records, "records were over the limit of buffers");
        self.add(health.losses.over_memory_limit, "records were over the memory limit");
        self.add(health.losses.unknown_records, "records could not be read");
        self.add(health.losses.unknown_range_entries, "entries of the range log could not be read");
        self.add(health.losses.unreadable_bytes, "bytes of records could not be read");
        self.add(health.losses.computed_tables, "tables of the capture are views or virtual");
        self.add(health.losses.calls_without_any_record, "calls are of a kind without any record");
        self.add(health.losses.unfinished_buffers, "buffers were unfinished at the stop");
        self.add(health.facts.pending_calls, "calls were pending at the snapshot");
        let all: [(Account, &str); 3] = [
            (health.accounts.kernels, "kernels"),
            (health.accounts.copies, "copies"),
            (health.accounts.memsets, "memsets"),
        ];
        let accounts = match quantity {
            Quantity::Kernels
            | Quantity::KernelsNamed(_)
            | Quantity::KernelsOtherThan(_)
            | Quantity::StallShare(..)
            | Quantity::SharedKernels => &all[..1],
            Quantity::Memsets => &all[2..],
            _ if *quantity == Quantity::Streams || quantity.source() == Source::Times => &all,
            _ => &all[1..2],
        };
        for (account, what) in accounts {
            let missing = account.calls - account.matched_calls;
            self.add(missing, &format!("calls for {what} have no record"));
            if in_range {
                let unmatched = account.records - account.matched_records;
                let why = format!("{what} have no call, so that their range is not known");
                self.add(unmatched, &why);
            }
        }
    }

    fn add_instructions(&mut self, profile: &Profile, quantity: &Quantity, group: &Group<'_>) {
        let Some(counts) = profile.instruction_counts() else {
            self.0.push(
                "no instructions were sampled: add Sampling::instructions to the profiler"
                    .to_owned(),
            );
            return;
        };
        if !counts.is_complete() {
            self.0.push(counts.to_string());
        }
        let (samples, exact) = match quantity.instructions(&[group]) {
            Some(of) => (of.samples(), of.exact_share()),
            None => (0.0, 1.0),
        };
        if samples < SAMPLES {
            let why = format!("{samples:.0} instruction samples are too few; {SAMPLES} are needed");
            self.0.push(why);
        } else if exact < EXACT {
            let other = percent(1.0 - exact);
            let why = format!("{other} of the samples may be of the same kernel in other ranges");
            self.0.push(why);
        }
    }

    /// A launch without records may be an empty graph or lost records; both look the same.
    fn add_graphs(&mut self, group: &Group<'_>) {
        let silent = |instance: &Instance<'_>| {
            let key = |call: ApiCall<'_>| (call.process_id(), call.thread_id(), call.start());
            let calls = instance.operations.iter().filter_map(|operation| operation.call());
            let recorded: FxHashSet<_> = calls.map(key).collect();
            let launches = Quantity::GraphLaunches.calls(instance);
            launches.into_iter().filter(|call| !recorded.contains(&key(*call))).count()
        };
        let silent: usize = group.instances.iter().map(silent).sum();
        self.add(silent as u64, "graph launches gave no record");
    }

    fn add_copies(&mut self, quantity: &Quantity, group: &Group<'_>) {
        let (is_unknown, what): (fn(&MemoryCopy<'_>) -> bool, _) = match quantity {
            Quantity::BlockingCopies => (
                |copy| blocks(copy).is_none(),
                "copies do not record whether the host waits for them",
            ),
            Quantity::PageableCopies => {
                (|copy| is_pageable(copy).is_none(), "copies do not record their kinds of memory")
            }
            Quantity::Copies(Some(_)) | Quantity::CopiedBytes(Some(_)) => (
                |copy| matches!(copy.kind(), CopyKind::Unknown(_)),
                "copies do not record their direction",
            ),
            _ => return,
        };
        let copies = group.operations().filter_map(|operation| operation.as_copy());
        self.add(copies.filter(is_unknown).count() as u64, what);
    }
}
