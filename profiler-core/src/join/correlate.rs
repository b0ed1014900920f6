//! Joins work to the submitting calls by correlation id, and balances the accounts. No times are
//! compared. The calls refer to their ranges.

use std::time::Duration;

use cupti::{CallClass, tables};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::join::account::{CountedOperation, ExpectedRecords, OperationClass};
use crate::join::attribute::Unmatched;
use crate::join::health::Health;
use crate::join::sampled_slices::SampledSlices;
use crate::join::tables::{
    Api, Call, CallId, Interval, Operation, RangesBy, Tables, ThreadId, What, Work,
};

/// The kinds of records found for a call, one bit each.
const OPERATIONS: u8 = 1;
const SYNCHRONIZATIONS: u8 = 2;

/// Calls by correlation id. CUPTI's ids are consecutive, so a dense table is small; ids of a
/// damaged file may be sparse.
enum Calls {
    Table { first: u32, rows: Vec<u32> },
    Map(FxHashMap<u32, CallId>),
}

const NO_CALL: u32 = u32::MAX;

impl Calls {
    /// Uses the last of several calls with one id. `count` is an upper bound of the number of
    /// `rows`.
    fn from_rows(count: usize, rows: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        // The first thread's first call mostly has the lowest id.
        let first = rows.clone().next().map_or(0, |(_, id)| id);
        let lowest = || rows.clone().map(|(_, id)| id).min().unwrap_or(0);
        Self::table(first, count, rows.clone())
            .or_else(|| Self::table(lowest(), count, rows.clone()))
            .unwrap_or_else(|| Self::Map(rows.map(|(row, id)| (id, CallId(row))).collect()))
    }

    /// `None` if an id is below the first, or too far above it for a table.
    fn table(first: u32, count: usize, rows: impl Iterator<Item = (u32, u32)>) -> Option<Self> {
        let most = 4 * count + 1024;
        let mut table = tables::with_capacity(most);
        for (row, id) in rows {
            let at = id.checked_sub(first)? as usize;
            if at >= most {
                return None;
            }
            while at >= table.len() {
                table.push(NO_CALL);
            }
            table[at] = row;
        }
        Some(Self::Table { first, rows: table })
    }

    #[inline]
    fn get(&self, id: u32) -> Option<CallId> {
        match self {
            Self::Table { first, rows } => {
                let row = *rows.get(id.checked_sub(*first)? as usize)?;
                (row != NO_CALL).then_some(CallId(row))
            }
            Self::Map(map) => map.get(&id).copied(),
        }
    }
}

/// The calls of each process: ids are unique only within a process.
enum ByProcess {
    One(Calls),
    Several(FxHashMap<u32, Calls>),
}

impl ByProcess {
    fn new(store: &Tables, is_left_out: impl Fn(&Call) -> bool) -> Self {
        let calls = &store.calls;
        let row =
            |(row, call): (u32, &Call)| (!is_left_out(call)).then_some((row, call.correlation_id));
        let first = store.threads.first().map_or(0, |thread| thread.process);
        if store.threads.iter().all(|thread| thread.process == first) {
            return Self::One(Calls::from_rows(calls.len(), (0..).zip(calls).filter_map(row)));
        }
        let mut rows: FxHashMap<u32, Vec<(u32, u32)>> = FxHashMap::default();
        for call in (0..).zip(calls) {
            let process = store.threads[call.1.thread.at()].process;
            rows.entry(process).or_default().extend(row(call));
        }
        let calls = |(process, rows): (u32, Vec<(u32, u32)>)| {
            (process, Calls::from_rows(rows.len(), rows.iter().copied()))
        };
        Self::Several(rows.into_iter().map(calls).collect())
    }

    #[inline]
    fn get(&self, process: impl FnOnce() -> u32, id: u32) -> Option<CallId> {
        match self {
            Self::One(calls) => calls.get(id),
            Self::Several(calls) => calls.get(&process())?.get(id),
        }
    }
}

/// Sets the call of every operation and side row within the windows.
pub(crate) fn join(store: &mut Tables, health: &mut Health) {
    set_outer_calls_apart(store);
    let windows = std::mem::take(&mut store.session.windows_ns);
    let within = |call: &Call| cupti::clock::is_within(&windows, call.time.start_ns);
    join_within(store, health, &windows, within);
    store.session.windows_ns = windows;
}

