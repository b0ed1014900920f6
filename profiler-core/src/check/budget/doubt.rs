//! What a recording cannot tell: why an amount may be another than the one seen.

use cupti::CopyKind;
use rustc_hash::FxHashSet;

use super::quantity::{Quantity, Source, blocks, is_pageable, spans};
use super::scope::{Group, Instance, Scope};
use crate::join::health::Health;
use crate::profile::{ApiCall, Profile};

/// Why this amount of this group is not known; empty if it is.
pub(super) fn doubts(quantity: &Quantity, scope: &Scope<'_>, group: &Group<'_>) -> Vec<String> {
    let mut doubts = Doubts(Vec::new());
    let profile = &scope.profiles[group.run];
    let health = profile.health();
    if scope.pattern().is_some() {
        doubts.of_ranges(health, group);
    }
    doubts.add(health.panics, "panics were caught while recording");
    doubts.add(health.capture_losses, "losses in the capture's diagnostics");
    match quantity.source() {
        Source::Ranges => {}
        Source::Calls => doubts.of_calls(profile, quantity),
        Source::Work | Source::Times => {
            doubts.of_work(health, quantity, scope.pattern().is_some());
            doubts.of_graphs(group);
            if quantity.source() == Source::Work {
                doubts.of_whole_graphs(group);
            }
        }
    }
    doubts.of_copies(quantity, group);
    if quantity.source() == Source::Times {
        doubts.of_times(health, quantity, group);
    }
    doubts.0
}

/// Reasons, each with its count.
struct Doubts(Vec<String>);

impl Doubts {
    fn add(&mut self, count: u64, what: &str) {
        if count != 0 {
            self.0.push(format!("{count} {what}"));
        }
    }

    fn of_ranges(&mut self, health: &Health, group: &Group<'_>) {
        let ranges = group.instances.iter().filter_map(|instance| instance.range);
        let open = ranges.filter(|range| range.is_open()).count();
        self.add(open as u64, "of its instances had not ended at the stop");
        self.add(health.lost_ranges, "ranges were lost");
        self.add(health.calls_in_unknown_ranges, "calls were made in ranges that are not known");
    }

    fn of_calls(&mut self, profile: &Profile, quantity: &Quantity) {
        let store = &profile.store;
        let has_records = !store.operations.is_empty() || !store.synchronizations.is_empty();
        if store.calls.is_empty() && has_records {
            self.0.push("the recording has no driver calls".to_owned());
            return;
        }
        let health = profile.health();
        self.add(health.unlogged_calls, "calls could not be logged");
        let (account, what) = match quantity {
            Quantity::Launches | Quantity::GraphLaunches => {
                (health.kernels, "kernels have no call")
            }
            Quantity::Synchronizations => (health.synchronizations, "waits have no call"),
            _ => return,
        };
        self.add(account.records - account.matched_records, what);
    }

    fn of_work(&mut self, health: &Health, quantity: &Quantity, in_range: bool) {
        self.add(health.dropped_by_cupti, "records were dropped by CUPTI");
        self.add(health.refused_records, "records were over the limit of buffers");
        self.add(health.over_memory_limit, "records were over the memory limit");
        self.add(health.unknown_records, "records could not be read");
        self.add(health.unknown_range_entries, "entries of the range log could not be read");
        self.add(health.unreadable_bytes, "bytes of records could not be read");
        self.add(health.computed_tables, "tables of the capture are views or virtual");
        self.add(health.calls_without_any_record, "calls are of a kind without any record");
        self.add(health.unfinished_buffers, "buffers were unfinished at the stop");
        self.add(health.pending_calls, "calls were pending at the snapshot");
        let accounts = match quantity {
            Quantity::Kernels
            | Quantity::KernelsNamed(_)
            | Quantity::KernelsOtherThan(_)
            | Quantity::SharedKernels => vec![(health.kernels, "kernels")],
            Quantity::Memsets => vec![(health.memsets, "memsets")],
            Quantity::Streams => all(health),
            _ if quantity.source() == Source::Times => all(health),
            _ => vec![(health.copies, "copies")],
        };
        for (account, what) in accounts {
            let silent = account.calls - account.matched_calls;
            self.add(silent, &format!("calls for {what} have no record"));
            if in_range {
                let homeless = account.records - account.matched_records;
                self.add(
                    homeless,
                    &format!("{what} have no call, so that their range is not known"),
                );
            }
        }
    }

    /// A graph may have no work, or its records may not have come; nothing tells which.
    fn of_graphs(&mut self, group: &Group<'_>) {
        let silent = |instance: &Instance<'_>| {
            let key = |call: ApiCall<'_>| (call.thread_id(), call.start());
            let heard: FxHashSet<_> = instance
                .operations
                .iter()
                .filter_map(|operation| operation.call())
                .map(key)
                .collect();
            let launches = Quantity::GraphLaunches.calls(instance);
            launches.into_iter().filter(|call| !heard.contains(&key(*call))).count()
        };
        let silent: usize = group.instances.iter().map(silent).sum();
        self.add(silent as u64, "graph launches gave no record");
    }

    /// What ran in them has no records.
    fn of_whole_graphs(&mut self, group: &Group<'_>) {
        let operations = group.instances.iter().flat_map(|instance| &instance.operations);
        let graphs = operations.filter(|operation| operation.as_graph().is_some()).count();
        self.add(graphs as u64, "CUDA graphs were traced as a whole");
    }

    fn of_copies(&mut self, quantity: &Quantity, group: &Group<'_>) {
        let copies = || {
            let operations = group.instances.iter().flat_map(|instance| &instance.operations);
            operations.filter_map(|operation| operation.as_copy())
        };
        let (count, what) = match quantity {
            Quantity::BlockingCopies => (
                copies().filter(|copy| blocks(copy).is_none()).count(),
                "copies do not say whether the host waits for them",
            ),
            Quantity::PageableCopies => (
                copies().filter(|copy| is_pageable(copy).is_none()).count(),
                "copies do not say from and to what kind of memory they go",
            ),
            Quantity::Copies(Some(_)) | Quantity::CopiedBytes(Some(_)) => (
                copies().filter(|copy| matches!(copy.kind(), CopyKind::Unknown(_))).count(),
                "copies do not say their direction",
            ),
            _ => return,
        };
        self.add(count as u64, what);
    }

    fn of_times(&mut self, health: &Health, quantity: &Quantity, group: &Group<'_>) {
        let operations = group.instances.iter().flat_map(|instance| &instance.operations);
        let timeless = operations.filter(|operation| operation.interval().is_none()).count();
        self.add(timeless as u64, "operations have no timestamps");
        self.add(health.clock_step_ns, "ns were added to or taken from the clock");
        let is_empty = || group.instances.iter().flat_map(spans).all(|span| span.total == 0);
        if *quantity == Quantity::BusyShare && is_empty() {
            self.0.push("no GPU operation was asked for".to_owned());
        }
    }
}

fn all(health: &Health) -> Vec<(crate::join::health::Account, &'static str)> {
    vec![(health.kernels, "kernels"), (health.copies, "copies"), (health.memsets, "memsets")]
}