/// Joins the work of calls within, and removes the rest. Samples outside the windows are left out.
/// Tables that are joined already can be joined again, within less.
pub(crate) fn join_within(
    store: &mut Tables,
    health: &mut Health,
    windows_ns: &[(u64, u64)],
    within: impl Fn(&Call) -> bool,
) {
    let within = &within;
    let by_id = ByProcess::new(store, |_| false);
    let repeated = Repeated::new(store);
    let mut found = vec![0u8; store.calls.len()];
    let sampled = (!store.instructions.is_empty()).then(|| SampledSlices::new(store));
    join_operations(store, health, (&by_id, &repeated), &mut found, within);
    if let Some(all) = sampled {
        all.leave_outside_out(store, windows_ns);
    }
    join_side_rows(store, health, &by_id, &mut found, within);
    count_at_start(store, health);
    let are_outside = count_calls(store, health, &found, within);
    health.facts.calls_outside += are_outside;
    store.repeated_calls = repeated.into_calls(store);
    remove_calls_outside(store, are_outside, within);
}

/// Bounds of a session, for records without a call.
#[derive(Clone, Copy)]
struct Bounds {
    before_id: u32,
    stop_ns: u64,
}

impl Bounds {
    fn new(store: &Tables) -> Self {
        let session = &store.session;
        // Captures of other tools exclude what was submitted during the stop.
        let is_own = session.ranges_by == RangesBy::Calls;
        let stop_ns = if is_own { session.window_ns.1 } else { u64::MAX };
        Self { before_id: session.before_id, stop_ns }
    }

    /// True if a record without a call is counted.
    fn counts(self, health: &mut Health, id: u32, start_ns: Option<u64>) -> bool {
        let unmatched = Unmatched::classify(id, self.before_id, start_ns, self.stop_ns);
        health.facts.records_before += u64::from(unmatched == Unmatched::BeforeSession);
        unmatched == Unmatched::Missing
    }
}

fn join_operations(
    store: &mut Tables,
    health: &mut Health,
    (by_id, repeated): (&ByProcess, &Repeated),
    found: &mut [u8],
    within: impl Fn(&Call) -> bool,
) {
    let bounds = Bounds::new(store);
    let (calls, works) = (&store.calls, &store.works);
    // Captures of other tools may have two calls with one id.
    let is_own = store.session.ranges_by == RangesBy::Calls;
    // Most profiles have none.
    let repeated = (!repeated.by_id.is_empty()).then_some(repeated);
    // A loop, because the compiler does not inline this much into `retain_mut`.
    let mut rows_outside: Vec<u32> = Vec::new();
    for (at, operation) in (0..).zip(&mut store.operations) {
        let work = works.row(operation.work.at());
        let call = repeated
            .and_then(|repeated| repeated.get(work.process, operation))
            .or_else(|| by_id.get(|| work.process, operation.correlation_id));
        operation.call = call.into();
        let Some(row) = call else {
            let start_ns = operation.time().map(|time| time.start_ns);
            if bounds.counts(health, operation.correlation_id, start_ns) {
                count(health, work, operation, None);
            } else {
                rows_outside.push(at);
            }
            continue;
        };
        let is_first = found[row.at()] & OPERATIONS == 0;
        found[row.at()] |= OPERATIONS;
        if let Some(repeated) = repeated {
            repeated.rows(row).for_each(|row| found[row.at()] |= OPERATIONS);
        }
        let call = &calls[row.at()];
        if !within(call) {
            rows_outside.push(at);
            continue;
        }
        count(health, work, operation, Some(call));
        let is_repeat = || {
            let kind = store.call_kinds.row(call.kind.at());
            let is_own_work = !work.is_migration() && work.what.graph_node().is_none();
            is_own_work && kind.has_one_operation(store.names.get(kind.name))
        };
        health.losses.repeated_records += u64::from(!is_first && is_own && is_repeat());
    }
    if !rows_outside.is_empty() {
        let (mut at, mut rows_outside) = (0.., rows_outside.into_iter().peekable());
        store
            .operations
            .retain(|_| at.next().is_none_or(|at| rows_outside.next_if_eq(&at).is_none()));
    }
}

/// Joins side rows. The account of calls contains waits.
fn join_side_rows(
    store: &mut Tables,
    health: &mut Health,
    by_id: &ByProcess,
    found: &mut [u8],
    within: impl Fn(&Call) -> bool,
) {
    let (bounds, calls) = (Bounds::new(store), std::mem::take(&mut store.calls));
    store.retain_side_rows(|row| {
        let Some((id, call)) = row.call else { return true };
        let known = by_id.get(|| row.process.map_or(0, |process| *process), id);
        *call = known.into();
        let counts = match known {
            Some(row) => within(&calls[row.at()]),
            // Only waits without an id belong to a call.
            None => id == 0 && !row.is_wait || bounds.counts(health, id, None),
        };
        if counts && row.is_wait {
            health.count_synchronization(known.is_some());
            known.iter().for_each(|call| found[call.at()] |= SYNCHRONIZATIONS);
        }
        counts
    });
    store.calls = calls;
    store.mark_repeats();
}

/// Adds all calls to the account, and returns how many are outside the windows.
fn count_calls(
    store: &Tables,
    health: &mut Health,
    found: &[u8],
    within: impl Fn(&Call) -> bool,
) -> u64 {
    let (mut missing, mut are_outside) = (Missing::default(), 0);
    // A capture does not record which calls were captured into a graph, or had nothing to do.
    let is_capture = store.session.ranges_by == RangesBy::Containment;
    let pending_from_ns = store.session.pending_from_ns;
    // By kind and found records, for calls whose times do not matter.
    let mut counts = vec![[0; 4]; store.call_kinds.rows().len()];
    for (call, found) in store.calls.iter().zip(found) {
        if !within(call) {
            are_outside += 1;
            continue;
        }
        if !is_capture && pending_from_ns.is_none() {
            counts[call.kind.at()][usize::from(*found & (OPERATIONS | SYNCHRONIZATIONS))] += 1;
            continue;
        }
        let expected = store.call_kind(call).expected_records(call.time.end_ns);
        if is_capture && expected.expects_one() && *found == 0 {
            health.facts.calls_without_record += 1;
            missing.add(expected.class, call);
            continue;
        }
        add_calls(health, 1, &expected, *found, pending_from_ns);
    }
    for (kind, counts) in store.call_kinds.rows().iter().zip(counts) {
        let expected = kind.expected_records(0);
        for (found, count) in (0..).zip(counts) {
            add_calls(health, count, &expected, found, None);
        }
    }
    health.losses.calls_without_any_record = missing.count(store, health);
    are_outside
}

/// Adds calls with these kinds of records to the account.
fn add_calls(
    health: &mut Health,
    count: u64,
    expected: &ExpectedRecords,
    found: u8,
    pending_from_ns: Option<u64>,
) {
    let (operations, synchronizations) = (found & OPERATIONS != 0, found & SYNCHRONIZATIONS != 0);
    health.count_calls(count, expected, operations, synchronizations, pending_from_ns);
}

/// Calls of a capture with the same correlation id in one process; nsys joins work to each of them.
#[derive(Default)]
struct Repeated {
    /// Calls by process and id in start order. Rows are from [`Tables::calls`], then from
    /// [`Tables::outer_calls`].
    by_id: FxHashMap<(u32, u32), Vec<(u64, u32)>>,
    /// The ids of each call.
    ids: FxHashMap<u32, (u32, u32)>,
    calls: u32,
}

/// Upper bound of inspected calls with one id; real captures have two.
const MOST_REPEATED: usize = 64;

impl Repeated {
    fn new(store: &Tables) -> Self {
        if store.session.ranges_by != RangesBy::Containment {
            return Self::default();
        }
        let all = || (0..).zip(store.calls.iter().chain(&store.outer_calls));
        let key = |call: &Call| (store.threads[call.thread.at()].process, call.correlation_id);
        let (mut seen, mut by_id) = (FxHashSet::default(), FxHashMap::default());
        for (_, call) in all().filter(|(_, call)| call.correlation_id != 0) {
            if !seen.insert(key(call)) {
                by_id.insert(key(call), Vec::new());
            }
        }
        let mut ids = FxHashMap::default();
        if !by_id.is_empty() {
            for (row, call) in all() {
                if let Some(rows) = by_id.get_mut(&key(call)) {
                    rows.push((call.time.start_ns, row));
                }
            }
            for (key, rows) in &mut by_id {
                rows.sort_unstable();
                rows.truncate(MOST_REPEATED);
                ids.extend(rows.iter().map(|(_, row)| (*row, *key)));
            }
        }
        Self { by_id, ids, calls: store.calls.len() as u32 }
    }

    /// The call of an operation: the last one that began before it, or the first.
    fn get(&self, process: u32, operation: &Operation) -> Option<CallId> {
        if self.by_id.is_empty() {
            return None;
        }
        let rows = self.by_id.get(&(process, operation.correlation_id))?;
        let mut rows = rows.iter().filter(|(_, row)| *row < self.calls).copied();
        let first = rows.next()?;
        let start_ns = operation.time().map_or(u64::MAX, |time| time.start_ns);
        let last = rows.take_while(|(call_ns, _)| *call_ns <= start_ns).last();
        Some(CallId(last.unwrap_or(first).1))
    }

    /// All calls in [`Tables::calls`] with the id of a call.
    fn rows(&self, call: CallId) -> impl Iterator<Item = CallId> {
        // Most profiles have none.
        let key = if self.ids.is_empty() { None } else { self.ids.get(&call.0) };
        let rows = key.and_then(|key| self.by_id.get(key));
        let rows = rows.into_iter().flatten().map(|(_, row)| *row);
        rows.filter(|row| *row < self.calls).map(CallId)
    }

    fn into_calls(self, store: &Tables) -> FxHashMap<(u32, u32), Vec<Call>> {
        let call = |row: u32| match row.checked_sub(self.calls) {
            None => store.calls[row as usize],
            Some(row) => store.outer_calls[row as usize],
        };
        let calls = |rows: Vec<(u64, u32)>| rows.into_iter().map(|(_, row)| call(row)).collect();
        self.by_id.into_iter().map(|(key, rows)| (key, calls(rows))).collect()
    }
}

/// Calls of a capture without a record, of kinds that usually have one.
#[derive(Default)]
struct Missing {
    kernels: Vec<(ThreadId, u64)>,
    copies: Vec<(ThreadId, u64)>,
    memsets: Vec<(ThreadId, u64)>,
}

impl Missing {
    fn add(&mut self, class: CallClass, call: &Call) {
        let calls = match class {
            CallClass::KernelLaunch => &mut self.kernels,
            CallClass::Memcpy => &mut self.copies,
            CallClass::Memset => &mut self.memsets,
            _ => return,
        };
        calls.push((call.thread, call.time.start_ns));
    }

    /// Calls of kinds without any record, except those possibly captured into a graph.
    fn count(self, store: &Tables, health: &Health) -> u64 {
        let kinds = [
            (self.kernels, health.accounts.kernels.records),
            (self.copies, health.accounts.copies.records),
            (self.memsets, health.accounts.memsets.records),
        ];
        let calls: Vec<(ThreadId, u64)> = kinds
            .into_iter()
            .filter(|(_, records)| *records == 0)
            .flat_map(|(calls, _)| calls)
            .collect();
        if calls.is_empty() {
            return 0;
        }
        let captures = captures(store);
        let is_captured = |thread: ThreadId, at_ns: u64| {
            let process = store.threads[thread.at()].process;
            let captures = captures.get(&process).map_or(&[][..], |captures| captures);
            let next = captures.partition_point(|time| time.start_ns <= at_ns);
            next.checked_sub(1).is_some_and(|last| at_ns <= captures[last].end_ns)
        };
        calls.iter().filter(|(thread, at_ns)| !is_captured(*thread, *at_ns)).count() as u64
    }
}

/// The times in which a stream of each process was captured into a graph, sorted and disjoint.
fn captures(store: &Tables) -> FxHashMap<u32, Vec<Interval>> {
    let mut edges: Vec<(u32, u64, bool)> = Vec::new();
    for call in store.calls.iter().chain(&store.outer_calls) {
        let name = store.names.get(store.call_kind(call).name);
        let begins = name.contains("StreamBeginCapture");
        if begins || name.contains("StreamEndCapture") {
            let at_ns = if begins { call.time.start_ns } else { call.time.end_ns };
            edges.push((store.threads[call.thread.at()].process, at_ns, begins));
        }
    }
    edges.sort_unstable();
    let mut captures: FxHashMap<u32, Vec<Interval>> = FxHashMap::default();
    let mut open = 0_u64;
    for (process, at_ns, begins) in edges {
        let of = captures.entry(process).or_default();
        // Captures in progress belong to one process.
        open = if of.is_empty() { 0 } else { open };
        match (begins, of.last_mut()) {
            (true, _) if open == 0 => of.push(Interval { start_ns: at_ns, end_ns: u64::MAX }),
            (false, Some(last)) if open == 1 => last.end_ns = at_ns,
            _ => {}
        }
        open = if begins { open + 1 } else { open.saturating_sub(1) };
    }
    captures
}

/// Counts operations without a call that started before the first one with a call. Their calls were
/// made before the recording began. Operations are in start order, so that the search ends at the
/// first one with a call.
fn count_at_start(store: &Tables, health: &mut Health) {
    let is_first = |row: &&Operation| row.call.get().is_some() && row.time().is_some();
    let Some(first) = store.operations.iter().find(is_first) else { return };
    let before = store.operations.iter().take_while(|row| row.start_ns() < first.start_ns());
    for row in before.filter(|row| row.call.get().is_none() && row.time().is_some()) {
        let work = store.work(row);
        if !work.is_migration()
            && let Some(account) = health.account_mut(class(work))
        {
            account.records_at_start += 1;
        }
    }
}

/// Removes runtime calls that made a driver call from the table: the driver call represents both.
fn set_outer_calls_apart(store: &mut Tables) {
    if !store.call_kinds.rows().iter().any(|kind| kind.api == Api::Runtime) {
        return;
    }
    let is_runtime = |store: &Tables, call: &Call| store.call_kind(call).api == Api::Runtime;
    let inner = ByProcess::new(store, |call| is_runtime(store, call));
    let calls = std::mem::take(&mut store.calls);
    let process = |call: &Call| store.threads[call.thread.at()].process;
    let is_outer = |call: &Call| {
        is_runtime(store, call) && inner.get(|| process(call), call.correlation_id).is_some()
    };
    let (outer, calls) = calls.into_iter().partition(is_outer);
    (store.outer_calls, store.calls) = (outer, calls);
}

fn class(work: &Work) -> OperationClass {
    match work.what {
        What::Kernel { .. } => OperationClass::Kernel,
        What::Copy(_) => OperationClass::Copy,
        What::Memset(_) => OperationClass::Memset,
        What::Graph(_) => OperationClass::WholeGraph,
    }
}

/// Adds an operation and its call, if known, to the account.
#[inline]
fn count(health: &mut Health, work: &Work, operation: &Operation, call: Option<&Call>) {
    if work.is_migration() {
        health.losses.zero_timestamps += u64::from(operation.time().is_none());
        health.facts.migrations += 1;
        return;
    }
    health.count_operation(&CountedOperation {
        class: class(work),
        has_call: call.is_some(),
        has_times: operation.time().is_some(),
        is_node: work.what.graph_node().is_some(),
        is_captured: operation.captured.get().is_some(),
    });
    if let (Some(call), Some(time)) = (call, operation.time()) {
        let early = call.time.start_ns.saturating_sub(time.start_ns);
        health.facts.before_their_call += u64::from(early != 0);
        let error = Duration::from_nanos(early);
        health.facts.clock_error = health.facts.clock_error.max(error);
    }
}

/// Removes the calls outside the window from the table, once nothing refers to them.
fn remove_calls_outside(store: &mut Tables, are_outside: u64, within: impl Fn(&Call) -> bool) {
    store.outer_calls.retain(&within);
    if are_outside == 0 {
        return;
    }
    let mut kept = 0;
    let new_rows: Vec<u32> = store
        .calls
        .iter()
        .map(|call| {
            let row = kept;
            kept += u32::from(within(call));
            row
        })
        .collect();
    store.calls.retain(within);
    let moved = |call: CallId| CallId(new_rows[call.at()]);
    for operation in &mut store.operations {
        operation.call = operation.call.get().map(moved).into();
    }
    store.for_each_side_row(|row| {
        if let Some((_, call)) = row.call {
            *call = call.get().map(moved).into();
        }
    });
}
